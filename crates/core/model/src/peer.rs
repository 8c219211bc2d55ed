//! Messages between the two hosts of a direction with its sender and its receiver on different hosts, and the halves of
//! its report.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wb_figures::text::time_ns;

use crate::{
    Totals,
    fleet::HostClock,
    report::{JobReport, Rates, StreamReport},
};

/// Frames that a direction has sent, for the host that receives them. The sender has ended, so the counts are final.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sent {
    /// The direction: number of its first flow in test tags, [`DirectionFlows::first_flow`](crate::DirectionFlows).
    pub direction: u32,
    /// Start of the schedule on the sender's wall clock, in ns since 1970; 0 if nothing was sent.
    pub first_departure_wall_ns: u64,
    /// Last departure on the sender's wall clock, in ns since 1970; 0 if nothing was sent.
    pub last_departure_wall_ns: u64,
    /// Counts of each stream, in the order of the plan.
    pub streams: Vec<Totals>,
    /// Frames sent during the ramp-up, which are in no other count.
    pub ramp_frames: u64,
    /// Offered frames of each flow with a tag, from the first flow of the direction on.
    pub flows: Vec<u64>,
}

/// Clocks of the two hosts of a direction. Offsets are the receiver's clock minus the sender's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PairClock {
    /// Host of the sender.
    pub from: String,
    /// Host of the receiver.
    pub to: String,
    /// Method by which the offset is known: `udp` (exchanges of stamps between the two hosts), `broker` (exchanges of both
    /// with the controller over the broker) or `same` (one clock).
    pub method: String,
    /// First offset of the run, in ns.
    pub offset_start_ns: i64,
    /// Last offset of the run, in ns.
    pub offset_end_ns: i64,
    /// Drift of the receiver's clock against the sender's clock, in parts per billion.
    pub drift_ppb: i64,
    /// Maximum error of an offset, in ns.
    pub error_ns: u64,
    /// Number of exchanges from which the offsets were estimated.
    pub exchanges: u64,
    /// Mean of the offsets that were added to the latencies, in ns; absent without latencies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset_mean_ns: Option<i64>,
    /// Largest step of the wall clock of one of the hosts during the run, in ns; absent without a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_ns: Option<i64>,
}

impl PairClock {
    /// A later estimate of the same clocks in the same run: it keeps the first offset and the larger error.
    #[must_use]
    pub fn followed_by(&self, later: Self) -> Self {
        Self {
            offset_start_ns: self.offset_start_ns,
            error_ns: self.error_ns.max(later.error_ns),
            ..later
        }
    }

    /// Contradiction of the offset to the errors that the time services of both hosts claim, if it is larger than all errors
    /// together.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn contradicts(&self, from: &HostClock, to: &HostClock) -> Option<String> {
        let errors = [from.error_ns, to.error_ns, self.error_ns];
        let limit = errors.into_iter().fold(0, u64::saturating_add);
        (self.offset_end_ns.unsigned_abs() > limit).then(|| {
            format!(
                "the clocks of {} and {} differ by {}, known to {}, but their time services claim less ({}; {})",
                self.from,
                self.to,
                time_ns(self.offset_end_ns as f64),
                self.error_text(),
                from.account(),
                to.account(),
            )
        })
    }

    /// Reason why the latencies are invalid, if a clock was stepped by more than the error:
    /// `the wall clock of a or b was stepped by 5.00 ms during the run`. Two hosts with one clock stay together.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn stepped(&self) -> Option<String> {
        let Self { from, to, .. } = self;
        let step = self.step_ns.filter(|_| self.method != "same")?;
        let text = time_ns(step as f64);
        (step.unsigned_abs() > self.error_ns).then(|| {
            format!("the wall clock of {from} or {to} was stepped by {text} during the run")
        })
    }

    /// `the clocks of a and b are known to 4.9 us only`.
    #[must_use]
    pub fn account(&self) -> String {
        let Self { from, to, .. } = self;
        let error = self.error_text();
        format!("the clocks of {from} and {to} are known to {error} only")
    }

    /// Maximum error with its unit: `4.9 us`.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn error_text(&self) -> String {
        time_ns(self.error_ns as f64)
    }
}

