//! Probes of the device: commands that show its counters, read before the first frame, at each interval, and after the
//! last frame. Each probe has a dedicated thread. A failed reading is counted and ends nothing. A probe that hangs
//! delays the end by the time limit of one reading.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use wb_engine::criteria;
use wb_engine::{Ended, Engine, EngineState, Launch, Outcome, Part, Stop};
use wb_machine::probe::{Probe, Sample as Reading};
use wb_model::{
    JobKind, Plan, ProbeLive, Snapshot,
    bench::{ProbePlan, ProbeReport},
    counted,
    timeline::Row,
};
use wb_open::{OpenPort, StartError, Workers};

/// Interval at which a reading thread checks for the end.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A probe and the record of its readings.
pub struct Watched {
    probe: Probe,
    record: Mutex<Record>,
}

#[derive(Default)]
struct Record {
    last_failed: bool,
    report: ProbeReport,
    gauges: BTreeMap<String, u64>,
    /// Counters that fell from one reading to the next: for each, the values before and after the first fall.
    fell: BTreeMap<String, (u64, u64)>,
}

impl Watched {
    /// Opens the probes of a plan. `place` is their place in the plan.
    ///
    /// # Errors
    /// Returns the error of the first probe that cannot be opened.
    pub fn open(plans: &[ProbePlan], place: &str) -> Result<Vec<Self>, StartError> {
        let open = |(n, plan)| {
            let probe = Probe::new(plan)
                .map_err(|e| StartError::stream(format!("{place} {}", n + 1), e.to_string()))?;
            let report = ProbeReport {
                name: probe.name().to_owned(),
                command: probe.command(),
                ..ProbeReport::default()
            };
            Ok(Self {
                probe,
                record: Mutex::new(Record {
                    report,
                    ..Record::default()
                }),
            })
        };
        plans.iter().enumerate().map(open).collect()
    }

    /// Reads the probe once more; returns `None` on failure.
    pub fn read(&self) -> Option<Reading> {
        self.read_within(self.probe.timeout())
    }

    /// Reads the probe with this time limit; returns `None` on failure.
    fn read_within(&self, limit: Duration) -> Option<Reading> {
        let read = self.probe.read_within(limit);
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        record.note(read.as_ref().map_err(ToString::to_string));
        read.ok()
    }

    /// Report of the probe.
    pub fn report(&self) -> ProbeReport {
        let record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        record.report.clone()
    }

    fn figures(&self) -> BTreeMap<String, u64> {
        let record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        record.figures()
    }

    fn fallen(&self) -> Option<String> {
        let record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        record.fallen()
    }

    /// Records the last reading, unless it failed.
    #[allow(clippy::cast_precision_loss)]
    fn record(&self, row: &mut Row<'_>) {
        let live = self.live();
        if self
            .record
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .last_failed
        {
            return;
        }
        let of = format!("probe {}", live.name);
        for (name, value) in &live.counters {
            row.counter(&of, name, "", *value);
        }
        for (name, value) in &live.gauges {
            row.level(&of, name, "", *value as f64);
        }
    }

    fn live(&self) -> ProbeLive {
        let record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let report = &record.report;
        let risen = |(name, after): (&String, &u64)| {
            let before = report.before.get(name).copied().unwrap_or(0);
            (name.clone(), after.saturating_sub(before))
        };
        ProbeLive {
            name: report.name.clone(),
            failures: report.failures,
            counters: report.after.iter().map(risen).collect(),
            gauges: record.gauges.clone(),
        }
    }
}

impl Record {
    /// Growth of each counter, and the highest value of each gauge. Empty if the last reading failed, because later
    /// changes are unknown. Counters that fell are left out: they were reset.
    fn figures(&self) -> BTreeMap<String, u64> {
        if self.last_failed {
            return BTreeMap::new();
        }
        let report = &self.report;
        let whole = |(name, _): &(&String, &u64)| !self.fell.contains_key(*name);
        let risen = report.after.iter().filter(whole).map(|(name, after)| {
            let before = report.before.get(name).copied().unwrap_or(0);
            (name.clone(), after.saturating_sub(before))
        });
        let highest = report.highest.iter().map(|(name, n)| (name.clone(), *n));
        risen.chain(highest).collect()
    }

    /// Names the counters that fell, if any.
    fn fallen(&self) -> Option<String> {
        let (name, (from, to)) = self.fell.first_key_value()?;
        let others = match self.fell.len() - 1 {
            0 => String::new(),
            n => format!(" (and {})", counted(n, "more counter", "more counters")),
        };
        Some(format!(
            "probe {}: {name} fell from {from} to {to}{others}: reset during the run, so the increase is unknown",
            self.report.name
        ))
    }

