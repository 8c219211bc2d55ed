//! Packet devices: walks that are carried out, many on one worker.
//!
//! Knows the walk of a device ([`wb_pktgen_device::Walker`]), queue pairs and clocks by trait; starts no thread. A
//! device owns one queue pair of its port. Devices of one worker may be on ports of different kinds, so
//! each is a [`DeviceTurn`] behind a pointer: the call through it is one per batch, and all below it is
//! compiled for the kind of port.
//!
//! ```text
//!  DeviceHandle (stop, reconfigure, progress) ──┐
//!                                               ├─> sender: Walker ─frames─> TxQueue ─┐
//!  run_devices ──round robin, waits for all─────┘            <──refused, withdrawn────┘
//! ```
//!
//! **When.** A call of the walk goes out when it is due. Late calls go out at once, and the schedule
//! stays where it was. A packet is built as soon as the one before it has gone, and carries the time of
//! that moment, as in the kernel.
//!
//! **How many.** A frame counts as sent when it is handed to the port, and no longer when the port
//! refuses it; later packets make up for it. A device that has handed out its count waits until all
//! frames in flight have left or come back. What it says to have sent in the end is what the port sent.
//!
//! **By whom.** Where the port sends by itself ([`DeviceOffload`]) it is given the walk as tables, and the walker follows what
//! it sent ([`wb_pktgen_device::Walker::advance`]); the queue pair is there for settings that have no tables.
//!
//! **Until when.** Calls due before the duration is over belong to the run, and the run lasts the whole
//! duration. What is still due then, because the port is too slow, has 20 ms more; what is late beyond
//! that stays unsent, for a run of ten seconds must not take twenty. After a stop nothing more is handed
//! out, and what is in flight has the same 20 ms. While the link is down nothing leaves: that is an end
//! like any other.

mod handle;
mod offload;
mod outcome;
mod sender;

pub use handle::{DeviceEnd, DeviceHandle};
pub use offload::{DeviceOffload, Load, Loaded, table as device_table};
pub use outcome::DeviceOutcome;
pub use sender::device_sender;

use crate::{Clock, Control};

/// What a sleep may be late by: a worker is awake this long before a departure.
const AWAKE_NS: u64 = 60_000;
/// The longest wait without a look at the flags.
const POLL_INTERVAL_NS: u64 = 10_000_000;

/// What a device wants after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another turn at once.
    Turn,
    /// Another turn when others had the processor for a moment: the port is full.
    Pause,
    /// Nothing before this monotonic time.
    Until(u64),
    /// Nothing any more.
    Done,
}

/// A device on its worker, whatever its port.
pub trait DeviceTurn {
    /// Looks at the flags and sends what is due, a batch at most.
    fn turn(&mut self, control: &Control) -> Next;

    /// Takes back what is still in flight and gives the account.
    fn finish(self: Box<Self>) -> DeviceOutcome;
}

/// Serves devices in turn until all have ended; their accounts are in the same order.
///
/// Each device is a sender of `control`: the session sets `senders_running` to their number, and
/// `start_at_mono_ns`; `stop` ends all of them.
pub fn run_devices<C: Clock>(
    senders: Vec<Box<dyn DeviceTurn + Send>>,
    control: &Control,
    clock: &C,
) -> Vec<DeviceOutcome> {
    let mut slots: Vec<_> = senders
        .into_iter()
        .map(|sender| DeviceSlot::new(sender, control))
        .collect();
    loop {
        let mut running = false;
        let mut at_once = false;
        let mut pause = false;
        let mut until_ns = u64::MAX;
        for slot in &mut slots {
            let Some(sender) = &mut slot.sender else {
                continue;
            };
            running = true;
            match sender.turn(control) {
                Next::Turn => at_once = true,
                Next::Pause => pause = true,
                Next::Until(at_ns) => until_ns = until_ns.min(at_ns),
                // Perhaps it was the last: then nobody waits.
                Next::Done => {
                    slot.end();
                    at_once = true;
                }
            }
        }
        if !running {
            return slots
                .into_iter()
                .filter_map(|mut slot| slot.outcome.take())
                .collect();
        }
        if at_once {
            continue;
        }
        if pause {
            clock.pause();
        } else {
            wait(clock, until_ns);
        }
    }
}

fn wait<C: Clock>(clock: &C, until_ns: u64) {
    let now_ns = clock.monotonic_ns();
    let wake_ns = until_ns
        .saturating_sub(AWAKE_NS)
        .min(now_ns.saturating_add(POLL_INTERVAL_NS));
    if wake_ns > now_ns {
        clock.sleep_until(wake_ns);
    } else {
        std::hint::spin_loop();
    }
}

/// A device that the session waits for. Counts itself out also when the worker panics.
struct DeviceSlot<'a> {
    control: &'a Control,
    sender: Option<Box<dyn DeviceTurn + Send>>,
    outcome: Option<DeviceOutcome>,
}

impl<'a> DeviceSlot<'a> {
    fn new(sender: Box<dyn DeviceTurn + Send>, control: &'a Control) -> Self {
        Self {
            control,
            sender: Some(sender),
            outcome: None,
        }
    }

    fn end(&mut self) {
        if let Some(sender) = self.sender.take() {
            let outcome = sender.finish();
            self.control.sender_ended(outcome.last_departure_wall_ns);
            self.outcome = Some(outcome);
        }
    }
}

impl Drop for DeviceSlot<'_> {
    fn drop(&mut self) {
        if self.sender.is_some() {
            self.control.sender_ended(0);
        }
    }
}
