//! The results of each test in the form that its document requires.

use wb_model::{
    Report, Summary, Verdict,
    bench::{BurstResult, LatencyRow, Quantity, SuiteResult, SuiteTest, SuiteTrial, TrialOutcome},
    counted,
};

use super::{
    figure, figure_or, headline, is_tester_limit, limited_by, load, method, of_line, outcome,
    purpose, searches, size, subject, trial_unit,
};
use crate::{
    figures::{UNKNOWN, count, group, ratio, significant, time_ns},
    report::{Cell, Mark, Side, Table},
};

/// One test at all its sizes.
pub(crate) struct Part<'a> {
    pub(crate) test: SuiteTest,
    pub(crate) results: Vec<&'a SuiteResult>,
    /// The name of the test and its document.
    pub(crate) title: String,
    /// Statements that must not be missed.
    pub(crate) headlines: Vec<String>,
    /// Tables, each with the number of columns that identify its rows.
    pub(crate) tables: Vec<(usize, Table)>,
    /// Notes on reading the tables.
    pub(crate) notes: Vec<String>,
}

/// The tests in execution order.
pub(crate) fn parts(report: &Report) -> Vec<Part<'_>> {
    let mut all: Vec<(SuiteTest, Vec<&SuiteResult>)> = Vec::new();
    for r in report.suite_results() {
        match all.iter_mut().find(|(test, _)| *test == r.test) {
            Some((_, results)) => results.push(r),
            None => all.push((r.test, vec![r])),
        }
    }
    all.into_iter()
        .map(|(test, results)| part(report, test, results))
        .collect()
}

fn part<'a>(report: &Report, test: SuiteTest, results: Vec<&'a SuiteResult>) -> Part<'a> {
    let (name, document) = method(test);
    let shown: Vec<&SuiteResult> = results
        .iter()
        .copied()
        .filter(|r| r.not_measured.is_none())
        .collect();
    let in_bursts = shown.iter().any(|r| r.burst.is_some());
    let mut tables = match test {
        SuiteTest::Throughput if frames(&shown) => {
            vec![(1 + usize::from(in_bursts), throughput(&shown))]
        }
        SuiteTest::Throughput => vec![(1, numbers(&shown))],
        SuiteTest::Ndr => Vec::new(),
        SuiteTest::Latency => vec![(2, latency(&shown)), (2, variation(&shown))],
        SuiteTest::Loss => vec![(1, loss(&shown))],
        SuiteTest::Mfr => vec![(1, forwarding(&shown)), (2, forwarding_rows(&shown))],
        SuiteTest::Impact => vec![(2, impact(&shown))],
        SuiteTest::B2b => vec![(1, bursts(&shown))],
        SuiteTest::Recovery => vec![(1, recovery(&shown))],
        SuiteTest::Reset => Vec::new(),
        SuiteTest::Y1564 => vec![(1, services(&shown)), (2, steps(&shown))],
    };
    tables.push((if in_bursts { 3 } else { 1 }, bounds(&shown)));
    tables.push((2, families(&shown)));
    tables.push((3, losses_of_families(&shown)));
    tables.retain(|(_, table)| !table.rows.is_empty());
    let mut notes = notes(report, test, &shown);
    for r in &results {
        if let Some(spread) = r.spread {
            let by = format!("{}: repeated measurements differ by", subject(r));
            notes.push(format!("{by} {} of their mean", ratio(spread)));
        }
        for note in &r.notes {
            let own = match r.size.is_empty() && r.goal.is_none() {
                true => note.clone(),
                false => format!("{}: {note}", subject(r)),
            };
            if !notes.contains(&own) {
                notes.push(own);
            }
        }
    }
    Part {
        test,
        title: format!("{name} ({document})"),
        headlines: results.iter().filter_map(|r| headline(r)).collect(),
        tables: tables
            .into_iter()
            .map(|(keys, table)| (keys, table.known()))
            .collect(),
        notes,
        results,
    }
}

/// Results of the frames of each family at the limit, for mixes of IPv4 and IPv6.
fn families(results: &[&SuiteResult]) -> Table {
    let head = [
        ">size",
        "family",
        ">offered",
        ">forwarded",
        ">sent",
        ">lost",
        ">loss",
    ];
    let mut table = Table::new("", &head);
    for r in results {
        for own in &r.families {
            let [lost, loss] = lost_of(own.lost, own.loss_ratio());
            table.row([
                name(r).into(),
                own.family.name().into(),
                figure(own.offered_fps).into(),
                figure(own.forwarded_fps).into(),
                count(own.tx).into(),
                lost,
                loss,
            ]);
        }
    }
    table
}

