//! Tests of the driver's public interface on a real veth pair.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::lab::{
    self, PATIENCE, PacketSocket, frame, ip, number, receive, receiving, sending, submit,
};
use wb_port::{PortError, QueuePair, RxQueue, StampSource, TxQueue};
use wb_xdp::{BusyPoll, Mode, Select, XdpOptions};

const FAR: [u8; 6] = [2, 0, 0, 0, 0, 7];

#[test]
fn frames_cross_from_xdp_to_xdp() {
    for mode in [Mode::Auto, Mode::NativeCopy, Mode::Generic] {
        for len in [60, 777, 1514] {
            let lab = lab_or_skip!("cross");
            let mut to = lab
                .open_b(&XdpOptions {
                    mode,
                    ..receiving()
                })
                .unwrap();
            let mut from = lab.open_a(&sending()).unwrap();
            let mut next = 0;
            for round in 0..40 {
                let numbers: Vec<u64> = (round * 50..(round + 1) * 50).collect();
                let tx = from.queues[0].tx();
                assert_eq!(submit(tx, len, FAR, &numbers), 50);
                tx.flush().unwrap();
                assert_eq!(tx.in_flight(), 0);
                let got = receive(&mut to, 50, |seen| {
                    assert_eq!(seen.bytes, frame(len, FAR, 4000, next));
                    assert_eq!((seen.original_len as usize, seen.vlan), (len, None));
                    next += 1;
                });
                assert_eq!(got, 50, "{mode:?}, {len} bytes, round {round}");
            }
            let counters = from.queues[0].tx().counters();
            assert_eq!(
                (counters.sent_frames, counters.sent_octets),
                (2000, 2000 * len as u64)
            );
            assert_eq!(to.queues[0].rx().counters().received_frames, 2000);
            assert_eq!(to.queues[0].rx().counters().dropped_frames, 0);
            let wanted = if mode == Mode::Generic {
                "generic"
            } else {
                "native copy"
            };
            assert_eq!(
                (to.facts.mode.as_str(), from.facts.mode.as_str()),
                (wanted, "copy")
            );
        }
    }
}

#[test]
fn both_ends_answer_each_other() {
    let lab = lab_or_skip!("both");
    let mut a = lab.open_a(&XdpOptions::default()).unwrap();
    let mut b = lab.open_b(&XdpOptions::default()).unwrap();
    for round in 0..20 {
        let tx = a.queues[0].tx();
        submit(tx, 100, FAR, &[round]);
        tx.flush().unwrap();
        let mut heard = None;
        assert_eq!(
            receive(&mut b, 1, |frame| heard = Some(frame.bytes.to_vec())),
            1
        );
        let heard = heard.unwrap();
        let tx = b.queues[0].tx();
        assert_eq!(tx.lend(1), 1);
        let slot = tx.slot(0);
        slot.bytes[..heard.len()].copy_from_slice(&heard);
        *slot.len = heard.len() as u32;
        tx.submit(1);
        tx.flush().unwrap();
        assert_eq!(
            receive(&mut a, 1, |frame| assert_eq!(number(frame.bytes), round)),
            1
        );
    }
}

#[test]
fn each_queue_has_its_own_frames() {
    let lab = lab_or_skip!("queues");
    let options = XdpOptions {
        queues: 2,
        ..XdpOptions::default()
    };
    let mut interface = lab::describe(&lab.b, "b0");
    (interface.tx_queues, interface.rx_queues) = (2, 2);
    let error = lab::inside(&lab.b, || wb_xdp::open(&interface, &options))
        .err()
        .unwrap();
    assert!(
        error.to_string().contains("ethtool -L b0 rx 2 tx 2"),
        "{error}"
    );
    for (node, name) in [(&lab.a, "a0"), (&lab.b, "b0")] {
        let set = lab::run(
            "ip",
            &format!("netns exec {node} ethtool -L {name} rx 2 tx 2"),
        );
        if !set.status.success() {
            wb_testing::skipped("veth has one queue on a machine with one CPU");
            return;
        }
    }
    let mut to = lab::inside(&lab.b, || wb_xdp::open(&interface, &options)).unwrap();
    (interface.name, interface.index) = ("a0".into(), lab::describe(&lab.a, "a0").index);
    let mut from = lab::inside(&lab.a, || wb_xdp::open(&interface, &options)).unwrap();
    assert_eq!(to.facts.queues, 2);
    for queue in 0..2 {
        assert_eq!(to.queues[queue].number(), queue as u32);
        let tx = from.queues[queue].tx();
        submit(tx, 60, FAR, &[queue as u64; 10]);
        tx.flush().unwrap();
    }
    for queue in 0..2 {
        let rx = to.queues[queue].rx();
        let mut got = 0;
        assert!(lab::eventually(|| {
            rx.receive(64, |frame| {
                got += 1;
                assert_eq!(number(frame.bytes), queue as u64);
            })
            .unwrap();
            got >= 10
        }));
    }
}

