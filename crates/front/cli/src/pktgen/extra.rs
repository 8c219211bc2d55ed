//! Files that the kernel's packet generator does not have. These files are found by name but not listed, so that
//! scripts which walk the folder find only known files.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wb_model::{Report, text::plan_to_toml, units::WIRE_OVERHEAD};
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
                device.map_or_else(String::new, |d| pretty(&device_json(d, from)))
            }
            Self::Result => match from.report {
                Some(report) => wb_render::json::report(report) + "\n",
                None => "null\n".to_owned(),
            },
            Self::Receiver => pretty(&receiver_json(from)),
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

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Returns the rates including FCS, preamble and gap, as on the wire.
#[allow(clippy::cast_precision_loss)]
fn rates(packets: u64, octets: Option<u64>, ns: u64) -> Value {
    if ns == 0 {
        return Value::Null;
    }
    let per_second = |n: u64| n as f64 * 1e9 / ns as f64;
    json!({
        "pps": per_second(packets),
        "l2_bps": octets.map(|o| per_second(o * 8)),
        "l1_bps": octets.map(|o| per_second((o + packets * u64::from(WIRE_OVERHEAD)) * 8)),
    })
}

fn device_json(device: &PktgenDevice, from: &Sources<'_>) -> Value {
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
    json!({
        "schema": "wirebench.pktgen-device/1",
        "device": device.name(),
        "interface": device.interface(),
        "cpu": device.cpu(),
        "state": state,
        "result": device.result_text(),
        "sent_frames": progress.sofar,
        "unsent_frames": unsent,
        "errors": progress.errors,
        "refused_frames": outcome.map(|o| o.refused_frames),
        "withdrawn_frames": outcome.map(|o| o.withdrawn_frames),
        "offered_octets": outcome.map(|o| o.offered_octets),
        "elapsed_ns": elapsed,
        "idle_ns": progress.idle_ns,
        "rates": rates(progress.sofar, outcome.map(|o| o.offered_octets), elapsed),
        "pps_now": if device.is_running() { from.rates.pps(device.name()) } else { None },
        "flows_started": progress.flows,
        "imix_built": progress.imix_counts,
        "send_calls": outcome.map(|o| o.kicks),
        "device_full_events": outcome.map(|o| o.full_events),
        "encrypted": false,
        "settings": device.config(),
    })
}

fn sample_json(sample: &CpuSample) -> Value {
    if sample.samples == 0 {
        return Value::Null;
    }
    json!({
        "average_ns": number(sample.average()),
        "variance_ns2": number(sample.variance()),
        "min_ns": sample.min,
        "max_ns": sample.max,
        "samples": sample.samples,
    })
}

/// Some JSON readers do not support 128-bit numbers.
fn number(value: u128) -> Value {
    u64::try_from(value).map_or_else(|_| json!(value.to_string()), |v| json!(v))
}

fn row_json(cpu: Option<u32>, row: &CpuStatistics) -> Value {
    let (pps, bps) = row.rates();
    json!({
        "cpu": cpu,
        "packets": row.packets,
        "bytes": row.bytes,
        "work_us": row.work_us(),
        "pps": number(pps),
        "bps": number(bps),
        "inter_arrival": sample_json(&row.inter_arrival),
        "jitter": sample_json(&row.jitter),
        "latency": sample_json(&row.latency),
    })
}

fn receiver_json(from: &Sources<'_>) -> Value {
    let receiver = from.folder.receiver();
    let rows: Vec<Value> = receiver
        .rows()
        .map(|(cpu, row)| row_json(Some(cpu), row))
        .collect();
    let global = CpuStatistics::global(receiver.rows().map(|(_, row)| row));
    let extras = from.reception.map(Reception::extras).unwrap_or_default();
    // A queue that received only a part of the packets misses packets of other queues.
    let alone = receiver.rows().filter(|(_, row)| row.packets > 0).count() == 1;
    let queues: Vec<Value> = extras
        .iter()
        .map(|(port, cpu, extra)| extra_json(port, *cpu, alone, extra))
        .collect();
    json!({
        "schema": "wirebench.pgrx/1",
        "enabled": receiver.mode().is_some(),
        "mode": receiver.mode(),
        "interface": receiver.device(),
        "takes_latency": receiver.takes_latency(),
        "cpus": rows,
        "global": row_json(None, &global),
        "queues": queues,
    })
}

/// Returns the sequence and distribution results of one receive queue.
fn extra_json(port: &str, cpu: u32, alone: bool, extra: &WatchExtras) -> Value {
    let c = &extra.counters;
    let told = |n: u64| (alone && extra.sequence_is_plain).then_some(n);
    json!({
        "interface": port,
        "cpu": cpu,
        "sequence_is_plain": extra.sequence_is_plain,
        "missing_frames": told(c.missing_frames),
        "duplicate_frames": told(c.duplicate_frames),
        "reordered_frames": told(c.reordered_frames),
        "latency_ns": summary_json(&extra.latency_ns),
        "inter_arrival_ns": summary_json(&extra.inter_arrival_ns),
    })
}

fn summary_json(s: &wb_measure::Summary) -> Value {
    serde_json::to_value(s).unwrap_or_default()
}
