//! Switches off segmentation and receive offloads of an interface for a limited time.
//!
//! A file records the offloads to restore before any of them is switched. If the process is killed, [`repair`] of a
//! later process uses the file to restore them. The last of several processes with the same interface restores them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::fs::{FlockOperation, flock};

use crate::error::{HostError, Result};
use crate::ethtool::{Ethtool, Offload};
use crate::netlink::Netlink;
use crate::netns::Namespace;
use crate::private_folder::own_folder;
use crate::process;

/// Folder of the records.
const FOLDER: &str = "offloads";
/// Offloads in the order of switching off. They are switched on in reverse order, because one may require another.
const ALL: [Offload; 4] = [Offload::Gro, Offload::Lro, Offload::Tso, Offload::Gso];

/// Offloads that this process has switched off, by the numbers of namespace and interface.
static SWITCHED: Mutex<BTreeMap<(u64, u32), Weak<Switched>>> = Mutex::new(BTreeMap::new());

/// Offloads that are off until the last value for their interface is dropped.
pub struct OffloadsOff(Option<Arc<Switched>>);

impl OffloadsOff {
    /// Switches off the offloads that join or split segments on the interface `name`.
    ///
    /// # Errors
    /// If the kernel refuses, or the record cannot be written; in the latter case nothing was switched.
    pub fn on(namespace: &Namespace, name: &str) -> Result<Self> {
        let index = Netlink::open(namespace)?.link(name)?.index;
        let mut all = SWITCHED.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, switched| switched.strong_count() > 0);
        let place = (namespace.inode(), index);
        if let Some(switched) = all.get(&place).and_then(Weak::upgrade) {
            // Another program may have switched them on since then.
            for offload in &switched.record.offloads {
                switched.ethtool.set_offload(name, *offload, false)?;
            }
            return Ok(Self(Some(switched)));
        }
        let switched = Arc::new(Switched::off(namespace, name, index)?);
        all.insert(place, Arc::downgrade(&switched));
        Ok(Self(Some(switched)))
    }
}

impl Drop for OffloadsOff {
    fn drop(&mut self) {
        // The offloads are restored under the lock, so that a new user does not find them off.
        let _all = SWITCHED.lock().unwrap_or_else(PoisonError::into_inner);
        self.0 = None;
    }
}

/// Offloads that are off until the value is dropped.
struct Switched {
    ethtool: Ethtool,
    record: OffloadRecord,
    path: PathBuf,
}

impl Switched {
    fn off(namespace: &Namespace, name: &str, index: u32) -> Result<Self> {
        let ethtool = Ethtool::open(namespace)?;
        let mut record = OffloadRecord {
            pid: std::process::id(),
            start_time: process::own_start_time(),
            node: namespace.name().unwrap_or_default().to_owned(),
            inode: namespace.inode(),
            interface: name.to_owned(),
            index,
            offloads: Vec::new(),
        };
        let folder = own_folder(FOLDER)?;
        let _locked = locked(&folder);
        for offload in ALL {
            if ethtool.offload(name, offload)? == Some(true) {
                record.offloads.push(offload);
            }
        }
        // Others have switched off what was on before this process.
        for (_, other) in record.others(&folder) {
            record.add(&other.offloads);
        }
        let path = folder.join(record.file());
        fs::write(&path, record.text())
            .map_err(HostError::refused("write", path.display().to_string()))?;
        let off = Self {
            ethtool,
            record,
            path,
        };
        for offload in &off.record.offloads {
            off.ethtool.set_offload(name, *offload, false)?;
        }
        Ok(off)
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let _locked = locked(folder);
        // Another process may have added its own when it ended.
        let mut record = read(&self.path).unwrap_or_else(|| self.record.clone());
        let others = record.others(folder);
        let (alive, dead): (Vec<_>, Vec<_>) = others.into_iter().partition(|(_, o)| o.is_alive());
        match alive.into_iter().next() {
            Some((path, mut other)) => {
                if other.add(&record.offloads) {
                    let _ = fs::write(path, other.text());
                }
            }
            None => {
                for (path, other) in dead {
                    record.add(&other.offloads);
                    let _ = fs::remove_file(path);
                }
                // A removed interface needs no restoration.
                let _ = record.put_back(&self.ethtool);
            }
        }
        let _ = fs::remove_file(&self.path);
    }
}

