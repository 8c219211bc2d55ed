//! AF_XDP sockets: creates them, registers memory and rings, binds them to a queue, and kicks them.
//!
//! Each queue has one memory area. In copy mode with both directions it has two sockets: a `poll` of a socket with a
//! transmit ring would send in copy mode, and would discard the error of a frame that the device dropped.
#![allow(unsafe_code)] // Socket options that rustix does not know.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING,
    XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpRingOffset,
    XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
    sockopt,
};
use wb_port::Interface;

use crate::options::{BusyPoll, XdpOptions};
use crate::port_errors::{self, Failure};
use crate::ring::{Descriptor, RingConsumer, RingMapping, RingProducer};
use crate::umem::{self, Area};

/// A kernel worker frees the pool of a closed socket; the queue counts as in use for about 200 ms. Any other owner
/// would keep it for longer, so retries for one second are enough.
const BIND_TIMEOUT: Duration = Duration::from_secs(1);
const BIND_PAUSE: Duration = Duration::from_millis(10);

/// The kernel requires a fill ring even if nothing is received.
const UNUSED_RING: u32 = 64;

/// Rings of a queue that sends.
pub(crate) struct TxParts {
    pub(crate) socket: Arc<OwnedFd>,
    pub(crate) ring: RingProducer<Descriptor>,
    pub(crate) completions: RingConsumer<u64>,
    pub(crate) area: Area,
}

/// Rings of a queue that receives; the kernel owns all frames of the area.
pub(crate) struct RxParts {
    pub(crate) socket: Arc<OwnedFd>,
    pub(crate) ring: RingConsumer<Descriptor>,
    pub(crate) fill: RingProducer<u64>,
    pub(crate) area: Area,
    pub(crate) queue: u32,
}

/// Directions in which a queue is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Directions {
    pub(crate) tx: bool,
    pub(crate) rx: bool,
}

/// Number of frames that the device receives into, and slots of the fill ring.
///
/// A queue with zero copy receives only into the pool that is bound to it, including the host's frames. Without memory
/// in the fill ring, the host would receive nothing on this queue while the port sends.
fn receive_memory(options: &XdpOptions, directions: Directions, zero_copy: bool) -> (u32, u32) {
    if directions.rx || zero_copy {
        options.rx_memory()
    } else {
        (0, UNUSED_RING)
    }
}

/// Opens one queue, bound and ready to use.
pub(crate) fn open_queue(
    interface: &Interface,
    options: &XdpOptions,
    directions: Directions,
    frame_size: u32,
    queue: u32,
    zero_copy: bool,
) -> Result<(Option<TxParts>, Option<RxParts>), Failure> {
    let io = |operation: &'static str| move |cause| port_errors::io(interface, operation, cause);
    let Directions { tx, rx } = directions;
    let tx_frames = if tx { options.tx_frames } else { 0 };
    let rx_slots = if rx { options.rx_frames } else { 0 };
    let (rx_frames, fill_size) = receive_memory(options, directions, zero_copy);
    let (tx_area, rx_area) = umem::map(frame_size, tx_frames, rx_frames)
        .map_err(|cause| port_errors::io(interface, "map frame memory", cause))?;

    let first = Arc::new(new_socket(interface)?);
    register(interface, &first, &tx_area)?;
    let completion_size = tx_frames.max(UNUSED_RING);
    sockopt::set_xdp_umem_fill_ring_size(&first, fill_size).map_err(io("size the fill ring"))?;
    sockopt::set_xdp_umem_completion_ring_size(&first, completion_size)
        .map_err(io("size the completion ring"))?;

    let split = tx && rx && !zero_copy;
    let second = if split {
        Arc::new(new_socket(interface)?)
    } else {
        Arc::clone(&first)
    };
    if rx {
        sockopt::set_xdp_rx_ring_size(&first, rx_slots).map_err(io("size the receive ring"))?;
    }
    if tx {
        sockopt::set_xdp_tx_ring_size(&second, tx_frames).map_err(io("size the transmit ring"))?;
        set_tx_budget(&second, options.tx_budget.clamp(32, tx_frames));
    }
    if let Some(busy_poll) = options.busy_poll {
        set_busy_poll(&first, busy_poll)
            .map_err(|cause| port_errors::io(interface, "enable busy polling", cause))?;
    }

    let offsets = sockopt::xdp_mmap_offsets(&first).map_err(io("read the ring offsets"))?;
    let mapped = |what| move |cause: io::Error| port_errors::io(interface, what, cause);
    let mut fill = map_ring::<u64>(&first, XDP_UMEM_PGOFF_FILL_RING, offsets.fr, fill_size)
        .and_then(|memory| RingProducer::new(memory, offsets.fr, fill_size))
        .map_err(mapped("map the fill ring"))?;
    let completions = map_ring::<u64>(
        &first,
        XDP_UMEM_PGOFF_COMPLETION_RING,
        offsets.cr,
        completion_size,
    )
    .and_then(|memory| RingConsumer::new(memory, offsets.cr, completion_size))
    .map_err(mapped("map the completion ring"))?;

    fill.free_entries(rx_frames);
    for frame in 0..rx_frames {
        fill.push(rx_area.address(frame));
    }
    fill.publish();
    let mut receiving = None;
    if rx {
        let ring = map_ring::<Descriptor>(&first, XDP_PGOFF_RX_RING, offsets.rx, rx_slots)
            .and_then(|memory| RingConsumer::new(memory, offsets.rx, rx_slots))
            .map_err(mapped("map the receive ring"))?;
        receiving = Some(RxParts {
            socket: Arc::clone(&first),
            ring,
            fill,
            area: rx_area,
            queue,
        });
    }
    let mut sending = None;
    if tx {
        let ring = map_ring::<Descriptor>(&second, XDP_PGOFF_TX_RING, offsets.tx, tx_frames)
            .and_then(|memory| RingProducer::new(memory, offsets.tx, tx_frames))
            .map_err(mapped("map the transmit ring"))?;
        sending = Some(TxParts {
            socket: Arc::clone(&second),
            ring,
            completions,
            area: tx_area,
        });
    }

    bind_first(interface, &first, queue, zero_copy)?;
    if split {
        let address = SocketAddrXdpWithSharedUmem {
            addr: SocketAddrXdp::new(SocketAddrXdpFlags::XDP_SHARED_UMEM, interface.index, queue),
            shared_umem_fd: std::os::fd::AsFd::as_fd(&first),
        };
        bind(&second, &address)
            .map_err(|cause| port_errors::bind(interface, queue, false, cause))?;
    }
    Ok((sending, receiving))
}

