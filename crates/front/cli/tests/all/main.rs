//! What needs no lab: the sources, texts, files.

mod architecture;
mod bench;
mod help;
mod metrics;
mod read;
