//! Requests other than configurations.

use serde_json::Value;

use crate::{
    problem::{Problem, Problems},
    reader::Node,
};

/// Objects with states that a request can set; most are not supported.
const STATES: [&str; 11] = [
    "flow_transmit",
    "capture",
    "link",
    "all",
    "route",
    "lacp",
    "bgp",
    "isis",
    "ospfv2",
    "ospfv3",
    "rocev2",
];
/// Figures of flows that a request can select.
pub(crate) const FLOW_COLUMNS: [&str; 20] = [
    "transmit",
    "frames_tx",
    "frames_rx",
    "bytes_tx",
    "bytes_rx",
    "frames_tx_rate",
    "frames_rx_rate",
    "loss",
    "timestamps",
    "latency",
    "tx_l1_rate_bps",
    "rx_l1_rate_bps",
    "tx_rate_bytes",
    "rx_rate_bytes",
    "tx_rate_bps",
    "rx_rate_bps",
    "tx_rate_kbps",
    "rx_rate_kbps",
    "tx_rate_mbps",
    "rx_rate_mbps",
];
/// Figures of ports that a request can select.
pub(crate) const PORT_COLUMNS: [&str; 14] = [
    "transmit",
    "location",
    "link",
    "capture",
    "frames_tx",
    "frames_rx",
    "bytes_tx",
    "bytes_rx",
    "frames_tx_rate",
    "frames_rx_rate",
    "bytes_tx_rate",
    "bytes_rx_rate",
    "last_change",
    "speed",
];

/// State of captures or devices that a request sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// They start.
    Start,
    /// They stop.
    Stop,
}

/// Transmit state of flows that a request sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowState {
    /// They start, with counters of 0.
    Start,
    /// They stop.
    Stop,
    /// They pause.
    Pause,
    /// They continue after a pause.
    Resume,
}

/// Request to change a state. Empty lists mean all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// Flows.
    Flows(FlowState, Vec<String>),
    /// Captures at ports.
    Captures(State, Vec<String>),
    /// Links of ports: up or down.
    Links(bool, Vec<String>),
    /// All devices.
    Devices(State),
}

/// Request for metrics. Empty lists mean all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsRequest {
    /// True for flows, false for ports.
    pub is_of_flows: bool,
    /// Names.
    pub names: Vec<String>,
    /// Fields.
    pub columns: Vec<String>,
}

/// Request for neighbours of devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighbourRequest {
    /// True for IPv6.
    pub is_ipv6: bool,
    /// Names of Ethernet interfaces; empty: all.
    pub ethernets: Vec<String>,
}

/// Change of flows of a configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigChange {
    /// Properties of flows to take over: `rate`, `size`.
    pub properties: Vec<String>,
    /// The flows.
    pub flows: Vec<Value>,
}

fn read<T>(value: &Value, of: impl FnOnce(&mut Node<'_>) -> Option<T>) -> Result<T, Vec<Problem>> {
    let problems = Problems::default();
    let mut root = Node::new("", value, &problems);
    let read = of(&mut root);
    root.end();
    let read = problems.into_result(read)?;
    read.ok_or_else(|| vec![Problem::new("", "the request is not complete")])
}

/// Objects of a list that must have at least one.
fn required<'a>(node: &mut Node<'a>, key: &str) -> Vec<Node<'a>> {
    let list = node.nodes(key);
    if list.is_empty() {
        node.problem(key, "is required: at least one element");
    }
    list
}

fn state(node: &mut Node<'_>) -> Option<State> {
    let text = node.text("state");
    match text.as_deref() {
        Some("start") => Some(State::Start),
        Some("stop") => Some(State::Stop),
        _ => {
            node.problem("state", "must be start or stop");
            None
        }
    }
}

fn flow_state(node: &mut Node<'_>) -> Option<FlowState> {
    let text = node.text("state");
    let state = match text.as_deref() {
        Some("start") => FlowState::Start,
        Some("stop") => FlowState::Stop,
        Some("pause") => FlowState::Pause,
        Some("resume") => FlowState::Resume,
        _ => {
            node.problem("state", "must be start, stop, pause or resume");
            return None;
        }
    };
    Some(state)
}

/// Reads a request to change a state.
///
/// # Errors
/// Returns all problems.
pub fn read_control(value: &Value) -> Result<Control, Vec<Problem>> {
    read(value, |root| {
        let kind = root.choice(&["traffic", "port", "protocol"], "");
        let mut node = root.node_or_empty(&kind);
        let choice = node.choice(&STATES, "");
        let mut inner = node.node_or_empty(&choice);
        let control = match (kind.as_str(), choice.as_str()) {
            ("traffic", "flow_transmit") => {
                let names = inner.texts("flow_names");
                flow_state(&mut inner).map(|state| Control::Flows(state, names))
            }
            ("port", "capture") => {
                let names = inner.texts("port_names");
                state(&mut inner).map(|state| Control::Captures(state, names))
            }
            ("port", "link") => {
                let names = inner.texts("port_names");
                let state = inner.text("state");
                if !matches!(state.as_deref(), Some("up" | "down")) {
                    inner.problem("state", "must be up or down");
                }
                Some(Control::Links(state.as_deref() == Some("up"), names))
            }
            ("protocol", "all") => state(&mut inner).map(Control::Devices),
            ("", _) | (_, "") => {
                root.problem("choice", "is required: traffic, port or protocol");
                return None;
            }
            _ => {
                root.unsupported(&format!("{kind}.{choice}"), "");
                return None;
            }
        };
        inner.end();
        node.end();
        control
    })
}

