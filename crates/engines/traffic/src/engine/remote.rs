//! Directions with one end on another host: exchange of sent counts, and the wait for them.

use std::sync::Arc;

use wb_engine::{opening::Environment, peers::PeerNews};
use wb_model::{
    DirectionFlows, Plan, Totals,
    peer::{PairClock, Sent},
};
use wb_open::Alarm;

use super::{Direction, Traffic, planned_end_of_job, report::SentSide};
use crate::{SenderClock, SenderOutcome};

/// Time that a receiver waits for the counts of its sender after the planned end of sending, or after a request to stop,
/// in ns.
const GRACE_NS: u64 = 2_000_000_000;

/// Largest number of frames of a direction that is accepted from another host. Sums of such numbers fit into 64 bits.
const MOST_FRAMES: u64 = 1 << 56;

/// End of a direction on another host.
pub(super) enum RemoteEnd {
    /// The sender.
    Sender(Box<RemoteSender>),
    /// The receiver. `is_informed`: the counts of the direction were passed to its host.
    Receiver { is_informed: bool },
}

/// Sender of a direction on another host.
pub(super) struct RemoteSender {
    pub(super) host: String,
    /// Name of this host.
    own_host: String,
    pub(super) clock: SenderClock,
    counts: Counts,
    /// Reason why the counts are missing, if it is known.
    why: Option<String>,
}

/// Sent counts of a direction from another host.
enum Counts {
    Awaited,
    Known(Sent),
    Missing,
}

impl RemoteEnd {
    /// Returns the end of a direction that is on another host, if there is one.
    pub(super) fn find(
        plan: &Plan,
        way: &DirectionFlows,
        environment: &Environment,
    ) -> Option<Self> {
        let host = |name: &Option<String>| {
            let mut ports = plan.ports.iter();
            ports
                .find(|port| Some(&port.name) == name.as_ref())?
                .locator
                .host
                .clone()
        };
        if let Some(host) = host(&way.tx) {
            return Some(Self::Sender(Box::new(RemoteSender {
                clock: SenderClock {
                    clock: environment.peers.clock(&host),
                    bias_ns: 0,
                    applied: Arc::default(),
                },
                own_host: environment.host.clone().unwrap_or_default(),
                host,
                counts: Counts::Awaited,
                why: None,
            })));
        }
        host(&way.rx).map(|_| Self::Receiver { is_informed: false })
    }
}

impl RemoteSender {
    /// The counts, if they have arrived.
    pub(super) fn sent(&self) -> Option<&Sent> {
        match &self.counts {
            Counts::Known(sent) => Some(sent),
            Counts::Awaited | Counts::Missing => None,
        }
    }

    /// Reason why the counts are missing.
    pub(super) fn why_missing(&self) -> Option<String> {
        let why = || match &self.why {
            Some(why) => why.clone(),
            None => format!(
                "the host {} did not report the frames that it sent",
                self.host
            ),
        };
        let is_known = matches!(self.counts, Counts::Known(_));
        (!is_known).then(|| format!("{}, so the loss is unknown", why()))
    }

    /// Clocks of both hosts, if the offset was estimated.
    pub(super) fn pair_clock(&self) -> Option<PairClock> {
        let pair = self.clock.clock.pair()?;
        Some(PairClock {
            from: self.host.clone(),
            to: self.own_host.clone(),
            offset_mean_ns: self.clock.applied.mean_ns(),
            ..pair
        })
    }
}

/// Returns why the counts of another host do not fit a direction.
fn why_wrong(direction: &Direction, sent: &Sent) -> Option<String> {
    if sent.streams.len() != direction.streams.len() || sent.flows.len() != direction.flows as usize
    {
        return Some(format!(
            "{} streams and {} flows instead of {} and {}",
            sent.streams.len(),
            sent.flows.len(),
            direction.streams.len(),
            direction.flows
        ));
    }
    let offered = |totals: &Totals| totals.offered_frames.unwrap_or(0);
    let numbers = sent
        .flows
        .iter()
        .copied()
        .chain(sent.streams.iter().map(offered));
    let sum = numbers
        .fold(0, u64::saturating_add)
        .saturating_add(sent.ramp_frames);
    (sum > MOST_FRAMES).then(|| format!("{sum} sent frames"))
}

