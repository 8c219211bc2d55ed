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
    connect_loop::{ConnectLoop, loop_end},
    failure::{stage_failure, system_failure},
    role::StreamRole,
    shared_stream::{SharedStream, StartGate, StreamPhase},
};
use crate::{
    flow::{
        BufferSender, DatagramReceivePlan, DatagramReceiver, DatagramSendPlan, DatagramSender,
        LoopContext, LoopEnd, LoopTally, ReceivePlan, RequestPlan, Requester, SendPlan,
        StreamReceiver, TagReport, TimeRecorder, end_datagrams, shut_down_and_drain,
    },
    host::Host,
    open::{EffectiveSettings, connect, effective_settings, errno},
};

/// Work of a stream's thread.
#[derive(Debug)]
pub(super) enum StreamTask<'a> {
    Send(SendPlan),
    Receive(ReceivePlan),
    SendDatagrams(DatagramSendPlan),
    ReceiveDatagrams(DatagramReceivePlan),
    Request(RequestPlan),
    /// Connection per transaction, with the socket of the first one.
    Connect(ConnectLoop<'a>, OwnedFd, Option<RequestPlan>),
    /// Only reads the settings of the connection.
    Look,
}

/// Parameters of a stream's thread.
pub(super) struct StreamThread<'a> {
    pub(super) task: StreamTask<'a>,
    pub(super) stream: &'a SharedStream,
    pub(super) gate: &'a StartGate,
    pub(super) host: &'a dyn Host,
    pub(super) cpu: Option<u32>,
    pub(super) to: SocketAddr,
    /// Datagram stream that ends with a datagram.
    pub(super) connectionless: bool,
    /// When to connect the data socket: before or after the start; `None` if it is not connected.
    pub(super) connect: Option<ConnectTime>,
    pub(super) recorder: Option<TimeRecorder>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectTime {
    BeforeStart,
    AfterStart,
}

/// Result of a stream's thread.
#[derive(Debug)]
pub(super) struct StreamThreadOutcome {
    /// Before the first operation.
    pub(super) began: Instant,
    /// End of the data loop.
    pub(super) looped: Instant,
    /// End of the tear-down.
    pub(super) ended: Instant,
    pub(super) tally: LoopTally,
    /// True unless a required connection was not made.
    pub(super) connected: bool,
    /// Settings in effect before the tear-down.
    pub(super) effective: Option<EffectiveSettings>,
    pub(super) histogram: Option<Histogram>,
    pub(super) tags: Option<TagReport>,
    pub(super) failure: Option<SocketFailure>,
    pub(super) warnings: Vec<String>,
}

impl StreamThreadOutcome {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            began: now,
            looped: now,
            ended: now,
            tally: LoopTally::default(),
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
enum TaskLoop<'a> {
    Send(BufferSender),
    Receive(StreamReceiver),
    SendDatagrams(DatagramSender),
    ReceiveDatagrams(DatagramReceiver),
    Request(Requester),
    Connect(ConnectLoop<'a>, Option<OwnedFd>, Option<Requester>),
    Look,
}

impl<'a> TaskLoop<'a> {
    fn new(task: StreamTask<'a>) -> io::Result<Self> {
        Ok(match task {
            StreamTask::Send(plan) => Self::Send(BufferSender::new(&plan)?),
            StreamTask::Receive(plan) => Self::Receive(StreamReceiver::new(&plan)?),
            StreamTask::SendDatagrams(plan) => Self::SendDatagrams(DatagramSender::new(&plan)?),
            StreamTask::ReceiveDatagrams(plan) => {
                Self::ReceiveDatagrams(DatagramReceiver::new(&plan)?)
            }
            StreamTask::Request(plan) => Self::Request(Requester::new(&plan)?),
            StreamTask::Connect(connects, bound, plan) => {
                let requester = plan.as_ref().map(Requester::new).transpose()?;
                Self::Connect(connects, Some(bound), requester)
            }
            StreamTask::Look => Self::Look,
        })
    }
}

impl StreamThread<'_> {
    /// Runs the stream. Failures are reported in the outcome.
    pub(super) fn run(self) -> StreamThreadOutcome {
        let stream = self.stream;
        let outcome = self.run_stream();
        if outcome.failure.is_some() {
            stream.failed.store(true, Ordering::Relaxed);
        }
        stream.enter_phase(StreamPhase::Done);
        outcome
    }

