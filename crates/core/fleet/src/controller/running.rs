//! The run itself: presence of hosts, snapshots of one interval side by side, stops.

use super::{
    Action, Controller, HostState, LATE_NS, Progress, Published, RecordStage, RunEnd,
    SHARE_PATIENCE_NS, SILENCE_NS, STOP_PATIENCE_NS, Shown, Stage,
};
use crate::{
    MS, Now, SECOND,
    merge::{HostSnap, merge},
    message::{
        AgentEvent, AgentEventKind, Alive, LostHost, Occupation, Op, Problem, Refused, RefusedKind,
        Snap, Stop, StopHost, StopHow, V1,
    },
    subjects::Subject,
};

/// Time for which a receiver waits for the end of its sender after the planned end.
const GRACE_NS: u64 = 2 * SECOND;
/// Time between two checks for silent hosts.
const CHECK_NS: u64 = 50 * MS;
/// Time between two requests for a share that should be there.
const RESEND_NS: u64 = 2 * SECOND;

impl Controller {
    pub(super) fn alive(&mut self, name: &str, alive: Alive, now: Now) {
        let started = self.start.is_some() && self.elapsed_ns(now) >= SECOND;
        let run = self.settings.run.clone();
        let Some(host) = self.hosts.get_mut(name) else {
            return;
        };
        let is_same = host.id.is_empty() || host.id == alive.id;
        if !host.is_live() {
            if is_same && now.mono_ns >= host.resend_asked_ns + RESEND_NS {
                self.back(name, alive.state == Occupation::Run(run), now);
            }
            return;
        }
        if !is_same {
            let of = self.run_epoch();
            self.lose(name, "the agent was started again".to_owned(), now);
            self.request(name, Op::Disarm(of), now);
            return;
        }
        if host.alive_seq.is_some_and(|last| alive.seq <= last) {
            return;
        }
        host.alive_seq = Some(alive.seq);
        host.heard_ns = now.mono_ns;
        let has_left = started && alive.state != Occupation::Run(run);
        // The share may still be on its way, so ask first.
        if has_left && now.mono_ns >= host.resend_asked_ns + RESEND_NS {
            self.ask_for_share(name, now);
        }
    }

    /// A host is back that the run continued without. It ends its part and delivers its share.
    fn back(&mut self, name: &str, is_in_run: bool, now: Now) {
        let Some(host) = self.hosts.get_mut(name) else {
            return;
        };
        let (was_started, has_share) = (host.outcome.since_ns.is_some(), host.share.is_some());
        host.resend_asked_ns = now.mono_ns;
        let of = self.run_epoch();
        let op = match (is_in_run, was_started) {
            (true, false) => Op::Disarm(of),
            (true, true) => Op::Stop(StopHost {
                run: of.run,
                epoch: of.epoch,
                how: StopHow::Drain,
            }),
            (false, true) if !has_share => Op::Resend(of),
            (false, _) => return,
        };
        self.request(name, op, now);
    }

    fn ask_for_share(&mut self, name: &str, now: Now) {
        if let Some(host) = self.hosts.get_mut(name) {
            host.resend_asked_ns = now.mono_ns;
        }
        let of = self.run_epoch();
        self.request(name, Op::Resend(of), now);
    }

    pub(super) fn no_share(&mut self, host: &str, refused: &Refused, now: Now) {
        if refused.kind != RefusedKind::Busy {
            self.lose(
                host,
                "the agent ended the run without a share".to_owned(),
                now,
            );
        }
    }

    pub(super) fn snap(&mut self, name: &str, snap: Box<Snap>, now: Now) {
        let most = self.elapsed_ns(now) / self.settings.interval_ns.max(1) + 2;
        let Some(host) = self.hosts.get_mut(name).filter(|host| host.is_live()) else {
            return;
        };
        if self.start.is_none() || snap.k == 0 || snap.k > most {
            return;
        }
        host.heard_ns = now.mono_ns;
        if snap.k > self.shown {
            let of = self.snaps.entry(snap.k).or_default();
            of.insert(name.to_owned(), snap);
        } else if host.last.as_ref().is_none_or(|last| last.k < snap.k) {
            host.last = Some(snap);
        }
    }

    pub(super) fn agent_event(&mut self, name: &str, event: &AgentEvent, now: Now) {
        let Some(host) = self.hosts.get_mut(name) else {
            return;
        };
        let is_of_run = event.run.as_deref() == Some(&self.settings.run);
        if !is_of_run || !host.is_live() || !host.id.is_empty() && host.id != event.id {
            return;
        }
        host.heard_ns = now.mono_ns;
        match event.kind {
            AgentEventKind::Late => self.late(name, &event.text, now),
            AgentEventKind::Freed => self.lose(name, event.text.clone(), now),
            _ => {
                let text = format!("{name}: {}", event.text);
                self.warnings.push(text.clone());
                self.actions.push(Action::Note(text));
            }
        }
    }

