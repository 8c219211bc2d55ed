//! The loop of a worker, alone and between threads.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::{Lab, count};
use wb_measure::Counters;
use wb_model::{Stream, units::Rational};
use wb_port::{
    ChecksumState, PortError, QueuePair, RxCounters, RxFrame, RxQueue, StampSource, TxQueue, memory,
};
use wb_traffic::{
    Clock, FlowSpace, Receiver, ReceiverSpec, Sender, SenderSpec, SharedCounters, StreamOrder,
    StreamPace, StreamSpec, TrafficControl, VirtualClock, Worker, run_worker,
};

fn paced(pps: u64, ms: u64) -> SenderSpec {
    SenderSpec {
        streams: vec![StreamSpec {
            pps: Some(Rational::whole(pps)),
            ..StreamSpec::default()
        }],
        duration_ns: Some(ms * 1_000_000),
        ..SenderSpec::default()
    }
}

fn control(senders: usize) -> TrafficControl {
    let control = TrafficControl::new();
    control.senders_running.store(senders, Ordering::Relaxed);
    control.start_at_mono_ns.store(1_000_000, Ordering::Relaxed);
    control
}

fn receiver() -> Receiver {
    Receiver::new(&ReceiverSpec {
        flows: FlowSpace::Planned { first: 0, count: 1 },
        ..ReceiverSpec::default()
    })
}

#[test]
fn a_sender_sleeps_between_frames_and_publishes() {
    let mut lab = Lab::new(|_| ());
    let sender = lab.sender(&paced(1000, 100));
    let (control, shared) = (control(1), SharedCounters::default());
    let worker = Worker {
        sender: Some(sender),
        receiver: None,
    };
    let outcome = run_worker(
        &mut lab.near.queues[0],
        worker,
        &control,
        &shared,
        &lab.clock,
    );
    let sent = outcome.sender.unwrap();
    assert_eq!(sent.streams[0].offered_frames, 100);
    // Awake for 60 us of every millisecond, at 40 ns a turn.
    assert!(sent.turns < 100 * 2200, "{}", sent.turns);
    assert_eq!(shared.read().offered_frames, 100);
    assert_eq!(control.senders_running.load(Ordering::Relaxed), 0);
    assert_eq!(
        control.drain_since_wall_ns.load(Ordering::Relaxed),
        sent.last_departure_wall_ns
    );
    assert_eq!(
        (outcome.tx.sent_frames, outcome.fault.is_none()),
        (100, true)
    );
}

/// A stream that pauses and changes its rate sends and intends what its rate was at each time; the other one what was
/// planned.
#[test]
fn a_steered_stream_intends_what_it_was_asked_for() {
    let mut lab = Lab::new(|_| ());
    let mut spec = paced(300, 1000);
    let second = StreamSpec {
        first_flow: 1,
        pps: Some(Rational::whole(200)),
        ..spec.streams[0].clone()
    };
    spec.streams.push(second);
    let (control, shared) = (control(1), SharedCounters::default());
    // The start, and then times since the start.
    for (at_ms, pace) in [
        (300, StreamPace::Off),
        (500, StreamPace::On),
        (700, StreamPace::Even(Rational::whole(100))),
    ] {
        shared.orders.give(StreamOrder {
            stream: 0,
            at_mono_ns: 1_000_000 + at_ms * 1_000_000,
            pace,
        });
    }
    let worker = Worker {
        sender: Some(lab.sender(&spec)),
        receiver: None,
    };
    let queue = &mut lab.near.queues[0];
    let sent = run_worker(queue, worker, &control, &shared, &lab.clock);
    let sent = sent.sender.unwrap();
    let counts: Vec<_> = (sent.streams.iter())
        .map(|stream| (stream.intended_frames, stream.offered_frames))
        .collect();
    assert_eq!(counts, [(Some(180), 180), (Some(200), 200)]);
    assert_eq!(shared.read().unsent_frames, 0);
}

