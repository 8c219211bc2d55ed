//! What a script does for a load of HTTP requests: a seam between those who run requests and those who know a
//! language for scripts.

use std::net::SocketAddr;

/// Why a script ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// It went wrong: its own words, with file and line.
    #[error("{0}")]
    Raised(String),
    /// It cannot have what it needs; what is to be told of it.
    #[error("{0}")]
    Refused(String),
    /// It was at work still when nobody would wait for it any longer.
    #[error("the script was at work still, and was given up")]
    GivenUp,
}

/// The part of a script that belongs to one thread of a load. Nothing in it is shared.
pub trait Script: Send {
    /// Where this thread connects, if the script has chosen. It may choose again while it runs: for later connections.
    fn address(&self) -> Option<SocketAddr>;

    /// Requests that are sent again and again, in wire format; none where [`Script::request`] makes each.
    fn fixed(&self) -> Option<&[u8]>;

    /// Writes the next request, or several in a row, in wire format, behind what is in `out`.
    ///
    /// # Errors
    ///
    /// What the script says.
    fn request(&mut self, out: &mut Vec<u8>) -> Result<(), ScriptError>;

    /// Whether [`Script::delay_ms`] is to be asked before each request.
    fn delays(&self) -> bool;

    /// How long to wait before the next request, ms.
    ///
    /// # Errors
    ///
    /// What the script says.
    fn delay_ms(&mut self) -> Result<u64, ScriptError>;

    /// Whether [`Script::response`] wants to see responses. Then heads and bodies are kept for it.
    fn wants_responses(&self) -> bool;

    /// Shows a response. Of `head` the raw bytes from the status line to the empty line; the body is without the
    /// marks of chunks.
    ///
    /// # Errors
    ///
    /// What the script says.
    fn response(&mut self, status: u16, head: &[u8], body: &[u8]) -> Result<(), ScriptError>;

    /// Whether the script has asked that this thread stops.
    fn stopped(&self) -> bool;
}
