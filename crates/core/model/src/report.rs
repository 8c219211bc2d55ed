//! The report: the final account of a run, the same for every engine and every rendering.
//!
//! Invariant, checked by [`Totals::adds_up`] wherever a report is made: what was offered is what
//! was received, less duplicates, plus what was lost.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    bench::{BenchResult, LbResult, ProbeReport, SuiteResult},
    http::HttpReport,
    lateness::{Lateness, LatenessReport},
    limit::LimitedBy,
    load::{ConnectionTotals, LoadReport},
    plan::Plan,
    socket::SocketReport,
    timeline::{Distribution, Timeline},
};

pub use wb_measure::Summary;

/// The value of `schema` in reports of this version.
pub const REPORT_SCHEMA: &str = "wirebench.report/1";

/// The final account of one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// Version of this format: `wirebench.report/1`.
    pub schema: String,
    /// `trial`, `tx`, `rx` or `run`.
    pub kind: String,
    /// Whether the run met what was asked.
    pub verdict: Verdict,
    /// Why, in a sentence.
    pub reason: String,
    /// What kept the rate from being higher, in a sentence: the plan, the tester, or the device.
    pub limited_by: LimitedBy,
    /// When it began, wall clock, RFC 3339 in UTC.
    pub started: String,
    /// From the first worker's start to the last counter read.
    pub elapsed_ns: u64,
    /// The plan as it was run, defaults and resolved addresses included.
    pub plan: Plan,
    /// Number of the first flow in the test tags of the run, by which it knew its own frames. Flows of the report are
    /// counted from it: `flow` + `first_flow` is the number in the tag. Absent in a run that only receives and does not
    /// know the first flow: there `flow` is the number in the tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_flow: Option<u32>,
    /// Sums over all jobs.
    pub totals: Totals,
    /// Rates over the sending time; received frames over the receiving time if that is longer.
    pub rates: Rates,
    /// Receive stamp minus transmit stamp of each original frame.
    pub latency_ns: Summary,
    /// |D(i) − D(i−1)| of successive arrivals of a flow (OSTA; RFC 4689 for frames in order).
    pub jitter_ns: Summary,
    /// RFC 3550 smoothed jitter at the end of the run, in ns; the largest of all flows.
    #[serde(default)]
    pub jitter_rfc3550_ns: Option<f64>,
    /// D(i) − D(i−1) of consecutive sequence numbers, signed (RFC 3393, RFC 5481 section 4.1). Pairs of which a frame is lost
    /// or reordered are left out.
    pub ipdv_ns: Summary,
    /// D(i) − min D (RFC 5481 section 4.2), from the latency histogram.
    pub pdv_ns: Summary,
    /// Time between successive arrivals at a worker.
    pub inter_arrival_ns: Summary,
    /// Time between successive departures of a stream, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inter_departure_ns: Option<Summary>,
    /// Largest relative error of a percentile, from the width of the histogram's buckets.
    #[serde(default)]
    pub percentile_error: f64,
    /// Each job (and each direction of a bidirectional one) by itself.
    #[serde(default)]
    pub jobs: Vec<JobReport>,
    /// Flows; those with most trouble first where there are more than are listed.
    #[serde(default)]
    pub flows: Vec<FlowReport>,
    /// Flows that are counted in the totals and not listed.
    #[serde(default)]
    pub flows_omitted: u64,
    /// Workers.
    #[serde(default)]
    pub workers: Vec<WorkerReport>,
    /// Ports with what the device itself counted.
    #[serde(default)]
    pub ports: Vec<PortReport>,
    /// Criteria and how each came out.
    #[serde(default)]
    pub criteria: Vec<CriterionReport>,
    /// Where the frames of a capture went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<CaptureReport>,
    /// The same by name, in runs of several captures.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub captures: BTreeMap<String, CaptureReport>,
    /// What became of connections, job by job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadReport>,
    /// What HTTP loads measured, job by job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpReport>,
    /// What socket tests measured, test by test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<SocketReport>,
    /// The limits that a benchmark found, one for each test and frame size, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<BenchResult>,
    /// What the probes of the device read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<ProbeReport>,
    /// How late the tester was, and what of the result that may have caused.
    #[serde(default)]
    pub lateness: LatenessReport,
    /// Clocks and stamps.
    pub clock: ClockReport,
    /// Where it was measured, and with what.
    #[serde(default)]
    pub environment: EnvironmentReport,
    /// What was counted in the course of it.
    #[serde(default, skip_serializing_if = "Timeline::is_empty")]
    pub timeline: Timeline,
    /// How times were distributed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distributions: Vec<Distribution>,
    /// What the reader must know to trust the figures, a sentence each.
    #[serde(default)]
    pub warnings: Vec<String>,
}

