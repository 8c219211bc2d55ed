//! Extensions that only a wirebench client requests.

use std::{
    io::{Read, Write},
    net::{Shutdown, UdpSocket},
    time::{Duration, Instant},
};

use wb_netperf_wire::{
    DataDirection, Features, Flags, OmniRequest, Request, RequestExtension, TestLength,
    WireSocketType,
};

use crate::client::{TestServer, read_all};

fn wants(features: Features) -> OmniRequest {
    OmniRequest {
        extension: Some(RequestExtension {
            features,
            ..RequestExtension::default()
        }),
        ..OmniRequest::default()
    }
}

fn datagrams(features: Features) -> OmniRequest {
    OmniRequest {
        protocol: 17,
        socket_type: WireSocketType::Datagram,
        length: TestLength::Seconds(600),
        ..wants(features)
    }
}

#[test]
fn a_word_ends_timed_connections() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let response = client.omni(OmniRequest {
        flags: Flags::ROUTING_ALLOWED | Flags::CONNECTION_TEST,
        direction: DataDirection::ConnectOnly,
        length: TestLength::Seconds(600),
        ..wants(Features::EXPLICIT_END)
    });
    assert_eq!(response.extension.unwrap().features, Features::EXPLICIT_END);
    for _ in 0..3 {
        assert_eq!(read_all(&client.data(response.data_port)), 0);
    }
    client.say(&Request::End);
    let results = client.results();
    assert_eq!(results.transactions, 3);
    let more = results.extension.unwrap();
    assert_eq!(more.transactions_after_omit, 3);
    assert!(more.elapsed_ns > 0 && more.elapsed_ns < 60_000_000_000);
    // Too late, so it is ignored.
    client.say(&Request::End);
    client.say(&Request::System);
    assert_eq!(crate::client::word(&client.hear(), 0), 601);
}

#[test]
fn a_word_ends_what_the_server_sends() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let response = client.omni(OmniRequest {
        direction: DataDirection::ServerSends,
        length: TestLength::UntilTold,
        ..wants(Features::EXPLICIT_END)
    });
    let mut data = client.data(response.data_port);
    data.read_exact(&mut [0; 100_000]).unwrap();
    client.say(&Request::End);
    let results = client.results();
    assert!(results.bytes_sent >= 100_000);
    assert!(results.extension.unwrap().tcp.unwrap().snd_mss > 0);
}

#[test]
fn what_came_before_the_word_counts() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let response = client.omni(datagrams(Features::EXPLICIT_END | Features::GRO));
    assert!(
        response
            .extension
            .unwrap()
            .features
            .contains(Features::EXPLICIT_END)
    );
    let data = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..50 {
        data.send_to(&[1; 100], ("127.0.0.1", response.data_port))
            .unwrap();
    }
    client.say(&Request::End);
    let results = client.results();
    assert_eq!((results.bytes_received, results.receive_calls), (5000, 50));
}

#[test]
fn only_what_fits_the_test_is_granted() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let all = Features::KNOWN | Features(0x8000_0000);
    let response = client.omni(OmniRequest {
        extension: Some(RequestExtension {
            features: all.without(Features::MPTCP),
            pacing_rate: 1_000_000,
            busy_poll_us: 50,
            omit_ms: 7,
            streams: 3,
            count: 0,
        }),
        ..OmniRequest::default()
    });
    let granted = response.extension.unwrap();
    let fits = Features::EXPLICIT_END | Features::CLOCK_FROM_FIRST | Features::ZERO_COPY_RECEIVE;
    assert_eq!(granted.features, fits);
    assert_eq!((granted.pacing_rate, granted.omit_ms), (1_000_000, 7));
    drop(client.data(response.data_port));
    client.results();
    // A client that requests no extensions gets none.
    assert_eq!(client.omni(OmniRequest::default()).extension, None);
}

