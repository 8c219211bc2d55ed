//! A device that errs by order: loses, duplicates, reorders, delays and throttles frames.
//!
//! [`Impairment`] is what is asked, [`Impairer`] decides frame by frame, [`ImpairCounters`] is what
//! was done, exactly. Here is no port and no clock: the memory link and the testbed's bridge bring
//! frames, as handles of their own, and the time.

mod choice;
mod impairer;
mod shaper;

pub use choice::Loss;
pub use impairer::{ImpairCounters, Impairer};

/// What a device is to do to the frames of one direction. The default does nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Impairment {
    /// Which arriving frames are lost.
    pub loss: Loss,
    /// Share of the frames that leave twice, the copy directly after the original; 0 to 1.
    pub duplicate: f64,
    /// Share of the frames that are held back; 0 to 1. Lost and duplicated frames are never held.
    pub reorder: f64,
    /// A held frame leaves after this many later originals have left; those that were held themselves
    /// do not count.
    pub reorder_depth: u32,
    /// A held frame leaves after this long at the latest.
    pub reorder_limit_ns: u64,
    /// Time from arrival to departure.
    pub delay_ns: u64,
    /// The delay of each frame differs from `delay_ns` by up to this much either way, evenly
    /// distributed.
    ///
    /// Order is kept, as on a wire: a frame never overtakes the one before it and leaves with it at
    /// the earliest. Where frames are closer than the jitter the mean delay is therefore above
    /// `delay_ns`; [`ImpairCounters`] has what was really added. No delay is below 0.
    pub jitter_ns: u64,
    /// How fast frames may leave.
    pub capacity: Option<Capacity>,
    /// Of every random choice. Each kind of choice has its own sequence, so that switching one on
    /// does not change another.
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
    /// Whether frames pass as on a wire.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.loss == Loss::None
            && self.duplicate == 0.0
            && self.reorder == 0.0
            && self.delay_ns == 0
            && self.jitter_ns == 0
            && self.capacity.is_none()
    }

    /// The same with another seed.
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
    /// Every value that is out of its range.
    pub fn validate(&self) -> Result<(), InvalidImpairment> {
        let mut wrong = Vec::new();
        let mut ratio = |name: &str, value: f64| {
            if !(0.0..=1.0).contains(&value) {
                wrong.push(format!("{name} is {value}, allowed is 0 to 1"));
            }
        };
        if let Loss::Ratio(value) = self.loss {
            ratio("loss", value);
        }
        ratio("duplicate", self.duplicate);
        ratio("reorder", self.reorder);
        if self.loss == Loss::Every(0) {
            wrong.push("loss of every 0th frame, allowed is 1 or more".to_owned());
        }
        if self.reorder > 0.0 && self.reorder_depth == 0 {
            wrong.push("reorder depth is 0, allowed is 1 or more".to_owned());
        }
        match self.capacity.map(|c| c.rate) {
            Some(Rate::FramesPerSecond(f)) if !(0.001..=1e12).contains(&f) => {
                wrong.push(format!(
                    "capacity is {f} frames/s, allowed is 0.001 to 1e12"
                ));
            }
            Some(Rate::BitsPerSecond(bits)) if !(8..=1_000_000_000_000_000).contains(&bits) => {
                wrong.push(format!(
                    "rate is {bits} bit/s, allowed is 8 bit/s to 1 Pbit/s"
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

/// An impairment that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("impairment: {0}")]
pub struct InvalidImpairment(String);

/// How fast frames leave a device, and how many may wait for that.
///
/// An idle device passes a frame at once; the next may leave when the time of the first is over.
/// A frame that finds the buffer full is dropped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// The rate.
    pub rate: Rate,
    /// Frames that may wait.
    pub buffer_frames: u32,
    /// Longest that a frame may have to wait.
    pub buffer_ns: u64,
}

impl Capacity {
    /// A device that forwards this many frames per second, with a buffer of so many frames.
    #[must_use]
    pub fn frames_per_second(rate: f64, buffer_frames: u32) -> Self {
        Self {
            rate: Rate::FramesPerSecond(rate),
            buffer_frames,
            buffer_ns: u64::MAX,
        }
    }

    /// A link of this many bits per second; up to 1000 frames or 50 ms wait.
    #[must_use]
    pub fn bits_per_second(rate: u64) -> Self {
        Self {
            rate: Rate::BitsPerSecond(rate),
            buffer_frames: 1000,
            buffer_ns: 50_000_000,
        }
    }
}

/// A rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Every frame takes the same time, whatever its length.
    FramesPerSecond(f64),
    /// A frame takes the time of its bits without FCS, preamble and gap, as `tc`'s tbf counts.
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
            "impairment: loss is 1.5, allowed is 0 to 1; duplicate is -0.1, allowed is 0 to 1; \
             reorder depth is 0, allowed is 1 or more; capacity is 0 frames/s, allowed is 0.001 to 1e12"
        );
    }
}
