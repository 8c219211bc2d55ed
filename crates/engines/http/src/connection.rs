//! One connection: a socket, what is under way on it, and how far its answer has been read.

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

use crate::{Load, Server, account::Cause, quic::Http3};

/// A request that was sent, or is about to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// When it was due, and when it was handed over, ns.
    pub(crate) due_ns: u64,
    pub(crate) sent_ns: u64,
    /// When its answer began; 0 before.
    pub(crate) first_ns: u64,
    /// Which of the set.
    pub(crate) call: u32,
    /// An answer to it has no body.
    pub(crate) head: bool,
    /// It belongs to the warm-up.
    pub(crate) warm_up: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No socket: not begun, waiting to be begun again, or given up.
    Without,
    Connecting,
    /// TLS is being agreed on, or QUIC.
    Handshake,
    /// Of HTTP/2: what the server allows is not known yet.
    Greeting,
    Open,
}

/// What is kept of an answer while it comes, where somebody wants to see it.
#[derive(Default)]
pub(crate) struct Kept {
    /// For scripts all of it; of streams the head.
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
    whole: bool,
    pub(crate) seen: Seen,
    /// Of the body.
    pub(crate) digest: Option<Context>,
}

impl Kept {
    /// For answers of which a digest is made, and that are kept whole, or not.
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

    /// The next bytes of a head.
    pub(crate) fn head(&mut self, judge: &Judge, bytes: &[u8]) {
        judge.head(&mut self.seen, bytes);
        if self.whole {
            self.head.extend_from_slice(bytes);
        }
    }

