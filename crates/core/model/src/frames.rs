//! Figures of frames: of streams and packet devices, of their flows and of their workers.

use wb_figures::{
    Field, Plot, Section, Series, Show, Sum, Tone, Unit, Value, counter, derived, fact, fields,
    gauge,
    text::{self, rate_bps},
};

use crate::{
    criteria::Measured,
    figures::{FRAMES, PPS, share},
    report::{
        FlowReport, JobReport, OutageReport, Rates, Report, StreamReport, Summary, Totals,
        WorkerReport,
    },
};

const OCTETS: Unit = Unit::Count("octets");

/// Frame counts of a job.
pub static FRAME_TOTALS: &[Field<Totals>] = fields!(Totals:
    counter!(intended_frames, "intended", FRAMES),
    counter!(offered_frames, "offered", FRAMES).leads(),
    counter!(unsent_frames, "unsent", FRAMES).bad()
        .note(|t| part(t.unsent_frames, t.intended_frames, "intended")),
    counter!(received_frames, "received", FRAMES).leads().note(Totals::received_note),
    counter!(lost_frames, "lost", FRAMES).leads().bad().note(Totals::lost_note),
    counter!(duplicate_frames, "duplicate", FRAMES).bad().note(|t| t.share_of_arrivals(t.duplicate_frames)),
    counter!(reordered_frames, "reordered", FRAMES).bad().note(|t| t.share_of_arrivals(t.reordered_frames)),
    counter!(late_frames, "late", FRAMES).show(Show::IfAny)
        .note(|_| "arrived during the drain; counted as received".to_owned()),
    counter!(foreign_frames, "foreign", FRAMES).show(Show::IfAny).note(|_| "not from this run".to_owned()),
    counter!(unplanned_frames, "foreign, with a test tag", FRAMES).show(Show::IfAny),
    counter!(rx_dropped_frames, "rx dropped", FRAMES).bad()
        .note(|t| any(t.rx_dropped_frames, "by the tester, which did not keep up")),
    counter!(offered_octets, "offered", OCTETS).show(Show::Never),
    counter!(received_octets, "received", OCTETS).show(Show::Never),
    counter!(ramp_frames, "ramp", FRAMES).show(Show::IfAny)
        .note(|_| "sent during the ramp-up; not counted".to_owned()),
    counter!(refused_frames, "refused", FRAMES).show(Show::IfAny)
        .note(|_| "by the sending device; not counted as offered".to_owned()),
    counter!(other_run_frames, "foreign, from another run", FRAMES).show(Show::IfAny),
    counter!(head_frames, "head", FRAMES).show(Show::IfAny)
        .note(|_| "sequence numbers before the first received frame; not counted as lost".to_owned()),
);

/// Outages of a job.
static OUTAGES: &[Field<Option<OutageReport>>] = fields!(Option<OutageReport>:
    derived!("outages", "outages", Unit::None, |o| o.map(|o| o.outages).into()).bad().show(Show::IfAny),
    derived!("outage_ns", "longest outage", Unit::Nanoseconds, |o| o.map(|o| o.outage_ns).into())
        .leads().bad().show(Show::IfAny).note(|o| o.map(|o| o.when()).unwrap_or_default()),
    derived!("outage_begin_ns", "longest outage, begin", Unit::Nanoseconds, |o| o.and_then(|o| o.outage_begin_ns).into())
        .show(Show::Never),
    derived!("outage_end_ns", "longest outage, end", Unit::Nanoseconds, |o| o.and_then(|o| o.outage_end_ns).into())
        .show(Show::Never),
    derived!("outage_flow", "longest outage, flow", Unit::None, |o| o.and_then(|o| o.outage_flow).into())
        .show(Show::Never),
    derived!("interrupted_flows", "flows with outages", Unit::None, |o| o.map(|o| o.interrupted_flows).into())
        .bad().show(Show::IfAny),
    derived!("outages_not_kept", "outages not kept", Unit::None, |o| o.map(|o| o.outages_not_kept).into())
        .show(Show::IfAny).note(|_| "only counted; one of them may be longer".to_owned()),
    derived!("unknown_flows", "flows with unknown outages", Unit::None, |o| o.map(|o| o.unknown_flows).into()).bad()
        .show(Show::IfAny).note(|_| "lost frames, and several workers received them".to_owned()),
);

