//! Schedule of requests. The time of request k is computed from k, so that errors do not accumulate. A stage excludes
//! its end: a rate R for a time T has R·T requests.

use wb_wire::SplitMix64;

use super::{Arrivals, HttpStage};

/// Stage of the schedule; times in ns since the start. `before` is the number of requests due before its start.
#[derive(Clone, Copy, Debug)]
struct Stage {
    start: f64,
    length: f64,
    /// Rate in requests per ns at the start and at the end.
    from: f64,
    to: f64,
    before: f64,
}

impl Stage {
    /// Number of requests due in the first `x` ns of the stage.
    fn area(&self, x: f64) -> f64 {
        match self.slope() {
            // This applies to a stage without end, too.
            0.0 => self.from * x,
            slope => self.from * x + slope * x * x / 2.0,
        }
    }

    fn slope(&self) -> f64 {
        match self.length.is_finite() {
            true => (self.to - self.from) / self.length,
            false => 0.0,
        }
    }

    /// Returns the time of request number `next`, in ns since the start of the schedule; `None` if it belongs to a
    /// later stage.
    fn due(&self, next: f64) -> Option<u64> {
        // Rounded; otherwise a request of the last nanosecond would fall before the end of the stage.
        let x = self.when((next - self.before).max(0.0)).round();
        let within = x < self.length && (self.from > 0.0 || self.to > 0.0);
        // The time of a due request is below 2^63.
        within.then_some((self.start + x) as u64)
    }

    /// Returns the time after which `count` requests are due, from the start of the stage: the smaller root of the
    /// parabola, in a form that keeps precision for small slopes.
    fn when(&self, count: f64) -> f64 {
        let root = (self.from * self.from + 2.0 * self.slope() * count)
            .max(0.0)
            .sqrt();
        match self.from + root {
            sum if sum > 0.0 => 2.0 * count / sum,
            // The first request of a rate that rises from 0 is due immediately.
            _ if count <= 0.0 => 0.0,
            _ => self.length,
        }
    }
}

/// Requests of one of several threads.
#[derive(Debug)]
pub struct Schedule {
    stages: Vec<Stage>,
    at: usize,
    /// In requests of all threads.
    next: f64,
    step: f64,
    arrivals: Option<SplitMix64>,
    due: u64,
}

impl Schedule {
    /// Creates the schedule of thread `index` of `count`. It has the requests k with k mod `count` = `index`; with
    /// independent arrivals, an equal share of the requests.
    #[must_use]
    pub fn new(
        stages: &[HttpStage],
        arrivals: Arrivals,
        seed: u64,
        (index, count): (u32, u32),
    ) -> Self {
        let (mut start, mut before) = (0.0, 0.0);
        let mut made = Vec::new();
        for stage in stages {
            let length = stage
                .time
                .map_or(f64::INFINITY, |time| time.as_nanos() as f64);
            let one = Stage {
                start,
                length,
                from: stage.from / 1e9,
                to: stage.to / 1e9,
                before,
            };
            made.push(one);
            start += length;
            before += one.area(length);
        }
        let mut schedule = Self {
            stages: made,
            at: 0,
            next: f64::from(index),
            step: f64::from(count),
            arrivals: (arrivals == Arrivals::Poisson)
                .then(|| SplitMix64(seed ^ (u64::from(index) << 32))),
            due: 0,
        };
        if schedule.arrivals.is_some() {
            schedule.next = 0.0;
            schedule.pass();
        }
        schedule.find();
        schedule
    }

    /// Time of the next request, in ns since the start; `u64::MAX` if there is none.
    #[must_use]
    pub const fn due(&self) -> u64 {
        self.due
    }

    /// Removes the next request.
    pub fn take(&mut self) {
        self.pass();
        self.find();
    }

