//! The thread of one stream: connects, moves data until stopped, closes the connection.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use wb_measure::Histogram;
use wb_model::socket::{SocketFailure, SocketStage};

use super::{
    connects::{Connects, ended},
    failure::{failure, system},
    role::Role,
    shared_stream::{Gate, Phase, SharedStream},
};
use crate::{
    flow::{
        DatagramReceivePlan, DatagramReceiver, DatagramSendPlan, DatagramSender, Ended,
        ReceivePlan, Receiver, Recorder, RequestPlan, Requester, Run, SendPlan, Sender, TagReport,
        Tally, end_datagrams, finish,
    },
    host::Host,
    open::{Effective, connect, effective, errno},
};

/// Work of a stream's thread.
#[derive(Debug)]
pub(super) enum Task<'a> {
    Send(SendPlan),
    Receive(ReceivePlan),
    SendDatagrams(DatagramSendPlan),
    ReceiveDatagrams(DatagramReceivePlan),
    Request(RequestPlan),
    /// Connection per transaction, with the socket of the first one.
    Connect(Connects<'a>, OwnedFd, Option<RequestPlan>),
    /// Only reads the settings of the connection.
    Look,
}

/// Parameters of a stream's thread.
pub(super) struct Drive<'a> {
    pub(super) task: Task<'a>,
    pub(super) stream: &'a SharedStream,
    pub(super) gate: &'a Gate,
    pub(super) host: &'a dyn Host,
    pub(super) cpu: Option<u32>,
    pub(super) to: SocketAddr,
    /// Datagram stream that ends with a datagram.
    pub(super) connectionless: bool,
    /// When to connect the data socket: before or after the start; `None` if it is not connected.
    pub(super) connect: Option<When>,
    pub(super) recorder: Option<Recorder>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    BeforeStart,
    AfterStart,
}

/// Result of a stream's thread.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Before the first operation.
    pub(super) began: Instant,
    /// End of the data loop.
    pub(super) looped: Instant,
    /// End of the tear-down.
    pub(super) ended: Instant,
    pub(super) tally: Tally,
    /// True unless a required connection was not made.
    pub(super) connected: bool,
    /// Settings in effect before the tear-down.
    pub(super) effective: Option<Effective>,
    pub(super) histogram: Option<Histogram>,
    pub(super) tags: Option<TagReport>,
    pub(super) failure: Option<SocketFailure>,
    pub(super) warnings: Vec<String>,
}

impl Outcome {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            began: now,
            looped: now,
            ended: now,
            tally: Tally::default(),
            connected: false,
            effective: None,
            histogram: None,
            tags: None,
            failure: None,
            warnings: Vec::new(),
        }
    }

    /// Time from before the first operation to the end of the tear-down.
    pub(super) fn elapsed(&self) -> Duration {
        self.ended.saturating_duration_since(self.began)
    }
}

/// A task with its buffers.
enum Loop<'a> {
    Send(Sender),
    Receive(Receiver),
    SendDatagrams(DatagramSender),
    ReceiveDatagrams(DatagramReceiver),
    Request(Requester),
    Connect(Connects<'a>, Option<OwnedFd>, Option<Requester>),
    Look,
}

impl<'a> Loop<'a> {
    fn new(task: Task<'a>) -> io::Result<Self> {
        Ok(match task {
            Task::Send(plan) => Self::Send(Sender::new(&plan)?),
            Task::Receive(plan) => Self::Receive(Receiver::new(&plan)?),
            Task::SendDatagrams(plan) => Self::SendDatagrams(DatagramSender::new(&plan)?),
            Task::ReceiveDatagrams(plan) => Self::ReceiveDatagrams(DatagramReceiver::new(&plan)?),
            Task::Request(plan) => Self::Request(Requester::new(&plan)?),
            Task::Connect(connects, bound, plan) => {
                let requester = plan.as_ref().map(Requester::new).transpose()?;
                Self::Connect(connects, Some(bound), requester)
            }
            Task::Look => Self::Look,
        })
    }
}

