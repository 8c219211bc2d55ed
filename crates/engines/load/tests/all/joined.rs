//! A client worker and a server worker connected to each other: their counts agree.

use std::sync::atomic::Ordering;

use crate::common::{Lab, MS, check, is_gone, job, server_of};
use proptest::prelude::*;
use wb_load::{Clock, LoadPlace, LoadSpec, LoadStage, LoadTotals, LoadWorker};
use wb_model::load::{
    LoadAnswer, LoadClose, LoadJob, LoadMessage, LoadRate, LoadReading, LoadRise, LoadTransport,
    ProfilePoint,
};
use wb_model::units::Span;
use wb_port::clock::VirtualClock;
use wb_port::fault::{Impairment, Loss};
use wb_port::{QueuePair, TxQueue};
use wb_wire::MacAddr;

#[test]
fn short_connections_complete_at_both_ends() {
    let mut lab = Lab::new(|_| ());
    let both = lab.run(&job(2000, 500), &server_of(&job(2000, 500)), &[]);
    let (client, server) = both.totals();
    assert_eq!(client.attempted_connections, 1000);
    for totals in [&client, &server] {
        assert_eq!(totals.completed_connections, 1000);
        assert_eq!((totals.requests, totals.responses), (1000, 1000));
        assert_eq!(totals.open_connections + totals.failed_connections, 0);
    }
    assert_eq!(client.counters.syn_tx, server.counters.syn_rx);
    assert_eq!(client.counters.status_2xx, 1000);
    // Everything belongs to the steady phase, except what the last connections exchanged after its end.
    let steady = client.phase(LoadStage::Steady).unwrap();
    assert_eq!(
        (steady.counters.attempted, steady.to_ns - steady.from_ns),
        (1000, 500 * MS)
    );
    assert_eq!(steady.per_second(steady.counters.attempted), 2000.0);
    assert_eq!(client.latencies.as_ref().unwrap().connect.count(), 1000);
    assert_eq!(client.latencies.as_ref().unwrap().answer.count(), 1000);
    let shown = lab.slots[0].read();
    assert_eq!(
        (shown.phase, shown.counters.completed),
        (LoadStage::Done, 1000)
    );
    assert_eq!((shown.connect.count, shown.request.count), (1000, 1000));
    assert!(shown.request.sum > 0);
}

/// A timeline that reads them every 100 ms would draw older ones as an outage.
#[test]
fn the_counts_shown_are_those_of_now() {
    let seen = std::cell::RefCell::new(Vec::new());
    let read = |lab: &Lab| {
        seen.borrow_mut()
            .push(lab.slots[0].read().counters.attempted)
    };
    let mut lab = Lab::new(|_| ());
    let job = job(2000, 500);
    lab.run(
        &job,
        &server_of(&job),
        &[(150 * MS, &read), (199 * MS, &read), (250 * MS, &read)],
    );
    let seen = seen.into_inner();
    for (seen, due) in seen.iter().zip([300, 398, 500]) {
        assert!(due - seen <= 10, "{seen} of {due}");
    }
}

/// Answers to other workers may arrive at its queues.
#[test]
fn a_worker_with_nothing_left_stays_for_the_others() {
    for (workers, drain_ms) in [(1, 0..100), (2, 1000..1020)] {
        let mut lab = Lab::new(|_| ());
        let mut job = job(2000, 100);
        job.shape.drain = Span::from_millis(1000);
        let (mut client, server) = lab.specs(&job, &server_of(&job));
        client.workers = workers;
        let (client, _) = lab.run_specs(client, server, &[]).totals();
        assert_eq!(client.completed_connections, client.attempted_connections);
        let drain = client.phase(LoadStage::Drain);
        let ms = drain.map_or(0, |drain| (drain.to_ns - drain.from_ns) / MS);
        assert!(drain_ms.contains(&ms), "{workers}: {ms} ms");
    }
}

#[test]
fn kept_connections_ask_again_and_again() {
    let mut kept = job(100, 100);
    kept.requests = 5;
    kept.interval = Span::from_millis(10);
    let server = LoadJob {
        requests: 0,
        ..server_of(&kept)
    };
    let (client, server) = Lab::new(|_| ()).run(&kept, &server, &[]).totals();
    assert_eq!(
        (client.attempted_connections, client.completed_connections),
        (10, 10)
    );
    // Late connections were ended together with the duration.
    assert!((40..50).contains(&client.requests), "{}", client.requests);
    assert_eq!(
        (client.requests, client.responses),
        (server.requests, server.responses)
    );
    assert_eq!(server.completed_connections, 10);
}

