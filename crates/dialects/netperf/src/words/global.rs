//! The global options of netperf.

use wb_model::{socket::Family, units::Span};

use super::{
    NetperfRefusal, NoteLine, TypedOption, TypedOptions,
    getopt::{NetperfOption, options, usage},
    number, tests_known,
};

type GlobalRow = NetperfOption<TypedOptions>;
type GlobalResult = Result<(), NetperfRefusal>;

/// Longest test, s: the limit of the control message.
const LONGEST: i64 = i32::MAX as i64;
/// Longest path of a fill file on the server: the limit of the control message.
const LONGEST_FILL_FILE: usize = 31;
/// Longest passphrase: the limit of the control message, without its terminator.
const LONGEST_PASSPHRASE: usize = 647;
/// Limit of offsets, widths and similar values.
const LARGEST: i64 = 1 << 30;

/// Options in the order of the usage text.
pub(super) const OPTIONS: &[GlobalRow] = options! {
    '4' Alone "IPv4 for the control connection, and by default for data"
        |t, _| = set_family(t, Family::Ipv4);
    '6' Alone "IPv6 likewise" |t, _| = set_family(t, Family::Ipv6);
    'a' One("send,recv") "align local buffers to this number of bytes (8)" |t, g| = {
        let side = &mut t.job.local;
        let to = [&mut side.send_align, &mut side.receive_align];
        g.set(g.two_values()?, LARGEST, to)
    };
    'A' One("send,recv") "align the server's buffers" |t, g| = {
        let side = &mut t.job.remote;
        let to = [&mut side.send_align, &mut side.receive_align];
        g.set(g.two_values()?, LARGEST, to)
    };
    'b' One("local,remote") "operations in a burst of paced sending, see -w  (*)" |t, g| = {
        let to = [&mut t.job.local.burst, &mut t.job.remote.burst];
        g.set(g.first()?, LARGEST, to)
    };
    'B' One("text") "prefix of result lines without headers, and RESULT_BRAND"
        |t, g| { t.show.brand = Some(g.argument_text().to_owned()); };
    'c' NextNumber("rate") "measure the local CPU utilisation; the rate is not needed" |t, _| {
        t.show.local_cpu = true;
        t.job.local.measure_cpu = true;
    };
    'C' NextNumber("rate") "measure the server's CPU utilisation" |t, _| {
        t.show.remote_cpu = true;
        t.job.remote.measure_cpu = true;
    };
    'd' Alone "more messages; may be repeated" |t, _| { t.debug += 1; };
    'D' One("seconds,units") "results of each interval while the test runs  (*)\n\
        (units and the sign of the seconds change nothing: intervals are exact)" |t, g| = set_demo(t, g);
    'f' One("letter") "unit of throughput: k m g (10^3, 10^6, 10^9 bits), b (bits),\n\
        K M G (2^10, 2^20, 2^30 bytes), B (bytes), x (transactions),\n\
        u (microseconds for a transaction)" |t, g| {
        let letter = g.argument_text().chars().next();
        t.show.unit = Some(letter.ok_or_else(|| g.argument_error("a letter is needed, such as m"))?);
    };
    'F' One("local,remote") "files to fill the buffers of sends from  (*)" |t, g| = fill_files(t, g);
    'h' Alone "show this" |_, _| = Err(NetperfRefusal::to_stderr(usage_text(), 1));
    'H' One("host,family") "the server (localhost); family is 4, 6 or 0  (*)" |t, g| {
        let (host, family) = g.host_and_family(&mut t.notes)?;
        if let Some(host) = host {
            t.show.control.host = Some(host.to_owned());
        }
        if let Some(family) = family {
            t.job.control.family = family;
        }
    };
    'i' One("max,min") "repeat for confidence, 3 to 30 times; level 99, width 5 unless -I"
        |t, g| = set_iterations(t, g);
    'I' One("level,width") "repeat until the mean is known: level 95 or 99 percent,\n\
        width of the whole interval in percent (5)" |t, g| = set_confidence(t, g);
    'j' Alone "record the time of each operation, for the latency selectors"
        |t, _| { t.job.latency = true; };
    'k' One("dirty,clean") "not supported: touch local buffers before each operation" |t, _| = set_dirty(t);
    'K' One("dirty,clean") "not supported: touch the server's buffers" |t, _| = set_dirty(t);
    'l' One("length") "seconds (10); negative: bytes or transactions; 0: until Ctrl-C"
        |t, g| { t.length = Some(g.number(i64::MIN + 1..=LONGEST)?); };
    'L' One("host,family") "local end of the connections  (*)" |t, g| {
        let (host, family) = g.host_and_family(&mut t.notes)?;
        if let Some(host) = host {
            t.job.control.local = Some(host.to_owned());
        }
        if let Some(family) = family {
            t.job.control.local_family = family;
        }
    };
    'n' One("number") "number of CPUs to assume if they cannot be counted"
        |t, g| { t.cpus = Some(g.unsigned(LARGEST)?); };
    'N' Alone "no control connection: use the discard, chargen and echo services"
        |t, _| { t.job.control.none = true; };
    'o' One("send,recv") "offset of local buffers from their alignment (0)" |t, g| = {
        let side = &mut t.job.local;
        let to = [&mut side.send_offset, &mut side.receive_offset];
        g.set(g.two_values()?, LARGEST, to)
    };
    'O' One("send,recv") "offset of the server's buffers" |t, g| = {
        let side = &mut t.job.remote;
        let to = [&mut side.send_offset, &mut side.receive_offset];
        g.set(g.two_values()?, LARGEST, to)
    };
    'p' One("port,ours") "ports of the control connection (12865, any)  (*)" |t, g| {
        let [port, ours] = g.first()?;
        if let Some(port) = port {
            t.job.control.port = g.client_port_of(port, 1)?;
        }
        if let Some(ours) = ours {
            t.job.control.local_port = g.client_port_of(ours, 0)?;
        }
    };
    'P' One("0|1") "whether to print banner and column headers (1)"
        |t, g| { t.show.headers = g.number(i64::MIN..=i64::MAX)? != 0; };
    'r' Alone "repeat for the confidence of the result only, not of the CPUs"
        |t, _| { t.iterations.result_only = true; };
    's' One("seconds") "wait this long between set-up and traffic"
        |t, g| { t.job.wait = Span::from_secs(g.unsigned(LONGEST)?); };
    'S' Alone "SO_KEEPALIVE on data connections" |t, _| { t.job.options.keepalive = true; };
    't' One("test") "what to test (TCP_STREAM); the names are below"
        |t, g| { g.argument_text().clone_into(&mut t.test); };
    'T' One("local,remote") "bind the client, the server to these CPUs" |t, g| = {
        t.show.cpu_bind = true;
        let to = [&mut t.job.local.cpu, &mut t.job.remote.cpu];
        g.set_or_default(g.two_values()?, -1, LARGEST, to)
    };
    'v' One("level") "0: one number; 1: a table; 2: more tables (1)"
        |t, g| { t.show.verbosity = g.unsigned(LARGEST)?; };
    'V' Alone "show the version" |_, _| = Err(NetperfRefusal::to_stdout(super::VERSION, 0));
    'w' One("local,remote") "time between bursts, see -b; a number and us, ms or s (1ms)  (*)"
        |t, g| {
        for (text, to) in g.first()?.into_iter().zip(&mut t.interval) {
            let Some(text) = text else { continue };
            let us = number::parse_microseconds(text).filter(|us| *us <= LONGEST as u64);
            *to = Some(us.ok_or_else(|| {
                g.argument_error("expected a whole number and us, ms or s, at most 35 minutes")
            })?);
        }
    };
    'W' One("send,recv") "buffers used in turn (the number that fits the socket buffer, plus one)" |t, g| = {
        let side = &mut t.job.local;
        let to = [&mut side.send_width, &mut side.receive_width];
        g.set(g.two_values()?, LARGEST, to)
    };
    'y' One("local,remote") "SO_PRIORITY of the data sockets" |t, g| = {
        let to = [&mut t.job.local.priority, &mut t.job.remote.priority];
        g.set_or_default(g.two_values()?, -1, LONGEST, to)
    };
    'Y' One("local,remote") "IP_TOS of the data sockets: 0 to 255, 0x.., af11 to af43, cs0 to cs7,\n\
        ef, lowdelay, throughput, reliability" |t, g| {
        let to = [&mut t.job.local.tos, &mut t.job.remote.tos];
        for (text, to) in g.two_values()?.into_iter().zip(to) {
            let Some(text) = text else { continue };
            *to = number::parse_tos(text).ok_or_else(|| {
                g.argument_error(
                    "expected 0 to 255, 0x.., af11 to af43, cs0 to cs7, ef, lowdelay, throughput or reliability",
                )
            })?;
        }
    };
    'Z' One("passphrase") "passphrase that the server expects; sent in clear text" |t, g| {
        if g.argument_text().len() > LONGEST_PASSPHRASE {
            return Err(NetperfRefusal::usage_error(format_args!(
                "netperf: -Z: the passphrase is longer than {LONGEST_PASSPHRASE} bytes"
            )));
        }
        t.job.control.passphrase = Some(g.argument_text().to_owned());
    };
};

