//! The output forms: snapshots of whole texts, and properties that hold for all of them.

use crate::samples;
use insta::assert_snapshot;
use wb_model::{
    Phase, Report, Snapshot,
    load::{LoadEnd, LoadJobReport, LoadReport},
};
use wb_render::{
    csv,
    findings::{self, Finding, Level},
    json, linerate, live,
    text::{self, Options},
};

fn plain(report: &Report) -> String {
    text::report(report, &Options::default())
}

#[test]
fn trial_with_loss() {
    assert_snapshot!(plain(&samples::lossy()));
}

#[test]
fn trial_with_loss_verbose_and_few_flows() {
    let options = Options {
        verbose: true,
        width: 60,
        ..Options::default()
    };
    assert_snapshot!(text::report(&samples::lossy(), &options));
}

#[test]
fn tx_only() {
    assert_snapshot!(plain(&samples::tx_only()));
}

#[test]
fn rx_only() {
    assert_snapshot!(plain(&samples::rx_only()));
}

#[test]
fn faulted_both_ways() {
    assert_snapshot!(plain(&samples::faulted()));
}

#[test]
fn color_only_adds_escapes() {
    let report = samples::faulted();
    let colored = text::report(
        &report,
        &Options {
            color: true,
            ..Options::default()
        },
    );
    assert!(colored.starts_with("\x1b[1;31mINVALID"));
    let mut bare = String::new();
    let mut rest = colored.as_str();
    while let Some((before, after)) = rest.split_once("\x1b[") {
        bare.push_str(before);
        rest = after
            .split_once('m')
            .expect("every escape here ends in m")
            .1;
    }
    bare.push_str(rest);
    assert_eq!(bare, plain(&report));
}

#[test]
fn reports_fit_eighty_columns() {
    for report in [
        samples::lossy(),
        samples::tx_only(),
        samples::rx_only(),
        samples::faulted(),
    ] {
        for verbose in [false, true] {
            let options = Options {
                verbose,
                ..Options::default()
            };
            for line in text::report(&report, &options).lines() {
                assert!(line.chars().count() <= 80, "{line}");
                assert_eq!(line, line.trim_end());
            }
        }
    }
}

#[test]
fn a_sum_that_does_not_add_up_is_said() {
    let mut report = samples::lossy();
    assert!(!plain(&report).contains("DOES NOT ADD UP"));
    report.jobs[0].totals.lost_frames = Some(999);
    assert!(plain(&report).contains("DOES NOT ADD UP: offered 500,000 = received 499,002"));
}

#[test]
fn a_single_lost_frame_is_never_rounded_away() {
    let mut report = samples::lossy();
    let totals = &mut report.jobs[0].totals;
    totals.intended_frames = Some(u64::MAX);
    totals.offered_frames = Some(u64::MAX);
    totals.received_frames = Some(u64::MAX - 1);
    totals.duplicate_frames = Some(0);
    totals.lost_frames = Some(1);
    let text = plain(&report);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains("0.0000000000000000054 % of offered"),
        "{text}"
    );
    assert!(
        text.contains("99.9999999999999999946 % of offered"),
        "{text}"
    );
    assert!(
        !text.contains(" 0 % of") && !text.contains(" 100 % of"),
        "{text}"
    );
}

#[test]
fn live_lines_of_all_widths() {
    let running = samples::snapshot();
    let drain = Snapshot {
        phase: Phase::Drain,
        progress: Some(0.999_9),
        offered_pps: Some(0.0),
        ..running.clone()
    };
    let mut done = Snapshot {
        phase: Phase::Done,
        progress: Some(1.0),
        missing_frames: Some(1_000),
        ..running.clone()
    };
    done.totals.lost_frames = Some(1_000);
    let rx = Snapshot {
        progress: None,
        offered_pps: None,
        missing_frames: None,
        ..running.clone()
    };
    let waits = Snapshot {
        offered_pps: Some(0.0),
        latency_mean_ns: None,
        links_down: vec!["tx".to_owned()],
        ..running.clone()
    };
    let mut text = String::new();
    for (width, unicode) in [
        (140, true),
        (100, false),
        (80, false),
        (60, false),
        (20, false),
    ] {
        for snapshot in [&running, &drain, &done, &rx, &waits] {
            let line = live::line(snapshot, width, unicode);
            assert!(line.chars().count() <= width, "{width}: {line}");
            text.push_str(&format!("{width:>3}|{line}\n"));
        }
    }
    assert_snapshot!(text);
    for width in 0..200 {
        assert!(live::line(&running, width, true).chars().count() <= width);
    }
}

