//! Tests with a veth pair between two namespaces. They need root, possibly of a user namespace (`unshare -Urnm`);
//! otherwise they print the reason and are skipped.

mod common;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::*;
use wb_packet::{
    ControlKind, ControlSocket, Fanout, PacketOptions, PortSteering, QdiscDrops, RxMode, open,
};
use wb_port::{PortError, RxQueue, StampSource, StrippedVlan, TxQueue, conformance};

const BOTH_MODES: [RxMode; 2] = [RxMode::Throughput, RxMode::LowLatency];

fn receiving(rx_mode: RxMode) -> PacketOptions {
    PacketOptions {
        rx_mode,
        ..PacketOptions::default()
    }
}

fn wall_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_nanos() as u64
}

#[test]
fn the_promises_of_a_port_are_kept() {
    let Some(pair) = Pair::up() else { return };
    let promises = conformance::Options {
        destination: MAC_B,
        source: MAC_A,
        ..conformance::Options::default()
    };
    for mode in BOTH_MODES {
        for qdisc_bypass in [true, false] {
            // A small ring and few slots, so that both wrap around many times.
            let options = PacketOptions {
                qdisc_bypass,
                rx_ring_bytes: 1 << 20,
                tx_slots: 48,
                promiscuous: true,
                ..receiving(mode)
            };
            let (mut a, mut b) = (only(pair.open_a(&options)), only(pair.open_b(&options)));
            conformance::check(&mut a, &mut b, &promises);
        }
    }
}

#[test]
fn every_frame_arrives_whole_and_in_order() {
    let Some(pair) = Pair::up() else { return };
    for mode in BOTH_MODES {
        let (mut a, mut b) = pair.sender_and_receiver(receiving(mode));
        let frames: Vec<_> = (0..20_000)
            .map(|i| frame(i, 60 + (i as usize * 7) % 1455))
            .collect();
        let before = wall_ns();
        let mut seen = Vec::new();
        for part in frames.chunks(500) {
            send_all(tx(&mut a), part);
            // Not a divisor of the frames in a block, so that reading stops in the middle of it.
            seen.extend(receive_n(rx(&mut b), part.len(), 17));
        }
        let after = wall_ns();
        assert_eq!(seen.len(), frames.len());
        let mut last = before;
        for (seen, sent) in seen.iter().zip(&frames) {
            assert_eq!(&seen.bytes, sent);
            assert_eq!(seen.original_len as usize, sent.len());
            assert_eq!(seen.stamp_source, StampSource::KernelTpacket);
            assert_eq!(seen.vlan, None);
            assert!((last..=after).contains(&seen.stamp_ns));
            last = seen.stamp_ns;
        }
        let sent = tx(&mut a).counters();
        assert_eq!(sent.sent_frames, 20_000);
        assert_eq!(
            sent.sent_octets,
            frames.iter().map(|f| f.len() as u64).sum::<u64>()
        );
        assert_accounted(tx(&mut a));
        let received = rx(&mut b).counters();
        assert_eq!(
            (received.received_frames, received.dropped_frames),
            (20_000, 0)
        );
    }
}

#[test]
fn both_halves_work_together_and_hear_nothing_of_their_own() {
    let Some(pair) = Pair::up() else { return };
    for qdisc_bypass in [true, false] {
        let options = PacketOptions {
            qdisc_bypass,
            ..PacketOptions::default()
        };
        let (mut a, mut b) = (only(pair.open_a(&options)), only(pair.open_b(&options)));
        let frames: Vec<_> = (0..100).map(|i| frame(i, 100)).collect();
        send_all(tx(&mut a), &frames);
        send_all(tx(&mut b), &frames[..50]);
        assert_eq!(drain(rx(&mut b)).len(), 100);
        assert_eq!(drain(rx(&mut a)).len(), 50);
    }
}

#[test]
fn outgoing_frames_are_received_when_asked_for() {
    let Some(pair) = Pair::up() else { return };
    let options = PacketOptions {
        qdisc_bypass: false,
        ignore_outgoing: false,
        ..PacketOptions::default()
    };
    let mut a = only(pair.open_a(&options));
    send_all(tx(&mut a), &[frame(1, 60)]);
    assert_eq!(drain(rx(&mut a)).len(), 1);
}

