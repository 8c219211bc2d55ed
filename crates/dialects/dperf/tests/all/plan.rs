//! Translation of configurations into plans.

use proptest::prelude::*;

use wb_dperf::{Code, Problem, TranslateOptions, TranslatedPlan, accepted, fuzz, parse, translate};
use wb_model::load::{
    HttpRequest, LoadAnswer, LoadClose, LoadEnd, LoadJob, LoadMessage, LoadReading, LoadRise,
    LoadTransport, TupleOrder,
};
use wb_model::units::Span;

const CLIENT: &str = "mode client
cpu 0
port if:a0 6.6.241.100 6.6.241.27
client 6.6.241.100 1
server 6.6.241.27 1
cps 10k
";

const SERVER: &str = "mode server
cpu 0
port if:b0 6.6.241.27 6.6.241.1
client 6.6.241.100 1
server 6.6.241.27 1
";

fn options() -> TranslateOptions {
    let locators = [("0000:1b:00.0", "eth1"), ("1B:00.1", "wb-x-b/b0")];
    let locators = locators.map(|(device, port)| (device.to_owned(), port.parse().unwrap()));
    TranslateOptions {
        locators: locators.into(),
    }
}

fn run(text: &str) -> Result<TranslatedPlan, Vec<Problem>> {
    let parsed = parse("a.conf", text);
    let config = parsed
        .config
        .unwrap_or_else(|| panic!("{text}: {:?}", parsed.problems));
    translate(&config, &options())
}

fn all(text: &str) -> TranslatedPlan {
    run(text).unwrap_or_else(|problems| panic!("{text}: {problems:#?}"))
}

/// The job of the only port, after a round trip through TOML.
fn job(text: &str) -> LoadJob {
    let made = all(text);
    assert_eq!((made.ports.len(), made.jobs.len()), (1, 1), "{text}");
    let written = toml::to_string_pretty(&made.jobs[0]).unwrap();
    let read: LoadJob = toml::from_str(&written).unwrap_or_else(|e| panic!("{written}: {e}"));
    assert_eq!(read, made.jobs[0], "{written}");
    read
}

/// A base configuration with additional lines.
fn with(base: &str, lines: &[&str]) -> LoadJob {
    job(&format!("{base}{}", lines.join("\n")))
}

fn shown(items: &[impl ToString]) -> String {
    let items: Vec<_> = items.iter().map(ToString::to_string).collect();
    items.join(" ")
}

fn told(text: &str) -> Vec<String> {
    let problems = run(text).expect_err("a problem");
    problems.iter().map(ToString::to_string).collect()
}

fn built_in() -> HttpRequest {
    HttpRequest {
        method: "GET".to_owned(),
        path: "/".to_owned(),
        host: "dperf".to_owned(),
        body: 0,
        size: 0,
    }
}

