//! Report: the final result of a run, with the same format for every engine and every output.
//!
//! Invariant, checked by [`Totals::adds_up`] for each report: offered = (received − duplicates) + lost.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wb_figures::{Section, merge_fields};
use wb_measure::EncodedHistogram;

use crate::{
    bench::{self, BenchResult, ProbeReport, SuiteResult, probe_figures, results_form},
    capture,
    criteria::measured_text,
    fleet::HostReport,
    frames::{self, FRAME_TOTALS},
    http::{self, HttpReport},
    lateness::{Lateness, LatenessReport},
    limit::LimitedBy,
    load::{self, ConnectionTotals, LoadReport},
    peer::PairClock,
    plan::Plan,
    socket::{self, SocketReport},
    timeline::{Distribution, Timeline},
};

pub use wb_measure::{Summary, Times};

/// Value of `schema` in reports of this version.
pub const REPORT_SCHEMA: &str = "wirebench.report/1";

/// Final result of one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// Version of this format: `wirebench.report/1`.
    pub schema: String,
    /// `trial`, `tx`, `rx` or `run`.
    pub kind: String,
    /// Verdict over all criteria.
    pub verdict: Verdict,
    /// Reason for the verdict, one sentence.
    pub reason: String,
    /// Limit of the rate, one sentence: the plan, the tester, or the device.
    pub limited_by: LimitedBy,
    /// Start of the run, wall clock, RFC 3339 in UTC.
    pub started: String,
    /// Time from the start of the first worker to the last read of a counter, in ns.
    pub elapsed_ns: u64,
    /// Plan of the run, including defaults and resolved addresses.
    pub plan: Plan,
    /// Number of the run's first flow in its test tags, which identify the run's frames. Flow numbers in the report are
    /// relative to it: `flow` + `first_flow` is the number in the tag. Absent in a run that only receives and does not
    /// know the first flow: there `flow` is the number in the tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_flow: Option<u32>,
    /// Totals of all jobs.
    pub totals: Totals,
    /// Rates over the sending time; for received frames over the receiving time if that is longer.
    pub rates: Rates,
    /// Latency in ns: receive timestamp minus transmit timestamp of each original frame.
    pub latency_ns: Summary,
    /// Jitter in ns: |D(i) − D(i−1)| of successive arrivals of a flow (OSTA; RFC 4689 for frames in order).
    pub jitter_ns: Summary,
    /// RFC 3550 smoothed jitter at the end of the run, in ns; the maximum over all flows.
    #[serde(default)]
    pub jitter_rfc3550_ns: Option<f64>,
    /// Delay variation D(i) − D(i−1) of consecutive sequence numbers, signed, in ns (RFC 3393, RFC 5481 section 4.1).
    /// Pairs with a lost or reordered frame are excluded.
    pub ipdv_ns: Summary,
    /// Delay variation D(i) − min D in ns (RFC 5481 section 4.2), from the latency histogram.
    pub pdv_ns: Summary,
    /// Time between successive arrivals at a worker, in ns.
    pub inter_arrival_ns: Summary,
    /// Time between successive departures of a stream, in ns; only if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inter_departure_ns: Option<Summary>,
    /// Maximum relative error of a percentile, due to the width of the histogram's buckets.
    #[serde(default)]
    pub percentile_error: f64,
    /// Outages of all flows; absent if the run does not number and receive frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outages: Option<OutageReport>,
    /// Results of each job, and of each direction of a bidirectional job.
    #[serde(default)]
    pub jobs: Vec<JobReport>,
    /// Flows. If there are too many to list, those with the most problems come first.
    #[serde(default)]
    pub flows: Vec<FlowReport>,
    /// Number of flows that are counted in the totals but not listed.
    #[serde(default)]
    pub flows_omitted: u64,
    /// Workers.
    #[serde(default)]
    pub workers: Vec<WorkerReport>,
    /// Ports, with the counters of the interface.
    #[serde(default)]
    pub ports: Vec<PortReport>,
    /// Criteria with their results.
    #[serde(default)]
    pub criteria: Vec<CriterionReport>,
    /// Frame accounting of a capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<CaptureReport>,
    /// Frame accounting by capture name, in runs of several captures.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub captures: BTreeMap<String, CaptureReport>,
    /// Results of connections, job by job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadReport>,
    /// Results of HTTP loads, job by job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpReport>,
    /// Results of socket tests, test by test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<SocketReport>,
    /// Results of a benchmark, one for each test and frame size, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "results_form")]
    #[schemars(with = "Vec<BenchResult>")]
    pub results: Vec<SuiteResult>,
    /// Counters that the probes of the device read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<ProbeReport>,
    /// Lateness of the tester, and its possible effect on the results.
    #[serde(default)]
    pub lateness: LatenessReport,
    /// Clocks and timestamps.
    pub clock: ClockReport,
    /// Environment of the measurement: program and host.
    #[serde(default)]
    pub environment: EnvironmentReport,
    /// Time series of the counters.
    #[serde(default, skip_serializing_if = "Timeline::is_empty")]
    pub timeline: Timeline,
    /// Distributions of times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distributions: Vec<Distribution>,
    /// All distributions at full resolution, if they were asked for (`--histograms`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub histograms: Vec<EncodedHistogram>,
    /// Warnings for the interpretation of the figures, one sentence each.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Runs that were merged into this report; empty for a single run. `started` is the start of the first run, and
    /// `plan` is its plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<MergedRun>,
    /// Hosts that carried out the plan together; empty for a run of one host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostReport>,
}

