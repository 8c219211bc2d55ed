//! Interrupts sent to other CPUs for a while.
//!
//! A record of where each was sent stands in a file before any is moved. Whoever is killed leaves it behind, and the next
//! one puts things right: [`repair`].

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{HostError, Result};
use crate::folder::own_folder;
use crate::process;

/// The folder of the records.
const FOLDER: &str = "affinity";
/// Where the kernel has them.
const IRQS: &str = "/proc/irq";

/// Interrupts that are sent elsewhere for as long as this lives.
#[derive(Debug)]
pub struct Moved {
    irqs: PathBuf,
    record: Record,
    path: PathBuf,
}

impl Moved {
    /// Sends each interrupt to the CPU beside it.
    ///
    /// # Errors
    /// When the kernel refuses (some interrupts are managed by it), or the record cannot be written. What was moved
    /// until then is put back.
    pub fn to(moves: &[(u32, u32)]) -> Result<Self> {
        Self::below(Path::new(IRQS), &own_folder(FOLDER)?, moves)
    }

    fn below(irqs: &Path, folder: &Path, moves: &[(u32, u32)]) -> Result<Self> {
        let mut record = Record {
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
        // The first of the numbers tells several of a process apart.
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

impl Drop for Moved {
    fn drop(&mut self) {
        // A device that is gone has taken its interrupts with it.
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
            "send",
            format!("interrupt {irq} to CPU {list}"),
        ))
        .map_err(|e| e.or_privilege(|| "run as root".into()))
}

/// Puts back what processes of this user that were killed had moved, and says so in a line for each.
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
            .and_then(|text| Record::of(&text));
        // One that was cut short by the end of its writer: nothing was moved then.
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
                    "process {pid} was killed and had moved interrupts {numbers}; they are back now"
                )
            }
            Err(error) => {
                format!("process {pid} was killed and left interrupts {numbers} moved: {error}")
            }
        });
    }
    told
}

/// What stands in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    pid: u32,
    start_time: u64,
    /// Interrupts and the lists of CPUs to which they were sent.
    were: Vec<(u32, String)>,
}

impl Record {
    fn text(&self) -> String {
        let lines: Vec<String> = self
            .were
            .iter()
            .map(|(irq, list)| format!("{irq} {list}\n"))
            .collect();
        format!("{} {}\n{}end\n", self.pid, self.start_time, lines.concat())
    }

    fn of(text: &str) -> Option<Self> {
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

    /// Tries all, whatever the kernel says of one. One that is gone needs nothing.
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

        fn moved(&self, moves: &[(u32, u32)]) -> Result<Moved> {
            Moved::below(self.irqs.path(), self.folder.path(), moves)
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
        // One of them is none: nothing is moved.
        assert!(machine.moved(&[(40, 1), (99, 1)]).is_err());
        assert_eq!((machine.list(40), machine.records()), ("0-3".into(), 0));
    }

    #[test]
    fn what_the_killed_had_moved_is_put_back_by_the_next() {
        let machine = Machine::new(&[(40, "0-3")]);
        let moved = machine.moved(&[(40, 2)]).unwrap();
        let repair = || repair_in(machine.irqs.path(), machine.folder.path());
        assert_eq!(repair(), [""; 0], "its process lives");
        // As if it had been another's, who was killed.
        let record = Record {
            start_time: 1,
            ..moved.record.clone()
        };
        fs::write(&moved.path, record.text()).unwrap();
        std::mem::forget(moved);
        assert_eq!(repair().len(), 1);
        assert_eq!((machine.list(40), machine.records()), ("0-3".into(), 0));
        let text = record.text();
        for cut in 0..text.len() - 1 {
            assert_eq!(Record::of(&text[..cut]), None, "{cut}");
        }
    }
}
