//! What the language must know of the machine, as questions to the caller.

pub use wb_model::device::{Interface, Link};
pub use wb_pktgen_device::Time;

/// The machine, as far as the control files ask about it.
pub trait World {
    /// The interface of this name, if there is one.
    fn interface(&self, name: &str) -> Option<Interface>;
    /// Whether this NUMA node may exist.
    fn node_possible(&self, node: i32) -> bool;
    /// Whether the writer has CAP_NET_ADMIN.
    fn may_administer(&self) -> bool;
}
