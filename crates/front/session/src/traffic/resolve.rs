//! From streams to what is sent: hardware addresses, numbers of flows, and a path that is warm.

use std::{
    hash::{BuildHasher, RandomState},
    net::IpAddr,
    sync::Arc,
};

use wb_model::{Plan, Proto, Stream, TagKind, stream::PAST_LAST_FLOW, units::Mac};
use wb_traffic::{OPEN_FLOWS, Run, StreamSpec, range_around};
use wb_wire::Vlan;

use super::{Direction, RunFlows, Streams, checks, is_tagged};
use crate::{
    StartError,
    neighbour_responder::{Path, Question, multicast_mac, resolve},
    neighbours::{control_socket, next_hops, one_of},
    ports::OpenPort,
    prepare::Opening,
};

pub(crate) fn vlans_of(stream: &Stream) -> Vec<Vlan> {
    let ids: Vec<u16> = stream.vlan.iter().map(|v| v.id).collect();
    let mut tags = Vlan::stack(&ids);
    for (tag, spec) in tags.iter_mut().zip(&stream.vlan) {
        tag.priority = spec.priority;
    }
    tags
}

/// Hardware addresses where there is no wire to have any.
const NO_WIRE_SRC_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const NO_WIRE_DST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Finds the next hop of one stream. Gives its hardware address, and a warning where it is a guess.
fn next_hop(
    port: &OpenPort,
    stream: &Stream,
    receiver: Option<&OpenPort>,
    opening: &mut Opening<'_>,
) -> Result<[u8; 6], StartError> {
    if stream.replay.is_some() {
        return Ok([0; 6]);
    }
    let destination = stream.destination().first();
    if let Some(mac) = multicast_mac(destination) {
        return Ok(mac);
    }
    if stream.proto == Proto::Arp {
        return Ok([0xff; 6]);
    }
    let hint = opening
        .environment
        .hints
        .get(&port.plan.locator.place())
        .and_then(|h| h.peer_mac)
        .filter(|_| port.plan.gateway.is_none());
    if port.wire.is_none() {
        let peer = receiver.map(|r| r.facts.mac).filter(|m| *m != [0; 6]);
        return Ok(peer.unwrap_or(NO_WIRE_DST_MAC));
    }
    if stream.proto == Proto::Raw {
        let mac = hint
            .or_else(|| receiver.map(|r| r.facts.mac))
            .filter(|m| *m != [0; 6]);
        return mac.ok_or_else(|| {
            StartError::stream(
                port.plan.locator.to_string(),
                "raw frames have no address to ask for; give --dst-mac",
            )
        });
    }
    let Some(mut socket) = control_socket(port)? else {
        return Ok(NO_WIRE_DST_MAC);
    };
    let question = Question {
        source: stream.source().first(),
        targets: next_hops(port, stream.source().first(), destination),
        vlans: vlans_of(stream),
    };
    let (found, known) = resolve(&mut socket, port.facts.mac, &question);
    let text = |mac: &[u8; 6]| Mac(*mac).to_string();
    let neighbours = opening.neighbours.entry(port.plan.name.clone());
    neighbours
        .or_default()
        .extend(known.iter().map(|(ip, mac)| (ip.to_string(), text(mac))));
    if let Some(mac) = found {
        return Ok(mac);
    }
    let asked = one_of(&question.targets);
    let protocol = if stream.is_ipv6() {
        "neighbour solicitation"
    } else {
        "ARP"
    };
    if let Some(mac) = hint {
        opening.warnings.push(format!(
            "{}: nobody answered {protocol} for {asked}; frames go to {}, the other end of the lab's link",
            port.plan.locator,
            text(&mac)
        ));
        return Ok(mac);
    }
    Err(StartError::stream(
        port.plan.locator.to_string(),
        format!(
            "no neighbour: nobody answered {protocol} for {asked}; give --dst-mac, or --gateway with the router's address"
        ),
    ))
}

