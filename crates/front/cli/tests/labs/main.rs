//! The binary in labs, with real frames. Needs root; without root every test prints that it was skipped.
//!
//! Several tests that only count run at once. A test that judges rates, times or stalls needs the machine to itself: its name
//! begins with `alone_`.

#[path = "../all/document_blocks.rs"]
mod document_blocks;
mod documents;
mod hostile;
mod killed_tests;
mod kit;
mod left_over_labs;
mod pktgen;
mod report;
mod screen;
mod suites;
