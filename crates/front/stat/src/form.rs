//! Output formats of intervals.

use wb_counters::stat_document::{DocumentKind, StatDocument};
use wb_render::stat::{Text, csv, csv_header, json};

/// Output format of intervals and of their average.
#[derive(Debug)]
pub enum StatForm {
    /// Lines for people.
    Text(Text),
    /// One line of JSON for each interval.
    Json,
    /// One row for each interface and interval, behind a header.
    Csv,
}

impl StatForm {
    /// Returns the text before the first interval, if the format has one.
    #[must_use]
    pub fn header(&self) -> Option<String> {
        matches!(self, Self::Csv).then(csv_header)
    }

    /// Returns the text of an interval, or of the average, with the present time of day.
    pub fn line(&mut self, line: &StatDocument) -> String {
        match self {
            Self::Json => json(line),
            Self::Csv => csv(line),
            Self::Text(text) => {
                let now = jiff::Zoned::now().strftime("%H:%M:%S").to_string();
                let average = line.kind == DocumentKind::Average;
                text.line(line, if average { "average" } else { &now })
            }
        }
    }
}
