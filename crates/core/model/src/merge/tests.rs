use proptest::prelude::*;
use wb_measure::{EncodedHistogram, Histogram, NamedHistogram, SignedHistogram};

use super::*;
use crate::{
    Plan, TrafficJob, Verdict,
    capture::CaptureJob,
    http::{HttpJob, HttpJobReport},
    load::{LoadEnd, LoadJob, LoadJobReport, LoadPhaseReport},
    report::{CaptureReport, Rates, Totals},
    socket::SocketJob,
    timeline::{Column, Distribution, Timeline},
};

const SECOND: u64 = 1_000_000_000;

fn named(name: &str, values: &[u64]) -> NamedHistogram {
    let mut all = SignedHistogram::new();
    values.iter().for_each(|value| all.record(*value as i64));
    NamedHistogram {
        of: String::new(),
        name: name.to_owned(),
        values: all,
    }
}

fn part(name: &str, started_ns: u64, report: Report) -> Part {
    Part {
        name: name.to_owned(),
        started_ns,
        report,
    }
}

/// Counters that rise by 1 every 10 ms from `from_ns` on until they reach `most`, recorded every 100 ms for another second.
fn timeline(of: &str, names: &[&str], from_ns: u64, most: u64) -> Timeline {
    let end_ns = from_ns + most * 10_000_000 + SECOND;
    let at_ns: Vec<u64> = (0..=end_ns / 100_000_000)
        .map(|n| n * 100_000_000)
        .collect();
    let count = |ns: &u64| (ns.saturating_sub(from_ns) / 10_000_000).min(most);
    let columns = names.iter().map(|name| Column {
        of: of.to_owned(),
        name: (*name).to_owned(),
        unit: "frames".to_owned(),
        counter: *name != "open_connections",
        values: at_ns.iter().map(|ns| Some(count(ns) as f64)).collect(),
    });
    Timeline {
        columns: columns.collect(),
        at_ns,
        spreads: Vec::new(),
    }
}

/// A trial of `seconds` s at 100 frames of 1 octet per second, of which one was lost.
fn trial(seconds: u64, latencies: &[u64], criteria: &[&str]) -> Report {
    let latency = named("latency_ns", latencies);
    let n = seconds * 100;
    let totals = Totals {
        intended_frames: Some(n),
        offered_frames: Some(n),
        unsent_frames: Some(0),
        received_frames: Some(n - 1),
        duplicate_frames: Some(0),
        lost_frames: Some(1),
        ..Totals::default()
    };
    let rates = Rates {
        intended_pps: Some(100.0),
        offered_pps: Some(100.0),
        received_pps: Some(99.0),
        tx_time_ns: Some(seconds * SECOND),
        rx_time_ns: Some(seconds * SECOND),
        ..Rates::default()
    };
    let names = [
        "offered_frames",
        "offered_octets",
        "received_frames",
        "received_octets",
    ];
    Report {
        kind: "trial".to_owned(),
        verdict: Verdict::Completed,
        elapsed_ns: (seconds + 1) * SECOND,
        plan: Plan {
            traffic: vec![TrafficJob {
                tx: Some("tx".to_owned()),
                rx: Some("rx".to_owned()),
                streams: vec![crate::Stream::default()],
                ..TrafficJob::default()
            }],
            criteria: criteria.iter().map(|c| c.parse().unwrap()).collect(),
            ..Plan::default()
        },
        first_flow: Some(1000),
        totals,
        rates,
        latency_ns: latency.values.summary(),
        jobs: vec![JobReport {
            name: "traffic".to_owned(),
            tx: Some("tx".to_owned()),
            rx: Some("rx".to_owned()),
            totals,
            rates,
            latency_ns: latency.values.summary(),
            ..JobReport::default()
        }],
        flows: vec![FlowReport::default()],
        timeline: timeline("traffic", &names, 0, n),
        distributions: vec![Distribution::of(&latency)],
        histograms: vec![EncodedHistogram::from(&latency)],
        ..Report::default()
    }
}

