//! Buffers used in turn, with the requested alignment, filled with the data to send.
//!
//! One allocation holds all buffers. A ring larger than the CPU caches behaves like a program that does not send the
//! same bytes repeatedly.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek},
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use wb_model::socket::SocketSide;

use super::memory::ZeroedMemory;

/// Data sent if no file is given: netperf's.
const FILLING: &[u8; 8] = b"netperf\0";
/// Maximum bytes of a ring with more than one buffer, because a peer may request any number.
const LARGEST_RING: u64 = 256 << 20;

/// Layout of a ring of buffers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BufferPlan {
    /// Bytes per buffer.
    pub size: u32,
    /// Number of buffers; 0 means 1. Reduced so that the ring fits into 256 MiB.
    pub width: u32,
    /// Alignment: a power of two; 0 and 1 mean none.
    pub align: u32,
    /// Offset after the alignment, bytes.
    pub offset: u32,
    /// File that fills the buffers, repeated from its beginning when it ends.
    pub fill: Option<PathBuf>,
}

impl BufferPlan {
    /// Plan for the buffers that one end sends.
    #[must_use]
    pub fn for_sending(side: &SocketSide, size: u32, width: u32) -> Self {
        Self {
            size,
            width,
            align: side.send_align,
            offset: side.send_offset,
            fill: side.fill_file.as_ref().map(PathBuf::from),
        }
    }

    /// Plan for the buffers that one end receives into.
    #[must_use]
    pub fn for_receiving(side: &SocketSide, size: u32, width: u32) -> Self {
        Self {
            size,
            width,
            align: side.receive_align,
            offset: side.receive_offset,
            fill: None,
        }
    }

    /// A number of bytes, rounded up to whole buffers.
    #[must_use]
    pub fn round_up_to_buffers(&self, amount: Option<u64>) -> Option<u64> {
        let size = u64::from(self.size.max(1));
        amount.map(|bytes| bytes.div_ceil(size).saturating_mul(size))
    }

    /// Number of buffers after the memory limit.
    #[must_use]
    pub fn effective_width(&self) -> u32 {
        let most = LARGEST_RING / self.stride().max(1);
        u64::from(self.width).clamp(1, most.max(1)) as u32
    }

    /// Distance from one buffer to the next.
    fn stride(&self) -> u64 {
        let align = u64::from(self.align.max(1).next_power_of_two());
        (u64::from(self.size) + u64::from(self.offset)).next_multiple_of(align)
    }
}

/// netperf's default number of buffers for streams: enough to fill the socket buffer, plus one, and at least two.
#[must_use]
pub fn default_width(socket_buffer: u32, size: u32) -> u32 {
    (socket_buffer / size.max(1)).saturating_add(1).max(2)
}

/// The allocated buffers.
#[derive(Debug)]
pub struct BufferRing {
    memory: ZeroedMemory,
    first: usize,
    stride: usize,
    size: usize,
    width: usize,
    turn: usize,
}

impl BufferRing {
    /// Allocates and fills the buffers.
    ///
    /// # Errors
    /// Fails if memory runs out, or if the file cannot be read, is empty, or is neither a regular file nor a character
    /// device.
    pub fn new(plan: &BufferPlan) -> io::Result<Self> {
        let mut ring = Self::allocate_with(plan, ZeroedMemory::huge)?;
        match &plan.fill {
            None => ring.fill_repeating(FILLING),
            Some(path) => ring.fill_from(path)?,
        }
        Ok(ring)
    }

    /// Allocates zeroed buffers for receiving; the kernel provides the memory on first use.
    ///
    /// # Errors
    /// Fails if memory runs out.
    pub(super) fn empty(plan: &BufferPlan) -> io::Result<Self> {
        Self::allocate_with(plan, ZeroedMemory::new)
    }

    fn allocate_with(
        plan: &BufferPlan,
        memory: fn(usize) -> io::Result<ZeroedMemory>,
    ) -> io::Result<Self> {
        let width = plan.effective_width() as usize;
        let align = plan.align.max(1).next_power_of_two() as usize;
        let stride = plan.stride() as usize;
        let memory = memory(width * stride + align + plan.offset as usize)?;
        let first = (memory.as_ptr() as usize).next_multiple_of(align) - memory.as_ptr() as usize
            + plan.offset as usize;
        Ok(Self {
            memory,
            first,
            stride,
            size: plan.size as usize,
            width,
            turn: 0,
        })
    }

    fn fill_repeating(&mut self, what: &[u8]) {
        for n in 0..self.width {
            for piece in self.at_mut(n).chunks_mut(what.len()) {
                piece.copy_from_slice(&what[..piece.len()]);
            }
        }
    }

