//! Options of OMNI and of the tests based on it.

use wb_model::{
    socket::{Family, ReceiveBy, SendBy, SocketProtocol, SocketType},
    units::{PortRange, Span},
};

use super::{
    DataDirection, NetperfRefusal, NoteLine, OutputForm, TypedOption, TypedOptions,
    getopt::{NetperfOption, options, usage},
};

type OmniRow = NetperfOption<TypedOptions>;
type OmniResult = Result<(), NetperfRefusal>;

/// Largest message and buffer: 1 GiB.
pub(super) const LARGEST: i64 = 1 << 30;
/// Longest word after `-u`.
const LONGEST_UUID: usize = 37;
/// Longest name of a congestion control: the limit of the kernel and of the control message.
const LONGEST_CONGESTION: usize = 15;

/// Options in the order of the usage text.
pub(super) const OPTIONS: &[OmniRow] = options! {
    '4' Alone "IPv4 for data" |t, _| = set_family(t, Family::Ipv4);
    '6' Alone "IPv6 for data" |t, _| = set_family(t, Family::Ipv6);
    'a' Alone "the server accepts once data has arrived (TCP_DEFER_ACCEPT)"
        |t, _| { t.job.options.defer_accept = true; };
    'b' One("number") "further requests in flight (0)"
        |t, g| { t.job.first_burst = g.unsigned(65_536)?; };
    'B' Alone "the server answers datagrams from the address they were sent to"
        |t, _| { t.job.options.packet_info = true; };
    'c' Alone "a connection for each transaction" |t, _| { t.connect_each = true; };
    'C' Alone "TCP_CORK at the local end" |t, _| { t.job.options.cork = true; };
    'd' One("direction") "of OMNI: send, recv, rr, or send|recv; stream, xmit, transmit and 2\n\
        are send, maerts, receive and 4 are recv, 6 is rr" |t, g| { t.direction = parse_direction(g)?; };
    'D' Alone "TCP_NODELAY at both ends" |t, _| { t.job.options.no_delay = true; };
    'e' One("seconds") "timeout of a datagram; then the exchange starts again" |t, g| {
        let seconds = g.unsigned(i64::from(i32::MAX))?;
        t.job.timeout = (seconds > 0).then(|| Span::from_secs(seconds));
    };
    'f' Alone "do not fragment (IP_MTU_DISCOVER)" |t, _| { t.job.options.dont_fragment = true; };
    'F' Alone "TCP Fast Open" |t, _| { t.job.options.fast_open = true; };
    'g' Alone "SO_DEBUG at the local end" |t, _| { t.job.options.debug = true; };
    'G' One("bytes") "TCP_MAXSEG at the local end" |t, g| {
        let bytes = g.unsigned(65_535)?;
        t.job.options.max_segment = (bytes > 0).then_some(bytes);
    };
    'h' Alone "show this" |_, _| = Err(NetperfRefusal::to_stdout(usage_text(), 1));
    'H' One("host[/bits],family") "the server's end of data connections; with a mask length, the host bits\n\
        are random for each iteration  (*)" |t, g| {
        let (host, family) = g.host_and_family(&mut t.notes)?;
        if let Some(host) = host {
            let (host, bits) = split_prefix(g, host)?;
            t.job.data.server = Some(host.to_owned());
            t.job.data.server_prefix = bits;
        }
        if let Some(family) = family {
            t.data_family = family;
        }
    };
    'i' One("number") "no effect" |t, g| {
        t.notes.push(NoteLine {
            text: format!(
                "netperf: -- -i {} has no effect: it was removed in netperf 2.5\n",
                g.argument_text().escape_debug()
            ),
            to_stdout: false,
        });
    };
    'I' Alone "send with write(2)" |t, _| { t.job.local.send_by = SendBy::Write; };
    'j' One("number") "no effect; use the global -j" |_, _| {};
    'k' NextWord("selectors") "results as NAME=value; `?` lists the selectors, `all` selects all,\n\
        else a list with commas, or a file with such lists" |t, g| = set_form(t, g, OutputForm::KeyValue);
    'K' One("local,remote") "TCP's congestion control" |t, g| {
        let [local, remote] = g.two_values()?;
        for (name, to) in [
            (local, &mut t.job.local.congestion),
            (remote, &mut t.job.remote.congestion),
        ] {
            let Some(name) = name else { continue };
            if name.len() > LONGEST_CONGESTION {
                return Err(g.argument_error("a name has at most 15 bytes"));
            }
            *to = Some(name.to_owned());
        }
    };
    'l' One("number") "time to live of multicast datagrams"
        |t, g| { t.job.options.multicast_ttl = Some(g.unsigned(255)?); };
    'L' One("host[/bits],family") "local end of data connections  (*)" |t, g| {
        let (host, family) = g.host_and_family(&mut t.notes)?;
        if let Some(host) = host {
            let (host, bits) = split_prefix(g, host)?;
            t.job.data.local = Some(host.to_owned());
            t.job.data.local_prefix = bits;
        }
        if let Some(family) = family {
            t.data_local_family = family;
        }
    };
    'm' One("local,remote") "bytes of a send (SO_SNDBUF)  (*)" |t, g| = {
        let pair = g.first()?;
        t.require_directions(pair[0].is_some(), pair[1].is_some());
        let to = [&mut t.job.local.send_size, &mut t.job.remote.send_size];
        g.set_or_default(pair, 0, LARGEST, to)
    };
    'M' One("remote,local") "bytes of a receive (SO_RCVBUF); the server's is first  (*)" |t, g| = {
        let pair = g.first()?;
        t.require_directions(pair[0].is_some(), pair[1].is_some());
        let to = [
            &mut t.job.remote.receive_size,
            &mut t.job.local.receive_size,
        ];
        g.set_or_default(pair, 0, LARGEST, to)
    };
    'n' Alone "connect(2) the local datagram socket" |t, _| { t.job.options.connect_local = true; };
    'N' Alone "connect(2) the server's datagram socket" |t, _| { t.job.options.connect_remote = true; };
    'o' NextWord("selectors") "results as CSV" |t, g| = set_form(t, g, OutputForm::Csv);
    'O' NextWord("selectors") "results as a table" |t, g| = set_form(t, g, OutputForm::Human);
    'p' One("min,max") "local ports if each transaction connects (5000,65535)"
        |t, g| = client_ports(t, g);
    'P' One("local,remote") "ports of the data connection (any)" |t, g| = data_ports(t, g);
    'q' One("bytes/s") "SO_MAX_PACING_RATE at the local end" |t, g| {
        let rate: u64 = g.unsigned(i64::MAX / 8)?;
        t.job.local.pacing_bps = (rate > 0).then_some(rate * 8);
    };
    'r' One("request,response") "bytes of a request and of its response (1,1)" |t, g| = {
        t.require_directions(true, true);
        let pair = g.two_values()?;
        for text in pair.into_iter().flatten() {
            g.number_of(text, 1..=LARGEST)?;
        }
        let to = [&mut t.job.request_size, &mut t.job.response_size];
        g.set(pair, LARGEST, to)
    };
    'R' One("0|1") "whether data may be routed (1; 0 for one-way UDP)"
        |t, g| { t.routing = Some(g.number(i64::MIN..=i64::MAX)? != 0); };
    's' One("send,recv") "local socket buffers: SO_SNDBUF, SO_RCVBUF" |t, g| = set_buffers(t, g, false);
    'S' One("send,recv") "the server's socket buffers" |t, g| = set_buffers(t, g, true);
    't' One("stream|dgram") "type of the sockets (by the protocol)" |t, g| {
        t.job.socket_type = Some(match g.argument_text().to_ascii_lowercase().as_str() {
            "stream" => SocketType::Stream,
            "dgram" => SocketType::Dgram,
            _ => return Err(g.argument_error("unknown socket type; use stream or dgram")),
        });
    };
    'T' One("protocol") "tcp, udp, sctp, dccp or udplite" |t, g| {
        t.job.protocol = match g.argument_text().to_ascii_lowercase().as_str() {
            "tcp" => SocketProtocol::Tcp,
            "udp" => SocketProtocol::Udp,
            "sctp" => SocketProtocol::Sctp,
            "dccp" => SocketProtocol::Dccp,
            "udplite" => SocketProtocol::UdpLite,
            _ => {
                return Err(
                    g.argument_error("unknown protocol; use tcp, udp, sctp, dccp or udplite")
                );
            }
        };
        t.protocol_given = true;
        // The protocol sets its default type.
        t.job.socket_type = None;
    };
    'u' One("text") "the selector UUID" |t, g| {
        if g.argument_text().len() > LONGEST_UUID {
            return Err(g.argument_error("at most 37 bytes are allowed"));
        }
        g.argument_text().clone_into(&mut t.show.uuid);
    };
    'U' Alone "try another port if a connection cannot be opened"
        |t, _| { t.job.options.retry_connect = true; };
    'V' Alone "avoid copies: receivers splice(2) to the null device" |t, _| {
        t.show.copy_avoidance = true;
        t.job.local.receive_by = ReceiveBy::Splice;
        t.job.remote.receive_by = ReceiveBy::Splice;
    };
    'w' One("number") "no effect; use the global -w" |_, _| {};
    'W' One("number") "send buffers used in turn"
        |t, g| { t.job.local.send_width = g.unsigned(LARGEST)?; };
};

