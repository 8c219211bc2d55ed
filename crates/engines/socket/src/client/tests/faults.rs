//! Servers that are absent, refuse, fall silent or die.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use wb_netperf_wire::{Generation, OmniResponse, Refusal};

use super::*;

/// A server of one client with the given behaviour.
fn fake(behaviour: impl FnOnce(TcpStream) + Send + 'static) -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        behaviour(stream);
    });
    (port, server)
}

fn request(stream: &mut TcpStream) {
    stream.read_exact(&mut [0; 656]).unwrap();
}

fn response(data_port: u16) -> Vec<u8> {
    let response = OmniResponse {
        data_port,
        ..OmniResponse::default()
    };
    response.encode(Generation::Words164)
}

/// Short time limits, because these tests wait for them.
fn impatient() -> SocketTimeouts {
    SocketTimeouts {
        answer: Duration::from_millis(800),
        drain: Duration::from_millis(800),
        progress: Duration::from_millis(800),
        untold: Duration::from_millis(800),
        wished: Duration::from_millis(800),
    }
}

fn run_impatiently(job: &SocketJob) -> SocketJobReport {
    let stop = StopRequest::default();
    run_with_timeouts(
        job,
        JobPlace::default(),
        &Machine,
        &stop,
        &mut |_| {},
        impatient(),
    )
}

#[track_caller]
fn fails(report: &SocketJobReport, stage: SocketStage, text: &str) {
    let failed = report.failure.as_ref().expect("it cannot have worked");
    assert_eq!(failed.stage, stage, "{failed:?}");
    assert!(failed.what.contains(text), "{failed:?}");
    assert!(!failed.what.contains('\n'));
}

#[test]
fn a_name_that_nobody_knows() {
    let mut job = timed(1, SocketTest::Send, 1000);
    job.control.server = "no-such-host".to_owned();
    fails(
        &run(&job),
        SocketStage::Resolve,
        "no-such-host: Name or service not known",
    );
}

#[test]
fn a_port_that_is_closed() {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let report = run(&timed(port, SocketTest::Send, 1000));
    fails(&report, SocketStage::Connect, "Connection refused");
    assert_eq!(report.failure.unwrap().errno, Some(libc::ECONNREFUSED));
}

#[test]
fn a_server_that_refuses() {
    let (port, server) = fake(|mut stream| {
        request(&mut stream);
        let no = Refusal::new(98).unwrap().encode(98, Generation::Words164);
        stream.write_all(&no).unwrap();
        let _ = stream.read(&mut [0]);
    });
    let report = run_impatiently(&timed(port, SocketTest::Send, 1000));
    fails(&report, SocketStage::Remote, "Address already in use");
    assert_eq!(report.failure.unwrap().errno, Some(98));
    server.join().unwrap();
}

#[test]
fn a_control_connection_that_is_cut_in_a_message() {
    let (port, server) = fake(|mut stream| {
        request(&mut stream);
        stream.write_all(&response(7)[..100]).unwrap();
    });
    let report = run_impatiently(&timed(port, SocketTest::Send, 1000));
    fails(
        &report,
        SocketStage::Control,
        "100 of 656 bytes of its response",
    );
    server.join().unwrap();
}

#[test]
fn a_server_that_says_nothing() {
    let (port, server) = fake(|mut stream| {
        request(&mut stream);
        let _ = stream.read(&mut [0]);
    });
    let report = run_impatiently(&timed(port, SocketTest::Send, 1000));
    fails(&report, SocketStage::Control, "no response from the server");
    server.join().unwrap();
}

#[test]
fn a_wish_ends_the_wait_for_a_response() {
    let (port, server) = fake(|mut stream| {
        request(&mut stream);
        let _ = stream.read(&mut [0]);
    });
    let job = timed(port, SocketTest::Send, 1000);
    let stop = StopRequest::default();
    let report = thread::scope(|scope| {
        scope.spawn(|| {
            wb_testing::disturb(Duration::from_millis(50));
            stop.set();
        });
        // Time limit of two minutes: only the stop request can end the test.
        run_with_timeouts(
            &job,
            JobPlace::default(),
            &Machine,
            &stop,
            &mut |_| {},
            SocketTimeouts::default(),
        )
    });
    assert_eq!(report.failure, None);
    assert!(
        report
            .warnings
            .iter()
            .any(|w| w.contains("stopped before it started")),
        "{report:?}"
    );
    server.join().unwrap();
}

/// Accepts the data connection, reads nothing from it, and leaves the control connection open.
fn stalled() -> (u16, JoinHandle<()>) {
    fake(|mut stream| {
        request(&mut stream);
        let data = TcpListener::bind("127.0.0.1:0").unwrap();
        stream
            .write_all(&response(data.local_addr().unwrap().port()))
            .unwrap();
        let taken = data.accept();
        let _ = stream.read(&mut [0]);
        drop(taken);
    })
}

#[test]
fn a_server_that_stalls_does_not_hang_a_timed_test() {
    let (port, server) = stalled();
    let mut job = timed(port, SocketTest::Send, 300);
    job.interim = Some(Span::from_millis(100));
    let report = run_impatiently(&job);
    fails(
        &report,
        SocketStage::Data,
        "until the server closes its data connection",
    );
    // The results of this end are kept.
    assert!(report.local.bytes_sent > 0 && report.iterations.is_empty());
    assert!(!report.intervals.is_empty() && report.result.sent_bps > 0.0);
    server.join().unwrap();
}