    /// The next bytes of a body.
    pub(crate) fn body(&mut self, judge: &Judge, bytes: &[u8]) {
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
pub(crate) struct Pending {
    pub(crate) asked: Asked,
    /// The line of the data file that it was made of, and how often it was asked before.
    pub(crate) line: u64,
    pub(crate) tries: u32,
    pub(crate) kept: Option<Box<Kept>>,
}

/// What HTTP/2 needs of a connection.
#[derive(Default)]
pub(crate) struct Http2 {
    pub(crate) protocol: wb_http2::Connection<Pending>,
    /// When the server was asked whether it is alive, ns, and how often it had said so before; 0: it was not.
    pub(crate) pinged_ns: u64,
    pub(crate) echoes: u32,
}

pub(crate) struct Connection {
    pub(crate) state: State,
    pub(crate) socket: Option<OwnedFd>,
    /// When the present state began, and when the first, ns.
    pub(crate) since_ns: u64,
    pub(crate) begun_ns: u64,
    pub(crate) progress: Progress,
    pub(crate) asked: VecDeque<Asked>,
    /// Requests sent over it.
    pub(crate) requests: u32,
    /// What the socket has not taken yet: from here on in `out`.
    pub(crate) out: Vec<u8>,
    pub(crate) out_at: usize,
    /// Bytes of `out` that belong to the warm-up.
    pub(crate) warm_out: usize,
    pub(crate) tls: Option<Box<ClientConnection>>,
    pub(crate) kept: Option<Box<Kept>>,
    pub(crate) http2: Option<Box<Http2>>,
    pub(crate) http3: Option<Box<Http3>>,
    /// It waits for a request that is due.
    pub(crate) idle: bool,
    /// How long it waits before it tries again, ns.
    pub(crate) backoff_ns: u64,
    /// Its socket is one of IPv6.
    pub(crate) ipv6: bool,
    /// Which of all connections begun by the thread this is, so that timers know whether they mean it.
    pub(crate) number: u64,
}

impl Connection {
    pub(crate) fn new(pipeline: usize) -> Self {
        Self {
            state: State::Without,
            socket: None,
            since_ns: 0,
            begun_ns: 0,
            progress: Progress::NEW,
            asked: VecDeque::with_capacity(pipeline),
            requests: 0,
            out: Vec::new(),
            out_at: 0,
            warm_out: 0,
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

    /// Takes its socket away and forgets all about it.
    pub(crate) fn clear(&mut self) {
        self.state = State::Without;
        self.socket = None;
        self.progress = Progress::NEW;
        self.asked.clear();
        self.requests = 0;
        self.clear_out();
        self.tls = None;
        self.http2 = None;
        self.http3 = None;
        self.idle = false;
        if let Some(kept) = &mut self.kept {
            kept.clear();
        }
    }

    /// All of `out` is handed over, or of no use any more.
    pub(crate) fn clear_out(&mut self) {
        self.out.clear();
        (self.out_at, self.warm_out) = (0, 0);
    }

    /// The next `n` bytes of `out` are handed over. Returns how many of them are of the warm-up.
    pub(crate) fn handed_over(&mut self, n: usize) -> u64 {
        let of_warm_up = self.warm_out.saturating_sub(self.out_at).min(n);
        self.out_at += n;
        of_warm_up as u64
    }

    /// Requests under way on it.
    pub(crate) fn under_way(&self) -> usize {
        match (&self.http2, &self.http3) {
            (Some(http2), _) => http2.protocol.open_streams(),
            (_, Some(http3)) => http3.protocol.open_streams(),
            _ => self.asked.len(),
        }
    }

    /// Whether something waits for the socket to take it.
    pub(crate) fn has_output(&self) -> bool {
        self.out_at < self.out.len() || self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }
}

/// A socket that is on its way to a server, without waiting for it: a new one, or one that was connected before.
pub(crate) fn begin(
    load: &Load,
    address: Option<SocketAddr>,
    number: u64,
    renewed: Option<OwnedFd>,
) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let started = match (&load.server, address) {
        (Server::Unix(path), None) => {
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            let done = connect(&socket, &SocketAddrUnix::new(path.as_str())?);
            (socket, done)
        }
        (_, address) => {
            let Some(address) = address else {
                return Err(Errno::DESTADDRREQ);
            };
            if let Some(socket) = renewed {
                return underway(connect(&socket, &address)).map(|()| socket);
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
    underway(done).map(|()| socket)
}

fn underway(done: Result<(), Errno>) -> Result<(), Errno> {
    match done {
        Err(Errno::INPROGRESS) => Ok(()),
        done => done,
    }
}

impl Load {
    /// Whether the answer to a request, awaited for so long, takes too long, and which of its times that is.
    pub(crate) fn overdue(&self, asked: &Asked, took: u64) -> Option<Cause> {
        let first = self.job.first_byte_timeout;
        if asked.first_ns == 0 && first.is_some_and(|most| took >= most.as_nanos()) {
            return Some(Cause::FirstByteTimeout);
        }
        (took >= self.job.timeout.as_nanos()).then_some(Cause::Timeout)
    }

    /// The shortest of its timeouts, ns.
    pub(crate) fn shortest_timeout(&self) -> u64 {
        let job = &self.job;
        let others = [job.connect_timeout, job.first_byte_timeout];
        let all = others.into_iter().flatten().chain([job.timeout]);
        all.map(|t| t.as_nanos()).min().unwrap_or(0)
    }

    /// Whether the next connection may have the socket of one that is over: of TCP, from the same source.
    pub(crate) fn renews(&self) -> bool {
        matches!(self.server, Server::Addresses(_))
            && self.job.version != HttpVersion::V3
            && self.job.sources.is_empty()
    }

    /// Where the connection of this number goes.
    pub(crate) fn address(&self, number: u64) -> Option<SocketAddr> {
        match &self.server {
            // As wrk does.
            Server::Addresses(all) if self.job.as_wrk => all.first().copied(),
            Server::Addresses(all) => {
                let turn = number.checked_rem(all.len() as u64)?;
                all.get(turn as usize).copied()
            }
            Server::Unix(_) => None,
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
            let mut kept = Kept::new(true, whole);
            kept.head(&judge, b"HTTP/1.1 200 OK\r\n");
            for part in [&[b'x'; 1000][..], b"nee", b"dle"] {
                kept.body(&judge, part);
            }
            assert_eq!(judge.fault(200, &kept.seen), None);
            let held = (kept.head.len(), kept.body.len());
            assert_eq!(held, if whole { (17, 1006) } else { (0, 0) });
        }
    }
}
