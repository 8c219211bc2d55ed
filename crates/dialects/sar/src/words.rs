//! Parser of sar's command line.

use std::{collections::BTreeSet, time::Duration};

use wb_getopt::{Argument, OptionRow, Piece, Pieces};

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SarTable {
    /// Interfaces.
    Dev,
    /// Errors of interfaces.
    Edev,
    /// Packets received by each CPU.
    Soft,
}

/// CPUs that have lines in the table `SOFT`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ShownCpus {
    /// One line for the sum of all CPUs.
    #[default]
    Together,
    /// The sum, and one line for each CPU (`-P ALL`).
    Each,
    /// Selected CPUs, with the sum if requested.
    Some {
        /// Includes the sum of all CPUs.
        together: bool,
        /// Selected CPUs.
        cpus: BTreeSet<u32>,
    },
}

/// A request for tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableRequest {
    /// Tables, in sar's order.
    pub tables: BTreeSet<SarTable>,
    /// Restricts the tables to these interfaces.
    pub interfaces: Option<Vec<String>>,
    /// CPUs of the table `SOFT`.
    pub cpus: ShownCpus,
    /// Time between two readings; zero is a single table since boot.
    pub interval: Duration,
    /// Number of tables; `None` is no limit.
    pub count: Option<u64>,
    /// Shows sizes with the letter of the unit.
    pub human: bool,
    /// Puts interface names at the end of the lines.
    pub pretty: bool,
    /// Number of decimals.
    pub decimals: usize,
    /// Omits lines with only zero counters.
    pub omit_zero: bool,
}

/// Action of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SarAction {
    /// Show tables.
    Tables(TableRequest),
    /// `--help`.
    Help,
    /// `-V`.
    Version,
}

/// Error line for a command line that sar rejects or that requests an unsupported function.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("sar: {0}")]
pub struct SarRefusal(String);