#[test]
fn what_waited_while_nobody_looked_did_not_time_out() {
    let mut lab = Lab::new(|options| options.backward.delay_ns = 40 * MS);
    let mut udp = job(5000, 200);
    udp.transport = LoadTransport::Udp;
    udp.request = LoadMessage::Bytes(100);
    udp.answer = LoadAnswer::Echo;
    let (mut client, server) = lab.specs(&udp, &server_of(&udp));
    // Far fewer than wait.
    client.batch = 16;
    let both = lab.run_specs(
        client,
        server,
        &[(100 * MS, &|lab: &Lab| {
            lab.clock.advance(30_000 * MS);
        })],
    );
    let late = both.client.lateness;
    assert_eq!(late.stalls, 1, "{late:?}");
    assert!(late.largest_gap_ns > 29_990 * MS, "{late:?}");
    // Connections in flight were exposed, and their answers read late; the remaining launches were given up.
    assert!(late.exposed_connections >= 190, "{late:?}");
    assert!(late.late_reads >= 190, "{late:?}");
    let (client, _) = both.totals();
    assert_eq!(
        client.failed_connections,
        0,
        "{:?}",
        client.failures_by_cause()
    );
    assert_eq!(client.completed_connections, client.attempted_connections);
    assert_eq!(
        late.missed_departures, client.unsent_connections,
        "{late:?}"
    );
    assert!(client.unsent_connections >= 490, "{late:?}");
    assert_eq!(
        client.attempted_connections + client.unsent_connections,
        1000
    );
}

/// A stall much shorter than all time limits makes no connection fail.
#[test]
fn a_short_absence_exposes_nobody_who_has_patience() {
    for (patience, exposed) in [(10_000, 0..1), (35, 10..1000)] {
        let mut lab = Lab::new(|_| ());
        let mut held = job(1000, 200);
        held.rate.cc = Some(10);
        held.requests = 0;
        held.tcp.response_timeout = Span::from_millis(patience);
        let both = lab.run(
            &held,
            &server_of(&held),
            &[(100 * MS, &|lab: &Lab| {
                lab.clock.advance(20 * MS);
            })],
        );
        let late = both.client.lateness;
        assert_eq!(late.stalls, 1, "{late:?}");
        assert!(exposed.contains(&late.exposed_connections), "{late:?}");
    }
}

/// A period within a stall is the tester's fault, even if a connection waited for its answer.
#[test]
fn periods_in_an_absence_have_not_waited_for_the_far_end() {
    for (absence, missed) in [(0, 0..1), (1_000, 950..1_001)] {
        // The answer takes half a period, or connections almost always wait for one.
        for delay in [5, 9] {
            let mut lab = Lab::new(|options| options.backward.delay_ns = delay * MS);
            let mut held = job(1000, 2_000);
            held.rate.cc = Some(10);
            held.requests = 0;
            held.interval = Span::from_millis(10);
            let both = lab.run(
                &held,
                &server_of(&held),
                &[(500 * MS + 2 * MS, &|lab: &Lab| {
                    lab.clock.advance(absence * MS);
                })],
            );
            let late = both.client.lateness;
            let (client, _) = both.totals();
            assert!(
                client.unsent_requests + client.waited_requests >= missed.start,
                "{client:?}"
            );
            assert!(
                missed.contains(&late.missed_departures),
                "{delay} ms: {late:?}"
            );
        }
    }
}

#[test]
fn a_punctual_worker_was_never_away() {
    let both = Lab::new(|_| ()).run(&job(2000, 100), &server_of(&job(2000, 100)), &[]);
    for outcome in [&both.client, &both.server] {
        let late = &outcome.lateness;
        assert_eq!((late.stalls, late.frames_at_risk()), (0, 0), "{late:?}");
    }
}

/// After each reading the thread loses its CPU for 3 ms.
struct Away<'a>(&'a VirtualClock);

impl Clock for Away<'_> {
    fn monotonic_ns(&self) -> u64 {
        self.0.advance(3 * MS) - 3 * MS
    }

    fn wall_ns(&self) -> u64 {
        self.0.now_ns()
    }
}

