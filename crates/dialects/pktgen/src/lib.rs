//! The language of the Linux packet generator (`pktgen`) and of the receiver that belongs to it
//! (`pgrx`): what their control files understand, what they answer, which packets come of it.
//!
//! Only translates: opens, sends and receives nothing, and reads no clock.
//!
//! | to | look at |
//! |---|---|
//! | answer reads and writes of the control files | [`control`] |
//! | add a command of a device file | the table in [`keywords`] |
//! | make the packets of a device, one after another | [`wb_pktgen_device`] |
//! | write the report of a run | [`result`] |
//! | count and time what arrives | [`pgrx`] |
//!
//! Dialect: Linux 6.15 and later. Departures from the kernel are few and meant: clones and bursts
//! work on every interface, `pkt_size` always sets both bounds, names of older versions are
//! understood (`ipg`, `dstmac`, `srcmac`, `NODE_ALLOC`, `config`), `debug` never makes a write fail,
//! counters of a mix and walked MAC addresses begin anew with each run, paces are exact fractions,
//! reports do not wrap at 64 bits, `duration` is a command, and a device whose packets the interface cannot carry does not
//! start.

#![forbid(unsafe_code)]

mod address;
pub mod control;
pub mod device;
pub mod errno;
pub mod fuzz;
pub mod keywords;
mod lexis;
pub mod pgrx;
pub mod result;
pub mod world;
