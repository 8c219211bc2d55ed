//! Texts of errors, identical to those of the original.

use super::*;

/// Error of the first thread.
fn failure(script: &str) -> ScriptError {
    Bench::with(&settings(), script, 1).err().expect("it fails")
}

#[test]
fn first_requests_are_checked_as_the_original_checks_them() {
    // Recorded from wrk 4.1.0: the text in a Lua string, and the end of the run.
    for vector in include_str!("requests.txt").lines() {
        let (text, verdict) = vector.split_once(" => ").unwrap();
        let script = format!("function request() return \"{text}\" end");
        let found = match Bench::with(&settings(), &script, 1) {
            Ok(_) => "ok".into(),
            Err(ScriptError::Refused(text)) => text,
            Err(other) => panic!("{text}: {other:?}"),
        };
        assert_eq!(found, verdict, "{text}");
    }
}

#[test]
fn files_that_fail_are_told_in_each_state_and_the_run_goes_on() {
    let missing = ScriptSettings {
        file: Some("nofile.lua".into()),
        ..settings()
    };
    let mut bench = Bench::with(&missing, "", 2).unwrap();
    let line = "nofile.lua: cannot open nofile.lua: No such file or directory\n";
    assert_eq!(bench.err(), line.repeat(3));
    assert_eq!(sorted(&bench.request(1))[0], "GET /p?q HTTP/1.1");
    for (script, says) in [
        ("x = = 1", "a.lua: a.lua:1: unexpected symbol near '='\n"),
        ("\n error('boom')", "a.lua: a.lua:2: boom\n"),
        ("error('boom', 0)", "a.lua: boom\n"),
        (
            "wrk.port()",
            "a.lua: a.lua:1: attempt to call field 'port' (a string value)\n",
        ),
    ] {
        let bench = Bench::of(script, 1);
        assert_eq!(bench.err(), says.repeat(2), "{script}");
    }
    // Effects before the error remain.
    let mut bench = Bench::of("wrk.path = '/x' error('boom')", 1);
    assert_eq!(sorted(&bench.request(0))[0], "GET /x HTTP/1.1");
}

#[test]
fn errors_in_hooks_are_told_with_their_place() {
    for (script, says) in [
        ("function setup() error('boom') end", "a.lua:1: boom"),
        (
            "function init()\n local x = nil + 1 end",
            "a.lua:2: attempt to perform arithmetic on a nil value",
        ),
        (
            "function f(n)\n return 1 + f(n + 1) end function init() f(1) end",
            "a.lua:2: stack overflow",
        ),
        (
            "function request() return wrk.format(nil, nil, 7) end",
            "wrk:213: attempt to index local 'headers' (a number value)",
        ),
        ("wrk = nil", "a.lua: "),
    ] {
        let Err(ScriptError::Raised(words)) = Bench::with(&settings(), script, 1).map(|_| ())
        else {
            panic!("{script}");
        };
        if script != "wrk = nil" {
            let place = words
                .starts_with("wrk:")
                .then(|| words.split_once(": ").unwrap().1);
            let expected = says.strip_prefix("wrk:213: ").unwrap_or(says);
            assert_eq!(place.unwrap_or(&words), expected, "{script}");
        }
    }
    let mut bench = Bench::of(
        "function response() error({}) end function delay() boom() end",
        1,
    );
    let raised = |words: &str| Err(ScriptError::Raised(words.into()));
    assert_eq!(
        bench.threads[0].delay_ms(),
        Err(ScriptError::Raised(
            "a.lua:1: attempt to call global 'boom' (a nil value)".into()
        ))
    );
    assert!(bench.threads[0].response(200, HEAD, BODY).is_err());
    let mut bench = Bench::of("function done() error('boom') end", 1);
    assert_eq!(bench.done(), raised("a.lua:1: boom"));
    let panic = fatal_message(&ScriptError::Raised("a.lua:1: boom".into()));
    assert_eq!(
        panic,
        "PANIC: unprotected error in call to Lua API (a.lua:1: boom)"
    );
    // A trace in the script's own text stays.
    let text = "function done() error('x\\nstack traceback:\\ny', 0) end";
    assert_eq!(Bench::of(text, 1).done(), raised("x\nstack traceback:\ny"));
}

#[test]
fn a_script_that_is_not_trusted_with_what_it_wants_ends_the_run() {
    for script in [
        "local body = io.open('x'):read('*a') wrk.body = body",
        "local ffi = require('ffi')",
        "wrk.path = os.getenv('HOME')",
    ] {
        let Err(ScriptError::Refused(words)) = Bench::with(&settings(), script, 1).map(|_| ())
        else {
            panic!("{script}");
        };
        assert!(
            words.contains("--trust-script") && words.contains("WIREBENCH_TRUST_SCRIPT=1"),
            "{words}"
        );
    }
    // A script that catches the error continues.
    let bench = Bench::of("local found, ffi = pcall(require, 'ffi')", 1);
    assert_eq!(bench.err(), "");
}

