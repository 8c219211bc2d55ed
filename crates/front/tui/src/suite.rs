//! A running benchmark: the current trial, and the interval that contains the result.

use wb_model::bench::{BenchLive, SuiteTrial, TrialOutcome};
use wb_render::suite::{self, live};

use crate::{Row, Section, Tone};

/// Cells of the bar of an interval.
const CELLS: usize = 50;
/// Number of ended trials shown in addition to the running one.
const LAST: usize = 5;

/// Meaning of an ended trial.
pub(crate) fn tone(bench: &BenchLive) -> Tone {
    match &bench.ended {
        None => Tone::Warn,
        Some(trial) => match trial.outcome {
            TrialOutcome::Pass => Tone::Good,
            TrialOutcome::Fail => Tone::Bad,
            TrialOutcome::Measured => Tone::Plain,
            _ => Tone::Warn,
        },
    }
}

/// The largest load in a snapshot.
pub(crate) fn largest(bench: &BenchLive) -> f64 {
    let ended = bench.ended.as_ref().map(|trial| trial.intended);
    let known = [bench.load, bench.low, bench.high, ended];
    let finite = known.into_iter().flatten().filter(|n| n.is_finite());
    finite.fold(0.0, f64::max)
}

/// A bar from 0 to `top`: full in the interval that can contain the result, with a mark at the current load.
fn bar(bench: &BenchLive, top: f64, unicode: bool) -> Option<String> {
    if top <= 0.0 || bench.low.or(bench.high).is_none() {
        return None;
    }
    let place = |load: f64| ((load / top).clamp(0.0, 1.0) * CELLS as f64) as usize;
    let low = place(bench.low.unwrap_or(0.0)).min(CELLS - 1);
    let high = bench.high.map_or(CELLS, place).max(low + 1);
    let tried = bench.load.map(|load| place(load).min(CELLS - 1));
    let (on, off, mark) = match unicode {
        true => ('█', '░', '┃'),
        false => ('#', '-', '|'),
    };
    let cells = (0..CELLS).map(|cell| match cell {
        cell if Some(cell) == tried => mark,
        cell if (low..high).contains(&cell) => on,
        _ => off,
    });
    Some(cells.collect())
}

/// Test and trial, the remaining interval as figures and as a bar, and the time.
pub(crate) fn section(
    bench: &BenchLive,
    top: f64,
    trials: &[(String, Tone)],
    unicode: bool,
) -> Section {
    let load = |n: f64| {
        format!("{} {}", wb_render::figures::load(n), bench.unit)
            .trim_end()
            .to_owned()
    };
    let what = live::begins(bench);
    let purpose = bench.step.as_deref();
    let purpose = purpose.unwrap_or(bench.purpose.map_or("", suite::purpose));
    let trial = match (bench.trial, &bench.ended) {
        (0, _) => "starting".to_owned(),
        (n, None) => format!("{n}, {purpose}"),
        (n, Some(_)) => format!("{n} ended"),
    };
    let mut rows = vec![Row::of("trial", [trial.trim_end_matches(", ").to_owned()])];
    for (name, value) in [
        ("current load", bench.load),
        ("highest passed", bench.low),
        ("lowest failed", bench.high),
    ] {
        rows.extend(value.map(|n| Row::of(name, [load(n)])));
    }
    if let Some(own) = bar(bench, top, unicode) {
        rows.push(Row::Short(format!("0 {own} {}", load(top)), Tone::Plain));
    }
    rows.extend(
        bench
            .left_ns
            .map(|ns| Row::of("time left", [format!("~{}", live::left(ns))])),
    );
    rows.extend(bench.ended.as_ref().map(|trial| counts(trial)));
    // Trials of this test: titles are not indented.
    let own = trials
        .iter()
        .rev()
        .take_while(|(line, _)| line.starts_with(' '));
    let mut last: Vec<Row> = own
        .take(LAST)
        .map(|(line, tone)| Row::Short(line.trim().to_owned(), *tone))
        .collect();
    last.reverse();
    rows.extend(last);
    Section::new(&what, rows)
}

/// Counters of an ended trial.
fn counts(trial: &SuiteTrial) -> Row {
    let count = wb_render::figures::count;
    let lost = format!(
        "{} of {} ({})",
        count(trial.lost),
        count(trial.tx),
        wb_render::figures::ratio(trial.loss_ratio)
    );
    let tone = if trial.lost > 0 {
        Tone::Bad
    } else {
        Tone::Plain
    };
    Row::toned("lost", [lost], tone)
}
