//! A script of one's own, run as it is.

use super::{
    DST_MAC, Folder, counted, masked, mounts_on_proc, number_after, processes, run_script, script,
    sent, text,
};
use crate::kit::{Lab, Running, privileged, system};

#[test]
fn a_script_finds_the_files_of_the_kernel_and_leaves_nothing() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let (a, b) = (lab.node("a"), lab.node("b"));
    let receiver = Folder::mount(&b, &[]);
    receiver.set("pgrx", "rx b0");
    receiver.set("pgrx", "statistics counter");
    let (mounts, before) = (mounts_on_proc(), counted(&b, "b0", "rx"));
    let of_the_kernel = std::path::Path::new("/proc/net/pktgen").exists();

    let output = run_script(&a, &[], &[&script("simple.sh"), "a0", DST_MAC, "2345", "7"]);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    assert_eq!(
        text(&output.stderr).replace(&script("simple.sh"), "simple.sh"),
        "simple.sh: line 18: echo: write error: No such device\n\
         simple.sh: line 21: echo: write error: Device or resource busy\n\
         simple.sh: line 23: echo: write error: Invalid argument\n\
         simple.sh: line 25: echo: write error: Invalid argument\n"
    );
    let found = text(&output.stdout);
    let (shown, report) = found.split_once("Report\n").expect("a report");
    super::assert_expected("simple.txt", &masked(shown));
    assert_eq!(
        sent(report.trim_end().trim_start_matches("Result: ")).packets,
        2345
    );

    assert_eq!(counted(&b, "b0", "rx") - before, 2345);
    let received = receiver.read("pgrx");
    assert_eq!(number_after(&received, "Packets Rx: "), 2345, "{received}");
    assert_eq!(
        number_after(&received, "Bytes Rx: "),
        2345 * 60,
        "{received}"
    );
    assert_eq!(mounts_on_proc(), mounts);
    assert_eq!(
        std::path::Path::new("/proc/net/pktgen").exists(),
        of_the_kernel
    );
    assert_eq!(processes(&a), "");
}

#[test]
fn nobody_else_sees_the_files_of_a_script() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let (node, mounts) = (lab.node("a"), mounts_on_proc());
    let of_the_kernel = std::path::Path::new("/proc/net/pktgen").exists();
    let scripts: Vec<_> = (0..2)
        .map(|_| {
            let wait = "test -w /proc/net/pktgen/pgrx && ls /sys/class/net && cat /proc/self/comm && sleep 30 >/dev/null 2>&1; true";
            Running::start(&["pktgen", "run", "--netns", &node, "bash", "-c", wait])
        })
        .collect();
    crate::kit::eventually("both scripts sleep", || {
        let comm = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/comm"));
        let names = processes(&node);
        let names = names.lines().filter_map(|pid| comm(pid).ok());
        names.filter(|name| name == "sleep\n").count() == 2
    });
    assert_eq!(mounts_on_proc(), mounts);
    assert_eq!(
        std::path::Path::new("/proc/net/pktgen").exists(),
        of_the_kernel
    );
    for script in scripts {
        script.signal(rustix::process::Signal::TERM);
        let output = script.finish(super::PATIENCE);
        assert_eq!(
            text(&output.stdout),
            "a0\nlo\ncat\n",
            "{}",
            text(&output.stderr)
        );
        assert_eq!(output.status.code(), Some(128 + 15));
    }
}

