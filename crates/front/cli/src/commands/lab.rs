//! `wirebench lab`: ready-made topologies of network namespaces.

mod balancer;
mod fleet;

use anyhow::{Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use schemars::JsonSchema;
use serde::Serialize;
use wb_model::{
    Stream,
    bench::{FILTER_CONDITIONS, FilterCondition, filter_conditions},
    criteria::parse_share,
    schema::mismatch,
    units::{Rate, Span, parse_count},
};
use wb_render::{figures, table::Table};
use wb_testbed::{
    BalancerMode, BalancerOptions, DaemonStatus, Filter, LabKind, LabList, LabOptions, LabStatus,
    impair::{DeviceCounters, DirectionCounters, ImpairOptions, Loss},
};

use crate::{args::count_in, deliver::print, say::say};

/// Manage labs: network namespaces and links, with or without a device under test.
#[derive(Subcommand, Debug)]
#[command(after_help = "Examples:\n  \
    wirebench lab up pair\n  \
    wirebench lab up router --limit 100mbit\n  \
    wirebench lab up router --filters 25\n  \
    wirebench lab up impair --delay 300us --loss 1% --duplicate 0.5% --reorder 2%\n  \
    wirebench lab up balancer --backends 4\n  \
    wirebench lab up fleet --hosts 3 --loss-every 100\n  \
    wirebench lab exec wb-pair-b tcpdump -ni b0\n  \
    wirebench lab run pair -- wirebench trial --tx wb-pair-a/a0 --rx wb-pair-b/b0\n  \
    wirebench lab ls; wirebench lab down --all")]
pub(crate) enum LabCommand {
    /// Bring up a lab, which stays until it is taken down.
    #[command(after_help = "Examples:\n  \
        wirebench lab up pair --queues 4\n  \
        wirebench lab up impair --as slow --delay 10ms --rate 10mbit --both --hosts\n  \
        wirebench lab up fleet --hosts 8")]
    Up(UpArgs),
    /// Take down one lab, or all unused labs.
    #[command(after_help = "Examples:\n  wirebench lab down pair\n  wirebench lab down --all")]
    Down(DownArgs),
    /// List labs with their ports, addresses and the counters of impairing devices.
    #[command(after_help = "Example:\n  wirebench lab ls --json")]
    Ls(LsArgs),
    /// Run a command in a node (a network namespace) of a lab.
    #[command(after_help = "Example:\n  wirebench lab exec wb-pair-b tcpdump -ni b0")]
    Exec(ExecArgs),
    /// Bring up a lab, run a command, and take the lab down; works without root.
    #[command(after_help = "Example:\n  \
        wirebench lab run pair -- wirebench trial --tx wb-pair-a/a0 --rx wb-pair-b/b0 --rate 10kpps")]
    Run(RunArgs),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// wb-pair-a/a0 and wb-pair-b/b0, connected by a link
    Pair,
    /// a kernel router between wb-router-a/a0 and wb-router-b/b0
    Router,
    /// wirebench's impairing bridge between wb-impair-a/a0 and wb-impair-b/b0
    Impair,
    /// balancer that spreads connections from wb-balancer-client/c0 over servers at wb-balancer-server/s0
    Balancer,
    /// hosts wb-fleet-h1, wb-fleet-h2, … with a port t0 each, and the impairing bridge between odd and even hosts
    Fleet,
}

/// Implementation of the balancer.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    /// the kernel translates addresses (nftables)
    Dnat,
    /// haproxy terminates each connection and opens another one
    Haproxy,
}

impl Kind {
    fn lab(self) -> LabKind {
        match self {
            Self::Pair => LabKind::Pair,
            Self::Router => LabKind::Router,
            Self::Impair => LabKind::Impair,
            Self::Balancer => LabKind::Balancer,
            Self::Fleet => LabKind::Fleet,
        }
    }
}

