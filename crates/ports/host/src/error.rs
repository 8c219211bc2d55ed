//! What can go wrong between us and the machine, in one line each.

use std::io;

/// The result of asking this machine for something.
pub type Result<T, E = HostError> = std::result::Result<T, E>;

/// Why the machine did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The kernel said no.
    #[error("cannot {operation} {object}: {cause}{}{}", bracketed(.detail), hinted(.hint))]
    Refused {
        /// What was tried, as a verb: `create`, `bring up`.
        operation: &'static str,
        /// What it was tried on: `namespace wb-pair-a`, `a0`.
        object: String,
        /// The error number's text.
        #[source]
        cause: io::Error,
        /// What the kernel added to the number, where it did (extended netlink acknowledgement).
        detail: Option<String>,
        /// What to do about it.
        hint: Option<String>,
    },
    /// There is no such interface where it was looked for.
    #[error("no interface {name} in {place}{}", alternatives(.nearest, .existing))]
    UnknownInterface {
        /// The name as given.
        name: String,
        /// Where it was looked for: `this network namespace`, `namespace wb-pair-a`.
        place: String,
        /// Existing names that look alike, best first.
        nearest: Vec<String>,
        /// Every interface there is.
        existing: Vec<String>,
    },
    /// There is no such named network namespace.
    #[error("no network namespace {name}{}", alternatives(.nearest, .existing))]
    UnknownNamespace {
        /// The name as given.
        name: String,
        /// Existing names that look alike, best first.
        nearest: Vec<String>,
        /// Every named namespace there is.
        existing: Vec<String>,
    },
    /// The name to be given is in use.
    #[error("{object} exists already; remove it with `{command}`")]
    Exists {
        /// What exists: `namespace wb-pair-a`.
        object: String,
        /// The command that removes it.
        command: String,
    },
    /// The name cannot be used.
    #[error("{name:?} cannot be the name of {what}: {why}")]
    BadName {
        /// The name as given.
        name: String,
        /// What it should have named.
        what: &'static str,
        /// The rule that was broken.
        why: &'static str,
    },
    /// Another run works on the same queue.
    #[error(
        "queue {queue} ({direction}) of {interface} is in use by {holder}; wait for it to end or stop it"
    )]
    QueueHeld {
        /// The interface.
        interface: String,
        /// The queue's number.
        queue: u32,
        /// `tx` or `rx`.
        direction: &'static str,
        /// Who has it: `process 4711 (wirebench tx -i eth0)`.
        holder: String,
    },
    /// A file of the kernel says something that was not expected.
    #[error("cannot make sense of {path}: {text:?} where {expected} was expected")]
    Unreadable {
        /// The file.
        path: String,
        /// What it says.
        text: String,
        /// What it should say.
        expected: &'static str,
    },
}

impl HostError {
    /// A refusal with nothing to add, for `map_err`.
    pub(crate) fn refused<E: Into<io::Error>>(
        operation: &'static str,
        object: impl Into<String>,
    ) -> impl FnOnce(E) -> Self {
        let object = object.into();
        move |cause| {
            let cause = cause.into();
            let hint = (cause.raw_os_error() == Some(libc::EMFILE))
                .then(|| "raise the limit of open files (ulimit -n)".to_owned());
            HostError::Refused {
                operation,
                object,
                cause,
                detail: None,
                hint,
            }
        }
    }

    /// True if the limit of open files was reached.
    pub fn is_out_of_descriptors(&self) -> bool {
        matches!(self.errno(), Some(libc::EMFILE | libc::ENFILE))
    }

    /// The same error with advice, which is given only where privileges were the cause.
    pub(crate) fn or_privilege(mut self, advice: impl FnOnce() -> String) -> Self {
        if let HostError::Refused { cause, hint, .. } = &mut self
            && matches!(cause.raw_os_error(), Some(libc::EPERM | libc::EACCES))
        {
            *hint = Some(advice());
        }
        self
    }

    /// The kernel's error number, where the kernel gave one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            HostError::Refused { cause, .. } => cause.raw_os_error(),
            _ => None,
        }
    }

    /// Whether privileges are what is missing.
    pub fn is_permission(&self) -> bool {
        matches!(self.errno(), Some(libc::EPERM | libc::EACCES))
    }
}

fn bracketed(detail: &Option<String>) -> String {
    detail
        .as_ref()
        .map(|d| format!(" ({d})"))
        .unwrap_or_default()
}

fn hinted(hint: &Option<String>) -> String {
    hint.as_ref().map(|h| format!("; {h}")).unwrap_or_default()
}

fn alternatives(nearest: &[String], existing: &[String]) -> String {
    // A host with hundreds of containers would drown the sentence.
    const SHOWN: usize = 20;
    let mut text = String::new();
    if !nearest.is_empty() {
        text += &format!("; did you mean {}?", nearest.join(" or "));
    }
    if existing.is_empty() {
        text += "; there are none";
    } else {
        text += &format!(
            "; there are: {}",
            existing[..existing.len().min(SHOWN)].join(", ")
        );
        if existing.len() > SHOWN {
            text += &format!(" and {} more", existing.len() - SHOWN);
        }
    }
    text
}

/// Those of `existing` that `name` may have meant: at most three, best first.
pub(crate) fn nearest(name: &str, existing: &[String]) -> Vec<String> {
    wb_model::nearest(name, existing.iter().map(String::as_str))
        .into_iter()
        .take(3)
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_one_line() {
        let existing: Vec<String> = ["lo", "eth0"].map(String::from).to_vec();
        let error = HostError::UnknownInterface {
            name: "eth9".into(),
            place: "namespace wb-pair-a".into(),
            nearest: nearest("eth9", &existing),
            existing,
        };
        assert_eq!(
            error.to_string(),
            "no interface eth9 in namespace wb-pair-a; did you mean eth0?; there are: lo, eth0"
        );
        let error = HostError::Refused {
            operation: "bring up",
            object: "a0".into(),
            cause: io::Error::from_raw_os_error(libc::EPERM),
            detail: Some("not yours".into()),
            hint: None,
        }
        .or_privilege(|| "run as root".into());
        assert_eq!(
            error.to_string(),
            "cannot bring up a0: Operation not permitted (os error 1) (not yours); run as root"
        );
    }
}
