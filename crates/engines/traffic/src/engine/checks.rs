//! Checks of streams before their ports are open: streams must fit the machine, and the plan must permit their frames.

use std::{collections::BTreeMap, sync::Arc};

use crate::{RecordedFrame, Recording, StreamSpec};
use wb_model::{
    Driver, Plan, Proto, Stream,
    plan::{PortPlan, TrafficJob},
    units::{Mac, Rate, Rational},
};
use wb_wire::{ethertype, protocol};

use wb_engine::{
    guard::{Guard, Source},
    opening::Environment,
};
use wb_open::{OpenPort, StartError, Use, Wire};

/// Memory of a sending worker for each flow, in bytes: the number of sent frames.
const SENT_FLOW_BYTES: u64 = 16;
/// Memory for the final figures of each flow, in bytes.
const FLOW_FIGURES_BYTES: u64 = 208;
/// Memory of a receiving worker for each flow, in bytes: figures, the window of sequence numbers, and the final
/// figures.
const RECEIVED_FLOW_BYTES: u64 = 128 + 128 + FLOW_FIGURES_BYTES;
/// Memory for settling each flow at the end, in bytes.
const SETTLED_FLOW_BYTES: u64 = 64;

/// Memory in user space for each flow that the kernel counts, in bytes: the final figures of each worker, two more
/// copies while the figures are summed, and the memory for settling.
pub(super) const fn settled_bytes(workers: u32) -> u64 {
    FLOW_FIGURES_BYTES * (workers as u64 + 2) + SETTLED_FLOW_BYTES
}

/// Checks that a port sends for at most one job and receives for at most one job.
pub(super) fn check_port_use(plan: &Plan) -> Result<(), StartError> {
    for port in &plan.ports {
        let count = |f: &dyn Fn(&TrafficJob) -> bool| plan.traffic.iter().filter(|j| f(j)).count();
        let is = |name: &Option<String>| name.as_deref() == Some(&port.name);
        let sends = count(&|j| is(&j.tx) || (j.bidir && is(&j.rx)));
        let receives = count(&|j| is(&j.rx) || (j.bidir && is(&j.tx)));
        for (n, verb) in [(sends, "sends"), (receives, "receives")] {
            if n > 1 {
                return Err(StartError::stream(
                    port.title(),
                    format!("{verb} in {n} jobs; combine the streams in one job"),
                ));
            }
        }
    }
    Ok(())
}

/// Checks that jobs between two hosts have the flow numbers on which the hosts agreed.
pub(super) fn check_flow_numbers(plan: &Plan) -> Result<(), StartError> {
    let is_between = |job: &&TrafficJob| plan.is_elsewhere(&job.tx) || plan.is_elsewhere(&job.rx);
    let mut jobs = plan.traffic.iter().filter(is_between);
    match jobs.find(|job| job.first_flow.is_none()) {
        None => Ok(()),
        Some(job) => Err(StartError::stream(
            format!("traffic {}", job.name).trim_end(),
            "first_flow is missing; a job between two hosts needs the number of its first flow",
        )),
    }
}

/// Checks that ports in memory are joined by their name only.
pub(super) fn check_joined(plan: &Plan) -> Result<(), StartError> {
    let in_memory = |name: &Option<String>| {
        let mut ports = plan.ports.iter();
        let port = ports.find(|p| Some(&p.name) == name.as_ref())?;
        (port.locator.driver == Some(Driver::Memory)).then_some(&port.locator)
    };
    let mut pairs = plan
        .traffic
        .iter()
        .filter_map(|job| Some((in_memory(&job.tx)?, in_memory(&job.rx)?)));
    match pairs.find(|(tx, rx)| tx.name != rx.name) {
        None => Ok(()),
        Some((tx, rx)) => Err(StartError::stream(
            format!("{tx} to {rx}"),
            "the ports are not connected; two memory ports are connected if they have the same name",
        )),
    }
}

/// Checks that the flows fit into memory: each flow is followed, and a machine that swaps cannot measure.
pub(super) fn check_memory(plan: &Plan) -> Result<(), StartError> {
    let (flows, need) = need(plan);
    match wb_machine::memory::available() {
        Some(available) => fits(flows, need, available),
        None => Ok(()),
    }
}

