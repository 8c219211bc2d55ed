//! The chart as plain text: bars with their figures, or a small plot.

use super::{
    Chart, Kind,
    data::{Mark, Placed, Places},
    layout::clipped,
};
use crate::{figures::UNKNOWN, page::wrapped};

/// Which characters a terminal can show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Glyphs {
    /// Blocks and braille.
    #[default]
    Unicode,
    /// For terminals and files without them.
    Ascii,
}

/// Narrower than this nothing can be read.
const LEAST_WIDTH: usize = 40;
/// A category in front of a bar.
const LONGEST_CATEGORY: usize = 28;
/// A series in front of a bar or below a plot.
const LONGEST_NAME: usize = 20;
/// Rows of a plot.
const ROWS: usize = 16;
/// Signs of series in a plot, taken in turn.
const SIGNS: [char; 8] = ['o', 'x', '+', '*', '#', '@', '%', '$'];
/// Where signs of different series meet.
const SEVERAL: char = '&';

/// The chart in lines of at most `width` columns (at least 40). Lines are drawn without
/// whiskers. Names keep no control characters.
#[must_use]
pub fn terminal(chart: &Chart, width: usize, glyphs: Glyphs) -> String {
    let width = width.max(LEAST_WIDTH);
    let mut lines = Vec::new();
    if !chart.title.is_empty() {
        lines.extend(wrapped(&chart.title, width));
    }
    match chart.kind {
        Kind::Bars => bars(&mut lines, chart, width, glyphs),
        Kind::Lines => plot(&mut lines, chart, width, glyphs),
    }
    if !chart.note.is_empty() {
        lines.push(String::new());
        lines.extend(wrapped(&chart.note, width));
    }
    let mut out = String::new();
    for line in lines {
        let clean = line.chars().map(|c| if c.is_control() { '?' } else { c });
        let clean: String = clean.collect();
        let clean = clipped(clean.trim_end(), width);
        match glyphs {
            Glyphs::Unicode => out.push_str(&clean),
            Glyphs::Ascii => out.extend(clean.chars().map(|c| match c {
                '…' => '~',
                c if c.is_ascii() => c,
                _ => '?',
            })),
        }
        out.push('\n');
    }
    out
}

fn bars(lines: &mut Vec<String>, chart: &Chart, width: usize, glyphs: Glyphs) {
    let placed = Placed::new(chart, 8, 6);
    let single = chart.series.len() == 1;
    let mut head = placed.y_title(chart);
    if single && !chart.series[0].name.is_empty() {
        head = [head.as_str(), &chart.series[0].name]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(", ");
    }
    if !chart.x.label.is_empty() {
        head = format!("{head} by {}", chart.x.label);
    }
    if !head.is_empty() {
        lines.extend(wrapped(head.trim(), width));
    }
    let categories: Vec<String> = placed
        .x
        .labels()
        .into_iter()
        .map(|(_, name)| name)
        .collect();
    if categories.is_empty() || chart.series.is_empty() {
        lines.extend([String::new(), "no data".to_owned()]);
        return;
    }
    lines.push(String::new());
    let rows: Vec<Bar> = bar_rows(chart, &placed, &categories);
    let widest = |text: fn(&Bar) -> &str| {
        let lengths = rows.iter().map(|row| text(row).chars().count());
        lengths.max().unwrap_or(0)
    };
    let category = widest(|row| &row.category);
    let series = if single { 0 } else { widest(|row| &row.series) };
    let figure = widest(|row| &row.figure);
    let names = category + 2 + if series > 0 { series + 2 } else { 0 };
    let room = width.saturating_sub(names + figure + 2).max(8);
    for (i, row) in rows.iter().enumerate() {
        if i > 0 && !single && !row.category.is_empty() {
            lines.push(String::new());
        }
        let mut line = format!("{:category$}  ", row.category);
        if series > 0 {
            line.push_str(&format!("{:series$}  ", row.series));
        }
        let bar = match row.y {
            Some(y) => strip(placed.y.share(0.0), placed.y.share(y), room, glyphs),
            None => String::new(),
        };
        line.push_str(&format!("{bar:room$}  {:>figure$}", row.figure));
        lines.push(line);
    }
}

