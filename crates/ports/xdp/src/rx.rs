//! Receiving half of a queue.
#![allow(unsafe_code)] // Slices of frames that the rings say are ours.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use wb_port::{ChecksumState, PortError, RxCounters, RxFrame, RxQueue, StampSource};

use crate::port_errors;
#[cfg(feature = "bpf")]
use crate::program::SocketMap;
use crate::ring::{Descriptor, RingConsumer, RingProducer};
use crate::socket::{RxParts, kick_rx};
use crate::stamp::{self, WallOffset};
use crate::umem::Area;

/// Number of empty polls after which a receiver that never waits checks that its device exists.
const EMPTY_ROUNDS_PER_QUESTION: u32 = 4096;

/// At 10 Gbit/s of the shortest frames, no more than `NAP_FRAMES` arrive in twice this time.
const NAP: Duration = Duration::from_micros(50);
const NAP_FRAMES: u32 = 2048;

/// Receiving half of an [`crate::XdpQueue`].
pub struct XdpRx {
    receiver: Option<OpenXdpRx>,
}

struct OpenXdpRx {
    port: String,
    socket: Arc<OwnedFd>,
    ring: RingConsumer<Descriptor>,
    fill: RingProducer<u64>,
    area: Area,
    /// Memory for which the fill ring had no slot, because the kernel has not yet published its index.
    spare: Vec<u64>,
    #[cfg(feature = "bpf")]
    gate: Option<Arc<SocketMap>>,
    #[cfg(feature = "bpf")]
    queue: u32,
    busy_poll: bool,
    empty_rounds: u32,
    /// True if the last frame shown had a timestamp.
    stamped: bool,
    received_frames: u64,
}

impl XdpRx {
    pub(crate) fn closed() -> Self {
        Self { receiver: None }
    }

    pub(crate) fn new(
        port: &str,
        parts: RxParts,
        busy_poll: bool,
        #[cfg(feature = "bpf")] gate: Option<Arc<SocketMap>>,
    ) -> Self {
        let RxParts {
            socket,
            ring,
            fill,
            area,
            queue,
        } = parts;
        #[cfg(not(feature = "bpf"))]
        let _ = queue;
        Self {
            receiver: Some(OpenXdpRx {
                port: port.to_owned(),
                socket,
                ring,
                fill,
                spare: Vec::with_capacity(area.frames() as usize),
                area,
                #[cfg(feature = "bpf")]
                gate,
                #[cfg(feature = "bpf")]
                queue,
                busy_poll,
                empty_rounds: 0,
                stamped: false,
                received_frames: 0,
            }),
        }
    }
}

/// Methods for groups of queues.
impl XdpRx {
    pub(crate) fn socket(&self) -> Option<&OwnedFd> {
        self.receiver.as_ref().map(|receiver| &*receiver.socket)
    }

    /// Returns true if a frame is waiting.
    pub(crate) fn has_frame(&mut self) -> bool {
        self.receiver
            .as_mut()
            .is_some_and(|receiver| receiver.ring.available(1) > 0)
    }

    /// See [`OpenXdpRx::ask`].
    pub(crate) fn ask(&self) -> Result<(), PortError> {
        self.receiver.as_ref().map_or(Ok(()), OpenXdpRx::ask)
    }

    pub(crate) fn port(&self) -> &str {
        self.receiver
            .as_ref()
            .map_or("", |receiver| receiver.port.as_str())
    }

    /// Length of the longest frame that it may show, in bytes.
    pub(crate) fn longest(&self) -> usize {
        self.receiver
            .as_ref()
            .map_or(0, |receiver| receiver.area.frame_size())
    }
}

impl RxQueue for XdpRx {
    #[inline]
    fn receive<F: FnMut(&RxFrame<'_>)>(
        &mut self,
        max: usize,
        on_frame: F,
    ) -> Result<usize, PortError> {
        match &mut self.receiver {
            Some(receiver) => receiver.receive(max, on_frame),
            None => Ok(0),
        }
    }

