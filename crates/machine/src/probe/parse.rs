//! Parses the output of the commands into counters.

use std::collections::BTreeMap;

/// Counter or gauge, without the probe's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) name: String,
    pub(super) value: u64,
    /// True for a value that increases and decreases.
    pub(super) gauge: bool,
}

type Values = Result<Vec<Value>, String>;

fn value(name: impl Into<String>, value: u64, gauge: bool) -> Value {
    Value {
        name: name.into(),
        value,
        gauge,
    }
}

fn counters(sums: BTreeMap<String, u64>) -> Vec<Value> {
    sums.into_iter()
        .map(|(name, n)| value(name, n, false))
        .collect()
}

fn number(word: &str, what: &str) -> Result<u64, String> {
    word.parse()
        .map_err(|_| format!("{what}: {word:?} is not an integer"))
}

/// Columns of `ipvsadm -ln --stats`.
const IPVS: [&str; 5] = [
    "connections",
    "in_packets",
    "out_packets",
    "in_bytes",
    "out_bytes",
];

/// `ipvsadm -ln --stats --exact`: sums over all services. The lines of real servers (`->`) are included in their
/// services.
pub(super) fn ipvs(text: &str) -> Values {
    if !text.contains("Conns") {
        return Err(
            "no column Conns; expected the output of ipvsadm -ln --stats --exact".to_owned(),
        );
    }
    let mut sums: BTreeMap<String, u64> = IPVS.map(|name| (name.to_owned(), 0)).into();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if !matches!(words.first(), Some(&("TCP" | "UDP" | "SCTP" | "FWM"))) {
            continue;
        }
        // Firewall marks have an additional word for the family.
        let first = if words.get(2) == Some(&"IPv6") { 3 } else { 2 };
        let numbers = words
            .get(first..first + 5)
            .ok_or_else(|| format!("{line:?} is too short"))?;
        for (name, word) in IPVS.iter().zip(numbers) {
            let n = number(word, name).map_err(|e| format!("{e}; use --exact"))?;
            *sums.entry((*name).to_owned()).or_default() += n;
        }
    }
    Ok(counters(sums))
}

/// `dpip link show -s`: for each port, lines of names above lines of numbers.
pub(super) fn dpvs(text: &str) -> Values {
    let mut found = Vec::new();
    let mut port: Option<&str> = None;
    let mut names: Vec<&str> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        // "1: dpdk0: socket 0 mtu 1500 rx-queue 16 tx-queue 16"
        if let [index, name, ..] = words.as_slice()
            && index
                .strip_suffix(':')
                .is_some_and(|n| n.parse::<u32>().is_ok())
        {
            port = name.strip_suffix(':');
            names.clear();
            continue;
        }
        let Some(port) = port else { continue };
        let numbers: Vec<u64> = words.iter().filter_map(|w| w.parse().ok()).collect();
        if !numbers.is_empty() && numbers.len() == words.len() && numbers.len() == names.len() {
            let of_port = names.iter().zip(numbers);
            found.extend(
                of_port
                    .map(|(name, n)| value(format!("{port}.{name}"), n, name.starts_with("mbuf"))),
            );
        }
        names = words;
    }
    match found.is_empty() {
        true => Err("no port counters; expected the output of dpip link show -s".to_owned()),
        false => Ok(found),
    }
}

/// Last values of each CPU's counters, and the counts from before they wrapped.
#[derive(Debug, Default)]
pub(super) struct Wraps(BTreeMap<(usize, String), (u32, u64)>);

impl Wraps {
    /// Continues the counter of a CPU beyond 32 bits. A decrease is a wrap only if the counter was in the upper half;
    /// otherwise the counter was reset.
    fn continued(&mut self, cpu: usize, name: &str, now: u32) -> u64 {
        let (last, before) = self.0.entry((cpu, name.to_owned())).or_insert((now, 0));
        if now < *last {
            *before = if *last >= 1 << 31 {
                *before + (1 << 32)
            } else {
                0
            };
        }
        *last = now;
        *before + u64::from(now)
    }
}

/// `nf_conntrack_count` and `nf_conntrack_max`, if present, then either the table of `/proc/net/stat/nf_conntrack` (a
/// line of names, and a line of hexadecimal numbers for each CPU) or the output of `conntrack -S` (a line of
/// `name=number` for each CPU).
pub(super) fn conntrack(text: &str, wraps: &mut Wraps) -> Values {
    let mut lines = text.lines().peekable();
    let mut found = Vec::new();
    for what in ["entries", "max"] {
        let n = lines.peek().and_then(|line| line.trim().parse().ok());
        if let Some(n) = n {
            found.push(value(what, n, true));
            lines.next();
        }
    }
    let by_name = lines.peek().is_some_and(|line| line.starts_with("cpu="));
    let names: Vec<&str> = match by_name {
        true => Vec::new(),
        false => lines
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect(),
    };
    let mut sums = BTreeMap::new();
    let mut add = |cpu, name: &str, n| {
        *sums.entry(name.to_owned()).or_default() += wraps.continued(cpu, name, n);
    };
    for (cpu, line) in lines.enumerate() {
        if by_name {
            for word in line.split_whitespace() {
                let Some((name, n)) = word.split_once('=') else {
                    return Err(format!("expected name=number, got {word:?}"));
                };
                // Older versions of the program have no names for newer counters.
                if !matches!(name, "cpu" | "(null)") {
                    let n = n
                        .parse()
                        .map_err(|_| format!("{word:?} is not a 32-bit number"))?;
                    add(cpu, name, n);
                }
            }
            continue;
        }
        for (name, word) in names.iter().zip(line.split_whitespace()) {
            let n = u32::from_str_radix(word, 16)
                .map_err(|_| format!("{name}: {word:?} is not a hexadecimal number"))?;
            // The first column repeats the count on each line.
            if *name != "entries" {
                add(cpu, name, n);
            }
        }
    }
    if found.is_empty() && sums.is_empty() {
        return Err(
            "expected the contents of /proc/net/stat/nf_conntrack or the output of conntrack -S"
                .to_owned(),
        );
    }
    found.extend(counters(sums));
    Ok(found)
}

