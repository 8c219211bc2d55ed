//! Report as JUnit XML, for build servers.
//!
//! There is a test suite for each benchmark, with a test case for each test at each size; one for the criteria; and
//! one for the run itself. A criterion that was not met is a failure, and a test that was not measured is skipped. A case
//! without a statement about the device is an error: the tester was the limit, or the run ended early.

use std::fmt::Write as _;

use wb_model::{Report, Verdict, bench::SuiteResult};

use crate::{markup::escaped, suite, text};

/// Result of a case, with the reason if it did not pass.
enum Came {
    Well,
    Failure(String),
    Error(String),
    Skipped(String),
}

struct Case {
    name: String,
    seconds: f64,
    came: Came,
    /// The figures.
    out: String,
}

struct Cases {
    name: String,
    cases: Vec<Case>,
}

/// The whole document.
#[must_use]
pub fn report(report: &Report) -> String {
    let kind = match report.kind.as_str() {
        "" => "run",
        kind => kind,
    };
    let mut suites = benchmarks(report);
    suites.push(Cases {
        name: "criteria".to_owned(),
        cases: criteria(report),
    });
    suites.push(Cases {
        name: "run".to_owned(),
        cases: vec![run(report, kind)],
    });
    suites.retain(|suite| !suite.cases.is_empty());
    let all = || suites.iter().flat_map(|suite| &suite.cases);
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    #[allow(clippy::cast_precision_loss)]
    let took = report.elapsed_ns as f64 / 1e9;
    let _ = writeln!(
        out,
        "<testsuites name=\"{}\" {} time=\"{took:.3}\">",
        escaped(&format!("wirebench {kind}")),
        numbers(all())
    );
    for suite in &suites {
        written(&mut out, report, kind, suite);
    }
    out.push_str("</testsuites>\n");
    out
}

fn written(out: &mut String, report: &Report, kind: &str, suite: &Cases) {
    let seconds: f64 = suite.cases.iter().map(|case| case.seconds).sum();
    let _ = write!(
        out,
        "  <testsuite name=\"{}\" {} time=\"{seconds:.3}\"",
        escaped(&suite.name),
        numbers(suite.cases.iter())
    );
    // Readers expect RFC 3339 without a zone (ISO 8601).
    let started = report.started.trim_end_matches('Z');
    for (name, value) in [
        ("timestamp", started),
        ("hostname", report.environment.host.as_str()),
    ] {
        if !value.is_empty() {
            let _ = write!(out, " {name}=\"{}\"", escaped(value));
        }
    }
    out.push_str(">\n");
    let mut named: Vec<(&str, String)> = Vec::new();
    for (name, value) in suite::facts(report) {
        match (name, named.last_mut()) {
            // A further line of the previous finding.
            ("", Some((_, own))) => *own = format!("{own}; {value}"),
            _ => named.push((name, value)),
        }
    }
    if !named.is_empty() && suite.name != "criteria" {
        out.push_str("    <properties>\n");
        for (name, value) in &named {
            let (name, value) = (escaped(name), escaped(value));
            let _ = writeln!(out, "      <property name=\"{name}\" value=\"{value}\"/>");
        }
        out.push_str("    </properties>\n");
    }
    // Servers build a tree from the dots in the name.
    let class = format!("wirebench.{kind}.{}", suite.name).replace(' ', ".");
    let class = escaped(&class);
    for case in &suite.cases {
        let _ = writeln!(
            out,
            "    <testcase classname=\"{class}\" name=\"{}\" time=\"{:.3}\">",
            escaped(&case.name),
            case.seconds
        );
        let (element, why) = match &case.came {
            Came::Well => ("", ""),
            Came::Failure(why) => ("failure", why.as_str()),
            Came::Error(why) => ("error", why.as_str()),
            Came::Skipped(why) => ("skipped", why.as_str()),
        };
        if !element.is_empty() {
            let _ = writeln!(out, "      <{element} message=\"{}\"/>", escaped(why));
        }
        if !case.out.is_empty() {
            let _ = writeln!(out, "      <system-out>{}</system-out>", escaped(&case.out));
        }
        out.push_str("    </testcase>\n");
    }
    out.push_str("  </testsuite>\n");
}

