//! Selected figures in their three forms.

use crate::made::{KINDS, Made, request_response, stream};
use proptest::prelude::*;
use wb_model::socket::{SocketJobReport, SocketTest, TcpSample};
use wb_netperf::{FigureSelection, OutputForm, TestKind, program_exit};

#[test]
fn units_convert() {
    let bps = 8e9;
    let of = |letter, strict| {
        let mut made = stream().selecting(OutputForm::Csv, "THROUGHPUT,THROUGHPUT_UNITS");
        made.show.headers = false;
        made.show.unit = letter;
        made.show.strict = strict;
        made.report.result.throughput_bps = bps;
        made.printed()
    };
    let expected = [
        (Some('b'), "8000000000.00,10^0bits/s\n"),
        (Some('k'), "8000000.00,10^3bits/s\n"),
        (Some('m'), "8000.00,10^6bits/s\n"),
        (None, "8000.00,10^6bits/s\n"),
        (Some('x'), "8000.00,10^6bits/s\n"),
        (Some('g'), "8.00,10^9bits/s\n"),
        (Some('B'), "1000000000.00,Bytes/s\n"),
        (Some('K'), "976562.50,KBytes/s\n"),
        (Some('M'), "953.67,MBytes/s\n"),
        (Some('G'), "0.93,GBytes/s\n"),
        (Some('?'), "976562.50,KBytes/s\n"),
    ];
    for (letter, text) in expected {
        assert_eq!(of(letter, false), text);
    }
    // The original prints bytes if bits are requested.
    assert_eq!(of(Some('b'), true), "1000000000.00,10^0bits/s\n");
}

#[test]
fn defaults_follow_the_direction() {
    let titles = |test, kind| {
        let text = Made::new(kind, test)
            .selecting(OutputForm::Csv, "")
            .printed();
        text.lines().next().map(str::to_owned).expect("a header")
    };
    assert_eq!(
        titles(SocketTest::Send, TestKind::Omni),
        "Local Send Socket Size Final,Remote Recv Socket Size Final,Local Send Size,Elapsed Time \
         (sec),Throughput,Throughput Units"
    );
    assert!(titles(SocketTest::Receive, TestKind::Omni).starts_with(
        "Remote Send Socket Size Final,Local Recv Socket Size Final,Remote Send Size,"
    ));
    assert!(
        titles(SocketTest::Rr, TestKind::Omni).contains("Request Size Bytes,Response Size Bytes")
    );
}

#[test]
fn selected_figures_have_three_forms() {
    let names = "THROUGHPUT,RESULT_BRAND,OUTPUT_NONE,DIRECTION";
    let made = request_response(TestKind::TcpRr);
    assert_eq!(
        made.clone()
            .selecting(OutputForm::KeyValue, names)
            .printed(),
        "THROUGHPUT=21885.58\nOUTPUT_NONE= \nDIRECTION=Send|Recv\n"
    );
    assert_eq!(
        made.clone().selecting(OutputForm::Csv, names).printed(),
        "Throughput,Result Tag, ,Direction\n21885.58,, ,Send|Recv\n"
    );
    let mut strict = made.clone().selecting(OutputForm::Csv, names);
    strict.show.strict = true;
    assert!(strict.printed().ends_with("21885.58,,  ,Send|Recv\n"));
    strict.show.brand = Some("x".to_owned());
    assert!(strict.printed().ends_with("21885.58,\"x\", ,Send|Recv\n"));
    assert_eq!(
        made.selecting(OutputForm::Human, "throughput,throughput_units")
            .lines(),
        "Throughput Throughput $\n           Units      $\n                      $\n\
         \x20                     $\n21885.58   Trans/s    $\n"
    );
}

