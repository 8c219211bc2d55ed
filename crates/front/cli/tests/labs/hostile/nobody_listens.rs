//! Closed outputs: the run, its files and its report end in order, and no process waits.

use std::{
    fs::File,
    io::{PipeReader, Read, pipe},
    os::unix::fs::OpenOptionsExt,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;

use crate::kit::{Running, eventually, wirebench};

const PATIENCE: Duration = Duration::from_secs(60);
/// A run with some live lines, without a wire; a busy machine may hold it up.
const TRIAL: &str = "trial --tx memory:x --rx memory:x --rate 1kpps --duration 600ms --interval 100ms --catch-up 10s";

/// A pipe without a reader.
fn deaf() -> Stdio {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    writer.into()
}

fn full() -> Stdio {
    File::options()
        .write(true)
        .open("/dev/full")
        .unwrap()
        .into()
}

fn run(line: &str, stdout: Stdio, stderr: Stdio) -> Output {
    let child = wirebench()
        .args(line.split_whitespace())
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr)
        .spawn()
        .unwrap();
    Running(child).finish(PATIENCE)
}

#[test]
fn a_deaf_standard_error_ends_no_run() {
    let load =
        "load --client memory:x --server memory:x --cps 100 --duration 600ms --interval 100ms";
    let tx = "tx -i memory:x --rate 1kpps --duration 600ms --interval 100ms --catch-up 10s -v";
    let watch = "pktgen watch -i memory:x --duration 600ms";
    for line in [TRIAL, &format!("{TRIAL} -v"), load, tx, watch] {
        for stderr in [deaf(), full()] {
            let output = run(line, Stdio::piped(), stderr);
            assert_eq!(output.status.code(), Some(0), "{line}");
            assert!(!output.stdout.is_empty(), "{line}: no report");
        }
    }
    // An error keeps its exit code, even if the message cannot be written.
    for line in [
        "trial",
        "linerate --size 1",
        "netperf -t NO_SUCH",
        "netserver -x",
    ] {
        let heard = run(line, Stdio::piped(), Stdio::piped()).status.code();
        assert_eq!(run(line, deaf(), deaf()).status.code(), heard, "{line}");
        assert_ne!(heard, Some(101), "{line}");
    }
}

/// Runs a command in a shell with `redirection`.
fn run_by_shell(line: &str, redirection: &str) -> Output {
    let child = Command::new("sh")
        .args(["-c", &format!("exec \"$0\" {line} {redirection}")])
        .arg(wirebench().get_program())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    Running(child.unwrap()).finish(PATIENCE)
}

#[test]
fn results_for_a_standard_output_that_is_closed_are_a_fault() {
    let json = format!("{TRIAL} -q --json");
    let told = "standard output: it is closed";
    for (line, redirection, code) in [
        (TRIAL, ">&-", 4),
        (&json, ">&-", 4),
        (&json, ">&- <&-", 4),
        ("run --keys", ">&-", 4),
        ("linerate --size 64 10g", ">&-", 4),
        ("capture -i nowhere -w -", ">&-", 4),
        ("wrk --print-plan -d 1s http://127.0.0.1:1", ">&-", 4),
        // Redirected output is not closed, whatever way it was opened.
        (&json, "> /dev/null", 0),
        (&json, "1<> /dev/null", 0),
        (&json, "<&-", 0),
    ] {
        let output = run_by_shell(line, redirection);
        let said = String::from_utf8_lossy(&output.stderr);
        let place = format!("{line} {redirection}: {said}");
        assert_eq!(output.status.code(), Some(code), "{place}");
        assert_eq!(said.contains(told), code == 4, "{place}");
    }
    // With a closed standard error the results are still written.
    let output = run_by_shell(&json, "2>&-");
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stdout.starts_with(b"{"), "no report");
}

