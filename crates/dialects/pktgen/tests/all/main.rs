//! pktgen's language through the public face of the crate.

mod differential;
mod laws;
mod runs;
mod vectors;
