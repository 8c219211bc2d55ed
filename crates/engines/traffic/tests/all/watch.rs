//! Watchers on memory ports: counted packets, sums, and the end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use proptest::prelude::*;
use wb_model::device::{Defaults, Delay, DeviceConfig, Interface, JitterRule, Mode, TimeForm};
use wb_pktgen_device::{Start, Walker};
use wb_port::{
    ChecksumState, PortError, QueuePair, RxCounters, RxFrame, RxQueue, StampSource, TxQueue, memory,
};
use wb_traffic::{
    Clock, DeviceHandle, TrafficControl, VirtualClock, WatchHandle, WatchOutcome, WatchSettings,
    device_sender, run_devices, run_watcher,
};

/// A queue pair with a receiving half that delivers a list of frames in batches and then ends.
struct Film {
    tx: memory::MemoryTx,
    rx: FilmRx,
}

struct FilmRx {
    frames: std::vec::IntoIter<(u64, Vec<u8>)>,
    source: StampSource,
    batch: usize,
}

impl Film {
    fn new(frames: Vec<(u64, Vec<u8>)>) -> Self {
        let clock = VirtualClock::ticking(0);
        let mut port = memory::sink(&memory::LinkOptions::new("film", clock.stamps())).unwrap();
        Self {
            tx: port.queues.remove(0).into_halves().0,
            rx: FilmRx {
                frames: frames.into_iter(),
                source: StampSource::Virtual,
                batch: 3,
            },
        }
    }
}

impl RxQueue for FilmRx {
    fn receive<F: FnMut(&RxFrame<'_>)>(
        &mut self,
        max: usize,
        mut on_frame: F,
    ) -> Result<usize, PortError> {
        let n = max.min(self.batch).min(self.frames.len());
        if n == 0 {
            let port = "film".to_owned();
            return Err(PortError::EndOfFile { port });
        }
        for (stamp_ns, bytes) in self.frames.by_ref().take(n) {
            on_frame(&RxFrame {
                bytes: &bytes,
                original_len: bytes.len() as u32,
                stamp_ns,
                stamp_source: self.source,
                vlan: None,
                checksum: ChecksumState::Unknown,
            });
        }
        Ok(n)
    }

    fn wait(&mut self, _: Duration) -> Result<bool, PortError> {
        Ok(true)
    }

    fn counters(&mut self) -> RxCounters {
        RxCounters::default()
    }
}

impl QueuePair for Film {
    type Tx = memory::MemoryTx;
    type Rx = FilmRx;

    fn split(&mut self) -> (&mut memory::MemoryTx, &mut FilmRx) {
        (&mut self.tx, &mut self.rx)
    }
}

fn everything() -> WatchSettings {
    WatchSettings {
        mode: Mode::Time,
        rule: JitterRule::Latency,
        takes_latency: true,
        sequences: true,
        clears: 0,
    }
}

fn walker(form: TimeForm, change: impl FnOnce(&mut DeviceConfig)) -> Walker {
    let mut config = DeviceConfig::new("dev", &Defaults::default());
    (config.min_size, config.max_size) = (60, 60);
    change(&mut config);
    let start = Start {
        interface: Interface {
            mtu: 1500,
            ..Interface::default()
        },
        time_form: form,
        ..Start::default()
    };
    Walker::new(config, &start).unwrap()
}

const WALL_NS: u64 = VirtualClock::EPOCH_NS;

/// Packets built at these monotonic times, each with its delay until arrival.
fn film(form: TimeForm, times: &[(u64, u64)], change: impl FnOnce(&mut DeviceConfig)) -> Film {
    let mut walker = walker(form, |config| {
        config.count = times.len() as u64;
        change(config);
    });
    let frames = times
        .iter()
        .map(|(mono_ns, after_ns)| {
            let time = wb_pktgen_device::DeviceTime {
                wall_ns: WALL_NS + mono_ns,
                mono_ns: *mono_ns,
            };
            let (frame, _) = walker.next(time).unwrap();
            (WALL_NS + mono_ns + after_ns, frame)
        })
        .collect();
    Film::new(frames)
}

fn watch(mut film: Film, settings: WatchSettings) -> WatchOutcome {
    let handle = WatchHandle::new(settings);
    let clock = VirtualClock::ticking(1);
    clock.advance(10_000_000_000);
    let outcome = run_watcher(&mut film, &handle, &clock);
    assert!(handle.has_ended() && outcome.received_all && outcome.fault.is_none());
    assert_eq!(handle.results(), (outcome.row, outcome.extra));
    assert_eq!(handle.foreign_frames(), outcome.foreign_frames);
    let shown = handle.counters().read();
    assert_eq!(shown.foreign_frames, outcome.foreign_frames);
    outcome
}

