//! Probes of devices. Each probe has its own thread, so a probe that hangs or fails affects only its own lines.

use std::{
    collections::BTreeMap,
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel},
    time::{Duration, Instant},
};

use wb_counters::stat_document::Probe as ProbeLine;
use wb_machine::{
    clock::monotonic_ns,
    probe::{Probe, Sample},
};
use wb_model::{PlanError, bench::ProbePlan, text::plan_from_toml};

use crate::StatError;

/// Message for a reading in progress.
const NO_ANSWER: &str = "no response yet";

/// Parses the given probes: keys of a `[[probe]]` in one line, or only its kind.
///
/// # Errors
/// If a probe cannot be parsed; reports the first one.
pub(crate) fn plans(typed: &[String]) -> Result<Vec<ProbePlan>, StatError> {
    let mut plans = Vec::new();
    for text in typed {
        let keys = match text.contains('=') {
            true => text.clone(),
            false => format!("kind = {text:?}"),
        };
        // The last line of a TOML error gives the reason; the other lines refer to a file.
        let plan = plan_from_toml("", &format!("probe = [{{ {keys} }}]")).map_err(|e| {
            let what = e.message.lines().next_back().unwrap_or_default().to_owned();
            StatError::Input(format!("--probe {text:?}: {}", in_our_words(&what)))
        })?;
        for probe in &plan.probes {
            probe.check().map_err(|PlanError(problems)| {
                let said: Vec<String> = problems.into_iter().map(|p| p.what).collect();
                StatError::Input(format!("--probe {text:?}: {}", said.join("; ")))
            })?;
        }
        plans.extend(plan.probes);
    }
    Ok(plans)
}

/// Rewords an error of the plan reader for the option.
fn in_our_words(said: &str) -> String {
    match said {
        "missing key \"kind\"" => "missing key: kind, as in kind = \"ipvs\"".to_owned(),
        _ if said.starts_with("unknown ") => said.to_owned(),
        _ => format!(
            "{}; keys are those of [[probe]] in plans: kind = \"ipvs\", name = \"lvs\"",
            said.replace('`', "")
        ),
    }
}

/// Result of one reading.
struct Reading {
    /// Start time; the values are as of this time.
    at_ns: u64,
    /// Duration of the reading.
    took: Duration,
    /// Values or error.
    read: Result<Sample, String>,
}

struct Watched {
    name: String,
    ask: SyncSender<()>,
    answers: Receiver<Reading>,
    /// True if an answer is outstanding.
    asked: bool,
    /// Time limit of a reading, after which it fails.
    timeout: Duration,
    /// Reading requested in the previous interval that ended after it.
    late: Option<Reading>,
    /// True if a reading takes longer than the patience, so that it is no longer waited for.
    slow: bool,
    /// Time and values of the last and of the first successful reading.
    last: Option<(u64, Sample)>,
    /// True if the last reading succeeded.
    fresh: bool,
    total: ProbeLine,
}

/// Set of all probes.
#[derive(Default)]
pub(crate) struct Probes {
    watched: Vec<Watched>,
    /// Time to wait for answers after the interfaces were read.
    patience: Duration,
}

impl Probes {
    /// Creates the probes without reading.
    ///
    /// # Errors
    /// If a probe cannot be created; reports the first one.
    pub(crate) fn open(plans: &[ProbePlan], interval: Duration) -> Result<Self, StatError> {
        let mut watched = Vec::new();
        for plan in plans {
            let probe = Probe::new(plan).map_err(StatError::Probe)?;
            let name = probe.name().to_owned();
            let (ask, asked) = sync_channel::<()>(1);
            let (answer, answers) = sync_channel::<Reading>(1);
            // A command that hangs blocks only its own thread.
            std::thread::Builder::new()
                .name("probe".to_owned())
                .spawn(move || {
                    while asked.recv().is_ok() {
                        let (at_ns, begin) = (monotonic_ns(), Instant::now());
                        let read = probe.read().map_err(|e| e.to_string());
                        let took = begin.elapsed();
                        if answer.send(Reading { at_ns, took, read }).is_err() {
                            return;
                        }
                    }
                })?;
            watched.push(Watched {
                total: ProbeLine {
                    name: name.clone(),
                    failures: Some(0),
                    ..ProbeLine::default()
                },
                name,
                ask,
                answers,
                asked: false,
                late: None,
                slow: false,
                timeout: Duration::from_nanos(plan.timeout.as_nanos()),
                last: None,
                fresh: false,
            });
        }
        Ok(Self {
            watched,
            patience: (interval / 2).min(Duration::from_millis(500)),
        })
    }

    /// Takes the readings before the first interval.
    pub(crate) fn begin(&mut self) {
        self.ask();
        let _ = self.lines();
    }

