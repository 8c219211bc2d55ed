//! Limits of a load balancer: `wirebench bench lb`.

use wb_figures::{Def, Field, Kind, Section, Show, Tone, Unit, Value, derived, fact, fields};

use super::{
    test::{TestDef, named},
    throughput::limit_notes,
};
use crate::{
    bench::{BalancerLimit, BalancerTrial, LbLimit, LbMetric, Quantity, SuiteResult},
    figures::{TIMES, TRIALS},
};

pub(super) const TEST: TestDef = TestDef {
    finds_limit: true,
    searches: true,
    metrics: |r| own(r).map(|own| own.metric.name()).into_iter().collect(),
    values: |r, _| vec![r.limit],
    has_failed: |r| r.limit.is_none(),
    add_to: |r, _, section| {
        let unit = unit(r);
        let loads = ["limit", "beyond"];
        let section = section
            .figures(LIMIT, r)
            .units(|name, own| if loads.contains(&name) { unit } else { own });
        let trial = own(r).and_then(|own| own.best_trial);
        let trial = trial.map_or_else(|| r.trial_log.last(), |n| r.trial_log.get(n));
        let counters = trial.and_then(|trial| trial.balancer.as_deref());
        let both = "tester, device: counters in the trial that shows the limit; packets of both sides are added up";
        let section = limit_notes(r, beside(section, r.of, counters));
        let is_twoway = own(r).is_some_and(|own| own.metric == LbMetric::TwowayPps);
        let each =
            "twoway-pps: the limit counts both directions, loads of trials are per direction";
        section
            .note(Tone::Term, counters.map(|_| both.to_owned()))
            .note(Tone::Term, is_twoway.then(|| each.to_owned()))
    },
    ..named!("lb", "limits of a load balancer", "bench lb")
};

fn own(r: &SuiteResult) -> Option<&BalancerLimit> {
    r.balancer.as_deref()
}

/// Unit of the limit.
pub(super) fn unit(r: &SuiteResult) -> Unit {
    match own(r).map(|own| own.metric) {
        Some(LbMetric::Bps) => Unit::BitsPerSecond,
        Some(metric) => Unit::Load(metric.unit()),
        None => Unit::None,
    }
}

static LIMIT: &[Field<SuiteResult>] = fields!(SuiteResult:
    fact!("unit", "unit", |r| (&r.unit).into()).show(Show::Never),
    derived!("limit", "limit", Unit::None, |r| (&r.limit).into()).good().leads(),
    fact!("limited_by", "limited by", |r| r.limited_by.map(LbLimit::name).into()),
    fact!("confirmed", "confirmed", |r| r.confirmed.into()).show(Show::Never),
    derived!("beyond", "lowest failed", Unit::None, |r| (&r.beyond).into()),
    derived!("trials", "trials", TRIALS, |r| r.trials.into()),
    derived!("flows", "flows", Unit::Count("flows"), |r| own(r).and_then(|own| own.flows).into()),
    derived!("l2_bps", "layer 2", Unit::BitsPerSecond, |r| own(r).and_then(|own| own.l2_bps).into()),
    derived!("reuse_ns", "tuples reused after", Unit::Nanoseconds, |r| own(r).and_then(|own| own.reuse_s).map(|s| s * 1e9).into()),
);

/// Words in the names of counters that should not rise, whatever the probe.
const TROUBLE: [&str; 6] = ["drop", "miss", "fail", "err", "invalid", "nombuf"];

/// Adds the counters of the tester, next to those of the device that count the same, and counters of the device that
/// should not have risen.
fn beside<'a>(section: Section<'a>, of: Quantity, trial: Option<&'a BalancerTrial>) -> Section<'a> {
    let columns = vec![
        Def::new("counter", "counter", Unit::None, Kind::Fact),
        Def::new("tester", "tester", TIMES, Kind::Counter),
        Def::new("device", "device", TIMES, Kind::Counter),
        Def::new("ratio", "ratio", Unit::None, Kind::Derived),
    ];
    let mut rows: Vec<Vec<Value<'a>>> = Vec::new();
    let mut add = |name: &'a str, ours: Option<u64>, device: Option<u64>, ratio: Option<f64>| {
        let ratio = ratio.map(|ratio| Value::Text(format!("{ratio:.3}").into()));
        rows.push(vec![
            name.into(),
            ours.into(),
            device.into(),
            ratio.unwrap_or(Value::Unknown),
        ]);
    };
    let BalancerTrial { ours, device } = match trial {
        Some(trial) => trial,
        None => return section.rows("Counters", columns, []),
    };
    if of != Quantity::Frames {
        add("established", Some(ours.established), None, None);
        add("completed", Some(ours.completed), None, None);
        add("failed", Some(ours.failed), None, None);
    } else {
        let lost = crate::figures::sum([ours.lost_frames, ours.lost_answer_frames]);
        add("lost", Some(lost), None, None);
    }
    if ours.tester_dropped_frames > 0 {
        let dropped = Some(ours.tester_dropped_frames);
        add("dropped by tester", dropped, None, None);
    }
    for (name, pair) in &device.beside {
        add(name, Some(pair.ours), Some(pair.device), pair.ratio);
    }
    for (name, n) in device.rose.iter().filter(|(_, n)| **n > 0) {
        let last = name.rsplit('.').next().unwrap_or(name);
        if TROUBLE.iter().any(|word| last.contains(word)) {
            add(name, None, Some(*n), None);
        }
    }
    section.rows("Counters", columns, rows)
}
