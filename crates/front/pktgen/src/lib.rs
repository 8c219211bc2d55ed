//! Control folder of the packet generator: passes writes to the dialect, runs its devices as a plan in a session, and
//! stores the results in the files.

mod extra;
mod plan;
mod rates;
mod receive;
mod service;
mod world;

pub use extra::{PgrxDocument, PktgenDeviceDocument};
pub use plan::PlanOptions;
pub use service::{Options, Program, Service};
pub use world::Host;
