//! Sections of pages: rows of figures under a title.

use ratatui_core::{
    style::{Color, Modifier, Style},
    text::{Line, Span},
};

use crate::bars;

/// Meaning of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Without emphasis.
    #[default]
    Plain,
    /// A name of a figure.
    Label,
    /// A problem.
    Bad,
    /// A warning.
    Warn,
    /// A good result.
    Good,
}

impl Tone {
    pub(crate) fn style(self, color: bool) -> Style {
        let colored = |style: Style, of: Color| if color { style.fg(of) } else { style };
        match self {
            Self::Plain => Style::new(),
            Self::Label => Style::new().add_modifier(Modifier::DIM),
            Self::Bad => colored(Style::new().add_modifier(Modifier::BOLD), Color::Red),
            Self::Warn => colored(Style::new().add_modifier(Modifier::BOLD), Color::Yellow),
            Self::Good => colored(Style::new(), Color::Green),
        }
    }
}

/// A line of a section.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    /// Cells aligned with the rows around: the first to the left, the others to the right.
    Cells(Vec<(String, Tone)>),
    /// Cells, followed by values over time in the remaining room.
    Over(Vec<(String, Tone)>, Vec<Option<f64>>),
    /// A sentence that is cut to one line.
    Short(String, Tone),
    /// A sentence.
    Text(String, Tone),
}

impl Row {
    /// A row of a name and figures.
    #[must_use]
    pub fn of(name: &str, figures: impl IntoIterator<Item = String>) -> Self {
        Self::toned(name, figures, Tone::Plain)
    }

    /// A row of a name and figures with this meaning.
    #[must_use]
    pub fn toned(name: &str, figures: impl IntoIterator<Item = String>, tone: Tone) -> Self {
        let mut cells = vec![(name.to_owned(), Tone::Label)];
        cells.extend(figures.into_iter().map(|figure| (figure, tone)));
        Self::Cells(cells)
    }

    /// Adds values over time.
    #[must_use]
    pub fn over(self, values: Vec<Option<f64>>) -> Self {
        match self {
            Self::Cells(cells) => Self::Over(cells, values),
            other => other,
        }
    }

    fn cells(&self) -> Option<&[(String, Tone)]> {
        match self {
            Self::Cells(cells) | Self::Over(cells, _) => Some(cells),
            Self::Short(..) | Self::Text(..) => None,
        }
    }
}

/// Rows under a title.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    /// Title of the section.
    pub title: String,
    /// Rows of the section.
    pub rows: Vec<Row>,
}

/// Minimum width of a line of bars, which is left out if there is less room.
const LEAST_BARS: usize = 8;
/// Maximum width of a line of bars.
const MOST_BARS: usize = 60;

fn long(text: &str) -> usize {
    Span::raw(text).width()
}

impl Section {
    /// A section with these rows.
    #[must_use]
    pub fn new(title: &str, rows: Vec<Row>) -> Self {
        Self {
            title: title.to_owned(),
            rows,
        }
    }

