//! Compares each frame of the program with the frame of the same stream in user space.

use wb_live::{MOST_FRAME, Sender as LiveSender};
use wb_model::units::Rational;
use wb_model::{Extension, Stream};
use wb_port::memory::{LinkOptions, link};
use wb_port::offload::{Pace, SendOffload, SendOrder, StreamOrder, StreamProgram};
use wb_port::{QueuePair, RxQueue, TxQueue};
use wb_traffic::{
    OffloadedWorker, RAMP_FLOW, RampUp, Sender, SenderSpec, StreamSpec, VirtualClock,
};
use wb_wire::{Tag, TagFormat, find_tag};

use crate::lab::{monotonic_ns, order, run_and_take, send_and_take, send_in_batches, take};

const FRAMES: u64 = 300;

pub(crate) fn stream(change: &str) -> Stream {
    let mut stream = Stream::default();
    for word in change.split_whitespace() {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match key {
            "size" => stream.size = Some(value.parse().unwrap()),
            "proto" => stream.proto = serde(value),
            "flows" => stream.flows = Some(value.parse().unwrap()),
            "src" => stream.src = Some(value.parse().unwrap()),
            "dst" => stream.dst = Some(value.parse().unwrap()),
            "sport" => stream.sport = Some(value.parse().unwrap()),
            "dport" => stream.dport = Some(value.parse().unwrap()),
            "vlan" => stream.vlan = value.split(',').map(|v| v.parse().unwrap()).collect(),
            "mpls" => stream.mpls = value.split(',').map(|v| v.parse().unwrap()).collect(),
            "ext" => stream.ext = value.split(',').map(extension).collect(),
            "payload" => stream.payload = Some(value.parse().unwrap()),
            "tag" => stream.tag = wb_model::TagKind::None,
            "vary" => stream.vary.push(value.parse().unwrap()),
            _ => panic!("{word}"),
        }
    }
    stream
}

fn extension(word: &str) -> Extension {
    let mut all = Extension::ALL.into_iter();
    all.find(|e| e.name() == word)
        .unwrap_or_else(|| panic!("{word}"))
}

fn serde(word: &str) -> wb_model::Proto {
    match word {
        "tcp" => wb_model::Proto::Tcp,
        "icmp" => wb_model::Proto::Icmp,
        "arp" => wb_model::Proto::Arp,
        "raw" => wb_model::Proto::Raw,
        _ => panic!("{word}"),
    }
}

pub(crate) fn spec(stream: &Stream, worker: u32, workers: u32) -> SenderSpec {
    SenderSpec {
        streams: vec![StreamSpec {
            flows: stream.flow_count().max(workers),
            stream: stream.clone(),
            first_flow: 7,
            ..StreamSpec::default()
        }],
        worker,
        workers,
        seed: 42,
        count: Some(FRAMES * u64::from(workers)),
        ..SenderSpec::default()
    }
}

/// Several streams, each with its rate in thirds of a frame per second.
fn specs(changes: &[(&str, u64)]) -> SenderSpec {
    let mut all = spec(&Stream::default(), 0, 1);
    all.streams.clear();
    let mut first_flow = 7;
    for (change, rate) in changes {
        let mut own = spec(&stream(change), 0, 1).streams.remove(0);
        own.first_flow = first_flow;
        first_flow += own.flows;
        own.pps = Some(Rational::new((*rate).into(), 3).unwrap());
        all.streams.push(own);
    }
    all
}

/// Frames that user space makes of the same streams.
pub(crate) fn in_user_space(spec: &SenderSpec) -> Vec<Vec<u8>> {
    let clock = VirtualClock::ticking(40);
    let mut options = LinkOptions::new("live", clock.stamps());
    options.mtu = 3400;
    let (mut near, mut far) = link(&options).unwrap();
    let tx = near.queues[0].tx();
    let mut sender = Sender::new(spec, tx.frame_capacity()).unwrap();
    sender.start(0);
    let mut frames = Vec::new();
    while !sender.step(tx, &clock).unwrap().done {
        let take = |frame: &wb_port::RxFrame<'_>| frames.push(frame.bytes.to_vec());
        far.queues[0].rx().receive(4096, take).unwrap();
    }
    frames
}

