//! Against the original.

mod original;
mod words;
