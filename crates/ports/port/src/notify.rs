//! A call that workers make when something happened that the session waits for.

use std::{fmt, sync::OnceLock};

/// A callback that is set once, before the workers start. Without one a call does nothing.
#[derive(Default)]
pub struct Notify(OnceLock<Box<dyn Fn() + Send + Sync>>);

impl Notify {
    /// Creates a notification that does nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Sets what is called. Only the first call counts.
    pub fn set(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(call));
    }

    /// Makes the call.
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
