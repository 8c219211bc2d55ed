//! Layout of the help: the overview in groups, `-h` with the most important options, `--help` with all options and the
//! meanings of their values. The text of an option is part of its declaration.

use std::fmt::Write as _;

use clap::{Arg, Command};

use crate::commands::GROUPS;

/// Up to twelve options per command that `-h` shows. A command that is not listed has few options.
const FIRST: &[(&str, &[&str])] = &[
    (
        "trial",
        &[
            "tx", "rx", "size", "rate", "duration", "flows", "bidir", "max-loss", "json", "report",
        ],
    ),
    (
        "tx",
        &[
            "i", "size", "rate", "duration", "count", "flows", "dst", "replay", "json", "report",
        ],
    ),
    (
        "rx",
        &[
            "i", "duration", "workers", "cpus", "address", "criteria", "verbose", "json", "report",
        ],
    ),
    (
        "run",
        &[
            "rate",
            "duration",
            "keys",
            "print-plan",
            "criteria",
            "verbose",
            "quiet",
            "json",
            "live-json",
            "report",
        ],
    ),
    (
        "load",
        &[
            "client", "server", "cps", "cc", "rps", "request", "answer", "duration", "json",
            "report",
        ],
    ),
    (
        "http",
        &[
            "c", "t", "duration", "requests", "rate", "http2", "m", "criteria", "json", "report",
        ],
    ),
    (
        "sweep",
        &[
            "H",
            "test",
            "message",
            "request",
            "streams",
            "duration",
            "confidence",
            "plot",
            "json",
            "report",
        ],
    ),
    (
        "capture",
        &[
            "i",
            "w",
            "s",
            "c",
            "C",
            "W",
            "duration",
            "n",
            "self-test",
            "json",
        ],
    ),
    (
        "read",
        &[
            "n", "e", "v", "c", "from", "to", "w", "count", "info", "verify",
        ],
    ),
    (
        "bench rfc2544",
        &[
            "tx",
            "rx",
            "tests",
            "sizes",
            "fast",
            "conformance",
            "isolated",
            "bidir",
            "precision",
            "criteria",
            "json",
            "report",
        ],
    ),
    (
        "bench ndr",
        &[
            "tx",
            "rx",
            "sizes",
            "goals",
            "strict",
            "of",
            "fast",
            "isolated",
            "precision",
            "criteria",
            "json",
            "report",
        ],
    ),
    (
        "bench pdr",
        &[
            "tx",
            "rx",
            "sizes",
            "loss",
            "of",
            "fast",
            "isolated",
            "precision",
            "criteria",
            "json",
            "report",
        ],
    ),
    (
        "bench loss",
        &[
            "tx", "rx", "sizes", "max", "step", "of", "fast", "isolated", "duration", "criteria",
            "json", "report",
        ],
    ),
    (
        "bench mfr",
        &[
            "tx", "rx", "sizes", "max", "step", "bidir", "fast", "isolated", "duration",
            "criteria", "json", "report",
        ],
    ),
    (
        "bench impact",
        &[
            "tx", "rx", "sizes", "max", "ipv6", "ext", "loads", "fast", "isolated", "duration",
            "criteria", "json",
        ],
    ),
    (
        "bench latency",
        &[
            "tx",
            "rx",
            "sizes",
            "max",
            "latency-load",
            "fast",
            "isolated",
            "duration",
            "repetitions",
            "criteria",
            "json",
            "report",
        ],
    ),
    (
        "bench b2b",
        &[
            "tx",
            "rx",
            "sizes",
            "repetitions",
            "fast",
            "isolated",
            "precision",
            "criteria",
            "json",
            "report",
        ],
    ),
    (
        "bench recovery",
        &[
            "tx",
            "rx",
            "sizes",
            "repetitions",
            "fast",
            "isolated",
            "duration",
            "criteria",
            "json",
            "report",
        ],
    ),
    (
        "bench reset",
        &[
            "tx",
            "rx",
            "sizes",
            "trigger",
            "reset-kind",
            "patience",
            "isolated",
            "criteria",
            "json",
            "report",
        ],
    ),
    (
        "bench y1564",
        &[
            "tx",
            "rx",
            "sizes",
            "cir",
            "eir",
            "delay",
            "variation",
            "loss",
            "duration",
            "isolated",
            "json",
            "report",
        ],
    ),
    (
        "bench lb",
        &[
            "lab", "only", "trial", "confirm", "budget", "max", "verbose", "quiet", "json",
            "report",
        ],
    ),
    (
        "lab up",
        &[
            "as",
            "hosts",
            "links",
            "queues",
            "limit",
            "delay",
            "loss",
            "duplicate",
            "reorder",
            "rate",
            "backends",
        ],
    ),
];

