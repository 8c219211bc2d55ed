//! HTTP loads and wrk scripts against a server in this process.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::{Command, Output},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::Value;

/// Requests that a server has read, as `METHOD PATH BODY`, of the body the first 40 bytes.
#[derive(Default)]
struct Seen {
    requests: Mutex<Vec<String>>,
    connections: AtomicU64,
}

struct Server {
    port: u16,
    seen: Arc<Seen>,
}

/// Behaviour of a server.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    /// With 200 and `xk`.
    Plain,
    /// With 413 before it has read the body.
    TooLarge,
    /// With 200 and `xk`; an idle connection gets a 408 after 100 ms and is closed.
    Impatient,
}

impl Server {
    fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Seen::default());
        let shared = Arc::clone(&seen);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                shared.connections.fetch_add(1, Ordering::Relaxed);
                let seen = Arc::clone(&shared);
                thread::spawn(move || serve(stream, manner, &seen));
            }
        });
        Self { port, seen }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// The requests since the last call, and how many of each.
    fn requests(&self) -> Vec<(String, usize)> {
        let mut requests = std::mem::take(&mut *self.seen.requests.lock().unwrap());
        requests.sort();
        let each = requests.chunk_by(|a, b| a == b);
        each.map(|same| (same[0].clone(), same.len())).collect()
    }

    fn connections(&self) -> u64 {
        self.seen.connections.load(Ordering::Relaxed)
    }
}

fn serve(mut stream: TcpStream, manner: Manner, seen: &Seen) -> Option<()> {
    let mut waiting = Vec::new();
    let more = |waiting: &mut Vec<u8>, stream: &mut TcpStream| {
        let mut bytes = [0; 65_536];
        let n = stream.read(&mut bytes).ok().filter(|n| *n > 0)?;
        waiting.extend_from_slice(&bytes[..n]);
        Some(())
    };
    if manner == Manner::Impatient {
        let patience = Some(Duration::from_millis(100));
        stream.set_read_timeout(patience).ok()?;
    }
    loop {
        let end = loop {
            if let Some(at) = waiting.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            if more(&mut waiting, &mut stream).is_none() {
                let late = "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                if manner == Manner::Impatient {
                    stream.write_all(late.as_bytes()).ok()?;
                }
                return None;
            }
        };
        let head = String::from_utf8(waiting.drain(..end).collect()).ok()?;
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let is_length = name.eq_ignore_ascii_case("content-length");
            is_length.then(|| value.trim().parse::<usize>().ok())?
        });
        let length = length.unwrap_or(0);
        if manner == Manner::TooLarge {
            let answer = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig";
            stream.write_all(answer.as_bytes()).ok()?;
        }
        while waiting.len() < length {
            more(&mut waiting, &mut stream)?;
        }
        let body: Vec<u8> = waiting.drain(..length).take(40).collect();
        let line = head.lines().next()?.strip_suffix(" HTTP/1.1")?;
        let request = format!("{line} {}", String::from_utf8_lossy(&body));
        let request = request.trim_end().to_owned();
        seen.requests.lock().unwrap().push(request);
        if manner != Manner::TooLarge {
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nxk";
            stream.write_all(answer.as_bytes()).ok()?;
        }
    }
}

fn wirebench(words: &str) -> Command {
    let mut command = Command::new("timeout");
    command
        .args(["-k", "5", "60", env!("CARGO_BIN_EXE_wirebench")])
        .args(words.split_whitespace());
    command
}

fn texts(output: &Output) -> (String, String) {
    let [out, err] = [&output.stdout, &output.stderr].map(|b| String::from_utf8_lossy(b).into());
    (out, err)
}

/// The job of a run of `wirebench http` that must end with `code`.
fn http(words: &str, code: i32) -> Value {
    let output = wirebench(&format!("http -q --json --allow-unsent {words}"))
        .output()
        .unwrap();
    let (out, err) = texts(&output);
    assert_eq!(output.status.code(), Some(code), "{words}: {err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    report["http"]["jobs"][0].clone()
}

fn count(job: &Value, key: &str) -> u64 {
    match &job["totals"][key] {
        Value::Object(causes) => causes.values().filter_map(Value::as_u64).sum(),
        value => value.as_u64().unwrap(),
    }
}

/// One connection with a script for a second, in a new folder.
fn script(server: &Server, text: &str, files: &[(&str, &str)], trusted: bool) -> (Output, String) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("a.lua", text)].iter().chain(files) {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let trust = if trusted { "--trust-script" } else { "" };
    let output = wirebench(&format!(
        "wrk {trust} -t1 -c1 -d1s -s a.lua {}",
        server.url()
    ))
    .current_dir(folder.path())
    .env("BODY", "body.json")
    .env("RESULTS", "results.csv")
    .output()
    .unwrap();
    let results = fs::read_to_string(folder.path().join("results.csv")).unwrap_or_default();
    (output, results)
}

