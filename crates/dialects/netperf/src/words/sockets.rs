//! The options of the older tests: TCP_CC, TCP_SENDFILE, TCP_MSS.

use wb_model::socket::Family;

use super::{
    Note, Refusal, Typed,
    getopt::{Argument::*, Opt, usage},
    omni::{LARGEST, buffers, client_ports, data_ports, family},
};

type Row = Opt<Typed>;

/// The options in the order of the usage text.
pub(super) const OPTIONS: &[Row] = &[
    Opt {
        letter: '4',
        argument: Alone,
        help: "IPv4 for data",
        apply: |t, _| family(t, Family::Ipv4),
    },
    Opt {
        letter: '6',
        argument: Alone,
        help: "IPv6 for data",
        apply: |t, _| family(t, Family::Ipv6),
    },
    Opt {
        letter: 'a',
        argument: Alone,
        help: "not done: POSIX AIO for sends",
        apply: |t, _| aio(t, 'a'),
    },
    Opt {
        letter: 'A',
        argument: Alone,
        help: "not done: POSIX AIO for the server's receives",
        apply: |t, _| aio(t, 'A'),
    },
    Opt {
        letter: 'b',
        argument: One("number"),
        help: "no effect in these tests",
        apply: |_, _| Ok(()),
    },
    Opt {
        letter: 'C',
        argument: Alone,
        help: "TCP_CORK at our end",
        apply: |t, _| {
            t.job.options.cork = true;
            Ok(())
        },
    },
    Opt {
        letter: 'D',
        argument: Alone,
        help: "TCP_NODELAY at both ends",
        apply: |t, _| {
            t.job.options.no_delay = true;
            Ok(())
        },
    },
    Opt {
        letter: 'h',
        argument: Alone,
        help: "show this",
        apply: |_, _| Err(Refusal::out(usage_text(), 1)),
    },
    Opt {
        letter: 'H',
        argument: One("host,family"),
        help: "the server's end of data connections  (*)",
        apply: |t, g| {
            let (host, family) = g.host(&mut t.notes)?;
            if let Some(host) = host {
                t.job.data.server = Some(host.to_owned());
            }
            if let Some(family) = family {
                t.data_family = family;
            }
            Ok(())
        },
    },
    Opt {
        letter: 'L',
        argument: One("host,family"),
        help: "our end of data connections  (*)",
        apply: |t, g| {
            let (host, family) = g.host(&mut t.notes)?;
            if let Some(host) = host {
                t.job.data.local = Some(host.to_owned());
            }
            if let Some(family) = family {
                t.data_local_family = family;
            }
            Ok(())
        },
    },
    Opt {
        letter: 'm',
        argument: One("bytes"),
        help: "bytes of a send (SO_SNDBUF)",
        apply: |t, g| {
            let bytes = g.unsigned(LARGEST)?;
            t.job.local.send_size = (bytes > 0).then_some(bytes);
            Ok(())
        },
    },
    Opt {
        letter: 'M',
        argument: One("bytes"),
        help: "bytes of the server's receives (SO_RCVBUF)",
        apply: |t, g| {
            let bytes = g.unsigned(LARGEST)?;
            t.job.remote.receive_size = (bytes > 0).then_some(bytes);
            Ok(())
        },
    },
    Opt {
        letter: 'n',
        argument: Alone,
        help: "no effect in these tests",
        apply: |_, _| Ok(()),
    },
    Opt {
        letter: 'N',
        argument: Alone,
        help: "no effect in these tests",
        apply: |_, _| Ok(()),
    },
    Opt {
        letter: 'p',
        argument: One("min,max"),
        help: "our ports where each transaction connects (5000,65535)",
        apply: client_ports,
    },
    Opt {
        letter: 'P',
        argument: One("local,remote"),
        help: "ports of the data connection (any)",
        apply: data_ports,
    },
    Opt {
        letter: 'r',
        argument: One("request,response"),
        help: "no effect in these tests",
        apply: |_, _| Ok(()),
    },
    Opt {
        letter: 'R',
        argument: One("0|1"),
        help: "whether data may be routed (1)",
        apply: |t, g| {
            t.routing = Some(g.number(i64::MIN..=i64::MAX)? != 0);
            Ok(())
        },
    },
    Opt {
        letter: 's',
        argument: One("send,recv"),
        help: "our socket buffers: SO_SNDBUF, SO_RCVBUF",
        apply: |t, g| buffers(t, g, false),
    },
    Opt {
        letter: 'S',
        argument: One("send,recv"),
        help: "the server's socket buffers",
        apply: |t, g| buffers(t, g, true),
    },
    Opt {
        letter: 't',
        argument: One("type"),
        help: "no effect in these tests",
        apply: |_, _| Ok(()),
    },
    Opt {
        letter: 'T',
        argument: One("protocol"),
        help: "no effect in these tests",
        apply: |_, _| Ok(()),
    },
    Opt {
        letter: 'V',
        argument: Alone,
        help: "not done in these tests: avoid copies",
        apply: |t, _| {
            for end in ["send", "recv"] {
                t.notes.push(Note {
                    text: format!("Local {end} copy avoidance not available.\n"),
                    to_stdout: true,
                });
            }
            Ok(())
        },
    },
    Opt {
        letter: 'w',
        argument: One("number"),
        help: "no effect; the global -w is meant",
        apply: |_, _| Ok(()),
    },
    Opt {
        letter: 'W',
        argument: One("number"),
        help: "buffers for sends used in turn",
        apply: |t, g| {
            t.job.local.send_width = g.unsigned(LARGEST)?;
            Ok(())
        },
    },
    Opt {
        letter: 'z',
        argument: Alone,
        help: "no effect",
        apply: |_, _| Ok(()),
    },
];

/// What `-h` shows.
fn usage_text() -> String {
    format!(
        "\nUsage: netperf [global options] -- [options of the test]\n\n\
         Options of TCP_SENDFILE, TCP_CC and TCP_MSS:\n{}\n\
         Of a pair, `a,` sets the first and `,b` the second value. One value without a comma\n\
         sets both; where (*) stands, only the first.\n",
        usage(OPTIONS)
    )
}

fn aio(typed: &mut Typed, letter: char) -> Result<(), Refusal> {
    typed.notes.push(Note {
        text: format!("netperf: -- -{letter} has no effect: there is no POSIX AIO here\n"),
        to_stdout: false,
    });
    Ok(())
}
