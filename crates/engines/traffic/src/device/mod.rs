//! Packet devices: executes walks, many on one worker.
//!
//! Knows the walk of a device ([`wb_pktgen_device::Walker`]), queue pairs and clocks by trait; starts no thread. A
//! device owns one queue pair of its port. Devices of one worker may be on ports of different kinds, so each is a
//! [`DeviceTurn`] trait object: one virtual call per batch, and the code below it is compiled for the kind of port.
//!
//! ```text
//!  DeviceHandle (stop, reconfigure, progress) ──┐
//!                                               ├─> sender: Walker ─frames─> TxQueue ─┐
//!  run_devices ──round robin, waits for all─────┘            <──refused, withdrawn────┘
//! ```
//!
//! **Schedule.** A call of the walk is made when it is due. Late calls are made at once, and the schedule does not
//! shift. A packet is built as soon as the previous one has been sent and carries the time of that moment, as in the
//! kernel.
//!
//! **Counts.** A frame counts as sent when it is handed to the port, and no longer if the port refuses it; later
//! packets replace it. A device that has handed out its full count waits until all frames in flight have left or come
//! back. The final count is what the port sent.
//!
//! **Offload.** If the port sends autonomously ([`DeviceOffload`]), it receives the walk as tables, and the walker
//! follows the frames it sent ([`wb_pktgen_device::Walker::advance`]). The queue pair remains for settings that cannot
//! be expressed as tables.
//!
//! **End.** Calls due before the end of the duration belong to the run, and the run lasts the whole duration. Calls
//! still waiting then, because the port is too slow, get another 20 ms. The rest stays unsent, because a run of ten
//! seconds must not take twenty. After a stop nothing more is handed out, and frames in flight get the same 20 ms.
//! While the link is down nothing leaves: this is treated like any other end.

mod handle;
mod offload;
mod outcome;
mod sender;

pub use handle::{DeviceEnd, DeviceHandle};
pub use offload::{DeviceOffload, LoadedPort, TableLoader, build_program as device_table};
pub use outcome::DeviceOutcome;
pub use sender::device_sender;

use wb_port::worker_loop::POLL_INTERVAL_NS;

use crate::{Clock, TrafficControl, worker::AWAKE_NS};

/// Request of a device after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceNext {
    /// Another turn at once.
    Turn,
    /// Another turn after a yield to other threads, because the port is full.
    Pause,
    /// No turn before this monotonic time.
    Until(u64),
    /// No further turn.
    Done,
}

/// A device on its worker, on any kind of port.
pub trait DeviceTurn {
    /// Checks the flags and sends what is due, at most one batch.
    fn turn(&mut self, control: &TrafficControl) -> DeviceNext;

    /// Takes back all frames in flight and returns the results.
    fn finish(self: Box<Self>) -> DeviceOutcome;
}

/// Runs devices in turn until all have ended. Returns their results in the same order.
///
/// Each device is a sender of `control`: the engine sets `senders_running` to their number, and `start_at_mono_ns`;
/// `stop` ends all of them.
pub fn run_devices<C: Clock>(
    senders: Vec<Box<dyn DeviceTurn + Send>>,
    control: &TrafficControl,
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
                DeviceNext::Turn => at_once = true,
                DeviceNext::Pause => pause = true,
                DeviceNext::Until(at_ns) => until_ns = until_ns.min(at_ns),
                // If this was the last device, do not wait.
                DeviceNext::Done => {
                    slot.release();
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

/// A device that the engine waits for. Decrements the sender count even if the worker panics.
struct DeviceSlot<'a> {
    control: &'a TrafficControl,
    sender: Option<Box<dyn DeviceTurn + Send>>,
    outcome: Option<DeviceOutcome>,
}

impl<'a> DeviceSlot<'a> {
    fn new(sender: Box<dyn DeviceTurn + Send>, control: &'a TrafficControl) -> Self {
        Self {
            control,
            sender: Some(sender),
            outcome: None,
        }
    }

    fn release(&mut self) {
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