#[test]
fn a_plain_client() {
    let made = all(CLIENT);
    let port = &made.ports[0];
    assert_eq!(port.name, "port 1");
    assert_eq!(port.locator.to_string(), "a0");
    assert_eq!((port.workers, port.cpus.as_slice()), (1, &[0][..]));
    assert_eq!(shown(&port.addresses), "6.6.241.100");
    assert_eq!(port.gateway, Some("6.6.241.27".parse().unwrap()));
    assert_eq!(made.notes, [""; 0]);

    let job = job(CLIENT);
    assert_eq!(
        (job.name.as_str(), job.port.as_str()),
        ("client 1", "port 1")
    );
    assert_eq!(job.gateway_mac, None);
    assert_eq!(
        (job.end, job.transport),
        (LoadEnd::Client, LoadTransport::Tcp)
    );
    assert_eq!(shown(&job.clients), "6.6.241.100");
    assert_eq!(shown(&job.servers), "6.6.241.27");
    assert_eq!(job.client_ports.to_string(), "1-65535");
    assert_eq!(job.server_ports.to_string(), "80");
    assert_eq!(job.order, TupleOrder::Sequential);
    assert!(!job.server_per_worker && job.destinations.is_empty());
    assert_eq!(
        (job.vlan, job.vxlan.clone(), job.tos, job.ttl),
        (None, None, 0, 64)
    );
    assert_eq!(job.request, LoadMessage::Http(built_in()));
    assert_eq!(job.reading, LoadReading::Segment);
    assert_eq!((job.requests, job.pipeline, job.flood), (1, 1, false));
    assert_eq!(job.interval, Span::default());
    assert_eq!(job.close, LoadClose::Fin);
    assert_eq!((job.rate.cps, job.rate.cc), (Some(10_000), None));
    assert_eq!(job.rate.group, 4);
    assert_eq!(job.batch, 0);
    let shape = &job.shape;
    assert_eq!(shape.wait, Span::from_secs(3));
    assert_eq!(
        (shape.ramp, shape.rise),
        (Span::from_secs(30), LoadRise::Linear)
    );
    assert_eq!(shape.duration, Span::from_secs(60));
    assert_eq!(shape.drain, Span::from_secs(4));
    let tcp = &job.tcp;
    assert_eq!(
        (tcp.mss, tcp.window, tcp.in_flight),
        (1460, 58_400 << 13, 0)
    );
    assert_eq!(tcp.retransmit, Span::from_secs(2));
    assert_eq!((tcp.tries, tcp.backoff), (3, false));
    for limit in [
        tcp.connect_timeout,
        tcp.response_timeout,
        tcp.close_timeout,
        tcp.time_wait,
    ] {
        assert_eq!(limit, Span::default());
    }
    assert!(tcp.acknowledge && tcp.reset_unknown && tcp.like_dperf);
}

#[test]
fn a_plain_server() {
    let made = all(SERVER);
    assert_eq!(shown(&made.ports[0].addresses), "6.6.241.27");
    let plain = job(SERVER);
    assert_eq!(
        (plain.name.as_str(), plain.end),
        ("server 1", LoadEnd::Server)
    );
    assert_eq!(plain.answer, LoadAnswer::Http(14));
    assert_eq!((plain.requests, plain.reading), (1, LoadReading::Segment));
    assert_eq!(plain.rate, wb_model::load::LoadRate::default());
    assert_eq!(
        (plain.shape.wait, plain.shape.ramp),
        (Span::default(), Span::default())
    );
    assert_eq!(plain.shape.duration, Span::from_secs(60));
    assert_eq!(plain.tcp.retransmit, Span::from_millis(2200));
    assert_eq!(plain.tcp.idle_timeout, Span::from_secs(8));
    let kept = with(
        SERVER,
        &["keepalive 5s 9", "retransmit_timeout 3", "protocol http"],
    );
    assert_eq!((kept.requests, kept.interval), (0, Span::default()));
    assert_eq!(kept.reading, LoadReading::Segment);
    assert_eq!(kept.tcp.retransmit, Span::from_millis(3300));
    assert_eq!(kept.tcp.idle_timeout, Span::from_secs(17));
}

#[test]
fn answers() {
    for (lines, answer, in_flight) in [
        (&["payload_size 84"][..], LoadAnswer::Bytes(84), 0),
        (
            &["payload_size 84", "payload_random"],
            LoadAnswer::Random(84),
            0,
        ),
        (&["payload_size 85"], LoadAnswer::Http(0), 0),
        (&["payload_size 1460"], LoadAnswer::Http(1375), 0),
        (&["payload_size 3000"], LoadAnswer::Http(4295), 4),
        (
            &["payload_size 3000", "send_window 16"],
            LoadAnswer::Http(4295),
            16,
        ),
        (&["payload_file x"], LoadAnswer::File("x".to_owned()), 0),
        (&["protocol udp"], LoadAnswer::Bytes(0), 0),
        (
            &["protocol udp", "payload_size 200"],
            LoadAnswer::Bytes(200),
            0,
        ),
    ] {
        let job = with(SERVER, lines);
        assert_eq!(
            (&job.answer, job.tcp.in_flight),
            (&answer, in_flight),
            "{lines:?}"
        );
        assert!(!job.random_filler, "{lines:?}");
    }
    assert!(with(SERVER, &["payload_size 100", "payload_random"]).random_filler);
    assert_eq!(with(SERVER, &["protocol udp"]).requests, 0);
    let each = SERVER.replace("cpu 0", "cpu 0-1") + "rss\npayload_size 0 3000";
    let job = job(&each);
    assert_eq!(
        job.worker_answers,
        [LoadAnswer::Http(14), LoadAnswer::Http(4295)]
    );
    assert_eq!(job.tcp.in_flight, 4);
}