/// Columns of `/proc/net/dev`.
const NETDEV: [&str; 16] = [
    "rx_bytes",
    "rx_packets",
    "rx_errors",
    "rx_dropped",
    "rx_fifo",
    "rx_frame",
    "rx_compressed",
    "rx_multicast",
    "tx_bytes",
    "tx_packets",
    "tx_errors",
    "tx_dropped",
    "tx_fifo",
    "tx_collisions",
    "tx_carrier",
    "tx_compressed",
];

/// `/proc/net/dev`: all interfaces except `lo`, or the requested ones.
pub(super) fn netdev(text: &str, interfaces: &[String]) -> Values {
    let mut found = Vec::new();
    for line in text.lines().skip(2) {
        let Some((name, rest)) = line.split_once(':') else {
            continue;
        };
        let name = name.trim();
        let wanted = match interfaces {
            [] => name != "lo",
            some => some.iter().any(|i| i == name),
        };
        if !wanted {
            continue;
        }
        for (column, word) in NETDEV.iter().zip(rest.split_whitespace()) {
            found.push(value(
                format!("{name}.{column}"),
                number(word, column)?,
                false,
            ));
        }
    }
    let missing = interfaces
        .iter()
        .find(|i| !found.iter().any(|v| v.name.starts_with(&format!("{i}."))));
    match missing {
        Some(name) => Err(format!("no interface {name}")),
        None => Ok(found),
    }
}

