//! Benchmark procedures: the trials to run, their evaluation, and the results.
//!
//! Knows plans and reports, and the searches of `core/search`. The code that runs a plan and reads the device is behind
//! the trait [`Bench`], so a whole benchmark runs in a test without a frame. Opens no port or file, prints no output,
//! and takes the time from [`Bench::now_ns`].

#![forbid(unsafe_code)]

pub mod suite;

pub use suite::lb;

use std::{collections::BTreeMap, time::Duration};

use wb_model::{
    Plan, PortPlan, Report,
    bench::{BenchLive, SuiteResult},
    counted,
};

/// Environment of a procedure: trials, the device's counters, and time.
pub trait Bench {
    /// Reason why a plan could not be run.
    type Error;

    /// Runs a plan, and reads the device before, during and after it. Fires the trigger during the run.
    ///
    /// # Errors
    /// Fails if the run could not begin, or was interrupted by a fault.
    fn run(&mut self, plan: Plan, trigger: Option<&Trigger>) -> Result<PlanRun, Self::Error>;

    /// Reads the device now.
    fn read(&mut self) -> DeviceReading;

    /// Returns true if the links of these ports are up, as far as known.
    fn links_are_up(&mut self, ports: &[PortPlan]) -> bool;

    /// Waits for this time.
    fn wait_for(&mut self, time: Duration);

    /// Time since an arbitrary start, ns.
    fn now_ns(&mut self) -> u64;

    /// Returns true if the user requested a stop.
    fn is_stopped(&mut self) -> bool;

    /// Reports progress: a search begins (trial 0), a trial begins, a trial has ended.
    fn report_progress(&mut self, live: BenchLive);
}

/// A command to run during a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// Delay after the first frame.
    pub after: Duration,
    /// Command for `sh -c`.
    pub command: String,
}

/// One run of a plan.
#[derive(Clone, Debug)]
pub struct PlanRun {
    /// Results of the run.
    pub report: Report,
    /// Readings of the device, in order: before, during, after.
    pub readings: Vec<DeviceReading>,
    /// Reason if the run did not complete; it must not be evaluated then.
    pub cut: Option<CutReason>,
    /// Reason why the trigger failed.
    pub misfire: Option<String>,
}

/// Reason why a run ended early.
#[derive(Clone, Debug)]
pub enum CutReason {
    /// A signal.
    Signal,
    /// A fault, as text.
    Fault(String),
}

/// Returns the text about frames that the tester's ports dropped, for reasons and notes.
pub(crate) fn dropped_by_tester(frames: u64) -> String {
    let frames = counted(frames, "frame", "frames");
    format!("the tester's ports dropped {frames}")
}

/// A complete or partial benchmark.
#[derive(Debug)]
pub struct BenchRun<E> {
    /// One for each search: a test at one size; for `ndr` one for each goal.
    pub results: Vec<SuiteResult>,
    /// Warnings for the reader.
    pub warnings: Vec<String>,
    /// Reason for the end of the benchmark.
    pub end: BenchEnd<E>,
}

impl<E> Default for BenchRun<E> {
    fn default() -> Self {
        Self {
            results: Vec::new(),
            warnings: Vec::new(),
            end: BenchEnd::Completed,
        }
    }
}

/// Reason for the end of a benchmark.
#[derive(Debug)]
pub enum BenchEnd<E> {
    /// All tests were made.
    Completed,
    /// The user ended it.
    Interrupted,
    /// A plan could not be run.
    Failed(E),
    /// A trial was interrupted, or the links of the tester are unstable.
    Broken(String),
}

/// The device's counters at an instant. Names are PROBE.COUNTER.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceReading {
    /// Values that only increase.
    pub counters: BTreeMap<String, u64>,
    /// Values that increase and decrease.
    pub gauges: BTreeMap<String, u64>,
    /// Probes that could not be read.
    pub failed: u32,
}
