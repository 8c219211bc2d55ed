//! Reports and snapshots as produced by runs.

pub(crate) mod suite;

use std::collections::BTreeMap;

use wb_model::{
    Phase, Plan, PortPlan, REPORT_SCHEMA, Report, Snapshot, Stream, Summary, Totals, TrafficJob,
    Verdict,
    report::{
        ClockReport, CriterionReport, EnvironmentReport, FlowReport, JobReport, PortReport, Rates,
        StreamReport, WorkerReport,
    },
    timeline::Timeline,
};

pub(crate) fn summary(samples: u64, min: i64, step: i64) -> Summary {
    Summary {
        samples,
        min: Some(min),
        mean: Some(min as f64 + 2.25 * step as f64),
        stddev: Some(1.5 * step as f64),
        p50: Some(min + 2 * step),
        p90: Some(min + 4 * step),
        p95: Some(min + 6 * step),
        p99: Some(min + 10 * step),
        p999: Some(min + 30 * step),
        p9999: Some(min + 34 * step),
        p99999: Some(min + 35 * step),
        max: Some(min + 210 * step),
    }
}

fn plan(kind: &str, tx: Option<&str>, rx: Option<&str>) -> Plan {
    let streams = if tx.is_some() {
        vec![Stream {
            rate: "100kpps".parse().unwrap(),
            ..Stream::default()
        }]
    } else {
        Vec::new()
    };
    Plan {
        kind: kind.into(),
        ports: vec![
            PortPlan::new("a", "wb-pair-a/a0".parse().unwrap()),
            PortPlan::new("b", "wb-pair-b/b0".parse().unwrap()),
        ],
        traffic: vec![TrafficJob {
            tx: tx.map(Into::into),
            rx: rx.map(Into::into),
            duration: tx.map(|_| "5s".parse().unwrap()),
            streams,
            ..TrafficJob::default()
        }],
        ..Plan::default()
    }
}

fn counters(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect()
}

fn port(name: &str, place: &str, mac: &str) -> PortReport {
    PortReport {
        name: name.into(),
        locator: format!("xdp:{place}"),
        driver: "xdp".into(),
        mode: "native copy".into(),
        chosen_because: "no address and no other XDP program on it".into(),
        mac: mac.into(),
        mtu: 1500,
        kernel_driver: "veth".into(),
        speed_bps: Some(10_000_000_000),
        speed_nominal: true,
        timestamp_source: "kernel-xdp".into(),
        ..PortReport::default()
    }
}

fn port_a() -> PortReport {
    PortReport {
        neighbours: [("198.19.1.2".to_owned(), "02:00:00:00:00:0b".to_owned())].into(),
        before: counters(&[("tx_packets", 10), ("tx_bytes", 600), ("rx_errors", 3)]),
        after: counters(&[
            ("tx_packets", 500_010),
            ("tx_bytes", 30_000_600),
            ("rx_errors", 3),
        ]),
        ..port("a", "wb-pair-a/a0", "02:00:00:00:00:0a")
    }
}

fn port_b() -> PortReport {
    PortReport {
        before: counters(&[("rx_packets", 7), ("rx_dropped", 0)]),
        after: counters(&[("rx_packets", 499_007), ("rx_dropped", 1_000)]),
        ..port("b", "wb-pair-b/b0", "02:00:00:00:00:0b")
    }
}

fn clock() -> ClockReport {
    ClockReport {
        source: "tsc".into(),
        resolution_ns: 25,
        read_cost_ns: 22,
        error_ns: Some(40),
        step_ns: 0,
        same_clock: true,
        tx_stamp: "user space, when the frame is built".into(),
        rx_stamp: "kernel-xdp at b".into(),
    }
}

