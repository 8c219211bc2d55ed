//! Computes the figures of an iteration from the results of its streams, and means over iterations.

use std::time::Duration;

use wb_measure::mean_of;
use wb_model::{
    report::Summary,
    socket::{CpuUse, DatagramReport, SocketFigures, SocketOmitted, SocketProtocol, SocketTest},
};
use wb_netperf_wire::{DatagramFigures, LatencyFigures};

use super::{
    remote_answers::RemoteResults, role::StreamRole, stream_thread::StreamThreadOutcome,
    window::WindowReadings,
};
use crate::{agreement::StreamLength, cpu::service_demand, flow::LoopEnd};

/// Results of one stream after an iteration.
#[derive(Debug)]
pub(super) struct StreamMeasurement {
    pub(super) role: StreamRole,
    pub(super) load: bool,
    pub(super) protocol: SocketProtocol,
    pub(super) length: StreamLength,
    pub(super) omit: Duration,
    pub(super) outcome: StreamThreadOutcome,
    /// The time all streams had in common, if that is evaluated.
    pub(super) span: Option<WindowReadings>,
    /// The part done during `omit`.
    pub(super) omitted: Option<SocketOmitted>,
    /// The server's results.
    pub(super) remote: Option<RemoteResults>,
}

/// Share of one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct StreamShare {
    /// Received rate; for transactions, both directions.
    pub(super) bits_per_second: f64,
    /// Rate sent by this end.
    pub(super) sent_bits_per_second: f64,
    pub(super) transactions_per_second: f64,
    pub(super) transactions: u64,
}

fn per_second(units: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        units as f64 / seconds
    } else {
        0.0
    }
}

impl StreamMeasurement {
    /// Time from before the first operation to the end of the tear-down, s.
    pub(super) fn elapsed_s(&self) -> f64 {
        let elapsed = self.outcome.elapsed();
        let waited_for_the_end = self.role == StreamRole::Down
            && !self.protocol.connects()
            && matches!(self.outcome.tally.ended, LoopEnd::Stopped);
        match self.length.time_limit() {
            // The datagram that marks the end was lost; the wait for it does not count.
            Some(time) if waited_for_the_end => elapsed.min(time).as_secs_f64(),
            _ => elapsed.as_secs_f64(),
        }
    }

    pub(super) fn share(&self) -> StreamShare {
        match &self.span {
            Some(span) => self.in_common(span),
            None => self.own_share(),
        }
    }

    /// Share over the stream's whole run time.
    fn own_share(&self) -> StreamShare {
        let seconds = self.elapsed_s();
        let tally = &self.outcome.tally;
        let sent_bits_per_second = 8.0 * per_second(tally.bytes_sent, seconds);
        let bits_per_second = match self.role {
            StreamRole::Up => 8.0 * per_second(self.arrived_bytes(), seconds),
            StreamRole::Down | StreamRole::Mss => 8.0 * per_second(tally.bytes_received, seconds),
            StreamRole::Rr | StreamRole::Crr | StreamRole::Cc => {
                8.0 * per_second(tally.bytes_received + tally.bytes_sent, seconds)
            }
        };
        StreamShare {
            bits_per_second,
            sent_bits_per_second,
            transactions_per_second: per_second(tally.transactions, seconds),
            transactions: tally.transactions,
        }
    }

    /// Bytes that reached the server: from its results, else from TCP acknowledgements, else all bytes sent.
    fn arrived_bytes(&self) -> u64 {
        let acked = self
            .outcome
            .effective
            .as_ref()
            .and_then(|known| known.tcp.as_ref());
        match (&self.remote, acked) {
            (Some(remote), _) => remote.bytes_received,
            (None, Some(tcp)) if self.protocol == SocketProtocol::Tcp => {
                // The SYN counts as a byte in some kernels.
                tcp.bytes_acked.min(self.outcome.tally.bytes_sent)
            }
            (None, _) => self.outcome.tally.bytes_sent,
        }
    }

    /// Share over the common time.
    fn in_common(&self, span: &WindowReadings) -> StreamShare {
        let both_ways = (span.bits_per_second(), span.transactions_per_second());
        let tally = &self.outcome.tally;
        let sent_part = match self.role {
            StreamRole::Up => 1.0,
            StreamRole::Down | StreamRole::Mss | StreamRole::Cc => 0.0,
            StreamRole::Rr | StreamRole::Crr => {
                let all = (tally.bytes_sent + tally.bytes_received).max(1);
                tally.bytes_sent as f64 / all as f64
            }
        };
        StreamShare {
            bits_per_second: match self.role {
                StreamRole::Up => self.up_in_common(span),
                _ => both_ways.0,
            },
            sent_bits_per_second: both_ways.0 * sent_part,
            transactions_per_second: both_ways.1,
            transactions: span.transactions(),
        }
    }

