//! Keyword table: name, arguments, reader and printer of each keyword.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use wb_model::units::Mac;

use crate::config::{
    AddressSpan, ChangeDip, Config, DperfDevice, Keepalive, Listen, LogLevel, Method, Mode, Port,
    PortSpan, Protocol, Rss, RssHash, RssQueues, Vxlan,
};
use crate::number;
use crate::parse::quoted;
use crate::problem::Code;

/// Side that a keyword applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeywordSide {
    /// Both.
    Both,
    /// The client; without effect on a server.
    Client,
    /// The client; an error on a server, reported by a separate rule.
    OnlyClient,
    /// The server; without effect on a client.
    Server,
}

/// Reason why a line could not be read.
pub(crate) struct LineFault {
    pub(crate) code: Code,
    pub(crate) text: String,
}

type LineOutcome = Result<(), LineFault>;

/// The arguments of one line.
pub(crate) struct LineWords<'a> {
    words: &'a [&'a str],
    /// Warnings about a line that could be read.
    pub(crate) notes: Vec<(Code, String)>,
}

impl<'a> LineWords<'a> {
    pub(crate) fn new(words: &'a [&'a str]) -> Self {
        let notes = Vec::new();
        Self { words, notes }
    }

    /// Returns all arguments if their number is within `count`.
    fn check_count(&self, count: RangeInclusive<usize>) -> Result<&'a [&'a str], LineFault> {
        if count.contains(&self.words.len()) {
            return Ok(self.words);
        }
        let text = match self.words.len() {
            0 => "no argument".to_owned(),
            1 => "1 argument".to_owned(),
            n => format!("{n} arguments"),
        };
        let code = Code::Arguments;
        Err(LineFault { code, text })
    }

    /// Returns the only argument.
    fn only_argument(&self) -> Result<&'a str, LineFault> {
        Ok(self.check_count(1..=1)?[0])
    }

    fn add_warning(&mut self, code: Code, text: impl Into<String>) {
        self.notes.push((code, text.into()));
    }

    /// The value of `loose`, with a warning if only a part of `word` was read.
    fn warn_if_partial<T: std::fmt::Display>(
        &mut self,
        word: &str,
        loose: number::LooseNumber<T>,
    ) -> T {
        if !loose.whole {
            self.add_warning(
                Code::Read,
                format!("{} is read as {}", quoted(word), loose.value),
            );
        }
        loose.value
    }

    /// Number at the beginning of `word`, if it is within `range`.
    fn number_in_range<T, N>(
        &mut self,
        word: &str,
        grammar: fn(&str) -> Option<N>,
        range: RangeInclusive<u32>,
    ) -> Result<T, LineFault>
    where
        T: TryFrom<u32>,
        N: Into<number::LooseNumber<u32>>,
    {
        let number = grammar(word).map(Into::into);
        let value = check_range(word, number.map(|n| n.value), range)?;
        if let Some(number) = number {
            self.warn_if_partial(word, number);
        }
        Ok(value)
    }
}

fn bad_word(word: &str) -> LineFault {
    LineFault {
        code: Code::Value,
        text: format!("bad value {}", quoted(word)),
    }
}

/// Converts `value`, if it was read and is within `range`, to the narrower type of its field.
fn check_range<T: TryFrom<u32>>(
    word: &str,
    value: Option<u32>,
    range: RangeInclusive<u32>,
) -> Result<T, LineFault> {
    value
        .filter(|v| range.contains(v))
        .and_then(|v| T::try_from(v).ok())
        .ok_or_else(|| bad_word(word))
}

/// Largest number in a configuration file.
const MOST: u32 = i32::MAX as u32;

/// One keyword.
pub struct ConfigKeyword {
    /// Name of the keyword.
    pub name: &'static str,
    /// Older names.
    pub aliases: &'static [&'static str],
    /// Names of the arguments; optional ones in brackets.
    pub arguments: &'static str,
    /// Allowed values.
    pub allowed: &'static str,
    /// Side that the keyword applies to.
    pub side: KeywordSide,
    /// Setting of the keyword, with unit and default.
    pub doc: &'static str,
    /// Returns true if a value is set that a second line must not change.
    taken: fn(&Config) -> bool,
    read: fn(&mut LineWords<'_>, &mut Config) -> LineOutcome,
    show: fn(&Config) -> Vec<String>,
}

impl std::fmt::Debug for ConfigKeyword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keyword({})", self.syntax())
    }
}