#[test]
fn requests() {
    let sized = |size| HttpRequest { size, ..built_in() };
    for (lines, request) in [
        (&["payload_size 84"][..], LoadMessage::Bytes(84)),
        (
            &["payload_size 84", "payload_random"],
            LoadMessage::Random(84),
        ),
        (&["payload_size 85"], LoadMessage::Http(sized(85))),
        (&["payload_size 1400"], LoadMessage::Http(sized(1400))),
        (&["packet_size 64"], LoadMessage::Bytes(10)),
        (&["protocol udp", "packet_size 64"], LoadMessage::Bytes(22)),
        (&["protocol udp"], LoadMessage::Bytes(0)),
        (
            &["payload_file a.bin"],
            LoadMessage::File("a.bin".to_owned()),
        ),
        (
            &["http_method POST", "payload_size 150"],
            LoadMessage::Http(HttpRequest {
                method: "POST".to_owned(),
                ..sized(150)
            }),
        ),
        (
            &["protocol http", "http_host example.net", "http_path /a?b"],
            LoadMessage::Http(HttpRequest {
                host: "example.net".to_owned(),
                path: "/a?b".to_owned(),
                ..built_in()
            }),
        ),
    ] {
        assert_eq!(with(CLIENT, lines).request, request, "{lines:?}");
    }
    assert!(with(CLIENT, &["payload_size 100", "payload_random"]).random_filler);
    assert_eq!(with(CLIENT, &["protocol http"]).reading, LoadReading::Http);
    assert_eq!(
        told(&format!(
            "{CLIENT}protocol http\nhttp_host example.net\npayload_size 90"
        )),
        [
            "a.conf:9: E_PAYLOAD_SMALL: a request of 90 bytes: path and host alone need 91; \
          allowed: up to 84 bytes, or from 91"
        ]
    );
    assert_eq!(
        told(&format!("{CLIENT}protocol http\nhttp_path /é")),
        ["a.conf:8: E_VALUE: port 1: expected / and visible ASCII characters, got \"/é\""]
    );
}

#[test]
fn connections() {
    let kept = with(CLIENT, &["keepalive 10us 5"]);
    assert_eq!(
        (kept.requests, kept.interval),
        (6, Span::from_nanos(10_000))
    );
    assert_eq!(with(CLIENT, &["keepalive 1s"]).requests, 0);
    let only_cc = CLIENT.replace("cps 10k", "cc 60000\nkeepalive 1s");
    let held = job(&only_cc);
    assert_eq!((held.rate.cps, held.rate.cc), (Some(1000), Some(60_000)));
    let odd = with(
        CLIENT,
        &[
            "fast_close",
            "disable_ack",
            "tcp_rst 0",
            "mss 1000",
            "client_hop",
        ],
    );
    assert_eq!(
        (odd.close, odd.order),
        (LoadClose::Reset, TupleOrder::Stride)
    );
    assert_eq!(
        (odd.tcp.mss, odd.tcp.acknowledge, odd.tcp.reset_unknown),
        (1000, false, false)
    );
    let more = with(
        CLIENT,
        &[
            "tos 0x10",
            "vlan 100",
            "wait 5",
            "slow_start 10",
            "tx_burst 256",
        ],
    );
    assert_eq!((more.tos, more.vlan, more.batch), (16, Some(100), 256));
    assert_eq!(
        (more.shape.wait, more.shape.ramp),
        (Span::from_secs(5), Span::from_secs(10))
    );
    // A worker with less than one group per second opens its whole share at once.
    for (lines, group) in [("cps 3", 3), ("cps 35", 5), ("cps 1k\nlaunch_num 20", 20)] {
        assert_eq!(
            job(&CLIENT.replace("cps 10k", lines)).rate.group,
            group,
            "{lines}"
        );
    }
}

