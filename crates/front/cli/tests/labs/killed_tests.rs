//! What is left of test processes that were killed.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, ChildStdout, Command, Stdio},
};

use crate::{
    kit::{Lab, eventually, privileged, system},
    left_over_labs::remove_all,
};

/// A test process that has a lab.
struct Other {
    child: Child,
    said: BufReader<ChildStdout>,
    lab: String,
}

impl Other {
    fn start(before: &[&str]) -> Self {
        let mut words: Vec<String> = before.iter().map(|word| (*word).to_owned()).collect();
        let program = std::env::current_exe().unwrap();
        words.push(program.to_str().unwrap().to_owned());
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .args(["--exact", "killed_tests::a_process_with_a_lab"])
            .args(["--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut lines = said.by_ref().lines().map(Result::unwrap);
        let lab = lines.find_map(|line| Some(line.split_once("has lab ")?.1.to_owned()));
        Self {
            lab: lab.expect("a lab"),
            said,
            child,
        }
    }

    fn lab_exists(&self) -> bool {
        let listed = system("ip", &["netns", "list"]).stdout;
        String::from_utf8_lossy(&listed).contains(&format!("wb-{}-a", self.lab))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // Closes its input.
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "run by the test below"]
fn a_process_with_a_lab() {
    let lab = Lab::up("pair", &[]);
    println!("has lab {}", lab.name);
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

#[test]
fn labs_of_ended_processes_are_removed_and_labs_of_running_processes_stay() {
    if !privileged() {
        return;
    }
    let mut killed = Other::start(&[]);
    let running = Other::start(&[]);
    let elsewhere = Other::start(&["unshare", "--pid", "--fork", "--mount-proc"]);
    assert!(killed.lab_exists() && running.lab_exists() && elsewhere.lab_exists());
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    remove_all();
    // Another test process may have been first, and at work.
    eventually("the lab is gone", || !killed.lab_exists());
    assert!(running.lab_exists() && elsewhere.lab_exists());
    for mut other in [running, elsewhere] {
        drop(other.child.stdin.take());
        let _ = other.said.read_to_end(&mut Vec::new());
        assert!(other.child.wait().unwrap().success());
        assert!(!other.lab_exists());
    }
}
