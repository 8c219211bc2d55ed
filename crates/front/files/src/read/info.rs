//! Description of files: `--info`.

use std::path::PathBuf;

use anyhow::Result;
use schemars::JsonSchema;
use serde::Serialize;
use wb_pcapng::{
    CaptureInterface, CaptureSummary, Counts, Event, Format, InterfaceSummary, Statistics,
};
use wb_render::figures;
use wb_tcpdump::print::LinkType;

use super::{
    ReadDocument,
    moment::rfc3339,
    report_trouble,
    source::{Source, Trouble},
};
use crate::Output;

/// File that was read to its end, or to its last complete block.
struct Found {
    source: Source,
    summary: CaptureSummary,
    application: Option<String>,
    trouble: Option<Trouble>,
}

/// Describes each file as text, or all files in one JSON document. Returns the exit code, as [`run`](super::run).
///
/// # Errors
/// If a file cannot be opened, or the results cannot be written.
pub fn describe(files: &[PathBuf], json: bool, output: &dyn Output) -> Result<u8> {
    let mut code = 0;
    let mut documents = Vec::new();
    for (at, file) in files.iter().enumerate() {
        let found = look(Source::open(file)?);
        if json {
            documents.push(found.document());
        } else {
            let text = found.text();
            if !text.is_empty() {
                let gap = if at > 0 { "\n" } else { "" };
                output.results(&format!("{gap}{text}"))?;
            }
        }
        if let Some(trouble) = &found.trouble {
            code = code.max(report_trouble(&found.source, trouble, output));
        }
    }
    if json {
        let document = InfoDocument {
            schema: super::SCHEMA,
            files: documents,
        };
        output.results(&ReadDocument::Info(document).text()?)?;
    }
    Ok(code)
}

fn look(mut source: Source) -> Found {
    let mut summary = CaptureSummary::default();
    let mut application = None;
    let trouble = loop {
        let step = source.step(|item| {
            if let Event::Header(header) = &item.event
                && application.is_none()
            {
                application = header.section.application.map(str::to_owned);
            }
            summary.add(item);
        });
        match step {
            Ok(Some(())) => {}
            Ok(None) => break None,
            Err(trouble) => break Some(trouble),
        }
    };
    Found {
        source,
        summary,
        application,
        trouble,
    }
}

impl Found {
    fn format(&self) -> &'static str {
        match self.summary.format {
            None => "unknown",
            Some(Format::Pcap) => "pcap",
            Some(Format::Pcapng) => "pcapng",
        }
    }

    /// Returns the byte order of the file's section headers.
    fn byte_order(&self) -> &'static str {
        match self.summary.big_endian_sections {
            0 => "little endian",
            n if n == self.summary.sections => "big endian",
            _ => "both byte orders",
        }
    }

    fn text(&self) -> String {
        let summary = &self.summary;
        // A file of another format has no facts; its error is enough.
        if summary.format.is_none() && self.trouble.is_some() {
            return String::new();
        }
        let mut text = format!("{}: {}", self.source.name, self.format());
        if summary.format.is_some() {
            text += &format!(", {}", self.byte_order());
        }
        if summary.sections > 1 {
            text += &format!(", {} sections", figures::count(summary.sections));
        }
        if let Some(packing) = self.source.packing {
            text += &format!(", packed by {}", packing.name());
        }
        text += &format!(", {} bytes", figures::count(summary.file_bytes));
        if self.trouble.is_some() {
            text += " complete, then damaged";
        }
        if let Some(application) = &self.application {
            text += &format!(", written by {application}");
        }
        text += &format!("\n  {}\n", counts(&summary.total));
        text += &span(&summary.total);
        for (at, (interface, found)) in self.interfaces().enumerate() {
            text += &format!("  interface {at}: {}\n", described(interface));
            if self.summary.interfaces.len() > 1 {
                text += &format!("    {}\n", counts(&found.counts));
            }
            if let Some(drops) = found.counts.noted_drops {
                let drops = figures::count(drops);
                text += &format!("    drops recorded with packets: {drops}\n");
            }
            if let Some(statistics) = &found.statistics {
                text += &format!("    counted: {}\n", statistics_line(statistics));
            }
        }
        if summary.other_blocks > 0 {
            text += &format!("  other blocks: {}\n", figures::count(summary.other_blocks));
        }
        for line in self.source.oddities() {
            text += &format!("  odd: {line}\n");
        }
        text
    }

    fn interfaces(&self) -> impl Iterator<Item = (&CaptureInterface, &InterfaceSummary)> {
        self.source
            .interfaces()
            .iter()
            .zip(&self.summary.interfaces)
    }

    fn document(&self) -> FileInfo {
        let summary = &self.summary;
        let interfaces = self.interfaces().map(|(interface, found)| InterfaceInfo {
            name: interface.name.clone(),
            description: interface.description.clone(),
            filter: interface.filter.clone(),
            link_type: interface.link_type,
            snapshot_length: interface.snap_len,
            stamp_decimals: interface.time_unit.decimals(),
            counts: CountsInfo::from(&found.counts),
            statistics: found.statistics.as_ref().map(StatisticsInfo::from),
        });
        FileInfo {
            file: self.source.name.clone(),
            format: self.format(),
            byte_order: self.byte_order(),
            packing: self.source.packing.map(|p| p.name()),
            application: self.application.clone(),
            sections: summary.sections,
            content_bytes: summary.file_bytes,
            other_blocks: summary.other_blocks,
            oddities: self.source.oddities(),
            trouble: self.trouble.as_ref().map(ToString::to_string),
            counts: CountsInfo::from(&summary.total),
            interfaces: interfaces.collect(),
        }
    }
}