/// Frame without its timestamp and the layer-4 checksum, and the sum of that checksum and all bytes it covers, which is
/// the same for all timestamps.
fn without_stamp(frame: &[u8], checksum_at: Option<usize>) -> (Vec<u8>, u64) {
    let mut bytes = frame.to_vec();
    let Some((at, TagFormat::Native)) = find_tag(frame) else {
        return (bytes, 0);
    };
    let Some(checksum_at) = checksum_at.map(|before| at - before) else {
        bytes[at + 10..at + Tag::LEN].fill(0);
        return (bytes, 0);
    };
    let mut sum = 0u64;
    for pair in frame[checksum_at % 2..].chunks(2) {
        sum += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
    }
    bytes[at + 10..at + Tag::LEN].fill(0);
    bytes[checksum_at..checksum_at + 2].fill(0);
    (bytes, sum % 0xffff)
}

#[test]
fn the_same_plan_sends_the_same_frames() {
    let lab = lab_or_skip!("frames");
    let _passes_on = lab.accept();
    // Distance in bytes from the layer-4 checksum to the tag: UDP 2, TCP 4, ICMP 6.
    let cases = [
        ("size=64", 2),
        (
            "size=64 flows=10 sport=1000-1002 src=198.18.1.0/24 dst=198.19.1.1-198.19.1.3",
            2,
        ),
        ("size=imix payload=abcdef", 2),
        ("size=64-90 payload=01", 2),
        ("size=1518:1,64:3,100:2 flows=7 sport=5-11", 2),
        (
            "proto=tcp size=100 flows=5 sport=9-13 vary=tcp-seq=inc:4294967290-4294967295 vary=tcp-flags=list:2,16,24",
            4,
        ),
        ("proto=icmp size=64 vary=sport=inc:1-9", 6),
        (
            "size=90 src=2001:2::/64 dst=2001:2:0:8000::1 flows=50 vary=flow-label=random:0-1048575 vary=tos=inc:0-255",
            2,
        ),
        (
            "proto=tcp size=120 src=2001:2::1 dst=2001:2:0:8000::1 vary=dst=inc:2001:2:0:8000::-2001:2:0:8000::ffff vary=src=random:2001:2::-2001:2::ffff",
            4,
        ),
        ("proto=icmp size=90 src=2001:2::1 dst=2001:2:0:8000::1", 6),
        (
            "size=100 vlan=10,20 vary=vlan=inc:1-4094 vary=vlan2=list:5,7,9",
            2,
        ),
        ("size=100 mpls=16,17 vary=mpls=random:16-1048575", 2),
        (
            "size=100 vary=src=inc:198.18.0.1-198.18.255.255,step=3 vary=dst=random:198.19.0.0/16 vary=sport=dec:100-200 vary=dport=list:1,2,3,5,8 vary=id=random:0-65535 vary=ttl=inc:2-255 vary=src-mac=inc:02:00:00:00:ff:f0-02:00:00:01:00:10 vary=dst-mac=random:02:00:00:00:00:00-02:00:00:00:00:ff",
            2,
        ),
        (
            "size=100 vary=src=inc:198.18.0.0-198.18.255.255,mask=0xff00",
            2,
        ),
        (
            "size=200 payload=0102 vary=u8@70=inc:0-255 vary=u16@90=random:0-65535 vary=u32@81=inc:1-4000000000,step=7",
            2,
        ),
        ("size=64 tag=none flows=9 sport=20-28", 0),
        ("size=1000 tag=none vary=dport=inc:1-2", 0),
    ];
    for (change, before) in cases {
        let parsed = std::panic::catch_unwind(|| stream(change));
        let stream = parsed.unwrap_or_else(|_| panic!("cannot read {change}"));
        for (worker, workers) in [(0, 1), (1, 3)] {
            let spec = spec(&stream, worker, workers);
            let expected = in_user_space(&spec);
            let compiled = Sender::new(&spec, MOST_FRAME).unwrap();
            let table = compiled.offload_tables(&spec).unwrap().streams;
            let mut socket = lab.socket(false);
            let mut sender = lab.at_a(|a| LiveSender::load(a, &table)).unwrap();
            let frames = send_and_take(&mut sender, 1, FRAMES, &mut socket);
            assert_eq!(frames.len(), expected.len(), "{change}, worker {worker}");
            let at = (before > 0).then_some(before);
            for (i, (ours, theirs)) in frames.iter().zip(&expected).enumerate() {
                let same = without_stamp(ours, at) == without_stamp(theirs, at);
                assert!(
                    same,
                    "{change}, worker {worker}, frame {i}:\n{ours:02x?}\n{theirs:02x?}"
                );
            }
            let (flow, round) = wb_port::offload::SendOffload::position(&sender, 0);
            let flows = u64::from(spec.streams[0].flows.max(stream.flow_count()));
            let ours = (flows - u64::from(worker)).div_ceil(u64::from(workers));
            let passed = round * ours + u64::from((flow - worker) / workers);
            assert_eq!(passed, FRAMES, "{change}");
        }
    }
}

