//! Counters of interfaces and CPUs, for repeated reading: one kernel request per namespace, or one per interface if
//! there are few.

use std::collections::HashMap;
use std::fs;

use wb_counters::interrupts::{self, Interrupt};
use wb_counters::softnet::{self, Softnet};
use wb_counters::{LinkCounters, LinkProperties, LinkReading};

use crate::clock::monotonic_ns;
use crate::cpu;
use crate::error::{HostError, Result};
use crate::ethtool::Ethtool;
use crate::link::{Link, LinkKind};
use crate::netlink::Netlink;
use crate::netns::Namespace;
use crate::queues::QueueStatistics;

/// Maximum number of interfaces of a namespace that are requested one by one. Above it, all are listed at once.
const ONE_BY_ONE: usize = 4;

/// Drivers that include the FCS in byte counts, against the kernel's rule: their registers count all bytes on the wire.
const COUNTS_FCS: [&str; 2] = ["tg3", "e1000e"];

/// Interfaces that are read together.
pub struct Interfaces {
    places: Vec<NamespaceInterfaces>,
}

/// Interfaces of one namespace.
struct NamespaceInterfaces {
    /// Prefix of their names: `NODE/`.
    prefix: String,
    netlink: Netlink,
    ethtool: Ethtool,
    /// Requested names, and the index of each while the interface exists; empty for all interfaces.
    wanted: Vec<(String, Option<u32>)>,
    /// Facts by index, with the name and carrier for which they were read.
    facts: HashMap<u32, (String, LinkProperties)>,
    statistics: HashMap<u32, Vec<String>>,
    /// The kernel's queue statistics, if it has them; outer `None` before the first request.
    queues: Option<Option<QueueStatistics>>,
}

impl Interfaces {
    /// Selects interfaces by namespace and name. Without a name, selects the whole namespace. An empty list selects all
    /// interfaces of the current namespace.
    ///
    /// # Errors
    /// [`HostError::UnknownInterface`], an unknown namespace, or one that cannot be entered.
    pub fn open(wanted: &[(Option<String>, Option<String>)]) -> Result<Self> {
        let mut places: Vec<NamespaceInterfaces> = Vec::new();
        let here = [(None, None)];
        for (node, name) in if wanted.is_empty() { &here } else { wanted } {
            let prefix = node.as_ref().map_or(String::new(), |n| format!("{n}/"));
            let known = places.iter().position(|place| place.prefix == prefix);
            let at = match known {
                Some(at) => at,
                None => {
                    let namespace = match node {
                        Some(node) => Namespace::named(node)?,
                        None => Namespace::current()?,
                    };
                    places.push(NamespaceInterfaces {
                        prefix,
                        netlink: Netlink::open(&namespace)?,
                        ethtool: Ethtool::open(&namespace)?,
                        wanted: Vec::new(),
                        facts: HashMap::new(),
                        statistics: HashMap::new(),
                        queues: None,
                    });
                    places.len() - 1
                }
            };
            let place = &mut places[at];
            if let Some(name) = name {
                let index = place.netlink.link(name)?.index;
                if !place.wanted.iter().any(|(_, known)| *known == Some(index)) {
                    place.wanted.push((name.clone(), Some(index)));
                }
            }
        }
        Ok(Self { places })
    }

    /// Reads all selected interfaces that exist now. A removed interface is searched by its name again. A renamed one
    /// is found by its index.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn read(&mut self) -> Result<Vec<LinkReading>> {
        let mut readings = Vec::new();
        for (n, place) in self.places.iter_mut().enumerate() {
            for (at_ns, link, counters) in place.links()? {
                let facts = place.facts_of(&link);
                readings.push(LinkReading {
                    id: (n, link.index),
                    name: format!("{}{}", place.prefix, link.name),
                    at_ns,
                    facts,
                    counters,
                });
            }
        }
        Ok(readings)
    }

    /// Driver statistics and the kernel's queue statistics (`netdev_rx_0_packets`), by the interface names of
    /// [`read`](Self::read). Interfaces that are removed or have no statistics are left out.
    pub fn statistics(&mut self) -> Vec<(String, Vec<(String, u64)>)> {
        let mut all = Vec::new();
        for place in &mut self.places {
            let known: Vec<(u32, String)> = place
                .facts
                .iter()
                .map(|(index, (name, _))| (*index, name.clone()))
                .collect();
            let mut of_queues = place.queue_statistics();
            for (index, name) in known {
                let mut values = place.statistics_of(index, &name).unwrap_or_default();
                values.extend(of_queues.remove(&index).unwrap_or_default());
                if !values.is_empty() {
                    all.push((format!("{}{name}", place.prefix), values));
                }
            }
        }
        all.sort();
        all
    }

    /// Namespaces and names of the last read.
    #[must_use]
    pub fn known(&self) -> Vec<(Namespace, String)> {
        let of = |place: &NamespaceInterfaces| {
            let names = place.facts.values().map(|(name, _)| name.clone());
            let namespace = place.netlink.namespace().clone();
            names
                .map(move |name| (namespace.clone(), name))
                .collect::<Vec<_>>()
        };
        let mut known: Vec<_> = self.places.iter().flat_map(of).collect();
        known.sort_by(|a, b| a.1.cmp(&b.1));
        known
    }
}