fn counts(counts: &Counts) -> String {
    let count = figures::count;
    let mut text = format!("packets {}", count(counts.packets));
    if counts.packets > 0 {
        text += &format!(
            "   bytes {} captured, {} on the wire",
            count(counts.captured_bytes),
            count(counts.original_bytes)
        );
    }
    if counts.cut_packets > 0 {
        text += &format!("   cut {}", count(counts.cut_packets));
    }
    if counts.out_of_order > 0 {
        text += &format!("   out of order {}", count(counts.out_of_order));
    }
    text
}

fn span(counts: &Counts) -> String {
    let (Some(first), Some(last)) = (counts.first_ns, counts.last_ns) else {
        return String::new();
    };
    let ns = counts.duration_ns().unwrap_or(0);
    let mut text = format!("  first {}   last {}\n", rfc3339(first), rfc3339(last));
    text += &format!(
        "  duration {}.{:09} s",
        ns / 1_000_000_000,
        ns % 1_000_000_000
    );
    if ns > 0 && counts.packets > 1 {
        let seconds = ns as f64 / 1e9;
        text += &format!(
            "   mean rate {}, {} captured",
            figures::rate_pps(counts.packets as f64 / seconds),
            figures::rate_bps(counts.captured_bytes as f64 * 8.0 / seconds)
        );
    }
    text + "\n"
}

fn described(interface: &CaptureInterface) -> String {
    let mut text = interface
        .name
        .clone()
        .unwrap_or_else(|| "(no name)".to_owned());
    text += &match LinkType::from_number(interface.link_type) {
        Some(link) => format!(", {}", link.names().1),
        None => format!(", link type {}", interface.link_type),
    };
    text += &match interface.snap_len {
        0 => ", snapshot length unlimited".to_owned(),
        len => format!(", snapshot length {len}"),
    };
    text += &format!(
        ", time stamps with {} decimals",
        interface.time_unit.decimals()
    );
    if let Some(filter) = &interface.filter {
        text += &format!(", filter \"{filter}\"");
    }
    text
}

/// Prints only statistics that the file contains, because writers differ.
fn statistics_line(found: &Statistics) -> String {
    let numbers = [
        ("received by the interface", found.if_received),
        ("dropped by the interface", found.if_dropped),
        ("passed the filter", found.filter_accepted),
        ("dropped for lack of space", found.os_dropped),
        ("delivered", found.delivered),
    ];
    let mut parts: Vec<String> = numbers
        .iter()
        .filter_map(|(what, n)| Some(format!("{what} {}", figures::count((*n)?))))
        .collect();
    match found.adds_up() {
        Some(true) => parts.push("adds up".to_owned()),
        Some(false) => parts.push("DOES NOT ADD UP".to_owned()),
        None => {}
    }
    if parts.is_empty() {
        parts.push("nothing".to_owned());
    }
    parts.join(", ")
}

/// JSON document of `read --info --json`.
#[derive(Serialize, JsonSchema)]
pub struct InfoDocument {
    /// `wirebench.read/1`.
    schema: &'static str,
    /// Files, in the order of the command line.
    files: Vec<FileInfo>,
}

