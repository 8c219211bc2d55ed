//! One report from the results of the hosts that carried out one plan together.
//!
//! Every host reports the jobs, or ends of jobs, that it carried out. Of a direction between two hosts, one host has the
//! sent frames and the other one the received frames; only both together give the loss.

use std::collections::BTreeMap;

use wb_figures::Merge as _;

use super::{Part, course, told, values::Values, verdict};
use crate::{
    DirectionFlows, LimitedBy, Limiter, Plan, REPORT_SCHEMA, Verdict, counted,
    fleet::{HostReport, HostState},
    load::{LoadEnd, LoadReport},
    peer::joined_totals,
    report::{FlowReport, JobReport, Rates, Report, Summary, Totals},
};

/// Makes the report of a plan from the reports of its hosts, each with the name of its host. `hosts` has the state of
/// every host of the plan; a host without a report leaves its part of the results unknown. The ports of the plan name
/// their hosts.
///
/// # Errors
/// A report cannot be read (a sentence that names its host), or there is none.
pub fn assemble(
    plan: &Plan,
    reports: Vec<(String, Report)>,
    hosts: Vec<HostReport>,
) -> Result<Report, String> {
    let parts = reports.into_iter().map(|(name, report)| Part {
        name,
        started_ns: 0,
        report,
    });
    let mut parts: Vec<Part> = parts.collect();
    if parts.is_empty() {
        return Err("no host has delivered results".to_owned());
    }
    let names: Vec<String> = names_of_directions(plan, &parts);
    parts.iter_mut().for_each(|part| align(part, plan, &names));
    let values = parts.iter().map(Values::of);
    let values = values.collect::<Result<Vec<_>, _>>()?;
    for (part, values) in parts.iter_mut().zip(&values) {
        values.attach(&mut part.report);
    }
    let jobs = directions(&names, plan, &parts, &hosts);
    for part in &mut parts {
        blame_path(part, plan, &jobs);
    }
    let mut all = gather(plan, &parts);
    all.jobs = jobs;
    all.flows = flows(&parts);
    forget_losses_of_flows(&mut all, plan);
    all.totals = totals(&all, plan);
    let timelines = parts.iter().map(|part| (0, &part.report.timeline));
    all.timeline = course::laid_together(&timelines.collect::<Vec<_>>());
    all.rates = match (&all.load, all.jobs.is_empty()) {
        (Some(load), true) => load.rates(),
        _ => Rates::sum(all.jobs.iter().map(|job| job.rates)),
    };
    let sum = Values::sum(&values);
    let delays: Vec<_> = parts.iter().map(|part| part.report.pdv_ns).collect();
    sum.set(&mut all, &parts);
    let mut delays = delays.into_iter().filter(|pdv| pdv.samples > 0);
    if let (Some(only), None) = (delays.next(), delays.next()) {
        all.pdv_ns = only;
    }
    verdict::judge(&mut all, &parts, &sum);
    all.hosts = hosts;
    judge_hosts(&mut all);
    Ok(all)
}

/// Names of all directions in the order of the plan.
fn names_of_directions(plan: &Plan, parts: &[Part]) -> Vec<String> {
    let directions = plan.directions(plan.first_flow.unwrap_or(0)).into_iter();
    let mut names: Vec<String> = directions.map(|way| way.name).collect();
    let others = parts.iter().flat_map(|part| &part.report.jobs);
    for job in others {
        if !names.contains(&job.name) {
            names.push(job.name.clone());
        }
    }
    names
}

/// Gives the results of a host the names that they have in the whole plan.
fn align(part: &mut Part, plan: &Plan, names: &[String]) {
    let Part { name, report, .. } = part;
    if let ([job], true) = (&report.jobs[..], names.len() > 1) {
        let of = format!("job {}", job.name);
        report.timeline.copy_owner("traffic", &of);
    }
    align_loads(report, plan);
    for port in &mut report.ports {
        port.locator = format!("{name}:{}", port.locator);
    }
    if plan.captures.len() > 1
        && let Some(capture) = report.capture.take()
        && let Some(job) = report.plan.captures.first()
    {
        report.captures.insert(job.name.clone(), capture);
    }
}

