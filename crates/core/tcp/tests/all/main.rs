//! Tests of the state machine through the public API.

mod behaviour;
mod common;
mod datagrams;
mod http;
mod icmp;
mod long;
mod mix;
mod paced;
mod path;
mod retransmission;
mod routes;
mod vectors;
mod wild;
