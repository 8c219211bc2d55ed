//! Creation, removal and listing of labs.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use wb_machine::ethtool::Offload;
use wb_machine::link::{VethEnd, create_veth, link_by_name};
use wb_machine::{Ethtool, HostError, Namespace, Netlink, netns, sysctl};

use crate::balancer::{self, Balancer};
use crate::impair::{self, DeviceCounters};
use crate::shaping::{self, Limit};
use crate::state::{self, LabState};
use crate::topology::{PREFIX, ROUTER_V4, ROUTER_V6, TesterNetwork, mac_bytes, networks_behind};
use crate::{
    Bridge, Daemon, End, Fleet, LabKind, LabOptions, LinkEnds, Node, Owner, Process, Result,
    StartedDaemon, TestbedError, daemon, filters, fleet, nft, no_daemons, process,
};

/// Makes a lab. It exists until it is taken down. `owner` is the process that the lab serves; after the end of
/// that process, [`down_all`] removes the lab. [`down_all`] removes a lab without an owner at any time. `daemons` names
/// the programs that run in the nodes; see [`MakeDaemons`].
///
/// # Errors
/// Invalid options, a name in use, missing privileges, or a program that does not start. Nothing of the lab remains on
/// error.
pub fn up(
    kind: LabKind,
    options: &LabOptions,
    daemons: MakeDaemons<'_>,
    owner: Option<Owner>,
) -> Result<LabState> {
    options.validate(kind)?;
    if kind == LabKind::Balancer {
        options.balancer.unwrap_or_default().require_program()?;
    }
    if !options.filters.is_empty() {
        nft::nft_program()?;
    }
    state::prepare_directory()?;
    let mut lab = LabState::planned(kind, options.clone());
    lab.claim_name()?;
    let mut made = Vec::new();
    let built = build_lab(&mut lab, &mut made).and_then(|()| start_all(&mut lab, daemons));
    match built {
        Ok(()) => {
            lab.complete = true;
            lab.owner = owner;
            lab.save()?;
            Ok(lab)
        }
        Err(error) => {
            // An older namespace with this name belongs to someone else and must stay.
            lab.nodes.retain(|node| made.contains(&node.namespace));
            let _ = remove(&lab);
            Err(error)
        }
    }
}

/// Names the programs of a lab, group by group: a group starts once the programs of the previous one are ready. Called
/// once the nodes exist, with the state of the lab and the folder for the files of a fleet, which exists and is empty.
/// The folder goes with the lab.
pub type MakeDaemons<'a> = &'a dyn Fn(&LabState, &Path) -> io::Result<Vec<Vec<Daemon>>>;

/// Starts the programs that `daemons` names.
fn start_all(lab: &mut LabState, daemons: MakeDaemons<'_>) -> Result<()> {
    let folder = state::fleet_path(&state::path_of(&lab.name)?);
    let prepare = || TestbedError::io("prepare", format!("the programs of the lab {}", lab.name));
    if lab.kind == LabKind::Fleet {
        // The folder has keys.
        let made = DirBuilder::new().mode(0o700).create(&folder);
        made.map_err(prepare())?;
    }
    for group in daemons(lab, &folder).map_err(prepare())? {
        lab.daemons.extend(daemon::start_daemons(&group)?);
    }
    Ok(())
}

/// Takes a lab down, whoever owns it: its device, every process inside its namespaces, its wires,
/// its namespaces, and its files.
///
/// # Errors
/// [`TestbedError::Unknown`]; missing privileges.
pub fn down(name: &str) -> Result<()> {
    remove(&LabState::load(name)?)
}

