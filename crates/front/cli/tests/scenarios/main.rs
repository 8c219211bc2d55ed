//! Plays each scenario file of this folder as one test: the binary in labs, with real frames. CONTRIBUTING.md describes
//! the files. Needs root.

#[path = "../labs/kit.rs"]
#[allow(dead_code, reason = "scenarios use only the labs")]
mod kit;
#[path = "../labs/left_over_labs.rs"]
#[allow(dead_code, reason = "scenarios use only the prefix")]
mod left_over_labs;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use libtest_mimic::{Arguments, Trial};
use wb_testing::{
    installed,
    scenario::{Scenario, Stage},
};

use kit::{Lab, privileged, run};

fn main() -> ExitCode {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut files = Vec::new();
    collect(&folder, &mut files);
    files.sort();
    let trials = files.into_iter().map(|file| {
        let path = file
            .strip_prefix(&folder)
            .unwrap_or(&file)
            .with_extension("");
        let name = path.to_string_lossy().replace('/', "::");
        Trial::test(name, move || play(&file).map_err(Into::into))
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

/// The scenario files of a folder and of those in it.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|end| end == "toml") {
            files.push(path);
        }
    }
}

fn play(file: &Path) -> Result<(), String> {
    let scenario = Scenario::read(file)?;
    if !privileged() {
        return Ok(());
    }
    let own = Path::new(env!("CARGO_BIN_EXE_wirebench"));
    let folders = [own.parent().map(Path::to_path_buf)];
    let others = env::var_os("PATH").unwrap_or_default();
    let folders = folders
        .into_iter()
        .flatten()
        .chain(env::split_paths(&others));
    let path = env::join_paths(folders).map_err(|error| error.to_string())?;
    if !installed(&scenario.needs) {
        return Ok(());
    }
    let lab = scenario.lab.as_ref().map(|lab| {
        let words: Vec<&str> = lab.split_whitespace().collect();
        Lab::up(words[0], &words[1..])
    });
    let mut variables = lab.as_ref().map(variables).unwrap_or_default();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");
    variables.push(("source".to_owned(), source.to_owned()));
    scenario.play(&Stage { variables, path })
}

/// `$lab`, the namespace of each node by the name of the node, and each port by the name of its interface.
fn variables(lab: &Lab) -> Vec<(String, String)> {
    let listed = run(&["lab", "ls", "--json"]).stdout;
    let listed: serde_json::Value = serde_json::from_slice(&listed).expect("JSON");
    let labs = listed["labs"].as_array().expect("labs");
    let own = labs.iter().find(|known| known["name"] == lab.name.as_str());
    let status = own.expect("this lab");
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let mut variables = vec![("lab".to_owned(), lab.name.clone())];
    for node in status["nodes"].as_array().into_iter().flatten() {
        variables.push((text(&node["node"]), text(&node["namespace"])));
    }
    for link in status["links"].as_array().into_iter().flatten() {
        for end in [&link["a"], &link["b"]] {
            let (node, interface) = (text(&end["namespace"]), text(&end["interface"]));
            variables.push((interface.clone(), format!("{node}/{interface}")));
        }
    }
    variables
}
