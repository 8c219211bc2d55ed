//! Thread in a private mount namespace.

use std::any::Any;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

use rustix::fs::{CWD, StatVfsMountFlags};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
};
use rustix::thread::UnshareFlags;

use super::MountTable;
use crate::error::{HostError, Result};
use crate::netns::Namespace;

const PROC_NET: &str = "/proc/net";
/// Unused folders of `/proc`, best first.
const SPARE: [&str; 2] = ["/proc/tty/ldisc", "/proc/driver"];

type Work = Box<dyn FnOnce() + Send>;

/// Private mount namespace, and optionally a network namespace, with a thread in it.
///
/// Mounts made outside later are visible inside, but not the other way round. Threads and processes started inside stay
/// there. The namespace exists as long as one of them.
///
/// ```no_run
/// # use std::process::Command;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mounts = wb_machine::PrivateMounts::new(None)?;
/// let folder = mounts.add_to_proc_net("pktgen")?;
/// // ... mounts.run(move || mount something on folder) ...
/// let mut script = Command::new("bash");
/// script.args(["-c", "ls /proc/net/pktgen"]);
/// mounts.spawn(script)?.wait()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PrivateMounts {
    /// Taken only by `Drop`.
    work: Option<mpsc::Sender<Work>>,
    thread: Option<JoinHandle<()>>,
    /// Folder to which `/proc/net` points.
    proc_net: Mutex<Option<PathBuf>>,
}

impl PrivateMounts {
    /// Creates a mount namespace with the mounts of the calling thread.
    ///
    /// If a network namespace is given, the thread enters that too and mounts a new `/sys`, because a sysfs shows the
    /// interfaces of the namespace in which it was mounted.
    ///
    /// # Errors
    /// Without CAP_SYS_ADMIN.
    pub fn new(network: Option<&Namespace>) -> Result<Self> {
        let network = network.cloned();
        let (work, orders) = mpsc::channel::<Work>();
        let (ready, readiness) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("mounts".into())
            .spawn(move || {
                let entered = enter(network.as_ref());
                let failed = entered.is_err();
                let _ = ready.send(entered);
                if failed {
                    return;
                }
                orders.iter().for_each(|order| order());
            })
            .map_err(HostError::refused("start", "a thread"))?;
        readiness.recv().expect("the thread says how it went")?;
        Ok(PrivateMounts {
            work: Some(work),
            thread: Some(thread),
            proc_net: Mutex::new(None),
        })
    }

    /// Runs `f` inside and waits for it. A panic in `f` propagates to the caller.
    pub fn run<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, outcome) = mpsc::channel::<std::result::Result<T, Box<dyn Any + Send>>>();
        let order: Work = Box::new(move || {
            let _ = done.send(catch_unwind(AssertUnwindSafe(f)));
        });
        let work = self.work.as_ref().expect("taken only by drop");
        work.send(order).expect("the thread lives as long as self");
        match outcome.recv().expect("every order is carried out") {
            Ok(value) => value,
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Starts a program inside. Its child processes are inside as well.
    ///
    /// The kernel regards the thread inside as the parent, and that thread lives as long as `self`. So a death signal
    /// set by the command (`PR_SET_PDEATHSIG`) is sent when `self` is dropped.
    ///
    /// # Errors
    /// See [`Command::spawn`].
    pub fn spawn(&self, mut command: Command) -> io::Result<Child> {
        self.run(move || command.spawn())
    }

    /// Creates an empty folder `/proc/net/NAME` and returns the path to mount on, which is valid only inside. All other
    /// entries of `/proc/net` stay usable, for each process in its network namespace. Entries that modules add later
    /// are not visible.
    ///
    /// # Errors
    /// If the kernel refuses one of the mounts.
    pub fn add_to_proc_net(&self, name: &str) -> Result<PathBuf> {
        self.extend_proc_net(name, |path| fs::create_dir(path))
    }

    /// Creates a link `/proc/net/NAME` to the folder `target`.
    ///
    /// # Errors
    /// If the kernel refuses one of the mounts.
    pub fn link_into_proc_net(&self, name: &str, target: &Path) -> Result<()> {
        let target = target.to_owned();
        self.extend_proc_net(name, move |path| symlink(target, path))
            .map(drop)
    }

    /// Folder to which `/proc/net` points.
    pub(super) fn proc_net_folder(&self) -> Result<PathBuf> {
        let mut known = self.proc_net.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(match &*known {
            Some(folder) => folder.clone(),
            None => known.insert(self.run(replace_proc_net)?).clone(),
        })
    }

    /// Ids of the processes inside, except for this one.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
        let Some(inside) = self.run(|| fs::read_link("/proc/thread-self/ns/mnt").ok()) else {
            return Vec::new();
        };
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers
            .filter(|process| *process != std::process::id())
            .filter(|process: &u32| namespace(&process.to_string()).as_ref() == Some(&inside))
            .collect()
    }

    fn extend_proc_net(
        &self,
        name: &str,
        make: impl FnOnce(&Path) -> io::Result<()> + Send + 'static,
    ) -> Result<PathBuf> {
        let folder = self.proc_net_folder()?;
        let object = format!("{PROC_NET}/{name}");
        let path = folder.join(name);
        self.run(move || {
            // Link to the kernel's entry with this name.
            let _ = fs::remove_file(&path);
            make(&path).map(|()| path)
        })
        .map_err(HostError::refused("create", object))
    }
}

