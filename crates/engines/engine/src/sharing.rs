//! Distributes the frames of an interface which several jobs use: a load takes the frames for its ports, streams take
//! the rest. Each job has separate sockets with a filter in the kernel.

use std::{fmt::Write as _, net::IpAddr};

use wb_filter::Program;
use wb_machine::expression::{TapFilter, compile_for_tap};
use wb_model::{
    Incoming, Plan, PortPlan,
    load::{LoadJob, LoadTransport},
    units::{AddressRange, PortRange},
};
use wb_open::StartError;
use wb_packet::FilterOp;
use wb_wire::{PktgenTag, Tag};

/// Length limit in bytes above any frame length: passing frames are kept whole.
const WHOLE: u32 = 262_144;

/// Returns the frames that a load takes at a port, as a libpcap expression.
fn of_load(plan: &Plan, job: &LoadJob) -> String {
    let (addresses, tag) = plan.marks(job);
    let mut text = expression(&Incoming::of(job), addresses);
    if tag {
        let (ours, pktgen) = (Tag::MAGIC & 0xfff0, PktgenTag::MAGIC);
        // The length check prevents reading behind the end of a frame that is too short for a tag.
        let _ = write!(
            text,
            " and not (udp[4:2] > 11 and (udp[8:2] & 0xfff0 = {ours:#x} or udp[8:4] = {pktgen:#x})) \
             and not (ip6[6] = 17 and ip6[44:2] > 11 and (ip6[48:2] & 0xfff0 = {ours:#x} or ip6[48:4] = {pktgen:#x}))"
        );
    }
    text
}

/// Converts a set of frames into a libpcap expression.
fn expression(frames: &Incoming, addresses: bool) -> String {
    let mut parts = Vec::new();
    parts.extend(frames.vlan.map(|id| format!("vlan {id}")));
    let transport = match frames.transport {
        LoadTransport::Tcp => "tcp",
        LoadTransport::Udp => "udp",
    };
    parts.push(transport.to_owned());
    for (side, ports) in [("src", frames.from_ports), ("dst", frames.to_ports)] {
        let PortRange { first, last } = ports;
        if (first, last) != (0, u16::MAX) {
            parts.push(format!("{transport} {side} portrange {first}-{last}"));
        }
    }
    for (side, ranges) in [("src", &frames.from), ("dst", &frames.to)] {
        if addresses && !ranges.is_empty() {
            let nets = ranges.iter().flat_map(networks);
            let nets: Vec<String> = nets.map(|net| format!("{side} net {net}")).collect();
            parts.push(format!("({})", nets.join(" or ")));
        }
    }
    parts.join(" and ")
}

/// Splits a range into networks, because libpcap knows only networks.
fn networks(range: &AddressRange) -> Vec<String> {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(a) => u128::from(u32::from(a)),
        IpAddr::V6(a) => u128::from(a),
    };
    let width = if range.is_ipv6() { 128 } else { 32 };
    let (mut next, last) = (bits(range.first()), bits(range.last()));
    let mut networks = Vec::new();
    loop {
        let aligned = next.trailing_zeros().min(width);
        let mut free = aligned;
        while free > 0 && next | (u128::MAX >> (128 - free)) > last {
            free -= 1;
        }
        let address = match width {
            32 => IpAddr::V4(u32::try_from(next).unwrap_or(u32::MAX).into()),
            _ => IpAddr::V6(next.into()),
        };
        networks.push(format!("{address}/{}", width - free));
        let end = match free {
            0 => next,
            free => next | (u128::MAX >> (128 - free)),
        };
        if end >= last {
            return networks;
        }
        next = end + 1;
    }
}

/// Compiles the filter of a load at a port that other jobs use too.
///
/// # Errors
/// Fails if libpcap cannot compile the expression.
pub fn load_filter(plan: &Plan, job: &LoadJob) -> Result<TapFilter, StartError> {
    compile(&of_load(plan, job))
}

