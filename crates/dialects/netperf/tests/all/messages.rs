//! Banner, interim lines, failures, and output without a test.

use std::net::IpAddr;

use crate::made::{Made, request_response, stream};
use wb_model::socket::{
    Confidence, Family, SocketFailure, SocketJobReport, SocketLive, SocketProtocol, SocketStage,
    TcpSample,
};
use wb_netperf::{
    ConnectionEnds, OutputForm, OutputOptions, ProgramExit, TestKind, TypedEnd, banner,
    calibration, failure_exit, interim, program_exit, tcp_info, uuid,
};

fn ends(name: &str, address: &str) -> ConnectionEnds {
    ConnectionEnds {
        server_name: name.to_owned(),
        server: address.parse().expect("an address"),
        local: None,
    }
}

#[test]
fn the_banner_has_whole_addresses_but_where_the_original_has_none() {
    let mut made = stream();
    let there = ends("host.example", "192.0.2.77");
    assert_eq!(
        banner(&made.show, &made.job, &there),
        "MIGRATED TCP STREAM TEST from 0.0.0.0 (0.0.0.0) port 0 AF_INET to host.example \
         (192.0.2.77) port 0 AF_INET : demo\n"
    );
    made.show.strict = true;
    assert!(banner(&made.show, &made.job, &there).contains("host.example () port 0 AF_INET"));
    assert!(
        banner(&made.show, &made.job, &ends("::1", "::1"))
            .contains("from ::0 (::) port 0 AF_INET6 to ::1 (::1) port 0 AF_INET6")
    );
    let at = |address| banner(&made.show, &made.job, &ends("h", address));
    assert!(at("192.0.2.77").contains(" h () "));
    assert!(at("10.1.1.1").contains(" h () "));
    assert!(at("9.9.9.9").contains(" h (9.9.9.9) "));
    made.show.headers = false;
    assert_eq!(banner(&made.show, &made.job, &there), "");
}

#[test]
fn the_server_has_the_resolvers_name_unless_data_goes_elsewhere() {
    let mut made = stream();
    made.report.server = "192.0.2.1:12865".to_owned();
    made.report.server_name = "host.example".to_owned();
    made.show.control.host = Some("host".to_owned());
    made.show.remote.host = Some("host".to_owned());
    let there = ConnectionEnds::after_test(&made.show, &made.report);
    assert_eq!(there, ends("host.example", "192.0.2.1"));
    made.show.remote.host = Some("other".to_owned());
    made.report.data_server = "[2001:db8::1]:7".to_owned();
    made.show.local.host = Some("2001:db8::2".to_owned());
    let there = ConnectionEnds::after_test(&made.show, &made.report);
    assert_eq!(there.server_name, "other");
    assert!(banner(&made.show, &made.job, &there).contains(
        " from 2001:db8::2 (2001:db8::2) port 0 AF_INET6 to other (2001:db8::1) port 0 AF_INET6"
    ));
}

#[test]
fn the_banner_has_its_flags_in_order() {
    let mut made = request_response(TestKind::TcpRr);
    made.job.confidence = Some(Confidence {
        level: 95,
        width: 10.0,
        result_only: true,
        ..Confidence::default()
    });
    made.job.options.no_delay = true;
    made.job.control.none = true;
    made.job.first_burst = 8;
    made.show.copy_avoidance = true;
    made.show.cpu_bind = true;
    made.show.local.port = 7;
    let mut there = ends("h", "192.0.2.1");
    there.local = Some(("me".to_owned(), IpAddr::from([192, 0, 2, 2])));
    assert_eq!(
        banner(&made.show, &made.job, &there),
        "MIGRATED TCP REQUEST/RESPONSE TEST from me (192.0.2.2) port 7 AF_INET to h (192.0.2.1) \
         port 0 AF_INET : +/-5.000% @ 95% conf.  on result only : nodelay : copy avoidance : no \
         control : demo : first burst 8 : cpu bind\n"
    );
}

#[test]
fn interim_lines_follow_the_form() {
    let mut made = request_response(TestKind::UdpRr);
    let live = SocketLive {
        units: 20_000,
        transactions: true,
        interval_s: 0.2,
        ended_s: 1_795_353_978.904_2,
        ..SocketLive::default()
    };
    let expected = [
        (
            OutputForm::Classic,
            "Interim result: 100000.00 Trans/s over 0.200 seconds ending at 1795353978.904\n",
        ),
        (OutputForm::Csv, "100000.00,Trans/s,0.200,1795353978.904\n"),
        (
            OutputForm::KeyValue,
            "NETPERF_INTERIM_RESULT[3]=100000.00\nNETPERF_UNITS[3]=Trans/s\n\
             NETPERF_INTERVAL[3]=0.200\nNETPERF_ENDING[3]=1795353978.904\n",
        ),
    ];
    for (form, text) in expected {
        made.show.form = form;
        assert_eq!(interim(&made.show, &made.job, &live, 3), text);
    }
    let stream = stream();
    let bytes = SocketLive {
        transactions: false,
        units: 125_000,
        ..live
    };
    assert!(
        interim(&stream.show, &stream.job, &bytes, 0)
            .starts_with("Interim result:    5.00 10^6bits/s over ")
    );
}

