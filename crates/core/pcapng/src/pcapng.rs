//! The pcapng format: sections of blocks (draft-ietf-opsawg-pcapng).

use crate::MAX_CAPTURED;
use crate::bytes::{Order, align4};
use crate::error::{Error, Problem};
use crate::reader::{Interface, Record};

/// The same in both byte orders.
pub(crate) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const VERSION: u16 = 1;

/// Type and length in front, length again behind.
const FRAMING: usize = 12;
/// Larger than any block with a packet and its options; what claims more is damage.
const MAX_BLOCK: usize = 16 << 20;

const OPT_IF_NAME: u16 = 2;
const OPT_IF_TSRESOL: u16 = 9;
const OPT_IF_FCSLEN: u16 = 13;
const OPT_IF_TSOFFSET: u16 = 14;

/// What an interface's stamps count: the option if_tsresol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeUnit(u8);

impl TimeUnit {
    /// 10^-6 s: what a file without the option means.
    pub const MICROSECONDS: Self = Self(6);
    /// 10^-9 s.
    pub const NANOSECONDS: Self = Self(9);

    /// From the byte of the option: a negative power of ten, or of two if the top bit is set.
    pub const fn from_tsresol(byte: u8) -> Self {
        Self(byte)
    }

    /// The byte of the option.
    pub const fn tsresol(self) -> u8 {
        self.0
    }

    /// Nanoseconds of so many units, rounded down, at most what fits.
    pub fn to_ns(self, ticks: u64) -> u64 {
        let power = u32::from(self.0 & 0x7f);
        if self.0 & 0x80 != 0 {
            let ns = (u128::from(ticks) * 1_000_000_000) >> power;
            return u64::try_from(ns).unwrap_or(u64::MAX);
        }
        match power.checked_sub(9) {
            None => ticks.saturating_mul(10u64.pow(9 - power)),
            Some(finer) => 10u64.checked_pow(finer).map_or(0, |unit| ticks / unit),
        }
    }
}

impl Interface {
    fn stamp_ns(&self, ticks: u64) -> u64 {
        let offset = i128::from(self.time_offset) * 1_000_000_000;
        let ns = i128::from(self.time_unit.to_ns(ticks)) + offset;
        u64::try_from(ns.max(0)).unwrap_or(u64::MAX)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct PcapngReader<'a> {
    file: &'a [u8],
    at: usize,
    order: Order,
    interfaces: Vec<Interface>,
    /// Index of the section's interface 0.
    section: usize,
}

impl<'a> PcapngReader<'a> {
    /// Reads the first section header.
    pub(crate) fn new(file: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Self {
            file,
            at: 0,
            order: Order::Little,
            interfaces: Vec::new(),
            section: 0,
        };
        let skipped = reader.skip_block();
        skipped.map_err(|problem| match problem {
            Problem::Truncated { .. } => Error {
                offset: 0,
                problem: Problem::TruncatedHeader,
            },
            problem => Error { offset: 0, problem },
        })?;
        Ok(reader)
    }

    pub(crate) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    pub(crate) fn offset(&self) -> usize {
        self.at
    }