impl Drop for PrivateMounts {
    fn drop(&mut self) {
        drop(self.work.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn enter(network: Option<&Namespace>) -> Result<()> {
    let network = network.filter(|namespace| !namespace.is_current());
    if let Some(namespace) = network {
        namespace.enter()?;
    }
    unshare_mounts()
        .map_err(HostError::refused("create", "a private mount namespace"))
        .map_err(|e| e.or_privilege(advice))?;
    let inwards = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", inwards)
        .map_err(HostError::refused("detach", "the private mounts"))?;
    if let Some(namespace) = network
        && let Err(e) = fresh_sysfs()
    {
        // A container may forbid the mount. Then only the interfaces in /sys/class/net are wrong.
        tracing::warn!("/sys does not show {}: {e}", namespace.place());
    }
    Ok(())
}

fn advice() -> String {
    "needs CAP_SYS_ADMIN: run as root, or under `unshare -Urnm`".into()
}

#[allow(unsafe_code)] // rustix marks unshare unsafe because of CLONE_FILES only.
fn unshare_mounts() -> rustix::io::Result<()> {
    // SAFETY: a new mount namespace leaves the file descriptor table as it is.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }
}

/// Covers `/sys` with a sysfs of this network namespace, including the mounts on it (cgroups, tracing, bpf).
fn fresh_sysfs() -> Result<()> {
    let old = Path::new("/sys");
    let mounts = MountTable::open()?.mounts()?;
    let on_it: Vec<(PathBuf, OwnedFd)> = mounts
        .iter()
        .filter(|mount| mount.parent_point(&mounts) == Some(old) && mount.point != old)
        // Mounts that cannot be carried over are missing afterwards, as in `ip netns exec`.
        .filter_map(|mount| Some((mount.point.clone(), clone_mount(&mount.point, true).ok()?)))
        .collect();
    let read_only = rustix::fs::statvfs(old)
        .is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY));
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    flags.set(MountFlags::RDONLY, read_only);
    rustix::mount::mount("sysfs", old, "sysfs", flags, None)
        .map_err(HostError::refused("mount", "/sys"))?;
    for (point, mount) in on_it {
        let _ = attach(&mount, &point);
    }
    Ok(())
}

/// Mounts a link on `/proc/net` to a folder with the same entries, and returns that folder.
fn replace_proc_net() -> Result<PathBuf> {
    let names: Vec<_> = fs::read_dir("/proc/thread-self/net")
        .map_err(HostError::refused("list", PROC_NET))?
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    let spare = SPARE.iter().map(Path::new).find(|path| path.is_dir());
    let folder = spare.ok_or_else(|| {
        HostError::refused("find", "a directory in /proc to mount over")(io::Error::from(
            io::ErrorKind::NotFound,
        ))
    })?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("wirebench", folder, "tmpfs", flags, c"mode=0755")
        .map_err(HostError::refused("mount on", folder.display().to_string()))?;

    let replaced = fill(folder, &names)
        .map_err(HostError::refused("fill", folder.display().to_string()))
        .and_then(|link| {
            clone_mount(&link, false)
                .and_then(|mount| attach(&mount, Path::new(PROC_NET)))
                .map_err(HostError::refused("mount a link on", PROC_NET))
        });
    if replaced.is_err() {
        let _ = rustix::mount::unmount(folder, UnmountFlags::DETACH);
    }
    replaced.map(|()| folder.to_owned())
}

/// Creates links to all entries of `/proc/net`, and the link that will replace it.
fn fill(folder: &Path, names: &[std::ffi::OsString]) -> io::Result<PathBuf> {
    for name in names {
        symlink(Path::new("/proc/self/net").join(name), folder.join(name))?;
    }
    let link = folder.join(".net");
    symlink(folder, &link)?;
    Ok(link)
}

/// Detached copy of the mount at `path`. A symbolic link is copied itself, not its target.
pub(super) fn clone_mount(path: &Path, recursive: bool) -> rustix::io::Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    flags.set(OpenTreeFlags::AT_RECURSIVE, recursive);
    rustix::mount::open_tree(CWD, path, flags)
}

pub(super) fn attach(mount: &OwnedFd, path: &Path) -> rustix::io::Result<()> {
    // Without MOVE_MOUNT_T_SYMLINKS a link at `path` is not followed.
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(mount, "", CWD, path, flags)
}
