//! Departure times and numbers of frames, and the fate of those that cannot be sent.

use std::sync::Arc;

use crate::common::Lab;
use wb_model::{Stream, units::Rational};
use wb_port::{PortError, QueuePair};
use wb_traffic::{
    Clock, CompileError, RAMP_FLOW, RampUp, RecordedFrame, Recording, Sender, SenderSpec,
    StreamSpec,
};
use wb_wire::Tag;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

fn paced(pps: u64) -> StreamSpec {
    StreamSpec {
        pps: Some(Rational::whole(pps)),
        ..StreamSpec::default()
    }
}

fn spec(streams: Vec<StreamSpec>) -> SenderSpec {
    SenderSpec {
        streams,
        ..SenderSpec::default()
    }
}

#[test]
fn a_duration_has_its_exact_number_of_frames() {
    for (rate, frames) in [
        (Rational::whole(100_000), 1000),
        (Rational::new(1_234_567, 13).unwrap(), 950),
    ] {
        let stream = StreamSpec {
            pps: Some(rate),
            ..StreamSpec::default()
        };
        let (frames_seen, outcome) = Lab::new(|_| ()).send(&SenderSpec {
            duration_ns: Some(10 * MS),
            ..spec(vec![stream])
        });
        let stream = &outcome.streams[0];
        assert_eq!(
            (stream.intended_frames, stream.offered_frames),
            (Some(frames), frames)
        );
        assert_eq!(
            (frames_seen.len() as u64, stream.offered_octets),
            (frames, frames * 64)
        );
        assert!(outcome.last_departure_ns < 10 * MS + 1000 && outcome.last_departure_ns > 9 * MS);
        assert_eq!(
            outcome.last_departure_wall_ns,
            outcome.last_departure_ns + wb_traffic::VirtualClock::EPOCH_NS
        );
        assert!(
            outcome.largest_catch_up_frames <= 1,
            "{}",
            outcome.largest_catch_up_frames
        );
    }
}

#[test]
fn frames_leave_when_they_are_due() {
    let mut lab = Lab::new(|_| ());
    let mut sender = lab.sender(&SenderSpec {
        start_offset_ns: 7 * MS,
        count: Some(4),
        ..spec(vec![paced(3000)])
    });
    sender.start(0);
    while !sender
        .step(lab.near.queues[0].tx(), &lab.clock)
        .unwrap()
        .done
    {}
    let stamps: Vec<u64> = lab
        .arrived()
        .iter()
        .map(|(stamp, _)| (stamp - wb_traffic::VirtualClock::EPOCH_NS) / 1000)
        .collect();
    assert_eq!(stamps, [7000, 7333, 7666, 8000]);
}

#[test]
fn workers_share_schedule_count_and_flows() {
    let stream = Stream {
        flows: Some(5),
        ..Stream::default()
    };
    let (mut total, mut by_flow) = (0, vec![0; 5]);
    for worker in 0..3 {
        let spec = SenderSpec {
            worker,
            workers: 3,
            count: Some(20),
            ..spec(vec![StreamSpec {
                stream: stream.clone(),
                flows: 5,
                first_flow: 100,
                ..paced(1000)
            }])
        };
        let (frames, outcome) = Lab::new(|_| ()).send(&spec);
        let stream = &outcome.streams[0];
        assert_eq!(stream.intended_frames, Some([7, 7, 6][worker as usize]));
        assert_eq!(stream.offered_frames, frames.len() as u64);
        total += stream.offered_frames;
        by_flow
            .iter_mut()
            .zip(&stream.flow_frames)
            .for_each(|(sum, n)| *sum += n);
        for frame in frames {
            let flow = Tag::read(&frame[42..]).unwrap().flow;
            assert!((100..105).contains(&flow) && (flow - 100) % 3 == worker);
        }
    }
    assert_eq!((total, by_flow.iter().sum::<u64>()), (20, 20));
}

