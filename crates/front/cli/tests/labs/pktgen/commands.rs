//! Commands of the kernel's sample scripts, word for word, and the answers of a kernel.
//!
//! `words/*.txt` are lists of commands, `expected/*.txt` is the output of `scripts/play.sh` for them on a
//! Linux 7.2 kernel (eth0, an e1000), with all variable values masked.

use super::{assert_expected, masked, run_script, script, sent, text};
use crate::kit::{Lab, privileged};

/// Output with the interface called IF.
fn told(found: &str, interface: &str) -> String {
    let found = masked(found);
    let random_sources = found.contains("flag IPSRC_RND");
    let mut told = String::new();
    for line in found.lines() {
        let words = line.split(' ').map(|word| {
            let (key, name) = word.split_once('=').map_or(("", word), |(k, n)| (k, n));
            let rest = name.strip_prefix(interface);
            match rest.filter(|rest| matches!(rest.chars().next(), None | Some(':' | '@'))) {
                Some(rest) if key.is_empty() => format!("IF{rest}"),
                Some(rest) => format!("{key}=IF{rest}"),
                None => word.to_owned(),
            }
        });
        let mut line = words.collect::<Vec<_>>().join(" ");
        if let Some((_, rest)) = line
            .strip_prefix("     cur_saddr: ")
            .and_then(|rest| rest.split_once(' '))
            // An IPv6 address is that of the interface, if it has one.
            .filter(|(address, _)| random_sources || address.contains(':'))
        {
            line = format!("     cur_saddr: ADDRESS {rest}");
        }
        told.push_str(&line);
        told.push('\n');
    }
    told
}

#[test]
fn the_commands_of_the_sample_scripts_are_answered_as_by_a_kernel() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let (node, player) = (lab.node("a"), script("play.sh"));
    for (name, runs) in [
        ("simple", &[100][..]),
        ("simple6", &[100]),
        ("ranges", &[100]),
        ("multiqueue", &[100, 100]),
        ("bursts", &[128, 128]),
        ("flows", &[100, 100]),
        ("flow_per_thread", &[128, 128]),
        ("receive_side", &[1024]),
        ("through_queue", &[100]),
    ] {
        let list = format!(
            "{}/tests/labs/pktgen/words/{name}.txt",
            env!("CARGO_MANIFEST_DIR")
        );
        let output = run_script(&node, &[&player, &list, "a0"]);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{name}: {}",
            text(&output.stderr)
        );
        let found = text(&output.stdout);
        let reports: Vec<u64> = found
            .match_indices("Result: OK: ")
            .map(|(at, _)| &found[at + "Result: ".len()..])
            .filter(|rest| rest.lines().next().is_some_and(|l| l.contains(" usec, ")))
            .map(|rest| sent(&rest.lines().take(2).collect::<Vec<_>>().join("\n")))
            .collect();
        assert_eq!(reports, runs, "{name}");
        assert_expected(&format!("{name}-list.txt"), &told(&found, "a0"));
    }
}
