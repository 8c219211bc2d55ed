//! Options of socket tests that netperf does not have.

use clap::{Args, ValueEnum};
use wb_model::{
    socket::{NUMBERED_BYTES, SendBy, SocketJob, SocketProtocol, SocketTest},
    units::{ParseUnitError, parse_count},
};
use wb_options::{Opt, Typed, options};

use super::count_in;

/// Options that netperf does not have. They precede netperf's own options.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Beyond netperf")]
pub(crate) struct SocketArgs {
    /// Send in both directions at once.
    #[arg(long, conflicts_with = "reverse")]
    bidir: bool,
    /// Send from the server to this end.
    #[arg(long)]
    reverse: bool,
    /// Requests or datagrams per second of each stream, sent on a fixed schedule; latency counts from the scheduled
    /// time. Datagram requests then carry a number: 8 bytes in each direction unless requests and responses are larger.
    #[arg(long, value_name = "N", value_parser = count_in::<u64>(0..))]
    rate: Option<u64>,
    /// Maximum bits per second of each TCP or UDP stream (SO_MAX_PACING_RATE): 100m, or LOCAL,REMOTE.
    #[arg(long, value_name = "BITS")]
    pacing: Option<Pair>,
    /// Send method: copy, write, sendfile, msg (MSG_ZEROCOPY) or uring (registered buffers, zero copy).
    #[arg(long, value_name = "HOW")]
    zerocopy: Option<SendHow>,
    /// Number of datagrams per system call (sendmmsg).
    #[arg(long, value_name = "N", value_parser = count_in::<u32>(1..=1024))]
    batch: Option<u32>,
    /// Number of datagrams handed over as one, which the kernel or the NIC splits (UDP_SEGMENT).
    #[arg(long, value_name = "N", conflicts_with = "batch", value_parser = count_in::<u32>(1..=128))]
    gso: Option<u32>,
    /// Receive several datagrams as one (UDP_GRO), at both ends.
    #[arg(long)]
    gro: bool,
    /// Use Multipath TCP (RFC 8684).
    #[arg(long)]
    mptcp: bool,
    /// Number of streams that load the path while requests are timed, first without and then with load.
    #[arg(long, value_name = "N", value_parser = count_in::<u32>(1..=512))]
    load_streams: Option<u32>,
    /// CPUs of the threads at this end, or LOCAL,REMOTE.
    #[arg(long, value_name = "CPU")]
    cpu: Option<Pair>,
    #[command(flatten)]
    direct: Typed<Direct>,
}

options! {
    /// Options that are fields of the job.
    Direct: SocketJob = SocketJob::default(), "Beyond netperf", [
        Opt::new("omit", "TIME"),
        Opt::new("receive", "HOW").key("local.receive_by").of("This end"),
        Opt::flag("busy-poll"),
        Opt::flag("track").key("tagged"),
        Opt::flag("latency"),
        Opt::flag("exclude-connect").key("options.exclude_connect"),
        Opt::flag("as-netperf").key("control.plain"),
    ]
}

/// One value for this end, or one value for each end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) local: Option<String>,
    pub(crate) remote: Option<String>,
}

