//! The live screen on real terminals, emulated by tmux: its contents, its keys, and that the terminal is
//! restored, however the run ends.

use std::{fs, path::PathBuf, process::Command, time::Duration};

use wb_testing::{polled, skipped};

use crate::kit::{Lab, eventually, privileged, system};

/// Lines of a script: after SIGKILL or SIGQUIT another process restores the terminal, at the same time as the script
/// continues. Waits up to 10 s.
const RESTORED: &str = "case $code in 131|137) for i in {1..200}; do \
    stty -a | cmp -s - ${0%script}before && break; sleep 0.05; done;; esac\n";

/// A terminal in which a script runs.
struct Terminal {
    /// Private socket of the tmux.
    socket: String,
    dir: tempfile::TempDir,
}

impl Terminal {
    /// A terminal of this size that runs `command` between two prints of its settings, in a shell with job control;
    /// none without tmux. `{}` is the binary.
    fn run(size: (u16, u16), command: &str) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            skipped("there is no tmux");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let binary = env!("CARGO_BIN_EXE_wirebench");
        let place = dir.path().display();
        let command = command.replace("{}", binary);
        let script = format!(
            "set -m\nstty -a > {place}/before\n{command}\ncode=$?\necho $code > {place}/code\n{RESTORED}\
             stty -a > {place}/after\necho the-end\nwhile ! [ -e {place}/on ]; do sleep 0.05; done\n\
             fg; stty -a > {place}/last; sleep 100\n"
        );
        fs::write(dir.path().join("script"), script).unwrap();
        let terminal = Self {
            socket: dir.path().join("tmux").display().to_string(),
            dir,
        };
        let (width, height) = (size.0.to_string(), size.1.to_string());
        let script = terminal.file("script").display().to_string();
        terminal.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &width,
            "-y",
            &height,
            "-e",
            "LANG=C.UTF-8",
            "-e",
            "LC_ALL=C.UTF-8",
            "bash",
            &script,
        ]);
        Some(terminal)
    }

    fn tmux(&self, words: &[&str]) -> String {
        let mut command = Command::new("tmux");
        // The width that `stty -a` takes is that of the terminal.
        command.env_remove("TMUX").env_remove("COLUMNS");
        command.args(["-S", &self.socket]);
        let output = command.args(words).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "tmux {words:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    fn press(&self, keys: &[&str]) {
        let mut words = vec!["send-keys", "--"];
        words.extend(keys);
        self.tmux(&words);
    }

    /// Waits until the terminal shows this.
    fn shows(&self, what: &str) -> String {
        let shown = || Some(self.text()).filter(|text| text.contains(what));
        polled(Duration::from_secs(20), shown)
            .unwrap_or_else(|| panic!("no {what:?} in:\n{}", self.text()))
    }

    /// Waits until the terminal shows this on a page that is drawn to its last line.
    fn shows_whole(&self, what: &str, size: (u16, u16)) -> String {
        let mut text = String::new();
        eventually(what, || {
            text = self.text();
            text.contains(what) && text.contains("? help")
        });
        is_whole(&text, size);
        text
    }

    fn has_other_screen(&self) -> bool {
        self.tmux(&["display-message", "-p", "#{alternate_on}"])
            .trim()
            == "1"
    }

    fn tty(&self) -> PathBuf {
        self.tmux(&["display-message", "-p", "#{pane_tty}"])
            .trim()
            .into()
    }

    /// The process that runs in the foreground.
    fn process(&self) -> u32 {
        let shell = self.tmux(&["display-message", "-p", "#{pane_pid}"]);
        let children = format!("/proc/{0}/task/{0}/children", shell.trim());
        let children = fs::read_to_string(children).unwrap();
        children.split_whitespace().next().unwrap().parse().unwrap()
    }

    fn signal(&self, signal: &str) {
        let process = self.process().to_string();
        let status = Command::new("kill").args([signal, &process]).status();
        assert!(status.unwrap().success());
    }

    /// Waits for the end of the command. The terminal is as it was before. Returns the exit code and what is shown.
    fn ended(&self) -> (i32, String) {
        eventually("the command ends", || {
            fs::read_to_string(self.file("after")).is_ok_and(|text| text.contains("echo"))
        });
        self.shows("the-end");
        // With the lines that have scrolled off the top.
        let text = self.tmux(&["capture-pane", "-p", "-S", "-"]);
        self.is_sane("after");
        let code = fs::read_to_string(self.file("code")).unwrap();
        (code.trim().parse().unwrap(), text)
    }

    fn is_sane(&self, when: &str) {
        // Without the first line, which has the size.
        let settings = |when| {
            let text = fs::read_to_string(self.file(when)).unwrap();
            text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        eventually("the screen is left", || !self.has_other_screen());
        assert_eq!(settings("before"), settings(when), "stty -a {when}");
        assert_eq!(
            self.tmux(&["display-message", "-p", "#{cursor_flag}"])
                .trim(),
            "1"
        );
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let mut command = Command::new("tmux");
        let _ = command.args(["-S", &self.socket, "kill-server"]).output();
    }
}

