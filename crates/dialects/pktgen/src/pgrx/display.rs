//! The two formats of the receiver's file.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{CpuSample, CpuStatistics};

/// Format for reading.
pub(super) fn human_text(rows: &BTreeMap<u32, CpuStatistics>) -> String {
    let mut text = String::from("\t\tRECEPTION STATISTICS\n\tPER-CPU Stats\n");
    for (cpu, row) in rows {
        let _ = writeln!(
            text,
            "CPU {cpu}:\tRx packets: {}\t Rx bytes: {}",
            row.packets, row.bytes
        );
        human_rates(&mut text, row);
        for (title, sample) in [
            ("Inter-arrival", &row.inter_arrival),
            ("Jitter", &row.jitter),
            ("Latency", &row.latency),
        ] {
            if sample.samples > 0 {
                let _ = writeln!(
                    text,
                    "\t{title}\n\t\tAverage: {} ns Variance {} ns2\n\t\tMax: {} ns Min:: {} ns\n\t\tSamples: {}",
                    sample.average(),
                    sample.variance(),
                    sample.max,
                    sample.min,
                    sample.samples
                );
            }
        }
    }
    let all = CpuStatistics::global(rows.values());
    let _ = writeln!(
        text,
        "\n\tGlobal Statistics\nPackets Rx: {}\t Bytes Rx: {}",
        all.packets, all.bytes
    );
    human_rates(&mut text, &all);
    text
}

fn human_rates(text: &mut String, row: &CpuStatistics) {
    if row.work_us() > 0 {
        let (pps, bps) = row.rates();
        let _ = writeln!(
            text,
            "\tWork time {} us\n\tRate:  {pps}pps {}Mb/sec ({bps}bps)",
            row.work_us(),
            bps / 1_000_000
        );
    }
}

/// Columns for scripts. A block without samples is omitted, so later columns move left.
pub(super) fn script_text(rows: &BTreeMap<u32, CpuStatistics>) -> String {
    let mut text = String::new();
    for (cpu, row) in rows {
        script_rates(&mut text, cpu, row);
        for sample in [&row.inter_arrival, &row.jitter, &row.latency] {
            script_sample(&mut text, sample);
        }
        text.push('\n');
    }
    script_rates(&mut text, &'G', &CpuStatistics::global(rows.values()));
    text.push('\n');
    text
}

fn script_rates(text: &mut String, label: &dyn std::fmt::Display, row: &CpuStatistics) {
    let (pps, bps) = row.rates();
    let _ = write!(
        text,
        "{label} {} {} {} {pps} {} {bps} ",
        row.packets,
        row.bytes,
        row.work_us(),
        bps / 1_000_000
    );
}

fn script_sample(text: &mut String, sample: &CpuSample) {
    if sample.samples > 0 {
        let _ = write!(
            text,
            "{} {} {} {} {} ",
            sample.average(),
            sample.variance(),
            sample.max,
            sample.min,
            sample.samples
        );
    }
}
