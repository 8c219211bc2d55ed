//! On a real veth pair, counted frames do not reach the host, and all other frames do.

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Command, Stdio};

use crate::lab::{self, Lab, NEAR, PATIENCE, PacketSocket, eventually, ip};
use wb_port::PortError;
use wb_xdp::consume::{self, Consumer};

const MAGIC: u64 = 0xbe9b_e955 << 32;
const PORT: u16 = 4000;

/// The far end: a host with an address and a neighbour entry.
struct Host {
    mac: [u8; 6],
    near: PacketSocket,
    tap: PacketSocket,
    socket: UdpSocket,
}

impl Host {
    fn new(lab: &Lab) -> Self {
        let node = &lab.b;
        ip(&format!("-n {node} addr add 198.18.0.2/24 dev b0"));
        let near = NEAR.map(|byte| format!("{byte:02x}")).join(":");
        ip(&format!(
            "-n {node} neigh add 198.18.0.1 lladdr {near} dev b0"
        ));
        let interface = lab::describe(node, "b0");
        let socket = lab::inside(node, || UdpSocket::bind(("0.0.0.0", PORT)).unwrap());
        socket.set_nonblocking(true).unwrap();
        Self {
            mac: interface.mac,
            near: PacketSocket::new(&lab.a, &lab::describe(&lab.a, "a0")),
            tap: PacketSocket::new(node, &interface),
            socket,
        }
    }

    /// Frame to a port of this host that it would accept.
    fn frame(&self, dport: u16, number: u64) -> Vec<u8> {
        let mut frame = lab::frame(60, self.mac, dport, number);
        let sum: u32 = frame[14..34]
            .chunks_exact(2)
            .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
            .sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        frame[24..26].copy_from_slice(&(!(folded as u16)).to_be_bytes());
        frame
    }

    fn send(&self, number: u64) {
        self.near.send(&self.frame(PORT, number));
    }

    /// Numbers of the frames waiting at the socket, oldest first.
    fn heard(&self) -> Vec<u64> {
        let mut buffer = [0; 2048];
        std::iter::from_fn(|| {
            self.socket.recv(&mut buffer).ok()?;
            Some(u64::from_be_bytes(buffer[..8].try_into().unwrap()))
        })
        .collect()
    }

    fn hears(&self, wanted: &[u64]) -> bool {
        let mut heard = Vec::new();
        eventually(|| {
            heard.extend(self.heard());
            heard.len() >= wanted.len()
        });
        heard.sort_unstable();
        heard == wanted
    }

    /// Numbers of the frames that the packet socket received, until `enough`.
    fn tapped(&self, enough: usize) -> Vec<u64> {
        let mut seen = Vec::new();
        while seen.len() < enough {
            let Some(frame) = self.tap.receive_soon() else {
                break;
            };
            seen.push(lab::number(&frame));
        }
        seen.sort_unstable();
        seen
    }
}

fn attach(node: &str, name: &str) -> Consumer {
    let interface = lab::describe(node, name);
    lab::inside(node, || consume::attach(&interface)).unwrap()
}

#[test]
fn the_host_sees_all_but_counted_frames_and_a_packet_socket_sees_all() {
    let lab = lab_or_skip!("consume");
    let host = Host::new(&lab);
    let consumer = attach(&lab.b, "b0");
    assert_eq!(consumer.dropped().unwrap(), 0);
    for i in 0..100 {
        host.send(MAGIC | i);
        host.send(i);
    }
    let plain: Vec<u64> = (0..100).collect();
    let all: Vec<u64> = plain
        .iter()
        .copied()
        .chain(plain.iter().map(|i| MAGIC | i))
        .collect();
    assert_eq!(host.tapped(200), all);
    assert!(host.hears(&plain));
    assert_eq!(consumer.dropped().unwrap(), 100);

    drop(consumer);
    host.send(MAGIC | 7);
    assert!(host.hears(&[MAGIC | 7]));
}