#[test]
fn busy_polling_can_be_asked_for() {
    let lab = lab_or_skip!("busy");
    let busy_poll = Some(BusyPoll {
        micros: 20,
        budget: 64,
    });
    let mut to = lab
        .open_b(&XdpOptions {
            busy_poll,
            ..receiving()
        })
        .unwrap();
    PacketSocket::new(&lab.a, &lab::describe(&lab.a, "a0")).send(&frame(60, FAR, 4000, 1));
    assert_eq!(receive(&mut to, 1, |_| {}), 1);
}

#[test]
fn stamps_of_the_program_are_wall_time() {
    let lab = lab_or_skip!("stamps");
    for mode in [Mode::NativeCopy, Mode::Generic] {
        let mut port = lab
            .open_b(&XdpOptions {
                mode,
                ..receiving()
            })
            .unwrap();
        assert_eq!(port.facts.stamp_source, StampSource::KernelXdp);
        let sender = PacketSocket::new(&lab.a, &lab::describe(&lab.a, "a0"));
        let mut last = 0;
        for i in 0..20 {
            let before = lab::wall_ns();
            sender.send(&frame(60, FAR, 4000, i));
            let mut stamp = 0;
            let got = receive(&mut port, 1, |frame| {
                assert_eq!(frame.stamp_source, StampSource::KernelXdp);
                stamp = frame.stamp_ns;
            });
            let after = lab::wall_ns();
            assert_eq!(got, 1);
            // The offset between the clocks is accurate to a microsecond.
            assert!(
                before <= stamp + 1_000 && stamp <= after + 1_000,
                "{before} {stamp} {after}"
            );
            assert!(stamp >= last);
            last = stamp;
        }
    }
}

#[test]
fn a_packet_socket_sees_what_xdp_sends() {
    let lab = lab_or_skip!("judge");
    let judge = PacketSocket::new(&lab.b, &lab::describe(&lab.b, "b0"));
    let mut port = lab.open_a(&sending()).unwrap();
    for len in [60, 1514] {
        let tx = port.queues[0].tx();
        submit(tx, len, FAR, &[1, 2, 3]);
        tx.flush().unwrap();
        for number in 1..=3 {
            assert_eq!(judge.receive_soon(), Some(frame(len, FAR, 4000, number)));
        }
    }
}

#[test]
fn frames_keep_content_and_cookie_until_their_next_use() {
    let lab = lab_or_skip!("cookie");
    let judge = PacketSocket::new(&lab.b, &lab::describe(&lab.b, "b0"));
    let mut port = lab
        .open_a(&XdpOptions {
            tx_frames: 64,
            ..sending()
        })
        .unwrap();
    let tx = port.queues[0].tx();
    let mut known = 0;
    for round in 0..300u64 {
        assert_eq!(tx.lend(3), 3);
        for i in 0..3 {
            let slot = tx.slot(i);
            if *slot.cookie == 0 {
                *slot.cookie = 5;
                slot.bytes[..200].copy_from_slice(&frame(200, FAR, 4000, 0));
                *slot.len = 200;
            } else {
                known += 1;
            }
            slot.bytes[42..50].copy_from_slice(&(round * 3 + i as u64).to_be_bytes());
        }
        tx.submit(3);
        tx.flush().unwrap();
        for i in 0..3 {
            assert_eq!(
                judge.receive_soon(),
                Some(frame(200, FAR, 4000, round * 3 + i))
            );
        }
    }
    assert!(known >= 900 - 64);
}

