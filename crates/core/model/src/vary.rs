//! Field modifiers in the user's notation: `sport=inc:1000-2000`, `src=random:10.0.0.0/8`, `vlan=list:5,7,9`,
//! optionally followed by `,step=N` and `,mask=0x…`.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use crate::units::{AddressRange, Mac, ParseUnitError, string_serde};

/// Field of a frame that may vary between frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// Destination hardware address.
    DstMac,
    /// Source hardware address.
    SrcMac,
    /// VLAN id of the n-th tag, outermost first (`vlan`, `vlan2`, …), 12 bits.
    Vlan(u8),
    /// MPLS label of the n-th entry, topmost first (`mpls`, `mpls2`, …), 20 bits.
    Mpls(u8),
    /// IPv4 type of service or IPv6 traffic class.
    Tos,
    /// IPv4 time to live or IPv6 hop limit.
    Ttl,
    /// IPv4 identification.
    Id,
    /// IPv6 flow label, 20 bits.
    FlowLabel,
    /// Source address.
    Src,
    /// Destination address.
    Dst,
    /// UDP or TCP source port; ICMP identifier.
    Sport,
    /// UDP or TCP destination port; ICMP sequence number.
    Dport,
    /// TCP sequence number.
    TcpSeq,
    /// TCP acknowledgement number.
    TcpAck,
    /// TCP flags, 8 bits.
    TcpFlags,
    /// Bytes at an offset from the start of the frame: `u8@OFFSET`, `u16@OFFSET`, `u32@OFFSET`.
    At {
        /// Offset from the first byte of the destination address.
        offset: u16,
        /// Width in bytes: 1, 2 or 4.
        width: u8,
    },
}

const NAMED: [(&str, Field); 15] = [
    ("dst-mac", Field::DstMac),
    ("src-mac", Field::SrcMac),
    ("vlan", Field::Vlan(0)),
    ("mpls", Field::Mpls(0)),
    ("tos", Field::Tos),
    ("ttl", Field::Ttl),
    ("id", Field::Id),
    ("flow-label", Field::FlowLabel),
    ("src", Field::Src),
    ("dst", Field::Dst),
    ("sport", Field::Sport),
    ("dport", Field::Dport),
    ("tcp-seq", Field::TcpSeq),
    ("tcp-ack", Field::TcpAck),
    ("tcp-flags", Field::TcpFlags),
];

impl Field {
    /// Width in bits; for addresses it depends on the family.
    #[must_use]
    pub const fn bits(self, ipv6: bool) -> u32 {
        match self {
            Self::DstMac | Self::SrcMac => 48,
            Self::Vlan(_) => 12,
            Self::Mpls(_) | Self::FlowLabel => 20,
            Self::Tos | Self::Ttl | Self::TcpFlags => 8,
            Self::Id | Self::Sport | Self::Dport => 16,
            Self::TcpSeq | Self::TcpAck => 32,
            Self::Src | Self::Dst => {
                if ipv6 {
                    128
                } else {
                    32
                }
            }
            Self::At { width, .. } => 8 * width as u32,
        }
    }

    const fn is_address(self) -> bool {
        matches!(self, Self::Src | Self::Dst)
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vlan(n) if *n > 0 => write!(f, "vlan{}", n + 1),
            Self::Mpls(n) if *n > 0 => write!(f, "mpls{}", n + 1),
            Self::At { offset, width } => write!(f, "u{}@{offset}", u32::from(*width) * 8),
            named => {
                let name = NAMED
                    .iter()
                    .find(|(_, field)| field == named)
                    .map_or("?", |(name, _)| name);
                f.write_str(name)
            }
        }
    }
}

impl FromStr for Field {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        if let Some((_, field)) = NAMED.iter().find(|(name, _)| *name == text) {
            return Ok(*field);
        }
        let numbered = |prefix: &str| {
            let n: u8 = text.strip_prefix(prefix)?.parse().ok()?;
            (2..=8).contains(&n).then(|| n - 1)
        };
        if let Some(n) = numbered("vlan") {
            return Ok(Self::Vlan(n));
        }
        if let Some(n) = numbered("mpls") {
            return Ok(Self::Mpls(n));
        }
        if let Some((kind, offset)) = text.split_once('@') {
            let width = match kind {
                "u8" => Some(1),
                "u16" => Some(2),
                "u32" => Some(4),
                _ => None,
            };
            if let (Some(width), Ok(offset)) = (width, offset.parse()) {
                return Ok(Self::At { offset, width });
            }
        }
        Err(ParseUnitError::new(
            text,
            "a field: dst-mac, src-mac, vlan, vlan2, mpls, tos, ttl, id, flow-label, src, dst, sport, dport, tcp-seq, tcp-ack, tcp-flags, u8@N, u16@N, u32@N",
        ))
    }
}