/// Options for the topology of a lab.
#[derive(Args, Clone, Debug)]
pub(crate) struct TopologyArgs {
    /// Topology of the lab.
    kind: Kind,
    /// Name of the lab [default: name of the topology]; nodes are wb-NAME-a and so on.
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    /// MTU of all links [default: 1500].
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u32>,
    /// pair, router, impair: assign the addresses to the kernels of both ends, for programs with sockets (netserver,
    /// curl). fleet: number of hosts, 2 to 64 [default: 2].
    #[arg(long, value_name = "N", value_parser = count_in::<u32>(0..))]
    #[allow(clippy::option_option, reason = "an option with an optional value")]
    hosts: Option<Option<u32>>,
    /// pair: number of links between the nodes (a0-b0, a1-b1, …) [default: 1].
    #[arg(long, value_name = "N", value_parser = count_in::<u32>(0..))]
    links: Option<u32>,
    /// pair, router, balancer: queues per port, including the device's ports [default: 1].
    #[arg(long, value_name = "N", value_parser = count_in::<u32>(0..))]
    queues: Option<u32>,
    /// router: rate limit towards node b, in bit/s without FCS (tbf): 100mbit.
    #[arg(long, value_name = "BITS", value_parser = bits)]
    limit: Option<u64>,
    /// router: filter conditions (nftables) that permit only the default traffic of a trial: 1, or 25, of which 24
    /// deny unused address pairs (RFC 2544 section 11.4) [default: no filter].
    #[arg(long, value_name = "1|25", value_parser = conditions)]
    filters: Option<u32>,
    /// impair, fleet: delay from arrival to departure. With fewer than four CPUs frames leave in groups, each frame up
    /// to 7.5 us early or late [default: 0s].
    #[arg(long, value_name = "TIME")]
    delay: Option<Span>,
    /// impair, fleet: maximum deviation from the delay, in both directions; order is kept [default: 0s].
    #[arg(long, value_name = "TIME", requires = "delay")]
    jitter: Option<Span>,
    /// impair, fleet: share of lost frames [default: 0].
    #[arg(long, value_name = "SHARE", value_parser = share, conflicts_with = "loss_every")]
    loss: Option<f64>,
    /// impair, fleet: lose exactly every N-th frame.
    #[arg(long, value_name = "N", value_parser = count_in::<u64>(1..))]
    loss_every: Option<u64>,
    /// impair, fleet: share of duplicated frames [default: 0].
    #[arg(long, value_name = "SHARE", value_parser = share)]
    duplicate: Option<f64>,
    /// impair, fleet: share of frames that are held back until later frames have left [default: 0].
    #[arg(long, value_name = "SHARE", value_parser = share)]
    reorder: Option<f64>,
    /// impair, fleet: number of later frames that a held frame waits for [default: 3].
    #[arg(long, value_name = "N", requires = "reorder", value_parser = count_in::<u32>(0..))]
    reorder_depth: Option<u32>,
    /// impair, fleet: rate limit in bits per second, without FCS.
    #[arg(long, value_name = "BITS", value_parser = bits)]
    rate: Option<u64>,
    /// impair, fleet: also impair the direction from b to a (fleet: from even to odd hosts).
    #[arg(long)]
    both: bool,
    /// impair, fleet: impair all TCP and UDP packets, not only test frames; for loads; implied by --hosts of
    /// impair.
    #[arg(long)]
    all: bool,
    /// impair, fleet: seed of the random choices [default: 1].
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// balancer: number of server addresses per address family [default: 2].
    #[arg(long, value_name = "N", value_parser = count_in::<u32>(0..))]
    backends: Option<u32>,
    /// balancer: implementation [default: dnat].
    #[arg(long)]
    mode: Option<Mode>,
}

fn bits(text: &str) -> Result<u64, String> {
    if let Ok(bits) = parse_count(text) {
        return Ok(bits);
    }
    match text.parse::<Rate>().map_err(|e| e.to_string())? {
        Rate::L1(r) | Rate::L2(r) if r.denominator() == 1 => Ok(r.numerator()),
        _ => Err("must be in bits per second, such as 100m, 100mbit or 1gbps".to_owned()),
    }
}

fn conditions(text: &str) -> Result<u32, String> {
    let known = FILTER_CONDITIONS
        .into_iter()
        .find(|n| n.to_string() == text);
    known.ok_or_else(|| "expected 1 or 25 (RFC 2544 section 11.4)".to_owned())
}

/// Returns the filter conditions for the default traffic of a trial, per address family.
fn filters(conditions: u32) -> Vec<Filter> {
    let families = [false, true].into_iter().flat_map(|ipv6| {
        let stream = Stream {
            ipv6,
            ..Stream::default()
        };
        filter_conditions(conditions, &stream.source(), &stream.destination())
    });
    let filter = |condition: FilterCondition| Filter {
        permit: condition.permit,
        source: condition.source.first(),
        destination: condition.destination.first(),
    };
    families.map(filter).collect()
}

