//! Figures of HTTP loads.

use std::collections::BTreeMap;

use wb_figures::{
    Field, Merge, Plot, Section, Series, Show, Sum, Tone, Unit, Value, attach, counter, derived,
    fact, fields, gauge, merge_fields, text::count, times,
};
use wb_measure::Histogram;

use super::{
    Http2Report, Http3Report, HttpFailures, HttpJobReport, HttpRequestReport, HttpThreadReport,
    HttpTlsReport,
};
use crate::{
    Report, counted,
    criteria::Measured,
    figures::{CONNECTIONS, CPS, REQUESTS, RPS, share, sum},
    report::Times,
};

/// Causes of failures.
const CAUSES: &[&str] = &[
    "refused",
    "no_socket",
    "exhausted",
    "tls",
    "timeout",
    "connect_timeout",
    "first_byte_timeout",
    "idle_timeout",
    "version",
    "reset",
    "closed",
    "malformed",
    "stream_reset",
    "unprocessed",
    "check",
    "other",
];
const BYTES: Unit = Unit::Count("bytes");
const SENT: &str = "sent";
const ATTEMPTED: &str = "attempted_connections";

static COUNTS: &[Field<HttpJobReport>] = fields!(HttpJobReport:
    fact!("url", "URL", |j| (&j.url).into()).show(Show::Never),
    derived!("duration_ns", "duration", Unit::Nanoseconds, |j| Value::from(&j.duration_ns))
        .merged(|own, other| own.duration_ns = own.duration_ns.max(other.duration_ns)),
    gauge!(requests_per_second, "requests/s", RPS).leads().judged(&["rps"]).good(),
    gauge!(connections_per_second, "connections/s", CPS).judged(&["cps"]).good(),
    gauge!(received_bps, "received", Unit::BitsPerSecond).judged(&["bps"]).good(),
    counter!(totals.sent, "requests sent", REQUESTS),
    counter!(totals.completed, "completed", REQUESTS).leads().share_of(SENT),
    derived!("failed", "failed", REQUESTS, |j| j.totals.failed.sum().into()).share_of(SENT).leads().bad()
        .note(|j| listed(&j.totals.failed))
        .merged(|own, other| own.totals.failed += other.totals.failed),
    counter!(totals.in_flight, "in flight", REQUESTS),
    counter!(totals.unsent, "unsent", REQUESTS).bad().show(Show::IfAny)
        .note(|_| "due but never sent: no connection was free in time".to_owned()),
    counter!(totals.error_responses, "status 400 and above", REQUESTS).share_of(SENT).bad().show(Show::IfAny),
    derived!("failures", "failures", REQUESTS, |j| causes(&j.totals.failed)).labels("failed", CAUSES).show(Show::Never),
    counter!(totals.attempted_connections, "connections attempted", CONNECTIONS),
    counter!(totals.established_connections, "established", CONNECTIONS).share_of(ATTEMPTED),
    derived!("refused_connections", "not established", CONNECTIONS, |j| j.totals.refused_connections.sum().into())
        .share_of(ATTEMPTED).bad()
        .note(|j| listed(&j.totals.refused_connections))
        .merged(|own, other| own.totals.refused_connections += other.totals.refused_connections),
    derived!("refusals", "refusals", CONNECTIONS, |j| causes(&j.totals.refused_connections))
        .labels("not_made", CAUSES).show(Show::Never),
    counter!(totals.sent_bytes, "bytes sent", BYTES),
    counter!(totals.received_bytes, "bytes received", BYTES),
    counter!(totals.body_bytes, "part of them in bodies", BYTES),
    times!(latency_ns, "latency").leads().judged(&["", "http"]),
    times!(service_ns, "from send time").show(Show::IfAny),
    times!(first_byte_ns, "first byte"),
    times!(connect_ns, "connect").judged(&["connect"]),
    derived!("full_handshakes", "full TLS handshakes", CONNECTIONS, |j| j.tls.as_ref().map(|t| t.full_handshakes).into()),
    derived!("resumed_handshakes", "resumed TLS handshakes", CONNECTIONS, |j| {
        j.tls.as_ref().map(|t| t.resumed_handshakes).into()
    }),
);

