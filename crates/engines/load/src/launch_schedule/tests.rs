use super::*;
use proptest::prelude::*;
use wb_model::load::{LoadRise, ProfilePoint};
use wb_model::units::Span;

const MS: u64 = 1_000_000;

fn shape(wait: u64, ramp: u64, duration: u64) -> LoadShape {
    LoadShape {
        wait: Span::from_millis(wait),
        ramp: Span::from_millis(ramp),
        duration: Span::from_millis(duration),
        ..LoadShape::default()
    }
}

fn cps(rate: u64) -> WorkerLimits {
    WorkerLimits {
        launches: Some(Rational::whole(rate)),
        ..WorkerLimits::default()
    }
}

/// Launches per second, called exactly when a launch is due.
fn by_second(pace: &mut LaunchSchedule, seconds: usize) -> Vec<u64> {
    let mut counts = vec![0; seconds];
    while let Some(due) = pace.next_due(0, 0) {
        let n = pace.connections_to_open(due, 0);
        pace.record_launches(n);
        assert!(n > 0, "nothing was due at {due}");
        counts[(due / SECOND) as usize] += n;
    }
    counts
}

#[test]
fn even_launches_are_exact() {
    for rate in [1, 3, 7, 1000, 99_991] {
        let mut pace =
            LaunchSchedule::new(&shape(0, 0, 3000), cps(rate), Grouping::Even(0), 100 * MS);
        assert_eq!(by_second(&mut pace, 3), [rate; 3], "{rate}");
    }
    let mut pace = LaunchSchedule::new(&shape(500, 0, 1000), cps(10), Grouping::Even(0), 100 * MS);
    assert_eq!(pace.next_due(0, 0), Some(500 * MS));
    assert_eq!(by_second(&mut pace, 2), [5, 5]);
}

#[test]
fn event_k_is_due_at_k_over_rate() {
    let third = WorkerLimits {
        launches: Rational::new(10_000_000, 3),
        ..WorkerLimits::default()
    };
    let mut pace = LaunchSchedule::new(&shape(0, 0, 100_000), third, Grouping::Even(0), 100 * MS);
    let mut due = 0;
    for k in 0..1_000_000u64 {
        due = pace.next_due(0, 0).unwrap();
        assert_eq!(due, (k * 300).div_ceil(1), "event {k}");
        let n = pace.connections_to_open(due, 0);
        pace.record_launches(n);
    }
    assert_eq!(due, 299_999_700);
}

#[test]
fn groups_leave_together() {
    let mut pace = LaunchSchedule::new(&shape(0, 0, 1000), cps(100), Grouping::Even(10), 100 * MS);
    assert_eq!(pace.connections_to_open(0, 0), 10);
    pace.record_launches(10);
    assert_eq!(pace.next_due(0, 0), Some(100 * MS));
    assert_eq!(by_second(&mut pace, 1), [90]);
}

#[test]
fn a_ramp_adds_half_of_the_rate() {
    let mut pace = LaunchSchedule::new(
        &shape(0, 2000, 1000),
        cps(1000),
        Grouping::Even(0),
        100 * MS,
    );
    assert_eq!(by_second(&mut pace, 3), [250, 750, 1000]);
    let steps = LoadShape {
        rise: LoadRise::Steps,
        ..shape(0, 4000, 1000)
    };
    let mut pace = LaunchSchedule::new(&steps, cps(1000), Grouping::Even(0), 100 * MS);
    assert_eq!(by_second(&mut pace, 5), [250, 500, 750, 1000, 1000]);
}

#[test]
fn a_profile_is_followed() {
    let point = |at, share| ProfilePoint {
        at: Span::from_secs(at),
        share,
    };
    let profile = LoadShape {
        profile: vec![
            point(0, 0.0),
            point(1, 1.0),
            point(2, 0.0),
            point(3, 0.0),
            point(3, 2.0),
        ],
        ..shape(0, 0, 4000)
    };
    let mut pace = LaunchSchedule::new(&profile, cps(1000), Grouping::Even(0), 100 * MS);
    // The thousandth is due when the line comes down to 0.
    assert_eq!(by_second(&mut pace, 4), [500, 500, 1, 1999]);
}