impl Drive<'_> {
    /// Runs the stream. Failures are reported in the outcome.
    pub(super) fn run(self) -> Outcome {
        let stream = self.stream;
        let outcome = self.all();
        if outcome.failure.is_some() {
            stream.failed.store(true, Ordering::Relaxed);
        }
        stream.enter(Phase::Done);
        outcome
    }

    fn all(mut self) -> Outcome {
        let (stream, gate) = (self.stream, self.gate);
        let mut outcome = Outcome::new();
        let looping = stream.run.enter();
        let _draining = stream.drain.enter();
        if let Some(cpu) = self.cpu
            && let Err(why) = self.host.bind_cpu(cpu)
        {
            outcome
                .warnings
                .push(format!("not bound to CPU {cpu}: {why}"));
        }
        let task = std::mem::replace(&mut self.task, Task::Look);
        let mut work = match Loop::new(task) {
            Ok(work) => work,
            Err(error) => {
                outcome.failure = Some(system(SocketStage::Socket, "cannot prepare", &error));
                return outcome;
            }
        };
        if self.connect == Some(When::BeforeStart) && !self.connected(&mut outcome) {
            return outcome;
        }
        stream.enter(Phase::Ready);
        if !gate.pass() {
            return outcome;
        }
        outcome.began = Instant::now();
        stream.enter(Phase::Begun);
        if self.connect == Some(When::AfterStart) && !self.connected(&mut outcome) {
            outcome.looped = Instant::now();
            outcome.ended = outcome.looped;
            return outcome;
        }
        outcome.connected = true;
        stream.enter(Phase::Moving);
        self.moves(&mut work, &mut outcome);
        outcome.looped = Instant::now();
        self.judge(&mut outcome);
        if outcome.failure.is_some() {
            stream.failed.store(true, Ordering::Relaxed);
        }
        // Interrupts from here on end the tear-down.
        drop(looping);
        stream.enter(Phase::Looped);
        if let Some(socket) = &stream.socket {
            outcome.effective = Some(effective(socket.as_fd()));
            if outcome.failure.is_none() {
                self.take_down(&mut work, socket.as_fd(), &mut outcome);
            }
            self.last_look(socket.as_fd(), &mut outcome);
        }
        outcome.ended = Instant::now();
        if let Loop::ReceiveDatagrams(receiver) = &work {
            outcome.tags = receiver.tags();
        }
        outcome.histogram = self
            .recorder
            .as_ref()
            .map(|recorder| recorder.histogram().clone());
        outcome
    }

    /// Connects the data socket if necessary. Returns true if it is connected; being stopped is not a failure.
    fn connected(&self, outcome: &mut Outcome) -> bool {
        let Some(socket) = &self.stream.socket else {
            return true;
        };
        match connect(socket.as_fd(), self.to, &self.stream.run) {
            Ok(()) => true,
            Err(error) => {
                if let Ended::Failed(error) = ended(error, &self.stream.run) {
                    let what = format!("cannot connect the data to {}", self.to);
                    outcome.failure = Some(system(SocketStage::Data, &what, &error));
                }
                false
            }
        }
    }

    fn moves(&mut self, work: &mut Loop<'_>, outcome: &mut Outcome) {
        let mut run = Run {
            stop: &self.stream.run,
            counters: &self.stream.counters,
            recorder: self.recorder.as_mut(),
        };
        let unconnected = self.connect.is_none().then_some(self.to);
        let socket = self.stream.socket.as_ref().map(AsFd::as_fd);
        outcome.tally = match (work, socket) {
            (Loop::Send(sender), Some(fd)) => sender.run(fd, &mut run),
            (Loop::Receive(receiver), Some(fd)) => receiver.run(fd, &mut run),
            (Loop::SendDatagrams(sender), Some(fd)) => sender.run(fd, unconnected, &mut run),
            (Loop::ReceiveDatagrams(receiver), Some(fd)) => receiver.run(fd, &mut run),
            (Loop::Request(requester), Some(fd)) => requester.run(fd, unconnected, &mut run),
            (Loop::Connect(connects, bound, requester), _) => {
                let bound = bound.take().expect("a loop is run once");
                let (tally, last) = connects.run(bound, requester.as_mut(), &mut run);
                outcome.effective = last;
                tally
            }
            (_, _) => Tally::default(),
        };
    }

    /// Separates failures from normal endings.
    fn judge(&self, outcome: &mut Outcome) {
        let to = self.to;
        outcome.failure = match (&outcome.tally.ended, self.stream.role) {
            (Ended::Failed(error), role) => {
                let doing = match role {
                    Role::Up => format!("sending to {to}"),
                    Role::Down => format!("receiving from {to}"),
                    Role::Rr => format!("request and response with {to}"),
                    Role::Crr | Role::Cc | Role::Mss => format!("a connection with {to}"),
                };
                Some(system(SocketStage::Data, &doing, error))
            }
            (Ended::Eof, Role::Rr | Role::Crr) if !self.stream.run.stopped() => {
                let what = format!("{to} ended the data connection before its time");
                Some(failure(SocketStage::Data, what))
            }
            _ => None,
        };
    }

    fn take_down(&self, work: &mut Loop<'_>, fd: BorrowedFd<'_>, outcome: &mut Outcome) {
        let stream = self.stream;
        let stop = &stream.drain;
        match work {
            Loop::Send(sender) => sender.settle(fd, stop, &mut outcome.tally),
            Loop::SendDatagrams(sender) => sender.settle(fd, stop, &mut outcome.tally),
            _ => {}
        }
        if stream.abort.load(Ordering::Relaxed) {
            // Data that still arrives is answered with a reset, so a server that continues to send ends.
            let _ = rustix::net::shutdown(fd, rustix::net::Shutdown::Both);
            return;
        }
        if self.connectionless {
            if stream.role != Role::Down {
                end_datagrams(fd, self.connect.is_none().then_some(self.to));
            }
            return;
        }
        match finish(fd, stop) {
            Ok(rest) if stream.role == Role::Down => outcome.tally.bytes_received += rest,
            Ok(_) => {}
            Err(_) if stream.abort.load(Ordering::Relaxed) => {}
            // A server that counts may close before the last whole send is complete: netperf resets the connection with
            // the rest unread. Its results state how much it took.
            Err(error) if is_reset(&error) && matches!(outcome.tally.ended, Ended::Limit) => {}
            Err(error) => {
                let what = format!("taking down the data connection with {}", self.to);
                outcome.failure = Some(match ended(error, stop) {
                    Ended::Failed(error) => system(SocketStage::Data, &what, &error),
                    _ => failure(
                        SocketStage::Data,
                        format!("{what}: the server does not end it"),
                    ),
                });
            }
        }
    }

    /// Updates the TCP statistics after the tear-down, except windows and times, which mean nothing on a closed
    /// connection. Retransmissions continue until the last byte is acknowledged.
    fn last_look(&self, fd: BorrowedFd<'_>, outcome: &mut Outcome) {
        let Some(tcp) = outcome
            .effective
            .as_mut()
            .and_then(|known| known.tcp.as_mut())
        else {
            return;
        };
        if let Some(later) = crate::sys::tcp_sample(fd) {
            tcp.retransmissions = tcp.retransmissions.max(later.retransmissions);
            tcp.bytes_acked = tcp.bytes_acked.max(later.bytes_acked);
            tcp.bytes_received = tcp.bytes_received.max(later.bytes_received);
        }
    }
}

fn is_reset(error: &io::Error) -> bool {
    matches!(
        errno(error),
        Some(libc::ECONNRESET | libc::EPIPE | libc::ENOTCONN)
    )
}
