//! `list`: the values in turn, then repeated; with a step, every step-th value.

use wb_port::offload::FieldValues;

use super::{TOO_WIDE, WorkerShare};

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct ListedValues {
    values: Box<[u128]>,
    at: usize,
    advance: usize,
}

impl ListedValues {
    pub(super) fn new(values: &[u128], step: u128, share: WorkerShare) -> Option<Self> {
        let len = values.len() as u128;
        if len == 0 {
            return None;
        }
        // Both are below the length of the list.
        let position = |n: u32| (u128::from(n) * (step % len) % len) as usize;
        Some(Self {
            values: values.into(),
            at: position(share.worker),
            advance: position(share.workers),
        })
    }

    pub(super) fn values_table(&self) -> Result<(FieldValues, u64), &'static str> {
        let above = self.values[0] >> 64;
        if self.values.iter().any(|value| value >> 64 != above) {
            return Err(TOO_WIDE);
        }
        let values = FieldValues::List {
            values: self.values.iter().map(|value| *value as u64).collect(),
            at: self.at as u32,
            advance: self.advance as u32,
        };
        Ok((values, above as u64))
    }

    #[inline]
    pub(super) fn next_wide(&mut self) -> u128 {
        let value = self.values[self.at];
        self.at += self.advance;
        if self.at >= self.values.len() {
            self.at -= self.values.len();
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::values;

    #[test]
    fn goes_through_in_turn() {
        assert_eq!(values("vlan=list:5,7,9", 1, 5), [5, 7, 9, 5, 7]);
        assert_eq!(values("vlan=list:5,7,9,step=2", 1, 4), [5, 9, 7, 5]);
        assert_eq!(values("vlan=list:5", 1, 2), [5, 5]);
    }
}