/// Rates observed with dperf: cps 1000, slow_start 10, wait 3, one worker.
#[test]
fn dperf_groups_ramp_as_dperf_does() {
    let mut pace = LaunchSchedule::new(
        &shape(3000, 10_000, 2000),
        cps(1000),
        Grouping::Dperf(0),
        100 * MS,
    );
    // A group that crosses a second is counted when it leaves, so these may differ by one group from the original's
    // display.
    let seen = by_second(&mut pace, 12);
    let rates = [0, 0, 0, 400, 500, 600, 700, 800, 900, 1000, 1000, 1000];
    for (second, (seen, rate)) in seen.iter().zip(rates).enumerate() {
        assert!(seen.abs_diff(rate) <= 4, "second {second}: {seen}");
    }
}

#[test]
fn dperf_chooses_groups() {
    let group = |cps| dperf_group(0, cps);
    assert_eq!([1000, 35, 81, 11, 2].map(group), [4, 5, 9, 4, 2]);
    assert_eq!(dperf_group(20, 7), 7);
    // 4 x floor(11 / 4) a second.
    let mut pace = LaunchSchedule::new(&shape(0, 0, 3000), cps(11), Grouping::Dperf(0), 100 * MS);
    assert_eq!(by_second(&mut pace, 3), [8, 8, 8]);
}

#[test]
fn a_stall_is_made_up_within_bounds() {
    for grouping in [Grouping::Even(0), Grouping::Dperf(10)] {
        let mut pace = LaunchSchedule::new(&shape(0, 0, 10_000), cps(1000), grouping, 100 * MS);
        let first = pace.connections_to_open(0, 0);
        pace.record_launches(first);
        let late = pace.connections_to_open(1000 * MS, 0);
        assert!((100..=110).contains(&late), "{late}");
        pace.record_launches(late);
        let all = pace.counters();
        assert_eq!(
            all.launched + all.unsent,
            if first == 1 { 1001 } else { 1010 }
        );
    }
}

#[test]
fn what_finds_no_room_is_given_up_too() {
    for grouping in [Grouping::Even(0), Grouping::Dperf(10)] {
        let mut pace = LaunchSchedule::new(&shape(0, 0, 10_000), cps(1000), grouping, 100 * MS);
        let mut most = 0;
        for at in 0..2000 {
            // Called continuously, but no launch is possible.
            most = pace.connections_to_open(at * MS, 0);
            assert!(most <= 110, "{most}");
        }
        pace.record_launches(most);
        let all = pace.counters();
        assert!(
            (1990..=2010).contains(&(all.launched + all.unsent)),
            "{all:?}"
        );
    }
}

#[test]
fn open_connections_hold_launches_back() {
    let limits = WorkerLimits {
        open: Some(50),
        ..cps(1000)
    };
    let mut pace = LaunchSchedule::new(&shape(0, 0, 10_000), limits, Grouping::Even(0), 100 * MS);
    assert_eq!(pace.connections_to_open(99 * MS, 0), 50);
    assert_eq!(
        (pace.counters().held_back, pace.next_due(0, 50)),
        (50, None)
    );
    pace.record_launches(50);
    assert_eq!(pace.connections_to_open(100 * MS, 50), 0);
    assert_eq!(pace.connections_to_open(101 * MS, 49), 1);
}

#[test]
fn without_a_rate_the_open_ones_rise_with_the_ramp() {
    let limits = WorkerLimits {
        open: Some(100),
        ..WorkerLimits::default()
    };
    let mut pace = LaunchSchedule::new(&shape(0, 1000, 1000), limits, Grouping::Even(0), 100 * MS);
    assert_eq!(pace.connections_to_open(500 * MS, 10), 40);
    assert_eq!(pace.connections_to_open(1000 * MS, 10), AT_ONCE);
    assert_eq!(pace.connections_to_open(2000 * MS, 10), 0);
}

#[test]
fn the_rate_may_change_on_the_way() {
    let mut pace = LaunchSchedule::new(&shape(0, 0, 3000), cps(1000), Grouping::Even(0), 100 * MS);
    let mut total = 0;
    for at in 0..1000 {
        let n = pace.connections_to_open(at * MS, 0);
        pace.record_launches(n);
        total += n;
    }
    assert_eq!(total, 1000);
    pace.set(cps(100), Some(1000 * MS));
    assert_eq!(pace.next_due(0, 0), Some(1010 * MS));
    assert_eq!(by_second(&mut pace, 3), [0, 99, 100]);
    let mut pace = LaunchSchedule::new(&shape(0, 0, 3000), cps(1000), Grouping::Even(0), 100 * MS);
    pace.set(cps(0), Some(1));
    assert_eq!(
        (pace.connections_to_open(500 * MS, 0), pace.next_due(0, 0)),
        (0, None)
    );
}

