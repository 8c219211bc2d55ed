//! The end of a run: shares, the result, and results with late shares.

use std::collections::BTreeMap;

use wb_model::{Phase, Snapshot, peer::PairClock};

use super::{
    Action, Controller, Host, HostReport, HostState, LEASE_NS, Progress, RecordStage, RunResult,
    Stage,
};
use crate::{
    Now, ShareEnd,
    clock::pair_clock,
    message::{Direction, JobCounts, ShareMessage, Snap, V1, sum_of_totals},
};

/// Last snapshot of a host with the counts of its share, for the intervals in which other hosts still run.
fn completed(last: Option<Box<Snap>>, share: &ShareMessage, directions: &[Direction]) -> Box<Snap> {
    let mut last = last.unwrap_or_else(|| {
        Box::new(Snap {
            v: V1,
            k: 0,
            at_wall_ns: 0,
            snapshot: Snapshot::at(0, 0, Phase::Done),
            jobs: Vec::new(),
            so_far: None,
            histograms: Vec::new(),
        })
    });
    last.snapshot.phase = Phase::Done;
    last.snapshot.totals = share.share.report.totals;
    for sent in share.share.sent.values() {
        let Some(direction) = directions.iter().find(|d| d.first_flow == sent.direction) else {
            continue;
        };
        let name = &direction.name;
        let offered = sum_of_totals(sent.streams.iter()).offered_frames;
        match last.jobs.iter_mut().find(|job| job.name == *name) {
            Some(job) => job.offered = offered,
            None => last.jobs.push(JobCounts {
                name: name.clone(),
                offered,
                ..JobCounts::default()
            }),
        }
    }
    last
}

impl Controller {
    /// Takes a share. The stream may deliver it more than once, and again to a controller that adopts the run.
    pub(super) fn share(&mut self, share: Box<ShareMessage>, now: Now) {
        let is_of_run = share.run == self.settings.run && self.start.is_some();
        let why_lease_ran_out = self.why_lease_ran_out();
        let Some(host) = self.hosts.get_mut(&share.host).filter(|_| is_of_run) else {
            return;
        };
        if !host.id.is_empty() && !share.id.is_empty() && host.id != share.id {
            return;
        }
        if host
            .share
            .as_ref()
            .is_some_and(|known| known.revision >= share.revision)
        {
            return;
        }
        host.heard_ns = now.mono_ns;
        if let ShareEnd::Fault(why) = &share.share.end {
            let text = format!("{}: {why}", share.host);
            self.actions.push(Action::Note(text.clone()));
            self.warnings.push(text);
            if host.outcome.state == HostState::Complete {
                host.outcome.state = HostState::Failed;
                host.outcome.why.clone_from(why);
            }
        }
        match host.progress {
            Progress::Gone if host.outcome.state == HostState::Lost => {
                host.outcome.state = HostState::CutOff;
            }
            Progress::Gone => {}
            _ => host.progress = Progress::Settled,
        }
        if share.share.end == ShareEnd::Lease && host.outcome.state == HostState::Complete {
            host.outcome.state = HostState::CutOff;
            host.outcome.why = why_lease_ran_out;
        }
        let was_counted = host.is_counted;
        let last = host.last.take();
        host.last = Some(completed(last, &share, &self.placement.directions));
        host.share = Some(share);
        self.count_live();
        // A share that an earlier controller counted is not late: the stream delivers it again.
        self.has_late_share |= self.stage == Stage::Over && !was_counted;
    }

    /// The hosts are not to blame for a controller that did not renew their lease.
    fn why_lease_ran_out(&self) -> String {
        // The last renewal was up to one interval before the stall.
        let is_own_fault = self.stalled_ns + LEASE_NS >= self.settings.lease_ns;
        match (self.is_adopted, is_own_fault) {
            (true, _) => "its lease ran out, because the controller had ended".to_owned(),
            (_, true) => format!(
                "its lease ran out, because the controller stood still for {:.1} s",
                self.stalled_ns as f64 / 1e9
            ),
            _ => "its lease ran out".to_owned(),
        }
    }

    pub(super) fn finish(&mut self, now: Now) {
        self.stage = Stage::Over;
        self.over_ns = now.mono_ns;
        self.has_late_share = false;
        self.deliver();
    }

