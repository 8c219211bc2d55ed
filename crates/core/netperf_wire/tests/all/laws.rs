//! Laws for all messages: an encoded message reads back the same, arbitrary bytes cause no panic, and the cuts of the
//! stream do not matter.

use proptest::prelude::*;
use wb_netperf_wire::*;

/// Source of numbers for the fields. Proptest generates and shrinks them.
struct Dice(std::vec::IntoIter<u32>);

impl Dice {
    fn new(numbers: Vec<u32>) -> Self {
        Self(numbers.into_iter())
    }

    fn any(&mut self) -> u32 {
        self.0.next().unwrap_or(0)
    }

    fn long(&mut self) -> u64 {
        u64::from(self.any()) << 32 | u64::from(self.any())
    }

    fn is(&mut self) -> bool {
        self.any().is_multiple_of(2)
    }

    fn below(&mut self, limit: u32) -> u32 {
        self.any() % limit
    }

    /// Returns none, or a value up to the largest that fits a signed word.
    fn optional(&mut self) -> Option<u32> {
        self.is().then(|| self.any() >> 1)
    }

    fn amount(&mut self) -> u32 {
        match self.below(8) {
            0 => MAX_SIZE,
            _ => self.below(MAX_SIZE),
        }
    }

    fn size(&mut self) -> Option<u32> {
        self.is().then(|| self.amount())
    }

    fn call_size(&mut self) -> Option<u32> {
        self.size().map(|size| size.max(1))
    }

    fn port(&mut self) -> u16 {
        self.any() as u16
    }

    fn float(&mut self) -> f32 {
        self.any() as f32 / 1000.0
    }

    fn name<const N: usize>(&mut self) -> Name<N> {
        let len = self.below(N as u32);
        let bytes: Vec<u8> = (0..len).map(|_| (self.any() as u8).max(1)).collect();
        Name::new(&bytes).expect("short, without zeros")
    }

    fn address(&mut self) -> WireAddress {
        WireAddress(std::array::from_fn(|_| self.any() as u8))
    }

    fn length(&mut self) -> TestLength {
        match self.below(3) {
            0 => TestLength::Seconds(self.below(i32::MAX as u32) + 1),
            1 => TestLength::Units(self.below(1 << 31) + 1),
            _ => TestLength::UntilTold,
        }
    }

    fn family(&mut self) -> WireFamily {
        [
            WireFamily::Any,
            WireFamily::V4,
            WireFamily::V6,
            WireFamily::Rds,
        ][self.below(4) as usize]
    }

    fn request(&mut self, generation: Generation) -> OmniRequest {
        let is_long = generation == Generation::Words164;
        OmniRequest {
            cpu: self.optional(),
            send_buffer: self.size(),
            send_size: self.call_size(),
            send_alignment: self.amount(),
            send_offset: self.amount(),
            send_width: self.any() >> 1,
            request_size: self.size(),
            receive_buffer: self.size(),
            receive_size: self.call_size(),
            receive_alignment: self.amount(),
            receive_offset: self.amount(),
            receive_width: self.any() >> 1,
            response_size: self.size(),
            flags: Flags(self.any()),
            cpu_rate: self.float(),
            length: self.length(),
            receive_avoid: self.is(),
            send_avoid: self.is(),
            send_dirty: self.optional(),
            receive_dirty: self.optional(),
            receive_clean: self.optional(),
            data_port: self.port(),
            family: self.family(),
            socket_type: [
                WireSocketType::Stream,
                WireSocketType::Datagram,
                WireSocketType::Dccp,
                WireSocketType::SeqPacket,
            ][self.below(4) as usize],
            protocol: self.any() as u8,
            direction: [
                DataDirection::ConnectOnly,
                DataDirection::ServerSends,
                DataDirection::ServerReceives,
                DataDirection::Both,
            ][self.below(4) as usize],
            client_port: self.port(),
            interval_burst: self.any() >> 1,
            interval_us: self.any() >> 1,
            client_address: self.address(),
            server_address: self.address(),
            priority: if is_long { self.optional() } else { None },
            tos: if is_long { self.optional() } else { None },
            congestion_control: if is_long { self.name() } else { Name::NONE },
            fill_file: if is_long { self.name() } else { Name::NONE },
            extension: (is_long && self.is()).then(|| RequestExtension {
                features: Features(self.any()),
                busy_poll_us: self.any(),
                pacing_rate: self.long(),
                omit_ms: self.any(),
                streams: self.any(),
                count: self.long(),
            }),
        }
    }