    /// Lines of at most `width` columns, the title first. Cells without room are left out, the last ones first.
    pub(crate) fn lines(&self, width: usize, unicode: bool, color: bool) -> Vec<Line<'static>> {
        let rule = if unicode { "─" } else { "-" };
        let title = format!(
            "{} {} ",
            rule,
            cut(&self.title, width.saturating_sub(4), unicode)
        );
        let rest = rule.repeat(width.saturating_sub(long(&title)));
        let mut lines = vec![Line::from(vec![
            Span::styled(title, Style::new().add_modifier(Modifier::BOLD)),
            Span::styled(rest, Tone::Label.style(color)),
        ])];
        let widths = self.widths();
        for row in &self.rows {
            match row {
                Row::Short(text, tone) => {
                    let text = cut(text, width.saturating_sub(2), unicode);
                    let text = format!("  {text}");
                    lines.push(Line::from(Span::styled(text, tone.style(color))));
                }
                Row::Text(text, tone) => {
                    let wrapped = wrap(text, width.saturating_sub(2));
                    lines.extend(wrapped.into_iter().map(|part| {
                        Line::from(Span::styled(format!("  {part}"), tone.style(color)))
                    }));
                }
                Row::Cells(cells) | Row::Over(cells, _) => {
                    let mut line = Line::default();
                    let mut used = 0;
                    for (at, ((text, tone), room)) in cells.iter().zip(&widths).enumerate() {
                        // The name is cut if it would leave no room for figures.
                        let room = if at == 0 {
                            (*room).min(width.saturating_sub(2).max(12) / 2 + 8)
                        } else {
                            *room
                        };
                        let text = cut(text, room, unicode);
                        let blank = " ".repeat(room.saturating_sub(long(&text)));
                        if used + 2 + room > width {
                            break;
                        }
                        used += 2 + room;
                        let text = match at {
                            0 => format!("  {text}{blank}"),
                            _ => format!("  {blank}{text}"),
                        };
                        line.push_span(Span::styled(text, tone.style(color)));
                    }
                    if let Row::Over(_, values) = row {
                        let full: usize = widths.iter().map(|w| w + 2).sum();
                        let room = width.saturating_sub(full.max(used) + 3).min(MOST_BARS);
                        if room >= LEAST_BARS {
                            let gap = " ".repeat(full.max(used) - used + 3);
                            let bars = bars::spark(values, room, unicode);
                            let style = match color {
                                true => Style::new().fg(Color::Cyan),
                                false => Style::new(),
                            };
                            line.push_span(Span::raw(gap));
                            line.push_span(Span::styled(bars, style));
                        }
                    }
                    lines.push(line);
                }
            }
        }
        lines
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = Vec::new();
        for cells in self.rows.iter().filter_map(Row::cells) {
            for (at, (text, _)) in cells.iter().enumerate() {
                match widths.get_mut(at) {
                    Some(width) => *width = (*width).max(long(text)),
                    None => widths.push(long(text)),
                }
            }
        }
        widths
    }
}

/// Cuts a text to at most `width` columns, with a mark if a part is left out.
pub(crate) fn cut(text: &str, width: usize, unicode: bool) -> String {
    if long(text) <= width {
        return text.to_owned();
    }
    let mark = if unicode { '…' } else { '~' };
    let mut short = String::new();
    for character in text.chars() {
        if long(&short) + long(character.encode_utf8(&mut [0; 4])) + 1 > width {
            break;
        }
        short.push(character);
    }
    if width > 0 {
        short.push(mark);
    }
    short
}

/// Wraps a text to lines of at most `width` columns, broken at blanks if there are any.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    if long(text) <= width {
        return vec![text.to_owned()];
    }
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut word = word;
        loop {
            let line = lines.last_mut().expect("there is one");
            let gap = usize::from(!line.is_empty());
            if long(line) + gap + long(word) <= width {
                if gap > 0 {
                    line.push(' ');
                }
                line.push_str(word);
                break;
            }
            if !line.is_empty() {
                lines.push(String::new());
                continue;
            }
            // A word longer than a line.
            let mut end = 0;
            for (at, character) in word.char_indices() {
                let next = at + character.len_utf8();
                if long(&word[..next]) > width && end > 0 {
                    break;
                }
                end = next;
            }
            line.push_str(&word[..end]);
            word = &word[end..];
            if word.is_empty() {
                break;
            }
            lines.push(String::new());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(section: &Section, width: usize) -> Vec<String> {
        let lines = section.lines(width, true, false);
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn figures_stand_under_each_other_and_the_last_give_way() {
        let section = Section::new(
            "Frames",
            vec![
                Row::of("sent", ["1 Mpps".to_owned(), "12".to_owned()]).over(vec![Some(1.0)]),
                Row::of("received", ["900 kpps".to_owned()]),
            ],
        );
        assert_eq!(
            plain(&section, 40),
            [
                "─ Frames ───────────────────────────────",
                "  sent        1 Mpps  12               █",
                "  received  900 kpps",
            ]
        );
        assert_eq!(plain(&section, 21)[1], "  sent        1 Mpps");
    }

    #[test]
    fn sentences_are_broken_at_blanks() {
        assert_eq!(wrap("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrap("one  two", 8), ["one  two"]);
        assert_eq!(wrap("abcdefgh ij", 3), ["abc", "def", "gh", "ij"]);
        assert_eq!(wrap("", 3), [""]);
        assert_eq!(cut("abcdef", 4, true), "abc…");
        assert_eq!(cut("abcd", 4, true), "abcd");
        assert_eq!(cut("abcd", 0, true), "");
    }
}
