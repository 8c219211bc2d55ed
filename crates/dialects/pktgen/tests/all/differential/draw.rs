//! Random writes to the control files: correct and malformed commands of every kind, and devices to run.
//!
//! Knows the names of commands and useful values, not the effects.

use std::fmt::Display;

/// An action on the control files.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Removes all devices.
    Fresh,
    /// The next steps are stored together under this name.
    Part(&'static str),
    /// The next steps do not depend on the previous ones.
    Sequence,
    Write {
        file: String,
        bytes: Vec<u8>,
    },
    Read {
        file: String,
    },
    /// Writes `start` and waits until all devices have stopped.
    Run,
}

/// Random numbers (SplitMix64), the same on every machine.
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Random number in `low..high`.
    fn number(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low)
    }

    /// True with a probability of `percent`.
    fn now(&mut self, percent: u64) -> bool {
        self.number(0, 100) < percent
    }

    fn of<'a, T: ?Sized>(&mut self, choice: &[&'a T]) -> &'a T {
        choice[self.number(0, choice.len() as u64) as usize]
    }
}

const NUMBERS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "7",
    "9",
    "10",
    "41",
    "42",
    "60",
    "64",
    "100",
    "255",
    "256",
    "1000",
    "1500",
    "4095",
    "4096",
    "9999",
    "65535",
    "65536",
    "70000",
    "100000",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9999999999",
    "99999999999",
    "12345678901",
    "-1",
    "-5",
    "abc",
    "",
    "0x40",
    "1k",
    "300M",
    "5 6",
    "007",
    "0000000000012",
];
const IPV4: &[&str] = &[
    "10.0.0.1",
    "198.18.0.42",
    "0.0.0.0",
    "255.255.255.255",
    "10.0.0",
    "10",
    "1.2.3.4.5",
    "300.400.500.600",
    "a.b.c.d",
    "",
    "1..2.3",
    "10.0.0.1/24",
    "-1.-2.-3.-4",
    "notanip",
    "1.2.3.41.2.3.41.2.3.41.2.3.41.2.3.4",
];
const IPV6: &[&str] = &[
    "::",
    "::1",
    "2001:db8::1",
    "FD00::1",
    "fe80::1%eth0",
    "2001:db8::/32",
    "1:2:3:4:5:6:7:8",
    "1:2:3:4:5:6:7::",
    "::2:3:4:5:6:7:8",
    "1:2:3:4::5:6:7:8",
    "1::2::3",
    "",
    "garbage",
    "12345::",
    "0:0:0:0:0:0:0:0",
    "::ffff:10.0.0.1",
    "::10.0.0.1",
    "1:2:3:4:5:6:1.2.3.4",
    "1:2:3:4:5:6:7:1.2.3.4",
    "::1.2.3.4:5",
    "::256.1.1.1",
    "::01.02.03.04",
    ":::",
    "::1:",
    "1:::2",
    "fe80::200:5efe:1.2.3.4",
    "2001:db8:0:5efe::1",
    "g::1",
    "::ffff:0:0",
    "0:1:0:1:0:1:0:1",
    "::1.2.3.",
    "1.2.3.4",
    "::abcd.1.2.3",
    "FD00:0000:0000:0000:0000:0000:0000:0001",
    "1:0:0:1:0:0:0:1",
];
const MACS: &[&str] = &[
    "00:11:22:33:44:55",
    "AA:bb:CC:dd:EE:ff",
    "00-11-22-33-44-55",
    "001122334455",
    "00:00:00:00:00:00",
    "ff:ff:ff:ff:ff:ff",
    "02:00:00:00:00:fe",
    "00:11:22:33:44",
    "00:11:22:33:44:55:66",
    "00:11:22:33:44:5g",
    "",
    "0:0:0:0:0:1",
    "02:00:00:00:00:09 x",
];
const FLAGS: &[&str] = &[
    "IPV6",
    "IPSRC_RND",
    "IPDST_RND",
    "TXSIZE_RND",
    "UDPSRC_RND",
    "UDPDST_RND",
    "UDPCSUM",
    "NO_TIMESTAMP",
    "MPLS_RND",
    "QUEUE_MAP_RND",
    "QUEUE_MAP_CPU",
    "FLOW_SEQ",
    "FLOW_RND",
    "IPSEC",
    "MACSRC_RND",
    "MACDST_RND",
    "VID_RND",
    "SVID_RND",
    "NODE",
    "SHARED",
    "bogus",
    "",
    "udpcsum",
    "UDPCSUMX",
    "FLOW",
    "NODE_ALLOC",
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
];
const BYTES: &[&str] = &[
    "00", "10", "b8", "ff", "FF", "0", "g", "1g", "0ff", "0x10", "", "a b",
];
const MODES: &[&str] = &[
    "start_xmit",
    "netif_receive",
    "queue_xmit",
    "start_xmit",
    "xmit_queue",
    "",
    "bogus",
    "START_XMIT",
    "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq",
];
const NODES: &[&str] = &["0", "0", "1", "2", "63", "abc", "", "00"];
/// Words that are not commands of a device at present.
const STRANGE: &[&str] = &[
    "svlan",
    "inject",
    "multiskb",
    "src6_min",
    "src6_max",
    "COUNT",
    "counts",
    "coun",
    "dst7",
    "pkt_size60",
    "clear_counters_",
    "xxxxxxxxxxxxxxxxxxxx",
    "\u{ff}\u{fe} bin",
    "flag_",
    "v\0x 5",
    "\0",
    "=",
    "\"",
    " ",
    "ipg",
    "dstmac",
    "srcmac",
    "config",
    "start",
    "rx",
    "add_device",
];
const NUMERIC: &[&str] = &[
    "count",
    "min_pkt_size",
    "max_pkt_size",
    "pkt_size",
    "frags",
    "delay",
    "rate",
    "ratep",
    "udp_src_min",
    "udp_src_max",
    "udp_dst_min",
    "udp_dst_max",
    "clone_skb",
    "src_mac_count",
    "dst_mac_count",
    "burst",
    "flows",
    "flowlen",
    "spi",
    "queue_map_min",
    "queue_map_max",
    "vlan_id",
    "vlan_p",
    "vlan_cfi",
    "svlan_id",
    "svlan_p",
    "svlan_cfi",
    "skb_priority",
    "clear_counters",
];
/// Commands with special arguments. The most error-prone ones appear several times.
const OTHER: &[&str] = &[
    "flag",
    "flag",
    "flag",
    "flag",
    "mpls",
    "mpls",
    "imix_weights",
    "imix_weights",
    "dst6",
    "src6",
    "dst6_min",
    "dst6_max",
    "dst",
    "dst_min",
    "dst_max",
    "src_min",
    "src_max",
    "dst_mac",
    "src_mac",
    "tos",
    "traffic_class",
    "xmit_mode",
    "xmit_mode",
    "node",
    "vlan_id",
    "svlan_id",
    "clone_skb",
    "burst",
    "vlan_p",
];

