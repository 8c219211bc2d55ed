//! Layout of the help: the overview in groups, `-h` with the most important options, `--help` with all options and
//! their units, defaults and examples. The text of an option is part of its declaration.

use std::fmt::Write as _;

use clap::{Arg, Command};

/// Groups of commands in the overview.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Measure",
        &["trial", "tx", "rx", "run", "bench", "report", "linerate"],
    ),
    ("Connections", &["load", "http", "sweep"]),
    ("Captures", &["capture", "read"]),
    ("Labs", &["demo", "lab"]),
    ("Host", &["doctor", "stat", "completions", "man", "schema"]),
    (
        "Compatibility",
        &["pktgen", "netperf", "netserver", "wrk", "sar"],
    ),
];

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

/// Value names in the help with their unit or form, and an example. A row with the name of an option overrides the
/// row of its value name.
const VALUES: &[(&str, &str, &str)] = &[
    ("TIME", "a number with ns, us, ms, s, m or h", "500ms"),
    (
        "RATE",
        "frames (pps, kpps, mpps), bits (bps, mbps, gbps; layer 1, or -l2), % of the line, or max",
        "100kpps",
    ),
    (
        "PORT",
        "IF, NODE/IF, xdp:IF, packet:IF, live:IF, memory:NAME or file:PATH",
        "wb-pair-a/a0",
    ),
    ("IF", "IF or NODE/IF", "eth0,wb-router-dut/da"),
    ("IF,IF,…", "", "eth0,wb-dut/da,wb-dut/db,eth1"),
    ("PROBE", "keys of [[probe]], or a kind", "ipvs"),
    ("ADDR", "an IPv4 or IPv6 address", "198.18.1.2"),
    (
        "RANGE",
        "ADDR, FIRST-LAST or ADDR/LEN",
        "198.18.1.2-198.18.1.99",
    ),
    (
        "ADDRESSES",
        "ADDR, FIRST-LAST or ADDR/LEN",
        "198.18.1.2-198.18.1.99",
    ),
    ("ADDRESS:PORT", "", "198.18.1.2:8080"),
    ("PORTS", "one, or FIRST-LAST", "1024-2047"),
    ("MAC", "six bytes in hexadecimal", "02:00:00:00:00:01"),
    ("FILE", "a path", "results.json"),
    (
        "--report",
        "a path that ends in .html, .md or .csv",
        "results.html",
    ),
    ("SET", "one or several", "1,1024"),
    ("--test", "", "tcp_stream,tcp_rr"),
    ("--congestion", "", "cubic,reno"),
    ("--close", "", "reset"),
    ("--rise", "", "steps"),
    ("--control-port", "", "12865"),
    ("--plot", "a path", "sweep.svg"),
    ("--replay", "a path", "trace.pcapng"),
    ("PATH", "a path", "/run/wirebench.sock"),
    ("DIR", "a path", "out"),
    ("N", "a number", "4"),
    ("LIST", "numbers and ranges", "2,4-5"),
    ("CPU", "numbers of CPUs", "2"),
    ("NODE", "", "wb-router-dut"),
    ("NAME", "", "lab1"),
    ("SHARE", "a number from 0 to 1, or with %", "0.1%"),
    (
        "CRITERION",
        "METRIC<=LIMIT or METRIC>=LIMIT",
        "loss<=0.1%,p99<=500us",
    ),
    ("SIZE", "", "64"),
    ("BYTES", "bytes", "4096"),
    ("MIB", "MiB", "256"),
    ("KIB", "KiB", "8192"),
    ("SECONDS", "seconds", "60"),
    ("MESSAGE", "", "http:1024"),
    ("METHOD", "", "POST"),
    ("HEADER", "", "X-Trace: 1"),
    ("EXTENSION", "", "destination,fragment"),
    ("TEXT", "", "id=1"),
    ("USER", "", "nobody"),
    ("PROGRAM", "", "gzip"),
    ("HEX", "hexadecimal digits", "deadbeef"),
    ("ID", "0 to 4095", "100"),
    ("LABEL", "0 to 1048575", "16,17"),
    ("NS", "nanoseconds", "1000"),
    ("X", "times as fast as recorded", "2"),
    ("MODIFIER", "", "sport=inc:1024-2047"),
    ("KEYS", "", "size=1518 rate=10kpps"),
    ("TAG", "", "none"),
    ("PROTO", "", "tcp"),
    ("--xdp-mode", "", "native"),
    ("--mode", "", "basic"),
    ("DIRECTION", "", "in"),
    ("TYPE", "", "host"),
    ("WHEN", "", "duration:60"),
    ("WHAT", "", "wait"),
    ("HOW", "", "write"),
    ("ORDER", "", "random"),
    ("--time", "", "osta"),
    ("--format", "", "pcap"),
    ("FORMAT", "", "dperf"),
    ("STAGE", "", "0:10k:30s,10k:10k:60s"),
    ("STATUS", "status codes", "200,204"),
    ("METRIC", "", "cps"),
    ("HOST", "a name or an address", "198.18.1.2"),
    ("LEVEL,WIDTH", "percent", "95,5"),
    ("PPS", "frames a second", "1000000"),
    ("WINDOW", "a time", "100ms"),
    ("ROUTE", "", "/a 200 1000 10ms"),
    ("PCI=IF", "", "0000:1b:00.0=eth3"),
    ("TIME:SHARE", "", "0s:0.1,5s:1"),
    ("FILE.html", "a path", "results.html"),
    ("FILE.xml", "a path", "results.xml"),
    ("1.2|1.3", "", "1.3"),
    ("DRIVER", "", "packet"),
    ("DIALECT", "", "osta"),
    ("TOOLS", "", "tcpdump"),
    ("RATES", "as --rate of trial", "200kpps"),
    ("SIZES", "bytes with FCS", "64,1518"),
    ("BITS", "bits per second", "100mbit"),
    ("--sport", "one, or FIRST-LAST", "1024-2047"),
    ("--dport", "one, or FIRST-LAST", "7"),
    ("--from", "RFC 3339, seconds since 1970, or +TIME", "+1.5"),
    ("--to", "RFC 3339, seconds since 1970, or +TIME", "+2s"),
    ("--compress", "", "zstd"),
    ("--on-enospc", "", "rotate-delete"),
    ("--direct", "", "always"),
    ("--linktype", "", "EN10MB"),
    ("--reading", "", "bytes:100"),
    ("IP:PORT", "", "127.0.0.1:9464"),
    ("--link-speed", "bits per second", "10g"),
    ("--vlan", "0 to 4095", "100"),
    (
        "LOAD",
        "a rate (100kpps, 1gbps, 40%) or a number (20k)",
        "100kpps",
    ),
    ("TEST", "", "throughput,latency"),
    ("GOAL", "", "ndr,pdr"),
    ("QUANTITY", "", "cps"),
    ("CMD", "a line for sh -c", "ssh dut reboot"),
    ("KIND", "", "power"),
    ("--modifiers", "", "bursts"),
    ("--burst-lengths", "", "16,1024"),
    ("--filter-conditions", "", "25"),
    ("--filters", "", "25"),
    ("--snmp-community", "", "public"),
    (
        "--latency-load",
        "a number from 0 to 1, or with %",
        "50%,90%",
    ),
];

