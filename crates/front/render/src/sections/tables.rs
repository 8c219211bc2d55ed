//! Tables of one or several jobs, for texts and documents.

use wb_figures::{Def, Kind, Section as Job, Show, Tone, Unit, Value};

use super::{is_bad, is_column, is_text, shown};
use crate::{
    figures::UNKNOWN,
    report::{Cell, Mark, Side, Table},
};

/// Names of the columns that name a job: its parameters or, without parameters, `job` if there are several jobs.
pub(crate) fn owner_columns(jobs: &[Job<'_>]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (name, _) in jobs.iter().flat_map(|job| job.parameters.iter()) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    if names.is_empty() && jobs.len() > 1 {
        names.push("job".to_owned());
    }
    names
}

/// A table that begins with the columns that name a job.
fn begin(caption: &str, jobs: &[Job<'_>], names: &[String]) -> Table {
    let mut table = Table::new(caption, &[]);
    let is_number = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    for name in names {
        let mut values = jobs.iter().filter_map(|job| parameter(job, name));
        let side = match values.any(is_number) {
            true => Side::Right,
            false => Side::Left,
        };
        table.head.push((name.clone(), side));
    }
    table
}

/// A value without the unit in the head of its column; an unknown number is [`UNKNOWN`].
fn cell(kind: Kind, unit: Unit, value: &Value<'_>) -> String {
    match (value, value.number()) {
        (Value::Unknown, _) if kind != Kind::Fact => UNKNOWN.to_owned(),
        (_, Some(n)) if !unit.head().is_empty() => unit.cell(n),
        _ => shown(unit, value),
    }
}

fn parameter<'a>(job: &'a Job<'_>, name: &str) -> Option<&'a str> {
    let mut own = job.parameters.iter().filter(|(own, _)| own == name);
    own.next().map(|(_, value)| value.as_str())
}

/// Cells that name a job.
fn owner(job: &Job<'_>, names: &[String]) -> Vec<Cell> {
    let of = |name: &String| match job.parameters.is_empty() {
        true => Cell::from(&*job.job),
        false => Cell::from(parameter(job, name).unwrap_or_default()),
    };
    names.iter().map(of).collect()
}

pub(super) fn mark(def: &Def, value: &Value<'_>) -> Mark {
    match is_bad(def, value) {
        true => Mark::Bad,
        false => Mark::Plain,
    }
}

pub(super) fn side(def: &Def) -> Side {
    match is_text(def) {
        true => Side::Left,
        false => Side::Right,
    }
}

/// Names of the figures that are shown for any of the jobs, in order.
pub(super) fn shown_names<'a>(jobs: &[Job<'a>], details: bool) -> Vec<&'a str> {
    let first = jobs.first().into_iter().flat_map(|job| &job.figures);
    let is_shown = |name: &str| {
        let own = |job: &Job<'_>| job.shown(details).any(|f| f.def.name == name);
        jobs.iter().any(own)
    };
    let names = first.map(|figure| figure.def.name);
    names.filter(|name| is_shown(name)).collect()
}

