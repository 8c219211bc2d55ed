//! Rates of merged runs: those of the time in which all runs were active.

use super::{
    Part,
    course::{Course, Window, rate},
};
use crate::{
    load::{ConnectionTotals, LoadJobReport, LoadPhaseReport, LoadReport},
    report::{Rates, Report, Totals},
};

/// Bytes of preamble and gap of a frame on the wire.
const GAP: f64 = 20.0;

/// Sets all rates of a merged report.
///
/// # Errors
/// If rates cannot be known and cannot be left out.
pub(super) fn set(merged: &mut Report, parts: &[Part]) -> Result<(), String> {
    let mut windows = Vec::new();
    let kind = merged.plan.kinds().next().map_or("", |kind| kind.name());
    let is_only = merged.jobs.len() == 1;
    for (place, job) in merged.jobs.iter_mut().enumerate() {
        let own = format!("job {}", job.name);
        let of = if is_only { kind } else { &own };
        let (rates, window) = frames(parts, of, |report| report.jobs[place].rates);
        job.rates = rates;
        windows.push(window);
    }
    // Counters over time of packet devices are those of all devices.
    let ends = [
        |t: &Totals| t.offered_frames.is_some(),
        |t: &Totals| t.received_frames.is_some(),
    ];
    let is_one_way = ends
        .iter()
        .all(|is_end| merged.jobs.iter().filter(|job| is_end(&job.totals)).count() < 2);
    merged.rates = match windows.contains(&None) {
        _ if is_one_way && !merged.jobs.is_empty() => {
            let (rates, window) = frames(parts, kind, |report| report.rates);
            windows = vec![window];
            rates
        }
        true => Rates::default(),
        false => Rates::sum(merged.jobs.iter().map(|job| job.rates)),
    };
    let jobs = merged.load.iter_mut().flat_map(|load| &mut load.jobs);
    for (place, job) in jobs.enumerate() {
        windows.extend(phases(job, place, parts));
    }
    if let Some(load) = merged.load.as_ref().filter(|_| merged.http.is_none()) {
        merged.rates = load.rates();
    }
    http(merged, parts, &mut windows)?;
    let times = || windows.iter().flatten().map(|window| window.seconds());
    let extremes = times()
        .min_by(f64::total_cmp)
        .zip(times().max_by(f64::total_cmp));
    if let Some((shortest, longest)) = extremes {
        let times = match longest - shortest < 0.001 {
            true => format!("{longest:.3} s"),
            false => format!("{shortest:.3} s to {longest:.3} s"),
        };
        merged.warnings.push(format!(
            "rates are those of the {times} in which all runs were active"
        ));
    }
    if windows.contains(&None) {
        let why = "some rates are unknown: there is no time in which all runs were active and recorded 10 times";
        merged.warnings.push(why.to_owned());
    }
    Ok(())
}

/// Rates of frames, with their time. `of` is the owner of the counters over time, `own` returns the rates of a run.
fn frames(parts: &[Part], of: &str, own: impl Fn(&Report) -> Rates) -> (Rates, Option<Window>) {
    let courses: Vec<Course<'_>> = parts.iter().map(|part| Course::of(part, of)).collect();
    // Received frames count in the time of sending. A run that only receives has only the time of its arrivals.
    let active = |course: &Course<'_>| {
        course
            .active("offered_frames")
            .or_else(|| course.active("received_frames"))
    };
    let windows: Option<Vec<Window>> = courses.iter().map(active).collect();
    let Some(window) = windows.and_then(|all| Window::shared(all.into_iter())) else {
        return (Rates::default(), None);
    };
    let per_second = |name: &str| rate(&courses, name, window);
    let [offered, received] = ["offered", "received"].map(|side| {
        let pps = per_second(&format!("{side}_frames"));
        let octets = per_second(&format!("{side}_octets"));
        let l1 = pps
            .zip(octets)
            .map(|(pps, octets)| 8.0 * (octets + GAP * pps));
        (pps, octets.map(|octets| 8.0 * octets), l1)
    });
    let each = || parts.iter().map(|part| own(&part.report));
    let rates = Rates {
        intended_pps: each().map(|rates| rates.intended_pps).sum(),
        offered_pps: offered.0,
        offered_l2_bps: offered.1,
        offered_l1_bps: offered.2,
        received_pps: received.0,
        received_l2_bps: received.1,
        received_l1_bps: received.2,
        largest_catch_up_frames: each()
            .filter_map(|rates| rates.largest_catch_up_frames)
            .max(),
        tx_time_ns: offered.0.map(|_| window.ns()),
        rx_time_ns: received.0.map(|_| window.ns()),
        ..Rates::default()
    };
    match rates.offered_pps.or(rates.received_pps) {
        Some(_) => (rates, Some(window)),
        None => (Rates::default(), None),
    }
}