/// A line with a bar.
struct Bar {
    /// Empty below the first of a category.
    category: String,
    series: String,
    figure: String,
    y: Option<f64>,
}

fn bar_rows(chart: &Chart, placed: &Placed, categories: &[String]) -> Vec<Bar> {
    let mut rows = Vec::new();
    for (slot, category) in categories.iter().enumerate() {
        for (i, series) in chart.series.iter().enumerate() {
            let at = placed.series[i].partition_point(|mark| mark.slot < slot);
            let mark = placed.series[i].get(at).filter(|mark| mark.slot == slot);
            let value = mark.and_then(|mark| mark.value);
            rows.push(Bar {
                category: if i == 0 {
                    clipped(category, LONGEST_CATEGORY)
                } else {
                    String::new()
                },
                series: clipped(&series.name, LONGEST_NAME),
                figure: value.map_or_else(|| UNKNOWN.to_owned(), |value| placed.figure(value)),
                y: value.map(|value| value.y),
            });
        }
    }
    rows
}

/// A bar from `zero` to `end`, both shares of `room` columns.
fn strip(zero: f64, end: f64, room: usize, glyphs: Glyphs) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let (low, high) = (zero.min(end) * room as f64, zero.max(end) * room as f64);
    let blank = low.round();
    if glyphs == Glyphs::Ascii {
        let full = (high.round() - blank).max(0.0) as usize;
        return " ".repeat(blank as usize) + &"#".repeat(full);
    }
    // Only the right end of a bar can lie inside a column.
    let high = if end < zero { high.round() } else { high };
    let eighths = ((high - blank).max(0.0) * 8.0).round() as usize;
    " ".repeat(blank as usize) + &"█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

fn plot(lines: &mut Vec<String>, chart: &Chart, width: usize, glyphs: Glyphs) {
    let placed = Placed::new(chart, 7, 6);
    let title = placed.y_title(chart);
    if !title.is_empty() {
        lines.extend(wrapped(&title, width));
    }
    lines.push(String::new());
    if !(0..chart.series.len()).any(|i| placed.has_values(i)) {
        lines.push("no data".to_owned());
        return;
    }
    let mut labels = vec![String::new(); ROWS];
    for tick in &placed.y.at {
        let row = ((1.0 - placed.y.share(*tick)) * (ROWS - 1) as f64).round() as usize;
        labels[row] = placed.unit.tick(*tick, placed.y.step);
    }
    let left = labels.iter().map(String::len).max().unwrap_or(0);
    let mut field = Field::new(width.saturating_sub(left + 3).max(16));
    for series in &placed.series {
        field.connect(&placed, series);
    }
    for (i, series) in placed.series.iter().enumerate() {
        field.sign(&placed, series, SIGNS[i % SIGNS.len()]);
    }
    let (wall, corner, floor) = match glyphs {
        Glyphs::Unicode => ('│', '└', "─"),
        Glyphs::Ascii => ('|', '+', "-"),
    };
    for (label, row) in labels.iter().zip(field.rows(glyphs)) {
        lines.push(format!("{label:>left$} {wall}{row}"));
    }
    lines.push(format!(
        "{:left$} {corner}{}",
        "",
        floor.repeat(field.columns)
    ));
    lines.push(format!("{:left$}  {}", "", below(&placed.x, field.columns)));
    if !chart.x.label.is_empty() {
        let blank = (left + 2 + field.columns).saturating_sub(chart.x.label.chars().count());
        lines.push(" ".repeat(blank) + &chart.x.label);
    }
    let signs = (0..chart.series.len()).map(|i| (SIGNS[i % SIGNS.len()], placed.name(chart, i)));
    let mut legend: Vec<String> = signs
        .filter(|(_, name)| !name.is_empty())
        .map(|(sign, name)| format!("{sign} {}", clipped(&name, LONGEST_NAME)))
        .collect();
    if field.several {
        legend.push(format!("{SEVERAL} several"));
    }
    lines.extend(gathered(&legend, width));
}