/// A run in which all streams pause sleeps, and ends at its time. A stream at full speed pauses, too.
#[test]
fn a_run_in_a_pause_sleeps_until_its_end() {
    for pps in [Some(Rational::whole(1000)), None] {
        let mut lab = Lab::new(|_| ());
        let mut spec = paced(1000, 500);
        spec.streams[0].pps = pps;
        let (control, shared) = (control(1), SharedCounters::default());
        shared.orders.give(StreamOrder {
            stream: 0,
            at_mono_ns: 0,
            pace: StreamPace::Off,
        });
        let worker = Worker {
            sender: Some(lab.sender(&spec)),
            receiver: None,
        };
        let queue = &mut lab.near.queues[0];
        let sent = run_worker(queue, worker, &control, &shared, &lab.clock);
        let sent = sent.sender.unwrap();
        let stream = &sent.streams[0];
        assert_eq!(stream.intended_frames.unwrap_or(stream.offered_frames), 0);
        assert_eq!(stream.offered_frames, 0);
        assert!(sent.turns < 20_000, "{}", sent.turns);
        let lasted_ns = lab.clock.monotonic_ns() - 1_000_000;
        assert!(
            (500_000_000..700_000_000).contains(&lasted_ns),
            "{lasted_ns}"
        );
    }
}

/// Sets `finish` at a given time, like a session.
struct Finishing<'a> {
    clock: &'a VirtualClock,
    control: &'a TrafficControl,
    at_ns: u64,
}

impl Clock for Finishing<'_> {
    fn monotonic_ns(&self) -> u64 {
        let now = self.clock.monotonic_ns();
        if now >= self.at_ns {
            self.control.finish.store(true, Ordering::Relaxed);
        }
        now
    }

    fn wall_ns(&self) -> u64 {
        self.clock.wall_ns()
    }
}

#[test]
fn one_worker_sends_and_receives() {
    let clock = VirtualClock::ticking(40);
    let mut options = memory::LinkOptions::new("loop", clock.stamps());
    options.forward.delay_ns = 300_000;
    let mut port = memory::looped(&options).unwrap();
    let sender = Sender::new(&paced(10_000, 10), port.queues[0].tx().frame_capacity()).unwrap();
    let (control, shared) = (control(1), SharedCounters::default());
    let clock = Finishing {
        clock: &clock,
        control: &control,
        at_ns: 13_000_000,
    };
    let worker = Worker {
        sender: Some(sender),
        receiver: Some(receiver()),
    };
    let outcome = run_worker(&mut port.queues[0], worker, &control, &shared, &clock);
    let counters = outcome.receiver.unwrap().measurement.counters;
    assert_eq!(
        (
            outcome.sender.unwrap().streams[0].offered_frames,
            counters.received_frames
        ),
        (100, 100)
    );
    // The last frame left at 10.9 ms, those of the last 0.3 ms arrived after it.
    assert!(
        (3..=4).contains(&counters.late_frames),
        "{}",
        counters.late_frames
    );
    let shown = shared.read();
    assert_eq!((shown.received_frames, shown.latency_samples), (100, 100));
    assert!(shown.latency_sum_ns >= 100 * 300_000);
}

#[test]
fn stop_ends_the_sender_and_finish_the_receiver() {
    let mut lab = Lab::new(|_| ());
    let sender = lab.sender(&SenderSpec {
        duration_ns: None,
        ..paced(1000, 0)
    });
    let control = control(1);
    control.stop.store(true, Ordering::Relaxed);
    let worker = Worker {
        sender: Some(sender),
        receiver: None,
    };
    let outcome = run_worker(
        &mut lab.near.queues[0],
        worker,
        &control,
        &SharedCounters::default(),
        &lab.clock,
    );
    assert_eq!(outcome.sender.unwrap().streams[0].intended_frames, Some(0));

    lab.send(&count(Stream::default(), 50));
    let mut lab = Lab::new(|_| ());
    let mut sender = lab.sender(&count(Stream::default(), 50));
    sender.start(0);
    while !sender
        .step(lab.near.queues[0].tx(), &lab.clock)
        .unwrap()
        .done
    {}
    control.finish.store(true, Ordering::Relaxed);
    let worker = Worker {
        sender: None,
        receiver: Some(receiver()),
    };
    let outcome = run_worker(
        &mut lab.far.queues[0],
        worker,
        &control,
        &SharedCounters::default(),
        &lab.clock,
    );
    // Frames that have arrived by then count.
    assert_eq!(
        outcome
            .receiver
            .unwrap()
            .measurement
            .counters
            .received_frames,
        50
    );
}

/// Delivers nothing before a time, like a device that collects frames.
struct Collecting {
    tx: memory::MemoryTx,
    rx: CollectingRx,
}