impl NamespaceInterfaces {
    fn links(&mut self) -> Result<Vec<(u64, Link, LinkCounters)>> {
        if self.wanted.is_empty() || self.wanted.len() > ONE_BY_ONE {
            let all = self.netlink.all_counters()?;
            // Taken with the read and not before it, because a list of thousands takes time.
            let at_ns = monotonic_ns();
            let mut found: Vec<_> = all
                .into_iter()
                .map(|(link, counters)| (at_ns, link, counters))
                .collect();
            if self.wanted.is_empty() {
                found.sort_by_key(|(_, link, _)| link.index);
                return Ok(found);
            }
            let mut kept = Vec::new();
            for (name, index) in &mut self.wanted {
                let by_index = found
                    .iter()
                    .position(|(_, link, _)| Some(link.index) == *index);
                let at =
                    by_index.or_else(|| found.iter().position(|(_, link, _)| link.name == *name));
                *index = at.map(|at| found[at].1.index);
                kept.extend(at.map(|at| found.swap_remove(at)));
            }
            return Ok(kept);
        }
        let mut kept = Vec::new();
        for (name, index) in &mut self.wanted {
            let mut found = match index {
                Some(index) => self.netlink.counters_at(*index)?,
                None => None,
            };
            if found.is_none() {
                *index = match self.netlink.link(name) {
                    Ok(link) => Some(link.index),
                    Err(HostError::UnknownInterface { .. }) => None,
                    Err(e) => return Err(e),
                };
                if let Some(index) = index {
                    found = self.netlink.counters_at(*index)?;
                }
            }
            kept.extend(found.map(|(link, counters)| (monotonic_ns(), link, counters)));
        }
        Ok(kept)
    }

    /// Facts of a link, read again after a change of name or carrier: only a link that is up has a speed.
    fn facts_of(&mut self, link: &Link) -> LinkProperties {
        let running = link.up && link.carrier;
        if let Some((name, facts)) = self.facts.get(&link.index)
            && *name == link.name
            && facts.running == running
        {
            return *facts;
        }
        let speed = self.ethtool.speed(&link.name).ok().flatten();
        let driver = self.ethtool.driver(&link.name).ok().flatten();
        let facts = LinkProperties {
            speed_bps: speed.map(|speed| speed.bits_per_second),
            // A software device never has a real speed.
            nominal: speed.is_some_and(|speed| speed.nominal) || link.kind.is_virtual(),
            half_duplex: speed.is_some_and(|speed| speed.half_duplex),
            ethernet: link.ethernet && link.kind != LinkKind::Loopback,
            counts_fcs: driver.is_some_and(|driver| COUNTS_FCS.contains(&&*driver.name)),
            running,
        };
        self.facts.insert(link.index, (link.name.clone(), facts));
        self.statistics.remove(&link.index);
        facts
    }

    fn queue_statistics(&mut self) -> HashMap<u32, Vec<(String, u64)>> {
        let namespace = self.netlink.namespace();
        let queues = self
            .queues
            .get_or_insert_with(|| QueueStatistics::open(namespace));
        let read = queues.as_mut().map(QueueStatistics::read);
        let mut all: HashMap<u32, Vec<(String, u64)>> = HashMap::new();
        for (index, name, value) in read.into_iter().flatten().flatten() {
            all.entry(index).or_default().push((name, value));
        }
        all
    }

    fn statistics_of(&mut self, index: u32, name: &str) -> Option<Vec<(String, u64)>> {
        let names = match self.statistics.entry(index) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(free) => {
                free.insert(self.ethtool.statistic_names(name).ok()?)
            }
        };
        let values = self.ethtool.statistics(name, names.len()).ok()?;
        if values.is_empty() {
            return None;
        }
        if values.len() != names.len() {
            // The number of queues has changed: read the names again.
            self.statistics.remove(&index);
            return None;
        }
        Some(names.iter().cloned().zip(values).collect())
    }
}