/// The labels of the x axis, as many as fit.
fn below(x: &Places, columns: usize) -> String {
    let mut line = String::new();
    let mut used = 0;
    for (share, label) in x.labels() {
        let label = clipped(&label, LONGEST_NAME);
        let length = label.chars().count();
        let middle = (share * (columns - 1) as f64).round() as usize;
        let start = middle
            .saturating_sub(length / 2)
            .min(columns.saturating_sub(length));
        if used == 0 || start > used {
            line.push_str(&" ".repeat(start - used));
            line.push_str(&label);
            used = start + length;
        }
    }
    line
}

/// Entries side by side, in lines of at most `width` columns.
fn gathered(entries: &[String], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for entry in entries {
        let length = entry.chars().count();
        match lines.last_mut() {
            Some(line) if line.chars().count() + 3 + length <= width => {
                line.push_str("   ");
                line.push_str(entry);
            }
            _ => lines.push(entry.clone()),
        }
    }
    lines
}

/// Characters of a plot; a character has two by four dots, as braille has.
struct Field {
    columns: usize,
    /// The pattern of each character, as in the Unicode block of braille.
    dots: Vec<u8>,
    signs: Vec<Option<char>>,
    /// Whether [`SEVERAL`] stands anywhere.
    several: bool,
}

impl Field {
    fn new(columns: usize) -> Self {
        Self {
            columns,
            dots: vec![0; columns * ROWS],
            signs: vec![None; columns * ROWS],
            several: false,
        }
    }

    /// Column and row of a share, counted in dots.
    fn dot(&self, across: f64, up: f64) -> (f64, f64) {
        // Dots of the first and last characters are left out at the ends, so that marks and
        // labels, which stand in the middle of a row, mean the same.
        let x = across * (self.columns - 1) as f64 * 2.0 + 0.5;
        let y = (1.0 - up) * (ROWS - 1) as f64 * 4.0 + 1.5;
        (x, y)
    }

    fn cell(&self, across: f64, up: f64) -> usize {
        let (x, y) = self.dot(across, up);
        (y / 4.0) as usize * self.columns + (x / 2.0) as usize
    }

    /// Dots between neighbours.
    fn connect(&mut self, placed: &Placed, marks: &[Mark]) {
        for pair in marks.windows(2) {
            let (Some(from), Some(to)) = (pair[0].value, pair[1].value) else {
                continue;
            };
            let from = self.dot(pair[0].across, placed.y.share(from.y));
            let to = self.dot(pair[1].across, placed.y.share(to.y));
            let steps = (to.0 - from.0)
                .abs()
                .max((to.1 - from.1).abs())
                .ceil()
                .max(1.0);
            for i in 0..=steps as usize {
                let t = i as f64 / steps;
                let x = (from.0 + (to.0 - from.0) * t).round() as usize;
                let y = (from.1 + (to.1 - from.1) * t).round() as usize;
                // Numbers of the dots: 1 to 3 and 7 on the left, 4 to 6 and 8 on the right.
                const BITS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
                let cell = y / 4 * self.columns + x / 2;
                self.dots[cell] |= BITS[y % 4][x % 2];
            }
        }
    }

    /// A sign at each point, or at some of many.
    fn sign(&mut self, placed: &Placed, marks: &[Mark], sign: char) {
        let every = marks.len().div_ceil(self.columns / 3).max(1);
        for mark in marks.iter().step_by(every) {
            let Some(value) = mark.value else { continue };
            let cell = self.cell(mark.across, placed.y.share(value.y));
            self.signs[cell] = match self.signs[cell] {
                Some(other) if other != sign => {
                    self.several = true;
                    Some(SEVERAL)
                }
                _ => Some(sign),
            };
        }
    }

    fn rows(&self, glyphs: Glyphs) -> Vec<String> {
        let text = |cell: usize| match (self.signs[cell], self.dots[cell]) {
            (Some(sign), _) => sign,
            (None, 0) => ' ',
            (None, _) if glyphs == Glyphs::Ascii => '.',
            (None, dots) => char::from_u32(0x2800 + u32::from(dots)).unwrap_or('.'),
        };
        let row = |row: usize| {
            (0..self.columns)
                .map(|x| text(row * self.columns + x))
                .collect()
        };
        (0..ROWS).map(row).collect()
    }
}
