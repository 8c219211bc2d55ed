//! State shared by all connections of a server: counters, buffer memory, connected clients.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr, Shutdown, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use wb_model::socket::{SocketServerJob, SocketServerReport};

use crate::{flow::LoopCounters, host::Host, waker::Waker};

/// Buffer memory of all tests together, bytes.
const MEMORY: u64 = 512 << 20;
/// Buffer memory of one client address, bytes.
const MEMORY_OF_ONE: u64 = 256 << 20;

/// State shared by connections.
pub(super) struct ServerState {
    pub job: SocketServerJob,
    pub host: Arc<dyn Host>,
    pub counts: ServerCounts,
    memory: Arc<Mutex<ReservedTotals>>,
    clients: Mutex<BTreeMap<u64, ClientEntry>>,
    closing: AtomicBool,
    /// Woken when a client has left.
    pub waker: Waker,
}

/// Memory reserved by tests.
#[derive(Debug, Default)]
struct ReservedTotals {
    all: u64,
    of_each: BTreeMap<IpAddr, u64>,
}

/// A control connection, visible to observers.
struct ClientEntry {
    control: Arc<TcpStream>,
    /// Address, reduced to the part that identifies a host.
    host: Option<IpAddr>,
    /// Counters of the running test.
    test: Option<Arc<LoopCounters>>,
}

impl ServerState {
    pub(super) fn new(job: SocketServerJob, host: Arc<dyn Host>) -> std::io::Result<Self> {
        Ok(Self {
            job,
            host,
            counts: ServerCounts::default(),
            memory: Arc::default(),
            clients: Mutex::default(),
            closing: AtomicBool::new(false),
            waker: Waker::new()?,
        })
    }

    fn clients(&self) -> MutexGuard<'_, BTreeMap<u64, ClientEntry>> {
        // A thread that panicked while holding the lock leaves consistent data.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of control connections.
    pub(super) fn connection_count(&self) -> usize {
        self.clients().len()
    }

    /// Returns true if the requested number of clients has been served and has left. One client may use several
    /// connections; a client without a test does not count.
    pub(super) fn has_served(&self) -> bool {
        let served = || ServerCounts::read(&self.counts.served);
        self.job.serves.is_some_and(|most| served() >= most) && self.connection_count() == 0
    }

    /// Returns true if another control connection from this address is allowed.
    pub(super) fn has_room(&self, from: IpAddr) -> bool {
        let many = |limit: u32| usize::try_from(limit).unwrap_or(usize::MAX);
        let host = Some(host_of(from));
        let clients = self.clients();
        clients.len() < many(self.job.clients)
            && clients
                .values()
                .filter(|client| client.host == host)
                .count()
                < many(self.job.clients_per_address)
    }

    /// Registers a control connection until the returned guard is dropped.
    pub(super) fn register_client(self: &Arc<Self>, control: &Arc<TcpStream>) -> ClientGuard {
        let mut clients = self.clients();
        let number = clients.last_key_value().map_or(0, |(last, _)| last + 1);
        clients.insert(
            number,
            ClientEntry {
                host: control.peer_addr().ok().map(|peer| host_of(peer.ip())),
                control: Arc::clone(control),
                test: None,
            },
        );
        ClientGuard {
            state: Arc::clone(self),
            number,
            tested: AtomicBool::new(false),
        }
    }

    /// Ends all control connections and their tests. Later connections end too.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        for client in self.clients().values() {
            let _ = client.control.shutdown(Shutdown::Both);
        }
    }

    /// Returns true if [`close`](Self::close) was called.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Bytes of all tests so far, including running ones.
    pub(super) fn total_bytes(&self) -> u64 {
        let running: u64 = self
            .clients()
            .values()
            .filter_map(|client| client.test.as_ref())
            .map(|counters| counters.bytes())
            .sum();
        let counts = &self.counts;
        running
            + ServerCounts::read(&counts.bytes_received)
            + ServerCounts::read(&counts.bytes_sent)
    }

    /// Reserves buffer memory for a client until the returned guard is dropped. `None` if the total or the address
    /// limit is exceeded.
    pub(super) fn reserve_memory(&self, bytes: u64, client: IpAddr) -> Option<MemoryReservation> {
        let host = host_of(client);
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let all = memory.all.checked_add(bytes).filter(|all| *all <= MEMORY)?;
        let of_one = memory.of_each.get(&host).copied().unwrap_or(0) + bytes;
        if of_one > MEMORY_OF_ONE {
            return None;
        }
        memory.all = all;
        memory.of_each.insert(host, of_one);
        drop(memory);
        Some(MemoryReservation {
            memory: Arc::clone(&self.memory),
            host,
            bytes,
        })
    }
}

/// Address for per-host limits: the owner of an IPv6 address usually has the whole /64.
fn host_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => {
            let network = u128::from(v6) & !u128::from(u64::MAX);
            Ipv6Addr::from(network).into()
        }
        other => other,
    }
}

/// Keeps a control connection registered.
pub(super) struct ClientGuard {
    state: Arc<ServerState>,
    number: u64,
    tested: AtomicBool,
}

impl ClientGuard {
    /// Publishes the counters of a running test; `None` when it is over.
    pub(super) fn publish_counters(&self, test: Option<Arc<LoopCounters>>) {
        self.tested.fetch_or(test.is_some(), Ordering::Relaxed);
        if let Some(client) = self.state.clients().get_mut(&self.number) {
            client.test = test;
        }
    }
}

impl Drop for ClientGuard {
    fn drop(&mut self) {
        if self.tested.load(Ordering::Relaxed) {
            ServerCounts::add_one(&self.state.counts.served);
        }
        self.state.clients().remove(&self.number);
        self.state.waker.wake();
    }
}

/// Reserved memory.
#[derive(Debug)]
pub(super) struct MemoryReservation {
    memory: Arc<Mutex<ReservedTotals>>,
    host: IpAddr,
    bytes: u64,
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.all -= self.bytes;
        if let Some(of_one) = memory.of_each.get_mut(&self.host) {
            *of_one -= self.bytes;
            if *of_one == 0 {
                memory.of_each.remove(&self.host);
            }
        }
    }
}

/// Counters of the report, updated by many threads.
#[derive(Debug, Default)]
pub(super) struct ServerCounts {
    pub clients: AtomicU64,
    pub rejected: AtomicU64,
    pub strangers: AtomicU64,
    pub given_up: AtomicU64,
    pub unauthorised: AtomicU64,
    pub tests: AtomicU64,
    /// Clients that left after a test.
    pub served: AtomicU64,
    pub completed: AtomicU64,
    pub failed: AtomicU64,
    pub bytes_received: AtomicU64,
    pub bytes_sent: AtomicU64,
}

impl ServerCounts {
    /// Adds one.
    pub(super) fn add_one(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds `more`.
    pub(super) fn add(counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Ordering::Relaxed);
    }

    fn read(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }

    pub(super) fn report(&self) -> SocketServerReport {
        SocketServerReport {
            clients: Self::read(&self.clients),
            turned_away: Self::read(&self.rejected),
            strangers: Self::read(&self.strangers),
            given_up: Self::read(&self.given_up),
            unauthorised: Self::read(&self.unauthorised),
            tests: Self::read(&self.tests),
            completed: Self::read(&self.completed),
            failed: Self::read(&self.failed),
            bytes_received: Self::read(&self.bytes_received),
            bytes_sent: Self::read(&self.bytes_sent),
        }
    }
}
