//! Workers with several receive queues, which pass frames to each other.
//!
//! A device may distribute frames over its receive queues in any way, and the kernel gives a socket only the frames of
//! its queue. If there are more queues than workers, a worker reads several sockets in turn. If a frame belongs to
//! another worker, the worker that received it passes it on ([`wb_port::exchange`]). A worker with one queue and no
//! steering has no overhead from this.
#![allow(unsafe_code)] // `ppoll` on a list that is made once.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use wb_port::exchange::{WorkerMailbox, connect_workers};
use wb_port::{PortError, PortSteering, QueuePair, RxCounters, RxFrame, RxQueue};

use crate::{XdpQueue, XdpRx, XdpTx};

/// Queue pair that sends through one queue and receives from several.
pub struct XdpGroup {
    tx: XdpTx,
    rx: XdpGroupRx,
}

/// Receiving half of an [`XdpGroup`].
///
/// Frames of one queue arrive in order. Frames of different queues arrive in the order in which the queues are read, in
/// addition to frames passed on by other workers. [`RxQueue::receive`] makes at most one system call for each queue,
/// and its result includes the frames that it passed on.
pub struct XdpGroupRx {
    queues: Vec<XdpRx>,
    /// Queue to read first next time, so that a busy queue does not delay the others.
    next: usize,
    mail: Option<Mail>,
    /// Descriptors that [`RxQueue::wait`] polls: the sockets, and the bell if frames are passed on.
    awaited: Vec<libc::pollfd>,
}

/// Connection to the other workers.
struct Mail {
    post: WorkerMailbox,
    /// Event descriptors that wake up workers, one for each.
    bells: Arc<[OwnedFd]>,
    worker: usize,
}

/// Distributes queues over `workers` workers: queue *i* of the list belongs to worker *i* modulo `workers`, and each
/// worker sends through its first queue. With `steering`, that rule selects the worker that receives a frame, whichever
/// queue it arrives at. Without it, the owner of the queue receives the frame.
///
/// # Errors
/// If the process has no file descriptor left.
///
/// # Panics
/// If `workers` is 0, more than 64, or more than the number of queues.
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
        let posts = connect_workers(workers, steering, capacity);
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
    /// Discards up to `most` waiting frames of each of its queues, for whichever worker they are.
    pub fn discard(&mut self, most: usize) {
        for queue in &mut self.rx.queues {
            let mut left = most;
            while left > 0 {
                match queue.receive(left.min(64), |_| {}) {
                    Ok(n) if n > 0 => left -= n,
                    // The worker will detect a removed device.
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
    /// Wakes the sleeping workers that have received frames.
    #[inline]
    fn ring(&mut self) {
        let bells = &self.bells;
        self.post.wake(|worker| {
            // The write fails only if the bell was rung 2^64 times and never read.
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

    /// Sleeps until one of `awaited` is ready; returns false at the timeout.
    fn poll(&mut self, timeout: Duration) -> Result<bool, PortError> {
        let timeout = libc::timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // SAFETY: the list and the time outlive the call, which writes only to the list; there is no signal mask.
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

    /// Like [`RxQueue::wait`], and resets the bell if it rang.
    fn sleep(&mut self, timeout: Duration) -> Result<bool, PortError> {
        if !self.poll(timeout)? {
            for queue in &self.queues {
                // `poll` does not report a removed device.
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
        // Frames from other workers first, because they have waited longest.
        let mut total = post.receive(max, &mut on_frame);
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

    /// Shows only frames of this worker's queues, including those for other workers.
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
            // Frames from other workers have no separate lane.
            Some(_) if lane == 0 => self.receive(max, on_frame),
            Some(_) => Ok(0),
        }
    }

    fn longest_nap(&self) -> Duration {
        // Frames from other workers do not come from a kernel ring.
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

    /// `received_frames` are the frames passed to the caller, from its queues and from other workers. `dropped_frames`
    /// includes frames that another worker had no room for.
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
