//! The report of a run of devices. Every total is settled here, once, so that it adds up.

use std::collections::BTreeMap;

use crate::{CounterValues, DeviceOutcome, WatchOutcome};
use wb_measure::{Account, Measurement};
use wb_model::{
    Lateness, LimitedBy, Limiter, Summary, Totals, counted,
    device::{DeviceConfig, DeviceJob, Mode},
    frames::Frames,
    report::{JobReport, Rates, StreamReport, WorkerReport},
    units::WIRE_OVERHEAD,
};

use super::Devices;
use wb_engine::{End, Ended, Outcome, Part, Stamping};
use wb_engine::{
    criteria::{self, Offered, Shortfall},
    lateness,
    settle::{
        counted_frames, distributions_of, measurement_warnings, nothing_arrived, nothing_sent,
        share, stalls_explain, times_of,
    },
};
use wb_open::signal_name;

use crate::engine::live;

impl Devices {
    /// Devices that have an account, with their jobs.
    fn accounts(&self) -> impl Iterator<Item = (&DeviceJob, &DeviceOutcome)> {
        let all = self.plan.devices.iter().zip(&self.outcomes);
        all.filter_map(|(job, outcome)| Some((job, outcome.as_ref()?)))
    }
}

fn sent(device: &DeviceOutcome) -> Totals {
    let intended = device.intended_frames.unwrap_or(device.offered_frames);
    Totals {
        intended_frames: Some(intended),
        offered_frames: Some(device.offered_frames),
        unsent_frames: Some(intended.saturating_sub(device.offered_frames)),
        offered_octets: Some(device.offered_octets),
        refused_frames: Some(device.refused_frames),
        ..Totals::default()
    }
}

#[allow(clippy::cast_precision_loss)]
fn per_second(n: u64, ns: u64) -> Option<f64> {
    (ns > 0).then(|| n as f64 * 1e9 / ns as f64)
}

/// Rates over the whole time of a device, including waiting: the device's own report divides by the same time.
fn sending_rates(settings: &DeviceConfig, device: &DeviceOutcome) -> Rates {
    let ns = device.stopped_ns.saturating_sub(device.started_ns);
    let (frames, octets) = (device.offered_frames, device.offered_octets);
    Rates {
        intended_pps: requested_pps(settings),
        offered_pps: per_second(frames, ns),
        offered_l1_bps: per_second((octets + frames * u64::from(WIRE_OVERHEAD)) * 8, ns),
        offered_l2_bps: per_second(octets * 8, ns),
        largest_catch_up_frames: Some(device.largest_catch_up_frames),
        tx_time_ns: Some(ns),
        ..Rates::default()
    }
}

fn sum_of(list: &[Rates], of: impl Fn(&Rates) -> Option<f64>) -> Option<f64> {
    list.iter().filter_map(of).reduce(|a, b| a + b)
}

/// Rate that the settings ask for; `None` at full speed.
fn requested_pps(settings: &DeviceConfig) -> Option<f64> {
    let delay = settings.delay;
    (delay.shown_ns > 0 && !delay.is_never())
        .then(|| f64::from(settings.burst.max(1)) * 1e9 / delay.exact_ns.as_f64())
}

fn stream(job: &DeviceJob, device: &DeviceOutcome) -> StreamReport {
    StreamReport {
        path: String::new(),
        name: job.settings.name.clone(),
        first_flow: 0,
        flows: job.settings.flows.max(1),
        totals: sent(device),
        ..StreamReport::default()
    }
}

