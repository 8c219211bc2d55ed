//! Counters of one receive worker.

use derive_more::{Add, AddAssign, Sum};

/// Declares the counters once, with their subtraction.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Receive counters. They can be copied at any time and added over workers.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Add, AddAssign, Sum)]
        pub struct Counters { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            /// Difference to `earlier`, for the figures of an interval. A counter that decreased (possible only for
            /// `missing_frames`, `outages` and `head_frames`) gives 0.
            pub fn since(self, earlier: Counters) -> Counters {
                Counters { $($name: self.$name.saturating_sub(earlier.$name),)* }
            }
        }
    };
}

counters! {
    /// Frames of the run received, including duplicates.
    received_frames,
    /// Octets of these frames, with FCS.
    received_octets,
    /// Arrivals with a sequence number that arrived before or is beyond the window.
    duplicate_frames,
    /// Originals that arrived after a later one (RFC 4689).
    reordered_frames,
    /// Originals that arrived during the drain. They count as received.
    late_frames,
    /// Sequence numbers skipped and not received later: the current loss.
    missing_frames,
    /// Outages so far. Reordered frames take outages back.
    outages,
    /// Foreign frames.
    foreign_frames,
    /// Octets of these frames, with FCS.
    foreign_octets,
    /// Foreign frames with a wirebench tag of a flow that was not planned.
    unplanned_frames,
    /// Foreign frames with an unplanned pktgen tag.
    pktgen_frames,
    /// Foreign frames with a tag that was stamped before the first departure of the run.
    stale_frames,
    /// Sequence numbers below the first one seen of each flow, if the sender is unknown: sent before the receiver
    /// started, or lost at the start. Not included in `missing_frames`.
    head_frames,
    /// Arrivals older than the tracking window; included in `duplicate_frames`.
    beyond_window_frames,
    /// Frames received before they were sent, according to their stamps; they give no latency.
    clock_error_frames,
    /// Originals without a transmit stamp; they give no delay of any kind.
    unstamped_frames,
    /// Received frames without a tag (`--tag none`): counted, not tracked.
    untagged_frames,
    /// Received frames of flows for which the flow table had no room: counted, not tracked.
    untracked_frames,
}

impl Counters {
    /// Arrivals minus duplicates.
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