#[test]
fn a_document_that_cannot_be_written_is_a_fault() {
    let json = format!("{TRIAL} -q --json");
    let plan = format!("{TRIAL} --print-plan");
    for (line, stdout, code) in [
        (TRIAL, deaf(), 0),
        (TRIAL, full(), 4),
        (plan.as_str(), full(), 4),
        ("run --keys", full(), 4),
        ("run --keys", deaf(), 0),
        (json.as_str(), deaf(), 4),
        (json.as_str(), full(), 4),
    ] {
        let output = run(line, stdout, Stdio::piped());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}: {said}");
        let told = said.contains("cannot write the results to standard output");
        assert_eq!(told, code == 4, "{line}: {said}");
    }
}

/// Reads until the first live line is there.
fn first_line(ears: &mut PipeReader) {
    let mut byte = [0];
    while byte != *b"\n" {
        assert_eq!(ears.read(&mut byte).unwrap(), 1);
    }
}

/// Starts a shell line that is replaced by the binary; `ears` reads its standard error.
fn started(shell: &str) -> (Child, PipeReader) {
    let (ears, mouth) = pipe().unwrap();
    let child = Command::new("sh")
        .args(["-c", shell])
        .env("WIREBENCH", env!("CARGO_BIN_EXE_wirebench"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(mouth)
        .spawn()
        .unwrap();
    (child, ears)
}

#[test]
fn a_terminal_that_hangs_up_ends_a_run_in_order_and_nohup_does_not() {
    let line = "--tx memory:x --rx memory:x --rate 1kpps --json --interval 100ms --catch-up 10s";
    for (shell, code, verdict) in [
        (
            format!("exec \"$WIREBENCH\" trial {line} --duration 50s"),
            129,
            "incomplete",
        ),
        (
            format!("trap '' HUP; exec \"$WIREBENCH\" trial {line} --duration 1s"),
            0,
            "completed",
        ),
    ] {
        let (child, mut ears) = started(&shell);
        let running = Running(child);
        first_line(&mut ears);
        // Later messages have no reader.
        drop(ears);
        running.signal(Signal::HUP);
        let output = running.finish(PATIENCE);
        assert_eq!(output.status.code(), Some(code), "{shell}");
        let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
        assert_eq!(report["verdict"], verdict, "{shell}: {}", report["reason"]);
    }
}

#[test]
fn a_reader_that_does_not_read_holds_up_no_run() {
    // Live lines fill a pipe of one page, and no reader empties it.
    let (ears, mouth) = pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&mouth, 4096).unwrap();
    let line = "trial --tx memory:x --rx memory:x --rate 1kpps --duration 6s --interval 100ms --catch-up 10s";
    let child = wirebench()
        .args(line.split_whitespace())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(mouth)
        .spawn()
        .unwrap();
    let mut running = Running(child);
    eventually("the run ends by itself", || {
        running.0.try_wait().unwrap().is_some()
    });
    let output = running.finish(PATIENCE);
    assert_eq!(output.status.code(), Some(0));
    drop(ears);
}

#[test]
fn a_terminal_that_is_gone_cannot_take_the_report_and_that_is_no_fault() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    for more in ["", "--json", "--plain"] {
        let terminal =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        // `setsid` makes the other end the controlling terminal of the run.
        let line = format!(
            "exec setsid --ctty --wait \"$WIREBENCH\" trial --tx memory:x --rx memory:x --rate 1kpps --duration 50s --catch-up 10s {more}"
        );
        let other = File::options()
            .read(true)
            .write(true)
            .custom_flags(rustix::fs::OFlags::NOCTTY.bits().cast_signed())
            .open(name.to_str().unwrap())
            .unwrap();
        let child = Command::new("sh")
            .args(["-c", &line])
            .env("WIREBENCH", env!("CARGO_BIN_EXE_wirebench"))
            .env("TERM", "xterm")
            .stdin(other.try_clone().unwrap())
            .stdout(other.try_clone().unwrap())
            .stderr(other)
            .spawn()
            .unwrap();
        // Its first output shows that the run has started; before, SIGHUP kills it.
        let mut terminal = File::from(terminal);
        assert!(terminal.read(&mut [0]).unwrap() > 0, "{more}");
        std::thread::sleep(Duration::from_millis(200));
        drop(terminal);
        let output = Running(child).finish(PATIENCE);
        assert_eq!(output.status.code(), Some(129), "{more}");
    }
}
