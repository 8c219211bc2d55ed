//! Queries about the machine, answered by the caller.

pub use wb_model::device::{Interface, Link};
pub use wb_pktgen_device::DeviceTime;

/// Properties of the machine on which the control files depend.
pub trait PktgenMachine {
    /// Interface with this name, if it exists.
    fn interface(&self, name: &str) -> Option<Interface>;
    /// Returns true if this NUMA node may exist.
    fn node_possible(&self, node: i32) -> bool;
    /// Returns true if the writer has CAP_NET_ADMIN.
    fn may_administer(&self) -> bool;
}