impl OutageReport {
    /// Number of outages; `None` if those of some flows are unknown.
    fn count(&self) -> Option<u64> {
        (self.unknown_flows == 0).then_some(self.outages)
    }

    /// Duration of the longest outage in ns; `None` if an outage of unknown duration may be longer.
    fn longest(&self) -> Option<u64> {
        let is_known = self.outages_not_kept == 0 && self.unknown_flows == 0;
        is_known.then_some(self.outage_ns)
    }

    /// `from 2.000 s to 2.301 s after the start, flow 3`; empty without an outage.
    fn when(&self) -> String {
        let (Some(begin), Some(end)) = (self.outage_begin_ns, self.outage_end_ns) else {
            return String::new();
        };
        #[allow(clippy::cast_precision_loss)]
        let [begin, end] = [begin, end].map(|ns| format!("{:.3} s", ns as f64 / 1e9));
        let flow = self.outage_flow.map(|flow| format!(", flow {flow}"));
        format!(
            "from {begin} to {end} after the start{}",
            flow.unwrap_or_default()
        )
    }
}

/// Frames of some jobs together, for criteria.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    /// Counts.
    pub totals: Totals,
    /// Rates.
    pub rates: Rates,
    /// Latency in ns.
    pub latency_ns: Summary,
    /// Outages, if they are measured.
    pub outages: Option<OutageReport>,
    /// Transactions per second of a socket test.
    pub transactions_per_second: Option<f64>,
}

static JUDGED: &[Field<Frames>] = fields!(Frames:
    derived!("loss", "loss", Unit::Share, |f| f.totals.loss().into()).judged(&["loss"]),
    derived!("lost", "lost", FRAMES, |f| (&f.totals.lost_frames).into()).judged(&["lost"]),
    derived!("unsent_share", "unsent", Unit::Share, |f| {
        ratio(f.totals.unsent_frames, f.totals.intended_frames).into()
    }).judged(&["unsent"]),
    derived!("duplicate_share", "duplicates", Unit::Share, |f| {
        ratio(f.totals.duplicate_frames, f.totals.expected()).into()
    }).judged(&["duplicates"]),
    derived!("reordered_share", "reordered", Unit::Share, |f| {
        ratio(f.totals.reordered_frames, f.totals.expected()).into()
    }).judged(&["reordered"]),
    derived!("pps", "frames/s", PPS, |f| f.carried(f.rates.received_pps, f.rates.offered_pps).into()).judged(&["pps"]),
    derived!("bps", "throughput", Unit::BitsPerSecond, |f| {
        f.carried(f.rates.received_l2_bps, f.rates.offered_l2_bps).into()
    }).judged(&["bps"]),
    derived!("outages", "outages", Unit::None, |f| f.outages.and_then(|o| o.count()).into()).judged(&["outages"]),
    derived!("outage_ns", "longest outage", Unit::Nanoseconds, |f| f.outages.and_then(|o| o.longest()).into())
        .judged(&["outage"]),
    derived!("tps", "transactions/s", Unit::PerSecond("transactions"), |f| (&f.transactions_per_second).into())
        .judged(&["tps"]),
    Field::<S>::distribution("latency_ns", "latency", |f| (&f.latency_ns).into()).judged(&[""]),
);

/// Returns true if the name is that of a count or rate of frames.
pub(crate) fn is_figure(name: &str) -> bool {
    let totals = FRAME_TOTALS.iter().map(|field| field.def.name);
    totals
        .chain(RATES.iter().map(|field| field.def.name))
        .any(|own| own == name)
}

impl Measured for Frames {
    fn section(&self) -> Section<'_> {
        Section::new("frames", "Frames", "all", String::new())
            .figures(JUDGED, self)
            .figures(FRAME_TOTALS, &self.totals)
            .figures(RATES, &self.rates)
    }

    fn totals(&self) -> Totals {
        self.totals
    }

    fn longest_outage_ns(&self) -> Option<u64> {
        self.outages.map(|o| o.outage_ns)
    }
}

impl Frames {
    /// Returns the carried amount. Sent frames count only if there is no receiver: a black hole carries nothing.
    fn carried(&self, received: Option<f64>, offered: Option<f64>) -> Option<f64> {
        match self.totals.received_frames {
            Some(_) => received,
            None => received.or(offered),
        }
    }
}

static LOSS: &[Field<Totals>] = fields!(Totals:
    derived!("loss", "loss", Unit::Share, |t| t.loss().into()).bad().show(Show::Never),
);

