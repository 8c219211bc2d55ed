//! Test vectors under `tests/vectors`.

use std::collections::BTreeSet;

use wb_dperf::config::AddressSpan;
use wb_dperf::statistics::{Counters, StatisticsBlock, StatisticsLayout};
use wb_dperf::{Config, Problem, Severity, check, parse};

const CLIENT: &[&str] = &[
    "mode client",
    "cpu 0",
    "port 0000:1b:00.0 6.6.241.100 6.6.241.27",
    "client 6.6.241.100 1",
    "server 6.6.241.27 1",
    "cps 10k",
];

const SERVER: &[&str] = &[
    "mode server",
    "cpu 0",
    "port 0000:1b:00.0 6.6.241.27 6.6.241.1",
    "client 6.6.241.100 1",
    "server 6.6.241.27 1",
];

/// The text of a base configuration and its changes.
fn text(recipe: &str) -> String {
    let mut parts = recipe.split(';').map(str::trim);
    let base = match parts.next() {
        Some("C") => CLIENT,
        Some("S") => SERVER,
        Some("0") => &[],
        other => panic!("no base {other:?}"),
    };
    let mut lines: Vec<String> = base.iter().map(|l| (*l).to_owned()).collect();
    for change in parts {
        let (kind, line) = change.split_at(1);
        let keyword = line.split(' ').next().unwrap();
        let known = lines
            .iter()
            .position(|l| l.split(' ').next() == Some(keyword));
        match kind {
            "+" => lines.push(line.to_owned()),
            "!" => lines[known.expect("a line to replace")] = line.to_owned(),
            "-" => drop(lines.remove(known.expect("a line to take out"))),
            _ => panic!("no change {change}"),
        }
    }
    lines.join("\n")
}

/// Codes of errors, each once.
fn errors(problems: &[Problem]) -> BTreeSet<String> {
    problems
        .iter()
        .filter(|p| p.severity == Severity::Error)
        .map(|p| p.code.to_string())
        .collect()
}

fn figure(name: &str, config: &Config, problems: &[Problem]) -> String {
    let keepalive = config.keepalive;
    let shown = |n: Option<u32>| n.map_or("-".to_owned(), |n| n.to_string());
    match name {
        "protocol" => format!("{:?}", config.protocol()),
        "duration" => config.duration_s().to_string(),
        "wait" => config.wait_s().to_string(),
        "slow_start" => config.slow_start_s().to_string(),
        "tx_burst" => config.tx_burst().to_string(),
        "mss" => config.mss().to_string(),
        "mtu" => config.mtu().to_string(),
        "rto" => config.retransmit_timeout_s().to_string(),
        "listen" => format!("{}+{}", config.listen().first, config.listen().count),
        "ports" => format!(
            "{}-{}",
            config.client_ports().min,
            config.client_ports().max
        ),
        "clients" => config
            .clients
            .iter()
            .map(AddressSpan::len)
            .sum::<u64>()
            .to_string(),
        "tuples" => config.tuple_count(0).to_string(),
        "steering" => format!("{:?}", config.steering()),
        "requests" => shown(config.requests()),
        "more" => shown(keepalive.and_then(|k| k.more_requests)),
        "interval" => keepalive.unwrap().interval_ns.to_string(),
        "payload" => shown(config.payload(0)),
        "window" => config.send_window(0).to_string(),
        "rst" => config.answers_rst().to_string(),
        "tos" => config.tos.unwrap_or(0).to_string(),
        "cps" => shown(config.cps()),
        "floods" => config.floods().to_string(),
        "warnings" => problems
            .iter()
            .filter(|p| p.severity == Severity::Warning)
            .count()
            .to_string(),
        _ => panic!("no figure {name}"),
    }
}