#[test]
fn a_receiver_does_not_hear_a_sender_beside_it() {
    let Some(pair) = Pair::up() else { return };
    let mut sender = only(pair.open_a(&PacketOptions {
        rx: false,
        // With the bypass, no tap would see the frames.
        qdisc_bypass: false,
        ..PacketOptions::default()
    }));
    let mut far = only(pair.open_b(&PacketOptions::default()));
    for queues in [1, 2] {
        for mode in BOTH_MODES {
            let options = |ignore_outgoing| PacketOptions {
                tx: false,
                queues,
                ignore_outgoing,
                rx_ring_bytes: 4 << 20,
                ..receiving(mode)
            };
            let mut deaf = pair.open_a(&options(true));
            let mut hearing = pair.open_a(&options(false));
            let frames: Vec<_> = (0..40).map(|i| frame(i, 60)).collect();
            send_all(tx(&mut sender), &frames);
            send_all(tx(&mut far), &frames[..7]);
            let heard = |port: &mut wb_packet::PacketPort| -> usize {
                let queues = port.queues.iter_mut();
                queues.map(|queue| drain(rx(queue)).len()).sum()
            };
            assert_eq!(heard(&mut hearing), 47, "{queues} queues, {mode:?}");
            assert_eq!(heard(&mut deaf), 7, "{queues} queues, {mode:?}");
        }
    }
}

#[test]
fn slots_keep_their_content_and_cookie() {
    let Some(pair) = Pair::up() else { return };
    let (mut a, mut b) = pair.sender_and_receiver(PacketOptions::default());
    let sender = tx(&mut a);
    assert_eq!(sender.lend(64), 64);
    for i in 0..64 {
        let slot = sender.slot(i);
        assert_eq!(*slot.cookie, 0);
        let bytes = frame(i as u32, 200);
        slot.bytes[..200].copy_from_slice(&bytes);
        *slot.len = 200;
        *slot.cookie = 77;
    }
    sender.submit(64);
    sender.flush().unwrap();
    assert_eq!(sender.in_flight(), 0);
    assert_eq!(sender.lend(64), 64);
    for i in 0..64 {
        let slot = sender.slot(i);
        assert_eq!((*slot.cookie, *slot.len), (77, 200));
        assert_eq!(slot.bytes[..200], frame(i as u32, 200));
        slot.bytes[14..18].copy_from_slice(&(1000 + i as u32).to_be_bytes());
    }
    sender.submit(64);
    sender.flush().unwrap();
    let seen = receive_n(rx(&mut b), 128, 256);
    let patched = &seen[64];
    assert_eq!(number(&patched.bytes), 1000);
    assert_eq!(patched.bytes[18..], frame(0, 200)[18..]);
}

#[test]
fn frames_that_are_too_long_or_too_short_are_refused_and_the_others_sent() {
    let Some(pair) = Pair::up() else { return };
    let options = PacketOptions {
        rx: false,
        max_frame_len: Some(9000),
        ..PacketOptions::default()
    };
    let mut a = only(pair.open_a(&options));
    let mut b = only(pair.open_b(&PacketOptions::default()));
    let sender = tx(&mut a);
    assert!(sender.frame_capacity() >= 9000);
    let runt = vec![0x02; 10];
    let frames = [
        frame(1, 60),
        frame(2, 4000),
        frame(3, 60),
        runt.clone(),
        frame(4, 1514),
    ];
    assert_eq!(submit(sender, &frames), 5);
    sender.flush().unwrap();
    let c = sender.counters();
    assert_eq!(
        (c.sent_frames, c.refused_frames, sender.in_flight()),
        (3, 2, 0)
    );
    let mut refused = Vec::new();
    sender.take_refused(|bytes| refused.push(bytes.to_vec()));
    assert_eq!(refused, [frame(2, 4000), runt]);
    sender.take_refused(|_| panic!("handed out twice"));
    assert_accounted(sender);
    let seen = receive_n(rx(&mut b), 3, 8);
    assert_eq!(
        seen.iter().map(|s| number(&s.bytes)).collect::<Vec<_>>(),
        [1, 3, 4]
    );
}

