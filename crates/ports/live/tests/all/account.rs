//! Compares the account in the kernel with the analyser in user space: the same frames, the same figures.

use std::time::Duration;

use wb_live::Account;
use wb_measure::{Analyser, Measurement, WindowSize};
use wb_packet::PacketQueue;
use wb_port::offload::{Awaited, ReceiveOffload};
use wb_port::{QueuePair, TxQueue};
use wb_testing::eventually;
use wb_wire::{MacAddr, SplitMix64, Tag};

use crate::frames::{in_user_space, spec, stream};
use crate::lab::{Lab, interface, ip, within};

/// Properties of a frame that an account uses.
#[derive(Clone, Copy)]
struct Arrival {
    flow: u32,
    sequence: u32,
    sent_ns: u64,
}

fn bytes(arrival: Arrival) -> Vec<u8> {
    let mut stack = wb_wire::Stack::udp4([198, 18, 1, 2], [198, 19, 1, 2], 49184, 7);
    stack.ethernet.dst = MacAddr([2, 0, 0, 0, 0, 9]);
    let at = stack.min_len();
    let mut frame = stack.build(60);
    Tag {
        flow: arrival.flow,
        sequence: arrival.sequence,
        time_ns: arrival.sent_ns,
    }
    .write(frame[at..at + Tag::LEN].first_chunk_mut().unwrap());
    frame
}

fn send(socket: &mut PacketQueue, arrivals: &[Arrival]) {
    let frames: Vec<Vec<u8>> = arrivals.iter().map(|arrival| bytes(*arrival)).collect();
    send_frames(socket, &frames);
}

fn send_frames(socket: &mut PacketQueue, frames: &[Vec<u8>]) {
    let tx = socket.tx();
    for batch in frames.chunks(32) {
        while tx.lend(batch.len()) < batch.len() {
            tx.flush().unwrap();
        }
        for (i, frame) in batch.iter().enumerate() {
            let slot = tx.slot(i);
            slot.bytes[..frame.len()].copy_from_slice(frame);
            *slot.len = frame.len() as u32;
            *slot.cookie = 0;
        }
        tx.submit(batch.len());
        while tx.in_flight() > 0 {
            tx.flush().unwrap();
        }
    }
}

/// Frames stamped earlier belong to an earlier run.
const SINCE: u64 = 2;

/// Counts `arrivals` in the kernel, after `ignored` frames that arrive before the start.
fn by_the_kernel(lab: &Lab, awaited: Awaited, arrivals: &[Arrival]) -> (Measurement, u64) {
    let account = lab.at_b(|b| Account::open(b, awaited)).unwrap();
    let mut receiver = account.receivers(1).remove(0);
    let mut socket = lab.socket(true);
    let mut send = |arrivals: &[Arrival]| send(&mut socket, arrivals);
    // Frames before the start are not counted.
    send(&arrivals[..arrivals.len().min(10)]);
    wb_testing::disturb(Duration::from_millis(20));
    receiver.begin(1 << 40);
    receiver.since(SINCE);
    send(arrivals);
    let seen = |r: &dyn ReceiveOffload| {
        let c = r.counters();
        c.received_frames + c.foreign_frames + r.ramp_frames()
    };
    eventually("all are seen", || seen(&receiver) >= arrivals.len() as u64);
    assert_eq!(seen(&receiver), arrivals.len() as u64);
    (receiver.measurement(), receiver.ramp_frames())
}

fn first_flow(awaited: Awaited, arrivals: &[Arrival]) -> u32 {
    let seen = arrivals.iter().find(|a| a.flow < awaited.ramp_flow - 1);
    match seen.filter(|_| awaited.around_first) {
        Some(seen) => wb_traffic::range_around(seen.flow, awaited.flows.div_ceil(2)).0,
        None => awaited.first_flow,
    }
}

/// Counts `arrivals` with the analyser. It has no arrival times, so only results that do not depend on them can be
/// compared.
fn by_user_space(awaited: Awaited, window: WindowSize, arrivals: &[Arrival]) -> (Measurement, u64) {
    let mut analyser = Analyser::planned_with_window(awaited.flows as usize, window)
        .with_outage_threshold(awaited.outage_threshold_ns);
    if awaited.sender_unknown {
        analyser = analyser.with_unknown_sender();
    }
    let first_flow = first_flow(awaited, arrivals);
    let mut ramp = 0;
    // Later than all timestamps except those from the future.
    let rx_ns = 1u64 << 62;
    for arrival in arrivals {
        let flow = arrival.flow.wrapping_sub(first_flow);
        if arrival.flow == awaited.ramp_flow {
            ramp += 1;
        } else if flow < awaited.flows && arrival.sent_ns < SINCE {
            analyser.on_stale(64);
        } else if flow < awaited.flows {
            analyser.on_frame(flow, arrival.sequence, arrival.sent_ns, rx_ns, 64);
        } else {
            analyser.on_unplanned(64);
        }
    }
    (analyser.into_measurement(), ramp)
}

