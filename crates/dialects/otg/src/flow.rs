//! Flows: endpoints, sizes, rates, durations, payloads and metrics.

use std::net::IpAddr;

use wb_model::{
    Plan, PortPlan, Proto, Stream, TagKind, TrafficJob,
    plan::HexBytes,
    units::{FrameSize, Mac, Rate, Rational, SizeModel, Span, WIRE_OVERHEAD},
};

use crate::{
    config::{Names, PortConfig},
    device::{DeviceAddress, DeviceEthernet},
    packet::{Packet, hex, read_packet},
    problem::Problems,
    reader::Node,
};

/// Length of the test tag in bytes.
const TAG: usize = 18;
const FCS: usize = 4;
/// Longest delay of a flow, in ns: 30 days.
const LONGEST_DELAY_NS: f64 = 30.0 * 86_400e9;
/// Largest ratio of received to sent frames.
const LARGEST_RATIO: f64 = 1e6;

/// Alternatives of `size`.
pub(crate) const SIZES: [&str; 4] = ["fixed", "increment", "random", "weight_pairs"];
/// Alternatives of `rate`.
pub(crate) const RATES: [&str; 6] = ["pps", "bps", "kbps", "mbps", "gbps", "percentage"];
/// Alternatives of `duration`.
pub(crate) const DURATIONS: [&str; 4] = ["continuous", "fixed_packets", "fixed_seconds", "burst"];
/// Alternatives of a delay.
const DELAYS: [&str; 3] = ["bytes", "nanoseconds", "microseconds"];
/// Alternatives of `payload`.
pub(crate) const PAYLOADS: [&str; 5] = [
    "fixed",
    "increment_byte",
    "decrement_byte",
    "increment_word",
    "decrement_word",
];

/// Latency that a flow measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyMode {
    /// From the last bit out to the first bit in.
    StoreForward,
    /// From the first bit out to the first bit in.
    CutThrough,
}

/// Flow of a configuration.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Name.
    pub name: String,
    /// Place in the configuration.
    pub path: String,
    /// Name of the sending port.
    pub tx: String,
    /// Names of the receiving ports.
    pub rx: Vec<String>,
    /// Number of frames that it sends; none for a flow without an end.
    pub count: Option<u64>,
    /// True if this number follows from a time and the rate.
    pub is_timed: bool,
    /// Streams that send it. A stream to the neighbour of a device has this neighbour.
    pub streams: Vec<(Stream, Option<Neighbour>)>,
    /// True if its metrics are shown.
    pub has_metrics: bool,
    /// True if they have the loss.
    pub has_loss: bool,
    /// True if they have the times of the first and the last frame.
    pub has_timestamps: bool,
    /// Latency in its metrics.
    pub latency: Option<LatencyMode>,
    /// Expected received frames for each sent one; none for one for each receiving port.
    pub ratio: Option<f64>,
}

/// Neighbour of a device, to which a stream sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Name of the Ethernet interface of the device.
    pub ethernet: String,
    /// Address of the neighbour.
    pub address: IpAddr,
}

/// Context of flows.
pub(crate) struct FlowReader<'c> {
    pub(crate) ports: &'c [PortConfig],
    pub(crate) ethernets: &'c [DeviceEthernet],
    pub(crate) seed: u64,
}

impl Flow {
    /// Bits per second at layer 1.
    pub(crate) fn layer1_bps(&self) -> f64 {
        let of = |(stream, _): &(Stream, _)| {
            let pps = stream.frames_per_second(None).map_or(0.0, Rational::as_f64);
            pps * layer1_bits(stream.sizes().mean().as_f64())
        };
        self.streams.iter().map(of).sum()
    }