/// JSON document about labs.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum LabDocument<'a> {
    /// All labs: `lab ls --json`.
    Ls(Versioned<&'a LabList>),
    /// One lab: `lab up --json`.
    Up(Versioned<&'a LabStatus>),
}

/// Contents of a document with its schema version.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Versioned<T> {
    /// `wirebench.labs/1`.
    schema: &'static str,
    /// Contents of the document.
    #[serde(flatten)]
    contents: T,
}

impl<T> Versioned<T> {
    fn new(contents: T) -> Self {
        Self {
            schema: "wirebench.labs/1",
            contents,
        }
    }
}

impl LabDocument<'_> {
    fn text(&self) -> Result<String> {
        debug_assert_eq!(mismatch(self), None, "a document matches its schema");
        Ok(serde_json::to_string_pretty(self)?)
    }
}

fn share(text: &str) -> Result<f64, String> {
    parse_share(text)
        .map(wb_model::units::Rational::as_f64)
        .map_err(|e| e.to_string())
}

impl TopologyArgs {
    fn check(&self) -> Result<()> {
        if let (Some(jitter), Some(delay)) = (self.jitter, self.delay)
            && jitter > delay
        {
            bail!("--jitter: must be at most the delay ({delay}), got {jitter}");
        }
        Ok(())
    }

    fn impair(&self) -> Option<ImpairOptions> {
        let none = ImpairOptions::default();
        let asked = ImpairOptions {
            delay_ns: self.delay.map_or(none.delay_ns, Span::as_nanos),
            jitter_ns: self.jitter.map_or(none.jitter_ns, Span::as_nanos),
            loss: match (self.loss, self.loss_every) {
                (Some(ratio), _) => Loss::Ratio(ratio),
                (None, Some(n)) => Loss::Every(n),
                (None, None) => Loss::None,
            },
            duplicate: self.duplicate.unwrap_or(none.duplicate),
            reorder: self.reorder.unwrap_or(none.reorder),
            reorder_depth: self.reorder_depth.unwrap_or(none.reorder_depth),
            rate_bps: self.rate,
            both: self.both,
            // Hosts send no test frames.
            all: self.all || self.hosts == Some(None) && matches!(self.kind, Kind::Impair),
            seed: self.seed.unwrap_or(none.seed),
        };
        let has_device = matches!(self.kind, Kind::Impair | Kind::Fleet);
        (asked != none || has_device).then_some(asked)
    }

    fn balancer(&self) -> Option<BalancerOptions> {
        let standard = BalancerOptions::default();
        let asked = self.backends.is_some() || self.mode.is_some();
        (asked || matches!(self.kind, Kind::Balancer)).then(|| BalancerOptions {
            mode: match self.mode {
                None => standard.mode,
                Some(Mode::Dnat) => BalancerMode::Dnat,
                Some(Mode::Haproxy) => BalancerMode::Haproxy,
            },
            backends: self.backends.unwrap_or(standard.backends),
        })
    }

    fn options(&self) -> LabOptions {
        let standard = LabOptions::default();
        LabOptions {
            name: self.name.clone(),
            links: self.links.unwrap_or(standard.links),
            queues: self.queues.unwrap_or(standard.queues),
            mtu: self.mtu.unwrap_or(standard.mtu),
            hosts: self.hosts == Some(None),
            fleet_hosts: self.hosts.flatten(),
            limit_bps: self.limit,
            filters: self.filters.map_or_else(Vec::new, filters),
            impair: self.impair(),
            balancer: self.balancer(),
            ..standard
        }
    }
}

/// Options of `lab up`.
#[derive(Args, Debug)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    topology: TopologyArgs,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// Options of `lab down`.
#[derive(Args, Debug)]
pub(crate) struct DownArgs {
    /// Name of the lab.
    #[arg(value_name = "NAME", required_unless_present = "all")]
    name: Option<String>,
    /// Take down all unused labs and the remains of crashes.
    #[arg(long, conflicts_with = "name")]
    all: bool,
    /// Also take down a lab in use; with --all also labs with a living owner.
    #[arg(long)]
    force: bool,
}

