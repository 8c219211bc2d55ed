//! Single options: one line for each row of a table, with its effect.

use super::*;

type Change = fn(&mut SocketJob);
type Shown = fn(&NetperfCommand) -> bool;

/// Global options that change the test.
const GLOBAL: &[(&str, Change)] = &[
    ("-4", |j| {
        j.control.family = Family::Ipv4;
        j.control.local_family = Family::Ipv4;
    }),
    ("-6", |j| {
        j.control.family = Family::Ipv6;
        j.control.local_family = Family::Ipv6;
        j.control.server = "::1".to_owned();
    }),
    ("-a 16", |j| {
        j.local.send_align = 16;
        j.local.receive_align = 16;
    }),
    ("-a ,16", |j| j.local.receive_align = 16),
    ("-A 4K,64", |j| {
        j.remote.send_align = 4096;
        j.remote.receive_align = 64;
    }),
    ("-b 5", |j| {
        j.local.burst = 5;
        j.local.burst_interval = Span::from_millis(1);
    }),
    ("-b ,5 -w 3us,2s", |j| {
        j.remote.burst = 5;
        j.local.burst_interval = Span::from_nanos(3_000);
        j.remote.burst_interval = Span::from_secs(2);
    }),
    ("-c", |j| j.local.measure_cpu = true),
    ("-c 100 -d", |j| j.local.measure_cpu = true),
    ("-C", |j| j.remote.measure_cpu = true),
    ("-Cc", |j| {
        j.remote.measure_cpu = true;
        j.local.measure_cpu = true;
    }),
    ("-D 0.25,7", |j| j.interim = Some(Span::from_millis(250))),
    ("-D -0.20", |j| j.interim = Some(Span::from_millis(200))),
    ("-D ,7", |j| j.interim = Some(Span::from_secs(1))),
    ("-F a,b", |j| {
        j.local.fill_file = Some("a".to_owned());
        j.remote.fill_file = Some("b".to_owned());
    }),
    ("-F ,b", |j| j.remote.fill_file = Some("b".to_owned())),
    ("-H h", |j| j.control.server = "h".to_owned()),
    ("-H h,6", |j| {
        j.control.server = "h".to_owned();
        j.control.family = Family::Ipv6;
    }),
    ("-H ,inet6", |j| {
        j.control.server = "::1".to_owned();
        j.control.family = Family::Ipv6;
    }),
    ("-4 -H h,6", |j| {
        j.control.server = "h".to_owned();
        j.control.family = Family::Ipv6;
        j.control.local_family = Family::Ipv4;
    }),
    ("-i 5", |j| j.confidence = confidence(99, 5.0, 5, 5)),
    ("-I 95,10", |j| j.confidence = confidence(95, 10.0, 3, 10)),
    ("-r -I 95,10", |j| {
        j.confidence = confidence(95, 10.0, 3, 10);
        j.confidence.as_mut().unwrap().result_only = true;
    }),
    ("-j", |j| j.latency = true),
    ("-l 20", |j| j.duration = Some(Span::from_secs(20))),
    ("-l1K", |j| j.duration = Some(Span::from_secs(1024))),
    ("-l 0", |j| j.duration = None),
    ("-l -5", |j| {
        j.duration = None;
        j.amount = Some(5);
    }),
    ("-l -8G", |j| {
        j.duration = None;
        j.amount = Some(8 << 30);
    }),
    ("-L h,4", |j| {
        j.control.local = Some("h".to_owned());
        j.control.local_family = Family::Ipv4;
    }),
    ("-N", |j| {
        j.control.none = true;
        j.data.server_port = 9;
    }),
    ("-o 1", |j| {
        j.local.send_offset = 1;
        j.local.receive_offset = 1;
    }),
    ("-O 1,2", |j| {
        j.remote.send_offset = 1;
        j.remote.receive_offset = 2;
    }),
    ("-p 4444", |j| j.control.port = 4444),
    ("-p 4444,5555", |j| {
        j.control.port = 4444;
        j.control.local_port = 5555;
    }),
    ("-s 7", |j| j.wait = Span::from_secs(7)),
    ("-S", |j| j.options.keepalive = true),
    ("-t tcp_Maerts", |j| {
        j.name = "TCP_MAERTS".to_owned();
        j.test = SocketTest::Receive;
    }),
    ("-T 0", |j| {
        j.local.cpu = Some(0);
        j.remote.cpu = Some(0);
    }),
    ("-T 0,", |j| j.local.cpu = Some(0)),
    ("-T -1,1", |j| j.remote.cpu = Some(1)),
    ("-w 5", |j| j.local.burst_interval = Span::from_millis(5)),
    ("-W 3,4", |j| {
        j.local.send_width = 3;
        j.local.receive_width = 4;
    }),
    ("-y 3", |j| {
        j.local.priority = Some(3);
        j.remote.priority = Some(3);
    }),
    ("-Y ,0x10", |j| j.remote.tos = Some(16)),
    ("-Y CS0,ef", |j| {
        j.local.tos = Some(0);
        j.remote.tos = Some(0xb8);
    }),
    ("-Z word", |j| {
        j.control.passphrase = Some("word".to_owned())
    }),
];

