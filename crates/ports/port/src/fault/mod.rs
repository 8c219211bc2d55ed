//! Impairing device: loses, duplicates, reorders, delays and throttles frames on request.
//!
//! [`Impairment`] is the request, [`Impairer`] decides for each frame, and [`ImpairCounters`] is the exact result. This
//! module has no port and no clock: the memory link and the bridge of the testbed supply the time and the frames, as
//! handles.

mod frame_selection;
mod impairer;
mod shaper;

pub use frame_selection::Loss;
pub use impairer::{ImpairCounters, Impairer};

/// Impairments of the frames of one direction. The default has none.
#[derive(Clone, Debug, PartialEq)]
pub struct Impairment {
    /// Selection of the lost frames.
    pub loss: Loss,
    /// Share of duplicated frames, 0 to 1. The copy leaves directly after the original.
    pub duplicate: f64,
    /// Share of reordered frames, 0 to 1. These are held back; lost and duplicated frames never are.
    pub reorder: f64,
    /// Number of later originals after which a held frame leaves. Originals that were held themselves do not count.
    pub reorder_depth: u32,
    /// Maximum time that a frame is held, in ns.
    pub reorder_limit_ns: u64,
    /// Time from arrival to departure, in ns.
    pub delay_ns: u64,
    /// Jitter in ns: the delay of each frame differs from `delay_ns` by up to this value in both directions, uniformly
    /// distributed.
    ///
    /// Jitter does not reorder frames, as on a wire: a frame leaves at the same time as the previous frame or later. If
    /// frames are closer than the jitter, the mean delay is therefore above `delay_ns`; [`ImpairCounters`] has the real
    /// delay. No delay is below 0.
    pub jitter_ns: u64,
    /// Rate limit.
    pub capacity: Option<Capacity>,
    /// Seed of all random choices. Each kind of choice has a separate sequence, so one choice does not change another.
    pub seed: u64,
}

impl Default for Impairment {
    fn default() -> Self {
        Self {
            loss: Loss::None,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_depth: 3,
            reorder_limit_ns: 100_000_000,
            delay_ns: 0,
            jitter_ns: 0,
            capacity: None,
            seed: 1,
        }
    }
}

impl Impairment {
    /// Returns true if frames pass unimpaired.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.loss == Loss::None
            && self.duplicate == 0.0
            && self.reorder == 0.0
            && self.delay_ns == 0
            && self.jitter_ns == 0
            && self.capacity.is_none()
    }

    /// Copy with another seed.
    #[must_use]
    pub fn with_seed(&self, seed: u64) -> Self {
        Self {
            seed,
            ..self.clone()
        }
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// All values that are out of range.
    pub fn validate(&self) -> Result<(), InvalidImpairment> {
        let mut wrong = Vec::new();
        let mut ratio = |name: &str, value: f64| {
            if !(0.0..=1.0).contains(&value) {
                wrong.push(format!("{name} must be between 0 and 1, got {value}"));
            }
        };
        if let Loss::Ratio(value) = self.loss {
            ratio("loss", value);
        }
        ratio("duplicate", self.duplicate);
        ratio("reorder", self.reorder);
        if self.loss == Loss::Every(0) {
            wrong.push("loss of every Nth frame: N must be at least 1, got 0".to_owned());
        }
        if self.reorder > 0.0 && self.reorder_depth == 0 {
            wrong.push("reorder depth must be at least 1, got 0".to_owned());
        }
        match self.capacity.map(|c| c.rate) {
            Some(Rate::FramesPerSecond(f)) if !(0.001..=1e12).contains(&f) => {
                wrong.push(format!(
                    "capacity must be between 0.001 and 1e12 frames/s, got {f}"
                ));
            }
            Some(Rate::BitsPerSecond(bits)) if !(8..=1_000_000_000_000_000).contains(&bits) => {
                wrong.push(format!(
                    "rate must be between 8 bit/s and 1 Pbit/s, got {bits} bit/s"
                ));
            }
            _ => {}
        }
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(InvalidImpairment(wrong.join("; ")))
        }
    }
}

/// Invalid impairment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("impairment: {0}")]
pub struct InvalidImpairment(String);

/// Rate limit and buffer of a device.
///
/// An idle device passes a frame at once. The next frame may leave after the transmission time of the first. A frame
/// that finds the buffer full is dropped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// Rate.
    pub rate: Rate,
    /// Maximum number of waiting frames.
    pub buffer_frames: u32,
    /// Maximum time that a frame may wait, in ns.
    pub buffer_ns: u64,
}

impl Capacity {
    /// Device that forwards `rate` frames per second, with a buffer of `buffer_frames` frames.
    #[must_use]
    pub fn frames_per_second(rate: f64, buffer_frames: u32) -> Self {
        Self {
            rate: Rate::FramesPerSecond(rate),
            buffer_frames,
            buffer_ns: u64::MAX,
        }
    }

    /// Link of `rate` bits per second, with a buffer of 1000 frames or 50 ms.
    #[must_use]
    pub fn bits_per_second(rate: u64) -> Self {
        Self {
            rate: Rate::BitsPerSecond(rate),
            buffer_frames: 1000,
            buffer_ns: 50_000_000,
        }
    }
}

/// Unit of a rate limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Frames per second, regardless of their length.
    FramesPerSecond(f64),
    /// Bits per second without FCS, preamble and gap, as in `tc` tbf.
    BitsPerSecond(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_a_wire() {
        assert!(Impairment::default().is_none());
        assert_eq!(Impairment::default().validate(), Ok(()));
        assert!(
            !Impairment {
                delay_ns: 1,
                ..Impairment::default()
            }
            .is_none()
        );
    }

    #[test]
    fn all_faults_are_told_at_once() {
        let wrong = Impairment {
            loss: Loss::Ratio(1.5),
            duplicate: -0.1,
            reorder: 0.5,
            reorder_depth: 0,
            capacity: Some(Capacity::frames_per_second(0.0, 1)),
            ..Impairment::default()
        };
        assert_eq!(
            wrong.validate().unwrap_err().to_string(),
            "impairment: loss must be between 0 and 1, got 1.5; duplicate must be between 0 and 1, got -0.1; \
             reorder depth must be at least 1, got 0; capacity must be between 0.001 and 1e12 frames/s, got 0"
        );
    }
}
