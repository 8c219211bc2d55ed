//! The pcap format of libpcap: a file header of 24 bytes, then records.

use crate::blocks::PacketOptions;
use crate::bytes::{ByteOrder, ByteSink};
use crate::error::{FormatProblem, Warnings};
use crate::interface::{CaptureInterface, TimeUnit};
use crate::parser::{MissingBytes, Record};
use crate::{MAX_CAPTURED, MAX_FRAME, max_captured};

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
/// Alexey Kuznetsov's patch of libpcap: interface, protocol and packet type follow the lengths.
const PATCHED: u32 = 0xa1b2_cd34;
/// Ixia's lcap, from hardware and from software: the length of all records follows the file header.
const IXIA: [u32; 2] = [0x1c00_01ac, 0x1c00_01ab];
const VERSION: u16 = 2;
/// Version written by tcpdump of DG/UX.
const VERSION_DGUX: u16 = 543;
pub(crate) const FILE_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;
/// Number of records that are read to choose a layout.
const MOST_LOOKED_AT: usize = 20;

/// Order of the two lengths in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lengths {
    /// Captured length first.
    CapturedFirst,
    /// Original length first: versions before 2.3, and DG/UX.
    OriginalFirst,
    /// Either order, the smaller one is the captured length: version 2.3.
    SmallerCaptured,
}

/// Layout of the records of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileLayout {
    pub(crate) order: ByteOrder,
    time_unit: TimeUnit,
    /// Length of the file header, in bytes.
    file_header: usize,
    /// Bytes of a record between the two lengths and the frame.
    extra: usize,
    lengths: Lengths,
    guessed: bool,
}

/// Returns the layout of a file that begins with these four bytes, or `None` if it is not pcap.
pub(crate) fn recognise(magic: [u8; 4]) -> Option<FileLayout> {
    let layout = |order: ByteOrder| {
        let plain = FileLayout {
            order,
            time_unit: TimeUnit::MICROSECONDS,
            file_header: FILE_HEADER,
            extra: 0,
            lengths: Lengths::CapturedFirst,
            guessed: false,
        };
        match order.u32(&magic)? {
            MICROSECONDS => Some(plain),
            NANOSECONDS => Some(FileLayout {
                time_unit: TimeUnit::NANOSECONDS,
                ..plain
            }),
            PATCHED => Some(FileLayout { extra: 8, ..plain }),
            magic if IXIA.contains(&magic) => Some(FileLayout {
                file_header: FILE_HEADER + 4,
                ..plain
            }),
            _ => None,
        }
    };
    layout(ByteOrder::Little).or_else(|| layout(ByteOrder::Big))
}

impl FileLayout {
    /// Length of the file header, in bytes.
    pub(crate) const fn file_header(&self) -> usize {
        self.file_header
    }

    /// Returns true if the layout was inferred from the first records.
    pub(crate) const fn is_guessed(&self) -> bool {
        self.guessed
    }

    /// Returns true if libpcap can read the layout.
    pub(crate) const fn is_known_to_libpcap(&self) -> bool {
        !self.guessed && self.file_header == FILE_HEADER
    }

    /// Chooses among layouts with the same magic number, by the records at the start of the file: Red Hat 6.1 and Nokia
    /// wrote longer record headers, SuSE 6.3 longer ones than the patch.
    ///
    /// Takes another layout only if this one does not match the records and the other does.
    pub(crate) fn settled(self, interface: &CaptureInterface, records: &[u8]) -> Self {
        let others: &[usize] = match (self.extra, self.time_unit, self.file_header) {
            (0, TimeUnit::MICROSECONDS, FILE_HEADER) => &[8, 4],
            (8, ..) => &[12],
            _ => return self,
        };
        if self.makes_sense(interface, records) {
            return self;
        }
        let other = |extra: &usize| {
            let layout = Self {
                extra: *extra,
                guessed: true,
                ..self
            };
            layout.makes_sense(interface, records).then_some(layout)
        };
        others.iter().find_map(other).unwrap_or(self)
    }

