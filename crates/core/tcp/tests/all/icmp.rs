//! ICMP errors about sent packets: path MTU discovery (RFC 1191, RFC 8201) and unreachable destinations.

use crate::common::*;
use wb_tcp::*;
use wb_wire::{MacAddr, checksum};

const ROUTER: [u8; 4] = [198, 18, 9, 9];

/// ICMP message of a router about an Ethernet frame, sent to the source of that frame.
fn about(frame: &[u8], kind: u8, code: u8, word: u32) -> Vec<u8> {
    let packet = &frame[14..];
    let v6 = packet[0] >> 4 == 6;
    let quoted = &packet[..packet.len().min(if v6 { 1232 } else { 28 })];
    let mut message = vec![kind, code, 0, 0];
    message.extend(word.to_be_bytes());
    message.extend(quoted);
    let mut out = Vec::new();
    out.extend(&frame[6..12]);
    out.extend([2, 0, 0, 0, 0, 9]);
    out.extend(&frame[12..14]);
    let pseudo = if v6 {
        let len = message.len() as u16;
        let mut source = [0; 16];
        (source[0], source[1], source[15]) = (0x20, 1, 9);
        let to: [u8; 16] = packet[8..24].try_into().unwrap();
        out.extend([0x60, 0, 0, 0]);
        out.extend(len.to_be_bytes());
        out.extend([58, 64]);
        out.extend(source);
        out.extend(to);
        checksum::pseudo_v6(source.into(), to.into(), 58, len.into())
    } else {
        let len = 20 + message.len() as u16;
        let mut header = vec![0x45, 0];
        header.extend(len.to_be_bytes());
        header.extend([0, 0, 0, 0, 64, 1, 0, 0]);
        header.extend(ROUTER);
        header.extend(&packet[12..16]);
        let sum = checksum::finish(checksum::sum(&header));
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        out.extend(header);
        0
    };
    let sum = checksum::finish(pseudo + checksum::sum(&message));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    out.extend(message);
    out
}

/// Two ends behind a router with a link of MTU `mtu`, in bytes; no time passes.
struct Path {
    ends: [Machine; 2],
    mtu: usize,
    refused: u32,
}

impl Path {
    fn new(v6: bool, mtu: usize, named: bool) -> (Self, u32) {
        let mut shape = client(v6);
        shape.request = Message::repeated(b"0123456789", 3000);
        shape.answer = Reading::Fixed(5000);
        let mut server = server(v6);
        server.request = Reading::Fixed(3000);
        server.answer = ServerAnswer::Message(Message::repeated(b"abcdefghij", 5000));
        let path = Self {
            ends: [
                Machine::new(client_config(shape, Transport::Tcp), ()).unwrap(),
                Machine::new(server_config(server, Transport::Tcp), ()).unwrap(),
            ],
            mtu,
            refused: 0,
        };
        (path, if named { mtu as u32 } else { 0 })
    }

    /// Runs one connection to its end.
    fn connect(&mut self, word: u32) {
        let mut out = [Frames::new(usize::MAX), Frames::new(usize::MAX)];
        assert_eq!(self.ends[0].launch(0, 1, &mut out[0]), 1);
        loop {
            let mut moved = false;
            for from in 0..2 {
                for frame in out[from].take_frames() {
                    moved = true;
                    if frame.len() - 14 > self.mtu {
                        self.refused += 1;
                        let message = match frame[14] >> 4 {
                            6 => about(&frame, 2, 0, word),
                            _ => about(&frame, 3, 4, word),
                        };
                        let to = &mut self.ends[from];
                        assert_eq!(to.receive(0, &message, &mut out[from]), Received::Taken);
                    } else {
                        let to = &mut self.ends[1 - from];
                        assert_eq!(to.receive(0, &frame, &mut out[1 - from]), Received::Taken);
                    }
                }
                self.ends[from].poll(0, &mut out[from]);
            }
            if !moved {
                return;
            }
        }
    }
}