/// Text of `-h`.
pub(super) fn usage_text() -> String {
    let names: Vec<&str> = tests_known::KNOWN.iter().map(|k| k.name).collect();
    format!(
        "\n\
         Usage: netperf [global options] [-- options of the test]\n\n\
         Global options:\n\
         {}\n\
         Of a pair, `a,` sets the first and `,b` the second value. One value without a comma\n\
         sets both, or only the first for options marked (*).\n\n\
         Numbers may end in K, M, G (2^10, 2^20, 2^30) or k, m, g (10^3, 10^6, 10^9).\n\n\
         Tests, in upper or lower case:\n\
             {}\n\
             {}\n\
         `netperf -t TEST -- -h` shows the options of a test.\n",
        usage(OPTIONS),
        names[..8].join(" "),
        names[8..].join(" "),
    )
}

fn set_family(typed: &mut TypedOptions, family: Family) -> GlobalResult {
    typed.job.control.family = family;
    typed.job.control.local_family = family;
    Ok(())
}

fn set_demo(typed: &mut TypedOptions, given: &TypedOption<'_>) -> GlobalResult {
    let [seconds, units] = given.first()?;
    // The original uses the units as a first estimate of an interval; this implementation needs none.
    if let Some(units) = units {
        given.number_of(units, 0..=i64::MAX)?;
    }
    // A negative value selects timing by the clock, which is always used here.
    let seconds = seconds.map_or(Ok(1.0), |s| given.seconds_of(s))?.abs();
    if !(0.001..=86_400.0).contains(&seconds) {
        return Err(given.argument_error("out of range; must be between 0.001 and 86400 seconds"));
    }
    typed.job.interim = Some(Span::from_nanos((seconds * 1e9).round() as u64));
    typed.show.demo = true;
    Ok(())
}

