//! What can be asked of the packet driver.

use wb_port::PortSteering;

use crate::FilterOp;

/// How a port is to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOptions {
    /// Queue pairs; each has sockets of its own. At least 1.
    pub queues: u32,
    /// Open for sending.
    pub tx: bool,
    /// Open for receiving.
    pub rx: bool,
    /// Hand frames to the device directly (`PACKET_QDISC_BYPASS`): faster, not seen by other
    /// captures on this host, not shaped by its queueing disciplines.
    pub qdisc_bypass: bool,
    /// What becomes of a frame that the queueing discipline drops.
    pub qdisc_drops: QdiscDrops,
    /// Priority of the frames (`SO_PRIORITY`): which class of a queueing discipline, or which
    /// traffic class of the device, they belong to.
    pub priority: u32,
    /// How frames are handed to the kernel.
    pub tx_mode: TxMode,
    /// Frames that each queue can have in flight.
    pub tx_slots: u32,
    /// Longest frame to send, without FCS; by default MTU + 14 + 8, room for two VLAN tags.
    pub max_frame_len: Option<u32>,
    /// What matters on reception.
    pub rx_mode: RxMode,
    /// Receive ring of each queue, in bytes. Halved, with a warning, while the kernel has no memory
    /// for it, down to 1 MiB.
    pub rx_ring_bytes: usize,
    /// Bytes of one block of the ring, in [`RxMode::Throughput`]; less where the ring would not have
    /// [`PacketOptions::least_blocks`] of them.
    pub block_bytes: usize,
    /// Blocks that a ring has at least; 2 or more.
    pub least_blocks: usize,
    /// After so many milliseconds the kernel hands over a block that is not full. Each time costs
    /// the rest of the block, so a short time wastes the ring of a receiver that falls behind.
    pub block_timeout_ms: u32,
    /// Bytes of each received frame to keep.
    pub snap_len: u32,
    /// How received frames are spread over several queues.
    pub fanout: Fanout,
    /// Take the network card's receive stamps where it makes them. They count as wall time, so the
    /// card's clock must be kept in step with it, and stamping must have been switched on.
    pub hw_stamps: bool,
    /// Receive frames for any destination address.
    pub promiscuous: bool,
    /// Classic BPF that chooses the frames to receive. A tag that the device or kernel has stripped
    /// is not in the bytes that it sees.
    pub filter: Option<Vec<FilterOp>>,
    /// Do not receive what this host sends through the interface.
    pub ignore_outgoing: bool,
    /// Receive nothing but what this host sends through the interface.
    pub only_outgoing: bool,
}

impl Default for PacketOptions {
    fn default() -> Self {
        Self {
            queues: 1,
            tx: true,
            rx: true,
            qdisc_bypass: true,
            qdisc_drops: QdiscDrops::Offer,
            priority: 0,
            tx_mode: TxMode::Auto,
            tx_slots: 512,
            max_frame_len: None,
            rx_mode: RxMode::Throughput,
            rx_ring_bytes: 64 << 20,
            block_bytes: 256 << 10,
            least_blocks: 8,
            block_timeout_ms: 2,
            snap_len: 262_144,
            fanout: Fanout::Hash,
            hw_stamps: false,
            promiscuous: false,
            filter: None,
            ignore_outgoing: true,
            only_outgoing: false,
        }
    }
}

/// How frames are handed to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TxMode {
    /// The fastest known: [`TxMode::Sendmmsg`].
    #[default]
    Auto,
    /// `sendmmsg`: one system call for a batch.
    Sendmmsg,
}

/// What becomes of a frame that the queueing discipline drops, which the kernel tells by `ENOBUFS`.
///
/// With [`QdiscDrops::Offer`], only the first such frame of a batch is reported in time: the next one is offered again
/// before it is reported. So the discipline's own counter may be ahead, but no frame is lost unnoticed. With
/// [`QdiscDrops::Refuse`] both counts are equal, at one system call per frame. A frame that a discipline takes and drops
/// later, or whose drop it reports as congestion (`NET_XMIT_CN`), counts as sent: the kernel reports neither. With [`PacketOptions::qdisc_bypass`] there is no discipline, and a full device is
/// waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QdiscDrops {
    /// It stays in flight and is offered again.
    #[default]
    Offer,
    /// It counts as refused, and the next one is offered.
    Refuse,
}

/// What matters on reception.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RxMode {
    /// Most frames per second: TPACKET_V3 blocks, handed over when full or after 2 ms.
    #[default]
    Throughput,
    /// Each frame at once: TPACKET_V2 frames. Frames longer than the MTU (as segmentation offload
    /// makes them) are cut.
    LowLatency,
}

/// How received frames are spread over several queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fanout {
    /// By flow hash: a flow stays on one queue.
    #[default]
    Hash,
    /// In turn.
    RoundRobin,
    /// By the CPU on which the kernel received: queue `i` gets the frames of every CPU whose number
    /// modulo the number of queues is `i`. With as many queues as CPUs each has its own.
    Cpu,
    /// By the device's receive queue.
    RxQueue,
    /// By a port number of TCP and UDP: queue `i` gets the frames whose port modulo the number of
    /// queues is `i`, and the first one all other frames.
    Port(PortSteering),
}
