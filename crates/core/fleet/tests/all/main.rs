//! Agents and controllers on a bus in memory, in virtual time.

mod barrier;
mod engine;
mod failures;
mod scale;
mod seeds;
mod world;