/// Creates an unbound socket, also for [`crate::probe()`].
pub(crate) fn new_socket(interface: &Interface) -> Result<OwnedFd, Failure> {
    socket_with(
        AddressFamily::XDP,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|cause| port_errors::socket(interface, cause).into())
}

fn register(interface: &Interface, socket: &OwnedFd, area: &Area) -> Result<(), Failure> {
    let (addr, len) = area.whole();
    let registration = XdpUmemReg {
        addr,
        len,
        // At most a page, checked by `XdpOptions::resolve`.
        chunk_size: area.frame_size() as u32,
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    sockopt::set_xdp_umem_reg(socket, registration)
        .map_err(|cause| port_errors::memory(interface, len, cause).into())
}

fn map_ring<T>(
    socket: &OwnedFd,
    page: u64,
    at: XdpRingOffset,
    size: u32,
) -> io::Result<Arc<RingMapping>> {
    let len = usize::try_from(at.desc).map_err(|_| io::ErrorKind::InvalidData)?
        + size as usize * size_of::<T>();
    Ok(Arc::new(RingMapping::shared(socket, page, len)?))
}

fn bind_first(
    interface: &Interface,
    socket: &OwnedFd,
    queue: u32,
    zero_copy: bool,
) -> Result<(), Failure> {
    let copying = if zero_copy {
        SocketAddrXdpFlags::XDP_ZEROCOPY
    } else {
        SocketAddrXdpFlags::XDP_COPY
    };
    let flags = copying | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
    let address = SocketAddrXdp::new(flags, interface.index, queue);
    let start = Instant::now();
    loop {
        match bind(socket, &address) {
            Ok(()) => return Ok(()),
            Err(Errno::BUSY) if start.elapsed() < BIND_TIMEOUT => std::thread::sleep(BIND_PAUSE),
            Err(cause) => return Err(port_errors::bind(interface, queue, zero_copy, cause)),
        }
    }
}

/// Makes the kernel process the transmit ring.
#[inline]
pub(crate) fn kick_tx(socket: &OwnedFd) -> Result<(), Errno> {
    send(socket, &[], SendFlags::DONTWAIT).map(drop)
}

/// Makes the kernel process the receive side, or return an error.
#[inline]
pub(crate) fn kick_rx(socket: &OwnedFd) -> Result<(), Errno> {
    recv(socket, &mut [0u8; 0][..], RecvFlags::DONTWAIT).map(drop)
}

/// Sets the number of frames per system call in copy mode. Kernels before 6.17 refuse; the number is then 32.
fn set_tx_budget(socket: &OwnedFd, frames: u32) {
    // if_xdp.h: XDP_MAX_TX_SKB_BUDGET.
    const XDP_MAX_TX_SKB_BUDGET: i32 = 9;
    if let Err(cause) = set_option(socket, libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, frames) {
        tracing::debug!("transmit budget stays at 32: {cause}");
    }
}

fn set_busy_poll(socket: &OwnedFd, busy_poll: BusyPoll) -> io::Result<()> {
    // socket.h: SO_PREFER_BUSY_POLL, SO_BUSY_POLL_BUDGET.
    const SO_PREFER_BUSY_POLL: i32 = 69;
    const SO_BUSY_POLL_BUDGET: i32 = 70;
    set_option(socket, libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, 1)?;
    set_option(
        socket,
        libc::SOL_SOCKET,
        libc::SO_BUSY_POLL,
        busy_poll.micros,
    )?;
    set_option(
        socket,
        libc::SOL_SOCKET,
        SO_BUSY_POLL_BUDGET,
        busy_poll.budget,
    )
}

fn set_option(socket: &OwnedFd, level: i32, name: i32, value: u32) -> io::Result<()> {
    // SAFETY: the kernel reads four bytes of a value that outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<u32>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_with_zero_copy_always_has_memory_to_receive_into() {
        let options = XdpOptions::default();
        let memory = |tx, rx, zero_copy| receive_memory(&options, Directions { tx, rx }, zero_copy);
        assert_eq!(memory(true, false, true), options.rx_memory());
        assert_eq!(memory(true, true, true), options.rx_memory());
        assert_eq!(memory(false, true, false), options.rx_memory());
        assert_eq!(memory(true, false, false), (0, UNUSED_RING));
    }
}
