//! Writes that bypass the page cache (O_DIRECT): whole blocks from aligned memory.
//!
//! The file is never longer than the accepted data. An incomplete last block is held back until more data arrives, or
//! until [`DirectWriter::write_held_back`] writes it through the page cache.
//!
//! There is one write at a time: ext4 locks a growing file for each write, so concurrent writes would wait for each
//! other. The disk is busy all the same, because a write is as large as a buffer.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, OFlags, StatxFlags, fcntl_getfl, fcntl_setfl, statx};

use crate::pool::{BLOCK, HEAD, PageMemory};

/// Size of the pieces in which data outside a buffer is copied.
const ROOM: usize = 1 << 20;
/// stat.h: STATX_DIOALIGN, since Linux 6.1.
const DIOALIGN: StatxFlags = StatxFlags::from_bits_retain(0x2000);

/// A file with two methods of writing.
pub(crate) trait BlockFile {
    /// Writes whole blocks past the page cache. Returns the number of bytes written.
    fn write_blocks(&self, bytes: &[u8], at: u64) -> io::Result<usize>;

    /// Writes through the page cache.
    fn write_cached(&self, bytes: &[u8], at: u64) -> io::Result<()>;
}

/// A file with `O_DIRECT`.
impl BlockFile for File {
    fn write_blocks(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        self.write_at(bytes, at)
    }

    fn write_cached(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let flags = fcntl_getfl(self)?;
        fcntl_setfl(self, flags - OFlags::DIRECT)?;
        let result = self.write_all_at(bytes, at);
        fcntl_setfl(self, flags)?;
        result
    }
}

/// Block-wise writer of a file.
#[derive(Debug)]
pub(crate) struct DirectWriter {
    end: FileTail,
    room: PageMemory,
}

/// The end of a file.
#[derive(Debug, Default)]
struct FileTail {
    /// Offset of the incomplete block.
    base: u64,
    /// Its contents, and the number of these bytes already in the file.
    tail: Vec<u8>,
    settled: usize,
}

impl DirectWriter {
    /// Returns `None` if the file does not support this, or, with `sure`, if it may not be faster.
    pub(crate) fn new(file: &File, sure: bool) -> Option<Self> {
        match statx(file, c"", AtFlags::EMPTY_PATH, DIOALIGN) {
            Ok(told) if told.stx_mask & DIOALIGN.bits() != 0 => {
                // Larger blocks are valid too, and save the disk from reading the rest of a block.
                let fits = |align: u32| align.is_power_of_two() && align as usize <= BLOCK;
                if !fits(told.stx_dio_offset_align) || !fits(told.stx_dio_mem_align) {
                    return None;
                }
            }
            // tmpfs accepts the flag too, but then writes to the page cache.
            _ if sure => return None,
            _ => {}
        }
        Self::empty()
    }

    fn empty() -> Option<Self> {
        Some(Self {
            end: FileTail::default(),
            room: PageMemory::new(HEAD + ROOM)?,
        })
    }

    /// Continues after `len` bytes that were written by other means. `file` must be readable.
    pub(crate) fn resume(&mut self, file: &File, len: u64) -> io::Result<()> {
        let held = (len % BLOCK as u64) as usize;
        let mut tail = vec![0; held];
        file.read_exact_at(&mut tail, len - held as u64)?;
        self.end = FileTail {
            base: len - held as u64,
            tail,
            settled: held,
        };
        Ok(())
    }

    /// Bytes accepted, including those held back.
    pub(crate) fn len(&self) -> u64 {
        self.end.base + self.end.tail.len() as u64
    }

    /// Bytes in the file.
    pub(crate) fn in_file(&self) -> u64 {
        self.end.base + self.end.settled as u64
    }

    /// Accepts all bytes. After an error, [`len`](Self::len) shows the number accepted.
    pub(crate) fn append(&mut self, disk: &impl BlockFile, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(ROOM) {
            let mut place = HEAD..HEAD + piece.len();
            self.room[place.clone()].copy_from_slice(piece);
            self.end.append(disk, &mut self.room, &mut place)?;
        }
        Ok(())
    }

    /// Accepts the bytes at this position of a buffer. The [`HEAD`] before them is overwritten, and they may be moved
    /// within it. After an error, [`len`](Self::len) shows the number accepted.
    pub(crate) fn put_in_place(
        &mut self,
        disk: &impl BlockFile,
        memory: &mut PageMemory,
        place: &mut Range<usize>,
    ) -> io::Result<()> {
        self.end.append(disk, memory, place)
    }

