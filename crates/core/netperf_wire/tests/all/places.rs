//! Position of every field: messages in which word n holds 1000 + n, or 1 if only a switch fits.

use wb_netperf_wire::*;

const NOW: Generation = Generation::Words164;
const OLD: Generation = Generation::Words64;

/// Builds a message with 1000 + n in words 0 to `last`, except for those in `others`.
fn counted(generation: Generation, last: usize, others: &[(usize, u32)]) -> Vec<u8> {
    let mut bytes = vec![0; generation.len()];
    for word in 0..=last {
        let value = others
            .iter()
            .find(|(other, _)| *other == word)
            .map_or(1000 + word as u32, |(_, value)| *value);
        bytes[4 * word..4 * word + 4].copy_from_slice(&value.to_be_bytes());
    }
    bytes
}

#[track_caller]
fn same(ours: &[u8], expected: &[u8]) {
    for (word, (ours, expected)) in ours.chunks(4).zip(expected.chunks(4)).enumerate() {
        assert_eq!(ours, expected, "word {word}");
    }
}

fn float(word: u32) -> f32 {
    f32::from_bits(1000 + word)
}

#[test]
fn omni_request() {
    for (avoids, no_avoids) in [((1, 0), (true, false)), ((0, 1), (false, true))] {
        let mut bytes = counted(
            NOW,
            39,
            &[
                (0, 97),
                (17, avoids.0),
                (18, avoids.1),
                (23, 6),
                (24, 2),
                (25, 17),
                (26, 2),
            ],
        );
        bytes[160..168].copy_from_slice(b"cubic\0\0\0");
        bytes[176..184].copy_from_slice(b"/a/file\0");
        let mut address = [0; 16];
        address.copy_from_slice(&bytes[120..136]);
        let client_address = WireAddress(address);
        address.copy_from_slice(&bytes[136..152]);
        let request = Request::from(OmniRequest {
            cpu: Some(1001),
            send_buffer: Some(1002),
            send_size: Some(1003),
            send_alignment: 1004,
            send_offset: 1005,
            send_width: 1006,
            request_size: Some(1007),
            receive_buffer: Some(1008),
            receive_size: Some(1009),
            receive_alignment: 1010,
            receive_offset: 1011,
            receive_width: 1012,
            response_size: Some(1013),
            flags: Flags(1014),
            cpu_rate: float(15),
            length: TestLength::Seconds(1016),
            receive_avoid: no_avoids.0,
            send_avoid: no_avoids.1,
            send_dirty: Some(1019),
            receive_dirty: Some(1020),
            receive_clean: Some(1021),
            data_port: 1022,
            family: WireFamily::V6,
            socket_type: WireSocketType::Datagram,
            protocol: 17,
            direction: DataDirection::ServerSends,
            client_port: 1027,
            interval_burst: 1028,
            interval_us: 1029,
            client_address,
            server_address: WireAddress(address),
            priority: Some(1038),
            tos: Some(1039),
            congestion_control: Name::new(b"cubic").expect("short"),
            fill_file: Name::new(b"/a/file").expect("short"),
            extension: None,
        });
        same(&request.encode(NOW), &bytes);
        assert_eq!(Request::parse(&bytes), Ok(request.clone()));
        // Remains behind the names are ignored.
        bytes[167] = b'x';
        bytes[207] = b'x';
        bytes[300] = b'x';
        assert_eq!(Request::parse(&bytes), Ok(request));
    }
}

#[test]
fn omni_response() {
    for (words, avoids) in [((1, 0), (true, false)), ((0, 1), (false, true))] {
        let unused = [
            (0, 98),
            (1, 0),
            (10, 0),
            (11, words.0),
            (12, words.1),
            (16, 0),
            (17, 0),
        ];
        let response = OmniResponse {
            receive_buffer: Some(1002),
            receive_size: Some(1003),
            receive_width: 1004,
            send_buffer: Some(1005),
            send_size: Some(1006),
            send_width: 1007,
            flags: Flags(1008),
            cpu_rate: float(9),
            receive_avoid: avoids.0,
            send_avoid: avoids.1,
            data_port: 1013,
            interval_burst: 1014,
            interval_us: 1015,
            priority: Some(1018),
            tos: Some(1019),
            extension: None,
        };
        let bytes = counted(NOW, 19, &unused);
        same(&response.encode(NOW), &bytes);
        assert_eq!(OmniResponse::parse(&bytes), Ok(response.clone()));
        let bytes = counted(OLD, 15, &unused);
        same(&response.encode(OLD), &bytes);
        let read = OmniResponse::parse(&bytes).expect("not refused");
        assert_eq!((read.interval_us, read.tos), (1015, None));
    }
}

