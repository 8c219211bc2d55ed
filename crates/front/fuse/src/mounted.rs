//! Mounts a control folder, and unmounts it from inside and from outside.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fuser::{Config, MountOption, Session, SessionACL, SessionUnmounter};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::{Pid, PidfdFlags};
use wb_machine::{MountTable, pending_signals};

use crate::folder::Folder;
use crate::waiting::Waiting;
use crate::{ControlFiles, KIND, MountError};

/// Prefix of the device name of a folder with a known process.
const SOURCE: &str = "wirebench-";
/// Maximum time that [`unmount`] waits for the process of a folder, which may have devices to stop.
const LEAVING: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};
/// Maximum time that a working folder takes to respond.
const ANSWER: Duration = Duration::from_millis(500);
/// Interval between checks of the signals of a blocked writer.
const LOOK: Duration = Duration::from_millis(20);
/// Commands are short, but one slow command must not block the others.
const THREADS: usize = 4;
const DEVICE: &str = "/dev/fuse";
const HELPERS: [&str; 2] = ["fusermount3", "fusermount"];

/// Options of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Device name in `mount` and `df`: by default the name of the program and its process, which
    /// [`unmount`] then waits for.
    pub source: String,
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            source: format!("{SOURCE}{}", std::process::id()),
        }
    }
}

/// A mounted control folder, which is unmounted when dropped. A process that still has a file open in it can continue
/// as long as this process lives, but signals of blocked writers are no longer handled: give
/// all answers first.
#[derive(Debug)]
pub struct Mounted {
    point: PathBuf,
    shared: Arc<Shared>,
    watcher: Option<JoinHandle<()>>,
}

impl Mounted {
    /// Mount point, absolute and without links.
    pub fn path(&self) -> &Path {
        &self.point
    }

    /// Returns true if the folder was unmounted from outside, or has failed.
    pub fn is_gone(&self) -> bool {
        self.shared.state().gone
    }

    /// Waits until the folder is unmounted from outside, but for at most `at_most`; returns true if
    /// it was unmounted.
    pub fn wait(&self, at_most: Duration) -> bool {
        let (state, _) = self
            .shared
            .changed
            .wait_timeout_while(self.shared.state(), at_most, |state| !state.gone)
            .unwrap_or_else(PoisonError::into_inner);
        state.gone
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.waiting.ring();
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
    }
}

