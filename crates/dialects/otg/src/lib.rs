//! Open Traffic Generator (OTG): configurations and requests as clients send them, answers as clients expect them.
//!
//! Pure: [`Config::read`] checks a configuration completely, and [`Config::compile`] makes a plan of the flows that
//! start and the captures that are on. Each key that is not supported is found and reported with its place; none is
//! ignored. Nothing is started here.

#![forbid(unsafe_code)]

mod answer;
mod capture;
mod config;
mod device;
mod document;
mod flow;
mod packet;
mod pattern;
mod plan;
mod problem;
mod proto;
mod reader;
mod request;
#[cfg(test)]
mod tests;

pub use answer::{
    Answer, FlowFigures, LatencyFigures, NeighbourEntry, PortFigures, Transmit, flow_metrics,
    neighbours, port_metrics, version, warnings,
};
pub use capture::with_fcs;
pub use config::{Capture, Config, PortConfig};
pub use device::{DeviceAddress, DeviceEthernet};
pub use document::read_document;
pub use flow::{Flow, LatencyMode, Neighbour};
pub use plan::{Context, Planned};
pub use problem::{Problem, error_body};
pub use proto::{Proto, ProtoMethod, ProtoRequest};
pub use request::{
    ConfigChange, Control, FlowState, MetricsRequest, NeighbourRequest, State, read_append,
    read_capture, read_control, read_delete, read_metrics, read_states, read_update,
};
