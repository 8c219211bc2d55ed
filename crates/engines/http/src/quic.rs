//! HTTP/3 state of a thread and of its connections. QUIC is quinn's protocol crate, which uses no sockets and no clock.

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
use wb_http3::{QpackDecoder, frame};

use crate::connection::PendingStream;

/// Maximum number of pieces per receive call, each of up to 64 KiB of datagrams of one length.
pub(crate) const ROOMS: usize = 8;
/// Streams that the server may open: three of known types, and some of unknown types.
const UNI_STREAMS: u32 = 16;

/// State shared by all connections of a thread.
pub(crate) struct Quic {
    pub(crate) endpoint: Endpoint,
    pub(crate) config: ClientConfig,
    /// Server name in handshakes.
    pub(crate) name: String,
    /// Number of verified certificates: resumed sessions verify none.
    certificates: Arc<AtomicU64>,
    pub(crate) decoder: QpackDecoder,
    /// The same instant on both clocks.
    origin: (Instant, u64),
    /// Timers of connections: time, index, and number at that time.
    pub(crate) timers: BinaryHeap<Reverse<(u64, usize, u64)>>,
    pub(crate) rooms: [Vec<u8>; ROOMS],
    /// Outgoing datagrams.
    pub(crate) out: Vec<u8>,
    /// Outgoing request.
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
        // Like with HTTP/2, received data is processed at once, so windows are as large as possible.
        transport
            .receive_window(VarInt::MAX)
            .stream_receive_window(VarInt::MAX)
            .max_concurrent_bidi_streams(VarInt::from_u32(0))
            .max_concurrent_uni_streams(VarInt::from_u32(UNI_STREAMS))
            .datagram_receive_buffer_size(None)
            // The server's idle timeout applies.
            .max_idle_timeout(None);
        let mut config = ClientConfig::new(Arc::new(tls));
        config.transport_config(Arc::new(transport));
        Self {
            endpoint: Endpoint::new(Arc::new(EndpointConfig::default()), None, true, None),
            config,
            name,
            certificates,
            decoder: QpackDecoder::new(),
            origin: (Instant::now(), now),
            timers: BinaryHeap::new(),
            rooms: std::array::from_fn(|_| vec![0; 64 * 1024]),
            out: Vec::new(),
            text: Vec::new(),
        }
    }

    pub(crate) fn verified_certificates(&self) -> u64 {
        self.certificates.load(Ordering::Relaxed)
    }

    /// Converts a CLOCK_MONOTONIC time for QUIC.
    pub(crate) fn to_instant(&self, ns: u64) -> Instant {
        self.origin.0 + Duration::from_nanos(ns.saturating_sub(self.origin.1))
    }

    fn to_ns(&self, instant: Instant) -> u64 {
        let after = instant.saturating_duration_since(self.origin.0).as_nanos();
        self.origin.1 + after as u64
    }

    /// Time of the connection's next timer.
    pub(crate) fn next_timer(&self, http3: &mut Http3) -> Option<u64> {
        http3.quic.poll_timeout().map(|at| self.to_ns(at))
    }

    /// Sets a timer for the connection.
    pub(crate) fn arm_timer(&mut self, http3: &mut Http3, index: usize, number: u64) {
        // An early timer is simply set again.
        if let Some(due) = self.next_timer(http3)
            && (http3.timer_ns == 0 || due < http3.timer_ns)
        {
            http3.timer_ns = due.max(1);
            self.timers.push(Reverse((http3.timer_ns, index, number)));
        }
    }
}

/// A part of a request that waits for flow control.
pub(crate) struct WaitingRequestPart {
    id: StreamId,
    text: Vec<u8>,
    at: usize,
}

/// Datagrams that the socket has not accepted.
pub(crate) struct UnsentDatagrams {
    pub(crate) bytes: Vec<u8>,
    pub(crate) how: DatagramLayout,
}

