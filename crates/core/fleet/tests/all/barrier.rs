//! The start: all hosts at one time, and none before all are armed.

use crate::world::{SECOND, Settings, World};

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
