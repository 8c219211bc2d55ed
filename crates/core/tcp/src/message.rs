//! Message contents, created once and shared by all connections.

use wb_wire::checksum;

use crate::outstanding::NUMBER_LEN;

/// Maximum payload of one segment.
pub(crate) const LONGEST_PAYLOAD: usize = 9000;

/// Message: a head, followed by a filler that repeats up to the full length.
///
/// The checksum sum of any part is computed from two stored values.
#[derive(Clone, Debug)]
pub struct Message {
    text: Box<[u8]>,
    /// Sum of the first 2·i bytes as 16-bit words.
    sums: Box<[u32]>,
    len: u32,
    /// Start of the filler; `period` is its length before it repeats.
    head: u32,
    period: u32,
}

/// Filler of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filler {
    /// One repeated byte.
    Letter(u8),
    /// Letters a to z from a seed, repeated after 4,096 bytes.
    Random(u64),
}

impl Message {
    /// Creates a message of `len` bytes: `head`, then filler. A longer head is truncated.
    pub fn new(head: &[u8], len: u32, filler: Filler) -> Self {
        let head = &head[..head.len().min(len as usize)];
        let mut random = match filler {
            Filler::Letter(_) => 0,
            Filler::Random(seed) => seed,
        };
        let pattern: Vec<u8> = match filler {
            Filler::Letter(letter) => vec![letter; 2],
            Filler::Random(_) => (0..4096)
                .map(|_| {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    b'a' + ((random >> 33) % 26) as u8
                })
                .collect(),
        };
        Self::from_parts(head, &pattern, len)
    }

    /// Creates a message of exactly these bytes.
    pub fn bytes(bytes: &[u8]) -> Self {
        Self::from_parts(bytes, b"aa", u32::try_from(bytes.len()).unwrap_or(u32::MAX))
    }

    /// Creates a message of `len` bytes that repeats `pattern`. If the pattern is as long as a segment, all segments
    /// carry the same bytes.
    pub fn repeated(pattern: &[u8], len: u32) -> Self {
        if pattern.is_empty() {
            return Self::new(&[], len, Filler::Letter(b'a'));
        }
        Self::from_parts(&[], pattern, len)
    }

    fn from_parts(head: &[u8], pattern: &[u8], len: u32) -> Self {
        let kept = (head.len() + pattern.len() + LONGEST_PAYLOAD).min(len as usize);
        let text: Box<[u8]> = head
            .iter()
            .chain(pattern.iter().cycle())
            .take(kept)
            .copied()
            .collect();
        let mut total = 0;
        let mut sums = vec![0];
        for pair in text.chunks_exact(2) {
            total += u32::from(u16::from_be_bytes([pair[0], pair[1]]));
            sums.push(total);
        }
        Self {
            text,
            sums: sums.into_boxed_slice(),
            len,
            head: head.len() as u32,
            period: pattern.len() as u32,
        }
    }

    /// Length of the complete message in bytes.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns true if the message has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Length of the head of an HTTP message including the empty line; the full length if there is none.
    pub(crate) fn head_len(&self) -> u32 {
        let end = self.text.windows(4).position(|four| four == b"\r\n\r\n");
        end.map_or(self.len, |at| at as u32 + 4)
    }

    /// Start of the message: the head and some of the filler.
    pub(crate) fn beginning(&self) -> &[u8] {
        &self.text
    }

    /// Fills `out`, at most [`LONGEST_PAYLOAD`] bytes, with the bytes from `offset` on, and returns their sum.
    #[inline]
    pub(crate) fn write(&self, offset: u32, out: &mut [u8]) -> u64 {
        let from = if offset < self.head + self.period {
            offset
        } else {
            self.head + (offset - self.head) % self.period
        } as usize;
        let to = from + out.len();
        out.copy_from_slice(&self.text[from..to]);
        self.sum(from, to)
    }

    /// Fills `out` with the start of the message, but with `first` in place of its first bytes. Returns the sum.
    #[inline(always)]
    pub(crate) fn write_after(&self, first: &[u8; NUMBER_LEN], out: &mut [u8]) -> u64 {
        out[..NUMBER_LEN].copy_from_slice(first);
        checksum::partial(first) + self.write(NUMBER_LEN as u32, &mut out[NUMBER_LEN..])
    }

    #[inline]
    fn sum(&self, from: usize, to: usize) -> u64 {
        if from == to {
            return 0;
        }
        if from % 2 == 1 {
            // Bytes at odd offsets are low halves here but high halves in the output.
            let first = u64::from(self.text[from]);
            if from + 1 == to {
                return first << 8;
            }
            let rest = self.sum(from + 1, to);
            return u64::from(checksum::fold(first + rest).swap_bytes());
        }
        let words = u64::from(self.sums[to / 2].wrapping_sub(self.sums[from / 2]));
        let last = if to % 2 == 1 {
            u64::from(self.text[to - 1]) << 8
        } else {
            0
        };
        words + last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_make_the_whole_and_sums_are_right(
            head in prop::collection::vec(any::<u8>(), 0..300),
            len in 0u32..30_000,
            seed: Option<u64>,
            at in 0u32..30_000,
            piece in 0u32..1500,
        ) {
            let filler = seed.map_or(Filler::Letter(b'x'), Filler::Random);
            let message = Message::new(&head, len, filler);
            prop_assert_eq!(message.len(), len);
            let at = at.min(len);
            let mut out = vec![0; piece.min(len - at) as usize];
            let sum = message.write(at, &mut out);
            prop_assert_eq!(checksum::fold(sum) % 0xffff, checksum::fold(checksum::sum(&out)) % 0xffff);
            for (i, byte) in out.iter().enumerate() {
                let i = at as usize + i;
                if i < head.len() {
                    prop_assert_eq!(*byte, head[i]);
                }
            }
        }
    }

    #[test]
    fn a_pattern_repeats_in_every_segment() {
        let message = Message::repeated(b"HTTP/1.1 200", 12 * 3000);
        let mut out = [0; 12];
        message.write(12 * 2999, &mut out);
        assert_eq!(&out, b"HTTP/1.1 200");
    }
}
