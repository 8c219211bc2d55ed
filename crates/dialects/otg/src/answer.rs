//! Answers: metrics, states, warnings and the version.

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Map, Value, json};

use crate::{
    config::PortConfig,
    flow::{Flow, LatencyMode, layer1_bits},
};

/// Range of client versions that this server works with, in a form that all clients can read.
const CLIENTS: &str = ">=1.0.0,<2.0.0";
/// Version of the models that this server follows.
const MODELS: &str = "1.61.0";

/// Rates of sent frames: frames, bits at layer 1, octets, and bits at layer 2 in three units, per second.
const TX_RATES: [&str; 6] = [
    "frames_tx_rate",
    "tx_l1_rate_bps",
    "tx_rate_bytes",
    "tx_rate_bps",
    "tx_rate_kbps",
    "tx_rate_mbps",
];
/// Rates of received frames.
const RX_RATES: [&str; 6] = [
    "frames_rx_rate",
    "rx_l1_rate_bps",
    "rx_rate_bytes",
    "rx_rate_bps",
    "rx_rate_kbps",
    "rx_rate_mbps",
];

/// Maximum number of warnings that an answer lists.
const MOST_WARNINGS: usize = 100;
/// Fields of the row of a flow that each row has.
const FLOW_KEYS: [&str; 3] = ["name", "port_tx", "port_rx"];

/// Answer to a request that succeeds.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// A document.
    Document(Value),
    /// A document as JSON text.
    Text(Vec<u8>),
    /// Contents of a file.
    File(Vec<u8>),
}

/// Transmit state of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transmit {
    /// It sends.
    Started,
    /// It pauses.
    Paused,
    /// It does not send.
    #[default]
    Stopped,
}

impl Transmit {
    const fn name(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
        }
    }
}

/// Latency of a flow in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LatencyFigures {
    /// Smallest.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// Largest.
    pub max: f64,
}

/// Figures of a flow since its last start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlowFigures {
    /// Transmit state.
    pub transmit: Transmit,
    /// Sent frames.
    pub frames_tx: u64,
    /// Octets of sent frames, with FCS.
    pub bytes_tx: u64,
    /// Sent frames that should have arrived by now.
    pub due_frames: u64,
    /// Received frames, with duplicates.
    pub frames_rx: u64,
    /// Octets of received frames, with FCS.
    pub bytes_rx: u64,
    /// Duplicates among the received frames.
    pub duplicates: u64,
    /// Frames that are missing before the last arrival.
    pub missing: u64,
    /// Sent frames per second.
    pub tx_pps: f64,
    /// Received frames per second.
    pub rx_pps: f64,
    /// Receive time of the first frame, in ns since 1970.
    pub first_ns: Option<u64>,
    /// Receive time of the last frame.
    pub last_ns: Option<u64>,
    /// Latency, from the handover of a frame to its arrival.
    pub latency: Option<LatencyFigures>,
}

/// Figures of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PortFigures {
    /// True if the link is up.
    pub is_up: bool,
    /// True if frames are captured.
    pub captures: bool,
    /// True if flows are sent.
    pub transmits: bool,
    /// Sent frames.
    pub frames_tx: u64,
    /// Received frames.
    pub frames_rx: u64,
    /// Octets of sent frames, with FCS.
    pub bytes_tx: u64,
    /// Octets of received frames, with FCS.
    pub bytes_rx: u64,
    /// Sent frames per second.
    pub tx_pps: f64,
    /// Received frames per second.
    pub rx_pps: f64,
    /// Octets sent per second.
    pub tx_rate: f64,
    /// Octets received per second.
    pub rx_rate: f64,
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn selected(row: Map<String, Value>, keys: &[&str], columns: &[String]) -> Value {
    if columns.is_empty() {
        return row.into();
    }
    let wanted = |key: &String| keys.contains(&key.as_str()) || columns.contains(key);
    Value::Object(row.into_iter().filter(|(key, _)| wanted(key)).collect())
}

#[allow(clippy::cast_precision_loss)]
fn ratio(whole: u64, parts: u64) -> f64 {
    match parts {
        0 => 0.0,
        parts => whole as f64 / parts as f64,
    }
}

/// The row of a flow.
struct FlowRow<'r> {
    flow: &'r Flow,
    figures: FlowFigures,
    speed: Option<u64>,
    columns: &'r [String],
}