impl Draw {
    fn any_number(&mut self) -> String {
        match self.number(0, 10) {
            0..6 => self.of(NUMBERS).to_owned(),
            6..8 => self.number(0, 100).to_string(),
            _ => self.number(0, 1 << 34).to_string(),
        }
    }

    fn below(&mut self, bound: u64) -> String {
        if self.now(80) {
            self.number(0, bound).to_string()
        } else {
            self.any_number()
        }
    }

    fn ipv6(&mut self) -> String {
        if self.now(50) {
            return self.of(IPV6).to_owned();
        }
        let groups: Vec<_> = (0..self.number(1, 9))
            .map(|_| match self.number(0, 5) {
                0..3 => "0".to_owned(),
                3 => "ffff".to_owned(),
                _ => format!("{:x}", self.number(0, 65_536)),
            })
            .collect();
        if self.now(50) {
            return groups.join(":");
        }
        let cut = self.number(0, groups.len() as u64 + 1) as usize;
        format!("{}::{}", groups[..cut].join(":"), groups[cut..].join(":"))
    }

    fn labels(&mut self) -> String {
        let number = *self.of(&[&1, &1, &2, &3, &5, &15, &16, &17, &18]);
        let mut words = Vec::new();
        for _ in 0..number {
            let word = match self.number(0, 20) {
                0..6 => 0x1000a,
                6..12 => self.number(1, 1 << 32),
                12..16 => self.number(1, 512),
                16..19 => 1,
                _ => 0,
            };
            words.push(match self.number(0, 4) {
                0 => format!("{word:x}"),
                1 => format!("{word:X}"),
                2 => format!("{word:05x}"),
                _ => format!("{word:08x}"),
            });
        }
        let end = self.of(&[
            "",
            "",
            "",
            "",
            "",
            "",
            ",",
            " ",
            ",x",
            "g",
            ", 1",
            "123456789",
        ]);
        words.join(",") + end
    }