/// Locks the folder of the records until the value is dropped. Without a lock, processes may disturb each other.
fn locked(folder: &Path) -> Option<File> {
    let file = File::open(folder).ok()?;
    flock(&file, FlockOperation::LockExclusive).ok()?;
    Some(file)
}

/// Reads a record. A truncated record was never completed, so nothing was switched.
fn read(path: &Path) -> Option<OffloadRecord> {
    OffloadRecord::parse(&fs::read_to_string(path).ok()?)
}

/// All complete records of a folder with their files.
fn records(folder: &Path) -> Vec<(PathBuf, OffloadRecord)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths
        .filter_map(|path| read(&path).map(|record| (path, record)))
        .collect()
}

/// Offloads that an ended process left off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOff {
    /// Interface, `NODE/IF` in a namespace.
    pub place: String,
    /// Offloads that are off: `gro tso`.
    pub offloads: String,
    /// Process that left them off.
    pub pid: u32,
    record: OffloadRecord,
    path: PathBuf,
}

impl LeftOff {
    /// Switches the offloads on again.
    ///
    /// # Errors
    /// If the kernel refuses, or the namespace has no name by which it can be found.
    pub fn repair(&self) -> Result<()> {
        let Some(namespace) = self.record.namespace()? else {
            let gone = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(HostError::refused(
                "find the namespace of",
                self.place.clone(),
            )(gone));
        };
        self.record.put_back(&Ethtool::open(&namespace)?)?;
        fs::remove_file(&self.path).map_err(HostError::refused(
            "remove",
            self.path.display().to_string(),
        ))
    }
}

/// Offloads left off by killed processes of this user. Records of removed interfaces are deleted.
#[must_use]
pub fn left_off() -> Vec<LeftOff> {
    // Without a folder there are no records.
    own_folder(FOLDER).map_or_else(|_| Vec::new(), |folder| left_in(&folder))
}

/// Switches on all offloads that were left off. Returns a line for each interface.
#[must_use]
pub fn repair() -> Vec<String> {
    let repaired = |left: &LeftOff| {
        let (place, offloads, pid) = (&left.place, &left.offloads, left.pid);
        match left.repair() {
            Ok(()) => {
                format!("{place}: process {pid} was killed and left {offloads} off; restored")
            }
            Err(error) => {
                format!(
                    "{place}: process {pid} was killed and left {offloads} off; cannot restore: {error}"
                )
            }
        }
    };
    left_off().iter().map(repaired).collect()
}

fn left_in(folder: &Path) -> Vec<LeftOff> {
    let mut found = Vec::new();
    for (path, record) in records(folder) {
        // A process that still uses the interface restores its offloads.
        let mut others = record.others(folder).into_iter();
        if record.is_alive() || others.any(|(_, other)| other.is_alive()) {
            continue;
        }
        if record.offloads.is_empty() || record.is_gone() {
            let _ = fs::remove_file(&path);
            continue;
        }
        let names: Vec<&str> = record.offloads.iter().map(|o| o.keyword()).collect();
        found.push(LeftOff {
            place: match record.node.as_str() {
                "" => record.interface.clone(),
                node => format!("{node}/{}", record.interface),
            },
            offloads: names.join(" "),
            pid: record.pid,
            record,
            path,
        });
    }
    found
}

/// Content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OffloadRecord {
    pid: u32,
    start_time: u64,
    /// Namespace: its name, empty if it has none, and its number.
    node: String,
    inode: u64,
    interface: String,
    index: u32,
    offloads: Vec<Offload>,
}

impl OffloadRecord {
    /// Name of its file.
    fn file(&self) -> String {
        format!("{}-{}-{}", self.inode, self.index, self.pid)
    }

    fn is_alive(&self) -> bool {
        process::is_alive(self.pid, self.start_time)
    }

    /// Records of other processes for the same interface, with their files.
    fn others(&self, folder: &Path) -> Vec<(PathBuf, Self)> {
        let mut all = records(folder);
        all.retain(|(_, other)| {
            (other.inode, other.index) == (self.inode, self.index)
                && (other.pid, other.start_time) != (self.pid, self.start_time)
        });
        all
    }

    /// Adds offloads to restore. Returns true if there are more than before.
    fn add(&mut self, offloads: &[Offload]) -> bool {
        let before = self.offloads.len();
        let own = std::mem::take(&mut self.offloads);
        let is_in = |offload: &Offload| own.contains(offload) || offloads.contains(offload);
        self.offloads = ALL.into_iter().filter(is_in).collect();
        self.offloads.len() > before
    }

