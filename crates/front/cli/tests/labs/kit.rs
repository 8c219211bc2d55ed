//! Labs that clean up after themselves, and runs of the binary with their JSON.

use std::{
    fs::{self, File},
    io::Read,
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc::{Receiver, channel},
    },
    time::Duration,
};

pub(crate) use wb_testing::eventually;
use wb_testing::polled;

use crate::left_over_labs::own_prefix;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Returns true if real labs can be made, and prints a message otherwise.
pub(crate) fn privileged() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        wb_testing::skipped("needs root, to make network namespaces");
    }
    root
}

/// The binary.
pub(crate) fn wirebench() -> Command {
    Command::new(env!("CARGO_BIN_EXE_wirebench"))
}

/// A capture with a small receive ring, unless the options size the ring. Without preemption in the kernel, the 512 MiB
/// of the default ring are cleared in one go, which can stop the tests alongside for a second.
pub(crate) fn capture(options: &[&str]) -> Command {
    let mut command = wirebench();
    command.arg("capture").args(options);
    if !options.contains(&"--ring") {
        command.args(["--ring", "16"]);
    }
    command
}

/// Runs the binary to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    wirebench()
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs")
}

/// Runs a command of the system.
pub(crate) fn system(program: &str, arguments: &[&str]) -> Output {
    Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"))
}

/// A lab.
pub(crate) struct Lab {
    pub(crate) name: String,
}

impl Lab {
    /// Brings up a lab with a unique name.
    pub(crate) fn up(kind: &str, options: &[&str]) -> Self {
        let name = format!("{}{}", own_prefix(), NEXT.fetch_add(1, Ordering::Relaxed));
        let lab = Self { name };
        let output = wirebench()
            .args(["lab", "up", kind, "--as", &lab.name])
            .args(options)
            .output()
            .expect("runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        lab
    }

    /// `NODE/IF` of a node's interface.
    pub(crate) fn port(&self, node: &str, interface: &str) -> String {
        format!("wb-{}-{node}/{interface}", self.name)
    }

    /// The namespace of a node.
    pub(crate) fn node(&self, node: &str) -> String {
        format!("wb-{}-{node}", self.name)
    }

    /// The sending port.
    pub(crate) fn a0(&self) -> String {
        self.port("a", "a0")
    }

    /// The receiving port.
    pub(crate) fn b0(&self) -> String {
        self.port("b", "b0")
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = run(&["lab", "down", &self.name, "--force"]);
    }
}

/// A child that does not outlive the test.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self(
            wirebench()
                .args(arguments)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("the binary starts"),
        )
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).expect("it can be signalled");
    }

    /// Waits for the end; panics if it takes longer than `patience`, with the output until then and
    /// the place of each thread.
    pub(crate) fn finish(mut self, patience: Duration) -> Output {
        // A full pipe would block its writer.
        let stdout = reader(self.0.stdout.take());
        let stderr = reader(self.0.stderr.take());
        let ended = polled(patience, || self.0.try_wait().expect("wait"));
        let Some(status) = ended else {
            let threads = threads_of(self.0.id());
            let _ = self.0.kill();
            // Its children may hold the pipe and live on.
            let said = stderr.recv_timeout(Duration::from_secs(5));
            let said = String::from_utf8_lossy(&said.unwrap_or_default()).into_owned();
            panic!("still running after {patience:?}\n{threads}\n{said}");
        };
        Output {
            status,
            stdout: stdout.recv().expect("reads"),
            stderr: stderr.recv().expect("reads"),
        }
    }
}

/// Reads a pipe until its end, in a thread.
fn reader(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (whole, read) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        let _ = whole.send(bytes);
    });
    read
}

/// Name, state, place in the kernel and system call of each thread of a process.
fn threads_of(process: u32) -> String {
    let tasks = fs::read_dir(format!("/proc/{process}/task"));
    let of_one = |task: fs::DirEntry| {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let status = read("status");
        let told = [
            "State:", "SigPnd:", "ShdPnd:", "SigBlk:", "SigIgn:", "SigCgt:",
        ];
        let told = |line: &&str| told.iter().any(|label| line.starts_with(label));
        let state: Vec<&str> = status.lines().filter(told).collect();
        format!(
            "{} {} {} [{}] stack: {}",
            read("comm").trim(),
            state.join(" "),
            read("wchan"),
            read("syscall").trim(),
            read("stack").replace('\n', " "),
        )
    };
    let lines: Vec<String> = tasks.into_iter().flatten().flatten().map(of_one).collect();
    lines.join("\n")
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A capture by this command, once it listens. Its standard output goes to `report.json` in this folder, and its
/// standard error to `said`.
pub(crate) fn listening(dir: &Path, command: &mut Command) -> Running {
    let said = dir.join("said");
    let child = command
        .stdin(Stdio::null())
        .stdout(File::create(dir.join("report.json")).unwrap())
        .stderr(File::create(&said).unwrap())
        .spawn()
        .unwrap();
    let running = Running(child);
    eventually("the capture listens", || {
        let said = fs::read_to_string(&said).unwrap();
        assert!(!said.contains("Error"), "{said}");
        said.contains("listening on ")
    });
    running
}
