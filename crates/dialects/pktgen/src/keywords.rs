//! Command table of device files: name, argument and effect of each command.

use crate::address;
use crate::errno::Errno;
use crate::machine::PktgenMachine;
use crate::scanner::{self, Scanner};
use wb_model::device::flags::{self, FLAGS};
use wb_model::device::{Delay, DeviceConfig, Flags, VlanTag, XmitMode, mix};
use wb_model::units::Span;
use wb_pktgen_device::DeviceProgress;

/// Syntax of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentSyntax {
    /// No argument; the rest of the line is ignored.
    None,
    /// At most this number of decimal digits; no digit means 0.
    Decimal(usize),
    /// Two hexadecimal digits.
    HexByte,
    /// Text up to white space, `"` or `=`, with at most this number of characters.
    Word(usize),
    /// A list that the command parses.
    List,
}

/// A parsed argument.
enum ArgumentValue<'a> {
    None,
    Number(u64),
    /// A byte, if there were two digits.
    Byte(Option<u8>),
    Word(String),
    List(Scanner<'a>),
}

impl ArgumentValue<'_> {
    const fn number(&self) -> u64 {
        match self {
            Self::Number(n) => *n,
            _ => 0,
        }
    }

    fn word(&self) -> &str {
        match self {
            Self::Word(word) => word,
            _ => "",
        }
    }
}

/// State on which a command works.
pub(crate) struct CommandTarget<'a> {
    pub(crate) config: &'a mut DeviceConfig,
    pub(crate) interface: &'a str,
    pub(crate) progress: &'a mut DeviceProgress,
    pub(crate) debug: &'a mut u64,
    pub(crate) world: &'a dyn PktgenMachine,
    /// Rejects clones and bursts if the kernel's driver could not send them.
    pub(crate) strict_sharing: bool,
    pub(crate) warnings: &'a mut Vec<String>,
}

impl CommandTarget<'_> {
    fn may_share(&self) -> bool {
        !self.strict_sharing
            || self
                .world
                .interface(self.interface)
                .is_some_and(|i| i.shares_packets)
    }

    fn warn(&mut self, text: &str) {
        self.warnings.push(format!("{}: {text}", self.config.name));
    }
}

/// New text of `Result:`, if the command sets one.
type CommandOutcome = Result<Option<String>, Errno>;

/// One command of a device file.
pub struct DeviceKeyword {
    /// Name of the command.
    pub name: &'static str,
    /// Alternative names.
    pub aliases: &'static [&'static str],
    /// Syntax of the argument.
    pub argument: ArgumentSyntax,
    /// Setting of the command, with unit and range.
    pub doc: &'static str,
    effect: fn(&DeviceKeyword, ArgumentValue<'_>, &mut CommandTarget<'_>) -> CommandOutcome,
}

impl std::fmt::Debug for DeviceKeyword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keyword({} {:?})", self.name, self.argument)
    }
}

impl DeviceKeyword {
    fn ok_text(&self, value: impl std::fmt::Display) -> CommandOutcome {
        Ok(Some(format!("OK: {}={value}", self.name)))
    }
}

/// Maximum length of a command name, in characters; a longer word is cut.
const NAME: usize = 15;

