//! The server as clients see it, over loopback.

mod client;
mod guests;
mod kinds;
mod netperf;
mod ours;
mod refusals;
mod strangers;
mod vectors;
