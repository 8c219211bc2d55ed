//! `wirebench read`: prints, counts, verifies, slices, converts and merges capture files.
//!
//! All processing is streaming: memory use does not depend on the size of the files.

mod filter;
mod foreign;
mod info;
mod input;
mod moment;
mod refused;
mod reorder;
mod repair;
mod show;
mod source;
mod verify;
mod write;

use std::{
    fmt, io,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use wb_model::{counted, schema::mismatch, units::Span};
use wb_pcapng::{LINK_ETHERNET, Precision};
use wb_render::figures::count;
use wb_session::input::read_text;
use wb_tcpdump::print::LinkType;

pub(crate) use self::moment::local_zone;
use self::{
    filter::Filter,
    foreign::Foreign,
    input::{Input, Packet},
    moment::Moment,
    refused::Reading as RefusedByReading,
    reorder::Reorder,
    show::Show,
    source::{Source, Trouble},
    verify::Verify,
    write::{Compression, FileFormat, Order, Writer},
};
use crate::{
    args::{PrintArgs, Refused, count_in},
    deliver::{Fault, deliver},
    say::say,
};

/// Name and version of the JSON documents.
const SCHEMA: &str = "wirebench.read/1";

/// JSON document of `read --json`.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum ReadDocument {
    /// Number of packets: `--count`.
    Count(CountDocument),
    /// Received and missing test frames: `--verify`.
    Verify(verify::VerifyDocument),
    /// Description of files: `--info`, or no other task.
    Info(info::InfoDocument),
}

impl ReadDocument {
    fn text(&self) -> Result<String> {
        debug_assert_eq!(mismatch(self), None, "a document matches its schema");
        Ok(serde_json::to_string_pretty(self)?)
    }
}

/// Number of packets.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CountDocument {
    /// `wirebench.read/1`.
    schema: &'static str,
    /// Number of packets that pass the filter.
    packets: u64,
}

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
    #[arg(long = "as", value_name = "PROGRAM", value_enum, conflicts_with_all = ["write", "task"], help_heading = "Printing")]
    print_as: Option<Foreign>,
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
    #[arg(long, value_name = "TIMESTAMP", help_heading = "Selecting")]
    from: Option<Moment>,
    /// Stop before this time.
    #[arg(long, value_name = "TIMESTAMP", help_heading = "Selecting")]
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
    #[arg(long, value_enum, requires = "write", help_heading = "Writing")]
    format: Option<FileFormat>,
    /// Write pcap, as with --format pcap.
    #[arg(
        short = 'P',
        requires = "write",
        conflicts_with = "format",
        help_heading = "Writing"
    )]
    pcap: bool,
    /// Compression of the output [default: by file name .zst, .lz4 or .gz].
    #[arg(long, value_enum, requires = "write", help_heading = "Writing")]
    compress: Option<Compression>,
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
    refused: Refused<RefusedByReading>,
}

pub(crate) fn run(args: &ReadArgs) -> Result<u8> {
    match read(args) {
        Err(error) if error.is::<ClosedPipe>() => Ok(0),
        result => result,
    }
}

