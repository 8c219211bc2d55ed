//! `wirebench sweep`: socket tests over parameter sets, each repeated until its mean is known.

use std::{path::PathBuf, str::FromStr};

use anyhow::{Context, Result, bail};
use clap::Args;
use wb_model::{
    Plan,
    socket::{Confidence, Family, SendBy, SocketJob, SocketProtocol, SocketTest},
    units::{ParseUnitError, Span, parse_count},
};

use crate::{
    args::{OutputArgs, SocketArgs, count_in},
    deliver::{Fault, check_writable, deliver_report, print},
    run::{carry_out, is_to_run},
};

mod picture;

/// Run socket tests over sets of parameters, with one table and one plot.
///
/// Each combination of the values is one test against a running netserver. With --zip, test N uses the N-th value of
/// every set.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    wirebench sweep -H 198.18.1.2 --message 2Ki,4Ki,8Ki,16Ki\n  \
    wirebench sweep -H 198.18.1.2 --local-buffer 2Ki,4Ki,8Ki,16Ki --plot buffers.svg\n  \
    wirebench sweep -H 198.18.1.2 --streams 1,2,3,4 --duration 60s --omit 1s\n  \
    wirebench sweep -H 198.18.1.2 --test tcp_rr --request 1,64,1Ki --confidence 95,5 --html rr.html\n  \
    wirebench sweep -H 198.18.1.2 --congestion cubic,reno --repeat 5 --csv")]
pub(crate) struct SweepArgs {
    /// Address of the netserver.
    #[arg(short = 'H', long, value_name = "HOST")]
    server: String,
    /// Port of the netserver's control connection.
    #[arg(short = 'p', long, value_name = "NUMBER", default_value_t = wb_model::socket::CONTROL_PORT)]
    control_port: u16,
    /// Use IPv4 only.
    #[arg(short = '4', conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use IPv6 only.
    #[arg(short = '6')]
    ipv6: bool,
    /// Passphrase of the server.
    #[arg(long, value_name = "TEXT")]
    passphrase: Option<String>,
    #[command(flatten)]
    sets: Sets,
    /// Combine the N-th values of all sets, instead of every value with every other.
    #[arg(long)]
    zip: bool,
    /// Duration of each test.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    duration: Span,
    /// Length of a warm-up run before each test, excluded from the results.
    #[arg(long, value_name = "TIME")]
    warm_up: Option<Span>,
    /// Repeat until the mean is known: LEVEL[,WIDTH]; 95 or 99 percent, and the width of the interval in percent of
    /// the mean [default width: 5].
    #[arg(long, value_name = "LEVEL,WIDTH")]
    confidence: Option<String>,
    /// Number of runs: N, or LEAST-MOST with --confidence [default: 3-10].
    #[arg(long, value_name = "N")]
    repeat: Option<String>,
    /// Measure the CPU utilisation of both ends.
    #[arg(long)]
    measure_cpu: bool,
    /// Set TCP_NODELAY, so that small segments are sent at once.
    #[arg(long)]
    no_delay: bool,
    /// Plot the results as SVG: FILE.svg.
    #[arg(long, value_name = "FILE")]
    plot: Vec<PathBuf>,
    /// Write a page with table and plots.
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
    #[command(flatten)]
    socket: SocketArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Parameters that may vary. Sizes accept Ki, Mi, k and m.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Sets, separated by commas")]
struct Sets {
    /// Tests, by netperf's names: tcp_stream, tcp_maerts, tcp_sendfile, tcp_rr, tcp_crr, tcp_cc, udp_stream, udp_rr,
    /// sctp_stream, sctp_rr [default: tcp_stream].
    #[arg(long, value_name = "SET", value_delimiter = ',')]
    test: Vec<Test>,
    /// Bytes per send of a stream [default: socket buffer size].
    #[arg(long, value_name = "SET", value_delimiter = ',')]
    message: Vec<Size>,
    /// Socket buffer sizes of this end, for both directions [default: system default].
    #[arg(long, value_name = "SET", value_delimiter = ',')]
    local_buffer: Vec<Size>,
    /// Socket buffer sizes of the server [default: system default].
    #[arg(long, value_name = "SET", value_delimiter = ',')]
    remote_buffer: Vec<Size>,
    /// Request sizes in bytes [default: 1].
    #[arg(long, value_name = "SET", value_delimiter = ',')]
    request: Vec<Size>,
    /// Response sizes in bytes [default: 1].
    #[arg(long, value_name = "SET", value_delimiter = ',')]
    response: Vec<Size>,
    /// Concurrent requests in addition to the first [default: 0].
    #[arg(long, value_name = "SET", value_delimiter = ',', value_parser = count_in::<u32>(0..))]
    burst: Vec<u32>,
    /// Number of parallel streams [default: 1].
    #[arg(long, value_name = "SET", value_delimiter = ',', value_parser = count_in::<u32>(0..))]
    streams: Vec<u32>,
    /// Congestion control of this end [default: system default].
    #[arg(long, value_name = "SET", value_delimiter = ',')]
    congestion: Vec<String>,
}

/// Number of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Size {
    bytes: u32,
    typed: String,
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let error =
            || format!("expected a number of bytes such as 2048, 2Ki, 64k or 1Mi, got {text:?}");
        let lower = text.trim().to_ascii_lowercase();
        let (number, scale) = match lower.strip_suffix("ki") {
            Some(number) => (number, 1 << 10),
            None => match lower.strip_suffix("mi") {
                Some(number) => (number, 1 << 20),
                None => (lower.as_str(), 1),
            },
        };
        let too_large = || format!("must be at most {} bytes, got {text:?}", u32::MAX);
        let number = parse_count(number).map_err(|e| match e {
            ParseUnitError::Form { .. } => error(),
            ParseUnitError::TooLarge { .. } => too_large(),
        })?;
        let bytes = number
            .checked_mul(scale)
            .and_then(|n| u32::try_from(n).ok())
            .ok_or_else(too_large)?;
        Ok(Self {
            bytes,
            typed: text.trim().to_owned(),
        })
    }
}

