//! Tests the frames of a run on ports in memory: their origin and their rates. Needs no privileges.

use std::path::Path;

use wb_model::{Plan, Report, text::plan_from_toml};
use wb_session::{Environment, Extras, Signals, View, prepare};

fn plan(keys: &str, job: &str, stream: &str) -> Plan {
    let ports = "[[port]]\nname = \"a\"\nlocator = \"memory:x\"\n[[port]]\nname = \"b\"\nlocator = \"memory:x\"\n";
    let text = format!(
        "schema = \"wirebench.plan/1\"\n{keys}\n{ports}[[traffic]]\ntx = \"a\"\nrx = \"b\"\ncatch_up = \"10s\"\n{job}\n[[traffic.stream]]\n{stream}\n"
    );
    plan_from_toml("frames", &text).unwrap()
}

fn run(plan: Plan) -> Report {
    let environment = Environment {
        signals: Signals::none(),
        ..Environment::default()
    };
    let prepared = prepare(plan, &environment, Extras::default()).unwrap();
    prepared.run(&mut |_: &View<'_>| ()).unwrap().report
}

#[test]
fn each_run_has_a_first_flow_of_its_own_and_counts_flows_from_it() {
    let of = |keys: &str| run(plan(keys, "count = 9", "rate = \"1kpps\"\nflows = 3"));
    let numbers = |report: &Report| -> Vec<u32> { report.flows.iter().map(|f| f.flow).collect() };
    let (one, other) = (of(""), of(""));
    assert_ne!(one.first_flow.unwrap(), other.first_flow.unwrap());
    let (last, told) = (4_294_967_291, of("first_flow = 4294967291"));
    assert_eq!(told.first_flow, Some(last));
    for report in [one, other, told] {
        assert_eq!(numbers(&report), [0, 1, 2]);
        assert_eq!(report.jobs[0].streams[0].first_flow, 0);
        let totals = report.totals;
        assert_eq!(
            (totals.received_frames, totals.lost_frames),
            (Some(9), Some(0))
        );
        assert_eq!(
            (totals.foreign_frames, totals.other_run_frames),
            (Some(0), Some(0))
        );
        assert!(
            report
                .flows
                .iter()
                .all(|f| f.totals.received_frames == Some(3))
        );
    }
    let beyond = plan("first_flow = 4294967292", "count = 9", "flows = 3");
    let said = beyond.validate().unwrap_err().to_string();
    assert!(
        said.contains("the highest flow number is 4294967293"),
        "{said}"
    );
}

#[test]
fn a_first_flow_without_streams_is_refused() {
    let text = "schema = \"wirebench.plan/1\"\nfirst_flow = 5\n[[port]]\nname = \"c\"\nlocator = \"memory:c\"\n[[capture]]\nports = [\"c\"]\n";
    let plan = plan_from_toml("capture", text).unwrap();
    let said = plan.validate().unwrap_err().to_string();
    assert!(
        said.contains("first_flow: needs a [[traffic]] job with streams"),
        "{said}"
    );
}

/// Writes a capture file with frames of these lengths, each cut to `kept` bytes.
fn recording(file: &Path, lengths: &[u32], kept: u32) {
    let mut bytes = Vec::new();
    let mut words = |words: &[u32]| {
        words.iter().for_each(|n| bytes.extend(n.to_le_bytes()));
    };
    words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1]);
    for (n, len) in (0..).zip(lengths) {
        let kept = kept.min(*len);
        words(&[n, 0, kept, *len]);
        // Local addresses, and a type for experiments.
        words(&[0x02, 0x0002_0900, 0, 0xb588]);
        words(&vec![0; (kept as usize - 16) / 4]);
    }
    std::fs::write(file, bytes).unwrap();
}

#[test]
fn bits_of_a_replay_are_those_of_its_frames() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sizes.pcap");
    // 64, 124, 1516: 568 octets on average with FCS.
    recording(&file, &[60, 120, 1512], 1512);
    for (rate, pps) in [
        ("4.544mbps-l2", 1000.0),
        ("4.704mbps", 1000.0),
        ("300pps", 300.0),
    ] {
        let stream = format!("rate = {rate:?}\nreplay = {:?}", file.to_str().unwrap());
        let report = run(plan("", "duration = \"300ms\"", &stream));
        let rates = report.rates;
        assert_eq!(rates.intended_pps, Some(pps), "{rate}");
        let frames = (pps * 0.3) as u64;
        assert_eq!(report.totals.intended_frames, Some(frames), "{rate}");
        assert_eq!(report.totals.offered_octets, Some(frames * 568), "{rate}");
        assert_eq!(report.warnings, Vec::<String>::new(), "{rate}");
    }
}

