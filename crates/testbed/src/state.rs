//! The files that remember labs: one JSON file per lab, beside it the device's log and counters.
//!
//! A lab's file is there before its first namespace and until after its last, so that whatever is
//! killed in between, [`crate::down_all`] knows what to remove. Inside a user namespace the folder
//! is a tmpfs in the private mount namespace, since such labs end with that.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wb_host::{netns, process};

use crate::shaping::Limit;
use crate::topology::{PREFIX, Topology};
use crate::{LabKind, LabOptions, LinkEnds, Node, Result, TestbedError, user};

const SHARED: &str = "/run/wirebench/labs";

/// A process, named for good: by its number and when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start_time: u64,
}

impl Process {
    /// This process.
    pub fn current() -> Self {
        Self {
            pid: std::process::id(),
            start_time: process::own_start_time(),
        }
    }

    /// Whether it is still at work.
    pub fn is_alive(self) -> bool {
        process::is_alive(self.pid, self.start_time)
    }
}

/// The process a lab lives for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Owner {
    /// Which one.
    #[serde(flatten)]
    pub process: Process,
    /// What it was called with.
    pub command: String,
}

impl Owner {
    /// This process.
    pub fn current() -> Self {
        Self {
            process: Process::current(),
            command: process::command_of(std::process::id()).unwrap_or_default(),
        }
    }
}

/// All that is remembered of a lab.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LabState {
    /// Its name.
    pub name: String,
    /// What is between its ports.
    pub kind: LabKind,
    /// Whether it has been made wholly.
    pub complete: bool,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// What was asked for.
    pub options: LabOptions,
    /// Its namespaces.
    pub nodes: Vec<Node>,
    /// Its wires.
    pub links: Vec<LinkEnds>,
    /// The router's capacity, where it is limited.
    pub limit: Option<Limit>,
    /// The process it lives for, while it is being made the one that makes it. A lab without one
    /// stays until it is taken down.
    pub owner: Option<Owner>,
    /// The impairing device, or haproxy.
    pub device: Option<Process>,
}

