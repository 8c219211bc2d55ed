use proptest::prelude::*;

use super::*;

fn typed(line: &str) -> Result<WrkCommand, WrkExit> {
    let words: Vec<String> = (line.split(' ').filter(|w| !w.is_empty()))
        .map(|w| w.replace('~', " "))
        .collect();
    wrk("wrk", &words)
}

fn accepted(line: &str) -> WrkCommand {
    typed(line).unwrap_or_else(|stop| panic!("{line}: {stop}"))
}

#[test]
fn defaults() {
    let command = accepted("http://h:8080/x");
    let expected = WrkCommand {
        url: Url {
            text: "http://h:8080/x".into(),
            scheme: "http".into(),
            host: "h".into(),
            port: Some("8080".into()),
            target: "/x".into(),
        },
        threads: 2,
        connections: 10,
        duration: 10,
        timeout: 2,
        latency: false,
        script: None,
        headers: vec![],
        arguments: vec![],
        stdout: String::new(),
        warnings: vec![],
    };
    assert_eq!(command, expected);
}

#[test]
fn each_option_by_letter_name_and_short_name() {
    let all = accepted("-t1 -c 1k -d1M -T0 -s a.lua -H A:~1 -L http://h");
    for line in [
        "http://h -Lt1 -c1k -d 1m -T 0s -sa.lua -HA:~1",
        "--threads=1 --connections=1000 --duration 60 --timeout 0 --script a.lua --header A:~1 --latency http://h",
        "--th 1 --c 1~k --d=60s --ti=0h --s=a.lua --head=A:~1 --l -- http://h",
        "-t9 -c1 -d5 -t1 -c1k -d60 -T1 -T0 -s b -s a.lua -H A:~0 -H A:~1 -L -L http://h",
    ] {
        assert_eq!(accepted(line), all, "{line}");
    }
    assert_eq!((all.threads, all.connections, all.duration), (1, 1000, 60));
    assert_eq!((all.timeout, all.latency), (0, true));
    assert_eq!(all.script.as_deref(), Some("a.lua"));
}

#[test]
fn words_behind_the_url_are_the_scripts() {
    for (line, arguments) in [
        ("http://h a -- -b c", "a -b c"),
        ("http://h a -c20 b", "a b"),
        ("-- http://h -b", "-b"),
        ("http://h -- -- x", "-- x"),
    ] {
        assert_eq!(accepted(line).arguments.join(" "), arguments, "{line}");
    }
}

#[test]
fn headers_need_a_colon_and_a_blank() {
    let command = accepted(
        "-H X-A:~b -H Host:~example.com -H Y:z -H Z -H X-A:~c:~d -H E:~ -H x-a:~e http://h",
    );
    let headers: Vec<_> = (command.headers.iter())
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(headers, ["X-A=c: d", "Host=example.com", "E=", "x-a=e"]);
    assert_eq!(command.warnings.len(), 2);
    assert!(command.warnings[0].starts_with("-H Y:z: not sent"));
}

#[test]
fn a_version_is_told_and_the_run_goes_on() {
    let version = "wrk 4.1.0 [epoll] Copyright (C) 2012 Will Glozer\n";
    assert_eq!(accepted("-vv http://h").stdout, version.repeat(2));
    let stop = typed("-v").unwrap_err();
    assert_eq!(stop.stdout, version.to_owned() + &usage());
    assert_eq!((stop.stderr.as_slice(), stop.exit), (&b""[..], 1));
}