#[test]
fn only_frames_that_are_handed_over_together_share_a_stamp() {
    let lab = lab_or_skip!("stamps");
    let _passes_on = lab.accept();
    let spec = spec(&stream("size=64"), 0, 1);
    let compiled = Sender::new(&spec, MOST_FRAME).unwrap();
    let table = compiled.offload_tables(&spec).unwrap().streams;
    for (batch, most) in [(64, 4), (16, 4), (4, 4), (2, 2), (1, 1)] {
        let mut socket = lab.socket(false);
        let mut sender = lab.at_a(|a| LiveSender::load(a, &table)).unwrap();
        let began = monotonic_ns();
        let frames = send_in_batches(&mut sender, 1, FRAMES, batch, &mut socket);
        let ended = monotonic_ns();
        assert_eq!(frames.len() as u64, FRAMES);
        let stamp = |frame: &Vec<u8>| {
            let at = find_tag(frame).unwrap().0 + 10;
            // The clock of these turns is 1 ns ahead.
            u64::from_be_bytes(frame[at..at + 8].try_into().unwrap()) - 1
        };
        let stamps: Vec<u64> = frames.iter().map(stamp).collect();
        assert!(stamps.is_sorted());
        assert!(began <= stamps[0] && stamps[stamps.len() - 1] <= ended);
        let alike = stamps.chunk_by(|a, b| a == b).map(<[u64]>::len).max();
        assert_eq!(alike, Some(most), "batches of {batch}");
    }
}

#[test]
fn a_frame_is_laid_down_before_it_is_due_and_leaves_when_it_is() {
    const GAP_NS: u64 = 100_000;
    let lab = lab_or_skip!("due");
    let _passes_on = lab.accept();
    let mut spec = spec(&stream("size=64-90 flows=9 vary=sport=inc:1-50"), 0, 1);
    spec.streams[0].pps = Some(Rational::new(10_000u32.into(), 1).unwrap());
    let expected = in_user_space(&spec);
    let compiled = Sender::new(&spec, MOST_FRAME).unwrap();
    let table = compiled.offload_tables(&spec).unwrap().streams;
    let mut socket = lab.socket(false);
    let mut sender = lab.at_a(|a| LiveSender::load(a, &table)).unwrap();
    let (mut frames, mut due_ns) = (Vec::new(), Vec::new());
    let mut idle_ns = 0;
    for _ in 0..100 {
        let sent = sender.counters(0).submitted_frames;
        let first_ns = monotonic_ns() + GAP_NS;
        let paced = StreamOrder {
            pace: Some(Pace {
                due_ns: first_ns,
                rest: 0,
                whole_ns: GAP_NS,
                part: 0,
                parts: 1,
                carry_ns: 1,
            }),
            // Few at a time, because the buffer of the socket is small.
            frames: (FRAMES - sent).min(64),
            until_ns: u64::MAX,
            allowance_ns: u64::MAX,
        };
        let order = SendOrder {
            batch: 1,
            ..order(paced.frames)
        };
        if sent < FRAMES {
            sender.turn(&order, &[paced]).unwrap();
            idle_ns += sender.taken().idle_ns;
            let now = sender.counters(0).submitted_frames;
            due_ns.extend((0..now - sent).map(|i| first_ns + i * GAP_NS));
        }
        take(&mut socket, &mut frames);
        if frames.len() as u64 == FRAMES {
            break;
        }
    }
    assert_eq!(frames.len() as u64, FRAMES);
    // A busy machine may delay all frames of one turn, but not those of all turns.
    assert!(idle_ns > 0);
    for (due_ns, (ours, theirs)) in due_ns.into_iter().zip(frames.iter().zip(&expected)) {
        assert_eq!(without_stamp(ours, Some(2)), without_stamp(theirs, Some(2)));
        let at = find_tag(ours).unwrap().0 + 10;
        let left_ns = u64::from_be_bytes(ours[at..at + 8].try_into().unwrap()) - 1;
        // Multiplications may be faster than assumed.
        assert!(left_ns + 64 > due_ns, "{left_ns}, due {due_ns}");
    }
}