/// A number as the text that clients expect for 64 bits.
struct Text(u64);

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

#[derive(Serialize)]
struct Timestamps {
    first_timestamp_ns: u64,
    last_timestamp_ns: u64,
}

#[derive(Serialize)]
struct Latency {
    average_ns: f64,
    maximum_ns: f64,
    minimum_ns: f64,
}

/// Writes those fields of a row that are selected.
struct RowWriter<'r, M> {
    map: M,
    columns: &'r [String],
}

impl<M: SerializeMap> RowWriter<'_, M> {
    fn put(
        &mut self,
        key: &'static str,
        value: &(impl Serialize + ?Sized),
    ) -> Result<(), M::Error> {
        let is_wanted = self.columns.is_empty()
            || FLOW_KEYS.contains(&key)
            || self.columns.iter().any(|column| column == key);
        match is_wanted {
            true => self.map.serialize_entry(key, value),
            false => Ok(()),
        }
    }

    fn rates(&mut self, keys: [&'static str; 6], pps: f64, size: f64) -> Result<(), M::Error> {
        let bytes = pps * size;
        let layer1 = pps * layer1_bits(size);
        let values = [pps, layer1, bytes, bytes * 8.0, bytes * 8e-3, bytes * 8e-6];
        let mut pairs = keys.into_iter().zip(values);
        pairs.try_for_each(|(key, value)| self.put(key, &rounded(value)))
    }
}

impl Serialize for FlowRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (flow, figures) = (self.flow, &self.figures);
        let mut row = RowWriter {
            map: serializer.serialize_map(None)?,
            columns: self.columns,
        };
        row.put("name", &flow.name)?;
        row.put("port_tx", &flow.tx)?;
        let only = (flow.rx.len() == 1).then(|| flow.rx[0].as_str());
        row.put("port_rx", only.unwrap_or_default())?;
        row.put("transmit", figures.transmit.name())?;
        row.put("frames_tx", &Text(figures.frames_tx))?;
        row.put("bytes_tx", &Text(figures.bytes_tx))?;
        let size = ratio(figures.bytes_tx, figures.frames_tx);
        row.rates(TX_RATES, figures.tx_pps, size)?;
        if flow.has_metrics && !flow.rx.is_empty() {
            self.put_received(&mut row, size)?;
        }
        row.map.end()
    }
}

impl FlowRow<'_> {
    /// Writes the fields of received frames. `size` is the mean size of those that were sent.
    #[allow(clippy::cast_precision_loss)]
    fn put_received<M: SerializeMap>(
        &self,
        row: &mut RowWriter<'_, M>,
        size: f64,
    ) -> Result<(), M::Error> {
        let (flow, figures) = (self.flow, &self.figures);
        let received = ratio(figures.bytes_rx, figures.frames_rx);
        row.rates(RX_RATES, figures.rx_pps, received)?;
        row.put("frames_rx", &Text(figures.frames_rx))?;
        row.put("bytes_rx", &Text(figures.bytes_rx))?;
        if flow.has_loss {
            let ratio = flow.ratio.unwrap_or(flow.rx.len() as f64);
            let expected = figures.due_frames as f64 * ratio;
            let distinct = figures.frames_rx.saturating_sub(figures.duplicates) as f64;
            // Without an expected frame, the loss is unknown.
            if expected > 0.0 {
                let lost = (expected - distinct).max(0.0);
                row.put("loss", &(lost / expected * 100.0))?;
            }
        }
        if flow.has_timestamps
            && let (Some(first), Some(last)) = (figures.first_ns, figures.last_ns)
        {
            let times = Timestamps {
                first_timestamp_ns: first,
                last_timestamp_ns: last,
            };
            row.put("timestamps", &times)?;
        }
        if let (Some(mode), Some(latency)) = (flow.latency, figures.latency) {
            // A frame is stamped when it is handed over and when it has arrived.
            let speed = self.speed.map(|speed| speed as f64);
            let serialisation = speed.map_or(0.0, |speed| (size + 8.0) * 8e9 / speed);
            let shift = match mode {
                LatencyMode::StoreForward => 0.0,
                LatencyMode::CutThrough => serialisation,
            };
            let ns = |value: f64| rounded(value + shift);
            let latency = Latency {
                average_ns: ns(latency.mean),
                maximum_ns: ns(latency.max),
                minimum_ns: ns(latency.min),
            };
            row.put("latency", &latency)?;
        }
        Ok(())
    }
}