/// One of the runs of a merged report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MergedRun {
    /// Name of its report.
    pub name: String,
    /// Name of its host.
    pub host: String,
    /// Its start, in ns since the start of the first run.
    pub after_ns: u64,
    /// Its duration in ns.
    pub elapsed_ns: u64,
    /// Its own verdict.
    pub verdict: Verdict,
    /// Reason for its own verdict.
    pub reason: String,
}

impl Report {
    /// Sections of all jobs, kind by kind.
    #[must_use]
    pub fn sections(&self) -> Vec<Section<'_>> {
        let mut all = self.sections_of_jobs();
        all.extend(bench::sections(self));
        all
    }

    /// Sections of all jobs but benchmarks, kind by kind.
    #[must_use]
    pub fn sections_of_jobs(&self) -> Vec<Section<'_>> {
        let frames = frames::sections(self).into_iter();
        let jobs = frames
            .chain(load::figures::sections(self))
            .chain(http::figures::sections(self))
            .chain(socket::figures::sections(self))
            .chain(socket::figures::server(self))
            .chain(capture::figures::sections(self));
        jobs.chain(probe_figures::sections(&self.probes)).collect()
    }
}

impl Report {
    /// The jobs of loads, HTTP and captures without the rest of the report.
    #[must_use]
    pub fn jobs_alone(&self) -> Self {
        Self {
            load: self.load.clone(),
            http: self.http.clone(),
            capture: self.capture.clone(),
            captures: self.captures.clone(),
            ..Self::default()
        }
    }

    /// The jobs of each kind as one job, for a short view: all clients of loads or, without clients, all servers, and all
    /// HTTP loads. Captures stay apart.
    #[must_use]
    pub fn one_job_of_each_kind(&self) -> Self {
        let load = self.load.as_ref().and_then(LoadReport::as_one_job);
        let http = self.http.as_ref().and_then(HttpReport::as_one_job);
        Self {
            load: load.map(|job| LoadReport { jobs: vec![job] }),
            http: http.map(|job| HttpReport {
                jobs: vec![job],
                ..HttpReport::default()
            }),
            ..Self::jobs_alone(self)
        }
    }
}

/// Verdict of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The run ended as planned, and all criteria were met.
    Pass,
    /// The run ended as planned, and no criteria were set.
    Completed,
    /// At least one criterion was not met.
    Fail,
    /// The figures do not describe the device: the tester may be the cause, nothing arrived, or less than 98 % of the
    /// intended load was offered.
    Invalid,
    /// A signal or an error ended the run before its planned end.
    #[default]
    Incomplete,
}

