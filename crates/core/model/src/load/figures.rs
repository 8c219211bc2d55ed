//! Figures of loads.

use wb_figures::{
    Field, Merge, Plot, Section, Series, Show, Sum, Tone, Unit, Value, attach, counter, derived,
    fact, fields, gauge, merge_fields, text::count, times,
};
use wb_measure::Histogram;

use super::{
    LoadEnd, LoadJobReport, LoadPhaseReport, LoadRouteReport, LoadTransport, LoadWorkerReport,
};
use crate::{
    Report, Totals,
    criteria::Measured,
    figures::{CONNECTIONS, CPS, FRAMES, PPS, REQUESTS, RPS, share, sum},
    frames::FRAME_TOTALS,
};

/// Causes of failed connections.
const CAUSES: &[&str] = &[
    "connect_timeout",
    "response_timeout",
    "close_timeout",
    "idle_timeout",
    "refused",
    "icmp_unreachable",
    "reset",
    "short",
    "malformed",
    "aborted",
];
const ATTEMPTED: &str = "attempted_connections";

static COUNTS: &[Field<LoadJobReport>] = fields!(LoadJobReport:
    fact!("port", "port", |j| (&j.port).into()).show(Show::Never),
    fact!("end", "end", |j| j.end.name().into()).show(Show::Never),
    fact!("transport", "transport", |j| j.transport.name().into()).show(Show::Never),
    counter!(totals.attempted_connections, "attempted", CONNECTIONS).leads(),
    counter!(totals.established_connections, "established", CONNECTIONS).leads().share_of(ATTEMPTED),
    counter!(totals.completed_connections, "completed", CONNECTIONS).share_of(ATTEMPTED).note(|j| j.cut()),
    counter!(totals.failed_connections, "failed", CONNECTIONS).leads().share_of(ATTEMPTED).bad(),
    gauge!(totals.open_connections, "open", CONNECTIONS).leads(),
    counter!(unsent_connections, "unsent", CONNECTIONS).bad().show(Show::IfAny)
        .note(|_| "connections due but never opened".to_owned()),
    counter!(no_tuple, "no free address and port", CONNECTIONS).bad().show(Show::IfAny)
        .note(|_| "part of the unsent connections".to_owned()),
    counter!(totals.requests, "requests", REQUESTS).note(|j| j.direction(LoadEnd::Client)),
    counter!(totals.responses, "responses", REQUESTS).note(|j| j.responses()),
    counter!(totals.lost_requests, "lost", REQUESTS).bad().show(Show::IfAny)
        .note(|_| "requests without a response in time".to_owned()),
    gauge!(totals.in_flight_requests, "in flight", REQUESTS).bad().show(Show::IfAny)
        .note(|_| "requests still without a response".to_owned()),
    counter!(totals.unawaited_requests, "unawaited", REQUESTS).show(Show::IfAny)
        .note(|_| "requests of a flood: no response is expected".to_owned()),
    counter!(unsent_requests, "unsent requests", REQUESTS).bad().show(Show::IfAny)
        .note(|_| "due but never sent: the tester was late".to_owned()),
    counter!(waited_requests, "waited requests", REQUESTS).bad().show(Show::IfAny)
        .note(|_| "due but never sent: every connection was waiting for a response".to_owned()),
    counter!(totals.late_responses, "late responses", REQUESTS).bad().show(Show::IfAny)
        .note(|_| "to requests already counted as lost".to_owned()),
    counter!(totals.duplicate_responses, "duplicate responses", REQUESTS).bad().show(Show::IfAny)
        .note(|_| "to answered requests".to_owned()),
    counter!(totals.error_responses, "error responses", REQUESTS).bad().show(Show::IfAny)
        .note(|_| "status 400 and above".to_owned()),
    counter!(failures, "causes", CONNECTIONS).labels("failed", CAUSES).bad().show(Show::IfAny),
    derived!("cps", "attempted/s, steady", CPS, |j| j.steady(|p| p.cps)).show(Show::Never),
    derived!("rps", "requests/s, steady", RPS, |j| j.steady(|p| p.rps)).show(Show::Never),
    derived!("tx_pps", "frames sent/s, steady", PPS, |j| j.steady(|p| p.tx_pps)).show(Show::Never),
    derived!("rx_pps", "frames received/s, steady", PPS, |j| j.steady(|p| p.rx_pps)).judged(&["pps"]).show(Show::Never),
    derived!("tx_l2_bps", "sent, layer 2, steady", Unit::BitsPerSecond, |j| j.steady(|p| p.tx_bps)).show(Show::Never),
    derived!("rx_l2_bps", "received, layer 2, steady", Unit::BitsPerSecond, |j| j.steady(|p| p.rx_bps))
        .judged(&["bps"]).show(Show::Never),
);

