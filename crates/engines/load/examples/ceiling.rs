//! Maximum performance of the engine and the machine without a device: a client worker and a server worker connected
//! through memory, each on a separate thread.
//!
//! `cargo run --release -p wb-load --example ceiling -- [SECONDS]`

use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

use wb_load::{
    Clock, LoadControl, LoadPlace, LoadSlot, LoadSpec, LoadStage, LoadTotals, run_load_worker,
};
use wb_model::load::{
    LoadAnswer, LoadEnd, LoadJob, LoadMessage, LoadRate, LoadShape, LoadTransport,
};
use wb_model::units::Span;
use wb_port::memory;
use wb_wire::MacAddr;

struct Real(Instant);

impl Clock for Real {
    fn monotonic_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }

    fn wall_ns(&self) -> u64 {
        wall_ns()
    }
}

fn wall_ns() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64)
}

/// Runs a client against a server. Returns the totals of both.
fn run(client: &LoadJob, server: &LoadJob) -> [LoadTotals; 2] {
    let options = memory::LinkOptions::new("ceiling", wb_port::clock::Clock::Real(wall_ns));
    let (mut near, mut far) = memory::link(&options).expect("sound options");
    let mut place = LoadPlace::single(MacAddr(near.facts.mac));
    place.gateway = Some(MacAddr(far.facts.mac));
    let client = LoadSpec::new(client, &place).expect("a sound job");
    let server = LoadSpec::new(server, &LoadPlace::single(MacAddr(far.facts.mac)));
    let server = server.expect("a sound job").until_stopped();
    let clock = Real(Instant::now());
    let (control, other) = (LoadControl::new(), LoadControl::new());
    for control in [&control, &other] {
        control
            .start_at_mono_ns
            .store(10_000_000, Ordering::Release);
    }
    std::thread::scope(|scope| {
        let answering = scope.spawn(|| {
            run_load_worker(
                &mut far.queues[0],
                server,
                &other,
                &LoadSlot::default(),
                &clock,
            )
        });
        let slot = LoadSlot::default();
        let asked = run_load_worker(&mut near.queues[0], client, &control, &slot, &clock);
        other.stop.store(true, Ordering::Release);
        let answered = answering.join().expect("the server worker ends");
        [asked, answered]
            .map(|outcome| LoadTotals::sum_workers([&outcome.expect("a sound configuration")]))
    })
}

fn main() {
    let seconds = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(3);
    let base = LoadJob {
        clients: vec!["198.18.0.1-198.18.0.100".parse().expect("a range")],
        servers: vec!["198.18.1.1".parse().expect("an address")],
        shape: LoadShape {
            duration: Span::from_secs(seconds),
            ..LoadShape::default()
        },
        ..LoadJob::default()
    };
    let held = |cc| LoadRate {
        cc: Some(cc),
        ..LoadRate::default()
    };
    let server = |job: &LoadJob| LoadJob {
        end: LoadEnd::Server,
        ..job.clone()
    };
    let figure = |what: &str, totals: &[LoadTotals; 2], count: &dyn Fn(&LoadTotals) -> u64| {
        let [client, _] = totals;
        let steady = client.phase(LoadStage::Steady).expect("it ran");
        let ms = (steady.to_ns - steady.from_ns) as f64 / 1e6;
        let p50 = steady.latencies.answer.percentile(50.0).unwrap_or(0);
        let rate = count(client) as f64 / ms * 1e3;
        println!(
            "{what:<28} {rate:>12.0} /s   p50 {:>8.1} us   failed {}  open {}  unsent {}",
            p50 as f64 / 1e3,
            client.failed_connections,
            client.open_connections,
            client.unsent_connections,
        );
    };
    let steady = |totals: &LoadTotals| {
        totals
            .phase(LoadStage::Steady)
            .map_or(0, |p| p.counters.completed)
    };

    // As many short connections as 64 concurrent ones allow.
    let short = LoadJob {
        rate: held(64),
        ..base.clone()
    };
    figure("connections", &run(&short, &server(&short)), &steady);

    let kept = LoadJob {
        requests: 0,
        rate: held(64),
        ..base.clone()
    };
    let requests = |totals: &LoadTotals| {
        totals
            .phase(LoadStage::Steady)
            .map_or(0, |p| p.counters.responses)
    };
    figure(
        "requests, 64 connections",
        &run(&kept, &server(&kept)),
        &requests,
    );

    let udp = LoadJob {
        transport: LoadTransport::Udp,
        request: LoadMessage::Bytes(18),
        answer: LoadAnswer::Echo,
        ..kept.clone()
    };
    figure(
        "datagrams echoed, 64 flows",
        &run(&udp, &server(&udp)),
        &requests,
    );

    let flood = LoadJob {
        flood: true,
        requests: 1,
        answer: LoadAnswer::Sink,
        rate: LoadRate {
            pps: Some(20_000_000),
            ..LoadRate::default()
        },
        ..udp.clone()
    };
    let sent = |totals: &LoadTotals| {
        totals
            .phase(LoadStage::Steady)
            .map_or(0, |p| p.counters.udp_tx)
    };
    figure("datagrams one way", &run(&flood, &server(&flood)), &sent);

    let elephant = LoadJob {
        requests: 0,
        rate: held(1),
        ..flood
    };
    figure(
        "datagrams of one flow",
        &run(&elephant, &server(&elephant)),
        &sent,
    );
}