    /// Requests a reading from all probes except those with an outstanding answer.
    pub(crate) fn ask(&mut self) {
        for watched in &mut self.watched {
            watched.late = watched.answers.try_recv().ok();
            watched.asked &= watched.late.is_none();
            if !watched.asked {
                let asked = watched.ask.try_send(());
                watched.asked = !matches!(asked, Err(TrySendError::Disconnected(())));
            }
        }
    }

    /// Returns the changes in the interval that ends now; a reading belongs to the interval in which it ended.
    pub(crate) fn lines(&mut self) -> Vec<ProbeLine> {
        let patience = self.patience;
        let until = Instant::now() + patience;
        let next = |watched: &mut Watched| watched.next(until, patience);
        self.watched.iter_mut().map(next).collect()
    }

    /// Returns the changes in total.
    pub(crate) fn totals(&self) -> Vec<ProbeLine> {
        let total = |watched: &Watched| ProbeLine {
            missing: match &watched.last {
                // No reading has ended yet, neither with success nor with failure.
                None if watched.total.missing.is_none() => Some(NO_ANSWER.to_owned()),
                _ => watched.total.missing.clone(),
            },
            ..watched.total.clone()
        };
        self.watched.iter().map(total).collect()
    }
}

/// Lets a running command finish within its time limit, then ends it with all processes that it started; otherwise
/// they would remain.
impl Drop for Watched {
    fn drop(&mut self) {
        if self.asked {
            let _ = self
                .answers
                .recv_timeout(self.timeout + Duration::from_secs(1));
        }
    }
}

impl Watched {
    fn next(&mut self, until: Instant, patience: Duration) -> ProbeLine {
        let mut line = ProbeLine {
            name: self.name.clone(),
            ..ProbeLine::default()
        };
        let late = self.late.take();
        let was_late = late.is_some();
        if let Some(reading) = late {
            self.slow = reading.took > patience;
            self.take(reading, &mut line);
        }
        let left = match self.slow {
            true => Duration::ZERO,
            false => until.saturating_duration_since(Instant::now()),
        };
        match self.answers.recv_timeout(left) {
            Ok(reading) => {
                self.asked = false;
                self.take(reading, &mut line);
            }
            Err(RecvTimeoutError::Timeout) => {
                self.slow = true;
                if !was_late {
                    line.missing = Some(NO_ANSWER.to_owned());
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                line.missing = Some("the thread of the probe has ended".to_owned());
                self.total.missing.clone_from(&line.missing);
            }
        }
        line
    }

    /// Adds a reading to the line of its interval and to the total.
    fn take(&mut self, reading: Reading, line: &mut ProbeLine) {
        let sample = match reading.read {
            Ok(sample) => sample,
            Err(why) => {
                self.fresh = false;
                *self.total.failures.get_or_insert(0) += 1;
                self.total.missing = Some(why.clone());
                line.missing = Some(why);
                return;
            }
        };
        let at_ns = reading.at_ns;
        let before = self.last.replace((at_ns, sample.clone()));
        let was_fresh = std::mem::replace(&mut self.fresh, true);
        line.gauges.clone_from(&sample.gauges);
        let Some((then_ns, before)) = before else {
            line.missing = Some("first reading".to_owned());
            return;
        };
        let seconds = Duration::from_nanos(at_ns.saturating_sub(then_ns)).as_secs_f64();
        let counted = rises(&before.counters, &sample.counters);
        add(&mut self.total, &counted, seconds);
        self.total.gauges = sample.gauges;
        if was_fresh {
            line.missing = None;
            add(line, &counted, seconds);
        } else {
            // The rise since the last reading spans several intervals, so it counts only in the total.
            line.missing = Some("the previous reading failed".to_owned());
        }
    }
}

fn add(to: &mut ProbeLine, counted: &BTreeMap<String, Option<u64>>, seconds: f64) {
    to.seconds += seconds;
    for (name, rise) in counted {
        let sum = to.counted.entry(name.clone()).or_insert(Some(0));
        // A counter that was reset has no known total.
        *sum = sum.zip(*rise).map(|(sum, rise)| sum + rise);
    }
}

fn rises(
    before: &BTreeMap<String, u64>,
    now: &BTreeMap<String, u64>,
) -> BTreeMap<String, Option<u64>> {
    let rise = |(name, value): (&String, &u64)| {
        let before = before.get(name)?;
        Some((name.clone(), value.checked_sub(*before)))
    };
    now.iter().filter_map(rise).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(command: &str) -> Vec<ProbePlan> {
        let typed = format!(
            "kind = \"command\", name = \"x\", command = '{command}', counters = {{ n = '^n (\\d+)' }}, timeout = \"300ms\""
        );
        plans(&[typed]).unwrap()
    }

    #[test]
    fn keys_are_those_of_plans() {
        assert_eq!(plans(&["ipvs".to_owned()]).unwrap()[0].title(), "ipvs");
        let typed = "kind = \"dpvs\", node = \"wb-x\", name = \"d\"".to_owned();
        assert_eq!(plans(&[typed]).unwrap()[0].node.as_deref(), Some("wb-x"));
        for wrong in [
            "banana",
            "kind = \"ipvs\", colour = 3",
            "kind = ",
            "command = \"x\"",
        ] {
            let error = plans(&[wrong.to_owned()]);
            assert!(error.is_err(), "{wrong}");
        }
        for (typed, said) in [
            ("nope", "unknown value \"nope\": use one of ipvs, dpvs"),
            ("", "unknown value \"\": use one of ipvs, dpvs"),
            (
                "kind = 'ipvs', colour = 3",
                "unknown key \"colour\": use one of kind, ",
            ),
            ("command = 'x'", "missing key: kind"),
            ("kind = ", "keys are those of [[probe]]"),
            (
                "kind = 'command'",
                "kind \"command\" needs command; kind \"command\" needs counters",
            ),
        ] {
            let error = plans(&[typed.to_owned()]).unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains('`'), "{error}");
        }
    }