#[test]
fn mistakes_are_told_as_the_original_does() {
    for (line, told) in [
        ("", ""),
        ("--help", ""),
        ("-r http://h", ""),
        ("-? http://h", ""),
        ("-d 0 http://h", ""),
        ("-d 1.5 http://h", ""),
        ("-d 1x http://h", ""),
        ("-t0 http://h", ""),
        ("-c x -z", ""),
        ("-h", "wrk: invalid option -- 'h'\n"),
        ("-c", "wrk: option requires an argument -- 'c'\n"),
        (
            "--t 1 http://h",
            "wrk: option '--t' is ambiguous; possibilities: '--threads' '--timeout'\n",
        ),
        ("127.0.0.1:80", "invalid URL: 127.0.0.1:80\n"),
        ("-c0 bad", "invalid URL: bad\n"),
        (
            "-t2 -c1 http://h",
            "number of connections must be >= threads\n",
        ),
        ("-c0 http://h", "number of connections must be >= threads\n"),
    ] {
        let stop = typed(line).unwrap_err();
        assert_eq!(stop.stderr, told.as_bytes(), "{line}");
        assert_eq!((stop.stdout, stop.exit), (usage(), 1), "{line}");
    }
}

/// getopt works on bytes, not on letters.
#[test]
fn of_a_letter_that_is_no_option_the_first_byte_is_told() {
    for line in ["-\u{e9} http://h", "-L\u{e9}c1 http://h"] {
        let stop = typed(line).unwrap_err();
        assert_eq!(stop.stderr, b"wrk: invalid option -- '\xc3'\n");
    }
    let stop = typed("--\u{e9} http://h").unwrap_err();
    let told = "wrk: unrecognized option '--\u{e9}'\n";
    assert_eq!(stop.stderr, told.as_bytes());
}

#[test]
fn what_cannot_be_reached() {
    let url = accepted("https://[::1]/").url;
    let told = |stop: WrkExit| {
        (
            String::from_utf8(stop.stderr).unwrap(),
            stop.stdout,
            stop.exit,
        )
    };
    assert_eq!(
        told(WrkExit::unresolved_host(&url, "Name or service not known")),
        (
            "unable to resolve ::1:https Name or service not known\n".into(),
            String::new(),
            1
        )
    );
    assert_eq!(
        told(WrkExit::no_connection(
            &accepted("http://h:8").url,
            "Connection refused"
        )),
        (
            "unable to connect to h:8 Connection refused\n".into(),
            String::new(),
            1
        )
    );
    assert_eq!(
        told(WrkExit::no_thread(3, "Cannot allocate memory")),
        (
            "unable to create thread 3: Cannot allocate memory\n".into(),
            String::new(),
            2
        )
    );
}

#[test]
fn usage_is_padded() {
    let text = usage();
    let widths: Vec<usize> = text.lines().map(str::len).collect();
    assert_eq!(widths[..13], [54; 13]);
    assert_eq!(widths[13..], [53]);
}

fn word() -> impl Strategy<Value = String> {
    const KNOWN: [&str; 26] = [
        "-t",
        "-c",
        "-d",
        "-s",
        "-H",
        "-L",
        "-T",
        "-v",
        "--",
        "--latency",
        "--th",
        "-t4",
        "-c1k",
        "-d2m",
        "1",
        "0",
        "-1",
        "9999999999999999999k",
        "1m",
        "2h",
        "a: b",
        "X:v",
        ":",
        "http://h/",
        "https://[::1]:1/x#y",
        "",
    ];
    prop_oneof![
        prop::sample::select(&KNOWN[..]).prop_map(str::to_owned),
        any::<String>(),
        "(http|https|ftp)://[a-z:@._0-9]{0,12}(/[ -~]{0,6})?",
    ]
}

proptest! {
    #[test]
    fn any_words_are_run_or_refused(words in prop::collection::vec(word(), 0..8)) {
        match wrk("wrk", &words) {
            Ok(command) => {
                prop_assert!((1..=command.connections).contains(&command.threads), "{command:?}");
                prop_assert!(command.duration >= 1, "{command:?}");
                prop_assert!(!command.url.authority().is_empty(), "{command:?}");
            }
            Err(stop) => {
                prop_assert!(stop.exit <= 1, "{stop:?}");
                prop_assert!(!(stop.stdout.is_empty() && stop.stderr.is_empty()), "{stop:?}");
            }
        }
    }
}
