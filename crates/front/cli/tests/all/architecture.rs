//! Keeps the drawing in ARCHITECTURE.md true: reads the dependencies of every crate
//! and checks that knowledge flows one way, and reads the sources for restricted operations.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// The layer of a crate, from the folder it is in.
fn layer(path: &str) -> &str {
    let rest = path
        .split("/crates/")
        .nth(1)
        .expect("every crate is under crates/");
    match rest.split('/').collect::<Vec<_>>().as_slice() {
        ["front", "session", ..] => "session",
        ["front", "cli", ..] => "binary",
        ["ports", "open", ..] => "open",
        ["engines", "engine", ..] => "engine",
        [group, ..] => group,
        [] => "",
    }
}

/// The layers a layer may use. Sideways is allowed within `core` only, and between `front` crates
/// for the binary; `ports` crates share the one that holds the traits.
fn may_use(from: &str, to: &str, to_name: &str) -> bool {
    match from {
        "core" | "machine" => to == "core",
        "ports" => to == "core" || to_name == "wb-port",
        "open" => matches!(to, "core" | "machine" | "ports"),
        "engine" => matches!(to, "core" | "machine" | "ports" | "open"),
        "engines" => matches!(to, "core" | "machine" | "ports" | "open" | "engine"),
        "dialects" => to == "core",
        "session" => matches!(
            to,
            "core" | "machine" | "ports" | "open" | "engine" | "engines"
        ),
        // Control files are those of a folder; a screen writes figures as texts do; a server has runs, and
        // compares reports as the command does.
        "front" => {
            matches!(to, "core" | "dialects" | "session")
                || matches!(
                    to_name,
                    "wb-machine" | "wb-render" | "wb-fuse" | "wb-runs" | "wb-files"
                )
        }
        "testbed" => matches!(to, "core" | "machine" | "ports"),
        // Work of the engines goes through the session.
        "binary" => !matches!(to, "open" | "engine" | "engines"),
        _ => false,
    }
}

fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."))
        .output()
        .expect("cargo metadata runs");
    let metadata: Value =
        serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    metadata["packages"].as_array().expect("packages").clone()
}