fn without_values(mut report: Report) -> Report {
    report.histograms.clear();
    report
}

/// A load of 2 s at 100 connections per second, with the times of its requests.
fn load(times: &[u64]) -> Report {
    let request = named("request_ns", times);
    let names = [
        "attempted_connections",
        "established_connections",
        "completed_connections",
        "failed_connections",
        "open_connections",
        "requests",
        "responses",
        "tx_frames",
        "rx_frames",
        "tx_octets",
        "rx_octets",
    ];
    let mut client = LoadJobReport {
        name: "client 1".to_owned(),
        request_ns: request.values.summary().into(),
        phases: vec![LoadPhaseReport {
            phase: "steady".to_owned(),
            to_ns: 2 * SECOND,
            cps: 50.0,
            ..LoadPhaseReport::default()
        }],
        ..LoadJobReport::default()
    };
    client.totals.attempted_connections = 200;
    client.totals.completed_connections = 200;
    let server = LoadJobReport {
        name: "server 1".to_owned(),
        end: LoadEnd::Server,
        ..client.clone()
    };
    let totals = Totals {
        connections: Some(client.totals),
        ..Totals::default()
    };
    Report {
        verdict: Verdict::Completed,
        plan: Plan {
            loads: vec![LoadJob::default()],
            ..Plan::default()
        },
        totals,
        latency_ns: request.values.summary(),
        load: Some(LoadReport {
            jobs: vec![client, server],
        }),
        timeline: timeline("load", &names, 0, 200),
        distributions: vec![Distribution::of(&request)],
        histograms: vec![EncodedHistogram::from(&request)],
        ..Report::default()
    }
}

fn http(times: &[u64]) -> Report {
    let latency = named("latency_ns", times);
    let mut job = HttpJobReport {
        name: "http 1".to_owned(),
        latency_ns: latency.values.summary().into(),
        duration_ns: 2 * SECOND,
        ..HttpJobReport::default()
    };
    job.totals.sent = times.len() as u64;
    job.totals.completed = job.totals.sent;
    let names = [
        "completed",
        "established_connections",
        "received_bytes",
        "open_connections",
    ];
    Report {
        verdict: Verdict::Completed,
        plan: Plan {
            http_jobs: vec![HttpJob::default()],
            ..Plan::default()
        },
        latency_ns: latency.values.summary(),
        http: Some(HttpReport {
            jobs: vec![job],
            ..HttpReport::default()
        }),
        timeline: timeline("http", &names, 0, 200),
        distributions: vec![Distribution::of(&latency)],
        histograms: vec![EncodedHistogram::from(&latency)],
        ..Report::default()
    }
}

/// Merges two runs of which the second one started later.
fn two(later_ns: u64, one: Report, other: Report) -> Result<Report, String> {
    merge(vec![
        part("a", 5 * SECOND, one),
        part("b", 5 * SECOND + later_ns, other),
    ])
}

proptest! {
    /// Merged percentiles of two parts are those of the whole, for all kinds of jobs.
    #[test]
    fn parts_merge_to_the_whole(
        values in prop::collection::vec(0..50_000_000_u64, 2..200),
        at in 0..200_usize,
    ) {
        let (one, other) = values.split_at(at % values.len());
        let mut whole = Histogram::new();
        values.iter().for_each(|value| whole.record(*value));
        type Make = fn(&[u64]) -> Report;
        let kinds: [Make; 3] = [|values| trial(2, values, &[]), load, http];
        for make in kinds {
            let merged = two(1, make(one), make(other)).unwrap();
            prop_assert_eq!(merged.latency_ns, whole.summary());
            let jobs = merged.jobs.iter().map(|job| job.latency_ns);
            let loads = merged.load.iter().flat_map(|load| &load.jobs).map(|job| *job.request_ns).take(1);
            let http = merged.http.iter().flat_map(|http| &http.jobs).map(|job| *job.latency_ns);
            let of_jobs: Vec<_> = jobs.chain(loads).chain(http).collect();
            prop_assert_eq!(of_jobs, [whole.summary()]);
            let again = NamedHistogram::try_from(&merged.histograms[0]).unwrap();
            prop_assert_eq!(again.values.summary(), whole.summary());
            let fine = Distribution::of(&again);
            prop_assert_eq!(&merged.distributions[0].buckets, &fine.buckets);
        }
    }
}