    pub(crate) fn next_record(&mut self) -> Result<Option<Record<'a>>, Problem> {
        while self.at < self.file.len() {
            if let Some(record) = self.skip_block()? {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Reads one block and moves behind it. Every block has at least [`FRAMING`] bytes, so this ends.
    fn skip_block(&mut self) -> Result<Option<Record<'a>>, Problem> {
        let (kind, body, len) = self.block()?;
        let short = || Problem::BlockLength {
            kind,
            len: len as u32,
        };
        let record = match kind {
            SECTION_HEADER => {
                let major = self
                    .order
                    .u16(body.get(4..).unwrap_or_default())
                    .ok_or_else(short)?;
                if major != VERSION {
                    return Err(Problem::Version {
                        major,
                        known: VERSION,
                    });
                }
                self.section = self.interfaces.len();
                None
            }
            INTERFACE => {
                let interface = self.interface(body).ok_or_else(short)?;
                self.interfaces.push(interface);
                None
            }
            ENHANCED_PACKET | OLD_PACKET => {
                let word = |at: usize| self.order.u32(body.get(at..)?);
                let id = if kind == OLD_PACKET {
                    self.order.u16(body).map(u32::from)
                } else {
                    word(0)
                };
                let (id, high, low) = (
                    id.ok_or_else(short)?,
                    word(4).ok_or_else(short)?,
                    word(8).ok_or_else(short)?,
                );
                let (captured, original) =
                    (word(12).ok_or_else(short)?, word(16).ok_or_else(short)?);
                let ticks = u64::from(high) << 32 | u64::from(low);
                Some(
                    self.packet(id, Some(ticks), captured, original, &body[20..])
                        .map_err(|p| p.unwrap_or_else(short))?,
                )
            }
            SIMPLE_PACKET => {
                let original = self.order.u32(body).ok_or_else(short)?;
                let limit = self
                    .interfaces
                    .get(self.section)
                    .map_or(0, |interface| interface.snap_len);
                let captured = if limit == 0 {
                    original
                } else {
                    original.min(limit)
                };
                Some(
                    self.packet(0, None, captured, original, &body[4..])
                        .map_err(|p| p.unwrap_or_else(short))?,
                )
            }
            _ => None,
        };
        self.at += len;
        Ok(record)
    }

    /// The block at the present place: type, body, whole length. A section header also sets the byte order.
    fn block(&mut self) -> Result<(u32, &'a [u8], usize), Problem> {
        let rest = &self.file[self.at..];
        let cut = |needed: usize| Problem::Truncated {
            what: "block",
            needed: needed as u64,
            present: rest.len() as u64,
        };
        if rest.len() < FRAMING {
            return Err(cut(FRAMING));
        }
        let (_, after_kind) = rest.split_at(4);
        if rest[..4] == SECTION_HEADER.to_le_bytes() {
            let magic = *rest[8..].first_chunk::<4>().ok_or_else(|| cut(FRAMING))?;
            self.order = match magic {
                _ if magic == BYTE_ORDER.to_le_bytes() => Order::Little,
                _ if magic == BYTE_ORDER.to_be_bytes() => Order::Big,
                _ => return Err(Problem::ByteOrder(magic)),
            };
        }
        let kind = self.order.u32(rest).ok_or_else(|| cut(FRAMING))?;
        let claimed = self.order.u32(after_kind).ok_or_else(|| cut(FRAMING))?;
        let len = claimed as usize;
        let wrong = Problem::BlockLength { kind, len: claimed };
        // Some writers leave the length without its padding; libpcap refuses these files, too.
        if len < FRAMING || !len.is_multiple_of(4) || len > MAX_BLOCK {
            return Err(wrong);
        }
        let block = rest.get(..len).ok_or_else(|| cut(len))?;
        if self.order.u32(&block[len - 4..]) != Some(claimed) {
            return Err(wrong);
        }
        Ok((kind, &block[8..len - 4], len))
    }

    fn interface(&self, body: &[u8]) -> Option<Interface> {
        let mut interface = Interface {
            link_type: self.order.u16(body)?,
            snap_len: self.order.u32(body.get(4..)?)?,
            name: None,
            fcs_len: 0,
            time_unit: TimeUnit::MICROSECONDS,
            time_offset: 0,
        };
        let mut options = body.get(8..)?;
        while let (Some(code), Some(len)) = (
            self.order.u16(options),
            self.order.u16(options.get(2..).unwrap_or_default()),
        ) {
            if code == 0 {
                break;
            }
            let len = usize::from(len);
            let value = options.get(4..4 + len)?;
            match (code, value) {
                (OPT_IF_NAME, _) => {
                    interface.name = Some(
                        String::from_utf8_lossy(value)
                            .trim_end_matches('\0')
                            .to_owned(),
                    )
                }
                (OPT_IF_TSRESOL, [byte, ..]) => interface.time_unit = TimeUnit::from_tsresol(*byte),
                (OPT_IF_FCSLEN, [byte, ..]) => interface.fcs_len = *byte,
                (OPT_IF_TSOFFSET, _) => interface.time_offset = self.order.i64(value)?,
                _ => {}
            }
            options = options.get(4 + align4(len)..)?;
        }
        Some(interface)
    }

    /// The packet with its bytes at the start of `body`; the error is None if they are more than the block has.
    fn packet(
        &self,
        id: u32,
        ticks: Option<u64>,
        captured: u32,
        original_len: u32,
        body: &'a [u8],
    ) -> Result<Record<'a>, Option<Problem>> {
        let known = &self.interfaces[self.section..];
        let unknown = || Problem::UnknownInterface {
            id,
            known: known.len() as u32,
        };
        let interface = known.get(id as usize).ok_or_else(unknown)?;
        if captured as usize > MAX_CAPTURED {
            return Err(Some(Problem::TooLarge(captured)));
        }
        Ok(Record {
            stamp_ns: ticks.map_or(0, |ticks| interface.stamp_ns(ticks)),
            captured: body.get(..captured as usize).ok_or(None)?,
            original_len,
            interface: (self.section + id as usize) as u32,
            link_type: interface.link_type,
        })
    }
}

/// Writes one pcapng section with nanosecond stamps, little endian.
///
/// Begin with [`new`](Self::new), describe all interfaces with [`interface`](Self::interface), then
/// append packets. Every call appends whole blocks to its buffer.
#[derive(Clone, Debug)]
pub struct PcapngWriter {
    interfaces: u32,
}

impl PcapngWriter {
    /// Begins a section: appends its header, which names the writing program if `application` is not empty.
    pub fn new(application: &str, out: &mut Vec<u8>) -> Self {
        const OPT_APPLICATION: u16 = 4;
        block(SECTION_HEADER, out, |out| {
            out.extend(BYTE_ORDER.to_le_bytes());
            out.extend(VERSION.to_le_bytes());
            out.extend(0u16.to_le_bytes());
            // The length of the section is not known while it is written.
            out.extend((-1i64).to_le_bytes());
            if !application.is_empty() {
                option(OPT_APPLICATION, application.as_bytes(), out);
                end_of_options(out);
            }
        });
        Self { interfaces: 0 }
    }

