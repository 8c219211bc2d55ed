//! Runs a plan. This crate is the only entry to the engines.
//!
//! A session takes a plan, checks it against the machine, opens ports, finds neighbours, places
//! workers, publishes a snapshot per interval, and ends with one report, also when it is
//! interrupted or a device vanishes. It prints nothing and knows no dialect.
//!
//! [`prepare`] does everything that can fail before the first frame. [`Prepared::run`] cannot fail after that; it can
//! only end early, which [`Finished::end`] reports. [`run`] does both.

mod bench;
mod doctor;
mod environment;
mod extras;
mod http_over_port;
mod judge;
mod prepare;
mod report;
mod run;

pub use doctor::{
    InKernel, PortDriver, PortDrivers, in_kernel, port_drivers, reported_xdp_abilities,
    xdp_abilities,
};
pub use extras::Extras;
pub use judge::judge;
pub use prepare::{Attended, Checked, Opened, prepare};
pub use run::{Finished, Prepared, StartAt};
pub use wb_capture::{CaptureExtras, FrameSink, SinkEnd, SinkFlush, SinkFrame};
pub use wb_engine::{
    End, Fault, Observer, Request, View,
    clock::{SystemClock, rfc3339},
    describe::Machine,
    guard::{addresses_that_need_consent, admit_servers, needs_no_zone},
    input,
    opening::{Carrier, Environment, PortHint},
    peers::{PeerClock, PeerLink},
    signals::{Signals, mind_suspension, survive_file_limit},
    stations::{Station, Stations},
    steering::{ALL_SENT, Steer, Steering, StreamState, StreamSteer},
};
pub use wb_http::engine::Scripts;
pub use wb_load::engine::client_shares;
pub use wb_open::{StartError, port_memory, signal_name, total_memory};
pub use wb_port::memory::Registry;
pub use wb_socket::{DataEnds, data_ends};
pub use wb_traffic::devices;

/// Prepares a plan and runs it to its end.
///
/// # Errors
/// Returns the reason why the run cannot start.
pub fn run(
    plan: wb_model::Plan,
    environment: &Environment,
    observer: &mut dyn Observer,
) -> Result<Finished, StartError> {
    carry_out(plan, environment, Extras::default(), observer)
}

/// Carries out a plan here, or where the carrier of the environment carries it out. Benchmarks run here, and their
/// trials there.
///
/// # Errors
/// Returns the reason why the run cannot start.
pub fn carry_out(
    plan: wb_model::Plan,
    environment: &Environment,
    extras: Extras,
    observer: &mut dyn Observer,
) -> Result<Finished, StartError> {
    match &environment.carrier {
        Some(carrier) if plan.procedure.is_none() => {
            let (report, end) = carrier.carry_out(plan, environment, observer)?;
            Ok(Finished { report, end })
        }
        _ => prepare(plan, environment, extras)?.run(observer),
    }
}
