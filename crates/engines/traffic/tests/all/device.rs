//! Packet devices on memory ports: sent frames, their times, and the reports.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use wb_model::device::{Defaults, Delay, DeviceConfig, Entry, Flags, Interface};
use wb_model::units::Mac;
use wb_pktgen_device::{Start, Walker};
use wb_port::{PortError, QueuePair, RxQueue, Slot, TxCounters, TxQueue, memory};
use wb_traffic::{
    Clock, DeviceHandle, DeviceOutcome, DeviceTurn, TrafficControl, VirtualClock, device_sender,
    run_devices,
};
use wb_wire::PktgenTag;

const START_NS: u64 = 1_000_000;
const TICK_NS: u64 = 20;

fn config(change: impl FnOnce(&mut DeviceConfig)) -> DeviceConfig {
    let mut config = DeviceConfig::new("dev", &Defaults::default());
    (config.min_size, config.max_size) = (60, 60);
    config.dst_min = "198.18.0.42".to_owned();
    config.dst_mac = Mac([2, 0, 0, 0, 0, 2]);
    change(&mut config);
    config
}

fn walker(config: DeviceConfig) -> Walker {
    let interface = Interface {
        mtu: 1500,
        ..Interface::default()
    };
    let start = Start {
        interface,
        seed: 7,
        ..Start::default()
    };
    Walker::new(config, &start).unwrap()
}

fn control(devices: usize) -> TrafficControl {
    let control = TrafficControl::new();
    control.senders_running.store(devices, Ordering::Relaxed);
    control.start_at_mono_ns.store(START_NS, Ordering::Relaxed);
    control
}

/// A link with a ring large enough for all frames of the tests, unless configured otherwise.
struct Lab {
    clock: VirtualClock,
    far: memory::MemoryPort,
    near: Option<memory::MemoryQueue>,
    link: memory::LinkControl,
    handle: Arc<DeviceHandle>,
}

impl Lab {
    fn new(clock: &VirtualClock, change: impl FnOnce(&mut memory::LinkOptions)) -> Self {
        let mut options = memory::LinkOptions::new("lab", clock.stamps());
        options.depth = 1 << 14;
        change(&mut options);
        let (mut near, far) = memory::link(&options).unwrap();
        Self {
            clock: clock.clone(),
            far,
            near: Some(near.queues.remove(0)),
            link: near.control,
            handle: Arc::default(),
        }
    }

    fn sender(&mut self, config: DeviceConfig) -> Box<dyn DeviceTurn + Send> {
        let pair = self.near.take().unwrap();
        device_sender(
            pair,
            walker(config),
            Arc::clone(&self.handle),
            None,
            self.clock.clone(),
        )
    }

    /// Runs one device alone; each event happens at its time.
    fn run(&mut self, config: DeviceConfig, events: Vec<(u64, Event)>) -> DeviceOutcome {
        let control = control(1);
        let clock = Eventful::new(&self.clock, events, &self.handle, &self.link);
        let pair = self.near.take().unwrap();
        let handle = Arc::clone(&self.handle);
        let sender = device_sender(pair, walker(config), handle, None, clock.clone());
        let outcome = run_devices(vec![sender], &control, &clock).remove(0);
        assert_eq!(control.senders_running.load(Ordering::Relaxed), 0);
        assert!(self.handle.has_ended());
        check(&outcome);
        outcome
    }

    /// Time after the start, and frame.
    fn arrived(&mut self) -> Vec<(u64, Vec<u8>)> {
        let mut frames = Vec::new();
        let rx = self.far.queues[0].rx();
        let take = |frame: &wb_port::RxFrame<'_>| {
            let at_ns = frame.stamp_ns - VirtualClock::EPOCH_NS - START_NS;
            frames.push((at_ns, frame.bytes.to_vec()));
        };
        let mut take = take;
        while rx.receive(64, &mut take).unwrap() > 0 {}
        frames
    }

    fn numbers(&mut self) -> Vec<u32> {
        self.arrived()
            .iter()
            .map(|(_, frame)| number(frame))
            .collect()
    }
}

fn number(frame: &[u8]) -> u32 {
    PktgenTag::read(&frame[42..]).unwrap().sequence
}

/// Checks invariants of every outcome.
fn check(outcome: &DeviceOutcome) {
    let tx = outcome.tx;
    assert_eq!(
        tx.submitted_frames,
        tx.sent_frames + tx.refused_frames + tx.withdrawn_frames
    );
    assert_eq!(outcome.offered_frames, tx.sent_frames);
    assert_eq!(outcome.offered_octets, tx.sent_octets + 4 * tx.sent_frames);
    assert_eq!(outcome.refused_frames, tx.refused_frames);
    assert_eq!(outcome.withdrawn_frames, tx.withdrawn_frames);
    let progress = outcome.walker.progress();
    assert_eq!(progress.idle_ns, outcome.idle_ns);
    assert_eq!(progress.started_ns, outcome.started_ns);
    assert_eq!(progress.stopped_ns, outcome.stopped_ns);
    assert!(
        outcome.idle_ns <= outcome.stopped_ns - outcome.started_ns,
        "{outcome:?}"
    );
    if let Some(intended) = outcome.intended_frames {
        assert_eq!(intended, outcome.offered_frames + outcome.unsent_frames());
    }
}

