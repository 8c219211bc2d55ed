//! Tests a machine that provides fewer threads than a run needs: the run ends with an error, and the threads that had
//! started end with it, because nothing else would end them.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio, id},
};

use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};
use wb_model::{Plan, text::plan_from_toml};
use wb_session::{Environment, Extras, StartError, View, prepare};

/// Environment variable that selects the kind of run in the child process.
const KIND: &str = "WB_TEST_THREADS_OF";
const HEAD: &str = "schema = \"wirebench.plan/1\"\n";
const PORTS: &str = "[[port]]\nname = \"a\"\nlocator = \"memory:x\"\nworkers = 4\n\
                     [[port]]\nname = \"b\"\nlocator = \"memory:x\"\nworkers = 4\n";
const TRAFFIC: &str = "[[traffic]]\ntx = \"a\"\nrx = \"b\"\nduration = \"60s\"\n\
                       [[traffic.stream]]\nrate = \"1kpps\"\n";
const LOADS: &str = "[[load]]\nport = \"a\"\nend = \"client\"\nclients = [\"198.18.1.2\"]\n\
                     servers = [\"198.19.1.2\"]\nrate = { cps = 10 }\nshape = { duration = \"60s\" }\n\
                     [[load]]\nport = \"b\"\nend = \"server\"\nclients = [\"198.18.1.2\"]\n\
                     servers = [\"198.19.1.2\"]\n";
const DEVICES: &str = "[[port]]\nname = \"c\"\nlocator = \"memory:x\"\n\
                       [[port]]\nname = \"d\"\nlocator = \"memory:y\"\n\
                       [[device]]\nport = \"c\"\ncpu = 0\n\
                       settings = { name = \"c\", count = 0, delay = \"1000000\", dst_min = \"198.19.0.1\" }\n\
                       [[watch]]\nport = \"d\"\nmode = \"time\"\nduration = \"60s\"\n";

fn plan(text: &str) -> Plan {
    plan_from_toml("threads", &format!("{HEAD}{text}")).expect("a plan")
}

/// Names of the worker threads that currently exist.
fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").expect("a list of threads");
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    let names = names.map(|name| name.trim().to_owned());
    names.filter(|name| name.starts_with("wb-")).collect()
}

/// Allows `more` additional threads from now on.
fn allow(more: u64) {
    let now = fs::read_dir("/proc/self/task").expect("a list").count() as u64;
    let limit = getrlimit(Resource::Nproc);
    let limit = Rlimit {
        current: Some(now + more),
        ..limit
    };
    setrlimit(Resource::Nproc, limit).expect("the limit may be lowered");
}

/// Two ports that receive nothing, and their capture.
fn capture(path: &Path) -> String {
    format!(
        "[[port]]\nname = \"e\"\nlocator = \"memory:e\"\n\
         [[port]]\nname = \"f\"\nlocator = \"memory:f\"\n\
         [[capture]]\nports = [\"e\", \"f\"]\noutput = {{ path = {path:?} }}\n"
    )
}

fn attempt(kind: &str, more: u64) -> Result<(), StartError> {
    let path = std::env::temp_dir().join(format!("wb-threads-{}.pcapng", id()));
    let text = match kind {
        "traffic" => format!("{PORTS}{TRAFFIC}"),
        "load" => format!("{PORTS}{LOADS}"),
        "devices" => DEVICES.to_owned(),
        "capture" => capture(&path),
        _ => format!("{PORTS}{LOADS}{}", capture(&path)),
    };
    let prepared = prepare(plan(&text), &Environment::default(), Extras::default())?;
    allow(more);
    let ended = prepared.run(&mut |_: &View<'_>| {}).map(drop);
    let _ = fs::remove_file(path);
    ended
}

/// Runs as a separate user in a child process of the test below; not a separate test.
#[test]
#[ignore = "run by the test below"]
fn child() {
    let Ok(line) = std::env::var(KIND) else {
        return;
    };
    let (kind, more) = line.rsplit_once(' ').expect("a kind and a number");
    let more = more.parse().expect("a number");
    let error = attempt(kind, more).expect_err("there are too few threads");
    let said = error.to_string();
    assert!(said.contains("thread") || said.contains("worker"), "{said}");
    let left = threads();
    assert!(left.is_empty(), "they run on: {left:?}");
    println!("ended with {more} more");
}

#[test]
fn threads_that_run_end_when_a_later_one_cannot_start() {
    if !geteuid().is_root() {
        wb_testing::skipped("being users with a limit of their own needs root");
        return;
    }
    let program = std::env::current_exe().expect("our own file");
    // Up to one thread fewer than the run needs.
    let kinds = [
        ("traffic", 4),
        ("load", 4),
        ("devices", 1),
        ("capture", 2),
        ("load and capture", 9),
    ];
    for (number, (kind, most)) in kinds.into_iter().enumerate() {
        // In parallel, as each child waits for a second.
        let children: Vec<_> = (0..=most)
            .map(|more| {
                // A user without other processes, because the kernel counts the processes of each user.
                let user = 1_000_000_000 + id() % 100_000 * 100 + number as u32 * 10 + more;
                Command::new(&program)
                    .args(["--exact", "threads::child", "--ignored", "--nocapture"])
                    .env(KIND, format!("{kind} {more}"))
                    .current_dir("/")
                    .stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .uid(user)
                    .gid(user)
                    .spawn()
                    .expect("it starts")
            })
            .collect();
        for (more, child) in (0..=most).zip(children) {
            let output = child.wait_with_output().expect("it ends");
            let text = String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{kind}, {more} more: {text}");
            assert!(text.contains(&format!("ended with {more} more")), "{text}");
        }
    }
}
