//! Two network namespaces joined by a veth pair, removed on drop.
#![allow(unsafe_code)] // Packet sockets.
#![allow(unreachable_pub)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use wb_port::{Interface, PortError, QueuePair, RxFrame, RxQueue, TxQueue};
use wb_xdp::{XdpOptions, XdpPort};

/// Source address of test frames, which no kernel uses.
pub const NEAR: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// Longest time that a test waits for an expected event.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Longer than `PATIENCE`: a wait that ends at this timeout has failed.
pub const FAR_PATIENCE: Duration = Duration::from_secs(20);

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
pub struct Lab {
    pub a: String,
    pub b: String,
}

impl Lab {
    pub fn new(label: &str) -> Result<Self, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            return Err("network namespaces need root".into());
        }
        let id = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |end| format!("wb-xdp-{}-{id}-{label}-{end}", std::process::id());
        let lab = Self {
            a: name("a"),
            b: name("b"),
        };
        for node in [&lab.a, &lab.b] {
            ip(&format!("netns add {node}"));
        }
        ip(&format!(
            "link add a0 netns {} type veth peer name b0 netns {}",
            lab.a, lab.b
        ));
        for (node, end) in [(&lab.a, "a0"), (&lab.b, "b0")] {
            // Only the frames of the test may pass.
            run(
                "ip",
                &format!("netns exec {node} sysctl -qw net.ipv6.conf.{end}.disable_ipv6=1"),
            );
            run(
                "ip",
                &format!("netns exec {node} ethtool -K {end} tx off tso off gso off"),
            );
            ip(&format!("-n {node} link set lo up"));
            ip(&format!("-n {node} link set {end} up"));
        }
        Ok(lab)
    }

    /// Opens `a0`.
    pub fn open_a(&self, options: &XdpOptions) -> Result<XdpPort, PortError> {
        open(&self.a, "a0", options)
    }

    /// Opens `b0`.
    pub fn open_b(&self, options: &XdpOptions) -> Result<XdpPort, PortError> {
        open(&self.b, "b0", options)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for node in [&self.a, &self.b] {
            run("ip", &format!("netns del {node}"));
        }
    }
}

pub fn sending() -> XdpOptions {
    XdpOptions {
        rx: false,
        ..XdpOptions::default()
    }
}

pub fn receiving() -> XdpOptions {
    XdpOptions {
        tx: false,
        ..XdpOptions::default()
    }
}

/// Opens an interface in a namespace.
pub fn open(node: &str, name: &str, options: &XdpOptions) -> Result<XdpPort, PortError> {
    let interface = describe(node, name);
    inside(node, || wb_xdp::open(&interface, options))
}

/// Description of the interface, as a host library would return it.
pub fn describe(node: &str, name: &str) -> Interface {
    let text = ip(&format!("-n {node} -o link show dev {name}"));
    let words: Vec<&str> = text.split_whitespace().collect();
    let after = |key: &str| words[words.iter().position(|word| *word == key).unwrap() + 1];
    let mac: Vec<u8> = after("link/ether")
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect();
    Interface {
        port: format!("xdp:{node}/{name}"),
        name: name.into(),
        index: words[0].trim_end_matches(':').parse().unwrap(),
        mac: mac.try_into().unwrap(),
        mtu: after("mtu").parse().unwrap(),
        speed: None,
        kernel_driver: "veth".into(),
        tx_queues: 1,
        rx_queues: 1,
    }
}

/// Runs `what` in a namespace, on a separate thread.
pub fn inside<T: Send>(node: &str, what: impl FnOnce() -> T + Send) -> T {
    let file = File::open(format!("/run/netns/{node}")).unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            what()
        });
        thread.join().unwrap()
    })
}

pub fn run(program: &str, arguments: &str) -> Output {
    Command::new(program)
        .args(arguments.split_whitespace())
        .output()
        .unwrap()
}

/// Runs `ip` with these arguments, which must succeed; returns its output.
pub fn ip(arguments: &str) -> String {
    let output = run("ip", arguments);
    assert!(
        output.status.success(),
        "ip {arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Counter of the device: `tx_packets`, `tx_dropped`, …
pub fn device_counter(node: &str, name: &str, counter: &str) -> u64 {
    let path = format!("/sys/class/net/{name}/statistics/{counter}");
    ip(&format!("netns exec {node} cat {path}"))
        .trim()
        .parse()
        .unwrap()
}

/// An Ethernet frame of `len` bytes: UDP to `dport`, with `number` as its first payload.
pub fn frame(len: usize, to: [u8; 6], dport: u16, number: u64) -> Vec<u8> {
    let mut frame = vec![0; len];
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&NEAR);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..34].copy_from_slice(&[
        0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2,
    ]);
    frame[16..18].copy_from_slice(&u16::try_from(len - 14).unwrap().to_be_bytes());
    frame[34..36].copy_from_slice(&[0x30, 0x39]);
    frame[36..38].copy_from_slice(&dport.to_be_bytes());
    frame[38..40].copy_from_slice(&u16::try_from(len - 34).unwrap().to_be_bytes());
    frame[42..50].copy_from_slice(&number.to_be_bytes());
    frame
}

/// ARP request for 198.18.0.2 from 198.18.0.1 at [`NEAR`].
pub fn arp_request() -> Vec<u8> {
    let mut frame = [[0xff; 6], NEAR].concat();
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(NEAR);
    frame.extend([198, 18, 0, 1, 0, 0, 0, 0, 0, 0, 198, 18, 0, 2]);
    frame.resize(60, 0);
    frame
}