/// Results of each family at each load of a loss curve.
fn losses_of_families(results: &[&SuiteResult]) -> Table {
    let head = [
        ">size", ">load", "family", ">offered", ">sent", ">lost", ">loss",
    ];
    let mut table = Table::new("", &head);
    for r in results {
        for (row, own) in r
            .curve
            .iter()
            .flat_map(|row| row.families.iter().map(move |own| (row, own)))
        {
            let [lost, loss] = lost_of(own.lost, own.loss_ratio());
            table.row([
                name(r).into(),
                ratio(row.load_pct / 100.0).into(),
                own.family.name().into(),
                figure(own.offered_fps).into(),
                count(own.tx).into(),
                lost,
                loss,
            ]);
        }
    }
    table
}

fn frames(results: &[&SuiteResult]) -> bool {
    results.iter().all(|r| r.of == Quantity::Frames)
}

/// Megabits per second, rounded down.
fn megabits(bps: Option<f64>) -> String {
    match bps.map(|bps| bps / 1e6) {
        None => UNKNOWN.to_owned(),
        Some(n) if n >= 10_000.0 => figure(n),
        Some(n) => group(&format!("{:.1}", (n * 10.0 + 1e-6).floor() / 10.0)),
    }
}

fn seconds(s: f64) -> String {
    match s == 0.0 {
        true => "0 s".to_owned(),
        false => time_ns(s * 1e9),
    }
}

fn seconds_or(s: Option<f64>) -> String {
    s.map_or_else(|| UNKNOWN.to_owned(), seconds)
}

fn whole_ns(ns: Option<i64>) -> String {
    time_or(ns.map(|ns| ns as f64))
}

/// Statistics of a distribution with their labels, without the standard deviation.
fn statistics(s: &Summary) -> impl Iterator<Item = (&'static str, Option<f64>)> {
    let all = s.statistics().filter(|(name, _)| *name != "stddev");
    all.map(|(name, ns)| (Summary::label(name), ns))
}

fn time_or(ns: Option<f64>) -> String {
    ns.map_or_else(|| UNKNOWN.to_owned(), time_ns)
}

/// Frames of a burst, and the gap from the end of one to the beginning of the next.
fn burst(r: &SuiteResult) -> [Cell; 2] {
    let burst = r.burst.as_ref();
    let gap = burst.and_then(|burst| burst.gap_us);
    [
        burst
            .map_or_else(String::new, |b| count(b.frames.into()))
            .into(),
        gap.map_or_else(String::new, |us| seconds(us / 1e6)).into(),
    ]
}

/// Limiting component. A limit of the tester is marked.
fn by(r: &SuiteResult) -> Cell {
    let bad = is_tester_limit(r) || r.limit.is_none();
    let mark = if bad { Mark::Bad } else { Mark::Plain };
    Cell::marked(limited_by(r), mark)
}

/// The form of RFC 2544 section 26.1; rates of one direction.
fn throughput(results: &[&SuiteResult]) -> Table {
    let mut table = Table::new(
        "",
        &[
            ">size",
            ">burst",
            ">theoretical",
            ">throughput",
            ">gap",
            ">of line",
            ">Mb/s L1",
            ">Mb/s L2",
            ">trials",
            "limited by",
        ],
    );
    for r in results {
        let fps = r.throughput_fps.or(r.limit);
        let share = fps.zip(r.theoretical_fps).map(|(fps, line)| fps / line);
        let [burst, gap] = burst(r);
        table.row([
            r.size.clone().into(),
            burst,
            figure_or(r.theoretical_fps).into(),
            figure_or(fps).into(),
            gap,
            share.map_or_else(|| UNKNOWN.to_owned(), of_line).into(),
            megabits(r.throughput_l1_bps).into(),
            megabits(r.throughput_l2_bps).into(),
            count(r.trials.into()).into(),
            by(r),
        ]);
    }
    table
}

