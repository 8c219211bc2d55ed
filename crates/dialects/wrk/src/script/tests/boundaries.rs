//! Limits of scripts: trust, time and memory.

use super::*;

/// Output of a script that is not trusted.
fn printed(script: &str) -> String {
    let bench = Bench::with(
        &ScriptSettings {
            arguments: vec![],
            ..settings()
        },
        script,
        0,
    )
    .unwrap();
    assert_eq!(bench.err(), "", "{script}");
    bench.out()
}

#[test]
fn the_world_is_out_of_reach() {
    for (call, name) in [
        ("io.open('/etc/passwd')", "io.open"),
        ("io.popen('id')", "io.popen"),
        ("io.lines('/etc/passwd')", "io.lines"),
        ("io.read()", "io.read"),
        ("io.output('/tmp/wb-x')", "io.output"),
        ("io.tmpfile()", "io.tmpfile"),
        ("os.execute('id')", "os.execute"),
        ("os.exit(7)", "os.exit"),
        ("os.remove('/tmp/wb-x')", "os.remove"),
        ("os.rename('/tmp/wb-x', '/tmp/wb-y')", "os.rename"),
        ("os.tmpname()", "os.tmpname"),
        ("os.getenv('HOME')", "os.getenv"),
        ("package.loadlib('libc.so.6', 'exit')", "package.loadlib"),
        ("require('ffi')", "require 'ffi'"),
        ("require('socket')", "require 'socket'"),
        ("dofile('/etc/passwd')", "dofile"),
        ("loadfile('/etc/passwd')", "loadfile"),
        ("debug.sethook()", "debug.sethook"),
        ("debug.getregistry()", "debug.getregistry"),
    ] {
        let out = printed(&format!("print(select(2, pcall(function() {call} end)))"));
        let says = format!("a.lua:1: {name} needs a trusted script; --trust-script allows it\n");
        assert_eq!(out, says);
    }
    assert_eq!(
        printed("print(ffi, string.dump, package.loaders, package.preload.x)"),
        "nil\tnil\tnil\tnil\n"
    );
}

#[test]
fn only_text_is_compiled() {
    let trusted = ScriptSettings {
        trusted: true,
        ..settings()
    };
    let write = "io.write(string.dump(function() return 1 end))";
    let bytes = Bench::with(&trusted, write, 0).unwrap();
    let code = bytes
        .world
        .out
        .lock()
        .unwrap()
        .bytes()
        .take(4)
        .collect::<Vec<_>>();
    assert_eq!(&code[..3], b"\x1bLJ");
    let bench = Bench::of(b"\x1bLJ\x02\x02\x04\x00", 0);
    assert_eq!(
        bench.err(),
        "a.lua: attempt to load a binary chunk (mode is 't')\n"
    );
    for load in ["load", "loadstring"] {
        let out = printed(&format!(
            "print({load}('\\27LJ\\2', 'x', 'b')) print({load}('return 1 + ...')(2))"
        ));
        assert_eq!(out, "nil\tattempt to load chunk with wrong mode\n3\n");
    }
    assert_eq!(
        printed("local n = 0 print(load(function() n = n + 1 return ({'return ', '7'})[n] end)())"),
        "7\n"
    );
    assert_eq!(
        printed("x = 1 print(load('return x', 'c', 't', { x = 2 })(), load('return x')())"),
        "2\t1\n"
    );
}

#[test]
fn what_is_harmless_works() {
    let script = r#"
        print(type(os.time()), type(os.clock()), os.date("!%Y", 0), os.difftime(3, 1))
        print(bit.band(6, 3), math.floor(2.5), ("x"):rep(3), table.concat({ 1, 2 }, ","))
        local c = coroutine.wrap(function() pcall(function() coroutine.yield(1) end) coroutine.yield(2) end)
        print(c(), c())
        print(require("string") == string, require("wrk") == wrk, require("bit") == bit)
        print(io.stdout:write("a", 1, "\n"), io.type(io.stdout), io.type(1))
        print(xpcall(function() error("x", 0) end, debug.traceback))
        print(#arg_or_nothing)
    "#
    .replace("print(#arg_or_nothing)", "jit.off() jit.on() print(jit.status())");
    let expected = "number\tnumber\t1970\t2\n2\t2\txxx\t1,2\n1\t2\ntrue\ttrue\ttrue\na1\n\
        true\tfile\tnil\nfalse\tx\nfalse\n";
    assert_eq!(printed(&script), expected);
}

#[test]
fn whoever_is_trusted_may_all_but_leave() {
    let trusted = ScriptSettings {
        trusted: true,
        ..settings()
    };
    let script = r#"
        local name = os.tmpname()
        local file = io.open(name, "w") file:write("return 5") file:close()
        print(dofile(name), io.type(file))
        io.output(name) io.write("return 6") io.output():close() io.output(io.stdout)
        print(dofile(name), os.remove(name), os.getenv("no such"))
        io.write("end\n")
    "#;
    let bench = Bench::with(&trusted, script, 0).unwrap();
    assert_eq!(
        (bench.err().as_str(), bench.out().as_str()),
        ("", "5\tclosed file\n6\ttrue\tnil\nend\n")
    );
}

#[test]
fn loops_without_end_are_given_up() {
    for body in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "local f f = function() return f() end f()",
        "coroutine.wrap(function() while true do end end)()",
        "for i = 1, math.huge do local s = 'x' .. i end",
        "local c = coroutine.wrap(function() while true do coroutine.yield() end end) while true do c() end",
        "repeat local ok = xpcall(function() error('x') end, function() while true do end end) until false",
        "setmetatable(_G, { __index = function() while true do end end }) print(nothing)",
    ] {
        let settings = ScriptSettings {
            file: Some("a.lua".into()),
            ..settings()
        };
        let script = format!("function response() {body} end");
        let mut bench = Bench::with(&settings, script, 1).unwrap();
        let give_up = Arc::clone(&settings.give_up);
        let begun = Instant::now();
        let ended = std::thread::scope(|scope| {
            scope.spawn(move || {
                wb_testing::disturb(Duration::from_millis(20));
                give_up.store(true, Ordering::Relaxed);
            });
            bench.threads[0].response(200, HEAD, BODY)
        });
        assert_eq!(ended, Err(ScriptError::GivenUp), "{body}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{body}");
        // The main state is separate from the thread's, and the script may run again after a stop.
        settings.give_up.store(false, Ordering::Relaxed);
        bench.done().unwrap();
    }
}