#[test]
fn segments_become_as_small_as_the_path_takes() {
    for (v6, mtu, named, least) in [
        (false, 900, true, 900),
        (true, 1300, true, 1300),
        // A router older than RFC 1191 reports no MTU: 1,492, then 1,006.
        (false, 1006, false, 1006),
    ] {
        let (mut path, word) = Path::new(v6, mtu, named);
        path.connect(word);
        for (n, end) in path.ends.iter().enumerate() {
            let c = end.counters();
            assert_eq!(
                (c.completed, c.failed(), c.open),
                (1, 0, 0),
                "{n} {mtu}: {c:?}"
            );
            assert_eq!(c.responses, 1);
            assert_eq!(c.rx_foreign, 0);
            let news = end.icmp_news();
            assert!(news.too_big > 0 && news.least_mtu == least, "{news:?}");
        }
        // The next connection uses the recorded path MTU.
        let refused = path.refused;
        path.connect(word);
        assert_eq!(path.refused, refused, "nothing was too large again");
        assert_eq!(path.ends[0].counters().completed, 2);
    }
}

#[test]
fn a_syn_answered_by_icmp_fails_with_the_code() {
    for (v6, kind, code) in [(false, 3, 1), (true, 1, 4)] {
        let config = client_config(client(v6), Transport::Tcp);
        let mut m = Machine::new(config, ()).unwrap();
        let mut out = Frames::new(usize::MAX);
        assert_eq!(m.launch(0, 2, &mut out), 2);
        let syns = out.take_frames();
        // A guessed sequence number has no effect.
        let mut guessed = syns[0].clone();
        let seq = 14 + if v6 { 40 } else { 20 } + 4;
        guessed[seq] ^= 0x80;
        let message = about(&guessed, kind, code, 0);
        assert_eq!(m.receive(0, &message, &mut out), Received::NotOurs);
        assert_eq!(m.counters().failed(), 0);

        let message = about(&syns[0], kind, code, 0);
        assert_eq!(m.receive(0, &message, &mut out), Received::Taken);
        let c = *m.counters();
        assert_eq!((c.failed_unreachable, c.failed(), c.open), (1, 1, 1));
        let version = if v6 { 6 } else { 4 };
        let told: Vec<_> = m.icmp_news().unreachable.iter().collect();
        assert_eq!(told, [(&(version, code), &1)]);
        // A second copy of the message concerns no connection.
        assert_eq!(m.receive(0, &message, &mut out), Received::NotOurs);
        assert!(c.is_balanced());
    }
}

#[test]
fn a_syn_in_a_tunnel_answered_by_icmp_fails_with_the_code() {
    const OUTER: usize = 14 + 20 + 8 + 8;
    let (local, remote) = ([192, 0, 2, 1], [192, 0, 2, 2]);
    let config = Config {
        tunnel: Some(Tunnel {
            vni: 7,
            src_mac: MacAddr([2, 0, 0, 0, 7, 1]),
            dst_mac: MacAddr([2, 0, 0, 0, 7, 2]),
            local: local.into(),
            remote: remote.into(),
        }),
        ..client_config(client(false), Transport::Tcp)
    };
    let mut m = Machine::new(config, ()).unwrap();
    let mut out = Frames::new(usize::MAX);
    assert_eq!(m.launch(0, 1, &mut out), 1);
    let syn = out.take_frames().remove(0);
    let inner = about(&syn[OUTER..], 3, 1, 0);
    // The outer headers of the answer: those of the SYN with both ends exchanged.
    let mut answer = syn[..OUTER].to_vec();
    answer[..6].copy_from_slice(&syn[6..12]);
    let udp_len = (16 + inner.len()) as u16;
    answer[16..18].copy_from_slice(&(20 + udp_len).to_be_bytes());
    answer[26..30].copy_from_slice(&remote);
    answer[30..34].copy_from_slice(&local);
    answer[38..40].copy_from_slice(&udp_len.to_be_bytes());
    answer[24..26].fill(0);
    let sum = checksum::finish(checksum::sum(&answer[14..34]));
    answer[24..26].copy_from_slice(&sum.to_be_bytes());
    answer.extend(inner);
    assert_eq!(m.receive(0, &answer, &mut out), Received::Taken);
    let c = m.counters();
    assert_eq!((c.failed_unreachable, c.open), (1, 0), "{c:?}");
}
