use std::{cell::RefCell, io::Write, path::Path, rc::Rc};

use super::*;

/// Outputs in memory. Standard output takes `room` bytes before its reader is gone.
#[derive(Default)]
struct Memory {
    results: RefCell<String>,
    messages: RefCell<Vec<String>>,
    packets: Rc<RefCell<Vec<u8>>>,
    room: usize,
}

impl Output for Memory {
    fn results(&self, text: &str) -> Result<()> {
        self.results.borrow_mut().push_str(text);
        Ok(())
    }

    fn message(&self, line: &str) {
        self.messages.borrow_mut().push(line.to_owned());
    }

    fn packets(&self) -> io::Result<Box<dyn Write>> {
        Ok(Box::new(Pipe(self.packets.clone(), self.room)))
    }
}

struct Pipe(Rc<RefCell<Vec<u8>>>, usize);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut taken = self.0.borrow_mut();
        if taken.len() + bytes.len() > self.1 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        taken.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a pcap file of three packets, one second apart, without its last `cut` bytes.
fn capture(folder: &Path, cut: usize) -> PathBuf {
    let mut bytes = Vec::new();
    let mut writer = wb_pcapng::PcapWriter::with(1, 0, wb_pcapng::Precision::Nano, &mut bytes);
    for second in 0..3 {
        writer.record(second * 1_000_000_000, 60, &[0; 60], &mut bytes);
    }
    let path = folder.join("a.pcap");
    std::fs::write(&path, &bytes[..bytes.len() - cut]).unwrap();
    path
}

fn reading(file: PathBuf, target: Target) -> Reading {
    Reading {
        files: vec![file],
        selection: Selection::default(),
        print: None,
        target: Some(target),
        tcpdump: None,
    }
}

fn to_standard_output() -> Target {
    Target::File(Order {
        path: PathBuf::from("-"),
        format: wb_model::capture::FileFormat::PcapNs,
        compression: wb_model::capture::Compression::None,
        cut: None,
        unbuffered: true,
    })
}

#[test]
fn a_cut_file_is_read_to_its_last_whole_packet() {
    let folder = tempfile::tempdir().unwrap();
    let file = capture(folder.path(), 1);
    let output = Memory::default();
    let count = Target::Count { json: false };
    assert_eq!(run(&reading(file.clone(), count), &output).unwrap(), 1);
    assert_eq!(*output.results.borrow(), "2 packets");
    let messages = output.messages.borrow();
    let last = messages.last().unwrap();
    assert!(last.contains("wirebench read --repair"), "{last}");
    let repaired = repair_in_place(&file).unwrap();
    assert!(matches!(repaired, Repaired::Whole(_)), "{repaired:?}");
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 24 + 2 * 76);
}

#[test]
fn a_selection_is_copied_to_standard_output() {
    let folder = tempfile::tempdir().unwrap();
    let mut reading = reading(capture(folder.path(), 0), to_standard_output());
    reading.selection.from = Some(Moment::After(1_000_000_000));
    reading.selection.first = Some(1);
    let output = Memory {
        room: usize::MAX,
        ..Memory::default()
    };
    assert_eq!(run(&reading, &output).unwrap(), 0);
    assert_eq!(output.packets.borrow().len(), 24 + 76);
    assert_eq!(output.packets.borrow()[24], 1, "seconds of the time stamp");
}

#[test]
fn a_closed_pipe_ends_the_reading() {
    let folder = tempfile::tempdir().unwrap();
    let reading = reading(capture(folder.path(), 0), to_standard_output());
    let output = Memory {
        room: 24 + 76,
        ..Memory::default()
    };
    let error = run(&reading, &output).unwrap_err();
    assert!(error.is::<ClosedPipe>(), "{error}");
    assert_eq!(output.packets.borrow().len(), 24 + 76);
}
