//! What can go wrong when a control folder comes or goes, in one line each.

use std::io;
use std::path::PathBuf;

/// Why a control folder was not mounted or unmounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The folder to mount on is no folder.
    #[error("cannot mount on {}: {cause}; `mkdir -p {}` makes the folder", .dir.display(), .dir.display())]
    NoFolder {
        /// Where.
        dir: PathBuf,
        /// Why not.
        #[source]
        cause: io::Error,
    },
    /// A living control folder is mounted there.
    #[error("cannot mount on {}: it is a control folder already; `umount {}` ends that one", .dir.display(), .dir.display())]
    InUse {
        /// Where.
        dir: PathBuf,
    },
    /// Something else is mounted there, and it is dead.
    #[error("cannot mount on {}: a dead mount of type {kind} is in the way; `umount -l {}` removes it", .dir.display(), .dir.display())]
    DeadForeign {
        /// Where.
        dir: PathBuf,
        /// The type of the file system.
        kind: String,
    },
    /// The kernel does not offer FUSE.
    #[error("cannot mount on {}: /dev/fuse cannot be opened: {cause}; try `modprobe fuse`", .dir.display())]
    NoFuse {
        /// Where.
        dir: PathBuf,
        /// Why not.
        #[source]
        cause: io::Error,
    },
    /// What is to be unmounted is not one of ours.
    #[error("{} is no control folder{}", .dir.display(), what(.found))]
    NotAControlFolder {
        /// Where.
        dir: PathBuf,
        /// The type of what is mounted there.
        found: Option<String>,
    },
    /// The system said no.
    #[error("cannot {operation} {}: {cause}{}", .dir.display(), hinted(.hint))]
    Refused {
        /// What was tried: `mount on`, `unmount`.
        operation: &'static str,
        /// Where.
        dir: PathBuf,
        /// Its reason.
        #[source]
        cause: io::Error,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The list of mounts could not be read.
    #[error(transparent)]
    Host(#[from] wb_machine::HostError),
}

fn what(kind: &Option<String>) -> String {
    kind.as_ref().map_or_else(
        || "; nothing is mounted there".into(),
        |kind| format!("; what is mounted there is of type {kind}"),
    )
}

fn hinted(hint: &Option<String>) -> String {
    hint.as_ref().map(|h| format!("; {h}")).unwrap_or_default()
}