/// Text for options without a default, unless their help text mentions one.
const ABSENT: &str = "Default: none.";

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

/// Returns the unit of an option's value, and an example.
fn value(arg: &Arg) -> Option<(&'static str, &'static str)> {
    if !arg.get_possible_values().is_empty() {
        // Possible values are listed anyway.
        return None;
    }
    let id = arg.get_long().map(|l| format!("--{l}"));
    let row = |name: &str| VALUES.iter().find(|row| row.0 == name);
    let row = id
        .and_then(|id| row(&id))
        .or_else(|| row(value_name(arg)?))?;
    Some((row.1, row.2))
}

/// Adds unit, default and example to the help of an option. For options that `-h` hides, man pages show only the long
/// help.
fn in_full(arg: Arg) -> Arg {
    let text = arg.get_long_help().or(arg.get_help());
    let Some(text) = text.map(ToString::to_string) else {
        return arg;
    };
    let Some((unit, sample)) = value(&arg) else {
        return match arg.is_hide_short_help_set() {
            true => arg.long_help(text),
            false => arg,
        };
    };
    let mut text = text.trim_end().to_owned();
    let mut end = String::new();
    if !unit.is_empty() {
        let _ = write!(end, "{}: {unit}. ", value_name(&arg).unwrap_or_default());
    }
    let says = ["efault", "Without", "unless"]
        .iter()
        .any(|w| text.contains(w));
    if arg.get_default_values().is_empty() && !says && !arg.is_required_set() {
        let _ = write!(end, "{ABSENT} ");
    }
    let name = match (arg.get_long(), arg.get_short()) {
        (Some(long), _) if arg.is_require_equals_set() => format!("--{long}="),
        (Some(long), _) => format!("--{long} "),
        (None, Some(short)) => format!("-{short} "),
        (None, None) => String::new(),
    };
    let quote = if sample.contains([' ', '*', '(', '&']) {
        "'"
    } else {
        ""
    };
    let _ = write!(end, "Example: {name}{quote}{sample}{quote}");
    let _ = write!(text, "\n{end}");
    arg.long_help(text)
}

