use std::{net::UdpSocket, os::fd::AsFd, sync::Arc, thread, time::Duration};

use super::*;
use crate::flow::{LoopCounters, TimeRecorder};

const PATIENCE: Duration = Duration::from_secs(60);
/// udp.h: UDP_GRO.
const UDP_GRO: i32 = 104;

fn udp() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let bytes = 1 << 20;
    set_int(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes).unwrap();
    socket
}

fn buffers(size: u32) -> BufferPlan {
    BufferPlan {
        size,
        width: 2,
        ..BufferPlan::default()
    }
}

fn send_plan(size: u32, datagrams: u64) -> DatagramSendPlan {
    DatagramSendPlan {
        buffers: buffers(size),
        limit: Some(u64::from(size) * datagrams),
        flow: (size >= 18).then_some(3),
        ..DatagramSendPlan::default()
    }
}

fn receive_plan(size: u32) -> DatagramReceivePlan {
    DatagramReceivePlan {
        buffers: buffers(size),
        tagged: true,
        ..DatagramReceivePlan::default()
    }
}

/// Sends everything into the receiver's queue, which has room for it, and then receives it.
fn one_way(
    send: &DatagramSendPlan,
    receive: &DatagramReceivePlan,
    connected: bool,
) -> [LoopTally; 2] {
    let (near, far) = (udp(), udp());
    if receive.gro {
        set_int(&far, libc::SOL_UDP, UDP_GRO, 1).unwrap();
    }
    let mut to = Some(far.local_addr().unwrap());
    if connected {
        near.connect(to.take().unwrap()).unwrap();
    }
    let (stop, counters) = (Stopper::new(), LoopCounters::default());
    let mut sender = DatagramSender::new(send).unwrap();
    let mut recorder = TimeRecorder::new(false);
    let mut run = LoopContext {
        stop: &stop,
        counters: &counters,
        recorder: Some(&mut recorder),
    };
    let mut sent = sender.run(near.as_fd(), to, &mut run);
    sender.wait_for_completions(near.as_fd(), &stop, &mut sent);
    end_datagrams(near.as_fd(), to);
    assert!(matches!(sent.ended, LoopEnd::Limit), "{send:?}: {sent:?}");
    assert_eq!(counters.calls(), sent.send_calls);
    assert_eq!(counters.bytes(), sent.bytes_sent);

    let counters = LoopCounters::default();
    let mut receiver = DatagramReceiver::new(receive).unwrap();
    let mut run = LoopContext {
        stop: &stop,
        counters: &counters,
        recorder: None,
    };
    let came = receiver.run(far.as_fd(), &mut run);
    assert!(matches!(came.ended, LoopEnd::Eof), "{send:?}: {came:?}");
    assert_eq!(came.peer, Some(near.local_addr().unwrap()));
    assert!(came.began.is_some());
    assert_eq!(counters.calls(), came.receive_calls);
    assert_eq!(counters.bytes(), came.bytes_received);
    if let Some(tags) = receiver.tag_report() {
        assert_eq!(tags.received, came.receive_calls, "{send:?}");
        assert_eq!(tags.lost_datagrams(sent.send_calls), 0, "{send:?}");
        assert_eq!((tags.duplicate, tags.reordered), (0, 0));
        assert_eq!(tags.foreign, 0);
        assert_eq!(tags.highest, Some(sent.send_calls - 1));
        assert_eq!(tags.one_way.count(), came.receive_calls);
    }
    [sent, came]
}

