//! The file system: nodes, open files, and requests of the kernel.
//!
//! A blocked write holds the lock of its inode in the kernel. Another process that opens the same inode for
//! writing would hang behind the lock and could not even be killed. So each lookup returns a fresh node,
//! which is forgotten when the kernel no longer uses it, and the kernel must not cache
//! names (all times to live are zero). The attributes nevertheless contain one inode number
//! per name, for programs that compare inode numbers (`cp`).

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use crate::waiting::Waiting;
use crate::{ControlFiles, MAX_WRITE, Writer};

const NOT_AT_ALL: Duration = Duration::ZERO;
const FOLDER_MODE: u16 = 0o555;

pub(crate) struct Folder {
    files: Arc<dyn ControlFiles>,
    waiting: Arc<Waiting>,
    since: SystemTime,
    owner: (u32, u32),
    nodes: Mutex<Numbered<String>>,
    opened: Mutex<Numbered<Opened>>,
    /// Permission bits set by `chmod`, by name.
    modes: Mutex<HashMap<String, u32>>,
}

/// An open file.
struct Opened {
    name: String,
    /// The content at the last read from the beginning.
    snapshot: Mutex<Option<Vec<u8>>>,
}

/// Items under numbers that are never reused.
struct Numbered<T> {
    last: u64,
    things: HashMap<u64, Arc<T>>,
}

impl<T> Numbered<T> {
    fn new() -> Mutex<Self> {
        Mutex::new(Numbered {
            last: INodeNo::ROOT.0,
            things: HashMap::new(),
        })
    }

