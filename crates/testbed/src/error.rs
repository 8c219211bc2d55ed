//! Errors of creating, finding and removing labs.

use std::io;

use wb_machine::HostError;
use wb_port::PortError;

/// Result of an operation on a lab.
pub type Result<T, E = TestbedError> = std::result::Result<T, E>;

/// Errors of labs, one line each.
#[derive(Debug, thiserror::Error)]
pub enum TestbedError {
    /// Invalid request of the user; the text lists all problems.
    #[error("{0}")]
    Input(String),
    /// A lab with this name exists.
    #[error(
        "lab {name} already exists; remove it with `wirebench lab down {name}` or choose another name with `--as NAME`"
    )]
    Exists {
        /// Name of the lab.
        name: String,
    },
    /// No lab has this name.
    #[error("no lab {name}; {}", alternatives(.existing))]
    Unknown {
        /// Name as given.
        name: String,
        /// Existing labs.
        existing: Vec<String>,
    },
    /// A program that the lab needs is missing.
    #[error(
        "the lab needs {program}, which is not installed; install it with `apt-get install {package}`"
    )]
    Missing {
        /// Name of the program.
        program: &'static str,
        /// Debian package of the program.
        package: &'static str,
    },
    /// The folder of labs belongs to another user.
    #[error(
        "cannot write {folder}: a permanent lab needs root; without root, use `wirebench lab run KIND -- CMD…` \
         for a lab that exists only during a command"
    )]
    Privilege {
        /// Path of the folder.
        folder: String,
    },
    /// Error of the machine.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The impairing device could not open its ports.
    #[error(transparent)]
    Port(#[from] PortError),
    /// Error of a file, program or process.
    #[error("cannot {operation} {object}: {}", wb_machine::cause_text(.cause))]
    Io {
        /// Operation, as a verb.
        operation: &'static str,
        /// Object of the operation.
        object: String,
        /// Cause of the error.
        #[source]
        cause: io::Error,
    },
    /// A command failed.
    #[error("`{command}` failed: {message}")]
    Command {
        /// Command line.
        command: String,
        /// Output of the command.
        message: String,
    },
    /// A program of the lab did not start.
    #[error("{name} did not start: {message}")]
    NotStarted {
        /// Name of the program in the lab.
        name: String,
        /// Output of the program.
        message: String,
    },
    /// A tool of the self-test failed; the text names it and gives the reason.
    #[error("{0}")]
    Tool(String),
    /// A signal arrived during the creation of the lab or during the self-test.
    #[error("interrupted by signal {signal}")]
    Interrupted {
        /// Number of the signal.
        signal: i32,
    },
}

impl TestbedError {
    pub(crate) fn io<E: Into<io::Error>>(
        operation: &'static str,
        object: impl Into<String>,
    ) -> impl FnOnce(E) -> Self {
        let object = object.into();
        move |cause| Self::Io {
            operation,
            object,
            cause: cause.into(),
        }
    }

    /// Returns true if privileges are missing.
    pub fn is_permission(&self) -> bool {
        match self {
            Self::Host(error) => error.is_permission(),
            Self::Privilege { .. } | Self::Port(PortError::Privilege { .. }) => true,
            Self::Io { cause, .. } => cause.kind() == io::ErrorKind::PermissionDenied,
            _ => false,
        }
    }

    /// Returns true if the user's input is the cause, not the machine.
    pub fn is_input(&self) -> bool {
        matches!(
            self,
            Self::Input(_) | Self::Exists { .. } | Self::Unknown { .. } | Self::Missing { .. }
        )
    }
}

fn alternatives(existing: &[String]) -> String {
    match existing {
        [] => "there are none; create one with `wirebench lab up pair`".into(),
        labs => format!("there are: {}", labs.join(", ")),
    }
}
