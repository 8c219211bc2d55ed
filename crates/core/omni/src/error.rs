//! What can be wrong with a message, and how a server says no.

use std::num::NonZeroI32;

use crate::framer::Generation;
use crate::words::Writer;

/// A message that cannot be acted upon.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMessage {
    /// No generation has messages of this length.
    #[error("control message of {0} bytes; 656 and, from old peers, 256 are allowed")]
    Length(usize),
    /// A field with a value that would hurt.
    #[error("control message: {field} is {value}; {allowed} is allowed")]
    Field {
        /// The field, in netperf's words.
        field: &'static str,
        /// What it holds, as a signed number.
        value: i64,
        /// What it may hold.
        allowed: &'static str,
    },
}

/// Why there is no answer of the kind that was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The server said no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The answer makes no sense.
    #[error(transparent)]
    Bad(#[from] BadMessage),
}

/// A server's "no": an error number of its operating system, or one of four codes.
///
/// It may come instead of a response and instead of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("remote error {0}{name}", name = self.name())]
pub struct Refusal(NonZeroI32);

impl Refusal {
    /// EINVAL of Linux: a request with a [`BadMessage`].
    pub const INVALID: Self = Self::of(22);
    /// A request of a type the server does not know.
    pub const UNKNOWN_REQUEST: Self = Self::of(998);
    /// A classic TCP_RR server could not send its response.
    pub const SEND_FAILED: Self = Self::of(992);
    /// Wrong passphrase. Usual servers close the connection instead.
    pub const WRONG_PASSPHRASE: Self = Self::of(403);

    /// `code` is none of zero.
    const fn of(code: i32) -> Self {
        match NonZeroI32::new(code) {
            Some(code) => Self(code),
            None => panic!("zero means that all is well"),
        }
    }

    /// The refusal with this code; none for 0, which means that all is well.
    pub fn new(code: i32) -> Option<Self> {
        NonZeroI32::new(code).map(Self)
    }

    /// The code as it is sent.
    pub fn code(self) -> i32 {
        self.0.get()
    }

    /// The error number of the server's operating system, if the code is one. Linux has 1 to 133.
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

    /// The message that says so. `answer_type` is that of the answer it stands for, see
    /// [`Request::answer_type`](crate::Request::answer_type).
    pub fn encode(self, answer_type: i32, generation: Generation) -> Vec<u8> {
        Writer::new(generation, answer_type, self.code()).finish()
    }
}