static MORE: &[Field<HttpJobReport>] = fields!(HttpJobReport:
    counter!(totals.connecting, "still connecting", CONNECTIONS).show(Show::IfAny),
    counter!(totals.closed_connections, "closed", CONNECTIONS),
    counter!(totals.broken_connections, "broken", CONNECTIONS).bad(),
    gauge!(totals.open_connections, "open", CONNECTIONS),
    counter!(totals.warm_up_connections, "opened in the warm-up", CONNECTIONS).show(Show::IfAny),
    gauge!(steady_open_connections, "open at the end of the duration", CONNECTIONS).judged(&["open"]).show(Show::Never),
    counter!(totals.retried, "retried", REQUESTS).show(Show::IfAny)
        .note(|_| "on another connection: the server had not processed them".to_owned()),
    counter!(totals.warm_up, "warm-up", REQUESTS).show(Show::IfAny).note(|_| "requests, not counted".to_owned()),
    counter!(statuses, "statuses", REQUESTS).show(Show::IfAny),
    derived!("agreed", "TLS", CONNECTIONS, |j| j.tls.as_ref().map(|t| &t.agreed).into()).show(Show::IfAny),
    Field::<S>::distribution("handshake_ns", "TLS", |j| j.tls.as_ref().map(|t| &t.handshake_ns).into())
        .stored(|j| Some(&mut j.tls.as_mut()?.handshake_ns)),
    derived!("failed_share", "failed", Unit::Share, |j| j.failed_share()).judged(&["failed"]).bad().show(Show::Never),
    derived!("errors", "errors", Unit::Share, |j| share(j.totals.error_responses, j.totals.completed).into())
        .judged(&["errors"]).bad().show(Show::Never),
    derived!("unsent_share", "unsent", Unit::Share, |j| {
        share(j.totals.unsent, sum([j.totals.sent, j.totals.unsent])).into()
    }).judged(&["unsent"]).bad().show(Show::Never),
);

/// Times of a part of the requests.
static PART: &[Field<Times>] = fields!(Times:
    derived!("samples", "responses", REQUESTS, |t| t.samples.into()),
    derived!("p50", "p50", Unit::Nanoseconds, |t| t.statistic("p50").into()),
    derived!("p99", "p99", Unit::Nanoseconds, |t| t.statistic("p99").into()),
    derived!("max", "max", Unit::Nanoseconds, |t| t.statistic("max").into()),
);

static REQUEST: &[Field<HttpRequestReport>] = fields!(HttpRequestReport:
    fact!("request", "request", |r| (&r.name).into()),
    counter!(sent, "sent", REQUESTS),
    counter!(completed, "completed", REQUESTS),
    counter!(failed, "failed", REQUESTS).bad(),
    derived!("p50", "p50", Unit::Nanoseconds, |r| r.latency_ns.statistic("p50").into()),
    derived!("p99", "p99", Unit::Nanoseconds, |r| r.latency_ns.statistic("p99").into()),
    derived!("max", "max", Unit::Nanoseconds, |r| r.latency_ns.statistic("max").into()),
);

static THREAD: &[Field<HttpThreadReport>] = fields!(HttpThreadReport:
    derived!("connections", "connections", CONNECTIONS, |t| (&t.connections).into()),
    counter!(totals.sent, "sent", REQUESTS),
    counter!(totals.completed, "completed", REQUESTS),
    derived!("failed", "failed", REQUESTS, |t| t.totals.failed.sum().into()).bad(),
    derived!("cpu_ns", "CPU time", Unit::Nanoseconds, |t| Value::from(&t.cpu_ns)),
    derived!("cpu_each", "CPU/request", Unit::Nanoseconds, |t| share(t.cpu_ns, t.totals.completed).into()),
    counter!(lateness.stalls, "stalls", Unit::None),
    derived!("largest_gap_ns", "longest pause", Unit::Nanoseconds, |t| Value::from(&t.lateness.largest_gap_ns)),
);

const REQUEST_SUM: Sum = Sum::new(SENT, &["completed", "failed", "in_flight"]);
const CONNECTION_SUM: Sum = Sum::new(
    ATTEMPTED,
    &[
        "established_connections",
        "refused_connections",
        "connecting",
    ],
);
const END_SUM: Sum = Sum {
    minus: &["warm_up_connections"],
    ..Sum::new(
        "established_connections",
        &[
            "closed_connections",
            "broken_connections",
            "open_connections",
        ],
    )
};

