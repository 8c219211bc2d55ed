//! Hosts other than the client at the sockets of its test: they are neither answered nor served, and do not prevent
//! others from being served.

use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket},
    time::Duration,
};

use wb_model::socket::SocketServerJob;
use wb_netperf_wire::{DataDirection, Flags, OmniRequest, TestLength, WireAddress, WireSocketType};

use crate::client::{Client, PATIENCE, TestServer, until, word};

/// Stands for another host.
const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

fn udp_exchange(response: u32) -> OmniRequest {
    OmniRequest {
        protocol: 17,
        socket_type: WireSocketType::Datagram,
        direction: DataDirection::Both,
        request_size: Some(1),
        response_size: Some(response),
        length: TestLength::Units(2),
        ..OmniRequest::default()
    }
}

/// A connection from another address of this machine.
fn connect_from(source: Ipv4Addr, to: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&fd, &SocketAddr::new(source.into(), 0)).unwrap();
    connect(&fd, &to).unwrap();
    let stream = TcpStream::from(fd);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Returns true if the peer closed it without sending a byte.
fn is_closed(mut stream: TcpStream) -> bool {
    matches!(stream.read(&mut [0; 100]), Ok(0) | Err(_))
}

fn at(client: &Client, port: u16) -> SocketAddr {
    let mut address = client.stream.peer_addr().unwrap();
    address.set_port(port);
    address
}

#[test]
fn a_datagram_of_a_stranger_is_not_answered() {
    for flags in [Flags::NONE, Flags::CONNECT_UDP, Flags::PKT_INFO] {
        let test_server = TestServer::new();
        let mut client = test_server.client();
        let response = client.omni(OmniRequest {
            flags: flags | Flags::ROUTING_ALLOWED,
            ..udp_exchange(60_000)
        });
        let to = at(&client, response.data_port);
        let stranger = UdpSocket::bind((STRANGER, 0)).unwrap();
        let own = UdpSocket::bind("127.0.0.1:0").unwrap();
        own.set_read_timeout(Some(PATIENCE)).unwrap();
        // The first and the last datagrams come from unknown peers; one sends the end of the test.
        for _ in 0..3 {
            stranger.send_to(&[1], to).unwrap();
        }
        stranger.send_to(&[], to).unwrap();
        for _ in 0..2 {
            own.send_to(&[1], to).unwrap();
            assert_eq!(own.recv(&mut [0; 65_536]).unwrap(), 60_000);
            stranger.send_to(&[1], to).unwrap();
        }
        let results = client.results();
        assert_eq!((results.transactions, results.bytes_received), (2, 2));
        stranger.set_nonblocking(true).unwrap();
        assert!(stranger.recv(&mut [0; 65_536]).is_err(), "{flags:?}");
    }
}

#[test]
fn datagrams_of_strangers_are_not_counted() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let response = client.omni(OmniRequest {
        protocol: 17,
        socket_type: WireSocketType::Datagram,
        length: TestLength::UntilTold,
        ..OmniRequest::default()
    });
    let to = at(&client, response.data_port);
    let stranger = UdpSocket::bind((STRANGER, 0)).unwrap();
    let own = UdpSocket::bind("127.0.0.1:0").unwrap();
    for (socket, bytes) in [
        (&stranger, 100),
        (&own, 10),
        (&stranger, 0),
        (&own, 10),
        (&own, 0),
    ] {
        socket.send_to(&vec![1; bytes], to).unwrap();
    }
    let results = client.results();
    assert_eq!((results.receive_calls, results.bytes_received), (2, 20));
}

#[test]
fn a_stranger_does_not_take_a_stream() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let response = client.omni(OmniRequest {
        direction: DataDirection::ServerSends,
        send_size: Some(1000),
        length: TestLength::Units(5000),
        ..OmniRequest::default()
    });
    let to = at(&client, response.data_port);
    assert!(is_closed(connect_from(STRANGER, to)));
    assert_eq!(
        crate::client::read_all(&client.data(response.data_port)),
        5000
    );
    assert_eq!(client.results().bytes_sent, 5000);
    drop(client);
    assert_eq!(test_server.end().strangers, 1);
}

#[test]
fn connections_of_strangers_are_no_transactions() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let response = client.omni(OmniRequest {
        flags: Flags::CONNECTION_TEST | Flags::ROUTING_ALLOWED,
        direction: DataDirection::Both,
        request_size: Some(1),
        response_size: Some(1),
        length: TestLength::Units(2),
        ..OmniRequest::default()
    });
    let to = at(&client, response.data_port);
    for _ in 0..2 {
        assert!(is_closed(connect_from(STRANGER, to)));
        let mut data = client.data(response.data_port);
        data.write_all(&[1]).unwrap();
        data.read_exact(&mut [0]).unwrap();
    }
    assert_eq!(client.results().transactions, 2);
    drop(client);
    assert_eq!(test_server.end().strangers, 2);
}