/// Options that a command shares with others and always refuses.
const REFUSED: &[(&str, &[&str])] = &[
    (
        "wrk",
        &[
            "junit", "criteria", "max-loss", "plain", "interval", "seed", "quiet", "verbose",
        ],
    ),
    ("tx", &["max-loss"]),
    ("http", &["max-loss"]),
    ("sweep", &["max-loss"]),
    ("netserver", &["criteria", "max-loss"]),
    ("bench y1564", &["criteria", "max-loss"]),
];

/// Meaning of value names, listed once at the end of `--help`.
const MEANINGS: &[(&str, &str)] = &[
    (
        "TIME",
        "seconds (5, 0.5), or a number with ns, us, ms, s, m or h (200ms)",
    ),
    ("N", "a whole number, also with k, m or g (800, 20k, 1.5m)"),
    (
        "COUNT",
        "a whole number, also with k, m or g (800, 20k, 1.5m)",
    ),
    ("FRAMES", "whole numbers, also with k, m or g (800, 20k)"),
    (
        "PPS",
        "frames per second, also with k, m or g (800, 20k, 1.5m)",
    ),
    (
        "RATE",
        "frames per second (100k, 1.2mpps), bits per second at layer 1 (10gbps) or layer 2 \
         (9gbps-l2), a share of the line rate (37%), or max",
    ),
    ("RATES", "as --rate of trial: 200k, 1gbps"),
    ("LOAD", "a rate (100kpps, 1gbps, 40%), or a number (20k)"),
    ("BITS", "bits per second (100m, 1gbit)"),
    ("SPEED", "bits per second (100m, 2.5g)"),
    ("STAGE", "FROM:TO:TIME, in requests per second (0:10k:30s)"),
    ("SHARE", "0 to 1, or a percentage (0.001, 0.1%)"),
    (
        "CRITERION",
        "METRIC<=LIMIT or METRIC>=LIMIT, separated by commas",
    ),
    (
        "PORT",
        "IF, NODE/IF (in the network namespace NODE), xdp:IF, packet:IF, live:IF, memory:NAME or \
         file:PATH",
    ),
    (
        "IF",
        "an interface, or NODE/IF (in the network namespace NODE)",
    ),
    ("PROBE", "a kind (ipvs), or keys of [[probe]] in plans"),
    ("RANGE", "an address, FIRST-LAST or ADDRESS/LENGTH"),
    ("ADDRESSES", "an address, FIRST-LAST or ADDRESS/LENGTH"),
    ("PORTS", "a TCP or UDP port, or FIRST-LAST"),
    ("LIST", "numbers and ranges (2,4-5)"),
    ("ID", "0 to 4095 (load: 1 to 4094)"),
    ("LABEL", "0 to 1048575"),
    (
        "TIMESTAMP",
        "RFC 3339, seconds since 1970, or +TIME after the first packet (+1.5, +200ms)",
    ),
];

/// Meaning of PORT in commands that do not support every driver.
const PORTS: &[(&[&str], &str)] = &[
    (
        &["load", "http"],
        "IF, NODE/IF (in the network namespace NODE), xdp:IF, packet:IF or memory:NAME",
    ),
    (
        &["capture", "watch"],
        "IF, NODE/IF (in the network namespace NODE), xdp:IF, packet:IF, memory:NAME or file:PATH",
    ),
];

/// Returns true if an option has this letter or long name.
fn is_called(arg: &Arg, name: &str) -> bool {
    let mut letters = name.chars();
    match (letters.next(), letters.next()) {
        (Some(letter), None) => arg.get_short() == Some(letter),
        _ => arg.get_long() == Some(name),
    }
}

/// Returns the name of an option's value.
fn value_name(arg: &Arg) -> Option<&str> {
    let takes = arg.is_positional() || arg.get_action().takes_values();
    let first = arg.get_value_names().and_then(|n| n.first());
    first.filter(|_| takes).map(|n| n.as_str())
}

/// Gives an option a long help text. Man pages show only the long help of options that `-h` hides.
fn in_full(arg: Arg) -> Arg {
    let text = arg.get_long_help().or(arg.get_help()).cloned();
    match text {
        Some(text) if arg.is_hide_short_help_set() => arg.long_help(text),
        _ => arg,
    }
}