#[test]
fn a_request_that_is_no_string_sends_nothing() {
    for (value, sent) in [
        ("", ""),
        ("nil", ""),
        ("false", ""),
        ("{}", ""),
        ("42", "42"),
    ] {
        let script = format!(
            "local n = 0 function request() n = n + 1 if n == 1 then return wrk.format() end return {value} end"
        );
        let mut bench = Bench::of(script, 1);
        assert_eq!(bench.request(0), sent, "{value}");
    }
}

#[test]
fn a_trusted_script_has_ffi_and_debug() {
    let trusted = ScriptSettings {
        trusted: true,
        ..settings()
    };
    let script = "local ffi = require('ffi') ffi.cdef 'int getpid(void);' assert(ffi.C.getpid() > 0)\n\
                  print(debug.getinfo(1, 'S').short_src, type(package.loadlib), type(package.cpath))";
    let bench = Bench::with(&trusted, script, 0).unwrap();
    assert_eq!(bench.err(), "");
    assert_eq!(bench.out(), "a.lua\tfunction\tstring\n");
}

#[test]
fn hosts_that_are_not_there_end_it() {
    let refused = |text: &str| ScriptError::Refused(text.into());
    let nowhere = ScriptSettings {
        host: "nowhere".into(),
        port: None,
        ..settings()
    };
    let says = refused("unable to resolve nowhere:http Name or service not known");
    assert_eq!(Bench::with(&nowhere, "", 1).err(), Some(says.clone()));
    assert_eq!(
        fatal_message(&says),
        "unable to resolve nowhere:http Name or service not known"
    );
    let silent = ScriptSettings {
        host: "silent".into(),
        ..settings()
    };
    let says = refused("unable to connect to silent:8081 Connection refused");
    assert_eq!(Bench::with(&silent, "", 1).err(), Some(says));
    let script = "function init() wrk.lookup('x', '1') end";
    assert_eq!(
        failure(script),
        refused("unable to resolve x:1 Name or service not known")
    );
    let script = "function init() pcall(wrk.lookup, 'x', '1') error('boom', 0) end";
    assert_eq!(failure(script), ScriptError::Raised("boom".into()));
}

#[test]
fn objects_complain_as_in_the_original() {
    for (code, says) in [
        (
            "t.addr = 'x'",
            "a.lua:1: bad argument #4 to '__newindex' (wrk.addr expected, got string)",
        ),
        ("t.zzz = 'x'", "a.lua:1: cannot set 'string' on thread"),
        ("t.zzz = 7", "a.lua:1: cannot set 'number' on thread"),
        (
            "t:set('a', print)",
            "a.lua:1: cannot transfer 'function' to thread",
        ),
        (
            "t:set('a', { 1, { print } })",
            "a.lua:1: cannot transfer 'function' to thread",
        ),
        (
            "t:set('a', t)",
            "a.lua:1: cannot transfer 'userdata' to thread",
        ),
        (
            "t:set('a', coroutine.create(print))",
            "a.lua:1: cannot transfer 'thread' to thread",
        ),
        (
            "local x = t:get('print')",
            "a.lua:1: cannot transfer 'function' to thread",
        ),
        (
            "t.get()",
            "a.lua:1: bad argument #1 to 'get' (wrk.thread expected, got no value)",
        ),
        (
            "t.get({}, 'x')",
            "a.lua:1: bad argument #1 to 'get' (wrk.thread expected, got table)",
        ),
        (
            "t:get()",
            "a.lua:1: bad argument #2 to 'get' (string expected, got nil)",
        ),
        (
            "wrk.connect('x')",
            "a.lua:1: bad argument #1 to 'connect' (wrk.addr expected, got string)",
        ),
        (
            "wrk.connect()",
            "a.lua:1: bad argument #1 to 'connect' (wrk.addr expected, got no value)",
        ),
        (
            "io.write(nil)",
            "a.lua:1: bad argument #1 to 'write' (string expected, got nil)",
        ),
        (
            "io.stdout:write('', {})",
            "a.lua:1: bad argument #2 to 'write' (string expected, got table)",
        ),
        (
            "local a = {} a.a = a t:set('a', a)",
            "a.lua:1: cannot transfer a table that holds itself to thread",
        ),
    ] {
        let script = format!("function setup(t) print(pcall(function() {code} end)) end");
        let bench = Bench::of(&script, 1);
        assert_eq!(bench.out(), format!("false\t{says}\n"), "{code}");
    }
    for (code, says) in [
        (
            "l:percentile()",
            "a.lua:1: bad argument #2 to 'percentile' (number expected, got no value)",
        ),
        (
            "l.percentile(1, 2)",
            "a.lua:1: bad argument #1 to 'percentile' (wrk.stats expected, got number)",
        ),
        (
            "l.x = 1",
            "a.lua:1: attempt to index upvalue 'l' (a userdata value)",
        ),
    ] {
        let script = format!("function done(s, l) print(pcall(function() {code} end)) end");
        let mut bench = Bench::of(&script, 1);
        bench.done().unwrap();
        assert_eq!(bench.out(), format!("false\t{says}\n"), "{code}");
    }
}
