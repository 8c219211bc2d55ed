//! Transactions that use one connection each.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use wb_model::socket::SocketJob;

use super::{ports::PortWalk, role::StreamRole};
use crate::{
    flow::{LoopContext, LoopEnd, LoopTally, Requester, TimeRecorder, drain, shut_down_and_drain},
    host::endpoint,
    open::{EffectiveSettings, SocketPlan, connect, effective_settings, errno, open},
    stop::Stopper,
};

/// Longest search for a free port when the whole range is in use. Connections in TIME_WAIT release their port after a
/// minute, but a test that waited for them would measure TIME_WAIT.
const LOOKING: Duration = Duration::from_secs(5);

/// State shared by all connections of a stream.
#[derive(Debug)]
pub(super) struct ConnectLoop<'a> {
    pub(super) job: &'a SocketJob,
    pub(super) role: StreamRole,
    pub(super) from: IpAddr,
    /// Scope of link-local addresses.
    pub(super) scope: u32,
    pub(super) to: SocketAddr,
    pub(super) walk: PortWalk,
    /// Number of transactions that ends the test, if set.
    pub(super) limit: Option<u64>,
    /// The server closes each connection; otherwise this end does.
    pub(super) server_closes: bool,
}

/// A local socket bound to a port.
#[derive(Debug)]
pub(super) struct BoundSocket {
    pub(super) fd: OwnedFd,
    pub(super) send_buffer: u32,
    pub(super) receive_buffer: u32,
    pub(super) warnings: Vec<String>,
}

/// Returns true if the port is in use, so that another one may work.
fn is_taken(error: &io::Error) -> bool {
    matches!(errno(error), Some(libc::EADDRINUSE | libc::EADDRNOTAVAIL))
}

