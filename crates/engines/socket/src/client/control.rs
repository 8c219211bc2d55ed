//! The control connection: fixed-length messages, and waits that a stop request ends at once.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{AddressFamily, SocketFlags, SocketType, bind, connect, ipproto, socket_with, sockopt},
};
use wb_model::socket::{SocketFailure, SocketStage};
use wb_netperf_wire::{AnswerError, Framer, Generation, OmniResults, Request, ResultsLayout};

use super::{
    failure::{answer_failure, stage_failure, system_failure},
    target::ResolvedTarget,
};
use crate::StopRequest;

/// Time limit for connecting. The kernel's limit is more than two minutes.
const CONNECT: Duration = Duration::from_secs(60);
/// Bytes per read: a few messages.
const CHUNK: usize = 4096;

/// Reasons for not getting a message.
#[derive(Debug)]
pub(super) enum Silence {
    /// A stop was requested.
    Stopped,
    /// The connection is unusable.
    Failed(SocketFailure),
}

/// One control connection.
#[derive(Debug)]
pub(super) struct ClientControl {
    stream: TcpStream,
    framer: Framer,
    /// Messages received but not yet requested.
    messages: VecDeque<Vec<u8>>,
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
    /// Reason, set when the server closed the connection or it broke.
    ended: Option<String>,
}

/// Descriptor to poll for readability.
pub(super) fn poll_readable(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::IN)
}

/// Waits until one of `fds` is ready or `until` has passed. Returns true if one is ready.
pub(super) fn wait(fds: &mut [PollFd<'_>], until: Instant) -> bool {
    let left = until.saturating_duration_since(Instant::now());
    let timeout = Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    };
    // An interrupted wait is only a shorter wait; every caller checks the clock anyway.
    matches!(poll(fds, Some(&timeout)), Ok(ready) if ready > 0)
}

enum WaitResult {
    Ready,
    Late,
    Stopped,
}

fn wait_for(
    fd: BorrowedFd<'_>,
    flags: PollFlags,
    until: Instant,
    stop: &StopRequest,
) -> WaitResult {
    loop {
        if stop.is_set() {
            return WaitResult::Stopped;
        }
        let now = Instant::now();
        let mut fds = vec![PollFd::from_borrowed_fd(fd, flags)];
        fds.extend(stop.wait_descriptor().map(poll_readable));
        wait(&mut fds, until.min(now + StopRequest::POLL_INTERVAL));
        if !fds[0].revents().is_empty() {
            return WaitResult::Ready;
        }
        if Instant::now() >= until {
            return WaitResult::Late;
        }
    }
}

impl ClientControl {
    /// Connects to the first of the server's addresses that answers.
    pub(super) fn connect(target: &ResolvedTarget, stop: &StopRequest) -> Result<Self, Silence> {
        let pairs = target.control_addresses();
        let mut last = stage_failure(
            SocketStage::Connect,
            format!(
                "{}: the local address has another IP version than the server",
                target.name
            ),
        );
        for (local, server) in pairs {
            match connect_to(local, server, stop) {
                Ok(control) => return Ok(control),
                Err(Silence::Stopped) => return Err(Silence::Stopped),
                Err(Silence::Failed(failed)) => last = failed,
            }
        }
        Err(Silence::Failed(last))
    }

