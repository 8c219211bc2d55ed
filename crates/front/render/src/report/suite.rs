//! Suites of tests: the requested tests, a section for each test with its tables and plots, and all trials.

use wb_model::{
    Report, Summary,
    bench::{SuiteResult, SuiteTest, TrialOutcome},
};

use super::{
    content::facts,
    document::{Block, Section},
    plot::{Form, Plot, Scale, Series, X, Y},
};
use crate::suite::{self, Part};

/// From this ratio of largest to least on, the least of several loads would be indistinguishable from the axis.
const PRESSED: f64 = 30.0;

pub(super) fn sections(report: &Report) -> Vec<Section> {
    let parts = suite::parts(report);
    if parts.is_empty() {
        return Vec::new();
    }
    let mut head = Section::new("Benchmark");
    head.table(facts("", suite::facts(report)));
    let mut sections = vec![head];
    for part in parts {
        let (name, document) = suite::method(part.test);
        let mut section = Section::new(&capitalized(name));
        section.text(format!("By {document}."));
        let warnings = part.headlines.iter().cloned().map(Block::Warning);
        section.blocks.extend(warnings);
        for (_, table) in &part.tables {
            section.table(table.clone());
        }
        for note in &part.notes {
            section.text(format!("{note}."));
        }
        plots(&mut section, report, &part);
        for table in part.results.iter().filter_map(|r| suite::mlr_loads(r)) {
            section.table(table);
        }
        sections.push(section);
    }
    let mut trials = Section::new("Trials");
    for r in suite::with_trials(report) {
        trials.table(suite::log_with_reasons(&suite::trials_of(report, r), r));
    }
    sections.push(trials);
    sections
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

fn plots(section: &mut Section, report: &Report, part: &Part<'_>) {
    let results = &part.results;
    match part.test {
        SuiteTest::Throughput | SuiteTest::Ndr => {
            section.plot(by_size(part));
            let own = suite::with_trials(report);
            for r in own.into_iter().filter(|r| r.test == part.test) {
                section.plot(search(&suite::trials_of(report, r), r));
            }
        }
        SuiteTest::Latency => {
            for r in results {
                section.plot(latency(r));
            }
        }
        SuiteTest::Loss => section.plot(loss(results)),
        SuiteTest::Mfr => section.plot(forwarding(results)),
        SuiteTest::B2b => section.plot(bursts(results)),
        SuiteTest::Recovery => section.plot(recovery(results)),
        SuiteTest::Y1564 => section.plot(services(results)),
        SuiteTest::Impact | SuiteTest::Reset => {}
    }
}

/// Identifier for files, and to find the same plot of another run.
fn id(what: &str) -> String {
    what.replace(|c: char| !c.is_ascii_alphanumeric(), "-")
}

/// An axis of sizes in the order of the results, and the place of each result on it.
fn sizes(results: &[&SuiteResult]) -> (X, Vec<String>) {
    let mut names: Vec<String> = Vec::new();
    for r in results.iter().filter(|r| !r.size.is_empty()) {
        let name = suite::size(&r.size);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let x = X::scaled("frame size with FCS", Scale::Names(names.clone()));
    (x, names)
}

fn places(names: &[String]) -> Vec<f64> {
    (0..names.len()).map(|i| i as f64).collect()
}

/// Style of a series: a line through one point is invisible.
fn dashes(names: &[String]) -> Form {
    match names.len() {
        1 => Form::Marks,
        _ => Form::Dashes,
    }
}

/// A linear axis, or a logarithmic one if the least value would be indistinguishable from the axis.
fn loads<'a>(label: &str, unit: &str, series: impl IntoIterator<Item = &'a Series>) -> Y {
    let values = series.into_iter().flat_map(|s| s.values.iter().flatten());
    let values: Vec<f64> = values.copied().filter(|v| *v > 0.0).collect();
    let of = |f: fn(f64, f64) -> f64| values.iter().copied().reduce(f).unwrap_or(1.0);
    let axis = Y::new(label, unit);
    match of(f64::max) > of(f64::min) * PRESSED {
        true => axis.log(),
        false => axis,
    }
}

/// The graph of RFC 2544 section 26.1: capacity of the line and throughput of the device, in frames per second.
fn by_size(part: &Part<'_>) -> Option<Plot> {
    let frames: Vec<&SuiteResult> = part
        .results
        .iter()
        .copied()
        .filter(|r| r.unit == "fps" && !r.size.is_empty())
        .collect();
    let (x, names) = sizes(&frames);
    let of = |value: &dyn Fn(&SuiteResult) -> Option<f64>| -> Vec<Option<f64>> {
        let at = |name: &String| {
            let mut own = frames.iter().filter(|r| suite::size(&r.size) == *name);
            own.find_map(|r| value(r))
        };
        names.iter().map(at).collect()
    };
    let mut series = vec![
        Series::line(
            "line rate (theoretical maximum)",
            of(&|r| r.theoretical_fps),
        )
        .as_form(dashes(&names)),
    ];
    type Run<'a> = (Option<&'a String>, Option<u32>);
    fn run(r: &SuiteResult) -> Run<'_> {
        (r.goal.as_ref(), r.burst.as_ref().map(|burst| burst.frames))
    }
    let mut runs: Vec<Run<'_>> = Vec::new();
    for r in &frames {
        if !runs.contains(&run(r)) {
            runs.push(run(r));
        }
    }
    for (goal, burst) in runs {
        let name = goal.map_or("throughput", String::as_str);
        let name = match burst {
            Some(frames) => format!("{name} {}", suite::in_bursts(frames)),
            None => name.to_owned(),
        };
        let values = of(&|r| r.limit.filter(|_| run(r) == (goal, burst)));
        series.push(Series::line(&name, values).as_form(Form::Marks));
    }
    let own = Series::line("tester ceiling", of(&|r| r.tester_ceiling_fps));
    series.push(own.as_form(dashes(&names)));
    let note = match frames.iter().any(|r| r.theoretical_fps.is_some()) {
        true => {
            "Theoretical maximum: frames of that size at line rate, with 20 bytes of preamble and gap per frame."
        }
        false => "No line-rate reference: the ports have no physical link speed.",
    };
    let both = match frames.iter().any(|r| r.directions > 1) {
        true => " Rates are per direction.",
        false => "",
    };
    let plot = Plot::new(
        &format!("{}-by-size", part.test.name()),
        &format!("{}: frames per second by frame size", part.test.name()),
        x,
        loads("frames per second", "fps", &series),
        places(&names),
        series,
    )?;
    Some(plot.note(format!("{note}{both}")))
}

