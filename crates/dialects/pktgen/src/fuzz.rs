//! Entry point for fuzzers: arbitrary bytes for the control files.

use crate::control::{ControlOptions, PktgenFiles, WriteEffect};
use crate::machine::{DeviceTime, Interface, PktgenMachine};

/// A machine with two interfaces that permits everything.
struct OpenMachine;

impl PktgenMachine for OpenMachine {
    fn interface(&self, name: &str) -> Option<Interface> {
        matches!(name, "eth0" | "va").then(Interface::default)
    }
    fn node_possible(&self, node: i32) -> bool {
        (0..2).contains(&node)
    }
    fn may_administer(&self) -> bool {
        true
    }
}

/// Splits `bytes` at 0xff into writes; the first byte of each chooses the file. Carries out
/// the effects, with a few packets per run, and reads every file.
///
/// # Panics
/// If the text of a file is malformed, which is the defect to find.
pub fn exercise(bytes: &[u8]) {
    let mut folder = PktgenFiles::new([0, 1], ControlOptions::default());
    for (cpu, name) in [(0, "eth0"), (0, "va@0"), (1, "va@1")] {
        let command = format!("add_device {name}\n");
        let _ = folder.write(&format!("kpktgend_{cpu}"), command.as_bytes(), &OpenMachine);
    }
    for write in bytes.split(|b| *b == 0xff) {
        let Some((choice, written)) = write.split_first() else {
            continue;
        };
        let files = folder.file_names();
        let file = &files[usize::from(*choice) % files.len()];
        if folder.write(file, written, &OpenMachine) == Ok(WriteEffect::Start) {
            run(&mut folder);
        }
    }
    run(&mut folder);
    for file in folder.file_names() {
        let text = folder.read(&file, &OpenMachine, 1).expect("a listed file");
        assert_eq!(text.last(), Some(&b'\n'), "{file}: no last line feed");
        let results = String::from_utf8_lossy(&text)
            .lines()
            .filter(|l| l.starts_with("Result: "))
            .count();
        let silent = matches!(file.as_str(), "pgctrl" | "pgrx");
        assert_eq!(results, usize::from(!silent), "{file}: Result lines");
    }
}

/// Packets generated in each run.
const PACKETS: usize = 20;

fn run(folder: &mut PktgenFiles) {
    for mut job in folder.start_devices(1000, 7, &OpenMachine) {
        let limit = job.walker.config().frame_limit(Interface::default().mtu);
        for _ in 0..PACKETS {
            let Some(call) = job.walker.poll(DeviceTime::default()) else {
                break;
            };
            assert!(call.frame.len() as u64 <= limit, "{}", call.frame.len());
            assert!(call.copies > 0);
            let copies = call.copies;
            job.walker.sent(copies);
        }
        folder.record_progress(job.id, job.walker.progress());
        folder.record_end(job.id, &job.walker, 2000, 10);
    }
}
