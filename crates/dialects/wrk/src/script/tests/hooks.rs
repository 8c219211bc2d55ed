//! Order and arguments of hooks, and the objects passed to them.

use super::*;

#[test]
fn hooks_come_in_the_order_of_the_original() {
    let script = r#"
        print("file", wrk.thread, wrk.scheme, wrk.host, wrk.port, wrk.method, wrk.path, wrk.body, wrk.headers.Host)
        function setup(t) print("setup", type(t), t.addr, wrk.headers.Host) t:set("id", 7) end
        function init(args)
            print("init", #args, args[0], args[1], args[2], id, wrk.thread.addr, wrk.headers.Host, wrk.request)
        end
        function delay() print("delay") return 0 end
        function request() print("request", type(wrk.request)) return wrk.request() end
        function response(status, headers, body)
            print("response", status, #body)
            local names = {}
            for name in pairs(headers) do names[#names + 1] = name end
            table.sort(names)
            for _, name in ipairs(names) do print(name .. "=[" .. headers[name] .. "]") end
        end
        function done(s, l, r) print("done", type(s), type(l), type(r)) end
    "#;
    let mut bench = Bench::of(script, 1);
    assert!(bench.threads[0].delays() && bench.threads[0].wants_responses());
    let file = "file\tnil\thttp\t127.0.0.1\t8081\tGET\t/p?q\tnil\tnil\n";
    let begin = "setup\tuserdata\t127.0.0.1:8081\tnil\n\
        init\t2\thttp://127.0.0.1:8081/p?q\ta\tb\t7\t127.0.0.1:8081\t127.0.0.1:8081\tnil\nrequest\tfunction\n";
    assert_eq!(bench.out(), format!("{file}{file}{begin}"));
    bench.threads[0].delay_ms().unwrap();
    bench.exchange(1);
    bench.done().unwrap();
    let run = "delay\nrequest\tfunction\nresponse\t200\t13\nContent-Length=[13]\nX-Dup=[b]\nX-Empty=[]\n\
        X-Fold=[one  two ]\ndone\ttable\tuserdata\tuserdata\n";
    assert_eq!(bench.out(), run);
}

#[test]
fn hooks_may_be_replaced_while_they_run() {
    let script = r#"
        function request()
            request = function() return wrk.format("GET", "/later") end
            return wrk.format("GET", "/once")
        end
    "#;
    let mut bench = Bench::of(script, 2);
    assert_eq!(sorted(&bench.request(0))[0], "GET /later HTTP/1.1");
    assert_eq!(sorted(&bench.request(1))[0], "GET /once HTTP/1.1");
    assert_eq!(sorted(&bench.request(1))[0], "GET /later HTTP/1.1");
    // The set of hooks is fixed at the start.
    let mut bench = Bench::of(
        "function request() delay = print return wrk.request() end",
        1,
    );
    assert!(!bench.threads[0].delays());
    bench.request(0);
    assert!(!bench.threads[0].delays());
    // A value that is not a function is not a hook.
    let bench = Bench::of(
        "request, response, delay, setup, init, done = 1, {}, 'x', 2, 3, 4",
        1,
    );
    assert!(bench.threads[0].fixed().is_some() && !bench.threads[0].wants_responses());
    assert!(!bench.host.wants_done().unwrap());
}

#[test]
fn format_writes_into_the_headers_it_is_given() {
    let script = r#"
        function init()
            local h = { A = 1 }
            wrk.format("POST", "/", h, "four")
            print(h.Host, h["Content-Length"])
            wrk.format("GET", "/", h)
            print(h.Host, h["Content-Length"])
            print(wrk.format("PUT", "/x", { Host = "h" }, 12) == "PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n12"
                or wrk.format("PUT", "/x", { Host = "h" }, 12) == "PUT /x HTTP/1.1\r\nContent-Length: 2\r\nHost: h\r\n\r\n12")
        end
        print(wrk.format():find("Host"), wrk.headers.Host)
    "#;
    let bench = Bench::of(script, 1);
    assert_eq!(
        bench.out(),
        "nil\tnil\nnil\tnil\n127.0.0.1:8081\t4\n127.0.0.1:8081\tnil\ntrue\n"
    );
    assert_eq!(bench.err(), "");
}

#[test]
fn host_header_is_as_the_url_has_it() {
    for (host, port, header) in [
        ("127.0.0.1", None, "127.0.0.1"),
        ("::1", Some("81"), "[::1]:81"),
        ("::1", None, "[::1]"),
    ] {
        let port = port.map(str::to_owned);
        let settings = ScriptSettings {
            host: host.into(),
            port,
            ..settings()
        };
        let mut bench = Bench::with(&settings, "", 1).unwrap();
        assert!(
            bench
                .request(0)
                .contains(&format!("\r\nHost: {header}\r\n")),
            "{host}"
        );
    }
    let headers = [("Host", "x.org"), ("A", "1"), ("A", "2")];
    let headers = headers
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
    let mut bench = Bench::with(
        &ScriptSettings {
            headers,
            ..settings()
        },
        "",
        1,
    )
    .unwrap();
    assert_eq!(
        sorted(&bench.request(0)),
        ["GET /p?q HTTP/1.1", "A: 2", "Host: x.org", ""]
    );
}

#[test]
fn the_library_may_be_wrapped() {
    let script = r#"
        local setup, init, resolve, format = wrk.setup, wrk.init, wrk.resolve, wrk.format
        function wrk.resolve(host, service) print("resolve", host, service) resolve(host, service) end
        function wrk.setup(thread) print("setup") setup(thread) end
        function wrk.init(args) print("init", #args) init(args) end
        function wrk.format(...) print("format") return format("HEAD", ...) end
    "#;
    let mut bench = Bench::of(script, 1);
    assert_eq!(
        bench.out(),
        "resolve\t127.0.0.1\t8081\nsetup\ninit\t2\nformat\n"
    );
    assert_eq!(sorted(&bench.request(0))[0], "HEAD /p?q HTTP/1.1");
}

#[test]
fn values_are_copied_whole() {
    let script = r#"
        function setup(t)
            t:set("a", { 1, "two", { x = true, [2.5] = "y" }, k = "v\0w" })
            t:set("b", false) t:set("c", nil) t:set(4, 1e300)
            local a = t:get("a")
            print(a[1], a[2], a[3].x, a[3][2.5], #a.k, t:get("b"), t:get("c"), t:get("4"), #t:get("long"))
            a[1] = 9
            print(t:get("a")[1], t.nothing, t[3], tostring(t.addr), t.get == t.get)
        end
        long = ("x"):rep(100000)
    "#;
    let bench = Bench::of(script, 1);
    assert_eq!(
        (bench.err().as_str(), bench.out().as_str()),
        (
            "",
            "1\ttwo\ttrue\ty\t3\tfalse\tnil\t1e+300\t100000\n1\tnothing\t3\t127.0.0.1:8081\ttrue\n",
        )
    );
}

#[test]
fn statistics_are_objects() {
    let script = r#"
        function done(s, l, r)
            print(l.foo, l[3], l(0), l(4))
            print(l("1"))
            print(l:percentile("50"), l:percentile(100), #r, r(1))
            local names = {}
            for name in pairs(s) do names[#names + 1] = name end
            table.sort(names)
            print(table.concat(names, " "))
        end
    "#;
    let mut bench = Bench::of(script, 1);
    bench.done().unwrap();
    assert_eq!(
        bench.out(),
        "foo\t3\t0\t0\t3\n10\t2\n40\t0\t0\t0\t0\nbytes duration errors requests\n"
    );
}

#[test]
fn a_thread_may_change_its_address_as_it_runs() {
    let script = r#"
        function response() wrk.thread.addr = wrk.lookup("::1", 99)[1] end
    "#;
    let mut bench = Bench::of(script, 1);
    assert_eq!(
        bench.threads[0].address().unwrap().to_string(),
        "127.0.0.1:8081"
    );
    bench.exchange(1);
    assert_eq!(bench.threads[0].address().unwrap().to_string(), "[::1]:99");
    let bench = Bench::of(
        "print(wrk.lookup('::1', '99')[1], wrk.connect(wrk.lookup('silent', '1')[1]))",
        0,
    );
    assert_eq!(bench.out(), "::1:99\tfalse\n");
}

#[test]
fn output_is_one_piece_for_each_call() {
    let script = r#"
        print("a", nil, 1.5, true)
        print()
        io.write("x", 1, 2.5, "\n")
        print(io.write("y\n"), setmetatable({}, { __tostring = function() return "T" end }))
        io.stderr:write("e", 2, "\n")
    "#;
    let bench = Bench::of(script, 0);
    assert_eq!(bench.out(), "a\tnil\t1.5\ttrue\n\nx12.5\ny\ntrue\tT\n");
    assert_eq!(bench.err(), "e2\n");
}