    fn mix(&mut self) -> String {
        let number = *self.of(&[&1, &2, &3, &3, &4, &19, &20, &21]);
        let mut pairs = Vec::new();
        for _ in 0..number {
            let size = *self.of(&[
                &0,
                &1,
                &40,
                &60,
                &64,
                &576,
                &1500,
                &1514,
                &9000,
                &9_999_999_999,
                &4_294_967_346u64,
            ]);
            let weight = *self.of(&[&1, &2, &7, &100, &1, &9_999_999_999u64]);
            let weight = if self.now(3) { 0 } else { weight };
            pairs.push(match self.number(0, 40) {
                0 => format!("{size} {weight}"),
                1 => format!("{size},{weight},"),
                2 => format!("{size},,{weight}"),
                3 => format!(" {size},{weight}"),
                _ => format!("{size},{weight}"),
            });
        }
        let end = self.of(&["", "", "", "", "", "", " ", ",", "x", "  ", ",1"]);
        pairs.join(" ") + end
    }

    fn argument(&mut self, command: &str) -> String {
        match command {
            "vlan_p" | "vlan_cfi" | "svlan_p" | "svlan_cfi" | "clone_skb" | "burst" => {
                self.below(9)
            }
            "vlan_id" | "svlan_id" => self.below(4200),
            "dst" | "dst_min" | "dst_max" | "src_min" | "src_max" => self.of(IPV4).to_owned(),
            "dst6" | "src6" | "dst6_min" | "dst6_max" => self.ipv6(),
            "dst_mac" | "src_mac" => self.of(MACS).to_owned(),
            "flag" => self.of(&["", "", "", "!", "!", "!!", "! "]).to_owned() + self.of(FLAGS),
            "mpls" => self.labels(),
            "imix_weights" => self.mix(),
            "tos" | "traffic_class" if self.now(50) => format!("{:02x}", self.number(0, 256)),
            "tos" | "traffic_class" => self.of(BYTES).to_owned(),
            "xmit_mode" => self.of(MODES).to_owned(),
            "node" => self.of(NODES).to_owned(),
            _ => self.any_number(),
        }
    }

    /// One write to a device file.
    fn command(&mut self) -> Vec<u8> {
        let latin = |text: &str| text.chars().map(|c| c as u8).collect::<Vec<_>>();
        if self.now(5) {
            let argument = self.of(&["\n", " 5\n", " 02:00:00:00:00:03\n", ""]);
            return latin(&(self.of(STRANGE).to_owned() + argument));
        }
        let command = if self.now(50) {
            self.of(NUMERIC)
        } else {
            self.of(OTHER)
        };
        let before = self.of(&["", "", "", "", "", "", "", "", " ", "\t", "\"", "=", " \n"]);
        let between = self.of(&[
            " ", " ", " ", " ", " ", " ", "=", " = ", "\t", "  ", "\" \"", "\r\n",
        ]);
        let end = self.of(&[
            "\n",
            "\n",
            "\n",
            "\n",
            "",
            "\0",
            "\r\n",
            "\"\n",
            "\njunk 5\n",
            " \n",
        ]);
        latin(&format!(
            "{before}{command}{between}{}{end}",
            self.argument(command)
        ))
    }
}

