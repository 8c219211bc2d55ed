//! Repetition, words that are not options, and refusals.

use super::*;

#[test]
fn repetitions() {
    for (line, level, width, min, max) in [
        ("-i 40,2", 99, 5.0, 3, 30),
        ("-i 2", 99, 5.0, 3, 3),
        ("-i 5,", 99, 5.0, 3, 5),
        ("-i ,5", 99, 5.0, 5, 5),
        ("-i 31,40", 99, 5.0, 30, 30),
        ("-i 4,8", 99, 5.0, 8, 8),
        ("-i 3,3 -I 95,10", 95, 10.0, 3, 3),
        ("-I 95,10 -i 3,3", 95, 10.0, 3, 3),
        ("-I 95,2.5", 95, 2.5, 3, 10),
        ("-I 99,", 99, 5.0, 3, 10),
        ("-i 4 -I ,5", 99, 5.0, 4, 4),
        // A single value sets both, as for all such pairs.
        ("-I 95", 95, 95.0, 3, 10),
    ] {
        assert_eq!(
            job(line).confidence,
            confidence(level, width, min, max),
            "{line}"
        );
    }
    assert_eq!(job("-r").confidence, None);
    for line in ["-I 90", "-I ,5", "-I x,5", "-I 95,5 -I 0"] {
        let refusal = refused(line);
        assert_eq!(
            refusal.text,
            "Only 95% and 99% confidence level is supported\n"
        );
        assert_eq!((refusal.code, refusal.to_stdout), (255, true), "{line}");
    }
}

#[test]
fn the_last_occurrence_wins() {
    for (twice, once) in [
        ("-l 5 -l -7", "-l -7"),
        ("-l -5 -l 7", "-l 7"),
        ("-4 -6", "-6"),
        ("-H a,4 -H b", "-4 -L ,0 -H b"),
        ("-H h,6 -4", "-4 -H h"),
        ("-t TCP_RR -t UDP_RR", "-t UDP_RR"),
        ("-T 1 -T ,2", "-T 1,2"),
        ("-D 5 -D 2", "-D 2"),
        ("-- -m 5 -m 6", "-- -m 6"),
        ("-- -m 5 -m 0", ""),
        ("-- -T udp -T tcp", ""),
        ("-- -R 0 -R 1", ""),
        ("-- -G 500 -G 0", ""),
        ("-- -s 5 -s -1", ""),
        ("-- -H a/8 -H a", "-- -H a"),
        ("-- -p 7000 -p ,8000", "-- -p 7000,8000"),
        ("-- -4 -6", "-- -6"),
    ] {
        assert_eq!(job(twice), job(once), "{twice}");
    }
    let show = read("-P 0 -P 1 -v 0 -v 2 -f m -f K -- -k A,B -o").show;
    assert!(show.headers);
    assert_eq!((show.verbosity, show.unit), (2, Some('K')));
    assert_eq!((show.form, show.selection), (OutputForm::Csv, None));
}

#[test]
fn words_that_are_no_options() {
    assert_eq!(job("foo -l 5 bar"), job("-l 5"));
    assert_eq!(job("foo -- bar -m 5 - baz -D"), job("-- -m 5 -D"));
    assert_eq!(job("-- -m 5 -- -D"), job("-- -m 5"));
    // After an option that needs an argument, two dashes are the argument.
    assert!(refused("-t -- -l 5").text.contains("(--)"));
    // A bad global option ends the program; a bad option of a test does not.
    for (line, text) in [
        ("-q", "netperf: invalid option -- 'q'\n\nUsage: netperf "),
        (
            "-l",
            "netperf: option requires an argument -- 'l'\n\nUsage: netperf ",
        ),
        ("-c5", "netperf: invalid option -- '5'\n\nUsage: netperf "),
    ] {
        let refusal = refused(line);
        assert!(refusal.text.starts_with(text), "{}", refusal.text);
        assert_eq!((refusal.code, refusal.to_stdout), (1, false));
    }
    for (line, notes) in [
        ("-- -x -D", vec!["netperf: invalid option -- 'x'\n"]),
        (
            "-- -D -m",
            vec!["netperf: option requires an argument -- 'm'\n"],
        ),
        ("-t TCP_CC -- -kD", vec!["netperf: invalid option -- 'k'\n"]),
    ] {
        let command = read(line);
        let said: Vec<&str> = command.notes.iter().map(|n| n.text.as_str()).collect();
        assert_eq!(said, notes);
        assert!(command.notes.iter().all(|n| !n.to_stdout));
        assert!(command.job().options.no_delay, "{line}");
    }
}

