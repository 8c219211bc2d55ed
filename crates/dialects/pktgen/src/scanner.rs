//! Lexer: splits a written line into a command name and its argument.
//!
//! Knows no command. One write is one command; everything after the argument is ignored.

/// Position in the bytes of one write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scanner<'a> {
    rest: &'a [u8],
}

/// Returns true if `byte` separates words.
const fn is_separator(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'"' | b'=')
}

impl<'a> Scanner<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Unread bytes.
    pub(crate) const fn unread_bytes(self) -> &'a [u8] {
        self.rest
    }

    /// Skips separators.
    pub(crate) fn skip_separators(&mut self) {
        let n = self.rest.iter().take_while(|b| is_separator(**b)).count();
        self.rest = &self.rest[n..];
    }

    /// Reads one byte.
    pub(crate) fn read_byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// Reads at most `most` characters up to a separator.
    ///
    /// A NUL ends the word, but reading continues up to the separator: C programs write the terminator of a string
    /// along with the text.
    pub(crate) fn read_word(&mut self, most: usize) -> Vec<u8> {
        let n = self
            .rest
            .iter()
            .take(most)
            .take_while(|b| !is_separator(**b))
            .count();
        let (taken, rest) = self.rest.split_at(n);
        self.rest = rest;
        taken.iter().copied().take_while(|b| *b != 0).collect()
    }

    /// Reads at most `digits` decimal digits; no digit means 0.
    pub(crate) fn read_decimal(&mut self, digits: usize) -> u64 {
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

    /// Reads at most `digits` hexadecimal digits (8 or fewer) of either case. Returns the value and the number of
    /// digits.
    pub(crate) fn read_hexadecimal(&mut self, digits: usize) -> (u32, usize) {
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

/// Converts external bytes to text, one character per byte, so that [`text_to_bytes`] can restore
/// them.
pub(crate) fn bytes_to_text(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

/// Restores the bytes from the result of [`bytes_to_text`], in which every character is below 256.
pub(crate) fn text_to_bytes(text: &str) -> Vec<u8> {
    text.chars().map(|c| c as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_numbers() {
        let mut s = Scanner::new(b" \"=min_pkt_size = 4004 x");
        s.skip_separators();
        assert_eq!(s.read_word(15), b"min_pkt_size");
        s.skip_separators();
        assert_eq!(s.read_decimal(10), 4004);
        assert_eq!(Scanner::new(b"-5").read_decimal(10), 0);
        assert_eq!(Scanner::new(b"12345").read_decimal(3), 123);
        assert_eq!(Scanner::new(b"0x40").read_decimal(10), 0);
        assert_eq!(Scanner::new(b"fF0g").read_hexadecimal(8), (0xff0, 3));
        assert_eq!(Scanner::new(b"0ff").read_hexadecimal(2), (0x0f, 2));
        assert_eq!(Scanner::new(b"stop\0junk x").read_word(39), b"stop");
        assert_eq!(
            Scanner::new(b"forsurewrongcommand 1").read_word(15),
            b"forsurewrongcom"
        );
    }
}
