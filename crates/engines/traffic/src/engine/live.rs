//! Ports that send streams and account for them inside the kernel (live driver): conditions and workers.

use std::{
    fmt::Display,
    time::{Duration, Instant},
};

use crate::{OffloadedWorker, RAMP_FLOW};
use wb_live::{
    Account, MOST_FRAME, PassProgram, Receiver as Accounted, Sender as LiveSender, probe,
    takes_frames,
};
use wb_machine::{clock::monotonic_ns, netns};
use wb_model::{Plan, Stream, TagKind, plan::PortPlan, units::Span};
use wb_port::{
    Interface, PortError,
    offload::{Awaited, ReceiveOffload, Refusal, SendOffload, StreamProgram},
};

use super::{
    Direction, Traffic,
    checks::{self, Recordings, settled_bytes},
    path, sender_for, sender_spec,
};
use wb_engine::{DeviceCounters, Ended};
use wb_engine::{opening::Opening, settle::counted_frames};
use wb_open::{OpenPort, Sharing, StartError, Wire, far_end, is_of_a_lab, open_wire};

/// Reason for this driver if the plan leaves the driver open.
pub const CHOSEN: &str =
    "fastest available (in-kernel); tcpdump on this host does not see these frames";

/// Adds to the reason for a port's driver why the streams do not run inside the kernel.
pub(super) fn say_why_not(port: &mut OpenPort, why: &dyn Display) {
    port.chosen_because
        .push_str(&format!("; live not used: {why}"));
}

pub(crate) fn refuse(port: &PortPlan, why: Refusal) -> StartError {
    let port = port.locator.to_string();
    PortError::Offload { port, why }.into()
}

/// Converts an error of a port into the reason for another driver.
fn reason(error: &StartError) -> String {
    match error {
        StartError::Port(error) => error.reason(),
        StartError::Host { cause, .. } => cause.to_string(),
        error => error.to_string(),
    }
}

/// Returns why a receiver in the kernel cannot identify the frames of a stream.
fn not_accounted(stream: &Stream) -> Option<&'static str> {
    match stream.tag {
        _ if stream.replay.is_some() => Some("frames of a replay have no tag of this run"),
        _ if stream.headers.is_some() => Some("tags behind given headers are found in user space"),
        TagKind::None => Some("frames without a tag cannot be identified"),
        TagKind::Pktgen => Some("only frames with the wirebench tag can be counted in the kernel"),
        TagKind::Wirebench => None,
    }
}

/// Returns why a port cannot account for received frames.
pub(super) fn not_accountable(plan: &Plan, port: &PortPlan) -> Option<&'static str> {
    plan.traffic.iter().find_map(|job| {
        let is = |name: &Option<String>| name.as_ref() == Some(&port.name);
        if !(is(&job.rx) || (job.bidir && is(&job.tx))) {
            return None;
        }
        if job.tx.is_none() && job.flows.is_none() {
            return Some("the number of flows is unknown (rx --flows N)");
        }
        let sending = if is(&job.rx) { &job.tx } else { &job.rx };
        if plan.is_elsewhere(sending) {
            return Some(
                "the sender is on another host, and programs in the kernel do not know its clock",
            );
        }
        job.streams.iter().find_map(not_accounted)
    })
}

/// Refuses received frames that the live driver cannot account for, before any port is open.
pub(super) fn check(plan: &Plan, port: &PortPlan) -> Result<(), StartError> {
    match not_accountable(plan, port) {
        Some(why) => Err(refuse(port, Refusal::Asked(why))),
        None => Ok(()),
    }
}

/// Runs a function on the interface of a live port, in the namespace of the interface.
pub(crate) fn at_interface<T: Send>(
    port: &OpenPort,
    wire: Option<&Wire>,
    f: impl FnOnce(&Interface) -> Result<T, PortError> + Send,
) -> Result<T, StartError> {
    let none = || refuse(&port.plan, Refusal::NoInterface);
    let wire = wire.ok_or_else(none)?;
    let interface = &wire.interface;
    let done = netns::in_namespace(&wire.namespace, || f(interface))
        .map_err(|cause| StartError::host(&port.plan.locator, cause))?;
    Ok(done?)
}

