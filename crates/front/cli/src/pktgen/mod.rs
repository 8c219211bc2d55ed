//! The control folder of the packet generator: what is written goes to the dialect, what is to run
//! goes to a session as a plan, what came of it goes back into the files.

mod extra;
mod plan;
mod rates;
mod receive;
mod service;
mod world;

pub(crate) use plan::PlanOptions;
pub(crate) use service::{Options, Service};
pub(crate) use world::Host;
