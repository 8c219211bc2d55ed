//! Share of the rate as a function of time, and its integral.
//!
//! A curve consists of linear pieces. The area below it up to a time, multiplied by the rate, is the number of events
//! due by then. It is computed from the time alone in integers, so nothing drifts.

use wb_model::load::{LoadRise, LoadShape};

/// A share of 1; shares are whole millionths.
pub(crate) const ONE: u64 = 1_000_000;

const SECOND: u64 = 1_000_000_000;

/// A linear piece from one time (ns) and share to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CurvePiece {
    from: u64,
    to: u64,
    first: u64,
    last: u64,
    /// Twice the area before it.
    before: u128,
}

impl CurvePiece {
    /// Twice the area from its beginning to `x` ns after it, rounded down.
    fn area_until(&self, x: u64) -> u128 {
        let len = u128::from(self.to - self.from).max(1);
        let x = u128::from(x);
        let even = 2 * u128::from(self.first) * x;
        if self.last >= self.first {
            even + u128::from(self.last - self.first) * x * x / len
        } else {
            // Rounded down as well.
            even - (u128::from(self.first - self.last) * x * x).div_ceil(len)
        }
    }
}

/// The share of the rate over the time of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Curve {
    pieces: Vec<CurvePiece>,
}

impl Curve {
    /// Builds the curve from wait, ramp, profile or the full rate.
    pub(crate) fn new(shape: &LoadShape) -> Self {
        let (wait, ramp) = (shape.wait.as_nanos(), shape.ramp.as_nanos());
        let steady = wait.max(ramp);
        let end = steady.saturating_add(shape.duration.as_nanos());
        let mut curve = Self { pieces: Vec::new() };
        curve.push_ramp(shape.rise, ramp, wait);
        curve.push_piece(steady, 0, 0);
        let mut share = shape
            .profile
            .first()
            .map_or(ONE, |point| millionths(point.share));
        for point in &shape.profile {
            let at = steady.saturating_add(point.at.as_nanos()).min(end);
            let next = millionths(point.share);
            curve.push_piece(at, share, next);
            share = next;
        }
        curve.push_piece(end, share, share);
        curve
    }

    fn end(&self) -> u64 {
        self.pieces.last().map_or(0, |piece| piece.to)
    }

    fn total(&self) -> u128 {
        self.pieces.last().map_or(0, |piece| {
            piece.before + piece.area_until(piece.to - piece.from)
        })
    }

    /// Appends a piece that ends at `to`.
    fn push_piece(&mut self, to: u64, first: u64, last: u64) {
        let (from, before) = (self.end(), self.total());
        if to > from {
            self.pieces.push(CurvePiece {
                from,
                to,
                first,
                last,
                before,
            });
        }
    }

    /// Appends the ramp from 0 to `length`; the part before `wait` is suppressed.
    fn push_ramp(&mut self, rise: LoadRise, length: u64, wait: u64) {
        let mut points: Vec<(u64, u64, u64)> = Vec::new();
        match rise {
            LoadRise::Linear => points.push((length, 0, ONE)),
            LoadRise::Steps => {
                let steps = length.div_ceil(SECOND).max(1);
                for step in 1..=steps {
                    let share = ONE * step / steps;
                    points.push(((step * SECOND).min(length), share, share));
                }
            }
            LoadRise::Exponential => {
                // A line between successive doublings, which are 1 / log2(1000) of the length apart.
                let doublings = 1000f64.log2();
                let share = |j: u32| (ONE / 1000) << j;
                for j in 0..9 {
                    let to = (length as f64 * f64::from(j + 1) / doublings) as u64;
                    points.push((to, share(j), share(j + 1)));
                }
                points.push((length, share(9), ONE));
            }
        }
        let mut from = 0;
        for (to, first, last) in points {
            if to > wait && to > from {
                if from < wait {
                    // Cut at the end of the wait.
                    self.push_piece(wait, 0, 0);
                    let rise = i128::from(last) - i128::from(first);
                    let there = rise * i128::from(wait - from) / i128::from(to - from);
                    self.push_piece(to, (i128::from(first) + there) as u64, last);
                } else {
                    self.push_piece(to, first, last);
                }
            }
            from = from.max(to);
        }
    }

    fn piece_at(&self, time: u64) -> Option<&CurvePiece> {
        let at = self.pieces.partition_point(|piece| piece.to <= time);
        self.pieces.get(at)
    }

    /// Share at a time; 0 after the end.
    pub(crate) fn share_at(&self, time: u64) -> u64 {
        self.piece_at(time).map_or(0, |piece| {
            let (x, len) = (
                i128::from(time - piece.from),
                i128::from(piece.to - piece.from),
            );
            let rise = i128::from(piece.last) - i128::from(piece.first);
            (i128::from(piece.first) + rise * x / len.max(1)) as u64
        })
    }

    /// Twice the area up to a time, in millionths times ns.
    #[inline]
    pub(crate) fn area_until(&self, time: u64) -> u128 {
        match self.piece_at(time) {
            Some(piece) => piece.before + piece.area_until(time - piece.from),
            None => self.total(),
        }
    }

    /// First time with a share above 0.
    pub(crate) fn begin(&self) -> u64 {
        self.pieces
            .iter()
            .find(|piece| piece.first > 0 || piece.last > 0)
            .map_or(u64::MAX, |piece| piece.from)
    }