/// Lets frames in at the other end of a lab link. If the other end keeps frames of programs out, this attaches a
/// program there that passes all frames on. Outside of labs, the error text of loading names the command to type.
pub(crate) fn let_in(port: &OpenPort) -> Result<Option<(PassProgram, String)>, StartError> {
    let wire = port.wire.as_ref();
    let takes = at_interface(port, wire, |interface| Ok(takes_frames(interface)))?;
    let far = wire.filter(|_| takes == Some(false));
    let far = far.and_then(|wire| far_end(&port.plan, wire));
    let Some(far) = far.filter(is_of_a_lab) else {
        return Ok(None);
    };
    let passage = at_interface(port, Some(&far), PassProgram::open)?;
    let node = far.namespace.name().unwrap_or_default();
    let place = format!("{node}/{}", far.interface.name);
    Ok(Some((passage, place)))
}

fn awaited(direction: &Direction, outage_threshold: Span) -> Awaited {
    Awaited {
        first_flow: direction.first_flow,
        flows: direction.flows,
        ramp_flow: RAMP_FLOW,
        sender_unknown: direction.from.is_some(),
        around_first: direction.from.as_ref().is_some_and(|run| !run.is_told()),
        outage_threshold_ns: outage_threshold.as_nanos(),
    }
}

/// Returns why the accounts of `flows` flows do not fit into `available` bytes. `held`: memory in bytes that other
/// ports of this run will need.
fn no_room(queues: u32, flows: u32, workers: u32, held: u64, available: u64) -> Option<Refusal> {
    let need = |flows: u32| {
        let settled = u64::from(flows) * settled_bytes(workers);
        Account::memory(queues, flows) + settled + held
    };
    if need(flows) <= available {
        return None;
    }
    let (mut fit, mut too_many) = (0, flows);
    while too_many - fit > 1 {
        let flows = fit + (too_many - fit) / 2;
        match need(flows) <= available {
            true => fit = flows,
            false => too_many = flows,
        }
    }
    Some(Refusal::NoRoom {
        flows,
        queues,
        need: need(flows),
        available,
        fit,
    })
}

/// Longest time that a device may take to count sent frames: some devices read their hardware once a second.
const COUNTED_WITHIN: Duration = Duration::from_millis(1_500);
const LOOK: Duration = Duration::from_micros(500);

/// Returns why a run says nothing if the device of a port took frames and counted them neither as sent nor as dropped.
/// Other programs may send there too, so the device may count more. `down`: the link was down for a while, which is
/// reported elsewhere.
pub(crate) fn vanished(port: &OpenPort, ended: &Ended, taken: u64, down: bool) -> Option<String> {
    let passed_by = port.facts.mode.contains("zero copy");
    if !port.used.tx || passed_by || down || ended.grew(port, "carrier_downs") > 0 {
        return None;
    }
    let before = ended.before.get(&port.plan.name)?;
    let live = port.is_live();
    let (taken, counted) = counted_late(before, || port.counters(), live, taken)?;
    let advice = if live { "; use xdp:" } else { "" };
    Some(format!(
        "{}: the device accepted {} but counted only {counted} as sent; it dropped the rest silently, which is no loss of the device under test{advice}",
        port.plan.locator,
        counted_frames(taken)
    ))
}