/// Global options that change the output.
const SHOWN: &[(&str, Shown)] = &[
    ("-B x", |c| c.show.brand.as_deref() == Some("x")),
    ("-c", |c| c.show.local_cpu && !c.show.remote_cpu),
    ("-C", |c| c.show.remote_cpu && !c.show.local_cpu),
    ("-dd -d", |c| c.debug == 3),
    ("-D 1", |c| c.show.demo),
    ("-f M", |c| c.show.unit == Some('M')),
    ("-f kbit", |c| c.show.unit == Some('k')),
    ("-F a,b", |c| {
        c.show.local_fill_file.as_deref() == Some("a")
            && c.show.remote_fill_file.as_deref() == Some("b")
    }),
    ("-k 3", |c| dirty(c)),
    ("-K 3", |c| dirty(c)),
    ("-n 4", |c| c.cpus == Some(4)),
    ("-P 0", |c| !c.show.headers),
    ("-P7", |c| c.show.headers),
    ("-T ,1", |c| c.show.cpu_bind),
    ("-v 2", |c| c.show.verbosity == 2),
    ("-v 0", |c| c.show.verbosity == 0),
];

fn dirty(command: &NetperfCommand) -> bool {
    command.notes
        == [NoteLine {
            text: "I don't know how to get dirty.\n".to_owned(),
            to_stdout: true,
        }]
}