#[test]
fn an_answer_that_came_while_the_thread_was_away_is_no_faster() {
    let mut lab = Lab::new(|options| options.backward.delay_ns = 4 * MS);
    let mut udp = job(1, 100);
    udp.transport = LoadTransport::Udp;
    udp.request = LoadMessage::Bytes(100);
    udp.answer = LoadAnswer::Echo;
    let (client, server) = lab.specs(&udp, &server_of(&udp));
    let capacity = lab.near.queues[0].tx().frame_capacity();
    let mut client = LoadWorker::new(client, capacity).unwrap();
    let mut server = LoadWorker::new(server, capacity).unwrap();
    let start = lab.clock.now_ns();
    for control in [&lab.client, &lab.server] {
        control.start_at_mono_ns.store(start, Ordering::Relaxed);
    }
    let (near, far) = (&mut lab.near.queues[0], &mut lab.far.queues[0]);
    let client_turn = client.turn(near, &lab.client, &lab.slots[0], &Away(&lab.clock));
    assert!(client_turn.unwrap().busy);
    let answered = lab.clock.now_ns();
    let server_turn = server.turn(far, &lab.server, &lab.slots[1], &lab.clock);
    assert!(server_turn.unwrap().busy);
    // Not there yet, but there after the stall.
    lab.clock.set(answered + 3 * MS);
    let client_turn = client.turn(near, &lab.client, &lab.slots[0], &Away(&lab.clock));
    assert!(client_turn.unwrap().busy);
    let outcome = client.conclude(near, &lab.slots[0], None);
    let totals = LoadTotals::sum_workers([&outcome]);
    assert_eq!(totals.responses, 1);
    let fastest = outcome
        .phases
        .iter()
        .filter_map(|phase| phase.latencies.answer.min())
        .min();
    assert!(fastest >= Some(answered + 4 * MS - start), "{fastest:?}");
}

#[test]
fn datagrams_are_answered() {
    let mut udp = job(1000, 200);
    udp.transport = LoadTransport::Udp;
    udp.request = LoadMessage::Bytes(100);
    udp.answer = LoadAnswer::Echo;
    let (client, server) = Lab::new(|_| ()).run(&udp, &server_of(&udp), &[]).totals();
    assert_eq!((client.completed_connections, client.responses), (200, 200));
    assert_eq!((server.requests, server.responses), (200, 200));
    assert_eq!(client.counters.payload_rx, 200 * 100);
}

#[test]
fn a_flood_of_datagrams_follows_frames_per_second() {
    let mut udp = job(0, 100);
    udp.transport = LoadTransport::Udp;
    udp.request = LoadMessage::Bytes(18);
    udp.answer = LoadAnswer::Sink;
    udp.flood = true;
    udp.rate = LoadRate {
        pps: Some(50_000),
        ..LoadRate::default()
    };
    let (client, server) = Lab::new(|_| ()).run(&udp, &server_of(&udp), &[]).totals();
    assert_eq!(
        (client.counters.udp_tx, server.counters.udp_rx),
        (5000, 5000)
    );
    assert_eq!((client.counters.udp_rx, server.requests), (0, 5000));
}

#[test]
fn connections_are_held_at_a_number() {
    let mut held = job(0, 1000);
    held.requests = 0;
    held.rate = LoadRate {
        cc: Some(300),
        rps: Some(3000),
        ..LoadRate::default()
    };
    let server = LoadJob {
        requests: 0,
        ..server_of(&held)
    };
    let lab = &mut Lab::new(|_| ());
    let seen = std::cell::Cell::new(0);
    let look = |lab: &Lab| seen.set(lab.slots[0].read().counters.open);
    let (client, server) = lab.run(&held, &server, &[(900 * MS, &look)]).totals();
    assert_eq!(seen.get(), 300);
    assert_eq!(
        (client.attempted_connections, client.completed_connections),
        (300, 300)
    );
    assert_eq!((client.requests, client.unsent_requests), (3000, 0));
    assert_eq!(
        (server.requests, server.completed_connections),
        (client.requests, 300)
    );
}

