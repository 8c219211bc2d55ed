//! Clocks that the hosts of a run compare themselves, and the claims of their time services.

use wb_fleet_core::{
    Now,
    clock::Estimate,
    controller::{Action, Controller, Event, Published, RunEnd, RunSettings},
    message::{
        Answer, Armed, ClockSource, DirectionFlows, Op, Opened, Problem, Registration, Start,
    },
    place::place,
};
use wb_model::{Plan, Stream, TrafficJob, fleet::HostClock, peer::PairClock, plan::PortPlan};

const NOW: Now = Now {
    mono_ns: 5_000_000_000,
    wall_ns: 1_795_726_288_000_000_000,
};

/// Controller of a run from h1 to h2. Requests are answered as soon as they are sent.
struct Run {
    controller: Controller,
    /// Clock of each host as its time service describes it.
    claims: [Option<HostClock>; 2],
    /// Clocks that h2 has compared.
    compared: Vec<PairClock>,
    senders: Vec<(String, Vec<ClockSource>)>,
    start: Option<Start>,
    refused: Vec<Problem>,
    warnings: Vec<String>,
}

impl Run {
    fn new(claims: [Option<HostClock>; 2], compared: &[PairClock], limit_ns: Option<u64>) -> Self {
        let port = |name: &str, locator: &str| PortPlan::new(name, locator.parse().unwrap());
        let plan = Plan {
            ports: vec![port("a", "h1:a0"), port("b", "h2:b0")],
            traffic: vec![TrafficJob {
                tx: Some("a".to_owned()),
                rx: Some("b".to_owned()),
                streams: vec![Stream::default()],
                ..TrafficJob::default()
            }],
            ..Plan::default()
        };
        let registrations = ["h1", "h2"].map(|host| Registration {
            host: host.to_owned(),
            protocol: 1,
            boot: format!("boot of {host}"),
            udp: vec![format!("{host}:40061")],
            ..Registration::default()
        });
        let placement = place(&plan, &registrations, 100).unwrap();
        let settings = RunSettings {
            run: "r1".to_owned(),
            lease_ns: 3_000_000_000,
            interval_ns: 1_000_000_000,
            max_clock_error_ns: limit_ns,
            ..RunSettings::default()
        };
        let (controller, actions) = Controller::new(settings, 1, placement, &registrations, NOW);
        let mut run = Self {
            controller,
            claims,
            compared: compared.to_vec(),
            senders: Vec::new(),
            start: None,
            refused: Vec::new(),
            warnings: Vec::new(),
        };
        run.perform(actions);
        for _ in 0..3 {
            let actions = run.controller.on(Event::Tick, NOW);
            run.perform(actions);
        }
        run
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            let events = match action {
                Action::Request { host, id, request } => {
                    let answer = self.answer(&host, request.op);
                    vec![Event::Reply { host, id, answer }]
                }
                // The broker knows them within 1 ms.
                Action::MeasureClocks { hosts } => {
                    let estimate = Estimate {
                        at_ns: NOW.wall_ns,
                        offset_ns: 0,
                        bound_ns: 500_000,
                    };
                    let event = |host| Event::Clock {
                        host,
                        estimate,
                        exchanges: 32,
                    };
                    hosts.into_iter().map(event).collect()
                }
                Action::Publish {
                    message: Published::Start(start),
                    ..
                } => {
                    self.start.get_or_insert(start);
                    Vec::new()
                }
                Action::Store(record) => {
                    self.warnings = record.warnings;
                    Vec::new()
                }
                Action::Finish(result) => {
                    assert_eq!(result.end, RunEnd::Refused);
                    self.refused = result.problems;
                    Vec::new()
                }
                _ => Vec::new(),
            };
            for event in events {
                let actions = self.controller.on(event, NOW);
                self.perform(actions);
            }
        }
    }

    fn answer(&mut self, host: &str, op: Op) -> Answer {
        let is_second = host == "h2";
        match op {
            Op::Open(open) => {
                self.senders.push((host.to_owned(), open.senders));
                Answer::Opened(Opened {
                    clock: self.claims[usize::from(is_second)].clone(),
                    ..Opened::default()
                })
            }
            Op::Resolve(_) => Answer::Armed(Armed {
                flows: vec![DirectionFlows {
                    direction: "traffic".to_owned(),
                    first: 100,
                    count: 1,
                }],
                clocks: match is_second {
                    true => self.compared.clone(),
                    false => Vec::new(),
                },
                ..Armed::default()
            }),
            _ => Answer::Done,
        }
    }
}

