//! Counters of a device under test: runs a command locally, in a network namespace or over ssh, and parses its output.
//!
//! A probe runs alongside the packet path, and its failure does not end the run. At its timeout it is killed with all
//! processes that it started. Names of counters are `PROBE.COUNTER`, or `PROBE.INTERFACE.COUNTER`.

mod parse;

use std::{
    collections::BTreeMap,
    io::{self, Read},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use regex::Regex;
use wb_model::bench::{ProbeKind, ProbePlan};

use crate::{HostError, Namespace, descriptors::keep_limit, in_namespace};

/// Maximum output of a command in bytes; the rest is not read.
const MOST_TEXT: u64 = 4 << 20;

/// Counters of a device at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Values that only increase.
    pub counters: BTreeMap<String, u64>,
    /// Values that increase and decrease.
    pub gauges: BTreeMap<String, u64>,
}

/// Error of the setup or of a reading of a probe.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// Invalid regular expression, or one without a group.
    #[error("{name}: {what}")]
    Pattern {
        /// Counter.
        name: String,
        /// Problem.
        what: String,
    },
    /// Namespace error.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The command could not be started or read.
    #[error("cannot run {command}: {}", crate::error::cause_text(.cause))]
    Run {
        /// Command.
        command: String,
        /// Cause.
        #[source]
        cause: io::Error,
    },
    /// The command exceeded its time limit.
    #[error("{command}: timed out after {} ms", .after.as_millis())]
    Timeout {
        /// Command.
        command: String,
        /// Time limit.
        after: Duration,
    },
    /// The command reported a failure.
    #[error("{command}: {said}")]
    Failed {
        /// Command.
        command: String,
        /// First line of its error output.
        said: String,
    },
    /// The output does not have the expected format.
    #[error("{command}: {what}")]
    Text {
        /// Command.
        command: String,
        /// Problem.
        what: String,
    },
}

/// Command that prints counters, for repeated runs.
#[derive(Debug)]
pub struct Probe {
    plan: ProbePlan,
    script: String,
    namespace: Option<Namespace>,
    patterns: Vec<Pattern>,
    /// Connection tracking counts from before the counters wrapped.
    wraps: Mutex<parse::Wraps>,
}

/// Counter of a probe of kind `command`.
#[derive(Debug)]
struct Pattern {
    name: String,
    expression: Regex,
    gauge: bool,
}

