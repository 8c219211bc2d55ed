//! Tests of the public interface of the memory driver.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use wb_port::clock::{Clock, VirtualClock};
use wb_port::conformance::{self, Options};
use wb_port::fault::{Capacity, Impairment, Loss};
use wb_port::memory::{self, LinkOptions, MemoryPort, MemoryQueue};
use wb_port::{PortError, QueuePair, RxQueue, StampSource, TxQueue};

fn real() -> Clock {
    Clock::Real(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(0, |since| since.as_nanos() as u64)
    })
}

fn options() -> LinkOptions {
    LinkOptions::new("test", VirtualClock::new(1_000).into())
}

fn lanes(options: &LinkOptions) -> (MemoryQueue, MemoryQueue) {
    let (a, b) = memory::link(options).unwrap();
    (one(a), one(b))
}

fn one(port: MemoryPort) -> MemoryQueue {
    port.queues.into_iter().next().unwrap()
}

/// Sends frames of 60 bytes with these first bytes.
fn send(tx: &mut impl TxQueue, numbers: &[u8]) {
    assert_eq!(tx.lend(numbers.len()), numbers.len());
    for (i, number) in numbers.iter().enumerate() {
        let slot = tx.slot(i);
        slot.bytes[..60].fill(0);
        slot.bytes[0] = *number;
        *slot.len = 60;
    }
    tx.submit(numbers.len());
}

/// Receives all waiting frames and returns the first byte and timestamp of each.
fn receive(rx: &mut impl RxQueue) -> Vec<(u8, u64)> {
    let mut seen = Vec::new();
    rx.receive(usize::MAX, |frame| {
        seen.push((frame.bytes[0], frame.stamp_ns))
    })
    .unwrap();
    seen
}

#[test]
fn conforms_in_real_time() {
    let (mut a, mut b) = lanes(&LinkOptions::new("test", real()));
    conformance::check(&mut a, &mut b, &Options::default());
}

#[test]
fn conforms_in_virtual_time_with_the_smallest_rings() {
    let small = LinkOptions {
        depth: 16,
        ..options()
    };
    let (mut a, mut b) = lanes(&small);
    let tight = Options {
        window: 16,
        min_len: Options::SHORTEST,
        max_len: 9000,
        ..Options::default()
    };
    conformance::check(&mut a, &mut b, &tight);
}

#[test]
fn conforms_with_a_depth_below_the_window() {
    // Frames stay in flight until the receiver makes room.
    let (mut a, mut b) = lanes(&LinkOptions {
        depth: 4,
        ..options()
    });
    let options = Options {
        window: 8,
        frames: 500,
        ..Options::default()
    };
    conformance::check(&mut a, &mut b, &options);
}

#[test]
fn conforms_through_a_device_that_delays() {
    let late = Impairment {
        delay_ns: 50_000,
        jitter_ns: 20_000,
        ..Impairment::default()
    };
    let (mut a, mut b) = lanes(&LinkOptions::new("test", real()).impaired(&late));
    let few = Options {
        frames: 500,
        ..Options::default()
    };
    conformance::check(&mut a, &mut b, &few);
}

#[test]
fn a_loop_receives_what_it_sends() {
    let mut lane = one(memory::looped(&options()).unwrap());
    let (tx, rx) = lane.split();
    conformance::check_one_way(
        tx,
        rx,
        &Options {
            frames: 500,
            ..Options::default()
        },
        0,
    );
}

#[test]
fn frames_appear_at_flush_stamped_with_its_time() {
    let clock = VirtualClock::new(1_000);
    let (mut a, mut b) = lanes(&LinkOptions::new("test", clock.clone().into()));
    send(a.tx(), &[1]);
    assert_eq!(receive(b.rx()), []);
    clock.advance(5);
    a.tx().flush().unwrap();
    clock.advance(5);
    assert!(b.rx().wait(Duration::from_secs(60)).unwrap());
    assert_eq!(receive(b.rx()), [(1, 1_005)]);
    assert!(!b.rx().wait(Duration::from_secs(60)).unwrap());
    assert_eq!(b.rx().counters().received_frames, 1);
}