fn write(steps: &mut Vec<Step>, file: &str, text: impl Display) {
    steps.push(Step::Write {
        file: file.to_owned(),
        bytes: text.to_string().into_bytes(),
    });
}

fn read(steps: &mut Vec<Step>, file: &str) {
    steps.push(Step::Read {
        file: file.to_owned(),
    });
}

/// New devices, each with several commands and a read after each command.
pub(crate) fn commands(draw: &mut Draw, devices: usize) -> Vec<Step> {
    let mut steps = vec![Step::Fresh];
    for number in 0..devices {
        let device = format!("{}@{number}", draw.of(&["eth0", "eth0", "eth0", "va"]));
        steps.push(Step::Sequence);
        let thread = format!("kpktgend_{}", draw.number(0, 2));
        write(&mut steps, &thread, format_args!("add_device {device}\n"));
        read(&mut steps, &device);
        for _ in 0..draw.number(10, 26) {
            let bytes = draw.command();
            steps.push(Step::Write {
                file: device.clone(),
                bytes,
            });
            read(&mut steps, &device);
        }
    }
    steps
}

/// Writes to the files of threads and to `pgctrl`.
pub(crate) fn orders(draw: &mut Draw, number: usize) -> Vec<Step> {
    const DEVICES: &[&str] = &[
        "eth0",
        "eth0@0",
        "eth0@b",
        "va",
        "va@0",
        "lo",
        "nosuch",
        "",
        "dn",
        "@",
        "eth0@",
        "eth0@0@1",
        "\"eth0@q\"",
        "eth0@123456789012345678901234567890",
        "ETH0",
        "eth0 x",
        "=va@9",
        "eth0@/",
    ];
    const THREAD: &[&str] = &[
        "rem_device_all",
        "max_before_softirq 10000",
        "max_before_softirq",
        "bogus",
        "count 5",
        "add_devic eth0",
        "add_device_ eth0",
        "rem_device_all x",
        "start",
        "pgset",
        "=\"rem_device_all",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    ];
    const CONTROL: &[&str] = &[
        "stop",
        "stop\n",
        "bogus\n",
        "stop \n",
        "stop\n\n",
        "reset\n",
        "START\n",
        " start\n",
        "stop\0",
        "stop\n\0",
        "rx\n",
        "inject\n",
        "\n",
        "reset x\n",
        "=stop\n",
    ];
    // Previous answers of threads remain.
    let mut steps = vec![Step::Sequence];
    for thread in ["kpktgend_0", "kpktgend_1"] {
        write(&mut steps, thread, "max_before_softirq 1\n");
    }
    for index in 0..number {
        if index % 8 == 0 {
            steps.extend([Step::Fresh, Step::Sequence]);
        }
        let thread = draw.of(&["kpktgend_0", "kpktgend_1"]);
        let end = draw.of(&["\n", "\n", "\n", "", "\0", "\nx\n"]);
        match draw.number(0, 10) {
            0 => write(&mut steps, "pgctrl", draw.of(CONTROL)),
            1..4 => write(&mut steps, thread, format_args!("{}{end}", draw.of(THREAD))),
            _ => write(
                &mut steps,
                thread,
                format_args!("add_device {}{end}", draw.of(DEVICES)),
            ),
        }
        for file in ["kpktgend_0", "kpktgend_1", "pgctrl"] {
            read(&mut steps, file);
        }
    }
    steps
}

