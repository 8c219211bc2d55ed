//! SACK scoreboard of one connection: which parts of the stream are in flight, received or lost (RFC 2018, RFC 6675),
//! judged by send times (RACK-TLP, RFC 8985).
//!
//! It is active only while data waits for the window or data is missing.

use std::collections::VecDeque;

use crate::connection::before;

/// Segments above a hole that indicate a loss while no reordering has been seen: RFC 5681 section 3.2.
const DUPLICATES: u32 = 3;
/// Maximum reordering window in quarters of a round trip.
const MOST_PATIENCE: u32 = 16;
/// Number of recoveries after which the reordering window is reset: RFC 8985 section 6.2.
const PATIENCE_LASTS: u8 = 16;
/// No time set.
pub(crate) const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SegmentState {
    Sent,
    Arrived,
    /// To be retransmitted.
    Lost,
}

/// Sequence numbers that were sent together and have the same fate. A run starts at the end of the previous one.
#[derive(Clone, Copy, Debug)]
struct Run {
    end: u32,
    fate: SegmentState,
    /// Sent more than once.
    again: bool,
    /// Time of the last transmission.
    at: u64,
}

/// Result of an acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckResult {
    /// Bytes newly known to have arrived.
    pub(crate) arrived: u32,
    /// Round-trip time sample, ns.
    pub(crate) sample: Option<u64>,
    /// A retransmission was unnecessary.
    pub(crate) needless: bool,
}

#[derive(Debug, Default)]
pub(crate) struct SackScoreboard {
    runs: VecDeque<Run>,
    /// Start of the first run: the oldest unacknowledged number.
    first: u32,
    arrived: u32,
    lost: u32,
    /// Send time and end of the last-sent run that has arrived; `newest_took` is its round-trip time.
    newest: (u64, u32),
    newest_took: u64,
    /// Highest number that has arrived.
    highest: u32,
    least_rtt: u64,
    /// Reordering was seen: data arrived after data that was sent later.
    reordered: bool,
    patience: u32,
    recoveries: u8,
    /// Further unnecessary retransmissions do not count below this number.
    patient_until: u32,
    sample_due: u64,
    /// The next segment may exceed the window.
    pub(crate) force: bool,
    /// Congestion window and threshold before the last recovery. `again` counts the retransmissions since then; 0 means
    /// that all of them were unnecessary.
    pub(crate) before: Option<(u16, u16)>,
    again: u32,
    /// Time at which missing data counts as lost.
    pub(crate) lost_due: u64,
    /// Time of the next retransmission: of the last segment if `probes`, otherwise of the oldest.
    pub(crate) again_due: u64,
    pub(crate) probes: bool,
    /// A tail loss probe was sent and is not acknowledged yet.
    pub(crate) probed: bool,
    /// In slow start after a timeout, up to the recovery point.
    pub(crate) timed_out: bool,
    active: bool,
}

