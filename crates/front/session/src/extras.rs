//! Inputs of a run in addition to its plan.

use wb_capture::CaptureExtras;
use wb_http::engine::Scripts;
use wb_pktgen_device::Walker;

/// Inputs of a run in addition to its plan.
#[derive(Default)]
pub struct Extras {
    /// State of the packet devices from earlier runs, one for each device of the plan. If empty, all devices start
    /// anew.
    pub walkers: Vec<Walker>,
    /// Receiver of frames in addition to the files of a capture or instead of them.
    pub capture: CaptureExtras,
    /// If true, socket tests report their progress once per interval of the plan, even if they ask for no interval.
    pub progress: bool,
    /// The scripts of HTTP loads, job by job.
    pub scripts: Vec<Scripts>,
    /// If true, the report has all distributions at full resolution.
    pub histograms: bool,
    /// Control connection of a server that serves only the client at the other end of this connection.
    pub control_connection: Option<std::net::TcpStream>,
}
