//! Sends frames through a memory port, or sends and receives them, for counting instructions.
//!
//! `cargo run --release -p wb-traffic --example hot_path -- send|receive FRAMES`
//!
//! `send` writes one changing field, the tag and checksums, with rate control, into a port without a receiver.
//! `receive` also receives everything with all statistics, so the difference is the cost of receiving. Run it under
//! `valgrind --tool=callgrind` with two numbers of frames: the difference of the instruction counts divided by the
//! difference of the frames is the cost of one frame. `bench/instructions.sh` does this.

use std::process::ExitCode;
use std::time::{Instant, SystemTime};

use wb_model::{Stream, units::Rational};
use wb_port::{PortError, QueuePair, TxQueue, memory};
use wb_traffic::{Clock, FlowSpace, Receiver, ReceiverSpec, Sender, SenderSpec, StreamSpec};

/// The clocks of the standard library.
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

fn run(frames: u64, receive: bool) -> Result<(u64, u64), PortError> {
    let options = memory::LinkOptions::new("hot", wb_port::clock::Clock::Real(wall_ns));
    let (mut near, far) = memory::link(&options)?;
    // Without a receiving end, the port discards all frames.
    let mut far = Some(far).filter(|_| receive);
    let tx = near.queues[0].tx();
    let spec = SenderSpec {
        streams: vec![StreamSpec {
            stream: Stream {
                vary: vec!["sport=inc:1000-2000".parse().expect("a modifier")],
                ..Stream::default()
            },
            // Higher than any CPU can reach, with unlimited catch-up: every batch is full.
            pps: Rational::new(14_880_952_380, 10),
            ..StreamSpec::default()
        }],
        count: Some(frames),
        catch_up_ns: u64::MAX / 4,
        ..SenderSpec::default()
    };
    let mut sender = Sender::new(&spec, tx.frame_capacity()).expect("a stream that fits");
    let mut receiver = Receiver::new(&ReceiverSpec {
        flows: FlowSpace::Planned { first: 0, count: 1 },
        ..ReceiverSpec::default()
    });
    let clock = StdClock(Instant::now());
    sender.start(0);
    while !sender.step(tx, &clock)?.done {
        if let Some(far) = &mut far {
            receiver.step(far.queues[0].rx(), 64, u64::MAX)?;
        }
    }
    if let Some(far) = &mut far {
        while receiver.step(far.queues[0].rx(), 64, u64::MAX)? > 0 {}
    }
    let offered = sender.finish(tx).streams[0].offered_frames;
    Ok((
        offered,
        receiver.finish().measurement.counters.unique_frames(),
    ))
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (receive, frames) = match words.as_slice() {
        [word, frames] if word == "send" || word == "receive" => {
            (word == "receive", frames.parse())
        }
        _ => {
            eprintln!("usage: hot_path send|receive FRAMES");
            return ExitCode::from(2);
        }
    };
    let Ok(frames) = frames else {
        eprintln!("FRAMES is a number");
        return ExitCode::from(2);
    };
    let start = Instant::now();
    match run(frames, receive) {
        Ok((sent, received)) => {
            let ns = start.elapsed().as_nanos() as f64;
            println!(
                "sent {sent}, received {received}, {:.1} ns a frame",
                ns / frames as f64
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(4)
        }
    }
}