/// Test with netperf's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Test {
    name: &'static str,
    test: SocketTest,
    protocol: SocketProtocol,
    sendfile: bool,
}

const fn test(name: &'static str, test: SocketTest, protocol: SocketProtocol) -> Test {
    Test {
        name,
        test,
        protocol,
        sendfile: false,
    }
}

const TESTS: [Test; 10] = [
    test("TCP_STREAM", SocketTest::Send, SocketProtocol::Tcp),
    test("TCP_MAERTS", SocketTest::Receive, SocketProtocol::Tcp),
    Test {
        sendfile: true,
        ..test("TCP_SENDFILE", SocketTest::Send, SocketProtocol::Tcp)
    },
    test("TCP_RR", SocketTest::Rr, SocketProtocol::Tcp),
    test("TCP_CRR", SocketTest::Crr, SocketProtocol::Tcp),
    test("TCP_CC", SocketTest::Cc, SocketProtocol::Tcp),
    test("UDP_STREAM", SocketTest::Send, SocketProtocol::Udp),
    test("UDP_RR", SocketTest::Rr, SocketProtocol::Udp),
    test("SCTP_STREAM", SocketTest::Send, SocketProtocol::Sctp),
    test("SCTP_RR", SocketTest::Rr, SocketProtocol::Sctp),
];

impl FromStr for Test {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = text.trim().replace('-', "_");
        TESTS
            .into_iter()
            .find(|t| t.name.eq_ignore_ascii_case(&wanted))
            .ok_or_else(|| {
                let names: Vec<String> =
                    TESTS.iter().map(|t| t.name.to_ascii_lowercase()).collect();
                format!(
                    "unknown test {text:?}; expected one of {}",
                    names.join(", ")
                )
            })
    }
}

/// Value of a parameter: its text, and its effect on a job.
struct Value {
    text: String,
    apply: Box<dyn Fn(&mut SocketJob)>,
}

/// Parameter with its values.
struct Set {
    name: &'static str,
    values: Vec<Value>,
}