#[test]
fn what_cannot_be_run_is_said() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let output = crate::kit::run(&[
        "pktgen",
        "run",
        "--netns",
        &lab.node("a"),
        "/no/such/script",
    ]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert_eq!(
        text(&output.stderr),
        "wirebench: /no/such/script: No such file or directory\n"
    );
    let report = tempfile::NamedTempFile::new().unwrap();
    let path = report.path().to_str().unwrap();
    let output = run_script(
        &lab.node("a"),
        &["--report", path],
        &[&script("simple.sh"), "a0", DST_MAC, "10", "0"],
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(report["totals"]["offered_frames"], 10);
}

/// Metrics served at this address; none while no server listens.
fn metrics(address: &str) -> Option<String> {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

#[test]
fn metrics_are_those_of_the_last_run_of_a_script() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let simple = script("simple.sh");
    let twice = format!("for n in 30 20; do bash {simple} a0 {DST_MAC} $n 0; done");
    let (node, linger) = (lab.node("a"), "--metrics-linger");
    let options = ["pktgen", "run", "--netns", &node, "--metrics", &address];
    let script = [linger, "60s", "bash", "-c", &twice];
    let running = Running::start(&[&options[..], &script].concat());
    crate::kit::eventually("the figures of the second run", || {
        let text = metrics(&address).unwrap_or_default();
        let ended = text.contains("\nwirebench_run_verdict{verdict=\"completed\"} 1");
        ended
            && text.contains("\nwirebench_offered_frames_total 20\n")
            && text.contains("\nwirebench_devices_offered_frames_total 20\n")
    });
    running.signal(rustix::process::Signal::INT);
    let output = running.finish(super::PATIENCE);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

/// Unmounts the folder of a daemon, so that the daemon does not outlive a failed test.
struct Unmounted<'a>(&'a str);

impl Drop for Unmounted<'_> {
    fn drop(&mut self) {
        let _ = crate::kit::run(&["pktgen", "umount", self.0]);
    }
}

#[test]
fn a_mounted_folder_serves_metrics_and_says_in_a_line_where_it_cannot() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let dir = tempfile::tempdir().unwrap();
    let (path, node) = (dir.path().to_str().unwrap(), lab.node("a"));
    let mount = ["pktgen", "mount", path, "--daemon", "--netns", &node];
    let metrics_at = |address| [&mount[..], &["--metrics", address]].concat();
    let refused = crate::kit::run(&metrics_at(&address));
    let said = text(&refused.stderr);
    assert_eq!(
        (refused.status.code(), said.lines().count()),
        (Some(2), 1),
        "{said}"
    );
    assert!(said.contains("cannot listen on"), "{said}");
    assert!(!dir.path().join("pgctrl").exists());
    drop(taken);

    let _unmounted = Unmounted(path);
    let mounted = crate::kit::run(&metrics_at("127.0.0.1:0"));
    let said = text(&mounted.stderr);
    assert_eq!(mounted.status.code(), Some(0), "{said}");
    let address = said
        .trim()
        .strip_prefix("metrics at http://")
        .expect("an address");
    let address = address.strip_suffix("/metrics").expect("a path");
    let write = |file: &str, command: &str| std::fs::write(dir.path().join(file), command).unwrap();
    write("kpktgend_0", "add_device a0");
    for command in ["count 30", "dst 198.18.0.42"] {
        write("a0", command);
    }
    write("pgctrl", "start");
    let served = metrics(address).unwrap_or_default();
    assert!(
        served.contains("\nwirebench_offered_frames_total 30\n"),
        "{served}"
    );
    assert_eq!(
        crate::kit::run(&["pktgen", "umount", path]).status.code(),
        Some(0)
    );
}

/// Scripts load the module, by its name or by a path, check that it is there, and remove it.
#[test]
fn a_script_finds_the_module_loaded() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let check = "set -e
        modprobe pktgen; sudo=; $sudo /usr/sbin/modprobe -q pktgen; insmod ./pktgen.ko
        lsmod | grep -q '^pktgen '
        ! test -e /proc/modules || grep -q '^pktgen ' /proc/modules
        grep -q 2.75 /sys/module/pktgen/version
        ls /sys/module | grep -qv pktgen
        ! modprobe wb_no_such_module 2>/dev/null
        echo add_device a0 > /proc/net/pktgen/kpktgend_0
        rmmod pktgen
        ! test -e /proc/net/pktgen/a0
        modprobe pktgen pg_count_d=7
        echo add_device a0 > /proc/net/pktgen/kpktgend_0
        modprobe -r pktgen
        ! test -e /proc/net/pktgen/a0
        echo fine";
    let before = mounts_on_proc();
    let output = run_script(&lab.node("a"), &[], &["-c", check]);
    assert_eq!(text(&output.stdout), "fine\n", "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("--pg-count-d"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(mounts_on_proc(), before);
}

