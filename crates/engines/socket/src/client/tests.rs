//! The client against real servers on loopback: netserver, if installed, and wirebench; and against servers that
//! misbehave.

use std::{
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    sync::Arc,
    thread::{self, JoinHandle},
};

use wb_model::{
    socket::{
        Confidence, Family, SocketJob, SocketJobReport, SocketProtocol, SocketServerJob,
        SocketStage, SocketTest,
    },
    units::Span,
};

use super::{JobPlace, run_with_timeouts, stream_watch::SocketTimeouts};
use crate::{
    StopRequest,
    host::{CpuTimes, Host, Resolved},
    server::SocketServer,
};

mod faults;

struct Machine;

impl Host for Machine {
    fn resolve(&self, name: &str, _: Family) -> Result<Resolved, String> {
        let ip: IpAddr = match name {
            "localhost" => "127.0.0.1".parse().unwrap(),
            other => other
                .parse()
                .map_err(|_| "Name or service not known".to_owned())?,
        };
        Ok(Resolved {
            name: name.to_owned(),
            addresses: vec![ip],
            scope: 0,
        })
    }

    fn cpu_times(&self) -> Option<CpuTimes> {
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        let rows = stat.lines().filter_map(|line| {
            let mut words = line.strip_prefix("cpu")?.split_whitespace();
            let cpu = words.next()?.parse().ok()?;
            let mut row = [0; 10];
            for (place, word) in row.iter_mut().zip(words) {
                *place = word.parse().ok()?;
            }
            Some((cpu, row))
        });
        // The line of all CPUs together begins with `cpu ` and would count as one.
        let rows = rows.filter(|(cpu, _)| *cpu < 4096).collect();
        Some(CpuTimes { cpus: rows })
    }

    fn bind_cpu(&self, _: u32) -> Result<(), String> {
        Ok(())
    }

    fn has_address(&self, _: IpAddr) -> bool {
        true
    }
}

/// netserver in a separate process group.
struct Original(Child, u16);

impl Original {
    /// Returns `None`, with a printed reason, if netserver is not installed.
    fn start() -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let started = Command::new("netserver")
            .args(["-D", "-N", "-4", "-p", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        let server = match started {
            Ok(child) => Self(child, port),
            Err(error) => {
                wb_testing::skipped(format_args!("no netserver here ({error})"));
                return None;
            }
        };
        wb_testing::eventually("netserver listens", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Some(server)
    }

    fn kill(&mut self) {
        let group = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.0.wait();
    }
}

impl Drop for Original {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A wirebench server in a thread.
struct Ours(Arc<StopRequest>, Option<JoinHandle<()>>, u16);

impl Ours {
    fn start() -> Self {
        let job = SocketServerJob {
            listen: Some("127.0.0.1".to_owned()),
            port: 0,
            ..SocketServerJob::default()
        };
        let server = SocketServer::bind(&job, Arc::new(Machine)).unwrap();
        let port = server.local_addresses()[0].port();
        let stop = Arc::new(StopRequest::default());
        let wish = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            server.serve(&wish, &mut |_| {});
        });
        Self(stop, Some(thread), port)
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.0.set();
        if let Some(thread) = self.1.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking());
        }
    }
}

fn job(port: u16, test: SocketTest) -> SocketJob {
    let mut job = SocketJob {
        test,
        ..SocketJob::default()
    };
    job.control.port = port;
    job.control.server = "localhost".to_owned();
    job
}

fn timed(port: u16, test: SocketTest, ms: u64) -> SocketJob {
    SocketJob {
        duration: Some(Span::from_millis(ms)),
        ..job(port, test)
    }
}

fn counted(port: u16, test: SocketTest, amount: u64) -> SocketJob {
    SocketJob {
        duration: None,
        amount: Some(amount),
        ..job(port, test)
    }
}

fn run(job: &SocketJob) -> SocketJobReport {
    let stop = StopRequest::default();
    let place = JobPlace {
        index: 0,
        count: 1,
        seed: u64::from(std::process::id()),
    };
    run_with_timeouts(
        job,
        place,
        &Machine,
        &stop,
        &mut |_| {},
        SocketTimeouts::default(),
    )
}

#[track_caller]
fn good(job: &SocketJob) -> SocketJobReport {
    let report = run(job);
    assert_eq!(report.failure, None, "{job:?}\n{:?}", report.warnings);
    report
}