impl Report {
    /// The limits of a load balancer that a benchmark found.
    pub fn lb_results(&self) -> impl Iterator<Item = &LbResult> {
        self.results.iter().filter_map(|result| match result {
            BenchResult::Lb(result) => Some(&**result),
            BenchResult::Suite(_) => None,
        })
    }

    /// What the tests of a suite found.
    pub fn suite_results(&self) -> impl Iterator<Item = &SuiteResult> {
        self.results.iter().filter_map(|result| match result {
            BenchResult::Suite(result) => Some(&**result),
            BenchResult::Lb(_) => None,
        })
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It ran to its end, and all criteria held.
    Pass,
    /// It ran to its end, and no criteria were set.
    Completed,
    /// A criterion did not hold.
    Fail,
    /// The figures say nothing about the device: the tester may be the cause, nothing arrived, or less than 98 % of the
    /// intended load was offered.
    Invalid,
    /// A signal or a fault ended it before its planned end.
    #[default]
    Incomplete,
}

/// Frames, counted each once. A field is absent (null) where that side was not part of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Totals {
    /// Asked for: rate × time (rounded up), or the count. At rate `max` it is what was offered.
    pub intended_frames: Option<u64>,
    /// Taken by the device: really sent.
    pub offered_frames: Option<u64>,
    /// Intended − offered; never loss.
    pub unsent_frames: Option<u64>,
    /// Arrivals of ours, duplicates included.
    pub received_frames: Option<u64>,
    /// Offered − (received − duplicate). In a run that only receives: gaps in the sequence numbers.
    pub lost_frames: Option<u64>,
    /// Arrivals of a sequence number that had been seen.
    pub duplicate_frames: Option<u64>,
    /// Originals that arrived after a later one (RFC 4689 section 3.2.4).
    pub reordered_frames: Option<u64>,
    /// Arrived during the drain; counted as received.
    pub late_frames: Option<u64>,
    /// Not ours: without a tag of this run.
    pub foreign_frames: Option<u64>,
    /// Foreign frames with a test tag: of another run, or of pktgen if the plan has no stream of it.
    #[serde(default)]
    pub unplanned_frames: Option<u64>,
    /// Foreign frames of another run: with its flows, or stamped before the first departure of this run.
    #[serde(default)]
    pub other_run_frames: Option<u64>,
    /// In a run that only receives: sequence numbers below the first one seen of each flow. These frames were sent before
    /// the receiver began, or lost at the beginning. Not part of `lost_frames`.
    #[serde(default)]
    pub head_frames: Option<u64>,
    /// Reached our port and were dropped by us: no room in our rings, or (the live driver where CPUs take turns) no turn.
    pub rx_dropped_frames: Option<u64>,
    /// Offered octets, FCS included.
    pub offered_octets: Option<u64>,
    /// Received octets of ours, FCS included.
    pub received_octets: Option<u64>,
    /// Sent during the ramp, before counting began; in a run that only receives, received of such frames.
    pub ramp_frames: Option<u64>,
    /// Frames the device refused and that were therefore not offered.
    pub refused_frames: Option<u64>,
    /// In runs of loads: the connections of all clients or, without clients, of all servers.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<ConnectionTotals>,
}