/// Limits other than frame rates.
fn numbers(results: &[&SuiteResult]) -> Table {
    let mut table = Table::new(
        "",
        &[
            "quantity",
            ">limit",
            "unit",
            ">lowest failed",
            ">tester ceiling",
            ">trials",
            "limited by",
        ],
    );
    for r in results {
        table.row([
            subject(r).into(),
            figure_or(r.limit).into(),
            r.unit.clone().into(),
            figure_or(r.beyond).into(),
            figure_or(r.tester_ceiling).into(),
            count(r.trials.into()).into(),
            by(r),
        ]);
    }
    table
}

/// Results of MLRsearch: a row for each goal at each size.
fn bounds(results: &[&SuiteResult]) -> Table {
    let mut table = Table::new(
        "",
        &[
            ">size",
            "goal",
            ">burst",
            ">lower bound",
            ">upper bound",
            ">width",
            ">conditional",
            ">gap",
            ">trials",
            ">time",
            "limited by",
        ],
    );
    let searched = results
        .iter()
        .filter(|r| r.mlr.is_some() || r.test == SuiteTest::Ndr);
    for r in searched {
        let mlr = r.mlr.clone().unwrap_or_default();
        let irregular = match mlr.irregular {
            Some(_) => Cell::marked(format!("{}, irregular", limited_by(r)), Mark::Bad),
            None => by(r),
        };
        let [burst, gap] = burst(r);
        table.row([
            match r.size.as_str() {
                "" => r.of.name().into(),
                size => size.into(),
            },
            Cell::from(r.goal.clone().unwrap_or_default()),
            burst,
            figure_or(mlr.relevant_lower_bound.or(r.limit)).into(),
            figure_or(mlr.relevant_upper_bound.or(r.beyond)).into(),
            mlr.relative_width
                .map_or_else(|| UNKNOWN.to_owned(), ratio)
                .into(),
            figure_or(mlr.conditional_throughput).into(),
            gap,
            count(r.trials.into()).into(),
            seconds(r.trial_seconds).into(),
            irregular,
        ]);
    }
    table
}

/// All loads that MLRsearch tried, with its knowledge of each.
pub(crate) fn mlr_loads(r: &SuiteResult) -> Option<Table> {
    let mlr = r.mlr.as_ref()?;
    let mut table = Table::new(
        &format!("loads of {}", super::title(r)),
        &[
            ">load",
            ">trials",
            ">low, full",
            ">high, full",
            ">low, short",
            ">high, short",
            "bound",
        ],
    );
    for l in &mlr.loads {
        let mark = match l.class.as_str() {
            "lower" => Mark::Good,
            "upper" => Mark::Bad,
            _ => Mark::Plain,
        };
        table.row([
            load(l.load, &r.unit).into(),
            count(l.trials.into()).into(),
            seconds(l.low_full_s).into(),
            seconds(l.high_full_s).into(),
            seconds(l.low_short_s).into(),
            seconds(l.high_short_s).into(),
            Cell::marked(l.class.clone(), mark),
        ]);
    }
    (!table.rows.is_empty()).then_some(table)
}

/// The form of RFC 2544 section 26.2 with more of the distribution.
fn latency(results: &[&SuiteResult]) -> Table {
    let mut table = Table::new(
        "",
        &[">size", ">load", ">fps", ">streams", ">frames", ">lost"],
    );
    table
        .head
        .extend(statistics(&Summary::default()).map(|(label, _)| (label.to_owned(), Side::Right)));
    for (r, row) in rows(results) {
        let l = &row.latency_ns;
        let bad = if row.lost > 0 { Mark::Bad } else { Mark::Plain };
        table.row(
            [
                name(r).into(),
                ratio(row.load).into(),
                figure(row.offered).into(),
                count(row.repetitions.into()).into(),
                count(l.samples).into(),
                Cell::marked(count(row.lost), bad),
            ]
            .into_iter()
            .chain(statistics(l).map(|(_, ns)| time_or(ns).into())),
        );
    }
    table.known()
}

/// The single values of RFC 8219, and delay variation.
fn variation(results: &[&SuiteResult]) -> Table {
    let mut table = Table::new(
        "",
        &[
            ">size",
            ">load",
            ">typical",
            ">worst case",
            ">PDV p99.9",
            ">IPDV min",
            ">IPDV p50",
            ">IPDV max",
        ],
    );
    for (r, row) in rows(results) {
        let i = &row.ipdv_ns;
        table.row([
            name(r),
            ratio(row.load),
            time_or(row.typical_ns),
            time_or(row.worst_ns),
            time_or(row.pdv_ns),
            whole_ns(i.min),
            whole_ns(i.p50),
            whole_ns(i.max),
        ]);
    }
    table
}