#[test]
fn a_held_number_is_a_limit_of_the_rate_too() {
    let mut held = job(10_000, 500);
    held.requests = 0;
    held.interval = Span::from_millis(50);
    held.rate.cc = Some(100);
    let server = LoadJob {
        requests: 0,
        ..server_of(&held)
    };
    let (client, _) = Lab::new(|_| ()).run(&held, &server, &[]).totals();
    assert_eq!(client.attempted_connections, 100);
    assert!(client.launch.held_back > 4000, "{:?}", client.launch);
}

#[test]
fn a_ramp_is_counted_apart() {
    let mut ramp = job(1000, 1000);
    ramp.shape.ramp = Span::from_millis(1000);
    let (client, _) = Lab::new(|_| ()).run(&ramp, &server_of(&ramp), &[]).totals();
    let attempted = |phase| {
        client
            .phase(phase)
            .map_or(0, |totals| totals.counters.attempted)
    };
    assert_eq!(
        (attempted(LoadStage::Ramp), attempted(LoadStage::Steady)),
        (500, 1000)
    );
    assert_eq!(client.completed_connections, 1500);
    assert_eq!(
        client
            .phase(LoadStage::Steady)
            .unwrap()
            .latencies
            .connect
            .count(),
        1000
    );
}

/// Start and end of the duration, and connections attempted per second in it.
fn duration_of(totals: &LoadTotals) -> (u64, u64, f64) {
    let steady = totals.phase(LoadStage::Steady).unwrap();
    let cps = steady.per_second(steady.counters.attempted);
    (steady.from_ns / MS, steady.to_ns / MS, cps)
}

#[test]
fn a_server_beside_its_clients_has_their_phases() {
    let mut job = job(1000, 1000);
    job.shape.ramp = Span::from_millis(500);
    // The clients give up one second after their duration; the server stays until then.
    job.answer = LoadAnswer::Sink;
    job.shape.drain = Span::from_millis(1000);
    let mut lab = Lab::new(|_| ());
    let (client, server) = lab.specs(&job, &server_of(&job));
    let server = server.serve_clients([&job.shape].into_iter());
    let (client, server) = lab.run_specs(client, server, &[]).totals();
    assert_eq!(duration_of(&client), (500, 1500, 1000.0));
    let (from, to, cps) = duration_of(&server);
    assert_eq!((from, to), (500, 1500));
    assert!((995.0..=1005.0).contains(&cps), "{cps}");
    let ended = server.phases.last().unwrap();
    assert_eq!(ended.phase, LoadStage::Drain);
    assert!(ended.to_ns >= 2500 * MS, "{}", ended.to_ns);
}

#[test]
fn a_server_beside_its_clients_stays_until_it_is_told_to_stop() {
    // Clients that are late enough to leave the server idle for a while.
    let job = job(10, 1000);
    let mut planned = job.shape.clone();
    planned.duration = Span::from_millis(150);
    let mut lab = Lab::new(|_| ());
    let (client, server) = lab.specs(&job, &server_of(&job));
    let server = server.serve_clients([&planned].into_iter());
    let (client, server) = lab.run_specs(client, server, &[]).totals();
    assert_eq!(client.completed_connections, 10);
    assert_eq!(server.completed_connections, 10);
}

#[test]
fn a_server_whose_clients_are_stopped_has_their_duration() {
    let mut job = job(1000, 60_000);
    job.answer = LoadAnswer::Sink;
    let stop = |lab: &Lab| {
        lab.client.stop.store(true, Ordering::Relaxed);
        lab.server.clients_stop.store(true, Ordering::Relaxed);
    };
    let mut lab = Lab::new(|_| ());
    let (client, server) = lab.specs(&job, &server_of(&job));
    let server = server.serve_clients([&job.shape].into_iter());
    let both = lab.run_specs(client, server, &[(500 * MS, &stop)]);
    let (_, server) = both.totals();
    let (from, to, cps) = duration_of(&server);
    assert!(from == 0 && (500..=510).contains(&to), "{from} {to}");
    assert!((980.0..=1020.0).contains(&cps), "{cps}");
    let ended = server.phases.last().unwrap();
    assert!(ended.to_ns > 1000 * MS, "{}", ended.to_ns);
}

