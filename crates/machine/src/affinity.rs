//! Moves interrupts to other CPUs for a limited time.
//!
//! A file records the previous CPUs before any interrupt is moved. If the process is killed, [`repair`] of a later
//! process uses the file to restore the interrupts.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{HostError, Result};
use crate::private_folder::own_folder;
use crate::process;

/// Folder of the records.
const FOLDER: &str = "affinity";
/// Folder of the interrupts.
const IRQS: &str = "/proc/irq";

/// Interrupts that are moved until the value is dropped.
#[derive(Debug)]
pub struct MovedInterrupts {
    irqs: PathBuf,
    record: AffinityRecord,
    path: PathBuf,
}

impl MovedInterrupts {
    /// Moves each interrupt to the CPU of its pair (interrupt, CPU).
    ///
    /// # Errors
    /// If the kernel refuses (it manages some interrupts itself), or the record cannot be written. Interrupts that were
    /// already moved are restored.
    pub fn to(moves: &[(u32, u32)]) -> Result<Self> {
        Self::below(Path::new(IRQS), &own_folder(FOLDER)?, moves)
    }

    fn below(irqs: &Path, folder: &Path, moves: &[(u32, u32)]) -> Result<Self> {
        let mut record = AffinityRecord {
            pid: std::process::id(),
            start_time: process::own_start_time(),
            were: Vec::new(),
        };
        for (irq, _) in moves {
            let path = list_of(irqs, *irq);
            let text = fs::read_to_string(&path)
                .map_err(HostError::refused("read", path.display().to_string()))?;
            record.were.push((*irq, text.trim().to_owned()));
        }
        // The first number distinguishes several records of one process.
        let first = moves.first().map_or(0, |(irq, _)| *irq);
        let path = folder.join(format!("{}-{first}", record.pid));
        fs::write(&path, record.text())
            .map_err(HostError::refused("write", path.display().to_string()))?;
        let moved = Self {
            irqs: irqs.to_owned(),
            record,
            path,
        };
        for (irq, cpu) in moves {
            set(&moved.irqs, *irq, &cpu.to_string())?;
        }
        Ok(moved)
    }
}

impl Drop for MovedInterrupts {
    fn drop(&mut self) {
        // A removed device has no interrupts left.
        let _ = self.record.put_back(&self.irqs);
        let _ = fs::remove_file(&self.path);
    }
}

fn list_of(irqs: &Path, irq: u32) -> PathBuf {
    irqs.join(irq.to_string()).join("smp_affinity_list")
}

fn set(irqs: &Path, irq: u32, list: &str) -> Result<()> {
    let path = list_of(irqs, irq);
    let write = || {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(&path)?;
        file.write_all(list.as_bytes())
    };
    write()
        .map_err(HostError::refused(
            "move",
            format!("interrupt {irq} to CPU {list}"),
        ))
        .map_err(|e| e.or_privilege(|| "run as root".into()))
}

/// Restores interrupts that killed processes of this user had moved. Returns a line for each.
#[must_use]
pub fn repair() -> Vec<String> {
    own_folder(FOLDER).map_or_else(|_| Vec::new(), |folder| repair_in(Path::new(IRQS), &folder))
}

fn repair_in(irqs: &Path, folder: &Path) -> Vec<String> {
    let mut told = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let record = fs::read_to_string(&path)
            .ok()
            .and_then(|text| AffinityRecord::parse(&text));
        // A truncated record: its writer ended before it moved an interrupt.
        let Some(record) = record else { continue };
        if process::is_alive(record.pid, record.start_time) {
            continue;
        }
        let numbers: Vec<String> = record.were.iter().map(|(irq, _)| irq.to_string()).collect();
        let (numbers, pid) = (numbers.join(", "), record.pid);
        told.push(match record.put_back(irqs) {
            Ok(()) => {
                let _ = fs::remove_file(&path);
                format!(
                    "process {pid} was killed after moving interrupts {numbers}; they are restored"
                )
            }
            Err(error) => {
                format!("process {pid} was killed after moving interrupts {numbers}; cannot restore them: {error}")
            }
        });
    }
    told
}

