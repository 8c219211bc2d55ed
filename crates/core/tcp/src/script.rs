//! Output of a connection that is not one repeated message: echoed bytes, several kinds of requests or answers, answers
//! without body, and "100 Continue".

use std::collections::VecDeque;

use crate::message::Message;
use crate::store::Store;

/// Interim answer "100 Continue": RFC 9110 section 15.2.1.
pub(crate) fn continue_answer() -> Message {
    Message::bytes(b"HTTP/1.1 100 Continue\r\n\r\n")
}

/// Source of a piece of the stream; a piece ends with the end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Message with this index, once or repeatedly.
    Text(u16),
    /// Only the head of the message with this index: the answer to HEAD.
    Head(u16),
    /// "100 Continue".
    Leave,
}

/// Message with the length of its HTTP head.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    pub(crate) message: Message,
    pub(crate) head_len: u32,
}

impl Text {
    pub(crate) fn new(message: Message) -> Self {
        Self {
            head_len: message.head_len(),
            message,
        }
    }
}

/// All texts of a machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Texts<'a> {
    /// Requests of a client or answers of a server.
    pub(crate) all: &'a [Text],
    pub(crate) leave: &'a Message,
}

impl Texts<'_> {
    /// Writes the bytes that start `to_end` bytes before the end of messages of this origin.
    fn write(&self, origin: Origin, to_end: u32, out: &mut [u8]) {
        let (message, period) = match origin {
            Origin::Text(n) => {
                let text = &self.all[usize::from(n)];
                (&text.message, text.message.len())
            }
            Origin::Head(n) => {
                let text = &self.all[usize::from(n)];
                (&text.message, text.head_len)
            }
            Origin::Leave => (self.leave, self.leave.len()),
        };
        let (mut to_end, mut out) = (to_end, out);
        while !out.is_empty() {
            let left = match to_end % period {
                0 => period,
                left => left,
            };
            let n = (left as usize).min(out.len());
            let (now, later) = out.split_at_mut(n);
            message.write(period - left, now);
            (out, to_end) = (later, to_end - n as u32);
        }
    }
}

/// Output of a connection from the oldest unacknowledged byte on.
#[derive(Debug, Default)]
pub(crate) struct OutputScript {
    /// Pieces with their remaining lengths.
    pieces: VecDeque<(Origin, u32)>,
    /// Blocks of an echo; `begins` and `ends` are offsets in the first and the last block.
    blocks: VecDeque<u32>,
    begins: usize,
    ends: usize,
}

