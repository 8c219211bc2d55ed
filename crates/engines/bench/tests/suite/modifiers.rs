//! RFC 2544 sections 11 and 21: additional traffic, and the arrival pattern of test frames.

use wb_model::{
    bench::{SuiteResult, SuiteTest},
    load::LoadMessage,
    units::Rate,
};

use crate::{Device, TEN_GIG, assert_near, completed, plan};

const SEARCH: &str = r#"
    [procedure.suite.times]
    trial = "1s"
    search = "100ms"
    [procedure.suite.search]
    resolution = "0.1%"
"#;

fn frames_of(result: &SuiteResult) -> Option<u32> {
    result.burst.as_ref().map(|burst| burst.frames)
}

/// Section 21: after a burst the device needs until it has forwarded all of it, and no longer.
#[test]
fn the_least_gap_between_bursts() {
    let mut device = Device {
        buffer: 1000,
        ..Device::default()
    };
    let more = format!("tests = [\"throughput\", \"loss\"]\nmodifiers = [\"bursts\"]\n{SEARCH}");
    let results = completed(&mut device, &plan(&more));
    let bursts: Vec<_> = results.iter().map(frames_of).collect();
    // Tests that do not search for a limit run once.
    assert_eq!(
        bursts,
        [None, Some(16), Some(64), Some(256), Some(1024), None]
    );
    assert_eq!(results[5].test, SuiteTest::Loss);
    for result in &results[1..5] {
        let burst = result.burst.as_ref().unwrap();
        let frames = f64::from(burst.frames);
        let limit = result.limit.unwrap();
        assert!(
            limit <= device.capacity && limit > device.capacity - 2e-3 * TEN_GIG,
            "{limit}"
        );
        assert_near(burst.burst_fps.unwrap(), TEN_GIG, 1e-6);
        assert_near(burst.period_us.unwrap(), frames / limit * 1e6, 1e-9);
        assert_near(
            burst.gap_us.unwrap(),
            (frames / limit - frames / TEN_GIG) * 1e6,
            1e-9,
        );
        assert!(
            result.confirmed && result.throughput_fps == result.limit,
            "{result:?}"
        );
        for trial in &result.trial_log {
            assert_eq!(trial.tx % u64::from(burst.frames), 0, "{trial:?}");
        }
    }
    // Whole bursts, by a schedule in whole nanoseconds.
    let in_bursts = device.plans.iter().filter_map(|plan| {
        let stream = &plan.traffic.first()?.streams[0];
        let (frames, gap) = (stream.burst?, stream.gap?);
        assert_eq!(stream.rate, Rate::Max);
        Some((frames, gap.as_nanos()))
    });
    let first = in_bursts.clone().next().unwrap();
    assert_eq!(first, (16, 1_076));
    assert!(in_bursts.count() > 30);
    assert!(
        device
            .told
            .iter()
            .any(|live| live.burst == Some(1024) && live.trial > 1),
        "{:?}",
        device.told.last()
    );
}

/// No gap helps a device with a buffer smaller than a burst.
#[test]
fn bursts_that_are_too_long_at_any_gap() {
    let mut device = Device {
        buffer: 200,
        ..Device::default()
    };
    let more = format!(
        "tests = [\"ndr\"]\nmodifiers = [\"bursts\"]\nburst_lengths = [256, 1024]\n{SEARCH}\
         [[procedure.suite.search.goal]]\nname = \"ndr\"\nfinal_duration = \"500ms\"\nduration_sum = \"1s\"\n\
         loss = \"0\"\nexceed = \"0.5\"\nwidth = \"0.5%\"\n"
    );
    let results = completed(
        &mut device,
        &plan(&more.replace("resolution = \"0.1%\"", "")),
    );
    assert_eq!(results.len(), 3);
    assert!(results[0].limit.is_some() && results[0].burst.is_none());
    let short = results[1].burst.as_ref().unwrap();
    assert_near(
        short.gap_us.unwrap(),
        256.0 * (1.0 / device.capacity - 1.0 / TEN_GIG) * 1e6,
        0.2,
    );
    // 466 frames of each burst have to wait.
    let long = results[2].burst.as_ref().unwrap();
    assert_eq!(
        (results[2].limit, long.gap_us, long.period_us),
        (None, None, None)
    );
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |more: &str| {
        let text = format!("{}[procedure.suite]\n{more}", crate::STREAM);
        let plan = wb_model::text::plan_from_toml("plan", &text).unwrap();
        plan.validate().unwrap_err().to_string()
    };
    for (more, what) in [
        (
            "tests = [\"loss\"]\nmodifiers = [\"bursts\"]",
            "needs test throughput or ndr",
        ),
        (
            "tests = [\"y1564\"]\nmodifiers = [\"broadcast\"]",
            "modifiers and test y1564 exclude each other",
        ),
        (
            "modifiers = [\"bursts\", \"broadcast\"]",
            "bursts and broadcast exclude each other",
        ),
        (
            "modifiers = [\"bursts\", \"bursts\"]",
            "duplicate modifier bursts",
        ),
        (
            "modifiers = [\"bursts\"]\nburst_lengths = []",
            "burst_lengths is empty",
        ),
        (
            "modifiers = [\"bursts\"]\nburst_lengths = [16, 16]",
            "duplicate length 16",
        ),
        (
            "modifiers = [\"bursts\"]\nburst_lengths = [1]",
            "burst_lengths must be between 2 and 1048576, got 1",
        ),
        (
            "tests = [\"reset\"]\n[procedure.suite.reset]\ntrigger = \" \"",
            "reset.trigger is empty",
        ),
        (
            "tests = [\"reset\"]\n[procedure.suite.reset]\npatience = \"1ms\"",
            "reset.patience must be at least 100ms, got 1ms",
        ),
        (
            "tests = [\"y1564\"]\n[[procedure.suite.service]]\ncir = \"1mbps\"\nloss = \"100%\"",
            "loss must be less than 1, got 1",
        ),
    ] {
        let refused = refused(more);
        assert!(refused.contains(what), "{refused}");
    }
}