impl std::str::FromStr for Pair {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let some = |t: &str| (!t.is_empty()).then(|| t.to_owned());
        Ok(match text.split_once(',') {
            Some((local, remote)) => Self {
                local: some(local),
                remote: some(remote),
            },
            None => Self {
                local: some(text),
                remote: None,
            },
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SendHow {
    #[value(alias = "none")]
    Copy,
    Write,
    Sendfile,
    Msg,
    Uring,
}

/// Parses bits per second: `100m`, `100mbps`, `1g`.
fn bits(option: &str, text: &str) -> anyhow::Result<u64> {
    let number = text
        .to_ascii_lowercase()
        .trim_end_matches("bps")
        .trim_end_matches("bit")
        .to_owned();
    parse_count(&number).map_err(|error| match error {
        ParseUnitError::TooLarge { .. } => anyhow::anyhow!("{option}: {error}"),
        ParseUnitError::Form { .. } => {
            anyhow::anyhow!("{option}: expected bits per second such as 100m or 1g, got {text:?}")
        }
    })
}

fn cpu(text: &str) -> anyhow::Result<u32> {
    text.parse()
        .map_err(|_| anyhow::anyhow!("--cpu: expected a CPU number, got {text:?}"))
}

impl SocketArgs {
    /// Returns true if no option was given.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        let mut job = SocketJob::default();
        self.apply(&mut job).is_ok() && job == SocketJob::default()
    }

    /// Applies the options to a job.
    pub(crate) fn apply(&self, job: &mut SocketJob) -> anyhow::Result<()> {
        let stream = matches!(job.test, SocketTest::Send | SocketTest::Receive);
        if (self.bidir || self.reverse) && !stream {
            anyhow::bail!("--bidir and --reverse are for streams");
        }
        if self.bidir {
            job.test = SocketTest::Both;
        } else if self.reverse {
            job.test = match job.test {
                SocketTest::Send => SocketTest::Receive,
                _ => SocketTest::Send,
            };
        }
        *job = self.direct.over(job);
        if let Some(rate) = self.rate {
            // Rates above 2^53 do not occur.
            job.rate = Some(rate as f64);
            // Without it, a request sent before the previous response would be delayed (RFC 1122, 4.2.3.4).
            job.options.no_delay |= job.test == SocketTest::Rr;
            if job.test == SocketTest::Rr
                && job.protocol.is_datagram()
                && (job.request_size, job.response_size) == (1, 1)
            {
                // The number matches a response to its request.
                (job.request_size, job.response_size) = (NUMBERED_BYTES, NUMBERED_BYTES);
            }
        }
        if let Some(pair) = &self.pacing {
            let rate = |t: &Option<String>| t.as_deref().map(|t| bits("--pacing", t)).transpose();
            job.local.pacing_bps = rate(&pair.local)?.or(job.local.pacing_bps);
            job.remote.pacing_bps = rate(&pair.remote)?.or(job.remote.pacing_bps);
        }
        if let Some(how) = self.zerocopy {
            job.local.send_by = match how {
                SendHow::Copy => SendBy::Copy,
                SendHow::Write => SendBy::Write,
                SendHow::Sendfile => SendBy::Sendfile,
                SendHow::Msg => SendBy::Zerocopy,
                SendHow::Uring => SendBy::Uring,
            };
        }
        if let Some(batch) = self.batch.or(self.gso) {
            job.local.batch = batch;
            job.local.gso = self.gso.is_some();
        }
        if self.gro {
            job.local.gro = true;
            job.remote.gro = true;
        }
        if self.mptcp {
            if job.protocol != SocketProtocol::Tcp {
                anyhow::bail!("--mptcp is for TCP");
            }
            job.protocol = SocketProtocol::Mptcp;
        }
        if let Some(streams) = self.load_streams {
            job.load_streams = streams;
            job.latency = true;
        }
        if let Some(pair) = &self.cpu {
            let number = |t: &Option<String>| t.as_deref().map(cpu).transpose();
            job.local.cpu = number(&pair.local)?.or(job.local.cpu);
            job.remote.cpu = number(&pair.remote)?.or(job.remote.cpu);
        }
        job.latency |= self.rate.is_some() && job.test == SocketTest::Rr;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use wb_model::{socket::ReceiveBy, units::Span};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        socket: SocketArgs,
    }

    fn typed(words: &str) -> SocketArgs {
        let words = std::iter::once("x").chain(words.split_whitespace());
        Line::try_parse_from(words).unwrap().socket
    }

    fn job(words: &str) -> anyhow::Result<SocketJob> {
        let mut job = SocketJob::default();
        typed(words).apply(&mut job).map(|()| job)
    }

    #[test]
    fn pairs_are_for_both_ends() {
        assert!(typed("").is_empty());
        let pair = job("--pacing 100mbps,1g --cpu 1").unwrap();
        assert_eq!(pair.local.pacing_bps, Some(100_000_000));
        assert_eq!(pair.remote.pacing_bps, Some(1_000_000_000));
        assert_eq!((pair.local.cpu, pair.remote.cpu), (Some(1), None));
        assert!(
            job("--pacing fast")
                .unwrap_err()
                .to_string()
                .contains("--pacing")
        );
        assert!(job("--cpu x").is_err());
    }

    #[test]
    fn directions() {
        assert_eq!(job("--reverse").unwrap().test, SocketTest::Receive);
        assert_eq!(job("--bidir").unwrap().test, SocketTest::Both);
        let mut rr = SocketJob {
            test: SocketTest::Rr,
            ..SocketJob::default()
        };
        assert!(typed("--bidir").apply(&mut rr).is_err());
    }

    #[test]
    fn the_rest_lands_where_it_belongs() {
        let job =
            job("--omit 1s --zerocopy msg --receive splice --gro --busy-poll --mptcp --as-netperf")
                .unwrap();
        assert_eq!(job.omit, Span::from_secs(1));
        assert_eq!(job.local.send_by, SendBy::Zerocopy);
        assert_eq!(job.local.receive_by, ReceiveBy::Splice);
        assert!(job.local.gro && job.remote.gro && job.busy_poll && job.control.plain);
        assert_eq!(job.protocol, SocketProtocol::Mptcp);
        let gso = super::tests::job("--gso 16").unwrap();
        assert!(gso.local.gso && gso.local.batch == 16);
    }
}
