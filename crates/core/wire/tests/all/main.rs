//! Frames through the public face of the crate.

mod headers;
mod laws;
mod presence;
mod vectors;
