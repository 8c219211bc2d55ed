//! VXLAN tunnel (RFC 7348) over IPv4.

use std::net::Ipv4Addr;

use wb_wire::{Ethernet, Ipv4View, MacAddr, UdpView, checksum, ethertype, protocol};

use crate::addr::Addr;
use crate::build::Path;
use crate::parse::{Check, RejectReason, parse};

/// UDP port of VXLAN: RFC 7348 section 5.
const PORT: u16 = 4789;
/// Flag of the VXLAN header: the network identifier is valid.
const HAS_VNI: u8 = 0x08;
/// Length of the VXLAN header in bytes.
const VXLAN: usize = 8;
/// Length of the outer headers, without a VLAN tag.
pub(crate) const OUTER: usize = 14 + Ipv4View::LEN + UdpView::LEN + VXLAN;
/// Length of the outer headers with a VLAN tag.
pub(crate) const LONGEST_OUTER: usize = OUTER + 4;

/// VXLAN tunnel. The gateway of the configuration is the next hop of the outer packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Network identifier, 1 to 16,777,215.
    pub vni: u32,
    /// Source address of the inner frames.
    pub src_mac: MacAddr,
    /// Destination address of the inner frames.
    pub dst_mac: MacAddr,
    /// Local endpoint.
    pub local: Ipv4Addr,
    /// Remote endpoint.
    pub remote: Ipv4Addr,
}

/// Encapsulates and decapsulates frames.
#[derive(Clone, Debug)]
pub(crate) struct Outer {
    pub(crate) tunnel: Tunnel,
    bytes: [u8; LONGEST_OUTER],
    pub(crate) len: usize,
    l3: usize,
    /// Sum of the IPv4 header without identification and length.
    ip_sum: u64,
    id: u16,
}

impl Outer {
    pub(crate) fn new(tunnel: Tunnel, mac: MacAddr, vlan: Option<u16>, tos: u8, ttl: u8) -> Self {
        let ethernet = Ethernet {
            dst: MacAddr::ZERO,
            src: mac,
        };
        let kind = ethertype::IPV4;
        let mut head = ethernet
            .emit(vlan.map_or(kind, |_| ethertype::VLAN))
            .to_vec();
        if let Some(tci) = vlan {
            head.extend_from_slice(&tci.to_be_bytes());
            head.extend_from_slice(&kind.to_be_bytes());
        }
        let l3 = head.len();
        let header = Ipv4View {
            version_ihl: 0x45,
            tos,
            total_len: 0.into(),
            id: 0.into(),
            // Flag "don't fragment".
            fragment: 0x4000.into(),
            ttl,
            protocol: protocol::UDP,
            checksum: 0.into(),
            src: tunnel.local.octets(),
            dst: tunnel.remote.octets(),
        };
        let header = header.to_bytes();
        head.extend_from_slice(&header);
        // The checksum stays 0: RFC 7348 section 5.
        let udp = UdpView {
            sport: 0.into(),
            dport: PORT.into(),
            len: 0.into(),
            checksum: 0.into(),
        };
        head.extend_from_slice(&udp.to_bytes());
        head.extend_from_slice(&[HAS_VNI, 0, 0, 0]);
        head.extend_from_slice(&(tunnel.vni << 8).to_be_bytes());
        let mut bytes = [0; LONGEST_OUTER];
        bytes[..head.len()].copy_from_slice(&head);
        Self {
            tunnel,
            bytes,
            len: head.len(),
            l3,
            ip_sum: checksum::sum(&header),
            id: 0,
        }
    }

    /// Writes the outer headers in front of a frame of `inner` bytes.
    #[inline]
    pub(crate) fn wrap(&mut self, out: &mut [u8], path: &Path, inner: usize) {
        let head = &mut out[..self.len];
        head.copy_from_slice(&self.bytes[..self.len]);
        head[..6].copy_from_slice(&path.to.0);
        let udp_len = (UdpView::LEN + VXLAN + inner) as u16;
        let total = Ipv4View::LEN as u16 + udp_len;
        let sum = self.ip_sum + u64::from(total) + u64::from(self.id);
        let mut put = |at: usize, value: u16| {
            head[at..at + 2].copy_from_slice(&value.to_be_bytes());
        };
        put(self.l3 + 2, total);
        put(self.l3 + 4, self.id);
        put(self.l3 + 10, checksum::finish(sum));
        put(self.l3 + 20, source_port(path));
        put(self.l3 + 24, udp_len);
        self.id = self.id.wrapping_add(1);
    }

    /// Returns the inner frame and the Ethernet source address of the outer one.
    pub(crate) fn open<'a>(
        &self,
        frame: &'a [u8],
        vlan: Option<u16>,
        check: Check,
    ) -> Result<(&'a [u8], &'a [u8; 6]), RejectReason> {
        let packet = parse(frame, vlan, check)?;
        let to_us = packet.dst == Addr::v4(self.tunnel.local.to_bits())
            && !packet.is_tcp
            && packet.ports as u16 == PORT;
        if !to_us {
            return Err(RejectReason::Foreign);
        }
        let (head, inner) = packet
            .payload
            .split_first_chunk::<VXLAN>()
            .ok_or(RejectReason::Malformed)?;
        let vni = u32::from_be_bytes([0, head[4], head[5], head[6]]);
        if head[0] & HAS_VNI == 0 || vni != self.tunnel.vni {
            return Err(RejectReason::Foreign);
        }
        Ok((inner, packet.src_mac))
    }
}

/// Source port from 49152 on, different between flows and constant within a flow: RFC 7348 section 5.
#[inline]
fn source_port(path: &Path) -> u16 {
    let v6 = !path.local.is_v4();
    let ports = u64::from(path.local_port) << 16 | u64::from(path.remote_port);
    let flow = (path.local.sum(v6) + path.remote.sum(v6)) << 32 | ports;
    (flow.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u16 | 0xc000
}
