//! Frame sizes, always with the 4-byte FCS: a single size, a range, or a weighted mix.

use std::{fmt, str::FromStr};

use super::{ParseUnitError, Rational, string_serde};

/// Frame size in bytes, FCS included, 64 to 16,384.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameSize(u32);

impl FrameSize {
    /// Minimum frame size of Ethernet (IEEE 802.3).
    pub const MIN: Self = Self(64);
    /// Maximum supported frame size: jumbo frames as NICs support them.
    pub const MAX: Self = Self(16_384);
    /// Length of the frame check sequence in bytes: part of every frame size, but not of lengths in memory.
    pub const FCS: u32 = 4;

    /// Creates a size, if it is in range.
    #[must_use]
    pub const fn new(size: u32) -> Option<Self> {
        if size >= Self::MIN.0 && size <= Self::MAX.0 {
            Some(Self(size))
        } else {
            None
        }
    }

    /// Size in bytes with FCS.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Length in memory or in a capture file, in bytes without FCS.
    #[must_use]
    pub const fn len_without_fcs(self) -> usize {
        (self.0 - Self::FCS) as usize
    }
}

impl FromStr for FrameSize {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        text.trim()
            .parse()
            .ok()
            .and_then(Self::new)
            .ok_or_else(|| ParseUnitError::new(text, "a frame size with FCS, 64 to 16384 bytes"))
    }
}

impl fmt::Display for FrameSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

string_serde!(
    FrameSize,
    "FrameSize",
    "a frame size in bytes with FCS, 64 to 16384",
    "64"
);

/// Sizes of a stream's frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SizeModel {
    /// Equal sizes.
    Fixed(FrameSize),
    /// Each size of the range once, alternating from both ends (64, 1500, 65, 1499 and so on), then again. Each pair
    /// has the mean of the range.
    Range(FrameSize, FrameSize),
    /// These sizes in order, then again from the first.
    Steps(Vec<FrameSize>),
    /// Sizes with weights: every sequence of as many frames as the sum of the weights has exactly these shares, in an
    /// order determined by the seed.
    Mix(Vec<(FrameSize, u32)>),
}

/// The simple Internet mix: 7 × 64, 4 × 570, 1 × 1518 bytes, mean 353.83 (RFC 6985 calls such a
/// list a genome).
pub const IMIX: [(u32, u32); 3] = [(64, 7), (570, 4), (1518, 1)];

/// Maximum sum of the weights of a mix.
pub const MAX_MIX_WEIGHT: u32 = 65_536;

impl SizeModel {
    /// The simple Internet mix, [`IMIX`].
    #[must_use]
    pub fn imix() -> Self {
        Self::Mix(
            IMIX.map(|(size, weight)| (FrameSize(size), weight))
                .to_vec(),
        )
    }

    /// Smallest size.
    #[must_use]
    pub fn smallest(&self) -> FrameSize {
        match self {
            Self::Fixed(s) | Self::Range(s, _) => *s,
            Self::Steps(list) => list.iter().copied().min().unwrap_or(FrameSize::MIN),
            Self::Mix(list) => list.iter().map(|e| e.0).min().unwrap_or(FrameSize::MIN),
        }
    }

    /// Largest size.
    #[must_use]
    pub fn largest(&self) -> FrameSize {
        match self {
            Self::Fixed(s) | Self::Range(_, s) => *s,
            Self::Steps(list) => list.iter().copied().max().unwrap_or(FrameSize::MIN),
            Self::Mix(list) => list.iter().map(|e| e.0).max().unwrap_or(FrameSize::MIN),
        }
    }

    /// Exact mean size over one period.
    #[must_use]
    pub fn mean(&self) -> Rational {
        let (num, den) = match self {
            Self::Fixed(s) => (u128::from(s.0), 1),
            Self::Range(a, b) => (u128::from(a.0) + u128::from(b.0), 2),
            Self::Steps(list) => {
                let sum = list.iter().map(|size| u128::from(size.0)).sum();
                (sum, list.len() as u128)
            }
            Self::Mix(list) => list.iter().fold((0, 0), |(n, d), (size, weight)| {
                (
                    n + u128::from(size.0) * u128::from(*weight),
                    d + u128::from(*weight),
                )
            }),
        };
        Rational::new(num, den).unwrap_or(Rational::whole(64))
    }
}

