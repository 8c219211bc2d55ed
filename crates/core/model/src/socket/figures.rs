//! Figures of socket tests.

use std::borrow::Cow;

use wb_figures::{
    Def, Field, Kind, Plot, Section, Series, Show, Sum, Tone, Unit, Value, counter, derived, fact,
    fields, gauge,
    text::{count, rate_bps, significant},
};

use super::{
    SocketEndReport, SocketInterval, SocketJobReport, SocketServerReport, SocketStreamReport,
    SocketTest, TcpSample,
};
use crate::{
    Report, counted,
    figures::{CONNECTIONS, share},
};

const BYTES: Unit = Unit::Count("bytes");
const DATAGRAMS: Unit = Unit::Count("datagrams");
const CALLS: Unit = Unit::Count("calls");
const SEGMENTS: Unit = Unit::Count("segments");
const TESTS: Unit = Unit::Count("tests");
const TPS: Unit = Unit::PerSecond("transactions");

static COUNTS: &[Field<SocketJobReport>] = fields!(SocketJobReport:
    fact!("test", "test", |j| (&j.name).into()).show(Show::Never),
    fact!("server", "server", |j| (&j.server).into()).show(Show::Never),
    fact!("link", "link", |j| (&j.link).into()).show(Show::IfAny),
    derived!("elapsed_s", "time", Unit::Seconds, |j| j.result.elapsed_s.into()),
    gauge!(result.throughput_bps, "throughput", Unit::BitsPerSecond).leads().judged(&["bps"]).good(),
    gauge!(result.reverse_bps, "reverse throughput", Unit::BitsPerSecond).good(),
    gauge!(result.transactions_per_second, "transactions/s", TPS).leads().judged(&["tps"]).good(),
    derived!("runs", "runs", Unit::Count("runs"), |j| (j.iterations.len() as u64).into()),
    derived!("confidence_level", "confidence level", Unit::Percent, |j| j.confidence.map(|c| u64::from(c.level)).into())
        .show(Show::Never),
    derived!("confidence_width_percent", "confidence interval", Unit::Percent, |j| {
        j.confidence.map(|c| c.result).into()
    }).show(Show::Never),
    fact!("confidence_reached", "confidence reached", |j| j.confidence.map(|c| c.reached).into()).show(Show::Never),
    derived!("local_send_buffer", "local send buffer", Unit::Bytes, |j| j.local.send_buffer[1].into())
        .show(Show::Never),
    derived!("local_receive_buffer", "local receive buffer", Unit::Bytes, |j| j.local.receive_buffer[1].into())
        .show(Show::Never),
    derived!("remote_send_buffer", "remote send buffer", Unit::Bytes, |j| j.remote.send_buffer[1].into())
        .show(Show::Never),
    derived!("remote_receive_buffer", "remote receive buffer", Unit::Bytes, |j| j.remote.receive_buffer[1].into())
        .show(Show::Never),
    derived!("local_send_size", "local message", Unit::Bytes, |j| (&j.local.send_size).into()).show(Show::Never),
    derived!("remote_send_size", "remote message", Unit::Bytes, |j| (&j.remote.send_size).into()).show(Show::Never),
    derived!("bytes_sent", "bytes sent", BYTES, |j| j.local.bytes_sent.into()).show(Show::Never),
    derived!("bytes_received", "bytes received", BYTES, |j| j.local.bytes_received.into()).show(Show::Never),
    derived!("remote_bytes_sent", "remote bytes sent", BYTES, |j| j.remote.bytes_sent.into()).show(Show::Never),
    derived!("remote_bytes_received", "remote bytes received", BYTES, |j| j.remote.bytes_received.into())
        .show(Show::Never),
    derived!("retransmissions", "retransmissions", SEGMENTS, |j| j.retransmissions().into()).show(Show::Never),
    derived!("local_cpu_percent", "local CPU", Unit::Percent, |j| j.result.local_cpu.map(|c| c.total).into())
        .show(Show::IfAny),
    derived!("remote_cpu_percent", "remote CPU", Unit::Percent, |j| j.result.remote_cpu.map(|c| c.total).into())
        .show(Show::IfAny),
    derived!("datagrams_sent", "datagrams sent", DATAGRAMS, |j| j.datagrams.map(|d| d.sent).into()),
    derived!("datagrams_lost", "lost", DATAGRAMS, |j| j.datagrams.map(|d| d.lost).into()).leads()
        .share_of("datagrams_sent").bad(),
    Field::<S>::distribution("latency_ns", "operation", |j| (&j.latency_ns).into()).leads().judged(&[""]),
    fact!("failure", "failure", |j| j.failure.as_ref().map(|f| &f.what).into()).show(Show::Never),
);