fn rows<'a>(results: &[&'a SuiteResult]) -> Vec<(&'a SuiteResult, &'a LatencyRow)> {
    let rows = results
        .iter()
        .flat_map(|r| r.latency.iter().map(move |row| (*r, row)));
    rows.collect()
}

/// Size of a result, or the counted quantity.
fn name(r: &SuiteResult) -> String {
    match r.size.as_str() {
        "" => r.of.name().to_owned(),
        size => size.to_owned(),
    }
}

/// A loss in per cent. Exactly 0 and 100 are reserved for no loss and complete loss.
fn percent(loss: Option<f64>) -> Cell {
    match loss {
        None => "void".into(),
        Some(0.0) => Cell::marked("0 %", Mark::Good),
        Some(loss) => ratio(loss / 100.0).into(),
    }
}

/// One size: load, rate, loss. With several sizes, a column of losses for each.
fn loss(results: &[&SuiteResult]) -> Table {
    if let [r] = results {
        let unit = format!(">{}", r.unit);
        let mut table = Table::new("", &[">load", &unit, ">loss"]);
        for row in &r.curve {
            table.row([
                Cell::from(ratio(row.load_pct / 100.0)),
                // The rate that a void trial offered is not the load of the row.
                figure_or(row.loss_pct.map(|_| row.offered)).into(),
                percent(row.loss_pct),
            ]);
        }
        return table;
    }
    let results: Vec<_> = results.iter().filter(|r| !r.curve.is_empty()).collect();
    let mut head = vec![">load".to_owned()];
    head.extend(results.iter().map(|r| format!(">{}", size(&name(r)))));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let mut table = Table::new("", &head);
    let mut loads: Vec<f64> = results
        .iter()
        .flat_map(|r| r.curve.iter().map(|row| row.load_pct))
        .collect();
    loads.sort_by(|a, b| b.total_cmp(a));
    loads.dedup_by(|a, b| (*a - *b).abs() < 1e-9);
    for load in loads {
        let mut row = vec![Cell::from(ratio(load / 100.0))];
        row.extend(results.iter().map(|r| {
            let own = r
                .curve
                .iter()
                .find(|row| (row.load_pct - load).abs() < 1e-9);
            own.map_or_else(|| Cell::from(""), |row| percent(row.loss_pct))
        }));
        table.row(row);
    }
    table
}

/// The form of RFC 2889 section 5.6.1; rates of one direction.
fn forwarding(results: &[&SuiteResult]) -> Table {
    let mut table = Table::new(
        "",
        &[
            ">size",
            ">theoretical",
            ">MFR",
            ">at load",
            ">of line",
            ">Mb/s L1",
            ">Mb/s L2",
            ">FRMOL",
            ">at load",
            ">trials",
            "limited by",
        ],
    );
    for (r, mfr) in results.iter().filter_map(|r| Some((r, r.mfr.as_ref()?))) {
        let share = r.theoretical_fps.map(|line| mfr.rate_fps / line);
        table.row([
            name(r).into(),
            figure_or(r.theoretical_fps).into(),
            figure(mfr.rate_fps).into(),
            figure(mfr.load_fps).into(),
            share.map_or_else(|| UNKNOWN.to_owned(), of_line).into(),
            megabits(mfr.rate_l1_bps).into(),
            megabits(mfr.rate_l2_bps).into(),
            figure_or(mfr.frmol_fps).into(),
            figure_or(mfr.max_offered_fps).into(),
            count(r.trials.into()).into(),
            by(r),
        ]);
    }
    table
}

/// The forwarding rate at each load.
fn forwarding_rows(results: &[&SuiteResult]) -> Table {
    let mut table = Table::new("", &[">size", ">load", ">offered", ">forwarded"]);
    for (r, mfr) in results.iter().filter_map(|r| Some((r, r.mfr.as_ref()?))) {
        for row in &mfr.rows {
            table.row([
                name(r),
                of_line(row.load_pct / 100.0),
                figure(row.offered_fps),
                figure_or(row.forwarded_fps),
            ]);
        }
    }
    table
}

