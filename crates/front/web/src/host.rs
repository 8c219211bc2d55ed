//! This host and its ports.

use schemars::JsonSchema;
use serde::Serialize;
use wb_machine::{
    Ethtool, Netlink,
    doctor::{self, Description},
    netns,
    netns::Namespace,
};
use wb_model::{Locator, units::Mac};
use wb_runs::{Grants, Holder, Runs};
use wb_session::PortDrivers;

use crate::answer::{ApiError, ApiResult};

/// The host.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HostDocument {
    /// Name of the host.
    host: String,
    /// Version of the program.
    version: &'static str,
    /// Version of the kernel.
    kernel: String,
    /// CPUs that are online.
    cpus: usize,
    /// Memory in bytes.
    memory_bytes: u64,
    /// Powers that plans may use here.
    powers: PowersDocument,
    /// Maximum number of runs at the same time.
    max_runs: usize,
    /// True if plans may name the hosts of a fleet.
    fleet: bool,
}

/// Powers that plans may use.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PowersDocument {
    /// Plans may run commands.
    commands: bool,
    /// Plans may send to any address.
    leave: bool,
    /// Folder below which plans may read and write files.
    files: Option<String>,
}

impl PowersDocument {
    fn of(grants: &Grants) -> Self {
        Self {
            commands: grants.commands,
            leave: grants.leave,
            files: grants.files.as_ref().map(|f| f.display().to_string()),
        }
    }
}

/// Describes the host.
pub(crate) fn host(runs: &Runs) -> HostDocument {
    let name = rustix::system::uname();
    let info = rustix::system::sysinfo();
    HostDocument {
        host: name.nodename().to_string_lossy().into_owned(),
        version: env!("CARGO_PKG_VERSION"),
        kernel: name.release().to_string_lossy().into_owned(),
        cpus: wb_machine::cpu::online().map_or(0, |cpus| cpus.len()),
        memory_bytes: info.totalram.saturating_mul(info.mem_unit.into()),
        powers: PowersDocument::of(&runs.settings().grants),
        max_runs: runs.settings().most,
        fleet: runs.settings().carrier.is_some(),
    }
}

/// Interface that may be a port of a plan.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PortDocument {
    /// Locator for plans: `NODE/IF` or `IF`.
    locator: String,
    /// Hardware address.
    mac: String,
    /// MTU in bytes.
    mtu: u32,
    /// Speed in bits per second, if it is known and means something.
    speed_bps: Option<u64>,
    /// True if the interface is up.
    up: bool,
    /// True if it has a carrier.
    carrier: bool,
    /// Name of its driver in the kernel.
    driver: Option<String>,
    /// Drivers of wirebench at the interface.
    #[serde(flatten)]
    drivers: Option<PortDrivers>,
    /// Its addresses.
    addresses: Vec<String>,
    /// The other end of a veth pair, if it is in a named namespace.
    peer: Option<String>,
    /// Its user: a run, an owner or another process.
    held_by: Option<Holder>,
    /// Limits of the interface for measurements, if the request asks for them (`doctor=1`).
    #[serde(skip_serializing_if = "Option::is_none")]
    findings: Option<Vec<FindingDocument>>,
}

/// Result of a check of an interface, as `wirebench doctor` prints it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FindingDocument {
    /// `ok`, `note`, `warn` or `problem`.
    level: String,
    /// Topic: `link`, `offloads`.
    topic: String,
    /// Description.
    text: String,
    /// Command that helps, if there is one.
    fix: Option<String>,
}

/// Describes an interface, without changing anything.
fn describe(namespace: &Namespace, name: &str, locator: &Locator) -> Option<Description> {
    let mut about = doctor::describe(Some((namespace, name))).ok()?;
    let interface = about.interface.as_mut()?;
    interface.xdp = wb_session::reported_xdp_abilities(locator).ok()?;
    Some(about)
}

/// Checks an interface.
fn findings(about: &Description) -> Vec<FindingDocument> {
    let documents = doctor::judge(about)
        .into_iter()
        .map(|finding| FindingDocument {
            level: finding.level.to_string(),
            topic: finding.topic,
            text: finding.text,
            fix: finding.fix,
        });
    documents.collect()
}

/// The Ethernet interfaces of this namespace and of all named ones, as far as the server offers them.
pub(crate) fn ports(runs: &Runs, checks: bool) -> ApiResult<Vec<PortDocument>> {
    let mut namespaces = vec![Namespace::current().map_err(ApiError::internal)?];
    let own = namespaces[0].inode();
    for name in netns::list().map_err(ApiError::internal)? {
        // A namespace may end at this moment.
        namespaces.extend(Namespace::named(&name).ok().filter(|n| n.inode() != own));
    }
    let all = namespaces
        .iter()
        .flat_map(|namespace| ports_in(runs, namespace, checks));
    Ok(all.collect())
}

/// Namespace and name of an interface, `NODE/IF` or `IF`.
pub(crate) fn interface(place: &str) -> Option<(Namespace, &str)> {
    let (namespace, name) = match place.split_once('/') {
        Some((node, name)) => (Namespace::named(node), name),
        None => (Namespace::current(), place),
    };
    Some((namespace.ok()?, name))
}

/// Returns true if there is such an interface.
pub(crate) fn is_interface(place: &str) -> bool {
    let found = interface(place);
    found.is_some_and(|(namespace, name)| {
        Netlink::open(&namespace).is_ok_and(|netlink| netlink.link(name).is_ok())
    })
}

fn ports_in(runs: &Runs, namespace: &Namespace, checks: bool) -> Vec<PortDocument> {
    let Ok(netlink) = Netlink::open(namespace) else {
        return Vec::new();
    };
    let ethtool = Ethtool::open(namespace).ok();
    let links = netlink.links().unwrap_or_default().into_iter();
    let links = links.filter(|link| link.ethernet);
    let ports = links.map(|link| (namespace.place_of(&link.name), link));
    let offered = ports.filter(|(place, _)| runs.offers(place));
    let described = offered.map(|(locator, link)| {
        let ethtool = ethtool.as_ref();
        let speed = ethtool.and_then(|e| e.speed(&link.name).ok().flatten());
        let driver = ethtool.and_then(|e| e.driver(&link.name).ok().flatten());
        let addresses = netlink.addresses(&link.name).unwrap_or_default();
        let peer = wb_machine::veth_peer(namespace, &link.name).ok().flatten();
        // An interface may vanish at this moment.
        let place: Option<Locator> = locator.parse().ok();
        let about = place.as_ref();
        let about = about.and_then(|place| describe(namespace, &link.name, place));
        let drivers = place.zip(about.as_ref());
        let drivers =
            drivers.and_then(|(place, about)| wb_session::port_drivers(&place, about).ok());
        PortDocument {
            mac: Mac(link.mac).to_string(),
            mtu: link.mtu,
            speed_bps: speed.filter(|s| !s.nominal).map(|s| s.bits_per_second),
            up: link.up,
            carrier: link.carrier,
            driver: driver.map(|driver| driver.name),
            addresses: addresses.iter().map(ToString::to_string).collect(),
            peer: peer.map(|(namespace, name)| namespace.place_of(&name)),
            held_by: runs.holder(&locator),
            drivers,
            findings: about.filter(|_| checks).map(|about| findings(&about)),
            locator,
        }
    });
    described.collect()
}
