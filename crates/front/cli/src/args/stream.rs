//! Options for streams, shared by `trial`, `tx` and plans.

use std::collections::BTreeSet;

use clap::{Args, ValueEnum};
use wb_model::{
    Extension, Proto, Stream, TagKind, Vary,
    plan::{HexBytes, VlanSpec},
    text::in_plain_words,
    units::{AddressRange, Mac, PortRange, Rate, SizeModel, Span},
};

use super::count_in;

/// Frames to send.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Frames")]
pub(crate) struct StreamArgs {
    /// Frame size with FCS: 64, a range 64-1518, imix, or weights 64:7,570:4,1518:1 [default: the smallest that holds
    /// headers and tag, at least 64].
    #[arg(long, value_name = "SIZE")]
    size: Option<SizeModel>,
    /// Rate of all workers together: 100kpps or 100k, 1.2mpps, 10gbps (layer 1), 9gbps-l2, 37%, max.
    #[arg(long, value_name = "RATE", default_value = "max")]
    rate: Rate,
    /// Send bursts of this many back-to-back frames, one every --gap, instead of a rate.
    #[arg(long, value_name = "N", requires = "gap", conflicts_with = "rate", value_parser = count_in::<u32>(0..))]
    burst: Option<u32>,
    /// Time from the first frame of a burst to the first frame of the next.
    #[arg(long, value_name = "TIME", requires = "burst")]
    gap: Option<Span>,
    #[command(flatten)]
    frames: FrameArgs,
    /// Replay this pcap or pcapng file unmodified, repeated until --duration or --count is reached.
    #[arg(long, value_name = "FILE", conflicts_with_all = MADE)]
    replay: Option<String>,
    /// Replay speed relative to the recording (1: as recorded) [default: paced by --rate].
    #[arg(long, value_name = "X", requires = "replay", conflicts_with = "rate")]
    speed: Option<f64>,
    /// Add a stream, "size=1518 rate=10kpps vlan=7 …" (keys as in plan files); repeatable. The options above then set
    /// the values that the streams do not give.
    #[arg(long = "stream", value_name = "KEYS")]
    streams: Vec<String>,
}

/// Headers and payload of frames, independent of size and rate.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Frames")]
pub(crate) struct FrameArgs {
    /// Number of flows, each with its own 5-tuple, used in turn [default: one per combination of the given ranges].
    #[arg(long, value_name = "N", value_parser = count_in::<u32>(0..))]
    flows: Option<u32>,
    /// Protocol of the frames.
    #[arg(long, value_name = "PROTO", default_value = "udp")]
    proto: ProtoArg,
    /// Send IPv6 (default addresses 2001:2:0:1::2 and 2001:2:0:8001::2).
    #[arg(short = '6', long)]
    ipv6: bool,
    /// Source addresses: one, a range A-B, or a prefix [default: 198.18.1.2].
    #[arg(long, value_name = "ADDR")]
    src: Option<AddressRange>,
    /// Destination addresses: one, a range A-B, or a prefix [default: 198.19.1.2].
    #[arg(long, value_name = "ADDR")]
    dst: Option<AddressRange>,
    /// Source ports: one or a range [default: 49184].
    #[arg(long, value_name = "PORTS")]
    sport: Option<PortRange>,
    /// Destination ports: one or a range [default: 7].
    #[arg(long, value_name = "PORTS")]
    dport: Option<PortRange>,
    /// Source hardware address [default: address of the port].
    #[arg(long, value_name = "MAC")]
    src_mac: Option<Mac>,
    /// Destination hardware address [default: resolved by ARP or neighbour discovery].
    #[arg(long, value_name = "MAC")]
    dst_mac: Option<Mac>,
    /// VLAN ids, outermost first: ID or ID:PRIORITY. The last tag is 802.1Q, outer tags are 802.1ad.
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    vlan: Vec<VlanSpec>,
    /// MPLS labels, topmost first.
    #[arg(long, value_name = "LABEL", value_delimiter = ',')]
    mpls: Vec<u32>,
    /// IPv6 extension headers, in order: hop-by-hop, routing, fragment, destination; without options that require an
    /// action (RFC 5180).
    #[arg(long, value_name = "EXTENSION", value_delimiter = ',')]
    ext: Vec<Extension>,
    /// IPv4 type of service or IPv6 traffic class, 0 to 255.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = byte)]
    tos: u8,
    /// IPv4 time to live or IPv6 hop limit [default: 64].
    #[arg(long, value_name = "NUMBER")]
    ttl: Option<u8>,
    /// TCP flags as a number (0x10 is ACK, 0x02 SYN) [default: 0x10].
    #[arg(long, value_name = "NUMBER", value_parser = byte)]
    tcp_flags: Option<u8>,
    /// EtherType of --proto raw [default: 0x88b5].
    #[arg(long, value_name = "NUMBER", value_parser = word)]
    ethertype: Option<u16>,
    /// Payload after headers and tag: hex digits, repeated [default: zeros].
    #[arg(long, value_name = "HEX")]
    payload: Option<HexBytes>,
    /// Field that varies between frames: FIELD=inc|dec|random:FIRST-LAST or FIELD=list:A,B, optionally followed by
    /// ,step=N and ,mask=0x..; repeatable.
    #[arg(long, value_name = "MODIFIER")]
    vary: Vec<Vary>,
    /// Test tag behind the last header.
    #[arg(long, value_name = "TAG", default_value = "wirebench")]
    tag: TagArg,
}

