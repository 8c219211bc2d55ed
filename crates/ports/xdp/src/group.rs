//! Several receive queues with one worker, and workers that pass each other what is not theirs.
//!
//! A device spreads frames over its receive queues as it likes, and the kernel gives a socket only
//! the frames of its own queue. So that there can be as many workers as were asked for, a worker
//! reads several sockets in turn; so that a frame gets to the one worker that waits for it, who finds
//! it hands it on ([`wb_port::exchange`]). Nothing of this is in the way of a queue that has its
//! worker for itself.
#![allow(unsafe_code)] // `ppoll` on a list that is made once.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use wb_port::exchange::{Post, exchange};
use wb_port::{PortError, PortSteering, QueuePair, RxCounters, RxFrame, RxQueue};

use crate::{XdpQueue, XdpRx, XdpTx};

/// A queue pair that sends by one queue and receives from several.
pub struct XdpGroup {
    tx: XdpTx,
    rx: XdpGroupRx,
}

/// The receiving half of an [`XdpGroup`].
///
/// Frames of one queue come in order; those of two queues in the order in which they are read. What
/// other workers found comes as well. [`RxQueue::receive`] makes at most one system call for each
/// queue, and counts the frames that it handed on.
pub struct XdpGroupRx {
    queues: Vec<XdpRx>,
    /// Where the next look begins, so that a busy queue does not keep the others waiting.
    next: usize,
    mail: Option<Mail>,
    /// What [`RxQueue::wait`] waits for: the sockets, and the bell where there is mail.
    awaited: Vec<libc::pollfd>,
}

/// What a worker has of the others.
struct Mail {
    post: Post,
    /// Written to whom it wakes, one for each worker.
    bells: Arc<[OwnedFd]>,
    worker: usize,
}

/// Parts queues among `workers` workers: queue *i* of the list is worker *i* modulo `workers`'s, and
/// the first of each is the one it sends by. With `steering` every frame is received by the worker
/// whose it is by that rule, wherever it arrived; without, by the one that has its queue.
///
/// # Errors
/// When the kernel has no file descriptor left.
///
/// # Panics
/// With no worker, more than 64, or more than queues.
pub fn gather(
    queues: Vec<XdpQueue>,
    workers: u32,
    steering: Option<PortSteering>,
) -> io::Result<Vec<XdpGroup>> {
    let n = workers as usize;
    assert!(
        (1..=queues.len()).contains(&n),
        "{n} workers for {} queues",
        queues.len()
    );
    let capacity = queues.iter().map(XdpQueue::longest).max().unwrap_or(0);
    let mut mails: Vec<Option<Mail>> = (0..n).map(|_| None).collect();
    if let Some(steering) = steering.filter(|_| n > 1) {
        let bells: Arc<[OwnedFd]> = (0..n)
            .map(|_| eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC))
            .collect::<Result<_, _>>()?;
        let posts = exchange(workers, steering, capacity);
        for (worker, (mail, post)) in mails.iter_mut().zip(posts).enumerate() {
            let bells = Arc::clone(&bells);
            *mail = Some(Mail {
                post,
                bells,
                worker,
            });
        }
    }
    let mut groups: Vec<XdpGroup> = Vec::with_capacity(n);
    for (i, queue) in queues.into_iter().enumerate() {
        let (tx, rx) = queue.into_halves();
        if let Some(group) = groups.get_mut(i % n).filter(|_| i >= n) {
            group.rx.queues.push(rx);
        } else {
            groups.push(XdpGroup {
                tx,
                rx: XdpGroupRx {
                    queues: vec![rx],
                    next: 0,
                    mail: mails[i].take(),
                    awaited: Vec::new(),
                },
            });
        }
    }
    for group in &mut groups {
        group.rx.list_awaited();
    }
    Ok(groups)
}

impl XdpGroup {
    /// Throws away up to `most` frames that wait in its own queues, whosever they are.
    pub fn discard(&mut self, most: usize) {
        for queue in &mut self.rx.queues {
            let mut left = most;
            while left > 0 {
                match queue.receive(left.min(64), |_| {}) {
                    Ok(n) if n > 0 => left -= n,
                    // A device that is gone is found by the worker.
                    _ => break,
                }
            }
        }
    }
}

impl QueuePair for XdpGroup {
    type Tx = XdpTx;
    type Rx = XdpGroupRx;

    #[inline]
    fn split(&mut self) -> (&mut XdpTx, &mut XdpGroupRx) {
        (&mut self.tx, &mut self.rx)
    }
}

impl Mail {
    /// Wakes those that sleep and have got something.
    #[inline]
    fn ring(&mut self) {
        let bells = &self.bells;
        self.post.wake(|worker| {
            // It fails when the bell has been rung 2^64 times and not heard.
            let _ = rustix::io::write(&bells[worker], &1u64.to_ne_bytes());
        });
    }
}

