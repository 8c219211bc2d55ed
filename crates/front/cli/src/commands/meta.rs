//! Output generated from declarations: completions, man page, reference of plan keys.

use std::{fmt::Write, path::Path};

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use serde_json::Value;
use wb_files::{compare::CompareDocument, read::ReadDocument};
use wb_model::{LiveLine, Plan, Report, bench::LbFile};
use wb_pktgen_folder::{PgrxDocument, PktgenDeviceDocument};
use wb_testbed::SelfTestDocument;

use crate::{
    commands::{
        capture::CaptureStatsDocument, demo::DemoDocument, doctor::DoctorDocument,
        lab::LabDocument, ls::RunsDocument,
    },
    deliver::print,
};

/// Print the completion script of a shell.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  wirebench completions bash > /etc/bash_completion.d/wirebench")]
pub(crate) struct CompletionsArgs {
    /// Name of the shell.
    shell: Shell,
}

/// Print the man page (roff), or write one page per command into a folder.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  wirebench man | man -l -\n  wirebench man --out /usr/local/share/man/man1"
)]
pub(crate) struct ManArgs {
    /// Folder for one page per command.
    #[arg(long, value_name = "DIR")]
    out: Option<std::path::PathBuf>,
}

pub(crate) fn completions(args: &CompletionsArgs, mut command: Command) -> Result<u8> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "wirebench", &mut text);
    print(&String::from_utf8(text)?);
    Ok(0)
}

pub(crate) fn man(args: &ManArgs, command: Command) -> Result<u8> {
    match &args.out {
        Some(dir) => {
            let mut command = command.disable_help_subcommand(true);
            command.build();
            std::fs::create_dir_all(dir)
                .and_then(|()| write_pages(&command, dir))
                .with_context(|| format!("cannot write man pages to {}", dir.display()))?;
        }
        None => print(&man_page(&command)?.1),
    }
    Ok(0)
}

/// Writes one man page per command into a folder.
fn write_pages(command: &Command, dir: &Path) -> std::io::Result<()> {
    for below in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        write_pages(below, dir)?;
    }
    let (name, page) = man_page(command)?;
    std::fs::write(dir.join(name), page)
}

/// Exit codes with their meanings, for commands whose help has no such list.
const EXIT_CODES: [(&str, &str); 6] = [
    ("0", "All criteria held, or no criteria were set."),
    ("1", "A criterion did not hold."),
    ("2", "Bad input or a missing privilege; nothing started."),
    (
        "3",
        "The run is invalid: its figures say nothing about the device.",
    ),
    ("4", "A fault ended the run."),
    (
        "129, 130, 143",
        "SIGHUP, SIGINT or SIGTERM ended the run early.",
    ),
];

/// Exit codes of commands that stand for another program.
const OTHER_EXIT_CODES: &str = "lab exec, lab run and pktgen run exit with the code of their program. \
    wrk and sar exit with the codes of the original tools.";

/// Returns the section about exit codes.
fn exit_status() -> String {
    let codes = EXIT_CODES.map(|(code, meaning)| format!(".TP\n.B {code}\n{meaning}\n"));
    format!(
        ".SH \"EXIT STATUS\"\n{}.PP\n{OTHER_EXIT_CODES}\n",
        codes.concat()
    )
}

/// Returns the section with the names of related pages: the main page and the pages of the subcommands.
fn see_also(page: &str, command: &Command) -> String {
    let shown = command.get_subcommands().filter(|c| !c.is_hide_set());
    let below = shown.map(|c| format!("{page}-{}", c.get_name()));
    let main = (page != "wirebench").then(|| "wirebench".to_owned());
    let pages = main.into_iter().chain(below);
    let names: Vec<String> = pages
        .map(|name| format!(".BR {} (1)", name.replace('-', "\\-")))
        .collect();
    format!(".SH \"SEE ALSO\"\n{}\n", names.join(",\n"))
}