/// Frame counts; each frame counts once. A field is null if that side was not part of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Totals {
    /// Intended frames: rate × time (rounded up), or the count. At rate `max`, the number of offered frames.
    pub intended_frames: Option<u64>,
    /// Frames sent: accepted by the interface.
    pub offered_frames: Option<u64>,
    /// Intended − offered; never counted as loss.
    pub unsent_frames: Option<u64>,
    /// Frames of the run that arrived, duplicates included.
    pub received_frames: Option<u64>,
    /// Offered − (received − duplicate). In a run that only receives: gaps in the sequence numbers.
    pub lost_frames: Option<u64>,
    /// Arrivals of a sequence number that had already arrived.
    pub duplicate_frames: Option<u64>,
    /// Originals that arrived after a later frame (RFC 4689 section 3.2.4).
    pub reordered_frames: Option<u64>,
    /// Frames that arrived during the drain; included in the received frames.
    pub late_frames: Option<u64>,
    /// Frames without a tag of this run.
    pub foreign_frames: Option<u64>,
    /// Foreign frames with a test tag of another run, or of pktgen if the plan has no pktgen stream.
    #[serde(default)]
    pub unplanned_frames: Option<u64>,
    /// Foreign frames of another run: with its flows, or with a timestamp before the first departure of this run.
    #[serde(default)]
    pub other_run_frames: Option<u64>,
    /// In a run that only receives: sequence numbers below the first received one of each flow. These frames were sent
    /// before the receiver started, or were lost at the start. Not part of `lost_frames`.
    #[serde(default)]
    pub head_frames: Option<u64>,
    /// Frames that reached the tester's port and were dropped there: the receive rings were full, or the live driver,
    /// with workers that share CPUs, did not run in time.
    pub rx_dropped_frames: Option<u64>,
    /// Octets offered, FCS included.
    pub offered_octets: Option<u64>,
    /// Octets of received frames of the run, FCS included.
    pub received_octets: Option<u64>,
    /// Frames sent during the ramp-up, before counting started; in a run that only receives, received frames of this
    /// kind.
    pub ramp_frames: Option<u64>,
    /// Frames that the interface refused and that therefore were not offered.
    pub refused_frames: Option<u64>,
    /// Loads: connections of all clients or, without clients, of all servers.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<ConnectionTotals>,
}

impl Totals {
    /// Returns true if offered = (received − duplicate) + lost and intended = offered + unsent. Equations with unknown
    /// fields are skipped.
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

    /// Returns the sum of each field; a field is known if either side knows it.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut all = *self;
        merge_fields(FRAME_TOTALS, &mut all, other);
        all.connections = match (self.connections, other.connections) {
            (Some(a), Some(b)) => Some(a.plus(&b)),
            (a, b) => a.or(b),
        };
        all
    }
}

/// Rates of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rates {
    /// Intended frames per second; absent at `max`.
    pub intended_pps: Option<f64>,
    /// Offered frames per second of sending time.
    pub offered_pps: Option<f64>,
    /// Received frames per second, over the longer of sending time and receiving time: the rate that the device
    /// forwarded. In a run that only receives, equal to `while_receiving_pps`.
    pub received_pps: Option<f64>,
    /// Offered bits per second with FCS, preamble and gap.
    pub offered_l1_bps: Option<f64>,
    /// Received bits per second with FCS, preamble and gap.
    pub received_l1_bps: Option<f64>,
    /// Offered bits per second with FCS.
    pub offered_l2_bps: Option<f64>,
    /// Received bits per second with FCS.
    pub received_l2_bps: Option<f64>,
    /// Line rate at this frame size, in frames per second; absent if the link speed is unknown or nominal.
    pub line_rate_pps: Option<f64>,
    /// Largest burst that was sent to catch up after a delay of the sender, in frames.
    pub largest_catch_up_frames: Option<u64>,
    /// Sending time in ns: from the start of the schedule to the last departure.
    pub tx_time_ns: Option<u64>,
    /// Receiving time in ns: from the first to the last received frame.
    pub rx_time_ns: Option<u64>,
    /// Received frames per second from the first to the last frame: (n − 1) ÷ (last − first). Higher than the rate that
    /// the device forwarded if it forwarded nothing at the start or the end.
    #[serde(default)]
    pub while_receiving_pps: Option<f64>,
    /// `while_receiving_pps` in bits per second, with FCS.
    #[serde(default)]
    pub while_receiving_l2_bps: Option<f64>,
}

/// Bytes of preamble and gap of a frame on the wire.
const WIRE_OVERHEAD: u64 = 20;

