//! Verification of test tags: the received and missing numbers of each stream.
//!
//! Every missing number is known exactly, as part of a gap, up to [`MOST_GAPS`] gaps.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use wb_model::counted;
use wb_pcapng::LINK_ETHERNET;
use wb_render::{figures, table::Table};
use wb_wire::{PktgenTag, Tag, TagFormat, find_tag};

use super::input::Packet;

/// Maximum number of remembered gaps of all streams. Beyond it, the oldest gaps are only counted.
const MOST_GAPS: usize = 1 << 18;
/// Maximum number of separate streams.
const MOST_STREAMS: usize = 1 << 16;
/// Maximum number of ranges listed per stream, in text and in JSON.
const LISTED: usize = 8;
const LISTED_JSON: usize = 1000;

/// One wrap of the 32-bit number; counting starts after one wrap, so that earlier numbers fit.
const WRAP: u64 = 1 << 32;

/// Received numbers of one stream, extended beyond 32 bits.
#[derive(Clone, Debug, Default)]
struct Stream {
    first: u64,
    last: u64,
    received: u64,
    duplicates: u64,
    reordered: u64,
    /// Missing numbers between first and last: start of each gap, and the number after its end.
    gaps: BTreeMap<u64, u64>,
    /// Numbers in forgotten gaps, all of which end before this number.
    forgotten: u64,
    forgotten_end: u64,
}

impl Stream {
    /// Records a number. Returns the change in the number of gaps.
    fn take(&mut self, sequence: u32) -> isize {
        self.received += 1;
        if self.received == 1 {
            let number = WRAP + u64::from(sequence);
            (self.first, self.last) = (number, number);
            return 0;
        }
        // Choose the nearest number with these lower 32 bits.
        let step = sequence.wrapping_sub(self.last as u32).cast_signed();
        let number = self.last.saturating_add_signed(step.into());
        let before = self.gaps.len();
        if number > self.last {
            if number > self.last + 1 {
                self.gaps.insert(self.last + 1, number);
            }
            self.last = number;
        } else if number < self.first {
            if number + 1 < self.first {
                self.gaps.insert(number + 1, self.first);
            }
            self.first = number;
            self.reordered += 1;
        } else if self.fill(number) {
            self.reordered += 1;
        } else {
            self.duplicates += 1;
        }
        self.gaps.len().cast_signed() - before.cast_signed()
    }

    /// Removes a number from its gap. Returns false if it is in none.
    fn fill(&mut self, number: u64) -> bool {
        let Some((&from, &to)) = self.gaps.range(..=number).next_back() else {
            return false;
        };
        if number >= to {
            return false;
        }
        self.gaps.remove(&from);
        if from < number {
            self.gaps.insert(from, number);
        }
        if number + 1 < to {
            self.gaps.insert(number + 1, to);
        }
        true
    }

    fn forget_oldest_gap(&mut self) -> bool {
        let Some((from, to)) = self.gaps.pop_first() else {
            return false;
        };
        self.forgotten += to - from;
        self.forgotten_end = to;
        true
    }

    /// Returns the ranges of missing numbers, inclusive: between first and last, and if the number of sent frames is
    /// known, also before and after.
    fn missing(&self, kind: TagFormat, sent: Option<u64>) -> Vec<(u64, u64)> {
        let mut ranges: Vec<_> = self.gaps.iter().map(|(from, to)| (*from, *to)).collect();
        if let Some(sent) = sent {
            let start = WRAP + begin(kind);
            if start < self.first {
                ranges.insert(0, (start, self.first));
            }
            let end = start + sent;
            if self.last + 1 < end {
                ranges.push((self.last + 1, end));
            }
        }
        ranges
    }
}

/// Returns the first number of a stream.
const fn begin(kind: TagFormat) -> u64 {
    match kind {
        TagFormat::Native => 0,
        TagFormat::Pktgen => 1,
    }
}

/// Returns a number as it was sent; numbers before the first wrap have only 32 bits.
const fn shown(number: u64) -> u64 {
    if number >= WRAP {
        number - WRAP
    } else {
        number
    }
}

const fn name(kind: TagFormat) -> &'static str {
    match kind {
        TagFormat::Native => "flow",
        TagFormat::Pktgen => "pktgen",
    }
}

/// Checks the test tags of packets.
#[derive(Debug)]
pub(super) struct Verify {
    /// Number of frames sent per stream, if known.
    sent: Option<u64>,
    /// Streams by tag format and flow; pktgen tags have no flow and form one stream.
    streams: BTreeMap<(bool, u32), Stream>,
    gaps: usize,
    most_gaps: usize,
    packets: u64,
    untagged: u64,
    /// Packets of streams beyond [`MOST_STREAMS`].
    beyond: u64,
}

impl Verify {
    pub(super) fn new(sent: Option<u64>) -> Self {
        Self {
            sent,
            streams: BTreeMap::new(),
            gaps: 0,
            most_gaps: MOST_GAPS,
            packets: 0,
            untagged: 0,
            beyond: 0,
        }
    }

