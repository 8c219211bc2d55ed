//! `--metrics ADDR`: figures of a run for Prometheus, from the same data as screens and reports.
//!
//! Dedicated threads answer a few requests at a time, each within a time limit. Slow or silent clients and malformed
//! requests are dropped. The run only publishes its latest figures and never waits for a client.

use std::{
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    str::FromStr,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use clap::Args;
use wb_model::{timeline::Timeline, units::Span};
use wb_render::metrics::{MEDIA_TYPE, OLDER_MEDIA_TYPE, Seen, older, text};
use wb_session::{Finished, Observer, Prepared, Signals, StartError, View};

use crate::say::say;

/// Maximum number of concurrent clients; further clients are turned away.
const MOST_READERS: usize = 4;
/// Maximum size of a request including its headers, in bytes.
const MOST_REQUEST: usize = 8 * 1024;
/// Time limit for one client, from connect to close.
const PATIENCE: Duration = Duration::from_secs(5);

/// Address and linger time of the metrics server.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Output and judgement")]
pub(crate) struct MetricsArgs {
    /// Serve the figures at http://ADDR/metrics (OpenMetrics or Prometheus text); port 0 picks and prints a free
    /// port.
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) metrics: Option<Address>,
    /// Time to keep serving after the end of the run, or until a signal.
    #[arg(long, value_name = "TIME", default_value = "0s", requires = "metrics")]
    pub(crate) metrics_linger: Span,
}

/// Listen address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// All addresses of the host.
    All(u16),
    /// One address.
    One(SocketAddr),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port = text.strip_prefix(':').and_then(|port| port.parse().ok());
        let one = || text.parse().map(Self::One);
        port.map_or_else(one, |port| Ok(Self::All(port)))
            .map_err(|_| {
                "expected an address such as 127.0.0.1:9464, [::1]:9464 or :9464 (all addresses)"
                    .to_owned()
            })
    }
}

impl Address {
    fn listen(self) -> io::Result<TcpListener> {
        match self {
            Self::One(address) => TcpListener::bind(address),
            Self::All(port) => TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).or_else(|e| {
                match e.kind() {
                    io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied => Err(e),
                    // The host has no IPv6.
                    _ => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)),
                }
            }),
        }
    }
}

/// Figures shown to clients. They are replaced as a whole, so a client never blocks the publisher.
type Shared = Arc<Mutex<Arc<Seen>>>;

/// Metrics server of this process.
struct Server {
    shared: Shared,
    linger: Duration,
    signals: Signals,
}

static SERVER: OnceLock<Server> = OnceLock::new();

fn change(shared: &Shared, change: impl FnOnce(&mut Seen)) {
    let mut seen = shared.lock().unwrap_or_else(PoisonError::into_inner);
    change(Arc::make_mut(&mut seen));
}

/// Starts the metrics server if the options ask for it, before the run opens anything.
///
/// # Errors
/// If the address cannot be listened on.
pub(crate) fn serve(args: &MetricsArgs, signals: &Signals) -> Result<()> {
    let Some(address) = args.metrics else {
        return Ok(());
    };
    let place = match address {
        Address::All(port) => format!(":{port}"),
        Address::One(address) => address.to_string(),
    };
    let failed = |e: io::Error| anyhow!("--metrics: cannot listen on {place}: {e}");
    let listener = address.listen().map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    let shared = Shared::default();
    let shown = Arc::clone(&shared);
    std::thread::Builder::new()
        .name("wb-metrics".to_owned())
        .spawn(move || accept(&listener, &shown))
        .map_err(failed)?;
    let server = Server {
        shared,
        linger: Duration::from_nanos(args.metrics_linger.as_nanos()),
        signals: signals.clone(),
    };
    if SERVER.set(server).is_err() {
        return Err(anyhow!(
            "--metrics: cannot serve {place}: metrics are already served"
        ));
    }
    say(format_args!("metrics at http://{local}/metrics"));
    Ok(())
}

/// Publishes figures if a metrics server runs. For runs use [`run`].
pub(crate) fn publish(with: impl FnOnce(&mut Seen)) {
    if let Some(server) = SERVER.get() {
        change(&server.shared, with);
    }
}

/// Runs a prepared plan and publishes everything that its observer sees.
///
/// # Errors
/// The errors of [`Prepared::run`].
pub(crate) fn run(prepared: Prepared, observer: &mut dyn Observer) -> Result<Finished, StartError> {
    watch(observer, |observer| prepared.run(observer))
}

/// Runs something and publishes everything that its observer sees.
///
/// # Errors
/// The error of the run.
pub(crate) fn watch(
    observer: &mut dyn Observer,
    run: impl FnOnce(&mut dyn Observer) -> Result<Finished, StartError>,
) -> Result<Finished, StartError> {
    if SERVER.get().is_none() {
        return run(observer);
    }
    // A script may run several plans in turn. Figures of an earlier run do not carry over.
    publish(|seen| *seen = Seen::default());
    let finished = run(&mut Watched { observer })?;
    publish(|seen| {
        seen.figures = finished.report.timeline.last();
        seen.report = Some(finished.report.clone());
    });
    Ok(finished)
}

