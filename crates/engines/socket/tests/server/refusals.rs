//! Requests that the server refuses.

use std::net::{IpAddr, TcpListener};

use wb_netperf_wire::{
    DataDirection, Flags, OmniRequest, Request, WireAddress, WireFamily, WireSocketType,
};

use crate::client::{NOT_OURS, TestServer, word};

fn refused(request: OmniRequest) -> i32 {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let number = client.refused(&request.into());
    // The connection stays usable.
    client.say(&Request::System);
    assert_eq!(word(&client.hear(), 0), 601);
    drop(client);
    let report = test_server.end();
    assert_eq!(report.completed, 0);
    assert_eq!(report.tests, report.failed);
    number
}

#[test]
fn sizes_have_limits() {
    let large = 65 << 20;
    for request in [
        OmniRequest {
            receive_size: Some(large),
            ..OmniRequest::default()
        },
        OmniRequest {
            send_size: Some(large),
            direction: DataDirection::ServerSends,
            ..OmniRequest::default()
        },
        OmniRequest {
            direction: DataDirection::Both,
            request_size: Some(large),
            response_size: Some(1),
            ..OmniRequest::default()
        },
        OmniRequest {
            direction: DataDirection::Both,
            request_size: Some(1),
            response_size: Some(0),
            ..OmniRequest::default()
        },
        OmniRequest {
            direction: DataDirection::Both,
            ..OmniRequest::default()
        },
        OmniRequest {
            receive_alignment: 1 << 29,
            ..OmniRequest::default()
        },
    ] {
        assert_eq!(refused(request), libc::EINVAL);
    }
}

#[test]
fn messages_that_make_no_sense_are_refused() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    // An invalid direction, and an invalid port.
    for words in [
        &[(0, 97), (24, 1), (25, 6), (26, 9)][..],
        &[(0, 97), (22, 70_000)],
    ] {
        client.say_words(words);
        assert_eq!(word(&client.hear(), 1).cast_signed(), libc::EINVAL);
    }
    client.say_words(&[(0, 0)]);
    assert_eq!(word(&client.hear(), 1), 998);
}

#[test]
fn a_width_is_bounded() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let response = client.omni(OmniRequest {
        receive_size: Some(64 << 20),
        receive_width: u32::MAX >> 1,
        ..OmniRequest::default()
    });
    assert_eq!(response.receive_width, 1);
}

#[test]
fn memory_is_bounded_and_comes_back() {
    let test_server = TestServer::new();
    let request = OmniRequest {
        receive_size: Some(60 << 20),
        receive_width: 1,
        ..OmniRequest::default()
    };
    let mut clients: Vec<_> = (0..4).map(|_| test_server.client()).collect();
    for client in &mut clients {
        client.omni(request.clone());
    }
    let mut late = test_server.client();
    assert_eq!(late.refused(&request.clone().into()), libc::ENOMEM);
    clients.pop();
    crate::client::until(|| {
        late.say(&request.clone().into());
        word(&late.hear(), 1) == 0
    });
}

#[test]
fn protocols_that_are_none_are_refused() {
    let unknown = OmniRequest {
        protocol: 250,
        ..OmniRequest::default()
    };
    assert_eq!(refused(unknown), libc::EPROTONOSUPPORT);
    let family = OmniRequest {
        family: WireFamily::Rds,
        ..OmniRequest::default()
    };
    assert_eq!(refused(family), libc::EAFNOSUPPORT);
    let datagram_connections = OmniRequest {
        protocol: 17,
        socket_type: WireSocketType::Datagram,
        direction: DataDirection::ConnectOnly,
        flags: Flags::CONNECTION_TEST,
        ..OmniRequest::default()
    };
    assert_eq!(refused(datagram_connections), libc::EOPNOTSUPP);
}

#[test]
fn the_kernels_refusal_of_a_protocol_is_told() {
    for (protocol, socket_type) in [
        (132, WireSocketType::Stream),
        (33, WireSocketType::Dccp),
        (136, WireSocketType::Datagram),
    ] {
        let test_server = TestServer::new();
        let mut client = test_server.client();
        let request = OmniRequest {
            protocol,
            socket_type,
            ..OmniRequest::default()
        };
        let number = client.refused(&request.into());
        eprintln!("protocol {protocol}: {number}");
        let known = [0, libc::EPROTONOSUPPORT, libc::ESOCKTNOSUPPORT, libc::EPERM];
        assert!(known.contains(&number), "{number}");
    }
}

#[test]
fn addresses_that_are_not_ours_are_refused() {
    let request = OmniRequest {
        server_address: WireAddress::from(NOT_OURS),
        ..OmniRequest::default()
    };
    assert_eq!(refused(request), libc::EADDRNOTAVAIL);
}

#[test]
fn nothing_is_sent_to_others_than_the_client() {
    let send = OmniRequest {
        protocol: 17,
        socket_type: WireSocketType::Datagram,
        direction: DataDirection::ServerSends,
        client_port: 9,
        ..OmniRequest::default()
    };
    let other: IpAddr = "127.0.0.2".parse().unwrap();
    let elsewhere = OmniRequest {
        client_address: WireAddress::from(other),
        ..send.clone()
    };
    assert_eq!(refused(elsewhere), libc::EACCES);
    let nowhere = OmniRequest {
        client_port: 0,
        ..send
    };
    assert_eq!(refused(nowhere), libc::EDESTADDRREQ);
}

#[test]
fn a_port_that_is_taken_is_refused() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let request = OmniRequest {
        data_port: taken.local_addr().unwrap().port(),
        ..OmniRequest::default()
    };
    assert_eq!(refused(request), libc::EADDRINUSE);
}

#[test]
fn files_are_not_read() {
    use std::io::Read;
    let test_server = TestServer::new();
    for (name, fills) in [
        (&b"/etc/hostname"[..], "netperf\0"),
        (b"/dev/zero", "\0\0\0\0\0\0\0\0"),
    ] {
        let mut client = test_server.client();
        let response = client.omni(OmniRequest {
            direction: DataDirection::ServerSends,
            length: wb_netperf_wire::TestLength::Units(8),
            send_size: Some(8),
            fill_file: wb_netperf_wire::Name::new(name).unwrap(),
            ..OmniRequest::default()
        });
        let mut bytes = [0; 8];
        client
            .data(response.data_port)
            .read_exact(&mut bytes)
            .unwrap();
        assert_eq!(bytes, fills.as_bytes());
    }
}
