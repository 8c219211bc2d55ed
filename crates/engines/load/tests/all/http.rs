//! HTTP jobs over our own TCP: every request is counted exactly once.

use std::sync::Arc;

use ring::digest::{SHA256, digest};

use crate::common::{Lab, MS, job, server_of};
use wb_load::{HttpOutcome, HttpTask};
use wb_measure::Histogram;
use wb_model::http::{HttpCall, HttpCheck, HttpJob, HttpStage, HttpTotals};
use wb_model::load::{LoadAnswer, LoadJob};
use wb_model::units::Span;
use wb_port::fault::{Impairment, Loss};

fn http() -> HttpJob {
    HttpJob {
        url: "http://198.18.1.1/".to_owned(),
        port: Some("a".to_owned()),
        sources: vec!["198.18.0.1-198.18.0.4".parse().unwrap()],
        connections: 8,
        duration: Some(Span::from_millis(400)),
        ..HttpJob::default()
    }
}

fn server() -> LoadJob {
    LoadJob {
        requests: 0,
        answer: LoadAnswer::Http(300),
        ..server_of(&job(1, 400))
    }
}

/// Runs a job. Returns its results and the server's count.
fn run(lab: &mut Lab, http: &HttpJob, server: &LoadJob) -> (HttpOutcome, u64) {
    let task = Arc::new(HttpTask::new(http, 1, |_| Ok(Vec::new())).unwrap());
    let (client, server) = lab.specs(&http.as_load().unwrap(), server);
    let mut both = lab.run_specs(client.for_http(&task), server, &[]);
    let served = both.totals().1.requests;
    let outcome = both.client.http.take().unwrap();
    let totals = &outcome.totals;
    assert!(totals.adds_up(), "{totals:?}");
    let sums = outcome.calls.iter().fold((0, 0, 0), |sum, call| {
        (
            sum.0 + call.sent,
            sum.1 + call.completed,
            sum.2 + call.failed,
        )
    });
    let all = (totals.sent, totals.completed, totals.failed.sum());
    assert_eq!(sums, all);
    assert_eq!(outcome.latency.count(), totals.completed);
    assert_eq!(outcome.statuses.values().sum::<u64>(), totals.completed);
    let classes: u64 = outcome.classes.values().map(Histogram::count).sum();
    assert_eq!(classes, totals.completed);
    let shown: HttpTotals = lab.slots[0].read().http;
    if http.warm_up == Span::default() {
        assert_eq!(shown, *totals);
    }
    (outcome, served)
}

#[test]
fn a_closed_loop_asks_as_answers_come() {
    for (per_connection, pipeline) in [(0, 1), (1, 1), (5, 3)] {
        let job = HttpJob {
            per_connection,
            pipeline,
            digest: per_connection == 0,
            ..http()
        };
        let mut lab = Lab::new(|options| options.backward.delay_ns = MS);
        let (outcome, served) = run(&mut lab, &job, &server());
        let t = outcome.totals;
        assert!(t.completed > 500 && t.failed.sum() == 0, "{t:?}");
        assert_eq!((t.sent, t.completed), (served, served));
        assert_eq!(t.body_bytes, 300 * t.completed);
        assert_eq!(outcome.statuses[&200], t.completed);
        match per_connection {
            0 => {
                assert_eq!(t.established_connections, 8);
                assert_eq!(outcome.digests, [(0, sha256(300))].into());
            }
            n => assert!(t.established_connections >= t.sent / u64::from(n), "{t:?}"),
        }
    }
}