#[test]
fn json_comes_back() {
    let report = samples::lossy();
    let text = json::report(&report);
    let back: Report = serde_json::from_str(&text).unwrap();
    assert_eq!(json::report(&back), text);
    assert_eq!(back.totals, report.totals);
    let line = json::snapshot("trial", &samples::snapshot());
    assert!(!line.contains('\n'));
    let back: Snapshot = serde_json::from_str(&line).unwrap();
    assert_eq!(back.totals, samples::snapshot().totals);
    for key in [
        "intended_frames",
        "offered_frames",
        "unsent_frames",
        "received_frames",
        "lost_frames",
        "duplicate_frames",
        "reordered_frames",
        "late_frames",
        "foreign_frames",
        "rx_dropped_frames",
        "largest_catch_up_frames",
        "inter_arrival_ns",
        "p999",
        "p9999",
    ] {
        assert!(text.contains(&format!("\"{key}\": ")), "{key}");
    }
}

#[test]
fn json_of_figures_that_are_no_number_is_still_json() {
    let mut report = samples::lossy();
    report.rates.offered_pps = Some(f64::NAN);
    report.latency_ns.mean = Some(f64::INFINITY);
    let value: serde_json::Value = serde_json::from_str(&json::report(&report)).unwrap();
    assert!(value["rates"]["offered_pps"].is_null());
}

#[test]
fn csv_of_a_trial() {
    let report = samples::lossy();
    assert_snapshot!(csv::report(&report));
}

#[test]
fn csv_rows_have_as_many_fields_as_the_header() {
    let mut bare = samples::tx_only();
    bare.jobs.clear();
    bare.workers.clear();
    for report in [samples::lossy(), samples::rx_only(), bare] {
        let text = csv::report(&report);
        let fields = |line: &str| line.split(',').count();
        let mut lines = text.lines();
        let header = fields(lines.next().unwrap());
        assert!(header > 10);
        assert!(lines.all(|line| fields(line) == header), "{text}");
    }
    let both = csv::report(&samples::faulted());
    assert_eq!(both.lines().count(), 3);
    assert!(both.contains("\"job 1, back\""));
}

#[test]
fn csv_of_a_load_has_a_row_for_each_end() {
    let mut client = LoadJobReport {
        name: "client".to_owned(),
        ..LoadJobReport::default()
    };
    client.totals.attempted_connections = 5;
    client.totals.failed_connections = 2;
    client.failures.insert("refused".to_owned(), 2);
    let server = LoadJobReport {
        end: LoadEnd::Server,
        ..client.clone()
    };
    let mut report = samples::lossy();
    report.load = Some(LoadReport {
        jobs: vec![client, server],
    });
    let mixed = csv::report(&report);
    let lines: Vec<Vec<&str>> = mixed.lines().map(|l| l.split(',').collect()).collect();
    let kinds: Vec<&str> = lines.iter().map(|line| line[0]).collect();
    assert_eq!(kinds, ["job_kind", "load", "load", "traffic"]);
    assert!(lines.iter().all(|line| line.len() == lines[0].len()));
    report.jobs.clear();
    let text = csv::report(&report);
    let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split(',').collect()).collect();
    assert_eq!(lines.len(), 3);
    assert!(lines.iter().all(|line| line.len() == lines[0].len()));
    let at = |name: &str| lines[0].iter().position(|n| *n == name).unwrap();
    let of = |line: usize, name: &str| lines[line][at(name)];
    assert_eq!(
        (
            of(1, "attempted_connections"),
            of(1, "failed_connections"),
            of(1, "failed_refused")
        ),
        ("5", "2", "2")
    );
    assert_eq!((of(1, "end"), of(2, "end")), ("client", "server"));
}

#[test]
fn linerate_in_blocks() {
    assert_snapshot!(linerate::table(
        &linerate::SPEEDS,
        &linerate::SIZES,
        &linerate::Options {
            width: 80,
            times: false
        }
    ));
}

#[test]
fn linerate_with_times() {
    let speeds = [1_000_000_000, 2_500_000_000, 10_000_000_000];
    assert_snapshot!(format!(
        "{}\n{}\n{}",
        linerate::table(
            &speeds,
            &[64, 1518],
            &linerate::Options {
                width: 80,
                times: true
            }
        ),
        linerate::json(&speeds[..1], &[64]),
        linerate::csv(&speeds, &[64, 1518]),
    ));
}