/// Effect of a few loads on frames.
fn impact(results: &[&SuiteResult]) -> Table {
    let head = [">size", ">load", ">offered", ">sent", ">lost", ">loss"];
    let mut table = Table::new("", &head);
    table
        .head
        .extend(statistics(&Summary::default()).map(|(label, _)| (label.to_owned(), Side::Right)));
    for r in results {
        for row in &r.impact {
            // If the loss was not the device's, neither is the delay.
            let l = match row.void.is_empty() {
                true => row.latency_ns,
                false => Summary::default(),
            };
            let [lost, loss] = match row.lost.zip(row.loss_pct) {
                Some((lost, loss)) => lost_of(lost, loss / 100.0),
                None => [UNKNOWN.into(), Cell::marked("void", Mark::Plain)],
            };
            table.row(
                [
                    name(r).into(),
                    ratio(row.load_pct / 100.0).into(),
                    figure(row.offered_fps).into(),
                    count(row.tx).into(),
                    lost,
                    loss,
                ]
                .into_iter()
                .chain(statistics(&l).map(|(_, ns)| time_or(ns).into())),
            );
        }
    }
    table.known()
}

fn measured(results: &[&SuiteResult]) -> Vec<(String, BurstResult)> {
    let own = |r: &&SuiteResult| Some((name(r), r.bursts.clone()?));
    results.iter().filter_map(own).collect()
}

/// The form of RFC 9004 section 6.
fn bursts(results: &[&SuiteResult]) -> Table {
    let mut table = Table::new(
        "",
        &[
            ">size",
            ">average",
            ">min",
            ">max",
            ">stddev",
            ">corrected",
            ">implied",
            ">buffer frames",
        ],
    );
    for (name, b) in measured(results) {
        table.row([
            name,
            figure(b.average),
            count(b.min),
            count(b.max),
            significant(b.stddev, 3),
            seconds_or(b.corrected_s),
            seconds(b.implied_s),
            figure_or(b.buffer_frames),
        ]);
    }
    table
}

fn recovery(results: &[&SuiteResult]) -> Table {
    let mut table = Table::new(
        "",
        &[
            ">size",
            ">overload fps",
            ">half fps",
            ">n",
            ">average",
            ">min",
            ">max",
            ">not recovered",
        ],
    );
    for (r, own) in results
        .iter()
        .filter_map(|r| Some((r, r.recovery.as_ref()?)))
    {
        let never = own.seconds.iter().filter(|s| s.is_none()).count();
        let bad = if never > 0 { Mark::Bad } else { Mark::Plain };
        table.row([
            name(r).into(),
            figure(own.overload_fps).into(),
            figure(own.half_fps).into(),
            own.seconds.len().to_string().into(),
            seconds_or(own.average_s).into(),
            seconds_or(own.min_s).into(),
            seconds_or(own.max_s).into(),
            Cell::marked(never.to_string(), bad),
        ]);
    }
    table
}

/// Result of each service, if there are several.
fn services(results: &[&SuiteResult]) -> Table {
    let mut table = Table::new("", &["service", "verdict", ">steps", ">passed"]);
    let all: Vec<_> = results.iter().flat_map(|r| &r.services).collect();
    for own in all.iter().filter(|_| all.len() > 1) {
        let (word, mark) = match own.verdict {
            Verdict::Pass | Verdict::Completed => ("pass", Mark::Good),
            Verdict::Fail => ("FAIL", Mark::Bad),
            Verdict::Invalid => ("void", Mark::Plain),
            Verdict::Incomplete => ("incomplete", Mark::Plain),
        };
        table.row([
            own.service.clone().into(),
            Cell::marked(word, mark),
            count(own.steps.into()).into(),
            count(own.passed.into()).into(),
        ]);
    }
    table
}

/// Steps of services (Y.1564); rates at layer 2 with FCS.
fn steps(results: &[&SuiteResult]) -> Table {
    let mut table = Table::new(
        "",
        &[
            "service",
            "step",
            ">time",
            ">offered",
            ">received",
            ">loss",
            ">delay",
            ">longest",
            ">variation",
            ">available",
            "",
        ],
    );
    for step in results.iter().flat_map(|r| &r.steps) {
        let (word, mark) = match step.passed {
            true => ("pass", Mark::Good),
            false if step.void => ("void", Mark::Plain),
            false => ("FAIL", Mark::Bad),
        };
        table.row([
            step.service.clone().into(),
            step.step.clone().into(),
            match step.duration_s {
                // From a report of a version that did not record it.
                0.0 => UNKNOWN.into(),
                s => seconds(s).into(),
            },
            crate::figures::rate_bps(step.offered_bps).into(),
            crate::figures::rate_bps(step.received_bps).into(),
            ratio(step.loss_ratio).into(),
            time_or(step.delay_ns).into(),
            whole_ns(step.delay_max_ns).into(),
            whole_ns(step.variation_ns).into(),
            step.availability
                .map_or_else(|| UNKNOWN.to_owned(), ratio)
                .into(),
            Cell::marked(word, mark),
        ]);
    }
    table
}