    fn add(&mut self, thing: T) -> u64 {
        self.last += 1;
        self.things.insert(self.last, Arc::new(thing));
        self.last
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// FNV-1a hash of the name, which equals neither 0 nor the number of the folder.
fn inode_number(name: &str) -> INodeNo {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    INodeNo(hash.max(INodeNo::ROOT.0 + 1))
}

impl Folder {
    pub(crate) fn new(files: Arc<dyn ControlFiles>, waiting: Arc<Waiting>) -> Self {
        Folder {
            files,
            waiting,
            since: SystemTime::now(),
            owner: (
                rustix::process::geteuid().as_raw(),
                rustix::process::getegid().as_raw(),
            ),
            nodes: Numbered::new(),
            opened: Numbered::new(),
            modes: Mutex::default(),
        }
    }

    /// Name of a node; none for the folder itself.
    fn name(&self, node: INodeNo) -> Result<Option<Arc<String>>, Errno> {
        if node == INodeNo::ROOT {
            return Ok(None);
        }
        let name = lock(&self.nodes).things.get(&node.0).cloned();
        name.map(Some).ok_or(Errno::ESTALE)
    }

    fn opened(&self, handle: FileHandle) -> Result<Arc<Opened>, Errno> {
        let opened = lock(&self.opened).things.get(&handle.0).cloned();
        opened.ok_or(Errno::EBADF)
    }

    /// Attributes for `stat`.
    fn status(&self, node: INodeNo) -> Result<FileAttr, Errno> {
        let mut attributes = self.attributes(node)?;
        if let Some(name) = self.name(node)? {
            attributes.ino = inode_number(&name);
        }
        Ok(attributes)
    }

    fn attributes(&self, node: INodeNo) -> Result<FileAttr, Errno> {
        let name = self.name(node)?;
        let (kind, mode, links) = match &name {
            None => (FileType::Directory, FOLDER_MODE, 2),
            Some(name) => {
                let chosen = lock(&self.modes).get(name.as_str()).copied();
                let bits = chosen.unwrap_or_else(|| self.files.mode(name)) & 0o777;
                (FileType::RegularFile, bits as u16, 1)
            }
        };
        Ok(FileAttr {
            ino: node,
            size: 0,
            blocks: 0,
            atime: self.since,
            mtime: self.since,
            ctime: self.since,
            crtime: self.since,
            kind,
            perm: mode,
            nlink: links,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    /// Sets the permission bits of a file, as the kernel does for files of `/proc`. The bits of the folder stay fixed.
    fn set_mode(&self, node: INodeNo, mode: Option<u32>) -> Result<(), Errno> {
        let Some(mode) = mode else {
            return Ok(());
        };
        let name = self.name(node)?.ok_or(Errno::EPERM)?;
        lock(&self.modes).insert((*name).clone(), mode);
        Ok(())
    }

    /// A fresh node for an existing name.
    fn find(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        if parent != INodeNo::ROOT {
            return Err(Errno::ENOTDIR);
        }
        let name = name.to_str().filter(|name| self.files.exists(name));
        let name = name.ok_or(Errno::ENOENT)?;
        let node = lock(&self.nodes).add(name.to_owned());
        self.attributes(INodeNo(node))
    }

    fn open_node(&self, node: INodeNo) -> Result<FileHandle, Errno> {
        let name = self.name(node)?.ok_or(Errno::EISDIR)?;
        if !self.files.exists(&name) {
            return Err(Errno::ENOENT);
        }
        let opened = Opened {
            name: name.as_ref().clone(),
            snapshot: Mutex::new(None),
        };
        Ok(FileHandle(lock(&self.opened).add(opened)))
    }

    fn content(&self, handle: FileHandle, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        let opened = self.opened(handle)?;
        let mut snapshot = lock(&opened.snapshot);
        if offset == 0 {
            *snapshot = None;
        }
        let whole = match &mut *snapshot {
            Some(whole) => whole,
            none => none.insert(self.files.read(&opened.name).map_err(Errno::from_i32)?),
        };
        let from = usize::try_from(offset).map_or(whole.len(), |from| from.min(whole.len()));
        let to = from.saturating_add(size as usize).min(whole.len());
        Ok(whole[from..to].to_vec())
    }
}

impl Filesystem for Folder {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // A kernel without this capability requests a change of the size instead, which is granted as well.
        let _ = config.add_capabilities(InitFlags::FUSE_ATOMIC_O_TRUNC);
        // The kernel counts the pages that a write touches: one more if the write begins within a page.
        let with_offcut = MAX_WRITE + u32::try_from(rustix::param::page_size()).unwrap_or(0);
        // The error contains the largest accepted value.
        if let Err(most) = config.set_max_write(with_offcut) {
            let _ = config.set_max_write(most);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.find(parent, name) {
            Ok(attributes) => reply.entry(&NOT_AT_ALL, &attributes, Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn forget(&self, _: &Request, node: INodeNo, _lookups: u64) {
        // Each node is looked up once.
        lock(&self.nodes).things.remove(&node.0);
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.status(node) {
            Ok(attributes) => reply.attr(&NOT_AT_ALL, &attributes),
            Err(errno) => reply.error(errno),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let attributes = match (uid, gid) {
            (None, None) => self.set_mode(node, mode).and_then(|()| self.status(node)),
            _ => Err(Errno::EPERM),
        };
        match attributes {
            Ok(attributes) => reply.attr(&NOT_AT_ALL, &attributes),
            Err(errno) => reply.error(errno),
        }
    }

    fn open(&self, _: &Request, node: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Without direct I/O the kernel would read up to the size, which is 0.
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_NOFLUSH;
        match self.open_node(node) {
            Ok(handle) => reply.opened(handle, flags),
            Err(errno) => reply.error(errno),
        }
    }

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        // The kernel has looked up the name before, and opens existing files.
        reply.error(Errno::ENOENT);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        lock(&self.opened).things.remove(&handle.0);
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.content(handle, offset, size) {
            Ok(bytes) => reply.data(&bytes),
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        _offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let opened = match self.opened(handle) {
            Ok(opened) => opened,
            Err(errno) => return reply.error(errno),
        };
        let writer = Writer {
            pid: request.pid(),
            uid: request.uid(),
        };
        let length = u32::try_from(data.len()).expect("the kernel counts them in 32 bits");
        let give = move |answer: Result<(), i32>| match answer {
            Ok(()) => reply.written(length),
            Err(errno) => reply.error(Errno::from_i32(errno)),
        };
        let answer = self.waiting.answer(&opened.name, writer, give);
        self.files.write(&opened.name, data, writer, answer);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if node != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let folders = [".", ".."].map(|name| (FileType::Directory, name.to_owned()));
        let files = self.files.names().into_iter();
        let files = files.map(|name| (FileType::RegularFile, name));
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (place, (kind, name)) in (1..).zip(folders.into_iter().chain(files)).skip(from) {
            if reply.add(inode_number(&name), place, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn mknod(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::ENOENT);
    }

    fn mkdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::ENOENT);
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn symlink(&self, _: &Request, _: INodeNo, _: &OsStr, _: &Path, reply: ReplyEntry) {
        reply.error(Errno::ENOENT);
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOENT);
    }
}
