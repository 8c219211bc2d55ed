//! Sends without a copy (MSG_ZEROCOPY): the kernel takes the pages, and says on the socket's error
//! queue when it is done with them, and whether it had to copy all the same.
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

use super::Tally;
use crate::{Stopper, sys::set_int};

/// errqueue.h: SO_EE_ORIGIN_ZEROCOPY.
const ORIGIN_ZEROCOPY: u8 = 5;
/// errqueue.h: SO_EE_CODE_ZEROCOPY_COPIED.
const CODE_COPIED: u8 = 1;
/// Sends after which the queue is looked at: a call for so many.
const LOOK_EVERY: u64 = 32;

/// Sends that the kernel has not told of yet, and those it has.
#[derive(Debug, Default)]
pub(super) struct Completions {
    sent: u64,
    looked: u64,
    zero_copy: u64,
    copied: u64,
}

/// The flags of a send without a copy.
pub(super) fn flags() -> SendFlags {
    SendFlags::NOSIGNAL | SendFlags::from_bits_retain(libc::MSG_ZEROCOPY as u32)
}

impl Completions {
    /// For a socket on which nothing was sent without a copy yet.
    ///
    /// # Errors
    /// The socket cannot do it.
    pub(super) fn begin(fd: BorrowedFd<'_>) -> io::Result<Self> {
        set_int(fd, libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1)?;
        Ok(Self::default())
    }

    /// Sends whose pages the kernel still has.
    pub(super) fn pending(&self) -> u64 {
        self.sent - self.zero_copy - self.copied
    }

    /// After `n` sends: looks at the queue from time to time, so that it stays short.
    #[inline]
    pub(super) fn after_sends(&mut self, fd: BorrowedFd<'_>, n: u64) {
        self.sent += n;
        if self.sent - self.looked >= LOOK_EVERY {
            self.looked = self.sent;
            self.look(fd);
        }
    }

    /// After a send that the kernel refused: there may be no room to tell of one more. Waits until
    /// there is; false if that is not why.
    pub(super) fn make_room(&mut self, fd: BorrowedFd<'_>, refusal: Errno) -> bool {
        if refusal != Errno::NOBUFS || self.pending() == 0 {
            return false;
        }
        wait(fd);
        self.look(fd);
        true
    }

    /// Waits until the kernel has told of all sends, or until told to end; writes down the result.
    pub(super) fn settle(&mut self, fd: BorrowedFd<'_>, stop: &Stopper, tally: &mut Tally) {
        self.look(fd);
        while self.pending() > 0 && !stop.stopped() {
            wait(fd);
            if !self.look(fd) && hung_up(fd) {
                break;
            }
        }
        tally.zero_copy += self.zero_copy;
        tally.copied += self.copied;
        self.sent = self.pending();
        (self.zero_copy, self.copied, self.looked) = (0, 0, 0);
    }

    /// Takes all that is in the queue, without waiting; whether there was anything.
    fn look(&mut self, fd: BorrowedFd<'_>) -> bool {
        let mut any = false;
        while let Some(told) = next(fd) {
            any = true;
            let Told::Sends { number, copied } = told else {
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

/// What stood in the error queue.
enum Told {
    Sends {
        number: u64,
        copied: bool,
    },
    /// An error of the network, which the calls report by themselves.
    Other,
}

/// Sleeps until there is something in the error queue, or until a signal.
fn wait(fd: BorrowedFd<'_>) {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::empty())];
    let _ = poll(&mut fds, None);
}

/// Whether the connection is gone, so that nothing more will be told.
fn hung_up(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::empty())];
    let now = rustix::time::Timespec::default();
    poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::HUP)
}

/// The control messages of one entry: aligned as their headers are.
#[repr(C, align(8))]
struct Control([u8; 256]);

fn next(fd: BorrowedFd<'_>) -> Option<Told> {
    let mut control = Control([0; 256]);
    // SAFETY: all zeros is an empty header. The control buffer is as long as the header says and
    // outlives the call, which writes into it and into the header only.
    let (got, header) = unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_control = (&raw mut control).cast();
        header.msg_controllen = size_of::<Control>();
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        (
            libc::recvmsg(fd.as_raw_fd(), &raw mut header, flags),
            header,
        )
    };
    if got < 0 {
        return None;
    }
    let mut told = Told::Other;
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
                    told = Told::Sends {
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
