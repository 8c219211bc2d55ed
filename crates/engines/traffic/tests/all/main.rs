//! Workers through the public face of the crate.

mod common;
mod conservation;
mod device;
mod offload;
mod schedule;
mod watch;
mod wire;
mod worker;
