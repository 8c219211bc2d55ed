//! Sections as parts of a document, from which HTML and Markdown are written.

use wb_figures::{Figure, Section as Job, Tone};

use super::{
    beside, plots, shown,
    tables::{self, mark, shown_names},
};
use crate::figures::count;
use crate::report::{Block, Cell, Course, Section, Side, Table, times};

/// Up to this number of jobs, each is a column; more jobs are rows.
const MOST_COLUMNS: usize = 4;

/// Maximum number of rows of a table of one job.
const MOST_ROWS: usize = 100;

/// All jobs of one kind as one section.
pub(crate) fn section(jobs: &[Job<'_>], course: Option<&Course<'_>>) -> Section {
    let Some(first) = jobs.first() else {
        return Section::default();
    };
    let mut section = Section::new(&capitalized(first.heading));
    let notes = tables::notes(jobs);
    let (bad, plain): (Vec<_>, Vec<_>) =
        notes.into_iter().partition(|(tone, _)| *tone == Tone::Bad);
    let warnings = bad.into_iter().map(|(_, text)| Block::Warning(text));
    section.blocks.extend(warnings);
    let are_columns = jobs.len() <= MOST_COLUMNS && first.parameters.is_empty();
    section.table(match are_columns {
        true => by_columns(jobs, &shown_names(jobs, false)),
        false => tables::figures(jobs, false),
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
    plots::of_tables(&mut section, jobs);
    let owners = tables::owner_columns(jobs);
    for at in 0..first.tables.len() {
        section.table(tables::joined(jobs, &owners, at, false, MOST_ROWS));
        let more = tables::not_listed(jobs, at, MOST_ROWS);
        if more > 0 {
            section.text(format!("Not listed: {} more.", count(more)));
        }
    }
    for (_, note) in plain {
        section.text(note);
    }
    section
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

fn cell(job: &Job<'_>, figure: Option<&Figure<'_>>) -> Cell {
    let Some(figure) = figure else {
        return Cell::default();
    };
    let text = shown(figure.unit, &figure.value);
    let text = match beside(job, figure) {
        note if note.is_empty() || !figure.value.is_any() => text,
        note => format!("{text} ({note})"),
    };
    Cell::marked(text, mark(figure.def, &figure.value))
}

/// One row for each figure, and one column for each job.
fn by_columns(jobs: &[Job<'_>], names: &[&str]) -> Table {
    let mut table = Table::new("", &[""]);
    let heads = jobs.iter().map(|job| match job.title.as_str() {
        "" => job.job.to_string(),
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