impl Totals {
    /// Whether offered = (received − duplicate) + lost and intended = offered + unsent, where all
    /// of them are known.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        let conserved = match (
            self.offered_frames,
            self.received_frames,
            self.duplicate_frames,
            self.lost_frames,
        ) {
            (Some(offered), Some(received), Some(duplicate), Some(lost)) => {
                received
                    .checked_sub(duplicate)
                    .and_then(|unique| unique.checked_add(lost))
                    == Some(offered)
            }
            _ => true,
        };
        let sent = match (
            self.intended_frames,
            self.offered_frames,
            self.unsent_frames,
        ) {
            (Some(intended), Some(offered), Some(unsent)) => {
                offered.checked_add(unsent) == Some(intended)
            }
            _ => true,
        };
        conserved && sent && self.connections.is_none_or(|c| c.adds_up())
    }

    /// Field by field sum; a field is known when either side knows it.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let add = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0) + b.unwrap_or(0)),
        };
        macro_rules! sum {
            ($($field:ident)*) => {
                Self { $($field: add(self.$field, other.$field),)* ..*self }
            };
        }
        let frames = sum! {
            intended_frames offered_frames unsent_frames received_frames lost_frames duplicate_frames
            reordered_frames late_frames foreign_frames unplanned_frames
            other_run_frames head_frames rx_dropped_frames offered_octets received_octets
            ramp_frames refused_frames
        };
        Self {
            connections: match (self.connections, other.connections) {
                (Some(a), Some(b)) => Some(a.plus(&b)),
                (a, b) => a.or(b),
            },
            ..frames
        }
    }
}

/// Rates of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rates {
    /// Frames per second asked for; absent at `max`.
    pub intended_pps: Option<f64>,
    /// Offered frames ÷ sending time.
    pub offered_pps: Option<f64>,
    /// Received frames ÷ the longer of sending time and receiving time: what the device carried. In a run that only
    /// receives as `while_receiving_pps`.
    pub received_pps: Option<f64>,
    /// With FCS, preamble and gap.
    pub offered_l1_bps: Option<f64>,
    /// With FCS, preamble and gap.
    pub received_l1_bps: Option<f64>,
    /// With FCS.
    pub offered_l2_bps: Option<f64>,
    /// With FCS.
    pub received_l2_bps: Option<f64>,
    /// What the link carries at this frame size; absent where the speed is unknown or nominal.
    pub line_rate_pps: Option<f64>,
    /// Most frames sent in one go to make up for a delay of the sender.
    pub largest_catch_up_frames: Option<u64>,
    /// Sending time in ns: from the start of the schedule to the last departure.
    pub tx_time_ns: Option<u64>,
    /// From the first to the last frame received, in ns.
    pub rx_time_ns: Option<u64>,
    /// Received frames per second from the first to the last one: (n − 1) ÷ (last − first). Higher than the rate that the
    /// device carried if it was silent at the beginning or the end.
    #[serde(default)]
    pub while_receiving_pps: Option<f64>,
    /// `while_receiving_pps` in bits per second, with FCS.
    #[serde(default)]
    pub while_receiving_l2_bps: Option<f64>,
}

/// One job, or one direction of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct JobReport {
    /// Name from the plan, or `job 1`.
    pub name: String,
    /// Sending port.
    pub tx: Option<String>,
    /// Receiving port.
    pub rx: Option<String>,
    /// Counts.
    pub totals: Totals,
    /// Rates.
    pub rates: Rates,
    /// Receive stamp minus transmit stamp.
    pub latency_ns: Summary,
    /// D(i) − D(i−1) of consecutive sequence numbers, signed (RFC 3393).
    #[serde(default)]
    pub ipdv_ns: Summary,
    /// D(i) − min D (RFC 5481).
    #[serde(default)]
    pub pdv_ns: Summary,
    /// Time between successive arrivals at a worker.
    #[serde(default)]
    pub inter_arrival_ns: Summary,
    /// The highest sequence number that was skipped; of one flow in order, the last frame that was lost before others
    /// came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_skipped: Option<u64>,
    /// What each stream sent.
    pub streams: Vec<StreamReport>,
}

/// What one stream sent.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct StreamReport {
    /// Name from the plan, or `stream 1`.
    pub name: String,
    /// First flow of the stream, counted from the first of the run.
    pub first_flow: u32,
    /// Flows.
    pub flows: u32,
    /// The drivers that it went by, at the sending and at the receiving end: `live to xdp`; of an end alone, its own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Counts.
    pub totals: Totals,
}

/// One flow.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct FlowReport {
    /// Its number in the run, from 0 on: see `first_flow` of the report.
    pub flow: u32,
    /// Stream it belongs to, where known.
    pub stream: Option<String>,
    /// Counts.
    pub totals: Totals,
    /// Latency; percentiles are kept for the whole run only.
    pub latency_ns: Summary,
}

