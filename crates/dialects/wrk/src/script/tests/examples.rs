//! Behaviour of wrk's published examples, with equivalent scripts.

use super::*;

#[test]
fn without_a_script_one_text_is_sent_again_and_again() {
    let settings = ScriptSettings {
        file: None,
        ..settings()
    };
    let mut bench = Bench::with(&settings, "", 1).unwrap();
    let text = bench.request(0);
    let expected = ["GET /p?q HTTP/1.1", "Host: 127.0.0.1:8081", "X-A: b", ""];
    assert_eq!(sorted(&text), expected);
    assert!(bench.threads[0].fixed().is_some());
    assert!(!bench.threads[0].delays() && !bench.threads[0].wants_responses());
    assert_eq!(
        bench.threads[0].address().unwrap().to_string(),
        "127.0.0.1:8081"
    );
    assert_eq!(bench.exchange(3), 3);
    bench.done().unwrap();
    assert_eq!((bench.out().as_str(), bench.err().as_str()), ("", ""));
}

#[test]
fn threads_take_addresses_in_turn() {
    let script = r#"
        local known, next_one
        function setup(thread)
            known = known or wrk.lookup(wrk.host, wrk.port)
            next_one = (next_one or 0) % #known + 1
            thread.addr = known[next_one]
        end
        function init() print("I go to " .. tostring(wrk.thread.addr)) end
    "#;
    let bench = Bench::of(script, 3);
    let addresses: Vec<_> = bench
        .threads
        .iter()
        .map(|t| t.address().unwrap().to_string())
        .collect();
    assert_eq!(
        addresses,
        ["127.0.0.1:8081", "127.0.0.2:8081", "127.0.0.1:8081"]
    );
    let told = "I go to 127.0.0.1:8081\nI go to 127.0.0.2:8081\nI go to 127.0.0.1:8081\n";
    assert_eq!(bench.out(), told);
}

#[test]
fn a_token_of_the_first_response_is_used_later() {
    let script = r#"
        local token
        function request()
            if token then
                return wrk.format("GET", "/inside", { ["X-Token"] = token })
            end
            return wrk.format("GET", "/login")
        end
        function response(status, headers)
            if status == 200 and not token then token = headers["X-Token"] end
        end
    "#;
    let mut bench = Bench::of(script, 2);
    assert_eq!(sorted(&bench.request(0))[0], "GET /login HTTP/1.1");
    bench.respond(0, 401, b"HTTP/1.1 401 No\r\nX-Token: not this\r\n\r\n", b"");
    bench.respond(0, 200, b"HTTP/1.1 200 OK\r\nX-Token: f00\r\n\r\n", b"");
    let expected = [
        "GET /inside HTTP/1.1",
        "Host: 127.0.0.1:8081",
        "X-Token: f00",
        "",
    ];
    assert_eq!(sorted(&bench.request(0)), expected);
    // The other thread has separate settings.
    assert_eq!(sorted(&bench.request(1))[0], "GET /login HTTP/1.1");
}

#[test]
fn requests_are_counted_in_path_and_header() {
    let script = r#"
        local n = 0
        function request()
            n = n + 1
            wrk.headers["X-Count"] = n
            return wrk.format(nil, "/" .. n)
        end
    "#;
    let mut bench = Bench::of(script, 2);
    // One earlier request of the first thread was used for the check.
    let expected = [
        "GET /2 HTTP/1.1",
        "Host: 127.0.0.1:8081",
        "X-A: b",
        "X-Count: 2",
        "",
    ];
    assert_eq!(sorted(&bench.request(0)), expected);
    assert_eq!(sorted(&bench.request(1))[0], "GET /1 HTTP/1.1");
    assert_eq!(sorted(&bench.request(0))[0], "GET /3 HTTP/1.1");
}

#[test]
fn delays_are_fixed_or_drawn() {
    let mut bench = Bench::of("function delay() return 20 end", 1);
    assert!(bench.threads[0].delays());
    assert_eq!(bench.threads[0].delay_ms(), Ok(20));
    let mut bench = Bench::of("function delay() return math.random(10, 50) end", 1);
    for _ in 0..100 {
        assert!((10..=50).contains(&bench.threads[0].delay_ms().unwrap()));
    }
    for (given, ms) in [
        ("7.9", 7),
        ("'12'", 12),
        ("-3", 0),
        ("nil", 0),
        ("0/0", 0),
        ("{}", 0),
    ] {
        let mut bench = Bench::of(format!("function delay() return {given} end"), 1);
        assert_eq!(bench.threads[0].delay_ms(), Ok(ms), "{given}");
    }
}

