//! What the engine asks of the machine it runs on.

use std::net::IpAddr;

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
}

/// Clock ticks of each CPU since boot, by what they were spent on: the columns of `/proc/stat`: user,
/// nice, system, idle, iowait, irq, softirq, steal, guest, guest nice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// One row for each CPU that is online, with its number.
    pub cpus: Vec<(u32, [u64; 10])>,
}