/// One worker.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct WorkerReport {
    /// Port name.
    pub port: String,
    /// Queue.
    pub queue: u32,
    /// `tx`, `rx` or `tx+rx`.
    pub role: String,
    /// CPU it was pinned to.
    pub cpu: Option<u32>,
    /// Counts of this worker. Loss is known for whole flows only, so it is absent here.
    pub totals: Totals,
    /// Latency of the frames this worker received.
    pub latency_ns: Summary,
    /// System calls made for sending.
    pub kicks: u64,
    /// Times the device was full.
    pub full_events: u64,
    /// Share of loop turns in which there was something to do, 0 to 1.
    pub busy: f64,
    /// How late it was.
    #[serde(default)]
    pub lateness: Lateness,
}

/// One port.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PortReport {
    /// Name from the plan.
    pub name: String,
    /// Locator with the driver that was taken.
    pub locator: String,
    /// Driver.
    pub driver: String,
    /// How the driver works here.
    pub mode: String,
    /// Why this driver.
    pub chosen_because: String,
    /// Hardware address.
    pub mac: String,
    /// Interface MTU.
    pub mtu: u32,
    /// Kernel driver of the interface.
    pub kernel_driver: String,
    /// Link speed in bit/s where known.
    pub speed_bps: Option<u64>,
    /// The speed is only claimed (veth, tap).
    pub speed_nominal: bool,
    /// Who took the receive stamps.
    pub timestamp_source: String,
    /// The device behind the interface, as it says; absent for memory and files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic: Option<NicReport>,
    /// Neighbours that were resolved: address → hardware address.
    pub neighbours: BTreeMap<String, String>,
    /// Where several jobs have opened it, each with sockets of its own: how. The first is what is said above.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<PortUser>,
    /// How often its link went down under senders, the worst of its workers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub link_downs: u64,
    /// Frames that the interface of a port that receives streams dropped, besides those that our own rings had no
    /// room for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub interface_drops: u64,
    /// The device's counters before the run.
    pub before: BTreeMap<String, u64>,
    /// The device's counters after the run.
    pub after: BTreeMap<String, u64>,
}

const fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// The device behind an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NicReport {
    /// Version of the kernel driver, which is often that of the kernel.
    pub driver_version: String,
    /// Version of the firmware; empty where it has none.
    pub firmware: String,
    /// Where the device sits: `0000:03:00.0`; empty for virtual ones.
    pub bus: String,
    /// Vendor and device by the numbers of PCI: `8086:10fb`; empty for others.
    pub pci_id: String,
}

/// Where a run was measured, and with what. Text that is not known is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EnvironmentReport {
    /// The program and its version: `wirebench 0.1.0`.
    pub tool: String,
    /// Name of the host.
    pub host: String,
    /// Kernel with release and version: `Linux 6.1.0-44-amd64 #1 SMP …`.
    pub kernel: String,
    /// Of the machine: `x86_64`.
    pub architecture: String,
    /// Model of the first CPU.
    pub cpu: String,
    /// CPUs that were online.
    pub cpus: u32,
    /// Memory, bytes.
    pub memory_bytes: u64,
}

/// How some of the jobs that share a port have opened it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PortUser {
    /// Which: their kind, and the name of one that has opened it for itself alone.
    pub jobs: String,
    /// Locator with the driver that was taken.
    pub locator: String,
    /// How the driver works here.
    pub mode: String,
    /// Why this driver.
    pub chosen_because: String,
    /// Who took the receive stamps.
    pub timestamp_source: String,
}

