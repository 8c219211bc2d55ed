//! Takes connections down.

use std::{io, os::fd::BorrowedFd};

use rustix::{
    io::Errno,
    net::{RecvFlags, Shutdown, recv, shutdown},
};

use crate::Stopper;

/// Shuts down sending, then reads until the peer does the same. The caller closes the socket. Returns the number of
/// discarded bytes.
///
/// # Errors
/// Returns the system's error; [`io::ErrorKind::Interrupted`] if stopped.
pub fn shut_down_and_drain(fd: BorrowedFd<'_>, stop: &Stopper) -> io::Result<u64> {
    match shutdown(fd, Shutdown::Write) {
        // The peer has reset the connection already.
        Ok(()) | Err(Errno::NOTCONN) => {}
        Err(error) => return Err(error.into()),
    }
    drain(fd, stop)
}

/// Reads until the peer shuts down sending. Returns the number of discarded bytes.
///
/// # Errors
/// Returns the system's error; [`io::ErrorKind::Interrupted`] if stopped.
pub fn drain(fd: BorrowedFd<'_>, stop: &Stopper) -> io::Result<u64> {
    let mut away = [0; 16_384];
    let mut bytes = 0;
    while !stop.is_stopped() {
        match recv(fd, &mut away, RecvFlags::empty()) {
            Ok((0, _)) | Err(Errno::NOTCONN) => return Ok(bytes),
            Ok((n, _)) => bytes += n as u64,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::ErrorKind::Interrupted.into())
}
