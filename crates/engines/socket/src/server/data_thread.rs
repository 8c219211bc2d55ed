//! The data thread of a test: waits for the client's connection or first datagram, and runs the loop.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::RecvFlags,
};

use super::{
    allowed_sources::AllowedSources,
    prepare::TestInputs,
    test_loop::{ConnectionExchange, TestLoop},
};
use crate::{
    EffectiveSettings, Stopper, accept, effective_settings, errno,
    flow::{LoopContext, LoopCounters, LoopEnd, LoopTally, TagReport, end_datagrams},
    waker::Waker,
};

/// Pause between attempts to accept while the system has no descriptors left.
const BREATH: Duration = Duration::from_millis(10);

/// State shared by the data thread and the control thread.
pub(super) struct TestShared {
    pub stop: Stopper,
    /// Woken at the first connection or datagram, and at the end.
    pub waker: Waker,
    pub counters: Arc<LoopCounters>,
    first: OnceLock<Instant>,
    /// The data socket, or the one that listens for its connection.
    data: Mutex<Arc<OwnedFd>>,
    ended: AtomicBool,
}

/// Result of a data thread.
#[derive(Default)]
pub(super) struct DataThreadResult {
    pub tally: LoopTally,
    /// End of the loop.
    pub at: Option<Instant>,
    /// Settings of the data socket at the end, if there was one.
    pub effective: Option<EffectiveSettings>,
    /// The single connection of the test, still open.
    pub connection: Option<Arc<OwnedFd>>,
    /// Closed connections from hosts other than the client.
    pub strangers: u64,
    /// Results from the sequence numbers of datagrams.
    pub tags: Option<TagReport>,
}

impl TestShared {
    pub(super) fn new(fd: Arc<OwnedFd>) -> io::Result<Self> {
        Ok(Self {
            stop: Stopper::new(),
            waker: Waker::new()?,
            counters: Arc::default(),
            first: OnceLock::new(),
            data: Mutex::new(fd),
            ended: AtomicBool::new(false),
        })
    }

    /// Arrival time of the first connection or datagram.
    pub(super) fn first(&self) -> Option<Instant> {
        self.first.get().copied()
    }

    /// Returns true if the loop has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Marks the end of the loop.
    pub(super) fn mark_end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.waker.wake();
    }

    /// Returns true if the kernel holds data or a connection that the loop has not taken.
    pub(super) fn has_waiting(&self) -> bool {
        let fd = self.data.lock().unwrap_or_else(PoisonError::into_inner);
        let mut fds = [PollFd::new(&*fd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok()
            && fds[0].revents().contains(PollFlags::IN)
    }

    /// Replaces the listening socket with the data connection.
    fn set_connection(&self, connection: Arc<OwnedFd>) {
        *self.data.lock().unwrap_or_else(PoisonError::into_inner) = connection;
    }

    fn mark_begin(&self) {
        if self.first.set(Instant::now()).is_ok() {
            self.waker.wake();
        }
    }

    fn run(&self) -> LoopContext<'_> {
        LoopContext {
            stop: &self.stop,
            counters: &self.counters,
            recorder: None,
        }
    }
}

/// Runs a test to its end.
pub(super) fn run_data_thread(
    stage: TestInputs,
    inside: &TestShared,
    units: Option<u64>,
) -> DataThreadResult {
    let _guard = inside.stop.register_thread();
    let TestInputs {
        fd,
        engine,
        sources,
        memory: _memory,
    } = stage;
    match engine {
        TestLoop::Receive(mut receiver) => on_connection(fd, inside, &sources, |connection| {
            receiver.run(connection, &mut inside.run())
        }),
        TestLoop::Send(mut sender) => on_connection(fd, inside, &sources, |connection| {
            sender.run(connection, &mut inside.run())
        }),
        TestLoop::Respond(mut responder) => {
            if is_listening(&fd) {
                on_connection(fd, inside, &sources, |connection| {
                    responder.run(connection, &mut inside.run())
                })
            } else {
                on_datagrams(&fd, inside, |fd| responder.run(fd, &mut inside.run()))
            }
        }
        TestLoop::ReceiveDatagrams(mut receiver) => {
            let mut done = on_datagrams(&fd, inside, |fd| receiver.run(fd, &mut inside.run()));
            done.tags = receiver.tag_report();
            done
        }
        TestLoop::ReceiveOnly {
            mut buffer,
            size,
            connect,
        } => on_datagrams(&fd, inside, |fd| {
            receive_only(fd, inside, &mut buffer, size, connect)
        }),
        TestLoop::SendDatagrams(mut sender, to) => {
            inside.mark_begin();
            let tally = sender.run(fd.as_fd(), Some(to), &mut inside.run());
            end_datagrams(fd.as_fd(), Some(to));
            DataThreadResult::from_tally(tally, fd.as_fd())
        }
        TestLoop::Connections(mut each) => {
            serve_connections(&fd, &mut each, inside, &sources, units)
        }
    }
}

impl DataThreadResult {
    fn from_tally(tally: LoopTally, fd: BorrowedFd<'_>) -> Self {
        Self {
            at: Some(Instant::now()),
            effective: Some(effective_settings(fd)),
            tally,
            ..Self::default()
        }
    }

    fn without_data(ended: LoopEnd) -> Self {
        Self {
            at: Some(Instant::now()),
            tally: LoopTally {
                ended,
                ..LoopTally::default()
            },
            ..Self::default()
        }
    }
}

fn is_listening(fd: &OwnedFd) -> bool {
    rustix::net::sockopt::socket_acceptconn(fd).unwrap_or(false)
}