    /// Lowers the rate to this share of it. A flow of a given time keeps this time.
    pub(crate) fn slow_down(&mut self, share: Rational) {
        for (stream, _) in &mut self.streams {
            let pps = match stream.rate {
                Rate::Pps(pps) => Some(pps),
                _ => stream.frames_per_second(None),
            };
            if let Some(pps) = pps.and_then(|pps| pps.times(share)) {
                stream.rate = Rate::Pps(pps);
            }
            if let Some(gap) = stream.gap {
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                #[allow(clippy::cast_precision_loss)]
                let longer = (gap.as_nanos() as f64 / share.as_f64()).ceil() as u64;
                stream.gap = Some(Span::from_nanos(longer));
            }
            if let Some(count) = stream.count.filter(|_| self.is_timed) {
                let fewer = u128::from(count) * u128::from(share.numerator());
                let fewer = fewer.div_ceil(u128::from(share.denominator()));
                stream.count = u64::try_from(fewer).ok();
            }
        }
        let counts = self.streams.iter().map(|(stream, _)| stream.count);
        self.count = counts.sum();
    }

    /// Checks that the streams can be sent.
    fn check(&self, problems: &Problems) {
        let job = TrafficJob {
            tx: Some("tx".to_owned()),
            streams: self.streams.iter().map(|(s, _)| s.clone()).collect(),
            ..TrafficJob::default()
        };
        let Ok(port) = "eth0".parse() else {
            return;
        };
        let plan = Plan {
            ports: vec![PortPlan::new("tx", port)],
            traffic: vec![job],
            ..Plan::default()
        };
        for problem in plan.validate().err().into_iter().flat_map(|error| error.0) {
            problems.add(
                self.path.clone(),
                format!("{}: {}", problem.place, problem.what),
            );
        }
    }
}

/// Endpoints of a flow.
#[derive(Default)]
struct Endpoints<'c> {
    tx: String,
    rx: Vec<String>,
    /// Sending devices, one for each pair of endpoints.
    devices: Vec<(&'c DeviceEthernet, Option<&'c DeviceAddress>)>,
}

pub(crate) fn read_flow(
    mut node: Node<'_>,
    reader: &FlowReader<'_>,
    names: &mut Names,
    warnings: &mut Vec<String>,
) -> Option<Flow> {
    let problems = node.problems;
    let before = problems.count();
    let name = names.declare(&mut node, "flow");
    let path = node.path.clone();
    let endpoints = read_endpoints(&mut node, reader, names);
    let speed = reader.ports.iter().find(|port| port.name == endpoints.tx);
    let speed = speed.and_then(|port| port.speed);
    let (size, given) = read_size(&mut node, warnings);
    let fixed = given.map(|size| size.max(FrameSize::MIN.get()));
    let headers = node.list("packet");
    let packet = read_packet(&headers, fixed, reader.seed, node.problems);
    if !node.list("egress_packet").is_empty() {
        node.unsupported("egress_packet", "");
    }
    let rate = read_rate(&mut node, speed);
    let mut flow = Flow {
        name,
        path: path.clone(),
        tx: endpoints.tx,
        rx: endpoints.rx,
        count: None,
        is_timed: false,
        streams: Vec::new(),
        has_metrics: false,
        has_loss: false,
        has_timestamps: false,
        latency: None,
        ratio: Some(1.0),
    };
    let mean = size.as_ref().map(SizeModel::mean);
    let pps = rate
        .zip(mean)
        .and_then(|(rate, mean)| rate.frames_per_second(mean, speed));
    let serialised = mean.zip(speed).map(|(mean, speed)| {
        let bits = layer1_bits(mean.as_f64());
        #[allow(clippy::cast_precision_loss)]
        let ns = bits * 1e9 / speed as f64;
        ns
    });
    let (start, bursts) = read_duration(&mut node, pps, speed, serialised, &mut flow);
    read_metrics(&mut node, &mut flow);
    let smallest = given.or_else(|| Some(size.as_ref()?.smallest().get()));
    let tag = check_tag(&node, &packet, smallest.unwrap_or(64), &flow, warnings);
    let payload = read_payload(&mut node, &packet, size.as_ref(), tag);
    if packet.bytes.len() < 14 {
        node.unsupported("packet", "fewer than 14 bytes of headers");
    }
    node.end();
    let (mut rate, pps) = (rate?, pps?);
    if bursts.is_some() {
        rate = Rate::Pps(pps);
        if endpoints.devices.len() > 1 {
            problems.unsupported(format!("{path}.duration.burst"), "several pairs of devices");
        }
    }
    let stream = |device: Option<&DeviceEthernet>| {
        let bytes = |range: std::ops::Range<usize>| packet.bytes.get(range)?.try_into().ok();
        let src = match device.filter(|_| packet.src_mac_left) {
            Some(device) => Some(device.mac),
            None => bytes(6..12),
        };
        let kind = packet
            .bytes
            .get(12..14)
            .map(|b| u16::from_be_bytes([b[0], b[1]]));
        let rest = packet.bytes.get(14..).unwrap_or_default();
        Stream {
            name: flow.name.clone(),
            size: size.clone(),
            rate,
            count: flow.count,
            start,
            burst: bursts.map(|(frames, _)| frames),
            gap: bursts.map(|(_, gap)| gap),
            proto: Proto::Raw,
            src_mac: src.map(Mac),
            dst_mac: bytes(0..6).map(Mac),
            ethertype: kind,
            headers: (!rest.is_empty()).then(|| HexBytes(rest.to_vec())),
            bad_checksums: packet.bad_checksums.clone(),
            payload: payload.clone(),
            vary: packet.vary.clone(),
            tag,
            ..Stream::default()
        }
    };
    flow.streams = match endpoints.devices.as_slice() {
        [] => vec![(stream(None), None)],
        devices => {
            let all = devices.iter().enumerate();
            let streams = all.map(|(n, (device, address))| {
                let own = share(&stream(Some(device)), n as u64, devices.len() as u64, pps);
                let neighbour = packet.dst_mac_left.then(|| {
                    let versions = device.addresses.iter();
                    let mut fitting = versions.filter(|a| a.address.is_ipv6() == packet.is_ipv6);
                    let address = address.or_else(|| fitting.next())?;
                    Some(Neighbour {
                        ethernet: device.name.clone(),
                        address: address.gateway,
                    })
                });
                (own, neighbour.flatten())
            });
            streams.collect()
        }
    };
    if problems.count() == before {
        flow.check(problems);
    }
    Some(flow)
}