#[test]
fn a_stream_may_come_from_an_address_that_the_client_named_and_answers_may_not_go_there() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let named = WireAddress::from(IpAddr::from(STRANGER));
    let response = client.omni(OmniRequest {
        client_address: named,
        length: TestLength::UntilTold,
        ..OmniRequest::default()
    });
    let mut data = connect_from(STRANGER, at(&client, response.data_port));
    data.write_all(&[7; 100]).unwrap();
    drop(data);
    assert_eq!(client.results().bytes_received, 100);
    let elsewhere = OmniRequest {
        client_address: named,
        ..udp_exchange(60_000)
    };
    assert_eq!(client.refused(&elsewhere.into()), libc::EACCES);
}

#[test]
fn the_owner_of_the_network_may_let_data_come_from_anywhere() {
    let test_server = TestServer::of(SocketServerJob {
        any_source: true,
        ..SocketServerJob::default()
    });
    let mut client = test_server.client();
    let response = client.omni(udp_exchange(10));
    let other = UdpSocket::bind((STRANGER, 0)).unwrap();
    other.set_read_timeout(Some(PATIENCE)).unwrap();
    for _ in 0..2 {
        other
            .send_to(&[1], at(&client, response.data_port))
            .unwrap();
        assert_eq!(other.recv(&mut [0; 100]).unwrap(), 10);
    }
    assert_eq!(client.results().transactions, 2);
}

#[test]
fn a_client_gets_no_privileged_port_and_no_privileged_priority() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    for port in [1, 53, 1023] {
        let request = OmniRequest {
            data_port: port,
            ..OmniRequest::default()
        };
        assert_eq!(client.refused(&request.into()), libc::EACCES, "{port}");
    }
    let response = client.omni(OmniRequest {
        priority: Some(7),
        ..OmniRequest::default()
    });
    assert_ne!(response.priority, Some(7));
}

#[test]
fn one_address_does_not_take_the_places_of_others() {
    let test_server = TestServer::of(SocketServerJob {
        clients: 40,
        clients_per_address: 10,
        ..SocketServerJob::default()
    });
    let crowd: Vec<_> = (0..30)
        .map(|_| connect_from(STRANGER, test_server.address))
        .collect();
    let turned_away = |stream: &TcpStream| {
        let mut one = stream;
        one.set_read_timeout(Some(Duration::from_millis(300)))
            .unwrap();
        matches!(one.read(&mut [0]), Ok(0))
    };
    assert_eq!(crowd.iter().filter(|one| turned_away(one)).count(), 20);
    let mut client = test_server.client();
    client.say(&wb_netperf_wire::Request::CpuCalibrate);
    assert_eq!(word(&client.hear(), 1), 0);
    // A released place is available again.
    drop(crowd);
    until(|| !turned_away(&connect_from(STRANGER, test_server.address)));
}

#[test]
fn one_address_does_not_take_the_memory_of_others() {
    let test_server = TestServer::new();
    let request = OmniRequest {
        receive_size: Some(60 << 20),
        receive_width: 1,
        ..OmniRequest::default()
    };
    let mut crowd: Vec<_> = (0..5).map(|_| test_server.client()).collect();
    for client in &mut crowd {
        client.say(&request.clone().into());
    }
    let errors: Vec<i32> = crowd
        .iter_mut()
        .map(|client| word(&client.hear(), 1).cast_signed())
        .collect();
    assert!(errors.contains(&libc::ENOMEM), "{errors:?}");
    let mut other = Client {
        stream: connect_from(STRANGER, test_server.address),
        generation: wb_netperf_wire::Generation::Words164,
    };
    other.omni(request);
}

#[test]
fn a_byte_now_and_then_keeps_no_place() {
    let test_server = TestServer::with_idle(Duration::from_millis(500));
    let mut slow = test_server.client();
    let mut sent = 0;
    // The server has closed if it answers with a reset.
    while sent < 600 && slow.stream.write_all(&[0]).is_ok() {
        sent += 1;
        wb_testing::disturb(Duration::from_millis(20));
    }
    assert!(sent < 600, "it was listened to for 12 s");
    drop(slow);
    assert_eq!(test_server.end().given_up, 1);
}