impl ConfigKeyword {
    /// Name and arguments.
    #[must_use]
    pub fn syntax(&self) -> String {
        format!("{} {}", self.name, self.arguments)
            .trim_end()
            .to_owned()
    }

    pub(crate) fn read(&self, words: &mut LineWords<'_>, config: &mut Config) -> LineOutcome {
        if (self.taken)(config) {
            return Err(LineFault {
                code: Code::Duplicate,
                text: "said before".to_owned(),
            });
        }
        (self.read)(words, config)
    }

    /// Arguments of each line that `config` needs for this keyword.
    pub(crate) fn config_lines(&self, config: &Config) -> Vec<String> {
        (self.show)(config)
    }
}

/// Keyword with this name or older name.
#[must_use]
pub fn find(name: &str) -> Option<&'static ConfigKeyword> {
    KEYWORDS
        .iter()
        .find(|k| k.name == name || k.aliases.contains(&name))
}

/// Keyword name most similar to `name`.
pub(crate) fn nearest_keyword(name: &str) -> Option<&'static str> {
    wb_model::nearest(name, KEYWORDS.iter().map(|k| k.name))
        .first()
        .copied()
}

fn shown_lines(value: Option<impl ToString>) -> Vec<String> {
    value.iter().map(ToString::to_string).collect()
}

/// A keyword with custom readers. Arguments: name and older names, arguments, side, allowed values, setting;
/// then the functions `taken`, `read` and `show`.
macro_rules! keyword {
    ($name:literal $($alias:literal)*, $arguments:literal, $side:ident, $allowed:literal, $doc:literal,
     $taken:expr, $read:expr, $show:expr) => {
        ConfigKeyword {
            name: $name,
            aliases: &[$($alias),*],
            arguments: $arguments,
            allowed: $allowed,
            side: KeywordSide::$side,
            doc: $doc,
            taken: $taken,
            read: $read,
            show: $show,
        }
    };
}

/// A switch without arguments.
macro_rules! switch {
    ($name:literal, $field:ident, $side:ident, $doc:literal) => {
        ConfigKeyword {
            name: $name,
            aliases: &[],
            arguments: "",
            allowed: "no argument",
            side: KeywordSide::$side,
            doc: $doc,
            taken: |_| false,
            read: |words, config| {
                words.check_count(0..=0)?;
                if config.$field {
                    words.add_warning(Code::Repeated, "is already on");
                }
                config.$field = true;
                Ok(())
            },
            show: |config| {
                let on = config.$field;
                on.then(String::new).into_iter().collect()
            },
        }
    };
}

/// One number within a range, parsed by a function of `number.rs`.
macro_rules! number {
    ($name:literal, $field:ident, $side:ident, $grammar:ident, $range:expr, $allowed:literal, $doc:literal) => {
        ConfigKeyword {
            name: $name,
            aliases: &[],
            arguments: "NUMBER",
            allowed: $allowed,
            side: KeywordSide::$side,
            doc: $doc,
            taken: |config| config.$field.is_some(),
            read: |words, config| {
                let word = words.only_argument()?;
                let value = words.number_in_range(word, number::$grammar, $range)?;
                config.$field = (value != 0).then_some(value);
                Ok(())
            },
            show: |config| shown_lines(config.$field),
        }
    };
}

/// One of several words.
macro_rules! choice {
    ($name:literal, $field:ident, $side:ident, $allowed:literal, $taken:expr, $show:expr, $doc:literal,
     $($word:literal => $value:expr),+) => {
        ConfigKeyword {
            name: $name,
            aliases: &[],
            arguments: "WORD",
            allowed: $allowed,
            side: KeywordSide::$side,
            doc: $doc,
            taken: $taken,
            read: |words, config| {
                config.$field = match words.only_argument()? {
                    $($word => $value,)+
                    other => return Err(bad_word(other)),
                };
                Ok(())
            },
            show: |config| {
                let show: fn(&Config) -> bool = $show;
                if !show(config) {
                    return Vec::new();
                }
                let known = [$(($value, $word)),+];
                let word = known.iter().find(|(value, _)| *value == config.$field);
                word.map(|(_, word)| (*word).to_owned()).into_iter().collect()
            },
        }
    };
}

