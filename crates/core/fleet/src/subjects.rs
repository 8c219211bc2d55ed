//! Names at the broker: subjects, buckets and streams.

use std::{fmt, str::FromStr};

/// Bucket with the registration of each agent, by host.
pub const AGENTS_BUCKET: &str = "WB_AGENTS";
/// Bucket with the leading controller.
pub const LEADER_BUCKET: &str = "WB_LEADER";
/// Key of the leading controller in its bucket.
pub const LEADER_KEY: &str = "controller";
/// Stream with the shares of all runs.
pub const SHARES_STREAM: &str = "WB_SHARES";
/// Stream with events and records of runs.
pub const EVENTS_STREAM: &str = "WB_EVENTS";

/// First words of every subject.
const ROOT: &str = "wb.v1";

/// Maximum length of a host name and of a run id.
const LONGEST_NAME: usize = 63;

/// Subject of a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// Presence of an agent.
    Alive {
        /// Host of the agent.
        host: String,
    },
    /// Requests to an agent.
    Control {
        /// Host of the agent.
        host: String,
    },
    /// Start of a run.
    Start {
        /// Run.
        run: String,
    },
    /// Lease of a run.
    Lease {
        /// Run.
        run: String,
    },
    /// Stop of a run.
    Stop {
        /// Run.
        run: String,
    },
    /// Snapshots of a host.
    Snap {
        /// Run.
        run: String,
        /// Host of the agent.
        host: String,
    },
    /// End of the sender of a direction.
    Sent {
        /// Run.
        run: String,
        /// Host of the sender.
        host: String,
        /// Host of the receiver.
        to: String,
        /// First flow of the direction.
        direction: u32,
    },
    /// Share of a host.
    Share {
        /// Run.
        run: String,
        /// Host of the agent.
        host: String,
    },
    /// Events of an agent, or records of a controller under its name.
    Event {
        /// Host of the agent, or name of the controller.
        host: String,
        /// Run; `None` for events that concern no run.
        run: Option<String>,
    },
}

impl Subject {
    /// Patterns of the subjects that an agent subscribes to: its requests, all runs, and the ends of senders to its host.
    #[must_use]
    pub fn for_agent(host: &str) -> Vec<String> {
        vec![
            format!("{ROOT}.ctl.{host}"),
            format!("{ROOT}.run.*.start"),
            format!("{ROOT}.run.*.lease"),
            format!("{ROOT}.run.*.stop"),
            format!("{ROOT}.run.*.sent.*.{host}.*"),
        ]
    }

    /// Pattern of all shares.
    #[must_use]
    pub fn shares() -> String {
        format!("{ROOT}.share.>")
    }

    /// Pattern of all events.
    #[must_use]
    pub fn events() -> String {
        format!("{ROOT}.event.>")
    }

    /// Host in the subject: the sender of presence, snapshots, shares and events, and the receiver of requests.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        match self {
            Self::Alive { host }
            | Self::Control { host }
            | Self::Snap { host, .. }
            | Self::Sent { host, .. }
            | Self::Share { host, .. }
            | Self::Event { host, .. } => Some(host),
            Self::Start { .. } | Self::Lease { .. } | Self::Stop { .. } => None,
        }
    }

    /// Run in the subject.
    #[must_use]
    pub fn run(&self) -> Option<&str> {
        match self {
            Self::Start { run }
            | Self::Lease { run }
            | Self::Stop { run }
            | Self::Snap { run, .. }
            | Self::Sent { run, .. }
            | Self::Share { run, .. } => Some(run),
            Self::Event { run, .. } => run.as_deref(),
            Self::Alive { .. } | Self::Control { .. } => None,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ROOT)?;
        match self {
            Self::Alive { host } => write!(f, ".alive.{host}"),
            Self::Control { host } => write!(f, ".ctl.{host}"),
            Self::Start { run } => write!(f, ".run.{run}.start"),
            Self::Lease { run } => write!(f, ".run.{run}.lease"),
            Self::Stop { run } => write!(f, ".run.{run}.stop"),
            Self::Snap { run, host } => write!(f, ".run.{run}.snap.{host}"),
            Self::Sent {
                run,
                host,
                to,
                direction,
            } => write!(f, ".run.{run}.sent.{host}.{to}.{direction}"),
            Self::Share { run, host } => write!(f, ".share.{run}.{host}"),
            Self::Event { host, run: None } => write!(f, ".event.{host}.agent"),
            Self::Event {
                host,
                run: Some(run),
            } => write!(f, ".event.{host}.run.{run}"),
        }
    }
}

