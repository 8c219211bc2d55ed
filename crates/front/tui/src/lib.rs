//! The live screen of a run, or of counters over time: snapshots, the timeline and readings, drawn on a
//! terminal of any size.
//!
//! Pure: [`Screen`] is fed with snapshots, figures and keys, and [`draw`] draws it into a frame. The crate knows no
//! terminal, no thread and no clock. A page states which figures are not measured during a run, and never invents them.

#![forbid(unsafe_code)]

mod bars;
mod draw;
mod figures;
mod keys;
mod pages;
mod progress;
mod screen;
mod section;
mod stat;
mod suite;

pub use draw::{LEAST_HEIGHT, LEAST_WIDTH, draw};
pub use keys::{Key, Keys};
pub use screen::{About, Action, Page, Screen};
pub use section::{Row, Section, Tone};
pub use stat::Reading;
