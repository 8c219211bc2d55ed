//! Selection of the printed figures: the word after `-o`, `-O` or `-k`.

use wb_model::socket::{SocketJob, SocketTest};

use super::ProgramExit;
use super::selectors::{self, ALL, BLOCK_STARTS, BLOCKS, FigureItem, OURS, Selector};
use crate::{OutputForm, OutputOptions};

/// Figures to print, in blocks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FigureSelection {
    /// At most four blocks. `None` is a name that the original does not know and ignores.
    pub(crate) blocks: Vec<Vec<Option<&'static Selector>>>,
    /// Unknown names.
    unknown: Vec<String>,
}

/// Additional measurements that a selection requires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NeededMeasurements {
    /// Time of each operation: the job's `latency`.
    pub latency: bool,
    /// Names of congestion controls.
    pub congestion: bool,
    /// TCP statistics at the end of the test.
    pub tcp: bool,
}

impl FigureSelection {
    /// File named by the word after `-o`, `-O` or `-k`, which the caller reads into
    /// [`OutputOptions::selection_file`]. `None` if the word is `?`, `all`, a name or a list.
    #[must_use]
    pub fn file_of(word: &str) -> Option<&str> {
        let other = word.is_empty()
            || word == "?"
            || word.eq_ignore_ascii_case("all")
            || word.contains([',', ';'])
            || selectors::find(word).is_some()
            || word
                .split_whitespace()
                .any(|name| selectors::find(name).is_some());
        (!other).then_some(word)
    }

    /// Output if that file cannot be read; `errno` is the system's number.
    #[must_use]
    pub fn unreadable_file(file: &str, errno: i32) -> ProgramExit {
        ProgramExit {
            stdout: format!("Could not open output selection file '{file}' errno {errno}\n"),
            status: 255,
            ..ProgramExit::default()
        }
    }

    /// Figures selected by a command line.
    ///
    /// # Errors
    ///
    /// `?` prints the list of names and ends the program.
    pub fn of_command(show: &OutputOptions, job: &SocketJob) -> Result<Self, ProgramExit> {
        if show.form == OutputForm::Classic {
            return Ok(Self::default());
        }
        let Some(word) = show.selection.as_deref().filter(|word| !word.is_empty()) else {
            return Ok(Self::default_figures(show, job.test));
        };
        if word == "?" {
            return Err(ProgramExit {
                stdout: list_names(show),
                status: 1,
                ..ProgramExit::default()
            });
        }
        if word.eq_ignore_ascii_case("all") {
            return Ok(Self::all_figures(show));
        }
        match (Self::file_of(word), &show.selection_file) {
            (Some(file), None) => Err(Self::unreadable_file(file, ENOENT)),
            (Some(_), Some(content)) => Ok(Self::from_list(content.lines(), show.strict)),
            (None, _) => Ok(Self::from_list(word.split(';'), show.strict)),
        }
    }

    /// Additional measurements required by the selection.
    #[must_use]
    pub fn needs(&self) -> NeededMeasurements {
        let mut needs = NeededMeasurements::default();
        for one in self.blocks.iter().flatten().flatten() {
            match one.item {
                FigureItem::MinLatency
                | FigureItem::MaxLatency
                | FigureItem::P50Latency
                | FigureItem::P90Latency
                | FigureItem::P95Latency
                | FigureItem::P99Latency
                | FigureItem::P999Latency
                | FigureItem::P9999Latency
                | FigureItem::MeanLatency
                | FigureItem::StddevLatency => needs.latency = true,
                FigureItem::CongControl(_) => needs.congestion = true,
                FigureItem::Rtt
                | FigureItem::RttVar
                | FigureItem::Cwnd
                | FigureItem::PacingRate
                | FigureItem::DeliveryRate
                | FigureItem::TransportRetrans(_) => needs.tcp = true,
                _ => (),
            }
        }
        needs
    }