    /// Sends a complete request.
    pub(super) fn send(&mut self, request: &Request, stop: &StopRequest) -> Result<(), Silence> {
        let bytes = request.encode(self.framer.generation());
        let until = Instant::now() + CONNECT;
        let mut sent = 0;
        while sent < bytes.len() {
            match self.stream.write(&bytes[sent..]) {
                Ok(n) => sent += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    match wait_for(self.stream.as_fd(), PollFlags::OUT, until, stop) {
                        WaitResult::Ready => {}
                        WaitResult::Stopped => return Err(Silence::Stopped),
                        WaitResult::Late => {
                            return Err(Silence::Failed(no_answer("request", CONNECT)));
                        }
                    }
                }
                Err(error) => {
                    let what = "cannot send on the control connection";
                    return Err(Silence::Failed(system_failure(
                        SocketStage::Control,
                        what,
                        &error,
                    )));
                }
            }
        }
        Ok(())
    }

    /// Waits for a message; `what` names it in error texts.
    pub(super) fn receive(
        &mut self,
        what: &str,
        patience: Duration,
        stop: &StopRequest,
    ) -> Result<Vec<u8>, Silence> {
        let until = Instant::now() + patience;
        loop {
            self.read();
            if let Some(message) = self.messages.pop_front() {
                return Ok(message);
            }
            if self.ended.is_some() {
                return Err(Silence::Failed(self.control_failure(what)));
            }
            match wait_for(self.stream.as_fd(), PollFlags::IN, until, stop) {
                WaitResult::Ready => {}
                WaitResult::Stopped => return Err(Silence::Stopped),
                WaitResult::Late => return Err(Silence::Failed(no_answer(what, patience))),
            }
        }
    }

    /// Reads what has arrived, without waiting.
    fn read(&mut self) {
        let mut bytes = [0; CHUNK];
        while self.ended.is_none() {
            match self.stream.read(&mut bytes) {
                Ok(0) => self.ended = Some("the server closed the control connection".to_owned()),
                Ok(n) => {
                    self.framer.push(&bytes[..n]);
                    while let Some(message) = self.framer.next_message() {
                        self.messages.push_back(message);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    let told = system_failure(
                        SocketStage::Control,
                        "the control connection failed",
                        &error,
                    );
                    self.ended = Some(told.what);
                }
            }
        }
    }

    /// Checks, without waiting, if the server has given up the test: its connection ended, or it reports a failure.
    /// Early results remain queued for [`receive`](Self::receive).
    pub(super) fn server_failure(&mut self) -> Option<SocketFailure> {
        self.read();
        match self.messages.front() {
            Some(message) => refusal(message),
            None => self
                .ended
                .is_some()
                .then(|| self.control_failure("results")),
        }
    }

    /// Returns true if a message is queued.
    pub(super) fn has_message(&self) -> bool {
        !self.messages.is_empty()
    }

    /// Returns true if no more messages can arrive.
    pub(super) fn is_over(&self) -> bool {
        self.ended.is_some()
    }

    fn control_failure(&self, what: &str) -> SocketFailure {
        let why = self
            .ended
            .as_deref()
            .unwrap_or("the control connection failed");
        let (came, of) = (self.framer.waiting(), self.framer.generation().len());
        stage_failure(
            SocketStage::Control,
            format!("{why}; {came} of {of} bytes of its {what} were received"),
        )
    }

    /// Closes the connections as netperf does: shuts down sending and waits until all servers have done so too, for at
    /// most `patience` in total.
    pub(super) fn close(controls: Vec<Self>, patience: Duration, stop: &StopRequest) {
        let until = Instant::now() + patience;
        for control in &controls {
            // A broken connection is noticed during the wait for its end.
            let _ = control.stream.shutdown(std::net::Shutdown::Write);
        }
        for mut control in controls {
            while control.ended.is_none() {
                match wait_for(control.stream.as_fd(), PollFlags::IN, until, stop) {
                    WaitResult::Ready => control.read(),
                    WaitResult::Late | WaitResult::Stopped => break,
                }
            }
        }
    }
}

impl AsFd for ClientControl {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// The failure reported by a message, if it is a refusal. The error field is at the same position in all messages.
fn refusal(message: &[u8]) -> Option<SocketFailure> {
    match OmniResults::parse(message, ResultsLayout::V27, false) {
        Err(error @ AnswerError::Refused(_)) => Some(answer_failure("results", &error)),
        _ => None,
    }
}

fn no_answer(what: &str, patience: Duration) -> SocketFailure {
    stage_failure(
        SocketStage::Control,
        format!(
            "no {what} from the server within {} s",
            patience.as_secs_f64()
        ),
    )
}

fn connect_to(
    local: Option<SocketAddr>,
    server: SocketAddr,
    stop: &StopRequest,
) -> Result<ClientControl, Silence> {
    let what = match local {
        Some(local) => format!("cannot connect from {local} to {server}"),
        None => format!("cannot connect to {server}"),
    };
    let failed =
        |error: io::Error| Silence::Failed(system_failure(SocketStage::Connect, &what, &error));
    let socket = begin(local, server).map_err(failed)?;
    match wait_for(
        socket.as_fd(),
        PollFlags::OUT,
        Instant::now() + CONNECT,
        stop,
    ) {
        WaitResult::Ready => {}
        WaitResult::Stopped => return Err(Silence::Stopped),
        WaitResult::Late => return Err(failed(rustix::io::Errno::TIMEDOUT.into())),
    }
    let outcome = sockopt::socket_error(&socket).map_err(|error| failed(error.into()))?;
    outcome.map_err(|error| failed(error.into()))?;
    let stream = TcpStream::from(socket);
    Ok(ClientControl {
        peer: stream.peer_addr().map_err(failed)?,
        local: stream.local_addr().map_err(failed)?,
        framer: Framer::new(Generation::Words164),
        messages: VecDeque::new(),
        stream,
        ended: None,
    })
}

/// Creates a socket for a connection.
fn begin(local: Option<SocketAddr>, server: SocketAddr) -> io::Result<OwnedFd> {
    let family = match server {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    if let Some(local) = local {
        // A fixed port is still in TIME_WAIT when a test is repeated.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &local)?;
    }
    match connect(&socket, &server) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}