/// Options of the test.
const OF_THE_TEST: &[(&str, Change)] = &[
    ("-4", |j| j.data.family = Family::Ipv4),
    ("-6", |j| j.data.family = Family::Ipv6),
    ("-a", |j| j.options.defer_accept = true),
    ("-b 5", |j| j.first_burst = 5),
    ("-B", |j| j.options.packet_info = true),
    ("-C", |j| j.options.cork = true),
    ("-d rr", |_| ()),
    ("-D", |j| j.options.no_delay = true),
    ("-e 2", |j| j.timeout = Some(Span::from_secs(2))),
    ("-e 0", |_| ()),
    ("-f", |j| j.options.dont_fragment = true),
    ("-F", |j| j.options.fast_open = true),
    ("-g", |j| j.options.debug = true),
    ("-G 500", |j| j.options.max_segment = Some(500)),
    ("-H h", |j| j.data.server = Some("h".to_owned())),
    ("-H 10.0.0.0/8,4", |j| {
        j.data.server = Some("10.0.0.0".to_owned());
        j.data.server_prefix = Some(8);
        j.data.family = Family::Ipv4;
    }),
    ("-i 3", |_| ()),
    ("-I", |j| j.local.send_by = SendBy::Write),
    ("-j 3", |_| ()),
    ("-k", |_| ()),
    ("-K reno", |j| {
        j.local.congestion = Some("reno".to_owned());
        j.remote.congestion = Some("reno".to_owned());
    }),
    ("-K ,ab", |j| j.remote.congestion = Some("ab".to_owned())),
    ("-l 5", |j| j.options.multicast_ttl = Some(5)),
    ("-L ::1/64", |j| {
        j.data.local = Some("::1".to_owned());
        j.data.local_prefix = Some(64);
    }),
    ("-m 8K", |j| j.local.send_size = Some(8192)),
    ("-m ,8K", |j| j.remote.send_size = Some(8192)),
    ("-m 0", |_| ()),
    ("-M 2K", |j| j.remote.receive_size = Some(2048)),
    ("-M 2K,1K", |j| {
        j.remote.receive_size = Some(2048);
        j.local.receive_size = Some(1024);
    }),
    ("-n", |j| j.options.connect_local = true),
    ("-N", |j| j.options.connect_remote = true),
    ("-o", |_| ()),
    ("-O", |_| ()),
    ("-p 6000", |j| {
        j.client_ports = Some(PortRange::single(6000))
    }),
    ("-p 6000,6100", |j| {
        j.client_ports = Some(PortRange {
            first: 6000,
            last: 6100,
        });
    }),
    ("-p ,6100", |j| {
        j.client_ports = Some(PortRange {
            first: 5000,
            last: 6100,
        });
    }),
    ("-P 7002", |j| {
        j.data.local_port = 7002;
        j.data.server_port = 7002;
    }),
    ("-P 0,7002", |j| j.data.server_port = 7002),
    ("-q 1000", |j| j.local.pacing_bps = Some(8000)),
    ("-r 5", |j| {
        j.request_size = 5;
        j.response_size = 5;
    }),
    ("-r ,5", |j| j.response_size = 5),
    ("-R 0", |j| j.options.dont_route = true),
    ("-R 1", |_| ()),
    ("-s 4K", |j| {
        j.local.send_buffer = Some(4096);
        j.local.receive_buffer = Some(4096);
    }),
    ("-s -1,4K", |j| j.local.receive_buffer = Some(4096)),
    ("-S ,16k", |j| j.remote.receive_buffer = Some(16_000)),
    ("-t dgram", |j| j.socket_type = Some(SocketType::Dgram)),
    ("-t stream", |_| ()),
    ("-T SCTP", |j| j.protocol = SocketProtocol::Sctp),
    ("-t dgram -T udp", |j| j.protocol = SocketProtocol::Udp),
    ("-u word", |_| ()),
    ("-U", |j| j.options.retry_connect = true),
    ("-V", |j| {
        j.local.receive_by = ReceiveBy::Splice;
        j.remote.receive_by = ReceiveBy::Splice;
    }),
    ("-w 3", |_| ()),
    ("-W 3", |j| j.local.send_width = 3),
];

/// Options of the older tests.
const OF_OLDER_TESTS: &[(&str, Change)] = &[
    ("-4", |j| j.data.family = Family::Ipv4),
    ("-6", |j| j.data.family = Family::Ipv6),
    ("-a", |_| ()),
    ("-A", |_| ()),
    ("-b 5", |_| ()),
    ("-C", |j| j.options.cork = true),
    ("-D", |j| j.options.no_delay = true),
    ("-H h,6", |j| {
        j.data.server = Some("h".to_owned());
        j.data.family = Family::Ipv6;
    }),
    ("-L h,4", |j| {
        j.data.local = Some("h".to_owned());
        j.data.family = Family::Ipv4;
    }),
    ("-m 8K", |j| j.local.send_size = Some(8192)),
    ("-M 2K", |j| j.remote.receive_size = Some(2048)),
    ("-n", |_| ()),
    ("-N", |_| ()),
    ("-p 6000", |j| {
        j.client_ports = Some(PortRange::single(6000))
    }),
    ("-P ,99", |j| j.data.server_port = 99),
    ("-r 5", |_| ()),
    ("-R 0", |j| j.options.dont_route = true),
    ("-s 1K", |j| {
        j.local.send_buffer = Some(1024);
        j.local.receive_buffer = Some(1024);
    }),
    ("-S 2K,", |j| j.remote.send_buffer = Some(2048)),
    ("-t dgram", |_| ()),
    ("-T udp", |_| ()),
    ("-V", |_| ()),
    ("-w 3", |_| ()),
    ("-W 3", |j| j.local.send_width = 3),
    ("-z", |_| ()),
];