/// Streams and transactions with counts: one end receives what the other sent.
fn counts_agree(port: u16, classic: bool) {
    let with = |test, amount| {
        let mut job = counted(port, test, amount);
        job.control.classic = classic;
        job
    };
    let sent = good(&with(SocketTest::Send, 1_000_000));
    assert!(sent.local.bytes_sent >= 1_000_000, "{sent:?}");
    let (left, came) = (sent.local.bytes_sent, sent.remote.bytes_received);
    // netserver may leave the rest of the last send uncounted.
    let least = if sent.extended || classic {
        left
    } else {
        1_000_000
    };
    assert!((least..=left).contains(&came), "{came} of {left}");
    assert!(sent.result.throughput_bps > 0.0 && sent.result.elapsed_s > 0.0);
    assert!(sent.segment_bytes.is_some() && sent.local.tcp.is_some());
    assert!(sent.local.send_buffer[1].is_some() && sent.remote.receive_buffer[1].is_some());
    if !classic {
        let got = good(&with(SocketTest::Receive, 1_000_000));
        assert!(got.local.bytes_received >= 1_000_000, "{got:?}");
        assert_eq!(got.local.bytes_received, got.remote.bytes_sent);
        let mut job = with(SocketTest::Rr, 50);
        (job.request_size, job.response_size) = (100, 7000);
        let rr = good(&job);
        assert_eq!((rr.result.transactions, rr.local.bytes_sent), (50, 5000));
        assert_eq!(
            (rr.remote.bytes_received, rr.remote.bytes_sent),
            (5000, 350_000)
        );
        assert_eq!(rr.local.bytes_received, 350_000);
    }
    for test in [SocketTest::Crr, SocketTest::Cc] {
        if classic && test == SocketTest::Crr {
            continue;
        }
        let mut job = with(test, 20);
        job.latency = true;
        let connections = good(&job);
        assert_eq!(connections.result.transactions, 20, "{test:?}");
        assert_eq!(connections.latency_ns.samples, 20);
    }
    if classic {
        let mss = good(&with(SocketTest::Mss, 1));
        assert!(
            mss.segment_bytes.is_some_and(|bytes| bytes > 500),
            "{mss:?}"
        );
    }
}

/// Checks that the client received what the server sent. netserver does not count the send that its clock interrupts;
/// wirebench does, so its count is exact.
#[track_caller]
fn received(report: &SocketJobReport, streams: u64) {
    let (got, sent) = (report.local.bytes_received, report.remote.bytes_sent);
    let partly = if report.extended { 0 } else { streams * 16384 };
    assert!(
        (sent..=sent + partly).contains(&got),
        "{got} of {sent}, {partly} more at most"
    );
}

/// Connections until the clock ends them: netserver must be waited for, wirebench receives the end message.
fn connections_end(port: u16) {
    for (test, classic) in [(SocketTest::Crr, false), (SocketTest::Cc, false)] {
        let mut job = timed(port, test, 500);
        job.control.classic = classic;
        let report = good(&job);
        assert!(report.result.transactions > 0, "{test:?}");
        assert!(report.result.transactions_per_second > 0.0);
        let bytes = if test == SocketTest::Crr {
            report.result.transactions
        } else {
            0
        };
        assert!(report.remote.bytes_received >= bytes, "{report:?}");
    }
}

fn clocks_agree(port: u16) {
    let mut job = timed(port, SocketTest::Send, 1000);
    job.local.measure_cpu = true;
    job.remote.measure_cpu = true;
    job.interim = Some(Span::from_millis(250));
    let sent = good(&job);
    assert_eq!(sent.local.bytes_sent, sent.remote.bytes_received);
    // The clock of netserver may be slightly ahead.
    assert!(sent.result.elapsed_s >= 0.99, "{}", sent.result.elapsed_s);
    let (local, remote) = (
        sent.result.local_cpu.unwrap(),
        sent.result.remote_cpu.unwrap(),
    );
    assert!(local.cpus > 0 && remote.cpus > 0, "{local:?} {remote:?}");
    assert!(sent.result.local_service_demand.is_some());
    let units: u64 = sent.intervals.iter().map(|interval| interval.units).sum();
    assert_eq!(units, sent.local.bytes_sent);
    assert!(sent.intervals.len() >= 2);
    assert!(
        sent.intervals
            .iter()
            .all(|interval| interval.tcp.len() == 1)
    );
    let got = good(&timed(port, SocketTest::Receive, 1000));
    received(&got, 1);
    let mut job = timed(port, SocketTest::Rr, 1000);
    job.latency = true;
    let rr = good(&job);
    assert_eq!(rr.latency_ns.samples, rr.result.transactions);
    assert!(rr.result.transactions > 0);
}