/// Stalls the clock's owner for `stall_ns` after 10 frames at 10 kpps, in a run of 50 ms.
fn stalled(stall_ns: u64, catch_up_ns: u64) -> wb_traffic::SenderOutcome {
    let mut lab = Lab::new(|_| ());
    let spec = SenderSpec {
        duration_ns: Some(50 * MS),
        catch_up_ns,
        ..spec(vec![paced(10_000)])
    };
    let mut sender = lab.sender(&spec);
    sender.start(0);
    let mut sent = 0;
    while sent < 10 {
        sent += sender
            .step(lab.near.queues[0].tx(), &lab.clock)
            .unwrap()
            .sent;
    }
    lab.clock.advance(stall_ns);
    while !sender
        .step(lab.near.queues[0].tx(), &lab.clock)
        .unwrap()
        .done
    {}
    sender.finish(lab.near.queues[0].tx())
}

#[test]
fn a_short_stall_is_made_up() {
    let outcome = stalled(20 * MS, 100 * MS);
    assert_eq!(
        (
            outcome.streams[0].intended_frames,
            outcome.streams[0].offered_frames
        ),
        (Some(500), 500)
    );
    assert_eq!(outcome.largest_catch_up_frames, 200);
}

#[test]
fn of_a_long_stall_only_the_catch_up_time_is_made_up() {
    let outcome = stalled(20 * MS, 5 * MS);
    let stream = &outcome.streams[0];
    assert_eq!(stream.intended_frames, Some(500));
    // 200 were due; those of the last 5 ms are sent late.
    assert!(
        (349..=351).contains(&stream.offered_frames),
        "{}",
        stream.offered_frames
    );
    assert!((49..=51).contains(&outcome.largest_catch_up_frames));
    assert_eq!(stream.flow_frames, [stream.offered_frames]);
}

#[test]
fn with_no_catch_up_only_the_newest_frame_is_sent() {
    let outcome = stalled(20 * MS, 0);
    assert_eq!(outcome.largest_catch_up_frames, 1);
    assert!(
        (300..=302).contains(&outcome.streams[0].offered_frames),
        "{}",
        outcome.streams[0].offered_frames
    );
}

#[test]
fn a_stall_beyond_the_end_is_made_up_if_short_enough() {
    // Stalled from 1 ms until 60 ms: 490 frames wait, the oldest for 59 ms.
    assert_eq!(stalled(59 * MS, 100 * MS).streams[0].offered_frames, 500);
    let cut = stalled(59 * MS, 20 * MS);
    assert_eq!(
        (
            cut.streams[0].intended_frames,
            cut.streams[0].offered_frames
        ),
        (Some(500), 10)
    );
    assert_eq!(stalled(200 * MS, 100 * MS).streams[0].offered_frames, 10);
}

#[test]
fn what_fell_due_during_a_stall_is_late_or_missed() {
    let lateness = |stall_ms, catch_up_ms| stalled(stall_ms * MS, catch_up_ms * MS).lateness;
    for (stall_ms, catch_up_ms, late, missed) in [
        // No stall.
        (0, 100, 0, 0),
        // More than the noise of a scheduler.
        (20, 100, 200, 0),
        (20, 10, 100, 100),
        (20, 5, 50, 150),
        // Frames are not late if no more wait than fall due in 4 ms.
        (20, 3, 0, 170),
        (20, 0, 0, 199),
        // Beyond the end.
        (59, 100, 490, 0),
        (59, 20, 0, 490),
        (200, 100, 0, 490),
    ] {
        let told = lateness(stall_ms, catch_up_ms);
        let case = format!("{stall_ms} ms, {catch_up_ms} ms: {told:?}");
        let stalls = u64::from(stall_ms > 1);
        assert_eq!(told.stalls, stalls, "{case}");
        assert!(told.late_departures.abs_diff(late) <= 2, "{case}");
        assert!(told.missed_departures.abs_diff(missed) <= 2, "{case}");
        assert!(told.largest_gap_ns >= stall_ms * MS, "{case}");
    }
}

