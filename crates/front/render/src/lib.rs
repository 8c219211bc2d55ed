//! Report and snapshots to text, JSON and CSV.
//!
//! Pure functions from typed values to text; nothing here prints, reads a clock or asks for the
//! size of a terminal. Documents end with a line feed, single lines do not.

#![forbid(unsafe_code)]

pub mod csv;
pub mod figures;
pub mod findings;
pub mod json;
pub mod lb;
pub mod linerate;
pub mod live;
pub mod table;
pub mod text;

mod page;
