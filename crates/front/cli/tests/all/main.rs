//! Tests without a lab: sources, texts, files.

mod architecture;
mod bench;
mod contract;
mod deployment;
mod document_blocks;
mod document_links;
mod documents;
mod help;
mod merge;
mod messages;
mod metrics;
mod options;
mod read;
mod samples;
mod web;