impl FromStr for SizeModel {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let error = || {
            ParseUnitError::new(
                text,
                "a frame size: 64 to 16384 with FCS, a range 64-1518, a sequence 64,128,256, imix, or weights 64:7,570:4,1518:1",
            )
        };
        let trimmed = text.trim();
        if trimmed.eq_ignore_ascii_case("imix") {
            return Ok(Self::imix());
        }
        if trimmed.contains(':') {
            let entries = trimmed.split(',').map(|entry| {
                let (size, weight) = entry.split_once(':').ok_or_else(error)?;
                let weight: u32 = weight.trim().parse().map_err(|_| error())?;
                if weight == 0 {
                    return Err(error());
                }
                Ok((size.parse().map_err(|_| error())?, weight))
            });
            let list: Vec<(FrameSize, u32)> = entries.collect::<Result<_, _>>()?;
            let total: u64 = list.iter().map(|e| u64::from(e.1)).sum();
            if total > u64::from(MAX_MIX_WEIGHT) {
                return Err(ParseUnitError::new(
                    text,
                    "a mix with a total weight of at most 65536",
                ));
            }
            return Ok(Self::Mix(list));
        }
        if trimmed.contains(',') {
            let sizes = trimmed.split(',').map(|size| size.trim().parse());
            let sizes: Vec<FrameSize> = sizes.collect::<Result<_, _>>().map_err(|_| error())?;
            return match sizes.len() <= MAX_MIX_WEIGHT as usize {
                true => Ok(Self::Steps(sizes)),
                false => Err(ParseUnitError::new(
                    text,
                    "a sequence of at most 65536 sizes",
                )),
            };
        }
        if let Some((a, b)) = trimmed.split_once('-') {
            let (a, b): (FrameSize, FrameSize) = (
                a.parse().map_err(|_| error())?,
                b.parse().map_err(|_| error())?,
            );
            if a > b {
                return Err(error());
            }
            return Ok(if a == b {
                Self::Fixed(a)
            } else {
                Self::Range(a, b)
            });
        }
        trimmed.parse().map(Self::Fixed).map_err(|_| error())
    }
}

/// Frame sizes of the letters of RFC 6985 section 3.
const GENOME: [(char, u32); 10] = [
    ('a', 64),
    ('b', 128),
    ('c', 256),
    ('d', 512),
    ('e', 1024),
    ('f', 1280),
    ('g', 1518),
    ('h', 2112),
    ('i', 9000),
    ('j', 16_000),
];

/// Frame sizes of a test: the notations of [`SizeModel`], or a genome of RFC 6985, `aaaaaaaddddg` or in short `7a4d1g`.
/// The genome determines the frequency of each size, and the seed determines the order, as the RFC allows.
///
/// # Errors
/// Returns an error if the text is neither.
pub fn parse_size(text: &str) -> Result<SizeModel, ParseUnitError> {
    let letters = text.trim_end().ends_with(|c: char| c.is_ascii_lowercase());
    if !letters || text.trim().eq_ignore_ascii_case("imix") {
        return text.parse();
    }
    let error = || {
        ParseUnitError::new(
            text,
            "a genome (RFC 6985): letters a to j, each after its number of repetitions (7a4d1g)",
        )
    };
    let mut list: Vec<(FrameSize, u32)> = Vec::new();
    let mut digits = String::new();
    for c in text.trim().chars() {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        let size = GENOME.iter().find(|(letter, _)| *letter == c);
        let size = size.and_then(|(_, size)| FrameSize::new(*size));
        let size = size.ok_or_else(error)?;
        let times = match digits.as_str() {
            "" => 1,
            n => n.parse().map_err(|_| error())?,
        };
        digits.clear();
        match list.iter_mut().find(|(known, _)| *known == size) {
            Some((_, weight)) => *weight = weight.checked_add(times).ok_or_else(error)?,
            None => list.push((size, times)),
        }
    }
    let total: u64 = list.iter().map(|(_, weight)| u64::from(*weight)).sum();
    let fits = total <= u64::from(MAX_MIX_WEIGHT) && list.iter().all(|(_, weight)| *weight > 0);
    fits.then_some(SizeModel::Mix(list)).ok_or_else(error)
}

impl fmt::Display for SizeModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(s) => s.fmt(f),
            Self::Range(a, b) => write!(f, "{a}-{b}"),
            Self::Steps(list) => {
                for (i, size) in list.iter().enumerate() {
                    write!(f, "{}{size}", if i == 0 { "" } else { "," })?;
                }
                Ok(())
            }
            Self::Mix(_) if *self == Self::imix() => f.write_str("imix"),
            Self::Mix(list) => {
                for (i, (size, weight)) in list.iter().enumerate() {
                    write!(f, "{}{size}:{weight}", if i == 0 { "" } else { "," })?;
                }
                Ok(())
            }
        }
    }
}

string_serde!(
    SizeModel,
    "SizeModel",
    "frame sizes with FCS: one (64), a range (64-1518), a sequence (64,128,256), imix, or weights (64:7,570:4,1518:1)",
    "64"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints() {
        for text in ["64", "64-1518", "imix", "64:1,128:3", "68,64,68"] {
            assert_eq!(text.parse::<SizeModel>().unwrap().to_string(), text);
        }
        for text in [
            "63", "64,63", "64,", "20000", "1518-64", "64:0", "64:1,", "abc", "", "64:65537",
        ] {
            assert!(text.parse::<SizeModel>().is_err(), "{text}");
        }
    }

    #[test]
    fn genomes_of_rfc_6985() {
        for text in ["aaaaaaaddddg", "7a4d1g", "7a4dg"] {
            let mix = parse_size(text).unwrap();
            assert_eq!(mix.to_string(), "64:7,512:4,1518:1", "{text}");
        }
        for text in ["7a4x", "k", "0a", "99999999a", "a z"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert_eq!(parse_size("imix").unwrap(), SizeModel::imix());
        assert_eq!(parse_size("64").unwrap().to_string(), "64");
    }

    #[test]
    fn mean_of_the_simple_mix() {
        let mean = SizeModel::imix().mean();
        assert_eq!((mean.numerator(), mean.denominator()), (2123, 6));
    }
}