fn compare(awaited: Awaited, (ours, ramp): &(Measurement, u64), arrivals: &[Arrival]) {
    let (theirs, their_ramp) = by_user_space(awaited, ours.window.unwrap(), arrivals);
    assert_eq!(ours.counters, theirs.counters);
    assert_eq!(*ramp, their_ramp);
    assert_eq!(ours.largest_gap, theirs.largest_gap);
    assert_eq!(ours.last_skipped, theirs.last_skipped);
    for (what, ours, theirs) in [
        ("latency", &ours.latency, &theirs.latency),
        ("jitter", &ours.jitter(), &theirs.jitter()),
        ("inter-arrival", &ours.inter_arrival, &theirs.inter_arrival),
    ] {
        assert_eq!(ours.count(), theirs.count(), "{what}");
    }
    assert_eq!(ours.ipdv.count(), theirs.ipdv.count());
    // Without a threshold, outages do not depend on arrival times.
    let counts = |m: &Measurement, first| -> Vec<(u32, u64)> {
        let flows = m.outages.flows.iter();
        flows.map(|f| (f.flow + first, f.outages)).collect()
    };
    let first = first_flow(awaited, arrivals);
    assert_eq!(counts(ours, 0), counts(&theirs, first), "outages");
    assert_eq!(ours.flows.len(), theirs.flows.len());
    for (ours, theirs) in ours.flows.iter().zip(&theirs.flows) {
        assert_eq!(ours.flow, theirs.flow + first_flow(awaited, arrivals));
        assert_eq!(ours.head, theirs.head, "flow {}", ours.flow);
        let figures = |f: &wb_measure::FlowStats| {
            let counts = (f.received, f.octets, f.duplicates, f.reordered, f.highest);
            (counts, f.latency.samples, f.smoothed_jitter_ns().is_some())
        };
        assert_eq!(figures(ours), figures(theirs), "flow {}", ours.flow);
    }
}

/// Increasing sequence numbers, with leaps, steps back, and repetitions of every size up to `most`.
fn walk(random: &mut SplitMix64, flows: u32, first: u32, most: u64, frames: usize) -> Vec<Arrival> {
    let mut next = vec![0u64; flows as usize];
    let mut below = |n: u64| random.next() % n;
    (0..frames)
        .map(|_| {
            let flow = below(flows.into()) as u32;
            let power = 1 + below(most.ilog2().into());
            let size = 1 + below(1 << power);
            let at = &mut next[flow as usize];
            let sequence = match below(10) {
                0 => *at + size,
                1 | 2 => at.saturating_sub(size),
                _ => *at,
            };
            *at = (*at).max(sequence + 1);
            let sent_ns = match below(20) {
                0 => 0,
                1 => u64::MAX >> 1,
                2 => u64::MAX,
                3 => SINCE - 1,
                _ => SINCE,
            };
            Arrival {
                flow: match below(50) {
                    0 => first + flows,
                    1 => u32::MAX,
                    _ => first + flow,
                },
                sequence: sequence as u32,
                sent_ns,
            }
        })
        .collect()
}

#[test]
fn what_a_window_held_before_a_leap_is_forgotten() {
    let lab = lab_or_skip!("leaps");
    let awaited = Awaited {
        first_flow: 3,
        flows: 60_000,
        ramp_flow: u32::MAX,
        ..Awaited::default()
    };
    let window = WindowSize::for_flows(60_000).get();
    // All bits are set once. Then gaps of every length follow, and some of the skipped numbers arrive late.
    let mut sequences: Vec<u32> = (0..window + 10).collect();
    let mut next = window + 10;
    for gap in [
        1,
        2,
        5,
        31,
        63,
        64,
        65,
        127,
        128,
        300,
        4_000,
        window - 1,
        window,
        window + 1,
    ] {
        let skipped = next..next + gap;
        sequences.push(skipped.end);
        sequences.extend(skipped.clone().step_by(7.min(gap as usize)));
        sequences.push(skipped.end - 1);
        next = skipped.end + 1;
        // Repeat the oldest remembered numbers.
        sequences.extend((next.saturating_sub(window)..next).take(70));
    }
    let arrival = |sequence| Arrival {
        flow: 3 + 59_999,
        sequence,
        sent_ns: SINCE,
    };
    let arrivals: Vec<Arrival> = sequences.into_iter().map(arrival).collect();
    let measured = by_the_kernel(&lab, awaited, &arrivals);
    assert!(measured.0.counters.reordered_frames > 1_000);
    compare(awaited, &measured, &arrivals);
}

