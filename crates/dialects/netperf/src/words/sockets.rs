//! Options of the older tests: TCP_CC, TCP_SENDFILE, TCP_MSS.

use wb_model::socket::Family;

use super::{
    NetperfRefusal, NoteLine, TypedOptions,
    getopt::{NetperfOption, options, usage},
    omni::{LARGEST, client_ports, data_ports, set_buffers, set_family},
};

type SocketsRow = NetperfOption<TypedOptions>;

/// Options in the order of the usage text.
pub(super) const OPTIONS: &[SocketsRow] = options! {
    '4' Alone "IPv4 for data" |t, _| = set_family(t, Family::Ipv4);
    '6' Alone "IPv6 for data" |t, _| = set_family(t, Family::Ipv6);
    'a' Alone "not supported: POSIX AIO for sends" |t, _| = refuse_aio(t, 'a');
    'A' Alone "not supported: POSIX AIO for the server's receives" |t, _| = refuse_aio(t, 'A');
    'b' One("number") "no effect in these tests" |_, _| {};
    'C' Alone "TCP_CORK at the local end" |t, _| { t.job.options.cork = true; };
    'D' Alone "TCP_NODELAY at both ends" |t, _| { t.job.options.no_delay = true; };
    'h' Alone "show this" |_, _| = Err(NetperfRefusal::to_stdout(usage_text(), 1));
    'H' One("host,family") "the server's end of data connections  (*)" |t, g| {
        let (host, family) = g.host_and_family(&mut t.notes)?;
        if let Some(host) = host {
            t.job.data.server = Some(host.to_owned());
        }
        if let Some(family) = family {
            t.data_family = family;
        }
    };
    'L' One("host,family") "local end of data connections  (*)" |t, g| {
        let (host, family) = g.host_and_family(&mut t.notes)?;
        if let Some(host) = host {
            t.job.data.local = Some(host.to_owned());
        }
        if let Some(family) = family {
            t.data_local_family = family;
        }
    };
    'm' One("bytes") "bytes of a send (SO_SNDBUF)" |t, g| {
        let bytes = g.unsigned(LARGEST)?;
        t.job.local.send_size = (bytes > 0).then_some(bytes);
    };
    'M' One("bytes") "bytes of the server's receives (SO_RCVBUF)" |t, g| {
        let bytes = g.unsigned(LARGEST)?;
        t.job.remote.receive_size = (bytes > 0).then_some(bytes);
    };
    'n' Alone "no effect in these tests" |_, _| {};
    'N' Alone "no effect in these tests" |_, _| {};
    'p' One("min,max") "local ports if each transaction connects (5000,65535)"
        |t, g| = client_ports(t, g);
    'P' One("local,remote") "ports of the data connection (any)" |t, g| = data_ports(t, g);
    'r' One("request,response") "no effect in these tests" |_, _| {};
    'R' One("0|1") "whether data may be routed (1)"
        |t, g| { t.routing = Some(g.number(i64::MIN..=i64::MAX)? != 0); };
    's' One("send,recv") "local socket buffers: SO_SNDBUF, SO_RCVBUF" |t, g| = set_buffers(t, g, false);
    'S' One("send,recv") "the server's socket buffers" |t, g| = set_buffers(t, g, true);
    't' One("type") "no effect in these tests" |_, _| {};
    'T' One("protocol") "no effect in these tests" |_, _| {};
    'V' Alone "not supported in these tests: avoid copies" |t, _| {
        for end in ["send", "recv"] {
            t.notes.push(NoteLine {
                text: format!("Local {end} copy avoidance not available.\n"),
                to_stdout: true,
            });
        }
    };
    'w' One("number") "no effect; use the global -w" |_, _| {};
    'W' One("number") "send buffers used in turn"
        |t, g| { t.job.local.send_width = g.unsigned(LARGEST)?; };
    'z' Alone "no effect" |_, _| {};
};

/// Text of `-h`.
fn usage_text() -> String {
    format!(
        "\n\
         Usage: netperf [global options] -- [options of the test]\n\n\
         Options of TCP_SENDFILE, TCP_CC and TCP_MSS:\n\
         {}\n\
         Of a pair, `a,` sets the first and `,b` the second value. One value without a comma\n\
         sets both, or only the first for options marked (*).\n",
        usage(OPTIONS)
    )
}

fn refuse_aio(typed: &mut TypedOptions, letter: char) -> Result<(), NetperfRefusal> {
    typed.notes.push(NoteLine {
        text: format!("netperf: -- -{letter} has no effect: POSIX AIO is not supported\n"),
        to_stdout: false,
    });
    Ok(())
}
