//! Emulated stations at a port: each answers for its addresses with its own hardware address, and finds its gateways.
//!
//! They are independent of runs. Their socket sees only ARP, neighbour discovery and echo.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use wb_model::{Plan, plan::PortPlan, units::AddressRange};
use wb_open::{StartError, find_wire};
use wb_packet::{ControlKind, ControlSocket};
use wb_wire::{MacAddr, NeighbourResponder, arp_request, neighbour_solicitation};

use crate::guard::{Guard, Source};

/// Interval between requests for a gateway that has not answered.
const RETRY: Duration = Duration::from_secs(1);
/// Interval between requests for a gateway that has answered.
const REFRESH: Duration = Duration::from_secs(30);
/// Longest wait for frames.
const TURN: Duration = Duration::from_millis(50);

/// Station with a hardware address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Station {
    /// Name, for the caller.
    pub name: String,
    /// Hardware address.
    pub mac: [u8; 6],
    /// Addresses, each with its gateway.
    pub addresses: Vec<(IpAddr, IpAddr)>,
}

/// Gateways that answered: hardware addresses by station and address.
type Known = BTreeMap<(String, IpAddr), [u8; 6]>;

/// Stations at one port, until they are dropped.
pub struct Stations {
    stop: Arc<AtomicBool>,
    known: Arc<Mutex<Known>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Stations {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stations {
    /// Starts stations at a port. `owns_network` is the consent to use any address.
    ///
    /// # Errors
    /// If the port or the addresses cannot be used.
    pub fn start(
        port: &PortPlan,
        stations: Vec<Station>,
        owns_network: bool,
    ) -> Result<Self, StartError> {
        let guard = Guard::of(&Plan {
            i_own_this_network: owns_network,
            ..Plan::default()
        });
        let wire = find_wire(port)?;
        let mut checked = port.clone();
        for (address, gateway) in stations.iter().flat_map(|station| &station.addresses) {
            let both = [*address, *gateway].map(AddressRange::single);
            checked.addresses.extend(both);
        }
        guard.admit(port, &wire, &[Source::Neighbours(&checked)])?;
        let interface = &wire.interface;
        let socket = wb_machine::in_namespace(&wire.namespace, || {
            ControlSocket::open(interface, ControlKind::Presence)
        });
        let socket = socket.map_err(|cause| StartError::host(&port.locator, cause))??;
        let (stop, known) = (Arc::default(), Arc::default());
        let work = StationWork {
            socket,
            stations: stations.into_iter().map(StationState::new).collect(),
            guard,
            stop: Arc::clone(&stop),
            known: Arc::clone(&known),
        };
        let thread = std::thread::Builder::new()
            .name(format!("wb-arp-{}", port.name))
            .spawn(move || work.run())
            .map_err(|cause| StartError::System {
                operation: "start a thread",
                cause,
            })?;
        Ok(Self {
            stop,
            known,
            thread: Some(thread),
        })
    }

    /// Hardware address of a gateway of a station, once it has answered.
    #[must_use]
    pub fn neighbour(&self, station: &str, gateway: IpAddr) -> Option<[u8; 6]> {
        let key = (station.to_owned(), gateway);
        lock(&self.known).get(&key).copied()
    }
}

/// A station, and when it asks for each gateway.
struct StationState {
    station: Station,
    responder: NeighbourResponder,
    due: Vec<Instant>,
}

impl StationState {
    fn new(station: Station) -> Self {
        let addresses = station.addresses.iter().map(|(address, _)| *address);
        Self {
            responder: NeighbourResponder::new(MacAddr(station.mac), addresses),
            due: vec![Instant::now(); station.addresses.len()],
            station,
        }
    }
}

struct StationWork {
    socket: ControlSocket,
    stations: Vec<StationState>,
    guard: Guard,
    stop: Arc<AtomicBool>,
    known: Arc<Mutex<Known>>,
}

impl StationWork {
    fn run(mut self) {
        let mut out = [0; 1518];
        let mut answers: Vec<Vec<u8>> = Vec::new();
        while !self.stop.load(Ordering::Relaxed) {
            self.ask();
            let (stations, known, guard) = (&self.stations, &self.known, self.guard);
            let seen = self.socket.receive(TURN, |frame| {
                // A test frame is measured, not answered.
                if wb_wire::find_tag(frame.bytes).is_some() {
                    return;
                }
                for state in stations {
                    let responder = &state.responder;
                    if let Some(len) = responder.answer(frame.bytes, &mut out)
                        && guard.may_answer(&out[..len])
                    {
                        answers.push(out[..len].to_vec());
                    }
                    if let Some((address, mac)) = responder.learn(frame.bytes)
                        && state.station.addresses.iter().any(|(_, g)| *g == address)
                    {
                        let key = (state.station.name.clone(), address);
                        lock(known).insert(key, mac.0);
                    }
                }
            });
            for answer in answers.drain(..) {
                // A neighbour repeats its request if this answer is lost.
                let _ = self.socket.send(&answer);
            }
            if seen.is_err() {
                std::thread::sleep(TURN);
            }
        }
    }

    /// Sends the requests that are due.
    fn ask(&mut self) {
        let now = Instant::now();
        for state in &mut self.stations {
            let mac = MacAddr(state.station.mac);
            let addresses = state.station.addresses.iter().zip(&mut state.due);
            for ((address, gateway), due) in addresses.filter(|(_, due)| **due <= now) {
                let mut out = [0; 256];
                let len = match (*address, *gateway) {
                    (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                        arp_request(mac, ours, theirs, &[], &mut out)
                    }
                    (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                        neighbour_solicitation(mac, ours, theirs, &[], &mut out)
                    }
                    _ => None,
                };
                if let Some(len) = len {
                    let _ = self.socket.send(&out[..len]);
                }
                let key = (state.station.name.clone(), *gateway);
                let is_known = lock(&self.known).contains_key(&key);
                *due = now + if is_known { REFRESH } else { RETRY };
            }
        }
    }
}
