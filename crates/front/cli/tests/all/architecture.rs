//! The drawing in ARCHITECTURE.md stays true by itself: this reads the dependencies of every crate
//! and checks that knowledge flows one way.

use std::{collections::BTreeMap, process::Command};

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
        [group, ..] => group,
        [] => "",
    }
}

/// The layers a layer may use. Sideways is allowed within `core` only, and between `front` crates
/// for the binary; `ports` crates share the one that holds the traits.
fn may_use(from: &str, to: &str, to_name: &str) -> bool {
    match from {
        "core" => to == "core",
        "ports" => to == "core" || to_name == "wb-port",
        "engines" => to == "core" || to_name == "wb-port",
        "dialects" => to == "core",
        "session" => matches!(to, "core" | "ports" | "engines"),
        // The control folder watches its writers through the host.
        "front" => matches!(to, "core" | "dialects" | "session") || to_name == "wb-host",
        "testbed" => matches!(to, "core" | "ports"),
        "binary" => true,
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
            // Tests may use whatever proves the point.
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
            "core" | "ports"
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

/// Lines of a file that are no test and no example: up to its test module, without comments.
fn working_lines(text: &str) -> impl Iterator<Item = &str> {
    let end = text.find("mod tests {").unwrap_or(text.len());
    let lines = text[..end].lines().map(str::trim);
    lines.filter(|line| !line.starts_with("//"))
}

/// `println!` and its like panic where nobody listens, and only the binary prints at all.
#[test]
fn nothing_prints_but_by_best_effort() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../crates");
    let mut folders = vec![std::path::PathBuf::from(root)];
    let (mut seen, mut wrong) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !matches!(&*name, "tests" | "examples" | "target") {
                folders.push(path);
            } else if name.ends_with(".rs") && !matches!(&*name, "tests.rs" | "build.rs") {
                seen += 1;
                let text = std::fs::read_to_string(&path).unwrap();
                let prints = |line: &&str| {
                    ["println!(", "print!(", "dbg!("]
                        .iter()
                        .any(|word| line.contains(word))
                };
                wrong.extend(
                    working_lines(&text)
                        .filter(prints)
                        .map(|line| format!("{}: {line}", path.display())),
                );
            }
        }
    }
    assert!(seen > 200, "found only {seen} files");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