/// Events during the run of a device.
enum Event {
    Stop,
    Configure(Box<DeviceConfig>),
    LinkDown,
    Gone,
}

/// A clock that triggers events.
#[derive(Clone)]
struct Eventful {
    clock: VirtualClock,
    events: Arc<Mutex<Vec<(u64, Event)>>>,
    handle: Arc<DeviceHandle>,
    link: memory::LinkControl,
}

impl Eventful {
    fn new(
        clock: &VirtualClock,
        events: Vec<(u64, Event)>,
        handle: &Arc<DeviceHandle>,
        link: &memory::LinkControl,
    ) -> Self {
        Self {
            clock: clock.clone(),
            events: Arc::new(Mutex::new(events)),
            handle: Arc::clone(handle),
            link: link.clone(),
        }
    }

    fn happen(&self, now_ns: u64) {
        let mut events = self.events.lock().unwrap();
        while events
            .first()
            .is_some_and(|(at_ns, _)| START_NS + at_ns <= now_ns)
        {
            match events.remove(0).1 {
                Event::Stop => self.handle.stop(),
                Event::Configure(config) => self.handle.reconfigure(*config),
                Event::LinkDown => self.link.set_up(false),
                Event::Gone => self.link.remove(),
            }
        }
    }
}

impl Clock for Eventful {
    fn monotonic_ns(&self) -> u64 {
        let now_ns = self.clock.monotonic_ns();
        self.happen(now_ns);
        now_ns
    }

    fn wall_ns(&self) -> u64 {
        self.clock.wall_ns()
    }

    fn sleep_until(&self, monotonic_ns: u64) {
        self.clock.sleep_until(monotonic_ns);
        self.happen(monotonic_ns);
    }

    fn pause(&self) {
        self.happen(self.clock.monotonic_ns());
    }
}

fn lab() -> Lab {
    Lab::new(&VirtualClock::ticking(TICK_NS), |_| ())
}

#[test]
fn clones_and_bursts_repeat_numbers() {
    let wire = |count, clones, burst| {
        let mut lab = lab();
        let outcome = lab.run(
            config(|c| (c.count, c.clone_skb, c.burst) = (count, clones, burst)),
            vec![],
        );
        let numbers = lab.numbers();
        assert_eq!(outcome.walker.progress().sofar, numbers.len() as u64);
        assert_eq!(outcome.intended_frames, Some(numbers.len() as u64));
        assert_eq!(outcome.offered_octets, 64 * numbers.len() as u64);
        numbers
    };
    assert_eq!(wire(7, 3, 1), [1, 1, 1, 4, 4, 4, 7]);
    assert_eq!(wire(10, 0, 4), [1, 1, 1, 1, 5, 5, 5, 5, 9, 9, 9, 9]);
    assert_eq!(wire(8, 2, 2), [1, 1, 1, 1, 5, 5, 5, 5]);
    assert_eq!(wire(3, 0, 1), [1, 2, 3]);
}

#[test]
fn a_burst_may_be_larger_than_a_batch() {
    let mut lab = lab();
    let outcome = lab.run(config(|c| (c.count, c.burst) = (1025, 1024)), vec![]);
    assert_eq!(outcome.offered_frames, 2048);
    assert_eq!(outcome.busy_turns, 2048 / 64);
    let numbers = lab.numbers();
    assert_eq!((numbers[0], numbers[1023], numbers[1024]), (1, 1, 1025));
}

#[test]
fn calls_are_due_delay_after_delay() {
    let mut lab = lab();
    let paced = config(|c| {
        (c.count, c.burst) = (20, 2);
        c.delay = Delay::whole(1_000_000);
    });
    let outcome = lab.run(paced, vec![]);
    let arrived = lab.arrived();
    assert_eq!(arrived.len(), 20);
    for (i, (at_ns, _)) in arrived.iter().enumerate() {
        let due_ns = i as u64 / 2 * 1_000_000;
        assert!(
            (due_ns..due_ns + 10 * TICK_NS).contains(at_ns),
            "{i}: {at_ns}"
        );
    }
    // Ten calls take nine delays.
    let took_ns = outcome.stopped_ns - outcome.started_ns;
    assert!(
        (9_000_000..9_000_000 + 10 * TICK_NS).contains(&took_ns),
        "{took_ns}"
    );
    assert_eq!(outcome.started_ns, START_NS);
    // A few clock readings per call are not idle.
    assert!(outcome.idle_ns > took_ns - 10 * 10 * TICK_NS, "{outcome:?}");
    // Awake for 60 us before each call, and once every 10 ms.
    assert!(outcome.turns < 10 * 60_000 / TICK_NS, "{}", outcome.turns);
    assert_eq!(outcome.largest_catch_up_frames, 2);
    assert_eq!(
        outcome.last_departure_wall_ns,
        VirtualClock::EPOCH_NS + outcome.last_departure_ns
    );
}

