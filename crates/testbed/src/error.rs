//! Why a lab could not be made, found or removed.

use std::io;

use wb_host::HostError;
use wb_port::PortError;

/// The result of working on a lab.
pub type Result<T, E = TestbedError> = std::result::Result<T, E>;

/// What can go wrong with labs, in one line each.
#[derive(Debug, thiserror::Error)]
pub enum TestbedError {
    /// The user asked for something that cannot be; all that is wrong with it.
    #[error("{0}")]
    Input(String),
    /// There is a lab of that name.
    #[error(
        "lab {name} exists already; remove it with `wirebench lab down {name}` or choose another name with `--as NAME`"
    )]
    Exists {
        /// Its name.
        name: String,
    },
    /// There is no lab of that name.
    #[error("no lab {name}; {}", alternatives(.existing))]
    Unknown {
        /// The name as given.
        name: String,
        /// The labs there are.
        existing: Vec<String>,
    },
    /// The lab needs a program that is not there.
    #[error(
        "the lab needs {program}, which is not installed; `apt-get install {package}` brings it"
    )]
    Missing {
        /// Its name.
        program: &'static str,
        /// The Debian package it is in.
        package: &'static str,
    },
    /// The folder of labs belongs to somebody else.
    #[error(
        "{folder} cannot be written: a lab that stays needs root; without, `wirebench lab run KIND -- CMD…` \
         makes one that lives as long as a command"
    )]
    Privilege {
        /// The folder.
        folder: String,
    },
    /// The machine refused.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The impairing device could not open its ports.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A file, program or process.
    #[error("cannot {operation} {object}: {cause}")]
    Io {
        /// What was tried, as a verb.
        operation: &'static str,
        /// What it was tried on.
        object: String,
        /// Why it failed.
        #[source]
        cause: io::Error,
    },
    /// A program that was called did not do its work.
    #[error("`{command}` failed: {message}")]
    Command {
        /// As one would type it.
        command: String,
        /// What it said.
        message: String,
    },
    /// The device under test did not start.
    #[error("the device did not start: {message}")]
    Device {
        /// What it said.
        message: String,
    },
    /// A signal came while the lab was being made.
    #[error("interrupted by signal {signal}")]
    Interrupted {
        /// Its number.
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

    /// Whether privileges are what is missing.
    pub fn is_permission(&self) -> bool {
        match self {
            Self::Host(error) => error.is_permission(),
            Self::Privilege { .. } | Self::Port(PortError::Privilege { .. }) => true,
            Self::Io { cause, .. } => cause.kind() == io::ErrorKind::PermissionDenied,
            _ => false,
        }
    }

    /// Whether the user's words are at fault, and not the machine.
    pub fn is_input(&self) -> bool {
        matches!(
            self,
            Self::Input(_) | Self::Exists { .. } | Self::Unknown { .. } | Self::Missing { .. }
        )
    }
}

fn alternatives(existing: &[String]) -> String {
    match existing {
        [] => "there are none, `wirebench lab up pair` makes one".into(),
        labs => format!("there are: {}", labs.join(", ")),
    }
}