    pub(super) fn take(&mut self, packet: &Packet) {
        self.packets += 1;
        let tag = (packet.link_type == LINK_ETHERNET)
            .then(|| find_tag(&packet.bytes))
            .flatten();
        let read = tag.and_then(|(at, kind)| {
            let bytes = &packet.bytes[at..];
            match kind {
                TagFormat::Native => Tag::read(bytes).map(|tag| ((false, tag.flow), tag.sequence)),
                TagFormat::Pktgen => PktgenTag::read(bytes).map(|tag| ((true, 0), tag.sequence)),
            }
        });
        match read {
            Some((key, sequence)) => self.number(key, sequence),
            None => self.untagged += 1,
        }
    }

    fn number(&mut self, key: (bool, u32), sequence: u32) {
        if self.streams.len() >= MOST_STREAMS && !self.streams.contains_key(&key) {
            self.beyond += 1;
            return;
        }
        let stream = self.streams.entry(key).or_default();
        self.gaps = self.gaps.saturating_add_signed(stream.take(sequence));
        while self.gaps > self.most_gaps && stream.forget_oldest_gap() {
            self.gaps -= 1;
        }
    }

    fn rows(&self) -> Vec<Row> {
        let row = |(key, stream): (&(bool, u32), &Stream)| {
            let kind = if key.0 {
                TagFormat::Pktgen
            } else {
                TagFormat::Native
            };
            let ranges = stream.missing(kind, self.sent);
            Row {
                kind,
                flow: key.1,
                missing: stream.forgotten + ranges.iter().map(|(a, b)| b - a).sum::<u64>(),
                ranges: ranges
                    .iter()
                    .map(|(a, b)| (shown(*a), shown(b - 1)))
                    .collect(),
                stream: stream.clone(),
            }
        };
        self.streams.iter().map(row).collect()
    }

    /// Returns true if there were numbers and none is missing.
    pub(super) fn holds(&self) -> bool {
        let rows = self.rows();
        !rows.is_empty() && self.beyond == 0 && rows.iter().all(|row| row.missing == 0)
    }

    /// Returns the verdict and one line per stream.
    pub(super) fn text(&self) -> String {
        let rows = self.rows();
        let missing: u64 = rows.iter().map(|row| row.missing).sum();
        let count = figures::count;
        let head = if rows.is_empty() {
            format!(
                "no test tag in {}: nothing verified",
                counted(count(self.packets), "packet", "packets")
            )
        } else {
            let tagged = self.packets - self.untagged;
            let missing = if missing == 0 {
                "nothing missing".to_owned()
            } else {
                format!("{} MISSING", count(missing))
            };
            format!(
                "{missing}: {} with a tag in {}, {} without",
                counted(count(tagged), "packet", "packets"),
                counted(count(rows.len() as u64), "stream", "streams"),
                count(self.untagged)
            )
        };
        let mut table = Table::new().left("stream");
        for title in [
            "first",
            "last",
            "received",
            "missing",
            "duplicates",
            "reordered",
        ] {
            table = table.right(title);
        }
        table = table.left("missing numbers");
        for row in &rows {
            let stream = &row.stream;
            let name = match row.kind {
                TagFormat::Native => format!("flow {}", row.flow),
                TagFormat::Pktgen => name(row.kind).to_owned(),
            };
            table.row([
                name,
                shown(stream.first).to_string(),
                shown(stream.last).to_string(),
                count(stream.received),
                count(row.missing),
                count(stream.duplicates),
                count(stream.reordered),
                row.list(),
            ]);
        }
        let mut text = format!("{head}\n");
        if !rows.is_empty() {
            text += &table.without_blank_columns().text(2);
        }
        if self.beyond > 0 {
            text += &format!(
                "  not checked: {} of further streams (limit: {MOST_STREAMS} streams)\n",
                counted(count(self.beyond), "packet", "packets")
            );
        }
        text
    }

    pub(super) fn document(&self) -> VerifyDocument {
        let rows = self.rows();
        let sum = |number: fn(&Row) -> u64| rows.iter().map(number).sum::<u64>();
        let streams = rows.iter().map(|row| VerifiedStream {
            tag: name(row.kind),
            flow: row.flow,
            first: shown(row.stream.first),
            last: shown(row.stream.last),
            received_frames: row.stream.received,
            missing_frames: row.missing,
            duplicate_frames: row.stream.duplicates,
            reordered_frames: row.stream.reordered,
            missing_ranges: row
                .ranges
                .iter()
                .take(LISTED_JSON)
                .map(|(first, last)| [*first, *last])
                .collect(),
            missing_ranges_listed: row.stream.forgotten == 0 && row.ranges.len() <= LISTED_JSON,
        });
        VerifyDocument {
            schema: super::SCHEMA,
            holds: self.holds(),
            totals: VerifiedTotals {
                frames: self.packets,
                untagged_frames: self.untagged,
                unexamined_frames: self.beyond,
                received_frames: sum(|row| row.stream.received),
                missing_frames: sum(|row| row.missing),
                duplicate_frames: sum(|row| row.stream.duplicates),
                reordered_frames: sum(|row| row.stream.reordered),
            },
            streams: streams.collect(),
        }
    }
}

