//! Everything that is wrong with a file, in the order of its lines.

use crate::config::Config;
use crate::parse::read;
use crate::problem::{Problem, accepted};
use crate::rules::{self, Finding};

impl Config {
    /// What does not go together in it. `strict`: by dperf's own rules and limits, so that no error
    /// means that dperf 1.9 takes it; else by ours, so that no error means that it can be run.
    ///
    /// Whether a payload file exists and fits one packet, and whether the devices are there, is for
    /// those to say who can look.
    #[must_use]
    pub fn check(&self, strict: bool) -> Vec<Problem> {
        rules::all(self, strict)
            .into_iter()
            .map(|f| self.problem(f))
            .collect()
    }

    fn problem(&self, finding: Finding) -> Problem {
        let line = finding
            .line
            .or_else(|| finding.keywords.iter().find_map(|k| self.places.line(k, 0)));
        Problem {
            file: self.places.file.clone(),
            line,
            code: finding.code,
            severity: finding.code.severity(),
            text: finding.text,
            allowed: finding.allowed,
        }
    }
}

/// Reads and checks a file. Returns all problems of single lines or, if every line could be read, all
/// problems at once: what a misspelt line leaves out would only hide the mistake.
///
/// `strict` is as in [`Config::check`]. See [`accepted`](crate::accepted) for the verdict.
#[must_use]
pub fn check(name: &str, text: &str, strict: bool) -> Vec<Problem> {
    let (config, mut problems) = read(name, text);
    if accepted(&problems) {
        problems.extend(config.check(strict));
    }
    problems.sort_by_key(|p| p.line.unwrap_or(u32::MAX));
    problems
}
