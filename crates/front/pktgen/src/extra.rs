//! Files that the kernel's packet generator does not have. These files are found by name but not listed, so that
//! scripts which walk the folder find only known files.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use wb_measure::Summary;
use wb_model::{
    Report,
    device::{DeviceConfig, Mode},
    schema::mismatch,
    text::plan_to_toml,
    units::WIRE_OVERHEAD,
};
use wb_pktgen::{control::PktgenFiles, device::PktgenDevice};
use wb_pktgen_device::{CpuSample, CpuStatistics, DeviceProgress};
use wb_session::devices::{DeviceOutcome, WatchExtras};

use super::{PlanOptions, rates::Rates, receive::Reception};

/// Kind of additional file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum File {
    /// `DEVICE.result.json`: result of one device.
    Device(String),
    /// `result.json`: the report of the last run.
    Result,
    /// `pgrx.json`: the receiver, including additional measurements.
    Receiver,
    /// `plan.toml`: plan that `start` would run, for `wirebench run`.
    Plan,
    /// `live`: current rates.
    Live,
}

/// Data from which the files are generated.
pub(crate) struct Sources<'a> {
    pub(crate) folder: &'a PktgenFiles,
    pub(crate) plans: &'a PlanOptions,
    /// Number of runs so far.
    pub(crate) runs: u64,
    pub(crate) report: Option<&'a Report>,
    pub(crate) outcomes: &'a BTreeMap<String, Outcome>,
    pub(crate) rates: &'a Rates,
    pub(crate) reception: Option<&'a Reception>,
    pub(crate) now_ns: u64,
}

/// Results of a worker for a stopped device, in addition to its counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    offered_octets: u64,
    refused_frames: u64,
    withdrawn_frames: u64,
    kicks: u64,
    full_events: u64,
}

impl Outcome {
    pub(crate) fn of(outcome: &DeviceOutcome) -> Self {
        Self {
            offered_octets: outcome.offered_octets,
            refused_frames: outcome.refused_frames,
            withdrawn_frames: outcome.withdrawn_frames,
            kicks: outcome.tx.kicks,
            full_events: outcome.tx.full_events,
        }
    }
}

impl File {
    /// Returns the file with this name, if any.
    pub(crate) fn find(name: &str, folder: &PktgenFiles) -> Option<Self> {
        Some(match name {
            "result.json" => Self::Result,
            "pgrx.json" => Self::Receiver,
            "plan.toml" => Self::Plan,
            "live" => Self::Live,
            _ => {
                let device = name.strip_suffix(".result.json")?;
                folder.devices().find(|d| d.name() == device)?;
                Self::Device(device.to_owned())
            }
        })
    }

    pub(crate) fn text(&self, from: &Sources<'_>) -> String {
        match self {
            Self::Device(name) => {
                let device = from.folder.devices().find(|d| d.name() == name);
                device.map_or_else(String::new, |d| pretty(&device_document(d, from)))
            }
            Self::Result => match from.report {
                Some(report) => wb_render::json::report(report) + "\n",
                None => "null\n".to_owned(),
            },
            Self::Receiver => pretty(&receiver_document(from)),
            Self::Plan => {
                let devices = from.folder.devices();
                let mut plan = from
                    .plans
                    .sending(devices.map(|d| (d.interface(), d.cpu(), d.config())));
                // Each run of a folder uses different random values.
                plan.seed = plan.seed.wrapping_add(from.runs);
                plan_to_toml(&plan)
            }
            Self::Live => from.rates.text(),
        }
    }
}

fn pretty<T: Serialize + JsonSchema>(document: &T) -> String {
    debug_assert_eq!(mismatch(document), None, "a document matches its schema");
    // The types of these documents can be written as JSON.
    let text = serde_json::to_string_pretty(document).unwrap_or_default();
    format!("{text}\n")
}

