//! Sends the same frame as fast as one queue accepts it, and reports the rate.
//!
//! `xsk_blast IFNAME SECONDS LEN BATCH [BUDGET]` in the network namespace of a test interface: the frames are UDP from
//! 198.18.0.1 to 198.18.0.2, to the group address unless `XSK_BLAST_TO` contains another MAC address. `xsk_blast IFNAME
//! SECONDS rx` receives and counts instead.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use wb_port::{Interface, QueuePair, RxQueue, TxQueue};
use wb_xdp::{XdpOptions, open};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, seconds, len, ..] = &arguments[..] else {
        return Err("usage: xsk_blast IFNAME SECONDS LEN|rx [BATCH [BUDGET]]".into());
    };
    let interface = interface(name)?;
    let duration = Duration::from_secs(seconds.parse::<u64>()?.min(60));
    if len == "rx" {
        return receive(&interface, duration);
    }
    let batch = arguments.get(3).map_or(Ok(64), |text| text.parse())?;
    let budget = arguments.get(4).map_or(Ok(256), |text| text.parse())?;
    send(&interface, duration, len.parse()?, batch, budget)
}

fn send(
    interface: &Interface,
    duration: Duration,
    len: u32,
    batch: usize,
    tx_budget: u32,
) -> Result<(), Box<dyn std::error::Error>> {
    let options = XdpOptions {
        rx: false,
        tx_budget,
        ..XdpOptions::default()
    };
    let mut port = open(interface, &options)?;
    let frame = frame(interface, len as usize);
    let tx = port.queues[0].tx();
    let start = Instant::now();
    let mut sequence = 0u32;
    while start.elapsed() < duration {
        for _ in 0..16 {
            let n = tx.lend(batch);
            for i in 0..n {
                let slot = tx.slot(i);
                if *slot.cookie != 1 {
                    slot.bytes[..frame.len()].copy_from_slice(&frame);
                    *slot.len = len;
                    *slot.cookie = 1;
                }
                sequence = sequence.wrapping_add(1);
                slot.bytes[42..46].copy_from_slice(&sequence.to_be_bytes());
            }
            tx.submit(n);
            tx.flush()?;
            tx.take_refused(|_| {});
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    let cpu_seconds = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
    let counters = tx.counters();
    let rate = |frames: u64| frames as f64 / seconds / 1e3;
    println!(
        "{} batch {batch} budget {tx_budget}: sent {:.0} kpps ({:.0} k per CPU second), refused {:.0} kpps, \
         {:.1} frames a call, full {}",
        port.facts.mode,
        rate(counters.sent_frames),
        counters.sent_frames as f64 / cpu_seconds / 1e3,
        rate(counters.refused_frames),
        counters.submitted_frames as f64 / counters.kicks as f64,
        counters.full_events,
    );
    Ok(())
}

fn receive(interface: &Interface, duration: Duration) -> Result<(), Box<dyn std::error::Error>> {
    let mut port = open(
        interface,
        &XdpOptions {
            tx: false,
            ..XdpOptions::default()
        },
    )?;
    let rx = port.queues[0].rx();
    let start = Instant::now();
    let mut octets = 0;
    while start.elapsed() < duration {
        if rx.receive(256, |frame| octets += frame.bytes.len())? == 0 {
            rx.wait(Duration::from_millis(1))?;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let counters = rx.counters();
    println!(
        "{}: received {:.0} kpps, dropped {:.0} kpps, {octets} octets",
        port.facts.mode,
        counters.received_frames as f64 / seconds / 1e3,
        counters.dropped_frames as f64 / seconds / 1e3,
    );
    Ok(())
}

/// UDP over IPv4 to the discard port.
fn frame(interface: &Interface, len: usize) -> Vec<u8> {
    let mut frame = vec![0; len.max(60)];
    let to: Vec<u8> = std::env::var("XSK_BLAST_TO")
        .unwrap_or_else(|_| "01:00:5e:00:00:01".into())
        .split(':')
        .filter_map(|byte| u8::from_str_radix(byte, 16).ok())
        .collect();
    frame[..6].copy_from_slice(&to[..6]);
    frame[6..12].copy_from_slice(&interface.mac);
    let ip_len = (len - 14) as u16;
    frame[12..34].copy_from_slice(&[
        8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2,
    ]);
    frame[16..18].copy_from_slice(&ip_len.to_be_bytes());
    let mut sum: u32 = frame[14..34]
        .chunks_exact(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
        .sum();
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    frame[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    frame[34..38].copy_from_slice(&[0, 9, 0, 9]);
    frame[38..40].copy_from_slice(&(ip_len - 20).to_be_bytes());
    frame
}

/// Description of the interface, as a host library would return it.
fn interface(name: &str) -> Result<Interface, Box<dyn std::error::Error>> {
    let read = |file: &str| std::fs::read_to_string(format!("/sys/class/net/{name}/{file}"));
    let octets: Vec<u8> = read("address")?
        .trim()
        .split(':')
        .filter_map(|byte| u8::from_str_radix(byte, 16).ok())
        .collect();
    Ok(Interface {
        port: format!("xdp:{name}"),
        name: name.into(),
        index: read("ifindex")?.trim().parse()?,
        mac: octets.try_into().map_err(|_| "no Ethernet address")?,
        mtu: read("mtu")?.trim().parse()?,
        speed: None,
        kernel_driver: "veth".into(),
        tx_queues: 1,
        rx_queues: 1,
    })
}
