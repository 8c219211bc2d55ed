//! Jobs that capture: ports, filter and output.

pub mod figures;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Span;

/// Capture of the frames of one or more ports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CaptureJob {
    /// Name in the report, if a plan has several captures. Default or empty: a word and its number.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Names of the ports. Their frames go into one output, with a separate interface for each port.
    pub ports: Vec<String>,
    /// Capture filter in the syntax of pcap-filter(7). Empty: all frames.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub filter: String,
    /// Bytes to keep of each frame, 1 to 262144 (default 262144).
    pub snap_len: u32,
    /// Direction of the frames (default `inout`).
    #[serde(skip_serializing_if = "is_default")]
    pub direction: Direction,
    /// Receive frames for any destination address (default true).
    pub promiscuous: bool,
    /// Number of frames to keep. The capture then ends, and further frames are only counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::count::optional_count")]
    pub count: Option<u64>,
    /// Time after which the capture stops (default: at a signal or the end of a file).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// Total file size in bytes at which the capture ends. Frames that were read before are still written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_octets: Option<u64>,
    /// Longest stall of the reader without loss at the expected rate (default 1s). It determines the size of the
    /// receive ring.
    pub stall: Span,
    /// Expected frames per second (default: from the link speed; if that is unknown, the ring has 512 MiB, or an eighth
    /// of the memory if that is less).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::count::optional_count")]
    pub expect_pps: Option<u64>,
    /// Time after which the kernel passes on a block that is not full, 1ms to 1s (default 100ms).
    pub block_timeout: Span,
    /// Distribute the frames of a port among several readers in turn instead of by flow or receive queue: for traffic
    /// with a single flow.
    #[serde(skip_serializing_if = "is_default")]
    pub single_flow: bool,
    /// Source of timestamps (default `host`).
    #[serde(skip_serializing_if = "is_default")]
    pub stamps: Stamps,
    /// Poll for frames continuously, without sleeping.
    #[serde(skip_serializing_if = "is_default")]
    pub busy: bool,
    /// Run readers with priority over all ordinary threads (SCHED_FIFO, priority 1). Requires two CPUs.
    #[serde(skip_serializing_if = "is_default")]
    pub realtime: bool,
    /// Switch off offloads that merge and split segments (GRO, LRO, TSO, GSO) on the interfaces, to capture frames as
    /// on the wire. The settings are restored at the end.
    #[serde(skip_serializing_if = "is_default")]
    pub offloads_off: bool,
    /// User to switch to after the ports are open; this user then owns the files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Behavior if frames arrive faster than they can be written (default `wait`).
    #[serde(skip_serializing_if = "is_default")]
    pub overflow: Overflow,
    /// Output. Without it, frames are only counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<CaptureOutput>,
}

/// Direction of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Both directions.
    #[default]
    Inout,
    /// Received frames.
    In,
    /// Sent frames.
    Out,
}

/// Source of timestamps, with tcpdump's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stamps {
    /// The kernel, with its clock.
    #[default]
    Host,
    /// The network card, with its clock synchronized to the host (phc2sys).
    Adapter,
    /// The network card, with its unsynchronized clock.
    AdapterUnsynced,
}

/// Behavior if frames arrive faster than they can be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Overflow {
    /// The reader waits; the ring of the kernel fills, and the kernel counts the frames that it drops.
    #[default]
    Wait,
    /// The reader drops and counts the newest frames.
    DropNewest,
}

/// Behavior if the disk is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnFull {
    /// The capture ends; frames that were read but not written are counted.
    #[default]
    Stop,
    /// The oldest finished file of this capture is removed, and the capture continues. If there is no such file, the
    /// capture ends.
    RotateDelete,
}

/// Use of direct writes, which bypass the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DirectWrites {
    /// Once the rate exceeds 100 MB per second, because the page cache would fill up and then block the writer.
    #[default]
    Auto,
    /// From the start.
    Always,
    /// Never.
    Never,
}

/// Format of a capture file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FileFormat {
    /// pcapng with nanoseconds, interfaces and drop counters.
    #[default]
    Pcapng,
    /// pcap with nanoseconds.
    PcapNs,
    /// pcap with microseconds.
    Pcap,
}

/// Compression of a capture file, in blocks of up to 4 MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// Zstandard (RFC 8878), level 1.
    Zstd,
    /// LZ4 frames.
    Lz4,
    /// gzip (RFC 1952), level 1.
    Gzip,
}

/// Returns format and compression for the suffix of a file name: `x.pcap.zst` is pcap, compressed with zstd. Without a
/// known suffix it is pcapng without compression.
pub fn by_name(name: &str) -> (FileFormat, Compression) {
    let name = name.to_ascii_lowercase();
    let packed = [
        (".zst", Compression::Zstd),
        (".lz4", Compression::Lz4),
        (".gz", Compression::Gzip),
    ];
    let ending = packed.iter().find(|(ending, _)| name.ends_with(ending));
    let inner = ending.map_or(&name[..], |(ending, _)| &name[..name.len() - ending.len()]);
    let format = if inner.ends_with(".pcap") || inner.ends_with(".cap") {
        FileFormat::PcapNs
    } else {
        FileFormat::Pcapng
    };
    (
        format,
        ending.map_or(Compression::None, |(_, compression)| *compression),
    )
}

