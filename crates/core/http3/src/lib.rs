//! HTTP/3 client for load tests: RFC 9114, and RFC 9204 for header blocks.
//!
//! [`Http3Connection`] is the client side above any QUIC implementation. The caller owns the streams and passes received
//! bytes in pieces of any size; the connection reports the results of requests. The caller's data of a request travels
//! with it. [`qpack`] builds header blocks once, for requests that are sent repeatedly.
//!
//! No dynamic table is announced, so servers cannot use one. A block therefore means the same everywhere, one
//! comparison recognises a block that equals the previous one, no stream waits for another, and a reset stream needs no
//! special handling.
//!
//! ```
//! use wb_http3::{frame::{self, kind}, *};
//!
//! struct Bodies(usize);
//! impl ResponseSink<&str> for Bodies {
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
//! // Beginning of the request stream.
//! let mut out = Vec::new();
//! request(&block, 0, &mut out);
//!
//! let (mut connection, mut decoder, mut bodies) = (Http3Connection::new(), QpackDecoder::new(), Bodies(0));
//! connection.open("first", false);
//! let mut came = Vec::new();
//! frame::write(kind::HEADERS, &[0, 0, 0xd9], &mut came);
//! frame::write(kind::DATA, b"hello", &mut came);
//! assert_eq!(connection.read(0, &mut decoder, &came, &mut bodies), Ok(None));
//! assert_eq!(connection.end(0), Ok(Some(Http3Step::Ended { of: "first", status: 200 })));
//! assert_eq!(bodies.0, 5);
//! ```

#![forbid(unsafe_code)]

mod connection;
mod control;
pub mod frame;
pub mod qpack;
mod stream;

pub use connection::{Http3Connection, Http3Fault, Http3Step, StreamFailure, request};
pub use wb_http2::ResponseSink;

/// Decodes the header blocks of many connections.
pub type QpackDecoder = wb_http2::HeaderDecoder<qpack::Qpack>;
