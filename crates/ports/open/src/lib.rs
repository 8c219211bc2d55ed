//! Opens the ports of a plan, and starts the workers that own their queues.
//!
//! The choice between drivers is here and nowhere else: [`AnyQueue`] holds a queue pair of any driver, and
//! [`AnyQueue::give`] passes it to code that is compiled once for each driver.

mod bell;
mod capture;
mod error;
mod interface;
mod place;
mod port;
mod queue;
mod wire;
mod workers;

pub use bell::{Alarm, Bell};
pub use capture::{Tap, capture_xdp_options, open_capture, total_memory};
pub use error::{LEASE_END, STOP_REQUEST, StartError, signal_name};
pub use interface::{
    drivers_to_try, open_live, open_virtual, open_wire, open_wire_as, packet_options, port_memory,
    requested_driver,
};
pub use place::{in_the_way, place};
pub use port::{OpenPort, Sharing, Use};
pub use queue::{AnyQueue, OnQueue};
pub use wire::{Wire, far_end, find_wire, has_link, is_of_a_lab, locate_wire, require_link};
pub use workers::{LastOutlineRequest, Workers};