static PLOTS: [Plot; 4] = [
    Plot::new(
        "requests",
        "Requests per second",
        Series::Rates(&[SENT, "completed", "unsent", "error_responses"]),
    ),
    Plot::new(
        "latency-course",
        "Latency per interval: mean, and percentiles within 3 %",
        Series::Times(&["latency_ns"]),
    ),
    Plot::new(
        "failures",
        "Failures per second, by cause",
        Series::Rates(&[
            "failed_refused",
            "failed_no_socket",
            "failed_exhausted",
            "failed_tls",
            "failed_timeout",
            "failed_connect_timeout",
            "failed_first_byte_timeout",
            "failed_idle_timeout",
            "failed_version",
            "failed_reset",
            "failed_closed",
            "failed_malformed",
            "failed_stream_reset",
            "failed_unprocessed",
            "failed_check",
            "failed_other",
            "no_connection_refused",
            "no_connection_no_socket",
            "no_connection_exhausted",
            "no_connection_tls",
            "no_connection_timeout",
            "no_connection_connect_timeout",
            "no_connection_first_byte_timeout",
            "no_connection_idle_timeout",
            "no_connection_version",
            "no_connection_reset",
            "no_connection_closed",
            "no_connection_malformed",
            "no_connection_stream_reset",
            "no_connection_unprocessed",
            "no_connection_check",
            "no_connection_other",
        ]),
    ),
    Plot::new(
        "throughput",
        "Throughput of requests and responses",
        Series::Rates(&["received_bytes", "sent_bytes"]),
    ),
];

/// Sections of all HTTP loads of a run.
pub fn sections(report: &Report) -> impl Iterator<Item = Section<'_>> {
    report.http.iter().flat_map(|http| &http.jobs).map(section)
}

/// Section of one HTTP load.
#[must_use]
pub fn section(job: &HttpJobReport) -> Section<'_> {
    let classes = job.classes.iter().filter(|_| job.classes.len() > 1);
    let classes = classes.map(|(class, times)| (class.into(), times));
    let requests = job.requests.iter().filter(|_| job.requests.len() > 1);
    let mut section = Section::new("http", "HTTP", &job.name, job.url.clone())
        .figures(COUNTS, job)
        .figures(MORE, job)
        .sum(REQUEST_SUM)
        .sum(CONNECTION_SUM)
        .sum(END_SUM)
        .table("Requests by name", REQUEST, requests)
        .named("Latency by status", "status", PART, classes)
        .table("Threads", THREAD, &job.threads)
        .detail(true)
        .plots(&PLOTS);
    for digest in &job.digests {
        section = section.note(Tone::Plain, Some(format!("body: {digest}")));
    }
    if job.service_ns.is_some() {
        section = section.rename("latency_ns", "from due time");
    }
    section
        .note(Tone::Plain, job.http2.as_ref().map(http2))
        .note(Tone::Plain, job.http3.as_ref().map(http3))
}

impl Measured for HttpJobReport {
    fn section(&self) -> Section<'_> {
        section(self)
    }
}

impl Merge for HttpJobReport {
    fn merge(&mut self, other: &Self) {
        for fields in [COUNTS, MORE] {
            merge_fields(fields, self, other);
        }
        self.since_due_ns.merge(&other.since_due_ns);
        self.since_sent_ns.merge(&other.since_sent_ns);
        for request in &other.requests {
            match self
                .requests
                .iter_mut()
                .find(|own| own.name == request.name)
            {
                Some(own) => {
                    merge_fields(REQUEST, own, request);
                    own.latency_ns.merge(&request.latency_ns);
                }
                None => self.requests.push(request.clone()),
            }
        }
        for (class, times) in &other.classes {
            self.classes.entry(class.clone()).or_default().merge(times);
        }
        self.threads.extend_from_slice(&other.threads);
        self.tls.merge(&other.tls);
        self.http2.merge(&other.http2);
        self.http3.merge(&other.http3);
        extend(&mut self.addresses, &other.addresses);
        extend(&mut self.digests, &other.digests);
        if self.first_failure.is_none() {
            self.first_failure.clone_from(&other.first_failure);
        }
    }
}

/// Adds the texts that are missing.
fn extend(own: &mut Vec<String>, other: &[String]) {
    for text in other {
        if !own.contains(text) {
            own.push(text.clone());
        }
    }
}

impl Merge for HttpTlsReport {
    fn merge(&mut self, other: &Self) {
        Merge::merge(&mut self.agreed, &other.agreed);
        self.full_handshakes.merge(&other.full_handshakes);
        self.resumed_handshakes.merge(&other.resumed_handshakes);
        self.handshake_ns.merge(&other.handshake_ns);
    }
}

