//! Clients that misbehave, vanish or are numerous.

use std::{
    io::{Read, Write},
    net::{IpAddr, Shutdown, TcpListener, TcpStream},
    sync::{Arc, Barrier},
    time::Duration,
};

use wb_model::{socket::SocketServerJob, units::Span};
use wb_netperf_wire::{
    DataDirection, Flags, OmniRequest, Request, TestLength, WireAddress, WireSocketType,
};
use wb_socket::serve_one;

use crate::client::{Client, FAULTY, Machine, TestServer, is_free, until, word};

fn receives() -> OmniRequest {
    OmniRequest {
        length: TestLength::UntilTold,
        ..OmniRequest::default()
    }
}

fn exchange(count: u32) -> OmniRequest {
    OmniRequest {
        direction: DataDirection::Both,
        request_size: Some(1),
        response_size: Some(1),
        length: TestLength::Units(count),
        ..OmniRequest::default()
    }
}

/// Runs `count` transactions.
fn do_exchange(client: &mut Client, count: u32) {
    let response = client.omni(exchange(count));
    let mut data = client.data(response.data_port);
    for _ in 0..count {
        data.write_all(&[1]).unwrap();
        data.read_exact(&mut [0]).unwrap();
    }
    assert_eq!(client.results().transactions, count);
}

#[test]
fn who_says_nothing_is_given_up() {
    let test_server = TestServer::with_idle(Duration::from_millis(200));
    let mut silent = test_server.client();
    assert_eq!(silent.rest(), b"");
    let mut half = test_server.client();
    half.stream.write_all(&[0; 300]).unwrap();
    assert_eq!(half.rest(), b"");
    // After a message too.
    let mut once = test_server.client();
    once.say(&Request::CpuCalibrate);
    assert_eq!(once.rest().len(), 656);
    drop((silent, half, once));
    let report = test_server.end();
    assert_eq!((report.clients, report.given_up, report.tests), (3, 3, 0));
}

#[test]
fn who_leaves_in_a_message_is_given_up() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    client.stream.write_all(&[0; 100]).unwrap();
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.rest(), b"");
    assert_eq!(test_server.end().given_up, 1);
}

#[test]
fn garbage_is_answered_while_it_has_the_length_of_messages() {
    let test_server = TestServer::with_idle(Duration::from_millis(500));
    let mut client = test_server.client();
    // A request for a web page, and more of the same: three messages and a part.
    let garbage: Vec<u8> = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
        .iter()
        .copied()
        .cycle()
        .take(2000)
        .collect();
    client.stream.write_all(&garbage).unwrap();
    let answers = client.rest();
    assert_eq!(answers.len(), 3 * 656);
    for answer in answers.chunks(656) {
        assert_eq!(crate::client::word(answer, 1), 998);
    }
    let mut next = test_server.client();
    do_exchange(&mut next, 3);
    drop(next);
    let report = test_server.end();
    assert_eq!((report.given_up, report.completed), (1, 1));
}

#[test]
fn pieces_make_a_message() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    for piece in Request::from(exchange(1))
        .encode(client.generation)
        .chunks(100)
    {
        client.stream.write_all(piece).unwrap();
        wb_testing::disturb(Duration::from_millis(3));
    }
    client.hear();
}

#[test]
fn a_client_that_vanishes_takes_its_test_along() {
    let datagrams = OmniRequest {
        protocol: 17,
        socket_type: WireSocketType::Datagram,
        ..receives()
    };
    let connections = OmniRequest {
        flags: Flags::ROUTING_ALLOWED | Flags::CONNECTION_TEST,
        ..exchange(100)
    };
    let sends = OmniRequest {
        direction: DataDirection::ServerSends,
        ..receives()
    };
    for (request, connects) in [
        (receives(), false),
        (receives(), true),
        (exchange(100), true),
        (connections, false),
        (sends.clone(), false),
        (sends, true),
    ] {
        let test_server = TestServer::new();
        let mut client = test_server.client();
        let response = client.omni(request);
        let mut data = connects.then(|| client.data(response.data_port));
        if let Some(data) = &mut data {
            // The server has accepted it once bytes flow in either direction; it may be sending.
            let _ = data.write_all(&[1]);
        }
        drop(client);
        // The data connection ends although the client still holds it.
        if let Some(data) = &mut data {
            let _ = std::io::copy(data, &mut std::io::sink());
        }
        drop(data);
        let report = test_server.end();
        assert_eq!((report.tests, report.completed, report.failed), (1, 0, 1));
    }
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let response = client.omni(datagrams);
    drop(client);
    until(|| std::net::UdpSocket::bind(("127.0.0.1", response.data_port)).is_ok());
    assert_eq!(test_server.end().failed, 1);
}

