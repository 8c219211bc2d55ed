//! Selects the worker for a frame of a connection, by the same rule for all drivers.

/// Port number that selects the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortSteering {
    /// Destination port: the client's port in replies.
    Destination,
    /// Source port: the client's port in requests.
    Source,
}

/// RFC 7348.
const VXLAN_PORT: u16 = 4789;
/// Offset in bytes from the outer IPv4 header to the inner EtherType: IPv4 (20), UDP (8), VXLAN (8), addresses (12).
const VXLAN_INNER_TYPE: usize = 48;

/// Bytes of an ICMP error before the quoted packet (RFC 792, RFC 4443).
const ICMP_HEADER: usize = 8;

impl PortSteering {
    /// Index of the worker for a frame, below `workers`: the TCP or UDP port number (in a VXLAN tunnel, of the inner
    /// packet) modulo `workers`. An ICMP error goes to the worker that sent the quoted packet. All other frames go to
    /// worker 0.
    #[inline]
    #[must_use]
    pub fn worker(self, frame: &[u8], workers: u32) -> u32 {
        self.port(frame)
            .map_or(0, |port| u32::from(port) % workers.max(1))
    }

    #[inline]
    fn port(self, frame: &[u8]) -> Option<u16> {
        let half = |at: usize| {
            let bytes = frame.get(at..at + 2)?;
            Some(u16::from_be_bytes([bytes[0], bytes[1]]))
        };
        let mut at = 12;
        while matches!(half(at)?, 0x8100 | 0x88a8) && at < 20 {
            at += 4;
        }
        let network = at + 2;
        let is_udp = match half(at)? {
            0x0800 => *frame.get(network + 9)? == 17,
            _ => false,
        };
        let (kind, network) = if is_udp && half(network + 22)? == VXLAN_PORT {
            let inner = network + VXLAN_INNER_TYPE;
            (half(inner)?, inner + 2)
        } else {
            (half(at)?, network)
        };
        let (protocol, transport) = match kind {
            0x0800 => {
                let header = usize::from(frame.get(network)? & 0x0f) * 4;
                (*frame.get(network + 9)?, network + header)
            }
            0x86dd => (*frame.get(network + 6)?, network + 40),
            _ => return None,
        };
        // In a quoted packet the ports are in the order in which this side sent it.
        let (protocol, transport, is_quoted) = match (protocol, frame.get(transport)?) {
            (1, 3) => {
                let quoted = transport + ICMP_HEADER;
                let header = usize::from(frame.get(quoted)? & 0x0f) * 4;
                (*frame.get(quoted + 9)?, quoted + header, true)
            }
            (58, 1 | 2) => {
                let quoted = transport + ICMP_HEADER;
                (*frame.get(quoted + 6)?, quoted + 40, true)
            }
            _ => (protocol, transport, false),
        };
        if !matches!(protocol, 6 | 17) {
            return None;
        }
        match (self, is_quoted) {
            (Self::Source, false) | (Self::Destination, true) => half(transport),
            (Self::Destination, false) | (Self::Source, true) => half(transport + 2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ipv4(protocol: u8, ports: [u16; 2]) -> Vec<u8> {
        let mut packet = vec![0; 40];
        (packet[0], packet[9]) = (0x45, protocol);
        packet[20..22].copy_from_slice(&ports[0].to_be_bytes());
        packet[22..24].copy_from_slice(&ports[1].to_be_bytes());
        packet
    }

    fn ipv6(protocol: u8, ports: [u16; 2]) -> Vec<u8> {
        let mut packet = vec![0; 60];
        (packet[0], packet[6]) = (0x60, protocol);
        packet[40..42].copy_from_slice(&ports[0].to_be_bytes());
        packet[42..44].copy_from_slice(&ports[1].to_be_bytes());
        packet
    }

    fn ethernet(tags: usize, kind: u16, packet: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        for _ in 0..tags {
            frame.extend([0x81, 0, 0, 7]);
        }
        frame.extend(kind.to_be_bytes());
        frame.extend(packet);
        frame
    }

    fn both(frame: &[u8], workers: u32) -> (u32, u32) {
        (
            PortSteering::Source.worker(frame, workers),
            PortSteering::Destination.worker(frame, workers),
        )
    }

    #[test]
    fn the_port_says_whose_a_frame_is() {
        for tags in 0..3 {
            for protocol in [6, 17] {
                let ports = [1025, 83];
                let frame = ethernet(tags, 0x0800, &ipv4(protocol, ports));
                assert_eq!(both(&frame, 4), (1, 3), "{tags} tags");
                let frame = ethernet(tags, 0x86dd, &ipv6(protocol, ports));
                assert_eq!(both(&frame, 4), (1, 3), "{tags} tags");
                assert_eq!(both(&frame, 1), (0, 0));
            }
        }
    }

    #[test]
    fn options_of_ipv4_are_stepped_over() {
        let mut packet = ipv4(6, [0, 0]);
        packet[0] = 0x46;
        packet[24..28].copy_from_slice(&[0, 5, 0, 6]);
        assert_eq!(both(&ethernet(0, 0x0800, &packet), 8), (5, 6));
    }

    #[test]
    fn in_a_tunnel_the_packet_inside_counts() {
        let mut outer = ipv4(17, [9, VXLAN_PORT]);
        outer.truncate(28);
        outer.extend([0; 8]);
        outer.extend(ethernet(0, 0x0800, &ipv4(6, [6, 7])));
        assert_eq!(both(&ethernet(1, 0x0800, &outer), 8), (6, 7));
        outer.truncate(36);
        outer.extend(ethernet(0, 0x86dd, &ipv6(17, [5, 3])));
        assert_eq!(both(&ethernet(0, 0x0800, &outer), 8), (5, 3));
    }

    #[test]
    fn an_icmp_error_is_for_the_worker_that_sent_the_quoted_packet() {
        let sent = [1025, 83];
        let error = |ip: fn(u8, [u16; 2]) -> Vec<u8>, len: usize, protocol: u8, kind: u8| {
            let mut packet = ip(protocol, [0, 0]);
            packet.truncate(len);
            packet.extend([kind, 1, 0, 0, 0, 0, 0, 0]);
            packet.extend(ip(6, sent));
            packet
        };
        for kind in [3, 11] {
            let frame = ethernet(1, 0x0800, &error(ipv4, 20, 1, kind));
            let expected = if kind == 3 { (3, 1) } else { (0, 0) };
            assert_eq!(both(&frame, 4), expected, "type {kind}");
        }
        for kind in [1, 2, 128] {
            let frame = ethernet(0, 0x86dd, &error(ipv6, 40, 58, kind));
            let expected = if kind < 3 { (3, 1) } else { (0, 0) };
            assert_eq!(both(&frame, 4), expected, "type {kind}");
        }
    }

    #[test]
    fn what_has_no_port_is_for_the_first() {
        let whole = ethernet(0, 0x0800, &ipv4(6, [7, 7]));
        for frame in [
            ethernet(0, 0x0806, &[1; 28]),
            ethernet(0, 0x0800, &ipv4(1, [7, 7])),
            ethernet(0, 0x86dd, &ipv6(58, [7, 7])),
        ] {
            assert_eq!(both(&frame, 4), (0, 0));
        }
        for len in 0..whole.len() {
            let (source, destination) = both(&whole[..len], 4);
            assert!(source == 0 || source == 3);
            assert!(destination == 0 || destination == 3);
        }
    }
}