impl Probe {
    /// Creates a probe without a first reading.
    ///
    /// # Errors
    /// An unknown namespace, or an invalid regular expression.
    pub fn new(plan: &ProbePlan) -> Result<Self, ProbeError> {
        let patterns = plan
            .counters
            .iter()
            .map(|pattern| (pattern, false))
            .chain(plan.gauges.iter().map(|pattern| (pattern, true)))
            .map(|((name, text), gauge)| Pattern::new(name, text, gauge))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            script: plan.command.clone().unwrap_or_else(|| script(plan)),
            namespace: plan.node.as_deref().map(Namespace::named).transpose()?,
            plan: plan.clone(),
            patterns,
            wraps: Mutex::default(),
        })
    }

    /// Name of the probe, the first part of its counters' names.
    #[must_use]
    pub fn name(&self) -> &str {
        self.plan.title()
    }

    /// Command as a user would type it, including its place.
    #[must_use]
    pub fn command(&self) -> String {
        match (&self.plan.ssh, &self.namespace) {
            (Some(host), _) => format!("ssh {host} {:?}", self.script),
            (None, Some(namespace)) => {
                format!("{}sh -c {:?}", namespace.command_prefix(), self.script)
            }
            (None, None) => self.script.clone(),
        }
    }

    /// Time limit of a reading.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.plan.timeout.0
    }

    /// Reads the counters.
    ///
    /// # Errors
    /// If the command cannot be run, fails, exceeds the time limit, or has unexpected output.
    pub fn read(&self) -> Result<Sample, ProbeError> {
        self.read_within(self.timeout())
    }

    /// Reads the counters with a time limit.
    ///
    /// # Errors
    /// See [`read`](Self::read).
    pub fn read_within(&self, limit: Duration) -> Result<Sample, ProbeError> {
        let text = self.run(limit)?;
        let prefix = self.name();
        let values = match self.plan.kind {
            ProbeKind::Ipvs => parse::ipvs(&text),
            ProbeKind::Dpvs => parse::dpvs(&text),
            ProbeKind::Conntrack => {
                let mut wraps = self.wraps.lock().unwrap_or_else(PoisonError::into_inner);
                parse::conntrack(&text, &mut wraps)
            }
            ProbeKind::Netdev => parse::netdev(&text, &self.plan.interfaces),
            ProbeKind::Ethtool => parse::ethtool(&text),
            ProbeKind::Command => self.matches(&text),
        };
        let values = values.map_err(|what| ProbeError::Text {
            command: self.command(),
            what,
        })?;
        let mut sample = Sample::default();
        for value in values {
            let into = if value.gauge {
                &mut sample.gauges
            } else {
                &mut sample.counters
            };
            into.insert(format!("{prefix}.{}", value.name), value.value);
        }
        Ok(sample)
    }

    fn matches(&self, text: &str) -> Result<Vec<parse::Value>, String> {
        self.patterns
            .iter()
            .map(|pattern| {
                Ok(parse::Value {
                    value: pattern.sum(text)?,
                    name: pattern.name.clone(),
                    gauge: pattern.gauge,
                })
            })
            .collect()
    }

    fn shell(&self) -> Command {
        let mut command = match &self.plan.ssh {
            None => {
                let mut command = Command::new("sh");
                command.arg("-c").arg(&self.script);
                command
            }
            Some(host) => {
                let mut command = Command::new("ssh");
                // No user is present to type a password or confirm a key.
                command.args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "--", host]);
                command.arg(&self.script);
                command
            }
        };
        command
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A separate process group: Ctrl-C does not reach the command, and the whole group can be killed at the
            // timeout.
            .process_group(0);
        keep_limit(&mut command);
        command
    }

    fn spawn(&self) -> Result<Child, ProbeError> {
        let run = |cause| ProbeError::Run {
            command: self.command(),
            cause,
        };
        let mut command = self.shell();
        match &self.namespace {
            Some(namespace) => in_namespace(namespace, || command.spawn())?.map_err(run),
            None => command.spawn().map_err(run),
        }
    }

    fn run(&self, timeout: Duration) -> Result<String, ProbeError> {
        let begin = Instant::now();
        let mut child = self.spawn()?;
        let output = read_aside(child.stdout.take());
        let errors = read_aside(child.stderr.take());
        let text = output.recv_timeout(timeout);
        let mut status = None;
        while text.is_ok() && status.is_none() && begin.elapsed() < timeout {
            status = child.try_wait().ok().flatten();
            if status.is_none() {
                thread::sleep(Duration::from_millis(1));
            }
        }
        let (Ok(text), Some(status)) = (text, status) else {
            end(&mut child);
            return Err(ProbeError::Timeout {
                command: self.command(),
                after: timeout,
            });
        };
        if status.success() {
            return Ok(text);
        }
        let said = errors
            .recv_timeout(Duration::from_millis(100))
            .unwrap_or_default();
        let line = said.lines().find(|line| !line.trim().is_empty());
        Err(ProbeError::Failed {
            command: self.command(),
            said: line.map_or_else(|| status.to_string(), ToOwned::to_owned),
        })
    }
}

impl Pattern {
    fn new(name: &str, text: &str, gauge: bool) -> Result<Self, ProbeError> {
        let wrong = |what: String| ProbeError::Pattern {
            name: name.to_owned(),
            what,
        };
        let expression = regex::RegexBuilder::new(text)
            .multi_line(true)
            .build()
            .map_err(|e| wrong(e.to_string().lines().last().unwrap_or_default().to_owned()))?;
        if expression.captures_len() < 2 {
            return Err(wrong(format!(
                "{text:?} has no capture group; put the number in parentheses: 'packets (\\d+)'"
            )));
        }
        Ok(Self {
            name: name.to_owned(),
            expression,
            gauge,
        })
    }

