//! Passes frames from the worker that received them to the worker that handles them.
//!
//! A device may distribute received frames over its queues in any way. If a frame must reach a certain worker, the
//! worker that received it copies it into a ring. There is one ring for each ordered pair of workers, so each ring has
//! one writer and one reader, and no locks are needed. A full ring drops the frame and counts the drop.
//!
//! An idle worker sleeps in the driver and has to be woken up. A worker announces that it will sleep
//! ([`WorkerMailbox::about_to_sleep`]). A worker that has handed frames to a sleeping worker learns from [`WorkerMailbox::wake`] which
//! workers to wake up. The driver decides how.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering, fence},
};

use crate::memory::spsc;
use crate::port_steering::PortSteering;
use crate::{ChecksumState, RxFrame, StampSource};

/// Approximate number of frames in all rings together. Rings use memory only when slots are first used.
const FRAMES: usize = 1 << 18;
/// Minimum and maximum number of frames in one ring.
const LEAST: usize = 64;
const MOST: usize = 4096;

/// One worker's ends of the rings to and from all other workers.
pub struct WorkerMailbox {
    worker: u32,
    which: PortSteering,
    to: Vec<Option<spsc::RingSender>>,
    from: Vec<Option<spsc::RingReceiver>>,
    /// Ring to read first next time, so that no ring is always served first.
    next: usize,
    /// Workers that got a frame since the last [`WorkerMailbox::wake`], one bit each.
    got: u64,
    asleep: Arc<[PaddedFlag]>,
    counters: MailboxCounters,
}

/// Counters of frames passed to and from other workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MailboxCounters {
    /// Frames passed to another worker.
    pub sent: u64,
    /// Frames dropped because the ring was full or the frame was longer than a slot.
    pub dropped: u64,
    /// Frames received from other workers.
    pub taken: u64,
}

#[derive(Default)]
#[repr(align(128))]
struct PaddedFlag(AtomicBool);

/// Creates the posts of 1 to 64 workers, for frames of up to `capacity` bytes.
///
/// # Panics
/// If `workers` is 0 or more than 64.
#[must_use]
pub fn connect_workers(workers: u32, which: PortSteering, capacity: usize) -> Vec<WorkerMailbox> {
    let n = workers as usize;
    assert!((1..=64).contains(&n), "{n} workers; 1 to 64 are possible");
    let slots = (FRAMES / (n * n)).next_power_of_two().clamp(LEAST, MOST);
    let asleep: Arc<[PaddedFlag]> = (0..n).map(|_| PaddedFlag::default()).collect();
    let mut posts: Vec<WorkerMailbox> = (0..workers)
        .map(|worker| WorkerMailbox {
            worker,
            which,
            to: Vec::with_capacity(n),
            from: (0..n).map(|_| None).collect(),
            next: 0,
            got: 0,
            asleep: Arc::clone(&asleep),
            counters: MailboxCounters::default(),
        })
        .collect();
    for from in 0..n {
        for to in 0..n {
            let sender = (from != to).then(|| {
                let (sender, receiver) = spsc::ring(slots, slots, capacity);
                posts[to].from[from] = Some(receiver);
                sender
            });
            posts[from].to.push(sender);
        }
    }
    posts
}

impl WorkerMailbox {
    /// Returns true if the frame belongs to another worker. In that case the frame has been passed on, or dropped and
    /// counted.
    #[inline]
    pub fn hand_on(&mut self, frame: &RxFrame<'_>) -> bool {
        let to = self.which.worker(frame.bytes, self.to.len() as u32);
        if to == self.worker {
            return false;
        }
        self.send(to, frame);
        true
    }

