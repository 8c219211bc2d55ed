//! Messages compared with literal bytes, from captures of netperf 2.7.0 on Linux and written by hand.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wb_netperf_wire::*;

const NOW: Generation = Generation::Words164;
const OLD: Generation = Generation::Words64;

/// Builds a message with these bytes set: offset, then words in hex.
fn message(generation: Generation, parts: &[(usize, &str)]) -> Vec<u8> {
    let mut bytes = vec![0; generation.len()];
    for (offset, hex) in parts {
        let digits: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        for (index, pair) in digits.chunks(2).enumerate() {
            let pair = std::str::from_utf8(pair).expect("ASCII");
            bytes[offset + index] = u8::from_str_radix(pair, 16).expect("hex digits");
        }
    }
    bytes
}

#[track_caller]
fn same(ours: &[u8], expected: &[u8]) {
    assert_eq!(ours.len(), expected.len());
    for (word, (ours, expected)) in ours.chunks(4).zip(expected.chunks(4)).enumerate() {
        assert_eq!(ours, expected, "at byte {}", 4 * word);
    }
}

/// `netperf -l 2` with the default test.
fn stream_request() -> Vec<u8> {
    message(
        NOW,
        &[
            (0, "00000061 ffffffff ffffffff ffffffff"),
            (16, "00000008 00000000 00000002 ffffffff"),
            (32, "ffffffff ffffffff 00000008 00000000"),
            (48, "00000000 ffffffff 00000020 00000000"),
            (64, "00000002 00000000 00000000 ffffffff"),
            (80, "ffffffff ffffffff 00000000 00000004"),
            (96, "00000001 00000006 00000004 0000a329"),
            (152, "ffffffff ffffffff"),
        ],
    )
}

fn stream() -> OmniRequest {
    OmniRequest {
        send_width: 2,
        length: TestLength::Seconds(2),
        client_port: 41769,
        ..OmniRequest::default()
    }
}

#[test]
fn tcp_stream_request() {
    same(&Request::from(stream()).encode(NOW), &stream_request());
    assert_eq!(Request::parse(&stream_request()), Ok(stream().into()));
}

#[test]
fn tcp_stream_response() {
    let bytes = message(
        NOW,
        &[
            (0, "00000062 00000000 00020000 00020000"),
            (16, "00000002 00004000 ffffffff 00000002"),
            (48, "00000000 000097b9"),
            (72, "ffffffff ffffffff"),
        ],
    );
    let response = OmniResponse {
        receive_buffer: Some(131_072),
        receive_size: Some(131_072),
        receive_width: 2,
        send_buffer: Some(16384),
        send_width: 2,
        data_port: 38841,
        ..OmniResponse::default()
    };
    same(&response.encode(NOW), &bytes);
    assert_eq!(OmniResponse::parse(&bytes), Ok(response));
}

#[test]
fn tcp_stream_results_with_remains_of_the_response() {
    let bytes = message(
        NOW,
        &[
            (0, "62000000 00000000 00000001 42b1c9c9"),
            (16, "0000e526 001ed389 00000000 00000000"),
            (32, "00000000 003c1e00 00000000 00000000"),
            (48, "40001355 b9970000 00000000 00000000"),
            (64, "00000000 00000000 ffffffff ffffffff"),
            (276, "62627200"),
        ],
    );
    let layout = ResultsLayout::guess(&bytes, false);
    assert_eq!(layout, ResultsLayout::V27);
    let results = OmniResults::parse(&bytes, layout, false).expect("not refused");
    assert_eq!(
        results,
        OmniResults {
            bytes_received: 5_413_915_081,
            receive_calls: 58662,
            receive_buffer: Some(2_020_233),
            send_buffer: Some(3_939_840),
            elapsed: f32::from_bits(0x4000_1355),
            retransmissions: Some(0),
            congestion_control: Name::new(b"bbr").expect("short"),
            ..OmniResults::default()
        }
    );
    let clean = message(
        NOW,
        &[
            (0, "00000063 00000000 00000001 42b1c9c9"),
            (16, "0000e526 001ed389"),
            (32, "00000000 003c1e00"),
            (48, "40001355"),
            (276, "62627200"),
        ],
    );
    same(&results.encode(layout), &clean);
}