/// No line is longer than the terminal, and each page has its title, its tabs and its keys.
fn is_whole(text: &str, size: (u16, u16)) {
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() <= usize::from(size.1));
    assert!(lines[0].starts_with(" wirebench "), "{text}");
    assert!(lines[1].contains("1 Overview"), "{text}");
    assert!(text.contains("? help"), "{text}");
}

fn trial(lab: &Lab, options: &str) -> String {
    format!(
        "{{}} trial --tx {} --rx {} --rate 10kpps --allow-unsent {options}",
        lab.a0(),
        lab.b0()
    )
}

#[test]
fn a_trial_is_shown_page_by_page_and_reported_at_its_end() {
    if !privileged() {
        return;
    }
    for size in [(80, 24), (200, 50)] {
        let lab = Lab::up("pair", &[]);
        let command = trial(&lab, "--duration 8s --criteria 'loss<=1%'");
        let Some(terminal) = Terminal::run(size, &command) else {
            return;
        };
        // The first view may be of a time before the first frame.
        let text = terminal.shows_whole("mean latency", size);
        for word in [
            "Frames",
            "sent",
            "received",
            "missing",
            "mean latency",
            "loss<=1%",
            " left",
            "kpps",
        ] {
            assert!(text.contains(word), "no {word:?} in:\n{text}");
        }
        for (key, word) in [
            ("2", "distribution"),
            ("3", "offered frames"),
            ("4", "tx, 0"),
            ("5", "tx_packets"),
            ("6", "does not search"),
            ("7", "no messages"),
            ("Tab", "Frames"),
            ("?", "stop in order"),
        ] {
            terminal.press(&[key]);
            terminal.shows(word);
        }
        terminal.press(&["Escape"]);
        terminal.press(&["p"]);
        terminal.shows("no pause:");
        let (code, text) = terminal.ended();
        // 3: the tester was late, which tests side by side may make it.
        assert!(matches!(code, 0 | 3), "{code}: {text}");
        assert!(text.contains("rx dropped"), "the report:\n{text}");
    }
}