    #[inline]
    fn look_ahead<F: FnMut(&[u8])>(&mut self, max: usize, on_frame: F) {
        if let Some(receiver) = &mut self.receiver {
            receiver.look_ahead(max, on_frame);
        }
    }

    fn wait(&mut self, timeout: Duration) -> Result<bool, PortError> {
        match &mut self.receiver {
            Some(receiver) => receiver.wait(timeout),
            None => {
                std::thread::sleep(timeout);
                Ok(false)
            }
        }
    }

    fn longest_nap(&self) -> Duration {
        match &self.receiver {
            Some(receiver) if receiver.stamped && receiver.area.frames() >= NAP_FRAMES => NAP,
            _ => Duration::ZERO,
        }
    }

    #[cfg(feature = "bpf")]
    fn close_intake(&mut self) -> Result<(), PortError> {
        match &self.receiver {
            Some(receiver) => receiver.close_intake(),
            None => Ok(()),
        }
    }

    fn counters(&mut self) -> RxCounters {
        self.receiver
            .as_ref()
            .map_or_else(RxCounters::default, OpenXdpRx::counters)
    }

    fn kernel_counters(&mut self) -> Vec<(&'static str, u64)> {
        self.receiver
            .as_ref()
            .map_or_else(Vec::new, OpenXdpRx::kernel_counters)
    }
}

