//! Classic BPF filters: checks, prints and runs them, and translates them to eBPF.
//!
//! Pure: the input is a frame in a slice, the verdict is the number of bytes to keep. Knows no filter expressions
//! (libpcap compiles those), no sockets and no system calls. It generates instructions; other crates pass them to the
//! kernel.
//!
//! One filter can run in three places, with the same verdict. For the filter of a capture, which libpcap compiles to
//! one program for tagged frames and one for others, see [`Program::for_live_tap`]:
//!
//! | where | program |
//! |---|---|
//! | here, on a frame with its VLAN tags in the bytes | [`Program::accepts`] |
//! | on an `AF_PACKET` socket, where the kernel has taken the outer tag out of the bytes | [`Program::for_tap`] with `SO_ATTACH_FILTER` |
//! | in front of an AF_XDP socket | [`ebpf::translate`] with `BPF_PROG_LOAD` |
//!
//! ```
//! use wb_filter::{Ancillary, Program};
//!
//! // `arp`, as `tcpdump -ddd arp` prints it.
//! let program = Program::parse_decimal("4\n40 0 0 12\n21 0 1 2054\n6 0 0 262144\n6 0 0 0\n")?;
//! let mut frame = [0; 60];
//! assert_eq!(program.accepts(&frame, 60, &Ancillary::default()), 0);
//! frame[12..14].copy_from_slice(&[0x08, 0x06]);
//! assert_eq!(program.accepts(&frame, 60, &Ancillary::default()), 262_144);
//! # Ok::<(), wb_filter::ParseError>(())
//! ```

#![forbid(unsafe_code)]

mod check;
pub mod ebpf;
pub mod fuzz;
mod instruction;
mod layout;
mod operation;
mod program;
mod run;
mod tap;
mod text;
mod unroll;

pub use check::{Invalid, Problem};
pub use instruction::Instruction;
pub use operation::KernelValue;
pub use program::{MAX_INSTRUCTIONS, Program};
pub use run::Ancillary;
pub use tap::{TAG_CONTROL, TapError};
pub use text::ParseError;
pub use unroll::unroll;
