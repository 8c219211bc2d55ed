//! Expressions and packets that match: both use the same constants.

/// Random numbers from a seed that a failing test prints.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }

    pub(crate) fn below(&mut self, limit: u32) -> u32 {
        self.next() % limit
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u32) as usize]
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }
}

const HOSTS: [&str; 4] = ["10.0.0.1", "10.0.0.2", "172.16.32.25", "192.168.1.255"];
const HOSTS_6: [&str; 3] = ["2001:db8::1", "fe80::2", "ff02::1"];
const NETS: [&str; 4] = ["10.0.0.0/8", "172.16", "192.168.1.0/24", "2001:db8::/32"];
const MACS: [&str; 3] = [
    "02:00:00:00:00:01",
    "02:00:00:00:00:02",
    "ff:ff:ff:ff:ff:ff",
];
const PORTS: [u16; 5] = [9, 53, 80, 443, 5001];
const VLANS: [u16; 3] = [1, 5, 100];

/// Expressions of every kind that libpcap supports for Ethernet.
pub(crate) fn corpus() -> Vec<String> {
    let mut all: Vec<String> = [
        "",
        "ip",
        "ip6",
        "arp",
        "rarp",
        "tcp",
        "udp",
        "icmp",
        "icmp6",
        "igmp",
        "sctp",
        "esp",
        "ah",
        "pim",
        "vrrp",
        "igrp",
        "ip proto 47",
        "ip6 proto 58",
        "ip protochain 6",
        "ip6 protochain 6",
        "proto 17",
        "ether proto 0x88cc",
        "ether proto \\ip",
        "vlan",
        "vlan 5",
        "vlan and ip",
        "vlan 5 and tcp port 80",
        "vlan 5 and vlan 100",
        "vlan and vlan and udp",
        "not vlan",
        "vlan or ip",
        "ip or vlan 5 and udp",
        "mpls",
        "mpls 1000",
        "mpls and ip",
        "pppoed",
        "pppoes",
        "pppoes and ip",
        "pppoes 7",
        "broadcast",
        "multicast",
        "ether broadcast",
        "ether multicast",
        "ip broadcast",
        "ip multicast",
        "ip6 multicast",
        "less 60",
        "greater 61",
        "len > 100",
        "len = 64",
        "stp",
        "ipx",
        "netbeui",
        "atalk",
        "aarp",
        "decnet",
        "lat",
        "moprc",
        "mopdl",
        "iso",
        "clnp",
        "isis",
        "esis",
        "host 10.0.0.1",
        "src host 172.16.32.25",
        "dst host 10.0.0.2",
        "src or dst host 10.0.0.1",
        "src and dst host 10.0.0.1",
        "ip host 10.0.0.1",
        "arp host 10.0.0.1",
        "rarp host 10.0.0.1",
        "host 2001:db8::1",
        "src host 2001:db8::1",
        "ip6 host fe80::2",
        "net 10.0.0.0/8",
        "src net 172.16",
        "dst net 192.168.1",
        "net 192.168.1.0 mask 255.255.255.0",
        "net 2001:db8::/32",
        "ether host 02:00:00:00:00:01",
        "ether src 02:00:00:00:00:02",
        "ether dst ff:ff:ff:ff:ff:ff",
        "port 80",
        "src port 53",
        "dst port 443",
        "tcp port 80",
        "udp port 9",
        "tcp src port 80",
        "udp dst port 5001",
        "sctp port 80",
        "portrange 50-90",
        "tcp portrange 1-1023",
        "udp src portrange 5000-5002",
        "dst portrange 80-80",
        "tcp port 80 and (((ip[2:2] - ((ip[0]&0xf)<<2)) - ((tcp[12]&0xf0)>>2)) != 0)",
        "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
        "tcp[tcpflags] == tcp-syn",
        "tcp[13] = 2",
        "tcp[0:2] > 1023",
        "udp[4:2] > 20",
        "udp[8:4] = 0x57420000",
        "icmp[icmptype] = icmp-echo",
        "icmp[icmptype] != icmp-echo and icmp[icmptype] != icmp-echoreply",
        "icmp6[icmp6type] = icmp6-echo",
        "ip[6:2] & 0x1fff = 0",
        "ip[6] & 0x20 != 0",
        "ip[8] < 5",
        "ip[0] & 0xf != 5",
        "ip6[6] = 17",
        "ip6[40] = 0x80",
        "ether[0] & 1 = 0",
        "ether[12:2] = 0x0800",
        "ether[12:4] = 0x81000005",
        "ether[14:2] & 0xfff = 5",
        "ether[16:2] = 0x0800",
        "ether[11:2] = 0x0108",
        "ether[10:4] != 0",
        "ether[15] = 5",
        "ether[len - 1] = 0",
        "ether[ip[0]] = 0",
        "ether[ether[12]:2] = 0",
        "ip[ip[8]:4] > 7",
        "tcp[((tcp[12:1] & 0xf0) >> 2):4] = 0x47455420",
        "ip[2:2] / 2 = 23",
        "ip[2:2] % 7 = 1",
        "ip[2:2] * 3 > 100",
        "ip[8] ^ 0x40 = 0",
        "ip[8] | 1 = 65",
        "ip[1] << 2 = 0",
        "-ip[8] = -64",
        "ip[2:2] > ip[4:2]",
        "ip[12:4] = ip[16:4]",
        "ip[2:2] + 14 <= len",
        "ip[2:2] / ip[8] = 1",
        "ip[2:2] % ip[9] = 1",
        "1 << ip[8] = 0",
        "ether[9] >> ether[8] = 0",
        "len - 60 < 10",
        "tcp and not port 80",
        "not tcp",
        "not (tcp or udp)",
        "tcp or udp",
        "ip and not host 10.0.0.1 and not net 172.16",
        "host 10.0.0.1 or host 10.0.0.2 or host 172.16.32.25",
        "(tcp port 80 or tcp port 443) and host 10.0.0.1",
        "ip and udp and src host 10.0.0.1 and dst port 9",
        "tcp port 80 or udp port 53 or icmp or arp",
        "ip proto 6 or ip proto 17",
        "link[0] = 2",
        "ether src 02:00:00:00:00:01 and ether dst 02:00:00:00:00:02 and ip",
        "gateway 10.0.0.1",
        "geneve",
        "geneve 1 and ip",
        "wlan type mgt",
        "inbound",
    ]
    .map(String::from)
    .into();
    // Long expressions with jumps beyond the range of one instruction.
    let many: Vec<String> = (1..120).map(|n| format!("udp port {}", n * 7)).collect();
    all.push(many.join(" or "));
    let many: Vec<String> = (1..200)
        .map(|n| format!("host 10.1.{}.{n}", n * 3 % 256))
        .collect();
    all.push(format!("vlan and ({})", many.join(" or ")));
    all
}