/// JSON document `DEVICE.result.json`: state and results of one packet device.
#[derive(Serialize, JsonSchema)]
pub struct PktgenDeviceDocument<'a> {
    /// `wirebench.pktgen-device/1`.
    schema: &'static str,
    /// Name of the device.
    device: &'a str,
    /// Interface that sends.
    interface: &'a str,
    /// CPU of the device.
    cpu: u32,
    /// `idle` (before the first run), `running` or `stopped`.
    state: &'static str,
    /// Line `Result` of pktgen.
    result: &'a str,
    /// Frames sent in this run.
    sent_frames: u64,
    /// Frames of the count that were not sent; null without a count and before the first run.
    unsent_frames: Option<u64>,
    /// Frames that the port refused.
    errors: u64,
    /// Frames that the port dropped before the wire; only after a run.
    refused_frames: Option<u64>,
    /// Frames taken back because the port did not accept them before the end; only after a run.
    withdrawn_frames: Option<u64>,
    /// Bytes that were sent, with FCS; only after a run.
    offered_octets: Option<u64>,
    /// Time since the start, in ns; after a run its duration.
    elapsed_ns: u64,
    /// Time spent waiting, in ns.
    idle_ns: u64,
    /// Mean rates since the start; null before the first run.
    rates: Option<PktgenRates>,
    /// Rate of the last interval, in frames per second; only while the device runs.
    pps_now: Option<f64>,
    /// Number of flows that were started.
    flows_started: u32,
    /// Frames built for each entry of the size mix.
    imix_built: &'a [u64],
    /// Number of send calls; only after a run.
    send_calls: Option<u64>,
    /// Number of times that the port was full; only after a run.
    device_full_events: Option<u64>,
    /// Always false: IPsec is not supported.
    encrypted: bool,
    /// Settings of the device, as in a plan.
    settings: &'a DeviceConfig,
}

/// Mean rates of a device.
#[derive(Serialize, JsonSchema)]
struct PktgenRates {
    /// Frames per second.
    pps: f64,
    /// Bits per second at layer 2 with FCS; only after a run.
    l2_bps: Option<f64>,
    /// Bits per second at layer 1: with FCS, preamble and gap; only after a run.
    l1_bps: Option<f64>,
}

#[allow(clippy::cast_precision_loss)]
fn rates(packets: u64, octets: Option<u64>, ns: u64) -> Option<PktgenRates> {
    let per_second = |n: u64| n as f64 * 1e9 / ns as f64;
    (ns > 0).then(|| PktgenRates {
        pps: per_second(packets),
        l2_bps: octets.map(|o| per_second(o * 8)),
        l1_bps: octets.map(|o| per_second((o + packets * u64::from(WIRE_OVERHEAD)) * 8)),
    })
}

fn device_document<'a>(device: &'a PktgenDevice, from: &Sources<'_>) -> PktgenDeviceDocument<'a> {
    let progress: &DeviceProgress = device.progress();
    let stopped = if device.is_running() {
        from.now_ns
    } else {
        progress.stopped_ns
    };
    let elapsed = stopped.saturating_sub(progress.started_ns);
    let outcome = from
        .outcomes
        .get(device.name())
        .filter(|_| !device.is_running());
    let state = match (device.is_running(), progress.started_ns) {
        (true, _) => "running",
        (false, 0) => "idle",
        _ => "stopped",
    };
    let unsent = (device.config().count > 0 && progress.started_ns > 0)
        .then(|| device.config().count.saturating_sub(progress.sofar));
    PktgenDeviceDocument {
        schema: "wirebench.pktgen-device/1",
        device: device.name(),
        interface: device.interface(),
        cpu: device.cpu(),
        state,
        result: device.result_text(),
        sent_frames: progress.sofar,
        unsent_frames: unsent,
        errors: progress.errors,
        refused_frames: outcome.map(|o| o.refused_frames),
        withdrawn_frames: outcome.map(|o| o.withdrawn_frames),
        offered_octets: outcome.map(|o| o.offered_octets),
        elapsed_ns: elapsed,
        idle_ns: progress.idle_ns,
        rates: rates(progress.sofar, outcome.map(|o| o.offered_octets), elapsed),
        pps_now: match device.is_running() {
            true => from.rates.pps(device.name()),
            false => None,
        },
        flows_started: progress.flows,
        imix_built: &progress.imix_counts,
        send_calls: outcome.map(|o| o.kicks),
        device_full_events: outcome.map(|o| o.full_events),
        encrypted: false,
        settings: device.config(),
    }
}

/// JSON document `pgrx.json`: results of the receiver.
#[derive(Serialize, JsonSchema)]
pub struct PgrxDocument<'a> {
    /// `wirebench.pgrx/1`.
    schema: &'static str,
    /// True if the receiver is on.
    enabled: bool,
    /// Measurement mode; null if the receiver is off.
    mode: Option<Mode>,
    /// Interface to which reception is restricted.
    interface: Option<&'a str>,
    /// True if packets give latency samples.
    takes_latency: bool,
    /// Results of each CPU that received packets.
    cpus: Vec<PgrxRow>,
    /// Results of all CPUs together.
    global: PgrxRow,
    /// Sequence and distribution results of each receive queue.
    queues: Vec<PgrxQueue<'a>>,
}

