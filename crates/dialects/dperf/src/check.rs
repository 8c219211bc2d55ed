//! Check of a whole configuration file, with its problems in the order of the lines.

use crate::config::Config;
use crate::parse::read;
use crate::problem::{Problem, accepted};
use crate::rules::{self, RuleViolation};

impl Config {
    /// Checks the rules between keywords. With `strict`, dperf's own rules and limits apply, and no error means that
    /// dperf 1.9 accepts the file. Otherwise ours apply, and no error means that the configuration can be run.
    ///
    /// Does not open payload files or devices: their existence, and the size of a payload file, are checked by the
    /// caller.
    #[must_use]
    pub fn check(&self, strict: bool) -> Vec<Problem> {
        rules::all_violations(self, strict)
            .into_iter()
            .map(|f| self.problem(f))
            .collect()
    }

    fn problem(&self, finding: RuleViolation) -> Problem {
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

/// Reads and checks a file. Returns the problems of single lines or, if every line could be read, all
/// problems. Rules between keywords are skipped otherwise, since a misspelt line would cause misleading errors.
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
