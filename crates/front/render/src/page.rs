//! Lines with tones and line breaks, on which the text forms are written.
//!
//! Names in a report may come from a plan of unknown origin; control characters in them never
//! reach the terminal.

use wb_model::text::is_unprintable;

/// Meaning of a piece of text, shown as colour if colour is enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Head,
    Good,
    Bad,
    Doubt,
    /// Neither good nor bad.
    Quiet,
}

impl Tone {
    /// ECMA-48 SGR parameters.
    const fn code(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Head => Some("1"),
            Self::Good => Some("1;32"),
            Self::Bad => Some("1;31"),
            Self::Doubt => Some("33"),
            Self::Quiet => Some("1;90"),
        }
    }
}

/// Text under construction.
pub(crate) struct Page {
    text: String,
    /// Length of the text up to the end of the last heading.
    headed: usize,
    color: bool,
    /// Columns that lines should not exceed, unless a word is longer.
    pub(crate) width: usize,
}

/// Narrower than this, breaking lines does more harm than good.
const LEAST_WIDTH: usize = 40;

impl Page {
    pub(crate) fn new(color: bool, width: usize) -> Self {
        Self {
            text: String::new(),
            headed: 0,
            color,
            width: width.max(LEAST_WIDTH),
        }
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }

    /// Adds an empty line, but not at the top or below a heading.
    pub(crate) fn gap(&mut self) {
        if self.text.len() > self.headed {
            self.text.push('\n');
        }
    }

    /// Adds a heading, with an empty line before it.
    pub(crate) fn head(&mut self, text: &str) {
        self.gap();
        self.line(Tone::Head, text);
        self.headed = self.text.len();
    }

    pub(crate) fn line(&mut self, tone: Tone, text: &str) {
        self.spans(&[(tone, text)]);
    }

    pub(crate) fn spans(&mut self, spans: &[(Tone, &str)]) {
        for (tone, text) in spans {
            let clean = text
                .chars()
                .map(|c| if is_unprintable(c) { '?' } else { c });
            match tone.code().filter(|_| self.color) {
                Some(code) => {
                    self.text.push_str(&format!("\x1b[{code}m"));
                    self.text.extend(clean);
                    self.text.push_str("\x1b[0m");
                }
                None => self.text.extend(clean),
            }
        }
        self.text.push('\n');
    }

    /// Adds `label` and then `body`, broken between words; further lines are aligned with the body.
    pub(crate) fn item(&mut self, label_tone: Tone, label: &str, tone: Tone, body: &str) {
        let hang = label.chars().count();
        for (i, line) in wrapped(body, self.width.saturating_sub(hang))
            .iter()
            .enumerate()
        {
            if i == 0 {
                self.spans(&[(label_tone, label), (tone, line)]);
            } else {
                let indent = " ".repeat(hang);
                self.spans(&[(Tone::Plain, &indent), (tone, line)]);
            }
        }
    }

    /// Adds the lines of a table in blocks of columns.
    pub(crate) fn table(&mut self, table: &crate::table::Table, indent: usize, keys: usize) {
        for (i, block) in table.blocks(indent, keys, self.width).iter().enumerate() {
            if i > 0 {
                self.gap();
            }
            for line in block {
                self.line(Tone::Plain, line);
            }
        }
    }
}

/// The words of `text` in lines of at most `width` columns; a longer word has a separate line.
/// Returns at least one line.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in unbroken(text) {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > width {
            lines.push(String::new());
            used = 0;
        }
        let line = lines.last_mut().expect("it begins with one line");
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        line.push_str(&word);
        used += length;
    }
    lines
}

/// Words, with a figure and its unit as one word: `5.21 s` stays on one line.
fn unbroken(text: &str) -> Vec<String> {
    let figure = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
    let mut words: Vec<String> = Vec::new();
    let mut open = false;
    for word in text.split_whitespace() {
        match words.last_mut().filter(|_| open && !figure(word)) {
            Some(last) => {
                last.push(' ');
                last.push_str(word);
                open = false;
            }
            None => {
                open = figure(word) && !word.ends_with([',', ';', ':']);
                words.push(word.to_owned());
            }
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_not_broken() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("a verylongword b", 4), ["a", "verylongword", "b"]);
        assert_eq!(wrapped("", 4), [""]);
        assert_eq!(
            wrapped("took 5.21 s, seed 1 2 3", 9),
            ["took", "5.21 s,", "seed 1 2", "3"]
        );
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let mut page = Page::new(true, 80);
        page.line(Tone::Bad, "a\x1b[2Jb");
        page.item(Tone::Plain, "x\x07: ", Tone::Plain, "y\x00z");
        assert_eq!(page.finish(), "\x1b[1;31ma?[2Jb\x1b[0m\nx?: y?z\n");
    }
}
