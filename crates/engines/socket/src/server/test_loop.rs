//! Creates the loop of a test, with its buffers.

use std::{io, net::SocketAddr};

use wb_model::socket::{ReceiveBy, SocketSide};
use wb_netperf_wire::Features;
use wb_wire::Tag;

use super::requested_test::{DataExchange, RequestedTest};
use crate::{
    EffectiveSettings,
    flow::{
        BufferPlan, BufferSender, BurstPace, DatagramReceivePlan, DatagramReceiver,
        DatagramSendPlan, DatagramSender, ReceivePlan, RespondPlan, Responder, SendPlan,
        StreamReceiver, datagrams_per_second, default_width,
    },
};

/// Memory limit for multiple buffers of one direction, bytes.
const RING: u32 = 64 << 20;
/// Maximum number of buffers of one direction.
const WIDEST: u32 = 16_384;
/// Bytes per call if the system does not report its buffer size.
const CALL_SIZE: u32 = 4096;
/// Payload of the largest datagram over IPv4.
const DATAGRAM: u32 = 65_507;

/// The loop of a test.
pub(super) enum TestLoop {
    Receive(StreamReceiver),
    Send(BufferSender),
    Respond(Responder),
    /// One connection per transaction, and the exchange on it.
    Connections(Box<ConnectionExchange>),
    ReceiveDatagrams(DatagramReceiver),
    /// Datagrams of one size; any other size ends it.
    ReceiveOnly {
        buffer: Vec<u8>,
        size: usize,
        /// Connect to the source of the first datagram.
        connect: bool,
    },
    SendDatagrams(DatagramSender, SocketAddr),
}

/// The exchange on each connection.
pub(super) enum ConnectionExchange {
    Nothing,
    Exchange {
        responder: Box<Responder>,
        request: u64,
        response: u64,
    },
    Receive(StreamReceiver),
    Send(BufferSender),
    Both(StreamReceiver, BufferSender),
}

/// Sizes and numbers of buffers.
pub(super) struct BufferSizes {
    pub receive: Option<u32>,
    pub send: Option<u32>,
    pub receive_width: u32,
    pub send_width: u32,
}

impl BufferSizes {
    pub(super) fn for_test(ask: &RequestedTest, now: &EffectiveSettings) -> Self {
        let side = &ask.side;
        let default = |buffer: u32| {
            if buffer == 0 {
                CALL_SIZE
            } else {
                buffer.min(RING)
            }
        };
        let receive_call = side
            .receive_size
            .unwrap_or_else(|| default(now.receive_buffer));
        let send_call = side.send_size.unwrap_or_else(|| {
            let size = default(now.send_buffer);
            if ask.protocol.is_datagram() {
                size.min(DATAGRAM)
            } else {
                size
            }
        });
        let (receive, send) = match ask.work {
            DataExchange::Receive { .. } => (Some(receive_call), None),
            DataExchange::Send => (None, Some(send_call)),
            DataExchange::Exchange { request, response } => (Some(request), Some(response)),
            DataExchange::Connections { receives, sends } => (
                receives.map(|size| size.unwrap_or(receive_call)),
                sends.map(|size| size.unwrap_or(send_call)),
            ),
        };
        let width = |asked: u32, size: Option<u32>, buffer: u32, place: u32| {
            // For an unused direction, echo the client's value.
            let Some(size) = size else { return asked };
            let wanted = match (asked, ask.work.is_transactions()) {
                (0, true) => 1,
                (0, false) => default_width(buffer, size),
                (asked, _) => asked,
            };
            wanted.min(WIDEST).min((RING / (size + place)).max(1))
        };
        Self {
            receive,
            send,
            receive_width: width(
                side.receive_width,
                receive,
                now.receive_buffer,
                side.receive_align + side.receive_offset + 1,
            ),
            send_width: width(
                side.send_width,
                send,
                now.send_buffer,
                side.send_align + side.send_offset + 1,
            ),
        }
    }

    /// Memory of the buffers, bytes.
    pub(super) fn memory_bytes(&self, side: &SocketSide) -> u64 {
        let ring = |size: Option<u32>, width: u32, place: u32| {
            size.map_or(0, |size| {
                (u64::from(size) + u64::from(place)) * u64::from(width)
            })
        };
        ring(
            self.receive,
            self.receive_width,
            side.receive_align + side.receive_offset,
        ) + ring(
            self.send,
            self.send_width,
            side.send_align + side.send_offset,
        )
    }
}

