//! Messages of a fleet from other hosts, and the output of time services: no panics. A part that is opened ends.
//!
//! Messages with a plan or a report in them are hard to find by chance; `crates/core/fleet/tests/all/hostile_messages.rs`
//! changes whole ones.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde::de::DeserializeOwned;
use wb_fleet_core::{
    Now,
    agent::{Agent, AgentSettings, Event},
    controller::{Controller, RunRecord},
    merge::{HostSnap, merge},
    message::{
        Alive, LeaderEntry, LeaseMessage, Registration, Request, SentMessage, ShareMessage, Snap, Start, Stop,
    },
    place::place,
    subjects::Subject,
    time_service::{chrony, ptp},
};
use wb_model::{Plan, merge::assemble};

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    serde_json::from_slice(bytes).ok()
}

const fn at(mono_ns: u64) -> Now {
    Now { mono_ns, wall_ns: mono_ns }
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = (chrony(text), ptp(text));
        if let Ok(subject) = text.parse::<Subject>() {
            assert_eq!(subject.to_string().parse(), Ok(subject));
        }
    }
    let _ = (read::<Alive>(bytes), read::<LeaderEntry>(bytes));
    let settings = AgentSettings { host: "h1".to_owned(), ..AgentSettings::default() };
    let mut agent = Agent::new(settings, Vec::new(), at(0));
    let run = || "r1".to_owned();
    let sent = |message| Event::Sent { run: run(), host: "h2".to_owned(), direction: 0, message };
    let events = [
        read::<Request>(bytes).map(|request| Event::Request { reply: 1, request }),
        read::<Start>(bytes).map(Event::Start),
        read::<LeaseMessage>(bytes).map(|lease| Event::Lease { run: run(), lease }),
        read::<Stop>(bytes).map(|stop| Event::Stop { run: run(), stop }),
        read::<SentMessage>(bytes).map(sent),
    ];
    for event in events.into_iter().flatten() {
        agent.on(event, at(1));
    }
    agent.on(Event::Tick, at(60_000_000_000));
    if let Some(snap) = read::<Snap>(bytes) {
        let part = HostSnap { host: "h1", snap: &snap, is_current: true, is_other_end: false };
        let _ = merge(&[part], 1, 1);
    }
    if let Some(registration) = read::<Registration>(bytes) {
        let _ = place(&Plan::default(), &[registration], 0);
    }
    if let Some(message) = read::<ShareMessage>(bytes) {
        let report = *message.share.report;
        let _ = assemble(&report.plan.clone(), vec![(message.host, report)], Vec::new());
    }
    if let Some(record) = read::<RunRecord>(bytes) {
        let _ = Controller::adopt(record, 2, at(1));
    }
});