#[test]
fn the_port_of_a_vanished_clients_test_is_free() {
    let test_server = TestServer::new();
    for connects in [false, true] {
        let mut client = test_server.client();
        let response = client.omni(receives());
        assert!(!is_free(response.data_port));
        let data = connects.then(|| client.data(response.data_port));
        if connects {
            // There is only one connection, so the listener is closed.
            until(|| is_free(response.data_port));
        }
        drop(client);
        drop(data);
        until(|| is_free(response.data_port));
    }
}

#[test]
fn who_talks_during_a_test_ends_it() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    client.omni(receives());
    client.say(&Request::CpuCalibrate);
    assert_eq!(client.rest(), b"");
    drop(client);
    assert_eq!(test_server.end().failed, 1);
}

#[test]
fn a_fault_of_ours_ends_one_test_only() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let in_data_thread = OmniRequest {
        cpu: Some(FAULTY),
        ..receives()
    };
    client.omni(in_data_thread);
    assert_eq!(word(&client.hear(), 1).cast_signed(), libc::EIO);
    let in_control_thread = OmniRequest {
        server_address: WireAddress::from(IpAddr::from([127, 0, 0, 66])),
        ..receives()
    };
    client.say(&in_control_thread.into());
    assert!(matches!(client.stream.read(&mut [0]), Ok(0) | Err(_)));
    let mut next = test_server.client();
    do_exchange(&mut next, 1);
    drop(next);
    let report = test_server.end();
    assert_eq!((report.tests, report.failed, report.completed), (3, 2, 1));
}

