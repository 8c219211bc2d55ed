//! Errors that keep a run from starting.

use wb_machine::HostError;
use wb_model::PlanError;
use wb_port::PortError;

/// Failure before the start: bad input, a missing privilege, or a machine that cannot do it. Exit code 2.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The plan itself is invalid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The machine refused an operation on a port.
    #[error("{port}: {cause}")]
    Host {
        /// The port as the user wrote it.
        port: String,
        /// Error of the host.
        #[source]
        cause: Box<HostError>,
    },
    /// The machine refused an operation that concerns no particular port.
    #[error(transparent)]
    Machine(Box<HostError>),
    /// A port could not be opened.
    #[error(transparent)]
    Port(#[from] PortError),
    /// Invalid filter; [`wb_machine::expression::ExpressionError::render`] shows the place.
    #[error("{}", .0.render())]
    Filter(Box<wb_machine::expression::ExpressionError>),
    /// The output of a capture could not be opened.
    #[error(transparent)]
    Output(Box<dyn std::error::Error + Send + Sync>),
    /// A stream does not fit a port.
    #[error("{place}: {what}")]
    Stream {
        /// Name of the port or stream.
        place: String,
        /// Description of the problem and of the allowed values.
        what: String,
    },
    /// A signal arrived before the start. Exit code 128 + n.
    #[error("ended by {} before the start", signal_name(*.0))]
    Interrupted(i32),
    /// The start that was asked for could not be kept. Nothing was sent.
    #[error("cannot start at the requested time, which is {:.3} s before the earliest possible start", *late_ns as f64 / 1e9)]
    TooLate {
        /// Time from the requested start to the earliest possible one, in ns.
        late_ns: u64,
    },
    /// A system operation failed, such as starting a thread.
    #[error("cannot {operation}: {}", wb_machine::cause_text(.cause))]
    System {
        /// Name of the operation.
        operation: &'static str,
        /// Cause of the failure.
        #[source]
        cause: std::io::Error,
    },
}

impl StartError {
    /// The machine refused an operation on this port.
    pub fn host(port: impl ToString, cause: HostError) -> Self {
        Self::Host {
            port: port.to_string(),
            cause: Box::new(cause),
        }
    }

    /// The machine refused an operation.
    #[must_use]
    pub fn machine(cause: HostError) -> Self {
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

    /// A stream or a port, with a problem.
    pub fn stream(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Stream {
            place: place.into(),
            what: what.into(),
        }
    }
}

/// Number in place of a signal, for runs that another program ends: no signal was sent.
pub const STOP_REQUEST: i32 = -1;

/// Number in place of a signal, for a part of a run that ends because its controller has not renewed its lease.
pub const LEASE_END: i32 = -2;

/// Returns the name of a signal, such as `SIGINT`.
#[must_use]
pub fn signal_name(n: i32) -> String {
    match n {
        STOP_REQUEST => "a request to stop".to_owned(),
        LEASE_END => "the end of its lease".to_owned(),
        1 => "SIGHUP".to_owned(),
        2 => "SIGINT".to_owned(),
        14 => "SIGALRM".to_owned(),
        15 => "SIGTERM".to_owned(),
        n => format!("signal {n}"),
    }
}