const FOUR: [(u64, u64); 4] = [
    (5_000_000_000, 10_000),
    (5_000_001_000, 10_000),
    (5_000_002_000, 10_500),
    (5_000_003_000, 14_500),
];

#[test]
fn times_of_both_forms_give_the_same_row() {
    // The kernel format uses microseconds, and so do these times.
    for form in [TimeForm::Kernel, TimeForm::Osta] {
        let outcome = watch(film(form, &FOUR, |_| ()), everything());
        let row = outcome.row;
        assert_eq!((row.packets, row.bytes, row.work_us()), (4, 240, 7));
        let figures =
            |s: &wb_pktgen_device::CpuSample| (s.average(), s.variance(), s.max, s.min, s.samples);
        assert_eq!(
            figures(&row.inter_arrival),
            (2500, 3_166_666, 5000, 1000, 3)
        );
        assert_eq!(figures(&row.latency), (11250, 3_562_500, 14500, 10000, 4));
        assert_eq!(row.jitter.samples, 4);
        let extra = outcome.extra;
        assert!(extra.sequence_is_plain);
        assert_eq!(extra.latency_ns.max, Some(14_500));
        assert_eq!(extra.latency_ns.samples, 4);
        assert_eq!(extra.inter_arrival_ns.samples, 3);
        assert_eq!(extra.counters.missing_frames, 0);
        let first_ns = row.first_ns.unwrap();
        // On the monotonic clock; the error of the clock offset is some ticks.
        assert!(first_ns.abs_diff(5_000_010_000) < 10, "{first_ns}");
    }
}

#[test]
fn modes_leave_out_what_they_do_not_measure() {
    let run = |mode, sequences| {
        let settings = WatchSettings {
            mode,
            sequences,
            ..everything()
        };
        watch(film(TimeForm::Kernel, &FOUR, |_| ()), settings)
    };
    let counter = run(Mode::Counter, true);
    assert_eq!((counter.row.packets, counter.row.first_ns), (4, None));
    assert_eq!(counter.measurement.counters.received_frames, 4);
    assert_eq!(counter.measurement.counters.untagged_frames, 4);
    assert_eq!(counter.measurement.counters.received_octets, 4 * 64);
    assert_eq!(counter.extra.inter_arrival_ns.samples, 0);
    let basic = run(Mode::Basic, false);
    assert_eq!(
        (basic.row.work_us(), basic.row.inter_arrival.samples),
        (7, 0)
    );
    assert_eq!(basic.extra.inter_arrival_ns.samples, 0);
    let basic = run(Mode::Basic, true);
    assert_eq!(basic.extra.latency_ns.samples, 4);

    let settings = WatchSettings {
        takes_latency: false,
        rule: JitterRule::InterArrival,
        ..everything()
    };
    let row = watch(film(TimeForm::Kernel, &FOUR, |_| ()), settings).row;
    assert_eq!((row.latency.samples, row.jitter.samples), (0, 2));
}

#[test]
fn a_mode_that_only_counts_reads_no_clock() {
    struct Unread;
    impl Clock for Unread {
        fn monotonic_ns(&self) -> u64 {
            unreachable!("nobody asked")
        }
        fn wall_ns(&self) -> u64 {
            unreachable!("nobody asked")
        }
    }
    let handle = WatchHandle::new(WatchSettings {
        mode: Mode::Counter,
        ..everything()
    });
    let mut film = film(TimeForm::Kernel, &FOUR, |_| ());
    assert_eq!(run_watcher(&mut film, &handle, &Unread).row.packets, 4);
}

#[test]
fn clones_make_the_account_of_numbers_worthless() {
    let times: Vec<(u64, u64)> = (0..7).map(|i| (1_000_000 * i, 5000)).collect();
    let clones = film(TimeForm::Kernel, &times, |c| c.clone_skb = 3);
    let outcome = watch(clones, everything());
    assert_eq!(outcome.row.packets, 7);
    assert_eq!(outcome.row.latency.samples, 3);
    assert!(!outcome.extra.sequence_is_plain);

    // Lost, duplicated and reordered packets do not change it.
    let mut lossy = film(TimeForm::Kernel, &times, |_| ());
    let mut frames: Vec<_> = lossy.rx.frames.collect();
    frames.remove(1);
    frames.insert(2, frames[1].clone());
    frames.swap(4, 5);
    lossy.rx.frames = frames.into_iter();
    let extra = watch(lossy, everything()).extra;
    assert!(extra.sequence_is_plain);
    let counters = extra.counters;
    assert_eq!(
        (
            counters.missing_frames,
            counters.duplicate_frames,
            counters.reordered_frames
        ),
        (1, 1, 1)
    );
}