#[test]
fn the_rate_of_a_load_follows_keys_and_its_sums_hold() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("report.csv");
    let command = format!(
        "{{}} load --client {} --server {} --cps 500 --duration 60s --report {}",
        lab.a0(),
        lab.b0(),
        report.display()
    );
    let Some(terminal) = Terminal::run((80, 24), &command) else {
        return;
    };
    terminal.shows_whole("─ Connections", (80, 24));
    // New connections per second, as in the row.
    let rate = || {
        let text = terminal.text();
        let row = text.lines().find(|line| line.starts_with("  attempted "));
        let cell = row
            .and_then(|row| row.split_whitespace().nth(2))
            .map(str::to_owned);
        cell.and_then(|cell| {
            cell.trim_end_matches("/s")
                .replace(',', "")
                .parse::<u64>()
                .ok()
        })
    };
    eventually("the planned rate", || {
        rate().is_some_and(|n| (480..=520).contains(&n))
    });
    terminal.press(&["+", "+"]);
    terminal.shows("121.0 % of the planned rate");
    eventually("a fifth more", || {
        rate().is_some_and(|n| (590..=620).contains(&n))
    });
    terminal.press(&["p"]);
    terminal.shows("paused");
    eventually("nothing", || rate() == Some(0));
    terminal.press(&["p"]);
    eventually("as before", || {
        rate().is_some_and(|n| (590..=620).contains(&n))
    });
    terminal.press(&["4"]);
    terminal.shows("client, 0");
    terminal.press(&["q"]);
    let (code, text) = terminal.ended();
    assert_eq!(code, 130, "{text}");
    let report = fs::read_to_string(report).unwrap();
    let of = |metric: &str| {
        let mut rows = report
            .lines()
            .map(|line| line.split(',').collect::<Vec<_>>());
        let row = rows.find(|row| row.contains(&metric));
        row.and_then(|row| row.iter().find_map(|cell| cell.parse::<u64>().ok()))
            .unwrap_or_else(|| panic!("no {metric} in {report}"))
    };
    let attempted = of("attempted_connections");
    assert!(attempted > 1_000);
    let ended = of("completed_connections") + of("failed_connections");
    assert_eq!(attempted, ended);
}

#[test]
fn a_capture_is_shown_and_its_lines_come_after() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("frames.pcap").display().to_string();
    let command = format!("{{}} capture -i {} -w {file}", lab.b0());
    let Some(terminal) = Terminal::run((200, 50), &command) else {
        return;
    };
    terminal.shows("listening on");
    let sent = crate::kit::run(&[
        "tx",
        "-i",
        &lab.a0(),
        "--rate",
        "1kpps",
        "--duration",
        "4s",
        // A busy machine may stall the sender.
        "--catch-up",
        "10s",
        "-q",
    ]);
    assert!(sent.status.success());
    // Includes frames that the kernel sends unasked.
    let text = terminal.shows_whole("  4,0", (200, 50));
    for word in [
        "passed the filter",
        "captured",
        "dropped by the kernel",
        "written",
        &lab.b0(),
    ] {
        assert!(text.contains(word), "no {word:?} in:\n{text}");
    }
    terminal.press(&["3"]);
    terminal.shows("file octets");
    terminal.press(&["C-c"]);
    let (code, text) = terminal.ended();
    assert_eq!(code, 0, "{text}");
    assert!(text.contains(" packets captured"), "{text}");
    assert!(text.contains("accounting exact"), "{text}");
}

