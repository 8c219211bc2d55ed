//! Workers through the public interface of the crate.

mod common;
mod conservation;
mod device;
mod offload;
mod schedule;
mod watch;
mod wire;
mod worker;
