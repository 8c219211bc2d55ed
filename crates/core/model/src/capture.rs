//! Jobs that capture: which ports, which frames, and where they go.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Span;

/// Ports whose frames are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CaptureJob {
    /// What the report calls it, where a plan has several. Empty, as without: a word and its number.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
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
    /// End when the files have so many bytes together; what was read by then is written too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_octets: Option<u64>,
    /// How long the receiver may stand still without a loss, at the rate expected: with it the
    /// receive ring is sized.
    pub stall: Span,
    /// Frames per second to expect. Without it the speed of the link says; where that is not known the
    /// ring has 512 MiB, or an eighth of the memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expect_pps: Option<u64>,
    /// When the kernel hands over a block that is not full; 1ms to 1s.
    pub block_timeout: Span,
    /// Several readers of a port get frames in turn, not by flow or receive queue: for traffic that
    /// is a single flow.
    #[serde(skip_serializing_if = "is_default")]
    pub single_flow: bool,
    /// Who stamps the frames.
    #[serde(skip_serializing_if = "is_default")]
    pub stamps: Stamps,
    /// Readers look for frames all the time, and never sleep.
    #[serde(skip_serializing_if = "is_default")]
    pub busy: bool,
    /// Readers run before all ordinary threads (SCHED_FIFO, priority 1). Needs two CPUs.
    #[serde(skip_serializing_if = "is_default")]
    pub realtime: bool,
    /// Switch off what joins and cuts segments (GRO, LRO, TSO, GSO) on the interfaces, so that frames
    /// are seen as they were on the wire. It is put back at the end.
    #[serde(skip_serializing_if = "is_default")]
    pub offloads_off: bool,
    /// Become this user when the ports are open; then the files are his.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
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

/// Who stamps frames, as tcpdump names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stamps {
    /// The kernel, by its clock.
    #[default]
    Host,
    /// The network card, whose clock is kept in step with the host's (phc2sys).
    Adapter,
    /// The network card, by whatever its clock says.
    AdapterUnsynced,
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

/// What happens when the disk is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnFull {
    /// The capture ends; what was read and found no place is counted.
    #[default]
    Stop,
    /// The oldest finished file of this capture is removed, and it goes on. Without one it ends.
    RotateDelete,
}

/// Whether files are written past the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DirectWrites {
    /// From the moment on when more than 100 MB come in a second: the page cache would fill with
    /// them, and then let the writer wait.
    #[default]
    Auto,
    /// From the start.
    Always,
    /// Not at all.
    Never,
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

/// Compression of a capture file, piece by piece of up to 4 MiB.
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
    /// gzip (RFC 1952), level 1.
    Gzip,
}

/// Form and compression that the end of a file name asks for: `x.pcap.zst` is pcap, compressed by zstd. Without
/// an end that is known it is pcapng, not compressed.
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
    /// Begin the next file when a frame is this much later than the first of the file; of the first file
    /// the time begins when it is opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotate_time: Option<Span>,
    /// Begin the next file at multiples of `rotate_time` since 1970.
    #[serde(skip_serializing_if = "is_default")]
    pub rotate_aligned: bool,
    /// With `rotate_time`, a file replaces an earlier one of the same name, as with tcpdump -G. Without
    /// `overwrite` the name gets a number.
    #[serde(skip_serializing_if = "is_default")]
    pub overwrite: bool,
    /// Begin the next file after so many frames; 0: never.
    #[serde(skip_serializing_if = "is_default")]
    pub rotate_frames: u64,
    /// Keep so many files and write over the oldest; 0: keep all.
    #[serde(skip_serializing_if = "is_default")]
    pub files: u32,
    /// End the capture after this number of full files; 0: never.
    #[serde(skip_serializing_if = "is_default")]
    pub file_limit: u32,
    /// Hand partial buffers to the file at least so often.
    pub flush: Span,
    /// What happens when the disk is full.
    #[serde(skip_serializing_if = "is_default")]
    pub on_enospc: OnFull,
    /// Remove the oldest finished files of this capture when the file system has less room than this,
    /// in bytes; 0: never.
    #[serde(skip_serializing_if = "is_default")]
    pub keep_free: u64,
    /// A file that is not finished is called `NAME.part`; what has its name is whole and on the disk.
    #[serde(skip_serializing_if = "is_default")]
    pub part: bool,
    /// A program that is run for each finished file, with the file as its only argument.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Bring the file to the disk so often, and when it is finished; 0s: only then. Without it the
    /// system decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync: Option<Span>,
    /// Whether files are written past the page cache (O_DIRECT), where the file system can.
    #[serde(skip_serializing_if = "is_default")]
    pub direct: DirectWrites,
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
