//! Parameters of a sender: streams, its share of them, and its end.

use std::sync::Arc;

use wb_model::{Stream, units::Rational};

use crate::ramp::RampUp;

/// A stream with the values that the engine determined for it.
#[derive(Clone, Debug)]
pub struct StreamSpec {
    /// The stream as planned.
    pub stream: Stream,
    /// Name in messages.
    pub name: String,
    /// First flow in tags.
    pub first_flow: u32,
    /// Number of flows in tags: at least the number of workers; 1 without our tag.
    pub flows: u32,
    /// Source hardware address.
    pub src_mac: [u8; 6],
    /// Destination hardware address.
    pub dst_mac: [u8; 6],
    /// Frames per second over all workers. `None`: as fast as the port accepts them, or as recorded for a replay with a
    /// speed. A burst in the stream takes precedence. For a replay with a bit rate this is the mean: each frame gets
    /// the time for its length.
    pub pps: Option<Rational>,
    /// Frames to send instead of built ones.
    pub replay: Option<Arc<Recording>>,
}

impl Default for StreamSpec {
    fn default() -> Self {
        Self {
            stream: Stream::default(),
            name: "stream".to_owned(),
            first_flow: 0,
            flows: 1,
            src_mac: [2, 0, 0, 0, 0, 1],
            dst_mac: [2, 0, 0, 0, 0, 2],
            pps: None,
            replay: None,
        }
    }
}

/// The frames of a capture file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// In order of time.
    pub frames: Vec<RecordedFrame>,
}

impl Recording {
    /// Mean size of the frames, with FCS; `None` without frames.
    #[must_use]
    pub fn mean_size(&self) -> Option<Rational> {
        let frames = self.frames.len() as u128;
        let octets: u128 = self.frames.iter().map(|f| f.bytes.len() as u128 + 4).sum();
        Rational::new(octets, frames)
    }
}

/// One frame of a [`Recording`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedFrame {
    /// Time since the first frame.
    pub offset_ns: u64,
    /// From the destination address on, without FCS.
    pub bytes: Vec<u8>,
}

/// Work of one worker.
#[derive(Clone, Debug)]
pub struct SenderSpec {
    /// The streams, the same for all workers of the port.
    pub streams: Vec<StreamSpec>,
    /// Number of this worker, from 0.
    pub worker: u32,
    /// Number of workers that share the streams.
    pub workers: u32,
    /// Seed of random choices.
    pub seed: u64,
    /// Time from the start order to the first frame, or to the ramp.
    pub start_offset_ns: u64,
    /// Sending time, without the ramp.
    pub duration_ns: Option<u64>,
    /// Frames to send, over all streams and workers, without the ramp.
    pub count: Option<u64>,
    /// Ramp-up before the counted schedule.
    pub lead: RampUp,
    /// Maximum lateness that a sender makes up for. 0: only the latest due frame is sent.
    pub catch_up_ns: u64,
    /// Measure the time between departures; every frame then gets a separate timestamp.
    pub departures: bool,
}

impl Default for SenderSpec {
    fn default() -> Self {
        Self {
            streams: Vec::new(),
            worker: 0,
            workers: 1,
            seed: 1,
            start_offset_ns: 0,
            duration_ns: None,
            count: None,
            lead: RampUp::default(),
            catch_up_ns: 100_000_000,
            departures: false,
        }
    }
}