#[test]
fn the_host_stays_reachable_behind_all_but_control() {
    let lab = lab_or_skip!("ping");
    ip(&format!("-n {} addr add 198.18.0.2/24 dev b0", lab.b));
    // No kernel has the source address, so no kernel answers for it.
    let near_mac = "02:00:00:00:00:09";
    ip(&format!(
        "-n {} neigh add 198.18.0.1 lladdr {near_mac} dev b0",
        lab.b
    ));
    let near = PacketSocket::new(&lab.a, &lab::describe(&lab.a, "a0"));
    let far = lab::describe(&lab.b, "b0").mac;
    for mode in [Mode::NativeCopy, Mode::Generic] {
        let mut port = lab
            .open_b(&XdpOptions {
                mode,
                ..receiving()
            })
            .unwrap();
        near.send(&lab::arp_request());
        let reply = |kind: [u8; 2]| {
            move |bytes: &[u8]| {
                bytes[..6] == lab::NEAR && bytes[6..12] == far && bytes[12..14] == kind
            }
        };
        let answer = near.receive_soon_if(reply([8, 6])).expect("an ARP reply");
        assert_eq!(answer[20..22], [0, 2]);
        near.send(&lab::echo_request(far));
        let answer = near.receive_soon_if(reply([8, 0])).expect("an echo reply");
        assert_eq!((answer[23], answer[34]), (1, 0));
        // An echo reply is for another program of this host; other messages are for the port.
        let mut message = lab::echo_request(far);
        message[34] = 0;
        near.send(&message);
        message[34] = 11;
        near.send(&message);
        assert_eq!(
            receive(&mut port, 1, |frame| assert_eq!(frame.bytes, message)),
            1
        );
        assert_eq!(port.queues[0].rx().counters().received_frames, 1);
    }
}

#[test]
fn selected_udp_ports_come_and_the_rest_goes_to_the_kernel() {
    let lab = lab_or_skip!("udp");
    let host = PacketSocket::new(&lab.b, &lab::describe(&lab.b, "b0"));
    let select = Select::UdpPorts(4000, 4001);
    let mut port = lab
        .open_b(&XdpOptions {
            select,
            ..receiving()
        })
        .unwrap();
    let sender = PacketSocket::new(&lab.a, &lab::describe(&lab.a, "a0"));
    let mut tagged = frame(100, FAR, 4001, 6);
    tagged.splice(12..12, [0x88, 0xa8, 0, 5, 0x81, 0, 0, 6]);
    let mut fragment = frame(100, FAR, 4000, 7);
    fragment[21] = 1;
    let mut cut = frame(60, FAR, 4000, 8);
    cut[14] = 0x4f;
    for frame in [
        frame(100, FAR, 3999, 1),
        frame(100, FAR, 4000, 2),
        frame(100, FAR, 4001, 3),
        frame(100, FAR, 4002, 4),
        tagged.clone(),
        fragment,
        cut,
        frame(100, FAR, 4000, 9),
    ] {
        sender.send(&frame);
    }
    let mut came = Vec::new();
    assert_eq!(
        receive(&mut port, 4, |frame| came.push(frame.bytes.to_vec())),
        4
    );
    let udp = |dport, number| frame(100, FAR, dport, number);
    assert_eq!(came, [udp(4000, 2), udp(4001, 3), tagged, udp(4000, 9)]);
    let passed: Vec<u64> = std::iter::from_fn(|| host.receive())
        .map(|frame| number(&frame))
        .collect();
    assert_eq!(passed, [1, 4, 7, 8]);
}

#[test]
fn a_selected_address_comes_and_the_rest_goes_to_the_kernel() {
    let lab = lab_or_skip!("mac");
    let host = PacketSocket::new(&lab.b, &lab::describe(&lab.b, "b0"));
    let mut port = lab
        .open_b(&XdpOptions {
            select: Select::Mac(FAR),
            ..receiving()
        })
        .unwrap();
    let sender = PacketSocket::new(&lab.a, &lab::describe(&lab.a, "a0"));
    sender.send(&frame(60, [2, 0, 0, 0, 0, 8], 4000, 1));
    sender.send(&frame(60, [0xff; 6], 4000, 2));
    sender.send(&frame(60, FAR, 4000, 3));
    assert_eq!(
        receive(&mut port, 1, |frame| assert_eq!(number(frame.bytes), 3)),
        1
    );
    assert_eq!(host.receive().map(|frame| number(&frame)), Some(1));
    assert_eq!(host.receive().map(|frame| number(&frame)), Some(2));
    assert_eq!(host.receive(), None);
}

