//! Engine of a simulated host: counts by arithmetic, sends nothing.

use std::collections::BTreeMap;

use wb_fleet_core::{Share, ShareEnd, message::Direction};
use wb_model::{Phase, Report, Snapshot, Totals, peer::Sent};

/// Time that a frame is under way, in ns.
pub(crate) const TRANSIT_NS: u64 = 1_000_000;
/// One frame of this number is lost under way.
pub(crate) const LOST_OF: u64 = 100;

/// Sender of a direction in true time. The world keeps one for each direction, also after a crash.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sender {
    pub(crate) first_ns: Option<u64>,
    pub(crate) stopped_ns: Option<u64>,
    pub(crate) pps: u64,
}

impl Sender {
    /// Frames that have left by a time.
    pub(crate) fn departed(&self, at_ns: u64) -> u64 {
        let Some(first) = self.first_ns else { return 0 };
        let until = self.stopped_ns.unwrap_or(u64::MAX).min(at_ns);
        let frames = u128::from(until.saturating_sub(first)) * u128::from(self.pps) / 1_000_000_000;
        u64::try_from(frames).unwrap()
    }

    /// Frames of the first `sent` that arrive.
    pub(crate) fn arriving(sent: u64) -> u64 {
        sent - sent / LOST_OF
    }

    pub(crate) fn is_sending(&self) -> bool {
        self.first_ns.is_some() && self.stopped_ns.is_none()
    }
}

/// Receiver of a direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Receiver {
    /// Frames sent, as the sender reported.
    pub(crate) sent: Option<u64>,
    /// End of the drain.
    pub(crate) ends_ns: Option<u64>,
    pub(crate) ended: bool,
}

/// Part that a host carries out.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub(crate) run: String,
    pub(crate) outs: Vec<Direction>,
    pub(crate) ins: BTreeMap<u32, (Direction, Receiver)>,
    pub(crate) started_ns: Option<u64>,
    pub(crate) stopped: bool,
    pub(crate) has_ended: bool,
    pub(crate) snapshots: u64,
}

/// Engine of one host.
#[derive(Debug, Default)]
pub(crate) struct Engine {
    pub(crate) part: Option<Part>,
    /// Run that holds the ports.
    pub(crate) held: Option<String>,
}

impl Part {
    pub(crate) fn new(run: &str, host: &str, directions: &[Direction]) -> Self {
        let outs = directions.iter().filter(|d| d.from == host).cloned();
        let ins = directions.iter().filter(|d| d.to == host);
        Self {
            run: run.to_owned(),
            outs: outs.collect(),
            ins: ins
                .map(|d| (d.first_flow, (d.clone(), Receiver::default())))
                .collect(),
            ..Self::default()
        }
    }

    /// Counts of the host at a time.
    pub(crate) fn totals(&self, senders: &BTreeMap<u32, Sender>, at_ns: u64) -> Totals {
        let mut totals = Totals::default();
        for out in &self.outs {
            let sent = senders[&out.first_flow].departed(at_ns);
            *totals.offered_frames.get_or_insert(0) += sent;
            *totals.intended_frames.get_or_insert(0) += sent;
            *totals.unsent_frames.get_or_insert(0) += 0;
        }
        for number in self.ins.keys() {
            *totals.received_frames.get_or_insert(0) += self.received(*number, senders, at_ns);
            *totals.duplicate_frames.get_or_insert(0) += 0;
        }
        totals
    }

    pub(crate) fn received(&self, number: u32, senders: &BTreeMap<u32, Sender>, at_ns: u64) -> u64 {
        let (_, receiver) = &self.ins[&number];
        let until = match (receiver.ended, receiver.ends_ns) {
            (true, Some(end)) => end.min(at_ns),
            _ => at_ns,
        };
        Sender::arriving(senders[&number].departed(until.saturating_sub(TRANSIT_NS)))
    }

    pub(crate) fn sent(
        &self,
        number: u32,
        senders: &BTreeMap<u32, Sender>,
        at_ns: u64,
        wall_ns: u64,
    ) -> Sent {
        let frames = senders[&number].departed(at_ns);
        Sent {
            direction: number,
            last_departure_wall_ns: wall_ns,
            streams: vec![Totals {
                offered_frames: Some(frames),
                ..Totals::default()
            }],
            ..Sent::default()
        }
    }

    pub(crate) fn share(
        &self,
        host: &str,
        senders: &BTreeMap<u32, Sender>,
        at_ns: u64,
        fault: Option<&str>,
    ) -> Share {
        let mut totals = self.totals(senders, at_ns);
        // Losses of a direction are known only with the sender's own count.
        let lost = self.ins.iter().map(|(number, (_, receiver))| {
            Some(receiver.sent? - self.received(*number, senders, at_ns))
        });
        let all: Option<Vec<u64>> = lost.collect();
        if self.outs.is_empty() {
            totals.lost_frames = all.map(|all| all.iter().sum());
        }
        let sent = self
            .outs
            .iter()
            .map(|out| (out.first_flow, self.sent(out.first_flow, senders, at_ns, 0)));
        Share {
            host: host.to_owned(),
            version: "0.1.0".to_owned(),
            report: Box::new(Report {
                totals,
                ..Report::default()
            }),
            sent: sent.collect(),
            end: match (fault, self.stopped) {
                (Some(why), _) => ShareEnd::Fault(why.to_owned()),
                (None, true) => ShareEnd::Stopped,
                (None, false) => ShareEnd::Finished,
            },
        }
    }

    pub(crate) fn snapshot(
        &self,
        k: u64,
        interval_ns: u64,
        senders: &BTreeMap<u32, Sender>,
        at_ns: u64,
    ) -> Snapshot {
        let mut snapshot = Snapshot::at(k * interval_ns, interval_ns, Phase::Running);
        snapshot.totals = self.totals(senders, at_ns);
        snapshot
    }

    pub(crate) fn is_done(&self, senders: &BTreeMap<u32, Sender>) -> bool {
        self.outs
            .iter()
            .all(|out| senders[&out.first_flow].stopped_ns.is_some())
            && self.ins.values().all(|(_, receiver)| receiver.ended)
    }
}