/// Capture file, or a series of files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CaptureOutput {
    /// Path of the file; `-` is standard output.
    pub path: String,
    /// File format (default `pcapng`).
    pub format: FileFormat,
    /// Compression (default `none`).
    #[serde(skip_serializing_if = "is_default")]
    pub compress: Compression,
    /// Size in bytes before compression after which the next file starts; 0 means never.
    #[serde(skip_serializing_if = "is_default")]
    pub rotate_bytes: u64,
    /// Time after the first frame of a file after which the next file starts. For the first file the time starts when
    /// it is opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotate_time: Option<Span>,
    /// Start the next file at multiples of `rotate_time` since 1970.
    #[serde(skip_serializing_if = "is_default")]
    pub rotate_aligned: bool,
    /// With `rotate_time`: replace an earlier file with the same name, as tcpdump -G does. Without `overwrite`, a
    /// number is added to the name.
    #[serde(skip_serializing_if = "is_default")]
    pub overwrite: bool,
    /// Number of frames after which the next file starts; 0: never (default 0).
    #[serde(skip_serializing_if = "is_default")]
    #[serde(deserialize_with = "crate::units::count::count")]
    pub rotate_frames: u64,
    /// Number of files to keep; the oldest file is overwritten. 0 keeps all files.
    #[serde(skip_serializing_if = "is_default")]
    pub files: u32,
    /// Number of full files after which the capture ends; 0 means never.
    #[serde(skip_serializing_if = "is_default")]
    pub file_limit: u32,
    /// Maximum time before a partly filled buffer is written (default 1 s).
    pub flush: Span,
    /// Behavior if the disk is full (default `stop`).
    #[serde(skip_serializing_if = "is_default")]
    pub on_enospc: OnFull,
    /// Free space in bytes below which the oldest finished files of this capture are removed; 0 means never.
    #[serde(skip_serializing_if = "is_default")]
    pub keep_free: u64,
    /// Name unfinished files `NAME.part`. A file with the final name is complete and on the disk.
    #[serde(skip_serializing_if = "is_default")]
    pub part: bool,
    /// Program to run for each finished file, with the file as its only argument.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Interval at which the file is synced to disk, in addition to when it is finished; 0s means only when it is
    /// finished. Without it, the system decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync: Option<Span>,
    /// Use of direct writes (O_DIRECT), which bypass the page cache, if the file system supports them (default `auto`).
    #[serde(skip_serializing_if = "is_default")]
    pub direct: DirectWrites,
    /// Size of a buffer in bytes, a power of two from 64 KiB to 16 MiB (default 4 MiB).
    pub buffer_bytes: u32,
    /// Number of buffers between reader and writer, 2 to 4096 (default 64).
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
            rotate_aligned: false,
            overwrite: false,
            rotate_frames: 0,
            files: 0,
            file_limit: 0,
            flush: Span::from_secs(1),
            on_enospc: OnFull::Stop,
            keep_free: 0,
            part: false,
            command: None,
            sync: None,
            direct: DirectWrites::Auto,
            buffer_bytes: 4 << 20,
            buffers: 64,
        }
    }
}

impl Default for CaptureJob {
    fn default() -> Self {
        Self {
            name: String::new(),
            ports: Vec::new(),
            filter: String::new(),
            snap_len: 262_144,
            direction: Direction::Inout,
            promiscuous: true,
            count: None,
            duration: None,
            stop_octets: None,
            stall: Span::from_secs(1),
            expect_pps: None,
            block_timeout: Span::from_millis(100),
            single_flow: false,
            stamps: Stamps::Host,
            busy: false,
            realtime: false,
            offloads_off: false,
            user: None,
            overflow: Overflow::Wait,
            output: None,
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_tells_the_format() {
        use Compression::{Gzip, Lz4, None, Zstd};
        use FileFormat::{PcapNs, Pcapng};
        for (name, expected) in [
            ("a", (Pcapng, None)),
            ("a.pcapng", (Pcapng, None)),
            ("a.pcap", (PcapNs, None)),
            ("x.cap", (PcapNs, None)),
            ("dir.pcap/a", (Pcapng, None)),
            ("A.CAP.zst", (PcapNs, Zstd)),
            ("a.pcapng.lz4", (Pcapng, Lz4)),
            ("y.pcap.gz", (PcapNs, Gzip)),
            ("a.gz", (Pcapng, Gzip)),
            ("-", (Pcapng, None)),
        ] {
            assert_eq!(by_name(name), expected, "{name}");
        }
    }
}