    /// Warning about ignored names, with its line end.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let names = self.unknown.join("', '");
        (!names.is_empty()).then(|| {
            format!("netperf: unknown output selectors are ignored: '{names}' ('?' lists all)\n")
        })
    }

    /// Names in blocks, separated by commas and blanks; the text of a header may contain blanks. Ignores empty blocks
    /// and
    /// those after the fourth.
    fn from_list<'a>(blocks: impl Iterator<Item = &'a str>, strict: bool) -> Self {
        let mut selection = Self::default();
        for block in blocks {
            let mut picked = Vec::new();
            for name in block.split(',').flat_map(split_names) {
                match selectors::find(name) {
                    Some(one) if one.item == FigureItem::End => break,
                    Some(one) => picked.push(Some(one)),
                    None => {
                        selection.unknown.push(name.to_owned());
                        // The original leaves the field of such a name empty.
                        if strict {
                            picked.push(None);
                        }
                    }
                }
            }
            if !picked.is_empty() {
                selection.blocks.push(picked);
            }
        }
        selection.blocks.truncate(BLOCKS);
        selection
    }

    fn all_figures(show: &OutputOptions) -> Self {
        let mut blocks: Vec<Vec<Option<&'static Selector>>> = Vec::new();
        for one in &ALL {
            if BLOCK_STARTS.contains(&one.name) {
                blocks.push(Vec::new());
            }
            if let Some(block) = blocks.last_mut() {
                block.push(Some(one));
            }
        }
        if let (false, Some(last)) = (show.strict, blocks.last_mut()) {
            last.extend(OURS.iter().map(Some));
        }
        Self {
            blocks,
            ..Self::default()
        }
    }

    /// Default selection.
    fn default_figures(show: &OutputOptions, test: SocketTest) -> Self {
        let ends: &[&str] = match test {
            SocketTest::Send | SocketTest::Mss | SocketTest::ServerCpu => {
                &["LSS_SIZE_END", "RSR_SIZE_END", "LOCAL_SEND_SIZE"]
            }
            SocketTest::Receive => &["RSS_SIZE_END", "LSR_SIZE_END", "REMOTE_SEND_SIZE"],
            SocketTest::Both | SocketTest::Rr | SocketTest::Crr | SocketTest::Cc => &[
                "LSS_SIZE_END",
                "LSR_SIZE_END",
                "RSR_SIZE_END",
                "RSS_SIZE_END",
                "REQUEST_SIZE",
                "RESPONSE_SIZE",
            ],
        };
        let result = ["ELAPSED_TIME", "THROUGHPUT", "THROUGHPUT_UNITS"];
        let cpu = [
            "LOCAL_CPU_UTIL",
            "LOCAL_CPU_PERCENT_USER",
            "LOCAL_CPU_PERCENT_SYSTEM",
            "LOCAL_CPU_PERCENT_IOWAIT",
            "LOCAL_CPU_PERCENT_IRQ",
            "LOCAL_CPU_PERCENT_SWINTR",
            "LOCAL_CPU_METHOD",
            "REMOTE_CPU_UTIL",
            "REMOTE_CPU_PERCENT_USER",
            "REMOTE_CPU_PERCENT_SYSTEM",
            "REMOTE_CPU_PERCENT_IOWAIT",
            "REMOTE_CPU_PERCENT_IRQ",
            "REMOTE_CPU_PERCENT_SWINTR",
            "REMOTE_CPU_METHOD",
            "LOCAL_SD",
            "REMOTE_SD",
            "SD_UNITS",
        ];
        let cpu: &[&str] = if show.local_cpu || show.remote_cpu {
            &cpu
        } else {
            &[]
        };
        let names = ends.iter().chain(&result).chain(cpu);
        Self {
            blocks: vec![names.map(|name| selectors::find(name)).collect()],
            ..Self::default()
        }
    }
}

/// Names between two commas.
fn split_names(text: &str) -> Vec<&str> {
    let text = text.trim();
    match selectors::find(text) {
        Some(_) => vec![text],
        None => text.split_whitespace().collect(),
    }
}

/// ENOENT: "No such file or directory".
const ENOENT: i32 = 2;

/// All names: one per line in the human form, otherwise in a single line.
fn list_names(show: &OutputOptions) -> String {
    let ours: &[Selector] = if show.strict { &[] } else { &OURS };
    let names: Vec<&str> = [&selectors::NOTHING]
        .into_iter()
        .chain(&ALL)
        .chain(ours)
        .chain([&selectors::END])
        .map(|one| one.name)
        .collect();
    let between = if show.form == OutputForm::Human {
        "\n"
    } else {
        ","
    };
    names.join(between) + "\n"
}
