//! Other processes: state, command line and start time.

use std::{fs, str::SplitAsciiWhitespace};

/// Command line of a process as a user would type it, or its short name if the command line is hidden. `None` if the
/// process does not exist.
pub fn command_of(pid: u32) -> Option<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = command_line(&line);
    if !words.is_empty() {
        return Some(words);
    }
    fs::read_to_string(format!("/proc/{pid}/comm"))
        .ok()
        .map(|name| name.trim_end().to_owned())
}

/// Process that holds the BPF program with this id, or its attachment, open. If there are several, the one with the
/// lowest number.
///
/// The kernel does not report an owner, so all processes are searched. `None` for a program without a holder (`ip link
/// set … xdp`), or without the privilege to inspect processes.
pub fn holder_of_program(id: u32) -> Option<u32> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = numbers
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    pids.into_iter().find(|pid| {
        let files = fs::read_dir(format!("/proc/{pid}/fdinfo"));
        let mut texts = files
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|file| fs::read_to_string(file.path()).ok());
        texts.any(|text| holds_program(&text, id))
    })
}

/// Returns true if an `fdinfo` describes the program or a link to it.
fn holds_program(fdinfo: &str, id: u32) -> bool {
    let value = |line: &str| line.strip_prefix("prog_id:")?.trim().parse().ok();
    fdinfo.lines().any(|line| value(line) == Some(id))
}

/// Returns true if a process with this short name is running.
pub fn is_running(name: &str) -> bool {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut names = entries.filter_map(|entry| fs::read_to_string(entry.path().join("comm")).ok());
    names.any(|comm| comm.trim_end() == name)
}

/// Start time of a process in clock ticks since boot. Together with the process id it identifies the process uniquely.
pub fn start_time(pid: u32) -> Option<u64> {
    Some(stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?.1)
}

/// CPU time that a process has used in user and kernel mode, in seconds; 0 if the process does not exist.
pub fn cpu_seconds(pid: u32) -> f64 {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    cpu_ticks(&line).unwrap_or(0) as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Start time of this process.
pub fn own_start_time() -> u64 {
    start_time(std::process::id()).unwrap_or(0)
}

/// Real user of a process.
pub fn user_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns true if this process ignores a signal. A process started by `nohup` ignores SIGHUP.
pub fn ignores(signal: i32) -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| ignored(&status, signal))
}

fn ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok())
        .is_some_and(|m| (1..=64).contains(&signal) && m & (1 << (signal - 1)) != 0)
}

/// Returns true if the process with this id and start time is running. A zombie does not count as running.
pub fn is_alive(pid: u32, start_time: u64) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|text| stat(&text))
        .is_some_and(|(state, started)| started == start_time && !matches!(state, 'Z' | 'X'))
}

/// Fields of a line of `/proc/PID/stat` from the third one, the state.
fn stat_fields(line: &str) -> Option<SplitAsciiWhitespace<'_>> {
    // The second field is the name in parentheses, which may contain blanks and parentheses.
    Some(line[line.rfind(')')? + 1..].split_ascii_whitespace())
}

/// User and system time (fields 14 and 15) of a line of `/proc/PID/stat`.
fn cpu_ticks(line: &str) -> Option<u64> {
    let mut fields = stat_fields(line)?.skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    Some(user + fields.next()?.parse::<u64>().ok()?)
}

/// State and start time (fields 3 and 22) of a line of `/proc/PID/stat`.
fn stat(line: &str) -> Option<(char, u64)> {
    let mut fields = stat_fields(line)?;
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

fn command_line(bytes: &[u8]) -> String {
    let words = bytes
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty());
    words
        .map(String::from_utf8_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read() {
        let status = "Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n";
        let got: Vec<i32> = (0..70).filter(|n| ignored(status, *n)).collect();
        assert_eq!(got, [1, 13]);
        assert!(!ignored("", 1));
    }

    #[test]
    fn descriptors_of_programs_are_read() {
        let link = "pos:\t0\nflags:\t02000002\nlink_type:\txdp\nlink_id:\t7\nprog_id:\t3033\nifindex:\t2\n";
        assert!(holds_program(link, 3033));
        assert!(!holds_program(link, 303) && !holds_program("pos:\t0\n", 0));
    }

    #[test]
    fn stat_lines() {
        let fields = (4..=21)
            .map(|n| n.to_string())
            .collect::<Vec<_>>()
            .join(" ");
        assert_eq!(
            stat(&format!("10 (cat) R {fields} 113748 3133440")),
            Some(('R', 113_748))
        );
        assert_eq!(
            stat(&format!("10 (a) b (c) Z {fields} 7 0\n")),
            Some(('Z', 7))
        );
        assert_eq!(
            cpu_ticks(&format!("10 (a) b (c) Z {fields} 7 0\n")),
            Some(14 + 15)
        );
        assert_eq!(stat("10 (cat) R 4 5"), None);
        assert_eq!(stat(""), None);
    }

    #[test]
    fn command_lines() {
        assert_eq!(
            command_line(b"wirebench\0tx\0-i\0eth0\0"),
            "wirebench tx -i eth0"
        );
        assert_eq!(command_line(b""), "");
    }

    #[test]
    fn this_process_is_alive_and_a_dead_one_is_not() {
        let pid = std::process::id();
        assert!(is_alive(pid, own_start_time()));
        assert!(!is_alive(pid, own_start_time() + 1));
        assert!(command_of(pid).is_some());
        assert_eq!(user_of(pid), Some(rustix::process::getuid().as_raw()));

        let mut child = std::process::Command::new("true").spawn().unwrap();
        let started = start_time(child.id()).unwrap();
        child.wait().unwrap();
        assert!(!is_alive(child.id(), started));
    }

    #[test]
    fn a_zombie_is_not_alive() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let started = start_time(child.id()).unwrap();
        assert!(is_alive(child.id(), started));
        child.kill().unwrap();
        // WNOWAIT leaves the process unreaped: a zombie.
        let pid = rustix::process::Pid::from_child(&child);
        let options =
            rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        rustix::process::waitid(rustix::process::WaitId::Pid(pid), options).unwrap();
        assert!(!is_alive(child.id(), started));
        child.wait().unwrap();
    }
}