/// One job if there is one device, one watch, or one of each. Otherwise one job for each.
fn jobs(run: &Devices, totals: Totals, rates: Rates, latency: Summary) -> Vec<JobReport> {
    let plan = &run.plan;
    let devices = || run.accounts();
    if plan.devices.len() <= 1 && plan.watches.len() <= 1 {
        let (device, watch) = (plan.devices.first(), plan.watches.first());
        return vec![JobReport {
            name: device.map_or_else(|| "watch".to_owned(), |d| d.settings.name.clone()),
            tx: device.map(|d| d.port.clone()),
            rx: watch.map(|w| w.port.clone()),
            totals,
            rates,
            latency_ns: latency,
            streams: devices().map(|(job, device)| stream(job, device)).collect(),
            ..JobReport::default()
        }];
    }
    let sending = devices().map(|(job, device)| JobReport {
        name: job.settings.name.clone(),
        tx: Some(job.port.clone()),
        totals: sent(device),
        rates: sending_rates(&job.settings, device),
        streams: vec![stream(job, device)],
        ..JobReport::default()
    });
    // Loss is known only for all watches together.
    let watching = plan.watches.iter().map(|watch| {
        let mine = || run.watched.iter().filter(|(q, _)| q.port == watch.port);
        let mut seen = Measurement::default();
        mine().for_each(|(_, outcome)| seen.merge(&outcome.measurement));
        let totals = mine().fold(Totals::default(), |t, (_, o)| t.plus(&arrived(o)));
        JobReport {
            name: "watch".to_owned(),
            rx: Some(watch.port.clone()),
            rates: receiving_rates(&seen, &totals),
            latency_ns: seen.latency.summary(),
            totals,
            ..JobReport::default()
        }
    });
    sending.chain(watching).collect()
}

fn arrived(outcome: &WatchOutcome) -> Totals {
    Totals {
        received_frames: Some(outcome.row.packets),
        received_octets: Some(octets_of(outcome)),
        foreign_frames: Some(outcome.foreign_frames),
        rx_dropped_frames: Some(outcome.rx.dropped_frames),
        ..Totals::default()
    }
}

/// Rates from the first to the last frame: N frames have N - 1 intervals.
fn receiving_rates(seen: &Measurement, totals: &Totals) -> Rates {
    let ns = seen.receive_time_ns();
    let (Some(ns), Some(frames)) = (ns, totals.received_frames.filter(|n| *n > 0)) else {
        return Rates::default();
    };
    let octets = totals.received_octets.unwrap_or(0);
    let (octets, frames) = (octets - octets / frames, frames - 1);
    Rates {
        received_pps: per_second(frames, ns),
        received_l1_bps: per_second((octets + frames * u64::from(WIRE_OVERHEAD)) * 8, ns),
        received_l2_bps: per_second(octets * 8, ns),
        rx_time_ns: Some(ns),
        ..Rates::default()
    }
}

/// Lateness of a watcher, with the frames that its ring dropped.
fn watcher_lateness(outcome: &WatchOutcome) -> Lateness {
    Lateness {
        dropped_reads: outcome.rx.dropped_frames,
        ..outcome.lateness
    }
}

fn workers(run: &Devices) -> Vec<WorkerReport> {
    let mut queues: BTreeMap<&str, u32> = BTreeMap::new();
    let mut list: Vec<WorkerReport> = run
        .accounts()
        .map(|(job, device)| {
            let next = queues.entry(&job.port).or_default();
            let queue = *next;
            *next += 1;
            WorkerReport {
                port: job.port.clone(),
                queue,
                role: "tx".to_owned(),
                cpu: Some(job.cpu),
                totals: sent(device),
                kicks: device.tx.kicks,
                full_events: device.tx.full_events,
                busy: share(device.busy_turns, device.turns),
                lateness: device.lateness,
                ..WorkerReport::default()
            }
        })
        .collect();
    let mut queues: BTreeMap<&str, u32> = BTreeMap::new();
    for (queue, outcome) in &run.watched {
        let next = queues.entry(&queue.port).or_default();
        let number = *next;
        *next += 1;
        list.push(WorkerReport {
            port: queue.port.clone(),
            queue: number,
            role: "rx".to_owned(),
            cpu: Some(queue.cpu),
            totals: arrived(outcome),
            latency_ns: outcome.measurement.latency.summary(),
            busy: share(outcome.busy_turns, outcome.turns),
            lateness: watcher_lateness(outcome),
            ..WorkerReport::default()
        });
    }
    list
}

