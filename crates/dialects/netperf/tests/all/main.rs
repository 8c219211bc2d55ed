//! Tests of the public API: netperf's texts.

mod made;
mod messages;
mod recorded;
mod selected;
mod tables;