/// Executes the command in `written`. Returns the new text of `Result:`, if the command sets one.
pub(crate) fn execute_command(
    written: &[u8],
    target: &mut CommandTarget<'_>,
) -> (Option<String>, Result<(), Errno>) {
    if written.is_empty() {
        return (None, Err(Errno::Einval));
    }
    let mut scanner = Scanner::new(written);
    scanner.skip_separators();
    let name = scanner::bytes_to_text(&scanner.read_word(NAME));
    scanner.skip_separators();
    let Some(keyword) = find(&name) else {
        return (
            Some(format!("No such parameter \"{name}\"")),
            Err(Errno::Einval),
        );
    };
    let value = match keyword.argument {
        ArgumentSyntax::None => ArgumentValue::None,
        ArgumentSyntax::Decimal(digits) => ArgumentValue::Number(scanner.read_decimal(digits)),
        ArgumentSyntax::HexByte => ArgumentValue::Byte(match scanner.read_hexadecimal(2) {
            (value, 2) => Some(value as u8),
            _ => None,
        }),
        ArgumentSyntax::Word(most) => {
            ArgumentValue::Word(scanner::bytes_to_text(&scanner.read_word(most)))
        }
        ArgumentSyntax::List => ArgumentValue::List(scanner),
    };
    match (keyword.effect)(keyword, value, target) {
        Ok(result) => (result, Ok(())),
        Err(errno) => (None, Err(errno)),
    }
}

/// Command with this name or alias.
pub fn find(name: &str) -> Option<&'static DeviceKeyword> {
    KEYWORDS
        .iter()
        .find(|k| k.name == name || k.aliases.contains(&name))
}

/// Stores a number with the width of its field, and reports it.
macro_rules! store {
    ($field:ident as $width:ty) => {
        |k, v, t| {
            t.config.$field = v.number() as $width;
            if v.number() != t.config.$field as u64 {
                t.warn(&format!(
                    "{} {} is out of range; {} is used",
                    k.name,
                    v.number(),
                    t.config.$field
                ));
            }
            k.ok_text(t.config.$field)
        }
    };
}

/// Stores a size of at least 42 in the named fields.
macro_rules! size {
    ($first:ident $(, $more:ident)*) => {
        |k, v, t| {
            let size = v.number().max(u64::from(DeviceConfig::SMALLEST)) as u32;
            t.config.$first = size;
            $(t.config.$more = size;)*
            // Stored as an unsigned number, but reported as a signed one.
            k.ok_text(size as i32)
        }
    };
}

/// Stores the text of an IPv4 address unchanged.
macro_rules! ipv4 {
    ($field:ident) => {
        |k, v, t| {
            let text = v.word();
            if !address::is_ipv4(text) {
                t.warn(&format!("{} `{text}` is not an IPv4 address", k.name));
            }
            t.config.$field = text.to_owned();
            k.ok_text(text)
        }
    };
}

/// Stores an IPv6 address and enables IPv6. With `current`, sets the present address too.
macro_rules! ipv6 {
    ($field:ident $(, $current:ident)?) => {
        |k, v, t| {
            t.config.flags.put(Flags::IPV6, true);
            match address::lax_ipv6(v.word()) {
                Some(address) => t.config.$field = address,
                None => t.warn(&format!("{} `{}` is not an IPv6 address", k.name, v.word())),
            }
            $(t.progress.$current = t.config.$field;)?
            k.ok_text(address::show_ipv6(t.config.$field))
        }
    };
}

/// Stores a part of an enabled VLAN tag, up to `$most`.
macro_rules! tag_part {
    ($tag:ident . $part:ident, $most:literal) => {
        |k, v, t| {
            if v.number() <= $most && t.config.$tag.id.is_some() {
                t.config.$tag.$part = v.number() as u8;
                k.ok_text(v.number())
            } else {
                Ok(Some(format!("ERROR: {} must be 0-{}", k.name, $most)))
            }
        }
    };
}

/// Stores a byte of two hexadecimal digits.
macro_rules! hex_byte {
    ($field:ident) => {
        |k, v, t| match v {
            ArgumentValue::Byte(Some(byte)) => {
                t.config.$field = byte;
                k.ok_text(format_args!("0x{byte:02x}"))
            }
            _ => Ok(Some(format!("ERROR: {} must be 00-ff", k.name))),
        }
    };
}

/// A command: name and aliases, argument, setting, effect.
macro_rules! keyword {
    ($name:literal $($alias:literal)*, $argument:ident $(($most:expr))?, $doc:literal, $effect:expr) => {
        DeviceKeyword {
            name: $name,
            aliases: &[$($alias),*],
            argument: ArgumentSyntax::$argument $(($most))?,
            doc: $doc,
            effect: $effect,
        }
    };
}