#[test]
fn a_server_alone_does_not_count_its_waiting_as_duration() {
    let mut late = job(1000, 1000);
    late.shape.wait = Span::from_secs(1);
    let mut server = server_of(&late);
    server.shape.wait = Span::default();
    server.shape.duration = Span::from_secs(3);
    for endless in [false, true] {
        let mut lab = Lab::new(|_| ());
        let (client, stays) = lab.specs(&late, &server);
        let place = LoadPlace::single(MacAddr(lab.far.facts.mac));
        let ends = LoadSpec::new(&server, &place).unwrap();
        let spec = if endless { stays } else { ends };
        let both = lab.run_specs(client, spec, &[]);
        let (_, server) = both.totals();
        let (from, to, cps) = duration_of(&server);
        assert!((1000..=1002).contains(&from), "{from}");
        assert!((1998..=2003).contains(&to), "{to}");
        assert!((990.0..=1010.0).contains(&cps), "{cps}");
    }
}

#[test]
fn a_worker_that_nobody_came_to_does_not_lengthen_the_duration() {
    let mut late = job(1000, 1000);
    late.shape.wait = Span::from_secs(1);
    let mut lab = Lab::new(|_| ());
    let busy = lab.run(&late, &server_of(&late), &[]).server;
    let mut lab = Lab::new(|_| ());
    late.rate.cps = Some(0);
    late.rate.cc = Some(0);
    let idle = lab.run(&late, &server_of(&late), &[]).server;
    for workers in [[&busy, &idle], [&idle, &busy]] {
        let (from, to, _) = duration_of(&LoadTotals::sum_workers(workers));
        assert!(from >= 1000 && to <= 2003, "{from} {to}");
    }
}

#[test]
fn dperf_waits_and_rises_in_steps() {
    let mut like = job(1000, 1000);
    like.shape.wait = Span::from_secs(1);
    like.shape.ramp = Span::from_secs(2);
    like.shape.rise = LoadRise::Steps;
    like.tcp.like_dperf = true;
    like.tcp.retransmit = Span::from_secs(2);
    like.reading = LoadReading::Segment;
    let (client, server) = Lab::new(|_| ()).run(&like, &server_of(&like), &[]).totals();
    let attempted = |phase| {
        client
            .phase(phase)
            .map_or(0, |totals| totals.counters.attempted)
    };
    assert_eq!(attempted(LoadStage::Wait), 0);
    assert_eq!(
        (attempted(LoadStage::Ramp), attempted(LoadStage::Steady)),
        (1000, 1000)
    );
    assert_eq!(server.completed_connections, 2000);
    // Three packets each way: with default messages 62 + request + 54 bytes.
    assert_eq!(
        (client.counters.tcp_tx, client.counters.tcp_rx),
        (6000, 6000)
    );
}

#[test]
fn a_profile_is_followed() {
    let point = |at, share| ProfilePoint {
        at: Span::from_millis(at),
        share,
    };
    let mut profile = job(1000, 1000);
    profile.shape.profile = vec![point(0, 0.0), point(500, 1.0), point(500, 0.0)];
    let (client, _) = Lab::new(|_| ())
        .run(&profile, &server_of(&profile), &[])
        .totals();
    assert!(
        (250..=251).contains(&client.attempted_connections),
        "{:?}",
        client.launch
    );
}

#[test]
fn the_rate_changes_while_it_runs() {
    let mut lab = Lab::new(|_| ());
    let faster = |lab: &Lab| {
        lab.client.set_rate(&LoadRate {
            cps: Some(4000),
            ..LoadRate::default()
        });
    };
    let job = job(1000, 1000);
    let (client, server) = lab
        .run(&job, &server_of(&job), &[(500 * MS, &faster)])
        .totals();
    let expected = 500 + 2000;
    assert!(
        client.attempted_connections.abs_diff(expected) <= 4,
        "{}",
        client.attempted_connections
    );
    assert_eq!(server.completed_connections, client.completed_connections);
}

#[test]
fn what_is_open_after_the_drain_is_told_as_open() {
    let mut slow = job(1000, 100);
    slow.shape.drain = Span::from_millis(50);
    // The server never answers, and the client waits for longer than the drain.
    slow.answer = LoadAnswer::Sink;
    let mut lab = Lab::new(|_| ());
    let both = lab.run(&slow, &server_of(&slow), &[]);
    let (client, _) = both.totals();
    assert_eq!(
        (client.attempted_connections, client.open_connections),
        (100, 100)
    );
    let drain = client.phase(LoadStage::Drain).unwrap();
    assert_eq!(drain.to_ns - drain.from_ns, 50 * MS);
}

