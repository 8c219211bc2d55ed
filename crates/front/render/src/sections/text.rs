//! Sections as plain text.

use wb_figures::{Section, Show, Sum, Tone as Meaning, Value};

use super::{beside, is_bad, shown, tables};
use crate::{
    figures::count,
    page::{Page, Tone},
    report::{self, Side},
    table::Table,
    text::times,
};

/// Maximum number of rows of a table without details.
const MOST_ROWS: usize = 16;

/// Writes a section: figures, sums, distributions, tables, notes.
pub(crate) fn section(page: &mut Page, section: &Section<'_>, details: bool) {
    page.head(&match section.title.as_str() {
        "" => section.job.to_string(),
        title => format!("{}: {title}", section.job),
    });
    for (name, value) in section.parameters.iter() {
        page.line(Tone::Plain, &format!("  {name}: {value}"));
    }
    figures(page, section, details);
    for sum in section.sums.iter().filter(|sum| section.is_known(sum)) {
        sum_line(page, section, sum);
    }
    let times: Vec<_> = section
        .times()
        .map(|(f, summary)| (f.label, summary))
        .collect();
    times::distributions(page, &times);
    for (at, table) in section.tables.iter().enumerate() {
        if !table.rows.is_empty() {
            let most = if details { usize::MAX } else { MOST_ROWS };
            rows(
                page,
                std::slice::from_ref(section),
                &[],
                at,
                (details, most),
            );
        }
    }
    if !section.notes.is_empty() && (!times.is_empty() || !section.tables.is_empty()) {
        page.gap();
    }
    for note in &section.notes {
        let tone = match note.tone {
            Meaning::Term | Meaning::Plain => Tone::Plain,
            Meaning::Bad => Tone::Bad,
        };
        page.item(tone, "  ", tone, &note.text);
    }
}

/// One line for each figure. Texts are broken between words; numbers are aligned right.
fn figures(page: &mut Page, section: &Section<'_>, details: bool) {
    let shown_figures = || section.shown(details);
    let label_width = shown_figures()
        .map(|f| f.title().chars().count())
        .max()
        .unwrap_or(0);
    let is_long = |value: &Value<'_>| matches!(value, Value::Text(_) | Value::Counts(_));
    let value_width = shown_figures()
        .filter(|f| !is_long(&f.value))
        .map(|f| shown(f.unit, &f.value).chars().count())
        .max()
        .unwrap_or(0);
    for figure in shown_figures() {
        let label = format!("  {:<label_width$}  ", figure.title());
        let tone = match is_bad(figure.def, &figure.value) {
            true => Tone::Bad,
            false => Tone::Plain,
        };
        let text = shown(figure.unit, &figure.value);
        if is_long(&figure.value) {
            page.item(tone, &label, tone, &text);
            continue;
        }
        let value = format!("{label}{text:>value_width$}");
        match beside(section, figure) {
            note if note.is_empty() => page.line(tone, &value),
            note => page.item(tone, &format!("{value}  "), tone, &note),
        }
    }
}

/// `attempted 10 = completed 9 + failed 1`, without the parts that are 0 and not always shown.
fn sum_line(page: &mut Page, section: &Section<'_>, sum: &Sum) {
    let part = |name: &&str| {
        let figure = section.figure(name)?;
        let Value::Count(n) = figure.value else {
            return None;
        };
        let is_listed = n > 0 || figure.def.show == Show::Always;
        is_listed.then(|| format!("{} {}", figure.label, count(n)))
    };
    let list = |names: &[&str]| names.iter().filter_map(part).collect::<Vec<_>>();
    let minus = list(sum.minus).into_iter().map(|part| format!(" - {part}"));
    let text = format!(
        "{} = {}{}",
        part(&sum.whole).unwrap_or_default(),
        list(sum.parts).join(" + "),
        minus.collect::<String>()
    );
    match section.holds(sum) {
        true => page.item(Tone::Plain, "  sum  ", Tone::Plain, &text),
        false => {
            let text = format!("DOES NOT ADD UP: {text}");
            page.item(Tone::Bad, "  sum  ", Tone::Bad, &text);
        }
    }
}

/// The tables at the same place of all jobs.
fn rows(
    page: &mut Page,
    jobs: &[Section<'_>],
    owners: &[String],
    at: usize,
    (details, most): (bool, usize),
) {
    let own = &jobs[0].tables[at];
    if own.is_detail && !details {
        return;
    }
    let keys = match own.across {
        Some(_) if jobs.len() > 1 => 1,
        _ => owners.len() + own.keys,
    };
    page.gap();
    let joined = tables::joined(jobs, owners, at, details, most);
    table(page, &joined, keys.max(1));
    let more = tables::not_listed(jobs, at, most);
    let omitted = jobs.iter().map(|job| job.tables[at].omitted).sum::<u64>();
    let hint = match (more - omitted, omitted) {
        (0, _) => "",
        (_, 0) => "; -v lists all",
        _ => "; -v lists more",
    };
    if more > 0 {
        let text = format!("  ... and {} more{hint}", count(more));
        page.line(Tone::Plain, &text);
    }
}

/// A table, of which the first `keys` columns are repeated if it is too wide.
pub(crate) fn table(page: &mut Page, own: &report::Table, keys: usize) {
    let head = own.head.iter();
    let mut table = head.fold(Table::new(), |table, (name, side)| match side {
        Side::Left => table.left(name),
        Side::Right => table.right(name),
    });
    for row in &own.rows {
        table.row(row.iter().map(|cell| cell.text.as_str()));
    }
    page.table(&table.without_blank_columns(), 2, keys);
}

/// All jobs of a kind in the same tables, with a row for each job: warnings, figures, tables, notes.
pub(crate) fn together(page: &mut Page, jobs: &[Section<'_>], details: bool) {
    let Some(first) = jobs.first() else { return };
    page.head(first.heading);
    let notes = tables::notes(jobs);
    let (bad, others): (Vec<_>, Vec<_>) = notes.iter().partition(|(tone, _)| *tone == Meaning::Bad);
    for (_, text) in bad {
        page.item(Tone::Doubt, "  ! ", Tone::Doubt, text);
    }
    let figures = tables::figures(jobs, details);
    let owners = tables::owner_columns(jobs);
    if figures.head.len() > owners.len() {
        table(page, &figures, owners.len());
    }
    for at in 0..first.tables.len() {
        if jobs.iter().any(|job| !job.tables[at].rows.is_empty()) {
            rows(page, jobs, &owners, at, (details, usize::MAX));
        }
    }
    for (_, text) in others {
        page.item(Tone::Plain, "  ", Tone::Plain, text);
    }
}