#[test]
fn a_rate_that_is_no_whole_delay_is_exact() {
    let mut lab = lab();
    let paced = config(|c| {
        c.count = 3001;
        c.delay = Delay::fraction(1_000_000_000, 3_000_000);
    });
    lab.run(paced, vec![]);
    let last_ns = lab.arrived().last().unwrap().0;
    // 3000 thirds of a microsecond; with whole delays of 333 ns it were 999 us.
    assert!(
        (1_000_000..1_000_000 + 10 * TICK_NS).contains(&last_ns),
        "{last_ns}"
    );
}

#[test]
fn devices_of_a_worker_have_their_turns() {
    let clock = VirtualClock::ticking(TICK_NS);
    let mut labs: Vec<Lab> = (0..3).map(|_| Lab::new(&clock, |_| ())).collect();
    let senders = vec![
        labs[0].sender(config(|c| c.count = 6400)),
        labs[1].sender(config(|c| c.count = 6400)),
        labs[2].sender(config(|c| {
            c.count = 5;
            c.delay = Delay::whole(1000);
        })),
    ];
    let control = control(3);
    let outcomes = run_devices(senders, &control, &clock);
    assert_eq!(control.senders_running.load(Ordering::Relaxed), 0);
    let offered: Vec<u64> = outcomes.iter().map(|o| o.offered_frames).collect();
    assert_eq!(offered, [6400, 6400, 5]);
    // Both at full speed end within one batch of each other.
    let ends: Vec<u64> = outcomes.iter().map(|o| o.stopped_ns).collect();
    assert!(ends[0].abs_diff(ends[1]) < 20 * TICK_NS, "{ends:?}");
    let times: Vec<u64> = labs[2].arrived().iter().map(|(at_ns, _)| *at_ns).collect();
    for (i, at_ns) in times.iter().enumerate() {
        let due_ns = i as u64 * 1000;
        // Late by at most two batches of the others.
        assert!((due_ns..due_ns + 30 * TICK_NS).contains(at_ns), "{times:?}");
    }
}

#[test]
fn a_sleeping_device_stops_soon() {
    let mut lab = lab();
    let slow = config(|c| c.delay = Delay::whole(3_000_000_000));
    let outcome = lab.run(slow, vec![(100_000_000, Event::Stop)]);
    let took_ns = outcome.stopped_ns - outcome.started_ns;
    assert!((100_000_000..=110_100_000).contains(&took_ns), "{took_ns}");
    assert_eq!(
        (outcome.offered_frames, outcome.intended_frames),
        (1, Some(1))
    );
    assert_eq!(lab.handle.progress(), *outcome.walker.progress());
    assert!(outcome.idle_ns > took_ns - 10 * TICK_NS);
}

#[test]
fn a_device_stopped_before_its_start_sends_nothing() {
    let mut lab = lab();
    lab.handle.stop();
    let outcome = lab.run(config(|_| ()), vec![]);
    assert_eq!((outcome.offered_frames, outcome.turns), (0, 1));
    assert_eq!(outcome.started_ns, outcome.stopped_ns);

    let mut lab = self::lab();
    let control = control(1);
    control.stop.store(true, Ordering::Relaxed);
    let sender = lab.sender(config(|c| c.count = 0));
    assert_eq!(
        run_devices(vec![sender], &control, &lab.clock)[0].offered_frames,
        0
    );
}

#[test]
fn a_device_that_never_sends_waits_for_the_stop() {
    let mut lab = lab();
    let never = config(|c| c.delay = Delay::whole(Delay::NEVER));
    let outcome = lab.run(never.clone(), vec![(50_000_000, Event::Stop)]);
    assert_eq!(
        (outcome.offered_frames, outcome.intended_frames),
        (0, Some(0))
    );
    // Awake for 60 us before the start.
    assert!(
        outcome.turns < 20 + 60_000 / (2 * TICK_NS),
        "{}",
        outcome.turns
    );

    // The same for a paced device.
    let mut lab = self::lab();
    let paced = config(|c| {
        c.count = 10;
        c.delay = Delay::whole(1_000_000);
    });
    let outcome = lab.run(never, vec![(50_000_000, Event::Configure(Box::new(paced)))]);
    assert_eq!(outcome.offered_frames, 10);
    let arrived = lab.arrived();
    assert!(
        (50_000_000..=60_100_000).contains(&arrived[0].0),
        "{}",
        arrived[0].0
    );
    assert!((arrived[9].0 - arrived[0].0).abs_diff(9_000_000) < 10 * TICK_NS);
}

