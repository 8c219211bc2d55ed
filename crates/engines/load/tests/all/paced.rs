//! Requests at a separate rate over persistent connections, decreasing numbers of connections, and frames in a tunnel.

use crate::common::{Lab, MS, job, server_of};
use wb_load::LoadStage;
use wb_model::load::{
    LoadAnswer, LoadJob, LoadMessage, LoadRate, LoadTransport, ProfilePoint, Vxlan,
};
use wb_model::units::{Mac, Span};

/// A number of persistent connections, for some time.
fn held(cc: u64, rps: u64, ms: u64) -> LoadJob {
    let mut held = job(0, ms);
    held.requests = 0;
    held.rate = LoadRate {
        cc: Some(cc),
        rps: Some(rps),
        ..LoadRate::default()
    };
    held
}

fn udp(mut job: LoadJob, len: u32) -> LoadJob {
    job.transport = LoadTransport::Udp;
    job.request = LoadMessage::Bytes(len);
    job.answer = LoadAnswer::Echo;
    job
}

fn server(job: &LoadJob) -> LoadJob {
    LoadJob {
        requests: 0,
        ..server_of(job)
    }
}

#[test]
fn the_rate_is_exact_whatever_number_of_connections_there_is() {
    for job in [
        held(7, 1000, 1000),
        held(1000, 10, 1000),
        udp(held(3, 12_345, 1000), 18),
    ] {
        let (client, server) = Lab::new(|_| ()).run(&job, &server(&job), &[]).totals();
        let cc = job.rate.cc.unwrap();
        assert_eq!(client.requests, job.rate.rps.unwrap());
        assert_eq!(client.asks.launched, client.requests);
        assert_eq!(
            (server.requests, client.responses),
            (client.requests, client.requests)
        );
        assert_eq!(
            (client.attempted_connections, client.completed_connections),
            (cc, cc)
        );
        assert_eq!(client.unsent_requests + client.failed_connections, 0);
        let steady = client.phase(LoadStage::Steady).unwrap();
        assert_eq!(steady.asks.launched, client.requests);
    }
}

#[test]
fn frames_and_bits_are_rates_of_requests() {
    let mut job = udp(held(5, 0, 500), 1458);
    job.flood = true;
    job.answer = LoadAnswer::Sink;
    job.rate.rps = None;
    job.rate.pps = Some(100_000);
    // 1,504 bytes with FCS.
    job.rate.bps = Some(1504 * 8 * 20_000);
    let (client, server) = Lab::new(|_| ()).run(&job, &server(&job), &[]).totals();
    assert_eq!((client.counters.udp_tx, server.requests), (10_000, 10_000));
}

#[test]
fn the_rate_of_requests_changes_while_it_runs() {
    let set = |rps, cc| {
        move |lab: &Lab| {
            lab.client.set_rate(&LoadRate {
                cc: Some(cc),
                rps,
                ..LoadRate::default()
            });
        }
    };
    for job in [held(10, 1000, 1500), udp(held(10, 1000, 1500), 18)] {
        let mut job = job;
        job.interval = Span::from_millis(100);
        let (faster, back) = (set(Some(5000), 10), set(None, 10));
        let (client, server) = Lab::new(|_| ())
            .run(
                &job,
                &server(&job),
                &[(500 * MS, &faster), (1000 * MS, &back)],
            )
            .totals();
        // By interval at the end: ten of them five times, the first one at once.
        let expected = 500 + 2500 + 50;
        assert!(
            client.requests.abs_diff(expected) <= 12,
            "{}",
            client.requests
        );
        assert_eq!(
            (server.requests, client.responses),
            (client.requests, client.requests)
        );
        assert_eq!(client.failed_connections, 0);
    }
}

#[test]
fn a_rate_of_requests_may_come_later() {
    let mut job = held(10, 0, 1000);
    job.rate.rps = None;
    job.interval = Span::from_millis(100);
    let told = |lab: &Lab| {
        lab.client.set_rate(&LoadRate {
            cc: Some(10),
            rps: Some(1000),
            ..LoadRate::default()
        });
    };
    let (client, _) = Lab::new(|_| ())
        .run(&job, &server(&job), &[(500 * MS, &told)])
        .totals();
    assert!(
        client.requests.abs_diff(50 + 500) <= 12,
        "{}",
        client.requests
    );
}

#[test]
fn what_cannot_be_asked_in_time_is_told() {
    // Two connections with answers after 10 ms: 200 requests per second, not 1,000.
    let mut lab = Lab::new(|options| options.backward.delay_ns = 10 * MS);
    let job = held(2, 1000, 1000);
    let (client, _) = lab.run(&job, &server(&job), &[]).totals();
    assert!(
        (150..=210).contains(&client.requests),
        "{}",
        client.requests
    );
    let asks = client.asks;
    // The server was slow, not the tester.
    assert_eq!((asks.unsent, client.unsent_requests), (0, 0), "{asks:?}");
    assert_eq!(asks.held_back, client.waited_requests);
    assert!(
        (999..=1000).contains(&(asks.launched + asks.held_back)),
        "{asks:?}"
    );
    assert_eq!(asks.launched, client.requests);
    assert_eq!(client.failed_connections, 0);
}

#[test]
fn one_flow_takes_all_there_is() {
    let mut job = udp(held(1, 0, 20), 18);
    job.answer = LoadAnswer::Sink;
    job.flood = true;
    job.rate.rps = None;
    let mut lab = Lab::new(|_| ());
    let (client, server) = lab.run(&job, &server(&job), &[]).totals();
    // A batch in every turn; the test's clock advances by a microsecond in each.
    assert!(
        client.counters.udp_tx > 100_000,
        "{}",
        client.counters.udp_tx
    );
    assert_eq!(server.requests, client.counters.udp_tx);
    assert_eq!(
        (client.attempted_connections, client.completed_connections),
        (1, 1)
    );
}