/// One word that is stored unchanged if `$fits`.
macro_rules! text {
    ($name:literal, $field:ident, $side:ident, $fits:expr, $allowed:literal, $doc:literal) => {
        ConfigKeyword {
            name: $name,
            aliases: &[],
            arguments: "TEXT",
            allowed: $allowed,
            side: KeywordSide::$side,
            doc: $doc,
            taken: |config| config.$field.is_some(),
            read: |words, config| {
                let word = words.only_argument()?;
                let fits: fn(&str) -> bool = $fits;
                if !fits(word) {
                    return Err(bad_word(word));
                }
                config.$field = Some(word.to_owned());
                Ok(())
            },
            show: |config| shown_lines(config.$field.as_ref()),
        }
    };
}

/// Every keyword, in the order in which they are printed.
pub static KEYWORDS: &[ConfigKeyword] = &[
    choice!(
        "mode", mode, Both, "client or server",
        |c| c.mode == Mode::Server, |c| c.mode == Mode::Server || c.places.has_keyword("mode"),
        "Side of this file. Default client.",
        "client" => Mode::Client, "server" => Mode::Server
    ),
    keyword! { "cpu", "N|A-B …", Both, "CPU numbers 0 to 8191, none twice",
    "CPUs of the workers. Required.", |c| !c.cpus.is_empty(), read_cpu, show_cpu },
    text! { "socket_mem", socket_mem, Both, |w| w.len() <= 63,
    "MB for each NUMA node, such as 4096,0; at most 63 characters",
    "Memory of DPDK. No effect." },
    keyword! { "duration", "TIME", Both, "at least 1 s, such as 60, 100s, 1.5m, 2h, 1d",
    "Steady phase in s, m, h or d. Default 60 s.", |c| c.duration.is_some(), |words, config| {
        let word = words.only_argument()?;
        let time = number::duration(word).filter(|t| t.value > 0);
        config.duration = Some(words.warn_if_partial(word, time.ok_or_else(|| bad_word(word))?));
        Ok(())
    }, |c| shown_lines(c.duration.map(|s| format!("{s}s"))) },
    switch!("daemon", daemon, Both, "Detach from the terminal."),
    switch!("quiet", quiet, Both, "No report each second."),
    switch! { "clear_screen", clear_screen, Both, "Clear the terminal before each report." },
    choice!(
        "log_level", log_level, Both, "error, warn, info or debug",
        |c| c.log_level.is_some(), |c| c.log_level.is_some(),
        "How much the driver library logs. Default error.",
        "error" => Some(LogLevel::Error), "warn" => Some(LogLevel::Warn),
        "info" => Some(LogLevel::Info), "debug" => Some(LogLevel::Debug)
    ),
    switch! { "simd512", simd512, Both, "Allow drivers with 512-bit vectors." },
    keyword! { "port", "DEVICE IP GATEWAY [MAC]", Both,
    "DEVICE 0000:1b:00.0, 1b:00.0, if:NAME, vdev:DRIVER,iface=NAME or bondMODE:POLICY(PCI,…) \
        with MODE 0 to 6, POLICY 0 to 3, 1 to 4 PCI addresses; two different addresses of one \
        family; MAC 02:00:00:00:00:01", "A port, its address, gateway and gateway MAC. Required.",
    |_| false, read_port, |c| {
        c.ports
            .iter()
            .map(|p| {
                let mac = p.gateway_mac.map(|m| format!(" {m}")).unwrap_or_default();
                format!("{} {} {}{mac}", p.device, p.ip, p.gateway)
            })
            .collect()
    } },
    keyword! { "client", "IP COUNT [IP …]", Both,
    "COUNT 1 to 254, last byte of IP + COUNT at most 255; further addresses differ in the last two bytes only, and their last byte is not 0, 255 or already on the line",
    "Client addresses: on a client its own, one line for each port; on a server the ones that it answers. Required.",
    |_| false, |words, config| {
        let words = words.check_count(2..=usize::MAX)?;
        let range = parse_range(words[0], words[1])?;
        config.clients.push(with_more(range, &words[2..])?);
        Ok(())
    }, |c| c.clients.iter().map(show_range).collect() },
    keyword! { "server", "IP COUNT", Both, "COUNT 1 to 254, last byte of IP + COUNT at most 255",
    "Server addresses, one line for each port. Required.", |_| false, |words, config| {
        let words = words.check_count(2..=2)?;
        config.servers.push(parse_range(words[0], words[1])?);
        Ok(())
    }, |c| c.servers.iter().map(show_range).collect() },
    keyword! { "listen", "PORT COUNT", Both, "both at least 1, PORT + COUNT at most 65534",
    "Ports of the server. Default 80 1.", |c| c.listen.is_some(), |words, config| {
        let words = words.check_count(2..=2)?;
        let number = |at: usize| check_range(words[at], number::parse_integer(words[at]), 1..=65_533);
        let (first, count): (u16, u16) = (number(0)?, number(1)?);
        if u32::from(first) + u32::from(count) > 65_534 {
            return Err(bad_word(words[1]));
        }
        config.listen = Some(Listen { first, count });
        Ok(())
    }, |c| shown_lines(c.listen.map(|l| format!("{} {}", l.first, l.count))) },
    keyword! { "client_port_range" "lport_range", "MIN [MAX]", Both, "1 to 65535, MIN not above MAX",
    "Source ports of the client. Default 1 65535.", |c| c.client_ports.is_some(), |words, config| {
        let ports = words.check_count(1..=2)?;
        let min = words.number_in_range(ports[0], number::loose, 1..=65_535)?;
        let max = match ports.get(1) {
            Some(word) => words.number_in_range(word, number::loose, 1..=65_535)?,
            None => u16::MAX,
        };
        if min > max {
            return Err(bad_word(ports[1]));
        }
        config.client_ports = Some(PortSpan { min, max });
        Ok(())
    }, |c| shown_lines(c.client_ports.map(|p| format!("{} {}", p.min, p.max))) },
    switch! { "client_hop", client_hop, Client, "Advance client address and port together." },
    keyword! { "change_dip", "IP STEP COUNT", OnlyClient,
    "STEP and COUNT whole numbers; the last address must exist",
    "Destinations of the packets of a flood, in turn.", |_| false, change_dip, |c| {
        let show = |d: &ChangeDip| format!("{} {} {}", d.first, d.step, d.count);
        c.change_dip.iter().map(show).collect()
    } },
    number! { "vlan", vlan, Both, loose, 1..=4094, "1 to 4094", "VLAN of all frames. Default none." },
    keyword! { "vxlan", "VNI SRC_MAC DST_MAC LOCAL COUNT REMOTE COUNT", Both,
    "VNI 1 to 16777215; inner MACs such as 02:00:00:00:00:01; addresses with COUNT 1 to 254",
    "Tunnel of a port, one line for each. Default none.", |_| false, read_vxlan, |c| {
        c.vxlans
            .iter()
            .map(|v| {
                format!(
                    "{} {} {} {} {} {} {}",
                    v.vni,
                    v.src_mac,
                    v.dst_mac,
                    v.local,
                    v.local_count,
                    v.remote,
                    v.remote_count
                )
            })
            .collect()
    } },
    switch! { "neigh_ignore", neigh_ignore, Both, "Announce and answer for the IP of the port only." },
    keyword! { "kni", "[NAME]", Both, "up to 9 characters, starting with a letter",
    "A kernel interface for the port. Here the device keeps its own.", |c| c.kni.is_some(),
    |words, config| {
        let name = words.check_count(0..=1)?.first().copied().unwrap_or("dperf");
        if name.len() >= 10 || !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Err(bad_word(name));
        }
        config.kni = Some(name.to_owned());
        Ok(())
    }, |c| shown_lines(c.kni.as_ref()) },
    keyword! { "jumbo", "[MTU]", Both, "9000 to 9710 bytes",
    "MTU in bytes. Default 1500, and 9710 without a value.", |c| c.jumbo.is_some(), |words, config| {
        config.jumbo = Some(match words.check_count(0..=1)?.first() {
            None => 9710,
            Some(word) => words.number_in_range(word, number::loose, 9000..=9710)?,
        });
        Ok(())
    }, |c| shown_lines(c.jumbo) },
    keyword! { "tos", "NUMBER", Both, "0 to 255, or 0x0 to 0xff",
    "IPv4 TOS or IPv6 traffic class. Default 0.", |c| c.tos.is_some(), |words, config| {
        let word = words.only_argument()?;
        let tos = words.number_in_range(word, number::hexadecimal, 0..=255)?;
        config.tos = (tos != 0).then_some(tos);
        Ok(())
    }, |c| shown_lines(c.tos.map(|tos| format!("{tos:#x}"))) },
    keyword! { "rss", "[l3|l3l4|auto [l3|l3l4]] [mq_rx_rss|mq_rx_none]", Both,
    "the words of versions before 1.8", "The NIC's own hash chooses queues. Default off.", |_| false,
    read_rss, |c| shown_lines(c.rss.map(show_rss)) },
    switch! { "flow_isolate", flow_isolate, Both, "Only traffic that matches rules reaches the tester." },
    keyword! { "cps", "RATE", Client, "0 to 2147483647 per second, such as 100, 2k, 1.5m",
    "New connections per second of all workers. Default 1000 if only `cc` is given.",
    |c| c.cps.is_some(), |words, config| {
        let word = words.only_argument()?;
        let rate = check_range(word, number::parse_rate(word), 0..=MOST)?;
        config.cps = (rate != 0).then_some(rate);
        Ok(())
    }, |c| shown_lines(c.cps.map(number::show_rate)) },
    keyword! { "cc", "RATE", Client, "1 to 2147483647, such as 100, 2k, 1.5m",
    "Open connections to hold, of all workers. Default unset.", |c| c.cc.is_some(), |words, config| {
        let word = words.only_argument()?;
        config.cc = Some(check_range(word, number::parse_rate(word), 1..=MOST)?);
        Ok(())
    }, |c| shown_lines(c.cc.map(number::show_rate)) },
    number! { "launch_num", launch_num, Client, parse_integer, 0..=MOST, "0 (automatic) to 2147483647",
    "Connections opened back to back. Default: a divisor of the rate, 4 to 10." },
    number! { "slow_start", slow_start, OnlyClient, parse_integer, 10..=600, "10 to 600 s",
    "Linear ramp-up of the rate in s. Default 30." },
    number! { "wait", wait, OnlyClient, parse_integer, 1..=MOST, "at least 1 s",
    "Wait after the start in s. Default 3." },
    switch!(
        "flood",
        flood,
        Client,
        "Send without waiting for responses."
    ),
    keyword! { "keepalive", "INTERVAL [NUM]", Both,
    "INTERVAL with a unit: ns, us, ms or s; NUM a whole number, 0 means unlimited, above 0 only if INTERVAL is above 0",
    "Interval between the requests of a connection, and number of requests after the first. Default off.",
    |c| c.keepalive.is_some(), |words, config| {
        let words = words.check_count(1..=2)?;
        let interval_ns = number::interval(words[0]).ok_or_else(|| bad_word(words[0]))?;
        let more = match words.get(1) {
            Some(word) => check_range(word, number::parse_rate(word), 0..=MOST)?,
            None => 0,
        };
        if interval_ns == 0 && more > 0 {
            return Err(bad_word(words[1]));
        }
        let more_requests = (more != 0).then_some(more);
        config.keepalive = Some(Keepalive {
            interval_ns,
            more_requests,
        });
        Ok(())
    }, |c| {
        shown_lines(c.keepalive.map(|k| {
            let more = k.more_requests.map(|n| format!(" {n}")).unwrap_or_default();
            format!("{}{more}", number::show_interval(k.interval_ns))
        }))
    } },
    number! { "pipeline", pipeline, OnlyClient, loose, 0..=100, "0 to 100",
    "UDP requests sent back to back. Default 0." },
    number! { "tx_burst", tx_burst, Both, parse_integer, 1..=1024, "1 to 1024 packets",
    "Queued packets that force a transmit call. Default 8." },
    choice!(
        "protocol", protocol, Both, "tcp, udp or http",
        |c| c.protocol.is_some(), |c| c.protocol.is_some(),
        "Protocol over IP. Default tcp.",
        "tcp" => Some(Protocol::Tcp), "udp" => Some(Protocol::Udp), "http" => Some(Protocol::Http)
    ),
    keyword! { "payload_size", "SIZE …", Both,
    "0 (built-in message) to 1073741824 bytes, such as 64, 10k, 1m; one value, or on a server one \
        for each CPU", "Payload bytes of one message. Default: a built-in message.",
    |c| !c.payload_sizes.is_empty(), |words, config| {
        let words = words.check_count(1..=usize::MAX)?;
        let size = |word: &&str| check_range(word, number::parse_rate(word), 0..=1 << 30);
        let sizes: Vec<u32> = words.iter().map(size).collect::<Result<_, _>>()?;
        if sizes != [0] {
            config.payload_sizes = sizes;
        }
        Ok(())
    }, |c| {
        let sizes: Vec<_> = c.payload_sizes.iter().map(u32::to_string).collect();
        shown_lines((!sizes.is_empty()).then(|| sizes.join(" ")))
    } },
    switch! { "payload_random", payload_random, Both, "Random letters in messages." },
    text! { "payload_file", payload_file, Both, |_| true, "a path", "A file with the message. Default none." },
    keyword! { "packet_size", "NUMBER", Both,
    "bytes of a frame without FCS, up to 1514, with jumbo up to its MTU + 14",
    "Bytes of a frame with a message, without FCS. Default: as the message needs.", |c| c.packet_size.is_some(),
    |words, config| {
        let word = words.only_argument()?;
        config.packet_size = Some(check_range(word, number::parse_rate(word), 1..=9724)?);
        words.add_warning(
            Code::Deprecated,
            "dperf 1.8 and later ignore it; here it is the frame size without FCS, as in older versions",
        );
        Ok(())
    }, |c| shown_lines(c.packet_size) },
    number! { "mss", mss, Both, parse_integer, 1..=9670, "1 to the MTU minus 40, over IPv6 minus 60, bytes",
    "Advertised segment size in bytes. Default: the largest that the MTU allows." },
    number! { "send_window", send_window, Server, parse_rate, 2..=16, "2 to 16 segments",
    "Segments of a long response in flight. Default 4." },
    text! { "http_host", http_host, OnlyClient, |_| true, "one word", "Host header. Default dperf." },
    text! { "http_path", http_path, OnlyClient, |w| w.starts_with('/'), "a path that begins with /",
    "Path of requests. Default /." },
    choice!(
        "http_method", http_method, Client, "GET or POST",
        |c| c.http_method == Method::Post,
        |c| c.http_method == Method::Post || c.places.has_keyword("http_method"),
        "Method of requests. Default GET.",
        "GET" => Method::Get, "POST" => Method::Post
    ),
    switch! { "fast_close", fast_close, OnlyClient, "Answer the last response with RST." },
    switch! { "disable_ack", disable_ack, Client, "No separate acknowledgements between requests." },
    keyword! { "tcp_rst", "0|1", Both, "0 or 1",
    "Answer packets of unknown connections with RST. Default 1.", |c| c.tcp_rst.is_some(),
    |words, config| {
        let word = words.only_argument()?;
        config.tcp_rst = Some(words.number_in_range::<u8, _>(word, number::loose, 0..=1)? == 1);
        Ok(())
    }, |c| shown_lines(c.tcp_rst.map(u8::from)) },
    keyword! { "retransmit_timeout", "SECONDS", Both, "2 to 300",
    "Time until a packet is retransmitted, s. Default 2.", |c| c.retransmit_timeout.is_some(),
    |words, config| {
        let word = words.only_argument()?;
        config.retransmit_timeout = Some(words.number_in_range(word, number::loose, 2..=300)?);
        Ok(())
    }, |c| shown_lines(c.retransmit_timeout) },
];

