//! The per-worker TCP and UDP machine for load: frames in, frames out, connections opened, held and
//! closed at rates no socket reaches.
//!
//! Pure: time comes in as nanoseconds of any steady clock, frames as slices, and frames leave into
//! slices that a [`FrameSink`] lends. One worker owns one [`Machine`]; nothing is shared. Neighbour
//! resolution is not done here.
//!
//! A machine is a client or a server, of TCP or UDP. It is driven by four calls:
//!
//! ```
//! use wb_tcp::*;
//! use wb_wire::MacAddr;
//!
//! let (a, b) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
//! let there = Pool::range("198.18.0.2".parse().unwrap(), 1);
//! let tuples = Tuples::new(
//!     Pool::range("198.18.0.1".parse().unwrap(), 1), (1024, 65535),
//!     there.clone(), (80, 80), Order::Sequential, Steering::All,
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
//!     answer: Answer::Message(Message::bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")),
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
//!     for frame in there.take() { server.receive(now, &frame, &mut back); }
//!     for frame in back.take() { client.receive(now, &frame, &mut there); }
//!     client.poll(now, &mut there);
//!     server.poll(now, &mut back);
//! }
//! assert_eq!(client.counters().completed, 10);
//! assert_eq!(server.counters().completed, 10);
//! ```
//!
//! Connections are made on demand: 96 bytes each and the index. What is sent comes from a
//! [`Message`] shared by all; what is received is read in order and not kept, but for an echo. A segment
//! that is ahead of its turn is kept as a range of numbers where its bytes need only be counted (a body
//! of known length), else with its bytes. Losses are found by selective acknowledgements (RFC 2018, 6675,
//! 2883) and times of sending (RFC 8985), or, where a peer has none, by NewReno (RFC 6582); the window
//! follows RFC 5681, 7661, the retransmission time RFC 6298. There are no time stamps. All that this
//! takes is in side records, which a connection has only while it needs one.

#![forbid(unsafe_code)]

mod addr;
mod board;
mod build;
mod config;
mod conn;
mod counters;
mod icmp_error;
mod machine;
mod message;
mod mix;
mod observer;
mod outstanding;
mod parse;
mod reader;
mod reassembly;
mod rip;
mod routes;
mod rtt;
mod script;
mod side_record;
mod snmp;
mod source;
mod store;
mod table;
mod timer;
mod tunnel;
mod tuple;

pub use addr::{Addr, Pool};
pub use build::{FrameSink, Frames};
pub use config::{
    Answer, Client, Close, Config, ConfigError, Destinations, Retransmission, Role, Server, Style,
    TimeWait, Transport,
};
pub use counters::Counters;
pub use machine::{Cause, IcmpNews, LONGEST_LOOK_AHEAD, Late, Machine, Received};
pub use message::{Filler, Message};
pub use mix::Ask;
pub use observer::{Exchange, Latencies, Observer};
pub use parse::Checksum;
pub use reader::Reading;
pub use rip::update as rip_update;
pub use routes::Route;
pub use snmp::{SnmpQuestion, sys_up_time};
pub use tunnel::Tunnel;
pub use tuple::{Order, ReceiveHash, Steering, Tuple, Tuples};