#[test]
fn recorded_stamps_are_taken_as_they_are() {
    for (form, latencies) in [(TimeForm::Kernel, 4), (TimeForm::Osta, 0)] {
        let mut film = film(form, &FOUR, |_| ());
        film.rx.source = StampSource::Recorded;
        let outcome = watch(film, everything());
        assert_eq!(outcome.row.first_ns, Some(WALL_NS + 5_000_010_000));
        assert_eq!(outcome.row.inter_arrival.max, 5000);
        // Clock values from another day are not usable.
        assert_eq!(outcome.row.latency.samples, latencies);
        assert_eq!(outcome.extra.latency_ns.samples, latencies);
        assert_eq!(outcome.stamp_sources, [(StampSource::Recorded, 4)]);
    }
}

#[test]
fn other_frames_are_foreign() {
    let mut mixed = film(TimeForm::Kernel, &FOUR, |_| ());
    let mut frames: Vec<_> = mixed.rx.frames.collect();
    frames.insert(1, (WALL_NS, vec![0; 60]));
    frames.insert(3, (WALL_NS, vec![0xff; 1514]));
    mixed.rx.frames = frames.into_iter();
    let outcome = watch(mixed, everything());
    assert_eq!((outcome.foreign_frames, outcome.row.packets), (2, 4));
    assert_eq!(outcome.measurement.counters.foreign_frames, 2);
    let worker = outcome.into_worker_outcome();
    let received = worker.receiver.unwrap().measurement;
    assert_eq!(received.counters.received_frames, 4);
    assert_eq!(received.flows[0].received, 4);
}

/// A clock that calls a function at every reading, with the number of the reading.
struct Asked<F: Fn(u64)>(VirtualClock, std::cell::Cell<u64>, F);

impl<F: Fn(u64)> Clock for Asked<F> {
    fn monotonic_ns(&self) -> u64 {
        self.1.set(self.1.get() + 1);
        (self.2)(self.1.get());
        self.0.monotonic_ns()
    }

    fn wall_ns(&self) -> u64 {
        self.0.wall_ns()
    }
}

#[test]
fn settings_change_and_counters_are_cleared_between_batches() {
    let times: Vec<(u64, u64)> = (0..30).map(|i| (1_000_000 * i, 5000)).collect();
    let handle = WatchHandle::new(everything());
    let seen = std::cell::Cell::new(0);
    let clock = Asked(VirtualClock::ticking(1), 0.into(), |_| {
        let packets = handle.results().0.packets;
        seen.set(seen.get().max(packets));
        if packets >= 12 && handle.settings().clears == 0 {
            handle.set(WatchSettings {
                clears: 1,
                takes_latency: false,
                ..everything()
            });
        }
    });
    let outcome = run_watcher(&mut film(TimeForm::Kernel, &times, |_| ()), &handle, &clock);
    // One more batch may arrive before it is seen.
    assert!((12..=15).contains(&seen.get()), "{}", seen.get());
    assert!(
        (15..=18).contains(&outcome.row.packets),
        "{}",
        outcome.row.packets
    );
    assert_eq!(outcome.row.latency.samples, 0);
    assert_eq!(
        outcome.measurement.counters.received_frames,
        outcome.row.packets
    );
    assert_eq!(handle.counters().read().received_frames, 30);
}

