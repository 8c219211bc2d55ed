//! Input and output of loads: mistakes, verdicts, and the options of dperf.

use std::{
    fs,
    os::unix::{fs::symlink, process::CommandExt},
    path::Path,
    process::{Command, Output},
};

use crate::{
    kit::{Lab, privileged, run, wirebench},
    load::{Talking, counter, job, job_total, words},
};

#[test]
fn mistakes_are_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let bad = dir.path().join("bad.conf");
    fs::write(&bad, "mode client\nbogus 3\n").unwrap();
    let bad = bad.to_str().unwrap();
    let one = example("01-http-cps-client");
    for (arguments, part) in [
        (vec!["/nonexistent.conf"], "/nonexistent.conf"),
        (vec![bad], "bogus"),
        (vec![&one, "--port", "0000:1b:00.0=nosuch0"], "nosuch0"),
        (vec![&one], "--port 0000:1b:00.0=IF"),
        (vec![&one, "--client", "memory:x"], "exclude each other"),
        (vec![], "--client"),
        (vec!["--client", "nosuch0", "--cps", "1"], "nosuch0"),
        (vec!["--client", "memory:x"], "cps"),
        (
            vec!["--client", "memory:x", "--cps", "1", "--format", "dperf"],
            "dperf",
        ),
        (vec!["--ctl", "/nonexistent", "show"], "--control"),
    ] {
        let mut command = wirebench();
        let output = command.arg("load").args(&arguments).output().expect("runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{arguments:?}: {error}");
        assert!(error.contains(part), "{arguments:?}: {error}");
    }
}

#[test]
fn a_port_in_use_is_named_with_its_user() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    for driver in ["xdp", "packet"] {
        let at = format!("{driver}:{}", lab.b0());
        let first = Talking::start(&["--server", &at]);
        let output = run(&["load", "--server", &at, "--duration", "1s", "-q"]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("in use by process"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        // It ends without any request, so its run is invalid.
        first.told("stop");
    }
}

fn example(stem: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/dperf");
    format!("{folder}/{stem}.conf")
}

/// The binary by the name `dperf`.
fn dperf(link: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(link);
    command
        .arg0("dperf")
        .args(arguments)
        .output()
        .expect("runs")
}

/// The value behind a name in dperf's lines.
fn shown(text: &str, name: &str) -> u64 {
    let mut words = text.split_whitespace().skip_while(|word| *word != name);
    let value = words
        .nth(1)
        .unwrap_or_else(|| panic!("no {name} in {text}"));
    value
        .replace(',', "")
        .parse()
        .unwrap_or_else(|e| panic!("{name} {value}: {e}"))
}

#[test]
fn a_link_named_dperf_speaks_as_it_does() {
    if !privileged() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("dperf");
    symlink(env!("CARGO_BIN_EXE_wirebench"), &link).unwrap();
    let (client, server) = (example("01-http-cps-client"), example("02-http-cps-server"));
    let output = dperf(&link, &["-t", "-c", &client]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, b"Config file OK\n");
    let wrong = dir.path().join("wrong.conf");
    fs::write(&wrong, "mode nobody\nprotocol smoke\n").unwrap();
    let output = dperf(&link, &["-c", wrong.to_str().unwrap(), "-t"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.lines().count(), 1, "the first error alone: {said}");
    assert!(said.contains("wrong.conf:1"), "{said}");

    let lab = Lab::up("pair", &[]);
    let there = format!("0000:1b:00.1={}", lab.b0());
    let answering = Talking::start(&[&server, "--port", &there, "--duration", "5m"]);
    let here = format!("0000:1b:00.0={}", lab.a0());
    let reduced = words("--cps 200 --duration 2s --wait 0s --ramp 0s");
    let output = dperf(
        &link,
        &[&["-c", &client, "--port", &here], reduced.as_slice()].concat(),
    );
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let (seconds, total) = text.split_once("Total Numbers:").expect("totals");
    // One block a second, and each number of the total is the sum of the blocks that show it, but for the last
    // moment of a run.
    assert!(seconds.matches("cpuUsage").count() >= 1, "{text}");
    assert!(seconds.contains("dperf Test Finished"), "{text}");
    for name in ["tosRx", "ierrors", "oerrors", "imissed"] {
        assert_eq!(shown(total, name), 0, "{name}: {text}");
    }
    let report = answering.stop();
    let server = job(&report, "server");
    for (name, key) in [
        ("skOpen", "attempted_connections"),
        ("httpGet", "requests"),
        ("http2XX", "responses"),
    ] {
        assert_eq!(shown(total, name), job_total(server, key), "{name}: {text}");
    }
    assert_eq!(
        report["compat"]["skOpen"],
        job_total(server, "attempted_connections"),
        "{}",
        report["compat"]
    );
    assert_eq!(shown(total, "skOpen"), shown(total, "skClose"), "{text}");
    assert_eq!(shown(total, "skErr"), 0, "{text}");
    assert_eq!(shown(total, "tcpTx"), counter(server, "tcp_rx"), "{text}");
    assert_eq!(
        shown(total, "bitsTx"),
        8 * counter(server, "rx_octets"),
        "{text}"
    );
}

#[test]
fn check_gives_the_verdicts_of_dperf_or_ours() {
    let checked = |strict: bool, file: &str| {
        let mut command = wirebench();
        command.args(["load", "--check"]);
        command.args(strict.then_some("--strict"));
        let output = command.args([file]).output().expect("runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), said)
    };
    let overlap = example("04-http-cps-ipv6-server");
    let (code, said) = checked(true, &overlap);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("E_ADDR_OVERLAP"), "{said}");
    let (code, said) = checked(false, &overlap);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("04-http-cps-ipv6-server.conf: ok"), "{said}");
    // Settings for bonding and KNI are the kernel's task: they cause a warning, but no error.
    for (stem, warning) in [("35-bond-server", "W_BOND"), ("36-kni-server", "W_KNI")] {
        let (code, said) = checked(false, &example(stem));
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains(warning) && said.contains(": ok"), "{said}");
    }
}

#[test]
fn a_control_socket_of_another_user_is_said_to_want_permission() {
    if !privileged() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("control");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::os::unix::fs::chown(&path, Some(65_534), Some(65_534)).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&path, mode).unwrap();
    let told = |path: &std::path::Path| {
        // Root may write to all sockets by this capability alone.
        let output = Command::new("setpriv")
            .args([
                "--bounding-set=-dac_override",
                env!("CARGO_BIN_EXE_wirebench"),
            ])
            .args(["load", "--ctl", path.to_str().unwrap(), "show"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = told(&path);
    assert!(
        said.contains("permission denied") && !said.contains("start a load"),
        "{said}"
    );
    let said = told(&dir.path().join("nothing"));
    assert!(
        said.contains("start a load") && !said.contains("permission"),
        "{said}"
    );
}
