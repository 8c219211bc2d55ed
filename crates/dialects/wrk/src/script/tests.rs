//! Typical scripts, run with a stub in place of the load engine.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use wb_http1::script::{Script, ScriptError};

use super::*;
use crate::Stats;

mod boundaries;
mod errors;
mod examples;
mod hooks;

const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\nX-Dup: a\r\nX-Dup: b\r\nX-Empty:\r\nX-Fold: one\r\n  two \r\n\
    Content-Length: 13\r\n\r\n";
const BODY: &[u8] = b"Hello, world\n";

/// A stub of the outside with one file, and one host with two addresses.
struct World {
    file: Vec<u8>,
    out: Mutex<String>,
    err: Mutex<String>,
}

impl ScriptIo for World {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        match path {
            "a.lua" => Ok(self.file.clone()),
            _ => Err("No such file or directory".into()),
        }
    }

    fn lookup(&self, host: &str, service: &str) -> Result<Vec<SocketAddr>, String> {
        let port = service.parse().unwrap_or(80);
        match host {
            "127.0.0.1" => Ok(vec![
                ([127, 0, 0, 1], port).into(),
                ([127, 0, 0, 2], port).into(),
            ]),
            "::1" => Ok(vec![(std::net::Ipv6Addr::LOCALHOST, port).into()]),
            "silent" => Ok(vec![([127, 0, 0, 9], port).into()]),
            _ => Err("Name or service not known".into()),
        }
    }

    fn connect(&self, address: SocketAddr) -> Result<(), String> {
        match address.ip().to_string().as_str() {
            "127.0.0.9" => Err("Connection refused".into()),
            _ => Ok(()),
        }
    }

    fn print(&self, bytes: &[u8]) {
        self.out
            .lock()
            .unwrap()
            .push_str(&String::from_utf8_lossy(bytes));
    }

    fn print_error(&self, bytes: &[u8]) {
        self.err
            .lock()
            .unwrap()
            .push_str(&String::from_utf8_lossy(bytes));
    }
}

/// A script, its outside and its threads.
struct Bench {
    world: Arc<World>,
    host: ScriptHost,
    threads: Vec<ThreadScript>,
}

fn settings() -> ScriptSettings {
    ScriptSettings {
        url: "http://127.0.0.1:8081/p?q".into(),
        scheme: "http".into(),
        host: "127.0.0.1".into(),
        port: Some("8081".into()),
        path: "/p?q".into(),
        headers: vec![("X-A".into(), "b".into())],
        file: Some("a.lua".into()),
        arguments: vec!["a".into(), "b".into()],
        trusted: false,
        memory_bytes: 64 << 20,
        give_up: Arc::new(AtomicBool::new(false)),
    }
}

impl Bench {
    fn of(script: impl AsRef<[u8]>, threads: usize) -> Self {
        Self::with(&settings(), script, threads).unwrap()
    }

    fn with(
        settings: &ScriptSettings,
        script: impl AsRef<[u8]>,
        threads: usize,
    ) -> Result<Self, ScriptError> {
        let world = Arc::new(World {
            file: script.as_ref().to_vec(),
            out: Mutex::default(),
            err: Mutex::default(),
        });
        let mut host = ScriptHost::new(settings.clone(), Arc::clone(&world) as Arc<dyn ScriptIo>)?;
        host.resolve()?;
        let threads = (0..threads)
            .map(|_| host.make_thread())
            .collect::<Result<_, _>>()?;
        Ok(Self {
            world,
            host,
            threads,
        })
    }

    /// Output since the last call.
    fn out(&self) -> String {
        std::mem::take(&mut self.world.out.lock().unwrap())
    }

    fn err(&self) -> String {
        std::mem::take(&mut self.world.err.lock().unwrap())
    }

    /// The next request of a thread, as text.
    fn request(&mut self, thread: usize) -> String {
        let mut text = Vec::new();
        let script = &mut self.threads[thread];
        match script.fixed() {
            Some(fixed) => text.extend_from_slice(fixed),
            None => script.request(&mut text).unwrap(),
        }
        String::from_utf8(text).unwrap()
    }

    fn respond(&mut self, thread: usize, status: u16, head: &[u8], body: &[u8]) {
        let script = &mut self.threads[thread];
        if script.wants_responses() {
            script.response(status, head, body).unwrap();
        }
    }

    /// Runs up to `each` exchanges of each thread in turn, until all have stopped; returns their number.
    fn exchange(&mut self, each: usize) -> usize {
        let mut done = 0;
        for _ in 0..each {
            for thread in 0..self.threads.len() {
                if self.threads[thread].stopped() {
                    continue;
                }
                self.request(thread);
                self.respond(thread, 200, HEAD, BODY);
                done += 1;
            }
        }
        done
    }

    fn done(&mut self) -> Result<(), ScriptError> {
        let summary = RunSummary {
            duration_us: 1_000_000,
            requests: 6,
            bytes: 600,
            connect_errors: 1,
            read_errors: 2,
            write_errors: 3,
            status_errors: 4,
            timeouts: 5,
        };
        let latency = Stats::new([(10, 2), (20, 1), (40, 3)]);
        self.host.call_done(&summary, &latency, &Stats::default())
    }
}

/// Lines of a request, with the headers sorted.
fn sorted(request: &str) -> Vec<&str> {
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<&str> = head.split("\r\n").collect();
    lines[1..].sort_unstable();
    lines.push(body);
    lines
}