#[test]
fn tcp_rr_with_cpu() {
    let request = OmniRequest {
        send_width: 1,
        receive_width: 1,
        request_size: Some(128),
        response_size: Some(1024),
        flags: Flags::NO_DELAY | Flags::MEASURE_CPU | Flags::ROUTING_ALLOWED,
        direction: DataDirection::Both,
        ..stream()
    };
    let mut bytes = stream_request();
    for (offset, word) in [
        (24, 1u32),
        (28, 0x80),
        (48, 1),
        (52, 0x400),
        (56, 0x29),
        (104, 6),
    ] {
        bytes[offset..offset + 4].copy_from_slice(&word.to_be_bytes());
    }
    same(&Request::from(request).encode(NOW), &bytes);

    let bytes = message(
        NOW,
        &[
            (
                0,
                "00000062 00000000 00020000 00000080 00000001 00004000 00000400 00000001",
            ),
            (32, "00000009 42c80000"),
            (52, "00009c71"),
            (72, "ffffffff ffffffff"),
        ],
    );
    let response = OmniResponse::parse(&bytes).expect("not refused");
    assert_eq!(response.flags, Flags::NO_DELAY | Flags::MEASURE_CPU);
    assert_eq!(response.cpu_rate, 100.0);
    same(&response.encode(NOW), &bytes);

    let bytes = message(
        NOW,
        &[
            (0, "62000000 00000000 00000000 00410b00 00008216"),
            (24, "00000000 02085800 00008216"),
            (44, "00008216 4000040c"),
            (52, "4204f2f6 3f6e24d5 41354af9 3ea63bd8 00000000 41a5365a"),
            (76, "ffffffff 00000008 00000002"),
            (88, "00000000 420fd1fa"),
        ],
    );
    assert_eq!(ResultsLayout::guess(&bytes, true), ResultsLayout::V27);
    let results = OmniResults::parse(&bytes, ResultsLayout::V27, true).expect("not refused");
    assert_eq!(
        (results.bytes_received, results.receive_calls),
        (33302 * 128, 33302)
    );
    assert_eq!(
        (results.bytes_sent, results.send_calls),
        (33302 * 1024, 33302)
    );
    assert_eq!(results.transactions, 33302);
    let cpu = results.cpu.expect("asked for");
    let split = cpu.split.expect("2.7 tells");
    let shown = [
        cpu.total,
        split.user,
        split.system,
        split.iowait,
        split.irq,
        split.softirq,
        cpu.peak,
    ]
    .map(|percent| format!("{percent:.2}"));
    assert_eq!(
        shown,
        ["33.24", "0.93", "11.33", "0.32", "0.00", "20.65", "35.96"]
    );
    assert_eq!(
        (cpu.method, cpu.method.letter(), cpu.cpus, cpu.peak_id),
        (CpuMethod::PROC_STAT, 'S', 2, 0)
    );
    // All but the type and the fields that netperf never sets.
    let mut clean = bytes;
    clean[..4].copy_from_slice(&[0, 0, 0, 0x63]);
    clean[76..80].fill(0);
    same(&results.encode(ResultsLayout::V27), &clean);
}

#[test]
fn exchanges_by_count() {
    let mut bytes = stream_request();
    for (offset, word) in [(28, 1), (52, 1), (64, 0xffff_fffbu32), (104, 6)] {
        bytes[offset..offset + 4].copy_from_slice(&word.to_be_bytes());
    }
    let Ok(Request::Omni(request)) = Request::parse(&bytes) else {
        panic!("a test");
    };
    assert_eq!(request.length, TestLength::Units(5));
    assert_eq!(request.direction, DataDirection::Both);
    assert_eq!(
        (request.request_size, request.response_size),
        (Some(1), Some(1))
    );
    let results = OmniResults {
        bytes_received: 5,
        bytes_sent: 5,
        transactions: 5,
        ..OmniResults::default()
    };
    let sent = results.encode(ResultsLayout::V27);
    assert_eq!(sent[44..48], [0, 0, 0, 5]);
    assert_eq!(sent[8..16], [0, 0, 0, 0, 0, 0, 0, 5]);
    assert_eq!(sent[24..32], [0, 0, 0, 0, 0, 0, 0, 5]);

    // One connection per transaction.
    bytes[56..60].copy_from_slice(&0x24u32.to_be_bytes());
    bytes[64..68].copy_from_slice(&(-3i32).to_be_bytes());
    let Ok(Request::Omni(request)) = Request::parse(&bytes) else {
        panic!("a test");
    };
    assert_eq!(
        request.flags,
        Flags::CONNECTION_TEST | Flags::ROUTING_ALLOWED
    );
    assert_eq!(request.length, TestLength::Units(3));
}