impl Rates {
    /// Sets the rates of received frames from the counts and from the times of sending and receiving: over the time of
    /// sending, or over that of receiving if it is longer. A device that went silent in the middle has not carried its
    /// earlier rate for the whole time.
    #[allow(clippy::cast_precision_loss)]
    pub fn set_received(&mut self, totals: &Totals) {
        let (received, octets) = (totals.received_frames, totals.received_octets);
        // One interval fewer than frames lies between the first frame and the last one.
        let frames_excluded = received.map(|n| n.saturating_sub(1));
        let octets_excluded = match (octets, received) {
            (Some(octets), Some(frames)) if frames > 0 => Some(octets - octets / frames),
            _ => None,
        };
        let (came, octets, over_ns) = match self.tx_time_ns {
            Some(tx) if self.rx_time_ns.is_none_or(|rx| rx <= tx) => (received, octets, Some(tx)),
            _ => (frames_excluded, octets_excluded, self.rx_time_ns),
        };
        let per = |n: Option<u64>, ns: Option<u64>| match (n, ns) {
            (Some(n), Some(ns)) if ns > 0 => Some(n as f64 * 1e9 / ns as f64),
            _ => None,
        };
        let bits = |octets: Option<u64>, ns| per(octets.map(|octets| octets.saturating_mul(8)), ns);
        let l1 = octets
            .zip(came)
            .map(|(octets, frames)| octets.saturating_add(frames.saturating_mul(WIRE_OVERHEAD)));
        self.received_pps = per(came, over_ns);
        self.received_l2_bps = bits(octets, over_ns);
        self.received_l1_bps = bits(l1, over_ns);
        self.while_receiving_pps = per(frames_excluded, self.rx_time_ns);
        self.while_receiving_l2_bps = bits(octets_excluded, self.rx_time_ns);
    }

    /// Returns the sum of the rates of jobs that run at the same time. A rate is known if one of them is.
    #[must_use]
    pub fn sum(each: impl Iterator<Item = Self> + Clone) -> Self {
        let mut few = each.clone();
        if let (Some(only), None) = (few.next(), few.next()) {
            return only;
        }
        let sum = |f: &dyn Fn(&Rates) -> Option<f64>| {
            each.clone()
                .map(|r| f(&r))
                .fold(None, |a: Option<f64>, b| match (a, b) {
                    (None, b) => b,
                    (a, None) => a,
                    (Some(a), Some(b)) => Some(a + b),
                })
        };
        Self {
            intended_pps: sum(&|r| r.intended_pps),
            offered_pps: sum(&|r| r.offered_pps),
            received_pps: sum(&|r| r.received_pps),
            offered_l1_bps: sum(&|r| r.offered_l1_bps),
            received_l1_bps: sum(&|r| r.received_l1_bps),
            offered_l2_bps: sum(&|r| r.offered_l2_bps),
            received_l2_bps: sum(&|r| r.received_l2_bps),
            line_rate_pps: sum(&|r| r.line_rate_pps),
            largest_catch_up_frames: None,
            tx_time_ns: each.clone().filter_map(|r| r.tx_time_ns).max(),
            rx_time_ns: each.clone().filter_map(|r| r.rx_time_ns).max(),
            while_receiving_pps: sum(&|r| r.while_receiving_pps),
            while_receiving_l2_bps: sum(&|r| r.while_receiving_l2_bps),
        }
    }
}

/// Results of one job, or of one direction of a job.
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
    /// Latency in ns: receive timestamp minus transmit timestamp.
    pub latency_ns: Summary,
    /// Delay variation D(i) − D(i−1) of consecutive sequence numbers, signed, in ns (RFC 3393).
    #[serde(default)]
    pub ipdv_ns: Summary,
    /// Delay variation D(i) − min D, in ns (RFC 5481).
    #[serde(default)]
    pub pdv_ns: Summary,
    /// Time between successive arrivals at a worker, in ns.
    #[serde(default)]
    pub inter_arrival_ns: Summary,
    /// Highest sequence number that was skipped; for one flow in order, the last frame that was lost before a later one
    /// arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_skipped: Option<u64>,
    /// Outages of the job's flows; absent if the job does not number and receive frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outages: Option<OutageReport>,
    /// Results of each stream.
    pub streams: Vec<StreamReport>,
    /// Reason why results are missing, if a part of the job ended early or its results did not arrive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<String>,
    /// Clocks of the two hosts, if sender and receiver are on different hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<PairClock>,
    /// Mean round trip of a job in both directions between two hosts, in ns: the mean latencies of both directions
    /// together, by the stamps alone. The offset of the clocks is not part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_mean_ns: Option<f64>,
}