/// Keeps serving for the linger time. Returns at once after a signal.
pub(crate) fn linger() {
    let Some(server) = SERVER.get() else { return };
    let until = Instant::now() + server.linger;
    while Instant::now() < until && server.signals.interrupted().is_none() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Observer that also publishes to the metrics server.
struct Watched<'a> {
    observer: &'a mut dyn Observer,
}

impl Observer for Watched<'_> {
    fn started(&mut self) {
        self.observer.started();
    }

    fn view(&mut self, view: &View<'_>) {
        publish(|seen| {
            seen.snapshot = Some(view.snapshot.clone());
            seen.so_far = Some(view.report.jobs_alone());
        });
        self.observer.view(view);
    }

    fn recorded(&mut self, figures: &Timeline) {
        publish(|seen| seen.figures = figures.last());
        self.observer.recorded(figures);
    }
}

fn accept(listener: &TcpListener, shared: &Shared) {
    let readers = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((stream, _)) = listener.accept() else {
            // For example, no free file descriptors, which is temporary.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        if readers.fetch_add(1, Ordering::AcqRel) >= MOST_READERS {
            readers.fetch_sub(1, Ordering::AcqRel);
            turn_away(stream);
            continue;
        }
        let (shared, counted) = (Arc::clone(shared), Arc::clone(&readers));
        let begun = std::thread::Builder::new()
            .name("wb-metrics".to_owned())
            .spawn(move || {
                // A client that disconnects or is too slow is not worth a message.
                let _ = answer(&stream, &shared, Instant::now() + PATIENCE);
                // Before the client sees the end of the answer and sends the next request.
                counted.fetch_sub(1, Ordering::AcqRel);
                let _ = stream.shutdown(Shutdown::Write);
            });
        if begun.is_err() {
            readers.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Answers a client above the limit with an error. Other clients wait meanwhile, so the time is short.
fn turn_away(stream: TcpStream) {
    let _ = stream.set_read_timeout(Some(Duration::from_millis(50)));
    // Unread data would cause a reset on close.
    let _ = (&stream).read(&mut [0; 1024]);
    let _ = deliver(
        &stream,
        // The answer fits the empty send buffer, so it is written at once.
        Instant::now() + PATIENCE,
        "503 Service Unavailable\r\nRetry-After: 1",
        "text/plain",
        "too many readers (limit 4); try again\n",
        true,
    );
    let _ = stream.shutdown(Shutdown::Write);
}

/// Returns the remaining time of a client.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(io::ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}

fn answer(mut stream: &TcpStream, shared: &Shared, until: Instant) -> io::Result<()> {
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|w| w == b"\r\n\r\n") {
        if request.len() >= MOST_REQUEST {
            return deliver(
                stream,
                until,
                "431 Request Header Fields Too Large",
                "text/plain",
                "",
                true,
            );
        }
        stream.set_read_timeout(Some(left(until)?))?;
        match stream.read(&mut part)? {
            0 => return Ok(()),
            n => request.extend_from_slice(&part[..n]),
        }
    }
    let request = String::from_utf8_lossy(&request);
    let mut words = request.split_whitespace();
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    if !words
        .next()
        .is_some_and(|version| version.starts_with("HTTP/"))
    {
        return deliver(stream, until, "400 Bad Request", "text/plain", "", true);
    }
    // Proxies receive requests with absolute URIs (RFC 9112, 3.2.2).
    let target = match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => target,
    };
    let body = match method {
        "GET" => true,
        "HEAD" => false,
        _ => {
            return deliver(
                stream,
                until,
                "405 Method Not Allowed\r\nAllow: GET, HEAD",
                "text/plain",
                "",
                true,
            );
        }
    };
    match target.split('?').next() {
        Some("/metrics") => {
            let seen = Arc::clone(&shared.lock().unwrap_or_else(PoisonError::into_inner));
            let text = text(env!("CARGO_PKG_VERSION"), &seen);
            // Prometheus requests OpenMetrics. Other clients, such as promtool, may support only the older text
            // format.
            let asked = request.to_ascii_lowercase();
            let mut asked = asked.lines().filter(|l| l.starts_with("accept:"));
            match asked.any(|l| l.contains("application/openmetrics-text")) {
                true => deliver(stream, until, "200 OK", MEDIA_TYPE, &text, body),
                false => deliver(
                    stream,
                    until,
                    "200 OK",
                    OLDER_MEDIA_TYPE,
                    &older(&text),
                    body,
                ),
            }
        }
        _ => deliver(
            stream,
            until,
            "404 Not Found",
            "text/plain",
            "see /metrics\n",
            body,
        ),
    }
}

fn deliver(
    mut stream: &TcpStream,
    until: Instant,
    status: &str,
    kind: &str,
    text: &str,
    body: bool,
) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    let all = [head.as_str(), if body { text } else { "" }].concat();
    let mut rest = all.as_bytes();
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(until)?))?;
        match stream.write(rest)? {
            0 => return Ok(()),
            n => rest = &rest[n..],
        }
    }
    Ok(())
}
