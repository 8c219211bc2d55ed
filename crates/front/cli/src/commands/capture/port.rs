//! Options for capture ports, rings and readers.

use anyhow::{Result, bail};
use clap::Args;
use wb_machine::{
    Namespace,
    link::{Link, LinkKind, links},
};
use wb_model::{Driver, Locator, PortPlan, capture::CaptureJob, units::Span};
use wb_options::{Opt, Typed, options};

use crate::args::{any_port, count_in};

/// Options for the receiving side.
#[derive(Args, Debug)]
#[command(next_help_heading = "Ports")]
pub(crate) struct PortArgs {
    /// Port to capture from, or its number in the list of -D; repeatable; any: all interfaces that are up. xdp:IF
    /// hides the captured frames from the host [default: the first of -D that is up].
    #[arg(short = 'i', long = "interface", value_name = "PORT")]
    pub(crate) interfaces: Vec<Locator>,
    /// Receive ring in KiB, as in tcpdump [default: as --ring].
    #[arg(short = 'B', long, value_name = "KIB")]
    buffer_size: Option<u64>,
    /// Receive ring per reader, overriding the size derived from --stall: MiB, or 512KiB, 2GiB, 262144B.
    #[arg(long, value_name = "SIZE", conflicts_with = "buffer_size", value_parser = ring_size)]
    ring: Option<u64>,
    /// Size of a ring block in bytes, a power of two from 4096; also 64KiB [default: 1 MiB].
    #[arg(long, value_name = "BYTES", value_parser = block_size, conflicts_with = "xdp")]
    block_size: Option<u64>,
    #[command(flatten)]
    readers: Typed<Readers>,
    /// Deliver frames at once; as --block-timeout 1ms.
    #[arg(long, conflicts_with = "block_timeout")]
    immediate_mode: bool,
    /// Number of readers per port.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count_in::<u32>(1..=64))]
    threads: u32,
    /// CPUs for the readers: 2,3 or 2-5 [default: chosen by the system].
    #[arg(long, visible_alias = "cpu", value_name = "LIST")]
    cpus: Option<String>,
    /// off: disable GRO, LRO, TSO and GSO during the capture, so that no segments are merged.
    #[arg(long, value_name = "off", value_parser = ["off"])]
    offloads: Option<String>,
    /// Receive by AF_XDP: faster, but the host does not see the captured frames.
    #[arg(long)]
    pub(crate) xdp: bool,
    /// Receive queues for AF_XDP: 0,2 or 0-3; the host receives the frames of the other queues [default: all].
    #[arg(long, value_name = "LIST")]
    queues: Option<String>,
    #[command(flatten)]
    memory: Typed<Memory>,
}

options! {
    /// Readers of the ports.
    Readers: CaptureJob = CaptureJob::default(), "Ports", [
        Opt::new("stall", "TIME"),
        Opt::new("expect", "PPS").key("expect_pps"),
        Opt::new("block-timeout", "TIME"),
        Opt::flag("single-flow"),
        Opt::flag("busy"),
        Opt::flag("rt").key("realtime"),
    ]
}

options! {
    /// Memory of AF_XDP.
    Memory: PortPlan = any_port(), "Ports", [
        Opt::new("xdp-ring", "SLOTS"),
        Opt::new("xdp-fill", "SLOTS"),
        Opt::new("xdp-chunk", "BYTES"),
    ]
}

/// Pseudo device for all interfaces, which has a number in the list.
const ANY: &str = "any";

/// Returns the interfaces in tcpdump's numbering, from 1; None stands for all interfaces.
///
/// Order as in libpcap (pcap.c: get_figure_of_merit): interfaces that are up and connected, the pseudo device, the
/// loopback device, then interfaces that are not connected or down.
pub(crate) fn listed(namespace: &Namespace) -> Result<Vec<Option<Link>>> {
    let merit = |link: &Option<Link>| match link {
        None => (false, false, false, true),
        Some(link) => (
            !(link.up && link.carrier),
            !link.up,
            matches!(link.kind, LinkKind::Loopback),
            false,
        ),
    };
    let mut list: Vec<_> = links(namespace)?.into_iter().map(Some).collect();
    list.push(None);
    list.sort_by_key(merit);
    Ok(list)
}