/// Where the frames of a capture went: F = W + K + E + Q + C + U.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CaptureReport {
    /// F: frames that passed the filter.
    pub filter_accept_frames: u64,
    /// W: frames that are whole in the output; without an output, those that were counted.
    pub captured_frames: u64,
    /// K: frames dropped by the kernel for want of room.
    pub kernel_drop_frames: u64,
    /// E: frames that were read and are not in the output.
    pub not_written_frames: u64,
    /// Q: frames dropped by readers for want of buffers, where that was asked for.
    pub queue_drop_frames: u64,
    /// C: frames read after the limit was reached.
    pub over_limit_frames: u64,
    /// U: frames that passed the filter and were never read.
    pub not_read_frames: u64,
    /// Frames that the interfaces themselves dropped, before any filter.
    pub interface_drop_frames: u64,
    /// Whether all of it adds up.
    pub exact: bool,
    /// Why frames could not be written.
    pub write_error: Option<String>,
    /// Files begun.
    pub files: u64,
    /// The last of them.
    pub last_file: Option<String>,
    /// Bytes of all files together.
    pub file_octets: u64,
    /// Finished files that were removed for want of room on the disk.
    #[serde(default)]
    pub files_removed: u64,
    /// The filter as written.
    pub filter: String,
    /// Bytes of each frame that are kept.
    pub snap_len: u32,
    /// Bytes of the receive rings together, as asked for.
    pub ring_bytes: u64,
    /// When a block that is not full is handed over, ms.
    pub block_timeout_ms: f64,
    /// Times the kernel found a ring full.
    pub ring_freezes: u64,
    /// The longest time between two looks of a reader at its port, ms.
    pub longest_gap_ms: f64,
    /// The longest that a buffer took to be written, ms.
    pub longest_write_ms: f64,
    /// What half of the buffers took at most, ms.
    #[serde(default)]
    pub write_p50_ms: f64,
    /// What 99 of 100 buffers took at most, ms.
    #[serde(default)]
    pub write_p99_ms: f64,
    /// Times a reader had to wait for a buffer.
    pub buffer_waits: u64,
    /// Buffers between readers and writer.
    pub buffers: u64,
    /// The fewest that were empty at once.
    pub buffers_fewest: u64,
    /// Each reader.
    pub readers: Vec<CaptureReaderReport>,
}

/// One reader of a capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CaptureReaderReport {
    /// Port name.
    pub port: String,
    /// Queue.
    pub queue: u32,
    /// CPU it was pinned to, if any.
    pub cpu: Option<u32>,
    /// Frames read that passed all filters.
    pub read_frames: u64,
    /// Octets of these, with FCS.
    pub read_octets: u64,
    /// Frames that the kernel dropped.
    pub kernel_drop_frames: u64,
    /// The kernel's own counters, by its names, of which the others are made. A frame may be in two
    /// of them: `rx_fill_ring_empty_descs` is in `rx_dropped`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kernel_counters: BTreeMap<String, u64>,
    /// The longest time between two looks at the port, ms.
    pub longest_gap_ms: f64,
}

/// One criterion.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CriterionReport {
    /// As written.
    pub criterion: String,
    /// What was measured; absent when there was nothing to measure.
    pub measured: Option<f64>,
    /// Whether it held.
    pub held: bool,
}

/// Clocks and stamps.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ClockReport {
    /// The kernel's clock source.
    pub source: String,
    /// Smallest step of the clock that was seen, ns.
    pub resolution_ns: u64,
    /// Cost of one reading, ns.
    pub read_cost_ns: u64,
    /// How far the wall clock was stepped during the run, ns.
    pub step_ns: i64,
    /// Whether sender and receiver used the same clock.
    pub same_clock: bool,
    /// The most by which a latency may be too short for want of better clocks, ns: the step of the
    /// clock, and where XDP stamps are monotonic the error of their conversion. Null where the
    /// sender's clock is not known.
    #[serde(default)]
    pub error_ns: Option<u64>,
    /// Where the transmit stamp is taken.
    pub tx_stamp: String,
    /// Where the receive stamp is taken, by port.
    pub rx_stamp: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_that_do_not_add_up_are_found() {
        let good = Totals {
            intended_frames: Some(11),
            offered_frames: Some(10),
            unsent_frames: Some(1),
            received_frames: Some(9),
            duplicate_frames: Some(2),
            lost_frames: Some(3),
            ..Totals::default()
        };
        assert!(good.adds_up());
        assert!(
            !Totals {
                lost_frames: Some(2),
                ..good
            }
            .adds_up()
        );
        assert!(
            !Totals {
                unsent_frames: Some(0),
                ..good
            }
            .adds_up()
        );
        assert!(
            !Totals {
                duplicate_frames: Some(10),
                ..good
            }
            .adds_up()
        );
        assert!(good.plus(&good).adds_up());
        assert!(Totals::default().adds_up());
    }
}
