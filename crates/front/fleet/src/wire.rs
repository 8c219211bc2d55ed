//! Messages as bytes: JSON, compressed if it is long, in pieces if it is longer than a message of the broker may be.

use std::io::{self, Read as _};

use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Serialize, de::DeserializeOwned};

/// Subject on which a controller asks all agents for their registrations.
pub(crate) const WHO: &str = "wb.v1.who";
/// Begin of the subject of a registration; the host follows.
pub(crate) const AGENT: &str = "wb.v1.agent.";

/// Size from which on a message is compressed, in bytes.
const LONG: usize = 4096;
/// Level of the compression.
const LEVEL: i32 = 3;
/// First bytes of compressed data (RFC 8878 section 3.1.1).
const MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();
/// Maximum size of a share after decompression, in bytes.
const LARGEST: u64 = 256 << 20;
/// Maximum size of a plan or of a snapshot after decompression, in bytes.
const LARGE: u64 = 64 << 20;
/// Maximum size of all other messages of agents after decompression, in bytes.
const SHORT: u64 = 1 << 20;
/// Maximum size of a piece in bytes: brokers take messages of 1 MiB.
const PIECE: usize = 900_000;
/// Maximum number of pieces of a message.
const MOST_PIECES: usize = 256;

/// A message as bytes.
pub(crate) fn write<T: Serialize>(message: &T) -> Vec<u8> {
    // The messages have no keys that JSON cannot have.
    let text = serde_json::to_vec(message).unwrap_or_default();
    match text.len() < LONG {
        true => text,
        false => zstd::encode_all(text.as_slice(), LEVEL).unwrap_or(text),
    }
}

/// Reads a message that may have a plan or a snapshot.
///
/// # Errors
/// A sentence, if the bytes are no message of this kind, or too long.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    read_within(LARGE, bytes)
}

/// Reads a message about an agent itself. A few bytes may be many after decompression, so the limit is low.
///
/// # Errors
/// A sentence, if the bytes are no message of this kind, or too long.
pub(crate) fn read_short<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    read_within(SHORT, bytes)
}

/// Reads the results of a host, put together from their pieces.
///
/// # Errors
/// A sentence, if the bytes are no message of this kind, or too long.
pub(crate) fn read_whole<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    read_within(LARGEST, bytes)
}

fn read_within<T: DeserializeOwned>(limit: u64, bytes: &[u8]) -> Result<T, String> {
    let unreadable = |why: &dyn std::fmt::Display| format!("unreadable message: {why}");
    if !bytes.starts_with(&MAGIC) {
        return serde_json::from_slice(bytes).map_err(|e| unreadable(&e));
    }
    let decoder = zstd::Decoder::new(bytes).map_err(|e| unreadable(&e))?;
    let mut text = Vec::new();
    let read = decoder.take(limit + 1).read_to_end(&mut text);
    read.map_err(|e| unreadable(&e))?;
    if text.len() as u64 > limit {
        return Err(unreadable(&"too long"));
    }
    serde_json::from_slice(&text).map_err(|e| unreadable(&e))
}

/// Cuts a message into pieces that the broker takes.
pub(crate) fn pieces(message: &[u8]) -> Vec<Vec<u8>> {
    let all = message.chunks(PIECE);
    let of = all.len();
    let piece = |(n, content): (usize, &[u8])| {
        let mut piece = format!("{n}/{of}\n").into_bytes();
        piece.extend_from_slice(content);
        piece
    };
    all.enumerate().map(piece).collect()
}

/// Pieces of one message that have arrived.
#[derive(Debug, Default)]
pub(crate) struct Pieces(Vec<Option<Vec<u8>>>);

impl Pieces {
    /// Adds a piece. Returns the message once it is whole.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let end = bytes.iter().take(16).position(|b| *b == b'\n')?;
        let (n, of) = std::str::from_utf8(&bytes[..end]).ok()?.split_once('/')?;
        let (n, of): (usize, usize) = (n.parse().ok()?, of.parse().ok()?);
        if n >= of || of > MOST_PIECES {
            return None;
        }
        if self.0.len() != of {
            self.0 = vec![None; of];
        }
        self.0[n] = Some(bytes[end + 1..].to_vec());
        let whole: Option<Vec<&[u8]>> = self.0.iter().map(Option::as_deref).collect();
        whole.map(|pieces| pieces.concat())
    }
}