#[test]
fn a_full_device_keeps_frames_in_flight_until_they_are_sent_or_withdrawn() {
    let Some(pair) = Pair::up() else { return };
    // Room for about ten frames, and then one frame per tens of milliseconds.
    tc(
        &pair.a,
        "qdisc add dev a0 root tbf rate 100kbit burst 2000 limit 4000",
    );
    let options = PacketOptions {
        rx: false,
        qdisc_bypass: false,
        ..PacketOptions::default()
    };
    let mut a = only(pair.open_a(&options));
    let mut b = only(pair.open_b(&PacketOptions::default()));
    let sender = tx(&mut a);
    let frames: Vec<_> = (0..64).map(|i| frame(i, 500)).collect();
    assert_eq!(submit(sender, &frames), 64);
    sender.flush().unwrap();
    let first = sender.counters();
    assert!((1..64).contains(&first.sent_frames), "{first:?}");
    assert!(first.full_events >= 1);
    assert_accounted(sender);
    until("the shaper lets no more through", || {
        sender.flush().unwrap();
        (sender.counters().sent_frames > first.sent_frames).then_some(())
    });
    let mut withdrawn = Vec::new();
    sender.withdraw(|bytes| withdrawn.push(number(bytes)));
    let c = sender.counters();
    assert_eq!(sender.in_flight(), 0);
    assert_eq!(c.sent_frames + c.withdrawn_frames, 64);
    assert_eq!(withdrawn, (c.sent_frames as u32..64).collect::<Vec<_>>());
    // Each frame that counts as sent arrives once, in order; no other frame arrives.
    let seen = receive_n(rx(&mut b), c.sent_frames as usize, 64);
    let numbers: Vec<_> = seen.iter().map(|s| number(&s.bytes)).collect();
    assert_eq!(numbers, (0..c.sent_frames as u32).collect::<Vec<_>>());
}

#[test]
fn what_a_qdisc_drops_is_refused_when_that_is_asked_for() {
    let Some(pair) = Pair::up() else { return };
    tc(
        &pair.a,
        "qdisc add dev a0 root tbf rate 100kbit burst 2000 limit 4000",
    );
    let (mut a, mut b) = (
        only(pair.open_a(&PacketOptions {
            rx: false,
            qdisc_bypass: false,
            qdisc_drops: QdiscDrops::Refuse,
            ..PacketOptions::default()
        })),
        only(pair.open_b(&PacketOptions::default())),
    );
    let sender = tx(&mut a);
    let frames: Vec<_> = (0..64).map(|i| frame(i, 500)).collect();
    assert_eq!(submit(sender, &frames), 64);
    sender.flush().unwrap();
    let mut refused = Vec::new();
    sender.take_refused(|bytes| refused.push(number(bytes)));
    let c = sender.counters();
    assert_eq!(sender.in_flight(), 0);
    assert_accounted(sender);
    assert!(c.sent_frames > 0 && c.refused_frames > 0, "{c:?}");
    assert_eq!(c.refused_frames, refused.len() as u64);
    let (_, dropped) = sent_and_dropped(&tc(&pair.a, "-s qdisc show dev a0"));
    assert_eq!(dropped, c.refused_frames, "{c:?}");
    // Frames that count as sent arrive, and refused ones do not.
    let seen = receive_n(rx(&mut b), c.sent_frames as usize, 64);
    let mut all: Vec<u32> = seen.iter().map(|s| number(&s.bytes)).collect();
    assert!(drain(rx(&mut b)).is_empty());
    all.extend(refused);
    all.sort_unstable();
    assert_eq!(all, (0..64).collect::<Vec<_>>());
}

