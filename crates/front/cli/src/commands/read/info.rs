//! Description of files: `--info`.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::{Map, Value, json};
use wb_pcapng::{
    CaptureInterface, CaptureSummary, Counts, Event, Format, InterfaceSummary, Statistics,
};
use wb_render::figures;
use wb_tcpdump::print::LinkType;

use super::{
    moment::rfc3339,
    source::{Source, Trouble},
    tell_trouble,
};
use crate::run::deliver;

/// File that was read to its end, or to its last complete block.
struct Found {
    source: Source,
    summary: CaptureSummary,
    application: Option<String>,
    trouble: Option<Trouble>,
}

/// Prints a description of each file. Returns the exit code.
///
/// # Errors
/// If a file cannot be opened, or standard output cannot be written.
pub(super) fn run(files: &[PathBuf], json: bool) -> Result<u8> {
    let mut code = 0;
    let mut documents = Vec::new();
    for (at, file) in files.iter().enumerate() {
        let found = look(Source::open(file)?);
        if json {
            documents.push(found.json());
        } else {
            let text = found.text();
            if !text.is_empty() {
                let gap = if at > 0 { "\n" } else { "" };
                deliver(&format!("{gap}{text}"))?;
            }
        }
        if let Some(trouble) = &found.trouble {
            code = code.max(tell_trouble(&found.source, trouble));
        }
    }
    if json {
        let document = json!({ "schema": "wirebench.read/1", "files": documents });
        deliver(&format!("{document:#}"))?;
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

    fn json(&self) -> Value {
        let summary = &self.summary;
        let interfaces = self.interfaces().map(|(interface, found)| {
            let mut object = Map::new();
            object.insert("name".to_owned(), json!(interface.name));
            object.insert("description".to_owned(), json!(interface.description));
            object.insert("filter".to_owned(), json!(interface.filter));
            object.insert("link_type".to_owned(), json!(interface.link_type));
            object.insert("snapshot_length".to_owned(), json!(interface.snap_len));
            object.insert(
                "stamp_decimals".to_owned(),
                json!(interface.time_unit.decimals()),
            );
            object.extend(counts_json(&found.counts));
            object.insert(
                "statistics".to_owned(),
                found
                    .statistics
                    .as_ref()
                    .map_or(Value::Null, statistics_json),
            );
            Value::Object(object)
        });
        let interfaces: Vec<Value> = interfaces.collect();
        let mut object = Map::new();
        for (key, value) in [
            ("file", json!(self.source.name)),
            ("format", json!(self.format())),
            ("byte_order", json!(self.byte_order())),
            ("packing", json!(self.source.packing.map(|p| p.name()))),
            ("application", json!(self.application)),
            ("sections", json!(summary.sections)),
            ("content_bytes", json!(summary.file_bytes)),
            ("other_blocks", json!(summary.other_blocks)),
            ("oddities", json!(self.source.oddities())),
            (
                "trouble",
                json!(self.trouble.as_ref().map(ToString::to_string)),
            ),
        ] {
            object.insert(key.to_owned(), value);
        }
        object.extend(counts_json(&summary.total));
        object.insert("interfaces".to_owned(), json!(interfaces));
        Value::Object(object)
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

fn statistics_json(found: &Statistics) -> Value {
    json!({
        "stamp_ns": found.stamp_ns,
        "start_ns": found.start_ns,
        "end_ns": found.end_ns,
        "if_received": found.if_received,
        "if_dropped": found.if_dropped,
        "filter_accepted": found.filter_accepted,
        "os_dropped": found.os_dropped,
        "delivered": found.delivered,
        "adds_up": found.adds_up(),
    })
}

fn counts_json(counts: &Counts) -> Map<String, Value> {
    let numbers = [
        ("packets", json!(counts.packets)),
        ("captured_bytes", json!(counts.captured_bytes)),
        ("original_bytes", json!(counts.original_bytes)),
        ("cut_packets", json!(counts.cut_packets)),
        ("first_ns", json!(counts.first_ns)),
        ("last_ns", json!(counts.last_ns)),
        ("duration_ns", json!(counts.duration_ns())),
        ("out_of_order", json!(counts.out_of_order)),
        ("noted_drops", json!(counts.noted_drops)),
    ];
    let named = numbers.into_iter();
    named.map(|(key, value)| (key.to_owned(), value)).collect()
}
