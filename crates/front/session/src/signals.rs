//! SIGINT and SIGTERM as a wish that the run ends soon and in order.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::StartError;

/// Remembers the first signal that asked for the end. A second one ends the process at once, in
/// case the first does not get through.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    received: Arc<AtomicUsize>,
}

impl Signals {
    /// Installs the handlers for the rest of the process's life.
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub fn install() -> Result<Self, StartError> {
        let received = Arc::new(AtomicUsize::new(0));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let number = usize::try_from(signal).expect("signal numbers are positive");
            let again = Arc::new(std::sync::atomic::AtomicBool::new(false));
            let refused = |cause| StartError::System {
                operation: "handle signals",
                cause,
            };
            // In this order: the first signal finds `again` unset and sets it, the second exits.
            signal_hook::flag::register_conditional_shutdown(
                signal,
                128 + signal,
                Arc::clone(&again),
            )
            .map_err(refused)?;
            signal_hook::flag::register(signal, again).map_err(refused)?;
            signal_hook::flag::register_usize(signal, Arc::clone(&received), number)
                .map_err(refused)?;
        }
        Ok(Self { received })
    }

    /// Signals that never come, for runs inside another program's hands.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// The signal that came, if one did.
    #[must_use]
    pub fn received(&self) -> Option<i32> {
        match self.received.load(Ordering::Relaxed) {
            0 => None,
            n => i32::try_from(n).ok(),
        }
    }
}
