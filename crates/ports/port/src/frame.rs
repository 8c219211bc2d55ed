//! A frame as a port hands it over: borrowed bytes and what the driver knows about them.

use crate::StampSource;

/// One received frame, borrowed from the driver until the callback returns.
#[derive(Clone, Copy, Debug)]
pub struct RxFrame<'a> {
    /// From the destination address on, without FCS; at most what the driver captured.
    pub bytes: &'a [u8],
    /// Length on the wire without FCS; larger than `bytes` when the frame was cut.
    pub original_len: u32,
    /// When it arrived: nanoseconds of the wall clock (`CLOCK_REALTIME`).
    pub stamp_ns: u64,
    /// Who took the stamp.
    pub stamp_source: StampSource,
    /// The tag that the device or kernel took out of the frame, if it did.
    pub vlan: Option<StrippedVlan>,
    /// What is known of the layer-4 checksum.
    pub checksum: ChecksumState,
}

impl RxFrame<'_> {
    /// Frame size as on the wire: with the 4-byte FCS and with a stripped VLAN tag.
    #[inline]
    #[must_use]
    pub fn size(&self) -> u32 {
        self.original_len + 4 + if self.vlan.is_some() { 4 } else { 0 }
    }
}

/// A VLAN tag that is no longer in the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrippedVlan {
    /// Tag protocol identifier, 0x8100 or 0x88a8.
    pub tpid: u16,
    /// Priority, drop-eligible bit and VLAN id.
    pub tci: u16,
}

/// What the driver knows of a received frame's layer-4 checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumState {
    /// Nothing; look at the bytes.
    #[default]
    Unknown,
    /// The device or the kernel found it right.
    Valid,
    /// The sender left it to hardware that never ran (`TP_STATUS_CSUMNOTREADY`); it is no error.
    NotReady,
}

/// One frame lent for sending.
///
/// The memory keeps its content from one use to the next as long as `cookie` is not 0: a sender
/// that stores there what it wrote (a template number, say) may patch the frame instead of
/// writing it anew. A driver that cannot promise that sets `cookie` to 0 whenever it lends.
#[derive(Debug)]
pub struct Slot<'a> {
    /// The whole buffer; at least [`crate::TxQueue::frame_capacity`] bytes.
    pub bytes: &'a mut [u8],
    /// Bytes to send, without FCS. The sender must set it.
    pub len: &'a mut u32,
    /// The sender's own mark; see above. 0 means the content is unknown.
    pub cookie: &'a mut u64,
}
