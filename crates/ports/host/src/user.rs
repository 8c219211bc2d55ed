//! Becoming another user, for good.
#![allow(unsafe_code)] // The user database and the identities of a process, through libc.

use std::ffi::{CStr, CString};
use std::io;

use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::{HostError, Result};

/// What may be kept of the privileges of root when he becomes somebody else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Files are opened wherever root could (CAP_DAC_OVERRIDE).
    pub opens_anywhere: bool,
    /// Maps of BPF programs are read and written (CAP_BPF); kernels before 5.19 ask for it at each access.
    pub bpf: bool,
}

impl Kept {
    fn set(self) -> CapabilitySet {
        let mut set = CapabilitySet::empty();
        set.set(CapabilitySet::DAC_OVERRIDE, self.opens_anywhere);
        set.set(CapabilitySet::BPF, self.bpf);
        set
    }
}

/// What is known of a user.
struct User {
    name: CString,
    uid: libc::uid_t,
    gid: libc::gid_t,
}

/// Gives up the privileges of this process: from now on all of its threads are `name`, in the groups
/// that he is in. Descriptors that are open stay so. The calling thread, and those that it starts, keep
/// what `kept` says.
///
/// # Errors
/// No such user; or this process may not change who it is.
pub fn become_user(name: &str, kept: Kept) -> Result<()> {
    let object = || format!("user {name}");
    let user = look_up(name)
        .map_err(HostError::refused("find", object()))?
        .ok_or_else(|| {
            HostError::refused("find", object())(io::Error::new(
                io::ErrorKind::NotFound,
                "there is no such user",
            ))
        })?;
    // Forgotten with the next program; else it would let all privileges through.
    let keeps = |keep| rustix::thread::set_keep_capabilities(keep).map_err(io::Error::from);
    // The user last: with him goes the privilege to change the groups. libc changes all threads.
    keeps(true)
        // SAFETY: the name is a string that ends in a zero and outlives the call.
        .and_then(|()| done(unsafe { libc::initgroups(user.name.as_ptr(), user.gid) }))
        // SAFETY: an integer is passed.
        .and_then(|()| done(unsafe { libc::setgid(user.gid) }))
        // SAFETY: an integer is passed.
        .and_then(|()| done(unsafe { libc::setuid(user.uid) }))
        .and_then(|()| keeps(false))
        .map_err(HostError::refused("become", object()))?;
    keep_only(kept)
}

/// Gives up what [`become_user`] has kept, but for this. Root stays what he is.
///
/// # Errors
/// What the kernel says.
pub fn keep_only(kept: Kept) -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let may = rustix::thread::capabilities(None)
        .and_then(|now| {
            let left = now.permitted & kept.set();
            let sets = CapabilitySets {
                effective: left,
                permitted: left,
                inheritable: CapabilitySet::empty(),
            };
            rustix::thread::set_capabilities(None, sets)
        })
        .map_err(io::Error::from);
    may.map_err(HostError::refused("give up", "privileges".to_owned()))
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn look_up(name: &str) -> io::Result<Option<User>> {
    let name = CString::new(name)?;
    // getpwnam_r(3): names and paths of the entry go here.
    let mut text = vec![0; 16 << 10];
    // SAFETY: integers and pointers; all zeroes is a value.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: all places are ours, outlive the call, and have the lengths that are passed.
    let result = unsafe {
        libc::getpwnam_r(
            name.as_ptr(),
            &raw mut entry,
            text.as_mut_ptr(),
            text.len(),
            &raw mut found,
        )
    };
    match result {
        0 if found.is_null() => Ok(None),
        0 => Ok(Some(User {
            // SAFETY: the call has filled in the entry, whose strings lie in `text`.
            name: unsafe { CStr::from_ptr(entry.pw_name) }.to_owned(),
            uid: entry.pw_uid,
            gid: entry.pw_gid,
        })),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name() {
        let root = look_up("root").unwrap().unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(look_up("wb-nobody-has-this-name").unwrap().is_none());
        assert!(look_up("a\0b").is_err());
        let error = become_user("wb-nobody-has-this-name", Kept::default()).unwrap_err();
        assert!(error.to_string().contains("no such user"), "{error}");
    }
}
