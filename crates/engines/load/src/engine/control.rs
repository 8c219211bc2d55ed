//! Changes rates while a load runs, over a local socket: one command line in, one line of JSON out.
//!
//! | line | does |
//! |---|---|
//! | `rate cps=20000 cc=5000` | sets what is named of cps, cc, rps, pps, bps, of all clients together; `off` takes a limit away |
//! | `show` | nothing |
//! | `stop` | ends the run in order, as a signal does |
//!
//! Each command returns the current counters, or `{"error": …}`.

use std::{
    io::{ErrorKind, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::{
    fs::Mode,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType},
};

use wb_model::{
    Plan, Snapshot,
    load::{LoadEnd, LoadRate},
    units::parse_count,
};

use super::run::Loads;
use wb_open::StartError;

/// Time after which a caller without a complete line is disconnected.
const LINE_TIMEOUT: Duration = Duration::from_millis(500);
/// Longest accepted line in bytes.
const LONGEST: usize = 512;
/// Maximum number of callers with an unfinished line; other callers wait in the backlog.
const MOST: usize = 16;
/// Backlog of the listening socket.
const WAITING: i32 = 64;

/// The socket, removed at the end.
pub(super) struct ControlPoint {
    callers: Callers,
    path: PathBuf,
    /// Rates that were set last for each client job, in place of the plan's rates.
    set: Option<Vec<LoadRate>>,
    stopped: bool,
}

impl Drop for ControlPoint {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl ControlPoint {
    pub(super) fn open(path: &Path) -> Result<Self, StartError> {
        let refused = |cause: std::io::Error| {
            StartError::stream(
                format!("--control {}", path.display()),
                format!("cannot listen: {}", wb_machine::cause_text(&cause)),
            )
        };
        if UnixStream::connect(path).is_ok() {
            return Err(refused(ErrorKind::AddrInUse.into()));
        }
        // Remove the socket file of a killed run.
        if std::fs::symlink_metadata(path).is_ok_and(|m| {
            use std::os::unix::fs::FileTypeExt;
            m.file_type().is_socket()
        }) {
            let _ = std::fs::remove_file(path);
        }
        let listener = listen(path).map_err(|e| refused(e.into()))?;
        Ok(Self {
            callers: Callers {
                listener,
                open: Vec::new(),
            },
            path: path.to_owned(),
            set: None,
            stopped: false,
        })
    }

    /// Returns true if a caller ended the run.
    pub(super) const fn said_stop(&self) -> bool {
        self.stopped
    }

    /// Descriptors for new callers and for their lines.
    pub(super) fn request_fds(&self) -> Vec<BorrowedFd<'_>> {
        let listener = Some(self.callers.listener.as_fd());
        let listener = listener.filter(|_| self.callers.open.len() < MOST);
        let open = self.callers.open.iter().map(|caller| caller.stream.as_fd());
        listener.into_iter().chain(open).collect()
    }

    /// Answers one caller with a complete line, if any, without waiting. Returns true if the run must end.
    pub(super) fn serve(&mut self, run: &Loads, look: impl Fn() -> Snapshot) -> bool {
        let Some((mut caller, line)) = self.callers.next_line(Instant::now()) else {
            return false;
        };
        let result = self.obey(line.trim(), run);
        let answer = match &result {
            Ok(_) => serde_json::to_string(&look()).unwrap_or_default(),
            Err(text) => serde_json::json!({ "error": text }).to_string(),
        };
        // The answer fits the socket's buffer or is lost: a caller that does not read blocks nothing.
        let _ = caller.write_all(format!("{answer}\n").as_bytes());
        let stop = result.unwrap_or(false);
        self.stopped |= stop;
        stop
    }

    fn obey(&mut self, line: &str, run: &Loads) -> Result<bool, String> {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("show") => Ok(false),
            Some("stop") => Ok(true),
            Some("rate") => {
                let jobs: Vec<usize> = (0..run.jobs.len())
                    .filter(|job| run.plan.loads[*job].end == LoadEnd::Client)
                    .collect();
                let planned = || jobs.iter().map(|job| run.plan.loads[*job].rate).collect();
                let mut rates: Vec<LoadRate> = self.set.clone().unwrap_or_else(planned);
                if jobs.is_empty() {
                    return Err("this run has no client".to_owned());
                }
                for word in words {
                    let (key, value) = setting(word)?;
                    let shares = client_shares(&run.plan, value);
                    for (rate, value) in rates.iter_mut().zip(shares) {
                        *key(rate) = value;
                    }
                }
                for (job, rate) in jobs.iter().zip(&rates) {
                    run.jobs[*job].control.set_rate(rate);
                }
                self.set = Some(rates);
                Ok(false)
            }
            _ => Err(format!(
                "unknown command {line:?}; expected rate KEY=NUMBER …, show or stop"
            )),
        }
    }
}

