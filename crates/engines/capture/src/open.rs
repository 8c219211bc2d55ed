//! Opens the output of a capture before any frames are captured.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;

use wb_model::capture::{CaptureOutput, FileFormat};
use wb_pcapng::MAX_CAPTURED;

use crate::encode::Encoding;
use crate::files::CaptureFiles;
use crate::pool::BufferPool;
use crate::reader::Delivery;
use crate::sink::{self, SinkDisplay};
use crate::{CaptureShared, CaptureSpec, FrameSink, OutputError, ReaderSeat, Writer};

/// A capture that is ready to run. Pass each seat to [`run_reader`](crate::run_reader) and the writer to
/// [`run_writer`](crate::run_writer), each on a separate thread. Drop unused seats, or the writer does not end.
#[derive(Debug)]
pub struct Capture {
    /// A seat for each reader.
    pub readers: Vec<ReaderSeat>,
    /// The writer.
    pub writer: Writer,
    /// Live counters.
    pub shared: Arc<CaptureShared>,
}

impl Capture {
    /// Opens the first file, and writes its header. Waits for a reader if it is a named pipe. `now_wall_ns` is used for
    /// names with a time, and as the start time in the statistics.
    ///
    /// # Errors
    /// Fails for invalid settings, if a file cannot be opened or its header cannot be written, or if memory is
    /// insufficient.
    pub fn open(spec: &CaptureSpec, readers: usize, now_wall_ns: u64) -> Result<Self, OutputError> {
        Self::open_with(spec, None, readers, now_wall_ns)
    }

    /// Opens a capture with a sink. Without an output, `sink` takes the frames, and those it has displayed count as
    /// written. With an output it receives the same frames, and its results do not count.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_with(
        spec: &CaptureSpec,
        sink: Option<Box<dyn FrameSink>>,
        readers: usize,
        now_wall_ns: u64,
    ) -> Result<Self, OutputError> {
        check_spec(spec)?;
        let shown = sink.is_some().then(sink::default_buffering);
        let Some(output) = spec.output.as_ref().or(shown.as_ref()) else {
            let shared = Arc::new(CaptureShared::new(readers, spec.interfaces.len(), None));
            return Ok(Self {
                readers: (0..readers)
                    .map(|index| ReaderSeat::new(index, &shared, spec, None))
                    .collect(),
                writer: Writer::counting(shared.clone()),
                shared,
            });
        };
        let encoding = Encoding::from(output.format);
        // A buffer holds the longest record, even if that exceeds the buffer size.
        let longest = encoding.record_len(spec.snap_len as usize, 1);
        let bytes = longest.max(output.buffer_bytes as usize);
        // Each reader holds one while it fills the next.
        let buffers = output.buffers.max(2 * readers as u32);
        let pool = BufferPool::new(buffers, bytes)?;
        let shared = Arc::new(CaptureShared::new(
            readers,
            spec.interfaces.len(),
            Some(pool),
        ));
        let (to_writer, from_readers) = channel();
        let writer = match (&spec.output, sink) {
            (None, Some(sink)) => {
                let shared = shared.clone();
                let showing = SinkDisplay {
                    sink,
                    encoding,
                    shared: shared.clone(),
                };
                Writer::showing(shared, from_readers, showing)
            }
            (_, echo) => {
                let files = CaptureFiles::open(
                    spec,
                    output,
                    encoding,
                    echo,
                    &shared,
                    readers,
                    now_wall_ns,
                )?;
                Writer::writing(shared.clone(), from_readers, files)
            }
        };
        Ok(Self {
            readers: (0..readers)
                .map(|index| {
                    let delivery = Delivery::new(to_writer.clone(), output, encoding, readers);
                    ReaderSeat::new(index, &shared, spec, Some(delivery))
                })
                .collect(),
            writer,
            shared,
        })
    }
}

fn check_spec(spec: &CaptureSpec) -> Result<(), OutputError> {
    let wrong = |what: String| Err(OutputError::Input(what));
    if spec.interfaces.is_empty() {
        return wrong("at least one interface is needed".to_owned());
    }
    if !(1..=MAX_CAPTURED as u32).contains(&spec.snap_len) {
        let given = spec.snap_len;
        return wrong(format!(
            "snap length: must be between 1 and {MAX_CAPTURED} bytes, got {given}"
        ));
    }
    let Some(output) = &spec.output else {
        return Ok(());
    };
    let CaptureOutput {
        buffer_bytes,
        buffers,
        ..
    } = output;
    if !buffer_bytes.is_power_of_two() || !(64 << 10..=16 << 20).contains(buffer_bytes) {
        return wrong(format!(
            "buffer size: must be a power of two from 64 KiB to 16 MiB, got {buffer_bytes} bytes"
        ));
    }
    if !(2..=4096).contains(buffers) {
        return wrong(format!(
            "number of buffers: must be between 2 and 4096, got {buffers}"
        ));
    }
    if output.path.is_empty() {
        return wrong("the file name is empty; use - for standard output".to_owned());
    }
    let rotates =
        output.rotate_bytes > 0 || output.rotate_frames > 0 || output.rotate_time.is_some();
    if output.path == "-" && rotates {
        return wrong("standard output cannot be rotated; use a file name".to_owned());
    }
    if output.path == "-" && output.part {
        return wrong("standard output cannot be renamed at the end; use a file name".to_owned());
    }
    let link_type = spec.interfaces[0].link_type;
    let other = spec.interfaces.iter().find(|i| i.link_type != link_type);
    if let (Some(other), true) = (other, output.format != FileFormat::Pcapng) {
        return wrong(format!(
            "{} has link type {link_type}, {} has {}: a pcap file holds one link type; use pcapng",
            spec.interfaces[0].name, other.name, other.link_type
        ));
    }
    Ok(())
}

/// Name of standard output in messages.
pub(crate) fn standard_output() -> PathBuf {
    PathBuf::from("standard output")
}
