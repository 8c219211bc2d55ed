//! Other rates while a load runs: a local socket, a line in, a line of JSON out.
//!
//! | line | does |
//! |---|---|
//! | `rate cps=20000 cc=5000` | sets what is named of cps, cc, rps, pps, bps, of all clients together; `off` takes a limit away |
//! | `show` | nothing |
//! | `stop` | ends the run in order, as a signal does |
//!
//! Each is answered by the counters so far, or by `{"error": …}`.

use std::{
    io::{BufRead, BufReader, ErrorKind, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    time::Duration,
};

use wb_model::{
    Plan, Snapshot,
    load::{LoadEnd, LoadRate},
    units::parse_count,
};

use super::PreparedLoad;
use crate::StartError;

/// A caller that says nothing is not waited for any longer.
const PATIENCE: Duration = Duration::from_millis(100);
/// Longer lines are nobody's.
const LONGEST: usize = 512;

/// The socket, removed at the end.
pub(super) struct ControlPoint {
    listener: UnixListener,
    path: PathBuf,
    /// What was set last of each client job, over what the plan says.
    set: Option<Vec<LoadRate>>,
    stopped: bool,
}

impl Drop for ControlPoint {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl ControlPoint {
    pub(super) fn open(path: &Path) -> Result<Self, StartError> {
        let refused = |cause: std::io::Error| {
            StartError::stream(
                format!("--control {}", path.display()),
                format!("cannot listen there: {cause}"),
            )
        };
        if UnixStream::connect(path).is_ok() {
            return Err(refused(ErrorKind::AddrInUse.into()));
        }
        // What a killed run has left.
        if std::fs::symlink_metadata(path).is_ok_and(|m| {
            use std::os::unix::fs::FileTypeExt;
            m.file_type().is_socket()
        }) {
            let _ = std::fs::remove_file(path);
        }
        let listener = UnixListener::bind(path).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            set: None,
            stopped: false,
        })
    }

    /// Whether somebody ended the run.
    pub(super) const fn said_stop(&self) -> bool {
        self.stopped
    }

    /// Answers whoever is there. Says whether the run is to end.
    pub(super) fn serve(&mut self, run: &PreparedLoad, look: impl Fn() -> Snapshot) -> bool {
        let Ok((mut caller, _)) = self.listener.accept() else {
            return false;
        };
        let Some(line) = read_line(&caller) else {
            return false;
        };
        let result = self.obey(line.trim(), run);
        let answer = match &result {
            Ok(_) => serde_json::to_string(&look()).unwrap_or_default(),
            Err(text) => serde_json::json!({ "error": text }).to_string(),
        };
        let _ = writeln!(caller, "{answer}");
        let stop = result.unwrap_or(false);
        self.stopped |= stop;
        stop
    }

    fn obey(&mut self, line: &str, run: &PreparedLoad) -> Result<bool, String> {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("show") => Ok(false),
            Some("stop") => Ok(true),
            Some("rate") => {
                let jobs: Vec<usize> = (0..run.jobs.len())
                    .filter(|job| run.plan.loads[*job].end == LoadEnd::Client)
                    .collect();
                let planned = || jobs.iter().map(|job| run.plan.loads[*job].rate).collect();
                let mut rates: Vec<LoadRate> = self.set.clone().unwrap_or_else(planned);
                if jobs.is_empty() {
                    return Err("there is no client in this run".to_owned());
                }
                for word in words {
                    let (key, value) = setting(word)?;
                    let shares = client_shares(&run.plan, value);
                    for (rate, value) in rates.iter_mut().zip(shares) {
                        *key(rate) = value;
                    }
                }
                for (job, rate) in jobs.iter().zip(&rates) {
                    run.jobs[*job].control.set_rate(rate);
                }
                self.set = Some(rates);
                Ok(false)
            }
            _ => Err(format!(
                "{line:?} is none of: rate KEY=NUMBER …, show, stop"
            )),
        }
    }
}

type Key = fn(&mut LoadRate) -> &mut Option<u64>;

/// `cps=20k`: which, and to what.
fn setting(word: &str) -> Result<(Key, Option<u64>), String> {
    let wrong = || format!("{word:?}; cps, cc, rps, pps or bps, =, and a number (20k) or off");
    let (key, value) = word.split_once('=').ok_or_else(wrong)?;
    let key: Key = match key {
        "cps" => |rate| &mut rate.cps,
        "cc" => |rate| &mut rate.cc,
        "rps" => |rate| &mut rate.rps,
        "pps" => |rate| &mut rate.pps,
        "bps" => |rate| &mut rate.bps,
        _ => return Err(wrong()),
    };
    let value = match value {
        "off" => None,
        text => Some(parse_count(text).map_err(|_| wrong())?),
    };
    Ok((key, value))
}

/// A rate of all clients of a plan as shares of its client jobs, in their order, by the workers of their ports;
/// the sum of the shares is `rate`.
#[must_use]
pub fn client_shares(plan: &Plan, rate: Option<u64>) -> Vec<Option<u64>> {
    let workers: Vec<u64> = plan
        .loads
        .iter()
        .filter(|job| job.end == LoadEnd::Client)
        .map(|job| {
            let port = plan.ports.iter().find(|p| p.name == job.port);
            port.map_or(1, |p| u64::from(p.workers.max(1)))
        })
        .collect();
    let all = u128::from(workers.iter().sum::<u64>().max(1));
    let mut before = 0;
    let mut shares = Vec::new();
    for own in workers {
        let up_to = |n: u64, rate: u64| (u128::from(rate) * u128::from(n) / all) as u64;
        shares.push(rate.map(|rate| up_to(before + own, rate) - up_to(before, rate)));
        before += own;
    }
    shares
}

fn read_line(caller: &UnixStream) -> Option<String> {
    caller.set_nonblocking(false).ok()?;
    caller.set_read_timeout(Some(PATIENCE)).ok()?;
    caller.set_write_timeout(Some(PATIENCE)).ok()?;
    let mut line = String::new();
    let mut reader = BufReader::new(std::io::Read::take(caller, LONGEST as u64));
    reader.read_line(&mut line).ok()?;
    Some(line)
}

#[cfg(test)]
mod tests {
    use wb_model::{PortPlan, load::LoadJob};

    use super::*;

    #[test]
    fn rates_are_set_one_by_one() {
        let mut rate = LoadRate {
            cps: Some(5),
            cc: Some(7),
            ..LoadRate::default()
        };
        for word in ["cps=1.5k", "cc=off", "rps=3"] {
            let (key, value) = setting(word).unwrap();
            *key(&mut rate) = value;
        }
        assert_eq!((rate.cps, rate.cc, rate.rps), (Some(1500), None, Some(3)));
        for wrong in ["cps", "cps=", "cps=x", "speed=3", "cps=-1", "cps=0.5"] {
            assert!(setting(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn clients_share_a_rate_by_their_workers() {
        let mut plan = Plan::default();
        for (name, end, workers) in [
            ("a", LoadEnd::Client, 1),
            ("b", LoadEnd::Server, 5),
            ("c", LoadEnd::Client, 2),
        ] {
            let locator = format!("memory:{name}").parse().unwrap();
            plan.ports.push(PortPlan {
                workers,
                ..PortPlan::new(name, locator)
            });
            plan.loads.push(LoadJob {
                port: name.to_owned(),
                end,
                ..LoadJob::default()
            });
        }
        assert_eq!(client_shares(&plan, Some(100)), [Some(33), Some(67)]);
        assert_eq!(client_shares(&plan, Some(u64::MAX)).len(), 2);
        assert_eq!(client_shares(&plan, None), [None, None]);
    }
}
