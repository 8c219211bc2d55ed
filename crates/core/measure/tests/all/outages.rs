//! Outages by arrival times and sequence numbers, checked by hand and against a model that remembers everything.

use std::collections::BTreeSet;

use proptest::prelude::*;
use wb_measure::{
    Analyser, FlowOutages, Measurement, OUTAGE_FLOWS, OUTAGE_THRESHOLD_NS, Outage, Outages,
    SentFrames,
};

const MS: u64 = 1_000_000;

/// Flow, sequence number, receive stamp in ms.
type Frame = (u32, u32, u64);

fn measure(frames: &[Frame]) -> Measurement {
    let mut analyser = Analyser::open(8);
    for &(flow, sequence, rx_ms) in frames {
        analyser.on_frame(flow, sequence, 1, rx_ms * MS, 64);
    }
    analyser.into_measurement()
}

fn outage(flow: u32, outages: u64, (begin_ms, end_ms): (u64, u64)) -> FlowOutages {
    FlowOutages {
        flow,
        outages,
        longest: Outage {
            begin_ns: begin_ms * MS,
            end_ns: end_ms * MS,
        },
    }
}

#[test]
fn an_outage_is_a_silence_with_missing_frames() {
    for (frames, expected) in [
        // Without a missing number, and with a silence below the threshold.
        (vec![(1, 0, 5), (1, 1, 900)], vec![]),
        (vec![(1, 0, 5), (1, 2, 14)], vec![]),
        (vec![(1, 0, 5), (1, 2, 15)], vec![outage(1, 1, (5, 15))]),
        // The first frame of a flow ends no silence.
        (vec![(1, 7, 500)], vec![]),
        // Each flow on its own, and the longest outage of each.
        (
            vec![
                (2, 0, 10),
                (1, 0, 11),
                (1, 4, 320),
                (2, 3, 50),
                (1, 6, 340),
                (2, 9, 100),
            ],
            vec![outage(1, 2, (11, 320)), outage(2, 2, (50, 100))],
        ),
        // A duplicate is an arrival.
        (
            vec![(1, 0, 0), (1, 0, 30), (1, 3, 45)],
            vec![outage(1, 1, (30, 45))],
        ),
    ] {
        let measured = measure(&frames);
        assert_eq!(measured.outages.flows, expected, "{frames:?}");
        assert_eq!(measured.outages.not_kept, 0);
    }
}

#[test]
fn reordered_frames_take_an_outage_back_if_none_is_missing() {
    let begin = [(1, 0, 0), (1, 3, 50)];
    let both = [begin.to_vec(), vec![(1, 2, 51), (1, 1, 52)]].concat();
    assert_eq!(measure(&both).outages.count(), 0);
    let one = [begin.to_vec(), vec![(1, 2, 51), (1, 2, 52)]].concat();
    assert_eq!(measure(&one).outages.flows, [outage(1, 1, (0, 50))]);
    // Only the last outage can be taken back.
    let late = [
        begin.to_vec(),
        vec![(1, 5, 70), (1, 1, 71), (1, 2, 72), (1, 4, 73)],
    ]
    .concat();
    assert_eq!(measure(&late).outages.flows, [outage(1, 1, (0, 50))]);
}

/// Frames of a sender that sent from 0 to `last_ms`.
fn sent(offered: &[(u32, u64)], last_ms: u64) -> SentFrames<'_> {
    SentFrames {
        offered,
        first_departure_ns: 0,
        last_departure_ns: last_ms * MS,
    }
}

#[test]
fn an_outage_that_has_not_ended_lasts_until_the_last_departure() {
    let frames = [(0, 0, 0), (0, 1, 100), (1, 0, 0), (1, 9, 100), (2, 0, 795)];
    let mut measured = measure(&frames);
    let offered = [(0, 9), (1, 10), (2, 9), (3, 9), (4, 0)];
    measured.end_outages(Some(&sent(&offered, 800)), OUTAGE_THRESHOLD_NS);
    // Flow 1 lost nothing at its end, and flow 2 not for long enough. Nothing of flow 3 ever arrived, and flow 4 sent
    // nothing.
    let expected = [
        outage(0, 1, (100, 800)),
        outage(1, 1, (0, 100)),
        outage(3, 1, (0, 800)),
    ];
    assert_eq!(measured.outages.flows, expected);
    assert_eq!(measured.outages.longest(), Some(&expected[2]));
    assert_eq!(
        (measured.outages.count(), measured.outages.of(2)),
        (3, None)
    );
}