#[test]
fn frames_without_room_are_counted_once() {
    let lab = lab_or_skip!("room");
    let mut to = lab
        .open_b(&XdpOptions {
            rx_frames: 64,
            ..receiving()
        })
        .unwrap();
    let mut from = lab.open_a(&sending()).unwrap();
    let numbers: Vec<u64> = (0..500).collect();
    let tx = from.queues[0].tx();
    assert_eq!(submit(tx, 60, FAR, &numbers), 500);
    tx.flush().unwrap();
    tx.take_refused(|_| {});
    let sent = tx.counters().sent_frames;
    let mut received = 0;
    assert!(lab::eventually(|| {
        received += receive_now(&mut to);
        received + to.queues[0].rx().counters().dropped_frames == sent
    }));
    assert!(received >= 64 && to.queues[0].rx().counters().dropped_frames > 0);
    // The memory was returned: the same number of frames fits again.
    submit(tx, 60, FAR, &numbers[..64]);
    tx.flush().unwrap();
    assert_eq!(receive(&mut to, 64, |_| {}), 64);
}

fn receive_now(port: &mut wb_xdp::XdpPort) -> u64 {
    port.queues[0].rx().receive(64, |_| {}).unwrap() as u64
}

#[test]
fn a_taken_queue_and_a_taken_hook_are_named() {
    let lab = lab_or_skip!("taken");
    let first = lab.open_a(&sending()).unwrap();
    let message = lab.open_a(&sending()).err().unwrap().to_string();
    assert!(
        message.contains("queue 0 is in use by another AF_XDP socket"),
        "{message}"
    );
    drop(first);
    let first = lab.open_a(&receiving()).unwrap();
    let message = lab.open_a(&receiving()).err().unwrap().to_string();
    assert!(message.contains("another XDP program (ID "), "{message}");
    assert!(message.contains("ip link set dev a0 xdp off"), "{message}");
    drop(first);
    // The queue of a closed socket counts as in use for a moment; opening waits for it.
    drop(lab.open_a(&XdpOptions::default()).unwrap());
}

#[test]
fn what_cannot_be_opened_says_why() {
    let lab = lab_or_skip!("refuse");
    let mut interface = lab::describe(&lab.a, "a0");
    interface.tx_queues = 2;
    let options = XdpOptions {
        first_queue: 1,
        ..sending()
    };
    let message = lab::inside(&lab.a, || wb_xdp::open(&interface, &options))
        .err()
        .unwrap()
        .to_string();
    assert!(message.contains("ethtool -L a0"), "{message}");

    let zero_copy = XdpOptions {
        mode: Mode::NativeZeroCopy,
        ..sending()
    };
    let message = lab.open_a(&zero_copy).err().unwrap().to_string();
    assert!(message.contains("no zero copy on queue 0"), "{message}");
    assert_eq!(attached_programs(&lab.a, "a0"), 0);

    interface.index = 4711;
    interface.tx_queues = 1;
    let error = lab::inside(&lab.a, || wb_xdp::open(&interface, &sending()))
        .err()
        .unwrap();
    assert!(matches!(error, PortError::Gone { .. }), "{error}");
}

#[test]
fn a_driver_that_refuses_leaves_the_generic_hook() {
    let lab = lab_or_skip!("fallback");
    // Above this MTU, veth accepts only programs that support multi-buffer frames.
    ip(&format!("-n {} link set dev a0 mtu 3800", lab.a));
    ip(&format!("-n {} link set dev b0 mtu 3800", lab.b));
    let mut to = lab.open_b(&receiving()).unwrap();
    if to.facts.mode == "generic" {
        assert!(
            to.facts.warnings[0].contains("not native copy"),
            "{:?}",
            to.facts.warnings
        );
    }
    let mut from = lab.open_a(&sending()).unwrap();
    assert_eq!(from.queues[0].tx().frame_capacity(), 4096);
    let tx = from.queues[0].tx();
    submit(tx, 3500, FAR, &[5]);
    tx.flush().unwrap();
    assert_eq!(
        receive(&mut to, 1, |seen| assert_eq!(
            seen.bytes,
            frame(3500, FAR, 4000, 5)
        )),
        1
    );
}

#[test]
fn probing_changes_nothing() {
    let lab = lab_or_skip!("probe");
    let interface = lab::describe(&lab.a, "a0");
    let probe = lab::inside(&lab.a, || wb_xdp::probe(&interface));
    assert!(
        probe.send && probe.native && probe.generic && !probe.zero_copy,
        "{probe:?}"
    );
    assert!(
        probe.reason.contains("does not support zero copy"),
        "{probe:?}"
    );
    assert_eq!(attached_programs(&lab.a, "a0"), 0);
    let _port = lab.open_a(&receiving()).unwrap();
    let probe = lab::inside(&lab.a, || wb_xdp::probe(&interface));
    assert!(
        probe.attached_program.is_some() && probe.reason.contains("xdp off"),
        "{probe:?}"
    );
}

