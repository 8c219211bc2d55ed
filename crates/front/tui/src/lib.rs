//! The live screen of a run, or of counters over time: what snapshots, the timeline and readings say, drawn on a
//! terminal of any size.
//!
//! Pure: [`Screen`] is fed with snapshots, figures and keys, [`draw`] puts it into a frame. It knows no terminal, no
//! thread and no clock. What is not measured while a run goes on is not invented: the page says so.

#![forbid(unsafe_code)]

mod bars;
mod draw;
mod figures;
mod keys;
mod pages;
mod screen;
mod section;
mod stat;
mod suite;

pub use draw::{LEAST_HEIGHT, LEAST_WIDTH, draw};
pub use keys::{Key, Keys};
pub use screen::{About, Action, Page, Screen};
pub use section::{Row, Section, Tone};
pub use stat::Reading;
