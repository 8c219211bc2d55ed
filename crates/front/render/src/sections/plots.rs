//! Plots that sections declare.

use wb_figures::{Better, Def, Kind, Section as Job, Series as Lines, Sum, Table, Unit, Value};
use wb_model::Summary;

use super::shown;
use crate::report::{Course, Form, Plot, Scale, Section, Series, X, Y, rises};

/// From this ratio of the largest to the smallest value on, small values would be indistinguishable from the axis.
const PRESSED: f64 = 30.0;

/// Adds the plots of figures and tables.
pub(crate) fn of_tables(section: &mut Section, jobs: &[Job<'_>]) {
    let Some(first) = jobs.first() else { return };
    for plot in first.plots {
        let name = format!("{}-{}", first.kind, plot.name);
        match plot.series {
            Lines::Columns(caption, x, names) => {
                for job in jobs {
                    let name = format!("{}-{}-{}", job.kind, file_name(&job.job), plot.name);
                    let title = format!("{}: {}", job.job, plot.title);
                    let table = job.tables.iter().find(|table| table.caption == caption);
                    section.plot(table.and_then(|table| columns(table, x, names, &name, &title)));
                }
            }
            Lines::Jobs(caption, x, y) => {
                section.plot(by_job(jobs, caption, x, y, &name, plot.title));
            }
            Lines::Parameter(names) => {
                section.plot(by_parameter(jobs, names, &name, plot.title));
            }
            _ => {}
        }
    }
}

/// Identifier for files, and to find the same plot of another run.
pub(crate) fn file_name(of: &str) -> String {
    of.replace(|c: char| !c.is_ascii_alphanumeric(), "-")
}

/// Factor and unit of the values of a figure on an axis.
fn scaled(unit: Unit) -> (f64, String) {
    match unit {
        Unit::Nanoseconds => (1e-9, "s".to_owned()),
        Unit::Share => (100.0, "%".to_owned()),
        unit => (1.0, unit.symbol().into_owned()),
    }
}

/// Makes an axis logarithmic if the smallest value would be indistinguishable from it.
pub(crate) fn readable<'a>(axis: Y, series: impl IntoIterator<Item = &'a Series>) -> Y {
    let values = series.into_iter().flat_map(|s| s.values.iter().flatten());
    let values: Vec<f64> = values.copied().filter(|v| *v > 0.0).collect();
    let of = |f: fn(f64, f64) -> f64| values.iter().copied().reduce(f).unwrap_or(1.0);
    match of(f64::max) > of(f64::min) * PRESSED {
        true => axis.log(),
        false => axis,
    }
}

/// A vertical axis: shares reach from 0 to 100 %. Several figures have their names in the legend only.
fn vertical(figures: &[&Def], unit: Unit, series: &[Series]) -> Y {
    let label = match figures {
        [one] => one.label,
        _ => "",
    };
    let axis = Y::new(label, &scaled(unit).1);
    match unit {
        Unit::Share => axis.up_to(100),
        _ => readable(axis, series),
    }
}

