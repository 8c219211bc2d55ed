//! Zero-copy sends (MSG_ZEROCOPY): the kernel uses our pages. It reports on the socket's error queue when it is done
//! with them, and if it had to copy nevertheless.
#![allow(unsafe_code, reason = "the error queue has no safe wrapper")]

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    net::SendFlags,
};

use super::LoopTally;
use crate::{Stopper, sys::set_int};

/// errqueue.h: SO_EE_ORIGIN_ZEROCOPY.
const ORIGIN_ZEROCOPY: u8 = 5;
/// errqueue.h: SO_EE_CODE_ZEROCOPY_COPIED.
const CODE_COPIED: u8 = 1;
/// Sends between two reads of the error queue.
const LOOK_EVERY: u64 = 32;

/// Zero-copy sends with and without a completion.
#[derive(Debug, Default)]
pub(super) struct ZeroCopyCompletions {
    sent: u64,
    looked: u64,
    zero_copy: u64,
    copied: u64,
}

/// Flags of a zero-copy send.
pub(super) fn zero_copy_flags() -> SendFlags {
    SendFlags::NOSIGNAL | SendFlags::from_bits_retain(libc::MSG_ZEROCOPY as u32)
}

impl ZeroCopyCompletions {
    /// Starts with a socket that has no zero-copy sends yet.
    ///
    /// # Errors
    /// Fails if the socket does not support them.
    pub(super) fn begin(fd: BorrowedFd<'_>) -> io::Result<Self> {
        set_int(fd, libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1)?;
        Ok(Self::default())
    }

    /// Sends that still occupy their pages.
    pub(super) fn pending(&self) -> u64 {
        self.sent - self.zero_copy - self.copied
    }

    /// Counts `n` sends and reads the error queue from time to time, so that it stays short.
    #[inline]
    pub(super) fn after_sends(&mut self, fd: BorrowedFd<'_>, n: u64) {
        self.sent += n;
        if self.sent - self.looked >= LOOK_EVERY {
            self.looked = self.sent;
            self.read_error_queue(fd);
        }
    }

    /// Handles a refused send: the kernel may lack memory for one more notification. Waits until completions arrive;
    /// returns false if the refusal has another reason.
    pub(super) fn make_room(&mut self, fd: BorrowedFd<'_>, refusal: Errno) -> bool {
        if refusal != Errno::NOBUFS || self.pending() == 0 {
            return false;
        }
        wait(fd);
        self.read_error_queue(fd);
        true
    }

    /// Waits for the completion of all sends, or until stopped, and writes the result into the tally.
    pub(super) fn wait_for_completions(
        &mut self,
        fd: BorrowedFd<'_>,
        stop: &Stopper,
        tally: &mut LoopTally,
    ) {
        self.read_error_queue(fd);
        while self.pending() > 0 && !stop.is_stopped() {
            wait(fd);
            if !self.read_error_queue(fd) && hung_up(fd) {
                break;
            }
        }
        tally.zero_copy += self.zero_copy;
        tally.copied += self.copied;
        self.sent = self.pending();
        (self.zero_copy, self.copied, self.looked) = (0, 0, 0);
    }

    /// Reads the whole error queue without waiting. Returns true if it had entries.
    fn read_error_queue(&mut self, fd: BorrowedFd<'_>) -> bool {
        let mut any = false;
        while let Some(told) = next(fd) {
            any = true;
            let QueueEntry::Sends { number, copied } = told else {
                continue;
            };
            if copied {
                self.copied += number;
            } else {
                self.zero_copy += number;
            }
        }
        any
    }
}

/// Entry of the error queue.
enum QueueEntry {
    Sends {
        number: u64,
        copied: bool,
    },
    /// A network error, which the calls report anyway.
    Other,
}

/// Sleeps until the error queue has an entry, or until a signal.
fn wait(fd: BorrowedFd<'_>) {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::empty())];
    let _ = poll(&mut fds, None);
}

/// Returns true if the connection is gone, so that no more completions arrive.
fn hung_up(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::empty())];
    let now = rustix::time::Timespec::default();
    poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::HUP)
}

/// Control messages of one entry, aligned like their headers.
#[repr(C, align(8))]
struct EntryControl([u8; 256]);

fn next(fd: BorrowedFd<'_>) -> Option<QueueEntry> {
    let mut control = EntryControl([0; 256]);
    // SAFETY: all zeros is an empty header. The control buffer is as long as the header says and outlives the call,
    // which writes only into it and into the header.
    let (got, header) = unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_control = (&raw mut control).cast();
        header.msg_controllen = size_of::<EntryControl>();
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        (
            libc::recvmsg(fd.as_raw_fd(), &raw mut header, flags),
            header,
        )
    };
    if got < 0 {
        return None;
    }
    let mut told = QueueEntry::Other;
    // SAFETY: the kernel has set the length of the control messages in the header; the macros stay
    // within it. The structure is read without regard to alignment, and any bytes are valid.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(&raw const header);
        while let Some(head) = message.as_ref() {
            let v4 = head.cmsg_level == libc::SOL_IP && head.cmsg_type == libc::IP_RECVERR;
            let v6 = head.cmsg_level == libc::SOL_IPV6 && head.cmsg_type == libc::IPV6_RECVERR;
            if v4 || v6 {
                let error = libc::CMSG_DATA(message)
                    .cast::<libc::sock_extended_err>()
                    .read_unaligned();
                if error.ee_origin == ORIGIN_ZEROCOPY {
                    told = QueueEntry::Sends {
                        number: u64::from(error.ee_data.wrapping_sub(error.ee_info)) + 1,
                        copied: error.ee_code & CODE_COPIED != 0,
                    };
                }
            }
            message = libc::CMSG_NXTHDR(&raw const header, message);
        }
    }
    Some(told)
}