static MORE: &[Field<SocketJobReport>] = fields!(SocketJobReport:
    derived!("datagrams_received", "datagrams received", DATAGRAMS, |j| j.datagrams.map(|d| d.received).into()),
    derived!("datagrams_duplicate", "duplicate", DATAGRAMS, |j| j.datagrams.map(|d| d.duplicate).into()),
    derived!("datagrams_reordered", "reordered", DATAGRAMS, |j| j.datagrams.map(|d| d.reordered).into()),
    derived!("datagrams_foreign", "foreign", DATAGRAMS, |j| j.datagrams.map(|d| d.foreign).into()).show(Show::IfAny),
    derived!("jitter_rfc3550_ns", "jitter (RFC 3550)", Unit::Nanoseconds, |j| {
        j.datagrams.and_then(|d| d.jitter_rfc3550_ns).into()
    }),
    derived!("sent_bps", "sent", Unit::BitsPerSecond, |j| {
        j.protocol.is_datagram().then_some(j.result.sent_bps).into()
    }).show(Show::IfAny),
    derived!("transactions", "transactions", Unit::Count("transactions"), |j| j.result.transactions.into())
        .show(Show::IfAny),
    derived!("segment_bytes", "segment", Unit::Bytes, |j| (&j.segment_bytes).into()),
    derived!("streams", "streams", Unit::Count("streams"), |j| (j.streams.len() as u64).into()).show(Show::Never),
    derived!("fairness", "fairness (Jain)", Unit::None, |j| {
        j.fairness.filter(|_| j.streams.len() > 1).into()
    }),
    derived!("load_bps", "load", Unit::BitsPerSecond, |j| (&j.load_bps).into()),
    fact!("confidence", "confidence", |j| j.confidence().into()),
    Field::<S>::distribution("idle_latency_ns", "idle", |j| (&j.idle_latency_ns).into()),
    Field::<S>::distribution("one_way_ns", "one way", |j| j.datagrams.as_ref().map(|d| &d.one_way_ns).into()),
);

static END: &[Field<SocketEndReport>] = fields!(SocketEndReport:
    counter!(bytes_sent, "sent", BYTES).show(Show::IfAny),
    counter!(bytes_received, "received", BYTES).show(Show::IfAny),
    counter!(send_calls, "sends", CALLS).show(Show::IfAny),
    counter!(receive_calls, "receives", CALLS).show(Show::IfAny),
    derived!("send_buffer", "SO_SNDBUF", BYTES, |e| e.send_buffer[1].into()),
    derived!("receive_buffer", "SO_RCVBUF", BYTES, |e| e.receive_buffer[1].into()),
    counter!(retransmissions, "retransmits", SEGMENTS),
    fact!("congestion", "congestion", |e| (&e.congestion).into()).show(Show::IfAny),
);

static STREAM: &[Field<SocketStreamReport>] = fields!(SocketStreamReport:
    gauge!(throughput_bps, "throughput", Unit::BitsPerSecond).show(Show::IfAny),
    gauge!(transactions_per_second, "transactions/s", TPS).show(Show::IfAny),
    derived!("sent", "sent", BYTES, |s| known(s.bytes_sent, s.remote_bytes_sent)).show(Show::IfAny),
    derived!("received", "received", BYTES, |s| known(s.bytes_received, s.remote_bytes_received)).show(Show::IfAny),
    derived!("lost", "lost", Unit::Share, |s| s.datagrams.and_then(|d| share(d.lost, d.sent)).into()),
    derived!("jitter", "jitter", Unit::Nanoseconds, |s| s.datagrams.and_then(|d| d.jitter_rfc3550_ns).into()),
    counter!(retransmissions, "retransmits", SEGMENTS),
    derived!("rtt", "RTT", Unit::Nanoseconds, |s| s.tcp.map(|t| f64::from(t.rtt_us) * 1e3).into()),
    derived!("window", "window", SEGMENTS, |s| s.tcp.map(|t| t.cwnd).into()),
    derived!("p50", "p50", Unit::Nanoseconds, |s| s.latency_ns.statistic("p50").into()),
    derived!("p99", "p99", Unit::Nanoseconds, |s| s.latency_ns.statistic("p99").into()),
);

/// Columns of the table of intervals. A row also needs the row before it.
fn interval_columns() -> Vec<Def> {
    let column = |name, label, unit| Def::new(name, label, unit, Kind::Gauge);
    vec![
        column("from_s", "from", Unit::Seconds),
        column("to_s", "to", Unit::Seconds),
        column("throughput_bps", "throughput", Unit::BitsPerSecond).show(Show::IfAny),
        column("transactions_per_second", "transactions/s", TPS).show(Show::IfAny),
        column("up_bps", "up", Unit::BitsPerSecond),
        column("down_bps", "down", Unit::BitsPerSecond),
        column("lost", "lost", DATAGRAMS),
        column("jitter_ns", "jitter", Unit::Nanoseconds),
        column("retransmissions", "retransmits", SEGMENTS),
        column("rtt_ns", "RTT", Unit::Nanoseconds),
        column("window", "window", SEGMENTS),
        column("p50_ns", "p50", Unit::Nanoseconds),
        column("p99_ns", "p99", Unit::Nanoseconds),
        column("max_ns", "max", Unit::Nanoseconds),
    ]
}