/// Returns true if a stream of the broker has acknowledged a message.
pub(crate) fn is_acknowledgement(content: &[u8]) -> bool {
    // An error names the stream, too.
    #[derive(serde::Deserialize)]
    struct Acknowledgement {
        #[serde(default)]
        stream: String,
        #[serde(default)]
        seq: u64,
        error: Option<serde::de::IgnoredAny>,
    }
    let is_stored =
        |ack: Acknowledgement| !ack.stream.is_empty() && ack.seq > 0 && ack.error.is_none();
    serde_json::from_slice(content).is_ok_and(is_stored)
}

/// Offset that tests add to the clock of an agent, in ns, from `WB_TEST_CLOCK_OFFSET`.
pub(crate) fn test_offset_ns() -> Option<i64> {
    std::env::var("WB_TEST_CLOCK_OFFSET").ok()?.parse().ok()
}

/// A random word of 16 hex digits.
///
/// # Errors
/// If the system has no random bytes.
pub(crate) fn random_id() -> io::Result<String> {
    random_hex::<8>()
}

/// Hex digits of `N` random bytes.
///
/// # Errors
/// If the system has no random bytes.
pub(crate) fn random_hex<const N: usize>() -> io::Result<String> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| io::Error::other("the system has no random bytes"))?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_compressed_and_cut() {
        let short = vec!["frame"; 3];
        assert_eq!(write(&short), serde_json::to_vec(&short).unwrap());
        let long: Vec<u32> = (0..2_000_000)
            .map(|n: u32| n.wrapping_mul(2_654_435_761))
            .collect();
        let bytes = write(&long);
        assert!(bytes.starts_with(&MAGIC));
        let cut = pieces(&bytes);
        assert!(cut.len() > 1 && cut.iter().all(|piece| piece.len() <= PIECE + 16));
        let mut all = Pieces::default();
        let mut arrived: Vec<_> = cut
            .iter()
            .rev()
            .filter_map(|piece| all.add(piece))
            .collect();
        let whole = arrived.pop().expect("the last piece completes it");
        assert_eq!(read::<Vec<u32>>(&whole).unwrap(), long);
        for wrong in [&b"5/5\nx"[..], b"x", b"0/9999\n", b"\n", b""] {
            assert_eq!(Pieces::default().add(wrong), None);
        }
        assert!(read::<Vec<u32>>(&bytes[..100]).is_err());
        assert!(read::<Vec<u32>>(b"{").is_err());
    }

    #[test]
    fn a_few_bytes_do_not_become_many() {
        let blank = " ".repeat(SHORT as usize);
        let of = |text: String| zstd::encode_all(text.as_bytes(), LEVEL).unwrap();
        let (fits, long) = (of(format!("[]{}", &blank[2..])), of(format!("[]{blank}")));
        assert!(long.len() < 1000);
        assert_eq!(read_short::<Vec<u32>>(&fits), Ok(Vec::new()));
        let refused = Err("unreadable message: too long".to_owned());
        assert_eq!(read_short::<Vec<u32>>(&long), refused);
        assert_eq!(read::<Vec<u32>>(&long), Ok(Vec::new()));
    }

    #[test]
    fn only_a_stream_acknowledges() {
        assert!(is_acknowledgement(br#"{"stream":"WB_SHARES","seq":4}"#));
        assert!(is_acknowledgement(
            br#"{"stream":"WB_SHARES","seq":4,"duplicate":true}"#
        ));
        for refused in [
            &br#"{"error":{"code":503}}"#[..],
            br#"{"error":{"code":503,"err_code":10077},"stream":"WB_SHARES","seq":0}"#,
            br#"{"stream":"WB_SHARES","seq":0}"#,
        ] {
            assert!(!is_acknowledgement(refused));
        }
        assert!(!is_acknowledgement(b""));
    }
}