struct CollectingRx {
    inner: memory::MemoryRx,
    clock: VirtualClock,
    until_wall_ns: u64,
}

impl RxQueue for CollectingRx {
    fn receive<F: FnMut(&RxFrame<'_>)>(
        &mut self,
        max: usize,
        on_frame: F,
    ) -> Result<usize, PortError> {
        match self.clock.wall_ns() < self.until_wall_ns {
            true => Ok(0),
            false => self.inner.receive(max, on_frame),
        }
    }

    fn wait(&mut self, timeout: Duration) -> Result<bool, PortError> {
        self.clock.advance(timeout.as_nanos() as u64);
        Ok(false)
    }

    fn longest_hold(&self) -> Duration {
        Duration::from_millis(25)
    }

    fn counters(&mut self) -> RxCounters {
        self.inner.counters()
    }
}

impl QueuePair for Collecting {
    type Tx = memory::MemoryTx;
    type Rx = CollectingRx;

    fn split(&mut self) -> (&mut memory::MemoryTx, &mut CollectingRx) {
        (&mut self.tx, &mut self.rx)
    }
}

/// Final counters of a worker that only receives.
fn received(pair: &mut impl QueuePair, control: &TrafficControl, clock: &VirtualClock) -> Counters {
    let worker = Worker {
        sender: None,
        receiver: Some(receiver()),
    };
    let outcome = run_worker(pair, worker, control, &SharedCounters::default(), clock);
    outcome.receiver.unwrap().measurement.counters
}

#[test]
fn what_arrived_before_the_end_counts_however_late_it_is_shown() {
    let mut lab = Lab::new(|_| ());
    let send = |lab: &mut Lab, frames| {
        let mut sender = lab.sender(&count(Stream::default(), frames));
        sender.start(0);
        while !sender
            .step(lab.near.queues[0].tx(), &lab.clock)
            .unwrap()
            .done
        {}
    };
    let control = control(0);
    send(&mut lab, 300);
    control
        .end_wall_ns
        .store(lab.clock.wall_ns(), Ordering::Relaxed);
    lab.clock.advance(1000);
    send(&mut lab, 500);
    control.finish.store(true, Ordering::Relaxed);

    let (tx, inner) = lab.far.queues.remove(0).into_halves();
    let mut pair = Collecting {
        tx,
        rx: CollectingRx {
            inner,
            clock: lab.clock.clone(),
            until_wall_ns: lab.clock.wall_ns() + 24_000_000,
        },
    };
    let counters = received(&mut pair, &control, &lab.clock);
    assert_eq!(
        (counters.received_frames, counters.duplicate_frames),
        (300, 0)
    );
}

/// A frame arrives periodically and wakes any waiting thread.
struct Regular<'a> {
    clock: VirtualClock,
    control: &'a TrafficControl,
    gap_ns: u64,
    shown: u64,
    waits: u64,
}

impl RxQueue for Regular<'_> {
    fn receive<F: FnMut(&RxFrame<'_>)>(
        &mut self,
        max: usize,
        mut on_frame: F,
    ) -> Result<usize, PortError> {
        let due = (self.clock.monotonic_ns() / self.gap_ns - self.shown).min(max as u64);
        for _ in 0..due {
            on_frame(&RxFrame {
                bytes: &[0; 60],
                original_len: 60,
                stamp_ns: self.clock.monotonic_ns(),
                stamp_source: StampSource::Virtual,
                vlan: None,
                checksum: ChecksumState::Unknown,
            });
        }
        self.shown += due;
        if self.shown >= 1000 {
            self.control.finish.store(true, Ordering::Relaxed);
        }
        Ok(due as usize)
    }

    fn wait(&mut self, timeout: Duration) -> Result<bool, PortError> {
        self.waits += 1;
        let next = (self.shown + 1) * self.gap_ns - self.clock.monotonic_ns();
        self.clock.advance(next.min(timeout.as_nanos() as u64));
        Ok(true)
    }

    fn longest_nap(&self) -> Duration {
        Duration::from_micros(50)
    }

    fn counters(&mut self) -> RxCounters {
        RxCounters::default()
    }
}

struct RegularPair<'a>(memory::MemoryTx, Regular<'a>);

impl<'a> QueuePair for RegularPair<'a> {
    type Tx = memory::MemoryTx;
    type Rx = Regular<'a>;

