//! Every kind of test, in both kinds of messages and both generations.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream, UdpSocket},
    time::Duration,
};

use wb_model::socket::SocketServerJob;
use wb_netperf_wire::{
    ClassicRequest, ClassicTest, CpuMethod, DataDirection, DatagramTest, ExchangeTest, Flags, Name,
    OmniRequest, StreamTest, TestLength, WireAddress, WireFamily, WireSocketType,
};

use crate::client::{Client, PATIENCE, TestServer, read_all};

fn datagrams() -> OmniRequest {
    OmniRequest {
        protocol: 17,
        socket_type: WireSocketType::Datagram,
        ..OmniRequest::default()
    }
}

fn exchange(request: u32, response: u32) -> OmniRequest {
    OmniRequest {
        direction: DataDirection::Both,
        request_size: Some(request),
        response_size: Some(response),
        ..OmniRequest::default()
    }
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// A free TCP port that no other test gets from the system.
fn port_below_the_ephemeral() -> u16 {
    let first = 20_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    (first..32_000)
        .find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a free port")
}

/// Sends a request and reads its response.
fn transact(mut data: &TcpStream, request: usize, response: usize) {
    data.write_all(&vec![1; request]).unwrap();
    data.read_exact(&mut vec![0; response]).unwrap();
}

#[test]
fn the_server_sends_so_many_bytes() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let response = client.omni(OmniRequest {
        direction: DataDirection::ServerSends,
        send_size: Some(3000),
        length: TestLength::Units(10_000),
        receive_width: 9,
        ..OmniRequest::default()
    });
    assert_eq!(
        (response.send_size, response.receive_size),
        (Some(3000), None)
    );
    assert_eq!(response.receive_width, 9, "what the client said");
    let data = client.data(response.data_port);
    let mut bytes = vec![0; 12_000];
    (&data).read_exact(&mut bytes).unwrap();
    assert!(bytes.starts_with(b"netperf\0netperf\0"));
    assert_eq!(read_all(&data), 0, "whole sends, and no more");
    drop(data);
    let results = client.results();
    assert_eq!((results.bytes_sent, results.send_calls), (12_000, 4));
    assert_eq!((results.bytes_received, results.transactions), (0, 0));
    assert_eq!(results.retransmissions, Some(0));
    assert!(results.congestion_control.as_str().is_some());
    assert_eq!(test_server.end().bytes_sent, 12_000);
}

#[test]
fn the_server_sends_for_so_long() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let response = client.omni(OmniRequest {
        direction: DataDirection::ServerSends,
        length: TestLength::Seconds(1),
        ..OmniRequest::default()
    });
    let data = client.data(response.data_port);
    let received = read_all(&data);
    drop(data);
    let results = client.results();
    assert_eq!(results.bytes_sent, received);
    assert!(results.elapsed >= 0.9, "{}", results.elapsed);
}

#[test]
fn a_client_that_waits_gets_its_time() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let response = client.omni(OmniRequest {
        direction: DataDirection::ServerSends,
        length: TestLength::Seconds(1),
        ..OmniRequest::default()
    });
    wb_testing::disturb(Duration::from_millis(1500));
    let data = client.data(response.data_port);
    let received = read_all(&data);
    drop(data);
    let results = client.results();
    assert!(received > 0 && results.bytes_sent == received);
    assert!(results.elapsed >= 0.9, "{}", results.elapsed);
}

#[test]
fn a_timed_exchange_ends_with_the_stream() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let response = client.omni(OmniRequest {
        flags: Flags::ROUTING_ALLOWED | Flags::NO_DELAY | Flags::MEASURE_CPU | Flags::KEEPALIVE,
        ..exchange(128, 1024)
    });
    assert_eq!(
        (response.receive_size, response.send_size),
        (Some(128), Some(1024))
    );
    assert_eq!((response.receive_width, response.send_width), (1, 1));
    assert_eq!(response.flags, Flags::NO_DELAY | Flags::MEASURE_CPU);
    assert_eq!(response.cpu_rate, 100.0);
    let data = client.data(response.data_port);
    for _ in 0..7 {
        transact(&data, 128, 1024);
    }
    data.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&data), 0);
    let results = client.results();
    assert_eq!(
        (
            results.transactions,
            results.receive_calls,
            results.send_calls
        ),
        (7, 7, 7)
    );
    assert_eq!((results.bytes_received, results.bytes_sent), (896, 7168));
    let cpu = results.cpu.unwrap();
    assert_eq!(
        (cpu.total, cpu.peak, cpu.peak_id, cpu.cpus),
        (25.0, 50.0, 0, 2)
    );
    assert_eq!(cpu.method, CpuMethod::PROC_STAT);
    let split = cpu.split.unwrap();
    assert_eq!(
        (split.user, split.system, split.irq, split.softirq),
        (15.0, 5.0, 1.0, 4.0)
    );
}

