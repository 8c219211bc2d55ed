//! Small messages: passphrase, calibration, system description, debugging.

use crate::error::AnswerError;
use crate::framer::Generation;
use crate::request::{CPU_CALIBRATE, DEBUG_OK, SYSTEM_RESPONSE};
use crate::words::{WordWriter, Words};

/// A passphrase. It travels in clear text, and [`Debug`] never shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Passphrase(Vec<u8>);

impl Passphrase {
    /// Maximum length in bytes. Peers with messages of 256 bytes accept 247.
    pub const MAX_LEN: usize = 647;

    /// Creates a passphrase. Returns `None` if it is too long or contains a zero byte.
    pub fn new(text: &[u8]) -> Option<Self> {
        (text.len() <= Self::MAX_LEN && !text.contains(&0)).then(|| Self(text.to_vec()))
    }

    pub(crate) fn read(words: Words<'_>) -> Self {
        // The text of a message without a zero byte exceeds `MAX_LEN` by one.
        let text = words.text(8);
        Self(text[..text.len().min(words.generation.len() - 9)].to_vec())
    }

    /// Returns the passphrase in clear text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Compares with the expected passphrase. The time does not depend on which bytes of a wrong one differ.
    pub fn matches(&self, expected: &[u8]) -> bool {
        let differences = self
            .0
            .iter()
            .zip(expected)
            .fold(0, |differences, (a, b)| differences | (a ^ b));
        self.0.len() == expected.len() && std::hint::black_box(differences) == 0
    }
}

impl std::fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Passphrase(..)")
    }
}

/// Response to a calibration request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// Clock ticks per second on Linux: 100.
    pub rate: f32,
    /// Number of CPUs.
    pub cpus: u32,
}

impl Calibration {
    /// Reads a message of either generation.
    ///
    /// # Errors
    /// The server refused, or no generation has messages of this length.
    pub fn parse(message: &[u8]) -> Result<Self, AnswerError> {
        let words = Words::answer(message)?;
        Ok(Self {
            rate: words.float(2),
            cpus: words.unsigned(3),
        })
    }

    /// Encodes the message.
    pub fn encode(&self, generation: Generation) -> Vec<u8> {
        let mut writer = WordWriter::new(generation, CPU_CALIBRATE, 0);
        writer.float(2, self.rate).unsigned(3, self.cpus);
        writer.finish()
    }
}

/// Response to a system request: texts, separated by the first byte. Since 2.7.0 each of the four (name, release,
/// version, machine) is "Deprecated".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemText(Vec<u8>);

impl SystemText {
    /// Returns the text of every server since 2.7.0.
    pub fn deprecated() -> Self {
        Self(b",Deprecated,Deprecated,Deprecated,Deprecated".to_vec())
    }

    /// Reads a message of either generation.
    ///
    /// # Errors
    /// The server refused, or no generation has messages of this length.
    pub fn parse(message: &[u8]) -> Result<Self, AnswerError> {
        Ok(Self(Words::answer(message)?.text(8).to_vec()))
    }

    /// Encodes the message.
    pub fn encode(&self, generation: Generation) -> Vec<u8> {
        let mut writer = WordWriter::new(generation, SYSTEM_RESPONSE, 0);
        writer.bytes(8, &self.0[..self.0.len().min(generation.len() - 8)]);
        writer.finish()
    }

    /// Returns the texts in their order.
    pub fn texts(&self) -> impl Iterator<Item = String> {
        let separator = self.0.first().copied();
        self.0
            .get(1..)
            .filter(|rest| !rest.is_empty())
            .map(|rest| rest.split(move |byte| Some(*byte) == separator))
            .into_iter()
            .flatten()
            .map(|text| String::from_utf8_lossy(text).into_owned())
    }
}

/// Encodes the response to both debugging requests.
pub fn debug_ok(generation: Generation) -> Vec<u8> {
    WordWriter::new(generation, DEBUG_OK, 0).finish()
}
