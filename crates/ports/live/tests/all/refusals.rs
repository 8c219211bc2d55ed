//! Frames that a device refuses are counted per flow and reported.

use wb_live::{Account, MOST_FRAME, Sender as LiveSender};
use wb_model::Stream;
use wb_port::PortError;
use wb_port::offload::{
    Awaited, ReceiveOffload, SendCounters, SendOffload, SendOrder, StreamProgram,
};
use wb_traffic::{Sender, SenderSpec, StreamSpec};

use crate::lab::{Lab, ip, monotonic_ns, order, turn};

fn table(flows: u32, size: &str, worker: u32, workers: u32) -> StreamProgram {
    tables(&[(flows, size)], worker, workers).remove(0)
}

/// Streams with the given numbers of flows; their flows are consecutive.
fn tables(streams: &[(u32, &str)], worker: u32, workers: u32) -> Vec<StreamProgram> {
    let mut end = 0;
    let streams = streams.iter().map(|(flows, size)| {
        end += flows;
        StreamSpec {
            stream: Stream {
                size: Some(size.parse().unwrap()),
                ..Stream::default()
            },
            first_flow: end - flows,
            flows: *flows,
            ..StreamSpec::default()
        }
    });
    let spec = SenderSpec {
        streams: streams.collect(),
        worker,
        workers,
        count: Some(1),
        ..SenderSpec::default()
    };
    let sender = Sender::new(&spec, MOST_FRAME).unwrap();
    sender.offload_tables(&spec).unwrap().streams
}

fn awaited(flows: u32) -> Awaited {
    Awaited {
        first_flow: 0,
        flows,
        ramp_flow: u32::MAX,
        ..Awaited::default()
    }
}

fn ends(lab: &Lab, flows: u32, size: &str) -> (LiveSender, wb_live::Receiver) {
    let account = lab.at_b(|b| Account::open(b, awaited(flows))).unwrap();
    let mut receiver = account.receivers(1).remove(0);
    receiver.begin(1);
    let sender = lab.at_a(|a| LiveSender::load(a, &[table(flows, size, 0, 1)]));
    (sender.unwrap(), receiver)
}

#[test]
fn what_overflows_the_ring_of_the_other_end_is_refused_flow_by_flow() {
    overflow("refused", &[(37, "64-70")]);
}

#[test]
fn of_several_streams_too() {
    overflow("streams", &[(37, "64-70"), (2, "64"), (12, "200")]);
}

fn overflow(label: &str, streams: &[(u32, &str)]) {
    const FRAMES: u64 = 200_000;
    let lab = lab_or_skip!(label);
    let workers = 2;
    let flows = streams.iter().map(|(flows, _)| flows).sum();
    let account = lab.at_b(|b| Account::open(b, awaited(flows))).unwrap();
    let mut receiver = account.receivers(1).remove(0);
    receiver.begin(1);
    // Two senders share a ring of 256 frames, which one of them empties when its batch ends.
    let of = |worker| tables(streams, worker, workers);
    let mut senders: Vec<LiveSender> = (0..workers)
        .map(|worker| lab.at_a(|a| LiveSender::load(a, &of(worker))).unwrap())
        .collect();
    let mut all = SendCounters::default();
    let mut rounds = 0;
    while all.refused_frames < 1_000 && rounds < 50 {
        std::thread::scope(|scope| {
            for sender in &mut senders {
                let order = SendOrder {
                    batch: 251,
                    overdue: false,
                    ..order(FRAMES)
                };
                scope.spawn(move || turn(sender, &order, streams.len()).unwrap());
            }
        });
        rounds += 1;
        all = SendCounters::default();
        let each = |sender| (0..streams.len()).map(move |i| LiveSender::counters(sender, i));
        for c in senders.iter().flat_map(each) {
            all.submitted_frames += c.submitted_frames;
            all.submitted_octets += c.submitted_octets;
            all.refused_frames += c.refused_frames;
            all.refused_octets += c.refused_octets;
        }
    }
    assert!(all.refused_frames >= 1_000, "nothing overflows: {all:?}");
    assert_eq!(all.submitted_frames, rounds * FRAMES * u64::from(workers));
    let received = receiver.measurement();
    let mut first = 0;
    for (stream, (flows, _)) in streams.iter().enumerate() {
        let mut refused_frames = 0;
        for flow in 0..*flows {
            let worker = flow % workers;
            let sender = &senders[worker as usize];
            let (next, round) = sender.position(stream);
            let sent = round + u64::from(flow < next);
            let refused = sender.refused_by_flow(stream)[flow as usize];
            let came = &received.flows[(first + flow) as usize];
            assert_eq!(came.flow, first + flow);
            assert_eq!(
                sent,
                came.received + refused,
                "flow {flow}, {refused} refused"
            );
            refused_frames += refused;
        }
        let counted = senders.iter().map(|s| s.counters(stream).refused_frames);
        assert_eq!(refused_frames, counted.sum::<u64>(), "stream {stream}");
        assert!(refused_frames > 0, "nothing of stream {stream} overflows");
        first += flows;
    }
    let octets = all.submitted_octets - all.refused_octets;
    assert_eq!(octets, received.counters.received_octets);
    let odd = received.counters.duplicate_frames + received.counters.reordered_frames;
    assert_eq!(odd, 0);
}