#[test]
fn forty_clients_are_served_together() {
    let test_server = TestServer::new();
    let together = Arc::new(Barrier::new(40));
    let clients: Vec<_> = (0..40)
        .map(|n| {
            let together = Arc::clone(&together);
            let address = test_server.address;
            std::thread::spawn(move || {
                let mut client = Client::to(address);
                let response = client.omni(exchange(20 + n));
                let mut data = client.data(response.data_port);
                // All tests run before the first one ends.
                together.wait();
                for _ in 0..20 + n {
                    data.write_all(&[1]).unwrap();
                    data.read_exact(&mut [0]).unwrap();
                }
                assert_eq!(client.results().transactions, 20 + n);
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    let report = test_server.end();
    assert_eq!(
        (report.clients, report.tests, report.completed),
        (40, 40, 40)
    );
    assert_eq!(
        (report.failed, report.turned_away, report.given_up),
        (0, 0, 0)
    );
}

#[test]
fn there_is_a_limit_of_clients() {
    let test_server = TestServer::of(SocketServerJob {
        clients: 2,
        ..SocketServerJob::default()
    });
    let mut inside = [test_server.client(), test_server.client()];
    for client in &mut inside {
        do_exchange(client, 1);
    }
    let mut third = test_server.client();
    // Closed at once, perhaps with a reset because of unread data.
    assert!(matches!(third.stream.read(&mut [0]), Ok(0) | Err(_)));
    let [first, mut second] = inside;
    drop(first);
    do_exchange(&mut second, 1);
    until(|| {
        let mut client = test_server.client();
        client
            .stream
            .write_all(&Request::System.encode(client.generation))
            .is_ok()
            && client.stream.read_exact(&mut [0; 656]).is_ok()
    });
    drop(second);
    let report = test_server.end();
    assert!(report.turned_away >= 1);
    assert_eq!(report.completed, 3);
}

#[test]
fn clients_may_be_served_one_by_one() {
    let test_server = TestServer::of(SocketServerJob {
        one_by_one: true,
        ..SocketServerJob::default()
    });
    let mut first = test_server.client();
    do_exchange(&mut first, 1);
    let mut second = test_server.client();
    second.say(&Request::System);
    second
        .stream
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    assert!(second.stream.read(&mut [0]).is_err(), "not its turn");
    do_exchange(&mut first, 2);
    drop(first);
    second
        .stream
        .set_read_timeout(Some(crate::client::PATIENCE))
        .unwrap();
    second.hear();
    drop(second);
    assert_eq!(test_server.end().clients, 2);
}

#[test]
fn the_end_of_the_server_ends_tests() {
    let test_server = TestServer::new();
    let mut clients: Vec<_> = (0..5).map(|_| test_server.client()).collect();
    let mut data: Vec<_> = clients
        .iter_mut()
        .map(|client| {
            let response = client.omni(receives());
            client.data(response.data_port)
        })
        .collect();
    for data in &mut data {
        data.write_all(&[1; 100]).unwrap();
    }
    let idle = test_server.client();
    until(|| TcpStream::connect(test_server.address).is_ok());
    let report = test_server.end();
    assert_eq!((report.tests, report.failed, report.completed), (5, 5, 0));
    assert_eq!(report.given_up, 0);
    for client in &mut clients {
        assert!(matches!(client.stream.read(&mut [0]), Ok(0) | Err(_)));
    }
    drop(idle);
}

#[test]
fn observers_hear_of_clients_and_bytes() {
    let job = SocketServerJob {
        listen: Some("127.0.0.1".to_owned()),
        port: 0,
        idle: Span::from_secs(60),
        ..SocketServerJob::default()
    };
    let server = wb_socket::SocketServer::bind(&job, Arc::new(Machine::default())).unwrap();
    let address = server.local_addresses()[0];
    let stop = Arc::new(wb_socket::StopRequest::default());
    let told = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        let mut heard = (0, 0);
        let mut observe = |live: &wb_model::socket::SocketLive| {
            heard = (heard.0.max(live.clients), heard.1.max(live.total));
            if heard == (1, 4321) {
                stop.set();
            }
        };
        server.serve(&stop, &mut observe);
        heard
    });
    let mut client = Client::to(address);
    let response = client.omni(receives());
    let mut data = client.data(response.data_port);
    data.write_all(&[1; 4321]).unwrap();
    assert_eq!(thread.join().unwrap(), (1, 4321));
    drop(told);
}

#[test]
fn one_client_may_be_handed_over() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (control, _) = listener.accept().unwrap();
        serve_one(
            &SocketServerJob::default(),
            Arc::new(Machine::default()),
            control,
        )
        .unwrap()
    });
    let mut client = Client::to(address);
    do_exchange(&mut client, 5);
    drop(client);
    let report = server.join().unwrap();
    assert_eq!((report.clients, report.completed), (1, 1));
}

#[test]
fn all_addresses_are_listened_at_unless_one_is_named() {
    let machine = Arc::new(Machine::default());
    let job = SocketServerJob {
        port: 0,
        ..SocketServerJob::default()
    };
    let server = wb_socket::SocketServer::bind(&job, machine.clone()).unwrap();
    let addresses = server.local_addresses();
    assert!(
        addresses
            .iter()
            .all(|address| address.ip().is_unspecified())
    );
    let port = addresses[0].port();
    assert!(addresses.iter().all(|address| address.port() == port));
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());

    let taken = SocketServerJob {
        port,
        ..job.clone()
    };
    let error = wb_socket::SocketServer::bind(&taken, machine.clone())
        .err()
        .unwrap();
    assert!(
        error.to_string().starts_with("cannot listen at "),
        "{error}"
    );
    let unknown = SocketServerJob {
        listen: Some("nosuch".to_owned()),
        ..job
    };
    let error = wb_socket::SocketServer::bind(&unknown, machine)
        .err()
        .unwrap();
    assert_eq!(error.to_string(), "nosuch: no such name");
}

#[test]
fn a_server_for_one_client_ends_when_it_has_left() {
    let mut test_server = TestServer::of(SocketServerJob {
        serves: Some(1),
        ..SocketServerJob::default()
    });
    // A client that only asks has tested nothing.
    let mut asks = test_server.client();
    asks.say(&Request::CpuCalibrate);
    asks.hear();
    drop(asks);
    let mut client = test_server.client();
    do_exchange(&mut client, 2);
    do_exchange(&mut client, 1);
    drop(client);
    let report = test_server.wait();
    assert_eq!((report.clients, report.completed), (2, 2));
}
