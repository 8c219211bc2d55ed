//! Searches against simulated devices with and without noise, and against a tester with a limit.

use std::{convert::Infallible, time::Duration};

use proptest::prelude::*;
use wb_search::{
    LimitCause, LoadOutcome, Measurer, Mlr, Purpose, Search, Trial, TrialRequest, mlr, search,
};

/// Device that carries `capacity`, behind a tester that offers at most `tester`.
struct Device {
    capacity: f64,
    tester: f64,
    /// Maximum deviation of the capacity of a trial, as a share in either direction.
    noise: f64,
    /// Share of its capacity that the device carries under overload.
    overloaded: f64,
    seed: u64,
    /// Outcome of the first trial, in which the tester hardly sends or receives.
    stumble: Option<LoadOutcome>,
    loads: Vec<(f64, Purpose)>,
    patience: usize,
}

impl Device {
    fn new(capacity: f64) -> Self {
        Self {
            capacity,
            tester: f64::INFINITY,
            noise: 0.0,
            overloaded: 1.0,
            seed: 1,
            stumble: None,
            loads: Vec::new(),
            patience: usize::MAX,
        }
    }

    /// Random number from -1 to 1.
    fn random(&mut self) -> f64 {
        // SplitMix64.
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

impl Measurer for Device {
    type Error = Infallible;

    fn measure(&mut self, ask: &TrialRequest) -> Result<Option<Trial>, Infallible> {
        let TrialRequest { load, purpose, .. } = *ask;
        if self.loads.len() >= self.patience {
            return Ok(None);
        }
        self.loads.push((load, purpose));
        if let Some(outcome) = self.stumble.take() {
            return Ok(Some(Trial {
                outcome,
                offered: load * 0.005,
                through: load * 0.005,
                loss: 0.0,
                overhead: Duration::ZERO,
            }));
        }
        let capacity = self.capacity * (1.0 + self.noise * self.random());
        let offered = load.min(self.tester);
        Ok(Some(Trial {
            outcome: match (offered <= capacity, load <= self.tester) {
                (_, false) => LoadOutcome::Unoffered,
                (true, true) => LoadOutcome::Held,
                (false, true) => LoadOutcome::Broke,
            },
            offered,
            through: match offered <= capacity {
                true => offered,
                false => capacity * self.overloaded,
            },
            loss: 1.0 - (capacity / offered).min(1.0),
            overhead: Duration::ZERO,
        }))
    }
}

proptest! {
    #[test]
    fn a_sharp_limit_is_found_from_above_and_from_below(
        capacity in 10.0..1e7f64, first in 1.0..1e8f64, from_above: bool,
    ) {
        let mut device = Device::new(capacity);
        let plan = match from_above {
            true => Search { most_trials: 64, ..Search::up_to(first.max(10.0)) },
            false => Search { most_trials: 64, ..Search::from(first) },
        };
        let found = search(&mut device, &plan).unwrap();
        let best = found.best.unwrap();
        prop_assert!(found.confirmed);
        prop_assert!(best <= capacity);
        match found.bound {
            LimitCause::Device => {
                prop_assert!(best >= capacity * 0.95 - 1e-6, "{found:?} of {capacity}");
                prop_assert!(found.beyond.unwrap() > capacity);
            }
            LimitCause::Maximum => prop_assert_eq!(best, plan.maximum),
            other => prop_assert!(false, "{:?}", other),
        }
        prop_assert_eq!(device.loads.last().unwrap(), &(best, Purpose::Confirm));
        prop_assert_eq!(device.loads.len(), found.trials as usize);
    }

    #[test]
    fn a_noisy_limit_is_never_overrated(capacity in 1e3..1e6f64, noise in 0.0..0.1f64, seed: u64) {
        let mut device = Device { noise, seed, ..Device::new(capacity) };
        let plan = Search { most_confirmations: 8, most_trials: 30, ..Search::from(100.0) };
        let found = search(&mut device, &plan).unwrap();
        prop_assert!(found.confirmed);
        let best = found.best.unwrap();
        // The claimed load has held in a trial, and is not far below the capacity.
        prop_assert!(best <= capacity * (1.0 + noise));
        prop_assert!(best >= capacity * (1.0 - noise) * 0.7, "{found:?} of {capacity}");
        prop_assert!(device.loads.contains(&(best, Purpose::Confirm)));
        // A claimed limit of the device is within the resolution.
        let beyond = found.beyond.unwrap();
        let close = beyond - best <= beyond * plan.resolution * 1.000_001;
        prop_assert!(close || found.bound == LimitCause::Unfinished, "{found:?}");
    }

    #[test]
    fn the_testers_limit_is_not_called_the_devices(
        tester in 1e3..1e5f64, more in 1.3..50.0f64, from_above: bool,
    ) {
        let mut device = Device { tester, ..Device::new(tester * more) };
        let plan = if from_above { Search::up_to(1e7) } else { Search::from(100.0) };
        let found = search(&mut device, &plan).unwrap();
        prop_assert_eq!(found.bound, LimitCause::Tester);
        let best = found.best.unwrap();
        prop_assert!(best <= tester && best >= tester * 0.9, "{found:?} of {tester}");
        prop_assert!(found.trials <= 13);
    }

    #[test]
    fn trials_are_bounded(
        capacity in 0.0..1e9f64, most in 1u32..20, confirmations in 0u32..5, patience in 0usize..30,
        noise in 0.0..2.0f64, seed: u64,
    ) {
        let mut device = Device { noise, seed, patience, ..Device::new(capacity) };
        let plan = Search {
            most_trials: most,
            most_confirmations: confirmations,
            ..Search::from(1000.0)
        };
        let found = search(&mut device, &plan).unwrap();
        prop_assert!(found.trials <= most + confirmations);
        prop_assert_eq!(found.trials as usize, device.loads.len());
        prop_assert!(device.loads.iter().all(|(load, _)| *load >= plan.minimum && load.is_finite()));
        prop_assert!(!found.confirmed || found.best.is_some());
        if let (true, LimitCause::Device, Some(best), Some(beyond)) =
            (found.confirmed, found.bound, found.best, found.beyond)
        {
            prop_assert!(beyond - best <= beyond * plan.resolution * 1.000_001, "{found:?}");
        }
    }
}

/// A search takes the load offered by the tester as its bound at once, with and without loss in the device.
#[test]
fn the_first_load_is_beyond_the_tester() {
    let plan = Search {
        resolution: 0.005,
        most_trials: 60,
        ..Search::up_to(15e6)
    };
    for (capacity, bound, limit) in [
        (6e6, LimitCause::Device, 6e6),
        (12e6, LimitCause::Tester, 9e6),
    ] {
        let mut device = Device {
            tester: 9e6,
            ..Device::new(capacity)
        };
        let found = search(&mut device, &plan).unwrap();
        assert_eq!((found.bound, found.confirmed), (bound, true), "{found:?}");
        let best = found.best.unwrap();
        assert!(best <= limit && best >= limit * 0.99, "{found:?}");
        assert!(found.trials <= 5, "{:?}", device.loads);
    }
}

#[test]
fn a_device_that_carries_nothing_has_no_limit() {
    let mut device = Device::new(0.5);
    let plan = Search {
        most_trials: 64,
        ..Search::up_to(1000.0)
    };
    let found = search(&mut device, &plan).unwrap();
    assert_eq!((found.best, found.bound), (None, LimitCause::Device));
    assert!(found.trials < 15);
}

#[test]
fn no_time_is_said() {
    let mut device = Device {
        patience: 3,
        ..Device::new(5000.0)
    };
    let found = search(&mut device, &Search::from(100.0)).unwrap();
    assert_eq!(found.bound, LimitCause::Unfinished);
    assert_eq!((found.best, found.confirmed), (Some(1600.0), false));
}

#[test]
fn what_came_through_saves_trials() {
    let mut device = Device::new(200_000.0);
    let found = search(&mut device, &Search::up_to(10e6)).unwrap();
    assert!(found.best.unwrap() >= 190_000.0);
    assert!(found.trials <= 5, "{:?}", device.loads);
}

/// The limit is close to the load forwarded, so the search does not halve the interval above it.
#[test]
fn a_device_that_carries_less_the_more_it_gets() {
    for overloaded in [0.99, 0.98, 0.95, 0.9] {
        let mut device = Device {
            overloaded,
            ..Device::new(4_170.0)
        };
        let plan = Search {
            resolution: 0.005,
            most_trials: 64,
            ..Search::up_to(700e3)
        };
        let found = search(&mut device, &plan).unwrap();
        assert!(found.best.unwrap() >= 4_170.0 * 0.994, "{found:?}");
        assert!(found.trials <= 11, "{overloaded}: {:?}", device.loads);
    }
}

/// A single failure of the tester is not taken as its limit.
#[test]
fn a_tester_that_stumbles_at_first() {
    for stumble in [LoadOutcome::Unoffered, LoadOutcome::Unread] {
        let device = || Device {
            stumble: Some(stumble),
            ..Device::new(200_000.0)
        };
        let plan = Search {
            resolution: 0.005,
            most_trials: 64,
            ..Search::up_to(1e6)
        };
        let mut of_ladder = device();
        let found = search(&mut of_ladder, &plan).unwrap();
        assert_eq!(found.bound, LimitCause::Device, "{stumble:?}: {found:?}");
        assert!(found.best.unwrap() >= 199_000.0, "{stumble:?}: {found:?}");
        let mut of_mlr = device();
        let plan = Mlr {
            warm_up: None,
            ..Mlr::between(1000.0, 1e6)
        };
        let found = mlr(&mut of_mlr, &plan).unwrap();
        assert!(found.tester_limit.unwrap() >= 250_000.0, "{stumble:?}");
    }
}