#[test]
fn the_next_test_comes_on_the_same_connection() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    for count in 1..=3 {
        let response = client.omni(OmniRequest {
            length: TestLength::Units(count),
            ..exchange(1, 1)
        });
        let data = client.data(response.data_port);
        for _ in 0..count {
            transact(&data, 1, 1);
        }
        assert_eq!(client.results().transactions, count);
    }
    drop(client);
    let report = test_server.end();
    assert_eq!((report.clients, report.tests, report.completed), (1, 3, 3));
    assert_eq!(report.given_up, 0);
}

#[test]
fn connections_alone_are_transactions() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let response = client.omni(OmniRequest {
        direction: DataDirection::ConnectOnly,
        flags: Flags::ROUTING_ALLOWED | Flags::CONNECTION_TEST,
        length: TestLength::Units(20),
        ..OmniRequest::default()
    });
    for _ in 0..20 {
        assert_eq!(read_all(&client.data(response.data_port)), 0);
    }
    let results = client.results();
    assert_eq!(results.transactions, 20);
    assert_eq!((results.bytes_received, results.bytes_sent), (0, 0));
    assert_eq!(results.retransmissions, None);
}

#[test]
fn connections_may_go_one_way() {
    let test_server = TestServer::new();
    let flags = Flags::ROUTING_ALLOWED | Flags::CONNECTION_TEST;
    let mut client = test_server.client();
    let response = client.omni(OmniRequest {
        flags,
        length: TestLength::Units(2),
        ..OmniRequest::default()
    });
    for _ in 0..2 {
        let mut data = client.data(response.data_port);
        data.write_all(&[1; 300]).unwrap();
        data.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(&data), 0);
    }
    let results = client.results();
    assert_eq!((results.transactions, results.bytes_received), (2, 600));
    let response = client.omni(OmniRequest {
        flags,
        direction: DataDirection::ServerSends,
        send_size: Some(500),
        length: TestLength::Units(2),
        ..OmniRequest::default()
    });
    for _ in 0..2 {
        assert_eq!(read_all(&client.data(response.data_port)), 500);
    }
    let results = client.results();
    assert_eq!((results.transactions, results.bytes_sent), (2, 1000));
}

#[test]
fn timed_connections_end_when_no_more_come() {
    let test_server = TestServer::new();
    // As long, started earlier, and without a visible end: it takes four seconds more.
    let mut other = test_server.client();
    let test = ClassicTest::UdpRr(sizes(1, 1));
    let (_, slow) = other.classic(classic(test, TestLength::Seconds(1)));
    socket()
        .send_to(&[1], ("127.0.0.1", slow.data_port))
        .unwrap();
    wb_testing::disturb(Duration::from_millis(500));
    let mut client = test_server.client();
    let response = client.omni(OmniRequest {
        flags: Flags::ROUTING_ALLOWED | Flags::CONNECTION_TEST,
        length: TestLength::Seconds(1),
        ..exchange(1, 1)
    });
    let began = std::time::Instant::now();
    let mut count = 0;
    while began.elapsed() < Duration::from_secs(1) {
        transact(&client.data(response.data_port), 1, 1);
        count += 1;
    }
    let results = client.results();
    assert_eq!(results.transactions, count);
    other.stream.set_nonblocking(true).unwrap();
    assert!(other.stream.read(&mut [0]).is_err(), "it was first");
}

#[test]
fn a_client_that_leaves_in_a_transaction_ends_only_that() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let response = client.omni(OmniRequest {
        flags: Flags::ROUTING_ALLOWED | Flags::CONNECTION_TEST,
        length: TestLength::Units(1),
        ..exchange(10, 1)
    });
    let mut half = client.data(response.data_port);
    half.write_all(&[1; 5]).unwrap();
    drop(half);
    transact(&client.data(response.data_port), 10, 1);
    let results = client.results();
    assert_eq!((results.transactions, results.bytes_received), (1, 10));
}

#[test]
fn datagrams_are_answered_where_they_came_from() {
    for flags in [Flags::NONE, Flags::CONNECT_UDP, Flags::PKT_INFO] {
        let test_server = TestServer::new();
        let mut client = test_server.client();
        let response = client.omni(OmniRequest {
            flags: flags | Flags::ROUTING_ALLOWED,
            direction: DataDirection::Both,
            request_size: Some(30),
            response_size: Some(60),
            length: TestLength::Seconds(10),
            ..datagrams()
        });
        let data = socket();
        for _ in 0..4 {
            data.send_to(&[1; 30], ("127.0.0.1", response.data_port))
                .unwrap();
            assert_eq!(data.recv(&mut [0; 100]).unwrap(), 60);
        }
        for _ in 0..3 {
            data.send_to(&[], ("127.0.0.1", response.data_port))
                .unwrap();
        }
        let results = client.results();
        assert_eq!((results.transactions, results.bytes_received), (4, 120));
        assert_eq!((results.bytes_sent, results.retransmissions), (240, None));
    }
}