/// The result of a reset as a sentence (RFC 2544 section 26.6, RFC 6201).
fn reset(r: &SuiteResult) -> Option<String> {
    let own = r.reset.as_ref()?;
    let by_loss = own.by_loss_s.map(|s| {
        format!(
            "{} by lost frames ({} at {})",
            seconds(s),
            count(own.lost),
            load(own.offered_fps, "fps")
        )
    });
    let by_stamps = own.by_stamps_s.map(|s| {
        format!(
            "{} by timestamps (last frame before to first frame after it)",
            seconds(s)
        )
    });
    let times: Vec<String> = by_loss.into_iter().chain(by_stamps).collect();
    let kind = match own.kind.as_str() {
        "" => "reset".to_owned(),
        kind => format!("{kind} reset"),
    };
    let size = match r.size.as_str() {
        "" => String::new(),
        own => format!(", frames of {}", size(own)),
    };
    let times = match times.as_slice() {
        _ if own.not_again_s.is_some() => format!(
            "the device did not resume forwarding: no frame arrived in the last {}",
            seconds_or(own.not_again_s)
        ),
        [] => "the length of the outage is unknown".to_owned(),
        all => format!("the device did not forward for {}", all.join(", ")),
    };
    Some(format!(
        "{kind} by `{}`{size}, {}: {times}",
        own.trigger,
        load(own.offered_fps, "fps")
    ))
}

/// Notes below the tables of a test.
fn notes(report: &Report, test: SuiteTest, results: &[&SuiteResult]) -> Vec<String> {
    let mut notes = Vec::new();
    if test == SuiteTest::Throughput && frames(results) && !results.is_empty() {
        notes.push(throughput_columns(results));
    }
    notes.extend(limit_notes(test, results));
    match test {
        SuiteTest::Throughput | SuiteTest::Ndr => notes.extend(search_notes(report, test, results)),
        SuiteTest::Latency => notes.extend(latency_notes(results)),
        SuiteTest::Loss => notes.extend(whole_load(results)),
        SuiteTest::Impact => notes.extend(impact_notes(results)),
        SuiteTest::Mfr => {
            let both = match results.iter().any(|r| r.directions > 1) {
                true => "; rates are per direction",
                false => "",
            };
            notes.push(format!(
                "MFR: highest forwarding rate in frames per second, regardless of loss; FRMOL: the rate at the maximum \
                 offered load{both}"
            ));
        }
        SuiteTest::B2b => notes.extend(
            measured(results)
                .iter()
                .map(|(name, b)| burst_note(name, b)),
        ),
        SuiteTest::Recovery => {
            if results.iter().any(|r| r.recovery.is_some()) {
                notes.push("time from halving the overload to the last lost frame".to_owned());
            }
        }
        SuiteTest::Reset => notes.extend(results.iter().filter_map(|r| reset(r))),
        SuiteTest::Y1564 => notes.extend(service_notes(results)),
    }
    notes
}

fn throughput_columns(results: &[&SuiteResult]) -> String {
    let what = match results.iter().any(|r| r.theoretical_fps.is_some()) {
        true => "theoretical and throughput",
        false => "throughput",
    };
    let of = match results.iter().any(|r| r.directions > 1) {
        true => " and direction",
        false => "",
    };
    format!("{what}: frames per second{of}; L1: with FCS, preamble and gap; L2: with FCS")
}

/// `WHAT: RESULT, RESULT`; none without results.
fn listed(what: &str, names: Vec<String>) -> Option<String> {
    (!names.is_empty()).then(|| format!("{what}: {}", names.join(", ")))
}

