//! Findings of `doctor` as text: a line that counts the worst, then one entry for each finding.

use schemars::JsonSchema;
use serde::Serialize;

use crate::page::{Page, Tone};

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// No problem.
    Ok,
    /// Good to know.
    Note,
    /// Spoils some measurements.
    Warn,
    /// Prevents something.
    Problem,
}

impl Level {
    /// `ok`, `note`, `warn` or `problem`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warn => "warn",
            Self::Problem => "problem",
        }
    }

    const fn tone(self) -> Tone {
        match self {
            Self::Ok => Tone::Good,
            Self::Note => Tone::Plain,
            Self::Warn => Tone::Doubt,
            Self::Problem => Tone::Bad,
        }
    }
}

/// One finding about the machine or an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finding {
    /// Severity.
    pub level: Level,
    /// Topic: `kernel`, `queues`.
    pub topic: String,
    /// The finding, in a sentence.
    pub text: String,
    /// Command that would change the finding.
    pub fix: Option<String>,
}

/// The findings in the given order, below a line that counts problems and warnings.
#[must_use]
pub fn text(findings: &[Finding], color: bool, width: usize) -> String {
    let mut page = Page::new(color, width);
    let number = |level| findings.iter().filter(|f| f.level == level).count();
    let (problems, warnings) = (number(Level::Problem), number(Level::Warn));
    let (tone, headline) = match (problems, warnings) {
        (0, 0) => (Tone::Good, "No problems found.".to_owned()),
        (0, w) => (Tone::Doubt, format!("{}.", plural(w, "warning"))),
        (p, 0) => (Tone::Bad, format!("{}.", plural(p, "problem"))),
        (p, w) => (
            Tone::Bad,
            format!("{}, {}.", plural(p, "problem"), plural(w, "warning")),
        ),
    };
    page.line(tone, &headline);
    page.gap();
    let topics = findings
        .iter()
        .map(|f| f.topic.chars().count())
        .max()
        .unwrap_or(0);
    for f in findings {
        let label = format!("{:<7}  {:<topics$}  ", f.level.name(), f.topic);
        page.item(f.level.tone(), &label, Tone::Plain, &f.text);
        if let Some(fix) = &f.fix {
            // Commands are never broken, so that they can be copied.
            page.line(
                Tone::Head,
                &format!("{}try: {fix}", " ".repeat(label.chars().count())),
            );
        }
    }
    page.finish()
}

fn plural(n: usize, word: &str) -> String {
    wb_model::counted(n, word, &format!("{word}s"))
}
