//! Ports that send and account by themselves: which streams they can, and their workers.

use wb_host::netns;
use wb_live::{
    Account, MOST_FRAME, Passage, Receiver as Accounted, Sender as LiveSender, takes_frames,
};
use wb_model::{Plan, Stream, TagKind, plan::PortPlan};
use wb_port::{
    Interface, PortError,
    offload::{Awaited, ReceiveOffload, SendOffload, StreamProgram},
};
use wb_traffic::{OffloadedWorker, RAMP_FLOW};

use super::{Direction, Traffic, is_tagged, sender_for, sender_spec};
use crate::{
    StartError,
    ports::{OpenPort, Wire, far_end},
};

pub(crate) fn refuse(port: &PortPlan, why: &str) -> StartError {
    StartError::stream(
        port.locator.to_string(),
        format!("the live driver cannot do this: {why}; take xdp: or packet:"),
    )
}

/// Why a receiver in the kernel cannot tell the frames of a stream from others.
fn not_accounted(stream: &Stream) -> Option<&'static str> {
    match stream.tag {
        _ if stream.replay.is_some() => Some("what arrives of a replay has no tag of this run"),
        TagKind::None => Some("frames without a tag cannot be told from others"),
        TagKind::Pktgen => Some("it accounts for frames with the tag of wirebench only"),
        TagKind::Wirebench => None,
    }
}

/// Refuses what a port of the live driver cannot account for, before anything is open.
pub(super) fn check(plan: &Plan, port: &PortPlan) -> Result<(), StartError> {
    for job in &plan.traffic {
        let is = |name: &Option<String>| name.as_ref() == Some(&port.name);
        let receives = is(&job.rx) || (job.bidir && is(&job.tx));
        if !receives {
            continue;
        }
        if job.tx.is_none() && job.flows.is_none() {
            let why = "it accounts for flows that are known before, and nobody said how many come (rx --flows N)";
            return Err(refuse(port, why));
        }
        if let Some(why) = job.streams.iter().find_map(not_accounted) {
            return Err(refuse(port, why));
        }
    }
    Ok(())
}

/// Does something with the interface of a port of this driver, in its namespace.
pub(crate) fn at_interface<T: Send>(
    port: &OpenPort,
    wire: Option<&Wire>,
    f: impl FnOnce(&Interface) -> Result<T, PortError> + Send,
) -> Result<T, StartError> {
    let none = || refuse(&port.plan, "it is no interface");
    let wire = wire.ok_or_else(none)?;
    let interface = &wire.interface;
    let done = netns::in_namespace(&wire.namespace, || f(interface))
        .map_err(|cause| StartError::host(&port.plan.locator, cause))?;
    Ok(done?)
}

/// In a lab the other end is ours: where it keeps frames of programs out, a program there that passes all on lets them in.
/// Elsewhere the loading says what to type.
pub(crate) fn let_in(port: &OpenPort) -> Result<Option<(Passage, String)>, StartError> {
    let wire = port.wire.as_ref();
    let takes = at_interface(port, wire, |interface| Ok(takes_frames(interface)))?;
    let Some(far) = far_end(port).filter(|_| takes == Some(false)) else {
        return Ok(None);
    };
    let passage = at_interface(port, Some(&far), Passage::open)?;
    let node = far.namespace.name().unwrap_or_default();
    let place = format!("{node}/{}", far.interface.name);
    Ok(Some((passage, place)))
}

fn awaited(direction: &Direction) -> Awaited {
    Awaited {
        first_flow: direction.first_flow,
        flows: direction.flows,
        ramp_flow: RAMP_FLOW,
    }
}

impl Traffic {
    /// Lets the receiving ports of this driver account, and parts each among its workers; by port.
    pub(super) fn open_accounts(&mut self) -> Result<Vec<Vec<Accounted>>, StartError> {
        let mut all = Vec::new();
        for number in 0..self.ports.len() {
            let port = &self.ports[number];
            let direction = self.directions.iter().find(|d| d.rx == Some(number));
            let Some(direction) = direction.filter(|_| port.is_live()) else {
                all.push(Vec::new());
                continue;
            };
            debug_assert!(direction.streams.iter().all(|s| is_tagged(&s.stream)));
            let awaited = awaited(direction);
            let account = at_interface(port, port.wire.as_ref(), |i| Account::open(i, awaited))?;
            let mode = format!("{} XDP, {}", account.hook(), port.facts.mode);
            all.push(account.receivers(port.plan.workers));
            self.ports[number].facts.mode = mode;
        }
        Ok(all)
    }

    /// The workers of a port of this driver.
    pub(super) fn offload(
        &mut self,
        number: usize,
        sends: Option<usize>,
        receivers: Vec<Accounted>,
    ) -> Result<Vec<OffloadedWorker>, StartError> {
        if sends.is_some()
            && let Some((passage, place)) = let_in(&self.ports[number])?
        {
            self.passages.push(passage);
            let because = &mut self.ports[number].chosen_because;
            because.push_str(&format!(
                "; a program at {place}, which passes all on, lets it take them"
            ));
        }
        let port = &self.ports[number];
        let mut receivers = receivers.into_iter();
        let (mut workers, mut halts) = (Vec::new(), Vec::new());
        for worker in 0..port.plan.workers {
            let mut sender = None;
            if let Some(direction) = sends.map(|way| &self.directions[way]) {
                let spec = sender_spec(self, direction, worker, port.plan.workers);
                let compiled = sender_for(direction, &spec, MOST_FRAME)?;
                let tables = compiled
                    .offload_tables(&spec)
                    .map_err(|why| refuse(&port.plan, why))?;
                let mut load = |streams: &[StreamProgram]| {
                    let wire = port.wire.as_ref();
                    let offload = at_interface(port, wire, |i| LiveSender::load(i, streams))?;
                    halts.push(offload.halt());
                    Ok::<Box<dyn SendOffload>, StartError>(Box::new(offload))
                };
                let ramp = (!tables.ramps.is_empty()).then(|| load(&tables.ramps));
                sender = Some(compiled.offloaded(load(&tables.streams)?, ramp.transpose()?));
            }
            let receiver = receivers.next();
            workers.push(OffloadedWorker {
                sender,
                receiver: receiver.map(|r| Box::new(r) as Box<dyn ReceiveOffload>),
            });
        }
        self.halts.extend(halts);
        Ok(workers)
    }
}