#[test]
fn every_way_of_sending_meets_every_way_of_taking() {
    for (batch, gso, zerocopy) in [
        (0, false, false),
        (7, false, false),
        (7, true, false),
        (1, true, false),
        (0, false, true),
        (7, false, true),
    ] {
        for (taken, gro, discard) in [
            (0, false, false),
            (5, false, false),
            (3, true, false),
            (0, false, true),
            (4, false, true),
        ] {
            for connected in [false, true] {
                let send = DatagramSendPlan {
                    batch,
                    gso,
                    zerocopy,
                    ..send_plan(200, 100)
                };
                let receive = DatagramReceivePlan {
                    batch: taken,
                    gro,
                    discard,
                    connect: connected,
                    ..receive_plan(200)
                };
                let [sent, came] = one_way(&send, &receive, connected);
                // The batch that reaches the limit is sent whole.
                let all = 100_u64.next_multiple_of(u64::from(batch.max(1)));
                assert_eq!(sent.send_calls, all, "{send:?}");
                assert_eq!(sent.bytes_sent, all * 200);
                assert_eq!(came.receive_calls, all, "{send:?} {receive:?}");
                assert_eq!(came.bytes_received, all * 200, "{send:?} {receive:?}");
                assert_eq!(sent.failed_sends, 0);
                let completions = sent.zero_copy + sent.copied;
                assert_eq!(completions, if zerocopy { all } else { 0 });
            }
        }
    }
}

#[test]
fn segments_are_counted_one_by_one() {
    let send = DatagramSendPlan {
        batch: 1000,
        gso: true,
        ..send_plan(1000, 65)
    };
    // A batch has 64 segments, the kernel's maximum, and the one that reaches the limit is sent whole: 2 x 64.
    let [sent, came] = one_way(&send, &receive_plan(2000), false);
    assert_eq!((sent.send_calls, came.receive_calls), (128, 128));
    let large = DatagramSendPlan {
        batch: 1000,
        gso: true,
        ..send_plan(30_000, 3)
    };
    let gro = DatagramReceivePlan {
        gro: true,
        ..receive_plan(100)
    };
    let [sent, came] = one_way(&large, &gro, false);
    assert_eq!((sent.send_calls, came.receive_calls), (4, 4));
}

#[test]
fn small_datagrams_have_no_tag() {
    let receive = DatagramReceivePlan {
        tagged: false,
        ..receive_plan(64)
    };
    let [_, came] = one_way(&send_plan(1, 50), &receive, false);
    assert_eq!((came.receive_calls, came.bytes_received), (50, 50));
    let too_small = DatagramSendPlan {
        flow: Some(1),
        ..send_plan(17, 1)
    };
    assert!(DatagramSender::new(&too_small).is_err());
    for size in [0, 65_508] {
        assert!(DatagramSender::new(&send_plan(size, 1)).is_err(), "{size}");
    }
    assert!(DatagramReceiver::new(&receive_plan(0)).is_err());
}

#[test]
fn crafted_losses_duplicates_and_order_are_found() {
    for batch in [0, 4] {
        let (near, far) = (udp(), udp());
        let to = far.local_addr().unwrap();
        let tagged = |sequence: u32| {
            let mut bytes = [0; 40];
            let tag = Tag {
                flow: 9,
                sequence,
                time_ns: wall_ns(),
            };
            tag.write(bytes.first_chunk_mut().unwrap());
            near.send_to(&bytes, to).unwrap();
        };
        // Numbers 0 to 11: 3 and 8 are lost, 5 arrives twice, 6 after 7.
        for sequence in [0, 1, 2, 4, 5, 5, 7, 6, 9, 10, 11] {
            tagged(sequence);
        }
        near.send_to(b"something else, of no stream", to).unwrap();
        end_datagrams(near.as_fd(), Some(to));
        let (stop, counters) = (Stopper::new(), LoopCounters::default());
        let mut receiver = DatagramReceiver::new(&DatagramReceivePlan {
            batch,
            ..receive_plan(64)
        })
        .unwrap();
        let mut run = LoopContext {
            stop: &stop,
            counters: &counters,
            recorder: None,
        };
        let came = receiver.run(far.as_fd(), &mut run);
        assert_eq!(came.receive_calls, 12);
        let tags = receiver.tag_report().unwrap();
        assert_eq!((tags.received, tags.duplicate), (11, 1));
        assert_eq!((tags.reordered, tags.foreign), (1, 1));
        assert_eq!(tags.lost_datagrams(12), 2);
        assert!(tags.jitter_ns.is_some());
    }
}

