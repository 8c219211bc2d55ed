//! MLRsearch with the device simulated by the process at the other end of standard input and output: `mlr_over_pipe
//! MINIMUM MAXIMUM GOAL…`.
//!
//! For each trial it writes `measure LOAD SECONDS` and reads the loss ratio. At the end it writes a line for each goal,
//! `found GOAL LOWER UPPER CONDITIONAL-THROUGHPUT RESULT`, with `none` for unknown values, and `trials NUMBER SECONDS`,
//! without the warm-up.

use std::{
    env,
    io::{self, BufRead, Write},
    time::Duration,
};

use wb_search::{Goal, LoadOutcome, Measurer, Mlr, Trial, TrialRequest, mlr};

struct Pipe(io::StdinLock<'static>);

impl Measurer for Pipe {
    type Error = io::Error;

    fn measure(&mut self, ask: &TrialRequest) -> io::Result<Option<Trial>> {
        let mut out = io::stdout().lock();
        let seconds = ask.duration.map_or(1.0, |duration| duration.as_secs_f64());
        writeln!(out, "measure {} {seconds}", ask.load)?;
        out.flush()?;
        let mut answer = String::new();
        if self.0.read_line(&mut answer)? == 0 {
            return Ok(None);
        }
        let loss: f64 = answer.trim().parse().map_err(io::Error::other)?;
        Ok(Some(Trial {
            outcome: if loss > 0.0 {
                LoadOutcome::Broke
            } else {
                LoadOutcome::Held
            },
            offered: ask.load,
            through: ask.load * (1.0 - loss),
            loss,
            overhead: Duration::ZERO,
        }))
    }
}

fn main() -> io::Result<()> {
    let mut words = env::args().skip(1);
    let mut load = || words.next().and_then(|word| word.parse::<f64>().ok());
    let (Some(minimum), Some(maximum)) = (load(), load()) else {
        return Err(io::Error::other("expected: MINIMUM MAXIMUM GOAL…"));
    };
    let names: Vec<String> = words.collect();
    let goals: Option<Vec<_>> = names.iter().map(|name| Goal::named(name)).collect();
    let plan = Mlr {
        goals: goals.ok_or_else(|| io::Error::other("goals are rfc2544, tst009, ndr and pdr"))?,
        ..Mlr::between(minimum, maximum)
    };
    let found = mlr(&mut Pipe(io::stdin().lock()), &plan)?;
    let mut out = io::stdout().lock();
    let number = |number: Option<f64>| number.map_or("none".into(), |number| number.to_string());
    for (name, goal) in names.iter().zip(&found.goals) {
        let loads = [goal.lower, goal.upper, goal.conditional_throughput].map(number);
        writeln!(out, "found {name} {} {:?}", loads.join(" "), goal.result)?;
    }
    writeln!(
        out,
        "trials {} {}",
        found.trials,
        found.trial_time.as_secs_f64()
    )
}
