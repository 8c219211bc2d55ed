//! The start: all hosts at one time, and none before all are armed.

use wb_fleet_core::controller::RunEnd;

use crate::world::{MS, SECOND, Settings, World};

#[test]
fn every_host_starts_within_its_stated_error_and_none_before_all_are_armed() {
    for seed in 0..20 {
        let settings = Settings {
            hosts: 8,
            ..Settings::default()
        };
        let mut world = World::new(settings, seed);
        world.run_until(5 * SECOND);
        let errors = world.start_errors();
        assert_eq!(errors.len(), 4, "{world:?}");
        for (host, distance, error) in errors {
            // The arithmetic of the simulated clocks rounds to 1 ns.
            let most = i64::try_from(error).unwrap() + 2;
            assert!(
                distance.abs() <= most,
                "seed {seed}: {host} starts {distance} ns from the start, error {error} ns"
            );
        }
        let armed = world.hosts.iter().map(|host| host.armed_ns.unwrap()).max();
        let first = world
            .senders
            .values()
            .map(|sender| sender.first_ns.unwrap())
            .min();
        assert!(armed < first, "seed {seed}: {armed:?} {first:?}");
    }
}

#[test]
fn nothing_starts_if_the_clocks_are_known_too_badly() {
    let world = |max_clock_error_ns| {
        let settings = Settings {
            hosts: 2,
            max_clock_error_ns: Some(max_clock_error_ns),
            ..Settings::default()
        };
        let mut world = World::new(settings, 1);
        world.run_until(5 * SECOND);
        world
    };
    // A message takes 0.1 ms to 1 ms, so the error of two clocks is from 0.2 ms to 2 ms.
    assert!(world(3 * MS).results.is_empty());
    let refused = world(MS / 10);
    let (_, result) = refused.results.last().unwrap();
    assert_eq!(result.end, RunEnd::Refused);
    assert!(
        refused
            .senders
            .values()
            .all(|sender| sender.first_ns.is_none())
    );
    let [problem] = &result.problems[..] else {
        panic!("{:?}", result.problems);
    };
    assert_eq!(problem.place, "clocks");
    assert!(
        problem
            .what
            .starts_with("the clocks of h0 and h1 are known to "),
        "{problem:?}"
    );
    assert!(
        problem.what.ends_with(" only; at most 100us is allowed"),
        "{problem:?}"
    );
}