#[test]
fn a_file_of_selectors_has_a_block_in_a_line() {
    assert_eq!(
        FigureSelection::file_of("my/selectors"),
        Some("my/selectors")
    );
    for word in [
        "?",
        "ALL",
        "a,b",
        "a;b",
        "THROUGHPUT",
        "Elapsed Time (sec)",
        "",
    ] {
        assert_eq!(FigureSelection::file_of(word), None, "{word}");
    }
    let mut made = request_response(TestKind::TcpRr).selecting(OutputForm::Human, "my/selectors");
    made.show.headers = false;
    let missing =
        FigureSelection::of_command(&made.show, &made.job).expect_err("there is no content");
    assert_eq!(
        missing.stdout,
        "Could not open output selection file 'my/selectors' errno 2\n"
    );
    assert_eq!(missing.status, 255);
    made.show.selection_file = Some("PROTOCOL\n\nElapsed Time (sec),DIRECTION\n".to_owned());
    assert_eq!(made.lines(), "TCP      $\n$\n1.00    Send|Recv  $\n");
}

#[test]
fn names_are_listed_as_the_original_lists_them() {
    let ask = |form, strict| {
        let mut made = stream().selecting(form, "?");
        made.show.strict = strict;
        let listed = FigureSelection::of_command(&made.show, &made.job).expect_err("a question");
        assert_eq!((listed.stderr.as_str(), listed.status), ("", 1));
        listed.stdout
    };
    let recorded = include_str!("recorded/names.txt");
    assert_eq!(recorded.lines().count(), 175);
    assert_eq!(ask(OutputForm::Human, true), recorded);
    let line: Vec<&str> = recorded.lines().collect();
    assert_eq!(ask(OutputForm::KeyValue, true), line.join(",") + "\n");
    let ours = ask(OutputForm::Human, false);
    assert_eq!(ours.lines().count(), 183);
    assert!(ours.contains("COMMAND_LINE\nRTT\nRTTVAR\nCWND\n"));
}

#[test]
fn ours_stand_after_all_but_not_where_it_is_strict() {
    let mut made = stream().selecting(OutputForm::KeyValue, "all");
    made.report.local.tcp = Some(TcpSample {
        rtt_us: 40,
        pacing_bps: 5_000_000_000,
        ..TcpSample::default()
    });
    made.report.latency_p95_ns = Some(1_499);
    made.report.latency_ns.p9999 = Some(1_500);
    let text = made.printed();
    assert!(text.contains("\nCOMMAND_LINE=\"\"\nRTT=40\n"), "{text}");
    assert!(text.contains("\nPACING_RATE=5000000000\n"));
    assert!(text.ends_with("P95_LATENCY=1\nP99.9_LATENCY=-1\nP99.99_LATENCY=2\n"));
    made.show.strict = true;
    assert!(made.printed().ends_with("COMMAND_LINE=\"\"\n"));
    let short = made.selecting(OutputForm::KeyValue, "p95,rtt");
    assert_eq!(short.printed(), "P95_LATENCY=1\nRTT=40\n");
}

#[test]
fn times_are_zero_where_all_answers_were_lost() {
    let mut made = Made::new(TestKind::UdpRr, SocketTest::Rr).selecting(
        OutputForm::KeyValue,
        "MIN_LATENCY,P99_LATENCY,STDDEV_LATENCY",
    );
    let printed = |made: &Made| made.printed().replace('\n', " ");
    let of = |n, f| format!("MIN_LATENCY={n} P99_LATENCY={n} STDDEV_LATENCY={f} ");
    assert_eq!(printed(&made), of("-1", "-1.00"));
    made.job.latency = true;
    assert_eq!(printed(&made), of("0", "0.00"));
}

#[test]
fn unknown_names_are_passed_over_and_told() {
    let mut made = stream().selecting(OutputForm::KeyValue, "ELAPSED_TIME,NO_SUCH;OTHER");
    for strict in [false, true] {
        made.show.strict = strict;
        assert_eq!(made.printed(), "ELAPSED_TIME=2.00\n");
        let warning = made.selection().warning().expect("two are unknown");
        assert!(warning.contains("'NO_SUCH', 'OTHER'"), "{warning}");
    }
    assert_eq!(
        stream()
            .selecting(OutputForm::Csv, "all")
            .selection()
            .warning(),
        None
    );
}

