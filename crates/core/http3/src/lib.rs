//! HTTP/3 as a client of load tests needs it: RFC 9114, and RFC 9204 for header blocks.
//!
//! [`Connection`] is a client's end above any QUIC: whoever has the streams hands over what comes on each in pieces of any
//! size, and is told what became of requests. What the caller knows of a request travels with it. [`qpack`] makes header
//! blocks, once for requests that are asked again and again.
//!
//! Servers are told nothing of a table for header blocks, so it has no room: a block means the same wherever it comes, a block
//! that equals the last one is known by one comparison, no stream waits for another, and none that was given up needs care.
//!
//! ```
//! use wb_http3::{frame::{self, kind}, *};
//!
//! struct Bodies(usize);
//! impl Sink<&str> for Bodies {
//!     fn body(&mut self, _: &mut &str, bytes: &[u8]) {
//!         self.0 += bytes.len();
//!     }
//! }
//!
//! let mut block = Vec::new();
//! qpack::begin(&mut block);
//! for (name, value) in [(":method", "GET"), (":scheme", "https"), (":authority", "a"), (":path", "/")] {
//!     qpack::field(name, value, &mut block);
//! }
//! // What the stream of the request begins with.
//! let mut out = Vec::new();
//! request(&block, 0, &mut out);
//!
//! let (mut connection, mut decoder, mut bodies) = (Connection::new(), Decoder::new(), Bodies(0));
//! connection.open("first", false);
//! let mut came = Vec::new();
//! frame::write(kind::HEADERS, &[0, 0, 0xd9], &mut came);
//! frame::write(kind::DATA, b"hello", &mut came);
//! assert_eq!(connection.read(0, &mut decoder, &came, &mut bodies), Ok(None));
//! assert_eq!(connection.end(0), Ok(Some(Step::Ended { of: "first", status: 200 })));
//! assert_eq!(bodies.0, 5);
//! ```

#![forbid(unsafe_code)]

mod connection;
mod control;
pub mod frame;
pub mod qpack;
mod stream;

pub use connection::{Connection, Fault, Step, Why, request};
pub use wb_http2::Sink;

/// Reads the header blocks of many connections.
pub type Decoder = wb_http2::Decoder<qpack::Qpack>;
