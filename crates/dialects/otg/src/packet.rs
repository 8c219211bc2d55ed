//! Headers of a flow: the bytes of the first packet, and the fields that change from packet to packet.

use std::{collections::BTreeSet, ops::Range};

use serde_json::Value;
use wb_model::vary::{Field, Pattern, ValueRange, Vary};
use wb_wire::ethertype;

use crate::{
    pattern::{Form, Given, Values, largest, read},
    problem::Problems,
    reader::Node,
};

const FCS: usize = 4;
const VXLAN_PORT: u128 = 4789;

/// Headers of a flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packet {
    /// Bytes of all headers.
    pub(crate) bytes: Vec<u8>,
    /// Fields that change.
    pub(crate) vary: Vec<Vary>,
    /// True if the destination of the first header is the neighbour of the sending device.
    pub(crate) dst_mac_left: bool,
    /// True if the source of the first header is the address of the sending device.
    pub(crate) src_mac_left: bool,
    /// True if the first IP header is IPv6.
    pub(crate) is_ipv6: bool,
    /// Offsets of checksums that are wrong.
    pub(crate) bad_checksums: Vec<u16>,
    /// Names of the headers.
    pub(crate) names: Vec<String>,
}

/// Length field that counts the bytes from an offset to the end of the packet.
struct LengthField {
    at: usize,
    from: usize,
}

/// Writer of headers.
struct Builder<'p> {
    packet: Packet,
    lengths: Vec<LengthField>,
    /// Bytes that are sent as they are.
    customs: Vec<Range<usize>>,
    /// Number of Ethernet headers after the first.
    inner_ethernets: usize,
    problems: &'p Problems,
    seed: u64,
}

/// Names of headers that are supported.
pub(crate) const SUPPORTED: [&str; 13] = [
    "ethernet", "vlan", "ipv4", "ipv6", "tcp", "udp", "icmp", "icmpv6", "arp", "gre", "vxlan",
    "mpls", "custom",
];
/// Names of headers that are known but not supported.
pub(crate) const UNSUPPORTED: [&str; 12] = [
    "ipv6_extension_header",
    "ethernetpause",
    "pfcpause",
    "gtpv1",
    "gtpv2",
    "ppp",
    "igmpv1",
    "snmpv2c",
    "rsvp",
    "macsec",
    "lacp",
    "cfm",
];