#[test]
fn knowledge_flows_one_way() {
    let packages = packages();
    let layers: BTreeMap<&str, &str> = packages
        .iter()
        .map(|p| {
            (
                p["name"].as_str().unwrap(),
                layer(p["manifest_path"].as_str().unwrap()),
            )
        })
        .collect();
    assert!(layers.len() >= 13, "found only {} crates", layers.len());
    let mut wrong = Vec::new();
    for package in &packages {
        let name = package["name"].as_str().unwrap();
        for dependency in package["dependencies"].as_array().unwrap() {
            // Tests may use any crate.
            if dependency["kind"].as_str() == Some("dev") {
                continue;
            }
            let to = dependency["name"].as_str().unwrap();
            if let Some(to_layer) = layers.get(to)
                && !may_use(layers[name], to_layer, to)
            {
                wrong.push(format!("{name} ({}) uses {to} ({to_layer})", layers[name]));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "arrows that point the wrong way:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn tokio_stays_out_of_the_data_plane() {
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        if matches!(
            layer(package["manifest_path"].as_str().unwrap()),
            "core" | "ports" | "open" | "engine"
        ) || matches!(name, "wb-traffic" | "wb-capture" | "wb-load")
        {
            let uses = package["dependencies"]
                .as_array()
                .unwrap()
                .iter()
                .any(|d| d["name"] == "tokio");
            assert!(!uses, "{name} uses tokio");
        }
    }
}

#[test]
fn figures_stay_out_of_the_data_plane() {
    for package in packages() {
        let (name, path) = (&package["name"], package["manifest_path"].as_str().unwrap());
        // Reports of these engines merge figures and write times.
        let exceptions = ["wb-model", "wb-load", "wb-http", "wb-traffic"];
        let is_exempt = exceptions.iter().any(|exempt| name == exempt);
        if matches!(layer(path), "core" | "ports" | "open" | "engines") && !is_exempt {
            let mut dependencies = package["dependencies"].as_array().unwrap().iter();
            let uses = dependencies.any(|d| d["name"] == "wb-figures");
            assert!(!uses, "{name} uses wb-figures");
        }
    }
}

/// Lines of a file that are no test and no example: up to its test module, without comments.
fn working_lines(text: &str) -> impl Iterator<Item = &str> {
    let end = text.find("mod tests {").unwrap_or(text.len());
    let lines = text[..end].lines().map(str::trim);
    lines.filter(|line| !line.starts_with("//"))
}

/// All sources but those of tests and examples: place under `crates`, text.
pub(crate) fn sources() -> Vec<(String, String)> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../crates");
    let mut folders = vec![PathBuf::from(root)];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !matches!(&*name, "tests" | "examples" | "target") {
                folders.push(path);
            } else if name.ends_with(".rs") && !matches!(&*name, "tests.rs" | "build.rs") {
                let place = path.strip_prefix(root).unwrap().to_string_lossy();
                found.push((place.into_owned(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(found.len() > 200, "found only {} files", found.len());
    found
}

/// Checks that only files below `allowed` have lines with one of these words, and that each allowed place has such
/// a line.
fn only(allowed: &[&str], words: &[&str]) {
    let (mut wrong, mut unused) = (Vec::new(), allowed.to_vec());
    for (place, text) in sources() {
        for line in working_lines(&text).filter(|line| words.iter().any(|w| line.contains(w))) {
            if allowed.iter().any(|start| place.starts_with(start)) {
                unused.retain(|start| !place.starts_with(start));
            } else {
                wrong.push(format!("{place}: {line}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(unused, [""; 0], "allowed for nothing");
}

/// `println!` and similar macros panic on a closed output, and only the binary prints at all.
#[test]
fn nothing_prints_but_by_best_effort() {
    only(&[], &["println!(", "print!(", "dbg!("]);
    only(
        &[
            "front/cli/",
            // A capture that writes to standard output.
            "engines/capture/src/output.rs",
            // Output of programs that run after a file of a capture.
            "engines/capture/src/commands.rs",
            // Watches the terminal that standard output or error is; prints nothing.
            "engines/engine/src/signals.rs",
            // The device is a process; it reports to its parent that it is ready.
            "testbed/src/impair/device.rs",
            "testing/src/skip.rs",
        ],
        &["stdout()", "stderr()"],
    );
}

#[test]
fn signal_handlers_cpus_and_privileges_have_few_users() {
    only(
        &[
            "engines/engine/src/signals.rs",
            // Passes signals on to the command in a lab.
            "testbed/src/run.rs",
            // One real-time signal with an empty handler.
            "engines/socket/src/stop.rs",
        ],
        &["signal_hook", "sigaction", "libc::signal("],
    );
    only(
        &[
            "engines/socket/src/engine.rs",
            "ports/open/src/workers.rs",
            "machine/src/cpu.rs",
            // The impairing device, a separate process.
            "testbed/src/impair/wake_tuning.rs",
        ],
        &["cpu::pin", "sched_setaffinity"],
    );
    only(
        &[
            "machine/",
            // Users of captures and of servers.
            "engines/capture/src/engine.rs",
            "engines/socket/src/engine.rs",
            // Checks the capabilities for streams inside the kernel.
            "engines/traffic/src/engine/path.rs",
            "front/session/",
            // Possibility of labs, and their user.
            "testbed/",
            "front/cli/src/commands/demo.rs",
            // Owner of the control files.
            "front/fuse/",
            // Owner of the history.
            "front/runs/src/store.rs",
        ],
        &["Privileges", "geteuid", "capget"],
    );
}

#[test]
fn only_the_machine_reads_proc_sys_and_netlink() {
    only(
        &[
            "machine/",
            // Processes in labs, and what a user namespace needs to begin.
            "testbed/",
            // Threads of a process that does not end.
            "testing/src/scenario/play.rs",
            // Standard output of the process, opened again.
            "engines/capture/src/output.rs",
            "front/cli/src/commands/capture/lines.rs",
        ],
        &["\"/proc", "\"/sys"],
    );
    only(&["machine/"], &["netlink_", "AF_NETLINK"]);
}

/// A module of the session uses only those above it in this list. Paths begin with `crate`.
#[test]
fn the_session_is_a_stack_of_modules() {
    const MODULES: [&str; 9] = [
        "environment",
        "judge",
        "report",
        "run",
        "extras",
        "http_over_port",
        "bench",
        "prepare",
        "doctor",
    ];
    let place = |path: &str| {
        let name = path.strip_prefix("front/session/src/")?;
        let end = name.find(['/', '.'])?;
        Some(name[..end].to_owned())
    };
    let known = |name: &str| MODULES.iter().position(|module| *module == name);
    let (mut seen, mut wrong) = (0, Vec::new());
    for (path, text) in sources() {
        let Some(module) = place(&path).filter(|name| name != "lib") else {
            continue;
        };
        let own = known(&module).unwrap_or_else(|| panic!("{path} is not in the list"));
        seen += 1;
        let text: String = working_lines(&text).collect::<Vec<_>>().join("\n");
        for (at, _) in text.match_indices("crate::") {
            let used = text[at..].split(';').next().unwrap_or_default();
            let words = used.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let above = words.filter_map(known).all(|other| other <= own);
            if !above {
                wrong.push(format!("{path}: {used}"));
            }
        }
    }
    assert!(seen >= MODULES.len(), "found only {seen} files");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Other code is generic over the driver.
#[test]
fn only_the_opener_of_ports_names_drivers() {
    let drivers = ["Xdp", "XdpGroup", "Packet", "Memory", "File"];
    let words = drivers.map(|driver| format!("AnyQueue::{driver}"));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    only(&["ports/open/src/"], &words);
}

/// Modules of `core/model` that hold the contract of a kind of jobs.
fn modules_of_kinds() -> Vec<&'static str> {
    let names = wb_model::JobKind::ALL.into_iter().map(|kind| match kind {
        wb_model::JobKind::Devices => "device",
        kind => kind.name(),
    });
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../core/model/src"));
    names
        .filter(|name| folder.join(name).is_dir() || folder.join(format!("{name}.rs")).exists())
        .collect()
}

/// Lines of the sources below `folder` that name the module of a kind, with the kind and the place.
fn uses_of_kinds(folder: &str, root: &str) -> Vec<(String, &'static str, String)> {
    let (kinds, mut found) = (modules_of_kinds(), Vec::new());
    for (place, text) in sources() {
        let Some(place) = place.strip_prefix(folder) else {
            continue;
        };
        let text: String = working_lines(&text).collect::<Vec<_>>().join("\n");
        for (at, _) in text.match_indices(root) {
            let used = &text[at + root.len()..];
            // One path, or all paths of a `use`.
            let end = if used.starts_with('{') { "};" } else { ";" };
            let used = used.split(end).next().unwrap_or_default();
            let is_use = used.starts_with('{');
            let words = used.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let words = words.filter(|word| !word.is_empty());
            for word in words.take(if is_use { usize::MAX } else { 1 }) {
                if let Some(kind) = kinds.iter().find(|kind| **kind == word) {
                    found.push((place.to_owned(), *kind, used.to_owned()));
                }
            }
        }
    }
    found
}

#[test]
fn contracts_of_jobs_do_not_name_each_other() {
    // Loads carry the HTTP jobs of a port.
    const ALLOWED: [(&str, &str); 1] = [("http/carried.rs", "load")];
    let mut wrong = Vec::new();
    for (place, kind, used) in uses_of_kinds("core/model/src/", "crate::") {
        let own = modules_of_kinds().into_iter().find(|own| {
            let rest = place.strip_prefix(*own);
            rest.is_some_and(|rest| rest.starts_with(['/', '.']))
        });
        // The trials of benchmarks are jobs of other kinds.
        let Some(own) = own.filter(|own| *own != kind && *own != "bench") else {
            continue;
        };
        if !ALLOWED.contains(&(&*place, kind)) {
            wrong.push(format!("{place} of {own} names {kind}: {used}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Reports are read by section. Only benchmarks have separate texts.
#[test]
fn renderers_name_no_kind_of_job() {
    const ALLOWED: [(&str, &str); 10] = [
        // Headers of kinds without any job in the report.
        ("csv.rs", "http"),
        ("csv.rs", "load"),
        ("csv.rs", "socket"),
        // One line has no room for sections.
        ("live.rs", "http"),
        ("live.rs", "load"),
        ("live.rs", "socket"),
        ("pages.rs", "socket"),
        // Plans as text.
        ("text/plan.rs", "device"),
        // Table and plot of a sweep: each job is a value of a parameter.
        ("text/socket.rs", "socket"),
        ("report/socket.rs", "socket"),
    ];
    let mut wrong = Vec::new();
    for folder in ["front/render/src/", "front/tui/src/"] {
        for (place, kind, used) in uses_of_kinds(folder, "wb_model::") {
            if kind != "bench" && !ALLOWED.contains(&(&*place, kind)) {
                wrong.push(format!("{folder}{place} names {kind}: {used}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Module by module, with a reason; `core` has none.
#[test]
fn unsafe_code_is_where_it_says_why() {
    let mut wrong = Vec::new();
    for (place, text) in sources() {
        let root = place.ends_with("src/lib.rs") || place.ends_with("src/main.rs");
        if root && place.starts_with("core/") && !text.contains("\n#![forbid(unsafe_code)]\n") {
            wrong.push(format!("{place} does not forbid it"));
        }
        for line in text.lines().filter(|l| l.contains("allow(unsafe_code")) {
            if root || !(line.contains("reason = \"") || line.contains("] // ")) {
                wrong.push(format!("{place}: {line}"));
            }
        }
    }
    // The denials of the workspace apply only to crates that inherit them.
    for package in packages() {
        let manifest = package["manifest_path"].as_str().unwrap();
        let text = fs::read_to_string(manifest).unwrap();
        if !text.contains("[lints]\nworkspace = true\n") {
            wrong.push(format!("{manifest} has not the workspace's lints"));
        }
    }
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../Cargo.toml"));
    if !text.unwrap().contains("\nunsafe_code = \"deny\"\n") {
        wrong.push("the workspace does not deny it".to_owned());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Tests wait for conditions (`wb_testing`), never for a fixed time.
#[test]
fn tests_do_not_sleep() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../crates");
    let mut folders = vec![PathBuf::from(root)];
    let (mut seen, mut wrong) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.to_string_lossy();
            let is_scenario = name.ends_with(".toml") && name.contains("/tests/scenarios/");
            let is_source = name.ends_with(".rs") && !name.ends_with("testing/src/wait.rs");
            if !is_scenario && !is_source {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let of_tests = name.contains("/tests/") || name.ends_with("tests.rs");
            let begin = if of_tests {
                Some(0)
            } else {
                text.find("mod tests {")
            };
            let Some(begin) = begin else { continue };
            seen += 1;
            // Not in the middle of a line: a plan may have a command that sleeps.
            let sleeps = |line: &str| match line.trim_start().strip_prefix("sleep ") {
                Some(time) => is_scenario && time.starts_with(|c: char| c.is_ascii_digit()),
                None => is_source && line.contains(concat!("thread::", "sleep")),
            };
            wrong.extend(
                text[begin..]
                    .lines()
                    .filter(|line| sleeps(line))
                    .map(|line| format!("{name}: {line}")),
            );
        }
    }
    assert!(seen > 200, "found only {seen} files");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
