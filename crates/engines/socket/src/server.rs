//! The server of socket tests: serves many clients at a time, netperf 2.7 and older as well as wirebench.
//!
//! ```text
//!   listeners --accept--> a thread for each control connection: authorise, converse
//!                             | a test
//!                             v
//!         ask (what is wanted) -> prepare (socket, buffers) -> response goes out
//!                             -> a data thread runs the loop; the control thread watches the client,
//!                                the clock and the wish to stop -> results go out
//! ```
//!
//! External input is bounded: the number of clients and the buffer memory, in total and per address, and the idle time
//! of a connection. The server connects to no host. The sockets of a test exchange data with its client only
//! (`sources.rs`): connections from other hosts are closed, and the kernel ignores their datagrams. No client gets a
//! port below 1024 or a privileged priority, even if the server runs as root. The only files that a client can name are
//! the three devices that provide zeros and random bytes.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wb_model::socket::{SocketLive, SocketServerJob, SocketServerReport};

use crate::{Host, StopRequest};
use control::ServerControl;
use state::{ClientGuard, ServerCounts, ServerState};

mod allowed_sources;
mod control;
mod data_thread;
mod listen;
mod prepare;
mod requested_test;
mod running_test;
mod server_messages;
mod session;
mod state;
mod test_loop;
mod test_rules;

/// Interval between checks of the stop request.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Interval between reports to the observer.
const TELL: Duration = Duration::from_secs(1);
/// Pause between attempts to accept while the system lacks resources.
const BREATH: Duration = Duration::from_millis(100);
/// Time that clients have to leave when the server ends.
const LEAVING: Duration = Duration::from_secs(30);
/// Stack of a control thread, bytes.
const STACK: usize = 512 << 10;

/// Reasons why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The name to listen at cannot be resolved.
    #[error("{name}: {what}")]
    Resolve {
        /// The name.
        name: String,
        /// The resolver's error.
        what: String,
    },
    /// The port is in use, or the address is not local.
    #[error("cannot listen at {address}: {cause}")]
    Bind {
        /// Address and port.
        address: SocketAddr,
        /// The system's reason.
        #[source]
        cause: io::Error,
    },
    /// The system provides no descriptors.
    #[error("cannot create a file descriptor for the server: {0}")]
    Descriptors(#[source] io::Error),
}

/// A listening server. [`serve`](Self::serve) starts to accept clients.
pub struct SocketServer {
    state: Arc<ServerState>,
    listeners: Vec<TcpListener>,
}

impl SocketServer {
    /// Listens at the job's name, or at all addresses. Port 0 means any port.
    ///
    /// # Errors
    /// Fails if the name cannot be resolved, or none of its addresses can be bound.
    pub fn bind(job: &SocketServerJob, host: Arc<dyn Host>) -> Result<Self, ServerError> {
        let listeners = listen::open_listeners(job, host.as_ref())?;
        let state = ServerState::new(job.clone(), host).map_err(ServerError::Descriptors)?;
        Ok(Self {
            state: Arc::new(state),
            listeners,
        })
    }

    /// Listening addresses.
    #[must_use]
    pub fn local_addresses(&self) -> Vec<SocketAddr> {
        self.listeners
            .iter()
            .filter_map(|listener| listener.local_addr().ok())
            .collect()
    }

    /// Serves until `stop` is set. Then closes all connections and ends their tests. `observe` is called once a second.
    pub fn serve(
        self,
        stop: &StopRequest,
        observe: &mut dyn FnMut(&SocketLive),
    ) -> SocketServerReport {
        let Self { state, listeners } = self;
        let mut teller = ServerObserver::new();
        while !stop.is_set() && !state.has_served() {
            teller.report_state(&state, observe);
            let busy = state.job.one_by_one && state.connection_count() > 0;
            let mut fds = vec![PollFd::new(&state.waker, PollFlags::IN)];
            fds.extend(
                stop.wait_descriptor()
                    .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
            );
            let first = fds.len();
            if !busy {
                fds.extend(listeners.iter().map(|one| PollFd::new(one, PollFlags::IN)));
            }
            let until_told = Timespec::try_from(TELL).ok();
            if poll(&mut fds, until_told.as_ref()).is_err() {
                continue;
            }
            if !fds[0].revents().is_empty() {
                state.waker.clear();
            }
            let ready: Vec<bool> = fds[first..]
                .iter()
                .map(|fd| !fd.revents().is_empty())
                .collect();
            for (listener, _) in listeners.iter().zip(ready).filter(|(_, ready)| *ready) {
                receive(&state, listener);
            }
        }
        drop(listeners);
        end_all_connections(&state);
        state.counts.report()
    }
}

