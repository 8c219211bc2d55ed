//! A whole benchmark against a simulated load balancer.

use std::{convert::Infallible, time::Duration};

use wb_bench::{Bench, BenchEnd, CutReason, DeviceReading, PlanRun, Trigger, lb};
use wb_model::{
    Lateness, LatenessReport, Plan, PortPlan, Report, Verdict,
    bench::{
        BalancerTrial, BenchLive, LbLimit, LbMetric, LbPlan, SuiteResult, SuiteTrial, TrialOutcome,
    },
    load::{ConnectionTotals, LoadEnd, LoadJobReport, LoadPhaseReport, LoadReport, LoadTransport},
    text::plan_from_toml,
};

const PLAN: &str = r#"
    [client]
    port = "wb-x-client/c0"
    hosts = ["198.18.2.1-198.18.2.250"]
    [server]
    port = "wb-x-server/s0"
    hosts = ["198.19.2.1"]
    [device]
    service = ["198.18.1.100"]
    state_timeout = "1s"
    must_not_rise = ["imissed"]
    [[device.probe]]
    kind = "ipvs"
    [[device.probe]]
    kind = "conntrack"
"#;

/// Frames that fit into the device's buffer.
const QUEUE: f64 = 500.0;

/// Capacity of the device in frames per second, connections per second and connections; and the tester.
struct Paper {
    pps: f64,
    cps: f64,
    cc: f64,
    tester_pps: f64,
    now: u64,
    connections: u64,
    missed: u64,
    stop_after: usize,
    /// Index of the run that breaks off.
    breaks_after: usize,
    /// Number of initial runs in which the link goes down.
    downs: u32,
    /// The link comes back before a frame is lost.
    is_brief: bool,
    runs: usize,
    /// Selects the runs in which the tester is stopped for 80 ms of each second.
    stopped: fn(usize) -> bool,
    /// Load above which this happens in every run.
    late_above_pps: f64,
    /// Selects the runs in which it offers half of its maximum.
    hampered: fn(usize) -> bool,
    /// Selects the runs in which half of the frames that are due do not leave the port.
    silent: fn(usize) -> bool,
    /// Selects the runs of which it takes part only in the second half.
    late_start: fn(usize) -> bool,
    lateness: Lateness,
}

impl Paper {
    fn new() -> Self {
        Self {
            pps: 500_000.0,
            cps: 30_000.0,
            cc: 100_000.0,
            tester_pps: 5e6,
            now: 0,
            connections: 0,
            missed: 0,
            stop_after: usize::MAX,
            breaks_after: usize::MAX,
            downs: 0,
            is_brief: false,
            runs: 0,
            stopped: |_| false,
            late_above_pps: f64::INFINITY,
            hampered: |_| false,
            silent: |_| false,
            late_start: |_| false,
            lateness: Lateness::default(),
        }
    }

    fn reading(&self, entries: u64) -> DeviceReading {
        DeviceReading {
            counters: [
                ("ipvs.connections".to_owned(), self.connections),
                ("ipvs.imissed".to_owned(), self.missed),
            ]
            .into(),
            gauges: [("conntrack.entries".to_owned(), entries)].into(),
            failed: 0,
        }
    }