/// Accepts one connection, stops listening, and runs the loop on it.
fn on_connection(
    listener: Arc<OwnedFd>,
    inside: &TestShared,
    sources: &AllowedSources,
    run: impl FnOnce(BorrowedFd<'_>) -> LoopTally,
) -> DataThreadResult {
    let mut strangers = 0;
    let connection = loop {
        match accept(listener.as_fd(), &inside.stop) {
            Ok((connection, from)) if sources.is_allowed(from) => break Arc::new(connection),
            Ok(_) => strangers += 1,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                return DataThreadResult::without_data(LoopEnd::Stopped);
            }
            Err(error) if is_shortage(&error) => thread::sleep(BREATH),
            Err(error) => return DataThreadResult::without_data(LoopEnd::Failed(error)),
        }
    };
    drop(listener);
    inside.set_connection(Arc::clone(&connection));
    inside.mark_begin();
    let tally = run(connection.as_fd());
    DataThreadResult {
        strangers,
        connection: Some(Arc::clone(&connection)),
        ..DataThreadResult::from_tally(tally, connection.as_fd())
    }
}

/// Waits for the first datagram and runs the loop.
fn on_datagrams(
    fd: &OwnedFd,
    inside: &TestShared,
    run: impl FnOnce(BorrowedFd<'_>) -> LoopTally,
) -> DataThreadResult {
    while !inside.stop.is_stopped() {
        match poll(&mut [PollFd::new(fd, PollFlags::IN)], None) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(error) => return DataThreadResult::without_data(LoopEnd::Failed(error.into())),
        }
    }
    if !inside.stop.is_stopped() {
        inside.mark_begin();
    }
    let tally = run(fd.as_fd());
    DataThreadResult::from_tally(tally, fd.as_fd())
}

/// Receives datagrams of one size. Old clients end their test with a datagram of another size, or not at all.
fn receive_only(
    fd: BorrowedFd<'_>,
    inside: &TestShared,
    buffer: &mut [u8],
    size: usize,
    connect: bool,
) -> LoopTally {
    let mut tally = LoopTally::default();
    if connect
        && !inside.stop.is_stopped()
        && let Ok((_, _, Some(from))) = rustix::net::recvfrom(fd, &mut *buffer, RecvFlags::PEEK)
    {
        // The test also runs without the connection, like in netserver.
        let _ = rustix::net::connect(fd, &from);
    }
    while !inside.stop.is_stopped() {
        match rustix::net::recv(fd, &mut *buffer, RecvFlags::empty()) {
            Ok((length, _)) if length == size => {
                tally.bytes_received += size as u64;
                tally.receive_calls += 1;
                inside.counters.add(1, size as u64);
            }
            Ok(_) => {
                tally.ended = LoopEnd::Eof;
                break;
            }
            Err(Errno::INTR | Errno::CONNREFUSED) => {}
            Err(error) => {
                tally.ended = LoopEnd::Failed(error.into());
                break;
            }
        }
    }
    tally
}

/// One connection per transaction. The server closes first, so that its port stays in TIME_WAIT and not one of the
/// client's.
fn serve_connections(
    listener: &OwnedFd,
    each: &mut ConnectionExchange,
    inside: &TestShared,
    sources: &AllowedSources,
    units: Option<u64>,
) -> DataThreadResult {
    let mut strangers = 0;
    let mut tally = LoopTally::default();
    while !inside.stop.is_stopped() {
        if units.is_some_and(|units| tally.transactions >= units) {
            tally.ended = LoopEnd::Limit;
            break;
        }
        let connection = match accept(listener.as_fd(), &inside.stop) {
            Ok((connection, from)) if sources.is_allowed(from) => connection,
            Ok(_) => {
                strangers += 1;
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => break,
            Err(error) if is_shortage(&error) => {
                thread::sleep(BREATH);
                continue;
            }
            Err(error) => {
                tally.ended = LoopEnd::Failed(error);
                break;
            }
        };
        inside.mark_begin();
        // A client that leaves during a transaction has ended its test, or only that connection; the next one shows
        // which.
        if each.serve_connection(connection.as_fd(), inside, &mut tally) {
            tally.transactions += 1;
            inside.counters.add_transaction();
        }
    }
    DataThreadResult {
        strangers,
        ..DataThreadResult::from_tally(tally, listener.as_fd())
    }
}

impl ConnectionExchange {
    /// Serves a connection. Returns true if its transaction was complete.
    fn serve_connection(
        &mut self,
        connection: BorrowedFd<'_>,
        inside: &TestShared,
        tally: &mut LoopTally,
    ) -> bool {
        let mut run = inside.run();
        match self {
            Self::Nothing => true,
            Self::Exchange {
                responder,
                request,
                response,
            } => {
                let is_whole = responder.exchange_once(connection, &mut run).is_ok();
                if is_whole {
                    tally.bytes_received += *request;
                    tally.bytes_sent += *response;
                    tally.receive_calls += 1;
                    tally.send_calls += 1;
                    inside.counters.add(2, *request + *response);
                }
                is_whole
            }
            Self::Receive(receiver) => is_whole(tally, receiver.run(connection, &mut run)),
            Self::Send(sender) => is_whole(tally, sender.run(connection, &mut run)),
            Self::Both(receiver, sender) => {
                is_whole(tally, receiver.run(connection, &mut run))
                    && is_whole(tally, sender.run(connection, &mut run))
            }
        }
    }
}

/// Adds the work on a connection. Returns true if it was complete.
fn is_whole(tally: &mut LoopTally, more: LoopTally) -> bool {
    let is_whole = matches!(more.ended, LoopEnd::Eof | LoopEnd::Limit);
    tally.add(more);
    tally.ended = LoopEnd::Stopped;
    is_whole
}

/// Returns true for a temporary lack of system resources.
fn is_shortage(error: &io::Error) -> bool {
    matches!(
        errno(error),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
    )
}