/// Octets with FCS; the row counts them without FCS.
fn octets_of(outcome: &WatchOutcome) -> u64 {
    outcome.row.bytes + 4 * outcome.row.packets
}

/// Settles what the watching ports received against what the devices sent, if there were any.
fn received(run: &Devices, all: &Measurement, warnings: &mut Vec<String>) -> Totals {
    if run.watched.is_empty() {
        return Totals::default();
    }
    let watched = || run.watched.iter().map(|(_, w)| w);
    let packets: u64 = watched().map(|w| w.row.packets).sum();
    let foreign: u64 = watched().map(|w| w.foreign_frames).sum();
    let totals = Totals {
        received_frames: Some(packets),
        received_octets: Some(watched().map(octets_of).sum()),
        foreign_frames: Some(foreign),
        rx_dropped_frames: Some(watched().map(|w| w.rx.dropped_frames).sum()),
        ..Totals::default()
    };
    // Sequence numbers are reliable if one device sent each number once and one worker received all.
    let seen = watched().filter(|w| w.row.packets > 0).count();
    let counted = run.plan.watches.iter().any(|w| w.mode == Mode::Counter);
    let plain = !counted
        && seen == 1
        && run.handles.len() <= 1
        && watched().all(|w| w.extra.sequence_is_plain);
    if !plain && !counted && packets > 0 {
        warnings.push(
            "sequence numbers repeat or come from several senders or queues; duplicates and reordering cannot be detected"
                .to_owned(),
        );
    }
    let c = all.counters;
    if run.handles.is_empty() {
        return Totals {
            lost_frames: plain.then_some(c.missing_frames),
            duplicate_frames: plain.then_some(c.duplicate_frames),
            reordered_frames: plain.then_some(c.reordered_frames),
            ..totals
        };
    }
    let offered = run.accounts().map(|(_, d)| d.offered_frames).sum();
    let duplicate = if plain { c.duplicate_frames } else { 0 };
    let account = Account::settle(offered, packets, duplicate);
    Totals {
        received_frames: Some(account.received),
        lost_frames: Some(account.lost),
        duplicate_frames: Some(account.duplicate),
        reordered_frames: plain.then_some(c.reordered_frames),
        foreign_frames: Some(foreign + account.excess),
        ..totals
    }
}

fn limited_by(run: &Devices, ended: &Ended, totals: &Totals, late: &Lateness) -> LimitedBy {
    if let End::Fault(text) = &ended.end {
        return Limiter::Fault.because(text).into();
    }
    let mut causes = Vec::new();
    let down: Vec<&str> = run
        .accounts()
        .filter(|(_, d)| d.link_down)
        .map(|(job, _)| job.settings.name.as_str())
        .collect();
    let unsent = totals.unsent_frames.unwrap_or(0);
    if !down.is_empty() {
        let why = format!("went down while sending: {}", down.join(", "));
        causes.push(Limiter::Link.because(why));
    } else if unsent > 0 && ended.end == End::Completed && cut_short(run).is_empty() {
        let refused = totals.refused_frames.unwrap_or(0);
        causes.push(if refused > unsent / 2 {
            let why = format!("{} refused, {unsent} unsent", counted_frames(refused));
            Limiter::SendingInterface.because(why)
        } else {
            Limiter::Tester.because(format!(
                "the senders could not keep up, {} unsent",
                counted_frames(unsent)
            ))
        });
    }
    if let Some(lost) = totals.lost_frames.filter(|n| *n > 0) {
        let ours = totals.rx_dropped_frames.unwrap_or(0);
        causes.push(if ours > 0 {
            let why = format!(
                "its receiver dropped {}, {lost} lost in total",
                counted_frames(ours)
            );
            Limiter::Tester.because(why)
        } else if late.late_departures >= lost {
            Limiter::Tester.because(stalls_explain(lost))
        } else {
            Limiter::Path.because(format!("{} lost", counted_frames(lost)))
        });
    }
    if !causes.is_empty() {
        return LimitedBy::all(causes);
    }
    if run.handles.is_empty() {
        return Limiter::Sender.because("this run only receives").into();
    }
    let ended_by = |who: String| Limiter::Ended(who).because("ended the run early").into();
    if let End::Signal(n) = ended.end {
        return ended_by(signal_name(n));
    }
    if !cut_short(run).is_empty() {
        return ended_by("stop".to_owned());
    }
    let full_speed = run
        .plan
        .devices
        .iter()
        .any(|d| d.settings.delay.shown_ns == 0);
    let limit = match full_speed {
        true => Limiter::Tester.because("a device ran at full speed"),
        false => Limiter::Plan.because("all requested frames were sent"),
    };
    limit.into()
}

