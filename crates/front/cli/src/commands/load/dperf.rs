//! Configuration files and output of dperf.

use std::{collections::BTreeMap, fs::File, io::Read as _};

use anyhow::{Context, Result, bail};
use clap::Args;
use wb_dperf::{
    Config, Problem, Severity, TranslateOptions, accepted,
    config::{DperfDevice, Method},
    keywords::{ConfigKeyword, KEYWORDS},
    statistics::{Counters, StatisticsBlock, StatisticsLayout},
};
use wb_model::{
    Locator, Plan, Report,
    load::{LoadEnd, LoadJobReport},
    report::Times,
};
use wb_session::View;

use crate::{deliver::print, say::say};

#[derive(Args, Debug, Default)]
#[command(next_help_heading = "dperf")]
pub(super) struct DperfArgs {
    /// Interface of a device in a configuration file: PCI=IF, or client:PCI=IF and server:PCI=IF if the files of both
    /// ends name the same device; repeatable [default: the kernel's interface of the device].
    #[arg(long = "port", value_name = "PCI=IF", value_parser = mapping)]
    ports: Vec<Mapping>,
    /// Check the files, print all problems, and exit.
    #[arg(long)]
    check: bool,
    /// With --check: apply dperf's own rules and limits.
    #[arg(long, requires = "check")]
    strict: bool,
    /// List the keywords of the files.
    #[arg(long)]
    pub(super) keywords: bool,
}

/// Returns the keywords of the files, by name.
pub(super) fn reference() -> String {
    let mut rows: Vec<_> = KEYWORDS.iter().collect();
    rows.sort_by_key(|keyword| keyword.name);
    let line = |keyword: &ConfigKeyword| format!("{:<32} {}\n", keyword.syntax(), keyword.doc);
    rows.into_iter().map(line).collect()
}

/// Interface of a device.
#[derive(Clone, Debug)]
struct Mapping {
    /// End that the mapping applies to; none for both.
    end: Option<LoadEnd>,
    device: String,
    locator: Locator,
}

impl Mapping {
    /// Returns true if a port of the configuration is this device.
    fn is_of(&self, config: &Config) -> bool {
        let end = match config.is_client() {
            true => LoadEnd::Client,
            false => LoadEnd::Server,
        };
        let ids = DperfDevice::Pci(self.device.clone()).pci_ids();
        self.end.is_none_or(|own| own == end)
            && config.ports.iter().any(|port| {
                let of_port = port.device.pci_ids();
                port.device.to_string() == self.device || ids.iter().any(|id| of_port.contains(id))
            })
    }
}

fn mapping(text: &str) -> Result<Mapping, String> {
    let (device, locator) = text
        .split_once('=')
        .ok_or("expected DEVICE=INTERFACE, such as 0000:1b:00.0=eth3")?;
    let (end, device) = match device.split_once(':') {
        Some(("client", device)) => (Some(LoadEnd::Client), device),
        Some(("server", device)) => (Some(LoadEnd::Server), device),
        _ => (None, device),
    };
    Ok(Mapping {
        end,
        device: device.to_owned(),
        locator: locator.parse().map_err(|e| format!("{e}"))?,
    })
}

/// Maximum size of a configuration file, in bytes.
const LONGEST: u64 = 1 << 20;