/// Reads the headers of a packet of `size` bytes with FCS; no size if sizes vary.
pub(crate) fn read_packet(
    headers: &[(String, &Value)],
    size: Option<u32>,
    seed: u64,
    problems: &Problems,
) -> Packet {
    let mut builder = Builder {
        packet: Packet::default(),
        lengths: Vec::new(),
        customs: Vec::new(),
        inner_ethernets: 0,
        problems,
        seed,
    };
    let default = serde_json::json!({"choice": "ethernet", "ethernet": {}});
    let path = String::new();
    let only = [(path, &default)];
    let headers = if headers.is_empty() { &only } else { headers };
    let known = [&SUPPORTED[..], &UNSUPPORTED].concat();
    let mut nodes: Vec<(Node<'_>, String)> = Vec::new();
    for (path, value) in headers {
        let mut node = Node::new(path.clone(), value, problems);
        let choice = node.choice(&known, "ethernet");
        nodes.push((node, choice));
    }
    let names: Vec<String> = nodes.iter().map(|(_, choice)| choice.clone()).collect();
    for (n, (mut node, choice)) in nodes.into_iter().enumerate() {
        if UNSUPPORTED.contains(&choice.as_str()) {
            node.take(&choice);
            node.unsupported(&choice, "");
            node.end();
            continue;
        }
        let next = names.get(n + 1).map(String::as_str);
        let mut header = node.node_or_empty(&choice);
        match choice.as_str() {
            "ethernet" => builder.ethernet(&mut header, next),
            "vlan" => builder.vlan(&mut header, next),
            "ipv4" => builder.ipv4(&mut header, next),
            "ipv6" => builder.ipv6(&mut header, next),
            "tcp" => builder.tcp(&mut header),
            "udp" => builder.udp(&mut header, next),
            "icmp" => builder.icmp(&mut header, 8),
            "icmpv6" => builder.icmp(&mut header, 128),
            "arp" => builder.arp(&mut header),
            "gre" => builder.gre(&mut header, next),
            "vxlan" => builder.vxlan(&mut header),
            "mpls" => builder.mpls(&mut header, next),
            "custom" => builder.custom(&mut header),
            other => problems.add(node.at("choice"), format!("unknown header {other}")),
        }
        header.end();
        node.end();
    }
    builder.packet.names = names;
    builder.finish(size, headers)
}

fn ether_type(next: Option<&str>) -> Option<u16> {
    Some(match next? {
        "ipv4" => ethertype::IPV4,
        "ipv6" => ethertype::IPV6,
        "arp" => ethertype::ARP,
        "vlan" => ethertype::VLAN,
        "mpls" => ethertype::MPLS,
        "ethernet" => 0x6558,
        _ => return None,
    })
}

fn ip_protocol(next: Option<&str>) -> Option<u8> {
    Some(match next? {
        "icmp" => 1,
        "ipv4" => 4,
        "tcp" => 6,
        "udp" => 17,
        "ipv6" => 41,
        "gre" => 47,
        "icmpv6" => 58,
        _ => return None,
    })
}

impl Builder<'_> {
    /// Appends zero bytes. Returns their offset.
    fn extend(&mut self, len: usize) -> usize {
        let at = self.packet.bytes.len();
        self.packet.bytes.resize(at + len, 0);
        at
    }

    /// Reads a field and writes it at a bit offset.
    fn field(&mut self, node: &mut Node<'_>, key: &str, bit: usize, form: Form, default: u128) {
        let given = read(node, key, form, self.seed);
        self.put(&node.at(key), bit, form.bits(), &given.or(default));
    }

    /// Reads a field that the sender computes unless it is given. A given value stays as it is.
    fn derived(&mut self, node: &mut Node<'_>, key: &str, bit: usize, form: Form) -> bool {
        let given = read(node, key, form, self.seed);
        let is_left = given.is_left();
        if let Given::Values(values) = given {
            self.fix(&node.at(key), bit, form.bits(), &values);
        }
        is_left
    }

    /// Writes values so that the sender does not compute them.
    fn fix(&mut self, path: &str, bit: usize, bits: u32, values: &Values) {
        match values {
            Values::Constant(value) => self.put(path, bit, bits, &Values::List(vec![*value])),
            values => self.put(path, bit, bits, values),
        }
    }

    /// Writes values at a bit offset.
    fn put(&mut self, path: &str, bit: usize, bits: u32, values: &Values) {
        if bits > 32 {
            return self.put_wide(path, bit, bits, values);
        }
        if let Values::Constant(value) = values {
            for n in 0..bits as usize {
                let is_set = value >> (bits as usize - 1 - n) & 1 == 1;
                let at = bit + n;
                self.packet.bytes[at / 8] |= u8::from(is_set) << (7 - at % 8);
            }
            return;
        }
        let (first, end) = (bit / 8, (bit + bits as usize).div_ceil(8));
        let width = match end - first {
            1 => 1,
            2 => 2,
            3 | 4 => 4,
            _ => {
                self.problems.unsupported(path, "values that change");
                return;
            }
        };
        // The bytes before the field are headers, too.
        let first = end - width;
        let shift = end * 8 - bit - bits as usize;
        let mask = largest(bits) << shift;
        let pattern = match values {
            Values::Constant(value) => Pattern::List(vec![value << shift]),
            Values::List(list) => Pattern::List(list.iter().map(|value| value << shift).collect()),
            Values::Steps {
                first,
                last,
                is_down,
                ..
            } => {
                let range = ValueRange {
                    first: first << shift,
                    last: last << shift,
                };
                match is_down {
                    true => Pattern::Decrement(range),
                    false => Pattern::Increment(range),
                }
            }
        };
        let step = match values {
            Values::Steps { step, .. } => step << shift,
            _ => 1,
        };
        #[allow(clippy::cast_possible_truncation)]
        self.packet.vary.push(Vary {
            field: Field::At {
                offset: first as u16,
                width: width as u8,
            },
            pattern,
            step,
            mask: (mask != largest(8 * width as u32)).then_some(mask),
            ipv6: false,
        });
    }

    /// Writes a field of more than 32 bits, which begins at a byte, in parts of up to 32 bits.
    fn put_wide(&mut self, path: &str, bit: usize, bits: u32, values: &Values) {
        let parts = (0..bits).rev().step_by(32).map(|end| {
            let begin = (end + 1).saturating_sub(32);
            (begin, end + 1 - begin)
        });
        for (begin, width) in parts {
            let below = bits - begin - width;
            let part = |value: u128| value >> below & largest(width);
            let values = match values {
                Values::Constant(value) => Values::Constant(part(*value)),
                Values::Steps { first, last, .. } if first >> 32 == last >> 32 && below > 0 => {
                    Values::Constant(part(*first))
                }
                Values::Steps {
                    first,
                    last,
                    step,
                    is_down,
                } if first >> 32 == last >> 32 => Values::Steps {
                    first: part(*first),
                    last: part(*last),
                    step: *step,
                    is_down: *is_down,
                },
                values => {
                    let Some(list) = values.listed() else {
                        self.problems
                            .unsupported(path, "so many values of more than 32 bits");
                        return;
                    };
                    let list: Vec<u128> = list.into_iter().map(part).collect();
                    match list.iter().all(|value| *value == list[0]) {
                        true => Values::Constant(list[0]),
                        false => Values::List(list),
                    }
                }
            };
            self.put(path, bit + begin as usize, width, &values);
        }
    }

    fn ethernet(&mut self, node: &mut Node<'_>, next: Option<&str>) {
        let is_first = self.packet.bytes.is_empty();
        self.inner_ethernets += usize::from(!is_first);
        let at = 8 * self.extend(14);
        let dst = read(node, "dst", Form::Mac, self.seed);
        let src = read(node, "src", Form::Mac, self.seed);
        if is_first {
            self.packet.dst_mac_left = dst.is_left();
            self.packet.src_mac_left = src.is_left();
        }
        self.put(&node.at("dst"), at, 48, &dst.or(0));
        self.put(&node.at("src"), at + 48, 48, &src.or(0));
        let kind = ether_type(next).unwrap_or(u16::MAX);
        self.field(node, "ether_type", at + 96, Form::Number(16), kind.into());
        if read(node, "pfc_queue", Form::Number(3), 0) != Given::Absent {
            node.unsupported("pfc_queue", "");
        }
    }

    fn vlan(&mut self, node: &mut Node<'_>, next: Option<&str>) {
        let at = 8 * self.extend(4);
        self.field(node, "priority", at, Form::Number(3), 0);
        self.field(node, "cfi", at + 3, Form::Number(1), 0);
        self.field(node, "id", at + 4, Form::Number(12), 0);
        // The type of what follows, in spite of its name.
        let kind = ether_type(next).unwrap_or(u16::MAX);
        let tpid = read(node, "tpid", Form::Number(16), self.seed);
        let tpid = match tpid {
            Given::Values(Values::Constant(0xffff)) => Given::Absent,
            given => given,
        };
        self.put(&node.at("tpid"), at + 16, 16, &tpid.or(kind.into()));
    }

    fn ipv4(&mut self, node: &mut Node<'_>, next: Option<&str>) {
        let from = self.extend(20);
        let at = 8 * from;
        let number = Form::Number;
        self.field(node, "version", at, number(4), 4);
        self.field(node, "header_length", at + 4, number(4), 5);
        self.priority(node, at + 8);
        if self.derived(node, "total_length", at + 16, number(16)) {
            self.length(from + 2, from);
        }
        self.field(node, "identification", at + 32, number(16), 0);
        self.field(node, "reserved", at + 48, number(1), 0);
        self.field(node, "dont_fragment", at + 49, number(1), 0);
        self.field(node, "more_fragments", at + 50, number(1), 0);
        self.field(node, "fragment_offset", at + 51, number(13), 0);
        self.field(node, "time_to_live", at + 64, number(8), 64);
        let protocol = ip_protocol(next).unwrap_or(61);
        self.field(node, "protocol", at + 72, number(8), protocol.into());
        self.checksum(node, "header_checksum", at + 80);
        self.field(node, "src", at + 96, Form::Ipv4, 0);
        self.field(node, "dst", at + 128, Form::Ipv4, 0);
        let options = node.list("options");
        if !options.is_empty() {
            node.unsupported("options", "");
        }
    }

    fn priority(&mut self, node: &mut Node<'_>, at: usize) {
        let Some(mut priority) = node.node("priority") else {
            return;
        };
        let choice = priority.choice(&["dscp", "tos", "raw"], "dscp");
        match choice.as_str() {
            "raw" => self.field(&mut priority, "raw", at, Form::Number(8), 0),
            "dscp" => {
                let mut dscp = priority.node_or_empty("dscp");
                self.field(&mut dscp, "phb", at, Form::Number(6), 0);
                self.field(&mut dscp, "ecn", at + 6, Form::Number(2), 0);
                dscp.end();
            }
            "tos" => {
                let mut tos = priority.node_or_empty("tos");
                self.field(&mut tos, "precedence", at, Form::Number(3), 0);
                for (key, bit) in [
                    ("delay", 3),
                    ("throughput", 4),
                    ("reliability", 5),
                    ("monetary", 6),
                    ("unused", 7),
                ] {
                    self.field(&mut tos, key, at + bit, Form::Number(1), 0);
                }
                tos.end();
            }
            other => return priority.unknown_choice(other),
        }
        priority.end();
    }

    fn ipv6(&mut self, node: &mut Node<'_>, next: Option<&str>) {
        let is_first = !(self.packet.is_ipv6 || self.inner_ethernets > 0);
        self.packet.is_ipv6 |= is_first;
        let from = self.extend(40);
        let at = 8 * from;
        self.field(node, "version", at, Form::Number(4), 6);
        self.field(node, "traffic_class", at + 4, Form::Number(8), 0);
        self.field(node, "flow_label", at + 12, Form::Number(20), 0);
        if self.derived(node, "payload_length", at + 32, Form::Number(16)) {
            self.length(from + 4, from + 40);
        }
        let protocol = ip_protocol(next).unwrap_or(59);
        self.field(
            node,
            "next_header",
            at + 48,
            Form::Number(8),
            protocol.into(),
        );
        self.field(node, "hop_limit", at + 56, Form::Number(8), 64);
        self.field(node, "src", at + 64, Form::Ipv6, 0);
        self.field(node, "dst", at + 192, Form::Ipv6, 0);
        if !node.list("dst_usids").is_empty() {
            node.unsupported("dst_usids", "");
        }
    }

    fn tcp(&mut self, node: &mut Node<'_>) {
        let at = 8 * self.extend(20);
        self.field(node, "src_port", at, Form::Number(16), 0);
        self.field(node, "dst_port", at + 16, Form::Number(16), 0);
        self.field(node, "seq_num", at + 32, Form::Number(32), 0);
        self.field(node, "ack_num", at + 64, Form::Number(32), 0);
        self.field(node, "data_offset", at + 96, Form::Number(4), 5);
        for (n, flag) in [
            "ecn_ns", "ecn_cwr", "ecn_echo", "ctl_urg", "ctl_ack", "ctl_psh", "ctl_rst", "ctl_syn",
            "ctl_fin",
        ]
        .into_iter()
        .enumerate()
        {
            self.field(node, flag, at + 103 + n, Form::Number(1), 0);
        }
        self.field(node, "window", at + 112, Form::Number(16), 0);
        self.checksum(node, "checksum", at + 128);
    }

    fn udp(&mut self, node: &mut Node<'_>, next: Option<&str>) {
        let from = self.extend(8);
        let at = 8 * from;
        self.field(node, "src_port", at, Form::Number(16), 0);
        let dst = read(node, "dst_port", Form::Number(16), self.seed);
        let is_vxlan = next == Some("vxlan");
        if is_vxlan && !dst.is_left() && dst != Given::Values(Values::Constant(VXLAN_PORT)) {
            node.unsupported("dst_port", "VXLAN on another port than 4789");
        }
        let default = if is_vxlan { VXLAN_PORT } else { 0 };
        self.put(&node.at("dst_port"), at + 16, 16, &dst.or(default));
        let length = read(node, "length", Form::Number(16), self.seed);
        match length {
            Given::Values(values) if values != Values::Constant(0) => {
                self.fix(&node.at("length"), at + 32, 16, &values);
            }
            _ => self.length(from + 4, from),
        }
        self.checksum(node, "checksum", at + 48);
    }

    fn icmp(&mut self, node: &mut Node<'_>, kind: u8) {
        let choice = node.choice(&["echo"], "echo");
        if choice != "echo" {
            node.unsupported(&choice, "");
            return;
        }
        let mut echo = node.node_or_empty("echo");
        let at = 8 * self.extend(8);
        self.field(&mut echo, "type", at, Form::Number(8), kind.into());
        self.field(&mut echo, "code", at + 8, Form::Number(8), 0);
        self.checksum(&mut echo, "checksum", at + 16);
        self.field(&mut echo, "identifier", at + 32, Form::Number(16), 0);
        self.field(&mut echo, "sequence_number", at + 48, Form::Number(16), 0);
        echo.end();
    }

    fn arp(&mut self, node: &mut Node<'_>) {
        let at = 8 * self.extend(28);
        for (key, bit, bits, default) in [
            ("hardware_type", 0, 16, 1),
            ("protocol_type", 16, 16, 0x0800),
            ("hardware_length", 32, 8, 6),
            ("protocol_length", 40, 8, 4),
            ("operation", 48, 16, 1),
        ] {
            self.field(node, key, at + bit, Form::Number(bits), default);
        }
        self.field(node, "sender_hardware_addr", at + 64, Form::Mac, 0);
        self.field(node, "sender_protocol_addr", at + 112, Form::Ipv4, 0);
        self.field(node, "target_hardware_addr", at + 144, Form::Mac, 0);
        self.field(node, "target_protocol_addr", at + 192, Form::Ipv4, 0);
    }

    fn gre(&mut self, node: &mut Node<'_>, next: Option<&str>) {
        let at = 8 * self.extend(4);
        let present = read(node, "checksum_present", Form::Number(1), self.seed).or(0);
        self.put(&node.at("checksum_present"), at, 1, &present);
        self.field(node, "reserved0", at + 1, Form::Number(12), 0);
        self.field(node, "version", at + 13, Form::Number(3), 0);
        let kind = ether_type(next).unwrap_or(ethertype::IPV4);
        self.field(node, "protocol", at + 16, Form::Number(16), kind.into());
        match present {
            Values::Constant(0) => {
                // Clients send their defaults.
                read(node, "reserved1", Form::Number(16), self.seed);
                node.take("checksum");
            }
            Values::Constant(_) => {
                let at = 8 * self.extend(4);
                self.checksum(node, "checksum", at);
                self.field(node, "reserved1", at + 16, Form::Number(16), 0);
            }
            _ => node.unsupported("checksum_present", "values that change"),
        }
    }

    fn vxlan(&mut self, node: &mut Node<'_>) {
        let at = 8 * self.extend(8);
        self.field(node, "flags", at, Form::Number(8), 8);
        self.field(node, "reserved0", at + 8, Form::Number(24), 0);
        self.field(node, "vni", at + 32, Form::Number(24), 0);
        self.field(node, "reserved1", at + 56, Form::Number(8), 0);
    }

    fn mpls(&mut self, node: &mut Node<'_>, next: Option<&str>) {
        let at = 8 * self.extend(4);
        let is_last = next != Some("mpls");
        self.field(node, "label", at, Form::Number(20), 16);
        self.field(node, "traffic_class", at + 20, Form::Number(3), 0);
        let bottom = u128::from(is_last);
        self.field(node, "bottom_of_stack", at + 23, Form::Number(1), bottom);
        self.field(node, "time_to_live", at + 24, Form::Number(8), 64);
    }

    fn custom(&mut self, node: &mut Node<'_>) {
        let text = node.name("bytes");
        if !node.list("metric_tags").is_empty() {
            node.unsupported("metric_tags", "");
        }
        let Some(bytes) = hex(&text) else {
            return node.problem("bytes", "must be hex digits, two for each byte");
        };
        let at = self.packet.bytes.len();
        self.customs.push(at..at + bytes.len());
        self.packet.bytes.extend(bytes);
    }

    fn checksum(&mut self, node: &mut Node<'_>, key: &str, bit: usize) {
        let Some(mut checksum) = node.node(key) else {
            return;
        };
        let choice = checksum.choice(&["generated", "custom"], "generated");
        match choice.as_str() {
            "generated" => {
                let kind = checksum.text("generated");
                match (kind.as_deref(), u16::try_from(bit / 8)) {
                    (None | Some("good"), _) => {}
                    (Some("bad"), Ok(at)) => self.packet.bad_checksums.push(at),
                    _ => checksum.problem("generated", "must be good or bad"),
                }
            }
            "custom" => {
                let custom = checksum.number_in("custom", 0..=u16::MAX, 0);
                let value = Values::Constant(custom.into());
                self.fix(&checksum.at("custom"), bit, 16, &value);
            }
            other => return checksum.unknown_choice(other),
        }
        checksum.end();
    }

    fn length(&mut self, at: usize, from: usize) {
        // The bytes of inner frames leave room for an FCS.
        let from = from + 4 * self.inner_ethernets;
        self.lengths.push(LengthField { at, from });
    }

    /// Fills in the lengths, and keeps the bytes of custom headers as they are.
    fn finish(mut self, size: Option<u32>, headers: &[(String, &Value)]) -> Packet {
        let place = || headers.first().map(|(path, _)| path.clone());
        match size {
            Some(size) => {
                let end = (size as usize).saturating_sub(FCS);
                for LengthField { at, from } in &self.lengths {
                    // A packet that is too short is reported with its size.
                    let len = u16::try_from(end.saturating_sub(*from)).unwrap_or(u16::MAX);
                    self.packet.bytes[*at..at + 2].copy_from_slice(&len.to_be_bytes());
                }
            }
            None if self.inner_ethernets > 0 => {
                let what = "an inner Ethernet header with sizes that vary";
                self.problems.unsupported(place().unwrap_or_default(), what);
            }
            None => {}
        }
        if !self.customs.is_empty() {
            self.keep_customs();
        }
        self.packet
    }
}