    /// First time at which twice the area reaches `area`; `u64::MAX` if never.
    pub(crate) fn time_of(&self, area: u128) -> u64 {
        let at = self
            .pieces
            .partition_point(|piece| piece.before + piece.area_until(piece.to - piece.from) < area);
        let Some(piece) = self.pieces.get(at) else {
            return u64::MAX;
        };
        let need = area.saturating_sub(piece.before);
        if need == 0 {
            return piece.from;
        }
        if piece.first == piece.last {
            return piece.from + need.div_ceil(2 * u128::from(piece.first)) as u64;
        }
        let (mut low, mut high) = (0, piece.to - piece.from);
        while low < high {
            let middle = low + (high - low) / 2;
            if piece.area_until(middle) < need {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        piece.from + low
    }
}

/// Shares are 0 to 10, so this is exact enough and never too large.
fn millionths(share: f64) -> u64 {
    (share.clamp(0.0, 10.0) * ONE as f64).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wb_model::load::ProfilePoint;
    use wb_model::units::Span;

    fn shape(wait: u64, ramp: u64, duration: u64, rise: LoadRise) -> LoadShape {
        LoadShape {
            wait: Span::from_millis(wait),
            ramp: Span::from_millis(ramp),
            duration: Span::from_millis(duration),
            rise,
            ..LoadShape::default()
        }
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn a_linear_ramp_has_half_the_area() {
        let curve = Curve::new(&shape(0, 1000, 1000, LoadRise::Linear));
        assert_eq!(curve.area_until(1000 * MS), u128::from(ONE * 1000 * MS));
        assert_eq!(curve.area_until(2000 * MS), 3 * u128::from(ONE * 1000 * MS));
        assert_eq!(
            (curve.share_at(500 * MS), curve.share_at(1500 * MS)),
            (ONE / 2, ONE)
        );
        assert_eq!(curve.share_at(2000 * MS), 0);
    }

    #[test]
    fn the_wait_is_part_of_the_ramp() {
        let curve = Curve::new(&shape(400, 1000, 1000, LoadRise::Linear));
        assert_eq!((curve.begin(), curve.area_until(400 * MS)), (400 * MS, 0));
        assert_eq!(curve.share_at(400 * MS), ONE * 4 / 10);
        // The trapezium from 0.4 to 1.
        assert_eq!(
            curve.area_until(1000 * MS),
            u128::from(ONE * 600 * MS) * 14 / 10
        );
        let long = Curve::new(&shape(3000, 1000, 1000, LoadRise::Linear));
        assert_eq!((long.begin(), long.share_at(3000 * MS)), (3000 * MS, ONE));
    }

    #[test]
    fn steps_and_doublings() {
        let steps = Curve::new(&shape(0, 4000, 1000, LoadRise::Steps));
        let shares: Vec<u64> = (0..5)
            .map(|s| steps.share_at(s * SECOND) * 4 / ONE)
            .collect();
        assert_eq!(shares, [1, 2, 3, 4, 4]);
        let rise = Curve::new(&shape(0, 9966, 1000, LoadRise::Exponential));
        assert_eq!(rise.share_at(0), ONE / 1000);
        for second in 1..9 {
            let twice =
                rise.share_at(second * SECOND) as f64 / rise.share_at((second - 1) * SECOND) as f64;
            assert!((1.99..2.01).contains(&twice), "{second}: {twice}");
        }
        assert_eq!(rise.share_at(9966 * MS), ONE);
    }

    #[test]
    fn a_profile_goes_in_straight_lines() {
        let point = |at, share| ProfilePoint {
            at: Span::from_millis(at),
            share,
        };
        let shape = LoadShape {
            profile: vec![point(100, 0.5), point(300, 2.0), point(400, 0.0)],
            ..shape(0, 0, 1000, LoadRise::Linear)
        };
        let curve = Curve::new(&shape);
        let shares: Vec<u64> = [0, 100, 200, 300, 350, 400, 900]
            .map(|at| curve.share_at(at * MS))
            .to_vec();
        assert_eq!(
            shares,
            [500_000, 500_000, 1_250_000, 2_000_000, 1_000_000, 0, 0]
        );
        // 0.05 + 0.25 + 0.1 seconds of the full rate.
        assert_eq!(curve.area_until(1000 * MS), 2 * u128::from(ONE * 400 * MS));
    }

    proptest! {
        /// The time of an area is the first at which it is reached.
        #[test]
        fn time_and_area_are_inverse(
            wait in 0u64..3000, ramp in 0u64..3000, duration in 1u64..5000, rise in 0usize..3,
            points in prop::collection::vec((0u64..5000, 0.0f64..10.0), 0..5), at in 0.0f64..1.0,
        ) {
            let rise = [LoadRise::Linear, LoadRise::Steps, LoadRise::Exponential][rise];
            let mut shape = shape(wait, ramp, duration, rise);
            shape.profile = points.iter().map(|&(at, share)| ProfilePoint { at: Span::from_millis(at), share }).collect();
            shape.profile.sort_by_key(|point| point.at);
            let curve = Curve::new(&shape);
            let area = (curve.total() as f64 * at) as u128;
            let time = curve.time_of(area);
            prop_assert!(curve.area_until(time) >= area);
            prop_assert!(time == 0 || area == 0 || curve.area_until(time - 1) < area);
        }
    }
}
