//! Decides the fate of each frame and keeps the frames in flight in order of departure.
//!
//! The decision is complete when a frame arrives: whether it is lost, when it leaves, and which frames it waits for. So
//! the result depends only on the arrivals and the seed, not on how often the caller polls. Frames are queued in order
//! of departure, so the line is a plain queue.

use std::collections::VecDeque;

use wb_wire::SplitMix64;

use super::frame_selection::{Chooser, random_sequence};
use super::shaper::Shaper;
use super::{Impairment, InvalidImpairment};

/// Exact counters of the impairments applied.
///
/// `arrived = lost + rate_dropped + (left − duplicated) + inside` always holds, with [`Impairer::inside`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImpairCounters {
    /// Frames that arrived.
    pub arrived: u64,
    /// Frames chosen to be lost.
    pub lost: u64,
    /// Frames dropped because the buffer of the rate limit was full.
    pub rate_dropped: u64,
    /// Frames that left, including copies.
    pub left: u64,
    /// Copies that left.
    pub duplicated: u64,
    /// Originals that left after an original that had arrived later (RFC 4689 section 3.2.9).
    pub reordered: u64,
    /// Sum of the delays of all originals that left, from arrival to due departure.
    pub delay_sum_ns: u64,
    /// Shortest of these delays; 0 if none left.
    pub delay_min_ns: u64,
    /// Longest of these delays.
    pub delay_max_ns: u64,
}

impl ImpairCounters {
    /// Originals that left.
    #[must_use]
    pub fn originals(&self) -> u64 {
        self.left - self.duplicated
    }

    /// Adds the counters of another device.
    pub fn merge(&mut self, other: &Self) {
        let (mine, its) = (self.originals(), other.originals());
        self.delay_min_ns = match (mine, its) {
            (_, 0) => self.delay_min_ns,
            (0, _) => other.delay_min_ns,
            _ => self.delay_min_ns.min(other.delay_min_ns),
        };
        self.delay_max_ns = self.delay_max_ns.max(other.delay_max_ns);
        self.arrived += other.arrived;
        self.lost += other.lost;
        self.rate_dropped += other.rate_dropped;
        self.left += other.left;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.delay_sum_ns += other.delay_sum_ns;
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Original,
    /// Original that leaves after a later one.
    Reordered,
    Copy,
}

#[derive(Debug)]
struct Departure<T> {
    handle: T,
    arrival_ns: u64,
    due_ns: u64,
    kind: Kind,
}

#[derive(Debug)]
struct Held<T> {
    handle: T,
    len: u32,
    arrival_ns: u64,
    deadline_ns: u64,
    /// Value of `Impairer::passed` when the frame was held: the originals that passed since then are later frames.
    passed_before: u64,
}

/// One direction of an impairing device. `T` is a handle for a frame that the caller stores.
///
/// Call [`Impairer::arrive`] for each arriving frame, in order of arrival. Then call [`Impairer::depart`] until it
/// returns `None`. Before `depart` is called for a time, all frames that arrived up to that time must have been passed
/// to `arrive`. [`Impairer::next_departure`] returns the time of the next call if nothing arrives meanwhile.
///
/// ```
/// use wb_port::fault::{Impairer, Impairment};
///
/// let late = Impairment { delay_ns: 500, ..Impairment::default() };
/// let mut device = Impairer::new(&late)?;
/// assert_eq!(device.arrive(1000, 60, "frame", |f| f), None);
/// assert_eq!(device.depart(1499), None);
/// assert_eq!(device.next_departure(), Some(1500));
/// assert_eq!(device.depart(1600), Some(("frame", 1500)));
/// # Ok::<(), wb_port::fault::InvalidImpairment>(())
/// ```
#[derive(Debug)]
pub struct Impairer<T> {
    lose: Chooser,
    duplicate: Chooser,
    reorder: Chooser,
    jitter: SplitMix64,
    delay_ns: u64,
    jitter_ns: u64,
    reorder_depth: u64,
    reorder_limit_ns: u64,
    shaper: Option<Shaper>,
    /// In order of `due_ns`.
    line: VecDeque<Departure<T>>,
    /// In order of arrival, and therefore also in order of release and of deadline.
    held: VecDeque<Held<T>>,
    /// Queued originals that were not held.
    passed: u64,
    copies_in_line: u64,
    last_ready_ns: u64,
    counters: ImpairCounters,
}

impl<T> Impairer<T> {
    /// Creates a device without frames.
    ///
    /// # Errors
    /// If a value is out of range.
    pub fn new(impairment: &Impairment) -> Result<Self, InvalidImpairment> {
        impairment.validate()?;
        let random = |stream| random_sequence(impairment.seed, stream);
        Ok(Self {
            lose: Chooser::loss(impairment.loss, random(1)),
            duplicate: Chooser::ratio(impairment.duplicate, random(2)),
            reorder: Chooser::ratio(impairment.reorder, random(3)),
            jitter: random(4),
            delay_ns: impairment.delay_ns,
            jitter_ns: impairment.jitter_ns,
            reorder_depth: u64::from(impairment.reorder_depth),
            reorder_limit_ns: impairment.reorder_limit_ns,
            shaper: impairment.capacity.as_ref().map(Shaper::new),
            line: VecDeque::new(),
            held: VecDeque::new(),
            passed: 0,
            copies_in_line: 0,
            last_ready_ns: 0,
            counters: ImpairCounters::default(),
        })
    }

