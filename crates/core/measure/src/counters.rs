//! Counters of one receive worker at an instant.

use derive_more::{Add, AddAssign, Sum};

/// Declares the counters once, with what subtracting does to each.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a receiver has counted so far: plain numbers that can be copied out at any moment
        /// and added over workers.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Add, AddAssign, Sum)]
        pub struct Counters { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            /// What was counted after `earlier`, for the figures of an interval. A counter that
            /// went down (only `missing_frames` and `head_frames` can) gives 0.
            pub fn since(self, earlier: Counters) -> Counters {
                Counters { $($name: self.$name.saturating_sub(earlier.$name),)* }
            }
        }
    };
}

counters! {
    /// Every arrival of ours, duplicates too.
    received_frames,
    /// Octets of these frames, with FCS.
    received_octets,
    /// Arrivals whose sequence number had arrived before, with those beyond the window.
    duplicate_frames,
    /// Originals that arrived after a later one (RFC 4689).
    reordered_frames,
    /// Originals that arrived during the drain. They count as received.
    late_frames,
    /// Sequence numbers skipped and not seen since: what loss would be if nothing more came.
    missing_frames,
    /// Frames that are not ours.
    foreign_frames,
    /// Octets of these frames, with FCS.
    foreign_octets,
    /// Of the foreign frames, those with a tag of wirebench, of flows that were not planned.
    unplanned_frames,
    /// Of the foreign frames, those with a tag of pktgen, where none was planned.
    pktgen_frames,
    /// Foreign frames with a tag that was stamped before the first departure of the run.
    stale_frames,
    /// Sequence numbers below the first one seen of each flow, if the sender is not known: sent before the
    /// receiver began, or lost at the beginning. Not part of `missing_frames`.
    head_frames,
    /// Arrivals older than the tracking window; contained in `duplicate_frames`.
    beyond_window_frames,
    /// Frames received before they were sent, by their stamps: they give no latency.
    clock_error_frames,
    /// Originals without a transmit stamp: they give no delay of any kind.
    unstamped_frames,
    /// Received frames without a tag (`--tag none`): counted, not followed.
    untagged_frames,
    /// Received frames of flows for which the flow table had no room: counted, not followed.
    untracked_frames,
}

impl Counters {
    /// Arrivals less duplicates.
    pub fn unique_frames(&self) -> u64 {
        self.received_frames - self.duplicate_frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn add_and_since_are_opposites() {
        let a = Counters {
            received_frames: 5,
            missing_frames: 2,
            ..Counters::default()
        };
        let b = Counters {
            received_frames: 7,
            late_frames: 1,
            ..Counters::default()
        };
        let both: Counters = [a, b].into_iter().sum();
        assert_eq!(both.received_frames, 12);
        assert_eq!(both.since(a), b);
        assert_eq!(a.since(both), Counters::default());
    }
}
