//! Clients and servers of requests and responses against each other.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::AsFd,
    sync::Arc,
    thread,
    time::Duration,
};

use super::*;
use crate::{
    Stopper,
    flow::{LoopCounters, RequestPlan, Requester, TimeRecorder, clock, end_datagrams},
    sys::set_int,
};

const PATIENCE: Duration = Duration::from_secs(60);

fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let server = listener.accept().unwrap().0;
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    (client, server)
}

fn udp() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

fn buffers(size: u32) -> BufferPlan {
    BufferPlan {
        size,
        width: 1,
        ..BufferPlan::default()
    }
}

fn requests(request: u32, response: u32, limit: u64) -> RequestPlan {
    RequestPlan {
        request: buffers(request),
        response: buffers(response),
        limit: Some(limit),
        ..RequestPlan::default()
    }
}

fn responses(request: u32, response: u32) -> RespondPlan {
    RespondPlan {
        request: buffers(request),
        response: buffers(response),
        ..RespondPlan::default()
    }
}

struct Side {
    tally: LoopTally,
    counted: (u64, u64),
    recorded: u64,
}

fn alone(work: impl FnOnce(&mut LoopContext<'_>) -> LoopTally) -> Side {
    let (stop, counters) = (Stopper::new(), LoopCounters::default());
    let mut recorder = TimeRecorder::new(false);
    let tally = work(&mut LoopContext {
        stop: &stop,
        counters: &counters,
        recorder: Some(&mut recorder),
    });
    Side {
        tally,
        counted: (counters.transactions(), counters.bytes()),
        recorded: recorder.histogram().count(),
    }
}

#[test]
fn streams_exchange_exactly_what_was_asked_for() {
    for (first_burst, rate, spin) in [
        (0, None, false),
        (0, None, true),
        (7, None, false),
        (7, None, true),
        (0, Some(5000.0), false),
        (0, Some(5000.0), true),
    ] {
        for (request, response) in [(1, 1), (128, 1024), (3000, 7)] {
            let (near, far) = tcp();
            let server = thread::spawn(move || {
                let mut plan = responses(request, response);
                plan.spin = spin;
                let mut responder = Responder::new(&plan).unwrap();
                alone(|run| responder.run(far.as_fd(), run))
            });
            let mut requester = Requester::new(&RequestPlan {
                first_burst,
                rate,
                spin,
                ..requests(request, response, 100)
            })
            .unwrap();
            let client = alone(|run| requester.run(near.as_fd(), None, run));
            near.shutdown(std::net::Shutdown::Write).unwrap();
            let server = server.join().unwrap();
            assert!(
                matches!(client.tally.ended, LoopEnd::Limit),
                "{:?}",
                client.tally
            );
            assert!(
                matches!(server.tally.ended, LoopEnd::Eof),
                "{:?}",
                server.tally
            );
            let (asked, given) = (100 * u64::from(request), 100 * u64::from(response));
            for side in [&client, &server] {
                assert_eq!(side.tally.transactions, 100);
                assert_eq!(side.counted, (100, asked + given));
                assert_eq!(side.recorded, 100);
            }
            assert_eq!(client.tally.bytes_sent, asked);
            assert_eq!(client.tally.bytes_received, given);
            assert_eq!(server.tally.bytes_received, asked);
            assert_eq!(server.tally.bytes_sent, given);
            assert_eq!(client.tally.unanswered, 0);
        }
    }
}

#[test]
fn large_messages_under_way_do_not_block_both_ends() {
    let (near, far) = tcp();
    let size = 3 << 20;
    for socket in [&near, &far] {
        for name in [libc::SO_SNDBUF, libc::SO_RCVBUF] {
            set_int(socket, libc::SOL_SOCKET, name, 20_000).unwrap();
        }
    }
    let server = thread::spawn(move || {
        let mut responder = Responder::new(&responses(size, size)).unwrap();
        alone(|run| responder.run(far.as_fd(), run))
    });
    let mut requester = Requester::new(&RequestPlan {
        first_burst: 3,
        ..requests(size, size, 6)
    })
    .unwrap();
    let client = alone(|run| requester.run(near.as_fd(), None, run));
    near.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.tally.transactions, 6);
    assert_eq!(server.join().unwrap().tally.transactions, 6);
}