/// Random expression.
pub(crate) fn expression(random: &mut Random, depth: u32) -> String {
    if depth > 0 && !random.one_in(3) {
        let left = expression(random, depth - 1);
        return match random.below(7) {
            0 => format!("not ({left})"),
            1..=3 => format!("({left}) and ({})", expression(random, depth - 1)),
            4 => format!("{left} and {}", expression(random, depth - 1)),
            _ => format!("({left}) or ({})", expression(random, depth - 1)),
        };
    }
    let direction = random.pick(&["", "src ", "dst ", "src or dst ", "src and dst "]);
    match random.below(16) {
        0 => random
            .pick(&[
                "ip", "ip6", "arp", "tcp", "udp", "icmp", "icmp6", "sctp", "mpls", "pppoes",
            ])
            .into(),
        1 => format!("{direction}host {}", random.pick(&HOSTS)),
        2 => format!("{direction}host {}", random.pick(&HOSTS_6)),
        3 => format!("{direction}net {}", random.pick(&NETS)),
        4 => format!(
            "ether {}host {}",
            random.pick(&["", "src ", "dst "]),
            random.pick(&MACS)
        ),
        5 | 6 => format!(
            "{}{direction}port {}",
            random.pick(&["", "tcp ", "udp "]),
            random.pick(&PORTS)
        ),
        7 => {
            let low = random.pick(&PORTS);
            format!(
                "{direction}portrange {low}-{}",
                low + random.below(500) as u16
            )
        }
        8 => format!("vlan {}", random.pick(&VLANS)),
        9 => random
            .pick(&["vlan", "broadcast", "multicast", "ip multicast"])
            .into(),
        10 => format!(
            "{} {}",
            random.pick(&["less", "greater"]),
            20 + random.below(80)
        ),
        _ => {
            let comparison = random.pick(&["=", "!=", "<", ">", "<=", ">="]);
            format!("{} {comparison} {}", value(random, 2), value(random, 1))
        }
    }
}

fn value(random: &mut Random, depth: u32) -> String {
    if depth == 0 || random.one_in(4) {
        return match random.below(4) {
            0 => "len".into(),
            1 => format!("{}", random.below(70)),
            2 => format!(
                "{:#x}",
                random.pick(&[0x0800, 0x8100, 0x40, 0x45, 0xff, 0x1fff])
            ),
            _ => format!("{}", random.pick(&PORTS)),
        };
    }
    match random.below(5) {
        0 => {
            let operator = random.pick(&["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"]);
            format!(
                "({} {operator} {})",
                value(random, depth - 1),
                value(random, depth - 1)
            )
        }
        1 => format!("ether[{}]", value(random, depth - 1)),
        _ => {
            let layer = random.pick(&["ether", "ip", "ip6", "tcp", "udp", "icmp"]);
            format!("{layer}[{}:{}]", random.below(24), random.pick(&[1, 2, 4]))
        }
    }
}

