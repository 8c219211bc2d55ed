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
    ask::{Errno, Talk, Work},
    control::{Control, Event, wait_for},
    engine::Engine,
    prepare::{Facts, Prepared},
    rules::{Movement, Rules},
    state::ServerState,
    work::{Done, Inside, work},
};
use crate::{
    CpuTimes,
    cpu::{clamped, cpu_use},
    flow::{Counters, Ended},
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
pub(super) struct Running {
    pub facts: Facts,
    inside: Arc<Inside>,
    thread: thread::JoinHandle<Done>,
    go: mpsc::Sender<()>,
    measures_cpu: bool,
}

/// Result of a test.
pub(super) struct Outcome {
    pub facts: Facts,
    pub done: Done,
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
enum End {
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
pub(super) struct Gone;

/// A time and the counters at that time.
#[derive(Clone, Default)]
struct Mark {
    bytes: u64,
    transactions: u64,
}

impl Mark {
    fn of(counters: &Counters) -> Self {
        Self {
            bytes: counters.bytes(),
            transactions: counters.transactions(),
        }
    }
}

impl Running {
    /// Starts the data thread. A thread that sends without a request waits until [`Running::watch`].
    pub(super) fn start(prepared: Prepared, state: &ServerState) -> Result<Self, Errno> {
        let Prepared { facts, stage } = prepared;
        let inside = Inside::new(Arc::clone(&stage.fd))
            .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
        let inside = Arc::new(inside);
        let (go, begin) = mpsc::channel();
        let shared = Arc::clone(&inside);
        let host = Arc::clone(&state.host);
        let (cpu, units) = (facts.ask.cpu, facts.ask.length.amount());
        // All others only wait for the client, so they are ready when the client gets the response.
        let speaks_first = matches!(stage.engine, Engine::SendDatagrams(..));
        let body = move || {
            let done = catch_unwind(AssertUnwindSafe(|| {
                // netserver also continues if binding fails.
                let _ = cpu.map(|cpu| host.bind_cpu(cpu));
                match speaks_first && begin.recv().is_err() {
                    true => Done::default(),
                    false => work(stage, &shared, units),
                }
            }));
            shared.end();
            done.unwrap_or_else(|_| {
                let mut done = Done::default();
                done.tally.ended = Ended::Failed(io::Error::other("the data thread panicked"));
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
    pub(super) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.inside.counters)
    }

    /// Lets the data thread begin, and watches until the test is over. Call it after the response is sent.
    pub(super) fn watch(self, control: &mut Control, state: &ServerState) -> Result<Outcome, Gone> {
        let began = Instant::now();
        let rules = Rules::of(&self.facts);
        let read_cpu = || self.measures_cpu.then(|| state.host.cpu_times()).flatten();
        let mut cpu_before = read_cpu();
        let _ = self.go.send(());
        let inside = &self.inside;
        let mut movement = Movement { last: 0, at: began };
        let mut first = None;
        let mut omitted: Option<Mark> = None;
        let end = loop {
            if inside.has_ended() {
                break End::Own;
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
                omitted = Some(Mark::of(&inside.counters));
                cpu_before = read_cpu();
            }
            movement.look(&inside.counters, now);
            if rules.is_time(start, began, now, state) {
                break End::Time;
            }
            if rules.is_quiet(start, &movement, &inside.counters, now) {
                break End::Quiet;
            }
            let wake = rules.wake(start, began, omitted.is_some(), now, state);
            match control.wait(Some(inside.waker.as_fd()), wake) {
                Event::Woken => inside.waker.clear(),
                Event::Deadline => {}
                Event::Message(message) => match Request::parse(&message) {
                    Ok(Request::End) => {
                        self.let_late_data_come();
                        break End::Told;
                    }
                    // No messages are allowed during a test.
                    _ => {
                        self.abandon();
                        return Err(Gone);
                    }
                },
                Event::Closed | Event::Broken => {
                    self.abandon();
                    return Err(Gone);
                }
            }
        };
        if end != End::Own && !inside.stop.stop_and_wait(STOP_TIMEOUT) {
            return Err(Gone);
        }
        let cpu_after = read_cpu();
        let first = inside.first();
        let start = rules.start(first, began).unwrap_or(began);
        let mark = omitted.unwrap_or_else(|| {
            if rules.omit.is_zero() {
                Mark::default()
            } else {
                Mark::of(&inside.counters)
            }
        });
        let counted = Mark::of(&inside.counters);
        let bytes_after = counted.bytes.saturating_sub(mark.bytes);
        let transactions_after = counted.transactions.saturating_sub(mark.transactions);
        let Ok(done) = self.thread.join() else {
            return Err(Gone);
        };
        let ended = match end {
            End::Quiet => movement.at,
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
        if end == End::Time {
            elapsed = elapsed.saturating_sub(rules.padding);
        }
        let cpu = cpu_before
            .zip(cpu_after)
            .map(|(before, after)| scaled(&before, &after, measured, elapsed));
        let mut outcome = Outcome {
            facts: self.facts,
            done,
            elapsed,
            cpu,
            bytes_after,
            transactions_after,
            linger: None,
        };
        outcome.take_down(control, end)?;
        Ok(outcome)
    }

    /// Waits for data that the client sent before its end message and that is still in the kernel.
    fn let_late_data_come(&self) {
        if !matches!(self.facts.ask.work, Work::Receive { .. }) {
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
fn scaled(before: &CpuTimes, after: &CpuTimes, measured: Duration, elapsed: Duration) -> CpuUse {
    let mut cpu = cpu_use(before, after);
    if elapsed < measured && !elapsed.is_zero() {
        let factor = measured.as_secs_f64() / elapsed.as_secs_f64();
        for share in cpu.shares_mut() {
            *share *= factor;
        }
    }
    clamped(cpu).0
}

impl Outcome {
    /// Error number for the client if the test failed.
    pub(super) fn failure(&self) -> Option<Errno> {
        let error = self.done.tally.failure()?;
        let number = crate::errno(error).unwrap_or(libc::EIO);
        let is_reset = matches!(number, libc::ECONNRESET | libc::EPIPE | libc::ECONNREFUSED);
        match self.facts.ask.work {
            // A receiver may close early.
            Work::Send if is_reset => None,
            Work::Exchange { .. } if is_reset && self.done.tally.transactions > 0 => None,
            _ => Some(number),
        }
    }

    /// Closes the data connection as the client expects.
    fn take_down(&mut self, control: &Control, end: End) -> Result<(), Gone> {
        let Some(connection) = self.done.connection.take() else {
            return Ok(());
        };
        match (self.facts.ask.work, self.facts.ask.talk) {
            // All sent data must arrive before the results do.
            (Work::Send, _) if end != End::Told => flush(control, &connection),
            (Work::Receive { .. }, Talk::Classic(ClassicKind::TcpStream)) => {
                let _ = rustix::net::shutdown(&connection, Shutdown::Write);
                self.linger = Some(connection);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Ends a sent stream and waits until the client has read all of it and closed its side.
fn flush(control: &Control, connection: &OwnedFd) -> Result<(), Gone> {
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
