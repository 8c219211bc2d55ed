//! Control connections of netperf 2.7.0 and its netserver on Linux, recorded message by message.
//!
//! Each file of `recorded` has the command in its first line, then `c>s` or `s>c` and the bytes.

use std::{collections::BTreeMap, fs, path::Path};

use wb_netperf_wire::*;

/// One message on the wire.
struct Sent {
    by_client: bool,
    bytes: Vec<u8>,
}

/// Reads all recordings by name, except those without a message.
fn recordings() -> BTreeMap<String, Vec<Sent>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("the folder is part of the project") {
        let path = entry.expect("readable").path();
        if path.extension().is_none_or(|extension| extension != "hex") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("text");
        let sent: Vec<Sent> = text
            .lines()
            .filter_map(|line| {
                let (way, hex) = line.split_once(' ')?;
                let by_client = match way {
                    "c>s" => true,
                    "s>c" => false,
                    _ => return None,
                };
                let digit = |b: u8| char::from(b).to_digit(16).expect("hex") as u8;
                let bytes = hex
                    .trim()
                    .as_bytes()
                    .chunks(2)
                    .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
                    .collect();
                Some(Sent { by_client, bytes })
            })
            .collect();
        if !sent.is_empty() {
            let name = path.file_stem().expect("a name").to_string_lossy();
            all.insert(name.into_owned(), sent);
        }
    }
    assert!(all.len() >= 50, "only {} recordings", all.len());
    all
}

/// Expected answer, from the messages seen so far.
enum Expected {
    Response(Request),
    OmniResults(Box<OmniRequest>, OmniResponse),
    ClassicResults(ClassicRequest, ClassicResponse),
    Nothing,
}

#[test]
fn every_request_is_written_again_to_the_byte() {
    let mut kinds = BTreeMap::new();
    for (name, sent) in recordings() {
        // The server's view: a stream, in pieces of an odd size.
        let stream: Vec<u8> = sent
            .iter()
            .filter(|message| message.by_client)
            .flat_map(|message| message.bytes.clone())
            .collect();
        let mut framer = Framer::new(Generation::Words164);
        for piece in stream.chunks(97) {
            framer.push(piece);
            while let Some(message) = framer.next_message() {
                let request =
                    Request::parse(&message).unwrap_or_else(|error| panic!("{name}: {error}"));
                let again = request.encode(Generation::Words164);
                for word in 0..164 {
                    let at = 4 * word..4 * word + 4;
                    assert_eq!(
                        again[at.clone()],
                        message[at],
                        "{name}: word {word} of {request:?}"
                    );
                }
                *kinds.entry(Request::type_of(&message)).or_insert(0) += 1;
            }
        }
        assert!(framer.is_at_boundary(), "{name}");
    }
    // Calibration, passphrase, TCP_STREAM (from TCP_SENDFILE and TCP_MSS), omni, TCP_CC.
    for kind in [5, 6, 10, 97, 300] {
        assert!(kinds.contains_key(&kind), "no request of type {kind}");
    }
}

#[test]
fn every_answer_is_understood() {
    let mut tests = 0;
    for (name, sent) in recordings() {
        let mut expected = Expected::Nothing;
        for message in &sent {
            let bytes = &message.bytes;
            expected = if message.by_client {
                match Request::parse(bytes).expect("checked by the test above") {
                    Request::Passphrase(_) => Expected::Nothing,
                    request => Expected::Response(request),
                }
            } else {
                match expected {
                    // The recording's kernel had no UDP-Lite: EOPNOTSUPP.
                    Expected::Response(Request::Omni(request)) if request.protocol == 136 => {
                        let refused = Refusal::new(95).expect("not zero").into();
                        assert_eq!(OmniResponse::parse(bytes), Err(refused));
                        Expected::Nothing
                    }
                    Expected::Response(Request::Omni(request)) => {
                        let response = OmniResponse::parse(bytes).expect(&name);
                        check_response(&name, &request, &response, bytes);
                        Expected::OmniResults(request, response)
                    }
                    Expected::Response(Request::Classic(request)) => {
                        let kind = request.test.kind();
                        let response = ClassicResponse::parse(bytes, kind).expect(&name);
                        assert_ne!(response.data_port, 0, "{name}");
                        let again = response.encode(kind, Generation::Words164);
                        assert_eq!(again, *bytes, "{name}");
                        Expected::ClassicResults(request, response)
                    }
                    Expected::Response(Request::CpuCalibrate) => {
                        let calibration = Calibration::parse(bytes).expect(&name);
                        assert_eq!(calibration.rate, 100.0);
                        assert_eq!(calibration.encode(Generation::Words164), *bytes);
                        Expected::Nothing
                    }
                    Expected::OmniResults(request, response) => {
                        tests += 1;
                        check_results(&name, &request, &response, bytes);
                        Expected::Nothing
                    }
                    Expected::ClassicResults(request, response) => {
                        tests += 1;
                        let kind = request.test.kind();
                        let results = ClassicResults::parse(bytes, kind, request.measure_cpu);
                        let results = results.expect(&name);
                        assert_eq!(response.measure_cpu, request.measure_cpu, "{name}");
                        assert_eq!(results.cpu_total.is_some(), request.measure_cpu);
                        assert!((1e-6..60.0).contains(&results.elapsed), "{name}");
                        Expected::Nothing
                    }
                    Expected::Response(other) => panic!("{name}: answer to {other:?}"),
                    Expected::Nothing => panic!("{name}: an answer to nothing"),
                }
            };
        }
    }
    assert!(tests >= 50, "only {tests} tests with results");
}

