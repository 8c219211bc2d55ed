//! Sending half: writes frames to a pcap file.

use std::fmt;
use std::fs::File;
use std::io::Write;

use wb_pcapng::{LINK_ETHERNET, PcapWriter};

use super::io_error;
use crate::clock::Clock;
use crate::{PortError, Slot, TxCounters, TxQueue};

/// Largest packet of a file port in bytes: jumbo frames of common cards.
pub(super) const MTU: u32 = 9216;

const CAPACITY: usize = MTU as usize + 14 + 8;
const SLOTS: usize = 256;
const BATCH: usize = 64;

struct Output {
    file: File,
    pcap: PcapWriter,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Default)]
struct Mark {
    len: u32,
    cookie: u64,
}

/// Sending half of a file port. Each flush is one write.
pub struct FileTx {
    output: Option<Output>,
    clock: Clock,
    port: String,
    frames: Vec<u8>,
    marks: Vec<Mark>,
    /// Number of submitted slots at the start; the next `lent` slots are lent.
    pending: usize,
    lent: usize,
    counters: TxCounters,
}

impl FileTx {
    pub(super) fn new(mut file: File, port: String, clock: Clock) -> Result<Self, PortError> {
        let mut bytes = Vec::new();
        let pcap = PcapWriter::new(LINK_ETHERNET, &mut bytes);
        file.write_all(&bytes)
            .map_err(io_error(&port, "write the header"))?;
        bytes.clear();
        let output = Output { file, pcap, bytes };
        Ok(Self {
            output: Some(output),
            frames: vec![0; SLOTS * CAPACITY],
            marks: vec![Mark::default(); SLOTS],
            ..Self::closed(port, clock)
        })
    }

    /// Sending half of a file that is replayed.
    pub(super) fn closed(port: String, clock: Clock) -> Self {
        Self {
            output: None,
            clock,
            port,
            frames: Vec::new(),
            marks: Vec::new(),
            pending: 0,
            lent: 0,
            counters: TxCounters::default(),
        }
    }

    fn frame(&self, i: usize) -> &[u8] {
        let start = i * CAPACITY;
        &self.frames[start..start + self.marks[i].len as usize]
    }
}

impl TxQueue for FileTx {
    fn frame_capacity(&self) -> usize {
        CAPACITY
    }

    fn batch_hint(&self) -> usize {
        BATCH
    }

    fn lend(&mut self, n: usize) -> usize {
        self.lent = n.min(self.marks.len() - self.pending);
        self.lent
    }

    fn slot(&mut self, i: usize) -> Slot<'_> {
        assert!(i < self.lent, "slot {i} of {} lent", self.lent);
        let i = self.pending + i;
        let mark = &mut self.marks[i];
        Slot {
            bytes: &mut self.frames[i * CAPACITY..(i + 1) * CAPACITY],
            len: &mut mark.len,
            cookie: &mut mark.cookie,
        }
    }

    fn submit(&mut self, n: usize) {
        assert!(n <= self.lent, "{n} submitted of {} lent", self.lent);
        let lens = &self.marks[self.pending..self.pending + n];
        assert!(lens.iter().all(|mark| mark.len as usize <= CAPACITY));
        self.pending += n;
        self.lent = 0;
        self.counters.submitted_frames += n as u64;
    }

    /// # Errors
    /// The file cannot be written. The frames stay in flight. The file may end with a part of them and is not written
    /// any more.
    fn flush(&mut self) -> Result<(), PortError> {
        if self.pending == 0 {
            return Ok(());
        }
        let mut output = self.output.take().ok_or_else(|| PortError::Unsupported {
            port: self.port.clone(),
            what: "an earlier write failed; the file ends there".to_owned(),
        })?;
        let stamp_ns = self.clock.now_ns();
        let mut octets = 0;
        output.bytes.clear();
        for i in 0..self.pending {
            let frame = self.frame(i);
            octets += frame.len() as u64;
            let (pcap, bytes) = (&mut output.pcap, &mut output.bytes);
            pcap.record(stamp_ns, frame.len() as u32, frame, bytes);
        }
        self.counters.kicks += 1;
        output
            .file
            .write_all(&output.bytes)
            .map_err(io_error(&self.port, "write frames"))?;
        self.output = Some(output);
        self.counters.sent_frames += self.pending as u64;
        self.counters.sent_octets += octets;
        self.pending = 0;
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.pending
    }

    fn take_refused<F: FnMut(&[u8])>(&mut self, _: F) {}

    fn withdraw<F: FnMut(&[u8])>(&mut self, mut each: F) {
        for i in 0..self.pending {
            each(self.frame(i));
        }
        self.counters.withdrawn_frames += self.pending as u64;
        self.pending = 0;
        self.lent = 0;
    }

    fn counters(&self) -> TxCounters {
        self.counters
    }
}

impl fmt::Debug for FileTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileTx")
            .field("port", &self.port)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
