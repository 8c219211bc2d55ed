//! Delay added by the impairing device: `added_delay DELAY_US RATE_PPS SECONDS [LEN]`.
//!
//! Sends tagged frames at an even rate through an `impair` lab, once without delay and once with,
//! and prints the distribution of the time from the sender's stamp to the kernel's receive stamp.
//! Sender and receiver never sleep: they and the device compete for the CPUs, as in a trial.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use wb_machine::{Namespace, Netlink, clock, cpu, in_namespace};
use wb_packet::{PacketOptions, PacketQueue};
use wb_port::{Interface, QueuePair, RxQueue, TxQueue};
use wb_testbed::impair::ImpairOptions;
use wb_testbed::{Lab, LabKind, LabOptions};
use wb_wire::{Stack, Tag, find_tag};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [command, file] = &arguments[..]
        && command == wb_testbed::impair::DEVICE_COMMAND
    {
        if let Err(error) = wb_testbed::impair::device_main(std::path::Path::new(file)) {
            eprintln!("{error}");
            std::process::exit(1);
        }
        return;
    }
    let number = |i: usize, otherwise| {
        arguments
            .get(i)
            .map_or(otherwise, |text| text.parse().expect("a number"))
    };
    let (delay_us, rate, seconds) = (number(0, 300), number(1, 100_000), number(2, 3));
    let len = number(3, 60) as usize;
    println!(
        "     asked     sent received   min us   p10   p50   p90   p99   max | lost in the device, at its link, in the receiver; late mean / max us"
    );
    // Before the receiver pins this thread.
    let cpus = cpu::allowed().expect("CPUs are known");
    for delay_us in [0, delay_us] {
        measure(delay_us * 1000, rate, seconds, len, &cpus);
    }
}

fn measure(delay_ns: u64, rate: u64, seconds: u64, len: usize, cpus: &[u32]) {
    let options = LabOptions {
        name: Some(format!("delay-{}", std::process::id())),
        impair: Some(ImpairOptions {
            delay_ns,
            ..ImpairOptions::default()
        }),
        ..LabOptions::default()
    };
    let lab = Lab::up(LabKind::Impair, &options).expect("the lab comes up");
    let mut tx = open(
        &lab.port("a0"),
        &PacketOptions {
            rx: false,
            ..PacketOptions::default()
        },
    );
    let mut rx = open(
        &lab.port("b0"),
        &PacketOptions {
            tx: false,
            ..PacketOptions::default()
        },
    );
    let over = AtomicBool::new(false);
    let mut latency = Histogram::<u64>::new(3).expect("three digits");
    let sent = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let _ = cpu::pin(*cpus.last().expect("there is a CPU"));
            let sent = send(&mut tx, rate, rate * seconds, len);
            std::thread::sleep(Duration::from_nanos(delay_ns) + Duration::from_millis(300));
            over.store(true, Ordering::Relaxed);
            sent
        });
        let _ = cpu::pin(cpus[0]);
        loop {
            let ended = over.load(Ordering::Relaxed);
            let came = rx.rx().receive(256, |frame| {
                if let Some((at, _)) = find_tag(frame.bytes)
                    && let Some(tag) = Tag::read(&frame.bytes[at..])
                {
                    let took = frame.stamp_ns.saturating_sub(tag.time_ns);
                    latency.record(took).expect("in range");
                }
            });
            if came.expect("the port is there") == 0 && ended {
                break;
            }
        }
        sender.join().expect("the sender ends")
    });
    let status = lab.status();
    let device = status
        .device
        .and_then(|device| device.counters)
        .expect("the device counts")
        .a_to_b;
    let us = |q: f64| latency.value_at_quantile(q) as f64 / 1000.0;
    println!(
        "{:>7} us {sent:>8} {:>8} {:>8.1} {:>5.1} {:>5.1} {:>5.1} {:>5.1} {:>5.0} | {} {} {}; {:.1} / {:.0}",
        delay_ns / 1000,
        latency.len(),
        latency.min() as f64 / 1000.0,
        us(0.1),
        us(0.5),
        us(0.9),
        us(0.99),
        latency.max() as f64 / 1000.0,
        device.rx_dropped,
        device.tx_refused,
        rx.rx().counters().dropped_frames,
        device.late_sum_ns as f64 / device.left.max(1) as f64 / 1000.0,
        device.late_max_ns as f64 / 1000.0,
    );
}

fn send(port: &mut PacketQueue, rate: u64, count: u64, len: usize) -> u64 {
    let stack = Stack::udp4([198, 18, 1, 2], [198, 19, 1, 2], 49184, 7);
    let (frame, layout) = stack.build_with_layout(len);
    let start = clock::monotonic_ns() + 10_000_000;
    let mut sent = 0;
    while sent < count {
        let due = ((clock::monotonic_ns().saturating_sub(start)) as u128 * u128::from(rate)
            / 1_000_000_000) as u64;
        let wanted = (due.min(count) - sent.min(due)).min(64) as usize;
        if wanted == 0 {
            continue;
        }
        let tx = port.tx();
        let ready = tx.lend(wanted);
        for i in 0..ready {
            let slot = tx.slot(i);
            slot.bytes[..len].copy_from_slice(&frame);
            let tag = Tag {
                flow: 1,
                sequence: (sent + i as u64) as u32,
                time_ns: clock::wall_ns(),
            };
            tag.write(
                slot.bytes[layout.payload..]
                    .first_chunk_mut()
                    .expect("the tag fits"),
            );
            *slot.len = len as u32;
        }
        tx.submit(ready);
        tx.flush().expect("the port is there");
        sent += ready as u64;
    }
    sent
}

fn open(locator: &str, options: &PacketOptions) -> PacketQueue {
    let (node, name) = locator.split_once('/').expect("a port in a namespace");
    let namespace = Namespace::named(node).expect("the node is there");
    let link = Netlink::open(&namespace)
        .and_then(|netlink| netlink.link(name))
        .expect("the port is there");
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
    let port = in_namespace(&namespace, || wb_packet::open(&interface, options))
        .expect("the node can be entered");
    port.expect("the port opens")
        .queues
        .pop()
        .expect("it has a queue")
}