/// Gives the counters over time of the loads of a host the owners that they have in the whole plan: `load` is the end that
/// the whole report shows, and each of several jobs has its own counters.
fn align_loads(report: &mut Report, plan: &Plan) {
    let Some(load) = &report.load else { return };
    let clients = plan.loads.iter().filter(|job| job.end == LoadEnd::Client);
    let (clients, servers) = (clients.clone().count(), plan.loads.len() - clients.count());
    let (shown, of_shown) = match clients {
        0 => (LoadEnd::Server, servers),
        _ => (LoadEnd::Client, clients),
    };
    let own = load.shown();
    let mut jobs = load.jobs.iter().filter(|job| job.end == own);
    if let (Some(only), None, true) = (jobs.next(), jobs.next(), own != shown || of_shown > 1) {
        let of = format!("job {}", only.name);
        report.timeline.copy_owner("load", &of);
    }
    if own == shown {
        return;
    }
    report.timeline.columns.retain(|column| column.of != "load");
    if report.jobs.is_empty() {
        // The times of the whole run are those of the shown end.
        report.histograms.retain(|of| !of.of.is_empty());
        report.distributions.retain(|of| !of.of.is_empty());
        report.latency_ns = Summary::default();
    }
}

/// The results that need no more than a list or a sum over hosts.
fn gather(plan: &Plan, parts: &[Part]) -> Report {
    let first = &parts[0].report;
    let mut all = Report {
        schema: REPORT_SCHEMA.to_owned(),
        kind: plan.kind.clone(),
        started: first.started.clone(),
        plan: plan.clone(),
        first_flow: plan.first_flow,
        clock: first.clock.clone(),
        environment: first.environment.clone(),
        ..Report::default()
    };
    for Part { name, report, .. } in parts {
        if report.started < all.started {
            all.started.clone_from(&report.started);
        }
        all.elapsed_ns = all.elapsed_ns.max(report.elapsed_ns);
        all.outages.merge(&report.outages);
        all.flows_omitted.merge(&report.flows_omitted);
        all.workers.extend_from_slice(&report.workers);
        all.ports.extend_from_slice(&report.ports);
        all.capture.merge(&report.capture);
        for (name, capture) in &report.captures {
            all.captures.entry(name.clone()).or_default().merge(capture);
        }
        if let Some(load) = &report.load {
            add_loads(all.load.get_or_insert_default(), load);
        }
        if let Some(http) = &report.http {
            let own = all.http.get_or_insert_default();
            for job in &http.jobs {
                match own.jobs.iter_mut().find(|known| known.name == job.name) {
                    Some(known) => known.merge(job),
                    None => own.jobs.push(job.clone()),
                }
            }
            own.repeated_syns.merge(&http.repeated_syns);
        }
        if let Some(socket) = &report.socket {
            let own = all.socket.get_or_insert_default();
            own.jobs.extend_from_slice(&socket.jobs);
            own.server = own.server.or(socket.server);
        }
        all.probes.extend_from_slice(&report.probes);
        all.lateness.merge(&report.lateness);
        all.clock.merge(&report.clock);
        all.environment.merge(&report.environment);
        let warnings = report.warnings.iter();
        all.warnings
            .extend(warnings.map(|warning| format!("{name}: {warning}")));
    }
    all.limited_by = LimitedBy::from(told(parts, |report| report.limited_by.to_string()));
    all
}

/// A host that did not learn how many frames were sent to it could not name the path that lost some.
fn blame_path(part: &mut Part, plan: &Plan, jobs: &[JobReport]) {
    let is_own = |job: &&JobReport| host_of(plan, job.rx.as_ref()) == Some(part.name.as_str());
    let own = jobs.iter().filter(is_own);
    let lost: u64 = own.filter_map(|job| job.totals.lost_frames).sum();
    if lost > 0 && part.report.limited_by.names(&Limiter::Sender) {
        let why = format!("{} lost", counted(lost, "frame", "frames"));
        part.report.limited_by = Limiter::Path.because(why).into();
    }
}

