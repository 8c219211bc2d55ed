//! Scenarios: tests of the binary as TOML files. CONTRIBUTING.md describes the keys.

mod bound;
mod expect;
mod play;

use std::{collections::BTreeMap, fs, path::Path};

use serde::Deserialize;

pub use play::Stage;

/// A scenario file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Kind and options of the lab, as for `lab up`.
    #[serde(default)]
    pub lab: Option<String>,
    /// Programs without which the scenario is skipped.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Files in the working folder. `$NAME` of a variable of the lab is replaced.
    #[serde(default)]
    files: BTreeMap<String, String>,
    /// The steps are played once for each combination of these variables.
    #[serde(default)]
    each: Each,
    #[serde(rename = "step")]
    steps: Vec<Step>,
}

/// Variables with the values that they take.
type Each = BTreeMap<String, Vec<String>>;

/// A step. It begins when the previous one has ended or runs in the background.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    /// Name: the output is in the files NAME.out and NAME.err of the working folder.
    #[serde(default)]
    name: Option<String>,
    /// A bash command that must succeed before the step begins. It is repeated until then.
    #[serde(default)]
    after: Option<String>,
    /// Bash command.
    #[serde(default)]
    run: Option<String>,
    /// Runs while the next steps are played.
    #[serde(default)]
    background: bool,
    /// The name of a step in the background, to which the signal goes, or which is expected to end.
    #[serde(default)]
    of: Option<String>,
    #[serde(default)]
    signal: Option<Signal>,
    /// The next step begins this long after this one at the earliest: the length of a disturbance, in ms.
    #[serde(default)]
    lasts_ms: u64,
    /// Deadline of the condition, and of the end, in s.
    #[serde(default = "within")]
    within_s: u64,
    #[serde(default)]
    expect: Option<expect::Expect>,
    #[serde(default)]
    each: Each,
}

/// Deadline of a step, unless it sets one, in s.
const fn within() -> u64 {
    150
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Signal {
    Alrm,
    Cont,
    Hup,
    Int,
    Kill,
    Pipe,
    Quit,
    Stop,
    Term,
    Tstp,
    Usr1,
    Usr2,
    Winch,
}

impl Signal {
    const fn number(self) -> rustix::process::Signal {
        use rustix::process::Signal as Number;
        match self {
            Self::Alrm => Number::ALARM,
            Self::Cont => Number::CONT,
            Self::Hup => Number::HUP,
            Self::Int => Number::INT,
            Self::Kill => Number::KILL,
            Self::Pipe => Number::PIPE,
            Self::Quit => Number::QUIT,
            Self::Stop => Number::STOP,
            Self::Term => Number::TERM,
            Self::Tstp => Number::TSTP,
            Self::Usr1 => Number::USR1,
            Self::Usr2 => Number::USR2,
            Self::Winch => Number::WINCH,
        }
    }
}

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    /// Returns the mistake in the file, in one line where possible.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let scenario: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        let lists = scenario.steps.iter().map(|step| &step.each);
        let is_empty = |each: &Each| each.values().any(Vec::is_empty);
        if scenario.steps.is_empty() || lists.chain([&scenario.each]).any(is_empty) {
            return Err("no step, or no value in a list of `each`".to_owned());
        }
        let mut names = Vec::new();
        for (number, step) in scenario.steps.iter().enumerate() {
            let wrong = step.problem(&names);
            if let Some(problem) = wrong {
                return Err(format!("step {}: {problem}", number + 1));
            }
            if step.background {
                names.extend(step.name.as_deref());
            }
        }
        Ok(scenario)
    }
}

impl Step {
    fn problem(&self, background: &[&str]) -> Option<String> {
        if let Some(of) = self.of.as_deref().filter(|of| !background.contains(of)) {
            return Some(format!("no earlier step in the background is named {of:?}"));
        }
        let problem = match (&self.run, &self.of) {
            (Some(_), Some(_)) => "either `run` or `of`",
            (None, None) if self.signal.is_some() => "`signal` needs `of`",
            (None, None) if self.expect.is_some() => "`expect` needs `run` or `of`",
            (Some(_), None) if self.signal.is_some() => "`signal` needs `of`",
            (Some(_), None) if self.background && self.name.is_none() => {
                "a step in the background needs a `name`"
            }
            (Some(_), None) if self.background && self.expect.is_some() => {
                "what to expect of a step in the background belongs to a later step with `of`"
            }
            (None, _) if self.background => "only `run` can be in the background",
            _ if self.background && !self.each.is_empty() => {
                "a step in the background cannot have `each`"
            }
            _ => return None,
        };
        Some(problem.to_owned())
    }
}

/// Each combination of the values, as variables.
fn combinations(each: &Each) -> Vec<Vec<(String, String)>> {
    each.iter()
        .fold(vec![Vec::new()], |before, (name, values)| {
            let with = |known: &Vec<(String, String)>, value: &String| {
                [&known[..], &[(name.clone(), value.clone())]].concat()
            };
            before
                .iter()
                .flat_map(|known| values.iter().map(|value| with(known, value)))
                .collect()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_combined() {
        let each = BTreeMap::from([
            (
                "driver".to_owned(),
                vec!["packet".to_owned(), "xdp".to_owned()],
            ),
            ("size".to_owned(), vec!["64".to_owned(), "imix".to_owned()]),
        ]);
        let names: Vec<String> = combinations(&each)
            .iter()
            .map(|one| format!("{} {}", one[0].1, one[1].1))
            .collect();
        assert_eq!(names, ["packet 64", "packet imix", "xdp 64", "xdp imix"]);
        assert_eq!(combinations(&Each::new()), [[]]);
    }

    #[test]
    fn wrong_files_are_refused() {
        for (text, problem) in [
            ("[[step]]\nrun = 'x'\nruns = 'y'", "unknown field `runs`"),
            (
                "[[step]]\nof = 'x'",
                "step 1: no earlier step in the background is named \"x\"",
            ),
            (
                "[[step]]\nrun = 'x'\nbackground = true",
                "step 1: a step in the background needs a `name`",
            ),
            (
                "[[step]]\nrun = 'x'\n[[step]]\nsignal = 'INT'",
                "step 2: `signal` needs `of`",
            ),
            (
                "[[step]]\nrun = 'x'\neach.a = []",
                "no value in a list of `each`",
            ),
            (
                "[[step]]\nname = 'x'\nrun = 'x'\nbackground = true\neach.a = ['1']",
                "cannot have `each`",
            ),
            (
                "[[step]]\nrun = 'x'\nexpect.json = { '.a' = '>= x' }",
                "`>= x` is no bound",
            ),
        ] {
            let said = Scenario::parse(text).unwrap_err();
            assert!(said.contains(problem), "{text}: {said}");
        }
    }
}