/// One row for each job with figures, and one column for each figure.
pub(crate) fn figures(jobs: &[Job<'_>], details: bool) -> Table {
    let owners = owner_columns(jobs);
    let mut table = begin("", jobs, &owners);
    let names = shown_names(jobs, details);
    // The head has the unit unless jobs have different ones.
    let common = |name: &str| {
        let mut units = jobs
            .iter()
            .filter_map(|job| job.figure(name))
            .map(|f| f.unit);
        let first = units.next().unwrap_or(Unit::None);
        units.all(|unit| unit == first).then_some(first)
    };
    let units: Vec<Option<Unit>> = names.iter().map(|name| common(name)).collect();
    for (name, unit) in names.iter().zip(&units) {
        if let Some(figure) = jobs.iter().find_map(|job| job.figure(name)) {
            let unit = unit.map_or_else(String::new, Unit::head);
            table.head.push((figure.title() + &unit, side(figure.def)));
        }
    }
    for job in jobs
        .iter()
        .filter(|job| job.shown(details).next().is_some())
    {
        let cells = names.iter().zip(&units).map(|(name, unit)| {
            let figure = job.figure(name);
            figure.map_or_else(Cell::default, |f| {
                let text = match (unit, f.value.number()) {
                    (None, Some(_)) => shown(f.unit, &f.value),
                    _ => cell(f.def.kind, f.unit, &f.value),
                };
                Cell::marked(text, mark(f.def, &f.value))
            })
        });
        table.row(owner(job, &owners).into_iter().chain(cells));
    }
    table.known()
}

/// The tables at the same place of all jobs as one, without the columns that say nothing. The columns `owners` name the
/// jobs; each job has at most `most` rows.
pub(crate) fn joined(
    jobs: &[Job<'_>],
    owners: &[String],
    at: usize,
    details: bool,
    most: usize,
) -> Table {
    let own = &jobs[0].tables[at];
    if let (Some((x, y)), [_, _, ..]) = (own.across, jobs) {
        return matrix(jobs, at, x, y);
    }
    let rows = || jobs.iter().flat_map(|job| job.tables[at].rows.iter());
    let says = |i: &usize| {
        let def = &own.columns[*i];
        is_column(def, details)
            && rows().any(|row| match def.show {
                Show::IfAny => row[*i].is_any(),
                _ => row[*i] != Value::Unknown,
            })
    };
    let kept: Vec<usize> = (0..own.columns.len()).filter(says).collect();
    let mut table = begin(own.caption, jobs, owners);
    let heads = kept.iter().map(|i| &own.columns[*i]);
    table
        .head
        .extend(heads.map(|def| (def.label.to_owned() + &def.unit.head(), side(def))));
    for job in jobs {
        for row in job.tables[at].rows.iter().take(most) {
            let cells = kept.iter().map(|i| {
                let (def, value) = (&own.columns[*i], &row[*i]);
                Cell::marked(cell(def.kind, def.unit, value), mark(def, value))
            });
            table.row(owner(job, owners).into_iter().chain(cells));
        }
    }
    table
}

/// A row for each value of the column `x`, and the value of the column `y` in the column of each job. An unknown value is
/// [`UNKNOWN`].
fn matrix(jobs: &[Job<'_>], at: usize, x: &str, y: &str) -> Table {
    let of = |job: &Job<'_>, name: &str| {
        let columns = &job.tables[at].columns;
        columns.iter().position(|def| def.name == name)
    };
    let jobs: Vec<&Job<'_>> = jobs
        .iter()
        .filter(|j| !j.tables[at].rows.is_empty())
        .collect();
    let columns = jobs
        .first()
        .and_then(|job| Some((of(job, x)?, of(job, y)?)));
    let Some((x, y)) = columns else {
        return Table::default();
    };
    let defs = &jobs[0].tables[at].columns;
    let mut table = Table::new(jobs[0].tables[at].caption, &[]);
    let heads = jobs
        .iter()
        .map(|job| job.job.to_string() + &defs[y].unit.head());
    let heads = std::iter::once(defs[x].label.to_owned() + &defs[x].unit.head()).chain(heads);
    table.head.extend(heads.map(|head| (head, Side::Right)));
    let rows = || jobs.iter().flat_map(|job| &job.tables[at].rows);
    let mut xs: Vec<f64> = rows().filter_map(|row| row[x].number()).collect();
    let is_falling = xs.first() > xs.get(1);
    xs.sort_by(f64::total_cmp);
    xs.dedup_by(|a, b| (*a - *b).abs() < 1e-9);
    if is_falling {
        xs.reverse();
    }
    for at_x in xs {
        let is_here = |row: &&Vec<Value<'_>>| {
            let own = row[x].number();
            own.is_some_and(|own| (own - at_x).abs() < 1e-9)
        };
        let cells = jobs.iter().map(|job| {
            let row = job.tables[at].rows.iter().find(is_here);
            row.map_or_else(Cell::default, |row| {
                let text = cell(defs[y].kind, defs[y].unit, &row[y]);
                Cell::marked(text, mark(&defs[y], &row[y]))
            })
        });
        table.row(std::iter::once(Cell::from(defs[x].unit.cell(at_x))).chain(cells));
    }
    table
}

/// Notes of all jobs, each once, with the names of its jobs. Explanations have no names, nor have notes about all jobs.
pub(crate) fn notes(jobs: &[Job<'_>]) -> Vec<(Tone, String)> {
    let mut all: Vec<(Tone, &str, Vec<&str>)> = Vec::new();
    for job in jobs {
        for note in &job.notes {
            let same = all
                .iter_mut()
                .find(|(tone, text, _)| (*tone, *text) == (note.tone, &*note.text));
            match same {
                Some((.., names)) if names.last() != Some(&&*job.job) => names.push(&job.job),
                Some(_) => {}
                None => all.push((note.tone, &note.text, vec![&job.job])),
            }
        }
    }
    let told = all.into_iter().map(|(tone, text, names)| {
        let text = match tone == Tone::Term || names.len() == jobs.len() {
            true => text.to_owned(),
            false => format!("{}: {text}", names.join(", ")),
        };
        (tone, text)
    });
    told.collect()
}

/// Number of rows of all jobs that are not listed.
pub(crate) fn not_listed(jobs: &[Job<'_>], at: usize, most: usize) -> u64 {
    if jobs.len() > 1 && jobs[0].tables[at].across.is_some() {
        return 0;
    }
    let hidden = |job: &Job<'_>| {
        let table = &job.tables[at];
        let hidden = u64::try_from(table.rows.len().saturating_sub(most));
        hidden.unwrap_or(u64::MAX).saturating_add(table.omitted)
    };
    jobs.iter().map(hidden).fold(0, u64::saturating_add)
}
