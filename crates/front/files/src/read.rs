//! Capture files: printed, counted, verified, sliced, converted, merged, described and repaired.
//!
//! All processing is streaming: memory use does not depend on the size of the files.

mod filter;
mod foreign;
mod info;
mod input;
mod moment;
mod reorder;
mod repair;
mod show;
mod source;
#[cfg(test)]
mod tests;
mod verify;
mod write;

use std::{fmt, io, ops::ControlFlow, path::PathBuf};

use anyhow::{Result, bail};
use schemars::JsonSchema;
use serde::Serialize;
use wb_model::{counted, schema::mismatch, units::Span};
use wb_pcapng::LINK_ETHERNET;
use wb_render::figures::count;
use wb_session::Fault;
use wb_tcpdump::print::LinkType;

use self::{
    filter::Filter,
    input::{Input, Packet},
    reorder::Reorder,
    show::Show,
    source::{Source, Trouble},
    verify::Verify,
    write::Writer,
};
pub use self::{
    foreign::{Foreign, Program},
    info::describe,
    moment::{Moment, offsets},
    repair::{Repaired, repair_in_place, repair_into_copy},
    show::Printing,
    write::Order,
};
use crate::Output;

/// Name and version of the JSON documents.
const SCHEMA: &str = "wirebench.read/1";

/// JSON document of `read --json`.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ReadDocument {
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
pub struct CountDocument {
    /// `wirebench.read/1`.
    schema: &'static str,
    /// Number of packets that pass the filter.
    packets: u64,
}

/// Selection and order of packets.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Filter in the language of pcap-filter(7); empty for all packets.
    pub filter: String,
    /// Time of the first packet.
    pub from: Option<Moment>,
    /// Time after the last packet.
    pub to: Option<Moment>,
    /// Number of selected packets to skip first.
    pub skip: Option<u64>,
    /// Maximum number of packets.
    pub first: Option<u64>,
    /// Window in which packets are sorted by time stamp.
    pub reorder: Option<Span>,
}

impl Selection {
    /// Returns true if some packets may be omitted.
    #[must_use]
    pub fn omits_packets(&self) -> bool {
        !self.filter.is_empty()
            || self.first.is_some()
            || self.skip.is_some()
            || self.from.is_some()
            || self.to.is_some()
    }

    /// Returns true if tcpdump has the same means of selection.
    fn is_of_tcpdump(&self) -> bool {
        let ours = self.skip.is_some()
            || self.from.is_some()
            || self.to.is_some()
            || self.reorder.is_some()
            || self.first == Some(0);
        !ours
    }
}

/// Use of the selected packets.
#[derive(Clone, Debug)]
pub enum Target {
    /// The number of packets.
    Count {
        /// True for JSON instead of text.
        json: bool,
    },
    /// A check of the test tags.
    Verify {
        /// Number of frames sent per stream, if known.
        sent: Option<u64>,
        /// True for JSON instead of text.
        json: bool,
    },
    /// A file.
    File(Order),
    /// A program that prints packets.
    Program(Program),
}

/// Files to read, and the use of their packets.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Files, merged by time; `-` is standard input.
    pub files: Vec<PathBuf>,
    /// Selection and order of the packets.
    pub selection: Selection,
    /// Printing as lines, alone or in addition to the target.
    pub print: Option<Printing>,
    /// Use of the packets other than printing them as lines.
    pub target: Option<Target>,
    /// Options for tcpdump, if tcpdump may print a file in place of wirebench.
    pub tcpdump: Option<Vec<String>>,
}

/// Reads packets, and prints, counts, checks or writes them. Returns the exit code: 0 success, 1 a file is damaged or
/// test frames are missing, 2 a file is no capture file, 4 reading failed.
///
/// # Errors
/// If a file cannot be opened, the filter is invalid, or an output cannot be written; [`ClosedPipe`] if standard
/// output has no reader any more.
pub fn run(reading: &Reading, output: &dyn Output) -> Result<u8> {
    let selection = &reading.selection;
    let mut input = open(&reading.files)?;
    let filter = match selection.filter.as_str() {
        "" => None,
        text => Some(Filter::new(text, input.interfaces())?),
    };
    if let (Some(options), None) = (&reading.tcpdump, &reading.target)
        && selection.is_of_tcpdump()
        && input.is_for_libpcap()
        && let Some(code) = foreign::print_file(&reading.files[0], options, selection)?
    {
        return Ok(code);
    }
    let targets = Targets::new(reading, &input, output)?;
    if let None | Some(Target::Count { .. }) = reading.target {
        report_files(&input, output);
    }
    let mut path = PacketPath {
        selection,
        filter,
        first_ns: None,
        reorder: selection
            .reorder
            .map(|window| Reorder::new(window.as_nanos())),
        skip: selection.skip.unwrap_or(0),
        left: selection.first,
        targets,
    };
    path.all(&mut input)?;
    let code = path.finish(&input, reading.target.as_ref(), output)?;
    let troubles = input
        .troubles()
        .map(|(source, trouble)| report_trouble(source, trouble, output));
    Ok(troubles.fold(code, u8::max))
}

/// Opens capture files.
fn open(files: &[PathBuf]) -> Result<Input> {
    let input = Input::open(files)?;
    if let Some((source, foreign)) = input.troubles().find(|(_, trouble)| trouble.is_foreign()) {
        bail!("{}: {foreign}", source.name);
    }
    Ok(input)
}

/// Forms of a compiled filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramForm {
    /// One instruction per line.
    Listing,
    /// An array in C.
    C,
    /// Numbers.
    Decimal,
}

