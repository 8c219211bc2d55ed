//! A test from its response to its results: coordinates the data thread, the control connection, the clock and the stop
//! request.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    io::Errno as Os,
    net::{RecvFlags, Shutdown},
};
use wb_model::socket::CpuUse;
use wb_netperf_wire::{ClassicKind, Request};

use super::{
    control::{ControlEvent, ServerControl, wait_for},
    data_thread::{DataThreadResult, TestShared, run_data_thread},
    prepare::{PreparedTest, ResponseFacts},
    requested_test::{DataExchange, LinuxErrno, MessageKind},
    state::ServerState,
    test_loop::TestLoop,
    test_rules::{CounterMovement, TestRules},
};
use crate::{
    CpuTimes,
    cpu::{clamp_shares, cpu_use},
    flow::{LoopCounters, LoopEnd},
};

/// Time for the data thread to read what the kernel held when the client ended the test. The thread may wait for a CPU,
/// and it never ends if the client continues to send.
const LATE: Duration = Duration::from_secs(2);
/// Time for a data thread to end. It only has to return from a system call.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// Time for a client to read the data already sent.
const FLUSH: Duration = Duration::from_secs(60);
/// Stack of a data thread, bytes. Its buffers are elsewhere.
const STACK: usize = 256 << 10;

/// A test with a started data thread.
pub(super) struct RunningTest {
    pub facts: ResponseFacts,
    inside: Arc<TestShared>,
    thread: thread::JoinHandle<DataThreadResult>,
    go: mpsc::Sender<()>,
    measures_cpu: bool,
}

/// Result of a test.
pub(super) struct TestOutcome {
    pub facts: ResponseFacts,
    pub done: DataThreadResult,
    /// Without warm-up and padding.
    pub elapsed: Duration,
    pub cpu: Option<CpuUse>,
    /// Bytes after the warm-up.
    pub bytes_after: u64,
    /// Transactions after the warm-up.
    pub transactions_after: u64,
    /// Connection to close after the results are sent.
    pub linger: Option<Arc<OwnedFd>>,
}

/// Event that ended a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TestEnd {
    /// The loop itself.
    Own,
    /// Its time, with or without padding.
    Time,
    /// No more data arrived.
    Quiet,
    /// The client's end message.
    Told,
}

/// The client has left, or broke the protocol; the results are not needed.
#[derive(Debug)]
pub(super) struct ClientGone;

/// A time and the counters at that time.
#[derive(Clone, Default)]
struct CounterMark {
    bytes: u64,
    transactions: u64,
}

impl CounterMark {
    fn now(counters: &LoopCounters) -> Self {
        let (bytes, _, transactions) = counters.totals();
        Self {
            bytes,
            transactions,
        }
    }
}

impl RunningTest {
    /// Starts the data thread. A thread that sends without a request waits until [`RunningTest::watch_until_end`].
    pub(super) fn start(prepared: PreparedTest, state: &ServerState) -> Result<Self, LinuxErrno> {
        let PreparedTest { facts, stage } = prepared;
        let inside = TestShared::new(Arc::clone(&stage.fd))
            .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
        let inside = Arc::new(inside);
        let (go, begin) = mpsc::channel();
        let shared = Arc::clone(&inside);
        let host = Arc::clone(&state.host);
        let (cpu, units) = (facts.ask.cpu, facts.ask.length.unit_limit());
        // All others only wait for the client, so they are ready when the client gets the response.
        let speaks_first = matches!(stage.engine, TestLoop::SendDatagrams(..));
        let body = move || {
            let done = catch_unwind(AssertUnwindSafe(|| {
                // netserver also continues if binding fails.
                let _ = cpu.map(|cpu| host.bind_cpu(cpu));
                match speaks_first && begin.recv().is_err() {
                    true => DataThreadResult::default(),
                    false => run_data_thread(stage, &shared, units),
                }
            }));
            shared.mark_end();
            done.unwrap_or_else(|_| {
                let mut done = DataThreadResult::default();
                done.tally.ended = LoopEnd::Failed(io::Error::other("the data thread panicked"));
                done
            })
        };
        let thread = thread::Builder::new()
            .name("wb-server-data".to_owned())
            .stack_size(STACK)
            .spawn(body)
            .map_err(|error| error.raw_os_error().unwrap_or(libc::EAGAIN))?;
        let measures_cpu = facts.ask.side.measure_cpu && state.host.cpu_times().is_some();
        Ok(Self {
            facts,
            inside,
            thread,
            go,
            measures_cpu,
        })
    }

