//! Counters of interface queues, from the kernel's netdev family of generic netlink (since Linux 6.9), for drivers that
//! report them: Documentation/netlink/specs/netdev.yaml, `qstats-get` with the scope `queue`.

use std::io;

use netlink_packet_core::NlasIterator;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::netlink::{ANSWER_TIMEOUT, split_message};
use crate::netns::{Namespace, in_namespace};

// linux/netlink.h, linux/genetlink.h
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

// linux/netdev.h
const NETDEV_CMD_QSTATS_GET: u8 = 12;
const QSTATS_IFINDEX: u16 = 1;
const QSTATS_QUEUE_TYPE: u16 = 2;
const QSTATS_QUEUE_ID: u16 = 3;
const QSTATS_SCOPE: u16 = 4;
const SCOPE_QUEUE: u64 = 1;
const QUEUE_TYPE_TX: u64 = 1;
/// Number of the first counter, and the counters in order.
const FIRST: u16 = 8;
const COUNTERS: [&str; 27] = [
    "packets",
    "bytes",
    "packets",
    "bytes",
    "alloc_fail",
    "hw_drops",
    "hw_drop_overruns",
    "csum_complete",
    "csum_unnecessary",
    "csum_none",
    "csum_bad",
    "hw_gro_packets",
    "hw_gro_bytes",
    "hw_gro_wire_packets",
    "hw_gro_wire_bytes",
    "hw_drop_ratelimits",
    "hw_drops",
    "hw_drop_errors",
    "csum_none",
    "needs_csum",
    "hw_gso_packets",
    "hw_gso_bytes",
    "hw_gso_wire_packets",
    "hw_gso_wire_bytes",
    "hw_drop_ratelimits",
    "stop",
    "wake",
];

/// Headers of a message: netlink and generic netlink.
const HEADERS: usize = 16 + 4;

/// Queue counters of a namespace.
pub(crate) struct QueueStatistics {
    socket: Socket,
    family: u16,
    sequence: u32,
}

/// Counter: index of the interface, name including the queue, and value.
pub(crate) type Counter = (u32, String, u64);

impl QueueStatistics {
    /// Opens the counters; `None` if the kernel lacks the family or refuses.
    pub(crate) fn open(namespace: &Namespace) -> Option<Self> {
        let open = || -> io::Result<Socket> {
            let mut socket = Socket::new(NETLINK_GENERIC)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIMEOUT))?;
            Ok(socket)
        };
        let socket = match namespace.is_current() {
            true => open(),
            false => in_namespace(namespace, open).ok()?,
        };
        let mut statistics = Self {
            socket: socket.ok()?,
            family: GENL_ID_CTRL,
            sequence: 0,
        };
        let name = attribute(CTRL_ATTR_FAMILY_NAME, b"netdev\0");
        let answers = statistics.ask(CTRL_CMD_GETFAMILY, NLM_F_ACK, &name).ok()?;
        statistics.family = answers.iter().find_map(|answer| family(answer))?;
        Some(statistics)
    }

    /// All counters of all queues of the drivers that report them.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn read(&mut self) -> io::Result<Vec<Counter>> {
        let scope = attribute(QSTATS_SCOPE, &SCOPE_QUEUE.to_ne_bytes());
        let answers = self.ask(NETDEV_CMD_QSTATS_GET, NLM_F_DUMP, &scope)?;
        Ok(answers.iter().flat_map(|answer| counters(answer)).collect())
    }

    /// Sends a request and returns the attributes of each answer.
    fn ask(&mut self, command: u8, flags: u16, attributes: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        self.sequence = self.sequence.wrapping_add(1);
        let length = u32::try_from(HEADERS + attributes.len()).unwrap_or(u32::MAX);
        let mut request = length.to_ne_bytes().to_vec();
        request.extend(self.family.to_ne_bytes());
        request.extend((NLM_F_REQUEST | flags).to_ne_bytes());
        request.extend(self.sequence.to_ne_bytes());
        request.extend([0, 0, 0, 0, command, 1, 0, 0]);
        request.extend(attributes);
        self.socket.send(&request, 0)?;
        let mut answers = Vec::new();
        loop {
            let datagram = match self.socket.recv_from_full() {
                Ok((datagram, _)) => datagram,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            if collect(&datagram, self.sequence, &mut answers)? {
                return Ok(answers);
            }
        }
    }
}

