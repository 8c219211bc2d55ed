//! Extension of netperf's messages between two wirebench peers.
//!
//! netperf's own fields end at byte 292 at the latest; netperf ignores the bytes behind them and leaves them zero. At
//! byte [`EXTENSION_AT`] we write a mark, a version and fixed fields. The mark differs for each of the three messages,
//! so that a reflected request does not pass for an answer. Later versions may only append fields and name bits that
//! are zero today, so each side reads the fields that it knows.
//!
//! A client marks its request. A server without the extension leaves zeros in the response, and the test follows
//! netperf's protocol. Messages of 64 words have no room for the extension.
//!
//! | offset | request | response | results |
//! |---|---|---|---|
//! | 384 | `wbRq` | `wbRs` | `wbRt` |
//! | 388 | version | version | version |
//! | 392 | features requested | features granted | figures present |
//! | 396 | busy_poll_us | busy_poll_us | 0 |
//! | 400 | pacing_rate (8 bytes) | pacing_rate | elapsed_ns (8 bytes) |
//! | 408 | omit_ms | omit_ms | bytes_after_omit (8 bytes) |
//! | 412 | streams | streams | |
//! | 416 | count (8 bytes) | | transactions_after_omit (8 bytes) |
//! | 424 | | | datagrams: 7 × 8 bytes |
//! | 480 | | | one-way latency: 5 × 8 bytes |
//! | 520 | | | TCP: 12 × 4 bytes, 6 × 8 bytes, up to 616 |

use crate::error::BadMessage;
use crate::flags::Features;
use crate::framer::Generation;
use crate::words::{WordWriter, Words, wire_table};

/// Offset of the extension, in bytes.
pub const EXTENSION_AT: usize = 384;

/// Version that we write.
pub const EXTENSION_VERSION: u32 = 1;

/// Word of the mark.
const MARK: usize = EXTENSION_AT / 4;
const REQUEST: u32 = u32::from_be_bytes(*b"wbRq");
const RESPONSE: u32 = u32::from_be_bytes(*b"wbRs");
const RESULTS: u32 = u32::from_be_bytes(*b"wbRt");

const HAS_DATAGRAMS: u32 = 1;
const HAS_LATENCY: u32 = 2;
const HAS_TCP: u32 = 4;

/// Returns true if the message has this mark and a valid version.
fn is_marked(words: Words<'_>, mark: u32) -> bool {
    words.generation == Generation::Words164
        && words.unsigned(MARK) == mark
        && words.unsigned(MARK + 1) >= EXTENSION_VERSION
}

fn mark(writer: &mut WordWriter, mark: u32) -> &mut WordWriter {
    writer
        .unsigned(MARK, mark)
        .unsigned(MARK + 1, EXTENSION_VERSION)
}

/// Extension of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestExtension {
    /// Requested features. Bits of later versions are preserved.
    pub features: Features,
    /// SO_BUSY_POLL on the server's data sockets, µs; 0 for none.
    pub busy_poll_us: u32,
    /// SO_MAX_PACING_RATE for the server's data, in bytes per second; 0 for none.
    pub pacing_rate: u64,
    /// Warm-up that is excluded from the counts, in ms.
    pub omit_ms: u32,
    /// Number of data connections of this test. Reserved; 0.
    pub streams: u32,
    /// Bytes or transactions after which the test ends; 0 for none. Only for counts too large for
    /// [`TestLength`](crate::TestLength), which is `UntilTold` then.
    pub count: u64,
}

/// Extension of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseExtension {
    /// Granted features.
    pub features: Features,
    /// SO_BUSY_POLL in effect, µs.
    pub busy_poll_us: u32,
    /// SO_MAX_PACING_RATE in effect, bytes per second.
    pub pacing_rate: u64,
    /// Warm-up that the server will exclude, in ms.
    pub omit_ms: u32,
    /// Reserved; 0.
    pub streams: u32,
}

/// Extension of results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResultsExtension {
    /// Duration of the counts on the server's clock, in ns, without warm-up.
    pub elapsed_ns: u64,
    /// Bytes sent and received after the warm-up.
    pub bytes_after_omit: u64,
    /// Transactions after the warm-up.
    pub transactions_after_omit: u64,
    /// Figures of tests with [`Features::UDP_TAGGED`].
    pub datagrams: Option<DatagramFigures>,
    /// Figures of the server's TCP connection at its end.
    pub tcp: Option<TcpFigures>,
}

/// Statistics from the tags of received datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramFigures {
    /// Datagrams with a tag of this test, duplicates included.
    pub received: u64,
    /// Datagrams received more than once.
    pub duplicates: u64,
    /// Datagrams received after one with a higher number.
    pub reordered: u64,
    /// Highest sequence number received, from 0; `None` if no datagram arrived. 2⁶⁴ − 1 cannot be sent.
    pub highest_sequence: Option<u64>,
    /// Datagrams without a tag of this test.
    pub foreign: u64,
    /// Jitter according to RFC 3550 section 6.4.1, in ns.
    pub jitter_ns: u64,
    /// Bytes of tagged datagrams, duplicates included.
    pub bytes: u64,
    /// One-way latency, if any datagram was received.
    pub latency: Option<LatencyFigures>,
}

/// One-way latency from the timestamps in tags, in ns. May be negative, because the clocks of the hosts differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyFigures {
    /// Minimum.
    pub min_ns: i64,
    /// Mean.
    pub mean_ns: i64,
    /// Maximum.
    pub max_ns: i64,
    /// Median.
    pub p50_ns: i64,
    /// 99th percentile.
    pub p99_ns: i64,
}