    fn run_stream(mut self) -> StreamThreadOutcome {
        let (stream, gate) = (self.stream, self.gate);
        let mut outcome = StreamThreadOutcome::new();
        let looping = stream.run.register_thread();
        let _draining = stream.drain.register_thread();
        if let Some(cpu) = self.cpu
            && let Err(why) = self.host.bind_cpu(cpu)
        {
            outcome
                .warnings
                .push(format!("cannot bind to CPU {cpu}: {why}"));
        }
        let task = std::mem::replace(&mut self.task, StreamTask::Look);
        let mut work = match TaskLoop::new(task) {
            Ok(work) => work,
            Err(error) => {
                outcome.failure = Some(system_failure(
                    SocketStage::Socket,
                    "cannot prepare",
                    &error,
                ));
                return outcome;
            }
        };
        if self.connect == Some(ConnectTime::BeforeStart) && !self.connect_data(&mut outcome) {
            return outcome;
        }
        stream.enter_phase(StreamPhase::Ready);
        if !gate.wait_to_start() {
            return outcome;
        }
        outcome.began = Instant::now();
        stream.enter_phase(StreamPhase::Begun);
        if self.connect == Some(ConnectTime::AfterStart) && !self.connect_data(&mut outcome) {
            outcome.looped = Instant::now();
            outcome.ended = outcome.looped;
            return outcome;
        }
        outcome.connected = true;
        stream.enter_phase(StreamPhase::Moving);
        self.move_data(&mut work, &mut outcome);
        outcome.looped = Instant::now();
        self.classify_end(&mut outcome);
        if outcome.failure.is_some() {
            stream.failed.store(true, Ordering::Relaxed);
        }
        // Interrupts from here on end the tear-down.
        drop(looping);
        stream.enter_phase(StreamPhase::Looped);
        if let Some(socket) = &stream.socket {
            outcome.effective = Some(effective_settings(socket.as_fd()));
            if outcome.failure.is_none() {
                self.end_data_connection(&mut work, socket.as_fd(), &mut outcome);
            }
            self.last_look(socket.as_fd(), &mut outcome);
        }
        outcome.ended = Instant::now();
        if let TaskLoop::ReceiveDatagrams(receiver) = &work {
            outcome.tags = receiver.tag_report();
        }
        outcome.histogram = self
            .recorder
            .as_ref()
            .map(|recorder| recorder.histogram().clone());
        outcome
    }

    /// Connects the data socket if necessary. Returns true if it is connected; being stopped is not a failure.
    fn connect_data(&self, outcome: &mut StreamThreadOutcome) -> bool {
        let Some(socket) = &self.stream.socket else {
            return true;
        };
        match connect(socket.as_fd(), self.to, &self.stream.run) {
            Ok(()) => true,
            Err(error) => {
                if let LoopEnd::Failed(error) = loop_end(error, &self.stream.run) {
                    let what = format!("cannot open the data connection to {}", self.to);
                    outcome.failure = Some(system_failure(SocketStage::Data, &what, &error));
                }
                false
            }
        }
    }

