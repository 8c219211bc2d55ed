//! Receive ring that a packet socket shares with the kernel.
//!
//! A ring is a sequence of equal *units*, each with a status word: blocks of frames in TPACKET_V3, single frames in
//! TPACKET_V2. The status determines the owner of the unit.
#![allow(unsafe_code)] // Slices and atomics in memory shared with the kernel.

use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use wb_port::{ChecksumState, RxFrame, StampSource, StrippedVlan};

use crate::mapping::Mapping;
use crate::{RxMode, sys};

/// Time beyond two timeouts for which a frame may wait in a block: two ticks of up to 10 ms, if the kernel's timer has
/// no finer resolution.
const TIMER_SLACK: Duration = Duration::from_millis(21);
/// Size and timeout of blocks in TPACKET_V3.
#[derive(Clone, Copy)]
pub(crate) struct Blocks {
    /// Maximum size of a block in bytes.
    pub(crate) bytes: usize,
    /// Minimum number of blocks.
    pub(crate) least: usize,
    /// Time after which a block that is not full is handed over.
    pub(crate) timeout_ms: u32,
}

/// Smallest size to which a ring is halved, in bytes.
const LEAST_RING: usize = 1 << 20;
const PAGE: usize = 4096;
/// Space for the headers that the kernel puts before a frame, in both versions.
const HEADROOM: usize = 128;

/// Units and their owners.
struct Units {
    memory: Mapping,
    unit_size: usize,
    count: usize,
    status_offset: usize,
}

impl Units {
    /// Unit `i`, if user space owns it.
    #[inline]
    fn ours(&self, i: usize) -> Option<&[u8]> {
        // Acquire pairs with the kernel's barrier between filling the unit and setting its status.
        if self.status(i).load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the unit lies in the mapping (`status` has checked `i`). The kernel does not write to it before
        // `give_back`, which needs `&mut self` and so cannot run during this borrow.
        Some(unsafe {
            let start = self.memory.start().add(i * self.unit_size);
            std::slice::from_raw_parts(start.as_ptr(), self.unit_size)
        })
    }

    /// Returns unit `i` to the kernel.
    #[inline]
    fn give_back(&mut self, i: usize) {
        // Release: all reads of the unit have ended before the kernel may fill it again.
        self.status(i)
            .store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }

    #[inline]
    fn status(&self, i: usize) -> &AtomicU32 {
        assert!(i < self.count, "unit {i} of {}", self.count);
        // SAFETY: the word lies in the mapping and is aligned (units are multiples of 16 bytes in a page-aligned
        // mapping, `status_offset` is 0 or 8). The kernel accesses it only as a whole.
        unsafe {
            let word = self
                .memory
                .start()
                .add(i * self.unit_size + self.status_offset);
            AtomicU32::from_ptr(word.as_ptr().cast())
        }
    }
}

/// Receive ring and the read position.
pub(crate) struct ReceiveRing {
    units: Units,
    mode: RxMode,
    /// Next unit to read.
    next: usize,
    /// In TPACKET_V3, the frames of that block not shown yet, and the offset of the first of them.
    left: u32,
    offset: usize,
    /// Longest time for which a frame waits in a block.
    hold: Duration,
}

impl ReceiveRing {
    /// Creates a ring of about `bytes` for the socket, or smaller if the kernel lacks memory.
    pub(crate) fn new(
        socket: BorrowedFd<'_>,
        mode: RxMode,
        bytes: usize,
        blocks: Blocks,
        longest_frame: usize,
    ) -> io::Result<Self> {
        let mut bytes = bytes;
        loop {
            match Self::try_new(socket, mode, bytes, blocks, longest_frame) {
                Err(e) if e.raw_os_error() == Some(libc::ENOMEM) && bytes / 2 >= LEAST_RING => {
                    bytes /= 2;
                }
                result => return result,
            }
        }
    }