/// Reads a file; comments may use any encoding.
fn text_of(file: &str) -> Result<String> {
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|f| f.take(LONGEST + 1).read_to_end(&mut bytes))
        .with_context(|| format!("cannot read {file}"))?;
    if bytes.len() as u64 > LONGEST {
        bail!("{file}: must be at most 1 MiB");
    }
    let is_text = |line: &[u8]| {
        line.trim_ascii_start().starts_with(b"#") || std::str::from_utf8(line).is_ok()
    };
    if let Some(n) = bytes.split(|b| *b == b'\n').position(|line| !is_text(line)) {
        bail!("{file}:{}: not UTF-8 text", n + 1);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Result of reading the files.
pub(super) enum Read {
    /// The files were only checked; exit code.
    Checked(u8),
    /// Plan made from the files.
    Plan(Box<(Plan, Printer)>),
}

impl DperfArgs {
    /// `as_dperf`: checks print and return the same as dperf.
    pub(super) fn read(&self, files: &[String], as_dperf: bool) -> Result<Read> {
        let texts = files
            .iter()
            .map(|file| {
                let text = text_of(file)?;
                if !self.check && !wb_dperf::is_configuration(&text) {
                    bail!("{file}: not a dperf configuration; run plans with `wirebench run`");
                }
                Ok((file, text))
            })
            .collect::<Result<Vec<_>>>()?;
        if self.check {
            return Ok(Read::Checked(match as_dperf {
                true => self.check_as_dperf(&texts),
                false => self.check(&texts),
            }));
        }
        let mut plan = Plan {
            kind: "load".to_owned(),
            // A dperf file names its addresses on purpose; the default route is still checked.
            ..Plan::default()
        };
        let mut shown: Option<Config> = None;
        let mut unused: Vec<&Mapping> = self.ports.iter().collect();
        let several = files.len() > 1;
        for (file, text) in texts {
            let stem = std::path::Path::new(file)
                .file_stem()
                .map_or_else(|| file.clone(), |s| s.to_string_lossy().into_owned());
            let config = self.add(file, &text, several.then_some(&stem), &mut plan)?;
            unused.retain(|mapping| !mapping.is_of(&config));
            if shown.as_ref().is_none_or(|c| !c.is_client()) {
                shown = Some(config);
            }
        }
        if let Some(mapping) = unused.first() {
            bail!(
                "--port {}: no configuration file names this device",
                mapping.device
            );
        }
        told_apart(&plan)?;
        let config = shown.context("no configuration file")?;
        Ok(Read::Plan(Box::new((plan, Printer::new(&config)))))
    }

    /// Prints the first error, or the success line of `dperf -t`.
    fn check_as_dperf(&self, texts: &[(&String, String)]) -> u8 {
        let problems = texts
            .iter()
            .flat_map(|(file, text)| wb_dperf::check(file, text, self.strict));
        let error = problems.into_iter().find(|p| p.severity == Severity::Error);
        match &error {
            Some(error) => print(&error.to_string()),
            None => print("Config file OK"),
        }
        u8::from(error.is_some())
    }

    fn check(&self, texts: &[(&String, String)]) -> u8 {
        let mut code = 0;
        for (file, text) in texts {
            let problems = wb_dperf::check(file, text, self.strict);
            for problem in &problems {
                print(&problem.to_string());
            }
            match accepted(&problems) {
                true => print(&format!("{file}: ok")),
                false => code = 2,
            }
        }
        code
    }

    /// Adds a file to the plan.
    fn add(
        &self,
        file: &str,
        text: &str,
        prefix: Option<&String>,
        plan: &mut Plan,
    ) -> Result<Config> {
        let problems = wb_dperf::check(file, text, false);
        let warnings = problems.iter().filter(|p| p.severity == Severity::Warning);
        warnings.for_each(|p| say(format_args!("wirebench: {p}")));
        if !accepted(&problems) {
            return Err(told(&problems));
        }
        let config = wb_dperf::parse(file, text)
            .config
            .context("the checked file cannot be parsed")?;
        let options = TranslateOptions {
            locators: self.locators(&config),
        };
        let made = wb_dperf::translate(&config, &options).map_err(|p| told(&p))?;
        made.notes
            .iter()
            .for_each(|n| say(format_args!("wirebench: {n}")));
        let named = |name: &str| match prefix {
            Some(prefix) => format!("{prefix} {name}"),
            None => name.to_owned(),
        };
        let allowed = wb_machine::cpu::allowed().unwrap_or_default();
        for mut port in made.ports {
            port.name = named(&port.name);
            if port.cpus.iter().any(|cpu| !allowed.contains(cpu)) {
                say(format_args!(
                    "wirebench: {file}: cpu {}: not all available (allowed: {}); the system places the workers",
                    wb_machine::cpu::format_list(&port.cpus),
                    wb_machine::cpu::format_list(&allowed)
                ));
                port.cpus.clear();
            }
            plan.ports.push(port);
        }
        for mut job in made.jobs {
            job.port = named(&job.port);
            job.name = named(&job.name);
            plan.loads.push(job);
        }
        Ok(config)
    }

    /// Returns the interface of each device, from the options and from the kernel.
    fn locators(&self, config: &Config) -> BTreeMap<String, Locator> {
        let mut locators: BTreeMap<String, Locator> = config
            .ports
            .iter()
            .filter_map(|port| match &port.device {
                DperfDevice::Pci(address) => {
                    let address = address.to_string();
                    let interface = wb_machine::pci::interface_at(&address)?;
                    Some((address, interface.parse().ok()?))
                }
                _ => None,
            })
            .collect();
        let end = match config.is_client() {
            true => LoadEnd::Client,
            false => LoadEnd::Server,
        };
        let told = |of: Option<LoadEnd>| {
            let told = self.ports.iter().filter(move |m| m.end == of);
            told.map(|m| (m.device.clone(), m.locator.clone()))
        };
        locators.extend(told(None));
        locators.extend(told(Some(end)));
        locators
    }
}

/// Refuses an interface that is a port of several files.
fn told_apart(plan: &Plan) -> Result<()> {
    for (number, port) in plan.ports.iter().enumerate() {
        let place = port.locator.place();
        if let Some(other) = plan.ports[..number]
            .iter()
            .find(|p| p.locator.place() == place)
        {
            bail!(
                "{place} is used twice, by {} and {}; if files name the same device, use --port client:DEVICE=IF and --port server:DEVICE=IF",
                other.name,
                port.name
            );
        }
    }
    Ok(())
}

/// Returns all problems as an error, one line each.
fn told(problems: &[Problem]) -> anyhow::Error {
    let errors: Vec<String> = problems
        .iter()
        .filter(|p| p.severity == Severity::Error)
        .map(ToString::to_string)
        .collect();
    anyhow::anyhow!("{}", errors.join("\n"))
}

/// Figures of a run in dperf's terms, for its lines and for the key `compat` of the JSON.
pub(crate) struct Printer {
    layout: StatisticsLayout,
    /// HTTP method under which requests are counted; none without HTTP.
    method: Option<Method>,
    /// True for UDP; TCP round trips are measured in handshakes.
    udp: bool,
    v6: bool,
    /// True if a TOS is configured.
    tos: bool,
    seconds: u64,
    last: Counters,
    /// Time in which each worker had work to do until the last second, in ns.
    last_busy_ns: Vec<u64>,
    /// Latest counters of the whole run.
    newest: Counters,
}

/// Minimum length of the last interval of a run, in ns; a shorter remainder is not printed as a second.
const MOMENT_NS: u64 = 500_000_000;

impl Printer {
    fn new(config: &Config) -> Self {
        Self {
            layout: StatisticsLayout {
                colour: crate::deliver::color(),
                ..StatisticsLayout::of_config(config)
            },
            method: config.speaks_http().then_some(config.http_method),
            udp: config.is_udp(),
            v6: config.is_ipv6(),
            tos: config.tos.is_some(),
            seconds: 0,
            last: Counters::default(),
            last_busy_ns: Vec::new(),
            newest: Counters::default(),
        }
    }

    /// Returns the figures of an interval; none for the remainder at the end.
    pub(crate) fn second(&mut self, view: &View<'_>) -> Option<StatisticsBlock> {
        let load = view.report.load.as_ref()?;
        let jobs = || load.jobs.iter().filter(|job| job.end == load.shown());
        let now = self.counters(&jobs().collect::<Vec<_>>(), view.report);
        self.newest = now;
        let (snapshot, done) = (&view.snapshot, wb_model::Phase::Done);
        if snapshot.phase == done && snapshot.interval_ns < MOMENT_NS {
            return None;
        }
        let workers = jobs().flat_map(|job| &job.workers);
        let busy_ns: Vec<u64> = workers.map(|worker| worker.busy_ns).collect();
        let block = StatisticsBlock {
            seconds: self.seconds,
            cpu_usage: self.cpu_usage(&busy_ns, snapshot.interval_ns),
            counters: now.since(&self.last),
        };
        self.seconds += 1;
        self.last = now;
        self.last_busy_ns = busy_ns;
        Some(block)
    }

    /// Share of the interval in which each worker had work to do, in percent.
    fn cpu_usage(&self, busy_ns: &[u64], interval_ns: u64) -> Vec<u8> {
        let last = self
            .last_busy_ns
            .iter()
            .copied()
            .chain(std::iter::repeat(0));
        let grown = busy_ns
            .iter()
            .zip(last)
            .map(|(now, last)| now.saturating_sub(last));
        let share = |ns: u64| (ns as f64 / interval_ns.max(1) as f64).min(1.0);
        grown.map(|ns| (share(ns) * 100.0).round() as u8).collect()
    }

    /// Returns the figures of the run.
    pub(crate) fn total(&self) -> StatisticsBlock {
        StatisticsBlock {
            seconds: self.seconds,
            cpu_usage: Vec::new(),
            counters: self.newest,
        }
    }

    /// Formats an interval as dperf does.
    pub(crate) fn second_text(&self, block: &StatisticsBlock) -> String {
        self.layout.second_text(block)
    }

    /// Formats the run as dperf does.
    pub(crate) fn total_text(&self) -> String {
        let version = concat!("wirebench ", env!("CARGO_PKG_VERSION"));
        self.layout.total(&self.total(), version)
    }

    /// Round-trip times as dperf defines them: of requests with UDP, else of connection setups.
    fn round_trip_times(&self, jobs: &[&LoadJobReport]) -> Times {
        let mut all = Times::default();
        for job in jobs {
            all.merge(match self.udp {
                true => &job.request_ns,
                false => &job.connect_ns,
            });
        }
        all
    }

    fn counters(&self, jobs: &[&LoadJobReport], report: &Report) -> Counters {
        let sum = |name: &str| -> u64 {
            let jobs = jobs.iter().filter_map(|job| job.counters.get(name));
            jobs.sum()
        };
        let all = |names: &[&str]| -> u64 { names.iter().map(|name| sum(name)).sum() };
        let dropped = jobs.iter().filter_map(|job| job.frames.rx_dropped_frames);
        let refused = jobs.iter().filter_map(|job| job.frames.refused_frames);
        let nic = |key: &str| grown(jobs, report, key);
        let requests = sum("requests");
        let http = |method: Method| match self.method {
            Some(m) if m == method => requests,
            _ => 0,
        };
        let plain = |n: u64| match self.method.is_none() && !self.udp {
            true => n,
            false => 0,
        };
        let of_http = |n: u64| if self.method.is_some() { n } else { 0 };
        let icmp_rx = all(&["icmp_messages_rx", "icmp_rx"]);
        let rtt = self.round_trip_times(jobs);
        Counters {
            pkt_rx: sum("port_rx_frames"),
            pkt_tx: sum("port_tx_frames"),
            bits_rx: 8 * sum("rx_octets"),
            bits_tx: 8 * sum("tx_octets"),
            drop_tx: refused.sum(),
            tcp_rx: sum("tcp_rx"),
            tcp_tx: sum("tcp_tx"),
            udp_rx: sum("udp_rx"),
            udp_tx: sum("udp_tx"),
            arp_rx: sum("arp_messages_rx"),
            arp_tx: sum("arp_messages_tx"),
            icmp_rx,
            icmp_tx: sum("icmp_messages_tx"),
            tos_rx: match (self.v6, self.tos) {
                // dperf's mask also covers the version field of IPv6.
                (true, _) => all(&["tcp_rx", "udp_rx"]) + icmp_rx,
                (false, true) => sum("rx_tos"),
                (false, false) => 0,
            },
            other_rx: sum("other_messages_rx"),
            bad_rx: all(&["rx_malformed", "rx_bad_checksum", "rx_fragments"]),
            syn_rx: sum("syn_rx"),
            syn_tx: sum("syn_tx"),
            fin_rx: sum("fin_rx"),
            fin_tx: sum("fin_tx"),
            rst_rx: sum("rst_rx"),
            rst_tx: sum("rst_tx"),
            syn_rt: sum("syn_again"),
            fin_rt: sum("fin_again"),
            ack_rt: sum("ack_again"),
            push_rt: sum("data_again"),
            tcp_drop: all(&[
                "drop_unknown",
                "drop_sequence",
                "drop_ack",
                "drop_flags",
                "drop_ahead",
            ]),
            udp_drop: sum("drop_datagram"),
            ack_dup: sum("duplicate_acks"),
            udp_rt: sum("udp_lost"),
            sk_open: sum("attempted"),
            sk_close: jobs
                .iter()
                .map(|job| job.totals.completed_connections + job.totals.failed_connections)
                .sum(),
            sk_con: sum("open"),
            sk_err: all(&[
                "failed_connect_timeout",
                "failed_response_timeout",
                "failed_close_timeout",
                "failed_idle_timeout",
            ]),
            http_get: http(Method::Get),
            http_post: http(Method::Post),
            http_2xx: of_http(sum("status_2xx")),
            http_err: of_http(all(&[
                "status_3xx",
                "status_4xx",
                "status_5xx",
                "status_other",
            ])),
            tcp_req: plain(requests),
            tcp_rsp: plain(sum("responses")),
            ierrors: nic("rx_errors"),
            oerrors: nic("tx_errors"),
            imissed: nic("rx_missed_errors") + dropped.sum::<u64>(),
            rtt_sum_ns: (rtt.mean.unwrap_or(0.0) * rtt.samples as f64).round() as u64,
            rtt_samples: rtt.samples,
            ..Counters::default()
        }
    }
}

/// Growth of a counter of the interfaces that the jobs use.
fn grown(jobs: &[&LoadJobReport], report: &Report, key: &str) -> u64 {
    let used = |name: &String| jobs.iter().any(|job| job.port == *name);
    let ports = report.ports.iter().filter(|port| used(&port.name));
    let grown = ports.map(|port| {
        let of = |counters: &BTreeMap<String, u64>| counters.get(key).copied().unwrap_or(0);
        of(&port.after).saturating_sub(of(&port.before))
    });
    grown.sum()
}

#[cfg(test)]
mod tests {
    use wb_model::{
        Summary,
        load::{ConnectionTotals, PORT_COUNTERS},
        report::PortReport,
    };

    use super::*;

    /// A counter with a wrong name would be 0 for ever.
    #[test]
    fn every_counter_of_a_report_is_found_by_its_name() {
        let none = wb_tcp::Counters::default();
        let names = none.fields().map(|(name, _)| name);
        let counters = names.chain(PORT_COUNTERS);
        let mut job = LoadJobReport {
            port: "c".to_owned(),
            counters: counters.map(|name| (name.to_owned(), 1)).collect(),
            totals: ConnectionTotals {
                completed_connections: 1,
                failed_connections: 1,
                ..ConnectionTotals::default()
            },
            connect_ns: Times::from(Summary {
                samples: 4,
                mean: Some(250.0),
                ..Summary::default()
            }),
            ..LoadJobReport::default()
        };
        (job.frames.refused_frames, job.frames.rx_dropped_frames) = (Some(1), Some(1));
        let grown = |before, after| PortReport {
            name: "c".to_owned(),
            before: [
                ("rx_errors".to_owned(), before),
                ("tx_errors".to_owned(), before),
            ]
            .into(),
            after: [
                ("rx_errors".to_owned(), after),
                ("tx_errors".to_owned(), after),
                ("rx_missed_errors".to_owned(), 1),
            ]
            .into(),
            ..PortReport::default()
        };
        let report = Report {
            ports: vec![grown(7, 8)],
            ..Report::default()
        };
        let mut printer = Printer::new(&Config::default());
        printer.method = Some(Method::Get);
        printer.tos = true;
        let of = |printer: &Printer| {
            let counters = printer.counters(&[&job], &report);
            let values = Counters::NAMES.iter().copied().zip(counters.values());
            values.filter(|(_, n)| *n != 1).collect::<Vec<_>>()
        };
        let several = [
            ("bitsRx", 8),
            ("bitsTx", 8),
            // Frames exchanged with the kernel are not counted.
            ("kniRx", 0),
            ("kniTx", 0),
            ("icmpRx", 2),
            ("badRx", 3),
            ("tcpDrop", 5),
            ("skClose", 2),
            ("skErr", 4),
            ("httpPost", 0),
            ("httpErr", 4),
            ("tcpReq", 0),
            ("tcpRsp", 0),
            ("imissed", 2),
        ];
        assert_eq!(of(&printer), several);
        printer.method = None;
        assert!(
            of(&printer)
                .iter()
                .all(|(name, _)| !name.starts_with("tcpR"))
        );
        let counters = printer.counters(&[&job], &report);
        assert_eq!((counters.rtt_samples, counters.rtt_sum_ns), (4, 1000));
    }
}