#[test]
fn an_exact_amount_ends_the_run() {
    let job = HttpJob {
        duration: None,
        amount: Some(1234),
        requests: vec![
            HttpCall::default(),
            HttpCall {
                weight: 3,
                method: "HEAD".to_owned(),
                ..HttpCall::default()
            },
        ],
        ..http()
    };
    let mut lab = Lab::new(|_| ());
    let (outcome, served) = run(&mut lab, &job, &server());
    assert_eq!((outcome.totals.completed, served), (1234, 1234));
    assert_eq!(
        outcome.totals.in_flight + outcome.totals.open_connections,
        0
    );
    let completed: Vec<u64> = outcome.calls.iter().map(|call| call.completed).collect();
    assert_eq!(completed, [309, 925]);

    // No connection is opened without a remaining request.
    let job = HttpJob {
        per_connection: 1,
        amount: Some(100),
        ..job
    };
    let mut lab = Lab::new(|options| options.backward.delay_ns = MS);
    let t = run(&mut lab, &job, &server()).0.totals;
    assert_eq!((t.completed, t.attempted_connections), (100, 100));
    assert_eq!(outcome.totals.body_bytes, 309 * 300);
}

/// Digest of an answer of this length.
fn sha256(len: usize) -> [u8; 32] {
    let digest = digest(&SHA256, &vec![b'a'; len]);
    digest.as_ref().try_into().unwrap()
}

fn rated(rate: f64) -> Vec<HttpStage> {
    vec![HttpStage {
        from: rate,
        to: rate,
        time: None,
    }]
}

#[test]
fn a_rate_is_kept_and_what_waits_has_its_waiting_in_the_latency() {
    let job = HttpJob {
        rate: rated(1000.0),
        ..http()
    };
    let mut lab = Lab::new(|_| ());
    let (outcome, _) = run(&mut lab, &job, &server());
    assert_eq!((outcome.totals.sent, outcome.totals.unsent), (400, 0));

    // One connection and a peer that takes 5 ms for an answer carry 200 per second.
    let job = HttpJob {
        connections: 1,
        ..job
    };
    let slow = |patience| {
        let mut lab = Lab::new(|options| {
            options.backward.delay_ns = 5 * MS;
        });
        let job = HttpJob {
            patience,
            ..job.clone()
        };
        run(&mut lab, &job, &server()).0
    };
    let outcome = slow(None);
    let t = outcome.totals;
    assert_eq!(t.sent + t.unsent, 400, "{t:?}");
    assert!(t.unsent > 250, "{t:?}");
    assert!(
        outcome.latency.max() > Some(200 * MS),
        "{:?}",
        outcome.latency.max()
    );
    assert!(
        outcome.service.max() < Some(20 * MS),
        "{:?}",
        outcome.service.max()
    );
    let impatient = slow(Some(Span::from_millis(20)));
    assert_eq!(impatient.totals.sent + impatient.totals.unsent, 400);
    assert!(
        impatient.latency.max() < Some(32 * MS),
        "{:?}",
        impatient.latency.max()
    );
}

#[test]
fn a_warm_up_is_in_no_figure() {
    let job = HttpJob {
        rate: rated(1000.0),
        warm_up: Span::from_millis(150),
        ..http()
    };
    let mut lab = Lab::new(|options| {
        options.backward.delay_ns = 3 * MS;
    });
    let (outcome, served) = run(&mut lab, &job, &server());
    let t = outcome.totals;
    assert_eq!(
        (t.warm_up, t.sent, t.completed),
        (served - t.sent, t.sent, t.sent)
    );
    assert!((140..160).contains(&t.warm_up), "{t:?}");
    assert_eq!(outcome.duration_ns, 250 * MS);
    // A few answers were in flight at the end of the warm-up.
    let bodies = t.body_bytes / 300;
    assert!((t.completed..=t.completed + 8).contains(&bodies), "{t:?}");
    assert_eq!(t.sent_bytes % t.sent, 0, "{t:?}");
    assert_eq!((t.attempted_connections, t.warm_up_connections), (0, 8));
    assert_eq!(outcome.in_time.established_connections, 0);
    assert_eq!(outcome.connect.count(), 0);
}

