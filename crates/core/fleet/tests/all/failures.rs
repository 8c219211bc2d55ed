//! The table of failures: each victim in each phase of a run, and what must hold afterwards.
//!
//! Two jobs run side by side: h0 sends to h1, and h2 sends to h3.

use wb_fleet_core::{
    ShareEnd,
    controller::{HostState, RunEnd, RunResult},
    message::StopHow,
};

use crate::world::{DRAIN_NS, Fault, MS, SECOND, Settings, World};

const DURATION_NS: u64 = 10 * SECOND;
/// Time after which a lost host is reported: 3 s, one message of presence before, and the checks.
const LOST_WITHIN_NS: u64 = 3_100 * MS;

/// Phases of the run: shortly after the start, in the middle, and in the drain.
const PHASES: [(&str, u64); 3] = [
    ("ramp", 300 * MS),
    ("running", 3_300 * MS),
    ("drain", DURATION_NS + DRAIN_NS / 2),
];

/// A world that has just set its start, and the time of the start.
fn started(settings: Settings) -> (World, u64) {
    let mut world = World::new(settings, 7);
    world.run_while(10 * SECOND, |world| world.start_ns().is_none());
    let start_ns = world.start_ns().expect("the run starts");
    (world, start_ns)
}

fn settings() -> Settings {
    Settings {
        duration_ns: DURATION_NS,
        ..Settings::default()
    }
}

fn last(world: &World) -> &RunResult {
    let (_, result) = world
        .results
        .last()
        .unwrap_or_else(|| panic!("no result\n{world:?}"));
    result
}

fn state(world: &World, host: usize) -> HostState {
    last(world).hosts[host].state
}

/// The direction is complete, and its loss is the true one.
fn is_exact(world: &World, direction: usize, case: &str) {
    let truth = world.truly_lost(direction);
    assert!(truth > 0, "{case}: too short\n{world:?}");
    assert_eq!(world.lost(direction), Some(truth), "{case}\n{world:?}");
}

/// The direction has a reason and no loss.
fn is_unknown(world: &World, direction: usize, reason: &str, case: &str) {
    let why = world.why_incomplete(direction);
    assert!(
        why.is_some_and(|why| why.contains(reason)),
        "{case}: {why:?}\n{world:?}"
    );
    assert_eq!(world.lost(direction), None, "{case}");
}

/// Runs to the end with faults at times after the start.
fn run(settings: Settings, faults: &[(u64, Fault)]) -> (World, u64) {
    let (mut world, start_ns) = started(settings);
    for (after_ns, fault) in faults {
        world.fault_at(start_ns + after_ns, fault.clone());
    }
    world.run_while(start_ns + 120 * SECOND, |world| !world.is_quiet());
    world.check_end();
    (world, start_ns)
}

fn noted(world: &World, words: &str) -> u64 {
    let mut notes = world.notes.iter();
    let note = notes.find(|(_, text)| text.contains(words));
    note.unwrap_or_else(|| panic!("no note of {words:?}\n{world:?}"))
        .0
}

#[test]
fn a_sending_agent_that_dies_leaves_the_loss_of_its_job_unknown() {
    for (phase, at_ns) in PHASES {
        let (world, start_ns) = run(settings(), &[(at_ns, Fault::KillAgent(0))]);
        is_exact(&world, 1, phase);
        if phase == "drain" {
            // It had delivered its share.
            is_exact(&world, 0, phase);
            continue;
        }
        is_unknown(&world, 0, "host h0 lost at ", phase);
        assert_eq!(state(&world, 0), HostState::Lost);
        let reported = noted(&world, "host h0 lost");
        assert!(
            reported <= start_ns + at_ns + LOST_WITHIN_NS,
            "{phase}\n{world:?}"
        );
        // Its receiver drains, reports what it received, and invents no loss.
        let shares = &last(&world).shares;
        let receiver = shares.iter().find(|share| share.host == "h1").unwrap();
        let totals = receiver.share.report.totals;
        assert!(
            totals.received_frames > Some(0) && totals.lost_frames.is_none(),
            "{totals:?}"
        );
    }
}