/// Answers requests at a port of the loopback for as long as the test runs.
fn web_server() -> u16 {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while stream.read(&mut bytes).is_ok_and(|n| n > 0) {
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                    if stream.write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

#[test]
fn an_http_run_is_shown_and_may_take_no_other_rate() {
    let port = web_server();
    for size in [(80, 24), (200, 50)] {
        let command = format!(
            "{{}} http http://127.0.0.1:{port}/ --rate 200 --connections 2 --duration 8s --allow-unsent"
        );
        let Some(terminal) = Terminal::run(size, &command) else {
            return;
        };
        terminal.shows_whole("requests sent", size);
        terminal.press(&["+"]);
        terminal.shows("no rate change: only loads on ports support this");
        terminal.press(&["2"]);
        terminal.shows("HTTP responses");
        let (code, text) = terminal.ended();
        assert_eq!(code, 0, "{text}");
        assert!(text.contains(" + in flight 0"), "{text}");
    }
}

#[test]
fn counters_are_shown_page_by_page_and_their_averages_come_after() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let (a0, b0) = (lab.a0(), lab.b0());
    let probe = "--probe 'kind = \"command\", name = \"broken\", command = \"exit 3\", counters = { n = \"(x)\" }'";
    for (size, keys, code) in [((80, 24), "q", 130), ((200, 50), "C-c", 130)] {
        let command = format!("{{}} stat -i {a0},{b0} --driver --interrupts {probe} 0.5");
        let Some(terminal) = Terminal::run(size, &command) else {
            return;
        };
        terminal.shows_whole("Interfaces in the last", size);
        let sent = crate::kit::run(&["tx", "-i", &a0, "--rate", "1kpps", "--count", "1000", "-q"]);
        assert!(sent.status.success());
        for (key, word) in [
            ("2", "  tx_packets"),
            ("3", "Since the start"),
            ("4", "no dedicated interrupts on these interfaces"),
            ("5", "Driver"),
            ("6", "missing: exit 3: exit status: 3"),
            ("7", "none of these interfaces"),
            ("?", "averages are printed"),
        ] {
            terminal.press(&[key]);
            terminal.shows(word);
        }
        terminal.press(&["Escape", "p"]);
        terminal.shows("no pause: stat does not send traffic");
        terminal.press(&[keys]);
        let (ended, text) = terminal.ended();
        assert_eq!(ended, code, "{text}");
        assert!(
            text.contains("average over") && text.contains("broken: missing"),
            "{text}"
        );
        // Said while the screen was there.
        assert!(
            text.contains("none of these interfaces has its own interrupts"),
            "{text}"
        );
    }
    let command = format!("{{}} stat -i {a0} 0.5");
    for (signal, code) in [("-TERM", 143), ("-KILL", 137)] {
        let Some(terminal) = Terminal::run((80, 24), &command) else {
            return;
        };
        terminal.shows("Interfaces in the last");
        terminal.signal(signal);
        assert_eq!(terminal.ended().0, code, "{signal}");
    }
    for lines in [
        format!("{{}} stat -i {a0} --plain 0.5 6"),
        format!("TERM=dumb {{}} stat -i {a0} 0.5 6"),
        format!("{{}} stat -i {a0} 0.5 4"),
    ] {
        let Some(terminal) = Terminal::run((120, 40), &lines) else {
            return;
        };
        terminal.shows("rx pkt/s");
        assert!(!terminal.has_other_screen(), "{lines}");
        let (code, text) = terminal.ended();
        assert_eq!(code, 0, "{text}");
        assert!(text.contains("average over"), "{lines}: {text}");
    }
}

#[test]
fn q_and_ctrl_c_end_a_run_as_a_signal_does() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    for (keys, code) in [(["q"], 130), (["C-c"], 130)] {
        let command = trial(&lab, "--duration 60s");
        let Some(terminal) = Terminal::run((80, 24), &command) else {
            return;
        };
        terminal.shows("Frames");
        terminal.press(&keys);
        let (ended, text) = terminal.ended();
        assert_eq!(ended, code, "{text}");
        assert!(
            text.contains("sum  offered") && !text.contains("Overview"),
            "{text}"
        );
    }
}

#[test]
fn signals_and_panics_leave_a_sane_terminal() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    for (signal, code) in [
        ("-TERM", 143),
        ("-HUP", 129),
        ("-KILL", 137),
        ("-QUIT", 131),
    ] {
        let command = trial(&lab, "--duration 60s");
        let command = format!("ulimit -c 0; {command}");
        let Some(terminal) = Terminal::run((80, 24), &command) else {
            return;
        };
        terminal.shows("Frames");
        assert!(terminal.has_other_screen());
        terminal.signal(signal);
        let (ended, text) = terminal.ended();
        assert_eq!(ended, code, "{signal}: {text}");
    }
    // In the thread that observes the run; its message is not lost. Only debug builds have this hook.
    if !cfg!(debug_assertions) {
        skipped("a release build does not panic when it is asked to");
        return;
    }
    let command = format!("WIREBENCH_PANIC=1 {}", trial(&lab, "--duration 60s"));
    let Some(terminal) = Terminal::run((80, 24), &command) else {
        return;
    };
    let (code, text) = terminal.ended();
    assert_eq!(code, 101, "{text}");
    assert!(text.contains("WIREBENCH_PANIC is set"), "{text}");
}

