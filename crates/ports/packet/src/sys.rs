//! Safe wrappers of system calls on packet sockets.
//!
//! Returns the kernel's errors; the callers translate them.
#![allow(unsafe_code)] // Raw bind, setsockopt, ioctl and recvmsg: libc structures and unions.

use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::FilterOp;

/// linux/if_ether.h: every protocol.
pub(crate) const ETH_P_ALL: u16 = 0x0003;
/// linux/ethtool.h
const ETHTOOL_GLINK: u32 = 0x0a;

/// Binds a packet socket to an interface. With `protocol` 0 it can only send.
pub(crate) fn bind(fd: BorrowedFd<'_>, index: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index as c_int;
    // SAFETY: the pointer and the length describe `address`, which outlives the call.
    done(unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    })
}

/// Sets an integer option of level `SOL_PACKET`.
pub(crate) fn set_packet_option(fd: BorrowedFd<'_>, name: c_int, value: c_int) -> io::Result<()> {
    set(fd, libc::SOL_PACKET, name, &value)
}

/// Sets the priority of the frames sent.
pub(crate) fn set_priority(fd: BorrowedFd<'_>, priority: u32) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_PRIORITY, &priority)
}

/// Requests a TPACKET_V3 receive ring; frees it if all counts are 0.
pub(crate) fn set_rx_ring_v3(fd: BorrowedFd<'_>, request: libc::tpacket_req3) -> io::Result<()> {
    set(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)
}

/// Requests a TPACKET_V2 receive ring; frees it if all counts are 0.
pub(crate) fn set_rx_ring_v2(fd: BorrowedFd<'_>, request: libc::tpacket_req) -> io::Result<()> {
    set(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)
}

/// Sets a mode of the device (`PACKET_MR_PROMISC`, …) for as long as the socket is open.
pub(crate) fn add_membership(fd: BorrowedFd<'_>, index: u32, mode: c_int) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: index as c_int,
        mr_type: mode as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)
}

/// linux/if_packet.h; missing in libc.
const PACKET_FANOUT_DATA: c_int = 22;

/// Replaces the socket's filter.
pub(crate) fn attach_filter(fd: BorrowedFd<'_>, ops: &[FilterOp]) -> io::Result<()> {
    set_program(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, ops)
}

/// Sets a program that selects the socket of the fanout group for each frame.
pub(crate) fn set_fanout_program(fd: BorrowedFd<'_>, ops: &[FilterOp]) -> io::Result<()> {
    set_program(fd, libc::SOL_PACKET, PACKET_FANOUT_DATA, ops)
}

fn set_program(
    fd: BorrowedFd<'_>,
    level: c_int,
    option: c_int,
    ops: &[FilterOp],
) -> io::Result<()> {
    let mut program: Vec<libc::sock_filter> = ops
        .iter()
        .map(|&(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k })
        .collect();
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // The kernel copies the program during the call.
    let program = libc::sock_fprog {
        len,
        filter: program.as_mut_ptr(),
    };
    set(fd, level, option, &program)
}

/// Removes the socket's filter.
pub(crate) fn detach_filter(fd: BorrowedFd<'_>) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0 as &c_int)
}

/// Id of the socket's fanout group.
pub(crate) fn fanout_group(fd: BorrowedFd<'_>) -> io::Result<u16> {
    let mut value: c_int = 0;
    get(fd, libc::PACKET_FANOUT, &mut value)?;
    Ok(value as u16)
}

/// Kernel counters since the last call: frames that passed the filter (including dropped ones), frames dropped because
/// the ring was full, and times the ring was full.
pub(crate) fn take_statistics(fd: BorrowedFd<'_>) -> io::Result<(u32, u32, u32)> {
    // The shorter structure of versions 1 and 2 is the beginning of this one.
    let mut stats = libc::tpacket_stats_v3 {
        tp_packets: 0,
        tp_drops: 0,
        tp_freeze_q_cnt: 0,
    };
    get(fd, libc::PACKET_STATISTICS, &mut stats)?;
    Ok((stats.tp_packets, stats.tp_drops, stats.tp_freeze_q_cnt))
}