/// Compiles the filter of the streams that arrive at a port alongside loads. Returns `None` if there are no loads, or
/// if the kernel cannot run the filter: then the engines separate frames by tag, address and port.
///
/// # Errors
/// Fails if libpcap cannot compile the expression.
pub fn traffic_filter(plan: &Plan, port: &PortPlan) -> Result<Option<Vec<FilterOp>>, StartError> {
    let loads = plan.loads_at(&port.name);
    let mut others: Vec<String> = loads.map(|job| of_load(plan, job)).collect();
    if others.is_empty() {
        return Ok(None);
    }
    let untagged = plan.untagged_into(&port.name);
    if !untagged.is_empty() {
        let own = untagged.iter().map(|frames| expression(frames, true));
        let own: Vec<String> = own.map(|text| format!("({text})")).collect();
        others.push(format!("not ({})", own.join(" or ")));
    }
    let mut programs = Vec::new();
    for other in &others {
        match compile(other)?.attach {
            Ok(program) => programs.push(program),
            Err(_) => return Ok(None),
        }
    }
    let rest = Program::none_of(&programs, WHOLE).ok();
    Ok(rest.as_ref().map(operations))
}

fn compile(expression: &str) -> Result<TapFilter, StartError> {
    compile_for_tap(expression, WHOLE, true).map_err(|error| StartError::Filter(Box::new(error)))
}

/// Converts a program into the form that a socket takes.
pub fn operations(program: &Program) -> Vec<FilterOp> {
    let instructions = program.instructions().iter();
    instructions.map(|i| (i.code, i.jt, i.jf, i.k)).collect()
}

#[cfg(test)]
mod tests {
    use wb_filter::{Ancillary, Instruction};
    use wb_model::{Stream, TagKind, TrafficJob, load::LoadEnd, plan::PortPlan};

    use super::*;

    /// Makes an IPv4 frame from 198.18.1.2 with TCP or UDP.
    fn frame(protocol: u8, to: [u8; 4], source: u16, destination: u16) -> Vec<u8> {
        let mut frame = vec![0; 64];
        (frame[12], frame[14], frame[23]) = (8, 0x45, protocol);
        frame[26..30].copy_from_slice(&[198, 18, 1, 2]);
        frame[30..34].copy_from_slice(&to);
        frame[34..36].copy_from_slice(&source.to_be_bytes());
        frame[36..38].copy_from_slice(&destination.to_be_bytes());
        frame[39] = 30;
        frame
    }

    const OURS: [u8; 4] = [198, 19, 1, 2];

    fn tagged(mut frame: Vec<u8>) -> Vec<u8> {
        frame[42..44].copy_from_slice(&Tag::MAGIC.to_be_bytes());
        frame
    }

    fn load(end: LoadEnd) -> LoadJob {
        LoadJob {
            end,
            port: "p".to_owned(),
            clients: vec!["198.18.1.2".parse().unwrap()],
            servers: vec!["198.19.1.2".parse().unwrap()],
            server_ports: "80-81".parse().unwrap(),
            ..LoadJob::default()
        }
    }

    fn plan(loads: Vec<LoadJob>, streams: Vec<Stream>) -> Plan {
        Plan {
            ports: vec![PortPlan::new("p", "n/p".parse().unwrap())],
            loads,
            traffic: vec![TrafficJob {
                rx: Some("p".to_owned()),
                streams,
                ..TrafficJob::default()
            }],
            ..Plan::default()
        }
    }

    /// Returns the takers of a frame: the numbers of loads, and true if streams take it.
    fn takers(plan: &Plan, frame: &[u8]) -> (Vec<usize>, bool) {
        let len = u32::try_from(frame.len()).unwrap();
        let keeps = |program: &Program| program.accepts(frame, len, &Ancillary::default()) > 0;
        let loads = plan.loads.iter().enumerate().filter(|(_, job)| {
            let filter = load_filter(plan, job).unwrap();
            let (whole, attached) = (keeps(&filter.whole), keeps(&filter.attach.unwrap()));
            assert_eq!(whole, attached, "{}", of_load(plan, job));
            whole
        });
        let loads = loads.map(|(number, _)| number).collect();
        let rest = traffic_filter(plan, &plan.ports[0]).unwrap().unwrap();
        let rest = rest.into_iter();
        let rest = rest.map(|(code, jt, jf, k)| Instruction::new(code, jt, jf, k));
        (loads, keeps(&Program::new(rest.collect()).unwrap()))
    }