#[test]
fn omni_results() {
    // serv_dem and the PCI numbers, words 19 and 24 to 27, are not written.
    let zeros = [(0, 99), (1, 0), (19, 0), (24, 0), (25, 0), (26, 0), (27, 0)];
    let bytes = counted(NOW, 28, &zeros);
    let results = OmniResults {
        bytes_received: 1002 << 32 | 1003,
        receive_calls: 1004,
        receive_buffer: Some(1005),
        bytes_sent: 1006 << 32 | 1007,
        send_calls: 1008,
        send_buffer: Some(1009),
        failed_sends: 1010,
        transactions: 1011,
        elapsed: float(12),
        cpu: Some(CpuFigures {
            total: float(13),
            split: Some(CpuSplit {
                user: float(14),
                system: float(15),
                iowait: float(16),
                irq: float(17),
                softirq: float(18),
            }),
            method: CpuMethod(1020),
            cpus: 1021,
            peak_id: 1022,
            peak: float(23),
        }),
        retransmissions: Some(1028),
        congestion_control: Name::NONE,
        extension: None,
    };
    same(&results.encode(ResultsLayout::V27), &bytes);
    assert_eq!(
        OmniResults::parse(&bytes, ResultsLayout::V27, true),
        Ok(results)
    );
}

#[test]
fn a_name_where_2_7_has_it_is_of_2_7_whatever_else_there_is() {
    let mut bytes = vec![0; 656];
    bytes[256..260].copy_from_slice(b"slot");
    assert_eq!(ResultsLayout::guess(&bytes, false), ResultsLayout::V26);
    bytes[276..280].copy_from_slice(b"reno");
    assert_eq!(ResultsLayout::guess(&bytes, false), ResultsLayout::V27);
}

/// Builds a classic request from the shared fields; switches come from the bits of `switches`.
fn classic(test: ClassicTest, [rate, length, port]: [u32; 3], switches: u32) -> ClassicRequest {
    ClassicRequest {
        cpu: Some(1001),
        test,
        measure_cpu: switches & 1 != 0,
        cpu_rate: float(rate),
        length: TestLength::Seconds(1000 + length),
        receive_avoid: switches & 2 != 0,
        send_avoid: switches & 4 != 0,
        data_port: (1000 + port) as u16,
        family: WireFamily::V4,
    }
}

#[test]
fn classic_requests() {
    for switches in 0..32u32 {
        let on = |bit: u32| switches >> bit & 1;
        let is_on = |bit: u32| on(bit) == 1;
        let stream = StreamTest {
            send_buffer: Some(1002),
            receive_buffer: Some(1003),
            call_size: Some(1004),
            alignment: 1005,
            offset: 1006,
            no_delay: is_on(3),
            dirty: 1013,
            clean: 1014,
            receive_aio: 1017,
        };
        let exchange = ExchangeTest {
            receive_buffer: Some(1002),
            send_buffer: Some(1003),
            receive_alignment: 1004,
            receive_offset: 1005,
            send_alignment: 1006,
            send_offset: 1007,
            request_size: 1008,
            response_size: 1009,
            no_delay: is_on(3),
        };
        let datagrams = DatagramTest {
            receive_buffer: Some(1002),
            message_size: 1003,
            connect: is_on(3),
            alignment: 1005,
            offset: 1006,
            checksum_off: is_on(4),
        };
        let of_stream = |kind| {
            let switches = [(7, on(3)), (8, on(0)), (11, on(1)), (12, on(2))];
            counted(OLD, 17, &[&[(0, kind), (16, 4)][..], &switches].concat())
        };
        let of_exchange = |kind| {
            let switches = [(10, on(3)), (11, on(0)), (14, on(1)), (15, on(2))];
            counted(OLD, 17, &[&[(0, kind), (17, 4)][..], &switches].concat())
        };
        let of_datagrams = counted(
            OLD,
            14,
            &[
                (0, 16),
                (4, on(3)),
                (7, on(4)),
                (8, on(0)),
                (11, on(1)),
                (12, on(2)),
                (14, 4),
            ],
        );
        let in_stream = [9, 10, 15];
        let in_exchange = [12, 13, 16];
        for (test, shared, bytes) in [
            (ClassicTest::TcpStream(stream), in_stream, of_stream(10)),
            (ClassicTest::TcpMaerts(stream), in_stream, of_stream(94)),
            (ClassicTest::TcpRr(exchange), in_exchange, of_exchange(13)),
            (ClassicTest::TcpCrr(exchange), in_exchange, of_exchange(34)),
            (ClassicTest::TcpCc(exchange), in_exchange, of_exchange(300)),
            (ClassicTest::UdpRr(exchange), in_exchange, of_exchange(19)),
            (
                ClassicTest::UdpStream(datagrams),
                [9, 10, 13],
                of_datagrams.clone(),
            ),
        ] {
            let request = Request::from(classic(test, shared, switches));
            same(&request.encode(OLD), &bytes);
            assert_eq!(Request::parse(&bytes), Ok(request));
        }
    }
}

