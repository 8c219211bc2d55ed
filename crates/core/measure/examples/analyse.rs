//! Analyses generated frames and prints the figures of a report.
//!
//! `cargo run --release -p wb-measure --example analyse [FRAMES [FLOWS [open]]]`
//!
//! Run it under `valgrind --tool=callgrind` with two numbers of frames: the difference of the instruction counts,
//! divided by the difference of the frames, is the cost per frame.

use wb_measure::{Account, Analyser};

fn main() {
    let mut words = std::env::args().skip(1);
    let mut number = |default| {
        words
            .next()
            .and_then(|word| word.parse().ok())
            .unwrap_or(default)
    };
    let frames: u32 = number(1_000_000);
    let flows: u32 = number(16).max(1);
    let open = words.next().is_some_and(|word| word == "open");
    let mut analyser = if open {
        Analyser::open(1 << 20)
    } else {
        Analyser::planned(flows as usize)
    };

    let mut random = 0x2545_F491_4F6C_DD1Du64;
    let (mut flow, mut sequence) = (0, 0);
    for n in 0..frames {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let tx_ns = 1_000_000_000 + u64::from(n) * 67;
        let rx_ns = tx_ns + 20_000 + (random & 0xFFF);
        // One in 65,536 frames is lost and its successor is duplicated.
        let wire = if random >> 48 == 0 {
            sequence + 1
        } else {
            sequence
        };
        analyser.on_frame(flow, wire, tx_ns, rx_ns, 64);
        flow += 1;
        if flow == flows {
            flow = 0;
            sequence += 1;
        }
    }

    let all = analyser.into_measurement();
    let counters = all.counters;
    let account = Account::settle(
        u64::from(frames),
        counters.received_frames,
        counters.duplicate_frames,
    );
    println!("{account:?}");
    println!("{counters:?}");
    println!("latency  {:?}", all.latency.summary());
    println!("jitter   {:?}", all.jitter().summary());
    println!("ipdv     {:?}", all.ipdv.summary());
    println!("pdv      {:?}", all.pdv());
    println!("smoothed {:?}", all.smoothed_jitter());
}