#[test]
fn datagrams() {
    let once = with(CLIENT, &["protocol udp", "retransmit_timeout 3"]);
    assert_eq!((once.transport, once.requests), (LoadTransport::Udp, 1));
    assert_eq!(once.tcp.response_timeout, Span::from_secs(3));
    let lines = ["protocol udp", "pipeline 4", "cc 1", "keepalive 0us"];
    let row = with(CLIENT, &lines);
    assert_eq!(
        (row.pipeline, row.requests, row.interval),
        (4, 0, Span::default())
    );
    assert_eq!(row.tcp.response_timeout, Span::default());
    let made = all(&format!("{CLIENT}protocol udp\nkeepalive 1s 7"));
    assert_eq!(made.jobs[0].requests, 0);
    assert!(
        made.notes[0].starts_with("a.conf:8: NUM has no effect"),
        "{:?}",
        made.notes
    );
}

#[test]
fn one_way() {
    let text = "mode client
cpu 0-15
rss l3l4
port 0000:1b:00.0 10.10.10.10 10.10.10.1 02:00:00:00:00:01
client 10.10.10.10 1
server 10.10.10.11 1
protocol udp
flood
packet_size 64
cc 500k
cps 50k
keepalive 100ms
listen 8050 50
lport_range 1000 65535";
    let made = all(text);
    assert_eq!(made.ports[0].locator.to_string(), "eth1");
    assert_eq!(made.ports[0].workers, 16);
    let job = job(text);
    assert_eq!(job.gateway_mac.unwrap().to_string(), "02:00:00:00:00:01");
    assert!(job.flood && !job.server_per_worker);
    assert_eq!(job.request, LoadMessage::Bytes(22));
    assert_eq!((job.rate.cc, job.rate.cps), (Some(500_000), Some(50_000)));
    assert_eq!(job.rate.group, 5);
    assert_eq!(job.interval, Span::from_millis(100));
    assert_eq!(job.server_ports.to_string(), "8050-8099");
    assert_eq!(job.client_ports.to_string(), "1000-65535");
}

#[test]
fn tunnels() {
    let text = "mode client
cpu 0-4
port 0000:1b:00.0 198.18.0.1 198.19.0.1
vxlan 7 02:00:00:00:00:01 02:00:00:00:00:02 198.18.0.10 5 198.19.0.10 1
client 2001:2::1:10 100
server 2001:2::2:10 5
cps 1m";
    let made = all(text);
    assert_eq!(
        shown(&made.ports[0].addresses),
        "198.18.0.1 198.18.0.10-198.18.0.14"
    );
    let job = job(text);
    assert!(job.server_per_worker && !job.tcp.reset_unknown);
    assert_eq!(job.tcp.mss, 1440);
    let tunnel = job.vxlan.unwrap();
    assert_eq!(tunnel.vni, 7);
    assert_eq!(tunnel.src_mac.to_string(), "02:00:00:00:00:01");
    assert_eq!(tunnel.dst_mac.to_string(), "02:00:00:00:00:02");
    assert_eq!(tunnel.local.to_string(), "198.18.0.10-198.18.0.14");
    assert_eq!(tunnel.remote.to_string(), "198.19.0.10");
}

const TWO: &str = "cpu 0-3
port 0000:1b:00.0 198.18.0.1 198.18.0.254
port 0000:1b:00.1 2001:2::1 2001:2::fe
client 198.18.0.10 2 198.18.0.20
client 2001:2::10 4
server 198.19.0.1 1
server 2001:2:1::1 1
rss
";

