//! Errors of ports, by origin: the user, the machine or the device.

use std::io;

use crate::offload::Refusal;

/// Error of a port. The message names the operation, the object and the cause.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// Invalid input: unknown interface, bad locator, queue out of range.
    #[error("{port}: {what}")]
    Input {
        /// Port as the user wrote it.
        port: String,
        /// The problem and the allowed values.
        what: String,
    },
    /// Missing privilege.
    #[error("{port}: {what}; {command}")]
    Privilege {
        /// Port as the user wrote it.
        port: String,
        /// The privilege and its purpose.
        what: String,
        /// Command that grants the privilege.
        command: String,
    },
    /// The machine or the interface lacks support (no XDP, queue in use, link down at start).
    #[error("{port}: {what}")]
    Unsupported {
        /// Port as the user wrote it.
        port: String,
        /// The missing support, the reason and the command that would change it.
        what: String,
    },
    /// The live driver cannot send or count these streams on this port.
    #[error("{port}: not supported by the live driver: {why}; {}", .why.advice())]
    Offload {
        /// Port as the user wrote it.
        port: String,
        /// Reason.
        why: Refusal,
    },
    /// The link is down; submitted frames stay in flight.
    #[error("{port}: link is down")]
    LinkDown {
        /// Port.
        port: String,
    },
    /// The interface or its namespace was removed during the run.
    #[error("{port}: the interface is gone")]
    Gone {
        /// Port.
        port: String,
    },
    /// A recorded port has no more frames.
    #[error("{port}: end of file")]
    EndOfFile {
        /// Port.
        port: String,
    },
    /// Any other failed system call.
    #[error("{port}: cannot {operation}: {}", without_number(.cause))]
    Io {
        /// Port.
        port: String,
        /// Operation that failed, as an infinitive: "open a socket".
        operation: String,
        /// Error of the operation.
        #[source]
        cause: io::Error,
    },
}

impl PortError {
    /// Command that grants a program the privileges of all drivers, so that the user runs one command only once.
    #[must_use]
    pub fn command_granting() -> String {
        let program = std::env::current_exe()
            .map_or_else(|_| "wirebench".into(), |path| path.display().to_string());
        format!(
            "sudo setcap cap_net_raw,cap_net_admin,cap_bpf,cap_perfmon,cap_sys_admin,cap_ipc_lock+ep {program}"
        )
    }

    /// Reason without the port, for callers that name the port themselves or use another driver instead.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Input { what, .. } | Self::Unsupported { what, .. } => what.clone(),
            Self::Privilege { what, command, .. } => format!("{what}; {command}"),
            Self::Offload { why, .. } => why.to_string(),
            Self::LinkDown { .. } => "link is down".to_owned(),
            Self::Gone { .. } => "the interface is gone".to_owned(),
            Self::EndOfFile { .. } => "end of file".to_owned(),
            Self::Io {
                operation, cause, ..
            } => format!("cannot {operation}: {}", without_number(cause)),
        }
    }

    /// Returns true if the run can continue and retry (link down), false if the error ends the run.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::LinkDown { .. })
    }
}

/// The system's error text without its number.
fn without_number(error: &io::Error) -> String {
    let mut text = error.to_string();
    if let Some(end) = text.rfind(" (os error") {
        text.truncate(end);
    }
    text
}
