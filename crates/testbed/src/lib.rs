//! Labs: ready-made topologies of network namespaces, with a device under test in the middle.
//!
//! [`up`] makes a lab and stores it in a small file; [`down`], [`down_all`] or
//! the [`Lab`] guard take it down. Nodes are network namespaces `wb-LAB-NODE`, so that `ip netns exec` works on
//! them. Knows ports and the host, but no plans or streams, and prints nothing.
//!
//! | module | contents |
//! |---|---|
//! | `topology` | kinds of labs, their options, nodes, links and addresses |
//! | `state` | lab files and their folder |
//! | `lab` | creation, removal, status, neighbours of ports |
//! | `run` | commands inside a node, and commands with a temporary lab |
//! | `balancer` | the device under test of the `balancer` lab: nftables or haproxy |
//! | `daemon` | programs in the nodes: start, readiness |
//! | `fleet` | hosts, bridges and management network of the `fleet` lab |
//! | `filters`, `nft` | filter of the router, and loading of nftables rules |
//! | [`impair`] | the device under test of the `impair` lab, a separate process |
//! | `self_test` | frames that captures lose on a busy machine |
//! | `user` | a user namespace for unprivileged users |

pub mod impair;

mod balancer;
mod daemon;
mod error;
mod filters;
mod fleet;
mod lab;
mod nft;
mod process;
mod run;
mod self_test;
mod shaping;
mod state;
mod topology;
mod user;

pub use balancer::{Balancer, BalancerMode, BalancerOptions, BalancerSide};
pub use daemon::{Daemon, Ready, StartedDaemon, find_program, no_daemons};
pub use error::{Result, TestbedError};
pub use filters::Filter;
pub use fleet::{Fleet, FleetHost, fleet_access};
pub use lab::{
    DaemonStatus, DeviceStatus, EndProgram, Lab, LabList, LabStatus, MakeDaemons, NodeStatus,
    OwnerStatus, PortHint, SweepResult, SweepScope, down, down_all, find_port, lab_users,
    list_labs, sweep, up,
};
pub use process::end_with_this_thread;
pub use run::{exec, run};
pub use self_test::{
    CaptureTool, SelfTest, SelfTestDocument, SelfTestEnvironment, SelfTestOptions, SelfTestOutcome,
};
pub use shaping::Limit;
pub use state::{LabState, Owner, Process};
pub use topology::{Bridge, DeviceDriver, End, LabKind, LabOptions, LinkEnds, Node};
pub use user::{enter_user_namespace, gain_privileges};
