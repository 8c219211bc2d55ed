//! Availability of a service (ITU-T Y.1563): the share of the time in which its frames arrive.
//!
//! A second in which more than half of the frames are lost is severely errored. Ten of them in a row begin an
//! unavailable period, ten others in a row end it; the ten seconds belong to the state that they begin. Seconds come
//! from a trial's timeline, so if its samples are further apart, each sample counts as one long second.

use std::ops::Range;

use wb_model::{
    report::{JobReport, StreamReport},
    timeline::{Column, Timeline},
};

/// Minimum length of a merged second; slightly less than 1, because samples are not exactly on time.
const SECOND: f64 = 0.95;
/// Time in a row that changes the state, seconds; slightly less than 10 for the same reason.
const TEN: f64 = 9.5;
/// Minimum share of a second's frames that must be exceeded by the loss.
const SEVERE: f64 = 0.5;

/// Number of flows with a timeline column if a job has several.
const FLOWS: u32 = 8;

/// Availability of some streams of one direction of a job. `None` if less than ten seconds are known, or if the job has
/// too many flows to separate them.
pub(super) fn stream_availability(
    timeline: &Timeline,
    job: &JobReport,
    streams: &Range<usize>,
) -> Option<f64> {
    available_share(&seconds(timeline, job, streams)?)
}

/// Length of each second, with a flag that is set if it is severely errored.
fn seconds(
    timeline: &Timeline,
    job: &JobReport,
    streams: &Range<usize>,
) -> Option<Vec<(f64, bool)>> {
    // A single direction has no separate column.
    let own = format!("job {}", job.name);
    let column = |name| {
        let own = timeline.column(&own, name);
        own.or_else(|| timeline.column("traffic", name))
    };
    let offered = column("offered_frames")?;
    let sent = |streams: &[StreamReport]| -> u64 {
        let sent = streams.iter().filter_map(|s| s.totals.offered_frames);
        sent.sum()
    };
    let some = job.streams.get(streams.clone())?;
    // The load is constant, so each stream has its share in every second.
    let part = sent(some) as f64 / sent(&job.streams).max(1) as f64;
    let is_all = some.len() == job.streams.len();
    let flows = some
        .iter()
        .flat_map(|s| s.first_flow..s.first_flow + s.flows);
    let (received, again): (Vec<&Column>, _) = match is_all {
        true => (
            column("received_frames").into_iter().collect(),
            column("duplicate_frames"),
        ),
        false if job.streams.iter().map(|s| s.flows).sum::<u32>() > FLOWS => return None,
        // A flow that never received a frame has no column.
        false => {
            let of = flows.map(|flow| format!("flow {flow}"));
            let columns = of.filter_map(|of| timeline.column(&of, "received_frames"));
            (columns.collect(), None)
        }
    };
    let at = |column: &Column, n: usize| column.values.get(n).copied().flatten().unwrap_or(0.0);
    let mut all = Vec::new();
    let (mut before, mut sent_before, mut came_before) = (0.0, 0.0, 0.0);
    for (n, ns) in timeline.at_ns.iter().enumerate() {
        let now = *ns as f64 / 1e9;
        if now - before < SECOND {
            continue;
        }
        let sent = at(offered, n) * part;
        let came = received.iter().map(|column| at(column, n)).sum::<f64>();
        let came = came - again.map_or(0.0, |column| at(column, n));
        let (offered, received) = (sent - sent_before, came - came_before);
        // No frames are expected before the first frame and after the last.
        if offered > 0.0 {
            all.push((now - before, received < offered * (1.0 - SEVERE)));
        }
        (before, sent_before, came_before) = (now, sent, came);
    }
    Some(all)
}