    /// Upload rate over the common time, from TCP acknowledgements if available. Otherwise from the server's count;
    /// its time is nearly the same because all streams start and stop together.
    fn up_in_common(&self, span: &WindowReadings) -> f64 {
        if self.protocol == SocketProtocol::Tcp
            && let Some(acked) = span.acked_bits_per_second()
        {
            return acked;
        }
        let Some(remote) = &self.remote else {
            return span.bits_per_second();
        };
        let elapsed = self.elapsed_s();
        match remote.extension.filter(|_| self.omit > Duration::ZERO) {
            Some(more) => {
                8.0 * per_second(more.bytes_after_omit, elapsed - self.omit.as_secs_f64())
            }
            None => 8.0 * per_second(remote.bytes_received, elapsed),
        }
    }
}

/// Figures of all streams together. CPU use is included if it is known.
pub(super) fn sum_figures(
    test: SocketTest,
    streams: &[StreamMeasurement],
    local_cpu: Option<CpuUse>,
    remote_cpu: Option<CpuUse>,
) -> SocketFigures {
    let mut figures = SocketFigures::default();
    let mut reverse = 0.0;
    let mut seconds = Vec::new();
    for stream in streams.iter().filter(|stream| !stream.load) {
        let share = stream.share();
        if test == SocketTest::Both && stream.role == StreamRole::Down {
            reverse += share.bits_per_second;
        } else {
            figures.throughput_bps += share.bits_per_second;
        }
        figures.sent_bps += share.sent_bits_per_second;
        figures.transactions_per_second += share.transactions_per_second;
        figures.transactions += share.transactions;
        seconds.push(
            stream
                .span
                .map_or_else(|| stream.elapsed_s(), |span| span.seconds()),
        );
    }
    figures.elapsed_s = mean_of(&seconds);
    figures.reverse_bps = (test == SocketTest::Both).then_some(reverse);
    figures.local_cpu = local_cpu;
    figures.remote_cpu = remote_cpu;
    // CPU use covers the whole run of all streams, so the work must too.
    let work: f64 = streams
        .iter()
        .map(|stream| {
            let tally = &stream.outcome.tally;
            let kibibytes = (tally.bytes_sent + tally.bytes_received) as f64 / 1024.0;
            let units = if test.counts_transactions() {
                if stream.load {
                    0.0
                } else {
                    tally.transactions as f64
                }
            } else {
                kibibytes
            };
            let elapsed = stream.elapsed_s();
            if elapsed > 0.0 { units / elapsed } else { 0.0 }
        })
        .sum();
    figures.local_service_demand = local_cpu.map(|cpu| service_demand(&cpu, work));
    figures.remote_service_demand = remote_cpu.map(|cpu| service_demand(&cpu, work));
    figures
}

/// Means over the iterations; the busiest CPU and the number of CPUs are those of the last iteration.
pub(super) fn mean_figures(iterations: &[SocketFigures]) -> SocketFigures {
    let mean = |of: fn(&SocketFigures) -> f64| {
        let values: Vec<f64> = iterations.iter().map(of).collect();
        mean_of(&values)
    };
    let optional = |of: fn(&SocketFigures) -> Option<f64>| {
        let values: Vec<f64> = iterations.iter().filter_map(of).collect();
        (!values.is_empty()).then(|| mean_of(&values))
    };
    let transactions = mean(|figures| figures.transactions as f64).round();
    SocketFigures {
        elapsed_s: mean(|figures| figures.elapsed_s),
        throughput_bps: mean(|figures| figures.throughput_bps),
        reverse_bps: optional(|figures| figures.reverse_bps),
        sent_bps: mean(|figures| figures.sent_bps),
        transactions_per_second: mean(|figures| figures.transactions_per_second),
        // A mean of counts is not negative.
        transactions: transactions as u64,
        local_cpu: mean_cpu(iterations.iter().filter_map(|figures| figures.local_cpu)),
        remote_cpu: mean_cpu(iterations.iter().filter_map(|figures| figures.remote_cpu)),
        local_service_demand: optional(|figures| figures.local_service_demand),
        remote_service_demand: optional(|figures| figures.remote_service_demand),
    }
}

