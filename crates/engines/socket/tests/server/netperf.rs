//! The real netperf as a client.

use std::process::Command;

use wb_model::socket::SocketServerJob;

use crate::client::TestServer;

/// Runs netperf with these arguments against a server. Returns its output, or `None` if netperf is not installed.
fn netperf(test_server: &TestServer, words: &str) -> Option<String> {
    let port = test_server.address.port().to_string();
    let mut command = Command::new("timeout");
    command.args(["60", "netperf", "-H", "127.0.0.1", "-p", &port, "-P", "0"]);
    let output = match command.args(words.split_whitespace()).output() {
        Ok(output) if output.status.code() != Some(127) => output,
        _ => {
            wb_testing::skipped("no netperf on the path");
            return None;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {text}{errors}");
    Some(text)
}

/// Lookup in `KEY=value` lines.
fn keys(text: &str) -> impl Fn(&str) -> f64 + '_ {
    move |key| {
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        value
            .unwrap_or_else(|| panic!("no {key} in {text}"))
            .parse()
            .unwrap()
    }
}

/// The numbers in the last lines.
fn numbers(text: &str) -> Vec<f64> {
    text.split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect()
}

const KEYS: &str = "THROUGHPUT,ELAPSED_TIME,LOCAL_BYTES_SENT,LOCAL_BYTES_RECVD,REMOTE_BYTES_SENT,\
    REMOTE_BYTES_RECVD,REMOTE_SEND_CALLS,REMOTE_RECV_CALLS,REMOTE_SEND_SIZE,REMOTE_RECV_SIZE,\
    RSR_SIZE,RSS_SIZE,RSR_SIZE_END,RSS_SIZE_END,REMOTE_CPU_UTIL,REMOTE_CPU_COUNT,\
    REMOTE_CPU_PEAK_UTIL,REMOTE_TRANSPORT_RETRANS,REMOTE_NODELAY,TRANSACTION_RATE";

fn with_keys(test_server: &TestServer, words: &str, more: &str) -> Option<String> {
    netperf(test_server, &format!("{words} -- -k {KEYS} {more}"))
}

#[test]
fn timed_tests_of_each_kind_run() {
    let test_server = TestServer::new();
    let kinds = [
        "-t TCP_STREAM",
        "-t TCP_MAERTS",
        "-t TCP_SENDFILE",
        "-t TCP_RR",
        "-t TCP_CRR",
        "-t TCP_CC",
        "-t UDP_RR",
        "-t UDP_STREAM",
    ];
    for kind in kinds {
        let Some(text) = netperf(&test_server, &format!("-l 1 -v 0 {kind}")) else {
            return;
        };
        assert!(numbers(&text)[0] > 0.0, "{kind}: {text}");
    }
    let report = test_server.end();
    assert_eq!((report.tests, report.completed, report.failed), (8, 8, 0));
    assert_eq!(report.given_up, 0);
}

#[test]
fn counted_tests_give_the_right_counts() {
    let test_server = TestServer::new();
    let Some(text) = with_keys(&test_server, "-l -1000000 -t TCP_STREAM -C", "-m 1000") else {
        return;
    };
    let key = keys(&text);
    assert_eq!(key("REMOTE_BYTES_RECVD"), 1_000_000.0);
    assert_eq!(key("REMOTE_BYTES_SENT"), 0.0);
    assert!(key("REMOTE_RECV_CALLS") > 0.0);
    assert_eq!(key("RSR_SIZE"), key("REMOTE_RECV_SIZE"));
    assert!(key("RSR_SIZE_END") > 0.0 && key("RSS_SIZE") > 0.0);
    assert_eq!(
        (key("REMOTE_CPU_UTIL"), key("REMOTE_CPU_COUNT")),
        (25.0, 2.0)
    );
    assert_eq!(key("REMOTE_CPU_PEAK_UTIL"), 50.0);
    assert!(key("REMOTE_TRANSPORT_RETRANS") >= 0.0);

    let text = with_keys(&test_server, "-l -1000000 -t TCP_MAERTS", "-m ,1000 -D").unwrap();
    let key = keys(&text);
    assert_eq!(key("REMOTE_BYTES_SENT"), 1_000_000.0);
    assert_eq!(key("LOCAL_BYTES_RECVD"), 1_000_000.0);
    assert_eq!(
        (key("REMOTE_SEND_CALLS"), key("REMOTE_SEND_SIZE")),
        (1000.0, 1000.0)
    );

    for (kind, retransmissions) in [("TCP_RR", 0.0), ("TCP_CRR", -1.0), ("UDP_RR", -1.0)] {
        let words = format!("-l -50 -t {kind}");
        let text = with_keys(&test_server, &words, "-r 10,20 -D").unwrap();
        let key = keys(&text);
        assert_eq!(key("REMOTE_BYTES_RECVD"), 500.0, "{kind}");
        assert_eq!(key("REMOTE_BYTES_SENT"), 1000.0, "{kind}");
        assert_eq!(
            (key("REMOTE_RECV_CALLS"), key("REMOTE_SEND_CALLS")),
            (50.0, 50.0)
        );
        assert_eq!(key("REMOTE_TRANSPORT_RETRANS"), retransmissions, "{kind}");
    }

    let text = with_keys(&test_server, "-l -10000 -t UDP_STREAM", "-m 1000").unwrap();
    let key = keys(&text);
    assert_eq!(key("REMOTE_BYTES_RECVD"), 10_000.0);
    assert_eq!(key("REMOTE_RECV_CALLS"), 10.0);

    // Rows of the classic tests: the count over the time.
    for words in ["-l -100 -t TCP_CC", "-l -1000000 -t TCP_SENDFILE"] {
        assert!(!netperf(&test_server, words).unwrap().is_empty());
    }
    let report = test_server.end();
    assert_eq!((report.tests, report.failed, report.completed), (8, 0, 8));
}

#[test]
fn the_general_test_runs_in_all_directions() {
    let test_server = TestServer::new();
    for words in [
        "-d send",
        "-d receive",
        "-d rr -r 64,256",
        "-c",
        "-c -d rr",
        "-T udp -d rr",
        "-T udp -d send -m 1000",
        "-V -a -R 0",
        "-T udp -d rr -B -n -N",
    ] {
        let Some(text) = netperf(
            &test_server,
            &format!("-l -2000 -t omni -- -k THROUGHPUT {words}"),
        ) else {
            return;
        };
        assert!(keys(&text)("THROUGHPUT") > 0.0, "{words}: {text}");
    }
    let text = netperf(
        &test_server,
        "-l 1 -t omni -- -k THROUGHPUT -T udp -d receive -m ,1000",
    )
    .unwrap();
    assert!(keys(&text)("THROUGHPUT") > 0.0, "{text}");
    assert_eq!(test_server.end().failed, 0);
}

#[test]
fn what_was_asked_for_arrives() {
    let test_server = TestServer::new();
    let words = "-l -100000 -T 0,0 -y 3,4 -Y ef,0x10 -A 64,32 -O 3,4 -W 5,6 -S -- \
        -s 32K,64K -S 128K,16k -m 8K,4K -M 2K,1K \
        -k RSR_SIZE,RSS_SIZE,REMOTE_RECV_SIZE,REMOTE_SOCKET_PRIO,REMOTE_RECV_WIDTH";
    let Some(text) = netperf(&test_server, words) else {
        return;
    };
    let key = keys(&text);
    assert_eq!((key("RSS_SIZE"), key("RSR_SIZE")), (262_144.0, 32_000.0));
    assert_eq!(
        (key("REMOTE_RECV_SIZE"), key("REMOTE_SOCKET_PRIO")),
        (2048.0, 4.0)
    );
}

#[test]
fn a_wait_before_the_traffic_is_no_harm() {
    let test_server = TestServer::new();
    std::thread::scope(|scope| {
        for kind in ["TCP_STREAM", "TCP_MAERTS"] {
            let test_server = &test_server;
            scope.spawn(move || {
                // More than the padding, which breaks netserver.
                let line = format!("-l 1 -s 6 -v 0 -t {kind}");
                if let Some(text) = netperf(test_server, &line) {
                    assert!(numbers(&text)[0] > 0.0, "{text}");
                }
            });
        }
    });
    assert_eq!(test_server.end().failed, 0);
}

#[test]
fn several_iterations_share_a_connection() {
    let test_server = TestServer::new();
    let Some(_) = netperf(&test_server, "-l 1 -I 95,99 -i 3,3 -t TCP_RR") else {
        return;
    };
    let report = test_server.end();
    assert_eq!((report.clients, report.completed), (1, 3));
}

#[test]
fn the_passphrase_of_netperf_is_understood() {
    let test_server = TestServer::of(SocketServerJob {
        passphrase: Some("s3cret".to_owned()),
        ..SocketServerJob::default()
    });
    if netperf(&test_server, "-l -10 -t TCP_RR -Z s3cret").is_none() {
        return;
    }
    let report = test_server.end();
    assert_eq!((report.completed, report.unauthorised), (1, 0));
}

#[test]
fn small_tests_answer_small_questions() {
    let test_server = TestServer::new();
    let Some(text) = netperf(&test_server, "-t REM_CPU") else {
        return;
    };
    assert_eq!(text.trim(), "100");
    assert!(numbers(&netperf(&test_server, "-t TCP_MSS").unwrap())[0] > 500.0);
}
