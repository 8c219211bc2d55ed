//! Neighbour requests and pings are answered within a worker.

use std::net::IpAddr;

use crate::common::{Lab, job, server_of};
use wb_port::{QueuePair, RxQueue, TxQueue, memory};
use wb_wire::{
    Arp, ArpOperation, Echo, Ethernet, Ipv4, Ipv6, MacAddr, NeighbourResponder, NetworkHeader,
    Stack, TransportHeader, arp_request, neighbour_solicitation,
};

const ASKER: MacAddr = MacAddr([2, 9, 9, 9, 9, 9]);

fn send(port: &mut memory::MemoryPort, frame: &[u8]) {
    let tx = port.queues[0].tx();
    assert_eq!(tx.lend(1), 1);
    let slot = tx.slot(0);
    slot.bytes[..frame.len()].copy_from_slice(frame);
    *slot.len = frame.len() as u32;
    tx.submit(1);
    tx.flush().unwrap();
}

fn arrived(port: &mut memory::MemoryPort) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let rx = port.queues[0].rx();
    while rx
        .receive(64, |frame| frames.push(frame.bytes.to_vec()))
        .unwrap()
        > 0
    {}
    frames
}

fn ping(src: &str, dst: &str) -> Vec<u8> {
    let echo = TransportHeader::Echo(Echo::request(7, 1));
    let mut stack = Stack::over(match (src.parse().unwrap(), dst.parse().unwrap()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => NetworkHeader::Ipv4(Ipv4::new(src, dst), echo),
        (IpAddr::V6(src), IpAddr::V6(dst)) => NetworkHeader::Ipv6(Ipv6::new(src, dst), echo),
        _ => panic!("one family"),
    });
    stack.ethernet.src = ASKER;
    stack.ethernet.dst = MacAddr([2, 0x77, 0x62, 0, 0, 0x0b]);
    stack.build(100)
}

/// Answers of a server with these addresses to these frames, and its counters.
fn answers(
    servers: &str,
    clients: &str,
    frames: &[Vec<u8>],
) -> (Vec<Vec<u8>>, wb_load::LoadTotals) {
    let mut lab = Lab::new(|_| ());
    let mut job = job(1, 10);
    job.servers = vec![servers.parse().unwrap()];
    job.clients = vec![clients.parse().unwrap()];
    let (_, server) = lab.specs(&job, &server_of(&job));
    let mut worker = wb_load::LoadWorker::new(server, 1522).unwrap();
    for frame in frames {
        send(&mut lab.near, frame);
    }
    for _ in 0..3 {
        worker
            .turn(
                &mut lab.far.queues[0],
                &lab.server,
                &lab.slots[1],
                &lab.clock,
            )
            .unwrap();
    }
    let outcome = worker.conclude(&mut lab.far.queues[0], &lab.slots[1], None);
    (
        arrived(&mut lab.near),
        wb_load::LoadTotals::sum_workers([&outcome]),
    )
}

#[test]
fn arp_and_pings_are_answered_before_the_start_too() {
    let mut out = [0; 128];
    let mut ask = |target: &str| {
        let len = arp_request(
            ASKER,
            [198, 18, 0, 1].into(),
            target.parse().unwrap(),
            &[],
            &mut out,
        )
        .unwrap();
        out[..len].to_vec()
    };
    let frames = [
        ask("198.18.1.1"),
        ask("198.18.1.9"),
        ping("198.18.0.1", "198.18.1.1"),
        vec![0xff; 60],
    ];
    let (answers, totals) = answers("198.18.1.1", "198.18.0.1", &frames);
    assert_eq!(answers.len(), 2);
    let (_, _, arp) = Ethernet::parse(&answers[0]).unwrap();
    let arp = Arp::parse(arp).unwrap().0;
    assert_eq!(
        (arp.operation, arp.sender_ip.to_string()),
        (ArpOperation::Reply, "198.18.1.1".to_owned())
    );
    let responder = totals.responder;
    assert_eq!((responder.arp_rx, responder.arp_tx), (2, 1));
    assert_eq!(
        (responder.icmp_rx, responder.icmp_tx, responder.other_rx),
        (1, 1, 1)
    );
    crate::common::check(&totals);
}

#[test]
fn neighbour_discovery_and_pings_of_ipv6() {
    let mut out = [0; 128];
    let len = neighbour_solicitation(
        ASKER,
        "2001:2::1".parse().unwrap(),
        "2001:2::9".parse().unwrap(),
        &[],
        &mut out,
    )
    .unwrap();
    let frames = [out[..len].to_vec(), ping("2001:2::1", "2001:2::9")];
    let (answers, totals) = answers("2001:2::9", "2001:2::1", &frames);
    assert_eq!(answers.len(), 2);
    let heard = NeighbourResponder::new(ASKER, [])
        .learn(&answers[0])
        .unwrap();
    assert_eq!(heard.0, "2001:2::9".parse::<IpAddr>().unwrap());
    assert_eq!((totals.responder.icmp_rx, totals.responder.icmp_tx), (2, 2));
}
