//! Engine of a simulated host: counts by arithmetic, sends nothing.
//!
//! The caller keeps a [`Sender`] for each direction, which is the truth that both ends read, and changes the state of each
//! [`Part`] when its time comes.

use std::collections::BTreeMap;

use wb_model::{
    Phase, Plan, Report, Snapshot, Totals,
    peer::Sent,
    report::{JobReport, Rates},
};

use crate::{
    SECOND, Share, ShareEnd,
    message::{Direction, JobCounts, Snap, V1},
};

/// Time that a frame is under way, in ns.
pub const TRANSIT_NS: u64 = 1_000_000;
/// Time that a receiver waits after the planned end for the counts of its sender, in ns.
pub const GRACE_NS: u64 = 2 * SECOND;

/// Sender of a direction. Times are those of one clock of all hosts, in ns.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sender {
    /// First departure.
    pub first_ns: Option<u64>,
    /// End of the departures.
    pub stopped_ns: Option<u64>,
    /// Frames per second.
    pub pps: u64,
    /// One of this number of frames is lost under way; 0: none is.
    pub lost_of: u64,
}

impl Sender {
    /// Frames that have left by a time.
    #[must_use]
    pub fn departed(&self, at_ns: u64) -> u64 {
        let Some(first) = self.first_ns else { return 0 };
        let until = self.stopped_ns.unwrap_or(u64::MAX).min(at_ns);
        let ns = u128::from(until.saturating_sub(first));
        let frames = ns * u128::from(self.pps) / u128::from(SECOND);
        u64::try_from(frames).unwrap_or(u64::MAX)
    }

    /// Frames of the first `sent` that arrive.
    #[must_use]
    pub fn arriving(&self, sent: u64) -> u64 {
        sent - sent.checked_div(self.lost_of).unwrap_or(0)
    }

    /// Returns true between the first departure and the end.
    #[must_use]
    pub const fn is_sending(&self) -> bool {
        self.first_ns.is_some() && self.stopped_ns.is_none()
    }
}

/// Senders of all directions by their first flow.
pub type Senders = BTreeMap<u32, Sender>;

/// Receiver of a direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Receiver {
    /// Frames sent, as the sender reported.
    pub sent: Option<u64>,
    /// End of the drain.
    pub ends_ns: Option<u64>,
    /// True after the drain.
    pub ended: bool,
}

/// Part of a run that a host carries out.
#[derive(Debug, Default)]
pub struct Part {
    /// Run.
    pub run: String,
    /// Host.
    pub host: String,
    /// Directions that the host sends.
    pub outs: Vec<Direction>,
    /// Directions that the host receives, by their first flow.
    pub ins: BTreeMap<u32, (Direction, Receiver)>,
    /// Time of the start.
    pub started_ns: Option<u64>,
    /// True after a stop.
    pub stopped: bool,
    /// True once all senders and receivers have ended.
    pub has_ended: bool,
    /// Number of snapshots so far.
    pub snapshots: u64,
    /// Plan of the part.
    plan: Plan,
}

impl Part {
    /// The part of a host.
    #[must_use]
    pub fn new(run: &str, host: &str, plan: &Plan, directions: &[Direction]) -> Self {
        let outs = directions.iter().filter(|d| d.from == host).cloned();
        let ins = directions.iter().filter(|d| d.to == host);
        Self {
            run: run.to_owned(),
            host: host.to_owned(),
            outs: outs.collect(),
            ins: ins
                .map(|d| (d.first_flow, (d.clone(), Receiver::default())))
                .collect(),
            plan: plan.clone(),
            ..Self::default()
        }
    }

    fn sent_totals(sender: &Sender, at_ns: u64) -> Totals {
        let sent = sender.departed(at_ns);
        Totals {
            offered_frames: Some(sent),
            intended_frames: Some(sent),
            unsent_frames: Some(0),
            ..Totals::default()
        }
    }

    /// Counts of the ends of each direction at this host. Losses are known at the receiver, once it has the sender's count.
    fn ends(&self, senders: &Senders, at_ns: u64, is_last: bool) -> Vec<(&Direction, Totals)> {
        let mut all: BTreeMap<u32, (&Direction, Totals)> = BTreeMap::new();
        for out in &self.outs {
            let totals = Self::sent_totals(&senders[&out.first_flow], at_ns);
            all.insert(out.first_flow, (out, totals));
        }
        for (number, (direction, receiver)) in &self.ins {
            let received = self.received(*number, senders, at_ns);
            let known = all.entry(*number).or_insert((direction, Totals::default()));
            known.1.received_frames = Some(received);
            known.1.duplicate_frames = Some(0);
            if is_last {
                known.1.lost_frames = receiver.sent.map(|sent| sent - received);
            }
        }
        all.into_values().collect()
    }