/// Results of one stream.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct StreamReport {
    /// Name from the plan, or `stream 1`.
    pub name: String,
    /// First flow of the stream, relative to the first flow of the run.
    pub first_flow: u32,
    /// Number of flows.
    pub flows: u32,
    /// Drivers at the sending and at the receiving end: `live to xdp`; if the run has one end, its driver.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Counts.
    pub totals: Totals,
    /// Latency in ns; percentiles exist for the whole job only.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub latency_ns: Summary,
    /// Receive timestamp of the first frame, in ns since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_rx_ns: Option<u64>,
    /// Receive timestamp of the last frame, in ns since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_rx_ns: Option<u64>,
}

fn is_empty(summary: &Summary) -> bool {
    summary.samples == 0
}

/// One flow.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct FlowReport {
    /// Number of the flow in the run, from 0: see `first_flow` of the report.
    pub flow: u32,
    /// Stream of the flow, if known.
    pub stream: Option<String>,
    /// Counts.
    pub totals: Totals,
    /// Latency in ns; percentiles exist for the whole run only.
    pub latency_ns: Summary,
    /// Outages of the flow; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outages: Option<OutageReport>,
}

/// Outages: times without an arrival of a flow in which frames of the flow are missing. An outage begins with the last
/// arrival and ends with the next one. If no frame arrives any more, it ends with the last departure of the job; if none
/// ever arrived, it begins with the first departure. Shorter times than `outage_threshold` of the plan are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OutageReport {
    /// Number of outages, over all flows.
    pub outages: u64,
    /// Number of flows with outages.
    pub interrupted_flows: u64,
    /// Duration of the longest outage, in ns; 0 if there was none.
    pub outage_ns: u64,
    /// Begin of the longest outage, in ns since the start of the run; of a file, since its first frame. Absent if there was
    /// none.
    pub outage_begin_ns: Option<u64>,
    /// End of the longest outage, as `outage_begin_ns`.
    pub outage_end_ns: Option<u64>,
    /// Flow with the longest outage.
    pub outage_flow: Option<u32>,
    /// Outages that are only counted, because more than 65,536 flows had outages. One of them may be the longest.
    pub outages_not_kept: u64,
    /// Flows with unknown outages: several workers received them, and they lost frames.
    pub unknown_flows: u64,
}

impl OutageReport {
    /// Adds the outages of other flows.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let longest = match other.outage_ns > self.outage_ns {
            true => other,
            false => self,
        };
        Self {
            outages: self.outages.saturating_add(other.outages),
            interrupted_flows: self
                .interrupted_flows
                .saturating_add(other.interrupted_flows),
            outages_not_kept: self.outages_not_kept.saturating_add(other.outages_not_kept),
            unknown_flows: self.unknown_flows.saturating_add(other.unknown_flows),
            ..*longest
        }
    }
}

/// One worker.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct WorkerReport {
    /// Port name.
    pub port: String,
    /// Queue number.
    pub queue: u32,
    /// `tx`, `rx` or `tx+rx`.
    pub role: String,
    /// CPU of the worker, if pinned.
    pub cpu: Option<u32>,
    /// Counts of this worker. Loss is known for whole flows only, so the field is absent here.
    pub totals: Totals,
    /// Latency of the frames that this worker received, in ns.
    pub latency_ns: Summary,
    /// System calls made for sending.
    pub kicks: u64,
    /// Number of times that the interface's transmit queue was full.
    pub full_events: u64,
    /// Share of loop iterations with work to do, 0 to 1.
    pub busy: f64,
    /// Lateness of the worker.
    #[serde(default)]
    pub lateness: Lateness,
}

