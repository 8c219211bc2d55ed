//! What a thread has for HTTP/3, and what its connections have: QUIC is quinn's, which knows no sockets and no clock.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use quinn_proto::{
    ClientConfig, ConnectionHandle, Dir, Endpoint, EndpointConfig, Side, StreamId, TransportConfig,
    VarInt, crypto::rustls::QuicClientConfig,
};
use quinn_udp::UdpSocketState;
use wb_http3::{Decoder, frame};

use crate::connection::Pending;

/// Pieces that a call to receive may bring, each of up to 64 KiB of datagrams of one length.
pub(crate) const ROOMS: usize = 8;
/// Streams that the server may open: three that say what it is about, and some that nobody knows.
const UNI_STREAMS: u32 = 16;

/// What all connections of a thread share.
pub(crate) struct Quic {
    pub(crate) endpoint: Endpoint,
    pub(crate) config: ClientConfig,
    /// Asked for in handshakes.
    pub(crate) name: String,
    /// Certificates that were looked at: none is where a session is taken up.
    certificates: Arc<AtomicU64>,
    pub(crate) decoder: Decoder,
    /// The same time on both clocks.
    origin: (Instant, u64),
    /// When connections want to be looked at: when, which, and its number then.
    pub(crate) timers: BinaryHeap<Reverse<(u64, usize, u64)>>,
    pub(crate) rooms: [Vec<u8>; ROOMS],
    /// Datagrams on their way to a socket.
    pub(crate) out: Vec<u8>,
    /// A request on its way to a stream.
    pub(crate) text: Vec<u8>,
}

impl Quic {
    pub(crate) fn new(
        tls: QuicClientConfig,
        name: String,
        certificates: Arc<AtomicU64>,
        now: u64,
    ) -> Self {
        let mut transport = TransportConfig::default();
        // As with HTTP/2: what comes is counted at once, so windows are as large as they can be.
        transport
            .receive_window(VarInt::MAX)
            .stream_receive_window(VarInt::MAX)
            .max_concurrent_bidi_streams(VarInt::from_u32(0))
            .max_concurrent_uni_streams(VarInt::from_u32(UNI_STREAMS))
            .datagram_receive_buffer_size(None)
            // That of the server counts.
            .max_idle_timeout(None);
        let mut config = ClientConfig::new(Arc::new(tls));
        config.transport_config(Arc::new(transport));
        Self {
            endpoint: Endpoint::new(Arc::new(EndpointConfig::default()), None, true, None),
            config,
            name,
            certificates,
            decoder: Decoder::new(),
            origin: (Instant::now(), now),
            timers: BinaryHeap::new(),
            rooms: std::array::from_fn(|_| vec![0; 64 * 1024]),
            out: Vec::new(),
            text: Vec::new(),
        }
    }

    pub(crate) fn certificates(&self) -> u64 {
        self.certificates.load(Ordering::Relaxed)
    }

    /// A time of CLOCK_MONOTONIC as QUIC wants it.
    pub(crate) fn instant(&self, ns: u64) -> Instant {
        self.origin.0 + Duration::from_nanos(ns.saturating_sub(self.origin.1))
    }

    fn ns(&self, instant: Instant) -> u64 {
        let after = instant.saturating_duration_since(self.origin.0).as_nanos();
        self.origin.1 + after as u64
    }

    /// When a connection wants to be looked at.
    pub(crate) fn due(&self, http3: &mut Http3) -> Option<u64> {
        http3.quic.poll_timeout().map(|at| self.ns(at))
    }

    /// Sees to it that a connection is looked at in time.
    pub(crate) fn arm(&mut self, http3: &mut Http3, index: usize, number: u64) {
        // One that is looked at too soon is looked at again.
        if let Some(due) = self.due(http3)
            && (http3.timer_ns == 0 || due < http3.timer_ns)
        {
            http3.timer_ns = due.max(1);
            self.timers.push(Reverse((http3.timer_ns, index, number)));
        }
    }
}

/// A part of a request that waits for a window.
pub(crate) struct Waiting {
    id: StreamId,
    text: Vec<u8>,
    at: usize,
}

/// Datagrams that the socket has not taken.
pub(crate) struct Unsent {
    pub(crate) bytes: Vec<u8>,
    pub(crate) how: How,
}

/// The length of each of several datagrams, and the bits of ECN.
pub(crate) type How = (Option<usize>, Option<u8>);