/// Receive statistics of each CPU of the machine; empty if the kernel does not report them.
#[must_use]
pub fn softnet() -> Vec<Softnet> {
    let text = fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
    let online = || fs::read_to_string("/sys/devices/system/cpu/online").ok();
    softnet::parse(&text, || {
        online()
            .and_then(|text| cpu::parse_list(&text))
            .unwrap_or_default()
    })
}

/// Number of retransmitted SYN segments in the network namespace of the calling thread; `None` if the kernel has no
/// such counter.
#[must_use]
pub fn repeated_syns() -> Option<u64> {
    named(
        &fs::read_to_string("/proc/thread-self/net/netstat").ok()?,
        "TcpExt:",
        "TCPSynRetrans",
    )
}

/// Counter in `/proc/net/netstat`, which has a line of names and a line of values for each group.
fn named(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(group));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    pairs.find(|(of, _)| *of == name)?.1.parse().ok()
}

/// All interrupts with their counts on each CPU; empty if the kernel does not report them.
#[must_use]
pub fn interrupts() -> Vec<Interrupt> {
    interrupts::parse(&fs::read_to_string("/proc/interrupts").unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_their_names() {
        let text =
            "TcpExt: SyncookiesSent TCPSynRetrans\nTcpExt: 1 7\nIpExt: InNoRoutes\nIpExt: 3\n";
        assert_eq!(named(text, "TcpExt:", "TCPSynRetrans"), Some(7));
        assert_eq!(named(text, "IpExt:", "InNoRoutes"), Some(3));
        assert_eq!(named(text, "TcpExt:", "InNoRoutes"), None);
        assert!(repeated_syns().is_some());
    }
    use crate::link::{VethEnd, create_veth};
    use crate::netns;

    struct Gone(String);

    impl Drop for Gone {
        fn drop(&mut self) {
            let _ = netns::delete(&self.0);
        }
    }

    #[test]
    fn loopback_is_read_without_privileges() {
        let mut all = Interfaces::open(&[]).unwrap();
        assert!(all.read().unwrap().iter().any(|r| r.name == "lo"));
        let mut one = Interfaces::open(&[(None, Some("lo".into()))]).unwrap();
        let lo = &one.read().unwrap()[0];
        assert_eq!((lo.id, &*lo.name, lo.facts.ethernet), ((0, 1), "lo", false));
        assert!(matches!(
            Interfaces::open(&[(None, Some("wb-none-such".into()))]),
            Err(HostError::UnknownInterface { .. })
        ));
        assert!(!softnet().is_empty() && !interrupts().is_empty());
    }

    #[test]
    fn an_interface_is_followed_by_its_index_and_found_again_by_its_name() {
        let name = format!("wb-host-{}-counters", std::process::id());
        let namespace = match netns::create(&name) {
            Err(e) if e.is_permission() => return wb_testing::skipped("needs root"),
            created => created.unwrap(),
        };
        let _gone = Gone(name.clone());
        let end = |name| VethEnd {
            namespace: &namespace,
            name,
            mac: None,
            queues: 1,
            mtu: None,
        };
        create_veth(&end("s0"), &end("s1")).unwrap();
        let s0 = (Some(name.clone()), Some("s0".to_owned()));
        let mut interfaces = Interfaces::open(&[s0]).unwrap();
        let names = |interfaces: &mut Interfaces| -> Vec<String> {
            let readings = interfaces.read().unwrap();
            readings.into_iter().map(|r| r.name).collect()
        };
        assert_eq!(names(&mut interfaces), [format!("{name}/s0")]);
        let statistics = interfaces.statistics();
        let of_s0 = &statistics[0].1;
        assert!(of_s0.iter().any(|(name, _)| name == "peer_ifindex"));

        let ip = |words: &str| {
            let words = words.split(' ');
            let command = std::process::Command::new("ip")
                .args(["-n", &name])
                .args(words)
                .status();
            assert!(command.unwrap().success());
        };
        ip("link set s0 name s9");
        assert_eq!(names(&mut interfaces), [format!("{name}/s9")]);
        ip("link delete s9");
        assert_eq!(names(&mut interfaces), [""; 0]);
        create_veth(&end("s0"), &end("s1")).unwrap();
        assert_eq!(names(&mut interfaces), [format!("{name}/s0")]);
    }
}
