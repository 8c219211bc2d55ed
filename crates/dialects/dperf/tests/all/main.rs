//! Tests of the public API: dperf's configuration language.

mod examples;
mod laws;
mod plan;
mod vectors;
