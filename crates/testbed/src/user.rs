//! Labs without root: a user namespace in which this user is root.
//!
//! Inside a user namespace, names and files of labs are in tmpfs mounts of the private
//! mount namespace. Nothing outside changes, and everything ends with the last process inside.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::thread::UnshareFlags;
use wb_machine::privilege::{Capability, Privileges};
use wb_machine::{Namespace, Netlink};

use crate::{Result, TestbedError};

const NAMES: &str = "/run/netns";
/// File that marks a covered folder.
const MARK: &str = ".wirebench-private";

/// Moves this process into a new user, network and mount namespace, as `unshare -Urnm` does. The process is
/// root there, may make labs, and reaches no network outside.
///
/// Call before the first thread is started.
///
/// # Errors
/// Other threads run, or the system does not permit namespaces for this user.
pub fn enter_user_namespace() -> Result<()> {
    let (uid, gid) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    unshare_namespaces(UnshareFlags::NEWUSER | UnshareFlags::NEWNET | UnshareFlags::NEWNS).map_err(|errno| {
        let why = match errno {
            rustix::io::Errno::INVAL => " (other threads are already running)",
            rustix::io::Errno::PERM | rustix::io::Errno::NOSPC => {
                " (user namespaces are disabled; enable them with `sudo sysctl kernel.unprivileged_userns_clone=1 \
                 kernel.apparmor_restrict_unprivileged_userns=0`, or run as root)"
            }
            _ => "",
        };
        TestbedError::io("create", format!("a user namespace{why}"))(errno)
    })?;
    // The kernel requires this before it accepts a group map from an unprivileged process.
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", &format!("0 {uid} 1"))?;
    write("/proc/self/gid_map", &format!("0 {gid} 1"))?;
    let quiet = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", quiet).map_err(TestbedError::io("detach", "the mounts"))?;
    Netlink::open(&Namespace::current()?)?.set_up("lo")?;
    Ok(())
}

/// Becomes root of a user namespace if the user may not make labs. Returns true if so.
///
/// Call before the first thread is started.
///
/// # Errors
/// Same as [`enter_user_namespace`].
pub fn gain_privileges() -> Result<bool> {
    let privileges = Privileges::of_this_process();
    if privileges.has(Capability::NetAdmin) && privileges.has(Capability::SysAdmin) {
        return Ok(false);
    }
    enter_user_namespace()?;
    Ok(true)
}

/// Folder for lab files inside a user namespace; `None` outside.
pub(crate) fn private_directory() -> Result<Option<PathBuf>> {
    if !Privileges::of_this_process().in_user_namespace {
        return Ok(None);
    }
    // Outer names must neither conflict nor be removed by a clean-up inside. If the kernel rejects
    // the mount, this process has no private mount namespace, and making a lab reports the error.
    if Path::new(NAMES).is_dir() {
        let _ = cover_folder(Path::new(NAMES));
    }
    let folder = std::env::temp_dir().join(format!("wirebench-labs-{}", outer_uid()));
    let refused = || TestbedError::io("use", folder.display().to_string());
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => return Err(refused()(cause)),
        _ => {}
    }
    let found = fs::symlink_metadata(&folder).map_err(refused())?;
    // In /tmp, another user may have created the folder.
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
        return Err(refused()(io::Error::from(io::ErrorKind::PermissionDenied)));
    }
    let _ = cover_folder(&folder);
    Ok(Some(folder))
}

/// Mounts a tmpfs over a folder, once.
fn cover_folder(folder: &Path) -> io::Result<()> {
    let mark = folder.join(MARK);
    if mark.exists() {
        return Ok(());
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("wirebench", folder, "tmpfs", flags, c"mode=0755")?;
    fs::write(mark, "")
}

/// User id outside: without other mappings, the only mapped one.
fn outer_uid() -> String {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_ascii_whitespace()
        .nth(1)
        .unwrap_or("0")
        .to_owned()
}

fn write(path: &str, text: &str) -> Result<()> {
    fs::write(path, text).map_err(TestbedError::io("write", path))
}

#[allow(unsafe_code)] // rustix marks unshare unsafe because of CLONE_FILES only.
pub(crate) fn unshare_namespaces(flags: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: new namespaces leave the file descriptor table as it is.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}
