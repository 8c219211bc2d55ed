//! The fleet of this host: its broker, and its agent in this process. Other hosts may join.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::fs::{FlockOperation, flock};
use wb_machine::{Netlink, netns::Namespace};
use wb_model::Plan;
use wb_runs::Grants;
use wb_session::{PortHint, Signals};

use crate::{
    agent::{self, AgentOptions, CLOCK_PORT},
    broker::Broker,
    pki::{self, Access, in_file},
};

/// Port of the broker.
const PORT: u16 = 4222;
/// Time in which the broker must listen.
const PATIENCE: Duration = Duration::from_secs(5);

/// Settings of the fleet of this host.
#[derive(Clone, Copy, Debug)]
pub struct LocalOptions {
    /// Hints for the ports of a plan.
    pub hints: fn(&Plan) -> BTreeMap<String, PortHint>,
    /// Says something to the user.
    pub say: fn(&str),
}

/// Broker and agent of the fleet of this host. They end with this value. If another process runs them already, the value
/// has only the access.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) access: Access,
    signals: Signals,
    agent: Option<JoinHandle<()>>,
    /// Ends after the agent, which delivers its results to it.
    _broker: Option<Broker>,
    _lock: File,
}

/// Opens the fleet in the folder of this host, or makes it. Its broker is reached at the addresses of this host.
///
/// # Errors
/// If the addresses cannot be read, or the folder cannot be written.
pub fn open(folder: &Path) -> io::Result<pki::Fleet> {
    let servers = addresses()?;
    let fleet = match pki::Fleet::open(folder) {
        Ok(fleet) => fleet,
        Err(_) => return pki::Fleet::init(folder, &servers),
    };
    fleet.set_servers(&servers)?;
    Ok(fleet)
}

impl Local {
    /// Starts the broker and the agent, unless another process has done so.
    pub(crate) fn start(folder: &Path, options: LocalOptions) -> io::Result<Self> {
        let fleet = open(folder)?;
        let path = folder.join("lock");
        let lock = File::create(&path).map_err(|e| in_file(&path, &e))?;
        let is_first = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        let signals = Signals::none();
        let at_loopback = |name: &str| {
            let access = Access::read(&fleet.access_file(name))?;
            Ok::<_, io::Error>(Access {
                servers: vec![format!("tls://127.0.0.1:{PORT}")],
                ..access
            })
        };
        let mut local = Self {
            access: at_loopback(pki::CONTROLLER)?,
            signals: signals.clone(),
            agent: None,
            _broker: None,
            _lock: lock,
        };
        if !is_first {
            return Ok(local);
        }
        let own = host_name();
        fleet.add(&own)?;
        local._broker = Some(broker(&fleet, folder)?);
        let agent = AgentOptions {
            access: at_loopback(&own)?,
            ports: Vec::new(),
            grants: Grants::default(),
            labels: BTreeMap::new(),
            clock_port: Some(CLOCK_PORT),
            state: folder.join("agent"),
            protocol: None,
            version: None,
            hints: options.hints,
            say: |_| {},
        };
        let run = move || {
            if let Err(error) = agent::run(&agent, &signals) {
                (options.say)(&format!("agent of this host: {error}"));
            }
        };
        let thread = thread::Builder::new().name("wb-agent".to_owned());
        local.agent = Some(thread.spawn(run)?);
        Ok(local)
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if let Some(agent) = self.agent.take() {
            self.signals.raise(15);
            let _ = agent.join();
        }
    }
}

/// Starts the broker and waits until it listens.
fn broker(fleet: &pki::Fleet, folder: &Path) -> io::Result<Broker> {
    // The lock of the folder is ours, so a broker of the folder is of a process that was killed.
    fleet.end_broker();
    let until = Instant::now() + PATIENCE;
    let free = loop {
        match TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                thread::sleep(Duration::from_millis(50));
            }
            bound => break bound,
        }
    };
    free.map_err(|e| {
        io::Error::other(format!(
            "the broker of this host needs TCP port {PORT}: {e}; end the program that has it, or give the fleet of that broker"
        ))
    })?;
    let log = folder.join("broker.log");
    let mut broker = Broker::start(&fleet.broker_file(), &log)?;
    let until = Instant::now() + PATIENCE;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
    while TcpStream::connect(address).is_err() {
        if let Some(why) = broker.ended() {
            let last = fs::read_to_string(&log).unwrap_or_default();
            let last = last.lines().last().unwrap_or_default();
            return Err(io::Error::other(format!("{why}: {last}")));
        }
        if Instant::now() >= until {
            return Err(in_file(&log, &"nats-server does not listen"));
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(broker)
}

/// Name of this host in plans.
fn host_name() -> String {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .to_lowercase();
    let first = name.split('.').next().unwrap_or_default();
    let allowed = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = first.chars().map(allowed).take(63).collect();
    let name = name.trim_matches('-').to_owned();
    match wb_model::locator::is_host(&name) {
        true => name,
        false => "local".to_owned(),
    }
}

/// Addresses at which other hosts reach the broker, each with its port.
fn addresses() -> io::Result<Vec<String>> {
    let all = global_addresses()?.into_iter();
    let mut all: Vec<String> = all.map(|a| SocketAddr::new(a, PORT).to_string()).collect();
    all.sort();
    if all.is_empty() {
        all.push(SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)).to_string());
    }
    Ok(all)
}

/// Addresses of this host that are neither loopback nor link-local.
pub(crate) fn global_addresses() -> io::Result<BTreeSet<IpAddr>> {
    let netlink = Namespace::current().and_then(|own| Netlink::open(&own));
    let netlink = netlink.map_err(io::Error::other)?;
    let links = netlink.links().map_err(io::Error::other)?;
    let all = links
        .iter()
        .flat_map(|link| netlink.addresses(&link.name).unwrap_or_default());
    let global = all
        .map(|known| known.address)
        .filter(|address| match address {
            IpAddr::V4(a) => !a.is_loopback() && !a.is_link_local(),
            IpAddr::V6(a) => !a.is_loopback() && !a.is_unicast_link_local(),
        });
    Ok(global.collect())
}