/// Highest CPU number in Linux.
const HIGHEST_CPU: u32 = 8191;

fn read_cpu(words: &mut LineWords<'_>, config: &mut Config) -> LineOutcome {
    let mut seen = std::collections::BTreeSet::new();
    let mut cpus = Vec::new();
    for word in words.check_count(1..=usize::MAX)? {
        let number = |text: &str| check_range(word, number::parse_integer(text), 0..=HIGHEST_CPU);
        let (first, last): (u32, u32) = match word.split_once('-') {
            Some((first, last)) if last.starts_with(|c: char| c.is_ascii_digit()) => {
                // dperf reads the second number of a range up to its first non-digit.
                (
                    number(first)?,
                    words.number_in_range(last, number::loose, 0..=HIGHEST_CPU)?,
                )
            }
            _ => (number(word)?, number(word)?),
        };
        if first > last {
            return Err(bad_word(word));
        }
        for cpu in first..=last {
            if !seen.insert(cpu) {
                return Err(LineFault {
                    code: Code::Value,
                    text: format!("CPU {cpu} twice"),
                });
            }
            cpus.push(cpu);
        }
    }
    config.cpus = cpus;
    Ok(())
}

fn show_cpu(config: &Config) -> Vec<String> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for cpu in &config.cpus {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            _ => runs.push((*cpu, *cpu)),
        }
    }
    let words: Vec<_> = runs
        .into_iter()
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            _ => format!("{first}-{last}"),
        })
        .collect();
    shown_lines((!words.is_empty()).then(|| words.join(" ")))
}

