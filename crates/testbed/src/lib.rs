//! Labs: ready-made topologies of network namespaces, with a device under test in the middle.
//!
//! A lab is made by [`up`], remembered in a small file, and taken down by [`down`], [`down_all`] or
//! the [`Lab`] guard. Nodes are network namespaces `wb-LAB-NODE`, so that `ip netns exec` works on
//! them. Knows ports and the host; nothing of plans and streams, and it prints nothing.
//!
//! | module | holds |
//! |---|---|
//! | `topology` | the kinds of labs, their options, and which nodes, links and addresses they have |
//! | `state` | the files that remember labs, and where they are |
//! | `lab` | up, down, what there is, the ports' neighbours |
//! | `run` | commands inside a node, and beside a lab that lives as long as they do |
//! | `balancer` | the device under test of the `balancer` lab: nftables or haproxy |
//! | `filters`, `nft` | what the router lets through, and how the kernel is told |
//! | [`impair`] | the device under test of the `impair` lab, a process of its own |
//! | `user` | a user namespace for those who are not root |

pub mod impair;

mod balancer;
mod error;
mod filters;
mod lab;
mod nft;
mod process;
mod run;
mod shaping;
mod state;
mod topology;
mod user;

pub use balancer::{Balancer, BalancerMode, BalancerOptions, BalancerSide};
pub use error::{Result, TestbedError};
pub use filters::Filter;
pub use lab::{
    DeviceStatus, EndProgram, Lab, LabList, LabStatus, NodeStatus, OwnerStatus, PortHint, Removed,
    Sweep, down, down_all, find_port, ls, sweep, up, users,
};
pub use run::{exec, run};
pub use shaping::Limit;
pub use state::{LabState, Owner, Process};
pub use topology::{DeviceDriver, End, LabKind, LabOptions, LinkEnds, Node};
pub use user::enter_user_namespace;
