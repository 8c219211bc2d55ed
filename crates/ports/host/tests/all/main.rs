//! The machine, in namespaces of the tests where something is changed.

mod common;
mod devices;
mod filters;
mod links;
mod machines;
mod namespaces;
mod peers;