#[test]
fn every_global_option() {
    for (line, change) in GLOBAL {
        assert_eq!(job(line), stream(*change), "{line}");
    }
    for (line, shown) in SHOWN {
        assert!(shown(&read(line)), "{line}");
    }
}

#[test]
fn every_option_of_the_test() {
    for (line, change) in OF_THE_TEST {
        let rr = only("TCP_RR", |j| {
            j.test = SocketTest::Rr;
            change(j);
        });
        assert_eq!(job(&format!("-t TCP_RR -- {line}")), rr, "{line}");
    }
}

#[test]
fn every_option_of_the_older_tests() {
    for (line, change) in OF_OLDER_TESTS {
        let mss = only("TCP_MSS", |j| {
            j.test = SocketTest::Mss;
            j.control.classic = true;
            change(j);
        });
        assert_eq!(job(&format!("-t TCP_MSS -- {line}")), mss, "{line}");
    }
}

/// Finds rows that have no line above and would not be tested.
#[test]
fn no_row_is_forgotten() {
    let letters = |lines: Vec<&str>| -> String {
        lines
            .iter()
            .flat_map(|l| l.split(' '))
            .filter_map(|w| w.strip_prefix('-'))
            .filter_map(|w| w.chars().next())
            .collect()
    };
    let global = GLOBAL.iter().map(|r| r.0).chain(SHOWN.iter().map(|r| r.0));
    let mut global = letters(global.collect());
    let mut test = letters(OF_THE_TEST.iter().map(|r| r.0).collect());
    let mut older = letters(OF_OLDER_TESTS.iter().map(|r| r.0).collect());
    // Options that end the program, and one for the next test.
    global.push_str("hV");
    test.push_str("hc");
    older.push('h');
    let rows = |options: &[NetperfOption<TypedOptions>]| {
        options.iter().map(|o| o.letter).collect::<String>()
    };
    for (options, tested, of_the_original) in [
        (
            global::OPTIONS,
            &global,
            "A:a:b:B:CcdD:f:F:H:hi:I:jk:K:l:L:n:NO:o:P:p:rSs:t:T:v:VW:w:y:Y:Z:46",
        ),
        (
            omni::OPTIONS,
            &test,
            "aBb:cCd:De:fFgG:hH:i:Ij:kK:l:L:m:M:nNoOp:P:q:r:R:s:S:t:T:u:UVw:W:46",
        ),
        (
            sockets::OPTIONS,
            &older,
            "aAb:CDnNhH:L:m:M:p:P:r:R:s:S:t:T:Vw:W:z46",
        ),
    ] {
        let rows = rows(options);
        for letter in rows.chars() {
            assert!(tested.contains(letter), "-{letter} is not tested");
            assert_eq!(rows.matches(letter).count(), 1, "-{letter}");
        }
        for (at, letter) in of_the_original.char_indices().filter(|(_, c)| *c != ':') {
            let row = options.iter().find(|o| o.letter == letter);
            let row = row.unwrap_or_else(|| panic!("-{letter} is missing"));
            let takes = of_the_original[at + 1..].starts_with(':');
            assert_eq!(
                matches!(row.argument, getopt::OptionArgument::One(_)),
                takes,
                "-{letter}"
            );
        }
        assert_eq!(
            rows.len(),
            of_the_original.chars().filter(|c| *c != ':').count()
        );
    }
}