static RATES: &[Field<Rates>] = fields!(Rates:
    gauge!(intended_pps, "intended rate", PPS),
    gauge!(offered_pps, "offered rate", PPS).leads().note(|r| bits(r.offered_l2_bps, r.offered_l1_bps)),
    gauge!(received_pps, "received rate", PPS).leads().good().note(|r| bits(r.received_l2_bps, r.received_l1_bps)),
    gauge!(offered_l1_bps, "offered, L1", Unit::BitsPerSecond).show(Show::Never),
    gauge!(received_l1_bps, "received, L1", Unit::BitsPerSecond).show(Show::Never),
    gauge!(offered_l2_bps, "offered, L2", Unit::BitsPerSecond).show(Show::Never),
    gauge!(received_l2_bps, "received, L2", Unit::BitsPerSecond).good().show(Show::Never),
    gauge!(line_rate_pps, "line rate", PPS),
    derived!("largest_catch_up_frames", "catch-up burst", FRAMES, |r| (&r.largest_catch_up_frames).into())
        .show(Show::IfAny).note(|_| "largest number of frames behind schedule".to_owned()),
    derived!("tx_time_ns", "sent for", Unit::Nanoseconds, |r| (&r.tx_time_ns).into()),
    derived!("rx_time_ns", "received for", Unit::Nanoseconds, |r| (&r.rx_time_ns).into()),
    gauge!(while_receiving_pps, "rate while receiving", PPS).note(|r| bits(r.while_receiving_l2_bps, None)),
    gauge!(while_receiving_l2_bps, "while receiving, L2", Unit::BitsPerSecond).show(Show::Never),
);

/// Times of all jobs together.
static TIMES: &[Field<Report>] = fields!(Report:
    Field::<S>::distribution("latency_ns", "latency", |r| (&r.latency_ns).into()).leads(),
    Field::distribution("jitter_ns", "jitter", |r| (&r.jitter_ns).into()),
    derived!("jitter_rfc3550_ns", "RFC 3550 jitter", Unit::Nanoseconds, |r| (&r.jitter_rfc3550_ns).into())
        .note(|_| "at the end; largest of all flows".to_owned()),
    Field::<S>::distribution("ipdv_ns", "IPDV", |r| (&r.ipdv_ns).into()).neutral(),
    Field::distribution("pdv_ns", "PDV", |r| (&r.pdv_ns).into()),
    Field::distribution("inter_arrival_ns", "inter-arrival", |r| (&r.inter_arrival_ns).into()),
    Field::distribution("inter_departure_ns", "inter-departure", |r| (&r.inter_departure_ns).into()),
);

/// Times of one of several jobs: jitter and departures are measured for all jobs together.
static JOB_TIMES: &[Field<JobReport>] = fields!(JobReport:
    Field::<S>::distribution("latency_ns", "latency", |j| (&j.latency_ns).into()).leads(),
    Field::distribution("jitter_ns", "jitter", |_| Value::Unknown),
    derived!("jitter_rfc3550_ns", "RFC 3550 jitter", Unit::Nanoseconds, |_| Value::Unknown),
    Field::<S>::distribution("ipdv_ns", "IPDV", |j| (&j.ipdv_ns).into()).neutral(),
    Field::distribution("pdv_ns", "PDV", |j| (&j.pdv_ns).into()),
    Field::distribution("inter_arrival_ns", "inter-arrival", |j| (&j.inter_arrival_ns).into()),
    Field::distribution("inter_departure_ns", "inter-departure", |_| Value::Unknown),
);

/// Round trip of a job in both directions between two hosts.
static ROUND_TRIP: &[Field<Option<f64>>] = fields!(Option<f64>:
    derived!("round_trip_mean_ns", "round trip, mean", Unit::Nanoseconds, |mean| (*mean).into()).show(Show::IfAny)
        .note(|_| "there and back, without the offset of the clocks".to_owned()),
);

static PORTS: &[Field<JobReport>] = fields!(JobReport:
    fact!("tx", "tx", |j| (&j.tx).into()).show(Show::Never),
    fact!("rx", "rx", |j| (&j.rx).into()).show(Show::Never),
);

/// Columns of [`PORTS`] for all jobs together, which have no single port.
static NO_PORTS: &[Field<Report>] = fields!(Report:
    fact!("tx", "tx", |_| Value::Unknown).show(Show::Never),
    fact!("rx", "rx", |_| Value::Unknown).show(Show::Never),
);

