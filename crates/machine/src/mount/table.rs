//! Mount table of a thread's mount namespace.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::{HostError, Result};

const TABLE: &str = "/proc/thread-self/mountinfo";

/// Mount, as in proc_pid_mountinfo(5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Mount id.
    pub id: u64,
    /// Id of the parent mount.
    pub parent: u64,
    /// Mount point.
    pub point: PathBuf,
    /// File system type: `tmpfs`, `fuse.wirebench`.
    pub kind: String,
    /// Mounted source, with its name at the time of mounting.
    pub source: String,
}

impl Mount {
    /// Mount point of the parent mount.
    pub(super) fn parent_point<'a>(&self, all: &'a [Mount]) -> Option<&'a Path> {
        let parent = all.iter().find(|mount| mount.id == self.parent)?;
        Some(&parent.point)
    }
}

/// Mount table of the thread that opened it, readable from any thread.
///
/// The descriptor is never readable, but reports an exceptional condition (POLLPRI) once after each change.
#[derive(Debug)]
pub struct MountTable {
    file: File,
}

impl MountTable {
    /// Opens the mount table of the calling thread's mount namespace.
    ///
    /// # Errors
    /// If `/proc` is not mounted.
    pub fn open() -> Result<Self> {
        let file = File::open(TABLE).map_err(HostError::refused("open", TABLE))?;
        Ok(MountTable { file })
    }

    /// All current mounts.
    ///
    /// # Errors
    /// If the list cannot be read.
    pub fn mounts(&self) -> Result<Vec<Mount>> {
        let mut text = Vec::new();
        let mut piece = [0; 16 * 1024];
        loop {
            let read = self
                .file
                .read_at(&mut piece, text.len() as u64)
                .map_err(HostError::refused("read", TABLE))?;
            if read == 0 {
                break;
            }
            text.extend_from_slice(&piece[..read]);
        }
        Ok(text
            .split(|byte| *byte == b'\n')
            .filter_map(mount)
            .collect())
    }

    /// The visible mount at `point`, an absolute path without links.
    ///
    /// # Errors
    /// If the list cannot be read.
    pub fn top_at(&self, point: &Path) -> Result<Option<Mount>> {
        Ok(top_at(&self.mounts()?, point).cloned())
    }
}

impl AsFd for MountTable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn top_at<'a>(mounts: &'a [Mount], point: &Path) -> Option<&'a Mount> {
    let there: Vec<&Mount> = mounts.iter().filter(|mount| mount.point == point).collect();
    let covered = |mount: &Mount| there.iter().any(|other| other.parent == mount.id);
    there.iter().copied().find(|mount| !covered(mount))
}

fn mount(line: &[u8]) -> Option<Mount> {
    // 36 35 98:0 /root /mnt rw,noatime shared:1 - ext4 /dev/root rw
    let mut fields = line.split(|byte| *byte == b' ');
    let mut number = || str::from_utf8(fields.next()?).ok()?.parse().ok();
    let (id, parent) = (number()?, number()?);
    let point = unescape(fields.nth(2)?);
    let mut kinds = fields.skip_while(|field| *field != b"-").skip(1);
    let mut text = || Some(String::from_utf8_lossy(&unescape(kinds.next()?)).into_owned());
    Some(Mount {
        id,
        parent,
        point: OsString::from_vec(point).into(),
        kind: text()?,
        source: text()?,
    })
}

/// Decodes blanks, tabs, line feeds and backslashes, which are written as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        let octal = after.first_chunk::<3>().filter(|_| *byte == b'\\');
        let code =
            octal.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        if code.is_some() {
            rest = &after[3..];
        }
        plain.push(code.unwrap_or(*byte));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let line = b"36 35 98:0 /root /mnt/a\\040b\\134 rw,noatime shared:1 master:2 - fuse.x my\\040src rw";
        let expected = Mount {
            id: 36,
            parent: 35,
            point: "/mnt/a b\\".into(),
            kind: "fuse.x".into(),
            source: "my src".into(),
        };
        assert_eq!(mount(line), Some(expected));
        let plain = b"22 1 0:20 / /proc rw - proc proc rw";
        assert_eq!(mount(plain).unwrap().kind, "proc");
        for cut in 0..plain.len() {
            let _ = mount(&plain[..cut]);
        }
        assert_eq!(mount(b""), None);
        assert_eq!(unescape(b"\\9\\04"), b"\\9\\04");
    }

    #[test]
    fn the_one_on_top_is_seen() {
        let at = |id, parent, point: &str| Mount {
            id,
            parent,
            point: point.into(),
            kind: String::new(),
            source: String::new(),
        };
        let mounts = [
            at(1, 0, "/"),
            at(9, 8, "/mnt"),
            at(8, 1, "/mnt"),
            at(10, 9, "/mnt/x"),
        ];
        assert_eq!(top_at(&mounts, Path::new("/mnt")).unwrap().id, 9);
        assert_eq!(top_at(&mounts, Path::new("/")).unwrap().id, 1);
        assert!(top_at(&mounts, Path::new("/none")).is_none());
    }

    #[test]
    fn this_machine_has_a_proc() {
        let table = MountTable::open().unwrap();
        assert_eq!(
            table.top_at(Path::new("/proc")).unwrap().unwrap().kind,
            "proc"
        );
    }
}
