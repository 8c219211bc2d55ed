//! A minimal QUIC server with configurable reactions to requests.

use std::{
    collections::HashMap,
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use quinn_proto::{
    Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig,
    Event, IdleTimeout, ReadError, ServerConfig, Side, StreamEvent, StreamId, TransportConfig,
    VarInt, crypto::rustls::QuicServerConfig,
};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair},
};
use rustls::{
    crypto::ring::{default_provider, sign::any_ecdsa_type},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
    version::TLS13,
};
use wb_http3::{
    frame::{self, kind},
    qpack,
};

/// A certificate without checks.
#[derive(Debug)]
struct Any(Arc<CertifiedKey>);

impl ResolvesServerCert for Any {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// Limits and protocols of a server.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) streams: u32,
    pub(crate) idle_ms: u64,
    pub(crate) protocol: &'static [u8],
    /// Initial window of a request, in bytes.
    pub(crate) window: u32,
}

pub(crate) const RULES: Rules = Rules {
    streams: 1000,
    idle_ms: 30_000,
    protocol: b"h3",
    window: 1 << 20,
};

/// Events of a server.
pub(crate) enum What {
    /// A part of a request has arrived.
    Begun(StreamId),
    /// A whole request has arrived, with its length in bytes.
    Asked(StreamId, usize),
    /// The client has cancelled it with this code.
    Cancelled(StreamId, u64),
    /// A connection has ended.
    Over(ConnectionError),
}

/// A server's end of a connection.
pub(crate) struct End<'a> {
    pub(crate) quic: &'a mut Connection,
    /// Its control stream.
    pub(crate) control: StreamId,
    pub(crate) socket: &'a UdpSocket,
    pub(crate) now: Instant,
}

impl End<'_> {
    pub(crate) fn say(&mut self, id: StreamId, bytes: &[u8]) {
        let _ = self.quic.send_stream(id).write(bytes);
    }

    pub(crate) fn finish(&mut self, id: StreamId) {
        let _ = self.quic.send_stream(id).finish();
    }

    /// Sends status 200 and five bytes.
    pub(crate) fn answer(&mut self, id: StreamId) {
        let mut out = head(&[(":status", "200"), ("content-length", "5"), ("x-a", "one")]);
        frame::write(kind::DATA, b"hello", &mut out);
        self.say(id, &out);
        self.finish(id);
    }

    pub(crate) fn reset(&mut self, id: StreamId, code: u64) {
        let _ = self
            .quic
            .send_stream(id)
            .reset(VarInt::from_u64(code).unwrap());
    }

    pub(crate) fn close(&mut self, code: u64) {
        let code = VarInt::from_u64(code).unwrap();
        self.quic.close(self.now, code, Bytes::from_static(b"why"));
    }
}

/// A HEADERS frame.
pub(crate) fn head(fields: &[(&str, &str)]) -> Vec<u8> {
    let (mut block, mut out) = (Vec::new(), Vec::new());
    qpack::begin(&mut block);
    for (name, value) in fields {
        qpack::field(name, value, &mut block);
    }
    frame::write(kind::HEADERS, &block, &mut out);
    out
}

fn config(rules: Rules) -> ServerConfig {
    let random = SystemRandom::new();
    let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.as_ref().to_vec()));
    let certificate = CertificateDer::from(vec![0x30, 0]);
    let certified = CertifiedKey::new(vec![certificate], any_ecdsa_type(&key).unwrap());
    let mut tls = rustls::ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Any(Arc::new(certified))));
    tls.alpn_protocols = vec![rules.protocol.to_vec()];
    let crypto = QuicServerConfig::try_from(tls).unwrap();
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    let mut transport = TransportConfig::default();
    let idle = IdleTimeout::try_from(Duration::from_millis(rules.idle_ms)).unwrap();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(rules.streams))
        .stream_receive_window(VarInt::from_u32(rules.window))
        .max_idle_timeout(Some(idle));
    config.transport_config(Arc::new(transport));
    config
}

struct Peer {
    quic: Connection,
    control: Option<StreamId>,
    /// Bytes so far, by request.
    requests: HashMap<StreamId, usize>,
}