proptest! {
    /// With calls at irregular times, everything due by the end is launched or given up.
    #[test]
    fn nothing_is_lost(rate in 1u64..200_000, group in 1u32..20, ramp in 0u64..500, steps in prop::collection::vec(1u64..200_000_000, 1..60)) {
        let mut pace = LaunchSchedule::new(&shape(0, ramp, 1000), cps(rate), Grouping::Even(group), 50 * MS);
        let mut exact = pace.clone();
        let all: u64 = by_second(&mut exact, 2).iter().sum();
        let mut now = 0;
        for step in steps {
            now += step;
            let n = pace.connections_to_open(now, 0);
            pace.record_launches(n);
        }
        let n = pace.connections_to_open(3000 * MS, 0);
        pace.record_launches(n);
        let counters = *pace.counters();
        prop_assert_eq!(counters.launched + counters.unsent, all);
    }
}

#[test]
fn what_had_no_room_is_held_back_and_not_unsent() {
    let limits = WorkerLimits {
        open: Some(20),
        ..cps(400)
    };
    let mut pace = LaunchSchedule::new(&shape(0, 0, 10_000), limits, Grouping::Even(0), 100 * MS);
    assert_eq!(pace.connections_to_open(SECOND, 20), 0);
    let c = *pace.counters();
    assert_eq!((c.unsent, c.held_back), (0, 401));
    // Five could have been opened a second later, and of those only the recent ones are.
    assert_eq!(pace.connections_to_open(2 * SECOND, 15), 5);
    pace.record_launches(5);
    let c = *pace.counters();
    assert_eq!((c.unsent, c.held_back, c.launched), (0, 401 + 395, 5));
    // With room for all, those that are too old are the tester's fault.
    assert_eq!(pace.connections_to_open(3 * SECOND, 0), 20);
    let c = *pace.counters();
    assert_eq!((c.unsent, c.held_back), (0, 401 + 395 + 380));
    let mut pace = LaunchSchedule::new(&shape(0, 0, 10_000), cps(400), Grouping::Even(0), 100 * MS);
    assert_eq!(pace.connections_to_open(SECOND, 0), 40);
    assert_eq!(
        (pace.counters().unsent, pace.counters().held_back),
        (361, 0)
    );
}

#[test]
fn requests_that_wait_for_answers_do_not_grow_old() {
    let mut asks = LaunchSchedule::new(&shape(0, 0, 10_000), cps(200), Grouping::Even(1), 100 * MS);
    assert_eq!(asks.connections_to_open(0, 0), 1);
    asks.record_launches(1);
    // Half a second without a free connection, called continuously.
    for ms in 1..=500 {
        let owed = asks.connections_to_open(ms * MS, 0);
        asks.set_waits(owed > 0);
    }
    assert_eq!(asks.connections_to_open(500 * MS, 0), 100);
    let late = asks.due_lateness(500 * MS);
    assert_eq!((late.first, late.step), (495 * MS, 5 * MS));
    asks.record_launches(40);
    asks.set_waits(false);
    assert_eq!(asks.counters().unsent, 0);
    // Requests that wait at the end were never sent, for lack of answers.
    asks.set_waits(true);
    asks.finish();
    let c = *asks.counters();
    assert_eq!((c.launched, c.unsent, c.held_back), (41, 0, 60));
}

#[test]
fn a_stall_of_ours_is_unsent_whoever_waits() {
    let mut asks = LaunchSchedule::new(&shape(0, 0, 10_000), cps(200), Grouping::Even(1), 100 * MS);
    asks.set_waits(true);
    let owed = asks.connections_to_open(SECOND, 0);
    asks.record_launches(owed);
    let c = *asks.counters();
    assert_eq!((c.launched, c.unsent, c.held_back), (20, 181, 0));
}

#[test]
fn lateness_is_told_of_each() {
    let mut pace =
        LaunchSchedule::new(&shape(0, 0, 10_000), cps(1000), Grouping::Even(0), 100 * MS);
    assert_eq!(pace.due_lateness(0), LatenessSeries::NOT);
    let n = pace.connections_to_open(7 * MS + 300, 0);
    assert_eq!(n, 8);
    let late = pace.due_lateness(7 * MS + 300);
    assert_eq!((late.first, late.step), (7 * MS + 300, MS));
    pace.record_launches(6);
    assert_eq!(pace.due_lateness(8 * MS).first, 2 * MS);
}