/// The `n`-th of `parts` streams that take turns.
fn share(stream: &Stream, n: u64, parts: u64, pps: Rational) -> Stream {
    if parts == 1 {
        return stream.clone();
    }
    let count = |count: u64| count / parts + u64::from(n < count % parts);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    #[allow(clippy::cast_precision_loss)]
    let later = (n as f64 / pps.as_f64() * 1e9) as u64;
    Stream {
        rate: Rate::Pps(pps.over(Rational::whole(parts)).unwrap_or(pps)),
        count: stream.count.map(count),
        start: Span::from_nanos(stream.start.as_nanos() + later),
        ..stream.clone()
    }
}

fn read_endpoints<'c>(
    node: &mut Node<'_>,
    reader: &FlowReader<'c>,
    names: &mut Names,
) -> Endpoints<'c> {
    let mut endpoints = Endpoints::default();
    if !node.has("tx_rx") {
        node.problem("tx_rx", "is required");
        return endpoints;
    }
    let mut tx_rx = node.node_or_empty("tx_rx");
    let choice = tx_rx.choice(&["port", "device"], "port");
    match choice.as_str() {
        "port" => {
            let mut port = tx_rx.node_or_empty("port");
            endpoints.tx = port.name("tx_name");
            names.refer(port.at("tx_name"), "port", &endpoints.tx);
            endpoints.rx = port.texts("rx_names");
            let old = port.text("rx_name");
            match (old, endpoints.rx.as_slice()) {
                (Some(old), []) => endpoints.rx = vec![old],
                (Some(old), [only]) if *only == old => {}
                (Some(_), _) => port.problem("rx_name", "conflict: differs from rx_names"),
                (None, _) => {}
            }
            for (n, rx) in endpoints.rx.iter().enumerate() {
                let path = format!("{}[{n}]", port.at("rx_names"));
                if *rx == endpoints.tx {
                    let what = format!("conflict: '{rx}' is the sending port");
                    port.problems.add(path.clone(), what);
                } else if endpoints.rx[..n].contains(rx) {
                    let what = format!("duplicate name '{rx}'");
                    port.problems.add(path.clone(), what);
                }
                names.refer(path, "port", rx);
            }
            if endpoints.rx.len() > 1 {
                port.unsupported("rx_names", "several receiving ports");
            }
            port.end();
        }
        "device" => read_devices(&mut tx_rx, reader, &mut endpoints),
        other => return_unknown(&mut tx_rx, other),
    }
    tx_rx.end();
    endpoints
}

