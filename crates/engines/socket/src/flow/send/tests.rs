//! Streams between both loops: the counts of sender and receiver agree.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::{fd::AsFd, unix::net::UnixStream},
    thread,
    time::Duration,
};

use wb_model::socket::ReceiveBy;

use super::*;
use crate::flow::{
    LoopCounters, ReceivePlan, StreamReceiver, TimeRecorder, drain, shut_down_and_drain,
};

/// Much longer than anything here takes; only a failing test reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

fn buffers(size: u32, width: u32) -> BufferPlan {
    BufferPlan {
        size,
        width,
        align: 8,
        ..BufferPlan::default()
    }
}

fn plan(by: SendBy, size: u32, limit: Option<u64>) -> SendPlan {
    SendPlan {
        buffers: buffers(size, 3),
        by,
        limit,
        pace: None,
    }
}

fn receive_plan(by: ReceiveBy) -> ReceivePlan {
    ReceivePlan {
        buffers: buffers(100_000, 2),
        by,
        limit: None,
    }
}

/// A sender; `None` if the kernel has no io_uring or does not permit it.
fn sender(plan: &SendPlan) -> Option<BufferSender> {
    match BufferSender::new(plan) {
        Ok(sender) => Some(sender),
        Err(error) if plan.by == SendBy::Uring => {
            wb_testing::skipped(error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

const WAYS: [SendBy; 5] = [
    SendBy::Copy,
    SendBy::Write,
    SendBy::Sendfile,
    SendBy::Zerocopy,
    SendBy::Uring,
];

#[test]
fn every_way_moves_exactly_what_it_counts() {
    // Neither the send size nor the file size divides the limit.
    let limit = 1_000_003;
    for by in WAYS {
        let Some(mut sender) = sender(&plan(by, 7919, Some(limit))) else {
            continue;
        };
        let (near, far) = tcp();
        let reads = thread::spawn(move || {
            let mut all = Vec::new();
            (&far).read_to_end(&mut all).unwrap();
            all
        });
        let (stop, counters) = (Stopper::new(), LoopCounters::default());
        let mut recorder = TimeRecorder::new(false);
        let mut tally = sender.run(
            near.as_fd(),
            &mut LoopContext {
                stop: &stop,
                counters: &counters,
                recorder: Some(&mut recorder),
            },
        );
        sender.wait_for_completions(near.as_fd(), &stop, &mut tally);
        shut_down_and_drain(near.as_fd(), &stop).unwrap();
        assert!(matches!(tally.ended, LoopEnd::Limit), "{by:?}: {tally:?}");
        assert_eq!(tally.bytes_sent, limit, "{by:?}");
        assert_eq!(counters.bytes(), limit, "{by:?}");
        assert_eq!(counters.calls(), tally.send_calls, "{by:?}");
        assert!(tally.send_calls >= limit.div_ceil(7919), "{by:?}");
        assert_eq!(recorder.histogram().count(), tally.send_calls, "{by:?}");
        let completions = tally.zero_copy + tally.copied;
        if matches!(by, SendBy::Zerocopy | SendBy::Uring) {
            assert_eq!(completions, tally.send_calls, "{by:?}: {tally:?}");
        } else {
            assert_eq!(completions, 0, "{by:?}");
        }
        let all = reads.join().unwrap();
        assert_eq!(all.len() as u64, limit, "{by:?}");
        // A partial buffer is sent only if the kernel shortened a send.
        if tally.send_calls == limit.div_ceil(7919) {
            for (n, byte) in all.iter().enumerate() {
                assert_eq!(*byte, b"netperf\0"[n % 7919 % 8], "{by:?} at {n}");
            }
        }
    }
}

#[test]
fn both_ends_count_the_same_whichever_way_it_is_taken() {
    for by in [ReceiveBy::Copy, ReceiveBy::Splice, ReceiveBy::Discard] {
        let limit = 3_000_001;
        let (near, far) = tcp();
        let takes = thread::spawn(move || {
            let (stop, counters) = (Stopper::new(), LoopCounters::default());
            let mut receiver = StreamReceiver::new(&receive_plan(by)).unwrap();
            let mut run = LoopContext {
                stop: &stop,
                counters: &counters,
                recorder: None,
            };
            let tally = receiver.run(far.as_fd(), &mut run);
            (tally, counters.bytes(), counters.calls())
        });
        let (stop, counters) = (Stopper::new(), LoopCounters::default());
        let mut sender = sender(&plan(SendBy::Copy, 16_384, Some(limit))).unwrap();
        let mut run = LoopContext {
            stop: &stop,
            counters: &counters,
            recorder: None,
        };
        let sent = sender.run(near.as_fd(), &mut run);
        shut_down_and_drain(near.as_fd(), &stop).unwrap();
        drop(near);
        let (taken, bytes, calls) = takes.join().unwrap();
        assert!(matches!(taken.ended, LoopEnd::Eof), "{by:?}: {taken:?}");
        assert_eq!(sent.bytes_sent, limit);
        assert_eq!(taken.bytes_received, limit, "{by:?}");
        assert_eq!((bytes, calls), (limit, taken.receive_calls), "{by:?}");
    }
}

#[test]
fn a_receiver_ends_at_its_limit() {
    let (mut near, far) = UnixStream::pair().unwrap();
    near.write_all(&[1; 1000]).unwrap();
    let (stop, counters) = (Stopper::new(), LoopCounters::default());
    let mut receiver = StreamReceiver::new(&ReceivePlan {
        buffers: buffers(100, 2),
        by: ReceiveBy::Copy,
        limit: Some(450),
    })
    .unwrap();
    let mut run = LoopContext {
        stop: &stop,
        counters: &counters,
        recorder: None,
    };
    let tally = receiver.run(far.as_fd(), &mut run);
    assert!(matches!(tally.ended, LoopEnd::Limit));
    assert_eq!((tally.bytes_received, tally.receive_calls), (500, 5));
    // Unread data is still there, and is discarded at the end.
    drop(near);
    assert_eq!(drain(far.as_fd(), &stop).unwrap(), 500);
}

/// Runs a loop in a thread, stops it after `ready`, and returns its result.
fn stopped<T: Send + 'static>(
    ready: impl Fn() -> bool,
    stop: &Stopper,
    work: impl FnOnce(Stopper) -> T + Send + 'static,
) -> T {
    let inside = stop.clone();
    let worker = thread::spawn(move || {
        let guard = inside.register_thread();
        let result = work(inside.clone());
        drop(guard);
        result
    });
    while !(stop.is_busy() && ready()) {
        thread::yield_now();
    }
    assert!(stop.stop_and_wait(PATIENCE));
    worker.join().unwrap()
}

#[test]
fn a_sender_that_waits_for_room_stops_and_counts_what_went() {
    for by in WAYS {
        let Some(mut sender) = sender(&plan(by, 50_000, None)) else {
            continue;
        };
        let (near, far) = tcp();
        let counters = std::sync::Arc::new(LoopCounters::default());
        let inside = std::sync::Arc::clone(&counters);
        let began = move || by == SendBy::Uring || counters.bytes() > 0;
        let stop = Stopper::new();
        // The peer does not read, so every kind of send blocks eventually.
        let (tally, sender, near) = stopped(began, &stop, move |stop| {
            let mut run = LoopContext {
                stop: &stop,
                counters: &inside,
                recorder: None,
            };
            let tally = sender.run(near.as_fd(), &mut run);
            assert_eq!(tally.bytes_sent, inside.bytes());
            (tally, sender, near)
        });
        assert!(matches!(tally.ended, LoopEnd::Stopped), "{by:?}: {tally:?}");
        let reads = thread::spawn(move || drain(far.as_fd(), &Stopper::new()).unwrap());
        let (mut sender, mut tally) = (sender, tally);
        let last = Stopper::new();
        sender.wait_for_completions(near.as_fd(), &last, &mut tally);
        if by == SendBy::Zerocopy {
            assert_eq!(
                tally.zero_copy + tally.copied,
                tally.send_calls,
                "{tally:?}"
            );
        }
        near.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(reads.join().unwrap(), tally.bytes_sent, "{by:?}");
    }
}

#[test]
fn receivers_and_endings_that_wait_stop() {
    for by in [ReceiveBy::Copy, ReceiveBy::Splice, ReceiveBy::Discard] {
        let (near, far) = tcp();
        let mut receiver = StreamReceiver::new(&receive_plan(by)).unwrap();
        let tally = stopped(
            || true,
            &Stopper::new(),
            move |stop| {
                let counters = LoopCounters::default();
                let mut run = LoopContext {
                    stop: &stop,
                    counters: &counters,
                    recorder: None,
                };
                receiver.run(far.as_fd(), &mut run)
            },
        );
        assert!(matches!(tally.ended, LoopEnd::Stopped), "{by:?}");
        drop(near);
    }
    let (near, _far) = tcp();
    let ended = stopped(
        || true,
        &Stopper::new(),
        move |stop| shut_down_and_drain(near.as_fd(), &stop),
    );
    assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::Interrupted);
}

#[test]
fn a_pause_stops_too() {
    for by in [SendBy::Copy, SendBy::Uring] {
        let mut paced = plan(by, 10, None);
        paced.pace = Some(BurstPace {
            burst: 2,
            interval: Duration::from_secs(3600),
        });
        let Some(mut sender) = sender(&paced) else {
            continue;
        };
        let (near, _far) = tcp();
        let counters = std::sync::Arc::new(LoopCounters::default());
        let inside = std::sync::Arc::clone(&counters);
        let tally = stopped(
            move || counters.calls() == 2,
            &Stopper::new(),
            move |stop| {
                let mut run = LoopContext {
                    stop: &stop,
                    counters: &inside,
                    recorder: None,
                };
                sender.run(near.as_fd(), &mut run)
            },
        );
        assert_eq!((tally.send_calls, tally.bytes_sent), (2, 20), "{by:?}");
        assert!(!tally.waited.is_zero());
    }
}

#[test]
fn a_peer_that_is_gone_is_a_failure_that_keeps_the_count() {
    for by in [SendBy::Copy, SendBy::Zerocopy, SendBy::Uring] {
        let Some(mut sender) = sender(&plan(by, 1000, None)) else {
            continue;
        };
        let (near, mut far) = tcp();
        let reads = thread::spawn(move || {
            far.read_exact(&mut [0; 5000]).unwrap();
        });
        let (stop, counters) = (Stopper::new(), LoopCounters::default());
        let mut run = LoopContext {
            stop: &stop,
            counters: &counters,
            recorder: None,
        };
        let mut tally = sender.run(near.as_fd(), &mut run);
        reads.join().unwrap();
        let number = tally.failure().and_then(io::Error::raw_os_error);
        let gone = [Some(libc::ECONNRESET), Some(libc::EPIPE)];
        assert!(gone.contains(&number), "{by:?}: {tally:?}");
        assert!(tally.bytes_sent >= 5000);
        // Completions of a closed connection arrive too, or none are pending.
        sender.wait_for_completions(near.as_fd(), &stop, &mut tally);
    }
}

#[test]
fn plans_that_make_no_sense_are_refused() {
    assert!(BufferSender::new(&plan(SendBy::Copy, 0, None)).is_err());
    assert!(
        StreamReceiver::new(&ReceivePlan {
            buffers: buffers(0, 1),
            by: ReceiveBy::Copy,
            limit: None
        })
        .is_err()
    );
    let path = std::env::temp_dir().join(format!("wb-socket-empty-{}", std::process::id()));
    std::fs::File::create(&path).unwrap();
    let mut empty = plan(SendBy::Sendfile, 10, None);
    empty.buffers.fill = Some(path.clone());
    assert!(BufferSender::new(&empty).is_err());
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_short_file_is_sent_again_and_again() {
    let path = std::env::temp_dir().join(format!("wb-socket-short-{}", std::process::id()));
    std::fs::write(&path, b"0123456").unwrap();
    let mut short = plan(SendBy::Sendfile, 5, Some(20));
    short.buffers.fill = Some(path.clone());
    let mut sender = BufferSender::new(&short).unwrap();
    std::fs::remove_file(&path).unwrap();
    let (near, mut far) = tcp();
    let (stop, counters) = (Stopper::new(), LoopCounters::default());
    let mut run = LoopContext {
        stop: &stop,
        counters: &counters,
        recorder: None,
    };
    let tally = sender.run(near.as_fd(), &mut run);
    assert_eq!((tally.bytes_sent, tally.send_calls), (20, 6));
    let mut all = [0; 20];
    far.read_exact(&mut all).unwrap();
    assert_eq!(&all, b"01234560123456012345");
}