impl XdpGroupRx {
    fn list_awaited(&mut self) {
        let bell = self.mail.as_ref().map(|mail| &mail.bells[mail.worker]);
        let sockets = self.queues.iter().filter_map(XdpRx::socket);
        self.awaited = sockets
            .chain(bell)
            .map(|socket| libc::pollfd {
                fd: socket.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
    }

    /// Sleeps until one of `awaited` is ready; false when the time is over.
    fn poll(&mut self, timeout: Duration) -> Result<bool, PortError> {
        let timeout = libc::timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // SAFETY: the list and the time outlive the call, which writes to the list only; no signal mask.
        let ready = unsafe {
            libc::ppoll(
                self.awaited.as_mut_ptr(),
                self.awaited.len() as libc::nfds_t,
                &raw const timeout,
                std::ptr::null(),
            )
        };
        if ready >= 0 {
            return Ok(ready > 0);
        }
        let cause = io::Error::last_os_error();
        if cause.kind() == io::ErrorKind::Interrupted {
            return Ok(false);
        }
        Err(PortError::Io {
            port: self
                .queues
                .first()
                .map_or_else(String::new, |queue| queue.port().to_owned()),
            operation: "wait for frames (ppoll)".into(),
            cause,
        })
    }

    /// As [`RxQueue::wait`], and says whether the bell rang.
    fn sleep(&mut self, timeout: Duration) -> Result<bool, PortError> {
        if !self.poll(timeout)? {
            for queue in &self.queues {
                // `poll` says nothing of a device that has gone.
                queue.ask()?;
            }
            return Ok(false);
        }
        if let (Some(mail), Some(bell)) = (&self.mail, self.awaited.last())
            && bell.revents != 0
        {
            let _ = rustix::io::read(&mail.bells[mail.worker], &mut [0u8; 8]);
        }
        Ok(true)
    }
}

impl RxQueue for XdpGroupRx {
    #[inline]
    fn receive<F: FnMut(&RxFrame<'_>)>(
        &mut self,
        max: usize,
        mut on_frame: F,
    ) -> Result<usize, PortError> {
        let count = self.queues.len();
        let Some(mail) = &mut self.mail else {
            let mut total = 0;
            for i in 0..count {
                if total >= max {
                    break;
                }
                let queue = &mut self.queues[(self.next + i) % count];
                total += queue.receive(max - total, &mut on_frame)?;
            }
            self.next = (self.next + 1) % count;
            return Ok(total);
        };
        let post = &mut mail.post;
        // What others found first: it has waited longest.
        let mut total = post.take(max, &mut on_frame);
        for i in 0..count {
            if total >= max {
                break;
            }
            let queue = &mut self.queues[(self.next + i) % count];
            total += queue.receive(max - total, |frame| {
                if !post.hand_on(frame) {
                    on_frame(frame);
                }
            })?;
        }
        self.next = (self.next + 1) % count;
        mail.ring();
        Ok(total)
    }

    /// Of its own queues, whosever the frames are.
    #[inline]
    fn look_ahead<F: FnMut(&[u8])>(&mut self, max: usize, mut on_frame: F) {
        let count = self.queues.len();
        let mut left = max;
        for i in 0..count {
            let queue = &mut self.queues[(self.next + i) % count];
            queue.look_ahead(left, |frame| {
                left -= 1;
                on_frame(frame);
            });
        }
    }

    fn lanes(&self) -> usize {
        self.queues.len()
    }

    #[inline]
    fn receive_from<F: FnMut(&RxFrame<'_>)>(
        &mut self,
        lane: usize,
        max: usize,
        on_frame: F,
    ) -> Result<usize, PortError> {
        match self.mail {
            None => self.queues[lane].receive(max, on_frame),
            // What is handed over has no lane of its own.
            Some(_) if lane == 0 => self.receive(max, on_frame),
            Some(_) => Ok(0),
        }
    }

    fn longest_nap(&self) -> Duration {
        // What is handed over by others comes without a ring of the kernel's.
        match self.mail {
            None => {
                let naps = self.queues.iter().map(RxQueue::longest_nap);
                naps.min().unwrap_or_default()
            }
            Some(_) => Duration::ZERO,
        }
    }

    fn wait(&mut self, timeout: Duration) -> Result<bool, PortError> {
        if self.queues.iter_mut().any(XdpRx::has_frame) {
            return Ok(true);
        }
        let Some(mail) = &mut self.mail else {
            return self.sleep(timeout);
        };
        let result = if mail.post.about_to_sleep() {
            self.sleep(timeout)
        } else {
            Ok(true)
        };
        if let Some(mail) = &self.mail {
            mail.post.awake();
        }
        result
    }

    fn close_intake(&mut self) -> Result<(), PortError> {
        self.queues.iter_mut().try_for_each(XdpRx::close_intake)
    }

    /// `received_frames` are those shown to the caller, from its own queues and from others;
    /// `dropped_frames` also those that another worker had no room for.
    fn counters(&mut self) -> RxCounters {
        let mut sum = RxCounters::default();
        for own in self.queues.iter_mut().map(XdpRx::counters) {
            sum.received_frames += own.received_frames;
            sum.dropped_frames += own.dropped_frames;
            sum.passed_frames = match (sum.passed_frames, own.passed_frames) {
                (Some(a), Some(b)) => Some(a + b),
                (a, b) => a.or(b),
            };
            sum.freezes += own.freezes;
        }
        if let Some(mail) = &self.mail {
            let handed = mail.post.counters();
            sum.received_frames -= handed.sent + handed.dropped;
            sum.received_frames += handed.taken;
            sum.dropped_frames += handed.dropped;
        }
        sum
    }

    fn kernel_counters(&mut self) -> Vec<(&'static str, u64)> {
        let mut sum: Vec<(&'static str, u64)> = Vec::new();
        for (name, n) in self.queues.iter_mut().flat_map(XdpRx::kernel_counters) {
            match sum.iter_mut().find(|(known, _)| *known == name) {
                Some((_, total)) => *total += n,
                None => sum.push((name, n)),
            }
        }
        sum
    }
}
