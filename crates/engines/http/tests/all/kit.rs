//! Minimal servers, and a job against them.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use wb_http::{
    HttpDestination, HttpLoad, HttpThreadControl, HttpThreadOutcome, RequestFiles, Script,
    ThreadTask, run,
};
use wb_model::{
    http::{HttpJob, HttpTotals},
    units::Span,
};

/// A good answer.
pub(crate) const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// Waits, without a word, until the client closes.
pub(crate) fn until_closed(stream: &mut TcpStream) {
    let _ = std::io::copy(stream, &mut std::io::sink());
}

/// A server with this handler, which gets the stream and the number of the connection.
pub(crate) fn server(serve: impl Fn(TcpStream, usize) + Send + Sync + 'static) -> SocketAddr {
    server_at("127.0.0.1:0", serve)
}

/// A server at a given address of this machine.
pub(crate) fn server_at(
    address: &str,
    serve: impl Fn(TcpStream, usize) + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind(address).unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for (n, stream) in listener.incoming().flatten().enumerate() {
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || serve(stream, n));
        }
    });
    address
}

/// Reads up to the end of the next head. Returns `None` after the client has closed.
pub(crate) fn asked(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

/// Gives the same answer to every request of every connection.
pub(crate) fn answers(
    answer: &'static [u8],
    wait: Duration,
) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    let address = server(move |mut stream, _| {
        while let Some(head) = asked(&mut stream) {
            seen.lock().unwrap().push(head);
            wb_testing::disturb(wait);
            if stream.write_all(answer).is_err() {
                return;
            }
        }
    });
    (address, heads)
}

struct NoFiles;

impl RequestFiles for NoFiles {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        Err(format!("{path} is not there"))
    }
}

/// A job of one connection that ends soon and waits longer for a response than a busy machine holds up the server.
pub(crate) fn job() -> HttpJob {
    HttpJob {
        url: "http://test/".to_owned(),
        connections: 1,
        duration: Some(Span::from_millis(300)),
        timeout: Span::from_secs(5),
        ..HttpJob::default()
    }
}

/// Runs it and checks its invariants.
pub(crate) fn carry_out(job: &HttpJob, address: SocketAddr) -> Vec<HttpThreadOutcome> {
    carry_out_in_turn(job, vec![address])
}

/// Runs it with several addresses in turn.
pub(crate) fn carry_out_in_turn(
    job: &HttpJob,
    addresses: Vec<SocketAddr>,
) -> Vec<HttpThreadOutcome> {
    carry_out_with(job, HttpDestination::Addresses(addresses), |_| None)
}

/// Carries out a job with a script for each thread.
pub(crate) fn carry_out_with(
    job: &HttpJob,
    server: HttpDestination,
    script: impl Fn(u32) -> Option<Box<dyn Script>>,
) -> Vec<HttpThreadOutcome> {
    assert_eq!(job.problems(), []);
    let load = HttpLoad::new(job, server, 1, &NoFiles).unwrap();
    let began = Instant::now();
    let outcomes: Vec<HttpThreadOutcome> = std::thread::scope(|scope| {
        let load = &load;
        let threads: Vec<_> = (0..job.threads)
            .map(|index| {
                let task = ThreadTask {
                    index,
                    start_ns: now(),
                    script: script(index),
                    control: Arc::<HttpThreadControl>::default(),
                };
                scope.spawn(move || run(load, task))
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(began.elapsed() < Duration::from_secs(20), "it hangs");
    for outcome in &outcomes {
        let totals = &outcome.totals;
        assert!(totals.adds_up(), "{totals:?}");
        assert_eq!(outcome.latency.count(), totals.completed);
        let by_class: u64 = outcome.classes.values().map(|times| times.count()).sum();
        assert_eq!(by_class, totals.completed);
        assert_eq!(outcome.error, None);
    }
    outcomes
}

pub(crate) fn totals(outcomes: &[HttpThreadOutcome]) -> HttpTotals {
    outcomes
        .iter()
        .fold(HttpTotals::default(), |sum, o| sum + o.totals)
}

fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