/// Text of `-h`.
fn usage_text() -> String {
    format!(
        "\n\
         Usage: netperf [global options] -- [options of the test]\n\n\
         Options of OMNI and the tests based on it:\n\
         {}\n\
         Of a pair, `a,` sets the first and `,b` the second value. One value without a comma\n\
         sets both, or only the first for options marked (*).\n",
        usage(OPTIONS)
    )
}

impl TypedOptions {
    /// Records the directions that an option requires.
    fn require_directions(&mut self, send: bool, receive: bool) {
        self.implied.send |= send;
        self.implied.receive |= receive;
    }
}

pub(super) fn set_family(typed: &mut TypedOptions, family: Family) -> OmniResult {
    typed.data_family = family;
    typed.data_local_family = family;
    Ok(())
}

/// Words joined by bars. 0 leaves the choice to the other options.
fn parse_direction(given: &TypedOption<'_>) -> Result<Option<DataDirection>, NetperfRefusal> {
    let mut direction = DataDirection::default();
    for word in given.argument_text().split('|') {
        let word = word.trim().to_ascii_lowercase();
        let (send, receive) = match word.as_str() {
            "send" | "stream" | "xmit" | "transmit" => (true, false),
            "recv" | "receive" | "maerts" => (false, true),
            "rr" => (true, true),
            number => match parse_bits(number) {
                Some(n @ (0 | 2 | 4 | 6)) => (n & 2 != 0, n & 4 != 0),
                _ => {
                    return Err(given.argument_error(
                        "unknown direction; use send, recv, rr, two of them separated by a bar, or 2, 4, 6",
                    ));
                }
            },
        };
        direction.send |= send;
        direction.receive |= receive;
    }
    Ok(Some(direction).filter(|d| *d != DataDirection::default()))
}

