//! How a written line falls apart into a command name and its argument.
//!
//! Knows no command. One write is one command: whatever follows the argument is never looked at.

/// A place in the bytes of one write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scanner<'a> {
    rest: &'a [u8],
}

/// Whether `byte` stands between words.
const fn separates(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'"' | b'=')
}

impl<'a> Scanner<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What has not been read.
    pub(crate) const fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// Passes over separators.
    pub(crate) fn skip(&mut self) {
        let n = self.rest.iter().take_while(|b| separates(**b)).count();
        self.rest = &self.rest[n..];
    }

    /// Passes over one byte and gives it.
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// The characters up to a separator, `most` of them at most.
    ///
    /// A NUL ends the text but not the reading: C programs write the terminator of their string
    /// along with it.
    pub(crate) fn word(&mut self, most: usize) -> Vec<u8> {
        let n = self
            .rest
            .iter()
            .take(most)
            .take_while(|b| !separates(**b))
            .count();
        let (taken, rest) = self.rest.split_at(n);
        self.rest = rest;
        taken.iter().copied().take_while(|b| *b != 0).collect()
    }

    /// Up to `digits` decimal digits; none is 0.
    pub(crate) fn decimal(&mut self, digits: usize) -> u64 {
        let n = self
            .rest
            .iter()
            .take(digits)
            .take_while(|b| b.is_ascii_digit())
            .count();
        let (taken, rest) = self.rest.split_at(n);
        self.rest = rest;
        taken.iter().fold(0, |value: u64, b| {
            value.saturating_mul(10).saturating_add(u64::from(b - b'0'))
        })
    }

    /// Up to `digits` hexadecimal digits (at most 8) of either case, and how many there were.
    pub(crate) fn hexadecimal(&mut self, digits: usize) -> (u32, usize) {
        let mut value = 0;
        let mut n = 0;
        while let Some(digit) = self.rest.get(n).and_then(|b| char::from(*b).to_digit(16)) {
            if n == digits {
                break;
            }
            value = value << 4 | digit;
            n += 1;
        }
        self.rest = &self.rest[n..];
        (value, n)
    }
}

/// Bytes of a foreign writer as text, one character for each byte, so that nothing is lost before
/// [`bytes`] gives them back.
pub(crate) fn text(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

/// The bytes that [`text`] was made of; every character is below 256.
pub(crate) fn bytes(text: &str) -> Vec<u8> {
    text.chars().map(|c| c as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_numbers() {
        let mut s = Scanner::new(b" \"=min_pkt_size = 4004 x");
        s.skip();
        assert_eq!(s.word(15), b"min_pkt_size");
        s.skip();
        assert_eq!(s.decimal(10), 4004);
        assert_eq!(Scanner::new(b"-5").decimal(10), 0);
        assert_eq!(Scanner::new(b"12345").decimal(3), 123);
        assert_eq!(Scanner::new(b"0x40").decimal(10), 0);
        assert_eq!(Scanner::new(b"fF0g").hexadecimal(8), (0xff0, 3));
        assert_eq!(Scanner::new(b"0ff").hexadecimal(2), (0x0f, 2));
        assert_eq!(Scanner::new(b"stop\0junk x").word(39), b"stop");
        assert_eq!(
            Scanner::new(b"forsurewrongcommand 1").word(15),
            b"forsurewrongcom"
        );
    }
}
