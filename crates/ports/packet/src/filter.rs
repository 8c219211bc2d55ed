//! Classic BPF programs that the driver creates or changes.

use wb_port::PortSteering;

/// One instruction of classic BPF: code, jump if true, jump if false, operand (`struct sock_filter`).
pub type FilterOp = (u16, u8, u8, u32);

/// linux/bpf_common.h: combined codes.
mod code {
    pub(super) const LD_ABS: u16 = 0x20;
    pub(super) const LDB_IND: u16 = 0x50;
    pub(super) const LDB_ABS: u16 = 0x30;
    pub(super) const LDH_ABS: u16 = 0x28;
    pub(super) const LDH_IND: u16 = 0x48;
    pub(super) const LDX_IMM: u16 = 0x01;
    pub(super) const AND_K: u16 = 0x54;
    pub(super) const LSH_K: u16 = 0x64;
    pub(super) const ADD_X: u16 = 0x0c;
    pub(super) const TAX: u16 = 0x07;
    pub(super) const JA: u16 = 0x05;
    pub(super) const JEQ_K: u16 = 0x15;
    pub(super) const JSET_K: u16 = 0x45;
    pub(super) const MOD_K: u16 = 0x94;
    pub(super) const RET_K: u16 = 0x06;
    pub(super) const RET_A: u16 = 0x16;
}

/// Larger than any frame.
const WHOLE: u32 = 262_144;

/// Program that passes no frame.
pub(crate) fn drop_all() -> Vec<FilterOp> {
    vec![(code::RET_K, 0, 0, 0)]
}

/// The filter to attach so that at most `snap_len` bytes of each passed frame are kept; `None` if every frame is kept
/// whole.
///
/// The kernel keeps the number of bytes that the filter returns. A filter that returns the accumulator is not changed.
pub(crate) fn with_snap_len(filter: Option<&[FilterOp]>, snap_len: u32) -> Option<Vec<FilterOp>> {
    let snap_len = snap_len.max(1);
    match filter {
        Some(ops) => Some(
            ops.iter()
                .map(|&(op, jt, jf, k)| match op {
                    code::RET_K => (op, jt, jf, k.min(snap_len)),
                    _ => (op, jt, jf, k),
                })
                .collect(),
        ),
        None if snap_len < WHOLE => Some(vec![(code::RET_K, 0, 0, snap_len)]),
        None => None,
    }
}

/// linux/filter.h: SKF_AD_OFF + SKF_AD_PKTTYPE, loads the packet type instead of bytes.
const PACKET_TYPE: u32 = 0xffff_f000 + 4;
/// linux/if_packet.h
const PACKET_OUTGOING: u32 = 4;

/// linux/filter.h: SKF_AD_OFF + SKF_AD_PROTOCOL, the EtherType behind VLAN tags.
const PROTOCOL: u32 = 0xffff_f000;
/// linux/filter.h: SKF_NET_OFF, makes an offset relative to the network header.
const NETWORK: u32 = 0xfff0_0000;
/// RFC 7348.
const VXLAN_PORT: u32 = 4789;
/// Offset in bytes from the outer IPv4 header to the inner one: IPv4 (20), UDP (8), VXLAN (8), Ethernet (14).
const VXLAN_INNER: u32 = 50;

