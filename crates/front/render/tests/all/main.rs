//! Renderings through the public interface of the crate.

mod charts;
mod edited;
mod goldens;
mod report;
mod samples;
mod snapshots;
mod suites;