static MORE: &[Field<LoadJobReport>] = fields!(LoadJobReport:
    times!(connect_ns, "connect").judged(&["connect"]),
    times!(first_byte_ns, "first byte"),
    times!(request_ns, "response").leads().judged(&[""]),
    times!(request_due_ns, "from due time"),
    times!(since_due_ns, "response or from due time").judged(&["http"]).show(Show::Never),
    derived!("established_cps", "established/s, steady", CPS, |j| j.steady(LoadPhaseReport::established_cps))
        .judged(&["cps"]).leads().good(),
    derived!("responses_rps", "responses/s, steady", RPS, |j| j.steady(LoadPhaseReport::responses_rps)).judged(&["rps"]).leads().good(),
    derived!("open", "open, steady", CONNECTIONS, |j| j.steady(|p| p.totals.open_connections as f64))
        .judged(&["open"]).show(Show::Never),
    derived!("failed_share", "failed", Unit::Share, |j| j.failed()).judged(&["failed"]).bad().show(Show::Never),
    derived!("loss", "loss", Unit::Share, |j| j.loss().into()).judged(&["loss"]).bad().show(Show::Never),
    derived!("lost", "lost", REQUESTS, |j| j.lost().into()).judged(&["lost"]).bad().show(Show::Never),
    derived!("errors", "errors", Unit::Share, |j| share(j.totals.error_responses, j.totals.responses).into())
        .judged(&["errors"]).bad().show(Show::Never),
    derived!("unsent_share", "unsent", Unit::Share, |j| j.unsent()).judged(&["unsent"]).bad().show(Show::Never),
    derived!("duplicates", "duplicates", Unit::Share, |j| share(j.totals.duplicate_responses, j.awaited()).into())
        .judged(&["duplicates"]).bad().show(Show::Never),
    derived!("retransmissions", "retransmitted segments", Unit::Count("segments"), |j| j.retransmissions().into())
        .bad().show(Show::IfAny).note(|_| "SYN, data and FIN".to_owned()),
    counter!(counters, "counters", Unit::None).show(Show::Details),
);

static PHASE: &[Field<LoadPhaseReport>] = fields!(LoadPhaseReport:
    fact!("phase", "phase", |p| (&p.phase).into()),
    derived!("from_ns", "from", Unit::Nanoseconds, |p| (&p.from_ns).into())
        .merged(|own, other| own.from_ns = own.from_ns.min(other.from_ns)),
    derived!("to_ns", "to", Unit::Nanoseconds, |p| (&p.to_ns).into())
        .merged(|own, other| own.to_ns = own.to_ns.max(other.to_ns)),
    gauge!(cps, "attempted/s", CPS),
    derived!("established_cps", "established/s", CPS, |p| p.established_cps().into())
        .merged(|own, other| own.established_cps = own.established_cps() + other.established_cps()),
    gauge!(rps, "requests/s", RPS),
    derived!("responses_rps", "responses/s", RPS, |p| p.responses_rps().into())
        .merged(|own, other| own.responses_rps = own.responses_rps() + other.responses_rps()),
    gauge!(totals.open_connections, "open at end", CONNECTIONS),
    counter!(totals.failed_connections, "failed", CONNECTIONS).bad(),
    gauge!(tx_pps, "tx", PPS),
    gauge!(rx_pps, "rx", PPS),
    gauge!(tx_bps, "tx L2", Unit::BitsPerSecond),
    gauge!(rx_bps, "rx L2", Unit::BitsPerSecond),
);

static ROUTE: &[Field<LoadRouteReport>] = fields!(LoadRouteReport:
    fact!("path", "path", |r| (&r.path).into()),
    fact!("status", "status", |r| Value::Text(r.status.to_string().into())),
    counter!(answers, "responses", REQUESTS),
);

static WORKER: &[Field<LoadWorkerReport>] = fields!(LoadWorkerReport:
    derived!("queue", "worker", Unit::None, |w| (&w.queue).into()),
    derived!("cpu", "CPU", Unit::None, |w| (&w.cpu).into()),
    counter!(totals.attempted_connections, "attempted", CONNECTIONS),
    counter!(totals.requests, "requests", REQUESTS),
    counter!(tx_frames, "tx", FRAMES),
    counter!(rx_frames, "rx", FRAMES),
    derived!("busy", "busy", Unit::Share, |w| (&w.busy).into()),
    derived!("longest_turn_ns", "longest turn", Unit::Nanoseconds, |w| Value::from(&w.longest_turn_ns)),
    counter!(lateness.stalls, "stalls", Unit::None).show(Show::IfAny),
);