static SERVER: &[Field<SocketServerReport>] = fields!(SocketServerReport:
    counter!(clients, "clients", CONNECTIONS),
    counter!(turned_away, "rejected", CONNECTIONS),
    counter!(strangers, "unexpected peers", CONNECTIONS),
    counter!(given_up, "closed by the server", CONNECTIONS),
    counter!(unauthorised, "unauthorised", CONNECTIONS),
    counter!(tests, "tests", TESTS),
    counter!(completed, "completed", TESTS),
    counter!(failed, "failed", TESTS),
    counter!(bytes_received, "bytes received", BYTES),
    counter!(bytes_sent, "bytes sent", BYTES),
);

const DATAGRAM_SUM: Sum = Sum {
    minus: &["datagrams_duplicate"],
    ..Sum::new("datagrams_sent", &["datagrams_received", "datagrams_lost"])
};

static PLOTS: [Plot; 7] = [
    Plot::new(
        "throughput",
        "Throughput",
        Series::Levels(&["throughput_bps"]),
    ),
    Plot::new(
        "transactions",
        "Transactions",
        Series::Levels(&["transactions_per_second"]),
    ),
    Plot::new(
        "interval-throughput",
        "Throughput per interval",
        Series::Columns(
            "Intervals",
            "to_s",
            &["throughput_bps", "up_bps", "down_bps"],
        ),
    ),
    Plot::new(
        "interval-transactions",
        "Transactions per interval",
        Series::Columns("Intervals", "to_s", &["transactions_per_second"]),
    ),
    Plot::new(
        "times",
        "Operation time per interval",
        Series::Columns("Intervals", "to_s", &["p50_ns", "p99_ns", "max_ns"]),
    ),
    Plot::new(
        "rtt",
        "TCP round-trip time, first stream",
        Series::Columns("Intervals", "to_s", &["rtt_ns"]),
    ),
    Plot::new(
        "window",
        "Congestion window of the first stream, retransmissions of all",
        Series::Columns("Intervals", "to_s", &["window", "retransmissions"]),
    ),
];

/// Sections of all socket tests of a run.
pub fn sections(report: &Report) -> impl Iterator<Item = Section<'_>> {
    let jobs = report.socket.iter().flat_map(|socket| &socket.jobs);
    jobs.map(|job| {
        let mut section = section(job);
        // Without an answer, no address is known.
        if job.server.is_empty()
            && let Some(plan) = report
                .plan
                .sockets
                .iter()
                .find(|plan| plan.name == job.name)
        {
            section.title += &plan.control.server;
        }
        section
    })
}

/// Section of a server.
pub fn server(report: &Report) -> impl Iterator<Item = Section<'_>> {
    let server = report
        .socket
        .iter()
        .filter_map(|socket| socket.server.as_ref());
    server.map(|server| {
        Section::new("server", "Socket server", "server", String::new()).figures(SERVER, server)
    })
}

/// Section of one test.
#[must_use]
pub fn section(job: &SocketJobReport) -> Section<'_> {
    let title = format!("{} {}", job.description(), job.server);
    let ends = [("local", &job.local), ("remote", &job.remote)];
    let ends = ends.map(|(name, end)| (name.into(), end));
    let streams = job.streams.iter().filter(|_| job.streams.len() > 1);
    let streams = streams.map(|stream| (stream.name.as_str().into(), stream));
    let failure = job
        .failure
        .as_ref()
        .map(|failure| match job.iterations.is_empty() {
            true => format!("failed: {}", failure.what),
            false => format!(
                "failed: {}; these are the results before the failure",
                failure.what
            ),
        });
    let mut section = Section::new("socket", "Socket tests", &job.name, title)
        .figures(COUNTS, job)
        .figures(MORE, job)
        .named("Ends", "end", END, ends)
        .named("Streams", "stream", STREAM, streams)
        .rows("Intervals", interval_columns(), interval_rows(job))
        .note(Tone::Bad, failure)
        .note(Tone::Plain, job.local.tcp.as_ref().map(tcp))
        .note(Tone::Plain, job.omitted())
        .plots(&PLOTS);
    section.parameters = Cow::Borrowed(&job.point);
    if job.datagrams.is_some() {
        section = section.sum(DATAGRAM_SUM);
    }
    if job.idle_latency_ns.is_some() {
        section = section.rename("latency_ns", "under load");
    }
    // Hides the results that the test does not measure.
    let not_measured: &[&str] = match job.test {
        SocketTest::Mss => &[
            "throughput_bps",
            "transactions_per_second",
            "runs",
            "elapsed_s",
        ],
        test if test.counts_transactions() => &["throughput_bps"],
        _ => &["transactions_per_second"],
    };
    not_measured
        .iter()
        .fold(section, |section, name| section.hide(name))
}