/// Checks the fields of a response, and that our encoding is the same.
fn check_response(name: &str, request: &OmniRequest, response: &OmniResponse, bytes: &[u8]) {
    assert_ne!(response.data_port, 0, "{name}");
    if request.data_port != 0 && !name.starts_with("error") {
        assert_eq!(response.data_port, request.data_port, "{name}");
    }
    assert_eq!(
        response.flags.contains(Flags::NO_DELAY),
        request.flags.contains(Flags::NO_DELAY),
        "{name}"
    );
    assert_eq!(response.extension, None, "{name}");
    // Word 10 is never filled in. Remains of an earlier test follow word 19, but the tail is empty.
    let again = response.encode(Generation::Words164);
    assert_eq!(bytes[EXTENSION_AT..], again[EXTENSION_AT..], "{name}");
    for word in (0..20).filter(|word| *word != 10) {
        let at = 4 * word..4 * word + 4;
        assert_eq!(again[at.clone()], bytes[at], "{name}: word {word}");
    }
}

/// Checks the results that the kind of test guarantees.
fn check_results(name: &str, request: &OmniRequest, response: &OmniResponse, bytes: &[u8]) {
    let cpu_asked = request.flags.contains(Flags::MEASURE_CPU);
    assert_eq!(response.flags.contains(Flags::MEASURE_CPU), cpu_asked);
    let layout = ResultsLayout::guess(bytes, cpu_asked);
    assert_eq!(layout, ResultsLayout::V27, "{name}");
    let results = OmniResults::parse(bytes, layout, cpu_asked).expect(name);
    assert_eq!(results.extension, None, "{name}");
    assert!(
        bytes[EXTENSION_AT..].iter().all(|byte| *byte == 0),
        "{name}"
    );
    assert!((1e-6..60.0).contains(&results.elapsed), "{name}");
    assert!(results.receive_buffer.is_some() && results.send_buffer.is_some());
    assert_eq!(
        results.retransmissions.is_some(),
        request.protocol == 6 && !request.flags.contains(Flags::CONNECTION_TEST),
        "{name}"
    );
    if request.direction == DataDirection::Both {
        let transactions = u64::from(results.transactions);
        let size = |size: Option<u32>| u64::from(size.unwrap_or(1));
        // The last exchange of a timed test may be incomplete.
        for (bytes, size) in [
            (results.bytes_received, size(request.request_size)),
            (results.bytes_sent, size(request.response_size)),
        ] {
            let off = bytes.abs_diff(transactions * size);
            assert!(off <= size, "{name}: {results:?}");
        }
    } else {
        assert!(
            request.direction.server_sends() || results.bytes_sent == 0,
            "{name}"
        );
        assert!(
            request.direction.server_receives() || results.bytes_received == 0,
            "{name}"
        );
    }
    if let TestLength::Units(count) = request.length
        && (request.direction == DataDirection::Both
            || request.direction == DataDirection::ConnectOnly)
    {
        assert_eq!(results.transactions, count, "{name}");
    }
    if let Some(cpu) = results.cpu {
        assert_eq!(cpu.method, CpuMethod::PROC_STAT, "{name}");
        assert!(cpu.cpus >= 1 && cpu.peak_id >= 0, "{name}");
        let split = cpu.split.expect("2.7 tells");
        let parts = split.user + split.system + split.iowait + split.irq + split.softirq;
        // The total also contains time stolen by the hypervisor, which is not reported separately.
        let share = parts / cpu.total;
        assert!((0.9..1.001).contains(&share), "{name}: {cpu:?}");
    }
    // Our encoding differs in the type and in the remains that netperf leaves.
    let again = OmniResults::parse(&results.encode(layout), layout, cpu_asked);
    assert_eq!(again, Ok(results), "{name}");
}

#[test]
fn commands_give_the_fields_they_must() {
    let all = recordings();
    let omni = |name: &str| {
        let sent = all[name]
            .iter()
            .find(|message| message.by_client && Request::type_of(&message.bytes) == 97);
        match Request::parse(&sent.expect("an omni request").bytes) {
            Ok(Request::Omni(request)) => *request,
            other => panic!("{name}: {other:?}"),
        }
    };
    let all_options = omni("V10");
    assert_eq!(all_options.cpu, Some(1));
    assert_eq!((all_options.priority, all_options.tos), (Some(4), Some(16)));
    assert_eq!(all_options.congestion_control.as_str(), Some("cubic"));
    assert_eq!(all_options.flags, Flags::KEEPALIVE | Flags::ROUTING_ALLOWED);
    let v6 = omni("V11");
    assert_eq!(v6.family, WireFamily::V6);
    assert_eq!(v6.server_address.v6(), std::net::Ipv6Addr::LOCALHOST);
    assert_eq!(v6.flags, Flags::NONE);
    let exchanges = omni("TCP_RR_count");
    assert_eq!(exchanges.length, TestLength::Units(3));
    assert_eq!(
        (exchanges.request_size, exchanges.response_size),
        (Some(10), Some(20))
    );
    assert_eq!(
        omni("TCP_RR_fillfile").fill_file.as_str(),
        Some("/dev/zero")
    );
    assert_eq!(omni("omni_c").direction, DataDirection::ConnectOnly);
    assert_eq!(omni("TCP_MAERTS").direction, DataDirection::ServerSends);
    assert_eq!(omni("TCP_MAERTS_m").send_size, Some(1000));
    assert!(omni("TCP_RR_fastopen").flags.contains(Flags::FAST_OPEN));
    assert!(
        omni("UDP_RR_pktinfo_connect")
            .flags
            .contains(Flags::PKT_INFO)
    );
    let Ok(Request::Passphrase(passphrase)) = Request::parse(&all["passphrase"][0].bytes) else {
        panic!("a passphrase comes first");
    };
    assert!(passphrase.matches(b"s3cret"));
}