fn add_loads(all: &mut LoadReport, load: &LoadReport) {
    for job in &load.jobs {
        let is_same = |known: &&mut crate::load::LoadJobReport| {
            known.name == job.name && known.end == job.end
        };
        match all.jobs.iter_mut().find(is_same) {
            Some(known) => {
                known.merge(job);
                super::join(&mut known.port, &job.port);
            }
            None => all.jobs.push(job.clone()),
        }
    }
}

/// Host of a port of the plan.
fn host_of<'a>(plan: &'a Plan, port: Option<&String>) -> Option<&'a str> {
    let port = plan.ports.iter().find(|own| Some(&own.name) == port)?;
    port.locator.host.as_deref()
}

/// Results of all directions, each from the host of its sender and the host of its receiver.
fn directions(
    names: &[String],
    plan: &Plan,
    parts: &[Part],
    hosts: &[HostReport],
) -> Vec<JobReport> {
    let ways = plan.directions(plan.first_flow.unwrap_or(0));
    let one = |name: &String| {
        let halves = || {
            let all = parts.iter().map(|part| (&part.name, &part.report));
            all.filter_map(|(host, report)| {
                Some((host, report.jobs.iter().find(|job| job.name == *name)?))
            })
        };
        let at = |port: fn(&JobReport) -> Option<&String>| {
            let is_here = |(host, job): &(&String, &JobReport)| {
                host_of(plan, port(job)) == Some(host.as_str())
            };
            halves().find(is_here).map(|(_, job)| job)
        };
        let sender = at(|job| job.tx.as_ref());
        let receiver = at(|job| job.rx.as_ref());
        let mut whole = match (sender, receiver) {
            (Some(one), Some(other)) if std::ptr::eq(one, other) => one.clone(),
            (Some(sender), Some(receiver)) => joined(sender, receiver),
            (Some(one), None) | (None, Some(one)) => one.clone(),
            (None, None) => halves().next().map_or_else(
                || JobReport {
                    name: name.clone(),
                    ..JobReport::default()
                },
                |(_, job)| job.clone(),
            ),
        };
        let of_plan = ways.iter().find(|way| way.name == *name);
        let takes_part = |host: &&HostReport| {
            let planned = of_plan.into_iter().flat_map(|way| [&way.tx, &way.rx]);
            let mut ports = planned.chain([&whole.tx, &whole.rx]);
            ports.any(|port| host_of(plan, port.as_ref()) == Some(host.host.as_str()))
        };
        let missing = hosts.iter().filter(|h| h.state != HostState::Complete);
        let missing: Vec<&HostReport> = missing.filter(takes_part).collect();
        let part_of = |host: &str| parts.iter().find(|part| part.name == host);
        let part_at = |port: &Option<String>| part_of(host_of(plan, port.as_ref())?);
        // Frames that a receiver missed because it ended before its sender are not lost.
        let heard_all = || {
            let drain = of_plan.map_or(0, |way| plan.traffic[way.job].drain.as_nanos());
            let ends = part_at(&whole.tx).zip(part_at(&whole.rx));
            ends.is_some_and(|(tx, rx)| {
                rx.report.elapsed_ns >= tx.report.elapsed_ns.saturating_add(drain)
            })
        };
        let (sends, receives) = (sender.is_some(), receiver.is_some());
        let knows = |job: &JobReport| job.totals.lost_frames.is_some();
        let learns = sends && receives && !receiver.is_some_and(knows) && heard_all();
        let at_receiver = host_of(plan, whole.rx.as_ref());
        let has_failed =
            |h: &&&HostReport| h.state == HostState::Failed && Some(h.host.as_str()) == at_receiver;
        let is_known = missing.is_empty()
            || !missing.iter().any(|host| has_failed(&host))
                && missing.iter().all(|host| part_of(&host.host).is_some())
                && (!receives || receiver.is_some_and(knows) || learns);
        if is_known && learns {
            // The receiver did not learn what its sender had sent, but its sender has delivered it now.
            whole.incomplete = None;
        }
        if !is_known {
            whole.totals.lost_frames = None;
            let streams = whole.streams.iter_mut();
            streams.for_each(|stream| stream.totals.lost_frames = None);
        }
        let failed = missing.iter().find(|h| h.state == HostState::Failed);
        if let Some(host) = failed {
            whole.incomplete = Some(host.account());
        } else if let Some(first) = missing.first() {
            whole.incomplete.get_or_insert_with(|| first.account());
        }
        whole
    };
    let mut all: Vec<JobReport> = names.iter().map(one).collect();
    let step_of = |host: &str| {
        let part = parts.iter().find(|part| part.name == host)?;
        Some(part.report.clock.step_ns).filter(|step| *step != 0)
    };
    for clock in all.iter_mut().filter_map(|job| job.clock.as_mut()) {
        let steps = [&clock.from, &clock.to].map(|host| step_of(host));
        clock.step_ns = steps
            .into_iter()
            .flatten()
            .max_by_key(|step| step.unsigned_abs());
    }
    add_round_trips(&mut all, &ways);
    all
}