const BODY: &str = r#"
local function whole(name)
  local file = assert(io.open(name, "rb"))
  local text = file:read("*all")
  file:close()
  return text
end
wrk.method, wrk.path, wrk.body = "POST", "/store", whole(os.getenv("BODY"))
function done(summary, latency)
  local file = io.open(os.getenv("RESULTS"), "a")
  file:write(summary.requests, ",", latency:percentile(50) > 0 and "some" or "none", "\n")
  file:close()
end"#;

const ROUTES: &str = r#"
local routes, at = {}, 0
local file = io.open("routes.txt")
if not file then print("routes.txt is missing") os.exit(3) end
for line in file:lines() do
  local method, path = line:match("^(%u+) (.+)$")
  routes[#routes + 1] = {method, path}
end
file:close()
local words, again = require("words"), (loadfile "words.lua")()
function request()
  at = at % #routes + 1
  return wrk.format(routes[at][1], words.escaped(routes[at][2]), nil, routes[at][1] == "PUT" and again.text or nil)
end"#;

const WORDS: &str = r#"
local words = {text = "hello"}
function words.escaped(path) return (path:gsub(" ", "%%20")) end
return words"#;

#[test]
fn a_trusted_script_reads_files_and_modules() {
    let server = Server::start(Manner::Plain);
    let (output, results) = script(&server, BODY, &[("body.json", "{\"k\": 1}\n")], true);
    assert!(output.status.success(), "{:?}", texts(&output));
    let seen = server.requests();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!(seen[0].0, "POST /store {\"k\": 1}");
    // The last request may be under way at the end.
    let n: usize = results.strip_suffix(",some\n").unwrap().parse().unwrap();
    assert!(n == seen[0].1 || n + 1 == seen[0].1, "{results}: {seen:?}");

    let routes = ("routes.txt", "GET /a b\nPUT /c\nDELETE /d\n");
    let (output, _) = script(&server, ROUTES, &[routes, ("words.lua", WORDS)], true);
    assert!(output.status.success(), "{:?}", texts(&output));
    let seen = server.requests();
    let paths: Vec<&str> = seen.iter().map(|(request, _)| request.as_str()).collect();
    assert_eq!(paths, ["DELETE /d", "GET /a%20b", "PUT /c hello"]);
    let times: Vec<usize> = seen.iter().map(|(_, n)| *n).collect();
    assert!(times.iter().max().unwrap() - times.iter().min().unwrap() <= 1);

    // Its own exit status, before any request.
    let (output, _) = script(&server, ROUTES, &[("words.lua", WORDS)], true);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(texts(&output).0, "routes.txt is missing\n");
    assert_eq!(server.requests(), []);
}

#[test]
fn a_trusted_script_uses_c_and_traces() {
    let server = Server::start(Manner::Plain);
    let text = r#"
local ffi = require("ffi")
ffi.cdef "typedef struct { long seconds, micros; } moment; int gettimeofday(moment *now, void *zone);"
local now = ffi.new("moment")
ffi.C.gettimeofday(now, nil)
local begun = tonumber(now.seconds)
function request()
  local _, text = xpcall(function() return wrk.format(nil, "/traced") end, debug.traceback)
  return text
end
function done()
  ffi.C.gettimeofday(now, nil)
  print(tonumber(now.seconds) - begun >= 1, debug.getinfo(1, "S").short_src)
end"#;
    let (output, _) = script(&server, text, &[], true);
    assert!(output.status.success(), "{:?}", texts(&output));
    let (out, _) = texts(&output);
    assert!(out.ends_with("true\ta.lua\n"), "{out}");
    let seen = server.requests();
    assert!(seen.len() == 1 && seen[0].0 == "GET /traced", "{seen:?}");
}

#[test]
fn a_script_without_trust_is_refused_before_the_run() {
    let server = Server::start(Manner::Plain);
    for text in [BODY, ROUTES, "local ffi = require('ffi')"] {
        let (output, _) = script(&server, text, &[("body.json", "{}")], false);
        let (_, err) = texts(&output);
        assert_eq!(output.status.code(), Some(1), "{err}");
        assert!(err.contains("--trust-script"), "{err}");
        assert_eq!((server.requests(), server.connections()), (vec![], 0));
    }
}

#[test]
fn a_thread_that_stops_sends_nothing_more_and_ends_in_time() {
    let server = Server::start(Manner::Plain);
    for (text, sent) in [
        // The first request is made once before, to check it.
        (
            "local n = 0 function request() if n >= 25 then wrk.thread:stop() else n = n + 1 return wrk.format() end end",
            24,
        ),
        (
            "function response(_, _, body) if body:find('x') then print('found', body) wrk.thread:stop() end end",
            1,
        ),
        (
            "local n = 0 function response() n = n + 1 if n == 10 then wrk.thread:stop() end end",
            10,
        ),
    ] {
        let (output, _) = script(&server, text, &[], false);
        let (out, err) = texts(&output);
        assert!(output.status.success(), "{text}: {err}");
        let line = format!("  {sent} requests in 1.");
        assert!(out.contains(&line), "{text}: {out}");
        let requests: usize = server.requests().iter().map(|(_, n)| n).sum();
        assert_eq!(requests, sent, "{text}");
        assert_eq!(
            out.matches("found\txk").count(),
            usize::from(text.contains("found"))
        );
    }
    // 2,000 requests in one string are one batch, which is sent to its end.
    let text = "function init() local t = {} for i = 1, 2000 do t[i] = wrk.format(nil, '/' .. i) end all = table.concat(t) end\n\
                function request() return all end\n\
                local n = 0 function response() n = n + 1 if n == 10 then wrk.thread:stop() end end";
    let (output, _) = script(&server, text, &[], false);
    let (out, err) = texts(&output);
    assert!(
        output.status.success() && out.contains("requests in 1."),
        "{out}{err}"
    );
    let seen = server.requests();
    assert!(seen.iter().all(|(_, n)| *n == 1), "sent once");
}

#[test]
fn an_answer_before_the_end_of_the_body_counts() {
    let server = Server::start(Manner::TooLarge);
    let text = "wrk.method, wrk.body = 'POST', ('0123456789abcdef'):rep(250000)";
    let (output, _) = script(&server, text, &[], false);
    let (out, err) = texts(&output);
    assert!(output.status.success(), "{err}");
    let read = out.split_once(" requests in 1.").unwrap().0;
    let read: u64 = read.rsplit(' ').next().unwrap().parse().unwrap();
    let line = format!("Non-2xx or 3xx responses: {read}");
    assert!(read > 0 && out.contains(&line), "{out}");
    assert!(!out.contains("Socket errors"), "{out}");

    let folder = tempfile::tempdir().unwrap();
    let body = folder.path().join("body");
    fs::write(&body, vec![b'0'; 4_000_000]).unwrap();
    let words = format!(
        "-n 20 -c 2 -m POST --body-file {} {}",
        body.display(),
        server.url()
    );
    let job = http(&words, 0);
    assert_eq!(job["statuses"]["413"], 20, "{job}");
    let n = ["sent", "completed", "failed"].map(|key| count(&job, key));
    assert_eq!(n, [20, 20, 0], "{job}");
}

#[test]
fn an_idle_connection_that_gets_a_408_is_no_failed_request() {
    let server = Server::start(Manner::Impatient);
    let job = http(&format!("-c 4 --rate 5 -d 1500ms {}", server.url()), 0);
    assert_eq!(count(&job, "failed"), 0, "{job}");
    let [sent, completed] = ["sent", "completed"].map(|key| count(&job, key));
    assert!(sent > 0 && sent == completed, "{job}");
    assert_eq!(job["statuses"]["200"], completed, "{job}");
    assert_eq!(job["statuses"]["408"], Value::Null, "{job}");
    let ended = ["broken_connections", "closed_connections"].map(|key| count(&job, key));
    assert!(ended[0] + ended[1] > 4, "{job}");
}

#[test]
fn no_more_connections_than_requests() {
    let server = Server::start(Manner::Plain);
    let job = http(&format!("-n 3 --rate 30 -c 50 {}", server.url()), 0);
    assert_eq!(count(&job, "completed"), 3, "{job}");
    assert!((1..=3).contains(&server.connections()), "{job}");
}

#[test]
fn a_name_of_which_one_address_refuses_is_reached_by_the_other() {
    // On most machines `localhost` is ::1, too, which refuses.
    let server = Server::start(Manner::Plain);
    let words = format!("-n 40 -c 4 http://localhost:{}/", server.port);
    let job = http(&words, 0);
    let n = ["completed", "failed"].map(|key| count(&job, key));
    assert_eq!(n, [40, 0], "{job}");
}

#[test]
fn a_rate_out_of_reach_is_unsent_and_nothing_else() {
    let server = Server::start(Manner::Plain);
    let words = format!("-t 8 -c 40 --rate 5m -d 1s {}", server.url());
    let output = wirebench(&format!("http -q --json {words}"))
        .output()
        .unwrap();
    let (out, err) = texts(&output);
    // Without --allow-unsent it is invalid.
    assert_eq!(output.status.code(), Some(3), "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    let job = &report["http"]["jobs"][0];
    let [sent, unsent, completed] = ["sent", "unsent", "completed"].map(|key| count(job, key));
    assert_eq!(sent + unsent, 5_000_000, "{}", report["reason"]);
    let seen: usize = server.requests().iter().map(|(_, n)| n).sum();
    assert!(completed as usize <= seen && seen as u64 <= sent);
    assert!(unsent > sent, "{sent}");
}