#[test]
fn two_ports() {
    let made = all(&format!("{TWO}cps 7\ncc 1k\nkeepalive 1s"));
    let [one, two] = &made.ports[..] else {
        panic!("two ports")
    };
    assert_eq!(
        (one.cpus.as_slice(), two.cpus.as_slice()),
        (&[0, 1][..], &[2, 3][..])
    );
    assert_eq!(two.locator.to_string(), "wb-x-b/b0");
    assert_eq!(
        shown(&one.addresses),
        "198.18.0.1 198.18.0.10-198.18.0.11 198.18.0.20"
    );
    let [one, two] = &made.jobs[..] else {
        panic!("two jobs")
    };
    assert_eq!((one.rate.cps, two.rate.cps), (Some(5), Some(2)));
    assert_eq!((one.rate.group, two.rate.group), (4, 1));
    assert_eq!((one.rate.cc, two.rate.cc), (Some(500), Some(500)));
    assert_eq!((one.tcp.mss, two.tcp.mss), (1460, 1440));
    assert_eq!(shown(&two.clients), "2001:2::10-2001:2::13");
    assert_eq!(shown(&two.servers), "2001:2:1::1");

    let made = all(&format!("{TWO}cps 2"));
    assert_eq!(made.jobs[1].rate.cps, Some(0));
    assert_eq!(
        made.notes,
        ["a.conf:9: the load is too small for port 2, which stays idle"]
    );

    // Only peers of the port's own family.
    let made = all(&format!("mode server\n{TWO}"));
    assert_eq!(
        shown(&made.jobs[0].clients),
        "198.18.0.10-198.18.0.11 198.18.0.20"
    );
    assert_eq!(shown(&made.jobs[1].clients), "2001:2::10-2001:2::13");

    // A message that fits an IPv4 packet need not fit an IPv6 packet.
    let told = told(&format!("{TWO}cps 9\npayload_size 1450"));
    assert_eq!(
        told,
        [
            "a.conf:10: E_PAYLOAD_LARGE: a message of 1450 bytes does not fit one packet; \
          allowed: up to 1440 bytes"
        ]
    );
}

#[test]
fn silent_ranges() {
    let text = SERVER.replace("server 6.6.241.27 1", "server 6.6.241.30 5");
    assert_eq!(
        shown(&all(&text).ports[0].addresses),
        "6.6.241.27 6.6.241.30-6.6.241.34"
    );
    let text = text + "neigh_ignore";
    assert_eq!(shown(&all(&text).ports[0].addresses), "6.6.241.27");
}

fn expanded(job: &LoadJob) -> Vec<String> {
    job.destinations
        .iter()
        .flat_map(|d| {
            (0..d.addresses.count())
                .step_by(d.step as usize)
                .map(|n| d.addresses.nth(n).to_string())
        })
        .collect()
}

#[test]
fn destinations_in_turn() {
    let lines = "protocol udp\nflood\nchange_dip 10.0.0.1 10 5\nchange_dip 10.1.0.1 1 2\n";
    let one = job(&format!("{CLIENT}{lines}"));
    assert_eq!(one.destinations.len(), 2);
    assert_eq!(
        one.destinations[0].addresses.to_string(),
        "10.0.0.1-10.0.0.41"
    );
    assert_eq!(one.destinations[0].step, 10);
    // Worker n of 4 has every fourth address.
    let text = "cpu 0-3
port 0000:1b:00.0 198.18.0.1 198.18.0.254
port 0000:1b:00.1 198.18.1.1 198.18.1.254
client 198.18.0.10 1
client 198.18.1.10 1
server 198.19.0.1 1
server 198.19.1.1 1
cps 8
";
    let made = all(&format!("{text}{lines}"));
    // Numbers 0, 4 and 1, 5 of 7, then 2, 6 and 3; line by line.
    assert_eq!(
        expanded(&made.jobs[0]),
        ["10.0.0.1", "10.0.0.41", "10.0.0.11", "10.1.0.1"]
    );
    assert_eq!(
        expanded(&made.jobs[1]),
        ["10.0.0.21", "10.0.0.31", "10.1.0.2"]
    );
    assert!(told(&format!("{TWO}cps 8\n{lines}"))[0].contains("E_FAMILY"));
}

