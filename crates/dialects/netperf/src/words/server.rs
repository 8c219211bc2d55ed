//! netserver's command line.

use wb_model::socket::{Family, SocketServerJob};

use super::{
    NetperfRefusal, NoteLine, VERSION,
    dashes::with_hyphens,
    getopt::{NetperfOption, options, scan, usage},
};

/// netserver's command line, parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerCommand {
    /// The server.
    pub job: SocketServerJob,
    /// `-D`: stays in the foreground; otherwise the program continues in the background.
    pub foreground: bool,
    /// True if an option makes the server listen itself. Otherwise, if standard input is a socket, it
    /// serves that single connection, as under inetd.
    pub stand_alone: bool,
    /// Number of `-d` options.
    pub debug: u32,
    /// `-v`: verbosity.
    pub verbosity: u32,
    /// `-N`: writes no debug file, even with `-d`.
    pub no_debug_file: bool,
    /// `-n`: assumed number of CPUs if they cannot be counted.
    pub cpus: Option<u32>,
    /// Lines to print first, in this order.
    pub notes: Vec<NoteLine>,
}

type ServerRow = NetperfOption<ServerCommand>;

const OPTIONS: &[ServerRow] = options! {
    '4' Alone "IPv4 only" |s, _| { s.job.family = Family::Ipv4; };
    '6' Alone "IPv6 only" |s, _| { s.job.family = Family::Ipv6; };
    '1' Alone "serve one client that runs a test, and exit" |s, _| { s.job.serves = Some(1); };
    'd' Alone "more messages; may be repeated" |s, _| { s.debug += 1; };
    'D' Alone "stay in the foreground" |s, _| {
        s.foreground = true;
        s.stand_alone = true;
    };
    'f' Alone "serve one client after another" |s, _| {
        s.job.one_by_one = true;
        s.stand_alone = true;
    };
    'h' Alone "show this" |_, _| = Err(NetperfRefusal::to_stderr(usage_text(), 1));
    'L' One("host,family") "address to listen at (all); family is 4, 6 or 0" |s, g| {
        s.stand_alone = true;
        let (host, family) = g.host_and_family(&mut s.notes)?;
        if let Some(host) = host {
            s.job.listen = Some(host.to_owned());
        }
        if let Some(family) = family {
            s.job.family = family;
        }
    };
    'n' One("number") "number of CPUs to assume if they cannot be counted"
        |s, g| { s.cpus = Some(g.unsigned(1 << 30)?); };
    'N' Alone "no message file, even with -d" |s, _| { s.no_debug_file = true; };
    'p' One("port") "port to listen at (12865)" |s, g| {
        s.stand_alone = true;
        s.job.port = g.port_of(g.argument_text(), 0)?;
    };
    'v' One("level") "verbosity of the output" |s, g| { s.verbosity = g.unsigned(1 << 30)?; };
    'V' Alone "show the version" |_, _| = Err(NetperfRefusal::to_stdout(VERSION, 0));
    'Z' One("passphrase") "passphrase that a client must send first; sent in clear text"
        |s, g| { s.job.passphrase = Some(g.argument_text().to_owned()); };
};

/// Parses the words after `netserver`, with the rules of [`netperf`](super::netperf()).
///
/// # Errors
/// Returns output and exit status if the words start no server.
pub fn netserver(words: &[String]) -> Result<ServerCommand, NetperfRefusal> {
    let (words, note) = with_hyphens(words);
    let mut command = ServerCommand {
        notes: note.into_iter().collect(),
        ..ServerCommand::default()
    };
    let result = scan(OPTIONS, &words, "netserver: ", &mut command, |_, bad| {
        Err(NetperfRefusal::to_stderr(
            format!("netserver: {bad}\n{}", usage_text()),
            1,
        ))
    });
    match result {
        Ok(_) => Ok(command),
        Err(refusal) => Err(NetperfRefusal {
            notes: command.notes,
            ..refusal
        }),
    }
}

/// Line on standard output once the server listens, with its line end.
#[must_use]
pub fn start_line(command: &ServerCommand) -> String {
    let (host, port, family) = listen_place(command);
    format!("Starting netserver with host '{host}' port '{port}' and family {family}\n")
}

/// Line on standard error if the server cannot listen anywhere, with its line end; exit status 1.
#[must_use]
pub fn cannot_start(command: &ServerCommand) -> String {
    let (host, port, family) = listen_place(command);
    format!("Unable to start netserver with  '{host}' port '{port}' and family {family}\n")
}