/// Settings of a device to run; `drawn` adds the flags for random fields.
fn settings(draw: &mut Draw, drawn: bool) -> Vec<String> {
    let mut all = Vec::new();
    macro_rules! put {
        ($percent:expr, $($text:tt)*) => {
            if draw.now($percent) { let text = format!($($text)*); all.push(text); }
        };
    }
    let often = if drawn { 80 } else { 40 };
    let ipv6 = draw.now(20);
    let size = *draw.of(&[&42, &57, &58, &60, &61, &64, &78, &100, &200u64]);
    let mix = drawn && draw.now(25);
    if draw.now(50) || mix {
        put!(90, "pkt_size {size}");
    } else {
        put!(100, "min_pkt_size {size}");
        put!(100, "max_pkt_size {}", size + draw.number(0, 12));
    }
    if mix {
        let entries: Vec<_> = (0..draw.number(1, 6))
            .map(|_| format!("{},{}", draw.number(40, 300), draw.number(1, 12)))
            .collect();
        put!(100, "imix_weights {}", entries.join(" "));
    }
    put!(25, "clone_skb {}", draw.number(0, 4));
    put!(25, "burst {}", draw.number(0, 5));
    put!(100, "count {}", draw.of(&[&1, &3, &8, &13, &20, &30u64]));
    for field in ["udp_src", "udp_dst"] {
        put!(often, "{field}_min {}", draw.number(0, 20));
        put!(often, "{field}_max {}", draw.number(5, 30));
    }
    put!(10, "udp_dst_max 65535");
    for field in ["src_mac_count", "dst_mac_count"] {
        put!(often, "{field} {}", draw.number(0, 6));
    }
    put!(
        50,
        "src_mac 02:00:00:{}:ff:{:02x}",
        draw.of(&["00", "ff"]),
        draw.number(250, 256)
    );
    let end = draw.of(&[
        "02:00:00:00:00:fe",
        "ff:ff:ff:ff:ff:fe",
        "02:00:00:00:00:02",
    ]);
    put!(100, "dst_mac {end}");
    if ipv6 {
        put!(80, "src6 2001:db8::{}", draw.number(1, 9));
        put!(80, "dst6 2001:db8::{}", draw.number(1, 9));
        if draw.now(if drawn { 60 } else { 30 }) {
            let low = format!("2001:db8::{:x}", draw.number(1, 0xffff));
            put!(100, "dst6_min {low}");
            if drawn {
                put!(
                    100,
                    "dst6_max 2001:db8::{}",
                    draw.of(&["ffff", "ffff:ffff:ffff:ffff", "ff00:ffff"])
                );
            } else {
                put!(100, "dst6_max {low}");
            }
        }
        put!(40, "traffic_class {:02x}", draw.number(0, 256));
    } else {
        put!(
            90,
            "dst_min 10.0.{}.{}",
            draw.number(0, 2),
            draw.number(250, 256)
        );
        put!(
            often,
            "dst_max 10.0.{}.{}",
            draw.number(1, 4),
            draw.number(0, 256)
        );
        put!(often, "src_min 10.1.0.{}", draw.number(250, 256));
        put!(often, "src_max 10.1.1.{}", draw.number(0, 9));
        put!(30, "tos {:02x}", draw.number(0, 256));
        if draw.now(40) {
            put!(100, "flows {}", draw.number(1, 5));
            put!(100, "flowlen {}", draw.number(0, 5));
            put!(if drawn { 40 } else { 100 }, "flag FLOW_SEQ");
        }
    }
    if draw.now(70) {
        put!(
            if drawn { 60 } else { 40 },
            "vlan_id {}",
            draw.number(0, 4096)
        );
        put!(50, "vlan_p {}", draw.number(0, 8));
        put!(40, "svlan_id {}", draw.number(0, 4096));
        put!(40, "svlan_cfi {}", draw.number(0, 2));
    } else {
        let words: Vec<_> = (0..draw.number(1, 4))
            .map(|_| format!("{:08x}", draw.number(1, 1 << 32)))
            .collect();
        put!(100, "mpls {}", words.join(","));
        if !drawn {
            put!(100, "flag !MPLS_RND");
        }
    }
    put!(40, "flag UDPCSUM");
    put!(60, "flag NO_TIMESTAMP");
    put!(15, "flag !SHARED");
    put!(20, "queue_map_max {}", draw.number(0, 4));
    put!(20, "queue_map_min {}", draw.number(0, 3));
    put!(10, "flag QUEUE_MAP_CPU");
    put!(10, "frags {}", draw.number(0, 30));
    put!(10, "delay 1000");
    put!(10, "clear_counters");
    put!(3, "pkt_size 1600");
    if drawn {
        for flag in [
            "IPSRC_RND",
            "IPDST_RND",
            "TXSIZE_RND",
            "UDPSRC_RND",
            "UDPDST_RND",
            "MACSRC_RND",
            "MACDST_RND",
            "VID_RND",
            "SVID_RND",
            "MPLS_RND",
            "QUEUE_MAP_RND",
        ] {
            put!(45, "flag {flag}");
        }
    }
    all
}