#[test]
fn bursts_leave_at_once_and_are_no_backlog() {
    let stream = Stream {
        burst: Some(5),
        gap: Some("2ms".parse().unwrap()),
        ..Stream::default()
    };
    let mut lab = Lab::new(|options| options.batch = 2);
    let mut sender = lab.sender(&SenderSpec {
        duration_ns: Some(5 * MS),
        catch_up_ns: 0,
        ..spec(vec![StreamSpec {
            stream,
            ..StreamSpec::default()
        }])
    });
    sender.start(0);
    while !sender
        .step(lab.near.queues[0].tx(), &lab.clock)
        .unwrap()
        .done
    {}
    let stamps: Vec<u64> = lab
        .arrived()
        .iter()
        .map(|(stamp, _)| (stamp - wb_traffic::VirtualClock::EPOCH_NS) / MS)
        .collect();
    assert_eq!(stamps, [0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4]);
    let outcome = sender.finish(lab.near.queues[0].tx());
    assert_eq!(
        (
            outcome.streams[0].intended_frames,
            outcome.largest_catch_up_frames
        ),
        (Some(15), 0)
    );
}

#[test]
fn streams_of_different_rates_keep_them() {
    let streams = vec![
        paced(1000),
        StreamSpec {
            first_flow: 1,
            ..paced(3000)
        },
    ];
    let (frames, outcome) = Lab::new(|_| ()).send(&SenderSpec {
        duration_ns: Some(10 * MS),
        ..spec(streams.clone())
    });
    let offered: Vec<u64> = outcome.streams.iter().map(|s| s.offered_frames).collect();
    assert_eq!((offered, frames.len()), (vec![10, 30], 40));
    let (_, outcome) = Lab::new(|_| ()).send(&SenderSpec {
        count: Some(6),
        ..spec(streams)
    });
    let counts: Vec<_> = outcome
        .streams
        .iter()
        .map(|s| (s.intended_frames, s.offered_frames))
        .collect();
    assert_eq!(counts, [(Some(2), 2), (Some(4), 4)]);
}

#[test]
fn full_speed_fills_batches_until_time_or_count() {
    let max = |first_flow| StreamSpec {
        first_flow,
        ..StreamSpec::default()
    };
    let (frames, outcome) = Lab::new(|_| ()).send(&SenderSpec {
        duration_ns: Some(MS),
        ..spec(vec![max(0), max(1)])
    });
    let [a, b] = &outcome.streams[..] else {
        panic!()
    };
    assert_eq!((a.intended_frames, b.intended_frames), (None, None));
    assert!(a.offered_frames.abs_diff(b.offered_frames) <= 64);
    assert_eq!(a.offered_frames + b.offered_frames, frames.len() as u64);
    assert!(outcome.last_departure_ns < MS + 10_000);
    let (_, outcome) = Lab::new(|_| ()).send(&SenderSpec {
        count: Some(100),
        ..spec(vec![max(0), max(1)])
    });
    let counts: Vec<_> = outcome
        .streams
        .iter()
        .map(|s| (s.intended_frames, s.offered_frames))
        .collect();
    assert_eq!(counts, [(Some(64), 64), (Some(36), 36)]);
    // Together with a slow stream.
    let (_, outcome) = Lab::new(|_| ()).send(&SenderSpec {
        duration_ns: Some(10 * MS),
        ..spec(vec![paced(1000), max(1)])
    });
    assert_eq!(outcome.streams[0].offered_frames, 10);
    assert!(outcome.streams[1].offered_frames > 1000);
}

#[test]
fn the_ramp_comes_before_and_is_counted_apart() {
    let spec = SenderSpec {
        duration_ns: Some(10 * MS),
        lead: RampUp::without_hold(20 * MS),
        ..spec(vec![paced(10_000)])
    };
    let (frames, outcome) = Lab::new(|_| ()).send(&spec);
    assert_eq!(
        (outcome.ramp_frames, outcome.streams[0].offered_frames),
        (99, 100)
    );
    assert_eq!(outcome.start_ns, 20 * MS);
    let ramp = frames
        .iter()
        .filter(|f| Tag::read(&f[42..]).unwrap().flow == RAMP_FLOW)
        .count();
    assert_eq!((ramp, frames.len()), (99, 199));
    assert_eq!(outcome.tx.sent_frames, 199);
}