/// RFC 5180 appendix A and further, by RFC 2544's formula rounded down.
#[test]
fn linerate_cells() {
    #[rustfmt::skip]
    let rows = [
        "64 14,880 148,809 1,488,095 3,720,238 7,440,476 14,880,952 37,202,380 59,523,809 74,404,761 148,809,523 297,619,047 595,238,095 1,190,476,190",
        "128 8,445 84,459 844,594 2,111,486 4,222,972 8,445,945 21,114,864 33,783,783 42,229,729 84,459,459 168,918,918 337,837,837 675,675,675",
        "512 2,349 23,496 234,962 587,406 1,174,812 2,349,624 5,874,060 9,398,496 11,748,120 23,496,240 46,992,481 93,984,962 187,969,924",
        "1518 812 8,127 81,274 203,185 406,371 812,743 2,031,859 3,250,975 4,063,719 8,127,438 16,254,876 32,509,752 65,019,505",
        "4096 303 3,036 30,369 75,923 151,846 303,692 759,232 1,214,771 1,518,464 3,036,929 6,073,858 12,147,716 24,295,432",
        "9216 135 1,353 13,533 33,834 67,669 135,339 338,349 541,359 676,699 1,353,399 2,706,799 5,413,598 10,827,197",
    ];
    let table = linerate::table(
        &linerate::SPEEDS,
        &linerate::SIZES,
        &linerate::Options {
            width: 1000,
            times: false,
        },
    );
    let lines: Vec<String> = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    for row in rows {
        assert!(lines.iter().any(|line| line == row), "{row}");
    }
    assert!(lines.contains(&"X 10M 100M 1G 2.5G 5G 10G 25G 40G 50G 100G 200G 400G 800G".into()));
    assert!(table.contains("frames/s = floor(line rate / (8 * (X + 20)))"));
}

#[test]
fn doctor_findings() {
    let finding = |level, topic: &str, text: &str, fix: Option<&str>| Finding {
        level,
        topic: topic.into(),
        text: text.into(),
        fix: fix.map(Into::into),
    };
    let all = [
        finding(
            Level::Ok,
            "kernel",
            "Linux 6.18, AF_XDP with need-wakeup and multi-buffer.",
            None,
        ),
        finding(
            Level::Note,
            "clock",
            "The clock source is tsc; reading it costs 22 ns.",
            None,
        ),
        finding(
            Level::Warn,
            "queues",
            "Queue 0 alone is switched on, of 8 that the device has; one worker can receive at a time.",
            Some("ethtool -L eth0 combined 8"),
        ),
        finding(
            Level::Problem,
            "privileges",
            "CAP_NET_RAW is missing: no port can be opened.",
            Some("sudo setcap cap_net_raw,cap_net_admin,cap_bpf+ep /usr/local/bin/wirebench"),
        ),
    ];
    assert_snapshot!(format!(
        "{}\n{}",
        findings::text(&all, false, 80),
        findings::text(&all[..1], false, 80)
    ));
}

#[test]
fn the_last_line_of_requests_has_counts_and_no_rates() {
    // The rest of an interval: 2 ms with 32 answers, of 10,000 in all.
    let mut last = Snapshot::at(5_000_000_000, 2_000_000, Phase::Done);
    let mut http = wb_model::http::HttpLive {
        requests_per_second: 16_000.0,
        ..Default::default()
    };
    http.totals.completed = 10_000;
    last.http = Some(http);
    let line = live::line(&last, 120, false);
    assert!(line.contains("10,000 responses, 0 failed"), "{line}");
    assert!(!line.contains("/s"), "{line}");
}

#[test]
fn a_socket_test_beside_other_jobs_has_its_place_in_the_line() {
    let socket = wb_model::socket::SocketLive {
        job: 0,
        jobs: 2,
        iteration: 1,
        units: 33_000,
        transactions: true,
        interval_s: 1.0,
        ended_s: 0.0,
        total: 33_000,
        clients: 0,
    };
    let mut snapshot = Snapshot {
        offered_pps: Some(1000.0),
        socket: Some(socket),
        ..Snapshot::at(1_000_000_000, 1_000_000_000, Phase::Running)
    };
    let test = "test 1 of 2  run 1     33,000/s transactions";
    let frames = live::line(&snapshot, 200, true);
    assert!(frames.contains("tx") && frames.ends_with(test), "{frames}");
    snapshot.load = Some(wb_model::load::LoadLive::default());
    let load = live::line(&snapshot, 200, true);
    assert!(load.contains("/s new") && load.ends_with(test), "{load}");
}