/// Devices that run once or twice.
pub(crate) fn runs(draw: &mut Draw, devices: usize, drawn: bool) -> Vec<Step> {
    let mut steps = Vec::new();
    for _ in 0..devices {
        steps.extend([Step::Fresh, Step::Sequence]);
        // The veth has four queues; its frames are not captured.
        let device = draw.of(&["eth0", "eth0", "eth0", "eth0", "eth0@7", "vq"]);
        write(
            &mut steps,
            "kpktgend_0",
            format_args!("add_device {device}\n"),
        );
        for setting in settings(draw, drawn) {
            // A veth never accepts frames above the MTU, so the run would not end.
            if device == "vq" && setting == "pkt_size 1600" {
                continue;
            }
            write(&mut steps, device, format_args!("{setting}\n"));
        }
        read(&mut steps, device);
        for again in [false, true] {
            if again && draw.now(50) {
                break;
            }
            if again && !drawn {
                for _ in 0..3 {
                    let all = settings(draw, false);
                    let one = all[draw.number(0, all.len() as u64) as usize].clone();
                    if device == "vq" && one == "pkt_size 1600" {
                        continue;
                    }
                    write(&mut steps, device, format_args!("{one}\n"));
                    read(&mut steps, device);
                }
            }
            steps.push(Step::Run);
            read(&mut steps, device);
        }
    }
    steps
}

/// Known differences between the kernel and the folder, once each.
pub(crate) fn departures() -> Vec<Step> {
    let mut steps = Vec::new();
    let mut device = |name: &str, before: &[&str], after: &[&str]| {
        steps.extend([Step::Fresh, Step::Sequence]);
        write(
            &mut steps,
            "kpktgend_0",
            format_args!("add_device {name}\n"),
        );
        for part in [before, after] {
            for command in part {
                write(&mut steps, name, format_args!("{command}\n"));
                read(&mut steps, name);
            }
            if name == "eth0" {
                steps.push(Step::Run);
                read(&mut steps, name);
            }
        }
    };
    device("eth0", &["count 20", "imix_weights 64,7 100,4 200,1"], &[]);
    device(
        "eth0",
        &["count 20", "imix_weights 64,1 100,1 200,1000"],
        &[],
    );
    device(
        "eth0",
        &["count 5", "src_mac 02:00:00:00:00:07", "src_mac_count 3"],
        &["src_mac_count 0"],
    );
    device(
        "eth0",
        &[
            "count 4",
            "dst_min 10.0.0.1",
            "dst_max 10.0.0.9",
            "flows 2",
            "flowlen 3",
            "flag FLOW_SEQ",
        ],
        &["dst_min 10.9.0.1", "dst_max 10.9.0.9"],
    );
    device("eth0", &["count 2", "pkt_size 1600"], &[]);
    device(
        "va",
        &["pkt_size 100", "count 1", "pkt_size 100"],
        &["max_pkt_size 200", "pkt_size 100"],
    );
    device("va@1", &["count 1", "pkt_size 2147483647", "rate 9"], &[]);
    for command in [
        "ipg 5",
        "dstmac 02:00:00:00:00:02",
        "config 1",
        "flag NODE_ALLOC",
        "clone_skb 2",
    ] {
        device("va@2", &["count 1", command], &[]);
    }
    // The result of the next write depends on the memory behind it in the kernel. The write after that has
    // a NUL and is therefore reproducible.
    let long = "dst6 2001:db8:1111:2222:3333:4444:5555:6666";
    device("eth0@debug", &[long, "debug 1", "count 5"], &["debug 0\0"]);
    steps
}