/// JSON document of `read --verify --json`.
#[derive(Serialize, JsonSchema)]
pub struct VerifyDocument {
    /// `wirebench.read/1`.
    schema: &'static str,
    /// True if there are test frames and none is missing.
    holds: bool,
    /// Sums over all streams.
    totals: VerifiedTotals,
    /// Streams, by tag and flow.
    streams: Vec<VerifiedStream>,
}

/// Sums over all streams.
#[derive(Serialize, JsonSchema)]
struct VerifiedTotals {
    /// Frames that were read.
    frames: u64,
    /// Frames without a test tag.
    untagged_frames: u64,
    /// Frames of streams beyond the maximum number of streams, which were not checked.
    unexamined_frames: u64,
    /// Frames with a test tag that were checked.
    received_frames: u64,
    /// Frames with numbers that did not arrive.
    missing_frames: u64,
    /// Frames with numbers that had already arrived.
    duplicate_frames: u64,
    /// Frames that arrived after a frame with a higher number.
    reordered_frames: u64,
}

/// Received and missing numbers of one stream.
#[derive(Serialize, JsonSchema)]
struct VerifiedStream {
    /// Format of the tag: `flow` (of wirebench) or `pktgen`.
    tag: &'static str,
    /// Number of the flow; 0 for the tag of pktgen, which has none.
    flow: u32,
    /// Lowest received number.
    first: u64,
    /// Highest received number.
    last: u64,
    /// Frames that were received.
    received_frames: u64,
    /// Frames with numbers that did not arrive.
    missing_frames: u64,
    /// Frames with numbers that had already arrived.
    duplicate_frames: u64,
    /// Frames that arrived after a frame with a higher number.
    reordered_frames: u64,
    /// First and last number of each missing range, at most 1000 ranges.
    missing_ranges: Vec<[u64; 2]>,
    /// True if `missing_ranges` has all missing ranges.
    missing_ranges_listed: bool,
}

/// Final result of a stream.
struct Row {
    kind: TagFormat,
    flow: u32,
    missing: u64,
    /// Missing ranges, inclusive.
    ranges: Vec<(u64, u64)>,
    stream: Stream,
}

impl Row {
    fn list(&self) -> String {
        let mut parts = Vec::new();
        if self.stream.forgotten > 0 {
            let end = shown(self.stream.forgotten_end);
            parts.push(format!(
                "{} before {end}",
                figures::count(self.stream.forgotten)
            ));
        }
        parts.extend(self.ranges.iter().take(LISTED).map(|(from, to)| {
            if from == to {
                from.to_string()
            } else {
                format!("{from}-{to}")
            }
        }));
        let more = self.ranges.len().saturating_sub(LISTED);
        if more > 0 {
            parts.push(format!("and {more} more ranges"));
        }
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verified(sent: Option<u64>, numbers: impl IntoIterator<Item = u32>) -> Verify {
        let mut verify = Verify::new(sent);
        for number in numbers {
            verify.packets += 1;
            verify.number((false, 7), number);
        }
        verify
    }

    fn totals(verify: &Verify) -> [u64; 4] {
        let totals = verify.document().totals;
        [
            totals.received_frames,
            totals.missing_frames,
            totals.duplicate_frames,
            totals.reordered_frames,
        ]
    }

    #[test]
    fn each_number_is_counted_once() {
        let verify = verified(None, [0, 1, 2, 6, 4, 4, 9, 9, 3]);
        assert_eq!(totals(&verify), [9, 3, 2, 2]);
        assert_eq!(verify.rows()[0].ranges, [(5, 5), (7, 8)]);
        assert!(!verify.holds());
        assert!(verified(None, [2, 1, 0]).holds());
        assert!(!verified(None, []).holds(), "nothing is no proof");
    }

    #[test]
    fn what_was_sent_tells_the_ends() {
        assert!(verified(None, 5..10).holds());
        let verify = verified(Some(12), 5..10);
        assert_eq!(verify.rows()[0].ranges, [(0, 4), (10, 11)]);
        assert!(verified(Some(12), 0..12).holds());
    }

    #[test]
    fn numbers_wrap() {
        let verify = verified(None, [u32::MAX - 1, u32::MAX, 1, 0]);
        assert_eq!(totals(&verify), [4, 0, 0, 1]);
        let before = verified(None, [0, u32::MAX, 1]);
        assert_eq!(totals(&before), [3, 0, 0, 1]);
    }

    #[test]
    fn gaps_are_bounded_and_what_was_forgotten_is_counted() {
        let mut verify = Verify::new(None);
        verify.most_gaps = 2;
        for number in (0..20).step_by(2) {
            verify.number((false, 0), number);
        }
        assert_eq!(totals(&verify), [10, 9, 0, 0]);
        assert_eq!(verify.rows()[0].ranges, [(15, 15), (17, 17)]);
        assert!(verify.text().contains("7 before 14"), "{}", verify.text());
    }
}
