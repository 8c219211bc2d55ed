//! Sections as plain text.

use wb_figures::{Section, Show, Sum, Tone as Meaning, Value};

use super::{beside, is_bad, is_column, is_text, shown};
use crate::{
    figures::count,
    page::{Page, Tone},
    table::Table,
    text::times,
};

/// Maximum number of rows of a table without details.
const MOST_ROWS: usize = 16;

/// Writes a section: figures, sums, distributions, tables, notes.
pub(crate) fn section(page: &mut Page, section: &Section<'_>, details: bool) {
    page.head(&match section.title.as_str() {
        "" => section.job.to_owned(),
        title => format!("{}: {title}", section.job),
    });
    for (name, value) in section.parameters {
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
    for table in &section.tables {
        rows(page, table, details);
    }
    if !section.notes.is_empty() && (!times.is_empty() || !section.tables.is_empty()) {
        page.gap();
    }
    for note in &section.notes {
        let tone = match note.tone {
            Meaning::Plain => Tone::Plain,
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
        .map(|f| shown(f.def, &f.value).chars().count())
        .max()
        .unwrap_or(0);
    for figure in shown_figures() {
        let label = format!("  {:<label_width$}  ", figure.title());
        let tone = match is_bad(figure.def, &figure.value) {
            true => Tone::Bad,
            false => Tone::Plain,
        };
        let text = shown(figure.def, &figure.value);
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

fn rows(page: &mut Page, own: &wb_figures::Table<'_>, details: bool) {
    if own.rows.is_empty() || own.is_detail && !details {
        return;
    }
    let columns = || own.columns.iter().filter(|def| is_column(def, details));
    let mut table = columns().fold(Table::new(), |table, def| match is_text(def) {
        true => table.left(def.label),
        false => table.right(def.label),
    });
    // A column that is shown only if it says anything is left blank otherwise, and blank columns are removed.
    let silent = |i: usize| {
        own.columns[i].show == Show::IfAny && !own.rows.iter().any(|row| row[i].is_any())
    };
    let most = if details { usize::MAX } else { MOST_ROWS };
    for row in own.rows.iter().take(most) {
        let cells = own.columns.iter().zip(row).enumerate();
        let cells = cells.filter(|(_, (def, _))| is_column(def, details));
        table.row(cells.map(|(i, (def, value))| match silent(i) {
            true => String::new(),
            false => shown(def, value),
        }));
    }
    page.gap();
    page.table(&table.without_blank_columns(), 2, 1);
    let hidden = u64::try_from(own.rows.len().saturating_sub(most)).unwrap_or(u64::MAX);
    let hint = match (hidden, own.omitted) {
        (0, _) => "",
        (_, 0) => "; -v lists all",
        _ => "; -v lists more",
    };
    let more = hidden.saturating_add(own.omitted);
    if more > 0 {
        page.line(
            Tone::Plain,
            &format!("  ... and {} more{hint}", count(more)),
        );
    }
}
