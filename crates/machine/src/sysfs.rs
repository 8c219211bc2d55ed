//! `/sys` of a namespace.
//!
//! `/sys/class/net` shows the interfaces of the namespace in which it was mounted, not those of the reader. For any
//! other namespace, a new sysfs is mounted detached: it is part of no mount tree and disappears with its descriptor.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use crate::link::Link;
use crate::netns::{Namespace, in_namespace};

/// Sysfs that shows an interface.
pub(crate) struct Sysfs {
    root: PathBuf,
    _mount: Option<OwnedFd>,
}

impl Sysfs {
    /// Returns a sysfs that shows `link` of `namespace`, or `None` if there is none.
    pub(crate) fn showing(namespace: &Namespace, link: &Link) -> Option<Self> {
        let as_mounted = Sysfs {
            root: "/sys".into(),
            _mount: None,
        };
        Self::fresh(namespace, MountAttrFlags::MOUNT_ATTR_RDONLY)
            .into_iter()
            .chain([as_mounted])
            .find(|sysfs| sysfs.shows(link))
    }

    /// Like [`Sysfs::showing`], but writable.
    pub(crate) fn writable(namespace: &Namespace, link: &Link) -> Option<Self> {
        Self::fresh(namespace, MountAttrFlags::empty()).filter(|sysfs| sysfs.shows(link))
    }

    fn fresh(namespace: &Namespace, access: MountAttrFlags) -> Option<Self> {
        let mount = in_namespace(namespace, || {
            let context = rustix::mount::fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
            rustix::mount::fsconfig_create(&context)?;
            let attributes = access
                | MountAttrFlags::MOUNT_ATTR_NOSUID
                | MountAttrFlags::MOUNT_ATTR_NODEV
                | MountAttrFlags::MOUNT_ATTR_NOEXEC;
            rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        })
        .ok()?
        .ok()?;
        let root = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
        Some(Sysfs {
            root,
            _mount: Some(mount),
        })
    }

    /// Index and name together usually identify an interface among those of other namespaces. The address distinguishes
    /// `eth0` with index 2 in two containers.
    fn shows(&self, link: &Link) -> bool {
        let read = |file: &str| std::fs::read_to_string(self.interface(&link.name).join(file));
        let mac = link.mac.map(|b| format!("{b:02x}")).join(":");
        read("ifindex").is_ok_and(|t| t.trim() == link.index.to_string())
            && read("address").is_ok_and(|t| t.trim().is_empty() || t.trim() == mac)
    }

    /// Folder of an interface.
    pub(crate) fn interface(&self, name: &str) -> PathBuf {
        self.root.join("class/net").join(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{VethEnd, create_veth, link_by_name};
    use crate::netns;

    struct Gone(String);

    impl Drop for Gone {
        fn drop(&mut self) {
            let _ = netns::delete(&self.0);
        }
    }

    #[test]
    fn shows_what_is_in_the_namespace() {
        let name = format!("wb-host-{}-sysfs", std::process::id());
        let namespace = match netns::create(&name) {
            Err(e) if e.is_permission() => return wb_testing::skipped("needs root"),
            created => created.unwrap(),
        };
        let _gone = Gone(name);
        let end = |name| VethEnd {
            namespace: &namespace,
            name,
            mac: None,
            queues: 2,
            mtu: None,
        };
        create_veth(&end("s0"), &end("s1")).unwrap();
        let mut link = link_by_name(&namespace, "s0").unwrap();
        let sysfs = Sysfs::showing(&namespace, &link).unwrap();
        assert!(sysfs.interface("s0").join("queues/rx-1").exists());

        link.index += 1000;
        assert!(
            Sysfs::showing(&namespace, &link).is_none(),
            "another interface of that name"
        );
        let here = Namespace::current().unwrap();
        let lo = link_by_name(&here, "lo").unwrap();
        assert!(!Sysfs::showing(&here, &lo).unwrap().interface("s0").exists());
    }
}