#[test]
fn settings_change_during_the_run() {
    let mut lab = lab();
    let slow = config(|c| {
        c.count = 1000;
        c.delay = Delay::whole(5_000_000_000);
    });
    let fast = config(|c| {
        (c.count, c.min_size, c.max_size) = (101, 100, 100);
        c.delay = Delay::whole(100_000);
    });
    let outcome = lab.run(slow, vec![(20_000_000, Event::Configure(Box::new(fast)))]);
    let arrived = lab.arrived();
    assert_eq!((outcome.offered_frames, arrived.len()), (101, 101));
    // Not after the previous five seconds.
    assert!(
        (20_000_000..=30_300_000).contains(&arrived[1].0),
        "{}",
        arrived[1].0
    );
    assert!((arrived[100].0 - arrived[1].0).abs_diff(99 * 100_000) < 10 * TICK_NS);
    // The second packet was built already.
    let lens: Vec<usize> = arrived[..3].iter().map(|(_, frame)| frame.len()).collect();
    assert_eq!(lens, [60, 60, 100]);
    assert_eq!(lab.handle.take_refusal(), None);
}

#[test]
fn full_speed_leaves_no_backlog_for_a_pace() {
    let mut lab = lab();
    let free = config(|c| c.count = 0);
    let paced = config(|c| {
        c.count = 0;
        c.delay = Delay::whole(100_000);
    });
    let events = vec![
        (2_000, Event::Configure(Box::new(paced))),
        (1_000_000, Event::Stop),
    ];
    lab.run(free, events);
    let paced = lab
        .arrived()
        .iter()
        .filter(|(at_ns, _)| *at_ns > 3_000)
        .count();
    assert!((9..=10).contains(&paced), "{paced}");
}

#[test]
fn settings_that_do_not_fit_are_refused() {
    let mut lab = Lab::new(&VirtualClock::ticking(TICK_NS), |o| o.mtu = 1000);
    let paced = |size| {
        config(|c| {
            (c.count, c.min_size, c.max_size) = (100, size, size);
            c.delay = Delay::whole(1_000_000);
        })
    };
    let events = vec![
        (20_000_000, Event::Configure(Box::new(paced(1515)))),
        (40_000_000, Event::Configure(Box::new(paced(1300)))),
    ];
    let outcome = lab.run(paced(60), events);
    assert_eq!(outcome.offered_frames, 100);
    assert!(lab.arrived().iter().all(|(_, frame)| frame.len() == 60));
    // The port supports less than the interface claimed.
    let refusal = lab.handle.take_refusal().unwrap();
    assert_eq!(refusal, "packet size 1300 exceeds 1022");
    assert_eq!(lab.handle.take_refusal(), None);

    let mut lab = Lab::new(&VirtualClock::ticking(TICK_NS), |o| o.mtu = 1000);
    let outcome = lab.run(paced(1300), vec![]);
    assert_eq!(outcome.offered_frames, 0);
    assert_eq!(
        outcome.fault.unwrap().to_string(),
        "dev: packet size 1300 exceeds 1022"
    );
}

#[test]
fn clearing_counters_begins_the_count_anew() {
    let mut lab = lab();
    let paced = |clears| {
        config(|c| {
            (c.count, c.clears) = (100, clears);
            c.delay = Delay::whole(1_000_000);
        })
    };
    let outcome = lab.run(
        paced(0),
        vec![(50_000_000, Event::Configure(Box::new(paced(1))))],
    );
    assert!((150..=162).contains(&outcome.offered_frames), "{outcome:?}");
    assert_eq!(outcome.walker.progress().sofar, 100);
    assert!(
        (98_900_000..112_000_000).contains(&outcome.idle_ns),
        "{}",
        outcome.idle_ns
    );
    assert_eq!(number(&lab.arrived().last().unwrap().1), 100);
}