#[test]
fn a_replay_of_cut_frames_warns_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cut.pcap");
    recording(&file, &[60, 120, 1512], 96);
    let stream = format!("rate = \"1kpps\"\nreplay = {:?}", file.to_str().unwrap());
    let report = run(plan("", "count = 6", &stream));
    let warnings = report.warnings.join("\n");
    assert!(
        warnings.contains("2 of 3 frames were truncated"),
        "{warnings}"
    );
}

#[test]
fn a_range_of_sizes_has_its_bit_rate_whenever_it_ends() {
    let stream = "rate = \"20mbps-l2\"\nsize = \"64-1500\"";
    let report = run(plan("", "duration = \"100ms\"", stream));
    let (octets, frames) = (
        report.totals.offered_octets.unwrap(),
        report.totals.offered_frames.unwrap(),
    );
    // 2 Mbit in 100 ms.
    assert!((249_000..=251_500).contains(&octets), "{octets}");
    assert!(octets.abs_diff(frames * 782) < 1500, "{octets} {frames}");
}

#[test]
fn a_count_has_the_rate_at_which_it_was_sent() {
    let report = run(plan("", "count = 10", "rate = \"100pps\""));
    let rates = report.rates;
    // Ten frames over ten gaps, plus the lateness of the last frame.
    let sent_ns = rates.tx_time_ns.unwrap();
    assert!(sent_ns >= 100_000_000, "{sent_ns}");
    assert!(rates.offered_pps.unwrap() <= 100.0, "{rates:?}");
    assert!(rates.received_pps.unwrap() <= 100.0, "{rates:?}");
    // Two bursts of five frames, with a pause after each.
    let report = run(plan("", "count = 10", "burst = 5\ngap = \"50ms\""));
    assert!(
        report.rates.offered_pps.unwrap() <= 100.0,
        "{:?}",
        report.rates
    );
    assert!(
        report.rates.received_pps.unwrap() <= 100.0,
        "{:?}",
        report.rates
    );
}

/// Reads the frames of a file.
fn frames_of(file: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(file).unwrap();
    let reader = wb_pcapng::CaptureReader::new(&bytes).unwrap();
    reader.map(|r| r.unwrap().captured.to_vec()).collect()
}

/// Clears the time in the tag, subtracts `first_flow` from its flow, and clears the checksum that both change.
fn masked(mut frame: Vec<u8>, first_flow: u32) -> Vec<u8> {
    let Some((at, _)) = wb_wire::find_tag(&frame) else {
        return frame;
    };
    let flow = u32::from_be_bytes(frame[at + 2..at + 6].try_into().unwrap());
    let flow = flow.checked_sub(first_flow).expect("a flow of this run");
    frame[at + 2..at + 6].copy_from_slice(&flow.to_be_bytes());
    frame[at + 10..at + 18].fill(0);
    // The UDP checksum is 2 bytes before the end of the header, the TCP checksum 4, and the ICMP checksum 6.
    let (proto, version_6) = match frame[14] >> 4 {
        4 => (frame[23], false),
        6 => (frame[20], true),
        // ARP has no checksum.
        _ => return frame,
    };
    let before = match proto {
        17 => 2,
        6 => 4,
        1 | 58 => 6,
        other => panic!("protocol {other}, IPv6: {version_6}"),
    };
    frame[at - before..at - before + 2].fill(0);
    frame
}

#[test]
fn a_plan_and_a_seed_send_the_same_frames_each_time() {
    let streams = [
        "size = \"64-300\"\nflows = 5",
        "size = \"imix\"\nsrc = \"198.18.1.0/28\"\ndst = \"198.18.2.0/29\"",
        "proto = \"tcp\"\nsrc = \"2001:2::/120\"\ndst = \"2001:2::5\"\nsize = \"200\"\nflows = 3",
        "proto = \"icmp\"\nsize = \"100\"",
        "tag = \"none\"\nsize = \"64-300\"\nflows = 4",
    ];
    let folder = tempfile::tempdir().unwrap();
    let sent = |file: &str, keys: &str, stream: &str| -> (Vec<Vec<u8>>, u32) {
        let file = folder.path().join(file);
        let text = format!(
            "schema = \"wirebench.plan/1\"\n{keys}\n[[port]]\nname = \"a\"\nlocator = \"file:{}\"\n[[traffic]]\ntx = \"a\"\ncatch_up = \"10s\"\ncount = 60\n[[traffic.stream]]\nrate = \"10kpps\"\n{stream}\n",
            file.display()
        );
        let report = run(plan_from_toml("frames", &text).unwrap());
        assert_eq!(report.totals.offered_frames, Some(60), "{stream}");
        (frames_of(&file), report.first_flow.unwrap_or(0))
    };
    let times_out = |(frames, _): (Vec<Vec<u8>>, u32), first: u32| -> Vec<Vec<u8>> {
        frames
            .into_iter()
            .map(|frame| masked(frame, first))
            .collect()
    };
    for stream in streams {
        let (one, other) = (
            sent("1.pcap", "seed = 9", stream),
            sent("2.pcap", "seed = 9", stream),
        );
        assert!(
            one.1 != other.1,
            "{stream}: each run has flow numbers of its own"
        );
        let (first, second) = (one.1, other.1);
        let one = times_out(one, first);
        assert!(one == times_out(other, second), "{stream}");
        // With a fixed first flow, only times differ.
        let told = |file: &str| sent(file, "seed = 9\nfirst_flow = 77", stream);
        assert!(
            times_out(told("3.pcap"), 0) == times_out(told("4.pcap"), 0),
            "{stream}"
        );
        assert!(times_out(told("3.pcap"), 77) == one, "{stream}");
    }
    // The seed determines the order of the sizes.
    let of = |seed: &str| sent("5.pcap", seed, "tag = \"none\"\nsize = \"imix\"").0;
    assert!(of("seed = 3") == of("seed = 3") && of("seed = 3") != of("seed = 4"));
}