    /// Reports of client and server of a run.
    fn outcome(&mut self, plan: &Plan) -> (LoadJobReport, LoadJobReport) {
        let client = &plan.loads[0];
        let seconds = client.shape.duration.0.as_secs_f64();
        let (mut c, mut s) = (
            job("client", LoadEnd::Client),
            job("server", LoadEnd::Server),
        );
        let mut steady = LoadPhaseReport {
            phase: "steady".to_owned(),
            to_ns: client.shape.duration.as_nanos(),
            ..LoadPhaseReport::default()
        };
        if client.transport == LoadTransport::Udp {
            let asked = client.rate.pps.unwrap() as f64;
            let most = match (self.hampered)(self.runs) {
                true => asked / 2.0,
                false => self.tester_pps,
            };
            let sent = asked.min(most);
            let mut through = sent.min(self.pps);
            if (self.stopped)(self.runs) || asked > self.late_above_pps {
                let burst = sent * 0.08;
                through = through.min(sent - (burst - QUEUE).max(0.0));
                self.lateness = Lateness {
                    largest_gap_ns: 80_000_000,
                    stalls: seconds.ceil() as u64,
                    stalled_ns: 80_000_000 * seconds.ceil() as u64,
                    late_departures: (burst * seconds) as u64,
                    ..Lateness::default()
                };
            }
            steady.tx_pps = sent;
            c.totals.requests = (sent * seconds) as u64;
            let left = if (self.silent)(self.runs) { 0.5 } else { 1.0 };
            if (self.late_start)(self.runs) {
                steady.from_ns = steady.to_ns / 2;
            }
            c.frames.offered_frames = Some((sent * seconds * left) as u64);
            s.frames.received_frames = Some((through * seconds * left) as u64);
        } else if client.requests == 1 {
            let asked = client.rate.cps.unwrap() as f64;
            let failed = ((asked - self.cps).max(0.0) * seconds) as u64;
            let attempted = (asked * seconds) as u64;
            c.totals = ConnectionTotals {
                attempted_connections: attempted,
                established_connections: attempted - failed,
                completed_connections: attempted - failed,
                failed_connections: failed,
                ..ConnectionTotals::default()
            };
            self.connections += attempted - failed;
        } else {
            let asked = client.rate.cc.unwrap();
            let failed = asked.saturating_sub(self.cc as u64);
            c.totals = ConnectionTotals {
                attempted_connections: asked,
                established_connections: asked - failed,
                completed_connections: asked - failed,
                failed_connections: failed,
                requests: 2 * (asked - failed),
                responses: 2 * (asked - failed),
                ..ConnectionTotals::default()
            };
            steady.totals.open_connections = asked - failed;
        }
        c.phases.push(steady);
        (c, s)
    }
}

fn job(name: &str, end: LoadEnd) -> LoadJobReport {
    LoadJobReport {
        name: name.to_owned(),
        end,
        ..LoadJobReport::default()
    }
}

impl Bench for Paper {
    type Error = Infallible;

    fn run(&mut self, plan: Plan, _: Option<&Trigger>) -> Result<PlanRun, Infallible> {
        self.runs += 1;
        assert!(plan.validate().is_ok(), "{:?}", plan.validate());
        let before = self.reading(0);
        self.lateness = Lateness::default();
        let (client, mut server) = self.outcome(&plan);
        if self.downs > 0 {
            self.downs -= 1;
            server.link_downs = 1;
            server.frames.received_frames = match self.is_brief {
                true => client.frames.offered_frames,
                false => Some(0),
            };
        }
        let shape = &plan.loads[0].shape;
        self.now += (shape.ramp.0 + shape.duration.0 + shape.drain.0).as_nanos() as u64;
        let held = client.phases[0].totals.open_connections;
        let readings = vec![before, self.reading(held), self.reading(0)];
        Ok(PlanRun {
            report: Report {
                kind: plan.kind.clone(),
                verdict: Verdict::Pass,
                plan,
                lateness: LatenessReport {
                    all: self.lateness,
                    may_have_caused: None,
                },
                load: Some(LoadReport {
                    jobs: vec![client, server],
                }),
                ..Report::default()
            },
            readings,
            misfire: None,
            cut: (self.runs > self.breaks_after).then(|| CutReason::Fault("gone".to_owned())),
        })
    }

    fn read(&mut self) -> DeviceReading {
        self.reading(0)
    }

    fn wait_for(&mut self, time: Duration) {
        self.now += time.as_nanos() as u64;
    }

    fn now_ns(&mut self) -> u64 {
        self.now
    }

    fn is_stopped(&mut self) -> bool {
        self.runs >= self.stop_after
    }

    fn links_are_up(&mut self, _: &[PortPlan]) -> bool {
        true
    }
    fn report_progress(&mut self, _: BenchLive) {}
}

fn plan(more: &str) -> LbPlan {
    let plan = plan_from_toml("plan", &format!("{PLAN}{more}"))
        .unwrap()
        .lb()
        .unwrap()
        .clone();
    assert!(Plan::from(plan.clone()).validate().is_ok());
    plan
}

fn of(results: &[SuiteResult], metric: LbMetric) -> &SuiteResult {
    results.iter().find(|r| r.name() == metric.name()).unwrap()
}

/// Counters of a trial.
fn counters(trial: &SuiteTrial) -> &BalancerTrial {
    trial.balancer.as_deref().unwrap()
}

/// Counters of the trial that shows the limit.
fn best(result: &SuiteResult) -> &BalancerTrial {
    let best = result.balancer.as_ref().unwrap().best_trial.unwrap();
    counters(&result.trial_log[best])
}

