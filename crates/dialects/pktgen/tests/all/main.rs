//! Tests of the public API: pktgen's control files.

mod differential;
mod laws;
mod runs;
mod vectors;