/// TCP_INFO of the server's connection before it was closed, with the kernel's names and units: times in µs, rates in
/// bytes per second, windows in bytes except `snd_cwnd` in segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of linux/tcp.h")]
pub struct TcpFigures {
    pub rtt_us: u32,
    pub rttvar_us: u32,
    pub min_rtt_us: u32,
    pub rcv_rtt_us: u32,
    pub rcv_space: u32,
    pub rcv_ssthresh: u32,
    pub snd_cwnd: u32,
    pub snd_mss: u32,
    pub rcv_mss: u32,
    pub pmtu: u32,
    pub total_retrans: u32,
    pub rcv_ooopack: u32,
    pub pacing_rate: u64,
    pub delivery_rate: u64,
    pub bytes_received: u64,
    pub busy_us: u64,
    pub rwnd_limited_us: u64,
    pub sndbuf_limited_us: u64,
}

wire_table! {
    RequestExtension {
        features: features(MARK + 2),
        busy_poll_us: unsigned(MARK + 3),
        pacing_rate: long(EXTENSION_AT + 16),
        omit_ms: unsigned(MARK + 6),
        streams: unsigned(MARK + 7),
        count: long(EXTENSION_AT + 32),
    }
}

impl RequestExtension {
    pub(crate) fn read(words: Words<'_>) -> Result<Option<Self>, BadMessage> {
        let is_there = is_marked(words, REQUEST);
        is_there.then(|| Self::read_table(words)).transpose()
    }

    pub(crate) fn write(&self, writer: &mut WordWriter) {
        self.write_table(mark(writer, REQUEST));
    }
}

wire_table! {
    ResponseExtension {
        features: features(MARK + 2),
        busy_poll_us: unsigned(MARK + 3),
        pacing_rate: long(EXTENSION_AT + 16),
        omit_ms: unsigned(MARK + 6),
        streams: unsigned(MARK + 7),
    }
}

impl ResponseExtension {
    pub(crate) fn read(words: Words<'_>) -> Result<Option<Self>, BadMessage> {
        let is_there = is_marked(words, RESPONSE);
        is_there.then(|| Self::read_table(words)).transpose()
    }

    pub(crate) fn write(&self, writer: &mut WordWriter) {
        self.write_table(mark(writer, RESPONSE));
    }
}

wire_table! {
    ResultsExtension {
        elapsed_ns: long(400),
        bytes_after_omit: long(408),
        transactions_after_omit: long(416),
    } ..Self::default()
}

impl ResultsExtension {
    pub(crate) fn read(words: Words<'_>) -> Result<Option<Self>, BadMessage> {
        if !is_marked(words, RESULTS) {
            return Ok(None);
        }
        let has = |bit| words.unsigned(MARK + 2) & bit != 0;
        let mut extension = Self::read_table(words)?;
        if has(HAS_DATAGRAMS) {
            let mut datagrams = DatagramFigures::read_table(words)?;
            if has(HAS_LATENCY) {
                datagrams.latency = Some(LatencyFigures::read_table(words)?);
            }
            extension.datagrams = Some(datagrams);
        }
        if has(HAS_TCP) {
            extension.tcp = Some(TcpFigures::read_table(words)?);
        }
        Ok(Some(extension))
    }

    pub(crate) fn write(&self, writer: &mut WordWriter) {
        self.write_table(mark(writer, RESULTS));
        let mut has = 0;
        if let Some(datagrams) = self.datagrams {
            has |= HAS_DATAGRAMS;
            datagrams.write_table(writer);
            if let Some(latency) = datagrams.latency {
                has |= HAS_LATENCY;
                latency.write_table(writer);
            }
        }
        if let Some(tcp) = self.tcp {
            has |= HAS_TCP;
            tcp.write_table(writer);
        }
        writer.unsigned(MARK + 2, has);
    }
}

wire_table! {
    DatagramFigures {
        received: long(424),
        duplicates: long(432),
        reordered: long(440),
        highest_sequence: optional_long(448),
        foreign: long(456),
        jitter_ns: long(464),
        bytes: long(472),
    } ..Self::default()
}

impl DatagramFigures {
    /// Number of datagrams sent up to the highest number and never received. Datagrams after the highest one are lost
    /// as well; only the sender knows their number.
    pub fn missing(&self) -> u64 {
        let sent = self
            .highest_sequence
            .map_or(0, |highest| highest.saturating_add(1));
        sent.saturating_sub(self.received.saturating_sub(self.duplicates))
    }
}

wire_table! {
    LatencyFigures {
        min_ns: signed_long(480),
        mean_ns: signed_long(488),
        max_ns: signed_long(496),
        p50_ns: signed_long(504),
        p99_ns: signed_long(512),
    }
}

wire_table! {
    TcpFigures {
        rtt_us: unsigned(130),
        rttvar_us: unsigned(131),
        min_rtt_us: unsigned(132),
        rcv_rtt_us: unsigned(133),
        rcv_space: unsigned(134),
        rcv_ssthresh: unsigned(135),
        snd_cwnd: unsigned(136),
        snd_mss: unsigned(137),
        rcv_mss: unsigned(138),
        pmtu: unsigned(139),
        total_retrans: unsigned(140),
        rcv_ooopack: unsigned(141),
        pacing_rate: long(568),
        delivery_rate: long(576),
        bytes_received: long(584),
        busy_us: long(592),
        rwnd_limited_us: long(600),
        sndbuf_limited_us: long(608),
    }
}
