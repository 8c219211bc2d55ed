//! Scripts: Lua, with the hooks and objects of wrk.
//!
//! A [`ScriptHost`] has the main state, in which `setup` and `done` run, and makes a [`ThreadScript`] for each thread of the
//! load. The file runs once in each state. All I/O of a script goes through [`ScriptIo`].

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

pub use host::ScriptHost;
pub use thread::ThreadScript;

/// Default memory limit of a state, bytes.
pub const MEMORY_BYTES: usize = 512 << 20;

/// Settings of the scripts and the values that they see at the start.
#[derive(Clone, Debug)]
pub struct ScriptSettings {
    /// URL as given.
    pub url: String,
    /// Scheme of the URL.
    pub scheme: String,
    /// Host of the URL; an IPv6 address has no brackets.
    pub host: String,
    /// Port of the URL, if any.
    pub port: Option<String>,
    /// Request target: path, query and fragment.
    pub path: String,
    /// Headers of the options, names and values; the last one with a name is used.
    pub headers: Vec<(String, String)>,
    /// Path of the script, as given.
    pub file: Option<String>,
    /// Arguments for the script's `init`.
    pub arguments: Vec<String>,
    /// Allows files, processes and the environment.
    pub trusted: bool,
    /// Memory limit of each state, bytes: [`MEMORY_BYTES`].
    pub memory_bytes: usize,
    /// Set by the caller to stop a running script; checked every few thousand instructions. A short hook
    /// still completes, and the next long one is stopped.
    pub give_up: Arc<AtomicBool>,
}

/// I/O of scripts. All threads of a load call it.
pub trait ScriptIo: Send + Sync {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// The system's text for the reason.
    fn read(&self, path: &str) -> Result<Vec<u8>, String>;

    /// Resolves a host (a name or an address) and a service (a name or a number) to addresses for streams.
    ///
    /// # Errors
    ///
    /// The system's text for the reason, if there are no addresses.
    fn lookup(&self, host: &str, service: &str) -> Result<Vec<SocketAddr>, String>;

    /// Opens a connection and closes it at once.
    ///
    /// # Errors
    ///
    /// The system's text for the reason.
    fn connect(&self, address: SocketAddr) -> Result<(), String>;

    /// Writes to standard output, in order with what the program writes there.
    fn print(&self, bytes: &[u8]);

    /// Writes to standard error.
    fn print_error(&self, bytes: &[u8]);
}

/// Results of a run for the hook `done`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunSummary {
    /// Duration of the run, µs.
    pub duration_us: u64,
    /// Complete responses.
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

/// Text that wrk writes to standard error before it ends because of a script, without line end.
#[must_use]
pub fn fatal_message(error: &ScriptError) -> String {
    match error {
        ScriptError::Raised(cause) => {
            format!("PANIC: unprotected error in call to Lua API ({cause})")
        }
        ScriptError::Refused(_) | ScriptError::GivenUp => error.to_string(),
    }
}
