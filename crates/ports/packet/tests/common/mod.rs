//! Two namespaces joined by a veth pair, and helpers for tests with a port.
#![allow(dead_code)] // Each test binary uses its part of it.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, netdevice, socket};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use wb_packet::{PacketOptions, PacketPort, PacketQueue, open};
use wb_port::{
    ChecksumState, Interface, PortError, QueuePair, RxFrame, RxQueue, StampSource, StrippedVlan,
    TxQueue,
};

/// Limit of all waits in tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// IEEE 802 local experimental EtherType 1.
pub(crate) const ETHERTYPE: u16 = 0x88b5;

pub(crate) const MAC_A: [u8; 6] = [0x02, 0, 0, 0, 0, 0x0a];
pub(crate) const MAC_B: [u8; 6] = [0x02, 0, 0, 0, 0, 0x0b];

/// Namespaces `a` and `b` with interfaces `a0` and `b0`; removed on drop.
pub(crate) struct Pair {
    pub(crate) a: String,
    pub(crate) b: String,
}

impl Pair {
    /// Creates the namespaces; prints the reason and returns `None` without the required privileges.
    pub(crate) fn up() -> Option<Self> {
        Self::with(&[])
    }

    /// Like [`Pair::up`], with additional arguments for both ends, for example a number of queues.
    pub(crate) fn with(further: &[&str]) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            wb_testing::skipped("needs root to make network namespaces");
            return None;
        }
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let stem = format!(
            "wb-pkt-{}-{}",
            process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let pair = Self {
            a: format!("{stem}-a"),
            b: format!("{stem}-b"),
        };
        for ns in [&pair.a, &pair.b] {
            ip(&["netns", "add", ns]);
            // The host's neighbour and multicast frames would mix with the test frames.
            let off = "net.ipv6.conf.default.disable_ipv6=1";
            ip(&["netns", "exec", ns, "sysctl", "-qw", off]);
        }
        let mut words = vec!["-n", &pair.a, "link", "add", "a0"];
        words.extend(further);
        words.extend(["type", "veth", "peer", "name", "b0"]);
        words.extend(further);
        words.extend(["netns", &pair.b]);
        ip(&words);
        for (ns, name, mac) in [(&pair.a, "a0", "0a"), (&pair.b, "b0", "0b")] {
            let mac = format!("02:00:00:00:00:{mac}");
            ip(&["-n", ns, "link", "set", name, "address", &mac, "up"]);
        }
        Some(pair)
    }

    pub(crate) fn open_a(&self, options: &PacketOptions) -> PacketPort {
        let options = options.clone();
        within(&self.a, move || open(&interface("a0"), &options)).expect("open a0")
    }

    pub(crate) fn open_b(&self, options: &PacketOptions) -> PacketPort {
        let options = options.clone();
        within(&self.b, move || open(&interface("b0"), &options)).expect("open b0")
    }

    /// Opens a sender at `a0` and a receiver at `b0`, each with one queue.
    pub(crate) fn sender_and_receiver(&self, rx: PacketOptions) -> (PacketQueue, PacketQueue) {
        let a = self.open_a(&PacketOptions {
            rx: false,
            ..PacketOptions::default()
        });
        let b = self.open_b(&PacketOptions { tx: false, ..rx });
        (only(a), only(b))
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for ns in [&self.a, &self.b] {
            let _ = Command::new("ip")
                .args(["netns", "del", ns])
                .stderr(process::Stdio::null())
                .status();
        }
    }
}

pub(crate) fn only(port: PacketPort) -> PacketQueue {
    let [queue] = <[_; 1]>::try_from(port.queues).ok().expect("one queue");
    queue
}

pub(crate) fn ip(words: &[&str]) {
    let status = Command::new("ip").args(words).status().expect("run ip");
    assert!(status.success(), "ip {}", words.join(" "));
}

/// Runs `tc` in the namespace with these arguments; returns its output.
pub(crate) fn tc(ns: &str, words: &str) -> String {
    let output = Command::new("tc")
        .args(["-n", ns])
        .args(words.split(' '))
        .output()
        .expect("run tc");
    assert!(
        output.status.success(),
        "tc {words}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("tc prints text")
}

/// Packet counts of the first `Sent … pkt (dropped …` in the output of `tc -s`.
pub(crate) fn sent_and_dropped(text: &str) -> (u64, u64) {
    let at = text.find("Sent ").expect("statistics");
    let words: Vec<&str> = text[at..].split([' ', ',', '(']).collect();
    let before = |word| words.iter().position(|w| *w == word).expect(word);
    let sent = words[before("pkt") - 1].parse();
    let dropped = words[before("dropped") + 1].parse();
    (sent.expect("a number"), dropped.expect("a number"))
}

/// Runs `body` inside the namespace, on a separate thread.
pub(crate) fn within<T: Send + 'static>(ns: &str, body: impl FnOnce() -> T + Send + 'static) -> T {
    let ns = File::open(format!("/run/netns/{ns}")).expect("open the namespace");
    thread::spawn(move || {
        move_into_link_name_space(ns.as_fd(), Some(LinkNameSpaceType::Network)).expect("enter");
        body()
    })
    .join()
    .expect("the thread in the namespace panicked")
}