    #[test]
    fn what_fails_is_missing_and_the_whole_still_adds_up() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path();
        let say = |text: &str| std::fs::write(path, text).unwrap();
        say("n 10\n");
        let plan = plan(&format!("cat {}", path.display()));
        let mut probes = Probes::open(&plan, Duration::from_secs(4)).unwrap();
        let mut next = |text: &str| {
            say(text);
            probes.ask();
            probes.lines().remove(0)
        };
        assert!(next("n 10\n").missing.is_some(), "the first reading");
        assert_eq!(next("n 17\n").counted["x.n"], Some(7));
        assert!(next("rubbish\n").missing.unwrap().contains("no match for"));
        // Spans two intervals: part of the total, of neither interval.
        let after = next("n 27\n");
        assert!(after.missing.is_some() && after.counted.is_empty());
        assert_eq!(next("n 28\n").counted["x.n"], Some(1));
        let total = probes.totals().remove(0);
        assert_eq!((total.counted["x.n"], total.failures), (Some(18), Some(1)));
    }

    #[test]
    fn one_that_hangs_holds_nobody_up() {
        let mut probes = Probes::open(&plan("sleep 60"), Duration::from_millis(200)).unwrap();
        let begin = Instant::now();
        probes.ask();
        let line = probes.lines().remove(0);
        assert!(line.missing.is_some());
        assert!(begin.elapsed() < Duration::from_secs(1));
    }

    /// A reading that takes two intervals is reported in the second one and is no failure in the first.
    #[test]
    fn a_reading_belongs_to_the_interval_in_which_it_ended() {
        let folder = tempfile::tempdir().unwrap();
        let (value, ready) = (folder.path().join("value"), folder.path().join("ready"));
        let mut plan = plan(&format!(
            "until [ -e {ready} ]; do sleep 0.01; done; rm {ready}; cat {}",
            value.display(),
            ready = ready.display()
        ));
        plan[0].timeout = wb_model::units::Span::from_secs(10);
        let mut probes = Probes::open(&plan, Duration::from_millis(2)).unwrap();
        let mut next = || {
            probes.ask();
            probes.lines().remove(0)
        };
        let no_answer = |line: &ProbeLine| {
            assert_eq!(line.missing.as_deref(), Some(NO_ANSWER));
        };
        no_answer(&next());
        let mut end_of = |text: &str| {
            std::fs::write(&value, text).unwrap();
            std::fs::write(&ready, "").unwrap();
            let answered =
                || Some(next()).filter(|line| line.missing.as_deref() != Some(NO_ANSWER));
            wb_testing::polled(Duration::from_secs(30), answered).expect("an answer")
        };
        let first = end_of("n 10\n");
        assert_eq!(first.missing.as_deref(), Some("first reading"));
        let second = end_of("n 17\n");
        assert_eq!((second.missing, second.counted["x.n"]), (None, Some(7)));
        let third = end_of("n 27\n");
        assert_eq!((third.missing, third.counted["x.n"]), (None, Some(10)));
        // The reading requested meanwhile is in progress.
        no_answer(&next());
        let total = probes.totals().remove(0);
        assert_eq!((total.counted["x.n"], total.failures), (Some(17), Some(0)));
        assert_eq!(total.missing, None);
        std::fs::write(&ready, "").unwrap();
    }
}