    fn response(&mut self, generation: Generation) -> OmniResponse {
        let is_long = generation == Generation::Words164;
        OmniResponse {
            receive_buffer: self.optional(),
            receive_size: self.optional(),
            receive_width: self.any() >> 1,
            send_buffer: self.optional(),
            send_size: self.optional(),
            send_width: self.any() >> 1,
            flags: Flags(self.any()),
            cpu_rate: self.float(),
            receive_avoid: self.is(),
            send_avoid: self.is(),
            data_port: self.port(),
            interval_burst: self.any() >> 1,
            interval_us: self.any() >> 1,
            priority: if is_long { self.optional() } else { None },
            tos: if is_long { self.optional() } else { None },
            extension: (is_long && self.is()).then(|| ResponseExtension {
                features: Features(self.any()),
                busy_poll_us: self.any(),
                pacing_rate: self.long(),
                omit_ms: self.any(),
                streams: self.any(),
            }),
        }
    }

    fn results(&mut self, layout: ResultsLayout) -> OmniResults {
        let has_transport = layout != ResultsLayout::V25;
        let is_today = layout == ResultsLayout::V27;
        OmniResults {
            bytes_received: self.long(),
            receive_calls: self.any(),
            receive_buffer: self.optional(),
            bytes_sent: self.long(),
            send_calls: self.any(),
            send_buffer: self.optional(),
            failed_sends: self.any(),
            transactions: self.any(),
            elapsed: self.float(),
            cpu: self.is().then(|| CpuFigures {
                total: self.float(),
                split: is_today.then(|| CpuSplit {
                    user: self.float(),
                    system: self.float(),
                    iowait: self.float(),
                    irq: self.float(),
                    softirq: self.float(),
                }),
                method: CpuMethod(self.any()),
                cpus: self.any(),
                peak_id: self.any().cast_signed(),
                peak: self.float(),
            }),
            retransmissions: if has_transport { self.optional() } else { None },
            congestion_control: if has_transport {
                self.name()
            } else {
                Name::NONE
            },
            extension: (has_transport && self.is()).then(|| self.results_extension()),
        }
    }

    fn results_extension(&mut self) -> ResultsExtension {
        ResultsExtension {
            elapsed_ns: self.long(),
            bytes_after_omit: self.long(),
            transactions_after_omit: self.long(),
            datagrams: self.is().then(|| DatagramFigures {
                received: self.long(),
                duplicates: self.long(),
                reordered: self.long(),
                highest_sequence: self.is().then(|| self.long() >> 1),
                foreign: self.long(),
                jitter_ns: self.long(),
                bytes: self.long(),
                latency: self.is().then(|| LatencyFigures {
                    min_ns: self.long().cast_signed(),
                    mean_ns: self.long().cast_signed(),
                    max_ns: self.long().cast_signed(),
                    p50_ns: self.long().cast_signed(),
                    p99_ns: self.long().cast_signed(),
                }),
            }),
            tcp: self.is().then(|| TcpFigures {
                rtt_us: self.any(),
                rttvar_us: self.any(),
                min_rtt_us: self.any(),
                rcv_rtt_us: self.any(),
                rcv_space: self.any(),
                rcv_ssthresh: self.any(),
                snd_cwnd: self.any(),
                snd_mss: self.any(),
                rcv_mss: self.any(),
                pmtu: self.any(),
                total_retrans: self.any(),
                rcv_ooopack: self.any(),
                pacing_rate: self.long(),
                delivery_rate: self.long(),
                bytes_received: self.long(),
                busy_us: self.long(),
                rwnd_limited_us: self.long(),
                sndbuf_limited_us: self.long(),
            }),
        }
    }

