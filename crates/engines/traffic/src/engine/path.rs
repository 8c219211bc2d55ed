//! Chooses the path of the streams at a port if the plan leaves it open: inside the kernel, or by the queues of a
//! driver.
//!
//! Reasons that are known before anything is opened are found here, from the plan, the machine and the device. Reasons
//! that only opening shows are found in `live.rs`. The result is the same: the other path, and the reason in the
//! report.

use std::collections::BTreeMap;

use crate::{Sender, StreamSpec};
use wb_live::{MOST_FRAME, takes_frames};
use wb_machine::{
    ethtool::{Ethtool, Offload},
    privilege::{Capability, Privileges},
};
use wb_model::{
    JobKind, Plan, Stream,
    plan::{PortPlan, TrafficJob},
};
use wb_port::offload::Refusal;

use super::{
    checks::{Recordings, frames_per_second},
    live, sender_spec,
};
use wb_open::{Use, Wire, far_end, is_of_a_lab, requested_driver};

/// BPF_F_TEST_XDP_LIVE_FRAMES.
const OLDEST: (u32, u32) = (5, 18);

/// Facts about the machine that decide.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// Version of the kernel: major, minor; `None` if unknown.
    pub kernel: Option<(u32, u32)>,
    /// True inside a user namespace.
    pub user_namespace: bool,
    /// Capabilities that this process lacks.
    pub lacking: Vec<Capability>,
}

impl Host {
    /// Facts about this machine and process.
    #[must_use]
    pub fn here() -> Self {
        let privileges = Privileges::of_this_process();
        let all = [
            Capability::NetAdmin,
            Capability::SysAdmin,
            Capability::Bpf,
            Capability::Perfmon,
        ];
        Self {
            kernel: wb_machine::doctor::kernel_version(),
            user_namespace: privileges.in_user_namespace,
            lacking: all.into_iter().filter(|c| !privileges.has(*c)).collect(),
        }
    }

    /// Returns why no port of this machine can be used in this way.
    pub fn why_not(&self, used: Use) -> Option<Refusal> {
        if self.kernel.is_some_and(|version| version < OLDEST) {
            return Some(Refusal::Kernel(self.kernel));
        }
        if self.user_namespace {
            return Some(Refusal::UserNamespace);
        }
        let lacks = |capability| self.lacking.contains(&capability);
        // CAP_SYS_ADMIN includes CAP_BPF and CAP_PERFMON. A sender needs it in any case, for a separate network
        // namespace.
        let missing = [
            Capability::NetAdmin,
            Capability::SysAdmin,
            Capability::Bpf,
            Capability::Perfmon,
        ]
        .into_iter()
        .find(|capability| match capability {
            Capability::NetAdmin => lacks(Capability::NetAdmin),
            Capability::SysAdmin => used.tx && lacks(Capability::SysAdmin),
            other => lacks(*other) && lacks(Capability::SysAdmin),
        });
        missing.map(|capability| Refusal::Lacks(capability.to_string()))
    }
}

/// Facts about the other end of a veth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FarEnd {
    /// True if the far end is a port of the plan that receives.
    pub receives: bool,
    /// True if the far end is in a lab, so that this program may prepare it.
    pub of_a_lab: bool,
    /// True if GRO is on.
    pub gro: bool,
    /// True if an XDP program is attached.
    pub program: bool,
    /// Number of queues that take frames of programs, by CPU.
    pub queues: u32,
    /// Command that switches GRO on at the far end.
    pub command: String,
}

/// Facts about the device that decide.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// Name of the kernel driver.
    pub driver: String,
    /// True if the device takes frames from programs; `None` if the kernel does not report it.
    pub takes_frames: Option<bool>,
    /// The other end, if the device is a veth and its other end is known.
    pub far: Option<FarEnd>,
    /// Number of the XDP program that is attached.
    pub program: Option<u32>,
    /// Number of send queues.
    pub queues: u32,
    /// Name of the interface.
    pub interface: String,
}

