//! `inc`: from the first value up to the last in steps, then repeated.

use wb_model::vary::ValueRange;
use wb_port::offload::FieldValues;

use super::{OffsetCycle, WorkerShare};

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Increment {
    first: u128,
    round: OffsetCycle,
}

impl Increment {
    pub(super) fn new(range: ValueRange, step: u128, share: WorkerShare) -> Self {
        Self {
            first: range.first,
            round: OffsetCycle::new(range, step, share),
        }
    }

    pub(super) fn values_table(&self) -> Result<(FieldValues, u64), &'static str> {
        self.round.values_table(self.first, false)
    }

    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        (self.first as u64).wrapping_add(self.round.next())
    }

    #[inline]
    pub(super) fn next_wide(&mut self) -> u128 {
        self.first.wrapping_add(self.round.next_wide())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::values;

    #[test]
    fn counts_up_and_begins_again() {
        assert_eq!(values("sport=inc:5-7", 1, 5), [5, 6, 7, 5, 6]);
        assert_eq!(values("sport=inc:5-10,step=2", 1, 5), [5, 7, 9, 5, 7]);
        assert_eq!(values("sport=inc:65535", 1, 2), [65535, 65535]);
        let all = "src=inc:ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        assert_eq!(values(all, 1, 3), [u128::MAX - 1, u128::MAX, u128::MAX - 1]);
    }
}