static STREAM: &[Field<StreamReport>] = fields!(StreamReport:
    fact!("stream", "stream", |s| (&s.name).into()),
    fact!("path", "path", |s| (&s.path).into()),
    derived!("flows", "flows", Unit::None, |s| (&s.flows).into()),
    counter!(totals.intended_frames, "intended", FRAMES),
    counter!(totals.offered_frames, "offered", FRAMES),
    counter!(totals.unsent_frames, "unsent", FRAMES).bad(),
    counter!(totals.received_frames, "received", FRAMES),
    counter!(totals.lost_frames, "lost", FRAMES).bad(),
);

static FLOW: &[Field<FlowReport>] = fields!(FlowReport:
    derived!("flow", "flow", Unit::None, |f| (&f.flow).into()),
    fact!("stream", "stream", |f| (&f.stream).into()),
    counter!(totals.offered_frames, "offered", FRAMES),
    counter!(totals.received_frames, "received", FRAMES),
    counter!(totals.lost_frames, "lost", FRAMES).bad(),
    derived!("loss", "loss", Unit::Share, |f| f.totals.loss().into()).bad().show(Show::IfAny),
    counter!(totals.duplicate_frames, "dup", FRAMES).bad(),
    counter!(totals.reordered_frames, "reord", FRAMES).bad(),
    derived!("latency_mean_ns", "mean", Unit::Nanoseconds, |f| f.latency_ns.statistic("mean").into()),
    derived!("latency_max_ns", "max", Unit::Nanoseconds, |f| f.latency_ns.statistic("max").into()),
    derived!("outages", "outages", Unit::None, |f| f.outages.map(|o| o.outages).into()).bad().show(Show::IfAny),
    derived!("outage_ns", "longest outage", Unit::Nanoseconds, |f| f.outages.map(|o| o.outage_ns).into()).bad()
        .show(Show::IfAny),
);

static WORKER: &[Field<WorkerReport>] = fields!(WorkerReport:
    fact!("port", "port", |w| (&w.port).into()),
    derived!("queue", "queue", Unit::None, |w| (&w.queue).into()),
    fact!("role", "role", |w| (&w.role).into()),
    derived!("cpu", "CPU", Unit::None, |w| (&w.cpu).into()),
    counter!(totals.offered_frames, "offered", FRAMES),
    counter!(totals.received_frames, "received", FRAMES),
    counter!(totals.rx_dropped_frames, "rx dropped", FRAMES).bad().show(Show::IfAny),
    derived!("busy", "busy", Unit::Share, |w| (&w.busy).into()),
    counter!(lateness.stalls, "stalls", Unit::None),
    derived!("largest_gap_ns", "longest pause", Unit::Nanoseconds, |w| w.lateness.largest_gap_ns.into()),
    derived!("kicks", "send calls", Unit::None, |w| w.sends().then_some(w.kicks).into()).show(Show::Details),
    derived!("full_events", "TX queue full", Unit::None, |w| w.sends().then_some(w.full_events).into())
        .show(Show::Details),
    derived!("latency_mean_ns", "mean latency", Unit::Nanoseconds, |w| w.latency_ns.statistic("mean").into())
        .show(Show::Details),
);

const INTENDED: Sum = Sum::new("intended_frames", &["offered_frames", "unsent_frames"]);
const OFFERED: Sum = Sum {
    minus: &["duplicate_frames"],
    ..Sum::new("offered_frames", &["received_frames", "lost_frames"])
};
/// Received frames as a part of the offered ones, without the frames in flight or lost.
const ARRIVED: Sum = Sum {
    minus: &["duplicate_frames"],
    ..Sum::new("offered_frames", &["received_frames"])
};

static PLOTS: [Plot; 6] = [
    Plot::new(
        "rate",
        "Frames per second",
        Series::Rates(&["offered_frames", "received_frames"]),
    )
    .limit("line_rate_pps"),
    Plot::new(
        "flows",
        "Frames received per second, first flows",
        Series::RatesOf("flow ", "received_frames"),
    ),
    Plot::new(
        "throughput",
        "Throughput, layer 2 with FCS",
        Series::Rates(&["offered_octets", "received_octets"]),
    ),
    Plot::new(
        "missing",
        "In flight or lost",
        Series::Rest("not received", ARRIVED),
    ),
    Plot::new(
        "trouble",
        "Unsent, duplicate and reordered frames",
        Series::Rates(&["unsent_frames", "duplicate_frames", "reordered_frames"]),
    ),
    Plot::new(
        "latency-course",
        "Latency per interval: mean, and percentiles within 3 %",
        Series::Times(&["latency_ns"]),
    ),
];