/// Processes that use the ports of a lab now, for example `process 4711 (wirebench trial …)`.
///
/// # Errors
/// [`TestbedError::Unknown`]; failure to read the locks.
pub fn lab_users(name: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for node in &LabState::load(name)?.nodes {
        // A namespace that is gone has no users.
        if let Ok(namespace) = Namespace::named(&node.namespace) {
            found.extend(wb_machine::locks::holders(&namespace)?);
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// Takes down every lab that has no owner or whose owner has ended. Also removes the remains of a
/// crash: namespaces beginning with `wb-` that belong to no lab, and impairing devices without a
/// lab. With `force`, also takes down labs with a live owner.
///
/// # Errors
/// The first failure, after all labs were tried.
pub fn down_all(force: bool) -> Result<SweepResult> {
    sweep(&SweepScope { force, only: None })
}

/// Scope of a clean-up.
#[derive(Clone, Debug, Default)]
pub struct SweepScope {
    /// Includes labs with a live owner.
    pub force: bool,
    /// Restricts the clean-up to labs and namespaces with this prefix of the lab name.
    pub only: Option<String>,
}

/// Results of a clean-up.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SweepResult {
    /// Labs taken down.
    pub labs: Vec<String>,
    /// Labs that were kept because their owner is alive.
    pub kept: Vec<OwnedLab>,
    /// Namespaces that belonged to no lab.
    pub namespaces: Vec<String>,
    /// Devices without a lab.
    pub processes: Vec<Process>,
}

/// A lab in use.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OwnedLab {
    /// Name of the lab.
    pub name: String,
    /// Owner of the lab.
    pub owner: Owner,
}

/// Like [`down_all`], for a selection of labs.
///
/// # Errors
/// Same as [`down_all`].
pub fn sweep(sweep: &SweepScope) -> Result<SweepResult> {
    let covers = |lab: &str| {
        sweep
            .only
            .as_ref()
            .is_none_or(|prefix| lab.starts_with(prefix))
    };
    let mut removed = SweepResult::default();
    let mut failed = None;
    // Namespaces are listed before the labs. A namespace that appears in between is then in neither list,
    // and does not count as one without a lab.
    let namespaces = state::lab_namespaces()?;
    let devices = process::impairing_devices();
    let mut claimed = BTreeSet::new();
    for name in state::lab_names()?.into_iter().filter(|name| covers(name)) {
        let lab = match LabState::load(&name) {
            Ok(lab) => lab,
            // Another process has taken the lab down meanwhile.
            Err(TestbedError::Unknown { .. }) => continue,
            // Not a valid lab file; its namespaces, if any, are found below.
            Err(_) => {
                let _ = fs::remove_file(state::path_of(&name)?);
                removed.labs.push(name);
                continue;
            }
        };
        if let Some(owner) = lab
            .owner
            .as_ref()
            .filter(|owner| !sweep.force && owner.process.is_alive())
        {
            claimed.extend(lab.nodes.iter().map(|node| node.namespace.clone()));
            removed.kept.push(OwnedLab {
                name,
                owner: owner.clone(),
            });
            continue;
        }
        match remove(&lab) {
            Ok(()) => removed.labs.push(name),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    for namespace in namespaces {
        let stray =
            namespace.strip_prefix(PREFIX).is_some_and(covers) && !claimed.contains(&namespace);
        // It may have been a node of a lab that was just taken down.
        if stray && state::lab_namespaces()?.contains(&namespace) {
            match remove_namespaces(std::slice::from_ref(&namespace), &[]) {
                Ok(()) => removed.namespaces.push(namespace),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
    }
    let folder = state::lab_directory()?;
    let lost = devices.into_iter().filter(|(_, file)| {
        let lab = file
            .file_stem()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        file.parent() == Some(&folder) && covers(lab) && !file.exists()
    });
    removed.processes =
        process::end_processes(&lost.map(|(process, _)| process).collect::<Vec<_>>());
    remove_leftover_files(&covers)?;
    failed.map_or(Ok(removed), Err)
}

/// Removes files that a crash left next to the lab files.
fn remove_leftover_files(covers: &dyn Fn(&str) -> bool) -> Result<()> {
    let known = state::lab_names()?;
    let Ok(entries) = fs::read_dir(state::lab_directory()?) else {
        return Ok(());
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        let left_over = match name.rsplit_once('.') {
            Some((lab, "log" | "counters" | "haproxy" | "fleet")) => {
                covers(lab) && !known.iter().any(|name| name == lab)
            }
            Some((rest, "tmp")) => {
                let writer = rest.rsplit_once('.').and_then(|(_, pid)| pid.parse().ok());
                covers(rest)
                    && writer.is_none_or(|pid| wb_machine::process::start_time(pid).is_none())
            }
            _ => false,
        };
        if left_over {
            let _ = match path.is_dir() {
                true => fs::remove_dir_all(&path),
                false => fs::remove_file(&path),
            };
        }
    }
    Ok(())
}

/// Removes the remains of a lab; any part may be missing.
fn remove(lab: &LabState) -> Result<()> {
    let file = state::path_of(&lab.name)?;
    let mut devices: Vec<Process> = process::impairing_devices()
        .into_iter()
        .filter_map(|(process, given)| (given == file).then_some(process))
        .collect();
    devices.extend(lab.device.filter(|device| !devices.contains(device)));
    process::end_processes(&devices);
    let namespaces: Vec<String> = lab
        .nodes
        .iter()
        .map(|node| node.namespace.clone())
        .collect();
    remove_namespaces(&namespaces, &lab.links)?;
    lab.remove_files()
}

fn remove_namespaces(names: &[String], links: &[LinkEnds]) -> Result<()> {
    let open: Vec<Namespace> = names
        .iter()
        .filter_map(|name| Namespace::named(name).ok())
        .collect();
    process::end_processes(&process::processes_inside(
        &open.iter().map(Namespace::inode).collect(),
    ));
    // A run with sockets in the namespace would keep namespace and wires alive. Without the wires the run
    // notices that its port is gone.
    for end in links.iter().map(|link| &link.a) {
        if let Some(namespace) = open.iter().find(|n| n.name() == Some(&end.namespace)) {
            let _ =
                Netlink::open(namespace).and_then(|netlink| netlink.delete_link(&end.interface));
        }
    }
    drop(open);
    for name in names {
        match netns::delete(name) {
            Ok(()) | Err(HostError::UnknownNamespace { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn build_lab(lab: &mut LabState, made: &mut Vec<String>) -> Result<()> {
    let mut namespaces = Vec::new();
    for Node { namespace, .. } in &lab.nodes {
        namespaces.push(netns::create(namespace)?);
        made.push(namespace.clone());
    }
    let find = |end: &End| {
        let found = namespaces
            .iter()
            .find(|namespace| namespace.name() == Some(&end.namespace));
        found.expect("each end is in a node of its lab")
    };
    for namespace in &namespaces {
        prepare_namespace(namespace, lab)?;
    }
    for LinkEnds { a, b } in &lab.links {
        let veth = |end| VethEnd {
            namespace: find(end),
            name: &end.interface,
            mac: Some(end.mac_bytes()),
            queues: lab.options.queues,
            mtu: Some(lab.options.mtu),
        };
        create_veth(&veth(a), &veth(b))?;
    }
    for end in lab.links.iter().flat_map(|link| [&link.a, &link.b]) {
        // The impairing device needs frames as they are on the wire.
        let offloads = lab.options.hosts && lab.kind != LabKind::Impair;
        configure_end(find(end), end, offloads)?;
    }
    for bridge in &lab.bridges {
        let namespace = namespaces
            .iter()
            .find(|namespace| namespace.name() == Some(&bridge.namespace));
        build_bridge(
            namespace.expect("each bridge is in a node of its lab"),
            bridge,
        )?;
    }
    if lab.options.hosts && lab.kind.is_routed() {
        for end in [&lab.links[0].a, &lab.links[1].b] {
            route_through(find(end), end)?;
        }
    }
    if lab.kind.is_routed() {
        add_routes(find(&lab.links[1].a), lab)?;
    }
    match lab.kind {
        LabKind::Pair => {}
        LabKind::Router => {
            let device = &lab.links[1].a;
            if !lab.options.filters.is_empty() {
                filters::apply_filters(&lab.options.filters, find(device))?;
            }
            if let Some(limit) = &lab.limit {
                limit.apply_limit(find(device), &device.interface)?;
                for end in [&lab.links[0].b, device] {
                    shaping::forward_elsewhere(find(end), &end.interface);
                }
            }
        }
        LabKind::Impair | LabKind::Fleet => {
            lab.device = Some(process::start_device(lab)?);
            lab.save()?;
        }
        LabKind::Balancer => {
            lab.device = balancer::start(lab, find(&lab.links[1].a))?;
            lab.save()?;
        }
    }
    Ok(())
}

/// Joins the wires of a bridge.
fn build_bridge(namespace: &Namespace, bridge: &Bridge) -> Result<()> {
    let netlink = Netlink::open(namespace)?;
    netlink.create_bridge(&bridge.interface, mac_bytes(&bridge.mac))?;
    for port in &bridge.ports {
        netlink.add_bridge_port(&bridge.interface, port)?;
    }
    if let Some(address) = &bridge.address {
        add_address(&netlink, &bridge.interface, address)?;
    }
    Ok(netlink.set_up(&bridge.interface)?)
}

/// Adds an address that is written with its prefix length.
fn add_address(netlink: &Netlink, interface: &str, address: &str) -> Result<()> {
    let (address, prefix_len) = address
        .split_once('/')
        .expect("addresses are written with their prefix");
    let address: IpAddr = address.parse().expect("addresses are written by us");
    let prefix_len = prefix_len.parse().expect("a number");
    Ok(netlink.add_address(interface, address, prefix_len)?)
}

/// Suppresses traffic of the namespace's kernel before an interface exists.
fn prepare_namespace(namespace: &Namespace, lab: &LabState) -> Result<()> {
    Netlink::open(namespace)?.set_up("lo")?;
    if lab.kind == LabKind::Fleet {
        // A test port does not answer for the address of the management port, and no netfilter rule sees frames in a
        // bridge. The second setting exists only if the kernel has loaded br_netfilter.
        sysctl::set(namespace, "net/ipv4/conf/all/arp_ignore", "1")?;
        let _ = sysctl::set(namespace, "net/bridge/bridge-nf-call-iptables", "0");
        let _ = sysctl::set(namespace, "net/bridge/bridge-nf-call-ip6tables", "0");
    }
    let device = lab.kind.is_routed().then(|| &lab.links[1].a.namespace);
    if device.map(String::as_str) != namespace.name() {
        let device = lab.nodes.get(1).filter(|_| lab.nodes.len() > 2);
        let is_device = device.map(|node| node.namespace.as_str()) == namespace.name();
        if lab.options.hosts && !is_device {
            sysctl::silence_ipv6(namespace, "default")?;
            return Ok(());
        }
        sysctl::disable_ipv6(namespace, "default")?;
        return Ok(());
    }
    sysctl::silence_ipv6(namespace, "default")?;
    for key in [
        "ipv4/ip_forward",
        "ipv6/conf/all/forwarding",
        "ipv6/conf/default/forwarding",
    ] {
        sysctl::set(namespace, &format!("net/{key}"), "1")?;
    }
    for interface in ["all", "default"] {
        sysctl::set(
            namespace,
            &format!("net/ipv4/conf/{interface}/rp_filter"),
            "0",
        )?;
    }
    // Not available everywhere. The neighbour table is large if this namespace has a separate
    // one. The unavoidable report of group membership is sent once and immediately.
    for (key, value) in [
        ("ipv4/neigh/default/gc_thresh1", "8192"),
        ("ipv4/neigh/default/gc_thresh2", "32768"),
        ("ipv4/neigh/default/gc_thresh3", "65536"),
        ("ipv6/neigh/default/gc_thresh1", "8192"),
        ("ipv6/neigh/default/gc_thresh2", "32768"),
        ("ipv6/neigh/default/gc_thresh3", "65536"),
        ("ipv4/conf/all/send_redirects", "0"),
        ("ipv4/conf/default/send_redirects", "0"),
        ("ipv6/conf/default/mldv2_unsolicited_report_interval", "1"),
    ] {
        let _ = sysctl::set(namespace, &format!("net/{key}"), value);
    }
    Ok(())
}

/// Frames must cross a wire of the lab unchanged: one by one, with their checksums.
fn configure_end(namespace: &Namespace, end: &End, offloads: bool) -> Result<()> {
    let ethtool = Ethtool::open(namespace)?;
    let off: &[Offload] = match offloads {
        true => &[],
        false => &[
            Offload::TxChecksum,
            Offload::Tso,
            Offload::Gso,
            Offload::Gro,
        ],
    };
    for &offload in off {
        // Without transmit checksums there is no segmentation. The kernel has then switched segmentation
        // off and rejects a request to do so.
        if ethtool.offload(&end.interface, offload)? != Some(false) {
            ethtool.set_offload(&end.interface, offload, false)?;
        }
    }
    let netlink = Netlink::open(namespace)?;
    for address in &end.kernel_addresses {
        add_address(&netlink, &end.interface, address)?;
    }
    let has = |what: &str| end.kernel_addresses.iter().any(|a| a.contains(what));
    if has(":") && !has("fe80:") {
        // The kernel sends neighbour solicitations from its link-local address. Without one it cannot resolve
        // neighbours
        // and forwards nothing (RFC 4861 section 7.2.2 requires a source address of the interface).
        netlink.add_address(&end.interface, LINK_LOCAL, 64)?;
    }
    netlink.set_up(&end.interface)?;
    Ok(())
}

/// Link-local address of a router, used on each of its links.
const LINK_LOCAL: IpAddr = IpAddr::V6(std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1));

/// Routes the networks behind the testers through the testers, whose MAC addresses are found by ARP and ND.
fn add_routes(namespace: &Namespace, lab: &LabState) -> Result<()> {
    let netlink = Netlink::open(namespace)?;
    let interfaces = [&lab.links[0].b.interface, &lab.links[1].a.interface];
    for TesterNetwork {
        side,
        network,
        prefix_len,
        tester,
    } in networks_behind()
    {
        netlink.add_route(
            network,
            prefix_len,
            Some(tester),
            Some(interfaces[side].as_str()),
        )?;
    }
    Ok(())
}

/// Routes the other side of the router through the router.
fn route_through(namespace: &Namespace, end: &End) -> Result<()> {
    let netlink = Netlink::open(namespace)?;
    let side = usize::from(end.interface.starts_with('b'));
    for TesterNetwork {
        network,
        prefix_len,
        ..
    } in networks_behind().into_iter().filter(|b| b.side != side)
    {
        let router: IpAddr = match network {
            IpAddr::V4(_) => ROUTER_V4[side].into(),
            IpAddr::V6(_) => ROUTER_V6[side].into(),
        };
        netlink.add_route(network, prefix_len, Some(router), Some(&end.interface))?;
    }
    Ok(())
}

/// Guard of a lab: takes the lab down when dropped.
#[derive(Debug)]
pub struct Lab {
    state: LabState,
}

impl Lab {
    /// Makes a lab owned by this process.
    ///
    /// # Errors
    /// Same as [`up`].
    pub fn up(kind: LabKind, options: &LabOptions) -> Result<Self> {
        Self::with_daemons(kind, options, &no_daemons)
    }

    /// Makes a lab owned by this process, with programs in its nodes.
    ///
    /// # Errors
    /// Same as [`up`].
    pub fn with_daemons(
        kind: LabKind,
        options: &LabOptions,
        daemons: MakeDaemons<'_>,
    ) -> Result<Self> {
        Ok(Self {
            state: up(kind, options, daemons, Some(Owner::current()))?,
        })
    }

    /// Stored state of the lab.
    pub fn state(&self) -> &LabState {
        &self.state
    }

    /// Locator of an interface of the lab: `wb-pair-a/a0` for `a0`.
    ///
    /// # Panics
    /// If the lab has no such interface.
    pub fn port(&self, interface: &str) -> String {
        let ends = self.state.links.iter().flat_map(|link| [&link.a, &link.b]);
        let mut found = ends.filter(|end| end.interface == interface);
        found
            .next()
            .unwrap_or_else(|| panic!("lab {} has no interface {interface}", self.state.name))
            .locator()
    }

    /// Namespace of a node of the lab: `wb-pair-a` for `a`.
    ///
    /// # Panics
    /// If the lab has no such node.
    pub fn node(&self, node: &str) -> &str {
        let mut found = self.state.nodes.iter().filter(|each| each.node == node);
        let found = found.next();
        &found
            .unwrap_or_else(|| panic!("lab {} has no node {node}", self.state.name))
            .namespace
    }

    /// Present status of the lab.
    pub fn status(&self) -> LabStatus {
        LabStatus::of_lab(self.state.clone())
    }

    /// Takes the lab down now and reports errors.
    ///
    /// # Errors
    /// Same as [`down`].
    pub fn down(self) -> Result<()> {
        remove(&self.state)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.state) {
            tracing::warn!(lab = self.state.name, %error, "the lab was not taken down");
        }
    }
}

/// Labs and stray namespaces of this machine.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LabList {
    /// Labs, by name.
    pub labs: Vec<LabStatus>,
    /// Namespaces beginning with `wb-` that belong to no lab.
    pub stray_namespaces: Vec<String>,
}

/// Status of a lab.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LabStatus {
    /// Name of the lab.
    pub name: String,
    /// Kind of the lab.
    pub kind: LabKind,
    /// `up`; `building` during creation; `orphaned` if the owner has ended; `broken` if a part is missing.
    pub state: &'static str,
    /// Time of creation, in seconds since 1970.
    pub created: u64,
    /// Namespaces of the lab.
    pub nodes: Vec<NodeStatus>,
    /// Wires of the lab.
    pub links: Vec<LinkEnds>,
    /// XDP programs at the ends of the wires: those of runs, which remove them at their end, and others.
    pub programs: Vec<EndProgram>,
    /// Requested options.
    pub options: LabOptions,
    /// Capacity of the router, if limited.
    pub limit: Option<Limit>,
    /// Process that the lab serves.
    pub owner: Option<OwnerStatus>,
    /// The impairing device, or haproxy.
    pub device: Option<DeviceStatus>,
    /// Parameters for a load through the balancer.
    pub balancer: Option<Balancer>,
    /// Hosts and broker of a fleet.
    pub fleet: Option<Fleet>,
    /// Programs in the nodes, in addition to the device.
    pub daemons: Vec<DaemonStatus>,
}

/// Program in a node of a lab.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DaemonStatus {
    /// Program as it was started.
    #[serde(flatten)]
    pub daemon: StartedDaemon,
    /// True if the process runs.
    pub alive: bool,
}

/// A namespace of a lab.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct NodeStatus {
    /// Names of the namespace.
    #[serde(flatten)]
    pub node: Node,
    /// True if the namespace exists.
    pub present: bool,
}

/// An XDP program at an end of a wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct EndProgram {
    /// Port with the program.
    pub port: String,
    /// Program id, as listed by `bpftool prog`.
    pub id: u32,
    /// Mode: `native`, `generic`, …
    pub mode: String,
}

/// Process that a lab serves.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct OwnerStatus {
    /// Process.
    #[serde(flatten)]
    pub owner: Owner,
    /// True if the process runs.
    pub alive: bool,
}

/// Process that is the device of a lab.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DeviceStatus {
    /// Process.
    #[serde(flatten)]
    pub process: Process,
    /// True if the process runs.
    pub alive: bool,
    /// Counters of the device.
    #[serde(flatten)]
    pub counters: Option<DeviceCounters>,
}

impl LabStatus {
    fn of_lab(lab: LabState) -> Self {
        let nodes: Vec<NodeStatus> = lab
            .nodes
            .iter()
            .map(|node| NodeStatus {
                node: node.clone(),
                present: Namespace::named(&node.namespace).is_ok(),
            })
            .collect();
        let counters = state::path_of(&lab.name)
            .ok()
            .and_then(|file| impair::read_counters(&state::counters_path(&file)));
        let device = lab.device.map(|process| DeviceStatus {
            process,
            alive: process.is_alive(),
            counters,
        });
        let daemons: Vec<DaemonStatus> = lab
            .daemons
            .iter()
            .map(|daemon| DaemonStatus {
                alive: daemon.process.is_alive(),
                daemon: daemon.clone(),
            })
            .collect();
        let whole = nodes.iter().all(|node| node.present)
            && device.as_ref().is_none_or(|device| device.alive)
            && daemons.iter().all(|daemon| daemon.alive);
        LabStatus {
            balancer: Balancer::of_lab(&lab),
            fleet: Fleet::of_lab(&lab),
            daemons,
            state: match (lab.complete, whole) {
                // The owner of the lab has ended.
                (true, true) if lab.owner.is_some() && !lab.is_owned() => "orphaned",
                (true, true) => "up",
                (false, _) if lab.is_owned() => "building",
                _ => "broken",
            },
            owner: lab.owner.map(|owner| OwnerStatus {
                alive: owner.process.is_alive(),
                owner,
            }),
            name: lab.name,
            kind: lab.kind,
            created: lab.created,
            programs: programs_at(&lab.links),
            nodes,
            links: lab.links,
            options: lab.options,
            limit: lab.limit,
            device,
        }
    }
}

fn programs_at(wires: &[LinkEnds]) -> Vec<EndProgram> {
    let ends = wires.iter().flat_map(|wire| [&wire.a, &wire.b]);
    let found = ends.filter_map(|end| {
        // A namespace that is gone has no programs.
        let namespace = Namespace::named(&end.namespace).ok()?;
        let link = link_by_name(&namespace, &end.interface).ok()?;
        let program = link.xdp_attached?;
        Some(EndProgram {
            port: end.locator(),
            id: program.id,
            mode: program.mode.to_string(),
        })
    });
    found.collect()
}

/// Status of all labs, and namespaces without a lab.
///
/// # Errors
/// Failure to list labs or namespaces.
pub fn list_labs() -> Result<LabList> {
    let namespaces = state::lab_namespaces()?;
    let labs = state::all_labs()?;
    let claimed: BTreeSet<&str> = labs
        .iter()
        .flat_map(|lab| &lab.nodes)
        .map(|node| node.namespace.as_str())
        .collect();
    let stray_namespaces = namespaces
        .into_iter()
        .filter(|name| !claimed.contains(name.as_str()))
        .collect();
    Ok(LabList {
        stray_namespaces,
        labs: labs.into_iter().map(LabStatus::of_lab).collect(),
    })
}

/// Surroundings of a port of a lab.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PortHint {
    /// Name of the lab.
    pub lab: String,
    /// Kind of the lab.
    pub kind: LabKind,
    /// Addresses for this port, IPv4 then IPv6.
    pub addresses: Vec<IpAddr>,
    /// Destination MAC address for frames from this port: that of the far port or of the router.
    pub peer_mac: [u8; 6],
    /// Addresses of the router on this side, IPv4 then IPv6; empty without a router.
    pub gateways: Vec<IpAddr>,
    /// The port at the other end of the lab.
    pub far_port: String,
    /// Addresses of the far port, IPv4 then IPv6.
    pub far_addresses: Vec<IpAddr>,
    /// Capacity of the router towards node b, if limited.
    pub limit: Option<Limit>,
}