/// Length of each datagram if there are several, and the ECN bits.
pub(crate) type DatagramLayout = (Option<usize>, Option<u8>);

/// HTTP/3 state of a connection.
pub(crate) struct Http3 {
    pub(crate) quic: quinn_proto::Connection,
    pub(crate) handle: ConnectionHandle,
    pub(crate) udp: UdpSocketState,
    pub(crate) protocol: wb_http3::Http3Connection<PendingStream>,
    /// Stream of the next request.
    ahead: Option<StreamId>,
    /// The server allows no more streams.
    limited: bool,
    waiting: Vec<WaitingRequestPart>,
    pub(crate) unsent: Option<UnsentDatagrams>,
    /// Time of the next timer, ns; 0: none.
    pub(crate) timer_ns: u64,
    /// Time of the last ping, ns, and the number of earlier replies; 0 if there was none.
    pub(crate) pinged_ns: u64,
    pub(crate) acks: u64,
    /// The server has shown its certificate.
    pub(crate) full: bool,
    /// The endpoint has removed it.
    pub(crate) drained: bool,
}

/// Stream ID of the request with this number.
pub(crate) fn stream_id(number: u64) -> StreamId {
    StreamId::new(Side::Client, Dir::Bi, number)
}

pub(crate) fn error_code(code: u64) -> VarInt {
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
            protocol: wb_http3::Http3Connection::new(),
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

    /// Opens the control stream and sends the settings.
    pub(crate) fn send_settings(&mut self) -> u64 {
        let mut text = Vec::new();
        wb_http3::Http3Connection::<PendingStream>::greet(&mut text);
        match self.quic.streams().open(Dir::Uni) {
            // This stream never ends.
            Some(id) => self.quic.send_stream(id).write(&text).unwrap_or(0) as u64,
            None => 0,
        }
    }

    /// Returns true if a request may be sent.
    pub(crate) fn has_room(&self) -> bool {
        self.ahead.is_some() && !self.protocol.is_over()
    }

    /// Opens the stream of the next request if the server allows one. Returns true if the stream limit has just become
    /// the obstacle.
    pub(crate) fn look_ahead(&mut self) -> bool {
        if self.ahead.is_none() {
            self.ahead = self.quic.streams().open(Dir::Bi);
        }
        let was = std::mem::replace(&mut self.limited, self.ahead.is_none());
        self.limited && !was
    }

    /// Sends a request; a stream must be available. Returns the number of bytes accepted by QUIC.
    pub(crate) fn send_request(&mut self, of: PendingStream, head: bool, text: &[u8]) -> u64 {
        let Some(id) = self.ahead.take() else {
            return 0;
        };
        self.protocol.open(of, head);
        let taken = self.write(id, text);
        if taken < text.len() {
            self.waiting.push(WaitingRequestPart {
                id,
                text: text[taken..].to_vec(),
                at: 0,
            });
        }
        taken as u64
    }

    /// Writes as much as flow control allows, and the end of the stream after all data.
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

    /// Continues a stream that may send more. Returns the number of bytes accepted.
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

    /// Stops sending a request at the server's demand.
    pub(crate) fn stop_asking(&mut self, id: StreamId, why: VarInt) {
        if let Some(place) = self.waiting.iter().position(|one| one.id == id) {
            self.waiting.swap_remove(place);
        }
        // It may have ended meanwhile.
        let _ = self.quic.send_stream(id).reset(why);
    }

    /// Drops the unsent rest of a request after its answer is complete.
    pub(crate) fn forget_rest(&mut self, id: StreamId) {
        if self.waiting.iter().any(|one| one.id == id) {
            self.stop_asking(id, error_code(frame::code::NO_ERROR));
        }
    }

    /// Ends a stream in both directions.
    pub(crate) fn cancel_stream(&mut self, id: StreamId, why: u64) {
        let why = error_code(why);
        self.stop_asking(id, why);
        let _ = self.quic.recv_stream(id).stop(why);
    }
}