const CONNECTION_SUM: Sum = Sum::new(
    ATTEMPTED,
    &[
        "completed_connections",
        "failed_connections",
        "open_connections",
    ],
);
const REQUEST_SUM: Sum = Sum::new(
    "requests",
    &[
        "responses",
        "lost_requests",
        "in_flight_requests",
        "unawaited_requests",
    ],
);

static PLOTS: [Plot; 4] = [
    Plot::new(
        "connections",
        "Connections per second",
        Series::Rates(&[
            ATTEMPTED,
            "established_connections",
            "completed_connections",
            "failed_connections",
        ]),
    ),
    Plot::new(
        "open",
        "Open connections",
        Series::Levels(&["open_connections"]),
    ),
    Plot::new(
        "requests",
        "Requests per second",
        Series::Rates(&["requests", "responses"]),
    ),
    Plot::new(
        "latency-course",
        "Times per interval: mean, and percentiles within 3 %",
        Series::Times(&["request_ns", "connect_ns"]),
    ),
];

/// Sections of both ends of all loads of a run.
pub fn sections(report: &Report) -> impl Iterator<Item = Section<'_>> {
    let jobs = report.load.iter().flat_map(|load| &load.jobs);
    let has_client = jobs.clone().any(|job| job.end == LoadEnd::Client);
    jobs.map(move |job| {
        let mut section = section(job);
        let port = report.plan.ports.iter().find(|port| port.name == job.port);
        let at = port.map_or_else(|| job.port.clone(), |port| port.locator.to_string());
        section.title = format!("{} at {at}", section.title);
        let steady = "steady: from the first to the last client frame".to_owned();
        section.note(Tone::Plain, (!has_client).then_some(steady))
    })
}

/// Section of one end of a load.
#[must_use]
pub fn section(job: &LoadJobReport) -> Section<'_> {
    let title = format!("{} {}", job.transport.name().to_uppercase(), job.end.name());
    let phases = job.phases.iter().filter(|phase| phase.happened());
    let estimate = "estimate: unmatched responses; each was assigned to the oldest open request";
    let mut section = Section::new("load", "Connections", &job.name, title)
        .figures(COUNTS, job)
        .group("frames", FRAME_TOTALS, &job.frames)
        .figures(MORE, job)
        .sum(CONNECTION_SUM)
        .table("Phases", PHASE, phases)
        .table("Responses by route", ROUTE, &job.routes)
        .table("Workers", WORKER, &job.workers)
        .note(Tone::Plain, job.times_note())
        .note(
            Tone::Bad,
            job.latency_is_estimate.then(|| estimate.to_owned()),
        )
        .plots(&PLOTS);
    if (job.end, job.transport) == (LoadEnd::Client, LoadTransport::Udp) {
        section = section.sum(REQUEST_SUM);
    }
    section
}

impl Measured for LoadJobReport {
    fn section(&self) -> Section<'_> {
        section(self)
    }

    fn totals(&self) -> Totals {
        Totals {
            connections: Some(self.totals),
            ..self.frames
        }
    }
}

impl Merge for LoadJobReport {
    fn merge(&mut self, other: &Self) {
        // TCP loses no requests, so its requests would dilute the loss of UDP.
        self.totals.awaited_requests = sum([self.awaited(), other.awaited()]);
        merge_fields(COUNTS, self, other);
        merge_fields(MORE, self, other);
        merge_fields(FRAME_TOTALS, &mut self.frames, &other.frames);
        for phase in &other.phases {
            match self.phases.iter_mut().find(|own| own.phase == phase.phase) {
                Some(own) => merge_fields(PHASE, own, phase),
                None => self.phases.push(phase.clone()),
            }
        }
        for route in &other.routes {
            let is =
                |own: &&mut LoadRouteReport| (&own.path, own.status) == (&route.path, route.status);
            match self.routes.iter_mut().find(is) {
                Some(own) => own.answers.merge(&route.answers),
                None => self.routes.push(route.clone()),
            }
        }
        self.since_sent_ns.merge(&other.since_sent_ns);
        self.workers.extend(other.workers.iter().cloned());
        self.tuples.merge(&other.tuples);
        self.latency_is_estimate |= other.latency_is_estimate;
        self.link_downs.merge(&other.link_downs);
        self.link_down_ns.merge(&other.link_down_ns);
    }
}