fn datagrams_agree(port: u16) {
    let mut job = timed(port, SocketTest::Send, 1000);
    job.protocol = SocketProtocol::Udp;
    job.local.send_size = Some(1000);
    // An occasional pause, so that a slow machine loses nothing.
    job.local.burst = 4;
    job.local.burst_interval = Span::from_millis(5);
    let sent = good(&job);
    assert!(
        sent.local.send_calls > 0 && sent.remote.receive_calls > 0,
        "{sent:?}"
    );
    assert!(sent.remote.bytes_received <= sent.local.bytes_sent);
    assert_eq!(sent.remote.bytes_received, 1000 * sent.remote.receive_calls);
    let mut job = timed(port, SocketTest::Receive, 1000);
    job.protocol = SocketProtocol::Udp;
    job.remote.send_size = Some(500);
    let got = good(&job);
    assert!(got.local.bytes_received > 0, "{got:?}");
    assert_eq!(got.local.bytes_received, 500 * got.local.receive_calls);
    assert!(got.local.bytes_received <= got.remote.bytes_sent);
    let mut job = counted(port, SocketTest::Rr, 30);
    job.protocol = SocketProtocol::Udp;
    job.timeout = Some(Span::from_secs(2));
    let rr = good(&job);
    assert_eq!(rr.result.transactions, 30);
}

#[test]
fn the_original_and_we_count_the_same() {
    let Some(server) = Original::start() else {
        return;
    };
    all_agree(server.1);
}

#[test]
fn our_server_and_we_count_the_same() {
    all_agree(Ours::start().2);
}

/// Runs in parallel, because the tests mostly wait.
fn all_agree(port: u16) {
    let checks: [fn(u16); 5] = [
        |port| counts_agree(port, false),
        |port| counts_agree(port, true),
        clocks_agree,
        datagrams_agree,
        connections_end,
    ];
    std::thread::scope(|scope| {
        for check in checks {
            scope.spawn(move || check(port));
        }
    });
}

#[test]
fn several_streams_with_the_original_share_a_window() {
    let Some(server) = Original::start() else {
        return;
    };
    streams_share(server.1);
}

#[test]
fn several_streams_with_ours_share_a_window() {
    streams_share(Ours::start().2);
}

fn streams_share(port: u16) {
    let mut job = timed(port, SocketTest::Both, 1000);
    job.streams = 2;
    let both = good(&job);
    let names: Vec<&str> = both.streams.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["up 1", "down 1", "up 2", "down 2"]);
    let sum = |way: &str| -> f64 {
        let rows = both.streams.iter().filter(|row| row.name.starts_with(way));
        rows.map(|row| row.throughput_bps).sum()
    };
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-6 * a.max(1.0);
    assert!(close(both.result.throughput_bps, sum("up")), "{both:?}");
    assert!(
        close(both.result.reverse_bps.unwrap(), sum("down")),
        "{both:?}"
    );
    assert!(sum("up") > 0.0 && sum("down") > 0.0);
    assert!(
        both.fairness
            .is_some_and(|share| share > 0.0 && share <= 1.0 + 1e-9)
    );
    // The window is not longer than the test.
    assert!(both.result.elapsed_s > 0.0, "{}", both.result.elapsed_s);
    assert_eq!(both.local.bytes_sent, both.remote.bytes_received);
    received(&both, 2);
    let mut job = counted(port, SocketTest::Rr, 40);
    job.streams = 3;
    let rr = good(&job);
    assert_eq!(rr.remote.bytes_received, 120);
    assert_eq!(rr.streams.len(), 3);
}

#[test]
fn repetitions_go_over_the_same_control_connection() {
    let server = Ours::start();
    let mut job = counted(server.2, SocketTest::Rr, 20);
    job.warm_up = Span::from_millis(200);
    job.confidence = Some(Confidence {
        level: 99,
        width: 0.000_001,
        min: 3,
        max: 4,
        result_only: true,
    });
    let report = good(&job);
    assert_eq!(report.iterations.len(), 4);
    let confidence = report.confidence.unwrap();
    assert!(
        !confidence.reached && confidence.result > 0.0,
        "{confidence:?}"
    );
    let sum: f64 = report
        .iterations
        .iter()
        .map(|one| one.transactions_per_second)
        .sum();
    assert!((report.result.transactions_per_second - sum / 4.0).abs() < 1e-6 * sum);
    // Any result satisfies this width, so the minimum number of iterations ends the test.
    job.confidence.as_mut().unwrap().width = 1e12;
    job.warm_up = Span::default();
    let report = good(&job);
    assert_eq!(report.iterations.len(), 3);
    assert!(report.confidence.unwrap().reached);
}