    fn classic_request(&mut self, kind: ClassicKind) -> ClassicRequest {
        let test = match kind {
            ClassicKind::TcpStream => ClassicTest::TcpStream(self.stream_test()),
            ClassicKind::TcpMaerts => ClassicTest::TcpMaerts(self.stream_test()),
            ClassicKind::TcpRr => ClassicTest::TcpRr(self.exchange_test()),
            ClassicKind::TcpCrr => ClassicTest::TcpCrr(self.exchange_test()),
            ClassicKind::TcpCc => ClassicTest::TcpCc(self.exchange_test()),
            ClassicKind::UdpRr => ClassicTest::UdpRr(self.exchange_test()),
            ClassicKind::UdpStream => ClassicTest::UdpStream(DatagramTest {
                receive_buffer: self.size(),
                message_size: self.amount(),
                connect: self.is(),
                alignment: self.amount(),
                offset: self.amount(),
                checksum_off: self.is(),
            }),
        };
        ClassicRequest {
            cpu: self.optional(),
            test,
            measure_cpu: self.is(),
            cpu_rate: self.float(),
            length: self.length(),
            receive_avoid: self.is(),
            send_avoid: self.is(),
            data_port: self.port(),
            family: self.family(),
        }
    }

    fn stream_test(&mut self) -> StreamTest {
        StreamTest {
            send_buffer: self.size(),
            receive_buffer: self.size(),
            call_size: self.call_size(),
            alignment: self.amount(),
            offset: self.amount(),
            no_delay: self.is(),
            dirty: self.any() >> 1,
            clean: self.any() >> 1,
            receive_aio: self.any() >> 1,
        }
    }

    fn exchange_test(&mut self) -> ExchangeTest {
        ExchangeTest {
            receive_buffer: self.size(),
            send_buffer: self.size(),
            receive_alignment: self.amount(),
            receive_offset: self.amount(),
            send_alignment: self.amount(),
            send_offset: self.amount(),
            request_size: self.amount(),
            response_size: self.amount(),
            no_delay: self.is(),
        }
    }

    fn classic_response(&mut self, kind: ClassicKind) -> ClassicResponse {
        let is_stream = matches!(kind, ClassicKind::TcpStream | ClassicKind::TcpMaerts);
        ClassicResponse {
            receive_buffer: self.optional(),
            send_buffer: self.optional(),
            call_size: if is_stream { self.call_size() } else { None },
            no_delay: kind != ClassicKind::UdpStream && self.is(),
            measure_cpu: self.is(),
            length: self.length(),
            data_port: self.port(),
            cpu_rate: self.float(),
            receive_avoid: self.is(),
            send_avoid: self.is(),
        }
    }

    fn classic_results(&mut self, kind: ClassicKind) -> ClassicResults {
        let is_stream = matches!(kind, ClassicKind::TcpStream | ClassicKind::TcpMaerts);
        let cpu_total = self.is().then(|| self.float());
        let buffer = |dice: &mut Self| {
            let size = dice.optional().map(|size| size.max(1));
            size.filter(|_| kind == ClassicKind::TcpStream)
        };
        ClassicResults {
            bytes: if is_stream {
                self.long() >> 11
            } else {
                self.any().into()
            },
            calls: self.any(),
            transactions: if is_stream || kind == ClassicKind::UdpStream {
                0
            } else {
                self.any()
            },
            elapsed: self.float(),
            cpu_total,
            cpu_method: CpuMethod(if cpu_total.is_some() { self.any() } else { 0 }),
            cpus: if cpu_total.is_some() { self.any() } else { 0 },
            receive_buffer: buffer(self),
            send_buffer: buffer(self),
        }
    }
}

const GENERATIONS: [Generation; 2] = [Generation::Words64, Generation::Words164];
const LAYOUTS: [ResultsLayout; 3] = [ResultsLayout::V25, ResultsLayout::V26, ResultsLayout::V27];

