//! Command lines and the resulting tests.

use proptest::prelude::*;
use wb_model::{
    socket::{
        Confidence, Family, ReceiveBy, SendBy, SocketProtocol, SocketSide, SocketTest, SocketType,
    },
    units::{PortRange, Span},
};

mod mistakes;
mod rows;
mod whole;

use super::{getopt::NetperfOption, *};
use crate::TypedEnd;

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn read(line: &str) -> NetperfCommand {
    netperf(&words(line)).unwrap_or_else(|r| panic!("{line}: {}", r.text))
}

fn refused(line: &str) -> NetperfRefusal {
    netperf(&words(line)).map_or_else(|r| r, |_| panic!("{line} was not refused"))
}

fn job(line: &str) -> SocketJob {
    let job = read(line).job().clone();
    assert_eq!(job.problems(), [], "{line}");
    job
}

/// The default job with the test's name and the changes of a line.
fn only(name: &str, change: impl FnOnce(&mut SocketJob)) -> SocketJob {
    let mut job = SocketJob {
        name: name.to_owned(),
        ..SocketJob::default()
    };
    change(&mut job);
    job
}

fn stream(change: impl FnOnce(&mut SocketJob)) -> SocketJob {
    only("TCP_STREAM", change)
}

fn confidence(level: u8, width: f64, min: u32, max: u32) -> Option<Confidence> {
    Some(Confidence {
        level,
        width,
        min,
        max,
        result_only: false,
    })
}

#[test]
fn nothing_is_tcp_stream_to_localhost_for_ten_seconds() {
    let command = read("");
    assert_eq!(*command.job(), stream(|_| ()));
    assert_eq!(command.special, SpecialAction::Normal);
    assert_eq!(
        command.show,
        OutputOptions {
            command_line: "netperf".to_owned(),
            ..OutputOptions::default()
        }
    );
    assert_eq!(command.plan.sockets.len(), 1);
    assert!(command.notes.is_empty());
}

#[test]
fn usage_texts_name_every_option() {
    for (line, options, to_stdout) in [
        ("-h", global::OPTIONS, false),
        ("-- -h", omni::OPTIONS, true),
        ("-t TCP_CC -- -h", sockets::OPTIONS, true),
    ] {
        let refusal = refused(line);
        assert_eq!((refusal.code, refusal.to_stdout), (1, to_stdout), "{line}");
        assert!(
            refusal
                .text
                .starts_with("\nUsage: netperf [global options] ")
        );
        for option in options {
            let row = format!("\n    -{} ", option.letter);
            assert!(refusal.text.contains(&row), "{line}: -{}", option.letter);
        }
        assert!(
            refusal.text.lines().all(|l| l.len() <= 100),
            "{}",
            refusal.text
        );
    }
    for known in tests_known::KNOWN {
        assert!(refused("-h").text.contains(known.name));
    }
}

#[test]
fn tests_by_name() {
    use SocketProtocol::{Sctp, Tcp, Udp};
    for (name, test, protocol, classic) in [
        ("TCP_STREAM", SocketTest::Send, Tcp, false),
        ("TCP_MAERTS", SocketTest::Receive, Tcp, false),
        ("TCP_SENDFILE", SocketTest::Send, Tcp, true),
        ("TCP_RR", SocketTest::Rr, Tcp, false),
        ("TCP_CRR", SocketTest::Crr, Tcp, false),
        ("TCP_CC", SocketTest::Cc, Tcp, true),
        ("TCP_MSS", SocketTest::Mss, Tcp, true),
        ("UDP_STREAM", SocketTest::Send, Udp, false),
        ("UDP_RR", SocketTest::Rr, Udp, false),
        ("SCTP_STREAM", SocketTest::Send, Sctp, false),
        ("SCTP_RR", SocketTest::Rr, Sctp, false),
        ("OMNI", SocketTest::Send, Tcp, false),
        ("LOC_CPU", SocketTest::ServerCpu, Tcp, false),
        ("REM_CPU", SocketTest::ServerCpu, Tcp, false),
        ("UUID", SocketTest::ServerCpu, Tcp, false),
    ] {
        let job = job(&format!("-t {}", name.to_lowercase()));
        assert_eq!(job.name, name);
        assert_eq!((job.test, job.protocol), (test, protocol), "{name}");
        assert_eq!(job.control.classic, classic, "{name}");
        // Datagrams without answers stay within connected networks.
        let one_way = name == "UDP_STREAM";
        assert_eq!(job.options.dont_route, one_way, "{name}");
        let sendfile = job.local.send_by == SendBy::Sendfile;
        assert_eq!(sendfile, name == "TCP_SENDFILE");
    }
    assert!(!job("-t UDP_STREAM -- -R 1").options.dont_route);
    assert!(job("-t UDP_RR -- -R 0").options.dont_route);
    assert!(job("-- -T udp").options.dont_route);
    for (name, special) in [
        ("LOC_CPU", SpecialAction::LocalCpu),
        ("REM_CPU", SpecialAction::RemoteCpu),
        ("UUID", SpecialAction::Uuid),
        ("TCP_CC", SpecialAction::Normal),
    ] {
        assert_eq!(read(&format!("-t {name}")).special, special);
    }
    assert_eq!(read("-t UUID -- -u abc").show.uuid, "abc");
    // Tests without options ignore them.
    assert!(netperf(&words("-t LOC_CPU -- -h")).is_ok());
}

