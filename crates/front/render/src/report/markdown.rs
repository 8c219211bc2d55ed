//! The document as Markdown (CommonMark with tables), for tickets and repositories. Plots are named, not drawn.

use std::fmt::Write as _;

use wb_model::text::is_unprintable;

use super::document::{Block, Document, Mark, Side, Table};

/// Writes the document as Markdown.
#[must_use]
pub fn markdown(document: &Document) -> String {
    let mut out = format!("# {}\n", text(&document.title));
    for verdict in &document.verdicts {
        let run = match verdict.run.as_str() {
            "" => String::new(),
            run => format!("{}: ", text(run)),
        };
        let _ = writeln!(
            out,
            "\n{run}**{}** {}",
            text(&verdict.word),
            text(&verdict.reason)
        );
    }
    let tiles = document.tiles.iter();
    let tiles: Vec<String> = tiles
        .map(|tile| format!("{} **{}**", text(&tile.label), text(&tile.value.text)))
        .collect();
    if !tiles.is_empty() {
        let _ = writeln!(out, "\n{}", tiles.join(", "));
    }
    let is_written = |block: &Block| !matches!(block, Block::Plot(_) | Block::Picture(_));
    for section in &document.sections {
        if !section.blocks.iter().any(is_written) {
            continue;
        }
        let _ = writeln!(out, "\n## {}", text(&section.title));
        for block in &section.blocks {
            match block {
                Block::Text(one) => {
                    let _ = writeln!(out, "\n{}", text(one));
                }
                Block::Warning(one) => {
                    let _ = writeln!(out, "\n> **Warning:** {}", text(one));
                }
                Block::Table(one) => table(&mut out, one),
                Block::Plot(_) | Block::Picture(_) => {}
                Block::Code(summary, code) => {
                    // The fence is longer than any fence inside.
                    let fence = "`".repeat(longest_run(code, '`').max(2) + 1);
                    let _ = writeln!(
                        out,
                        "\n{}:\n\n{fence}\n{}\n{fence}",
                        text(summary),
                        code.trim_end()
                    );
                }
            }
        }
    }
    out
}

fn table(out: &mut String, table: &Table) {
    out.push('\n');
    if !table.caption.is_empty() {
        let _ = writeln!(out, "{}\n", text(&table.caption));
    }
    let row = |out: &mut String, cells: &mut dyn Iterator<Item = String>| {
        for cell in cells {
            let _ = write!(out, "| {cell} ");
        }
        out.push_str("|\n");
    };
    row(out, &mut table.head.iter().map(|(name, _)| text(name)));
    let side = |side: Side| match side {
        Side::Left => "---".to_owned(),
        Side::Right => "---:".to_owned(),
    };
    row(out, &mut table.head.iter().map(|(_, at)| side(*at)));
    for cells in &table.rows {
        let cell = |cell: &super::Cell| match (cell.mark, cell.text.as_str()) {
            (Mark::Plain, one) => text(one),
            (_, "") => String::new(),
            (_, one) => format!("**{}**", text(one)),
        };
        row(out, &mut cells.iter().map(cell));
    }
}

/// Escapes text so that it stays plain text, on one line.
fn text(one: &str) -> String {
    let mut out = String::with_capacity(one.len());
    for c in one.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '!' => {
                out.push('\\');
                out.push(c);
            }
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\n' | '\t' => out.push(' '),
            c if is_unprintable(c) => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

fn longest_run(text: &str, of: char) -> usize {
    let runs = text.split(|c| c != of).map(str::len);
    runs.max().unwrap_or(0)
}