impl Device {
    /// Facts about the device of a port.
    #[must_use]
    pub fn of(port: &PortPlan, wire: &Wire, plan: &Plan) -> Self {
        let interface = &wire.interface;
        let takes = wb_machine::netns::in_namespace(&wire.namespace, || takes_frames(interface));
        let far = far_end(port, wire).map(|far| {
            let name = &far.interface.name;
            let gro = Ethtool::open(&far.namespace).ok();
            let place = far.namespace.place_of(name);
            let mut own = plan.ports.iter().filter(|p| p.locator.host.is_none());
            let at = own.find(|p| p.locator.place() == place);
            FarEnd {
                receives: at.is_some_and(|p| receives(plan, p)),
                of_a_lab: is_of_a_lab(&far),
                gro: gro
                    .and_then(|e| e.offload(name, Offload::Gro).ok().flatten())
                    .unwrap_or(false),
                program: far.link.xdp_attached.is_some(),
                queues: far.interface.rx_queues,
                command: format!("{}ethtool -K {name} gro on", far.namespace.command_prefix()),
            }
        });
        Self {
            driver: interface.kernel_driver.clone(),
            takes_frames: takes.ok().flatten(),
            far,
            program: wire.link.xdp_attached.as_ref().map(|p| p.id),
            queues: interface.tx_queues,
            interface: interface.name.clone(),
        }
    }

    /// Returns why the device does not take frames from programs for the whole run. `awaited`: a port of the run
    /// receives the frames.
    pub fn keeps_out(&self, awaited: bool) -> Option<Refusal> {
        let no_transmit = |command| Refusal::NoTransmit {
            driver: self.driver.clone(),
            command,
        };
        let Some(far) = &self.far else {
            return (self.takes_frames == Some(false)).then(|| no_transmit(None));
        };
        if far.gro && self.takes_frames != Some(false) {
            return None;
        }
        // Programs of this run are attached later.
        if far.program {
            return Some(Refusal::AtMercy);
        }
        match (far.of_a_lab, awaited) {
            (true, true) => None,
            _ if far.receives => None,
            (true, false) => Some(Refusal::Unawaited),
            (false, _) => Some(no_transmit(Some(far.command.clone()))),
        }
    }

    /// Number of queues that take frames at the same time.
    fn room(&self) -> u32 {
        self.far.as_ref().map_or(self.queues, |far| far.queues)
    }

    /// Returns why this number of senders must not send to the device at once.
    pub fn crowds(&self, senders: u32, what: &'static str) -> Option<Refusal> {
        let room = self.room();
        (senders > room).then_some(Refusal::Crowded {
            senders,
            what,
            room,
        })
    }
}

fn is(end: &Option<String>, port: &PortPlan) -> bool {
    end.as_ref() == Some(&port.name)
}

fn sends(job: &TrafficJob, port: &PortPlan) -> bool {
    is(&job.tx, port) || (job.bidir && is(&job.rx, port))
}

fn receives(plan: &Plan, port: &PortPlan) -> bool {
    let mut jobs = plan.traffic.iter();
    jobs.any(|job| is(&job.rx, port) || (job.bidir && is(&job.tx, port)))
}

/// Reasons for using queues, by port. Streams of ports without an entry run inside the kernel.
pub(super) type Reasons = BTreeMap<String, Refusal>;

/// Decides the path of the ports with an open driver (`is_open`).
pub(super) fn reasons(
    plan: &Plan,
    ports: &[(&PortPlan, Option<Wire>)],
    uses: &BTreeMap<String, Use>,
    recordings: &Recordings,
) -> Reasons {
    let host = Host::here();
    let mut reasons = Reasons::new();
    for (port, wire) in ports {
        let Some(wire) = wire.as_ref().filter(|_| is_open(port)) else {
            continue;
        };
        let used = uses[&port.name];
        let why = of_plan(plan, port)
            .or_else(|| host.why_not(used))
            .or_else(|| of_device(plan, port, used, &Device::of(port, wire, plan)))
            .or_else(|| of_frames(plan, port, wire, recordings));
        reasons.extend(why.map(|why| (port.name.clone(), why)));
    }
    // A port that uses queues may be the receiver of another port, which affects that port.
    loop {
        let inside = |port: &PortPlan| is_inside(port, &reasons);
        let found = ports.iter().find_map(|(port, wire)| {
            let line = wire.as_ref().and_then(line_of);
            let open = is_open(port) && wire.is_some() && inside(port);
            let why = open.then(|| too_fast(plan, port, line, &inside))??;
            Some((port.name.clone(), why))
        });
        let Some((port, why)) = found else {
            return reasons;
        };
        reasons.insert(port, why);
    }
}

