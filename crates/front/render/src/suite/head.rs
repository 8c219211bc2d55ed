//! Tests requested from a suite, and their conditions: the head of its report.

use wb_model::{
    Report,
    bench::{
        CONFORMANCE, Method, Modifier, Quantity, Service, Share, SuitePlan, SuiteTest, size_text,
    },
    counted,
    units::Span,
};

use super::{void, with_trials};
use crate::figures::{count, ratio};

/// Names and their descriptions.
pub(crate) fn facts(report: &Report) -> Vec<(&'static str, String)> {
    let Some(plan) = report.plan.suite() else {
        return Vec::new();
    };
    let mut facts = vec![
        ("device", device(plan)),
        ("network", network(plan.isolated)),
        ("tests", tests(report, plan)),
        ("load", load(report, plan)),
        ("sizes", sizes(report, plan)),
        ("modifiers", modifiers(report, plan)),
    ];
    // The operator configures the filters in the device; this is the requested configuration.
    for (n, condition) in plan.filters(&report.plan.trial()).iter().enumerate() {
        let name = if n == 0 { "filter" } else { "" };
        facts.push((name, format!("{}. {condition}", n + 1)));
    }
    if plan.has(Modifier::Filters) {
        facts.push(("", "deny the rest".to_owned()));
    }
    if plan.tests.contains(&SuiteTest::Throughput)
        || plan.tests.iter().any(|t| t.needs_throughput())
    {
        facts.push(("search", search(plan)));
    }
    if plan.tests.contains(&SuiteTest::Ndr) {
        let goals = plan.goals();
        facts.extend(goals.iter().enumerate().map(|(i, goal)| {
            let text = format!(
                "{}: loss {}, exceed {}, trials {}, sum {}, width {}",
                goal.name,
                share(goal.loss),
                share(goal.exceed),
                goal.final_duration,
                goal.duration_sum,
                share(goal.width)
            );
            (if i == 0 { "goals" } else { "" }, text)
        }));
    }
    let services = plan
        .services
        .iter()
        .filter(|_| plan.tests.contains(&SuiteTest::Y1564));
    facts.extend(services.enumerate().map(|(n, service)| {
        let name = if n == 0 { "services" } else { "" };
        (name, promise(service))
    }));
    facts.push(("trials", trials(plan)));
    facts.push(("validity", validity(report)));
    facts.retain(|(_, text)| !text.is_empty());
    facts
}

fn share(share: Share) -> String {
    ratio(share.0)
}

fn device(plan: &SuitePlan) -> String {
    let device = &plan.device;
    let version = match device.version.is_empty() {
        true => String::new(),
        false => format!(", version {}", device.version),
    };
    let configuration = match device.configuration.is_empty() {
        true => String::new(),
        false => format!(", configuration {}", device.configuration),
    };
    format!("{}{version}{configuration}", device.name)
}

/// Isolation of the network (RFC 6815).
fn network(isolated: bool) -> String {
    let confirmed = match isolated {
        true => "confirmed by operator",
        false => "not confirmed",
    };
    format!("isolated test environment: {confirmed}")
}

/// The tests with their documents, including those that ran only because another test needs their result.
fn tests(report: &Report, plan: &SuitePlan) -> String {
    let mut all = plan.tests.clone();
    for made in report.results.iter().map(|r| r.test) {
        if !all.contains(&made) {
            all.push(made);
        }
    }
    let named = all.iter().map(|test| test.def().heading);
    named.collect::<Vec<_>>().join(", ")
}

fn load(report: &Report, plan: &SuitePlan) -> String {
    let both = report.results.iter().any(|r| r.directions > 1)
        || report.plan.traffic.iter().any(|job| job.bidir);
    let mut text = match (plan.of, both) {
        (Quantity::Frames, true) => {
            "frames in both directions at once; rates are per direction".to_owned()
        }
        (Quantity::Frames, false) => "frames in one direction".to_owned(),
        (Quantity::Cps, _) => "new connections per second".to_owned(),
        (Quantity::Cc, _) => "concurrent connections".to_owned(),
        (Quantity::Rps, _) => "requests per second".to_owned(),
    };
    if let Some(job) = &plan.job {
        text.push_str(&format!(" of {job}"));
    }
    for (word, bound) in [("at least", &plan.min), ("at most", &plan.max)] {
        if let Some(bound) = bound {
            text.push_str(&format!(", {word} {bound}"));
        }
    }
    text
}

fn sizes(report: &Report, plan: &SuitePlan) -> String {
    let mut names: Vec<String> = Vec::new();
    for name in report.results.iter().map(|r| &r.size) {
        if !name.is_empty() && !names.contains(name) {
            names.push(name.clone());
        }
    }
    if names.is_empty() {
        names = plan.sizes.iter().map(|s| s.name.clone()).collect();
    }
    match names.as_slice() {
        [] => String::new(),
        [one] => format!("{} with FCS", size_text(one)),
        all => format!("{}; bytes with FCS", all.join(", ")),
    }
}

