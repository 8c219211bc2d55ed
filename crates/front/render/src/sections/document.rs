//! Sections as parts of a document, from which HTML and Markdown are written.

use wb_figures::{Def, Figure, Section as Job, Show, Tone, Value};

use super::{beside, is_bad, is_column, is_text, plots, shown};
use crate::figures::count;
use crate::report::{Block, Cell, Course, Mark, Section, Side, Table, times};

/// Up to this number of jobs, each is a column; more jobs are rows.
const MOST_COLUMNS: usize = 4;

/// Maximum number of rows of a table of one job.
const MOST_ROWS: usize = 100;

/// All jobs of one kind as one section.
pub(crate) fn section(jobs: &[Job<'_>], course: Option<&Course<'_>>) -> Section {
    let Some(first) = jobs.first() else {
        return Section::default();
    };
    let mut section = Section::new(first.heading);
    let names: Vec<&str> = shown_names(jobs);
    section.table(match jobs.len() {
        0..=MOST_COLUMNS => by_columns(jobs, &names),
        _ => by_rows(jobs, &names),
    });
    let prefix = |job: &Job<'_>| match jobs.len() {
        1 => String::new(),
        _ => format!("{}: ", job.job),
    };
    let times = jobs.iter().flat_map(|job| {
        let of = move |label: &str| format!("{}{label}", prefix(job));
        job.times().map(move |(f, summary)| (of(f.label), summary))
    });
    section.table(times::table("Times", times));
    if let Some(course) = course {
        plots::add(&mut section, jobs, course);
    }
    for job in jobs {
        plots::of_tables(&mut section, job);
    }
    for at in 0..first.tables.len() {
        section.table(joined(jobs, at));
        section.blocks.extend(not_listed(jobs, at));
    }
    for job in jobs {
        for note in &job.notes {
            let text = format!("{}{}", prefix(job), note.text);
            section.blocks.push(match note.tone {
                Tone::Plain => Block::Text(text),
                Tone::Bad => Block::Warning(text),
            });
        }
    }
    section
}

/// Names of the figures that are shown for any of the jobs, in order.
fn shown_names<'a>(jobs: &[Job<'a>]) -> Vec<&'a str> {
    let mut names = Vec::new();
    let Some(first) = jobs.first() else {
        return names;
    };
    for figure in &first.figures {
        let name = figure.def.name;
        let is_shown = |job: &Job<'_>| job.shown(false).any(|f| f.def.name == name);
        if jobs.iter().any(is_shown) {
            names.push(name);
        }
    }
    names
}

fn cell(job: &Job<'_>, figure: Option<&Figure<'_>>) -> Cell {
    let Some(figure) = figure else {
        return Cell::default();
    };
    let text = shown(figure.def, &figure.value);
    let text = match beside(job, figure) {
        note if note.is_empty() || !figure.value.is_any() => text,
        note => format!("{text} ({note})"),
    };
    Cell::marked(text, mark(figure.def, &figure.value))
}

fn mark(def: &Def, value: &Value<'_>) -> Mark {
    match is_bad(def, value) {
        true => Mark::Bad,
        false => Mark::Plain,
    }
}

/// One row for each figure, and one column for each job.
fn by_columns(jobs: &[Job<'_>], names: &[&str]) -> Table {
    let mut table = Table::new("", &[""]);
    let heads = jobs.iter().map(|job| match job.title.as_str() {
        "" => job.job.to_owned(),
        title => format!("{}: {title}", job.job),
    });
    table.head.extend(heads.map(|head| (head, Side::Left)));
    for name in names {
        let label = jobs.iter().find_map(|job| job.figure(name));
        let label = label.map(Figure::title).unwrap_or_default();
        let cells = jobs.iter().map(|job| cell(job, job.figure(name)));
        table.row(std::iter::once(Cell::from(label)).chain(cells));
    }
    table
}

/// One row for each job, and one column for each figure.
fn by_rows(jobs: &[Job<'_>], names: &[&str]) -> Table {
    let mut table = Table::new("", &["job"]);
    for name in names {
        if let Some(figure) = jobs.iter().find_map(|job| job.figure(name)) {
            table.head.push((figure.title(), side(figure.def)));
        }
    }
    for job in jobs {
        let cells = names.iter().map(|name| {
            let figure = job.figure(name);
            figure.map_or_else(Cell::default, |f| {
                Cell::marked(shown(f.def, &f.value), mark(f.def, &f.value))
            })
        });
        table.row(std::iter::once(Cell::from(job.job)).chain(cells));
    }
    table
}

fn side(def: &Def) -> Side {
    match is_text(def) {
        true => Side::Left,
        false => Side::Right,
    }
}

/// The tables at the same place of all jobs as one, without the columns that say nothing.
fn joined(jobs: &[Job<'_>], at: usize) -> Table {
    let own = &jobs[0].tables[at];
    let rows = || jobs.iter().flat_map(|job| job.tables[at].rows.iter());
    let says = |i: &usize| {
        let def = &own.columns[*i];
        is_column(def, false)
            && rows().any(|row| match def.show {
                Show::IfAny => row[*i].is_any(),
                _ => row[*i] != Value::Unknown,
            })
    };
    let kept: Vec<usize> = (0..own.columns.len()).filter(says).collect();
    let of = |job: &Job<'_>| (jobs.len() > 1).then(|| Cell::from(job.job));
    let mut table = Table::new(own.caption, &[]);
    table
        .head
        .extend((jobs.len() > 1).then(|| ("job".to_owned(), Side::Left)));
    let heads = kept.iter().map(|i| &own.columns[*i]);
    table
        .head
        .extend(heads.map(|def| (def.label.to_owned(), side(def))));
    for job in jobs {
        for row in job.tables[at].rows.iter().take(MOST_ROWS) {
            let cells = kept.iter().map(|i| {
                let (def, value) = (&own.columns[*i], &row[*i]);
                Cell::marked(shown(def, value), mark(def, value))
            });
            table.row(of(job).into_iter().chain(cells));
        }
    }
    table
}

/// Sentence about the rows of all jobs that are not listed.
fn not_listed(jobs: &[Job<'_>], at: usize) -> Option<Block> {
    let hidden = |job: &Job<'_>| {
        let table = &job.tables[at];
        let hidden = u64::try_from(table.rows.len().saturating_sub(MOST_ROWS));
        hidden.unwrap_or(u64::MAX).saturating_add(table.omitted)
    };
    let more = jobs.iter().map(hidden).fold(0, u64::saturating_add);
    (more > 0).then(|| Block::Text(format!("Not listed: {} more.", count(more))))
}