/// Number of cases of each kind.
fn numbers<'a>(cases: impl Iterator<Item = &'a Case>) -> String {
    let (mut all, mut failures, mut errors, mut skipped) = (0, 0, 0, 0);
    for case in cases {
        all += 1;
        match case.came {
            Came::Well => {}
            Came::Failure(_) => failures += 1,
            Came::Error(_) => errors += 1,
            Came::Skipped(_) => skipped += 1,
        }
    }
    format!("tests=\"{all}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\"")
}

/// The run itself. If criteria explain the verdict, they report it.
fn run(report: &Report, kind: &str) -> Case {
    let explained = report.criteria.iter().any(|c| !c.held);
    #[allow(clippy::cast_precision_loss)]
    let seconds = report.elapsed_ns as f64 / 1e9;
    Case {
        name: kind.to_owned(),
        seconds,
        came: match report.verdict {
            Verdict::Fail if !explained => Came::Failure(report.reason.clone()),
            Verdict::Pass | Verdict::Completed | Verdict::Fail => Came::Well,
            Verdict::Invalid | Verdict::Incomplete => Came::Error(report.reason.clone()),
        },
        out: text::report(report, &text::Options::default()),
    }
}

fn criteria(report: &Report) -> Vec<Case> {
    let case = |c: &wb_model::report::CriterionReport| {
        let measured = c.measured.map_or_else(
            || "no data".to_owned(),
            |value| format!("measured {}", text::measured(&c.criterion, value)),
        );
        Case {
            name: c.criterion.clone(),
            seconds: 0.0,
            came: match c.held {
                true => Came::Well,
                // If the run says nothing about the device, neither do the criteria.
                false if report.verdict == Verdict::Invalid => {
                    Came::Error(format!("{measured}; the run is invalid: {}", report.reason))
                }
                false => Came::Failure(measured.clone()),
            },
            out: measured,
        }
    };
    report.criteria.iter().map(case).collect()
}

fn benchmarks(report: &Report) -> Vec<Cases> {
    let mut suites: Vec<Cases> = Vec::new();
    let mut add = |name: &str, case: Case| match suites.iter_mut().find(|s| s.name == name) {
        Some(suite) => suite.cases.push(case),
        None => suites.push(Cases {
            name: name.to_owned(),
            cases: vec![case],
        }),
    };
    for r in &report.results {
        let name = r.name();
        if !r.steps.is_empty() {
            for step in &r.steps {
                add(name, of_step(step));
            }
            continue;
        }
        add(
            name,
            Case {
                name: r.subject(),
                seconds: r.trial_seconds,
                came: came(report, r),
                out: figures(report, r),
            },
        );
    }
    suites
}

fn of_step(step: &wb_model::bench::ServiceStep) -> Case {
    Case {
        name: format!("{} {}", step.service, step.step),
        seconds: step.duration_s,
        came: match step.passed {
            true => Came::Well,
            false if step.void => Came::Error(step.reason.clone()),
            false => Came::Failure(step.reason.clone()),
        },
        out: format!(
            "offered {}, received {}, loss {}; {}",
            crate::figures::rate_bps(step.offered_bps),
            crate::figures::rate_bps(step.received_bps),
            crate::figures::ratio(step.loss_ratio),
            step.reason
        ),
    }
}

/// Result of a test. If the tester was the limit, its result is still a lower bound. Without any result, that is an
/// error.
fn came(report: &Report, r: &SuiteResult) -> Came {
    let why = |else_why: &str| {
        let why = r.headline().unwrap_or_else(|| else_why.to_owned());
        format!("{}: {why}", r.subject())
    };
    match &r.not_measured {
        Some(why) => Came::Skipped(why.clone()),
        None if r.late().is_some() => Came::Error(why("the tester was late")),
        _ if r.incomplete => Came::Error(why("stopped early")),
        // If nothing arrived in any test, the run says nothing about the device.
        _ if r.has_failed() && report.verdict == Verdict::Invalid => {
            Came::Error(why("nothing was forwarded"))
        }
        _ if r.has_failed() => Came::Failure(why(r.test.def().failure)),
        _ if r.is_unjudged() => Came::Error(why("no valid trials")),
        _ if r.is_partly_void() => Came::Error(why("some trials are void")),
        _ => Came::Well,
    }
}

/// The tables of one result, as text.
fn figures(report: &Report, r: &SuiteResult) -> String {
    let only = Report {
        plan: report.plan.clone(),
        results: vec![r.clone()],
        ..Report::default()
    };
    suite::figures(&only)
}
