//! Options of socket tests that netperf does not have.

use clap::{Args, ValueEnum};
use wb_model::{
    socket::{NUMBERED_BYTES, ReceiveBy, SendBy, SocketJob, SocketProtocol, SocketTest},
    units::Span,
};

/// What netperf's own options cannot say. They stand before netperf's.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Beyond netperf")]
pub(crate) struct SocketArgs {
    /// Streams both ways at once.
    #[arg(long, conflicts_with = "reverse")]
    bidir: bool,
    /// The stream comes from the server.
    #[arg(long)]
    reverse: bool,
    /// Leave this time after the start out of all figures.
    #[arg(long, value_name = "TIME")]
    omit: Option<Span>,
    /// Requests or datagrams per second of each stream, on a fixed schedule; latency counts from when
    /// they were due. Requests by datagram carry a number then: 8 bytes each way unless -r says more.
    #[arg(long, value_name = "N", value_parser = wb_model::units::parse_count)]
    rate: Option<u64>,
    /// Bits per second that TCP or UDP may send at most, each stream (SO_MAX_PACING_RATE): 100m, or
    /// LOCAL,REMOTE.
    #[arg(long, value_name = "RATE")]
    pacing: Option<Pair>,
    /// How data leaves: copy, write, sendfile, msg (MSG_ZEROCOPY), uring (registered buffers, zero copy).
    #[arg(long, value_name = "HOW")]
    zerocopy: Option<SendHow>,
    /// How data is taken at this end: copy, splice, discard (the kernel drops it, uncopied).
    #[arg(long, value_name = "HOW")]
    receive: Option<ReceiveHow>,
    /// Hand over this many datagrams at a time (sendmmsg).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    batch: Option<u32>,
    /// Hand over this many datagrams as one, which the kernel or the NIC cuts (UDP_SEGMENT).
    #[arg(long, value_name = "N", conflicts_with = "batch", value_parser = clap::value_parser!(u32).range(1..=128))]
    gso: Option<u32>,
    /// Take several datagrams as one (UDP_GRO), at both ends.
    #[arg(long)]
    gro: bool,
    /// Look for what comes without sleeping; a CPU is busy all the time at each end.
    #[arg(long)]
    busy_poll: bool,
    /// Multipath TCP (RFC 8684).
    #[arg(long)]
    mptcp: bool,
    /// Numbers and times in datagrams: loss, order, one-way delay, jitter. Needs our server.
    #[arg(long)]
    track: bool,
    /// Keep the time of each operation: percentiles in the report.
    #[arg(long)]
    latency: bool,
    /// Streams that load the path while requests are timed; first without them, then with them.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=512))]
    load_streams: Option<u32>,
    /// CPUs of the threads here, or LOCAL,REMOTE.
    #[arg(long, value_name = "CPU")]
    cpu: Option<Pair>,
    /// The time of the first connection's set-up does not count.
    #[arg(long)]
    exclude_connect: bool,
    /// Ask for nothing that only our own server can do.
    #[arg(long)]
    as_netperf: bool,
}

/// One value, or one for each end.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ReceiveHow {
    Copy,
    Splice,
    Discard,
}

/// Bits per second: `100m`, `100mbps`, `1g`.
fn bits(option: &str, text: &str) -> anyhow::Result<u64> {
    let number = text
        .to_ascii_lowercase()
        .trim_end_matches("bps")
        .trim_end_matches("bit")
        .to_owned();
    wb_model::units::parse_count(&number)
        .map_err(|_| anyhow::anyhow!("{option}: {text:?} is no rate in bits per second: 100m, 1g"))
}

fn cpu(text: &str) -> anyhow::Result<u32> {
    text.parse()
        .map_err(|_| anyhow::anyhow!("--cpu: {text:?} is no number of a CPU"))
}

impl SocketArgs {
    /// Whether nothing was asked for.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        let mut job = SocketJob::default();
        self.apply(&mut job).is_ok() && job == SocketJob::default()
    }

    /// Puts what was typed into a job.
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
        if let Some(omit) = self.omit {
            job.omit = omit;
        }
        if let Some(rate) = self.rate {
            // Rates above 2^53 do not occur.
            job.rate = Some(rate as f64);
            // Requests that follow before the response has come would wait for it (RFC 1122 4.2.3.4).
            job.options.no_delay |= job.test == SocketTest::Rr;
            if job.test == SocketTest::Rr
                && job.protocol.is_datagram()
                && (job.request_size, job.response_size) == (1, 1)
            {
                // Room for a number, by which an answer finds its request.
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
        if let Some(how) = self.receive {
            job.local.receive_by = match how {
                ReceiveHow::Copy => ReceiveBy::Copy,
                ReceiveHow::Splice => ReceiveBy::Splice,
                ReceiveHow::Discard => ReceiveBy::Discard,
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
        job.busy_poll |= self.busy_poll;
        job.tagged |= self.track;
        job.latency |= self.latency || self.rate.is_some() && job.test == SocketTest::Rr;
        job.options.exclude_connect |= self.exclude_connect;
        job.control.plain |= self.as_netperf;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

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
