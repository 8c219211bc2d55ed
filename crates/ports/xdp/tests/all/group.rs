//! Several queues per worker, and workers that pass frames on, on a real veth pair.

use std::time::Duration;

use crate::lab::{self, FAR_PATIENCE, Lab, frame, is_ours, number, sending};
use wb_port::{Interface, PortSteering, QueuePair, RxQueue, TxQueue, conformance};
use wb_xdp::{XdpGroup, XdpOptions, XdpPort, XdpQueue};

const TO: [u8; 6] = [2, 0, 0, 0, 0, 7];

/// Sets the number of queues of both ends; prints a message and returns false if that is not possible.
fn widen(lab: &Lab, queues: u32) -> bool {
    [(&lab.a, "a0"), (&lab.b, "b0")]
        .into_iter()
        .all(|(node, name)| {
            let set = format!("netns exec {node} ethtool -L {name} rx {queues} tx {queues}");
            let done = lab::run("ip", &set).status.success();
            if !done {
                wb_testing::skipped("veth has fewer queues on a machine with fewer CPUs");
            }
            done
        })
}

fn open(node: &str, name: &str, options: &XdpOptions) -> (XdpPort, Vec<XdpQueue>) {
    let interface = Interface {
        tx_queues: options.queues,
        rx_queues: options.queues,
        ..lab::describe(node, name)
    };
    let mut port = lab::inside(node, || wb_xdp::open(&interface, options)).unwrap();
    let queues = std::mem::take(&mut port.queues);
    (port, queues)
}

fn two_queues() -> XdpOptions {
    XdpOptions {
        queues: 2,
        tx_queues: Some(1),
        ..XdpOptions::default()
    }
}

/// Sends a frame with this destination port and number.
fn send(queue: &mut XdpQueue, port: u16, number: u64) {
    let tx = queue.tx();
    assert_eq!(tx.lend(1), 1);
    let slot = tx.slot(0);
    slot.bytes[..60].copy_from_slice(&frame(60, TO, port, number));
    *slot.len = 60;
    tx.submit(1);
    tx.flush().unwrap();
}

/// Receives test frames until `enough` have arrived.
fn take(group: &mut XdpGroup, enough: usize) -> Vec<u64> {
    let mut numbers = Vec::new();
    let came = lab::eventually(|| {
        let rx = group.rx();
        rx.receive(64, |frame| {
            if is_ours(frame.bytes) {
                numbers.push(number(frame.bytes));
            }
        })
        .unwrap();
        numbers.len() >= enough
    });
    assert!(came, "{numbers:?}, of {enough}");
    numbers
}

#[test]
fn a_group_keeps_what_the_traits_promise() {
    let lab = lab_or_skip!("conform");
    if !widen(&lab, 2) {
        return;
    }
    let promises = conformance::Options::default();
    let (_a, a) = open(&lab.a, "a0", &two_queues());
    let (_b, b) = open(&lab.b, "b0", &two_queues());
    let mut a = wb_xdp::gather(a, 1, None).unwrap().remove(0);
    let mut b = wb_xdp::gather(b, 1, None).unwrap().remove(0);
    assert_eq!(a.rx().lanes(), 2);
    conformance::check(&mut a, &mut b, &promises);
}

#[test]
fn one_worker_gets_the_frames_of_all_queues() {
    let lab = lab_or_skip!("one");
    if !widen(&lab, 2) {
        return;
    }
    let (_b, b) = open(&lab.b, "b0", &two_queues());
    let mut group = wb_xdp::gather(b, 1, None).unwrap().remove(0);
    let all = XdpOptions {
        queues: 2,
        ..sending()
    };
    let (_a, mut a) = open(&lab.a, "a0", &all);
    for round in 0..50 {
        for (queue, from) in (0..).zip(&mut a) {
            send(from, 4000, 2 * round + queue);
        }
    }
    let mut numbers = take(&mut group, 100);
    for lane in 0..2 {
        // Each queue is in order.
        let of_lane: Vec<u64> = numbers.iter().copied().filter(|n| n % 2 == lane).collect();
        assert!(of_lane.is_sorted(), "{of_lane:?}");
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    let counters = group.rx().counters();
    assert!(counters.received_frames >= 100 && counters.dropped_frames == 0);
    // A single frame wakes a waiting worker, whichever queue it is on.
    for (queue, from) in (0..).zip(&mut a) {
        while group.rx().receive(64, |_| {}).unwrap() > 0 {}
        send(from, 4000, queue);
        assert!(group.rx().wait(FAR_PATIENCE).unwrap());
        assert_eq!(take(&mut group, 1), [queue]);
    }
}

#[test]
fn a_frame_gets_to_its_worker_from_any_queue() {
    let lab = lab_or_skip!("post");
    if !widen(&lab, 2) {
        return;
    }
    let both = XdpOptions {
        tx_queues: None,
        ..two_queues()
    };
    let (_b, b) = open(&lab.b, "b0", &both);
    let (_a, mut a) = open(&lab.a, "a0", &both);
    let mut groups = wb_xdp::gather(b, 2, Some(PortSteering::Destination)).unwrap();
    let mut second = groups.pop().unwrap();
    let mut first = groups.pop().unwrap();
    // Ports 4000 and 4001, each in both queues.
    for (queue, from) in (0..).zip(&mut a) {
        for port in 0..2 {
            send(from, 4000 + port, 10 * u64::from(port) + queue);
        }
    }
    // After a worker has read its queue, it has passed on the frames of the other worker.
    let (mut of_first, mut of_second) = (Vec::new(), Vec::new());
    assert!(lab::eventually(|| {
        for (group, seen) in [(&mut first, &mut of_first), (&mut second, &mut of_second)] {
            group
                .rx()
                .receive(64, |frame| {
                    if is_ours(frame.bytes) {
                        seen.push(number(frame.bytes));
                    }
                })
                .unwrap();
        }
        of_first.len() + of_second.len() >= 4
    }));
    of_first.sort_unstable();
    of_second.sort_unstable();
    assert_eq!((of_first, of_second), (vec![0, 1], vec![10, 11]));

    // A worker that passes a frame on wakes the sleeping receiver.
    while second.rx().receive(64, |_| {}).unwrap() > 0 {}
    let sleeper = std::thread::spawn(move || {
        let woken = second.rx().wait(FAR_PATIENCE).unwrap();
        (woken, take(&mut second, 1))
    });
    send(&mut a[0], 4001, 77);
    while !sleeper.is_finished() {
        first.rx().receive(64, |_| {}).unwrap();
        first.rx().wait(Duration::from_millis(1)).unwrap();
    }
    assert_eq!(sleeper.join().unwrap(), (true, vec![77]));
}