#[test]
fn frames_pass_the_qdisc_in_the_class_of_their_priority_unless_bypassing() {
    let Some(pair) = Pair::up() else { return };
    // For this discipline a priority is the handle of a class.
    for words in [
        "qdisc add dev a0 root handle 1: htb default 20",
        "class add dev a0 parent 1: classid 1:10 htb rate 1gbit",
        "class add dev a0 parent 1: classid 1:20 htb rate 1gbit",
    ] {
        tc(&pair.a, words);
    }
    let mut b = only(pair.open_b(&PacketOptions::default()));
    let mut passed = |qdisc_bypass, priority, frames: u32| {
        let classes = || {
            ["1:10", "1:20"].map(|class| {
                let text = tc(&pair.a, "-s class show dev a0");
                let at = text
                    .find(&format!("class htb {class} "))
                    .expect("the class");
                sent_and_dropped(&text[at..]).0
            })
        };
        let before = classes();
        let mut a = only(pair.open_a(&PacketOptions {
            rx: false,
            qdisc_bypass,
            priority,
            ..PacketOptions::default()
        }));
        let frames: Vec<_> = (0..frames).map(|i| frame(i, 60)).collect();
        send_all(tx(&mut a), &frames);
        receive_n(rx(&mut b), frames.len(), 64);
        let after = classes();
        [after[0] - before[0], after[1] - before[1]]
    };
    assert_eq!(passed(false, 0x1_0010, 30), [30, 0]);
    assert_eq!(passed(false, 0x1_0020, 20), [0, 20]);
    assert_eq!(passed(false, 0, 10), [0, 10]);
    assert_eq!(passed(true, 0x1_0010, 10), [0, 0]);
    assert_eq!(passed(PacketOptions::default().qdisc_bypass, 0, 10), [0, 0]);
}

#[test]
fn a_link_that_goes_down_holds_frames_until_it_is_up_again() {
    let Some(pair) = Pair::up() else { return };
    for qdisc_bypass in [true, false] {
        let options = PacketOptions {
            rx: false,
            qdisc_bypass,
            ..PacketOptions::default()
        };
        let mut a = only(pair.open_a(&options));
        let mut b = only(pair.open_b(&PacketOptions::default()));
        let sender = tx(&mut a);
        send_all(sender, &[frame(0, 60)]);

        ip(&["-n", &pair.a, "link", "set", "a0", "down"]);
        assert_eq!(submit(sender, &[frame(1, 60), frame(2, 60)]), 2);
        let down = sender.flush().unwrap_err();
        assert!(matches!(down, PortError::LinkDown { .. }), "{down}");
        assert!(down.is_transient());
        assert_eq!(sender.in_flight(), 2);
        ip(&["-n", &pair.a, "link", "set", "a0", "up"]);
        until("the link does not come up", || {
            sender.flush().ok().filter(|()| sender.in_flight() == 0)
        });

        // The peer goes down: `a0` loses its carrier and the receiver's socket gets an error.
        ip(&["-n", &pair.b, "link", "set", "b0", "down"]);
        assert_eq!(submit(sender, &[frame(3, 60)]), 1);
        until("the lost carrier is not noticed", || {
            matches!(sender.flush(), Err(PortError::LinkDown { .. })).then_some(())
        });
        assert_eq!(sender.in_flight(), 1);
        let seen = drain(rx(&mut b));
        assert_eq!(
            seen.iter().map(|s| number(&s.bytes)).collect::<Vec<_>>(),
            [0, 1, 2]
        );
        assert!(!rx(&mut b).wait(Duration::from_millis(1)).unwrap());
        ip(&["-n", &pair.b, "link", "set", "b0", "up"]);
        until("the carrier does not come back", || {
            sender.flush().ok().filter(|()| sender.in_flight() == 0)
        });
        assert_eq!(number(&receive_n(rx(&mut b), 1, 8)[0].bytes), 3);
        assert_accounted(sender);
    }
}

