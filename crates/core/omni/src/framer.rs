//! Cuts a stream of bytes into messages.

/// The length of messages, which tells how old a peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Generation {
    /// 256 bytes: netperf up to 2.5.0.
    Words64,
    /// 656 bytes: netperf from 2.6.0 on, and ours.
    Words164,
}

impl Generation {
    /// Bytes of a message.
    #[expect(clippy::len_without_is_empty, reason = "no message is empty")]
    pub const fn len(self) -> usize {
        match self {
            Self::Words64 => 256,
            Self::Words164 => 656,
        }
    }

    /// The generation with messages of this length.
    pub fn of_len(len: usize) -> Option<Self> {
        [Self::Words64, Self::Words164]
            .into_iter()
            .find(|generation| generation.len() == len)
    }
}

/// Collects what arrives until messages are whole.
///
/// [`push`](Self::push) what was read, then take messages until there is none: so it holds never more
/// than one read and a part of a message. Keeps no time: a server that sees
/// [`may_be_old`](Self::may_be_old) waits 200 ms for more, and if nothing comes calls
/// [`switch`](Self::switch).
#[derive(Clone, Debug)]
pub struct Framer {
    generation: Generation,
    waiting: Vec<u8>,
    /// The first message decides; afterwards the generation is known.
    is_decided: bool,
}

impl Framer {
    /// Expects messages of this generation. Peers of today have [`Generation::Words164`].
    pub fn new(generation: Generation) -> Self {
        Self {
            generation,
            waiting: Vec::new(),
            is_decided: false,
        }
    }

    /// The generation that is expected.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Bytes that do not make a message yet.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether an end of the connection now would be between two messages.
    pub fn is_at_boundary(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether what waits could be all that a peer with messages of 256 bytes has sent so far: no
    /// message came yet, and exactly 256 bytes wait, or 512 if the first was a passphrase.
    pub fn may_be_old(&self) -> bool {
        let old = Generation::Words64.len();
        self.generation == Generation::Words164
            && !self.is_decided
            && !self.waiting.is_empty()
            && self.waiting.len() < self.generation.len()
            && self.waiting.len().is_multiple_of(old)
    }

    /// From now on messages are of this generation, also what waits already.
    pub fn switch(&mut self, generation: Generation) {
        self.generation = generation;
        self.is_decided = true;
    }

    /// Takes what was read, of any length.
    pub fn push(&mut self, bytes: &[u8]) {
        self.waiting.extend_from_slice(bytes);
    }

    /// The next whole message.
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