#[test]
fn counts_add_up_and_rates_are_those_of_the_shared_time() {
    // From 0 s to 4 s, and from 1 s to 3 s, without the moments in which the counts begin and end to rise.
    let merged = two(SECOND, trial(4, &[1, 2], &[]), trial(2, &[3], &[])).unwrap();
    assert_eq!(
        (merged.verdict, merged.elapsed_ns),
        (Verdict::Completed, 5 * SECOND)
    );
    let totals = merged.totals;
    assert_eq!(
        (totals.offered_frames, totals.lost_frames),
        (Some(600), Some(2))
    );
    assert!(totals.adds_up());
    let shared_ns = 1_800_000_000;
    for rates in [merged.rates, merged.jobs[0].rates] {
        assert_eq!(rates.offered_pps.map(f64::round), Some(200.0));
        assert_eq!(rates.offered_l2_bps.map(f64::round), Some(1_600.0));
        assert_eq!(rates.offered_l1_bps.map(f64::round), Some(33_600.0));
        assert_eq!(
            (rates.intended_pps, rates.tx_time_ns),
            (Some(200.0), Some(shared_ns))
        );
        assert_eq!(
            (rates.while_receiving_pps, rates.line_rate_pps),
            (None, None)
        );
    }
    let last = merged.timeline.last();
    assert_eq!(last.columns[0].values, [Some(600.0)]);
    assert_eq!(merged.jobs[0].tx.as_deref(), Some("tx"));
    let runs = merged
        .merged
        .iter()
        .map(|run| (run.name.as_str(), run.after_ns));
    assert_eq!(runs.collect::<Vec<_>>(), [("a", 0), ("b", SECOND)]);
    assert_eq!(
        merged.warnings,
        ["rates are those of the 1.800 s in which all runs were active"]
    );
    let mut other = trial(2, &[1], &[]);
    other.plan.traffic[0].streams[0].rate = "1kpps".parse().unwrap();
    other.plan.seed = 7;
    let merged = two(1, trial(2, &[1], &[]), other).unwrap();
    assert_eq!(merged.warnings[0], "the plans of a and b differ: rate");
    let three = [0, 1, 2].map(|n| part(&format!("{n}"), n, trial(2, &[n], &[])));
    let merged = merge(three.to_vec()).unwrap();
    assert_eq!(merged.totals.offered_frames, Some(600));
    assert_eq!(merged.rates.offered_pps.map(f64::round), Some(300.0));
    assert_eq!(merged.latency_ns.p50, Some(1));
}

/// Counting starts after a ramp; a receiver starts before its sender.
#[test]
fn times_without_counts_are_not_active() {
    let late = |from_ns: u64, names: &[&str]| {
        let mut report = trial(2, &[1], &[]);
        report.timeline = timeline("traffic", names, from_ns, 200);
        report
    };
    let all = [
        "offered_frames",
        "offered_octets",
        "received_frames",
        "received_octets",
    ];
    let merged = two(1, late(10 * SECOND, &all), late(10 * SECOND, &all)).unwrap();
    assert_eq!(merged.rates.offered_pps.map(f64::round), Some(200.0));
    let received = &all[2..];
    let merged = two(
        0,
        late(3 * SECOND, received),
        late(7 * SECOND / 2, received),
    );
    assert_eq!(merged.unwrap_err(), "a and b are reports of the same run");
    let merged = two(
        1,
        late(3 * SECOND, received),
        late(7 * SECOND / 2, received),
    )
    .unwrap();
    assert_eq!(merged.rates.received_pps.map(f64::round), Some(200.0));
    assert_eq!(merged.rates.offered_pps, None);
}

