//! Computes loss, reordering, latency and delay variation from stamps and sequence numbers.
//!
//! Does not know frames, clocks or ports: flow, sequence number, both stamps and size are arguments. Each receive
//! worker owns one [`Analyser`] and passes every frame to it. At the end (or at an interval) the [`Measurement`]s of
//! the workers are merged, and [`Account`] compares frames sent with frames received.
//!
//! ```
//! use wb_measure::{Account, Analyser, Measurement};
//!
//! let mut worker = Analyser::planned(1);
//! for (sequence, tx_ns, rx_ns) in [(0, 1_000, 1_020), (2, 1_200, 1_220), (1, 1_100, 1_225)] {
//!     worker.on_frame(0, sequence, tx_ns, rx_ns, 64);
//! }
//!
//! let mut all = Measurement::default();
//! all.merge(&worker.into_measurement());
//! assert_eq!(all.counters.reordered_frames, 1);
//! assert_eq!(all.latency.summary().max, Some(125));
//!
//! let account = Account::settle(4, all.counters.received_frames, all.counters.duplicate_frames);
//! assert_eq!(account.lost, 1);
//! ```
#![forbid(unsafe_code)]

mod account;
mod analyser;
mod confidence;
mod counters;
mod encoded;
mod flow;
mod histogram;
mod keys;
mod measurement;
mod outages;
pub mod outline;
pub mod rates;
mod sequence;
mod summary;
mod table;
mod times;

pub use account::{Account, Imbalance, settle_flows};
pub use analyser::Analyser;
pub use confidence::{ConfidenceLevel, interval_width, mean_of};
pub use counters::Counters;
pub use encoded::{EncodedHistogram, EncodedValues, NamedHistogram};
pub use flow::{FlowLatency, FlowStats};
pub use histogram::{Bucket, Histogram, SignedHistogram};
pub use measurement::{Measurement, SmoothedJitter};
pub use outages::{FlowOutages, OUTAGE_FLOWS, OUTAGE_THRESHOLD_NS, Outage, Outages, SentFrames};
pub use outline::{Outline, ShownOutline};
pub use rates::line_rate_pps;
pub use sequence::{Arrival, SequenceTracker, WindowSize};
pub use summary::Summary;
pub use times::Times;