type Key = fn(&mut LoadRate) -> &mut Option<u64>;

/// Parses `cps=20k` into a key and a value.
fn setting(word: &str) -> Result<(Key, Option<u64>), String> {
    let wrong = || {
        format!(
            "rate: expected KEY=NUMBER or KEY=off (KEY: cps, cc, rps, pps, bps; cps and rps also max), got {word:?}"
        )
    };
    let (key, value) = word.split_once('=').ok_or_else(wrong)?;
    let takes_max = matches!(key, "cps" | "rps");
    let key: Key = match key {
        "cps" => |rate| &mut rate.cps,
        "cc" => |rate| &mut rate.cc,
        "rps" => |rate| &mut rate.rps,
        "pps" => |rate| &mut rate.pps,
        "bps" => |rate| &mut rate.bps,
        _ => return Err(wrong()),
    };
    let value = match value {
        "off" => None,
        "max" if takes_max => Some(LoadRate::MAX),
        text => Some(parse_count(text).map_err(|_| wrong())?),
    };
    Ok((key, value))
}

/// Splits a rate of all clients of a plan into shares of its client jobs, in their order, by the workers of their
/// ports. The sum of the shares is `rate`.
#[must_use]
pub fn client_shares(plan: &Plan, rate: Option<u64>) -> Vec<Option<u64>> {
    let workers: Vec<u64> = plan
        .loads
        .iter()
        .filter(|job| job.end == LoadEnd::Client)
        .map(|job| {
            let port = plan.ports.iter().find(|p| p.name == job.port);
            port.map_or(1, |p| u64::from(p.workers.max(1)))
        })
        .collect();
    let all = u128::from(workers.iter().sum::<u64>().max(1));
    let mut before = 0;
    let mut shares = Vec::new();
    for own in workers {
        let up_to = |n: u64, rate: u64| (u128::from(rate) * u128::from(n) / all) as u64;
        shares.push(rate.map(|rate| match rate {
            LoadRate::MAX => rate,
            rate => up_to(before + own, rate) - up_to(before, rate),
        }));
        before += own;
    }
    shares
}

/// Listens on a socket at `path` that only this user, and root, can connect to.
fn listen(path: &Path) -> rustix::io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Set before the socket has a name: the file gets the permissions of the socket.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, WAITING)?;
    Ok(socket.into())
}

/// Callers that have not finished a line.
struct Callers {
    listener: UnixListener,
    open: Vec<Caller>,
}

struct Caller {
    stream: UnixStream,
    received: Vec<u8>,
    since: Instant,
}

/// Result of reading from a caller.
enum ReceivedLine {
    Line(String),
    Nothing,
    TooMuch,
}

impl Callers {
    /// Returns a caller with a complete line, and the line. Never waits.
    fn next_line(&mut self, now: Instant) -> Option<(UnixStream, String)> {
        while self.open.len() < MOST
            && let Ok((stream, _)) = self.listener.accept()
        {
            if stream.set_nonblocking(true).is_ok() {
                self.open.push(Caller {
                    stream,
                    received: Vec::new(),
                    since: now,
                });
            }
        }
        self.open
            .retain(|caller| now.saturating_duration_since(caller.since) < LINE_TIMEOUT);
        let mut at = 0;
        while at < self.open.len() {
            match self.open[at].read() {
                ReceivedLine::Line(line) => return Some((self.open.swap_remove(at).stream, line)),
                ReceivedLine::TooMuch => drop(self.open.swap_remove(at)),
                ReceivedLine::Nothing => at += 1,
            }
        }
        None
    }
}