/// Limits of the tester, and limits that are lower bounds.
fn limit_notes(test: SuiteTest, results: &[&SuiteResult]) -> Vec<String> {
    let named = |is: &dyn Fn(&SuiteResult) -> bool| -> Vec<String> {
        let own = results.iter().filter(|r| is(r));
        own.map(|r| subject(r)).collect()
    };
    let ceilings = results
        .iter()
        .filter(|r| test == SuiteTest::Throughput && frames(&[r]) && r.burst.is_none())
        .filter_map(|r| {
            let most = r.tester_ceiling_fps.or(r.tester_ceiling)?;
            Some(format!("{} {}", subject(r), figure(most)))
        });
    let ceilings = listed("tester ceiling without the device, fps", ceilings.collect());
    let is_limit = |r: &SuiteResult| searches(r.test) && r.limit.is_some();
    let unconfirmed = listed(
        "not confirmed by a full-length trial",
        named(&|r| is_limit(r) && !r.confirmed),
    );
    let by_plan = listed(
        "lower bound, as the plan ends at this load",
        named(&|r| is_limit(r) && limited_by(r) == "plan"),
    );
    let by_time = listed(
        "lower bound, as the time or the number of trials ran out",
        named(&|r| is_limit(r) && limited_by(r) == "time"),
    );
    let all = [ceilings, unconfirmed, by_plan, by_time];
    all.into_iter().flatten().collect()
}

fn search_notes(report: &Report, test: SuiteTest, results: &[&SuiteResult]) -> Vec<String> {
    let irregular = results.iter().filter_map(|r| {
        let why = r.mlr.as_ref()?.irregular.as_ref()?;
        Some(format!("{}: irregular: {why}", subject(r)))
    });
    let mut notes: Vec<String> = irregular.collect();
    if results.iter().any(|r| r.mlr.is_some()) {
        notes.push(format!(
            "lower bound: the largest load that met the goal; conditional: forwarding rate at that load, in {}",
            results.first().map_or("fps", |r| r.unit.as_str())
        ));
    }
    let repeats = report.plan.suite().map_or(0, |s| s.search.repeats);
    if test == SuiteTest::Throughput && repeats > 0 {
        notes.push(format!(
            "loss verification: each load passed in at least one of {} trials",
            u64::from(repeats) + 1
        ));
    }
    notes
}

fn latency_notes(results: &[&SuiteResult]) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for (_, row) in rows(results) {
        let text = format!("{}, stamps: {}", row.definition, row.stamp_source);
        if !row.definition.is_empty() && !notes.contains(&text) {
            notes.push(text);
        }
    }
    if !rows(results).is_empty() {
        notes.push(
            "typical and worst case (RFC 8219): median over all streams of p50 and of p99.9; load: share of the \
             throughput"
                .to_owned(),
        );
    }
    notes
}

/// The load that counts as 100 %.
fn whole_load(results: &[&SuiteResult]) -> Option<String> {
    let of = |r: &&SuiteResult| {
        let most = r.maximum.or(r.curve.first().map(|row| row.offered))?;
        Some(format!("{} {}", subject(r), load(most, &r.unit)))
    };
    listed("load 100 %", results.iter().filter_map(of).collect())
}

fn impact_notes(results: &[&SuiteResult]) -> Vec<String> {
    let mut notes: Vec<String> = whole_load(results).into_iter().collect();
    for r in results {
        for row in &r.impact {
            let at = format!("{} at {}", subject(r), ratio(row.load_pct / 100.0));
            if !row.void.is_empty() {
                notes.push(format!("{at}: void: {}", row.void));
            }
            let rose = row.rose.iter().filter(|(_, n)| **n > 0);
            let rose = rose.map(|(name, n)| format!("{name} {}", count(*n)));
            notes.extend(listed(&format!("{at}: counters rose"), rose.collect()));
        }
    }
    notes.push("these trials do not measure throughput".to_owned());
    notes
}

fn burst_note(name: &str, b: &BurstResult) -> String {
    let throughput = b.throughput_fps.map_or_else(String::new, |fps| {
        format!(", throughput {}", load(fps, "fps"))
    });
    format!(
        "{}: {} with a resolution of {}, bursts of up to {} at {}{throughput}",
        size(name),
        counted(b.lengths.len(), "search", "searches"),
        counted(count(b.resolution), "frame", "frames"),
        count(b.longest),
        load(b.burst_fps, "fps"),
    )
}

fn service_notes(results: &[&SuiteResult]) -> Vec<String> {
    let steps = || results.iter().flat_map(|r| &r.steps);
    let failed = steps().filter(|step| !step.passed);
    let mut notes: Vec<String> = failed
        .map(|step| format!("{} {}: {}", step.service, step.step, step.reason))
        .collect();
    notes.push("rates at layer 2 with FCS; variation: longest minus shortest delay".to_owned());
    if steps().any(|step| step.availability.is_some()) {
        notes.push(
            "available: until 10 consecutive seconds lose more than 50 % each, and again after 10 consecutive other \
             seconds (Y.1563)"
                .to_owned(),
        );
    }
    notes
}

