//! Whole messages: sends and receives that continue after a signal, and datagrams with their addresses.
#![allow(
    unsafe_code,
    reason = "batches, segments and packet information have no safe wrapper"
)]

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsRawFd, BorrowedFd},
};

use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags, recv, recvfrom, send, sendto},
};

use super::LoopEnd;
use crate::Stopper;

/// udp.h: UDP_GRO.
const UDP_GRO: i32 = 104;
/// Bytes for the control messages of one datagram.
const CONTROL: usize = 64;

/// Sends one message, a datagram or a part of a stream.
#[inline]
pub(super) fn send_one(
    fd: BorrowedFd<'_>,
    to: Option<&SocketAddr>,
    bytes: &[u8],
    flags: SendFlags,
) -> rustix::io::Result<usize> {
    match to {
        None => send(fd, bytes, flags),
        Some(to) => sendto(fd, bytes, flags, to),
    }
}

/// Sends all of a message over a stream. Returns the number of calls.
#[inline]
pub(super) fn send_whole(fd: BorrowedFd<'_>, bytes: &[u8], stop: &Stopper) -> Result<u64, LoopEnd> {
    let mut sent = 0;
    let mut calls = 0;
    while sent < bytes.len() {
        match send(fd, &bytes[sent..], SendFlags::NOSIGNAL) {
            Ok(n) => {
                sent += n;
                calls += 1;
            }
            Err(Errno::INTR) if stop.is_stopped() => return Err(LoopEnd::Stopped),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(calls)
}

/// Receives a whole message from a stream. Returns the number of calls. With `spin` it polls instead of sleeping.
#[inline]
pub(super) fn receive_whole(
    fd: BorrowedFd<'_>,
    into: &mut [u8],
    spin: bool,
    stop: &Stopper,
) -> Result<u64, LoopEnd> {
    let flags = if spin {
        RecvFlags::DONTWAIT
    } else {
        RecvFlags::empty()
    };
    let mut got = 0;
    let mut calls = 0;
    while got < into.len() {
        match recv(fd, &mut into[got..], flags) {
            Ok((0, _)) => return Err(LoopEnd::Eof),
            Ok((n, _)) => {
                got += n;
                calls += 1;
            }
            Err(Errno::INTR | Errno::AGAIN) => {
                stop.check_stopped()?;
                std::hint::spin_loop();
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(calls)
}

/// Returns true for network errors about an earlier datagram; a receiver continues after them.
pub(super) fn is_passing(error: Errno) -> bool {
    matches!(
        error,
        Errno::CONNREFUSED | Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::HOSTDOWN
    )
}

/// Waits for the first datagram, which stays in the queue. Returns its source.
pub(super) fn await_first(
    fd: BorrowedFd<'_>,
    spin: bool,
    stop: &Stopper,
) -> Result<Option<SocketAddr>, LoopEnd> {
    let mut flags = RecvFlags::PEEK;
    if spin {
        flags |= RecvFlags::DONTWAIT;
    }
    loop {
        if stop.is_stopped() {
            return Err(LoopEnd::Stopped);
        }
        match recvfrom(fd, &mut [0; 1], flags) {
            Ok((_, _, source)) => return Ok(source.and_then(|s| SocketAddr::try_from(s).ok())),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => std::hint::spin_loop(),
            Err(error) if is_passing(error) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A socket address in the kernel's form, and its length.
pub(super) fn native_address(address: &SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: all zeros is a valid address of no family.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let length = match address {
        SocketAddr::V4(v4) => {
            let native = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is larger than any address, and aligned for it.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(native) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let native = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe {
                (&raw mut storage)
                    .cast::<libc::sockaddr_in6>()
                    .write(native)
            };
            size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, length as libc::socklen_t)
}

/// Space for control messages, with the required alignment.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct ControlSpace([u8; CONTROL]);

/// Datagrams sent or received by one call.
pub(super) struct DatagramBatch {
    headers: Vec<libc::mmsghdr>,
    vectors: Vec<libc::iovec>,
    controls: Vec<ControlSpace>,
    to: Box<libc::sockaddr_storage>,
    to_length: libc::socklen_t,
}

// SAFETY: the pointers refer to memory that the value owns, or that is set anew for each call.
unsafe impl Send for DatagramBatch {}

impl std::fmt::Debug for DatagramBatch {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Batch of {}", self.headers.len())
    }
}

impl DatagramBatch {
    /// Space for `most` datagrams.
    pub(super) fn new(most: usize) -> Self {
        // SAFETY: all zeros is an empty header, an empty piece of memory, and no address.
        let (header, vector, to) = unsafe {
            (
                std::mem::zeroed::<libc::mmsghdr>(),
                std::mem::zeroed::<libc::iovec>(),
                std::mem::zeroed::<libc::sockaddr_storage>(),
            )
        };
        Self {
            headers: vec![header; most],
            vectors: vec![vector; most],
            controls: vec![ControlSpace([0; CONTROL]); most],
            to: Box::new(to),
            to_length: 0,
        }
    }

    /// Sets the destination; `None` if the socket is connected.
    pub(super) fn set_destination(&mut self, to: Option<&SocketAddr>) {
        self.to_length = 0;
        if let Some(to) = to {
            (*self.to, self.to_length) = native_address(to);
        }
    }

    fn point_to(&mut self, n: usize, at: *const u8, length: usize) {
        self.vectors[n] = libc::iovec {
            iov_base: at.cast_mut().cast(),
            iov_len: length,
        };
        let header = &mut self.headers[n].msg_hdr;
        header.msg_iov = &raw mut self.vectors[n];
        header.msg_iovlen = 1;
    }

    /// Sends one datagram from each buffer. Returns the number sent.
    ///
    /// # Errors
    /// Returns the system's error about the first datagram.
    pub(super) fn send<'b>(
        &mut self,
        fd: BorrowedFd<'_>,
        buffers: impl Iterator<Item = &'b [u8]>,
        flags: SendFlags,
    ) -> rustix::io::Result<usize> {
        let mut number = 0;
        for buffer in buffers.take(self.headers.len()) {
            self.point_to(number, buffer.as_ptr(), buffer.len());
            let header = &mut self.headers[number].msg_hdr;
            header.msg_namelen = self.to_length;
            header.msg_name = if self.to_length == 0 {
                std::ptr::null_mut()
            } else {
                (&raw mut *self.to).cast()
            };
            number += 1;
        }
        // SAFETY: `number` headers are filled with buffers that are borrowed during the call, which
        // only reads them, and with the address that we own.
        let sent = unsafe {
            libc::sendmmsg(
                fd.as_raw_fd(),
                self.headers.as_mut_ptr(),
                number as u32,
                flags.bits().cast_signed(),
            )
        };
        count_result(sent)
    }

    /// Receives up to one datagram per buffer. Waits for the first only, and with `spin` for none. Returns the number
    /// received.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(super) fn receive<'b>(
        &mut self,
        fd: BorrowedFd<'_>,
        buffers: impl Iterator<Item = &'b mut [u8]>,
        discard: bool,
        spin: bool,
    ) -> rustix::io::Result<usize> {
        let mut number = 0;
        for buffer in buffers.take(self.headers.len()) {
            self.point_to(number, buffer.as_mut_ptr(), buffer.len());
            let header = &mut self.headers[number].msg_hdr;
            header.msg_name = std::ptr::null_mut();
            header.msg_namelen = 0;
            header.msg_control = (&raw mut self.controls[number]).cast();
            header.msg_controllen = CONTROL;
            number += 1;
        }
        let mut flags = libc::MSG_WAITFORONE;
        if discard {
            flags |= libc::MSG_TRUNC;
        }
        if spin {
            flags |= libc::MSG_DONTWAIT;
        }
        // SAFETY: `number` headers are filled with buffers that are borrowed exclusively during the
        // call, and with room for control messages that we own.
        let got = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                self.headers.as_mut_ptr(),
                number as u32,
                flags,
                std::ptr::null_mut(),
            )
        };
        count_result(got)
    }

    /// Length of a received datagram.
    #[inline]
    pub(super) fn received_len(&self, n: usize) -> usize {
        self.headers[n].msg_len as usize
    }

    /// Segment length of a coalesced datagram (UDP_GRO).
    pub(super) fn segment_len(&self, n: usize) -> Option<usize> {
        let header = &raw const self.headers[n].msg_hdr;
        // SAFETY: the kernel has set the length of the control messages; the macros stay within it.
        unsafe {
            let mut message = libc::CMSG_FIRSTHDR(header);
            while let Some(head) = message.as_ref() {
                if head.cmsg_level == libc::SOL_UDP && head.cmsg_type == UDP_GRO {
                    let bytes = libc::CMSG_DATA(message).cast::<i32>().read_unaligned();
                    return usize::try_from(bytes).ok().filter(|n| *n > 0);
                }
                message = libc::CMSG_NXTHDR(header, message);
            }
        }
        None
    }
}

fn count_result(result: i32) -> rustix::io::Result<usize> {
    usize::try_from(result).map_err(|_| last_error())
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Receives datagrams with their destination address and answers from that address.
pub(super) struct AnsweringSocket {
    control: Box<ControlSpace>,
    control_length: usize,
    from: Box<libc::sockaddr_storage>,
    from_length: libc::socklen_t,
}

impl std::fmt::Debug for AnsweringSocket {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Answers")
    }
}

impl AnsweringSocket {
    pub(super) fn new() -> Self {
        // SAFETY: all zeros is no address.
        let from = unsafe { std::mem::zeroed() };
        Self {
            control: Box::new(ControlSpace([0; CONTROL])),
            control_length: 0,
            from: Box::new(from),
            from_length: 0,
        }
    }

    /// Receives a datagram. Returns its length, truncated to the buffer.
    pub(super) fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        into: &mut [u8],
        spin: bool,
    ) -> rustix::io::Result<usize> {
        let mut vector = libc::iovec {
            iov_base: into.as_mut_ptr().cast(),
            iov_len: into.len(),
        };
        // SAFETY: all zeros is an empty header. It is then filled with memory that is exclusively borrowed during the
        // call and as long as the header says.
        unsafe {
            let mut header: libc::msghdr = std::mem::zeroed();
            header.msg_name = (&raw mut *self.from).cast();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_iov = &raw mut vector;
            header.msg_iovlen = 1;
            header.msg_control = (&raw mut *self.control).cast();
            header.msg_controllen = CONTROL;
            let flags = if spin { libc::MSG_DONTWAIT } else { 0 };
            let got = libc::recvmsg(fd.as_raw_fd(), &raw mut header, flags);
            let got = usize::try_from(got).map_err(|_| last_error())?;
            self.from_length = header.msg_namelen;
            self.control_length = keep_destination(&mut header);
            Ok(got)
        }
    }

    /// Answers the last received datagram.
    pub(super) fn send(&mut self, fd: BorrowedFd<'_>, bytes: &[u8]) -> rustix::io::Result<usize> {
        let mut vector = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        // SAFETY: as above; the call only reads.
        unsafe {
            let mut header: libc::msghdr = std::mem::zeroed();
            header.msg_name = (&raw mut *self.from).cast();
            header.msg_namelen = self.from_length;
            header.msg_iov = &raw mut vector;
            header.msg_iovlen = 1;
            if self.control_length > 0 {
                header.msg_control = (&raw mut *self.control).cast();
                header.msg_controllen = self.control_length;
            }
            let sent = libc::sendmsg(fd.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL);
            usize::try_from(sent).map_err(|_| last_error())
        }
    }
}

/// Keeps only the first control message, if it is the one with the destination address, and converts it to the form
/// that sets a source address. Returns its length.
///
/// # Safety
/// The header must be one that `recvmsg` has filled.
unsafe fn keep_destination(header: &mut libc::msghdr) -> usize {
    // SAFETY: by the contract of this function, the control messages are as long as the header says.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(header);
        let Some(head) = message.as_ref() else {
            return 0;
        };
        let body = libc::CMSG_DATA(message);
        match (head.cmsg_level, head.cmsg_type) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let place = body.cast::<libc::in_pktinfo>();
                let mut place_of = place.read_unaligned();
                // Any interface towards the peer; only the address matters.
                place_of.ipi_ifindex = 0;
                place_of.ipi_spec_dst = place_of.ipi_addr;
                place.write_unaligned(place_of);
                libc::CMSG_SPACE(size_of::<libc::in_pktinfo>() as u32) as usize
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let place = body.cast::<libc::in6_pktinfo>();
                let mut place_of = place.read_unaligned();
                let octets = place_of.ipi6_addr.s6_addr;
                // For link-local addresses the interface is part of the address.
                if octets[0] != 0xfe || octets[1] & 0xc0 != 0x80 {
                    place_of.ipi6_ifindex = 0;
                }
                place.write_unaligned(place_of);
                libc::CMSG_SPACE(size_of::<libc::in6_pktinfo>() as u32) as usize
            }
            _ => 0,
        }
    }
}