#[test]
fn stop_drains_and_hurry_ends() {
    let mut lab = Lab::new(|_| ());
    let stop = |lab: &Lab| lab.client.stop.store(true, Ordering::Relaxed);
    let job = job(1000, 60_000);
    let (client, server) = lab
        .run(&job, &server_of(&job), &[(100 * MS, &stop)])
        .totals();
    assert!(
        client.attempted_connections.abs_diff(100) <= 2,
        "{}",
        client.attempted_connections
    );
    assert_eq!(client.completed_connections, client.attempted_connections);
    assert_eq!(server.completed_connections, client.attempted_connections);

    let mut lab = Lab::new(|_| ());
    lab.served = false;
    let hurry = |lab: &Lab| lab.client.hurry.store(true, Ordering::Relaxed);
    let (client, _) = lab
        .run(&job, &server_of(&job), &[(100 * MS, &hurry)])
        .totals();
    assert_eq!(client.open_connections, client.attempted_connections);
}

#[test]
fn nobody_answers() {
    let mut lone = job(100, 100);
    lone.tcp.tries = 2;
    lone.tcp.backoff = false;
    lone.tcp.retransmit = Span::from_millis(100);
    let mut lab = Lab::new(|_| ());
    lab.served = false;
    let both = lab.run(&lone, &server_of(&lone), &[]);
    // No frame arrived, so turns were busy with sent frames.
    assert!(both.client.busy_turns >= 20 && both.client.busy_turns < both.client.turns);
    let (client, _) = both.totals();
    assert_eq!(client.failed_connections, 10);
    assert_eq!(client.counters.failed_connect_timeout, 10);
    assert_eq!(
        (client.counters.syn_tx, client.counters.syn_again),
        (30, 20)
    );
}

#[test]
fn the_rest_of_tuples_is_left_out() {
    let mut few = job(1000, 100);
    few.clients = vec!["198.18.0.1".parse().unwrap()];
    few.client_ports = "5000-5009".parse().unwrap();
    few.answer = LoadAnswer::Sink;
    few.shape.drain = Span::from_millis(10);
    let (client, _) = Lab::new(|_| ()).run(&few, &server_of(&few), &[]).totals();
    assert_eq!(
        (client.attempted_connections, client.launch.no_tuple),
        (10, 90)
    );
}

#[test]
fn dropped_frames_are_sent_again() {
    let mut lab = Lab::new(|options| {
        options.depth = 4;
        options.drop_when_full = true;
        options.batch = 64;
    });
    let mut burst = job(2000, 200);
    burst.rate.group = 50;
    burst.tcp.retransmit = Span::from_millis(20);
    let (client, _) = lab.run(&burst, &server_of(&burst), &[]).totals();
    assert!(client.dropped_tx_frames > 0);
    assert_eq!(
        (client.attempted_connections, client.completed_connections),
        (400, 400)
    );
    assert!(client.counters.syn_again > 0);
}

#[test]
fn a_link_may_go_down_and_come_back() {
    let mut lab = Lab::new(|_| ());
    let mut job = job(1000, 500);
    job.tcp.retransmit = Span::from_millis(50);
    let down = |lab: &Lab| lab.near.control.set_up(false);
    let up = |lab: &Lab| lab.near.control.set_up(true);
    let both = lab.run(
        &job,
        &server_of(&job),
        &[(100 * MS, &down), (200 * MS, &up)],
    );
    let (client, server) = both.totals();
    assert_eq!(
        (client.attempted_connections, client.completed_connections),
        (500, 500)
    );
    assert_eq!(server.completed_connections, 500);
    assert_eq!(both.client.link_downs, 1);
    assert!(
        both.client.link_down_ns.abs_diff(100 * MS) < 5 * MS,
        "{}",
        both.client.link_down_ns
    );
}

#[test]
fn what_never_left_is_taken_back() {
    let mut lab = Lab::new(|_| ());
    let down = |lab: &Lab| lab.near.control.set_up(false);
    let both = lab.run(
        &job(1000, 200),
        &server_of(&job(1000, 200)),
        &[(100 * MS, &down)],
    );
    let (client, _) = both.totals();
    assert!(client.tx.withdrawn_frames >= 99, "{:?}", client.tx);
    assert!(both.client.fault.is_none() && client.open_connections > 0);
}

