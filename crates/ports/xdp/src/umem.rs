//! Frame memory, divided into equal frames and shared with the kernel.
//!
//! Handles addresses; the rings determine the owner of each frame.
#![allow(unsafe_code)] // Slices into memory that the kernel writes too.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::ring::RingMapping;

/// Part of the memory of one queue: a number of frames of one size.
///
/// Areas of one memory never overlap.
pub(crate) struct Area {
    memory: Arc<RingMapping>,
    frames: Range<u32>,
    frame_shift: u32,
}

/// Maps memory for `first + second` frames and divides it into two areas.
pub(crate) fn map(frame_size: u32, first: u32, second: u32) -> io::Result<(Area, Area)> {
    if !frame_size.is_power_of_two() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "frame size is no power of two",
        ));
    }
    let total = first
        .checked_add(second)
        .ok_or(io::ErrorKind::InvalidInput)?;
    let memory = Arc::new(RingMapping::anonymous(
        total as usize * frame_size as usize,
    )?);
    let area = |frames| Area {
        memory: Arc::clone(&memory),
        frames,
        frame_shift: frame_size.trailing_zeros(),
    };
    Ok((area(0..first), area(first..total)))
}

impl Area {
    /// Address and length of the whole memory, for registration.
    pub(crate) fn whole(&self) -> (u64, u64) {
        (
            self.memory.start().as_ptr() as u64,
            self.memory.len() as u64,
        )
    }

    pub(crate) fn frames(&self) -> u32 {
        self.frames.end - self.frames.start
    }

    pub(crate) fn frame_size(&self) -> usize {
        1 << self.frame_shift
    }

    /// Start of the `i`-th frame of this area, relative to the start of the memory.
    #[inline]
    pub(crate) fn address(&self, i: u32) -> u64 {
        u64::from(self.frames.start + i) << self.frame_shift
    }

    /// Index of the frame of this area that contains `address`, and the offset in the frame.
    #[inline]
    pub(crate) fn locate(&self, address: u64) -> Option<(u32, usize)> {
        let frame = u32::try_from(address >> self.frame_shift).ok()?;
        let offset = address & ((1 << self.frame_shift) - 1);
        self.frames
            .contains(&frame)
            .then(|| (frame - self.frames.start, offset as usize))
    }

    /// Bytes of the `i`-th frame.
    ///
    /// # Safety
    /// The kernel must not own the frame: it was never passed to the kernel, or it was returned.
    ///
    /// # Panics
    /// If there is no such frame.
    #[inline]
    pub(crate) unsafe fn frame(&mut self, i: u32) -> &mut [u8] {
        assert!(i < self.frames(), "frame {i} of {}", self.frames());
        let offset = self.address(i) as usize;
        // SAFETY: inside the mapping by the check above, and zeroed at the start. Access is exclusive: areas do not
        // overlap, `self` is borrowed, and the kernel does not own the frame.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.memory.start().add(offset).as_ptr(),
                self.frame_size(),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_do_not_overlap() {
        let (mut first, mut second) = map(2048, 3, 5).unwrap();
        assert_eq!((first.frames(), second.frames()), (3, 5));
        assert_eq!((first.address(2), second.address(0)), (4096, 6144));
        // SAFETY: this memory is not registered with the kernel.
        unsafe {
            first.frame(2).fill(1);
            assert!(second.frame(0).iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn addresses_are_found_again_or_refused() {
        let (first, second) = map(4096, 2, 2).unwrap();
        assert_eq!(second.locate(second.address(1) + 256), Some((1, 256)));
        assert_eq!(first.locate(second.address(0)), None);
        assert_eq!(second.locate(first.address(1)), None);
        assert_eq!(second.locate(4 * 4096), None);
        assert_eq!(second.locate(u64::MAX), None);
    }

    #[test]
    #[should_panic(expected = "frame 2 of 2")]
    fn a_frame_outside_panics() {
        let (mut first, _second) = map(2048, 2, 2).unwrap();
        // SAFETY: this memory is not registered with the kernel.
        let _ = unsafe { first.frame(2) };
    }

    #[test]
    fn odd_sizes_are_refused() {
        assert!(map(3000, 1, 1).is_err());
    }
}