    fn note(&mut self, read: Result<&Reading, String>) {
        let report = &mut self.report;
        report.readings += 1;
        self.last_failed = read.is_err();
        match read {
            Ok(reading) => {
                if report.before.is_empty() {
                    report.before.clone_from(&reading.counters);
                }
                for (name, n) in &reading.counters {
                    if let Some(last) = report.after.get(name).filter(|last| n < last) {
                        self.fell.entry(name.clone()).or_insert((*last, *n));
                    }
                }
                report.after.clone_from(&reading.counters);
                for (name, value) in &reading.gauges {
                    let highest = report.highest.entry(name.clone()).or_default();
                    *highest = (*highest).max(*value);
                }
                self.gauges.clone_from(&reading.gauges);
            }
            Err(error) => {
                report.failures += 1;
                report.last_failure = Some(error);
            }
        }
    }
}

/// All probes of a run.
pub struct Probes {
    plan: Plan,
    every: Duration,
    watched: Arc<Vec<Watched>>,
    workers: Workers<()>,
    /// Time at which the probes were stopped.
    stop: Arc<OnceLock<Instant>>,
    /// True if the last reading is skipped.
    hurry: Arc<AtomicBool>,
}

impl Probes {
    /// Opens the probes of the plan and reads each of them: the counters before the run.
    ///
    /// # Errors
    /// Returns the error of the first probe that cannot be opened.
    pub fn open(plan: &Plan) -> Result<Self, StartError> {
        let watched = Watched::open(&plan.probes, "probe")?;
        std::thread::scope(|threads| {
            for probe in &watched {
                threads.spawn(|| probe.read());
            }
        });
        let plan = plan.part(JobKind::Probe);
        check_counters(&plan, &watched)?;
        Ok(Self {
            every: Duration::from_nanos(plan.interval.as_nanos()),
            plan,
            watched: Arc::new(watched),
            workers: Workers::new(&Arc::default()),
            stop: Arc::default(),
            hurry: Arc::new(AtomicBool::new(false)),
        })
    }
}

/// Checks that the counters in criteria exist.
fn check_counters(plan: &Plan, watched: &[Watched]) -> Result<(), StartError> {
    let known: BTreeMap<String, u64> = watched.iter().flat_map(Watched::figures).collect();
    for criterion in &plan.criteria {
        let name = &criterion.metric;
        if criterion.kind != Some(JobKind::Probe) || known.contains_key(name) {
            continue;
        }
        let failures: Vec<String> = watched
            .iter()
            .filter_map(|probe| probe.report().last_failure)
            .collect();
        let there = match (known.is_empty(), failures.is_empty()) {
            (_, false) => format!("reading failed: {}", failures.join("; ")),
            (true, _) => "no probe has counters".to_owned(),
            _ => {
                let mut names: Vec<&str> = known.keys().map(String::as_str).collect();
                names.sort_by_key(|other| std::cmp::Reverse(shared(other, name)));
                names.truncate(8);
                format!(
                    "{}, such as {}",
                    counted(known.len(), "counter exists", "counters exist"),
                    names.join(", ")
                )
            }
        };
        return Err(StartError::stream(
            "criteria".to_owned(),
            format!("{criterion}: no probe has a counter {name:?}; {there}"),
        ));
    }
    Ok(())
}

/// Number of letters that two names have in common at their beginnings and ends.
fn shared(one: &str, other: &str) -> usize {
    let begin = one.bytes().zip(other.bytes());
    let end = one.bytes().rev().zip(other.bytes().rev());
    begin.take_while(|(a, b)| a == b).count() + end.take_while(|(a, b)| a == b).count()
}