#[test]
fn a_server_that_stalls_does_not_hang_a_counted_test() {
    for test in [
        SocketTest::Send,
        SocketTest::Receive,
        SocketTest::Rr,
        SocketTest::Crr,
    ] {
        let (port, server) = stalled();
        let report = run_impatiently(&counted(port, test, 1 << 30));
        fails(&report, SocketStage::Data, "no progress for");
        server.join().unwrap();
    }
}

#[test]
fn a_control_connection_that_ends_while_data_moves() {
    for test in [SocketTest::Send, SocketTest::Receive, SocketTest::Rr] {
        let (port, server) = fake(|mut stream| {
            request(&mut stream);
            let data = TcpListener::bind("127.0.0.1:0").unwrap();
            stream
                .write_all(&response(data.local_addr().unwrap().port()))
                .unwrap();
            let taken = data.accept();
            wb_testing::disturb(Duration::from_millis(100));
            drop(stream);
            wb_testing::disturb(Duration::from_millis(400));
            drop(taken);
        });
        let report = run_impatiently(&timed(port, test, 3_600_000));
        fails(
            &report,
            SocketStage::Control,
            "closed the control connection",
        );
        server.join().unwrap();
    }
}

/// Runs a job that only a stop request can end; the request comes after `first`. Panics if the job continues.
fn ends_by_a_wish(job: SocketJob, first: Duration) -> SocketJobReport {
    let hour = Duration::from_secs(3600);
    let patience = SocketTimeouts {
        answer: hour,
        drain: hour,
        progress: hour,
        untold: hour,
        wished: Duration::from_millis(50),
    };
    let stop = Arc::new(StopRequest::default());
    let (done, ended) = mpsc::channel();
    let wish = Arc::clone(&stop);
    thread::spawn(move || {
        let place = JobPlace::default();
        let report = run_with_timeouts(&job, place, &Machine, &stop, &mut |_| {}, patience);
        let _ = done.send(report);
    });
    wb_testing::disturb(first);
    wish.set();
    ended
        .recv_timeout(Duration::from_secs(60))
        .expect("it ends")
}

#[test]
fn a_wish_ends_the_wait_for_a_stalled_server() {
    let (port, server) = stalled();
    // The time is up and the connection is being taken down when the stop request comes.
    let report = ends_by_a_wish(
        timed(port, SocketTest::Send, 100),
        Duration::from_millis(500),
    );
    fails(
        &report,
        SocketStage::Data,
        "until the server closes its data connection",
    );
    assert!(report.local.bytes_sent > 0);
    server.join().unwrap();
}

#[test]
fn a_wish_ends_the_wait_for_results() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let serve = |mut stream: TcpStream| {
            request(&mut stream);
            let data = TcpListener::bind("127.0.0.1:0").unwrap();
            stream
                .write_all(&response(data.local_addr().unwrap().port()))
                .unwrap();
            let (mut data, _) = data.accept().unwrap();
            std::io::copy(&mut data, &mut std::io::sink()).unwrap();
            // The data ends normally; the results never come.
            drop(data);
            let _ = stream.read(&mut [0]);
        };
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
    let job = SocketJob {
        streams: 3,
        ..timed(port, SocketTest::Send, 100)
    };
    let report = ends_by_a_wish(job, Duration::from_millis(500));
    fails(&report, SocketStage::Control, "no results from the server");
    assert!(report.local.bytes_sent > 0);
}

#[test]
fn a_data_port_that_is_closed() {
    let (port, server) = fake(|mut stream| {
        request(&mut stream);
        let data = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        stream.write_all(&response(data)).unwrap();
        let _ = stream.read(&mut [0]);
    });
    let report = run_impatiently(&timed(port, SocketTest::Rr, 1000));
    fails(
        &report,
        SocketStage::Data,
        "cannot open the data connection to 127.0.0.1:",
    );
    assert_eq!(report.failure.unwrap().errno, Some(libc::ECONNREFUSED));
    server.join().unwrap();
}

#[test]
fn the_original_killed_in_the_middle() {
    for test in [
        SocketTest::Send,
        SocketTest::Receive,
        SocketTest::Rr,
        SocketTest::Crr,
    ] {
        let Some(mut server) = Original::start() else {
            return;
        };
        let mut job = timed(server.1, test, 60_000);
        job.interim = Some(Span::from_millis(50));
        let stop = StopRequest::default();
        let mut ticks = 0;
        let report = run_with_timeouts(
            &job,
            JobPlace::default(),
            &Machine,
            &stop,
            &mut |_| {
                ticks += 1;
                if ticks == 3 {
                    server.kill();
                }
            },
            impatient(),
        );
        let failed = report.failure.as_ref().expect("the server is dead");
        assert!(
            matches!(failed.stage, SocketStage::Data | SocketStage::Control),
            "{test:?} {failed:?}"
        );
        // Results measured until then are kept.
        assert!(
            report.iterations.is_empty() && report.intervals.len() >= 3,
            "{test:?}"
        );
        assert!(
            report.result.throughput_bps > 0.0,
            "{test:?} {:?}",
            report.result
        );
    }
}

#[test]
fn an_option_that_our_socket_refuses() {
    let server = Ours::start();
    let mut job = timed(server.2, SocketTest::Send, 1000);
    // This address belongs to no interface.
    job.data.local = Some("192.0.2.77".to_owned());
    let report = run(&job);
    fails(&report, SocketStage::Socket, "192.0.2.77");
    assert_eq!(report.failure.unwrap().errno, Some(libc::EADDRNOTAVAIL));
}
