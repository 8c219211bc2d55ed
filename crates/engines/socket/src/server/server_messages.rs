//! Builds the response and the results in the kind of message that the client used.

use wb_model::{report::Summary, socket::ReceiveBy};
use wb_netperf_wire::{
    ClassicResponse, ClassicResults, CpuMethod, DatagramFigures, Flags, Generation, LatencyFigures,
    Name, OmniResponse, OmniResults, ResultsExtension, ResultsLayout, TestLength,
};

use super::{
    prepare::ResponseFacts,
    requested_test::{DataExchange, MessageKind},
    running_test::TestOutcome,
};
use crate::{agreement, flow::TagReport};

/// Clock ticks per second on Linux: the result of the CPU calibration.
pub(super) const CPU_RATE: f32 = 100.0;

/// Response: the server is ready.
pub(super) fn ready_message(
    facts: &ResponseFacts,
    measures_cpu: bool,
    generation: Generation,
) -> Vec<u8> {
    let ask = &facts.ask;
    let now = &facts.effective;
    let cpu_rate = if measures_cpu { CPU_RATE } else { 0.0 };
    let no_delay = ask.options.no_delay && now.no_delay;
    match ask.talk {
        MessageKind::Omni => OmniResponse {
            receive_buffer: Some(now.receive_buffer),
            receive_size: facts.receive_size.or(ask.side.receive_size),
            receive_width: facts.receive_width,
            send_buffer: Some(now.send_buffer),
            send_size: facts.send_size.or(ask.side.send_size),
            send_width: facts.send_width,
            flags: Flags::NONE
                .with_if(no_delay, Flags::NO_DELAY)
                .with_if(measures_cpu, Flags::MEASURE_CPU),
            cpu_rate,
            receive_avoid: ask.side.receive_by != ReceiveBy::Copy,
            send_avoid: ask.send_avoid,
            data_port: facts.data_port,
            interval_burst: ask.side.burst,
            interval_us: match ask.side.burst {
                0 => 0,
                _ => u32::try_from(ask.side.burst_interval.as_nanos() / 1000).unwrap_or(u32::MAX),
            },
            priority: ask.side.priority.and(positive_value(now.priority)),
            tos: ask.side.tos.and(positive_value(now.tos)),
            extension: facts.granted,
        }
        .encode(generation),
        MessageKind::Classic(kind) => ClassicResponse {
            receive_buffer: Some(now.receive_buffer),
            send_buffer: Some(now.send_buffer),
            call_size: facts.receive_size.or(facts.send_size),
            no_delay,
            measure_cpu: measures_cpu,
            length: TestLength::UntilTold,
            data_port: facts.data_port,
            cpu_rate,
            receive_avoid: ask.side.receive_by != ReceiveBy::Copy,
            send_avoid: ask.send_avoid,
        }
        .encode(kind, generation),
    }
}

fn positive_value(value: Option<i32>) -> Option<u32> {
    value.and_then(|value| u32::try_from(value).ok())
}

/// Results: the test is over.
pub(super) fn results_message(outcome: &TestOutcome, generation: Generation) -> Vec<u8> {
    let ask = &outcome.facts.ask;
    let tally = &outcome.done.tally;
    let at_end = outcome.done.effective.as_ref();
    let buffers = at_end.map_or(
        (
            outcome.facts.effective.receive_buffer,
            outcome.facts.effective.send_buffer,
        ),
        |at_end| (at_end.receive_buffer, at_end.send_buffer),
    );
    let elapsed = outcome.elapsed.as_secs_f32();
    match ask.talk {
        MessageKind::Omni => OmniResults {
            bytes_received: tally.bytes_received,
            receive_calls: low_bits(tally.receive_calls),
            receive_buffer: Some(buffers.0),
            bytes_sent: tally.bytes_sent,
            send_calls: low_bits(tally.send_calls),
            send_buffer: Some(buffers.1),
            failed_sends: low_bits(tally.failed_sends),
            transactions: low_bits(tally.transactions),
            elapsed,
            cpu: outcome.cpu.as_ref().map(agreement::cpu_figures),
            // With many connections, the value of the last one would mean nothing.
            retransmissions: at_end
                .filter(|_| !matches!(ask.work, DataExchange::Connections { .. }))
                .and_then(|at_end| at_end.tcp.as_ref())
                .map(|tcp| tcp.retransmissions),
            congestion_control: at_end
                .filter(|_| ask.name_congestion)
                .and_then(|at_end| Name::new(at_end.congestion.as_bytes()))
                .unwrap_or(Name::NONE),
            extension: outcome.facts.granted.map(|_| results_extension(outcome)),
        }
        .encode(match generation {
            Generation::Words64 => ResultsLayout::V25,
            Generation::Words164 => ResultsLayout::V27,
        }),
        MessageKind::Classic(kind) => ClassicResults {
            bytes: tally.bytes_received + tally.bytes_sent,
            calls: low_bits(match ask.work {
                DataExchange::Send => tally.send_calls,
                _ => tally.receive_calls,
            }),
            transactions: low_bits(tally.transactions),
            elapsed,
            cpu_total: outcome.cpu.map(|cpu| cpu.total as f32),
            cpu_method: outcome
                .cpu
                .map_or(CpuMethod::UNKNOWN, |_| CpuMethod::PROC_STAT),
            cpus: outcome.cpu.map_or(0, |cpu| cpu.cpus),
            receive_buffer: Some(buffers.0),
            send_buffer: Some(buffers.1),
        }
        .encode(kind, generation),
    }
}

/// Low 32 bits: counters wrap in the message.
fn low_bits(count: u64) -> u32 {
    count as u32
}

fn results_extension(outcome: &TestOutcome) -> ResultsExtension {
    ResultsExtension {
        elapsed_ns: u64::try_from(outcome.elapsed.as_nanos()).unwrap_or(u64::MAX),
        bytes_after_omit: outcome.bytes_after,
        transactions_after_omit: outcome.transactions_after,
        datagrams: outcome
            .done
            .tags
            .as_ref()
            .map(|tags| datagram_figures(tags, outcome.done.tally.bytes_received)),
        tcp: outcome
            .done
            .effective
            .as_ref()
            .and_then(|at_end| at_end.tcp.as_ref())
            .map(agreement::tcp_figures),
    }
}

/// `bytes`: total of all datagrams. The report does not separate the length of foreign ones.
fn datagram_figures(tags: &TagReport, bytes: u64) -> DatagramFigures {
    let delay = tags.datagram_report(0).one_way_ns;
    let average = bytes / (tags.received + tags.foreign).max(1);
    DatagramFigures {
        received: tags.received,
        duplicates: tags.duplicate,
        reordered: tags.reordered,
        highest_sequence: tags.highest,
        foreign: tags.foreign,
        jitter_ns: tags.jitter_ns.map_or(0, |jitter| jitter as u64),
        bytes: bytes - average * tags.foreign,
        latency: latency_figures(&delay),
    }
}

/// `None` if there were no datagrams.
fn latency_figures(delay: &Summary) -> Option<LatencyFigures> {
    Some(LatencyFigures {
        min_ns: delay.min?,
        mean_ns: delay.mean? as i64,
        max_ns: delay.max?,
        p50_ns: delay.p50?,
        p99_ns: delay.p99?,
    })
}
