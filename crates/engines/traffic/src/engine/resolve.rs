//! Completes streams for sending: hardware addresses, flow numbers, and a path that is warmed up.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    net::IpAddr,
    sync::Arc,
};

use crate::{FollowedRun, OPEN_FLOWS, StreamSpec, range_around};
use wb_model::{DirectionFlows, Plan, Proto, Stream, TagKind, stream::PAST_LAST_FLOW, units::Mac};

use super::{Direction, RunFlows, Streams, checks, remote::RemoteEnd};
use wb_engine::{
    neighbour_responder::{Path, Question, multicast_mac, resolve, warm_up},
    neighbours::{control_socket, next_hops, one_of},
    opening::Opening,
};
use wb_open::{OpenPort, StartError};

/// Source hardware address of streams without a wire.
const NO_WIRE_SRC_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const NO_WIRE_DST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Returns the next hop of a stream if no neighbour request is needed.
fn known_hop(
    port: &OpenPort,
    stream: &Stream,
    receiver: Option<&OpenPort>,
    opening: &Opening<'_>,
) -> Result<Option<[u8; 6]>, StartError> {
    if let Some(mac) = stream.dst_mac {
        return Ok(Some(mac.0));
    }
    if stream.replay.is_some() {
        return Ok(Some([0; 6]));
    }
    if let Some(mac) = multicast_mac(stream.destination().first()) {
        return Ok(Some(mac));
    }
    if stream.proto == Proto::Arp {
        return Ok(Some([0xff; 6]));
    }
    if port.wire.is_none() {
        let peer = receiver.map(|r| r.facts.mac).filter(|m| *m != [0; 6]);
        return Ok(Some(peer.unwrap_or(NO_WIRE_DST_MAC)));
    }
    if stream.proto == Proto::Raw {
        let mac = hint(port, opening)
            .or_else(|| receiver.map(|r| r.facts.mac))
            .filter(|m| *m != [0; 6]);
        return mac.map(Some).ok_or_else(|| {
            StartError::stream(
                port.plan.locator.to_string(),
                "raw frames have no address to resolve; use --dst-mac",
            )
        });
    }
    Ok(None)
}

/// Returns the address of the other end of a lab's link.
fn hint(port: &OpenPort, opening: &Opening<'_>) -> Option<[u8; 6]> {
    let hints = &opening.environment.hints;
    let hint = hints.get(&port.plan.locator.place())?.peer_mac;
    hint.filter(|_| port.plan.gateway.is_none())
}

/// Finds the next hops of the streams that a port sends. Warns about next hops that are a guess.
fn next_hops_of(
    port: &OpenPort,
    streams: &[Stream],
    receiver: Option<&OpenPort>,
    opening: &mut Opening<'_>,
) -> Result<Vec<[u8; 6]>, StartError> {
    let mut hops = Vec::new();
    let mut questions: Vec<Question> = Vec::new();
    // Streams to the same destination share the answer.
    let mut places: BTreeMap<(Vec<(u16, u8)>, IpAddr), usize> = BTreeMap::new();
    for stream in streams {
        let known = known_hop(port, stream, receiver, opening)?;
        hops.push(known.ok_or_else(|| {
            let destination = stream.destination().first();
            let vlans = stream.vlan.iter().map(|v| (v.id, v.priority)).collect();
            *places.entry((vlans, destination)).or_insert_with(|| {
                questions.push(Question {
                    source: stream.source().first(),
                    targets: next_hops(port, stream.source().first(), destination),
                    vlans: stream.vlan_tags(),
                });
                questions.len() - 1
            })
        }));
    }
    let mut found = Vec::new();
    if !questions.is_empty() {
        let Some(mut socket) = control_socket(port)? else {
            return Ok(vec![NO_WIRE_DST_MAC; streams.len()]);
        };
        let signals = &opening.environment.signals;
        let answers = resolve(&mut socket, port.facts.mac, &questions, signals);
        signals.refuse_start()?;
        for (question, (answer, known)) in questions.iter().zip(answers) {
            let text = |mac: &[u8; 6]| Mac(*mac).to_string();
            let neighbours = opening.neighbours.entry(port.plan.name.clone());
            neighbours
                .or_default()
                .extend(known.iter().map(|(ip, mac)| (ip.to_string(), text(mac))));
            found.push(match answer {
                Some(mac) => mac,
                None => guess(port, question, opening)?,
            });
        }
    }
    let hops = hops.into_iter();
    Ok(hops
        .map(|hop| hop.unwrap_or_else(|place| found[place]))
        .collect())
}