    fn split(&mut self) -> (&mut memory::MemoryTx, &mut Regular<'a>) {
        (&mut self.0, &mut self.1)
    }
}

#[test]
fn a_receiver_is_not_woken_for_each_of_many_frames() {
    let woken = |gap_ns| {
        let mut lab = Lab::new(|_| ());
        let control = control(0);
        let (tx, _) = lab.far.queues.remove(0).into_halves();
        let rx = Regular {
            clock: lab.clock.clone(),
            control: &control,
            gap_ns,
            shown: 0,
            waits: 0,
        };
        let mut pair = RegularPair(tx, rx);
        let counters = received(&mut pair, &control, &lab.clock);
        assert!(counters.foreign_frames >= 1000);
        pair.1.waits
    };
    assert!(woken(20_000) <= 2, "{}", woken(20_000));
    // At a low rate each frame wakes it at once.
    assert!(woken(300_000) >= 999, "{}", woken(300_000));
}

#[test]
fn a_port_that_vanishes_ends_the_worker_with_its_counts() {
    struct Vanishing<'a>(&'a VirtualClock, memory::LinkControl);

    impl Clock for Vanishing<'_> {
        fn monotonic_ns(&self) -> u64 {
            let now = self.0.monotonic_ns();
            match now {
                0..10_000_000 => {}
                10_000_000..20_000_000 => self.1.set_up(false),
                20_000_000..30_000_000 => self.1.set_up(true),
                _ => self.1.remove(),
            }
            now
        }

        fn wall_ns(&self) -> u64 {
            self.0.wall_ns()
        }

        fn sleep_until(&self, monotonic_ns: u64) {
            self.0.sleep_until(monotonic_ns);
        }
    }

    let mut lab = Lab::new(|_| ());
    let sender = lab.sender(&paced(1000, 100));
    let control = control(1);
    let clock = Vanishing(&lab.clock, lab.near.control.clone());
    let worker = Worker {
        sender: Some(sender),
        receiver: Some(receiver()),
    };
    let outcome = run_worker(
        &mut lab.near.queues[0],
        worker,
        &control,
        &SharedCounters::default(),
        &clock,
    );
    assert!(
        matches!(outcome.fault, Some(wb_port::PortError::Gone { .. })),
        "{:?}",
        outcome.fault
    );
    assert!(
        (8_000_000..=11_000_000).contains(&outcome.link_down_ns),
        "{}",
        outcome.link_down_ns
    );
    assert_eq!(outcome.link_downs, 1);
    let stream = &outcome.sender.unwrap().streams[0];
    assert!((28..=30).contains(&stream.offered_frames), "{stream:?}");
    assert_eq!(control.senders_running.load(Ordering::Relaxed), 0);
}

/// Drops frames while its link is down, and reports the reason only every second time: the system may learn of the link
/// later than the device.
struct Dropping {
    inner: memory::MemoryTx,
    clock: VirtualClock,
    down: std::ops::Range<u64>,
    refused: Vec<Vec<u8>>,
    refused_frames: u64,
    tells: bool,
}

impl TxQueue for Dropping {
    fn frame_capacity(&self) -> usize {
        self.inner.frame_capacity()
    }

    fn batch_hint(&self) -> usize {
        self.inner.batch_hint()
    }

    fn lend(&mut self, n: usize) -> usize {
        self.inner.lend(n)
    }

    fn slot(&mut self, i: usize) -> wb_port::Slot<'_> {
        self.inner.slot(i)
    }

    fn submit(&mut self, n: usize) {
        self.inner.submit(n);
    }

    fn flush(&mut self) -> Result<(), PortError> {
        if !self.down.contains(&self.clock.monotonic_ns()) || self.inner.in_flight() == 0 {
            return self.inner.flush();
        }
        let refused = &mut self.refused;
        self.inner.withdraw(|frame| refused.push(frame.to_vec()));
        self.refused_frames += self.refused.len() as u64;
        self.tells = !self.tells;
        match self.tells {
            true => Err(PortError::LinkDown {
                port: "dropping".to_owned(),
            }),
            false => Ok(()),
        }
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn take_refused<F: FnMut(&[u8])>(&mut self, mut each: F) {
        self.refused.drain(..).for_each(|frame| each(&frame));
    }

    fn withdraw<F: FnMut(&[u8])>(&mut self, each: F) {
        self.inner.withdraw(each);
    }

    fn counters(&self) -> wb_port::TxCounters {
        let counters = self.inner.counters();
        wb_port::TxCounters {
            refused_frames: self.refused_frames,
            withdrawn_frames: counters.withdrawn_frames - self.refused_frames,
            ..counters
        }
    }
}

