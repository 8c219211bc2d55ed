//! Any input is answered, and the folder continues to work.

use std::{
    io,
    sync::mpsc::{self, RecvTimeoutError},
    time::Duration,
};

use super::{Folder, sent};
use crate::kit::{Lab, eventually, privileged};

/// Numbers that are the same each time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

/// Words that mean something, so that not everything ends at the first look.
const WORDS: [&str; 30] = [
    "count",
    "pkt_size",
    "min_pkt_size",
    "max_pkt_size",
    "delay",
    "ratep",
    "clone_skb",
    "burst",
    "flag",
    "dst",
    "dst_max",
    "src6",
    "dst6",
    "mpls",
    "vlan_id",
    "svlan_id",
    "flows",
    "flowlen",
    "imix_weights",
    "add_device",
    "rem_device_all",
    "rx",
    "rx_disable",
    "display",
    "statistics",
    "xmit_mode",
    "reset",
    "stop",
    "start",
    "frags",
];
const VALUES: [&str; 20] = [
    "0",
    "1",
    "60",
    "9999999999",
    "2147483647",
    "-1",
    "a0",
    "a0@1",
    "a0@2",
    "lo",
    "fe80::1",
    "10.0.0.1",
    "IPSRC_RND",
    "!SHARED",
    "64,7 576,4",
    "0001000a,0002000a",
    "queue_xmit",
    "script",
    "time",
    "2s",
];
const FILES: [&str; 12] = [
    "pgctrl",
    "pgrx",
    "kpktgend_0",
    "kpktgend_1",
    "a0",
    "a0@1",
    "a0@2",
    "lo",
    "nosuch",
    "live",
    "plan.toml",
    "result.json",
];

fn command(numbers: &mut Numbers) -> Vec<u8> {
    let bytes = |numbers: &mut Numbers, most: usize| {
        let len = numbers.below(most);
        (0..len).map(|_| numbers.next() as u8).collect::<Vec<u8>>()
    };
    match numbers.below(8) {
        0 => bytes(numbers, 5000),
        1..4 => bytes(numbers, 40),
        4 => [numbers.one(&WORDS).as_bytes(), b" ", &bytes(numbers, 20)].concat(),
        _ => format!("{} {}", numbers.one(&WORDS), numbers.one(&VALUES)).into_bytes(),
    }
}

/// Makes all writes, and passes the answer to each of them on.
fn write_all(folder: &Folder, writes: usize, answered: &dyn Fn(io::Result<usize>)) {
    let mut numbers = Numbers(20_261_121);
    for i in 0..writes {
        if i % 40 == 0 {
            for device in ["a0", "a0@1", "a0@2", "lo"] {
                let order = format!("add_device {device}");
                let _ = folder.write("kpktgend_0", order.as_bytes());
            }
        }
        let (file, command) = (numbers.one(&FILES), command(&mut numbers));
        answered(folder.write(file, &command));
        if numbers.below(20) == 0 {
            let _ = std::fs::read(folder.path(numbers.one(&FILES)));
        }
    }
}

const WRITES: usize = 10_000;

fn all_are_answered(folder: &Folder) {
    let (told, heard) = mpsc::channel();
    std::thread::scope(|scope| {
        let (writer, starter) = (folder, folder);
        let (done, is_done) = mpsc::channel::<()>();
        scope.spawn(move || {
            write_all(writer, WRITES, &|answer| told.send(answer).expect("heard"));
            drop(done);
        });
        // Runs take place meanwhile, and are short.
        scope.spawn(move || {
            while is_done.recv_timeout(Duration::from_millis(1)) == Err(RecvTimeoutError::Timeout) {
                let mut run = starter.starter();
                let _ = is_done.recv_timeout(Duration::from_millis(40));
                // Whatever begins, also after a `stop`, is stopped again.
                eventually("the run ends", || {
                    let _ = starter.write("pgctrl", b"stop");
                    run.0.try_wait().expect("wait").is_some()
                });
            }
        });
        let (mut taken, mut refused) = (0, 0);
        loop {
            match heard.recv_timeout(Duration::from_secs(30)) {
                Ok(Ok(_)) => taken += 1,
                Ok(Err(error)) => {
                    let number = error.raw_os_error().expect("the kernel's");
                    let known = [1, 2, 7, 13, 16, 19, 22, 30, 95, 100];
                    assert!(
                        known.contains(&number),
                        "after {taken} and {refused}: {error}"
                    );
                    refused += 1;
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    // A blocked writer would keep the test from ending.
                    folder.daemon.signal(rustix::process::Signal::KILL);
                    panic!("no answer after {taken} and {refused}");
                }
            }
        }
        assert_eq!(taken + refused, WRITES);
        assert!(
            taken > 1000 && refused > 1000,
            "{taken} taken, {refused} refused"
        );
    });
}

#[test]
fn ten_thousand_random_writes_are_answered() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let folder = Folder::mount(&lab.node("a"));
    all_are_answered(&folder);
    folder.set("pgctrl", "stop");
    folder.set("pgctrl", "reset");
    folder.set("pgrx", "rx_disable");
    eventually("all have stopped", || {
        folder
            .read("kpktgend_0")
            .starts_with("Running: \nStopped: \n")
    });
    folder.device("a0", &["count 100", "pkt_size 60"]);
    folder.start();
    assert_eq!(sent(&folder.result("a0")), 100);
}