/// State shared by the threads of a mount.
struct Shared {
    waiting: Arc<Waiting>,
    /// Set by `Mounted`, read by the watching thread.
    stop: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// True if the folder is no longer in the list of mounts, or has no session.
    gone: bool,
    /// True if the kernel has no more requests.
    ended: bool,
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, edit: impl FnOnce(&mut State)) {
        edit(&mut self.state());
        self.changed.notify_all();
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// Mounts `files` on the folder `dir`, in the mount namespace of the calling thread.
///
/// A dead control folder there, left by a killed process, is replaced. Root, including root of a user
/// namespace, mounts directly and admits other users as far as the modes of the files do; other users
/// need `fusermount3`.
///
/// # Errors
/// [`MountError`]; nothing is mounted in that case.
pub fn mount(
    dir: &Path,
    files: Arc<dyn ControlFiles>,
    options: &MountOptions,
) -> Result<Mounted, MountError> {
    let table = MountTable::open()?;
    let point = resolve(dir).map_err(|cause| no_folder(dir, cause))?;
    // Two mounts at once would both find the folder free, or one would unmount the folder of the other.
    let _turn = take_turn(&point)?;
    make_room(&point, &table)?;
    let refused = |cause: io::Error| MountError::Refused {
        operation: "mount on",
        dir: point.clone(),
        cause,
        hint: None,
    };
    let waiting = Waiting::new().map_err(|e| refused(e.into()))?;
    let folder = || Folder::new(Arc::clone(&files), Arc::clone(&waiting));
    let device = open_device(&point)?;
    let (session, by_helper) = match mount_directly(&device, &point, options) {
        Ok(()) => {
            let config = config(owner_acl());
            let session = Session::from_fd(folder(), device.into(), config.acl, config)
                .inspect_err(|_| drop(take_down(&point)))
                .map_err(refused)?;
            (session, None)
        }
        Err(Errno::PERM) => {
            let mut session = mount_by_helper(folder, &point, options)?;
            let unmounter = session.unmount_callable();
            (session, Some(unmounter))
        }
        Err(e) => return Err(refused(e.into())),
    };
    let mount_id = table.top_at(&point)?.map(|mount| mount.id);

    let shared = Arc::new(Shared {
        waiting,
        stop: AtomicBool::new(false),
        state: Mutex::default(),
        changed: Condvar::new(),
    });
    let server = spawn("control files", {
        let shared = Arc::clone(&shared);
        move || {
            if let Err(e) = session.run() {
                tracing::warn!("control folder: {e}");
            }
            shared.change(|state| (state.gone, state.ended) = (true, true));
            shared.waiting.ring();
        }
    })
    .inspect_err(|_| drop(take_down(&point)))
    .map_err(refused)?;
    let watcher = Watcher {
        shared: Arc::clone(&shared),
        files,
        table,
        mount_id,
        point: point.clone(),
        by_helper,
        server: Some(server),
    };
    // The new threads are in the mount namespace of this thread: only there can the folder be seen
    // and unmounted.
    let watcher = spawn("control watcher", move || watcher.run())
        .inspect_err(|_| drop(take_down(&point)))
        .map_err(refused)?;
    Ok(Mounted {
        point,
        shared,
        watcher: Some(watcher),
    })
}

/// Unmounts a control folder, dead or alive. The [`Mounted`] of a running process
/// notices it. Returns when that process has ended, so that its ports are free.
///
/// # Errors
/// [`MountError::NotAControlFolder`]; a refusal if the folder belongs to another user.
pub fn unmount(dir: &Path) -> Result<(), MountError> {
    let point = resolve(dir).map_err(|cause| MountError::Refused {
        operation: "unmount",
        dir: dir.to_owned(),
        cause,
        hint: None,
    })?;
    let owner = match MountTable::open()?.top_at(&point)? {
        Some(mount) if mount.kind == KIND => owner(&mount.source),
        found => {
            let found = found.map(|mount| mount.kind);
            return Err(MountError::NotAControlFolder { dir: point, found });
        }
    };
    take_down(&point).map_err(|cause| {
        let hint = (cause.raw_os_error() == Some(libc::EPERM))
            .then(|| "the mount belongs to another user; run as root".into());
        MountError::Refused {
            operation: "unmount",
            dir: point,
            cause,
            hint,
        }
    })?;
    if let Some(process) = owner {
        // A process is readable once it has ended. If it does not end in time, the folder is nevertheless unmounted.
        let _ = rustix::event::poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&LEAVING));
    }
    Ok(())
}

/// The process of a folder, if it runs and is not this process.
fn owner(source: &str) -> Option<OwnedFd> {
    let process = Pid::from_raw(source.strip_prefix(SOURCE)?.parse().ok()?)?;
    if process == rustix::process::getpid() {
        return None;
    }
    rustix::process::pidfd_open(process, PidfdFlags::empty()).ok()
}

/// Returns true if a control folder is mounted on `dir`, dead or alive.
///
/// # Errors
/// If the list of mounts cannot be read.
pub fn is_control_folder(dir: &Path) -> Result<bool, MountError> {
    let Ok(point) = resolve(dir) else {
        return Ok(false);
    };
    let top = MountTable::open()?.top_at(&point)?;
    Ok(top.is_some_and(|mount| mount.kind == KIND))
}

/// The visible control folders of killed processes: any access to them fails. A folder below another mount
/// becomes visible once that mount is gone.
///
/// # Errors
/// If the list of mounts cannot be read.
pub fn dead_folders() -> Result<Vec<PathBuf>, MountError> {
    let mounts = MountTable::open()?.mounts()?;
    let mut points: Vec<PathBuf> = mounts
        .into_iter()
        .filter(|mount| mount.kind == KIND)
        .map(|mount| mount.point)
        .collect();
    points.sort_unstable();
    points.dedup();
    points.retain(|point| is_dead_folder(point));
    Ok(points)
}

/// Unmounts the dead control folders on `dir`, as listed by [`dead_folders`], and nothing else.
///
/// # Errors
/// A refusal if the folder belongs to another user.
pub fn remove_dead(dir: &Path) -> Result<(), MountError> {
    // Several may be stacked.
    while is_dead_folder(dir) {
        take_down(dir).map_err(|cause| refused_removal(dir, cause))?;
    }
    Ok(())
}

fn refused_removal(dir: &Path, cause: io::Error) -> MountError {
    MountError::Refused {
        operation: "remove the dead control folder on",
        dir: dir.to_owned(),
        hint: (cause.raw_os_error() == Some(libc::EPERM))
            .then(|| "the mount belongs to another user; run as root".into()),
        cause,
    }
}