impl SackScoreboard {
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.active
    }

    /// Starts the scoreboard; `first..next` is assumed to have been sent at `at`.
    pub(crate) fn start(&mut self, first: u32, next: u32, at: u64, rtt: u64) {
        let runs = std::mem::take(&mut self.runs);
        *self = Self {
            runs,
            first,
            highest: first,
            newest: (0, first),
            newest_took: rtt,
            least_rtt: if rtt == 0 { NEVER } else { rtt },
            patience: 1,
            patient_until: first,
            lost_due: NEVER,
            again_due: NEVER,
            active: true,
            ..Self::default()
        };
        self.runs.clear();
        self.sent(next, at);
    }

    pub(crate) fn clear(&mut self) {
        self.active = false;
        self.runs.clear();
    }

    fn next(&self) -> u32 {
        self.runs.back().map_or(self.first, |run| run.end)
    }

    /// Records new numbers up to `end` as sent.
    #[inline]
    pub(crate) fn sent(&mut self, end: u32, at: u64) {
        if !before(self.next(), end) {
            return;
        }
        match self.runs.back_mut() {
            Some(run) if run.at == at && run.fate == SegmentState::Sent && !run.again => {
                run.end = end
            }
            _ => self.runs.push_back(Run {
                end,
                fate: SegmentState::Sent,
                again: false,
                at,
            }),
        }
    }

    /// Bytes in flight ("pipe", RFC 6675), given the number of unacknowledged bytes.
    #[inline]
    pub(crate) fn pipe(&self, in_flight: u32) -> u32 {
        in_flight.saturating_sub(self.arrived + self.lost)
    }

    pub(crate) fn has_lost(&self) -> bool {
        self.lost > 0
    }

    /// Handles an acknowledgement of everything before `oldest`, with its SACK blocks; `next` is the next number to
    /// send.
    pub(crate) fn acknowledge(
        &mut self,
        now: u64,
        oldest: u32,
        next: u32,
        blocks: &[(u32, u32)],
    ) -> AckResult {
        let mut news = AckResult::default();
        let mut latest = None;
        while before(self.first, oldest) {
            let Some(run) = self.runs.front_mut() else {
                break;
            };
            let end = if before(oldest, run.end) {
                oldest
            } else {
                run.end
            };
            let len = end.wrapping_sub(self.first);
            let whole = *run;
            match run.fate {
                SegmentState::Arrived => self.arrived -= len,
                SegmentState::Lost => self.lost -= len,
                SegmentState::Sent => {}
            }
            if end == run.end {
                self.runs.pop_front();
            }
            self.first = end;
            if whole.fate != SegmentState::Arrived {
                news.arrived += len;
                self.note_arrival(now, Run { end, ..whole }, &mut latest);
            }
        }
        self.first = oldest;
        if before(self.highest, oldest) {
            self.highest = oldest;
        }
        for (i, &(start, end)) in blocks.iter().enumerate() {
            let within = blocks
                .get(1)
                .is_some_and(|b| i == 0 && !before(start, b.0) && !before(b.1, end));
            if !before(oldest, end) || within {
                // Duplicate data (D-SACK): RFC 2883 section 4.
                news.needless |= i == 0 && before(start, end) && self.note_needless(oldest, next);
                continue;
            }
            let start = if before(start, oldest) { oldest } else { start };
            if before(start, end) && !before(next, end) {
                news.arrived += self.mark(now, start, end, &mut latest);
            }
        }
        if let Some(took) = latest
            && now >= self.sample_due
        {
            // One sample per round trip; otherwise the variation would follow single bursts.
            self.sample_due = now + took;
            news.sample = Some(took);
        }
        if news.arrived > 0 {
            self.probed = false;
        }
        news
    }

    /// Records the arrival of a run: RFC 8985 section 6.2, steps 1 to 3.
    fn note_arrival(&mut self, now: u64, run: Run, latest: &mut Option<u64>) {
        let took = now.saturating_sub(run.at);
        if run.again {
            if took < self.least_rtt {
                // The original transmission arrived, not the retransmission.
                return;
            }
        } else {
            self.least_rtt = self.least_rtt.min(took.max(1));
            if before(run.end, self.highest) {
                self.reordered = true;
            }
            *latest = Some(latest.map_or(took, |other| other.min(took)));
        }
        if before(self.highest, run.end) {
            self.highest = run.end;
        }
        if is_later((run.at, run.end), self.newest) {
            self.newest = (run.at, run.end);
            self.newest_took = took;
        }
    }

    /// Marks `start..end` as arrived and returns the number of bytes that are new.
    fn mark(&mut self, now: u64, start: u32, end: u32, latest: &mut Option<u64>) -> u32 {
        let mut at = self.runs.partition_point(|run| !before(start, run.end));
        let mut cursor = start;
        let mut new = 0;
        while before(cursor, end) {
            let Some(&run) = self.runs.get(at) else { break };
            let stop = if before(end, run.end) { end } else { run.end };
            if run.fate != SegmentState::Arrived {
                at = self.isolate(at, cursor, stop);
                let len = stop.wrapping_sub(cursor);
                if run.fate == SegmentState::Lost {
                    self.lost -= len;
                }
                self.arrived += len;
                new += len;
                self.runs[at].fate = SegmentState::Arrived;
                self.note_arrival(now, Run { end: stop, ..run }, latest);
                at = self.join(at);
            }
            // A run that was joined with this one is complete, too.
            let through = self.runs[at].end;
            cursor = if before(stop, through) { through } else { stop };
            at += 1;
        }
        new
    }

    /// Splits a run so that `start..end` becomes a separate run, and returns its index.
    fn isolate(&mut self, at: usize, start: u32, end: u32) -> usize {
        let begins = at
            .checked_sub(1)
            .map_or(self.first, |before| self.runs[before].end);
        let run = self.runs[at];
        let mut at = at;
        if begins != start {
            self.runs.insert(at, Run { end: start, ..run });
            at += 1;
        }
        if end != run.end {
            self.runs.insert(at, Run { end, ..run });
        }
        at
    }

    /// Joins an arrived run with arrived neighbours, and returns its new index.
    fn join(&mut self, mut at: usize) -> usize {
        if self
            .runs
            .get(at + 1)
            .is_some_and(|run| run.fate == SegmentState::Arrived)
        {
            self.runs[at].end = self.runs[at + 1].end;
            self.runs.remove(at + 1);
        }
        if at > 0 && self.runs[at - 1].fate == SegmentState::Arrived {
            self.runs[at - 1].end = self.runs[at].end;
            self.runs.remove(at);
            at -= 1;
        }
        at
    }

    /// Handles an unnecessary retransmission. Returns true if the recovery was unnecessary and must be undone.
    fn note_needless(&mut self, oldest: u32, next: u32) -> bool {
        self.reordered = true;
        if !before(oldest, self.patient_until) {
            // At most once per round trip.
            self.patient_until = next;
            self.patience = (self.patience + 1).min(MOST_PATIENCE);
            self.recoveries = 0;
        }
        let was_any = self.again > 0;
        self.again = self.again.saturating_sub(1);
        was_any && self.again == 0 && self.before.is_some()
    }

    /// Marks runs as lost that were sent long enough before something that has arrived. Sets `lost_due` for runs that
    /// may only be late. RFC 8985 section 6.2, step 5.
    pub(crate) fn detect(&mut self, now: u64, recovering: bool, rtt: u64, mss: u32) {
        self.lost_due = NEVER;
        let enough = recovering || self.arrived >= DUPLICATES * mss;
        let patience = if !self.reordered && enough {
            0
        } else if self.least_rtt == NEVER {
            rtt
        } else {
            let quarters = u64::from(self.patience);
            (quarters * self.least_rtt / 4).min(rtt.max(self.least_rtt))
        };
        let mut begins = self.first;
        for run in &mut self.runs {
            if run.fate == SegmentState::Sent && is_later(self.newest, (run.at, run.end)) {
                let due = (run.at + self.newest_took).saturating_add(patience);
                if due <= now {
                    run.fate = SegmentState::Lost;
                    self.lost += run.end.wrapping_sub(begins);
                } else {
                    self.lost_due = self.lost_due.min(due);
                }
            } else if run.fate == SegmentState::Sent
                && run.at > self.newest.0
                && !before(begins, self.highest)
            {
                // The following runs were sent later.
                break;
            }
            begins = run.end;
        }
    }

    /// Starts a recovery and saves the congestion window and threshold.
    pub(crate) fn recovery_begins(&mut self, window: (u16, u16)) {
        self.before = Some(window);
        self.again = 0;
        self.force = true;
        self.recoveries += 1;
        if self.recoveries >= PATIENCE_LASTS {
            (self.recoveries, self.patience) = (0, 1);
        }
    }

    /// Undoes an unnecessary recovery: nothing is lost.
    pub(crate) fn undo(&mut self) -> Option<(u16, u16)> {
        for run in &mut self.runs {
            if run.fate == SegmentState::Lost {
                run.fate = SegmentState::Sent;
            }
        }
        self.lost = 0;
        self.timed_out = false;
        self.before.take()
    }

    /// Marks everything that has not arrived as lost after a retransmission timeout. If the peer reneged on its SACK
    /// blocks, these are lost, too: RFC 2018 section 8.
    pub(crate) fn lose_all(&mut self) {
        let reneged = self
            .runs
            .front()
            .is_some_and(|run| run.fate == SegmentState::Arrived);
        let mut begins = self.first;
        for run in &mut self.runs {
            let len = run.end.wrapping_sub(begins);
            begins = run.end;
            match run.fate {
                SegmentState::Arrived if reneged => self.arrived -= len,
                SegmentState::Sent => {}
                _ => continue,
            }
            run.fate = SegmentState::Lost;
            self.lost += len;
        }
        self.force = true;
        self.lost_due = NEVER;
        self.timed_out = true;
    }

    /// Start and end of the first segment to retransmit.
    pub(crate) fn first_lost(&self, mss: u32) -> Option<(u32, u32)> {
        if self.lost == 0 {
            return None;
        }
        let mut begins = self.first;
        for run in &self.runs {
            if run.fate == SegmentState::Lost {
                let len = run.end.wrapping_sub(begins).min(mss);
                return Some((begins, begins.wrapping_add(len)));
            }
            begins = run.end;
        }
        None
    }

    /// Marks the last segment as lost to retransmit it as a tail loss probe; its acknowledgement reveals other losses:
    /// RFC 8985 section 7.
    pub(crate) fn probe(&mut self, mss: u32) {
        self.probed = true;
        (self.before, self.again) = (None, 0);
        let end = self.next();
        let start = end.wrapping_sub(mss.min(end.wrapping_sub(self.first)));
        let at = self.runs.partition_point(|run| !before(start, run.end));
        let Some(run) = self.runs.get(at).copied() else {
            return;
        };
        let begins = at
            .checked_sub(1)
            .map_or(self.first, |before| self.runs[before].end);
        let start = if before(start, begins) { begins } else { start };
        if run.fate == SegmentState::Sent && run.end == end {
            let at = self.isolate(at, start, end);
            self.runs[at].fate = SegmentState::Lost;
            self.lost += end.wrapping_sub(start);
            self.force = true;
        }
    }

    /// Records the retransmission of a lost range.
    pub(crate) fn sent_again(&mut self, start: u32, end: u32, at: u64) {
        self.force = false;
        let place = self.runs.partition_point(|run| !before(start, run.end));
        if self
            .runs
            .get(place)
            .is_none_or(|run| run.fate != SegmentState::Lost)
        {
            return;
        }
        let stop = self.runs[place].end;
        let end = if before(stop, end) { stop } else { end };
        let place = self.isolate(place, start, end);
        let run = &mut self.runs[place];
        (run.fate, run.again, run.at) = (SegmentState::Sent, true, at);
        self.lost -= end.wrapping_sub(start);
        self.again += 1;
    }
}

/// Returns true if `a` was sent after `b`. Both are a time and a number. RFC 8985 section 6.2.
fn is_later(a: (u64, u32), b: (u64, u32)) -> bool {
    a.0 > b.0 || a.0 == b.0 && before(b.1, a.1)
}
