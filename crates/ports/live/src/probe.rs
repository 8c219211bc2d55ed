//! Sends a few frames before a run, to check that the device transmits them.

use wb_port::offload::{
    FlowWalk, HeaderTemplate, SendOffload, SendOrder, StreamOrder, StreamProgram, TagProgram,
};
use wb_port::{Interface, PortError};

use crate::Sender;

/// IEEE 802.1Q, table 8-1: nearest bridge. Bridges do not forward frames to this address, and hosts ignore them.
const NEAREST_BRIDGE: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 0x0e];
/// IEEE 802, local experimental EtherType 1.
const EXPERIMENTAL: [u8; 2] = [0x88, 0xb5];
/// Length of the short frames in bytes, without FCS.
const SHORTEST: usize = 60;
/// Larger than the number of frames that a host sends on its own meanwhile, so that the two cannot be confused.
const FRAMES: u64 = 16;
/// Time limit for loading and sending, in ns, generous for a busy machine.
const LENGTH_NS: u64 = 60_000_000_000;

/// Sends some short and some long frames (`longest` bytes without FCS), in the network namespace of the calling thread.
/// No bridge forwards them, and no receiver of streams counts them. Returns the number of frames that the device took.
/// Compare it with the counters of the device, because the result of the kernel alone proves nothing.
///
/// # Errors
/// See [`Sender::load`]. Also returns the error of the device if it refuses the frames.
pub fn probe(interface: &Interface, longest: usize, now_ns: u64) -> Result<u64, PortError> {
    let mut sender = Sender::load(interface, &[frames(interface, longest.max(SHORTEST))])?;
    let order = SendOrder {
        now_ns,
        frames: FRAMES,
        length_ns: LENGTH_NS,
        batch: 4,
        overdue: false,
        wall_minus_mono: 0,
    };
    let stream = StreamOrder {
        pace: None,
        frames: FRAMES,
        until_ns: u64::MAX,
        allowance_ns: u64::MAX,
    };
    sender.turn(&order, &[stream])?;
    let counters = sender.counters(0);
    Ok(counters.submitted_frames - counters.refused_frames)
}

fn frames(interface: &Interface, longest: usize) -> StreamProgram {
    let header = [&NEAREST_BRIDGE[..], &interface.mac, &EXPERIMENTAL].concat();
    let template = |len: usize| HeaderTemplate {
        len: len as u32,
        ip_sum: 0,
        l4_sum: 0,
        header: header.clone(),
    };
    StreamProgram {
        templates: vec![template(SHORTEST), template(longest)],
        payload: vec![0; longest - header.len()],
        order: vec![0, 1],
        order_at: 0,
        order_advance: 1,
        order_drawn: None,
        fields: Vec::new(),
        walk: FlowWalk {
            workers: 1,
            flows: 1,
            ..FlowWalk::default()
        },
        tag_at: None,
        tag: TagProgram::Wirebench,
        copies: 1,
        burst: 1,
        ip_checksum: None,
        l4_checksum: None,
        udp: false,
        paced: false,
    }
}