#[test]
fn a_ramp_needs_a_rate_and_a_tag() {
    let error = |stream: StreamSpec| {
        Sender::new(
            &SenderSpec {
                lead: RampUp::without_hold(1),
                ..spec(vec![stream])
            },
            1514,
        )
        .err()
        .unwrap()
    };
    assert!(matches!(
        error(StreamSpec::default()),
        CompileError::Ramp { .. }
    ));
    let mut tight = paced(5);
    tight.stream = Stream {
        ipv6: true,
        tag: wb_model::TagKind::None,
        ..Stream::default()
    };
    assert!(matches!(error(tight.clone()), CompileError::Ramp { .. }));
    tight.stream.size = Some("84".parse().unwrap());
    assert!(
        Sender::new(
            &SenderSpec {
                lead: RampUp::without_hold(1),
                ..spec(vec![tight])
            },
            1514
        )
        .is_ok()
    );
}

#[test]
fn a_recording_is_played_once_or_round_and_round() {
    let frames = [0, MS, 3 * MS].map(|offset_ns| RecordedFrame {
        offset_ns,
        bytes: vec![offset_ns as u8 ^ 0x5a; 70],
    });
    let replay = Some(Arc::new(Recording {
        frames: frames.to_vec(),
    }));
    let at = |speed| StreamSpec {
        stream: Stream {
            speed,
            ..Stream::default()
        },
        replay: replay.clone(),
        ..StreamSpec::default()
    };
    let stamps = |spec: &SenderSpec| {
        let mut lab = Lab::new(|_| ());
        let mut sender = lab.sender(spec);
        sender.start(0);
        while !sender
            .step(lab.near.queues[0].tx(), &lab.clock)
            .unwrap()
            .done
        {}
        let outcome = sender.finish(lab.near.queues[0].tx());
        assert_eq!(
            outcome.streams[0].intended_frames,
            Some(outcome.streams[0].offered_frames)
        );
        let arrived = lab.arrived();
        assert!(
            arrived
                .iter()
                .zip(frames.iter().cycle())
                .all(|(a, f)| a.1 == f.bytes)
        );
        arrived
            .iter()
            .map(|(stamp, _)| (stamp - wb_traffic::VirtualClock::EPOCH_NS) / 10_000)
            .collect::<Vec<_>>()
    };
    assert_eq!(stamps(&spec(vec![at(Some(1.0))])), [0, 100, 300]);
    assert_eq!(stamps(&spec(vec![at(Some(2.0))])), [0, 50, 150]);
    // The mean gap of 1.5 ms separates the passes.
    assert_eq!(
        stamps(&SenderSpec {
            count: Some(5),
            ..spec(vec![at(Some(1.0))])
        }),
        [0, 100, 300, 450, 550]
    );
    let even = StreamSpec {
        pps: Some(Rational::whole(1000)),
        ..at(None)
    };
    assert_eq!(
        stamps(&SenderSpec {
            duration_ns: Some(4 * MS),
            ..spec(vec![even])
        }),
        [0, 100, 200, 300]
    );
}

#[test]
fn refused_and_withdrawn_frames_are_not_offered() {
    // A receiver that reads nothing: 16 frames fit, the rest is refused.
    let mut lab = Lab::new(|options| (options.depth, options.drop_when_full) = (16, true));
    let stream = Stream {
        flows: Some(3),
        ..Stream::default()
    };
    let spec_of = |count| SenderSpec {
        count: Some(count),
        ..spec(vec![StreamSpec {
            stream: stream.clone(),
            flows: 3,
            ..paced(100_000)
        }])
    };
    let mut sender = lab.sender(&spec_of(40));
    sender.start(0);
    while !sender
        .step(lab.near.queues[0].tx(), &lab.clock)
        .unwrap()
        .done
    {}
    let outcome = sender.finish(lab.near.queues[0].tx());
    let account = &outcome.streams[0];
    assert_eq!(
        (
            account.intended_frames,
            account.offered_frames,
            account.refused_frames
        ),
        (Some(40), 16, 24)
    );
    assert_eq!(
        (&account.flow_frames[..], account.offered_octets),
        (&[6, 5, 5][..], 16 * 64)
    );

    let mut lab = Lab::new(|options| options.depth = 16);
    let mut sender = lab.sender(&SenderSpec {
        catch_up_ns: 0,
        ..spec_of(30)
    });
    sender.start(lab.clock.monotonic_ns());
    while !sender
        .step(lab.near.queues[0].tx(), &lab.clock)
        .unwrap()
        .done
    {}
    let outcome = sender.finish(lab.near.queues[0].tx());
    let account = &outcome.streams[0];
    assert_eq!(
        (
            account.intended_frames,
            account.offered_frames,
            account.withdrawn_frames
        ),
        (Some(30), 16, 14)
    );
    assert_eq!(account.flow_frames.iter().sum::<u64>(), 16);
    assert_eq!(outcome.tx.sent_frames, 16);
}