/// Frames of a stream grouped by flow; frames without a tag form a separate group.
fn of_stream<'a>(frames: &'a [Vec<u8>], stream: &StreamSpec) -> Vec<&'a Vec<u8>> {
    let own = stream.first_flow..stream.first_flow + stream.flows;
    let is = |frame: &[u8]| match find_tag(frame) {
        Some((at, _)) => {
            let flow = frame[at + 2..at + 6].try_into().unwrap();
            own.contains(&u32::from_be_bytes(flow))
                && stream.stream.tag == wb_model::TagKind::Wirebench
        }
        None => stream.stream.tag == wb_model::TagKind::None,
    };
    frames.iter().filter(|frame| is(frame)).collect()
}

#[test]
fn several_streams_send_the_same_frames_each() {
    let lab = lab_or_skip!("several");
    let _passes_on = lab.accept();
    let cases: [&[(&str, u64)]; 4] = [
        &[
            ("size=64", 1000),
            ("size=64 dport=7 flows=3 sport=1-3", 1700),
        ],
        // Headers of different lengths, and frames shorter and longer than the longest header.
        &[
            ("size=64-200", 900),
            ("size=imix vlan=10,20 vary=ttl=inc:2-255", 2100),
            (
                "size=90 src=2001:2::1 dst=2001:2:0:8000::1 vary=sport=random:1-9999",
                500,
            ),
        ],
        &[
            ("size=imix payload=abab", 800),
            ("size=64 tag=none payload=ab", 3000),
            ("size=1000:1,120:1 payload=ab vary=u16@100=inc:0-65535", 70),
        ],
        &[("size=64", 100); wb_live::MOST_STREAMS],
    ];
    for (number, case) in cases.iter().enumerate() {
        let spec = specs(case);
        let expected = in_user_space(&spec);
        let compiled = Sender::new(&spec, MOST_FRAME).unwrap();
        let tables = compiled.offload_tables(&spec).unwrap();
        let mut socket = lab.socket(false);
        let sender = lab.at_a(|a| LiveSender::load(a, &tables.streams)).unwrap();
        let worker = OffloadedWorker {
            sender: Some(compiled.into_offloaded(Box::new(sender), None)),
            receiver: None,
        };
        let (outcome, frames) = run_and_take(worker, FRAMES, &mut socket);
        let outcome = outcome.sender.unwrap();
        for (i, (own, done)) in spec.streams.iter().zip(&outcome.streams).enumerate() {
            let (ours, theirs) = (of_stream(&frames, own), of_stream(&expected, own));
            assert_eq!(ours.len(), theirs.len(), "case {number}, stream {i}");
            assert_eq!(done.offered_frames, theirs.len() as u64);
            assert_eq!(done.intended_frames, Some(theirs.len() as u64));
            assert_eq!(done.flow_frames.iter().sum::<u64>(), theirs.len() as u64);
            let before = (own.stream.tag == wb_model::TagKind::Wirebench).then_some(2);
            for (n, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
                let same = without_stamp(ours, before) == without_stamp(theirs, before);
                assert!(
                    same,
                    "case {number}, stream {i}, frame {n}:\n{ours:02x?}\n{theirs:02x?}"
                );
            }
        }
    }
}