#[test]
fn the_kernel_counts_as_the_analyser_does() {
    let lab = lab_or_skip!("account");
    // Few flows with the largest window, and many flows with small windows and leaps beyond them.
    for (flows, most, frames) in [
        (1, 1 << 21, 4_000),
        (5, 1 << 9, 4_000),
        (60_000, 1 << 15, 1_000),
    ] {
        for (seed, sender_unknown, around_first) in [
            (1, false, false),
            (2, false, false),
            (3, true, false),
            (4, true, true),
            (5, true, true),
        ] {
            // The range around the first flow has the same number of flows below and above it.
            let flows = if around_first { flows | 1 } else { flows };
            let awaited = Awaited {
                first_flow: 1_000,
                flows,
                ramp_flow: u32::MAX,
                sender_unknown,
                around_first,
                outage_threshold_ns: 0,
            };
            let mut random = SplitMix64(seed);
            let used = flows.min(5);
            let mut arrivals = walk(&mut random, used, 1_000, most, frames);
            if used < flows {
                // After the last flow, only the next number is foreign.
                let first_foreign = 1_000 + used;
                for arrival in arrivals.iter_mut().filter(|a| a.flow == first_foreign) {
                    arrival.flow = 1_000 + flows;
                }
            }
            if around_first {
                // Frames with unused flow numbers come first.
                for (n, flow) in [u32::MAX, u32::MAX - 1].into_iter().enumerate() {
                    arrivals[n].flow = flow;
                }
            }
            eprintln!("{flows} flows, seed {seed}");
            let measured = by_the_kernel(&lab, awaited, &arrivals);
            compare(awaited, &measured, &arrivals);
        }
    }
}

#[test]
fn foreign_frames_with_a_tag_are_told_apart() {
    let lab = lab_or_skip!("strays");
    let awaited = Awaited {
        first_flow: 10,
        flows: 2,
        ramp_flow: u32::MAX,
        ..Awaited::default()
    };
    let tagged = |flow, sequence| {
        bytes(Arrival {
            flow,
            sequence,
            sent_ns: 9,
        })
    };
    let other = |flow, at: usize, to: &[u8]| {
        let mut frame = tagged(flow, 0);
        frame[at..at + to.len()].copy_from_slice(to);
        frame
    };
    let changed = |at: usize, to: &[u8]| other(9, at, to);
    let tag_at = 42;
    let pktgen = [0xbe, 0x9b, 0xe9, 0x55];
    let frames = [
        tagged(10, 0),
        tagged(11, 0),
        // A flow of this run, but stamped before the run.
        other(10, tag_at + 10, &8u64.to_be_bytes()),
        // Before the first flow and after the last, and to a group address, where hosts send many frames on their own.
        tagged(9, 0),
        tagged(12, 0),
        changed(0, &[0x33, 0x33, 0, 0, 0, 1]),
        // A pktgen tag, also in the shortest frame, and to a group address.
        changed(tag_at, &pktgen),
        changed(tag_at, &pktgen)[..tag_at + 16].to_vec(),
        [&[1, 0, 0x5e, 0, 0, 1], &changed(tag_at, &pktgen)[6..]].concat(),
        // No tag.
        changed(tag_at, &[0; 18]),
        changed(tag_at, &pktgen)[..tag_at + 15].to_vec(),
    ];
    let account = lab.at_b(|b| Account::open(b, awaited)).unwrap();
    let mut receiver = account.receivers(1).remove(0);
    receiver.begin(1 << 40);
    receiver.since(9);
    send_frames(&mut lab.socket(true), &frames);
    let seen = || receiver.counters().received_frames + receiver.counters().foreign_frames;
    eventually("all are seen", || seen() >= frames.len() as u64);
    let c = receiver.counters();
    assert_eq!((c.received_frames, c.foreign_frames), (2, 9));
    assert_eq!((c.unplanned_frames, c.pktgen_frames), (3, 3));
    assert_eq!(c.stale_frames, 1);
}

