//! Many agents.

use crate::world::{SECOND, Settings, World};

#[test]
fn a_thousand_agents_miss_no_interval_in_a_minute() {
    let settings = Settings {
        hosts: 1000,
        duration_ns: 60 * SECOND,
        checks: false,
        ..Settings::default()
    };
    let mut world = World::new(settings, 1);
    world.run_until(66 * SECOND);
    world.check_end();
    let complete = world.shown.iter().filter(|(_, shown)| {
        shown.snapshot.hosts_late.is_empty() && shown.snapshot.hosts_lost.is_empty()
    });
    assert_eq!(complete.count(), 60, "{world:?}");
    let (_, result) = &world.results[0];
    assert_eq!(result.shares.len(), 1000);
    assert!(result.incomplete.is_empty());
}