impl LabState {
    /// What a lab will be, before anything of it is there.
    pub(crate) fn planned(kind: LabKind, options: LabOptions) -> Self {
        let Topology { nodes, links } = Topology::of(kind, &options);
        Self {
            name: options.name_for(kind).into(),
            kind,
            complete: false,
            created: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |time| time.as_secs()),
            limit: options.limit_bps.map(|rate| Limit::of(rate, options.mtu)),
            options,
            nodes,
            links,
            owner: Some(Owner::current()),
            device: None,
        }
    }

    /// Whether somebody may still want it.
    pub(crate) fn is_owned(&self) -> bool {
        self.owner
            .as_ref()
            .is_some_and(|owner| owner.process.is_alive())
    }

    /// Writes it where no lab of that name is.
    pub(crate) fn claim(&self) -> Result<()> {
        let path = path_of(&self.name)?;
        let fresh = self.write_beside(&path)?;
        // Unlike a rename this fails where the name is taken.
        let linked = fs::hard_link(&fresh, &path);
        let _ = fs::remove_file(&fresh);
        linked.map_err(|cause| match cause.kind() {
            io::ErrorKind::AlreadyExists => TestbedError::Exists {
                name: self.name.clone(),
            },
            _ => TestbedError::io("write", path.display().to_string())(cause),
        })
    }

    /// Writes it over what was there.
    pub(crate) fn save(&self) -> Result<()> {
        let path = path_of(&self.name)?;
        let fresh = self.write_beside(&path)?;
        fs::rename(&fresh, &path).map_err(TestbedError::io("write", path.display().to_string()))
    }

    fn write_beside(&self, path: &Path) -> Result<PathBuf> {
        let fresh = path.with_extension(format!("{}.tmp", std::process::id()));
        let text = serde_json::to_vec_pretty(self).expect("plain data can be written as JSON");
        fs::write(&fresh, text).map_err(TestbedError::io("write", fresh.display().to_string()))?;
        Ok(fresh)
    }

    /// The lab of a file.
    ///
    /// # Errors
    /// When the file cannot be read or was not written by us.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let failed = || TestbedError::io("read", path.display().to_string());
        let text = fs::read(path).map_err(failed())?;
        serde_json::from_slice(&text)
            .map_err(|e| failed()(io::Error::new(io::ErrorKind::InvalidData, e.to_string())))
    }

    /// The lab called `name`.
    pub(crate) fn load(name: &str) -> Result<Self> {
        match Self::read(&path_of(name)?) {
            Err(TestbedError::Io { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => {
                Err(TestbedError::Unknown {
                    name: name.into(),
                    existing: names()?,
                })
            }
            other => other,
        }
    }

    /// The files of this lab. Its own file comes last, and so it is removed last.
    pub(crate) fn forget(&self) -> Result<()> {
        let path = path_of(&self.name)?;
        for file in [
            counters_path(&path),
            log_path(&path),
            haproxy_path(&path),
            path,
        ] {
            match fs::remove_file(&file) {
                Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                    return Err(TestbedError::io("remove", file.display().to_string())(
                        cause,
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The names of all labs, sorted.
pub(crate) fn names() -> Result<Vec<String>> {
    let folder = directory()?;
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(cause) => {
            return Err(TestbedError::io("list", folder.display().to_string())(
                cause,
            ));
        }
    };
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| {
            entry
                .file_name()
                .to_str()?
                .strip_suffix(".json")
                .map(String::from)
        })
        .collect();
    names.sort();
    Ok(names)
}

/// All labs whose file can be read, by name.
pub(crate) fn all() -> Result<Vec<LabState>> {
    Ok(names()?
        .iter()
        .filter_map(|name| LabState::load(name).ok())
        .collect())
}

/// The file of a lab.
pub(crate) fn path_of(name: &str) -> Result<PathBuf> {
    Ok(directory()?.join(format!("{name}.json")))
}

/// What a lab's device writes its counters to.
pub(crate) fn counters_path(state: &Path) -> PathBuf {
    state.with_extension("counters")
}

/// What a lab's haproxy is told.
pub(crate) fn haproxy_path(state: &Path) -> PathBuf {
    state.with_extension("haproxy")
}

/// What a lab's device complains to.
pub(crate) fn log_path(state: &Path) -> PathBuf {
    state.with_extension("log")
}

/// The namespaces that are ours or called as if they were: those beginning with `wb-`.
pub(crate) fn namespaces() -> Result<Vec<String>> {
    // Inside a user namespace this hides the names outside, which are not ours to count or remove.
    directory()?;
    Ok(netns::list()?
        .into_iter()
        .filter(|name| name.starts_with(PREFIX))
        .collect())
}

/// The folder of the labs that this process can see.
pub(crate) fn directory() -> Result<PathBuf> {
    match user::private_directory()? {
        Some(private) => Ok(private),
        None => Ok(SHARED.into()),
    }
}

/// Makes the folder where it is missing.
pub(crate) fn prepare_directory() -> Result<()> {
    let folder = directory()?;
    let refused = |cause: io::Error| match cause.kind() {
        io::ErrorKind::PermissionDenied => TestbedError::Privilege {
            folder: folder.display().to_string(),
        },
        _ => TestbedError::io("create", folder.display().to_string())(cause),
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(&folder)
        .map_err(refused)?;
    let found = fs::symlink_metadata(&folder).map_err(refused)?;
    // What is written here is believed later, also by root.
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
        return Err(refused(io::ErrorKind::PermissionDenied.into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_planned_can_be_written_and_read() {
        let options = LabOptions {
            limit_bps: Some(100_000_000),
            ..LabOptions::default()
        };
        let state = LabState::planned(LabKind::Router, options);
        assert!(state.is_owned() && !state.complete);
        let text = serde_json::to_string(&state).unwrap();
        assert_eq!(serde_json::from_str::<LabState>(&text).unwrap(), state);
        assert_eq!(state.limit.unwrap().burst_bytes, 125_000);
    }

    #[test]
    fn file_names() {
        let state = Path::new("/x/my.lab.json");
        assert_eq!(counters_path(state), Path::new("/x/my.lab.counters"));
        assert_eq!(log_path(state), Path::new("/x/my.lab.log"));
    }
}
