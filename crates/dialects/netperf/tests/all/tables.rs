//! Table of each test.

use crate::made::{KINDS, Made, datagrams, request_response, stream};
use wb_model::socket::{Confidence, ConfidenceReport, SocketFigures, SocketJobReport, SocketTest};
use wb_netperf::{OutputForm, TestKind};

#[test]
fn a_stream_has_its_table() {
    assert_eq!(
        stream().lines(),
        "Recv   Send    Send                          $\n\
         Socket Socket  Message  Elapsed              $\n\
         Size   Size    Size     Time     Throughput  $\n\
         bytes  bytes   bytes    secs.    10^6bits/sec  $\n\
         $\n\
         131072  16384  16384    2.00     33357.77   $\n"
    );
}

#[test]
fn a_stream_has_its_table_with_cpu_use() {
    let mut made = stream().with_cpu(100.0, 2.099);
    made.report.result.elapsed_s = 1.58;
    made.report.result.throughput_bps = 7804.97e6;
    let table = "Recv   Send    Send                          Utilization       Service Demand$\n\
         Socket Socket  Message  Elapsed              Send     Recv     Send    Recv$\n\
         Size   Size    Size     Time     Throughput  local    remote   local   remote$\n\
         bytes  bytes   bytes    secs.    10^6bits/s  % S      % S      us/KB   us/KB$\n\
         $\n\
         131072  16384  16384    1.58       7804.97   100.00   100.00   2.099   2.099  $\n";
    assert_eq!(made.lines(), table);
    made.show.kind = TestKind::TcpMaerts;
    made.job.test = SocketTest::Receive;
    made.report.remote.send_size = Some(16_384);
    let swapped = table.replace(
        "Send     Recv     Send    Recv",
        "Recv     Send     Recv    Send",
    );
    assert_eq!(made.lines(), swapped);
}

#[test]
fn what_comes_from_the_server_has_its_receivers_and_senders_sizes() {
    let mut made = Made::new(TestKind::TcpMaerts, SocketTest::Receive).with_cpu(50.0, 1.0);
    made.show.headers = false;
    made.report.local.receive_buffer[1] = Some(1);
    made.report.local.send_buffer[1] = Some(2);
    made.report.remote.receive_buffer[1] = Some(3);
    made.report.remote.send_buffer[1] = Some(4);
    made.report.remote.send_size = Some(5);
    assert!(made.printed().starts_with("     1      4      5    "));
    made.show.strict = true;
    assert!(made.printed().starts_with("     3      2      5    "));
}

#[test]
fn requests_and_responses_have_their_table() {
    let table = "Local /Remote$\n\
         Socket Size   Request  Resp.   Elapsed  Trans.$\n\
         Send   Recv   Size     Size    Time     Rate         $\n\
         bytes  Bytes  bytes    bytes   secs.    per sec   $\n\
         $\n\
         16384  131072 1        1       1.00     21885.58   $\n\
         16384  131072$\n";
    for kind in [TestKind::TcpRr, TestKind::UdpRr] {
        assert_eq!(request_response(kind).lines(), table);
    }
    let mut bytes = request_response(TestKind::TcpRr);
    bytes.show.unit = Some('k');
    bytes.report.result.throughput_bps = 350_169.28;
    assert_eq!(
        bytes.lines(),
        "Local /Remote$\n\
         Socket Size   Request  Resp.   Elapsed  $\n\
         Send   Recv   Size     Size    Time     Throughput $\n\
         bytes  Bytes  bytes    bytes   secs.    10^3bits/sec   $\n\
         $\n\
         16384  131072 1        1       1.00      350.17   $\n\
         16384  131072$\n"
    );
}

#[test]
fn requests_and_responses_have_their_table_with_cpu_use() {
    let mut made = request_response(TestKind::TcpRr).with_cpu(100.0, 58.701);
    made.report.result.transactions_per_second = 34_071.06;
    let header = "Local /Remote$\n\
         Socket Size   Request Resp.  Elapsed Trans.   CPU    CPU    S.dem   S.dem$\n\
         Send   Recv   Size    Size   Time    Rate     local  remote local   remote$\n\
         bytes  bytes  bytes   bytes  secs.   per sec  % S    % S    us/Tr   us/Tr$\n\
         $\n";
    let row = "16384  131072 1       1      1.00    34071.06  100.00 100.00 58.701  58.701 $\n\
         16384  131072$\n";
    assert_eq!(made.lines(), format!("{header}{row}"));
    made.show.kind = TestKind::UdpRr;
    let wide = row.replace("34071.06  100", "34071.06   100");
    assert_eq!(made.lines(), format!("{header}{wide}"));
    made.show.kind = TestKind::TcpCrr;
    made.job.test = SocketTest::Crr;
    let bare = header.replace("% S    % S ", "%      %   ");
    let row = wide.replace("58.701 $", "58.701$");
    assert_eq!(made.lines(), format!("{bare}{row}"));
}

#[test]
fn what_a_unit_of_bytes_costs_is_not_what_a_transaction_costs() {
    // With 2 KiB per transaction, the demand per KiB is half.
    let mut made = request_response(TestKind::TcpRr).with_cpu(100.0, 60.0);
    made.report.result.transactions_per_second = 1000.0;
    made.report.result.throughput_bps = 1000.0 * 2048.0 * 8.0;
    assert!(
        made.lines().contains(" 60.000  60.000 $"),
        "{}",
        made.lines()
    );
    for unit in ['k', 'm', 'B', 'K'] {
        made.show.unit = Some(unit);
        let lines = made.lines();
        assert!(lines.contains("us/KB   us/KB$"), "{lines}");
        assert!(lines.contains(" 30.000  30.000 $"), "{lines}");
    }
}