/// Reads a request for metrics.
///
/// # Errors
/// Returns all problems.
pub fn read_metrics(value: &Value) -> Result<MetricsRequest, Vec<Problem>> {
    read(value, |root| {
        let choice = root.choice(&["flow", "port"], "port");
        let (names, columns) = match choice.as_str() {
            "flow" => ("flow_names", "metric_names"),
            "port" => ("port_names", "column_names"),
            other => {
                root.take(other);
                root.unsupported(other, "");
                return None;
            }
        };
        let mut node = root.node_or_empty(&choice);
        let known = match choice.as_str() {
            "flow" => &FLOW_COLUMNS[..],
            _ => &PORT_COLUMNS[..],
        };
        let request = MetricsRequest {
            is_of_flows: choice == "flow",
            names: node.texts(names),
            columns: node.texts(columns),
        };
        for (n, column) in request.columns.iter().enumerate() {
            if !known.contains(&column.as_str()) {
                let what = format!("unknown name '{column}'");
                node.problem(&format!("{columns}[{n}]"), what);
            }
        }
        if let Some(mut tagged) = node.node("tagged_metrics") {
            if tagged.flag("include") == Some(true) {
                tagged.unsupported("include", "");
            }
            tagged.flag("include_empty_metrics");
            tagged.end();
        }
        node.end();
        Some(request)
    })
}

/// Reads a request for states.
///
/// # Errors
/// Returns all problems.
pub fn read_states(value: &Value) -> Result<NeighbourRequest, Vec<Problem>> {
    read(value, |root| {
        let choice = root.choice(&["ipv4_neighbors", "ipv6_neighbors"], "ipv4_neighbors");
        if !["ipv4_neighbors", "ipv6_neighbors"].contains(&choice.as_str()) {
            root.take(&choice);
            root.unsupported(&choice, "");
            return None;
        }
        let mut node = root.node_or_empty(&choice);
        let request = NeighbourRequest {
            is_ipv6: choice == "ipv6_neighbors",
            ethernets: node.texts("ethernet_names"),
        };
        node.end();
        Some(request)
    })
}

/// Reads a request for a capture. Returns the name of the port.
///
/// # Errors
/// Returns all problems.
pub fn read_capture(value: &Value) -> Result<String, Vec<Problem>> {
    read(value, |root| {
        if let Some(mut packets) = root.node("packets") {
            let choice = packets.choice(&["all", "slice"], "all");
            if choice != "all" {
                packets.take(&choice);
                packets.unsupported(&choice, "");
            }
            packets.take("all");
            packets.end();
        }
        Some(root.name("port_name"))
    })
}

/// Reads a request to add flows to a configuration.
///
/// # Errors
/// Returns all problems.
pub fn read_append(value: &Value) -> Result<Vec<Value>, Vec<Problem>> {
    read(value, |root| {
        let mut flows = Vec::new();
        for mut node in required(root, "config_append_list") {
            let choice = node.choice(&["flows"], "flows");
            match choice.as_str() {
                "flows" => flows.extend(node.list("flows").into_iter().map(|(_, v)| v.clone())),
                other => {
                    node.take(other);
                    node.unsupported(other, "");
                }
            }
            node.end();
        }
        Some(flows)
    })
}

/// Reads a request to remove flows from a configuration. Returns their names.
///
/// # Errors
/// Returns all problems.
pub fn read_delete(value: &Value) -> Result<Vec<String>, Vec<Problem>> {
    read(value, |root| {
        let mut flows = Vec::new();
        for mut node in required(root, "config_delete_list") {
            let choice = node.choice(&["flows"], "flows");
            match choice.as_str() {
                "flows" => flows.extend(node.texts("flows")),
                other => {
                    node.take(other);
                    node.unsupported(other, "");
                }
            }
            node.end();
        }
        Some(flows)
    })
}

/// Reads a request to change flows of a configuration.
///
/// # Errors
/// Returns all problems.
pub fn read_update(value: &Value) -> Result<ConfigChange, Vec<Problem>> {
    read(value, |root| {
        let choice = root.choice(&["flows", "protocols"], "flows");
        if choice != "flows" {
            root.take(&choice);
            root.unsupported(&choice, "");
            return None;
        }
        let mut node = root.node_or_empty("flows");
        let properties = node.texts("property_names");
        for property in &properties {
            if !["rate", "size"].contains(&property.as_str()) {
                node.unsupported("property_names", property);
            }
        }
        if properties.is_empty() {
            node.problem("property_names", "is required: rate, size or both");
        }
        let flows = node.list("flows");
        if flows.is_empty() {
            node.problem("flows", "is required: the flows to change");
        }
        let flows = flows.into_iter().map(|(_, v)| v.clone());
        let change = ConfigChange {
            properties,
            flows: flows.collect(),
        };
        node.end();
        Some(change)
    })
}