/// Returns true if the visible mount at `point` is a control folder without its process. A folder of a stopped
/// process does not respond and blocks the check, which therefore runs in a separate thread with a time limit.
fn is_dead_folder(point: &Path) -> bool {
    let top = MountTable::open().and_then(|table| table.top_at(point));
    if !top.is_ok_and(|top| top.is_some_and(|mount| mount.kind == KIND)) {
        return false;
    }
    let (say, said) = mpsc::channel();
    let point = point.to_owned();
    let looked = spawn("control look", move || {
        let _ = say.send(fs::metadata(point).is_err_and(|e| is_dead(&e)));
    });
    looked.is_ok() && said.recv_timeout(ANSWER).unwrap_or(false)
}

/// The path as in the list of mounts.
fn resolve(dir: &Path) -> io::Result<PathBuf> {
    // A slash at the end would make the kernel resolve a mount that may be dead.
    fs::canonicalize(dir.components().collect::<PathBuf>())
}

fn no_folder(dir: &Path, cause: io::Error) -> MountError {
    MountError::NoFolder {
        dir: dir.to_owned(),
        cause,
    }
}

/// Waits until no other thread or process of this machine mounts a control folder. Closing the file ends the turn.
fn take_turn(point: &Path) -> Result<File, MountError> {
    let device = open_device(point)?;
    let locked = rustix::io::retry_on_intr(|| {
        rustix::fs::flock(&device, rustix::fs::FlockOperation::LockExclusive)
    });
    match locked {
        Ok(()) => Ok(device),
        Err(e) => Err(MountError::Refused {
            operation: "mount on",
            dir: point.to_owned(),
            cause: e.into(),
            hint: None,
        }),
    }
}

/// Checks that a control folder can be mounted on `point`, and unmounts dead ones there. Never waits for the process of
/// a working folder.
fn make_room(point: &Path, table: &MountTable) -> Result<(), MountError> {
    remove_dead(point)?;
    let top = table.top_at(point)?;
    if top.as_ref().is_some_and(|mount| mount.kind == KIND) {
        return Err(MountError::InUse {
            dir: point.to_owned(),
        });
    }
    match (fs::metadata(point), top) {
        (Ok(found), _) if found.is_dir() => Ok(()),
        (Ok(_), _) => Err(no_folder(point, io::ErrorKind::NotADirectory.into())),
        (Err(e), Some(mount)) if is_dead(&e) => Err(MountError::DeadForeign {
            dir: point.to_owned(),
            kind: mount.kind,
        }),
        (Err(e), _) => Err(no_folder(point, e)),
    }
}

/// Returns true for the errors of a mount without a living process.
fn is_dead(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOTCONN | libc::ECONNABORTED)
    )
}

fn open_device(point: &Path) -> Result<File, MountError> {
    // The standard library opens files close-on-exec: a child that inherited the file would keep a dead
    // folder alive.
    let opened = OpenOptions::new().read(true).write(true).open(DEVICE);
    opened.map_err(|cause| MountError::NoFuse {
        dir: point.to_owned(),
        cause,
    })
}

fn mount_directly(device: &File, point: &Path, options: &MountOptions) -> rustix::io::Result<()> {
    let allow_other = match owner_acl() {
        SessionACL::All => ",allow_other",
        _ => "",
    };
    let settings = format!(
        "fd={},rootmode=40555,user_id={},group_id={},default_permissions{allow_other}\0",
        device.as_raw_fd(),
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let settings = std::ffi::CString::from_vec_with_nul(settings.into_bytes())
        .expect("the only zero is at its end");
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let source = options.source.as_str();
    rustix::mount::mount(source, point, KIND, flags, settings.as_c_str())
}

/// Root admits other users, and the kernel then enforces the modes of the files.
fn owner_acl() -> SessionACL {
    if rustix::process::geteuid().is_root() {
        SessionACL::All
    } else {
        SessionACL::Owner
    }
}

fn config(acl: SessionACL) -> Config {
    let mut config = Config::default();
    config.acl = acl;
    config.n_threads = Some(THREADS);
    config
}

fn mount_by_helper(
    folder: impl Fn() -> Folder,
    point: &Path,
    options: &MountOptions,
) -> Result<Session<Folder>, MountError> {
    let (_, subtype) = KIND.split_once('.').expect("KIND has a subtype");
    let with = |acl| {
        let mut config = config(acl);
        config.mount_options = vec![
            MountOption::FSName(options.source.clone()),
            MountOption::Subtype(subtype.into()),
            MountOption::DefaultPermissions,
            MountOption::NoExec,
        ];
        Session::new(folder(), point, &config)
    };
    // Scripts are often run with sudo; /etc/fuse.conf decides if root may be admitted.
    let session = with(SessionACL::RootAndOwner).or_else(|_| with(SessionACL::Owner));
    session.map_err(|cause| {
        // The message of the helper, if there is one, ends with a line feed.
        let cause = match cause.raw_os_error() {
            Some(_) => cause,
            None => io::Error::other(cause.to_string().trim().to_owned()),
        };
        let hint = "run as root, under `unshare -Urnm`, or install fusermount3 (package fuse3)";
        MountError::Refused {
            operation: "mount on",
            dir: point.to_owned(),
            cause,
            hint: Some(hint.into()),
        }
    })
}

/// State of the folder when it was unmounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Idle,
    Busy,
}

