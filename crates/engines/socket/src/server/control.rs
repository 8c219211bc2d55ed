//! A control connection: messages in both directions, with time limits for the peer.

use std::{
    net::{Shutdown, SocketAddr, TcpStream},
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::RecvFlags,
};
use wb_netperf_wire::{Framer, Generation};

use crate::sys;

/// If nothing follows the length of an old message for this time, the peer uses old messages.
const OLD_PEER: Duration = Duration::from_millis(200);
/// Time limit for the rest of a message.
const REST: Duration = Duration::from_secs(20);
/// Time limit for the peer to accept a message.
const SEND: Duration = Duration::from_secs(20);
/// After closing: how long to wait for the peer's close, and how many bytes to read until then.
const PARTING: Duration = Duration::from_millis(500);
const PARTING_BYTES: usize = 64 << 10;

/// A control connection.
pub(super) struct ServerControl {
    stream: Arc<TcpStream>,
    framer: Framer,
    /// Time of the last received byte or processed message.
    last: Instant,
    /// Time at which a partial message began to arrive.
    partial_since: Option<Instant>,
}

/// Result of a wait.
#[derive(Debug)]
pub(super) enum ControlEvent {
    /// A whole message.
    Message(Vec<u8>),
    /// The waker was used.
    Woken,
    /// The deadline passed without an event.
    Deadline,
    /// The peer closed between two messages.
    Closed,
    /// The connection broke or ended within a message, or a message takes too long.
    Broken,
}

impl ServerControl {
    pub(super) fn new(stream: Arc<TcpStream>) -> Self {
        // A failure of these does not justify refusing the client.
        let _ = stream.set_nodelay(true);
        let _ = stream.set_write_timeout(Some(SEND));
        let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
        // Detects a vanished host after two minutes instead of the system's two hours.
        for (name, value) in [
            (libc::TCP_KEEPIDLE, 60),
            (libc::TCP_KEEPINTVL, 10),
            (libc::TCP_KEEPCNT, 6),
        ] {
            let _ = sys::set_int(&stream, libc::IPPROTO_TCP, name, value);
        }
        Self {
            stream,
            framer: Framer::new(Generation::Words164),
            last: Instant::now(),
            partial_since: None,
        }
    }

    /// Generation of its messages, which determines their length.
    pub(super) fn generation(&self) -> Generation {
        self.framer.generation()
    }

    /// The client's address.
    pub(super) fn peer(&self) -> std::io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    /// The local address.
    pub(super) fn local(&self) -> std::io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// Waits for a message, the waker, or the end of the connection, until the deadline.
    pub(super) fn wait(
        &mut self,
        waker: Option<BorrowedFd<'_>>,
        until: Option<Instant>,
    ) -> ControlEvent {
        loop {
            if let Some(message) = self.framer.next_message() {
                self.last = Instant::now();
                self.partial_since = (!self.framer.is_at_boundary()).then_some(self.last);
                return ControlEvent::Message(message);
            }
            let now = Instant::now();
            let may_be_old = self.framer.may_be_old();
            if may_be_old && now >= self.last + OLD_PEER {
                self.framer.switch(Generation::Words64);
                continue;
            }
            if self.partial_since.is_some_and(|since| now >= since + REST) {
                return ControlEvent::Broken;
            }
            if until.is_some_and(|until| now >= until) {
                return ControlEvent::Deadline;
            }
            let wake = [
                until,
                self.partial_since.map(|since| since + REST),
                may_be_old.then(|| self.last + OLD_PEER),
            ];
            let rest = wake.into_iter().flatten().min().map(|at| at - now);
            match self.poll(waker, rest) {
                (true, _) => {
                    if let Some(end) = self.read() {
                        return end;
                    }
                }
                (false, true) => return ControlEvent::Woken,
                (false, false) => {}
            }
        }
    }

    /// Waits once. Returns whether data is readable and whether the waker was used.
    fn poll(&self, waker: Option<BorrowedFd<'_>>, rest: Option<Duration>) -> (bool, bool) {
        let mut fds = vec![PollFd::new(&self.stream, PollFlags::IN)];
        fds.extend(waker.map(|waker| PollFd::from_borrowed_fd(waker, PollFlags::IN)));
        let rest = rest.map(|rest| {
            // Slightly longer, because an early return would repeat the poll at once.
            Timespec::try_from(rest + Duration::from_micros(50)).unwrap_or(Timespec {
                tv_sec: 3600,
                tv_nsec: 0,
            })
        });
        match poll(&mut fds, rest.as_ref()) {
            Ok(_) => {
                let ready = |fd: Option<&PollFd<'_>>| fd.is_some_and(|fd| !fd.revents().is_empty());
                (ready(fds.first()), ready(fds.get(1)))
            }
            Err(_) => (false, false),
        }
    }

    /// Reads available data. Returns an event if the connection ended.
    fn read(&mut self) -> Option<ControlEvent> {
        let mut bytes = [0_u8; 1024];
        match rustix::net::recv(&self.stream, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((0, _)) if self.framer.is_at_boundary() => Some(ControlEvent::Closed),
            Ok((0, _)) => Some(ControlEvent::Broken),
            Ok((read, _)) => {
                self.last = Instant::now();
                self.partial_since.get_or_insert(self.last);
                self.framer.push(&bytes[..read]);
                None
            }
            Err(Errno::INTR | Errno::AGAIN) => None,
            Err(_) => Some(ControlEvent::Broken),
        }
    }

    /// Sends a message in one piece.
    pub(super) fn send(&mut self, message: &[u8]) -> std::io::Result<()> {
        let mut rest = message;
        while !rest.is_empty() {
            match rustix::net::send(&self.stream, rest, rustix::net::SendFlags::NOSIGNAL) {
                Ok(sent) => rest = &rest[sent..],
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        self.last = Instant::now();
        Ok(())
    }

    /// Closes so that the peer reads an orderly end and no reset, even if it sent more than was read.
    pub(super) fn close_orderly(self) {
        let _ = self.stream.shutdown(Shutdown::Write);
        let until = Instant::now() + PARTING;
        let mut bytes = [0_u8; 4096];
        let mut read = 0;
        while read < PARTING_BYTES {
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() || !self.poll(None, Some(rest)).0 {
                return;
            }
            match rustix::net::recv(&self.stream, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return,
                Ok((more, _)) => read += more,
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => return,
            }
        }
    }
}

impl AsFd for ServerControl {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Waits until a descriptor is readable or the time is over. Returns readability of each.
pub(super) fn wait_for(one: BorrowedFd<'_>, other: BorrowedFd<'_>, rest: Duration) -> (bool, bool) {
    let mut fds = [
        PollFd::from_borrowed_fd(one, PollFlags::IN),
        PollFd::from_borrowed_fd(other, PollFlags::IN),
    ];
    let rest = Timespec::try_from(rest).ok();
    match poll(&mut fds, rest.as_ref()) {
        Ok(_) => (!fds[0].revents().is_empty(), !fds[1].revents().is_empty()),
        Err(_) => (false, false),
    }
}
