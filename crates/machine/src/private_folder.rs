//! Private folders of small files that runs leave for later runs.
//!
//! Each user has a separate folder: root below `/run/wirebench`, other users below their runtime folder or `/tmp`. No
//! folder on the path may be a link, belong to another user or be writable by others, unless only owners can rename
//! files in it.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::error::{HostError, Result};
use crate::privilege;

/// Returns the folder `name` of this user, and creates it if necessary.
///
/// # Errors
/// The reason why the last candidate cannot be used.
pub(crate) fn own_folder(name: &str) -> Result<PathBuf> {
    let uid = rustix::process::getuid().as_raw();
    // In a user namespace every user has id 0.
    let outer = privilege::outer_uid();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    let places = [
        Some(PathBuf::from("/run/wirebench")).filter(|_| outer == 0),
        runtime.map(|folder| PathBuf::from(folder).join("wirebench")),
        Some(PathBuf::from(format!("/tmp/wirebench-{outer}"))),
    ];
    let mut refused = None;
    for place in places.into_iter().flatten() {
        // The name includes the user, because folders of older versions at the plain name were writable by all users.
        let folder = place.join(format!("{name}-{outer}"));
        match secure(&folder, uid) {
            Ok(()) => return Ok(folder),
            Err(e) => refused = Some(HostError::refused("use", folder.display().to_string())(e)),
        }
    }
    Err(refused.expect("at least one folder was tried"))
}

/// Creates the folder and its parent, and checks that they are safe.
fn secure(folder: &Path, uid: u32) -> io::Result<()> {
    for (path, mode) in [(folder.parent(), 0o755), (Some(folder), 0o700)] {
        let Some(path) = path else { continue };
        match DirBuilder::new().mode(mode).create(path) {
            // The umask may have removed permissions.
            Ok(()) => fs::set_permissions(path, Permissions::from_mode(mode))?,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    check(folder, uid)
}

fn check(folder: &Path, uid: u32) -> io::Result<()> {
    let refuse = |path: &Path, why: &str| {
        let text = format!("{} {why}", path.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
    };
    // In a user namespace root's files belong to nobody.
    let root = fs::symlink_metadata("/")?.uid();
    for path in folder.ancestors() {
        let found = fs::symlink_metadata(path)?;
        let is_own = path == folder;
        let (owner, mode) = (found.uid(), found.mode());
        if !found.is_dir() {
            return refuse(path, "is not a directory, or is a symbolic link");
        }
        if owner != uid && (is_own || (owner != root && owner != 0)) {
            return refuse(path, "belongs to another user");
        }
        let sticky = mode & 0o1000 != 0;
        if mode & 0o022 != 0 && (is_own || !sticky) {
            return refuse(path, "is writable by other users");
        }
    }
    Ok(rustix::fs::access(
        folder,
        rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_folder_is_used_only_if_nobody_else_can_reach_into_it() {
        let uid = rustix::process::getuid().as_raw();
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let (parent, folder) = (base.join("parent"), base.join("parent/locks"));
        secure(&folder, uid).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o7777, 0o700);
        secure(&folder, uid).unwrap();

        // A user who can write the parent can replace the folder.
        set(&parent, 0o777);
        assert!(secure(&folder, uid).is_err());
        set(&parent, 0o1777);
        secure(&folder, uid).unwrap();
        set(&folder, 0o1777);
        assert!(secure(&folder, uid).is_err());
        set(&folder, 0o700);
        // Belongs to another user.
        assert!(check(&folder, uid + 1).is_err());
        // A link, as the folder and as a part of its path.
        std::os::unix::fs::symlink(&folder, parent.join("link")).unwrap();
        std::os::unix::fs::symlink(&parent, base.join("way")).unwrap();
        assert!(check(&parent.join("link"), uid).is_err());
        assert!(check(&base.join("way/locks"), uid).is_err());
    }

    #[test]
    fn everybody_has_one() {
        let folder = own_folder("test").unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o77, 0);
        let _ = fs::remove_dir(folder);
    }
}