#[test]
fn streams_that_cannot_share_frames_are_refused() {
    let lab = lab_or_skip!("payloads");
    let _passes_on = lab.accept();
    let refused = |changes: &[(&str, u64)]| {
        let spec = specs(changes);
        let compiled = Sender::new(&spec, MOST_FRAME).unwrap();
        let tables = compiled.offload_tables(&spec).unwrap();
        let loaded = lab.at_a(|a| LiveSender::load(a, &tables.streams));
        loaded.err().map(|error| error.to_string()).unwrap()
    };
    let why = refused(&[("size=200 payload=ab", 10), ("size=200", 10)]);
    assert!(why.contains("payloads"), "{why}");
    let why = refused(&[("size=64", 10); wb_live::MOST_STREAMS + 1]);
    assert!(why.contains("65 streams"), "{why}");
}

#[test]
fn a_ramp_sends_the_same_frames_before_the_counted_ones() {
    let lab = lab_or_skip!("ramp");
    let _passes_on = lab.accept();
    let mut spec = specs(&[("size=64", 3000), ("size=70-900 flows=5 sport=1-5", 6000)]);
    spec.lead = RampUp {
        rise_ns: 50_000_000,
        hold_ns: 30_000_000,
        times: 1.5,
    };
    let expected = in_user_space(&spec);
    let compiled = Sender::new(&spec, MOST_FRAME).unwrap();
    let tables = compiled.offload_tables(&spec).unwrap();
    let load = |streams: &[StreamProgram]| {
        let sender = lab.at_a(|a| LiveSender::load(a, streams)).unwrap();
        Box::new(sender) as Box<dyn SendOffload>
    };
    let mut socket = lab.socket(false);
    let worker = OffloadedWorker {
        sender: Some(compiled.into_offloaded(load(&tables.streams), Some(load(&tables.ramps)))),
        receiver: None,
    };
    let began = monotonic_ns();
    let (outcome, frames) = run_and_take(worker, expected.len() as u64, &mut socket);
    let outcome = outcome.sender.unwrap();
    let away_ns = outcome.lateness.stalled_ns;
    assert!(away_ns < monotonic_ns() - began, "away for {away_ns} ns");
    let of_ramp = |frames: &[Vec<u8>], size: usize| -> Vec<(Vec<u8>, u64)> {
        let is = |frame: &&Vec<u8>| {
            let at = find_tag(frame).unwrap().0;
            frame[at + 2..at + 6] == RAMP_FLOW.to_be_bytes() && (frame.len() == 60) == (size == 60)
        };
        frames
            .iter()
            .filter(is)
            .map(|f| without_stamp(f, Some(2)))
            .collect()
    };
    for own in &spec.streams {
        let (ours, theirs) = (of_stream(&frames, own), of_stream(&expected, own));
        assert_eq!(ours.len(), theirs.len(), "flow {}", own.first_flow);
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(without_stamp(ours, Some(2)), without_stamp(theirs, Some(2)));
        }
    }
    // Frames of a ramp that are too late are given up.
    let mut ramp_frames = 0;
    for size in [60, 0] {
        let (ours, theirs) = (of_ramp(&frames, size), of_ramp(&expected, size));
        assert!(!ours.is_empty() && ours.len() <= theirs.len());
        assert_eq!(ours, theirs[..ours.len()]);
        ramp_frames += ours.len() as u64;
    }
    assert_eq!(outcome.ramp_frames, ramp_frames);
    let sent: u64 = outcome.streams.iter().map(|s| s.offered_frames).sum();
    assert_eq!(sent + outcome.ramp_frames, frames.len() as u64);
}
