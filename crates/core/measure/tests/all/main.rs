//! Tests of measurements through the public API.

mod laws;
mod outages;
mod vectors;
