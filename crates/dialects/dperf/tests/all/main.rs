//! dperf's language through the public face of the crate.

mod examples;
mod laws;
mod plan;
mod vectors;
