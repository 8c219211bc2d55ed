//! Tests of runs through the public interface of the crate.

mod ends;
mod frames;
mod halves;
mod several;
mod threads;
