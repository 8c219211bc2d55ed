//! Renders reports and snapshots as text, JSON, CSV and JUnit XML, and charts and pages of them as SVG and HTML.
//!
//! Pure functions from typed values to text and bytes: nothing here prints, reads a clock or queries
//! the size of a terminal. Documents end with a line feed, single lines do not.

#![forbid(unsafe_code)]

pub mod chart;
pub mod csv;
pub mod findings;
pub mod json;
pub mod junit;
pub mod linerate;
pub mod live;
pub mod metrics;
pub mod report;
pub mod stat;
pub mod suite;
pub mod text;

mod markup;
mod page;
mod sections;
mod summary;

pub use summary::plan_target;
pub use wb_figures::{table, text as figures};
