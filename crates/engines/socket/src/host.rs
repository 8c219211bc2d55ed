//! What the engine asks of the machine it runs on.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use wb_model::socket::Family;

/// Answers about the machine. The session gives one; tests have their own.
pub trait Host: Send + Sync {
    /// Addresses of a name, in the resolver's order, of the family.
    ///
    /// # Errors
    /// What the resolver says, in a line, without the name.
    fn resolve(&self, name: &str, family: Family) -> Result<Resolved, String>;

    /// Time that CPUs have spent so far, if the machine tells.
    fn cpu_times(&self) -> Option<CpuTimes>;

    /// Ties the calling thread to a CPU.
    ///
    /// # Errors
    /// Why not, in a line.
    fn bind_cpu(&self, cpu: u32) -> Result<(), String>;

    /// Whether an interface of the machine has this address, or it is a loopback address.
    fn has_address(&self, address: IpAddr) -> bool;
}

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The resolver's canonical name.
    pub name: String,
    /// At least one address.
    pub addresses: Vec<IpAddr>,
    /// Index of the interface that a link-local address belongs to; 0 where none was named.
    pub scope: u32,
}

/// Address and port; a link-local address with the interface that it belongs to.
#[must_use]
pub(crate) fn endpoint(address: IpAddr, port: u16, scope: u32) -> SocketAddr {
    match address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            SocketAddrV6::new(v6, port, 0, scope).into()
        }
        _ => SocketAddr::new(address, port),
    }
}

/// Clock ticks of each CPU since boot, by what they were spent on: the columns of `/proc/stat`: user,
/// nice, system, idle, iowait, irq, softirq, steal, guest, guest nice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// One row for each CPU that is online, with its number.
    pub cpus: Vec<(u32, [u64; 10])>,
}