    fn move_data(&mut self, work: &mut TaskLoop<'_>, outcome: &mut StreamThreadOutcome) {
        let mut run = LoopContext {
            stop: &self.stream.run,
            counters: &self.stream.counters,
            recorder: self.recorder.as_mut(),
        };
        let unconnected = self.connect.is_none().then_some(self.to);
        let socket = self.stream.socket.as_ref().map(AsFd::as_fd);
        outcome.tally = match (work, socket) {
            (TaskLoop::Send(sender), Some(fd)) => sender.run(fd, &mut run),
            (TaskLoop::Receive(receiver), Some(fd)) => receiver.run(fd, &mut run),
            (TaskLoop::SendDatagrams(sender), Some(fd)) => sender.run(fd, unconnected, &mut run),
            (TaskLoop::ReceiveDatagrams(receiver), Some(fd)) => receiver.run(fd, &mut run),
            (TaskLoop::Request(requester), Some(fd)) => requester.run(fd, unconnected, &mut run),
            (TaskLoop::Connect(connects, bound, requester), _) => {
                let bound = bound.take().expect("a loop is run once");
                let (tally, last) = connects.run(bound, requester.as_mut(), &mut run);
                outcome.effective = last;
                tally
            }
            (_, _) => LoopTally::default(),
        };
    }

    /// Separates failures from normal endings.
    fn classify_end(&self, outcome: &mut StreamThreadOutcome) {
        let to = self.to;
        outcome.failure = match (&outcome.tally.ended, self.stream.role) {
            (LoopEnd::Failed(error), role) => {
                let doing = match role {
                    StreamRole::Up => format!("sending to {to} failed"),
                    StreamRole::Down => format!("receiving from {to} failed"),
                    StreamRole::Rr => format!("request and response with {to} failed"),
                    StreamRole::Crr | StreamRole::Cc | StreamRole::Mss => {
                        format!("a connection with {to} failed")
                    }
                };
                Some(system_failure(SocketStage::Data, &doing, error))
            }
            (LoopEnd::Eof, StreamRole::Rr | StreamRole::Crr) if !self.stream.run.is_stopped() => {
                let what = format!("{to} closed the data connection early");
                Some(stage_failure(SocketStage::Data, what))
            }
            _ => None,
        };
    }

    fn end_data_connection(
        &self,
        work: &mut TaskLoop<'_>,
        fd: BorrowedFd<'_>,
        outcome: &mut StreamThreadOutcome,
    ) {
        let stream = self.stream;
        let stop = &stream.drain;
        match work {
            TaskLoop::Send(sender) => sender.wait_for_completions(fd, stop, &mut outcome.tally),
            TaskLoop::SendDatagrams(sender) => {
                sender.wait_for_completions(fd, stop, &mut outcome.tally)
            }
            _ => {}
        }
        if stream.abort.load(Ordering::Relaxed) {
            // Data that still arrives is answered with a reset, so a server that continues to send ends.
            let _ = rustix::net::shutdown(fd, rustix::net::Shutdown::Both);
            return;
        }
        if self.connectionless {
            if stream.role != StreamRole::Down {
                end_datagrams(fd, self.connect.is_none().then_some(self.to));
            }
            return;
        }
        match shut_down_and_drain(fd, stop) {
            Ok(rest) if stream.role == StreamRole::Down => outcome.tally.bytes_received += rest,
            Ok(_) => {}
            Err(_) if stream.abort.load(Ordering::Relaxed) => {}
            // A server that counts may close before the last whole send is complete: netperf resets the connection with
            // the rest unread. Its results state how much it took.
            Err(error) if is_reset(&error) && matches!(outcome.tally.ended, LoopEnd::Limit) => {}
            Err(error) => {
                let what = format!("closing the data connection with {} failed", self.to);
                outcome.failure = Some(match loop_end(error, stop) {
                    LoopEnd::Failed(error) => system_failure(SocketStage::Data, &what, &error),
                    _ => stage_failure(
                        SocketStage::Data,
                        format!("{what}: the server does not close it"),
                    ),
                });
            }
        }
    }

    /// Updates the TCP statistics after the tear-down, except windows and times, which mean nothing on a closed
    /// connection. Retransmissions continue until the last byte is acknowledged.
    fn last_look(&self, fd: BorrowedFd<'_>, outcome: &mut StreamThreadOutcome) {
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
