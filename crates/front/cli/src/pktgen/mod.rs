//! Control folder of the packet generator: passes writes to the dialect, runs its devices as a plan in a session, and
//! stores the results in the files.

mod extra;
mod plan;
mod rates;
mod receive;
mod service;
mod world;

pub(crate) use extra::{PgrxDocument, PktgenDeviceDocument};
pub(crate) use plan::PlanOptions;
pub(crate) use service::{Options, Service};
pub(crate) use world::Host;
