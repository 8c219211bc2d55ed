//! Messages of hosts with arbitrary values in them: the controller and the merging of results do not panic, and what the
//! other host counted stays.

use proptest::prelude::*;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use wb_fleet_core::{
    Now, Share,
    controller::{Action, Controller, Event, RunSettings},
    merge::{HostSnap, merge},
    message::{Answer, Armed, Op, Opened, RegisteredPort, Registration, ShareMessage, Snap, V1},
    place::place,
};
use wb_model::{Phase, Plan, Report, Snapshot, fleet::HostState, merge::assemble};

/// A recorded report of a job in both directions.
const REPORT: &str = include_str!("../../../../front/render/tests/all/samples/run-bidir.json");

/// Recorded reports of several kinds of jobs.
const REPORTS: [&str; 6] = [
    REPORT,
    include_str!("../../../../front/render/tests/all/samples/load-tcp.json"),
    include_str!("../../../../front/render/tests/all/samples/http.json"),
    include_str!("../../../../front/render/tests/all/samples/mix.json"),
    include_str!("../../../../front/render/tests/all/samples/capture.json"),
    include_str!("../../../../front/render/tests/all/samples/outage.json"),
];

/// Change of one value: which one, and the new value.
type Change = (prop::sample::Index, Value);

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!(0)),
        Just(json!(u64::MAX)),
        Just(json!(u64::from(u32::MAX))),
        Just(json!(i64::MIN)),
        Just(json!(-1)),
        Just(json!(1e300)),
        Just(json!(-0.5)),
        Just(json!("")),
        Just(json!([])),
        Just(Value::Object(Map::new())),
        any::<u64>().prop_map(|n| json!(n)),
        "[a-z.:0-9]{0,9}".prop_map(|text| json!(text)),
    ]
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    prop::collection::vec((any::<prop::sample::Index>(), value()), 1..6)
}

/// Pointers to all values of a document.
fn places(value: &Value, at: &str, all: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let name = name.replace('~', "~0").replace('/', "~1");
                places(field, &format!("{at}/{name}"), all);
            }
        }
        Value::Array(items) => {
            for (n, item) in items.iter().enumerate() {
                places(item, &format!("{at}/{n}"), all);
            }
        }
        _ => {}
    }
    all.push(at.to_owned());
}

/// A message with some of its values changed, if it can still be read. Single changes that make it unreadable are left
/// out.
fn changed<T: Serialize + DeserializeOwned>(message: &T, changes: &[Change]) -> T {
    let mut whole = serde_json::to_value(message).unwrap();
    for (index, value) in changes {
        let mut all = Vec::new();
        places(&whole, "", &mut all);
        let mut next = whole.clone();
        if let Some(place) = next.pointer_mut(index.get::<String>(&all)) {
            *place = value.clone();
        }
        if serde_json::from_value::<T>(next.clone()).is_ok() {
            whole = next;
        }
    }
    serde_json::from_value(whole).unwrap()
}

fn share(host: &str) -> ShareMessage {
    let report: Report = serde_json::from_str(REPORT).unwrap();
    ShareMessage {
        v: V1,
        run: "r1".to_owned(),
        host: host.to_owned(),
        id: host.to_owned(),
        revision: 1,
        share: Share {
            host: host.to_owned(),
            version: "0.1.0".to_owned(),
            report: Box::new(report),
            ..Share::default()
        },
    }
}

fn snap(k: u64) -> Snap {
    let report: Report = serde_json::from_str(REPORT).unwrap();
    let mut snapshot = Snapshot::at(k * 1_000_000_000, 1_000_000_000, Phase::Running);
    snapshot.totals = report.totals;
    Snap {
        v: V1,
        k,
        at_wall_ns: 0,
        snapshot,
        jobs: Vec::new(),
        histograms: Vec::new(),
        so_far: None,
    }
}

/// The plan of the report, with one port on each of two hosts.
fn plan() -> Plan {
    let mut plan = serde_json::from_str::<Report>(REPORT).unwrap().plan;
    for (port, place) in plan.ports.iter_mut().zip(["h1:t0", "h2:t0"]) {
        port.locator = place.parse().unwrap();
    }
    plan
}

const fn at(mono_ns: u64) -> Now {
    Now {
        mono_ns,
        wall_ns: 1_800_000_000_000_000_000 + mono_ns,
    }
}