#[test]
fn a_closed_port_answers_no_counted_frame() {
    let lab = lab_or_skip!("answer");
    let host = Host::new(&lab);
    let _consumer = attach(&lab.b, "b0");
    for i in 0..5 {
        host.near.send(&host.frame(PORT + 1, MAGIC | i));
    }
    host.near.send(&host.frame(PORT + 1, 5));
    // ICMP, which quotes the answered packet.
    let is_answer = |bytes: &[u8]| bytes.len() >= 78 && bytes[..6] == NEAR && bytes[23] == 1;
    let answer = host.near.receive_soon_if(is_answer).unwrap();
    assert_eq!(answer[70..78], 5u64.to_be_bytes());
}

#[test]
fn tags_are_passed_over_also_the_one_that_the_kernel_has_stripped() {
    let lab = lab_or_skip!("tags");
    let host = Host::new(&lab);
    let consumer = attach(&lab.b, "b0");
    let tag = [0x81, 0, 0, 5];
    let service_tag = [0x88, 0xa8, 0, 6];
    let mut consumed = 0;
    for tags in [
        &[][..],
        &[tag],
        &[service_tag, tag],
        &[service_tag, tag, tag],
    ] {
        for number in [MAGIC, 1] {
            let mut frame = host.frame(PORT, number);
            frame.splice(12..12, tags.concat());
            host.near.send(&frame);
            assert!(host.tap.receive_soon().is_some(), "{tags:?}");
            consumed += u64::from(number == MAGIC);
            assert!(eventually(|| consumer.dropped().unwrap() == consumed));
        }
    }
}

#[test]
fn only_its_own_interface_is_concerned() {
    let lab = lab_or_skip!("other");
    let host = Host::new(&lab);
    let interface = lab::describe(&lab.b, "b0");
    // Two programs count separately; the later one receives frames first.
    let near = attach(&lab.a, "a0");
    let (first, second) = (attach(&lab.b, "b0"), attach(&lab.b, "b0"));
    host.send(MAGIC);
    assert!(eventually(|| second.dropped().unwrap() == 1));
    assert_eq!(first.dropped().unwrap(), 0);
    assert_eq!(near.dropped().unwrap(), 0);

    let error = lab::inside(&lab.a, || consume::attach(&interface)).err();
    assert_eq!(
        error.unwrap().to_string(),
        format!(
            "{}: no interface b0 with index {} in this network namespace",
            interface.port, interface.index
        )
    );
}

#[test]
fn an_interface_that_vanished_is_told() {
    let lab = lab_or_skip!("vanish");
    let interface = lab::describe(&lab.b, "b0");
    let consumer = attach(&lab.b, "b0");
    ip(&format!("-n {} link del b0", lab.b));
    let error = lab::inside(&lab.b, || consume::attach(&interface)).err();
    assert!(matches!(error, Some(PortError::Input { .. })), "{error:?}");
    assert_eq!(consumer.dropped().unwrap(), 0);
}

#[test]
fn it_ends_when_its_process_is_killed() {
    let lab = lab_or_skip!("killed");
    let host = Host::new(&lab);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "consume::hold_until_killed",
            "--nocapture",
        ])
        .env("WB_XDP_HOLD", &lab.b)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = lines
        .map_while(Result::ok)
        .any(|line| line.contains("holding"));
    host.send(MAGIC | 1);
    host.send(2);
    let while_held = host.hears(&[2]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(ready && while_held);
    assert!(eventually(|| {
        host.send(MAGIC | 3);
        host.heard().contains(&(MAGIC | 3))
    }));
}

/// The process that the test above kills; without it the test does nothing.
#[test]
#[ignore = "run by it_ends_when_its_process_is_killed"]
fn hold_until_killed() {
    let Ok(node) = std::env::var("WB_XDP_HOLD") else {
        return;
    };
    let _consumer = attach(&node, "b0");
    println!("holding");
    wb_testing::disturb(2 * PATIENCE);
}