/// A server with this reaction to every event; after `answer` returns false it is silent permanently.
pub(crate) fn serve(
    rules: Rules,
    mut answer: impl FnMut(&mut End<'_>, What) -> bool + Send + 'static,
) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let wait = Some(Duration::from_millis(1));
    socket.set_read_timeout(wait).unwrap();
    let endpoint = Arc::new(EndpointConfig::default());
    let mut endpoint = Endpoint::new(endpoint, Some(Arc::new(config(rules))), false, None);
    std::thread::spawn(move || {
        let mut peers: HashMap<ConnectionHandle, Peer> = HashMap::new();
        let mut bytes = vec![0; 65_536];
        loop {
            let mut out = Vec::new();
            if let Ok((len, from)) = socket.recv_from(&mut bytes) {
                let datagram = BytesMut::from(&bytes[..len]);
                match endpoint.handle(Instant::now(), from, None, None, datagram, &mut out) {
                    Some(DatagramEvent::NewConnection(incoming)) => {
                        let accepted = endpoint.accept(incoming, Instant::now(), &mut out, None);
                        match accepted {
                            Ok((handle, quic)) => {
                                let peer = Peer {
                                    quic,
                                    control: None,
                                    requests: HashMap::new(),
                                };
                                peers.insert(handle, peer);
                            }
                            Err(why) => {
                                if let Some(made) = why.response {
                                    let _ = socket.send_to(&out[..made.size], made.destination);
                                }
                            }
                        }
                    }
                    Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                        if let Some(peer) = peers.get_mut(&handle) {
                            peer.quic.handle_event(event);
                        }
                    }
                    Some(DatagramEvent::Response(made)) => {
                        let _ = socket.send_to(&out[..made.size], made.destination);
                    }
                    None => {}
                }
            }
            for (handle, peer) in &mut peers {
                if !turn(&mut endpoint, *handle, peer, &socket, &mut answer) {
                    // Silent from now on, with its socket.
                    loop {
                        std::thread::park();
                    }
                }
            }
            peers.retain(|_, peer| !peer.quic.is_drained());
        }
    });
    address
}

fn turn(
    endpoint: &mut Endpoint,
    handle: ConnectionHandle,
    peer: &mut Peer,
    socket: &UdpSocket,
    answer: &mut impl FnMut(&mut End<'_>, What) -> bool,
) -> bool {
    let now = Instant::now();
    if peer.quic.poll_timeout().is_some_and(|at| at <= now) {
        peer.quic.handle_timeout(now);
    }
    let mut happened = Vec::new();
    while let Some(event) = peer.quic.poll() {
        match event {
            Event::Connected => {
                let id = peer.quic.streams().open(Dir::Uni).unwrap();
                let mut out = vec![frame::stream::CONTROL as u8];
                frame::settings(&[(0x21, 1)], &mut out);
                peer.quic.send_stream(id).write(&out).unwrap();
                peer.control = Some(id);
            }
            Event::Stream(StreamEvent::Opened { dir }) => {
                while let Some(id) = peer.quic.streams().accept(dir) {
                    read(peer, id, &mut happened);
                }
            }
            Event::Stream(StreamEvent::Readable { id }) => read(peer, id, &mut happened),
            Event::Stream(StreamEvent::Stopped { id, error_code }) => {
                happened.push(What::Cancelled(id, error_code.into_inner()));
            }
            Event::ConnectionLost { reason } => happened.push(What::Over(reason)),
            _ => {}
        }
    }
    for what in happened {
        let mut end = End {
            quic: &mut peer.quic,
            control: peer
                .control
                .unwrap_or(StreamId::new(Side::Server, Dir::Uni, 0)),
            socket,
            now,
        };
        if !answer(&mut end, what) {
            return false;
        }
    }
    while let Some(event) = peer.quic.poll_endpoint_events() {
        if let Some(event) = endpoint.handle_event(handle, event) {
            peer.quic.handle_event(event);
        }
    }
    let mut out = Vec::new();
    while let Some(made) = peer.quic.poll_transmit(now, 1, &mut out) {
        let _ = socket.send_to(&out[..made.size], made.destination);
        out.clear();
    }
    true
}

fn read(peer: &mut Peer, id: StreamId, happened: &mut Vec<What>) {
    let mut stream = peer.quic.recv_stream(id);
    let Ok(mut chunks) = stream.read(true) else {
        return;
    };
    let mut came = peer.requests.get(&id).copied().unwrap_or(0);
    let ended = loop {
        match chunks.next(usize::MAX) {
            Ok(Some(chunk)) => came += chunk.bytes.len(),
            Ok(None) => break true,
            Err(ReadError::Reset(_)) => break false,
            Err(ReadError::Blocked) => break false,
        }
    };
    let _ = chunks.finalize();
    if id.dir() == Dir::Uni {
        return;
    }
    let before = peer.requests.insert(id, came);
    if ended {
        peer.requests.remove(&id);
        happened.push(What::Asked(id, came));
    } else if before.is_none() && came > 0 {
        happened.push(What::Begun(id));
    }
}
