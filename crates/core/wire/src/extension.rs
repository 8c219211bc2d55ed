//! IPv6 extension headers that devices on the path must skip: RFC 8200 section 4.

/// Extension header without effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipv6Extension {
    /// Hop-by-hop options with padding only; 8 bytes. Allowed only directly behind the IPv6 header.
    HopByHop,
    /// Routing header of type 253 (experiments, RFC 4727) without segments left, so routers ignore it; 24 bytes.
    Routing,
    /// Destination options with padding only; 8 bytes.
    Destination,
    /// Fragment header of an unfragmented packet: offset 0, no more fragments; 8 bytes.
    Fragment,
}

impl Ipv6Extension {
    /// Header number in the preceding header.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::HopByHop => 0,
            Self::Routing => 43,
            Self::Destination => 60,
            Self::Fragment => 44,
        }
    }

    /// Length in bytes.
    #[must_use]
    pub const fn octets(self) -> usize {
        match self {
            Self::Routing => 24,
            Self::HopByHop | Self::Destination | Self::Fragment => 8,
        }
    }

    /// Appends the header; `next` is the number of the following one.
    pub(crate) fn emit(self, next: u8, frame: &mut Vec<u8>) {
        // RFC 8200 section 4.2: option PadN over the 6 bytes.
        const PADDING: [u8; 6] = [1, 4, 0, 0, 0, 0];
        match self {
            Self::HopByHop | Self::Destination => {
                frame.extend([next, 0]);
                frame.extend(PADDING);
            }
            Self::Routing => {
                frame.extend([next, 2, 253, 0]);
                frame.extend([0; 20]);
            }
            Self::Fragment => frame.extend([next, 0, 0, 0, 0, 0, 0, 1]),
        }
    }
}