/// A horizontal axis for a column, and the places of its values; names are at equal distances.
fn horizontal(def: &Def, values: &[&Value<'_>]) -> Option<(X, Vec<f64>)> {
    if def.kind == Kind::Fact {
        let names: Vec<String> = values.iter().map(|value| shown(def.unit, value)).collect();
        let places = (0..names.len()).map(|i| i as f64).collect();
        return Some((X::scaled(def.label, Scale::Names(names)), places));
    }
    let (factor, unit) = scaled(def.unit);
    let values = values.iter().map(|value| Some(value.number()? * factor));
    let xs: Option<Vec<f64>> = values.collect();
    let axis = match def.unit {
        Unit::Nanoseconds => X::time(),
        Unit::None => X::scaled(def.label, Scale::Counts),
        _ => X::linear(def.label, &unit),
    };
    Some((axis, xs?))
}

/// Plot of columns of a table against another column; none if they say nothing.
fn columns(table: &Table<'_>, x: &str, names: &[&str], name: &str, title: &str) -> Option<Plot> {
    let at = |name: &str| table.columns.iter().position(|def| def.name == name);
    let at_x = at(x)?;
    let mut rows: Vec<_> = table.rows.iter().collect();
    let number = |row: &&Vec<Value<'_>>| row[at_x].number().unwrap_or_default();
    rows.sort_by(|a, b| number(a).total_cmp(&number(b)));
    let values = |at: usize| rows.iter().map(move |row| row[at].number());
    let is_percentile = |def: &&Def| {
        Summary::PERCENTILES
            .iter()
            .any(|(own, ..)| *own == def.name)
    };
    let is_extreme = |def: &&Def| ["min", "max"].contains(&def.name);
    let of_all = table
        .columns
        .iter()
        .filter(|def| is_percentile(def) || is_extreme(def));
    let names: Vec<&str> = match names {
        [] => of_all.map(|def| def.name).collect(),
        names => names.to_vec(),
    };
    let lines: Vec<(&Def, Vec<Option<f64>>)> = names
        .iter()
        .filter_map(|name| at(name))
        .map(|at| (&table.columns[at], values(at).collect()))
        .filter(|(_, values): &(_, Vec<Option<f64>>)| values.iter().flatten().any(|n| *n > 0.0))
        .collect();
    let (first, _) = lines.first()?;
    let (factor, _) = scaled(first.unit);
    // A name has the texts of all columns before it, each up to its first comma.
    let name_of = |row: &Vec<Value<'_>>| {
        let parts = row[..=at_x].iter().zip(&table.columns);
        let parts = parts.map(|(value, def)| shown(def.unit, value));
        let short = parts.map(|text| text.split(',').next().unwrap_or_default().to_owned());
        Value::Text(short.collect::<Vec<_>>().join(" ").into())
    };
    let is_name = table.columns[at_x].kind == Kind::Fact;
    let xs: Vec<Value<'_>> = rows
        .iter()
        .map(|row| {
            if is_name {
                name_of(row)
            } else {
                row[at_x].clone()
            }
        })
        .collect();
    let xs: Vec<&Value<'_>> = xs.iter().collect();
    let (axis, xs) = horizontal(&table.columns[at_x], &xs).filter(|(_, xs)| !xs.is_empty())?;
    let is_time = axis == X::time();
    let form = if is_time { Form::Line } else { Form::Marks };
    let series = lines.iter().map(|(def, values)| {
        let scaled = values.iter().map(|value| value.map(|n| n * factor));
        Series::line(def.label, scaled.collect()).as_form(form)
    });
    let series: Vec<Series> = series.collect();
    let y = match is_time {
        true => Y::new(first.label, &scaled(first.unit).1),
        false => {
            let figures: Vec<&Def> = lines.iter().map(|(def, _)| *def).collect();
            vertical(&figures, first.unit, &series)
        }
    };
    (!is_time || xs.len() > 1)
        .then(|| Plot::new(name, title, axis, y, xs, series))
        .flatten()
}