#[track_caller]
fn assert_near(found: Option<f64>, truth: f64) {
    let found = found.expect("a limit");
    assert!(
        found <= truth && found >= truth * 0.94,
        "{found} of {truth}"
    );
}

#[test]
fn all_six_limits_are_found_in_time() {
    let mut paper = Paper::new();
    // One-way, so no frames return and none are lost on the way back.
    let run = lb::run(&mut paper, &plan(""));
    assert!(matches!(run.end, BenchEnd::Completed));
    assert_eq!(run.results.len(), 7);
    assert_near(of(&run.results, LbMetric::OnewayPps).limit, 500_000.0);
    assert_near(of(&run.results, LbMetric::TwowayPps).limit, 1_000_000.0);
    assert_near(
        of(&run.results, LbMetric::Bps).limit,
        500_000.0 * 1500.0 * 8.0,
    );
    assert_near(of(&run.results, LbMetric::Cps).limit, 30_000.0);
    assert_near(of(&run.results, LbMetric::Cc).limit, 100_000.0);
    for result in &run.results {
        assert_eq!(result.limited_by, Some(LbLimit::Device), "{result:?}");
        assert!(result.confirmed);
        let ours = best(result).ours;
        assert_eq!(ours.lost_frames + ours.failed, 0);
    }
    assert!(
        paper.now <= 270_000_000_000,
        "{} s",
        paper.now / 1_000_000_000
    );
    assert_eq!(run.warnings, [""; 0]);
    let cps = of(&run.results, LbMetric::Cps);
    let pair = best(cps).device.beside["connections"];
    assert_eq!((pair.ours, pair.ratio), (pair.device, Some(1.0)));
    let cc = of(&run.results, LbMetric::Cc);
    let pair = best(cc).device.beside["entries"];
    assert_eq!(pair.ours, pair.device);
}

#[test]
fn the_testers_limit_is_a_lower_bound() {
    let mut paper = Paper {
        tester_pps: 200_000.0,
        ..Paper::new()
    };
    let run = lb::run(&mut paper, &plan("[[test]]\nmetric = \"oneway-pps\"\n"));
    assert_eq!(run.results[0].limited_by, Some(LbLimit::Tester));
    assert_near(run.results[0].limit, 200_001.0);
    // The device failed at no load.
    assert_eq!(run.results[0].beyond, None);
}

const ONEWAY: &str = "[[test]]\nmetric = \"oneway-pps\"\n";

#[test]
fn a_late_trial_is_void_and_repeated() {
    let mut paper = Paper {
        stopped: |run| run % 3 != 0,
        ..Paper::new()
    };
    let run = lb::run(&mut paper, &plan(ONEWAY));
    let result = &run.results[0];
    assert_near(result.limit, 500_000.0);
    assert_eq!(
        (result.limited_by, result.confirmed),
        (Some(LbLimit::Device), true)
    );
    let void: Vec<_> = result
        .trial_log
        .iter()
        .filter(|t| t.outcome == TrialOutcome::Late)
        .collect();
    assert!(!void.is_empty());
    for trial in void {
        assert!(
            trial.reason.starts_with("the tester was late"),
            "{}",
            trial.reason
        );
        assert!(trial.lateness.late_departures >= counters(trial).ours.lost_frames);
    }
    // Twice the device's capacity is too high regardless of lateness.
    let broke = |t: &&SuiteTrial| t.intended > 600_000.0 && t.lateness.stalls > 0;
    for trial in result.trial_log.iter().filter(broke) {
        assert_eq!(trial.outcome, TrialOutcome::Fail, "{trial:?}");
    }
}

#[test]
fn a_tester_that_is_always_late_finds_nothing_and_blames_nobody() {
    let mut paper = Paper {
        stopped: |_| true,
        ..Paper::new()
    };
    let run = lb::run(&mut paper, &plan(ONEWAY));
    assert!(matches!(run.end, BenchEnd::Completed));
    let result = &run.results[0];
    assert_eq!(
        (result.limit, result.limited_by),
        (None, Some(LbLimit::Tester))
    );
    assert!(result.late().unwrap().starts_with("the tester was late"));
    assert!(paper.runs < 20, "{}", paper.runs);
}