fn refuse<T>(text: impl Into<String>) -> Result<T, SarRefusal> {
    Err(SarRefusal(text.into()))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OptionWord {
    Network,
    Processors,
    Human,
    HumanAndPretty,
    Pretty,
    Interfaces,
    Decimals,
    OmitZero,
    Help,
    Version,
    /// No effect here: `-C` (comments of files), `-t` (times of files).
    Nothing,
    /// A function of sar that is not supported.
    NotHere(&'static str),
}

struct OptionEntry {
    letter: Option<char>,
    name: &'static str,
    argument: Argument,
    word: OptionWord,
}

impl OptionRow for OptionEntry {
    fn letter(&self) -> Option<char> {
        self.letter
    }

    fn name(&self) -> &str {
        self.name
    }

    fn argument(&self) -> Argument {
        self.argument
    }
}

const fn letter(letter: char, argument: Argument, word: OptionWord) -> OptionEntry {
    OptionEntry {
        letter: Some(letter),
        name: "",
        argument,
        word,
    }
}

const fn name(name: &'static str, argument: Argument, word: OptionWord) -> OptionEntry {
    OptionEntry {
        letter: None,
        name,
        argument,
        word,
    }
}

use Argument::{None as Alone, Required};
use OptionWord::NotHere;

static TABLE: [OptionEntry; 42] = [
    letter('n', Required, OptionWord::Network),
    letter('P', Required, OptionWord::Processors),
    letter('h', Alone, OptionWord::HumanAndPretty),
    letter('p', Alone, OptionWord::Pretty),
    letter('z', Alone, OptionWord::OmitZero),
    letter('V', Alone, OptionWord::Version),
    letter('C', Alone, OptionWord::Nothing),
    letter('t', Alone, OptionWord::Nothing),
    name("human", Alone, OptionWord::Human),
    name("pretty", Alone, OptionWord::Pretty),
    name("iface", Required, OptionWord::Interfaces),
    name("dec", Required, OptionWord::Decimals),
    name("help", Alone, OptionWord::Help),
    letter('A', Alone, NotHere("all tables")),
    letter('B', Alone, NotHere("paging")),
    letter('b', Alone, NotHere("transfers to disks")),
    letter('d', Alone, NotHere("block devices")),
    letter('F', Alone, NotHere("file systems")),
    letter('H', Alone, NotHere("huge pages")),
    letter('I', Alone, NotHere("interrupts")),
    letter('m', Required, NotHere("power")),
    letter('q', Alone, NotHere("load and pressure")),
    letter('r', Alone, NotHere("memory")),
    letter('S', Alone, NotHere("swap space")),
    letter('u', Alone, NotHere("CPU times")),
    letter('v', Alone, NotHere("kernel tables")),
    letter('W', Alone, NotHere("swapping")),
    letter('w', Alone, NotHere("tasks")),
    letter('y', Alone, NotHere("serial lines")),
    letter('j', Required, NotHere("names of disks")),
    letter('f', Alone, NotHere("reading a file")),
    letter('o', Alone, NotHere("writing a file")),
    letter('s', Alone, NotHere("times of a file")),
    letter('e', Alone, NotHere("times of a file")),
    letter('i', Required, NotHere("intervals of a file")),
    letter('D', Alone, NotHere("writing a file")),
    letter('x', Required, NotHere("processes")),
    letter('X', Required, NotHere("processes")),
    name("dev", Required, NotHere("block devices")),
    name("fs", Required, NotHere("file systems")),
    name("int", Required, NotHere("interrupts")),
    name("sadc", Alone, NotHere("the collector of files")),
];

/// Largest interval, s: the limit of sar's 32-bit integer.
const LONGEST: u64 = i32::MAX as u64;

/// Parses the words after `sar`.
///
/// # Errors
/// A line that describes the mistake or the unsupported function.
pub fn parse(words: &[String]) -> Result<SarAction, SarRefusal> {
    let mut request = TableRequest {
        decimals: 2,
        ..TableRequest::default()
    };
    let mut times: Vec<u64> = Vec::new();
    let mut before = "";
    for word in words {
        // sar accepts these options only as separate words.
        let joined = word.len() > 2 && word.starts_with('-') && !word.starts_with("--");
        if joined && word.contains(['n', 'P']) && !["-n", "-P"].contains(&before) {
            return refuse(format!(
                "{word}: -n and -P cannot be joined with other letters; write their value as a separate word: -h -n DEV"
            ));
        }
        before = word;
    }
    for piece in Pieces::new(&TABLE, words) {
        let (entry, argument) = match piece {
            Piece::Option(entry, argument) => (entry, argument.unwrap_or_default()),
            Piece::Word(word) => {
                match word.parse() {
                    Ok(time) if time <= LONGEST => times.push(time),
                    _ => {
                        return refuse(format!(
                            "interval and count: expected whole numbers up to {LONGEST}, got {word:?}"
                        ));
                    }
                }
                continue;
            }
            Piece::Bad(bad) => return refuse(format!("{bad}; see sar --help")),
        };
        match entry.word {
            OptionWord::Network => networks(argument, &mut request.tables)?,
            OptionWord::Processors => request.cpus = processors(argument)?,
            OptionWord::Human => request.human = true,
            OptionWord::HumanAndPretty => (request.human, request.pretty) = (true, true),
            OptionWord::Pretty => request.pretty = true,
            OptionWord::OmitZero => request.omit_zero = true,
            OptionWord::Interfaces => {
                let names = argument.split(',').filter(|n| !n.is_empty());
                let names: Vec<String> = names.map(ToOwned::to_owned).collect();
                // An empty list is no restriction.
                request.interfaces = Some(names).filter(|names| !names.is_empty());
            }
            OptionWord::Decimals => {
                request.decimals = match argument {
                    "0" => 0,
                    "1" => 1,
                    "2" => 2,
                    _ => return refuse(format!("--dec: must be 0, 1 or 2, got {argument}")),
                }
            }
            OptionWord::Help => return Ok(SarAction::Help),
            OptionWord::Version => return Ok(SarAction::Version),
            OptionWord::Nothing => {}
            NotHere(what) => {
                let option = match entry.letter {
                    Some(letter) => format!("-{letter}"),
                    None => format!("--{}", entry.name),
                };
                return refuse(format!(
                    "{option} ({what}) is not supported; only live tables are: -n DEV, EDEV, SOFT"
                ));
            }
        }
    }
    if request.tables.is_empty() {
        return refuse("no table given; use -n DEV, -n EDEV or -n SOFT, or several: -n DEV,EDEV");
    }
    match *times.as_slice() {
        [] => {
            return refuse(
                "no interval given; files of past activity are not supported: sar -n DEV INTERVAL [COUNT]",
            );
        }
        [_, 0] => return refuse("count: must be above 0, got 0; omit it for no limit"),
        [0, _] => {
            return refuse(
                "interval 0 is one report since the start of the machine; it has no count",
            );
        }
        [0] => request.count = Some(1),
        [interval] => request.interval = Duration::from_secs(interval),
        [interval, count] => {
            request.interval = Duration::from_secs(interval);
            request.count = Some(count);
        }
        [_, _, third, ..] => {
            return refuse(format!(
                "{third}: at most an interval and a count are allowed"
            ));
        }
    }
    Ok(SarAction::Tables(request))
}

fn networks(list: &str, tables: &mut BTreeSet<SarTable>) -> Result<(), SarRefusal> {
    for word in list.split(',').filter(|word| !word.is_empty()) {
        tables.insert(match word {
            "DEV" => SarTable::Dev,
            "EDEV" => SarTable::Edev,
            "SOFT" => SarTable::Soft,
            "NFS" | "NFSD" | "SOCK" | "IP" | "EIP" | "ICMP" | "EICMP" | "TCP" | "ETCP" | "UDP"
            | "SOCK6" | "IP6" | "EIP6" | "ICMP6" | "EICMP6" | "UDP6" | "FC" | "ALL" => {
                return refuse(format!("-n {word} is not supported; use DEV, EDEV or SOFT"));
            }
            _ => return refuse(format!("-n: unknown table {word:?}; use DEV, EDEV or SOFT")),
        });
    }
    Ok(())
}

/// `ALL`, `all`, numbers and ranges, in a list.
fn processors(list: &str) -> Result<ShownCpus, SarRefusal> {
    if list == "ALL" {
        return Ok(ShownCpus::Each);
    }
    let (mut together, mut cpus) = (false, BTreeSet::new());
    for word in list.split(',') {
        if word == "all" {
            together = true;
            continue;
        }
        let (from, to) = word.split_once('-').unwrap_or((word, word));
        match (from.parse::<u32>(), to.parse::<u32>()) {
            (Ok(from), Ok(to)) if from <= to && to < 8192 => cpus.extend(from..=to),
            _ => {
                return refuse(format!(
                    "-P: expected ALL, all or CPU numbers such as 0,2-5, got {word:?}"
                ));
            }
        }
    }
    Ok(ShownCpus::Some { together, cpus })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(line: &str) -> Result<SarAction, SarRefusal> {
        let words: Vec<String> = line.split_whitespace().map(ToOwned::to_owned).collect();
        parse(&words)
    }

    fn request(line: &str) -> TableRequest {
        match read(line) {
            Ok(SarAction::Tables(request)) => request,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn what_people_type() {
        let two = request("-n DEV 2");
        assert_eq!((two.interval.as_secs(), two.count), (2, None));
        assert_eq!(two.tables, BTreeSet::from([SarTable::Dev]));
        let all = request("1 5 -n SOFT,DEV -n EDEV --iface=eth0,lo -h --dec=1 -P 0,2-3 -z");
        assert_eq!(
            all.tables.into_iter().collect::<Vec<_>>(),
            [SarTable::Dev, SarTable::Edev, SarTable::Soft]
        );
        assert_eq!((all.count, all.decimals), (Some(5), 1));
        assert!(all.human && all.pretty && all.omit_zero);
        assert_eq!(all.interfaces.unwrap(), ["eth0", "lo"]);
        let cpus = BTreeSet::from([0, 2, 3]);
        assert_eq!(
            all.cpus,
            ShownCpus::Some {
                together: false,
                cpus
            }
        );
        assert_eq!(request("-n DEV 0").count, Some(1));
        for line in ["-n ,DEV --iface= 1", "-n DEV, --iface=, 1"] {
            let loose = request(line);
            assert_eq!(loose.tables, BTreeSet::from([SarTable::Dev]), "{line}");
            assert_eq!(loose.interfaces, None, "{line}");
        }
        assert_eq!(read("--help"), Ok(SarAction::Help));
        assert_eq!(read("-V"), Ok(SarAction::Version));
    }

    #[test]
    fn what_is_not_done_is_said_in_a_line() {
        for (line, part) in [
            ("-u 1 1", "-u (CPU times)"),
            ("-n TCP 1 1", "-n TCP is not supported"),
            ("-n DEV", "no interval"),
            ("-n BLA 1", "unknown table \"BLA\"; use DEV, EDEV or SOFT"),
            ("1 1", "no table"),
            ("-n DEV 1 0", "count: must be above 0, got 0"),
            ("-n DEV 0 3", "it has no count"),
            ("-n DEV 1 2 3", "3: at most an interval and a count"),
            (
                "-n DEV x",
                "expected whole numbers up to 2147483647, got \"x\"",
            ),
            ("-n DEV 99999999999", "got \"99999999999\""),
            ("-n DEV --dec=9 1", "--dec: must be 0, 1 or 2, got 9"),
            (
                "-n DEV -P x 1",
                "-P: expected ALL, all or CPU numbers such as 0,2-5, got \"x\"",
            ),
            ("-n", "requires an argument"),
            ("-o file 1", "-o (writing a file)"),
            ("-hn DEV 0", "-hn: -n and -P cannot be joined"),
            ("-nDEV 1 1", "-nDEV: -n and -P cannot be joined"),
            ("-n , 1 1", "no table"),
        ] {
            let said = read(line).unwrap_err().to_string();
            assert!(said.contains(part), "{line}: {said}");
            assert_eq!(said.lines().count(), 1);
        }
    }

    proptest! {
        #[test]
        fn no_words_break_it(words in prop::collection::vec("(-[a-zA-Z0-9]{1,3}|--[a-z]{1,6}=?.{0,4}|[0-9]{1,12}|.{0,6})", 0..6)) {
            let _ = parse(&words);
        }
    }
}