/// Plot of a column of the tables of all jobs against another column, one line for each job.
fn by_job(
    jobs: &[Job<'_>],
    caption: &str,
    x: &str,
    y: &str,
    name: &str,
    title: &str,
) -> Option<Plot> {
    let of = |job: &'_ Job<'_>| job.tables.iter().position(|table| table.caption == caption);
    let table = |job| of(job).map(|at| &job.tables[at]);
    let first = jobs
        .iter()
        .find_map(|job| table(job).filter(|t| !t.rows.is_empty()))?;
    let at = |name: &str| first.columns.iter().position(|def| def.name == name);
    let (x, y) = (at(x)?, at(y)?);
    let (def_x, def_y) = (&first.columns[x], &first.columns[y]);
    let tables = || jobs.iter().filter_map(|job| Some((job, of(job)?)));
    let rows = |(job, at): (&Job<'_>, usize)| -> Vec<(f64, Option<f64>)> {
        let pairs = job.tables[at].rows.iter();
        let (by_x, by_y) = (scaled(def_x.unit).0, scaled(def_y.unit).0);
        let pair = |row: &Vec<Value<'_>>| {
            Some((row[x].number()? * by_x, row[y].number().map(|n| n * by_y)))
        };
        pairs.filter_map(pair).collect()
    };
    let mut xs: Vec<f64> = tables()
        .flat_map(|own| rows(own).into_iter().map(|(x, _)| x))
        .collect();
    if def_x.unit == Unit::Share {
        xs.extend([0.0, 100.0]);
    }
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let series = tables().map(|own| {
        let rows = rows(own);
        let at = |x: &f64| rows.iter().find(|(own, _)| own == x)?.1;
        Series::line(&own.0.job, xs.iter().map(at).collect()).as_form(Form::Marks)
    });
    let series: Vec<Series> = series.collect();
    let axis = match def_x.unit {
        Unit::None => X::scaled(def_x.label, Scale::Counts),
        unit => X::linear(def_x.label, &scaled(unit).1),
    };
    let y = vertical(&[def_y], def_y.unit, &series);
    Plot::new(name, title, axis, y, xs, series).map(Plot::joined)
}

/// Plot of figures against the first parameter of the jobs. A figure that does not depend on the other parameters is one
/// line.
fn by_parameter(jobs: &[Job<'_>], names: &[&str], name: &str, title: &str) -> Option<Plot> {
    let (parameter, _) = jobs.iter().find_map(|job| job.parameters.first())?;
    let at = |job: &Job<'_>| job.parameters.first().map(|(_, value)| value.clone());
    let others = |job: &Job<'_>| -> Vec<String> {
        let rest = job.parameters.iter().skip(1);
        rest.map(|(name, value)| match name.as_str() {
            "goal" => value.clone(),
            name => format!("{name} {value}"),
        })
        .collect()
    };
    let (mut places, mut combinations) = (Vec::new(), Vec::new());
    for job in jobs {
        places.extend(at(job).filter(|value| !places.contains(value)));
        let own = others(job);
        if !combinations.contains(&own) {
            combinations.push(own);
        }
    }
    let mut series: Vec<Series> = Vec::new();
    let mut first = None;
    for name in names {
        let mut own: Vec<Series> = Vec::new();
        for combination in &combinations {
            let value = |place: &String| {
                let is_here =
                    |job: &&Job<'_>| at(job).as_ref() == Some(place) && others(job) == *combination;
                jobs.iter().find(is_here)?.figure(name)?.value.number()
            };
            let values: Vec<Option<f64>> = places.iter().map(value).collect();
            let Some(figure) = jobs.iter().find_map(|job| job.figure(name)) else {
                continue;
            };
            first.get_or_insert((figure.def, figure.unit));
            let factor = scaled(figure.unit).0;
            let values = values.into_iter().map(|v| v.map(|v| v * factor)).collect();
            let label = [vec![figure.title()], combination.clone()]
                .concat()
                .join(" ");
            own.push(Series::line(&label, values).as_form(Form::Marks));
        }
        if own.iter().all(|line| line.values == own[0].values) {
            own.truncate(1);
        }
        if let [only] = own.as_mut_slice()
            && let Some(figure) = jobs.iter().find_map(|job| job.figure(name))
        {
            only.name = figure.title();
            only.form = match figure.def.better {
                Better::Neither if places.len() > 1 => Form::Dashes,
                _ => Form::Marks,
            };
        }
        series.extend(own);
    }
    let (def, unit) = first?;
    let figures = vec![def; names.len()];
    let y = vertical(&figures, unit, &series);
    let x = X::scaled(parameter, Scale::Names(places.clone()));
    let xs = (0..places.len()).map(|i| i as f64).collect();
    Plot::new(name, title, x, y, xs, series)
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
        let over_time = over_time.filter(|plot| plot.series.is_over_time());
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
        Lines::Columns(..) | Lines::Jobs(..) | Lines::Parameter(_) => (Y::new("", ""), Vec::new()),
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