fn return_unknown(node: &mut Node<'_>, choice: &str) {
    node.take(choice);
    node.unsupported(choice, "");
}

/// Maximum number of pairs of devices of a flow.
const MOST_PAIRS: usize = 65_536;

fn read_devices<'c>(tx_rx: &mut Node<'_>, reader: &FlowReader<'c>, endpoints: &mut Endpoints<'c>) {
    let mut device = tx_rx.node_or_empty("device");
    let mode = device.text("mode").unwrap_or_else(|| "mesh".to_owned());
    let mut ends = |key: &str| -> Vec<(&'c DeviceEthernet, Option<&'c DeviceAddress>)> {
        let mut found = Vec::new();
        for (n, name) in device.texts(key).into_iter().enumerate() {
            let end = reader.ethernets.iter().find_map(|ethernet| {
                let address = ethernet.addresses.iter().find(|a| a.name == name);
                let is_it = ethernet.name == name || address.is_some();
                is_it.then_some((ethernet, address))
            });
            match end {
                Some(end) => found.push(end),
                None => device.problems.add(
                    format!("{}[{n}]", device.at(key)),
                    format!("unknown name '{name}'"),
                ),
            }
        }
        if found.is_empty() {
            device.problem(
                key,
                "is required: names of Ethernet interfaces or addresses",
            );
        }
        found
    };
    let (tx, rx) = (ends("tx_names"), ends("rx_names"));
    match mode.as_str() {
        "mesh" if tx.len().saturating_mul(rx.len()) > MOST_PAIRS => {
            let what = format!(
                "out of range: {} pairs; a mesh has at most {MOST_PAIRS}",
                tx.len() * rx.len()
            );
            device.problem("mode", what);
        }
        "mesh" => {
            let pairs = tx.iter().flat_map(|end| rx.iter().map(move |_| *end));
            endpoints.devices = pairs.collect();
        }
        "one_to_one" if tx.len() == rx.len() => endpoints.devices.clone_from(&tx),
        "one_to_one" => device.problem("mode", "one_to_one needs as many receivers as senders"),
        _ => device.problem("mode", "must be mesh or one_to_one"),
    }
    if device.flag("bidirectional") == Some(true) {
        device.unsupported("bidirectional", "");
    }
    let mut ports: Vec<&String> = tx.iter().map(|(ethernet, _)| &ethernet.port).collect();
    ports.dedup();
    if ports.len() > 1 {
        device.unsupported("tx_names", "devices at several ports");
    }
    endpoints.tx = ports
        .first()
        .map(|port| (*port).clone())
        .unwrap_or_default();
    let mut ports: Vec<String> = rx
        .iter()
        .map(|(ethernet, _)| ethernet.port.clone())
        .collect();
    ports.sort();
    ports.dedup();
    if ports.len() > 1 {
        device.unsupported("rx_names", "devices at several ports");
    }
    if ports.contains(&endpoints.tx) {
        device.problem("rx_names", "conflict: a device is at the sending port");
    }
    endpoints.rx = ports;
    device.end();
}

