//! Tests of frames through the public API.

mod headers;
mod laws;
mod presence;
mod vectors;