/// Returns the next hop if no neighbour answered, with a warning.
fn guess(
    port: &OpenPort,
    question: &Question,
    opening: &mut Opening<'_>,
) -> Result<[u8; 6], StartError> {
    let asked = one_of(&question.targets);
    let protocol = match question.source.is_ipv6() {
        true => "neighbour solicitation",
        false => "ARP",
    };
    let Some(mac) = hint(port, opening) else {
        return Err(StartError::stream(
            port.plan.locator.to_string(),
            format!(
                "no neighbour: no {protocol} reply for {asked}; use --dst-mac, or --gateway with the router's address"
            ),
        ));
    };
    opening.warnings.push(format!(
        "{}: no {protocol} reply for {asked}; frames go to {}, the other end of the lab link",
        port.plan.locator,
        Mac(mac)
    ));
    Ok(mac)
}

pub(super) fn resolve_all(
    plan: &mut Plan,
    streams: &Streams,
    opening: &mut Opening<'_>,
) -> Result<(Vec<Direction>, RunFlows), StartError> {
    let told = plan.first_flow;
    let sends = plan.traffic.iter().any(|job| job.tx.is_some());
    let count = plan.numbered_flows();
    let first = told.or_else(|| sends.then(|| random_first(count)));
    if let Some(first) = first.filter(|first| sends && count > PAST_LAST_FLOW - first) {
        return Err(StartError::stream(
            "first_flow",
            format!("{count} flows from number {first} exceed the largest flow number"),
        ));
    }
    let is_numbered = plan
        .traffic
        .iter()
        .any(|job| job.tx.is_some() && job.first_flow.is_some());
    let backs: Vec<Vec<Stream>> = plan
        .traffic
        .iter()
        .map(|job| job.streams.iter().map(Stream::reversed).collect())
        .collect();
    let mut directions: Vec<Direction> = Vec::new();
    let mut followed = None;
    for planned in plan.directions(first.unwrap_or(0)) {
        let number = planned.job;
        let is_back = directions
            .last()
            .is_some_and(|last| last.planned.job == number);
        let mut own = match is_back {
            true => backs[number].clone(),
            false => plan.traffic[number].streams.clone(),
        };
        let remote = RemoteEnd::find(plan, &planned, opening.environment);
        let mut direction = resolve_direction(planned, remote, &mut own, streams, opening)?;
        let job = &mut plan.traffic[number];
        if !is_back {
            job.streams = own;
        }
        if direction.planned.tx.is_none() {
            // If this run only receives, another tester numbers the flows.
            let flows = job.flows.unwrap_or(OPEN_FLOWS);
            let told = job.first_flow.or(told.filter(|_| !is_numbered));
            let known = told.map(|first| (first, flows.min(PAST_LAST_FLOW - first)));
            (direction.first_flow, direction.flows) = known.unwrap_or(range_around(0, flows));
            direction.from = Some(Arc::new(FollowedRun::new(told, flows)));
            followed = followed.or(told);
        }
        directions.push(direction);
    }
    let end = |d: &Direction| d.streams.iter().map(|s| s.first_flow + s.flows).max();
    let flows = match sends {
        true => RunFlows {
            first,
            count: directions.iter().filter_map(end).max().unwrap_or(0) - first.unwrap_or(0),
        },
        false => RunFlows {
            first: followed,
            count: directions.iter().map(|d| d.flows).max().unwrap_or(0),
        },
    };
    Ok((directions, flows))
}

/// Returns a random first flow number for `flows` flows, so that two runs do not share numbers.
fn random_first(flows: u32) -> u32 {
    // The keys of the standard library's hash are random.
    let random = RandomState::new().hash_one(flows);
    let numbers = u64::from(PAST_LAST_FLOW.saturating_sub(flows)) + 1;
    u32::try_from(random % numbers).unwrap_or(0)
}