/// Number of flows of all jobs, and their memory in bytes. Accounts in the kernel are excluded, because their size
/// depends on the queues of a device, which are known later.
fn need(plan: &Plan) -> (u64, u64) {
    let own = || plan.ports.iter().filter(|p| p.locator.host.is_none());
    let port = |name: Option<&str>| own().find(|p| Some(p.name.as_str()) == name);
    let workers = |name| port(name).map_or(0, |p| u64::from(p.workers.max(1)));
    let mut need = 0;
    let mut flows = 0;
    for job in &plan.traffic {
        let ways = if job.bidir { 2 } else { 1 };
        let of_job = ways
            * job
                .streams
                .iter()
                .map(|s| u64::from(s.flow_count()))
                .sum::<u64>()
            + u64::from(job.flows.unwrap_or(0));
        let (tx, rx) = (workers(job.tx.as_deref()), workers(job.rx.as_deref()));
        let sending = if tx > 0 {
            SENT_FLOW_BYTES * (tx + 1)
        } else {
            0
        };
        let receiving = match port(job.rx.as_deref()) {
            None => 0,
            Some(p) if p.locator.driver == Some(Driver::Live) => settled_bytes(p.workers.max(1)),
            Some(_) => RECEIVED_FLOW_BYTES * rx + SETTLED_FLOW_BYTES,
        };
        flows += of_job;
        need += of_job * (sending + receiving);
    }
    (flows, need)
}

#[allow(clippy::cast_precision_loss)]
fn fits(flows: u64, need: u64, available: u64) -> Result<(), StartError> {
    if need <= available {
        return Ok(());
    }
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let most = u128::from(flows) * u128::from(available) / u128::from(need);
    Err(StartError::stream(
        "flows",
        format!(
            "{flows} flows need {:.1} GiB of memory, but {:.1} GiB are available: at most {most} fit",
            gib(need),
            gib(available)
        ),
    ))
}

pub(super) type Recordings = BTreeMap<String, Arc<Recording>>;

/// Length of two addresses and a type, in bytes.
const ETHERNET_HEADER: usize = 14;

pub(super) fn read_recordings(
    plan: &Plan,
    environment: &Environment,
    warnings: &mut Vec<String>,
) -> Result<Recordings, StartError> {
    let mut recordings = Recordings::new();
    for stream in plan.traffic.iter().flat_map(|j| &j.streams) {
        let Some(path) = &stream.replay else { continue };
        if recordings.contains_key(path) {
            continue;
        }
        let file = environment
            .base
            .as_ref()
            .map_or_else(|| path.into(), |b| b.join(path));
        let wrong = |what: String| StartError::stream(format!("replay {path}"), what);
        let bytes = std::fs::read(&file)
            .map_err(|e| wrong(format!("cannot be read: {}", wb_machine::cause_text(&e))))?;
        let reader = wb_pcapng::CaptureReader::new(&bytes).map_err(|e| wrong(e.to_string()))?;
        let (mut frames, mut first, mut cut) = (Vec::new(), None, 0);
        for record in reader {
            let record = record.map_err(|e| wrong(e.to_string()))?;
            if record.link_type != wb_pcapng::LINK_ETHERNET {
                return Err(wrong(format!(
                    "link type {} is not Ethernet",
                    record.link_type
                )));
            }
            if record.captured.len() < ETHERNET_HEADER {
                return Err(wrong(format!(
                    "frame {} has {} bytes; the minimum is an Ethernet header of {ETHERNET_HEADER} bytes",
                    frames.len() + 1,
                    record.captured.len()
                )));
            }
            cut += u64::from(record.captured.len() < record.original_len as usize);
            let first = *first.get_or_insert(record.stamp_ns);
            frames.push(RecordedFrame {
                offset_ns: record.stamp_ns.saturating_sub(first),
                bytes: record.captured.to_vec(),
            });
        }
        if frames.is_empty() {
            return Err(wrong("contains no frames".to_owned()));
        }
        if cut > 0 {
            warnings.push(format!(
                "replay {path}: {cut} of {} frames were truncated by the capture and are sent truncated",
                frames.len()
            ));
        }
        recordings.insert(path.clone(), Arc::new(Recording { frames }));
    }
    Ok(recordings)
}

/// Mean frame size of a stream in bytes, with FCS.
pub(super) fn mean_size(spec: &StreamSpec) -> Rational {
    let recorded = spec.replay.as_ref().and_then(|r| r.mean_size());
    recorded.unwrap_or_else(|| spec.stream.sizes().mean())
}

/// Frames per second of a stream, like [`Stream::frames_per_second`], also for recordings with a rate in bits.
pub(super) fn frames_per_second(
    stream: &Stream,
    line: Option<u64>,
    recordings: &Recordings,
) -> Option<Rational> {
    stream.frames_per_second_of(mean_of(stream, recordings), line)
}

fn mean_of(stream: &Stream, recordings: &Recordings) -> Rational {
    let recording = stream.replay.as_ref().and_then(|r| recordings.get(r));
    let recorded = recording.and_then(|r| r.mean_size());
    recorded.unwrap_or_else(|| stream.sizes().mean())
}

/// Streams that leave by a port: streams of jobs that send from the port, and streams sent back to it.
fn streams_from<'a>(plan: &'a Plan, port: &'a str) -> impl Iterator<Item = &'a Stream> {
    plan.traffic
        .iter()
        .filter(move |j| {
            j.tx.as_deref() == Some(port) || (j.bidir && j.rx.as_deref() == Some(port))
        })
        .flat_map(|j| &j.streams)
}