/// Device and results with this SNMP agent.
fn managed(agent: crate::device::Agent) -> (Device, Vec<SuiteResult>) {
    let mut device = Device {
        agent,
        ..Device::default()
    };
    let more =
        format!("tests = [\"throughput\"]\nmodifiers = [\"management\", \"routing\"]\n{SEARCH}");
    let results = completed(&mut device, &plan(&more));
    (device, results)
}

/// Sections 11.2 and 11.3: additional traffic is counted, and does not change the result.
#[test]
fn queries_and_updates_beside_a_test() {
    use crate::device::Agent;
    let plain = format!("tests = [\"throughput\"]\n{SEARCH}");
    let alone = completed(&mut Device::default(), &plan(&plain));
    for (agent, told) in [
        (
            Agent::Answers,
            "12 SNMP queries to 198.18.1.1: all answered",
        ),
        (
            Agent::Errs,
            "12 SNMP queries to 198.18.1.1: 0 answered, 12 answered with an error, 0 unanswered",
        ),
        (
            Agent::Silent,
            "12 SNMP queries to 198.18.1.1: none answered: no agent",
        ),
    ] {
        let (device, results) = managed(agent);
        let result = &results[0];
        assert_eq!(result.limit, alone[0].limit);
        assert_eq!(
            (result.confirmed, result.not_measured.as_ref()),
            (true, None)
        );
        let queries = result.management.unwrap();
        // Eleven search trials, each with the start of one second, and one that confirms.
        assert_eq!(queries.sent, 12);
        assert_eq!(
            queries.sent,
            queries.answered + queries.errors + queries.unanswered
        );
        assert!(
            result.notes.iter().any(|note| note.starts_with(told)),
            "{:?}",
            result.notes
        );
        assert_eq!(result.routing_updates, Some(12));
        for trial in &result.trial_log {
            assert_eq!(trial.management.unwrap().sent, 1, "{trial:?}");
            assert!(trial.beside.is_empty(), "{trial:?}");
        }
        let mut tables = Vec::new();
        for plan in &device.plans {
            let [queries, updates] = &plan.loads[..] else {
                // The engine between memory ports gets no queries.
                assert!(plan.ports.iter().all(|port| port.locator.driver.is_some()));
                continue;
            };
            let job = &plan.traffic[0];
            let LoadMessage::Rip(table) = updates.request else {
                panic!("{updates:?}");
            };
            tables.push(table);
            // With the first frame that counts, and with the first of all.
            assert_eq!(queries.shape.wait, job.ramp);
            assert_eq!(updates.shape.wait, wb_model::units::Span::default());
            assert_eq!(
                updates.shape.duration.0,
                job.ramp.0 + job.duration.unwrap().0
            );
        }
        // The two ceiling trials belong to a separate test.
        let turns = tables[2..].iter().enumerate();
        assert!(
            turns
                .clone()
                .all(|(n, table)| usize::from(*table) == 1 + n % 2),
            "{tables:?}"
        );
        let dumb = wb_bench::suite::run(
            &mut Device {
                agent,
                ..Device::default()
            },
            &plan(&plain.replace(
                "[procedure.suite.times]",
                "modifiers = [\"management\"]\n[procedure.suite.times]",
            )),
        );
        let warned = dumb
            .warnings
            .iter()
            .any(|w| w.starts_with("none of the SNMP queries"));
        assert_eq!(warned, agent == Agent::Silent, "{:?}", dumb.warnings);
    }
}

/// Other tests use the throughput of evenly spaced frames, regardless of burst results. Each result lists the filters
/// that the device must have.
#[test]
fn results_have_the_conditions_of_a_filter() {
    let mut device = Device::default();
    let text = "tests = [\"throughput\"]\nmodifiers = [\"filters\"]\nfilter_conditions = 25\n";
    let result = completed(&mut device, &plan(text)).remove(0);
    let filter: Vec<String> = result.filter.iter().map(ToString::to_string).collect();
    assert_eq!(filter.len(), 25);
    assert_eq!(filter[0], "deny 198.18.1.2 -> 198.19.100.2");
    assert_eq!(filter[12], "permit 198.18.1.2 -> 198.19.1.2");
}

#[test]
fn bursts_are_no_throughput_of_other_tests() {
    let mut device = Device {
        buffer: 200,
        ..Device::default()
    };
    let more = format!(
        "tests = [\"throughput\", \"b2b\"]\nmodifiers = [\"bursts\"]\nburst_lengths = [1024]\n{SEARCH}"
    );
    let results = completed(&mut device, &plan(&more));
    assert_eq!(
        (results[1].limit, frames_of(&results[1])),
        (None, Some(1024))
    );
    let b2b = &results[2];
    assert_eq!(
        (b2b.test, b2b.not_measured.as_ref()),
        (SuiteTest::B2b, None)
    );
    let bursts = b2b.bursts.as_ref().unwrap();
    assert_eq!(bursts.throughput_fps, results[0].limit);
}