fn resolve_direction(
    planned: DirectionFlows,
    remote: Option<RemoteEnd>,
    streams: &mut [Stream],
    open: &Streams,
    opening: &mut Opening<'_>,
) -> Result<Direction, StartError> {
    let index = |name: &Option<String>| {
        let name = name.as_ref()?;
        open.ports.iter().position(|p| p.plan.name == *name)
    };
    let (tx, rx) = (index(&planned.tx), index(&planned.rx));
    let port = tx.map(|tx| &open.ports[tx]);
    if let Some(port) = port {
        let receiver = rx.map(|rx| &open.ports[rx]);
        set_addresses(port, streams, receiver, opening)?;
    }
    let specs = streams.iter().zip(&planned.streams).enumerate();
    let specs: Vec<StreamSpec> = specs
        .map(|(number, (stream, (first_flow, flows)))| StreamSpec {
            stream: stream.clone(),
            name: match stream.name.as_str() {
                "" => format!("stream {}", number + 1),
                name => name.to_owned(),
            },
            first_flow: *first_flow,
            flows: *flows,
            src_mac: stream.src_mac.map_or([0; 6], |mac| mac.0),
            dst_mac: stream.dst_mac.map_or([0; 6], |mac| mac.0),
            pps: checks::frames_per_second(
                stream,
                port.and_then(OpenPort::line_rate),
                &open.recordings,
            ),
            replay: stream
                .replay
                .as_ref()
                .and_then(|r| open.recordings.get(r))
                .map(Arc::clone),
        })
        .collect();
    if let (Some(port), Some(_)) = (port, &planned.rx) {
        warm_up_paths(port, &specs, opening)?;
    }
    Ok(Direction {
        tx,
        rx,
        streams: specs,
        first_flow: planned.first_flow,
        flows: planned.flows,
        from: None,
        remote,
        planned,
    })
}

/// Sets the hardware addresses of the streams that a port sends, except of replays.
fn set_addresses(
    port: &OpenPort,
    streams: &mut [Stream],
    receiver: Option<&OpenPort>,
    opening: &mut Opening<'_>,
) -> Result<(), StartError> {
    let hops = next_hops_of(port, streams, receiver, opening)?;
    for (stream, dst_mac) in streams.iter_mut().zip(hops) {
        if stream.tag == TagKind::Pktgen && port.workers() > 1 {
            return Err(StartError::stream(
                port.plan.locator.to_string(),
                "the pktgen tag has a single sequence and needs one worker (--workers 1)",
            ));
        }
        if stream.replay.is_none() {
            let own = match port.facts.mac {
                [0, 0, 0, 0, 0, 0] => NO_WIRE_SRC_MAC,
                mac => mac,
            };
            stream.src_mac.get_or_insert(Mac(own));
            stream.dst_mac = Some(Mac(dst_mac));
        }
    }
    Ok(())
}

/// Pings through the device, so that the device knows its neighbours before the first test frame.
fn warm_up_paths(
    port: &OpenPort,
    specs: &[StreamSpec],
    opening: &mut Opening<'_>,
) -> Result<(), StartError> {
    let is_pinged = |spec: &&StreamSpec| {
        let stream = &spec.stream;
        let routable = !matches!(stream.proto, Proto::Arp | Proto::Raw) && stream.replay.is_none();
        let unicast = multicast_mac(stream.destination().first()).is_none();
        routable && unicast && stream.mpls.is_empty()
    };
    let pinged: Vec<&StreamSpec> = specs.iter().filter(is_pinged).collect();
    if pinged.is_empty() {
        return Ok(());
    }
    let Some(mut socket) = control_socket(port)? else {
        return Ok(());
    };
    let path = |spec: &&StreamSpec| Path {
        src_mac: spec.src_mac,
        dst_mac: spec.dst_mac,
        source: spec.stream.source().first(),
        destinations: Path::destinations(&spec.stream.destination()),
        vlans: spec.stream.vlan_tags(),
    };
    let paths: Vec<Path> = pinged.iter().map(path).collect();
    let signals = &opening.environment.signals;
    let answered = warm_up(&mut socket, &paths, signals);
    signals.refuse_start()?;
    for (spec, answered) in pinged.iter().zip(answered) {
        if answered == 0 {
            opening.warnings.push(format!(
                "{}: {} did not answer ping; the device may drop the first frames until ARP/ND resolves",
                port.plan.locator,
                spec.stream.destination(),
            ));
        }
    }
    Ok(())
}