pub(super) fn resolve_all(
    plan: &mut Plan,
    streams: &Streams,
    opening: &mut Opening<'_>,
) -> Result<(Vec<Direction>, RunFlows), StartError> {
    let ports = &streams.ports;
    let told = plan.first_flow;
    let index = |name: &Option<String>| {
        name.as_ref()
            .and_then(|n| ports.iter().position(|p| p.plan.name == *n))
    };
    let jobs = plan.traffic.len();
    let (mut directions, mut next_flow) = (Vec::new(), 0);
    for (number, job) in plan.traffic.iter_mut().enumerate() {
        let (tx, rx) = (index(&job.tx), index(&job.rx));
        let base = match (job.name.as_str(), jobs) {
            ("", 1) => "traffic".to_owned(),
            ("", _) => format!("job {}", number + 1),
            (name, _) => name.to_owned(),
        };
        let back: Vec<Stream> = if job.bidir {
            job.streams.iter().map(Stream::reversed).collect()
        } else {
            Vec::new()
        };
        let bidir = job.bidir;
        let forward =
            resolve_direction(tx, rx, &mut job.streams, streams, opening, &mut next_flow)?;
        let name = |suffix: &str| {
            if bidir {
                format!("{base} {suffix}")
            } else {
                base.clone()
            }
        };
        let mut direction = Direction {
            job: number,
            name: name("forward"),
            tx,
            rx,
            ..forward
        };
        if tx.is_none() {
            // Another tester numbers the flows of who only receives.
            let flows = job.flows.unwrap_or(OPEN_FLOWS);
            let known = told.map(|first| (first, flows.min(PAST_LAST_FLOW - first)));
            (direction.first_flow, direction.flows) = known.unwrap_or(range_around(0, flows));
            direction.from = Some(Arc::new(Run::new(told, flows)));
        }
        directions.push(direction);
        if bidir {
            let mut back = back;
            let direction = resolve_direction(rx, tx, &mut back, streams, opening, &mut next_flow)?;
            directions.push(Direction {
                job: number,
                name: name("back"),
                tx: rx,
                rx: tx,
                ..direction
            });
        }
    }
    let sends = directions.iter().any(|d| d.tx.is_some());
    let flows = RunFlows {
        first: told.or_else(|| sends.then(|| random_first(next_flow))),
        count: match sends {
            true => next_flow,
            false => directions.iter().map(|d| d.flows).max().unwrap_or(0),
        },
    };
    if let Some(first) = flows.first.filter(|_| sends) {
        if next_flow > PAST_LAST_FLOW - first {
            return Err(StartError::stream(
                "first_flow",
                format!("{next_flow} flows from {first} on go beyond the last number"),
            ));
        }
        for direction in directions.iter_mut().filter(|d| d.tx.is_some()) {
            direction.first_flow += first;
            let streams = direction.streams.iter_mut();
            streams.for_each(|stream| stream.first_flow += first);
        }
    }
    Ok((directions, flows))
}

/// A number that no other run has: the first of `flows` flows.
fn random_first(flows: u32) -> u32 {
    // The keys of the standard library's hash are random.
    let random = RandomState::new().hash_one(flows);
    let numbers = u64::from(PAST_LAST_FLOW.saturating_sub(flows)) + 1;
    u32::try_from(random % numbers).unwrap_or(0)
}

