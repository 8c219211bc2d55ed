//! netperf's texts through the public face of the crate.

mod made;
mod messages;
mod recorded;
mod selected;
mod tables;
