//! AF_XDP on the ends of veth pairs.
#![cfg(feature = "bpf")]

#[macro_use]
mod lab;

mod consume;
mod group;
mod veth;
