//! Loads through the public face of the crate.

mod common;
mod joined;
mod paced;
mod presence;