    /// Returns true if CPU figures will be available.
    pub(super) fn measures_cpu(&self) -> bool {
        self.measures_cpu
    }

    /// Counters for observers.
    pub(super) fn counters(&self) -> Arc<LoopCounters> {
        Arc::clone(&self.inside.counters)
    }

    /// Lets the data thread begin, and watches until the test is over. Call it after the response is sent.
    pub(super) fn watch_until_end(
        self,
        control: &mut ServerControl,
        state: &ServerState,
    ) -> Result<TestOutcome, ClientGone> {
        let began = Instant::now();
        let rules = TestRules::for_test(&self.facts);
        let read_cpu = || self.measures_cpu.then(|| state.host.cpu_times()).flatten();
        let mut cpu_before = read_cpu();
        let _ = self.go.send(());
        let inside = &self.inside;
        let mut movement = CounterMovement { last: 0, at: began };
        let mut first = None;
        let mut omitted: Option<CounterMark> = None;
        let end = loop {
            if inside.has_ended() {
                break TestEnd::Own;
            }
            if first.is_none() && inside.first().is_some() {
                first = inside.first();
                if rules.from_first && rules.omit.is_zero() {
                    cpu_before = read_cpu();
                }
            }
            let start = rules.start(first, began);
            let now = Instant::now();
            if let Some(start) = start
                && omitted.is_none()
                && !rules.omit.is_zero()
                && now >= start + rules.omit
            {
                omitted = Some(CounterMark::now(&inside.counters));
                cpu_before = read_cpu();
            }
            movement.update(&inside.counters, now);
            if rules.is_time(start, began, now, state) {
                break TestEnd::Time;
            }
            if rules.is_quiet(start, &movement, &inside.counters, now) {
                break TestEnd::Quiet;
            }
            let wake = rules.next_check(start, began, omitted.is_some(), now, state);
            match self.wait_for_event(control, wake) {
                Ok(None) => {}
                Ok(Some(end)) => break end,
                Err(ClientGone) => {
                    self.abandon();
                    return Err(ClientGone);
                }
            }
        };
        if end != TestEnd::Own && !inside.stop.stop_and_wait(STOP_TIMEOUT) {
            return Err(ClientGone);
        }
        let cpu_after = read_cpu();
        let first = inside.first();
        let start = rules.start(first, began).unwrap_or(began);
        let mark = omitted.unwrap_or_else(|| {
            if rules.omit.is_zero() {
                CounterMark::default()
            } else {
                CounterMark::now(&inside.counters)
            }
        });
        let counted = CounterMark::now(&inside.counters);
        let bytes_after = counted.bytes.saturating_sub(mark.bytes);
        let transactions_after = counted.transactions.saturating_sub(mark.transactions);
        let Ok(done) = self.thread.join() else {
            return Err(ClientGone);
        };
        let ended = match end {
            TestEnd::Quiet => movement.at,
            _ => done.at.unwrap_or_else(Instant::now),
        };
        let measured = done
            .at
            .unwrap_or(ended)
            .saturating_duration_since(start)
            .saturating_sub(rules.omit);
        let mut elapsed = ended
            .saturating_duration_since(start)
            .saturating_sub(rules.omit);
        if end == TestEnd::Time {
            elapsed = elapsed.saturating_sub(rules.padding);
        }
        let cpu = cpu_before
            .zip(cpu_after)
            .map(|(before, after)| scaled_cpu_use(&before, &after, measured, elapsed));
        let mut outcome = TestOutcome {
            facts: self.facts,
            done,
            elapsed,
            cpu,
            bytes_after,
            transactions_after,
            linger: None,
        };
        outcome.close_data_connection(control, end)?;
        Ok(outcome)
    }

