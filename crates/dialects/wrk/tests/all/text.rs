//! Results: the figures that the original passes to its script must give the original's own text, and
//! the figures that it passed to the script.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    thread,
    time::Duration,
};

use wb_wrk::{Stats, WrkResults, banner, results};

use crate::original::{text, wrk};

/// Behaviour of a server for the nth request of a connection.
type Answer = fn(&mut TcpStream, usize) -> std::io::Result<()>;

fn ok(to: &mut TcpStream, _: usize) -> std::io::Result<()> {
    to.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nHello, world\n")
}

/// Serves on loopback until the test ends; returns the URL.
fn server(answer: Answer) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || serve(client, answer));
        }
    });
    format!("http://{address}/")
}

fn serve(mut client: TcpStream, answer: Answer) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    let (mut seen, mut answered) = (Vec::new(), 0);
    let mut buffer = [0; 4096];
    loop {
        let n = client.read(&mut buffer)?;
        if n == 0 {
            return Ok(());
        }
        seen.extend_from_slice(&buffer[..n]);
        while let Some(end) = seen.windows(4).position(|w| w == b"\r\n\r\n") {
            seen.drain(..end + 4);
            answered += 1;
            answer(&mut client, answered)?;
        }
    }
}

/// Prints all values that the script receives.
const SAY: &str = r##"
done = function(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format("#summary %.0f %.0f %.0f %d %d %d %d %d\n", summary.duration, summary.requests,
    summary.bytes, errors.connect, errors.read, errors.write, errors.timeout, errors.status))
  for _, object in ipairs({ latency, requests }) do
    io.write(string.format("#object %.17g %.17g %.17g %.17g", object.min, object.max, object.mean, object.stdev))
    for _, p in ipairs({ 0, 1, 50, 75, 90, 99, 99.9, 99.99, 99.999, 100 }) do
      io.write(string.format(" %.0f", object:percentile(p)))
    end
    io.write("\n#values")
    for i = 1, #object do
      io.write(string.format(" %.0f:%.0f", object(i)))
    end
    io.write("\n")
  end
end
"##;

const PERCENTS: [f64; 10] = [0.0, 1.0, 50.0, 75.0, 90.0, 99.0, 99.9, 99.99, 99.999, 100.0];

/// Results of the original, and the number of latency samples that it took.
struct Measured {
    outcome: WrkResults,
    samples: u64,
}

fn check(name: &str, answer: Answer, options: &str, more: &str) -> Option<Measured> {
    let url = server(answer);
    let script = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.lua"));
    fs::write(&script, format!("{more}{SAY}")).expect("a script");
    let mut words: Vec<String> = options.split(' ').map(str::to_owned).collect();
    words.extend(["-s".to_owned(), script.display().to_string(), url.clone()]);
    let output = wrk(&words)?;
    let command = wb_wrk::wrk("wrk", &words).expect("a command");
    let output = text(&output.stdout);
    let (shown, said): (Vec<&str>, Vec<&str>) =
        output.lines().partition(|line| !line.starts_with('#'));
    let (threads, connections) = (command.threads, command.connections);

    let numbers = |line: &str| -> Vec<f64> {
        (line
            .split(' ')
            .skip(1)
            .map(|n| n.parse().expect("a number")))
        .collect()
    };
    let summary: Vec<u64> = numbers(said[0]).iter().map(|&n| n as u64).collect();
    let mut outcome = WrkResults {
        elapsed_us: summary[0],
        requests: summary[1],
        bytes: summary[2],
        connect_errors: summary[3],
        read_errors: summary[4],
        write_errors: summary[5],
        timeouts: summary[6],
        status_errors: summary[7],
        latency: Stats::default(),
        rate: Stats::new(values(said[4])),
    };
    let corrected = values(said[2]);
    let each = outcome.requests / connections;
    let expected = outcome.elapsed_us.checked_div(each).unwrap_or(u64::MAX / 2);
    let taken = uncorrected(&corrected, expected);
    outcome.latency = Stats::new(taken.iter().copied());
    outcome
        .latency
        .correct_omission(outcome.elapsed_us, outcome.requests, connections);

    for (stats, said, values) in [
        (&outcome.latency, said[1], corrected),
        (&outcome.rate, said[3], values(said[4])),
    ] {
        let said = numbers(said);
        assert_eq!(
            [stats.min() as f64, stats.max() as f64, stats.mean()],
            said[..3],
            "{name}"
        );
        let off = (stats.stdev() - said[3]).abs();
        assert!(
            off <= said[3] * 1e-12,
            "{name}: {} {}",
            stats.stdev(),
            said[3]
        );
        let percentiles = PERCENTS.map(|p| stats.percentile(p) as f64);
        assert_eq!(percentiles, said[4..], "{name}");
        let all: Vec<_> = (0..stats.distinct_values())
            .filter_map(|i| stats.value_at(i))
            .collect();
        assert_eq!(all, values, "{name}");
    }
    let ours =
        banner(&url, command.duration, threads, connections) + &results(&outcome, command.latency);
    assert_eq!(ours.lines().collect::<Vec<_>>(), shown, "{name}");
    assert!(ours.ends_with('\n'));
    Some(Measured {
        outcome,
        samples: taken.iter().map(|&(_, n)| n).sum(),
    })
}