#[test]
fn unknown_tests() {
    for name in ["nosuch", "stream_stream", "DNS_RR", "sctp_rr_many", "-l"] {
        let refusal = refused(&format!("-t {name} -- -h"));
        let first = format!(
            "The test you requested ({}) is unknown to this netperf.",
            name.to_uppercase()
        );
        assert_eq!(refusal.text.lines().next(), Some(first.as_str()));
        assert_eq!((refusal.code, refusal.to_stdout), (1, true));
    }
}

/// Directions equal those in control messages of the original.
#[test]
fn direction_of_omni() {
    use SocketTest::{Cc, Crr, Receive, Rr, Send};
    for (line, test) in [
        ("", Send),
        ("-m 5", Send),
        ("-m ,5", Receive),
        ("-m 5,5", Rr),
        ("-M 5", Send),
        ("-M ,5", Receive),
        ("-m 5 -M ,7", Rr),
        ("-r 5", Rr),
        ("-r 5 -m 7", Rr),
        ("-c", Cc),
        ("-c -d rr", Crr),
        ("-c -r 5", Crr),
        ("-c -d 0", Cc),
        ("-d send", Send),
        ("-d stream", Send),
        ("-d xmit", Send),
        ("-d transmit", Send),
        ("-d 2", Send),
        ("-d recv", Receive),
        ("-d receive", Receive),
        ("-d MAERTS", Receive),
        ("-d 0x4", Receive),
        ("-d rr", Rr),
        ("-d 6", Rr),
        ("-d send|recv", Rr),
        ("-d SEND|maerts", Rr),
        ("-d 2|4", Rr),
        ("-d 0", Send),
        ("-d rr -d send", Send),
        ("-d send -r 5", Send),
        ("-r 5 -d send", Send),
        ("-d send -m ,5", Send),
        ("-m ,5 -d send", Send),
    ] {
        assert_eq!(job(&format!("-t omni -- {line}")).test, test, "{line}");
    }
    // The names of the other tests determine the direction.
    assert_eq!(job("-- -d rr -m ,5 -r 7").test, Send);
    assert_eq!(job("-t TCP_RR -- -d send").test, Rr);
    assert_eq!(job("-t TCP_RR -- -c").test, Crr);
    for line in [
        "-- -c",
        "-t TCP_MAERTS -- -c",
        "-t omni -- -c -d send",
        "-t omni -- -c -m 5",
    ] {
        assert!(refused(line).text.starts_with("netperf: -- -c: "), "{line}");
    }
    for line in ["-t UDP_RR -- -c", "-t omni -- -T udp -c"] {
        assert!(refused(line).text.starts_with("netperf: -- -T: "), "{line}");
    }
}

#[test]
fn protocol_and_type() {
    use SocketProtocol::{Dccp, Sctp, Tcp, Udp, UdpLite};
    for (line, protocol, socket_type) in [
        ("", Tcp, None),
        ("-T udp", Udp, None),
        ("-T udplite", UdpLite, None),
        ("-T sctp", Sctp, None),
        ("-T dccp", Dccp, None),
        ("-t dgram", Udp, None),
        ("-t stream", Tcp, None),
        ("-t stream -T udp", Udp, None),
        ("-T tcp -t dgram", Tcp, Some(SocketType::Dgram)),
        ("-T udp -t stream", Udp, Some(SocketType::Stream)),
    ] {
        let job = job(&format!("-t omni -- {line}"));
        assert_eq!(
            (job.protocol, job.socket_type),
            (protocol, socket_type),
            "{line}"
        );
    }
}
#[test]
fn without_control_connection() {
    for (line, port) in [
        ("-N", 9),
        ("-N -t TCP_MAERTS", 19),
        ("-N -t TCP_RR", 7),
        ("-N -t omni -- -d rr", 7),
        ("-N -t UDP_STREAM", 9),
        ("-N -- -P ,99", 99),
    ] {
        let command = read(line);
        assert_eq!(command.job().data.server_port, port, "{line}");
        assert_eq!(command.show.remote.port, port, "{line}");
    }
    let echo = job("-N -t TCP_RR -- -r 5,10");
    assert_eq!((echo.request_size, echo.response_size), (5, 5));
}