/// Returns `taken` and the number of frames that a device counted as sent, if the device counted fewer than `taken`.
/// Frames that the device counted as dropped are included in the comparison, except for streams sent in the kernel:
/// their senders learn of drops frame by frame.
fn counted_late(
    before: &DeviceCounters,
    now: impl Fn() -> DeviceCounters,
    live: bool,
    taken: u64,
) -> Option<(u64, u64)> {
    let began = Instant::now();
    loop {
        let now = now();
        // A counter that restarted, as after a reset, proves nothing.
        let rose = |key: &str| now.get(key)?.checked_sub(*before.get(key)?);
        let sent = rose("tx_packets")?;
        let dropped = match live {
            true => 0,
            false => rose("tx_dropped")? + rose("tx_errors")?,
        };
        if sent + dropped >= taken {
            return None;
        }
        if began.elapsed() > COUNTED_WITHIN {
            return Some((taken, sent));
        }
        std::thread::sleep(LOOK);
    }
}

/// Sends a few frames that no device forwards, and checks in the device's own counters whether they left. The kernel
/// reports success for all frames it was given.
fn try_out(port: &OpenPort, longest: usize) -> Result<(), StartError> {
    let before = port.counters();
    let wire = port.wire.as_ref();
    let taken = match at_interface(port, wire, |i| probe(i, longest, monotonic_ns())) {
        // Before Linux 6.3 devices do not report their abilities, and a veth then refuses frames as if it had no link.
        Err(StartError::Port(PortError::LinkDown { .. }))
            if wire.is_some_and(|w| w.link.up && w.link.carrier) =>
        {
            let driver = wire.map_or_else(String::new, |w| w.interface.kernel_driver.clone());
            let command = None;
            return Err(refuse(&port.plan, Refusal::NoTransmit { driver, command }));
        }
        taken => taken?,
    };
    match counted_late(&before, || port.counters(), true, taken.max(1)) {
        None => Ok(()),
        Some((taken, counted)) => Err(refuse(&port.plan, Refusal::Uncounted { taken, counted })),
    }
}

impl Traffic {
    /// Opens the ports that run their streams inside the kernel. A port that cannot do so uses queues instead, if the
    /// plan leaves its driver open.
    ///
    /// # Errors
    /// Fails if a port must run inside the kernel and cannot, or if queues do not work either.
    pub(super) fn open_inside(
        &mut self,
        recordings: &Recordings,
        opening: &mut Opening<'_>,
    ) -> Result<(), StartError> {
        let count = self.ports.len();
        let mut accounts = Vec::new();
        // One end of a veth accepts frames from programs once the other end has a program, so accounts come first.
        for number in 0..count {
            let account = self.account(number);
            accounts.push(self.or_by_queues(number, account, recordings, opening)?);
        }
        for (number, account) in accounts.into_iter().enumerate() {
            let workers = match self.ports[number].is_live() {
                true => self.offload(number, account, recordings),
                false => Ok(Vec::new()),
            };
            let workers = self.or_by_queues(number, workers, recordings, opening)?;
            self.offloaded.push(workers);
        }
        while let Some((number, why)) = (0..count).find_map(|n| Some((n, self.too_fast(n)?))) {
            self.offloaded[number].clear();
            self.take_queues(number, &why, recordings, opening)?;
        }
        Ok(())
    }

    /// Returns why a port with an open driver must not send so fast, now that the drivers of all receivers are known.
    fn too_fast(&self, number: usize) -> Option<Refusal> {
        let port = &self.ports[number];
        if !port.is_live() || !path::is_open(&port.plan) {
            return None;
        }
        let inside = |other: &PortPlan| {
            let mut ports = self.ports.iter();
            ports.any(|p| p.plan.name == other.name && p.is_live())
        };
        path::too_fast(&self.plan, &port.plan, port.line_rate(), &inside)
    }

    /// Returns what was made for a port. If that failed and the driver is open, opens the queues of the port instead.
    fn or_by_queues<T: Default>(
        &mut self,
        number: usize,
        made: Result<T, StartError>,
        recordings: &Recordings,
        opening: &mut Opening<'_>,
    ) -> Result<T, StartError> {
        let port = &self.ports[number];
        match made {
            Err(error) if path::is_open(&port.plan) => {
                let why = reason(&error);
                self.take_queues(number, &why, recordings, opening)?;
                Ok(T::default())
            }
            made => made,
        }
    }