#[test]
fn a_device_that_broke_at_a_load_above_is_not_blamed_for_void_trials() {
    // From the third trial on the tester is late, and then offers half of what is asked.
    let mut paper = Paper {
        pps: 6_000.0,
        stopped: |run| (2..6).contains(&run),
        hampered: |run| run >= 6,
        ..Paper::new()
    };
    let mut plan = plan(ONEWAY);
    plan.times.budget = "25s".parse().unwrap();
    let run = lb::run(&mut paper, &plan);
    let result = &run.results[0];
    let asked: Vec<_> = (result.trial_log.iter())
        .map(|t| (t.intended, t.outcome))
        .collect();
    assert_eq!(result.limited_by, Some(LbLimit::Tester), "{asked:?}");
    assert!(
        result.limit.is_none() && result.late().is_some(),
        "{asked:?}"
    );
}

#[test]
fn a_load_at_which_the_tester_is_always_late_is_the_testers_limit() {
    let mut paper = Paper {
        late_above_pps: 200_000.0,
        ..Paper::new()
    };
    let run = lb::run(&mut paper, &plan(ONEWAY));
    let result = &run.results[0];
    let limit = result.limit.unwrap();
    assert!((180_000.0..=200_000.0).contains(&limit), "{limit}");
    assert_eq!(
        (result.limited_by, result.confirmed, result.late()),
        (Some(LbLimit::Tester), true, None)
    );
    assert!(paper.runs < 30, "{}", paper.runs);
}

#[test]
fn one_trial_that_was_not_offered_is_no_limit() {
    // Function pointers capture no values, so each case needs a separate one.
    const HAMPERED: [fn(usize) -> bool; 8] = [
        |n| n == 0,
        |n| n == 1,
        |n| n == 2,
        |n| n == 3,
        |n| n == 4,
        |n| n == 5,
        |n| n == 6,
        |n| n == 7,
    ];
    for (bad, hampered) in HAMPERED.into_iter().enumerate().skip(1) {
        let mut paper = Paper {
            hampered,
            ..Paper::new()
        };
        let run = lb::run(&mut paper, &plan(ONEWAY));
        assert_near(run.results[0].limit, 500_000.0);
        assert_eq!(
            run.results[0].limited_by,
            Some(LbLimit::Device),
            "run {bad}"
        );
    }
}

#[test]
fn short_reuse_is_warned_of() {
    let text = PLAN
        .replace("198.18.2.1-198.18.2.250", "198.18.2.1")
        .replace("\"1s\"", "\"7s\"");
    let plan = plan_from_toml("p", &format!("{text}[[test]]\nmetric = \"cps\"\n"))
        .unwrap()
        .lb()
        .unwrap()
        .clone();
    let run = lb::run(&mut Paper::new(), &plan);
    let own = run.results[0].balancer.as_ref().unwrap();
    let reuse = own.reuse_s.unwrap();
    assert!(reuse > 2.0 && reuse < 2.4, "{reuse}");
    assert!(
        run.warnings[0].contains("4 times as many"),
        "{:?}",
        run.warnings
    );
}

#[test]
fn a_counter_that_must_not_rise_ends_a_trial() {
    struct Missing(Paper);
    impl Bench for Missing {
        type Error = Infallible;
        fn run(&mut self, plan: Plan, _: Option<&Trigger>) -> Result<PlanRun, Infallible> {
            let too_much = plan.loads[0].rate.pps.unwrap() > 100_000;
            let mut ran = self.0.run(plan, None)?;
            if too_much {
                self.0.missed += 3;
                *ran.readings.last_mut().unwrap() = self.0.reading(0);
            }
            Ok(ran)
        }
        fn read(&mut self) -> DeviceReading {
            self.0.read()
        }
        fn wait_for(&mut self, time: Duration) {
            self.0.wait_for(time);
        }
        fn now_ns(&mut self) -> u64 {
            self.0.now
        }
        fn is_stopped(&mut self) -> bool {
            false
        }
        fn links_are_up(&mut self, _: &[PortPlan]) -> bool {
            true
        }
        fn report_progress(&mut self, _: BenchLive) {}
    }
    let run = lb::run(
        &mut Missing(Paper::new()),
        &plan("[[test]]\nmetric = \"oneway-pps\"\n"),
    );
    assert_near(run.results[0].limit, 100_000.0);
    let broke = run.results[0]
        .trial_log
        .iter()
        .find(|t| t.intended > 100_000.0)
        .unwrap();
    assert!(
        broke.reason.contains("ipvs.imissed increased by 3"),
        "{}",
        broke.reason
    );
}

