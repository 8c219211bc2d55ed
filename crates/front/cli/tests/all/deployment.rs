//! Examples of fleets under `examples/fleet`: the commands in them are commands of this program.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/fleet");
    let folders = fs::read_dir(root).unwrap().flatten();
    let files = folders.flat_map(|folder| fs::read_dir(folder.path()).unwrap().flatten());
    files.map(|file| file.path()).collect()
}

/// The commands of this program in a file: words after a key that begins with `agent` or `serve`.
fn commands(text: &str) -> Vec<Vec<String>> {
    let keys = [
        "ExecStart=/usr/bin/wirebench ",
        "args: [",
        "command: [",
        "cmd: ",
    ];
    let of_line = |line: &str| {
        let line = line.trim();
        let rest = keys.iter().find_map(|key| line.strip_prefix(key))?;
        let words = rest.trim_end_matches(']').split([',', ' ']);
        let words = words.map(|word| word.trim_matches('"').replace("$(NODE)", "node"));
        let words: Vec<String> = words.filter(|word| !word.is_empty()).collect();
        matches!(words.first()?.as_str(), "agent" | "serve").then_some(words)
    };
    text.lines().filter_map(of_line).collect()
}

#[test]
fn commands_of_deployments_are_valid() {
    let mut seen = 0;
    for path in files() {
        for words in commands(&fs::read_to_string(&path).unwrap()) {
            let output = Command::new(env!("CARGO_BIN_EXE_wirebench"))
                .args(&words)
                .output();
            let text = String::from_utf8(output.unwrap().stderr).unwrap();
            // All options are known; only the file of the fleet is missing.
            assert!(
                text.contains("no such file"),
                "{}: {words:?}: {text}",
                path.display()
            );
            seen += 1;
        }
    }
    assert_eq!(seen, 9, "commands of this program");
}

#[test]
fn units_are_valid() {
    let folder = tempfile::tempdir().unwrap();
    let mut units = Vec::new();
    for path in files() {
        if path.extension().is_some_and(|end| end == "service") {
            let text = fs::read_to_string(&path).unwrap();
            let unit = folder.path().join(path.file_name().unwrap());
            let text = text.replace("/usr/bin/wirebench", "/bin/true");
            fs::write(&unit, text.replace("/usr/bin/nats-server", "/bin/true")).unwrap();
            units.push(unit);
        }
    }
    assert_eq!(units.len(), 3);
    // Without systemd, its own check is left out.
    if let Ok(output) = Command::new("systemd-analyze")
        .arg("verify")
        .args(&units)
        .output()
    {
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
    }
}