    fn take_queues(
        &mut self,
        number: usize,
        why: &dyn Display,
        recordings: &Recordings,
        opening: &mut Opening<'_>,
    ) -> Result<(), StartError> {
        let OpenPort {
            plan, used, wire, ..
        } = self.ports.remove(number);
        let wire = wire.ok_or_else(|| refuse(&plan, Refusal::NoInterface))?;
        let longest = checks::longest_frame(&self.plan, &plan, recordings);
        let mut open = open_wire(&plan, used, wire, longest)?;
        say_why_not(&mut open, why);
        opening.note(&open);
        self.ports.insert(number, open);
        Ok(())
    }

    /// Returns why there is no room for the accounts of a port, in addition to the memory that earlier ports will need
    /// at the end.
    fn no_room_at(&self, number: usize, flows: u32) -> Option<Refusal> {
        let before = self.directions.iter().filter_map(|direction| {
            let port = &self.ports[direction.rx.filter(|rx| *rx < number)?];
            let flows = u64::from(direction.flows);
            Some(flows * settled_bytes(port.plan.workers))
        });
        let port = &self.ports[number];
        let queues = port.wire.as_ref()?.interface.rx_queues;
        let available = wb_machine::memory::available()?;
        no_room(queues, flows, port.plan.workers, before.sum(), available)
    }

    /// Starts the account of a receiving live port, and divides it among the workers.
    fn account(&mut self, number: usize) -> Result<Vec<Accounted>, StartError> {
        let port = &self.ports[number];
        let direction = self.directions.iter().find(|d| d.rx == Some(number));
        let Some(direction) = direction.filter(|_| port.is_live()) else {
            return Ok(Vec::new());
        };
        debug_assert!(direction.streams.iter().all(|s| s.stream.is_tagged()));
        let threshold = self.plan.traffic[direction.planned.job].outage_threshold;
        let awaited = awaited(direction, threshold);
        if let Some(why) = self.no_room_at(number, awaited.flows) {
            return Err(refuse(&port.plan, why));
        }
        let account = at_interface(port, port.wire.as_ref(), |i| Account::open(i, awaited))?;
        if port.used.sharing != Sharing::Alone {
            account.beside_others();
        }
        let mode = format!("{} XDP, {}", account.hook(), port.facts.mode);
        let warning = account.refusal().map(|words| {
            format!("not native: the driver refuses XDP programs ({words}); see `wirebench doctor`")
        });
        let receivers = account.receivers(port.plan.workers);
        let facts = &mut self.ports[number].facts;
        facts.mode = mode;
        facts.warnings.extend(warning);
        Ok(receivers)
    }