#[test]
fn datagrams_are_answered_to_where_they_came_from() {
    for (connect, packet_info, spin, first_burst, rate) in [
        (false, false, false, 0, None),
        (true, false, false, 0, None),
        (false, true, false, 0, None),
        (false, true, true, 0, None),
        (false, false, true, 5, None),
        (true, false, false, 5, None),
        (false, false, false, 0, Some(4000.0)),
    ] {
        let server = if packet_info {
            let server = UdpSocket::bind("0.0.0.0:0").unwrap();
            set_int(&server, libc::IPPROTO_IP, libc::IP_PKTINFO, 1).unwrap();
            server
        } else {
            udp()
        };
        // Another address of the same host: an answer from elsewhere does not reach a socket that is connected to it.
        let at = if packet_info {
            Ipv4Addr::new(127, 9, 9, 9)
        } else {
            Ipv4Addr::LOCALHOST
        };
        let to = SocketAddr::from((at, server.local_addr().unwrap().port()));
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        near.connect(to).unwrap();
        let source = near.local_addr().unwrap();
        let serves = thread::spawn(move || {
            let mut responder = Responder::new(&RespondPlan {
                datagrams: true,
                connect,
                packet_info,
                spin,
                ..responses(100, 300)
            })
            .unwrap();
            alone(|run| responder.run(server.as_fd(), run))
        });
        let mut requester = Requester::new(&RequestPlan {
            datagrams: true,
            spin,
            first_burst,
            rate,
            timeout: Some(PATIENCE),
            ..requests(100, 300, 50)
        })
        .unwrap();
        let client = alone(|run| requester.run(near.as_fd(), None, run));
        end_datagrams(near.as_fd(), None);
        let served = serves.join().unwrap();
        assert!(
            matches!(client.tally.ended, LoopEnd::Limit),
            "{:?}",
            client.tally
        );
        assert!(
            matches!(served.tally.ended, LoopEnd::Eof),
            "{:?}",
            served.tally
        );
        for side in [&client, &served] {
            assert_eq!(side.tally.transactions, 50);
            assert_eq!(side.counted, (50, 50 * 400));
        }
        assert_eq!(served.tally.peer, Some(source));
        assert_eq!((client.tally.given_up, client.tally.unanswered), (0, 0));
    }
}

/// A datagram server that loses the requests at the positions in `lost`.
fn forgetful(
    server: UdpSocket,
    lost: &'static [usize],
    gives_back: bool,
) -> thread::JoinHandle<usize> {
    thread::spawn(move || {
        let mut bytes = [0; 100];
        let mut place = 0;
        loop {
            let (got, source) = server.recv_from(&mut bytes).unwrap();
            if got == 0 {
                return place;
            }
            if !lost.contains(&place) {
                let mut answer = *b"netperf\0netperf\0";
                if gives_back {
                    give_number_back(&bytes[..got], &mut answer);
                }
                server.send_to(&answer, source).unwrap();
            }
            place += 1;
        }
    })
}

#[test]
fn lost_datagrams_are_given_up_and_the_rest_goes_on() {
    for (first_burst, rate, gives_back) in [
        (0, None, true),
        (0, None, false),
        (4, None, true),
        (0, Some(2000.0), true),
    ] {
        let (near, far) = (udp(), udp());
        let to = Some(far.local_addr().unwrap());
        let server = forgetful(far, &[0, 10, 11, 29], gives_back);
        let mut requester = Requester::new(&RequestPlan {
            datagrams: true,
            first_burst,
            rate,
            timeout: Some(Duration::from_millis(300)),
            ..requests(16, 16, 40)
        })
        .unwrap();
        let client = alone(|run| requester.run(near.as_fd(), to, run));
        end_datagrams(near.as_fd(), to);
        let tally = client.tally;
        assert!(matches!(tally.ended, LoopEnd::Limit), "{tally:?}");
        assert_eq!((tally.transactions, client.recorded), (40, 40));
        // A machine that stalls for longer than the timeout may lose more, never fewer.
        assert!(tally.given_up >= 4, "{tally:?}");
        let seen = server.join().unwrap() as u64;
        assert_eq!(seen, tally.send_calls, "{tally:?}");
        assert_eq!(
            tally.send_calls,
            tally.transactions + tally.given_up + tally.unanswered
        );
    }
}

#[test]
fn an_answer_that_comes_late_is_not_the_next_ones() {
    let (near, far) = (udp(), udp());
    let to = Some(far.local_addr().unwrap());
    let server = thread::spawn(move || {
        let mut first = [0; 16];
        let mut second = [0; 16];
        far.recv_from(&mut first).unwrap();
        // The first is given up; its answer arrives just before the second's.
        let (_, source) = far.recv_from(&mut second).unwrap();
        far.send_to(&first, source).unwrap();
        far.send_to(&second, source).unwrap();
    });
    let mut requester = Requester::new(&RequestPlan {
        datagrams: true,
        timeout: Some(Duration::from_millis(200)),
        ..requests(16, 16, 1)
    })
    .unwrap();
    let client = alone(|run| requester.run(near.as_fd(), to, run));
    server.join().unwrap();
    let tally = client.tally;
    assert_eq!((tally.transactions, tally.given_up), (1, 1));
    assert_eq!((tally.send_calls, tally.receive_calls), (2, 2));
}