#[test]
fn bytes_may_be_counted_and_dropped() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let response = client.omni(wants(Features::ZERO_COPY_RECEIVE));
    assert_eq!(
        response.extension.unwrap().features,
        Features::ZERO_COPY_RECEIVE
    );
    let mut data = client.data(response.data_port);
    data.write_all(&vec![1; 3_000_000]).unwrap();
    data.shutdown(Shutdown::Write).unwrap();
    read_all(&data);
    assert_eq!(client.results().bytes_received, 3_000_000);
}

#[test]
fn a_warm_up_does_not_count() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let response = client.omni(OmniRequest {
        length: TestLength::Seconds(600),
        extension: Some(RequestExtension {
            features: Features::CLOCK_FROM_FIRST,
            omit_ms: 300,
            ..RequestExtension::default()
        }),
        ..OmniRequest::default()
    });
    let mut data = client.data(response.data_port);
    data.write_all(&[1; 5000]).unwrap();
    wb_testing::disturb(Duration::from_millis(1500));
    data.write_all(&[1; 700]).unwrap();
    data.shutdown(Shutdown::Write).unwrap();
    read_all(&data);
    let results = client.results();
    assert_eq!(results.bytes_received, 5700);
    assert_eq!(results.extension.unwrap().bytes_after_omit, 700);
}

#[test]
fn a_test_that_ends_in_its_warm_up_counts_nothing() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let response = client.omni(OmniRequest {
        extension: Some(RequestExtension {
            omit_ms: 500_000,
            ..RequestExtension::default()
        }),
        ..OmniRequest::default()
    });
    let mut data = client.data(response.data_port);
    data.write_all(&[1; 5000]).unwrap();
    drop(data);
    let more = client.results().extension.unwrap();
    assert_eq!((more.bytes_after_omit, more.elapsed_ns), (0, 0));
}

#[test]
fn the_clock_waits_for_the_first_connection() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let response = client.omni(OmniRequest {
        direction: DataDirection::ServerSends,
        length: TestLength::Seconds(1),
        ..wants(Features::CLOCK_FROM_FIRST)
    });
    wb_testing::disturb(Duration::from_millis(1500));
    let began = Instant::now();
    let data = client.data(response.data_port);
    assert!(read_all(&data) > 0);
    assert!(began.elapsed() >= Duration::from_millis(900));
    drop(data);
    let results = client.results();
    assert!(results.elapsed >= 0.9 && results.bytes_sent > 0);
}

#[test]
fn numbers_in_datagrams_tell_what_was_lost() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let response = client.omni(datagrams(Features::EXPLICIT_END | Features::UDP_TAGGED));
    let granted = response.extension.unwrap().features;
    assert_eq!(granted, Features::EXPLICIT_END | Features::UDP_TAGGED);
    let data = UdpSocket::bind("127.0.0.1:0").unwrap();
    // Without a tag: foreign.
    for _ in 0..4 {
        data.send_to(&[1; 64], ("127.0.0.1", response.data_port))
            .unwrap();
    }
    client.say(&Request::End);
    let figures = client.results().extension.unwrap().datagrams.unwrap();
    assert_eq!((figures.foreign, figures.received), (4, 0));
    assert_eq!((figures.highest_sequence, figures.latency), (None, None));
}

#[test]
fn a_large_count_travels_beside() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let response = client.omni(OmniRequest {
        direction: DataDirection::ServerSends,
        send_size: Some(1000),
        length: TestLength::UntilTold,
        extension: Some(RequestExtension {
            count: 4000,
            ..RequestExtension::default()
        }),
        ..OmniRequest::default()
    });
    assert_eq!(read_all(&client.data(response.data_port)), 4000);
}

#[test]
fn multipath_tcp_or_plain_tcp_and_the_client_knows_which() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let response = client.omni(wants(Features::MPTCP));
    let granted = response.extension.unwrap().features;
    eprintln!("granted: {granted:?}");
    // A multipath TCP listener also accepts plain TCP.
    let mut data = client.data(response.data_port);
    data.write_all(&[1; 1000]).unwrap();
    data.shutdown(Shutdown::Write).unwrap();
    read_all(&data);
    assert_eq!(client.results().bytes_received, 1000);
}