/// Returns true if two results are of one test at one size, with the same spacing of frames.
fn is_of_same(a: &SuiteResult, b: &SuiteResult) -> bool {
    (a.test, &a.size, &a.burst) == (b.test, &b.size, &b.burst)
}

/// Results with trials, each log once: goals that were searched together share a log.
pub(crate) fn with_trials(report: &Report) -> Vec<&SuiteResult> {
    let mut own: Vec<&SuiteResult> = Vec::new();
    for r in report.suite_results().filter(|r| !r.trial_log.is_empty()) {
        let same = |other: &&SuiteResult| is_of_same(other, r) && other.trial_log == r.trial_log;
        if !own.iter().any(same) {
            own.push(r);
        }
    }
    own
}

/// Name of the owner of the trials of a result: goals that were searched together are listed under the test.
pub(crate) fn trials_of(report: &Report, r: &SuiteResult) -> String {
    let mut same = report
        .suite_results()
        .filter(|other| is_of_same(other, r) && other.trial_log == r.trial_log);
    match (same.next(), same.next()) {
        (_, Some(_)) => super::title(&SuiteResult {
            goal: None,
            trial_log: Vec::new(),
            ..r.clone()
        }),
        _ => super::title(r),
    }
}

/// Log of the trials, with all counters.
pub(crate) fn log(r: &SuiteResult) -> Table {
    let head = [
        ">trial",
        "purpose",
        ">intended",
        ">of max",
        ">offered",
        ">time",
        ">sent",
        ">received",
        ">lost",
        ">loss",
        ">p99",
        "outcome",
    ];
    let mut table = Table::new("", &head);
    for t in &r.trial_log {
        let received = count(t.rx).into();
        let p99 = Cell::from(whole_ns(t.latency_ns.p99));
        let outcome = Cell::marked(outcome(t.outcome), mark(t));
        let [lost, loss] = lost(t);
        let row = asked(r, t).into_iter();
        table.row(row.chain([received, lost, loss, p99, outcome]));
    }
    table.known()
}

/// Log of the trials, with reasons, and with as many counters as a page has room for.
pub(crate) fn log_with_reasons(caption: &str, r: &SuiteResult) -> Table {
    let head = [
        ">trial",
        "purpose",
        ">intended",
        ">of max",
        ">offered",
        ">time",
        ">sent",
        ">lost",
        ">loss",
        "outcome",
        "reason",
    ];
    let mut table = Table::new(caption, &head);
    for t in &r.trial_log {
        // The reason gives the rest.
        let word = if t.outcome.is_valid() {
            outcome(t.outcome)
        } else {
            "void"
        };
        let outcome = Cell::marked(word, mark(t));
        let [lost, loss] = lost(t);
        let row = asked(r, t).into_iter();
        table.row(row.chain([lost, loss, outcome, t.reason.clone().into()]));
    }
    table.known()
}

fn mark(t: &SuiteTrial) -> Mark {
    match t.outcome {
        TrialOutcome::Pass => Mark::Good,
        TrialOutcome::Fail => Mark::Bad,
        _ => Mark::Plain,
    }
}

fn lost(t: &SuiteTrial) -> [Cell; 2] {
    lost_of(t.lost, t.loss_ratio)
}

fn lost_of(lost: u64, loss_ratio: f64) -> [Cell; 2] {
    let mark = if lost > 0 { Mark::Bad } else { Mark::Plain };
    [Cell::marked(count(lost), mark), ratio(loss_ratio).into()]
}

/// First columns of both logs.
fn asked(r: &SuiteResult, t: &SuiteTrial) -> [Cell; 7] {
    let share = t.intended_pct.map(|pct| of_line(pct / 100.0));
    [
        t.trial.to_string().into(),
        match t.step.as_str() {
            "" => purpose(t.purpose).into(),
            step => step.into(),
        },
        load(t.intended, trial_unit(r)).into(),
        share.unwrap_or_else(|| UNKNOWN.to_owned()).into(),
        figure(t.offered).into(),
        seconds(t.duration_s).into(),
        count(t.tx).into(),
    ]
}
