//! Conservation law: offered frames equal received originals plus lost ones; and the results agree with the device that
//! lost, duplicated and reordered frames.

use crate::common::Lab;
use proptest::prelude::*;
use wb_measure::settle_flows;
use wb_model::{Proto, Stream, units::Rational};
use wb_port::fault::{Capacity, Impairment, Loss};
use wb_port::{PortError, QueuePair};
use wb_traffic::{FlowSpace, Receiver, ReceiverSpec, SenderSpec, StreamSpec};

#[derive(Debug, Clone)]
struct Case {
    spec: SenderSpec,
    impairment: Impairment,
    depth: u32,
    drop_when_full: bool,
    /// Turns between two receive calls.
    look_every: u32,
    /// Turn at which to stall, and the length of the stall.
    stall: Option<(u32, u64)>,
}

fn streams() -> impl Strategy<Value = StreamSpec> {
    let proto = prop_oneof![Just(Proto::Udp), Just(Proto::Tcp), Just(Proto::Icmp)];
    let size = prop_oneof![Just("100"), Just("100-140"), Just("100:3,400:2")];
    let pps = prop_oneof![
        Just(None),
        (1u64..3_000_000, 1u64..7).prop_map(|(n, d)| Rational::new(n.into(), d.into()))
    ];
    let vary = prop_oneof![
        Just(""),
        Just("tos=random:0-255"),
        Just("src=inc:10.0.0.0-10.0.0.9"),
        Just("u16@90=dec:0-500")
    ];
    (proto, size, pps, 1u32..40, vary).prop_map(|(proto, size, pps, flows, vary)| StreamSpec {
        stream: Stream {
            proto,
            size: Some(size.parse().unwrap()),
            flows: Some(flows),
            vary: (!vary.is_empty())
                .then(|| vary.parse().unwrap())
                .into_iter()
                .collect(),
            ..Stream::default()
        },
        flows,
        pps,
        ..StreamSpec::default()
    })
}

fn impairments() -> impl Strategy<Value = Impairment> {
    let loss = prop_oneof![
        Just(Loss::None),
        (0.0..0.5).prop_map(Loss::Ratio),
        (1u64..20).prop_map(Loss::Every)
    ];
    let capacity = prop_oneof![
        3 => Just(None),
        1 => (1000.0..500_000.0, 0u32..50).prop_map(|(rate, buffer)| Some(Capacity::frames_per_second(rate, buffer))),
    ];
    (
        loss,
        0.0..0.3,
        0.0..0.3,
        1u32..10,
        0u64..50_000,
        0u64..50_000,
        capacity,
        any::<u64>(),
    )
        .prop_map(
            |(loss, duplicate, reorder, reorder_depth, delay_ns, jitter_ns, capacity, seed)| {
                Impairment {
                    loss,
                    duplicate,
                    reorder,
                    reorder_depth,
                    reorder_limit_ns: 1_000_000,
                    delay_ns,
                    jitter_ns,
                    capacity,
                    seed,
                }
            },
        )
}

fn cases() -> impl Strategy<Value = Case> {
    let stall = prop_oneof![Just(None), (0u32..200, 0u64..3_000_000).prop_map(Some)];
    let sending = (
        prop::collection::vec(streams(), 1..4),
        1u64..2_000_000,
        1u64..1500,
        0u64..1_000_000,
        any::<u64>(),
    );
    (
        sending,
        impairments(),
        4u32..200,
        any::<bool>(),
        1u32..5,
        stall,
    )
        .prop_map(
            |(
                (mut streams, duration_ns, count, catch_up_ns, seed),
                impairment,
                depth,
                drop_when_full,
                look_every,
                stall,
            )| {
                let mut first_flow = 1000;
                for stream in &mut streams {
                    stream.first_flow = first_flow;
                    first_flow += stream.flows;
                }
                let spec = SenderSpec {
                    streams,
                    seed,
                    duration_ns: Some(duration_ns),
                    count: Some(count),
                    catch_up_ns,
                    ..SenderSpec::default()
                };
                Case {
                    spec,
                    impairment,
                    depth,
                    drop_when_full,
                    look_every,
                    stall,
                }
            },
        )
}