fn values(line: &str) -> Vec<(u64, u64)> {
    let pair = |text: &str| {
        let (value, count) = text.split_once(':').expect("a pair");
        (
            value.parse().expect("a value"),
            count.parse().expect("a count"),
        )
    };
    line.split(' ').skip(1).map(pair).collect()
}

/// Samples without those added by the correction: the largest first, so that each added one is known.
fn uncorrected(corrected: &[(u64, u64)], expected: u64) -> Vec<(u64, u64)> {
    let corrected: BTreeMap<u64, u64> = corrected.iter().copied().collect();
    let mut added: HashMap<u64, u64> = HashMap::new();
    let mut taken = Vec::new();
    for (&value, &count) in corrected.iter().rev() {
        let added = added.entry(value % expected).or_default();
        let more = if value > expected { *added } else { 0 };
        let own = count.checked_sub(more).expect("it has what was added");
        *added += own;
        taken.push((value, own));
    }
    taken
}

#[test]
fn plain_requests() {
    if let Some(run) = check("plain", ok, "-t2 -c9 -d1 -L", "") {
        assert_eq!(run.samples, run.outcome.requests);
        assert!(run.outcome.rate.samples() > 10);
    }
}

#[test]
fn errors_of_status() {
    let refuse: Answer = |to, n| match n % 3 {
        0 => to.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
        _ => ok(to, n),
    };
    if let Some(run) = check("status", refuse, "-t1 -c1 -d1", "") {
        let third = run.outcome.requests / 3;
        assert_eq!(run.outcome.status_errors, third);
    }
}

#[test]
fn silence() {
    if let Some(run) = check("silence", |_, _| Ok(()), "-t1 -c2 -d1 -L", "") {
        assert_eq!((run.outcome.requests, run.samples), (0, 0));
    }
}

#[test]
fn truncated_bodies() {
    let cut: Answer = |to, _| {
        to.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nHello")?;
        // Each end of a connection costs the original a round trip; limit their number.
        wb_testing::disturb(Duration::from_millis(20));
        Err(std::io::ErrorKind::Other.into())
    };
    if let Some(run) = check("truncated", cut, "-t1 -c1 -d1", "") {
        assert!(run.outcome.read_errors > 5 && run.outcome.bytes > 0);
        assert_eq!(run.outcome.requests, 0);
    }
}

#[test]
fn timeouts() {
    let late: Answer = |to, n| {
        wb_testing::disturb(Duration::from_millis(1100));
        ok(to, n)
    };
    if let Some(run) = check("timeouts", late, "-t1 -c1 -d2 -T1", "") {
        assert_eq!(
            (run.outcome.requests, run.outcome.timeouts, run.samples),
            (1, 1, 0)
        );
    }
}

#[test]
fn stalls_are_filled() {
    let stall: Answer = |to, n| {
        wb_testing::disturb(Duration::from_millis(if n % 20 == 0 { 150 } else { 3 }));
        ok(to, n)
    };
    if let Some(run) = check("stalls", stall, "-t1 -c2 -d1 -L", "") {
        assert_eq!(run.samples, run.outcome.requests);
        assert!(run.outcome.latency.samples() > run.samples);
    }
}

#[test]
fn pipelined_requests() {
    let slow: Answer = |to, n| {
        wb_testing::disturb(Duration::from_millis(if n % 4 == 1 { 2 } else { 0 }));
        ok(to, n)
    };
    let four = "request = function() return wrk.format():rep(4) end\n";
    if let Some(run) = check("pipelined", slow, "-t1 -c1 -d1 -L", four) {
        assert_eq!(run.samples, run.outcome.requests / 4);
        // Includes samples below the smallest one, which are only counted.
        let latency = &run.outcome.latency;
        let values: u64 = (0..latency.distinct_values())
            .filter_map(|i| latency.value_at(i))
            .map(|(_, n)| n)
            .sum();
        assert!(latency.samples() > values && values >= run.samples);
    }
}