/// A controller with `start`, `status` and `stop` starts in the background and ends.
#[test]
fn a_script_that_ends_before_its_run_is_said_to_have_ended_it() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let add = format!(
        "echo add_device a0 > /proc/net/pktgen/kpktgend_0
         for c in 'count 0' 'delay 100000' 'dst 198.18.0.42' 'dst_mac {DST_MAC}'; do echo $c > /proc/net/pktgen/a0; done"
    );
    let sent = "until grep -q 'pkts-sofar: [1-9]' /proc/net/pktgen/a0; do :; done";
    for (rest, word) in [
        (
            format!("nohup sh -c 'echo start > /proc/net/pktgen/pgctrl' >/dev/null 2>&1 & {sent}"),
            "were sending",
        ),
        (
            "sleep 30 >/dev/null 2>&1 &".to_owned(),
            "before its devices were started",
        ),
    ] {
        let output = run_script(&lab.node("a"), &[], &["-c", &format!("{add}; {rest}")]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(
            said.contains(word) && said.contains("pktgen mount"),
            "{said}"
        );
    }
    let done =
        format!("{add}; echo count 10 > /proc/net/pktgen/a0; echo start > /proc/net/pktgen/pgctrl");
    let output = run_script(&lab.node("a"), &[], &["-c", &done]);
    assert_eq!(text(&output.stderr), "");
}

/// Virtual devices send and count as those of cards do.
#[test]
fn a_script_sends_by_virtual_devices() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let node = lab.node("a");
    // The kernel sends nothing by these devices.
    let silent = "net.ipv6.conf.default.disable_ipv6=1";
    let set = system("ip", &["netns", "exec", &node, "sysctl", "-qw", silent]);
    assert!(set.status.success(), "{set:?}");
    let devices = [
        "dum0 type dummy",
        "br0 type bridge mcast_snooping 0",
        "a0.5 link a0 type vlan id 5",
        "mv0 link a0 type macvlan",
    ];
    let send = "set -e; P=/proc/net/pktgen
        echo add_device $1 > $P/kpktgend_0
        for s in 'count 1000' 'clone_skb 0' 'pkt_size 60' 'dst 198.18.0.9' \"dst_mac $2\"; do echo \"$s\" > $P/$1; done
        echo start > $P/pgctrl; grep Result $P/$1";
    for device in devices {
        let (name, rest) = device.split_once(' ').unwrap();
        let (below, kind) = match rest.split_once(" type ") {
            Some((link, kind)) => (link, kind),
            None => ("", rest.strip_prefix("type ").unwrap()),
        };
        let line = format!("-n {node} link add {below} name {name} type {kind}");
        let made = system("ip", &line.split_whitespace().collect::<Vec<_>>());
        if text(&made.stderr).contains("Unknown device type") {
            wb_skip::skipped(format_args!("this kernel has no {kind} devices"));
            continue;
        }
        assert!(made.status.success(), "{device}: {made:?}");
        let up = system("ip", &["-n", &node, "link", "set", name, "up"]);
        assert!(up.status.success(), "{device}: {up:?}");
        let before = counted(&node, name, "tx");
        let output = run_script(&node, &[], &["-c", send, "send", name, DST_MAC]);
        let (said, error) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{device}: {said}{error}");
        assert!(said.starts_with("Result: OK"), "{device}: {said}{error}");
        assert_eq!(
            counted(&node, name, "tx") - before,
            1000,
            "{device}: {said}{error}"
        );
    }
}
