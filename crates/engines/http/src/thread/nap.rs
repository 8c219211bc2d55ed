//! Short sleeps of a thread that asks as fast as it is answered.
//!
//! A thread that waits in the kernel is woken by whoever brings an answer, and that is the server's work where both share a
//! machine: woken for every third answer, it cost nginx a tenth of its requests. So where many requests are under way, who
//! finds nothing sleeps for a small part of the time that answers take, and then takes all that came meanwhile.

/// Requests of a thread under way, from which on it is worth it: with fewer, a sleep is over before a second answer is there.
const MANY: u64 = 32;
/// What a sleep adds to the time of an answer at the most: this part of the mean.
const PART: u64 = 64;
/// And no more than this: nobody gains by longer ones.
const MOST_NS: u64 = 100_000;
/// A sleep takes a few microseconds by itself.
const LEAST_NS: u64 = 5_000;

/// What has been answered so far, and how long to sleep.
#[derive(Default)]
pub(super) struct Nap {
    latency_ns: u64,
    answers: u64,
    ns: u64,
}

impl Nap {
    /// How long to sleep where nothing is there, ns; 0: not at all.
    pub(super) fn ns(&self) -> u64 {
        self.ns
    }

    /// Looks at what was answered since the last time: the sums of times, ns, and answers so far.
    pub(super) fn adapt(&mut self, in_flight: u64, latency_ns: u64, answers: u64) {
        let (time, count) = (latency_ns - self.latency_ns, answers - self.answers);
        (self.latency_ns, self.answers) = (latency_ns, answers);
        let mean = time.checked_div(count).unwrap_or(0);
        let ns = (mean / PART).min(MOST_NS);
        self.ns = if in_flight >= MANY && ns >= LEAST_NS {
            ns
        } else {
            0
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a mean of so many answers.
    fn of(in_flight: u64, mean_ns: u64, answers: u64) -> u64 {
        let mut nap = Nap::default();
        nap.adapt(1000, 7_000_000, 3);
        nap.adapt(in_flight, 7_000_000 + mean_ns * answers, 3 + answers);
        nap.ns()
    }

    #[test]
    fn a_sleep_is_a_small_part_of_the_time_of_late() {
        assert_eq!(of(100, 640_000, 500), 10_000);
        assert_eq!(of(32, 640_000, 1), 10_000);
    }

    #[test]
    fn never_long() {
        assert_eq!(of(10_000, 1_000_000_000, 20), 100_000);
    }

    #[test]
    fn nobody_sleeps_where_few_are_under_way_or_answers_are_quick_or_none_come() {
        assert_eq!(of(31, 640_000, 500), 0);
        assert_eq!(of(100, 300_000, 500), 0);
        assert_eq!(of(100, 640_000, 0), 0);
    }
}