/// Results of one CPU, or of all.
#[derive(Serialize, JsonSchema)]
struct PgrxRow {
    /// Number of the CPU; null for all CPUs together.
    cpu: Option<u32>,
    /// Number of packets.
    packets: u64,
    /// Bytes: Ethernet header and IP packet, without FCS, tags and padding.
    bytes: u64,
    /// Time from the first to the last packet, in µs.
    work_us: u64,
    /// Packets per second.
    pps: Whole,
    /// Bits per second.
    bps: Whole,
    /// Time between packets.
    inter_arrival: Option<PgrxSample>,
    /// Change of latency, or of inter-arrival time in the older dialect.
    jitter: Option<PgrxSample>,
    /// Time from the timestamp in the packet to its arrival.
    latency: Option<PgrxSample>,
}

/// Statistics of a time.
#[derive(Serialize, JsonSchema)]
struct PgrxSample {
    /// Mean, in ns.
    average_ns: Whole,
    /// Variance, in ns².
    variance_ns2: Whole,
    /// Minimum, in ns.
    min_ns: u64,
    /// Maximum, in ns.
    max_ns: u64,
    /// Number of samples.
    samples: u64,
}

/// Whole number, as text beyond 64 bits because some JSON readers do not support larger numbers.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum Whole {
    /// Number of 64 bits.
    Number(u64),
    /// Larger number.
    Text(String),
}

impl From<u128> for Whole {
    fn from(value: u128) -> Self {
        u64::try_from(value).map_or_else(|_| Self::Text(value.to_string()), Self::Number)
    }
}

/// Sequence and distribution results of one receive queue.
#[derive(Serialize, JsonSchema)]
struct PgrxQueue<'a> {
    /// Interface of the queue.
    interface: &'a str,
    /// CPU of the queue.
    cpu: u32,
    /// True if no clones and no bursts were seen, so that gaps in the sequence numbers are losses.
    sequence_is_plain: bool,
    /// Missing packets; null if other queues received a part of them, or if the sequence is not plain.
    missing_frames: Option<u64>,
    /// Packets that arrived more than once; null as `missing_frames`.
    duplicate_frames: Option<u64>,
    /// Packets that arrived late; null as `missing_frames`.
    reordered_frames: Option<u64>,
    /// Latency, in ns.
    latency_ns: Summary,
    /// Time between packets, in ns.
    inter_arrival_ns: Summary,
}

fn sample(sample: &CpuSample) -> Option<PgrxSample> {
    (sample.samples > 0).then(|| PgrxSample {
        average_ns: sample.average().into(),
        variance_ns2: sample.variance().into(),
        min_ns: sample.min,
        max_ns: sample.max,
        samples: sample.samples,
    })
}

fn row(cpu: Option<u32>, row: &CpuStatistics) -> PgrxRow {
    let (pps, bps) = row.rates();
    PgrxRow {
        cpu,
        packets: row.packets,
        bytes: row.bytes,
        work_us: row.work_us(),
        pps: pps.into(),
        bps: bps.into(),
        inter_arrival: sample(&row.inter_arrival),
        jitter: sample(&row.jitter),
        latency: sample(&row.latency),
    }
}

fn receiver_document<'a>(from: &Sources<'a>) -> PgrxDocument<'a> {
    let receiver = from.folder.receiver();
    let cpus = receiver
        .rows()
        .map(|(cpu, counted)| row(Some(cpu), counted));
    let global = CpuStatistics::global(receiver.rows().map(|(_, row)| row));
    let extras = from.reception.map(Reception::extras).unwrap_or_default();
    // A queue that received only a part of the packets misses packets of other queues.
    let alone = receiver.rows().filter(|(_, row)| row.packets > 0).count() == 1;
    let queues = extras
        .iter()
        .map(|(port, cpu, extra)| queue(port, *cpu, alone, extra));
    PgrxDocument {
        schema: "wirebench.pgrx/1",
        enabled: receiver.mode().is_some(),
        mode: receiver.mode(),
        interface: receiver.device(),
        takes_latency: receiver.takes_latency(),
        cpus: cpus.collect(),
        global: row(None, &global),
        queues: queues.collect(),
    }
}

/// Returns the sequence and distribution results of one receive queue.
fn queue<'a>(port: &'a str, cpu: u32, alone: bool, extra: &WatchExtras) -> PgrxQueue<'a> {
    let c = &extra.counters;
    let told = |n: u64| (alone && extra.sequence_is_plain).then_some(n);
    PgrxQueue {
        interface: port,
        cpu,
        sequence_is_plain: extra.sequence_is_plain,
        missing_frames: told(c.missing_frames),
        duplicate_frames: told(c.duplicate_frames),
        reordered_frames: told(c.reordered_frames),
        latency_ns: extra.latency_ns,
        inter_arrival_ns: extra.inter_arrival_ns,
    }
}
