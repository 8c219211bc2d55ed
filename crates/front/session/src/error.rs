//! Why a run did not start.

use wb_machine::HostError;
use wb_model::PlanError;
use wb_port::PortError;

/// Nothing was started: bad input, a missing privilege, or a machine that cannot do it. Exit code 2.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The plan itself is wrong.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The machine said no.
    #[error("{port}: {cause}")]
    Host {
        /// The port as the user wrote it.
        port: String,
        /// What the host found.
        #[source]
        cause: Box<HostError>,
    },
    /// The machine said no, to a question about no port in particular.
    #[error(transparent)]
    Machine(Box<HostError>),
    /// A port could not be opened.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A filter that is none; [`wb_machine::expression::ExpressionError::render`] shows where.
    #[error("{}", .0.render())]
    Filter(Box<wb_machine::expression::ExpressionError>),
    /// The output of a capture could not be opened.
    #[error(transparent)]
    Output(wb_capture::OutputError),
    /// A stream does not fit a port.
    #[error("{place}: {what}")]
    Stream {
        /// Port or stream.
        place: String,
        /// What is wrong and what is allowed.
        what: String,
    },
    /// A signal came before the start. Exit code 128 + n.
    #[error("ended by {} before the start", crate::settle::signal_name(*.0))]
    Interrupted(i32),
    /// A thread could not be started, or the like.
    #[error("cannot {operation}: {cause}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// Why it failed.
        #[source]
        cause: std::io::Error,
    },
}

impl StartError {
    pub(crate) fn host(port: impl ToString, cause: HostError) -> Self {
        Self::Host {
            port: port.to_string(),
            cause: Box::new(cause),
        }
    }

    pub(crate) fn machine(cause: HostError) -> Self {
        Self::Machine(Box::new(cause))
    }

    /// A thread that could not be started.
    #[must_use]
    pub fn thread(cause: std::io::Error) -> Self {
        Self::System {
            operation: "start a worker",
            cause,
        }
    }

    pub(crate) fn stream(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Stream {
            place: place.into(),
            what: what.into(),
        }
    }
}
