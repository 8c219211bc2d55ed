//! Network namespaces: finds, creates, enters and removes them, compatible with `ip netns`.
//!
//! A name is a bind mount in `/run/netns`, which is a shared mount as in iproute2, so that `ip netns exec NAME` works
//! on our namespaces, and wirebench on those of iproute2. If `/run` is not writable (an unprivileged user after
//! `unshare -Urnm`), a private tmpfs covers `/run/netns` in the private mount namespace. If that folder does not exist
//! either, the tmpfs covers `/run`, with all entries of `/run` bound into it. Both disappear with the mount namespace.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::error::{self, HostError, Result};

const RUN: &str = "/run/netns";
const VAR_RUN: &str = "/var/run/netns";

/// linux/magic.h: NSFS_MAGIC
const NSFS_MAGIC: u64 = 0x6e73_6673;

/// Network namespace, kept alive by this value and its clones.
#[derive(Clone, Debug)]
pub struct Namespace {
    fd: Arc<OwnedFd>,
    name: Option<String>,
    inode: u64,
}

impl Namespace {
    /// Namespace of the calling thread.
    ///
    /// # Errors
    /// If `/proc` is not mounted.
    pub fn current() -> Result<Self> {
        Self::open(Path::new("/proc/thread-self/ns/net"), None)
    }

    /// Namespace with the name `name` in `ip netns`.
    ///
    /// # Errors
    /// [`HostError::UnknownNamespace`], with the existing names; a refusal if the name is a left-over file.
    pub fn named(name: &str) -> Result<Self> {
        check_name(name)?;
        let Some(path) = path_of(name) else {
            let existing = list()?;
            let nearest = error::nearest(name, &existing);
            return Err(HostError::UnknownNamespace {
                name: name.into(),
                nearest,
                existing,
            });
        };
        Self::open(&path, Some(name.into()))
    }

    /// Place of an interface of this namespace: `wb-pair-a/a0`, or `a0` if the namespace has no name.
    #[must_use]
    pub fn place_of(&self, interface: &str) -> String {
        match self.name() {
            Some(node) => format!("{node}/{interface}"),
            None => interface.to_owned(),
        }
    }

    /// Namespace of a process.
    ///
    /// # Errors
    /// If the process does not exist or belongs to another user.
    pub fn of_process(pid: u32) -> Result<Self> {
        Self::open(&PathBuf::from(format!("/proc/{pid}/ns/net")), None)
    }

    fn open(path: &Path, name: Option<String>) -> Result<Self> {
        let object = || format!("network namespace {}", path.display());
        let left_over = || HostError::Refused {
            operation: "open",
            object: object(),
            cause: io::Error::from_raw_os_error(libc::EINVAL),
            detail: Some("the file exists, but no namespace is mounted on it".into()),
            hint: name
                .as_ref()
                .map(|n| format!("remove it with `ip netns delete {n}`")),
        };
        let file = File::open(path).map_err(HostError::refused("open", object()))?;
        let kind = rustix::fs::fstatfs(&file).map_err(HostError::refused("open", object()))?;
        if u64::try_from(kind.f_type).ok() != Some(NSFS_MAGIC) {
            return Err(left_over());
        }
        let inode = file
            .metadata()
            .map_err(HostError::refused("open", object()))?
            .ino();
        Ok(Namespace {
            fd: Arc::new(file.into()),
            name,
            inode,
        })
    }

    /// Name with which the namespace was opened or created.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Number that identifies the namespace, independent of its names.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Name for messages: `namespace wb-pair-a`, `this network namespace`.
    pub fn place(&self) -> String {
        self.name.as_ref().map_or_else(
            || "this network namespace".into(),
            |n| format!("namespace {n}"),
        )
    }

    /// Prefix that makes a command run in the namespace: `ip netns exec wb-pair-a ` or empty.
    pub fn command_prefix(&self) -> String {
        self.name
            .as_ref()
            .map(|n| format!("ip netns exec {n} "))
            .unwrap_or_default()
    }

    /// Returns true if the calling thread is in this namespace.
    pub fn is_current(&self) -> bool {
        fs::metadata("/proc/thread-self/ns/net").is_ok_and(|m| m.ino() == self.inode)
    }