/// Named mixes of sizes, with weights in hundredths.
const MIXES: [(&str, &[(u32, u32)]); 5] = [
    ("imix", &[(64, 7), (570, 4), (1518, 1)]),
    (
        "ipsec_imix",
        &[(90, 5867), (92, 200), (594, 2366), (1418, 1567)],
    ),
    (
        "ipv6_imix",
        &[(60, 5867), (496, 200), (594, 2366), (1518, 1567)],
    ),
    (
        "standard_imix",
        &[(58, 5867), (62, 200), (594, 2366), (1518, 1567)],
    ),
    (
        "tcp_imix",
        &[(90, 5867), (92, 200), (594, 2366), (1518, 1567)],
    ),
];

fn frame_size(node: &Node<'_>, key: &str, size: u32, warnings: &mut Vec<String>) -> FrameSize {
    if size < FrameSize::MIN.get() {
        let what = "sizes below 64 are padded to 64 bytes";
        warnings.push(format!("{}: {what}", node.at(key)));
    }
    let fit = FrameSize::new(size.max(FrameSize::MIN.get()));
    if fit.is_none() {
        let most = FrameSize::MAX;
        node.problem(key, format!("out of range: {size}; must be at most {most}"));
    }
    fit.unwrap_or(FrameSize::MIN)
}

/// Reads the sizes. Also returns the size as it is given, if it is fixed.
fn read_size(node: &mut Node<'_>, warnings: &mut Vec<String>) -> (Option<SizeModel>, Option<u32>) {
    let mut size = node.node_or_empty("size");
    let choice = size.choice(&SIZES, "fixed");
    let mut fixed = None;
    let model = match choice.as_str() {
        "fixed" => {
            let given = size.number_in("fixed", 0..=u32::MAX, 64);
            fixed = Some(given);
            Some(SizeModel::Fixed(frame_size(
                &size, "fixed", given, warnings,
            )))
        }
        "random" => {
            let mut random = size.node_or_empty("random");
            let min = random.number_in("min", 1..=u32::MAX, 64);
            let max = random.number_in("max", 1..=u32::MAX, 1518);
            let (min, max) = (
                frame_size(&random, "min", min, warnings),
                frame_size(&random, "max", max, warnings),
            );
            if min > max {
                random.problem("min", "out of range: must not exceed max");
            }
            random.end();
            Some(SizeModel::Range(min, max.max(min)))
        }
        "increment" => Some(read_steps(&mut size, warnings)),
        "weight_pairs" => read_mix(&mut size, warnings),
        other => {
            size.take(other);
            size.unsupported(other, "");
            None
        }
    };
    size.end();
    (model, fixed)
}

fn read_steps(size: &mut Node<'_>, warnings: &mut Vec<String>) -> SizeModel {
    let mut steps = size.node_or_empty("increment");
    let most = FrameSize::MAX.get();
    let start = steps.number_in("start", 1..=most, 64);
    let end = steps.number_in("end", 1..=most, 1518);
    let step = steps.number_in("step", 1..=most, 1);
    if start > end {
        steps.problem("start", "out of range: must not exceed end");
    }
    let first = frame_size(&steps, "start", start, warnings);
    let sizes = (start..=end).step_by(step as usize);
    let sizes = sizes.map(|size| FrameSize::new(size).unwrap_or(first));
    steps.end();
    match sizes.collect::<Vec<_>>().as_slice() {
        [] | [_] => SizeModel::Fixed(first),
        sizes => SizeModel::Steps(sizes.to_vec()),
    }
}

