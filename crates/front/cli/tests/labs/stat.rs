//! `stat` and `sar` in labs: against the original, along a path, and what becomes of interfaces meanwhile.

use std::{
    io::Write,
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;

use crate::kit::{Lab, Running, privileged, run, system, wirebench};

/// The lines that `stat --json` printed.
fn lines(output: &[u8]) -> Vec<Value> {
    let text = String::from_utf8_lossy(output);
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    text.lines().map(parse).collect()
}

fn interface<'a>(line: &'a Value, name: &str) -> &'a Value {
    let all = line["interfaces"].as_array().expect("interfaces");
    let found = all.iter().find(|i| i["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {line}"))
}

fn counted(line: &Value, name: &str, counter: &str) -> u64 {
    interface(line, name)["counted"][counter]
        .as_u64()
        .unwrap_or(0)
}

/// Rows of a sar table: time, name, figures.
fn rows(text: &str, name: &str) -> Vec<(String, Vec<f64>)> {
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let figures = words.get(2..)?.iter().map(|w| w.parse().ok());
        (words[1] == name).then_some((words[0].to_owned(), figures.collect::<Option<_>>()?))
    };
    text.lines().filter_map(row).collect()
}

/// By how much two texts of the same moments differ, as a share: the worst of all intervals, and of the averages.
fn difference(theirs: &str, ours: &str, name: &str) -> (f64, f64) {
    let (theirs, ours) = (rows(theirs, name), rows(ours, name));
    assert_eq!(theirs.len(), ours.len(), "{theirs:?} {ours:?}");
    let (mut intervals, mut averages) = (0.0_f64, 0.0_f64);
    for ((time, theirs), (_, ours)) in theirs.iter().zip(&ours) {
        assert_eq!(theirs.len(), ours.len());
        for (a, b) in theirs.iter().zip(ours) {
            // Figures have two digits behind the point.
            let off = if (a - b).abs() <= 0.011 {
                0.0
            } else {
                (a - b).abs() / a.max(*b)
            };
            let worst = if time == "Average:" {
                &mut averages
            } else {
                &mut intervals
            };
            *worst = worst.max(off);
        }
    }
    (intervals, averages)
}

/// Layout of a text: its words other than figures, and its line ends.
fn layout(text: &str) -> Vec<(usize, Vec<String>)> {
    let words = |line: &str| {
        let words = line
            .split_whitespace()
            .map(|w| w.trim_matches(|c: char| c.is_ascii_digit() || ".:".contains(c)));
        (
            line.len(),
            words
                .filter(|w| !w.is_empty())
                .map(ToOwned::to_owned)
                .collect(),
        )
    };
    text.lines().map(words).collect()
}

#[test]
fn sar_is_the_same_as_the_original() {
    if !privileged() {
        return;
    }
    if Command::new("sar").arg("-V").output().is_err() {
        return wb_skip::skipped("needs sar, of the package sysstat");
    }
    let lab = Lab::alone("pair", &[]);
    let (node, a0) = (lab.node("a"), lab.a0());
    let mut differences = Vec::new();
    // A machine that is busy with something else stalls the sender, and then moments differ.
    while differences.len() < 4 {
        let b0 = lab.b0();
        let sender = Running::start(&[
            "trial",
            "--tx",
            &a0,
            "--rx",
            &b0,
            "--rate",
            "20kpps",
            "--duration",
            "9s",
            "--catch-up",
            "10s",
            "-q",
        ]);
        std::thread::sleep(Duration::from_millis(1500));
        let words = ["-n", "DEV,EDEV,SOFT", "1", "5"];
        let start = |program: &str, first: &[&str]| {
            let child = Command::new("ip")
                .args(["netns", "exec", &node, program])
                .args(first)
                .args(words)
                .env("S_TIME_FORMAT", "ISO")
                .env("S_COLORS", "never")
                .env("LC_ALL", "C")
                .stdout(Stdio::piped())
                .spawn();
            Running(child.expect("ip runs"))
        };
        let (theirs, ours) = (
            start("sar", &[]),
            start(env!("CARGO_BIN_EXE_wirebench"), &["sar"]),
        );
        let stat = Running::start(&["stat", "-i", &a0, "--json", "1", "5"]);
        let patience = Duration::from_secs(30);
        let text = |running: Running| String::from_utf8(running.finish(patience).stdout).unwrap();
        let (theirs, ours) = (text(theirs), text(ours));
        let stat = lines(&stat.finish(patience).stdout);
        sender.finish(patience);

        assert_eq!(layout(&theirs), layout(&ours), "{theirs}\n{ours}");
        let rates = &interface(stat.last().unwrap(), &a0)["rates"];
        let average = rows(&theirs, "a0")
            .into_iter()
            .find(|(time, _)| time == "Average:")
            .unwrap()
            .1;
        let off = (rates["tx_pps"].as_f64().unwrap() - average[1]).abs() / average[1];
        let kb = rates["tx_bytes_per_s"].as_f64().unwrap() / 1024.0;
        let off = off.max((kb - average[3]).abs() / average[3]);
        let (intervals, averages) = difference(&theirs, &ours, "a0");
        if intervals < 0.01 && averages < 0.005 && off < 0.01 {
            return;
        }
        differences.push((intervals, averages, off));
    }
    panic!("{differences:?}");
}