fn resolve_direction(
    tx: Option<usize>,
    rx: Option<usize>,
    streams: &mut [Stream],
    open: &Streams,
    opening: &mut Opening<'_>,
    next_flow: &mut u32,
) -> Result<Direction, StartError> {
    let first_flow = *next_flow;
    let mut specs = Vec::new();
    let mut asked: Vec<(Vec<Vlan>, IpAddr, [u8; 6])> = Vec::new();
    for (i, stream) in streams.iter_mut().enumerate() {
        let Some(tx) = tx else { break };
        let port = &open.ports[tx];
        let dst_mac = match stream.dst_mac {
            Some(mac) => mac.0,
            None => {
                let vlans = vlans_of(stream);
                let key = stream.destination().first();
                let same = asked
                    .iter()
                    .find(|(v, d, _)| *v == vlans && *d == key && stream.proto != Proto::Arp);
                if let Some((_, _, mac)) = same {
                    *mac
                } else {
                    let receiver = rx.map(|rx| &open.ports[rx]);
                    let mac = next_hop(port, stream, receiver, opening)?;
                    asked.push((vlans, key, mac));
                    mac
                }
            }
        };
        let src_mac = match stream.src_mac {
            Some(mac) => mac.0,
            None if port.facts.mac == [0; 6] => NO_WIRE_SRC_MAC,
            None => port.facts.mac,
        };
        warm_up(
            port,
            rx.is_some(),
            stream,
            src_mac,
            dst_mac,
            &mut opening.warnings,
        )?;
        let workers = u32::try_from(port.workers()).unwrap_or(1);
        let flows = if stream.tag == TagKind::Wirebench && stream.replay.is_none() {
            stream.flow_count().max(workers)
        } else {
            1
        };
        if stream.tag == TagKind::Pktgen && workers > 1 {
            return Err(StartError::stream(
                port.plan.locator.to_string(),
                "the pktgen tag has one sequence for all frames, so it needs one worker (--workers 1)",
            ));
        }
        if stream.replay.is_none() {
            stream.dst_mac = Some(Mac(dst_mac));
            stream.src_mac = Some(Mac(src_mac));
        }
        specs.push(StreamSpec {
            stream: stream.clone(),
            name: if stream.name.is_empty() {
                format!("stream {}", i + 1)
            } else {
                stream.name.clone()
            },
            first_flow: 0,
            flows,
            src_mac,
            dst_mac,
            pps: checks::frames_per_second(stream, port.line_rate(), &open.recordings),
            replay: stream
                .replay
                .as_ref()
                .and_then(|r| open.recordings.get(r))
                .map(Arc::clone),
        });
    }
    // Streams without a tag come last, so that the flows to follow are one range.
    let mut number = |tagged: bool| {
        for spec in specs.iter_mut().filter(|s| is_tagged(&s.stream) == tagged) {
            spec.first_flow = *next_flow;
            *next_flow = next_flow.saturating_add(spec.flows);
        }
        *next_flow
    };
    let followed = number(true) - first_flow;
    number(false);
    Ok(Direction {
        job: 0,
        name: String::new(),
        tx,
        rx,
        streams: specs,
        first_flow,
        flows: followed,
        from: None,
    })
}

/// Pings through the device, so that it knows its neighbours before the first test frame.
fn warm_up(
    port: &OpenPort,
    has_receiver: bool,
    stream: &Stream,
    src_mac: [u8; 6],
    dst_mac: [u8; 6],
    warnings: &mut Vec<String>,
) -> Result<(), StartError> {
    let routable = !matches!(stream.proto, Proto::Arp | Proto::Raw) && stream.replay.is_none();
    let unicast = multicast_mac(stream.destination().first()).is_none();
    if !routable || !unicast || !has_receiver || !stream.mpls.is_empty() {
        return Ok(());
    }
    let Some(mut socket) = control_socket(port)? else {
        return Ok(());
    };
    let path = Path {
        src_mac,
        dst_mac,
        source: stream.source().first(),
        destinations: Path::destinations(&stream.destination()),
        vlans: vlans_of(stream),
    };
    let answered = path.warm_up(&mut socket);
    if answered == 0 {
        warnings.push(format!(
            "{}: no echo from {} came back before the run; the device may still have to find its neighbours, and may lose the first frames",
            port.plan.locator,
            stream.destination(),
        ));
    }
    Ok(())
}
