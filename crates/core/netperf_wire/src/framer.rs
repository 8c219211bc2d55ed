//! Splits a byte stream into messages.

/// Length of the messages, which depends on the age of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Generation {
    /// 256 bytes: netperf up to 2.5.0.
    Words64,
    /// 656 bytes: netperf from 2.6.0 on, and this implementation.
    Words164,
}

impl Generation {
    /// Length of a message, in bytes.
    #[expect(clippy::len_without_is_empty, reason = "no message is empty")]
    pub const fn len(self) -> usize {
        match self {
            Self::Words64 => 256,
            Self::Words164 => 656,
        }
    }

    /// Returns the generation with messages of this length.
    pub fn of_len(len: usize) -> Option<Self> {
        [Self::Words64, Self::Words164]
            .into_iter()
            .find(|generation| generation.len() == len)
    }
}

/// Collects received bytes until messages are complete.
///
/// Call [`push`](Self::push) with received bytes, then take messages until there is none: so the framer never holds
/// more than one read and a part of a message. It has no clock: a server that sees [`may_be_old`](Self::may_be_old)
/// waits 200 ms for more bytes, and calls [`switch`](Self::switch) if none arrive.
#[derive(Clone, Debug)]
pub struct Framer {
    generation: Generation,
    waiting: Vec<u8>,
    /// True once the generation is known, from the first message on.
    is_decided: bool,
}

impl Framer {
    /// Creates a framer for messages of this generation. Current peers use [`Generation::Words164`].
    pub fn new(generation: Generation) -> Self {
        Self {
            generation,
            waiting: Vec::new(),
            is_decided: false,
        }
    }

    /// Expected generation.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Number of bytes of an incomplete message.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns true between two messages, so that the connection may end here.
    pub fn is_at_boundary(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns true if the waiting bytes could be complete messages of 256 bytes: no message has arrived yet, and
    /// exactly 256 bytes wait, or 512 if the first message was a passphrase.
    pub fn may_be_old(&self) -> bool {
        let old = Generation::Words64.len();
        self.generation == Generation::Words164
            && !self.is_decided
            && !self.waiting.is_empty()
            && self.waiting.len() < self.generation.len()
            && self.waiting.len().is_multiple_of(old)
    }

    /// Sets the generation of all further messages, including bytes that wait already.
    pub fn switch(&mut self, generation: Generation) {
        self.generation = generation;
        self.is_decided = true;
    }

    /// Adds received bytes, of any length.
    pub fn push(&mut self, bytes: &[u8]) {
        self.waiting.extend_from_slice(bytes);
    }

    /// Takes the next complete message.
    pub fn next_message(&mut self) -> Option<Vec<u8>> {
        let len = self.generation.len();
        if self.waiting.len() < len {
            return None;
        }
        self.is_decided = true;
        let rest = self.waiting.split_off(len);
        Some(std::mem::replace(&mut self.waiting, rest))
    }
}