/// Returns the output of -D.
pub(crate) fn list() -> Result<String> {
    let mut text = String::new();
    for (number, link) in (1..).zip(listed(&Namespace::current()?)?) {
        text += &match link {
            None => format!("{number}.{ANY} (all interfaces that are up)\n"),
            Some(link) => {
                let state = match (link.up, link.carrier) {
                    (true, true) => "up, running",
                    (true, false) => "up, no carrier",
                    _ => "down",
                };
                format!("{number}.{} ({}) [{state}]\n", link.name, link.kind)
            }
        };
    }
    Ok(text)
}

fn namespace(locator: &Locator) -> Result<Namespace> {
    Ok(match &locator.node {
        Some(node) => Namespace::named(node)?,
        None => Namespace::current()?,
    })
}

/// Returns the interface that tcpdump uses without -i.
fn first_up() -> Result<Locator> {
    let listed = listed(&Namespace::current()?)?;
    let name = match listed.into_iter().flatten().find(|link| link.up) {
        Some(link) => link.name,
        None => bail!("no interface is up; list them with -D, choose one with -i"),
    };
    Ok(name.parse()?)
}

/// Returns the interface with this name, or else with this number.
fn numbered(locator: &Locator, number: usize) -> Result<Locator> {
    let listed = listed(&namespace(locator)?)?;
    if listed
        .iter()
        .flatten()
        .any(|link| link.name == locator.name)
    {
        return Ok(locator.clone());
    }
    match number.checked_sub(1).and_then(|at| listed.get(at)) {
        Some(Some(link)) => Ok(Locator {
            name: link.name.clone(),
            ..locator.clone()
        }),
        Some(None) => bail!("-i {number}: stands for all interfaces; use -i {ANY}"),
        None => bail!(
            "-i {number}: no interface has this name or number; -D lists {}",
            listed.len()
        ),
    }
}

/// Total size of the receive rings if frames are printed, in bytes. No terminal sustains more for long, and frames
/// left in the rings at the end must still be printed.
const PRINTING_RING: u64 = 64 << 20;

const SIZES: &str = "expected a size such as 64 (MiB), 512KiB, 2MiB, 1GiB or 262144B";

/// Parses a number with a binary unit, or in units of `unit` bytes.
fn size(text: &str, unit: u64) -> Option<u64> {
    let units = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("B", 1),
    ];
    let (number, unit) = units
        .iter()
        .find_map(|(name, bytes)| Some((text.strip_suffix(name)?, *bytes)))
        .unwrap_or((text, unit));
    let number: u64 = number.parse().ok()?;
    number.checked_mul(unit).filter(|bytes| *bytes > 0)
}

fn ring_size(text: &str) -> Result<u64, String> {
    size(text, 1 << 20).ok_or_else(|| SIZES.to_owned())
}

fn block_size(text: &str) -> Result<u64, String> {
    size(text, 1)
        .filter(|bytes| bytes.is_power_of_two() && *bytes >= 4096)
        .ok_or_else(|| {
            "must be a power of two, at least 4096 bytes, such as 65536 or 64KiB".to_owned()
        })
}

impl PortArgs {
    /// Returns the interfaces, with notes on the choice. `any` becomes all interfaces that are up and carry Ethernet
    /// frames, a number the interface in the list of -D, and no option the first interface of the list.
    pub(crate) fn locators(&self) -> Result<(Vec<Locator>, Vec<String>)> {
        let (mut locators, mut notes) = (Vec::new(), Vec::new());
        if self.interfaces.is_empty() {
            locators.push(first_up()?);
        }
        for locator in &self.interfaces {
            locator.check_local().map_err(anyhow::Error::msg)?;
            if !locator.is_interface() {
                locators.push(locator.clone());
            } else if locator.name == ANY {
                self.all(locator, &mut locators, &mut notes)?;
            } else if let Ok(number) = locator.name.parse::<usize>() {
                locators.push(numbered(locator, number)?);
            } else {
                locators.push(locator.clone());
            }
        }
        Ok((locators, notes))
    }

