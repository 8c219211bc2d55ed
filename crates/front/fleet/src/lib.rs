//! Many hosts as one instrument: agents offer their ports to a controller, over NATS.
//!
//! [`agent`] is the process of a host, [`FleetCarrier`] carries out plans over a [`Fleet`] of agents, [`pki`] makes the
//! certificates of a fleet and the configuration of its broker, [`broker`] runs a broker,
//! [`local`] is the fleet of this host, [`simulation`] many agents in one process.

#![forbid(unsafe_code)]

pub mod agent;
pub mod broker;
mod bus;
mod carrier;
mod clock;
mod clocks;
mod files;
mod fleet;
mod kept;
mod leadership;
pub mod local;
pub mod pki;
mod register;
pub mod simulation;
mod time_service;
mod wire;
mod work;

pub use carrier::{FleetCarrier, FleetSettings};
pub use fleet::{Fleet, Present};
