//! Messages through the public face of the crate.

mod laws;
mod places;
mod recorded;
mod vectors;
