//! Invalid messages, and refusals of a server.

use std::num::NonZeroI32;

use crate::framer::Generation;
use crate::words::WordWriter;

/// An invalid message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMessage {
    /// No generation has messages of this length.
    #[error("control message must have 656 bytes (256 from old peers), got {0}")]
    Length(usize),
    /// A field has a harmful value.
    #[error("control message: {field} must be {allowed}, got {value}")]
    Field {
        /// Name of the field in netperf.
        field: &'static str,
        /// Value of the field, as a signed number.
        value: i64,
        /// Allowed values.
        allowed: &'static str,
    },
}

/// Reason why the expected answer is missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The server refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The answer is invalid.
    #[error(transparent)]
    Bad(#[from] BadMessage),
}

/// Refusal of a server: an error number of its operating system, or one of four codes.
///
/// A refusal may replace a response or results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("remote error {0}{name}", name = self.name())]
pub struct Refusal(NonZeroI32);

impl Refusal {
    /// EINVAL of Linux: a request with a [`BadMessage`].
    pub const INVALID: Self = Self::from_code(22);
    /// A request of unknown type.
    pub const UNKNOWN_REQUEST: Self = Self::from_code(998);
    /// A classic TCP_RR server could not send its response.
    pub const SEND_FAILED: Self = Self::from_code(992);
    /// Wrong passphrase. Usual servers close the connection instead.
    pub const WRONG_PASSPHRASE: Self = Self::from_code(403);

    /// `code` must not be 0.
    const fn from_code(code: i32) -> Self {
        match NonZeroI32::new(code) {
            Some(code) => Self(code),
            None => panic!("code 0 means success"),
        }
    }

    /// Returns the refusal with this code, or `None` for 0, which means success.
    pub fn new(code: i32) -> Option<Self> {
        NonZeroI32::new(code).map(Self)
    }

    /// Returns the code as it is sent.
    pub fn code(self) -> i32 {
        self.0.get()
    }

    /// Returns the error number of the server's operating system, if the code is one (1 to 133 on Linux).
    pub fn errno(self) -> Option<i32> {
        (1..=133).contains(&self.code()).then(|| self.code())
    }

    fn name(self) -> &'static str {
        match self {
            Self::UNKNOWN_REQUEST => " (unknown request type)",
            Self::SEND_FAILED => " (sending the response failed)",
            Self::WRONG_PASSPHRASE => " (passphrase mismatch)",
            _ => "",
        }
    }

    /// Encodes the refusal. `answer_type` is the type of the answer that it replaces, see
    /// [`Request::answer_type`](crate::Request::answer_type).
    pub fn encode(self, answer_type: i32, generation: Generation) -> Vec<u8> {
        WordWriter::new(generation, answer_type, self.code()).finish()
    }
}