#[test]
fn without_a_shared_time_rates_are_unknown() {
    let apart = |make: fn(&[u64]) -> Report| two(9 * SECOND, make(&[1]), make(&[2]));
    let merged = apart(|values| trial(2, values, &[])).unwrap();
    assert_eq!(merged.rates, Rates::default());
    assert_eq!(merged.jobs[0].rates, Rates::default());
    assert_eq!(
        (merged.latency_ns.p50, merged.latency_ns.p99),
        (Some(1), Some(2))
    );
    assert!(
        merged.warnings[0].starts_with("some rates are unknown"),
        "{:?}",
        merged.warnings
    );
    let merged = apart(load).unwrap();
    assert!(
        merged
            .load
            .unwrap()
            .jobs
            .iter()
            .all(|job| job.phases.is_empty())
    );
    assert_eq!(
        apart(http).unwrap_err(),
        "HTTP jobs cannot be merged: there is no time in which all runs were active and recorded 10 times"
    );
}

#[test]
fn rates_of_loads_and_of_http_are_those_of_the_shared_time() {
    let merged = two(SECOND, load(&[1]), load(&[2])).unwrap();
    assert_eq!(
        merged.totals.connections.unwrap().attempted_connections,
        400
    );
    let load = merged.load.unwrap();
    let phase = &load.jobs[0].phases[0];
    assert_eq!((phase.from_ns, phase.to_ns), (SECOND, 2 * SECOND));
    assert_eq!((phase.cps, phase.rps, phase.tx_bps), (200.0, 200.0, 1600.0));
    // 200 of the first run are open at 2 s, and 100 of the second.
    assert_eq!(phase.totals.open_connections, 300);
    assert_eq!(phase.totals.attempted_connections, 200);
    assert_eq!((load.jobs.len(), load.jobs[1].phases.len()), (2, 0));
    assert_eq!(merged.rates.offered_pps, Some(200.0));
    let merged = two(SECOND / 2, http(&[1]), http(&[2])).unwrap();
    let job = &merged.http.unwrap().jobs[0];
    assert_eq!(
        (job.requests_per_second.round(), job.received_bps.round()),
        (200.0, 1600.0)
    );
    assert_eq!((job.duration_ns, job.totals.completed), (1_300_000_000, 2));
    // Older versions recorded no octets.
    let mut old = self::load(&[1]);
    old.timeline
        .columns
        .retain(|column| column.name != "tx_octets");
    let merged = two(1, self::load(&[1]), old).unwrap();
    assert!(merged.load.unwrap().jobs[0].phases.is_empty());
    assert!(
        merged.warnings[0].starts_with("some rates are unknown"),
        "{:?}",
        merged.warnings
    );
}

/// One of two jobs begins when the other one has ended.
#[test]
fn the_rate_of_several_jobs_is_the_sum_of_theirs() {
    let report = || {
        let mut report = trial(2, &[1], &["pps>=300"]);
        let mut later = report.jobs[0].clone();
        (report.jobs[0].name, later.name) = ("job 1".to_owned(), "job 2".to_owned());
        report.jobs.push(later);
        report.plan.traffic.push(report.plan.traffic[0].clone());
        let names = [
            "offered_frames",
            "offered_octets",
            "received_frames",
            "received_octets",
        ];
        let mut all = timeline("traffic", &names, 0, 400);
        for (of, from_ns) in [("job 1", 0), ("job 2", 2 * SECOND)] {
            let own = timeline(&format!("job {of}"), &names, from_ns, 200);
            let columns = own.columns.into_iter().map(|mut column| {
                column.values.resize(all.at_ns.len(), Some(200.0));
                column
            });
            all.columns.extend(columns);
        }
        report.timeline = all;
        report.totals = report.totals.plus(&report.totals);
        report
    };
    let merged = two(1, report(), report()).unwrap();
    let rates = merged
        .jobs
        .iter()
        .map(|job| job.rates.offered_pps.map(f64::round));
    assert_eq!(rates.collect::<Vec<_>>(), [Some(200.0), Some(200.0)]);
    assert_eq!(merged.rates.offered_pps.map(f64::round), Some(400.0));
    assert_eq!(
        (merged.verdict, merged.rates.intended_pps),
        (Verdict::Pass, Some(400.0))
    );
}

