use super::*;
use wb_model::load::{LoadMessage, LoadRate, Vxlan};
use wb_model::units::{Mac, Rational};

fn job() -> LoadJob {
    LoadJob {
        port: "a".into(),
        clients: vec!["198.18.0.1-198.18.0.4".parse().unwrap()],
        servers: vec!["198.18.1.1".parse().unwrap()],
        rate: LoadRate {
            cps: Some(1001),
            ..LoadRate::default()
        },
        ..LoadJob::default()
    }
}

fn place() -> LoadPlace<'static> {
    LoadPlace {
        gateway: Some(MacAddr([2, 0, 0, 0, 0, 9])),
        ..LoadPlace::single(MacAddr([2, 0, 0, 0, 0, 1]))
    }
}

fn client(spec: &LoadSpec) -> &Client {
    match &spec.config.role {
        Role::Client(client) => client,
        Role::Server(_) => panic!("a client"),
    }
}

#[test]
fn workers_share_rate_and_ports() {
    let spec = |worker| {
        let place = LoadPlace {
            worker,
            workers: 2,
            ..place()
        };
        LoadSpec::new(&job(), &place).unwrap()
    };
    let rates = [0, 1].map(|w| spec(w).limits.launches);
    assert_eq!(rates, [501, 500].map(|n| Some(Rational::whole(n))));
    assert_eq!(client(&spec(0)).tuples.total(), 4 * 64512 / 2);
    assert!(
        spec(0)
            .responder
            .addresses
            .contains("198.18.0.3".parse().unwrap())
    );
}

#[test]
fn both_change_with_a_stride() {
    let mut stride = job();
    stride.order = TupleOrder::Stride;
    let mut spec = LoadSpec::new(&stride, &place()).unwrap();
    let Role::Client(client) = &mut spec.config.role else {
        panic!()
    };
    let mut next = || client.tuples.next(|_, _| true).unwrap();
    let first: Vec<_> = (0..5)
        .map(|_| next())
        .map(|t| (t.client, t.client_port))
        .collect();
    assert_eq!(
        first,
        [(0, 1024), (1, 1025), (2, 1026), (3, 1027), (0, 1028)]
    );
}

#[test]
fn requests_have_a_rate_where_connections_stay() {
    let paced = |change: &dyn Fn(&mut LoadJob)| {
        let mut held = job();
        held.requests = 0;
        held.rate = LoadRate {
            cc: Some(1),
            ..LoadRate::default()
        };
        change(&mut held);
        let spec = LoadSpec::new(&held, &place()).unwrap();
        (client(&spec).paced, spec.limits.requests)
    };
    let udp = |job: &mut LoadJob| {
        job.transport = LoadTransport::Udp;
        job.request = LoadMessage::Bytes(18);
    };
    assert_eq!(paced(&|_| ()), (false, None));
    let rate = Some(Rational::whole(2000));
    assert_eq!(paced(&|job| job.rate.rps = Some(2000)), (true, rate));
    let of_bits = paced(&|job| {
        udp(job);
        job.rate.bps = Some(2000 * 64 * 8);
    });
    assert_eq!(of_bits, (true, rate));
    // One flow without a limit: as fast as the worker can.
    let flood = |job: &mut LoadJob| {
        udp(job);
        job.flood = true;
    };
    assert_eq!(paced(&flood), (true, None));
    let with_interval = |job: &mut LoadJob| {
        flood(job);
        job.interval = Span::from_millis(1);
    };
    assert_eq!(paced(&with_interval), (false, None));
    // One request each: the rate applies to connections.
    assert_eq!(
        paced(&|job| (job.requests, job.rate.rps) = (1, Some(9))),
        (false, None)
    );
}

fn tunnel(local: &str, remote: &str) -> Option<Vxlan> {
    Some(Vxlan {
        vni: 7,
        src_mac: Mac([2; 6]),
        dst_mac: Mac([4; 6]),
        local: local.parse().unwrap(),
        remote: remote.parse().unwrap(),
    })
}

#[test]
fn each_worker_has_its_end_of_a_tunnel() {
    let mut job = job();
    job.vxlan = tunnel("192.0.2.1-192.0.2.2", "192.0.2.9");
    let place = LoadPlace {
        worker: 1,
        workers: 2,
        ..place()
    };
    let spec = LoadSpec::new(&job, &place).unwrap();
    let tunnel = spec.config.tunnel.unwrap();
    assert_eq!(
        (tunnel.local.to_string(), tunnel.remote.to_string()),
        ("192.0.2.2".to_owned(), "192.0.2.9".to_owned())
    );
    assert_eq!((tunnel.vni, tunnel.dst_mac), (7, MacAddr([4; 6])));
    // Fifty bytes less.
    assert_eq!((spec.config.mss, spec.config.longest_frame()), (1410, 1514));
    let known = |address: &str| spec.responder.addresses.contains(address.parse().unwrap());
    assert!(known("192.0.2.1") && known("192.0.2.2") && !known("198.18.0.1"));
}

#[test]
fn the_longest_frame_is_that_of_the_mtu() {
    let longest = |change: &dyn Fn(&mut LoadJob)| {
        let mut job = job();
        change(&mut job);
        LoadSpec::new(&job, &place())
            .unwrap()
            .config
            .longest_frame()
    };
    assert_eq!(longest(&|_| ()), 1514);
    assert_eq!(longest(&|job| job.vlan = Some(5)), 1518);
    let udp = |job: &mut LoadJob| {
        job.transport = LoadTransport::Udp;
        job.request = LoadMessage::Bytes(1472);
    };
    assert_eq!(longest(&udp), 1514);
    let v6 = |job: &mut LoadJob| {
        job.clients = vec!["2001:2::1".parse().unwrap()];
        job.servers = vec!["2001:2::2".parse().unwrap()];
    };
    assert_eq!(longest(&v6), 1514);
}