fn parse_address(word: &str) -> Result<IpAddr, LineFault> {
    word.parse().map_err(|_| bad_word(word))
}

/// A MAC address of 17 characters with colons.
fn parse_mac(word: &str) -> Result<Mac, LineFault> {
    let mac: Option<Mac> = word.parse().ok();
    mac.filter(|_| word.len() == 17 && !word.contains('-'))
        .ok_or_else(|| bad_word(word))
}

/// Returns true if `word` is `dddd:bb:ss.f` or `bb:ss.f` in hexadecimal.
fn is_pci(word: &str) -> bool {
    let fits = |text: &str, form: &str| {
        text.len() == form.len()
            && text.bytes().zip(form.bytes()).all(|(c, f)| match f {
                b'x' => c.is_ascii_hexdigit(),
                b'7' => matches!(c, b'0'..=b'7'),
                f => c == f,
            })
    };
    fits(word, "xxxx:xx:xx.7") || fits(word, "xx:xx.7")
}

fn parse_device(word: &str) -> Option<DperfDevice> {
    if is_pci(word) {
        return Some(DperfDevice::Pci(word.to_owned()));
    }
    if let Some(name) = word.strip_prefix("if:") {
        return (!name.is_empty()).then(|| DperfDevice::Interface(name.to_owned()));
    }
    if let Some(name) = word.strip_prefix("vdev:") {
        return (!name.is_empty()).then(|| DperfDevice::Virtual(name.to_owned()));
    }
    let (numbers, members) = word
        .strip_prefix("bond")?
        .strip_suffix(')')?
        .split_once('(')?;
    let (mode, policy) = numbers.split_once(':')?;
    let digit = |text: &str, most: u32| {
        let digit = number::parse_integer(text).filter(|n| *n <= most)?;
        u8::try_from(digit).ok()
    };
    let members: Vec<_> = members.split(',').map(str::to_owned).collect();
    let fit = members.len() <= 4 && members.iter().all(|m| is_pci(m));
    Some(DperfDevice::Bond {
        mode: digit(mode, 6)?,
        policy: digit(policy, 3)?,
        members,
    })
    .filter(|_| fit)
}