impl Traffic {
    /// Prepares the exchange with other hosts, before the workers start.
    pub(super) fn prepare_exchange(&mut self, alarm: &Arc<Alarm>) {
        self.peers.wake(alarm);
        for direction in &mut self.directions {
            if let Some(RemoteEnd::Sender(sender)) = &mut direction.remote {
                sender.clock.bias_ns = sender.clock.clock.bias_ns();
            }
        }
    }

    /// Passes on the counts of directions that were sent, takes those of other hosts, and gives up on late ones.
    pub(super) fn exchange(&mut self, now_ns: u64) {
        if self
            .directions
            .iter()
            .all(|direction| direction.remote.is_none())
        {
            return;
        }
        for number in 0..self.directions.len() {
            self.report_sent(number);
        }
        for news in self.peers.take() {
            self.accept(news);
        }
        for number in 0..self.directions.len() {
            if self.give_up_ns(number).is_some_and(|at| now_ns >= at) {
                self.conclude(number, Counts::Missing);
            }
        }
    }

    /// Passes the counts of a direction to the host of its receiver, once all its senders have ended.
    fn report_sent(&mut self, number: usize) {
        let Some(RemoteEnd::Receiver { is_informed: false }) = self.directions[number].remote
        else {
            return;
        };
        let senders = self.slots.iter().filter(|slot| slot.sends == Some(number));
        let outcomes: Option<Vec<&SenderOutcome>> =
            senders.map(|slot| slot.shared.ended_sender.get()).collect();
        let Some(outcomes) = outcomes.filter(|outcomes| !outcomes.is_empty()) else {
            return;
        };
        let sent = SentSide::of_outcomes(&self.directions[number], &outcomes)
            .message(&self.directions[number]);
        self.peers.send(sent);
        self.directions[number].remote = Some(RemoteEnd::Receiver { is_informed: true });
    }

    /// Takes news about the sender of a direction.
    fn accept(&mut self, news: PeerNews) {
        let first_flow = match &news {
            PeerNews::Sent(sent) => sent.direction,
            PeerNews::Lost { direction, .. } => *direction,
        };
        let is_awaited = |direction: &Direction| {
            direction.first_flow == first_flow
                && matches!(
                    direction.remote_sender().map(|sender| &sender.counts),
                    Some(Counts::Awaited)
                )
        };
        let Some(number) = self.directions.iter().position(is_awaited) else {
            return;
        };
        match news {
            PeerNews::Sent(sent) => match why_wrong(&self.directions[number], &sent) {
                None => self.conclude(number, Counts::Known(sent)),
                // The sender may still send.
                Some(what) => {
                    self.set_reason(number, |host| format!("the host {host} reported {what}"))
                }
            },
            PeerNews::Lost { why, .. } => {
                self.set_reason(number, |_| why);
                self.conclude(number, Counts::Missing);
            }
        }
    }

    /// Keeps the reason why the counts of a direction are missing.
    fn set_reason(&mut self, number: usize, why: impl FnOnce(&str) -> String) {
        if let Some(RemoteEnd::Sender(sender)) = &mut self.directions[number].remote {
            sender.why = Some(why(&sender.host));
        }
    }

    /// Ends the wait for the counts of a direction.
    fn conclude(&mut self, number: usize, counts: Counts) {
        if let Some(RemoteEnd::Sender(sender)) = &mut self.directions[number].remote {
            sender.counts = counts;
            let last_ns = match sender.sent().map(|sent| sent.last_departure_wall_ns) {
                None | Some(0) => 0,
                Some(last_ns) => sender.clock.clock.local(last_ns),
            };
            self.control.sender_ended(last_ns);
        }
    }

    /// Returns the monotonic time at which the wait for the counts of a direction ends without them.
    fn give_up_ns(&self, number: usize) -> Option<u64> {
        let direction = &self.directions[number];
        let sender = direction.remote_sender()?;
        if !matches!(sender.counts, Counts::Awaited) {
            return None;
        }
        let planned = planned_end_of_job(self, direction.planned.job);
        let planned = planned.map(|end| self.live.start_ns.saturating_add(end));
        let ends = planned.into_iter().chain(self.stopped_ns);
        Some(ends.min()?.saturating_add(GRACE_NS))
    }

    /// Returns the next monotonic time at which a wait ends, `u64::MAX` if there is none.
    pub(super) fn next_give_up_ns(&self) -> u64 {
        let numbers = 0..self.directions.len();
        let next = numbers.filter_map(|number| self.give_up_ns(number)).min();
        next.unwrap_or(u64::MAX)
    }
}