#[test]
fn frames_with_every_header_of_a_plan_are_received() {
    let lab = lab_or_skip!("headers");
    let cases = [
        "size=128 mpls=1,2,3,4,5",
        "size=128 mpls=1,2,3,4,5,6,7,8 vlan=1,2",
        "size=200 src=2001:2::1 dst=2001:2:0:8000::1 ext=hop-by-hop,routing,fragment,destination",
        "size=200 mpls=1,2,3,4,5,6,7,8 vlan=1,2 proto=tcp src=2001:2::1 dst=2001:2:0:8000::1 \
         ext=hop-by-hop,destination,routing,fragment",
    ];
    for case in cases {
        let frames = in_user_space(&spec(&stream(case), 0, 1));
        let awaited = Awaited {
            first_flow: 7,
            flows: 1,
            ramp_flow: u32::MAX,
            ..Awaited::default()
        };
        let account = lab.at_b(|b| Account::open(b, awaited)).unwrap();
        let mut receiver = account.receivers(1).remove(0);
        receiver.begin(0);
        send_frames(&mut lab.socket(true), &frames);
        let seen = || receiver.counters().received_frames + receiver.counters().foreign_frames;
        eventually("all are seen", || seen() >= frames.len() as u64);
        let c = receiver.counters();
        assert_eq!(
            (c.received_frames, c.foreign_frames),
            (frames.len() as u64, 0),
            "{case}"
        );
    }
}

/// Makes two CPUs send frames `0..each` to one queue, each CPU with one of these flows.
fn by_two_cpus(lab: &Lab, flows: [u32; 2], each: u32) -> Measurement {
    // A program in the generic receive path, to which two CPUs bring frames.
    let b = &lab.b;
    ip(&format!(
        "-n {b} link add m0 link b0 address 02:00:00:00:00:09 type macvlan mode bridge"
    ));
    ip(&format!("-n {b} link set m0 up"));
    let awaited = Awaited {
        first_flow: 0,
        flows: 2,
        ramp_flow: u32::MAX,
        ..Awaited::default()
    };
    let account = within(b, || Account::open(&interface("m0"), awaited)).unwrap();
    assert_eq!(account.hook(), "generic");
    let mut receiver = account.receivers(1).remove(0);
    receiver.begin(1 << 40);
    std::thread::scope(|scope| {
        for (cpu, flow) in flows.into_iter().enumerate() {
            let mut socket = lab.socket(true);
            scope.spawn(move || {
                let mut cpus = rustix::thread::CpuSet::new();
                cpus.set(cpu);
                // A machine with one CPU cannot show a race.
                let _ = rustix::thread::sched_setaffinity(None, &cpus);
                let arrival = |sequence| Arrival {
                    flow,
                    sequence,
                    sent_ns: 1,
                };
                let arrivals: Vec<Arrival> = (0..each).map(arrival).collect();
                send(&mut socket, &arrivals);
            });
        }
    });
    let all = 2 * u64::from(each);
    eventually("all are received", || {
        receiver.counters().received_frames >= all
    });
    assert_eq!(receiver.dropped_frames(), 0);
    let seen = receiver.measurement();
    let of_flows = seen.flows.iter().map(|f| f.received).sum::<u64>();
    let counters = seen.counters;
    assert_eq!((counters.received_frames, of_flows), (all, all));
    assert_eq!(counters.received_octets, all * 64);
    seen
}

#[test]
fn several_cpus_that_serve_one_queue_lose_no_count() {
    const EACH: u32 = 100_000;
    let lab = lab_or_skip!("cpus");
    let seen = by_two_cpus(&lab, [0, 1], EACH);
    assert_eq!(seen.latency.count(), 2 * u64::from(EACH));
    assert_eq!(seen.inter_arrival.count(), 2 * u64::from(EACH) - 1);
    assert_eq!(seen.counters.duplicate_frames, 0);
}

#[test]
fn several_cpus_that_bring_one_flow_spoil_no_account_of_it() {
    const EACH: u32 = 100_000;
    let lab = lab_or_skip!("flow");
    // Each number arrives twice, and the later arrival is the duplicate.
    let seen = by_two_cpus(&lab, [1, 1], EACH);
    let each = u64::from(EACH);
    let counters = seen.counters;
    assert_eq!(
        (counters.duplicate_frames, counters.missing_frames),
        (each, 0)
    );
    let flow = &seen.flows[1];
    assert_eq!((flow.duplicates, flow.octets), (each, 2 * each * 64));
    assert_eq!(flow.highest, Some(each - 1));
    assert_eq!((flow.latency.samples, seen.latency.count()), (each, each));
    assert_eq!(flow.reordered, counters.reordered_frames);
    // Jitter is recorded for pairs of originals, so for all originals except the first.
    assert_eq!(seen.jitter().count(), each - 1);
}
