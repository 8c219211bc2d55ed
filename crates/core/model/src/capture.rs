//! Jobs that capture: which ports, which frames, and where they go.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Span;

/// Ports whose frames are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CaptureJob {
    /// Names of the ports. Their frames go into one output, each port an interface of its own.
    pub ports: Vec<String>,
    /// Which frames, in the language of pcap-filter(7). Empty: all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub filter: String,
    /// Bytes of each frame to keep; 1 to 262144.
    pub snap_len: u32,
    /// Frames that arrive, that leave, or both.
    #[serde(skip_serializing_if = "is_default")]
    pub direction: Direction,
    /// Receive frames for any destination address.
    pub promiscuous: bool,
    /// Frames to keep; the next ones are counted, and the capture ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// How long. Without it until a signal, or to the end of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// How long the receiver may stand still without a loss, at the rate expected: with it the
    /// receive ring is sized.
    pub stall: Span,
    /// Frames per second to expect. Without it the speed of the link says, or 256 MiB are taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expect_pps: Option<u64>,
    /// When the kernel hands over a block that is not full; 1ms to 1s.
    pub block_timeout: Span,
    /// What happens when the output is slower than the frames come.
    #[serde(skip_serializing_if = "is_default")]
    pub overflow: Overflow,
    /// Where they go. Without it they are only counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<CaptureOutput>,
}

/// Which way frames go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Both.
    #[default]
    Inout,
    /// Those that arrive.
    In,
    /// Those that leave.
    Out,
}

/// What happens when the output is slower than the frames come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Overflow {
    /// The reader waits; the kernel's ring fills, and the kernel counts what it drops.
    #[default]
    Wait,
    /// The reader drops the newest frames, and counts them.
    DropNewest,
}

/// The form of a capture file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FileFormat {
    /// pcapng, nanoseconds, with interfaces and drop counters.
    #[default]
    Pcapng,
    /// pcap with nanoseconds.
    PcapNs,
    /// pcap with microseconds.
    Pcap,
}

/// Compression of a capture file, frame by frame of 4 MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// None.
    #[default]
    None,
    /// Zstandard (RFC 8878), level 1.
    Zstd,
    /// LZ4 frames.
    Lz4,
}

/// A capture file, or a row of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CaptureOutput {
    /// The file; `-` is standard output.
    pub path: String,
    /// Its form.
    pub format: FileFormat,
    /// Its compression.
    #[serde(skip_serializing_if = "is_default")]
    pub compress: Compression,
    /// Begin the next file when one holds more than this many bytes (before compression); 0: never.
    #[serde(skip_serializing_if = "is_default")]
    pub rotate_bytes: u64,
    /// Begin the next file when a frame is this much later than the first of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotate_time: Option<Span>,
    /// Begin the next file after so many frames; 0: never.
    #[serde(skip_serializing_if = "is_default")]
    pub rotate_frames: u64,
    /// Keep so many files and write over the oldest; 0: keep all.
    #[serde(skip_serializing_if = "is_default")]
    pub files: u32,
    /// Hand partial buffers to the file at least so often.
    pub flush: Span,
    /// Bytes of a buffer, a power of two from 64 KiB to 16 MiB.
    pub buffer_bytes: u32,
    /// Buffers between reader and writer; 2 to 4096.
    pub buffers: u32,
}

impl Default for CaptureOutput {
    fn default() -> Self {
        Self {
            path: String::new(),
            format: FileFormat::Pcapng,
            compress: Compression::None,
            rotate_bytes: 0,
            rotate_time: None,
            rotate_frames: 0,
            files: 0,
            flush: Span::from_secs(1),
            buffer_bytes: 4 << 20,
            buffers: 64,
        }
    }
}

impl Default for CaptureJob {
    fn default() -> Self {
        Self {
            ports: Vec::new(),
            filter: String::new(),
            snap_len: 262_144,
            direction: Direction::Inout,
            promiscuous: true,
            count: None,
            duration: None,
            stall: Span::from_secs(1),
            expect_pps: None,
            block_timeout: Span::from_millis(100),
            overflow: Overflow::Wait,
            output: None,
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