fn by_udp(offset_ns: i64, error_ns: u64) -> PairClock {
    PairClock {
        from: "h1".to_owned(),
        to: "h2".to_owned(),
        method: "udp".to_owned(),
        offset_end_ns: offset_ns,
        error_ns,
        ..PairClock::default()
    }
}

fn claim(method: &str, error_ns: u64) -> Option<HostClock> {
    Some(HostClock {
        method: method.to_owned(),
        error_ns,
        ..HostClock::default()
    })
}

#[test]
fn the_receiver_learns_where_its_sender_answers() {
    let run = Run::new([None, None], &[], None);
    let source = ClockSource {
        host: "h1".to_owned(),
        boot: "boot of h1".to_owned(),
        udp: vec!["h1:40061".to_owned()],
    };
    let expected = [("h1".to_owned(), vec![]), ("h2".to_owned(), vec![source])];
    assert_eq!(run.senders, expected);
}

#[test]
fn clocks_that_the_hosts_compared_are_better_than_those_over_the_broker() {
    let clocks = |compared: &[PairClock]| {
        let start = Run::new([None, None], compared, None).start.unwrap();
        let [clock] = &start.clocks[..] else {
            panic!("{start:?}");
        };
        (clock.method.clone(), clock.error_ns)
    };
    assert_eq!(clocks(&[by_udp(3, 7_000)]), ("udp".to_owned(), 7_000));
    let (method, error_ns) = clocks(&[]);
    assert_eq!(method, "broker");
    assert!(error_ns >= 1_000_000, "{error_ns}");
    // A host speaks only for its own clock.
    let foreign = PairClock {
        to: "h1".to_owned(),
        ..by_udp(3, 7_000)
    };
    assert_eq!(clocks(&[foreign]).0, "broker");
}

#[test]
fn during_the_run_the_controller_compares_only_clocks_that_no_host_compares() {
    let measures = |compared: &[PairClock]| {
        let mut run = Run::new([None, None], compared, None);
        let later = Now {
            mono_ns: NOW.mono_ns + 2_000_000_000,
            wall_ns: NOW.wall_ns + 2_000_000_000,
        };
        let actions = run.controller.on(Event::Tick, later);
        actions
            .iter()
            .any(|action| matches!(action, Action::MeasureClocks { .. }))
    };
    assert!(!measures(&[by_udp(0, 5_000)]));
    assert!(measures(&[]));
}

#[test]
fn the_limit_of_the_clock_error_holds_for_the_better_comparison() {
    let run = |compared: &[PairClock]| Run::new([None, None], compared, Some(10_000));
    assert!(run(&[by_udp(0, 10_000)]).start.is_some());
    for compared in [vec![by_udp(0, 10_001)], vec![]] {
        let run = run(&compared);
        assert_eq!(run.start, None);
        assert_eq!(run.refused.len(), 1, "{:?}", run.refused);
    }
}

#[test]
fn claims_that_contradict_the_measurement_are_a_warning() {
    let warnings = |first, second, offset_ns| {
        let run = Run::new([first, second], &[by_udp(offset_ns, 5_000)], None);
        assert!(run.start.is_some());
        run.warnings
    };
    let (chrony, ptp) = (|| claim("chrony", 20_000), || claim("ptp", 100));
    assert_eq!(
        warnings(chrony(), ptp(), -25_101),
        [
            "the clocks of h1 and h2 differ by -25.1 us, known to 5.00 us, but their time services claim less (chrony, at most 20.0 us; ptp, at most 100 ns)"
        ]
    );
    assert!(warnings(chrony(), ptp(), -25_100).is_empty());
    assert!(warnings(chrony(), None, 20_000_000).is_empty());
    assert!(warnings(None, None, 20_000_000).is_empty());
}