/// Program that returns the index of a queue: the TCP or UDP port (in a VXLAN tunnel, of the inner packet) modulo
/// `queues`; 0 for other frames. IPv4 options are not supported.
pub(crate) fn steer_by_port(which: PortSteering, queues: u32) -> Vec<FilterOp> {
    let port = match which {
        PortSteering::Source => 0,
        PortSteering::Destination => 2,
    };
    let (v4, v6) = (20 + port, 40 + port);
    vec![
        (code::LD_ABS, 0, 0, PROTOCOL),
        (code::JEQ_K, 14, 0, 0x86dd),
        (code::JEQ_K, 0, 19, 0x0800),
        // IPv4
        (code::LDB_ABS, 0, 0, NETWORK + 9),
        (code::JEQ_K, 3, 0, 6),
        (code::JEQ_K, 0, 16, 17),
        (code::LDH_ABS, 0, 0, NETWORK + 22),
        (code::JEQ_K, 2, 0, VXLAN_PORT),
        (code::LDH_ABS, 0, 0, NETWORK + v4),
        (code::JA, 0, 0, 10),
        // Inside a tunnel
        (code::LDH_ABS, 0, 0, NETWORK + VXLAN_INNER - 2),
        (code::JEQ_K, 2, 0, 0x86dd),
        (code::LDH_ABS, 0, 0, NETWORK + VXLAN_INNER + v4),
        (code::JA, 0, 0, 6),
        (code::LDH_ABS, 0, 0, NETWORK + VXLAN_INNER + v6),
        (code::JA, 0, 0, 4),
        // IPv6
        (code::LDB_ABS, 0, 0, NETWORK + 6),
        (code::JEQ_K, 1, 0, 6),
        (code::JEQ_K, 0, 3, 17),
        (code::LDH_ABS, 0, 0, NETWORK + v6),
        (code::MOD_K, 0, 0, queues.max(1)),
        (code::RET_A, 0, 0, 0),
        (code::RET_K, 0, 0, 0),
    ]
}

/// Adds instructions before `filter` that drop frames not sent by this host.
pub(crate) fn only_outgoing(filter: Option<Vec<FilterOp>>, snap_len: u32) -> Vec<FilterOp> {
    let mut ops = vec![
        (code::LD_ABS, 0, 0, PACKET_TYPE),
        (code::JEQ_K, 1, 0, PACKET_OUTGOING),
        (code::RET_K, 0, 0, 0),
    ];
    ops.extend(filter.unwrap_or_else(|| vec![(code::RET_K, 0, 0, snap_len.max(1))]));
    ops
}

/// Adds instructions before `filter` that drop frames sent by this host.
pub(crate) fn only_incoming(filter: Option<Vec<FilterOp>>, snap_len: u32) -> Vec<FilterOp> {
    let mut ops = vec![
        (code::LD_ABS, 0, 0, PACKET_TYPE),
        (code::JEQ_K, 0, 1, PACKET_OUTGOING),
        (code::RET_K, 0, 0, 0),
    ];
    ops.extend(filter.unwrap_or_else(|| vec![(code::RET_K, 0, 0, snap_len.max(1))]));
    ops
}