/// `timeout` in a script runs a command in the background of a terminal, and no signal of the terminal arrives there.
#[test]
fn a_terminal_that_goes_ends_the_run_in_order() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    for (before, verdict, seconds) in [("", "incomplete", 60), ("trap \"\" HUP; ", "other", 3)] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("json").display().to_string();
        let (process, command) = (
            dir.path().join("process").display().to_string(),
            trial(&lab, &format!("--plain --json --duration {seconds}s")),
        );
        let command = format!(
            "timeout 100 sh -c '{before}echo $$ > {process}; exec {command} > {file}'; true"
        );
        let Some(terminal) = Terminal::run((120, 40), &command) else {
            return;
        };
        terminal.shows("s  run");
        let process = fs::read_to_string(&process).unwrap();
        drop(terminal);
        eventually("the run ends", || {
            !std::path::Path::new(&format!("/proc/{}", process.trim())).exists()
        });
        let report: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(&file).unwrap()).expect("a report");
        let found = &report["verdict"];
        assert_eq!(
            found == "incomplete",
            verdict == "incomplete",
            "{}",
            report["reason"]
        );
    }
}

#[test]
fn a_suspended_run_gives_the_terminal_back_and_takes_it_again() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let Some(terminal) = Terminal::run((80, 24), &trial(&lab, "--duration 60s")) else {
        return;
    };
    terminal.shows("Frames");
    terminal.press(&["C-z"]);
    let (code, _) = terminal.ended();
    assert_eq!(code, 128 + 20, "suspended");
    fs::write(terminal.file("on"), "").unwrap();
    terminal.shows("Frames");
    assert!(terminal.has_other_screen());
    terminal.press(&["q"]);
    eventually("it ends", || {
        fs::read_to_string(terminal.file("last")).is_ok_and(|t| t.contains("echo"))
    });
    terminal.is_sane("last");
}

#[test]
fn a_suspended_run_that_is_killed_leaves_the_terminal_alone() {
    // The script's `fg` finds no job, and the output stays in place.
    let Some(terminal) = Terminal::run((80, 24), "{} stat -i lo 0.2") else {
        return;
    };
    terminal.shows("Interfaces in the last");
    let process = terminal.process().to_string();
    terminal.press(&["C-z"]);
    terminal.ended();
    terminal.tmux(&["send-keys", "-l", "one\rtwo\r"]);
    let before = terminal.shows("two");
    assert!(system("kill", &["-KILL", &process]).status.success());
    eventually("it is gone", || {
        fs::read_to_string(format!("/proc/{process}/stat"))
            .map_or(true, |stat| stat.contains(") Z "))
    });
    eventually("its guard is gone", || {
        let guards = system("pgrep", &["-f", "wb-screen-guard"]).stdout;
        let of_ours = |pid: &str| {
            fs::read_link(format!("/proc/{pid}/fd/2")).is_ok_and(|tty| tty == terminal.tty())
        };
        !String::from_utf8_lossy(&guards).lines().any(of_ours)
    });
    terminal.tmux(&["send-keys", "-l", "three"]);
    let after = terminal.shows("three");
    // The shell reports the kill at any place after the previous text.
    assert!(after.starts_with(before.trim_end()), "{after}");
}