    fn all(
        &self,
        any: &Locator,
        locators: &mut Vec<Locator>,
        notes: &mut Vec<String>,
    ) -> Result<()> {
        if self.xdp || any.driver == Some(Driver::Xdp) {
            bail!(
                "-i any: AF_XDP would take the traffic of all interfaces from the host; name the interfaces"
            );
        }
        let before = locators.len();
        for link in links(&namespace(any)?)? {
            let loopback = matches!(link.kind, LinkKind::Loopback);
            if !link.up {
                notes.push(format!("-i any: skipping {}: it is down", link.name));
            } else if !link.ethernet && !loopback {
                notes.push(format!(
                    "-i any: skipping {}: it does not carry Ethernet frames",
                    link.name
                ));
            } else {
                locators.push(Locator {
                    name: link.name,
                    ..any.clone()
                });
            }
        }
        if locators.len() == before {
            bail!("-i any: no interface is up");
        }
        Ok(())
    }

    /// Returns the ports of the plan; `prints`: frames are printed and go into no file.
    pub(crate) fn ports(&self, locators: Vec<Locator>, prints: bool) -> Result<Vec<PortPlan>> {
        let list = |option: &str, what: &str, text: &Option<String>| match text {
            None => Ok(Vec::new()),
            Some(text) => wb_machine::cpu::parse_list(text).ok_or_else(|| {
                anyhow::anyhow!(
                    "{option}: expected a list of {what} such as 2,3 or 2-5, got {text:?}"
                )
            }),
        };
        let mut cpus = list("--cpus", "CPUs", &self.cpus)?;
        let queues = list("--queues", "receive queues", &self.queues)?;
        let wanted = self.threads as usize * locators.len();
        let expect = self.readers.value().expect_pps;
        if !cpus.is_empty() && cpus.len() < wanted {
            bail!(
                "--cpus: {wanted} readers need {wanted} CPUs, got {}",
                cpus.len()
            );
        }
        let mut ports = Vec::new();
        for (number, mut locator) in (1..).zip(locators) {
            let interface = locator.is_interface();
            if self.xdp && interface {
                locator.driver = Some(Driver::Xdp);
            }
            let taken = cpus.len().min(self.threads as usize);
            ports.push(PortPlan {
                workers: if interface { self.threads } else { 1 },
                cpus: cpus.drain(..taken).collect(),
                ring_bytes: match (self.buffer_size, self.ring) {
                    (Some(kib), _) => kib << 10,
                    (None, Some(bytes)) => bytes,
                    (None, None) if prints && expect.is_none() => {
                        PRINTING_RING / wanted.max(1) as u64
                    }
                    (None, None) => 0,
                },
                block_bytes: self.block_size.unwrap_or(0),
                queues: queues.clone(),
                ..self
                    .memory
                    .over(&PortPlan::new(format!("port {number}"), locator))
            });
        }
        Ok(ports)
    }

    /// Applies the reader options to the job.
    pub(crate) fn complete(&self, job: &mut CaptureJob) {
        *job = self.readers.over(job);
        if self.immediate_mode {
            job.block_timeout = Span::from_millis(1);
        }
        job.offloads_off = self.offloads.is_some();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_mib_unless_they_say_otherwise() {
        for (text, bytes) in [
            ("2", 2 << 20),
            ("2MiB", 2 << 20),
            ("512KiB", 512 << 10),
            ("1GiB", 1 << 30),
            ("262144B", 262_144),
        ] {
            assert_eq!(ring_size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "0", "B", "-1", "2 MiB", "2mb", "99999999999999GiB"] {
            assert!(ring_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn blocks_are_powers_of_two_from_a_page_on() {
        assert_eq!(block_size("65536"), Ok(65_536));
        assert_eq!(block_size("64KiB"), Ok(65_536));
        for bad in ["2048", "65537", "0", "x"] {
            assert!(block_size(bad).is_err(), "{bad}");
        }
    }
}