/// Sections of all jobs of streams and packet devices; of several jobs, also of all together. None if the run has only
/// jobs of other kinds.
#[must_use]
pub fn sections(report: &Report) -> Vec<Section<'_>> {
    match report.jobs.as_slice() {
        [] if report.has_other_jobs() => Vec::new(),
        [] => vec![total(report)],
        [job] => {
            let section = one(report, job).figures(TIMES, report);
            let counts = (&job.totals, &job.outages, &job.round_trip_mean_ns);
            vec![whole_run(section, report, counts, &job.streams)]
        }
        jobs => {
            let each = jobs.iter().map(|job| {
                let section = one(report, job).figures(JOB_TIMES, job);
                let counts = (&job.totals, &job.outages, &job.round_trip_mean_ns);
                end(section, counts, &job.streams, &[])
            });
            each.chain([total(report)]).collect()
        }
    }
}

/// One job, without its times and tables.
fn one<'a>(report: &'a Report, job: &'a JobReport) -> Section<'a> {
    let title = match (&job.tx, &job.rx) {
        (Some(tx), Some(rx)) => format!("{tx} -> {rx}"),
        (Some(tx), None) => format!("sent from {tx}"),
        (None, Some(rx)) => format!("received at {rx}"),
        (None, None) => String::new(),
    };
    let (kind, heading) = match report.is_of_devices(job) {
        true => ("devices", "Packet devices"),
        false => ("traffic", "Frames"),
    };
    let section = Section::new(kind, heading, &job.name, title).figures(PORTS, job);
    counts(section, &job.totals, &job.rates)
}

/// All jobs together.
fn total(report: &Report) -> Section<'_> {
    let only_devices = report.jobs.iter().all(|job| report.is_of_devices(job));
    let (kind, heading) = match only_devices && !report.jobs.is_empty() {
        true => ("devices", "Packet devices"),
        false => ("traffic", "Frames"),
    };
    let section = Section::new(kind, heading, "all", String::new()).total();
    let section = section.figures(NO_PORTS, report);
    let section = counts(section, &report.totals, &report.rates).figures(TIMES, report);
    let counts = (&report.totals, &report.outages, &None);
    whole_run(section, report, counts, &[])
}

fn counts<'a>(section: Section<'a>, totals: &'a Totals, rates: &'a Rates) -> Section<'a> {
    let section = section
        .figures(FRAME_TOTALS, totals)
        .figures(RATES, rates)
        .sum(INTENDED)
        .sum(OFFERED)
        .plots(&PLOTS);
    match rates.paused() {
        true => section,
        false => section.hide("while_receiving_pps"),
    }
}

/// Totals, outages and round trip.
type Counts<'a> = (&'a Totals, &'a Option<OutageReport>, &'a Option<f64>);

/// The end of a section that describes the whole run.
fn whole_run<'a>(
    section: Section<'a>,
    report: &'a Report,
    counts: Counts<'a>,
    streams: &'a [StreamReport],
) -> Section<'a> {
    let is_one = report.flows_omitted == 0 && report.flows.len() < 2;
    let flows = if is_one { &[] } else { &*report.flows };
    let sources = "jitter: RFC 4689, IPDV: RFC 3393, PDV: RFC 5481".to_owned();
    let more = "flows not listed are included in the counts; the most affected ones come first";
    end(section, counts, streams, flows)
        .omitted(report.flows_omitted)
        .note(
            Tone::Plain,
            (report.jitter_ns.samples > 0).then_some(sources),
        )
        .note(
            Tone::Plain,
            (report.flows_omitted > 0).then(|| more.to_owned()),
        )
}

/// Adds the tables that every section has, because outputs join the tables of all sections.
fn end<'a>(
    section: Section<'a>,
    (totals, outages, round_trip): Counts<'a>,
    streams: &'a [StreamReport],
    flows: &'a [FlowReport],
) -> Section<'a> {
    section
        .figures(LOSS, totals)
        .figures(OUTAGES, outages)
        .figures(ROUND_TRIP, round_trip)
        .table("Streams", STREAM, streams)
        .detail(streams.len() < 2)
        .table("Flows", FLOW, flows)
}

