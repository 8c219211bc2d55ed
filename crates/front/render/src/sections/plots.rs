//! Plots over time that sections declare.

use wb_figures::{Def, Section as Job, Series as Lines, Sum, Table, Unit};

use crate::report::{Course, Form, Plot, Section, Series, X, Y, rises};

/// Adds the plots of tables of each job.
pub(crate) fn of_tables(section: &mut Section, job: &Job<'_>) {
    for plot in job.plots {
        if let Lines::Columns(caption, x, names) = plot.series
            && let Some(table) = job.tables.iter().find(|table| table.caption == caption)
        {
            let name = format!("{}-{}-{}", job.kind, job.job, plot.name);
            let title = format!("{}: {}", job.job, plot.title);
            section.plot(columns(table, x, names, &name, &title));
        }
    }
}

/// Plot of columns of a table against a column of times; none if they say nothing.
fn columns(table: &Table<'_>, x: &str, names: &[&str], name: &str, title: &str) -> Option<Plot> {
    let at = |name: &str| table.columns.iter().position(|def| def.name == name);
    let values = |at: usize| table.rows.iter().map(move |row| row[at].number());
    let xs: Option<Vec<f64>> = values(at(x)?).collect();
    let lines: Vec<(&Def, Vec<Option<f64>>)> = names
        .iter()
        .filter_map(|name| at(name))
        .map(|at| (&table.columns[at], values(at).collect()))
        .filter(|(_, values): &(_, Vec<Option<f64>>)| values.iter().flatten().any(|n| *n > 0.0))
        .collect();
    let (first, _) = lines.first()?;
    let (scale, unit) = match first.unit {
        Unit::Nanoseconds => (1e-9, "s".into()),
        unit => (1.0, unit.symbol()),
    };
    let y = Y::new(first.label, &unit);
    let series = lines.iter().map(|(def, values)| {
        let scaled = values.iter().map(|value| value.map(|n| n * scale));
        Series::line(def.label, scaled.collect())
    });
    let xs = xs.filter(|xs| xs.len() > 1)?;
    Plot::new(name, title, X::time(), y, xs, series.collect())
}

/// Adds the plots of a kind: of all jobs together, and of each job that the timeline records separately.
pub(crate) fn add(section: &mut Section, jobs: &[Job<'_>], course: &Course<'_>) {
    let Some(job) = jobs.first() else { return };
    let is_single = jobs.len() == 1;
    let recorded = |of: &&str| {
        job.plots.iter().any(|plot| match plot.series {
            Lines::Rates(names) | Lines::Levels(names) => {
                names.iter().any(|name| course.column(of, name).is_some())
            }
            _ => false,
        })
    };
    let own = course.owners(&format!("{} ", job.kind));
    let jobs = course.owners("job ").into_iter().chain(own);
    for of in std::iter::once(job.kind).chain(jobs.filter(recorded)) {
        let over_time = job.plots.iter();
        let over_time = over_time.filter(|plot| !matches!(plot.series, Lines::Columns(..)));
        for plot in over_time {
            let is_first = plot.name == job.plots[0].name;
            let (y, mut series) = lines(job, course, of, plot.series, is_first);
            let limit = job
                .figure(plot.limit)
                .filter(|_| is_single && of == job.kind);
            if let Some((limit, value)) = limit.and_then(|f| Some((f, f.value.number()?))) {
                series.push(course.constant(limit.label, value).as_form(Form::Dashes));
            }
            let (name, title) = match of.split_once(' ') {
                None => (format!("{of}-{}", plot.name), plot.title.to_owned()),
                Some((_, name)) => (
                    format!("{}-{name}-{}", job.kind, plot.name),
                    format!("{}: {name}", plot.title),
                ),
            };
            section.plot(course.plot(&name, &title, y, series));
        }
    }
}

/// Lines of one plot and their axis. A line that never changes says nothing about a rate, nor one that is always 0 about
/// a level.
fn lines(
    job: &Job<'_>,
    course: &Course<'_>,
    of: &str,
    lines: Lines,
    is_first: bool,
) -> (Y, Vec<Series>) {
    let def = |name: &str| job.figure(name).map(|f| f.def);
    let label = |name: &str| {
        let known = job.figure(name).map(|f| f.label.to_owned());
        known.unwrap_or_else(|| name.trim_end_matches("_ns").replace('_', " "))
    };
    let unit = |names: &[&str]| {
        names
            .iter()
            .find_map(|name| def(name))
            .map(|def: &Def| def.unit)
    };
    match lines {
        Lines::Columns(..) => (Y::new("", ""), Vec::new()),
        Lines::RatesOf(owners, name) => {
            let owners = course.owners(owners).into_iter().filter(|_| of == job.kind);
            let series = owners.filter_map(|of| course.rate_of(of, name, of, 1.0));
            let symbol = unit(&[name]).unwrap_or(Unit::None).rate().1;
            (Y::new("rate", &symbol), series.collect())
        }
        Lines::Rest(label, sum) => {
            let symbol = unit(&[sum.whole]).unwrap_or(Unit::None).symbol();
            let rest = rest(course, of, &sum).map(|values| Series::line(label, values));
            (Y::new(&symbol, ""), rest.into_iter().collect())
        }
        Lines::Rates(names) => {
            let (factor, symbol) = unit(names).unwrap_or(Unit::None).rate();
            let changes = |name: &&&str| rises(course.column(of, name));
            // That nothing happened at all is shown once.
            let flat = names
                .first()
                .filter(|_| is_first && !names.iter().any(|n| changes(&n)));
            let shown = names.iter().filter(changes).chain(flat);
            let series = shown.filter_map(|name| course.rate_of(of, name, &label(name), factor));
            (Y::new("rate", &symbol), series.collect())
        }
        Lines::Levels(names) => {
            let any = |s: &Series| s.values.iter().flatten().any(|n| *n > 0.0);
            let series = names
                .iter()
                .filter_map(|name| course.level_of(of, name, &label(name)));
            let symbol = unit(names).unwrap_or(Unit::None).symbol();
            (Y::new(&symbol, ""), series.filter(any).collect())
        }
        Lines::Times(names) => {
            let series = names.iter().flat_map(|name| {
                let (stem, label) = (name.trim_end_matches("_ns"), label(name));
                let (mean, each) = (format!("{label}, mean"), format!("{label}, "));
                let percentiles = course.percentiles_of(of, stem, &each);
                let mean = course.mean_of(of, stem, &mean).into_iter();
                mean.chain(percentiles).collect::<Vec<_>>()
            });
            (Y::new("time", "s"), series.collect())
        }
    }
}

/// The whole of a sum without its known parts, at each moment; a part that is not recorded counts as 0.
fn rest(course: &Course<'_>, of: &str, sum: &Sum) -> Option<Vec<Option<f64>>> {
    let whole = &course.column(of, sum.whole)?.values;
    let parts: Option<Vec<_>> = sum
        .parts
        .iter()
        .map(|name| course.column(of, name))
        .collect();
    let parts = parts?.into_iter().map(|column| (column, -1.0));
    let minus = sum.minus.iter().filter_map(|name| course.column(of, name));
    let all: Vec<_> = parts.chain(minus.map(|column| (column, 1.0))).collect();
    let values = whole.iter().enumerate().map(|(i, whole)| {
        let parts = all
            .iter()
            .map(|(column, sign)| Some(sign * column.values.get(i).copied()??));
        Some((whole.as_ref()? + parts.sum::<Option<f64>>()?).max(0.0))
    });
    Some(values.collect())
}
