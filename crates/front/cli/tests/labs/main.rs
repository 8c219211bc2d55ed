//! The binary in labs, with real frames. Needs root; without it every test says that it was skipped.
//!
//! One lab at a time: the machine's CPUs are part of what is measured, so tests wait for each other.

mod capture;
mod faults;
mod impair;
mod input;
mod kit;
mod pktgen;
mod plans;
mod router;
mod trial;
mod wire;