impl SocketJobReport {
    /// Description of the test in words: `TCP stream to`.
    #[must_use]
    pub fn description(&self) -> String {
        let protocol = format!("{:?}", self.protocol).to_uppercase();
        let test = match self.test {
            SocketTest::Send => "stream to",
            SocketTest::Receive => "stream from",
            SocketTest::Both => "streams to and from",
            SocketTest::Rr => "request/response with",
            SocketTest::Crr => "connect/request/response with",
            SocketTest::Cc => "connections to",
            SocketTest::Mss => "segment size to",
            SocketTest::ServerCpu => "CPU use of",
        };
        format!("{protocol} {test}")
    }

    fn confidence(&self) -> Option<Value<'static>> {
        let c = self.confidence?;
        let reached = if c.reached { "reached" } else { "NOT reached" };
        let text = format!(
            "+/- {} % at {} % confidence; target +/- {} %: {reached}",
            significant(c.result / 2.0, 3),
            c.level,
            significant(c.width / 2.0, 3)
        );
        Some(Value::Text(text.into()))
    }

    /// Data moved during `omit`, which the rates leave out.
    fn omitted(&self) -> Option<String> {
        let ends = [
            ("local", self.local.omitted),
            ("remote", self.remote.omitted),
        ];
        let ends = ends
            .into_iter()
            .filter_map(|(name, end)| Some(format!("{name} {} bytes", count(end?.bytes))));
        let ends: Vec<String> = ends.collect();
        (!ends.is_empty()).then(|| {
            format!(
                "omitted: {}; included in the byte counts, not in the rates",
                ends.join(", ")
            )
        })
    }
}

/// Count of this end or, if this end has none, of the other end.
fn known(own: u64, remote: Option<u64>) -> Value<'static> {
    match own {
        0 => remote.into(),
        own => own.into(),
    }
}

fn interval_rows(job: &SocketJobReport) -> impl Iterator<Item = Vec<Value<'_>>> {
    let mut before = 0_u64;
    let (moves, both) = (job.test.is_stream(), job.test == SocketTest::Both);
    job.intervals.iter().map(move |i: &SocketInterval| {
        let sum = i.tcp.iter().map(|t| u64::from(t.retransmissions)).sum();
        let again = (!i.tcp.is_empty()).then(|| u64::saturating_sub(sum, before));
        before = before.max(sum);
        let first = i.tcp.first();
        // Late datagrams can outnumber missing ones.
        let lost = i
            .streams
            .iter()
            .filter_map(|s| s.lost)
            .reduce(i64::saturating_add);
        let jitter = i
            .streams
            .iter()
            .filter_map(|s| s.jitter_rfc3550_ns)
            .reduce(f64::max);
        vec![
            i.from_s.into(),
            i.to_s.into(),
            moves.then_some(i.throughput_bps).into(),
            (!moves).then_some(i.transactions_per_second).into(),
            // In a test of one direction they add nothing.
            i.up_bps.filter(|_| both).into(),
            i.down_bps.filter(|_| both).into(),
            lost.map(|n| n as f64).into(),
            jitter.into(),
            again.into(),
            first.map(|t| f64::from(t.rtt_us) * 1e3).into(),
            first.map(|t| t.cwnd).into(),
            i.latency_ns.statistic("p50").into(),
            i.latency_ns.statistic("p99").into(),
            i.latency_ns.statistic("max").into(),
        ]
    })
}

fn tcp(t: &TcpSample) -> String {
    let pacing = match t.pacing_bps {
        // ~0 in bytes, which overflows in bits: no limit.
        u64::MAX => "unlimited".to_owned(),
        bps => rate_bps(bps as f64),
    };
    format!(
        "TCP: RTT {} us (min {}), window {} of {} bytes, pacing rate {pacing}, delivery rate {}; \
         limited by the receiver for {} ms, by the send buffer for {} ms",
        count(t.rtt_us.into()),
        count(t.min_rtt_us.into()),
        counted(count(t.cwnd.into()), "segment", "segments"),
        count(t.mss.into()),
        rate_bps(t.delivery_bps as f64),
        count(t.receiver_limited_us / 1000),
        count(t.buffer_limited_us / 1000),
    )
}
