//! Callback from workers to the session, for events that the session waits for.

use std::{fmt, sync::OnceLock};

/// Callback that is set once, before the workers start. Without a callback, a call does nothing.
#[derive(Default)]
pub struct Notify(OnceLock<Box<dyn Fn() + Send + Sync>>);

impl Notify {
    /// Creates a notification that does nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Sets the callback. Only the first call has an effect.
    pub fn set(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(call));
    }

    /// Calls the callback.
    pub fn call(&self) {
        if let Some(call) = self.0.get() {
            call();
        }
    }
}

impl fmt::Debug for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notify")
    }
}