    /// Handles the arrival of a frame of `len` bytes without FCS. Calls `copy` if the frame is duplicated.
    ///
    /// Returns the handle if the frame is dropped, so that the caller can reuse its memory.
    pub fn arrive(
        &mut self,
        arrival_ns: u64,
        len: u32,
        handle: T,
        copy: impl FnOnce(&T) -> T,
    ) -> Option<T> {
        self.counters.arrived += 1;
        if self.lose.choose() {
            self.counters.lost += 1;
            return Some(handle);
        }
        let ready_ns = self.ready(arrival_ns);
        self.release_expired(ready_ns);
        if let Some(shaper) = &mut self.shaper
            && !shaper.has_room(ready_ns)
        {
            self.counters.rate_dropped += 1;
            return Some(handle);
        }
        if self.duplicate.choose() {
            let second = copy(&handle);
            self.pass(ready_ns, arrival_ns, len, handle, Kind::Original);
            self.pass(ready_ns, arrival_ns, len, second, Kind::Copy);
            self.copies_in_line += 1;
        } else if self.reorder.choose() {
            self.held.push_back(Held {
                handle,
                len,
                arrival_ns,
                deadline_ns: ready_ns.saturating_add(self.reorder_limit_ns),
                passed_before: self.passed,
            });
            return None;
        } else {
            self.pass(ready_ns, arrival_ns, len, handle, Kind::Original);
        }
        self.passed += 1;
        self.release_passed(ready_ns);
        None
    }

