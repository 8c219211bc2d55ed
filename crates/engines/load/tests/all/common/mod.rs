//! A client and a server worker at the two ends of a memory link, in virtual time.

use std::sync::atomic::Ordering;

use wb_load::{LoadControl, LoadOutcome, LoadPlace, LoadSlot, LoadSpec, LoadTotals, LoadWorker};
use wb_model::load::{LoadEnd, LoadJob, LoadRate, LoadShape};
use wb_model::units::Span;
use wb_port::clock::VirtualClock;
use wb_port::{PortError, QueuePair, TxQueue, memory};
use wb_wire::MacAddr;

pub(crate) const MS: u64 = 1_000_000;

/// A job that opens `cps` connections per second for some time.
pub(crate) fn job(cps: u64, ms: u64) -> LoadJob {
    LoadJob {
        clients: vec!["198.18.0.1-198.18.0.4".parse().unwrap()],
        servers: vec!["198.18.1.1".parse().unwrap()],
        rate: LoadRate {
            cps: Some(cps),
            ..LoadRate::default()
        },
        shape: LoadShape {
            duration: Span::from_millis(ms),
            drain: Span::from_millis(2000),
            ..LoadShape::default()
        },
        ..LoadJob::default()
    }
}

pub(crate) fn server_of(job: &LoadJob) -> LoadJob {
    LoadJob {
        end: LoadEnd::Server,
        ..job.clone()
    }
}

/// Action at a time since the start.
pub(crate) type Event<'a> = (u64, &'a dyn Fn(&Lab));

pub(crate) struct Lab {
    pub(crate) clock: VirtualClock,
    pub(crate) client: LoadControl,
    pub(crate) server: LoadControl,
    pub(crate) slots: [LoadSlot; 2],
    pub(crate) near: memory::MemoryPort,
    pub(crate) far: memory::MemoryPort,
    /// The longest step of the clock.
    pub(crate) step: u64,
    /// The far end has a worker.
    pub(crate) served: bool,
}

impl Lab {
    pub(crate) fn new(change: impl FnOnce(&mut memory::LinkOptions)) -> Self {
        // Any time but 0, as on a machine with an uptime of weeks.
        let clock = VirtualClock::new(3_000_000_000_000_000);
        let mut options = memory::LinkOptions::new("lab", clock.clone().into());
        change(&mut options);
        let (near, far) = memory::link(&options).unwrap();
        Self {
            clock,
            client: LoadControl::new(),
            server: LoadControl::new(),
            slots: Default::default(),
            near,
            far,
            step: MS,
            served: true,
        }
    }

    pub(crate) fn specs(&self, client: &LoadJob, server: &LoadJob) -> (LoadSpec, LoadSpec) {
        let place = LoadPlace {
            gateway: Some(MacAddr(self.far.facts.mac)),
            ..LoadPlace::single(MacAddr(self.near.facts.mac))
        };
        let client = LoadSpec::new(client, &place).unwrap();
        let place = LoadPlace::single(MacAddr(self.far.facts.mac));
        (
            client,
            LoadSpec::new(server, &place).unwrap().until_stopped(),
        )
    }

    /// Runs a client job against a server job.
    pub(crate) fn run(&mut self, client: &LoadJob, server: &LoadJob, events: &[Event<'_>]) -> Both {
        let (client, server) = self.specs(client, server);
        self.run_specs(client, server, events)
    }

    pub(crate) fn run_specs(
        &mut self,
        client: LoadSpec,
        server: LoadSpec,
        events: &[Event<'_>],
    ) -> Both {
        let capacity = self.near.queues[0].tx().frame_capacity();
        let mut client = LoadWorker::new(client, capacity).unwrap();
        let mut server = LoadWorker::new(server, capacity).unwrap();
        let start = self.clock.now_ns() + 5 * MS;
        for control in [&self.client, &self.server] {
            control.start_at_mono_ns.store(start, Ordering::Relaxed);
        }
        let mut events = events.iter();
        let mut next = events.next();
        let (mut done, mut faults) = ([false; 2], [None, None]);
        done[1] = !self.served;
        let mut turns = 0u64;
        while done != [true; 2] {
            turns += 1;
            assert!(turns < 20_000_000, "the run does not end");
            let now = self.clock.now_ns();
            while let Some((at, act)) = next.filter(|(at, _)| start + at <= now) {
                let _ = at;
                act(self);
                next = events.next();
            }
            // A callback may have advanced the clock, like a stall.
            let now = self.clock.now_ns();
            let (mut busy, mut wake) = (false, now + self.step);
            for end in 0..2 {
                if done[end] {
                    continue;
                }
                let (worker, port, control) = match end {
                    0 => (&mut client, &mut self.near, &self.client),
                    _ => (&mut server, &mut self.far, &self.server),
                };
                match worker.turn(&mut port.queues[0], control, &self.slots[end], &self.clock) {
                    Ok(turn) => {
                        busy |= turn.busy;
                        wake = wake.min(turn.next_ns);
                        done[end] = turn.done;
                    }
                    Err(fault) => {
                        faults[end] = Some(fault);
                        done[end] = true;
                    }
                }
            }
            if done[0] {
                self.server.stop.store(true, Ordering::Relaxed);
            }
            self.clock.set(if busy {
                now + 1000
            } else {
                wake.max(now + 500)
            });
        }
        let [first, second] = faults;
        Both {
            client: client.conclude(&mut self.near.queues[0], &self.slots[0], first),
            server: server.conclude(&mut self.far.queues[0], &self.slots[1], second),
        }
    }
}

pub(crate) struct Both {
    pub(crate) client: LoadOutcome,
    pub(crate) server: LoadOutcome,
}

impl Both {
    pub(crate) fn totals(&self) -> (LoadTotals, LoadTotals) {
        let totals = [&self.client, &self.server].map(|outcome| LoadTotals::sum_workers([outcome]));
        for totals in &totals {
            check(totals);
        }
        let [client, server] = totals;
        (client, server)
    }
}

/// Checks invariants.
pub(crate) fn check(totals: &LoadTotals) {
    assert!(totals.is_balanced(), "{:?}", totals.counters);
    let causes: u64 = totals.failures_by_cause().iter().map(|(_, n)| n).sum();
    assert_eq!(causes, totals.failed_connections);
    let sum = |of: &dyn Fn(&wb_tcp::Counters) -> u64| -> u64 {
        totals.phases.iter().map(|phase| of(&phase.counters)).sum()
    };
    assert_eq!(sum(&|c| c.attempted), totals.attempted_connections);
    assert_eq!(sum(&|c| c.completed), totals.completed_connections);
    assert_eq!(sum(&|c| c.failed()), totals.failed_connections);
    assert_eq!(sum(&|c| c.rx_frames), totals.rx.received_frames);
    let tx = totals.tx;
    assert_eq!(
        tx.submitted_frames,
        tx.sent_frames + tx.refused_frames + tx.withdrawn_frames
    );
    let ours = totals.counters.tx_frames + totals.responder.arp_tx + totals.responder.icmp_tx;
    assert_eq!(tx.submitted_frames, ours);
}

pub(crate) fn is_gone(fault: &Option<PortError>) -> bool {
    matches!(fault, Some(PortError::Gone { .. }))
}