#[test]
fn a_receiving_agent_that_dies_leaves_the_loss_of_its_job_unknown() {
    for (phase, at_ns) in PHASES {
        let (world, start_ns) = run(settings(), &[(at_ns, Fault::KillAgent(1))]);
        is_exact(&world, 1, phase);
        is_unknown(&world, 0, "host h1 lost at ", phase);
        let reported = noted(&world, "host h1 lost");
        assert!(
            reported <= start_ns + at_ns + LOST_WITHIN_NS,
            "{phase}\n{world:?}"
        );
        assert_eq!(last(&world).shares.len(), 3);
    }
}

#[test]
fn without_a_controller_the_lease_ends_the_run_and_the_next_one_reports_it() {
    for (phase, at_ns) in PHASES {
        let faults = [
            (at_ns, Fault::KillController(0)),
            (at_ns + 2 * SECOND, Fault::StartController(0)),
        ];
        let (world, start_ns) = run(settings(), &faults);
        let result = last(&world);
        assert_eq!(result.shares.len(), 4, "{phase}\n{world:?}");
        let (at, _) = world.results[0];
        assert!(at <= start_ns + at_ns + 10 * SECOND, "{phase}\n{world:?}");
        for direction in [0, 1] {
            if phase == "drain" {
                is_exact(&world, direction, phase);
            } else {
                is_unknown(&world, direction, "lease ran out", phase);
                let sender = world.sender(direction);
                let stopped = sender.stopped_ns.unwrap();
                assert!(
                    stopped <= start_ns + at_ns + 3_100 * MS,
                    "{phase}\n{world:?}"
                );
            }
        }
    }
}

#[test]
fn another_controller_adopts_a_run_whose_lease_has_not_run_out() {
    for (phase, at_ns) in PHASES {
        let settings = Settings {
            lease_ns: 15 * SECOND,
            controllers: 2,
            ..settings()
        };
        let (world, _) = run(settings, &[(at_ns, Fault::KillController(0))]);
        let result = last(&world);
        assert_eq!(result.end, RunEnd::Finished);
        is_exact(&world, 0, phase);
        is_exact(&world, 1, phase);
        assert!(
            result
                .shares
                .iter()
                .all(|share| share.share.end == ShareEnd::Finished)
        );
        if phase != "drain" {
            noted(&world, "another one took over");
        }
    }
}

#[test]
fn a_broker_that_is_back_in_time_costs_two_intervals() {
    for (phase, at_ns) in PHASES {
        let faults = [
            (at_ns, Fault::KillBroker),
            (at_ns + 1_500 * MS, Fault::StartBroker),
        ];
        let (world, _) = run(settings(), &faults);
        assert_eq!(last(&world).shares.len(), 4);
        let late = world
            .shown
            .iter()
            .filter(|(_, shown)| !shown.snapshot.hosts_late.is_empty());
        assert!(
            late.count() + (10 - world.shown.len()) <= 2,
            "{phase}\n{world:?}"
        );
        // A receiver that missed the end of its sender does not know it.
        is_exact(&world, 0, phase);
        is_exact(&world, 1, phase);
    }
}

#[test]
fn a_broker_that_is_away_longer_than_the_lease_ends_the_run() {
    for (phase, at_ns) in PHASES {
        let faults = [
            (at_ns, Fault::KillBroker),
            (at_ns + 8 * SECOND, Fault::StartBroker),
        ];
        let (world, start_ns) = run(settings(), &faults);
        assert_eq!(last(&world).shares.len(), 4, "{phase}\n{world:?}");
        if phase != "drain" {
            for direction in [0, 1] {
                is_unknown(&world, direction, "", phase);
                let stopped = world.sender(direction).stopped_ns.unwrap();
                assert!(
                    stopped <= start_ns + at_ns + 3_100 * MS,
                    "{phase}\n{world:?}"
                );
            }
        }
    }
}

#[test]
fn agent_and_controller_together() {
    for (phase, at_ns) in PHASES {
        for lease_ns in [3 * SECOND, 15 * SECOND] {
            let case = format!("{phase}, lease {} s", lease_ns / SECOND);
            let settings = Settings {
                lease_ns,
                controllers: 2,
                ..settings()
            };
            let faults = [
                (at_ns, Fault::KillAgent(1)),
                (at_ns, Fault::KillController(0)),
            ];
            let (world, start_ns) = run(settings, &faults);
            is_unknown(&world, 0, "host h1 lost", &case);
            assert_eq!(last(&world).shares.len(), 3, "{case}");
            match (phase, lease_ns > 10 * SECOND) {
                ("drain", _) | (_, true) => is_exact(&world, 1, &case),
                _ => is_unknown(&world, 1, "lease ran out", &case),
            }
            let (at, _) = world.results[0];
            let planned = start_ns + DURATION_NS + 10 * SECOND;
            assert!(at <= planned, "{case}\n{world:?}");
        }
    }
}

