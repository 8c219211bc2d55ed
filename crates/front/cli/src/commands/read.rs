//! `wirebench read`: prints, counts, verifies, slices, converts and merges capture files.

mod refused;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use jiff::tz::TimeZone;
use wb_files::{
    Output, check_standard_input,
    read::{
        self, ClosedPipe, Foreign, Moment, Order, Printing, Program, ProgramForm, Reading,
        Repaired, Selection, Target,
    },
};
use wb_model::{
    capture::{Compression, FileFormat, by_name},
    units::Span,
};
use wb_session::input::read_text;

use crate::{
    args::{PrintArgs, Refused, count_in},
    deliver::{deliver, print},
    say::say,
    stdout::stdout,
};

/// Read capture files: print as tcpdump does, count, slice, merge, convert, verify, repair.
///
/// Reads pcap and pcapng, uncompressed or compressed with zstd, lz4 or gzip, detected by content. Several files are
/// merged by time. The filter uses the language of pcap-filter(7) and begins with the first word that names no file.
/// A single uncompressed file is printed by tcpdump if it is installed. Otherwise Ethernet, VLAN, MPLS, ARP, STP,
/// IPv4, IPv6, ICMP, IGMP, TCP, UDP, GRE, VXLAN, ESP are printed; payloads of TCP and UDP are decoded only with --as
/// tcpdump and --decode.
#[derive(Args, Debug)]
#[command(args_override_self = true, infer_long_args = true)]
#[command(after_help = "Examples:\n  \
    wirebench read lan.pcapng\n  \
    wirebench read -nn -e -tttt lan.pcapng.zst tcp port 80 and not host 10.0.0.1\n  \
    wirebench read --as tcpdump -v lan.pcapng udp port 53\n  \
    wirebench read --count *.pcap 'udp[8:4] = 0xbe9be955'\n  \
    wirebench read --info --json lan.pcapng\n  \
    wirebench read a.pcap b.pcap -w merged.pcapng --compress zstd\n  \
    wirebench read lan.pcapng -w slice.pcap --from +10 --to +20 -s 96\n  \
    wirebench read --verify --sent 600000 test.pcapng\n  \
    wirebench read --repair cut.pcapng -w whole.pcapng\n\n\
    Exit codes: 0 success, 1 a file is damaged or --verify found losses, 2 bad input,\n\
    4 reading or writing failed.")]
pub(crate) struct ReadArgs {
    /// Files (`-` for standard input), followed by the filter.
    #[arg(value_name = "FILE|FILTER")]
    words: Vec<String>,
    /// File to read; all other words then form the filter.
    #[arg(short = 'r', long = "read", value_name = "FILE")]
    read: Vec<PathBuf>,
    /// Read the filter from this file.
    #[arg(short = 'F', value_name = "FILE")]
    filter_file: Option<PathBuf>,

    #[command(flatten)]
    printing: PrintArgs,
    /// Print less of each protocol.
    #[arg(short = 'q', help_heading = "Printing")]
    quiet: bool,
    /// Print more of each protocol, up to -vvv.
    #[arg(short = 'v', action = clap::ArgAction::Count, help_heading = "Printing")]
    verbose: u8,
    /// Use microseconds, the default for printing; also for a written pcap file.
    #[arg(long, conflicts_with = "nano", help_heading = "Printing")]
    micro: bool,
    /// Use nanoseconds, the default for written files; also for printing.
    #[arg(long, help_heading = "Printing")]
    nano: bool,
    /// Time stamp precision, as with --micro or --nano.
    #[arg(long, value_name = "micro|nano", conflicts_with_all = ["micro", "nano"], value_parser = ["micro", "nano"], help_heading = "Printing")]
    time_stamp_precision: Option<String>,

    /// Program that prints: tcpdump, which decodes DNS, DHCP, HTTP and a hundred more protocols, or wirebench
    /// [default: tcpdump for a single uncompressed file if it is installed and only -c and a filter select packets].
    #[arg(long = "as", value_name = "PROGRAM", value_parser = ["tcpdump", "wirebench"], conflicts_with_all = ["write", "task"], help_heading = "Printing")]
    print_as: Option<String>,
    /// Print with tshark, if installed; with -v all fields of each packet, with -x its bytes.
    #[arg(long, conflicts_with_all = ["write", "task", "print_as"], help_heading = "Printing")]
    decode: bool,