/// Creates the loop of a test, with its buffers.
pub(super) fn test_loop(
    ask: &RequestedTest,
    sizes: &BufferSizes,
    target: Option<SocketAddr>,
) -> io::Result<TestLoop> {
    let side = &ask.side;
    let received =
        BufferPlan::for_receiving(side, sizes.receive.unwrap_or_default(), sizes.receive_width);
    let sent = BufferPlan::for_sending(side, sizes.send.unwrap_or_default(), sizes.send_width);
    let datagrams = !ask.protocol.connects();
    let units = ask.length.unit_limit();
    let spin = ask.spins();
    let tagged = ask.requested_features().contains(Features::UDP_TAGGED);
    Ok(match ask.work {
        DataExchange::Receive {
            only_size: Some(size),
        } => TestLoop::ReceiveOnly {
            buffer: vec![0; received.size as usize],
            size: size as usize,
            connect: ask.options.connect_remote,
        },
        DataExchange::Receive { only_size: None } if datagrams => {
            TestLoop::ReceiveDatagrams(DatagramReceiver::new(&DatagramReceivePlan {
                buffers: received,
                batch: side.batch,
                gro: side.gro,
                discard: side.receive_by == ReceiveBy::Discard && !tagged,
                tagged,
                limit: None,
                connect: ask.options.connect_remote,
                spin,
            })?)
        }
        // The client ends a stream with a byte limit, and rounds up to whole sends.
        DataExchange::Receive { only_size: None } => {
            TestLoop::Receive(StreamReceiver::new(&ReceivePlan {
                buffers: received,
                by: side.receive_by,
                limit: None,
            })?)
        }
        DataExchange::Send => {
            let limit = sent.round_up_to_buffers(units);
            let sent_size = sent.size;
            match target {
                Some(target) => TestLoop::SendDatagrams(
                    DatagramSender::new(&DatagramSendPlan {
                        buffers: sent,
                        rate: datagrams_per_second(side.pacing_bps, sent_size),
                        pace: BurstPace::of_side(side),
                        limit,
                        // A socket carries only one stream. Tags are granted only if they fit.
                        flow: (tagged && sent_size as usize >= Tag::LEN).then_some(0),
                        spin,
                        ..DatagramSendPlan::default()
                    })?,
                    target,
                ),
                None => TestLoop::Send(BufferSender::new(&SendPlan {
                    buffers: sent,
                    by: side.send_by,
                    limit,
                    pace: BurstPace::of_side(side),
                })?),
            }
        }
        DataExchange::Exchange { .. } => TestLoop::Respond(Responder::new(&RespondPlan {
            request: received,
            response: sent,
            spin,
            datagrams,
            packet_info: ask.options.packet_info,
            connect: ask.options.connect_remote,
            limit: units,
            pace: BurstPace::of_side(side),
        })?),
        DataExchange::Connections { receives, sends } => {
            let exchange = connection_exchange(ask, (receives, sends), received, sent)?;
            TestLoop::Connections(Box::new(exchange))
        }
    })
}

/// Creates what each connection of a test with many connections does.
fn connection_exchange(
    ask: &RequestedTest,
    (receives, sends): (Option<Option<u32>>, Option<Option<u32>>),
    received: BufferPlan,
    sent: BufferPlan,
) -> io::Result<ConnectionExchange> {
    let receiver = || {
        StreamReceiver::new(&ReceivePlan {
            buffers: received.clone(),
            by: ask.side.receive_by,
            limit: None,
        })
    };
    let sender = || {
        BufferSender::new(&SendPlan {
            buffers: sent.clone(),
            by: ask.side.send_by,
            limit: Some(sent.size.into()),
            pace: None,
        })
    };
    Ok(match (receives, sends) {
        (None, None) => ConnectionExchange::Nothing,
        (Some(Some(_)), Some(_)) => ConnectionExchange::Exchange {
            request: received.size.into(),
            response: sent.size.into(),
            responder: Box::new(Responder::new(&RespondPlan {
                request: received,
                response: sent,
                spin: ask.spins(),
                ..RespondPlan::default()
            })?),
        },
        (Some(_), Some(_)) => ConnectionExchange::Both(receiver()?, sender()?),
        (Some(_), None) => ConnectionExchange::Receive(receiver()?),
        (None, Some(_)) => ConnectionExchange::Send(sender()?),
    })
}