    /// Returns true if the first records, at least two complete ones, are valid up to the last of these bytes.
    fn makes_sense(&self, interface: &CaptureInterface, mut records: &[u8]) -> bool {
        for seen in 0..MOST_LOOKED_AT {
            let Some(header) = records.first_chunk::<RECORD_HEADER>() else {
                return seen > 1;
            };
            let (seconds, fraction, captured_len, original_len) = self.fields(header);
            let is_sound = seconds > 0
                && fraction < 1_000_000
                && captured_len > 0
                && captured_len <= original_len
                && original_len as usize <= max_captured(interface.link_type);
            if !is_sound {
                return false;
            }
            let len = RECORD_HEADER + self.extra + captured_len as usize;
            match records.get(len..) {
                Some(rest) => records = rest,
                None => return seen > 1,
            }
        }
        true
    }

    /// Returns seconds, fraction, captured length and original length of a record.
    fn fields(&self, header: &[u8; RECORD_HEADER]) -> (u32, u32, u32, u32) {
        let word = |at: usize| self.order.u32(&header[at..]).unwrap_or_default();
        let (first, second) = (word(8), word(12));
        let swapped = match self.lengths {
            Lengths::CapturedFirst => false,
            Lengths::OriginalFirst => true,
            Lengths::SmallerCaptured => first > second,
        };
        let (captured_len, original_len) = if swapped {
            (second, first)
        } else {
            (first, second)
        };
        (word(0), word(4), captured_len, original_len)
    }
}

/// Returns the only interface of a file.
pub(crate) fn interface(
    layout: &mut FileLayout,
    header: &[u8; FILE_HEADER],
) -> Result<CaptureInterface, FormatProblem> {
    let order = layout.order;
    let major = order
        .u16(&header[4..])
        .ok_or(FormatProblem::TruncatedHeader)?;
    let minor = order
        .u16(&header[6..])
        .ok_or(FormatProblem::TruncatedHeader)?;
    layout.lengths = match (major, minor) {
        (VERSION, ..=2) | (VERSION_DGUX, 0) => Lengths::OriginalFirst,
        (VERSION, 3) => Lengths::SmallerCaptured,
        (VERSION, _) => Lengths::CapturedFirst,
        _ => {
            return Err(FormatProblem::Version {
                major,
                known: VERSION,
            });
        }
    };
    let snap_len = order
        .u32(&header[16..])
        .ok_or(FormatProblem::TruncatedHeader)?;
    let link = order
        .u32(&header[20..])
        .ok_or(FormatProblem::TruncatedHeader)?;
    // pcap-linktype(7): bit 26 is set if the top four bits hold the FCS length in units of two bytes.
    let fcs_len = if link & 1 << 26 != 0 {
        (link >> 28) as u8 * 2
    } else {
        0
    };
    Ok(CaptureInterface {
        snap_len,
        fcs_len,
        time_unit: layout.time_unit,
        ..CaptureInterface::new(link as u16)
    })
}

/// Reads the record at the start of `rest`. Returns it with its length in the file.
pub(crate) fn record<'a>(
    layout: &FileLayout,
    interface: &CaptureInterface,
    rest: &'a [u8],
    warnings: &mut Warnings,
) -> Result<Result<(Record<'a>, usize), MissingBytes>, FormatProblem> {
    let Some(header) = rest.first_chunk::<RECORD_HEADER>() else {
        return Ok(Err(MissingBytes {
            what: "record header",
            before: 0,
            needed: RECORD_HEADER,
        }));
    };
    let (seconds, fraction, captured_len, original_len) = layout.fields(header);
    let len = captured_len as usize;
    let most = max_captured(interface.link_type);
    if len > most {
        return Err(FormatProblem::TooLarge {
            len: captured_len,
            most,
        });
    }
    let begin = RECORD_HEADER + layout.extra;
    let Some(captured) = rest.get(begin..begin + len) else {
        return Ok(Err(MissingBytes {
            what: "record",
            before: RECORD_HEADER,
            needed: layout.extra + len,
        }));
    };
    let fraction_ns = interface.time_unit.to_ns(fraction.into());
    warnings.odd_stamps += u64::from(fraction_ns >= 1_000_000_000);
    warnings.captured_over_original += u64::from(captured_len > original_len);
    let record = Record {
        stamp_ns: u64::from(seconds) * 1_000_000_000 + fraction_ns,
        stamped: true,
        captured,
        original_len,
        interface: 0,
        link_type: interface.link_type,
        options: PacketOptions::NONE,
    };
    Ok(Ok((record, begin + len)))
}