fn fill_files(typed: &mut TypedOptions, given: &TypedOption<'_>) -> GlobalResult {
    let [local, remote] = given.first()?;
    if let Some(local) = local {
        typed.job.local.fill_file = Some(local.to_owned());
    }
    if let Some(remote) = remote {
        if remote.len() > LONGEST_FILL_FILE {
            return Err(NetperfRefusal::to_stderr(
                "Remote fill file name must be less than 32 characters\n",
                255,
            ));
        }
        typed.job.remote.fill_file = Some(remote.to_owned());
    }
    Ok(())
}

fn set_iterations(typed: &mut TypedOptions, given: &TypedOption<'_>) -> GlobalResult {
    let it = &mut typed.iterations;
    given.set(given.two_values()?, LARGEST, [&mut it.max, &mut it.min])?;
    it.max = it.max.max(it.min).clamp(3, 30);
    it.min = it.min.clamp(3, 30);
    if it.level == 0 {
        it.level = 99;
    }
    if it.width == 0.0 {
        it.width = 5.0;
    }
    Ok(())
}

fn set_confidence(typed: &mut TypedOptions, given: &TypedOption<'_>) -> GlobalResult {
    let [level, width] = given.two_values()?;
    let it = &mut typed.iterations;
    if let Some(level) = level {
        it.level = match number::parse_number(level) {
            Some(95) => 95,
            Some(99) => 99,
            _ => 0,
        };
    }
    if it.level == 0 {
        return Err(NetperfRefusal::to_stdout(
            "Only 95% and 99% confidence level is supported\n",
            255,
        ));
    }
    if let Some(width) = width {
        let percent = width.parse::<f64>().ok();
        it.width = percent
            .filter(|w| (0.0..=1e6).contains(w))
            .ok_or_else(|| given.argument_error("the width is not a percentage"))?;
    }
    if it.width == 0.0 {
        it.width = 5.0;
    }
    if it.max == 1 {
        it.max = 10;
    }
    if it.min == 1 {
        it.min = 3;
    }
    Ok(())
}

fn set_dirty(typed: &mut TypedOptions) -> GlobalResult {
    typed.notes.push(NoteLine {
        text: "I don't know how to get dirty.\n".to_owned(),
        to_stdout: true,
    });
    Ok(())
}