#[test]
fn configurations() {
    let mut failures = Vec::new();
    let mut played = BTreeSet::new();
    for vector in include_str!("../vectors/configurations.txt").lines() {
        if vector.is_empty() || vector.starts_with("# ") || vector == "#" {
            continue;
        }
        let mut columns = vector.split('|').map(str::trim);
        let mut column = || columns.next().unwrap_or("");
        let (number, recipe, dperf, ours, figures) =
            (column(), column(), column(), column(), column());
        played.insert(number.parse::<u32>().expect("a number"));
        let text = text(recipe);
        for (strict, wanted) in [
            (true, dperf),
            (false, if ours.is_empty() { dperf } else { ours }),
        ] {
            let wanted: BTreeSet<String> = match wanted {
                "ok" => BTreeSet::new(),
                codes => codes.split(' ').map(str::to_owned).collect(),
            };
            let problems = check("v.conf", &text, strict);
            if errors(&problems) != wanted {
                failures.push(format!("{number} strict {strict} {recipe}: {problems:#?}"));
            }
        }
        let problems = check("v.conf", &text, false);
        for wanted in figures.split_whitespace() {
            let (name, value) = wanted.split_once('=').expect("name=value");
            let config = parse("v.conf", &text).config.expect("a readable vector");
            let found = figure(name, &config, &problems);
            if found != value {
                failures.push(format!("{number} {recipe}: {name} is {found}, not {value}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!((1..=44).all(|n| played.contains(&n)), "not all were played");
}

/// The second in the printed example.
fn counters() -> Counters {
    Counters {
        pkt_rx: 599_991,
        pkt_tx: 600_003,
        bits_rx: 430_393_544,
        bits_tx: 407_999_832,
        tcp_rx: 599_991,
        tcp_tx: 600_003,
        syn_rx: 199_997,
        syn_tx: 200_009,
        fin_rx: 199_997,
        fin_tx: 199_997,
        syn_rt: 9,
        sk_open: 200_000,
        sk_close: 199_997,
        sk_con: 64,
        http_get: 199_997,
        http_2xx: 199_997,
        rtt_sum_ns: 1_124_000,
        rtt_samples: 10,
        ..Counters::default()
    }
}

#[test]
fn statistics_of_a_second() {
    let config = parse("v.conf", &text("C; !cpu 0 1; +rss")).config.unwrap();
    let block = StatisticsBlock {
        seconds: 41,
        cpu_usage: vec![23, 24],
        counters: counters(),
    };
    let layout = StatisticsLayout::of_config(&config);
    let shown = include_str!("../vectors/statistics.txt");
    assert_eq!(layout.second_text(&block), format!("\n{shown}\n"));

    let total = layout.total(&block, "wirebench 1");
    let rule = "-".repeat(23);
    let heading =
        format!("\n{rule}\ndperf Test Finished\nVersion: wirebench 1\n{rule}\n\nTotal Numbers:\n");
    let rest = total
        .strip_prefix(&heading)
        .expect("the words that end a run");
    let (_, figures) = shown.split_once('\n').unwrap();
    assert_eq!(rest, format!("{figures}\n"));

    // Colour adds escape sequences to errors only, and moves no column.
    let coloured = StatisticsLayout {
        colour: true,
        ..layout
    }
    .second_text(&block);
    let red = "synRt   \x1b[41;37m9\x1b[0m                  finRt    0 ";
    assert!(coloured.contains(red), "{coloured:?}");
    let plain = coloured.replace("\x1b[41;37m", "").replace("\x1b[0m", "");
    assert_eq!(plain, layout.second_text(&block));
}

#[test]
fn statistics_by_configuration() {
    let block = StatisticsBlock {
        seconds: 0,
        cpu_usage: vec![100],
        counters: counters(),
    };
    let names = |recipe: &str| -> Vec<Vec<String>> {
        let config = parse("v.conf", &text(recipe)).config.unwrap();
        let text = StatisticsLayout::of_config(&config).second_text(&block);
        text.lines()
            .map(|l| l.split_whitespace().step_by(2).map(str::to_owned).collect())
            .collect()
    };
    let udp = names("C; +protocol udp; +keepalive 1s; +kni");
    assert_eq!(udp[3], ["kniRx", "kniTx"]);
    assert_eq!(udp[7], ["udpRt", "udpDrop", "tcpDrop"]);
    assert_eq!(udp[8], ["skOpen", "skClose", "skCon", "skErr"]);
    assert_eq!(udp[9], ["ierrors", "oerrors", "imissed"]);
    assert_eq!(udp.len(), 11, "between empty lines");
    assert_eq!(names("C; +payload_size 84")[10], ["tcpReq", "tcpRsp"]);
    assert_eq!(names("C; +payload_size 85")[10][0], "httpGet");
    assert_eq!(names("S")[9].last().unwrap(), "skErr");
}

#[test]
fn counters_of_a_second_are_differences_but_states_are_not() {
    let now = Counters {
        sk_open: 30,
        sk_con: 7,
        imissed: 5,
        rtt_sum_ns: 9000,
        rtt_samples: 3,
        ..Counters::default()
    };
    let before = Counters {
        sk_open: 10,
        sk_con: 9,
        imissed: 5,
        rtt_sum_ns: 5000,
        rtt_samples: 2,
        ..Counters::default()
    };
    let second = now.since(&before);
    assert_eq!((second.sk_open, second.sk_con, second.imissed), (20, 7, 5));
    assert_eq!(second.rtt_us(), 4.0);
    let both = now.plus(&before);
    assert_eq!((both.sk_open, both.sk_con, both.rtt_samples), (40, 16, 5));
}

#[test]
fn statistics_as_json() {
    let block = StatisticsBlock {
        seconds: 41,
        cpu_usage: vec![23, 24],
        counters: counters(),
    };
    let json = serde_json::to_value(&block).unwrap();
    assert_eq!(json["seconds"], 41);
    assert_eq!(json["cpuUsage"][1], 24);
    assert_eq!(json["http2XX"], 199_997);
    assert_eq!(json["rtt(us)"], 112.4);
    for name in Counters::NAMES {
        assert!(json[*name].is_u64(), "{name}");
    }
}

#[test]
fn problems_name_file_and_line_and_what_is_allowed() {
    let text = "mode client\nkeep_alive 1s\ncpu 0\nvlan 5000\ncc 1g\n";
    let told: Vec<String> = check("a.conf", text, false)
        .iter()
        .map(Problem::to_string)
        .collect();
    assert_eq!(
        told,
        [
            "a.conf:2: E_KEYWORD: unknown keyword `keep_alive`; did you mean keepalive?",
            "a.conf:4: E_VALUE: vlan: bad value `5000`; allowed: vlan NUMBER (1 to 4094)",
            "a.conf:5: E_VALUE: cc: bad value `1g`; allowed: cc RATE (1 to 2147483647, such as 100, 2k, 1.5m)",
        ]
    );
    let told: Vec<String> = check("a.conf", "mode client\ncpu 0-1\ncc 5\n", false)
        .iter()
        .map(Problem::to_string)
        .collect();
    assert_eq!(
        told,
        [
            "a.conf:3: E_CC_KEEPALIVE: cc without keepalive: connections would not stay open; allowed: cc with keepalive INTERVAL",
            "a.conf: E_PORT: no port line; allowed: port DEVICE IP GATEWAY [MAC]",
            "a.conf: E_RANGES: no client line; allowed: client IP COUNT",
            "a.conf: E_RANGES: no server line; allowed: server IP COUNT",
        ]
    );
}