/// Interface of the calling thread's namespace, as described by the host.
pub(crate) fn interface(name: &str) -> Interface {
    let any = socket(AddressFamily::INET, SocketType::DGRAM, None).expect("socket");
    Interface {
        port: name.to_owned(),
        name: name.to_owned(),
        index: netdevice::name_to_index(&any, name).expect("index"),
        mac: if name == "a0" { MAC_A } else { MAC_B },
        mtu: 1500,
        speed: None,
        kernel_driver: "veth".to_owned(),
        tx_queues: 1,
        rx_queues: 1,
    }
}

/// Frame of `len` bytes from `a0` to `b0` with `number`, and content derived from it.
pub(crate) fn frame(number: u32, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = [MAC_B, MAC_A].concat();
    bytes.extend(ETHERTYPE.to_be_bytes());
    bytes.extend(number.to_be_bytes());
    bytes.extend(
        (bytes.len()..len).map(|i| (number as usize).wrapping_mul(31).wrapping_add(i) as u8),
    );
    bytes
}

pub(crate) fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[14..18].try_into().expect("four bytes"))
}

/// Queues `frames` up to the number of free slots; returns the number of queued frames.
pub(crate) fn submit(tx: &mut impl TxQueue, frames: &[Vec<u8>]) -> usize {
    let n = tx.lend(frames.len());
    for (i, bytes) in frames[..n].iter().enumerate() {
        let slot = tx.slot(i);
        slot.bytes[..bytes.len()].copy_from_slice(bytes);
        *slot.len = bytes.len() as u32;
    }
    tx.submit(n);
    n
}

/// Sends `frames`, and waits if the device is full.
pub(crate) fn send_all(tx: &mut impl TxQueue, frames: &[Vec<u8>]) {
    let end = Instant::now() + PATIENCE;
    let mut rest = frames;
    while !rest.is_empty() || tx.in_flight() > 0 {
        let n = submit(tx, &rest[..rest.len().min(64)]);
        rest = &rest[n..];
        tx.flush().expect("flush");
        assert!(
            Instant::now() < end,
            "{} frames still in flight",
            tx.in_flight()
        );
    }
}

/// A received frame that outlives its callback.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) bytes: Vec<u8>,
    pub(crate) original_len: u32,
    pub(crate) stamp_ns: u64,
    pub(crate) stamp_source: StampSource,
    pub(crate) vlan: Option<StrippedVlan>,
    pub(crate) checksum: ChecksumState,
}

impl From<&RxFrame<'_>> for Seen {
    fn from(frame: &RxFrame<'_>) -> Self {
        Self {
            bytes: frame.bytes.to_vec(),
            original_len: frame.original_len,
            stamp_ns: frame.stamp_ns,
            stamp_source: frame.stamp_source,
            vlan: frame.vlan,
            checksum: frame.checksum,
        }
    }
}

/// Receives until `n` frames have arrived, `max` at a time.
pub(crate) fn receive_n(rx: &mut impl RxQueue, n: usize, max: usize) -> Vec<Seen> {
    let end = Instant::now() + PATIENCE;
    let mut seen = Vec::new();
    while seen.len() < n {
        let got = rx
            .receive(max, |frame| seen.push(frame.into()))
            .expect("receive");
        assert!(got <= max);
        if got == 0 {
            assert!(Instant::now() < end, "{} of {n} frames came", seen.len());
            rx.wait(Duration::from_millis(20)).expect("wait");
        }
    }
    seen
}

/// Receives until no frame has arrived for a while.
pub(crate) fn drain(rx: &mut impl RxQueue) -> Vec<Seen> {
    let mut seen = Vec::new();
    loop {
        if rx
            .receive(256, |frame| seen.push(frame.into()))
            .expect("receive")
            == 0
            && !rx.wait(Duration::from_millis(50)).expect("wait")
        {
            return seen;
        }
    }
}

/// Calls `attempt` until it returns a value.
pub(crate) fn until<T>(what: &str, attempt: impl FnMut() -> Option<T>) -> T {
    wb_testing::polled(PATIENCE, attempt).unwrap_or_else(|| panic!("{what}"))
}

pub(crate) fn is_gone<T>(result: Result<T, PortError>) -> bool {
    matches!(result, Err(PortError::Gone { .. }))
}

/// Checks the invariant of every sending half.
pub(crate) fn assert_accounted(tx: &impl TxQueue) {
    let c = tx.counters();
    assert_eq!(
        c.submitted_frames,
        c.sent_frames + c.refused_frames + c.withdrawn_frames + tx.in_flight() as u64,
        "{c:?}"
    );
}

pub(crate) fn tx(queue: &mut PacketQueue) -> &mut wb_packet::PacketTx {
    queue.tx()
}

pub(crate) fn rx(queue: &mut PacketQueue) -> &mut wb_packet::PacketRx {
    queue.rx()
}
