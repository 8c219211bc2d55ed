//! A sender with a port that makes the frames autonomously, in virtual time.

use std::sync::{Arc, Mutex, atomic::Ordering};

use wb_measure::{Counters, FlowStats, Histogram, Measurement};
use wb_model::{Stream, units::Rational};
use wb_port::{
    PortError,
    offload::{ReceiveOffload, SendCounters, SendOffload, SendOrder, SendTurn, StreamOrder},
};
use wb_traffic::{
    Clock, OffloadedWorker, Sender, SenderOutcome, SenderSpec, SharedCounters, StreamSpec,
    TrafficControl, VirtualClock, run_offloaded,
};

const MS: u64 = 1_000_000;

/// A port on which every action takes virtual time.
#[derive(Clone, Debug, Default)]
struct Port {
    clock: Option<VirtualClock>,
    /// Time of a hand-over, and of each frame in it.
    hand_over_ns: u64,
    frame_ns: u64,
    /// Start and length of a single stall.
    stall: Option<(u64, u64)>,
    sent: SendCounters,
    taken: SendTurn,
    most_late_ns: u64,
    calls: u64,
}

impl Port {
    fn now(&self) -> u64 {
        self.clock.as_ref().unwrap().monotonic_ns()
    }

    fn advance(&self, ns: u64) {
        self.clock.as_ref().unwrap().advance(ns);
    }
}

impl SendOffload for Port {
    fn turn(&mut self, order: &SendOrder, streams: &[StreamOrder]) -> Result<(), PortError> {
        let [stream] = streams else {
            panic!("one stream")
        };
        let pace = stream.pace.unwrap();
        self.calls += 1;
        self.taken = SendTurn::default();
        self.most_late_ns = 0;
        let turn_until = order.now_ns + order.length_ns;
        let left = order.frames.min(stream.frames);
        let mut sent = 0;
        'turn: while sent < left {
            self.advance(self.hand_over_ns);
            for _ in 0..order.batch {
                let carries = (pace.rest + sent * pace.part) / pace.parts;
                let due_ns = pace.due_ns + sent * pace.whole_ns + carries * pace.carry_ns;
                let mut now = self.now();
                if let Some((_, ns)) = self.stall.take_if(|(at_ns, _)| *at_ns <= now) {
                    self.advance(ns);
                    now += ns;
                    self.taken.stalls += 1;
                    self.taken.stalled_ns += ns;
                }
                if due_ns > now {
                    if order.overdue {
                        break 'turn;
                    }
                    self.taken.idle_ns += due_ns - now;
                    self.advance(due_ns - now);
                    now = due_ns;
                }
                let late_ns = now - due_ns;
                if late_ns > stream.allowance_ns || now >= turn_until || now >= stream.until_ns {
                    // The kernel continues to the end of its order.
                    self.advance((left - sent).min(1 << 18) * 40);
                    break 'turn;
                }
                self.most_late_ns = self.most_late_ns.max(late_ns);
                self.advance(self.frame_ns);
                sent += 1;
                if sent == left {
                    break;
                }
            }
        }
        self.taken.submitted_frames = sent;
        self.taken.last_departure_ns = self.now();
        self.taken.seen_ns = self.now();
        self.sent.submitted_frames += sent;
        self.sent.submitted_octets += 64 * sent;
        Ok(())
    }

    fn taken(&self) -> SendTurn {
        self.taken
    }

    fn most_late_ns(&self, _: usize) -> u64 {
        self.most_late_ns
    }

    fn counters(&self, _: usize) -> SendCounters {
        self.sent
    }

    fn hand_overs(&self) -> (u64, u64) {
        (self.calls, 0)
    }

    fn position(&self, _: usize) -> (u32, u64) {
        (0, self.sent.submitted_frames)
    }

    fn refused_by_flow(&self, _: usize) -> Vec<u64> {
        vec![0]
    }
}

/// Intended and offered frames in 200 ms at this rate, and the number of port calls.
fn send(pps: u64, hand_over_ns: u64, frame_ns: u64) -> (u64, u64, u64) {
    let sender = run(
        &spec(pps),
        Port {
            hand_over_ns,
            frame_ns,
            ..Port::default()
        },
    );
    let stream = &sender.streams[0];
    (
        stream.intended_frames.unwrap(),
        stream.offered_frames,
        sender.tx.kicks,
    )
}

fn spec(pps: u64) -> SenderSpec {
    SenderSpec {
        streams: vec![StreamSpec {
            pps: Some(Rational::whole(pps)),
            ..StreamSpec::default()
        }],
        duration_ns: Some(200 * MS),
        ..SenderSpec::default()
    }
}

fn run(spec: &SenderSpec, mut port: Port) -> SenderOutcome {
    let clock = VirtualClock::ticking(10);
    port.clock = Some(clock.clone());
    let sender = Sender::new(spec, 2048).unwrap();
    let worker = OffloadedWorker {
        sender: Some(sender.into_offloaded(Box::new(port), None)),
        receiver: None,
    };
    let control = TrafficControl::new();
    control.start_at_mono_ns.store(MS, Ordering::Release);
    let outcome = run_offloaded(worker, &control, &SharedCounters::default(), &clock);
    outcome.sender.unwrap()
}

#[test]
fn what_single_frames_cannot_carry_batches_do() {
    // 5 us for a single frame, 0.8 us in a batch of 64.
    let (intended, offered, _) = send(400_000, 4_300, 700);
    assert_eq!((intended, offered), (80_000, 80_000));
}

#[test]
fn where_single_frames_do_nothing_else_is_tried() {
    let (intended, offered, calls) = send(100_000, 4_300, 700);
    assert_eq!((intended, offered), (20_000, 20_000));
    // Turns of 20 ms.
    assert!(calls <= 12, "{calls}");
}