#[test]
fn a_flow_that_lost_nothing_has_no_outage() {
    // Numbers 1 to 9 were refused by the sending device.
    let mut measured = measure(&[(0, 0, 0), (0, 10, 300)]);
    assert_eq!(measured.outages.count(), 1);
    measured.end_outages(Some(&sent(&[(0, 2)], 300)), OUTAGE_THRESHOLD_NS);
    assert_eq!(measured.outages, Outages::default());
}

#[test]
fn outages_of_a_flow_that_two_workers_received_are_unknown() {
    let both = |second: &[Frame], frames| {
        let mut all = measure(&[(1, 0, 0), (1, 2, 50), (2, 0, 0), (2, 2, 50)]);
        all.merge(&measure(second));
        all.end_outages(
            Some(&sent(&[(1, frames), (2, 3)], 100)),
            OUTAGE_THRESHOLD_NS,
        );
        all.outages
    };
    // Flow 1 lost nothing: it had no outage, whatever each worker saw.
    let whole = both(&[(1, 1, 0), (1, 3, 60)], 4);
    assert_eq!(whole.flows, [outage(2, 1, (0, 50))]);
    assert_eq!((whole.count(), whole.unknown_flows), (1, 0));
    // It moved to the second worker after a silence that no worker saw.
    let moved = both(&[(1, 9, 90)], 10);
    assert_eq!(moved.flows, [outage(2, 1, (0, 50))]);
    assert_eq!((moved.count(), moved.unknown_flows), (1, 1));
}

#[test]
fn further_flows_are_counted() {
    let flows = OUTAGE_FLOWS as u32 + 3;
    let mut analyser = Analyser::planned(flows as usize).with_outage_threshold(2 * MS);
    for flow in 0..flows {
        analyser.on_frame(flow, 0, 1, 1, 64);
        analyser.on_frame(flow, 2, 1, 3 * MS, 64);
    }
    let mut measured = analyser.into_measurement();
    assert_eq!(measured.outages.flows.len(), OUTAGE_FLOWS);
    assert_eq!(measured.outages.not_kept, 3);
    // One more for each flow at the end; flows without a record remain only counted.
    let offered: Vec<_> = (0..flows).map(|flow| (flow, 4)).collect();
    measured.end_outages(Some(&sent(&offered, 6)), 2 * MS);
    assert_eq!(measured.outages.flows.len(), OUTAGE_FLOWS);
    assert_eq!(measured.outages.not_kept, 6);
    assert_eq!(measured.outages.count(), 2 * u64::from(flows));
}

/// Outages of one flow, with the set of missing numbers of the last one.
#[derive(Default)]
struct Model {
    seen: BTreeSet<u32>,
    last_rx: u64,
    outages: Vec<(Outage, BTreeSet<u32>)>,
}

impl Model {
    fn arrive(&mut self, sequence: u32, rx_ns: u64, threshold_ns: u64) {
        let next = self.seen.last().map(|highest| highest + 1);
        let silence = Outage {
            begin_ns: self.last_rx,
            end_ns: rx_ns,
        };
        let is_silent = next.is_some_and(|next| sequence > next);
        if is_silent && silence.duration_ns() >= threshold_ns {
            // An earlier outage that was taken back is forgotten, any other one stays.
            self.outages.retain(|(_, missing)| !missing.is_empty());
            let skipped = (next.unwrap_or(0)..sequence).collect();
            self.outages.push((silence, skipped));
        }
        if let Some((_, missing)) = self.outages.last_mut() {
            missing.remove(&sequence);
        }
        self.seen.insert(sequence);
        self.last_rx = self.last_rx.max(rx_ns);
    }
}

proptest! {
    #[test]
    fn outages_agree_with_a_model(
        steps in prop::collection::vec((0u32..12, 0u64..9), 1..300),
        threshold_ns in 0u64..12,
    ) {
        let mut analyser = Analyser::planned(1).with_outage_threshold(threshold_ns);
        let mut model = Model::default();
        let (mut highest, mut rx_ns) = (0u32, 1);
        for (step, pause) in steps {
            // From 6 back to 5 ahead of the highest number.
            let sequence = (highest + step).saturating_sub(6);
            highest = highest.max(sequence);
            rx_ns += pause * pause / 4;
            analyser.on_frame(0, sequence, 1, rx_ns, 64);
            model.arrive(sequence, rx_ns, threshold_ns);
        }
        model.outages.retain(|(_, missing)| !missing.is_empty());
        let measured = analyser.into_measurement();
        let outages = measured.outages;
        prop_assert_eq!(outages.count(), model.outages.len() as u64);
        prop_assert_eq!(measured.counters.outages, outages.count());
        let longest = model.outages.iter().map(|(outage, _)| outage.duration_ns()).max();
        prop_assert_eq!(outages.longest().map(|flow| flow.longest.duration_ns()), longest);
    }
}