    /// Sum over all matches.
    fn sum(&self, text: &str) -> Result<u64, String> {
        let mut sum = None;
        for found in self.expression.captures_iter(text) {
            let Some(digits) = found.get(1) else { continue };
            let number: u64 = digits
                .as_str()
                .replace([',', '_'], "")
                .parse()
                .map_err(|_| format!("{}: {:?} is not an integer", self.name, digits.as_str()))?;
            sum = Some(sum.unwrap_or(0) + number);
        }
        sum.ok_or_else(|| format!("{}: no match for {:?}", self.name, self.expression.as_str()))
    }
}

/// Command of the probe's kind.
fn script(plan: &ProbePlan) -> String {
    match plan.kind {
        ProbeKind::Ipvs => "ipvsadm -ln --stats --exact".to_owned(),
        ProbeKind::Dpvs => "dpip link show -s".to_owned(),
        ProbeKind::Conntrack => {
            "cd /proc && cat sys/net/netfilter/nf_conntrack_count sys/net/netfilter/nf_conntrack_max && \
             { cat net/stat/nf_conntrack 2>/dev/null || conntrack -S; }"
                .to_owned()
        }
        ProbeKind::Netdev => "cat /proc/net/dev".to_owned(),
        ProbeKind::Ethtool => {
            let each = |i: &String| format!("echo interface {i} && ethtool -S {i}");
            plan.interfaces.iter().map(each).collect::<Vec<_>>().join(" && ")
        }
        ProbeKind::Command => "true".to_owned(),
    }
}

/// Reads to the end on a separate thread, because a pipe has no timeout.
fn read_aside(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            let _ = pipe.take(MOST_TEXT).read_to_end(&mut bytes);
        }
        // Fails if the receiver has given up after the timeout.
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

/// Kills a command and all processes that it started.
fn end(child: &mut Child) {
    let group = rustix::process::Pid::from_child(child);
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(text: &str, counters: &[(&str, &str)]) -> Result<Probe, ProbeError> {
        Probe::new(&ProbePlan {
            command: Some(text.to_owned()),
            counters: counters
                .iter()
                .map(|(name, pattern)| ((*name).to_owned(), (*pattern).to_owned()))
                .collect(),
            gauges: [("open".to_owned(), r"^open\s+(\d+)".to_owned())].into(),
            timeout: wb_model::units::Span::from_secs(10),
            ..ProbePlan::default()
        })
    }

    #[test]
    fn places_that_match_are_added() {
        let text = r"printf 'tcp packets 3 bytes 9\nudp packets 4 bytes 2\n open 1\nopen 17\n'";
        let probe = command(text, &[("connections", r"packets (\d+)")]).unwrap();
        let sample = probe.read().unwrap();
        assert_eq!(sample.counters["command.connections"], 7);
        assert_eq!(sample.gauges["command.open"], 17);
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let said = |text: &str| {
            let probe = command(text, &[("n", r"n=(\S+)")]).unwrap();
            probe.read().unwrap_err().to_string()
        };
        assert!(said("echo open 3").contains("n: no match for"));
        assert!(said("echo n=x; echo open 3").contains("\"x\" is not an integer"));
        let text = said("echo no such device >&2; exit 3");
        assert!(text.ends_with("no such device"), "{text}");
        assert!(said("exit 7").contains("exit status: 7"));
        let no_group = command("true", &[("n", "n=\\d+")]).unwrap_err();
        assert!(
            no_group.to_string().contains("has no capture group"),
            "{no_group}"
        );
        assert!(command("true", &[("n", "(")]).is_err());
    }

    #[test]
    fn a_command_without_an_end_is_ended() {
        let mut plan = command("sleep 600 & sleep 600", &[]).unwrap().plan;
        plan.timeout = wb_model::units::Span::from_millis(50);
        let failed = Probe::new(&plan).unwrap().read().unwrap_err();
        assert!(
            failed.to_string().contains("timed out after 50 ms"),
            "{failed}"
        );
        // The command continues although it closed its output.
        plan.command = Some("exec >&- 2>&-; sleep 600".to_owned());
        assert!(matches!(
            Probe::new(&plan).unwrap().read(),
            Err(ProbeError::Timeout { .. })
        ));
    }
}