#[test]
fn a_duration_ends_the_run() {
    let run = |count, delay: u64, duration_ns| {
        let mut lab = lab();
        let outcome = lab.run(
            config(|c| {
                (c.count, c.duration_ns, c.delay) = (count, duration_ns, Delay::whole(delay));
            }),
            vec![],
        );
        let took_ns = outcome.stopped_ns - outcome.started_ns;
        (outcome.offered_frames, outcome.intended_frames, took_ns)
    };
    // Calls at 0, 1, ... 9 ms; the run waits for the whole duration.
    let (offered, intended, took_ns) = run(0, 1_000_000, 10_000_000);
    assert_eq!((offered, intended), (10, Some(10)));
    assert!(
        (10_000_000..10_000_000 + 5 * TICK_NS).contains(&took_ns),
        "{took_ns}"
    );
    // A call due exactly at the end does not belong to it, one due slightly earlier does.
    assert_eq!(run(0, 1_000_000, 10_000_001).0, 11);
    // The count comes first.
    let (offered, intended, took_ns) = run(5, 1_000_000, 10_000_000);
    assert_eq!((offered, intended), (5, Some(5)));
    assert!(took_ns < 4_100_000);
    // Full speed.
    let (offered, intended, took_ns) = run(0, 0, 5_000);
    assert!(offered > 64 && intended.is_none());
    assert!((5_000..5_000 + 5 * TICK_NS).contains(&took_ns), "{took_ns}");
    // Delay "never", for a while.
    let (offered, _, took_ns) = run(0, Delay::NEVER, 30_000_000);
    assert_eq!(offered, 0);
    assert!((30_000_000..30_000_200).contains(&took_ns), "{took_ns}");
}

#[test]
fn a_port_too_slow_for_the_pace_does_not_lengthen_the_run_for_ever() {
    // A thousand frames a second fit into a ring that is never emptied.
    let mut lab = Lab::new(&VirtualClock::ticking(TICK_NS), |o| o.depth = 128);
    let paced = config(|c| {
        (c.count, c.duration_ns) = (0, 10_000_000);
        c.delay = Delay::whole(10_000);
    });
    let outcome = lab.run(paced, vec![]);
    assert_eq!(
        (outcome.offered_frames, outcome.intended_frames),
        (128, Some(1000))
    );
    assert_eq!(outcome.unsent_frames(), 872);
    let took_ns = outcome.stopped_ns - outcome.started_ns;
    assert!(took_ns < 51_000_000, "{took_ns}");
    // Full since 1.3 ms.
    assert!(outcome.idle_ns > took_ns - 200_000, "{outcome:?}");
}

#[test]
fn late_calls_are_made_up_and_the_schedule_stays() {
    struct Stalling(VirtualClock, std::cell::Cell<bool>);
    impl Clock for Stalling {
        fn monotonic_ns(&self) -> u64 {
            self.0.monotonic_ns()
        }
        fn wall_ns(&self) -> u64 {
            self.0.wall_ns()
        }
        fn sleep_until(&self, monotonic_ns: u64) {
            let stalls = monotonic_ns > START_NS + 5_500_000 && !self.1.replace(true);
            self.0
                .sleep_until(monotonic_ns + if stalls { 3_500_000 } else { 0 });
        }
    }
    let mut lab = lab();
    let sender = lab.sender(config(|c| {
        c.count = 15;
        c.delay = Delay::whole(1_000_000);
    }));
    let clock = Stalling(lab.clock.clone(), false.into());
    let outcome = run_devices(vec![sender], &control(1), &clock).remove(0);
    check(&outcome);
    assert_eq!(outcome.largest_catch_up_frames, 4);
    let times: Vec<u64> = lab
        .arrived()
        .iter()
        .map(|(at_ns, _)| at_ns / 100_000)
        .collect();
    assert_eq!(
        times,
        [
            0, 10, 20, 30, 40, 50, 94, 94, 94, 94, 100, 110, 120, 130, 140
        ]
    );
}

#[test]
fn who_takes_the_first_turn_after_the_start_was_away_before_it() {
    let begun = |late_ms: u64| {
        let mut lab = lab();
        lab.clock.sleep_until(START_NS + late_ms * 1_000_000);
        // A hundred per millisecond.
        let config = config(|c| (c.count, c.delay) = (5_000, Delay::whole(10_000)));
        lab.run(config, vec![]).lateness
    };
    assert_eq!(begun(0).stalls, 0);
    let late = begun(20);
    assert_eq!((late.stalls, late.stalled_ns / 1_000_000), (1, 20));
    assert!(late.late_departures.abs_diff(2_000) <= 1, "{late:?}");
}

