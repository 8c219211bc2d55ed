//! Sends the packets of a device through a memory port, optionally with a watcher, for counting instructions.
//!
//! `cargo run --release -p wb-traffic --example device_path -- plain|bare|clones|walk|watch FRAMES`
//!
//! `plain` is a device at full speed with default settings and a timestamp in every packet. `bare` has no timestamp
//! (`NO_TIMESTAMP`). `clones` sends each packet ten times. `walk` changes addresses and ports and fills in the UDP
//! checksum. `watch` is `plain` and a watcher with everything on. Run it under `valgrind --tool=callgrind` with two
//! numbers of frames: the difference of the instruction counts divided by the difference of the frames is the cost of
//! one frame.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

use wb_model::device::{Defaults, DeviceConfig, Flags, Interface, JitterRule, Mode};
use wb_pktgen_device::{Start, Walker};
use wb_port::memory;
use wb_traffic::{
    Clock, DeviceHandle, DeviceNext, TrafficControl, WatchHandle, WatchSettings, device_sender,
    run_watcher,
};

/// The clocks of the standard library.
#[derive(Clone)]
struct StdClock(Instant);

impl Clock for StdClock {
    fn monotonic_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }

    fn wall_ns(&self) -> u64 {
        wall_ns()
    }
}

fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |time| time.as_nanos() as u64)
}

fn config(kind: &str, frames: u64) -> DeviceConfig {
    let mut config = DeviceConfig::new("dev", &Defaults::default());
    (config.count, config.min_size, config.max_size) = (frames, 60, 60);
    config.dst_min = "198.18.0.42".to_owned();
    match kind {
        "bare" => config.flags.put(Flags::NO_TIMESTAMP, true),
        "clones" => config.clone_skb = 10,
        "walk" => {
            config.dst_max = "198.18.3.42".to_owned();
            config.udp_src_max = 1000;
            config.flags.put(Flags::UDPCSUM, true);
        }
        _ => {}
    }
    config
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [kind, frames] = words.as_slice() else {
        eprintln!("usage: device_path plain|bare|clones|walk|watch FRAMES");
        return ExitCode::from(2);
    };
    let Ok(frames) = frames.parse() else {
        eprintln!("FRAMES is a number");
        return ExitCode::from(2);
    };
    let mut options = memory::LinkOptions::new("hot", wb_port::clock::Clock::Real(wall_ns));
    options.depth = if kind == "watch" { 1 << 17 } else { 1024 };
    let (mut near, far) = memory::link(&options).expect("options in range");
    // Without a receiving end, the port discards all frames.
    let mut far = Some(far).filter(|_| kind == "watch");
    let start = Start {
        interface: Interface {
            mtu: 1500,
            ..Interface::default()
        },
        ..Start::default()
    };
    let walker = Walker::new(config(kind, frames), &start).expect("frames that fit");
    let clock = StdClock(Instant::now());
    let control = TrafficControl::new();
    control.start_at_mono_ns.store(0, Ordering::Relaxed);
    let handle = Arc::new(DeviceHandle::new());
    let mut sender = device_sender(near.queues.remove(0), walker, handle, None, clock.clone());
    let begin = Instant::now();
    while sender.turn(&control) != DeviceNext::Done {}
    let took = begin.elapsed();
    let sent = sender.finish().offered_frames;
    println!(
        "sent {sent}, {:.1} ns a frame",
        took.as_nanos() as f64 / sent as f64
    );
    if let Some(far) = &mut far {
        let watch = WatchHandle::new(WatchSettings {
            mode: Mode::Time,
            rule: JitterRule::Latency,
            takes_latency: true,
            sequences: true,
            clears: 0,
        });
        watch.stop();
        let begin = Instant::now();
        let seen = run_watcher(&mut far.queues[0], &watch, &clock).row.packets;
        let took = begin.elapsed();
        println!(
            "saw {seen}, {:.1} ns a frame",
            took.as_nanos() as f64 / seen.max(1) as f64
        );
    }
    ExitCode::SUCCESS
}
