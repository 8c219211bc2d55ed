//! The failure that ended a test, as one line.

use std::io;

use wb_model::{
    cause_text,
    socket::{SocketFailure, SocketStage},
};
use wb_netperf_wire::{AnswerError, Refusal};

use crate::open::errno;

pub(super) fn stage_failure(stage: SocketStage, what: impl Into<String>) -> SocketFailure {
    SocketFailure {
        stage,
        what: what.into(),
        errno: None,
    }
}

/// Failure of a system call, with the system's error text.
pub(super) fn system_failure(stage: SocketStage, what: &str, error: &io::Error) -> SocketFailure {
    SocketFailure {
        stage,
        what: format!("{what}: {}", cause_text(error)),
        errno: errno(error),
    }
}

/// Invalid answer. `what` names the answer that was expected.
pub(super) fn answer_failure(what: &str, error: &AnswerError) -> SocketFailure {
    match error {
        AnswerError::Refused(refusal) => refusal_failure(*refusal),
        AnswerError::Bad(bad) => {
            stage_failure(SocketStage::Control, format!("the server's {what}: {bad}"))
        }
    }
}

fn refusal_failure(refusal: Refusal) -> SocketFailure {
    let what = match refusal.errno() {
        Some(number) => format!(
            "the server could not run the test: {} (remote error {number})",
            cause_text(io::Error::from_raw_os_error(number))
        ),
        None => format!("the server could not run the test: {refusal}"),
    };
    SocketFailure {
        stage: SocketStage::Remote,
        what,
        errno: Some(refusal.code()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_the_servers_system_said() {
        let refusal = Refusal::new(98).unwrap();
        let told = answer_failure("response", &AnswerError::Refused(refusal));
        assert_eq!(told.stage, SocketStage::Remote);
        assert_eq!(told.errno, Some(98));
        assert!(
            told.what.contains("Address already in use"),
            "{}",
            told.what
        );
        let told = answer_failure("response", &AnswerError::Refused(Refusal::UNKNOWN_REQUEST));
        assert!(told.what.contains("unknown request"), "{}", told.what);
    }
}
