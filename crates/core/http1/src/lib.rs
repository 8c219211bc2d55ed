//! HTTP/1.x as load tests need it.

#![forbid(unsafe_code)]

pub mod script;