/// Cuts `stream` at these places and collects complete messages.
fn framed(framer: &mut Framer, stream: &[u8], cuts: &[usize]) -> Vec<Vec<u8>> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (stream.len() + 1)).collect();
    cuts.extend([0, stream.len()]);
    cuts.sort_unstable();
    let mut messages = Vec::new();
    for piece in cuts.windows(2) {
        framer.push(&stream[piece[0]..piece[1]]);
        messages.extend(std::iter::from_fn(|| framer.next_message()));
        assert!(framer.waiting() < framer.generation().len());
    }
    messages
}

proptest! {
    #[test]
    fn omni_messages_read_back(numbers in prop::collection::vec(any::<u32>(), 220)) {
        for generation in GENERATIONS {
            let mut dice = Dice::new(numbers.clone());
            let request = Request::from(dice.request(generation));
            let bytes = request.encode(generation);
            prop_assert_eq!(bytes.len(), generation.len());
            prop_assert_eq!(Request::parse(&bytes), Ok(request));
            let response = dice.response(generation);
            prop_assert_eq!(OmniResponse::parse(&response.encode(generation)), Ok(response));
        }
        for layout in LAYOUTS {
            let results = Dice::new(numbers.clone()).results(layout);
            let bytes = results.encode(layout);
            prop_assert_eq!(bytes.len(), layout.generation().len());
            let read = OmniResults::parse(&bytes, layout, results.cpu.is_some());
            prop_assert_eq!(read, Ok(results));
        }
    }

    #[test]
    fn classic_messages_read_back(numbers in prop::collection::vec(any::<u32>(), 80)) {
        for (kind, generation) in ClassicKind::ALL.into_iter().flat_map(|k| GENERATIONS.map(|g| (k, g))) {
            let mut dice = Dice::new(numbers.clone());
            let request = Request::from(dice.classic_request(kind));
            prop_assert_eq!(Request::parse(&request.encode(generation)), Ok(request));
            let response = dice.classic_response(kind);
            let bytes = response.encode(kind, generation);
            prop_assert_eq!(ClassicResponse::parse(&bytes, kind), Ok(response));
            let results = dice.classic_results(kind);
            let bytes = results.encode(kind, generation);
            let read = ClassicResults::parse(&bytes, kind, results.cpu_total.is_some());
            prop_assert_eq!(read, Ok(results));
        }
    }

    #[test]
    fn passphrases_read_back(text in prop::collection::vec(1u8.., 0..=247), long in prop::collection::vec(1u8.., 0..=647)) {
        for (text, generation) in [(&text, Generation::Words64), (&text, Generation::Words164), (&long, Generation::Words164)] {
            let request = Request::Passphrase(Passphrase::new(text).expect("fits"));
            prop_assert_eq!(Request::parse(&request.encode(generation)), Ok(request));
        }
    }

    /// A message that parses as a request reads back the same after encoding.
    #[test]
    fn any_bytes_are_read_without_a_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 656),
        kind in prop::sample::select(vec![1, 5, 6, 10, 13, 16, 19, 34, 94, 97, 97, 97, 300, 600, 0x7762_0001, 7]),
        small in any::<u64>(),
        is_marked: bool,
    ) {
        bytes[..4].copy_from_slice(&i32::to_be_bytes(kind));
        // Random words would nearly always be refused as sizes, so make most of them small.
        for word in 2..64usize {
            if small >> word & 1 == 1 || word == 25 {
                bytes[4 * word..4 * word + 3].fill(0);
            }
        }
        if small & 1 == 1 {
            for (word, value) in [(23, 4), (24, 1), (26, 6)] {
                bytes[4 * word..4 * word + 4].copy_from_slice(&u32::to_be_bytes(value));
            }
        }
        if is_marked {
            bytes[384..392].copy_from_slice(b"wbRq\0\0\0\x01");
        }
        for generation in GENERATIONS {
            let bytes = &bytes[..generation.len()];
            if let Ok(request) = Request::parse(bytes) {
                let again = Request::parse(&request.encode(generation));
                // NaN differs from itself, so compare the debug output.
                prop_assert_eq!(format!("{again:?}"), format!("{:?}", Ok::<_, BadMessage>(request)));
            }
            let mut answer = bytes.to_vec();
            answer[4..8].fill(0);
            let _ = OmniResponse::parse(&answer);
            for layout in LAYOUTS {
                let _ = OmniResults::parse(&answer, layout, is_marked);
            }
            let _ = ResultsLayout::guess(&answer, is_marked);
            for kind in ClassicKind::ALL {
                let _ = ClassicResponse::parse(&answer, kind);
                let _ = ClassicResults::parse(&answer, kind, is_marked);
            }
            let _ = Calibration::parse(&answer);
            let _ = SystemText::parse(&answer).map(|text| text.texts().count());
        }
    }

    #[test]
    fn other_lengths_are_no_messages(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
        prop_assume!(bytes.len() != 256 && bytes.len() != 656);
        let bad = BadMessage::Length(bytes.len());
        prop_assert_eq!(Request::parse(&bytes), Err(bad.clone()));
        prop_assert_eq!(OmniResponse::parse(&bytes), Err(AnswerError::Bad(bad)));
        let _ = (Request::type_of(&bytes), ResultsLayout::guess(&bytes, true));
    }

    #[test]
    fn it_does_not_matter_how_the_stream_is_cut(
        count in 1usize..5,
        rest in 0usize..256,
        cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        for generation in GENERATIONS {
            let len = generation.len();
            let stream: Vec<u8> = (0..count * len + rest).map(|i| (i * 7 / 3) as u8).collect();
            let mut framer = Framer::new(generation);
            let messages = framed(&mut framer, &stream, &cuts);
            let expected: Vec<_> = stream.chunks_exact(len).map(<[u8]>::to_vec).collect();
            prop_assert_eq!(messages, expected);
            prop_assert_eq!(framer.waiting(), rest);
            prop_assert_eq!(framer.is_at_boundary(), rest == 0);
            prop_assert!(!framer.may_be_old());
        }
    }
}

