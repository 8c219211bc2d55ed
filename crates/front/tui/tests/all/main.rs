//! Screens of each kind of run in both sizes, as pictures of text.

use std::collections::BTreeMap;

use ratatui_core::{backend::TestBackend, terminal::Terminal};
use wb_counters::{
    LinkCounters, LinkProperties, LinkReading, Series,
    cpu::CpuShares,
    device::Group,
    interrupts::{Move, QueueInterrupt},
    path::{Between, Hop},
    softnet::SoftnetRise,
    stat_document::{
        Cpu, Device, DeviceInterrupts, DocumentKind, InterfaceStat, PathStat, Probe, SoftnetStat,
        StatDocument,
    },
};
use wb_measure::Outline;
use wb_model::{
    Criterion, Phase, Report, Snapshot, Summary,
    http::{HttpJobReport, HttpReport},
    load::{LoadJobReport, LoadReport},
    report::{CaptureReport, Times},
    snapshot::{CaptureLive, ProbeLive},
    timeline::Recorder,
};
use wb_tui::{About, Key, Reading, Screen, draw};

fn picture(screen: &Screen, (width, height): (u16, u16)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, screen)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let rows = buffer.content.chunks(usize::from(width));
    let lines = rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>());
    lines
        .map(|line| line.trim_end().to_owned() + "\n")
        .collect()
}

fn about(title: &str) -> About {
    About {
        title: title.to_owned(),
        ports: vec![
            ("tx".to_owned(), "wb-pair-a/a0".to_owned()),
            ("port 2".to_owned(), "wb-pair-b/b0".to_owned()),
        ],
        unicode: true,
        fixed_rate: Some("this run keeps the rate of its plan".to_owned()),
        ..About::default()
    }
}

/// Snapshot `n` of a run, one each second, of 30 s.
fn at(n: u64) -> Snapshot {
    Snapshot {
        progress: Some(n as f64 / 30.0),
        ..Snapshot::at(n * 1_000_000_000, 1_000_000_000, Phase::Running)
    }
}

/// The report so far that belongs to a snapshot.
fn so_far(s: &Snapshot) -> Report {
    let times = |samples: u64, mean: Option<f64>| {
        Times::from(Summary {
            samples,
            mean,
            ..Summary::default()
        })
    };
    let load = s.load.as_ref().map(|load| LoadJobReport {
        totals: load.totals,
        request_ns: times(load.totals.responses, load.request_mean_ns),
        failures: [("connect_timeout".to_owned(), load.totals.failed_connections)].into(),
        ..LoadJobReport::default()
    });
    let http = s.http.as_ref().map(|http| HttpJobReport {
        totals: http.totals,
        latency_ns: times(http.totals.completed, http.latency_mean_ns),
        ..HttpJobReport::default()
    });
    let capture = s.capture.as_ref().map(|live| CaptureReport {
        filter_accept_frames: live.read_frames + live.kernel_drop_frames,
        captured_frames: live.written_frames,
        kernel_drop_frames: live.kernel_drop_frames,
        file_octets: live.file_octets,
        files: 1,
        buffers: 64,
        ring_bytes: 64 << 20,
        longest_gap_ms: 0.5,
        ..CaptureReport::default()
    });
    Report {
        elapsed_ns: s.elapsed_ns,
        totals: s.totals,
        load: load.map(|job| LoadReport { jobs: vec![job] }),
        http: http.map(|job| HttpReport {
            jobs: vec![job],
            ..HttpReport::default()
        }),
        capture,
        ..Report::default()
    }
}

fn of_json<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// Most take 3 us, some twice as long, and one in a thousand takes 40 us, from the sixth second on 90 us.
fn times_until(tenth: u64) -> Outline {
    let mut times = Outline::default();
    let late = tenth.saturating_sub(60);
    for (ns, count) in [(3_000, 900), (3_100, 49), (6_000, 50)] {
        times.add_to_slot(Outline::slot(ns), count * tenth);
    }
    times.add_to_slot(Outline::slot(40_000), tenth - late);
    times.add_to_slot(Outline::slot(90_000), late);
    times
}