#[test]
fn a_file_and_a_done_without_end_are_given_up_too() {
    let settings = settings();
    settings.give_up.store(true, Ordering::Relaxed);
    let ended = Bench::with(&settings, "while true do end", 0);
    assert_eq!(ended.err(), Some(ScriptError::GivenUp));
    settings.give_up.store(false, Ordering::Relaxed);
    let script = "local n = 0 function done() print('done') n = n + 1 while n < 2 do end end";
    let mut bench = Bench::with(&settings, script, 1).unwrap();
    settings.give_up.store(true, Ordering::Relaxed);
    assert_eq!(bench.done(), Err(ScriptError::GivenUp));
    // Short hooks are not stopped, and the earlier stop leaves no trace.
    assert_eq!(bench.done(), Ok(()));
}

#[test]
fn memory_has_a_limit() {
    let settings = ScriptSettings {
        memory_bytes: 8 << 20,
        ..settings()
    };
    for body in [
        "local t = {} for i = 1, 1e9 do t[i] = i end",
        "local s = 'x' while true do s = s .. s end",
        "return ('x'):rep(1e9)",
        "local t = {} while true do t = { t } end",
    ] {
        let script = format!("function response() {body} end");
        let mut bench = Bench::with(&settings, script, 1).unwrap();
        let ended = bench.threads[0].response(200, HEAD, BODY);
        let Err(ScriptError::Raised(words)) = ended else {
            panic!("{body}: {ended:?}");
        };
        assert!(words.contains("not enough memory"), "{body}: {words}");
    }
    // A script that catches the error continues.
    let script = "print(pcall(function() return ('x'):rep(1e9) end))";
    let bench = Bench::with(&settings, script, 0).unwrap();
    assert_eq!(bench.out(), "false\tnot enough memory\n");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_a_script_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        run_all(&bytes);
    }

    #[test]
    fn words_in_any_order_are_a_script_or_an_error(
        words in proptest::collection::vec(proptest::sample::select(WORDS), 0..40),
    ) {
        run_all(words.join(" ").as_bytes());
    }
}

const WORDS: &[&str] = &[
    "function",
    "request",
    "response",
    "init",
    "setup",
    "delay",
    "done",
    "()",
    "(",
    ")",
    "{",
    "}",
    "end",
    "return",
    "wrk",
    ".",
    "thread",
    "addr",
    "=",
    ":",
    "stop",
    "get",
    "set",
    "format",
    "nil",
    "'x'",
    "1",
    ",",
    "if",
    "then",
    "local",
    "pcall",
    "error",
    "print",
    "headers",
    "lookup",
    "setmetatable",
    "newproxy",
    "#",
    "..",
    "io",
    "write",
    "[",
    "]",
    "_G",
    "getmetatable",
    "wrk.thread",
    "wrk.headers",
    "for",
    "in",
    "pairs",
    "do",
    "t",
];

/// A whole run that is stopped after a while.
fn run_all(script: &[u8]) {
    let settings = ScriptSettings {
        memory_bytes: 4 << 20,
        ..settings()
    };
    let give_up = Arc::clone(&settings.give_up);
    let over = Arc::new(AtomicBool::new(false));
    let watch = Arc::clone(&over);
    let watchman = std::thread::spawn(move || {
        let over = || watch.load(Ordering::Relaxed).then_some(());
        if wb_testing::polled(Duration::from_millis(200), over).is_some() {
            return;
        }
        give_up.store(true, Ordering::Relaxed);
    });
    if let Ok(mut bench) = Bench::with(&settings, script, 2) {
        for thread in &mut bench.threads {
            let mut text = Vec::new();
            let _ = thread.request(&mut text);
            let _ = thread.delays() && thread.delay_ms().is_ok();
            let _ = thread.response(200, HEAD, BODY);
            let _ = thread.response(0, script, script);
        }
        let _ = bench.done();
    }
    over.store(true, Ordering::Relaxed);
    watchman.join().unwrap();
}
