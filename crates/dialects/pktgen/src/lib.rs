//! Dialect of the Linux packet generator (`pktgen`) and of its receiver
//! (`pgrx`): commands and answers of the control files, and the resulting packets.
//!
//! Only translates: opens, sends and receives nothing, and reads no clock.
//!
//! | to | see |
//! |---|---|
//! | answer reads and writes of the control files | [`control`] |
//! | add a command of a device file | the table in [`keywords`] |
//! | make the packets of a device, one after another | [`wb_pktgen_device`] |
//! | write the report of a run | [`result`] |
//! | count and time what arrives | [`pgrx`] |
//!
//! Dialect: Linux 6.15 and later. Intentional differences from the kernel: Clones and bursts
//! work on every interface. `pkt_size` always sets both bounds. Names of older versions are
//! accepted (`ipg`, `dstmac`, `srcmac`, `NODE_ALLOC`, `config`). `debug` never makes a write fail.
//! Counters of a mix and walked MAC addresses restart with each run. Rates are exact fractions.
//! Reports do not wrap at 64 bits. `duration` is a command. A device does not start if the interface cannot
//! carry its packets.

#![forbid(unsafe_code)]

mod address;
pub mod control;
pub mod device;
pub mod errno;
pub mod fuzz;
pub mod keywords;
pub mod machine;
pub mod pgrx;
pub mod result;
mod scanner;