/// Shows a run of 12 seconds: its snapshots, and its timeline with ten moments per second.
fn run(
    about: About,
    snapshot: impl Fn(u64, &mut Snapshot),
    figures: &[(&str, &str, bool, f64)],
) -> Screen {
    let mut screen = Screen::new(about);
    let mut recorder = Recorder::new(1);
    for tenth in 0..=120_u64 {
        let mut row = recorder.row(tenth * 100_000_000);
        for (of, name, counter, per_second) in figures {
            let value = per_second * tenth as f64 / 10.0;
            match counter {
                true => row.counter(of, name, "", value as u64),
                false => row.level(of, name, "", *per_second),
            }
            if let Some(times) = name.strip_suffix("_samples") {
                row.times(of, times, &times_until(tenth));
            }
        }
        drop(row);
        if tenth > 0 && tenth % 10 == 0 {
            let mut now = at(tenth / 10);
            snapshot(tenth / 10, &mut now);
            screen.record(recorder.so_far());
            screen.take(&now, &so_far(&now));
        }
    }
    screen
}

/// Sent frames of which one in ten thousand is missing, with a rate that varies.
fn frames(n: u64, s: &mut Snapshot) {
    let rate = 1_000_000 + 50_000 * (n % 4);
    s.totals.offered_frames = Some(n * 1_000_000);
    s.totals.received_frames = Some(n * 999_900);
    s.totals.duplicate_frames = Some(0);
    s.totals.reordered_frames = Some(n / 3);
    s.missing_frames = Some(n * 100);
    s.offered_pps = Some(rate as f64);
    s.received_pps = Some(rate as f64 - 100.0);
    s.offered_l2_bps = Some(rate as f64 * 512.0);
    s.received_l2_bps = Some(rate as f64 * 512.0);
    s.latency_mean_ns = Some(3_000.0 + 200.0 * (n % 5) as f64);
}

const PORTS: [(&str, &str, bool, f64); 9] = [
    ("traffic", "offered_frames", true, 1_000_000.0),
    ("traffic", "received_frames", true, 999_900.0),
    ("traffic", "latency_samples", true, 999_900.0),
    ("traffic", "latency_sum_ns", true, 3_200_000_000.0),
    ("port tx", "tx_packets", true, 1_000_000.0),
    ("port tx", "tx_bytes", true, 60_000_000.0),
    ("port port 2", "rx_packets", true, 999_950.0),
    ("port port 2", "rx_bytes", true, 59_997_000.0),
    ("port port 2", "rx_dropped", true, 50.0),
];

fn judged(criteria: &[&str]) -> Vec<Criterion> {
    criteria.iter().map(|c| c.parse().unwrap()).collect()
}

fn trial() -> Screen {
    let criteria = judged(&["loss<=0.1%", "p99<=500us"]);
    let about = About {
        criteria,
        ..about("trial")
    };
    let flows = [
        ("flow 0", "received_frames", true, 60_000.0),
        ("flow 0", "received_octets", true, 3_840_000.0),
        ("flow 0", "latency_samples", true, 60_000.0),
        ("flow 0", "latency_sum_ns", true, 180_000_000.0),
        ("flow 7", "received_frames", true, 40_000.0),
        ("flow 7", "received_octets", true, 2_560_000.0),
    ];
    let mut screen = run(about, frames, &[&PORTS[..], &flows].concat());
    screen.say("wirebench: port 2: the link went down and came back\n");
    screen
}

fn load() -> Screen {
    load_judged(&[])
}

