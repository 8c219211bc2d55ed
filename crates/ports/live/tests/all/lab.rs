//! Two network namespaces joined by a veth pair, removed on drop.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use wb_live::Account;
use wb_packet::{PacketOptions, PacketQueue, RxMode};
use wb_port::offload::{Awaited, SendOffload, SendOrder, StreamOrder};
use wb_port::{Interface, PortError, QueuePair, RxQueue};
use wb_traffic::{OffloadedWorker, SharedCounters, TrafficControl, WorkerOutcome, run_offloaded};

/// Longest time that a test waits for an expected event.
const PATIENCE: Duration = Duration::from_secs(5);

/// Skips the test without the required privileges and prints the reason.
macro_rules! lab_or_skip {
    ($label:expr) => {
        match $crate::lab::Lab::new($label) {
            Ok(lab) => lab,
            Err(reason) => {
                wb_testing::skipped(reason);
                return;
            }
        }
    };
}

/// `a0` in one namespace, `b0` in another.
pub(crate) struct Lab {
    pub(crate) a: String,
    pub(crate) b: String,
}

impl Lab {
    pub(crate) fn new(label: &str) -> Result<Self, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            return Err("network namespaces need root".into());
        }
        let id = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |end| format!("wb-live-{}-{id}-{label}-{end}", std::process::id());
        let lab = Self {
            a: name("a"),
            b: name("b"),
        };
        for node in [&lab.a, &lab.b] {
            ip(&format!("netns add {node}"));
        }
        let (a, b) = (&lab.a, &lab.b);
        ip(&format!(
            "link add a0 netns {a} mtu 3400 type veth peer name b0 netns {b} mtu 3400"
        ));
        for (node, end) in [(a, "a0"), (b, "b0")] {
            // Only the frames of the test may pass.
            let quiet = format!("net.ipv6.conf.{end}.disable_ipv6=1");
            run("ip", &format!("netns exec {node} sysctl -qw {quiet}"));
            let offloads = format!("{end} tx off tso off gso off");
            run("ip", &format!("netns exec {node} ethtool -K {offloads}"));
            ip(&format!("-n {node} link set {end} up"));
        }
        Ok(lab)
    }

    /// Makes `a0` take frames from programs and `b0` deliver them in order: an account that has not started passes all
    /// frames on.
    pub(crate) fn accept(&self) -> Account {
        let awaited = Awaited {
            first_flow: 0,
            flows: 1,
            ramp_flow: u32::MAX,
            ..Awaited::default()
        };
        self.at_b(|b| Account::open(b, awaited)).unwrap()
    }

    pub(crate) fn at_a<T: Send>(&self, f: impl FnOnce(&Interface) -> T + Send) -> T {
        within(&self.a, || f(&interface("a0")))
    }

    pub(crate) fn at_b<T: Send>(&self, f: impl FnOnce(&Interface) -> T + Send) -> T {
        within(&self.b, || f(&interface("b0")))
    }

    /// Socket that receives at `b0` or sends from `a0`.
    pub(crate) fn socket(&self, at_a: bool) -> PacketQueue {
        let open = |interface: &Interface| {
            let options = PacketOptions {
                tx: at_a,
                rx: !at_a,
                rx_mode: RxMode::LowLatency,
                promiscuous: true,
                ..PacketOptions::default()
            };
            let mut port = wb_packet::open(interface, &options).unwrap();
            port.queues.remove(0)
        };
        match at_a {
            true => self.at_a(open),
            false => self.at_b(open),
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for node in [&self.a, &self.b] {
            let _ = Command::new("ip").args(["netns", "del", node]).status();
        }
    }
}

pub(crate) fn ip(arguments: &str) {
    run("ip", arguments);
}

fn run(program: &str, arguments: &str) {
    let output = Command::new(program)
        .args(arguments.split_whitespace())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments}: {said}");
}

pub(crate) fn within<T: Send>(node: &str, f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let entered = scope.spawn(|| {
            let namespace = File::open(format!("/run/netns/{node}")).unwrap();
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            f()
        });
        entered.join().unwrap()
    })
}