#[test]
fn three_requests_in_a_row() {
    let script = r#"
        function init(args)
            local all = {}
            for n = 1, 3 do all[n] = wrk.format(nil, "/" .. n) end
            row = table.concat(all)
        end
        function request() return row end
    "#;
    let mut bench = Bench::of(script, 1);
    let text = bench.request(0);
    let targets: Vec<_> = text
        .split("\r\n")
        .filter(|line| line.starts_with("GET"))
        .collect();
    assert_eq!(
        targets,
        ["GET /1 HTTP/1.1", "GET /2 HTTP/1.1", "GET /3 HTTP/1.1"]
    );
    assert_eq!(bench.host.pipeline(), 3);
}

#[test]
fn a_body_is_posted() {
    let script = r#"
        wrk.method = "POST"
        wrk.body = "a=1&b=2"
        wrk.headers["Content-Type"] = "application/x-www-form-urlencoded"
    "#;
    let mut bench = Bench::of(script, 1);
    let expected = [
        "POST /p?q HTTP/1.1",
        "Content-Length: 7",
        "Content-Type: application/x-www-form-urlencoded",
        "Host: 127.0.0.1:8081",
        "X-A: b",
        "a=1&b=2",
    ];
    assert_eq!(sorted(&bench.request(0)), expected);
    assert!(bench.threads[0].fixed().is_some());
}

#[test]
fn a_line_of_csv_is_written_at_the_end() {
    let script = r#"
        function done(summary, latency, requests)
            local e = summary.errors
            io.write("requests,duration,bytes,connect,read,write,status,timeout\n")
            io.write(summary.requests, ",", summary.duration, ",", summary.bytes, ",", e.connect, ",", e.read)
            io.write(("%s"):format(","), e.write, ",", e.status, ",", e.timeout, "\n")
            for _, p in pairs({ 50, 90, 99, 99.999 }) do
                io.write(string.format("%g%%,%d\n", p, latency:percentile(p)))
            end
            print(latency.min, latency.max, latency.mean, string.format("%.3f", latency.stdev), #latency)
            for i = 1, #latency do print(latency(i)) end
            print(requests.min, requests.max, #requests, requests:percentile(50))
        end
    "#;
    let mut bench = Bench::of(script, 1);
    bench.done().unwrap();
    let expected = "requests,duration,bytes,connect,read,write,status,timeout\n6,1000000,600,1,2,3,4,5\n\
        50%,40\n90%,40\n99%,40\n99.999%,40\n10\t40\t26.666666666667\t15.055\t3\n10\t2\n20\t1\n40\t3\n\
        1.844674407371e+19\t0\t0\t0\n";
    assert_eq!(bench.out(), expected);
}

#[test]
fn counters_of_threads_are_collected_in_the_end() {
    let script = r#"
        local threads = {}
        function setup(thread)
            thread:set("id", #threads + 1)
            table.insert(threads, thread)
        end
        function init(args)
            requests, responses = 0, 0
            first = args[1]
        end
        function request()
            requests = requests + 1
            return wrk.request()
        end
        function response() responses = responses + 1 end
        function done()
            for _, t in ipairs(threads) do
                print(t:get("id"), t:get("requests"), t:get("responses"), t:get("first"), t:get("no such"))
            end
        end
    "#;
    let mut bench = Bench::of(script, 2);
    bench.exchange(3);
    bench.done().unwrap();
    // One earlier request of the first thread was used for the check.
    assert_eq!(bench.out(), "1\t4\t3\ta\tnil\n2\t3\t3\ta\tnil\n");
}

#[test]
fn a_thread_stops_after_so_many_responses() {
    let script = r#"
        local n = 0
        function response()
            n = n + 1
            if n == 4 then wrk.thread:stop() end
        end
    "#;
    let mut bench = Bench::of(script, 2);
    assert_eq!(bench.exchange(10), 8);
    assert!(bench.threads.iter().all(Script::stopped));
}
