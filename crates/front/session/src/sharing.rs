//! Who takes which of the frames that come in by an interface which jobs of several kinds use: a load takes
//! what its ports say, streams take the rest. Each has sockets of its own, with a filter in the kernel.

use wb_host::expression::compile_for_tap;
use wb_model::{
    Plan, PortPlan,
    load::{LoadEnd, LoadJob, LoadTransport},
};
use wb_packet::FilterOp;

use crate::StartError;

/// Longer than any frame: what passes is kept whole.
const WHOLE: u32 = 262_144;
/// Port of VXLAN (RFC 7348 section 5).
const VXLAN_PORT: u16 = 4789;

/// The frames that come in for a load, as libpcap writes it.
fn of_load(job: &LoadJob) -> String {
    let vlan = job
        .vlan
        .map_or_else(String::new, |id| format!("vlan {id} and "));
    if job.vxlan.is_some() {
        return format!("{vlan}udp dst port {VXLAN_PORT}");
    }
    let transport = match job.transport {
        LoadTransport::Tcp => "tcp",
        LoadTransport::Udp => "udp",
    };
    let side = match job.end {
        LoadEnd::Client => "src",
        LoadEnd::Server => "dst",
    };
    let ports = job.server_ports;
    format!(
        "{vlan}{transport} {side} portrange {}-{}",
        ports.first, ports.last
    )
}

/// The filter of the load at a port.
///
/// # Errors
/// When libpcap makes none of it.
pub(crate) fn load_filter(job: &LoadJob) -> Result<Option<Vec<FilterOp>>, StartError> {
    operations(&of_load(job))
}

/// The filter of the streams that arrive at a port beside a load.
///
/// # Errors
/// When libpcap makes none of it.
pub(crate) fn traffic_filter(
    plan: &Plan,
    port: &PortPlan,
) -> Result<Option<Vec<FilterOp>>, StartError> {
    match plan.loads.iter().find(|job| job.port == port.name) {
        Some(job) => operations(&format!("not ({})", of_load(job))),
        None => Ok(None),
    }
}

fn operations(expression: &str) -> Result<Option<Vec<FilterOp>>, StartError> {
    let filter = compile_for_tap(expression, WHOLE, true)
        .map_err(|error| StartError::Filter(Box::new(error)))?;
    // What the kernel cannot be told is told apart by the engines: by tag, address and port.
    let Ok(program) = filter.attach else {
        return Ok(None);
    };
    let instructions = program.instructions().iter();
    Ok(Some(
        instructions.map(|i| (i.code, i.jt, i.jf, i.k)).collect(),
    ))
}

#[cfg(test)]
mod tests {
    use wb_filter::Ancillary;

    use super::*;

    /// A frame of IPv4 and TCP or UDP.
    fn frame(protocol: u8, source: u16, destination: u16) -> Vec<u8> {
        let mut frame = vec![0; 60];
        (frame[12], frame[14], frame[23]) = (8, 0x45, protocol);
        frame[34..36].copy_from_slice(&source.to_be_bytes());
        frame[36..38].copy_from_slice(&destination.to_be_bytes());
        frame
    }

    #[test]
    fn each_frame_is_of_one_of_them() {
        let job = |end| LoadJob {
            end,
            server_ports: "80-81".parse().unwrap(),
            ..LoadJob::default()
        };
        let accepts = |expression: &str, frame: &[u8]| {
            let filter = compile_for_tap(expression, WHOLE, true).unwrap();
            assert!(filter.attach.is_ok(), "{expression}");
            filter.whole.accepts(frame, 60, &Ancillary::default()) > 0
        };
        for (end, frame, of_load_is) in [
            (LoadEnd::Server, frame(6, 1024, 80), true),
            (LoadEnd::Server, frame(6, 1024, 81), true),
            (LoadEnd::Server, frame(6, 80, 1024), false),
            (LoadEnd::Server, frame(17, 1024, 80), false),
            (LoadEnd::Client, frame(6, 80, 1024), true),
            (LoadEnd::Client, frame(6, 1024, 80), false),
            (LoadEnd::Client, frame(17, 49184, 7), false),
        ] {
            let expression = of_load(&job(end));
            assert_eq!(accepts(&expression, &frame), of_load_is, "{expression}");
            let rest = format!("not ({expression})");
            assert_eq!(accepts(&rest, &frame), !of_load_is, "{rest}");
        }
    }
}