fn load_judged(criteria: &[&str]) -> Screen {
    let snapshot = |n: u64, s: &mut Snapshot| {
        s.load = Some(of_json(serde_json::json!({
            "phase": "steady", "attempted_cps": 10_000.0, "established_cps": 9_999.0, "completed_cps": 9_998.0,
            "failed_cps": 1.0, "rps": 20_000.0 + n as f64, "request_mean_ns": 46_700.0,
            "totals": {"attempted_connections": n * 10_000, "established_connections": n * 9_999,
                "completed_connections": n * 9_998, "failed_connections": n, "open_connections": 1_234,
                "requests": n * 20_000, "responses": n * 19_999, "lost_requests": 2,
                "in_flight_requests": 1, "unawaited_requests": 0, "late_responses": 0,
                "duplicate_responses": 0, "error_responses": 0}
        })));
    };
    let about = About {
        fixed_rate: None,
        criteria: judged(criteria),
        ..about("load")
    };
    let figures = [
        ("load", "attempted_connections", true, 10_000.0),
        ("load", "request_samples", true, 20_000.0),
        ("load", "request_sum_ns", true, 934_000_000.0),
        ("load", "open_connections", false, 1_234.0),
        ("worker client 0", "busy_ns", true, 430_000_000.0),
        ("worker client 1", "busy_ns", true, 920_000_000.0),
    ];
    run(about, snapshot, &figures)
}

fn http() -> Screen {
    let snapshot = |n: u64, s: &mut Snapshot| {
        s.progress = None;
        s.latency_mean_ns = Some(1.0);
        let mut totals = wb_model::http::HttpTotals {
            sent: n * 5_000 + 8,
            completed: n * 5_000,
            in_flight: 5,
            established_connections: 100,
            open_connections: 100,
            received_bytes: n * 5_000_000,
            ..wb_model::http::HttpTotals::default()
        };
        totals.failed.timeout = 3;
        s.http = Some(wb_model::http::HttpLive {
            requests_per_second: 5_000.0 - 100.0 * (n % 3) as f64,
            connections_per_second: 0.0,
            received_bps: 40e6,
            latency_mean_ns: Some(1_150_000.0),
            totals,
        });
    };
    let about = About {
        planned_ns: Some(20_000_000_000),
        ..about("http")
    };
    let figures = [
        ("http", "latency_samples", true, 5_000.0),
        ("http", "latency_sum_ns", true, 5_750_000_000.0),
    ];
    run(about, snapshot, &figures)
}

fn socket() -> Screen {
    let snapshot = |_: u64, s: &mut Snapshot| {
        s.socket = Some(wb_model::socket::SocketLive {
            job: 0,
            jobs: 2,
            iteration: 1,
            units: 1_250_000_000,
            transactions: false,
            interval_s: 1.0,
            ended_s: 0.0,
            total: 12_500_000_000,
            clients: 0,
        });
    };
    run(
        about("sweep"),
        snapshot,
        &[("socket", "throughput_bps", false, 1e10)],
    )
}

fn capture() -> Screen {
    let snapshot = |n: u64, s: &mut Snapshot| {
        s.progress = None;
        s.capture = Some(CaptureLive {
            read_frames: n * 250_000,
            kernel_drop_frames: n * 7,
            written_frames: n * 249_000,
            file_octets: n * 20_000_000,
        });
    };
    let figures = [
        ("capture", "read_frames", true, 250_000.0),
        ("capture", "written_frames", true, 249_000.0),
        ("capture", "kernel_drop_frames", true, 7.0),
        ("capture", "file_octets", true, 20_000_000.0),
        ("capture", "buffers_free", false, 61.0),
        ("port port 2", "rx_packets", true, 250_007.0),
    ];
    run(about("capture"), snapshot, &figures)
}

