//! Separates clones from duplicates.

use wb_wire::PktgenTag;

/// Inspects sequence numbers in order of arrival. A packet that arrives several times with the same timestamp was
/// either duplicated on the path, and then its successor has the next number; or it was sent that way, and then its
/// successor skips numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Repetitions {
    last: Option<PktgenTag>,
    repeated: bool,
    cloned: bool,
}

impl Repetitions {
    #[inline]
    pub(super) fn inspect(&mut self, tag: PktgenTag) {
        let Some(last) = self.last.replace(tag) else {
            return;
        };
        if last == tag {
            self.repeated = true;
        } else if self.repeated {
            self.repeated = false;
            self.cloned |= tag.sequence.wrapping_sub(last.sequence) != 1;
        }
    }

    /// Returns true if the numbers show loss and duplicates correctly.
    pub(super) const fn is_plain(&self) -> bool {
        !self.cloned && !self.repeated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_plain(numbers: &[u32]) -> bool {
        let mut seen = Repetitions::default();
        for sequence in numbers {
            seen.inspect(PktgenTag {
                sequence: *sequence,
                time: [0, *sequence],
            });
        }
        seen.is_plain()
    }

    #[test]
    fn clones_leave_numbers_out_and_duplicates_do_not() {
        assert!(is_plain(&[1, 2, 3]));
        assert!(is_plain(&[1, 3, 2, 4]));
        assert!(is_plain(&[1, 2, 2, 3]));
        assert!(!is_plain(&[1, 1, 1, 4, 4, 4, 7]));
        assert!(!is_plain(&[1, 1, 3]));
        // Not decided yet.
        assert!(!is_plain(&[1, 2, 2]));
    }

    #[test]
    fn packets_of_two_devices_are_no_clones() {
        let mut seen = Repetitions::default();
        for (sequence, time) in [(1, 5), (1, 6), (2, 7), (2, 8)] {
            seen.inspect(PktgenTag {
                sequence,
                time: [0, time],
            });
        }
        assert!(seen.is_plain());
    }
}
