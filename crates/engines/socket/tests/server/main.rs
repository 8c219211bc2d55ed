//! The server as clients see it, over loopback.

mod client;
mod foreign_peers;
mod kinds;
mod misbehaving_clients;
mod netperf;
mod ours;
mod refusals;
mod vectors;