#[test]
fn a_port_that_vanishes_concerns_only_its_directions() {
    let (world, _) = run(settings(), &[(3 * SECOND, Fault::FailPort(0))]);
    is_unknown(&world, 0, "h0: port p vanished", "port");
    is_exact(&world, 1, "port");
    assert_eq!(last(&world).shares.len(), 4);
}

#[test]
fn an_agent_that_comes_back_stays_out_of_the_run() {
    let faults = [
        (3 * SECOND, Fault::KillAgent(0)),
        (4 * SECOND, Fault::StartAgent(0)),
    ];
    let (world, start_ns) = run(settings(), &faults);
    is_unknown(&world, 0, "the agent was started again", "back");
    is_exact(&world, 1, "back");
    assert!(noted(&world, "started again") <= start_ns + 4_100 * MS);
}

#[test]
fn a_host_that_was_cut_off_delivers_its_share_later() {
    let faults = [(3 * SECOND, Fault::Cut(0)), (40 * SECOND, Fault::Join(0))];
    let (world, start_ns) = run(settings(), &faults);
    let stopped = world.sender(0).stopped_ns.unwrap();
    assert!(stopped <= start_ns + 6_100 * MS, "{world:?}");
    let [(first_at, first), (_, second)] = world.results.as_slice() else {
        panic!("two results\n{world:?}");
    };
    assert!(*first_at <= start_ns + DURATION_NS + 2 * SECOND);
    assert_eq!((first.revision, first.shares.len()), (1, 3));
    assert_eq!((second.revision, second.shares.len()), (2, 4));
    assert_eq!(first.hosts[0].state, HostState::Lost);
    assert_eq!(second.hosts[0].state, HostState::CutOff);
    is_unknown(&world, 0, "h0 was cut off at ", "cut off");
    is_exact(&world, 1, "cut off");
}

#[test]
fn a_controller_that_stood_still_loses_no_interval() {
    let (world, _) = run(settings(), &[(3 * SECOND, Fault::Stall(0, 2_200 * MS))]);
    assert_eq!(world.shown.len(), 10, "{world:?}");
    assert!(
        world
            .shown
            .iter()
            .all(|(_, shown)| shown.snapshot.hosts_lost.is_empty())
    );
    is_exact(&world, 0, "stalled");
    is_exact(&world, 1, "stalled");
}

#[test]
fn a_stop_drains_and_a_second_one_does_not_wait() {
    let (world, start_ns) = run(settings(), &[(3 * SECOND, Fault::Stop(StopHow::Drain))]);
    assert_eq!(last(&world).end, RunEnd::Stopped);
    is_exact(&world, 0, "drain");
    is_exact(&world, 1, "drain");
    assert!(world.results[0].0 <= start_ns + 3_500 * MS, "{world:?}");

    let stop = Fault::Stop(StopHow::Drain);
    let faults = [(3 * SECOND, stop.clone()), (3 * SECOND + 5 * MS, stop)];
    let (world, start_ns) = run(settings(), &faults);
    assert_eq!(last(&world).end, RunEnd::Stopped);
    assert!(world.results[0].0 <= start_ns + 3_100 * MS, "{world:?}");
}

#[test]
fn a_stop_that_nobody_answers_withdraws_the_lease() {
    let faults = [
        (3 * SECOND, Fault::Cut(0)),
        (3 * SECOND + MS, Fault::Stop(StopHow::Now)),
        (60 * SECOND, Fault::Join(0)),
    ];
    let settings = Settings {
        lease_ns: 5 * SECOND,
        ..settings()
    };
    let (world, start_ns) = run(settings, &faults);
    assert!(world.sender(0).stopped_ns.unwrap() <= start_ns + 8_100 * MS);
    assert_eq!(last(&world).revision, 2);
}