    fn fill_from(&mut self, path: &Path) -> io::Result<()> {
        let mut file = open_filling(path)?;
        for n in 0..self.width {
            read_around(&mut file, self.at_mut(n)).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            })?;
        }
        Ok(())
    }

    /// Bytes per buffer.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Number of buffers.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// The current buffer.
    #[inline]
    #[must_use]
    pub fn current(&self) -> &[u8] {
        let at = self.first + self.turn * self.stride;
        &self.memory[at..at + self.size]
    }

    /// The current buffer, writable.
    #[inline]
    pub fn current_mut(&mut self) -> &mut [u8] {
        let at = self.first + self.turn * self.stride;
        &mut self.memory[at..at + self.size]
    }

    /// Moves to the next buffer.
    #[inline]
    pub fn advance(&mut self) {
        self.turn += 1;
        if self.turn == self.width {
            self.turn = 0;
        }
    }

    /// Leaks the memory because the kernel may still send from it: data allocated there later must not go out.
    pub(super) fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.memory));
        self.width = 0;
    }

    /// Index of the current buffer.
    pub(super) fn current_index(&self) -> usize {
        self.turn
    }

    /// All buffers.
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let size = self.size;
        self.memory[self.first..]
            .chunks_mut(self.stride)
            .take(self.width)
            .map(move |buffer| &mut buffer[..size])
    }

    /// A buffer by index.
    pub(super) fn at(&self, n: usize) -> &[u8] {
        let at = self.first + n * self.stride;
        &self.memory[at..at + self.size]
    }

    /// A buffer by index, writable.
    pub(super) fn at_mut(&mut self, n: usize) -> &mut [u8] {
        let at = self.first + n * self.stride;
        &mut self.memory[at..at + self.size]
    }
}

/// Opens a file to be sent. Refuses files that could block the reader, such as pipes and terminals.
pub(super) fn open_filling(path: &Path) -> io::Result<File> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(named)?;
    let kind = file.metadata().map_err(named)?.file_type();
    if kind.is_file() || kind.is_char_device() {
        Ok(file)
    } else {
        Err(named(io::Error::new(
            io::ErrorKind::InvalidInput,
            "neither a regular file nor a character device",
        )))
    }
}

/// Fills a buffer from a file, and starts over when the file ends.
pub(super) fn read_around(file: &mut File, buffer: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    let mut rewound = false;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) if rewound => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the file is empty",
                ));
            }
            Ok(0) => {
                file.rewind()?;
                rewound = true;
            }
            Ok(n) => {
                filled += n;
                rewound = false;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn plan(size: u32, width: u32) -> BufferPlan {
        BufferPlan {
            size,
            width,
            align: 8,
            ..BufferPlan::default()
        }
    }

    #[test]
    fn aligned_offset_and_filled() {
        for (size, align, offset) in [(1, 1, 0), (10, 8, 3), (4097, 4096, 5), (16, 65_536, 0)] {
            let mut ring = BufferRing::new(&BufferPlan {
                align,
                offset,
                ..plan(size, 3)
            })
            .unwrap();
            let mut seen = Vec::new();
            for _ in 0..3 {
                let buffer = ring.current();
                let address = buffer.as_ptr() as usize;
                assert_eq!(address % align as usize, offset as usize % align as usize);
                assert_eq!(buffer.len(), size as usize);
                for (n, byte) in buffer.iter().enumerate() {
                    assert_eq!(*byte, FILLING[n % 8]);
                }
                seen.push(address);
                ring.advance();
            }
            assert_eq!(ring.current().as_ptr() as usize, seen[0]);
            seen.dedup();
            assert_eq!(seen.len(), 3);
        }
    }

    #[test]
    fn a_file_goes_round() {
        let path = std::env::temp_dir().join(format!("wb-socket-fill-{}", std::process::id()));
        File::create(&path).unwrap().write_all(b"abcde").unwrap();
        let mut filled = BufferPlan {
            fill: Some(path.clone()),
            ..plan(7, 2)
        };
        let ring = BufferRing::new(&filled).unwrap();
        assert_eq!(ring.at(0), b"abcdeab");
        assert_eq!(ring.at(1), b"cdeabcd");
        File::create(&path).unwrap();
        let error = BufferRing::new(&filled).unwrap_err().to_string();
        assert!(error.contains("empty"), "{error}");
        std::fs::remove_file(&path).unwrap();
        assert!(BufferRing::new(&filled).is_err());
        filled.fill = Some(std::env::temp_dir());
        assert!(BufferRing::new(&filled).is_err());
        filled.fill = Some("/dev/urandom".into());
        let ring = BufferRing::new(&BufferPlan { size: 64, ..filled }).unwrap();
        assert_ne!(ring.at(0), ring.at(1));
    }

    #[test]
    fn a_peer_cannot_ask_for_all_memory() {
        let wide = plan(1 << 20, u32::MAX);
        assert_eq!(wide.effective_width(), 256);
        assert_eq!(plan(1 << 30, 7).effective_width(), 1);
        assert_eq!(plan(1, 0).effective_width(), 1);
        assert_eq!(default_width(16_384, 16_384), 2);
        assert_eq!(default_width(131_072, 16_384), 9);
        assert_eq!(default_width(100, 1000), 2);
        assert_eq!(default_width(u32::MAX, 0), u32::MAX);
    }
}