/// The tried loads, in order.
fn search(title: &str, r: &SuiteResult) -> Option<Plot> {
    let trials = &r.trial_log;
    if trials.len() < 2 {
        return None;
    }
    let that = |is: fn(TrialOutcome) -> bool| -> Vec<Option<f64>> {
        let own = trials.iter();
        own.map(|t| is(t.outcome).then_some(t.intended)).collect()
    };
    let asked = trials.iter().map(|t| Some(t.intended)).collect();
    let series = vec![
        Series::line("intended", asked).as_form(Form::Dashes),
        Series::line("fail", that(|o| o == TrialOutcome::Fail)).as_form(Form::Marks),
        Series::line("pass", that(|o| o == TrialOutcome::Pass)).as_form(Form::Marks),
        Series::line("void", that(|o| !o.is_valid())).as_form(Form::Marks),
        Series::line("measured", that(|o| o == TrialOutcome::Measured)).as_form(Form::Marks),
    ];
    Plot::new(
        &id(&format!("search-{title}")),
        &format!("{title}: search by trial"),
        X::scaled("trial", Scale::Counts),
        loads("load", suite::trial_unit(r), &series),
        (1..=trials.len()).map(|i| i as f64).collect(),
        series,
    )
}

/// Delay at each load.
fn latency(r: &SuiteResult) -> Option<Plot> {
    let mut rows: Vec<_> = r.latency.iter().collect();
    rows.sort_by(|a, b| a.load.total_cmp(&b.load));
    let statistics = Summary::default();
    let shown = statistics.statistics().map(|(name, _)| name);
    let series = shown
        .filter(|name| !["mean", "stddev"].contains(name))
        .map(|name| {
            let own = rows.iter().map(|row| row.latency_ns.statistic(name));
            let values = own.map(|ns| ns.map(|ns| ns / 1e9)).collect();
            Series::line(Summary::label(name), values).as_form(Form::Marks)
        });
    let series: Vec<Series> = series
        .filter(|s| s.values.iter().any(Option::is_some))
        .collect();
    let title = suite::title(r);
    Plot::new(
        &id(&title),
        &format!("{title}: delay by load"),
        X::linear("load, share of the throughput", "%"),
        Y::new("delay", "s").log(),
        rows.iter().map(|row| row.load * 100.0).collect(),
        series,
    )
}