/// Mean of several readings of a host's CPUs.
pub(super) fn mean_cpu(readings: impl Iterator<Item = CpuUse>) -> Option<CpuUse> {
    let readings: Vec<CpuUse> = readings.collect();
    let last = *readings.last()?;
    let mean = |of: fn(&CpuUse) -> f64| {
        let values: Vec<f64> = readings.iter().map(of).collect();
        mean_of(&values)
    };
    Some(CpuUse {
        total: mean(|cpu| cpu.total),
        user: mean(|cpu| cpu.user),
        system: mean(|cpu| cpu.system),
        iowait: mean(|cpu| cpu.iowait),
        irq: mean(|cpu| cpu.irq),
        softirq: mean(|cpu| cpu.softirq),
        peak: mean(|cpu| cpu.peak),
        ..last
    })
}

/// The result by which the confidence of repetitions is judged.
pub(super) fn confidence_result(test: SocketTest, figures: &SocketFigures) -> f64 {
    if test.counts_transactions() {
        figures.transactions_per_second
    } else {
        figures.throughput_bps + figures.reverse_bps.unwrap_or(0.0)
    }
}

/// Datagram report from sequence numbers, with the server's receive counts and our send count.
pub(super) fn datagram_report(sent: u64, seen: &DatagramFigures) -> DatagramReport {
    let one_way = seen
        .latency
        .map_or_else(Summary::default, |latency: LatencyFigures| Summary {
            samples: seen.received,
            min: Some(latency.min_ns),
            // Precise enough: a mean above 2⁵³ ns would be a hundred days.
            mean: Some(latency.mean_ns as f64),
            p50: Some(latency.p50_ns),
            p99: Some(latency.p99_ns),
            max: Some(latency.max_ns),
            ..Summary::default()
        });
    DatagramReport {
        sent,
        received: seen.received,
        lost: sent.saturating_sub(seen.received.saturating_sub(seen.duplicates)),
        duplicate: seen.duplicates,
        reordered: seen.reordered,
        foreign: seen.foreign,
        // Jitter needs two arrivals.
        jitter_rfc3550_ns: (seen.received.saturating_sub(seen.duplicates) > 1)
            .then_some(seen.jitter_ns as f64),
        one_way_ns: one_way,
    }
}

/// Merges the datagram reports of several streams. Summaries cannot be merged exactly: extremes and mean stay,
/// percentiles are dropped.
pub(super) fn add_datagrams(sum: Option<DatagramReport>, more: DatagramReport) -> DatagramReport {
    let Some(sum) = sum else { return more };
    let least = |a: Option<i64>, b: Option<i64>| a.into_iter().chain(b).min();
    let most = |a: Option<i64>, b: Option<i64>| a.into_iter().chain(b).max();
    let (a, b) = (sum.one_way_ns, more.one_way_ns);
    let samples = a.samples + b.samples;
    let weighted = |s: &Summary| s.mean.map(|mean| mean * s.samples as f64);
    let total: Option<f64> = match (weighted(&a), weighted(&b)) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or(0.0) + b.unwrap_or(0.0)),
    };
    let jitters = [sum.jitter_rfc3550_ns, more.jitter_rfc3550_ns];
    DatagramReport {
        sent: sum.sent + more.sent,
        received: sum.received + more.received,
        lost: sum.lost + more.lost,
        duplicate: sum.duplicate + more.duplicate,
        reordered: sum.reordered + more.reordered,
        foreign: sum.foreign + more.foreign,
        // The worst of several streams.
        jitter_rfc3550_ns: jitters.into_iter().flatten().reduce(f64::max),
        one_way_ns: Summary {
            samples,
            min: least(a.min, b.min),
            mean: total
                .filter(|_| samples > 0)
                .map(|total| total / samples as f64),
            max: most(a.max, b.max),
            ..Summary::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_takes_two_arrivals() {
        let jitter = |received, duplicates| {
            let seen = DatagramFigures {
                received,
                duplicates,
                ..DatagramFigures::default()
            };
            datagram_report(9, &seen).jitter_rfc3550_ns
        };
        assert_eq!([jitter(0, 0), jitter(1, 0), jitter(3, 2)], [None; 3]);
        assert_eq!(jitter(2, 0), Some(0.0));
    }
}
