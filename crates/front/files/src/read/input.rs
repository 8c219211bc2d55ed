//! Input files merged into one stream of packets, earliest packet first.
//!
//! Holds one packet of each file. The interfaces of all files stand in one list; those that are
//! the same in two files are one.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    path::PathBuf,
};

use anyhow::Result;
use wb_pcapng::{
    CaptureInterface, Details, Event, PacketOptions, Record, Section, Statistics, TimeUnit,
};

use super::source::{Source, Trouble};

/// A packet out of its file.
#[derive(Clone, Debug, Default)]
pub(super) struct Packet {
    /// Time stamp in nanoseconds since 1970. A packet without a time stamp gets that of the previous packet.
    pub(super) stamp_ns: u64,
    /// Length on the wire, in bytes.
    pub(super) original_len: u32,
    /// Index into the interfaces of the input.
    pub(super) interface: usize,
    pub(super) link_type: u16,
    pub(super) flags: Option<u32>,
    pub(super) drop_count: Option<u64>,
    pub(super) packet_id: Option<u64>,
    pub(super) queue: Option<u32>,
    pub(super) comment: Option<String>,
    /// Captured bytes.
    pub(super) bytes: Vec<u8>,
}

impl Packet {
    /// Overwrites the packet with a record and reuses its memory.
    fn set(&mut self, record: &Record<'_>, interface: usize) {
        if record.stamped {
            self.stamp_ns = record.stamp_ns;
        }
        self.original_len = record.original_len;
        self.interface = interface;
        self.link_type = record.link_type;
        let options = &record.options;
        self.flags = options.flags;
        self.drop_count = options.drop_count;
        self.packet_id = options.packet_id;
        self.queue = options.queue;
        self.comment = options.comment.map(str::to_owned);
        self.bytes.clear();
        self.bytes.extend_from_slice(record.captured);
    }

    /// Returns the packet options of the file.
    pub(super) fn options(&self) -> PacketOptions<'_> {
        PacketOptions {
            flags: self.flags,
            drop_count: self.drop_count,
            packet_id: self.packet_id,
            queue: self.queue,
            comment: self.comment.as_deref(),
        }
    }
}

/// Input file with its next packet.
struct InputFile {
    source: Source,
    head: Packet,
    /// Index of each interface of the file in the common list.
    places: Vec<usize>,
    met: HashMap<String, usize>,
    /// Last statistics of each interface of the file.
    statistics: Vec<Option<Statistics>>,
    trouble: Option<Trouble>,
}

/// State common to all files.
#[derive(Default)]
struct Shared {
    interfaces: Vec<CaptureInterface>,
    /// Indices of identical interfaces, by their description.
    kinds: HashMap<String, Vec<usize>>,
    left_out_blocks: u64,
    /// Writer information of the sections, without duplicates.
    sections: Vec<SectionTexts>,
}

/// Writer information of a section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SectionTexts {
    hardware: Option<String>,
    os: Option<String>,
    application: Option<String>,
    comment: Option<String>,
}

impl SectionTexts {
    fn new(section: &Section<'_>) -> Self {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Self {
            hardware: owned(section.hardware),
            os: owned(section.os),
            application: owned(section.application),
            comment: owned(section.comment),
        }
    }

    /// Returns the texts in the form of a section block.
    pub(super) fn section(&self) -> Section<'_> {
        Section {
            hardware: self.hardware.as_deref(),
            os: self.os.as_deref(),
            application: self.application.as_deref(),
            comment: self.comment.as_deref(),
        }
    }
}

impl Shared {
    /// Returns the index of an interface in the common list. Two interfaces of one file are never merged: the second
    /// of a kind in one file matches the second in another; `met` counts the kinds of the file.
    fn place(&mut self, interface: &CaptureInterface, met: &mut HashMap<String, usize>) -> usize {
        // The original time stamp unit is irrelevant once stamps are in nanoseconds.
        let interface = CaptureInterface {
            time_unit: TimeUnit::NANOSECONDS,
            time_offset: 0,
            ..interface.clone()
        };
        let kind = format!("{interface:?}");
        let places = self.kinds.entry(kind.clone()).or_default();
        let nth = met.entry(kind).or_default();
        *nth += 1;
        if let Some(place) = places.get(*nth - 1) {
            return *place;
        }
        let place = self.interfaces.len();
        places.push(place);
        self.interfaces.push(interface);
        place
    }
}