#[test]
fn a_link_that_is_down_is_told_and_comes_back() {
    let lab = lab_or_skip!("down");
    let (mut sender, receiver) = ends(&lab, 1, "64");
    for (node, end) in [(&lab.b, "b0"), (&lab.a, "a0")] {
        turn(&mut sender, &order(100), 1).unwrap();
        ip(&format!("-n {node} link set {end} down"));
        let before = sender.counters(0);
        let down = turn(&mut sender, &order(10_000), 1);
        assert!(
            matches!(down, Err(PortError::LinkDown { .. })),
            "{end}: {down:?}"
        );
        let now = sender.counters(0);
        let tried = now.submitted_frames - before.submitted_frames;
        assert!(
            tried <= 128,
            "{end}: {tried} frames into a link that is down"
        );
        assert_eq!(now.refused_frames - before.refused_frames, tried, "{end}");
        ip(&format!("-n {node} link set {end} up"));
        turn(&mut sender, &order(100), 1).unwrap();
    }
    assert_eq!(receiver.counters().received_frames, 400);
}

#[test]
fn what_a_device_cannot_is_said_before_or_when_it_shows() {
    let lab = lab_or_skip!("cannot");
    let said = |error: PortError| error.to_string();
    // The peer has no program, so the device has no NDO_XMIT.
    let Err(error) = lab.at_a(|a| LiveSender::load(a, &[table(1, "64", 0, 1)])) else {
        panic!("a veth without anything at its other end takes no frames");
    };
    assert!(said(error).contains("GRO"));
    // The peer loses its program during the run.
    let (mut sender, receiver) = ends(&lab, 1, "64");
    turn(&mut sender, &order(10), 1).unwrap();
    drop(receiver);
    let error = said(turn(&mut sender, &order(10), 1).unwrap_err());
    assert!(error.contains("GRO"), "{error}");
    assert_eq!(sender.counters(0).refused_frames, 1);
    // Frames that are longer than the MTU allows.
    let (mut sender, receiver) = ends(&lab, 1, "1500");
    turn(&mut sender, &order(10), 1).unwrap();
    ip(&format!("-n {} link set a0 mtu 1000", lab.a));
    let error = said(turn(&mut sender, &order(10), 1).unwrap_err());
    assert!(error.contains("MTU"), "{error}");
    drop(receiver);
    // The device is removed.
    let (mut sender, _receiver) = ends(&lab, 1, "64");
    ip(&format!("-n {} link del a0", lab.a));
    let gone = turn(&mut sender, &order(10), 1);
    assert!(matches!(gone, Err(PortError::Gone { .. })), "{gone:?}");
}

#[test]
fn another_thread_ends_a_turn() {
    let lab = lab_or_skip!("halt");
    let (mut sender, _receiver) = ends(&lab, 1, "64");
    let halt = sender.halt();
    let endless = SendOrder {
        length_ns: 60_000_000_000,
        ..order(u64::MAX)
    };
    let began = monotonic_ns();
    std::thread::scope(|scope| {
        let turn = scope.spawn(|| turn(&mut sender, &endless, 1));
        wb_testing::disturb(std::time::Duration::from_millis(50));
        halt.halt();
        turn.join().unwrap().unwrap();
    });
    // The turn did not end at its time limit.
    assert!(monotonic_ns() - began < 30_000_000_000);
    assert!(sender.taken().submitted_frames > 0);
}