/// Returns true if the plan leaves the driver of a port open.
pub(super) fn is_open(port: &PortPlan) -> bool {
    port.locator.is_interface() && matches!(requested_driver(port), Ok(None))
}

fn is_inside(port: &PortPlan, reasons: &Reasons) -> bool {
    port.locator.driver == Some(wb_model::Driver::Live)
        || (is_open(port) && !reasons.contains_key(&port.name))
}

fn line_of(wire: &Wire) -> Option<u64> {
    let speed = wire.interface.speed.filter(|s| !s.nominal);
    speed.map(|s| s.bits_per_second)
}

/// Returns why the plan itself keeps a port out of the kernel.
pub(super) fn of_plan(plan: &Plan, port: &PortPlan) -> Option<Refusal> {
    asked(plan, port).map(Refusal::Asked)
}

fn asked(plan: &Plan, port: &PortPlan) -> Option<&'static str> {
    let is_other = |p: &&PortPlan| p.name != port.name && p.locator.host.is_none();
    let others = plan.ports.iter().filter(is_other);
    let mut same = others.filter(|p| p.locator.place() == port.locator.place());
    if plan.users(port).any(|kind| kind == JobKind::Capture) {
        return Some("a capture on this port would not see the frames");
    }
    if plan.parties(port) > 1 || same.next().is_some() {
        return Some("other jobs share this port");
    }
    if port.priority != 0 {
        return Some("a socket priority is set");
    }
    let jobs = || plan.traffic.iter();
    if receives(plan, port) && port.ring_bytes > 0 {
        return Some("a ring size is set, and live has no ring");
    }
    if jobs().any(|job| job.departures && sends(job, port)) {
        return Some("times between departures are measured in user space");
    }
    live::not_accountable(plan, port)
}

/// Returns why its device keeps a port out of the kernel.
fn of_device(plan: &Plan, port: &PortPlan, used: Use, device: &Device) -> Option<Refusal> {
    if used.rx
        && let Some(id) = device.program
    {
        return Some(Refusal::Attached {
            id: Some(id),
            interface: device.interface.clone(),
        });
    }
    if !used.tx {
        return None;
    }
    let awaited = plan.traffic.iter().any(|job| {
        let other = if is(&job.tx, port) { &job.rx } else { &job.tx };
        sends(job, port) && other.is_some() && !plan.is_elsewhere(other)
    });
    if let Some(why) = device.keeps_out(awaited) {
        return Some(why);
    }
    device.crowds(port.workers, "workers")
}

/// Returns why the frames of a port's streams cannot be made inside the kernel.
fn of_frames(
    plan: &Plan,
    port: &PortPlan,
    wire: &Wire,
    recordings: &Recordings,
) -> Option<Refusal> {
    for (number, job) in plan.traffic.iter().enumerate() {
        if !sends(job, port) {
            continue;
        }
        let forward = is(&job.tx, port);
        let streams = job.streams.iter().map(|stream| match forward {
            true => stream.clone(),
            false => stream.reversed(),
        });
        let streams: Vec<StreamSpec> = streams
            .map(|stream| StreamSpec {
                // Hardware addresses are found later, and count as fields like any other.
                flows: stream.flow_count().max(port.workers),
                pps: frames_per_second(&stream, line_of(wire), recordings),
                replay: stream
                    .replay
                    .as_ref()
                    .and_then(|path| recordings.get(path))
                    .cloned(),
                stream,
                ..StreamSpec::default()
            })
            .collect();
        if streams.iter().any(|s| s.stream.replay.is_some()) {
            return Some(Refusal::Asked("replays are sent from user space"));
        }
        let spec = sender_spec(plan, number, streams, 0, port.workers);
        let fits = Sender::new(&spec, MOST_FRAME)
            .map_err(|cause| Refusal::Streams(cause.to_string()))
            .and_then(|sender| sender.offload_tables(&spec).map_err(Refusal::Asked))
            .and_then(|tables| wb_live::fits(&tables.streams));
        if let Err(why) = fits {
            return Some(why);
        }
    }
    None
}

