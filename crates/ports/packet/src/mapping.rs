//! Memory mapped into the process.
#![allow(unsafe_code)] // mmap and munmap have no safe form.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// A readable and writable mapping, unmapped on drop.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: only this value owns the mapping, and the mapping is not bound to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` zeroed private bytes, page aligned.
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private mapping at an address chosen by the kernel overlaps nothing.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), len, protection, MapFlags::PRIVATE)? };
        Ok(Self::from_raw(start.cast(), len))
    }

    /// Maps the first `len` bytes of the ring that `socket` shares with the kernel.
    pub(crate) fn shared(socket: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address chosen by the kernel overlaps nothing.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                protection,
                MapFlags::SHARED,
                socket,
                0,
            )?
        };
        Ok(Self::from_raw(start.cast(), len))
    }

    fn from_raw(start: *mut u8, len: usize) -> Self {
        let start = NonNull::new(start).expect("mmap does not return page 0");
        Self { start, len }
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in the constructor, and every borrow of it has ended. After a failure it stays
        // mapped, which is harmless.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}