    fn pass(&mut self) {
        self.next += match &mut self.arrivals {
            None => self.step,
            Some(random) => {
                // 53 bits in (0, 1].
                let unit = ((random.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
                -unit.ln() * self.step
            }
        };
    }

    /// Returns the time of request number `count` of all threads at a uniform rate, counted from 0, in ns since the
    /// start. `u64::MAX` if the stages end before it.
    #[must_use]
    pub fn nominal(&self, count: u64) -> u64 {
        #[allow(clippy::cast_precision_loss)]
        let count = count as f64;
        let due = self.stages.iter().find_map(|stage| stage.due(count));
        due.unwrap_or(u64::MAX)
    }

    fn find(&mut self) {
        self.due = u64::MAX;
        while let Some(stage) = self.stages.get(self.at) {
            if let Some(due) = stage.due(self.next) {
                self.due = due;
                return;
            }
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Span;

    fn stage(from: f64, to: f64, ms: Option<u64>) -> HttpStage {
        HttpStage {
            from,
            to,
            time: ms.map(Span::from_millis),
        }
    }

    fn all(stages: &[HttpStage], arrivals: Arrivals, count: u32, until_ns: u64) -> Vec<u64> {
        let mut due = Vec::new();
        for index in 0..count {
            let mut schedule = Schedule::new(stages, arrivals, 7, (index, count));
            while schedule.due() < until_ns {
                due.push(schedule.due());
                schedule.take();
            }
        }
        due.sort_unstable();
        due
    }

    #[test]
    fn threads_share_out_one_schedule() {
        for count in [1, 3] {
            let due = all(
                &[stage(1000.0, 1000.0, None)],
                Arrivals::Uniform,
                count,
                1_000_000_000,
            );
            assert_eq!(due.len(), 1000);
            for (k, due) in due.iter().enumerate() {
                assert!(due.abs_diff(k as u64 * 1_000_000) <= 1, "{k}: {due}");
            }
        }
    }

    #[test]
    fn stages_join_and_ramps_have_their_area() {
        let stages = [
            stage(0.0, 1000.0, Some(1000)),
            stage(0.0, 0.0, Some(500)),
            stage(200.0, 200.0, Some(1000)),
            stage(1000.0, 0.0, Some(1000)),
        ];
        let due = all(&stages, Arrivals::Uniform, 2, u64::MAX);
        let within = |from: u64, to: u64| {
            let ms = 1_000_000;
            due.iter()
                .filter(|d| (from * ms..to * ms).contains(*d))
                .count()
        };
        assert_eq!(within(0, 500), 125);
        assert!(
            (499..=501).contains(&within(0, 1000)),
            "{}",
            within(0, 1000)
        );
        assert_eq!(within(1001, 1499), 0);
        assert!((199..=201).contains(&within(1500, 2500)));
        assert!(
            (374..=376).contains(&within(2500, 3000)),
            "{}",
            within(2500, 3000)
        );
        assert!(due.len().abs_diff(1200) <= 1, "{}", due.len());
        assert!(due.windows(2).all(|w| w[0] <= w[1]));
    }

    #[test]
    fn a_rate_and_a_time_have_their_product_of_requests() {
        for (rate, ms) in [
            (2.0, 1000),
            (3.0, 1000),
            (7.0, 3000),
            (64.0, 1000),
            (1000.0, 100),
            (333.0, 1000),
            (49_999.0, 2000),
        ] {
            let wanted = (rate * ms as f64 / 1000.0) as usize;
            for threads in [1, 2, 3] {
                let open = [stage(rate, rate, None)];
                let due = all(&open, Arrivals::Uniform, threads, ms * 1_000_000);
                assert_eq!(due.len(), wanted, "{rate}/s for {ms} ms, {threads} threads");
                let staged = [stage(rate, rate, Some(ms))];
                let due = all(&staged, Arrivals::Uniform, threads, u64::MAX);
                assert_eq!(due.len(), wanted, "{rate}/s, a stage of {ms} ms");
                let two = [stage(rate, rate, Some(ms)), stage(rate, rate, Some(ms))];
                let due = all(&two, Arrivals::Uniform, threads, u64::MAX);
                assert_eq!(due.len(), 2 * wanted, "{rate}/s, two stages of {ms} ms");
            }
        }
        let ramps = [stage(0.0, 100.0, Some(1000)), stage(100.0, 0.0, Some(1000))];
        assert_eq!(all(&ramps, Arrivals::Uniform, 1, u64::MAX).len(), 100);
    }

    #[test]
    fn a_count_of_requests_takes_as_many_gaps() {
        let open = [stage(3.0, 3.0, None)];
        let schedule = Schedule::new(&open, Arrivals::Uniform, 7, (1, 2));
        assert_eq!(schedule.nominal(0), 0);
        assert_eq!(schedule.nominal(3), 1_000_000_000);
        let staged = [stage(3.0, 3.0, Some(1000))];
        let schedule = Schedule::new(&staged, Arrivals::Uniform, 7, (0, 1));
        assert_eq!(schedule.nominal(2), 666_666_667);
        assert_eq!(schedule.nominal(3), u64::MAX);
    }

    #[test]
    fn independent_arrivals_have_the_rate_and_its_spread() {
        let due = all(
            &[stage(10_000.0, 10_000.0, None)],
            Arrivals::Poisson,
            2,
            1_000_000_000,
        );
        assert!((9_600..10_400).contains(&due.len()), "{}", due.len());
        let gaps: Vec<f64> = due.windows(2).map(|w| (w[1] - w[0]) as f64 / 1e5).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((0.85..1.15).contains(&variance), "{variance}");
    }
}