#[test]
fn our_server_knows_tags_and_the_original_does_not() {
    let server = Ours::start();
    let mut job = timed(server.2, SocketTest::Send, 500);
    job.protocol = SocketProtocol::Udp;
    job.local.send_size = Some(100);
    job.rate = Some(500.0);
    job.tagged = true;
    let report = good(&job);
    assert!(report.extended, "{:?}", report.warnings);
    let seen = report.datagrams.expect("the server counts numbers");
    assert_eq!(seen.sent, report.local.send_calls);
    assert_eq!(seen.lost, seen.sent - (seen.received - seen.duplicate));
    assert!(seen.received > 0 && seen.foreign == 0 && seen.one_way_ns.max.is_some());
    let Some(original) = Original::start() else {
        return;
    };
    job.control.port = original.1;
    job.duration = Some(Span::from_secs(1));
    let report = good(&job);
    assert!(!report.extended && report.datagrams.is_none());
    assert!(
        report
            .warnings
            .iter()
            .any(|w| w.contains("loss, order and delay are unknown"))
    );
}

#[test]
fn what_is_omitted_is_in_no_figure() {
    let server = Ours::start();
    let mut job = timed(server.2, SocketTest::Rr, 1000);
    job.omit = Span::from_millis(600);
    job.latency = true;
    let report = good(&job);
    // 0.4 s remain, plus the delay of a slow machine.
    assert!(report.result.elapsed_s < 0.9, "{}", report.result.elapsed_s);
    assert!(report.latency_ns.samples > 0);
    assert!(report.result.transactions > 0);
    assert!(report.remote.bytes_received > report.result.transactions);
    assert!(report.latency_ns.samples < report.remote.bytes_received);
}

#[test]
fn an_idle_phase_comes_before_the_loaded_one() {
    let server = Ours::start();
    let mut job = timed(server.2, SocketTest::Rr, 500);
    job.load_streams = 2;
    let report = good(&job);
    let idle = report.idle_latency_ns.unwrap();
    assert!(idle.samples > 0 && report.latency_ns.samples > 0);
    assert!(report.load_bps.unwrap() > 0.0);
    let names: Vec<&str> = report.streams.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["rr 1", "load up 1", "load down 2"]);
}

#[test]
fn a_wish_ends_it_with_results() {
    let mut servers = vec![Ours::start().2];
    let keep = Ours::start();
    servers[0] = keep.2;
    let original = Original::start();
    servers.extend(original.as_ref().map(|server| server.1));
    for port in servers {
        for test in [SocketTest::Send, SocketTest::Receive, SocketTest::Rr] {
            let mut job = timed(port, test, 3_600_000);
            job.interim = Some(Span::from_millis(50));
            let stop = StopRequest::default();
            let mut ticks = 0;
            let place = JobPlace::default();
            let report = run_with_timeouts(
                &job,
                place,
                &Machine,
                &stop,
                &mut |live| {
                    ticks += 1;
                    assert!(live.interval_s > 0.0);
                    if ticks >= 3 {
                        stop.set();
                    }
                },
                SocketTimeouts::default(),
            );
            assert_eq!(report.failure, None, "{test:?} {:?}", report.warnings);
            assert_eq!(report.iterations.len(), 1, "{test:?}");
            assert!(report.result.throughput_bps > 0.0, "{test:?}");
            assert!(report.result.elapsed_s < 3000.0);
            assert!(ticks >= 3);
        }
    }
}

#[test]
fn the_servers_cpus_are_asked_for() {
    let server = Ours::start();
    let report = good(&job(server.2, SocketTest::ServerCpu));
    let cpu = report.result.remote_cpu.unwrap();
    assert!(cpu.cpus > 0 && cpu.total > 0.0, "{cpu:?}");
}

#[test]
fn without_a_control_connection_data_goes_to_the_service() {
    let echo = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = echo.local_addr().unwrap().port();
    let service = thread::spawn(move || {
        let (mut stream, _) = echo.accept().unwrap();
        let mut back = stream.try_clone().unwrap();
        std::io::copy(&mut stream, &mut back).unwrap()
    });
    let mut job = counted(1, SocketTest::Rr, 25);
    job.control.none = true;
    job.data.server_port = port;
    (job.request_size, job.response_size) = (64, 1);
    let report = good(&job);
    assert_eq!(report.result.transactions, 25);
    assert_eq!(report.local.bytes_received, 1600);
    assert_eq!(service.join().unwrap(), 1600);
    assert_eq!(
        report.data_server,
        SocketAddr::from(([127, 0, 0, 1], port)).to_string()
    );
}