    /// Creates the workers of a live port.
    fn offload(
        &mut self,
        number: usize,
        receivers: Vec<Accounted>,
        recordings: &Recordings,
    ) -> Result<Vec<OffloadedWorker>, StartError> {
        let sends = self.directions.iter().find(|d| d.tx == Some(number));
        let port = &self.ports[number];
        let passage = match sends {
            Some(_) => let_in(port)?,
            None => None,
        };
        let mut receivers = receivers.into_iter();
        let (mut workers, mut halts) = (Vec::new(), Vec::new());
        for worker in 0..port.plan.workers {
            let mut sender = None;
            if let Some(direction) = sends {
                let streams = direction.streams.clone();
                let count = port.plan.workers;
                let spec = sender_spec(&self.plan, direction.planned.job, streams, worker, count);
                let compiled = sender_for(direction, &spec, MOST_FRAME)?;
                let tables = compiled
                    .offload_tables(&spec)
                    .map_err(|why| refuse(&port.plan, Refusal::Asked(why)))?;
                let mut load = |streams: &[StreamProgram]| {
                    let wire = port.wire.as_ref();
                    let offload = at_interface(port, wire, |i| LiveSender::load(i, streams))?;
                    halts.push(offload.halt());
                    Ok::<Box<dyn SendOffload>, StartError>(Box::new(offload))
                };
                let ramp = (!tables.ramps.is_empty()).then(|| load(&tables.ramps));
                sender = Some(compiled.into_offloaded(load(&tables.streams)?, ramp.transpose()?));
            }
            let receiver = receivers.next();
            workers.push(OffloadedWorker {
                sender,
                receiver: receiver.map(|r| Box::new(r) as Box<dyn ReceiveOffload>),
            });
        }
        if sends.is_some() {
            try_out(
                port,
                checks::longest_frame(&self.plan, &port.plan, recordings),
            )?;
        }
        self.halts.extend(halts);
        if let Some((passage, place)) = passage {
            self.passages.push(passage);
            let because = &mut self.ports[number].chosen_because;
            because.push_str(&format!(
                "; an XDP program at {place} that passes all frames enables sending"
            ));
        }
        Ok(workers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_device_neither_sent_nor_dropped_by_its_own_account_has_vanished() {
        let of = |sent, dropped| -> DeviceCounters {
            let all = [
                ("tx_packets", sent),
                ("tx_dropped", dropped),
                ("tx_errors", 0),
            ];
            all.map(|(name, n)| (name.to_owned(), n)).into()
        };
        let (before, live, queues) = (of(10, 5), true, false);
        let counted = |now: DeviceCounters, how| counted_late(&before, || now.clone(), how, 1000);
        for how in [live, queues] {
            assert_eq!(counted(of(10, 5), how), Some((1000, 0)));
            assert_eq!(counted(of(1010, 5), how), None);
            // A device that was reset or is gone gives no result.
            assert_eq!(counted(of(0, 5), how), None);
            assert_eq!(counted(DeviceCounters::new(), how), None);
        }
        assert_eq!(counted(of(910, 105), queues), None);
        assert_eq!(counted(of(910, 104), queues), Some((1000, 900)));
        assert_eq!(counted(of(910, 105), live), Some((1000, 900)));
    }

    #[test]
    fn accounts_of_many_queues_fit_or_are_refused_with_the_need() {
        const GIB: u64 = 1 << 30;
        let flows = 1 << 20;
        assert_eq!(no_room(1, flows, 1, 0, GIB), None);
        let why = no_room(64, flows, 1, 0, GIB).expect("too many queues");
        let why = why.to_string();
        // 256 bytes for each flow on each queue, and the figures of all flows.
        for part in ["1048576 flows", "on 64 queues", "16.7 GiB", "1.0 GiB are"] {
            assert!(why.contains(part), "no {part:?} in {why}");
        }
        // The number of flows that the text recommends does fit.
        let fit = why
            .split("at most ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        let fit: u32 = fit.and_then(|n| n.parse().ok()).expect("a number");
        assert!((50_000..64_000).contains(&fit), "{fit}");
        assert_eq!(no_room(64, fit, 1, 0, GIB), None);
        // Memory that other ports will need is not available.
        assert!(no_room(1, flows, 1, GIB / 2, GIB).is_some());
    }

    #[test]
    fn what_is_said_of_another_way_is_the_reason_alone() {
        let port = PortPlan::new("a", "live:n/a0".parse().unwrap());
        let why = Refusal::NoTransmit {
            driver: "e1000e".to_owned(),
            command: None,
        };
        let error = refuse(&port, why);
        let said = "e1000e accepts no frames from programs here (no NDO_XMIT; see `bpftool net` and the driver's manual)";
        assert_eq!(reason(&error), said);
        assert_eq!(
            error.to_string(),
            format!("live:n/a0: not supported by the live driver: {said}; use xdp: or packet:")
        );
        // The result does not depend on the wording.
        let error = StartError::Port(PortError::Unsupported {
            port: "live:n/a0".to_owned(),
            what: "no; use xdp: says the device".to_owned(),
        });
        assert_eq!(reason(&error), "no; use xdp: says the device");
        let gone = PortError::Gone {
            port: "live:n/a0".to_owned(),
        };
        assert_eq!(reason(&gone.into()), "the interface is gone");
    }
}
