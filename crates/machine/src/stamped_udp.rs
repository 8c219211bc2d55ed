//! UDP sockets with arrival times of the kernel.

#![allow(unsafe_code)] // An ioctl that fills in a timespec.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    time::Duration,
};

use rustix::ioctl::{Getter, Opcode, ioctl};

use crate::clock::{test_offset_ns, wall_ns};

/// `SIOCGSTAMPNS`: arrival time of the last datagram that was read. The first call makes the kernel take the times.
const ARRIVAL_TIME: Opcode = 0x8907;

/// UDP socket that reports when the kernel received a datagram, before the reading thread woke up.
#[derive(Debug)]
pub struct StampedUdp(UdpSocket);

impl StampedUdp {
    /// Takes over a socket. Reads end without a datagram after `patience`.
    ///
    /// # Errors
    /// If the socket does not accept the time limit.
    pub fn new(socket: UdpSocket, patience: Duration) -> io::Result<Self> {
        socket.set_read_timeout(Some(patience))?;
        let own = Self(socket);
        // No datagram has been read yet, so this call fails, but it turns the times on.
        let _ = own.arrival_ns();
        Ok(own)
    }

    /// The socket.
    #[must_use]
    pub const fn socket(&self) -> &UdpSocket {
        &self.0
    }

    /// Reads a datagram. Returns its length, its sender, and its arrival by the wall clock in ns since 1970. A kernel
    /// without arrival times gives the time of the read.
    ///
    /// # Errors
    /// `WouldBlock` if no datagram arrived in time; errors of the socket.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr, u64)> {
        let (len, from) = self.0.recv_from(buffer)?;
        Ok((len, from, self.arrival_ns().unwrap_or_else(wall_ns)))
    }

    fn arrival_ns(&self) -> Option<u64> {
        // SAFETY: the operation writes a timespec, which is the type of the getter.
        let time = unsafe { ioctl(&self.0, Getter::<ARRIVAL_TIME, libc::timespec>::new()) };
        let time = time.ok()?;
        let seconds = u64::try_from(time.tv_sec).ok()?;
        let ns = seconds.checked_mul(1_000_000_000)?;
        let ns = ns.checked_add(u64::try_from(time.tv_nsec).ok()?)?;
        Some(ns.saturating_add_signed(test_offset_ns()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_datagram_is_that_of_its_arrival_not_of_its_read() {
        let bound = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let receiver = StampedUdp::new(bound(), Duration::from_secs(10)).unwrap();
        let to = receiver.socket().local_addr().unwrap();
        let sender = bound();
        let mut buffer = [0; 16];
        for length in 1..=8 {
            let before_ns = wall_ns();
            sender.send_to(&buffer[..length], to).unwrap();
            // It waits in the socket, and is read later.
            receiver.socket().peek(&mut buffer).unwrap();
            let here_ns = wall_ns();
            let (len, from, arrived_ns) = receiver.receive(&mut buffer).unwrap();
            assert_eq!((len, from), (length, sender.local_addr().unwrap()));
            assert!(
                before_ns <= arrived_ns && arrived_ns <= here_ns,
                "{before_ns} {arrived_ns} {here_ns}"
            );
        }
    }

    #[test]
    fn a_read_without_a_datagram_ends() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = StampedUdp::new(socket, Duration::from_millis(1)).unwrap();
        let error = socket.receive(&mut [0; 16]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