#[test]
fn fewer_connections_are_kept_when_fewer_are_asked_for() {
    let at_once = || {
        let mut job = held(200, 0, 1000);
        job.rate.rps = None;
        job
    };
    let mut by_interval = at_once();
    by_interval.interval = Span::from_millis(20);
    for job in [
        held(200, 2000, 1000),
        at_once(),
        by_interval,
        udp(held(200, 2000, 1000), 18),
    ] {
        let mut lab = Lab::new(|options| options.forward.delay_ns = MS);
        let seen = std::cell::Cell::new((0, 0));
        let fewer = |lab: &Lab| {
            lab.client.set_rate(&LoadRate {
                cc: Some(50),
                ..job.rate
            })
        };
        let look = |lab: &Lab| {
            let c = lab.slots[0].read().counters;
            seen.set((c.open, c.completed));
        };
        let (client, server) = lab
            .run(
                &job,
                &server(&job),
                &[(400 * MS, &fewer), (900 * MS, &look)],
            )
            .totals();
        assert_eq!(
            seen.get(),
            (50, 150),
            "{:?} {:?}",
            job.transport,
            job.interval
        );
        assert_eq!(
            (client.completed_connections, client.failed_connections),
            (200, 0)
        );
        if job.transport == LoadTransport::Tcp {
            assert_eq!(server.completed_connections, 200);
        }
        if let Some(rps) = job.rate.rps {
            assert_eq!(client.requests, rps);
        }
    }
}

#[test]
fn the_number_of_connections_follows_a_profile_down() {
    let point = |at, share| ProfilePoint {
        at: Span::from_millis(at),
        share,
    };
    let mut job = held(100, 500, 1000);
    job.shape.profile = vec![
        point(0, 1.0),
        point(500, 1.0),
        point(600, 0.2),
        point(1000, 0.2),
    ];
    let seen = std::cell::Cell::new([0; 2]);
    let look = |i: usize| {
        let seen = &seen;
        move |lab: &Lab| {
            let mut all = seen.get();
            all[i] = lab.slots[0].read().counters.open;
            seen.set(all);
        }
    };
    let (first, second) = (look(0), look(1));
    let (client, _) = Lab::new(|_| ())
        .run(
            &job,
            &server(&job),
            &[(450 * MS, &first), (950 * MS, &second)],
        )
        .totals();
    assert_eq!(seen.get(), [100, 20]);
    assert_eq!(
        (client.completed_connections, client.failed_connections),
        (100, 0)
    );
}

#[test]
fn a_server_closes_after_so_many_answers() {
    let mut job = held(20, 0, 500);
    job.rate = LoadRate {
        cps: Some(40),
        ..LoadRate::default()
    };
    let server = LoadJob {
        requests: 3,
        ..server_of(&job)
    };
    let (client, server) = Lab::new(|_| ()).run(&job, &server, &[]).totals();
    assert_eq!(
        (client.attempted_connections, client.completed_connections),
        (20, 20)
    );
    assert_eq!((client.responses, server.responses), (60, 60));
    assert_eq!(server.completed_connections, 20);
}

#[test]
fn all_goes_through_a_tunnel() {
    let tunnelled = |mut job: LoadJob, local: &str, remote: &str, macs: [u8; 2]| {
        job.vxlan = Some(Vxlan {
            vni: 77,
            src_mac: Mac([2 + macs[0] * 2; 6]),
            dst_mac: Mac([2 + macs[1] * 2; 6]),
            local: local.parse().unwrap(),
            remote: remote.parse().unwrap(),
        });
        job
    };
    let mut tcp = job(500, 200);
    tcp.answer = LoadAnswer::Http(20_000);
    let mut vlan = tcp.clone();
    vlan.vlan = Some(9);
    let mut v6 = tcp.clone();
    v6.clients = vec!["2001:2::1-2001:2::4".parse().unwrap()];
    v6.servers = vec!["2001:2:1::1".parse().unwrap()];
    for job in [
        tcp,
        vlan,
        v6,
        udp(job(500, 200), 1422),
        udp(held(1, 500, 200), 700),
    ] {
        let client = tunnelled(job.clone(), "192.0.2.1", "192.0.2.2", [0, 1]);
        let server = tunnelled(server(&job), "192.0.2.2", "192.0.2.1", [1, 0]);
        let both = Lab::new(|_| ()).run(&client, &server, &[]);
        let (client, server) = both.totals();
        assert_eq!(client.responses, 100, "{:?}", client.counters);
        assert_eq!(server.requests, 100);
        assert_eq!(client.counters.tx_octets, server.counters.rx_octets);
        assert_eq!(client.failed_connections + client.counters.rx_foreign, 0);
    }
    // Frames of another network are ignored.
    let mut lone = job(100, 50);
    lone.tcp.tries = 0;
    let client = tunnelled(lone.clone(), "192.0.2.1", "192.0.2.2", [0, 1]);
    let mut other = tunnelled(server(&lone), "192.0.2.2", "192.0.2.1", [1, 0]);
    other.vxlan.as_mut().unwrap().vni = 78;
    let (client, server) = Lab::new(|_| ()).run(&client, &other, &[]).totals();
    assert_eq!((client.responses, server.attempted_connections), (0, 0));
    assert_eq!(server.counters.rx_foreign, 5);
}