#[test]
fn a_replay_sends_the_bytes_of_its_file_in_each_loop() {
    let folder = tempfile::tempdir().unwrap();
    let (file, sent) = (
        folder.path().join("in.pcap"),
        folder.path().join("out.pcap"),
    );
    let recorded = |lengths: &[usize]| -> Vec<Vec<u8>> {
        let mut bytes: Vec<u8> = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1]
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect();
        let frames: Vec<Vec<u8>> = lengths
            .iter()
            .map(|len| {
                let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
                frame.extend((frame.len()..*len).map(|at| at as u8));
                frame
            })
            .collect();
        for (n, frame) in (0..).zip(&frames) {
            // 10 ms apart.
            let len = frame.len() as u32;
            let words = [1_700_000_000, 10_000 * n, len, len];
            bytes.extend(words.iter().flat_map(|n: &u32| n.to_le_bytes()));
            bytes.extend(frame);
        }
        std::fs::write(&file, bytes).unwrap();
        frames
    };
    let replay = |rate: &str| {
        let text = format!(
            "schema = \"wirebench.plan/1\"\n[[port]]\nname = \"a\"\nlocator = \"file:{}\"\n[[traffic]]\ntx = \"a\"\ncatch_up = \"10s\"\ncount = 11\n[[traffic.stream]]\n{rate}\nreplay = {:?}\n",
            sent.display(),
            file.to_str().unwrap()
        );
        let environment = Environment {
            signals: Signals::none(),
            ..Environment::default()
        };
        let plan = plan_from_toml("frames", &text).unwrap();
        let prepared = prepare(plan, &environment, Extras::default());
        let prepared = prepared.map_err(|error| error.to_string())?;
        let report = prepared
            .run(&mut |_: &View<'_>| ())
            .map_err(|error| error.to_string())?;
        Ok::<_, String>(report.report)
    };
    // Odd lengths get no extra byte. 11 frames are two loops and three frames.
    let frames = recorded(&[60, 61, 515, 1513]);
    for rate in ["speed = 1", "speed = 20", "rate = \"1kpps\""] {
        let report = replay(rate).unwrap();
        let expected: Vec<&Vec<u8>> = frames.iter().cycle().take(11).collect();
        let octets: u64 = expected.iter().map(|frame| frame.len() as u64 + 4).sum();
        assert_eq!(report.totals.intended_frames, Some(11), "{rate}");
        assert_eq!(report.totals.offered_frames, Some(11), "{rate}");
        assert_eq!(report.totals.offered_octets, Some(octets), "{rate}");
        assert!(frames_of(&sent).iter().eq(expected), "{rate}");
    }
    // Each loop takes the time of the recording: 11 frames have at least 10 gaps of 10 ms.
    let report = replay("speed = 1").unwrap();
    assert!(
        report.rates.tx_time_ns >= Some(100_000_000),
        "{:?}",
        report.rates
    );
    // The error names the frame that is too long, or the file without frames.
    recorded(&[60, 9300]);
    let said = replay("rate = \"1kpps\"")
        .map(|report| report.reason)
        .unwrap_err();
    assert!(
        said.contains("9304") && said.contains("exceeds the port's maximum"),
        "{said}"
    );
    recorded(&[]);
    let said = replay("rate = \"1kpps\"")
        .map(|report| report.reason)
        .unwrap_err();
    assert!(said.contains("in.pcap"), "{said}");
}
