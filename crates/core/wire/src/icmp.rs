//! ICMP echo for both IP versions, and the IPv6 neighbour messages (RFC 792, 4443, 4861).

use std::net::Ipv6Addr;

use zerocopy::byteorder::{BE, U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{MacAddr, checksum, protocol};

/// First eight bytes of an echo message.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IcmpView {
    /// Message type.
    pub kind: u8,
    /// Message code.
    pub code: u8,
    /// Checksum over the message, for ICMPv6 also over the pseudo header.
    pub checksum: U16<BE>,
    /// Identifier of an echo.
    pub identifier: U16<BE>,
    /// Sequence number of an echo.
    pub sequence: U16<BE>,
}

view!(IcmpView, 8);

/// ICMP version: the versions use different types for the same message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpVersion {
    /// ICMP over IPv4.
    V4,
    /// ICMPv6.
    V6,
}

impl IcmpVersion {
    /// IP protocol number.
    pub const fn protocol(self) -> u8 {
        match self {
            Self::V4 => protocol::ICMP,
            Self::V6 => protocol::ICMPV6,
        }
    }

    /// Type of an echo request.
    pub const fn echo_request(self) -> u8 {
        match self {
            Self::V4 => 8,
            Self::V6 => 128,
        }
    }

    /// Type of an echo reply.
    pub const fn echo_reply(self) -> u8 {
        match self {
            Self::V4 => 0,
            Self::V6 => 129,
        }
    }
}

/// Echo request or reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// True for a reply, false for a request.
    pub reply: bool,
    /// Identifies the sender of requests.
    pub identifier: u16,
    /// Identifies a request of the sender.
    pub sequence: u16,
}

impl Echo {
    /// Creates a request.
    pub const fn request(identifier: u16, sequence: u16) -> Self {
        Self {
            reply: false,
            identifier,
            sequence,
        }
    }

    /// Encodes the header with this checksum.
    pub fn emit(&self, version: IcmpVersion, checksum: u16) -> [u8; IcmpView::LEN] {
        IcmpView {
            kind: if self.reply {
                version.echo_reply()
            } else {
                version.echo_request()
            },
            code: 0,
            checksum: checksum.into(),
            identifier: self.identifier.into(),
            sequence: self.sequence.into(),
        }
        .to_bytes()
    }

    /// Parses an echo message into header and payload; None for any other message. The checksum is not verified.
    pub fn parse(version: IcmpVersion, bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (view, rest) = IcmpView::split_from(bytes)?;
        let reply = view.kind == version.echo_reply();
        if view.code != 0 || !(reply || view.kind == version.echo_request()) {
            return None;
        }
        Some((
            Self {
                reply,
                identifier: view.identifier.get(),
                sequence: view.sequence.get(),
            },
            rest,
        ))
    }
}

/// Fixed part of a neighbour solicitation or advertisement.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct NeighbourView {
    /// 135 for a solicitation, 136 for an advertisement.
    pub kind: u8,
    /// Message code: 0.
    pub code: u8,
    /// Checksum over pseudo header and message.
    pub checksum: U16<BE>,
    /// Router, solicited, override (in the top three bits of an advertisement).
    pub flags: U32<BE>,
    /// Address in question.
    pub target: [u8; 16],
}

view!(NeighbourView, 24);

const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const ROUTER: u32 = 1 << 31;
const SOLICITED: u32 = 1 << 30;
const OVERRIDE: u32 = 1 << 29;
const SOURCE_LINK_ADDRESS: u8 = 1;
const TARGET_LINK_ADDRESS: u8 = 2;

/// Neighbour message: the IPv6 counterpart of ARP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbour {
    /// Request for the owner of `target`.
    Solicitation {
        /// Requested address.
        target: Ipv6Addr,
        /// Ethernet address of the sender; absent during duplicate address detection.
        source: Option<MacAddr>,
    },
    /// Announcement of the owner of `target`.
    Advertisement {
        /// Announced address.
        target: Ipv6Addr,
        /// Ethernet address of the owner.
        link: Option<MacAddr>,
        /// The sender is a router.
        router: bool,
        /// The message answers a solicitation.
        solicited: bool,
        /// The receiver must replace its cached address.
        overrides: bool,
    },
}

impl Neighbour {
    /// Length of a message with an Ethernet address, in bytes.
    pub const MAX_LEN: usize = NeighbourView::LEN + 8;

    /// Writes the message with its checksum and returns its length; None if `out` is too short.
    pub fn emit(&self, src: Ipv6Addr, dst: Ipv6Addr, out: &mut [u8]) -> Option<usize> {
        let (kind, flags, target, option, mac) = match *self {
            Self::Solicitation { target, source } => {
                (SOLICITATION, 0, target, SOURCE_LINK_ADDRESS, source)
            }
            Self::Advertisement {
                target,
                link,
                router,
                solicited,
                overrides,
            } => {
                let flag = |on, bit| if on { bit } else { 0 };
                let flags =
                    flag(router, ROUTER) | flag(solicited, SOLICITED) | flag(overrides, OVERRIDE);
                (ADVERTISEMENT, flags, target, TARGET_LINK_ADDRESS, link)
            }
        };
        let len = NeighbourView::LEN + if mac.is_some() { 8 } else { 0 };
        let out = out.get_mut(..len)?;
        let view = NeighbourView {
            kind,
            code: 0,
            checksum: 0.into(),
            flags: flags.into(),
            target: target.octets(),
        };
        out[..NeighbourView::LEN].copy_from_slice(&view.to_bytes());
        if let Some(MacAddr(mac)) = mac {
            out[NeighbourView::LEN..][..2].copy_from_slice(&[option, 1]);
            out[NeighbourView::LEN + 2..].copy_from_slice(&mac);
        }
        let pseudo = checksum::pseudo_v6(src, dst, protocol::ICMPV6, len as u32);
        let sum = checksum::finish(pseudo + checksum::sum(out));
        out[2..4].copy_from_slice(&sum.to_be_bytes());
        Some(len)
    }

    /// Parses a complete ICMPv6 message. Returns None for any other message, and if RFC 4861 section 7.1 requires a
    /// discard for its code, target or option lengths. The caller verifies hop limit and checksum.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (view, options) = NeighbourView::split_from(bytes)?;
        let target = Ipv6Addr::from(view.target);
        if view.code != 0 || target.is_multicast() {
            return None;
        }
        match view.kind {
            SOLICITATION => Some(Self::Solicitation {
                target,
                source: link_address(SOURCE_LINK_ADDRESS, options)?,
            }),
            ADVERTISEMENT => {
                let flags = view.flags.get();
                Some(Self::Advertisement {
                    target,
                    link: link_address(TARGET_LINK_ADDRESS, options)?,
                    router: flags & ROUTER != 0,
                    solicited: flags & SOLICITED != 0,
                    overrides: flags & OVERRIDE != 0,
                })
            }
            _ => None,
        }
    }
}

/// Ethernet address in the option `wanted`, if present. The outer None means that an option is malformed.
fn link_address(wanted: u8, mut options: &[u8]) -> Option<Option<MacAddr>> {
    let mut found = None;
    while let [kind, words, ..] = *options {
        let len = usize::from(words) * 8;
        if len == 0 {
            return None;
        }
        let (option, rest) = options.split_at_checked(len)?;
        if kind == wanted && len == 8 {
            found = option[2..].first_chunk().copied().map(MacAddr);
        }
        options = rest;
    }
    options.is_empty().then_some(found)
}