fn read_mix(size: &mut Node<'_>, warnings: &mut Vec<String>) -> Option<SizeModel> {
    let mut pairs = size.node_or_empty("weight_pairs");
    let choice = pairs.choice(&["predefined", "custom"], "predefined");
    let mut mix = Vec::new();
    match choice.as_str() {
        "predefined" => {
            let name = pairs.text("predefined");
            let name = name.unwrap_or_else(|| "imix".to_owned());
            match MIXES.iter().find(|(own, _)| *own == name) {
                Some((_, list)) => mix.extend(list.iter().map(|(size, weight)| {
                    (frame_size(&pairs, "predefined", *size, warnings), *weight)
                })),
                None => pairs.problem("predefined", format!("unknown mix {name:?}")),
            }
        }
        "custom" => {
            for mut pair in pairs.nodes("custom") {
                let size = pair.number_in("size", 12..=65_535_u32, 64);
                let weight = pair.float("weight").unwrap_or(1.0);
                let scaled = (weight * 100.0).round();
                if !(1.0..=100_000.0).contains(&scaled) {
                    pair.problem("weight", "out of range: must be between 0.01 and 1000");
                    continue;
                }
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                mix.push((frame_size(&pair, "size", size, warnings), scaled as u32));
                pair.end();
            }
            if mix.is_empty() {
                pairs.problem("custom", "needs at least one size");
            }
        }
        other => pairs.problem("choice", format!("unknown choice {other:?}")),
    }
    pairs.end();
    let divisor = mix.iter().fold(0, |a, (_, b)| gcd(a, *b)).max(1);
    mix.iter_mut().for_each(|(_, weight)| *weight /= divisor);
    (!mix.is_empty()).then_some(SizeModel::Mix(mix))
}

const fn gcd(mut a: u32, mut b: u32) -> u32 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn read_rate(node: &mut Node<'_>, speed: Option<u64>) -> Option<Rate> {
    let mut rate = node.node_or_empty("rate");
    let choice = rate.choice(&RATES, "pps");
    let mut bits = |key: &str, unit: u64, default: u64| {
        let number = rate.number(key).unwrap_or(default);
        let bits = number.checked_mul(unit).filter(|bits| *bits >= 672);
        if bits.is_none() {
            let most = u64::MAX / unit;
            let what = format!("out of range: must be at least 672 bit/s, and at most {most}");
            rate.problem(key, what);
        }
        bits.map(|bits| Rate::L1(Rational::whole(bits)))
    };
    let read = match choice.as_str() {
        "bps" => bits("bps", 1, 1_000_000_000),
        "kbps" => bits("kbps", 1_000, 1_000_000),
        "mbps" => bits("mbps", 1_000_000, 1000),
        "gbps" => bits("gbps", 1_000_000_000, 1),
        "pps" => {
            let pps = rate.number("pps").unwrap_or(1000);
            if pps == 0 {
                rate.problem("pps", "out of range: must be at least 1");
            }
            (pps > 0).then(|| Rate::Pps(Rational::whole(pps)))
        }
        "percentage" => {
            let percent = rate.float("percentage").unwrap_or(100.0);
            if !(percent > 0.0 && percent <= 100.0) {
                rate.problem("percentage", "out of range: must be above 0, up to 100");
            } else if speed.is_none() {
                let what = "the speed of the port is unknown; set layer1.speed";
                rate.problem("percentage", what);
            }
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let millionths = (percent.clamp(0.0, 100.0) * 1e4).round() as u128;
            let bits =
                speed.and_then(|speed| Rational::new(u128::from(speed) * millionths, 1_000_000));
            bits.map(Rate::L1)
        }
        other => {
            rate.take(other);
            rate.problem("choice", format!("unknown choice {other:?}"));
            None
        }
    };
    rate.end();
    read
}

