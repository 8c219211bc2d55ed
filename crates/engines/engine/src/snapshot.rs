//! Makes the snapshot of a view from two successive reports so far.

use wb_model::{
    CaptureLive, Phase, Report, Snapshot, Totals,
    load::{ConnectionTotals, LoadLive, LoadReport},
    report::CaptureReport,
};

use crate::clock::rate;

/// Counts of the report so far, with their rates since an earlier one.
pub fn snapshot(before: &Report, now: &Report) -> Snapshot {
    let interval_ns = now.elapsed_ns.saturating_sub(before.elapsed_ns).max(1);
    let per_second = |of: fn(&Totals) -> Option<u64>| {
        let counted = of(&now.totals)?;
        let earlier = of(&before.totals).unwrap_or(0);
        rate(counted.saturating_sub(earlier), interval_ns)
    };
    let bits = |of| per_second(of).map(|octets| 8.0 * octets);
    let captures = now.captures.iter();
    Snapshot {
        totals: now.totals,
        offered_pps: per_second(|t| t.offered_frames),
        received_pps: per_second(|t| t.received_frames),
        offered_l2_bps: bits(|t| t.offered_octets),
        received_l2_bps: bits(|t| t.received_octets),
        outages: now.outages.map(|all| all.outages),
        load: now
            .load
            .as_ref()
            .map(|now| load(before.load.as_ref(), now, interval_ns)),
        capture: now.capture.as_ref().map(capture),
        captures: captures
            .map(|(name, c)| (name.clone(), capture(c)))
            .collect(),
        ..Snapshot::at(now.elapsed_ns, interval_ns, Phase::Running)
    }
}

#[allow(clippy::cast_precision_loss)]
fn load(before: Option<&LoadReport>, now: &LoadReport, interval_ns: u64) -> LoadLive {
    let totals = now.connections();
    let before = before.map(LoadReport::connections).unwrap_or_default();
    let per_second = |of: fn(&ConnectionTotals) -> u64| {
        of(&totals).saturating_sub(of(&before)) as f64 * 1e9 / interval_ns as f64
    };
    LoadLive {
        totals,
        attempted_cps: per_second(|t| t.attempted_connections),
        established_cps: per_second(|t| t.established_connections),
        completed_cps: per_second(|t| t.completed_connections),
        failed_cps: per_second(|t| t.failed_connections),
        rps: per_second(|t| t.requests),
        ..LoadLive::default()
    }
}

fn capture(report: &CaptureReport) -> CaptureLive {
    CaptureLive {
        read_frames: report.readers.iter().map(|r| r.read_frames).sum(),
        kernel_drop_frames: report.kernel_drop_frames,
        written_frames: match report.buffers {
            0 => 0,
            _ => report.captured_frames,
        },
        file_octets: report.file_octets,
    }
}

#[cfg(test)]
mod tests {
    use wb_model::load::{LoadEnd, LoadJobReport};

    use super::*;

    fn so_far(elapsed_ns: u64, frames: u64, established: u64) -> Report {
        let totals = ConnectionTotals {
            established_connections: established,
            ..ConnectionTotals::default()
        };
        let job = |end| LoadJobReport {
            end,
            totals,
            ..LoadJobReport::default()
        };
        Report {
            elapsed_ns,
            totals: Totals {
                received_frames: Some(frames),
                received_octets: Some(64 * frames),
                ..Totals::default()
            },
            load: Some(LoadReport {
                jobs: vec![job(LoadEnd::Client), job(LoadEnd::Server)],
            }),
            ..Report::default()
        }
    }

    #[test]
    fn rates_are_those_between_two_reports() {
        let now = so_far(1_500_000_000, 700, 90);
        let first = snapshot(&Report::default(), &now);
        assert_eq!(first.received_pps, Some(700.0 / 1.5));
        let later = snapshot(&so_far(1_000_000_000, 200, 40), &now);
        assert_eq!(
            (later.elapsed_ns, later.interval_ns),
            (1_500_000_000, 500_000_000)
        );
        assert_eq!(
            (later.offered_pps, later.received_pps),
            (None, Some(1000.0))
        );
        assert_eq!(later.received_l2_bps, Some(512_000.0));
        // The servers count the same connections.
        let load = later.load.unwrap();
        assert_eq!(load.totals.established_connections, 90);
        assert!((load.established_cps - 100.0).abs() < 1e-9);
    }

    #[test]
    fn an_interval_of_no_length_has_no_rates() {
        let now = so_far(1_000_000_000, 200, 40);
        assert_eq!(snapshot(&now, &now).received_pps, None);
    }
}