#[test]
fn an_aborted_run_asked_only_for_what_was_due() {
    let mut lab = Lab::new(|_| ());
    let mut sender = lab.sender(&SenderSpec {
        duration_ns: Some(S),
        ..spec(vec![paced(10_000)])
    });
    sender.start(0);
    let tx = lab.near.queues[0].tx();
    while sender.step(tx, &lab.clock).unwrap().now_ns < 5 * MS {}
    sender.abort();
    assert!(sender.step(tx, &lab.clock).unwrap().done);
    let outcome = sender.finish(tx);
    let offered = outcome.streams[0].offered_frames;
    assert!((50..=51).contains(&offered), "{offered}");
    assert_eq!(outcome.streams[0].intended_frames, Some(offered));
}

#[test]
fn a_link_that_is_down_costs_what_cannot_be_made_up() {
    let mut lab = Lab::new(|_| ());
    let mut sender = lab.sender(&SenderSpec {
        duration_ns: Some(100 * MS),
        catch_up_ns: 10 * MS,
        ..spec(vec![paced(1000)])
    });
    sender.start(0);
    let (mut errors, control) = (0, lab.near.control.clone());
    loop {
        let now = lab.clock.monotonic_ns();
        control.set_up(!(20 * MS..60 * MS).contains(&now));
        match sender.step(lab.near.queues[0].tx(), &lab.clock) {
            Ok(step) if step.done => break,
            Ok(_) => {}
            Err(PortError::LinkDown { .. }) => errors += 1,
            Err(error) => panic!("{error}"),
        }
    }
    let outcome = sender.finish(lab.near.queues[0].tx());
    assert!(errors > 100);
    let account = &outcome.streams[0];
    assert_eq!(account.intended_frames, Some(100));
    // One frame waited in the port, and those of the last 10 ms were sent late.
    assert!(
        (70..=72).contains(&account.offered_frames),
        "{}",
        account.offered_frames
    );
    assert_eq!(lab.arrived().len() as u64, account.offered_frames);
}

#[test]
fn departures_are_measured_frame_by_frame() {
    let spec = SenderSpec {
        count: Some(101),
        departures: true,
        ..spec(vec![paced(10_000)])
    };
    let (_, outcome) = Lab::new(|_| ()).send(&spec);
    let gaps = outcome.departures.unwrap();
    assert_eq!(gaps.count(), 100);
    assert!((99_900..=100_100).contains(&((gaps.sum() / 100) as u64)));
}

#[test]
fn what_cannot_be_sent_is_said() {
    let error = |stream: Stream| {
        Sender::new(
            &spec(vec![StreamSpec {
                stream,
                ..StreamSpec::default()
            }]),
            1514,
        )
        .err()
        .unwrap()
        .to_string()
    };
    assert_eq!(
        error(Stream {
            size: Some("9000".parse().unwrap()),
            ..Stream::default()
        }),
        "stream: a frame of 9000 bytes (with FCS) exceeds the port's maximum of 1518"
    );
    assert_eq!(
        error(Stream {
            size: Some("64".parse().unwrap()),
            ipv6: true,
            ..Stream::default()
        }),
        "stream: 64 bytes (with FCS) are too few for the headers and the test tag; at least 84 are needed"
    );
    assert_eq!(
        error(Stream {
            vary: vec!["vlan=inc:1-2".parse().unwrap()],
            ..Stream::default()
        }),
        "stream: its frames have no field vlan"
    );
    assert!(
        Sender::new(
            &SenderSpec {
                worker: 1,
                ..SenderSpec::default()
            },
            1514
        )
        .is_err()
    );
    let few = SenderSpec {
        workers: 2,
        ..spec(vec![StreamSpec::default()])
    };
    assert!(matches!(
        Sender::new(&few, 1514),
        Err(CompileError::Flows { .. })
    ));
}