#[test]
fn a_schedule_sends_all_that_is_due() {
    for (batch, spin) in [(0, false), (3, true)] {
        let send = DatagramSendPlan {
            rate: Some(20_000.0),
            batch,
            spin,
            ..send_plan(100, 60)
        };
        let began = now_ns();
        let [sent, came] = one_way(&send, &receive_plan(100), false);
        // Never early: the last is due 59 periods after the first.
        assert!(sent.unsent > 0 || now_ns() - began >= 57 * 50_000);
        assert_eq!((sent.send_calls, came.receive_calls), (60, 60));
    }
}

fn stopped(
    ready: impl Fn(&LoopCounters) -> bool,
    work: impl FnOnce(&mut LoopContext<'_>) -> LoopTally + Send + 'static,
) -> LoopTally {
    let stop = Stopper::new();
    let counters = Arc::new(LoopCounters::default());
    let (inside, count) = (stop.clone(), Arc::clone(&counters));
    let worker = thread::spawn(move || {
        let _guard = inside.register_thread();
        work(&mut LoopContext {
            stop: &inside,
            counters: &count,
            recorder: None,
        })
    });
    while !(stop.is_busy() && ready(&counters)) {
        thread::yield_now();
    }
    assert!(stop.stop_and_wait(PATIENCE));
    worker.join().unwrap()
}

#[test]
fn each_loop_stops() {
    for (batch, spin) in [(0, false), (4, false), (0, true), (4, true)] {
        // Before the first datagram, and after it.
        for some in [false, true] {
            let (near, far) = (udp(), udp());
            if some {
                near.send_to(&[1; 5], far.local_addr().unwrap()).unwrap();
            }
            let mut receiver = DatagramReceiver::new(&DatagramReceivePlan {
                batch,
                spin,
                ..receive_plan(64)
            })
            .unwrap();
            let tally = stopped(
                move |counters| !some || counters.calls() == 1,
                move |run| receiver.run(far.as_fd(), run),
            );
            assert!(matches!(tally.ended, LoopEnd::Stopped), "{tally:?}");
            assert_eq!(tally.receive_calls, u64::from(some));
        }
    }
    for (rate, spin) in [(None, false), (Some(0.001), false), (Some(0.001), true)] {
        let (near, far) = (udp(), udp());
        let to = far.local_addr().unwrap();
        let mut sender = DatagramSender::new(&DatagramSendPlan {
            limit: None,
            rate,
            spin,
            ..send_plan(64, 0)
        })
        .unwrap();
        let tally = stopped(
            |counters| counters.calls() > 0,
            move |run| sender.run(near.as_fd(), Some(to), run),
        );
        assert!(matches!(tally.ended, LoopEnd::Stopped), "{tally:?}");
        assert!(rate.is_none() || tally.send_calls == 1, "{tally:?}");
    }
}

#[test]
fn a_receiver_ends_at_its_limit() {
    let (near, far) = (udp(), udp());
    for _ in 0..10 {
        near.send_to(&[1; 100], far.local_addr().unwrap()).unwrap();
    }
    let (stop, counters) = (Stopper::new(), LoopCounters::default());
    let mut receiver = DatagramReceiver::new(&DatagramReceivePlan {
        limit: Some(550),
        ..receive_plan(100)
    })
    .unwrap();
    let mut run = LoopContext {
        stop: &stop,
        counters: &counters,
        recorder: None,
    };
    let came = receiver.run(far.as_fd(), &mut run);
    assert!(matches!(came.ended, LoopEnd::Limit));
    assert_eq!((came.receive_calls, came.bytes_received), (6, 600));
}