    /// Moves the calling thread into this namespace permanently. For worker threads; all other callers use
    /// [`in_namespace`].
    ///
    /// # Errors
    /// Without CAP_SYS_ADMIN, unless the thread is already there.
    pub fn enter(&self) -> Result<()> {
        // The kernel requires CAP_SYS_ADMIN even if nothing would change.
        if self.is_current() {
            return Ok(());
        }
        rustix::thread::move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(HostError::refused("enter", self.place()))
            .map_err(|e| e.or_privilege(namespace_advice))
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl PartialEq for Namespace {
    fn eq(&self, other: &Self) -> bool {
        self.inode == other.inode
    }
}

impl Eq for Namespace {}

/// Runs `f` inside `namespace`, on a separate thread that ends with it.
///
/// Sockets that `f` opens stay in the namespace and may be returned. In `f`, `/proc/sys/net` and
/// `/proc/thread-self/net` belong to the namespace, but `/proc/net` belongs to the main thread and `/sys/class/net` to
/// the namespace in which it was mounted.
///
/// # Errors
/// If the namespace cannot be entered. A panic in `f` propagates to the caller.
pub fn in_namespace<T: Send>(namespace: &Namespace, f: impl FnOnce() -> T + Send) -> Result<T> {
    on_own_thread(|| {
        namespace.enter()?;
        Ok(f())
    })
}

/// Runs `f` on a separate thread, so that it may change namespaces without affecting a thread pool or the caller.
fn on_own_thread<T: Send>(f: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        thread::Builder::new()
            .name("netns".into())
            .spawn_scoped(scope, f)
            .map_err(HostError::refused("start", "a thread"))?
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Creates an empty network namespace `name`, as `ip netns add` does.
///
/// # Errors
/// [`HostError::Exists`]; a refusal with a command that helps, without the required privileges.
pub fn create(name: &str) -> Result<Namespace> {
    check_name(name)?;
    let directory = directory();
    match create_in(directory, name) {
        Err(e) if is_not_ours(&e) => in_private(directory, name, e),
        other => other,
    }
}

fn is_not_ours(error: &HostError) -> bool {
    matches!(
        error.errno(),
        Some(libc::EACCES | libc::EPERM | libc::EROFS)
    )
}

/// Creates a namespace if the folder of names belongs to another user.
fn in_private(directory: &Path, name: &str, refusal: HostError) -> Result<Namespace> {
    // A concurrent call must not cover the names of the first.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _in_process = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let _among_processes = directory.parent().and_then(lock);
    match create_in(directory, name) {
        Err(e) if is_not_ours(&e) => {}
        other => return other,
    }
    // This also fails in a mount namespace of another user. The first refusal is then the more helpful one.
    if private_directory(directory).is_err() {
        return Err(refusal.or_privilege(namespace_advice));
    }
    create_in(directory, name)
}

/// Removes the name. The namespace itself is removed when no process, socket or [`Namespace`] uses it. Its veth ends
/// are removed shortly afterwards.
///
/// # Errors
/// [`HostError::UnknownNamespace`]; a refusal without the required privileges.
pub fn delete(name: &str) -> Result<()> {
    check_name(name)?;
    let Some(path) = path_of(name) else {
        let existing = list()?;
        let nearest = error::nearest(name, &existing);
        return Err(HostError::UnknownNamespace {
            name: name.into(),
            nearest,
            existing,
        });
    };
    let object = format!("namespace {name}");
    match rustix::mount::unmount(&path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        // EINVAL: nothing is mounted there, only the file is left over.
        Ok(()) | Err(rustix::io::Errno::INVAL) => {}
        Err(e) => {
            return Err(HostError::refused("delete", object)(e).or_privilege(namespace_advice));
        }
    }
    fs::remove_file(&path)
        .map_err(HostError::refused("delete", object))
        .map_err(|e| e.or_privilege(namespace_advice))
}

/// Names of all named namespaces, sorted.
///
/// # Errors
/// If a folder of names exists and cannot be read.
pub fn list() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for directory in [RUN, VAR_RUN] {
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(HostError::refused("list", directory)(e)),
        };
        names.extend(
            entries
                .flatten()
                .filter_map(|entry| entry.file_name().into_string().ok()),
        );
    }
    names.sort();
    names.dedup();
    Ok(names)
}

/// Folder of new names: `/var/run/netns`, which `ip` reads; on most systems it is `/run/netns`.
fn directory() -> &'static Path {
    match fs::canonicalize("/var/run") {
        Ok(path) if path != Path::new("/run") => Path::new(VAR_RUN),
        _ => Path::new(RUN),
    }
}

fn path_of(name: &str) -> Option<PathBuf> {
    [RUN, VAR_RUN]
        .iter()
        .map(|d| Path::new(d).join(name))
        .find(|p| p.symlink_metadata().is_ok())
}

fn check_name(name: &str) -> Result<()> {
    let why = match name {
        "" => "it must not be empty",
        "." | ".." => "it must not be . or ..",
        _ if name.contains('/') => "it must not contain slashes",
        _ if name.contains('\0') => "it must not contain zero bytes",
        _ if name.len() > 255 => "it must have at most 255 bytes",
        _ => return Ok(()),
    };
    Err(HostError::BadName {
        name: name.into(),
        what: "a namespace",
        why,
    })
}

fn namespace_advice() -> String {
    "needs CAP_SYS_ADMIN over network and mounts: run as root, or under `unshare -Urnm`".into()
}

