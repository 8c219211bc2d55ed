//! Clocks: the true offset is within the stated error, whatever the delays of both directions are.

use proptest::prelude::*;
use wb_fleet_core::clock::{
    ClockLine, ESTIMATE_NS, ESTIMATES, EXCHANGES, Estimate, Exchange, SenderLine, pair_clock,
};
use wb_model::peer::PairClock;

const BASE_NS: i128 = 1_795_726_288_000_000_000;

/// Clock with a constant drift.
#[derive(Clone, Copy, Debug)]
struct Drifting {
    offset_ns: i64,
    drift_ppb: i64,
}

impl Drifting {
    fn at(self, true_ns: u64) -> u64 {
        let drift = i128::from(true_ns) * i128::from(self.drift_ppb) / 1_000_000_000;
        u64::try_from(BASE_NS + i128::from(true_ns) + i128::from(self.offset_ns) + drift).unwrap()
    }

    /// True time at which the clock shows a time.
    fn when(self, shown_ns: u64) -> i128 {
        let apparent = i128::from(shown_ns) - BASE_NS - i128::from(self.offset_ns);
        apparent * 1_000_000_000 / (1_000_000_000 + i128::from(self.drift_ppb))
    }

    /// Clock at a possibly fractional moment, for times between the samples.
    fn offset_to(self, far: Self, at_ns: u64) -> i128 {
        let true_ns = self.when(at_ns);
        let shown = BASE_NS
            + true_ns
            + i128::from(far.offset_ns)
            + true_ns * i128::from(far.drift_ppb) / 1_000_000_000;
        shown - i128::from(at_ns)
    }
}

fn clocks() -> impl Strategy<Value = Drifting> {
    (-50_000_000_i64..=50_000_000, -20_000_i64..=20_000).prop_map(|(offset_ns, drift_ppb)| {
        Drifting {
            offset_ns,
            drift_ppb,
        }
    })
}

/// Exchanges that begin at a true time. Each has a delay there, a delay at the far end and a delay back.
fn exchanges(
    near: Drifting,
    far: Drifting,
    at_ns: u64,
    delays: &[(u64, u64, u64)],
) -> Vec<Exchange> {
    let mut now_ns = at_ns;
    let exchange = |(there, stay, back): &(u64, u64, u64)| {
        let sent_ns = near.at(now_ns);
        let far_received_ns = far.at(now_ns + there);
        let far_sent_ns = far.at(now_ns + there + stay);
        now_ns += there + stay + back;
        Exchange {
            sent_ns,
            far_received_ns,
            far_sent_ns,
            received_ns: near.at(now_ns),
        }
    };
    delays.iter().map(exchange).collect()
}

fn delays(most_ns: u64, count: usize) -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
    proptest::collection::vec((0..=most_ns, 0..=20_000_u64, 0..=most_ns), count)
}

/// A line of estimates, one each second.
fn line(near: Drifting, far: Drifting, rounds: &[Vec<(u64, u64, u64)>]) -> ClockLine {
    let mut line = ClockLine::default();
    for (n, delays) in rounds.iter().enumerate() {
        let exchanges = exchanges(near, far, n as u64 * ESTIMATE_NS, delays);
        line.add(Estimate::best(&exchanges).unwrap(), exchanges.len());
    }
    line
}

fn is_within(
    line: &ClockLine,
    near: Drifting,
    far: Drifting,
    at_ns: u64,
) -> Result<(), TestCaseError> {
    let Some(known) = line.offset_at(at_ns) else {
        return Ok(());
    };
    let truth = near.offset_to(far, at_ns);
    let wrong = (truth - i128::from(known.offset_ns)).unsigned_abs();
    prop_assert!(
        wrong <= known.error_ns.into(),
        "wrong by {wrong} ns: {known:?}, truth {truth}"
    );
    Ok(())
}

proptest! {
    #[test]
    fn an_estimate_is_right_within_its_bound(
        near in clocks(), far in clocks(), delays in delays(5_000_000, EXCHANGES),
    ) {
        let exchanges = exchanges(near, far, 0, &delays);
        let estimate = Estimate::best(&exchanges).unwrap();
        let truth = near.offset_to(far, estimate.at_ns);
        let wrong = (truth - i128::from(estimate.offset_ns)).unsigned_abs();
        // A clock that drifts by 20 ppm changes by 100 ns in 5 ms.
        prop_assert!(wrong <= u128::from(estimate.bound_ns) + 500, "{wrong} {estimate:?}");
        let shortest = exchanges.iter().filter_map(Exchange::round_trip_ns).min().unwrap();
        prop_assert_eq!(estimate.bound_ns, shortest.div_ceil(2) + 1);
    }

    #[test]
    fn a_line_is_right_within_its_error_at_every_moment(
        near in clocks(), far in clocks(),
        rounds in proptest::collection::vec(delays(1_000_000, 4), 1..=ESTIMATES + 5),
    ) {
        for count in 1..=rounds.len() {
            let line = line(near, far, &rounds[..count]);
            // Until the next estimate, with some delay.
            let last = line.last().unwrap().at_ns;
            for after_ms in [0, 1, 250, 500, 1000, 1500] {
                is_within(&line, near, far, last + after_ms * 1_000_000)?;
            }
            // Between the recent estimates.
            if count >= 5 {
                let within_s = (count.min(ESTIMATES) - 1) as u64;
                for tenth in 0..=10 {
                    is_within(&line, near, far, last - within_s * 100_000_000 * tenth)?;
                }
            }
        }
    }

    #[test]
    fn the_clocks_of_two_hosts_are_known_within_the_sum_of_their_errors(
        near in clocks(), from in clocks(), to in clocks(),
        rounds in proptest::collection::vec((delays(200_000, 4), delays(200_000, 4)), 2..ESTIMATES),
    ) {
        let (there, back): (Vec<_>, Vec<_>) = rounds.into_iter().unzip();
        let lines = [line(near, from, &there), line(near, to, &back)];
        let now_ns = lines.iter().filter_map(|line| Some(line.last()?.at_ns)).max().unwrap();
        let pair = pair_clock(("h1", &lines[0]), ("h2", &lines[1]), now_ns).unwrap();
        // Until the next lease.
        for at_ns in [now_ns, now_ns + 500_000_000, now_ns + 1_000_000_000] {
            let truth = near.offset_to(to, at_ns) - near.offset_to(from, at_ns);
            let wrong = (truth - i128::from(pair.offset_end_ns)).unsigned_abs();
            prop_assert!(wrong <= u128::from(pair.error_ns) + 2, "{wrong} {pair:?}");
        }
        prop_assert_eq!((&*pair.method, pair.exchanges), ("broker", 8 * there.len() as u64));
    }
}

