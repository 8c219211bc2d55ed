//! Scripts written for the kernel's generator, Ctrl-C included.

use super::{DST_MAC, add_loop, counted, number_after, run_script, script, sent, text};
use crate::kit::{Lab, privileged};

/// The report in what a script printed, checked.
fn report(printed: &str) -> super::Sent {
    let mut lines = printed.lines().skip_while(|l| !l.contains(" usec, "));
    let (first, second) = (
        lines.next().expect("a report"),
        lines.next().expect("its rates"),
    );
    let first = first.trim_start_matches("Result: ");
    sent(&format!("{first}\n{second}"))
}

#[test]
fn an_endless_run_ends_with_ctrl_c_and_its_script_goes_on() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let (a, b) = (lab.node("a"), lab.node("b"));
    let before = counted(&b, "b0", "rx");
    let output = run_script(&a, &[], &[&script("tutorial-zh.sh"), "a0", DST_MAC, "1"]);
    let (found, complaints) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{found}{complaints}");
    // `start` has no Result, and its write did not fail.
    let (setup, results) = found
        .split_once("Running... ctrl^C to stop\nDone\n")
        .expect(&found);
    assert!(
        complaints.ends_with(": echo: write error: Invalid argument\n")
            && complaints.lines().count() == 1,
        "{complaints}"
    );
    assert_eq!(
        setup,
        "Receiver\nThreads\nDevice\nResult: No such parameter \"inject\"\n"
    );
    let sent = report(results);
    assert!(
        sent.packets > 0 && sent.size == 60 && sent.errors == 0,
        "{results}"
    );
    assert_eq!(counted(&b, "b0", "rx") - before, sent.packets);
    assert!(
        results.ends_with("CPU 0:\tRx packets: 0\t Rx bytes: 0\nCPU 1:\tRx packets: 0\t Rx bytes: 0\n\n\tGlobal Statistics\nPackets Rx: 0\t Bytes Rx: 0\n")
            || std::thread::available_parallelism().is_ok_and(|n| n.get() != 2),
        "{results}"
    );
}

#[test]
fn a_delay_measurement_prints_both_forms() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let node = lab.node("a");
    add_loop(&node);
    let output = run_script(
        &node,
        &["--time", "osta"],
        &[&script("tutorial-ja.sh"), "w0", DST_MAC, "w1"],
    );
    let (found, complaints) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{found}{complaints}");
    assert_eq!(complaints, "");
    assert_eq!(report(&found).packets, 10_000);
    assert_eq!(number_after(&found, "Packets Rx: "), 10_000, "{found}");
    assert!(found.contains("\n\tLatency\n\t\tAverage: "), "{found}");
    assert!(found.ends_with("Not enabled.\n"), "{found}");
    let sum: Vec<_> = found
        .lines()
        .filter(|l| l.starts_with("G 10000 600000 "))
        .collect();
    assert_eq!(sum.len(), 1, "{found}");
    let rows = found
        .lines()
        .filter(|l| l.ends_with(' ') && l.split(' ').count() == 23);
    let samples: u64 = rows.map(|row| number_of(row, 22)).sum();
    // A receiver that sees the timestamp of the previous packet again has one sample fewer.
    assert!((9_000..=10_000).contains(&samples), "{found}");
}

/// The field of that number, from 1.
fn number_of(row: &str, field: usize) -> u64 {
    let text = row.split(' ').nth(field - 1).expect("a field");
    text.parse().unwrap_or_else(|e| panic!("{e}: {row}"))
}

#[test]
fn without_a_trap_ctrl_c_ends_the_shell_and_the_next_reader_has_the_results() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let (a, b) = (lab.node("a"), lab.node("b"));
    let folder = super::Folder::mount(&a, &[]);
    folder.device("a0", &["count 0", "delay 200000"]);
    let before = counted(&b, "b0", "rx");
    let writer = folder.starter();
    folder.await_packets("a0", 10);
    writer.signal(rustix::process::Signal::INT);
    let output = writer.finish(super::PATIENCE);
    assert_eq!(output.status.code(), None, "killed by the signal");
    assert_eq!(text(&output.stdout), "");
    let sent = sent(&folder.result("a0"));
    assert!(sent.packets > 10);
    assert_eq!(folder.number("a0", "pkts-sofar: "), sent.packets);
    assert_eq!(counted(&b, "b0", "rx") - before, sent.packets);

    let writer = folder.shell("trap 'echo trapped' INT; echo start > $P/pgctrl; echo code $?");
    folder.await_packets("a0", 10);
    writer.signal(rustix::process::Signal::INT);
    let output = writer.finish(super::PATIENCE);
    assert_eq!(
        text(&output.stdout),
        "trapped\ncode 0\n",
        "{}",
        text(&output.stderr)
    );
}