/// One port.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PortReport {
    /// Name from the plan.
    pub name: String,
    /// Locator with the selected driver.
    pub locator: String,
    /// Driver.
    pub driver: String,
    /// Mode in which the driver works here.
    pub mode: String,
    /// Reason why this driver was selected.
    pub chosen_because: String,
    /// Hardware address.
    pub mac: String,
    /// Interface MTU.
    pub mtu: u32,
    /// Kernel driver of the interface.
    pub kernel_driver: String,
    /// Link speed in bit/s, if known.
    pub speed_bps: Option<u64>,
    /// True if the link speed is nominal (veth, tap).
    pub speed_nominal: bool,
    /// Source of the receive timestamps.
    pub timestamp_source: String,
    /// Device behind the interface, as it identifies itself; absent for memory and file ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic: Option<NicReport>,
    /// Resolved neighbours: address → hardware address.
    pub neighbours: BTreeMap<String, String>,
    /// Users of a port that several jobs opened, each with its sockets. The fields above describe the first user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<PortUser>,
    /// Number of times that the link went down during sending, the maximum over the workers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub link_downs: u64,
    /// Time since the start of the run, in ns, at which the interface of a receiving port was first seen set down on
    /// the tester's host. Absent: it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_down_at_ns: Option<u64>,
    /// Frames that the interface of a receiving port dropped, in addition to frames dropped because the tester's rings
    /// were full.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub interface_drops: u64,
    /// Interface counters before the run.
    pub before: BTreeMap<String, u64>,
    /// Interface counters after the run.
    pub after: BTreeMap<String, u64>,
}

const fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Device behind an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NicReport {
    /// Version of the kernel driver, often equal to the version of the kernel.
    pub driver_version: String,
    /// Version of the firmware; empty if there is none.
    pub firmware: String,
    /// Bus address of the device: `0000:03:00.0`; empty for virtual devices.
    pub bus: String,
    /// PCI vendor and device ID: `8086:10fb`; empty for other devices.
    pub pci_id: String,
}

/// Environment of a run: program and host. Unknown texts are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EnvironmentReport {
    /// Program and version: `wirebench 0.1.0`.
    pub tool: String,
    /// Host name.
    pub host: String,
    /// Kernel with release and version: `Linux 6.1.0-44-amd64 #1 SMP …`.
    pub kernel: String,
    /// Architecture of the machine: `x86_64`.
    pub architecture: String,
    /// Model of the first CPU.
    pub cpu: String,
    /// Number of online CPUs.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
}

/// One user of a port that several jobs share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PortUser {
    /// Jobs of this user: their kind, and the name of a job that opened the port for itself.
    pub jobs: String,
    /// Locator with the selected driver.
    pub locator: String,
    /// Mode in which the driver works here.
    pub mode: String,
    /// Reason why this driver was selected.
    pub chosen_because: String,
    /// Source of the receive timestamps.
    pub timestamp_source: String,
}

/// Frame accounting of a capture: F = W + K + E + Q + C + U.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CaptureReport {
    /// F: frames that passed the filter.
    pub filter_accept_frames: u64,
    /// W: frames that are complete in the output; without an output, counted frames.
    pub captured_frames: u64,
    /// K: frames dropped by the kernel because the ring was full.
    pub kernel_drop_frames: u64,
    /// E: frames that were read and are not in the output.
    pub not_written_frames: u64,
    /// Q: frames dropped by readers because no buffer was free, if this was requested.
    pub queue_drop_frames: u64,
    /// C: frames read after the limit was reached.
    pub over_limit_frames: u64,
    /// U: frames that passed the filter and were never read.
    pub not_read_frames: u64,
    /// Frames dropped by the interfaces before any filter.
    pub interface_drop_frames: u64,
    /// True if the equation holds.
    pub exact: bool,
    /// Reason why frames could not be written.
    pub write_error: Option<String>,
    /// Number of files started.
    pub files: u64,
    /// Path of the last file.
    pub last_file: Option<String>,
    /// Size of all files together, in bytes.
    pub file_octets: u64,
    /// Finished files that were removed because the disk was full.
    #[serde(default)]
    pub files_removed: u64,
    /// Filter, as written.
    pub filter: String,
    /// Bytes kept of each frame.
    pub snap_len: u32,
    /// Total size of the receive rings in bytes, as requested.
    pub ring_bytes: u64,
    /// Time after which the kernel passes on a block that is not full, in ms.
    pub block_timeout_ms: f64,
    /// Number of times that the kernel found a ring full.
    pub ring_freezes: u64,
    /// Maximum time between two polls of a port by its reader, in ms.
    pub longest_gap_ms: f64,
    /// Maximum time to write a buffer, in ms.
    pub longest_write_ms: f64,
    /// Median time to write a buffer, in ms.
    #[serde(default)]
    pub write_p50_ms: f64,
    /// 99th percentile of the time to write a buffer, in ms.
    #[serde(default)]
    pub write_p99_ms: f64,
    /// Number of times that a reader waited for a buffer.
    pub buffer_waits: u64,
    /// Number of buffers between readers and writer.
    pub buffers: u64,
    /// Number of empty buffers; of a capture that has ended, at its end.
    #[serde(default)]
    pub buffers_free: u64,
    /// Minimum number of buffers that were empty at the same time.
    pub buffers_fewest: u64,
    /// Readers.
    pub readers: Vec<CaptureReaderReport>,
}