/// Description of one file.
#[derive(Serialize, JsonSchema)]
struct FileInfo {
    /// Name of the file.
    file: String,
    /// `pcap`, `pcapng` or `unknown`.
    format: &'static str,
    /// `little endian`, `big endian` or `both byte orders`.
    byte_order: &'static str,
    /// Compression: `zstd`, `lz4` or `gzip`.
    packing: Option<&'static str>,
    /// Program that wrote the file.
    application: Option<String>,
    /// Number of sections; 1 for pcap.
    sections: u64,
    /// Length of all blocks, in bytes, without compression.
    content_bytes: u64,
    /// Number of blocks with neither packets nor descriptions nor statistics.
    other_blocks: u64,
    /// Deviations from the format.
    oddities: Vec<String>,
    /// Reason why the file could not be read to its end.
    trouble: Option<String>,
    /// Counts of all packets.
    #[serde(flatten)]
    counts: CountsInfo,
    /// Interfaces, in the order of the file.
    interfaces: Vec<InterfaceInfo>,
}

/// Description of one interface of a file.
#[derive(Serialize, JsonSchema)]
struct InterfaceInfo {
    /// Name of the interface.
    name: Option<String>,
    /// Description in free text.
    description: Option<String>,
    /// Capture filter.
    filter: Option<String>,
    /// Link type, as in the list of libpcap.
    link_type: u16,
    /// Maximum number of captured bytes per packet; 0 means no limit.
    snapshot_length: u32,
    /// Decimals of a second in timestamps, 0 to 9.
    stamp_decimals: u8,
    /// Counts of the packets of the interface.
    #[serde(flatten)]
    counts: CountsInfo,
    /// Latest statistics that the file has of the interface.
    statistics: Option<StatisticsInfo>,
}

/// Counts of packets.
#[derive(Serialize, JsonSchema)]
struct CountsInfo {
    /// Number of packets.
    packets: u64,
    /// Captured bytes.
    captured_bytes: u64,
    /// Bytes on the wire.
    original_bytes: u64,
    /// Packets that were captured only in part.
    cut_packets: u64,
    /// Earliest timestamp, in ns since 1970.
    first_ns: Option<u64>,
    /// Latest timestamp, in ns since 1970.
    last_ns: Option<u64>,
    /// Time between the earliest and the latest timestamp, in ns.
    duration_ns: Option<u64>,
    /// Packets with an earlier timestamp than a packet before them.
    out_of_order: u64,
    /// Losses recorded with packets; null if none are recorded.
    noted_drops: Option<u64>,
}

impl From<&Counts> for CountsInfo {
    fn from(counts: &Counts) -> Self {
        Self {
            packets: counts.packets,
            captured_bytes: counts.captured_bytes,
            original_bytes: counts.original_bytes,
            cut_packets: counts.cut_packets,
            first_ns: counts.first_ns,
            last_ns: counts.last_ns,
            duration_ns: counts.duration_ns(),
            out_of_order: counts.out_of_order,
            noted_drops: counts.noted_drops,
        }
    }
}

/// Statistics of an interface, as the file has them.
#[derive(Serialize, JsonSchema)]
struct StatisticsInfo {
    /// Time of the statistics, in ns since 1970.
    stamp_ns: u64,
    /// Start of the capture, in ns since 1970.
    start_ns: Option<u64>,
    /// End of the capture, in ns since 1970.
    end_ns: Option<u64>,
    /// Packets that the interface received.
    if_received: Option<u64>,
    /// Packets that the interface dropped.
    if_dropped: Option<u64>,
    /// Packets that passed the filter.
    filter_accepted: Option<u64>,
    /// Packets that were dropped for lack of room.
    os_dropped: Option<u64>,
    /// Packets that were delivered to the capturing program.
    delivered: Option<u64>,
    /// True if each packet that passed the filter was delivered or dropped; null if a count is missing.
    adds_up: Option<bool>,
}

impl From<&Statistics> for StatisticsInfo {
    fn from(found: &Statistics) -> Self {
        Self {
            stamp_ns: found.stamp_ns,
            start_ns: found.start_ns,
            end_ns: found.end_ns,
            if_received: found.if_received,
            if_dropped: found.if_dropped,
            filter_accepted: found.filter_accepted,
            os_dropped: found.os_dropped,
            delivered: found.delivered,
            adds_up: found.adds_up(),
        }
    }
}
