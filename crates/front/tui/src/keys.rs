//! Decodes bytes from a terminal as keys.

/// A key that the screen knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A character.
    Char(char),
    /// To the next page.
    Tab,
    /// To the previous page.
    BackTab,
    /// A line up.
    Up,
    /// A line down.
    Down,
    /// A screen up.
    PageUp,
    /// A screen down.
    PageDown,
    /// The escape key alone.
    Escape,
}

/// Decodes keys from bytes, which may arrive in pieces.
#[derive(Debug, Default)]
pub struct Keys {
    /// The beginning of an incomplete sequence.
    begun: Vec<u8>,
}

/// Maximum length of a sequence, in bytes (exclusive).
const LONGEST: usize = 16;

impl Keys {
    /// Returns the keys in these bytes, together with the earlier ones. Unknown sequences are skipped.
    pub fn read(&mut self, bytes: &[u8]) -> Vec<Key> {
        let mut keys = Vec::new();
        for byte in bytes {
            self.begun.push(*byte);
            match self.begun.as_slice() {
                [0x1b] => continue,
                [0x1b, b'[' | b'O'] => continue,
                // A sequence ends with a byte of this range.
                [0x1b, b'[' | b'O', parameters @ .., last] => {
                    if !(0x40..=0x7e).contains(last) && self.begun.len() < LONGEST {
                        continue;
                    }
                    keys.extend(match (parameters, last) {
                        ([], b'A') => Some(Key::Up),
                        ([], b'B') => Some(Key::Down),
                        ([], b'Z') => Some(Key::BackTab),
                        (b"5", b'~') => Some(Key::PageUp),
                        (b"6", b'~') => Some(Key::PageDown),
                        _ => None,
                    });
                }
                // Two keys in quick succession.
                [0x1b, other] => {
                    let other = *other;
                    self.begun.clear();
                    keys.push(Key::Escape);
                    keys.extend(self.read(&[other]));
                    continue;
                }
                [b'\t'] => keys.push(Key::Tab),
                [byte] if byte.is_ascii_graphic() || *byte == b' ' => {
                    keys.push(Key::Char(char::from(*byte)));
                }
                _ => {}
            }
            self.begun.clear();
        }
        keys
    }

    /// Called when no more bytes came for a moment: returns a single escape as a key.
    pub fn rest(&mut self) -> Option<Key> {
        let begun = std::mem::take(&mut self.begun);
        (begun == [0x1b]).then_some(Key::Escape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_one_key_also_in_pieces() {
        let mut keys = Keys::default();
        assert_eq!(
            keys.read(b"q\t\x1b[A\x1b[6~\x1bOB\x1b[Z"),
            [
                Key::Char('q'),
                Key::Tab,
                Key::Up,
                Key::PageDown,
                Key::Down,
                Key::BackTab
            ]
        );
        assert_eq!(keys.read(b"\x1b"), []);
        assert_eq!(keys.read(b"["), []);
        assert_eq!(keys.read(b"B1"), [Key::Down, Key::Char('1')]);
        assert_eq!(keys.rest(), None);
        assert_eq!(keys.read(b"\x1bp"), [Key::Escape, Key::Char('p')]);
        assert_eq!(keys.read(b"\x1b"), []);
        assert_eq!(keys.rest(), Some(Key::Escape));
    }

    #[test]
    fn what_is_no_key_is_passed_over() {
        let mut keys = Keys::default();
        // An unknown sequence, UTF-8, an escape sequence without an end.
        assert_eq!(
            keys.read("\x1b[1;5Cé\x1b[0123456789012345q".as_bytes())
                .last(),
            Some(&Key::Char('q'))
        );
        assert_eq!(keys.rest(), None);
    }
}