/// Devices that ended before their count and their duration because of a stop or their link.
fn cut_short(run: &Devices) -> Vec<&str> {
    let is_short = |device: &DeviceOutcome| {
        let settings = device.walker.config();
        let ns = device.stopped_ns.saturating_sub(device.started_ns);
        let counts = settings.count != 0 && device.walker.has_reached_count();
        let timed = settings.duration_ns != 0 && ns >= settings.duration_ns;
        (settings.count, settings.duration_ns) != (0, 0) && !counts && !timed
    };
    let short = run.accounts().filter(|(_, device)| is_short(device));
    short.map(|(job, _)| job.settings.name.as_str()).collect()
}

/// Reason why the run ended early, if not a signal or a fault.
fn stopped(run: &Devices) -> Option<String> {
    let short = cut_short(run);
    let down = run.accounts().any(|(_, device)| device.link_down);
    let by = if down { "a link failure" } else { "stop" };
    (!short.is_empty()).then(|| format!("ended early by {by}: {}", short.join(", ")))
}

/// Returns why a run says nothing if a port's device never counted frames that it took.
fn vanished(run: &Devices, ended: &Ended) -> Option<String> {
    run.ports.iter().find_map(|port| {
        let mine = run.accounts().filter(|(job, _)| job.port == port.plan.name);
        let (taken, down) = mine.fold((0, false), |(taken, down), (_, d)| {
            (taken + d.tx.sent_frames, down || d.link_down)
        });
        live::vanished(port, ended, taken, down)
    })
}

/// Fills the report so far.
pub(super) fn fill(run: &Devices, part: &mut Part<'_>) {
    let mut sent = CounterValues::default();
    for handle in &run.handles {
        sent += handle.counters().read();
    }
    let watched = run.watches.iter().map(|queue| queue.handle.results().0);
    let (frames, octets) = watched.fold((0, 0), |(frames, octets), seen| {
        (
            frames + seen.packets,
            octets + seen.bytes + 4 * seen.packets,
        )
    });
    let (sends, receives) = (!run.handles.is_empty(), !run.watches.is_empty());
    let totals = Totals {
        offered_frames: sends.then_some(sent.offered_frames),
        offered_octets: sends.then_some(sent.offered_octets),
        refused_frames: sends.then_some(sent.refused_frames),
        received_frames: receives.then_some(frames),
        received_octets: receives.then_some(octets),
        ..Totals::default()
    };
    part.frames(&totals, &Rates::default());
}