#[test]
fn refused_frames_are_made_up_by_later_ones() {
    // 256 fit, then every frame is refused until the end.
    let mut lab = Lab::new(&VirtualClock::ticking(TICK_NS), |o| {
        (o.depth, o.drop_when_full) = (256, true);
    });
    let events = vec![(1_000_000, Event::Stop)];
    let outcome = lab.run(config(|c| c.count = 500), events);
    let arrived = lab.numbers();
    assert_eq!(outcome.walker.progress().sofar, 256);
    assert_eq!(arrived, (1..=256).collect::<Vec<_>>());
    assert!(outcome.walker.progress().errors > 1000);
    assert_eq!(outcome.walker.progress().errors, outcome.refused_frames);
    // Waiting for the port is idle time.
    assert!(outcome.idle_ns > 100_000, "{}", outcome.idle_ns);

    // With a receiver that makes room, the count is eventually reached.
    let mut lab = Lab::new(&VirtualClock::ticking(TICK_NS), |o| {
        (o.depth, o.drop_when_full) = (256, true);
    });
    let sender = lab.sender(config(|c| (c.count, c.burst) = (1001, 4)));
    let mut arrived = Vec::new();
    let control = control(1);
    let mut sender = sender;
    let mut turns = 0;
    while sender.turn(&control) != wb_traffic::DeviceNext::Done {
        turns += 1;
        if turns % 5 == 0 {
            arrived.extend(lab.numbers());
        }
    }
    arrived.extend(lab.numbers());
    let outcome = sender.finish();
    check(&outcome);
    assert!(outcome.refused_frames > 0);
    let progress = outcome.walker.progress();
    assert_eq!(progress.sofar, arrived.len() as u64);
    assert_eq!(progress.sofar, outcome.offered_frames);
    assert!((1001..1005).contains(&progress.sofar), "{}", progress.sofar);
    assert_eq!(outcome.unsent_frames(), 0);
    assert!(arrived.is_sorted());
}

#[test]
fn a_full_port_holds_the_device_up_until_the_stop() {
    let mut lab = Lab::new(&VirtualClock::ticking(TICK_NS), |o| o.depth = 256);
    let outcome = lab.run(config(|c| c.count = 300), vec![(5_000_000, Event::Stop)]);
    assert_eq!(outcome.walker.progress().sofar, 256);
    assert_eq!(
        (outcome.withdrawn_frames, outcome.walker.progress().errors),
        (44, 0)
    );
    let took_ns = outcome.stopped_ns - outcome.started_ns;
    assert!((25_000_000..25_100_000).contains(&took_ns), "{took_ns}");
    assert_eq!(lab.numbers().len(), 256);
}

#[test]
fn the_link_going_down_is_an_end_like_any_other() {
    let mut lab = lab();
    let paced = config(|c| {
        (c.count, c.burst) = (100, 3);
        c.delay = Delay::whole(1_000_000);
    });
    let outcome = lab.run(paced, vec![(9_500_000, Event::LinkDown)]);
    assert!(outcome.link_down && outcome.fault.is_none());
    assert_eq!((outcome.offered_frames, outcome.withdrawn_frames), (30, 3));
    assert_eq!(
        (outcome.intended_frames, outcome.unsent_frames()),
        (Some(102), 72)
    );
    assert_eq!(lab.numbers().len(), 30);
    let (walker, worker) = outcome.into_worker_outcome(4);
    assert_eq!(walker.progress().sofar, 30);
    let sender = worker.sender.unwrap();
    assert_eq!((sender.streams[0].first_flow, worker.link_downs), (4, 1));
    assert_eq!(sender.streams[0].flow_frames, [30]);
}

#[test]
fn a_port_that_vanishes_is_a_fault() {
    let mut lab = lab();
    let outcome = lab.run(config(|c| c.count = 0), vec![(50_000, Event::Gone)]);
    assert!(matches!(outcome.fault, Some(PortError::Gone { .. })));
    assert!(!outcome.link_down && outcome.offered_frames > 64);
    assert_eq!(lab.handle.progress().sofar, outcome.offered_frames);
    assert_eq!(
        lab.handle.counters().read().offered_frames,
        outcome.offered_frames
    );
}

#[test]
fn packets_carry_the_time_they_are_built_at() {
    let mut lab = Lab::new(&VirtualClock::ticking(1000), |_| ());
    lab.run(
        config(|c| {
            c.count = 3;
            c.delay = Delay::whole(10_000_000);
        }),
        vec![],
    );
    let time = |frame: &[u8]| {
        let tag = PktgenTag::read(&frame[42..]).unwrap();
        u64::from(tag.time[0]) * 1_000_000 + u64::from(tag.time[1])
    };
    let start_us = (VirtualClock::EPOCH_NS + START_NS) / 1000;
    let built: Vec<u64> = lab
        .arrived()
        .iter()
        .map(|(_, f)| time(f) - start_us)
        .collect();
    // The second directly after the first, the third after the second had left at 10 ms.
    assert!(built[0] < 10 && built[1] < 20, "{built:?}");
    assert!((10_000..10_020).contains(&built[2]), "{built:?}");

    let mut lab = Lab::new(&VirtualClock::ticking(1000), |_| ());
    lab.run(config(|c| c.flags.put(Flags::NO_TIMESTAMP, true)), vec![]);
    assert!(
        lab.arrived()
            .iter()
            .all(|(_, frame)| frame[50..58] == [0; 8])
    );
}