/// Returns the meanings of the value names of a command, without those that its options explain.
fn values(command: &Command) -> String {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let names: Vec<&str> = shown.filter_map(value_name).collect();
    let used = MEANINGS.iter().filter(|(name, _)| names.contains(name));
    let mut ports = PORTS.iter();
    let ports = ports.find(|(commands, _)| commands.contains(&command.get_name()));
    let lines: Vec<String> = used
        .map(|(name, meaning)| match (*name, ports) {
            ("PORT", Some((_, meaning))) => hung(name, meaning),
            _ => hung(name, meaning),
        })
        .collect();
    match lines.is_empty() {
        true => String::new(),
        false => format!("Values:\n{}", lines.join("\n")),
    }
}

/// Returns the overview of commands: names for `-h`, names and descriptions for `--help`.
fn overview(command: &Command, long: bool) -> String {
    let wide = GROUPS.iter().map(|g| g.0.len()).max().unwrap_or(0) + 3;
    let mut text = String::new();
    for (title, entries) in GROUPS.iter().filter(|(title, _)| !title.is_empty()) {
        let found = entries
            .iter()
            .filter_map(|e| command.find_subcommand(e.name));
        if !long {
            let names: Vec<&str> = found.map(Command::get_name).collect();
            let _ = writeln!(text, "  {title:wide$}{}", names.join("  "));
            continue;
        }
        let _ = writeln!(text, "{title}:");
        for command in found {
            let about = command
                .get_about()
                .map(ToString::to_string)
                .unwrap_or_default();
            let _ = writeln!(text, "{}", hung(command.get_name(), &about));
        }
        text.push('\n');
    }
    text.trim_end().to_owned()
}

/// Returns a name with its description, in lines of at most 100 characters.
fn hung(name: &str, about: &str) -> String {
    let mut lines = vec![format!("  {name:13}")];
    for word in about.split_whitespace() {
        let last = lines.last_mut().expect("there is a first line");
        if last.chars().count() + 1 + word.chars().count() <= 100 {
            if !last.ends_with(' ') {
                last.push(' ');
            }
            last.push_str(word);
        } else {
            lines.push(format!("  {:13}{word}", ""));
        }
    }
    lines.join("\n")
}

/// Arranges the options of a command and of its subcommands.
fn of_command(above: &str, command: Command) -> Command {
    let name = format!("{above} {}", command.get_name());
    let first = FIRST.iter().find(|(path, _)| *path == name.trim_start());
    let command = command.mut_args(|arg| {
        let refused = REFUSED.iter().find(|(path, _)| *path == name.trim_start());
        let is_refused = refused.is_some_and(|(_, names)| names.iter().any(|n| is_called(&arg, n)));
        let arg = if is_refused { arg.hide(true) } else { arg };
        let hidden = first.is_some_and(|(_, names)| {
            !arg.is_positional() && !names.iter().any(|n| is_called(&arg, n))
        });
        // Without it, the option would appear under the heading of the previous options.
        let arg = if arg.is_positional() {
            arg.help_heading(None::<&str>)
        } else {
            arg
        };
        in_full(if hidden {
            arg.hide_short_help(true)
        } else {
            arg
        })
    });
    let values = values(&command);
    let after = command.get_after_help().map(ToString::to_string);
    let command = match (values.is_empty(), after) {
        (true, _) => command,
        (false, None) => command.after_long_help(values),
        (false, Some(after)) => command.after_long_help(format!("{values}\n\n{after}")),
    };
    command.mut_subcommands(|c| of_command(&name, c))
}

/// Returns the command line of the program with its help arranged.
pub(crate) fn arranged(command: Command) -> Command {
    let command = command.mut_subcommands(|c| of_command("", c));
    let (short, long) = (overview(&command, false), overview(&command, true));
    // The text before the help is the only part that may differ between -h and --help.
    command
        .help_template(
            "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}{options}{after-help}",
        )
        .before_help(short)
        .before_long_help(long)
}

