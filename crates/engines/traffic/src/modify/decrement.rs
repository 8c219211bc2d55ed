//! `dec`: from the last value down to the first in steps, then repeated.

use wb_model::vary::ValueRange;
use wb_port::offload::FieldValues;

use super::{OffsetCycle, WorkerShare};

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Decrement {
    last: u128,
    round: OffsetCycle,
}

impl Decrement {
    pub(super) fn new(range: ValueRange, step: u128, share: WorkerShare) -> Self {
        Self {
            last: range.last,
            round: OffsetCycle::new(range, step, share),
        }
    }

    pub(super) fn values_table(&self) -> Result<(FieldValues, u64), &'static str> {
        self.round.values_table(self.last, true)
    }

    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        (self.last as u64).wrapping_sub(self.round.next())
    }

    #[inline]
    pub(super) fn next_wide(&mut self) -> u128 {
        self.last.wrapping_sub(self.round.next_wide())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::values;

    #[test]
    fn counts_down_and_begins_again() {
        assert_eq!(values("sport=dec:5-7", 1, 5), [7, 6, 5, 7, 6]);
        assert_eq!(values("sport=dec:5-10,step=2", 1, 5), [10, 8, 6, 10, 8]);
        assert_eq!(values("sport=dec:0-1", 1, 3), [1, 0, 1]);
    }
}
