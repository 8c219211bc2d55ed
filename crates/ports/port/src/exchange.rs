//! Frames handed from the worker that received them to the one that waits for them.
//!
//! A device spreads what it receives over its queues as it likes. Where a frame must reach one worker
//! and no other, whoever finds it in its queue copies it into a ring that leads there: one ring from
//! each worker to each other, so no two write or read the same one and nobody waits for a lock. A
//! full ring drops, and counts it.
//!
//! Who has nothing to do sleeps in the driver, which has to be woken: a worker says before it sleeps
//! that it will ([`Post::about_to_sleep`]), and who handed it a frame is told whom to wake
//! ([`Post::wake`]). How that is done is the driver's.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering, fence},
};

use crate::memory::spsc;
use crate::steer::PortSteering;
use crate::{ChecksumState, RxFrame, StampSource};

/// Frames in all rings together, about: they take what they need of memory when they are first used.
const FRAMES: usize = 1 << 18;
/// Fewest and most frames that one ring holds.
const LEAST: usize = 64;
const MOST: usize = 4096;

/// What one worker has of the rings to and from all others.
pub struct Post {
    worker: u32,
    which: PortSteering,
    to: Vec<Option<spsc::Sender>>,
    from: Vec<Option<spsc::Receiver>>,
    /// Where the next look begins, so that no worker is served before the others always.
    next: usize,
    /// Who got a frame since they were last woken, a bit each.
    got: u64,
    asleep: Arc<[Padded]>,
    counters: PostCounters,
}

/// What became of frames that were another worker's, and of frames that others found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PostCounters {
    /// Handed on.
    pub sent: u64,
    /// Not handed on, because the ring was full or the frame longer than its slots.
    pub dropped: u64,
    /// Taken from others.
    pub taken: u64,
}

#[derive(Default)]
#[repr(align(128))]
struct Padded(AtomicBool);

/// The posts of `workers` workers (at most 64), for frames of up to `capacity` bytes.
///
/// # Panics
/// With no worker or more than 64.
#[must_use]
pub fn exchange(workers: u32, which: PortSteering, capacity: usize) -> Vec<Post> {
    let n = workers as usize;
    assert!((1..=64).contains(&n), "{n} workers; 1 to 64 are possible");
    let slots = (FRAMES / (n * n)).next_power_of_two().clamp(LEAST, MOST);
    let asleep: Arc<[Padded]> = (0..n).map(|_| Padded::default()).collect();
    let mut posts: Vec<Post> = (0..workers)
        .map(|worker| Post {
            worker,
            which,
            to: Vec::with_capacity(n),
            from: (0..n).map(|_| None).collect(),
            next: 0,
            got: 0,
            asleep: Arc::clone(&asleep),
            counters: PostCounters::default(),
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

impl Post {
    /// Whether a frame is another worker's. Then it has been handed on, or dropped and counted.
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

    /// Shows up to `max` frames that others have handed to this worker, in the order of each.
    /// Returns how many.
    #[inline]
    pub fn take<F: FnMut(&RxFrame<'_>)>(&mut self, max: usize, mut on_frame: F) -> usize {
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

    /// Whether somebody has handed this worker a frame that it has not taken.
    #[must_use]
    pub fn has_mail(&mut self) -> bool {
        let mut rings = self.from.iter_mut().flatten();
        rings.any(|ring| ring.available(1) > 0)
    }

    /// Says that this worker will sleep unless this returns false, because there is mail. To be ended
    /// with [`Post::awake`].
    #[must_use]
    pub fn about_to_sleep(&mut self) -> bool {
        self.asleep[self.worker as usize]
            .0
            .store(true, Ordering::Relaxed);
        // Pairs with the fence in `wake`: either this look sees the frame, or that one the sleeper.
        fence(Ordering::SeqCst);
        !self.has_mail()
    }

    /// Says that this worker looks for mail by itself again.
    pub fn awake(&self) {
        self.asleep[self.worker as usize]
            .0
            .store(false, Ordering::Relaxed);
    }

    /// Names the workers that sleep and have got a frame from this one since the last call.
    #[inline]
    pub fn wake<F: FnMut(usize)>(&mut self, mut each: F) {
        if self.got == 0 {
            return;
        }
        fence(Ordering::SeqCst);
        while self.got != 0 {
            let worker = self.got.trailing_zeros() as usize;
            self.got &= self.got - 1;
            // Once is enough, whoever does it.
            let asleep = &self.asleep[worker].0;
            if asleep.load(Ordering::Relaxed) && asleep.swap(false, Ordering::Relaxed) {
                each(worker);
            }
        }
    }

    /// What has been handed over so far.
    #[must_use]
    pub fn counters(&self) -> PostCounters {
        self.counters
    }
}

/// The stamp source of a number that `source as u64` gave.
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

    fn posts(workers: u32) -> Vec<Post> {
        exchange(workers, PortSteering::Destination, 1522)
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
            let taken = post.take(100, |got| {
                let port = u16::from_be_bytes([got.bytes[36], got.bytes[37]]);
                assert_eq!(got.bytes, frame(port, port.into()));
                assert_eq!((got.original_len, got.stamp_ns), (69, 1234));
                assert_eq!(got.stamp_source, StampSource::KernelXdp);
                ports.push(usize::from(port));
            });
            ports.sort_unstable();
            // Each of the two others has found both.
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
        assert_eq!(posts[1].take(10, |_| ()), 10);
        assert_eq!(posts[1].take(usize::MAX, |_| ()), MOST - 10);
        assert!(posts[0].hand_on(&shown(&bytes)));
        assert_eq!(posts[0].counters().dropped, 6);
    }

    #[test]
    fn only_sleepers_with_mail_are_woken_and_once() {
        let mut posts = posts(3);
        let woken = |post: &mut Post| {
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
        // Who has mail is told so and does not sleep.
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
                to.take(64, |got| {
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
