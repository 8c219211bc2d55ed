//! Changes the process to another user permanently.
#![allow(unsafe_code)] // The user database and the identities of a process, through libc.

use std::ffi::{CStr, CString};
use std::io;

use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::{HostError, Result};

/// Privileges of root that are kept after the change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptPrivileges {
    /// Open any file that root could open (CAP_DAC_OVERRIDE).
    pub opens_anywhere: bool,
    /// Read and write maps of BPF programs (CAP_BPF). Kernels before 5.19 check it on each access.
    pub bpf: bool,
}

impl KeptPrivileges {
    fn set(self) -> CapabilitySet {
        let mut set = CapabilitySet::empty();
        set.set(CapabilitySet::DAC_OVERRIDE, self.opens_anywhere);
        set.set(CapabilitySet::BPF, self.bpf);
        set
    }
}

/// Entry of the user database.
struct User {
    name: CString,
    uid: libc::uid_t,
    gid: libc::gid_t,
}

/// Changes all threads of this process to the user `name` and the groups of that user. Open descriptors stay open. The
/// calling thread and the threads that it starts keep the privileges in `kept`.
///
/// # Errors
/// If the user does not exist, or this process may not change its user.
pub fn become_user(name: &str, kept: KeptPrivileges) -> Result<()> {
    let object = || format!("user {name}");
    let user = look_up(name)
        .map_err(HostError::refused("find", object()))?
        .ok_or_else(|| {
            HostError::refused("find", object())(io::Error::new(
                io::ErrorKind::NotFound,
                "no such user",
            ))
        })?;
    // Without this flag, the change of the user would clear all capabilities. The kernel resets the flag on exec.
    let keeps = |keep| rustix::thread::set_keep_capabilities(keep).map_err(io::Error::from);
    // The user id comes last, because the change removes the privilege to change groups. libc changes all threads.
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

/// Drops the privileges that [`become_user`] kept, except for `kept`. Has no effect on root.
///
/// # Errors
/// The error of the kernel.
pub fn keep_only(kept: KeptPrivileges) -> Result<()> {
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
    // getpwnam_r(3): buffer for the names and paths of the entry.
    let mut text = vec![0; 16 << 10];
    // SAFETY: the struct has integers and pointers, for which zero is valid.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: all buffers belong to this function, outlive the call, and have the lengths that are passed.
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
        let error = become_user("wb-nobody-has-this-name", KeptPrivileges::default()).unwrap_err();
        assert!(error.to_string().contains("no such user"), "{error}");
    }
}
