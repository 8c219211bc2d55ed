//! One connection: a socket, its requests in flight, and the parse state of the answer.

use std::{collections::VecDeque, net::SocketAddr, os::fd::OwnedFd};

use ring::digest::{Context, SHA256};
use rustix::{
    io::Errno,
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with, sockopt,
    },
};
use rustls::ClientConnection;
use wb_http1::Progress;
use wb_model::http::{HttpVersion, Judge, Seen, source};

use crate::{HttpDestination, HttpLoad, quic::Http3, thread_outcome::FailureCause};

/// A request that was sent, or is about to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentRequest {
    /// Due time and sending time, ns.
    pub(crate) due_ns: u64,
    pub(crate) sent_ns: u64,
    /// Start of its answer; 0 before.
    pub(crate) first_ns: u64,
    /// Index in the set.
    pub(crate) call: u32,
    /// An answer to it has no body.
    pub(crate) head: bool,
    /// It belongs to the warm-up.
    pub(crate) warm_up: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpConnectionState {
    /// No socket: not begun, waiting for a retry, or given up.
    Without,
    Connecting,
    /// The TLS or QUIC handshake is in progress.
    Handshake,
    /// HTTP/2: the settings of the server are not known yet.
    Greeting,
    Open,
}

/// The part of an answer kept while it arrives, if needed.
#[derive(Default)]
pub(crate) struct KeptAnswer {
    /// The whole answer for scripts; the head for streams.
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
    whole: bool,
    pub(crate) seen: Seen,
    /// Digest of the body.
    pub(crate) digest: Option<Context>,
}

impl KeptAnswer {
    /// `digest`: a digest is computed. `whole`: the whole answer is kept.
    pub(crate) fn new(digest: bool, whole: bool) -> Self {
        Self {
            whole,
            digest: digest.then(|| Context::new(&SHA256)),
            ..Self::default()
        }
    }

    pub(crate) fn clear(&mut self) {
        self.head.clear();
        self.body.clear();
        self.seen.clear();
        if let Some(digest) = &mut self.digest {
            *digest = Context::new(&SHA256);
        }
    }

    /// Adds the next bytes of a head.
    pub(crate) fn add_head_bytes(&mut self, judge: &Judge, bytes: &[u8]) {
        judge.head(&mut self.seen, bytes);
        if self.whole {
            self.head.extend_from_slice(bytes);
        }
    }

    /// Adds the next bytes of a body.
    pub(crate) fn add_body_bytes(&mut self, judge: &Judge, bytes: &[u8]) {
        judge.body(&mut self.seen, bytes);
        if let Some(digest) = &mut self.digest {
            digest.update(bytes);
        }
        if self.whole {
            self.body.extend_from_slice(bytes);
        }
    }
}

/// A request that was sent as a stream.
pub(crate) struct PendingStream {
    pub(crate) asked: SentRequest,
    /// Line of the data file used for it, and the number of earlier attempts.
    pub(crate) line: u64,
    pub(crate) tries: u32,
    pub(crate) kept: Option<Box<KeptAnswer>>,
}

/// HTTP/2 state of a connection.
#[derive(Default)]
pub(crate) struct Http2 {
    pub(crate) protocol: wb_http2::Http2Connection<PendingStream>,
    /// Time of the last ping, ns, and the number of earlier replies; 0 if there was none.
    pub(crate) pinged_ns: u64,
    pub(crate) echoes: u32,
}

pub(crate) struct Connection {
    pub(crate) state: HttpConnectionState,
    pub(crate) socket: Option<OwnedFd>,
    /// Start of the current state, and of the first one, ns.
    pub(crate) since_ns: u64,
    pub(crate) begun_ns: u64,
    pub(crate) progress: Progress,
    pub(crate) asked: VecDeque<SentRequest>,
    /// Requests sent over it.
    pub(crate) requests: u32,
    /// Data that the socket has not accepted yet starts here in `out`.
    pub(crate) out: Vec<u8>,
    pub(crate) out_at: usize,
    /// Bytes of `out` that belong to the warm-up.
    pub(crate) warm_out: usize,
    /// A write has failed, and only what the server sent before is read.
    pub(crate) write_failed: bool,
    pub(crate) tls: Option<Box<ClientConnection>>,
    pub(crate) kept: Option<Box<KeptAnswer>>,
    pub(crate) http2: Option<Box<Http2>>,
    pub(crate) http3: Option<Box<Http3>>,
    /// It waits for a request that is due.
    pub(crate) idle: bool,
    /// Time before the next attempt, ns.
    pub(crate) backoff_ns: u64,
    /// Its socket is an IPv6 socket.
    pub(crate) ipv6: bool,
    /// Sequence number among all connections begun by the thread, by which timers recognise it.
    pub(crate) number: u64,
}

impl Connection {
    pub(crate) fn new(pipeline: usize) -> Self {
        Self {
            state: HttpConnectionState::Without,
            socket: None,
            since_ns: 0,
            begun_ns: 0,
            progress: Progress::NEW,
            asked: VecDeque::with_capacity(pipeline),
            requests: 0,
            out: Vec::new(),
            out_at: 0,
            warm_out: 0,
            write_failed: false,
            tls: None,
            kept: None,
            http2: None,
            http3: None,
            idle: false,
            backoff_ns: 0,
            ipv6: false,
            number: 0,
        }
    }

