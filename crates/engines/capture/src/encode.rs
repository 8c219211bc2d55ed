//! Records of the formats: writes them, and finds written records again.

use wb_model::capture::FileFormat;
use wb_pcapng::{
    ByteSink, EnhancedPacket, MAX_CAPTURED, PacketOptions, PcapWriter, PcapngWriter, Precision,
    Section, epb_len,
};

use crate::CaptureSpec;

/// A record in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlacedRecord {
    pub(crate) len: usize,
    /// Rounded to the resolution of the format.
    pub(crate) stamp_ns: u64,
}

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Pcapng,
    Pcap(Precision),
}

impl From<FileFormat> for Encoding {
    fn from(format: FileFormat) -> Self {
        match format {
            FileFormat::Pcapng => Self::Pcapng,
            FileFormat::PcapNs => Self::Pcap(Precision::Nano),
            FileFormat::Pcap => Self::Pcap(Precision::Micro),
        }
    }
}

impl Encoding {
    /// Length of a record with `captured` bytes of a frame, after `lost` lost frames. Only pcapng stores the loss, and
    /// only if it is not 0.
    #[inline]
    pub(crate) fn record_len(self, captured: usize, lost: u64) -> usize {
        match self {
            Self::Pcapng => epb_len(captured, &packet_options(lost)),
            Self::Pcap(_) => PcapWriter::record_len(captured),
        }
    }

    /// Returns true if a record can store the number of frames lost before it.
    pub(crate) fn tells_losses(self) -> bool {
        self == Self::Pcapng
    }

    /// Appends a record of [`record_len`](Self::record_len) bytes.
    #[inline]
    pub(crate) fn append_record(
        self,
        interface: u32,
        stamp_ns: u64,
        original_len: u32,
        captured: &[u8],
        lost: u64,
        out: &mut impl ByteSink,
    ) {
        match self {
            Self::Pcapng => {
                use wb_pcapng::Block;
                EnhancedPacket {
                    interface,
                    ticks: stamp_ns,
                    original_len,
                    captured,
                    options: packet_options(lost),
                }
                .write(out);
            }
            Self::Pcap(precision) => {
                let captured = &captured[..captured.len().min(MAX_CAPTURED)];
                let len = captured.len() as u32;
                out.append(&PcapWriter::record_header_with(
                    stamp_ns,
                    original_len,
                    len,
                    precision,
                ));
                out.append(captured);
            }
        }
    }

    /// Beginning of every file.
    pub(crate) fn file_header(self, spec: &CaptureSpec) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Pcapng => {
                let section = Section {
                    hardware: spec.hardware.as_deref(),
                    os: spec.os.as_deref(),
                    application: spec.application.as_deref(),
                    comment: None,
                };
                let mut writer = PcapngWriter::section(&section, &mut out);
                for interface in &spec.interfaces {
                    let block = interface.interface_block(spec.snap_len, spec.os.as_deref());
                    writer.describe(&block, &mut out);
                }
            }
            Self::Pcap(precision) => {
                let link_type = spec.interfaces[0].link_type;
                PcapWriter::with(link_type, spec.snap_len, precision, &mut out);
            }
        }
        out
    }

    /// The complete record at the start of `bytes`, if there is one. Only for records from [`append_record`](Self::append_record).
    pub(crate) fn first_record(self, bytes: &[u8]) -> Option<PlacedRecord> {
        let word = |at: usize| {
            let bytes = bytes.get(at..)?.first_chunk()?;
            Some(u32::from_le_bytes(*bytes))
        };
        let placed = match self {
            Self::Pcapng => PlacedRecord {
                len: word(4)? as usize,
                stamp_ns: u64::from(word(12)?) << 32 | u64::from(word(16)?),
            },
            Self::Pcap(precision) => {
                let unit = match precision {
                    Precision::Micro => 1000,
                    Precision::Nano => 1,
                };
                PlacedRecord {
                    len: PcapWriter::record_len(word(8)? as usize),
                    stamp_ns: u64::from(word(0)?) * 1_000_000_000 + u64::from(word(4)?) * unit,
                }
            }
        };
        (placed.len <= bytes.len()).then_some(placed)
    }

    /// The first record with its frame: the original length and the captured bytes.
    pub(crate) fn first_frame(self, bytes: &[u8]) -> Option<(PlacedRecord, u32, &[u8])> {
        let record = self.first_record(bytes)?;
        // The two lengths are consecutive, followed by the frame.
        let at = match self {
            Self::Pcapng => 20,
            Self::Pcap(_) => 8,
        };
        let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let captured = bytes.get(at + 8..)?.get(..word(at)? as usize)?;
        Some((record, word(at + 4)?, captured))
    }

    /// The complete records in `bytes`.
    pub(crate) fn records(self, bytes: &[u8]) -> impl Iterator<Item = PlacedRecord> {
        let mut rest = bytes;
        std::iter::from_fn(move || {
            let record = self.first_record(rest)?;
            rest = &rest[record.len..];
            Some(record)
        })
    }
}

#[inline]
fn packet_options(lost: u64) -> PacketOptions<'static> {
    PacketOptions {
        drop_count: (lost > 0).then_some(lost),
        ..PacketOptions::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_found_again() {
        for encoding in [
            Encoding::Pcapng,
            Encoding::Pcap(Precision::Nano),
            Encoding::Pcap(Precision::Micro),
        ] {
            let mut out = Vec::new();
            let mut expected = Vec::new();
            for len in [0, 1, 59, 60, 61, 62, 1514] {
                let stamp_ns = 1_700_000_000_123_456_000 + len as u64 * 1000;
                let before = out.len();
                let lost = len as u64 % 2;
                encoding.append_record(0, stamp_ns, 2000, &vec![7; len], lost, &mut out);
                let len = encoding.record_len(len, lost);
                assert_eq!(out.len() - before, len);
                expected.push(PlacedRecord { len, stamp_ns });
            }
            assert!(encoding.records(&out).eq(expected.iter().copied()));
            let mut at = 0;
            for len in [0, 1, 59, 60, 61, 62, 1514] {
                let (record, original_len, captured) = encoding.first_frame(&out[at..]).unwrap();
                assert_eq!((original_len, captured), (2000, &vec![7; len][..]));
                at += record.len;
            }
            for cut in 0..out.len() {
                let whole = encoding.records(&out[..cut]).map(|r| r.len).sum::<usize>();
                assert!(whole <= cut && cut - whole < encoding.record_len(1514, 1));
            }
        }
    }
}