#[test]
fn every_form_of_sar_looks_like_the_original() {
    if !privileged() {
        return;
    }
    if Command::new("sar").arg("-V").output().is_err() {
        return wb_skip::skipped("needs sar, of the package sysstat");
    }
    let lab = Lab::up("pair", &[]);
    let node = lab.node("b");
    let start = |program: &str, words: &str| {
        let child = Command::new("ip")
            .args(["netns", "exec", &node])
            .args(program.split(' '))
            .args(words.split(' '))
            .envs([
                ("S_TIME_FORMAT", "ISO"),
                ("S_COLORS", "never"),
                ("LC_ALL", "C"),
            ])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        Running(child.expect("ip runs"))
    };
    let forms = [
        "-n DEV 1 2",
        "-n EDEV 1 1",
        "-n DEV,EDEV -h 1 1",
        "-n DEV --human 1 1",
        "-n EDEV --pretty --dec=0 1 1",
        "-n EDEV --dec=1 -h 1 1",
        "-n DEV --iface=b0 1 2",
        "-n DEV --iface=none 1 1",
        "-n ,DEV --iface= 1 1",
        "-n SOFT 1 3",
        "-n SOFT -P ALL --dec=0 1 1",
        "-n SOFT -P 0 1 1",
        "-n DEV 0",
    ];
    let ours = concat!(env!("CARGO_BIN_EXE_wirebench"), " sar");
    let both = forms.map(|words| (words, start("sar", words), start(ours, words)));
    for (words, theirs, ours) in both {
        let text = |running: Running| {
            String::from_utf8(running.finish(Duration::from_secs(20)).stdout).unwrap()
        };
        let (theirs, ours) = (text(theirs), text(ours));
        assert!(theirs.lines().count() > 2, "{words}: {theirs}");
        assert_eq!(layout(&theirs), layout(&ours), "{words}\n{theirs}\n{ours}");
    }
    for (words, part) in [
        ("-u 1 1", "-u (CPU times) is not supported"),
        ("-n TCP 1", "-n TCP is not supported"),
        ("-hn DEV 0", "-hn: -n and -P cannot be joined"),
    ] {
        let output = start(ours, words).finish(Duration::from_secs(10));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words}: {said}");
        assert!(said.contains(part) && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn intervals_add_up_and_a_signal_gives_the_averages() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let (a0, b0) = (lab.a0(), lab.b0());
    let both = format!("{a0},{b0}");
    let stat = Running::start(&["stat", "-i", &both, "--json", "0.2"]);
    std::thread::sleep(Duration::from_millis(600));
    let report = lab.trial(&["--rate", "10kpps", "--count", "5000", "--size", "64"]);
    std::thread::sleep(Duration::from_millis(500));
    stat.signal(Signal::INT);
    let output = stat.finish(Duration::from_secs(10));
    assert_eq!(output.status.code(), Some(130));
    let lines = lines(&output.stdout);
    let (average, intervals) = lines.split_last().unwrap();
    assert_eq!(average["kind"], "average");
    assert_eq!(average["number"].as_u64(), Some(intervals.len() as u64));
    for (name, counter) in [
        (&a0, "tx_packets"),
        (&a0, "tx_bytes"),
        (&b0, "rx_packets"),
        (&b0, "rx_bytes"),
    ] {
        let sum: u64 = intervals
            .iter()
            .map(|line| counted(line, name, counter))
            .sum();
        assert_eq!(sum, counted(average, name, counter), "{name} {counter}");
    }
    // Frames of neighbour discovery are counted, too.
    let sent = report["totals"]["offered_frames"].as_u64().unwrap();
    assert!(counted(average, &a0, "tx_packets") >= sent);
    assert_eq!(
        counted(average, &a0, "tx_packets"),
        counted(average, &b0, "rx_packets")
    );
    let range = &interface(average, &b0)["rx_pps_range"];
    assert!(range[1].as_f64().unwrap() > 5_000.0, "{range}");
}

#[test]
fn it_ends_when_nothing_is_counted_any_more() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let a0 = lab.a0();
    let stat = Running::start(&["stat", "-i", &a0, "--until-idle", "--json", "1.5"]);
    let sent = run(&["tx", "-i", &a0, "--rate", "1kpps", "--count", "1000", "-q"]);
    assert!(sent.status.success());
    let output = stat.finish(Duration::from_secs(30));
    assert_eq!(output.status.code(), Some(0));
    let lines = lines(&output.stdout);
    let (average, intervals) = lines.split_last().unwrap();
    assert!(counted(average, &a0, "tx_packets") >= 1000, "{average}");
    let busy =
        |line: &Value| counted(line, &a0, "tx_packets") + counted(line, &a0, "rx_packets") > 0;
    let (last, before) = intervals.split_last().unwrap();
    assert!(
        !busy(last) && before.last().is_some_and(busy),
        "{intervals:?}"
    );
    assert!(
        interface(last, &a0)["smooth"]["tx_pps"][2]
            .as_f64()
            .unwrap()
            > 0.0
    );
}