/// `ethtool -S`, with a line `interface NAME` before each interface.
pub(super) fn ethtool(text: &str) -> Values {
    let mut found = Vec::new();
    let mut interface = "";
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("interface ") {
            interface = name.trim();
        } else if let Some((name, word)) = line.rsplit_once(':')
            && let Ok(n) = word.trim().parse()
        {
            let name: String = name.trim().replace(' ', "_");
            found.push(value(format!("{interface}.{name}"), n, false));
        }
    }
    match found.is_empty() {
        true => Err("the driver has no counters".to_owned()),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(values: &[Value], name: &str) -> u64 {
        let found = values.iter().find(|v| v.name == name);
        found
            .unwrap_or_else(|| panic!("no {name}: {values:?}"))
            .value
    }

    const IPVS_TEXT: &str = "\
IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port               Conns   InPkts  OutPkts  InBytes OutBytes
  -> RemoteAddress:Port
TCP  198.18.1.100:80              123456789  1000000   900000 64000000 57600000
  -> 198.19.2.1:80                 61728395   500000   450000 32000000 28800000
  -> 198.19.2.2:80                 61728394   500000   450000 32000000 28800000
UDP  198.18.1.100:80                     11       22       33       44       55
";

    #[test]
    fn services_are_added_and_their_servers_are_not() {
        let values = ipvs(IPVS_TEXT).unwrap();
        assert_eq!(get(&values, "connections"), 123_456_800);
        assert_eq!(get(&values, "in_packets"), 1_000_022);
        assert_eq!(get(&values, "out_bytes"), 57_600_055);
        let marks = format!(
            "{IPVS_TEXT}FWM  7            1 1 1 1 1\n  -> 198.19.2.1:0  1 1 1 1 1\n\
             FWM  8 IPv6       20 60 50 7400 6600\n  -> [2001:db8::1]:0 20 60 50 7400 6600\n\
             TCP  [2001:db8::100]:443  1 2 3 4 5\n"
        );
        let values = ipvs(&marks).unwrap();
        assert_eq!(get(&values, "connections"), 123_456_822);
        assert_eq!(get(&values, "out_bytes"), 57_606_661);
        let none = "Prot LocalAddress:Port Conns InPkts OutPkts InBytes OutBytes\n";
        assert_eq!(get(&ipvs(none).unwrap(), "connections"), 0);
    }

    #[test]
    fn rounded_numbers_are_refused() {
        let said = ipvs(&IPVS_TEXT.replace("123456789", "    123M")).unwrap_err();
        assert!(said.contains("123M") && said.contains("--exact"), "{said}");
        assert!(ipvs("sh: ipvsadm: not found").is_err());
    }

    #[test]
    fn ports_of_dpvs() {
        let text = "\
1: dpdk0: socket 0 mtu 1500 rx-queue 16 tx-queue 16
    UP 10000 Mbps full-duplex auto-nego
    addr A0:36:9F:74:EC:F0
    ipackets            opackets            ibytes              obytes
    3539                57                  274730              5762
    ierrors             oerrors             imissed             rx_nombuf
    0                   1                   42                  0
    mbuf-avail          mbuf-inuse
    1030265             18310
2: dpdk1: socket 0 mtu 1500 rx-queue 16 tx-queue 16
    UP 10000 Mbps full-duplex auto-nego
    ipackets            opackets            ibytes              obytes
    1                   2                   3                   4
";
        let values = dpvs(text).unwrap();
        assert_eq!(get(&values, "dpdk0.ipackets"), 3539);
        assert_eq!(get(&values, "dpdk0.imissed"), 42);
        assert_eq!(get(&values, "dpdk1.obytes"), 4);
        let inuse = values
            .iter()
            .find(|v| v.name == "dpdk0.mbuf-inuse")
            .unwrap();
        assert!(inuse.gauge && inuse.value == 18_310);
        assert_eq!(values.len(), 14, "{values:?}");
        assert!(dpvs("").is_err());
    }

    #[test]
    fn connection_tracking() {
        let text = "\
1207
262144
entries  clashres found new invalid ignore delete chainlength insert insert_failed drop early_drop
000004b7  00000000 00000001 00000000 0000000a 00000000 00000000 00000000 00000000 00000002 00000003 00000000
000004b7  00000000 00000002 00000000 00000010 00000000 00000000 00000000 00000000 00000000 0000001f 00000000
";
        let values = conntrack(text, &mut Wraps::default()).unwrap();
        assert_eq!(values[0], value("entries", 1207, true));
        assert_eq!(get(&values, "max"), 262_144);
        assert_eq!(get(&values, "invalid"), 26);
        assert_eq!(get(&values, "drop"), 34);
        assert_eq!(values.iter().filter(|v| v.name == "entries").count(), 1);
        assert!(conntrack("x\n", &mut Wraps::default()).is_err());
        assert!(conntrack("", &mut Wraps::default()).is_err());

        let text = "\
cpu=0           found=0 invalid=516 insert_failed=3 drop=1 early_drop=0
cpu=10          found=2 invalid=9632 insert_failed=5 drop=3 early_drop=0 (null)=7 
";
        for text in [text.to_owned(), format!("12\n262144\n{text}")] {
            let values = conntrack(&text, &mut Wraps::default()).unwrap();
            assert_eq!(get(&values, "invalid"), 10_148);
            assert_eq!(get(&values, "drop"), 4);
            assert!(
                !values
                    .iter()
                    .any(|v| matches!(&v.name[..], "cpu" | "(null)"))
            );
        }
    }

    #[test]
    fn counters_of_connection_tracking_continue_when_they_wrap() {
        let mut wraps = Wraps::default();
        let mut drops = |first: u32, second: u32| {
            let text = format!("entries drop\n0 {first:08x}\n0 {second:08x}\n");
            get(&conntrack(&text, &mut wraps).unwrap(), "drop")
        };
        assert_eq!(drops(u32::MAX - 95, 10), u64::from(u32::MAX) - 85);
        assert_eq!(drops(104, 20), u64::from(u32::MAX) + 125);
        assert_eq!(drops(u32::MAX, 20), 2 * u64::from(u32::MAX) + 21);
        assert_eq!(drops(0, 20), 2 * u64::from(u32::MAX) + 22);
        // A decrease from the lower half is a reset.
        assert_eq!(drops(0, 5), 2 * u64::from(u32::MAX) + 7);
        assert_eq!(drops(5, 5), 2 * u64::from(u32::MAX) + 12);
    }

    #[test]
    fn interfaces_of_the_kernel() {
        let text = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     100       1    0    0    0     0          0         0      100       1    0    0    0     0       0          0
    dc:    6000     100    0    7    0     0          0         0     1200      20    0    9    0     0       0          0
";
        let values = netdev(text, &[]).unwrap();
        assert_eq!(get(&values, "dc.rx_packets"), 100);
        assert_eq!(get(&values, "dc.tx_dropped"), 9);
        assert_eq!(values.len(), 16);
        assert_eq!(netdev(text, &["lo".to_owned()]).unwrap().len(), 16);
        assert_eq!(
            netdev(text, &["d".to_owned()]).unwrap_err(),
            "no interface d"
        );
    }

    #[test]
    fn counters_of_drivers() {
        let text = "\
interface eth0
NIC statistics:
     rx_packets: 12
     rx queue 0 drops: 3
interface eth1
NIC statistics:
     rx_packets: 5
";
        let values = ethtool(text).unwrap();
        assert_eq!(get(&values, "eth0.rx_queue_0_drops"), 3);
        assert_eq!(get(&values, "eth1.rx_packets"), 5);
        assert!(ethtool("interface lo\nno stats available\n").is_err());
    }
}