    /// Describes the next interface and gives its number for [`record`](Self::record).
    pub fn interface(&mut self, name: &str, link_type: u16, out: &mut Vec<u8>) -> u32 {
        block(INTERFACE, out, |out| {
            out.extend(link_type.to_le_bytes());
            out.extend(0u16.to_le_bytes());
            out.extend((MAX_CAPTURED as u32).to_le_bytes());
            if !name.is_empty() {
                option(OPT_IF_NAME, name.as_bytes(), out);
            }
            option(OPT_IF_TSRESOL, &[TimeUnit::NANOSECONDS.tsresol()], out);
            end_of_options(out);
        });
        self.interfaces += 1;
        self.interfaces - 1
    }

    /// Appends a frame of an interface. Of more than [`MAX_CAPTURED`] bytes the rest is cut off.
    pub fn record(
        &mut self,
        interface: u32,
        stamp_ns: u64,
        original_len: u32,
        captured: &[u8],
        out: &mut Vec<u8>,
    ) {
        debug_assert!(
            interface < self.interfaces,
            "described before its first packet"
        );
        let captured = &captured[..captured.len().min(MAX_CAPTURED)];
        block(ENHANCED_PACKET, out, |out| {
            for word in [
                interface,
                (stamp_ns >> 32) as u32,
                stamp_ns as u32,
                captured.len() as u32,
                original_len,
            ] {
                out.extend(word.to_le_bytes());
            }
            padded(captured, out);
        });
    }
}

/// Appends a block with this body.
fn block(kind: u32, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend(kind.to_le_bytes());
    out.extend([0; 4]);
    body(out);
    let len = (out.len() - start + 4) as u32;
    out[start + 4..start + 8].copy_from_slice(&len.to_le_bytes());
    out.extend(len.to_le_bytes());
}

/// Appends an option; a value of 64 KiB and more is cut.
fn option(code: u16, value: &[u8], out: &mut Vec<u8>) {
    let value = &value[..value.len().min(u16::MAX.into())];
    out.extend(code.to_le_bytes());
    out.extend((value.len() as u16).to_le_bytes());
    padded(value, out);
}

fn end_of_options(out: &mut Vec<u8>) {
    out.extend([0; 4]);
}

fn padded(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(bytes);
    out.resize(out.len() + align4(bytes.len()) - bytes.len(), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_time() {
        for (byte, ticks, ns) in [
            (0, 7, 7_000_000_000),
            (3, 7, 7_000_000),
            (6, 1_700_000_000_123_456, 1_700_000_000_123_456_000),
            (9, 7, 7),
            (12, 7_999, 7),
            (29, u64::MAX, 0),
            (127, u64::MAX, 0),
            (0, u64::MAX, u64::MAX),
            (0x80, 7, 7_000_000_000),
            (0x80 | 10, 512, 500_000_000),
            (0x80 | 32, 1 << 31, 500_000_000),
            (0x80 | 127, u64::MAX, 0),
            (0x80, u64::MAX, u64::MAX),
        ] {
            assert_eq!(TimeUnit::from_tsresol(byte).to_ns(ticks), ns, "{byte:#x}");
        }
    }
}