/// Extracts the answers to a request from a datagram. Returns true after the last answer.
fn collect(datagram: &[u8], sequence: u32, answers: &mut Vec<Vec<u8>>) -> io::Result<bool> {
    let mut rest = datagram;
    while let Some((message, after)) = split_message(rest) {
        rest = after;
        let kind = u16::from_ne_bytes([message[4], message[5]]);
        if message[8..12] != sequence.to_ne_bytes() {
            continue;
        }
        match (kind, message.get(16..20)) {
            (NLMSG_ERROR | NLMSG_DONE, Some(&[a, b, c, d])) => {
                return match i32::from_ne_bytes([a, b, c, d]) {
                    error if error < 0 => Err(io::Error::from_raw_os_error(error.saturating_neg())),
                    _ => Ok(true),
                };
            }
            (_, Some(_)) => answers.push(message[HEADERS..].to_vec()),
            (_, None) => {}
        }
    }
    Ok(false)
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Number of 2, 4 or 8 bytes: the kernel's type `uint` has a variable length.
fn number(bytes: &[u8]) -> Option<u64> {
    match *bytes {
        [a, b] => Some(u16::from_ne_bytes([a, b]).into()),
        [a, b, c, d] => Some(u32::from_ne_bytes([a, b, c, d]).into()),
        _ => bytes.try_into().ok().map(u64::from_ne_bytes),
    }
}

fn numbers(attributes: &[u8]) -> Vec<(u16, u64)> {
    NlasIterator::new(attributes)
        .flatten()
        .filter_map(|attribute| Some((attribute.kind(), number(attribute.value())?)))
        .collect()
}

fn family(answer: &[u8]) -> Option<u16> {
    let numbers = numbers(answer);
    let (_, id) = numbers
        .iter()
        .find(|(kind, _)| *kind == CTRL_ATTR_FAMILY_ID)?;
    u16::try_from(*id).ok()
}

/// Counters of a queue: `netdev_rx_0_packets`. Counters with unknown names are left out.
fn counters(answer: &[u8]) -> Vec<Counter> {
    let numbers = numbers(answer);
    let one = |kind| numbers.iter().find(|(k, _)| *k == kind).map(|(_, n)| *n);
    let Some((index, queue)) = one(QSTATS_IFINDEX).zip(one(QSTATS_QUEUE_ID)) else {
        return Vec::new();
    };
    let Ok(index) = u32::try_from(index) else {
        return Vec::new();
    };
    let direction = match one(QSTATS_QUEUE_TYPE) {
        Some(QUEUE_TYPE_TX) => "tx",
        _ => "rx",
    };
    let named = numbers.iter().filter_map(|(kind, value)| {
        let name = COUNTERS.get(usize::from(kind.checked_sub(FIRST)?))?;
        Some((index, format!("netdev_{direction}_{queue}_{name}"), *value))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answer of Linux 6.18 for a virtio device with one pair of queues, and the end of the list.
    const RECORDED: &str = "3c0000001400000001000000fb1400000c01000008000100040000000800020000000000080003000000000008000800a5450000080009005c1dd71b4c0000001400000001000000fb1400000c01000008000100040000000800020001000000080003000000000008000a00312b000008000b002030100008002100000000000800220000000000140000000300020001000000fb14000000000000";

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len() / 2)
            .map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap())
            .collect()
    }

    #[test]
    fn queues_of_a_recorded_answer() {
        let mut answers = Vec::new();
        let mut done = false;
        for datagram in RECORDED.split(' ') {
            assert!(!done);
            done = collect(&bytes(datagram), 1, &mut answers).unwrap();
        }
        assert!(done);
        let all: Vec<Counter> = answers.iter().flat_map(|answer| counters(answer)).collect();
        let counter = |name: &str, value| (4, name.to_owned(), value);
        assert_eq!(
            all,
            [
                counter("netdev_rx_0_packets", 17_829),
                counter("netdev_rx_0_bytes", 467_082_588),
                counter("netdev_tx_0_packets", 11_057),
                counter("netdev_tx_0_bytes", 1_060_896),
                counter("netdev_tx_0_stop", 0),
                counter("netdev_tx_0_wake", 0),
            ]
        );
        // Answers to other requests are ignored.
        answers.clear();
        assert!(!collect(&bytes(RECORDED.split(' ').next().unwrap()), 2, &mut answers).unwrap());
        assert!(answers.is_empty());
    }

    #[test]
    fn a_refusal_is_an_error_and_garbage_is_nothing() {
        // NLMSG_ERROR with -EOPNOTSUPP.
        let mut refusal = [36, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0].to_vec();
        refusal.extend((-libc::EOPNOTSUPP).to_ne_bytes());
        refusal.extend([0; 16]);
        let error = collect(&refusal, 7, &mut Vec::new()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
        let whole = bytes(RECORDED.split(' ').next().unwrap());
        for cut in 0..whole.len() {
            let mut answers = Vec::new();
            let _ = collect(&whole[..cut], 1, &mut answers);
            answers.iter().for_each(|answer| drop(counters(answer)));
        }
    }

    #[test]
    fn the_kernel_is_asked() {
        // Older kernels have no such family.
        if let Some(mut statistics) = QueueStatistics::open(&Namespace::current().unwrap()) {
            let all = statistics.read().unwrap();
            assert!(
                all.iter()
                    .all(|(index, name, _)| *index > 0 && name.starts_with("netdev_"))
            );
        }
    }
}
