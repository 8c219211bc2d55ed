//! Sums of reports.

use serde_json::Value;

/// Panics unless offered = (received - duplicate) + lost and intended = offered + unsent, for the run, each job
/// and each flow, and unless the flows offer what the run offers.
pub fn assert_adds_up(report: &Value) {
    check(&report["totals"], "totals");
    for list in ["jobs", "flows"] {
        for (i, entry) in report[list].as_array().into_iter().flatten().enumerate() {
            check(&entry["totals"], &format!("{list}[{i}]"));
        }
    }
    let offered = |of: &Value| of["totals"]["offered_frames"].as_u64();
    if report["flows_omitted"] == 0
        && let (Some(all), Some(flows)) = (offered(report), report["flows"].as_array())
    {
        let sum: u64 = flows.iter().filter_map(offered).sum();
        let followed = flows
            .iter()
            .any(|flow| flow["totals"]["offered_frames"] != 0);
        assert!(
            !followed || sum == all,
            "flows offer {sum}, the run {}",
            report["totals"]
        );
    }
}

fn check(totals: &Value, place: &str) {
    let get = |key: &str| totals[key].as_u64();
    if let (Some(offered), Some(received), Some(duplicate), Some(lost)) = (
        get("offered_frames"),
        get("received_frames"),
        get("duplicate_frames"),
        get("lost_frames"),
    ) {
        assert_eq!(offered + duplicate, received + lost, "{place}: {totals}");
    }
    if let (Some(intended), Some(offered), Some(unsent)) = (
        get("intended_frames"),
        get("offered_frames"),
        get("unsent_frames"),
    ) {
        assert_eq!(intended, offered + unsent, "{place}: {totals}");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn totals(offered: u64, received: u64, lost: u64) -> Value {
        json!({"offered_frames": offered, "received_frames": received, "duplicate_frames": 0, "lost_frames": lost})
    }

    #[test]
    fn what_adds_up_passes() {
        let flow = json!({"totals": {"offered_frames": 5}});
        assert_adds_up(
            &json!({"totals": totals(10, 7, 3), "flows_omitted": 0, "flows": [flow, flow]}),
        );
        assert_adds_up(&json!({"load": {}}));
    }

    #[test]
    #[should_panic(expected = "jobs[0]")]
    fn a_job_that_does_not_add_up_is_named() {
        assert_adds_up(
            &json!({"totals": totals(10, 7, 3), "jobs": [{"totals": totals(10, 7, 2)}]}),
        );
    }

    #[test]
    #[should_panic(expected = "flows offer 5")]
    fn flows_that_do_not_add_up_are_named() {
        let flow = json!({"totals": {"offered_frames": 5}});
        assert_adds_up(&json!({"totals": totals(10, 7, 3), "flows_omitted": 0, "flows": [flow]}));
    }
}
