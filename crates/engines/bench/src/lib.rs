//! Benchmark procedures: which trials are made, how each is judged, and what they amount to.
//!
//! Knows plans and reports, and the searches of `core/search`; whoever carries out a plan and reads
//! the device is behind the trait [`Bench`], so that a whole benchmark runs in a test without a
//! frame. Opens nothing, prints nothing, and takes the time from [`Bench::now_ns`].

#![forbid(unsafe_code)]

pub mod lb;
pub mod suite;

use std::{collections::BTreeMap, time::Duration};

use wb_model::{Plan, PortPlan, Report, bench::BenchLive};

/// What a procedure needs: trials, the device's counters, and time.
pub trait Bench {
    /// Why a plan could not be run.
    type Error;

    /// Runs a plan, and reads the device before, during and after it. A trigger is pulled while it goes on.
    ///
    /// # Errors
    /// When it could not begin, or broke off by a fault.
    fn run(&mut self, plan: Plan, trigger: Option<&Trigger>) -> Result<Ran, Self::Error>;

    /// The device now.
    fn read(&mut self) -> Reading;

    /// Whether the links of these ports are up, as far as that can be told.
    fn links_are_up(&mut self, ports: &[PortPlan]) -> bool;

    /// Lets time pass.
    fn pause(&mut self, time: Duration);

    /// Time since an arbitrary start, ns.
    fn now_ns(&mut self) -> u64;

    /// Whether the user wants it to end.
    fn is_stopped(&mut self) -> bool;

    /// What goes on: a search begins (trial 0), a trial begins, a trial has ended.
    fn tell(&mut self, live: BenchLive);
}

/// A command that is run while a trial goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// When, from the first frame on.
    pub after: Duration,
    /// What, by `sh -c`.
    pub command: String,
}

/// One run of a plan.
#[derive(Clone, Debug)]
pub struct Ran {
    /// What became of it.
    pub report: Report,
    /// Of the device, in order: before, during, after.
    pub readings: Vec<Reading>,
    /// It did not come to its end; nothing is to be concluded from it.
    pub cut: Option<Cut>,
    /// Why the trigger did not do what it should.
    pub misfire: Option<String>,
}

/// Why a run ended early.
#[derive(Clone, Debug)]
pub enum Cut {
    /// A signal.
    Signal,
    /// A fault, in words.
    Fault(String),
}

/// How a benchmark ended.
#[derive(Debug)]
pub enum BenchEnd<E> {
    /// All tests were made.
    Completed,
    /// The user ended it.
    Interrupted,
    /// A plan could not be run.
    Failed(E),
    /// A trial broke off, or the links of the tester do not hold.
    Broken(String),
}

/// The device's counters at an instant. Names are PROBE.COUNTER.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Values that only rise.
    pub counters: BTreeMap<String, u64>,
    /// Values that rise and fall.
    pub gauges: BTreeMap<String, u64>,
    /// Probes that could not be read.
    pub failed: u32,
}