struct DroppingPair {
    tx: Dropping,
    rx: memory::MemoryRx,
}

impl QueuePair for DroppingPair {
    type Tx = Dropping;
    type Rx = memory::MemoryRx;

    fn split(&mut self) -> (&mut Dropping, &mut memory::MemoryRx) {
        (&mut self.tx, &mut self.rx)
    }
}

#[test]
fn a_link_is_down_until_a_frame_leaves() {
    let mut lab = Lab::new(|_| ());
    let sender = lab.sender(&paced(1000, 100));
    let (inner, rx) = lab.near.queues.remove(0).into_halves();
    let mut pair = DroppingPair {
        tx: Dropping {
            inner,
            clock: lab.clock.clone(),
            down: 20_000_000..60_000_000,
            refused: Vec::new(),
            refused_frames: 0,
            tells: false,
        },
        rx,
    };
    let worker = Worker {
        sender: Some(sender),
        receiver: None,
    };
    let (control, shared) = (control(1), SharedCounters::default());
    let outcome = run_worker(&mut pair, worker, &control, &shared, &lab.clock);
    let account = &outcome.sender.unwrap().streams[0];
    assert_eq!(account.offered_frames + account.refused_frames, 100);
    assert!((38..=41).contains(&account.refused_frames), "{account:?}");
    assert_eq!(outcome.link_downs, 1);
    let down_ms = outcome.link_down_ns / 1_000_000;
    assert!((37..=41).contains(&down_ms), "{down_ms}");
}

struct Real(std::time::Instant);

impl Clock for Real {
    fn monotonic_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }

    fn wall_ns(&self) -> u64 {
        wall_ns()
    }
}

fn wall_ns() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_nanos() as u64
}

#[test]
fn workers_in_threads_lose_nothing() {
    let mut options = memory::LinkOptions::new("threads", wb_port::clock::Clock::Real(wall_ns));
    options.queues = 2;
    let (near, far) = memory::link(&options).unwrap();
    let control = Arc::new(control(2));
    let epoch = std::time::Instant::now();
    let spec = |worker| SenderSpec {
        worker,
        workers: 2,
        streams: vec![StreamSpec {
            flows: 4,
            stream: Stream {
                flows: Some(4),
                ..Stream::default()
            },
            ..StreamSpec::default()
        }],
        count: Some(20_001),
        ..SenderSpec::default()
    };
    let run = |mut pair: memory::MemoryQueue, worker: Worker| {
        let control = Arc::clone(&control);
        std::thread::spawn(move || {
            run_worker(
                &mut pair,
                worker,
                &control,
                &SharedCounters::default(),
                &Real(epoch),
            )
        })
    };
    let mut threads = Vec::new();
    for (worker, mut pair) in (0..).zip(near.queues) {
        let sender = Sender::new(&spec(worker), pair.tx().frame_capacity()).unwrap();
        threads.push(run(
            pair,
            Worker {
                sender: Some(sender),
                receiver: None,
            },
        ));
    }
    let receivers: Vec<_> = far
        .queues
        .into_iter()
        .map(|pair| {
            let receiver = Receiver::new(&ReceiverSpec {
                flows: FlowSpace::Planned { first: 0, count: 4 },
                ..ReceiverSpec::default()
            });
            run(
                pair,
                Worker {
                    sender: None,
                    receiver: Some(receiver),
                },
            )
        })
        .collect();
    let offered: u64 = threads
        .into_iter()
        .map(|t| t.join().unwrap().sender.unwrap().streams[0].offered_frames)
        .sum();
    control.finish.store(true, Ordering::Release);
    let mut all = wb_measure::Measurement::default();
    for thread in receivers {
        all.merge(&thread.join().unwrap().receiver.unwrap().measurement);
    }
    assert_eq!(
        (
            offered,
            all.counters.received_frames,
            all.counters.missing_frames
        ),
        (20_001, 20_001, 0)
    );
}
