//! The account of a capture.

use crate::{FrameAccount, WriterOutcome};
use wb_model::{
    Lateness, LatenessReport, Limit, Limiter, Totals,
    capture::{CaptureJob, DirectWrites},
    counted,
    report::{CaptureReaderReport, CaptureReport, PortReport, Rates},
};

use super::{Captures, grown};
use wb_engine::{End, Ended, Outcome, Part, Stamping};
use wb_engine::{criteria, settle::counted_frames};
use wb_open::{OpenPort, signal_name};

/// Warnings about the files.
fn output_warnings(job: &CaptureJob, written: &WriterOutcome) -> Vec<String> {
    let mut warnings = Vec::new();
    match written.files_removed {
        0 => {}
        n => warnings.push(format!(
            "{} removed to free disk space",
            counted(n, "finished file was", "finished files were")
        )),
    }
    if written.room_short {
        warnings.push(
            "less disk space was free than --keep-free requires, and no finished file was left to remove"
                .to_owned(),
        );
    }
    let output = job.output.as_ref();
    if output.is_some_and(|output| output.direct == DirectWrites::Always)
        && written.direct_files < written.files
    {
        warnings.push(
            "the output does not support direct writes; files were written through the page cache"
                .to_owned(),
        );
    }
    warnings
}

#[allow(clippy::cast_precision_loss)]
fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn section(run: &Captures, written: &WriterOutcome, interface_drops: u64) -> CaptureReport {
    let (account, job) = (&run.account, &run.job);
    let outcomes = || run.outcomes.iter();
    CaptureReport {
        filter_accept_frames: account.filter_accept,
        captured_frames: account.captured,
        kernel_drop_frames: account.kernel_drop,
        not_written_frames: account.not_written,
        queue_drop_frames: account.queue_drop,
        over_limit_frames: account.over_limit,
        not_read_frames: account.not_read,
        interface_drop_frames: interface_drops,
        exact: account.adds_up(),
        write_error: written.error.as_ref().map(ToString::to_string),
        files: written.files,
        last_file: written.path.as_ref().map(|p| p.display().to_string()),
        file_octets: written.file_octets,
        files_removed: written.files_removed,
        filter: job.filter.clone(),
        snap_len: job.snap_len,
        ring_bytes: run.ring_bytes,
        block_timeout_ms: ms(job.block_timeout.as_nanos()),
        ring_freezes: outcomes().map(|o| o.rx.freezes).sum(),
        longest_gap_ms: ms(outcomes().map(|o| o.longest_gap_ns).max().unwrap_or(0)),
        longest_write_ms: ms(written.longest_write_ns),
        write_p50_ms: ms(written.write_p50_ns),
        write_p99_ms: ms(written.write_p99_ns),
        buffer_waits: outcomes().map(|o| o.buffer_waits).sum(),
        buffers: run.shared.snapshot().buffers,
        buffers_free: run.shared.snapshot().buffers_free,
        buffers_fewest: written.buffers_fewest,
        readers: outcomes()
            .zip(&run.places)
            .map(|(o, (port, queue))| CaptureReaderReport {
                read_frames: o.read_frames,
                read_octets: o.read_octets,
                filter_accept_frames: o.rx.passed_frames.unwrap_or(0),
                kernel_drop_frames: o.rx.dropped_frames,
                queue_drop_frames: o.queue_drop_frames,
                buffer_waits: o.buffer_waits,
                kernel_counters: o.kernel.iter().map(|&(n, v)| (n.to_owned(), v)).collect(),
                longest_gap_ms: ms(o.longest_gap_ns),
                ..reader_at(run, *port, *queue)
            })
            .collect(),
    }
}