#[test]
fn udp_stream_has_no_retransmissions() {
    let results = OmniResults {
        bytes_received: 1000,
        receive_calls: 10,
        ..OmniResults::default()
    };
    let sent = results.encode(ResultsLayout::V27);
    assert_eq!(sent[8..20], [0, 0, 0, 0, 0, 0, 3, 0xe8, 0, 0, 0, 10]);
    assert_eq!(sent[112..116], [0xff; 4]);

    let mut bytes = stream_request();
    bytes[99] = 2;
    bytes[103] = 17;
    let Ok(Request::Omni(request)) = Request::parse(&bytes) else {
        panic!("a test");
    };
    assert_eq!(
        (request.socket_type, request.protocol),
        (WireSocketType::Datagram, 17)
    );
}

#[test]
fn calibration() {
    let request = message(NOW, &[(0, "00000005 ffffffff")]);
    assert_eq!(Request::parse(&request), Ok(Request::CpuCalibrate));
    same(&Request::CpuCalibrate.encode(NOW), &request);
    let answer = Calibration {
        rate: 100.0,
        cpus: 2,
    };
    let bytes = message(NOW, &[(0, "00000005 00000000 42c80000 00000002")]);
    same(&answer.encode(NOW), &bytes);
    assert_eq!(Calibration::parse(&bytes), Ok(answer));
}

#[test]
fn an_unknown_type_is_refused_with_998() {
    let request = message(NOW, &[(0, "000003e7 ffffffff")]);
    assert_eq!(Request::parse(&request), Ok(Request::Unknown(999)));
    let refusal = Refusal::UNKNOWN_REQUEST.encode(Request::answer_type(999), NOW);
    assert_eq!(refusal[4..8], [0, 0, 3, 0xe6]);
    assert_eq!(
        OmniResponse::parse(&refusal),
        Err(AnswerError::Refused(Refusal::UNKNOWN_REQUEST))
    );
    assert_eq!(
        Refusal::UNKNOWN_REQUEST.to_string(),
        "remote error 998 (unknown request type)"
    );
}

#[test]
fn a_refusal_comes_instead_of_any_answer() {
    let refusal = Refusal::new(98).expect("not zero");
    assert_eq!(refusal.errno(), Some(98));
    assert_eq!(Refusal::SEND_FAILED.errno(), None);
    assert_eq!(Refusal::new(0), None);
    for generation in [OLD, NOW] {
        let bytes = refusal.encode(99, generation);
        let refused = AnswerError::Refused(refusal);
        assert_eq!(OmniResponse::parse(&bytes), Err(refused.clone()));
        assert_eq!(
            OmniResults::parse(&bytes, ResultsLayout::V27, false),
            Err(refused.clone())
        );
        assert_eq!(Calibration::parse(&bytes), Err(refused.clone()));
        assert_eq!(SystemText::parse(&bytes), Err(refused.clone()));
        for kind in ClassicKind::ALL {
            assert_eq!(ClassicResponse::parse(&bytes, kind), Err(refused.clone()));
            assert_eq!(
                ClassicResults::parse(&bytes, kind, true),
                Err(refused.clone())
            );
        }
    }
}

#[test]
fn passphrase() {
    let bytes = message(NOW, &[(0, "00000006 ffffffff 73336372 65740000")]);
    let Ok(Request::Passphrase(passphrase)) = Request::parse(&bytes) else {
        panic!("a passphrase");
    };
    assert!(passphrase.matches(b"s3cret"));
    for wrong in [&b""[..], b"s3cre", b"s3cret!", b"s3creT", b"\0\0\0\0\0\0"] {
        assert!(!passphrase.matches(wrong), "{wrong:?}");
    }
    assert!(!format!("{passphrase:?}").contains("s3cret"));
    same(&Request::Passphrase(passphrase).encode(NOW), &bytes);

    // Without a zero byte, the last byte is read as one.
    let mut endless = message(NOW, &[(0, "00000006 ffffffff")]);
    endless[8..].fill(b'x');
    let Ok(Request::Passphrase(passphrase)) = Request::parse(&endless) else {
        panic!("a passphrase");
    };
    assert_eq!(passphrase.as_bytes(), [b'x'; Passphrase::MAX_LEN]);
    assert_eq!(
        Passphrase::new(&[b'x'; Passphrase::MAX_LEN]),
        Some(passphrase)
    );
    assert_eq!(Passphrase::new(&[b'x'; Passphrase::MAX_LEN + 1]), None);
    assert_eq!(Passphrase::new(b"a\0b"), None);
}