/// The answer with these flows. `columns` selects fields; empty: all. There may be thousands of flows, so the answer is
/// written as text at once.
///
/// # Errors
/// Returns the reason if a figure is no number.
pub fn flow_metrics(
    rows: &[(&Flow, FlowFigures, Option<u64>)],
    columns: &[String],
) -> Result<Answer, String> {
    #[derive(Serialize)]
    struct FlowMetrics<'r> {
        choice: &'static str,
        flow_metrics: Vec<FlowRow<'r>>,
    }
    let rows = rows.iter().map(|(flow, figures, speed)| FlowRow {
        flow,
        figures: *figures,
        speed: *speed,
        columns,
    });
    let metrics = FlowMetrics {
        choice: "flow_metrics",
        flow_metrics: rows.collect(),
    };
    let text = serde_json::to_vec(&metrics).map_err(|error| error.to_string())?;
    Ok(Answer::Text(text))
}

/// The answer with these ports. `columns` selects fields; empty: all.
#[must_use]
pub fn port_metrics(rows: &[(&PortConfig, PortFigures)], columns: &[String]) -> Value {
    let row = |port: &PortConfig, figures: &PortFigures| {
        let word = |is_on| if is_on { "started" } else { "stopped" };
        let row = json!({
            "name": port.name,
            "location": port.location,
            "link": if figures.is_up { "up" } else { "down" },
            "capture": word(figures.captures),
            "transmit": word(figures.transmits),
            "frames_tx": figures.frames_tx.to_string(),
            "frames_rx": figures.frames_rx.to_string(),
            "bytes_tx": figures.bytes_tx.to_string(),
            "bytes_rx": figures.bytes_rx.to_string(),
            "frames_tx_rate": rounded(figures.tx_pps),
            "frames_rx_rate": rounded(figures.rx_pps),
            "bytes_tx_rate": rounded(figures.tx_rate),
            "bytes_rx_rate": rounded(figures.rx_rate),
        });
        let Value::Object(mut row) = row else {
            return Value::Null;
        };
        if let Some(speed) = port.speed {
            // In kilobytes per second.
            row.insert("speed".to_owned(), json!((speed / 8000).to_string()));
        }
        selected(row, &["name"], columns)
    };
    let rows: Vec<Value> = rows
        .iter()
        .map(|(port, figures)| row(port, figures))
        .collect();
    json!({ "choice": "port_metrics", "port_metrics": rows })
}

/// Neighbour of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighbourEntry {
    /// Name of the Ethernet interface of the device.
    pub ethernet: String,
    /// Address of the neighbour.
    pub address: std::net::IpAddr,
    /// Its hardware address, if it is known.
    pub mac: Option<[u8; 6]>,
}

/// The answer with these neighbours.
#[must_use]
pub fn neighbours(entries: &[NeighbourEntry], is_ipv6: bool) -> Value {
    let (choice, key) = match is_ipv6 {
        true => ("ipv6_neighbors", "ipv6_address"),
        false => ("ipv4_neighbors", "ipv4_address"),
    };
    let row = |entry: &NeighbourEntry| {
        let mut row = Map::new();
        row.insert("ethernet_name".to_owned(), json!(entry.ethernet));
        row.insert(key.to_owned(), json!(entry.address.to_string()));
        if let Some(mac) = entry.mac {
            let mac = wb_model::units::Mac(mac).to_string();
            row.insert("link_layer_address".to_owned(), json!(mac));
        }
        Value::Object(row)
    };
    let rows: Vec<Value> = entries.iter().map(row).collect();
    json!({ "choice": choice, choice: rows })
}

/// The answer to a change.
#[must_use]
pub fn warnings(warnings: &[String]) -> Value {
    let mut listed: Vec<&str> = warnings.iter().map(String::as_str).collect();
    let others = listed.len().saturating_sub(MOST_WARNINGS);
    let more = wb_model::counted(others, "further warning", "further warnings");
    if others > 0 {
        listed.truncate(MOST_WARNINGS);
        listed.push(&more);
    }
    match listed.is_empty() {
        true => json!({}),
        false => json!({ "warnings": listed }),
    }
}

/// The answer to a request for the version.
#[must_use]
pub fn version(app: &str) -> Value {
    json!({ "api_spec_version": CLIENTS, "sdk_version": MODELS, "app_version": app })
}