/// A trial that lost one frame in 500, and therefore failed.
pub(crate) fn lossy() -> Report {
    let totals = Totals {
        intended_frames: Some(500_000),
        offered_frames: Some(500_000),
        unsent_frames: Some(0),
        received_frames: Some(499_002),
        lost_frames: Some(1_000),
        duplicate_frames: Some(2),
        reordered_frames: Some(17),
        late_frames: Some(0),
        foreign_frames: Some(4),
        unplanned_frames: Some(3),
        other_run_frames: Some(2),
        head_frames: None,
        rx_dropped_frames: Some(0),
        offered_octets: Some(32_000_000),
        received_octets: Some(31_936_128),
        ramp_frames: None,
        refused_frames: Some(0),
        connections: None,
    };
    let rates = Rates {
        intended_pps: Some(100_000.0),
        offered_pps: Some(99_999.8),
        received_pps: Some(99_800.2),
        offered_l1_bps: Some(67_199_865.6),
        received_l1_bps: Some(67_065_734.4),
        offered_l2_bps: Some(51_199_897.6),
        received_l2_bps: Some(51_097_702.4),
        line_rate_pps: None,
        largest_catch_up_frames: Some(12),
        tx_time_ns: Some(5_000_010_000),
        rx_time_ns: Some(5_000_004_000),
        while_receiving_pps: Some(99_800.2),
        while_receiving_l2_bps: None,
    };
    let latency = summary(499_000, 4_100, 1_100);
    let flow = |flow: u32, lost: u64| FlowReport {
        outages: None,
        flow,
        stream: Some("stream 1".into()),
        totals: Totals {
            offered_frames: Some(125_000),
            received_frames: Some(125_000 - lost),
            lost_frames: Some(lost),
            duplicate_frames: Some(0),
            reordered_frames: Some(0),
            ..Totals::default()
        },
        latency_ns: Summary {
            samples: 125_000 - lost,
            min: Some(4_100),
            mean: Some(6_575.0),
            stddev: Some(1_650.0),
            max: Some(235_100),
            ..Summary::default()
        },
    };
    let mut report = Report {
        hosts: Vec::new(),
        outages: None,
        first_flow: Some(2_839_120_398),
        schema: REPORT_SCHEMA.into(),
        kind: "trial".into(),
        verdict: Verdict::Fail,
        reason: "criteria not met: loss<=0.1%".into(),
        limited_by: "the plan: the rate that was asked for was reached".into(),
        started: "2026-01-02T03:04:05Z".into(),
        elapsed_ns: 5_213_000_000,
        plan: plan("trial", Some("a"), Some("b")),
        totals,
        rates,
        latency_ns: latency,
        jitter_ns: summary(498_996, 0, 310),
        jitter_rfc3550_ns: Some(412.5),
        ipdv_ns: summary(498_990, -18_200, 181),
        pdv_ns: summary(499_000, 0, 1_100),
        inter_arrival_ns: summary(499_001, 90, 5_000),
        inter_departure_ns: None,
        percentile_error: 0.0078,
        jobs: vec![JobReport {
            name: "job 1".into(),
            tx: Some("a".into()),
            rx: Some("b".into()),
            totals,
            rates,
            latency_ns: latency,
            streams: vec![StreamReport {
                path: "xdp to packet".into(),
                name: "stream 1".into(),
                first_flow: 0,
                flows: 4,
                totals: Totals {
                    intended_frames: Some(500_000),
                    offered_frames: Some(500_000),
                    unsent_frames: Some(0),
                    ..Totals::default()
                },
                ..StreamReport::default()
            }],
            ..JobReport::default()
        }],
        flows: vec![flow(2, 998), flow(0, 2), flow(1, 0), flow(3, 0)],
        flows_omitted: 0,
        workers: vec![
            WorkerReport {
                port: "a".into(),
                queue: 0,
                role: "tx".into(),
                cpu: Some(0),
                totals: Totals {
                    offered_frames: Some(500_000),
                    ..Totals::default()
                },
                kicks: 15_625,
                full_events: 3,
                busy: 0.371,
                ..WorkerReport::default()
            },
            WorkerReport {
                port: "b".into(),
                queue: 0,
                role: "rx".into(),
                cpu: Some(1),
                totals: Totals {
                    received_frames: Some(499_002),
                    rx_dropped_frames: Some(0),
                    ..Totals::default()
                },
                latency_ns: latency,
                busy: 0.999_998,
                ..WorkerReport::default()
            },
        ],
        ports: vec![port_a(), port_b()],
        criteria: vec![
            CriterionReport {
                criterion: "loss<=0.1%".into(),
                measured: Some(0.002),
                held: false,
            },
            CriterionReport {
                criterion: "p99<=500us".into(),
                measured: Some(15_100.0),
                held: true,
            },
        ],
        capture: None,
        captures: std::collections::BTreeMap::new(),
        load: None,
        http: None,
        socket: None,
        probes: Vec::new(),
        results: Vec::new(),
        lateness: Default::default(),
        environment: EnvironmentReport::default(),
        timeline: Timeline::default(),
        distributions: Vec::new(),
        histograms: Vec::new(),
        merged: Vec::new(),
        clock: clock(),
        warnings: vec![
            "port b counted 1,000 drops of its own (rx_dropped): frames were lost between the wire and this program".into(),
        ],
    };
    report.plan.traffic[0].streams[0].flows = Some(4);
    report.plan.criteria = vec!["loss<=0.1%".parse().unwrap(), "p99<=500us".parse().unwrap()];
    report
}

