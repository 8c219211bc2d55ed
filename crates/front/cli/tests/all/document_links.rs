//! Checks what the documents name: files, functions, links and sizes.
//!
//! ARCHITECTURE.md, docs/internals and docs/decisions name code in back quotes: a path (`core/wire/src/stack.rs`,
//! relative to the repository or to `crates/`), or a path and an item (`core/wire/src/stack.rs:build`). Each must exist.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Largest size of ARCHITECTURE.md, in bytes. Explanations belong in docs/internals.
const MAP_SIZE: usize = 12 * 1024;

/// Names of code in back quotes that look like paths: schemas of documents, and fields of reports.
const NO_PATHS: &[&str] = &["wirebench.lb/1", "wirebench.plan/1", "wirebench.report/1"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Collects the Markdown files in `folder` and below, relative to the repository.
fn markdown(folder: &str) -> Vec<String> {
    let mut folders = vec![root().join(folder)];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy();
            if path.is_dir() && !name.starts_with('.') && name != "target" {
                folders.push(path);
            } else if name.ends_with(".md") {
                let path = path.strip_prefix(root()).expect("below the root");
                found.push(path.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    found
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Lines outside of code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        let is_code = fenced || fence || line.starts_with("    ");
        (!is_code).then_some((at + 1, line))
    })
}

/// Returns the path, and the item in it, that a name in back quotes stands for.
fn named(code: &str) -> Option<(&str, Option<&str>)> {
    let (path, item) = match code.split_once(':') {
        Some((path, item)) => (path, Some(item)),
        None => (code, None),
    };
    let is_path = path
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"._-/".contains(&b));
    let is_word = |word: &str| word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let is_source = [".rs", ".c", ".h", ".md", ".toml", ".sh", ".py"]
        .iter()
        .any(|end| path.ends_with(end));
    let is_named = is_path
        && (path.contains('/') || is_source)
        && !path.starts_with('/')
        && path.bytes().any(|b| b.is_ascii_lowercase())
        && !NO_PATHS.contains(&path)
        && item.is_none_or(is_word);
    is_named.then_some((path, item))
}

/// Finds a path in the repository or under `crates`. An upper-case name such as `NAME.rs` stands for any file.
fn place_of(path: &str) -> Option<PathBuf> {
    let path = Path::new(path);
    let is_example = path
        .file_stem()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.bytes().all(|b| b.is_ascii_uppercase()) && name != "README");
    let path = match is_example {
        true => path.parent()?,
        false => path,
    };
    let places = [root().join(path), root().join("crates").join(path)];
    places.into_iter().find(|place| place.exists())
}

/// Returns true if a source file defines this function, type or constant.
fn defines(text: &str, item: &str) -> bool {
    let words = [
        "fn ", "struct ", "enum ", "trait ", "type ", "const ", "static ", "def ", "int ", "void ",
    ];
    let is_end = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    words.iter().any(|word| {
        let start = format!("{word}{item}");
        let mut found = text.match_indices(&start);
        found.any(|(at, _)| is_end(&text[at + start.len()..]))
    })
}

/// Returns the names in back quotes of a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

#[test]
fn every_path_and_function_named_in_documents_exists() {
    let mut documents = vec!["ARCHITECTURE.md".to_owned()];
    documents.extend(markdown("docs/internals"));
    documents.extend(markdown("docs/decisions"));
    let (mut wrong, mut paths, mut items) = (Vec::new(), 0, 0);
    for document in &documents {
        // A name after `:` alone is in the file named before it.
        let mut before = String::new();
        for (number, line) in prose(&read(document)) {
            for code in quoted(line) {
                let code = match code.strip_prefix(':') {
                    Some(item) => format!("{before}:{item}"),
                    None => code.to_owned(),
                };
                let Some((path, item)) = named(&code) else {
                    continue;
                };
                before = path.to_owned();
                paths += 1;
                let Some(place) = place_of(path) else {
                    wrong.push(format!("{document}:{number}: {path} does not exist"));
                    continue;
                };
                if let Some(item) = item {
                    items += 1;
                    let text = fs::read_to_string(place).unwrap_or_default();
                    if !defines(&text, item) {
                        wrong.push(format!("{document}:{number}: {path} has no {item}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(paths > 150 && items > 30, "found {paths} and {items} only");
}

/// Returns the anchors of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|(_, line)| line.starts_with('#'));
    let mut all = BTreeSet::new();
    for (_, heading) in headings {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let again = (1..).map(|n| format!("{anchor}-{n}"));
        let free = std::iter::once(anchor.clone()).chain(again);
        let free = free.into_iter().find(|name| !all.contains(name));
        all.extend(free);
    }
    all
}

#[test]
fn relative_links_resolve() {
    let (mut wrong, mut links) = (Vec::new(), 0);
    for document in markdown(".") {
        let text = read(&document);
        for (number, line) in prose(&text) {
            // Text in back quotes is no link.
            let plain: Vec<&str> = line.split('`').step_by(2).collect();
            let plain = plain.join("`");
            for target in plain.split("](").skip(1) {
                let target = target.split([')', ' ']).next().unwrap_or_default();
                if target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                links += 1;
                let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
                let folder = Path::new(&document).parent().expect("a folder");
                let place = match path {
                    "" => root().join(&document),
                    _ => root().join(folder).join(path),
                };
                if !place.exists() {
                    wrong.push(format!("{document}:{number}: {target} does not exist"));
                } else if !anchor.is_empty() && place.extension().is_some_and(|end| end == "md") {
                    let text = fs::read_to_string(&place).expect("a document");
                    if !anchors(&text).contains(anchor) {
                        wrong.push(format!("{document}:{number}: {target} has no such heading"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(links > 50, "found {links} links only");
}

#[test]
fn the_map_is_short_and_names_every_crate() {
    let text = read("ARCHITECTURE.md");
    assert!(
        text.len() <= MAP_SIZE,
        "ARCHITECTURE.md has {} bytes, at most {MAP_SIZE}: move explanations to docs/internals",
        text.len()
    );
    let mut folders = vec![root().join("crates")];
    let mut missing = Vec::new();
    while let Some(folder) = folders.pop() {
        if folder.join("Cargo.toml").exists() {
            let path = folder.strip_prefix(root().join("crates")).expect("a crate");
            let name = format!("| `{}` |", path.display());
            if !text.contains(&name) {
                missing.push(name);
            }
            continue;
        }
        let entries = fs::read_dir(&folder).expect("a folder");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        folders.extend(paths.filter(|path| path.is_dir()));
    }
    assert!(missing.is_empty(), "no line for {}", missing.join(" "));
}

#[test]
fn every_page_is_in_its_index() {
    let mut missing = Vec::new();
    for folder in ["docs/internals", "docs/decisions"] {
        let index = read(&format!("{folder}/README.md"));
        for page in markdown(folder) {
            let name = page.rsplit('/').next().expect("a name");
            if name != "README.md" && !index.contains(&format!("]({name})")) {
                missing.push(page);
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