#[test]
fn packets_that_were_sent_before_the_run_are_foreign() {
    for form in [TimeForm::Kernel, TimeForm::Osta] {
        let times: Vec<(u64, u64)> = (0..30).map(|i| (1_000_000 * (i + 1), 5000)).collect();
        let handle = WatchHandle::new(everything());
        handle.ignore_before(WALL_NS + 10_500_000);
        let clock = VirtualClock::ticking(1);
        let outcome = run_watcher(&mut film(form, &times, |_| ()), &handle, &clock);
        assert_eq!((outcome.row.packets, outcome.foreign_frames), (20, 10));
    }
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

/// Sends packets at once.
fn put(tx: &mut memory::MemoryTx, walker: &mut Walker, packets: usize) {
    assert_eq!(tx.lend(packets), packets);
    for i in 0..packets {
        let (frame, _) = walker
            .next(wb_pktgen_device::DeviceTime::default())
            .unwrap();
        let slot = tx.slot(i);
        slot.bytes[..frame.len()].copy_from_slice(&frame);
        *slot.len = frame.len() as u32;
    }
    tx.submit(packets);
    tx.flush().unwrap();
}

#[test]
fn what_arrived_before_the_stop_counts_however_late_it_is_shown() {
    let clock = VirtualClock::ticking(40);
    let (mut near, mut far) =
        memory::link(&memory::LinkOptions::new("held", clock.stamps())).unwrap();
    let mut walker = walker(TimeForm::Kernel, |c| c.count = 0);
    put(near.queues[0].tx(), &mut walker, 300);
    let handle = WatchHandle::new(everything());
    handle.stop();
    let (tx, inner) = far.queues.remove(0).into_halves();
    let mut pair = Collecting {
        tx,
        rx: CollectingRx {
            inner,
            clock: clock.clone(),
            until_wall_ns: clock.wall_ns() + 24_000_000,
        },
    };
    let late = std::cell::RefCell::new((near, walker));
    let watched = Asked(clock, 0.into(), |asked| {
        // After the watcher has seen the end.
        if asked == 3 {
            let (near, walker) = &mut *late.borrow_mut();
            put(near.queues[0].tx(), walker, 200);
        }
    });
    let outcome = run_watcher(&mut pair, &handle, &watched);
    assert_eq!(outcome.row.packets, 300);
    assert!(!outcome.received_all && outcome.fault.is_none());
}

#[test]
fn a_port_that_vanishes_is_a_fault() {
    let clock = VirtualClock::ticking(40);
    let (_, mut far) = memory::link(&memory::LinkOptions::new("gone", clock.stamps())).unwrap();
    far.control.remove();
    let handle = WatchHandle::new(everything());
    let outcome = run_watcher(&mut far.queues[0], &handle, &clock);
    assert!(matches!(outcome.fault, Some(PortError::Gone { .. })));
    assert!(handle.has_ended());
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
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap().as_nanos() as u64
}

#[test]
fn a_watcher_in_its_thread_sees_all_that_devices_send() {
    let options = memory::LinkOptions::new("threads", wb_port::clock::Clock::Real(wall_ns));
    let (mut near, mut far) = memory::link(&options).unwrap();
    let epoch = std::time::Instant::now();
    let handle = Arc::new(WatchHandle::new(everything()));
    let watcher = std::thread::spawn({
        let handle = Arc::clone(&handle);
        move || run_watcher(&mut far.queues[0], &handle, &Real(epoch))
    });
    let device = Arc::new(DeviceHandle::new());
    let walker = walker(TimeForm::Osta, |c| {
        (c.count, c.burst) = (20_001, 3);
        c.delay = Delay::whole(100);
    });
    let sender = device_sender(
        near.queues.remove(0),
        walker,
        Arc::clone(&device),
        None,
        Real(epoch),
    );
    let control = TrafficControl::new();
    control.senders_running.store(1, Ordering::Relaxed);
    control.start_at_mono_ns.store(0, Ordering::Relaxed);
    let sent = run_devices(vec![sender], &control, &Real(epoch)).remove(0);
    handle.stop();
    let seen = watcher.join().unwrap();
    assert_eq!((sent.offered_frames, seen.row.packets), (20_001, 20_001));
    assert_eq!(seen.row.bytes, 20_001 * 60);
    assert_eq!(seen.row.latency.samples, 6667);
    assert_eq!(device.progress().sofar, 20_001);
    assert!(!seen.extra.sequence_is_plain);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_account_of_numbers_holds(
        fates in prop::collection::vec(0..6u8, 1..300),
        batch in 1..50usize,
    ) {
        let times: Vec<(u64, u64)> = fates.iter().map(|_| (1000, 5000)).collect();
        let mut lossy = film(TimeForm::Osta, &times, |_| ());
        let mut frames = Vec::new();
        for (fate, frame) in fates.iter().zip(lossy.rx.frames) {
            match fate {
                0 => {}
                1 => frames.extend([frame.clone(), frame]),
                _ => frames.push(frame),
            }
        }
        let lost_or_doubled = (
            fates.iter().filter(|f| **f == 0).count() as u64,
            fates.iter().filter(|f| **f == 1).count() as u64,
        );
        let trailing = fates.iter().rev().take_while(|f| **f == 0).count() as u64;
        let came = frames.len() as u64;
        lossy.rx.frames = frames.into_iter();
        lossy.rx.batch = batch;
        let outcome = watch(lossy, everything());
        let counters = outcome.extra.counters;
        prop_assert_eq!(outcome.row.packets, came);
        prop_assert_eq!(counters.received_frames, came);
        prop_assert_eq!(counters.missing_frames, lost_or_doubled.0 - trailing);
        prop_assert_eq!(counters.duplicate_frames, lost_or_doubled.1);
        // A duplicate before a lost packet, or at the end, looks like a clone.
        let looks_cloned = fates.windows(2).any(|w| w == [1, 0])
            || fates.iter().rev().find(|f| **f != 0) == Some(&1);
        prop_assert_eq!(outcome.extra.sequence_is_plain, !looks_cloned);
    }
}