/// A run that only sent, as fast as the port accepted frames.
pub(crate) fn tx_only() -> Report {
    let totals = Totals {
        intended_frames: Some(5_812_345),
        offered_frames: Some(5_812_345),
        unsent_frames: Some(0),
        offered_octets: Some(371_990_080),
        refused_frames: Some(0),
        ..Totals::default()
    };
    let rates = Rates {
        offered_pps: Some(1_162_469.0),
        offered_l1_bps: Some(781_179_168.0),
        offered_l2_bps: Some(595_184_128.0),
        tx_time_ns: Some(5_000_000_000),
        ..Rates::default()
    };
    let mut report = Report {
        first_flow: Some(2_839_120_398),
        kind: "tx".into(),
        verdict: Verdict::Completed,
        reason: "Everything was sent; no criteria were set.".into(),
        limited_by: "the port: it was full in 0.8 % of the attempts to send".into(),
        plan: plan("tx", Some("a"), None),
        totals,
        rates,
        latency_ns: Summary::default(),
        jitter_ns: Summary::default(),
        jitter_rfc3550_ns: None,
        ipdv_ns: Summary::default(),
        pdv_ns: Summary::default(),
        inter_arrival_ns: Summary::default(),
        percentile_error: 0.0,
        jobs: vec![JobReport {
            name: "job 1".into(),
            tx: Some("a".into()),
            totals,
            rates,
            ..JobReport::default()
        }],
        flows: Vec::new(),
        ports: vec![port_a()],
        criteria: Vec::new(),
        warnings: Vec::new(),
        ..lossy()
    };
    report.workers.truncate(1);
    report.workers[0].totals.offered_frames = totals.offered_frames;
    report.plan.traffic[0].streams[0].rate = "max".parse().unwrap();
    report.plan.ports.truncate(1);
    report.plan.criteria.clear();
    report
}

/// A run that only received, until a signal.
pub(crate) fn rx_only() -> Report {
    let totals = Totals {
        received_frames: Some(1_000_000),
        lost_frames: Some(12),
        duplicate_frames: Some(0),
        reordered_frames: Some(0),
        late_frames: Some(0),
        foreign_frames: Some(31),
        rx_dropped_frames: Some(0),
        received_octets: Some(64_000_000),
        ..Totals::default()
    };
    let rates = Rates {
        received_pps: Some(100_012.0),
        received_l1_bps: Some(67_208_064.0),
        received_l2_bps: Some(51_206_144.0),
        rx_time_ns: Some(9_998_790_000),
        ..Rates::default()
    };
    let base = lossy();
    let mut report = Report {
        first_flow: Some(2_839_120_398),
        kind: "rx".into(),
        verdict: Verdict::Completed,
        reason: "Received until the signal SIGINT; no criteria were set.".into(),
        limited_by: Default::default(),
        plan: plan("rx", None, Some("b")),
        totals,
        rates,
        jobs: vec![JobReport {
            name: "job 1".into(),
            rx: Some("b".into()),
            totals,
            rates,
            latency_ns: base.latency_ns,
            ..JobReport::default()
        }],
        flows: vec![base.flows[0].clone()],
        ports: vec![port_b()],
        criteria: Vec::new(),
        warnings: Vec::new(),
        ..base.clone()
    };
    report.clock.same_clock = false;
    report.clock.error_ns = None;
    report.clock.step_ns = -1_250_000;
    report.workers.remove(0);
    report.workers[0].totals.received_frames = totals.received_frames;
    report.plan.ports.remove(0);
    report
}

/// A run in both directions, ended by a fault before everything was sent; sums that do not add up are
/// shown as such.
pub(crate) fn faulted() -> Report {
    let base = lossy();
    let mut there = base.jobs[0].clone();
    there.name = "job 1".into();
    there.totals.intended_frames = Some(500_000);
    there.totals.offered_frames = Some(123_456);
    there.totals.unsent_frames = Some(376_544);
    there.totals.received_frames = Some(123_455);
    there.totals.duplicate_frames = Some(0);
    there.totals.lost_frames = Some(1);
    let mut back = there.clone();
    back.name = "job 1, back".into();
    (back.tx, back.rx) = (there.rx.clone(), there.tx.clone());
    back.totals.lost_frames = Some(0);
    Report {
        verdict: Verdict::Invalid,
        reason: "Ended after 1.23 s by a fault: port a: the interface went down (ENETDOWN).".into(),
        limited_by: "the fault".into(),
        elapsed_ns: 1_234_000_000,
        totals: there.totals.plus(&back.totals),
        jobs: vec![there, back],
        flows_omitted: 65_532,
        criteria: vec![CriterionReport {
            criterion: "max<=1ms".into(),
            measured: None,
            held: false,
        }],
        warnings: Vec::new(),
        ..base
    }
}

pub(crate) fn snapshot() -> Snapshot {
    Snapshot {
        progress: Some(0.6),
        totals: Totals {
            offered_frames: Some(300_000),
            received_frames: Some(299_400),
            ..Totals::default()
        },
        offered_pps: Some(100_000.0),
        received_pps: Some(99_800.0),
        offered_l2_bps: Some(51_200_000.0),
        received_l2_bps: Some(51_097_600.0),
        missing_frames: Some(600),
        latency_mean_ns: Some(6_575.0),
        ..Snapshot::at(3_000_000_000, 1_000_000_000, Phase::Running)
    }
}