    /// Time at which [`Impairer::depart`] may next return a frame, if no other frame arrives.
    #[must_use]
    pub fn next_departure(&self) -> Option<u64> {
        let in_line = self.line.front().map(|d| d.due_ns);
        let held = self.held.front().map(|h| h.deadline_ns);
        match (in_line, held) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Returns the next frame that is due by `now_ns`, with its due time.
    pub fn depart(&mut self, now_ns: u64) -> Option<(T, u64)> {
        self.release_expired(now_ns);
        if self.line.front()?.due_ns > now_ns {
            return None;
        }
        self.pop_departure()
    }

    /// Releases all frames now, regardless of delays and reordering; held frames come last.
    pub fn flush_all(&mut self, now_ns: u64, mut each: impl FnMut(T, u64)) {
        while let Some(held) = self.held.pop_front() {
            self.release(held, now_ns);
        }
        while let Some((handle, due_ns)) = self.pop_departure() {
            each(handle, due_ns);
        }
    }

    /// Originals that have arrived and have neither left nor been dropped.
    #[must_use]
    pub fn inside(&self) -> u64 {
        (self.line.len() + self.held.len()) as u64 - self.copies_in_line
    }

    /// Totals so far.
    #[must_use]
    pub fn counters(&self) -> ImpairCounters {
        self.counters
    }

    /// Arrival plus delay and jitter, but not before the previous frame.
    fn ready(&mut self, arrival_ns: u64) -> u64 {
        let mut ready_ns = arrival_ns.saturating_add(self.delay_ns);
        if self.jitter_ns > 0 {
            let shift = self
                .jitter
                .below(self.jitter_ns.saturating_mul(2).wrapping_add(1));
            ready_ns = ready_ns
                .saturating_add(shift)
                .saturating_sub(self.jitter_ns);
        }
        self.last_ready_ns = ready_ns.max(arrival_ns).max(self.last_ready_ns);
        self.last_ready_ns
    }

    /// Appends a frame to the line.
    fn pass(&mut self, ready_ns: u64, arrival_ns: u64, len: u32, handle: T, kind: Kind) {
        let after = self.line.back().map_or(0, |d| d.due_ns);
        let due_ns = match &mut self.shaper {
            Some(shaper) => shaper.pass(ready_ns, len),
            None => ready_ns,
        };
        self.line.push_back(Departure {
            handle,
            arrival_ns,
            due_ns: due_ns.max(after),
            kind,
        });
    }

    /// Releases held frames after enough later originals have passed.
    fn release_passed(&mut self, ready_ns: u64) {
        while let Some(first) = self.held.front()
            && self.passed - first.passed_before >= self.reorder_depth
        {
            let held = self.held.pop_front().expect("there is a first");
            self.release(held, ready_ns);
        }
    }

    /// Releases held frames at their deadline.
    fn release_expired(&mut self, now_ns: u64) {
        while let Some(first) = self.held.front()
            && first.deadline_ns <= now_ns
        {
            let held = self.held.pop_front().expect("there is a first");
            let deadline_ns = held.deadline_ns;
            self.release(held, deadline_ns);
        }
    }

    fn release(&mut self, held: Held<T>, ready_ns: u64) {
        let kind = if self.passed > held.passed_before {
            Kind::Reordered
        } else {
            Kind::Original
        };
        self.last_ready_ns = self.last_ready_ns.max(ready_ns);
        self.pass(ready_ns, held.arrival_ns, held.len, held.handle, kind);
    }

    fn pop_departure(&mut self) -> Option<(T, u64)> {
        let departure = self.line.pop_front()?;
        let counters = &mut self.counters;
        counters.left += 1;
        if departure.kind == Kind::Copy {
            counters.duplicated += 1;
            self.copies_in_line -= 1;
            return Some((departure.handle, departure.due_ns));
        }
        counters.reordered += u64::from(departure.kind == Kind::Reordered);
        let delay_ns = departure.due_ns.saturating_sub(departure.arrival_ns);
        counters.delay_min_ns = if counters.originals() == 1 {
            delay_ns
        } else {
            counters.delay_min_ns.min(delay_ns)
        };
        counters.delay_max_ns = counters.delay_max_ns.max(delay_ns);
        counters.delay_sum_ns += delay_ns;
        Some((departure.handle, departure.due_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Capacity, Loss};
    use super::*;

    /// Feeds frames numbered from 0, arriving at these times, and returns (number, due) of all frames that leave.
    fn run(impairment: &Impairment, arrivals: &[u64]) -> (Vec<(usize, u64)>, ImpairCounters) {
        let mut device = Impairer::new(impairment).unwrap();
        for (number, arrival_ns) in arrivals.iter().enumerate() {
            device.arrive(*arrival_ns, 60, number, |n| *n);
        }
        let mut left = Vec::new();
        while let Some(at) = device.next_departure() {
            left.extend(device.depart(at));
        }
        (left, device.counters())
    }

    fn numbers(left: &[(usize, u64)]) -> Vec<usize> {
        left.iter().map(|(number, _)| *number).collect()
    }

    /// Makes the device hold all of the following frames, or none.
    fn hold(device: &mut Impairer<u32>, held: bool) {
        device.reorder = if held {
            Chooser::ratio(1.0, random_sequence(1, 3))
        } else {
            Chooser::Never
        };
    }

    #[test]
    fn a_wire_passes_at_once_and_in_order() {
        let (left, counters) = run(&Impairment::default(), &[10, 20, 20, 30]);
        assert_eq!(left, [(0, 10), (1, 20), (2, 20), (3, 30)]);
        assert_eq!(
            counters,
            ImpairCounters {
                arrived: 4,
                left: 4,
                ..ImpairCounters::default()
            }
        );
    }

    #[test]
    fn every_nth_is_lost_and_handed_back() {
        let every = Impairment {
            loss: Loss::Every(3),
            ..Impairment::default()
        };
        let mut device = Impairer::new(&every).unwrap();
        let dropped: Vec<u32> = (1..=9)
            .filter_map(|n| device.arrive(0, 60, n, |n| *n))
            .collect();
        assert_eq!(dropped, [3, 6, 9]);
        assert_eq!((device.counters().lost, device.inside()), (3, 6));
    }

    #[test]
    fn a_copy_leaves_directly_after_its_original() {
        let twice = Impairment {
            duplicate: 1.0,
            ..Impairment::default()
        };
        let (left, counters) = run(&twice, &[1, 2]);
        assert_eq!(left, [(0, 1), (0, 1), (1, 2), (1, 2)]);
        assert_eq!(
            (counters.left, counters.duplicated, counters.originals()),
            (4, 2, 2)
        );
    }

    #[test]
    fn a_held_frame_leaves_after_three_later_ones() {
        let mut device = Impairer::new(&Impairment::default()).unwrap();
        for n in 0..8 {
            hold(&mut device, n == 1 || n == 2);
            device.arrive(u64::from(n) * 10, 60, n, |n| *n);
        }
        let mut left = Vec::new();
        while let Some(frame) = device.depart(1000) {
            left.push(frame);
        }
        // Frames 1 and 2 wait for 3, 4 and 5, and keep their order.
        assert_eq!(
            left,
            [
                (0, 0),
                (3, 30),
                (4, 40),
                (5, 50),
                (1, 50),
                (2, 50),
                (6, 60),
                (7, 70)
            ]
        );
        assert_eq!(device.counters().reordered, 2);
    }

    #[test]
    fn a_frame_held_at_the_end_leaves_when_its_time_is_up() {
        let mut device = Impairer::new(&Impairment::default()).unwrap();
        hold(&mut device, true);
        device.arrive(5, 60, 0, |n| *n);
        hold(&mut device, false);
        device.arrive(6, 60, 1, |n| *n);
        hold(&mut device, true);
        device.arrive(7, 60, 2, |n| *n);
        assert_eq!(device.depart(1000), Some((1, 6)));
        assert_eq!(device.depart(100_000_004), None);
        assert_eq!(device.next_departure(), Some(100_000_005));
        assert_eq!(device.depart(200_000_000), Some((0, 100_000_005)));
        assert_eq!(device.depart(200_000_000), Some((2, 100_000_007)));
        // Frame 0 left after 1; no frame later than 2 ever left.
        assert_eq!((device.counters().reordered, device.inside()), (1, 0));
    }

    #[test]
    fn time_up_comes_before_what_arrives_later() {
        let mut device = Impairer::new(&Impairment::default()).unwrap();
        hold(&mut device, true);
        device.arrive(0, 60, 0, |n| *n);
        hold(&mut device, false);
        device.arrive(150_000_000, 60, 1, |n| *n);
        assert_eq!(device.depart(u64::MAX), Some((0, 100_000_000)));
        assert_eq!(device.depart(u64::MAX), Some((1, 150_000_000)));
        assert_eq!(device.counters().reordered, 0);
    }

    #[test]
    fn everything_held_leaves_in_order_in_the_end() {
        let all = Impairment {
            reorder: 1.0,
            ..Impairment::default()
        };
        let (left, counters) = run(&all, &[0, 1, 2, 3, 4, 5]);
        assert_eq!(numbers(&left), [0, 1, 2, 3, 4, 5]);
        assert_eq!(counters.reordered, 0);
    }

    #[test]
    fn delay_is_exact_and_jitter_keeps_order() {
        let delay = Impairment {
            delay_ns: 1_000,
            ..Impairment::default()
        };
        let (left, counters) = run(&delay, &[5, 6, 700]);
        assert_eq!(left, [(0, 1005), (1, 1006), (2, 1700)]);
        assert_eq!(
            (
                counters.delay_min_ns,
                counters.delay_max_ns,
                counters.delay_sum_ns
            ),
            (1000, 1000, 3000)
        );

        let jitter = Impairment {
            jitter_ns: 400,
            ..delay
        };
        let far: Vec<u64> = (0..1000).map(|n| n * 1000).collect();
        let (left, counters) = run(&jitter, &far);
        let delays: Vec<u64> = left.iter().map(|(n, due)| due - far[*n]).collect();
        assert!(delays.iter().all(|d| (600..=1400).contains(d)));
        assert_eq!(counters.delay_min_ns, *delays.iter().min().unwrap());
        assert_eq!(counters.delay_max_ns, *delays.iter().max().unwrap());
        assert_eq!(counters.delay_sum_ns, delays.iter().sum::<u64>());
        assert!(
            (970_000..1_030_000).contains(&counters.delay_sum_ns),
            "{}",
            counters.delay_sum_ns
        );

        let near: Vec<u64> = (0..1000).collect();
        let (left, _) = run(&jitter, &near);
        assert_eq!(numbers(&left), (0..1000).collect::<Vec<_>>());
        assert!(left.is_sorted_by_key(|(_, due)| *due));
    }

    #[test]
    fn jitter_beyond_the_delay_never_sends_before_arrival() {
        let wild = Impairment {
            delay_ns: 10,
            jitter_ns: 1000,
            ..Impairment::default()
        };
        let arrivals: Vec<u64> = (0..100).map(|n| n * 5000).collect();
        let (left, _) = run(&wild, &arrivals);
        assert!(left.iter().all(|(n, due)| *due >= arrivals[*n]));
    }

    #[test]
    fn a_limited_rate_spaces_copies_and_drops_what_finds_no_room() {
        let slow = Impairment {
            duplicate: 1.0,
            capacity: Some(Capacity::frames_per_second(1000.0, 2)),
            ..Impairment::default()
        };
        let (left, counters) = run(&slow, &[0, 0, 0, 0]);
        assert_eq!(
            left,
            [(0, 0), (0, 1_000_000), (1, 2_000_000), (1, 3_000_000)]
        );
        assert_eq!((counters.rate_dropped, counters.arrived), (2, 4));
    }

    #[test]
    fn a_device_above_its_capacity_passes_its_capacity() {
        let device = Impairment {
            capacity: Some(Capacity::frames_per_second(5_000.0, 10)),
            ..Impairment::default()
        };
        // 8,000 frames/s for one second: 5,000 leave within the second (the first at 0), the buffered frames after it.
        let arrivals: Vec<u64> = (0..8_000).map(|n| n * 125_000).collect();
        let (left, counters) = run(&device, &arrivals);
        assert_eq!(
            left.iter().filter(|(_, due)| *due < 1_000_000_000).count(),
            5_000
        );
        assert_eq!(counters.left, 5_010);
        assert_eq!(counters.rate_dropped, 2_990);
    }

    #[test]
    fn switching_one_fault_on_does_not_move_another() {
        let lossy = Impairment {
            loss: Loss::Ratio(0.3),
            ..Impairment::default()
        };
        let both = Impairment {
            duplicate: 0.5,
            jitter_ns: 7,
            ..lossy.clone()
        };
        let arrivals: Vec<u64> = (0..500).collect();
        let mut survivors = numbers(&run(&both, &arrivals).0);
        survivors.dedup();
        assert_eq!(numbers(&run(&lossy, &arrivals).0), survivors);
        assert_ne!(numbers(&run(&lossy.with_seed(2), &arrivals).0), survivors);
    }

    #[test]
    fn flush_all_empties_the_device() {
        let slow = Impairment {
            delay_ns: 1_000_000,
            ..Impairment::default()
        };
        let mut device = Impairer::new(&slow).unwrap();
        hold(&mut device, true);
        device.arrive(0, 60, 0, |n| *n);
        hold(&mut device, false);
        device.arrive(1, 60, 1, |n| *n);
        let mut left = Vec::new();
        device.flush_all(10, |n, _| left.push(n));
        assert_eq!(left, [1, 0]);
        assert_eq!((device.inside(), device.counters().reordered), (0, 1));
    }

    #[test]
    fn merged_counters_are_those_of_all_lanes() {
        let delay = |delay_ns| Impairment {
            delay_ns,
            ..Impairment::default()
        };
        let mut sum = ImpairCounters::default();
        sum.merge(&run(&delay(20), &[1]).1);
        sum.merge(&run(&delay(10), &[1, 2]).1);
        sum.merge(&ImpairCounters::default());
        assert_eq!(
            (
                sum.left,
                sum.delay_min_ns,
                sum.delay_max_ns,
                sum.delay_sum_ns
            ),
            (3, 10, 20, 40)
        );
    }
}