/// One reader of a capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CaptureReaderReport {
    /// Port name.
    pub port: String,
    /// Queue number.
    pub queue: u32,
    /// CPU of the reader, if pinned.
    pub cpu: Option<u32>,
    /// Frames read that passed all filters.
    pub read_frames: u64,
    /// Octets of these frames, with FCS.
    pub read_octets: u64,
    /// Frames that passed the filter.
    #[serde(default)]
    pub filter_accept_frames: u64,
    /// Frames dropped by the kernel.
    pub kernel_drop_frames: u64,
    /// Frames dropped for lack of a free buffer.
    #[serde(default)]
    pub queue_drop_frames: u64,
    /// Number of waits for a free buffer.
    #[serde(default)]
    pub buffer_waits: u64,
    /// Kernel counters with the kernel's names, from which the other fields are computed. A frame may be in two
    /// counters: `rx_fill_ring_empty_descs` is part of `rx_dropped`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kernel_counters: BTreeMap<String, u64>,
    /// Maximum time between two polls of the port, in ms.
    pub longest_gap_ms: f64,
}

/// Result of one criterion.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CriterionReport {
    /// Criterion, as written.
    pub criterion: String,
    /// Measured value; absent if there was nothing to measure.
    pub measured: Option<f64>,
    /// True if the criterion was met.
    pub held: bool,
}

impl CriterionReport {
    /// Returns the criterion with its measured value: `loss<=0.1% (measured 0.2 %)`.
    #[must_use]
    pub fn with_value(&self) -> String {
        let criterion = &self.criterion;
        match self.measured {
            Some(value) => format!("{criterion} (measured {})", measured_text(criterion, value)),
            None => format!("{criterion} (no data)"),
        }
    }
}

/// Clocks and timestamps.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ClockReport {
    /// Clock source of the kernel.
    pub source: String,
    /// Smallest observed step of the clock, in ns.
    pub resolution_ns: u64,
    /// Cost of one clock read, in ns.
    pub read_cost_ns: u64,
    /// Steps of the wall clock during the run, in ns.
    pub step_ns: i64,
    /// True if sender and receiver used the same clock.
    pub same_clock: bool,
    /// Maximum amount by which a latency may be too short due to clock errors, in ns: the step of the clock plus, for
    /// monotonic XDP timestamps, the error of their conversion. Null if the sender's clock is unknown.
    #[serde(default)]
    pub error_ns: Option<u64>,
    /// Point at which the transmit timestamp is taken.
    pub tx_stamp: String,
    /// Point at which the receive timestamp is taken, by port.
    pub rx_stamp: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_went_silent_has_not_carried_its_rate_until_then() {
        const S: u64 = 1_000_000_000;
        let totals = Totals {
            received_frames: Some(1000),
            received_octets: Some(64_000),
            ..Totals::default()
        };
        let over = |tx_time_ns, rx_time_ns| {
            let mut rates = Rates {
                tx_time_ns,
                rx_time_ns,
                ..Rates::default()
            };
            rates.set_received(&totals);
            (rates.received_pps, rates.received_l2_bps)
        };
        // Silent for three of four seconds.
        assert_eq!(over(Some(4 * S), Some(S)), (Some(250.0), Some(128_000.0)));
        // One frame arrived.
        assert_eq!(over(Some(4 * S), None), (Some(250.0), Some(128_000.0)));
        // A queue on the way empties after the last frame was sent.
        let while_receiving = (Some(999.0), Some(511_488.0));
        assert_eq!(over(Some(S / 2), Some(S)), while_receiving);
        // This run did not send.
        assert_eq!(over(None, Some(S)), while_receiving);
    }

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