#[test]
fn workers_share_destinations() {
    let mut job = job();
    job.transport = LoadTransport::Udp;
    job.request = LoadMessage::Bytes(18);
    job.flood = true;
    job.destinations = vec![wb_model::load::Destinations {
        addresses: "198.19.0.0-198.19.0.9".parse().unwrap(),
        step: 3,
    }];
    let place = LoadPlace {
        worker: 1,
        workers: 2,
        ..place()
    };
    let spec = LoadSpec::new(&job, &place).unwrap();
    let to = client(&spec).destinations.as_ref().unwrap();
    assert_eq!((to.pool.len(), to.first, to.step), (4, 1, 2));
    assert_eq!(
        std::net::IpAddr::from(to.pool.at(3)).to_string(),
        "198.19.0.9"
    );
}

#[test]
fn bits_are_of_layer_2() {
    let mut bits = job();
    bits.transport = LoadTransport::Udp;
    bits.request = LoadMessage::Bytes(1458);
    bits.rate = LoadRate {
        bps: Some(12_032_000),
        ..LoadRate::default()
    };
    // 1458 + 28 + 14 + 4 bytes.
    let spec = LoadSpec::new(&bits, &place()).unwrap();
    assert_eq!(spec.limits.launches, Some(Rational::whole(1000)));
}

#[test]
fn windows_are_scaled() {
    assert_eq!(window_field(58_400), (58_400, 0));
    assert_eq!(window_field(1 << 20), (1 << 15, 5));
    assert_eq!(window_field(1 << 30), (65_535, 14));
}

#[test]
fn what_cannot_be_is_told() {
    let told = |change: &dyn Fn(&mut LoadJob), place: &LoadPlace<'_>| {
        let mut job = job();
        change(&mut job);
        LoadSpec::new(&job, place).unwrap_err().to_string()
    };
    let no_gateway = LoadPlace {
        gateway: None,
        ..place()
    };
    let last = LoadPlace {
        worker: 3,
        workers: 4,
        ..place()
    };
    let second = LoadPlace {
        worker: 1,
        workers: 2,
        ..place()
    };
    let messages = [
        told(&|_| (), &no_gateway),
        told(&|job| job.rate = LoadRate::default(), &place()),
        told(
            &|job| {
                job.rate = LoadRate {
                    cps: Some(LoadRate::MAX),
                    ..LoadRate::default()
                };
            },
            &place(),
        ),
        told(&|job| job.requests = 70_000, &place()),
        told(&|job| job.servers.clear(), &place()),
        told(
            &|job| job.servers = vec!["2001:2::1".parse().unwrap()],
            &place(),
        ),
        told(&|job| job.client_ports = PortRange::single(1024), &last),
        told(&|job| job.request = LoadMessage::File("x".into()), &place()),
        told(
            &|job| {
                job.transport = LoadTransport::Udp;
                job.request = LoadMessage::Bytes(1473);
            },
            &place(),
        ),
        told(&|job| job.vxlan = tunnel("192.0.2.1", "192.0.2.9"), &second),
    ];
    let expected = [
        "load a: port: the MAC address of its gateway is unknown",
        "load a: rate: needs one of cps, cc, rps, pps and bps; if connections are held, cps or cc",
        "load a: rate: \"max\" needs cc, the number of open connections",
        "load a: requests: must be between 0 (unlimited) and 65534, got 70000",
        "load a: servers: at least one address is needed",
        "load a: servers: clients and servers must have the same IP version; use one job per version",
        "load a: client_ports: 1024 has no port for worker 3 of 4",
        "load a: request: the file was not read",
        "load a: request: 1473 bytes exceed a datagram of the port's MTU 1500; must be between 0 and 1472",
        "load a: vxlan.local: must be one address per worker (2), got 1",
    ];
    assert_eq!(messages.map(|m| m), expected);
}

#[test]
fn times_of_a_plan_like_dperf_are_taken_as_they_are() {
    let mut job = LoadJob {
        end: LoadEnd::Server,
        ..job()
    };
    job.tcp.like_dperf = true;
    job.tcp.retransmit = Span::from_millis(2200);
    let spec = LoadSpec::new(&job, &place()).unwrap();
    assert_eq!(spec.config.retransmission.after, 2_200_000_000);
}

#[test]
fn datagrams_tell_numbers_unless_their_bytes_are_given() {
    let numbers = |request, like_dperf| {
        let mut job = LoadJob {
            transport: LoadTransport::Udp,
            request,
            ..job()
        };
        job.tcp.like_dperf = like_dperf;
        let place = LoadPlace {
            file: Some(b"what somebody wants to say"),
            ..place()
        };
        client(&LoadSpec::new(&job, &place).unwrap()).numbers
    };
    assert!(numbers(LoadMessage::Bytes(18), false));
    assert!(numbers(LoadMessage::Random(18), false));
    assert!(!numbers(LoadMessage::File("x".to_owned()), false));
    assert!(!numbers(LoadMessage::Bytes(18), true));
}

#[test]
fn a_server_may_go_on_for_ever() {
    let mut server = job();
    server.end = LoadEnd::Server;
    server.shape.ramp = Span::from_secs(9);
    let spec = LoadSpec::new(&server, &LoadPlace::single(MacAddr([2; 6])))
        .unwrap()
        .until_stopped();
    assert!(spec.shape.ramp == Span::default() && spec.shape.duration > Span::from_secs(1 << 30));
}