#[test]
fn netperf_t_tcp_rr_by_count() {
    let request = OmniRequest {
        request_size: Some(10),
        response_size: Some(20),
        length: TestLength::Units(3),
        direction: DataDirection::Both,
        ..OmniRequest::default()
    };
    let bytes = Request::from(request).encode(NOW);
    assert_eq!(bytes[28..32], [0, 0, 0, 10]);
    assert_eq!(bytes[52..56], [0, 0, 0, 20]);
    assert_eq!(bytes[56..60], [0, 0, 0, 0x20]);
    assert_eq!(bytes[64..68], [0xff, 0xff, 0xff, 0xfd]);
    assert_eq!(bytes[104..108], [0, 0, 0, 6]);
}

#[test]
fn netperf_with_every_option_that_travels() {
    let request = OmniRequest {
        cpu: Some(1),
        send_buffer: Some(131_072),
        send_size: Some(4096),
        send_alignment: 64,
        send_offset: 3,
        send_width: 5,
        receive_buffer: Some(16000),
        receive_size: Some(2048),
        receive_alignment: 32,
        receive_offset: 4,
        receive_width: 6,
        flags: Flags::KEEPALIVE | Flags::ROUTING_ALLOWED,
        data_port: 23456,
        priority: Some(4),
        tos: Some(0x10),
        congestion_control: Name::new(b"cubic").expect("short"),
        ..OmniRequest::default()
    };
    let bytes = message(
        NOW,
        &[
            (0, "00000061 00000001"),
            (8, "00020000 00001000 00000040 00000003 00000005 ffffffff"),
            (32, "00003e80 00000800 00000020 00000004 00000006 ffffffff"),
            (56, "80000020 00000000 0000000a"),
            (76, "ffffffff ffffffff ffffffff"),
            (88, "00005ba0 00000004 00000001 00000006 00000004"),
            (152, "00000004 00000010"),
            (160, "6375626963"),
        ],
    );
    same(&Request::from(request.clone()).encode(NOW), &bytes);
    assert_eq!(Request::parse(&bytes), Ok(request.into()));
}

#[test]
fn ipv6_addresses_have_swapped_words() {
    let request = OmniRequest {
        family: WireFamily::V6,
        socket_type: WireSocketType::Datagram,
        protocol: 17,
        flags: Flags::NONE,
        server_address: WireAddress::from(IpAddr::V6(Ipv6Addr::LOCALHOST)),
        ..OmniRequest::default()
    };
    let bytes = Request::from(request).encode(NOW);
    assert_eq!(bytes[92..96], [0, 0, 0, 6]);
    assert_eq!(
        bytes[136..152],
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]
    );
    let address: Ipv6Addr = "2001:db8:1:2:3:4:5:6".parse().expect("an address");
    let wire = WireAddress::from(IpAddr::V6(address));
    assert_eq!(wire.0[..4], [0xb8, 0x0d, 0x01, 0x20]);
    assert_eq!(wire.v6(), address);
    assert_eq!(WireAddress(address.octets()).v6_straight(), address);
    assert!(WireAddress::ANY.is_any() && !wire.is_any());
}

