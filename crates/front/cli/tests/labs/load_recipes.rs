//! The files of `examples/dperf` between two nodes, at rates that any machine reaches.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    kit::{Lab, privileged, run},
    load::{assert_balanced, job_total, jobs_of, load},
};

/// Servers without a client among the files, and the words that make one of `02`'s client fit.
const ALONE: [(&str, &str, &str, u32); 3] = [
    ("35-bond-server", "198.18.1.10 100", "198.19.1.10 1", 1),
    ("36-kni-server", "198.18.1.10 100", "198.19.1.10 4", 4),
    ("37-kni-ipv6-server", "2001:2::1 20", "2001:2::27 1", 1),
];

const DATAGRAMS: &str = "07-udp-cps-ipv6-server";
const QUARTERS: usize = 4;

fn folder() -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../examples/dperf"
    ))
}

fn file(stem: &str) -> String {
    let path = folder().join(format!("{stem}.conf"));
    path.to_str().unwrap().to_owned()
}

fn stems() -> BTreeSet<String> {
    fs::read_dir(folder())
        .expect("examples/dperf")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "conf"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect()
}

/// A pair of nodes with two wires.
struct Bench {
    lab: Lab,
    dir: TempDir,
}

impl Bench {
    /// One run of these files; the devices of a file are the first interfaces of its node.
    fn run(&self, client: &str, server: Option<&str>) -> Value {
        let mut arguments = vec![client.to_owned()];
        arguments.extend(server.map(str::to_owned));
        for (end, node, file) in [("client", 'a', Some(client)), ("server", 'b', server)] {
            let Some(file) = file else { continue };
            let text = fs::read_to_string(file).expect("the file");
            let devices = text.lines().filter_map(|l| l.strip_prefix("port "));
            for (number, device) in devices.enumerate() {
                let device = device.split(' ').next().unwrap();
                let place = self.lab.port(&node.to_string(), &format!("{node}{number}"));
                arguments.push(format!("--port={end}:{device}={place}"));
            }
        }
        let reduced = "--cps 500 --cc 100 --duration 500ms --ramp 0s --wait 0s";
        arguments.extend(reduced.split(' ').map(str::to_owned));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        load(&arguments, 0)
    }

    /// A server with a client made for it.
    fn run_server(&self, (stem, clients, servers, cpus): (&str, &str, &str, u32)) {
        let (own, gateway) = if clients.contains(':') {
            ("2001:2::1:1", "2001:2::1:27")
        } else {
            ("198.18.1.1", "198.19.1.1")
        };
        let text = format!(
            "mode client\ncpu 0-{}\nduration 1s\ncps 500\nprotocol tcp\nport 0000:1b:00.0 {own} {gateway}\n\
             client {clients}\nserver {servers}\n",
            cpus - 1
        );
        let path = self.dir.path().join(format!("{stem}-client.conf"));
        fs::write(&path, text).expect("a file");
        println!("{stem}");
        let report = self.run(path.to_str().unwrap(), Some(&file(stem)));
        assert_recipe(&report, stem, true);
    }

    /// The file with another text in place of one that is there.
    fn changed(&self, stem: &str, from: &str, to: &str) -> String {
        let text = fs::read_to_string(file(stem)).expect("the file");
        assert!(text.contains(from), "{stem} has no {from}");
        let path = self.dir.path().join(format!("{stem}-changed.conf"));
        fs::write(&path, text.replace(from, to)).expect("a file");
        path.to_str().unwrap().to_owned()
    }
}

/// A run: its name, and the files of its two ends.
enum Recipe {
    /// A client of the folder, and the server that belongs to it, if there is one.
    Pair(String, Option<String>),
    /// A server of `ALONE`.
    Server(usize),
    /// A server without a separate client.
    Datagrams,
}

/// All runs, which together cover every file of the folder.
fn recipes() -> Vec<Recipe> {
    let stems = stems();
    assert_eq!(stems.len(), 47);
    let mut left = stems.clone();
    let mut recipes = Vec::new();
    for (number, (stem, ..)) in ALONE.into_iter().enumerate() {
        left.remove(stem);
        recipes.push(Recipe::Server(number));
    }
    for client in stems.iter().filter(|s| s.ends_with("-client")) {
        left.remove(client);
        let partner = client[3..].replace("-client", "-server");
        let server = stems.iter().find(|s| s[3..] == partner);
        if let Some(server) = server {
            left.remove(server);
        }
        recipes.push(Recipe::Pair(client.clone(), server.cloned()));
    }
    left.remove(DATAGRAMS);
    recipes.push(Recipe::Datagrams);
    assert_eq!(left, BTreeSet::new(), "recipes that nobody runs");
    recipes
}