#[test]
fn notes_come_before_all_else() {
    let notes = |line| {
        let notes = read(line).notes;
        let mut lines = notes.iter().map(|n| (n.text.clone(), n.to_stdout));
        let first = lines.next().unwrap();
        (first.0, first.1, notes.len())
    };
    assert!(
        notes("-H h,blah")
            .0
            .starts_with("WARNING! blah not recognized as an address family")
    );
    assert!(notes("-- -L h,blah").1);
    assert_eq!(notes("-- -i 3").2, 1);
    assert_eq!(
        notes("-t TCP_CC -- -V"),
        (
            "Local send copy avoidance not available.\n".to_owned(),
            true,
            2
        )
    );
    assert_eq!(notes("-t TCP_CC -- -aA").2, 2);
    assert_eq!(refused("-k 1 -l x").notes.len(), 1);
    assert_eq!(refused("-k 1 -t UDP_STREAM -- -m 70000").notes.len(), 1);
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    for (line, text) in [
        (
            "-l abc",
            "netperf: -l abc: expected a whole number, optionally followed by K M G ",
        ),
        ("-l 1.5", "netperf: -l 1.5: expected a whole number"),
        (
            "-l 99999999999",
            "netperf: -l 99999999999: 99999999999 is out of range; must be between -9223372036854775807 and 2147483647\n",
        ),
        ("-P x", "netperf: -P x: expected a whole number"),
        (
            "-v -1",
            "netperf: -v -1: -1 is out of range; must be between 0 and ",
        ),
        (
            "-p 12x",
            "netperf: -p 12x: not a port number; must be between 1 and 65535\n",
        ),
        ("-p 0", "netperf: -p 0: not a port number"),
        (
            "-p ,65536",
            "netperf: -p ,65536: not a port number; must be between 0 and 65535",
        ),
        ("-T x", "netperf: -T x: expected a whole number"),
        (
            "-T 0,-2",
            "netperf: -T 0,-2: -2 is out of range; must be between -1 and ",
        ),
        ("-y -2", "netperf: -y -2: -2 is out of range"),
        ("-Y 300", "netperf: -Y 300: expected 0 to 255, "),
        ("-Y foo", "netperf: -Y foo: expected 0 to 255, "),
        ("-D x", "netperf: -D x: not a number of seconds"),
        ("-D nan", "netperf: -D nan: not a number of seconds"),
        (
            "-D 0",
            "netperf: -D 0: out of range; must be between 0.001 and 86400 seconds\n",
        ),
        ("-D 1,x", "netperf: -D 1,x: expected a whole number"),
        ("-s x", "netperf: -s x: expected a whole number"),
        (
            "-w 5x",
            "netperf: -w 5x: expected a whole number and us, ms or s, at most 35 minutes",
        ),
        (
            "-w 2148s",
            "netperf: -w 2148s: expected a whole number and us, ms or s, at most 35 minutes",
        ),
        ("-b 1 -w 0", "netperf: -w: must be above 0 with bursts"),
        (
            "-I 95,x",
            "netperf: -I 95,x: the width is not a percentage\n",
        ),
        ("-i x", "netperf: -i x: expected a whole number"),
        ("-a 7", "netperf: -a: must be a power of two"),
        (
            "-A ,",
            "netperf: -A ,: no value given; use `a`, `a,b`, `a,` or `,b`\n",
        ),
        ("-W 1,2,3", "netperf: -W 1,2,3: expected a whole number"),
        ("-- -m 5T", "netperf: -- -m 5T: expected a whole number"),
        (
            "-- -m 2G",
            "netperf: -- -m 2G: 2147483648 is out of range; must be between -1 and 1073741824\n",
        ),
        (
            "-- -s 9999999999G",
            "netperf: -- -s 9999999999G: expected a whole number",
        ),
        ("-- -m -5", "netperf: -- -m -5: -5 is out of range"),
        (
            "-t TCP_RR -- -r 0,1",
            "netperf: -- -r 0,1: 0 is out of range; must be between 1 and 1073741824\n",
        ),
        (
            "-t UDP_STREAM -- -m 65508",
            "netperf: -- -m: must be at most 65507 bytes for datagrams, got 65508\n",
        ),
        (
            "-t UDP_RR -- -r 1,65508",
            "netperf: -- -r: must be at most 65507 bytes for datagrams, got 65508",
        ),
        (
            "-- -b 65537",
            "netperf: -- -b 65537: 65537 is out of range; must be between 0 and 65536\n",
        ),
        ("-- -d foo", "netperf: -- -d foo: unknown direction; "),
        ("-- -d 1", "netperf: -- -d 1: unknown direction; "),
        ("-- -T sdp", "netperf: -- -T sdp: unknown protocol; "),
        (
            "-- -t seqpacket",
            "netperf: -- -t seqpacket: unknown socket type; ",
        ),
        ("-- -P http", "netperf: -- -P http: not a port number"),
        (
            "-- -p 7000,6000",
            "netperf: -- -p 7000,6000: ports 7000 to 6000: the first is above the last\n",
        ),
        (
            "-- -K abcdefghijklmnop",
            "netperf: -- -K abcdefghijklmnop: a name has at most 15 bytes\n",
        ),
        (
            "-- -l 256",
            "netperf: -- -l 256: 256 is out of range; must be between 0 and 255\n",
        ),
        (
            "-- -u abcdefghijabcdefghijabcdefghijabcdefgh",
            "netperf: -- -u abcdefghijabcdefghijabcdefghijabcdefgh: at most 37 bytes",
        ),
        (
            "-- -H h/x",
            "netperf: -- -H h/x: the mask length after / is not a number\n",
        ),
        (
            "-- -H /8",
            "netperf: -- -H /8: no host before the mask length\n",
        ),
        (
            "-- -H a,4 -L b,6",
            "netperf: -- -H, -L: both ends of a data connection must have the same IP version\n",
        ),
    ] {
        let refusal = refused(line);
        assert!(refusal.text.starts_with(text), "{line}: {}", refusal.text);
        assert_eq!(refusal.text.matches('\n').count(), 1, "{line}");
        let port = !line.contains("-- -p") && text.contains("not a port number");
        let code = if port { 255 } else { 1 };
        assert_eq!((refusal.code, refusal.to_stdout), (code, false), "{line}");
    }
    for (line, text, code, to_stdout) in [
        ("-V", "Netperf version 2.7.0\n", 0, true),
        (
            "-F ,abcdefghijabcdefghijabcdefghijab",
            "Remote fill file name must be less than 32 characters\n",
            255,
            false,
        ),
        (
            "-- -H 127.0.0.1/99",
            "Mask length must be between 0 and 32 inclusive for AF_INET\n",
            255,
            true,
        ),
    ] {
        let refusal = refused(line);
        assert_eq!(refusal.text, text, "{line}");
        assert_eq!(
            (refusal.code, refusal.to_stdout),
            (code, to_stdout),
            "{line}"
        );
    }
    let long = "x".repeat(648);
    assert!(
        refused(&format!("-Z {long}"))
            .text
            .starts_with("netperf: -Z: ")
    );
}