/// Packet of a kind that the expressions test, sometimes truncated or damaged. At least 16 bytes.
pub(crate) fn packet(random: &mut Random) -> Vec<u8> {
    let mac = |random: &mut Random| {
        let text = random.pick(&MACS);
        text.split(':')
            .map(|byte| u8::from_str_radix(byte, 16).unwrap())
            .collect::<Vec<_>>()
    };
    let mut frame = [mac(random), mac(random)].concat();
    for _ in 0..random.pick(&[0, 0, 0, 1, 1, 2]) {
        frame.extend(
            random
                .pick(&[0x8100_u16, 0x88a8, 0x8100, 0x9100])
                .to_be_bytes(),
        );
        frame.extend((random.pick(&[0, 0x2000, 0xf000]) | random.pick(&VLANS)).to_be_bytes());
    }
    let network = random.below(10);
    match network {
        0..5 => {
            if random.one_in(8) {
                frame.extend([0x88, 0x47, 0, 0x3e, 0x81, 64]);
            } else if random.one_in(8) {
                frame.extend([0x88, 0x64, 0x11, 0, 0, 7, 0, 48, 0, 0x21]);
            } else {
                frame.extend([8, 0]);
            }
            ipv4(random, &mut frame);
        }
        5..8 => {
            frame.extend([0x86, 0xdd]);
            ipv6(random, &mut frame);
        }
        8 => {
            frame.extend(random.pick(&[[8, 6], [0x80, 0x35]]));
            frame.extend([0, 1, 8, 0, 6, 4, 0, 1]);
            frame.extend(mac(random));
            frame.extend(host(random));
            frame.extend([0; 6]);
            frame.extend(host(random));
        }
        _ => {
            frame.extend((random.next() as u16).to_be_bytes());
            frame.extend(
                (0..random.below(60))
                    .map(|_| random.next() as u8)
                    .collect::<Vec<_>>(),
            );
        }
    }
    if random.one_in(2) {
        frame.resize(frame.len().max(60), 0);
    }
    if random.one_in(6) {
        frame.truncate(random.below(frame.len() as u32) as usize);
    }
    if random.one_in(8) {
        let at = random.below(frame.len().max(1) as u32) as usize;
        if let Some(byte) = frame.get_mut(at) {
            *byte = random.next() as u8;
        }
    }
    frame.resize(frame.len().max(16), 0);
    frame
}

fn host(random: &mut Random) -> [u8; 4] {
    random
        .pick(&HOSTS)
        .parse::<std::net::Ipv4Addr>()
        .unwrap()
        .octets()
}

fn ipv4(random: &mut Random, frame: &mut Vec<u8>) {
    let words = random.pick(&[5, 5, 5, 6, 15, 0]);
    let protocol = random.pick(&[6, 6, 17, 17, 1, 132, 47]);
    frame.extend([0x40 | words, 0, 0, 46, 0, 0]);
    frame.extend(random.pick(&[[0, 0], [0x40, 0], [0x20, 0], [0, 100]]));
    frame.extend([random.pick(&[64, 1, 32]), protocol, 0, 0]);
    frame.extend(host(random));
    frame.extend(host(random));
    frame.extend(vec![1; usize::from(words.max(5) - 5) * 4]);
    transport(random, protocol, frame);
}

fn ipv6(random: &mut Random, frame: &mut Vec<u8>) {
    let protocol = random.pick(&[6, 17, 58, 132]);
    let chained = random.one_in(5);
    frame.extend([0x60, 0, 0, 0, 0, 20, if chained { 0 } else { protocol }, 64]);
    for _ in 0..2 {
        let host = random.pick(&HOSTS_6).parse::<std::net::Ipv6Addr>().unwrap();
        frame.extend(host.octets());
    }
    if chained {
        frame.extend([protocol, 0, 1, 4, 0, 0, 0, 0]);
    }
    transport(random, protocol, frame);
}

fn transport(random: &mut Random, protocol: u8, frame: &mut Vec<u8>) {
    if matches!(protocol, 6 | 17 | 132) {
        frame.extend(random.pick(&PORTS).to_be_bytes());
        frame.extend(random.pick(&PORTS).to_be_bytes());
    } else {
        frame.extend([random.pick(&[8, 0, 128, 3]), 0, 0, 0]);
    }
    if protocol == 6 {
        frame.extend([0, 0, 0, 1, 0, 0, 0, 0]);
        frame.extend([0x50, random.pick(&[2, 0x12, 0x10, 1]), 0, 0, 0, 0, 0, 0]);
        frame.extend(b"GET /");
    } else {
        frame.extend([0, 26, 0, 0, 0x57, 0x42, 0, 0]);
    }
    frame.extend(
        (0..random.below(40))
            .map(|_| random.next() as u8)
            .collect::<Vec<_>>(),
    );
}