    /// Stop after this many packets.
    #[arg(
        short = 'c',
        long = "first",
        value_name = "N",
        value_parser = count_in::<u64>(0..),
        help_heading = "Selecting"
    )]
    first: Option<u64>,
    /// Number of packets to skip first.
    #[arg(long, value_name = "N", value_parser = count_in::<u64>(0..), help_heading = "Selecting")]
    skip: Option<u64>,
    /// Start at this time: RFC 3339, seconds since 1970, or +TIME after the first packet.
    #[arg(long, value_name = "TIMESTAMP", value_parser = moment, help_heading = "Selecting")]
    from: Option<Moment>,
    /// Stop before this time.
    #[arg(long, value_name = "TIMESTAMP", value_parser = moment, help_heading = "Selecting")]
    to: Option<Moment>,
    /// Sort packets by time stamp within a window [default window: 1s].
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "1s", help_heading = "Selecting")]
    reorder: Option<Span>,

    /// Write the packets to a file instead of printing them; `-` is standard output.
    #[arg(
        short = 'w',
        long = "write",
        value_name = "FILE",
        help_heading = "Writing"
    )]
    write: Option<PathBuf>,
    /// File format to write [default: pcap for names ending in .pcap or .cap, otherwise pcapng].
    #[arg(long, value_parser = ["pcapng", "pcap"], requires = "write", help_heading = "Writing")]
    format: Option<String>,
    /// Write pcap, as with --format pcap.
    #[arg(
        short = 'P',
        requires = "write",
        conflicts_with = "format",
        help_heading = "Writing"
    )]
    pcap: bool,
    /// Compression of the output [default: by file name .zst, .lz4 or .gz].
    #[arg(long, value_parser = ["zstd", "lz4", "gzip"], requires = "write", help_heading = "Writing")]
    compress: Option<String>,
    /// Bytes to keep of each written packet; 0 means all.
    #[arg(
        short = 's',
        long = "snapshot-length",
        value_name = "BYTES",
        help_heading = "Writing"
    )]
    snapshot_length: Option<usize>,
    /// Also print the packets that are written.
    #[arg(long, help_heading = "Writing")]
    print: bool,
    /// Flush the output after each packet.
    #[arg(short = 'U', help_heading = "Writing")]
    packet_buffered: bool,

    /// Print only the number of packets.
    #[arg(long, group = "task", help_heading = "Instead of printing")]
    count: bool,
    /// Describe each file: format, interfaces, packets, bytes, times, recorded losses.
    #[arg(long, group = "task", help_heading = "Instead of printing")]
    info: bool,
    /// Check the test tags of wirebench and pktgen for missing, duplicate and reordered packets.
    #[arg(long, group = "task", help_heading = "Instead of printing")]
    verify: bool,
    /// Keep the complete records of a truncated file, in a copy (-w COPY) or --in-place.
    #[arg(long, group = "task", help_heading = "Instead of printing")]
    repair: bool,
    /// With --repair: truncate each file after its last complete record; a complete file is unchanged.
    #[arg(long, requires = "repair", help_heading = "Instead of printing")]
    in_place: bool,
    /// Print the compiled filter; -dd prints C, -ddd numbers.
    #[arg(short = 'd', action = clap::ArgAction::Count, group = "task", help_heading = "Instead of printing")]
    dump_filter: u8,
    /// With --verify: number of frames sent per stream, so that losses at its ends also count.
    #[arg(
        long,
        value_name = "N",
        value_parser = count_in::<u64>(0..),
        requires = "verify",
        help_heading = "Instead of printing"
    )]
    sent: Option<u64>,
    /// Print --count, --info or --verify as JSON [default: --info].
    #[arg(long, help_heading = "Instead of printing")]
    json: bool,

    /// Options of tcpdump without effect here: user, link type, list of link types, mesh headers.
    #[arg(short = 'Z', long = "relinquish-privileges", hide = true)]
    user: Option<String>,
    #[arg(short = 'y', long = "linktype", hide = true)]
    link_type: Option<String>,
    #[arg(short = 'L', long = "list-data-link-types", hide = true)]
    link_types: bool,
    #[arg(short = 'H', hide = true)]
    mesh: bool,

    #[command(flatten)]
    refused: Refused<refused::Reading>,
}

/// Outputs of the process.
struct Outputs;

