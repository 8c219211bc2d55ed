//! The queue pairs of all drivers, and the only choice between them.

use wb_packet::PacketQueue;
use wb_port::{QueuePair, RxQueue, TxQueue, file::FileQueue, memory::MemoryQueue};
use wb_xdp::{XdpGroup, XdpQueue};

/// One queue pair of any driver. This is the only dynamic choice: it is made once, when the worker starts, and each arm
/// runs a loop compiled for its driver.
pub enum AnyQueue {
    /// One queue of AF_XDP.
    Xdp(XdpQueue),
    /// Several queues with one worker, or queues of workers that pass frames on to each other.
    XdpGroup(XdpGroup),
    /// AF_PACKET.
    Packet(PacketQueue),
    /// A link in memory.
    Memory(MemoryQueue),
    /// A capture file.
    File(FileQueue),
}

/// Operation on a queue pair, compiled once for each driver.
pub trait OnQueue {
    /// Result of the operation.
    type Output;
    /// Runs the operation.
    fn on<Q: QueuePair + 'static>(self, pair: Q) -> Self::Output;
}

impl AnyQueue {
    /// Passes the queue pair to code that knows its driver.
    pub fn give<T: OnQueue>(self, task: T) -> T::Output {
        match self {
            Self::Xdp(pair) => task.on(pair),
            Self::XdpGroup(pair) => task.on(pair),
            Self::Packet(pair) => task.on(pair),
            Self::File(pair) => task.on(pair),
            Self::Memory(pair) => task.on(pair),
        }
    }
}

/// Maximum number of frames that are discarded before a run.
const MAX_STALE: usize = 1 << 16;

/// Discards frames that have arrived so far.
fn discard<Q: QueuePair>(pair: &mut Q) {
    let (_, rx) = pair.split();
    let mut left = MAX_STALE;
    while left > 0 {
        match rx.receive(left.min(64), |_| {}) {
            Ok(n) if n > 0 => left = left.saturating_sub(n),
            // The worker detects that a device is gone.
            _ => return,
        }
    }
}

impl AnyQueue {
    /// Discards frames that have arrived so far: our own neighbour requests, and frames from before the run.
    pub fn discard_stale(&mut self) {
        match self {
            Self::Xdp(q) => discard(q),
            Self::XdpGroup(q) => q.discard(MAX_STALE),
            Self::Packet(q) => discard(q),
            // These ports receive nothing before the run.
            Self::Memory(_) | Self::File(_) => {}
        }
    }

    /// Number of sources from which the queue takes frames in turn: see [`RxQueue::lanes`].
    pub fn lanes(&mut self) -> usize {
        match self {
            Self::XdpGroup(q) => q.rx().lanes(),
            Self::Xdp(_) | Self::Packet(_) | Self::Memory(_) | Self::File(_) => 1,
        }
    }

    /// Longest frame that the queue sends, without FCS.
    pub fn frame_capacity(&mut self) -> usize {
        match self {
            Self::Xdp(q) => q.tx().frame_capacity(),
            Self::XdpGroup(q) => q.tx().frame_capacity(),
            Self::Packet(q) => q.tx().frame_capacity(),
            Self::Memory(q) => q.tx().frame_capacity(),
            Self::File(q) => q.tx().frame_capacity(),
        }
    }
}