#[test]
fn the_loss_of_udp_requests_stays_the_same() {
    let udp = |criterion: &str| {
        let mut report = load(&[1]);
        let load = report.load.as_mut().unwrap();
        load.jobs.truncate(1);
        let job = &mut load.jobs[0];
        job.transport = crate::load::LoadTransport::Udp;
        (
            job.totals.requests,
            job.totals.responses,
            job.totals.lost_requests,
        ) = (100, 90, 10);
        report.plan.loads[0].transport = job.transport;
        report.plan.criteria = vec![criterion.parse().unwrap()];
        report
    };
    let three = [0, 1, 2].map(|n| part(&format!("{n}"), n, udp("loss<=15%")));
    let merged = merge(three.to_vec()).unwrap();
    assert_eq!(
        (merged.criteria[0].measured, merged.verdict),
        (Some(0.1), Verdict::Pass)
    );
}

#[test]
fn without_all_values_percentiles_are_unknown() {
    let merged = two(
        1,
        trial(2, &[1, 2], &[]),
        without_values(trial(2, &[9], &[])),
    )
    .unwrap();
    let latency = merged.latency_ns;
    assert_eq!(
        (latency.samples, latency.mean, latency.max),
        (3, Some(4.0), Some(9))
    );
    assert_eq!((latency.p50, latency.p99), (None, None));
    assert!(merged.histograms.is_empty());
    assert_eq!(merged.distributions[0].count(), 3);
    let mut warnings = merged.warnings.iter();
    assert!(warnings.any(|w| w.starts_with("some percentiles are unknown")));
}

#[test]
fn criteria_are_judged_by_the_results_of_all_runs() {
    let judged = |criterion: &str, change: fn(&mut Report)| {
        let mut one = trial(2, &[10, 20], &[criterion]);
        one.jobs[0].name = "traffic".to_owned();
        let mut other = trial(2, &[30, 1000], &[criterion]);
        change(&mut other);
        let merged = two(1, one, other).unwrap();
        let criterion = &merged.criteria[0];
        (merged.verdict, criterion.measured, criterion.held)
    };
    let same: fn(&mut Report) = |_| ();
    assert_eq!(judged("loss<=1%", same), (Verdict::Pass, Some(0.005), true));
    assert_eq!(judged("lost<=1", same), (Verdict::Fail, Some(2.0), false));
    assert_eq!(
        judged("job 1.lost<=2", same),
        (Verdict::Pass, Some(2.0), true)
    );
    assert_eq!(
        judged("job 1.p99<=1us", same),
        (Verdict::Pass, Some(1000.0), true)
    );
    assert!(judged("pps>=190", same).2);
    assert_eq!(
        judged("p99<=1us", same),
        (Verdict::Pass, Some(1000.0), true)
    );
    let no_values: fn(&mut Report) = |report| report.histograms.clear();
    assert_eq!(
        judged("p99<=1us", no_values),
        (Verdict::Invalid, None, false)
    );
    assert_eq!(
        judged("max<=1us", no_values),
        (Verdict::Pass, Some(1000.0), true)
    );
    let incomplete: fn(&mut Report) = |report| report.verdict = Verdict::Incomplete;
    assert_eq!(judged("loss<=1%", incomplete).0, Verdict::Incomplete);
    let invalid: fn(&mut Report) = |report| report.verdict = Verdict::Invalid;
    assert_eq!(judged("loss<=1%", invalid).0, Verdict::Invalid);
    // A late read may have lost the second frame, unless one run alone lost too many.
    let late: fn(&mut Report) = |report| report.lateness.all.late_reads = 1;
    assert_eq!(judged("lost<=1", late).0, Verdict::Invalid);
    let stalled: fn(&mut Report) = |report| report.lateness.all.stalls = 1;
    assert_eq!(judged("lost<=1", stalled).0, Verdict::Fail);
    let failed: fn(&mut Report) = |report| {
        report.lateness.all.late_reads = 1;
        report.criteria = vec![crate::report::CriterionReport {
            criterion: "lost<=1".to_owned(),
            measured: Some(2.0),
            held: false,
        }];
    };
    assert_eq!(judged("lost<=1", failed).0, Verdict::Fail);
    let wrong: fn(&mut Report) = |report| report.totals.lost_frames = Some(7);
    assert_eq!(judged("loss<=10%", wrong).0, Verdict::Invalid);
}