fn available_share(seconds: &[(f64, bool)]) -> Option<f64> {
    let whole: f64 = seconds.iter().map(|(length, _)| length).sum();
    if whole < TEN {
        return None;
    }
    let (mut available, mut away) = (true, 0.0);
    for row in seconds.chunk_by(|a, b| a.1 == b.1) {
        let length: f64 = row.iter().map(|(length, _)| length).sum();
        let severe = row[0].1;
        if length >= TEN {
            available = !severe;
        }
        if !available {
            away += length;
        }
    }
    Some(1.0 - away / whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rows: &[(u32, bool)]) -> Option<f64> {
        let seconds = rows
            .iter()
            .flat_map(|(n, severe)| (0..*n).map(|_| (1.0, *severe)));
        available_share(&seconds.collect::<Vec<_>>())
    }

    #[test]
    fn ten_seconds_begin_and_end_it() {
        let (good, bad) = (false, true);
        assert_eq!(of(&[(9, good)]), None);
        assert_eq!(of(&[(100, good)]), Some(1.0));
        assert_eq!(of(&[(45, good), (9, bad), (46, good)]), Some(1.0));
        assert_eq!(of(&[(40, good), (10, bad), (50, good)]), Some(0.9));
        // Too few good seconds belong to the unavailable period.
        let rows = [(40, good), (10, bad), (9, good), (1, bad), (40, good)];
        assert_eq!(of(&rows), Some(0.8));
        assert_eq!(of(&[(80, good), (15, bad), (5, good)]), Some(0.8));
        assert_eq!(of(&[(10, bad)]), Some(0.0));
    }

    /// A timeline with a sample every `ms` milliseconds, of a job that receives `came` of a hundred frames per sample.
    fn timeline(ms: u64, of: &str, came: &[u64]) -> Timeline {
        let column = |of: &str, name: &str, rises: &mut dyn Iterator<Item = u64>| {
            let mut sum = 0.0;
            let values = rises.map(|rise| {
                sum += rise as f64;
                Some(sum)
            });
            Column {
                of: of.to_owned(),
                name: name.to_owned(),
                values: values.collect(),
                ..Column::default()
            }
        };
        Timeline {
            at_ns: (1..=came.len() as u64)
                .map(|n| n * ms * 1_000_000)
                .collect(),
            columns: vec![
                column("job a", "offered_frames", &mut came.iter().map(|_| 100)),
                column(of, "received_frames", &mut came.iter().copied()),
            ],
            ..Timeline::default()
        }
    }

    /// A job of streams with these numbers of flows, all sending the same number of frames.
    fn job(flows: &[u32]) -> JobReport {
        let mut first_flow = 0;
        let streams = flows.iter().map(|flows| {
            let stream = StreamReport {
                first_flow,
                flows: *flows,
                totals: wb_model::Totals {
                    offered_frames: Some(1000),
                    ..Default::default()
                },
                ..StreamReport::default()
            };
            first_flow += flows;
            stream
        });
        JobReport {
            name: "a".to_owned(),
            streams: streams.collect(),
            ..JobReport::default()
        }
    }

    #[test]
    fn seconds_of_a_timeline() {
        let told = |ms, came: &[u64]| {
            stream_availability(&timeline(ms, "job a", came), &job(&[9]), &(0..1))
        };
        let mut came = [100; 40];
        assert_eq!(told(1000, &came), Some(1.0));
        came[10..20].fill(49);
        assert_eq!(told(1000, &came), Some(0.75));
        // Half is lost, not more.
        came[15] = 50;
        assert_eq!(told(1000, &came), Some(1.0));
        // Tenths of a second are merged: each second loses 40 % here.
        let tenths: Vec<u64> = (0..200).map(|n| if n % 10 < 4 { 0 } else { 100 }).collect();
        assert_eq!(told(100, &tenths), Some(1.0));
        assert_eq!(told(1000, &[100; 5]), None);
        assert_eq!(
            stream_availability(&Timeline::default(), &job(&[1]), &(0..1)),
            None
        );
    }

    #[test]
    fn streams_that_share_a_job_are_told_by_their_flows() {
        // Half of the sent frames belong to each.
        let mut came = [50; 40];
        came[10..20].fill(24);
        let timeline = timeline(1000, "flow 2", &came);
        let both = job(&[2, 1]);
        assert_eq!(stream_availability(&timeline, &both, &(1..2)), Some(0.75));
        // The other stream received no frames.
        assert_eq!(stream_availability(&timeline, &both, &(0..1)), Some(0.0));
        // More flows than a timeline has.
        assert_eq!(stream_availability(&timeline, &job(&[8, 1]), &(0..1)), None);
    }
}