/// Returns true if untagged frames that arrive at a port are of types that XDP passes on to the host.
pub(super) fn shares_with_host(plan: &Plan, port: &str, recordings: &Recordings) -> bool {
    plan.traffic
        .iter()
        .filter(|j| {
            j.tx.is_some()
                && (j.rx.as_deref() == Some(port) || (j.bidir && j.tx.as_deref() == Some(port)))
        })
        .flat_map(|j| &j.streams)
        .filter(|s| !s.is_tagged())
        .any(
            |s| match s.replay.as_ref().and_then(|r| recordings.get(r)) {
                Some(recording) => recording.frames.iter().any(|f| left_to_host(&f.bytes)),
                None => {
                    let group = |mac: Mac| mac.0[0] & 1 == 1;
                    !matches!(s.proto, Proto::Udp | Proto::Tcp) || s.dst_mac.is_some_and(group)
                }
            },
        )
}

/// Returns true if the XDP program would leave this frame to the host (`is_control` in its source).
fn left_to_host(frame: &[u8]) -> bool {
    let byte = |at: usize| frame.get(at).copied().unwrap_or(0);
    let word = |at: usize| u16::from_be_bytes([byte(at), byte(at + 1)]);
    if byte(0) & 1 == 1 {
        return true;
    }
    let mut at = 12;
    for _ in 0..2 {
        if matches!(word(at), ethertype::VLAN | ethertype::QINQ) {
            at += 4;
        }
    }
    match word(at) {
        ethertype::ARP => true,
        ethertype::IPV4 if byte(at + 11) == protocol::ICMP => {
            matches!(byte(at + 2 + usize::from(byte(at + 2) & 15) * 4), 0 | 8)
        }
        ethertype::IPV6 if byte(at + 8) == protocol::ICMPV6 => {
            matches!(byte(at + 42), 128 | 129 | 133..=137)
        }
        _ => false,
    }
}

/// Length of the longest frame of a stream in bytes, without FCS.
fn longest_of(stream: &Stream, recordings: &Recordings) -> usize {
    match stream.replay.as_ref().and_then(|r| recordings.get(r)) {
        Some(recording) => recording
            .frames
            .iter()
            .map(|f| f.bytes.len())
            .max()
            .unwrap_or(0),
        None => stream.sizes().largest().len_without_fcs(),
    }
}

pub(super) fn longest_frame(plan: &Plan, port: &PortPlan, recordings: &Recordings) -> usize {
    let lengths = streams_from(plan, &port.name).map(|s| longest_of(s, recordings));
    lengths.max().unwrap_or(1514)
}

pub(super) fn check_streams(
    plan: &Plan,
    port: &PortPlan,
    wire: Option<&Wire>,
    recordings: &Recordings,
) -> Result<(), StartError> {
    let place = port.locator.to_string();
    let line = wire
        .and_then(|w| w.interface.speed)
        .filter(|s| !s.nominal)
        .map(|s| s.bits_per_second);
    let mut total = 0.0;
    for stream in streams_from(plan, &port.name) {
        if matches!(stream.rate, Rate::Percent(_)) && line.is_none() {
            return Err(StartError::stream(
                place,
                format!(
                    "{} of line rate: the speed of the port is nominal or unknown; give the rate in pps or bit/s",
                    stream.rate
                ),
            ));
        }
        if let (Some(fps), Some(_)) = (frames_per_second(stream, line, recordings), line) {
            total += fps.as_f64()
                * (mean_of(stream, recordings).as_f64()
                    + f64::from(wb_model::units::WIRE_OVERHEAD))
                * 8.0;
        }
        if let Some(wire) = wire {
            check_mtu(&place, stream, wire, recordings)?;
        }
    }
    if let Some(line) = line
        && total > line as f64 * 1.0001
    {
        return Err(StartError::stream(
            place,
            format!(
                "the streams request {:.3} Gbit/s at layer 1, but the link carries {:.3} Gbit/s",
                total / 1e9,
                line as f64 / 1e9
            ),
        ));
    }
    Ok(())
}

