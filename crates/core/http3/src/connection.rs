//! Client side of a connection: reads what arrives on its streams.

use std::collections::VecDeque;

use crate::{
    QpackDecoder, ResponseSink,
    control::{Opened, Uni},
    frame::{self, code, kind, setting, stream},
    stream::{LONGEST_BLOCK, RequestStream},
};

/// Error that makes a connection unusable. The close of the connection reports it to the peer with this code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http3Fault {
    /// Code of [`frame::code`].
    pub code: u64,
    /// Description of the error.
    pub what: &'static str,
}

/// Reason why a request has no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamFailure {
    /// The server reset the stream with this code.
    Reset(u64),
    /// The server goes away, and announced that it has not processed the request.
    Unprocessed,
    /// The response is malformed.
    Malformed(&'static str),
}

/// Result of reading bytes or the end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http3Step<T> {
    /// The response to a request is complete.
    Ended {
        /// The request.
        of: T,
        /// Status, 200 to 599.
        status: u16,
    },
    /// A request will have no response.
    Failed {
        /// The request.
        of: T,
        /// The reason.
        why: StreamFailure,
    },
}

/// Appends the beginning of a request stream: its header block of [`crate::qpack`], and the frame header of a body of
/// `body` bytes. The body, if any, and the end of the stream follow.
#[inline]
pub fn request(block: &[u8], body: usize, out: &mut Vec<u8>) {
    frame::write(kind::HEADERS, block, out);
    if body > 0 {
        frame::number(kind::DATA, out);
        frame::number(body as u64, out);
    }
}

/// Client side of a connection. `T` is the caller's data of a request.
///
/// Request streams are numbered from 0 in the order in which they are opened, and so are the server's streams. The
/// numbers are QUIC stream IDs without the lowest two bits.
#[derive(Debug)]
pub struct Http3Connection<T> {
    /// Streams from the oldest to the youngest open one, by position; an ended stream leaves a gap.
    streams: VecDeque<Option<RequestStream<T>>>,
    /// Number of the first stream.
    base: u64,
    open: usize,
    unis: Vec<(u64, Uni)>,
    opened: Opened,
    /// After GOAWAY, the server processes requests below this number.
    below: Option<u64>,
}

impl<T> Default for Http3Connection<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Http3Connection<T> {
    /// Creates a connection without any requests.
    #[must_use]
    pub fn new() -> Self {
        Self {
            streams: VecDeque::new(),
            base: 0,
            open: 0,
            unis: Vec::new(),
            opened: Opened::default(),
            below: None,
        }
    }

    /// Appends the first bytes of a client, for a dedicated unidirectional stream that never ends.
    pub fn greet(out: &mut Vec<u8>) {
        frame::number(stream::CONTROL, out);
        frame::settings(&[(setting::MAX_FIELD_SECTION_SIZE, LONGEST_BLOCK)], out);
    }

