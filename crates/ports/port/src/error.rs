//! What can go wrong with a port, and whose doing it is.

use std::io;

use crate::offload::Refusal;

/// An error of a port. The message names the operation, the object and the cause.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The user asked for something that cannot be: unknown interface, bad locator, queue out of range.
    #[error("{port}: {what}")]
    Input {
        /// The port as the user wrote it.
        port: String,
        /// What is wrong and what is allowed.
        what: String,
    },
    /// A privilege is missing.
    #[error("{port}: {what}; {command}")]
    Privilege {
        /// The port as the user wrote it.
        port: String,
        /// Which privilege, for what.
        what: String,
        /// The command that grants it.
        command: String,
    },
    /// The machine or the interface cannot do it (no XDP, queue taken, link down at start).
    #[error("{port}: {what}")]
    Unsupported {
        /// The port as the user wrote it.
        port: String,
        /// What, why, and the command that would change it.
        what: String,
    },
    /// A port of the live driver cannot send or account for this by itself.
    #[error("{port}: the live driver cannot do this: {why}; {}", .why.advice())]
    Offload {
        /// The port as the user wrote it.
        port: String,
        /// Why not.
        why: Refusal,
    },
    /// The link is down; what was submitted waits.
    #[error("{port}: link is down")]
    LinkDown {
        /// The port.
        port: String,
    },
    /// The interface or its namespace has vanished during the run.
    #[error("{port}: the interface is gone")]
    Gone {
        /// The port.
        port: String,
    },
    /// A recorded port has no more frames.
    #[error("{port}: end of file")]
    EndOfFile {
        /// The port.
        port: String,
    },
    /// A system call failed in a way that has no better name.
    #[error("{port}: {operation}: {cause}")]
    Io {
        /// The port.
        port: String,
        /// What was tried.
        operation: String,
        /// Why it failed.
        #[source]
        cause: io::Error,
    },
}

impl PortError {
    /// The command that grants a program all that any driver may need: whoever types it once is not told
    /// another one by the next driver.
    #[must_use]
    pub fn command_granting() -> String {
        let program = std::env::current_exe()
            .map_or_else(|_| "wirebench".into(), |path| path.display().to_string());
        format!(
            "sudo setcap cap_net_raw,cap_net_admin,cap_bpf,cap_perfmon,cap_sys_admin,cap_ipc_lock+ep {program}"
        )
    }

    /// What is wrong, without the port: for who says which it is, or takes another way.
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
            } => format!("{operation}: {cause}"),
        }
    }

    /// Whether the run may go on and try again (link down), as against being over.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::LinkDown { .. })
    }
}