/// Input files of a command.
pub(super) struct Input {
    files: Vec<InputFile>,
    /// Next packets of the files: time stamp and file. Equal time stamps are in the order of the files.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// Index of the file that the last returned packet came from.
    given: Option<usize>,
    shared: Shared,
}

impl Input {
    /// Opens all files and reads each file up to its first packet.
    ///
    /// # Errors
    /// If a file cannot be opened. Problems in a file are reported by [`troubles`](Self::troubles).
    pub(super) fn open(paths: &[PathBuf]) -> Result<Self> {
        let mut files = Vec::new();
        for path in paths {
            files.push(InputFile {
                source: Source::open(path)?,
                head: Packet::default(),
                places: Vec::new(),
                met: HashMap::new(),
                statistics: Vec::new(),
                trouble: None,
            });
        }
        let mut input = Self {
            files,
            waiting: BinaryHeap::new(),
            given: None,
            shared: Shared::default(),
        };
        for file in 0..input.files.len() {
            input.advance(file);
        }
        Ok(input)
    }

    /// Returns the next packet, or none once all files have ended or failed.
    pub(super) fn next(&mut self) -> Option<&Packet> {
        if let Some(file) = self.given.take() {
            self.advance(file);
        }
        let Reverse((_, file)) = self.waiting.pop()?;
        self.given = Some(file);
        Some(&self.files[file].head)
    }

    /// Returns the packet that [`next`](Self::next) returned last.
    pub(super) fn current(&self) -> Option<&Packet> {
        Some(&self.files[self.given?].head)
    }

    fn advance(&mut self, at: usize) {
        let file = &mut self.files[at];
        loop {
            let (head, shared) = (&mut file.head, &mut self.shared);
            let (places, met, kept) = (&mut file.places, &mut file.met, &mut file.statistics);
            let step = file.source.step(|item| {
                while let Some(interface) = item.interfaces.get(places.len()) {
                    places.push(shared.place(interface, met));
                    kept.push(None);
                }
                match &item.event {
                    Event::Record(record) => {
                        head.set(record, places[record.interface as usize]);
                        return true;
                    }
                    Event::Statistics(found) => kept[found.interface as usize] = Some(*found),
                    Event::Custom(_) | Event::Other { .. } => shared.left_out_blocks += 1,
                    Event::Header(header) => {
                        let texts = SectionTexts::new(&header.section);
                        if texts != SectionTexts::default() && !shared.sections.contains(&texts) {
                            shared.sections.push(texts);
                        }
                    }
                    Event::Interface(_) => {}
                }
                false
            });
            match step {
                Ok(Some(false)) => {}
                Ok(Some(true)) => {
                    self.waiting.push(Reverse((file.head.stamp_ns, at)));
                    return;
                }
                Ok(None) => return,
                Err(trouble) => {
                    file.trouble = Some(trouble);
                    return;
                }
            }
        }
    }

    /// Returns true for a single uncompressed file that libpcap reads in the same way.
    pub(super) fn is_for_libpcap(&self) -> bool {
        matches!(&self.files[..], [file] if file.trouble.is_none() && file.source.is_for_libpcap())
    }

    /// Returns all interfaces so far.
    pub(super) fn interfaces(&self) -> &[CaptureInterface] {
        &self.shared.interfaces
    }

