//! HTTP/1.x as load tests need it.
//!
//! [`Reader`] finds where messages end in streams that come in pieces; [`Sink`] is shown what they hold.
//! [`request`] makes a request, [`requests`] checks a text of requests that somebody else has made. [`script`] is what
//! a script does for a load.
//!
//! ```
//! use wb_http1::*;
//!
//! let mut reader = Reader::responses(Interim::Skipped);
//! let mut progress = Progress::NEW;
//! let stream = b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nnoHTTP/1.1 200 OK\r\n";
//! let Read::Message { used, status, end } = reader.read(&mut progress, stream) else { panic!() };
//! assert_eq!((used, status, end.close), (47, 404, false));
//! // The next one answers a request with the method HEAD.
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
pub use reader::{End, Interim, Read, Reader, Sink};
pub use request::{Asked, RequestError, TextError, TextFault, Version, request, requests};
