//! Values of message fields.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Largest size in a request, in bytes: 1 GiB.
pub const MAX_SIZE: u32 = 1 << 30;

/// Duration of a test.
///
/// The wire format is a signed word: positive for seconds, negative for a count, zero for no limit. `Seconds(0)` and
/// `Units(0)` are therefore read back as `UntilTold`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TestLength {
    /// Seconds, 1 to 2³¹ − 1; larger values are sent as the maximum.
    Seconds(u32),
    /// Bytes (one way) or transactions, 1 to 2³¹; larger values are sent as the maximum. For larger counts use
    /// [`RequestExtension::count`](crate::RequestExtension::count).
    Units(u32),
    /// Until the end of the data, or the end request of the client.
    UntilTold,
}

impl TestLength {
    /// Creates a limit of bytes or transactions. Returns `None` if the wire format cannot hold it.
    pub fn units(count: u64) -> Option<Self> {
        match u32::try_from(count) {
            Ok(count @ 1..=0x8000_0000) => Some(Self::Units(count)),
            _ => None,
        }
    }

    pub(crate) fn from_wire(word: i32) -> Self {
        match word {
            0 => Self::UntilTold,
            1.. => Self::Seconds(word.unsigned_abs()),
            _ => Self::Units(word.unsigned_abs()),
        }
    }

    pub(crate) fn to_wire(self) -> i32 {
        match self {
            Self::Seconds(seconds) => i32::try_from(seconds).unwrap_or(i32::MAX),
            Self::Units(units) => 0i32.saturating_sub_unsigned(units),
            Self::UntilTold => 0,
        }
    }
}

/// Direction of the data. The wire format has the server's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DataDirection {
    /// No data, connections only.
    ConnectOnly,
    /// The server sends, the client receives.
    ServerSends,
    /// The server receives, the client sends.
    ServerReceives,
    /// Requests and responses in both directions.
    Both,
}

impl DataDirection {
    pub(crate) fn from_wire(word: u32) -> Option<Self> {
        Some(match word {
            0 => Self::ConnectOnly,
            2 => Self::ServerSends,
            4 => Self::ServerReceives,
            6 => Self::Both,
            _ => return None,
        })
    }

    pub(crate) fn to_wire(self) -> u32 {
        match self {
            Self::ConnectOnly => 0,
            Self::ServerSends => 2,
            Self::ServerReceives => 4,
            Self::Both => 6,
        }
    }

    /// Returns true if the server sends data.
    pub fn server_sends(self) -> bool {
        matches!(self, Self::ServerSends | Self::Both)
    }

    /// Returns true if the server receives data.
    pub fn server_receives(self) -> bool {
        matches!(self, Self::ServerReceives | Self::Both)
    }
}

/// Type of a data socket, with netperf's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WireSocketType {
    /// 1
    Stream,
    /// 2
    Datagram,
    /// 3
    Dccp,
    /// 4
    SeqPacket,
}

impl WireSocketType {
    pub(crate) fn from_wire(word: u32) -> Option<Self> {
        Some(match word {
            1 => Self::Stream,
            2 => Self::Datagram,
            3 => Self::Dccp,
            4 => Self::SeqPacket,
            _ => return None,
        })
    }

    pub(crate) fn to_wire(self) -> u32 {
        match self {
            Self::Stream => 1,
            Self::Datagram => 2,
            Self::Dccp => 3,
            Self::SeqPacket => 4,
        }
    }
}

/// Address family of the data sockets, with netperf's numbers, which are the same on all systems.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WireFamily {
    /// 0: either.
    #[default]
    Any,
    /// 4
    V4,
    /// 6
    V6,
    /// 7
    Rds,
}

impl WireFamily {
    pub(crate) fn from_wire(word: u32) -> Option<Self> {
        Some(match word {
            0 => Self::Any,
            4 => Self::V4,
            6 => Self::V6,
            7 => Self::Rds,
            _ => return None,
        })
    }