    /// Writes the held-back bytes to the file.
    pub(crate) fn write_held_back(&mut self, disk: &impl BlockFile) -> io::Result<()> {
        let end = &mut self.end;
        if end.settled < end.tail.len() {
            disk.write_cached(&end.tail[end.settled..], end.base + end.settled as u64)?;
            end.settled = end.tail.len();
        }
        Ok(())
    }
}

impl FileTail {
    fn append(
        &mut self,
        disk: &impl BlockFile,
        memory: &mut PageMemory,
        place: &mut Range<usize>,
    ) -> io::Result<()> {
        let held = self.tail.len();
        let whole = (held + place.len()) / BLOCK * BLOCK;
        if whole == 0 {
            self.tail.extend_from_slice(&memory[place.clone()]);
            return Ok(());
        }
        let astray = (place.start - held) % BLOCK;
        if astray > 0 {
            let to = place.start - astray;
            memory.copy_within(place.clone(), to);
            *place = to..place.end - astray;
        }
        let start = place.start - held;
        memory[start..place.start].copy_from_slice(&self.tail);
        let (done, result) = write_all(disk, &memory[start..start + whole], self.base);
        if done > 0 {
            self.base += done as u64;
            self.settled = 0;
            self.tail.clear();
        }
        if result.is_ok() {
            self.tail
                .extend_from_slice(&memory[start + whole..place.end]);
        }
        result
    }
}