fn failed(stage: SocketStage, what: &str, errno: Option<i32>) -> SocketFailure {
    SocketFailure {
        stage,
        what: what.to_owned(),
        errno,
    }
}

fn said(made: &Made, what: &SocketFailure) -> ProgramExit {
    let mut show = made.show.clone();
    show.strict = true;
    failure_exit(&show, &made.job, &made.report, what)
}

#[test]
fn failures_are_told_in_the_words_that_scripts_know() {
    let mut made = stream();
    let refused = failed(SocketStage::Connect, "connection refused", Some(111));
    let ending = said(&made, &refused);
    assert_eq!(
        ending.stdout,
        "establish control: are you sure there is a netserver listening on localhost at port \
         12865?\n\
         establish_control could not establish the control connection from 0.0.0.0 port 0 address \
         family AF_UNSPEC to localhost port 12865 address family AF_UNSPEC\n"
    );
    assert_eq!((ending.stderr.as_str(), ending.status), ("", 255));
    let plain = failure_exit(&made.show, &made.job, &made.report, &refused);
    assert_eq!(plain.stderr, "netperf: connection refused\n");
    made.show.control = TypedEnd {
        host: Some("::1".to_owned()),
        port: 5,
        family: Family::Any,
    };
    assert!(said(&made, &refused).stdout.ends_with(
        "from ::0 port 0 address family AF_UNSPEC to ::1 port 5 address family AF_INET6\n"
    ));

    let unknown = failed(SocketStage::Resolve, "Name or service not known", Some(-2));
    let ending = said(&stream(), &unknown);
    assert_eq!(
        ending.stdout,
        "resolve_host: could not resolve host 'localhost' port '(null)' af AF_UNSPEC\n\
         \tgetaddrinfo returned -2 Name or service not known\n\
         Netperf could not resolve localhost as a host name\n"
    );
    assert_eq!(ending.status, 255);

    let remote = said(&made, &failed(SocketStage::Remote, "refused", Some(95)));
    assert_eq!(remote.stdout, "netperf: remote error 95");
    assert_eq!(remote.stderr, "Operation not supported\n");
    assert_eq!(remote.status, 255);

    let ended = said(&made, &failed(SocketStage::Control, "it ended", None));
    assert_eq!(
        (ended.stderr.as_str(), ended.status),
        ("recv_response: partial response received: 0 bytes\n", 1)
    );
    let reset = said(&made, &failed(SocketStage::Control, "reset", Some(104)));
    assert_eq!(reset.stderr, "recv_response: Connection reset by peer\n");

    made.job.protocol = SocketProtocol::Sctp;
    let socket = said(&made, &failed(SocketStage::Socket, "none", Some(93)));
    assert_eq!(
        socket.stdout,
        "netperf: create_data_socket: socket: errno 93 fam AF_INET type SOCK_STREAM prot \
         IPPROTO_SCTP errmsg Protocol not supported\n"
    );
    let data = said(&made, &failed(SocketStage::Data, "x", Some(111)));
    assert_eq!(
        (data.stderr.as_str(), data.status),
        (
            "netperf: send_omni: connect_data_socket failed: Connection refused\n",
            1
        )
    );
}

#[test]
fn a_test_that_failed_prints_no_result() {
    let mut made = stream();
    made.report.failure = Some(failed(SocketStage::Control, "it ended", None));
    let ending = program_exit(&made.show, &made.job, &made.selection(), &made.report);
    assert_eq!((ending.stdout.as_str(), ending.status), ("", 1));
}

#[test]
fn what_is_no_test_prints_a_word() {
    let mut show = OutputOptions {
        kind: TestKind::LocalCpu,
        ..OutputOptions::default()
    };
    assert_eq!(calibration(&show, 2), "100");
    show.verbosity = 2;
    assert_eq!(calibration(&show, 2), "100\nThere are 2 local cpus\n");
    show.kind = TestKind::RemoteCpu;
    assert_eq!(calibration(&show, 4), "100\nThere are 4 remote cpus\n");
    assert_eq!(uuid([0xff; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    assert_eq!(uuid([0; 16]), "00000000-0000-4000-8000-000000000000");
}

#[test]
fn figures_of_tcp_are_lines_of_names_and_numbers() {
    let mut report = SocketJobReport::default();
    assert_eq!(tcp_info(&report), None);
    report.local.tcp = Some(TcpSample {
        rto_us: 204_000,
        ato_us: 1,
        path_mtu: 65_535,
        receive_ssthresh: 65_495,
        rtt_us: 40,
        rtt_var_us: 14,
        ssthresh: 8,
        cwnd: 16,
        reordering: 3,
        retransmissions: 9,
        ..TcpSample::default()
    });
    assert_eq!(
        tcp_info(&report).expect("figures"),
        "tcpi_rto 204000 tcpi_ato 1 tcpi_pmtu 65535 tcpi_rcv_ssthresh 65495\n\
         tcpi_rtt 40 tcpi_rttvar 14 tcpi_snd_ssthresh 8 tpci_snd_cwnd 16\n\
         tcpi_reordering 3 tcpi_total_retrans 9\n"
    );
}
