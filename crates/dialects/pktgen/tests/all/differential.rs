//! Compares the folder of control files with a running kernel: answers to commands, contents of files,
//! and each byte of each frame. The time in a frame must only be within the run.
//!
//! `WB_PKTGEN_KERNEL` names the program that runs the kernel. Its arguments are a script and a file for
//! the frames that leave `eth0`; `bench/pktgen-kernel/run` is such a program. The seed of the random commands and
//! devices is `WB_PKTGEN_SEED` (default 1). With `WB_PKTGEN_KEEP` the answers are stored in that
//! folder. `WB_PKTGEN_PARTS` lists the parts to test, separated by commas (default all).
//!
//! The answers under `tests/vectors` are played without a kernel.

mod draw;
mod kernel;
mod parts;
mod play;

use std::path::PathBuf;

use draw::{Draw, Step};
use play::Player;

/// Maximum number of differences printed in full.
const SHOWN: usize = 20;

fn judge(player: &Player) {
    let tally = &player.tally;
    println!(
        "{} commands, {} texts, {} runs, {} frames ({} of them with drawn parts) compared",
        tally.commands, tally.texts, tally.runs, tally.frames, tally.drawn_frames
    );
    for reason in play::departures() {
        let number = tally.departures.get(reason).unwrap_or(&0);
        println!("{number:5} times left out: {reason}");
    }
    println!(
        "{:5} commands left out after a departure",
        tally.commands_left_out
    );
    let failures = &player.failures;
    assert!(
        failures.is_empty(),
        "{} differences:\n{}",
        failures.len(),
        failures[..failures.len().min(SHOWN)].join("\n")
    );
}

#[test]
fn as_a_running_kernel() {
    let Ok(program) = std::env::var("WB_PKTGEN_KERNEL") else {
        wb_testing::skipped(
            "WB_PKTGEN_KERNEL names no program that asks a kernel, such as bench/pktgen-kernel/run",
        );
        return;
    };
    let seed = std::env::var("WB_PKTGEN_SEED").map_or(1, |s| s.parse().expect("a number as seed"));
    println!("seed {seed}");
    let mut draw = Draw::new(seed);
    let mut steps = Vec::new();
    let wanted = std::env::var("WB_PKTGEN_PARTS").ok();
    let mut part = |name, more: Vec<_>| {
        let left_out = wanted
            .as_ref()
            .is_some_and(|w| !w.split(',').any(|w| w == name));
        if left_out {
            return;
        }
        steps.push(Step::Part(name));
        steps.extend(more);
    };
    part("commands", draw::commands(&mut draw, 120));
    part("orders", draw::orders(&mut draw, 120));
    part("runs", draw::runs(&mut draw, 40, false));
    part("ranges", draw::runs(&mut draw, 60, true));
    part("departures", draw::departures());
    let folder =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("kernel-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let told = kernel::ask(&program, &steps, &folder);
    std::fs::remove_dir_all(&folder).unwrap();
    if let Ok(folder) = std::env::var("WB_PKTGEN_KEEP") {
        let (head, parts) = told.split_once("part ").unwrap();
        for part in parts.split("\npart ") {
            let (name, part) = part.split_once('\n').unwrap();
            let file = PathBuf::from(&folder).join(format!("kernel_{name}.txt"));
            std::fs::write(file, format!("{}, seed {seed}.\n{part}\n", head.trim_end())).unwrap();
        }
    }
    let mut player = Player::new();
    player.play("kernel", &told);
    judge(&player);
}

#[test]
fn as_a_kernel_did() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let mut player = Player::new();
    for name in ["orders", "ranges", "departures"] {
        let file = folder.join(format!("kernel_{name}.txt"));
        let told = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{file:?}: {e}"));
        player.play(name, &told);
    }
    judge(&player);
    for reason in play::departures() {
        let number = player.tally.departures.get(reason);
        assert!(number.is_some(), "nothing departs: {reason}");
    }
}