    /// Returns true if the connection takes no more requests.
    #[inline]
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.below.is_some()
    }

    /// Number of requests in flight.
    #[inline]
    #[must_use]
    pub const fn open_streams(&self) -> usize {
        self.open
    }

    /// Returns the requests in flight.
    pub fn requests(&self) -> impl Iterator<Item = &T> {
        self.streams.iter().flatten().map(|stream| &stream.of)
    }

    /// Removes and returns all requests in flight.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        self.base += self.streams.len() as u64;
        self.open = 0;
        self.streams.drain(..).flatten().map(|stream| stream.of)
    }

    /// Registers a request on the next stream. If `head` is true, no response to it has a body.
    #[inline]
    pub fn open(&mut self, of: T, head: bool) {
        self.streams.push_back(Some(RequestStream::new(of, head)));
        self.open += 1;
    }

    /// Removes a request that was given up, or ended without a complete response.
    #[inline]
    pub fn remove_request(&mut self, number: u64) -> Option<T> {
        let place = usize::try_from(number.checked_sub(self.base)?).ok()?;
        let stream = self.streams.get_mut(place)?.take()?;
        self.open -= 1;
        while let Some(None) = self.streams.front() {
            self.streams.pop_front();
            self.base += 1;
        }
        Some(stream.of)
    }

    fn get(&mut self, number: u64) -> Option<&mut RequestStream<T>> {
        let place = usize::try_from(number.checked_sub(self.base)?).ok()?;
        self.streams.get_mut(place)?.as_mut()
    }

    /// Returns the number of the oldest request if `is` returns true for it; with `any`, of the first request for which
    /// it does.
    pub fn find(&self, any: bool, is: impl Fn(&T) -> bool) -> Option<u64> {
        let most = if any { self.streams.len() } else { 1 };
        let mut all = self.streams.iter().take(most);
        let found = all.position(|stream| stream.as_ref().is_some_and(|s| is(&s.of)))?;
        Some(self.base + found as u64)
    }

    /// Reads bytes of a request stream. After a failure the request is removed; the caller should end its stream both
    /// ways.
    ///
    /// # Errors
    /// An error that ends the connection.
    #[inline]
    pub fn read(
        &mut self,
        number: u64,
        decoder: &mut QpackDecoder,
        bytes: &[u8],
        sink: &mut impl ResponseSink<T>,
    ) -> Result<Option<Http3Step<T>>, Http3Fault> {
        let Some(stream) = self.get(number) else {
            return Ok(None);
        };
        match stream.read(decoder, bytes, sink)? {
            Some(what) => Ok(self.malformed(number, what)),
            None => Ok(None),
        }
    }

    fn malformed(&mut self, number: u64, what: &'static str) -> Option<Http3Step<T>> {
        let of = self.remove_request(number)?;
        let why = StreamFailure::Malformed(what);
        Some(Http3Step::Failed { of, why })
    }

    /// Handles the server's end of a request stream.
    ///
    /// # Errors
    /// An error that ends the connection.
    #[inline]
    pub fn end(&mut self, number: u64) -> Result<Option<Http3Step<T>>, Http3Fault> {
        let Some(stream) = self.get(number) else {
            return Ok(None);
        };
        if !stream.is_between() {
            return Err(Http3Fault {
                code: code::FRAME_ERROR,
                what: "stream ended inside a frame",
            });
        }
        let (status, left) = (stream.status, stream.left);
        let wrong = match (status, left) {
            (0, _) => "stream ended before HEADERS",
            (_, Some(1..)) => "body shorter than its Content-Length",
            _ => {
                return Ok(self
                    .remove_request(number)
                    .map(|of| Http3Step::Ended { of, status }));
            }
        };
        Ok(self.malformed(number, wrong))
    }

    /// Reads bytes of a stream that the server opened. Returns true if the server goes away.
    ///
    /// # Errors
    /// An error that ends the connection.
    pub fn read_uni(&mut self, number: u64, bytes: &[u8]) -> Result<bool, Http3Fault> {
        let place = match self.unis.iter().position(|(n, _)| *n == number) {
            Some(place) => place,
            None => {
                self.unis.push((number, Uni::NEW));
                self.unis.len() - 1
            }
        };
        let (below, mut away) = (&mut self.below, false);
        let uni = &mut self.unis[place].1;
        uni.read(&mut self.opened, bytes, &mut |id| {
            if id % 4 != 0 || below.is_some_and(|before| id / 4 > before) {
                return Err(Http3Fault {
                    code: code::ID_ERROR,
                    what: "GOAWAY with an invalid stream number",
                });
            }
            *below = Some(id / 4);
            away = true;
            Ok(())
        })?;
        Ok(away)
    }

    /// Handles the end of a stream that the server opened.
    ///
    /// # Errors
    /// The stream must not end before the connection.
    pub fn end_uni(&mut self, number: u64) -> Result<(), Http3Fault> {
        let Some(place) = self.unis.iter().position(|(n, _)| *n == number) else {
            return Ok(());
        };
        match self.unis.swap_remove(place).1.has_to_stay() {
            false => Ok(()),
            true => Err(Http3Fault {
                code: code::CLOSED_CRITICAL_STREAM,
                what: "the server closed a critical stream",
            }),
        }
    }

    /// Removes and returns the youngest request that a server does not process after GOAWAY.
    pub fn unprocessed(&mut self) -> Option<(u64, T)> {
        let below = self.below?;
        let back = self.streams.iter().rposition(Option::is_some)?;
        let number = self.base + back as u64;
        match number >= below {
            true => self.remove_request(number).map(|of| (number, of)),
            false => None,
        }
    }
}