/// Returns the overview of commands: names for `-h`, names and descriptions for `--help`.
fn overview(command: &Command, long: bool) -> String {
    let wide = GROUPS.iter().map(|g| g.0.len()).max().unwrap_or(0) + 3;
    let mut text = String::new();
    for (title, names) in GROUPS {
        let found = names.iter().filter_map(|n| command.find_subcommand(n));
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

/// Returns a command with its description, in lines of at most 100 characters.
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
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::Cli;

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

    #[test]
    fn man_pages_describe_every_option() {
        let mut wrong = Vec::new();
        let mut line = arranged(Cli::command());
        line.build();
        each(&line, "wirebench", &mut |command, name| {
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
                    .is_none_or(|text| text.is_empty() || text.starts_with(".SH"))
                {
                    wrong.push(format!("{name}: {option}"));
                }
            }
        });
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn every_value_has_a_unit_a_default_and_an_example_that_is_allowed() {
        let mut wrong = Vec::new();
        let mut line = arranged(Cli::command());
        line.build();
        each(&line, "wirebench", &mut |command, name| {
            let shown = command.get_arguments().filter(|a| !a.is_hide_set());
            for arg in shown.filter(|a| !a.is_positional() && value_name(a).is_some()) {
                let possible = !arg.get_possible_values().is_empty();
                let Some((_, sample)) = value(arg) else {
                    if !possible {
                        wrong.push(format!(
                            "{name}: {arg}: {}",
                            value_name(arg).unwrap_or_default()
                        ));
                    }
                    continue;
                };
                for sample in sample.split(arg.get_value_delimiter().unwrap_or('\0')) {
                    let alone = Arg::new("value").value_parser(arg.get_value_parser().clone());
                    let alone = Command::new("x").arg(alone.allow_hyphen_values(true));
                    if let Err(e) = alone.try_get_matches_from(["x", sample]) {
                        wrong.push(format!("{name}: {arg}: {e}"));
                    }
                }
            }
        });
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn short_help_has_the_options_one_needs_first() {
        let command = arranged(Cli::command());
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
        let mut line = Cli::command();
        for tool in ["netperf", "netserver", "wrk"] {
            let about = line.find_subcommand_mut(tool).unwrap().render_long_help();
            let about = about.to_string().replace('\n', " ");
            assert!(about.contains("wirebench options come "), "{tool}: {about}");
        }
    }

    #[test]
    fn every_command_stands_in_one_group() {
        let command = Cli::command();
        for sub in command.get_subcommands().filter(|c| !c.is_hide_set()) {
            let groups = GROUPS
                .iter()
                .filter(|(_, names)| names.contains(&sub.get_name()));
            assert_eq!(groups.count(), 1, "{}", sub.get_name());
        }
    }
}
