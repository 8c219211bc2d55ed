//! Sending half: slots, and the socket that takes the frames.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use wb_port::{PortError, Slot, TxCounters, TxQueue};

use crate::slots::{Flushed, Slots};
use crate::watch::InterfaceWatch;

/// Efficient number of frames per system call. On a veth with 60-byte frames, best of eight runs of `examples/blast`: 1
/// frame per call 1.09 Mpps, 8 1.34, 16 1.55, 64 1.69, 128 1.69, 256 1.72, 512 1.53.
const BATCH: usize = 64;
/// Longer than a full device needs to take a frame: the longest frame takes 1.2 ms at 10 Mbit/s.
const STUCK: Duration = Duration::from_millis(5);

/// Sending half of a [`crate::PacketQueue`].
///
/// A frame counts as sent when the kernel has taken it. A frame that is longer than the device allows is refused. With
/// [`crate::QdiscDrops::Refuse`], so is a frame that the queueing discipline drops. Copies of refused frames are kept
/// until [`TxQueue::take_refused`]. If the number of copies reaches the number of slots, nothing more is sent before
/// that call.
pub struct PacketTx {
    open: Option<OpenPacketTx>,
}

struct OpenPacketTx {
    socket: OwnedFd,
    slots: Slots,
    watch: InterfaceWatch,
    qdisc_bypass: bool,
    /// True if the last flush found the link down.
    link_down: bool,
    /// Start of the time in which the device has taken nothing, or the last check of its carrier in that time.
    stuck_since: Option<Instant>,
}

impl PacketTx {
    pub(crate) fn new(
        socket: OwnedFd,
        slots: Slots,
        watch: InterfaceWatch,
        qdisc_bypass: bool,
    ) -> Self {
        Self {
            open: Some(OpenPacketTx {
                socket,
                slots,
                watch,
                qdisc_bypass,
                link_down: false,
                stuck_since: None,
            }),
        }
    }

    /// Creates a half that lends nothing.
    pub(crate) fn closed() -> Self {
        Self { open: None }
    }
}

impl OpenPacketTx {
    fn flush(&mut self) -> Result<(), PortError> {
        let Self {
            socket,
            slots,
            watch,
            stuck_since,
            ..
        } = self;
        if !self.qdisc_bypass {
            // The qdisc of a link without carrier drops frames and reports them as sent.
            watch.check_link(socket.as_fd())?;
            if self.link_down {
                watch.ask_for_carrier(socket.as_fd())?;
            }
        }
        let most = slots.most_per_call();
        match slots.flush(|arena, first, n| arena.send(socket.as_fd(), first, n.min(most))) {
            Ok(Flushed::All | Flushed::Part) => {
                *stuck_since = None;
                Ok(())
            }
            // A device without carrier answers as if it were full. Its flags show the loss of carrier up to a second
            // later.
            Ok(Flushed::Stuck) => {
                if stuck_since.get_or_insert_with(Instant::now).elapsed() < STUCK {
                    return watch.check_link(socket.as_fd()).map(drop);
                }
                watch.ask_for_carrier(socket.as_fd())?;
                *stuck_since = None;
                Ok(())
            }
            Err(errno) => Err(watch.error("sendmmsg", errno)),
        }
    }
}

impl TxQueue for PacketTx {
    fn frame_capacity(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.slots.capacity())
    }

    fn batch_hint(&self) -> usize {
        BATCH
    }

    fn lend(&mut self, n: usize) -> usize {
        self.open.as_mut().map_or(0, |open| open.slots.lend(n))
    }

    fn slot(&mut self, i: usize) -> Slot<'_> {
        self.open
            .as_mut()
            .expect("a queue without a sending half lends no slot")
            .slots
            .slot(i)
    }

    fn submit(&mut self, n: usize) {
        if let Some(open) = &mut self.open {
            open.slots.submit(n);
        }
    }

    fn flush(&mut self) -> Result<(), PortError> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        let result = open.flush();
        open.link_down = matches!(result, Err(PortError::LinkDown { .. }));
        result
    }

    fn in_flight(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.slots.in_flight())
    }

    fn take_refused<F: FnMut(&[u8])>(&mut self, each: F) {
        if let Some(open) = &mut self.open {
            open.slots.take_refused(each);
        }
    }

    fn withdraw<F: FnMut(&[u8])>(&mut self, each: F) {
        if let Some(open) = &mut self.open {
            open.slots.withdraw(each);
        }
    }

    fn counters(&self) -> TxCounters {
        self.open
            .as_ref()
            .map_or_else(TxCounters::default, |open| open.slots.counters())
    }
}
