//! The kernel's message for an XDP program that it did not attach. Part of each crate that attaches programs.
//!
//! A BPF link returns only an error number. Netlink also returns the driver's message (NLMSGERR_ATTR_MSG), so the
//! attempt is repeated there.
#![allow(unsafe_code)] // Two calls of libbpf that have no safe wrapper.

use std::cell::RefCell;
use std::os::fd::{AsRawFd, BorrowedFd};

use libbpf_rs::{PrintLevel, libbpf_sys as sys};

thread_local! {
    static WORDS: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Prefix with which libbpf prints the message.
const PREFIX: &str = "libbpf: Kernel error message: ";

fn listen(_: PrintLevel, message: String) {
    tracing::debug!(target: "libbpf", "{}", message.trim_end());
    if let Some(words) = message.trim_end().strip_prefix(PREFIX) {
        WORDS.set(Some(words.to_owned()));
    }
}

/// Repeats a failed attempt to attach `program` to interface `index` with `flags`, and returns the kernel's message, if
/// there is one. If the attempt succeeds this time, the program is removed again.
pub(crate) fn words(program: BorrowedFd<'_>, index: i32, flags: u32) -> Option<String> {
    // if_link.h: XDP_FLAGS_UPDATE_IF_NOEXIST. A program of another process is not replaced.
    const IF_NONE: u32 = 1;
    WORDS.set(None);
    let before = libbpf_rs::set_print(Some((PrintLevel::Debug, listen)));
    // SAFETY: the descriptor is open during the call, and options are optional.
    let result = unsafe {
        sys::bpf_xdp_attach(
            index,
            program.as_raw_fd(),
            flags | IF_NONE,
            std::ptr::null(),
        )
    };
    if result == 0 {
        let ours = sys::bpf_xdp_attach_opts {
            sz: size_of::<sys::bpf_xdp_attach_opts>() as sys::size_t,
            old_prog_fd: program.as_raw_fd(),
            ..Default::default()
        };
        // SAFETY: `ours` carries its size and outlives the call. Only our program is removed.
        unsafe { sys::bpf_xdp_detach(index, flags, &raw const ours) };
    }
    libbpf_rs::set_print(before);
    WORDS.take().filter(|words| !words.is_empty())
}
