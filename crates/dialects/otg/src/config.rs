//! Whole configurations.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use wb_model::units::Rational;

use crate::{
    device::{DeviceEthernet, read_devices},
    flow::{Flow, FlowReader, read_flow},
    problem::{Problem, Problems},
    reader::Node,
};

/// Port of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Name.
    pub name: String,
    /// Location as it is given; a locator of a port, possibly with options after `?`.
    pub location: String,
    /// Speed in bit/s that the configuration states.
    pub speed: Option<u64>,
}

/// Capture at a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// Name.
    pub name: String,
    /// Names of the ports.
    pub ports: Vec<String>,
    /// Bytes to keep of each frame; all without it.
    pub packet_size: Option<u32>,
    /// True for pcapng.
    pub is_pcapng: bool,
}

/// Configuration that this server can carry out.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Ports.
    pub ports: Vec<PortConfig>,
    /// Flows.
    pub flows: Vec<Flow>,
    /// Captures.
    pub captures: Vec<Capture>,
    /// Ethernet interfaces of devices.
    pub ethernets: Vec<DeviceEthernet>,
    /// True if devices start with the configuration.
    pub starts_devices: bool,
    /// True if the configuration may take ports from other owners.
    pub takes_ports: bool,
    /// Warnings for the client.
    pub warnings: Vec<String>,
}

/// Names of a configuration, and references to names.
#[derive(Default)]
pub(crate) struct Names {
    known: BTreeMap<String, &'static str>,
    duplicates: Vec<(String, String)>,
    references: Vec<(String, &'static str, String)>,
}

impl Names {
    /// Reads the name of an object.
    pub(crate) fn declare(&mut self, node: &mut Node<'_>, kind: &'static str) -> String {
        let name = node.name("name");
        if !name.is_empty() && self.known.insert(name.clone(), kind).is_some() {
            self.duplicates.push((node.at("name"), name.clone()));
        }
        name
    }

    /// Notes a reference, which is checked once all names are known.
    pub(crate) fn refer(&mut self, path: String, kind: &'static str, name: &str) {
        self.references.push((path, kind, name.to_owned()));
    }

    fn check(self, problems: &Problems) {
        for (path, name) in self.duplicates {
            problems.add(path, format!("duplicate name '{name}'"));
        }
        for (path, kind, name) in self.references {
            if self.known.get(&name) != Some(&kind) {
                problems.add(path, format!("unknown name '{name}'"));
            }
        }
    }
}

/// Ratio of the speed of a port to the rate of its flows, below which the flows share the speed. It allows for rounding.
const SHARED: f64 = 1.0 - 1e-6;

/// Speeds of `layer1.speed`, in bit/s.
pub(crate) const SPEEDS: [(&str, u64); 14] = [
    ("speed_10_fd_mbps", 10_000_000),
    ("speed_10_hd_mbps", 10_000_000),
    ("speed_100_fd_mbps", 100_000_000),
    ("speed_100_hd_mbps", 100_000_000),
    ("speed_1_gbps", 1_000_000_000),
    ("speed_10_gbps", 10_000_000_000),
    ("speed_25_gbps", 25_000_000_000),
    ("speed_40_gbps", 40_000_000_000),
    ("speed_50_gbps", 50_000_000_000),
    ("speed_100_gbps", 100_000_000_000),
    ("speed_200_gbps", 200_000_000_000),
    ("speed_400_gbps", 400_000_000_000),
    ("speed_800_gbps", 800_000_000_000),
    ("speed_2500_mbps", 2_500_000_000),
];

/// Maximum number of ports.
const MOST_PORTS: usize = 1024;

impl Config {
    /// Reads a configuration. `speed` returns the speed of the link at a location, in bit/s; `seed` replaces the seed 0
    /// of random values.
    ///
    /// # Errors
    /// Returns all problems.
    pub fn read(
        value: &Value,
        speed: &dyn Fn(&str) -> Option<u64>,
        seed: u64,
    ) -> Result<Self, Vec<Problem>> {
        let problems = Problems::default();
        let config = read(value, speed, seed, &problems);
        problems.into_result(config)
    }

    /// The port of this name.
    #[must_use]
    pub fn port(&self, name: &str) -> Option<&PortConfig> {
        self.ports.iter().find(|port| port.name == name)
    }

