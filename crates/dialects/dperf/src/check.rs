//! Everything that is wrong with a file, in the order of its lines.

use crate::config::Config;
use crate::parse::read;
use crate::problem::{Code, Problem};
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
            .filter(|f| !f.keywords.iter().any(|k| self.places.broken.contains(k)))
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

/// Reads and checks a file: all its problems at once. Rules that depend on a keyword whose line could
/// not be read are left out, so that one mistake is told once.
///
/// `strict` is as in [`Config::check`]. See [`accepted`](crate::accepted) for the verdict.
#[must_use]
pub fn check(name: &str, text: &str, strict: bool) -> Vec<Problem> {
    let (config, mut problems) = read(name, text);
    // A misspelt keyword may be any of those that are missing.
    let misspelt = problems.iter().any(|p| p.code == Code::Keyword);
    problems.extend(
        config
            .check(strict)
            .into_iter()
            .filter(|p| !(misspelt && p.line.is_none())),
    );
    problems.sort_by_key(|p| p.line.unwrap_or(u32::MAX));
    problems
}