/// Adds the round trips of jobs in both directions between two hosts.
fn add_round_trips(jobs: &mut [JobReport], ways: &[DirectionFlows]) {
    // Receive time minus send time, as stamped: the offset of the clocks has the opposite sign in the other direction.
    let raw_ns = |jobs: &[JobReport], way: &DirectionFlows| {
        let job = jobs.iter().find(|job| job.name == way.name)?;
        Some(job.latency_ns.mean? + job.clock.as_ref()?.offset_mean_ns? as f64)
    };
    for pair in ways.chunk_by(|one, other| one.job == other.job) {
        let [there, back] = pair else { continue };
        let round_trip = raw_ns(jobs, there).zip(raw_ns(jobs, back));
        let round_trip = round_trip.map(|(there, back)| there + back);
        let both = |job: &&mut JobReport| [&there.name, &back.name].contains(&&job.name);
        for job in jobs.iter_mut().filter(both) {
            job.round_trip_mean_ns = round_trip;
        }
    }
}

/// A direction from the results of its two ends.
fn joined(sender: &JobReport, receiver: &JobReport) -> JobReport {
    let mut whole = JobReport::joined(sender, receiver);
    whole.rates.set_received(&whole.totals);
    whole
}

/// Flows of all hosts. Both ends of a direction may list a flow.
fn flows(parts: &[Part]) -> Vec<FlowReport> {
    let mut all: BTreeMap<u32, FlowReport> = BTreeMap::new();
    for flow in parts.iter().flat_map(|part| &part.report.flows) {
        let known = all.entry(flow.flow);
        known
            .and_modify(|known| {
                let (sender, receiver) = match flow.totals.received_frames {
                    Some(_) => (&*known, flow),
                    None => (flow, &*known),
                };
                // The receiver may know what the sender sent.
                let totals = match receiver.totals.offered_frames {
                    Some(_) => receiver.totals,
                    None => joined_totals(&sender.totals, &receiver.totals),
                };
                *known = FlowReport {
                    totals,
                    ..receiver.clone()
                };
            })
            .or_insert_with(|| flow.clone());
    }
    all.into_values().collect()
}

/// Makes the losses of flows unknown where those of their direction are.
fn forget_losses_of_flows(report: &mut Report, plan: &Plan) {
    let Report { jobs, flows, .. } = report;
    let first = plan.first_flow.unwrap_or(0);
    let ways = plan.directions(first);
    let is_unknown = |way: &&DirectionFlows| {
        let mut jobs = jobs.iter().filter(|job| job.name == way.name);
        jobs.any(|job| job.incomplete.is_some() && job.totals.lost_frames.is_none())
    };
    for way in ways.iter().filter(is_unknown) {
        // Reports count flows from the first one of the plan.
        let is_own = |flow: &&mut FlowReport| {
            let number = flow.flow.wrapping_sub(way.first_flow.wrapping_sub(first));
            number < way.flows
        };
        let flows = flows.iter_mut().filter(is_own);
        flows.for_each(|flow| flow.totals.lost_frames = None);
    }
}