/// What HTTP/3 needs of a connection.
pub(crate) struct Http3 {
    pub(crate) quic: quinn_proto::Connection,
    pub(crate) handle: ConnectionHandle,
    pub(crate) udp: UdpSocketState,
    pub(crate) protocol: wb_http3::Connection<Pending>,
    /// The stream of the next request.
    ahead: Option<StreamId>,
    /// The server allows no more streams.
    limited: bool,
    waiting: Vec<Waiting>,
    pub(crate) unsent: Option<Unsent>,
    /// When the thread looks at it next, ns; 0: never.
    pub(crate) timer_ns: u64,
    /// When the server was asked whether it is alive, ns, and how often it had said so before; 0: it was not.
    pub(crate) pinged_ns: u64,
    pub(crate) acks: u64,
    /// The server has shown its certificate.
    pub(crate) full: bool,
    /// The endpoint has forgotten it.
    pub(crate) drained: bool,
}

/// The stream of a request.
pub(crate) fn stream(number: u64) -> StreamId {
    StreamId::new(Side::Client, Dir::Bi, number)
}

pub(crate) fn code(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap_or(VarInt::MAX)
}

impl Http3 {
    pub(crate) fn new(
        (handle, quic): (ConnectionHandle, quinn_proto::Connection),
        udp: UdpSocketState,
    ) -> Self {
        Self {
            quic,
            handle,
            udp,
            protocol: wb_http3::Connection::new(),
            ahead: None,
            limited: false,
            waiting: Vec::new(),
            unsent: None,
            timer_ns: 0,
            pinged_ns: 0,
            acks: 0,
            full: false,
            drained: false,
        }
    }

    /// Says the first words.
    pub(crate) fn greet(&mut self) -> u64 {
        let mut text = Vec::new();
        wb_http3::Connection::<Pending>::greet(&mut text);
        match self.quic.streams().open(Dir::Uni) {
            // It never ends.
            Some(id) => self.quic.send_stream(id).write(&text).unwrap_or(0) as u64,
            None => 0,
        }
    }

    /// Whether a request may be asked.
    pub(crate) fn has_room(&self) -> bool {
        self.ahead.is_some() && !self.protocol.is_over()
    }

    /// Takes the stream of the next request if the server allows one. Returns whether that is what has to be waited for
    /// from now on.
    pub(crate) fn look_ahead(&mut self) -> bool {
        if self.ahead.is_none() {
            self.ahead = self.quic.streams().open(Dir::Bi);
        }
        let was = std::mem::replace(&mut self.limited, self.ahead.is_none());
        self.limited && !was
    }

    /// Asks; there has to be room. Returns how many bytes QUIC took.
    pub(crate) fn ask(&mut self, of: Pending, head: bool, text: &[u8]) -> u64 {
        let Some(id) = self.ahead.take() else {
            return 0;
        };
        self.protocol.open(of, head);
        let taken = self.write(id, text);
        if taken < text.len() {
            self.waiting.push(Waiting {
                id,
                text: text[taken..].to_vec(),
                at: 0,
            });
        }
        taken as u64
    }

    /// Writes what the windows allow, and the end behind all.
    fn write(&mut self, id: StreamId, text: &[u8]) -> usize {
        let mut stream = self.quic.send_stream(id);
        let mut at = 0;
        while at < text.len() {
            match stream.write(&text[at..]) {
                Ok(n) => at += n,
                Err(_) => return at,
            }
        }
        // It was open until now.
        let _ = stream.finish();
        at
    }

    /// A stream may take more. Returns how many bytes it took.
    pub(crate) fn go_on(&mut self, id: StreamId) -> u64 {
        let Some(place) = self.waiting.iter().position(|one| one.id == id) else {
            return 0;
        };
        let mut one = self.waiting.swap_remove(place);
        let taken = self.write(id, &one.text[one.at..]);
        one.at += taken;
        if one.at < one.text.len() {
            self.waiting.push(one);
        }
        taken as u64
    }

    /// The server wants no more of a request.
    pub(crate) fn stop_asking(&mut self, id: StreamId, why: VarInt) {
        if let Some(place) = self.waiting.iter().position(|one| one.id == id) {
            self.waiting.swap_remove(place);
        }
        // It may have ended meanwhile.
        let _ = self.quic.send_stream(id).reset(why);
    }

    /// The rest of a request whose answer is whole is not sent.
    pub(crate) fn forget_rest(&mut self, id: StreamId) {
        if self.waiting.iter().any(|one| one.id == id) {
            self.stop_asking(id, code(frame::code::NO_ERROR));
        }
    }

    /// Ends a stream both ways.
    pub(crate) fn cancel(&mut self, id: StreamId, why: u64) {
        let why = code(why);
        self.stop_asking(id, why);
        let _ = self.quic.recv_stream(id).stop(why);
    }
}