    fn send(&mut self, to: u32, frame: &RxFrame<'_>) {
        let Some(ring) = &mut self.to[to as usize] else {
            return;
        };
        let bytes = frame.bytes;
        if bytes.len() > ring.capacity() || ring.lend(1) == 0 {
            self.counters.dropped += 1;
            return;
        }
        let (place, len, mark) = ring.slot(0);
        place[..bytes.len()].copy_from_slice(bytes);
        *len = bytes.len() as u32;
        *mark = u64::from(frame.original_len) << 8 | frame.stamp_source as u64;
        ring.submit(1);
        ring.publish(1, frame.stamp_ns);
        self.counters.sent += 1;
        self.got |= 1 << to;
    }

    /// Passes up to `max` frames from other workers to `on_frame`, in order per sender. Returns the number of frames.
    #[inline]
    pub fn receive<F: FnMut(&RxFrame<'_>)>(&mut self, max: usize, mut on_frame: F) -> usize {
        let mut taken = 0;
        let count = self.from.len();
        for i in 0..count {
            let Some(ring) = &mut self.from[(self.next + i) % count] else {
                continue;
            };
            let n = ring.available(max - taken);
            for k in 0..n {
                let (bytes, stamp_ns) = ring.frame(k);
                let mark = ring.mark(k);
                on_frame(&RxFrame {
                    bytes,
                    original_len: (mark >> 8) as u32,
                    stamp_ns,
                    stamp_source: source(mark as u8),
                    vlan: None,
                    checksum: ChecksumState::Unknown,
                });
            }
            if n > 0 {
                ring.release(n);
            }
            taken += n;
        }
        self.next = (self.next + 1) % count;
        self.counters.taken += taken as u64;
        taken
    }

    /// Returns true if frames from other workers are waiting.
    #[must_use]
    pub fn has_mail(&mut self) -> bool {
        let mut rings = self.from.iter_mut().flatten();
        rings.any(|ring| ring.available(1) > 0)
    }

    /// Announces that this worker will sleep. Returns false if frames are waiting; then the worker must not sleep.
    /// [`WorkerMailbox::awake`] ends the announcement.
    #[must_use]
    pub fn about_to_sleep(&mut self) -> bool {
        self.asleep[self.worker as usize]
            .0
            .store(true, Ordering::Relaxed);
        // Pairs with the fence in `wake`: either this check sees the frame, or `wake` sees the sleeper.
        fence(Ordering::SeqCst);
        !self.has_mail()
    }

    /// Announces that this worker checks for frames again.
    pub fn awake(&self) {
        self.asleep[self.worker as usize]
            .0
            .store(false, Ordering::Relaxed);
    }

    /// Calls `each` for every sleeping worker that got a frame from this worker since the last call.
    #[inline]
    pub fn wake<F: FnMut(usize)>(&mut self, mut each: F) {
        if self.got == 0 {
            return;
        }
        fence(Ordering::SeqCst);
        while self.got != 0 {
            let worker = self.got.trailing_zeros() as usize;
            self.got &= self.got - 1;
            // One wake-up is enough, from any worker.
            let asleep = &self.asleep[worker].0;
            if asleep.load(Ordering::Relaxed) && asleep.swap(false, Ordering::Relaxed) {
                each(worker);
            }
        }
    }

    /// Totals so far.
    #[must_use]
    pub fn counters(&self) -> MailboxCounters {
        self.counters
    }
}

