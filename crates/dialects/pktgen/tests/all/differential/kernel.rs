//! Queries a kernel: makes one script of all steps, runs it in a machine, and records the answers.
//!
//! The answers are text in the language of `play.rs`.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::draw::Step;

/// Beginning of the script: interfaces as `play.rs` knows them, and functions to write and read.
///
/// Bash makes one write per line, so several lines in one write need another program.
const BEGIN: &str = r#"
P=/proc/net/pktgen
export LC_ALL=C
echo 1 >/proc/sys/kernel/printk
ip link set va down; ip link set va address 02:00:00:00:00:0a; ip link set va up
ip link add vq numtxqueues 4 numrxqueues 4 type veth peer name vr numtxqueues 4 numrxqueues 4
ip link set vq address 02:00:00:00:00:0c; ip link set vq up; ip link set vr up
ip link add dn type veth peer name dm
ip addr add 192.0.2.1/24 dev eth0
ip -6 addr flush dev eth0; ip -6 addr flush dev vq
ip addr add fe80::1/64 dev eth0 nodad
failed() { read -r e </tmp/e; printf 'W %s\n' "${e##*: }"; }
w() { if { printf -- "$2" >$P/"$1"; } 2>/tmp/e; then echo W; else failed; fi; }
d() { printf -- "$2" >/tmp/d; if dd if=/tmp/d of=$P/"$1" bs=65536 2>/tmp/e; then echo W; else failed; fi; }
r() { A=(); if { mapfile A <$P/"$1"; } 2>/tmp/e; then printf 'R %s\n' ${#A[@]}; printf %s "${A[@]}"; else echo R 0; fi; }
s() { a=$EPOCHREALTIME; echo start >$P/pgctrl; printf 'S %s %s\n' ${a/./} ${EPOCHREALTIME/./}; }
steps() {
"#;

const END: &str = "}
uname -r
steps >/tmp/o
gzip -c /tmp/o | base64
";

/// Bytes in the syntax of bash's `printf` within single quotes.
fn quoted(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b" .,:=_-".contains(byte) {
            text.push(char::from(*byte));
        } else {
            write!(text, "\\{byte:03o}").unwrap();
        }
    }
    text
}

fn script(steps: &[Step]) -> String {
    let mut script = BEGIN.to_owned();
    for step in steps {
        match step {
            Step::Sequence | Step::Part(_) => continue,
            Step::Fresh => script.push_str("echo reset >$P/pgctrl"),
            Step::Run => script.push('s'),
            Step::Read { file } => write!(script, "r {file}").unwrap(),
            Step::Write { file, bytes } => {
                let lines = bytes[..bytes.len() - 1].contains(&b'\n');
                let how = if lines { 'd' } else { 'w' };
                write!(script, "{how} {file} '{}'", quoted(bytes)).unwrap();
            }
        }
        script.push('\n');
    }
    script + END
}

/// Frames of a capture that contain the magic number of the generator.
fn frames(pcap: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut rest = &pcap[24..];
    while rest.len() >= 16 {
        let len = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        let frame = &rest[16..16 + len];
        if frame.windows(4).any(|w| w == [0xbe, 0x9b, 0xe9, 0x55]) {
            frames.push(frame.to_vec());
        }
        rest = &rest[16 + len..];
    }
    frames
}

fn is_base64(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=')
}

fn unpack(text: &str) -> Vec<u8> {
    let mut child = Command::new("sh")
        .args(["-c", "base64 -d | gzip -dc"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sh");
    let mut stdin = child.stdin.take().unwrap();
    let text = text.to_owned();
    let writer = std::thread::spawn(move || std::io::Write::write_all(&mut stdin, text.as_bytes()));
    let output = child.wait_with_output().expect("base64 and gzip");
    writer.join().unwrap().expect("the answer is taken");
    output.stdout
}

/// Bytes escaped for a single line.
pub(crate) fn escape(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        match byte {
            b'\n' => text.push_str("\\n"),
            b'\\' => text.push_str("\\\\"),
            0x20..=0x7e => text.push(char::from(*byte)),
            other => write!(text, "\\x{other:02x}").unwrap(),
        }
        text
    })
}

/// Answers of the kernel that `program` runs.
pub(crate) fn ask(program: &str, steps: &[Step], folder: &Path) -> String {
    let (script_file, pcap) = (folder.join("script"), folder.join("pcap"));
    std::fs::write(&script_file, script(steps)).unwrap();
    let output = Command::new(program)
        .args([&script_file, &pcap])
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{program}: {}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let (release, answers) = text.split_once('\n').expect("the release");
    // The output may share a console with kernel messages.
    let packed: Vec<_> = answers
        .lines()
        .filter(|l| l.chars().all(is_base64))
        .collect();
    let answers = unpack(&packed.join("\n"));
    let mut frames = frames(&std::fs::read(&pcap).unwrap()).into_iter();
    let mut lines = answers.split(|b| *b == b'\n');
    let mut told = format!("# Linux {release}\n");
    // The frames of a run are recorded once their number is known.
    let mut run_of = None;
    let mut device = String::new();
    for step in steps {
        match step {
            Step::Part(name) => writeln!(told, "part {name}").unwrap(),
            Step::Sequence => told.push_str("sequence\n"),
            Step::Fresh => told.push_str("fresh\n"),
            Step::Write { file, bytes } => {
                if !file.starts_with("kpktgend") {
                    device.clone_from(file);
                }
                writeln!(told, "> {file} {}", escape(bytes)).unwrap();
                let answer = lines.next().expect("an answer to each write");
                let answer = String::from_utf8_lossy(answer);
                let errno = answer
                    .strip_prefix('W')
                    .unwrap_or_else(|| panic!("{answer}"));
                if !errno.is_empty() {
                    writeln!(told, "!{errno}").unwrap();
                }
            }
            Step::Run => {
                let answer = lines.next().expect("an answer to a start");
                let answer = String::from_utf8_lossy(answer);
                let times = answer
                    .strip_prefix('S')
                    .unwrap_or_else(|| panic!("{answer}"));
                run_of = Some(format!("run{times}\n"));
            }
            Step::Read { file } => {
                let answer = String::from_utf8_lossy(lines.next().expect("a head")).into_owned();
                let number = answer
                    .strip_prefix("R ")
                    .unwrap_or_else(|| panic!("{answer}"));
                let number = number.parse().expect("how many lines");
                let read: Vec<_> = lines.by_ref().take(number).map(escape).collect();
                if let Some(run) = run_of.take() {
                    told.push_str(&run);
                    let sent = read
                        .iter()
                        .find_map(|l| l.trim().strip_prefix("pkts-sofar: "));
                    let sent = sent.and_then(|s| s.split(' ').next()).expect("a count");
                    let sent = if device.starts_with("eth0") {
                        sent.parse().unwrap()
                    } else {
                        0
                    };
                    for frame in frames.by_ref().take(sent) {
                        told.push_str("frame ");
                        for byte in frame {
                            write!(told, "{byte:02x}").unwrap();
                        }
                        told.push('\n');
                    }
                }
                writeln!(told, "< {file}").unwrap();
                for line in read {
                    writeln!(told, "|{line}").unwrap();
                }
            }
        }
    }
    assert_eq!(frames.count(), 0, "frames that no run accounts for");
    told
}
