//! Suites of tests as commands: the plans they make, what they refuse, and how two results compare.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};
use wb_model::{
    Plan,
    bench::{Method, Quantity, Share, SuitePlan, SuiteTest},
    text::plan_from_toml,
    units::Span,
};

fn run(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_wirebench"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input.as_bytes()).expect("it reads");
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The plan that a command prints.
fn printed(command: &str, options: &[&str]) -> String {
    let words = [
        &["bench"],
        command.split(' ').collect::<Vec<_>>().as_slice(),
        options,
    ]
    .concat();
    let output = run(&[&words[..], &["--print-plan"]].concat(), "");
    assert!(output.status.success(), "{words:?}: {}", said(&output));
    String::from_utf8(output.stdout).expect("text")
}

const PORTS: [&str; 4] = ["--tx", "n/a", "--rx", "n/b"];

fn plan(command: &str) -> Plan {
    plan_from_toml("it", &printed(command, &PORTS)).expect("a plan")
}

fn suite(command: &str) -> SuitePlan {
    plan(command).suite().expect("a suite").clone()
}

fn sizes(suite: &SuitePlan) -> Vec<&str> {
    suite.sizes.iter().map(|size| size.name.as_str()).collect()
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../examples/bench")
        .join(name)
}

#[test]
fn the_short_help_of_suites() {
    let help = |words: &[&str]| String::from_utf8(run(words, "").stdout).expect("text");
    insta::assert_snapshot!("bench", help(&["bench", "-h"]));
    insta::assert_snapshot!("bench_rfc2544", help(&["bench", "rfc2544", "-h"]));
    insta::assert_snapshot!("bench_ndr", help(&["bench", "ndr", "-h"]));
    insta::assert_snapshot!("bench_y1564", help(&["bench", "y1564", "-h"]));
    insta::assert_snapshot!("bench_compare", help(&["bench", "compare", "-h"]));
}

#[test]
fn a_printed_plan_is_the_same_plan() {
    for command in [
        "rfc2544",
        "rfc2544 --fast --bidir --mlr --precision 1% --modifiers broadcast",
        "rfc2544 --conformance --trigger true --reset-kind power --patience 1m",
        "rfc2544 -6 --sizes 64,imix,7a4d1g --rfc4814 --seed 7 --device-name x --device-version 1",
        "rfc2544 --tests throughput,ndr --resolution 1% --search-duration 3s --repeats 2 --loss 0.1%",
        "ndr",
        "ndr --modifiers bursts,filters --burst-lengths 16,1024 --filter-conditions 25",
        "loss --modifiers management,routing --snmp-address 198.18.1.1 --snmp-community secret",
        "ndr --goals ndr,tst009 --precision 2% --max 1mpps --min 1kpps",
        "ndr --strict --no-ceiling --workers 2 --rx-workers 2",
        "pdr --loss 0.1% --fast",
        "loss --step 5% --max 40kpps",
        "impact -6 --ext hop-by-hop --loads 1%,5%",
        "rfc2544 --ipv6-share 10%,50%,90% --src6 2001:2::5 --ext routing",
        "mfr --step 5% --max 40kpps --search-duration 1s",
        "latency --latency-load 50%,90% --n 4 --duration 8s",
        "b2b --n 50",
        "recovery --duration 3s --repetitions 2",
        "reset --trigger 'reboot'",
        "y1564 --cir 20mbps --eir 10mbps --delay 5ms --variation 1ms --loss 0.1% --availability 99% --step-time 2s",
        "ndr --vlan 5 --flows 100 --src 198.18.1.2 --gateway 198.18.1.1 --ramp 1s --drain 1s --settle 1s",
    ] {
        let made = printed(command, &PORTS);
        let again = run(&["run", "-", "--print-plan"], &made);
        assert!(again.status.success(), "{command}: {}", said(&again));
        assert_eq!(String::from_utf8_lossy(&again.stdout), made, "{command}");
    }
}

#[test]
fn the_examples_are_plans() {
    for (name, command) in [
        ("rfc2544.toml", "rfc2544"),
        ("acceptance.toml", "rfc2544"),
        ("services.toml", "y1564"),
        ("mix.toml", "rfc2544"),
        ("cps-ndr.toml", "ndr"),
    ] {
        let path = example(name);
        let path = path.to_str().expect("a path");
        let by_run = run(&["run", path, "--print-plan"], "");
        assert!(by_run.status.success(), "{name}: {}", said(&by_run));
        assert_eq!(
            String::from_utf8_lossy(&by_run.stdout),
            printed(&format!("{command} {path}"), &[]),
            "{name}: taken as it is"
        );
    }
}

#[test]
fn each_command_has_its_tests_and_sizes() {
    let of_rfc2544 = ["64", "128", "256", "512", "1024", "1280", "1518"];
    assert_eq!(sizes(&suite("rfc2544")), of_rfc2544);
    for (command, test, expected) in [
        ("ndr", SuiteTest::Ndr, &["64", "imix"][..]),
        ("pdr", SuiteTest::Ndr, &["64", "imix"]),
        ("loss", SuiteTest::Loss, &["64", "512", "1518"]),
        ("impact", SuiteTest::Impact, &["64", "512", "1518"]),
        ("mfr", SuiteTest::Mfr, &["64", "512", "1518"]),
        ("latency", SuiteTest::Latency, &["64", "512", "1518"]),
        ("b2b", SuiteTest::B2b, &["64", "512", "1518"]),
        ("recovery", SuiteTest::Recovery, &["64", "512", "1518"]),
        ("reset --trigger true", SuiteTest::Reset, &["64"]),
        ("y1564 --cir 1mbps", SuiteTest::Y1564, &["512"]),
    ] {
        let suite = suite(command);
        assert_eq!(suite.tests, [test], "{command}");
        assert_eq!(sizes(&suite), expected, "{command}");
    }
    // A reset test requires a trigger.
    assert!(!suite("rfc2544").tests.contains(&SuiteTest::Reset));
    assert!(
        suite("rfc2544 --trigger true")
            .tests
            .contains(&SuiteTest::Reset)
    );
    let goals = |command: &str| -> Vec<String> {
        suite(command)
            .goals()
            .into_iter()
            .map(|goal| goal.name)
            .collect()
    };
    assert_eq!(goals("ndr"), ["ndr", "pdr"]);
    assert_eq!(goals("pdr"), ["pdr"]);
    assert_eq!(goals("ndr --strict"), ["rfc2544"]);
    let pdr = suite("pdr --loss 0.1% --precision 2%").goals();
    assert_eq!((pdr[0].loss, pdr[0].width), (Share(0.001), Share(0.02)));
    let both = suite("ndr --loss 0.1%").goals();
    assert_eq!((both[0].loss, both[1].loss), (Share(0.0), Share(0.001)));
    assert_eq!(suite("rfc2544 --mlr").search.method, Method::Mlr);
}

#[test]
fn presets_are_times_and_limits() {
    let fast = suite("rfc2544 --fast");
    assert_eq!(
        (fast.preset.as_str(), fast.times.trial),
        ("fast", Span::from_secs(1))
    );
    assert!(fast.search_time() < Span::from_secs(1));
    assert_eq!(fast.search.precision, Some(Share(0.005)));
    assert_eq!(
        (
            fast.latency.repetitions,
            fast.b2b.searches,
            fast.recovery.repetitions
        ),
        (3, 2, 2)
    );

    let usual = suite("rfc2544");
    assert!(usual.preset.is_empty());
    // A plan has no shorter search trials by default; the commands have.
    let mut times = SuitePlan::default().times;
    assert_eq!(times.search.replace(Span::from_secs(2)), None);
    assert_eq!(usual.times, times);

    // RFC 2544 sections 23, 24, 26.1, 26.2, 26.4, 26.5 and C.2.6.1.
    let plan = plan("rfc2544 --conformance");
    let full = plan.suite().expect("a suite");
    assert_eq!(full.preset, "conformance");
    assert_eq!(
        (full.times.trial, full.search_time()),
        (Span::from_secs(60), Span::from_secs(60))
    );
    assert_eq!(
        (full.times.ramp, full.times.drain),
        (Span::default(), Span::from_secs(2))
    );
    assert_eq!(full.times.settle, Span::from_secs(5));
    assert_eq!(
        (full.search.precision, full.search.resolution),
        (None, Some(Share(0.001)))
    );
    assert_eq!(
        (full.latency.duration, full.latency.after),
        (Span::from_secs(120), Span::from_secs(60))
    );
    assert_eq!((full.latency.repetitions, full.b2b.searches), (20, 50));
    assert_eq!(
        (full.recovery.overload, full.recovery.repetitions),
        (Span::from_secs(60), 5)
    );
    assert_eq!(plan.traffic[0].streams[0].ttl, 10);

    // An explicit option takes precedence over a preset.
    let told =
        suite("rfc2544 --conformance --duration 5s --search-duration 1s --precision 2% --n 3");
    assert_eq!(
        (told.times.trial, told.search_time()),
        (Span::from_secs(5), Span::from_secs(1))
    );
    assert_eq!(
        (told.search.precision, told.search.resolution),
        (Some(Share(0.02)), None)
    );
    assert_eq!(
        (
            told.latency.repetitions,
            told.b2b.searches,
            told.recovery.repetitions
        ),
        (3, 3, 3)
    );
    // A trial that finds the way is no longer than one that decides.
    assert_eq!(
        suite("rfc2544 --duration 1s").search_time(),
        Span::from_secs(1)
    );
}

#[test]
fn a_duration_is_that_of_the_test() {
    let latency = suite("latency --duration 8s");
    assert_eq!(
        (latency.latency.duration, latency.latency.after),
        (Span::from_secs(8), Span::from_secs(4))
    );
    assert_eq!(latency.times.trial, Span::from_secs(10));
    let recovery = suite("recovery --duration 3s").recovery;
    assert_eq!(
        (recovery.overload, recovery.half),
        (Span::from_secs(3), Span::from_secs(3))
    );
    let service = &suite("y1564 --cir 1mbps --duration 30s --step-time 2s").services[0];
    assert_eq!(
        (service.step, service.performance),
        (Span::from_secs(2), Span::from_secs(30))
    );
}

#[test]
fn frames_of_ipv6_and_of_rfc_4814() {
    assert_eq!(sizes(&suite("loss -6"))[0], "84");
    assert_eq!(
        sizes(&suite("loss --dst 2001:2:0:8001::2 --sizes 64,128")),
        ["84", "128"]
    );
    let words: Vec<&str> = "bench loss -6 --sizes 64 --print-plan".split(' ').collect();
    let told = said(&run(&[&words[..], &PORTS[..]].concat(), ""));
    assert!(told.contains("64 is raised to 84"), "{told}");

    let plan = plan("ndr --rfc4814");
    let stream = &plan.traffic[0].streams[0];
    let vary: Vec<String> = stream.vary.iter().map(ToString::to_string).collect();
    assert_eq!(
        vary[1..],
        ["sport=random:1024-65535", "dport=random:1-49151"]
    );
    assert!(vary[0].starts_with("src-mac=random:"), "{vary:?}");
    // First octet and 0xfc: no group address, no local one.
    assert_eq!(stream.vary[0].mask, Some(0xfcff_ffff_ffff));
    assert_eq!(stream.src_mac.expect("one").0[0] & 3, 0);
}

#[test]
fn the_jobs_of_a_plan_are_the_base() {
    let base = "[[port]]\nname = \"c\"\nlocator = \"n/a\"\n[[port]]\nname = \"s\"\nlocator = \"n/b\"\n\
        [[load]]\nname = \"web\"\nport = \"c\"\nend = \"client\"\nclients = [\"198.18.1.2\"]\n\
        servers = [\"198.19.1.2\"]\nrate = { cps = 10 }\n\
        [[load]]\nport = \"s\"\nend = \"server\"\nservers = [\"198.19.1.2\"]\n";
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("base.toml");
    std::fs::write(&file, base).expect("written");
    let file = file.to_str().expect("a path");
    let made = printed(
        &format!("ndr {file} --of cps --job web --max 20k --criteria cps>=1k"),
        &[],
    );
    let plan = plan_from_toml("it", &made).expect("a plan");
    let suite = plan.suite().expect("a suite");
    assert_eq!(
        (suite.of, suite.job.as_deref()),
        (Quantity::Cps, Some("web"))
    );
    assert!(suite.sizes.is_empty());
    assert_eq!((plan.kind.as_str(), plan.loads.len()), ("bench ndr", 2));

    // Options of ports and frames are those of the plan.
    for option in [
        "--tx=a/b",
        "--flows=5",
        "--workers=2",
        "--address=198.18.1.1",
        "--bidir",
        "--rfc4814",
    ] {
        let output = run(&["bench", "ndr", file, option, "--print-plan"], "");
        assert_eq!(output.status.code(), Some(2), "{option}: {}", said(&output));
    }
    let lb = example("lb.toml");
    let output = run(&["bench", "ndr", lb.to_str().expect("a path")], "");
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("bench lb"), "{}", said(&output));
}