/// Flags `IFF_…` of the interface `name`.
pub(crate) fn interface_flags(fd: BorrowedFd<'_>, name: &str) -> io::Result<c_int> {
    let mut request = interface_request(name)?;
    ioctl(fd, libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the kernel has filled in this member of the union.
    Ok(c_int::from(unsafe { request.ifr_ifru.ifru_flags }))
}

/// Type `ARPHRD_…` of the interface `name`.
pub(crate) fn hardware_type(fd: BorrowedFd<'_>, name: &str) -> io::Result<u16> {
    let mut request = interface_request(name)?;
    ioctl(fd, libc::SIOCGIFHWADDR, &mut request)?;
    // SAFETY: the kernel has filled in this member of the union.
    Ok(unsafe { request.ifr_ifru.ifru_hwaddr }.sa_family)
}

/// Returns true if the interface has a carrier. Waits for the kernel's configuration lock: not for hot paths.
pub(crate) fn has_carrier(fd: BorrowedFd<'_>, name: &str) -> io::Result<bool> {
    let mut value = [ETHTOOL_GLINK, 0];
    let mut request = interface_request(name)?;
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    ioctl(fd, libc::SIOCETHTOOL, &mut request)?;
    Ok(value[1] != 0)
}

/// Returns true if the device takes hardware timestamps of received frames.
pub(crate) fn stamps_in_hardware(fd: BorrowedFd<'_>, name: &str) -> io::Result<bool> {
    let mut config = libc::hwtstamp_config {
        flags: 0,
        tx_type: 0,
        rx_filter: 0,
    };
    let mut request = interface_request(name)?;
    request.ifr_ifru.ifru_data = (&raw mut config).cast();
    ioctl(fd, libc::SIOCGHWTSTAMP, &mut request)?;
    Ok(config.rx_filter != 0)
}

/// Received frame with its `PACKET_AUXDATA`.
pub(crate) struct Message {
    /// Bytes on the wire; larger than the buffer if the frame was truncated.
    pub(crate) len: usize,
    pub(crate) aux: Option<libc::tpacket_auxdata>,
}

/// Receives one frame without waiting.
pub(crate) fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Message> {
    // u64 for the alignment of cmsghdr.
    let mut control = [0u64; 16];
    let mut iovec = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: all-zero bytes are a valid msghdr.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = &raw mut iovec;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the header describes `buffer` and `control`, which outlive the call.
    let len = unsafe {
        libc::recvmsg(
            fd.as_raw_fd(),
            &raw mut header,
            libc::MSG_DONTWAIT | libc::MSG_TRUNC,
        )
    };
    let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    let mut aux = None;
    // SAFETY: the kernel has filled in the control buffer and its length.
    let mut cmsg = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    while !cmsg.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return only headers inside the control buffer.
        let (level, kind, size) = unsafe {
            (
                (*cmsg).cmsg_level,
                (*cmsg).cmsg_type,
                (*cmsg).cmsg_len as usize,
            )
        };
        // SAFETY: CMSG_LEN only computes.
        let wanted = unsafe { libc::CMSG_LEN(size_of::<libc::tpacket_auxdata>() as u32) } as usize;
        if (level, kind) == (libc::SOL_PACKET, libc::PACKET_AUXDATA) && size >= wanted {
            // SAFETY: the length says that a whole tpacket_auxdata follows the header.
            aux = Some(unsafe {
                libc::CMSG_DATA(cmsg)
                    .cast::<libc::tpacket_auxdata>()
                    .read_unaligned()
            });
        }
        // SAFETY: `cmsg` is a header inside the control buffer that `header` describes.
        cmsg = unsafe { libc::CMSG_NXTHDR(&raw const header, cmsg) };
    }
    Ok(Message { len, aux })
}

/// Sets a socket option. `T` must be the structure of the option.
fn set<T>(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which outlives the call.
    done(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast::<c_void>(),
            size_of::<T>() as libc::socklen_t,
        )
    })
}

/// Reads an option of level `SOL_PACKET`. `T` must be its structure and consist of integers.
fn get<T>(fd: BorrowedFd<'_>, name: c_int, value: &mut T) -> io::Result<()> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer and the length describe `value`; any integers are valid in it.
    done(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            name,
            std::ptr::from_mut(value).cast::<c_void>(),
            &raw mut len,
        )
    })
}

fn interface_request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all-zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { zeroed() };
    // The last byte stays 0.
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as c_char;
    }
    Ok(request)
}

/// Makes a request. Pointers in the request must point to the structure of the call.
fn ioctl(fd: BorrowedFd<'_>, call: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: every call above takes an ifreq. `request` and the memory that it points to outlive the call.
    done(unsafe { libc::ioctl(fd.as_raw_fd(), call as _, std::ptr::from_mut(request)) })
}

fn done(result: c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