    pub(crate) fn to_wire(self) -> u32 {
        match self {
            Self::Any => 0,
            Self::V4 => 4,
            Self::V6 => 6,
            Self::Rds => 7,
        }
    }
}

/// IP address as 16 bytes in wire format.
///
/// An IPv4 address is in the first four bytes in network order. The words of an IPv6 address have their bytes reversed,
/// because clients on little-endian machines treat them as numbers; a big-endian client sends them in order. The
/// message does not show which, so try [`v6`](Self::v6) first, and [`v6_straight`](Self::v6_straight) if that is not a
/// local address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WireAddress(pub [u8; 16]);

impl WireAddress {
    /// The address 0.0.0.0 or ::, which means "any".
    pub const ANY: Self = Self([0; 16]);

    /// Returns true for "any", in either family.
    pub fn is_any(self) -> bool {
        self == Self::ANY
    }

    /// Returns the IPv4 address.
    pub fn v4(self) -> Ipv4Addr {
        let [a, b, c, d, ..] = self.0;
        Ipv4Addr::new(a, b, c, d)
    }

    /// Returns the IPv6 address from a little-endian client.
    pub fn v6(self) -> Ipv6Addr {
        self.swapped().v6_straight()
    }

    /// Returns the IPv6 address from a big-endian client.
    pub fn v6_straight(self) -> Ipv6Addr {
        Ipv6Addr::from(self.0)
    }

    fn swapped(self) -> Self {
        let mut bytes = self.0;
        bytes.chunks_exact_mut(4).for_each(<[u8]>::reverse);
        Self(bytes)
    }
}

impl From<IpAddr> for WireAddress {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => {
                let mut bytes = [0; 16];
                bytes[..4].copy_from_slice(&v4.octets());
                Self(bytes)
            }
            IpAddr::V6(v6) => Self(v6.octets()).swapped(),
        }
    }
}

/// A text of at most `N` bytes, padded with zeros: the name of a congestion control or a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name<const N: usize>([u8; N]);

impl<const N: usize> Name<N> {
    /// No name.
    pub const NONE: Self = Self([0; N]);

    /// Creates a name. Returns `None` if it does not fit with a zero byte behind it, or contains a zero byte.
    pub fn new(name: &[u8]) -> Option<Self> {
        if name.len() >= N || name.contains(&0) {
            return None;
        }
        let mut bytes = [0; N];
        bytes[..name.len()].copy_from_slice(name);
        Some(Self(bytes))
    }

    /// Reads the bytes before the first zero byte. The bytes after it are remains of older messages.
    pub(crate) fn from_wire(mut bytes: [u8; N]) -> Self {
        let len = Self(bytes).as_bytes().len();
        bytes[len..].fill(0);
        Self(bytes)
    }

    /// Returns the name without padding.
    pub fn as_bytes(&self) -> &[u8] {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap_or(N);
        &self.0[..len]
    }

    /// Returns the name if it is valid UTF-8 and not empty.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(self.as_bytes())
            .ok()
            .filter(|name| !name.is_empty())
    }

    /// Returns true if there is no name.
    pub fn is_none(&self) -> bool {
        self.as_bytes().is_empty()
    }

    pub(crate) fn padded(&self) -> &[u8; N] {
        &self.0
    }
}

impl<const N: usize> Default for Name<N> {
    fn default() -> Self {
        Self::NONE
    }
}

impl<const N: usize> std::fmt::Debug for Name<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

/// Method of CPU measurement, with netperf's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuMethod(pub u32);

impl CpuMethod {
    /// Not measured, or unknown.
    pub const UNKNOWN: Self = Self(0);
    /// /proc/stat of Linux.
    pub const PROC_STAT: Self = Self(8);

    /// Returns the letter in headers and CPU_METHOD selectors; `?` for numbers above 12.
    pub fn letter(self) -> char {
        const LETTERS: &[u8; 13] = b"UIPTLRNKSCEMO";
        usize::try_from(self.0)
            .ok()
            .and_then(|index| LETTERS.get(index))
            .map_or('?', |letter| char::from(*letter))
    }
}