impl Output for Outputs {
    fn results(&self, text: &str) -> Result<()> {
        Ok(deliver(text)?)
    }

    fn message(&self, line: &str) {
        say(line);
    }

    fn packets(&self) -> io::Result<Box<dyn Write>> {
        Ok(Box::new(stdout()?))
    }
}

pub(crate) fn run(args: &ReadArgs) -> Result<u8> {
    match read_files(args) {
        Err(error) if error.is::<ClosedPipe>() => Ok(0),
        result => result,
    }
}

fn read_files(args: &ReadArgs) -> Result<u8> {
    args.refused.check()?;
    let (files, filter) = args.words()?;
    let selection = args.selection(filter);
    args.check(&files, &selection)?;
    if args.repair {
        return args.repair(&files);
    }
    if args.shows_info() {
        return read::describe(&files, args.json, &Outputs);
    }
    let form = match args.dump_filter {
        0 => {
            let reading = args.reading(files, selection)?;
            return read::run(&reading, &Outputs);
        }
        1 => ProgramForm::Listing,
        2 => ProgramForm::C,
        _ => ProgramForm::Decimal,
    };
    deliver(&read::filter_program(&files, &selection.filter, form)?)?;
    Ok(0)
}

fn moment(text: &str) -> Result<Moment, String> {
    Moment::parse(text, &TimeZone::system())
}

impl ReadArgs {
    /// Splits the words into files and the filter.
    fn words(&self) -> Result<(Vec<PathBuf>, String)> {
        let mut files = self.read.clone();
        let mut words = &self.words[..];
        if files.is_empty() {
            let is_file = |word: &String| word == "-" || Path::new(word).exists();
            // The first word is a file even if no such file exists, for a clear error message.
            let count = words
                .iter()
                .skip(1)
                .take_while(|word| is_file(word))
                .count();
            let (names, rest) = words.split_at(words.len().min(1 + count));
            files.extend(names.iter().map(PathBuf::from));
            words = rest;
            if let Some(word) = words.first().filter(|word| looks_like_a_file(word)) {
                bail!("cannot open {word}: no such file");
            }
        }
        if files.is_empty() {
            bail!("no file given; use `wirebench read FILE`, or - for standard input");
        }
        check_standard_input(&files)?;
        let expression = match &self.filter_file {
            None => words.join(" "),
            Some(_) if !words.is_empty() => {
                bail!("a filter and -F exclude each other")
            }
            Some(path) => read_text(path)
                .with_context(|| format!("cannot read {}", path.display()))?
                .trim()
                .to_owned(),
        };
        Ok((files, expression))
    }

    fn check(&self, files: &[PathBuf], selection: &Selection) -> Result<()> {
        let task = [
            (self.count, "--count"),
            (self.info, "--info"),
            (self.verify, "--verify"),
            (self.repair, "--repair"),
            (self.dump_filter > 0, "-d"),
        ];
        let task = task.iter().find_map(|(on, name)| on.then_some(*name));
        if let (Some(task), Some(_), false) = (task, &self.write, self.repair) {
            bail!("{task} and -w exclude each other");
        }
        if self.repair {
            self.check_repair(files)?;
        }
        let writes = self.write.is_some() || self.repair || self.dump_filter > 0;
        if self.json && writes {
            bail!("--json needs --count, --info or --verify");
        }
        let whole_files = self.shows_info() || self.repair;
        if whole_files && (selection.omits_packets() || selection.reorder.is_some()) {
            bail!(
                "{} reads whole files: filters, times and packet counts are not supported",
                task.unwrap_or("--json")
            );
        }
        if self.print && self.write.as_deref() == Some(Path::new("-")) {
            bail!("-w - and --print exclude each other: both use standard output");
        }
        Ok(())
    }

    fn check_repair(&self, files: &[PathBuf]) -> Result<()> {
        match (&self.write, self.in_place) {
            (None, false) => {
                bail!("--repair needs -w COPY (write a copy) or --in-place (truncate the file)")
            }
            (Some(_), true) => bail!("-w COPY and --in-place exclude each other"),
            (Some(_), false) if files.len() > 1 => {
                bail!("--repair -w needs exactly one file")
            }
            (None, true) if files.iter().any(|file| file.as_os_str() == "-") => {
                bail!("--in-place needs a file; standard input cannot be truncated")
            }
            _ => {}
        }
        let converts = self.format.is_some()
            || self.pcap
            || self.compress.is_some()
            || self.snapshot_length.is_some()
            || self.print;
        if converts {
            bail!(
                "--repair copies records unmodified; it excludes --format, -P, --compress, -s and --print"
            );
        }
        Ok(())
    }

