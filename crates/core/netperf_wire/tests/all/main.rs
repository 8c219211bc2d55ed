//! Messages through the public API of the crate.

mod laws;
mod places;
mod recorded;
mod vectors;