pub(crate) fn interface(name: &str) -> Interface {
    let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
    Interface {
        port: format!("live:{name}"),
        name: name.to_owned(),
        index: rustix::net::netdevice::name_to_index(&socket, name).unwrap(),
        mac: [2, 0, 0, 0, 0, 1],
        mtu: 3400,
        speed: None,
        kernel_driver: "veth".to_owned(),
        tx_queues: 1,
        rx_queues: 1,
    }
}

/// Runs a turn at full speed; each stream may send all of its frames.
pub(crate) fn turn(
    sender: &mut dyn SendOffload,
    order: &SendOrder,
    streams: usize,
) -> Result<(), PortError> {
    let stream = StreamOrder {
        pace: None,
        frames: order.frames,
        until_ns: u64::MAX,
        allowance_ns: u64::MAX,
    };
    sender.turn(order, &vec![stream; streams])
}

/// Order for `frames` frames at full speed.
pub(crate) fn order(frames: u64) -> SendOrder {
    SendOrder {
        now_ns: monotonic_ns(),
        frames,
        length_ns: 1_000_000_000,
        batch: 64,
        overdue: false,
        wall_minus_mono: 1,
    }
}

pub(crate) fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

pub(crate) struct Clock;

impl wb_port::clock::WorkerClock for Clock {
    fn monotonic_ns(&self) -> u64 {
        monotonic_ns()
    }

    fn wall_ns(&self) -> u64 {
        monotonic_ns() + 1
    }
}

/// Runs a worker until it has sent all frames, and reads the frames that arrive at a socket meanwhile.
pub(crate) fn run_and_take(
    worker: OffloadedWorker,
    frames: u64,
    socket: &mut PacketQueue,
) -> (WorkerOutcome, Vec<Vec<u8>>) {
    let (control, counters) = (TrafficControl::new(), SharedCounters::default());
    let start_at = monotonic_ns() + 1_000_000;
    control.start_at_mono_ns.store(start_at, Ordering::Release);
    std::thread::scope(|scope| {
        let run = scope.spawn(|| run_offloaded(worker, &control, &counters, &Clock));
        let mut taken = Vec::new();
        let until = Instant::now() + PATIENCE;
        while (taken.len() as u64) < frames && Instant::now() < until {
            take(socket, &mut taken);
        }
        (run.join().unwrap(), taken)
    })
}

/// Sends `frames` frames and reads those that arrive at a socket.
pub(crate) fn send_and_take(
    sender: &mut dyn SendOffload,
    streams: usize,
    frames: u64,
    socket: &mut PacketQueue,
) -> Vec<Vec<u8>> {
    send_in_batches(sender, streams, frames, 64, socket)
}

/// Like [`send_and_take`], with batches of a given size.
pub(crate) fn send_in_batches(
    sender: &mut dyn SendOffload,
    streams: usize,
    frames: u64,
    batch: u32,
    socket: &mut PacketQueue,
) -> Vec<Vec<u8>> {
    let mut taken = Vec::new();
    let until = Instant::now() + PATIENCE;
    while (taken.len() as u64) < frames && Instant::now() < until {
        let sent: u64 = (0..streams)
            .map(|i| sender.counters(i).submitted_frames)
            .sum();
        if sent < frames {
            // Few at a time, because the buffer of the socket is small.
            let order = SendOrder {
                batch,
                ..order((frames - sent).min(64))
            };
            turn(sender, &order, streams).unwrap();
        }
        take(socket, &mut taken);
    }
    taken
}

/// Reads the frames that have arrived at a socket or arrive soon.
pub(crate) fn take(socket: &mut PacketQueue, taken: &mut Vec<Vec<u8>>) {
    let rx = socket.rx();
    let _ = rx.wait(Duration::from_millis(10));
    let take = |frame: &wb_port::RxFrame<'_>| {
        let mut bytes = frame.bytes.to_vec();
        // The kernel has removed the outer VLAN tag.
        if let Some(vlan) = frame.vlan {
            let tag = [vlan.tpid.to_be_bytes(), vlan.tci.to_be_bytes()].concat();
            bytes.splice(12..12, tag);
        }
        taken.push(bytes);
    };
    rx.receive(4096, take).unwrap();
}