fn create_in(directory: &Path, name: &str) -> Result<Namespace> {
    let object = || format!("namespace {name}");
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(directory)
        .map_err(HostError::refused(
            "create",
            directory.display().to_string(),
        ))?;
    let _guard = lock(directory);
    share(directory).map_err(HostError::refused("share", directory.display().to_string()))?;

    let path = directory.join(name);
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o000)
        .open(&path);
    match made {
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            let command = format!("ip netns delete {name}");
            return Err(HostError::Exists {
                object: object(),
                command,
            });
        }
        Err(e) => return Err(HostError::refused("create", object())(e)),
    }
    let bound = on_own_thread(|| {
        unshare_network().map_err(HostError::refused("create", object()))?;
        rustix::mount::mount_bind("/proc/thread-self/ns/net", &path)
            .map_err(HostError::refused("name", object()))
    });
    bound
        .and_then(|()| Namespace::open(&path, Some(name.into())))
        .inspect_err(|_| {
            // Only a file created by this call can be removed here.
            let _ = rustix::mount::unmount(&path, UnmountFlags::DETACH);
            let _ = fs::remove_file(&path);
        })
}

/// Prevents two creators from both making the folder a mount point. Advisory, as in iproute2: continues without the
/// lock after one second.
fn lock(directory: &Path) -> Option<File> {
    let file = File::open(directory).ok()?;
    for _ in 0..100 {
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return Some(file);
        }
        thread::sleep(Duration::from_millis(10));
    }
    None
}

/// Propagates mounts in `directory` to other mount namespaces. Otherwise `ip netns exec` elsewhere could not see them,
/// and deleted ones would stay alive there.
fn share(directory: &Path) -> rustix::io::Result<()> {
    let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    match rustix::mount::mount_change(directory, shared) {
        // Not a mount point yet.
        Err(rustix::io::Errno::INVAL) => {
            rustix::mount::mount_bind_recursive(directory, directory)?;
            rustix::mount::mount_change(directory, shared)
        }
        other => other,
    }
}

/// Creates a folder of names in a mount namespace if `/run` belongs to another user.
fn private_directory(directory: &Path) -> rustix::io::Result<()> {
    if directory.is_dir() {
        return mount_tmpfs(directory);
    }
    shadow(directory.parent().expect("the folder of names is no root"))
}

fn mount_tmpfs(target: &Path) -> rustix::io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("wirebench", target, "tmpfs", flags, c"mode=0755")
}

/// Covers `directory` with a writable tmpfs that shows the same entries.
fn shadow(directory: &Path) -> rustix::io::Result<()> {
    let stage = std::env::temp_dir().join(format!("wirebench-run-{}", std::process::id()));
    let io = |e: io::Error| rustix::io::Errno::from_io_error(&e).unwrap_or(rustix::io::Errno::IO);
    DirBuilder::new().mode(0o700).create(&stage).map_err(io)?;
    let shown = mount_tmpfs(&stage).and_then(|()| {
        for entry in fs::read_dir(directory).map_err(io)?.flatten() {
            // An entry without read permission was not usable before either.
            let _ = mirror(&entry, &stage.join(entry.file_name()));
        }
        rustix::mount::mount_bind_recursive(&stage, directory)
    });
    let _ = rustix::mount::unmount(&stage, UnmountFlags::DETACH);
    let _ = fs::remove_dir(&stage);
    shown
}

fn mirror(entry: &fs::DirEntry, target: &Path) -> io::Result<()> {
    let kind = entry.file_type()?;
    if kind.is_symlink() {
        return symlink(fs::read_link(entry.path())?, target);
    }
    if kind.is_dir() {
        fs::create_dir(target)?;
    } else {
        File::create(target)?;
    }
    Ok(rustix::mount::mount_bind_recursive(entry.path(), target)?)
}

#[allow(unsafe_code)] // rustix marks unshare unsafe because of CLONE_FILES only.
fn unshare_network() -> rustix::io::Result<()> {
    // SAFETY: a new network namespace leaves the file descriptor table as it is.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
}

/// Raw descriptor number of the namespace, for netlink messages.
pub(crate) fn raw_fd(namespace: &Namespace) -> i32 {
    namespace.fd.as_raw_fd()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert!(check_name("wb-pair-a").is_ok());
        for bad in ["", ".", "..", "a/b", "a\0b", &"x".repeat(256)] {
            assert!(
                matches!(check_name(bad), Err(HostError::BadName { .. })),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn the_current_one_needs_no_privileges() {
        let here = Namespace::current().unwrap();
        assert!(here.is_current());
        assert_eq!(here.command_prefix(), "");
        let inside = in_namespace(&here, || Namespace::current().unwrap().inode()).unwrap();
        assert_eq!(inside, here.inode());
    }

    #[test]
    fn an_unknown_name_is_said_so() {
        let error = Namespace::named("wb-no-such-namespace").unwrap_err();
        assert!(
            matches!(error, HostError::UnknownNamespace { .. }),
            "{error}"
        );
    }
}
