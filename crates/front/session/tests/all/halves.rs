//! Directions with sender and receiver on two hosts. Both hosts are runs of this process that share links in memory.

use std::{
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use wb_model::{
    Plan, Report, Totals, Verdict,
    peer::{PairClock, Sent},
    report::{FlowReport, JobReport},
    text::plan_from_toml,
};
use wb_port::{
    clock::Clock,
    fault::{Impairment, Loss},
    memory::LinkOptions,
};
use wb_session::{Checked, Environment, Extras, PeerLink, Registry, StartAt, View, prepare};

use crate::several::wall_ns;

const FIRST: u32 = 7000;

/// Ports `a` at h1 and `b` at h2 on the link x, `c` at h2 and `d` at h1 on the link y.
const PORTS: &str = r#"
schema = "wirebench.plan/1"
seed = 3
allow_unsent = true
[[port]]
name = "a"
locator = "h1:memory:x"
workers = WORKERS
[[port]]
name = "b"
locator = "h2:memory:x"
workers = WORKERS
"#;
const SECOND_LINK: &str = r#"
[[port]]
name = "c"
locator = "h2:memory:y"
[[port]]
name = "d"
locator = "h1:memory:y"
"#;

fn plan(text: &str, workers: u32) -> Plan {
    let ports = PORTS.replace("WORKERS", &workers.to_string());
    let mut plan = plan_from_toml("halves", &format!("{ports}{text}")).unwrap();
    plan.number_flows(FIRST).unwrap();
    plan
}

/// A job from one port to another, with a late sender that gives nothing up.
fn job(tx: &str, rx: &str, keys: &str, streams: &[&str]) -> String {
    let streams: String = streams
        .iter()
        .map(|stream| format!("[[traffic.stream]]\n{stream}\n"))
        .collect();
    format!("[[traffic]]\ntx = \"{tx}\"\nrx = \"{rx}\"\ncatch_up = \"10s\"\n{keys}\n{streams}")
}

/// Links that lose every n-th frame and delay all frames; 0: they lose none. The receive stamps are `ahead` of the clock
/// of the senders.
fn links(workers: u32, loses: u64, delay_ns: u64, clock: Clock) -> Arc<Mutex<Registry>> {
    let impairment = Impairment {
        loss: match loses {
            0 => Loss::None,
            n => Loss::Every(n),
        },
        delay_ns,
        ..Impairment::default()
    };
    let mut registry = Registry::new();
    for (name, queues) in [("x", workers), ("y", 1)] {
        let options = LinkOptions {
            queues,
            mtu: 9000,
            ..LinkOptions::new(name, clock.clone())
        };
        registry.add(&options.impaired(&impairment)).unwrap();
    }
    Arc::new(Mutex::new(registry))
}

fn real() -> Clock {
    Clock::Real(wall_ns)
}

/// Runs the plan on one host.
fn whole(plan: &Plan, links: Arc<Mutex<Registry>>) -> Report {
    let mut plan = plan.clone();
    for port in &mut plan.ports {
        port.locator.host = None;
    }
    let environment = Environment {
        memory: Some(links),
        ..Environment::default()
    };
    let prepared = prepare(plan, &environment, Extras::default()).unwrap();
    prepared.run(&mut |_: &View<'_>| {}).unwrap().report
}

/// Runs the plan on the hosts h1 and h2. `link` makes the connection of each host, given its number.
fn halves(plan: &Plan, links: &Arc<Mutex<Registry>>, peers: [PeerLink; 2]) -> [Report; 2] {
    let hosts = ["h1", "h2"].into_iter().zip(peers);
    let environments = hosts.map(|(host, peers)| Environment {
        host: Some(host.to_owned()),
        peers,
        memory: Some(Arc::clone(links)),
        ..Environment::default()
    });
    let environments: Vec<Environment> = environments.collect();
    let opened: Vec<_> = environments
        .iter()
        .map(|environment| {
            Checked::new(plan.clone(), environment)
                .unwrap()
                .open()
                .unwrap()
        })
        .collect();
    let prepared: Vec<_> = opened
        .into_iter()
        .map(|opened| opened.attend().unwrap().build(Extras::default()).unwrap())
        .collect();
    let start = StartAt::Wall(wall_ns() + 1_000_000_000);
    thread::scope(|scope| {
        let runs: Vec<_> = prepared
            .into_iter()
            .map(|prepared| {
                let run = move || prepared.run_at(start, &mut |_: &View<'_>| {});
                scope.spawn(move || run().unwrap().report)
            })
            .collect();
        let reports = runs.into_iter().map(|run| run.join().unwrap());
        reports.collect::<Vec<_>>().try_into().unwrap()
    })
}

/// Connections of two hosts that pass counts on to each other. Each message is also kept.
fn connected() -> ([PeerLink; 2], mpsc::Receiver<Sent>) {
    let (keep, kept) = mpsc::channel();
    let ends: [Arc<Mutex<Option<PeerLink>>>; 2] = Default::default();
    let links = [1, 0].map(|other| {
        let (other, keep) = (Arc::clone(&ends[other]), keep.clone());
        PeerLink::new(move |sent: Sent| {
            // The message passes through JSON, as in a fleet.
            let text = serde_json::to_string(&sent).unwrap();
            keep.send(sent).unwrap();
            let other = other.lock().unwrap().clone().unwrap();
            other.receive(serde_json::from_str(&text).unwrap());
        })
    });
    for (end, link) in ends.iter().zip(&links) {
        *end.lock().unwrap() = Some(link.clone());
    }
    (links, kept)
}

/// Joins the halves of each direction, in the order of the whole plan.
fn joined(whole: &Report, halves: &[Report; 2]) -> Vec<JobReport> {
    let half = |name: &str, sends: bool| {
        let mut jobs = halves.iter().flat_map(|report| &report.jobs);
        let own =
            |job: &&JobReport| job.name == name && job.totals.offered_frames.is_some() == sends;
        jobs.find(own)
            .unwrap_or_else(|| panic!("no half of {name}"))
    };
    let names = whole.jobs.iter().map(|job| &job.name);
    names
        .map(|name| JobReport::joined(half(name, true), half(name, false)))
        .collect()
}

/// Counts that do not depend on the timing of threads.
fn exact(totals: &Totals) -> Totals {
    Totals {
        late_frames: None,
        rx_dropped_frames: None,
        ramp_frames: None,
        ..*totals
    }
}

/// Counts of each stream: name, first flow, flows, totals.
fn streams(job: &JobReport) -> Vec<(String, u32, u32, Totals)> {
    let streams = job.streams.iter();
    streams
        .map(|s| (s.name.clone(), s.first_flow, s.flows, exact(&s.totals)))
        .collect()
}

/// Counts of each flow that its receiver settled.
fn flows(report: &Report) -> Vec<(u32, Option<String>, Totals)> {
    let is_settled = |flow: &&FlowReport| flow.totals.received_frames.is_some();
    let mut flows: Vec<_> = report
        .flows
        .iter()
        .filter(is_settled)
        .map(|flow| (flow.flow, flow.stream.clone(), exact(&flow.totals)))
        .collect();
    flows.sort_by_key(|(flow, ..)| *flow);
    flows
}

/// Runs a plan on one host and on two, with the same losses, and compares all counts.
fn assert_alike(plan: &Plan, workers: u32, loses: u64) -> (Report, [Report; 2]) {
    let on_one = whole(plan, links(workers, loses, 0, real()));
    let (peers, _kept) = connected();
    let on_two = halves(plan, &links(workers, loses, 0, real()), peers);
    let jobs = joined(&on_one, &on_two);
    assert_eq!(jobs.len(), on_one.jobs.len());
    for (joined, own) in jobs.iter().zip(&on_one.jobs) {
        assert_eq!(exact(&joined.totals), exact(&own.totals), "{}", own.name);
        assert!(joined.totals.adds_up());
        assert_eq!(streams(joined), streams(own), "{}", own.name);
        assert_eq!((&joined.tx, &joined.rx), (&own.tx, &own.rx));
        assert_eq!(joined.incomplete, None);
    }
    let mut settled = [flows(&on_two[0]), flows(&on_two[1])].concat();
    settled.sort_by_key(|(flow, ..)| *flow);
    assert_eq!(settled, flows(&on_one));
    for report in &on_two {
        assert_eq!(report.first_flow, Some(FIRST));
        assert!(!report.reason.contains("bug"), "{}", report.reason);
        // Only ports of the host are open.
        let own = report.jobs.iter().flat_map(|job| [&job.tx, &job.rx]);
        assert!(report.ports.len() < own.flatten().count());
    }
    (on_one, on_two)
}

#[test]
fn two_halves_are_the_whole() {
    let text = job("a", "b", "count = 600", &["rate = \"20kpps\"\nflows = 7"]);
    let (on_one, on_two) = assert_alike(&plan(&text, 1), 1, 50);
    // Every 50th frame, and so the last one, is lost: the receiver alone would miss the loss at the end.
    assert_eq!(on_one.totals.lost_frames, Some(12));
    let [sent, received] = &on_two;
    assert_eq!(received.totals.lost_frames, Some(12));
    let none = |n: Option<u64>| assert_eq!(n, None);
    none(sent.totals.received_frames);
    none(sent.totals.lost_frames);
    none(received.totals.offered_frames);
    none(received.totals.intended_frames);
    none(received.totals.unsent_frames);
    assert_eq!(sent.verdict, Verdict::Completed, "{}", sent.reason);
    assert_eq!(received.verdict, Verdict::Completed, "{}", received.reason);
    assert_eq!((sent.ports.len(), received.ports.len()), (1, 1));
    assert_eq!((&*sent.ports[0].name, &*received.ports[0].name), ("a", "b"));
    // Rates of received frames cover the time of sending, which the sender's host has reported.
    let rates = |report: &Report| report.jobs[0].rates;
    let took = rates(sent).tx_time_ns.max(rates(received).rx_time_ns);
    let pps = 588.0 * 1e9 / took.unwrap() as f64;
    let ratio = rates(received).received_pps.unwrap() / pps;
    assert!((0.99..1.01).contains(&ratio), "{ratio}");
    none(rates(received).tx_time_ns);
    none(rates(sent).rx_time_ns);
}

#[test]
fn workers_streams_and_untagged_frames_are_numbered_alike_on_both_hosts() {
    let streams = [
        "rate = \"4kpps\"\nflows = 2",
        "rate = \"4kpps\"\nflows = 9\nsport = \"100-108\"\nsize = 128",
        "rate = \"4kpps\"\ntag = \"none\"\ndport = \"9\"",
    ];
    let text = job("a", "b", "count = 900", &streams);
    let (_, [_, received]) = assert_alike(&plan(&text, 3), 3, 0);
    let totals = received.totals;
    assert_eq!(
        (totals.foreign_frames, totals.unplanned_frames),
        (Some(0), Some(0))
    );
    assert_eq!(totals.lost_frames, Some(0));
    assert_eq!(received.jobs[0].streams.len(), 3);
}

#[test]
fn both_directions_of_a_job_have_their_ends_on_two_hosts() {
    let text = job(
        "a",
        "b",
        "bidir = true\ncount = 500",
        &["rate = \"10kpps\"\nflows = 4"],
    );
    let (on_one, _) = assert_alike(&plan(&text, 1), 1, 25);
    let lost = |number: usize| on_one.jobs[number].totals.lost_frames;
    assert_eq!((lost(0), lost(1)), (Some(20), Some(20)));
}

#[test]
fn jobs_share_ports_and_hosts() {
    let own = |rate: &str, flows: u32| format!("rate = \"{rate}\"\nflows = {flows}");
    let text = [
        SECOND_LINK.to_owned(),
        job("a", "b", "count = 400", &[&own("8kpps", 3)]),
        job(
            "b",
            "a",
            "count = 300",
            &[&own("6kpps", 2), &own("2kpps", 5)],
        ),
        job("c", "d", "count = 200", &[&own("4kpps", 8)]),
    ];
    let (on_one, on_two) = assert_alike(&plan(&text.concat(), 1), 1, 10);
    assert_eq!(on_one.jobs.len(), 3);
    for report in &on_two {
        assert_eq!(report.totals.unplanned_frames, Some(0));
        assert_eq!(report.totals.foreign_frames, Some(0));
    }
}

#[test]
fn frames_of_the_ramp_up_are_counted_by_the_sender() {
    let keys = "duration = \"200ms\"\nramp = \"100ms\"";
    let text = job("a", "b", keys, &["rate = \"5kpps\"\nflows = 2"]);
    let (_, [sent, received]) = assert_alike(&plan(&text, 1), 1, 0);
    assert!(sent.totals.ramp_frames.is_some());
    assert_eq!(received.totals.ramp_frames, None);
    assert_eq!(received.totals.foreign_frames, Some(0));
}

#[test]
fn the_sender_reports_its_frames_when_it_has_ended() {
    let text = job("a", "b", "count = 10", &["rate = \"1kpps\"\nflows = 3"]);
    let (peers, kept) = connected();
    let began = wall_ns();
    let [_, received] = halves(&plan(&text, 1), &links(1, 0, 0, real()), peers);
    let all: Vec<Sent> = kept.try_iter().collect();
    let [sent] = all.as_slice() else {
        panic!("{all:?}");
    };
    assert_eq!(
        (sent.direction, &*sent.flows),
        (FIRST, [4, 3, 3].as_slice())
    );
    assert_eq!(sent.streams[0].offered_frames, Some(10));
    assert!(began < sent.first_departure_wall_ns);
    assert!(sent.first_departure_wall_ns < sent.last_departure_wall_ns);
    assert!(sent.last_departure_wall_ns < wall_ns());
    // The drain began with the report, not at the end of a wait.
    assert!(
        received.elapsed_ns < 1_500_000_000,
        "{}",
        received.elapsed_ns
    );
}

#[test]
fn an_outage_lasts_up_to_the_last_departure() {
    let text = job("a", "b", "count = 20", &["rate = \"20pps\""]);
    let (peers, _kept) = connected();
    let [_, received] = halves(&plan(&text, 1), &links(1, 20, 0, real()), peers);
    assert_eq!(received.totals.lost_frames, Some(1));
    let outages = received.jobs[0].outages.unwrap();
    assert_eq!((outages.outages, outages.interrupted_flows), (1, 1));
    // The last of 20 frames is lost, 50 ms after the one before.
    assert!(
        (40_000_000..1_000_000_000).contains(&outages.outage_ns),
        "{outages:?}"
    );
}

/// Runs a job of h1 to h2 with a connection that delivers nothing, or something wrong.
fn without_counts(keys: &str, wrong: Option<Sent>) -> (Report, Duration) {
    let text = job("a", "b", keys, &["rate = \"1kpps\"\nflows = 2"]);
    let peers = [PeerLink::default(), PeerLink::default()];
    wrong.into_iter().for_each(|sent| peers[1].receive(sent));
    let began = Instant::now();
    let [sent, received] = halves(&plan(&text, 1), &links(1, 50, 0, real()), peers);
    assert_eq!(sent.jobs[0].incomplete, None);
    (received, began.elapsed())
}

fn assert_incomplete(report: &Report, why: &str) {
    let job = &report.jobs[0];
    let said = job.incomplete.as_deref().unwrap();
    assert!(said.contains(why), "{said}");
    assert_eq!(
        (report.verdict, report.reason.as_str()),
        (Verdict::Incomplete, said)
    );
    assert_eq!(job.totals.received_frames, Some(98));
    assert_eq!(job.totals.foreign_frames, Some(0));
    let flows = report.flows.iter().map(|flow| flow.totals);
    let streams = job.streams.iter().map(|stream| stream.totals);
    for totals in flows.chain(streams).chain([job.totals, report.totals]) {
        assert!(totals.received_frames.is_some());
        assert_eq!((totals.lost_frames, totals.offered_frames), (None, None));
    }
}

#[test]
fn without_the_counts_of_the_sender_the_loss_is_unknown() {
    let (report, took) = without_counts("count = 100", None);
    assert_incomplete(
        &report,
        "the host h1 did not report the frames that it sent",
    );
    // The wait ends 2 s after the planned end.
    assert!(report.elapsed_ns > 2_100_000_000, "{}", report.elapsed_ns);
    assert!(took < Duration::from_secs(30));
}

#[test]
fn a_sender_that_is_lost_is_not_waited_for() {
    let text = job("a", "b", "duration = \"60s\"", &["rate = \"1kpps\""]);
    let plan = plan(&text, 1);
    let environment = Environment {
        host: Some("h2".to_owned()),
        ..Environment::default()
    };
    environment
        .peers
        .report_lost(FIRST, "host h1 lost at 0.0 s".to_owned());
    let prepared = prepare(plan, &environment, Extras::default()).unwrap();
    let report = prepared.run(&mut |_: &View<'_>| {}).unwrap().report;
    assert_eq!(report.verdict, Verdict::Incomplete);
    assert_eq!(
        report.reason,
        "host h1 lost at 0.0 s, so the loss is unknown"
    );
    assert!(report.elapsed_ns < 30_000_000_000, "{}", report.elapsed_ns);
}

#[test]
fn counts_that_do_not_fit_are_not_used() {
    let wrong = |flows: &[u64]| Sent {
        direction: FIRST,
        streams: vec![Totals::default()],
        flows: flows.to_vec(),
        ..Sent::default()
    };
    let (report, _) = without_counts("count = 100", Some(wrong(&[50])));
    assert_incomplete(&report, "1 streams and 1 flows instead of 1 and 2");
    let (report, _) = without_counts("count = 100", Some(wrong(&[u64::MAX, 50])));
    assert_incomplete(
        &report,
        "18446744073709551615 sent frames, so the loss is unknown",
    );
}

const AHEAD_NS: u64 = 20_000_000;

/// A clock 20 ms ahead of the clock of this host.
fn ahead() -> u64 {
    wall_ns() + AHEAD_NS
}

#[test]
fn the_offset_of_two_clocks_is_no_latency() {
    const DELAY_NS: u64 = 3_000_000;
    for (offset_ns, is_known) in [(AHEAD_NS as i64, true), (0, false)] {
        let text = job("a", "b", "count = 200", &["rate = \"2kpps\"\nflows = 2"]);
        let (peers, _kept) = connected();
        if is_known {
            peers[1].clock("h1").set(PairClock {
                method: "udp".to_owned(),
                offset_start_ns: offset_ns,
                offset_end_ns: offset_ns,
                error_ns: 5_000,
                exchanges: 32,
                ..PairClock::default()
            });
        }
        let links = links(1, 0, DELAY_NS, Clock::Real(ahead));
        let [_, received] = halves(&plan(&text, 1), &links, peers);
        let job = &received.jobs[0];
        assert_eq!(
            (job.totals.received_frames, job.totals.lost_frames),
            (Some(200), Some(0))
        );
        let expected = DELAY_NS as i64 + if is_known { 0 } else { AHEAD_NS as i64 };
        let streams = job.streams.iter().map(|stream| stream.latency_ns);
        let flows = received.flows.iter().map(|flow| flow.latency_ns);
        let all = streams
            .chain(flows)
            .chain([job.latency_ns, received.latency_ns]);
        for latency in all {
            assert!(latency.samples > 0);
            let least = latency.min.unwrap();
            assert!(
                (expected..expected + 1_000_000).contains(&least),
                "{latency:?}"
            );
            assert!(latency.mean.unwrap() >= expected as f64);
        }
        let p50 = job.latency_ns.p50.unwrap();
        assert!(p50 >= expected - expected / 500, "{p50}");
        let clock = job
            .clock
            .as_ref()
            .map(|clock| (&*clock.from, &*clock.to, clock.error_ns));
        assert_eq!(clock, is_known.then_some(("h1", "h2", 5_000)));
        assert!(!received.clock.same_clock);
        assert_eq!(received.clock.error_ns.is_some(), is_known);
        assert!(
            !received
                .warnings
                .iter()
                .any(|w| w.contains("before the send time"))
        );
    }
}

#[test]
fn a_clock_behind_gives_no_negative_latency() {
    let text = job("a", "b", "count = 100", &["rate = \"2kpps\"\nflows = 1"]);
    let plan = plan(&text, 1);
    let (peers, _kept) = connected();
    // The receive stamps are right, and the sender's clock is thought to be 6 us behind: latencies up to 6 us would be
    // negative without the bias.
    peers[1].clock("h1").set(PairClock {
        offset_end_ns: 6_000,
        error_ns: 6_000,
        ..PairClock::default()
    });
    let [_, received] = halves(&plan, &links(1, 0, 0, real()), peers);
    let job = &received.jobs[0];
    assert_eq!(job.latency_ns.samples, 100);
    assert!(
        !received
            .warnings
            .iter()
            .any(|w| w.contains("before the send time"))
    );
}

#[test]
fn a_run_on_one_host_refuses_ports_of_others() {
    let text = job("a", "b", "count = 1", &["rate = \"1kpps\""]);
    let plan = plan(&text, 1);
    let refused = |environment: &Environment| {
        let prepared = prepare(plan.clone(), environment, Extras::default());
        prepared.err().map(|error| error.to_string())
    };
    assert_eq!(
        refused(&Environment::default()).as_deref(),
        Some(
            "h1:memory:x: is on the host h1; `--fleet FLEET` carries out the plan over several hosts"
        )
    );
    let host = |host: &str| Environment {
        host: Some(host.to_owned()),
        ..Environment::default()
    };
    assert_eq!(refused(&host("h1")), None);
    // Without numbers the hosts would not agree.
    let mut unnumbered = plan.clone();
    unnumbered.traffic[0].first_flow = None;
    let error = prepare(unnumbered, &host("h1"), Extras::default()).err();
    let error = error.unwrap().to_string();
    assert!(
        error.starts_with("traffic: first_flow is missing"),
        "{error}"
    );
}