#[test]
fn blanks_part_names_as_commas_do() {
    for names in [
        "PROTOCOL DIRECTION",
        "PROTOCOL, DIRECTION",
        " PROTOCOL\tDIRECTION ",
        "Protocol,Direction NO_SUCH",
    ] {
        let mut made = stream().selecting(OutputForm::KeyValue, names);
        for strict in [false, true] {
            made.show.strict = strict;
            assert_eq!(made.printed(), "PROTOCOL=TCP\nDIRECTION=Send\n", "{names}");
        }
    }
    assert_eq!(
        FigureSelection::file_of("my selectors"),
        Some("my selectors")
    );
}

#[test]
fn a_selection_says_what_must_be_measured() {
    let needs = |names| {
        stream()
            .selecting(OutputForm::KeyValue, names)
            .selection()
            .needs()
    };
    assert_eq!(needs("ELAPSED_TIME,LOCAL_CPU_UTIL"), Default::default());
    assert!(needs("P99_LATENCY").latency);
    assert!(needs("PROTOCOL;P99.99").latency);
    assert!(needs("REMOTE_CONG_CONTROL").congestion);
    assert!(needs("LOCAL_TRANSPORT_RETRANS").tcp && needs("CWND").tcp);
    let all = needs("all");
    assert!(all.latency && all.congestion && all.tcp);
}

#[test]
fn every_selector_has_a_value_for_every_test() {
    for (kind, test) in KINDS {
        let mut made = Made::new(kind, test).selecting(OutputForm::KeyValue, "all");
        made.show.brand = Some("tag".to_owned());
        for report in [SocketJobReport::default(), made.report.clone()] {
            made.report = report;
            assert_eq!(made.printed().lines().count(), 173 + 8, "{kind:?}");
        }
    }
}

proptest! {
    #[test]
    fn no_selection_panics(word in "\\PC*", strict: bool, content in proptest::option::of("\\PC*")) {
        for form in [OutputForm::Csv, OutputForm::Human, OutputForm::KeyValue] {
            let mut made = stream().selecting(form, &word);
            made.show.strict = strict;
            made.show.selection_file = content.clone();
            if let Ok(selection) = FigureSelection::of_command(&made.show, &made.job) {
                let _ = selection.needs();
                let _ = program_exit(&made.show, &made.job, &selection, &made.report);
            }
        }
    }

    #[test]
    fn a_value_stands_below_each_title(picks in proptest::collection::vec(0usize..181, 1..40)) {
        let names: Vec<String> = {
            let made = stream().selecting(OutputForm::Human, "?");
            let listed = FigureSelection::of_command(&made.show, &made.job).expect_err("a question");
            listed.stdout.lines().skip(1).map(str::to_owned).collect()
        };
        let list: Vec<&str> = picks.iter().map(|at| names[*at].as_str()).collect();
        let made = stream().selecting(OutputForm::Csv, &(list.join(",") + ","));
        let text = made.printed();
        let fields: Vec<usize> = text.lines().map(|line| line.split(',').count()).collect();
        prop_assert_eq!(fields, vec![picks.len(), picks.len()]);
    }

    #[test]
    fn columns_have_the_same_width_in_each_line(picks in proptest::collection::vec(0usize..181, 1..40)) {
        let made = stream().selecting(OutputForm::Human, "?");
        let listed = FigureSelection::of_command(&made.show, &made.job).expect_err("a question");
        let names: Vec<&str> = listed.stdout.lines().skip(1).collect();
        let list: Vec<&str> = picks.iter().map(|at| names[*at]).collect();
        let text = stream().selecting(OutputForm::Human, &(list.join(",") + ",")).printed();
        let widths: Vec<usize> = text.lines().map(str::len).collect();
        prop_assert_eq!(widths.len(), 5);
        prop_assert!(widths.iter().all(|width| *width == widths[0]));
    }
}
