//! HTTP API of a server that carries out plans: start, queue, watch and stop runs, read their reports.
//!
//! The runs are those of [`wb_runs::Runs`], in plain threads; only this crate uses an async runtime. [`routes::ROUTES`]
//! is the table of all requests: the router and the OpenAPI document are made from it.

#![forbid(unsafe_code)]

mod access;
mod answer;
mod connections;
mod events;
mod fleet;
mod guard;
mod host;
mod openapi;
mod otg;
mod page;
mod routes;
mod runs;
mod server;
mod tls;
mod tokens;

pub use openapi::document as openapi;
pub use otg::ClientNetwork;
pub use server::{Encryption, Listen, ServeError, Server};
pub use tls::CertificateFiles;
pub use tokens::{Role, TokenEntry, TokenFile, lifetime};
