//! Builds the layers of a stream's frames from its options.

use std::net::IpAddr;

use wb_model::{Proto, Stream};
use wb_wire::{
    Arp, ArpOperation, Echo, Ethernet, Ipv4, Ipv6, MacAddr, NetworkHeader, Stack, Tcp,
    TransportHeader, Udp, ethertype,
};

use crate::modify::WorkerShare;
use crate::{CompileError, StreamSpec};

use super::flow_cursor::FlowCursor;

/// Layers of the first frame of a worker.
pub(crate) fn layer_stack(spec: &StreamSpec, cursor: &FlowCursor) -> Result<Stack, CompileError> {
    let stream = &spec.stream;
    let src = stream.source().nth(cursor.tuple_offset(2).into());
    let dst = stream.destination().nth(cursor.tuple_offset(3).into());
    let sport = stream.source_ports().nth(cursor.tuple_offset(0));
    let dport = stream.destination_ports().nth(cursor.tuple_offset(1));
    let transport = match stream.proto {
        Proto::Tcp => {
            let mut tcp = Tcp::new(sport, dport);
            tcp.flags = stream.tcp_flags.unwrap_or(tcp.flags);
            TransportHeader::Tcp(tcp)
        }
        Proto::Icmp => TransportHeader::Echo(Echo::request(sport, dport)),
        _ => TransportHeader::Udp(Udp::new(sport, dport)),
    };
    let network = match (stream.proto, src, dst) {
        (Proto::Raw, ..) => NetworkHeader::None {
            ethertype: stream.ethertype.unwrap_or(ethertype::EXPERIMENTAL),
        },
        (Proto::Arp, IpAddr::V4(src), IpAddr::V4(dst)) => NetworkHeader::Arp(Arp {
            operation: ArpOperation::Request,
            sender_mac: MacAddr(spec.src_mac),
            sender_ip: src,
            target_mac: MacAddr::ZERO,
            target_ip: dst,
        }),
        (_, IpAddr::V4(src), IpAddr::V4(dst)) => {
            let ip = Ipv4 {
                tos: stream.tos,
                ttl: stream.ttl,
                ..Ipv4::new(src, dst)
            };
            NetworkHeader::Ipv4(ip, transport)
        }
        (_, IpAddr::V6(src), IpAddr::V6(dst)) if stream.proto != Proto::Arp => {
            let ip = Ipv6 {
                class: stream.tos,
                hop_limit: stream.ttl,
                ..Ipv6::new(src, dst)
            };
            NetworkHeader::Ipv6(ip, transport)
        }
        _ => {
            return Err(CompileError::Families {
                stream: spec.name.clone(),
            });
        }
    };
    Ok(Stack {
        ethernet: Ethernet {
            dst: MacAddr(spec.dst_mac),
            src: MacAddr(spec.src_mac),
        },
        vlans: stream.vlan_tags(),
        mpls: stream.mpls_labels(),
        extensions: stream.extension_headers(),
        ..Stack::over(network)
    })
}

/// Cursor of a worker through the 5-tuples of a stream. A stream without our tag counts as one flow, but uses all its
/// 5-tuples.
pub(crate) fn worker_cursor(stream: &Stream, flows: u32, share: WorkerShare) -> FlowCursor {
    FlowCursor::new(
        stream,
        flows.max(share.workers),
        share.worker,
        share.workers,
    )
}