/// Error of a text that is no subject of this program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown subject {0:?}")]
pub struct UnknownSubject(pub String);

impl FromStr for Subject {
    type Err = UnknownSubject;

    fn from_str(text: &str) -> Result<Self, UnknownSubject> {
        let unknown = || UnknownSubject(text.to_owned());
        let rest = text.strip_prefix(ROOT).ok_or_else(unknown)?;
        let words: Vec<&str> = rest
            .strip_prefix('.')
            .ok_or_else(unknown)?
            .split('.')
            .collect();
        let name = |word: &str| match is_name(word) {
            true => Ok(word.to_owned()),
            false => Err(unknown()),
        };
        Ok(match *words.as_slice() {
            ["alive", host] => Self::Alive { host: name(host)? },
            ["ctl", host] => Self::Control { host: name(host)? },
            ["run", run, "start"] => Self::Start { run: name(run)? },
            ["run", run, "lease"] => Self::Lease { run: name(run)? },
            ["run", run, "stop"] => Self::Stop { run: name(run)? },
            ["run", run, "snap", host] => Self::Snap {
                run: name(run)?,
                host: name(host)?,
            },
            ["run", run, "sent", host, to, direction] => Self::Sent {
                run: name(run)?,
                host: name(host)?,
                to: name(to)?,
                direction: direction.parse().map_err(|_| unknown())?,
            },
            ["share", run, host] => Self::Share {
                run: name(run)?,
                host: name(host)?,
            },
            ["event", host, "agent"] => Self::Event {
                host: name(host)?,
                run: None,
            },
            ["event", host, "run", run] => Self::Event {
                host: name(host)?,
                run: Some(name(run)?),
            },
            _ => return Err(unknown()),
        })
    }
}

/// Returns true for a name that is one word of a subject: 1 to 63 letters, digits, hyphens and underscores.
#[must_use]
pub fn is_name(word: &str) -> bool {
    (1..=LONGEST_NAME).contains(&word.len())
        && word
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_read_as_they_are_written() {
        let (run, host) = ("20261126T211500-7f3a".to_owned(), "h1".to_owned());
        let all = [
            Subject::Alive { host: host.clone() },
            Subject::Control { host: host.clone() },
            Subject::Start { run: run.clone() },
            Subject::Lease { run: run.clone() },
            Subject::Stop { run: run.clone() },
            Subject::Snap {
                run: run.clone(),
                host: host.clone(),
            },
            Subject::Sent {
                run: run.clone(),
                host: host.clone(),
                to: "h2".to_owned(),
                direction: 7,
            },
            Subject::Share {
                run: run.clone(),
                host: host.clone(),
            },
            Subject::Event {
                host: host.clone(),
                run: None,
            },
            Subject::Event {
                host,
                run: Some(run),
            },
        ];
        for subject in all {
            assert_eq!(subject.to_string().parse(), Ok(subject));
        }
    }

    #[test]
    fn other_words_are_no_subjects() {
        for text in [
            "",
            "wb.v1",
            "wb.v2.alive.h1",
            "wb.v1.alive.",
            "wb.v1.alive.*",
            "wb.v1.alive.h 1",
            "wb.v1.run.r.snap.>",
            "wb.v1.run.r.sent.h.i.x",
            "wb.v1.run.r.sent.h.7",
            "wb.v1.run.r.snap.h.more",
            "wb.v1.share.r",
        ] {
            assert!(text.parse::<Subject>().is_err(), "{text}");
        }
    }

    #[test]
    fn patterns_cover_the_subjects_of_an_agent() {
        assert_eq!(
            Subject::for_agent("h1"),
            [
                "wb.v1.ctl.h1",
                "wb.v1.run.*.start",
                "wb.v1.run.*.lease",
                "wb.v1.run.*.stop",
                "wb.v1.run.*.sent.*.h1.*",
            ]
        );
    }
}