impl OpenXdpRx {
    #[inline]
    fn receive(
        &mut self,
        max: usize,
        mut on_frame: impl FnMut(&RxFrame<'_>),
    ) -> Result<usize, PortError> {
        let n = self.ring.available(u32::try_from(max).unwrap_or(u32::MAX));
        if n == 0 {
            self.empty_round()?;
            return Ok(0);
        }
        self.empty_rounds = 0;
        let clock = WallOffset::sample();
        for i in 0..n {
            if let Some(descriptor) = self.ring.peek(i) {
                self.show(descriptor, clock, &mut on_frame);
            }
        }
        self.ring.release(n);
        while let Some(&address) = self.spare.last()
            && self.give(address)
        {
            self.spare.pop();
        }
        self.fill.publish();
        self.received_frames += u64::from(n);
        if self.fill.needs_wakeup() {
            self.ask()?;
        }
        Ok(n as usize)
    }

    #[inline]
    fn look_ahead(&mut self, max: usize, mut on_frame: impl FnMut(&[u8])) {
        let n = self.ring.available(u32::try_from(max).unwrap_or(u32::MAX));
        let frames = (0..n).filter_map(|i| self.ring.peek(i));
        for descriptor in frames {
            if let Some((index, offset)) = self.area.locate(descriptor.address) {
                // SAFETY: as in `show`; the frame is not shared meanwhile, and it is not given back here.
                let frame = unsafe { self.area.frame(index) };
                on_frame(&frame[offset..][..descriptor.len as usize]);
            }
        }
    }

    /// Passes one frame to the caller and returns its memory to the fill ring.
    #[inline]
    fn show(
        &mut self,
        descriptor: Descriptor,
        clock: WallOffset,
        on_frame: &mut impl FnMut(&RxFrame<'_>),
    ) {
        // The address points behind the headroom; `locate` splits it.
        let Some((index, offset)) = self.area.locate(descriptor.address) else {
            debug_assert!(false, "a frame that is not of this memory: {descriptor:?}");
            return;
        };
        // SAFETY: the frame came through the receive ring and belongs to this end until it is in the fill ring.
        let (front, rest) = unsafe { self.area.frame(index) }.split_at_mut(offset);
        let (stamp_ns, stamp_source) = match stamp::read_stamp(front) {
            Some(monotonic_ns) => (clock.wall_ns(monotonic_ns), StampSource::KernelXdp),
            None => (clock.now_ns, StampSource::UserSpace),
        };
        self.stamped = stamp_source == StampSource::KernelXdp;
        on_frame(&RxFrame {
            bytes: &rest[..descriptor.len as usize],
            original_len: descriptor.len,
            stamp_ns,
            stamp_source,
            vlan: None,
            checksum: ChecksumState::Unknown,
        });
        let address = self.area.address(index);
        if !self.give(address) {
            // The capacity is the number of frames of the area, so nothing is allocated.
            self.spare.push(address);
        }
    }

    /// Returns memory to the kernel; returns false if the fill ring has no free slot.
    #[inline]
    fn give(&mut self, address: u64) -> bool {
        self.fill.free_entries(1);
        self.fill.push(address)
    }

    fn empty_round(&mut self) -> Result<(), PortError> {
        self.empty_rounds += 1;
        if self.busy_poll
            || self.fill.needs_wakeup()
            || self.empty_rounds >= EMPTY_ROUNDS_PER_QUESTION
        {
            self.empty_rounds = 0;
            self.ask()?;
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Duration) -> Result<bool, PortError> {
        if self.ring.available(1) > 0 {
            return Ok(true);
        }
        let timeout = Timespec::try_from(timeout).unwrap_or(Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        });
        let mut fds = [PollFd::new(&*self.socket, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => {
                // `poll` does not report a removed device.
                self.ask()?;
                Ok(false)
            }
            Ok(_) => Ok(true),
            Err(Errno::INTR) => Ok(false),
            Err(cause) => Err(PortError::Io {
                port: self.port.clone(),
                operation: "wait for frames (poll)".into(),
                cause: cause.into(),
            }),
        }
    }

    /// Lets the kernel process the receive side, if necessary, and checks that the device still exists. A device that
    /// is only down has no frames.
    fn ask(&self) -> Result<(), PortError> {
        match kick_rx(&self.socket) {
            Err(Errno::NXIO | Errno::NODEV | Errno::BADF) => Err(port_errors::gone(&self.port)),
            _ => Ok(()),
        }
    }

    #[cfg(feature = "bpf")]
    fn close_intake(&self) -> Result<(), PortError> {
        let Some(gate) = &self.gate else {
            return Ok(());
        };
        gate.close(self.queue).map_err(|cause| PortError::Io {
            port: self.port.clone(),
            operation: "detach the queue from its socket".into(),
            cause,
        })
    }

    #[cfg(feature = "bpf")]
    fn passed(&self) -> Option<u64> {
        self.gate.as_ref()?.matched(self.queue)
    }

    #[cfg(not(feature = "bpf"))]
    fn passed(&self) -> Option<u64> {
        None
    }

    fn kernel_counters(&self) -> Vec<(&'static str, u64)> {
        // if_xdp.h: struct xdp_statistics.
        let mut named = Vec::new();
        if let Ok(lost) = sockopt::xdp_statistics(&self.socket) {
            named.push(("rx_dropped", lost.rx_dropped));
            named.push(("rx_invalid_descs", lost.rx_invalid_descs));
            named.extend(lost.rx_ring_full.map(|n| ("rx_ring_full", n)));
            named.extend(
                lost.rx_fill_ring_empty_descs
                    .map(|n| ("rx_fill_ring_empty_descs", n)),
            );
        }
        named.extend(self.passed().map(|n| ("xdp_matched", n)));
        named
    }

    fn counters(&self) -> RxCounters {
        // A frame that finds the fill ring empty counts in `rx_dropped` and again in `rx_fill_ring_empty_descs`, so the
        // latter is left out.
        let dropped_frames = sockopt::xdp_statistics(&self.socket)
            .map_or(0, |lost| lost.rx_dropped + lost.rx_ring_full.unwrap_or(0));
        RxCounters {
            received_frames: self.received_frames,
            dropped_frames,
            passed_frames: self.passed(),
            ..RxCounters::default()
        }
    }
}
