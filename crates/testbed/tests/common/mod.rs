//! Shared parts of tests with real namespaces: unique names, clean-up, and raw ports.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use wb_machine::{Namespace, Netlink, in_namespace, netns};
use wb_packet::{PacketOptions, PacketQueue, RxMode};
use wb_port::{Interface, QueuePair, RxQueue, TxQueue};
use wb_testbed::{LabOptions, SweepScope, sweep};

/// Returns true if this process may make labs; otherwise reports the skip.
pub(crate) fn privileged() -> bool {
    let may = wb_machine::privilege::is_root();
    if !may {
        wb_testing::skipped(
            "making network namespaces needs root; try `sudo -E cargo test -p wb-testbed`",
        );
    }
    may
}

/// A name that no other test or process has. Everything with this name is removed at the end.
pub(crate) struct Unique(pub(crate) String);

impl Unique {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self(format!(
            "t{}x{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        ))
    }

    pub(crate) fn options(&self) -> LabOptions {
        LabOptions {
            name: Some(self.0.clone()),
            device_program: Some(example("lab")),
            ..LabOptions::default()
        }
    }

    pub(crate) fn json(&self) -> String {
        serde_json::to_string(&self.options()).unwrap()
    }

    pub(crate) fn sweep(&self, force: bool) -> wb_testbed::SweepResult {
        sweep(&SweepScope {
            force,
            only: Some(self.0.clone()),
        })
        .unwrap()
    }

    /// Everything that still has the name: namespaces, files, processes.
    pub(crate) fn remains(&self) -> Vec<String> {
        let mut found: Vec<String> = netns::list()
            .unwrap()
            .into_iter()
            .filter(|name| name.contains(&self.0))
            .collect();
        for folder in ["/run/wirebench/labs", "/run/netns"] {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            let names = entries.map(|entry| entry.path().display().to_string());
            found.extend(names.filter(|name| name.contains(&self.0)));
        }
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            if line.contains(&self.0) {
                found.push(line);
            }
        }
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        found.extend(
            mounts
                .lines()
                .filter(|line| line.contains(&self.0))
                .map(String::from),
        );
        found
    }
}

impl Drop for Unique {
    fn drop(&mut self) {
        let _ = sweep(&SweepScope {
            force: true,
            only: Some(self.0.clone()),
        });
    }
}

/// Path of an example program; `cargo test -p wb-testbed` builds the examples.
pub(crate) fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests
        .ancestors()
        .nth(2)
        .unwrap()
        .join("examples")
        .join(name);
    assert!(
        program.exists(),
        "{} is missing: `cargo build -p wb-testbed --examples`",
        program.display()
    );
    program
}

pub(crate) fn lab_command() -> Command {
    Command::new(example("lab"))
}

/// Waits until `holds` returns true; `what` describes the condition.
pub(crate) fn until(what: &str, holds: impl FnMut() -> bool) {
    wb_testing::eventually(what, holds);
}

pub(crate) fn open(locator: &str) -> PacketQueue {
    let (node, name) = locator.split_once('/').unwrap();
    let namespace = Namespace::named(node).unwrap();
    let link = Netlink::open(&namespace).unwrap().link(name).unwrap();
    let interface = Interface {
        port: locator.into(),
        name: link.name,
        index: link.index,
        mac: link.mac,
        mtu: link.mtu,
        speed: None,
        kernel_driver: "veth".into(),
        tx_queues: 1,
        rx_queues: 1,
    };
    let options = PacketOptions {
        rx_mode: RxMode::LowLatency,
        rx_ring_bytes: 32 << 20,
        ..PacketOptions::default()
    };
    in_namespace(&namespace, || wb_packet::open(&interface, &options))
        .unwrap()
        .unwrap()
        .queues
        .pop()
        .unwrap()
}

/// Sends all frames.
pub(crate) fn send(port: &mut PacketQueue, frames: &[Vec<u8>]) {
    let tx = port.tx();
    let mut rest = frames;
    while !rest.is_empty() {
        let ready = tx.lend(rest.len().min(32));
        for (i, frame) in rest[..ready].iter().enumerate() {
            let slot = tx.slot(i);
            slot.bytes[..frame.len()].copy_from_slice(frame);
            *slot.len = frame.len() as u32;
        }
        tx.submit(ready);
        tx.flush().unwrap();
        rest = &rest[ready..];
    }
    until("all frames are sent", || {
        tx.flush().unwrap();
        tx.in_flight() == 0
    });
}

/// Received frames that wait in the port.
pub(crate) fn receive(port: &mut PacketQueue) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while port
        .rx()
        .receive(256, |frame| frames.push(frame.bytes.to_vec()))
        .unwrap()
        > 0
    {}
    frames
}