#[test]
fn a_deleted_interface_is_gone_in_both_halves() {
    let Some(pair) = Pair::up() else { return };
    for mode in BOTH_MODES {
        let Some(pair) = Pair::up() else { return };
        let mut a = only(pair.open_a(&PacketOptions::default()));
        let mut waiting = only(pair.open_b(&receiving(mode)));
        let mut spinning = only(pair.open_b(&receiving(mode)));
        send_all(tx(&mut a), &[frame(1, 60), frame(2, 60)]);
        ip(&["-n", &pair.a, "link", "del", "a0"]);
        submit(tx(&mut a), &[frame(3, 60)]);
        until("the sender does not notice", || {
            is_gone(tx(&mut a).flush()).then_some(())
        });
        assert_eq!(tx(&mut a).in_flight(), 1);
        let mut left = 0;
        tx(&mut a).withdraw(|bytes| left += number(bytes));
        assert_eq!(left, 3);

        // Frames that arrived before the removal are delivered before the error.
        let mut seen = 0;
        until("a waiting receiver does not notice", || {
            let receiver = rx(&mut waiting);
            let gone = is_gone(receiver.wait(Duration::from_millis(5)));
            gone.then_some(())
                .or_else(|| is_gone(receiver.receive(8, |_| seen += 1)).then_some(()))
        });
        assert_eq!(seen, 2);
        let mut seen = 0;
        until("a spinning receiver does not notice", || {
            (0..1000)
                .any(|_| is_gone(rx(&mut spinning).receive(8, |_| seen += 1)))
                .then_some(())
        });
        assert_eq!(seen, 2);
    }
    drop(pair);
}

#[test]
fn an_interface_deleted_while_down_is_gone_too() {
    let Some(pair) = Pair::up() else { return };
    let mut b = only(pair.open_b(&PacketOptions::default()));
    ip(&["-n", &pair.b, "link", "set", "b0", "down"]);
    assert_eq!(drain(rx(&mut b)).len(), 0);
    ip(&["-n", &pair.b, "link", "del", "b0"]);
    until("the receiver does not notice", || {
        is_gone(rx(&mut b).wait(Duration::from_millis(5))).then_some(())
    });
}

#[test]
fn the_end_of_the_peers_namespace_is_the_end_of_the_port() {
    let Some(pair) = Pair::up() else { return };
    let mut a = only(pair.open_a(&PacketOptions::default()));
    // The namespace of the port exists without a name as long as the port is open.
    ip(&["netns", "del", &pair.a]);
    send_all(tx(&mut a), &[frame(1, 60)]);
    // The kernel removes the other namespace some time later.
    ip(&["netns", "del", &pair.b]);
    until("the sender does not notice", || {
        submit(tx(&mut a), &[frame(2, 60)]);
        is_gone(tx(&mut a).flush()).then_some(())
    });
    until("the receiver does not notice", || {
        is_gone(rx(&mut a).wait(Duration::from_millis(5))).then_some(())
    });
}

#[test]
fn a_filter_passes_only_what_it_names_and_no_frame_from_before() {
    let Some(pair) = Pair::up() else { return };
    // Odd numbers only: the last byte of the number at offset 17.
    let odd = vec![
        (0x30, 0, 0, 17),
        (0x45, 0, 1, 1),
        (0x06, 0, 0, 262_144),
        (0x06, 0, 0, 0),
    ];
    for mode in BOTH_MODES {
        let options = PacketOptions {
            filter: Some(odd.clone()),
            snap_len: 64,
            ..receiving(mode)
        };
        let (mut a, mut b) = pair.sender_and_receiver(options);
        let frames: Vec<_> = (0..100).map(|i| frame(i, 300)).collect();
        send_all(tx(&mut a), &frames);
        let seen = drain(rx(&mut b));
        let numbers: Vec<_> = seen.iter().map(|s| number(&s.bytes)).collect();
        assert_eq!(numbers, (0..100).filter(|i| i % 2 == 1).collect::<Vec<_>>());
        assert!(
            seen.iter()
                .all(|s| s.bytes.len() == 64 && s.original_len == 300)
        );
        assert_eq!(rx(&mut b).counters().dropped_frames, 0);
    }
    let wrong = PacketOptions {
        filter: Some(vec![(0xffff, 0, 0, 0)]),
        ..PacketOptions::default()
    };
    let refused = within(&pair.b, move || {
        open(&interface("b0"), &wrong).err().unwrap()
    });
    assert!(matches!(refused, PortError::Input { .. }), "{refused}");
}

