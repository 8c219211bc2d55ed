//! HTTP/2 client for load tests: RFC 9113, and RFC 7541 for header blocks.
//!
//! [`Http2Connection`] is the client side without a socket: [`Http2Connection::open`] writes a request, [`Http2Connection::read`]
//! takes received bytes in pieces of any size and reports the results of requests. The caller's data of a request
//! travels with it. [`encode`] builds header blocks once, for requests that are sent repeatedly.
//!
//! SETTINGS_HEADER_TABLE_SIZE is 0, so servers cannot use a dynamic table. A block therefore means the same everywhere,
//! one comparison recognises a block that equals the previous one, and a reset stream needs no special handling.
//! Windows are as large as possible, because all received bytes are counted at once.
//!
//! ```
//! use wb_http2::{frame::{self, flag, kind}, *};
//!
//! struct Bodies(usize);
//! impl ResponseSink<&str> for Bodies {
//!     fn body(&mut self, _: &mut &str, bytes: &[u8]) {
//!         self.0 += bytes.len();
//!     }
//! }
//!
//! let (mut connection, mut decoder, mut bodies) = (Http2Connection::new(), HeaderDecoder::new(), Bodies(0));
//! let mut out = Vec::new();
//! Http2Connection::<&str>::greet(&mut out);
//! let mut came = Vec::new();
//! frame::settings(&[], &mut came);
//! assert_eq!(connection.read(&mut decoder, &mut &came[..], &mut out, &mut bodies), Ok(Http2Step::Ready));
//!
//! let mut block = Vec::new();
//! for (name, value) in [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a")] {
//!     encode::field(name, value, &mut block);
//! }
//! connection.open("first", false, &block, b"", &mut out);
//! came.clear();
//! frame::write(kind::HEADERS, flag::END_HEADERS, 1, &[0x88], &mut came);
//! frame::write(kind::DATA, flag::END_STREAM, 1, b"hello", &mut came);
//! let ended = connection.read(&mut decoder, &mut &came[..], &mut out, &mut bodies);
//! assert_eq!(ended, Ok(Http2Step::Ended { of: "first", status: 200 }));
//! assert_eq!(bodies.0, 5);
//! ```

#![forbid(unsafe_code)]

mod connection;
mod decode;
pub mod encode;
pub mod frame;
mod huffman;
mod stream;
mod table;

pub use connection::{FailureReason, Http2Connection, Http2Fault, Http2Step, ResponseSink};
pub use decode::HeaderDecoder;

/// Header blocks independent of the encoding; shared with HTTP/3.
pub mod blocks {
    pub use crate::decode::{BlockError, BlockPlace, Coding, Hpack, ResponseInfo, integer, string};
}