/// A load, streams alongside it and a probe of the device between them.
fn mix() -> Screen {
    let snapshot = |n: u64, s: &mut Snapshot| {
        frames(n, s);
        s.load = Some(of_json(serde_json::json!({
            "phase": "ramp", "attempted_cps": 500.0, "established_cps": 500.0, "completed_cps": 500.0,
            "failed_cps": 0.0, "rps": 500.0, "request_mean_ns": null,
            "totals": {"attempted_connections": n * 500, "established_connections": n * 500,
                "completed_connections": n * 500, "failed_connections": 0, "open_connections": 0,
                "requests": n * 500, "responses": n * 500, "lost_requests": 0,
                "in_flight_requests": 0, "unawaited_requests": 0, "late_responses": 0,
                "duplicate_responses": 0, "error_responses": 0}
        })));
        s.probes = vec![ProbeLive {
            name: "netdev".to_owned(),
            failures: 1,
            counters: [("netdev.db.rx_dropped".to_owned(), 17)].into(),
            gauges: [("netdev.flows".to_owned(), 3)].into(),
        }];
    };
    run(about("run"), snapshot, &PORTS)
}

fn search() -> Screen {
    let about = About {
        searches: true,
        ..about("bench lb")
    };
    let bench = |trial: u32, ended: serde_json::Value| {
        of_json(serde_json::json!({"metric": "cps", "size": null, "trial": trial, "ended": ended}))
    };
    let mut screen = Screen::new(about);
    let mut tell = |second: u64, live| {
        let mut now = at(second);
        now.progress = None;
        now.bench = Some(live);
        now.offered_pps = None;
        screen.take(&now, &so_far(&now));
    };
    tell(0, bench(0, serde_json::Value::Null));
    tell(3, bench(3, serde_json::Value::Null));
    screen
}

/// A suite in the middle of a search, after two trials.
fn suite() -> Screen {
    let about = About {
        searches: true,
        ..about("bench rfc2544")
    };
    let trial = |trial: u32, load: f64, lost: u64, outcome: &str, reason: &str| {
        serde_json::json!({
            "trial": trial, "purpose": "search", "size": "64", "intended": load, "intended_pct": load / 14_880.0,
            "offered": load, "forwarded": load, "duration_s": 2.0, "tx": 2_000_000, "rx": 2_000_000 - lost,
            "lost": lost, "loss_ratio": lost as f64 / 2e6, "dup": 0, "ooo": 0, "foreign": 0, "unsent": 0,
            "nic_drops": 0, "latency_ns": {"samples": 0}, "ipdv_ns": {"samples": 0}, "pdv_ns": {"samples": 0},
            "longest_silence_ns": null, "outcome": outcome, "reason": reason,
        })
    };
    let mut screen = Screen::new(about);
    let mut tell = |second: u64, live: serde_json::Value| {
        let mut now = at(second);
        frames(second, &mut now);
        now.progress = None;
        let mut bench = serde_json::json!({"test": "throughput", "size": "64", "unit": "fps"});
        bench
            .as_object_mut()
            .unwrap()
            .extend(live.as_object().unwrap().clone());
        now.bench = Some(of_json(bench));
        screen.take(&now, &so_far(&now));
    };
    let (most, half) = (1_488_000.0, 744_000.0);
    let lost = "123,456 frames were lost, and none may be";
    let late = "the tester was late: away for 12 ms";
    tell(0, serde_json::json!({"trial": 0}));
    tell(
        1,
        serde_json::json!({"trial": 1, "purpose": "search", "load": most}),
    );
    tell(
        3,
        serde_json::json!({"trial": 1, "load": most, "high": most, "left_ns": 40_000_000_000_u64,
        "ended": trial(1, most, 123_456, "fail", lost)}),
    );
    tell(
        6,
        serde_json::json!({"trial": 2, "load": half, "low": half, "high": most, "ended":
        trial(2, half, 0, "pass", "nothing was lost")}),
    );
    tell(
        7,
        serde_json::json!({"trial": 3, "load": 1_116_000.0, "low": half, "high": most, "ended":
        trial(3, 1_116_000.0, 0, "late", late)}),
    );
    tell(
        8,
        serde_json::json!({"trial": 4, "purpose": "search", "load": 1_116_000.0, "low": half, "high": most,
        "left_ns": 30_000_000_000_u64}),
    );
    screen
}

