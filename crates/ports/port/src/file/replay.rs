//! Receiving half: returns recorded frames.

use std::fmt;
use std::time::Duration;

use wb_pcapng::{CaptureReader, LINK_ETHERNET};

use crate::clock::Clock;
use crate::{ChecksumState, PortError, RxCounters, RxFrame, RxQueue, StampSource};

/// Arrival times of recorded frames.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Timing {
    /// All frames arrive at once.
    AsFastAsPossible,
    /// Frames keep their recorded spacing, starting at the first call of `receive` or `wait`.
    Recorded {
        /// Factor: 1 is the recorded speed, 2 is twice as fast.
        speed: f64,
    },
}

/// Position and description of a frame in the file.
#[derive(Clone, Copy)]
struct Entry {
    stamp_ns: u64,
    start: u32,
    len: u32,
    original_len: u32,
}

/// Receiving half of a file port. Timestamps are those of the file.
pub struct FileRx {
    file: Vec<u8>,
    entries: Vec<Entry>,
    next: usize,
    open: bool,
    /// Recorded time per clock time; `None` to return all frames at once.
    speed: Option<f64>,
    clock: Clock,
    /// Time of the first call.
    started_ns: Option<u64>,
    port: String,
    counters: RxCounters,
}

impl FileRx {
    /// Indexes all frames of the file, so that a fault is found before the replay.
    pub(super) fn new(
        file: Vec<u8>,
        port: String,
        timing: Timing,
        clock: Clock,
    ) -> Result<(Self, Vec<String>), PortError> {
        let input = |what: String| PortError::Input {
            port: port.clone(),
            what,
        };
        let speed = match timing {
            Timing::AsFastAsPossible => None,
            Timing::Recorded { speed } if speed.is_finite() && speed > 0.0 => Some(speed),
            Timing::Recorded { speed } => {
                return Err(input(format!("replay speed must be above 0, got {speed}")));
            }
        };
        let mut entries = Vec::new();
        let mut warnings = Vec::new();
        let mut reader = CaptureReader::new(&file).map_err(|e| input(e.to_string()))?;
        while let Some(record) = reader.next() {
            let record = match record {
                Ok(record) => record,
                Err(fault) if entries.is_empty() => return Err(input(fault.to_string())),
                Err(fault) => {
                    let n = entries.len();
                    warnings.push(format!(
                        "{fault}; only the frames before it are replayed ({n})"
                    ));
                    break;
                }
            };
            if record.link_type != LINK_ETHERNET {
                return Err(input(format!(
                    "frame {} has link type {}; only Ethernet ({LINK_ETHERNET}) can be replayed",
                    entries.len() + 1,
                    record.link_type
                )));
            }
            let fcs = reader.interfaces()[record.interface as usize].fcs_len;
            entries.push(entry(&file, &record, usize::from(fcs)));
        }
        if entries.is_empty() {
            warnings.push("the file has no frames".to_owned());
        }
        let rx = Self {
            entries,
            file,
            next: 0,
            open: true,
            speed,
            clock,
            started_ns: None,
            port,
            counters: RxCounters::default(),
        };
        Ok((rx, warnings))
    }

    /// Receiving half of a file that is written.
    pub(super) fn closed(port: String, clock: Clock) -> Self {
        Self {
            file: Vec::new(),
            entries: Vec::new(),
            next: 0,
            open: false,
            speed: None,
            clock,
            started_ns: None,
            port,
            counters: RxCounters::default(),
        }
    }

    /// Frames in the file.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.entries.len()
    }

    /// Recorded time from the first frame to the last, in ns.
    #[must_use]
    pub fn recorded_ns(&self) -> u64 {
        match (self.entries.first(), self.entries.last()) {
            (Some(first), Some(last)) => last.stamp_ns.saturating_sub(first.stamp_ns),
            _ => 0,
        }
    }

    /// Restarts the replay at the first frame and restarts the recorded timing.
    pub fn rewind(&mut self) {
        self.next = 0;
        self.started_ns = None;
    }

    /// Recorded time up to which frames have arrived. A timestamp before the previous one counts as passed.
    fn due_ns(&mut self) -> u64 {
        let (Some(speed), Some(first)) = (self.speed, self.entries.first()) else {
            return u64::MAX;
        };
        let now_ns = self.clock.now_ns();
        let since = now_ns.saturating_sub(*self.started_ns.get_or_insert(now_ns));
        first.stamp_ns.saturating_add((since as f64 * speed) as u64)
    }

    fn ended(&self) -> Result<(), PortError> {
        if self.open && self.next >= self.entries.len() {
            return Err(PortError::EndOfFile {
                port: self.port.clone(),
            });
        }
        Ok(())
    }
}

fn entry(file: &[u8], record: &wb_pcapng::Record<'_>, fcs: usize) -> Entry {
    let captured = record.captured.len();
    // A length below the captured length is invalid.
    let original = (record.original_len as usize).max(captured);
    let original_len = original.saturating_sub(fcs);
    let start = record.captured.as_ptr() as usize - file.as_ptr() as usize;
    Entry {
        stamp_ns: record.stamp_ns,
        start: u32::try_from(start).expect("a file is at most MAX_FILE long"),
        len: captured.min(original_len) as u32,
        original_len: original_len as u32,
    }
}

impl RxQueue for FileRx {
    fn receive<F: FnMut(&RxFrame<'_>)>(
        &mut self,
        max: usize,
        mut on_frame: F,
    ) -> Result<usize, PortError> {
        self.ended()?;
        let due_ns = self.due_ns();
        let mut n = 0;
        while n < max
            && let Some(entry) = self.entries.get(self.next)
            && entry.stamp_ns <= due_ns
        {
            let start = entry.start as usize;
            on_frame(&RxFrame {
                bytes: &self.file[start..start + entry.len as usize],
                original_len: entry.original_len,
                stamp_ns: entry.stamp_ns,
                stamp_source: StampSource::Recorded,
                vlan: None,
                checksum: ChecksumState::Unknown,
            });
            self.next += 1;
            n += 1;
        }
        self.counters.received_frames += n as u64;
        Ok(n)
    }

    fn wait(&mut self, timeout: Duration) -> Result<bool, PortError> {
        /// Limits one sleep to 1 ms, so that clock jumps are noticed.
        const NAP_NS: u64 = 1_000_000;
        self.ended()?;
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let until_ns = self.clock.now_ns().saturating_add(timeout_ns);
        loop {
            let due_ns = self.due_ns();
            let next = self.entries.get(self.next).map(|entry| entry.stamp_ns);
            if next.is_some_and(|stamp_ns| stamp_ns <= due_ns) {
                return Ok(true);
            }
            let left_ns = until_ns.saturating_sub(self.clock.now_ns());
            if left_ns == 0 || !self.clock.is_real() {
                return Ok(false);
            }
            let missing_ns = match (next, self.speed) {
                (Some(stamp_ns), Some(speed)) => ((stamp_ns - due_ns) as f64 / speed) as u64 + 1,
                _ => NAP_NS,
            };
            std::thread::sleep(Duration::from_nanos(left_ns.min(missing_ns).min(NAP_NS)));
        }
    }

    fn counters(&mut self) -> RxCounters {
        self.counters
    }
}

impl fmt::Debug for FileRx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileRx")
            .field("port", &self.port)
            .field("next", &self.next)
            .field("frames", &self.entries.len())
            .finish_non_exhaustive()
    }
}