#[test]
fn a_terminal_that_goes_ends_the_run_also_a_suspended_one() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    for keys in [&["2"], &["C-z"]] {
        let command = trial(&lab, "--duration 60s");
        let Some(terminal) = Terminal::run((80, 24), &command) else {
            return;
        };
        terminal.shows("Frames");
        let process = terminal.process();
        terminal.press(keys);
        if keys == &["C-z"] {
            terminal.ended();
        }
        terminal.tmux(&["kill-server"]);
        eventually("the run ends", || {
            fs::read_to_string(format!("/proc/{process}/stat")).is_err()
        });
    }
}

#[test]
fn a_stopped_terminal_does_not_stop_the_run() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("report.csv");
    let command = trial(
        &lab,
        &format!("--duration 15s --report {}", report.display()),
    );
    let Some(terminal) = Terminal::run((80, 24), &command) else {
        return;
    };
    let sent = || {
        let node = lab.node("a");
        let output = system("ip", &["-n", &node, "-s", "-j", "link", "show", "a0"]);
        let links: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        links[0]["stats64"]["tx"]["packets"].as_u64().unwrap()
    };
    terminal.shows("Frames");
    terminal.press(&["C-s"]);
    let more_are_sent = |frames: u64| {
        let before = sent();
        eventually("frames are sent", || sent() > before + frames);
    };
    // Text that was already written may still appear.
    eventually("nothing is written", || {
        let text = terminal.text();
        more_are_sent(5_000);
        terminal.text() == text
    });
    let text = terminal.text();
    more_are_sent(15_000);
    assert_eq!(terminal.text(), text, "nothing is written");
    // The run has ended on time, and its report is there before the terminal can be read again.
    eventually("the report is written", || {
        fs::read_to_string(&report).is_ok_and(|text| text.contains("verdict"))
    });
    assert_eq!(terminal.text(), text, "nothing is written");
    terminal.press(&["C-q"]);
    assert!(matches!(terminal.ended().0, 0 | 3));
}

#[test]
fn a_terminal_may_change_its_size() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let Some(terminal) = Terminal::run((100, 30), &trial(&lab, "--duration 60s")) else {
        return;
    };
    terminal.shows("Frames");
    for (width, height, word) in [
        (20, 5, "too small"),
        (40, 8, "sent"),
        (200, 50, "Mean latency"),
        (80, 24, "Frames"),
    ] {
        let (width, height) = (width.to_string(), height.to_string());
        terminal.tmux(&["resize-window", "-x", &width, "-y", &height]);
        terminal.shows(word);
    }
    terminal.press(&["q"]);
    assert_eq!(terminal.ended().0, 130);
}

#[test]
fn lines_are_given_where_no_screen_is_wanted_or_worth_it() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let long = trial(&lab, "--duration 3s");
    for (what, command) in [
        ("--plain", format!("{long} --plain")),
        ("a dumb terminal", format!("TERM=dumb {long}")),
        ("a pipe", format!("{long} 2>&1 | cat")),
        ("in the background", format!("{long} < /dev/null")),
        (
            "a short run",
            trial(&lab, "--duration 1.2s --interval 200ms"),
        ),
    ] {
        let Some(terminal) = Terminal::run((100, 40), &command) else {
            return;
        };
        eventually(what, || {
            assert!(!terminal.has_other_screen(), "{what}");
            terminal.file("after").exists()
        });
        terminal.ended();
        let text = terminal.tmux(&["capture-pane", "-p", "-S", "-"]);
        assert!(text.contains(" s  run "), "{what}: a live line in\n{text}");
    }
    // Without colours all the same a screen.
    let Some(terminal) = Terminal::run((100, 30), &format!("NO_COLOR=1 {long}")) else {
        return;
    };
    terminal.shows("Frames");
    let colored = terminal.tmux(&["capture-pane", "-p", "-e"]);
    for color in 30..38 {
        assert!(!colored.contains(&format!("\x1b[{color}m")), "{colored:?}");
    }
    assert_eq!(terminal.ended().0, 0);
}