impl Caller {
    fn read(&mut self) -> ReceivedLine {
        let mut bytes = [0; LONGEST];
        let room = LONGEST - self.received.len();
        let ended = match self.stream.read(&mut bytes[..room]) {
            Ok(0) => true,
            Ok(n) => {
                self.received.extend_from_slice(&bytes[..n]);
                false
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => false,
            Err(_) => return ReceivedLine::TooMuch,
        };
        let end = self.received.iter().position(|b| *b == b'\n');
        match end.or(ended.then_some(self.received.len())) {
            Some(0) if ended => ReceivedLine::TooMuch,
            Some(end) => {
                ReceivedLine::Line(String::from_utf8_lossy(&self.received[..end]).into_owned())
            }
            None if self.received.len() == LONGEST => ReceivedLine::TooMuch,
            None => ReceivedLine::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use wb_model::{PortPlan, load::LoadJob};

    use super::*;

    #[test]
    fn rates_are_set_one_by_one() {
        let mut rate = LoadRate {
            cps: Some(5),
            cc: Some(7),
            ..LoadRate::default()
        };
        for word in ["cps=1.5k", "cc=off", "rps=3"] {
            let (key, value) = setting(word).unwrap();
            *key(&mut rate) = value;
        }
        assert_eq!((rate.cps, rate.cc, rate.rps), (Some(1500), None, Some(3)));
        for wrong in ["cps", "cps=", "cps=x", "speed=3", "cps=-1", "cps=0.5"] {
            assert!(setting(wrong).is_err(), "{wrong}");
        }
    }

    fn callers(path: &Path) -> Callers {
        Callers {
            listener: listen(path).unwrap(),
            open: Vec::new(),
        }
    }

    #[test]
    fn the_socket_is_this_users_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ctl");
        let _callers = callers(&path);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_slow_caller_holds_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ctl");
        let mut callers = callers(&path);
        let now = Instant::now();
        assert!(callers.next_line(now).is_none());
        let mut slow = UnixStream::connect(&path).unwrap();
        slow.write_all(b"sh").unwrap();
        assert!(callers.next_line(now).is_none());
        let mut quick = UnixStream::connect(&path).unwrap();
        quick.write_all(b"show\nmore").unwrap();
        assert_eq!(callers.next_line(now).unwrap().1, "show");
        slow.write_all(b"ow\n").unwrap();
        assert_eq!(callers.next_line(now).unwrap().1, "show");

        // Callers that are too slow or send too much are disconnected.
        let mut slow = UnixStream::connect(&path).unwrap();
        slow.write_all(b"s").unwrap();
        assert!(callers.next_line(now).is_none());
        assert_eq!(callers.open.len(), 1);
        assert!(callers.next_line(now + LINE_TIMEOUT).is_none());
        assert_eq!(callers.open.len(), 0);
        let mut endless = UnixStream::connect(&path).unwrap();
        endless.write_all(&[b'x'; LONGEST]).unwrap();
        assert!(callers.next_line(now).is_none());
        assert_eq!(callers.open.len(), 0);
        // The end of the stream replaces the line end.
        let mut brief = UnixStream::connect(&path).unwrap();
        brief.write_all(b"stop").unwrap();
        drop(brief);
        assert!(callers.next_line(now).is_none());
        assert_eq!(callers.next_line(now).unwrap().1, "stop");
    }

    #[test]
    fn clients_share_a_rate_by_their_workers() {
        let mut plan = Plan::default();
        for (name, end, workers) in [
            ("a", LoadEnd::Client, 1),
            ("b", LoadEnd::Server, 5),
            ("c", LoadEnd::Client, 2),
        ] {
            let locator = format!("memory:{name}").parse().unwrap();
            plan.ports.push(PortPlan {
                workers,
                ..PortPlan::new(name, locator)
            });
            plan.loads.push(LoadJob {
                port: name.to_owned(),
                end,
                ..LoadJob::default()
            });
        }
        assert_eq!(client_shares(&plan, Some(100)), [Some(33), Some(67)]);
        assert_eq!(client_shares(&plan, Some(u64::MAX)).len(), 2);
        assert_eq!(client_shares(&plan, None), [None, None]);
    }
}