#[test]
fn progress_is_shown_while_the_device_runs() {
    struct Looking<'a>(&'a VirtualClock, &'a DeviceHandle);
    impl Clock for Looking<'_> {
        fn monotonic_ns(&self) -> u64 {
            self.0.monotonic_ns()
        }
        fn wall_ns(&self) -> u64 {
            self.0.wall_ns()
        }
        fn sleep_until(&self, monotonic_ns: u64) {
            let now_ns = self.0.wall_ns() - VirtualClock::EPOCH_NS;
            if now_ns > START_NS {
                // Everything due by now is published before the sleep, and in the counters.
                let sent = (now_ns - START_NS) / 50_000_000 + 1;
                assert_eq!(self.1.progress().sofar, sent, "{now_ns}");
                assert_eq!(self.1.counters().read().offered_frames, sent);
                assert_eq!(self.1.progress().imix_counts.len(), 1);
                assert!(!self.1.has_ended());
                let idle_ns = self.1.progress().idle_ns;
                assert!(
                    idle_ns + 11_000_000 > now_ns - START_NS,
                    "{idle_ns} at {now_ns}"
                );
            }
            self.0.sleep_until(monotonic_ns);
        }
    }
    let mut lab = lab();
    let handle = Arc::clone(&lab.handle);
    let sender = lab.sender(config(|c| {
        c.count = 5;
        c.imix = vec![Entry {
            size: 80,
            weight: 1,
        }];
        c.delay = Delay::whole(50_000_000);
    }));
    let outcome = run_devices(vec![sender], &control(1), &Looking(&lab.clock, &handle));
    assert_eq!(outcome[0].offered_frames, 5);
}

#[test]
fn a_worker_that_panics_leaves_nobody_waiting() {
    struct Panicking(u64, VirtualClock);
    impl Clock for Panicking {
        fn monotonic_ns(&self) -> u64 {
            let now_ns = self.1.monotonic_ns();
            assert!(now_ns < self.0, "as the test wants it");
            now_ns
        }
        fn wall_ns(&self) -> u64 {
            self.1.wall_ns()
        }
    }
    let mut lab = lab();
    let control = control(1);
    let clock = Panicking(START_NS + 100, VirtualClock::ticking(TICK_NS));
    let sender = lab.sender(config(|c| c.delay = Delay::whole(1_000_000)));
    let run = std::panic::AssertUnwindSafe(|| run_devices(vec![sender], &control, &clock));
    assert!(std::panic::catch_unwind(run).is_err());
    assert_eq!(control.senders_running.load(Ordering::Relaxed), 0);
    assert!(lab.handle.has_ended());
}

/// Completes its frames only when new ones are requested or more are submitted, like kernel rings, and periodically
/// refuses one.
struct Lagging {
    inner: memory::MemoryTx,
    rx: memory::MemoryRx,
    /// Bytes of frames held by the device.
    with_device: Vec<Vec<u8>>,
    refused: Vec<Vec<u8>>,
    lent: Vec<(Vec<u8>, u32, u64)>,
    counters: TxCounters,
    every: u64,
    seen: u64,
    sent: Arc<Mutex<Vec<u32>>>,
}

impl Lagging {
    fn reclaim(&mut self) {
        for frame in self.with_device.drain(..) {
            self.seen += 1;
            if self.seen.is_multiple_of(self.every) {
                self.counters.refused_frames += 1;
                self.refused.push(frame);
            } else {
                self.counters.sent_frames += 1;
                self.counters.sent_octets += frame.len() as u64;
                self.sent.lock().unwrap().push(number(&frame));
            }
        }
    }
}

impl TxQueue for Lagging {
    fn frame_capacity(&self) -> usize {
        self.inner.frame_capacity()
    }

    fn batch_hint(&self) -> usize {
        16
    }

    fn lend(&mut self, n: usize) -> usize {
        self.reclaim();
        let n = n.min(100 - self.with_device.len());
        self.lent = vec![(vec![0; 2000], 0, 0); n];
        n
    }

    fn slot(&mut self, i: usize) -> Slot<'_> {
        let (bytes, len, cookie) = &mut self.lent[i];
        Slot { bytes, len, cookie }
    }

    fn submit(&mut self, n: usize) {
        self.counters.submitted_frames += n as u64;
        for (bytes, len, _) in self.lent.drain(..).take(n) {
            self.with_device.push(bytes[..len as usize].to_vec());
        }
    }

    fn flush(&mut self) -> Result<(), PortError> {
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.with_device.len()
    }

    fn take_refused<F: FnMut(&[u8])>(&mut self, mut each: F) {
        self.refused.drain(..).for_each(|frame| each(&frame));
    }

    fn withdraw<F: FnMut(&[u8])>(&mut self, mut each: F) {
        self.counters.withdrawn_frames += self.with_device.len() as u64;
        self.with_device.drain(..).for_each(|frame| each(&frame));
    }

    fn counters(&self) -> TxCounters {
        self.counters
    }
}

