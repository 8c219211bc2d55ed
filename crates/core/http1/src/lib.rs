//! HTTP/1.x for load tests.
//!
//! [`Reader`] finds the ends of messages in streams that arrive in pieces; a [`MessageSink`] receives their contents.
//! [`request()`] builds a request, and [`requests`] checks a text of requests from another source. [`script`] is the
//! interface of request scripts.
//!
//! ```
//! use wb_http1::*;
//!
//! let mut reader = Reader::responses(Interim::Skipped);
//! let mut progress = Progress::NEW;
//! let stream = b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nnoHTTP/1.1 200 OK\r\n";
//! let Read::Message { used, status, end } = reader.read(&mut progress, stream) else { panic!() };
//! assert_eq!((used, status, end.close), (47, 404, false));
//! // The next response answers a HEAD request.
//! progress.expect(true);
//! assert_eq!(reader.read(&mut progress, &stream[used..]), Read::More);
//! assert!(progress.is_within());
//! ```

#![forbid(unsafe_code)]

mod progress;
mod reader;
mod request;
pub mod script;

pub use progress::Progress;
pub use reader::{Interim, MessageEnd, MessageSink, Read, Reader};
pub use request::{RequestError, RequestInfo, TextError, TextFault, Version, request, requests};
