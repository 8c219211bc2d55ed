//! Packet driver: AF_PACKET rings and batched sends, which work on every interface.
//!
//! Handles sockets, rings and one interface in the calling thread's network namespace. Does not know streams, plans, or
//! how the interface was found.
//!
//! ```no_run
//! # fn interface() -> wb_port::Interface { unimplemented!() }
//! use wb_packet::{PacketOptions, open};
//! use wb_port::{QueuePair, TxQueue};
//!
//! let mut port = open(&interface(), &PacketOptions::default())?;
//! let tx = port.queues[0].tx();
//! let ready = tx.lend(64);
//! for i in 0..ready {
//!     let slot = tx.slot(i);
//!     slot.bytes[..60].fill(0xff);
//!     *slot.len = 60;
//! }
//! tx.submit(ready);
//! tx.flush()?;
//! # Ok::<(), wb_port::PortError>(())
//! ```
//!
//! # Which transmit queue a frame takes
//! Each [`PacketQueue`] has separate sockets, but the kernel does not let a packet socket choose a transmit queue. With
//! `qdisc_bypass` the sending CPU determines the queue (by XPS if configured, otherwise CPU number modulo queues), so
//! workers pinned to different CPUs use different queues. Without it, XPS or else the flow hash determines the queue.
//!
//! # What the kernel hides
//! - A socket keeps its network namespace alive: deleting the *name* of a namespace does not affect an open port.
//!   The port is gone when the interface is deleted or moved, or its peer is deleted.
//! - Without `qdisc_bypass`, a link that loses its carrier drops frames and reports them as sent.
//!   The sender checks the link before each flush, so only microseconds remain in which this can happen.
//! - A veth with a smaller MTU at the peer answers each longer frame as if the device were full. Such
//!   a frame stays in flight until it is withdrawn.

mod arena;
mod control;
mod filter;
mod mapping;
mod open;
mod options;
mod ring;
mod rx;
mod slots;
mod sys;
mod tx;
mod watch;

pub use control::{ControlKind, ControlSocket};
pub use filter::FilterOp;
pub use open::{PacketPort, PacketQueue, open};
pub use options::{Fanout, PacketOptions, QdiscDrops, RxMode, TxMode};
pub use rx::PacketRx;
pub use tx::PacketTx;
pub use wb_port::PortSteering;
