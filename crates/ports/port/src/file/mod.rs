//! Driver `file:PATH`: a capture file as a port.
//!
//! [`open`] receives recorded frames (pcap or pcapng). [`create`] writes sent frames (pcap with nanoseconds). A file
//! port has one queue pair that is open in one direction; the other half lends and receives nothing. Only Ethernet
//! files are supported.

mod replay;
mod writer;

use std::io;
use std::path::Path;

use crate::clock::Clock;
use crate::{PortError, PortFacts, QueuePair, StampSource};

pub use replay::{FileRx, Timing};
pub use writer::FileTx;

/// Maximum size of a replayed file in bytes, because the file is held in memory.
pub const MAX_FILE: u64 = 1 << 30;

/// An open capture file.
#[derive(Debug)]
pub struct FilePort {
    /// Properties of the port.
    pub facts: PortFacts,
    /// Its only queue pair.
    pub queue: FileQueue,
}

/// Queue pair of a file.
#[derive(Debug)]
pub struct FileQueue {
    tx: FileTx,
    rx: FileRx,
}

impl FileQueue {
    /// Splits the pair into its halves, for wrappers.
    #[must_use]
    pub fn into_halves(self) -> (FileTx, FileRx) {
        (self.tx, self.rx)
    }
}

impl QueuePair for FileQueue {
    type Tx = FileTx;
    type Rx = FileRx;

    fn split(&mut self) -> (&mut FileTx, &mut FileRx) {
        (&mut self.tx, &mut self.rx)
    }
}

/// Opens a capture file for replay.
///
/// A damaged or truncated file is replayed up to the damage, with a warning. A file without frames causes a warning
/// too.
///
/// # Errors
/// The file cannot be read, is larger than [`MAX_FILE`], is not a capture file, is damaged before the end of its first
/// frame, or holds frames that are not Ethernet.
pub fn open(path: &Path, timing: Timing, clock: Clock) -> Result<FilePort, PortError> {
    let port = locator(path);
    let size = std::fs::metadata(path)
        .map_err(io_error(&port, "open the file"))?
        .len();
    if size > MAX_FILE {
        return Err(PortError::Unsupported {
            what: format!(
                "{size} bytes exceed the limit of {MAX_FILE} for a replay, which is held in memory; cut it with `editcap -c 1000000 {} part.pcap`",
                path.display()
            ),
            port,
        });
    }
    let file = std::fs::read(path).map_err(io_error(&port, "read the file"))?;
    let (rx, warnings) = FileRx::new(file, port.clone(), timing, clock.clone())?;
    let mode = match timing {
        Timing::AsFastAsPossible => "replay as fast as possible".to_owned(),
        Timing::Recorded { speed } => format!("replay in recorded timing, speed {speed}"),
    };
    let facts = PortFacts {
        stamp_source: StampSource::Recorded,
        warnings,
        ..facts(port.clone(), mode)
    };
    let tx = FileTx::closed(port, clock);
    Ok(FilePort {
        facts,
        queue: FileQueue { tx, rx },
    })
}

/// Creates or truncates a capture file and writes sent frames into it, with the time of `clock` at the flush.
///
/// # Errors
/// The file cannot be created or written.
pub fn create(path: &Path, clock: Clock) -> Result<FilePort, PortError> {
    let port = locator(path);
    let file = std::fs::File::create(path).map_err(io_error(&port, "create the file"))?;
    let facts = PortFacts {
        stamp_source: clock.stamp_source(),
        ..facts(port.clone(), "write pcap with nanoseconds".to_owned())
    };
    let rx = FileRx::closed(port.clone(), clock.clone());
    let tx = FileTx::new(file, port, clock)?;
    Ok(FilePort {
        facts,
        queue: FileQueue { tx, rx },
    })
}

fn locator(path: &Path) -> String {
    format!("file:{}", path.display())
}

fn facts(locator: String, mode: String) -> PortFacts {
    PortFacts {
        locator,
        driver: "file",
        mode,
        ifindex: 0,
        mac: [0; 6],
        mtu: writer::MTU,
        speed: None,
        queues: 1,
        stamp_source: StampSource::Recorded,
        kernel_driver: String::new(),
        warnings: Vec::new(),
    }
}

fn io_error<'a>(port: &'a str, operation: &'a str) -> impl Fn(io::Error) -> PortError + 'a {
    move |cause| PortError::Io {
        port: port.to_owned(),
        operation: operation.to_owned(),
        cause,
    }
}