#[test]
fn a_refused_program_comes_with_the_words_of_the_driver() {
    let lab = lab_or_skip!("words");
    let interface = lab::describe(&lab.a, "a0");
    let attempt = || lab::inside(&lab.a, || wb_xdp::try_native(&interface));
    assert_eq!(attempt().unwrap(), Ok(()));
    assert_eq!(attached_programs(&lab.a, "a0"), 0);
    ip(&format!("-n {} link set b0 mtu 9000", lab.b));
    let words = attempt().unwrap().unwrap_err();
    assert!(words.to_lowercase().contains("mtu"), "{words}");
    let refused = lab.open_a(&XdpOptions {
        mode: Mode::NativeCopy,
        ..receiving()
    });
    let message = refused.err().unwrap().to_string();
    assert!(message.contains(&words), "{message}");
    assert_eq!(attached_programs(&lab.a, "a0"), 0);
}

fn attached_programs(node: &str, name: &str) -> usize {
    ip(&format!("-n {node} link show dev {name}"))
        .matches("prog/xdp")
        .count()
}

#[test]
fn a_link_that_is_down_keeps_frames() {
    let lab = lab_or_skip!("down");
    let judge = PacketSocket::new(&lab.b, &lab::describe(&lab.b, "b0"));
    let mut port = lab.open_a(&XdpOptions::default()).unwrap();
    let (tx, rx) = port.queues[0].split();
    ip(&format!("-n {} link set a0 down", lab.a));
    submit(tx, 60, FAR, &[1, 2, 3]);
    let error = tx.flush().unwrap_err();
    assert!(
        matches!(error, PortError::LinkDown { .. }) && error.is_transient(),
        "{error}"
    );
    assert_eq!((tx.in_flight(), tx.counters().sent_frames), (3, 0));
    assert_eq!(rx.receive(8, |_| {}).unwrap(), 0);
    assert!(!rx.wait(Duration::from_millis(1)).unwrap());
    ip(&format!("-n {} link set a0 up", lab.a));
    assert!(lab::eventually(|| carries(&lab.a, "a0")));
    tx.flush().unwrap();
    assert_eq!((tx.in_flight(), tx.counters().sent_frames), (0, 3));
    for number in 1..=3 {
        assert_eq!(judge.receive_soon(), Some(frame(60, FAR, 4000, number)));
    }
    lab::assert_adds_up(tx);
}

fn carries(node: &str, name: &str) -> bool {
    ip(&format!("-n {node} link show dev {name}")).contains("LOWER_UP")
}

#[test]
fn without_a_carrier_few_frames_are_lost_and_all_are_known() {
    let lab = lab_or_skip!("carrier");
    let judge = PacketSocket::new(&lab.b, &lab::describe(&lab.b, "b0"));
    let mut port = lab.open_a(&sending()).unwrap();
    let tx = port.queues[0].tx();
    ip(&format!("-n {} link set b0 down", lab.b));
    let numbers: Vec<u64> = (0..100).collect();
    submit(tx, 60, FAR, &numbers);
    let outcome = tx.flush();
    assert!(
        matches!(outcome, Err(PortError::LinkDown { .. })),
        "{outcome:?} {:?}",
        tx.counters()
    );
    let mut refused = Vec::new();
    tx.take_refused(|bytes| refused.push(number(bytes)));
    assert_eq!(refused, [0, 1]);
    assert_eq!(tx.in_flight(), 98);
    ip(&format!("-n {} link set b0 up", lab.b));
    assert!(lab::eventually(|| carries(&lab.a, "a0")));
    tx.flush().unwrap();
    assert_eq!(tx.counters().sent_frames, 98);
    assert_eq!(judge.receive_soon().map(|frame| number(&frame)), Some(2));
    // The same result with one frame per flush.
    ip(&format!("-n {} link set b0 down", lab.b));
    let mut one_by_one = |number| {
        submit(tx, 60, FAR, &[number]);
        tx.flush()
    };
    assert!(one_by_one(100).is_ok());
    for number in 101..104 {
        let outcome = one_by_one(number);
        assert!(
            matches!(outcome, Err(PortError::LinkDown { .. })),
            "{number}: {outcome:?}"
        );
    }
    assert_eq!(tx.counters().refused_frames, 6);
    lab::assert_adds_up(tx);
}