impl Merge for Http2Report {
    fn merge(&mut self, other: &Self) {
        self.streams = self.streams.max(other.streams);
        self.allowed_streams = self
            .allowed_streams
            .into_iter()
            .chain(other.allowed_streams)
            .min();
        self.most_streams = self.most_streams.max(other.most_streams);
        Merge::merge(&mut self.resets, &other.resets);
        Merge::merge(&mut self.goaways, &other.goaways);
        self.cancelled.merge(&other.cancelled);
    }
}

impl Merge for Http3Report {
    fn merge(&mut self, other: &Self) {
        self.streams = self.streams.max(other.streams);
        self.most_streams = self.most_streams.max(other.most_streams);
        Merge::merge(&mut self.resets, &other.resets);
        Merge::merge(&mut self.closes, &other.closes);
        for (own, other) in [
            (&mut self.stream_waits, other.stream_waits),
            (&mut self.goaways, other.goaways),
            (&mut self.cancelled, other.cancelled),
            (&mut self.sent_packets, other.sent_packets),
            (&mut self.lost_packets, other.lost_packets),
            (&mut self.sent_datagrams, other.sent_datagrams),
            (&mut self.received_datagrams, other.received_datagrams),
        ] {
            own.merge(&other);
        }
    }
}

impl HttpJobReport {
    /// Gives the distributions of a job that was read from a report their values.
    pub(crate) fn attach(&mut self, values: impl Fn(&str) -> Option<Histogram>) {
        for fields in [COUNTS, MORE] {
            attach(fields, self, &values);
        }
        // These are not stored on their own.
        self.since_due_ns = self.latency_ns.clone();
        self.since_sent_ns = self
            .service_ns
            .clone()
            .unwrap_or_else(|| self.latency_ns.clone());
        if let [only] = self.requests.as_mut_slice() {
            only.latency_ns = self.latency_ns.clone();
        }
    }
}

impl HttpJobReport {
    /// Share of requests or connections that failed, whichever is larger.
    fn failed_share(&self) -> Value<'static> {
        let totals = &self.totals;
        let requests = sum([totals.failed.sum(), totals.in_flight]);
        let connections = totals.refused_connections.sum();
        let shares = [
            share(requests, totals.sent),
            share(connections, totals.attempted_connections),
        ];
        shares.into_iter().flatten().reduce(f64::max).into()
    }
}

fn causes(failures: &HttpFailures) -> Value<'static> {
    Value::Counts(failures.by_cause().to_vec())
}

/// Causes that occurred, in words.
fn listed(failures: &HttpFailures) -> String {
    let causes = failures.by_cause().into_iter().filter(|(_, n)| *n > 0);
    let causes = causes.map(|(cause, n)| format!("{} {cause}", count(n)));
    causes.collect::<Vec<_>>().join(", ")
}

/// Permitted and actual number of streams of a connection.
fn streams(asked: u32, most: u32) -> String {
    let streams = counted(asked, "concurrent stream", "concurrent streams");
    let mut text = format!("up to {streams} per connection");
    if most < asked {
        text += &format!(", at most {most} in use");
    }
    text
}

/// Appends the counts of codes: `; stream reset with CANCEL: 3`.
fn codes(text: &mut String, what: &str, codes: &BTreeMap<String, u64>) {
    for (code, n) in codes {
        *text += &format!("; {what} with {code}: {}", count(*n));
    }
}

fn http2(http2: &Http2Report) -> String {
    let mut text = format!("HTTP/2: {}", streams(http2.streams, http2.most_streams));
    if let Some(allowed) = http2.allowed_streams {
        text += &format!("; the server allows {}", count(allowed.into()));
    }
    codes(&mut text, "stream reset", &http2.resets);
    codes(&mut text, "GOAWAY", &http2.goaways);
    if http2.cancelled > 0 {
        text += &format!("; cancelled: {}", count(http2.cancelled));
    }
    text
}

fn http3(http3: &Http3Report) -> String {
    let mut text = format!("HTTP/3: {}", streams(http3.streams, http3.most_streams));
    codes(&mut text, "stream reset", &http3.resets);
    codes(&mut text, "connection closed", &http3.closes);
    for (what, n) in [
        ("waits for a free stream", http3.stream_waits),
        ("GOAWAY", http3.goaways),
        ("cancelled", http3.cancelled),
    ] {
        if n > 0 {
            text += &format!("; {what}: {}", count(n));
        }
    }
    text + &format!(
        "; {} sent, {} received; {} of {} packets lost",
        counted(count(http3.sent_datagrams), "datagram", "datagrams"),
        count(http3.received_datagrams),
        count(http3.lost_packets),
        count(http3.sent_packets)
    )
}