/// Every command of a device file.
pub static KEYWORDS: &[DeviceKeyword] = &[
    keyword! { "count", Decimal(10), "Packets to send; 0: unlimited.", store!(count as u64) },
    keyword! { "min_pkt_size", Decimal(10), "Smallest size in bytes without FCS, at least 42.",
    size!(min_size) },
    keyword! { "max_pkt_size", Decimal(10), "Largest size in bytes without FCS, at least 42.",
    size!(max_size) },
    keyword! { "pkt_size", Decimal(10),
    "Size in bytes without FCS, at least 42: smallest and largest at once.", size!(min_size, max_size) },
    keyword! { "imix_weights", List, "Mix of sizes: `size,weight size,weight …`, 1 to 20 entries.",
    imix_weights },
    keyword! { "debug", Decimal(10), "Log more; for all devices.", |k, v, t| {
        *t.debug = v.number();
        k.ok_text(v.number())
    } },
    keyword! { "frags", Decimal(10), "Fragments of the payload in memory; no effect on bytes.",
    store!(frags as i32) },
    keyword! { "delay" "ipg", Decimal(10), "Time between transmit calls in ns; 2147483647: never send.",
    |k, v, t| {
        let ns = match v.number() {
            0x7fff_ffff => Delay::NEVER,
            ns => ns,
        };
        t.config.delay = Delay::whole(ns);
        k.ok_text(ns)
    } },
    keyword! { "rate", Decimal(10),
    "Rate in Mb/s at the smallest size, without FCS, preamble and gap.", |k, v, t| {
        if v.number() == 0 {
            return Err(Errno::Einval);
        }
        t.config.delay = Delay::fraction(u64::from(t.config.min_size) * 8000, v.number());
        if t.config.delay.shown_ns == 0 {
            t.warn("rate: the delay is 0, which is full speed; set the size first");
        }
        k.ok_text(v.number())
    } },
    keyword! { "ratep", Decimal(10), "Rate in packets per second.", |_, v, t| {
        if v.number() == 0 {
            return Err(Errno::Einval);
        }
        t.config.delay = Delay::fraction(1_000_000_000, v.number());
        Ok(Some(format!("OK: rate={}", v.number())))
    } },
    keyword! { "udp_src_min", Decimal(10), "Lowest UDP source.", store!(udp_src_min as u16) },
    keyword! { "udp_src_max", Decimal(10), "Upper bound of the UDP source port; never sent itself.",
    store!(udp_src_max as u16) },
    keyword! { "udp_dst_min", Decimal(10), "Lowest UDP destination.", store!(udp_dst_min as u16) },
    keyword! { "udp_dst_max", Decimal(10), "Upper bound of the UDP destination port; never sent itself.",
    store!(udp_dst_max as u16) },
    keyword! { "clone_skb", Decimal(10), "Number of times that each built packet is sent; not with a mix of sizes.",
    |k, v, t| {
        if v.number() > 0 {
            if t.config.xmit_mode == XmitMode::NetifReceive || !t.may_share() {
                return Err(Errno::Eopnotsupp);
            }
            if !t.config.imix.is_empty() || !t.config.flags.has(Flags::SHARED) {
                return Err(Errno::Einval);
            }
        }
        t.config.clone_skb = v.number() as i32;
        k.ok_text(t.config.clone_skb)
    } },
    keyword! { "src_mac_count", Decimal(10), "Number of source MAC addresses; 0 or 1: one.",
    store!(src_mac_count as i32) },
    keyword! { "dst_mac_count", Decimal(10), "Number of destination MAC addresses; 0 or 1: one.",
    store!(dst_mac_count as i32) },
    keyword! { "burst", Decimal(10), "Number of times that a packet is sent in one transmit call; 0 becomes 1.",
    |k, v, t| {
        if v.number() > 1 {
            let refused = match t.config.xmit_mode {
                XmitMode::QueueXmit => true,
                XmitMode::StartXmit => !t.may_share(),
                XmitMode::NetifReceive => false,
            };
            if refused {
                return Err(Errno::Eopnotsupp);
            }
            if !t.config.flags.has(Flags::SHARED) {
                return Err(Errno::Einval);
            }
        }
        t.config.burst = v.number().max(1) as i32;
        k.ok_text(t.config.burst as u32)
    } },
    keyword! { "node", Decimal(10),
    "NUMA node; checked and shown only. With the flag NODE, frame memory is on the node of the worker's CPU.",
    |k, v, t| {
        let node = i32::try_from(v.number()).ok();
        match node.filter(|n| t.world.node_possible(*n)) {
            Some(node) => {
                t.config.node = Some(node);
                k.ok_text(node)
            }
            None => Ok(Some("ERROR: node not possible".to_owned())),
        }
    } },
    keyword! { "xmit_mode", Word(31), "start_xmit, netif_receive or queue_xmit.", |k, v, t| {
        let mode = match v.word() {
            "start_xmit" => XmitMode::StartXmit,
            "queue_xmit" => XmitMode::QueueXmit,
            "netif_receive" if t.config.clone_skb > 0 => return Err(Errno::Eopnotsupp),
            "netif_receive" => XmitMode::NetifReceive,
            other => {
                return Ok(Some(format!(
                    "xmit_mode -:{other}:- unknown\nAvailable modes: start_xmit, netif_receive\n"
                )));
            }
        };
        t.config.xmit_mode = mode;
        k.ok_text(v.word())
    } },
    keyword! { "flag", Word(31), "A flag to set, or to clear with `!` before it.", set_flag },
    keyword! { "dst_min" "dst", Word(31), "Lowest IPv4 destination.", ipv4!(dst_min) },
    keyword! { "dst_max", Word(31), "Highest IPv4 destination.", ipv4!(dst_max) },
    keyword! { "src_min", Word(31), "Lowest IPv4 source; default: the address of the interface.",
    ipv4!(src_min) },
    keyword! { "src_max", Word(31), "Highest IPv4 source.", ipv4!(src_max) },
    keyword! { "dst6", Word(127), "IPv6 destination; switches IPv6 on.", ipv6!(dst6, daddr6) },
    keyword! { "dst6_min", Word(127), "Bits always set in a random IPv6 destination; switches IPv6 on.",
    ipv6!(dst6_min, daddr6) },
    keyword! { "dst6_max", Word(127),
    "Bits that may be set in a random IPv6 destination; switches IPv6 on.", ipv6!(dst6_max) },
    keyword! { "src6", Word(127), "IPv6 source; switches IPv6 on.", ipv6!(src6, saddr6) },
    keyword! { "dst_mac" "dstmac", Word(31), "Destination MAC address, `hh:hh:hh:hh:hh:hh`.", |_, v, t| {
        t.config.dst_mac = address::parse_mac(v.word()).ok_or(Errno::Einval)?;
        Ok(Some(format!("OK: dstmac {}", t.config.dst_mac)))
    } },
    keyword! { "src_mac" "srcmac", Word(31),
    "Source MAC address; default: the address of the interface.", |_, v, t| {
        let mac = address::parse_mac(v.word()).ok_or(Errno::Einval)?;
        t.config.src_mac = Some(mac).filter(|m| *m != wb_model::units::Mac::default());
        Ok(Some(format!("OK: srcmac {mac}")))
    } },
    keyword! { "clear_counters", None, "Reset the counters of the run.", |_, _, t| {
        t.config.clears += 1;
        Ok(Some("OK: Clearing counters.\n".to_owned()))
    } },
    keyword! { "flows", Decimal(10), "Slots of the flow table, at most 65536.", |k, v, t| {
        t.config.flows = v.number().min(u64::from(DeviceConfig::MAX_FLOWS)) as u32;
        k.ok_text(t.config.flows)
    } },
    keyword! { "flowlen", Decimal(10), "Packets of one flow.", store!(flow_len as u32) },
    keyword! { "spi", Decimal(10), "Security association; shown, nothing is encrypted.", store!(spi as u32) },
    keyword! { "queue_map_min", Decimal(5), "First transmit queue, from 0.", store!(queue_min as u16) },
    keyword! { "queue_map_max", Decimal(5), "Last transmit queue, from 0.", store!(queue_max as u16) },
    keyword! { "mpls", List,
    "Label stack: 1 to 16 hexadecimal words separated by commas; removes VLAN tags.", set_mpls },
    keyword! { "vlan_id", Decimal(4), "VLAN id, 0 to 4095; a larger value removes both tags. Removes labels.",
    |k, v, t| {
        if v.number() > 4095 {
            vlans_off(t.config);
            return Ok(None);
        }
        t.config.vlan.id = Some(v.number() as u16);
        t.config.labels.clear();
        k.ok_text(v.number())
    } },
    keyword! { "vlan_p", Decimal(1), "VLAN priority, 0 to 7.", tag_part!(vlan.priority, 7) },
    keyword! { "vlan_cfi", Decimal(1), "The bit after the VLAN priority.", tag_part!(vlan.cfi, 1) },
    keyword! { "svlan_id", Decimal(4),
    "Id of the outer VLAN tag, 0 to 4095, if there is an inner tag; otherwise removes both.",
    |k, v, t| {
        if v.number() > 4095 || t.config.vlan.id.is_none() {
            vlans_off(t.config);
            return Ok(None);
        }
        t.config.svlan.id = Some(v.number() as u16);
        t.config.labels.clear();
        k.ok_text(v.number())
    } },
    keyword! { "svlan_p", Decimal(1), "Priority of the outer VLAN tag, 0 to 7.",
    tag_part!(svlan.priority, 7) },
    keyword! { "svlan_cfi", Decimal(1), "The bit after the priority of the outer VLAN tag.",
    tag_part!(svlan.cfi, 1) },
    keyword! { "tos", HexByte, "IPv4 type of service, two hexadecimal digits.", hex_byte!(tos) },
    keyword! { "traffic_class", HexByte, "IPv6 traffic class, two hexadecimal digits.",
    hex_byte!(traffic_class) },
    keyword! { "skb_priority", Decimal(9), "Priority in the queueing discipline.",
    store!(skb_priority as u32) },
    keyword! { "config", Decimal(10), "Announced packets in old receivers; accepted, no effect.",
    |k, v, _| k.ok_text(v.number()) },
    keyword! { "duration", Word(31),
    "Duration: `10s`, `500ms`; 0: as long as `count` takes. The first limit reached ends the run. The kernel has no such command.", |k, v, t| match v.word().parse::<Span>() {
        Ok(span) => {
            // A plan stores the duration as a signed number.
            t.config.duration_ns = span.as_nanos().min(i64::MAX as u64);
            k.ok_text(span)
        }
        Err(_) if v.word() == "0" => {
            t.config.duration_ns = 0;
            k.ok_text(0)
        }
        Err(_) => Ok(Some(
            "ERROR: duration must be a time such as 10s or 500ms, or 0".to_owned(),
        )),
    } },
];

