//! Values that change from frame to frame, one kind per file.
//!
//! A modifier is positioned for one worker of many: worker `w` of `n` takes the values number `w, w + n, w + 2n, …`.
//! The frame decides which bits of a field a value reaches.

mod decrement;
mod increment;
mod list;
mod random;

use wb_model::vary::{Pattern, ValueRange, Vary};
use wb_port::offload::FieldValues;
use wb_wire::SplitMix64;

/// Position of a worker among all workers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerShare {
    pub(crate) worker: u32,
    pub(crate) workers: u32,
}

/// Source of the next values of a field.
#[derive(Clone, Debug)]
pub(crate) enum Modifier {
    Increment(increment::Increment),
    Decrement(decrement::Decrement),
    Random(random::RandomValue),
    List(list::ListedValues),
}

impl Modifier {
    /// `None` if there are no values.
    pub(crate) fn new(vary: &Vary, share: WorkerShare, random: SplitMix64) -> Option<Self> {
        let step = vary.step.max(1);
        Some(match &vary.pattern {
            Pattern::Increment(range) => {
                Self::Increment(increment::Increment::new(*range, step, share))
            }
            Pattern::Decrement(range) => {
                Self::Decrement(decrement::Decrement::new(*range, step, share))
            }
            Pattern::Random(range) => Self::Random(random::RandomValue::new(*range, step, random)),
            Pattern::List(values) => Self::List(list::ListedValues::new(values, step, share)?),
        })
    }

    /// The same values as a table of their low 64 bits, and the upper bits that all share. Returns the reason if there
    /// is no table.
    pub(crate) fn values_table(&self) -> Result<(FieldValues, u64), &'static str> {
        match self {
            Self::Increment(increment) => increment.values_table(),
            Self::Decrement(decrement) => decrement.values_table(),
            Self::Random(random) => random.values_table(),
            Self::List(list) => list.values_table(),
        }
    }

    /// Value for the next frame, if it has at most 64 bits.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        match self {
            Self::Increment(increment) => increment.next(),
            Self::Decrement(decrement) => decrement.next(),
            Self::Random(random) => random.next_wide() as u64,
            Self::List(list) => list.next_wide() as u64,
        }
    }

    /// Value for the next frame.
    #[inline]
    pub(crate) fn next_wide(&mut self) -> u128 {
        match self {
            Self::Increment(increment) => increment.next_wide(),
            Self::Decrement(decrement) => decrement.next_wide(),
            Self::Random(random) => random.next_wide(),
            Self::List(list) => list.next_wide(),
        }
    }
}

/// Reason why values have no table.
pub(crate) const TOO_WIDE: &str = "the values of a modifier differ in more than 64 bits";

/// Cycles through the offsets 0, step, 2·step, … of a range. Values beyond the first 2^63 are never reached: that would
/// take thousands of years.
#[derive(Clone, Debug)]
struct OffsetCycle {
    position: u64,
    advance: u64,
    values: u64,
    step: u128,
}

impl OffsetCycle {
    fn new(range: ValueRange, step: u128, share: WorkerShare) -> Self {
        let values = ((range.last - range.first) / step)
            .saturating_add(1)
            .min(1 << 63) as u64;
        Self {
            position: u64::from(share.worker) % values,
            advance: u64::from(share.workers) % values,
            values,
            step,
        }
    }

    #[inline]
    fn advance(&mut self) -> u64 {
        let now = self.position;
        self.position += self.advance;
        if self.position >= self.values {
            self.position -= self.values;
        }
        now
    }

    /// Table from the value at position 0, up or down.
    fn values_table(&self, base: u128, down: bool) -> Result<(FieldValues, u64), &'static str> {
        let reach = self.step.saturating_mul(u128::from(self.values - 1));
        let end = if down {
            base.wrapping_sub(reach)
        } else {
            base.wrapping_add(reach)
        };
        if end >> 64 != base >> 64 {
            return Err(TOO_WIDE);
        }
        let values = FieldValues::Steps {
            base: base as u64,
            down,
            position: self.position,
            advance: self.advance,
            values: self.values,
            step: self.step as u64,
        };
        Ok((values, (base >> 64) as u64))
    }

    /// Low 64 bits of the current offset; advances to the next one.
    #[inline]
    fn next(&mut self) -> u64 {
        self.advance().wrapping_mul(self.step as u64)
    }

    /// The current offset; advances to the next one.
    #[inline]
    fn next_wide(&mut self) -> u128 {
        u128::from(self.advance()).wrapping_mul(self.step)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Values that `workers` workers take in turn.
    pub(crate) fn values(text: &str, workers: u32, n: usize) -> Vec<u128> {
        let vary: Vary = text.parse().unwrap();
        let mut all: Vec<Modifier> = (0..workers)
            .map(|worker| {
                let random = SplitMix64::for_purpose(7, &[u64::from(worker)]);
                Modifier::new(&vary, WorkerShare { worker, workers }, random).unwrap()
            })
            .collect();
        (0..n)
            .map(|i| all[i % workers as usize].next_wide())
            .collect()
    }

    #[test]
    fn workers_together_are_as_one() {
        for text in [
            "sport=inc:10-16,step=2",
            "sport=dec:10-15,step=2",
            "sport=list:5,7,9",
            "ttl=inc:0-255",
            "src=inc:0.0.0.0-255.255.255.255,step=1000000007",
            "src=inc:::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "src=inc:::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff,step=170141183460469231731687303715884105728",
        ] {
            let one = values(text, 1, 60);
            for workers in 2..6 {
                assert_eq!(values(text, workers, 60), one, "{text} by {workers}");
            }
        }
    }

    #[test]
    fn an_empty_list_is_no_modifier() {
        let vary = Vary {
            pattern: Pattern::List(Vec::new()),
            .."sport=list:1".parse().unwrap()
        };
        let share = WorkerShare {
            worker: 0,
            workers: 1,
        };
        assert!(Modifier::new(&vary, share, SplitMix64::for_purpose(1, &[])).is_none());
    }
}