    /// A host was too late for the start. The others stop, unless enough of them remain.
    fn late(&mut self, name: &str, why: &str, now: Now) {
        let since = self.elapsed_ns(now);
        self.leave(name, HostState::Late, why.to_owned(), Some(since));
        self.problems.push(Problem::new(name, why));
        if self.stage != Stage::Running {
            return;
        }
        self.report_lost_sender(name, now);
        self.store_record(RecordStage::Started);
        if !self.has_enough_hosts() {
            self.end = RunEnd::Refused;
            self.stop_all(StopHow::Now, now);
        }
    }

    /// Takes a host out of the run.
    pub(super) fn leave(&mut self, name: &str, state: HostState, why: String, since: Option<u64>) {
        if let Some(host) = self.hosts.get_mut(name) {
            host.progress = Progress::Gone;
            host.outcome.state = state;
            host.outcome.since_ns = since;
            host.outcome.why = why;
        }
        self.count_live();
    }

    pub(super) fn lose(&mut self, name: &str, why: String, now: Now) {
        let since = self.start.as_ref().map(|_| self.elapsed_ns(now));
        let at = since.map_or_else(String::new, |ns| format!(" at {:.1} s", ns as f64 / 1e9));
        self.actions
            .push(Action::Note(format!("host {name} lost{at}: {why}")));
        if self.stage < Stage::Running {
            self.problems.push(Problem::new(name, &*why));
        }
        self.leave(name, HostState::Lost, why, since);
        if self.stage == Stage::Running {
            self.report_lost_sender(name, now);
            self.store_record(RecordStage::Started);
        }
    }

    /// Reports a lost sender to the receivers of its directions.
    pub(super) fn report_lost_sender(&mut self, lost: &str, now: Now) {
        let directions = self.placement.directions.iter();
        let of_lost = directions.filter(|d| d.from == lost && d.to != lost);
        let mut receivers: Vec<String> = of_lost.map(|d| d.to.clone()).collect();
        receivers.sort();
        receivers.dedup();
        receivers.retain(|to| self.hosts.get(to).is_some_and(|host| host.is_live()));
        for receiver in receivers {
            let op = Op::Lost(LostHost {
                run: self.settings.run.clone(),
                epoch: self.epoch,
                host: lost.to_owned(),
            });
            self.request(&receiver, op, now);
        }
    }

    /// Hosts that take no part, or no part any more.
    pub(super) fn gone(&self) -> impl Iterator<Item = String> {
        let gone = |host: &&super::Host| host.progress == Progress::Gone;
        self.hosts
            .values()
            .filter(gone)
            .map(|host| host.outcome.host.clone())
    }

    pub(super) fn continue_running(&mut self, now: Now) {
        if self.is_time_to_check(now) {
            self.lose_silent_hosts(now);
            self.end_servers(now);
            self.urge(now);
        }
        self.show_intervals(now);
        if self.live_hosts == 0 {
            self.finish(now);
        }
    }

    /// Returns true every 50 ms: checks of all hosts at every event take too long.
    pub(super) fn is_time_to_check(&mut self, now: Now) -> bool {
        let is_time = now.mono_ns >= self.check_next_ns;
        if is_time {
            self.check_next_ns = now.mono_ns + CHECK_NS;
        }
        is_time
    }

    fn lose_silent_hosts(&mut self, now: Now) {
        let silent_ns = |host: &super::Host| now.mono_ns.saturating_sub(host.heard_ns);
        let is_silent = |host: &super::Host| silent_ns(host) >= SILENCE_NS;
        // Without any message of several hosts, this controller is cut off. The hosts then end with their lease.
        let is_cut_off = self.live().count() > 1 && self.live().all(|(_, host)| is_silent(host));
        let limit = match is_cut_off {
            true => self.settings.lease_ns.max(SILENCE_NS),
            false => SILENCE_NS,
        };
        let silent = self.live().filter(|(_, host)| silent_ns(host) >= limit);
        let silent: Vec<_> = silent
            .map(|(name, host)| (name.clone(), silent_ns(host)))
            .collect();
        for (name, ns) in silent {
            let seconds = ns / SECOND;
            let why = match is_cut_off {
                true => format!(
                    "no message of any host for {seconds} s: the broker or the controller was cut off"
                ),
                false => format!("no message for {seconds} s"),
            };
            self.lose(&name, why, now);
        }
    }

    /// Ends the hosts that only serve or receive, once no other host works any more.
    fn end_servers(&mut self, now: Now) {
        let works = self.live().any(|(name, _)| self.working.contains(name));
        if !works && !self.working.is_empty() && self.stop.is_none() {
            self.stop_all(StopHow::Drain, now);
        }
    }