/// Totals of all directions or, without directions, of all loads. The loss is unknown if that of one direction with both
/// ends is unknown.
fn totals(report: &Report, plan: &Plan) -> Totals {
    let jobs = &report.jobs;
    let load = report.load.as_ref().map(LoadReport::totals);
    let mut all = match jobs.is_empty() {
        true => load.unwrap_or_default(),
        false => jobs
            .iter()
            .fold(Totals::default(), |sum, job| sum.plus(&job.totals)),
    };
    all.connections = load.and_then(|load| load.connections);
    let ways = plan.directions(plan.first_flow.unwrap_or(0));
    let has_both_ends = |job: &&JobReport| {
        let way = ways.iter().find(|way| way.name == job.name);
        way.is_some_and(|way| way.tx.is_some() && way.rx.is_some())
    };
    let mut with_loss = jobs.iter().filter(has_both_ends);
    if with_loss.any(|job| job.totals.lost_frames.is_none()) {
        all.lost_frames = None;
    }
    all
}

/// Makes the report incomplete if a host is missing, whatever the criteria of the others say.
fn judge_hosts(report: &mut Report) {
    let missing = report
        .hosts
        .iter()
        .filter(|host| host.state != HostState::Complete);
    let missing: Vec<String> = missing.map(HostReport::account).collect();
    if missing.is_empty() {
        return;
    }
    let failed = report.criteria.iter().filter(|c| !c.held);
    let failed: Vec<&str> = failed
        .filter(|c| c.measured.is_some())
        .map(|c| c.criterion.as_str())
        .collect();
    let mut reason = missing.join("; ");
    if !failed.is_empty() {
        reason = format!("{reason}; criteria not met: {}", failed.join(", "));
    } else if report.verdict == Verdict::Incomplete {
        reason = format!("{reason}; {}", report.reason);
    }
    report.verdict = Verdict::Incomplete;
    report.reason = reason;
}

#[cfg(test)]
mod tests {
    use wb_measure::{EncodedHistogram, NamedHistogram, SignedHistogram};

    use super::*;
    use crate::{TrafficJob, peer::PairClock, plan::PortPlan, report::StreamReport};

    /// A plan with a job `web` from host h1 to host h2, and a job `all` at host h3.
    fn plan(criteria: &[&str]) -> Plan {
        let port = |name: &str, locator: &str| PortPlan::new(name, locator.parse().unwrap());
        let job = |name: &str, tx: &str, rx: &str| TrafficJob {
            name: name.to_owned(),
            tx: Some(tx.to_owned()),
            rx: Some(rx.to_owned()),
            streams: vec![crate::Stream::default()],
            ..TrafficJob::default()
        };
        Plan {
            ports: vec![
                port("a", "h1:a0"),
                port("b", "h2:b0"),
                port("c", "h3:c0"),
                port("d", "h3:d0"),
            ],
            traffic: vec![job("web", "a", "b"), job("all", "c", "d")],
            criteria: criteria.iter().map(|c| c.parse().unwrap()).collect(),
            ..Plan::default()
        }
    }

    fn latency(of: &str) -> NamedHistogram {
        let mut values = SignedHistogram::new();
        (1..=98).for_each(|n| values.record(n * 1000));
        NamedHistogram {
            of: of.to_owned(),
            name: "latency_ns".to_owned(),
            values,
        }
    }

    fn sent() -> Totals {
        Totals {
            intended_frames: Some(100),
            offered_frames: Some(100),
            unsent_frames: Some(0),
            offered_octets: Some(6400),
            ..Totals::default()
        }
    }

