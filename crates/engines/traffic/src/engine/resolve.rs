//! Completes streams for sending: hardware addresses, flow numbers, and a path that is warmed up.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    net::IpAddr,
    sync::Arc,
};

use crate::{FollowedRun, OPEN_FLOWS, StreamSpec, range_around};
use wb_model::{Plan, Proto, Stream, TagKind, stream::PAST_LAST_FLOW, units::Mac};

use super::{Direction, RunFlows, Streams, checks, is_tagged};
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
            // If this run only receives, another tester numbers the flows.
            let flows = job.flows.unwrap_or(OPEN_FLOWS);
            let known = told.map(|first| (first, flows.min(PAST_LAST_FLOW - first)));
            (direction.first_flow, direction.flows) = known.unwrap_or(range_around(0, flows));
            direction.from = Some(Arc::new(FollowedRun::new(told, flows)));
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
                format!("{next_flow} flows from number {first} exceed the largest flow number"),
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

/// Returns a random first flow number for `flows` flows, so that two runs do not share numbers.
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
    let hops = match tx {
        Some(tx) => {
            let receiver = rx.map(|rx| &open.ports[rx]);
            next_hops_of(&open.ports[tx], streams, receiver, opening)?
        }
        None => Vec::new(),
    };
    for (i, (stream, dst_mac)) in streams.iter_mut().zip(hops).enumerate() {
        let Some(tx) = tx else { break };
        let port = &open.ports[tx];
        let src_mac = match stream.src_mac {
            Some(mac) => mac.0,
            None if port.facts.mac == [0; 6] => NO_WIRE_SRC_MAC,
            None => port.facts.mac,
        };
        let workers = u32::try_from(port.workers()).unwrap_or(1);
        let flows = if stream.tag == TagKind::Wirebench && stream.replay.is_none() {
            stream.flow_count().max(workers)
        } else {
            1
        };
        if stream.tag == TagKind::Pktgen && workers > 1 {
            return Err(StartError::stream(
                port.plan.locator.to_string(),
                "the pktgen tag has a single sequence and needs one worker (--workers 1)",
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
    if let (Some(tx), Some(_)) = (tx, rx) {
        warm_up_paths(&open.ports[tx], &specs, opening)?;
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