/// Sequence of the values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Ascending from the first to the last value, then again from the first.
    Increment(ValueRange),
    /// Descending from the last to the first value, then again from the last.
    Decrement(ValueRange),
    /// Random values of the range, uniformly distributed, from the plan's seed.
    Random(ValueRange),
    /// Values of the list in order, then again from the first.
    List(Vec<u128>),
}

/// Values `first..=last` of a field, as unsigned numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueRange {
    /// First value.
    pub first: u128,
    /// Last value, not below the first.
    pub last: u128,
}

/// Modifier of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vary {
    /// Field to change.
    pub field: Field,
    /// Sequence of its values.
    pub pattern: Pattern,
    /// Distance between successive values of `inc` and `dec`, at least 1.
    pub step: u128,
    /// Mask of the bits that vary; the other bits keep the values of the stream's options. `None` means all bits.
    pub mask: Option<u128>,
    /// True if the values were written as IPv6 addresses.
    pub ipv6: bool,
}

fn number(text: &str) -> Option<u128> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u128::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn mac_number(mac: Mac) -> u128 {
    mac.0.iter().fold(0, |n, b| n << 8 | u128::from(*b))
}

fn ip_number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(a) => u128::from(a.to_bits()),
        IpAddr::V6(a) => a.to_bits(),
    }
}

/// Parses a value of a field. Also returns true if it was an IPv6 address.
fn value(field: Field, text: &str) -> Option<(u128, bool)> {
    let text = text.trim();
    match field {
        Field::DstMac | Field::SrcMac => text.parse::<Mac>().ok().map(|m| (mac_number(m), false)),
        Field::Src | Field::Dst => text
            .parse::<IpAddr>()
            .ok()
            .map(|ip| (ip_number(ip), ip.is_ipv6())),
        _ => number(text).map(|n| (n, false)),
    }
}

fn range(field: Field, text: &str) -> Option<(ValueRange, bool)> {
    if field.is_address() {
        let r: AddressRange = text.parse().ok()?;
        // A random prefix includes every bit pattern, so it means the whole block.
        let (first, last) = match text.split_once('/') {
            Some((base, bits)) => {
                let base: IpAddr = base.parse().ok()?;
                let host =
                    if base.is_ipv4() { 32 } else { 128 } - bits.trim().parse::<u32>().ok()?;
                let mask = if host == 128 {
                    u128::MAX
                } else {
                    (1u128 << host) - 1
                };
                (ip_number(base) & !mask, ip_number(base) | mask)
            }
            None => (ip_number(r.first()), ip_number(r.last())),
        };
        return Some((ValueRange { first, last }, r.is_ipv6()));
    }
    let (first, last) = match text.split_once('-') {
        Some((a, b)) => (value(field, a)?.0, value(field, b)?.0),
        None => {
            let v = value(field, text)?.0;
            (v, v)
        }
    };
    (first <= last).then_some((ValueRange { first, last }, false))
}

impl FromStr for Vary {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let error = |expected: String| ParseUnitError::new(text, expected);
        let form = "a modifier FIELD=inc|dec|random:FIRST-LAST or FIELD=list:A,B,… optionally followed by ,step=N and ,mask=0x…";
        let (field, rest) = text.split_once('=').ok_or_else(|| error(form.into()))?;
        let field: Field = field.trim().parse()?;
        let (word, rest) = rest.split_once(':').ok_or_else(|| error(form.into()))?;
        let (mut values, mut step, mut mask) = (Vec::new(), 1, None);
        for part in rest.split(',') {
            match part.split_once('=') {
                None => values.push(part),
                Some((name, n)) => {
                    let n = number(n.trim()).ok_or_else(|| error(form.into()))?;
                    match name.trim() {
                        "step" if n > 0 => step = n,
                        "mask" if n > 0 => mask = Some(n),
                        _ => return Err(error(form.into())),
                    }
                }
            }
        }
        let wrong = |v: &str| {
            error(format!(
                "a modifier: expected a value or range LOW-HIGH of {field} (dec counts down from HIGH), got {v:?}"
            ))
        };
        let mut ipv6 = false;
        let pattern = if word == "list" {
            let mut list = Vec::with_capacity(values.len());
            for v in values {
                let (n, six) = value(field, v).ok_or_else(|| wrong(v))?;
                ipv6 |= six;
                list.push(n);
            }
            Pattern::List(list)
        } else {
            let [only] = values.as_slice() else {
                return Err(error(form.into()));
            };
            let (r, six) = range(field, only).ok_or_else(|| wrong(only))?;
            ipv6 = six;
            match word {
                "inc" => Pattern::Increment(r),
                "dec" => Pattern::Decrement(r),
                "random" => Pattern::Random(r),
                _ => return Err(error(form.into())),
            }
        };
        let vary = Self {
            field,
            pattern,
            step,
            mask,
            ipv6,
        };
        let bits = field.bits(ipv6);
        let limit = if bits >= 128 {
            u128::MAX
        } else {
            (1u128 << bits) - 1
        };
        if vary.largest() > limit || mask.is_some_and(|m| m > limit) {
            return Err(error(format!(
                "a modifier: {field} has {bits} bits, values 0 to {limit}"
            )));
        }
        Ok(vary)
    }
}