    /// Frames of a direction that have arrived by a time.
    #[must_use]
    pub fn received(&self, number: u32, senders: &Senders, at_ns: u64) -> u64 {
        let (_, receiver) = &self.ins[&number];
        let until = match (receiver.ended, receiver.ends_ns) {
            (true, Some(end)) => end.min(at_ns),
            _ => at_ns,
        };
        let sender = &senders[&number];
        sender.arriving(sender.departed(until.saturating_sub(TRANSIT_NS)))
    }

    /// Message of the end of a sender.
    #[must_use]
    pub fn sent(&self, number: u32, senders: &Senders, at_ns: u64, wall_ns: u64) -> Sent {
        Sent {
            direction: number,
            last_departure_wall_ns: wall_ns,
            streams: vec![Totals {
                offered_frames: Some(senders[&number].departed(at_ns)),
                ..Totals::default()
            }],
            ..Sent::default()
        }
    }

    /// Report at a time; `is_last`: after the end.
    fn report(&self, senders: &Senders, at_ns: u64, is_last: bool) -> Report {
        let ways = self.plan.directions(self.plan.first_flow.unwrap_or(0));
        let ends = self.ends(senders, at_ns, is_last);
        let elapsed_ns = at_ns.saturating_sub(self.started_ns.unwrap_or(at_ns));
        let job = |(direction, totals): &(&Direction, Totals)| {
            let way = ways.iter().find(|way| way.name == direction.name);
            JobReport {
                name: direction.name.clone(),
                tx: way.and_then(|way| way.tx.clone()),
                rx: way.and_then(|way| way.rx.clone()),
                totals: *totals,
                rates: Rates {
                    tx_time_ns: totals.offered_frames.map(|_| elapsed_ns),
                    rx_time_ns: totals.received_frames.map(|_| elapsed_ns),
                    ..Rates::default()
                },
                ..JobReport::default()
            }
        };
        let all = ends.iter().map(|(_, totals)| totals);
        let mut totals = all.fold(Totals::default(), |sum, totals| sum.plus(totals));
        // Frames sent to other hosts cannot be part of a loss that is seen here.
        if !self.outs.is_empty() {
            totals.lost_frames = None;
        }
        Report {
            elapsed_ns,
            totals,
            jobs: ends.iter().map(job).collect(),
            ..Report::default()
        }
    }

    /// Results of the host. `fault`: the reason for which its part has ended early.
    #[must_use]
    pub fn share(&self, senders: &Senders, at_ns: u64, fault: Option<&str>) -> Share {
        let sent = self.outs.iter().map(|out| {
            let number = out.first_flow;
            (number, self.sent(number, senders, at_ns, 0))
        });
        Share {
            host: self.host.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            report: Box::new(self.report(senders, at_ns, true)),
            sent: sent.collect(),
            end: match (fault, self.stopped) {
                (Some(why), _) => ShareEnd::Fault(why.to_owned()),
                (None, true) => ShareEnd::Stopped,
                (None, false) => ShareEnd::Finished,
            },
        }
    }

    /// The next snapshot.
    pub fn snapshot(
        &mut self,
        interval_ns: u64,
        senders: &Senders,
        at_ns: u64,
        wall_ns: u64,
    ) -> Snap {
        self.snapshots += 1;
        let report = self.report(senders, at_ns, false);
        let k = self.snapshots;
        let mut snapshot = Snapshot::at(k * interval_ns, interval_ns, Phase::Running);
        snapshot.totals = report.totals;
        let counts = |job: &JobReport| JobCounts {
            name: job.name.clone(),
            offered: job.totals.offered_frames,
            received: job.totals.received_frames,
            duplicate: job.totals.duplicate_frames,
        };
        Snap {
            v: V1,
            k,
            at_wall_ns: wall_ns,
            snapshot,
            jobs: report.jobs.iter().map(counts).collect(),
            histograms: Vec::new(),
            so_far: Some(Box::new(report)),
        }
    }

    /// Returns true once all senders and receivers have ended.
    #[must_use]
    pub fn is_done(&self, senders: &Senders) -> bool {
        let mut outs = self.outs.iter();
        outs.all(|out| senders[&out.first_flow].stopped_ns.is_some())
            && self.ins.values().all(|(_, receiver)| receiver.ended)
    }
}