fn devices() -> Screen {
    let snapshot = |n: u64, s: &mut Snapshot| {
        s.progress = None;
        s.totals.offered_frames = Some(n * 70_000);
        s.offered_pps = Some(70_000.0);
        s.offered_l2_bps = Some(35e6);
    };
    let figures = [("devices", "offered_frames", true, 70_000.0)];
    run(about("pktgen"), snapshot, &figures)
}

#[test]
fn each_kind_of_run_has_its_overview() {
    for (name, screen) in [
        ("trial", trial()),
        ("load", load()),
        ("http", http()),
        ("socket", socket()),
        ("capture", capture()),
        ("mix", mix()),
        ("search", search()),
        ("suite", suite()),
        ("devices", devices()),
        ("nothing", Screen::new(about("tx"))),
    ] {
        for size in [(80, 24), (200, 50)] {
            let name = format!("{name}-{}x{}", size.0, size.1);
            insta::assert_snapshot!(name, picture(&screen, size));
        }
    }
}

#[test]
fn what_cannot_hold_any_more_is_said_while_it_runs() {
    // Connections failed. A share of them can still fall, figures of one job are unknown, answers had no errors.
    let open = ["failed<=1%", "clients.failed<=0", "errors<=0", "cps>=20k"];
    let screen = load_judged(
        &[
            &["failed<=0", "load.failed<=0", "http.failed<=0"][..],
            &open,
        ]
        .concat(),
    );
    let seen = picture(&screen, (100, 40));
    for failed in ["failed<=0%  FAILED: ", "load.failed<=0%  FAILED: "] {
        assert!(seen.contains(failed), "{failed}: {seen}");
    }
    assert_eq!(seen.matches("FAILED").count(), 2, "{seen}");
    assert!(
        seen.contains("evaluated when all counts are final"),
        "{seen}"
    );
    let alone = picture(&load_judged(&["failed<=0"]), (100, 40));
    assert!(!alone.contains("evaluated when"), "{alone}");
}

#[test]
fn each_page_shows_what_is_known_or_that_it_is_not() {
    for (name, mut screen) in [("trial", trial()), ("load", load()), ("mix", mix())] {
        for page in '2'..='7' {
            screen.press(Key::Char(page));
            let name = format!("{name}-page-{page}");
            insta::assert_snapshot!(name, picture(&screen, (80, 24)));
        }
    }
    let mut screen = suite();
    screen.press(Key::Char('6'));
    insta::assert_snapshot!("suite-page-6", picture(&screen, (80, 24)));
    let mut screen = load();
    screen.press(Key::Char('?'));
    insta::assert_snapshot!("help", picture(&screen, (80, 24)));
}