fn take_down(point: &Path) -> io::Result<Left> {
    match rustix::mount::unmount(point, UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(Left::Idle),
        Err(Errno::BUSY) => {
            let lazily = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
            rustix::mount::unmount(point, lazily)?;
            Ok(Left::Busy)
        }
        Err(Errno::PERM) if unmount_by_helper(point) => Ok(Left::Busy),
        Err(e) => Err(e.into()),
    }
}

fn unmount_by_helper(point: &Path) -> bool {
    HELPERS.iter().any(|helper| {
        let mut command = Command::new(helper);
        command.args(["-u", "-q", "-z", "--"]).arg(point);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    })
}

fn spawn(name: &str, f: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.into()).spawn(f)
}

/// Checks what FUSE does not report: the signals of blocked writers, and if the mount still
/// exists.
struct Watcher {
    shared: Arc<Shared>,
    files: Arc<dyn ControlFiles>,
    table: MountTable,
    mount_id: Option<u64>,
    point: PathBuf,
    by_helper: Option<SessionUnmounter>,
    server: Option<JoinHandle<()>>,
}

impl Watcher {
    fn run(mut self) {
        while !self.shared.state().ended {
            if self.shared.stop.load(Ordering::Acquire) {
                return self.end();
            }
            self.wait_for_news();
            for (name, writer) in self
                .shared
                .waiting
                .interrupted(pending_signals::is_interrupted)
            {
                self.files.interrupted(&name, writer);
            }
        }
    }

    fn wait_for_news(&self) {
        let at_most = self
            .shared
            .waiting
            .is_worth_watching()
            .then(|| Timespec::try_from(LOOK).expect("a few milliseconds fit"));
        let mut news = [
            PollFd::from_borrowed_fd(self.shared.waiting.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.table.as_fd(), PollFlags::PRI),
        ];
        if rustix::event::poll(&mut news, at_most.as_ref()).is_err() {
            // Interrupted, or out of memory: check again.
            return;
        }
        if !news[0].revents().is_empty() {
            self.shared.waiting.silence();
        }
        if !news[1].revents().is_empty() && !self.is_mounted() {
            self.shared.change(|state| state.gone = true);
        }
    }

    fn is_mounted(&self) -> bool {
        match self.table.mounts() {
            // The numbers of removed mounts are reused.
            Ok(mounts) => mounts.iter().any(|mount| {
                Some(mount.id) == self.mount_id && mount.point == self.point && mount.kind == KIND
            }),
            Err(_) => true,
        }
    }

    fn end(&mut self) {
        // Another folder may have been mounted there since this one was removed.
        if !self.is_mounted() {
            return;
        }
        let taken_down = match &mut self.by_helper {
            Some(unmounter) => unmounter.unmount().map(|()| Left::Busy),
            None => take_down(&self.point),
        };
        match taken_down {
            Err(e) => tracing::warn!("cannot unmount {}: {e}", self.point.display()),
            Ok(Left::Busy) => {}
            Ok(Left::Idle) => self.wait_for_server(),
        }
    }

    /// Waits for the server, which ends with the last request.
    fn wait_for_server(&mut self) {
        let patience = Duration::from_secs(2);
        let ended = self
            .shared
            .changed
            .wait_timeout_while(self.shared.state(), patience, |state| !state.ended)
            .is_ok_and(|(state, _)| state.ended);
        if ended && let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}