fn modifiers(report: &Report, plan: &SuitePlan) -> String {
    let named = plan.modifiers.iter().map(|modifier| match modifier {
        Modifier::Broadcast => {
            "1 % broadcast frames (RFC 2544 section 11.1)".to_owned()
        }
        Modifier::Bursts => {
            let lengths: Vec<String> = plan.burst_lengths.iter().map(u32::to_string).collect();
            format!(
                "evenly spaced, then in bursts of {} frames (RFC 2544 section 21)",
                lengths.join(", ")
            )
        }
        Modifier::Filters => {
            let n = plan.filters(&report.plan.trial()).len();
            let conditions = counted(n, "condition", "conditions");
            format!("device filter with {conditions} (RFC 2544 section 11.4)")
        }
        Modifier::Routing => {
            "RIPv2 update at the start of each trial and every 30 s, two tables alternating (RFC 2544 section 11.3)"
                .to_owned()
        }
        Modifier::Management => {
            let device = plan.managed(&report.plan.trial());
            let to = device.map_or_else(String::new, |device| format!(" to {device}"));
            format!("SNMP query{to} at the start of every second (RFC 2544 section 11.2)")
        }
    });
    named.collect::<Vec<_>>().join(", ")
}

fn search(plan: &SuitePlan) -> String {
    let search = &plan.search;
    let mut parts = vec![match search.method {
        Method::Binary if search.repeats > 0 => {
            "binary with loss verification (ETSI GS NFV-TST 009)".to_owned()
        }
        Method::Binary => "binary".to_owned(),
        Method::Mlr => "MLRsearch".to_owned(),
    }];
    parts.push(match search.loss.0 > 0.0 {
        true => format!("at most {} loss", share(search.loss)),
        false => "no loss".to_owned(),
    });
    parts.push(match (search.precision, search.resolution) {
        (Some(precision), _) => format!("precision {} of the load", share(precision)),
        (None, Some(resolution)) => format!("resolution {} of the largest load", share(resolution)),
        (None, None) => "precision 0.5 % of the load".to_owned(),
    });
    if search.repeats > 0 {
        parts.push(format!(
            "a load passes if one of {} trials passes",
            u64::from(search.repeats) + 1
        ));
    }
    parts.push(format!("at most {} per size", search.budget));
    parts.join(", ")
}

/// Criteria of a service, and its observation time.
fn promise(service: &Service) -> String {
    let mut parts = vec![format!("{}: CIR {}", service.name, service.cir)];
    parts.extend(service.eir.map(|eir| format!("EIR {eir}")));
    parts.extend(service.delay.map(|delay| format!("delay {delay}")));
    parts.extend(service.variation.map(|own| format!("variation {own}")));
    parts.push(format!("loss {}", share(service.loss)));
    let available = service.availability.map(share);
    parts.extend(available.map(|own| format!("available {own}")));
    parts.push(format!("tolerance {}", share(service.tolerance)));
    parts.push(format!("steps {}", service.step));
    parts.push(format!("performance {}", service.performance));
    parts.join(", ")
}

fn trials(plan: &SuitePlan) -> String {
    let times = &plan.times;
    let mut parts = match times.search.filter(|search| *search != times.trial) {
        Some(search) => vec![format!("final {}", times.trial), format!("search {search}")],
        None => vec![times.trial.to_string()],
    };
    for (name, span) in [
        ("ramp", times.ramp),
        ("drain", times.drain),
        ("settle", times.settle),
    ] {
        if span != Span::default() {
            parts.push(format!("{name} {span}"));
        }
    }
    parts.push(match times.warm_up {
        true => "warm-up first".to_owned(),
        false => "no warm-up".to_owned(),
    });
    let deviations = match plan.preset == CONFORMANCE {
        true => plan.deviations(),
        false => Vec::new(),
    };
    match (plan.preset.as_str(), deviations.as_slice()) {
        ("", _) => {}
        (preset, []) => parts.push(format!("preset {preset}")),
        (_, all) => parts.push(format!("deviates from the standards: {}", all.join("; "))),
    }
    parts.join(", ")
}

fn validity(report: &Report) -> String {
    let logs: Vec<_> = with_trials(report).iter().map(|r| &r.trial_log).collect();
    let all: usize = logs.iter().map(|log| log.len()).sum();
    let void: usize = logs.iter().map(|log| void(log)).sum();
    match all {
        0 => String::new(),
        1 => format!("1 trial, {void} void"),
        _ => format!("{} trials, {} void", count(all as u64), count(void as u64)),
    }
}