#[test]
fn what_cannot_be_is_refused() {
    for (words, part) in [
        (
            "rfc2544 --criteria ndr>=1",
            "not measured by a suite with these tests",
        ),
        ("ndr --criteria cps>=1", "use one of ndr, pdr"),
        ("pdr --criteria ndr>=1", "use one of pdr"),
        ("loss --criteria 999.loss<=0", "\"64\", \"512\", \"1518\""),
        ("latency --criteria throughput>=1", "use one of mean"),
        ("ndr --of cps", "[[load]]"),
        ("loss --step 20%", "10%"),
        ("rfc2544 --tests nonsense", "throughput"),
        ("ndr --goals nonsense", "ndr, pdr, rfc2544 or tst009"),
        ("rfc2544 --fast --conformance", "cannot be used with"),
        (
            "rfc2544 --precision 1% --resolution 1%",
            "cannot be used with",
        ),
        ("reset", "--trigger"),
        ("reset --trigger=", "reset.trigger is empty"),
        (
            "rfc2544 --burst-lengths 16",
            "--burst-lengths needs --modifiers bursts",
        ),
        (
            "rfc2544 --modifiers bursts --filter-conditions 25",
            "needs --modifiers filters",
        ),
        ("loss --snmp-community x", "needs --modifiers management"),
        ("rfc2544 --tag none", "tag"),
    ] {
        let words: Vec<&str> = std::iter::once("bench").chain(words.split(' ')).collect();
        let output = run(&[&words[..], &PORTS[..], &["--print-plan"]].concat(), "");
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(said(&output).contains(part), "{words:?}: {}", said(&output));
    }
}