#[test]
fn no_size_breaks_it() {
    for mut screen in [trial(), load(), mix(), http(), search(), suite()] {
        for page in '1'..='7' {
            screen.press(Key::Char(page));
            for width in (1..60).chain([79, 149, 150, 151, 500]) {
                for height in [1, 2, 5, 7, 8, 9, 20, 100] {
                    let text = picture(&screen, (width, height));
                    let small = width < wb_tui::LEAST_WIDTH || height < wb_tui::LEAST_HEIGHT;
                    if width >= 20 {
                        assert_eq!(
                            text.starts_with("too small"),
                            small,
                            "{width}x{height}:\n{text}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_long_page_is_scrolled_to_its_end_and_no_further() {
    let mut screen = trial();
    (0..100).for_each(|n| screen.say(&format!("message {n}")));
    screen.press(Key::Char('7'));
    assert!(
        picture(&screen, (80, 24)).contains("message 99"),
        "from its end"
    );
    (0..200).for_each(|_| assert!(screen.press(Key::Up).is_none()));
    assert!(picture(&screen, (80, 24)).contains("message 99"));
    (0..20).for_each(|_| assert!(screen.press(Key::PageDown).is_none()));
    let text = picture(&screen, (80, 24));
    assert!(text.contains("went down and came back"), "{text}");
}

#[test]
fn ascii_terminals_get_ascii() {
    let mut about = about("trial");
    about.unicode = false;
    let text = picture(&run(about, frames, &PORTS), (80, 24));
    assert!(text.is_ascii(), "{text}");
}

/// Counters of `seconds` seconds: two interfaces and one that is idle, of which one loses frames.
fn counters(reading: Reading, seconds: u64) -> Screen {
    let mut screen = Screen::new(About {
        reading: Some(reading),
        fixed_rate: Some("stat only reads".to_owned()),
        ..about("stat")
    });
    screen.take(
        &Snapshot::at(0, 1_000_000_000, Phase::Running),
        &Report::default(),
    );
    let mut series = Series::default();
    let readings = |second: u64| {
        let link = |index: u32, name: &str, counters: LinkCounters| LinkReading {
            id: (0, index),
            // The interface is renamed at the end.
            name: match (index, second) {
                (4, 12) => "veth9".to_owned(),
                _ => name.to_owned(),
            },
            at_ns: second * 1_000_000_000,
            facts: LinkProperties {
                speed_bps: Some(1_000_000_000),
                ethernet: true,
                running: index != 4,
                ..LinkProperties::default()
            },
            counters,
        };
        let packets = 700_000 * second + 20_000 * (second % 4);
        let sent = LinkCounters {
            tx_packets: packets,
            tx_bytes: packets * 60,
            ..LinkCounters::default()
        };
        let received = LinkCounters {
            rx_packets: packets - 500 * second,
            rx_bytes: (packets - 500 * second) * 60,
            rx_missed_errors: 300 * second,
            rx_crc_errors: second / 6,
            ..LinkCounters::default()
        };
        vec![
            link(2, "eth0", sent),
            link(3, "eth1", received),
            link(4, "veth0", LinkCounters::default()),
        ]
    };
    series.next(readings(0));
    for second in 1..=seconds {
        let intervals = series.next(readings(second));
        let softnet = |n: u64| {
            let cpu = |cpu: u32| Cpu {
                cpu,
                counted: SoftnetRise {
                    processed: 350_000 * n,
                    dropped: u64::from(cpu) * 17 * n,
                    ..SoftnetRise::default()
                },
                shares: (n == 1).then_some(CpuShares {
                    softirq_percent: 41.0,
                    system_percent: 9.0,
                    idle_percent: 50.0,
                    ..CpuShares::default()
                }),
            };
            let cpus = vec![cpu(0), cpu(1)];
            let all = cpus[0].counted.plus(cpus[1].counted);
            SoftnetStat { all, cpus }
        };
        let names = |n: u64| -> BTreeMap<Group, BTreeMap<String, u64>> {
            [
                (
                    Group::NoBuffer,
                    [("rx_missed_errors".to_owned(), 300 * n)].into(),
                ),
                (
                    Group::Queue,
                    [("rx_queue_0_packets".to_owned(), 700_000 * n)].into(),
                ),
            ]
            .into()
        };
        let device = |n: u64| Device {
            interface: "eth1".to_owned(),
            groups: names(n),
            fell: BTreeMap::new(),
        };
        let interrupts = DeviceInterrupts {
            interface: "eth1".to_owned(),
            queues: vec![QueueInterrupt {
                irq: 40,
                name: "eth1-rx-0".to_owned(),
                per_second: 8_000.0,
                came_on: vec![0],
                cpus: vec![0],
            }],
            moves: vec![Move {
                irq: 40,
                name: "eth1-rx-0".to_owned(),
                from: vec![0],
                to: 1,
                rule: "T1".to_owned(),
            }],
        };
        let probe = |n: u64, missing: bool| Probe {
            name: "ipvs".to_owned(),
            missing: missing.then(|| "no answer yet".to_owned()),
            failures: (n > 1).then_some(1),
            seconds: n as f64,
            counted: match missing {
                true => BTreeMap::new(),
                false => [("ipvs.conns".to_owned(), Some(40 * n))].into(),
            },
            gauges: [("ipvs.open".to_owned(), 3)].into(),
        };
        let path = |n: u64| PathStat {
            hops: vec![Hop {
                from: "eth0".to_owned(),
                to: "eth1".to_owned(),
                between: Between::Wire,
                in_packets: 700_000 * n,
                out_packets: 699_500 * n,
                lost_packets: 500 * n as i64,
                explained_packets: 0,
            }],
            loss_ratio: Some(0.0007),
            lost_where: Some("0.07 % lost; most of it between eth0 and eth1".to_owned()),
        };
        let line = |kind: DocumentKind, n: u64, interfaces| StatDocument {
            kind,
            number: second,
            seconds: n as f64,
            interfaces,
            softnet: softnet(n),
            devices: if reading.driver {
                vec![device(n)]
            } else {
                Vec::new()
            },
            interrupts: if reading.interrupts {
                vec![interrupts.clone()]
            } else {
                Vec::new()
            },
            probes: if reading.driver {
                vec![probe(n, n == 1 && second == 12)]
            } else {
                Vec::new()
            },
            path: reading.driver.then(|| path(n)),
            ..StatDocument::default()
        };
        screen.count(
            line(
                DocumentKind::Interval,
                1,
                intervals.iter().map(InterfaceStat::from).collect(),
            ),
            line(
                DocumentKind::Average,
                second,
                series
                    .totals()
                    .into_iter()
                    .map(InterfaceStat::from)
                    .collect(),
            ),
        );
    }
    screen
}

const ALL: Reading = Reading {
    omit_idle: false,
    driver: true,
    interrupts: true,
};

#[test]
fn counters_have_pages_of_their_own() {
    let few = Reading {
        omit_idle: true,
        ..Reading::default()
    };
    for (name, screen) in [
        ("stat-none", counters(few, 0)),
        ("stat-few", counters(few, 11)),
        ("stat-all", counters(ALL, 12)),
    ] {
        for size in [(80, 24), (200, 50)] {
            let name = format!("{name}-{}x{}", size.0, size.1);
            insta::assert_snapshot!(name, picture(&screen, size));
        }
    }
    for (name, mut screen) in [
        ("stat-few", counters(few, 11)),
        ("stat-all", counters(ALL, 12)),
    ] {
        for page in '2'..='7' {
            screen.press(Key::Char(page));
            let name = format!("{name}-page-{page}");
            insta::assert_snapshot!(name, picture(&screen, (80, 24)));
        }
    }
    let mut screen = counters(ALL, 12);
    screen.press(Key::Char('?'));
    insta::assert_snapshot!("stat-help", picture(&screen, (80, 24)));
}

#[test]
fn the_clock_of_counters_does_not_go_back() {
    let mut screen = counters(ALL, 2);
    screen.set_since(900_000_000);
    let line = |seconds| StatDocument {
        seconds,
        ..StatDocument::default()
    };
    screen.count(line(0.5), line(2.5));
    assert_eq!(screen.elapsed_ns(), 2_900_000_000);
    screen.count(line(0.5), line(3.0));
    assert_eq!(screen.elapsed_ns(), 3_000_000_000);
}

#[test]
fn no_size_and_no_number_of_interfaces_breaks_counters() {
    let mut screen = counters(ALL, 12);
    let many = |second: u64| StatDocument {
        seconds: 1.0,
        interfaces: (0..500)
            .map(|n| InterfaceStat {
                name: format!("wb-many/veth{n}"),
                index: n,
                ..InterfaceStat::default()
            })
            .collect(),
        number: second,
        ..StatDocument::default()
    };
    for second in 13..15 {
        for page in '1'..='7' {
            screen.press(Key::Char(page));
            for width in (38..44).chain([1, 20, 79, 80, 149, 150, 500]) {
                for height in [1, 8, 24] {
                    picture(&screen, (width, height));
                }
            }
        }
        screen.count(many(second), many(second));
    }
    screen.press(Key::Char('1'));
    (0..100).for_each(|_| assert!(screen.press(Key::PageDown).is_none()));
    assert!(picture(&screen, (80, 24)).contains("veth499"));
}