impl Set {
    fn of<T: Clone + 'static>(
        name: &'static str,
        values: &[T],
        text: impl Fn(&T) -> String,
        apply: impl Fn(&mut SocketJob, &T) + Clone + 'static,
    ) -> Self {
        let values = values
            .iter()
            .map(|value| {
                let (value, apply) = (value.clone(), apply.clone());
                Value {
                    text: text(&value),
                    apply: Box::new(move |job| apply(job, &value)),
                }
            })
            .collect();
        Self { name, values }
    }

    fn sizes(
        name: &'static str,
        values: &[Size],
        apply: impl Fn(&mut SocketJob, u32) + Clone + 'static,
    ) -> Self {
        let text = |size: &Size| size.typed.clone();
        Self::of(name, values, text, move |job, size| apply(job, size.bytes))
    }
}

impl Sets {
    /// Refuses a set without effect on the test, because its rows would only repeat one test.
    fn must_matter(&self, job: &SocketJob) -> Result<()> {
        let kind = match job.test {
            SocketTest::Send => "stream".to_owned(),
            SocketTest::Receive => "maerts".to_owned(),
            other => format!("{other:?}"),
        };
        let test = format!("{:?}_{kind}", job.protocol).to_lowercase();
        if job.test.counts_transactions() {
            if !self.message.is_empty() {
                bail!("--message: not for {test}; use --request and --response");
            }
        } else if !self.request.is_empty() || !self.response.is_empty() || !self.burst.is_empty() {
            bail!("--request, --response and --burst: not for {test}; use --message");
        }
        Ok(())
    }

    /// Returns the given sets, the test first because other sets depend on it.
    fn named(&self) -> Vec<Set> {
        let mut sets = vec![
            Set::of(
                "test",
                &self.test,
                |t| t.name.to_owned(),
                |job, t| {
                    job.test = t.test;
                    job.protocol = t.protocol;
                    if t.sendfile {
                        job.local.send_by = SendBy::Sendfile;
                    }
                },
            ),
            Set::sizes("local buffer", &self.local_buffer, |job, bytes| {
                job.local.send_buffer = Some(bytes);
                job.local.receive_buffer = Some(bytes);
            }),
            Set::sizes("remote buffer", &self.remote_buffer, |job, bytes| {
                job.remote.send_buffer = Some(bytes);
                job.remote.receive_buffer = Some(bytes);
            }),
            Set::sizes("message", &self.message, |job, bytes| match job.test {
                SocketTest::Receive => job.remote.send_size = Some(bytes),
                SocketTest::Both => {
                    job.local.send_size = Some(bytes);
                    job.remote.send_size = Some(bytes);
                }
                _ => job.local.send_size = Some(bytes),
            }),
            Set::sizes("request", &self.request, |job, n| job.request_size = n),
            Set::sizes("response", &self.response, |job, n| job.response_size = n),
            Set::of("burst", &self.burst, u32::to_string, |job, n| {
                job.first_burst = *n;
            }),
            Set::of("streams", &self.streams, u32::to_string, |job, n| {
                job.streams = *n;
            }),
            Set::of(
                "congestion",
                &self.congestion,
                String::clone,
                |job, name| job.local.congestion = Some(name.clone()),
            ),
        ];
        sets.retain(|set| !set.values.is_empty());
        sets
    }
}

/// Time after which a datagram request without a response counts as lost.
const LOST_AFTER: Span = Span::from_secs(1);

/// Returns the index of the value in each set, for every test.
fn combinations(sets: &[Set], zip: bool) -> Result<Vec<Vec<usize>>> {
    if zip {
        let length = sets.iter().map(|s| s.values.len()).max().unwrap_or(1);
        let odd = sets.iter().find(|s| ![1, length].contains(&s.values.len()));
        if let Some(set) = odd {
            bail!(
                "--zip: {} has {} values; expected {length}, as in the longest set, or 1",
                set.name,
                set.values.len()
            );
        }
        return Ok((0..length)
            .map(|i| sets.iter().map(|s| i.min(s.values.len() - 1)).collect())
            .collect());
    }
    let mut rows: Vec<Vec<usize>> = vec![Vec::new()];
    for set in sets {
        rows = rows
            .into_iter()
            .flat_map(|row| {
                (0..set.values.len()).map(move |i| {
                    let mut row = row.clone();
                    row.push(i);
                    row
                })
            })
            .collect();
    }
    Ok(rows)
}