#[test]
fn a_device_that_vanishes_is_told_apart() {
    let lab = lab_or_skip!("gone");
    let mut port = lab.open_a(&XdpOptions::default()).unwrap();
    let (tx, rx) = port.queues[0].split();
    submit(tx, 60, FAR, &[1]);
    // An open socket keeps its namespace alive; the pair is removed with the namespace of the peer.
    ip(&format!("netns del {}", lab.b));
    let mut error = None;
    assert!(lab::eventually(|| {
        error = rx.wait(Duration::from_millis(10)).err();
        error.is_some()
    }));
    assert!(matches!(error, Some(PortError::Gone { .. })), "{error:?}");
    assert!(matches!(tx.flush(), Err(PortError::Gone { .. })));
    let polled = (0..5000).find_map(|_| rx.receive(8, |_| {}).err());
    assert!(matches!(polled, Some(PortError::Gone { .. })));
    let mut back = Vec::new();
    tx.withdraw(|bytes| back.push(number(bytes)));
    assert_eq!(back, [1]);
    lab::assert_adds_up(tx);
}

#[test]
fn frames_never_flushed_and_frames_held_by_a_link_can_be_withdrawn() {
    let lab = lab_or_skip!("withdraw");
    let judge = PacketSocket::new(&lab.b, &lab::describe(&lab.b, "b0"));
    let mut port = lab
        .open_a(&XdpOptions {
            tx_frames: 64,
            ..sending()
        })
        .unwrap();
    let tx = port.queues[0].tx();
    for round in 0..30 {
        let down = round % 2 == 1;
        submit(tx, 60, FAR, &[1, 2, 3, 4, 5]);
        if down {
            ip(&format!("-n {} link set a0 down", lab.a));
            assert!(tx.flush().is_err());
        }
        let mut back = Vec::new();
        tx.withdraw(|bytes| back.push(number(bytes)));
        assert_eq!(back, [1, 2, 3, 4, 5]);
        assert_eq!(tx.in_flight(), 0);
        if down {
            ip(&format!("-n {} link set a0 up", lab.a));
            assert!(lab::eventually(|| carries(&lab.a, "a0")));
        }
        submit(tx, 60, FAR, &[round + 100]);
        tx.flush().unwrap();
        assert_eq!(
            judge.receive_soon().map(|frame| number(&frame)),
            Some(round + 100)
        );
        lab::assert_adds_up(tx);
    }
    assert_eq!(judge.receive(), None);
}

#[test]
fn the_program_goes_when_its_process_is_killed() {
    let lab = lab_or_skip!("killed");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "veth::hold_until_killed",
            "--nocapture",
        ])
        .env("WB_XDP_HOLD", &lab.a)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = lines
        .map_while(Result::ok)
        .any(|line| line.contains("holding"));
    let attached = attached_programs(&lab.a, "a0");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(ready);
    assert_eq!(attached, 1);
    assert!(lab::eventually(|| attached_programs(&lab.a, "a0") == 0));
    drop(lab.open_a(&XdpOptions::default()).unwrap());
}

/// The process that the test above kills; without it the test does nothing.
#[test]
#[ignore = "run by the_program_goes_when_its_process_is_killed"]
fn hold_until_killed() {
    let Ok(node) = std::env::var("WB_XDP_HOLD") else {
        return;
    };
    let _port = lab::open(&node, "a0", &XdpOptions::default()).unwrap();
    println!("holding");
    wb_testing::disturb(2 * PATIENCE);
}

/// Gives the receiver at the far end an idle priority on this thread's CPU, so that one burst fills the ring between
/// the ends.
fn make_far_end_lazy(lab: &lab::Lab) {
    let switch = "echo 1 > /sys/class/net/b0/threaded";
    let status = Command::new("ip")
        .args(["netns", "exec", &lab.b, "sh", "-c", switch])
        .status();
    assert!(status.unwrap().success());
    let cpu = rustix::thread::sched_getcpu();
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).unwrap();
    let threads: Vec<String> = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|pid| {
            std::fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| name.starts_with("napi/b0-"))
        })
        .collect();
    assert!(!threads.is_empty(), "no thread serves the far end");
    for pid in threads {
        lab::run("taskset", &format!("-cp {cpu} {pid}"));
        lab::run("chrt", &format!("-i -p 0 {pid}"));
    }
}

