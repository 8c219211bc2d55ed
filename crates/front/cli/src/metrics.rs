//! `--metrics ADDR`: the figures of a run for Prometheus, read from what screens and reports are made of.
//!
//! Threads of their own answer, a few at a time, each for a bounded time: who reads slowly, sends garbage or says
//! nothing is let go. The run only puts down what it has seen.

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

/// Readers at a time; the next ones are sent away.
const MOST_READERS: usize = 4;
/// Bytes of a request, with its head.
const MOST_REQUEST: usize = 8 * 1024;
/// How long a reader may take for everything.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where metrics are served, and how long.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Output and judgement")]
pub(crate) struct MetricsArgs {
    /// Serve the figures of the run at http://ADDR/metrics, for Prometheus (OpenMetrics, or its older text). Port 0: a free one; it is told.
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) metrics: Option<Address>,
    /// Go on serving them this long after the end, or until a signal.
    #[arg(long, value_name = "TIME", default_value = "0s", requires = "metrics")]
    pub(crate) metrics_linger: Span,
}

/// Where to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// At all addresses of the machine.
    All(u16),
    /// At one.
    One(SocketAddr),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port = text.strip_prefix(':').and_then(|port| port.parse().ok());
        let one = || text.parse().map(Self::One);
        port.map_or_else(one, |port| Ok(Self::All(port)))
            .map_err(|_| {
                "127.0.0.1:9464, [::1]:9464 or :9464 (all addresses) is allowed".to_owned()
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
                    // No IPv6 here.
                    _ => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)),
                }
            }),
        }
    }
}

/// What readers are shown. It is replaced, so they never hold up who puts it there.
type Shared = Arc<Mutex<Arc<Seen>>>;

/// The server of this process.
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

/// Begins to serve metrics, where that was asked for; before anything of the run is open.
///
/// # Errors
/// When it cannot listen there.
pub(crate) fn serve(args: &MetricsArgs, signals: &Signals) -> Result<()> {
    let Some(address) = args.metrics else {
        return Ok(());
    };
    let place = match address {
        Address::All(port) => format!(":{port}"),
        Address::One(address) => address.to_string(),
    };
    let failed = |e: io::Error| anyhow!("--metrics {place}: cannot listen there: {e}");
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
        return Err(anyhow!("--metrics {place}: metrics are served already"));
    }
    say(format_args!("metrics at http://{local}/metrics"));
    Ok(())
}

/// Shows these figures to readers, where there are any. For runs use [`run`].
pub(crate) fn publish(with: impl FnOnce(&mut Seen)) {
    if let Some(server) = SERVER.get() {
        change(&server.shared, with);
    }
}

/// Runs what is prepared; readers of metrics see what the observer sees.
///
/// # Errors
/// As [`Prepared::run`].
pub(crate) fn run(prepared: Prepared, observer: &mut dyn Observer) -> Result<Finished, StartError> {
    if SERVER.get().is_none() {
        return prepared.run(observer);
    }
    // Scripts make several runs, one after another: no figure of the last one is this one's.
    publish(|seen| *seen = Seen::default());
    let finished = prepared.run(&mut Watched { observer })?;
    publish(|seen| {
        seen.figures = finished.report.timeline.last();
        seen.report = Some(finished.report.clone());
    });
    Ok(finished)
}

/// Goes on serving as long as was asked for. After a signal there is nobody to wait for.
pub(crate) fn linger() {
    let Some(server) = SERVER.get() else { return };
    let until = Instant::now() + server.linger;
    while Instant::now() < until && server.signals.interrupted().is_none() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// An observer, and the readers of metrics beside it.
struct Watched<'a> {
    observer: &'a mut dyn Observer,
}

impl Observer for Watched<'_> {
    fn started(&mut self) {
        self.observer.started();
    }

    fn view(&mut self, view: &View) {
        publish(|seen| seen.snapshot = Some(view.snapshot.clone()));
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
            // No file descriptors, say: that passes.
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
                // Who goes away or is too slow is not worth a word.
                let _ = answer(&stream, &shared, Instant::now() + PATIENCE);
                // Before the reader sees the end of the answer and asks again.
                counted.fetch_sub(1, Ordering::AcqRel);
                let _ = stream.shutdown(Shutdown::Write);
            });
        if begun.is_err() {
            readers.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Tells one reader too many so. The next ones wait meanwhile, so it has a moment for that and no more.
fn turn_away(stream: TcpStream) {
    let _ = stream.set_read_timeout(Some(Duration::from_millis(50)));
    // What was not read would be answered with a reset.
    let _ = (&stream).read(&mut [0; 1024]);
    let _ = deliver(
        &stream,
        // The empty send buffer takes the answer at once.
        Instant::now() + PATIENCE,
        "503 Service Unavailable\r\nRetry-After: 1",
        "text/plain",
        "four others are reading; try again\n",
        true,
    );
    let _ = stream.shutdown(Shutdown::Write);
}

/// What is left of a reader's time.
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
    // Proxies are asked by whole addresses (RFC 9112, 3.2.2).
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
            // Prometheus asks for OpenMetrics; who does not may know the older text alone, as promtool.
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
