//! Tests on this machine, in test namespaces if they change anything.

mod common;
mod devices;
mod filters;
mod links;
mod machines;
mod namespaces;
mod peers;