    /// Returns true if file contents are described.
    const fn shows_info(&self) -> bool {
        self.info || self.json && !self.count && !self.verify
    }

    /// Repairs the files. Returns exit code 1 if one has no complete record.
    fn repair(&self, files: &[PathBuf]) -> Result<u8> {
        let mut code = 0;
        for file in files {
            let repaired = match &self.write {
                Some(copy) => read::repair_into_copy(file, copy, &Outputs)?,
                None => read::repair_in_place(file)?,
            };
            match repaired {
                Repaired::Whole(text) if self.write.as_deref() == Some(Path::new("-")) => {
                    say(format_args!("wirebench: {text}"));
                }
                Repaired::Whole(text) => print(&text),
                Repaired::Nothing(text) => {
                    say(format_args!("wirebench: {text}"));
                    code = 1;
                }
            }
        }
        Ok(code)
    }

    fn selection(&self, filter: String) -> Selection {
        Selection {
            filter,
            from: self.from,
            to: self.to,
            skip: self.skip,
            first: self.first,
            reorder: self.reorder,
        }
    }

    /// Returns the work on the packets.
    fn reading(&self, files: Vec<PathBuf>, selection: Selection) -> Result<Reading> {
        let target = self.target();
        let shows = self.print || target.is_none();
        let options = self
            .printing
            .options(self.verbose, self.quiet, self.nano())?;
        let printing = Printing {
            options,
            zone: TimeZone::system(),
            line_by_line: self.printing.line_buffered,
        };
        Ok(Reading {
            files,
            selection,
            print: shows.then_some(printing),
            target,
            tcpdump: self.print_as.is_none().then(|| self.words_for_tcpdump()),
        })
    }

    fn target(&self) -> Option<Target> {
        let json = self.json;
        if self.count {
            return Some(Target::Count { json });
        }
        if self.verify {
            let sent = self.sent;
            return Some(Target::Verify { sent, json });
        }
        if let Some(path) = &self.write {
            return Some(Target::File(self.order(path)));
        }
        let (program, options) = match self.print_as.as_deref() {
            Some("tcpdump") => (Foreign::Tcpdump, self.words_for_tcpdump()),
            _ if self.decode => (
                Foreign::Tshark,
                self.printing.words_for_tshark(self.verbose),
            ),
            _ => return None,
        };
        Some(Target::Program(Program {
            program,
            options,
            cut: self.cut(),
            unbuffered: self.printing.line_buffered,
        }))
    }

    fn words_for_tcpdump(&self) -> Vec<String> {
        self.printing.words(self.verbose, self.quiet, self.nano())
    }

    fn micro(&self) -> bool {
        self.micro || self.time_stamp_precision.as_deref() == Some("micro")
    }

    fn nano(&self) -> bool {
        self.nano || self.time_stamp_precision.as_deref() == Some("nano")
    }

    /// Returns the maximum bytes kept of each packet, if limited.
    fn cut(&self) -> Option<usize> {
        self.snapshot_length.filter(|most| *most > 0)
    }

    fn order(&self, path: &Path) -> Order {
        let (format, compression) = by_name(&path.to_string_lossy());
        let is_pcap = match self.format.as_deref() {
            Some(format) => format == "pcap",
            None => self.pcap || format != FileFormat::Pcapng,
        };
        Order {
            path: path.to_owned(),
            format: match (is_pcap, self.micro()) {
                (false, _) => FileFormat::Pcapng,
                (true, false) => FileFormat::PcapNs,
                (true, true) => FileFormat::Pcap,
            },
            compression: match self.compress.as_deref() {
                Some("zstd") => Compression::Zstd,
                Some("lz4") => Compression::Lz4,
                Some(_) => Compression::Gzip,
                None => compression,
            },
            cut: self.cut(),
            unbuffered: self.packet_buffered,
        }
    }
}

/// Returns true if a word has the extension of a capture file, which no filter word has.
fn looks_like_a_file(word: &str) -> bool {
    [".pcap", ".pcapng", ".cap", ".zst", ".lz4", ".gz"]
        .iter()
        .any(|ending| word.ends_with(ending))
}
