//! TCP and UDP state machine of one worker, for load tests: opens, holds and closes connections at rates beyond those
//! of sockets.
//!
//! Does no I/O. The caller passes the time in ns of any steady clock and frames as slices. Frames are sent through
//! slices that a [`FrameSink`] lends. Each worker owns one [`Machine`]; machines share no state. Neighbour resolution
//! is not part of this crate.
//!
//! A machine is a client or a server, for TCP or UDP. Four calls drive it:
//!
//! ```
//! use wb_tcp::*;
//! use wb_wire::MacAddr;
//!
//! let (a, b) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
//! let there = Pool::range("198.18.0.2".parse().unwrap(), 1);
//! let tuples = Tuples::new(
//!     Pool::range("198.18.0.1".parse().unwrap(), 1), (1024, 65535),
//!     there.clone(), (80, 80), TupleSequence::Sequential, Steering::All,
//! ).unwrap();
//! let client = Role::Client(Client {
//!     tuples,
//!     request: Message::bytes(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
//!     answer: Reading::Http,
//!     requests: Some(1), interval: 0, pipeline: 1, close: Close::Fin, flood: false,
//!     paced: false, numbers: false, destinations: None, alternate: None,
//! });
//! let server = Role::Server(Server {
//!     addresses: there, clients: Pool::default(), ports: (80, 80), request: Reading::Http,
//!     answer: ServerAnswer::Message(Message::bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")),
//!     answers: Some(1), proxy: false, returns_numbers: false,
//! });
//! let mut config = Config::new(client, Transport::Tcp, a);
//! config.gateway = Some(b);
//! let mut client = Machine::new(config, ()).unwrap();
//! let mut server = Machine::new(Config::new(server, Transport::Tcp, b), ()).unwrap();
//!
//! let (mut there, mut back) = (Frames::new(100), Frames::new(100));
//! client.launch(0, 10, &mut there);
//! for now in 0..10 {
//!     for frame in there.take_frames() { server.receive(now, &frame, &mut back); }
//!     for frame in back.take_frames() { client.receive(now, &frame, &mut there); }
//!     client.poll(now, &mut there);
//!     server.poll(now, &mut back);
//! }
//! assert_eq!(client.counters().completed, 10);
//! assert_eq!(server.counters().completed, 10);
//! ```
//!
//! Connections are allocated on demand: 96 bytes each plus the index. Sent data comes from a shared [`Message`].
//! Received data is read in order and not stored, except for an echo. An out-of-order segment is stored as a sequence
//! range if its bytes must only be counted (a body of known length), otherwise with its bytes. Losses are detected by
//! SACK (RFC 2018, 6675, 2883) and send times (RFC 8985), or by NewReno (RFC 6582) if the peer has no SACK. The
//! congestion window follows RFC 5681 and 7661, the retransmission timeout RFC 6298. TCP timestamps are not supported.
//! This state is kept in side records, which a connection has only while it needs one.

#![forbid(unsafe_code)]

mod addr;
mod build;
mod config;
mod connection;
mod counters;
mod icmp_error;
mod machine;
mod message;
mod mix;
mod observer;
mod original_source;
mod outstanding;
mod parse;
mod reader;
mod reassembly;
mod routes;
mod rtt;
mod sack_scoreboard;
mod script;
mod side_record;
mod store;
mod table;
mod timer;
mod tunnel;
mod tuple;

pub use addr::{Addr, Pool};
pub use build::{FrameSink, Frames};
pub use config::{
    Behaviour, Client, Close, Config, ConfigError, DestinationPool, Retransmission, Role, Server,
    ServerAnswer, TimeWait, Transport,
};
pub use counters::Counters;
pub use machine::{Cause, IcmpNews, LONGEST_LOOK_AHEAD, LatenessSeries, Machine, Received};
pub use message::{Filler, Message};
pub use mix::WeightedRequest;
pub use observer::{Exchange, Latencies, Observer};
pub use parse::Checksum;
pub use reader::Reading;
pub use routes::Route;
pub use tunnel::Tunnel;
pub use tuple::{ReceiveHash, Steering, Tuple, TupleSequence, Tuples};