#[test]
fn both_directions_of_a_job_are_judged_together() {
    let both = |latencies: [&[u64]; 2]| {
        let mut report = trial(2, &latencies.concat(), &["web.p99<=1us"]);
        report.plan.traffic[0].name = "web".to_owned();
        report.plan.traffic[0].bidir = true;
        let one = report.jobs.remove(0);
        for (way, latencies) in ["web forward", "web back"].into_iter().zip(latencies) {
            let values = NamedHistogram {
                of: way.to_owned(),
                ..named("latency_ns", latencies)
            };
            report.jobs.push(JobReport {
                name: way.to_owned(),
                latency_ns: values.values.summary(),
                ..one.clone()
            });
            report.histograms.push(EncodedHistogram::from(&values));
            report.distributions.push(Distribution::of(&values));
        }
        report
    };
    let merged = two(1, both([&[1, 2], &[900]]), both([&[3], &[4]])).unwrap();
    let criterion = &merged.criteria[0];
    assert_eq!((criterion.measured, criterion.held), (Some(900.0), true));
    let back = &merged.jobs[1];
    assert_eq!(
        (back.latency_ns.samples, back.latency_ns.p99),
        (2, Some(900))
    );
}

#[test]
fn what_cannot_be_merged_is_named() {
    let refused = |change: fn(&mut Report)| {
        let mut other = trial(2, &[1], &[]);
        change(&mut other);
        two(1, trial(2, &[1], &[]), other).unwrap_err()
    };
    for (change, said) in [
        (
            (|r| r.plan.sockets.push(SocketJob::default())) as fn(&mut Report),
            "b: results of socket jobs cannot be merged; possible are traffic, devices, load, capture and http",
        ),
        (
            |r| r.plan.loads.push(LoadJob::default()),
            "b: a run with jobs of several kinds cannot be merged",
        ),
        (
            |r| r.jobs[0].name = "other".to_owned(),
            "a and b cannot be merged: their jobs differ: job traffic; job other",
        ),
        (
            |r| {
                let job = HttpJobReport {
                    name: r.jobs.remove(0).name,
                    ..HttpJobReport::default()
                };
                r.http = Some(HttpReport {
                    jobs: vec![job],
                    ..HttpReport::default()
                });
            },
            "a and b cannot be merged: their jobs differ: job traffic; http traffic",
        ),
        (
            |r| r.plan.criteria = vec!["loss<=1%".parse().unwrap()],
            "a and b cannot be merged: their criteria differ",
        ),
        (
            |r| r.totals.received_frames = None,
            "a and b cannot be merged: only one of them has received_frames",
        ),
        (
            |r| r.jobs[0].totals.duplicate_frames = None,
            "a and b cannot be merged: only one of them has duplicate_frames",
        ),
        (
            |r| r.merged = vec![MergedRun::default()],
            "b: is merged already; merge the reports of all runs at once",
        ),
        (
            |r| r.histograms[0].per_octave = 16,
            "b: histogram latency_ns: per_octave must be 512, got 16",
        ),
        (
            |r| r.histograms[0].values.slots[1] = 1 << 60,
            "b: histogram latency_ns: its numbers are too large",
        ),
        (
            |r| r.histograms[0].values.sum = (1_u128 << 119).to_string(),
            "b: histogram latency_ns: its numbers are too large",
        ),
        (
            |r| r.totals.offered_frames = Some(u64::MAX),
            "b: its numbers are too large to be merged",
        ),
        (
            |r| r.rates.offered_pps = Some(1e300),
            "b: its numbers are too large to be merged",
        ),
    ] {
        assert_eq!(refused(change), said);
    }
    let many = (0..65).map(|n| part("x", n, trial(2, &[1], &[])));
    assert_eq!(
        merge(many.collect()).unwrap_err(),
        "at most 64 reports can be merged, got 65"
    );
}