#[test]
fn a_message_cut_at_any_point_is_whole_only_at_its_end() {
    let bytes = Request::from(OmniRequest::default()).encode(Generation::Words164);
    for cut in 0..=bytes.len() {
        let mut framer = Framer::new(Generation::Words164);
        framer.push(&bytes[..cut]);
        assert_eq!(framer.may_be_old(), cut == 256 || cut == 512, "{cut} bytes");
        if cut < bytes.len() {
            assert_eq!(framer.next_message(), None);
            framer.push(&bytes[cut..]);
        }
        assert_eq!(framer.next_message().as_ref(), Some(&bytes));
        assert_eq!(framer.next_message(), None);
        assert!(framer.is_at_boundary());
    }
}

#[test]
fn an_old_peer_is_noticed_and_served() {
    let passphrase = Request::Passphrase(Passphrase::new(b"x").expect("fits"));
    let test = Request::from(OmniRequest::default());
    let mut framer = Framer::new(Generation::Words164);
    assert!(!framer.may_be_old(), "nothing is no sign");
    framer.push(&passphrase.encode(Generation::Words64));
    framer.push(&test.encode(Generation::Words64));
    assert_eq!(framer.next_message(), None);
    assert!(framer.may_be_old());
    framer.switch(Generation::Words64);
    assert!(!framer.may_be_old());
    for request in [passphrase, test] {
        let bytes = framer.next_message().expect("whole");
        assert_eq!(Request::parse(&bytes), Ok(request));
    }

    // After a long message, 256 bytes are an incomplete message.
    let mut framer = Framer::new(Generation::Words164);
    framer.push(&[0; 656 + 256]);
    assert!(framer.next_message().is_some());
    assert_eq!(framer.waiting(), 256);
    assert!(!framer.may_be_old());
}
