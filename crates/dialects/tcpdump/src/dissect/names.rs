//! Names of numbers as in tcpdump, which differ from IANA's.

pub(super) fn ethertype_name(number: u16) -> Option<&'static str> {
    Some(match number {
        0x0200 => "PUP",
        0x0500 => "Sprite",
        0x0600 => "NS",
        0x0707 => "GeoNet (old)",
        0x0800 => "IPv4",
        0x0806 => "ARP",
        0x1000 => "Trail",
        0x1111 => "CALM FAST",
        0x6001 => "MOP DL",
        0x6002 => "MOP RC",
        0x6003 => "DN",
        0x6004 => "LAT",
        0x6007 => "SCA",
        0x6558 => "TEB",
        0x8035 => "Reverse ARP",
        0x8038 => "Lanbridge",
        0x803c => "DEC DNS",
        0x803e => "DEC DTS",
        0x805b => "VEXP",
        0x805c => "VPROD",
        0x809b => "Appletalk",
        0x80f3 => "Appletalk ARP",
        0x8100 => "802.1Q",
        0x8137 => "IPX",
        0x86dd => "IPv6",
        0x8808 => "MPCP",
        0x8809 => "Slow Protocols",
        0x880b => "PPP",
        0x8847 => "MPLS unicast",
        0x8848 => "MPLS multicast",
        0x8863 => "PPPoE D",
        0x8864 => "PPPoE S",
        0x886f => "MS NLB heartbeat",
        0x8870 => "Jumbo",
        0x888e => "EAPOL",
        0x8899 => "Realtek protocols",
        0x88a2 => "AoE",
        0x88a8 => "802.1Q-QinQ",
        0x88ca => "TIPC",
        0x88cc => "LLDP",
        0x88e5 => "802.1AE MACsec",
        0x88f7 => "PTP",
        0x8902 => "CFM",
        0x893a => "IEEE1905.1",
        0x8947 => "GeoNet",
        0x894f => "NSH",
        0x9000 => "Loopback",
        0x9100 => "802.1Q-9100",
        0x9200 => "802.1Q-9200",
        0xabcd => "CFM (old)",
        0xd28b => "Arista Vendor Specific Protocol",
        0x00fe => "GRE-OSI",
        0xfefe => "OSI",
        _ => return None,
    })
}

pub(super) fn protocol_name(number: u8) -> &'static str {
    match number {
        0 => "Options",
        1 => "ICMP",
        2 => "IGMP",
        4 => "IPIP",
        6 => "TCP",
        8 => "EGP",
        9 => "IGRP",
        17 => "UDP",
        33 => "DCCP",
        41 => "IPv6",
        43 => "Routing",
        44 => "Fragment",
        46 => "RSVP",
        47 => "GRE",
        50 => "ESP",
        51 => "AH",
        55 => "Mobile IP",
        58 => "ICMPv6",
        62 => "Mobile IP (old)",
        88 => "EIGRP",
        89 => "OSPF",
        103 => "PIM",
        108 => "Compressed IP",
        112 => "VRRP",
        113 => "PGM",
        132 => "SCTP",
        135 => "Mobility",
        143 => "Ethernet",
        _ => "unknown",
    }
}

/// A service access point of 802.2.
pub(super) fn sap_name(number: u8) -> Option<&'static str> {
    Some(match number {
        0x00 => "Null",
        0x02 => "802.1B I",
        0x04 => "SNA",
        0x06 => "IP",
        0x0e => "ProWay NM",
        0x42 => "STP",
        0x4e => "RS511",
        0x7e => "ISO8208",
        0x8e => "ProWay",
        0xaa => "SNAP",
        0xe0 => "IPX",
        0xf0 => "NetBeui",
        0xfe => "OSI",
        _ => return None,
    })
}

/// An organization in a SNAP header.
pub(super) fn organization_name(number: u32) -> &'static str {
    match number {
        0x00_0000 => "Ethernet",
        0x00_000c => "Cisco",
        0x00_005e => "IANA",
        0x00_0081 => "Nortel Networks SONMP",
        0x00_00f8 => "Cisco bridged",
        0x00_120f => "IEEE 802.3 Private",
        0x00_12bb => "ANSI/TIA",
        0x00_1b21 => "DCBX",
        0x00_80c2 => "Ethernet bridged",
        0x08_0007 => "Appletalk",
        _ => "Unknown",
    }
}

/// Hardware type of an ARP message.
pub(super) fn hardware_name(number: u16) -> Option<&'static str> {
    Some(match number {
        1 => "Ethernet",
        6 => "TokenRing",
        7 => "ArcNet",
        15 => "FrameRelay",
        23 => "Strip",
        24 => "IEEE 1394",
        32 => "InfiniBand",
        _ => return None,
    })
}