/// While a link is down, connections still fail in time, and lost frames are not sent later.
#[test]
fn connections_go_on_failing_on_a_link_that_is_down() {
    let mut lab = Lab::new(|options| options.depth = 64);
    let mut job = job(1000, 1000);
    job.tcp.connect_timeout = Span::from_millis(100);
    let down = |lab: &Lab| lab.near.control.set_up(false);
    let up = |lab: &Lab| lab.near.control.set_up(true);
    let both = lab.run(
        &job,
        &server_of(&job),
        &[(100 * MS, &down), (800 * MS, &up)],
    );
    let (client, server) = both.totals();
    assert_eq!(client.attempted_connections, 1000);
    assert_eq!(client.unsent_connections, 0);
    assert!(client.completed_connections.abs_diff(300) < 110);
    assert_eq!(
        client.counters.failed_connect_timeout + client.completed_connections,
        1000
    );
    assert_eq!(
        server.completed_connections, client.completed_connections,
        "no SYN comes after its connection has failed"
    );
    assert_eq!(server.counters.syn_rx, server.completed_connections);
}

#[test]
fn a_port_that_is_gone_ends_with_totals() {
    let mut lab = Lab::new(|_| ());
    let gone = |lab: &Lab| lab.near.control.remove();
    let both = lab.run(
        &job(1000, 500),
        &server_of(&job(1000, 500)),
        &[(100 * MS, &gone)],
    );
    assert!(is_gone(&both.client.fault) && is_gone(&both.server.fault));
    let (client, _) = both.totals();
    assert!((100..=101).contains(&client.attempted_connections));
}

#[test]
fn resets_and_long_answers() {
    let mut long = job(200, 200);
    long.answer = LoadAnswer::Http(100_000);
    long.close = LoadClose::Reset;
    let server = LoadJob {
        requests: 0,
        ..server_of(&long)
    };
    let (client, server) = Lab::new(|_| ()).run(&long, &server, &[]).totals();
    assert_eq!(client.completed_connections, 40);
    assert!(client.counters.payload_rx > 40 * 100_000);
    assert_eq!(
        (server.completed_connections, server.counters.rst_rx),
        (40, 40)
    );
}

fn impairment() -> impl Strategy<Value = Impairment> {
    (
        0.0f64..0.3,
        0.0f64..0.2,
        0.0f64..0.2,
        0u64..3 * MS,
        any::<u64>(),
    )
        .prop_map(|(loss, duplicate, reorder, delay_ns, seed)| Impairment {
            loss: Loss::Ratio(loss),
            duplicate,
            reorder,
            delay_ns,
            jitter_ns: delay_ns / 2,
            seed,
            ..Impairment::default()
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// With any behaviour of the link, every connection is accounted for at both ends and in each phase, and none
    /// completes at one end without existing at the other.
    #[test]
    fn totals_add_up_over_any_link(
        there in impairment(), back in impairment(), udp: bool, requests in 0u32..4,
        drain in 0u64..1500, refuse: bool, cc in prop::option::of(1u64..50),
    ) {
        let mut lab = Lab::new(|options| {
            options.forward = there;
            options.backward = back;
            options.drop_when_full = refuse;
            options.depth = 64;
        });
        lab.step = MS / 5;
        let mut client = job(500, 300);
        client.rate.cc = cc;
        client.requests = requests;
        client.interval = Span::from_millis(20);
        client.shape.ramp = Span::from_millis(100);
        client.shape.drain = Span::from_millis(drain);
        client.tcp.retransmit = Span::from_millis(30);
        client.tcp.response_timeout = Span::from_millis(300);
        client.tcp.close_timeout = Span::from_millis(300);
        if udp {
            client.transport = LoadTransport::Udp;
            client.request = LoadMessage::Bytes(64);
            client.answer = LoadAnswer::Echo;
        }
        let mut server = server_of(&client);
        server.requests = 0;
        let both = lab.run(&client, &server, &[]);
        let (client, server) = both.totals();
        if udp {
            prop_assert!(client.responses <= server.responses);
        } else {
            // Duplicates of old SYNs may open one again at the server, never the other way round.
            prop_assert!(client.established_connections <= server.attempted_connections);
        }
        let sum = LoadTotals::sum_workers([&both.client, &both.server]);
        check(&sum);
    }
}