#[test]
fn classic_responses() {
    for switches in 0..16u32 {
        let on = |bit: u32| switches >> bit & 1;
        let response = |send: u32, length: u32, port: u32, rate: u32| ClassicResponse {
            receive_buffer: Some(1002),
            send_buffer: Some(1000 + send),
            call_size: None,
            no_delay: on(3) == 1,
            measure_cpu: on(0) == 1,
            length: TestLength::Seconds(1000 + length),
            data_port: (1000 + port) as u16,
            cpu_rate: float(rate),
            receive_avoid: on(1) == 1,
            send_avoid: on(2) == 1,
        };
        for kind in ClassicKind::ALL {
            let head = [(0, kind.response_type() as u32), (1, 0)];
            let (expected, bytes) = match kind {
                ClassicKind::TcpStream | ClassicKind::TcpMaerts => {
                    let switches = [(4, on(3)), (5, on(0)), (10, on(1)), (11, on(2))];
                    let expected = ClassicResponse {
                        call_size: Some(1003),
                        ..response(7, 6, 8, 9)
                    };
                    (expected, counted(OLD, 11, &[&head[..], &switches].concat()))
                }
                ClassicKind::UdpStream => {
                    let switches = [(4, on(0)), (8, on(1)), (9, on(2))];
                    let expected = ClassicResponse {
                        no_delay: false,
                        ..response(3, 5, 6, 7)
                    };
                    (expected, counted(OLD, 9, &[&head[..], &switches].concat()))
                }
                _ => {
                    let switches = [(3, on(3)), (4, on(0)), (9, on(1)), (10, on(2))];
                    let bytes = counted(OLD, 10, &[&head[..], &switches].concat());
                    (response(6, 5, 7, 8), bytes)
                }
            };
            same(&expected.encode(kind, OLD), &bytes);
            assert_eq!(ClassicResponse::parse(&bytes, kind), Ok(expected));
        }
    }
}

#[test]
fn classic_results() {
    for kind in ClassicKind::ALL {
        let head = [(0, kind.results_type() as u32), (1, 0)];
        let (expected, bytes) = match kind {
            ClassicKind::TcpStream | ClassicKind::TcpMaerts => {
                // 2⁵² + 1 needs all the bits of a double.
                let double = ((1u64 << 52) + 1) as f64;
                let [high, low] = [32, 0].map(|shift| (double.to_bits() >> shift) as u32);
                let has_buffers = kind == ClassicKind::TcpStream;
                let expected = ClassicResults {
                    bytes: (1 << 52) + 1,
                    calls: 1004,
                    transactions: 0,
                    elapsed: float(5),
                    cpu_total: Some(float(6)),
                    cpu_method: CpuMethod(1008),
                    cpus: 1009,
                    receive_buffer: has_buffers.then_some(1010),
                    send_buffer: has_buffers.then_some(1011),
                };
                let last = if has_buffers { 11 } else { 9 };
                let others = [&head[..], &[(2, high), (3, low), (7, 0)]].concat();
                (expected, counted(OLD, last, &others))
            }
            ClassicKind::UdpStream => {
                let expected = ClassicResults {
                    bytes: 1003,
                    calls: 1002,
                    elapsed: float(4),
                    cpu_total: Some(float(5)),
                    cpu_method: CpuMethod(1006),
                    cpus: 1007,
                    ..ClassicResults::default()
                };
                (expected, counted(OLD, 7, &head))
            }
            _ => {
                let expected = ClassicResults {
                    bytes: 1002,
                    calls: 1003,
                    transactions: 1004,
                    elapsed: float(5),
                    cpu_total: Some(float(6)),
                    cpu_method: CpuMethod(1008),
                    cpus: 1009,
                    ..ClassicResults::default()
                };
                let others = [&head[..], &[(7, 0)]].concat();
                (expected, counted(OLD, 9, &others))
            }
        };
        same(&expected.encode(kind, OLD), &bytes);
        assert_eq!(ClassicResults::parse(&bytes, kind, true), Ok(expected));
    }
}

