//! Blocks of code in README.md and docs/*.md. The tests in labs use this file too: they run the blocks.

use std::path::{Path, PathBuf};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");

/// Files that command lines name, made of examples so that plans can be read.
const FILES: &[(&str, &str)] = &[
    ("plan.toml", "examples/pair.toml"),
    ("mix.toml", "examples/mix.toml"),
    ("lb.toml", "examples/bench/lb.toml"),
    ("forwarding.toml", "examples/bench/rfc2544.toml"),
    ("client.conf", "examples/dperf/01-http-cps-client.conf"),
    ("server.conf", "examples/dperf/02-http-cps-server.conf"),
];

/// A block of code of a document: its language and its lines.
pub(crate) struct Block {
    language: String,
    pub(crate) first_line: usize,
    lines: Vec<String>,
}

/// Fenced blocks, and blocks indented by four columns more than the text around them.
pub(crate) fn blocks(text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut fence: Option<usize> = None;
    let mut after_blank = true;
    let mut in_indented = false;
    let mut item_indent = 0;
    for (number, line) in text.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let body = line.trim_start();
        if let Some(width) = fence {
            if body.starts_with("```") {
                fence = None;
            } else if let Some(block) = found.last_mut() {
                block
                    .lines
                    .push(line.get(width.min(indent)..).unwrap_or(line).to_owned());
            }
        } else if let Some(language) = body.strip_prefix("```") {
            fence = Some(indent);
            in_indented = false;
            found.push(Block {
                language: language.trim().to_owned(),
                first_line: number + 2,
                lines: Vec::new(),
            });
        } else if body.is_empty() {
            after_blank = true;
            continue;
        } else if indent >= item_indent + 4 && (after_blank || in_indented) {
            if !in_indented {
                found.push(Block {
                    language: String::new(),
                    first_line: number + 1,
                    lines: Vec::new(),
                });
            }
            in_indented = true;
            if let Some(block) = found.last_mut() {
                block.lines.push(line[item_indent + 4..].to_owned());
            }
        } else {
            in_indented = false;
            let numbered = body
                .split_once(". ")
                .is_some_and(|(n, _)| n.parse::<u32>().is_ok());
            if body.starts_with("- ") || numbered {
                item_indent = indent + body.find(' ').map_or(0, |at| at + 1);
            } else if indent == 0 {
                item_indent = 0;
            }
        }
        after_blank = false;
    }
    found
}

/// Lines of a block to type: all lines of a shell block, the lines after a prompt, or those that begin with a command.
pub(crate) fn script(block: &Block) -> String {
    let prompted = block.lines.iter().any(|l| l.starts_with("$ "));
    let mut script = String::new();
    let mut continues = false;
    for line in block.lines.iter().map(String::as_str) {
        let typed = if block.language == "sh" {
            Some(line)
        } else if !block.language.is_empty() && block.language != "console" {
            None
        } else if prompted {
            line.strip_prefix("$ ")
                .or_else(|| line.strip_prefix("> "))
                .or(continues.then_some(line))
        } else {
            (continues || line.starts_with("wirebench ")).then_some(line)
        };
        if let Some(typed) = typed {
            continues = typed.trim_end().ends_with('\\');
            script.push_str(typed);
            script.push('\n');
        } else {
            continues = false;
        }
    }
    script
}

/// README.md and docs/*.md, sorted by name.
pub(crate) fn documents() -> Vec<PathBuf> {
    let mut all: Vec<_> = std::fs::read_dir(Path::new(ROOT).join("docs"))
        .expect("docs")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "md"))
        .collect();
    all.push(Path::new(ROOT).join("README.md"));
    all.sort();
    all
}

/// Puts the files that command lines name into a folder, and a link to the folder `examples`.
pub(crate) fn place_files(folder: &Path) {
    std::os::unix::fs::symlink(Path::new(ROOT).join("examples"), folder.join("examples")).unwrap();
    for (name, from) in FILES {
        std::fs::copy(Path::new(ROOT).join(from), folder.join(name)).unwrap();
    }
}
