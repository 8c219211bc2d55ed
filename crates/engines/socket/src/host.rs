//! Information that the engine needs about its machine.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use wb_model::socket::Family;

/// Queries about the machine. The engine provides one; tests provide another.
pub trait Host: Send + Sync {
    /// Addresses of a name, of the given family, in the resolver's order.
    ///
    /// # Errors
    /// Returns the resolver's error in one line, without the name.
    fn resolve(&self, name: &str, family: Family) -> Result<Resolved, String>;

    /// CPU times so far, if available.
    fn cpu_times(&self) -> Option<CpuTimes>;

    /// Binds the calling thread to a CPU.
    ///
    /// # Errors
    /// Returns the reason in one line.
    fn bind_cpu(&self, cpu: u32) -> Result<(), String>;

    /// Returns true if an interface of the machine has this address, or if it is a loopback address.
    fn has_address(&self, address: IpAddr) -> bool;
}

/// Result of a name resolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The resolver's canonical name.
    pub name: String,
    /// At least one address.
    pub addresses: Vec<IpAddr>,
    /// Index of the interface of a link-local address; 0 if none was given.
    pub scope: u32,
}

/// Address and port; a link-local address includes its interface.
#[must_use]
pub(crate) fn endpoint(address: IpAddr, port: u16, scope: u32) -> SocketAddr {
    match address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            SocketAddrV6::new(v6, port, 0, scope).into()
        }
        _ => SocketAddr::new(address, port),
    }
}

/// Clock ticks of each CPU since boot, in the columns of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq,
/// steal, guest, guest nice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// One row per online CPU, with its number.
    pub cpus: Vec<(u32, [u64; 10])>,
}
