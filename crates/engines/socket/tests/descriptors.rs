//! A server in a process without free descriptors. A separate process, because other tests would have none either.

#[path = "server/client.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod client;

use std::{fs::File, time::Duration};

use client::{TestServer, word};
use rustix::process::{Resource, getrlimit, setrlimit};

#[test]
fn a_server_without_descriptors_waits_for_some() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(64);
    setrlimit(Resource::Nofile, limit).unwrap();
    let test_server = TestServer::new();
    let mut early = test_server.client();
    early
        .stream
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    early.say_words(&[(0, 600)]);
    early.hear();

    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }
    // The kernel completes the connection; the server cannot accept it.
    files.pop();
    let mut late = test_server.client();
    late.say_words(&[(0, 600)]);
    late.stream
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    assert!(std::io::Read::read(&mut late.stream, &mut [0]).is_err());
    // A connected client gets an answer: there is no socket for a test.
    early
        .stream
        .set_read_timeout(Some(client::PATIENCE))
        .unwrap();
    let request = wb_netperf_wire::OmniRequest::default();
    assert_eq!(early.refused(&request.into()), libc::EMFILE);

    drop(files);
    late.stream
        .set_read_timeout(Some(client::PATIENCE))
        .unwrap();
    assert_eq!(word(&late.hear(), 0), 601);
    drop((early, late));
    let report = test_server.end();
    assert_eq!(
        (report.clients, report.failed, report.turned_away),
        (2, 1, 0)
    );
}
