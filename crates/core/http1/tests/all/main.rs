//! HTTP/1.x messages through the crate's public API.

mod heads;
mod reading;
mod requests;
mod stream;
mod strictness;