/// Serves one client on a connection that another program accepted, such as standard input under inetd. That program is
/// responsible for access control. Returns when the client leaves.
///
/// # Errors
/// Fails if the system provides no descriptors.
pub fn serve_one(
    job: &SocketServerJob,
    host: Arc<dyn Host>,
    control: TcpStream,
) -> Result<SocketServerReport, ServerError> {
    let state = Arc::new(ServerState::new(job.clone(), host).map_err(ServerError::Descriptors)?);
    ServerCounts::add_one(&state.counts.clients);
    let _ = control.set_nonblocking(false);
    let control = Arc::new(control);
    let guard = state.register_client(&control);
    serve_client(&state, control, &guard);
    Ok(state.counts.report())
}

/// Accepts one client.
fn receive(state: &Arc<ServerState>, listener: &TcpListener) {
    let stream = match listener.accept() {
        Ok((stream, _)) => stream,
        Err(error) => {
            // The client left before the accept, or the other listener was ready: nothing is lost. If the system lacks
            // resources, an immediate retry would fail again, because the client still waits.
            use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
            if !matches!(error.kind(), ConnectionAborted | Interrupted | WouldBlock) {
                thread::sleep(BREATH);
            }
            return;
        }
    };
    if !is_welcome(state, &stream) {
        ServerCounts::add_one(&state.counts.rejected);
        return;
    }
    // Not inherited from the listener on Linux, but on other systems.
    let _ = stream.set_nonblocking(false);
    let stream = Arc::new(stream);
    let guard = state.register_client(&stream);
    ServerCounts::add_one(&state.counts.clients);
    let inside = Arc::clone(state);
    let spawned = thread::Builder::new()
        .name("wb-server-control".to_owned())
        .stack_size(STACK)
        .spawn(move || serve_client(&inside, stream, &guard));
    if spawned.is_err() {
        ServerCounts::add_one(&state.counts.rejected);
        thread::sleep(BREATH);
    }
}

/// Returns true if there is room, and the client connected to an allowed local address.
fn is_welcome(state: &ServerState, stream: &TcpStream) -> bool {
    let Ok(peer) = stream.peer_addr() else {
        return false;
    };
    if !state.has_room(peer.ip()) {
        return false;
    }
    state.job.any_address
        || stream.local_addr().is_ok_and(|local| {
            let address = local.ip().to_canonical();
            address.is_loopback() || state.host.has_address(address)
        })
}

/// Serves a client. A panic ends its connection, not the server.
fn serve_client(state: &ServerState, stream: Arc<TcpStream>, guard: &ClientGuard) {
    if state.is_closing() {
        return;
    }
    let served = catch_unwind(AssertUnwindSafe(|| {
        session::serve_control(state, ServerControl::new(stream), guard);
    }));
    if served.is_err() {
        ServerCounts::add_one(&state.counts.failed);
    }
}

/// Ends all connections and waits for their threads.
fn end_all_connections(state: &ServerState) {
    state.close();
    let until = Instant::now() + LEAVING;
    while state.connection_count() > 0 && Instant::now() < until {
        let rest = Timespec::try_from(POLL_INTERVAL).ok();
        let mut fds = [PollFd::from_borrowed_fd(state.waker.as_fd(), PollFlags::IN)];
        let _ = poll(&mut fds, rest.as_ref());
        state.waker.clear();
        // A client may have been admitted meanwhile.
        state.close();
    }
}

/// Reports to the observer.
struct ServerObserver {
    last: Instant,
    bytes: u64,
}

impl ServerObserver {
    fn new() -> Self {
        Self {
            last: Instant::now(),
            bytes: 0,
        }
    }

    fn report_state(&mut self, state: &ServerState, observe: &mut dyn FnMut(&SocketLive)) {
        let since = self.last.elapsed();
        if since < TELL {
            return;
        }
        let bytes = state.total_bytes();
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        observe(&SocketLive {
            // Tests that were given up no longer count.
            units: bytes.saturating_sub(self.bytes),
            interval_s: since.as_secs_f64(),
            ended_s: wall.as_secs_f64(),
            total: bytes,
            clients: state.connection_count() as u64,
            ..SocketLive::default()
        });
        (self.last, self.bytes) = (Instant::now(), bytes);
    }
}