    fn received() -> Totals {
        Totals {
            received_frames: Some(99),
            duplicate_frames: Some(1),
            received_octets: Some(6336),
            ..Totals::default()
        }
    }

    /// Report of a host with one end, or both ends, of a direction.
    fn report(job: &str, ports: (&str, &str), totals: Totals) -> Report {
        let flow = |totals| FlowReport {
            flow: 0,
            totals,
            ..FlowReport::default()
        };
        let receives = totals.received_frames.is_some();
        let values = receives.then(|| latency(""));
        let summary = values.as_ref().map(|named| named.values.summary());
        let rates = Rates {
            tx_time_ns: totals.offered_frames.map(|_| 1_000_000_000),
            rx_time_ns: totals.received_frames.map(|_| 990_000_000),
            ..Rates::default()
        };
        Report {
            verdict: Verdict::Completed,
            elapsed_ns: 1_200_000_000,
            totals,
            latency_ns: summary.unwrap_or_default(),
            jobs: vec![JobReport {
                name: job.to_owned(),
                tx: Some(ports.0.to_owned()),
                rx: Some(ports.1.to_owned()),
                totals,
                rates,
                latency_ns: summary.unwrap_or_default(),
                streams: vec![StreamReport {
                    totals,
                    ..StreamReport::default()
                }],
                ..JobReport::default()
            }],
            flows: vec![flow(totals)],
            histograms: values.iter().map(EncodedHistogram::from).collect(),
            ..Report::default()
        }
    }

    fn complete(hosts: &[&str]) -> Vec<HostReport> {
        let host = |host: &&str| HostReport {
            host: (*host).to_owned(),
            ..HostReport::default()
        };
        hosts.iter().map(host).collect()
    }

    fn all() -> Vec<(String, Report)> {
        let both = Totals {
            lost_frames: Some(2),
            ..sent().plus(&received())
        };
        [
            ("h1", report("web", ("a", "b"), sent())),
            ("h2", report("web", ("a", "b"), received())),
            ("h3", report("all", ("c", "d"), both)),
        ]
        .map(|(host, report)| (host.to_owned(), report))
        .into()
    }

    #[test]
    fn both_ends_of_a_direction_give_its_loss() {
        let hosts = complete(&["h1", "h2", "h3"]);
        let all = assemble(&plan(&["lost<=4", "p50<=60us"]), all(), hosts).unwrap();
        assert_eq!(all.verdict, Verdict::Pass, "{}", all.reason);
        let [web, other] = &all.jobs[..] else {
            panic!("two directions");
        };
        assert_eq!((web.name.as_str(), other.name.as_str()), ("web", "all"));
        for job in [web, other] {
            assert_eq!(job.totals.lost_frames, Some(2), "{}", job.name);
            assert_eq!(job.latency_ns.samples, 98);
            assert!(job.latency_ns.p50.is_some());
            assert_eq!(job.streams.len(), 1);
            assert_eq!(job.streams[0].totals.lost_frames, Some(2));
        }
        assert_eq!(web.rates.received_pps, Some(99.0));
        assert_eq!(all.totals.offered_frames, Some(200));
        assert_eq!(all.totals.lost_frames, Some(4));
        assert!(all.totals.adds_up());
        assert_eq!(all.latency_ns.samples, 196);
        assert!(all.latency_ns.p99.is_some());
        assert_eq!(all.hosts.len(), 3);
    }

    #[test]
    fn the_order_of_the_hosts_changes_nothing() {
        let hosts = || complete(&["h1", "h2", "h3"]);
        let mut reports = all();
        let one = assemble(&plan(&[]), reports.clone(), hosts()).unwrap();
        reports.reverse();
        let other = assemble(&plan(&[]), reports, hosts()).unwrap();
        assert_eq!(one.totals, other.totals);
        assert_eq!(one.latency_ns, other.latency_ns);
        let counts = |report: &Report| Vec::from_iter(report.jobs.iter().map(|job| job.totals));
        assert_eq!(counts(&one), counts(&other));
    }