    /// Returns the files, with the first interface of each file.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, Option<&CaptureInterface>)> {
        self.files
            .iter()
            .map(|file| (&file.source.name[..], file.source.interfaces().first()))
    }

    /// Returns the files that could not be read to their end, with the reasons.
    pub(super) fn troubles(&self) -> impl Iterator<Item = (&Source, &Trouble)> {
        self.files
            .iter()
            .filter_map(|file| Some((&file.source, file.trouble.as_ref()?)))
    }

    /// Returns the oddities so far, prefixed with the file.
    pub(super) fn oddities(&self) -> impl Iterator<Item = String> {
        self.files.iter().flat_map(|file| {
            let name = &file.source.name;
            let lines = file.source.oddities();
            lines.into_iter().map(move |line| format!("{name}: {line}"))
        })
    }

    /// Returns the number of blocks other than packets, descriptions and statistics.
    pub(super) fn left_out_blocks(&self) -> u64 {
        self.shared.left_out_blocks
    }

    /// Returns the writer information if it is identical in all sections read so far.
    pub(super) fn section(&self) -> Option<&SectionTexts> {
        match &self.shared.sections[..] {
            [one] => Some(one),
            _ => None,
        }
    }

    /// Returns the names of the information that a copy in this format loses.
    pub(super) fn lost_details(&self, as_pcapng: bool) -> Vec<&'static str> {
        let mut details = Details::default();
        for file in &self.files {
            details.join(file.source.details());
        }
        let sections = match &self.shared.sections[..] {
            [_] if as_pcapng => &[],
            sections => sections,
        };
        type Has = fn(&SectionTexts) -> bool;
        let texts: [(&str, Has); 4] = [
            ("section hardware", |s| s.hardware.is_some()),
            ("section operating systems", |s| s.os.is_some()),
            ("section programs", |s| {
                let ours = |text: &String| text.starts_with("wirebench ");
                s.application.as_ref().is_some_and(|text| !ours(text))
            }),
            ("section comments", |s| s.comment.is_some()),
        ];
        let texts = texts.into_iter();
        let lost = texts.filter(|(_, has)| sections.iter().any(has));
        lost.map(|(name, _)| name)
            .chain(details.lost(as_pcapng))
            .collect()
    }

    /// Returns the statistics of each interface, numbered as [`interfaces`](Self::interfaces).
    pub(super) fn statistics(&self) -> Vec<Statistics> {
        let mut all: Vec<Option<Statistics>> = vec![None; self.interfaces().len()];
        for file in &self.files {
            for (place, found) in file.places.iter().zip(&file.statistics) {
                let Some(found) = found else { continue };
                let found = Statistics {
                    interface: *place as u32,
                    ..*found
                };
                all[*place] = Some(match all[*place] {
                    Some(known) => joined(&known, &found),
                    None => found,
                });
            }
        }
        all.into_iter().flatten().collect()
    }
}

/// Combines statistics: files of one capture continue its counters, files of different captures are added.
fn joined(a: &Statistics, b: &Statistics) -> Statistics {
    if a.start_ns.is_some() && a.start_ns == b.start_ns {
        return if b.stamp_ns >= a.stamp_ns { *b } else { *a };
    }
    let sum = |number: fn(&Statistics) -> Option<u64>| Some(number(a)?.saturating_add(number(b)?));
    Statistics {
        interface: a.interface,
        stamp_ns: a.stamp_ns.max(b.stamp_ns),
        start_ns: a.start_ns.zip(b.start_ns).map(|(a, b)| a.min(b)),
        end_ns: a.end_ns.max(b.end_ns),
        if_received: sum(|s| s.if_received),
        if_dropped: sum(|s| s.if_dropped),
        filter_accepted: sum(|s| s.filter_accepted),
        os_dropped: sum(|s| s.os_dropped),
        delivered: sum(|s| s.delivered),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_one_capture_go_on_and_those_of_two_are_added() {
        let counted = |start_ns, stamp_ns, n| Statistics {
            start_ns: Some(start_ns),
            stamp_ns,
            filter_accepted: Some(n),
            ..Statistics::default()
        };
        let joined = |a, b| joined(&a, &b).filter_accepted;
        assert_eq!(joined(counted(1, 5, 10), counted(1, 9, 15)), Some(15));
        assert_eq!(joined(counted(1, 9, 15), counted(1, 5, 10)), Some(15));
        assert_eq!(joined(counted(1, 5, 10), counted(6, 9, 15)), Some(25));
    }

    #[test]
    fn the_same_interface_of_two_files_is_one_and_two_of_one_file_stay_two() {
        let mut shared = Shared::default();
        let (mut a, mut b) = (HashMap::new(), HashMap::new());
        let ethernet = CaptureInterface::new(1);
        assert_eq!(shared.place(&ethernet, &mut a), 0);
        assert_eq!(shared.place(&ethernet, &mut a), 1);
        let micro = CaptureInterface {
            time_unit: TimeUnit::MICROSECONDS,
            ..ethernet
        };
        assert_eq!(shared.place(&micro, &mut b), 0);
        assert_eq!(shared.place(&CaptureInterface::new(101), &mut b), 2);
        assert_eq!(shared.place(&micro, &mut b), 1);
    }
}
