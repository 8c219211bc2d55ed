//! The driver `file:PATH`: a capture file as a port.
//!
//! [`open`] receives what was recorded (pcap or pcapng), [`create`] writes what is sent (pcap with
//! nanoseconds). A file port has one queue pair, open one way; the other half lends and receives
//! nothing. Only Ethernet is taken.

mod replay;
mod writer;

use std::io;
use std::path::Path;

use crate::clock::Clock;
use crate::{PortError, PortFacts, QueuePair, StampSource};

pub use replay::{FileRx, Timing};
pub use writer::FileTx;

/// Larger files are not replayed, as the whole file is held in memory.
pub const MAX_FILE: u64 = 1 << 30;

/// An open capture file.
#[derive(Debug)]
pub struct FilePort {
    /// What is known of it.
    pub facts: PortFacts,
    /// Its one queue pair.
    pub queue: FileQueue,
}

/// The queue pair of a file.
#[derive(Debug)]
pub struct FileQueue {
    tx: FileTx,
    rx: FileRx,
}

impl FileQueue {
    /// The two halves, for wrapping.
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
/// A file that is damaged or cut somewhere is replayed up to there, with a warning; so is one without
/// frames.
///
/// # Errors
/// The file cannot be read, is larger than [`MAX_FILE`], is no capture file, is damaged before its
/// first frame ends, or holds frames that are not Ethernet.
pub fn open(path: &Path, timing: Timing, clock: Clock) -> Result<FilePort, PortError> {
    let port = locator(path);
    let size = std::fs::metadata(path)
        .map_err(io_error(&port, "cannot open the file"))?
        .len();
    if size > MAX_FILE {
        return Err(PortError::Unsupported {
            what: format!(
                "{size} bytes; a replay holds the file in memory and takes up to {MAX_FILE}; \
                 cut it with `editcap -c 1000000 {} part.pcap`",
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

/// Creates a capture file, or empties one that is there, and writes what is sent into it, stamped
/// with this clock when flushed.
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
