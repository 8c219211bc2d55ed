//! Receiving half: a ring, and the socket that fills it.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use wb_port::{PortError, RxCounters, RxFrame, RxQueue};

use crate::ring::ReceiveRing;
use crate::watch::InterfaceWatch;
use crate::{filter, sys};

/// Number of empty polls after which a receiver that never sleeps checks that its interface exists: small enough to end
/// soon, large enough to cost nothing measurable.
const IDLE_ROUNDS: u32 = 4096;

/// Longer than any run, and small enough for time arithmetic.
const LONGEST_SLEEP: Duration = Duration::from_secs(24 * 3600);

/// Receiving half of a [`crate::PacketQueue`].
///
/// A link that goes down is not an error: no frames arrive until it is up again.
pub struct PacketRx {
    open: Option<OpenPacketRx>,
}

struct OpenPacketRx {
    // Before the socket, so that it is unmapped first.
    ring: ReceiveRing,
    socket: OwnedFd,
    watch: InterfaceWatch,
    idle_rounds: u32,
    counters: RxCounters,
}

impl PacketRx {
    pub(crate) fn new(socket: OwnedFd, ring: ReceiveRing, watch: InterfaceWatch) -> Self {
        let counters = RxCounters::default();
        Self {
            open: Some(OpenPacketRx {
                ring,
                socket,
                watch,
                idle_rounds: 0,
                counters,
            }),
        }
    }

    /// Creates a half that receives nothing.
    pub(crate) fn closed() -> Self {
        Self { open: None }
    }
}

impl RxQueue for PacketRx {
    fn receive<F: FnMut(&RxFrame<'_>)>(
        &mut self,
        max: usize,
        on_frame: F,
    ) -> Result<usize, PortError> {
        let Some(open) = &mut self.open else {
            return Ok(0);
        };
        let shown = open.ring.receive(max, on_frame);
        if shown > 0 {
            open.counters.received_frames += shown as u64;
            open.watch.saw_frame();
            return Ok(shown);
        }
        open.idle_rounds += 1;
        if open.idle_rounds >= IDLE_ROUNDS {
            open.idle_rounds = 0;
            open.watch.look(open.socket.as_fd());
        }
        open.watch.check()?;
        Ok(0)
    }

    fn wait(&mut self, timeout: Duration) -> Result<bool, PortError> {
        let Some(open) = &mut self.open else {
            std::thread::sleep(timeout.min(LONGEST_SLEEP));
            return Ok(false);
        };
        if open.ring.has_frame() {
            return Ok(true);
        }
        let end = Instant::now() + timeout.min(LONGEST_SLEEP);
        loop {
            open.watch.check()?;
            let rest = end.saturating_duration_since(Instant::now());
            let events = sleep(&open.socket, open.watch.at_most(rest))
                .map_err(|errno| open.watch.error("poll", errno))?;
            // A link that went down ends the sleep; the open block may still contain frames.
            let link_event = events.contains(PollFlags::ERR);
            if link_event || (events.is_empty() && open.watch.may_be_gone()) {
                open.watch.look(open.socket.as_fd());
            }
            if events.contains(PollFlags::IN) || !link_event {
                return Ok(events.contains(PollFlags::IN));
            }
        }
    }

    fn longest_hold(&self) -> Duration {
        self.open
            .as_ref()
            .map_or(Duration::ZERO, |open| open.ring.longest_hold())
    }

    fn counters(&mut self) -> RxCounters {
        let Some(open) = &mut self.open else {
            return RxCounters::default();
        };
        // The kernel's counter is reset by each read.
        if let Ok((passed, drops, freezes)) = sys::take_statistics(open.socket.as_fd()) {
            let sum = open.counters.passed_frames.unwrap_or(0) + u64::from(passed);
            open.counters.passed_frames = Some(sum);
            open.counters.dropped_frames += u64::from(drops);
            open.counters.freezes += u64::from(freezes);
        }
        open.counters
    }

    fn kernel_counters(&mut self) -> Vec<(&'static str, u64)> {
        let counters = self.counters();
        // if_packet.h: struct tpacket_stats_v3.
        vec![
            ("tp_packets", counters.passed_frames.unwrap_or(0)),
            ("tp_drops", counters.dropped_frames),
            ("tp_freeze_q_cnt", counters.freezes),
        ]
    }

    fn close_intake(&mut self) -> Result<(), PortError> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        sys::attach_filter(open.socket.as_fd(), &filter::drop_all()).map_err(|e| {
            let errno = Errno::from_io_error(&e).unwrap_or(Errno::IO);
            open.watch.error("attach the last filter", errno)
        })
    }
}

/// Sleeps until an event of the socket, a signal or the timeout.
pub(crate) fn sleep(socket: &OwnedFd, timeout: Duration) -> Result<PollFlags, Errno> {
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    let timeout = Timespec::try_from(timeout.min(LONGEST_SLEEP)).map_err(|_| Errno::INVAL)?;
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) => Ok(fds[0].revents()),
        Err(Errno::INTR) => Ok(PollFlags::empty()),
        Err(errno) => Err(errno),
    }
}
