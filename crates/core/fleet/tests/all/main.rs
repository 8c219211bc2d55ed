//! Agents and controllers on a bus in memory, in virtual time.

mod agents;
mod barrier;
mod clocks;
mod compared_clocks;
mod failures;
mod hostile_messages;
mod merging;
mod messages;
mod scale;
mod seeds;
mod world;