impl OutputScript {
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.blocks.is_empty()
    }

    pub(crate) fn clear(&mut self, store: &mut Store) {
        self.pieces.clear();
        for block in self.blocks.drain(..) {
            store.give_back(block);
        }
        (self.begins, self.ends) = (0, 0);
    }

    /// Appends `len` bytes of an origin to the `queued` bytes already present.
    pub(crate) fn push(&mut self, queued: u32, origin: Origin, len: u32) {
        if self.pieces.is_empty() && queued > 0 {
            self.pieces.push_back((Origin::Text(0), queued));
        }
        match self.pieces.back_mut() {
            Some((last, left)) if *last == origin => *left += len,
            _ => self.pieces.push_back((origin, len)),
        }
    }

    /// Appends echoed bytes and returns the number accepted.
    pub(crate) fn echo(&mut self, mut bytes: &[u8], store: &mut Store) -> usize {
        let mut taken = 0;
        while !bytes.is_empty() {
            if self.blocks.is_empty() || self.ends == store.block_len() {
                let Some(block) = store.allocate_block() else {
                    break;
                };
                self.blocks.push_back(block);
                self.ends = 0;
            }
            let block = self.blocks[self.blocks.len() - 1];
            let room = &mut store.get_mut(block)[self.ends..];
            let n = room.len().min(bytes.len());
            room[..n].copy_from_slice(&bytes[..n]);
            self.ends += n;
            taken += n;
            bytes = &bytes[n..];
        }
        taken
    }

    /// Removes `n` acknowledged bytes.
    pub(crate) fn acknowledged(&mut self, mut n: u32, store: &mut Store) {
        if !self.blocks.is_empty() {
            self.begins += n as usize;
            while self.begins >= store.block_len() {
                self.begins -= store.block_len();
                if let Some(block) = self.blocks.pop_front() {
                    store.give_back(block);
                }
            }
            if self.blocks.is_empty() || self.blocks.len() == 1 && self.begins == self.ends {
                self.clear(store);
            }
            return;
        }
        while let Some((_, left)) = self.pieces.front_mut() {
            if *left > n {
                *left -= n;
                return;
            }
            n -= *left;
            self.pieces.pop_front();
        }
    }

    /// Fills `out` with the bytes from offset `at` after the oldest one.
    pub(crate) fn write(&self, at: u32, out: &mut [u8], texts: &Texts, store: &Store) {
        if !self.blocks.is_empty() {
            self.write_echo(at as usize, out, store);
            return;
        }
        let (mut at, mut out) = (at, out);
        for &(origin, left) in &self.pieces {
            if at >= left {
                at -= left;
                continue;
            }
            let n = ((left - at) as usize).min(out.len());
            let (now, later) = out.split_at_mut(n);
            texts.write(origin, left - at, now);
            if later.is_empty() {
                return;
            }
            (at, out) = (0, later);
        }
    }

    fn write_echo(&self, at: usize, out: &mut [u8], store: &Store) {
        let (mut at, mut out) = (self.begins + at, out);
        while !out.is_empty() {
            let Some(block) = self.blocks.get(at / store.block_len()) else {
                return;
            };
            let bytes = &store.get(*block)[at % store.block_len()..];
            let n = bytes.len().min(out.len());
            let (now, later) = out.split_at_mut(n);
            now.copy_from_slice(&bytes[..n]);
            (at, out) = (at + n, later);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The output equals the queued messages in order, regardless of acknowledgements in between.
        #[test]
        fn pieces_are_written_in_turn(
            steps in prop::collection::vec((0u8..5, 0u32..200), 1..40),
            before in 0u32..3,
        ) {
            let text = Message::bytes(b"HTTP/1.1 200 OK\r\n\r\nbody");
            let other = b"HTTP/1.1 404 Not Found\r\n\r\n";
            let all = [Text::new(text), Text::new(Message::bytes(other))];
            let texts = Texts { all: &all, leave: &continue_answer() };
            prop_assert_eq!(all[0].head_len, 19);
            let whole = b"HTTP/1.1 200 OK\r\n\r\nbody";
            let mut store = Store::new(64);
            let mut model: Vec<u8> = whole.repeat(before as usize);
            let mut script = OutputScript::default();
            for (what, n) in steps {
                let (origin, bytes): (_, &[u8]) = match what {
                    0 => (Origin::Text(0), whole),
                    1 => (Origin::Head(0), &whole[..19]),
                    2 => (Origin::Text(1), other),
                    3 => (Origin::Head(1), other),
                    _ => (Origin::Leave, b"HTTP/1.1 100 Continue\r\n\r\n"),
                };
                script.push(model.len() as u32, origin, bytes.len() as u32);
                model.extend_from_slice(bytes);
                let acked = (n as usize).min(model.len());
                script.acknowledged(acked as u32, &mut store);
                model.drain(..acked);
                prop_assert_eq!(script.is_empty(), model.is_empty());
                let at = model.len() / 3;
                let mut out = vec![0; model.len() - at];
                script.write(at as u32, &mut out, &texts, &store);
                prop_assert_eq!(&out, &model[at..]);
            }
        }

        #[test]
        fn an_echo_is_what_came(steps in prop::collection::vec((0usize..300, 0usize..300), 1..40)) {
            let texts = Texts { all: &[], leave: &continue_answer() };
            let mut store = Store::new(64);
            let mut script = OutputScript::default();
            let (mut model, mut byte) = (Vec::new(), 0u8);
            for (n, acked) in steps {
                let bytes: Vec<u8> = (0..n).map(|_| { byte = byte.wrapping_add(7); byte }).collect();
                prop_assert_eq!(script.echo(&bytes, &mut store), n);
                model.extend_from_slice(&bytes);
                let acked = acked.min(model.len());
                script.acknowledged(acked as u32, &mut store);
                model.drain(..acked);
                let mut out = vec![0; model.len()];
                script.write(0, &mut out, &texts, &store);
                prop_assert_eq!(&out, &model);
                prop_assert_eq!(script.is_empty(), model.is_empty());
            }
            script.clear(&mut store);
            prop_assert_eq!(store.free_bytes(), 256 << 20);
        }
    }
}
