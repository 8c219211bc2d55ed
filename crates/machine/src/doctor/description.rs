//! Description of a machine and of one interface: the facts that the rules of `doctor` judge, as plain data.
//!
//! `doctor --json --describe` writes it, so a card that is not at hand can be judged from its description alone.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cpu::{self, Irq};
use crate::error::Result;
use crate::ethtool::{Channels, Ethtool, Offload, Rings, Speed, Timestamping};
use crate::link::{LinkKind, XdpProgram};
use crate::netlink::Netlink;
use crate::netns::Namespace;
use crate::privilege;

/// Facts about a machine and, if one was asked about, an interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Description {
    /// Origin of the facts: `this machine`, or for a card that was not at hand, where they were taken from.
    pub source: String,
    /// Kernel release, as `uname -r` prints it.
    pub kernel: String,
    /// Numbers of the CPUs that are online.
    pub cpus: Vec<u32>,
    /// Number of CPUs that this process may use.
    pub usable_cpus: u32,
    /// True if this process runs as root.
    pub root: bool,
    /// The interface.
    pub interface: Option<InterfaceDescription>,
}

/// Facts about one interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct InterfaceDescription {
    /// Name in its namespace.
    pub name: String,
    /// Start of each command that acts on the interface: `ip netns exec NODE `, or empty.
    pub command_prefix: String,
    /// True in the namespace of a lab.
    pub in_lab: bool,
    /// Kind of the interface: `physical`, `veth`, `bridge`.
    pub kind: LinkKind,
    /// Name of the driver, or empty.
    pub driver: String,
    /// Bus address of the device, or empty.
    pub bus: String,
    /// True if the interface is up.
    pub up: bool,
    /// True if the interface has a link.
    pub carrier: bool,
    /// MTU, in bytes.
    pub mtu: u32,
    /// Largest MTU that the driver accepts, in bytes.
    pub max_mtu: Option<u32>,
    /// Speed of the link.
    pub speed: Option<Speed>,
    /// Channels, current and maximum.
    pub channels: Option<Channels>,
    /// Ring sizes, current and maximum.
    pub rings: Option<Rings>,
    /// Offloads that are on, by the keyword of `ethtool -K`.
    pub offloads: Vec<String>,
    /// Interrupts of the device.
    pub interrupts: Vec<Irq>,
    /// Timestamps that the device can take.
    pub timestamping: Option<Timestamping>,
    /// XDP program that is attached.
    pub xdp_program: Option<XdpProgram>,
    /// XDP abilities, as the kernel reports them.
    pub xdp: XdpAbilities,
    /// Use of the interface by a route as wide as the default route.
    pub way_out: Usage,
    /// Use of the interface by the host: an address, a route, a bridge, a VLAN.
    pub host_use: Usage,
}

/// Use of an interface by the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Usage {
    /// Not used.
    #[default]
    Unused,
    /// Used, in a sentence.
    Used(String),
    /// Unknown, with the error.
    Unknown(String),
}

/// XDP abilities of an interface. A `None` means that the kernel does not report the ability (before Linux 6.3).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct XdpAbilities {
    /// True if the driver runs XDP programs.
    pub native: Option<bool>,
    /// True if the driver has zero copy for AF_XDP.
    pub zero_copy: Option<bool>,
    /// True if the driver accepts frames from XDP programs.
    pub transmit: Option<bool>,
    /// Result of attaching a program that passes every frame, and removing it again.
    pub attach: Attach,
}

/// Result of an attempt to attach an XDP program in the driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Attach {
    /// Not tried, with the reason.
    NotTried(String),
    /// The driver accepted the program.
    Accepted,
    /// The driver refused the program, with the words of the kernel.
    Refused(String),
}

impl Default for Attach {
    fn default() -> Self {
        Self::NotTried(String::new())
    }
}

impl InterfaceDescription {
    /// True if a change to the interface could cut the host off.
    #[must_use]
    pub fn is_hosts(&self) -> bool {
        !self.in_lab && (self.host_use != Usage::Unused || self.way_out != Usage::Unused)
    }

    pub(super) fn has_on(&self, offload: Offload) -> bool {
        self.offloads.iter().any(|on| on == offload.keyword())
    }
}

/// Reads the facts about this machine and, if one is given, an interface in a namespace. XDP abilities are left empty.
///
/// # Errors
/// If there is no such interface, or its namespace cannot be entered.
pub fn describe(port: Option<(&Namespace, &str)>) -> Result<Description> {
    let cpus = cpu::online().unwrap_or_default();
    Ok(Description {
        source: "this machine".to_owned(),
        kernel: rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned(),
        usable_cpus: cpu::allowed().map_or(1, |cpus| cpus.len() as u32),
        cpus: cpus.into_iter().map(|cpu| cpu.id).collect(),
        root: privilege::is_root(),
        interface: port
            .map(|(namespace, name)| describe_interface(namespace, name))
            .transpose()?,
    })
}

fn describe_interface(namespace: &Namespace, name: &str) -> Result<InterfaceDescription> {
    let netlink = Netlink::open(namespace)?;
    let link = netlink.link(name)?;
    let ethtool = Ethtool::open(namespace)?;
    let driver = ethtool.driver(name).ok().flatten();
    let is_on = |offload: &Offload| ethtool.offload(name, *offload).ok().flatten() == Some(true);
    Ok(InterfaceDescription {
        name: name.to_owned(),
        command_prefix: namespace.command_prefix(),
        in_lab: namespace.name().is_some_and(|name| name.starts_with("wb-")),
        driver: driver.as_ref().map(|d| d.name.clone()).unwrap_or_default(),
        bus: driver.map(|d| d.bus).unwrap_or_default(),
        up: link.up,
        carrier: link.carrier,
        mtu: link.mtu,
        max_mtu: link.max_mtu,
        speed: ethtool.speed(name).ok().flatten(),
        channels: ethtool.channels(name).ok().flatten(),
        rings: ethtool.rings(name).ok().flatten(),
        offloads: Offload::ALL
            .iter()
            .filter(|offload| is_on(offload))
            .map(|offload| offload.keyword().to_owned())
            .collect(),
        interrupts: cpu::irqs(namespace, name).unwrap_or_default(),
        timestamping: ethtool.timestamping(name).ok().flatten(),
        xdp_program: link.xdp_attached,
        xdp: XdpAbilities::default(),
        way_out: usage(netlink.way_out(name).map(|way| way.map(|w| w.to_string()))),
        host_use: usage(netlink.host_use(name)),
        kind: link.kind,
    })
}

fn usage(found: Result<Option<String>>) -> Usage {
    match found {
        Ok(None) => Usage::Unused,
        Ok(Some(by)) => Usage::Used(by),
        Err(error) => Usage::Unknown(error.to_string()),
    }
}
