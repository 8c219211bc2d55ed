//! Tests of runs through the public interface of the crate.

mod ends;
mod frames;
mod several;
mod threads;