/// Reads at an interval until stopped, and then once more, within the time that is left of one reading from the stop
/// on. If a reading was under way at the stop and failed, there is no further one.
fn follow(probe: &Watched, every: Duration, stop: &OnceLock<Instant>, hurry: &AtomicBool) {
    let mut next = Instant::now() + every;
    let mut hangs = false;
    while stop.get().is_none() {
        if Instant::now() >= next {
            next = Instant::now() + every;
            hangs = probe.read().is_none() && stop.get().is_some();
        } else {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
    let since = stop.get().map_or(Duration::ZERO, Instant::elapsed);
    let left = probe.probe.timeout().saturating_sub(since);
    if !hangs && !hurry.load(Ordering::Acquire) {
        probe.read_within(left);
    }
}

impl Engine for Probes {
    fn kind(&self) -> JobKind {
        JobKind::Probe
    }

    fn ports(&self) -> &[OpenPort] {
        &[]
    }

    fn only_listens(&self) -> bool {
        true
    }

    fn spawn(&mut self, launch: &Launch<'_>) -> Result<(), StartError> {
        self.workers = Workers::new(launch.alarm);
        for n in 0..self.watched.len() {
            let (watched, every) = (Arc::clone(&self.watched), self.every);
            let (stop, hurry) = (Arc::clone(&self.stop), Arc::clone(&self.hurry));
            let work = move || follow(&watched[n], every, &stop, &hurry);
            self.workers.spawn_plain("wb-probes".to_owned(), work)?;
        }
        Ok(())
    }

    fn begin(&mut self, _start_ns: u64) {}

    fn stop(&mut self, how: Stop) {
        self.hurry.fetch_or(how == Stop::Now, Ordering::AcqRel);
        let _ = self.stop.set(Instant::now());
    }

    fn state(&mut self, _now: u64) -> EngineState {
        match self.workers.all_over() {
            true => EngineState::Over,
            false => EngineState::Running,
        }
    }

    fn fill(&self, part: &mut Part<'_>) {
        let probes = self.watched.iter().map(Watched::report);
        part.report.probes.extend(probes);
    }

    fn show(&mut self, snapshot: &mut Snapshot, _now_ns: u64) {
        snapshot.probes = self.watched.iter().map(Watched::live).collect();
    }

    fn record(&self, row: &mut Row<'_>) {
        self.watched.iter().for_each(|w| w.record(row));
    }

    fn join(&mut self) -> Option<String> {
        let ended = self.workers.join();
        ended
            .contains(&None)
            .then(|| "a probe thread panicked".to_owned())
    }

    fn settle(&mut self, part: &mut Part<'_>, _ended: &Ended) -> Outcome {
        let probes: Vec<ProbeReport> = self.watched.iter().map(Watched::report).collect();
        let failed = |p: &&ProbeReport| p.failures > 0;
        let warnings = probes.iter().filter(failed).map(|p| {
            let why = p.last_failure.as_deref().unwrap_or_default();
            format!(
                "probe {}: {} of {} readings failed: {why}",
                p.name, p.failures, p.readings
            )
        });
        let fallen = self.watched.iter().filter_map(Watched::fallen);
        let counters: BTreeMap<String, u64> =
            self.watched.iter().flat_map(Watched::figures).collect();
        let judged = self.plan.criteria.iter().map(|criterion| {
            let n = counters.get(&criterion.metric);
            criteria::report(criterion, n.map(|n| *n as f64))
        });
        let outcome = Outcome {
            warnings: warnings.chain(fallen).collect(),
            criteria: judged.collect(),
            ..Outcome::default()
        };
        part.report.probes.extend(probes);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If a device restarts in the middle, its later counters do not satisfy a criterion.
    #[test]
    fn a_counter_that_fell_is_no_measurement() {
        let reading = |a: u64, b: u64| Reading {
            counters: [("p.a".to_owned(), a), ("p.b".to_owned(), b)].into(),
            ..Reading::default()
        };
        let mut record = Record::default();
        for (a, b) in [(900, 5), (3, 6), (1000, 7)] {
            record.note(Ok(&reading(a, b)));
        }
        assert_eq!(record.figures(), [("p.b".to_owned(), 2)].into());
        let said = record.fallen().expect("a warning");
        assert!(said.contains("p.a fell from 900 to 3: reset"), "{said}");
    }

    fn watched(command: &str) -> Watched {
        let plan = ProbePlan {
            kind: wb_model::bench::ProbeKind::Command,
            command: Some(command.to_owned()),
            counters: [("n".to_owned(), r"(\d+)".to_owned())].into(),
            timeout: wb_model::units::Span::from_secs(10),
            ..ProbePlan::default()
        };
        Watched::open(&[plan], "probe").unwrap().remove(0)
    }

    /// After a reading that failed at the stop there is no other, because it would take the same time again.
    #[test]
    fn a_reading_that_was_under_way_and_failed_is_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let [begun, over] = ["begun", "over"].map(|name| folder.path().join(name));
        let probe = watched(&format!(
            "touch {}; until [ -e {} ]; do sleep 0.02; done; exit 1",
            begun.display(),
            over.display()
        ));
        let (stop, hurry) = (OnceLock::new(), AtomicBool::new(false));
        std::thread::scope(|threads| {
            threads.spawn(|| follow(&probe, Duration::ZERO, &stop, &hurry));
            wb_testing::eventually("the reading begins", || begun.exists());
            stop.set(Instant::now()).unwrap();
            std::fs::write(&over, "").unwrap();
        });
        assert_eq!(probe.report().readings, 1);
    }

    #[test]
    fn the_last_reading_has_what_is_left_of_its_time() {
        let probe = watched("echo 7; sleep 60");
        let (stop, hurry) = (OnceLock::new(), AtomicBool::new(false));
        let long_ago = Instant::now().checked_sub(Duration::from_secs(10)).unwrap();
        stop.set(long_ago).unwrap();
        follow(&probe, Duration::ZERO, &stop, &hurry);
        let said = probe.report().last_failure.expect("a failure");
        assert!(said.contains("timed out after 0 ms"), "{said}");
    }
}