    /// Waits until `wake`, for news of the data thread, or for a message. Returns how the test ended if the message
    /// ends it.
    fn wait_for_event(
        &self,
        control: &mut ServerControl,
        wake: Option<Instant>,
    ) -> Result<Option<TestEnd>, ClientGone> {
        match control.wait(Some(self.inside.waker.as_fd()), wake) {
            ControlEvent::Woken => self.inside.waker.clear(),
            ControlEvent::Deadline => {}
            ControlEvent::Message(message) => match Request::parse(&message) {
                Ok(Request::End) => {
                    self.wait_for_late_data();
                    return Ok(Some(TestEnd::Told));
                }
                // No other message is allowed during a test.
                _ => return Err(ClientGone),
            },
            ControlEvent::Closed | ControlEvent::Broken => return Err(ClientGone),
        }
        Ok(None)
    }

    /// Waits for data that the client sent before its end message and that is still in the kernel.
    fn wait_for_late_data(&self) {
        if !matches!(self.facts.ask.work, DataExchange::Receive { .. }) {
            return;
        }
        let until = Instant::now() + LATE;
        let mut before = None;
        while Instant::now() < until && !self.inside.has_ended() {
            let now = self.inside.counters.bytes();
            if !self.inside.has_waiting() && before == Some(now) {
                return;
            }
            before = Some(now);
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends a test without results.
    pub(super) fn abandon(self) {
        // Ends a thread that still waits to begin.
        drop(self.go);

        if self.inside.stop.stop_and_wait(STOP_TIMEOUT) {
            let _ = self.thread.join();
        }
    }
}

/// CPU figures. If the measurement took longer than the test, all CPU time is attributed to the test.
fn scaled_cpu_use(
    before: &CpuTimes,
    after: &CpuTimes,
    measured: Duration,
    elapsed: Duration,
) -> CpuUse {
    let mut cpu = cpu_use(before, after);
    if elapsed < measured && !elapsed.is_zero() {
        let factor = measured.as_secs_f64() / elapsed.as_secs_f64();
        for share in cpu.shares_mut() {
            *share *= factor;
        }
    }
    clamp_shares(cpu).0
}

impl TestOutcome {
    /// Error number for the client if the test failed.
    pub(super) fn failure(&self) -> Option<LinuxErrno> {
        let error = self.done.tally.failure()?;
        let number = crate::errno(error).unwrap_or(libc::EIO);
        let is_reset = matches!(number, libc::ECONNRESET | libc::EPIPE | libc::ECONNREFUSED);
        match self.facts.ask.work {
            // A receiver may close early.
            DataExchange::Send if is_reset => None,
            DataExchange::Exchange { .. } if is_reset && self.done.tally.transactions > 0 => None,
            _ => Some(number),
        }
    }

    /// Closes the data connection as the client expects.
    fn close_data_connection(
        &mut self,
        control: &ServerControl,
        end: TestEnd,
    ) -> Result<(), ClientGone> {
        let Some(connection) = self.done.connection.take() else {
            return Ok(());
        };
        match (self.facts.ask.work, self.facts.ask.talk) {
            // All sent data must arrive before the results do.
            (DataExchange::Send, _) if end != TestEnd::Told => flush(control, &connection),
            (DataExchange::Receive { .. }, MessageKind::Classic(ClassicKind::TcpStream)) => {
                let _ = rustix::net::shutdown(&connection, Shutdown::Write);
                self.linger = Some(connection);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Ends a sent stream and waits until the client has read all of it and closed its side.
fn flush(control: &ServerControl, connection: &OwnedFd) -> Result<(), ClientGone> {
    if rustix::net::shutdown(connection, Shutdown::Write).is_err() {
        return Ok(());
    }
    let until = Instant::now() + FLUSH;
    let mut bytes = vec![0; 16 << 10];
    loop {
        let rest = until.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Ok(());
        }
        let (data, talk) = wait_for(connection.as_fd(), control.as_fd(), rest);
        if data {
            match rustix::net::recv(connection, &mut bytes[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Ok(()),
                Ok(_) | Err(Os::INTR | Os::AGAIN) => {}
                Err(_) => return Ok(()),
            }
        } else if talk {
            // A wirebench client that sends its end message now needs no more data. A client that has left is noticed
            // when the results are sent.
            return Ok(());
        }
    }
}