/// Runs each fourth recipe, from this one on.
fn a_quarter(from: usize) {
    if !privileged() {
        return;
    }
    let bench = Bench {
        lab: Lab::up("pair", &["--links", "2"]),
        dir: tempfile::tempdir().unwrap(),
    };
    for recipe in recipes().iter().skip(from).step_by(QUARTERS) {
        match recipe {
            Recipe::Pair(client, server) => {
                println!("{client}");
                let path = server.as_deref().map(file);
                // A tester that was away while connections waited for it proves nothing, and gets another try.
                let mut tries = 3;
                let report = loop {
                    let report = bench.run(&file(client), path.as_deref());
                    tries -= 1;
                    if report["lateness"]["exposed_connections"] == 0 || tries == 0 {
                        break report;
                    }
                };
                assert_recipe(&report, client, server.is_some());
            }
            Recipe::Server(number) => bench.run_server(ALONE[*number]),
            Recipe::Datagrams => {
                let client =
                    bench.changed("03-http-cps-ipv6-client", "protocol http", "protocol udp");
                let report = bench.run(&client, Some(&file(DATAGRAMS)));
                assert_recipe(&report, DATAGRAMS, true);
            }
        }
    }
}

// In parts, which run side by side.

#[test]
fn recipes_run_between_two_nodes_first_quarter() {
    a_quarter(0);
}

#[test]
fn recipes_run_between_two_nodes_second_quarter() {
    a_quarter(1);
}

#[test]
fn recipes_run_between_two_nodes_third_quarter() {
    a_quarter(2);
}

#[test]
fn recipes_run_between_two_nodes_last_quarter() {
    a_quarter(3);
}

fn assert_recipe(report: &Value, name: &str, answered: bool) {
    assert_balanced(report);
    for job in jobs_of(report) {
        let place = format!("{name} {}", job["name"]);
        let of = |key| job_total(job, key);
        assert_eq!(of("failed_connections"), 0, "{place}: {job}");
        assert_eq!(of("open_connections"), 0, "{place}: {job}");
        assert!(of("requests") > 0, "{place}: {job}");
        assert_eq!(of("responses") > 0, answered, "{place}: {job}");
        let strange = ["drop_unknown", "rx_malformed", "rx_foreign"];
        for key in strange {
            assert!(
                job["counters"][key].is_null(),
                "{place}: {}",
                job["counters"]
            );
        }
    }
    if !answered {
        return;
    }
    // Port by port both ends saw the same; datagrams have no connections at a server.
    let ends =
        |end: &str| -> Vec<&Value> { jobs_of(report).iter().filter(|j| j["end"] == end).collect() };
    let (clients, servers) = (ends("client"), ends("server"));
    assert_eq!(clients.len(), servers.len(), "{name}");
    for (client, server) in clients.iter().zip(&servers) {
        assert_eq!(
            job_total(client, "requests"),
            job_total(server, "requests"),
            "{name}"
        );
        if client["transport"] == "udp" {
            let lost = client["counters"]["udp_lost"].as_u64().unwrap_or(0);
            let (asked, answered) = (
                job_total(client, "requests"),
                job_total(client, "responses"),
            );
            // A busy machine answers some too late.
            assert_eq!(asked, answered + lost, "{name}: {client}");
            assert!(answered <= job_total(server, "responses"), "{name}");
        } else {
            for key in [
                "attempted_connections",
                "completed_connections",
                "responses",
            ] {
                assert_eq!(
                    job_total(client, key),
                    job_total(server, key),
                    "{name}: {key}"
                );
            }
        }
    }
}

#[test]
fn files_of_one_end_and_of_both_find_their_devices() {
    if !privileged() {
        return;
    }
    // Both files name one device.
    let both = [file("08-cps-port1-1-client"), file("09-cps-port1-1-server")];
    assert!(both.iter().all(|f| Path::new(f).exists()));
    let output = run(&[
        "load",
        &both[0],
        &both[1],
        "--port",
        "0000:1b:00.0=wb-no/a0",
    ]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.contains("client:"),
        "it says how to tell them apart: {error}"
    );
}