impl Vary {
    /// Largest value that the modifier may write.
    #[must_use]
    pub fn largest(&self) -> u128 {
        match &self.pattern {
            Pattern::Increment(r) | Pattern::Decrement(r) | Pattern::Random(r) => r.last,
            Pattern::List(list) => list.iter().copied().max().unwrap_or(0),
        }
    }

    fn show(&self, n: u128) -> String {
        match self.field {
            Field::DstMac | Field::SrcMac => {
                let b = n.to_be_bytes();
                Mac([b[10], b[11], b[12], b[13], b[14], b[15]]).to_string()
            }
            Field::Src | Field::Dst if self.ipv6 => Ipv6Addr::from_bits(n).to_string(),
            Field::Src | Field::Dst => {
                Ipv4Addr::from_bits(u32::try_from(n).unwrap_or(u32::MAX)).to_string()
            }
            _ => n.to_string(),
        }
    }
}

impl fmt::Display for Vary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=", self.field)?;
        let range = |r: &ValueRange| format!("{}-{}", self.show(r.first), self.show(r.last));
        match &self.pattern {
            Pattern::Increment(r) => write!(f, "inc:{}", range(r))?,
            Pattern::Decrement(r) => write!(f, "dec:{}", range(r))?,
            Pattern::Random(r) => write!(f, "random:{}", range(r))?,
            Pattern::List(list) => {
                let values: Vec<String> = list.iter().map(|n| self.show(*n)).collect();
                write!(f, "list:{}", values.join(","))?;
            }
        }
        if self.step != 1 {
            write!(f, ",step={}", self.step)?;
        }
        if let Some(mask) = self.mask {
            write!(f, ",mask={mask:#x}")?;
        }
        Ok(())
    }
}

string_serde!(
    Vary,
    "Vary",
    "a field modifier FIELD=inc|dec|random:FIRST-LAST or FIELD=list:A,B, optionally followed by ,step=N and ,mask=0x..",
    "sport=inc:1000-2000"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints() {
        for (text, printed) in [
            ("sport=inc:1000-2000", "sport=inc:1000-2000"),
            (
                "src=random:10.0.0.0/8",
                "src=random:10.0.0.0-10.255.255.255",
            ),
            ("vlan=list:5,7,9", "vlan=list:5,7,9"),
            (
                "dport=dec:1-9,step=2,mask=0xff",
                "dport=dec:1-9,step=2,mask=0xff",
            ),
            ("dst=inc:2001:2::1-2001:2::9", "dst=inc:2001:2::1-2001:2::9"),
            (
                "src-mac=inc:02:00:00:00:00:01-02:00:00:00:00:ff",
                "src-mac=inc:02:00:00:00:00:01-02:00:00:00:00:ff",
            ),
            ("u16@42=random:0-0xffff", "u16@42=random:0-65535"),
            ("vlan2=list:1", "vlan2=list:1"),
        ] {
            let vary: Vary = text.parse().unwrap();
            assert_eq!(vary.to_string(), printed);
            assert_eq!(printed.parse::<Vary>().unwrap(), vary);
        }
        for text in [
            "",
            "sport",
            "sport=inc",
            "sport=foo:1-2",
            "sport=inc:2-1",
            "sport=inc:0-65536",
            "nope=inc:1-2",
            "vlan=list:4096",
            "sport=inc:1-2,step=0",
            "src=inc:1-2",
            "sport=inc:1-2,3-4",
            "u64@1=inc:1-2",
        ] {
            assert!(text.parse::<Vary>().is_err(), "{text}");
        }
    }
}