/// Surroundings of the port `interface` in the namespace `node`, if it is a tester port of a lab. Without `node`, the
/// port is in the namespace of the calling thread.
pub fn find_port(node: Option<&str>, interface: &str) -> Option<PortHint> {
    let labs = state::all_labs().ok()?;
    let is_asked = |name: &str| match node {
        Some(node) => node == name,
        None => Namespace::named(name).is_ok_and(|namespace| namespace.is_current()),
    };
    labs.iter().find_map(|lab| {
        let nodes = lab.nodes.iter().map(|node| node.namespace.as_str());
        let mut hints = nodes.filter_map(|node| Some((node, port_hint(lab, node, interface)?)));
        hints.find(|(node, _)| is_asked(node)).map(|(_, hint)| hint)
    })
}

fn port_hint(lab: &LabState, node: &str, interface: &str) -> Option<PortHint> {
    let is_asked =
        |end: &End| end.namespace == node && end.interface == interface && end.faces_tester();
    let link = lab
        .links
        .iter()
        .find(|link| is_asked(&link.a) || is_asked(&link.b))?;
    let (own, near) = if is_asked(&link.a) {
        (&link.a, &link.b)
    } else {
        (&link.b, &link.a)
    };
    let far = match lab.kind {
        LabKind::Pair => near,
        LabKind::Fleet => fleet::partner_of(&lab.links, own)?,
        LabKind::Router | LabKind::Impair | LabKind::Balancer => {
            let ends = lab.links.iter().flat_map(|link| [&link.a, &link.b]);
            ends.filter(|end| end.faces_tester())
                .find(|end| *end != own)?
        }
    };
    let routed = lab.kind.is_routed();
    Some(PortHint {
        lab: lab.name.clone(),
        kind: lab.kind,
        addresses: own.tester_addresses.clone(),
        peer_mac: if routed { near } else { far }.mac_bytes(),
        gateways: near.gateways(),
        far_port: far.locator(),
        far_addresses: far.tester_addresses.clone(),
        limit: lab.limit,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_for_ports() {
        let router = LabState::planned(LabKind::Router, LabOptions::default());
        let near = port_hint(&router, "wb-router-a", "a0").unwrap();
        assert_eq!(near.peer_mac, router.links[0].b.mac_bytes());
        assert_eq!(near.gateways[0].to_string(), "198.18.1.1");
        assert_eq!(near.gateways[1].to_string(), "2001:2:0:1::1");
        assert_eq!(
            (near.far_port.as_str(), near.far_addresses.len()),
            ("wb-router-b/b0", 2)
        );
        let far = port_hint(&router, "wb-router-b", "b0").unwrap();
        assert_eq!(far.peer_mac, router.links[1].a.mac_bytes());
        assert_eq!(far.far_addresses, near.addresses);
        assert_eq!(port_hint(&router, "wb-router-dut", "da"), None);
        assert_eq!(port_hint(&router, "wb-router-a", "a1"), None);

        let pair = LabState::planned(
            LabKind::Pair,
            LabOptions {
                links: 2,
                ..LabOptions::default()
            },
        );
        let second = port_hint(&pair, "wb-pair-b", "b1").unwrap();
        assert_eq!(second.peer_mac, pair.links[1].a.mac_bytes());
        assert_eq!(second.far_port, "wb-pair-a/a1");
        assert!(second.gateways.is_empty());

        let balancer = LabState::planned(LabKind::Balancer, LabOptions::default());
        let end = port_hint(&balancer, "wb-balancer-client", "c0").unwrap();
        assert_eq!(end.peer_mac, balancer.links[0].b.mac_bytes());
        assert_eq!(end.gateways, near.gateways, "and not the virtual addresses");
        assert_eq!(end.far_port, "wb-balancer-server/s0");

        let fleet = LabState::planned(LabKind::Fleet, LabOptions::default());
        let end = port_hint(&fleet, "wb-fleet-h1", "t0").unwrap();
        assert_eq!(end.far_port, "wb-fleet-h2/t0");
        assert_eq!(end.far_addresses[0].to_string(), "198.19.1.2");
        assert_eq!(end.peer_mac, fleet.links[3].a.mac_bytes());
        assert_eq!(port_hint(&fleet, "wb-fleet-h1", "m0"), None);

        let impair = LabState::planned(LabKind::Impair, LabOptions::default());
        let end = port_hint(&impair, "wb-impair-a", "a0").unwrap();
        assert_eq!(end.peer_mac, impair.links[1].b.mac_bytes());
    }
}