#[test]
fn counts_of_classic_results_wrap_as_they_do_in_the_original() {
    let results = ClassicResults {
        bytes: (3 << 32) + 5,
        ..ClassicResults::default()
    };
    let bytes = results.encode(ClassicKind::TcpRr, OLD);
    let read = ClassicResults::parse(&bytes, ClassicKind::TcpRr, false).expect("not refused");
    assert_eq!(read.bytes, 5);
}

#[test]
fn a_long_passphrase_is_cut_for_an_old_peer() {
    let long = Passphrase::new(&[b'x'; 300]).expect("fits");
    let bytes = Request::Passphrase(long).encode(OLD);
    assert_eq!(bytes[8..255], [b'x'; 247]);
    assert_eq!(bytes[255], 0, "a C string must end");
}

#[test]
fn extensions() {
    let mark = |text: &[u8; 4]| u32::from_be_bytes(*text);
    // From word 96 on: mark, version, then 1000 + n.
    let tail = |name: &[u8; 4], words: usize, others: &[(usize, u32)]| {
        let others = [&[(0, mark(name)), (1, 1)][..], others].concat();
        counted(OLD, words - 1, &others)[..4 * words].to_vec()
    };
    let pair = |word: u64| (1000 + word) << 32 | (1001 + word);

    let request = RequestExtension {
        features: Features(1002),
        busy_poll_us: 1003,
        pacing_rate: pair(4),
        omit_ms: 1006,
        streams: 1007,
        count: pair(8),
    };
    let bytes = Request::from(OmniRequest {
        extension: Some(request),
        ..OmniRequest::default()
    })
    .encode(NOW);
    same(&bytes[384..424], &tail(b"wbRq", 10, &[]));
    assert_eq!(bytes[424..], [0; 232]);

    let response = ResponseExtension {
        features: Features(1002),
        busy_poll_us: 1003,
        pacing_rate: pair(4),
        omit_ms: 1006,
        streams: 1007,
    };
    let bytes = OmniResponse {
        extension: Some(response),
        ..OmniResponse::default()
    }
    .encode(NOW);
    same(&bytes[384..416], &tail(b"wbRs", 8, &[]));
    assert_eq!(bytes[416..], [0; 240]);

    let signed = |word| pair(word).cast_signed();
    let results = ResultsExtension {
        elapsed_ns: pair(4),
        bytes_after_omit: pair(6),
        transactions_after_omit: pair(8),
        datagrams: Some(DatagramFigures {
            received: pair(10),
            duplicates: pair(12),
            reordered: pair(14),
            highest_sequence: Some(pair(16)),
            foreign: pair(18),
            jitter_ns: pair(20),
            bytes: pair(22),
            latency: Some(LatencyFigures {
                min_ns: signed(24),
                mean_ns: signed(26),
                max_ns: signed(28),
                p50_ns: signed(30),
                p99_ns: signed(32),
            }),
        }),
        tcp: Some(TcpFigures {
            rtt_us: 1034,
            rttvar_us: 1035,
            min_rtt_us: 1036,
            rcv_rtt_us: 1037,
            rcv_space: 1038,
            rcv_ssthresh: 1039,
            snd_cwnd: 1040,
            snd_mss: 1041,
            rcv_mss: 1042,
            pmtu: 1043,
            total_retrans: 1044,
            rcv_ooopack: 1045,
            pacing_rate: pair(46),
            delivery_rate: pair(48),
            bytes_received: pair(50),
            busy_us: pair(52),
            rwnd_limited_us: pair(54),
            sndbuf_limited_us: pair(56),
        }),
    };
    let bytes = OmniResults {
        extension: Some(results),
        ..OmniResults::default()
    }
    .encode(ResultsLayout::V27);
    same(&bytes[384..616], &tail(b"wbRt", 58, &[(2, 7), (3, 0)]));
    assert_eq!(bytes[616..], [0; 40]);
    let read = OmniResults::parse(&bytes, ResultsLayout::V27, false).expect("not refused");
    assert_eq!(read.extension, Some(results));
}
