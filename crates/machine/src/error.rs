//! Errors of this machine, one line each.

use std::io;

/// Result of a request to this machine.
pub type Result<T, E = HostError> = std::result::Result<T, E>;

/// Failed request to this machine.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The kernel refused.
    #[error("cannot {operation} {object}: {}{}{}", cause_text(.cause), bracketed(.detail), hinted(.hint))]
    Refused {
        /// Operation, as a verb: `create`, `bring up`.
        operation: &'static str,
        /// Object: `namespace wb-pair-a`, `a0`.
        object: String,
        /// Text of the error number.
        #[source]
        cause: io::Error,
        /// Additional message of the kernel, if there is one (extended netlink acknowledgement).
        detail: Option<String>,
        /// Advice for the user.
        hint: Option<String>,
    },
    /// The interface does not exist in this namespace.
    #[error("no interface {name} in {place}{}", alternatives(.nearest, .existing))]
    UnknownInterface {
        /// Name as given.
        name: String,
        /// Searched place: `this network namespace`, `namespace wb-pair-a`.
        place: String,
        /// Similar existing names, best first.
        nearest: Vec<String>,
        /// All existing interfaces.
        existing: Vec<String>,
    },
    /// The named network namespace does not exist.
    #[error("no network namespace {name}{}", alternatives(.nearest, .existing))]
    UnknownNamespace {
        /// Name as given.
        name: String,
        /// Similar existing names, best first.
        nearest: Vec<String>,
        /// All existing named namespaces.
        existing: Vec<String>,
    },
    /// The name is already in use.
    #[error("{object} already exists; remove it with `{command}`")]
    Exists {
        /// Existing object: `namespace wb-pair-a`.
        object: String,
        /// Command that removes it.
        command: String,
    },
    /// Invalid name.
    #[error("{name:?} is not a valid name for {what}: {why}")]
    BadName {
        /// Name as given.
        name: String,
        /// Kind of the object to be named.
        what: &'static str,
        /// Violated rule.
        why: &'static str,
    },
    /// Another run uses the same queue.
    #[error(
        "queue {queue} ({direction}) of {interface} is in use by {holder}; wait for it to end or stop it"
    )]
    QueueHeld {
        /// Interface.
        interface: String,
        /// Queue number.
        queue: u32,
        /// `tx` or `rx`.
        direction: &'static str,
        /// Owner: `process 4711 (wirebench tx -i eth0)`.
        holder: String,
    },
    /// A kernel file has unexpected content.
    #[error("{path}: expected {expected}, got {text:?}")]
    Unreadable {
        /// File.
        path: String,
        /// Content.
        text: String,
        /// Expected content.
        expected: &'static str,
    },
}

impl HostError {
    /// Refusal without detail or hint, for `map_err`.
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

    /// Adds advice to the error if missing privileges were the cause.
    pub(crate) fn or_privilege(mut self, advice: impl FnOnce() -> String) -> Self {
        if let HostError::Refused { cause, hint, .. } = &mut self
            && matches!(cause.raw_os_error(), Some(libc::EPERM | libc::EACCES))
        {
            *hint = Some(advice());
        }
        self
    }

    /// Error number of the kernel, if there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            HostError::Refused { cause, .. } => cause.raw_os_error(),
            _ => None,
        }
    }

    /// Returns true if privileges are missing.
    pub fn is_permission(&self) -> bool {
        matches!(self.errno(), Some(libc::EPERM | libc::EACCES))
    }
}

/// Text of an error without its number (`os error 2`), for messages.
pub fn cause_text(cause: &io::Error) -> String {
    let mut text = cause.to_string();
    if let Some(number) = text.rfind(" (os error ").filter(|_| text.ends_with(')')) {
        text.truncate(number);
    }
    text
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
    // A host with hundreds of containers would make the message too long.
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

/// Up to three names of `existing` that are similar to `name`, best first.
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
            "cannot bring up a0: Operation not permitted (not yours); run as root"
        );
    }
}