impl ConnectLoop<'_> {
    /// Binds a socket to the next free port.
    pub(super) fn bind_next(&mut self) -> io::Result<BoundSocket> {
        let mut last = io::Error::from_raw_os_error(libc::EADDRINUSE);
        for _ in 0..self.walk.len() {
            let bind = endpoint(self.from, self.walk.next_port(), self.scope);
            let opened = open(&SocketPlan {
                bind: Some(bind),
                ipv6: self.to.is_ipv6(),
                protocol: self.job.protocol,
                socket_type: self.job.socket_type,
                side: &self.job.local,
                options: &self.job.options,
                server: false,
                join: None,
                only_from: &[],
                speaks_first: self.role.speaks_first(),
                busy_poll: self.job.busy_poll,
            });
            match opened {
                Ok(opened) => {
                    return Ok(BoundSocket {
                        fd: opened.fd,
                        send_buffer: opened.send_buffer,
                        receive_buffer: opened.receive_buffer,
                        warnings: opened.warnings,
                    });
                }
                Err(error) if is_taken(&error) => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// Runs transactions until stopped, the limit is reached or one fails. `bound` is the socket of the first
    /// connection. Also returns the settings in effect on the last connection.
    pub(super) fn run(
        &mut self,
        bound: OwnedFd,
        mut requester: Option<&mut Requester>,
        run: &mut LoopContext<'_>,
    ) -> (LoopTally, Option<EffectiveSettings>) {
        let mut tally = LoopTally::default();
        let mut last = None;
        let mut bound = Some(bound);
        let bytes = match self.role {
            StreamRole::Crr => (self.job.request_size.into(), self.job.response_size.into()),
            _ => (0_u64, 0_u64),
        };
        while !run.stop.is_stopped() && self.limit.is_none_or(|limit| tally.transactions < limit) {
            let began = Instant::now();
            match self.run_transaction(bound.take(), requester.as_deref_mut(), run, &mut last) {
                Ok(()) => {}
                Err(ended) => {
                    tally.ended = ended;
                    return (tally, last);
                }
            }
            record_connect(run.recorder.as_deref_mut(), began);
            tally.transactions += 1;
            tally.bytes_sent += bytes.0;
            tally.bytes_received += bytes.1;
            tally.send_calls += u64::from(bytes.0 > 0);
            tally.receive_calls += u64::from(bytes.1 > 0);
            run.counters.add_all(1, bytes.0 + bytes.1, 1);
        }
        if !run.stop.is_stopped() {
            tally.ended = LoopEnd::Limit;
        }
        (tally, last)
    }

    fn run_transaction(
        &mut self,
        bound: Option<OwnedFd>,
        requester: Option<&mut Requester>,
        run: &mut LoopContext<'_>,
        last: &mut Option<EffectiveSettings>,
    ) -> Result<(), LoopEnd> {
        let fd = self.connect_next(bound, run.stop)?;
        if last.is_none() {
            *last = Some(effective_settings(fd.as_fd()));
        }
        if let Some(requester) = requester {
            requester.exchange_once(fd.as_fd(), run)?;
        }
        self.end_connection(fd.as_fd(), run.stop)
            .map_err(|error| loop_end(error, run.stop))
    }

    /// Connects from the next usable port.
    fn connect_next(
        &mut self,
        mut bound: Option<OwnedFd>,
        stop: &Stopper,
    ) -> Result<OwnedFd, LoopEnd> {
        let until = Instant::now() + LOOKING;
        loop {
            let fd = match bound.take() {
                Some(fd) => fd,
                None => match self.bind_next() {
                    Ok(bound) => bound.fd,
                    // The whole range is in use at this moment.
                    Err(error) if is_taken(&error) && Instant::now() < until => {
                        if stop.is_stopped() {
                            return Err(LoopEnd::Stopped);
                        }
                        std::thread::sleep(Duration::from_millis(1));
                        continue;
                    }
                    Err(error) => return Err(LoopEnd::Failed(error)),
                },
            };
            match connect(fd.as_fd(), self.to, stop) {
                Ok(()) => return Ok(fd),
                Err(error) => {
                    let again = is_taken(&error) || self.job.options.retry_connect;
                    if !again || stop.is_stopped() || Instant::now() >= until {
                        return Err(loop_end(error, stop));
                    }
                    if !is_taken(&error) {
                        // Do not retry a refusing server as fast as it can refuse.
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            }
        }
    }

    fn end_connection(&self, fd: BorrowedFd<'_>, stop: &Stopper) -> io::Result<()> {
        let rest = if self.server_closes {
            drain(fd, stop)
        } else {
            shut_down_and_drain(fd, stop)
        };
        rest.map(drop)
    }
}

fn record_connect(recorder: Option<&mut TimeRecorder>, began: Instant) {
    if let Some(recorder) = recorder {
        recorder.record(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
}

/// Maps an error to the reason a loop ended; a stopped loop is not an error.
pub(super) fn loop_end(error: io::Error, stop: &Stopper) -> LoopEnd {
    if stop.is_stopped() {
        LoopEnd::Stopped
    } else {
        LoopEnd::Failed(error)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::TcpListener,
        sync::atomic::{AtomicU16, Ordering},
    };

    use wb_model::units::PortRange;

    use super::*;
    use crate::flow::LoopCounters;

    fn free_range(length: u16) -> PortRange {
        // Consecutive free ports below the kernel's ephemeral range; each test gets a separate range.
        static NEXT: AtomicU16 = AtomicU16::new(20_000);
        loop {
            let first = NEXT.fetch_add(length, Ordering::Relaxed);
            assert!(first < 30_000, "no free ports in a row");
            let range = PortRange {
                first,
                last: first + length - 1,
            };
            if (range.first..=range.last).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok())
            {
                return range;
            }
        }
    }

    #[test]
    fn ports_that_are_taken_are_passed_over() {
        let range = free_range(4);
        let taken = TcpListener::bind(("127.0.0.1", range.first + 1)).unwrap();
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = server.local_addr().unwrap();
        let clients = std::thread::spawn(move || {
            let mut ports = Vec::new();
            for _ in 0..5 {
                let (stream, peer) = server.accept().unwrap();
                ports.push(peer.port());
                drop(stream);
            }
            ports
        });
        let job = SocketJob::default();
        let mut connects = ConnectLoop {
            job: &job,
            role: StreamRole::Cc,
            from: "127.0.0.1".parse().unwrap(),
            scope: 0,
            to,
            // Starts at the port that is in use.
            walk: PortWalk::new(range, 1),
            limit: Some(5),
            server_closes: true,
        };
        let (stop, counters) = (Stopper::new(), LoopCounters::default());
        let mut recorder = TimeRecorder::new(false);
        let mut run = LoopContext {
            stop: &stop,
            counters: &counters,
            recorder: Some(&mut recorder),
        };
        let bound = connects.bind_next().unwrap();
        let (tally, last) = connects.run(bound.fd, None, &mut run);
        assert!(matches!(tally.ended, LoopEnd::Limit), "{:?}", tally.ended);
        assert_eq!((tally.transactions, counters.transactions()), (5, 5));
        assert_eq!(recorder.histogram().count(), 5);
        assert!(last.unwrap().segment.is_some());
        let free = [2, 3, 0].map(|offset| range.first + offset);
        let ports = clients.join().unwrap();
        // The first follows the last.
        assert_eq!(ports[..3], free);
        // The kernel may not have released them yet.
        assert!(
            ports[3..].iter().all(|port| free.contains(port)),
            "{ports:?}"
        );
        drop(taken);
    }

    #[test]
    fn a_closed_port_is_a_failure_and_counts_nothing() {
        let gone = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = gone.local_addr().unwrap();
        drop(gone);
        let job = SocketJob::default();
        let mut connects = ConnectLoop {
            job: &job,
            role: StreamRole::Cc,
            from: "127.0.0.1".parse().unwrap(),
            scope: 0,
            to,
            walk: PortWalk::new(super::super::ports::USUAL, 77),
            limit: None,
            server_closes: true,
        };
        let (stop, counters) = (Stopper::new(), LoopCounters::default());
        let mut run = LoopContext {
            stop: &stop,
            counters: &counters,
            recorder: None,
        };
        let bound = connects.bind_next().unwrap();
        let (tally, _) = connects.run(bound.fd, None, &mut run);
        let errno = tally.failure().and_then(errno);
        assert_eq!((errno, tally.transactions), (Some(libc::ECONNREFUSED), 0));
    }
}
