//! What a sender is told: streams, its share of them, and when to end.

use std::sync::Arc;

use wb_model::{Stream, units::Rational};

use crate::ramp::Lead;

/// A stream with what the session found out for it.
#[derive(Clone, Debug)]
pub struct StreamSpec {
    /// The stream as planned.
    pub stream: Stream,
    /// The name in messages.
    pub name: String,
    /// Its first flow in tags.
    pub first_flow: u32,
    /// Its flows in tags: at least as many as workers; 1 without a tag of ours.
    pub flows: u32,
    /// Source hardware address.
    pub src_mac: [u8; 6],
    /// Destination hardware address.
    pub dst_mac: [u8; 6],
    /// Frames per second over all workers. `None`: as fast as the port takes them, or as recorded if
    /// the stream is a replay with a speed. A burst in the stream goes before it. Of a replay with a rate in bits the mean:
    /// each frame has the time that its own length takes.
    pub pps: Option<Rational>,
    /// The frames to send instead of built ones.
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
    /// In the order of their time.
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

/// What one worker sends.
#[derive(Clone, Debug)]
pub struct SenderSpec {
    /// The streams, the same for all workers of the port.
    pub streams: Vec<StreamSpec>,
    /// Which worker this is, from 0.
    pub worker: u32,
    /// How many share the streams.
    pub workers: u32,
    /// Where random choices come from.
    pub seed: u64,
    /// From the start order to the first frame, or to the ramp.
    pub start_offset_ns: u64,
    /// How long to send, without the ramp.
    pub duration_ns: Option<u64>,
    /// Frames to send, over all streams and workers, without the ramp.
    pub count: Option<u64>,
    /// What is sent before the counted schedule begins.
    pub lead: Lead,
    /// What a late sender makes up for at most. 0: only the latest frame due is sent.
    pub catch_up_ns: u64,
    /// Whether to measure the time between departures; then every frame has a stamp of its own.
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
            lead: Lead::default(),
            catch_up_ns: 100_000_000,
            departures: false,
        }
    }
}