/// Reads the duration. Returns the time of the first frame, and the frames of a burst with the time from its start to
/// that of the next. `serialised` is the time that a frame takes on the link, in ns.
fn read_duration(
    node: &mut Node<'_>,
    pps: Option<Rational>,
    speed: Option<u64>,
    serialised: Option<f64>,
    flow: &mut Flow,
) -> (Span, Option<(u32, Span)>) {
    let mut duration = node.node_or_empty("duration");
    let choice = duration.choice(&DURATIONS, "continuous");
    if !DURATIONS.contains(&choice.as_str()) {
        return_unknown(&mut duration, &choice);
        duration.end();
        return (Span::default(), None);
    }
    let mut node = duration.node_or_empty(&choice);
    let mut bursts = None;
    match choice.as_str() {
        "fixed_packets" => flow.count = Some(node.number_in("packets", 1..=u64::MAX >> 1, 1)),
        "fixed_seconds" => {
            let seconds = node.float("seconds").unwrap_or(1.0);
            if !(seconds > 0.0 && seconds < 1e9) {
                let what = "out of range: must be above 0 and below 1000000000";
                node.problem("seconds", what);
            }
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let frames = pps.map(|pps| (pps.as_f64() * seconds).ceil().max(1.0) as u64);
            flow.count = frames;
            flow.is_timed = true;
        }
        "burst" => {
            let number = node.number_in("bursts", 0..=u32::MAX, 0);
            let frames = node.number_in("packets", 1..=u32::MAX, 1);
            let idle_ns = read_time(&mut node, "inter_burst_gap", 12.0, speed);
            flow.count = (number > 0).then(|| u64::from(number) * u64::from(frames));
            let between_ns = pps.map_or(0.0, |pps| f64::from(frames - 1) * 1e9 / pps.as_f64());
            let period_ns = between_ns + serialised.unwrap_or(0.0) + idle_ns;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let period = Span::from_nanos(period_ns.ceil().max(1.0) as u64);
            bursts = Some((frames, period));
        }
        _ => {}
    }
    if node.number("gap").is_some_and(|gap| gap > 12) {
        node.unsupported("gap", "a gap of more than 12 bytes; use a lower rate");
    }
    let start_ns = match choice.as_str() {
        "burst" => 0.0,
        _ => read_time(&mut node, "delay", 0.0, speed),
    };
    node.end();
    duration.end();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let start = Span::from_nanos(start_ns as u64);
    (start, bursts)
}

/// Reads a time in ns, µs or bytes on the link; without it, a number of bytes. Returns ns.
fn read_time(node: &mut Node<'_>, key: &str, bytes: f64, speed: Option<u64>) -> f64 {
    let is_given = node.has(key);
    let mut time = node.node_or_empty(key);
    let choice = time.choice(&DELAYS, "bytes");
    let default = match choice.as_str() {
        "bytes" => bytes,
        "nanoseconds" => bytes * 8.0,
        _ => bytes * 8e-3,
    };
    let amount = time.float(&choice).unwrap_or(default);
    #[allow(clippy::cast_precision_loss)]
    let ns = match (choice.as_str(), speed) {
        ("nanoseconds", _) => Some(amount),
        ("microseconds", _) => Some(amount * 1e3),
        ("bytes", Some(speed)) => Some(amount * 8e9 / speed as f64),
        ("bytes", None) if amount == 0.0 || !is_given => Some(0.0),
        _ => None,
    };
    match ns {
        Some(ns) if (0.0..=LONGEST_DELAY_NS).contains(&ns) => {}
        Some(_) => time.problem(&choice, "out of range: must be 0 to 30 days"),
        None => time.problem(&choice, "the speed of the port is unknown; use nanoseconds"),
    }
    time.end();
    ns.unwrap_or(0.0).clamp(0.0, LONGEST_DELAY_NS)
}

fn read_metrics(node: &mut Node<'_>, flow: &mut Flow) {
    let Some(mut metrics) = node.node("metrics") else {
        return;
    };
    flow.has_metrics = metrics.flag("enable").unwrap_or(false);
    flow.has_loss = metrics.flag("loss").unwrap_or(false);
    flow.has_timestamps = metrics.flag("timestamps").unwrap_or(false);
    if let Some(mut ratio) = metrics.node("rx_tx_ratio") {
        match ratio.choice(&["value", "rx_count"], "value").as_str() {
            "value" => {
                let value = ratio.float("value").unwrap_or(1.0);
                if !(0.0..=LARGEST_RATIO).contains(&value) {
                    ratio.problem("value", "out of range: must be 0 to 1000000");
                }
                flow.ratio = Some(value);
            }
            "rx_count" => {
                ratio.take("rx_count");
                flow.ratio = None;
            }
            other => ratio.unsupported(other, ""),
        }
        ratio.end();
    }
    if let Some(mut latency) = metrics.node("latency") {
        let is_on = latency.flag("enable").unwrap_or(false);
        let mode = latency.text("mode");
        let mode = match mode.as_deref() {
            None | Some("store_forward") => LatencyMode::StoreForward,
            Some("cut_through") => LatencyMode::CutThrough,
            Some(_) => {
                latency.problem("mode", "must be store_forward or cut_through");
                LatencyMode::StoreForward
            }
        };
        flow.latency = is_on.then_some(mode);
        latency.end();
    }
    if let Some(mut tags) = metrics.node("predefined_metric_tags") {
        for key in ["rx_name", "dropped"] {
            if tags.flag(key) == Some(true) {
                tags.unsupported(key, "");
            }
        }
        tags.end();
    }
    metrics.end();
}

