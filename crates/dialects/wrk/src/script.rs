//! Scripts: Lua, with the hooks and objects that wrk gives them.
//!
//! A [`Host`] has the main state, in which `setup` and `done` run, and makes a [`ThreadScript`] for each thread of the
//! load. The file runs once in each of these. Whatever a script wants of the world goes through [`Outside`].

mod address;
mod check;
mod copy;
mod host;
mod state;
mod thread;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use wb_http1::script::ScriptError;

pub use host::Host;
pub use thread::ThreadScript;

/// Memory that a state may use if nothing else is said, bytes.
pub const MEMORY_BYTES: usize = 512 << 20;

/// What scripts are and see from their start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The URL as it was given.
    pub url: String,
    /// Its scheme.
    pub scheme: String,
    /// Its host, an IPv6 address without brackets.
    pub host: String,
    /// Its port, if it has one.
    pub port: Option<String>,
    /// What is asked for: path, query and fragment.
    pub path: String,
    /// Headers of the options, names and values; the last of equal names holds.
    pub headers: Vec<(String, String)>,
    /// The file, as it was given.
    pub file: Option<String>,
    /// Words for the script's `init`.
    pub arguments: Vec<String>,
    /// It may use files, processes and the environment.
    pub trusted: bool,
    /// Memory that each state may use, bytes: [`MEMORY_BYTES`].
    pub memory_bytes: usize,
    /// Set by whoever will not wait for a script that is at work any longer; looked at every few thousand
    /// instructions. A hook that is short is not ended by it, but the next that is long.
    pub give_up: Arc<AtomicBool>,
}

/// What scripts need of the world. All threads of a load call it.
pub trait Outside: Send + Sync {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// Why it cannot be read, in the words of the system.
    fn read(&self, path: &str) -> Result<Vec<u8>, String>;

    /// Finds the addresses for streams of a host (a name or an address) and a service (a name or a number).
    ///
    /// # Errors
    ///
    /// Why there are none, in the words of the system.
    fn lookup(&self, host: &str, service: &str) -> Result<Vec<SocketAddr>, String>;

    /// Opens a connection and closes it at once.
    ///
    /// # Errors
    ///
    /// Why there is none, in the words of the system.
    fn connect(&self, address: SocketAddr) -> Result<(), String>;

    /// Writes to standard output, in order with what the program writes there.
    fn print(&self, bytes: &[u8]);

    /// Writes to standard error.
    fn complain(&self, bytes: &[u8]);
}

/// What `done` is told of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How long it was, µs.
    pub duration_us: u64,
    /// Responses that were complete.
    pub requests: u64,
    /// Bytes of responses.
    pub bytes: u64,
    /// Connections that could not be opened.
    pub connect_errors: u64,
    /// Failures while reading.
    pub read_errors: u64,
    /// Failures while writing.
    pub write_errors: u64,
    /// Responses with a status above 399.
    pub status_errors: u64,
    /// Responses that took longer than the timeout.
    pub timeouts: u64,
}

/// What wrk writes to standard error before it ends because of a script, without the end of the line.
#[must_use]
pub fn last_words(error: &ScriptError) -> String {
    match error {
        ScriptError::Raised(cause) => {
            format!("PANIC: unprotected error in call to Lua API ({cause})")
        }
        ScriptError::Refused(_) | ScriptError::GivenUp => error.to_string(),
    }
}
