//! A blocked write blocks no other writer, and ends when its writer receives a signal.

use std::process::{Child, Stdio};

use crate::common::{Playground, bash_in, told};
use rustix::process::{Pid, Signal, kill_process};

/// A shell that blocks in `echo start > ctl`, after printing its number.
fn blocked(play: &Playground, script: &str) -> (Child, Pid) {
    let before = play.toy.with(|state| state.blocked.len());
    let mut command = bash_in(play.dir.path(), script);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    play.toy
        .until("the write arrives", |state| state.blocked.len() > before);
    let writer = play.toy.with(|state| *state.writers.last().unwrap());
    (
        child,
        Pid::from_raw(writer.pid.try_into().unwrap()).unwrap(),
    )
}

fn end(child: Child) -> String {
    told(&child.wait_with_output().unwrap())
}

#[test]
fn stop_gets_past_a_blocked_start_on_the_same_name() {
    let Some(play) = Playground::new() else {
        return;
    };
    let (child, _) = blocked(&play, "echo start > ctl && echo done");
    assert_eq!(
        play.bash("cat ctl; cat log | tail -1"),
        "Blocked: 1\nResult: OK: log\n"
    );
    assert!(
        play.bash("echo nonsense > ctl")
            .contains("Invalid argument")
    );
    assert_eq!(
        play.bash("ls | head -1; [[ -w ctl ]] && echo yes"),
        "ctl\nyes\n"
    );
    assert_eq!(play.bash("echo stop > ctl"), "");
    assert_eq!(end(child), "done\n");
    play.toy.with(|state| assert!(state.interrupts.is_empty()));
}

#[test]
fn many_may_block() {
    let Some(play) = Playground::new() else {
        return;
    };
    let children: Vec<Child> = (0..12)
        .map(|_| blocked(&play, "echo start > ctl && echo done").0)
        .collect();
    assert_eq!(play.bash("cat ctl; echo stop > ctl"), "Blocked: 12\n");
    for child in children {
        assert_eq!(end(child), "done\n");
    }
}

#[test]
fn ctrl_c_is_seen_after_the_write_has_succeeded() {
    let Some(play) = Playground::new() else {
        return;
    };
    let (child, pid) = blocked(
        &play,
        "trap 'echo trapped' SIGINT; echo start > ctl; echo status $?; cat ctl",
    );
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(end(child), "trapped\nstatus 0\nBlocked: 0\n");
    play.toy.with(|state| {
        assert_eq!(state.interrupts.len(), 1);
        let (name, writer) = &state.interrupts[0];
        assert_eq!(
            (name.as_str(), writer.pid),
            ("ctl", pid.as_raw_nonzero().get() as u32)
        );
    });
}

#[test]
fn without_a_trap_the_shell_ends() {
    for (signal, number) in [
        (Signal::INT, 2),
        (Signal::TERM, 15),
        (Signal::HUP, 1),
        (Signal::KILL, 9),
    ] {
        let Some(play) = Playground::new() else {
            return;
        };
        let (child, pid) = blocked(&play, "echo start > ctl; echo not reached");
        kill_process(pid, signal).unwrap();
        let told = end(child);
        assert!(!told.contains("not reached"), "{signal:?}: {told}");
        // `timeout` reports the signal directly or as 128 + number.
        assert!(
            told.contains(&format!("signal: {number}"))
                || told.contains(&format!("{}", 128 + number)),
            "{signal:?}: {told}"
        );
        play.toy
            .with(|state| assert_eq!(state.interrupts.len(), 1, "{signal:?}"));
    }
}

#[test]
fn the_end_of_a_background_job_is_no_interrupt() {
    let Some(play) = Playground::new() else {
        return;
    };
    let script = "set -m; trap 'echo child' CHLD; sleep 0.05 & echo start > ctl; echo status $?";
    let (child, pid) = blocked(&play, script);
    // The signal is pending before the check that must ignore it.
    let waits = || {
        let signals =
            wb_machine::pending_signals::pending_signals(pid.as_raw_nonzero().get() as u32);
        signals.unwrap().contains(libc::SIGCHLD)
    };
    wb_testing::eventually_within(crate::common::PATIENCE, "SIGCHLD", waits);
    kill_process(pid, Signal::WINCH).unwrap();
    wb_testing::disturb(std::time::Duration::from_millis(100));
    play.toy
        .with(|state| assert_eq!((state.blocked.len(), state.interrupts.len()), (1, 0)));
    assert_eq!(play.bash("echo stop > ctl"), "");
    assert!(end(child).ends_with("status 0\n"));
}