#[test]
fn datagrams_have_their_table() {
    assert_eq!(
        datagrams().lines(),
        "Socket  Message  Elapsed      Messages                $\n\
         Size    Size     Time         Okay Errors   Throughput$\n\
         bytes   bytes    secs            #      #   10^6bits/sec$\n\
         $\n\
         212992    1400   1.00       252403      0    2825.86$\n\
         212992           1.00       235565           2637.34$\n\
         $\n"
    );
    assert_eq!(
        datagrams().with_cpu(99.5, 0.321).lines(),
        "Socket  Message  Elapsed      Messages                   CPU      Service$\n\
         Size    Size     Time         Okay Errors   Throughput   Util     Demand$\n\
         bytes   bytes    secs            #      #   10^6bits/sec % SS     us/KB$\n\
         $\n\
         212992    1400   1.00       252403      0     2825.9     99.50    0.321 $\n\
         212992           1.00       235565            2637.3     99.50    0.321 $\n\
         $\n"
    );
}

#[test]
fn a_segment_has_its_table() {
    let mut made = Made::new(TestKind::TcpMss, SocketTest::Mss);
    made.report.segment_bytes = Some(1448);
    assert_eq!(
        made.lines(),
        "Maximum$\nSegment$\nSize (bytes)$\n$\n1448 $\n"
    );
    made.show.verbosity = 0;
    assert_eq!(made.lines(), "1448 $\n");
}

#[test]
fn one_number_is_the_result_or_the_demand() {
    let quiet = |mut made: Made| {
        made.show.verbosity = 0;
        made.show.headers = false;
        made.show.brand = Some("tag".to_owned());
        made.printed()
    };
    assert_eq!(quiet(stream()), "33357.77 tag\n");
    assert_eq!(quiet(datagrams()), "2825.86\n");
    assert_eq!(quiet(request_response(TestKind::TcpRr)), "21885.58 tag\n");
    assert_eq!(quiet(stream().with_cpu(1.0, 0.5)), " 0.500 S tag\n");
    let mut remote = stream().with_cpu(1.0, 0.5);
    remote.show.local_cpu = false;
    remote.report.result.local_cpu = None;
    remote.report.result.local_service_demand = None;
    assert_eq!(quiet(remote), " 0.500 S tag\n");
    assert_eq!(quiet(datagrams().with_cpu(1.0, 0.5)), "  0.50 S\n");
    let mut connects = request_response(TestKind::TcpCrr);
    connects.job.test = SocketTest::Crr;
    assert_eq!(quiet(connects.clone()), "21885.58\n");
    assert_eq!(quiet(connects.with_cpu(1.0, 0.5)), " 0.500\n");
}

#[test]
fn a_brand_stands_at_the_end_of_a_row_without_headers() {
    let mut made = stream();
    made.show.brand = Some("mybrand".to_owned());
    assert!(made.printed().ends_with("33357.77   \n"));
    made.show.headers = false;
    assert_eq!(
        made.printed(),
        "131072  16384  16384    2.00     33357.77   mybrand\n"
    );
}

#[test]
fn a_confidence_that_was_missed_is_told_first() {
    let mut made = stream();
    made.job.confidence = Some(Confidence::default());
    made.report.confidence = Some(ConfidenceReport {
        level: 99,
        width: 5.0,
        reached: false,
        result: 90.3594,
        local_cpu: 0.0,
        remote_cpu: 1.5,
    });
    let warning = "!!! WARNING\n\
         !!! Desired confidence was not achieved within the specified iterations.\n\
         !!! This implies that there was variability in the test environment that\n\
         !!! must be investigated before going further.\n\
         !!! Confidence intervals: Throughput      : 90.359%\n\
         !!!                       Local CPU util  : 0.000%\n\
         !!!                       Remote CPU util : 1.500%\n\
         \n\
         Recv ";
    assert!(made.printed().starts_with(warning));
    let selected = made.clone().selecting(OutputForm::KeyValue, "ELAPSED_TIME");
    assert_eq!(selected.printed(), "ELAPSED_TIME=2.00\n");
    made.report.confidence.as_mut().expect("set above").reached = true;
    assert!(made.printed().starts_with("Recv "));
}

#[test]
fn every_test_has_a_table_at_every_verbosity() {
    for (kind, test) in KINDS {
        for verbosity in 0..4 {
            let mut made = Made::new(kind, test);
            made.report = SocketJobReport::default();
            made.report.result = SocketFigures::default();
            made.show.verbosity = verbosity;
            let text = made.printed();
            assert!(
                text.is_empty() || text.ends_with('\n'),
                "{kind:?} {verbosity}"
            );
            assert_eq!(
                text.is_empty(),
                verbosity == 3 && none_beyond(kind),
                "{kind:?}"
            );
        }
    }
}

/// Returns true if a test has neither table nor details above verbosity 2.
fn none_beyond(kind: TestKind) -> bool {
    matches!(kind, TestKind::UdpStream | TestKind::UdpRr)
}