fn read_port(words: &mut LineWords<'_>, config: &mut Config) -> LineOutcome {
    let words = words.check_count(3..=4)?;
    let (ip, gateway) = (parse_address(words[1])?, parse_address(words[2])?);
    if ip == gateway || ip.is_ipv4() != gateway.is_ipv4() {
        return Err(bad_word(words[2]));
    }
    config.ports.push(Port {
        device: parse_device(words[0]).ok_or_else(|| bad_word(words[0]))?,
        ip,
        gateway,
        gateway_mac: words.get(3).map(|word| parse_mac(word)).transpose()?,
    });
    Ok(())
}

/// Bytes of an address without its last `n`.
fn upper_bytes(ip: IpAddr, n: usize) -> Vec<u8> {
    let mut octets = match ip {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    };
    octets.truncate(octets.len() - n);
    octets
}

fn last_byte(ip: IpAddr) -> u8 {
    match ip {
        IpAddr::V4(a) => a.octets()[3],
        IpAddr::V6(a) => a.octets()[15],
    }
}

fn parse_range(first: &str, count: &str) -> Result<AddressSpan, LineFault> {
    let ip = parse_address(first)?;
    let most = 255 - u32::from(last_byte(ip));
    Ok(AddressSpan {
        first: ip,
        count: check_range(count, number::parse_integer(count), 1..=most.min(254))?,
        more: Vec::new(),
    })
}