/// Decides if the frames have a test tag, and checks that the headers fit.
fn check_tag(
    node: &Node<'_>,
    packet: &Packet,
    given: u32,
    flow: &Flow,
    warnings: &mut Vec<String>,
) -> TagKind {
    let headers = packet.bytes.len() + FCS;
    let given = given as usize;
    let smallest = given.max(FrameSize::MIN.get() as usize);
    if given < headers {
        let what = format!("out of range: the headers need at least {headers} bytes");
        node.problem("size", what);
    }
    if smallest >= headers + TAG {
        return TagKind::Wirebench;
    }
    if flow.has_metrics && !flow.rx.is_empty() {
        let least = headers + TAG;
        let what = "frames have no room for the test tag: all frames at the receiving port are counted, and latency is not measured";
        warnings.push(format!(
            "{}: {what}; {least} bytes have room",
            node.at("size")
        ));
    }
    TagKind::None
}

fn read_payload(
    node: &mut Node<'_>,
    packet: &Packet,
    size: Option<&SizeModel>,
    tag: TagKind,
) -> Option<HexBytes> {
    let mut payload = node.node("payload")?;
    let tag = if tag == TagKind::None { 0 } else { TAG };
    let longest = size.map_or(64, |size| size.largest().get() as usize);
    let len = longest.saturating_sub(packet.bytes.len() + FCS);
    let choice = payload.choice(&PAYLOADS, "fixed");
    #[allow(clippy::cast_possible_truncation)]
    let byte = |n: usize| n as u8;
    let words = |value: &dyn Fn(usize) -> usize| -> Vec<u8> {
        let word = |n: usize| [byte(value(n) >> 8), byte(value(n))];
        (0..len.div_ceil(2)).flat_map(word).collect()
    };
    let bytes: Vec<u8> = match choice.as_str() {
        "fixed" => {
            let mut fixed = payload.node_or_empty("fixed");
            let pattern = fixed.text("pattern").unwrap_or_else(|| "00".to_owned());
            let repeat = fixed.flag("repeat").unwrap_or(true);
            let pattern = hex(&pattern).filter(|bytes| !bytes.is_empty());
            if pattern.is_none() {
                fixed.problem("pattern", "must be hex digits, two for each byte");
            }
            let pattern = pattern.unwrap_or_default();
            fixed.end();
            match repeat {
                true => pattern.iter().cycle().take(len).copied().collect(),
                false => {
                    let rest = std::iter::repeat(0);
                    pattern.into_iter().chain(rest).take(len).collect()
                }
            }
        }
        "increment_byte" => (0..len).map(byte).collect(),
        "decrement_byte" => (0..len).map(|n| !byte(n)).collect(),
        "increment_word" => words(&|n| n),
        "decrement_word" => words(&|n| 0xffff_usize.wrapping_sub(n)),
        other => {
            return_unknown(&mut payload, other);
            Vec::new()
        }
    };
    payload.take(&choice);
    payload.end();
    // The tag takes the first bytes.
    let rest = bytes.get(tag..len).unwrap_or_default();
    let is_zero = rest.iter().all(|byte| *byte == 0);
    (!is_zero).then(|| HexBytes(rest.to_vec()))
}

/// Bits at layer 1 of a frame of this size, in bytes with FCS.
pub(crate) const fn layer1_bits(size: f64) -> f64 {
    (size + WIRE_OVERHEAD as f64) * 8.0
}
