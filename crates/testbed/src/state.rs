//! Lab files: one JSON file per lab, next to the log and the counters of its device.
//!
//! A lab's file exists before its first namespace and until after its last. If a process is
//! killed in between, [`crate::down_all`] knows what to remove. Inside a user namespace the folder
//! is a tmpfs in the private mount namespace, since such labs end with that.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wb_machine::{netns, process};

use crate::shaping::Limit;
use crate::topology::{PREFIX, Topology};
use crate::{
    Bridge, LabKind, LabOptions, LinkEnds, Node, Result, StartedDaemon, TestbedError, user,
};

const SHARED: &str = "/run/wirebench/labs";

/// A process, identified by its number and start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Process {
    /// Process number.
    pub pid: u32,
    /// Start time, in clock ticks since boot.
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

    /// Returns true if the process runs.
    pub fn is_alive(self) -> bool {
        process::is_alive(self.pid, self.start_time)
    }
}

/// Process that a lab serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Owner {
    /// Process.
    #[serde(flatten)]
    pub process: Process,
    /// Command line of the process.
    pub command: String,
}

impl Owner {
    /// This process as the owner.
    pub fn current() -> Self {
        Self {
            process: Process::current(),
            command: process::command_of(std::process::id()).unwrap_or_default(),
        }
    }
}

/// Stored state of a lab.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LabState {
    /// Name of the lab.
    pub name: String,
    /// Kind of the lab.
    pub kind: LabKind,
    /// True once the lab is complete.
    pub complete: bool,
    /// Time of creation, in seconds since 1970.
    pub created: u64,
    /// Requested options.
    pub options: LabOptions,
    /// Namespaces of the lab.
    pub nodes: Vec<Node>,
    /// Wires of the lab.
    pub links: Vec<LinkEnds>,
    /// Capacity of the router, if limited.
    pub limit: Option<Limit>,
    /// Process that the lab serves; during creation, the process that makes the lab. A lab without an owner
    /// stays until it is taken down.
    pub owner: Option<Owner>,
    /// The impairing device, or haproxy.
    pub device: Option<Process>,
    /// Bridges of the kernel.
    #[serde(default)]
    pub bridges: Vec<Bridge>,
    /// Programs in the nodes, in addition to the device.
    #[serde(default)]
    pub daemons: Vec<StartedDaemon>,
}

impl LabState {
    /// State of a new lab before any part of it exists.
    pub(crate) fn planned(kind: LabKind, options: LabOptions) -> Self {
        let Topology {
            nodes,
            links,
            bridges,
        } = Topology::of_kind(kind, &options);
        Self {
            name: options.name_for(kind).into(),
            kind,
            complete: false,
            created: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |time| time.as_secs()),
            limit: options
                .limit_bps
                .map(|rate| Limit::of_rate(rate, options.mtu)),
            options,
            nodes,
            links,
            owner: Some(Owner::current()),
            device: None,
            bridges,
            daemons: Vec::new(),
        }
    }

    /// Returns true if the owner is alive.
    pub(crate) fn is_owned(&self) -> bool {
        self.owner
            .as_ref()
            .is_some_and(|owner| owner.process.is_alive())
    }

    /// Writes the file unless a lab with this name exists.
    pub(crate) fn claim_name(&self) -> Result<()> {
        let path = path_of(&self.name)?;
        let fresh = self.write_beside(&path)?;
        // Unlike a rename, this fails if the name is taken.
        let linked = fs::hard_link(&fresh, &path);
        let _ = fs::remove_file(&fresh);
        linked.map_err(|cause| match cause.kind() {
            io::ErrorKind::AlreadyExists => TestbedError::Exists {
                name: self.name.clone(),
            },
            _ => TestbedError::io("write", path.display().to_string())(cause),
        })
    }

    /// Writes the file and replaces the previous one.
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

    /// Reads a lab file.
    ///
    /// # Errors
    /// The file cannot be read or is not a valid lab file.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let failed = || TestbedError::io("read", path.display().to_string());
        let text = fs::read(path).map_err(failed())?;
        serde_json::from_slice(&text)
            .map_err(|e| failed()(io::Error::new(io::ErrorKind::InvalidData, e.to_string())))
    }

    /// State of the lab `name`.
    pub(crate) fn load(name: &str) -> Result<Self> {
        match Self::read(&path_of(name)?) {
            Err(TestbedError::Io { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => {
                Err(TestbedError::Unknown {
                    name: name.into(),
                    existing: lab_names()?,
                })
            }
            other => other,
        }
    }

    /// Removes the files of this lab. Its own file is removed last.
    pub(crate) fn remove_files(&self) -> Result<()> {
        let path = path_of(&self.name)?;
        let folder = fleet_path(&path);
        match fs::remove_dir_all(&folder) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                return Err(TestbedError::io("remove", folder.display().to_string())(
                    cause,
                ));
            }
            _ => {}
        }
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

/// Names of all labs, sorted.
pub(crate) fn lab_names() -> Result<Vec<String>> {
    let folder = lab_directory()?;
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

/// All labs with a readable file, by name.
pub(crate) fn all_labs() -> Result<Vec<LabState>> {
    Ok(lab_names()?
        .iter()
        .filter_map(|name| LabState::load(name).ok())
        .collect())
}

/// Path of a lab file.
pub(crate) fn path_of(name: &str) -> Result<PathBuf> {
    Ok(lab_directory()?.join(format!("{name}.json")))
}

/// File of the device's counters.
pub(crate) fn counters_path(state: &Path) -> PathBuf {
    state.with_extension("counters")
}

/// Configuration file of haproxy.
pub(crate) fn haproxy_path(state: &Path) -> PathBuf {
    state.with_extension("haproxy")
}

/// Folder of a fleet: access files, configuration and store of the broker, logs.
pub(crate) fn fleet_path(state: &Path) -> PathBuf {
    state.with_extension("fleet")
}

/// Log file of the device.
pub(crate) fn log_path(state: &Path) -> PathBuf {
    state.with_extension("log")
}

/// Namespaces beginning with `wb-`.
pub(crate) fn lab_namespaces() -> Result<Vec<String>> {
    // Inside a user namespace, this call hides the names outside, which must not be counted or removed.
    lab_directory()?;
    Ok(netns::list()?
        .into_iter()
        .filter(|name| name.starts_with(PREFIX))
        .collect())
}

/// Folder of the labs visible to this process.
pub(crate) fn lab_directory() -> Result<PathBuf> {
    match user::private_directory()? {
        Some(private) => Ok(private),
        None => Ok(SHARED.into()),
    }
}

/// Makes the folder if it is missing.
pub(crate) fn prepare_directory() -> Result<()> {
    let folder = lab_directory()?;
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
    // Later runs trust the files in this folder, even as root.
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