    #[test]
    fn each_frame_is_of_one_of_them() {
        for (end, frame, of_load) in [
            (LoadEnd::Server, frame(6, OURS, 1024, 80), true),
            (LoadEnd::Server, frame(6, OURS, 1024, 81), true),
            (LoadEnd::Server, frame(6, OURS, 80, 1024), false),
            (LoadEnd::Server, frame(17, OURS, 1024, 80), false),
            (LoadEnd::Client, frame(6, OURS, 80, 1024), true),
            (LoadEnd::Client, frame(6, OURS, 80, 1023), false),
            (LoadEnd::Client, frame(6, OURS, 1024, 80), false),
            (LoadEnd::Client, frame(17, OURS, 49184, 7), false),
        ] {
            let plan = plan(vec![load(end)], vec![Stream::default()]);
            let (loads, streams) = takers(&plan, &frame);
            assert_eq!((loads == [0], streams), (of_load, !of_load), "{plan:?}");
        }
    }

    #[test]
    fn loads_are_told_apart_by_what_differs() {
        let udp = LoadJob {
            transport: LoadTransport::Udp,
            ..load(LoadEnd::Server)
        };
        let other = LoadJob {
            servers: vec!["198.19.1.3-198.19.1.9".parse().unwrap()],
            ..load(LoadEnd::Server)
        };
        let tagged_vlan = LoadJob {
            vlan: Some(5),
            ..load(LoadEnd::Server)
        };
        let plan = plan(
            vec![load(LoadEnd::Server), udp, other, tagged_vlan],
            vec![Stream::default()],
        );
        let in_vlan = |id: u8, frame: Vec<u8>| {
            let mut bytes = frame;
            bytes.splice(12..12, [0x81, 0, 0, id]);
            bytes
        };
        let whole = |job: usize, frame: &[u8]| {
            let filter = load_filter(&plan, &plan.loads[job]).unwrap().whole;
            filter.accepts(frame, 64, &Ancillary::default()) > 0
        };
        assert_eq!(takers(&plan, &frame(6, OURS, 9, 80)), (vec![0], false));
        assert_eq!(takers(&plan, &frame(17, OURS, 9, 80)), (vec![1], false));
        for last in 3..=9 {
            let there = frame(6, [198, 19, 1, last], 9, 80);
            assert_eq!(takers(&plan, &there), (vec![2], false));
        }
        let beyond = frame(6, [198, 19, 1, 10], 9, 80);
        assert_eq!(takers(&plan, &beyond), (vec![], true));
        assert!(whole(3, &in_vlan(5, frame(6, OURS, 9, 80))));
        for job in 0..4 {
            assert!(!whole(job, &in_vlan(6, frame(6, OURS, 9, 80))));
        }
    }

    #[test]
    fn a_tag_tells_datagrams_at_the_same_port() {
        let udp = LoadJob {
            transport: LoadTransport::Udp,
            ..load(LoadEnd::Server)
        };
        let stream = Stream {
            dport: Some("80".parse().unwrap()),
            ..Stream::default()
        };
        let plan = plan(vec![udp], vec![stream]);
        let plain = frame(17, OURS, 9, 80);
        assert_eq!(takers(&plan, &plain), (vec![0], false));
        assert_eq!(takers(&plan, &tagged(plain.clone())), (vec![], true));
        // The frame is too short for a tag, and no data follows.
        let mut short = plain[..43].to_vec();
        short[39] = 9;
        assert_eq!(takers(&plan, &short), (vec![0], false));
    }

    #[test]
    fn streams_without_a_tag_take_what_is_theirs_alone() {
        let stream = Stream {
            tag: TagKind::None,
            ..Stream::default()
        };
        let plan = plan(vec![load(LoadEnd::Server)], vec![stream]);
        let own = frame(17, OURS, 49184, 7);
        assert_eq!(takers(&plan, &own), (vec![], true));
        assert_eq!(takers(&plan, &frame(17, OURS, 49184, 8)), (vec![], false));
        assert_eq!(takers(&plan, &frame(6, OURS, 9, 80)), (vec![0], false));
    }

    #[test]
    fn ranges_are_networks() {
        let of = |text: &str| networks(&text.parse().unwrap()).join(" ");
        // A prefix stands for its hosts.
        assert_eq!(of("10.0.0.0/30"), "10.0.0.1/32 10.0.0.2/32");
        assert_eq!(
            of("10.0.0.3-10.0.0.6"),
            "10.0.0.3/32 10.0.0.4/31 10.0.0.6/32"
        );
        assert_eq!(of("0.0.0.0-255.255.255.255"), "0.0.0.0/0");
        assert_eq!(of("2001:2::-2001:2::ffff"), "2001:2::/112");
        assert_eq!(of("2001:2::1"), "2001:2::1/128");
    }
}
