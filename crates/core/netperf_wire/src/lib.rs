//! Control messages of socket tests: those of netperf 2.7, and the wirebench extension.
//!
//! A client and a server share one TCP connection in addition to the data (port [`PORT`]). All messages on it have the
//! same length, which depends on the age of the peer ([`Generation`]). The client sends a [`Request`]; the server
//! answers with a response when it is ready, and with results when the test is over. Pure: bytes in, bytes out; no
//! sockets, no clock.
//!
//! | message | client | server |
//! |---|---|---|
//! | cut the byte stream into messages | [`Framer`] | [`Framer`] |
//! | request | [`Request::encode`] | [`Request::parse`] |
//! | response to an omni request | [`OmniResponse::parse`] | [`OmniResponse::encode`] |
//! | results of an omni test | [`OmniResults::parse`] | [`OmniResults::encode`] |
//! | classic tests | [`ClassicResponse`], [`ClassicResults`] | same types |
//! | calibration, system, debugging | [`Calibration`], [`SystemText`] | same types, [`debug_ok`] |
//! | errors | [`AnswerError::Refused`] | [`Refusal::encode`] |
//!
//! The parser is lenient, because netperf leaves remains of older messages in unused fields. Values that would harm a
//! server (a buffer of 2 GiB, an unknown direction) are a [`BadMessage`] that names the field. Type words of answers
//! are never checked: netperf sends results with the bytes of the type swapped.
//!
//! Two wirebench peers recognise each other by marks in the tail of these messages, which netperf never uses
//! ([`RequestExtension`]).
//!
//! ```
//! use wb_netperf_wire::*;
//!
//! let request = Request::from(OmniRequest { length: TestLength::Seconds(2), ..OmniRequest::default() });
//! let mut framer = Framer::new(Generation::Words164);
//! framer.push(&request.encode(Generation::Words164));
//! let message = framer.next_message().expect("a whole message");
//! assert_eq!(Request::parse(&message), Ok(request));
//!
//! let response = OmniResponse { data_port: 38841, ..OmniResponse::default() };
//! let bytes = response.encode(framer.generation());
//! assert_eq!(OmniResponse::parse(&bytes).expect("not refused").data_port, 38841);
//! ```

#![forbid(unsafe_code)]

mod classic;
mod error;
mod extension;
mod flags;
mod framer;
mod request;
mod response;
mod results;
mod small_messages;
mod values;
mod words;

pub use classic::{
    ClassicKind, ClassicRequest, ClassicResponse, ClassicResults, ClassicTest, DatagramTest,
    ExchangeTest, StreamTest,
};
pub use error::{AnswerError, BadMessage, Refusal};
pub use extension::{
    DatagramFigures, EXTENSION_AT, EXTENSION_VERSION, LatencyFigures, RequestExtension,
    ResponseExtension, ResultsExtension, TcpFigures,
};
pub use flags::{Features, Flags};
pub use framer::{Framer, Generation};
pub use request::{OmniRequest, Request};
pub use response::OmniResponse;
pub use results::{CpuFigures, CpuSplit, OmniResults, ResultsLayout};
pub use small_messages::{Calibration, Passphrase, SystemText, debug_ok};
pub use values::{
    CpuMethod, DataDirection, MAX_SIZE, Name, TestLength, WireAddress, WireFamily, WireSocketType,
};

/// Default port of a server.
pub const PORT: u16 = 12865;

/// Seconds that a netperf server waits after the nominal end of a timed test.
pub const PADDING_SECONDS: u32 = 4;