/// The loopback has an address outside the test networks, and no device answers.
#[test]
fn a_network_in_use_is_not_overloaded_unasked() {
    let words = ["bench", "loss", "--tx", "lo", "--rx", "n/b"];
    let output = run(&words, "y\n");
    let said = said(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("lo: it has the address 127.0.0.1/8"),
        "{said}"
    );
    assert!(said.contains("--isolated"), "{said}");
    // A plan by any way.
    let made = printed("loss", &["--tx", "lo", "--rx", "n/b"]);
    let output = run(&["run", "-"], &made);
    assert_eq!(output.status.code(), Some(2), "{}", self::said(&output));
}

fn report(limit: f64, size: &str) -> Value {
    let mut report = serde_json::to_value(wb_model::Report {
        schema: wb_model::REPORT_SCHEMA.to_owned(),
        kind: "bench rfc2544".to_owned(),
        results: vec![wb_model::bench::SuiteResult {
            size: size.to_owned(),
            limit: Some(limit),
            beyond: Some(limit * 1.01),
            limited_by: Some(wb_model::bench::LbLimit::Device),
            ..wb_model::bench::SuiteResult::new(SuiteTest::Throughput, Quantity::Frames)
        }],
        ..wb_model::Report::default()
    })
    .expect("JSON");
    report["plan"]["seed"] = json!(1);
    report
}