/// Options of `lab ls`.
#[derive(Args, Debug)]
pub(crate) struct LsArgs {
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// Options of `lab exec`.
#[derive(Args, Debug)]
pub(crate) struct ExecArgs {
    /// Node of a lab, such as wb-pair-a.
    node: String,
    /// Command to run.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<String>,
}

/// Options of `lab run`.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    topology: TopologyArgs,
    /// Command to run, after --.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Impairing device, started by `lab up impair`.
#[derive(Args, Debug)]
pub(crate) struct ImpairDeviceArgs {
    /// File with the configuration of the device.
    file: std::path::PathBuf,
}

pub(crate) fn run(command: &LabCommand) -> Result<u8> {
    match command {
        LabCommand::Up(args) => {
            args.topology.check()?;
            let state = wb_testbed::up(
                args.topology.kind.lab(),
                &args.topology.options(),
                &fleet::programs,
                None,
            )?;
            let list = wb_testbed::list_labs()?;
            let Some(lab) = list.labs.iter().find(|l| l.name == state.name) else {
                bail!("lab {} was removed while it started", state.name);
            };
            print(&if args.json {
                LabDocument::Up(Versioned::new(lab)).text()?
            } else {
                describe(lab)
            });
            Ok(0)
        }
        LabCommand::Down(args) => down(args),
        LabCommand::Ls(args) => {
            let list = wb_testbed::list_labs()?;
            if args.json {
                print(&LabDocument::Ls(Versioned::new(&list)).text()?);
            } else if list.labs.is_empty() && list.stray_namespaces.is_empty() {
                print("no labs; create one with `wirebench lab up pair`");
            } else {
                for lab in &list.labs {
                    print(&describe(lab));
                }
                for stray in &list.stray_namespaces {
                    print(&format!(
                        "namespace {stray} belongs to no lab; remove it with `wirebench lab down --all`"
                    ));
                }
            }
            Ok(0)
        }
        LabCommand::Exec(args) => Ok(code(wb_testbed::exec(&args.node, &args.command)?)),
        LabCommand::Run(args) => {
            args.topology.check()?;
            if wb_testbed::gain_privileges()? {
                say("not root: the lab runs in a user namespace, with the packet driver");
            }
            let topology = &args.topology;
            Ok(code(wb_testbed::run(
                topology.kind.lab(),
                &topology.options(),
                &fleet::programs,
                &args.command,
            )?))
        }
    }
}

fn code(code: i32) -> u8 {
    u8::try_from(code).unwrap_or(1)
}

fn down(args: &DownArgs) -> Result<u8> {
    let Some(name) = &args.name else {
        let removed = wb_testbed::down_all(args.force)?;
        let mut lines = Vec::new();
        lines.extend(removed.labs.iter().map(|l| format!("removed lab {l}")));
        lines.extend(
            removed
                .namespaces
                .iter()
                .map(|n| format!("removed namespace {n}, which belonged to no lab")),
        );
        lines.extend(
            removed
                .processes
                .iter()
                .map(|p| format!("ended process {}, a device without a lab", p.pid)),
        );
        lines.extend(removed.kept.iter().map(|k| {
            format!(
                "kept lab {}: in use by process {} ({}); remove it with --force",
                k.name, k.owner.process.pid, k.owner.command
            )
        }));
        print(&if lines.is_empty() {
            "nothing to remove".to_owned()
        } else {
            lines.join("\n")
        });
        return Ok(0);
    };
    if let Some(user) = wb_testbed::lab_users(name)?.first().filter(|_| !args.force) {
        bail!("lab {name} is in use by {user}; remove it with --force");
    }
    wb_testbed::down(name)?;
    print(&format!("removed lab {name}"));
    Ok(0)
}

/// Returns the ports of a lab with their addresses.
fn ports(lab: &LabStatus) -> String {
    let mut ports = Table::new()
        .left("port")
        .left("MAC")
        .left("addresses")
        .left("connected to");
    for link in &lab.links {
        for (end, other) in [(&link.a, &link.b), (&link.b, &link.a)] {
            let addresses = if end.faces_tester() && end.kernel_addresses.is_empty() {
                let list: Vec<String> = end
                    .tester_addresses
                    .iter()
                    .map(ToString::to_string)
                    .collect();
                format!("{} (tester)", list.join(" "))
            } else {
                end.kernel_addresses.join(" ")
            };
            ports.row([end.locator(), end.mac.clone(), addresses, other.locator()]);
        }
    }
    ports.text(2)
}

/// Returns the description of a lab: ports, useful commands, and counters of an impairing device.
fn describe(lab: &LabStatus) -> String {
    let mut text = format!("lab {} ({}) is {}\n", lab.name, lab.kind, lab.state);
    text.push_str(&match &lab.fleet {
        Some(facts) => fleet::describe(lab, facts),
        None => ports(lab),
    });
    if let Some(limit) = &lab.limit {
        text.push_str(&format!(
            "  limit towards b: {} without FCS, burst {} bytes\n",
            figures::rate_bps(limit.rate_bps as f64),
            figures::count(limit.burst_bytes)
        ));
    }
    for program in &lab.programs {
        text.push_str(&format!(
            "  XDP program {} is attached to {} ({})\n",
            program.id, program.port, program.mode
        ));
    }
    let filters: Vec<&Filter> = lab.options.filters.iter().collect();
    if let Some(permitted) = filters.iter().find(|f| f.permit) {
        let n = filters.iter().filter(|f| f.source.is_ipv4()).count();
        text.push_str(&format!(
            "  forwards only {} -> {}, by {n} filter condition{} per address family\n",
            permitted.source,
            permitted.destination,
            if n == 1 { "" } else { "s" }
        ));
    }
    if let Some(counters) = lab.device.as_ref().and_then(|d| d.counters.as_ref()) {
        let ways = match lab.kind {
            LabKind::Fleet => ["odd to even", "even to odd"],
            _ => ["a to b", "b to a"],
        };
        text.push_str(&device_table(counters, ways).text(2));
    }
    let ends: Vec<String> = lab
        .links
        .iter()
        .flat_map(|l| [&l.a, &l.b])
        .filter(|e| e.faces_tester())
        .map(wb_testbed::End::locator)
        .collect();
    if lab.state == "broken" {
        text.push_str(&broken(lab));
    } else if lab.state == "orphaned" {
        text.push_str("  its owner has ended; remove it with: wirebench lab down --all\n");
    } else if let Some(facts) = &lab.balancer {
        text.push_str(&balancer::describe(&lab.name, facts));
    } else if let (Some(_), [one, two, ..]) = (
        lab.fleet.as_ref().and_then(|facts| facts.access.as_ref()),
        lab.fleet.as_ref().map_or(&[][..], |facts| &facts.hosts),
    ) {
        let of = match lab.name == LabKind::Fleet.name() {
            true => "lab".to_owned(),
            false => format!("lab:{}", lab.name),
        };
        text.push_str(&format!(
            "  try: wirebench trial --fleet {of} --tx {}:{} --rx {}:{} --rate 10kpps --duration 2s\n",
            one.name, one.port, two.name, two.port
        ));
    } else if let [tx, rx, ..] = ends.as_slice() {
        text.push_str(&format!(
            "  try: wirebench trial --tx {tx} --rx {rx} --rate 100kpps --duration 5s\n"
        ));
    }
    text
}

/// Returns the missing parts of a broken lab, and how to fix it.
fn broken(lab: &LabStatus) -> String {
    let mut missing: Vec<String> = lab
        .nodes
        .iter()
        .filter(|n| !n.present)
        .map(|n| format!("namespace {} is missing", n.node.namespace))
        .collect();
    if let Some(device) = lab.device.as_ref().filter(|d| !d.alive) {
        missing.push(format!(
            "the device (process {}) has ended",
            device.process.pid
        ));
    }
    for DaemonStatus { daemon, .. } in lab.daemons.iter().filter(|d| !d.alive) {
        missing.push(format!(
            "{} (process {}) has ended, see {}",
            daemon.name,
            daemon.process.pid,
            daemon.log.display()
        ));
    }
    if missing.is_empty() {
        missing.push("its creation was interrupted".to_owned());
    }
    format!(
        "  {}; remove it with: wirebench lab down {}\n",
        missing.join("; "),
        lab.name
    )
}

/// Returns the counters of an impairing device for both directions, which `ways` names.
fn device_table(counters: &DeviceCounters, ways: [&str; 2]) -> Table {
    let mut table = Table::new()
        .left("direction")
        .right("arrived")
        .right("lost")
        .right("duplicated")
        .right("reordered")
        .right("rate-dropped")
        .right("left")
        .right("passed");
    for (way, c) in ways.into_iter().zip([&counters.a_to_b, &counters.b_to_a]) {
        let c: &DirectionCounters = c;
        let figure = figures::count;
        table.row([
            way.to_owned(),
            figure(c.arrived),
            figure(c.lost),
            figure(c.duplicated),
            figure(c.reordered),
            figure(c.rate_dropped),
            figure(c.left),
            figure(c.passed),
        ]);
    }
    table
}

pub(crate) fn impair_device(args: &ImpairDeviceArgs) -> Result<u8> {
    wb_testbed::impair::device_main(&args.file)?;
    Ok(0)
}
