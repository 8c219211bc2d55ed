//! TCP header, RFC 9293, without connection state.

use zerocopy::byteorder::{BE, U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bits of the flags byte.
pub mod tcp_flags {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset.
    pub const RST: u8 = 0x04;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// The acknowledgment field is valid.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer is valid.
    pub const URG: u8 = 0x20;
    /// Congestion echo.
    pub const ECE: u8 = 0x40;
    /// Congestion window reduced.
    pub const CWR: u8 = 0x80;
}

/// Header without options as on the wire.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TcpView {
    /// Source port.
    pub sport: U16<BE>,
    /// Destination port.
    pub dport: U16<BE>,
    /// Sequence number.
    pub sequence: U32<BE>,
    /// Acknowledgment number.
    pub acknowledgment: U32<BE>,
    /// Header length in words of four bytes (4 bits), reserved (4).
    pub data_offset: u8,
    /// See [`tcp_flags`].
    pub flags: u8,
    /// Receive window, unscaled.
    pub window: U16<BE>,
    /// Checksum over pseudo header, header and payload.
    pub checksum: U16<BE>,
    /// Urgent pointer.
    pub urgent: U16<BE>,
}

view!(TcpView, 20);

impl TcpView {
    /// Length of the header with its options in bytes; below 20 if malformed.
    pub const fn header_len(&self) -> usize {
        (self.data_offset >> 4) as usize * 4
    }
}

/// Fields of a TCP header without options that the sender chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgment number.
    pub acknowledgment: u32,
    /// See [`tcp_flags`].
    pub flags: u8,
    /// Receive window, unscaled.
    pub window: u16,
}

impl Tcp {
    /// Creates an ACK with zero numbers and the maximum window.
    pub const fn new(sport: u16, dport: u16) -> Self {
        Self {
            sport,
            dport,
            sequence: 0,
            acknowledgment: 0,
            flags: tcp_flags::ACK,
            window: u16::MAX,
        }
    }

    /// Encodes the header with this checksum.
    pub fn emit(&self, checksum: u16) -> [u8; TcpView::LEN] {
        TcpView {
            sport: self.sport.into(),
            dport: self.dport.into(),
            sequence: self.sequence.into(),
            acknowledgment: self.acknowledgment.into(),
            data_offset: 5 << 4,
            flags: self.flags,
            window: self.window.into(),
            checksum: checksum.into(),
            urgent: 0.into(),
        }
        .to_bytes()
    }

    /// Parses the header into its value, the bytes of its options and its payload. None if the header length is wrong.
    /// The checksum is not verified.
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8], &[u8])> {
        let (view, _) = TcpView::split_from(bytes)?;
        let options = bytes.get(TcpView::LEN..view.header_len())?;
        let tcp = Self {
            sport: view.sport.get(),
            dport: view.dport.get(),
            sequence: view.sequence.get(),
            acknowledgment: view.acknowledgment.get(),
            flags: view.flags,
            window: view.window.get(),
        };
        Some((tcp, options, &bytes[view.header_len()..]))
    }
}
