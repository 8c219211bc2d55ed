//! Short sleeps of a closed-loop thread.
//!
//! A thread waiting in the kernel is woken when an answer is sent, which costs the server CPU time if both share a
//! machine: waking it for every third answer cost nginx a tenth of its requests. Therefore, with many requests in
//! flight, an idle thread sleeps for a small part of the answer time, and then reads all answers received meanwhile.

/// Minimum number of requests in flight: with fewer, a sleep is over before a second answer is there.
const MANY: u64 = 32;
/// Divisor: a sleep adds at most this part of the mean answer time.
const PART: u64 = 64;
/// Maximum sleep; longer ones bring no benefit.
const MOST_NS: u64 = 100_000;
/// Minimum sleep: the call itself takes a few microseconds.
const LEAST_NS: u64 = 5_000;

/// Answers so far, and the resulting sleep.
#[derive(Default)]
pub(super) struct IdleSleep {
    latency_ns: u64,
    answers: u64,
    ns: u64,
}

impl IdleSleep {
    /// Time to sleep if no events are pending, ns; 0: do not sleep.
    pub(super) fn sleep_ns(&self) -> u64 {
        self.ns
    }

    /// Adapts the sleep to the answers since the last call, from the sum of times, ns, and the number of answers so
    /// far.
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

    /// The sleep for a mean of this number of answers.
    fn of(in_flight: u64, mean_ns: u64, answers: u64) -> u64 {
        let mut nap = IdleSleep::default();
        nap.adapt(1000, 7_000_000, 3);
        nap.adapt(in_flight, 7_000_000 + mean_ns * answers, 3 + answers);
        nap.sleep_ns()
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
