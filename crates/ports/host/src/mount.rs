//! Mounts: which there are, and a mount namespace of one's own that changes what programs see.
//!
//! A mount namespace belongs to a thread, as a network namespace does. [`PrivateMounts`] keeps one
//! such thread: what is run or started there, and only that, sees its mounts, which are gone with
//! the last process in there, however it ends.
//!
//! `/proc/net` is a symbolic link into `/proc/self`, where nothing can be added. So another
//! symbolic link is mounted on it, and points to a folder with links to everything that was there
//! and what is to be added. The folder is a tmpfs on `/proc/tty/ldisc`, which the kernel keeps for
//! old programs and which is always empty: nothing has to be made that could be left behind.

mod module;
mod private;
mod table;

pub use module::ShownModule;
pub use private::PrivateMounts;
pub use table::{Mount, MountTable};