    pub(super) fn deliver_late_shares(&mut self) {
        let is_complete = self
            .hosts
            .values()
            .all(|h| h.share.is_some() || !h.is_counted);
        if self.has_late_share && is_complete {
            self.has_late_share = false;
            self.deliver();
        }
    }

    /// Delivers the result of an ended run once more.
    #[must_use]
    pub fn deliver_again(&mut self) -> Vec<Action> {
        self.deliver();
        self.take_actions()
    }

    fn deliver(&mut self) {
        self.revision += 1;
        let result = self.result();
        self.store_record(RecordStage::Over);
        self.actions.push(Action::Finish(Box::new(result)));
    }

    /// Clocks of the hosts of each direction between two hosts.
    pub(super) fn clocks(&self, now: Now) -> Vec<PairClock> {
        let between = self.placement.directions.iter().filter(|d| !d.is_local());
        let pairs: BTreeMap<(&str, &str), PairClock> = between
            .filter_map(|d| {
                let (from, to) = (self.hosts.get(&d.from)?, self.hosts.get(&d.to)?);
                let compared = self.compared.get(&(d.from.clone(), d.to.clone()));
                let by_lines = || {
                    let (from, to) = ((&*d.from, &from.clock), (&*d.to, &to.clock));
                    pair_clock(from, to, now.wall_ns)
                };
                let clock = compared.cloned().or_else(by_lines)?;
                Some(((&*d.from, &*d.to), clock))
            })
            .collect();
        pairs.into_values().collect()
    }

    fn result(&self) -> RunResult {
        let shares = self.hosts.values().filter_map(|host| host.share.as_deref());
        let incomplete = self.placement.directions.iter();
        let incomplete = incomplete.filter_map(|d| Some((d.first_flow, self.why_incomplete(d)?)));
        RunResult {
            run: self.settings.run.clone(),
            revision: self.revision,
            end: self.end,
            problems: self.problems.clone(),
            started_wall_ns: self.start.as_ref().map(|start| start.at_wall_ns),
            shares: shares.cloned().collect(),
            hosts: self.hosts.values().map(|host| self.outcome(host)).collect(),
            incomplete: incomplete.collect(),
            warnings: self.warnings.clone(),
        }
    }

    /// State of a host. Results of an earlier controller may be gone from the stream, or not be there yet.
    fn outcome(&self, host: &Host) -> HostReport {
        let is_missing = self.start.is_some() && host.share.is_none();
        match host.outcome.state {
            HostState::Complete if is_missing => HostReport {
                state: HostState::Lost,
                why: "the broker does not have its results".to_owned(),
                ..host.outcome.clone()
            },
            _ => host.outcome.clone(),
        }
    }

    /// Reason for which a direction has no complete result. A host that is gone is a better reason than a lease.
    fn why_incomplete(&self, direction: &Direction) -> Option<String> {
        let ends = [&direction.from, &direction.to];
        let hosts = || ends.into_iter().filter_map(|name| self.hosts.get(name));
        let first = hosts().find_map(why_gone);
        first.or_else(|| hosts().find_map(why_ended))
    }
}

/// Reason for which a host did not take part to the end.
fn why_gone(host: &Host) -> Option<String> {
    let HostReport {
        host: name, why, ..
    } = &host.outcome;
    let at = host
        .outcome
        .since_ns
        .map(|ns| format!(" at {:.1} s", ns as f64 / 1e9));
    let at = at.unwrap_or_default();
    match host.outcome.state {
        HostState::Lost => Some(format!("host {name} lost{at}: {why}")),
        // It was never lost: its lease ran out everywhere at the same time.
        HostState::CutOff if host.outcome.since_ns.is_none() => None,
        HostState::CutOff => Some(format!("host {name} was cut off{at}: {why}")),
        HostState::Late | HostState::Refused => Some(format!("host {name} took no part: {why}")),
        // The reason is that of its share.
        HostState::Failed => None,
        HostState::Complete if host.share.is_none() => Some(format!("host {name} took no part")),
        HostState::Complete => None,
    }
}

/// Reason for which the share of a host does not cover the whole run.
fn why_ended(host: &Host) -> Option<String> {
    let name = &host.outcome.host;
    match &host.share.as_ref()?.share.end {
        ShareEnd::Fault(why) => Some(format!("{name}: {why}")),
        ShareEnd::Lease => Some(format!("host {name} stopped when its lease ran out")),
        ShareEnd::Finished | ShareEnd::Stopped => None,
    }
}
