//! The end of a run: shares, the result, and results with late shares.

use std::collections::BTreeMap;

use super::{Action, Controller, HostState, Progress, RecordStage, RunResult, Stage};
use crate::{
    Now, ShareEnd,
    clock::PairClock,
    message::{Direction, ShareMessage},
};

impl Controller {
    /// Takes a share. The stream may deliver it more than once, and again to a controller that adopts the run.
    pub(super) fn share(&mut self, share: Box<ShareMessage>, now: Now) {
        let is_of_run = share.run == self.settings.run && self.start.is_some();
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
        }
        match host.progress {
            Progress::Gone if host.outcome.state == HostState::Lost => {
                host.outcome.state = HostState::CutOff;
            }
            Progress::Gone => {}
            _ => host.progress = Progress::Settled,
        }
        host.share = Some(share);
        self.has_late_share |= self.stage == Stage::Over;
    }

    pub(super) fn finish(&mut self, now: Now) {
        self.stage = Stage::Over;
        self.over_ns = now.mono_ns;
        self.has_late_share = false;
        self.deliver();
    }

    pub(super) fn deliver_late_shares(&mut self) {
        if std::mem::take(&mut self.has_late_share) {
            self.deliver();
        }
    }

    fn deliver(&mut self) {
        self.revision += 1;
        let result = self.result();
        self.store_record(RecordStage::Over);
        self.actions.push(Action::Finish(Box::new(result)));
    }

    fn result(&self) -> RunResult {
        let shares = self.hosts.values().filter_map(|host| host.share.as_deref());
        let incomplete = self.placement.directions.iter();
        let incomplete = incomplete.filter_map(|d| Some((d.number, self.why_incomplete(d)?)));
        let between = self.placement.directions.iter().filter(|d| !d.is_local());
        let pairs: BTreeMap<(&str, &str), PairClock> = between
            .filter_map(|d| {
                let (from, to) = (self.hosts.get(&d.from)?, self.hosts.get(&d.to)?);
                let clock = PairClock::between((&d.from, &from.clock), (&d.to, &to.clock))?;
                Some(((&*d.from, &*d.to), clock))
            })
            .collect();
        RunResult {
            run: self.settings.run.clone(),
            revision: self.revision,
            end: self.end,
            problems: self.problems.clone(),
            started_wall_ns: self.start.as_ref().map(|start| start.at_wall_ns),
            shares: shares.cloned().collect(),
            hosts: self
                .hosts
                .values()
                .map(|host| host.outcome.clone())
                .collect(),
            incomplete: incomplete.collect(),
            clocks: pairs.into_values().collect(),
            warnings: self.warnings.clone(),
        }
    }

    /// Reason for which a direction has no complete result.
    fn why_incomplete(&self, direction: &Direction) -> Option<String> {
        let ends = [&direction.from, &direction.to];
        ends.into_iter().find_map(|name| {
            let host = self.hosts.get(name)?;
            let outcome = &host.outcome;
            let at = outcome
                .since_ns
                .map(|ns| format!(" at {:.1} s", ns as f64 / 1e9));
            let at = at.unwrap_or_default();
            let why = &outcome.why;
            match (
                outcome.state,
                host.share.as_ref().map(|share| &share.share.end),
            ) {
                (HostState::Lost, _) => Some(format!("host {name} lost{at}: {why}")),
                (HostState::CutOff, _) => Some(format!("host {name} was cut off{at}: {why}")),
                (HostState::Late | HostState::Refused, _) => {
                    Some(format!("host {name} took no part: {why}"))
                }
                (HostState::Complete, Some(ShareEnd::Fault(why))) => Some(format!("{name}: {why}")),
                (HostState::Complete, Some(ShareEnd::Lease)) => {
                    Some(format!("host {name} stopped when its lease ran out"))
                }
                (HostState::Complete, _) => None,
            }
        })
    }
}