fn vlans_off(config: &mut DeviceConfig) {
    for VlanTag { id, .. } in [&mut config.vlan, &mut config.svlan] {
        *id = None;
    }
}

fn set_flag(
    _: &DeviceKeyword,
    value: ArgumentValue<'_>,
    t: &mut CommandTarget<'_>,
) -> CommandOutcome {
    let written = value.word();
    let (name, on) = match written.strip_prefix('!') {
        Some(name) => (name, false),
        None => (written, true),
    };
    if name == "FLOW_RND" {
        t.config.flags.put(Flags::FLOW_SEQ, !on);
        return Ok(Some(format!("OK: flags={:#x}", t.config.flags.0)));
    }
    match flags::find(name.as_bytes()) {
        Some(flag) if !(on && flag.bit == Flags::IPV6) => {
            let reused = t.config.clone_skb > 0 || t.config.burst > 1;
            if flag.bit == Flags::SHARED && !on && reused {
                return Err(Errno::Einval);
            }
            t.config.flags.put(flag.bit, on);
            Ok(Some(format!("OK: flags={:#x}", t.config.flags.0)))
        }
        _ => {
            let names: Vec<_> = FLAGS.iter().map(|f| f.name).collect();
            Ok(Some(format!(
                "Flag -:{written}:- unknown\n\
                 Available flags, (prepend ! to un-set flag):\n{}",
                names.join(", ")
            )))
        }
    }
}