impl QueuePair for Lagging {
    type Tx = Self;
    type Rx = memory::MemoryRx;

    fn split(&mut self) -> (&mut Self, &mut memory::MemoryRx) {
        unimplemented!("one half at a time")
    }

    fn tx(&mut self) -> &mut Self {
        self
    }

    fn rx(&mut self) -> &mut memory::MemoryRx {
        &mut self.rx
    }
}

#[test]
fn frames_that_come_back_late_are_made_up_too() {
    for (count, every) in [(100, 7), (16, 16), (160, 5), (1, 2), (33, 1000)] {
        let clock = VirtualClock::ticking(TICK_NS);
        let mut lab = Lab::new(&clock, |_| ());
        let (inner, rx) = lab.near.take().unwrap().into_halves();
        let sent = Arc::new(Mutex::new(Vec::new()));
        let pair = Lagging {
            inner,
            rx,
            with_device: Vec::new(),
            refused: Vec::new(),
            lent: Vec::new(),
            counters: TxCounters::default(),
            every,
            seen: 0,
            sent: Arc::clone(&sent),
        };
        let walker = walker(config(|c| c.count = count));
        let sender = device_sender(pair, walker, Arc::clone(&lab.handle), None, clock.clone());
        let outcome = run_devices(vec![sender], &control(1), &clock).remove(0);
        check(&outcome);
        let numbers = sent.lock().unwrap();
        assert_eq!(outcome.walker.progress().sofar, count);
        assert_eq!(numbers.len() as u64, count);
        assert_eq!(outcome.refused_frames, outcome.walker.progress().errors);
        let took_ns = outcome.stopped_ns - outcome.started_ns;
        assert_eq!(outcome.last_departure_ns, outcome.stopped_ns, "{took_ns}");
    }
}

/// A port of any depth that may refuse or delay frames, a receiver that reads now and then, settings of all kinds, a
/// stop at some time.
fn any_config() -> impl Strategy<Value = DeviceConfig> {
    (
        1..400u64,
        1..100i32,
        0..5i32,
        prop_oneof![Just(0u64), 1..20_000u64],
        42..1500u32,
        prop_oneof![Just(0u64), 1..1_000_000u64],
        any::<bool>(),
    )
        .prop_map(|(count, burst, clones, delay, size, duration_ns, shared)| {
            config(|c| {
                (c.count, c.burst, c.clone_skb) = (count, burst, clones);
                (c.min_size, c.max_size) = (size, size.max(500));
                c.delay = Delay::fraction(delay * 3, 3 + delay % 2);
                c.duration_ns = duration_ns;
                c.flags.put(Flags::SHARED, shared);
            })
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn sofar_is_what_arrived(
        configs in prop::collection::vec(any_config(), 1..4),
        depth in 1..300u32,
        batch in 1..80u32,
        drops in any::<bool>(),
        every in 1..40usize,
        stop_after in 1..30_000usize,
    ) {
        let clock = VirtualClock::ticking(TICK_NS);
        let mut labs: Vec<Lab> = configs
            .iter()
            .map(|_| Lab::new(&clock, |o| {
                (o.depth, o.batch, o.drop_when_full) = (depth, batch, drops);
            }))
            .collect();
        let senders: Vec<_> =
            labs.iter_mut().zip(&configs).map(|(lab, c)| lab.sender(c.clone())).collect();
        let control = control(senders.len());
        let mut arrived = vec![0; senders.len()];
        let mut turns = 0;
        for (i, mut sender) in senders.into_iter().enumerate() {
            let mut stopped = false;
            while sender.turn(&control) != wb_traffic::DeviceNext::Done {
                turns += 1;
                if turns % every == 0 {
                    arrived[i] += labs[i].arrived().len() as u64;
                }
                if turns > stop_after && !stopped {
                    stopped = true;
                    labs[i].handle.stop();
                }
                prop_assert!(turns < 4_000_000);
            }
            arrived[i] += labs[i].arrived().len() as u64;
            let outcome = sender.finish();
            check(&outcome);
            let progress = outcome.walker.progress();
            prop_assert_eq!(progress.sofar, arrived[i]);
            prop_assert_eq!(progress.errors, outcome.refused_frames);
            let config = &configs[i];
            let whole = config.count.next_multiple_of(config.burst as u64);
            if !stopped && config.duration_ns == 0 {
                prop_assert!(progress.sofar >= config.count);
                prop_assert!(progress.sofar <= whole);
                prop_assert_eq!(outcome.unsent_frames(), 0);
            }
            prop_assert!(progress.sofar + outcome.unsent_frames() <= whole);
        }
    }
}
