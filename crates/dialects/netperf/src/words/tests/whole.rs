//! Whole command lines, and arbitrary words.

use super::*;

/// Three transactions of 10 and 20 bytes.
#[test]
fn count_ended_request_response() {
    assert_eq!(
        job("-t TCP_RR -l -3 -- -r 10,20"),
        only("TCP_RR", |j| {
            j.test = SocketTest::Rr;
            j.duration = None;
            j.amount = Some(3);
            j.request_size = 10;
            j.response_size = 20;
        })
    );
}

/// All fields of a control message, with distinct values.
#[test]
fn all_that_the_server_is_told() {
    let line = "-T 0,1 -y 3,4 -Y ef,0x10 -A 64,32 -O 3,4 -W 5,6 -S \
                -- -s 32K,64K -S 128K,16k -m 8K,4K -M 2K,1K -K reno,cubic -P 0,23456";
    assert_eq!(
        job(line),
        stream(|j| {
            j.local = SocketSide {
                cpu: Some(0),
                priority: Some(3),
                tos: Some(0xb8),
                send_width: 5,
                receive_width: 6,
                send_buffer: Some(32_768),
                receive_buffer: Some(65_536),
                send_size: Some(8192),
                receive_size: Some(1024),
                congestion: Some("reno".to_owned()),
                ..SocketSide::default()
            };
            j.remote = SocketSide {
                cpu: Some(1),
                priority: Some(4),
                tos: Some(16),
                send_align: 64,
                receive_align: 32,
                send_offset: 3,
                receive_offset: 4,
                send_buffer: Some(131_072),
                receive_buffer: Some(16_000),
                send_size: Some(4096),
                receive_size: Some(2048),
                congestion: Some("cubic".to_owned()),
                ..SocketSide::default()
            };
            j.options.keepalive = true;
            j.data.server_port = 23_456;
        })
    );
}

#[test]
fn datagrams_over_ipv6() {
    assert_eq!(
        job("-H ::1 -t UDP_STREAM -- -m 100 -H ::1"),
        only("UDP_STREAM", |j| {
            j.protocol = SocketProtocol::Udp;
            j.control.server = "::1".to_owned();
            j.data.server = Some("::1".to_owned());
            j.local.send_size = Some(100);
            j.options.dont_route = true;
        })
    );
}

/// Command line of flent.
#[test]
fn flent() {
    let mut command = read(
        "-P 0 -v 0 -D -0.20 -4 -Y CS0,CS0 -H h -p 12865 -t UDP_RR -l 60 -F /dev/urandom \
         -- -e 2 -H h -k THROUGHPUT,LOCAL_CONG_CONTROL,REMOTE_CONG_CONTROL,TRANSPORT_MSS,\
         LOCAL_TRANSPORT_RETRANS,REMOTE_TRANSPORT_RETRANS,LOCAL_SOCKET_TOS,DIRECTION,\
         ELAPSED_TIME,PROTOCOL",
    );
    assert!(command.select_figures(|_| Err(2)).is_ok());
    assert_eq!(
        *command.job(),
        only("UDP_RR", |j| {
            j.test = SocketTest::Rr;
            j.protocol = SocketProtocol::Udp;
            j.duration = Some(Span::from_secs(60));
            j.control.server = "h".to_owned();
            j.control.family = Family::Ipv4;
            j.control.local_family = Family::Ipv4;
            j.data.server = Some("h".to_owned());
            j.timeout = Some(Span::from_secs(2));
            j.interim = Some(Span::from_millis(200));
            j.local.fill_file = Some("/dev/urandom".to_owned());
            j.local.tos = Some(0);
            j.remote.tos = Some(0);
        })
    );
    let show = &command.show;
    assert_eq!((show.headers, show.verbosity), (false, 0));
    assert_eq!(show.form, OutputForm::KeyValue);
    assert!(show.demo);
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "-[A-Za-z0-9]{1,3}",
        2 => "-?[0-9]{0,20}[KMGkmgsu,.]{0,2}[0-9]{0,3}",
        1 => Just("--".to_owned()),
        1 => "[a-z0-9./:,|;é]{0,8}",
        1 => "\\PC{0,6}",
        1 => (0..tests_known::KNOWN.len()).prop_map(|i| tests_known::KNOWN[i].name.to_owned()),
        1 => Just("-t".to_owned()),
    ]
}

proptest! {
    #[test]
    fn no_words_make_it_panic(words in prop::collection::vec(word(), 0..12)) {
        match netperf(&words) {
            Ok(mut command) => {
                prop_assert_eq!(command.job().problems(), []);
                let _ = command.select_figures(|_| Ok(String::new()));
            }
            Err(refusal) => {
                prop_assert!(refusal.text.ends_with('\n'));
                prop_assert!([0, 1, 255].contains(&refusal.code));
            }
        }
        if let Err(refusal) = netserver(&words) {
            prop_assert!(refusal.text.ends_with('\n'));
        }
    }

    /// A pair given as a whole, or in halves in either order.
    #[test]
    fn halves_make_a_pair(a in 0_u32..1 << 30, b in 0_u32..1 << 30) {
        let whole = job(&format!("-W {a},{b}"));
        prop_assert_eq!(&job(&format!("-W {a}, -W ,{b}")), &whole);
        prop_assert_eq!(&job(&format!("-W ,{b} -W {a},")), &whole);
        prop_assert_eq!(&job(&format!("-W {b} -W {a},")), &whole);
    }
}