fn with_more(mut range: AddressSpan, words: &[&str]) -> Result<AddressSpan, LineFault> {
    let mut taken: std::collections::BTreeSet<u8> = range.addresses().map(last_byte).collect();
    for word in words {
        let ip = parse_address(word)?;
        let near = upper_bytes(ip, 2) == upper_bytes(range.first, 2);
        if !near || matches!(last_byte(ip), 0 | 255) || !taken.insert(last_byte(ip)) {
            return Err(bad_word(word));
        }
        range.more.push(ip);
    }
    Ok(range)
}

fn show_range(range: &AddressSpan) -> String {
    let mut text = format!("{} {}", range.first, range.count);
    for ip in &range.more {
        text.push_str(&format!(" {ip}"));
    }
    text
}

fn change_dip(words: &mut LineWords<'_>, config: &mut Config) -> LineOutcome {
    let words_read = words.check_count(3..=3)?;
    let mut number = |at: usize| {
        let number = number::signed(words_read[at]).ok_or_else(|| bad_word(words_read[at]))?;
        Ok(words.warn_if_partial(words_read[at], number))
    };
    let first = parse_address(words_read[0])?;
    let (step, count) = (number(1)?, number(2)?);
    let (Ok(step), Ok(count)) = (u32::try_from(step), u32::try_from(count)) else {
        words.add_warning(Code::Read, "a negative STEP or COUNT makes the line void");
        return Ok(());
    };
    if step == 0 || count == 0 {
        words.add_warning(Code::Read, "a STEP or COUNT of 0 makes the line void");
        return Ok(());
    }
    let way = u128::from(step) * u128::from(count - 1);
    let room = match first {
        IpAddr::V4(a) => u128::from(u32::MAX - a.to_bits()),
        IpAddr::V6(a) => u128::MAX - a.to_bits(),
    };
    if way > room {
        return Err(bad_word(words_read[2]));
    }
    config.change_dip.push(ChangeDip { first, step, count });
    Ok(())
}

