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

use crate::flags::Features;
use crate::framer::Generation;
use crate::words::{WordWriter, Words};

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

impl RequestExtension {
    pub(crate) fn read(words: Words<'_>) -> Option<Self> {
        is_marked(words, REQUEST).then(|| Self {
            features: Features(words.unsigned(MARK + 2)),
            busy_poll_us: words.unsigned(MARK + 3),
            pacing_rate: words.long(EXTENSION_AT + 16),
            omit_ms: words.unsigned(MARK + 6),
            streams: words.unsigned(MARK + 7),
            count: words.long(EXTENSION_AT + 32),
        })
    }

    pub(crate) fn write(&self, writer: &mut WordWriter) {
        mark(writer, REQUEST)
            .unsigned(MARK + 2, self.features.0)
            .unsigned(MARK + 3, self.busy_poll_us)
            .long(EXTENSION_AT + 16, self.pacing_rate)
            .unsigned(MARK + 6, self.omit_ms)
            .unsigned(MARK + 7, self.streams)
            .long(EXTENSION_AT + 32, self.count);
    }
}

impl ResponseExtension {
    pub(crate) fn read(words: Words<'_>) -> Option<Self> {
        is_marked(words, RESPONSE).then(|| Self {
            features: Features(words.unsigned(MARK + 2)),
            busy_poll_us: words.unsigned(MARK + 3),
            pacing_rate: words.long(EXTENSION_AT + 16),
            omit_ms: words.unsigned(MARK + 6),
            streams: words.unsigned(MARK + 7),
        })
    }

    pub(crate) fn write(&self, writer: &mut WordWriter) {
        mark(writer, RESPONSE)
            .unsigned(MARK + 2, self.features.0)
            .unsigned(MARK + 3, self.busy_poll_us)
            .long(EXTENSION_AT + 16, self.pacing_rate)
            .unsigned(MARK + 6, self.omit_ms)
            .unsigned(MARK + 7, self.streams);
    }
}

impl ResultsExtension {
    pub(crate) fn read(words: Words<'_>) -> Option<Self> {
        if !is_marked(words, RESULTS) {
            return None;
        }
        let has = words.unsigned(MARK + 2);
        let latency = (has & HAS_LATENCY != 0).then(|| LatencyFigures::read(words));
        Some(Self {
            elapsed_ns: words.long(400),
            bytes_after_omit: words.long(408),
            transactions_after_omit: words.long(416),
            datagrams: (has & HAS_DATAGRAMS != 0).then(|| DatagramFigures {
                latency,
                ..DatagramFigures::read(words)
            }),
            tcp: (has & HAS_TCP != 0).then(|| TcpFigures::read(words)),
        })
    }

    pub(crate) fn write(&self, writer: &mut WordWriter) {
        let latency = self.datagrams.and_then(|datagrams| datagrams.latency);
        let has = [
            (self.datagrams.is_some(), HAS_DATAGRAMS),
            (latency.is_some(), HAS_LATENCY),
            (self.tcp.is_some(), HAS_TCP),
        ]
        .into_iter()
        .filter(|(is_there, _)| *is_there)
        .fold(0, |has, (_, bit)| has | bit);
        mark(writer, RESULTS)
            .unsigned(MARK + 2, has)
            .long(400, self.elapsed_ns)
            .long(408, self.bytes_after_omit)
            .long(416, self.transactions_after_omit);
        if let Some(datagrams) = self.datagrams {
            datagrams.write(writer);
        }
        if let Some(latency) = latency {
            latency.write(writer);
        }
        if let Some(tcp) = self.tcp {
            tcp.write(writer);
        }
    }
}

impl DatagramFigures {
    const AT: usize = 424;

    /// Reads all figures except the latency.
    fn read(words: Words<'_>) -> Self {
        let figure = |index: usize| words.long(Self::AT + 8 * index);
        Self {
            received: figure(0),
            duplicates: figure(1),
            reordered: figure(2),
            highest_sequence: Some(figure(3)).filter(|highest| *highest != u64::MAX),
            foreign: figure(4),
            jitter_ns: figure(5),
            bytes: figure(6),
            latency: None,
        }
    }

    fn write(self, writer: &mut WordWriter) {
        let figures = [
            self.received,
            self.duplicates,
            self.reordered,
            self.highest_sequence.unwrap_or(u64::MAX),
            self.foreign,
            self.jitter_ns,
            self.bytes,
        ];
        for (index, figure) in figures.into_iter().enumerate() {
            writer.long(Self::AT + 8 * index, figure);
        }
    }

    /// Number of datagrams sent up to the highest number and never received. Datagrams after the highest one are lost
    /// as well; only the sender knows their number.
    pub fn missing(&self) -> u64 {
        let sent = self
            .highest_sequence
            .map_or(0, |highest| highest.saturating_add(1));
        sent.saturating_sub(self.received.saturating_sub(self.duplicates))
    }
}

impl LatencyFigures {
    const AT: usize = 480;

    fn read(words: Words<'_>) -> Self {
        let figure = |index: usize| words.long(Self::AT + 8 * index).cast_signed();
        Self {
            min_ns: figure(0),
            mean_ns: figure(1),
            max_ns: figure(2),
            p50_ns: figure(3),
            p99_ns: figure(4),
        }
    }

    fn write(self, writer: &mut WordWriter) {
        let figures = [
            self.min_ns,
            self.mean_ns,
            self.max_ns,
            self.p50_ns,
            self.p99_ns,
        ];
        for (index, figure) in figures.into_iter().enumerate() {
            writer.long(Self::AT + 8 * index, figure.cast_unsigned());
        }
    }
}

impl TcpFigures {
    const AT: usize = 520;
    const LONG_AT: usize = Self::AT + 48;

    fn read(words: Words<'_>) -> Self {
        let short = |index: usize| words.unsigned(Self::AT / 4 + index);
        let long = |index: usize| words.long(Self::LONG_AT + 8 * index);
        Self {
            rtt_us: short(0),
            rttvar_us: short(1),
            min_rtt_us: short(2),
            rcv_rtt_us: short(3),
            rcv_space: short(4),
            rcv_ssthresh: short(5),
            snd_cwnd: short(6),
            snd_mss: short(7),
            rcv_mss: short(8),
            pmtu: short(9),
            total_retrans: short(10),
            rcv_ooopack: short(11),
            pacing_rate: long(0),
            delivery_rate: long(1),
            bytes_received: long(2),
            busy_us: long(3),
            rwnd_limited_us: long(4),
            sndbuf_limited_us: long(5),
        }
    }

    fn write(self, writer: &mut WordWriter) {
        let short = [
            self.rtt_us,
            self.rttvar_us,
            self.min_rtt_us,
            self.rcv_rtt_us,
            self.rcv_space,
            self.rcv_ssthresh,
            self.snd_cwnd,
            self.snd_mss,
            self.rcv_mss,
            self.pmtu,
            self.total_retrans,
            self.rcv_ooopack,
        ];
        for (index, figure) in short.into_iter().enumerate() {
            writer.unsigned(Self::AT / 4 + index, figure);
        }
        let long = [
            self.pacing_rate,
            self.delivery_rate,
            self.bytes_received,
            self.busy_us,
            self.rwnd_limited_us,
            self.sndbuf_limited_us,
        ];
        for (index, figure) in long.into_iter().enumerate() {
            writer.long(Self::LONG_AT + 8 * index, figure);
        }
    }
}