#[cfg(test)]
#[path = "../tests/all/samples.rs"]
mod samples;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{command_line, declared};

    /// Calls `f` for each leaf command with its name, except commands that take the command line of another tool.
    fn each(command: &Command, name: &str, f: &mut impl FnMut(&Command, &str)) {
        for sub in command.get_subcommands().filter(|c| !c.is_hide_set()) {
            let name = format!("{name} {}", sub.get_name());
            if sub.has_subcommands() {
                each(sub, &name, f);
            } else if !["wrk", "netperf", "netserver"].contains(&sub.get_name()) {
                f(sub, &name);
            }
        }
    }

    /// Calls `f` for each command that is shown, with its name.
    fn all(command: &Command, name: &str, f: &mut impl FnMut(&Command, &str)) {
        f(command, name);
        for sub in command.get_subcommands().filter(|c| !c.is_hide_set()) {
            all(sub, &format!("{name} {}", sub.get_name()), f);
        }
    }

    /// Returns the command line with all subcommands built.
    fn built() -> Command {
        let mut line = command_line();
        line.build();
        line
    }

    #[test]
    fn man_pages_describe_every_option() {
        let mut wrong = Vec::new();
        all(&built(), "wirebench", &mut |command, name| {
            let mut page = Vec::new();
            let man = clap_mangen::Man::new(command.clone());
            man.render_options_section(&mut page).unwrap();
            let page = String::from_utf8(page).unwrap();
            // A tagged paragraph is a line with the option, followed by its text.
            for part in page.split("\n.TP\n").skip(1) {
                let mut lines = part.lines();
                let option = lines.next().unwrap_or_default();
                if lines
                    .next()
                    .is_none_or(|text| text.trim().is_empty() || text.starts_with('.'))
                {
                    wrong.push(format!("{name}: {option}"));
                }
            }
        });
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn man_pages_have_sections_for_values_and_examples() {
        all(&built(), "wirebench", &mut |command, name| {
            let (file, page) = crate::commands::meta::man_page(command).unwrap();
            assert!(
                file.starts_with("wirebench") && file.ends_with(".1"),
                "{file}"
            );
            let title = page.lines().find(|line| line.starts_with(".TH")).unwrap();
            assert!(title.contains(" 1 \" \" \"wirebench "), "{title}");
            let help = command.clone().render_long_help().to_string();
            for (heading, section) in [
                ("\nValues:\n", ".SH VALUES\n"),
                ("\nExample", ".SH EXAMPLES\n"),
            ] {
                let both = (help.contains(heading), page.contains(section));
                assert!(
                    matches!(both, (true, true) | (false, false)),
                    "{name}: {section}"
                );
            }
        });
    }

    #[test]
    fn man_pages_name_exit_codes_and_related_pages() {
        all(&built(), "wirebench", &mut |command, name| {
            let (file, page) = crate::commands::meta::man_page(command).unwrap();
            assert_eq!(page.matches(".SH \"EXIT STATUS\"\n").count(), 1, "{name}");
            let (_, related) = page.split_once(".SH \"SEE ALSO\"\n").unwrap();
            assert_eq!(
                related.contains(".BR wirebench (1)"),
                file != "wirebench.1",
                "{name}"
            );
            for below in command.get_subcommands().filter(|c| !c.is_hide_set()) {
                let (below, _) = crate::commands::meta::man_page(below).unwrap();
                let page = below.trim_end_matches(".1").replace('-', "\\-");
                assert!(
                    related.contains(&format!(".BR {page} (1)")),
                    "{name}: {page}"
                );
            }
        });
    }

    /// Returns the parser of an option alone.
    fn parser(arg: &Arg) -> Command {
        let alone = Arg::new("value").value_parser(arg.get_value_parser().clone());
        Command::new("x").arg(alone.allow_hyphen_values(true))
    }

    #[test]
    fn every_value_has_a_sample_that_is_allowed() {
        let mut wrong = Vec::new();
        each(&built(), "wirebench", &mut |command, name| {
            let shown = command.get_arguments().filter(|a| !a.is_hide_set());
            for arg in shown.filter(|a| !a.is_positional()) {
                let Some(value) = value_name(arg) else {
                    continue;
                };
                let possible = !arg.get_possible_values().is_empty();
                let option = format!("--{}", arg.get_long().unwrap_or_default());
                let Some(sample) = samples::sample(&option, value).filter(|_| !possible) else {
                    if !possible {
                        wrong.push(format!("{name}: {arg}: {value}"));
                    }
                    continue;
                };
                for sample in sample.split(arg.get_value_delimiter().unwrap_or('\0')) {
                    if let Err(e) = parser(arg).try_get_matches_from(["x", sample]) {
                        wrong.push(format!("{name}: {arg}: {e}"));
                    }
                }
            }
        });
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// Value names of whole numbers that are not counts, and so have no suffix for thousands.
    const NOT_COUNTS: [&str; 13] = [
        "NUMBER", "BYTES", "KIB", "MIB", "NS", "SECONDS", "SIZE", "SIZES", "SLOTS", "ID", "LABEL",
        "STATUS", "SPEED",
    ];

    /// Times may be bare seconds, counts and rates may have k, m or g; a limit may only be named as such.
    #[test]
    fn times_are_seconds_and_counts_have_suffixes() {
        let types = |parsers: Vec<clap::builder::ValueParser>| {
            move |arg: &Arg| {
                let own = arg.get_value_parser().type_id();
                parsers.iter().any(|p| p.type_id() == own)
            }
        };
        let is_time = types(vec![clap::value_parser!(wb_model::units::Span).into()]);
        let is_number = types(vec![
            clap::value_parser!(u8).into(),
            clap::value_parser!(u16).into(),
            clap::value_parser!(u32).into(),
            clap::value_parser!(u64).into(),
            clap::value_parser!(i32).into(),
            clap::value_parser!(i64).into(),
        ]);
        let mut wrong = Vec::new();
        let mut tried = std::collections::BTreeMap::new();
        all(&built(), "wirebench", &mut |command, name| {
            for arg in command.get_arguments() {
                let Some(value) = value_name(arg) else {
                    continue;
                };
                let texts: &[&str] = match value {
                    "TIME" | "INTERVAL" => &["5", "0.5", "200ms"],
                    "N" | "COUNT" | "FRAMES" | "PPS" | "LOAD" => &["5", "2k", "1.5m"],
                    "RATE" | "RATES" | "BITS" => &["5", "2k", "1.5m"],
                    _ if is_time(arg) => {
                        wrong.push(format!("{name}: {arg}: a time, so TIME"));
                        continue;
                    }
                    _ if NOT_COUNTS.contains(&value) || value.contains(['|', '%']) => continue,
                    _ if is_number(arg) && arg.get_possible_values().is_empty() => &["5", "2k"],
                    _ => continue,
                };
                *tried.entry(value.to_owned()).or_insert(0) += 1;
                for text in texts {
                    if let Err(e) = parser(arg).try_get_matches_from(["x", text])
                        && !e.to_string().contains("must be between")
                    {
                        wrong.push(format!("{name}: {arg}: {e}"));
                    }
                }
            }
        });
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        for (value, least) in [
            ("TIME", 50),
            ("N", 60),
            ("RATE", 5),
            ("LOAD", 5),
            ("BITS", 2),
        ] {
            assert!(tried[value] >= least, "{tried:?}");
        }
    }

    #[test]
    fn examples_are_written_by_hand() {
        all(&built(), "wirebench", &mut |command, name| {
            let declared = declared();
            let mut path = name.split(' ').skip(1);
            // The library adds commands for help.
            let Some(declared) = path.try_fold(&declared, |c, sub| c.find_subcommand(sub)) else {
                return;
            };
            for arg in command.get_arguments() {
                let text = arg
                    .get_long_help()
                    .or(arg.get_help())
                    .map(ToString::to_string);
                let own = declared
                    .get_arguments()
                    .find(|a| a.get_id() == arg.get_id());
                let own = own.and_then(|a| a.get_long_help().or(a.get_help()));
                // Only --help and --version are added by the library.
                if let Some(own) = own {
                    assert_eq!(text, Some(own.to_string()), "{name}: {arg}");
                }
            }
        });
    }

    #[test]
    fn values_are_explained_once() {
        all(&built(), "wirebench", &mut |command, name| {
            let help = command.clone().render_long_help().to_string();
            let (_, values) = help.split_once("\nValues:\n").unwrap_or_default();
            let values = values.split("\n\n").next().unwrap_or_default();
            let shown = command.get_arguments().filter(|a| !a.is_hide_set());
            for value in shown.filter_map(value_name) {
                let rows = values
                    .lines()
                    .filter(|l| l.starts_with(&format!("  {value} ")));
                let known = MEANINGS.iter().any(|(name, _)| *name == value);
                assert_eq!(rows.count(), usize::from(known), "{name}: {value}\n{help}");
            }
        });
    }

    #[test]
    fn short_help_has_the_options_one_needs_first() {
        let command = command_line();
        for (of, names) in FIRST {
            let mut found = None;
            each(&command, "", &mut |c, name| {
                if name.trim_start() == *of {
                    found = Some(c.clone());
                }
            });
            let command = found.unwrap_or_else(|| panic!("no command {of}"));
            for name in *names {
                assert!(
                    command.get_arguments().any(|a| is_called(a, name)),
                    "{of} has no {name}"
                );
            }
            let shown =
                |a: &&Arg| !a.is_positional() && !a.is_hide_set() && !a.is_hide_short_help_set();
            let shown = command.get_arguments().filter(shown).count();
            assert!(shown <= 12, "{of}: {shown} options");
        }
    }

    #[test]
    fn tools_with_two_kinds_of_options_say_which_stand_first() {
        let mut line = declared();
        for tool in ["netperf", "netserver", "wrk"] {
            let about = line.find_subcommand_mut(tool).unwrap().render_long_help();
            let about = about.to_string().replace('\n', " ");
            assert!(about.contains("wirebench options come "), "{tool}: {about}");
        }
    }
}