/// Fills the report so far. The counters of the parts come from successive moments, so the frames need not add up yet.
pub(super) fn fill(run: &Captures, part: &mut Part<'_>) {
    let seen = run.shared.snapshot();
    let total = seen.total();
    let own = |port: &&PortReport| run.ports.iter().any(|own| own.plan.name == port.name);
    let ports = part.report.ports.iter().filter(own);
    let interface_drops = ports.map(|port| grown(&port.before, &port.after).1).sum();
    let seats = run.seats.iter().zip(&seen.readers);
    let capture = CaptureReport {
        filter_accept_frames: total.passed_frames,
        // Without an output, frames are only counted.
        captured_frames: match seen.buffers {
            0 => total.read_frames,
            _ => seen.written_frames,
        },
        kernel_drop_frames: total.dropped_frames,
        not_written_frames: seen.not_written_frames,
        queue_drop_frames: total.queue_drop_frames,
        interface_drop_frames: interface_drops,
        files: seen.files,
        files_removed: seen.files_removed,
        last_file: seen.path.map(|path| path.display().to_string()),
        file_octets: seen.file_octets,
        filter: run.job.filter.clone(),
        snap_len: run.job.snap_len,
        ring_bytes: run.ring_bytes,
        block_timeout_ms: ms(run.job.block_timeout.as_nanos()),
        longest_gap_ms: ms(total.longest_gap_ns),
        longest_write_ms: ms(seen.longest_write_ns),
        buffer_waits: total.buffer_waits,
        buffers: seen.buffers,
        buffers_free: seen.buffers_free,
        buffers_fewest: seen.buffers_fewest,
        readers: seats
            .map(|((port, queue), reader)| CaptureReaderReport {
                filter_accept_frames: reader.passed_frames,
                read_frames: reader.read_frames,
                read_octets: reader.read_octets,
                kernel_drop_frames: reader.dropped_frames,
                queue_drop_frames: reader.queue_drop_frames,
                buffer_waits: reader.buffer_waits,
                longest_gap_ms: ms(reader.longest_gap_ns),
                ..reader_at(run, *port, *queue)
            })
            .collect(),
        ..CaptureReport::default()
    };
    let totals = Totals {
        received_frames: Some(total.read_frames),
        received_octets: Some(total.read_octets),
        rx_dropped_frames: Some(total.dropped_frames),
        ..Totals::default()
    };
    part.frames(&totals, &Rates::default());
    add(run, part, capture);
}

/// A reader without its counts.
fn reader_at(run: &Captures, port: usize, queue: u32) -> CaptureReaderReport {
    let plan = &run.ports[port].plan;
    CaptureReaderReport {
        port: plan.name.clone(),
        queue,
        cpu: plan.cpus.get(queue as usize).copied(),
        ..CaptureReaderReport::default()
    }
}

/// Adds the section of the capture to the report.
fn add(run: &Captures, part: &mut Part<'_>, capture: CaptureReport) {
    match &run.key {
        Some(name) => drop(part.report.captures.insert(name.clone(), capture)),
        None => part.report.capture = Some(capture),
    }
}

/// Settles the account of the capture. Without criteria, a capture promises that nothing is lost.
#[allow(clippy::cast_precision_loss)]
pub(super) fn settle(run: &mut Captures, part: &mut Part<'_>, ended: &Ended) -> Outcome {
    let written = run.written.take().unwrap_or_default();
    let run = &*run;
    let account = &run.account;
    let drops = |port: &OpenPort| -> u64 {
        let keys = ["rx_missed_errors", "rx_fifo_errors", "rx_over_errors"];
        keys.iter().map(|key| ended.grew(port, key)).sum()
    };
    let interface_drops = run.ports.iter().map(drops).sum();
    let lost = account.lost_frames() + interface_drops;
    let came: u64 = account.filter_accept + interface_drops;
    let capture = section(run, &written, interface_drops);
    let mut judged = criteria::judge(&run.plan, |_| capture.clone());
    // Without frames nothing is lost: the criterion holds, but it is not a measurement.
    for judged in judged
        .iter_mut()
        .filter(|j| came == 0 && j.criterion.metric == "loss")
    {
        judged.report.held = judged.criterion.holds(0.0);
    }
    let criteria = criteria::reports(judged);
    let broken = (criteria.is_empty() && lost > 0)
        .then(|| counted(lost, "frame was lost", "frames were lost"));
    let blank = came == 0 && criteria.iter().any(|c| c.measured.is_none());
    let late = lateness_of(run);
    let read = account.read_frames();
    let octets: u64 = run.outcomes.iter().map(|o| o.read_octets).sum();
    let seconds = ended.elapsed_ns.max(1) as f64 / 1e9;
    let mut warnings = output_warnings(&run.job, &written);
    warnings.extend(run.last_warnings.iter().cloned());
    if let Some(name) = &run.key {
        let whose = |warning: &mut String| *warning = format!("{name}: {warning}");
        warnings.iter_mut().for_each(whose);
    }
    let totals = Totals {
        received_frames: Some(read),
        received_octets: Some(octets),
        rx_dropped_frames: Some(account.kernel_drop),
        ..Totals::default()
    };
    let rates = Rates {
        received_pps: Some(read as f64 / seconds),
        received_l2_bps: Some(octets as f64 * 8.0 / seconds),
        rx_time_ns: Some(ended.elapsed_ns),
        ..Rates::default()
    };
    part.frames(&totals, &rates);
    run.ports
        .iter()
        .for_each(|port| part.port(ended.port(port)));
    add(run, part, capture);
    Outcome {
        job: run.key.clone(),
        criteria,
        defect: defect(account),
        broken,
        nothing: blank.then(|| "no frames arrived".to_owned()),
        found: Some("nothing was lost".to_owned()),
        lateness: LatenessReport {
            all: late,
            may_have_caused: lost_by_stalls(run, lost, &late),
        },
        limited_by: match &ended.end {
            _ if lost > 0 => lost_because(account, interface_drops, &late),
            End::Signal(n) => Limiter::Ended(signal_name(*n)).because("ended the capture"),
            End::Fault(text) => Limiter::Fault.because(text),
            End::Completed => Limiter::Plan.because("end condition reached"),
        }
        .into(),
        warnings,
        stamping: Stamping {
            rx: stamp_sources(run),
            wall: true,
            ..Stamping::default()
        },
        ..Outcome::default()
    }
}

