//! Every block of README.md and docs/*.md that can be typed is typed here, as a whole, by `bash -e`. The blocks of a
//! page run one after another in one folder and one set of namespaces (`scripts/page.sh`), so a block can use the labs
//! and files of earlier ones, as for a reader. Times, rates and counts are smaller: see `shortened`.
//!
//! Lists name a block by its page and the beginning of its text without output. Each entry has to match a block.

use std::{
    fmt::Write as _,
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use crate::{
    document_blocks::{blocks, documents, place_files, script},
    kit::{Running, privileged},
};
use wb_testing::installed;

/// Blocks that do not run: page, beginning, reason.
const NOT_RUN: &[(&str, &str, &str)] = &[
    (
        "fleet.md",
        "wirebench fleet init",
        "needs the host of a broker; the scenarios of fleets do this in a lab",
    ),
    ("fleet.md", "wirebench agent", "runs until a signal"),
    (
        "fleet.md",
        "wirebench serve --fleet local",
        "the scenario fleet::local runs these commands",
    ),
    (
        "fleet.md",
        "wirebench lab up fleet",
        "the scenario fleet::lab runs these commands",
    ),
    ("fleet.md", "wirebench fleet ls", "needs agents"),
    (
        "README.md",
        "make build",
        "builds a release and installs it",
    ),
    ("README.md", "make demo", "`make test` runs this test"),
    (
        "install.md",
        "make build",
        "builds a release and installs it",
    ),
    (
        "install.md",
        "make install",
        "builds a release and installs it",
    ),
    ("install.md", "make deb", "builds a release and installs it"),
    (
        "failover.md",
        "wirebench trial --tx wb-router-a/a0 --rx wb-router-b/b0 --rate 10kpps",
        "the output of the commands before it",
    ),
    (
        "forwarding.md",
        "wirebench bench rfc2544 --tx wb-router-a/a0 --rx wb-router-b/b0 --fast --tests throughput,loss",
        "the output of the command before it",
    ),
    (
        "load.md",
        "wirebench load client.conf",
        "needs a server that runs dperf",
    ),
    (
        "load.md",
        "wirebench load --client wb-pair-a/a0 --cps 500",
        "needs a server that is killed at the right moment",
    ),
    (
        "performance.md",
        "make bench",
        "takes minutes; `make bench` installs the other tools",
    ),
    (
        "performance.md",
        "bench/tx",
        "takes minutes, needs the other tools",
    ),
    (
        "performance.md",
        "bench/capture",
        "takes minutes, needs the other tools",
    ),
    (
        "performance.md",
        "bench/live",
        "needs a release and another binary to compare with",
    ),
    (
        "stat.md",
        "wirebench stat -i eth0 --probe ipvs",
        "needs devices with IPVS, DPVS and haproxy",
    ),
];

/// Exit codes other than 0: page, beginning of the block, permitted codes, reason.
const EXIT_CODES: &[(&str, &str, &[i32], &str)] = &[
    (
        "bench-lb.md",
        "wirebench lab up balancer",
        &[0, 1, 3],
        "the tester is the limit in a lab",
    ),
    (
        "bench-lb.md",
        "wirebench bench lb",
        &[0, 1, 3],
        "the tester is the limit in a lab",
    ),
    (
        "bench.md",
        "wirebench bench compare",
        &[0, 1],
        "short runs differ",
    ),
    (
        "capture.md",
        "wirebench capture -i eth2 udp prot 7",
        &[2],
        "shows how a wrong filter is refused",
    ),
    (
        "forwarding.md",
        "wirebench bench rfc2544 --tx wb-router-a/a0 --rx wb-router-b/b0 --fast --tests throughput --sizes 512,1518",
        &[0, 1],
        "a short search ends below the limit",
    ),
    (
        "forwarding.md",
        "wirebench run forwarding.toml --json >after.json",
        &[0, 1],
        "short runs differ",
    ),
    (
        "getting-started.md",
        "wirebench lab up impair",
        &[1, 3],
        "the page says that this trial fails; on a busy host it is invalid",
    ),
    (
        "getting-started.md",
        "wirebench bench rfc2544 --tx eth2 --rx eth3 --conformance",
        &[0, 1],
        "short runs differ",
    ),
    (
        "http.md",
        "wirebench http --rate 1k -d 10s --criteria",
        &[0, 1, 3],
        "a busy host does not meet the limit of a time",
    ),
    (
        "load.md",
        "wirebench load --client wb-pair-a/a0 --server wb-pair-b/b0 --cps 2k --duration 3s --criteria",
        &[0, 1, 3],
        "a busy host does not meet the limit of a time",
    ),
    (
        "load.md",
        "wirebench load --server eth3",
        &[3],
        "no SNMP agent answers the client",
    ),
    (
        "netperf.md",
        "wirebench sweep -H 198.19.1.2 --message 2Ki,4Ki,8Ki,16Ki --local-buffer",
        &[0, 4],
        "kernels without BBR",
    ),
    (
        "tester-or-device.md",
        "wirebench lab up impair",
        &[1, 3],
        "shows a criterion that does not hold; on a busy host it is invalid",
    ),
    (
        "tester-or-device.md",
        "wirebench lab up pair --hosts",
        &[0, 3],
        "the server stands still, and a busy host then offers less",
    ),
    (
        "tester-or-device.md",
        "wirebench lab up pair\nwirebench load",
        &[0, 1, 3],
        "depends on other programs, as the page says",
    ),
];

/// Blocks that the page puts into another terminal than the next block, and the condition after which that is typed;
/// `$log` has the output of the first block.
const WITH_NEXT: &[(&str, &str, &str)] = &[
    (
        "capture.md",
        "wirebench lab up pair",
        "grep -q 'listening on' $log",
    ),
    (
        "load.md",
        "wirebench load --client wb-pair-a/a0 --server wb-pair-b/b0 --cc 200",
        "[ -S r.sock ]",
    ),
    ("metrics.md", "wirebench trial", "grep -q 'metrics at' $log"),
    (
        "pktgen.md",
        "wirebench pktgen run --netns wb-pair-b examples/pktgen/receive.sh",
        "grep -q 'receiving on' $log",
    ),
    (
        "pktgen.md",
        "wirebench lab up pair --as pair2q",
        "grep -q 'receiving on' $log",
    ),
];

/// Commands that end by Ctrl-C: page, beginning of the line.
const UNTIL_CTRL_C: &[(&str, &str)] = &[
    ("capture.md", "wirebench capture -i eth2 -w"),
    ("capture.md", "wirebench capture -i wb-pair-b/b0"),
    ("capture.md", "wirebench capture -i eth2 udp port 9"),
    ("load.md", "wirebench load --server eth3"),
    (
        "pktgen.md",
        "wirebench pktgen run --netns wb-pair-a examples/pktgen/send.sh a0 02:7c:44:5a:b1:01 0",
    ),
    ("stat.md", "wirebench stat -i eth2,eth3 1"),
    ("stat.md", "wirebench stat -i eth3 --driver"),
    ("stat.md", "wirebench stat --path"),
];

/// Preparations that pages take for granted: page, script.
const BEFORE: &[(&str, &str)] = &[
    ("bench.md", ROUTER),
    ("bench.md", BENCHMARKS),
    ("getting-started.md", "web_server ip netns exec host-b"),
    ("http.md", "web_server"),
    ("load.md", SWITCH),
    ("metrics.md", ROUTER),
    ("netperf.md", SERVER_ADDRESS),
    ("report.md", ROUTER),
    ("report.md", LATER_RESULT),
    ("serve.md", "mount -t tmpfs tmpfs /var/lib"),
    ("stat.md", "wirebench lab up pair; wirebench lab up router"),
    ("tester-or-device.md", ROUTER),
];

/// The device forwards between eth2 and eth3.
const ROUTER: &str = "ip -n device address add 198.18.1.1/24 dev eth2
ip -n device address add 198.19.1.1/24 dev eth3
ip netns exec device sysctl -qw net.ipv4.ip_forward=1
";

/// The device is a switch between eth2 and eth3.
const SWITCH: &str = "ip -n device link add bridge type bridge
ip -n device link set bridge up
ip -n device address add 198.18.1.1/24 dev bridge
ip -n device link set eth2 master bridge
ip -n device link set eth3 master bridge
";

/// Results of two benchmarks.
const BENCHMARKS: &str = "wirebench bench rfc2544 --tx eth2 --rx eth3 --fast --json -q >old.json
cp old.json new.json
";

/// Result of a trial after a change of the device.
const LATER_RESULT: &str =
    "wirebench trial --tx eth2 --rx eth3 --rate 100kpps --json -q >after.json
";

/// This host is also the second host. Links in /usr/local/bin end with the test.
const SERVER_ADDRESS: &str = "ip address add 198.19.1.2/32 dev lo
mount -t tmpfs tmpfs /usr/local/bin
";

/// Parts of lines for which smaller ones are typed: page, text, what is typed.
const SMALLER: &[(&str, &str, &str)] = &[
    (
        "bench.md",
        "ndr --tx eth2 --rx eth3 --sizes 64,1518",
        "ndr --tx eth2 --rx eth3 --sizes 1518 --max 60kpps",
    ),
    (
        "bench.md",
        "--modifiers bursts --sizes 64,1518",
        "--modifiers bursts --burst-lengths 16 --sizes 1518",
    ),
    // A busy host takes longer to set a link up.
    ("failover.md", "outage<=400ms", "outage<=2s"),
    ("forwarding.md", "--sizes 64,512,1518", "--sizes 1518"),
    ("forwarding.md", "--sizes 512,1518", "--sizes 1518"),
    ("getting-started.md", "--sizes 512,1518", "--sizes 1518"),
    ("tester-or-device.md", "sleep 4;", "sleep 0.2;"),
    ("netperf.md", "--duration 5s", "--duration 200ms"),
    ("netperf.md", "--repeat 3-20", "--repeat 3-4"),
    ("bench-lb.md", "--trial 60s --confirm 60s --budget 1h", ""),
    ("pktgen.md", "receive.sh b0 22", "receive.sh b0 3"),
    ("pktgen.md", " 10000000", " 100000"),
    (
        "pktgen.md",
        " 4 10000 12000 12500 13000 15000 20000 25000",
        " 1 10000 20000",
    ),
    ("pktgen.md", "in 1000 10000 100000;", "in 10000;"),
    ("stat.md", "sar -n DEV,EDEV 1 5", "sar -n DEV,EDEV 1 1"),
];

/// Options that a command gets if the document does not give them: the shortest useful run. Other tests use the machine
/// at the same time and may stall a sender, which is not judged here.
const QUICK: &[(&str, &[&str])] = &[
    ("wirebench trial", &["--duration 500ms", "--catch-up 10s"]),
    ("wirebench tx", &["--catch-up 10s"]),
    ("wirebench load", &["--duration 500ms", "--allow-unsent"]),
    ("wirebench sweep", &["--duration 200ms"]),
    (
        "wirebench bench rfc2544",
        &[
            "--tests throughput",
            "--sizes 1518",
            "--duration 200ms",
            "--search-duration 100ms",
            "--ramp 50ms",
            "--drain 50ms",
            "--settle 0s",
            "--precision 20%",
            "--max 50kpps",
            "--no-ceiling",
        ],
    ),
    (
        "wirebench bench ndr",
        &[
            "--no-ceiling",
            "--duration 200ms",
            "--ramp 50ms",
            "--drain 50ms",
            "--settle 0s",
            "--precision 20%",
        ],
    ),
    (
        "wirebench bench lb",
        &[
            "--trial 200ms",
            "--confirm 200ms",
            "--budget 1ms",
            "--max 2k",
            "--only oneway-pps",
        ],
    ),
];

/// Comments that name the host of the lines after them, and the command that runs a program there.
const HOSTS: &[(&str, &str)] = &[
    ("# on the tester", ""),
    ("# on the device", "ip netns exec device"),
    ("# on host A", "ip netns exec host-a"),
    ("# on host B", "ip netns exec host-b"),
];

/// Programs that blocks use.
const PROGRAMS: &[&str] = &["curl", "jq", "nft", "nginx", "python3"];

/// Longest run in a block, in ms.
const LONGEST: u64 = 500;

/// Longest run of the first of two commands that run at the same time, in ms.
const LONGEST_OF_FIRST: u64 = 4000;

/// Time limit for all blocks of a page.
const PATIENCE: Duration = Duration::from_secs(240);

/// A block of a page that can be typed.
struct Typed {
    first_line: usize,
    script: String,
}

/// Blocks of a page with something to type.
fn blocks_of(page: &str) -> Vec<Typed> {
    let path = documents()
        .into_iter()
        .find(|path| path.ends_with(page))
        .unwrap_or_else(|| panic!("no page {page}"));
    let text = fs::read_to_string(path).unwrap();
    let typed = blocks(&text).into_iter().map(|block| Typed {
        first_line: block.first_line,
        script: script(&block),
    });
    typed.filter(|block| !block.script.is_empty()).collect()
}

/// Returns the script with shorter runs, for a machine on which other tests run at the same time:
///
/// - entries of `SMALLER` replace text, and `QUICK` adds options;
/// - a time of a run is at most `longest` ms, or whole seconds for `wrk` and `-l`, unless the block itself sleeps for
///   longer than a second;
/// - rates of frames, connections and requests are a tenth, counts above 1000 a hundredth;
/// - `--fast` replaces `--conformance`;
/// - commands of `UNTIL_CTRL_C` get Ctrl-C.
fn shortened(page: &str, script: &str, longest: u64) -> String {
    let mut text = script
        .replace("\\\n", " ")
        .replace("--conformance", "--fast");
    for (_, from, to) in SMALLER.iter().filter(|entry| entry.0 == page) {
        text = text.replace(from, to);
    }
    let sleeps = text.split("sleep ").skip(1);
    let is_timed = sleeps
        .filter_map(|rest| rest.chars().next())
        .any(|seconds| seconds > '1');
    let lines = text.lines().map(|line| {
        let ends_by_ctrl_c = UNTIL_CTRL_C
            .iter()
            .any(|(of, begins)| *of == page && line.starts_with(begins));
        let line = if ends_by_ctrl_c {
            line.to_owned()
        } else {
            quickened(line)
        };
        let mut option = "";
        let whole_seconds = longest.div_ceil(1000);
        let shorter = |time: &str| match line.contains("wrk -") {
            true => shorter_time(time, whole_seconds * 1000),
            false => shorter_time(time, longest),
        };
        let words = line.split(' ').map(|word| {
            let smaller = match std::mem::replace(&mut option, word) {
                "--rate" | "--cps" | "--rps" => tenth(word),
                "--count" => hundredth(word),
                _ if is_timed => None,
                "--duration" | "-d" => shorter(word),
                "-l" => word.parse().ok().map(|_: u32| whole_seconds.to_string()),
                _ => word
                    .strip_prefix("-d")
                    .and_then(&shorter)
                    .map(|time| format!("-d{time}")),
            };
            smaller.unwrap_or_else(|| word.to_owned())
        });
        let words: Vec<String> = words.collect();
        let before = if ends_by_ctrl_c { "ctrl_c " } else { "" };
        format!("{before}{}\n", words.join(" "))
    });
    lines.collect()
}

/// Returns the line with the options of `QUICK` that it does not give.
fn quickened(line: &str) -> String {
    let mut line = line.to_owned();
    let has_run = !line.starts_with('#') && !line.contains("--ctl") && !line.contains("--check");
    for (command, options) in QUICK.iter().filter(|_| has_run) {
        let Some(at) = line.find(&format!("{command} ")) else {
            continue;
        };
        for option in *options {
            let name = option.split(' ').next().expect("one");
            if !line.contains(&format!("{name} ")) {
                line.insert_str(at + command.len(), &format!(" {option}"));
            }
        }
    }
    line
}

/// Returns `longest`, in ms, if `time` is more: `10s`, `15m`, `1h`.
fn shorter_time(time: &str, longest: u64) -> Option<String> {
    let (number, unit) = time.split_at_checked(time.len().checked_sub(1)?)?;
    let ms = number.parse::<u64>().ok()?
        * match unit {
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
    (ms > longest).then(|| match longest % 1000 {
        0 => format!("{}s", longest / 1000),
        _ => format!("{longest}ms"),
    })
}

/// Returns a tenth of a rate: `200kpps`, `2k`, `1mpps`, `200`.
fn tenth(rate: &str) -> Option<String> {
    let digits = rate.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = rate.split_at(digits.unwrap_or(rate.len()));
    let number: u64 = number.parse().ok()?;
    let hundreds = number * 100;
    match unit.chars().next() {
        Some('k') => Some(format!("{hundreds}{}", &unit[1..])),
        Some('m') => Some(format!("{hundreds}k{}", &unit[1..])),
        None if number >= 100 => Some((number / 10).to_string()),
        _ => None,
    }
}

/// Returns a hundredth of a large count.
fn hundredth(count: &str) -> Option<String> {
    let count: u64 = count.parse().ok()?;
    (count > 1000).then(|| (count / 100).to_string())
}

/// Splits a block at comments that name a host: the command with which the host runs a program, and the part.
fn parts(script: &str) -> Vec<(&'static str, String)> {
    let mut parts = vec![("", String::new())];
    for line in script.lines() {
        let host = HOSTS.iter().find(|(comment, _)| line.starts_with(comment));
        if let Some((_, enter)) = host {
            parts.push((*enter, String::new()));
        }
        let (_, part) = parts.last_mut().expect("one");
        part.push_str(line);
        part.push('\n');
    }
    parts.retain(|(_, part)| !part.is_empty());
    parts
}

/// Entry of a list: page and beginning of a block.
fn is_for((of, begins): (&str, &str), page: &str, block: &Typed) -> bool {
    of == page && block.script.starts_with(begins)
}

fn does_run(page: &str, block: &Typed) -> bool {
    !NOT_RUN
        .iter()
        .any(|entry| is_for((entry.0, entry.1), page, block))
}

/// Exit codes with which a block may end.
fn permitted_codes(page: &str, block: &Typed) -> &'static [i32] {
    EXIT_CODES
        .iter()
        .find(|entry| is_for((entry.0, entry.1), page, block))
        .map_or(&[0], |entry| entry.2)
}

/// Types the blocks of a page in new namespaces. Returns a text for each block that ended with a wrong exit code.
fn typed(page: &str) -> Vec<String> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let folder = folder.path();
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    for name in ["here", "bin"] {
        fs::create_dir(folder.join(name)).unwrap();
    }
    place_files(&folder.join("here"));
    let binary = Path::new(env!("CARGO_BIN_EXE_wirebench"));
    symlink(binary, folder.join("bin/wirebench")).unwrap();

    let before: String = BEFORE
        .iter()
        .filter(|entry| entry.0 == page)
        .map(|entry| shortened(page, entry.1, LONGEST))
        .collect();
    write("before.sh", &before);
    let mut plan = String::from("run before\n");
    let blocks = blocks_of(page);
    let mut run: Vec<(String, &Typed)> = Vec::new();
    let mut with_next = None;
    for block in blocks.iter().filter(|block| does_run(page, block)) {
        let name = block.first_line.to_string();
        let parts = parts(&block.script);
        let is_with_last = std::mem::replace(
            &mut with_next,
            WITH_NEXT
                .iter()
                .find(|entry| is_for((entry.0, entry.1), page, block))
                .map(|entry| entry.2),
        )
        .is_some();
        let mut script = String::new();
        for (number, (enter, part)) in parts.iter().enumerate() {
            let is_last = number + 1 == parts.len();
            let longest = if with_next.is_some() || !is_last {
                LONGEST_OF_FIRST
            } else {
                LONGEST
            };
            let part = shortened(page, part, longest);
            if enter.is_empty() {
                script.push_str(&part);
                continue;
            }
            let file = format!("{name}-{number}.sh");
            write(&file, &part);
            let sockets = format!("{enter} ss -lHn -A tcp,packet_raw,xdp | wc -l");
            let command = format!("{enter} bash -e {}/{file}", folder.display());
            script.push_str(&match (is_last, number) {
                (false, _) => format!(
                    "before=$({sockets})\n{command} &\nfirst=$!\n\
                     until_so '[ $({sockets}) -gt $before ]'\n",
                ),
                (true, 0) => format!("{command}\n"),
                (true, _) => format!("{command}\nwait $first\n"),
            });
        }
        write(&format!("{name}.sh"), &script);
        plan.push_str(&format!("run {name}"));
        plan.push_str(&match with_next {
            Some(condition) => format!(" &\nlog=$dir/{name}.log\nuntil_so \"{condition}\"\n"),
            None => "\n".to_owned(),
        });
        if is_with_last {
            plan.push_str("wait\n");
        }
        run.push((name, block));
    }
    write("plan", &plan);

    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut search = std::ffi::OsString::from(folder.join("bin"));
    search.push(":/usr/sbin:/sbin:");
    search.push(path);
    let world = Command::new("unshare")
        .args([
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "bash",
        ])
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/labs/scripts/page.sh"
        ))
        .args([folder, binary])
        .env("PATH", search)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("unshare runs");
    let output = Running(world).finish(PATIENCE);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{page}: {said}");

    let codes = fs::read_to_string(folder.join("codes")).unwrap_or_default();
    let times = fs::read_to_string(folder.join("times")).unwrap_or_default();
    println!("{page}, time of each block:\n{times}");
    let ended = |name: &str| -> Option<i32> {
        let line = codes
            .lines()
            .find_map(|l| l.strip_prefix(&format!("{name} ")));
        line?.parse().ok()
    };
    let log =
        |name: &str| fs::read_to_string(folder.join(format!("{name}.log"))).unwrap_or_default();
    let mut wrong = Vec::new();
    if ended("before") != Some(0) {
        wrong.push(format!("{page}: preparation: {}", log("before")));
    }
    for (name, block) in run {
        let code = ended(&name);
        if code.is_none_or(|code| !permitted_codes(page, block).contains(&code)) {
            let script = &block.script;
            wrong.push(format!("{page}:{name}: {code:?}\n{script}{}", log(&name)));
        }
    }
    wrong
}