#[test]
fn a_full_ring_keeps_frames_in_flight() {
    let (mut a, mut b) = lanes(&LinkOptions {
        depth: 2,
        ..options()
    });
    send(a.tx(), &[1, 2, 3, 4]);
    a.tx().flush().unwrap();
    assert_eq!((a.tx().in_flight(), a.tx().lend(1)), (2, 0));
    assert_eq!(receive(b.rx()).len(), 2);
    a.tx().flush().unwrap();
    assert_eq!(
        receive(b.rx()).iter().map(|f| f.0).collect::<Vec<_>>(),
        [3, 4]
    );
    let counters = a.tx().counters();
    assert_eq!(
        (
            counters.sent_frames,
            counters.full_events,
            counters.refused_frames
        ),
        (4, 1, 0)
    );
}

#[test]
fn a_full_ring_refuses_frames_if_told_to() {
    let (mut a, mut b) = lanes(&LinkOptions {
        depth: 2,
        drop_when_full: true,
        ..options()
    });
    send(a.tx(), &[1, 2, 3, 4]);
    a.tx().flush().unwrap();
    let mut refused = Vec::new();
    a.tx().take_refused(|frame| refused.push(frame[0]));
    assert_eq!(refused, [3, 4]);
    let counters = a.tx().counters();
    assert_eq!(
        (
            counters.sent_frames,
            counters.refused_frames,
            a.tx().in_flight()
        ),
        (2, 2, 0)
    );
    assert_eq!(receive(b.rx()).len(), 2);
    send(a.tx(), &[5]);
    a.tx().flush().unwrap();
    assert_eq!(receive(b.rx())[0].0, 5);
}

#[test]
fn lanes_do_not_mix() {
    let (mut a, mut b) = memory::link(&LinkOptions {
        queues: 3,
        ..options()
    })
    .unwrap();
    assert_eq!((a.facts.queues, a.queues.len(), b.queues.len()), (3, 3, 3));
    for (number, lane) in a.queues.iter_mut().enumerate() {
        send(lane.tx(), &[number as u8]);
        lane.tx().flush().unwrap();
    }
    for (number, lane) in b.queues.iter_mut().enumerate() {
        assert_eq!(receive(lane.rx()), [(number as u8, 1_000)]);
    }
}

#[test]
fn the_link_goes_down_and_away() {
    let (a, b) = memory::link(&options()).unwrap();
    let (control, mut a, mut b) = (b.control.clone(), one(a), one(b));
    control.set_up(false);
    send(a.tx(), &[1, 2]);
    assert!(matches!(a.tx().flush(), Err(PortError::LinkDown { .. })));
    assert_eq!((a.tx().in_flight(), receive(b.rx()).len()), (2, 0));
    control.set_up(true);
    a.tx().flush().unwrap();
    assert_eq!(receive(b.rx()).len(), 2);

    control.remove();
    send(a.tx(), &[3]);
    let error = a.tx().flush().unwrap_err();
    assert_eq!(error.to_string(), "memory:test: the interface is gone");
    assert!(matches!(
        b.rx().receive(1, |_| ()),
        Err(PortError::Gone { .. })
    ));
    let mut back = 0;
    a.tx().withdraw(|_| back += 1);
    assert_eq!(
        (back, a.tx().in_flight(), a.tx().counters().withdrawn_frames),
        (1, 0, 1)
    );
}

#[test]
fn a_sink_takes_frames_for_ever() {
    let mut lane = one(memory::sink(&LinkOptions {
        depth: 4,
        ..options()
    })
    .unwrap());
    for _ in 0..100 {
        send(lane.tx(), &[1, 2, 3]);
        lane.tx().flush().unwrap();
    }
    assert_eq!(lane.tx().counters().sent_frames, 300);
}