#[test]
fn what_no_batch_carries_is_sent_as_far_as_it_goes() {
    let (intended, offered, _) = send(1_000_000, 4_300, 2_000);
    assert_eq!(intended, 200_000);
    // 2.067 us a frame, and 100 ms more to catch up.
    assert!((90_000..=150_000).contains(&offered), "{offered}");
}

/// Records the times it was started with.
#[derive(Clone, Default)]
struct Account(Arc<Mutex<Vec<u64>>>);

impl ReceiveOffload for Account {
    fn begin(&mut self, wall_minus_mono: u64) {
        self.0.lock().unwrap().push(wall_minus_mono);
    }

    fn since(&mut self, _: u64) {}

    fn drain_since(&mut self, _: u64) {}

    fn end_at(&mut self, _: u64) {}

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn latency(&self) -> (u64, u128) {
        (0, 0)
    }

    fn ramp_frames(&self) -> u64 {
        0
    }

    fn dropped_frames(&self) -> u64 {
        7
    }

    fn latencies(&self) -> Vec<Histogram> {
        Vec::new()
    }

    fn first_flows(&self, _: u32) -> Vec<FlowStats> {
        Vec::new()
    }

    fn measurement(&self) -> Measurement {
        Measurement::default()
    }
}

#[test]
fn what_arrives_counts_before_the_threads_run_and_by_one_offset() {
    let clock = VirtualClock::ticking(10);
    let control = TrafficControl::new();
    let accounts = [Account::default(), Account::default()];
    let mut workers = accounts.clone().map(|account| OffloadedWorker {
        sender: None,
        receiver: Some(Box::new(account)),
    });
    for worker in &mut workers {
        worker.start_counting(&control, &clock);
    }
    let begun = |account: &Account| account.0.lock().unwrap().clone();
    assert_eq!(begun(&accounts[0]).len(), 1);
    assert_eq!(begun(&accounts[0]), begun(&accounts[1]));
    // A second start by the thread changes nothing.
    control.finish.store(true, Ordering::Release);
    for worker in workers {
        let outcome = run_offloaded(worker, &control, &SharedCounters::default(), &clock);
        // Dropped frames are reported.
        assert_eq!(outcome.rx.dropped_frames, 7);
    }
    for account in &accounts {
        let offsets = begun(account);
        assert!(offsets.iter().all(|o| *o == offsets[0]), "{offsets:?}");
    }
}

#[test]
fn what_is_made_up_for_after_a_stall_is_told() {
    for (pps, ns, late) in [(100_000, 20 * MS, 2_000), (2_000, 24 * MS, 48)] {
        let sender = run(
            &spec(pps),
            Port {
                hand_over_ns: 300,
                frame_ns: 100,
                stall: Some((100 * MS, ns)),
                ..Port::default()
            },
        );
        let lateness = &sender.lateness;
        assert_eq!(sender.streams[0].offered_frames, pps / 5);
        assert_eq!((lateness.stalls, lateness.stalled_ns), (1, ns));
        let told = lateness.late_departures;
        assert!((late - late / 20 - 2..=late).contains(&told), "{told}");
    }
}

#[test]
fn at_a_rate_beyond_what_goes_as_much_is_sent_as_goes() {
    for pps in [5_000_000, 1_000_000_000] {
        // 2.7 Mpps.
        let (intended, offered, _) = send(pps, 640, 360);
        assert_eq!(intended, pps / 5);
        assert!((450_000..=900_000).contains(&offered), "{pps}: {offered}");
    }
}

#[test]
fn what_is_given_up_after_a_stall_is_missed() {
    let port = Port {
        hand_over_ns: 300,
        frame_ns: 100,
        stall: Some((100 * MS, 20 * MS)),
        ..Port::default()
    };
    let spec = SenderSpec {
        catch_up_ns: 5 * MS,
        ..spec(100_000)
    };
    let sender = run(&spec, port);
    let lateness = &sender.lateness;
    let stream = &sender.streams[0];
    let unsent = stream.intended_frames.unwrap() - stream.offered_frames;
    // 2,000 fell due; those of the last 5 ms are sent late.
    assert_eq!(lateness.missed_departures, unsent);
    assert!(unsent.abs_diff(1_500) <= 50, "{unsent}");
    let all = lateness.missed_departures + lateness.late_departures;
    assert!((1_900..=2_000).contains(&all), "{lateness:?}");
}

#[test]
fn what_is_given_up_of_bursts_is_missed_and_none_of_them_is_made_up_for() {
    let port = Port {
        hand_over_ns: 300,
        frame_ns: 100,
        stall: Some((100 * MS, 20 * MS)),
        ..Port::default()
    };
    let stream = Stream {
        burst: Some(20),
        gap: Some("1ms".parse().unwrap()),
        ..Stream::default()
    };
    let spec = SenderSpec {
        streams: vec![StreamSpec {
            stream,
            ..StreamSpec::default()
        }],
        duration_ns: Some(200 * MS),
        catch_up_ns: 5 * MS,
        ..SenderSpec::default()
    };
    let sender = run(&spec, port);
    let lateness = &sender.lateness;
    let stream = &sender.streams[0];
    assert_eq!(stream.intended_frames, Some(4_000));
    let unsent = 4_000 - stream.offered_frames;
    // Twenty bursts fell due; those of the last 5 ms are sent, and one has until the next to leave.
    assert_eq!(lateness.missed_departures, unsent);
    assert!(unsent.abs_diff(280) <= 20, "{unsent}");
    // Bursts normally send more than one frame at once.
    assert_eq!((lateness.stalls, lateness.late_departures), (1, 0));
}
