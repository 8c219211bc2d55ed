//! Frame as delivered by a port: borrowed bytes and metadata of the driver.

use crate::StampSource;

/// Received frame, borrowed from the driver until the callback returns.
#[derive(Clone, Copy, Debug)]
pub struct RxFrame<'a> {
    /// Captured bytes from the destination address on, without FCS.
    pub bytes: &'a [u8],
    /// Length on the wire without FCS; larger than `bytes` if the frame was truncated.
    pub original_len: u32,
    /// Arrival in wall-clock nanoseconds (`CLOCK_REALTIME`).
    pub stamp_ns: u64,
    /// Source of the timestamp.
    pub stamp_source: StampSource,
    /// VLAN tag that the device or the kernel removed from the frame.
    pub vlan: Option<StrippedVlan>,
    /// State of the layer-4 checksum.
    pub checksum: ChecksumState,
}

impl RxFrame<'_> {
    /// Frame size on the wire in bytes, including the 4-byte FCS and a removed VLAN tag.
    #[inline]
    #[must_use]
    pub fn size(&self) -> u32 {
        self.original_len + 4 + if self.vlan.is_some() { 4 } else { 0 }
    }
}

/// VLAN tag that was removed from the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrippedVlan {
    /// Tag protocol identifier, 0x8100 or 0x88a8.
    pub tpid: u16,
    /// Priority, drop-eligible bit and VLAN id.
    pub tci: u16,
}

/// State of a received frame's layer-4 checksum, as reported by the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumState {
    /// Not checked.
    #[default]
    Unknown,
    /// Found correct by the device or the kernel.
    Valid,
    /// Left by the sender to hardware that never ran (`TP_STATUS_CSUMNOTREADY`); not an error.
    NotReady,
}

/// Frame lent for sending.
///
/// The memory keeps its content from one use to the next as long as `cookie` is not 0. A sender that stores a
/// description of its content in the cookie (for example a template number) may patch the frame instead of rewriting
/// it. A driver that cannot guarantee the content sets `cookie` to 0 on every lend.
#[derive(Debug)]
pub struct Slot<'a> {
    /// The whole buffer; at least [`crate::TxQueue::frame_capacity`] bytes.
    pub bytes: &'a mut [u8],
    /// Bytes to send, without FCS. The sender must set it.
    pub len: &'a mut u32,
    /// Mark of the sender, as described above. 0 means that the content is unknown.
    pub cookie: &'a mut u64,
}