    /// The capture at a port.
    #[must_use]
    pub fn capture_at(&self, port: &str) -> Option<&Capture> {
        let is_at = |capture: &&Capture| capture.ports.iter().any(|own| own == port);
        self.captures.iter().find(is_at)
    }
}

fn read(
    value: &Value,
    speed: &dyn Fn(&str) -> Option<u64>,
    seed: u64,
    problems: &Problems,
) -> Config {
    let mut root = Node::new("", value, problems);
    let mut names = Names::default();
    let mut config = Config {
        starts_devices: true,
        ..Config::default()
    };
    let mut locations = BTreeSet::new();
    let ports = root.nodes("ports");
    if ports.len() > MOST_PORTS {
        let what = format!("out of range: {} ports; at most {MOST_PORTS}", ports.len());
        root.problem("ports", what);
    }
    for mut node in ports.into_iter().take(MOST_PORTS) {
        let name = names.declare(&mut node, "port");
        let what = "is required: an interface such as eth1";
        let location = node.required_text("location", what);
        if !location.is_empty() && !locations.insert(location.clone()) {
            let what = format!("conflict: two ports have the location '{location}'");
            node.problem("location", what);
        }
        node.end();
        config.ports.push(PortConfig {
            speed: speed(&location),
            name,
            location,
        });
    }
    read_layer1(&mut root, &mut names, &mut config);
    config.ethernets = read_devices(&mut root, &mut names);
    read_captures(&mut root, &mut names, &mut config);
    read_options(&mut root, &mut config);
    let reader = FlowReader {
        ports: &config.ports,
        ethernets: &config.ethernets,
        seed,
    };
    let mut warnings = Vec::new();
    for node in root.nodes("flows") {
        let flow = read_flow(node, &reader, &mut names, &mut warnings);
        config.flows.extend(flow);
    }
    config.warnings.append(&mut warnings);
    share_speeds(&mut config);
    root.end();
    names.check(problems);
    config
}

/// Lowers the rates of flows that ask for more than the speed of their port, so that each gets its share.
fn share_speeds(config: &mut Config) {
    for (number, port) in config.ports.iter().enumerate() {
        let Some(speed) = port.speed else {
            continue;
        };
        let own = config.flows.iter_mut().filter(|flow| flow.tx == port.name);
        let mut own: Vec<&mut Flow> = own.collect();
        let asked: f64 = own.iter().map(|flow| flow.layer1_bps()).sum();
        #[allow(clippy::cast_precision_loss)]
        let share = speed as f64 / asked;
        if own.is_empty() || share > SHARED {
            continue;
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let parts = (share * 1e9) as u128;
        if let Some(share) = Rational::new(parts, 1_000_000_000) {
            own.iter_mut().for_each(|flow| flow.slow_down(share));
        }
        config.warnings.push(format!(
            "ports[{number}]: the flows of port '{}' ask for {:.2} % of its speed; each gets its share of 100 %",
            port.name,
            100.0 / share
        ));
    }
}

fn read_layer1(root: &mut Node<'_>, names: &mut Names, config: &mut Config) {
    for mut node in root.nodes("layer1") {
        names.declare(&mut node, "layer1");
        let ports = node.texts("port_names");
        for (n, port) in ports.iter().enumerate() {
            names.refer(format!("{}[{n}]", node.at("port_names")), "port", port);
        }
        if let Some(text) = node.text("speed") {
            let speed = SPEEDS.iter().find(|(name, _)| *name == text);
            match speed {
                Some((_, speed)) => {
                    let named = |port: &&mut crate::PortConfig| ports.contains(&port.name);
                    let ports = config.ports.iter_mut().filter(named);
                    ports.for_each(|port| port.speed = Some(*speed));
                    let what = "is used for percentages of the line rate only";
                    config
                        .warnings
                        .push(format!("{}: {what}", node.at("speed")));
                }
                None => node.problem("speed", format!("unknown speed {text:?}")),
            }
        }
        let defaults = [
            ("mtu", serde_json::json!(1500)),
            ("promiscuous", serde_json::json!(true)),
        ];
        for (key, default) in &defaults {
            if node.take(key).is_some_and(|value| value != default) {
                config
                    .warnings
                    .push(format!("{}: is ignored", node.at(key)));
            }
        }
        for key in [
            "media",
            "ieee_media_defaults",
            "auto_negotiate",
            "auto_negotiation",
            "flow_control",
        ] {
            if node.take(key).is_some() {
                config
                    .warnings
                    .push(format!("{}: is ignored", node.at(key)));
            }
        }
        node.end();
    }
}

fn read_captures(root: &mut Node<'_>, names: &mut Names, config: &mut Config) {
    let mut taken = BTreeSet::new();
    for mut node in root.nodes("captures") {
        let name = names.declare(&mut node, "capture");
        let ports = node.texts("port_names");
        for (n, port) in ports.iter().enumerate() {
            let path = format!("{}[{n}]", node.at("port_names"));
            names.refer(path.clone(), "port", port);
            if !taken.insert(port.clone()) {
                let what = format!("conflict: port '{port}' has two captures");
                node.problems.add(path, what);
            }
        }
        for (path, _) in node.list("filters") {
            node.problems.unsupported(path, "");
        }
        if node.flag("overwrite") == Some(false) {
            let what = "is ignored: the capture has room for all frames";
            config
                .warnings
                .push(format!("{}: {what}", node.at("overwrite")));
        }
        let packet_size = node
            .has("packet_size")
            .then(|| node.number_in("packet_size", 1..=262_144_u32, 262_144));
        let format = node.text("format").unwrap_or_else(|| "pcap".to_owned());
        if !["pcap", "pcapng"].contains(&format.as_str()) {
            node.problem("format", "must be pcap or pcapng");
        }
        if format == "pcapng" {
            node.unsupported("format", "pcapng; use pcap");
        }
        node.end();
        config.captures.push(Capture {
            name,
            ports,
            packet_size,
            is_pcapng: false,
        });
    }
}

fn read_options(root: &mut Node<'_>, config: &mut Config) {
    let Some(mut options) = root.node("options") else {
        return;
    };
    if let Some(mut ports) = options.node("port_options") {
        config.takes_ports = ports.flag("location_preemption").unwrap_or(false);
        if ports.flag("data_integrity") == Some(true) {
            ports.unsupported("data_integrity", "");
        }
        ports.end();
    }
    if let Some(mut protocols) = options.node("protocol_options") {
        config.starts_devices = protocols.flag("auto_start_all").unwrap_or(true);
        protocols.end();
    }
    options.end();
}