#[test]
fn what_a_full_device_drops_is_refused_and_agrees_with_its_counters() {
    let lab = lab_or_skip!("refused");
    let mut to = lab.open_b(&receiving()).unwrap();
    let mut from = lab
        .open_a(&XdpOptions {
            tx_budget: 1024,
            ..sending()
        })
        .unwrap();
    make_far_end_lazy(&lab);
    let device = |counter| lab::device_counter(&lab.a, "a0", counter);
    let before = (device("tx_packets"), device("tx_dropped"));
    let other = PacketSocket::new(&lab.a, &lab::describe(&lab.a, "a0"));
    let tx = from.queues[0].tx();
    let mut refused = BTreeSet::new();
    let mut received = BTreeSet::new();
    let mut withdrawn = 0;
    let mut others = 0;
    let mut next = 0;
    // The far end may still run in the middle of a burst, but not every time.
    while refused.is_empty() && next < 50 * 900 {
        // The send buffer of one socket is used up by about the number of frames that the ring between the ends holds.
        // Frames of another socket fill the ring first.
        for _ in 0..200 {
            other.send(&[&FAR[..], &[2; 54]].concat());
            others += 1;
        }
        let numbers: Vec<u64> = (next..next + 900).collect();
        next += submit(tx, 60, FAR, &numbers) as u64;
        tx.flush().unwrap();
        tx.take_refused(|bytes| assert!(refused.insert(number(bytes))));
        tx.withdraw(|_| withdrawn += 1);
        let missing = tx.counters().sent_frames as usize - received.len();
        receive(&mut to, missing, |frame| {
            assert!(received.insert(number(frame.bytes)))
        });
    }
    let counters = tx.counters();
    assert!(
        counters.refused_frames > 0,
        "nothing was dropped: {counters:?}"
    );
    assert_eq!(counters.refused_frames, refused.len() as u64);
    assert_eq!(counters.sent_frames, received.len() as u64);
    assert_eq!(counters.submitted_frames, next);
    lab::assert_adds_up(tx);
    assert!(received.is_disjoint(&refused));
    assert_eq!((received.len() + refused.len()) as u64 + withdrawn, next);
    // veth counts a frame as sent when the far end takes it out of the ring.
    let sent = counters.sent_frames + others;
    assert!(lab::eventually(|| device("tx_packets") - before.0 == sent));
    assert_eq!(device("tx_dropped") - before.1, counters.refused_frames);
}

#[test]
fn frames_behind_a_full_device_can_be_withdrawn() {
    let lab = lab_or_skip!("full");
    // With a queueing discipline veth requests a retry instead of dropping (since 6.16).
    if !lab::run("tc", &format!("-n {} qdisc add dev a0 root pfifo", lab.a))
        .status
        .success()
    {
        wb_testing::skipped("no tc");
        return;
    }
    let mut to = lab.open_b(&receiving()).unwrap();
    let mut from = lab
        .open_a(&XdpOptions {
            tx_budget: 1024,
            ..sending()
        })
        .unwrap();
    make_far_end_lazy(&lab);
    let tx = from.queues[0].tx();
    let mut next = 0;
    let mut withdrawn = BTreeSet::new();
    let mut received = BTreeSet::new();
    for _ in 0..10 {
        let numbers: Vec<u64> = (next..next + 700).collect();
        next += submit(tx, 60, FAR, &numbers) as u64;
        tx.flush().unwrap();
        tx.withdraw(|bytes| {
            assert!(withdrawn.insert(number(bytes)));
        });
        assert_eq!(tx.in_flight(), 0);
        lab::assert_adds_up(tx);
        let missing = tx.counters().sent_frames as usize - received.len();
        receive(&mut to, missing, |frame| {
            assert!(received.insert(number(frame.bytes)));
        });
    }
    let counters = tx.counters();
    if counters.refused_frames > 0 {
        wb_testing::skipped("this kernel's veth drops although it has a queueing discipline");
        return;
    }
    assert!(
        counters.full_events > 0 && !withdrawn.is_empty(),
        "{counters:?}"
    );
    assert_eq!(counters.sent_frames, received.len() as u64);
    assert!(received.is_disjoint(&withdrawn));
    assert_eq!(received.len() + withdrawn.len(), next as usize);
}