/// Returns why a port must not send as fast as the kernel can: the receiver belongs to this run, takes frames by
/// sockets, and could not follow. Missed frames would be the tester's fault.
pub(super) fn too_fast(
    plan: &Plan,
    port: &PortPlan,
    line: Option<u64>,
    inside: &dyn Fn(&PortPlan) -> bool,
) -> Option<Refusal> {
    let at_full_speed = |stream: &Stream| stream.frames_per_second(line).is_none();
    plan.traffic.iter().find_map(|job| {
        if !sends(job, port) || !job.streams.iter().any(at_full_speed) {
            return None;
        }
        let other = if is(&job.tx, port) { &job.rx } else { &job.tx };
        let other = plan.ports.iter().find(|p| is(other, p))?;
        (!inside(other)).then(|| {
            Refusal::Streams(format!(
                "the sockets of {} could not receive at full speed",
                other.name
            ))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str, locator: &str) -> PortPlan {
        PortPlan::new(name, locator.parse().unwrap())
    }

    fn plan() -> Plan {
        Plan {
            ports: vec![port("a", "n/a0"), port("b", "m/b0")],
            traffic: vec![TrafficJob {
                tx: Some("a".to_owned()),
                rx: Some("b".to_owned()),
                streams: vec![Stream::default()],
                ..TrafficJob::default()
            }],
            ..Plan::default()
        }
    }

    fn of(plan: &Plan, port: usize) -> Option<Refusal> {
        of_plan(plan, &plan.ports[port])
    }

    fn assert_says(why: Option<Refusal>, part: Option<&str>) {
        let why = why.map(|why| why.to_string());
        match (&why, part) {
            (None, None) => {}
            (Some(why), Some(part)) if why.contains(part) => {}
            _ => panic!("{why:?}, not {part:?}"),
        }
    }

    const BOTH: Use = Use {
        tx: true,
        rx: true,
        watch: false,
        shares: false,
        sharing: wb_open::Sharing::Alone,
    };
    const RECEIVES: Use = Use { tx: false, ..BOTH };

    #[test]
    fn a_machine_has_the_kernel_and_the_privileges_or_says_which_are_missing() {
        let host = |kernel, user_namespace, lacking: &[Capability]| Host {
            kernel,
            user_namespace,
            lacking: lacking.to_vec(),
        };
        let (old, new) = (Some((5, 17)), Some((5, 18)));
        use Capability::{Bpf, NetAdmin, Perfmon, SysAdmin};
        for (host, used, part) in [
            (host(new, false, &[]), BOTH, None),
            (host(None, false, &[]), BOTH, None),
            (host(old, false, &[]), BOTH, Some("Linux 5.17")),
            (
                host(new, true, &[Bpf, Perfmon]),
                BOTH,
                Some("user namespace"),
            ),
            (host(new, false, &[NetAdmin]), BOTH, Some("CAP_NET_ADMIN")),
            (host(new, false, &[SysAdmin]), BOTH, Some("CAP_SYS_ADMIN")),
            (host(new, false, &[SysAdmin]), RECEIVES, None),
            (host(new, false, &[Bpf, Perfmon]), BOTH, None),
            (
                host(new, false, &[Bpf, SysAdmin]),
                RECEIVES,
                Some("CAP_BPF"),
            ),
            (
                host(new, false, &[Perfmon, SysAdmin]),
                RECEIVES,
                Some("CAP_PERFMON"),
            ),
        ] {
            assert_says(host.why_not(used), part);
        }
    }

    #[test]
    fn a_device_takes_frames_for_the_whole_run_or_says_why_not() {
        let device = |driver: &str, takes_frames, far| Device {
            driver: driver.to_owned(),
            takes_frames,
            far,
            program: None,
            queues: 1,
            interface: "a0".to_owned(),
        };
        let far = FarEnd {
            command: "ethtool -K b0 gro on".to_owned(),
            queues: 1,
            ..FarEnd::default()
        };
        let lab = FarEnd {
            of_a_lab: true,
            ..far.clone()
        };
        let veth = |takes, far: FarEnd| device("veth", Some(takes), Some(far));
        for (device, awaited, part) in [
            (device("ice", Some(true), None), false, None),
            (device("ice", None, None), false, None),
            (
                device("e1000e", Some(false), None),
                true,
                Some("e1000e accepts no frames"),
            ),
            (device("", Some(false), None), true, Some("NDO_XMIT")),
            (device("veth", Some(false), None), true, Some("GRO")),
            (
                veth(false, far.clone()),
                true,
                Some("`ethtool -K b0 gro on`"),
            ),
            (
                veth(
                    true,
                    FarEnd {
                        gro: true,
                        ..far.clone()
                    },
                ),
                false,
                None,
            ),
            // The device has too few queues, or it is down.
            (
                veth(
                    false,
                    FarEnd {
                        gro: true,
                        ..far.clone()
                    },
                ),
                false,
                Some("GRO"),
            ),
            (
                veth(
                    true,
                    FarEnd {
                        program: true,
                        ..far.clone()
                    },
                ),
                true,
                Some("another user's"),
            ),
            (
                veth(
                    true,
                    FarEnd {
                        program: true,
                        ..lab.clone()
                    },
                ),
                true,
                Some("another user's"),
            ),
            (
                veth(
                    false,
                    FarEnd {
                        receives: true,
                        ..lab.clone()
                    },
                ),
                true,
                None,
            ),
            (veth(false, lab.clone()), true, None),
            (veth(false, lab), false, Some("this run has no receiver")),
        ] {
            assert_says(device.keeps_out(awaited), part);
        }
    }

    #[test]
    fn what_else_a_plan_asks_for_keeps_a_port_out() {
        let with = |change: &dyn Fn(&mut Plan)| {
            let mut plan = plan();
            change(&mut plan);
            plan
        };
        let tag = |tag| move |p: &mut Plan| p.traffic[0].streams[0].tag = tag;
        let capture = |port: &'static str| {
            move |p: &mut Plan| {
                p.captures.push(wb_model::capture::CaptureJob {
                    ports: vec![port.to_owned()],
                    ..Default::default()
                });
            }
        };
        for (plan, at_a, at_b) in [
            (plan(), None, None),
            (
                with(&tag(wb_model::TagKind::None)),
                None,
                Some("without a tag"),
            ),
            (
                with(&tag(wb_model::TagKind::Pktgen)),
                None,
                Some("wirebench tag"),
            ),
            (
                with(&|p| p.traffic[0].departures = true),
                Some("departures"),
                None,
            ),
            (
                with(&|p| p.traffic[0].tx = None),
                None,
                Some("number of flows"),
            ),
            (
                with(&|p| p.ports[1].ring_bytes = 1 << 20),
                None,
                Some("ring"),
            ),
            (with(&|p| p.ports[0].ring_bytes = 1 << 20), None, None),
            (
                with(&|p| p.ports[0].priority = 3),
                Some("socket priority"),
                None,
            ),
            (with(&capture("a")), Some("a capture"), None),
            (with(&capture("b")), None, Some("a capture")),
            (
                with(&|p| {
                    p.loads.push(wb_model::load::LoadJob {
                        port: "a".to_owned(),
                        ..Default::default()
                    });
                }),
                Some("other jobs"),
                None,
            ),
        ] {
            assert_says(of(&plan, 0), at_a);
            assert_says(of(&plan, 1), at_b);
        }
    }

    #[test]
    fn queues_and_other_programs_are_seen() {
        let plan = plan();
        let two = PortPlan {
            workers: 2,
            ..plan.ports[0].clone()
        };
        let device = |program, queues| Device {
            program,
            queues,
            takes_frames: Some(true),
            ..Device::default()
        };
        let sends = Use { rx: false, ..BOTH };
        assert_says(
            of_device(&plan, &two, sends, &device(None, 1)),
            Some("2 workers"),
        );
        assert_says(of_device(&plan, &two, sends, &device(None, 2)), None);
        assert_says(of_device(&plan, &two, sends, &device(Some(7), 2)), None);
        assert_says(
            of_device(&plan, &two, RECEIVES, &device(Some(7), 2)),
            Some("program 7"),
        );
    }

    #[test]
    fn full_speed_is_for_receivers_that_follow() {
        let mut plan = plan();
        let why = |plan: &Plan, inside: bool| too_fast(plan, &plan.ports[0], None, &|_| inside);
        plan.traffic[0].streams[0].rate = "1mpps".parse().unwrap();
        assert_says(why(&plan, false), None);
        plan.traffic[0].streams[0].rate = wb_model::units::Rate::Max;
        assert_says(why(&plan, true), None);
        assert_says(why(&plan, false), Some("could not receive at full speed"));
        plan.traffic[0].rx = None;
        assert_says(why(&plan, false), None);
    }
}