#[test]
fn ipv4_addresses_are_straight() {
    let wire = WireAddress::from(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
    assert_eq!(wire.0[..5], [192, 0, 2, 1, 0]);
    assert_eq!(wire.v4(), Ipv4Addr::new(192, 0, 2, 1));
}

#[test]
fn old_peers_have_64_words() {
    let bytes = Request::from(OmniRequest {
        priority: Some(1),
        congestion_control: Name::new(b"cubic").expect("short"),
        extension: Some(RequestExtension::default()),
        ..stream()
    })
    .encode(OLD);
    assert_eq!(bytes.len(), 256);
    same(&bytes[..152], &stream_request()[..152]);
    assert_eq!(
        bytes[152..],
        [0; 104],
        "neither priority nor names nor extension"
    );
    let Ok(Request::Omni(request)) = Request::parse(&bytes) else {
        panic!("a test");
    };
    assert_eq!(
        *request,
        stream(),
        "what is missing is the default, not zero"
    );

    let response = OmniResponse {
        data_port: 7,
        priority: Some(3),
        ..OmniResponse::default()
    };
    let bytes = response.encode(OLD);
    assert_eq!(bytes.len(), 256);
    assert_eq!(bytes[52..56], [0, 0, 0, 7]);
    assert_eq!(bytes[72..], [0; 184]);
    assert_eq!(
        OmniResponse::parse(&bytes).expect("not refused").priority,
        None
    );
}

fn results_with_cpu() -> OmniResults {
    OmniResults {
        bytes_received: 0x1_0000_0002,
        receive_calls: 3,
        receive_buffer: Some(4),
        bytes_sent: 5,
        send_calls: 6,
        send_buffer: Some(7),
        failed_sends: 8,
        transactions: 9,
        elapsed: 1.0,
        cpu: Some(CpuFigures {
            total: 2.0,
            split: Some(CpuSplit {
                user: 4.0,
                ..CpuSplit::default()
            }),
            method: CpuMethod(8),
            cpus: 12,
            peak_id: 10,
            peak: 16.0,
        }),
        retransmissions: Some(11),
        congestion_control: Name::new(b"reno").expect("short"),
        extension: None,
    }
}

#[test]
fn results_of_older_releases() {
    let results = results_with_cpu();
    let common = [
        (0, "00000063 00000000 00000001 00000002 00000003 00000004"),
        (24, "00000000 00000005 00000006 00000007 00000008 00000009"),
        (48, "3f800000 40000000"),
        (60, "00000008 0000000c 0000000a 41800000"),
    ];
    let v25 = message(OLD, &common);
    let v26 = message(
        NOW,
        &[&common[..], &[(92, "0000000b"), (256, "72656e6f")]].concat(),
    );
    same(&results.encode(ResultsLayout::V25), &v25);
    same(&results.encode(ResultsLayout::V26), &v26);
    assert_eq!(ResultsLayout::guess(&v25, true), ResultsLayout::V25);
    assert_eq!(ResultsLayout::guess(&v26, true), ResultsLayout::V26);
    assert_eq!(ResultsLayout::guess(&v26, false), ResultsLayout::V26);

    let read = OmniResults::parse(&v26, ResultsLayout::V26, true).expect("not refused");
    let whole = CpuFigures {
        split: None,
        ..results.cpu.expect("set above")
    };
    let expected = OmniResults {
        cpu: Some(whole),
        ..results
    };
    assert_eq!(read, expected);
    let read = OmniResults::parse(&v25, ResultsLayout::V25, true).expect("not refused");
    assert_eq!(
        read,
        OmniResults {
            retransmissions: None,
            congestion_control: Name::NONE,
            ..expected
        }
    );

    // Without a congestion control, the method of measurement identifies 2.6 if CPU utilisation was requested.
    let datagrams = message(NOW, &common);
    assert_eq!(ResultsLayout::guess(&datagrams, true), ResultsLayout::V26);
    assert_eq!(ResultsLayout::guess(&datagrams, false), ResultsLayout::V27);
    let today = results_with_cpu().encode(ResultsLayout::V27);
    assert_eq!(ResultsLayout::guess(&today, true), ResultsLayout::V27);
}

#[test]
fn classic_tcp_cc_and_sendfile() {
    // TCP_CC -l -3 and TCP_SENDFILE -l -1000000.
    let bytes = message(
        NOW,
        &[
            (0, "0000012c ffffffff ffffffff ffffffff 00000008"),
            (24, "00000008 00000000 00000001 00000001"),
            (52, "fffffffd"),
            (68, "00000004"),
        ],
    );
    let request = ClassicRequest {
        cpu: None,
        test: ClassicTest::TcpCc(ExchangeTest {
            receive_alignment: 8,
            send_alignment: 8,
            request_size: 1,
            response_size: 1,
            ..ExchangeTest::default()
        }),
        measure_cpu: false,
        cpu_rate: 0.0,
        length: TestLength::Units(3),
        receive_avoid: false,
        send_avoid: false,
        data_port: 0,
        family: WireFamily::V4,
    };
    same(&Request::from(request).encode(NOW), &bytes);
    assert_eq!(Request::parse(&bytes), Ok(request.into()));

    let bytes = message(
        OLD,
        &[
            (0, "0000000a ffffffff ffffffff ffffffff 00000000 00000008"),
            (40, "000f4240"),
            (64, "00000004"),
        ],
    );
    let request = ClassicRequest {
        test: ClassicTest::TcpStream(StreamTest {
            alignment: 8,
            ..StreamTest::default()
        }),
        length: TestLength::Seconds(1_000_000),
        ..request
    };
    same(&Request::from(request).encode(OLD), &bytes);
    assert_eq!(Request::parse(&bytes), Ok(request.into()));

    let bytes = message(
        NOW,
        &[
            (0, "0000000b 00000000 00020000 00020000"),
            (28, "00004000 0000b3f3"),
        ],
    );
    let response = ClassicResponse::parse(&bytes, ClassicKind::TcpStream).expect("not refused");
    assert_eq!(
        (
            response.receive_buffer,
            response.call_size,
            response.send_buffer,
            response.data_port
        ),
        (Some(131_072), Some(131_072), Some(16384), 46067)
    );
    same(&response.encode(ClassicKind::TcpStream, NOW), &bytes);

    // 62 buffers of 16 KiB as a floating-point number, then remains of the response.
    let bytes = message(
        NOW,
        &[
            (0, "0b000000 00000000 412f0000 00000000 00000009 399cc31a"),
            (28, "00400000"),
        ],
    );
    let results =
        ClassicResults::parse(&bytes, ClassicKind::TcpStream, false).expect("not refused");
    assert_eq!((results.bytes, results.calls), (62 * 16384, 9));
    assert_eq!((results.cpu_total, results.receive_buffer), (None, None));
    let clean = message(
        NOW,
        &[(0, "0000000c 00000000 412f0000 00000000 00000009 399cc31a")],
    );
    same(&results.encode(ClassicKind::TcpStream, NOW), &clean);
}

#[test]
fn classic_udp_stream_words() {
    let bytes = message(
        OLD,
        &[
            (0, "00000010 00000003 00001000 00000578 00000001 00000010"),
            (24, "00000002 00000001 00000001 42c80000 0000000a"),
            (44, "00000001 00000000 00001234 00000006"),
        ],
    );
    let request = ClassicRequest {
        cpu: Some(3),
        test: ClassicTest::UdpStream(DatagramTest {
            receive_buffer: Some(4096),
            message_size: 1400,
            connect: true,
            alignment: 16,
            offset: 2,
            checksum_off: true,
        }),
        measure_cpu: true,
        cpu_rate: 100.0,
        length: TestLength::Seconds(10),
        receive_avoid: true,
        send_avoid: false,
        data_port: 0x1234,
        family: WireFamily::V6,
    };
    same(&Request::from(request).encode(OLD), &bytes);
    assert_eq!(Request::parse(&bytes), Ok(request.into()));

    let bytes = message(
        OLD,
        &[
            (0, "00000011 00000000 00001000 00002000 00000001 0000000a"),
            (24, "00001234 42c80000 00000001 00000001"),
        ],
    );
    let response = ClassicResponse::parse(&bytes, ClassicKind::UdpStream).expect("not refused");
    assert_eq!(
        (
            response.receive_buffer,
            response.send_buffer,
            response.data_port
        ),
        (Some(4096), Some(8192), 0x1234)
    );
    assert!(response.measure_cpu && response.receive_avoid && response.send_avoid);
    same(&response.encode(ClassicKind::UdpStream, OLD), &bytes);

    let bytes = message(
        OLD,
        &[
            (0, "00000012 00000000 0000000a 000003e8 3f800000 41200000"),
            (24, "00000008 00000002"),
        ],
    );
    let results = ClassicResults::parse(&bytes, ClassicKind::UdpStream, true).expect("not refused");
    assert_eq!((results.calls, results.bytes), (10, 1000));
    assert_eq!(
        (results.elapsed, results.cpu_total, results.cpus),
        (1.0, Some(10.0), 2)
    );
    same(&results.encode(ClassicKind::UdpStream, OLD), &bytes);
}

#[test]
fn classic_types_are_numbered_by_threes() {
    let types = ClassicKind::ALL.map(|kind| {
        (
            kind.request_type(),
            kind.response_type(),
            kind.results_type(),
        )
    });
    assert_eq!(
        types,
        [
            (10, 11, 12),
            (94, 95, 96),
            (13, 14, 15),
            (34, 35, 36),
            (300, 301, 302),
            (16, 17, 18),
            (19, 20, 21)
        ]
    );
}

#[test]
fn small_requests_and_their_answers() {
    for (kind, answer, request) in [
        (1, 3, Request::DebugOn),
        (2, 3, Request::DebugOff),
        (5, 5, Request::CpuCalibrate),
        (600, 601, Request::System),
        (0x7762_0001, 0x7762_0001, Request::End),
    ] {
        for generation in [OLD, NOW] {
            let bytes = request.encode(generation);
            assert_eq!(Request::type_of(&bytes), kind);
            assert_eq!(Request::answer_type(kind), answer);
            assert_eq!(Request::parse(&bytes), Ok(request.clone()));
            assert_eq!(
                bytes[4..],
                [&[0xff; 4][..], &vec![0; bytes.len() - 8]].concat()
            );
        }
    }
    same(&debug_ok(NOW), &message(NOW, &[(0, "00000003")]));
    assert_eq!(Request::answer_type(97), 98);
    assert_eq!(Request::answer_type(300), 301);
}

#[test]
fn system_text() {
    let bytes = SystemText::deprecated().encode(NOW);
    assert_eq!(Request::type_of(&bytes), 601);
    assert_eq!(
        &bytes[8..53],
        b",Deprecated,Deprecated,Deprecated,Deprecated\0"
    );
    let text = SystemText::parse(&bytes).expect("not refused");
    assert_eq!(text.texts().collect::<Vec<_>>(), ["Deprecated"; 4]);
    let old = message(NOW, &[(0, "00000259 00000000 7c4c7c36 00000000")]);
    let text = SystemText::parse(&old).expect("not refused");
    assert_eq!(text.texts().collect::<Vec<_>>(), ["L", "6"]);
    let empty = SystemText::parse(&message(NOW, &[(0, "00000259")])).expect("not refused");
    assert_eq!(empty.texts().count(), 0);
}

#[test]
fn what_would_hurt_is_named() {
    let refused = |word: usize, value: i32| {
        let mut bytes = stream_request();
        bytes[4 * word..4 * word + 4].copy_from_slice(&value.to_be_bytes());
        match Request::parse(&bytes) {
            Err(BadMessage::Field {
                field,
                value: shown,
                ..
            }) => {
                assert_eq!(shown, i64::from(value));
                field
            }
            other => panic!("word {word} of {value}: {other:?}"),
        }
    };
    assert_eq!(refused(2, -2), "send_buf_size");
    assert_eq!(refused(2, (1 << 30) + 1), "send_buf_size");
    assert_eq!(refused(3, 0), "send_size");
    assert_eq!(refused(4, -1), "send_alignment");
    assert_eq!(refused(7, i32::MIN), "request_size");
    assert_eq!(refused(8, i32::MAX), "recv_buf_size");
    assert_eq!(refused(9, 0), "receive_size");
    assert_eq!(refused(11, -8), "recv_offset");
    assert_eq!(refused(13, -2), "response_size");
    assert_eq!(refused(22, 65536), "data_port");
    assert_eq!(refused(23, 5), "ipfamily");
    assert_eq!(refused(24, 0), "socket_type");
    assert_eq!(refused(25, 256), "protocol");
    assert_eq!(refused(26, 3), "direction");
    assert_eq!(refused(27, -1), "netperf_port");
    assert_eq!(refused(28, -1), "interval_burst");
    assert_eq!(refused(29, -1), "interval_usecs");
    assert_eq!(
        Request::parse(&[0; 255]),
        Err(BadMessage::Length(255)),
        "no generation has this length"
    );
    let mut bytes = stream_request();
    bytes[104..108].copy_from_slice(&7u32.to_be_bytes());
    assert_eq!(
        Request::parse(&bytes).expect_err("refused").to_string(),
        "control message: direction must be 0 (connect), 2 (server sends), 4 (server receives) or 6 \
         (both), got 7"
    );

    // Sizes at their limit, and odd but harmless values.
    let mut bytes = stream_request();
    for (word, value) in [(2, 1 << 30), (6, -5), (17, -1), (19, -7), (38, -9)] {
        bytes[4 * word..4 * word + 4].copy_from_slice(&i32::to_be_bytes(value));
    }
    let Ok(Request::Omni(request)) = Request::parse(&bytes) else {
        panic!("a test");
    };
    assert_eq!(request.send_buffer, Some(1 << 30));
    assert_eq!(
        (
            request.send_width,
            request.receive_avoid,
            request.send_dirty
        ),
        (0, false, None)
    );
    assert_eq!(request.priority, None);
}

#[test]
fn what_would_hurt_in_classic_requests_is_named() {
    for (kind, word, field) in [
        (10, 2, "send_buf_size"),
        (10, 4, "receive_size"),
        (94, 4, "send_size"),
        (13, 8, "request_size"),
        (300, 9, "response_size"),
        (16, 3, "message_size"),
        (19, 17, "ipfamily"),
        (34, 16, "port"),
    ] {
        let mut bytes = message(OLD, &[]);
        bytes[..4].copy_from_slice(&i32::to_be_bytes(kind));
        assert!(Request::parse(&bytes).is_ok());
        bytes[4 * word..4 * word + 4].copy_from_slice(&i32::to_be_bytes(-100));
        match Request::parse(&bytes) {
            Err(BadMessage::Field { field: named, .. }) => assert_eq!(named, field),
            other => panic!("type {kind}: {other:?}"),
        }
    }
}

#[test]
fn the_extension_stands_where_old_servers_do_not_look() {
    let request = OmniRequest {
        extension: Some(RequestExtension {
            features: Features::EXPLICIT_END | Features::UDP_TAGGED,
            busy_poll_us: 50,
            pacing_rate: 0x0102_0304_0506_0708,
            omit_ms: 2000,
            streams: 0,
            count: 10_000_000_000,
        }),
        ..stream()
    };
    let bytes = Request::from(request.clone()).encode(NOW);
    same(&bytes[..384], &stream_request()[..384]);
    let tail = message(
        NOW,
        &[(
            384,
            "77625271 00000001 00000003 00000032 01020304 05060708 000007d0 00000000 00000002 540be400",
        )],
    );
    same(&bytes[384..], &tail[384..]);
    assert_eq!(Request::parse(&bytes), Ok(request.into()));

    // A reflected request grants nothing.
    let mut reflected = bytes.clone();
    reflected[..8].copy_from_slice(&[0, 0, 0, 98, 0, 0, 0, 0]);
    reflected[52..56].fill(0);
    let response = OmniResponse::parse(&reflected).expect("not refused");
    assert_eq!(response.extension, None);
    // Neither does version 0, which never existed; later versions do.
    for (version, is_known) in [(0, false), (1, true), (2, true)] {
        let mut bytes = bytes.clone();
        bytes[391] = version;
        let Ok(Request::Omni(request)) = Request::parse(&bytes) else {
            panic!("a test");
        };
        assert_eq!(request.extension.is_some(), is_known, "version {version}");
    }
}

#[test]
fn missing_datagrams_are_counted_once() {
    let figures = DatagramFigures {
        received: 95,
        duplicates: 2,
        highest_sequence: Some(99),
        ..DatagramFigures::default()
    };
    assert_eq!(figures.missing(), 7);
    assert_eq!(DatagramFigures::default().missing(), 0);
    let odd = DatagramFigures {
        received: 1,
        duplicates: 5,
        highest_sequence: Some(u64::MAX),
        ..DatagramFigures::default()
    };
    assert_eq!(odd.missing(), u64::MAX, "nonsense of a peer does no harm");
}

#[test]
fn lengths_on_the_wire() {
    assert_eq!(TestLength::units(0), None);
    assert_eq!(TestLength::units(1 << 31), Some(TestLength::Units(1 << 31)));
    assert_eq!(TestLength::units((1 << 31) + 1), None);
    for (length, word) in [
        (TestLength::Seconds(u32::MAX), i32::MAX),
        (TestLength::Units(1 << 31), i32::MIN),
        (TestLength::Units(u32::MAX), i32::MIN),
        (TestLength::UntilTold, 0),
    ] {
        let bytes = Request::from(OmniRequest { length, ..stream() }).encode(NOW);
        assert_eq!(bytes[64..68], word.to_be_bytes());
    }
}

#[test]
fn letters_of_cpu_methods() {
    let letters: String = (0..14).map(|n| CpuMethod(n).letter()).collect();
    assert_eq!(letters, "UIPTLRNKSCEMO?");
    assert_eq!(CpuMethod(u32::MAX).letter(), '?');
}

#[test]
fn names_and_sets_show_themselves() {
    let name: Name<16> = Name::new(b"cubic").expect("short");
    assert_eq!(name.as_str(), Some("cubic"));
    assert_eq!(Name::<16>::new(b"0123456789abcdef"), None);
    assert_eq!(Name::<16>::NONE.as_str(), None);
    assert_eq!(
        format!("{:?}", Flags::NO_DELAY | Flags(0x400)),
        "{NO_DELAY, 0x400}"
    );
    let flags = Flags::NONE
        .with_if(true, Flags::NO_DELAY)
        .with_if(false, Flags::KEEPALIVE);
    assert_eq!(flags, Flags::NO_DELAY);
}