fn read_vxlan(words: &mut LineWords<'_>, config: &mut Config) -> LineOutcome {
    let parts = words.check_count(7..=7)?;
    let (local, remote) = (
        parse_range(parts[3], parts[4])?,
        parse_range(parts[5], parts[6])?,
    );
    config.vxlans.push(Vxlan {
        vni: words.number_in_range(parts[0], number::loose, 1..=0xff_ffff)?,
        src_mac: parse_mac(parts[1])?,
        dst_mac: parse_mac(parts[2])?,
        local: local.first,
        local_count: local.count,
        remote: remote.first,
        remote_count: remote.count,
    });
    Ok(())
}

/// Arguments of `rss` for hashes, longest first.
const HASHES: [(&[&str], RssHash); 5] = [
    (&["auto", "l3l4"], RssHash::AutoL3L4),
    (&["auto", "l3"], RssHash::AutoL3),
    (&["auto"], RssHash::Auto),
    (&["l3l4"], RssHash::L3L4),
    (&["l3"], RssHash::L3),
];

fn read_rss(words: &mut LineWords<'_>, config: &mut Config) -> LineOutcome {
    if config.rss.is_some() {
        words.add_warning(Code::Repeated, "is already on");
    }
    let mut rest = words.words;
    let mut rss = Rss::default();
    if let Some((taken, hash)) = HASHES.iter().find(|(w, _)| rest.starts_with(w)) {
        rss.hash = Some(*hash);
        rest = &rest[taken.len()..];
    }
    let auto = matches!(
        rss.hash,
        Some(RssHash::Auto | RssHash::AutoL3 | RssHash::AutoL3L4)
    );
    match rest.first() {
        Some(&"mq_rx_rss") => (rss.queues, rest) = (Some(RssQueues::Rss), &rest[1..]),
        Some(&"mq_rx_none") if auto => (rss.queues, rest) = (Some(RssQueues::None), &rest[1..]),
        _ => {}
    }
    if rss != Rss::default() {
        words.add_warning(
            Code::Deprecated,
            "dperf 1.8 and later ignore its arguments; here they are a preference, and the report names the method used",
        );
    }
    if let Some(word) = rest.first() {
        words.add_warning(Code::Read, format!("{} is ignored", quoted(word)));
    }
    config.rss = Some(rss);
    Ok(())
}

fn show_rss(rss: Rss) -> String {
    let hash = HASHES.iter().find(|(_, hash)| Some(*hash) == rss.hash);
    let mut words: Vec<&str> = hash.map_or(Vec::new(), |(words, _)| words.to_vec());
    words.extend(rss.queues.map(|queues| match queues {
        RssQueues::Rss => "mq_rx_rss",
        RssQueues::None => "mq_rx_none",
    }));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_documented() {
        let mut names: Vec<_> = KEYWORDS
            .iter()
            .flat_map(|k| k.aliases.iter().copied().chain([k.name]))
            .collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        assert!(
            KEYWORDS
                .iter()
                .all(|k| k.doc.ends_with('.') && !k.allowed.is_empty())
        );
    }

    #[test]
    fn misspelt_keywords() {
        assert_eq!(nearest_keyword("keep_alive"), Some("keepalive"));
        assert_eq!(nearest_keyword("CPU"), Some("cpu"));
        assert_eq!(nearest_keyword("paylod_size"), Some("payload_size"));
        assert_eq!(nearest_keyword("bandwidth"), None);
        assert_eq!(nearest_keyword(&"x".repeat(1000)), None);
    }

    #[test]
    fn pci_addresses() {
        assert!(is_pci("0000:1b:00.0") && is_pci("1B:00.7"));
        for bad in [
            "0000:1b:00.8",
            "1b:00",
            "0000-1b:00.0",
            "00000:1b:00.0",
            "é:1b:00.0",
        ] {
            assert!(!is_pci(bad), "{bad}");
        }
    }
}
