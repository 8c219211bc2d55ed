//! Mount table, and private mount namespaces that change the view of programs.
//!
//! A mount namespace belongs to a thread, as a network namespace does. [`PrivateMounts`] keeps one such thread. Only
//! programs that run there see its mounts. The mounts disappear with the last process in the namespace, however it
//! ends.
//!
//! `/proc/net` is a symbolic link into `/proc/self`, and nothing can be added to that folder. So another symbolic link
//! is mounted on `/proc/net`. It points to a folder with links to all existing entries and the added ones. The folder
//! is a tmpfs on `/proc/tty/ldisc`, which the kernel keeps for old programs and which is always empty. So no files are
//! left behind.

mod module;
mod private;
mod table;

pub use module::ShownModule;
pub use private::PrivateMounts;
pub use table::{Mount, MountTable};