/// Stamp source for a number made with `source as u64`.
#[inline]
fn source(number: u8) -> StampSource {
    const ALL: [StampSource; 6] = [
        StampSource::Nic,
        StampSource::KernelTpacket,
        StampSource::KernelXdp,
        StampSource::UserSpace,
        StampSource::Recorded,
        StampSource::Virtual,
    ];
    ALL.into_iter()
        .find(|source| *source as u8 == number)
        .unwrap_or(StampSource::UserSpace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(port: u16, number: u64) -> Vec<u8> {
        let mut bytes = vec![0; 62];
        bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
        bytes[23] = 17;
        bytes[36..38].copy_from_slice(&port.to_be_bytes());
        bytes[42..50].copy_from_slice(&number.to_be_bytes());
        bytes
    }

    fn shown(bytes: &[u8]) -> RxFrame<'_> {
        RxFrame {
            bytes,
            original_len: bytes.len() as u32 + 7,
            stamp_ns: 1234,
            stamp_source: StampSource::KernelXdp,
            vlan: None,
            checksum: ChecksumState::Unknown,
        }
    }

    fn posts(workers: u32) -> Vec<WorkerMailbox> {
        connect_workers(workers, PortSteering::Destination, 1522)
    }

    #[test]
    fn a_frame_reaches_its_worker_whole_and_no_other() {
        let mut posts = posts(3);
        for port in 0..6 {
            let bytes = frame(port, port.into());
            for (worker, post) in posts.iter_mut().enumerate() {
                let own = usize::from(port % 3) == worker;
                assert_eq!(post.hand_on(&shown(&bytes)), !own);
            }
        }
        for (worker, post) in posts.iter_mut().enumerate() {
            let mut ports = Vec::new();
            let taken = post.receive(100, |got| {
                let port = u16::from_be_bytes([got.bytes[36], got.bytes[37]]);
                assert_eq!(got.bytes, frame(port, port.into()));
                assert_eq!((got.original_len, got.stamp_ns), (69, 1234));
                assert_eq!(got.stamp_source, StampSource::KernelXdp);
                ports.push(usize::from(port));
            });
            ports.sort_unstable();
            // Each of the other two workers has received both frames.
            assert_eq!(ports, [worker, worker, worker + 3, worker + 3]);
            assert_eq!(taken, 4);
            assert!(!post.has_mail());
            let counters = post.counters();
            assert_eq!((counters.sent, counters.taken), (4, 4));
        }
    }

    #[test]
    fn who_writes_more_than_the_ring_holds_loses_it_and_knows() {
        let mut posts = posts(2);
        let bytes = frame(1, 0);
        for _ in 0..MOST + 5 {
            assert!(posts[0].hand_on(&shown(&bytes)));
        }
        assert!(!posts[0].hand_on(&shown(&[0x11; 2000])));
        let mut long = frame(1, 0);
        long.resize(1523, 0);
        assert!(posts[0].hand_on(&shown(&long)));
        let counters = posts[0].counters();
        assert_eq!((counters.sent, counters.dropped), (MOST as u64, 6));
        assert_eq!(posts[1].receive(10, |_| ()), 10);
        assert_eq!(posts[1].receive(usize::MAX, |_| ()), MOST - 10);
        assert!(posts[0].hand_on(&shown(&bytes)));
        assert_eq!(posts[0].counters().dropped, 6);
    }

    #[test]
    fn only_sleepers_with_mail_are_woken_and_once() {
        let mut posts = posts(3);
        let woken = |post: &mut WorkerMailbox| {
            let mut woken = Vec::new();
            post.wake(|worker| woken.push(worker));
            woken
        };
        assert!(posts[1].about_to_sleep());
        assert!(posts[2].about_to_sleep());
        posts[2].awake();
        for port in [1, 1, 2] {
            let bytes = frame(port, 0);
            posts[0].hand_on(&shown(&bytes));
        }
        assert_eq!(woken(&mut posts[0]), [1]);
        assert_eq!(woken(&mut posts[0]), [0; 0]);
        // A worker with waiting frames does not sleep.
        assert!(!posts[2].about_to_sleep());
    }

    #[test]
    fn two_threads_lose_nothing() {
        const FRAMES: u64 = 20_000;
        let mut posts = posts(2);
        let (mut to, mut from) = (posts.pop().unwrap(), posts.pop().unwrap());
        let reader = std::thread::spawn(move || {
            let mut next = 0;
            while next < FRAMES {
                to.receive(64, |got| {
                    let number = u64::from_be_bytes(got.bytes[42..50].try_into().unwrap());
                    assert_eq!(number, next);
                    next += 1;
                });
            }
        });
        let mut sent = 0;
        while sent < FRAMES {
            let bytes = frame(1, sent);
            from.hand_on(&shown(&bytes));
            sent = from.counters().sent;
        }
        reader.join().unwrap();
    }
}