#[test]
fn time_counts_from_when_a_request_was_due() {
    let (near, mut far) = tcp();
    let (waits, until) = std::sync::mpsc::channel::<()>();
    let server = thread::spawn(move || {
        let mut bytes = [0; 20];
        // The first ten are answered only when the others have arrived, so they were sent meanwhile.
        far.read_exact(&mut bytes[..10]).unwrap();
        until.recv().unwrap();
        far.read_exact(&mut bytes[10..]).unwrap();
        far.write_all(&bytes).unwrap();
    });
    let mut requester = Requester::new(&RequestPlan {
        rate: Some(1000.0),
        ..requests(1, 1, 20)
    })
    .unwrap();
    let (stop, counters) = (Stopper::new(), LoopCounters::default());
    let mut recorder = TimeRecorder::new(false);
    wb_testing::disturb(Duration::from_millis(1));
    let from = clock::now_ns();
    let releases = thread::spawn(move || {
        wb_testing::disturb(Duration::from_millis(150));
        waits.send(()).unwrap();
    });
    let tally = requester.run(
        near.as_fd(),
        None,
        &mut LoopContext {
            stop: &stop,
            counters: &counters,
            recorder: Some(&mut recorder),
        },
    );
    releases.join().unwrap();
    server.join().unwrap();
    assert_eq!(tally.transactions, 20);
    let times = recorder.histogram();
    // The n-th was due n ms after the first, and all were answered after 150 ms. No time may be shorter than 150 ms
    // minus at most 19 ms. Times measured from the sends would be.
    assert!(times.min().unwrap() >= 125_000_000, "{:?}", times.min());
    assert!(times.max().unwrap() <= clock::now_ns() - from);
}

#[test]
fn each_loop_stops() {
    for (first_burst, rate, spin, datagrams) in [
        (0, None, false, false),
        (0, None, true, false),
        (3, None, false, false),
        (0, Some(100.0), false, false),
        (0, Some(0.001), true, false),
        (0, None, false, true),
        (0, None, true, true),
        (3, None, false, true),
    ] {
        let plan = RequestPlan {
            first_burst,
            rate,
            spin,
            datagrams,
            limit: None,
            ..requests(8, 8, 0)
        };
        let mut requester = Requester::new(&plan).unwrap();
        let (near, far) = tcp();
        let (quiet, silent) = (udp(), udp());
        let to = silent.local_addr().unwrap();
        let tally = stopped(move |run| {
            if datagrams {
                requester.run(quiet.as_fd(), Some(to), run)
            } else {
                requester.run(near.as_fd(), None, run)
            }
        });
        assert!(
            matches!(tally.ended, LoopEnd::Stopped),
            "{plan:?}: {tally:?}"
        );
        assert_eq!(tally.transactions, 0);
        assert!(tally.unanswered >= tally.send_calls, "{tally:?}");
        drop((far, silent));
    }
    for (spin, datagrams) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut responder = Responder::new(&RespondPlan {
            spin,
            datagrams,
            ..responses(8, 8)
        })
        .unwrap();
        let (near, far) = tcp();
        let silent = udp();
        let tally = stopped(move |run| {
            if datagrams {
                responder.run(silent.as_fd(), run)
            } else {
                responder.run(far.as_fd(), run)
            }
        });
        assert!(matches!(tally.ended, LoopEnd::Stopped), "{tally:?}");
        drop(near);
    }
}

fn stopped(work: impl FnOnce(&mut LoopContext<'_>) -> LoopTally + Send + 'static) -> LoopTally {
    let stop = Stopper::new();
    let counters = Arc::new(LoopCounters::default());
    let inside = stop.clone();
    let worker = thread::spawn(move || {
        let _guard = inside.register_thread();
        work(&mut LoopContext {
            stop: &inside,
            counters: &counters,
            recorder: None,
        })
    });
    while !stop.is_busy() {
        thread::yield_now();
    }
    assert!(stop.stop_and_wait(PATIENCE));
    worker.join().unwrap()
}

#[test]
fn one_exchange_for_a_connection() {
    let (near, far) = tcp();
    let server = thread::spawn(move || {
        let mut responder = Responder::new(&responses(10, 5000)).unwrap();
        let (stop, counters) = (Stopper::new(), LoopCounters::default());
        let mut run = LoopContext {
            stop: &stop,
            counters: &counters,
            recorder: None,
        };
        responder.exchange_once(far.as_fd(), &mut run).unwrap();
        let ended = responder.exchange_once(far.as_fd(), &mut run).unwrap_err();
        assert!(matches!(ended, LoopEnd::Eof), "{ended:?}");
        assert_eq!(counters.transactions(), 0);
    });
    let mut requester = Requester::new(&requests(10, 5000, 1)).unwrap();
    let (stop, counters) = (Stopper::new(), LoopCounters::default());
    let mut run = LoopContext {
        stop: &stop,
        counters: &counters,
        recorder: None,
    };
    requester.exchange_once(near.as_fd(), &mut run).unwrap();
    drop(near);
    server.join().unwrap();
    assert!(Requester::new(&requests(0, 1, 1)).is_err());
    assert!(Responder::new(&responses(1, 0)).is_err());
}

#[test]
fn a_server_ends_at_its_limit() {
    let (mut near, far) = tcp();
    near.write_all(&[0; 30]).unwrap();
    let mut responder = Responder::new(&RespondPlan {
        limit: Some(2),
        ..responses(10, 3)
    })
    .unwrap();
    let server = alone(|run| responder.run(far.as_fd(), run));
    assert!(matches!(server.tally.ended, LoopEnd::Limit));
    assert_eq!(server.tally.bytes_sent, 6);
    drop(far);
    let mut all = Vec::new();
    let _ = near.read_to_end(&mut all);
    assert!(all.len() <= 6);
}