fn check(case: &Case) -> Result<(), TestCaseError> {
    let mut lab = Lab::new(|options| {
        options.depth = case.depth;
        options.drop_when_full = case.drop_when_full;
        options.batch = 16;
        options.forward = case.impairment.clone();
    });
    let flows: u32 = case.spec.streams.iter().map(|s| s.flows).sum();
    let mut receiver = Receiver::new(&ReceiverSpec {
        flows: FlowSpace::Planned {
            first: 1000,
            count: flows,
        },
        ..ReceiverSpec::default()
    });
    let mut sender = lab.sender(&case.spec);
    sender.start(0);
    for turn in 0.. {
        match sender.step(lab.near.queues[0].tx(), &lab.clock) {
            Ok(step) if step.done => break,
            Ok(_) => {}
            Err(error @ PortError::Gone { .. }) => panic!("{error}"),
            Err(_) => {}
        }
        if turn % case.look_every == 0 {
            receiver.step(lab.far.queues[0].rx(), 64, u64::MAX).unwrap();
        }
        if let Some((_, ns)) = case.stall.filter(|(at, _)| *at == turn) {
            lab.clock.advance(ns);
        }
    }
    let sent = sender.finish(lab.near.queues[0].tx());
    // Long enough for all frames waiting in the device.
    for _ in 0..2000 {
        while receiver
            .step(lab.far.queues[0].rx(), 64, sent.last_departure_wall_ns)
            .unwrap()
            > 0
        {}
        lab.clock.advance(1_000_000);
    }
    let received = receiver.finish().measurement;
    let device = lab.near.control.forward_counters();

    let mut offered = Vec::new();
    for (spec, stream) in case.spec.streams.iter().zip(&sent.streams) {
        prop_assert_eq!(
            stream.flow_frames.iter().sum::<u64>(),
            stream.offered_frames
        );
        if let Some(intended) = stream.intended_frames {
            prop_assert!(
                stream.offered_frames + stream.refused_frames + stream.withdrawn_frames <= intended
            );
        }
        offered.extend((spec.first_flow..).zip(stream.flow_frames.iter().copied()));
    }
    let total: u64 = sent.streams.iter().map(|s| s.offered_frames).sum();
    prop_assert_eq!(total, sent.tx.sent_frames);
    prop_assert!(total <= case.spec.count.unwrap());

    let counters = received.counters;
    prop_assert_eq!(
        (counters.foreign_frames, counters.beyond_window_frames),
        (0, 0)
    );
    let (account, per_flow) = settle_flows(&offered, &received.flows);
    prop_assert_eq!(account.excess, 0);
    prop_assert!(account.balances() && per_flow.iter().all(|(_, account)| account.balances()));
    prop_assert_eq!(
        (account.offered, account.received),
        (total, counters.received_frames)
    );

    if case.impairment.is_none() {
        prop_assert_eq!((account.lost, account.duplicate), (0, 0));
    } else {
        prop_assert_eq!(device.arrived, total);
        prop_assert_eq!(account.lost, device.lost + device.rate_dropped);
        prop_assert_eq!(account.duplicate, device.duplicated);
        prop_assert_eq!(account.received, device.left);
        // Fewer frames overtake within one flow than overall.
        prop_assert!(counters.reordered_frames <= device.reordered);
        if flows == 1 {
            prop_assert_eq!(counters.reordered_frames, device.reordered);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn nothing_appears_or_vanishes(case in cases()) {
        check(&case)?;
    }

    #[test]
    fn one_flow_has_the_reordering_of_the_device(mut case in cases()) {
        case.spec.streams.truncate(1);
        case.spec.streams[0].flows = 1;
        case.spec.streams[0].stream.flows = Some(1);
        check(&case)?;
    }
}