/// Options for generated frames. A replay sends recorded frames unmodified.
const MADE: [&str; 20] = [
    "size",
    "flows",
    "proto",
    "ipv6",
    "src",
    "dst",
    "sport",
    "dport",
    "src_mac",
    "dst_mac",
    "vlan",
    "mpls",
    "ext",
    "tos",
    "ttl",
    "tcp_flags",
    "ethertype",
    "payload",
    "vary",
    "tag",
];

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ProtoArg {
    /// UDP over IP
    Udp,
    /// TCP segments without a connection
    Tcp,
    /// ICMP or ICMPv6 echo requests
    Icmp,
    /// ARP requests
    Arp,
    /// Payload directly behind Ethernet
    Raw,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TagArg {
    /// Flow, sequence and time: allows all measurements
    Wirebench,
    /// The header of the Linux packet generator
    Pktgen,
    /// No tag: frames can only be counted
    None,
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn byte(text: &str) -> Result<u8, String> {
    number(text)
        .and_then(|n| u8::try_from(n).ok())
        .ok_or_else(|| "must be between 0 and 255 (0x00 and 0xff)".to_owned())
}

fn word(text: &str) -> Result<u16, String> {
    number(text)
        .and_then(|n| u16::try_from(n).ok())
        .ok_or_else(|| "must be between 0 and 65535 (0x0000 and 0xffff)".to_owned())
}

impl FrameArgs {
    /// Returns true if a time to live was given.
    pub(crate) const fn has_ttl(&self) -> bool {
        self.ttl.is_some()
    }

    /// Returns true if the frames are IPv6.
    pub(crate) fn is_ipv6(&self) -> bool {
        let is = |addresses: Option<AddressRange>| addresses.is_some_and(|a| a.is_ipv6());
        self.ipv6 || is(self.src) || is(self.dst)
    }

    /// Returns a stream of these frames.
    pub(crate) fn stream(&self) -> Stream {
        Stream {
            flows: self.flows,
            proto: match self.proto {
                ProtoArg::Udp => Proto::Udp,
                ProtoArg::Tcp => Proto::Tcp,
                ProtoArg::Icmp => Proto::Icmp,
                ProtoArg::Arp => Proto::Arp,
                ProtoArg::Raw => Proto::Raw,
            },
            ipv6: self.ipv6,
            src: self.src,
            dst: self.dst,
            sport: self.sport,
            dport: self.dport,
            src_mac: self.src_mac,
            dst_mac: self.dst_mac,
            vlan: self.vlan.clone(),
            mpls: self.mpls.clone(),
            ext: self.ext.clone(),
            tos: self.tos,
            ttl: self.ttl.unwrap_or(Stream::default().ttl),
            tcp_flags: self.tcp_flags,
            ethertype: self.ethertype,
            payload: self.payload.clone(),
            vary: self.vary.clone(),
            tag: match self.tag {
                TagArg::Wirebench => TagKind::Wirebench,
                TagArg::Pktgen => TagKind::Pktgen,
                TagArg::None => TagKind::None,
            },
            ..Stream::default()
        }
    }
}

impl StreamArgs {
    fn common(&self) -> Stream {
        Stream {
            size: self.size.clone(),
            rate: match self.burst {
                Some(_) => Rate::Max,
                None => self.rate,
            },
            burst: self.burst,
            gap: self.gap,
            replay: self.replay.clone(),
            speed: self.speed,
            ..self.frames.stream()
        }
    }

    /// Returns the streams that the options describe.
    pub(crate) fn streams(&self) -> anyhow::Result<Vec<Stream>> {
        if self.streams.is_empty() {
            return Ok(vec![self.common()]);
        }
        self.streams
            .iter()
            .map(|text| overlay(&self.common(), text))
            .collect()
    }
}

/// Overlays a stream with plan file keys given as `key=value` words.
fn overlay(common: &Stream, text: &str) -> anyhow::Result<Stream> {
    let wrong = |what: String| anyhow::anyhow!("--stream {text:?}: {what}");
    let mut table = toml::Table::try_from(common).map_err(|e| wrong(e.to_string()))?;
    let mut vary = Vec::new();
    let mut given = BTreeSet::new();
    for part in text.split_whitespace() {
        let (key, value) = part
            .split_once('=')
            .ok_or_else(|| wrong(format!("expected KEY=VALUE, got {part:?}")))?;
        let key = key.replace('-', "_");
        if !given.insert(key.clone()) && key != "vary" {
            return Err(wrong(format!("{key} is given twice")));
        }
        let as_given = || match (value.parse::<i64>(), value) {
            (Ok(n), _) => toml::Value::Integer(n),
            (_, "true") => toml::Value::Boolean(true),
            (_, "false") => toml::Value::Boolean(false),
            _ => toml::Value::String(value.to_owned()),
        };
        let entry = match key.as_str() {
            "vlan" | "ext" => toml::Value::Array(
                value
                    .split(',')
                    .map(|v| toml::Value::String(v.to_owned()))
                    .collect(),
            ),
            "mpls" => toml::Value::Array(
                value
                    .split(',')
                    .map(|v| {
                        v.parse().map_or_else(
                            |_| toml::Value::String(v.to_owned()),
                            toml::Value::Integer,
                        )
                    })
                    .collect(),
            ),
            "vary" => {
                vary.push(toml::Value::String(value.to_owned()));
                continue;
            }
            "flows" => count_in::<u32>(0..)(value)
                .ok()
                .map_or_else(as_given, |n| toml::Value::Integer(n.into())),
            "speed" => value
                .parse()
                .map_or_else(|_| as_given(), toml::Value::Float),
            "ethertype" | "tos" | "tcp_flags" => number(value)
                .and_then(|n| i64::try_from(n).ok())
                .map_or_else(as_given, toml::Value::Integer),
            _ => as_given(),
        };
        table.insert(key, entry);
    }
    if !vary.is_empty() {
        table.insert("vary".to_owned(), toml::Value::Array(vary));
    }
    table
        .try_into()
        .map_err(|e: toml::de::Error| wrong(in_plain_words(e.message(), "key")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_in_words() {
        let s = overlay(
            &Stream::default(),
            "size=1518 rate=10kpps vlan=7,8 vary=sport=inc:1-9 flows=3k tos=0x10",
        )
        .unwrap();
        assert_eq!(s.size, Some("1518".parse().unwrap()));
        assert_eq!(s.rate, "10kpps".parse().unwrap());
        assert_eq!(
            (s.vlan.len(), s.vary.len(), s.flows, s.tos),
            (2, 1, Some(3000), 16)
        );
        for text in ["size", "nope=1", "rate=10x", "flows=x"] {
            assert!(overlay(&Stream::default(), text).is_err(), "{text}");
        }
    }
}