/// A run of two hosts that has begun, and the time.
fn running() -> (Controller, u64) {
    let registration = |host: &str| Registration {
        host: host.to_owned(),
        id: host.to_owned(),
        version: "0.1.0".to_owned(),
        protocol: wb_fleet_core::message::PROTOCOL,
        boot: "one".to_owned(),
        ports: vec![RegisteredPort {
            locator: "t0".to_owned(),
            up: true,
            ..RegisteredPort::default()
        }],
        ..Registration::default()
    };
    let registrations = ["h1", "h2"].map(registration);
    let placement = place(&plan(), &registrations, 0).unwrap();
    let settings = RunSettings {
        run: "r1".to_owned(),
        lease_ns: 3_000_000_000,
        interval_ns: 1_000_000_000,
        ..RunSettings::default()
    };
    let (mut controller, mut actions) =
        Controller::new(settings, 1, placement, &registrations, at(0));
    let mut now_ns = 0;
    while controller.start().is_none() {
        assert!(now_ns < 20_000_000_000, "the run starts");
        now_ns += 10_000_000;
        let mut events = vec![Event::Tick];
        for action in actions {
            match action {
                Action::Request { host, id, request } => events.extend(
                    match request.op {
                        Op::Open(_) => Some(Answer::Opened(Opened::default())),
                        Op::Resolve(_) => Some(Answer::Armed(Armed::default())),
                        _ => None,
                    }
                    .map(|answer| Event::Reply { host, id, answer }),
                ),
                Action::MeasureClocks { hosts } => {
                    events.extend(hosts.into_iter().map(|host| Event::Clock {
                        host,
                        estimate: wb_fleet_core::clock::Estimate {
                            at_ns: at(now_ns).wall_ns,
                            ..Default::default()
                        },
                        exchanges: 32,
                    }))
                }
                _ => {}
            }
        }
        actions = events
            .into_iter()
            .flat_map(|event| controller.on(event, at(now_ns)))
            .collect();
    }
    (controller, now_ns)
}

/// A broker that lost the results of an ended run: another controller does not report the run as complete.
#[test]
fn results_that_the_broker_has_lost_make_a_run_incomplete() {
    let (mut controller, now_ns) = running();
    let shares = ["h1", "h2"].map(share).to_vec();
    let actions = controller.on(Event::Shares(shares), at(now_ns));
    let record = actions.into_iter().rev().find_map(|action| match action {
        Action::Store(record) => Some(*record),
        _ => None,
    });
    let record = record.expect("the run has ended");
    let (mut later, _) = Controller::adopt(record, 2, at(now_ns));
    later.on(Event::Shares(vec![share("h1")]), at(now_ns));
    let result = later
        .deliver_again()
        .into_iter()
        .find_map(|action| match action {
            Action::Finish(result) => Some(result),
            _ => None,
        });
    let hosts = result.expect("it is delivered").hosts;
    let states = hosts.iter().map(|host| (&*host.host, host.state));
    let expected = [("h1", HostState::Complete), ("h2", HostState::Lost)];
    assert!(states.eq(expected), "{hosts:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_report_with_arbitrary_values_is_assembled_or_refused(
        text in prop::sample::select(&REPORTS[..]), changes in changes()
    ) {
        let report: Report = serde_json::from_str(text).unwrap();
        let parts = [("h1", report.clone()), ("h2", changed(&report, &changes))];
        let parts = parts.map(|(host, report)| (host.to_owned(), report));
        if let Ok(all) = assemble(&report.plan, parts.into(), Vec::new()) {
            let _ = serde_json::to_string(&all).unwrap();
        }
    }

    #[test]
    fn snapshots_with_arbitrary_values_are_merged(changes in changes()) {
        let (one, other) = (snap(1), changed(&snap(1), &changes));
        let parts = [("h1", &one), ("h2", &other)].map(|(host, snap)| HostSnap {
            host,
            snap,
            is_current: true,
            is_other_end: false,
        });
        let _ = merge(&parts, 1_000_000_000, 1_000_000_000);
    }

    #[test]
    fn a_controller_takes_arbitrary_snapshots_and_shares(
        of_snap in changes(), of_share in changes(), waits in prop::collection::vec(0..2_000_u64, 4)
    ) {
        let (mut controller, mut now_ns) = running();
        let events = [
            Event::Snap { host: "h1".to_owned(), snap: Box::new(snap(1)) },
            Event::Snap { host: "h2".to_owned(), snap: Box::new(changed(&snap(1), &of_snap)) },
            Event::Share(Box::new(changed(&share("h2"), &of_share))),
            Event::Share(Box::new(share("h1"))),
        ];
        let events = events.into_iter().zip(waits.into_iter().map(|ms| ms * 1_000_000));
        let ticks = std::iter::repeat_n((Event::Tick, 50_000_000), 2_000);
        let mut result = None;
        for (event, wait_ns) in events.chain(ticks) {
            now_ns += wait_ns;
            for action in controller.on(event, at(now_ns)) {
                if let Action::Finish(last) = action {
                    result = Some(last);
                }
            }
        }
        let result = result.expect("every run ends");
        let own = result.shares.iter().find(|share| share.host == "h1");
        let totals = share("h1").share.report.totals;
        prop_assert_eq!(own.map(|own| own.share.report.totals), Some(totals));
    }
}