/// Precision of the timestamps in a pcap file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Microseconds, for old readers; smaller digits are cut off.
    Micro,
    /// Nanoseconds.
    #[default]
    Nano,
}

/// Writer of little-endian pcap files.
///
/// Seconds have 32 bits and wrap in 2106.
#[derive(Clone, Copy, Debug)]
pub struct PcapWriter {
    precision: Precision,
}

impl PcapWriter {
    /// Length of the file header, in bytes.
    pub const FILE_HEADER_LEN: usize = FILE_HEADER;

    /// Returns the header of a file with nanosecond timestamps and whole frames.
    pub const fn file_header(link_type: u16) -> [u8; FILE_HEADER] {
        Self::file_header_with(link_type, MAX_CAPTURED as u32, Precision::Nano)
    }

    /// Returns the header of a file. A `snap_len` of 0 (no limit) is written as [`MAX_CAPTURED`], because some readers
    /// take 0 literally.
    pub const fn file_header_with(
        link_type: u16,
        snap_len: u32,
        precision: Precision,
    ) -> [u8; FILE_HEADER] {
        let magic = match precision {
            Precision::Micro => MICROSECONDS,
            Precision::Nano => NANOSECONDS,
        };
        let snap_len = if snap_len == 0 {
            MAX_CAPTURED as u32
        } else {
            snap_len
        };
        let [n0, n1, n2, n3] = magic.to_le_bytes();
        let [s0, s1, s2, s3] = snap_len.to_le_bytes();
        let [l0, l1] = link_type.to_le_bytes();
        [
            n0, n1, n2, n3, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, s0, s1, s2, s3, l0, l1, 0, 0,
        ]
    }

    /// Returns the record header, which precedes the captured bytes of a frame.
    pub fn record_header_with(
        stamp_ns: u64,
        original_len: u32,
        captured_len: u32,
        precision: Precision,
    ) -> [u8; RECORD_HEADER] {
        let seconds = (stamp_ns / 1_000_000_000) as u32;
        let fraction_ns = (stamp_ns % 1_000_000_000) as u32;
        let fraction = match precision {
            Precision::Micro => fraction_ns / 1000,
            Precision::Nano => fraction_ns,
        };
        let mut header = [0; RECORD_HEADER];
        for (field, value) in
            header
                .chunks_exact_mut(4)
                .zip([seconds, fraction, captured_len, original_len])
        {
            field.copy_from_slice(&value.to_le_bytes());
        }
        header
    }

    /// Length of a record with `captured` captured bytes.
    pub const fn record_len(captured: usize) -> usize {
        RECORD_HEADER
            + if captured > MAX_FRAME {
                MAX_FRAME
            } else {
                captured
            }
    }

    /// Begins a file with nanosecond timestamps and whole frames: appends its header to `out`.
    ///
    /// # Panics
    /// A fixed buffer has no room for [`FILE_HEADER_LEN`](Self::FILE_HEADER_LEN) bytes.
    pub fn new(link_type: u16, out: &mut impl ByteSink) -> Self {
        Self::with(link_type, MAX_CAPTURED as u32, Precision::Nano, out)
    }

    /// Begins a file: appends its header to `out`.
    ///
    /// # Panics
    /// A fixed buffer has no room for [`FILE_HEADER_LEN`](Self::FILE_HEADER_LEN) bytes.
    pub fn with(
        link_type: u16,
        snap_len: u32,
        precision: Precision,
        out: &mut impl ByteSink,
    ) -> Self {
        assert!(out.make_room(FILE_HEADER), "no room for the file header");
        out.append(&Self::file_header_with(link_type, snap_len, precision));
        Self { precision }
    }

    /// Appends a frame to `out`; bytes beyond [`MAX_FRAME`] are cut off. Returns false and writes nothing if a fixed
    /// buffer has no room for all of it.
    pub fn record(
        &mut self,
        stamp_ns: u64,
        original_len: u32,
        captured: &[u8],
        out: &mut impl ByteSink,
    ) -> bool {
        if !out.make_room(Self::record_len(captured.len())) {
            return false;
        }
        let captured = &captured[..captured.len().min(MAX_FRAME)];
        out.append(&Self::record_header_with(
            stamp_ns,
            original_len,
            captured.len() as u32,
            self.precision,
        ));
        out.append(captured);
        true
    }
}
