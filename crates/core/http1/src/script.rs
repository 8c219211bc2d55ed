//! Interface of scripts that generate HTTP requests. It separates the load engine from the scripting language.

use std::net::SocketAddr;

/// Reason for the end of a script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// The script failed. Holds its message, with file and line.
    #[error("{0}")]
    Raised(String),
    /// A resource for the script is unavailable. Holds the message.
    #[error("{0}")]
    Refused(String),
    /// The script still ran at the end of its time limit.
    #[error("the script exceeded its time limit and was abandoned")]
    GivenUp,
}

/// Part of a script that belongs to one load thread. It shares nothing.
pub trait Script: Send {
    /// Address to which this thread connects, if the script has set one. A change applies to later connections.
    fn address(&self) -> Option<SocketAddr>;

    /// Requests that are sent repeatedly, in wire format; `None` if [`Script::request`] builds each one.
    fn fixed(&self) -> Option<&[u8]>;

    /// Appends the next request, or several in a row, to `out` in wire format.
    ///
    /// # Errors
    ///
    /// Errors of the script.
    fn request(&mut self, out: &mut Vec<u8>) -> Result<(), ScriptError>;

    /// Returns true if [`Script::delay_ms`] must be called before each request.
    fn delays(&self) -> bool;

    /// Delay before the next request, in ms.
    ///
    /// # Errors
    ///
    /// Errors of the script.
    fn delay_ms(&mut self) -> Result<u64, ScriptError>;

    /// Returns true if [`Script::response`] must be called. Heads and bodies are then stored for it.
    fn wants_responses(&self) -> bool;

    /// Passes a response to the script. `head` holds the raw bytes from the status line to the empty line; the body has
    /// no chunk framing.
    ///
    /// # Errors
    ///
    /// Errors of the script.
    fn response(&mut self, status: u16, head: &[u8], body: &[u8]) -> Result<(), ScriptError>;

    /// Returns true if the script has requested that this thread stops.
    fn stopped(&self) -> bool;
}