/// Sets the phases of a load: those that overlap, with the connections, requests and rates of the shared time. Returns
/// that of the phase `steady`; `None` for the other end, which has no counters over time and therefore no phases.
fn phases(job: &mut LoadJobReport, place: usize, parts: &[Part]) -> Option<Option<Window>> {
    let loads = || {
        parts
            .iter()
            .filter_map(|part| Some((part, part.report.load.as_ref()?)))
    };
    let own: Vec<&LoadJobReport> = loads().map(|(_, load)| &load.jobs[place]).collect();
    job.phases.clear();
    if loads().any(|(_, load)| load.shown() != job.end) {
        return None;
    }
    let of = |load: &LoadReport| match load.jobs.iter().filter(|own| own.end == job.end).count() {
        1 => "load".to_owned(),
        _ => format!("job {}", job.name),
    };
    let courses = loads().map(|(part, load)| Course::of(part, &of(load)));
    let courses: Vec<Course<'_>> = courses.collect();
    let merged = own[0].phases.iter().filter_map(|phase| {
        let all = own
            .iter()
            .map(|job| job.phases.iter().find(|own| own.phase == phase.phase));
        let all: Vec<&LoadPhaseReport> = all.collect::<Option<_>>()?;
        phase_of(&all, &courses)
    });
    job.phases = merged.collect();
    let mut phases = job.phases.iter();
    let steady = phases.find(|phase| phase.phase == "steady");
    Some(steady.map(|phase| Window {
        from_ns: phase.from_ns,
        to_ns: phase.to_ns,
    }))
}

/// One phase of all runs; `None` if they do not overlap or have no counters over time.
fn phase_of(all: &[&LoadPhaseReport], courses: &[Course<'_>]) -> Option<LoadPhaseReport> {
    let window = Window::shared(all.iter().map(|phase| Window {
        from_ns: phase.from_ns,
        to_ns: phase.to_ns,
    }))?;
    let per_second = |name: &str| rate(courses, name, window);
    let count = |name: &str| Some(whole(per_second(name)? * window.seconds()));
    Some(LoadPhaseReport {
        phase: all[0].phase.clone(),
        from_ns: window.from_ns,
        to_ns: window.to_ns,
        totals: ConnectionTotals {
            attempted_connections: count("attempted_connections")?,
            established_connections: count("established_connections")?,
            completed_connections: count("completed_connections")?,
            failed_connections: count("failed_connections")?,
            open_connections: open_at(courses, window.to_ns)?,
            requests: count("requests")?,
            responses: count("responses")?,
            ..ConnectionTotals::default()
        },
        unsent_connections: 0,
        cps: per_second("attempted_connections")?,
        established_cps: per_second("established_connections")?,
        rps: per_second("requests")?,
        responses_rps: per_second("responses")?,
        tx_pps: per_second("tx_frames")?,
        rx_pps: per_second("rx_frames")?,
        tx_bps: 8.0 * per_second("tx_octets")?,
        rx_bps: 8.0 * per_second("rx_octets")?,
    })
}

/// Open connections of all runs at a time.
fn open_at(courses: &[Course<'_>], ns: u64) -> Option<u64> {
    let open = courses
        .iter()
        .map(|course| course.level("open_connections", ns));
    open.sum::<Option<f64>>().map(whole)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole(n: f64) -> u64 {
    n.round().max(0.0) as u64
}

/// Sets the rates of HTTP loads.
fn http(
    merged: &mut Report,
    parts: &[Part],
    windows: &mut Vec<Option<Window>>,
) -> Result<(), String> {
    let jobs = merged.http.iter_mut().flat_map(|http| &mut http.jobs);
    let mut jobs: Vec<_> = jobs.collect();
    let job =
        match jobs.as_mut_slice() {
            [] => return Ok(()),
            [only] => only,
            _ => return Err(
                "several HTTP jobs cannot be merged: the counters over time are those of all jobs"
                    .to_owned(),
            ),
        };
    let courses: Vec<Course<'_>> = parts.iter().map(|part| Course::of(part, "http")).collect();
    let own = courses.iter().zip(parts).map(|(course, part)| {
        let warm_up = part
            .report
            .plan
            .http_jobs
            .first()
            .map_or(0, |job| job.warm_up.as_nanos());
        let begin = part.started_ns.saturating_add(warm_up);
        let duration = part.report.http.as_ref()?.jobs[0].duration_ns;
        let planned = Window {
            from_ns: begin,
            to_ns: begin.saturating_add(duration),
        };
        Window::shared([course.active("completed")?, planned].into_iter())
    });
    let own: Option<Vec<Window>> = own.collect();
    let window = own.and_then(|all| Window::shared(all.into_iter()));
    let unknown = "HTTP jobs cannot be merged: there is no time in which all runs were active and recorded 10 times";
    let window = window.ok_or(unknown)?;
    let per_second = |name: &str| rate(&courses, name, window).ok_or(unknown);
    job.requests_per_second = per_second("completed")?;
    job.connections_per_second = per_second("established_connections")?;
    job.received_bps = 8.0 * per_second("received_bytes")?;
    job.duration_ns = window.ns();
    let open = open_at(&courses, window.to_ns);
    job.steady_open_connections = open.ok_or(unknown)?;
    windows.push(Some(window));
    Ok(())
}

impl<'a> Course<'a> {
    fn of(part: &'a Part, of: &str) -> Self {
        Self {
            timeline: &part.report.timeline,
            of: of.to_owned(),
            start_ns: part.started_ns,
        }
    }
}