    /// Reports of two hosts of a job in both directions. The clock of h2 is 20 ms ahead; the estimate of each host has
    /// this error.
    fn both_ways(errors_ns: [i64; 2]) -> (Plan, Vec<(String, Report)>) {
        let mut plan = plan(&[]);
        plan.traffic.truncate(1);
        plan.traffic[0].bidir = true;
        let half = |name: &str, ports, latency_ns: f64, offset_ns: i64, error_ns: i64| {
            let mut half = report(name, ports, received());
            let job = &mut half.jobs[0];
            job.latency_ns.mean = Some(latency_ns - error_ns as f64);
            job.clock = Some(PairClock {
                from: ["h2", "h1"][usize::from(ports.1 == "b")].to_owned(),
                to: ["h1", "h2"][usize::from(ports.1 == "b")].to_owned(),
                method: "udp".to_owned(),
                offset_mean_ns: Some(offset_ns + error_ns),
                error_ns: 5_000,
                ..PairClock::default()
            });
            half
        };
        let [there, back] = errors_ns;
        let parts = [
            (
                "h1",
                half("web back", ("b", "a"), 50_000.0, -20_000_000, back),
            ),
            (
                "h2",
                half("web forward", ("a", "b"), 300_000.0, 20_000_000, there),
            ),
        ];
        (
            plan,
            parts.map(|(host, report)| (host.to_owned(), report)).into(),
        )
    }

    #[test]
    fn a_round_trip_does_not_depend_on_the_offset_of_the_clocks() {
        for errors_ns in [[0, 0], [4_000, 0], [-3_000, 2_500]] {
            let (plan, parts) = both_ways(errors_ns);
            let all = assemble(&plan, parts, complete(&["h1", "h2"])).unwrap();
            let names: Vec<&str> = all.jobs.iter().map(|job| job.name.as_str()).collect();
            assert_eq!(names, ["web forward", "web back"]);
            for job in &all.jobs {
                assert_eq!(job.round_trip_mean_ns, Some(350_000.0), "{errors_ns:?}");
            }
        }
        let (plan, mut parts) = both_ways([0, 0]);
        parts.remove(0);
        let all = assemble(&plan, parts, complete(&["h1", "h2"])).unwrap();
        assert!(all.jobs.iter().all(|job| job.round_trip_mean_ns.is_none()));
    }

    #[test]
    fn a_step_of_either_clock_is_in_the_clocks_of_its_directions() {
        let stepped = |host: usize, step_ns: i64| {
            let (plan, mut parts) = both_ways([0, 0]);
            parts[host].1.clock.step_ns = step_ns;
            let all = assemble(&plan, parts, complete(&["h1", "h2"])).unwrap();
            let clocks = all.jobs.iter().map(|job| job.clock.clone().unwrap());
            assert_eq!(all.totals.received_frames, Some(198));
            clocks.map(|clock| clock.stepped()).collect::<Vec<_>>()
        };
        for host in [0, 1] {
            let [Some(there), Some(back)] = &stepped(host, -6_000)[..] else {
                panic!("both directions are invalid");
            };
            assert_eq!(
                there,
                "the wall clock of h1 or h2 was stepped by -6.00 us during the run"
            );
            assert_eq!(
                back,
                "the wall clock of h2 or h1 was stepped by -6.00 us during the run"
            );
            // Within the error of the clocks.
            assert_eq!(stepped(host, 5_000), [None, None]);
        }
    }

    #[test]
    fn counts_of_hosts_that_ended_early_are_true() {
        let mut hosts = complete(&["h1", "h2", "h3"]);
        hosts[0].state = HostState::CutOff;
        let mut parts = all();
        parts[1].1.elapsed_ns = 9_000_000_000;
        let all = assemble(&plan(&["lost<=4"]), parts, hosts).unwrap();
        assert_eq!(
            (all.verdict, &*all.reason),
            (Verdict::Incomplete, "host h1 cut off")
        );
        let whole = assemble(&plan(&[]), self::all(), complete(&["h1", "h2", "h3"])).unwrap();
        let lost = |report: &Report| Vec::from_iter(report.jobs.iter().map(|job| job.totals));
        assert_eq!(lost(&all), lost(&whole));
        assert!(all.jobs[0].incomplete.is_some() && all.jobs[0].totals.lost_frames.is_some());
    }

