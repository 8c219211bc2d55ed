use clap::{CommandFactory as _, Parser};
use serde::Deserialize;

use super::*;

/// Plan type of the tests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Job {
    /// Frames of a burst,
    /// with `pace = "fast"` (default 1).
    burst: u32,
    /// TCP flags.
    #[serde(skip_serializing_if = "Option::is_none")]
    flags: Option<u8>,
    /// Pace of `burst`.
    ///
    /// More about it.
    pace: Pace,
    /// Labels.
    labels: Vec<u32>,
    /// Changes of `unknown`.
    changes: Vec<String>,
    /// Also back.
    back: bool,
    /// Factor.
    factor: Option<f64>,
    /// Parameters.
    #[serde(skip_serializing_if = "Tcp::is_default")]
    tcp: Tcp,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Tcp {
    /// MTU of the path, without `rate`.
    mtu: u16,
    /// Rate.
    rate: wb_model::units::Rate,
}

impl Tcp {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Pace {
    /// Even pace.
    #[default]
    Even,
    /// At once, without `flags`.
    VeryFast,
}

impl Default for Job {
    fn default() -> Self {
        Self {
            burst: 1,
            flags: None,
            pace: Pace::Even,
            labels: Vec::new(),
            changes: Vec::new(),
            back: false,
            factor: None,
            tcp: Tcp::default(),
        }
    }
}

crate::options! {
    Table: Job = Job::default(), "Jobs", [
        Opt::new("bursts", "N").key("burst"),
        Opt::new("flags", "NUMBER"),
        Opt::new("pace", "PACE").with(|arg| arg.conflicts_with("bursts")),
        Opt::new("labels", "LABEL").list(),
        Opt::new("changes", "TEXT"),
        Opt::flag("back").help("Both ways (default no)").with(|arg| arg.short('b')),
        Opt::new("factor", "X"),
        Opt::new("mtu", "BYTES").key("tcp.mtu").of("Server"),
        Opt::new("rate", "RATE").key("tcp.rate").of("Server"),
    ]
}

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    job: Typed<Table>,
}

fn typed(line: &str) -> Result<Typed<Table>, String> {
    let words = std::iter::once("line").chain(line.split_whitespace());
    let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
    Ok(line.job)
}

#[test]
fn only_given_options_change_the_base() {
    let line = typed("--flags 0x10 --labels 1,2k -b --factor 0.5 --mtu 9k --pace very-fast");
    let line = line.unwrap();
    let base = Job {
        burst: 7,
        ..Job::default()
    };
    let job = Job {
        burst: 7,
        flags: Some(16),
        pace: Pace::VeryFast,
        labels: vec![1, 2000],
        back: true,
        factor: Some(0.5),
        tcp: Tcp {
            mtu: 9000,
            ..Tcp::default()
        },
        ..Job::default()
    };
    assert_eq!(line.over(&base), job);
    assert_eq!(line.first().as_deref(), Some("--flags"));
    assert!(line.has("tcp.mtu") && !line.has("burst"));
    let empty = typed("").unwrap();
    assert_eq!((empty.value(), empty.first()), (Job::default(), None));
    let repeated = typed("--changes a,b --changes c").unwrap().value();
    assert_eq!(repeated.changes, ["a,b", "c"]);
}

#[test]
fn errors_name_the_option_and_what_is_allowed() {
    for (line, expected) in [
        ("--bursts x", "'--bursts <N>': \"x\" is not a whole number"),
        (
            "--bursts 5g",
            "'--bursts <N>': must be between 0 and 4294967295",
        ),
        ("--flags 0x100", "must be between 0 and 255"),
        ("--flags 0xx", "not a hexadecimal number"),
        ("--pace slow", "[possible values: even, very-fast]"),
        ("--labels 1,x", "'x' for '--labels <LABEL>'"),
        ("--factor x", "expected a number, got string \"x\""),
        ("--factor nan", "expected a number, got string \"nan\""),
        ("--rate 5x", "'5x' for '--rate <RATE>': \"5x\" is not"),
        ("--pace even --bursts 1", "cannot be used with"),
    ] {
        let error = typed(line).unwrap_err();
        assert!(error.contains(expected), "{line}: {error}");
    }
}

#[test]
fn help_is_the_comment_of_the_field() {
    let command = Line::command();
    let help = |id: &str| {
        let mut args = command.get_arguments();
        let arg = args.find(|arg| arg.get_id() == id).unwrap().clone();
        assert_eq!(arg.get_help_heading(), Some("Jobs"));
        (
            arg.get_help().unwrap().to_string(),
            arg.get_long_help().map(ToString::to_string),
        )
    };
    let frames = "Frames of a burst, with --pace fast [default: 1]";
    assert_eq!(help("bursts"), (frames.to_owned(), None));
    let long = "Pace of --bursts.\n\nMore about it.";
    assert_eq!(
        help("pace"),
        ("Pace of --bursts".to_owned(), Some(long.to_owned()))
    );
    assert_eq!(help("changes").0, "Changes of unknown; repeatable");
    assert_eq!(help("mtu").0, "Server: MTU of the path, without --rate");
    assert_eq!(help("rate").0, "Server: rate");
    assert_eq!(help("back").0, "Both ways [default: no]");
    let text = Line::command().render_long_help().to_string();
    assert!(
        text.contains("- very-fast: At once, without --flags\n"),
        "{text}"
    );
}

#[test]
fn pairs_have_the_keys_of_the_plan() {
    let base = Job {
        labels: vec![9],
        ..Job::default()
    };
    let read = |text: &str| pairs::<Table>(&base, text);
    let job = read("burst=3 labels=1,2 changes=a,b changes=c back=true pace=very-fast").unwrap();
    assert_eq!((job.burst, &job.labels[..]), (3, &[1, 2][..]));
    assert_eq!(job.changes, ["a,b", "c"]);
    assert!(job.back && job.pace == Pace::VeryFast);
    assert_eq!(read("").unwrap(), base);
    for (text, expected) in [
        ("burst", "expected KEY=VALUE, got \"burst\""),
        ("brust=1", "unknown key \"brust\"; did you mean \"burst\"?"),
        ("pace.x=1", "unknown key \"pace.x\""),
        ("burst=x", "burst: \"x\" is not a whole number"),
        ("labels=1,x", "labels: \"x\" is not a whole number"),
        ("flags=256", "flags: must be between 0 and 255"),
        (
            "back=yes",
            "back: expected true or false, got string \"yes\"",
        ),
        ("burst=1 burst=1", "burst is given twice"),
        ("labels=1 labels=2", "labels is given twice"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}