/// Parses `LEVEL[,WIDTH]` and `N` or `LEAST-MOST`.
fn confidence(level: Option<&str>, repeat: Option<&str>) -> Result<Option<Confidence>> {
    if level.is_none() && repeat.is_none() {
        return Ok(None);
    }
    let mut wanted = Confidence::default();
    if let Some(text) = level {
        let (level, width) = text.split_once(',').unwrap_or((text, "5"));
        let number = |t: &str| t.trim().trim_end_matches('%').parse::<f64>();
        let (Ok(level), Ok(width)) = (number(level), number(width)) else {
            bail!("--confidence: expected LEVEL[,WIDTH], such as 95,5, got {text:?}");
        };
        if ![95.0, 99.0].contains(&level) {
            bail!("--confidence: expected level 95 or 99, got {level}");
        }
        wanted.level = if level < 97.0 { 95 } else { 99 };
        wanted.width = width;
    }
    if let Some(text) = repeat {
        let (least, most) = text.split_once('-').unwrap_or((text, text));
        let (Ok(least), Ok(most)) = (least.trim().parse(), most.trim().parse()) else {
            bail!("--repeat: expected N or LEAST-MOST, such as 5 or 3-10, got {text:?}");
        };
        (wanted.min, wanted.max) = (least, most);
    }
    Ok(Some(wanted))
}

impl SweepArgs {
    fn plan(&self) -> Result<Plan> {
        let sets = self.sets.named();
        let mut plan = Plan {
            kind: "sweep".to_owned(),
            ..Plan::default()
        };
        for row in combinations(&sets, self.zip)? {
            let mut job = SocketJob {
                duration: Some(self.duration),
                warm_up: self.warm_up.unwrap_or_default(),
                interim: self.output.interval,
                confidence: confidence(self.confidence.as_deref(), self.repeat.as_deref())?,
                ..SocketJob::default()
            };
            job.control.server.clone_from(&self.server);
            job.control.port = self.control_port;
            job.control.passphrase.clone_from(&self.passphrase);
            job.control.family = match (self.ipv4, self.ipv6) {
                (true, _) => Family::Ipv4,
                (_, true) => Family::Ipv6,
                _ => Family::Any,
            };
            job.options.no_delay = self.no_delay;
            job.local.measure_cpu = self.measure_cpu;
            job.remote.measure_cpu = self.measure_cpu;
            let mut words = Vec::new();
            // The direction decides which end sends messages.
            let tests = row.iter().zip(&sets).filter(|(_, s)| s.name == "test");
            tests.for_each(|(i, set)| (set.values[*i].apply)(&mut job));
            self.socket.apply(&mut job)?;
            self.sets.must_matter(&job)?;
            for (i, set) in row.iter().zip(&sets) {
                let value = &set.values[*i];
                if set.name != "test" {
                    (value.apply)(&mut job);
                }
                words.push(format!("{} {}", set.name, value.text));
                job.point.push((set.name.to_owned(), value.text.clone()));
            }
            job.latency |= job.test.counts_transactions();
            if job.test == SocketTest::Rr && job.protocol.is_datagram() {
                // Without a timeout, one lost datagram would stop a test with one concurrent request.
                job.timeout.get_or_insert(LOST_AFTER);
            }
            job.name = match words.is_empty() {
                true => "test 1".to_owned(),
                false => words.join(", "),
            };
            plan.sockets.push(job);
        }
        if plan.sockets.len() > 1000 {
            bail!(
                "the sets make {} tests; the limit is 1000",
                plan.sockets.len()
            );
        }
        Ok(plan)
    }
}