/// Types the blocks of a page.
fn page(page: &str) {
    if !privileged() || !installed(PROGRAMS) {
        return;
    }
    let wrong = typed(page);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

macro_rules! pages {
    ($($test:ident: $page:literal,)*) => {
        /// Pages with blocks that run.
        const PAGES: &[&str] = &[$($page),*];
        $(
            #[test]
            fn $test() {
                page($page);
            }
        )*
    };
}

pages! {
    readme: "README.md",
    articles: "articles.md",
    alone_bench: "bench.md",
    alone_bench_lb: "bench-lb.md",
    capture: "capture.md",
    doctor: "doctor.md",
    failover: "failover.md",
    alone_forwarding: "forwarding.md",
    alone_getting_started: "getting-started.md",
    http: "http.md",
    live: "live.md",
    load: "load.md",
    metrics: "metrics.md",
    netperf: "netperf.md",
    alone_performance: "performance.md",
    pktgen: "pktgen.md",
    report: "report.md",
    screen: "screen.md",
    serve: "serve.md",
    otg: "otg.md",
    stat: "stat.md",
    alone_tester_or_device: "tester-or-device.md",
}

#[test]
fn lists_name_what_is_in_the_documents() {
    let mut wrong = String::new();
    let lists = [
        NOT_RUN.iter().map(|e| (e.0, e.1)).collect::<Vec<_>>(),
        EXIT_CODES.iter().map(|e| (e.0, e.1)).collect(),
        WITH_NEXT.iter().map(|e| (e.0, e.1)).collect(),
    ];
    for entry in lists.concat() {
        if !blocks_of(entry.0).iter().any(|b| is_for(entry, entry.0, b)) {
            writeln!(wrong, "no such block: {entry:?}").unwrap();
        }
    }
    let has = |page: &str, test: &dyn Fn(&str) -> bool| {
        let scripts = blocks_of(page).into_iter();
        scripts
            .map(|b| b.script.replace("\\\n", " "))
            .any(|s| test(&s))
    };
    for (page, begins) in UNTIL_CTRL_C {
        if !has(page, &|s| s.lines().any(|line| line.starts_with(begins))) {
            writeln!(wrong, "no such line: {page}: {begins}").unwrap();
        }
    }
    for (page, text, _) in SMALLER {
        if !has(page, &|s| s.contains(text)) {
            writeln!(wrong, "no such text: {page}: {text}").unwrap();
        }
    }
    for path in documents() {
        let page = path.file_name().unwrap().to_str().unwrap();
        let does_run = blocks_of(page).iter().any(|block| does_run(page, block));
        if does_run != PAGES.contains(&page) {
            writeln!(wrong, "PAGES and NOT_RUN do not agree: {page}").unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn runs_are_shorter_and_slower() {
    let short = |line: &str| shortened("stat.md", line, 500).trim_end().to_owned();
    assert_eq!(
        short("wirebench tx -i a0 --rate 100kpps --count 300000 --duration 5s"),
        "wirebench tx --catch-up 10s -i a0 --rate 10000pps --count 3000 --duration 500ms"
    );
    assert_eq!(short("wrk -c100 -d10s"), "wrk -c100 -d1s");
    assert_eq!(
        short("netperf -H ::1 -l 10 -d 1"),
        "netperf -H ::1 -l 1 -d 1"
    );
    assert_eq!(
        short("sleep 4; wirebench http --rate 2k -d 10s"),
        "sleep 4; wirebench http --rate 200 -d 10s"
    );
    assert_eq!(
        short("wirebench stat --path a,b 1"),
        "ctrl_c wirebench stat --path a,b 1"
    );
}