/// Fills the report, and settles the account of all devices and watches.
pub(super) fn settle(run: &Devices, part: &mut Part<'_>, ended: &Ended) -> Outcome {
    let mut warnings = Vec::new();
    let mut all = Measurement::default();
    for (_, outcome) in &run.watched {
        all.merge(&outcome.measurement);
    }
    measurement_warnings(&all, &mut warnings);
    for (job, device) in run.accounts() {
        if let Some(why) = &device.by_queue_because {
            let name = &job.settings.name;
            warnings.push(format!("{name}: no longer sent inside the kernel: {why}"));
        }
    }
    let totals = run
        .accounts()
        .fold(Totals::default(), |t, (_, d)| t.plus(&sent(d)))
        .plus(&received(run, &all, &mut warnings));
    let consumed: u64 = run.consumers.iter().filter_map(|c| c.dropped().ok()).sum();
    let unfed = totals.received_frames.unwrap_or(0).saturating_sub(consumed);
    if !run.consumers.is_empty() && unfed > 0 {
        warnings.push(format!(
            "{} also reached the host, before the XDP program was attached or after it was detached",
            counted(unfed, "counted packet", "counted packets")
        ));
    }
    let each: Vec<Rates> = run
        .accounts()
        .map(|(job, device)| sending_rates(&job.settings, device))
        .collect();
    let asked = each
        .iter()
        .map(|r| r.intended_pps)
        .collect::<Option<Vec<_>>>();
    let rates = Rates {
        intended_pps: asked.filter(|a| !a.is_empty()).map(|a| a.iter().sum()),
        offered_pps: sum_of(&each, |r| r.offered_pps),
        offered_l1_bps: sum_of(&each, |r| r.offered_l1_bps),
        offered_l2_bps: sum_of(&each, |r| r.offered_l2_bps),
        largest_catch_up_frames: each.iter().filter_map(|r| r.largest_catch_up_frames).max(),
        tx_time_ns: each.iter().filter_map(|r| r.tx_time_ns).max(),
        ..receiving_rates(&all, &totals)
    };
    let times = times_of(&all);
    let judged = criteria::judge(&run.plan, |_| Frames {
        outages: None,
        totals,
        rates,
        latency_ns: times.latency,
        transactions_per_second: None,
    });
    let workers = workers(run);
    let late = workers
        .iter()
        .fold(Lateness::default(), |sum, w| sum.plus(&w.lateness));
    let offered = Offered {
        job: "",
        intended: totals.intended_frames.unwrap_or(0),
        offered: totals.offered_frames.unwrap_or(0),
    };
    // After a signal or a stop, no more was asked for.
    let completed = ended.end == End::Completed && cut_short(run).is_empty();
    let short = Shortfall::of(&run.plan, [offered]).filter(|_| completed);
    let trial = lateness::Trial {
        judged: &judged,
        totals: &totals,
        intended: totals.intended_frames,
        offered: totals.offered_frames.unwrap_or(0),
        short: short.as_ref(),
        rates_over_ns: totals.intended_frames.is_none().then_some(ended.elapsed_ns),
    };
    let lateness = lateness::consider(&trial, late);
    warnings.extend(trial.warning(&lateness.all));
    let defect = (!totals.adds_up())
        .then(|| "the totals do not add up; this is a bug in wirebench".to_owned())
        .or_else(|| vanished(run, ended));
    let limited_by = limited_by(run, ended, &totals, &late);
    let report = &mut *part.report;
    report.jobs.extend(jobs(run, totals, rates, times.latency));
    report.workers.extend(workers);
    part.frames(&totals, &rates);
    part.times(times);
    run.ports
        .iter()
        .for_each(|port| part.port(ended.port(port)));
    Outcome {
        distributions: distributions_of("", &all),
        not_offered: short.map(|short| short.because(&limited_by.to_string())),
        limited_by,
        criteria: criteria::reports(judged),
        lateness,
        defect,
        nothing: nothing_sent(&totals)
            .or_else(|| nothing_arrived(&totals).filter(|_| totals.offered_frames.is_some())),
        stopped: stopped(run),
        warnings,
        stamping: stamping(run),
        ..Outcome::default()
    }
}

fn stamping(run: &Devices) -> Stamping {
    let sends = !run.handles.is_empty();
    let rx: Vec<String> = run
        .ports
        .iter()
        .filter(|p| p.used.rx)
        .map(|p| format!("{}: {}", p.plan.name, p.facts.stamp_source))
        .collect();
    Stamping {
        same_clock: sends,
        wall: true,
        error_ns: None,
        tx: match sends {
            true => "user, when the packet is built".to_owned(),
            false => String::new(),
        },
        rx: rx.join(", "),
    }
}