#[test]
fn flows_streams_and_ports_of_different_runs_stay_apart() {
    let mut report = trial(2, &[1], &[]);
    report.ports = vec![crate::report::PortReport {
        name: "tx".to_owned(),
        ..Default::default()
    }];
    report.jobs[0].streams = vec![crate::report::StreamReport {
        name: "stream 1".to_owned(),
        ..Default::default()
    }];
    let mut other = report.clone();
    other.first_flow = Some(1007);
    other.outages = Some(OutageReport {
        outages: 1,
        outage_ns: 5,
        outage_begin_ns: Some(1),
        outage_end_ns: Some(6),
        outage_flow: Some(2),
        ..OutageReport::default()
    });
    let merged = two(100, report.clone(), other.clone()).unwrap();
    let flows = |of: &Report| of.flows.iter().map(|flow| flow.flow).collect::<Vec<_>>();
    assert_eq!(
        (merged.first_flow, flows(&merged)),
        (Some(1000), vec![0, 7])
    );
    assert_eq!(merged.jobs[0].tx.as_deref(), Some("a:tx, b:tx"));
    let ports: Vec<&str> = merged.ports.iter().map(|port| port.name.as_str()).collect();
    assert_eq!(ports, ["a:tx", "b:tx"]);
    let streams = merged.jobs[0].streams.iter();
    let streams: Vec<_> = streams
        .map(|stream| (stream.name.as_str(), stream.first_flow))
        .collect();
    assert_eq!(streams, [("a: stream 1", 0), ("b: stream 1", 7)]);
    let outage = merged.outages.unwrap();
    assert_eq!(
        (outage.outage_begin_ns, outage.outage_flow),
        (Some(101), Some(9))
    );
    report.first_flow = None;
    let merged = two(100, report, other).unwrap();
    assert_eq!((merged.first_flow, flows(&merged)), (None, vec![0, 1007]));
}

#[test]
fn captures_are_judged_one_by_one() {
    let capture = |lost: [u64; 2], criteria: &[&str]| {
        let one = |lost| CaptureReport {
            filter_accept_frames: 100,
            captured_frames: 100 - lost,
            kernel_drop_frames: lost,
            exact: true,
            ..CaptureReport::default()
        };
        let names = ["far".to_owned(), "near".to_owned()];
        let job = |name: &String| CaptureJob {
            name: name.clone(),
            ..CaptureJob::default()
        };
        Report {
            verdict: Verdict::Completed,
            plan: Plan {
                captures: names.iter().map(job).collect(),
                criteria: criteria.iter().map(|c| c.parse().unwrap()).collect(),
                ..Plan::default()
            },
            captures: names.into_iter().zip(lost.map(one)).collect(),
            ..Report::default()
        }
    };
    let merged = |lost, criteria: &[&str]| {
        two(1, capture([0, 0], criteria), capture(lost, criteria)).unwrap()
    };
    let all = merged([0, 0], &[]);
    assert_eq!(
        (all.verdict, all.captures["far"].captured_frames),
        (Verdict::Completed, 200)
    );
    let all = merged([3, 0], &[]);
    assert_eq!(
        (all.verdict, all.reason.as_str()),
        (Verdict::Fail, "3 frames were lost")
    );
    let all = merged([3, 0], &["loss<=1%"]);
    assert_eq!(
        (all.verdict, all.criteria[0].measured),
        (Verdict::Fail, Some(0.015))
    );
    let mut other = capture([0, 0], &[]);
    other.captures.get_mut("far").unwrap().filter = "tcp".to_owned();
    assert_eq!(
        two(1, capture([0, 0], &[]), other).unwrap_err(),
        "a and b cannot be merged: their filters or snapshot lengths differ"
    );
}
