//! Metrics, each declared once.
//!
//! A report type declares its figures in a static table of [`Field`]s, in the file next to the type. A [`Section`] holds
//! the figures, sums, tables, notes and plots of one job. Text, Markdown, HTML, CSV, comparisons and criteria are made
//! from sections and know no kind of job.

#![forbid(unsafe_code)]

mod field;
mod merge;
mod section;
pub mod table;
pub mod text;
mod unit;
mod value;

pub use field::{Better, Def, Field, Kind, Show, attach, merge_fields};
pub use merge::{AsTimes, Merge};
pub use section::{Figure, Note, Plot, Section, Series, Sum, Table, Tone};
pub use unit::Unit;
pub use value::Value;