    #[test]
    fn frames_after_a_fault_at_their_receiver_are_not_lost() {
        let mut hosts = complete(&["h1", "h2", "h3"]);
        hosts[1].state = HostState::Failed;
        hosts[1].why = "b0: the interface is gone".to_owned();
        let all = assemble(&plan(&["lost<=4"]), all(), hosts).unwrap();
        let reason = "host h2 failed: b0: the interface is gone";
        assert_eq!((all.verdict, &*all.reason), (Verdict::Incomplete, reason));
        let [web, other] = &all.jobs[..] else {
            panic!("two directions")
        };
        assert_eq!(web.incomplete.as_deref(), Some(reason));
        let known = [&web.totals, &other.totals, &all.totals].map(|all| all.lost_frames.is_some());
        assert_eq!(known, [false, true, false]);
        assert_eq!(all.criteria[0].measured, None);
    }

    #[test]
    fn frames_after_the_early_end_of_their_receiver_are_not_lost() {
        let assembled = |ends_ns: [u64; 2], knows: bool| {
            let mut parts = all();
            for (part, end_ns) in parts.iter_mut().zip(ends_ns) {
                part.1.elapsed_ns = end_ns;
            }
            parts[1].1.jobs[0].totals.lost_frames = knows.then_some(2);
            let mut hosts = complete(&["h1", "h2", "h3"]);
            hosts[1].state = HostState::CutOff;
            assemble(&plan(&[]), parts, hosts).unwrap().jobs[0]
                .totals
                .lost_frames
        };
        let (early, late) = (3_000_000_000, 9_000_000_000);
        assert_eq!(assembled([late, early], false), None);
        assert!(assembled([early, late], false).is_some());
        assert!(assembled([late, early], true).is_some());
    }

    #[test]
    fn the_path_lost_what_the_receiver_could_not_know() {
        let mut parts = all();
        for (limiter, why) in [
            (Limiter::Sender, "this run only receives"),
            (Limiter::Fault, "x"),
        ] {
            parts[1].1.limited_by = limiter.clone().because(why).into();
            let all = assemble(&plan(&[]), parts.clone(), complete(&["h1", "h2", "h3"])).unwrap();
            let blames = all
                .limited_by
                .to_string()
                .contains("h2: the device or the path: 2 frames lost");
            assert_eq!(blames, limiter == Limiter::Sender, "{}", all.limited_by);
        }
    }

    #[test]
    fn nothing_is_invented_for_a_lost_host() {
        let mut hosts = complete(&["h1", "h2", "h3"]);
        hosts[0] = HostReport {
            host: "h1".to_owned(),
            state: HostState::Lost,
            since_ns: Some(500_000_000),
            why: "no message for 3 s".to_owned(),
            ..HostReport::default()
        };
        let mut reports = all();
        reports.remove(0);
        let all = assemble(&plan(&["lost<=1"]), reports, hosts).unwrap();
        assert_eq!(all.verdict, Verdict::Incomplete);
        assert_eq!(all.reason, "host h1 lost at 0.5 s: no message for 3 s");
        let [web, other] = &all.jobs[..] else {
            panic!("two directions");
        };
        assert_eq!(web.totals.offered_frames, None);
        assert_eq!(web.totals.received_frames, Some(99));
        assert_eq!(web.totals.lost_frames, None);
        assert!(web.incomplete.is_some());
        assert_eq!(other.totals.lost_frames, Some(2));
        assert_eq!(other.incomplete, None);
        assert_eq!(all.totals.lost_frames, None);
        assert!(assemble(&plan(&[]), Vec::new(), Vec::new()).is_err());
    }
}