impl JobReport {
    /// Joins the two halves of a direction: the report of the host that sent it and the report of the host that received
    /// it. Counts that neither host knows stay unknown.
    #[must_use]
    pub fn joined(sending: &Self, receiving: &Self) -> Self {
        let streams = sending.streams.iter().zip(&receiving.streams);
        let reasons = [&sending.incomplete, &receiving.incomplete];
        let reasons: Vec<&str> = reasons.into_iter().flatten().map(String::as_str).collect();
        Self {
            name: sending.name.clone(),
            tx: sending.tx.clone(),
            rx: receiving.rx.clone(),
            totals: joined_totals(&sending.totals, &receiving.totals),
            rates: Rates {
                received_pps: receiving.rates.received_pps,
                received_l1_bps: receiving.rates.received_l1_bps,
                received_l2_bps: receiving.rates.received_l2_bps,
                rx_time_ns: receiving.rates.rx_time_ns,
                while_receiving_pps: receiving.rates.while_receiving_pps,
                while_receiving_l2_bps: receiving.rates.while_receiving_l2_bps,
                ..sending.rates
            },
            streams: streams
                .map(|(sent, received)| joined_streams(sent, received))
                .collect(),
            incomplete: (!reasons.is_empty()).then(|| reasons.join("; ")),
            clock: receiving.clock.clone().or_else(|| sending.clock.clone()),
            ..receiving.clone()
        }
    }
}

fn joined_streams(sending: &StreamReport, receiving: &StreamReport) -> StreamReport {
    let ends = [&sending.path, &receiving.path];
    let ends: Vec<&str> = ends
        .into_iter()
        .map(String::as_str)
        .filter(|end| !end.is_empty())
        .collect();
    StreamReport {
        totals: joined_totals(&sending.totals, &receiving.totals),
        path: ends.join(" to "),
        ..receiving.clone()
    }
}

/// Totals of both halves. The loss is that of the receiving host if it knew how many frames were sent; otherwise it is
/// found here.
pub(crate) fn joined_totals(sending: &Totals, receiving: &Totals) -> Totals {
    let both = sending.plus(receiving);
    let unique = |both: &Totals| {
        let duplicate = both.duplicate_frames.unwrap_or(0);
        both.received_frames?.checked_sub(duplicate)
    };
    let lost = || both.offered_frames?.checked_sub(unique(&both)?);
    Totals {
        lost_frames: both.lost_frames.or_else(lost),
        ..both
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half(totals: Totals, path: &str) -> JobReport {
        JobReport {
            name: "job 1".to_owned(),
            tx: Some("a".to_owned()),
            rx: Some("b".to_owned()),
            totals,
            streams: vec![StreamReport {
                totals,
                path: path.to_owned(),
                ..StreamReport::default()
            }],
            ..JobReport::default()
        }
    }

    fn sending() -> JobReport {
        let totals = Totals {
            intended_frames: Some(101),
            offered_frames: Some(100),
            unsent_frames: Some(1),
            ..Totals::default()
        };
        half(totals, "packet")
    }

    #[test]
    fn two_halves_add_up() {
        let received = Totals {
            received_frames: Some(97),
            duplicate_frames: Some(2),
            ..Totals::default()
        };
        let joined = JobReport::joined(&sending(), &half(received, "xdp"));
        for totals in [joined.totals, joined.streams[0].totals] {
            assert_eq!(totals.lost_frames, Some(5));
            assert!(totals.adds_up());
        }
        assert_eq!(joined.streams[0].path, "packet to xdp");
        // The receiver has counted a flow that was not offered as foreign: its own loss counts.
        let settled = Totals {
            lost_frames: Some(5),
            ..received
        };
        let joined = JobReport::joined(&sending(), &half(settled, "xdp"));
        assert_eq!(joined.totals.lost_frames, Some(5));
    }

    #[test]
    fn what_one_half_does_not_know_stays_unknown() {
        let mut receiving = half(Totals::default(), "");
        receiving.incomplete = Some("the receiver is gone".to_owned());
        let joined = JobReport::joined(&sending(), &receiving);
        assert_eq!(joined.totals.lost_frames, None);
        assert_eq!(joined.totals.offered_frames, Some(100));
        assert_eq!(joined.incomplete.as_deref(), Some("the receiver is gone"));
        // More than was sent arrived, so the difference is no loss.
        let received = Totals {
            received_frames: Some(101),
            ..Totals::default()
        };
        let joined = JobReport::joined(&sending(), &half(received, ""));
        assert_eq!(joined.totals.lost_frames, None);
    }
}
