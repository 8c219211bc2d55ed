//! The pcap format of libpcap: a file header of 24 bytes, then records.

use crate::MAX_CAPTURED;
use crate::bytes::Order;
use crate::error::Problem;
use crate::pcapng::TimeUnit;
use crate::reader::{Interface, Record};

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
const VERSION: u16 = 2;
const FILE_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;

#[derive(Clone, Debug)]
pub(crate) struct PcapReader<'a> {
    file: &'a [u8],
    at: usize,
    order: Order,
    interface: [Interface; 1],
}

impl<'a> PcapReader<'a> {
    /// None if the file is not pcap.
    pub(crate) fn new(file: &'a [u8]) -> Result<Option<Self>, Problem> {
        let magic = |order: Order| match order.u32(file)? {
            MICROSECONDS => Some((order, TimeUnit::MICROSECONDS)),
            NANOSECONDS => Some((order, TimeUnit::NANOSECONDS)),
            _ => None,
        };
        let Some((order, time_unit)) = magic(Order::Little).or_else(|| magic(Order::Big)) else {
            return Ok(None);
        };
        let header: &[u8; FILE_HEADER] = file.first_chunk().ok_or(Problem::TruncatedHeader)?;
        let major = order.u16(&header[4..]).ok_or(Problem::TruncatedHeader)?;
        if major != VERSION {
            return Err(Problem::Version {
                major,
                known: VERSION,
            });
        }
        let snap_len = order.u32(&header[16..]).ok_or(Problem::TruncatedHeader)?;
        let link = order.u32(&header[20..]).ok_or(Problem::TruncatedHeader)?;
        // pcap-linktype(7): bit 26 says that the top four bits count the FCS in words of two bytes.
        let fcs_len = if link & 1 << 26 != 0 {
            (link >> 28) as u8 * 2
        } else {
            0
        };
        let interface = Interface {
            link_type: link as u16,
            snap_len,
            name: None,
            fcs_len,
            time_unit,
            time_offset: 0,
        };
        Ok(Some(Self {
            file,
            at: FILE_HEADER,
            order,
            interface: [interface],
        }))
    }

    pub(crate) fn interfaces(&self) -> &[Interface] {
        &self.interface
    }

    pub(crate) fn offset(&self) -> usize {
        self.at
    }

    pub(crate) fn next_record(&mut self) -> Result<Option<Record<'a>>, Problem> {
        let rest = &self.file[self.at..];
        if rest.is_empty() {
            return Ok(None);
        }
        let cut = |what, needed: usize, rest: &[u8]| Problem::Truncated {
            what,
            needed: needed as u64,
            present: rest.len() as u64,
        };
        let (header, body) = rest
            .split_at_checked(RECORD_HEADER)
            .ok_or_else(|| cut("record header", RECORD_HEADER, rest))?;
        let word = |at: usize| self.order.u32(&header[at..]).unwrap_or_default();
        let (seconds, fraction, captured_len, original_len) = (word(0), word(4), word(8), word(12));
        let len = captured_len as usize;
        if len > MAX_CAPTURED {
            return Err(Problem::TooLarge(captured_len));
        }
        let captured = body.get(..len).ok_or_else(|| cut("record", len, body))?;
        self.at += RECORD_HEADER + len;
        let stamp_ns =
            u64::from(seconds) * 1_000_000_000 + self.interface[0].time_unit.to_ns(fraction.into());
        Ok(Some(Record {
            stamp_ns,
            captured,
            original_len,
            interface: 0,
            link_type: self.interface[0].link_type,
        }))
    }
}

/// Writes pcap with nanosecond stamps, little endian.
///
/// Seconds have 32 bits and wrap in 2106.
#[derive(Clone, Debug)]
pub struct PcapWriter(());

impl PcapWriter {
    /// The file header.
    pub const fn file_header(link_type: u16) -> [u8; FILE_HEADER] {
        let [n0, n1, n2, n3] = NANOSECONDS.to_le_bytes();
        let [s0, s1, s2, s3] = (MAX_CAPTURED as u32).to_le_bytes();
        let [l0, l1] = link_type.to_le_bytes();
        [
            n0, n1, n2, n3, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, s0, s1, s2, s3, l0, l1, 0, 0,
        ]
    }

    /// What stands in front of the captured bytes of a frame.
    pub fn record_header(
        stamp_ns: u64,
        original_len: u32,
        captured_len: u32,
    ) -> [u8; RECORD_HEADER] {
        let seconds = (stamp_ns / 1_000_000_000) as u32;
        let fraction = (stamp_ns % 1_000_000_000) as u32;
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

    /// Begins a file: appends its header to `out`.
    pub fn new(link_type: u16, out: &mut Vec<u8>) -> Self {
        out.extend(Self::file_header(link_type));
        Self(())
    }

    /// Appends a frame to `out`. Of more than [`MAX_CAPTURED`] bytes the rest is cut off.
    pub fn record(&mut self, stamp_ns: u64, original_len: u32, captured: &[u8], out: &mut Vec<u8>) {
        let captured = &captured[..captured.len().min(MAX_CAPTURED)];
        out.extend(Self::record_header(
            stamp_ns,
            original_len,
            captured.len() as u32,
        ));
        out.extend_from_slice(captured);
    }
}