impl Builder<'_> {
    /// Keeps the sender from filling in lengths and checksums in custom headers.
    fn keep_customs(&mut self) {
        let headers = self.packet.bytes.len();
        let mut filled = BTreeSet::new();
        // A byte of a length may be 0, but not in both packets.
        for payload in [0x101, 0x102] {
            let mut before = self.packet.bytes.clone();
            before.resize(headers + payload, 0);
            let mut after = before.clone();
            let checksums = wb_wire::derive(&mut after, headers);
            filled.extend(
                checksums
                    .iter()
                    .flat_map(|field| [field.at(), field.at() + 1]),
            );
            filled.extend((0..headers).filter(|at| before[*at] != after[*at]));
        }
        for custom in std::mem::take(&mut self.customs) {
            for at in custom.filter(|at| filled.contains(at)) {
                let value = Values::List(vec![self.packet.bytes[at].into()]);
                self.put("", 8 * at, 8, &value);
            }
        }
    }
}

/// Bytes of hex digits; blanks and colons between them are dropped.
pub(crate) fn hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|b| !b.is_ascii_whitespace() && *b != b':')
        .collect();
    let value = |digit: u8| {
        let value = char::from(digit).to_digit(16)?;
        u8::try_from(value).ok()
    };
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => Some(value(*high)? << 4 | value(*low)?),
        _ => None,
    });
    pairs.collect()
}