/// Returns the file name and the text of a man page. Text after the options becomes separate sections: values,
/// examples, exit status, notes.
pub(crate) fn man_page(command: &Command) -> std::io::Result<(String, String)> {
    let man = Man::new(command.clone())
        .source(concat!("wirebench ", env!("CARGO_PKG_VERSION")))
        // An empty date would shift the arguments after it.
        .date(" ")
        .manual("wirebench manual");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if command.get_arguments().any(|arg| !arg.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    if command.get_subcommands().any(|c| !c.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    let mut page = String::from_utf8_lossy(&page).into_owned();
    let after = command.get_after_long_help().or(command.get_after_help());
    let after = after.map(ToString::to_string).unwrap_or_default();
    for part in after.split("\n\n").filter(|part| !part.trim().is_empty()) {
        let (title, text) = match part.split_once('\n') {
            Some(("Values:", text)) => ("VALUES", text),
            Some(("Example:" | "Examples:", text)) => ("EXAMPLES", text),
            _ if part.starts_with("Exit codes:") => ("\"EXIT STATUS\"", part),
            _ => ("NOTES", part),
        };
        let _ = writeln!(page, ".SH {title}\n.nf");
        for line in text.lines() {
            let line = line.replace('\\', "\\e").replace('-', "\\-");
            // A point or quote at the start of a line would be a request.
            let guard = if line.starts_with(['.', '\'']) {
                "\\&"
            } else {
                ""
            };
            let _ = writeln!(page, "{guard}{line}");
        }
        page.push_str(".fi\n");
    }
    if !after.contains("Exit codes:") {
        page += &exit_status();
    }
    let file = man.get_filename();
    page += &see_also(file.trim_end_matches(".1"), command);
    Ok((file, page))
}

/// Print the JSON schema of an input or output format.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    wirebench schema report > report.schema.json\n  \
    wirebench schema plan | jq '.properties | keys'")]
pub(crate) struct SchemaArgs {
    /// Format to describe.
    document: Document,
}

/// Formats with a schema.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Document {
    /// Plans of `wirebench run`.
    Plan,
    /// Reports of --json.
    #[value(alias = "bench-report")]
    Report,
    /// A line of --live-json.
    Snapshot,
    /// A line of `stat --json`.
    Stat,
    /// Findings of `doctor --json`.
    Doctor,
    /// Labs of `lab ls --json`, or the lab of `lab up --json`.
    Labs,
    /// Runs of `ls --json`.
    Runs,
    /// Frame rates of `linerate --json`.
    Linerate,
    /// Changes of `bench compare --json`.
    Compare,
    /// Packets, test frames or files of `read --json`.
    Read,
    /// The file of `capture --stats-file`.
    CaptureStats,
    /// Losses of `capture --self-test --json`.
    SelfTest,
    /// Trials of `demo --json`.
    Demo,
    /// The file DEVICE.result.json of `pktgen`.
    PktgenDevice,
    /// The file pgrx.json of `pktgen`.
    Pgrx,
    /// The short form of a plan for `bench lb`.
    #[value(alias = "lb")]
    BenchPlan,
}

pub(crate) fn schema(args: &SchemaArgs) -> Result<u8> {
    let schema = match args.document {
        Document::Plan => schemars::schema_for!(Plan),
        Document::Report => schemars::schema_for!(Report),
        Document::Snapshot => schemars::schema_for!(LiveLine<'_>),
        Document::Stat => schemars::schema_for!(wb_counters::stat_document::StatDocument),
        Document::Doctor => schemars::schema_for!(DoctorDocument<'_>),
        Document::Labs => schemars::schema_for!(LabDocument<'_>),
        Document::Runs => schemars::schema_for!(RunsDocument),
        Document::Linerate => schemars::schema_for!(wb_render::linerate::LinerateDocument),
        Document::Compare => schemars::schema_for!(CompareDocument),
        Document::Read => schemars::schema_for!(ReadDocument),
        Document::CaptureStats => schemars::schema_for!(CaptureStatsDocument),
        Document::SelfTest => schemars::schema_for!(SelfTestDocument),
        Document::Demo => schemars::schema_for!(DemoDocument<'_>),
        Document::PktgenDevice => schemars::schema_for!(PktgenDeviceDocument<'_>),
        Document::Pgrx => schemars::schema_for!(PgrxDocument<'_>),
        Document::BenchPlan => schemars::schema_for!(LbFile),
    };
    print(&serde_json::to_string_pretty(&schema)?);
    Ok(0)
}

/// Returns the reference of all plan keys as Markdown, from the doc comments of the types.
pub(crate) fn plan_reference() -> String {
    let schema = serde_json::to_value(schemars::schema_for!(Plan)).expect("a schema is JSON");
    let mut text = String::from(
        "# Plan keys\n\nMade from the types by `wirebench run --keys`. Unknown keys are refused.\n\nA time without a \
         unit is in seconds: `5` and `\"5\"` are `\"5s\"`. Counts and rates may have k, m or g for thousands, millions \
         or billions: `\"100k\"`. A `Rate` without a unit is in frames per second. Times in criteria need a unit.\n",
    );
    let defs = &schema["$defs"];
    section(&mut text, "Plan", "top level", &schema, defs);
    let mut found = Vec::new();
    tables(&schema, "", defs, &mut found);
    for (name, paths) in found {
        section(&mut text, &name, &paths.join(", "), &defs[&name], defs);
    }
    text
}

/// Collects the tables below a type of the plan: the name of each type, and its headings in TOML.
fn tables(schema: &Value, above: &str, defs: &Value, found: &mut Vec<(String, Vec<String>)>) {
    for (key, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{above}{key}");
        let optional = property["anyOf"].as_array().into_iter().flatten();
        for form in std::iter::once(property).chain(optional) {
            let (reference, heading) = match form["items"]["$ref"].as_str() {
                Some(reference) => (reference, format!("[[{path}]]")),
                None => (
                    form["$ref"].as_str().unwrap_or_default(),
                    format!("[{path}]"),
                ),
            };
            let name = reference.trim_start_matches("#/$defs/");
            let table = &defs[name];
            if table["properties"].is_object() {
                match found.iter_mut().find(|(known, _)| known == name) {
                    Some((_, headings)) => headings.push(heading),
                    None => {
                        found.push((name.to_owned(), vec![heading]));
                        tables(table, &format!("{path}."), defs, found);
                    }
                }
            }
            // A key for each form of a procedure.
            for form in table["oneOf"].as_array().into_iter().flatten() {
                tables(form, &format!("{path}."), defs, found);
            }
        }
    }
}

fn section(text: &mut String, name: &str, table: &str, schema: &Value, defs: &Value) {
    let about = schema["description"]
        .as_str()
        .unwrap_or("")
        .replace('\n', " ");
    let _ = write!(
        text,
        "\n## `{table}` ({name})\n\n{about}\n\n| key | value | meaning |\n|---|---|---|\n"
    );
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for (key, property) in schema["properties"].as_object().into_iter().flatten() {
        let meaning = property["description"]
            .as_str()
            .unwrap_or("")
            .replace('\n', " ")
            .replace('|', "\\|");
        let must = if required.contains(&key.as_str()) {
            " **Required.**"
        } else {
            ""
        };
        let default = match &property["default"] {
            // The keys of a table have their own defaults.
            Value::Null | Value::Object(_) => String::new(),
            Value::String(s) if s.is_empty() => String::new(),
            Value::Array(a) if a.is_empty() => String::new(),
            _ if meaning.contains("(default") => String::new(),
            value => format!(" Default: `{}`.", value.to_string().trim_matches('"')),
        };
        let _ = writeln!(
            text,
            "| `{key}` | {} | {meaning}{must}{default} |",
            kind(property, defs)
        );
    }
}

fn listed(words: &[(String, String)]) -> String {
    let words: Vec<String> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
    words.join(", ")
}

/// Returns the kind of value of a property, in a word, or the allowed words.
fn kind(property: &Value, defs: &Value) -> String {
    let kind = |property: &Value| kind(property, defs);
    if let Some(reference) = property["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap_or("");
        return match wb_options::words(&defs[name]) {
            Some(words) => listed(&words),
            None => name.to_owned(),
        };
    }
    for list in ["anyOf", "oneOf", "allOf"] {
        if let Some(options) = property[list].as_array() {
            let kinds: Vec<String> = options.iter().map(kind).filter(|k| k != "null").collect();
            return kinds.join(" or ");
        }
    }
    match &property["type"] {
        Value::String(s) if s == "array" => format!("list of {}", kind(&property["items"])),
        Value::String(s) => s.clone(),
        Value::Array(types) => types
            .iter()
            .filter_map(Value::as_str)
            .filter(|t| *t != "null")
            .collect::<Vec<_>>()
            .join(" or "),
        _ => String::new(),
    }
}
