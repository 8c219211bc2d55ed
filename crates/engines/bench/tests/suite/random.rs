//! Random devices: results are near the truth, with as many trials as bisection needs.

use proptest::prelude::*;
use wb_model::bench::LbLimit;

use crate::{Device, TEN_GIG, assert_sums, completed, plan};

const PLAN: &str = r#"
    tests = ["throughput"]
    [procedure.suite.times]
    trial = "10s"
    search = "10s"
    [procedure.suite.search]
    resolution = "0.1%"
    budget = "2h"
"#;

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]
    #[test]
    fn throughput_is_within_the_resolution(
        share in 0.002_f64..1.1,
        both_ways in any::<bool>(),
        doubles in proptest::option::of(1_u64..1000),
        delay_ns in 1_i64..1_000_000,
    ) {
        let capacity = TEN_GIG * share;
        let mut device = Device { capacity, doubles, delay_ns, ..Device::default() };
        let mut plan = plan(PLAN);
        plan.traffic[0].bidir = both_ways;
        let result = completed(&mut device, &plan).remove(0);
        assert_sums(&result);
        let limit = result.limit.unwrap();
        // An incomplete frame counts for neither.
        let whole = 0.1;
        let truth = capacity.min(TEN_GIG);
        prop_assert!(limit <= truth + whole, "{limit} of {truth}");
        prop_assert!(truth - limit <= TEN_GIG * 0.001 + whole, "{limit} of {truth}");
        prop_assert_eq!(result.directions, 1 + u32::from(both_ways));
        // The maximum, ten bisections, and 99.98 % if only the maximum failed.
        let trials = match capacity {
            c if c >= TEN_GIG => 1,
            _ => 11 + u32::from(result.notes.iter().any(|n| n.contains("99.98 %"))),
        };
        prop_assert_eq!(result.trials, trials);
        let by_device = result.limited_by == Some(LbLimit::Device);
        prop_assert_eq!(by_device, capacity < TEN_GIG);
    }
}