fn listen_place(command: &ServerCommand) -> (&str, u16, &'static str) {
    let host = command.job.listen.as_deref().unwrap_or("IN(6)ADDR_ANY");
    let family = match command.job.family {
        Family::Any => "AF_UNSPEC",
        Family::Ipv4 => "AF_INET",
        Family::Ipv6 => "AF_INET6",
    };
    (host, command.job.port, family)
}

fn usage_text() -> String {
    format!(
        "\nUsage: netserver [options]\n\nOptions:\n{}",
        usage(OPTIONS)
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn read(line: &str) -> Result<ServerCommand, NetperfRefusal> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        netserver(&words)
    }

    /// Option letters of the table.
    pub(crate) fn letters() -> String {
        OPTIONS.iter().map(|o| o.letter).collect()
    }

    #[test]
    fn every_option() {
        let all = read("-D -d -f -d -L h,4 -n 3 -N -p 4444 -v 2 -Z word").unwrap();
        assert_eq!(
            all,
            ServerCommand {
                job: SocketServerJob {
                    listen: Some("h".to_owned()),
                    family: Family::Ipv4,
                    port: 4444,
                    passphrase: Some("word".to_owned()),
                    one_by_one: true,
                    ..SocketServerJob::default()
                },
                foreground: true,
                stand_alone: true,
                debug: 2,
                verbosity: 2,
                no_debug_file: true,
                cpus: Some(3),
                notes: Vec::new(),
            }
        );
        assert_eq!(read("").unwrap(), ServerCommand::default());
        assert_eq!(read("-4").unwrap().job.family, Family::Ipv4);
        assert_eq!(read("-4 -6").unwrap().job.family, Family::Ipv6);
        assert_eq!(read("-p0").unwrap().job.port, 0);
    }

    #[test]
    fn which_options_mean_stand_alone() {
        for line in ["-D", "-f", "-L ::1", "-p 1"] {
            assert!(read(line).unwrap().stand_alone, "{line}");
        }
        for line in ["", "-d", "-N", "-4", "-6", "-n 2", "-v 1", "-Z abc", "word"] {
            assert!(!read(line).unwrap().stand_alone, "{line}");
        }
    }

    /// Lines recorded from the original.
    #[test]
    fn start_lines() {
        for (line, said) in [
            (
                "-p 24001",
                "'IN(6)ADDR_ANY' port '24001' and family AF_UNSPEC",
            ),
            (
                "-4 -p 24002",
                "'IN(6)ADDR_ANY' port '24002' and family AF_INET",
            ),
            (
                "-6 -p 24003",
                "'IN(6)ADDR_ANY' port '24003' and family AF_INET6",
            ),
            (
                "-L 127.0.0.1 -p 1",
                "'127.0.0.1' port '1' and family AF_UNSPEC",
            ),
            (
                "-L 127.0.0.1,4",
                "'127.0.0.1' port '12865' and family AF_INET",
            ),
            ("-L ,4", "'IN(6)ADDR_ANY' port '12865' and family AF_INET"),
            ("-4 -L h", "'h' port '12865' and family AF_INET"),
        ] {
            let command = read(line).unwrap();
            assert_eq!(
                start_line(&command),
                format!("Starting netserver with host {said}\n")
            );
            assert_eq!(
                cannot_start(&command),
                format!("Unable to start netserver with  {said}\n")
            );
        }
    }

    #[test]
    fn refusals() {
        let refusal = |line| read(line).unwrap_err();
        assert_eq!(
            refusal("-V"),
            NetperfRefusal::to_stdout("Netperf version 2.7.0\n", 0)
        );
        for (line, begin) in [
            ("-h", "\nUsage: netserver "),
            (
                "-q",
                "netserver: invalid option -- 'q'\n\nUsage: netserver ",
            ),
            (
                "-p",
                "netserver: option requires an argument -- 'p'\n\nUsage: ",
            ),
            (
                "-p abc",
                "netserver: -p abc: not a port number; must be between 0 and 65535\n",
            ),
            ("-p 65536", "netserver: -p 65536: not a port number"),
            ("-n x", "netserver: -n x: expected a whole number"),
            (
                "-v -1",
                "netserver: -v -1: -1 is out of range; must be between 0 and ",
            ),
        ] {
            let refusal = refusal(line);
            assert!(refusal.text.starts_with(begin), "{line}: {}", refusal.text);
            assert_eq!((refusal.code, refusal.to_stdout), (1, false), "{line}");
        }
        let odd = read("-L h,blah").unwrap();
        assert_eq!(odd.notes.len(), 1);
        assert_eq!(odd.job.family, Family::Any);
    }

    #[test]
    fn usage_names_every_letter() {
        let text = usage_text();
        for letter in letters().chars() {
            assert!(text.contains(&format!("\n    -{letter} ")), "{letter}");
        }
    }
}
