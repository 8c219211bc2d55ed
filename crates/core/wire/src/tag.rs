//! Test tag: identifies our frames to the receiver, directly behind the last header.
//!
//! | offset | field, big endian |
//! |---|---|
//! | 0 | u16 magic, low 4 bits = version |
//! | 2 | u32 flow |
//! | 6 | u32 sequence of the flow |
//! | 10 | u64 wall clock, ns since 1970 |
//!
//! The receiver also recognises the 16-byte tag of the kernel's pktgen.

/// Tag of wirebench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Flow number, which includes the stream.
    pub flow: u32,
    /// Low 32 bits of the sequence number in the flow.
    pub sequence: u32,
    /// Send time, ns since 1970.
    pub time_ns: u64,
}

impl Tag {
    /// Length of the tag in bytes.
    pub const LEN: usize = 18;
    /// Magic and version 1. The first half byte is neither 4 nor 6. Behind an MPLS label only this half byte shows what
    /// follows, so the tag does not look like an IP header.
    pub const MAGIC: u16 = 0xb5e1;

    /// Writes the complete tag.
    #[inline]
    pub fn write(&self, buf: &mut [u8; Self::LEN]) {
        buf[0..2].copy_from_slice(&Self::MAGIC.to_be_bytes());
        buf[2..6].copy_from_slice(&self.flow.to_be_bytes());
        Self::write_seq_time(buf, self.sequence, self.time_ns);
    }

    /// Writes the fields that change from frame to frame into an existing tag.
    #[inline]
    pub fn write_seq_time(buf: &mut [u8; Self::LEN], sequence: u32, time_ns: u64) {
        buf[6..10].copy_from_slice(&sequence.to_be_bytes());
        buf[10..18].copy_from_slice(&time_ns.to_be_bytes());
    }

    /// Reads the tag at the start of `bytes`, if present.
    #[inline]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let &[m0, m1, f0, f1, f2, f3, s0, s1, s2, s3, ref time @ ..] =
            bytes.first_chunk::<{ Self::LEN }>()?;
        (u16::from_be_bytes([m0, m1]) == Self::MAGIC).then_some(Self {
            flow: u32::from_be_bytes([f0, f1, f2, f3]),
            sequence: u32::from_be_bytes([s0, s1, s2, s3]),
            time_ns: u64::from_be_bytes(*time),
        })
    }
}

/// Tag of pktgen: magic, sequence number, and two time words in one of two forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PktgenTag {
    /// Sequence number, from 1.
    pub sequence: u32,
    /// Time words as in the frame.
    pub time: [u32; 2],
}

/// Meaning of the time words of a pktgen tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PktgenTime {
    /// Both words are zero: sent without a time.
    None,
    /// Kernel form: wall clock, ns since 1970, in steps of a microsecond.
    Wall(u64),
    /// OSTA form: CLOCK_MONOTONIC of the sender in ns.
    Monotonic(i64),
}

impl PktgenTag {
    /// Length of the tag in bytes.
    pub const LEN: usize = 16;
    /// pktgen.c: PKTGEN_MAGIC.
    pub const MAGIC: u32 = 0xbe9b_e955;

    /// Creates a tag in kernel form; the time is truncated to microseconds.
    pub const fn at(sequence: u32, wall_ns: u64) -> Self {
        Self {
            sequence,
            time: [
                (wall_ns / 1_000_000_000) as u32,
                (wall_ns % 1_000_000_000 / 1000) as u32,
            ],
        }
    }

    /// Writes the complete tag.
    #[inline]
    pub fn write(&self, buf: &mut [u8; Self::LEN]) {
        buf[0..4].copy_from_slice(&Self::MAGIC.to_be_bytes());
        buf[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        buf[8..12].copy_from_slice(&self.time[0].to_be_bytes());
        buf[12..16].copy_from_slice(&self.time[1].to_be_bytes());
    }

    /// Reads the tag at the start of `bytes`, if present.
    #[inline]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<{ Self::LEN }>()?;
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        (word(0) == Self::MAGIC).then(|| Self {
            sequence: word(4),
            time: [word(8), word(12)],
        })
    }

    /// Interprets the time words by a guess, because both forms share one magic. Kernel form if the second word can be
    /// microseconds and the first is within an hour of `now_wall_ns`, otherwise OSTA form.
    #[inline]
    pub fn guess_time(&self, now_wall_ns: u64) -> PktgenTime {
        let [high, low] = self.time;
        if high == 0 && low == 0 {
            return PktgenTime::None;
        }
        let now = now_wall_ns / 1_000_000_000;
        // Unsigned seconds wrap in 2106: measure the distance modulo 2^32.
        let distance = high.wrapping_sub(now as u32) as i32;
        if low < 1_000_000 && distance.unsigned_abs() <= 3600 {
            let seconds = now.wrapping_add_signed(i64::from(distance));
            return PktgenTime::Wall(
                seconds
                    .wrapping_mul(1_000_000_000)
                    .wrapping_add(u64::from(low) * 1000),
            );
        }
        PktgenTime::Monotonic((u64::from(high) << 32 | u64::from(low)) as i64)
    }
}