#[test]
fn devices() {
    for (device, place) in [
        ("1b:00.0", "eth1"),
        ("0000:1B:00.1", "wb-x-b/b0"),
        ("if:xdp:eth7", "xdp:eth7"),
        ("vdev:eth_af_packet1,iface=a0", "a0"),
    ] {
        let made = all(&CLIENT.replace("if:a0", device));
        assert_eq!(made.ports[0].locator.to_string(), place);
    }
    assert_eq!(
        told(&CLIENT.replace("if:a0", "0000:aa:00.0")),
        [
            "a.conf:3: E_DEVICE: the interface of device 0000:aa:00.0 is unknown; \
          allowed: --port 0000:aa:00.0=IF"
        ]
    );
    assert!(told(&CLIENT.replace("if:a0", "if:a/b/c"))[0].contains("E_DEVICE"));
    assert!(told(&CLIENT.replace("if:a0", "if:memory:x"))[0].contains("E_DEVICE"));
    let twice = TWO.replace("0000:1b:00.1", "if:eth1");
    assert_eq!(
        told(&format!("{twice}cps 8")),
        [
            "a.conf:3: E_PCI_DUP: if:eth1 is eth1, which port 1 already uses; \
          allowed: one interface for each port"
        ]
    );
}

#[test]
fn errors_of_the_check_come_first() {
    let problems = run(&format!("{CLIENT}cc 5")).expect_err("no keepalive");
    assert_eq!(problems[0].code, Code::CcKeepalive);
    assert!(!accepted(&problems));
}

#[test]
fn notes_have_places() {
    let made = all(&format!("{CLIENT}jumbo\nsocket_mem 1024\nmss 50"));
    assert_eq!(
        made.notes,
        [
            "a.conf:7: port 1 needs an MTU of 9710: ip link set dev a0 mtu 9710",
            "a.conf:9: requests of 85 bytes are sent in segments of 50; dperf sends them in one",
            "a.conf:8: socket_mem has no effect: memory is allocated when needed",
        ]
    );
}

/// Lines that fit a base configuration, at most one of each kind.
fn lines() -> impl Strategy<Value = String> {
    let one = |forms: &[&'static str]| {
        let forms: Vec<_> = forms.iter().copied().chain([""]).collect();
        prop::sample::select(forms)
    };
    let load = (
        one(&["keepalive 1ms", "keepalive 0us", "keepalive 5s 3"]),
        one(&["cc 1", "cc 100", "cc 100k", "cc 70000"]),
        one(&["launch_num 3", "launch_num 5000"]),
        one(&["flood", "flood\nchange_dip 10.0.0.1 3 70"]),
        one(&["pipeline 3", "client_hop", "fast_close"]),
        one(&["slow_start 10", "wait 100", "tx_burst 1024"]),
    );
    let message = (
        one(&["protocol udp", "protocol http", "protocol tcp"]),
        one(&[
            "payload_size 1",
            "payload_size 90",
            "payload_size 1460",
            "payload_size 20k",
        ]),
        one(&[
            "payload_size 0 9 2000 90",
            "payload_file x",
            "packet_size 64",
            "packet_size 1514",
        ]),
        one(&["payload_random", "http_method POST"]),
        one(&["http_host a.longer.name", "http_path /b", "http_path /é"]),
        one(&[
            "mss 100",
            "jumbo",
            "send_window 9",
            "retransmit_timeout 300",
        ]),
    );
    let frame = (
        one(&["vlan 5", "tos 3", "neigh_ignore"]),
        one(&["disable_ack", "tcp_rst 0", "quiet"]),
        one(&["listen 8000 9", "client_port_range 1000 2000"]),
    );
    (load, message, frame).prop_map(|(a, b, c)| {
        let lines = [
            a.0, a.1, a.2, a.3, a.4, a.5, b.0, b.1, b.2, b.3, b.4, b.5, c.0, c.1, c.2,
        ];
        lines.join("\n")
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_is_accepted_translates_or_says_where(
        base in prop::sample::select(vec![
            CLIENT.to_owned(),
            SERVER.to_owned(),
            format!("{TWO}cps 3\n"),
            format!("{TWO}mode server\n"),
            CLIENT.replace("cpu 0", "cpu 0-3\nrss"),
        ]),
        lines in lines(),
    ) {
        let text = format!("{base}{lines}");
        // `exercise` contains the assertions.
        fuzz::exercise(text.as_bytes());
        let Some(config) = parse("a.conf", &text).config else { return Ok(()) };
        if let Ok(made) = translate(&config, &options()) {
            for job in made.jobs {
                let written = toml::to_string(&job).unwrap();
                prop_assert_eq!(toml::from_str::<LoadJob>(&written).unwrap(), job);
            }
        }
    }
}