fn read(args: &ReadArgs) -> Result<u8> {
    args.refused.check()?;
    let (files, expression) = args.words()?;
    args.check(&files, &expression)?;
    if args.repair {
        return match &args.write {
            Some(copy) => repair::into_copy(&files[0], copy),
            None => repair::in_place(&files),
        };
    }
    if args.shows_info() {
        return info::run(&files, args.json);
    }
    let mut input = Input::open(&files)?;
    if let Some((source, foreign)) = input.troubles().find(|(_, trouble)| trouble.is_foreign()) {
        bail!("{}: {foreign}", source.name);
    }
    if args.dump_filter > 0 {
        let mut filter = Filter::new(&expression, input.interfaces())?;
        let first = input
            .interfaces()
            .first()
            .map(|interface| interface.link_type);
        let program = filter.program(first.unwrap_or(LINK_ETHERNET))?;
        deliver(&match args.dump_filter {
            1 => program.listing(),
            2 => program.c_array(),
            _ => program.decimal(),
        })?;
        return Ok(0);
    }
    let filter = match expression.as_str() {
        "" => None,
        text => Some(Filter::new(text, input.interfaces())?),
    };
    if args.prints_plainly() && input.is_for_libpcap() {
        let name = &files[0];
        let words = args.printing.words(args.verbose, args.quiet, args.nano());
        if let Some(code) = foreign::print_file(name, &words, args.first, &expression)? {
            return Ok(code);
        }
    }
    let targets = Targets::new(args, &files, &input)?;
    if !args.verify && args.write.is_none() && args.foreign().is_none() {
        tell_files(&input);
    }
    let mut reading = Reading {
        filter,
        from: args.from,
        to: args.to,
        first_ns: None,
        reorder: args.reorder.map(|window| Reorder::new(window.as_nanos())),
        skip: args.skip.unwrap_or(0),
        left: args.first,
        targets,
    };
    reading.all(&mut input)?;
    let selects = args.selects(&expression);
    let code = reading.finish(&input, args, selects)?;
    let troubles = input
        .troubles()
        .map(|(source, trouble)| tell_trouble(source, trouble));
    Ok(troubles.fold(code, u8::max))
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
        if files.iter().filter(|file| file.as_os_str() == "-").count() > 1 {
            bail!("standard input (-) can be given only once");
        }
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

    fn check(&self, files: &[PathBuf], expression: &str) -> Result<()> {
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
        if whole_files && (self.selects(expression) || self.reorder.is_some()) {
            bail!(
                "{} reads whole files: filters, times and packet counts are not supported",
                task.unwrap_or("--json")
            );
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

    /// Returns true if packets are printed and only selected by means that tcpdump also has.
    fn prints_plainly(&self) -> bool {
        let prints = self.write.is_none() && !self.count && !self.verify;
        let selects = self.skip.is_some()
            || self.from.is_some()
            || self.to.is_some()
            || self.reorder.is_some()
            || self.first == Some(0);
        prints && !selects && self.print_as.is_none() && !self.decode
    }

    /// Returns the external program that prints the packets, if any.
    fn foreign(&self) -> Option<Foreign> {
        self.print_as
            .filter(|program| *program != Foreign::Wirebench)
            .or_else(|| self.decode.then_some(Foreign::Tshark))
    }

    /// Returns true if some packets are omitted.
    fn selects(&self, expression: &str) -> bool {
        !expression.is_empty()
            || self.first.is_some()
            || self.skip.is_some()
            || self.from.is_some()
            || self.to.is_some()
    }

    fn micro(&self) -> bool {
        self.micro || self.time_stamp_precision.as_deref() == Some("micro")
    }

    fn nano(&self) -> bool {
        self.nano || self.time_stamp_precision.as_deref() == Some("nano")
    }

    fn order(&self, path: &Path) -> Order {
        let (format, compression) = write::by_name(path);
        Order {
            path: path.to_owned(),
            format: match self.format {
                Some(format) => format,
                None if self.pcap => FileFormat::Pcap,
                None => format,
            },
            compression: self.compress.or(compression),
            precision: if self.micro() {
                Precision::Micro
            } else {
                Precision::Nano
            },
            cut: self.snapshot_length.filter(|most| *most > 0),
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

/// Destinations of selected packets.
struct Targets {
    counted: u64,
    verify: Option<Verify>,
    show: Option<Show>,
    write: Option<Writer>,
    /// External program that prints the packets.
    foreign: Option<foreign::Running>,
}

impl Targets {
    fn new(args: &ReadArgs, files: &[PathBuf], input: &Input) -> Result<Self> {
        let write = args.write.as_deref();
        if args.print && write == Some(Path::new("-")) {
            bail!("-w - and --print exclude each other: both use standard output");
        }
        let foreign = args.foreign();
        let shows =
            args.print || !(args.count || args.verify || write.is_some() || foreign.is_some());
        let order = write.map(|path| args.order(path));
        let printing = args
            .printing
            .options(args.verbose, args.quiet, args.nano())?;
        let (write, foreign) = match (order, foreign) {
            (Some(order), _) => (Some(Writer::create(order, files, input.section())?), None),
            (None, None) => (None, None),
            (None, Some(foreign)) => {
                let words = match foreign {
                    Foreign::Tshark => args.printing.words_for_tshark(args.verbose),
                    _ => args.printing.words(args.verbose, args.quiet, args.nano()),
                };
                let (running, pipe) = foreign.start(&words)?;
                let cut = args.snapshot_length.filter(|most| *most > 0);
                let order = foreign.order(cut, args.printing.line_buffered);
                (Some(Writer::onto(order, pipe, None)?), Some(running))
            }
        };
        Ok(Self {
            counted: 0,
            verify: args.verify.then(|| Verify::new(args.sent)),
            show: shows.then(|| Show::new(printing, args.printing.line_buffered)),
            write,
            foreign,
        })
    }

    fn take(&mut self, packet: &Packet, input: &Input) -> Result<()> {
        self.counted += 1;
        if let Some(verify) = &mut self.verify {
            verify.take(packet);
        }
        if let Some(show) = &mut self.show {
            show.packet(packet, input.interfaces())?;
        }
        if let Some(write) = &mut self.write {
            write.packet(packet, input.interfaces())?;
        }
        Ok(())
    }
}

/// Path of packets from the input to the targets.
struct Reading {
    filter: Option<Filter>,
    from: Option<Moment>,
    to: Option<Moment>,
    /// Time stamp of the very first packet, in ns.
    first_ns: Option<u64>,
    reorder: Option<Reorder>,
    skip: u64,
    left: Option<u64>,
    targets: Targets,
}

impl Reading {
    fn all(&mut self, input: &mut Input) -> Result<()> {
        if self.left == Some(0) {
            return Ok(());
        }
        while input.next().is_some() {
            let Some(packet) = input.current() else { break };
            if !self.selects(packet)? {
                continue;
            }
            let flow = match &mut self.reorder {
                None => self.pass(packet, input)?,
                Some(reorder) => {
                    reorder.push(packet.clone());
                    self.ordered(input)?
                }
            };
            if flow.is_break() {
                return Ok(());
            }
        }
        if let Some(reorder) = &mut self.reorder {
            reorder.finish();
            let _ = self.ordered(input)?;
        }
        Ok(())
    }

    fn selects(&mut self, packet: &Packet) -> Result<bool> {
        let stamp = packet.stamp_ns;
        let first = *self.first_ns.get_or_insert(stamp);
        if self.from.is_some_and(|from| stamp < from.from(first))
            || self.to.is_some_and(|to| stamp >= to.from(first))
        {
            return Ok(false);
        }
        match &mut self.filter {
            Some(filter) => filter.accepts(packet),
            None => Ok(true),
        }
    }

    /// Passes on the packets that have left the reorder window.
    fn ordered(&mut self, input: &Input) -> Result<ControlFlow<()>> {
        while let Some(packet) = self.reorder.as_mut().and_then(Reorder::pop) {
            if self.pass(&packet, input)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn pass(&mut self, packet: &Packet, input: &Input) -> Result<ControlFlow<()>> {
        if self.skip > 0 {
            self.skip -= 1;
            return Ok(ControlFlow::Continue(()));
        }
        self.targets.take(packet, input)?;
        if let Some(left) = &mut self.left {
            *left -= 1;
            if *left == 0 {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Finishes all outputs and prints the summary. Returns the exit code.
    fn finish(self, input: &Input, args: &ReadArgs, selects: bool) -> Result<u8> {
        let mut code = 0;
        let targets = self.targets;
        if let Some(mut show) = targets.show {
            show.flush()?;
        }
        if let Some(write) = targets.write {
            // Interface counters do not apply to a selection of packets.
            let statistics = if selects {
                Vec::new()
            } else {
                input.statistics()
            };
            let as_pcapng = write.is_pcapng();
            write.finish(input.interfaces(), &statistics)?;
            let lost = input.lost_details(as_pcapng);
            if !lost.is_empty() && targets.foreign.is_none() {
                say(format_args!("wirebench: not copied: {}", lost.join(", ")));
            }
            let left_out = input.left_out_blocks();
            if left_out > 0 {
                say(format_args!(
                    "wirebench: not copied: {} without packets or statistics",
                    counted(count(left_out), "block", "blocks")
                ));
            }
        }
        if let Some(foreign) = targets.foreign {
            foreign.end()?;
        }
        if args.count {
            deliver(&if args.json {
                let packets = targets.counted;
                let schema = SCHEMA;
                ReadDocument::Count(CountDocument { schema, packets }).text()?
            } else {
                counted(targets.counted, "packet", "packets")
            })?;
        }
        if let Some(verify) = &targets.verify {
            deliver(&if args.json {
                ReadDocument::Verify(verify.document()).text()?
            } else {
                verify.text()
            })?;
            code = u8::from(!verify.holds());
        }
        if let Some(reorder) = &self.reorder {
            tell_order(reorder);
        }
        for line in input.oddities() {
            say(format_args!("wirebench: {line}"));
        }
        Ok(code)
    }
}

fn tell_order(reorder: &Reorder) {
    say(format_args!(
        "wirebench: {} out of order; too late for the window, and still out of order: {}",
        counted(count(reorder.moved), "packet was", "packets were"),
        count(reorder.too_late)
    ));
    if reorder.hurried > 0 {
        say(format_args!(
            "wirebench: the window exceeds its memory; {} early",
            counted(count(reorder.hurried), "packet left it", "packets left it")
        ));
    }
}

/// Prints tcpdump's line about each file.
fn tell_files(input: &Input) {
    for (name, interface) in input.files() {
        let Some(interface) = interface else { continue };
        let link = match LinkType::from_number(interface.link_type) {
            Some(link) => format!("{} ({})", link.names().0, link.names().1),
            None => interface.link_type.to_string(),
        };
        let snap_len = match interface.snap_len {
            0 => wb_pcapng::MAX_CAPTURED as u32,
            len => len,
        };
        say(format_args!(
            "reading from file {name}, link-type {link}, snapshot length {snap_len}"
        ));
    }
}

/// Prints why a file could not be read to its end. Returns the exit code.
fn tell_trouble(source: &Source, trouble: &Trouble) -> u8 {
    let name = &source.name;
    let can_be_cut = matches!(trouble, Trouble::Damaged(_))
        && source.packing.is_none()
        && name != "-"
        && source.whole_bytes() > 0;
    let hint = if can_be_cut {
        format!("; `wirebench read --repair {name} -w COPY` saves the complete records")
    } else {
        String::new()
    };
    say(format_args!("wirebench: {name}: {trouble}{hint}"));
    match trouble {
        Trouble::Reading(_) => 4,
        _ if trouble.is_foreign() => 2,
        _ => 1,
    }
}

/// Error for a closed standard output, which ends the command without a message.
#[derive(Debug)]
struct ClosedPipe;

impl fmt::Display for ClosedPipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("standard output was closed")
    }
}

impl std::error::Error for ClosedPipe {}

/// Converts the result of writing to a file, or to standard output if the name is `-`.
fn written(result: io::Result<()>, name: &str) -> Result<()> {
    match result {
        Ok(()) => Ok(()),
        Err(error) if name == "-" && error.kind() == io::ErrorKind::BrokenPipe => {
            Err(ClosedPipe.into())
        }
        Err(error) if name == "-" => {
            Err(Fault(format!("cannot write to standard output: {error}")).into())
        }
        Err(error) => Err(Fault(format!("cannot write {name}: {error}")).into()),
    }
}
