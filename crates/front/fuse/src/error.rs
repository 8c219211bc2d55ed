//! Errors of mounting and unmounting control folders, in one line each.

use std::io;
use std::path::PathBuf;

/// Reason why a control folder was not mounted or unmounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The mount point is not a folder.
    #[error("cannot mount on {}: {}; create it with `mkdir -p {}`", .dir.display(), reason(.cause), .dir.display())]
    NoFolder {
        /// Mount point.
        dir: PathBuf,
        /// Cause.
        #[source]
        cause: io::Error,
    },
    /// A control folder with a running process is mounted there.
    #[error("cannot mount on {}: already a control folder; unmount it with `umount {}`", .dir.display(), .dir.display())]
    InUse {
        /// Mount point.
        dir: PathBuf,
    },
    /// A file system of another kind is mounted there, and its process has died.
    #[error("cannot mount on {}: blocked by a dead mount of type {kind}; remove it with `umount -l {}`", .dir.display(), .dir.display())]
    DeadForeign {
        /// Mount point.
        dir: PathBuf,
        /// The type of the file system.
        kind: String,
    },
    /// The kernel does not offer FUSE.
    #[error("cannot mount on {}: cannot open /dev/fuse: {}; try `modprobe fuse`", .dir.display(), reason(.cause))]
    NoFuse {
        /// Mount point.
        dir: PathBuf,
        /// Cause.
        #[source]
        cause: io::Error,
    },
    /// The folder to unmount is not a control folder.
    #[error("not a control folder: {}{}", .dir.display(), what(.found))]
    NotAControlFolder {
        /// Mount point.
        dir: PathBuf,
        /// Type of the file system mounted there.
        found: Option<String>,
    },
    /// The system refused the operation.
    #[error("cannot {operation} {}: {}{}", .dir.display(), reason(.cause), hinted(.hint))]
    Refused {
        /// Operation: `mount on`, `unmount`.
        operation: &'static str,
        /// Mount point.
        dir: PathBuf,
        /// Reason given by the system.
        #[source]
        cause: io::Error,
        /// Suggested remedy.
        hint: Option<String>,
    },
    /// The list of mounts could not be read.
    #[error(transparent)]
    Host(#[from] wb_machine::HostError),
}

/// Description of an I/O error without its number.
fn reason(cause: &io::Error) -> String {
    let text = cause.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

fn what(kind: &Option<String>) -> String {
    kind.as_ref().map_or_else(
        || "; nothing is mounted there".into(),
        |kind| format!("; a mount of type {kind} is there"),
    )
}

fn hinted(hint: &Option<String>) -> String {
    hint.as_ref().map(|h| format!("; {h}")).unwrap_or_default()
}