fn imix_weights(
    _: &DeviceKeyword,
    value: ArgumentValue<'_>,
    t: &mut CommandTarget<'_>,
) -> CommandOutcome {
    let ArgumentValue::List(mut text) = value else {
        return Err(Errno::Einval);
    };
    if t.config.clone_skb > 0 {
        return Err(Errno::Einval);
    }
    // Entries before a mistake remain.
    t.config.imix.clear();
    t.progress.imix_counts.clear();
    loop {
        if t.config.imix.len() == mix::MAX_ENTRIES {
            return Err(Errno::E2big);
        }
        if text.unread_bytes().is_empty() {
            return Err(Errno::Einval);
        }
        let size = text.read_decimal(10);
        if text.read_byte() != Some(b',') {
            return Err(Errno::Einval);
        }
        let weight = text.read_decimal(10);
        if weight == 0 {
            return Err(Errno::Einval);
        }
        t.config.imix.push(mix::Entry {
            size: size.max(u64::from(DeviceConfig::SMALLEST)),
            weight,
        });
        t.progress.imix_counts.push(0);
        if text.read_byte() != Some(b' ') {
            return Ok(None);
        }
    }
}

fn set_mpls(
    k: &DeviceKeyword,
    value: ArgumentValue<'_>,
    t: &mut CommandTarget<'_>,
) -> CommandOutcome {
    let ArgumentValue::List(mut text) = value else {
        return Err(Errno::Einval);
    };
    t.config.labels.clear();
    let mut labels = Vec::new();
    loop {
        if text.unread_bytes().is_empty() {
            return Err(Errno::Einval);
        }
        let (word, _) = text.read_hexadecimal(8);
        if word == 0 {
            labels.clear();
            break;
        }
        // pktgen.c: in the text, the bottom-of-stack bit means "random".
        if word & BOTTOM_OF_STACK != 0 {
            t.config.flags.put(Flags::MPLS_RND, true);
        }
        labels.push(word);
        if text.read_byte() != Some(b',') {
            break;
        }
        if labels.len() == DeviceConfig::MAX_LABELS {
            return Err(Errno::E2big);
        }
    }
    let words: Vec<_> = labels.iter().map(|word| format!("{word:08x}")).collect();
    if !labels.is_empty() {
        vlans_off(t.config);
    }
    t.config.labels = labels;
    k.ok_text(words.join(","))
}

/// Bottom-of-stack bit of an MPLS word.
const BOTTOM_OF_STACK: u32 = 0x100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_short_enough() {
        let mut names: Vec<_> = KEYWORDS
            .iter()
            .flat_map(|k| k.aliases.iter().copied().chain([k.name]))
            .collect();
        assert!(names.iter().all(|n| n.len() <= NAME));
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        assert!(KEYWORDS.iter().all(|k| k.doc.ends_with('.')));
    }
}