/// Kind of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagFormat {
    /// [`Tag`].
    Native,
    /// [`PktgenTag`].
    Pktgen,
}

impl TagFormat {
    /// Length of the tag in bytes.
    pub const fn len(self) -> usize {
        match self {
            Self::Native => Tag::LEN,
            Self::Pktgen => PktgenTag::LEN,
        }
    }

    /// Always false.
    pub const fn is_empty(self) -> bool {
        false
    }
}

/// Kind of the complete tag at `offset`, if any.
#[inline]
pub fn tag_at(frame: &[u8], offset: usize) -> Option<TagFormat> {
    let bytes = frame.get(offset..)?;
    let magic = u32::from_be_bytes(*bytes.first_chunk()?);
    if magic >> 16 == Tag::MAGIC as u32 && bytes.len() >= Tag::LEN {
        Some(TagFormat::Native)
    } else if magic == PktgenTag::MAGIC && bytes.len() >= PktgenTag::LEN {
        Some(TagFormat::Pktgen)
    } else {
        None
    }
}

/// Returns true if a complete tag of either kind is at `offset`. The receiver tries the last offset first.
#[inline]
pub fn is_tag_at(frame: &[u8], offset: usize) -> bool {
    tag_at(frame, offset).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_of_the_tag() {
        let mut buf = [0xee; 18];
        Tag {
            flow: 0x0102_0304,
            sequence: 0x0506_0708,
            time_ns: 0x090a_0b0c_0d0e_0f10,
        }
        .write(&mut buf);
        assert_eq!(
            buf,
            [
                0xb5, 0xe1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16
            ]
        );
        assert_eq!(Tag::read(&buf[..17]), None);
        buf[1] = 0xe2;
        assert_eq!(Tag::read(&buf), None, "another version is not ours to read");
    }

    #[test]
    fn pktgen_time_is_guessed() {
        let now = 1_700_000_000_123_456_000;
        let tag = PktgenTag::at(1, now);
        assert_eq!(tag.time, [0x6553_f100, 0x1e240]);
        assert_eq!(tag.guess_time(now), PktgenTime::Wall(now));
        assert_eq!(
            tag.guess_time(now + 3_599_000_000_000),
            PktgenTime::Wall(now)
        );
        assert!(matches!(
            tag.guess_time(now + 3_602_000_000_000),
            PktgenTime::Monotonic(_)
        ));
        let osta = PktgenTag {
            sequence: 1,
            time: [0x7048, 0x860d_df79],
        };
        assert_eq!(
            osta.guess_time(now),
            PktgenTime::Monotonic(123_456_789_012_345)
        );
        assert_eq!(
            PktgenTag {
                sequence: 1,
                time: [0, 0]
            }
            .guess_time(now),
            PktgenTime::None
        );
        // Half a minute after the seconds wrapped, with a frame from before.
        let wrap = (1 << 32) * 1_000_000_000;
        assert_eq!(
            PktgenTag::at(1, wrap - 2_000_000_000).guess_time(wrap + 28_000_000_000),
            PktgenTime::Wall(wrap - 2_000_000_000)
        );
    }

    #[test]
    fn a_cut_tag_is_none() {
        let mut frame = vec![0; 40];
        Tag {
            flow: 1,
            sequence: 2,
            time_ns: 3,
        }
        .write(frame[22..].first_chunk_mut().unwrap());
        assert_eq!(tag_at(&frame, 22), Some(TagFormat::Native));
        assert!(!is_tag_at(&frame[..39], 22));
        assert!(!is_tag_at(&frame, 21) && !is_tag_at(&frame, 40) && !is_tag_at(&frame, usize::MAX));
    }

    proptest! {
        #[test]
        fn write_then_read(flow: u32, sequence: u32, time_ns: u64, words: [u32; 2]) {
            let tag = Tag { flow, sequence, time_ns };
            let mut buf = [0; Tag::LEN];
            tag.write(&mut buf);
            prop_assert_eq!(Tag::read(&buf), Some(tag));
            Tag::write_seq_time(&mut buf, !sequence, !time_ns);
            prop_assert_eq!(Tag::read(&buf), Some(Tag { flow, sequence: !sequence, time_ns: !time_ns }));
            let tag = PktgenTag { sequence, time: words };
            let mut buf = [0; PktgenTag::LEN];
            tag.write(&mut buf);
            prop_assert_eq!(PktgenTag::read(&buf), Some(tag));
        }
    }
}