pub(crate) fn run(args: &SweepArgs) -> Result<u8> {
    let mut plan = args.plan()?;
    for path in &args.plot {
        picture::check_name(path)?;
    }
    if !is_to_run(&mut plan, &args.output)? {
        return Ok(0);
    }
    for path in args.plot.iter().chain(&args.html) {
        check_writable(path)?;
    }
    let finished = carry_out(plan, &args.output, None)?;
    let (report, code) = (&finished.report, finished.exit_code());
    if args.output.live_json && !args.output.json && !args.output.csv {
        // Summary of the lines above.
        print(&wb_render::json::report_line(report));
    }
    let delivered = deliver_report(report, &args.output);
    let charts = picture::charts(report);
    for path in &args.plot {
        picture::draw(&charts, path).map_err(|e| Fault(format!("{e:#}")))?;
    }
    if let Some(path) = &args.html {
        std::fs::write(path, picture::page(report, &charts))
            .with_context(|| format!("cannot write {}", path.display()))
            .map_err(|e| Fault(format!("{e:#}")))?;
    }
    delivered?;
    Ok(code)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        sweep: SweepArgs,
    }

    fn plan(words: &str) -> Result<Plan> {
        let words = ["x", "-H", "h"].into_iter().chain(words.split_whitespace());
        Line::try_parse_from(words)?.sweep.plan()
    }

    #[test]
    fn every_combination_is_a_test() {
        let plan = plan("--message 2Ki,4Ki --local-buffer 1k,2k,3k").unwrap();
        let got: Vec<_> = plan
            .sockets
            .iter()
            .map(|j| (j.local.send_buffer.unwrap(), j.local.send_size.unwrap()))
            .collect();
        assert_eq!(
            got,
            [
                (1000, 2048),
                (1000, 4096),
                (2000, 2048),
                (2000, 4096),
                (3000, 2048),
                (3000, 4096)
            ]
        );
        assert_eq!(plan.sockets[1].name, "local buffer 1k, message 4Ki");
        assert!(plan.validate().is_ok());
    }

    #[test]
    fn sets_go_side_by_side() {
        let both = plan("--zip --request 1,2,3 --response 10 --test tcp_rr").unwrap();
        let got: Vec<_> = both
            .sockets
            .iter()
            .map(|j| (j.request_size, j.response_size, j.test))
            .collect();
        assert_eq!(
            got,
            [
                (1, 10, SocketTest::Rr),
                (2, 10, SocketTest::Rr),
                (3, 10, SocketTest::Rr)
            ]
        );
        let error = plan("--zip --request 1,2,3 --response 1,2").unwrap_err();
        assert!(error.to_string().contains("--zip"), "{error}");
    }

    #[test]
    fn a_message_belongs_to_who_sends() {
        let down = plan("--test tcp-maerts --message 1Ki").unwrap();
        assert_eq!(down.sockets[0].remote.send_size, Some(1024));
        assert_eq!(down.sockets[0].local.send_size, None);
        let back = plan("--reverse --message 1Ki").unwrap();
        assert_eq!(back.sockets[0].remote.send_size, Some(1024));
    }

    #[test]
    fn repetitions() {
        assert_eq!(confidence(None, None).unwrap(), None);
        let wanted = confidence(Some("95,2.5"), Some("4-20")).unwrap().unwrap();
        assert_eq!((wanted.level, wanted.width), (95, 2.5));
        assert_eq!((wanted.min, wanted.max), (4, 20));
        let five = confidence(None, Some("5")).unwrap().unwrap();
        assert_eq!((five.min, five.max), (5, 5));
        for (level, repeat) in [(Some("90"), None), (Some("x"), None), (None, Some("a-b"))] {
            assert!(confidence(level, repeat).is_err());
        }
    }

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("2048", 2048),
            ("2Ki", 2048),
            ("1mi", 1 << 20),
            ("64k", 64_000),
        ] {
            assert_eq!(text.parse::<Size>().unwrap().bytes, bytes);
        }
        for text in ["", "x", "-1", "9999999Mi"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