#[test]
fn the_counted_part_owes_nothing_to_the_warm_up() {
    // Eight connections and a path of 40 ms carry 200 requests per second, half of the rate.
    let job = HttpJob {
        rate: rated(400.0),
        warm_up: Span::from_millis(200),
        ..http()
    };
    let mut lab = Lab::new(|options| options.backward.delay_ns = 40 * MS);
    let (outcome, _) = run(&mut lab, &job, &server());
    let t = outcome.totals;
    assert_eq!(t.sent + t.unsent, 80, "{t:?}");
    assert!((32..=48).contains(&t.sent), "{t:?}");
}

#[test]
fn a_count_at_a_rate_takes_as_many_gaps_as_requests() {
    let job = HttpJob {
        rate: rated(100.0),
        amount: Some(3),
        duration: None,
        ..http()
    };
    let (outcome, served) = run(&mut Lab::new(|_| ()), &job, &server());
    assert_eq!((outcome.totals.completed, served), (3, 3));
    assert_eq!(outcome.duration_ns, 30 * MS);
}

#[test]
fn another_status_has_failed() {
    let job = HttpJob {
        amount: Some(50),
        duration: None,
        check: HttpCheck {
            status: vec![404],
            ..HttpCheck::default()
        },
        ..http()
    };
    let (outcome, _) = run(&mut Lab::new(|_| ()), &job, &server());
    assert_eq!(
        (outcome.totals.failed.check, outcome.totals.completed),
        (50, 0)
    );
    assert_eq!(outcome.first_failure.unwrap(), "GET /: the status is 200");
}

#[test]
fn nobody_there_is_told_and_not_flooded() {
    let mut lab = Lab::new(|_| ());
    let mut closed = server();
    closed.server_ports = wb_model::units::PortRange::single(81);
    closed.tcp.reset_unknown = true;
    let (outcome, _) = run(&mut lab, &http(), &closed);
    let t = outcome.totals;
    assert_eq!(t.sent + t.established_connections, 0);
    assert_eq!(t.refused_connections.refused, t.attempted_connections);
    // After 1, 2, 4, … ms.
    assert!((8..=100).contains(&t.attempted_connections), "{t:?}");
}

/// The number is limited, because a larger one would overrun any ring.
#[test]
fn few_are_made_at_a_time() {
    let job = HttpJob {
        connections: 20_000,
        ..http()
    };
    // No connection requested in the first 300 ms is established before they are over.
    let mut lab = Lab::new(|options| options.backward.delay_ns = 300 * MS);
    let t = run(&mut lab, &job, &server()).0.totals;
    assert!(
        (4096..=2 * 4096).contains(&t.attempted_connections),
        "{t:?}"
    );
    assert_eq!(t.failed.sum(), 0, "{t:?}");
}

#[test]
fn a_path_that_loses_costs_no_request_its_place() {
    for (loss, pipeline, per_connection) in [(0.01, 1, 0), (0.05, 4, 9), (0.2, 2, 3)] {
        let job = HttpJob {
            pipeline,
            per_connection,
            duration: Some(Span::from_secs(2)),
            timeout: Span::from_millis(300),
            digest: true,
            requests: vec![
                HttpCall::default(),
                HttpCall {
                    path: "/b".to_owned(),
                    ..HttpCall::default()
                },
            ],
            ..http()
        };
        let mut lab = Lab::new(|options| {
            let impairment = Impairment {
                loss: Loss::Ratio(loss),
                delay_ns: 4 * MS,
                seed: 7,
                ..Impairment::default()
            };
            *options = options.clone().impaired(&impairment);
        });
        let server = LoadJob {
            answer: LoadAnswer::Http(9000),
            ..server()
        };
        let (outcome, _) = run(&mut lab, &job, &server);
        let t = outcome.totals;
        assert!(t.completed > 20, "{t:?}");
        assert!(loss < 0.1 || t.failed.timeout > 0, "{t:?}");
        // One body, in order, of each request, regardless of failures before it.
        let seen: Vec<_> = outcome.digests.into_iter().collect();
        assert_eq!(seen, [(0, sha256(9000)), (1, sha256(9000))]);
    }
}