/// Writes whole blocks. Returns the number of their bytes in the file.
fn write_all(disk: &impl BlockFile, blocks: &[u8], base: u64) -> (usize, io::Result<()>) {
    let mut done = 0;
    while done < blocks.len() {
        match disk.write_blocks(&blocks[done..], base + done as u64) {
            // The rest of a block is written again.
            Ok(n) if n < BLOCK => return (done, Err(io::ErrorKind::WriteZero.into())),
            Ok(n) => done += n / BLOCK * BLOCK,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (done, Err(error)),
        }
    }
    (done, Ok(()))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use proptest::prelude::*;

    use super::*;

    /// Result of the next block write.
    #[derive(Clone, Copy, Debug)]
    enum WriteResult {
        Whole,
        /// Only this number of bytes gets into the file.
        Short(usize),
        Error(i32),
    }

    /// A disk that checks alignment, and fails on request.
    #[derive(Debug, Default)]
    struct Fake {
        file: RefCell<Vec<u8>>,
        fates: RefCell<Vec<WriteResult>>,
        /// Lengths of the block writes.
        writes: RefCell<Vec<usize>>,
        full: RefCell<bool>,
    }

    impl Fake {
        fn store(&self, bytes: &[u8], at: u64) {
            let (mut file, at) = (self.file.borrow_mut(), at as usize);
            assert!(at <= file.len(), "a hole before {at}");
            let end = file.len().max(at + bytes.len());
            file.resize(end, 0);
            file[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    impl BlockFile for Fake {
        fn write_blocks(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
            assert_eq!(bytes.len() % BLOCK, 0);
            assert_eq!(at % BLOCK as u64, 0);
            assert_eq!(bytes.as_ptr().align_offset(BLOCK), 0);
            self.writes.borrow_mut().push(bytes.len());
            let n = match self.fates.borrow_mut().pop().unwrap_or(WriteResult::Whole) {
                WriteResult::Whole => bytes.len(),
                WriteResult::Short(n) => n.min(bytes.len()),
                WriteResult::Error(errno) => return Err(io::Error::from_raw_os_error(errno)),
            };
            self.store(&bytes[..n], at);
            Ok(n)
        }

        fn write_cached(&self, bytes: &[u8], at: u64) -> io::Result<()> {
            if *self.full.borrow() {
                return Err(io::Error::from_raw_os_error(full_errno()));
            }
            self.store(bytes, at);
            Ok(())
        }
    }

    fn full_errno() -> i32 {
        rustix::io::Errno::NOSPC.raw_os_error()
    }

    fn noise(len: usize, seed: u64) -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    /// Checks that the file contains the accepted data except for less than a block, and no other data.
    fn check(direct: &DirectWriter, disk: &Fake, put: &[u8]) {
        assert_eq!(direct.len(), put.len() as u64);
        let file = disk.file.borrow();
        let in_file = direct.in_file() as usize;
        assert!(in_file <= put.len() && put.len() - in_file < BLOCK);
        assert!(file.len() >= in_file && file[..in_file] == put[..in_file]);
    }

    #[test]
    fn what_lies_right_is_not_copied() {
        let (disk, mut direct) = (Fake::default(), DirectWriter::empty().unwrap());
        let mut memory = PageMemory::new(HEAD + BLOCK + (1 << 20)).unwrap();
        let mut put = Vec::new();
        for len in [100_000usize, 5, 70_001, 4096, 1 << 20] {
            let start = HEAD + direct.len() as usize % BLOCK;
            let bytes = noise(len, len as u64);
            memory[start..start + len].copy_from_slice(&bytes);
            let mut place = start..start + len;
            direct.put_in_place(&disk, &mut memory, &mut place).unwrap();
            assert_eq!(place, start..start + len, "moved");
            assert!(memory[place] == bytes);
            put.extend_from_slice(&bytes);
            check(&direct, &disk, &put);
        }
        // The minimum number of writes.
        assert_eq!(*disk.writes.borrow(), [98_304, 69_632, 4096, 1 << 20]);
        direct.write_held_back(&disk).unwrap();
        assert_eq!(direct.in_file(), direct.len());
        assert!(*disk.file.borrow() == put);
    }

    #[test]
    fn a_file_that_is_settled_goes_on() {
        let (disk, mut direct) = (Fake::default(), DirectWriter::empty().unwrap());
        let mut put = Vec::new();
        for len in [10, 20, 5000, 1, 9000] {
            let bytes = noise(len, 7);
            direct.append(&disk, &bytes).unwrap();
            put.extend_from_slice(&bytes);
            direct.write_held_back(&disk).unwrap();
            assert!(*disk.file.borrow() == put, "{len}");
        }
        // No bytes are held back.
        *disk.full.borrow_mut() = true;
        direct.write_held_back(&disk).unwrap();
        direct.append(&disk, b"held").unwrap();
        assert!(direct.write_held_back(&disk).is_err());
        assert_eq!(direct.in_file() + 4, direct.len());
        *disk.full.borrow_mut() = false;
        direct.write_held_back(&disk).unwrap();
        assert!(disk.file.borrow().ends_with(b"held"));
    }

    fn fate() -> impl Strategy<Value = WriteResult> {
        prop_oneof![
            3 => Just(WriteResult::Whole),
            2 => (0usize..40_000).prop_map(WriteResult::Short),
            1 => Just(WriteResult::Error(full_errno())),
            1 => Just(WriteResult::Error(rustix::io::Errno::INTR.raw_os_error())),
            1 => Just(WriteResult::Error(rustix::io::Errno::IO.raw_os_error())),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// With any results of the writes, accepted bytes get into the file once and in order, and the others can be
        /// written again.
        #[test]
        fn nothing_is_lost_or_doubled_by_errors(
            pieces in prop::collection::vec((1usize..60_000, 0usize..BLOCK, 0u8..4), 1..12),
            fates in prop::collection::vec(fate(), 0..20),
        ) {
            let (disk, mut direct) = (Fake::default(), DirectWriter::empty().unwrap());
            disk.fates.replace(fates);
            let mut memory = PageMemory::new(HEAD + BLOCK + 60_000).unwrap();
            let mut put = Vec::new();
            for (len, guess, way) in pieces {
                let bytes = noise(len, len as u64);
                let start = HEAD + guess;
                memory[start..start + len].copy_from_slice(&bytes);
                let (mut place, mut done) = (start..start + len, 0);
                loop {
                    let before = direct.len();
                    let mut rest = place.start + done..place.end;
                    let result = match way {
                        0 => direct.append(&disk, &bytes[done..]),
                        _ => direct.put_in_place(&disk, &mut memory, &mut rest),
                    };
                    place = rest.start - done..rest.end;
                    let taken = (direct.len() - before) as usize;
                    put.extend_from_slice(&bytes[done..done + taken]);
                    done += taken;
                    check(&direct, &disk, &put);
                    if result.is_ok() {
                        prop_assert_eq!(done, len);
                        break;
                    }
                }
                if way == 3 {
                    direct.write_held_back(&disk).unwrap();
                    prop_assert!(disk.file.borrow()[..] == put[..]);
                }
            }
            direct.write_held_back(&disk).unwrap();
            prop_assert!(disk.file.borrow()[..put.len()] == put[..]);
        }
    }
}
