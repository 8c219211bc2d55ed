//! HTTP/1.x messages through the crate's public face.

mod heads;
mod reading;
mod requests;
mod stream;
mod strictness;