#[test]
fn a_stripped_vlan_tag_is_told_beside_the_bytes() {
    let Some(pair) = Pair::up() else { return };
    for mode in BOTH_MODES {
        let (mut a, mut b) = pair.sender_and_receiver(receiving(mode));
        for (tpid, tci) in [(0x8100u16, 0x6064u16), (0x88a8, 7)] {
            let plain = frame(5, 200);
            let mut tagged = plain[..12].to_vec();
            tagged.extend(tpid.to_be_bytes());
            tagged.extend(tci.to_be_bytes());
            tagged.extend(&plain[12..]);
            send_all(tx(&mut a), &[tagged, plain.clone()]);
            let seen = receive_n(rx(&mut b), 2, 8);
            assert_eq!(seen[0].vlan, Some(StrippedVlan { tpid, tci }));
            assert_eq!(seen[0].bytes, plain);
            assert_eq!(seen[0].original_len, 200);
            assert_eq!(seen[1].vlan, None);
        }
    }
}

#[test]
fn what_a_full_ring_loses_is_counted() {
    let Some(pair) = Pair::up() else { return };
    for mode in BOTH_MODES {
        let options = PacketOptions {
            rx_ring_bytes: 64 << 10,
            ..receiving(mode)
        };
        let (mut a, mut b) = pair.sender_and_receiver(options);
        let frames: Vec<_> = (0..3000).map(|i| frame(i, 400)).collect();
        send_all(tx(&mut a), &frames);
        let received = drain(rx(&mut b)).len() as u64;
        let counters = rx(&mut b).counters();
        assert_eq!(counters.received_frames, received);
        assert!(counters.dropped_frames > 0);
        assert_eq!(received + counters.dropped_frames, 3000);
        // The kernel's counter is reset by a read; ours is not.
        assert_eq!(rx(&mut b).counters(), counters);
        send_all(tx(&mut a), &frames[..10]);
        assert_eq!(receive_n(rx(&mut b), 10, 64).len(), 10);
    }
}

#[test]
fn fanout_shares_frames_out_and_loses_none() {
    let Some(pair) = Pair::with(&["numrxqueues", "2", "numtxqueues", "2"]) else {
        return;
    };
    let mut a = pair.open_a(&PacketOptions {
        queues: 2,
        rx: false,
        ..PacketOptions::default()
    });
    assert_eq!((a.queues.len(), a.facts.queues), (2, 2));
    for (fanout, mode) in [
        (Fanout::RoundRobin, RxMode::Throughput),
        (Fanout::Hash, RxMode::LowLatency),
    ] {
        let options = PacketOptions {
            queues: 2,
            fanout,
            // With the bypass, no tap would see our frames.
            qdisc_bypass: false,
            rx_ring_bytes: 4 << 20,
            ..receiving(mode)
        };
        let mut b = pair.open_b(&options);
        let frames: Vec<_> = (0..1000).map(|i| frame(i, 60)).collect();
        send_all(tx(&mut a.queues[0]), &frames[..500]);
        send_all(tx(&mut a.queues[1]), &frames[500..]);
        let shares: Vec<Vec<u32>> = b
            .queues
            .iter_mut()
            .map(|queue| drain(rx(queue)).iter().map(|s| number(&s.bytes)).collect())
            .collect();
        if fanout == Fanout::RoundRobin {
            assert_eq!((shares[0].len(), shares[1].len()), (500, 500));
        }
        let mut all = shares.concat();
        all.sort_unstable();
        assert_eq!(all, (0..1000).collect::<Vec<_>>());
        // The group ignores frames that this host sends.
        send_all(tx(&mut b.queues[0]), &frames[..10]);
        assert!(b.queues.iter_mut().all(|queue| drain(rx(queue)).is_empty()));
    }
}

#[test]
fn fanout_by_cpu_gives_each_queue_the_frames_of_its_cpu() {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let cpus: Vec<usize> = (0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|&cpu| allowed.is_set(cpu))
        .collect();
    if cpus.len() < 2 {
        wb_testing::skipped("needs two CPUs");
        return;
    }
    let Some(pair) = Pair::up() else { return };
    let mut a = only(pair.open_a(&PacketOptions::default()));
    for queues in [2, 3] {
        let mut b = pair.open_b(&PacketOptions {
            queues,
            tx: false,
            fanout: Fanout::Cpu,
            rx_ring_bytes: 4 << 20,
            ..PacketOptions::default()
        });
        for &cpu in cpus.iter().take(4) {
            let frames: Vec<_> = (0..200).map(|i| frame(i, 60)).collect();
            // A veth receives on the CPU that sends.
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut only_this = rustix::thread::CpuSet::new();
                    only_this.set(cpu);
                    rustix::thread::sched_setaffinity(None, &only_this).unwrap();
                    send_all(tx(&mut a), &frames);
                });
            });
            for (i, queue) in b.queues.iter_mut().enumerate() {
                let wanted = if i == cpu % queues as usize { 200 } else { 0 };
                assert_eq!(drain(rx(queue)).len(), wanted, "CPU {cpu}, queue {i}");
            }
        }
    }
}

