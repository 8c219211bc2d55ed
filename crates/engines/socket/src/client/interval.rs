//! Results of an interval: each stream between two readings of its counters, and the sums.

use std::time::Instant;

use wb_measure::Histogram;
use wb_model::socket::{SocketInterval, SocketIntervalStream};

use super::{role::StreamRole, shared_stream::SharedStream, window::CounterReading};

/// Two successive readings of all streams.
pub(super) struct ReadingPair<'a> {
    pub(super) streams: &'a [SharedStream],
    pub(super) names: &'a [String],
    pub(super) begin: &'a [CounterReading],
    pub(super) end: &'a [CounterReading],
    /// Length, s.
    pub(super) seconds: f64,
}

impl ReadingPair<'_> {
    /// The interval without its position in time. `transactions`: the test counts transactions.
    pub(super) fn interval_figures(
        &self,
        transactions: bool,
        latency: &Histogram,
    ) -> SocketInterval {
        let streams: Vec<SocketIntervalStream> = (0..self.streams.len())
            .map(|index| self.stream_figures(index))
            .collect();
        // Load streams are not part of the measurement.
        let sum = |of: fn(&SocketIntervalStream) -> f64, role: Option<StreamRole>| {
            let chosen = self.streams.iter().zip(&streams);
            let mut chosen = chosen
                .filter(|(stream, _)| !stream.load && role.is_none_or(|role| stream.role == role))
                .map(|(_, stream)| of(stream))
                .peekable();
            chosen.peek().is_some().then(|| chosen.sum::<f64>())
        };
        let bps = |role| sum(|stream| stream.throughput_bps, role);
        let foreground = self.streams.iter().zip(&streams);
        SocketInterval {
            units: foreground
                .filter(|(stream, _)| !stream.load)
                .map(|(_, stream)| stream.units)
                .sum(),
            throughput_bps: bps(None).filter(|_| !transactions).unwrap_or(0.0),
            up_bps: bps(Some(StreamRole::Up)),
            down_bps: bps(Some(StreamRole::Down)),
            transactions_per_second: sum(|stream| stream.transactions_per_second, None)
                .filter(|_| transactions)
                .unwrap_or(0.0),
            latency_ns: latency.summary(),
            tcp: self.end.iter().filter_map(|reading| reading.tcp).collect(),
            streams,
            ..SocketInterval::default()
        }
    }

    fn stream_figures(&self, index: usize) -> SocketIntervalStream {
        let (stream, begin, end) = (&self.streams[index], &self.begin[index], &self.end[index]);
        let role = stream.role;
        let per_second = |units: u64| match self.seconds > 0.0 {
            true => units as f64 / self.seconds,
            false => 0.0,
        };
        let more = |of: fn(&CounterReading) -> u64| of(end).saturating_sub(of(begin));
        let units = match role.is_stream() {
            true => more(|reading| reading.bytes),
            false => more(|reading| reading.transactions),
        };
        // A sender's buffers fill faster than the path carries.
        let arrived = match role {
            StreamRole::Up => more(CounterReading::acked_bytes),
            _ => units,
        };
        // The receiver's TCP does not know these.
        let sender = end.tcp.filter(|_| role != StreamRole::Down);
        let numbers = end.numbers.and_then(|end| {
            let begin = begin.numbers.unwrap_or_default();
            (end.came > begin.came).then_some((begin, end))
        });
        SocketIntervalStream {
            name: self.names.get(index).cloned().unwrap_or_default(),
            direction: role.direction(),
            units,
            throughput_bps: match role.is_stream() {
                true => 8.0 * per_second(arrived),
                false => 0.0,
            },
            transactions_per_second: match role.is_stream() {
                true => 0.0,
                false => per_second(units),
            },
            retransmissions: sender.map(|_| more(CounterReading::retransmissions)),
            cwnd: sender.map(|tcp| tcp.cwnd),
            rtt_us: sender.map(|tcp| tcp.rtt_us),
            datagrams: (stream.datagrams && role.is_stream())
                .then(|| more(|reading| reading.calls)),
            lost: numbers
                .map(|(begin, end)| end.missing.cast_signed() - begin.missing.cast_signed()),
            jitter_rfc3550_ns: numbers.and_then(|(_, end)| end.jitter_ns),
        }
    }
}

/// The running interval.
pub(super) struct RunningInterval {
    /// End of the interval.
    pub(super) due: Instant,
    since: Instant,
    begin: Vec<CounterReading>,
    /// Start of the previous interval, which a short remainder is added to.
    before: Option<(Instant, Vec<CounterReading>)>,
    latency: Histogram,
}

impl RunningInterval {
    pub(super) fn new(since: Instant, due: Instant, begin: Vec<CounterReading>) -> Self {
        Self {
            due,
            since,
            begin,
            before: None,
            latency: Histogram::new(),
        }
    }

    pub(super) fn start_time(&self) -> Instant {
        self.since
    }

    /// Extends the interval back to the start of the previous one. Returns false if there is none.
    pub(super) fn join_previous(&mut self) -> bool {
        let before = self.before.take();
        let joined = before.is_some();
        if let Some(before) = before {
            (self.since, self.begin) = before;
        }
        joined
    }

    /// Start of the interval and the times recorded in it, including those of the previous interval if joined to it.
    pub(super) fn start_readings(&mut self, joined: bool) -> (&[CounterReading], &mut Histogram) {
        if !joined {
            self.latency = Histogram::new();
        }
        (&self.begin, &mut self.latency)
    }

    /// Starts the next interval.
    pub(super) fn next(&mut self, now: Instant, readings: Vec<CounterReading>) {
        let begin = std::mem::replace(&mut self.begin, readings);
        self.before = Some((self.since, begin));
        self.since = now;
    }
}