impl LoadJobReport {
    /// Gives the distributions of a job that was read from a report their values.
    pub(crate) fn attach(&mut self, values: impl Fn(&str) -> Option<Histogram>) {
        attach(MORE, self, values);
        // These are not stored on their own.
        self.since_sent_ns = self.request_ns.clone();
        self.since_due_ns = match self.request_due_ns.samples {
            0 => self.request_ns.clone(),
            _ => self.request_due_ns.clone(),
        };
    }
}

#[allow(clippy::cast_precision_loss)]
impl LoadJobReport {
    /// Value of the phase `steady`; unknown without such a phase.
    fn steady(&self, of: fn(&LoadPhaseReport) -> f64) -> Value<'static> {
        let mut phases = self.phases.iter();
        let steady = phases.find(|phase| phase.phase == "steady" && phase.to_ns > phase.from_ns);
        steady.map(of).into()
    }

    /// Requests that should have a response by the end.
    const fn awaited(&self) -> u64 {
        let totals = &self.totals;
        match (totals.awaited_requests, self.transport) {
            (0, LoadTransport::Udp) => totals.requests.saturating_sub(totals.unawaited_requests),
            (merged, _) => merged,
        }
    }

    fn lost(&self) -> u64 {
        sum([self.totals.lost_requests, self.totals.in_flight_requests])
    }

    fn loss(&self) -> Option<f64> {
        share(self.lost(), self.awaited())
    }

    /// Share of connections that did not end well. Connections that are open after the drain have not ended well
    /// either. A UDP flow that continues until the end counts as good with a single response, so its requests are judged
    /// as well.
    fn failed(&self) -> Value<'static> {
        let totals = &self.totals;
        let bad = sum([totals.failed_connections, totals.open_connections]);
        worse(share(bad, totals.attempted_connections), self.loss())
    }

    fn unsent(&self) -> Value<'static> {
        let of = |unsent: u64, sent: u64| share(unsent, sum([sent, unsent]));
        worse(
            of(self.unsent_connections, self.totals.attempted_connections),
            of(self.unsent_requests, self.totals.requests),
        )
    }

    /// Segments of TCP that were sent again.
    fn retransmissions(&self) -> u64 {
        let counters = ["syn_again", "data_again", "fin_again"];
        let counters = counters.iter().filter_map(|name| self.counters.get(*name));
        counters.fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Completed connections that closed early.
    fn cut(&self) -> String {
        match self.counters.get("completed_cut") {
            None | Some(0) => String::new(),
            Some(n) => format!("{} of them closed before all requests were sent", count(*n)),
        }
    }

    /// Direction of messages that the end `sender` sends.
    fn direction(&self, sender: LoadEnd) -> String {
        match self.end == sender {
            true => "sent".to_owned(),
            false => "received".to_owned(),
        }
    }

    /// Direction of the responses; their statuses if some are not 2xx.
    fn responses(&self) -> String {
        let statuses = self.counters.iter().filter_map(|(name, n)| {
            let status = name.strip_prefix("status_").filter(|_| *n > 0)?;
            Some((status, *n))
        });
        let mut text = self.direction(LoadEnd::Server);
        if statuses.clone().any(|(status, _)| status != "2xx") {
            let all = statuses.map(|(status, n)| format!("status {status} {}", count(n)));
            text = format!("{text}: {}", all.collect::<Vec<_>>().join(", "));
        }
        text
    }

    /// Start and end of the measurement of response times.
    fn times_note(&self) -> Option<String> {
        let due = match self.request_due_ns.samples {
            0 => "",
            _ => "; from due time: since it was due",
        };
        (self.request_ns.samples > 0)
            .then(|| format!("connect: SYN to SYN-ACK; response: since its request was sent{due}"))
    }
}

#[allow(clippy::cast_precision_loss)]
impl LoadPhaseReport {
    /// Returns false for a phase without requests that is too short to be shown as any time.
    const fn happened(&self) -> bool {
        self.to_ns.saturating_sub(self.from_ns) >= 1_000_000 || self.totals.requests > 0
    }

    /// Rate of `n` over the phase, if `stored` is unknown: older reports do not have it.
    fn rate(&self, stored: f64, n: u64) -> f64 {
        match self.to_ns.saturating_sub(self.from_ns) {
            ns if stored == 0.0 && ns > 0 => n as f64 * 1e9 / ns as f64,
            _ => stored,
        }
    }

    fn established_cps(&self) -> f64 {
        self.rate(self.established_cps, self.totals.established_connections)
    }

    fn responses_rps(&self) -> f64 {
        self.rate(self.responses_rps, self.totals.responses)
    }
}

fn worse(one: Option<f64>, other: Option<f64>) -> Value<'static> {
    one.into_iter().chain(other).reduce(f64::max).into()
}
