//! Tests of the public API: tcpdump's lines.

mod laws;
mod vectors;