    /// Shows the intervals that are complete or overdue.
    fn show_intervals(&mut self, now: Now) {
        let interval = self.settings.interval_ns.max(1);
        loop {
            let live = self.live_hosts;
            let k = self.shown + 1;
            let due_ns = self.start_ns + i128::from(k) * i128::from(interval);
            let here = self.snaps.get(&k).map_or(0, |of| of.len());
            let is_complete =
                here > 0 && here >= live && self.live().all(|(name, _)| self.has(k, name));
            let is_due = i128::from(now.mono_ns) >= due_ns + i128::from(LATE_NS)
                && now.mono_ns >= self.patient_until_ns;
            if live == 0 || !is_complete && !is_due {
                return;
            }
            self.shown = k;
            if let Some(current) = self.snaps.remove(&k) {
                self.show(k, current, interval);
            }
        }
    }

    fn has(&self, k: u64, name: &str) -> bool {
        self.snaps.get(&k).is_some_and(|of| of.contains_key(name))
    }

    fn show(&mut self, k: u64, mut current: super::SnapsOfHosts, interval: u64) {
        let mut late = Vec::new();
        for (name, host) in &mut self.hosts {
            // Counts of a share are newer than those of a snapshot.
            match current.remove(name).filter(|_| host.share.is_none()) {
                Some(snap) => host.last = Some(snap),
                None if host.is_live() => late.push(name.clone()),
                None => {}
            }
        }
        let parts = self.hosts.iter().filter_map(|(name, host)| {
            let snap = host.last.as_deref()?;
            Some(HostSnap {
                host: name,
                snap,
                is_current: snap.k == k,
                is_other_end: self.placement.is_other_end(name),
            })
        });
        let parts: Vec<HostSnap<'_>> = parts.collect();
        let mut snapshot = merge(&parts, k.saturating_mul(interval), interval);
        let start = self.start.as_ref().map(|start| start.at_wall_ns);
        snapshot.at_wall_ns = start.map(|at| at.saturating_add(k.saturating_mul(interval)));
        snapshot.hosts_late = late;
        snapshot.hosts_lost = self.gone().collect();
        let shown = Shown { k, snapshot };
        self.actions.push(Action::Show(Box::new(shown)));
    }

    pub(super) fn user_stop(&mut self, how: StopHow, now: Now) {
        match self.stage {
            Stage::Opening | Stage::Resolving | Stage::Clocks => {
                self.end = RunEnd::Stopped;
                self.disarm_all(now);
                self.finish(now);
            }
            Stage::Running => {
                if self.end == RunEnd::Finished {
                    self.end = RunEnd::Stopped;
                }
                let how = match self.stop {
                    Some(_) => StopHow::Now,
                    None => how,
                };
                self.stop_all(how, now);
            }
            Stage::Over => {}
        }
    }

    fn stop_all(&mut self, how: StopHow, now: Now) {
        if self.stop.is_none_or(|(known, _)| known < how) {
            self.stop = Some((how, now.mono_ns));
            self.stop_next_ns = now.mono_ns;
        }
        self.urge(now);
    }

    /// Repeats a stop, withdraws the lease of hosts that do not follow, and stops a run that has missed its end.
    fn urge(&mut self, now: Now) {
        let Some((how, since)) = self.stop else {
            let planned = self.settings.planned_ns;
            let end = planned.map(|ns| ns.saturating_add(GRACE_NS + SHARE_PATIENCE_NS));
            if end.is_some_and(|end| self.elapsed_ns(now) >= end) {
                let late: Vec<String> = self.live().map(|(name, _)| name.clone()).collect();
                let text = format!("{} did not end as planned; stopping", late.join(", "));
                self.warnings.push(text.clone());
                self.actions.push(Action::Note(text));
                self.stop_all(StopHow::Now, now);
            }
            return;
        };
        if now.mono_ns >= self.stop_next_ns {
            self.stop_next_ns = now.mono_ns + 500 * MS;
            let (run, epoch) = (self.settings.run.clone(), self.epoch);
            let stop = Stop { v: V1, epoch, how };
            self.publish(Subject::Stop { run }, Published::Stop(stop));
        }
        let drain = self.settings.drain_ns.saturating_add(GRACE_NS);
        let patience = match how {
            StopHow::Drain => drain.saturating_add(STOP_PATIENCE_NS),
            StopHow::Now => STOP_PATIENCE_NS,
        };
        let withdrawn_ns = since.saturating_add(patience);
        if now.mono_ns >= withdrawn_ns && self.is_leasing {
            self.is_leasing = false;
            self.actions.push(Action::Note(
                "no answer to the stop; the lease is withdrawn".to_owned(),
            ));
        }
        let last = [
            withdrawn_ns,
            self.settings.lease_ns,
            drain,
            SHARE_PATIENCE_NS,
        ];
        if now.mono_ns >= last.into_iter().fold(0, u64::saturating_add) {
            let live: Vec<String> = self.live().map(|(name, _)| name.clone()).collect();
            for name in live {
                self.lose(&name, "no share after the stop".to_owned(), now);
            }
        }
    }
}