/// A receiver that corrects the offset of its sender every 20 ms in a run of 30 s. Between two estimates it takes
/// `pauses`, in ms, for the correction. Returns the largest error of the offset at any millisecond, and the clocks as
/// reported.
fn corrected_run(
    receiver: Drifting,
    sender: Drifting,
    delays: &[Vec<(u64, u64, u64)>],
    pauses: &[u64],
) -> (u128, PairClock) {
    const MS: u64 = 1_000_000;
    let mut line = SenderLine::new("h1", "h2");
    let (mut delays, mut pauses) = (delays.iter().cycle(), pauses.iter().cycle());
    let mut measure = |line: &mut SenderLine, at_ns| {
        assert!(line.add(&exchanges(receiver, sender, at_ns, delays.next().unwrap())));
    };
    measure(&mut line, 0);
    let (mut measured_ns, mut corrected_ns) = (0, 0);
    let mut reported = line.pair(receiver.at(50 * MS), 20 * MS).unwrap();
    let mut worst = 0;
    for now_ns in (50 * MS..30_000 * MS).step_by(MS as usize) {
        let now = receiver.at(now_ns);
        if now_ns - corrected_ns >= (20 + pauses.next().unwrap()) * MS {
            if now_ns - measured_ns >= line.wait_ns() {
                // The exchanges end now.
                measure(&mut line, now_ns - 10 * MS);
                measured_ns = now_ns;
            }
            corrected_ns = now_ns;
            reported = reported.followed_by(line.pair(now, 20 * MS).unwrap());
        }
        let truth = -receiver.offset_to(sender, now);
        worst = worst.max((truth - i128::from(reported.offset_end_ns)).unsigned_abs());
    }
    let last = line.pair(receiver.at(30_000 * MS), 20 * MS).unwrap();
    (worst, reported.followed_by(last))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn the_offset_of_a_sender_is_within_its_stated_error_at_every_moment_of_a_run(
        receiver in clocks(), sender in clocks(),
        delays in proptest::collection::vec(delays(100_000, 4), 7),
        pauses in proptest::collection::vec(0..300_u64, 5),
    ) {
        let (worst, reported) = corrected_run(receiver, sender, &delays, &pauses);
        prop_assert!(worst <= u128::from(reported.error_ns) + 2, "{worst} {reported:?}");
    }
}

#[test]
fn a_sender_that_drifts_by_20_ppm_is_known_to_50_us_for_30_s() {
    let clock = |offset_ns, drift_ppb| Drifting {
        offset_ns,
        drift_ppb,
    };
    let (receiver, sender) = (clock(0, 0), clock(20_000_000, 20_000));
    // The two ways of an exchange differ by up to 10 us.
    let rounds = [(5_000, 15_000), (15_000, 5_000), (9_000, 11_000)];
    let delays = rounds.map(|(there, back)| vec![(there, 2_000, back); EXCHANGES]);
    let (worst, reported) = corrected_run(receiver, sender, &delays, &[0]);
    assert!(
        worst <= u128::from(reported.error_ns),
        "{worst} {reported:?}"
    );
    assert!(reported.error_ns <= 50_000, "{reported:?}");
    assert!(
        (reported.offset_start_ns + 20_000_000).abs() < 20_000,
        "{reported:?}"
    );
    // 20 ppm of 30 s are 600 us.
    assert!(
        (reported.offset_end_ns + 20_600_000).abs() < 20_000,
        "{reported:?}"
    );
    assert!((reported.drift_ppb + 20_000).abs() < 500, "{reported:?}");
}

#[test]
fn a_line_finds_the_drift() {
    let near = Drifting {
        offset_ns: 0,
        drift_ppb: 0,
    };
    let far = Drifting {
        offset_ns: 20_000_000,
        drift_ppb: 20_000,
    };
    let rounds = vec![vec![(30_000, 5_000, 20_000); 4]; ESTIMATES];
    let line = line(near, far, &rounds);
    assert!(
        (line.drift_ppb() - 20_000).abs() <= 1,
        "{}",
        line.drift_ppb()
    );
    assert_eq!(line.exchanges(), 120);
    let known = line.offset_at(line.last().unwrap().at_ns).unwrap();
    assert!(known.error_ns < 26_000, "{known:?}");
}

#[test]
fn stamps_out_of_order_are_no_exchange() {
    let exchange = Exchange {
        sent_ns: 1_000,
        far_received_ns: 5_000,
        far_sent_ns: 4_000,
        received_ns: 2_000,
    };
    assert_eq!(exchange.round_trip_ns(), None);
    assert_eq!(Estimate::best(&[exchange]), None);
    assert_eq!(ClockLine::default().offset_at(0), None);
}
