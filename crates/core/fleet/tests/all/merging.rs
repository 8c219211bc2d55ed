//! Snapshots of several hosts as one.

use wb_fleet_core::{
    merge::{HostSnap, merge},
    message::{JobCounts, Snap, V1},
};
use wb_model::{
    CaptureLive, Phase, Snapshot, Totals,
    http::{HttpLive, HttpTotals},
    load::LoadLive,
};

fn snap(k: u64, snapshot: Snapshot, jobs: Vec<JobCounts>) -> Snap {
    Snap {
        v: V1,
        k,
        at_wall_ns: 0,
        snapshot,
        jobs,
        histograms: Vec::new(),
        so_far: None,
    }
}

fn sent(name: &str, offered: u64) -> JobCounts {
    JobCounts {
        name: name.to_owned(),
        offered: Some(offered),
        ..JobCounts::default()
    }
}

fn received(name: &str, received: u64, duplicate: u64) -> JobCounts {
    JobCounts {
        name: name.to_owned(),
        received: Some(received),
        duplicate: Some(duplicate),
        ..JobCounts::default()
    }
}

fn snapshot(phase: Phase) -> Snapshot {
    Snapshot::at(1_000_000_000, 1_000_000_000, phase)
}

fn merged(snaps: &[&Snap]) -> Snapshot {
    let hosts = ["h1", "h2", "h3"];
    let parts = snaps.iter().zip(hosts).map(|(snap, host)| HostSnap {
        is_other_end: false,
        host,
        snap,
        is_current: snap.k == 2,
    });
    merge(&parts.collect::<Vec<_>>(), 2_000_000_000, 1_000_000_000)
}

#[test]
fn counts_add_up_over_all_hosts_and_rates_over_those_of_the_interval() {
    let totals = |offered, received| Totals {
        offered_frames: offered,
        received_frames: received,
        ..Totals::default()
    };
    let sender = Snapshot {
        totals: totals(Some(100), None),
        offered_pps: Some(50.0),
        ..snapshot(Phase::Drain)
    };
    let receiver = Snapshot {
        totals: totals(None, Some(90)),
        received_pps: Some(45.0),
        latency_mean_ns: Some(1000.0),
        ..snapshot(Phase::Running)
    };
    let both = Snapshot {
        totals: totals(Some(10), Some(10)),
        offered_pps: Some(5.0),
        received_pps: Some(15.0),
        latency_mean_ns: Some(2000.0),
        ..snapshot(Phase::Running)
    };
    let one = snap(2, sender, vec![sent("t1", 100)]);
    let two = snap(2, receiver, vec![received("t1", 90, 2)]);
    let late = snap(1, both.clone(), Vec::new());
    let all = merged(&[&one, &two, &late]);
    assert_eq!(all.totals.offered_frames, Some(110));
    assert_eq!(all.totals.received_frames, Some(100));
    assert_eq!(all.missing_frames, Some(12));
    assert_eq!(
        (all.offered_pps, all.received_pps),
        (Some(50.0), Some(45.0))
    );
    assert_eq!(all.latency_mean_ns, Some(1000.0));
    assert_eq!(all.phase, Phase::Running);
    assert_eq!(all.elapsed_ns, 2_000_000_000);

    let current = snap(2, both, Vec::new());
    let all = merged(&[&one, &two, &current]);
    assert_eq!(
        (all.offered_pps, all.received_pps),
        (Some(55.0), Some(60.0))
    );
    // Weighted by the received frames: 45 of 60 and 15 of 60.
    assert_eq!(all.latency_mean_ns, Some(1250.0));
}

#[test]
fn missing_frames_need_both_ends_of_a_direction() {
    let empty = || snapshot(Phase::Running);
    let one = snap(2, empty(), vec![sent("t1", 100), sent("t2", 50)]);
    let two = snap(2, empty(), vec![received("t1", 60, 0)]);
    assert_eq!(merged(&[&one, &two]).missing_frames, Some(40));
    assert_eq!(merged(&[&one]).missing_frames, None);
    // The receiver was read a moment after the sender.
    let ahead = snap(
        2,
        empty(),
        vec![received("t1", 101, 0), received("t2", 50, 0)],
    );
    assert_eq!(merged(&[&one, &ahead]).missing_frames, Some(0));
}

#[test]
fn figures_of_loads_and_captures_of_several_hosts() {
    let load = |rps, mean| LoadLive {
        rps,
        request_mean_ns: mean,
        established_cps: 10.0,
        ..LoadLive::default()
    };
    let http = |sent| HttpLive {
        requests_per_second: sent as f64,
        totals: HttpTotals {
            sent,
            ..HttpTotals::default()
        },
        ..HttpLive::default()
    };
    let of = |rps, mean, sent| Snapshot {
        load: Some(load(rps, mean)),
        http: Some(http(sent)),
        capture: Some(CaptureLive {
            read_frames: sent,
            ..CaptureLive::default()
        }),
        links_down: vec!["a".to_owned()],
        ..snapshot(Phase::Running)
    };
    let one = snap(2, of(30.0, Some(100.0), 7), Vec::new());
    let two = snap(2, of(10.0, Some(500.0), 5), Vec::new());
    let all = merged(&[&one, &two]);
    let load = all.load.unwrap();
    assert_eq!((load.rps, load.established_cps), (40.0, 20.0));
    assert_eq!(load.request_mean_ns, Some(200.0));
    let http = all.http.unwrap();
    assert_eq!((http.requests_per_second, http.totals.sent), (12.0, 12));
    assert_eq!(all.captures["h1 capture"].read_frames, 7);
    assert_eq!(all.captures["h2 capture"].read_frames, 5);
    assert_eq!(all.links_down, ["h1 a", "h2 a"]);
}
