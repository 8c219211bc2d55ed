//! Files through the public face of the crate.

mod judges;
mod laws;
mod mutations;
mod reference;
mod vectors;
