//! Options of the packet driver.

use wb_port::PortSteering;

use crate::FilterOp;

/// Options for opening a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOptions {
    /// Number of queue pairs, at least 1. Each has separate sockets.
    pub queues: u32,
    /// Open for sending.
    pub tx: bool,
    /// Open for receiving.
    pub rx: bool,
    /// Pass frames directly to the device (`PACKET_QDISC_BYPASS`): faster, but invisible to other captures on this host
    /// and not shaped by its queueing disciplines.
    pub qdisc_bypass: bool,
    /// Treatment of frames that the queueing discipline drops.
    pub qdisc_drops: QdiscDrops,
    /// Priority of the frames (`SO_PRIORITY`), which selects the class of a queueing discipline or the traffic class of
    /// the device.
    pub priority: u32,
    /// Method of sending frames.
    pub tx_mode: TxMode,
    /// Maximum number of frames in flight, per queue.
    pub tx_slots: u32,
    /// Longest frame to send in bytes, without FCS; MTU + 14 + 8 by default, which has room for two VLAN tags.
    pub max_frame_len: Option<u32>,
    /// Optimisation goal of reception.
    pub rx_mode: RxMode,
    /// Size of the receive ring of each queue in bytes. If the kernel has no memory for it, it is halved repeatedly,
    /// down to 1 MiB, with a warning.
    pub rx_ring_bytes: usize,
    /// Block size of the ring in bytes, for [`RxMode::Throughput`]. Smaller if the ring would have fewer than
    /// [`PacketOptions::least_blocks`] blocks.
    pub block_bytes: usize,
    /// Minimum number of blocks of a ring, 2 or more.
    pub least_blocks: usize,
    /// Time in ms after which the kernel hands over a block that is not full. The rest of the block is then unused, so
    /// a short time wastes ring space while the receiver is behind.
    pub block_timeout_ms: u32,
    /// Number of bytes to keep of each received frame.
    pub snap_len: u32,
    /// Distribution of received frames over several queues.
    pub fanout: Fanout,
    /// Use receive timestamps of the network card if available. They count as wall time, so the card's clock must be
    /// synchronised with it, and timestamping must be active.
    pub hw_stamps: bool,
    /// Receive frames for any destination address.
    pub promiscuous: bool,
    /// Classic BPF filter for the frames to receive. A tag that the device or the kernel has stripped is not in the
    /// bytes of the frame.
    pub filter: Option<Vec<FilterOp>>,
    /// Ignore frames that this host sends through the interface.
    pub ignore_outgoing: bool,
    /// Receive only frames that this host sends through the interface.
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

/// Method of sending frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TxMode {
    /// The fastest known method: [`TxMode::Sendmmsg`].
    #[default]
    Auto,
    /// `sendmmsg`: one system call for a batch.
    Sendmmsg,
}

/// Treatment of a frame that the queueing discipline drops, which the kernel reports as `ENOBUFS`.
///
/// With [`QdiscDrops::Offer`], only the first such frame of a batch is reported in time: the next frame is offered
/// again before its drop is reported. So the discipline's counter may be ahead, but no loss stays unnoticed. With
/// [`QdiscDrops::Refuse`] both counts are equal, at one system call per frame. A frame that a discipline accepts and
/// drops later, or that it drops with the code for congestion (`NET_XMIT_CN`), counts as sent, because the kernel
/// reports neither. With [`PacketOptions::qdisc_bypass`] there is no discipline, and the sender waits for a full
/// device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QdiscDrops {
    /// The frame stays in flight and is offered again.
    #[default]
    Offer,
    /// The frame counts as refused, and the next one is offered.
    Refuse,
}

/// Optimisation goal of reception.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RxMode {
    /// Highest frame rate: TPACKET_V3 blocks, handed over when full or at the block timeout.
    #[default]
    Throughput,
    /// Lowest latency: TPACKET_V2, which delivers each frame at once. Frames longer than the MTU (a result of
    /// segmentation offload) are truncated.
    LowLatency,
}

/// Distribution of received frames over several queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fanout {
    /// By flow hash: a flow stays on one queue.
    #[default]
    Hash,
    /// Round robin.
    RoundRobin,
    /// By receiving CPU: queue `i` gets the frames of every CPU with number modulo queues equal to `i`. With one queue
    /// per CPU, each CPU has a separate queue.
    Cpu,
    /// By the device's receive queue.
    RxQueue,
    /// By a TCP or UDP port: queue `i` gets the frames with port modulo queues equal to `i`. The first queue gets all
    /// other frames.
    Port(PortSteering),
}
