//! Messages byte by byte.

use std::{
    io::{Read, Write},
    net::{Shutdown, UdpSocket},
};

use wb_model::socket::SocketServerJob;

use crate::client::{Client, TestServer, message, read_all, word};

const MINUS_1: u32 = u32::MAX;

/// The request of netperf 2.7 for `-l 2`.
const TCP_STREAM: [(usize, u32); 22] = [
    (0, 0x61),
    (1, MINUS_1),
    (2, MINUS_1),
    (3, MINUS_1),
    (4, 8),
    (6, 2),
    (7, MINUS_1),
    (8, MINUS_1),
    (9, MINUS_1),
    (10, 8),
    (13, MINUS_1),
    (14, 0x20),
    (16, 2),
    (19, MINUS_1),
    (20, MINUS_1),
    (21, MINUS_1),
    (23, 4),
    (24, 1),
    (25, 6),
    (26, 4),
    (38, MINUS_1),
    (39, MINUS_1),
];

fn stream_with(changes: &[(usize, u32)]) -> Vec<u8> {
    message(&[&TCP_STREAM, changes].concat())
}

fn begin(client: &mut Client, request: &[u8]) -> u16 {
    client.stream.write_all(request).unwrap();
    let response = client.hear();
    assert_eq!((word(&response, 0), word(&response, 1)), (0x62, 0));
    let port = u16::try_from(word(&response, 13)).unwrap();
    assert_ne!(port, 0);
    port
}

#[test]
fn a_stream_is_counted_to_the_last_byte() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    client.stream.write_all(&stream_with(&[])).unwrap();
    let response = client.hear();
    assert_eq!(response[..8], [0, 0, 0, 0x62, 0, 0, 0, 0]);
    assert_eq!(response[24..28], [0xff; 4], "it does not send");
    assert_eq!(
        word(&response, 4),
        2,
        "two buffers of the size of the socket's"
    );
    assert_eq!(word(&response, 2), word(&response, 3));
    assert_eq!(word(&response, 7), 2, "what the client said");
    let port = u16::try_from(word(&response, 13)).unwrap();
    let mut data = client.data(port);
    data.write_all(&vec![7; 1_000_000]).unwrap();
    data.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&data), 0, "an end, then the results");
    let results = client.hear();
    assert_eq!(results[8..16], [0, 0, 0, 0, 0, 0x0f, 0x42, 0x40]);
    assert_eq!(word(&results, 11), 0, "no transactions");
    assert!(f32::from_bits(word(&results, 12)) > 0.0);
    assert_eq!(word(&results, 6) + word(&results, 7) + word(&results, 8), 0);
    assert_eq!(word(&results, 28), 0, "nothing was sent again");
    assert_ne!(results[276], 0, "congestion control has a name");
    drop(client);
    let report = test_server.end();
    assert_eq!((report.tests, report.completed, report.failed), (1, 1, 0));
    assert_eq!((report.clients, report.bytes_received), (1, 1_000_000));
}

#[test]
fn five_exchanges_end_a_test_of_five() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let request = stream_with(&[(7, 1), (13, 1), (16, -5_i32 as u32), (26, 6)]);
    let port = begin(&mut client, &request);
    let mut data = client.data(port);
    for _ in 0..5 {
        data.write_all(&[1]).unwrap();
        data.read_exact(&mut [0]).unwrap();
    }
    let results = client.hear();
    assert_eq!(word(&results, 11), 5);
    assert_eq!((word(&results, 3), word(&results, 4)), (5, 5));
    assert_eq!((word(&results, 7), word(&results, 8)), (5, 5));
}

#[test]
fn the_server_closes_each_of_three_connections_first() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let changes = [(7, 1), (13, 1), (14, 0x24), (16, -3_i32 as u32), (26, 6)];
    let port = begin(&mut client, &stream_with(&changes));
    for _ in 0..3 {
        let mut data = client.data(port);
        data.write_all(&[1]).unwrap();
        data.read_exact(&mut [0]).unwrap();
        assert_eq!(data.read(&mut [0]).unwrap(), 0, "its end comes unasked");
    }
    let results = client.hear();
    assert_eq!(word(&results, 11), 3);
    assert_eq!(word(&results, 28), MINUS_1);
}

#[test]
fn an_empty_datagram_ends_a_stream_of_datagrams() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    let changes = [(14, 0), (16, 1), (24, 2), (25, 17)];
    let port = begin(&mut client, &stream_with(&changes));
    let data = UdpSocket::bind("127.0.0.1:0").unwrap();
    for size in [100; 10].into_iter().chain([0; 3]) {
        data.send_to(&vec![1; size], ("127.0.0.1", port)).unwrap();
    }
    let results = client.hear();
    assert_eq!(results[8..16], [0, 0, 0, 0, 0, 0, 0x03, 0xe8]);
    assert_eq!(word(&results, 4), 10);
    assert_eq!(word(&results, 28), MINUS_1);
}

#[test]
fn calibration_tells_the_ticks_and_the_cpus() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    client.say_words(&[(0, 5), (1, MINUS_1)]);
    let answer = client.hear();
    assert_eq!(
        answer[..16],
        message(&[(0, 5), (2, 0x42c8_0000), (3, 2)])[..16]
    );
}

#[test]
fn an_unknown_request_is_refused_and_the_connection_stays() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    for _ in 0..2 {
        client.say_words(&[(0, 999), (1, MINUS_1)]);
        assert_eq!(word(&client.hear(), 1), 998);
    }
    begin(&mut client, &stream_with(&[]));
}

#[test]
fn small_questions_are_answered() {
    let test_server = TestServer::new();
    let mut client = test_server.client();
    for kind in [1, 2] {
        client.say_words(&[(0, kind)]);
        assert_eq!(word(&client.hear(), 0), 3);
    }
    client.say_words(&[(0, 600)]);
    let answer = client.hear();
    assert_eq!(word(&answer, 0), 601);
    assert!(answer[8..].starts_with(b",Deprecated,Deprecated,Deprecated,Deprecated\0"));
    // No passphrase is required, so this one is ignored.
    client.say_words(&[(0, 6), (2, 0x7333_6372)]);
    begin(&mut client, &stream_with(&[]));
}

#[test]
fn the_passphrase_comes_first() {
    let test_server = TestServer::of(SocketServerJob {
        passphrase: Some("s3cret".to_owned()),
        ..SocketServerJob::default()
    });
    let right = message(&[(0, 6), (1, MINUS_1), (2, 0x7333_6372), (3, 0x6574_0000)]);
    let mut client = test_server.client();
    client.stream.write_all(&right).unwrap();
    begin(&mut client, &stream_with(&[]));

    let mut without = test_server.client();
    without.stream.write_all(&stream_with(&[])).unwrap();
    assert_eq!(without.rest(), b"");
    for wrong in [0x6574_7300, 0x6500_0000, 0x6578_0000] {
        let mut client = test_server.client();
        let said = message(&[(0, 6), (1, MINUS_1), (2, 0x7333_6372), (3, wrong)]);
        client.stream.write_all(&said).unwrap();
        client.stream.write_all(&stream_with(&[])).unwrap();
        assert_eq!(client.rest(), b"");
    }
    drop(client);
    let report = test_server.end();
    assert_eq!(
        (report.clients, report.unauthorised, report.tests),
        (5, 4, 1)
    );
}