    /// Removes its socket and resets the state.
    pub(crate) fn clear(&mut self) {
        self.state = HttpConnectionState::Without;
        self.socket = None;
        self.progress = Progress::NEW;
        self.asked.clear();
        self.requests = 0;
        self.clear_out();
        self.write_failed = false;
        self.tls = None;
        self.http2 = None;
        self.http3 = None;
        self.idle = false;
        if let Some(kept) = &mut self.kept {
            kept.clear();
        }
    }

    /// Returns why requests fail that the server left unanswered when it ended the connection.
    pub(crate) fn cause_of_end(&self) -> FailureCause {
        match self.write_failed {
            true => FailureCause::Reset,
            false => FailureCause::Closed,
        }
    }

    /// Empties `out` after everything was sent or has become useless.
    pub(crate) fn clear_out(&mut self) {
        self.out.clear();
        (self.out_at, self.warm_out) = (0, 0);
    }

    /// Records that the next `n` bytes of `out` were sent. Returns the number of them that belong to the warm-up.
    pub(crate) fn handed_over(&mut self, n: usize) -> u64 {
        let of_warm_up = self.warm_out.saturating_sub(self.out_at).min(n);
        self.out_at += n;
        of_warm_up as u64
    }

    /// Number of requests in flight on it.
    pub(crate) fn under_way(&self) -> usize {
        match (&self.http2, &self.http3) {
            (Some(http2), _) => http2.protocol.open_streams(),
            (_, Some(http3)) => http3.protocol.open_streams(),
            _ => self.asked.len(),
        }
    }

    /// Returns true if data waits for the socket.
    pub(crate) fn has_output(&self) -> bool {
        self.out_at < self.out.len() || self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }
}

/// Starts a non-blocking connection to a server, on a new socket or on one that was connected before.
pub(crate) fn start_connect(
    load: &HttpLoad,
    address: Option<SocketAddr>,
    number: u64,
    renewed: Option<OwnedFd>,
) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let started = match (&load.server, address) {
        (HttpDestination::Unix(path), None) => {
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            let done = connect(&socket, &SocketAddrUnix::new(path.as_str())?);
            (socket, done)
        }
        (_, address) => {
            let Some(address) = address else {
                return Err(Errno::DESTADDRREQ);
            };
            if let Some(socket) = renewed {
                return allow_in_progress(connect(&socket, &address)).map(|()| socket);
            }
            let family = match address {
                SocketAddr::V4(_) => AddressFamily::INET,
                SocketAddr::V6(_) => AddressFamily::INET6,
            };
            let socket = match load.job.version {
                HttpVersion::V3 => socket_with(family, SocketType::DGRAM, flags, None)?,
                _ => {
                    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
                    sockopt::set_tcp_nodelay(&socket, true)?;
                    socket
                }
            };
            if let Some(source) = source(&load.job.sources, number) {
                bind(&socket, &SocketAddr::new(source, 0))?;
            }
            let done = connect(&socket, &address);
            (socket, done)
        }
    };
    let (socket, done) = started;
    allow_in_progress(done).map(|()| socket)
}

fn allow_in_progress(done: Result<(), Errno>) -> Result<(), Errno> {
    match done {
        Err(Errno::INPROGRESS) => Ok(()),
        done => done,
    }
}

impl HttpLoad {
    /// The timeout exceeded by an answer that has been awaited for `took` ns, if any.
    pub(crate) fn exceeded_timeout(&self, asked: &SentRequest, took: u64) -> Option<FailureCause> {
        let first = self.job.first_byte_timeout;
        if asked.first_ns == 0 && first.is_some_and(|most| took >= most.as_nanos()) {
            return Some(FailureCause::FirstByteTimeout);
        }
        (took >= self.job.timeout.as_nanos()).then_some(FailureCause::Timeout)
    }

    /// The shortest of its timeouts, ns.
    pub(crate) fn shortest_timeout(&self) -> u64 {
        let job = &self.job;
        let others = [job.connect_timeout, job.first_byte_timeout];
        let all = others.into_iter().flatten().chain([job.timeout]);
        all.map(|t| t.as_nanos()).min().unwrap_or(0)
    }

    /// Returns true if the next connection may reuse the socket of an ended one: for TCP from the same source.
    pub(crate) fn reuses_sockets(&self) -> bool {
        matches!(self.server, HttpDestination::Addresses(_))
            && self.job.version != HttpVersion::V3
            && self.job.sources.is_empty()
    }

    /// Destination of the connection with this number.
    pub(crate) fn address(&self, number: u64) -> Option<SocketAddr> {
        match &self.server {
            // wrk uses only the first address.
            HttpDestination::Addresses(all) if self.job.as_wrk => all.first().copied(),
            HttpDestination::Addresses(all) => {
                let turn = number.checked_rem(all.len() as u64)?;
                all.get(turn as usize).copied()
            }
            HttpDestination::Unix(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use wb_model::http::HttpCheck;

    use super::*;

    #[test]
    fn of_an_answer_only_what_somebody_needs_is_kept() {
        let judge = Judge::new(&HttpCheck {
            body: Some("needle".to_owned()),
            ..HttpCheck::default()
        });
        for whole in [false, true] {
            let mut kept = KeptAnswer::new(true, whole);
            kept.add_head_bytes(&judge, b"HTTP/1.1 200 OK\r\n");
            for part in [&[b'x'; 1000][..], b"nee", b"dle"] {
                kept.add_body_bytes(&judge, part);
            }
            assert_eq!(judge.fault(200, &kept.seen), None);
            let held = (kept.head.len(), kept.body.len());
            assert_eq!(held, if whole { (17, 1006) } else { (0, 0) });
        }
    }
}