/// Section of the workers of all jobs.
#[must_use]
pub fn workers(report: &Report) -> Section<'_> {
    let busy = "busy: share of polls with work".to_owned();
    Section::new("worker", "Workers", "workers", String::new())
        .table("", WORKER, &report.workers)
        .note(Tone::Plain, (!report.workers.is_empty()).then_some(busy))
}

impl Report {
    /// Returns true if the run has jobs other than streams and packet devices.
    fn has_other_jobs(&self) -> bool {
        self.plan.procedure.is_some()
            || self.load.is_some()
            || self.http.is_some()
            || self.socket.is_some()
            || self.capture.is_some()
            || !self.captures.is_empty()
            || !self.probes.is_empty()
    }

    /// Returns true if the job is a packet device or watches for packets of devices.
    fn is_of_devices(&self, job: &JobReport) -> bool {
        let plan = &self.plan;
        let is_device = || plan.devices.iter().any(|d| d.settings.name == job.name);
        let is_watch = || !plan.watches.is_empty() && job.name == "watch";
        is_device() || is_watch()
    }
}

impl Rates {
    /// Returns true if the frame rate while frames arrived exceeds the rate over the whole time by more than 5 %. The
    /// first and the last gap of a short run account for smaller differences.
    fn paused(&self) -> bool {
        let both = self.received_pps.zip(self.while_receiving_pps);
        both.is_some_and(|(whole, receiving)| receiving > whole * 1.05)
    }
}

impl Totals {
    /// Lost frames as a share of the frames that should have arrived.
    fn loss(&self) -> Option<f64> {
        ratio(self.lost_frames, self.expected())
    }

    /// Frames that should have arrived: the offered ones or, if only the receiver is known, the received frames and the
    /// gaps.
    fn expected(&self) -> Option<u64> {
        self.offered_frames
            .or_else(|| Some(self.unique()?.saturating_add(self.lost_frames?)))
    }

    /// Received frames without duplicates.
    fn unique(&self) -> Option<u64> {
        let duplicate = self.duplicate_frames.unwrap_or(0);
        Some(self.received_frames?.saturating_sub(duplicate))
    }

    /// Without tracking from end to end, received frames are not a share of the sent ones.
    fn received_note(&self) -> String {
        let offered = self.offered_frames.filter(|_| self.lost_frames.is_some());
        let share = part(self.unique(), offered, "offered");
        match self.duplicate_frames {
            Some(n) if n > 0 && !share.is_empty() => format!("{share}, without duplicates"),
            _ => share,
        }
    }

    /// If the number of sent frames is unknown, the gaps show how many frames should have arrived.
    fn lost_note(&self) -> String {
        if self.offered_frames.is_some() {
            return part(self.lost_frames, self.offered_frames, "offered");
        }
        match part(self.lost_frames, self.expected(), "expected") {
            share if share.is_empty() => any(self.lost_frames, "sequence gaps"),
            share => format!("sequence gaps, {share}"),
        }
    }

    /// Share of the offered frames or, if they are unknown, of the received ones.
    fn share_of_arrivals(&self, frames: Option<u64>) -> String {
        match self.offered_frames {
            None => part(frames, self.received_frames, "received"),
            offered => part(frames, offered, "offered"),
        }
    }
}

impl WorkerReport {
    fn sends(&self) -> bool {
        self.role.contains("tx")
    }
}

/// `3 % of offered`; empty for no frames and without a whole.
fn part(part: Option<u64>, whole: Option<u64>, name: &str) -> String {
    match (part, whole) {
        (Some(part), Some(whole)) if part > 0 && whole > 0 => {
            format!("{} of {name}", text::share(part, whole))
        }
        _ => String::new(),
    }
}

fn ratio(part: Option<u64>, whole: Option<u64>) -> Option<f64> {
    share(part?, whole?)
}

/// The text if there are frames.
fn any(frames: Option<u64>, text: &str) -> String {
    frames
        .filter(|n| *n > 0)
        .map(|_| text.to_owned())
        .unwrap_or_default()
}

/// `2.56 Mbit/s L2 with FCS, 3.36 Mbit/s L1 with gap`, as far as they are known.
fn bits(l2: Option<f64>, l1: Option<f64>) -> String {
    let text = |bps: Option<f64>, layer| bps.map(|bps| format!("{} {layer}", rate_bps(bps)));
    let both = [text(l2, "L2 with FCS"), text(l1, "L1 with gap")];
    both.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