#[test]
fn two_results_are_compared() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, report: &Value| {
        let path = folder.path().join(name);
        std::fs::write(&path, report.to_string()).expect("written");
        path.to_str().expect("a path").to_owned()
    };
    let old = file("old.json", &report(100_000.0, "64"));
    let worse = file("worse.json", &report(90_000.0, "64"));
    let other = file("other.json", &report(90_000.0, "1518"));
    let mut changed = report(100_000.0, "64");
    changed["plan"]["seed"] = json!(2);
    let changed = file("changed.json", &changed);
    let none = file("none.json", &json!({"schema": "wirebench.report/9"}));
    let compare =
        |a: &str, b: &str, more: &[&str]| run(&[&["bench", "compare", a, b], more].concat(), "");

    let same = compare(&old, &old, &[]);
    assert_eq!(same.status.code(), Some(0), "{}", said(&same));
    let regression = compare(&old, &worse, &[]);
    assert_eq!(regression.status.code(), Some(1));
    insta::assert_snapshot!("a_regression", String::from_utf8_lossy(&regression.stdout));
    assert_eq!(
        compare(&worse, &old, &[]).status.code(),
        Some(0),
        "better is no fault"
    );

    let json = compare(&old, &worse, &["--json"]);
    let json: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(json["schema"], "wirebench.compare/1");
    assert_eq!(
        (&json["worse"], &json["rows"][0]["verdict"]),
        (&json!(true), &json!("worse"))
    );

    let differ = compare(&old, &changed, &[]);
    assert_eq!(differ.status.code(), Some(0));
    let text = String::from_utf8_lossy(&differ.stdout).into_owned();
    assert!(
        text.contains("The plans differ") && text.contains("seed: 1 / 2"),
        "{text}"
    );

    for (a, b, part) in [
        (&old, &other, "no test and size in common"),
        (&old, &none, "schema"),
        (
            &old,
            &folder.path().join("missing").display().to_string(),
            "cannot read",
        ),
    ] {
        let output = compare(a, b, &[]);
        assert_eq!(output.status.code(), Some(2));
        assert!(said(&output).contains(part), "{}", said(&output));
    }
}