#[test]
fn datagrams_come_to_the_client_unasked() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let data = socket();
    let response = client.omni(OmniRequest {
        direction: DataDirection::ServerSends,
        client_port: data.local_addr().unwrap().port(),
        send_size: Some(1000),
        length: TestLength::Units(5000),
        ..datagrams()
    });
    assert_eq!(response.send_size, Some(1000));
    let mut sizes = Vec::new();
    while sizes.last() != Some(&0) {
        sizes.push(data.recv(&mut [0; 2000]).unwrap());
    }
    assert_eq!(sizes, [1000, 1000, 1000, 1000, 1000, 0]);
    let results = client.results();
    assert_eq!((results.bytes_sent, results.send_calls), (5000, 5));
}

#[test]
fn an_amount_of_bytes_needs_no_end_of_the_stream() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let response = client.omni(OmniRequest {
        length: TestLength::Units(5000),
        ..OmniRequest::default()
    });
    let mut data = client.data(response.data_port);
    data.write_all(&[1; 6000]).unwrap();
    assert_eq!(client.results().bytes_received, 6000);
}

#[test]
fn what_was_asked_for_is_in_effect_or_said_not_to_be() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let response = client.omni(OmniRequest {
        receive_buffer: Some(16_000),
        send_buffer: Some(131_072),
        receive_size: Some(2048),
        receive_width: 6,
        priority: Some(4),
        tos: Some(0x10),
        congestion_control: Name::new(b"nosuch").unwrap(),
        ..OmniRequest::default()
    });
    assert_eq!(
        (response.receive_buffer, response.receive_size),
        (Some(32_000), Some(2048))
    );
    assert_eq!(
        (response.send_buffer, response.receive_width),
        (Some(262_144), 6)
    );
    assert_eq!((response.priority, response.tos), (Some(4), Some(0x10)));
    let data = client.data(response.data_port);
    drop(data);
    let results = client.results();
    assert_ne!(results.congestion_control.as_str(), Some("nosuch"));
    assert!(results.congestion_control.as_str().is_some());
}

#[test]
fn the_data_port_is_the_one_asked_for() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let port = port_below_the_ephemeral();
    let response = client.omni(OmniRequest {
        data_port: port,
        server_address: WireAddress::from("127.0.0.1".parse::<std::net::IpAddr>().unwrap()),
        length: TestLength::Units(1),
        ..exchange(1, 1)
    });
    assert_eq!(response.data_port, port);
    transact(&client.data(port), 1, 1);
    assert_eq!(client.results().transactions, 1);
}

#[test]
fn version_6_addresses_are_read_in_both_orders() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        wb_testing::skipped("no IPv6 here");
        return;
    }
    let test_server = TestServer::of(SocketServerJob {
        listen: Some("::1".to_owned()),
        ..SocketServerJob::default()
    });
    let swapped = WireAddress::from("::1".parse::<std::net::IpAddr>().unwrap());
    let mut straight = [0; 16];
    straight[15] = 1;
    for address in [swapped, WireAddress(straight)] {
        for request in [OmniRequest::default(), datagrams()] {
            let mut client = test_server.client();
            let response = client.omni(OmniRequest {
                family: WireFamily::V6,
                server_address: address,
                ..request
            });
            if request_is_tcp(&response, &client) {
                assert_eq!(client.results().bytes_received, 3);
            }
        }
    }
}

/// Sends three bytes if the test uses TCP.
fn request_is_tcp(response: &wb_netperf_wire::OmniResponse, client: &Client) -> bool {
    match TcpStream::connect(("::1", response.data_port)) {
        Ok(mut data) => {
            assert_eq!(
                client.stream.peer_addr().unwrap().ip(),
                data.peer_addr().unwrap().ip()
            );
            data.write_all(b"abc").unwrap();
            true
        }
        Err(_) => false,
    }
}

fn classic(test: ClassicTest, length: TestLength) -> ClassicRequest {
    ClassicRequest {
        cpu: None,
        test,
        measure_cpu: true,
        cpu_rate: 0.0,
        length,
        receive_avoid: false,
        send_avoid: false,
        data_port: 0,
        family: WireFamily::V4,
    }
}

/// Clients of both generations.
fn generations(test_server: &TestServer) -> [Client; 2] {
    [test_server.client(), Client::old(test_server.address)]
}

