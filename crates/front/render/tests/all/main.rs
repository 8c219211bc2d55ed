//! Renderings through the public face of the crate.

mod charts;
mod goldens;
mod report;
mod samples;
mod snapshots;
mod suites;