    fn try_new(
        socket: BorrowedFd<'_>,
        mode: RxMode,
        bytes: usize,
        blocks: Blocks,
        longest_frame: usize,
    ) -> io::Result<Self> {
        let room = (longest_frame + HEADROOM).next_power_of_two().max(2048);
        let block_size = (bytes / blocks.least.max(2) + 1).next_power_of_two() / 2;
        let block_size = block_size.min(blocks.bytes).max(room).max(PAGE);
        let block_count = (bytes / block_size).max(2);
        let int = |n: usize| libc::c_uint::try_from(n).map_err(|_| io::ErrorKind::InvalidInput);
        let version = match mode {
            RxMode::Throughput => libc::tpacket_versions::TPACKET_V3,
            RxMode::LowLatency => libc::tpacket_versions::TPACKET_V2,
        };
        sys::set_packet_option(socket, libc::PACKET_VERSION, version as i32)?;
        // Powers of two, so that frames fill their blocks without gaps.
        let frame_count = block_count * (block_size / room);
        let request = libc::tpacket_req3 {
            tp_block_size: int(block_size)?,
            tp_block_nr: int(block_count)?,
            tp_frame_size: int(room)?,
            tp_frame_nr: int(frame_count)?,
            tp_retire_blk_tov: blocks.timeout_ms,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set_ring(socket, mode, request)?;
        let memory = Mapping::shared(socket, block_size * block_count).inspect_err(|_| {
            // Free a ring that cannot be mapped, so that a smaller one can be requested.
            let none = libc::tpacket_req3 {
                tp_block_size: 0,
                tp_block_nr: 0,
                tp_frame_size: 0,
                tp_frame_nr: 0,
                ..request
            };
            let _ = set_ring(socket, mode, none);
        })?;
        let (unit_size, count, status_offset) = match mode {
            RxMode::Throughput => (block_size, block_count, v3::BLOCK_STATUS),
            RxMode::LowLatency => (room, frame_count, v2::STATUS),
        };
        let units = Units {
            memory,
            unit_size,
            count,
            status_offset,
        };
        Ok(Self {
            units,
            mode,
            next: 0,
            left: 0,
            offset: 0,
            hold: Duration::from_millis(2 * u64::from(blocks.timeout_ms)) + TIMER_SLACK,
        })
    }

    /// Size of the ring in bytes.
    pub(crate) fn size(&self) -> usize {
        self.units.memory.len()
    }

    /// Maximum time from the arrival of a frame until it can be received.
    pub(crate) fn longest_hold(&self) -> Duration {
        match self.mode {
            RxMode::Throughput => self.hold,
            RxMode::LowLatency => Duration::ZERO,
        }
    }

    /// Returns true if [`ReceiveRing::receive`] would show a frame.
    pub(crate) fn has_frame(&self) -> bool {
        self.left > 0 || self.units.ours(self.next).is_some()
    }

    /// Passes up to `max` frames to `on_frame`; returns their number.
    #[inline]
    pub(crate) fn receive(&mut self, max: usize, on_frame: impl FnMut(&RxFrame<'_>)) -> usize {
        match self.mode {
            RxMode::Throughput => self.receive_blocks(max, on_frame),
            RxMode::LowLatency => self.receive_frames(max, on_frame),
        }
    }

    fn receive_blocks(&mut self, max: usize, mut on_frame: impl FnMut(&RxFrame<'_>)) -> usize {
        let mut shown = 0;
        while shown < max {
            let Some(block) = self.units.ours(self.next) else {
                break;
            };
            if self.left == 0 {
                (self.left, self.offset) = v3::block(block);
            }
            while self.left > 0 && shown < max {
                let (frame, distance) = v3::frame(&block[self.offset..]);
                on_frame(&frame);
                self.offset += distance;
                self.left -= 1;
                shown += 1;
            }
            if self.left == 0 {
                self.units.give_back(self.next);
                self.advance();
            }
        }
        shown
    }

    fn receive_frames(&mut self, max: usize, mut on_frame: impl FnMut(&RxFrame<'_>)) -> usize {
        let mut shown = 0;
        while shown < max {
            let Some(unit) = self.units.ours(self.next) else {
                break;
            };
            on_frame(&v2::frame(unit));
            self.units.give_back(self.next);
            self.advance();
            shown += 1;
        }
        shown
    }

    fn advance(&mut self) {
        self.next += 1;
        if self.next == self.units.count {
            self.next = 0;
        }
    }
}

fn set_ring(socket: BorrowedFd<'_>, mode: RxMode, request: libc::tpacket_req3) -> io::Result<()> {
    match mode {
        RxMode::Throughput => sys::set_rx_ring_v3(socket, request),
        RxMode::LowLatency => {
            let libc::tpacket_req3 {
                tp_block_size,
                tp_block_nr,
                tp_frame_size,
                tp_frame_nr,
                ..
            } = request;
            let request = libc::tpacket_req {
                tp_block_size,
                tp_block_nr,
                tp_frame_size,
                tp_frame_nr,
            };
            sys::set_rx_ring_v2(socket, request)
        }
    }
}

/// Metadata of a frame, common to both versions.
struct Header {
    status: u32,
    len: u32,
    captured: u32,
    mac: u16,
    seconds: u32,
    nanoseconds: u32,
    tci: u16,
    tpid: u16,
}

impl Header {
    /// Frame that begins `mac` bytes into `unit`.
    #[inline]
    fn frame(self, unit: &[u8]) -> RxFrame<'_> {
        let start = usize::from(self.mac);
        RxFrame {
            bytes: &unit[start..start + self.captured as usize],
            original_len: self.len,
            stamp_ns: u64::from(self.seconds) * 1_000_000_000 + u64::from(self.nanoseconds),
            stamp_source: if self.status & libc::TP_STATUS_TS_RAW_HARDWARE != 0 {
                StampSource::Nic
            } else {
                StampSource::KernelTpacket
            },
            vlan: stripped_vlan(self.status, self.tci, self.tpid),
            checksum: checksum_state(self.status),
        }
    }
}

/// VLAN tag that was removed from a frame with this status.
#[inline]
pub(crate) fn stripped_vlan(status: u32, tci: u16, tpid: u16) -> Option<StrippedVlan> {
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let tpid = if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 {
        tpid
    } else {
        0x8100
    };
    Some(StrippedVlan { tpid, tci })
}

/// State of the layer-4 checksum of a frame with this status.
#[inline]
pub(crate) fn checksum_state(status: u32) -> ChecksumState {
    if status & libc::TP_STATUS_CSUMNOTREADY != 0 {
        ChecksumState::NotReady
    } else if status & libc::TP_STATUS_CSUM_VALID != 0 {
        ChecksumState::Valid
    } else {
        ChecksumState::Unknown
    }
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

mod v2 {
    use super::*;
    use libc::tpacket2_hdr as Raw;

    pub(super) const STATUS: usize = offset_of!(Raw, tp_status);

    #[inline]
    pub(super) fn frame(unit: &[u8]) -> RxFrame<'_> {
        let raw = &unit[..size_of::<Raw>()];
        Header {
            status: u32_at(raw, STATUS),
            len: u32_at(raw, offset_of!(Raw, tp_len)),
            captured: u32_at(raw, offset_of!(Raw, tp_snaplen)),
            mac: u16_at(raw, offset_of!(Raw, tp_mac)),
            seconds: u32_at(raw, offset_of!(Raw, tp_sec)),
            nanoseconds: u32_at(raw, offset_of!(Raw, tp_nsec)),
            tci: u16_at(raw, offset_of!(Raw, tp_vlan_tci)),
            tpid: u16_at(raw, offset_of!(Raw, tp_vlan_tpid)),
        }
        .frame(unit)
    }
}

mod v3 {
    use super::*;
    use libc::{
        tpacket_block_desc as Descriptor, tpacket_hdr_v1 as Block, tpacket_hdr_variant1 as Variant,
        tpacket3_hdr as Raw,
    };

    const BLOCK: usize = offset_of!(Descriptor, hdr);
    pub(super) const BLOCK_STATUS: usize = BLOCK + offset_of!(Block, block_status);

    /// Number of frames in a block, and offset of the first.
    #[inline]
    pub(super) fn block(block: &[u8]) -> (u32, usize) {
        let frames = u32_at(block, BLOCK + offset_of!(Block, num_pkts));
        let first = u32_at(block, BLOCK + offset_of!(Block, offset_to_first_pkt));
        (frames, first as usize)
    }

    /// Frame at the start of `unit`, and distance to the next one.
    #[inline]
    pub(super) fn frame(unit: &[u8]) -> (RxFrame<'_>, usize) {
        const VARIANT: usize = offset_of!(Raw, hv1);
        let raw = &unit[..size_of::<Raw>()];
        let header = Header {
            status: u32_at(raw, offset_of!(Raw, tp_status)),
            len: u32_at(raw, offset_of!(Raw, tp_len)),
            captured: u32_at(raw, offset_of!(Raw, tp_snaplen)),
            mac: u16_at(raw, offset_of!(Raw, tp_mac)),
            seconds: u32_at(raw, offset_of!(Raw, tp_sec)),
            nanoseconds: u32_at(raw, offset_of!(Raw, tp_nsec)),
            tci: u32_at(raw, VARIANT + offset_of!(Variant, tp_vlan_tci)) as u16,
            tpid: u16_at(raw, VARIANT + offset_of!(Variant, tp_vlan_tpid)),
        };
        (
            header.frame(unit),
            u32_at(raw, offset_of!(Raw, tp_next_offset)) as usize,
        )
    }
}