/// IP packet between two ports; with `tunnel` inside an IPv4 VXLAN tunnel.
fn packet(v6: bool, protocol: u8, ports: (u16, u16), tunnel: bool) -> Vec<u8> {
    let ethernet = |v6: bool| {
        let mut bytes: Vec<u8> = [common::MAC_B, common::MAC_A].concat();
        bytes.extend(if v6 { [0x86, 0xdd] } else { [8, 0] });
        bytes
    };
    let ip = |v6: bool, protocol: u8| match v6 {
        true => {
            let mut ip = vec![0; 40];
            (ip[0], ip[6]) = (0x60, protocol);
            ip
        }
        false => {
            let mut ip = vec![0; 20];
            (ip[0], ip[9]) = (0x45, protocol);
            ip
        }
    };
    let mut bytes = Vec::new();
    if tunnel {
        bytes.extend([ethernet(false), ip(false, 17)].concat());
        bytes.extend([0x80, 1, 0x12, 0xb5, 0, 0, 0, 0]);
        bytes.extend([8, 0, 0, 0, 0, 0, 1, 0]);
    }
    bytes.extend([ethernet(v6), ip(v6, protocol)].concat());
    bytes.extend([ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat());
    bytes.resize(bytes.len() + 40, 0);
    bytes
}

#[test]
fn fanout_by_port_gives_a_queue_its_ports() {
    let Some(pair) = Pair::up() else { return };
    let mut a = only(pair.open_a(&PacketOptions::default()));
    let queues = 3;
    for which in [PortSteering::Source, PortSteering::Destination] {
        let mut b = pair.open_b(&PacketOptions {
            queues,
            tx: false,
            fanout: Fanout::Port(which),
            rx_ring_bytes: 4 << 20,
            ..PacketOptions::default()
        });
        for (v6, protocol, tunnel) in [
            (false, 6, false),
            (false, 17, false),
            (true, 6, false),
            (true, 17, false),
            (false, 6, true),
            (true, 17, true),
            (false, 1, false),
            (true, 58, false),
        ] {
            for client in 1024..1027_u16 {
                let ports = match which {
                    PortSteering::Source => (client, 80),
                    PortSteering::Destination => (80, client),
                };
                send_all(tx(&mut a), &[packet(v6, protocol, ports, tunnel)]);
                let told = matches!(protocol, 6 | 17);
                let wanted = if told { usize::from(client % 3) } else { 0 };
                for (i, queue) in b.queues.iter_mut().enumerate() {
                    let n = drain(rx(queue)).len();
                    assert_eq!(
                        n,
                        usize::from(i == wanted),
                        "{which:?} {v6} {protocol} {tunnel} {client} {i}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_half_that_was_not_opened_does_nothing() {
    let Some(pair) = Pair::up() else { return };
    let (mut a, mut b) = pair.sender_and_receiver(PacketOptions::default());
    assert_eq!(rx(&mut a).receive(8, |_| ()).unwrap(), 0);
    assert!(!rx(&mut a).wait(Duration::from_millis(1)).unwrap());
    let sender = tx(&mut b);
    assert_eq!(sender.lend(8), 0);
    sender.submit(0);
    sender.flush().unwrap();
    assert_accounted(sender);
}

#[test]
fn an_open_port_tells_what_it_is() {
    let Some(pair) = Pair::up() else { return };
    let facts = pair.open_a(&PacketOptions::default()).facts;
    assert_eq!(facts.locator, "packet:a0");
    assert_eq!(facts.mode, "tpacket-v3 + sendmmsg, qdisc bypass");
    assert_eq!(
        (facts.driver, facts.mac, facts.mtu),
        ("packet", MAC_A, 1500)
    );
    assert_eq!(facts.stamp_source, StampSource::KernelTpacket);
    assert_eq!(facts.warnings, Vec::<String>::new());
    // A veth has no hardware timestamps.
    let options = PacketOptions {
        hw_stamps: true,
        promiscuous: true,
        ..PacketOptions::default()
    };
    let facts = pair.open_a(&options).facts;
    assert_eq!(
        (facts.stamp_source, facts.warnings.len()),
        (StampSource::KernelTpacket, 1)
    );
}

#[test]
fn what_cannot_be_opened_says_why() {
    let Some(pair) = Pair::up() else { return };
    let elsewhere = within(&pair.a, || interface("a0"));
    let error = |ns: &str, interface: wb_port::Interface, options: PacketOptions| {
        within(ns, move || {
            open(&interface, &options)
                .err()
                .expect("must fail")
                .to_string()
        })
    };
    let index = elsewhere.index;
    assert_eq!(
        error(&pair.b, elsewhere.clone(), PacketOptions::default()),
        format!("a0: no interface a0 with index {index} in this network namespace")
    );
    assert_eq!(
        error(
            &pair.a,
            elsewhere.clone(),
            PacketOptions {
                queues: 0,
                ..PacketOptions::default()
            }
        ),
        "a0: queues: must be at least 1, got 0"
    );
    ip(&["-n", &pair.a, "link", "set", "a0", "down"]);
    assert_eq!(
        error(&pair.a, elsewhere.clone(), PacketOptions::default()),
        "a0: interface is down; try `ip link set dev a0 up`"
    );
    ip(&["-n", &pair.b, "link", "set", "b0", "down"]);
    ip(&["-n", &pair.a, "link", "set", "a0", "up"]);
    let facts = pair.open_a(&PacketOptions::default()).facts;
    assert_eq!(
        facts.warnings,
        ["no carrier: nothing is sent or received until the link is up"]
    );
}

#[test]
fn a_control_socket_hears_neighbours_and_restores_their_tag() {
    let Some(pair) = Pair::up() else { return };
    let mut a = only(pair.open_a(&PacketOptions::default()));
    let mut control = within(&pair.b, || {
        ControlSocket::open(&interface("b0"), ControlKind::Presence)
    })
    .unwrap();
    let of_type = |ethertype: u16, vlan: &[u8]| {
        let mut bytes = frame(9, 60);
        bytes[12..14].copy_from_slice(&ethertype.to_be_bytes());
        bytes.splice(12..12, vlan.iter().copied());
        bytes
    };
    let arp = of_type(0x0806, &[]);
    let tagged_arp = of_type(0x0806, &[0x81, 0, 0x20, 5]);
    let foreign = frame(1, 60);
    send_all(
        tx(&mut a),
        &[foreign.clone(), arp.clone(), foreign, tagged_arp.clone()],
    );
    let mut seen: Vec<Seen> = Vec::new();
    until("the control socket hears nothing", || {
        control
            .receive(Duration::from_millis(20), |frame| seen.push(frame.into()))
            .unwrap();
        (seen.len() >= 2).then_some(())
    });
    assert_eq!(
        seen.iter().map(|s| &s.bytes).collect::<Vec<_>>(),
        [&arp, &tagged_arp]
    );
    assert!(
        seen.iter()
            .all(|s| s.vlan.is_none() && s.original_len as usize == s.bytes.len())
    );
    assert_eq!(seen[0].stamp_source, StampSource::UserSpace);

    assert!(control.send(&arp).unwrap());
    assert_eq!(receive_n(rx(&mut a), 1, 8)[0].bytes, arp);
    assert_eq!(
        control.receive(Duration::from_millis(10), |_| ()).unwrap(),
        0
    );

    ip(&["-n", &pair.b, "link", "set", "b0", "down"]);
    assert!(matches!(
        control.send(&arp),
        Err(PortError::LinkDown { .. })
    ));
    ip(&["-n", &pair.b, "link", "del", "b0"]);
    until("the control socket does not notice", || {
        is_gone(control.receive(Duration::from_millis(5), |_| ())).then_some(())
    });
    assert!(is_gone(control.send(&arp)));
}
