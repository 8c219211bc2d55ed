//! Memory of frames to send, and the `sendmmsg` headers that point to it.
//!
//! Headers are prepared once; only lengths change. The arena does not know which frames are in use.
#![allow(unsafe_code)] // Slices out of a mapping, pointers in kernel headers, sendmmsg.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use crate::mapping::Mapping;

const CACHE_LINE: usize = 64;

/// `count` frame buffers of `capacity` bytes, numbered from 0.
pub(crate) struct Arena {
    memory: Mapping,
    count: usize,
    capacity: usize,
    stride: usize,
    iovecs: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
}

// SAFETY: the pointers in the headers lead to memory that only this value owns.
unsafe impl Send for Arena {}

impl Arena {
    /// Allocates the buffers, at least one of at least one byte.
    pub(crate) fn new(count: usize, capacity: usize) -> io::Result<Self> {
        let (count, capacity) = (count.max(1), capacity.max(1));
        let stride = capacity.next_multiple_of(CACHE_LINE);
        let memory = Mapping::anonymous(count * stride)?;
        let mut iovecs: Box<[_]> = (0..count)
            .map(|i| libc::iovec {
                // SAFETY: `i` is below `count`, so the result lies in the mapping.
                iov_base: unsafe { memory.start().add(i * stride) }.as_ptr().cast(),
                iov_len: 0,
            })
            .collect();
        let first = iovecs.as_mut_ptr();
        let headers = (0..count)
            .map(|i| {
                // SAFETY: all-zero bytes are a valid mmsghdr: null pointers and zero lengths.
                let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
                // SAFETY: `i` is below the number of iovecs, which stay in their box.
                header.msg_hdr.msg_iov = unsafe { first.add(i) };
                header.msg_hdr.msg_iovlen = 1;
                header
            })
            .collect();
        Ok(Self {
            memory,
            count,
            capacity,
            stride,
            iovecs,
            headers,
        })
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// The whole buffer `i`.
    pub(crate) fn buffer(&mut self, i: usize) -> &mut [u8] {
        assert!(i < self.count, "slot {i} of {}", self.count);
        // SAFETY: buffer `i` lies in the mapping, does not overlap another one, and is initialised (anonymous mappings
        // are zeroed). `&mut self` excludes other borrows of it.
        unsafe {
            let start = self.memory.start().add(i * self.stride);
            std::slice::from_raw_parts_mut(start.as_ptr(), self.capacity)
        }
    }

    /// Sets the number of bytes of buffer `i` to send.
    pub(crate) fn set_len(&mut self, i: usize, len: usize) {
        assert!(
            len <= self.capacity,
            "frame of {len} bytes in a slot of {}",
            self.capacity
        );
        self.iovecs[i].iov_len = len;
    }

    /// The bytes of buffer `i` to send.
    pub(crate) fn frame(&mut self, i: usize) -> &[u8] {
        let len = self.iovecs[i].iov_len;
        &self.buffer(i)[..len]
    }

    /// Total length in bytes of `n` frames starting at `first`.
    pub(crate) fn octets(&self, first: usize, n: usize) -> u64 {
        self.iovecs[first..first + n]
            .iter()
            .map(|v| v.iov_len as u64)
            .sum()
    }

    /// Offers `n` frames starting at `first` to the socket, without waiting. Returns the number of frames it took.
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        first: usize,
        n: usize,
    ) -> Result<usize, Errno> {
        let headers = &mut self.headers[first..first + n];
        let n = libc::c_uint::try_from(n).unwrap_or(libc::c_uint::MAX);
        // SAFETY: the headers point to iovecs and the iovecs to buffers, all owned by `self`. Each length was checked
        // against the buffer in `set_len`.
        let took = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                n,
                libc::MSG_DONTWAIT as _,
            )
        };
        usize::try_from(took).map_err(|_| {
            let error = io::Error::last_os_error();
            Errno::from_io_error(&error).unwrap_or(Errno::IO)
        })
    }
}
