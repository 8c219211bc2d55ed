//! A client's end of a connection: what comes on its streams is read.

use std::collections::VecDeque;

use crate::{
    Decoder, Sink,
    control::{Opened, Uni},
    frame::{self, code, kind, setting, stream},
    stream::{LONGEST_BLOCK, Stream},
};

/// What makes a connection useless. The other end is told by the end of the connection with this code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Of [`frame::code`].
    pub code: u64,
    /// What happened.
    pub what: &'static str,
}

/// Why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The server ended its stream with this code.
    Reset(u64),
    /// The server goes away, and said that it has not looked at it.
    Unprocessed,
    /// Its answer is none.
    Malformed(&'static str),
}

/// What bytes, or an end, led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// A request has its whole answer.
    Ended {
        /// Which.
        of: T,
        /// From 200 to 599.
        status: u16,
    },
    /// A request will have none.
    Failed {
        /// Which.
        of: T,
        /// Why.
        why: Why,
    },
}

/// Appends what the stream of a request begins with: its header block of [`crate::qpack`], and what stands before a body of
/// so many bytes. The body, if any, follows, and then the end of the stream.
#[inline]
pub fn request(block: &[u8], body: usize, out: &mut Vec<u8>) {
    frame::write(kind::HEADERS, block, out);
    if body > 0 {
        frame::number(kind::DATA, out);
        frame::number(body as u64, out);
    }
}

/// A client's end of a connection; `T` is what the caller knows of a request.
///
/// Streams of requests are numbered from 0 on as they are opened, others of the server as it opens them: what QUIC's
/// numbers of streams have above their lowest two bits.
#[derive(Debug)]
pub struct Connection<T> {
    /// From the oldest that is open to the youngest, each with its place; what has ended leaves a gap.
    streams: VecDeque<Option<Stream<T>>>,
    /// Number of the first.
    base: u64,
    open: usize,
    unis: Vec<(u64, Uni)>,
    opened: Opened,
    /// The server, which goes away, looks at requests below this.
    below: Option<u64>,
}

impl<T> Default for Connection<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Connection<T> {
    /// One on which nothing has happened.
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

    /// Appends what a client says first, on a stream of its own that goes one way and never ends.
    pub fn greet(out: &mut Vec<u8>) {
        frame::number(stream::CONTROL, out);
        frame::settings(&[(setting::MAX_FIELD_SECTION_SIZE, LONGEST_BLOCK)], out);
    }

    /// Whether it will never take another request.
    #[inline]
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.below.is_some()
    }

    /// Requests under way.
    #[inline]
    #[must_use]
    pub const fn open_streams(&self) -> usize {
        self.open
    }

    /// Requests under way.
    pub fn requests(&self) -> impl Iterator<Item = &T> {
        self.streams.iter().flatten().map(|stream| &stream.of)
    }

    /// Takes all requests under way.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        self.base += self.streams.len() as u64;
        self.open = 0;
        self.streams.drain(..).flatten().map(|stream| stream.of)
    }

    /// A request has got the next stream. `head` says that no answer to it has a body.
    #[inline]
    pub fn open(&mut self, of: T, head: bool) {
        self.streams.push_back(Some(Stream::new(of, head)));
        self.open += 1;
    }

    /// Takes a request away: it was given up, or its stream has ended for another reason than its answer's end.
    #[inline]
    pub fn take(&mut self, number: u64) -> Option<T> {
        let place = usize::try_from(number.checked_sub(self.base)?).ok()?;
        let stream = self.streams.get_mut(place)?.take()?;
        self.open -= 1;
        while let Some(None) = self.streams.front() {
            self.streams.pop_front();
            self.base += 1;
        }
        Some(stream.of)
    }

    fn get(&mut self, number: u64) -> Option<&mut Stream<T>> {
        let place = usize::try_from(number.checked_sub(self.base)?).ok()?;
        self.streams.get_mut(place)?.as_mut()
    }

    /// The number of the oldest request, if this is true of it; or, of any, of the first that it is true of.
    pub fn find(&self, any: bool, is: impl Fn(&T) -> bool) -> Option<u64> {
        let most = if any { self.streams.len() } else { 1 };
        let mut all = self.streams.iter().take(most);
        let found = all.position(|stream| stream.as_ref().is_some_and(|s| is(&s.of)))?;
        Some(self.base + found as u64)
    }

    /// Reads what came on the stream of a request. One that failed is over; its stream should be ended both ways.
    ///
    /// # Errors
    /// What ends the connection.
    #[inline]
    pub fn read(
        &mut self,
        number: u64,
        decoder: &mut Decoder,
        bytes: &[u8],
        sink: &mut impl Sink<T>,
    ) -> Result<Option<Step<T>>, Fault> {
        let Some(stream) = self.get(number) else {
            return Ok(None);
        };
        match stream.read(decoder, bytes, sink)? {
            Some(what) => Ok(self.malformed(number, what)),
            None => Ok(None),
        }
    }

    fn malformed(&mut self, number: u64, what: &'static str) -> Option<Step<T>> {
        let of = self.take(number)?;
        let why = Why::Malformed(what);
        Some(Step::Failed { of, why })
    }

    /// The server has said all on the stream of a request.
    ///
    /// # Errors
    /// What ends the connection.
    #[inline]
    pub fn end(&mut self, number: u64) -> Result<Option<Step<T>>, Fault> {
        let Some(stream) = self.get(number) else {
            return Ok(None);
        };
        if !stream.is_between() {
            return Err(Fault {
                code: code::FRAME_ERROR,
                what: "a stream ends within a frame",
            });
        }
        let (status, left) = (stream.status, stream.left);
        let wrong = match (status, left) {
            (0, _) => "its stream ends before its head",
            (_, Some(1..)) => "its body is shorter than its Content-Length",
            _ => return Ok(self.take(number).map(|of| Step::Ended { of, status })),
        };
        Ok(self.malformed(number, wrong))
    }

    /// Reads what came on a stream that the server has opened. Returns whether it goes away.
    ///
    /// # Errors
    /// What ends the connection.
    pub fn read_uni(&mut self, number: u64, bytes: &[u8]) -> Result<bool, Fault> {
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
                return Err(Fault {
                    code: code::ID_ERROR,
                    what: "GOAWAY names a stream that it may not",
                });
            }
            *below = Some(id / 4);
            away = true;
            Ok(())
        })?;
        Ok(away)
    }

    /// A stream that the server has opened has ended.
    ///
    /// # Errors
    /// It was one that has to stay.
    pub fn end_uni(&mut self, number: u64) -> Result<(), Fault> {
        let Some(place) = self.unis.iter().position(|(n, _)| *n == number) else {
            return Ok(());
        };
        match self.unis.swap_remove(place).1.has_to_stay() {
            false => Ok(()),
            true => Err(Fault {
                code: code::CLOSED_CRITICAL_STREAM,
                what: "the server ends a stream that has to stay",
            }),
        }
    }

    /// The next request that a server that goes away does not look at.
    pub fn unprocessed(&mut self) -> Option<(u64, T)> {
        let below = self.below?;
        let back = self.streams.iter().rposition(Option::is_some)?;
        let number = self.base + back as u64;
        match number >= below {
            true => self.take(number).map(|of| (number, of)),
            false => None,
        }
    }
}
