//! Sends one frame repeatedly and reports the rate: `blast IFNAME SECONDS LEN [BATCH]`.
//!
//! Measures the maximum rate of the driver, for example on a veth. Sends for at most 60 seconds.

use std::env;
use std::error::Error;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, netdevice, socket};
use wb_packet::{PacketOptions, open};
use wb_port::{Interface, QueuePair, TxQueue};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [name, seconds, len, batch @ ..] = &args[..] else {
        return Err("usage: blast IFNAME SECONDS LEN [BATCH]".into());
    };
    let seconds = seconds.parse::<f64>()?.clamp(0.0, 60.0);
    let len: u32 = len.parse()?;
    let batch: usize = batch.first().map_or(Ok(64), |batch| batch.parse())?;

    let any = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let interface = Interface {
        port: name.clone(),
        name: name.clone(),
        index: netdevice::name_to_index(&any, name)?,
        mac: [0; 6],
        mtu: 1500,
        speed: None,
        kernel_driver: String::new(),
        tx_queues: 1,
        rx_queues: 1,
    };
    let bypass = env::var_os("NO_BYPASS").is_none();
    let options = PacketOptions {
        rx: false,
        qdisc_bypass: bypass,
        ..PacketOptions::default()
    };
    let mut port = open(&interface, &options)?;
    let tx = port.queues[0].tx();
    if len as usize > tx.frame_capacity() || len < 14 {
        return Err(format!("LEN is 14 to {}", tx.frame_capacity()).into());
    }

    let start = Instant::now();
    let end = start + Duration::from_secs_f64(seconds);
    while Instant::now() < end {
        let ready = tx.lend(batch);
        for i in 0..ready {
            let slot = tx.slot(i);
            if *slot.cookie == 0 {
                slot.bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
                *slot.len = len;
                *slot.cookie = 1;
            }
        }
        tx.submit(ready);
        tx.flush()?;
    }
    let elapsed = start.elapsed().as_secs_f64();
    tx.withdraw(|_| ());
    let counters = tx.counters();
    println!(
        "{:.0} kpps of {len} bytes, batch {batch}; {counters:?}",
        counters.sent_frames as f64 / elapsed / 1e3
    );
    Ok(())
}