#[test]
fn an_impaired_link_does_what_it_was_told() {
    let impairment = Impairment {
        loss: Loss::Every(4),
        delay_ns: 100,
        capacity: Some(Capacity::frames_per_second(1e9 / 10.0, 100)),
        ..Impairment::default()
    };
    let clock = VirtualClock::new(1_000);
    let made = LinkOptions {
        forward: impairment,
        ..LinkOptions::new("test", clock.clone().into())
    };
    let (a, b) = memory::link(&made).unwrap();
    assert_eq!(a.facts.stamp_source, StampSource::Virtual);
    let control = a.control.clone();
    let (mut a, mut b) = (one(a), one(b));
    send(a.tx(), &[1, 2, 3, 4, 5]);
    a.tx().flush().unwrap();
    assert_eq!(receive(b.rx()), []);
    clock.set(1_110);
    assert!(b.rx().wait(Duration::ZERO).unwrap());
    assert_eq!(receive(b.rx()), [(1, 1_100), (2, 1_110)]);
    clock.set(2_000);
    assert_eq!(receive(b.rx()), [(3, 1_120), (5, 1_130)]);
    let counters = control.forward_counters();
    assert_eq!((counters.arrived, counters.lost, counters.left), (5, 1, 4));
    assert_eq!((counters.delay_min_ns, counters.delay_max_ns), (100, 130));

    // The other direction is not impaired.
    send(b.tx(), &[9]);
    b.tx().flush().unwrap();
    assert_eq!(receive(a.rx()), [(9, 2_000)]);
    assert_eq!(control.backward_counters().arrived, 0);
}

#[test]
fn an_impaired_link_duplicates_and_reorders_whole_frames() {
    let impairment = Impairment {
        duplicate: 0.1,
        reorder: 0.1,
        ..Impairment::default()
    };
    let clock = VirtualClock::new(1);
    let made = LinkOptions::new("test", clock.clone().into()).impaired(&impairment);
    let (a, b) = memory::link(&made).unwrap();
    let control = a.control.clone();
    let (mut a, mut b) = (one(a), one(b));
    let mut seen = Vec::new();
    for round in 0..20u8 {
        let numbers: Vec<u8> = (0..10).map(|i| round * 10 + i).collect();
        send(a.tx(), &numbers);
        a.tx().flush().unwrap();
        clock.advance(1_000);
        seen.extend(receive(b.rx()).iter().map(|f| f.0));
    }
    clock.advance(1_000_000_000);
    seen.extend(receive(b.rx()).iter().map(|f| f.0));

    let counters = control.forward_counters();
    assert!(counters.duplicated > 5 && counters.reordered > 5);
    assert_eq!(seen.len() as u64, 200 + counters.duplicated);
    let mut originals = seen.clone();
    originals.dedup();
    assert_eq!(
        originals.len(),
        200,
        "copies directly after their originals"
    );
    let mut highest = 0;
    let reordered = originals.iter().filter(|n| {
        highest = highest.max(**n);
        **n < highest
    });
    assert_eq!(reordered.count() as u64, counters.reordered);
}

#[test]
fn two_threads_carry_a_long_stream() {
    const FRAMES: u64 = 200_000;
    let (a, b) = lanes(&LinkOptions {
        depth: 256,
        ..LinkOptions::new("test", real())
    });
    let sender = std::thread::spawn(move || {
        let mut a = a;
        let mut next = 0u64;
        while next < FRAMES || a.tx().in_flight() > 0 {
            let lent = a.tx().lend((FRAMES - next).min(64) as usize);
            for i in 0..lent {
                let slot = a.tx().slot(i);
                slot.bytes[..8].copy_from_slice(&next.to_be_bytes());
                *slot.len = 60;
                next += 1;
            }
            a.tx().submit(lent);
            a.tx().flush().unwrap();
        }
        a.tx().counters()
    });
    let mut b = b;
    let mut next = 0u64;
    while next < FRAMES {
        let n = b.rx().receive(64, |frame| {
            assert_eq!(frame.bytes[..8], next.to_be_bytes());
            next += 1;
        });
        if n.unwrap() == 0 {
            b.rx().wait(Duration::from_millis(1)).unwrap();
        }
    }
    assert_eq!(sender.join().unwrap().sent_frames, FRAMES);
}

#[test]
fn bad_options_are_told() {
    let none = LinkOptions {
        queues: 0,
        ..options()
    };
    assert_eq!(
        memory::link(&none).unwrap_err().to_string(),
        "memory:test: queues must be between 1 and 1024, got 0"
    );
    let wild = options().impaired(&Impairment {
        duplicate: 2.0,
        ..Impairment::default()
    });
    assert_eq!(
        memory::link(&wild).unwrap_err().to_string(),
        "memory:test: impairment: duplicate must be between 0 and 1, got 2"
    );
}