/// The graph of RFC 2544 section 26.3: both axes from 0 to 100 %.
fn loss(results: &[&SuiteResult]) -> Option<Plot> {
    let mut xs: Vec<f64> = results
        .iter()
        .flat_map(|r| r.curve.iter().map(|row| row.load_pct))
        .collect();
    xs.extend([0.0, 100.0]);
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let curves = results.iter().filter(|r| !r.curve.is_empty()).map(|r| {
        let at = |x: &f64| r.curve.iter().find(|row| row.load_pct == *x)?.loss_pct;
        Series::line(&suite::subject(r), xs.iter().map(at).collect()).as_form(Form::Marks)
    });
    let series = curves.collect();
    let plot = Plot::new(
        "loss-by-load",
        "Frame loss by load",
        X::linear("load, share of the maximum", "%"),
        Y::new("lost frames", "%").up_to(100),
        xs,
        series,
    )?;
    Some(plot.joined())
}

/// Forwarding rate by offered load.
fn forwarding(results: &[&SuiteResult]) -> Option<Plot> {
    let of = |r: &SuiteResult| r.mfr.clone().map_or_else(Vec::new, |mfr| mfr.rows);
    let mut xs: Vec<f64> = results
        .iter()
        .flat_map(|r| of(r).into_iter().map(|row| row.load_pct))
        .collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let curves = results.iter().filter(|r| r.mfr.is_some()).map(|r| {
        let rows = of(r);
        let at = |x: &f64| rows.iter().find(|row| row.load_pct == *x)?.forwarded_fps;
        Series::line(&suite::subject(r), xs.iter().map(at).collect()).as_form(Form::Marks)
    });
    let series: Vec<Series> = curves.collect();
    let axis = loads("forwarded", "fps", &series);
    let plot = Plot::new(
        "forwarding-by-load",
        "Forwarding rate by load",
        X::linear("load, share of the maximum", "%"),
        axis,
        xs,
        series,
    )?;
    Some(plot.joined())
}

fn bursts(results: &[&SuiteResult]) -> Option<Plot> {
    let results: Vec<&SuiteResult> = results
        .iter()
        .copied()
        .filter(|r| r.bursts.is_some())
        .collect();
    let (x, names) = sizes(&results);
    let of = |value: fn(&wb_model::bench::BurstResult) -> f64| -> Vec<Option<f64>> {
        let at = |name: &String| {
            let own = results.iter().find(|r| suite::size(&r.size) == *name)?;
            own.bursts.as_ref().map(value)
        };
        names.iter().map(at).collect()
    };
    let series = vec![
        Series::line("average", of(|b| b.average)).as_form(Form::Marks),
        Series::line("shortest", of(|b| b.min as f64)).as_form(dashes(&names)),
        Series::line("longest", of(|b| b.max as f64)).as_form(dashes(&names)),
    ];
    Plot::new(
        "bursts-by-size",
        "Longest burst without loss by frame size",
        x,
        Y::new("burst", "frames"),
        places(&names),
        series,
    )
}

fn recovery(results: &[&SuiteResult]) -> Option<Plot> {
    let all = results
        .iter()
        .filter_map(|r| Some((suite::subject(r), &r.recovery.as_ref()?.seconds)));
    let all: Vec<_> = all.collect();
    let most = all.iter().map(|(_, seconds)| seconds.len()).max()?;
    let series = all
        .into_iter()
        .map(|(name, seconds)| Series::line(&name, seconds.clone()).as_form(Form::Marks));
    Plot::new(
        "recovery",
        "Time to recover from an overload",
        X::scaled("repetition", Scale::Counts),
        Y::new("time", "s"),
        (1..=most).map(|i| i as f64).collect(),
        series.collect(),
    )
}

fn services(results: &[&SuiteResult]) -> Option<Plot> {
    let steps: Vec<_> = results.iter().flat_map(|r| &r.steps).collect();
    // The table states that all services ran. That text is too long for an axis.
    let short = |step: &str| step.split(',').next().unwrap_or_default().to_owned();
    let names: Vec<String> = steps
        .iter()
        .map(|s| format!("{} {}", s.service, short(&s.step)))
        .collect();
    let of = |value: fn(&wb_model::bench::ServiceStep) -> f64| {
        steps.iter().map(|s| Some(value(s))).collect()
    };
    let series = vec![
        Series::line("offered", of(|s| s.offered_bps)).as_form(dashes(&names)),
        Series::line("received", of(|s| s.received_bps)).as_form(Form::Marks),
    ];
    Plot::new(
        "services",
        "Offered and received rate by step",
        X::scaled("step", Scale::Names(names.clone())),
        Y::new("layer 2, with FCS", "bit/s"),
        places(&names),
        series,
    )
}
