//! Process of the device: opens both ports in its node and runs one thread per direction.

use std::io::Write;
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use wb_machine::privilege::Privileges;
use wb_machine::{Namespace, Netlink};
use wb_packet::{PacketOptions, PacketQueue, RxMode};
use wb_port::{Interface, PortError, QueuePair};

use super::counters::CounterSlot;
use super::direction::{IDLE, ImpairedDirection};
use super::wake_tuning::{self, WakeTuning};
use crate::state::{self, LabState};
use crate::{End, Result, TestbedError, process};

/// Hidden command that runs a program as the device: `PROGRAM impair-device STATE_FILE`.
pub const DEVICE_COMMAND: &str = "impair-device";

/// Runs this process as the device of the lab in `state_file`, until the lab is gone. Prints `ready`
/// on standard output once frames are forwarded.
///
/// Call before any thread is started.
///
/// # Errors
/// The lab or its ports cannot be opened, or a port fails. The caller writes the error to
/// standard error, from which the lab's maker reads it.
pub fn device_main(state_file: &Path) -> Result<()> {
    let lab = LabState::read(state_file)?;
    let [near, far, ..] = &lab.links[..] else {
        return Err(TestbedError::Input(format!(
            "the lab {} has no impairing device",
            lab.name
        )));
    };
    let (da, db) = (&near.b, &far.a);
    Namespace::named(&da.namespace)?.enter()?;

    let counters = state::counters_path(state_file);
    let slot = |number| {
        CounterSlot::open(&counters, number)
            .map_err(TestbedError::io("write", counters.display().to_string()))
    };
    let impairment = lab.options.impair.clone().unwrap_or_default();
    let (there, back) = (impairment.a_to_b(), impairment.b_to_a());
    let input = |fault: wb_port::fault::InvalidImpairment| TestbedError::Input(fault.to_string());
    let cpus = wb_machine::cpu::allowed().map_or(1, |cpus| cpus.len());
    let all = impairment.all;
    let direction = |from, to, treated, number| {
        let (from, to) = (open_receiver(from)?, open_sender(to)?);
        ImpairedDirection::new(from, to, treated, all, slot(number)?, WakeTuning::new(cpus))
            .map_err(input)
    };
    let there = direction(da, db, &there, 0)?;
    let back = direction(db, da, &back, 1)?;

    say_ready()?;
    let (ended, end) = mpsc::channel();
    start("a to b", there, ended.clone())?;
    start("b to a", back, ended)?;
    loop {
        match end.recv_timeout(IDLE) {
            // The wires are removed shortly before the lab file.
            Ok(PortError::Gone { .. }) => return Ok(()),
            Ok(error) => return Err(error.into()),
            Err(_) if is_abandoned(state_file) => {
                end_daemons(state_file);
                return Ok(());
            }
            Err(_) => {}
        }
    }
}

/// Returns true if the device is useless and no process will end it: the lab file is gone, or the
/// owner of the lab has ended, or this is the last process in its user namespace.
fn is_abandoned(state_file: &Path) -> bool {
    let forgotten =
        LabState::read(state_file).map_or(true, |lab| lab.owner.is_some() && !lab.is_owned());
    forgotten || (Privileges::of_this_process().in_user_namespace && process::is_alone())
}

/// Ends the other programs of an abandoned lab, which do not notice that.
fn end_daemons(state_file: &Path) {
    let daemons = LabState::read(state_file).map_or(Vec::new(), |lab| lab.daemons);
    let processes: Vec<_> = daemons.iter().map(|daemon| daemon.process).collect();
    process::end_processes(&processes);
}

/// Receiving half of a port. The socket is separate because each direction has a thread.
fn open_receiver(end: &End) -> Result<PacketQueue> {
    let options = PacketOptions {
        tx: false,
        rx_mode: RxMode::LowLatency,
        rx_ring_bytes: 32 << 20,
        ..PacketOptions::default()
    };
    open(end, &options)
}

/// Sending half of a port.
fn open_sender(end: &End) -> Result<PacketQueue> {
    open(
        end,
        &PacketOptions {
            rx: false,
            ..PacketOptions::default()
        },
    )
}

fn open(end: &End, options: &PacketOptions) -> Result<PacketQueue> {
    let link = Netlink::open(&Namespace::current()?)?.link(&end.interface)?;
    let interface = Interface {
        port: end.locator(),
        name: link.name,
        index: link.index,
        mac: link.mac,
        mtu: link.mtu,
        speed: None,
        kernel_driver: "veth".into(),
        tx_queues: link.num_tx_queues,
        rx_queues: link.num_rx_queues,
    };
    let mut port = wb_packet::open(&interface, options)?;
    Ok(port.queues.pop().expect("one queue was asked for"))
}

fn say_ready() -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", process::READY)
        .and_then(|()| out.flush())
        .map_err(TestbedError::io(
            "tell",
            "the lab's maker that the device is ready",
        ))
}

fn start<R, T>(
    name: &str,
    mut direction: ImpairedDirection<R, T>,
    ended: mpsc::Sender<PortError>,
) -> Result<()>
where
    R: QueuePair + 'static,
    T: QueuePair + 'static,
{
    let work = move || {
        wake_tuning::place_thread();
        loop {
            if let Err(error) = direction.run_round() {
                // The send fails if the other direction ended first.
                let _ = ended.send(error);
                return;
            }
        }
    };
    thread::Builder::new()
        .name(name.into())
        .spawn(work)
        .map(drop)
        .map_err(TestbedError::io("start", "a thread"))
}
