//! Plays the steps of a scenario.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fmt::Write as _,
    fs::{self, File},
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

use super::{
    Scenario, Step, combinations,
    expect::{Did, Expect},
};
use crate::wait::{polled, polled_every};

/// Pause between two attempts of a condition: each starts a process.
const PAUSE: Duration = Duration::from_millis(50);

/// Characters of an output that a failure shows.
const SHOWN: usize = 6_000;

/// Environment of a scenario.
pub struct Stage {
    /// Variables of the lab: of the nodes and of their ports.
    pub variables: Vec<(String, String)>,
    /// Search path of the commands.
    pub path: OsString,
}

/// A running command.
struct Going {
    child: Child,
    command: String,
}

impl Drop for Going {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// The steps with the same variables.
struct Play<'a> {
    folder: &'a Path,
    path: &'a OsString,
    variables: Vec<(String, String)>,
    background: BTreeMap<String, Going>,
}

impl Scenario {
    /// Plays all steps.
    ///
    /// # Errors
    /// The step that failed, what it did and what was expected.
    pub fn play(&self, stage: &Stage) -> Result<(), String> {
        for each in combinations(&self.each) {
            let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
            let variables = [&stage.variables[..], &each].concat();
            let mut play = Play {
                folder: folder.path(),
                path: &stage.path,
                variables,
                background: BTreeMap::new(),
            };
            for (name, text) in &self.files {
                let text = play.replace(text);
                fs::write(folder.path().join(name), text)
                    .map_err(|error| format!("{name}: {error}"))?;
            }
            for (number, step) in self.steps.iter().enumerate() {
                for own in combinations(&step.each) {
                    let known = play.variables.len();
                    play.variables.extend(own.iter().cloned());
                    let label = step
                        .name
                        .clone()
                        .unwrap_or_else(|| (number + 1).to_string());
                    play.step(step, &label).map_err(|problem| {
                        let with: String = [&each[..], &own]
                            .concat()
                            .iter()
                            .map(|(name, value)| format!(" {name}={value}"))
                            .collect();
                        format!("step {label}{with}: {problem}{}", play.outputs(&label))
                    })?;
                    play.variables.truncate(known);
                }
            }
        }
        Ok(())
    }
}

impl Play<'_> {
    /// Replaces `$NAME` of each variable.
    fn replace(&self, text: &str) -> String {
        let mut parts = text.split('$');
        let mut whole = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let end = part
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .unwrap_or(part.len());
            let (name, rest) = part.split_at(end);
            match self.variables.iter().rfind(|(known, _)| known == name) {
                Some((_, value)) => whole.push_str(value),
                None => {
                    whole.push('$');
                    whole.push_str(name);
                }
            }
            whole.push_str(rest);
        }
        whole
    }

    fn step(&mut self, step: &Step, label: &str) -> Result<(), String> {
        let deadline = Duration::from_secs(step.within_s);
        if let Some(condition) = &step.after {
            self.wait_for(condition, deadline)?;
        }
        let begun = Instant::now();
        if let Some(run) = &step.run {
            let going = self.start(run, label)?;
            if step.background {
                self.background.insert(label.to_owned(), going);
            } else {
                let expect = step.expect.clone().unwrap_or_default();
                self.end(going, label, &expect, deadline)?;
            }
        }
        if let Some(of) = &step.of {
            let going = self
                .background
                .get_mut(of)
                .ok_or_else(|| format!("{of} has ended"))?;
            if let Some(signal) = step.signal {
                if let Ok(Some(status)) = going.child.try_wait() {
                    return Err(format!("{of} has ended before the signal, {status}"));
                }
                kill_process(Pid::from_child(&going.child), signal.number())
                    .map_err(|error| format!("{of} cannot be signalled: {error}"))?;
            }
            if let Some(expect) = &step.expect
                && let Some(going) = self.background.remove(of)
            {
                self.end(going, of, expect, deadline)?;
            }
        }
        thread::sleep(Duration::from_millis(step.lasts_ms).saturating_sub(begun.elapsed()));
        Ok(())
    }

    /// Repeats a command until it succeeds.
    fn wait_for(&self, condition: &str, deadline: Duration) -> Result<(), String> {
        let said = self.folder.join(".after");
        let mut last = String::new();
        let met = polled_every(PAUSE, deadline, || {
            let status = self
                .bash(condition)
                .stdout(File::create(&said).ok()?)
                .stderr(File::options().append(true).open(&said).ok()?)
                .status()
                .ok()?;
            last = fs::read_to_string(&said).unwrap_or_default();
            status.success().then_some(())
        });
        met.ok_or_else(|| format!("not within {deadline:?}: {condition}\n{last}"))
    }

    fn bash(&self, script: &str) -> Command {
        let mut command = Command::new("bash");
        command
            .args(["-e", "-u", "-o", "pipefail", "-c", script])
            .current_dir(self.folder)
            .env("PATH", self.path)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .process_group(0);
        command
    }

    fn output_of(&self, label: &str, stream: &str) -> PathBuf {
        self.folder.join(format!("{label}.{stream}"))
    }

    fn start(&self, run: &str, label: &str) -> Result<Going, String> {
        let file = |stream: &str| {
            let path = self.output_of(label, stream);
            File::create(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let child = self
            .bash(run)
            .stdout(file("out")?)
            .stderr(file("err")?)
            .spawn()
            .map_err(|error| format!("bash: {error}"))?;
        Ok(Going {
            child,
            command: run.trim().to_owned(),
        })
    }

    /// Waits for the end and judges it.
    fn end(
        &self,
        mut going: Going,
        label: &str,
        expect: &Expect,
        deadline: Duration,
    ) -> Result<(), String> {
        let command = going.command.clone();
        let ended = polled(deadline, || going.child.try_wait().ok().flatten());
        let Some(status) = ended else {
            return Err(format!(
                "still running after {deadline:?}\n$ {command}\n{}",
                threads_of(going.child.id())
            ));
        };
        let read = |stream: &str| fs::read(self.output_of(label, stream)).unwrap_or_default();
        let did = Did {
            exit: exit_of(status),
            stdout: read("out"),
            stderr: read("err"),
        };
        let wrong = expect.wrong(&did, self.folder, &|text| self.replace(text));
        if !wrong.is_empty() {
            return Err(format!("\n$ {command}\n{}", wrong.join("\n")));
        }
        let values = serde_json::Deserializer::from_slice(&did.stdout).into_iter::<Value>();
        if let Ok(values) = values.collect::<Result<Vec<Value>, _>>()
            && let Some(report) = values.last()
        {
            crate::assert_adds_up(report);
        }
        Ok(())
    }

    /// The outputs of all steps, that of the failed step first, without what would be too long.
    fn outputs(&self, failed: &str) -> String {
        let mut files: Vec<PathBuf> = fs::read_dir(self.folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| {
                path.extension()
                    .is_some_and(|end| end == "out" || end == "err")
            })
            .collect();
        let is_other = |path: &PathBuf| path.file_stem() != Some(OsStr::new(failed));
        files.sort_by_key(|path| (is_other(path), path.clone()));
        let mut all = String::new();
        for path in files {
            let bytes = fs::read(&path).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            let most = if is_other(&path) { SHOWN / 4 } else { SHOWN };
            let shown: String = text.chars().take(most).collect();
            if !shown.is_empty() {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let _ = write!(all, "\n--- {name}, {} bytes\n{shown}", bytes.len());
            }
        }
        all
    }
}

/// Exit code, or -N for signal N.
fn exit_of(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| -status.signal().unwrap_or(0))
}