#[test]
fn what_was_measured_before_the_end_is_kept() {
    let mut paper = Paper {
        stop_after: 3,
        ..Paper::new()
    };
    let run = lb::run(&mut paper, &plan(""));
    assert!(matches!(run.end, BenchEnd::Interrupted));
    assert_eq!(run.results.len(), 1);
    let result = &run.results[0];
    assert_eq!(result.trial_log.len(), 3);
    // Passed loads are a lower bound.
    let held = result
        .trial_log
        .iter()
        .filter(|t| t.outcome == TrialOutcome::Pass);
    let most = held.map(|t| t.offered).reduce(f64::max);
    assert!(most.is_some() && result.limit == most, "{result:?}");
    assert_eq!(
        (result.limited_by, result.confirmed),
        (Some(LbLimit::Time), false)
    );
}

#[test]
fn a_trial_that_breaks_off_is_kept_and_ends_the_benchmark() {
    let mut paper = Paper {
        breaks_after: 2,
        ..Paper::new()
    };
    let run = lb::run(&mut paper, &plan(""));
    assert!(matches!(run.end, BenchEnd::Broken(reason) if reason == "gone"));
    let trials = &run.results[0].trial_log;
    let outcomes: Vec<_> = trials.iter().map(|t| t.outcome).collect();
    let (pass, cut) = (TrialOutcome::Pass, TrialOutcome::Cut);
    assert_eq!(outcomes, [pass, pass, cut]);
    assert!(run.results[0].incomplete);
    // A run that ends in its first trial shows no limit of the tester.
    let mut paper = Paper {
        breaks_after: 0,
        ..Paper::new()
    };
    let result = &lb::run(&mut paper, &plan("")).results[0];
    assert_eq!(
        (result.limit, result.limited_by, result.late()),
        (None, Some(LbLimit::Time), None)
    );
    assert!(counters(&trials[2]).ours.sent_frames > 0 && run.results[0].limit.is_some());
}

#[test]
fn a_link_that_was_down_voids_the_trial() {
    let mut paper = Paper {
        downs: 1,
        ..Paper::new()
    };
    let run = lb::run(&mut paper, &plan(""));
    assert!(matches!(run.end, BenchEnd::Completed));
    assert_near(of(&run.results, LbMetric::OnewayPps).limit, 500_000.0);
    let trials = &run.results[0].trial_log;
    assert_eq!(trials[0].outcome, TrialOutcome::Cut, "{}", trials[0].reason);
    assert_eq!(trials[0].intended, trials[1].intended);
    // Also without a lost frame, since frames that were due did not leave.
    let mut paper = Paper {
        downs: 1,
        is_brief: true,
        ..Paper::new()
    };
    let trials = &lb::run(&mut paper, &plan(ONEWAY)).results[0].trial_log;
    assert_eq!(trials[0].outcome, TrialOutcome::Cut, "{}", trials[0].reason);
    // A link that never stays up is a fault.
    let mut paper = Paper {
        downs: u32::MAX,
        ..Paper::new()
    };
    let run = lb::run(&mut paper, &plan(""));
    assert!(matches!(run.end, BenchEnd::Broken(reason) if reason.contains("went down")));
}

/// A rate of sent frames does not show that frames are missing, nor that the full rate was too short.
#[test]
fn what_was_not_sent_is_not_passed() {
    let first = |paper: &mut Paper| {
        let run = lb::run(paper, &plan(ONEWAY));
        assert_near(run.results[0].limit, 500_000.0);
        let trial = &run.results[0].trial_log[0];
        // Half of 20,000 frames per second was offered.
        assert_eq!(trial.offered, 10_000.0);
        (trial.outcome, trial.reason.clone())
    };
    let (outcome, reason) = first(&mut Paper {
        silent: |run| run == 1,
        ..Paper::new()
    });
    assert_eq!(outcome, TrialOutcome::NotOffered);
    assert_eq!(reason, "only 20000 of 40000 frames were sent");
    let (outcome, reason) = first(&mut Paper {
        late_start: |run| run == 1,
        ..Paper::new()
    });
    assert_eq!(outcome, TrialOutcome::NotOffered);
    assert_eq!(reason, "the full rate lasted 1.000 s instead of 2.000 s");
}