#[test]
fn bursts() {
    assert_eq!(job("-t TCP_CRR -- -b 5").first_burst, 0);
    assert_eq!(job("-t UDP_RR -- -b 5").first_burst, 5);
    let paced = job("-w ,5 -b 3,4");
    assert_eq!((paced.local.burst, paced.remote.burst), (3, 4));
    assert_eq!(paced.local.burst_interval, Span::from_millis(1));
    assert_eq!(paced.remote.burst_interval, Span::from_millis(5));
}

#[test]
fn ends_as_the_texts_need_them() {
    let end = |host: Option<&str>, port, family| TypedEnd {
        host: host.map(str::to_owned),
        port,
        family,
    };
    let show = read("-H a,4 -L b -p 4444,5 -- -P 6,7").show;
    assert_eq!(show.control, end(Some("a"), 4444, Family::Ipv4));
    assert_eq!(show.control_local, end(Some("b"), 5, Family::Any));
    assert_eq!(show.remote, end(Some("a"), 7, Family::Ipv4));
    assert_eq!(show.local, end(Some("b"), 6, Family::Any));
    let show = read("-H a,4 -L b -- -H c/8,6 -L d").show;
    assert_eq!(show.remote, end(Some("c"), 0, Family::Ipv6));
    assert_eq!(show.local, end(Some("d"), 0, Family::Ipv6));
    assert_eq!(read("").show.remote, end(None, 0, Family::Any));
    assert_eq!(
        read("-l 5 -- -m 7 x").show.command_line,
        "netperf -l 5 -- -m 7 x"
    );
}

#[test]
fn selections() {
    let shown = |line| {
        let show = read(line).show;
        (show.form, show.selection)
    };
    assert_eq!(shown(""), (OutputForm::Classic, None));
    assert_eq!(shown("-t omni"), (OutputForm::Human, None));
    assert_eq!(shown("-- -k"), (OutputForm::KeyValue, None));
    assert_eq!(
        shown("-- -k a,b -D"),
        (OutputForm::KeyValue, Some("a,b".to_owned()))
    );
    assert_eq!(shown("-- -O -D"), (OutputForm::Human, None));
    assert_eq!(shown("-- -o x"), (OutputForm::Csv, Some("x".to_owned())));
    let select = |line| {
        let mut command = read(line);
        let selection = command.select_figures(|_| Err(13));
        (selection, command.job().latency)
    };
    assert!(!select("-t omni").1);
    assert!(!select("-- -k THROUGHPUT").1);
    assert!(select("-- -k throughput,p99_latency").1);
    assert!(select("-- -k all").1);
    let warning = select("-- -k THROUGHPUT,NO_SUCH").0.unwrap().warning();
    assert!(warning.unwrap().contains("'NO_SUCH'"));
    let ending = select("-- -k ?").0.unwrap_err();
    assert!(ending.stdout.starts_with("OUTPUT_NONE,SOCKET_TYPE,"));
    assert_eq!(ending.status, 1);
    let ending = select("-- -k some/file").0.unwrap_err();
    assert_eq!(
        ending.stdout,
        "Could not open output selection file 'some/file' errno 13\n"
    );
    let mut command = read("-- -o some/file");
    let read_file = |file: &str| {
        assert_eq!(file, "some/file");
        Ok("THROUGHPUT,P50_LATENCY\n".to_owned())
    };
    assert!(command.select_figures(read_file).is_ok());
    assert!(command.job().latency);
}

#[test]
fn strict() {
    let mut command = read("");
    command.be_strict();
    assert!(command.show.strict && command.job().control.plain);
}

#[test]
fn the_line_of_a_document_is_read_as_it_is_meant() {
    let printed = read("\u{2013}H 192.168.20.124 -l 20 \u{2013}p 4444 -- -m 2048");
    let typed = read("-H 192.168.20.124 -l 20 -p 4444 -- -m 2048");
    assert_eq!(printed.plan, typed.plan);
    assert_eq!(printed.job().control.port, 4444);
    assert_eq!((printed.notes.len(), typed.notes.len()), (1, 0));
    assert!(!printed.notes[0].to_stdout);
}

#[test]
fn no_bytes_of_buffer_are_the_least_that_the_kernel_has() {
    let given = job("-- -s 0 -S 0,5");
    let buffers = |side: &SocketSide| (side.send_buffer, side.receive_buffer);
    assert_eq!(buffers(&given.local), (Some(0), Some(0)));
    assert_eq!(buffers(&given.remote), (Some(0), Some(5)));
    assert_eq!(buffers(&job("-- -s -1").local), (None, None));
}