#[test]
fn interfaces_that_are_renamed_deleted_and_made_again_have_no_wild_rates() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let node = lab.node("a");
    let ip = |words: &str| {
        let done = system(
            "ip",
            &[&["-n", &node], &*words.split(' ').collect::<Vec<_>>()].concat(),
        );
        assert!(
            done.status.success(),
            "{words}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
    };
    ip("link add s0 type veth peer name s1");
    let s0 = format!("{node}/s0");
    let stat = Running::start(&["stat", "-i", &s0, "--json", "0.2"]);
    let pause = || std::thread::sleep(Duration::from_millis(700));
    pause();
    ip("link set s0 name s9");
    pause();
    ip("link delete s9");
    pause();
    ip("link add s0 type veth peer name s1");
    pause();
    stat.signal(Signal::INT);
    let output = stat.finish(Duration::from_secs(10));
    assert_eq!(output.status.code(), Some(130));
    let lines = lines(&output.stdout);
    let all = || {
        lines
            .iter()
            .filter(|l| l["kind"] == "interval")
            .flat_map(|l| l["interfaces"].as_array().unwrap())
    };
    let s9 = format!("{node}/s9");
    assert!(all().any(|i| i["renamed_from"] == s0.as_str() && i["name"] == s9.as_str()));
    assert!(all().any(|i| i["state"] == "gone" && i["name"] == s9.as_str()));
    assert!(all().any(|i| i["state"] == "new" && i["name"] == s0.as_str() && i["rates"].is_null()));
    assert!(all().all(|i| i["rates"]["rx_pps"].as_f64().is_none_or(|pps| pps < 1000.0)));
    // One index each.
    assert_eq!(
        lines.last().unwrap()["interfaces"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn what_a_device_loses_is_found_on_the_path() {
    if !privileged() {
        return;
    }
    let lab = Lab::alone("router", &["--limit", "10mbit"]);
    let points = [
        lab.a0(),
        lab.port("dut", "da"),
        lab.port("dut", "db"),
        lab.b0(),
    ];
    let stat = Running::start(&["stat", "--path", &points.join(","), "--json", "0.5"]);
    std::thread::sleep(Duration::from_millis(800));
    let report = lab.trial(&["--rate", "10kpps", "--duration", "2s", "--size", "512"]);
    std::thread::sleep(Duration::from_millis(700));
    stat.signal(Signal::INT);
    let lines = lines(&stat.finish(Duration::from_secs(10)).stdout);
    let path = &lines.last().unwrap()["path"];
    let hops = path["hops"].as_array().unwrap();
    assert_eq!(hops.len(), 3, "{path}");
    let lost: Vec<i64> = hops
        .iter()
        .map(|hop| hop["lost_packets"].as_i64().unwrap())
        .collect();
    let of_the_trial = report["totals"]["lost_frames"].as_i64().unwrap();
    assert!(of_the_trial > 1000, "{}", report["totals"]);
    // The wires lose nothing, but the counters of their ends are read one after the other. Neighbour discovery uses a
    // few frames that the device does not forward, or sends.
    assert!(lost[0].abs() <= 2 && lost[2].abs() <= 2, "{path}");
    assert!((lost[1] - of_the_trial).abs() < 20, "{path} {of_the_trial}");
    let said = path["lost_where"].as_str().unwrap();
    assert!(said.contains("in the device, between"), "{said}");
}

#[test]
fn probes_that_hang_die_or_print_rubbish_are_missing_and_disturb_nobody() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let (a0, node) = (lab.a0(), lab.node("a"));
    // Not a second that any other test asks for.
    let sleep = format!("sleep 60.{}", std::process::id());
    let stat = run(&[
        "stat",
        "-i",
        &a0,
        "--json",
        "0.4",
        "4",
        "--probe",
        &format!("kind = \"netdev\", node = \"{node}\""),
        "--probe",
        &format!(
            "kind = \"command\", name = \"hangs\", command = \"{sleep}\", counters = {{ n = 'x (\\d+)' }}, timeout = \"1s\""
        ),
        "--probe",
        "kind = \"command\", name = \"dies\", command = \"exit 3\", counters = { n = 'x (\\d+)' }",
        "--probe",
        "kind = \"command\", name = \"rubbish\", command = \"head -c 1000 /dev/urandom\", gauges = { n = 'x (\\d+)' }",
    ]);
    let error = String::from_utf8_lossy(&stat.stderr);
    assert_eq!(stat.status.code(), Some(0), "{error}");
    let lines = lines(&stat.stdout);
    assert_eq!(lines.len(), 5);
    for line in &lines[..4] {
        let seconds = line["seconds"].as_f64().unwrap();
        assert!((0.2..1.0).contains(&seconds), "held up: {seconds}");
        for probe in line["probes"].as_array().unwrap() {
            let missing = !probe["missing"].is_null();
            assert_eq!(missing, probe["name"] != "netdev", "{probe}");
        }
    }
    let left = system("pgrep", &["-fx", &sleep]);
    assert!(left.stdout.is_empty(), "{sleep} was left behind");
    let total = &lines[4]["probes"][0];
    assert_eq!(
        (&total["name"], &total["failures"]),
        (&Value::from("netdev"), &Value::from(0))
    );
    assert!(total["counted"]["netdev.a0.tx_packets"].is_u64(), "{total}");
}

fn lines_of_some(names: &[String]) -> Vec<Value> {
    let output = run(&["stat", "-i", &names.join(","), "--json", "0.2", "2"]);
    lines(&output.stdout)
}

#[test]
fn a_thousand_interfaces_and_nobody_who_reads() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let node = lab.node("a");
    let mut batch = Command::new("ip")
        .args(["-n", &node, "-batch", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = batch.stdin.take().unwrap();
    for n in 0..500 {
        writeln!(pipe, "link add v{n} type veth peer name w{n}").unwrap();
    }
    drop(pipe);
    assert!(batch.wait().unwrap().success());
    let output = run(&["stat", "--node", &node, "--json", "0.5", "2"]);
    let lines = lines(&output.stdout);
    assert_eq!(lines.len(), 3);
    for line in &lines {
        assert!(line["interfaces"].as_array().unwrap().len() >= 1000);
    }
    let text = run(&["stat", "--node", &node, "0.5", "1"]);
    let text = String::from_utf8_lossy(&text.stdout);
    assert!(
        text.lines().count() < 30 && text.contains("not shown"),
        "{text}"
    );

    // Interfaces that are named explicitly are shown even together with all of a namespace.
    let named = format!("{node}/v7");
    let text = run(&["stat", "--node", &node, "-i", &named, "0.5", "1"]);
    let text = String::from_utf8_lossy(&text.stdout);
    assert!(
        text.lines().count() < 30 && text.contains(&named) && text.contains("not shown"),
        "{text}"
    );

    // The requested interfaces, in that order, out of one list.
    let names: Vec<String> = (0..6).rev().map(|n| format!("{node}/v{n}")).collect();
    let some = lines_of_some(&names);
    for line in &some {
        let shown = line["interfaces"].as_array().unwrap();
        let shown: Vec<&str> = shown.iter().map(|i| i["name"].as_str().unwrap()).collect();
        assert_eq!(shown, names);
    }

    // The reader goes away, and the command ends.
    let mut child = wirebench()
        .args(["stat", "--node", &node, "0.1"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let status = Running(child).finish(Duration::from_secs(10)).status;
    assert_eq!(status.code(), Some(0));
}
