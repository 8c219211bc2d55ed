//! Loads through the public face of the crate.

mod common;
mod http;
mod joined;
mod paced;
mod presence;