    fn text(&self) -> String {
        let names: Vec<&str> = self.offloads.iter().map(|o| o.keyword()).collect();
        format!(
            "{} {}\n{}\n{}\n{}\n{}\n{}\nend\n",
            self.pid,
            self.start_time,
            self.node,
            self.inode,
            self.interface,
            self.index,
            names.join(" ")
        )
    }

    fn parse(text: &str) -> Option<Self> {
        let lines: Vec<&str> = text.lines().collect();
        let [who, node, inode, interface, index, offloads, "end"] = lines[..] else {
            return None;
        };
        let (pid, start_time) = who.split_once(' ')?;
        let offload = |name: &str| ALL.into_iter().find(|o| o.keyword() == name);
        Some(Self {
            pid: pid.parse().ok()?,
            start_time: start_time.parse().ok()?,
            node: node.to_owned(),
            inode: inode.parse().ok()?,
            interface: interface.to_owned(),
            index: index.parse().ok()?,
            offloads: offloads
                .split_whitespace()
                .map(offload)
                .collect::<Option<_>>()?,
        })
    }

    /// Namespace, if it is still the same one.
    fn namespace(&self) -> Result<Option<Namespace>> {
        let found = match self.node.as_str() {
            "" => Namespace::current()?,
            node => Namespace::named(node)?,
        };
        Ok(Some(found).filter(|namespace| namespace.inode() == self.inode))
    }

    /// Returns true if the interface was removed.
    fn is_gone(&self) -> bool {
        match self.namespace() {
            Ok(Some(namespace)) => {
                let link = Netlink::open(&namespace).and_then(|n| n.link(&self.interface));
                match link {
                    Ok(link) => link.index != self.index,
                    Err(error) => matches!(error, HostError::UnknownInterface { .. }),
                }
            }
            // A namespace without a name may be visible to other processes.
            Ok(None) => !self.node.is_empty(),
            Err(error) => matches!(error, HostError::UnknownNamespace { .. }),
        }
    }

    /// Restores all offloads and continues after an error.
    fn put_back(&self, ethtool: &Ethtool) -> Result<()> {
        let back = |offload: &Offload| ethtool.set_offload(&self.interface, *offload, true);
        let results: Vec<Result<()>> = self.offloads.iter().rev().map(back).collect();
        results.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(pid: u32) -> OffloadRecord {
        OffloadRecord {
            pid,
            start_time: 1,
            node: String::new(),
            inode: Namespace::current().unwrap().inode(),
            interface: "lo".into(),
            index: 1,
            offloads: vec![Offload::Gro, Offload::Tso],
        }
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let record = record(7);
        assert_eq!(OffloadRecord::parse(&record.text()), Some(record.clone()));
        let text = record.text();
        for cut in 0..text.len() - 1 {
            assert_eq!(OffloadRecord::parse(&text[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn those_of_the_dead_are_found_and_of_vanished_interfaces_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, record: &OffloadRecord| {
            fs::write(folder.path().join(name), record.text()).unwrap();
        };
        let alive = OffloadRecord {
            start_time: process::own_start_time(),
            ..record(std::process::id())
        };
        write(
            "alive",
            &OffloadRecord {
                index: 999_998,
                ..alive.clone()
            },
        );
        write("dead", &record(std::process::id()));
        write(
            "gone",
            &OffloadRecord {
                interface: "wb-none".into(),
                ..record(std::process::id())
            },
        );
        write(
            "other",
            &OffloadRecord {
                index: 999_999,
                ..record(std::process::id())
            },
        );
        let left = left_in(folder.path());
        assert_eq!(left.len(), 1);
        assert_eq!(
            (left[0].place.as_str(), left[0].offloads.as_str()),
            ("lo", "gro tso")
        );
        let mut names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["alive", "dead"]);

        // A living process with the same interface restores them.
        write("beside", &alive);
        assert_eq!(left_in(folder.path()), []);
        assert_eq!(alive.others(folder.path()).len(), 1);
    }

    #[test]
    fn added_offloads_keep_their_order() {
        let mut record = record(7);
        assert!(record.add(&[Offload::Gso, Offload::Gro, Offload::Lro]));
        assert_eq!(record.offloads, ALL);
        assert!(!record.add(&[Offload::Tso]));
    }
}