/// Program that passes ARP and ICMPv6 neighbour solicitations and advertisements, and with `echo` also ICMP and ICMPv6
/// echo; untagged (or with a stripped tag) and behind one VLAN tag.
pub(crate) fn presence(echo: bool) -> Vec<FilterOp> {
    use code::*;
    const TAGGED: usize = 3;
    const UNTAGGED: usize = 6;
    const ETHERTYPE: usize = 7;
    const IPV4: usize = 10;
    const IPV6: usize = 22;
    const DROP: usize = 29;
    const PASS: usize = 30;
    let echo = if echo { PASS } else { DROP };

    let mut ops: Vec<FilterOp> = Vec::with_capacity(PASS + 1);
    // Targets are absolute; the kernel expects distances from the next instruction.
    let distance = |from: usize, to: usize| u8::try_from(to - from - 1).expect("31 instructions");
    let plain = |ops: &mut Vec<FilterOp>, op: u16, k: u32| ops.push((op, 0, 0, k));
    let jump = |ops: &mut Vec<FilterOp>, op: u16, k: u32, yes: usize, no: usize| {
        let at = ops.len();
        ops.push((op, distance(at, yes), distance(at, no), k));
    };

    plain(&mut ops, LDH_ABS, 12);
    jump(&mut ops, JEQ_K, 0x8100, TAGGED, 2);
    jump(&mut ops, JEQ_K, 0x88a8, TAGGED, UNTAGGED);
    // X is the length of the tag, which is added to all following offsets.
    plain(&mut ops, LDX_IMM, 4);
    plain(&mut ops, LDH_ABS, 16);
    plain(&mut ops, JA, 1);
    plain(&mut ops, LDX_IMM, 0);
    debug_assert_eq!(ops.len(), ETHERTYPE);
    jump(&mut ops, JEQ_K, 0x0806, PASS, 8);
    jump(&mut ops, JEQ_K, 0x0800, IPV4, 9);
    jump(&mut ops, JEQ_K, 0x86dd, IPV6, DROP);

    debug_assert_eq!(ops.len(), IPV4);
    plain(&mut ops, LDB_IND, 14 + 9);
    jump(&mut ops, JEQ_K, 1, 12, DROP);
    // Only the first fragment has the ICMP header.
    plain(&mut ops, LDH_IND, 14 + 6);
    jump(&mut ops, JSET_K, 0x1fff, DROP, 14);
    plain(&mut ops, LDB_IND, 14);
    plain(&mut ops, AND_K, 0x0f);
    plain(&mut ops, LSH_K, 2);
    plain(&mut ops, ADD_X, 0);
    plain(&mut ops, TAX, 0);
    plain(&mut ops, LDB_IND, 14);
    jump(&mut ops, JEQ_K, 8, echo, 21);
    jump(&mut ops, JEQ_K, 0, echo, DROP);

    debug_assert_eq!(ops.len(), IPV6);
    plain(&mut ops, LDB_IND, 14 + 6);
    jump(&mut ops, JEQ_K, 58, 24, DROP);
    plain(&mut ops, LDB_IND, 14 + 40);
    jump(&mut ops, JEQ_K, 135, PASS, 26);
    jump(&mut ops, JEQ_K, 136, PASS, 27);
    jump(&mut ops, JEQ_K, 128, echo, 28);
    jump(&mut ops, JEQ_K, 129, echo, DROP);
    plain(&mut ops, RET_K, 0);
    plain(&mut ops, RET_K, WHOLE);
    ops
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        /// Packet type reported by the kernel.
        static KIND: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    }

    #[test]
    fn frames_of_one_direction_are_told_apart_by_the_filter() {
        let frame = ether(&[], 0x0800, &ipv4(5, 0, 17, 0));
        let longest = vec![(code::RET_K, 0, 0, 96)];
        for (kind, outgoing) in [(0, false), (1, false), (3, false), (PACKET_OUTGOING, true)] {
            KIND.set(kind);
            for filter in [None, Some(longest.clone())] {
                let kept = if filter.is_some() { 96 } else { 1500 };
                let verdict = |passes: bool| Some(if passes { kept } else { 0 });
                let only_in = only_incoming(filter.clone(), 1500);
                let only_out = only_outgoing(filter, 1500);
                assert_eq!(run(&only_in, &frame), verdict(!outgoing), "{kind}");
                assert_eq!(run(&only_out, &frame), verdict(outgoing), "{kind}");
            }
        }
        KIND.set(0);
    }

    /// Return value of the program in the kernel; `None` means "drop" there too.
    fn run(ops: &[FilterOp], frame: &[u8]) -> Option<u32> {
        let (mut a, mut x, mut at) = (0u32, 0u32, 0usize);
        let byte = |i: u32| frame.get(i as usize).map(|&b| u32::from(b));
        let half = |i: u32| Some(byte(i)? << 8 | byte(i + 1)?);
        loop {
            let (op, jt, jf, k) = ops[at];
            at += 1;
            match op {
                code::LDH_ABS => a = half(k)?,
                code::LDH_IND => a = half(x + k)?,
                code::LDB_IND => a = byte(x + k)?,
                code::LDX_IMM => x = k,
                code::AND_K => a &= k,
                code::LSH_K => a <<= k,
                code::ADD_X => a += x,
                code::TAX => x = a,
                code::JA => at += k as usize,
                code::JEQ_K => at += usize::from(if a == k { jt } else { jf }),
                code::JSET_K => at += usize::from(if a & k != 0 { jt } else { jf }),
                code::LD_ABS if k == PACKET_TYPE => a = KIND.get(),
                code::RET_K => return Some(k),
                other => panic!("no such code {other:#x}"),
            }
        }
    }

    fn passes(echo: bool, frame: &[u8]) -> bool {
        run(&presence(echo), frame).unwrap_or(0) > 0
    }

    fn ether(tags: &[u16], ethertype: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0x02; 12];
        for tpid in tags {
            frame.extend(tpid.to_be_bytes());
            frame.extend([0, 7]);
        }
        frame.extend(ethertype.to_be_bytes());
        frame.extend(payload);
        frame.resize(frame.len().max(60), 0);
        frame
    }

    fn ipv4(ihl: u8, fragment: u16, protocol: u8, kind: u8) -> Vec<u8> {
        let mut packet = vec![0xaa; usize::from(ihl) * 4 + 8];
        packet[0] = 0x40 | ihl;
        packet[6..8].copy_from_slice(&fragment.to_be_bytes());
        packet[9] = protocol;
        packet[usize::from(ihl) * 4] = kind;
        packet
    }

    fn ipv6(next: u8, kind: u8) -> Vec<u8> {
        let mut packet = vec![0xaa; 64];
        packet[6] = next;
        packet[40] = kind;
        packet
    }

    #[test]
    fn presence_passes_neighbours_and_echo_only() {
        for tags in [&[][..], &[0x8100], &[0x88a8]] {
            for echo in [false, true] {
                assert!(passes(echo, &ether(tags, 0x0806, &[])));
                assert!(passes(echo, &ether(tags, 0x86dd, &ipv6(58, 135))));
                assert!(passes(echo, &ether(tags, 0x86dd, &ipv6(58, 136))));
                assert_eq!(passes(echo, &ether(tags, 0x86dd, &ipv6(58, 128))), echo);
                assert_eq!(passes(echo, &ether(tags, 0x86dd, &ipv6(58, 129))), echo);
                assert!(!passes(echo, &ether(tags, 0x86dd, &ipv6(58, 134))));
                assert!(!passes(echo, &ether(tags, 0x86dd, &ipv6(17, 135))));
                for ihl in [5, 15] {
                    assert_eq!(
                        passes(echo, &ether(tags, 0x0800, &ipv4(ihl, 0, 1, 8))),
                        echo
                    );
                    assert_eq!(
                        passes(echo, &ether(tags, 0x0800, &ipv4(ihl, 0, 1, 0))),
                        echo
                    );
                    assert!(!passes(echo, &ether(tags, 0x0800, &ipv4(ihl, 0, 1, 3))));
                }
                // More-fragments alone marks a first fragment; an offset marks a later one.
                assert_eq!(
                    passes(echo, &ether(tags, 0x0800, &ipv4(5, 0x2000, 1, 8))),
                    echo
                );
                assert!(!passes(echo, &ether(tags, 0x0800, &ipv4(5, 1, 1, 8))));
                assert!(!passes(echo, &ether(tags, 0x0800, &ipv4(5, 0, 17, 8))));
                assert!(!passes(echo, &ether(tags, 0x88b5, &[])));
            }
        }
        assert!(!passes(true, &ether(&[0x8100, 0x8100], 0x0806, &[])));
        assert!(!passes(true, &[0; 13]));
    }

    #[test]
    fn snap_len_limits_what_a_filter_returns() {
        assert_eq!(with_snap_len(None, WHOLE), None);
        assert_eq!(with_snap_len(None, 96), Some(vec![(code::RET_K, 0, 0, 96)]));
        let filter = [
            (code::LDH_ABS, 0, 0, 12),
            (code::JEQ_K, 0, 1, 0x800),
            (code::RET_K, 0, 0, WHOLE),
            (code::RET_K, 0, 0, 0),
        ];
        let cut = with_snap_len(Some(&filter), 96).unwrap();
        assert_eq!(cut[..2], filter[..2]);
        assert_eq!(cut[2..], [(code::RET_K, 0, 0, 96), (code::RET_K, 0, 0, 0)]);
    }
}
