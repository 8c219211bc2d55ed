//! Soak: loss and delay at a share of the throughput for a long time. A device may lose frames only after minutes: when
//! tables age, processors heat up or memory leaks.

use wb_model::bench::SuiteResult;

use super::{SizeFacts, SuiteStop, impact, tester::Tester};
use crate::Bench;

pub(super) fn measure_soak<B: Bench>(
    tester: &mut Tester<'_, B>,
    known: &SizeFacts,
    result: &mut SuiteResult,
) -> Result<(), SuiteStop<B::Error>> {
    let Some(throughput) = known.throughput else {
        result.not_measured = Some("no throughput was found".to_owned());
        return Ok(());
    };
    let soak = tester.suite.soak.clone();
    tester.left.trials = 1;
    tester.goal = 0.0;
    impact::measure_load(
        tester,
        soak.load,
        throughput * soak.load.0,
        soak.duration.0,
        result,
    )?;
    result.confirmed = result.impact.iter().all(|row| row.lost.is_some());
    Ok(())
}