fn defect(account: &FrameAccount) -> Option<String> {
    (!account.adds_up())
        .then(|| "the frame counts do not add up; this is a bug in wirebench".to_owned())
}

fn stamp_sources(run: &Captures) -> String {
    let ports = run.ports.iter();
    let sources = ports.map(|p| format!("{}: {}", p.plan.name, p.facts.stamp_source));
    sources.collect::<Vec<_>>().join(", ")
}

/// Lateness of all readers, with the frames that their rings dropped.
fn lateness_of(run: &Captures) -> Lateness {
    let outcomes = run.outcomes.iter();
    outcomes.fold(Lateness::default(), |sum, o| {
        sum.plus(&Lateness {
            dropped_reads: o.rx.dropped_frames,
            ..o.lateness
        })
    })
}

/// Returns why stalls of the readers can explain the loss: the rings lost all of it, and no reader waited for the
/// writer.
fn lost_by_stalls(run: &Captures, lost: u64, late: &Lateness) -> Option<String> {
    let waited = run.outcomes.iter().any(|o| o.buffer_waits > 0);
    let in_rings = lost > 0 && lost == run.account.kernel_drop;
    (in_rings && late.stalls > 0 && !waited).then(|| {
        let stalls = late.account();
        format!(
            "the tester was late ({stalls}), which can explain the loss of {} in its rings",
            counted_frames(lost)
        )
    })
}

/// Returns why frames are missing in a capture. The cause is always the tester, because no device was asked to keep the
/// frames.
fn lost_because(account: &FrameAccount, interface_drops: u64, late: &Lateness) -> Limit {
    let written = account.not_written + account.queue_drop;
    if account.kernel_drop > 0 {
        Limiter::Tester.because(format!("readers were late ({})", late.account()))
    } else if written > 0 {
        Limiter::Tester.because(format!("{} could not be written", counted_frames(written)))
    } else if interface_drops > 0 {
        let why = format!(
            "{} dropped before any filter",
            counted_frames(interface_drops)
        );
        Limiter::Interface.because(why)
    } else {
        Limiter::Tester.because("not all frames were read")
    }
}

#[cfg(test)]
mod tests {
    use wb_model::Verdict;

    use super::*;
    use wb_engine::verdict::{Evidence, exit_code, verdict};

    #[test]
    fn frames_that_do_not_add_up_make_a_capture_invalid() {
        let mut account = FrameAccount {
            filter_accept: 10,
            captured: 10,
            ..FrameAccount::default()
        };
        assert_eq!(defect(&account), None);
        account.captured = 9;
        let evidence = Evidence {
            defect: defect(&account),
            ..Evidence::default()
        };
        let (verdict, reason) = verdict(&End::Completed, &[], evidence);
        assert_eq!(verdict, Verdict::Invalid, "{reason}");
        assert_eq!(exit_code(&End::Completed, verdict), 3);
    }
}