#[test]
fn a_classic_stream_is_answered_before_it_is_closed() {
    let test_server = TestServer::new();
    for mut client in generations(&test_server) {
        let test = ClassicTest::TcpStream(StreamTest {
            alignment: 8,
            ..StreamTest::default()
        });
        let (kind, response) = client.classic(classic(test, TestLength::Seconds(1_000_000)));
        assert_eq!(response.call_size, response.receive_buffer);
        assert!(response.measure_cpu);
        let mut data = client.data(response.data_port);
        data.write_all(&[1; 70_000]).unwrap();
        data.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(&data), 0);
        let results = client.classic_results(kind);
        assert_eq!(results.bytes, 70_000);
        assert!(results.calls > 0);
        assert_eq!((results.cpu_total, results.cpus), (Some(25.0), 2));
    }
}

#[test]
fn a_classic_server_sends() {
    let test_server = TestServer::new();
    for mut client in generations(&test_server) {
        let test = ClassicTest::TcpMaerts(StreamTest {
            call_size: Some(1000),
            ..StreamTest::default()
        });
        let (kind, response) = client.classic(classic(test, TestLength::Seconds(1)));
        assert_eq!(response.call_size, Some(1000));
        let data = client.data(response.data_port);
        let received = read_all(&data);
        drop(data);
        let results = client.classic_results(kind);
        assert_eq!(results.bytes, received);
        assert_eq!(u64::from(results.calls), received.div_ceil(1000));
    }
}

fn sizes(request: u32, response: u32) -> ExchangeTest {
    ExchangeTest {
        request_size: request,
        response_size: response,
        no_delay: true,
        ..ExchangeTest::default()
    }
}

#[test]
fn a_classic_exchange_counts() {
    let test_server = TestServer::new();
    for mut client in generations(&test_server) {
        let test = ClassicTest::TcpRr(sizes(10, 20));
        let (kind, response) = client.classic(classic(test, TestLength::Units(4)));
        assert!(response.no_delay);
        let data = client.data(response.data_port);
        for _ in 0..4 {
            transact(&data, 10, 20);
        }
        let results = client.classic_results(kind);
        assert_eq!((results.transactions, results.calls), (4, 4));
        assert_eq!(results.bytes, 120);
    }
}

#[test]
fn classic_connections_count() {
    let test_server = TestServer::new();
    for mut client in generations(&test_server) {
        for test in [
            ClassicTest::TcpCrr(sizes(10, 20)),
            ClassicTest::TcpCc(sizes(1, 1)),
        ] {
            let (kind, response) = client.classic(classic(test, TestLength::Units(3)));
            for _ in 0..3 {
                let data = client.data(response.data_port);
                if matches!(test, ClassicTest::TcpCrr(_)) {
                    transact(&data, 10, 20);
                }
                assert_eq!(read_all(&data), 0);
            }
            assert_eq!(client.classic_results(kind).transactions, 3);
        }
    }
}

#[test]
fn a_datagram_of_another_size_ends_a_classic_stream() {
    let test_server = TestServer::new();
    for (mut client, last) in generations(&test_server).into_iter().zip([99, 101]) {
        let test = ClassicTest::UdpStream(DatagramTest {
            message_size: 100,
            connect: last == 101,
            ..DatagramTest::default()
        });
        let (kind, response) = client.classic(classic(test, TestLength::Seconds(60)));
        let data = socket();
        for size in [100, 100, 100, last] {
            data.send_to(&vec![1; size], ("127.0.0.1", response.data_port))
                .unwrap();
        }
        let results = client.classic_results(kind);
        assert_eq!((results.calls, results.bytes), (3, 300));
    }
}

#[test]
fn a_timed_classic_exchange_ends_by_the_servers_clock() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let test = ClassicTest::UdpRr(sizes(10, 20));
    let (kind, response) = client.classic(classic(test, TestLength::Seconds(1)));
    let data = socket();
    for _ in 0..3 {
        data.send_to(&[1; 10], ("127.0.0.1", response.data_port))
            .unwrap();
        assert_eq!(data.recv(&mut [0; 100]).unwrap(), 20);
    }
    // No end of any kind: four seconds more, which do not count.
    let results = client.classic_results(kind);
    assert_eq!(results.transactions, 3);
    assert!((0.9..2.5).contains(&results.elapsed), "{}", results.elapsed);
    // 25 % of five seconds are attributed to the test's one second, which exceeds 100 %.
    assert_eq!(results.cpu_total, Some(100.0));
}

#[test]
fn omni_tests_of_old_peers_work_with_short_messages() {
    let test_server = TestServer::new();
    let mut client = Client::old(test_server.address);
    for _ in 0..2 {
        let response = client.omni(OmniRequest {
            length: TestLength::Units(2),
            ..exchange(1, 1)
        });
        let data = client.data(response.data_port);
        transact(&data, 1, 1);
        transact(&data, 1, 1);
        assert_eq!(client.results().transactions, 2);
    }
}