/// Returns the program of a filter for the first interface of the files.
///
/// # Errors
/// If a file cannot be opened, or the filter is invalid.
pub fn filter_program(files: &[PathBuf], filter: &str, form: ProgramForm) -> Result<String> {
    let input = open(files)?;
    let mut filter = Filter::new(filter, input.interfaces())?;
    let first = input.interfaces().first();
    let program = filter.program(first.map_or(LINK_ETHERNET, |first| first.link_type))?;
    Ok(match form {
        ProgramForm::Listing => program.listing(),
        ProgramForm::C => program.c_array(),
        ProgramForm::Decimal => program.decimal(),
    })
}

/// Destinations of selected packets.
struct Targets<'a> {
    counted: u64,
    verify: Option<Verify>,
    show: Option<Show<'a>>,
    write: Option<Writer>,
    /// External program that prints the packets.
    foreign: Option<foreign::Running>,
}

impl<'a> Targets<'a> {
    fn new(reading: &Reading, input: &Input, output: &'a dyn Output) -> Result<Self> {
        let mut targets = Self {
            counted: 0,
            verify: None,
            show: None,
            write: None,
            foreign: None,
        };
        match &reading.target {
            None | Some(Target::Count { .. }) => {}
            Some(Target::Verify { sent, .. }) => targets.verify = Some(Verify::new(*sent)),
            Some(Target::File(order)) => {
                let (order, section) = (order.clone(), input.section());
                let writer = Writer::create(order, &reading.files, section, output)?;
                targets.write = Some(writer);
            }
            Some(Target::Program(program)) => {
                let (running, pipe) = program.start()?;
                targets.write = Some(Writer::onto(program.order(), pipe, None)?);
                targets.foreign = Some(running);
            }
        }
        let print = reading.print.as_ref();
        targets.show = print.map(|printing| Show::new(printing, output));
        Ok(targets)
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
struct PacketPath<'a> {
    selection: &'a Selection,
    filter: Option<Filter>,
    /// Time stamp of the very first packet, in ns.
    first_ns: Option<u64>,
    reorder: Option<Reorder>,
    skip: u64,
    left: Option<u64>,
    targets: Targets<'a>,
}

impl PacketPath<'_> {
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
        let Selection { from, to, .. } = self.selection;
        if from.is_some_and(|from| stamp < from.from(first))
            || to.is_some_and(|to| stamp >= to.from(first))
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
    fn finish(self, input: &Input, target: Option<&Target>, output: &dyn Output) -> Result<u8> {
        let mut code = 0;
        let targets = self.targets;
        if let Some(mut show) = targets.show {
            show.flush()?;
        }
        if let Some(write) = targets.write {
            // Interface counters do not apply to a selection of packets.
            let statistics = if self.selection.omits_packets() {
                Vec::new()
            } else {
                input.statistics()
            };
            let as_pcapng = write.is_pcapng();
            write.finish(input.interfaces(), &statistics)?;
            report_left_out(input, as_pcapng, targets.foreign.is_some(), output);
        }
        if let Some(foreign) = targets.foreign {
            foreign.end()?;
        }
        if let Some(Target::Count { json }) = target {
            let packets = targets.counted;
            output.results(&if *json {
                let schema = SCHEMA;
                ReadDocument::Count(CountDocument { schema, packets }).text()?
            } else {
                counted(packets, "packet", "packets")
            })?;
        }
        if let (Some(Target::Verify { json, .. }), Some(verify)) = (target, &targets.verify) {
            output.results(&if *json {
                ReadDocument::Verify(verify.document()).text()?
            } else {
                verify.text()
            })?;
            code = u8::from(!verify.holds());
        }
        if let Some(reorder) = &self.reorder {
            report_order(reorder, output);
        }
        for line in input.oddities() {
            output.message(&format!("wirebench: {line}"));
        }
        Ok(code)
    }
}

/// Reports what a copy of the input lacks; a program that prints shows no details.
fn report_left_out(input: &Input, as_pcapng: bool, is_printed: bool, output: &dyn Output) {
    let lost = input.lost_details(as_pcapng);
    if !lost.is_empty() && !is_printed {
        output.message(&format!("wirebench: not copied: {}", lost.join(", ")));
    }
    let left_out = input.left_out_blocks();
    if left_out > 0 {
        output.message(&format!(
            "wirebench: not copied: {} without packets or statistics",
            counted(count(left_out), "block", "blocks")
        ));
    }
}

fn report_order(reorder: &Reorder, output: &dyn Output) {
    output.message(&format!(
        "wirebench: {} out of order; too late for the window, and still out of order: {}",
        counted(count(reorder.moved), "packet was", "packets were"),
        count(reorder.too_late)
    ));
    if reorder.hurried > 0 {
        output.message(&format!(
            "wirebench: the window exceeds its memory; {} early",
            counted(count(reorder.hurried), "packet left it", "packets left it")
        ));
    }
}

/// Reports tcpdump's line about each file.
fn report_files(input: &Input, output: &dyn Output) {
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
        output.message(&format!(
            "reading from file {name}, link-type {link}, snapshot length {snap_len}"
        ));
    }
}

/// Reports why a file could not be read to its end. Returns the exit code.
fn report_trouble(source: &Source, trouble: &Trouble, output: &dyn Output) -> u8 {
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
    output.message(&format!("wirebench: {name}: {trouble}{hint}"));
    match trouble {
        Trouble::Reading(_) => 4,
        _ if trouble.is_foreign() => 2,
        _ => 1,
    }
}

/// Error for a closed standard output, which ends the command without a message.
#[derive(Debug)]
pub struct ClosedPipe;

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
