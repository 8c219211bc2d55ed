//! Recorded reports with some values replaced, as reports of unknown origin may have: they are refused, or shown,
//! compared and merged without a panic.

use proptest::{prelude::*, sample::Index};
use serde_json::{Value, json};
use wb_model::{
    Report,
    merge::{Part, merge},
};
use wb_render::{
    csv, junit,
    metrics::{self, Seen},
    report::{Run, document, html, markdown},
    text::{self, Options},
};

/// Replaces the value number `at` of a document, counted from the top.
fn replace(value: &mut Value, at: &mut usize, new: &Value) -> bool {
    if *at == 0 {
        *value = new.clone();
        return true;
    }
    *at -= 1;
    match value {
        Value::Array(all) => all.iter_mut().any(|below| replace(below, at, new)),
        Value::Object(all) => all.values_mut().any(|below| replace(below, at, new)),
        _ => false,
    }
}

fn size(value: &Value) -> usize {
    1 + match value {
        Value::Array(all) => all.iter().map(size).sum::<usize>(),
        Value::Object(all) => all.values().map(size).sum::<usize>(),
        _ => 0,
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(0)),
        Just(json!(1)),
        Just(json!(-1)),
        Just(json!(u64::MAX)),
        Just(json!(i64::MIN)),
        Just(json!(1e300)),
        Just(json!(-0.5)),
        Just(json!(null)),
        Just(json!("")),
        Just(json!("ä\n|<")),
        Just(json!([])),
        Just(json!({})),
        Just(json!(true)),
    ]
}

/// Shows a report in every form, and returns the texts.
fn shown(report: &Report) -> Vec<String> {
    let run = |name: &str| Run {
        name: name.to_owned(),
        report: report.clone(),
    };
    let verbose = Options {
        verbose: true,
        ..Options::default()
    };
    let seen = Seen {
        report: Some(report.clone()),
        figures: report.timeline.clone(),
        ..Seen::default()
    };
    vec![
        text::report(report, &verbose),
        csv::report(report),
        junit::report(report),
        html(&document(&[run("a")])),
        markdown(&document(&[run("a"), run("b")])),
        metrics::text("0.0.0", &seen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn edited_reports_are_refused_or_shown(
        sample in any::<Index>(),
        edits in proptest::collection::vec((any::<Index>(), any_value()), 1..4),
    ) {
        let samples = crate::goldens::documents();
        let mut document = sample.get(&samples).clone();
        for (place, new) in edits {
            let mut at = place.index(size(&document));
            replace(&mut document, &mut at, &new);
        }
        if let Ok(report) = serde_json::from_value::<Report>(document) {
            prop_assert!(shown(&report).iter().all(|text| !text.is_empty()));
            let part = |name: &str, started_ns| Part {
                name: name.to_owned(),
                started_ns,
                report: report.clone(),
            };
            if let Ok(merged) = merge(vec![part("a", 0), part("b", 1)]) {
                prop_assert!(shown(&merged).iter().all(|text| !text.is_empty()));
            }
        }
    }
}
