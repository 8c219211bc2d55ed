//! A report under construction: each engine fills its part.

use std::collections::BTreeMap;

use wb_model::{
    JobKind, Report, Totals,
    report::{PortReport, Rates},
};

use crate::{DeviceCounters, Engine, Times};

/// Place of an engine among the engines of a run. The frames, rates and times of a report are those of the first engine.
/// The parts of each kind, such as `http`, belong to the only engine of the kind; captures have one part each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    First,
    /// An engine of the same kind as the first engine. Its frames are added.
    LikeFirst,
    Other,
}

/// A report under construction, as one engine sees it.
pub struct Part<'a> {
    /// The report, for everything that engines add to.
    pub report: &'a mut Report,
    kind: JobKind,
    place: Place,
}

impl<'a> Part<'a> {
    /// A report of one engine only.
    pub fn whole(report: &'a mut Report, kind: JobKind) -> Self {
        Self {
            report,
            kind,
            place: Place::First,
        }
    }

    /// Returns true if the values that a report has once are those of this engine.
    pub fn is_first(&self) -> bool {
        self.place == Place::First
    }

    /// Sets the frames of the run, or adds to them.
    pub fn frames(&mut self, totals: &Totals, rates: &Rates) {
        let connections = self.report.totals.connections;
        let sum = &mut self.report.rates;
        match self.place {
            Place::First => (self.report.totals, *sum) = (*totals, *rates),
            Place::LikeFirst => {
                self.report.totals = self.report.totals.plus(totals);
                sum.received_pps = plus(sum.received_pps, rates.received_pps);
                sum.received_l2_bps = plus(sum.received_l2_bps, rates.received_l2_bps);
            }
            Place::Other => {}
        }
        self.report.totals.connections = connections.or(totals.connections);
    }

    /// Sets the distributions of times of the run.
    pub fn times(&mut self, times: Times) {
        if self.is_first() {
            let report = &mut *self.report;
            report.latency_ns = times.latency;
            report.jitter_ns = times.jitter;
            report.jitter_rfc3550_ns = times.jitter_rfc3550_ns;
            report.ipdv_ns = times.ipdv;
            report.pdv_ns = times.pdv;
            report.inter_arrival_ns = times.inter_arrival;
            report.inter_departure_ns = times.inter_departure;
            report.percentile_error = times.percentile_error;
        }
    }

    /// Adds a port. If several engines use a port, the first one describes it, and the list of users shows each one.
    pub fn port(&mut self, mut port: PortReport) {
        for user in &mut port.users {
            user.jobs = self.kind.called(&user.jobs);
        }
        let ports = &mut self.report.ports;
        match ports.iter_mut().find(|known| known.name == port.name) {
            Some(known) => known.users.append(&mut port.users),
            None => ports.push(port),
        }
    }
}

fn plus(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.zip(b).map(|(a, b)| a + b).or(a).or(b)
}

/// Lets each engine fill its part of a report.
pub fn fill(
    report: &mut Report,
    engines: &mut [Box<dyn Engine>],
    mut each: impl FnMut(&mut dyn Engine, &mut Part<'_>),
) {
    let first = engines.first().map(|engine| engine.kind());
    for (number, engine) in engines.iter_mut().enumerate() {
        let kind = engine.kind();
        let place = match number {
            0 => Place::First,
            _ if Some(kind) == first => Place::LikeFirst,
            _ => Place::Other,
        };
        let report = &mut *report;
        each(
            &mut **engine,
            &mut Part {
                report,
                kind,
                place,
            },
        );
    }
    for port in report.ports.iter_mut().filter(|port| port.users.len() == 1) {
        port.users.clear();
    }
}

/// Fills the report so far, with interface counters from the start and from now, by port.
pub fn fill_so_far(
    engines: &mut [Box<dyn Engine>],
    so_far: &mut Report,
    before: &BTreeMap<String, DeviceCounters>,
    now: &BTreeMap<String, DeviceCounters>,
) {
    fill(so_far, engines, |engine, part| {
        for port in engine.ports() {
            let of = |all: &BTreeMap<String, DeviceCounters>| {
                all.get(&port.plan.name).cloned().unwrap_or_default()
            };
            part.port(port.so_far(of(before), of(now)));
        }
        engine.fill(part);
    });
}