/// Content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AffinityRecord {
    pid: u32,
    start_time: u64,
    /// Interrupts and their previous CPU lists.
    were: Vec<(u32, String)>,
}

impl AffinityRecord {
    fn text(&self) -> String {
        let lines: Vec<String> = self
            .were
            .iter()
            .map(|(irq, list)| format!("{irq} {list}\n"))
            .collect();
        format!("{} {}\n{}end\n", self.pid, self.start_time, lines.concat())
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines: Vec<&str> = text.strip_suffix("end\n")?.lines().collect();
        let (pid, start_time) = (!lines.is_empty())
            .then(|| lines.remove(0))?
            .split_once(' ')?;
        let one = |line: &&str| {
            let (irq, list) = line.split_once(' ')?;
            Some((irq.parse().ok()?, list.to_owned()))
        };
        Some(Self {
            pid: pid.parse().ok()?,
            start_time: start_time.parse().ok()?,
            were: lines.iter().map(one).collect::<Option<_>>()?,
        })
    }

    /// Restores all interrupts and continues after an error. A removed interrupt is skipped.
    fn put_back(&self, irqs: &Path) -> Result<()> {
        let there = self
            .were
            .iter()
            .filter(|(irq, _)| list_of(irqs, *irq).exists());
        let results: Vec<Result<()>> = there.map(|(irq, list)| set(irqs, *irq, list)).collect();
        results.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Machine {
        irqs: tempfile::TempDir,
        folder: tempfile::TempDir,
    }

    impl Machine {
        fn new(lists: &[(u32, &str)]) -> Self {
            let machine = Self {
                irqs: tempfile::tempdir().unwrap(),
                folder: tempfile::tempdir().unwrap(),
            };
            for (irq, list) in lists {
                fs::create_dir(machine.irqs.path().join(irq.to_string())).unwrap();
                fs::write(list_of(machine.irqs.path(), *irq), format!("{list}\n")).unwrap();
            }
            machine
        }

        fn list(&self, irq: u32) -> String {
            let text = fs::read_to_string(list_of(self.irqs.path(), irq)).unwrap();
            text.trim().to_owned()
        }

        fn moved(&self, moves: &[(u32, u32)]) -> Result<MovedInterrupts> {
            MovedInterrupts::below(self.irqs.path(), self.folder.path(), moves)
        }

        fn records(&self) -> usize {
            fs::read_dir(self.folder.path()).unwrap().count()
        }
    }

    #[test]
    fn interrupts_go_back_where_they_were() {
        let machine = Machine::new(&[(40, "0-3"), (41, "0-3")]);
        let moved = machine.moved(&[(40, 2), (41, 3)]).unwrap();
        assert_eq!(
            (machine.list(40), machine.list(41)),
            ("2".into(), "3".into())
        );
        assert_eq!(machine.records(), 1);
        drop(moved);
        assert_eq!(
            (machine.list(40), machine.list(41)),
            ("0-3".into(), "0-3".into())
        );
        assert_eq!(machine.records(), 0);
        // One interrupt does not exist: nothing is moved.
        assert!(machine.moved(&[(40, 1), (99, 1)]).is_err());
        assert_eq!((machine.list(40), machine.records()), ("0-3".into(), 0));
    }

    #[test]
    fn what_the_killed_had_moved_is_put_back_by_the_next() {
        let machine = Machine::new(&[(40, "0-3")]);
        let moved = machine.moved(&[(40, 2)]).unwrap();
        let repair = || repair_in(machine.irqs.path(), machine.folder.path());
        assert_eq!(repair(), [""; 0], "its process lives");
        // A record as if from another process that was killed.
        let record = AffinityRecord {
            start_time: 1,
            ..moved.record.clone()
        };
        fs::write(&moved.path, record.text()).unwrap();
        std::mem::forget(moved);
        assert_eq!(repair().len(), 1);
        assert_eq!((machine.list(40), machine.records()), ("0-3".into(), 0));
        let text = record.text();
        for cut in 0..text.len() - 1 {
            assert_eq!(AffinityRecord::parse(&text[..cut]), None, "{cut}");
        }
    }
}
