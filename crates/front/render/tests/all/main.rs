//! Renderings through the public face of the crate.

mod charts;
mod samples;
mod snapshots;
