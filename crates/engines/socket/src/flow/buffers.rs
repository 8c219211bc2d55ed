//! Buffers that are used in turn, aligned as asked for and filled with what is sent.
//!
//! One piece of memory holds them all. A ring larger than the processor's caches shows what a
//! program sees that does not send the same bytes again and again.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek},
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use wb_model::socket::SocketSide;

use super::memory::Memory;

/// What is sent where no file is given: netperf's.
const FILLING: &[u8; 8] = b"netperf\0";
/// Bytes of a ring at most, if it has more than one buffer: a peer may ask for any width.
const LARGEST_RING: u64 = 256 << 20;

/// Buffers used in turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BufferPlan {
    /// Bytes of each.
    pub size: u32,
    /// How many; 0 is 1. As few as fit into 256 MiB, if these do not.
    pub width: u32,
    /// Alignment: a power of two; 0 and 1 is none.
    pub align: u32,
    /// Bytes after the alignment.
    pub offset: u32,
    /// The file they are filled from, again from its beginning when it ends.
    pub fill: Option<PathBuf>,
}

impl BufferPlan {
    /// Of what one end sends.
    #[must_use]
    pub fn sends(side: &SocketSide, size: u32, width: u32) -> Self {
        Self {
            size,
            width,
            align: side.send_align,
            offset: side.send_offset,
            fill: side.fill_file.as_ref().map(PathBuf::from),
        }
    }

    /// Of what one end receives.
    #[must_use]
    pub fn receives(side: &SocketSide, size: u32, width: u32) -> Self {
        Self {
            size,
            width,
            align: side.receive_align,
            offset: side.receive_offset,
            fill: None,
        }
    }

    /// An amount of bytes, rounded up to whole buffers.
    #[must_use]
    pub fn whole(&self, amount: Option<u64>) -> Option<u64> {
        let size = u64::from(self.size.max(1));
        amount.map(|bytes| bytes.div_ceil(size).saturating_mul(size))
    }

    /// How many buffers there will be.
    #[must_use]
    pub fn effective_width(&self) -> u32 {
        let most = LARGEST_RING / self.stride().max(1);
        u64::from(self.width).clamp(1, most.max(1)) as u32
    }

    /// From one buffer to the next.
    fn stride(&self) -> u64 {
        let align = u64::from(self.align.max(1).next_power_of_two());
        (u64::from(self.size) + u64::from(self.offset)).next_multiple_of(align)
    }
}

/// Buffers in turn as netperf chooses for streams: as many as fill the socket's buffer, and one; at
/// least two.
#[must_use]
pub fn default_width(socket_buffer: u32, size: u32) -> u32 {
    (socket_buffer / size.max(1)).saturating_add(1).max(2)
}

/// The buffers.
#[derive(Debug)]
pub struct Ring {
    memory: Memory,
    first: usize,
    stride: usize,
    size: usize,
    width: usize,
    turn: usize,
}

impl Ring {
    /// Allocates and fills them.
    ///
    /// # Errors
    /// No memory; a file that cannot be read, is empty, or is neither a plain file nor a character
    /// device.
    pub fn new(plan: &BufferPlan) -> io::Result<Self> {
        let mut ring = Self::with(plan, Memory::huge)?;
        match &plan.fill {
            None => ring.repeat(FILLING),
            Some(path) => ring.fill_from(path)?,
        }
        Ok(ring)
    }

    /// Allocates them for what is received: all zeros, and the kernel finds memory when it is used.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn empty(plan: &BufferPlan) -> io::Result<Self> {
        Self::with(plan, Memory::new)
    }

    fn with(plan: &BufferPlan, memory: fn(usize) -> io::Result<Memory>) -> io::Result<Self> {
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

    fn repeat(&mut self, what: &[u8]) {
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

    /// Bytes of each buffer.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// How many there are.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// The buffer whose turn it is.
    #[inline]
    #[must_use]
    pub fn current(&self) -> &[u8] {
        let at = self.first + self.turn * self.stride;
        &self.memory[at..at + self.size]
    }

    /// The same, to be written.
    #[inline]
    pub fn current_mut(&mut self) -> &mut [u8] {
        let at = self.first + self.turn * self.stride;
        &mut self.memory[at..at + self.size]
    }

    /// The next one's turn.
    #[inline]
    pub fn advance(&mut self) {
        self.turn += 1;
        if self.turn == self.width {
            self.turn = 0;
        }
    }

    /// Gives the memory up, for the kernel may still send from it: what comes to lie there next
    /// must not go out.
    pub(super) fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.memory));
        self.width = 0;
    }

    /// The place of the buffer whose turn it is.
    pub(super) fn turn(&self) -> usize {
        self.turn
    }

    /// All of them.
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let size = self.size;
        self.memory[self.first..]
            .chunks_mut(self.stride)
            .take(self.width)
            .map(move |buffer| &mut buffer[..size])
    }

    /// A buffer by its place.
    pub(super) fn at(&self, n: usize) -> &[u8] {
        let at = self.first + n * self.stride;
        &self.memory[at..at + self.size]
    }

    /// The same, to be written.
    pub(super) fn at_mut(&mut self, n: usize) -> &mut [u8] {
        let at = self.first + n * self.stride;
        &mut self.memory[at..at + self.size]
    }
}

/// Opens a file to be sent. Nothing that could make the reader wait: no pipe, no terminal's line.
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
            "neither a plain file nor a character device",
        )))
    }
}

/// Fills a buffer from a file, from its beginning again where it ends.
pub(super) fn read_around(file: &mut File, buffer: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    let mut rewound = false;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) if rewound => {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it is empty"));
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
            let mut ring = Ring::new(&BufferPlan {
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
        let ring = Ring::new(&filled).unwrap();
        assert_eq!(ring.at(0), b"abcdeab");
        assert_eq!(ring.at(1), b"cdeabcd");
        File::create(&path).unwrap();
        let error = Ring::new(&filled).unwrap_err().to_string();
        assert!(error.contains("empty"), "{error}");
        std::fs::remove_file(&path).unwrap();
        assert!(Ring::new(&filled).is_err());
        filled.fill = Some(std::env::temp_dir());
        assert!(Ring::new(&filled).is_err());
        filled.fill = Some("/dev/urandom".into());
        let ring = Ring::new(&BufferPlan { size: 64, ..filled }).unwrap();
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
