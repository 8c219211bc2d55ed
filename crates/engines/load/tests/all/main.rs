//! Loads through the public interface of the crate.

mod common;
mod http;
mod joined;
mod paced;
mod presence;
