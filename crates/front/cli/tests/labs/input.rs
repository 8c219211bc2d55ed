//! Bad input: one clear line, exit code 2, and nothing started.

use crate::kit::{Lab, Running, eventually, privileged, run, system};

/// A recording with frames that are shorter than a header.
const LINKS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../dialects/tcpdump/tests/vectors/links.pcap"
);

/// The one line that a bad command prints.
fn refusal(arguments: &[&str]) -> String {
    let output = run(arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    assert!(
        output.stdout.is_empty(),
        "{arguments:?} printed to standard output"
    );
    assert!(!error.contains("panicked"), "{error}");
    // An error of a filter marks the place.
    let has_caret = error.contains('^');
    assert!(
        error.lines().count() == 1 || has_caret,
        "{arguments:?}: more than one line: {error}"
    );
    let told = error.trim().split(": ").collect::<Vec<_>>();
    let mut once = told.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), told.len(), "{arguments:?}: told twice: {error}");
    error
}

#[test]
fn what_needs_no_interface() {
    let out = "file:/tmp/wb-never-written.pcap";
    for (arguments, words) in [
        (&["tx", "-i", "nope:eth0"][..], &["xdp:IF", "packet:IF"][..]),
        (&["tx", "-i", out, "--size", "63"], &["64 to 16384"]),
        (&["tx", "-i", out, "--size", "99999"], &["64 to 16384"]),
        (
            &["tx", "-i", out, "--size", "64", "--proto", "tcp"],
            &["minimum is 76"],
        ),
        (&["tx", "-i", out, "--size", "64", "-6"], &["minimum is 84"]),
        (&["tx", "-i", out, "--rate", "10x"], &["kpps"]),
        (&["tx", "-i", out, "--rate", "5%", "--count", "1"], &["pps"]),
        (&["tx", "-i", out, "--vary", "nope=inc:1-2"], &["sport"]),
        (
            &["tx", "-i", out, "--vary", "vlan=inc:1-2"],
            &["no such field"],
        ),
        (
            &[
                "tx", "-i", out, "--flows", "10", "--sport", "1-2", "--dport", "7",
            ],
            &["5-tuples"],
        ),
        (&["tx", "-i", out, "--stream", "sizze=64"], &["sizze"]),
        (
            &["tx", "-i", out, "--replay", LINKS],
            &["14", "the minimum is"],
        ),
        (
            &["tx", "-i", out, "--replay", "/nonexistent.pcap"],
            &["/nonexistent.pcap"],
        ),
        (
            &["rx", "-i", "file:/nonexistent.pcap"],
            &["/nonexistent.pcap"],
        ),
        (&["run", "/nonexistent.toml"], &["/nonexistent.toml"]),
        (&["run", "/dev/zero"], &["/dev/zero", "16 MiB"]),
        (&["http", "/dev/zero"], &["/dev/zero", "16 MiB"]),
        (&["load", "/dev/zero"], &["/dev/zero", "1 MiB"]),
        (
            &["bench", "lb", "/dev/zero"],
            &["/dev/zero", "larger than the limit of 16 MiB"],
        ),
        (
            &["bench", "rfc2544", "/dev/zero"],
            &["/dev/zero", "larger than the limit of 16 MiB"],
        ),
        (
            &["read", "-F", "/dev/zero", LINKS],
            &["/dev/zero", "16 MiB"],
        ),
        (
            &["capture", "-i", "lo", "-F", "/dev/zero"],
            &["/dev/zero", "16 MiB"],
        ),
        (&["tx", "-i", "nonode/eth0"], &["nonode"]),
        (&["tx", "-i", out, "--cpus", "4095"], &["CPU 4095"]),
        (
            &["tx", "-i", out, "--workers", "2", "--cpus", "0"],
            &["2 workers"],
        ),
        (
            &["rx", "-i", "packet:lo", "--ring", "99999999999999"],
            &["4095"],
        ),
        (&["demo", "--quite"], &["--quiet"]),
        (&["tx", "-i", "wb-nosuchif0"], &["wb-nosuchif0"]),
        (&["linerate", "fast"], &["fast"]),
        (&["doctor", "wb-nosuchif0"], &["wb-nosuchif0"]),
    ] {
        let error = refusal(arguments);
        for word in words {
            assert!(
                error.contains(word),
                "{arguments:?}: no {word:?} in {error}"
            );
        }
    }
    assert!(
        !std::path::Path::new("/tmp/wb-never-written.pcap").exists(),
        "a refused command wrote its file"
    );
}