/// Checks that the frames that leave by a port are permitted and fit.
pub(super) fn check_leaving(
    plan: &Plan,
    port: &PortPlan,
    used: Use,
    wire: &Wire,
    recordings: &Recordings,
) -> Result<(), StartError> {
    let guard = Guard::of(plan);
    guard.addresses(&[Source::Neighbours(port)])?;
    if !used.tx {
        return Ok(());
    }
    for job in &plan.traffic {
        let is = |name: &Option<String>| name.as_deref() == Some(port.name.as_str());
        let place = |number: usize| match job.streams.len() {
            1 => "stream".to_owned(),
            _ => format!("stream {}", number + 1),
        };
        let back: Vec<Stream> = job.streams.iter().map(Stream::reversed).collect();
        let mut leaving: Vec<(usize, &Stream)> = Vec::new();
        if is(&job.tx) {
            leaving.extend(job.streams.iter().enumerate());
        }
        if job.bidir && is(&job.rx) {
            leaving.extend(back.iter().enumerate());
        }
        let sources: Vec<Source> = leaving
            .into_iter()
            .map(|(number, stream)| Source::Stream {
                place: place(number),
                stream,
                recording: stream
                    .replay
                    .as_ref()
                    .and_then(|r| recordings.get(r))
                    .map(|r| r.frames.iter().map(|f| &*f.bytes).collect()),
            })
            .collect();
        guard.addresses(&sources)?;
    }
    guard.outlet(port, wire)
}

fn check_mtu(
    place: &str,
    stream: &Stream,
    wire: &Wire,
    recordings: &Recordings,
) -> Result<(), StartError> {
    // The kernel lets one VLAN tag exceed the MTU, not two (`is_skb_forwardable`).
    let tags = 4 * stream.vlan.len().min(1);
    let len = longest_of(stream, recordings);
    let mtu = wire.interface.mtu as usize;
    if len <= mtu + 14 + tags {
        return Ok(());
    }
    Err(StartError::stream(
        place,
        format!(
            "frames of {} bytes need an MTU of {}, but it is {mtu}; use frames of at most {} bytes, or try `{}ip link set {} mtu {}`",
            len + 4,
            len - 14 - tags,
            mtu + 18 + tags,
            wire.namespace.command_prefix(),
            wire.interface.name,
            len - 14 - tags,
        ),
    ))
}

/// Warns about receiving ports with an MTU that is too small for the frames sent to them. This is not an error: a
/// device may fragment on the way.
pub(super) fn short_receivers(
    plan: &Plan,
    ports: &[OpenPort],
    recordings: &Recordings,
) -> Vec<String> {
    let mut warnings = Vec::new();
    for port in ports {
        let Some(wire) = &port.wire else { continue };
        let received = plan
            .traffic
            .iter()
            .filter(|job| job.rx.as_ref() == Some(&port.plan.name))
            .flat_map(|job| &job.streams);
        let error = received
            .filter_map(|s| check_mtu(&port.plan.locator.to_string(), s, wire, recordings).err())
            .next();
        warnings.extend(error.map(|e| e.to_string()));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_the_need() {
        assert!(fits(1, 1000, 1000).is_ok());
        let error = fits(16_777_216, 9 << 30, 3 << 30).unwrap_err().to_string();
        for part in ["16777216 flows", "9.0 GiB", "3.0 GiB", "5592405 fit"] {
            assert!(error.contains(part), "no {part:?} in {error}");
        }
    }

    #[test]
    fn what_the_kernel_keeps_is_reckoned_by_who_knows_its_queues() {
        let of = |locator: &str| {
            let mut plan = Plan::default();
            plan.ports.push(PortPlan {
                workers: 8,
                ..PortPlan::new("rx", locator.parse().unwrap())
            });
            plan.traffic.push(TrafficJob {
                rx: Some("rx".to_owned()),
                flows: Some(1000),
                ..TrafficJob::default()
            });
            need(&plan)
        };
        assert_eq!(of("xdp:eth2"), (1000, 1000 * (464 * 8 + 64)));
        assert_eq!(of("live:eth2"), (1000, 1000 * (208 * 10 + 64)));
    }

    #[test]
    fn what_xdp_leaves_to_the_host_is_known() {
        let frame = |destination: u8, at: &[(usize, u8)]| {
            let mut bytes = vec![0; 60];
            bytes[0] = destination;
            for (place, byte) in at {
                bytes[*place] = *byte;
            }
            bytes
        };
        let ipv4 = |kind: u8| frame(2, &[(12, 8), (14, 0x45), (23, 1), (34, kind)]);
        let ipv6 = |kind: u8| frame(2, &[(12, 0x86), (13, 0xdd), (20, 58), (54, kind)]);
        for left in [
            frame(0xff, &[(12, 8)]),
            frame(1, &[]),
            frame(2, &[(12, 8), (13, 6)]),
            frame(2, &[(12, 0x81), (16, 8), (17, 6)]),
            ipv4(8),
            ipv4(0),
            ipv6(128),
            ipv6(135),
        ] {
            assert!(left_to_host(&left), "{left:x?}");
        }
        for taken in [
            frame(2, &[(12, 8), (14, 0x45), (23, 17)]),
            ipv4(3),
            ipv6(1),
            frame(2, &[(12, 0x88), (13, 0xcc)]),
            Vec::new(),
        ] {
            assert!(!left_to_host(&taken), "{taken:x?}");
        }
    }
}
