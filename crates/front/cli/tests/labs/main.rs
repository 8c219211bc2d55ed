//! The binary in labs, with real frames. Needs root; without root every test prints that it was skipped.
//!
//! Tests that count run their labs concurrently (`Lab::up`). If the CPUs of the machine are part of the
//! measurement, a test waits until it is alone (`Lab::alone`).

mod articles;
mod auto;
mod balancer;
mod bench_lb;
mod capture;
mod capture_lines;
mod capture_output;
mod capture_port;
#[path = "../all/document_blocks.rs"]
mod document_blocks;
mod documents;
mod faults;
mod hostile;
mod http;
mod http3;
mod http_blame;
mod http_causes;
mod http_port;
mod http_servers;
mod impair;
mod input;
mod kit;
mod left_over_labs;
mod live;
mod load;
mod load_interop;
mod load_path;
mod load_recipes;
mod load_words;
mod mix;
mod modifiers;
mod netperf;
mod outages;
mod outputs;
mod pktgen;
mod plans;
mod queues;
mod report;
mod router;
mod screen;
mod stat;
mod suites;
mod trial;
mod turns;
mod verdicts;
mod wire;