/// Name, state and place in the kernel of each thread of a process.
fn threads_of(process: u32) -> String {
    let tasks = fs::read_dir(format!("/proc/{process}/task"));
    let of_one = |task: fs::DirEntry| {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let status = read("status");
        let state = status.lines().find(|line| line.starts_with("State:"));
        format!(
            "{} {} {}\n",
            read("comm").trim(),
            state.unwrap_or_default(),
            read("wchan")
        )
    };
    tasks.into_iter().flatten().flatten().map(of_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn play(text: &str) -> Result<(), String> {
        let stage = Stage {
            variables: vec![
                ("a".to_owned(), "node".to_owned()),
                ("a0".to_owned(), "port".to_owned()),
            ],
            path: std::env::var_os("PATH").unwrap_or_default(),
        };
        Scenario::parse(text).unwrap().play(&stage)
    }

    #[test]
    fn steps_follow_each_other_and_see_what_came_before() {
        play(
            r#"
            [files]
            "plan" = "$a of $a0, $all, $\n"
            [[step]]
            name = "first"
            run = "cat plan; echo $a0"
            expect.stdout = "node of port, $all, $\nport\n"
            [[step]]
            run = "wc -l <first.out"
            each = { size = ["64", "128"] }
            expect.stdout = "2"
            expect.lacks = "$size"
            "#,
        )
        .unwrap();
    }

    #[test]
    fn a_step_in_the_background_gets_signals_and_is_expected_to_end() {
        play(
            r#"
            [[step]]
            name = "server"
            run = "trap 'exit 7' TERM; echo ready; while :; do read -t 0.01 <> <(:) || :; done"
            background = true
            [[step]]
            after = "grep ready server.out"
            of = "server"
            signal = "TERM"
            expect.exit = 7
            "#,
        )
        .unwrap();
    }

    #[test]
    #[should_panic(expected = "offered_frames")]
    fn reports_that_do_not_add_up_fail() {
        let _ = play(
            r#"
            [[step]]
            run = "echo '{}'; echo '{\"totals\": {\"intended_frames\": 3, \"offered_frames\": 1, \"unsent_frames\": 1}}'"
            "#,
        );
    }

    #[test]
    fn a_process_that_has_ended_gets_no_signal() {
        let said = play(
            r#"
            [[step]]
            name = "short"
            run = "echo $$"
            background = true
            [[step]]
            after = "grep -q Z /proc/$(cat short.out)/stat"
            of = "short"
            signal = "STOP"
            "#,
        );
        assert!(said.unwrap_err().contains("has ended before the signal"));
    }

    #[test]
    fn failures_say_what_was_expected() {
        let said = play("[[step]]\nname = 'x'\nrun = 'echo hello; exit 3'\nexpect.stdout = 'bye'")
            .unwrap_err();
        for part in [
            "step x",
            "exit code is 3",
            "lacks \"bye\"",
            "--- x.out, 6 bytes\nhello",
        ] {
            assert!(said.contains(part), "{said}");
        }
        let said = play("[[step]]\nafter = 'echo not yet; false'\nwithin_s = 0\nrun = 'true'")
            .unwrap_err();
        assert!(
            said.contains("not within 0ns: echo not yet; false\nnot yet"),
            "{said}"
        );
        let said = play("[[step]]\nrun = 'read <> <(:)'\nwithin_s = 0").unwrap_err();
        assert!(said.contains("still running"), "{said}");
    }
}