#[test]
fn a_plan_with_a_wrong_key_names_the_line() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        file.path(),
        "[[port]]\nname = \"a\"\nlocator = \"eth0\"\nspeeed = 1\n",
    )
    .unwrap();
    let path = file.path().to_str().unwrap();
    let error = refusal(&["run", path]);
    let expected = format!("wirebench: {path}:4: unknown key \"speeed\"");
    assert!(error.starts_with(&expected), "{error}");
}

#[test]
fn what_an_interface_cannot_do() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let (a, b) = (lab.a0(), lab.b0());
    let error = refusal(&["trial", "--tx", &a, "--rx", &b, "--size", "9000"]);
    assert!(
        error.contains("MTU") && error.contains("ip link set"),
        "{error}"
    );
    let error = refusal(&["trial", "--tx", &a, "--rx", &b, "--rate", "37%"]);
    assert!(
        error.contains("nominal") && error.contains("pps"),
        "{error}"
    );
    let error = refusal(&["trial", "--tx", &a, "--rx", &format!("{b}x")]);
    assert!(error.contains("b0"), "the nearest name is missing: {error}");
    // No host has that address: the router is missing.
    let error = refusal(&[
        "trial",
        "--tx",
        &a,
        "--rx",
        &b,
        "--gateway",
        "198.18.77.77",
        "--duration",
        "1s",
        "--dst",
        "10.9.9.9",
    ]);
    assert!(
        error.contains("198.18.77.77") || error.contains("--dst-mac"),
        "{error}"
    );

    system("ip", &["-n", &lab.node("b"), "link", "set", "b0", "down"]);
    let error = refusal(&["trial", "--tx", &a, "--rx", &b]);
    assert!(
        error.contains("no carrier") || error.contains("is down"),
        "{error}"
    );
    let error = refusal(&["rx", "-i", &b]);
    assert!(
        error.contains("is down") && error.contains("ip link set b0 up"),
        "{error}"
    );
}

#[test]
fn two_runs_do_not_share_a_queue() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let first = Running::start(&["rx", "-i", &lab.b0(), "-q"]);
    let tasks = format!("/proc/{}/task", first.0.id());
    eventually("the first run has its worker", || {
        let mut tasks = std::fs::read_dir(&tasks).into_iter().flatten().flatten();
        tasks.any(|t| {
            std::fs::read_to_string(t.path().join("comm")).is_ok_and(|n| n.starts_with("wb-rx-"))
        })
    });
    let error = refusal(&["rx", "-i", &lab.b0()]);
    assert!(
        error.contains(&first.0.id().to_string()),
        "the holder is not named: {error}"
    );
}

#[test]
fn an_interface_with_the_default_route_is_refused() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let node = lab.node("a");
    system(
        "ip",
        &["-n", &node, "addr", "add", "192.0.2.1/24", "dev", "a0"],
    );
    system(
        "ip",
        &["-n", &node, "route", "add", "default", "via", "192.0.2.2"],
    );
    let error = refusal(&[
        "tx",
        "-i",
        &lab.a0(),
        "--dst-mac",
        "02:00:00:00:00:02",
        "--count",
        "1",
    ]);
    assert!(
        error.contains("default route") && error.contains("--i-own-this-network"),
        "{error}"
    );
}