/// An ICMP echo request from 198.18.0.1 at [`NEAR`] to 198.18.0.2 at `to`.
pub fn echo_request(to: [u8; 6]) -> Vec<u8> {
    let mut frame = [to, NEAR].concat();
    frame.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0]);
    frame.extend([198, 18, 0, 1, 198, 18, 0, 2, 8, 0, 0, 0, 0, 7, 0, 1]);
    for (header, checksum) in [(14..34, 24), (34..42, 36)] {
        let words = frame[header].chunks_exact(2);
        let sum: u32 = words
            .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
            .sum();
        let folded = u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
        frame[checksum..checksum + 2].copy_from_slice(&(!folded).to_be_bytes());
    }
    frame.resize(60, 0);
    frame
}

/// Number in a frame made by [`frame`].
pub fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes[42..50].try_into().unwrap())
}

/// Returns true if the bytes are a frame made by [`frame`], and not one of a kernel.
pub fn is_ours(bytes: &[u8]) -> bool {
    bytes.len() >= 50 && bytes[6..12] == NEAR
}

/// Submits one frame per number, up to the number of lent frames.
pub fn submit(tx: &mut impl TxQueue, len: usize, to: [u8; 6], numbers: &[u64]) -> usize {
    let n = tx.lend(numbers.len());
    for (i, &number) in numbers[..n].iter().enumerate() {
        let slot = tx.slot(i);
        slot.bytes[..len].copy_from_slice(&frame(len, to, 4000, number));
        *slot.len = u32::try_from(len).unwrap();
    }
    tx.submit(n);
    n
}

/// Checks that every submitted frame is accounted for.
pub fn assert_adds_up(tx: &impl TxQueue) {
    let counters = tx.counters();
    assert_eq!(
        counters.submitted_frames,
        counters.sent_frames
            + counters.refused_frames
            + counters.withdrawn_frames
            + tx.in_flight() as u64,
        "{counters:?}"
    );
}

/// Receives until `enough` test frames have arrived, or until [`PATIENCE`] ends.
pub fn receive(port: &mut XdpPort, enough: usize, mut each: impl FnMut(&RxFrame<'_>)) -> usize {
    let rx = port.queues[0].rx();
    let start = Instant::now();
    let mut got = 0;
    while got < enough && start.elapsed() < PATIENCE {
        let seen = rx
            .receive(64, |frame| {
                if is_ours(frame.bytes) {
                    got += 1;
                    each(frame);
                }
            })
            .unwrap();
        if seen == 0 {
            rx.wait(Duration::from_millis(20)).unwrap();
        }
    }
    got
}

pub fn wall_ns() -> u64 {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    u64::try_from(now.as_nanos()).unwrap()
}

/// Calls `is_so` until it returns true, or until [`PATIENCE`] ends.
pub fn eventually(mut is_so: impl FnMut() -> bool) -> bool {
    wb_testing::polled(PATIENCE, || is_so().then_some(())).is_some()
}

/// Packet socket on one interface, as an independent reference.
pub struct PacketSocket {
    socket: OwnedFd,
    index: i32,
}

impl PacketSocket {
    pub fn new(node: &str, interface: &Interface) -> Self {
        let index = interface.index.cast_signed();
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        let socket = inside(node, || {
            let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
            // SAFETY: a plain system call; the result is checked and has no other owner.
            let fd = unsafe { libc::socket(libc::AF_PACKET, kind, i32::from(protocol)) };
            assert!(fd >= 0, "{}", io::Error::last_os_error());
            // SAFETY: as above.
            unsafe { OwnedFd::from_raw_fd(fd) }
        });
        let socket = Self { socket, index };
        let address = socket.address(protocol);
        // SAFETY: the address outlives the call and has the length given.
        let result = unsafe {
            libc::bind(
                socket.socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as u32,
            )
        };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        socket
    }

    fn address(&self, protocol: u16) -> libc::sockaddr_ll {
        libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: protocol,
            sll_ifindex: self.index,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 6,
            sll_addr: [0; 8],
        }
    }

    pub fn send(&self, frame: &[u8]) {
        let address = self.address(0);
        // SAFETY: frame and address outlive the call and have the lengths given.
        let sent = unsafe {
            libc::sendto(
                self.socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as u32,
            )
        };
        assert_eq!(sent, frame.len() as isize, "{}", io::Error::last_os_error());
    }

    /// Next waiting test frame.
    pub fn receive(&self) -> Option<Vec<u8>> {
        self.receive_if(is_ours)
    }

    fn receive_if(&self, wanted: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        loop {
            let mut buffer = vec![0; 4096];
            // SAFETY: the buffer outlives the call and has the length given.
            let len = unsafe {
                libc::recv(
                    self.socket.as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    0,
                )
            };
            buffer.truncate(usize::try_from(len).ok()?);
            if wanted(&buffer) {
                return Some(buffer);
            }
        }
    }

    /// Waits for the next test frame.
    pub fn receive_soon(&self) -> Option<Vec<u8>> {
        self.receive_soon_if(is_ours)
    }

    /// Waits for the next frame that `wanted` accepts.
    pub fn receive_soon_if(&self, wanted: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        let mut frame = None;
        eventually(|| {
            frame = self.receive_if(&wanted);
            frame.is_some()
        });
        frame
    }
}
