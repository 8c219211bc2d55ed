//! Comparison with the original.

mod original;
mod text;
mod words;