fn parse_bits(text: &str) -> Option<u32> {
    text.strip_prefix("0x")
        .map_or_else(|| text.parse(), |hex| u32::from_str_radix(hex, 16))
        .ok()
}

/// Splits `/bits` from a host.
fn split_prefix<'a>(
    given: &TypedOption<'_>,
    host: &'a str,
) -> Result<(&'a str, Option<u8>), NetperfRefusal> {
    let Some((host, length)) = host.split_once('/') else {
        return Ok((host, None));
    };
    // The family of a name is unknown here; the resolver checks the prefix again.
    let (most, family) = if host.parse::<std::net::Ipv4Addr>().is_ok() {
        (32, "AF_INET")
    } else {
        (128, "AF_INET6")
    };
    match length.parse::<u8>() {
        _ if host.is_empty() => Err(given.argument_error("no host before the mask length")),
        Ok(n) if n <= most => Ok((host, Some(n))),
        Ok(_) => Err(NetperfRefusal::to_stdout(
            format!("Mask length must be between 0 and {most} inclusive for {family}\n"),
            255,
        )),
        Err(_) => Err(given.argument_error("the mask length after / is not a number")),
    }
}

fn set_form(typed: &mut TypedOptions, given: &TypedOption<'_>, form: OutputForm) -> OmniResult {
    typed.show.form = form;
    typed.show.selection = given.text.map(str::to_owned);
    Ok(())
}

pub(super) fn client_ports(typed: &mut TypedOptions, given: &TypedOption<'_>) -> OmniResult {
    let [min, max] = given.two_values()?;
    let mut ports = typed.job.client_ports.unwrap_or(PortRange {
        first: 5000,
        last: 65_535,
    });
    if let Some(min) = min {
        ports.first = given.port_of(min, 1)?;
    }
    if let Some(max) = max {
        ports.last = given.port_of(max, 1)?;
    }
    if ports.first > ports.last {
        return Err(given.argument_error(format_args!(
            "ports {} to {}: the first is above the last",
            ports.first, ports.last
        )));
    }
    typed.job.client_ports = Some(ports);
    Ok(())
}

pub(super) fn data_ports(typed: &mut TypedOptions, given: &TypedOption<'_>) -> OmniResult {
    let [local, remote] = given.two_values()?;
    if let Some(local) = local {
        typed.job.data.local_port = given.client_port_of(local, 0)?;
    }
    if let Some(remote) = remote {
        typed.job.data.server_port = given.client_port_of(remote, 0)?;
    }
    Ok(())
}

pub(super) fn set_buffers(
    typed: &mut TypedOptions,
    given: &TypedOption<'_>,
    remote: bool,
) -> OmniResult {
    let side = if remote {
        &mut typed.job.remote
    } else {
        &mut typed.job.local
    };
    let to = [&mut side.send_buffer, &mut side.receive_buffer];
    // 0 is the kernel's minimum.
    given.set_or_default(given.two_values()?, -1, LARGEST, to)
}
