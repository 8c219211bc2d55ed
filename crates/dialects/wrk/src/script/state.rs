//! One Lua state, prepared for a script.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mlua::chunk::ChunkMode;
use mlua::{
    FromLuaMulti, Function, HookTriggers, IntoLuaMulti, Lua, LuaOptions, LuaString, StdLib, Table,
    Value, VmState, WeakLua,
};
use wb_http1::script::ScriptError;

use super::address::Address;
use super::copy::copy_value;
use super::{ScriptIo, ScriptSettings};

/// Instructions between two checks of [`ScriptSettings::give_up`].
const INSTRUCTIONS: u32 = 10_000;

/// A Lua state. Its errors are returned as [`ScriptError`].
pub(super) struct LuaState {
    pub(super) lua: Lua,
    /// Functions of the prelude, by name.
    calls: Table,
    notes: Arc<ErrorNotes>,
    give_up: Arc<AtomicBool>,
}

/// Details of an error that its text does not contain.
#[derive(Default)]
struct ErrorNotes {
    /// The script was stopped while it ran.
    given_up: AtomicBool,
    /// Message of an error that ends the program in wrk. If the script caught the error, a later error has another
    /// text.
    refused: Mutex<String>,
    /// Reason why the last connection could not be opened.
    unconnected: Mutex<String>,
}

/// Part of a thread that both states can change.
#[derive(Default)]
pub(super) struct SharedThreadState {
    address: Mutex<Option<SocketAddr>>,
    stopped: AtomicBool,
}

impl SharedThreadState {
    pub(super) fn address(&self) -> Option<SocketAddr> {
        *self.address.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_address(&self, address: SocketAddr) {
        *self.address.lock().unwrap_or_else(PoisonError::into_inner) = Some(address);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

/// A state with all libraries, including `ffi`, `debug` and C modules.
#[allow(
    unsafe_code,
    reason = "what a trusted script may do is for the user to know"
)]
fn trusted_lua() -> Lua {
    // SAFETY: The user has declared that the script is as trusted as the program. Its use of `ffi`, `debug` or a C
    // module
    // is the user's responsibility, as it is with wrk.
    unsafe { Lua::unsafe_new_with(StdLib::ALL, LuaOptions::new()) }
}

impl LuaState {
    /// Makes a state with everything that a script expects, but without the script.
    pub(super) fn new(
        settings: &ScriptSettings,
        outside: &Arc<dyn ScriptIo>,
    ) -> Result<Self, ScriptError> {
        let lua = match settings.trusted {
            true => trusted_lua(),
            // The prelude exposes parts of `os` and `jit` and hides the rest.
            false => {
                let libraries = StdLib::TABLE
                    | StdLib::STRING
                    | StdLib::BIT
                    | StdLib::MATH
                    | StdLib::OS
                    | StdLib::JIT;
                let lua = Lua::new_with(libraries, LuaOptions::new());
                lua.map_err(|e| ScriptError::Raised(words(&e)))?
            }
        };
        let notes = Arc::new(ErrorNotes::default());
        let calls = prelude(&lua, settings, outside, &notes);
        let calls = calls.map_err(|e| ScriptError::Raised(words(&e)))?;
        let state = Self {
            lua,
            calls,
            notes,
            give_up: Arc::clone(&settings.give_up),
        };
        // Set after the prelude, whose memory does not count for the script.
        let limited = state.lua.set_memory_limit(settings.memory_bytes);
        limited.map_err(|e| state.script_error(&e))?;
        state.install_check()?;
        Ok(state)
    }

    /// Installs the regular check of [`ScriptSettings::give_up`] for running Lua code.
    pub(super) fn install_check(&self) -> Result<(), ScriptError> {
        self.notes.given_up.store(false, Ordering::Relaxed);
        let (give_up, notes) = (Arc::clone(&self.give_up), Arc::clone(&self.notes));
        let rare = HookTriggers::new().every_nth_instruction(INSTRUCTIONS);
        let hooked = self.lua.set_global_hook(rare, move |lua, _| {
            if !give_up.load(Ordering::Relaxed) {
                return Ok(VmState::Continue);
            }
            notes.given_up.store(true, Ordering::Relaxed);
            // A script may catch the error and continue; the next instruction raises it again.
            let each = HookTriggers::new().every_nth_instruction(1);
            lua.set_global_hook(each, |_, _| Err(mlua::Error::runtime("given up")))?;
            Err(mlua::Error::runtime("given up"))
        });
        hooked.map_err(|e| self.script_error(&e))
    }

    /// Runs a file. The name appears in messages.
    pub(super) fn run(&self, name: &str, text: &[u8]) -> Result<(), ScriptError> {
        let mode = ChunkMode::Text;
        let chunk = self.lua.load(text).set_name(format!("@{name}"));
        chunk
            .set_mode(mode)
            .exec()
            .map_err(|e| self.script_error(&e))
    }

    /// A function of the prelude.
    pub(super) fn prelude_function(&self, name: &str) -> Result<Function, ScriptError> {
        self.calls.raw_get(name).map_err(|e| self.script_error(&e))
    }

    /// Calls a function of the prelude by its name.
    pub(super) fn call_prelude<R: FromLuaMulti>(
        &self,
        name: &str,
        arguments: impl IntoLuaMulti,
    ) -> Result<R, ScriptError> {
        let function = self.prelude_function(name)?;
        function.call(arguments).map_err(|e| self.script_error(&e))
    }

    /// Returns true if the script currently defines this hook.
    pub(super) fn defines_hook(&self, hook: &str) -> Result<bool, ScriptError> {
        self.call_prelude("defined", hook)
    }

    /// Converts an error of this state.
    pub(super) fn script_error(&self, error: &mlua::Error) -> ScriptError {
        if self.notes.given_up.load(Ordering::Relaxed) {
            return ScriptError::GivenUp;
        }
        let words = words(error);
        let refused = self.notes.refused.lock();
        if words == *refused.unwrap_or_else(PoisonError::into_inner) {
            ScriptError::Refused(words)
        } else {
            ScriptError::Raised(words)
        }
    }

    /// Reason why the last connection could not be opened.
    pub(super) fn connect_error(&self) -> String {
        let why = self.notes.unconnected.lock();
        why.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Functions from which the prelude makes the userdata of a thread: access to its globals and its seat.
    pub(super) fn thread_functions(
        &self,
        of: WeakLua,
        seat: &Arc<SharedThreadState>,
    ) -> Result<Table, ScriptError> {
        let table = || {
            let table = self.lua.create_table()?;
            table.raw_set("kind", "thread")?;
            let (from, s) = (of.clone(), Arc::clone(seat));
            let get = move |lua: &Lua, name: Value| Ok(get(&from, &name, lua).into_pair());
            table.raw_set("get", self.lua.create_function(get)?)?;
            let set =
                move |_: &Lua, (name, value): (Value, Value)| Ok(set(&of, &name, &value).err());
            table.raw_set("set", self.lua.create_function(set)?)?;
            let address = move |_: &Lua, ()| Ok(s.address().map(Address));
            table.raw_set("address", self.lua.create_function(address)?)?;
            let s = Arc::clone(seat);
            let set_address = move |_: &Lua, to: Value| {
                let to = Address::from_value(&to);
                to.into_iter().for_each(|to| s.set_address(to));
                Ok(to.is_some())
            };
            table.raw_set("set_address", self.lua.create_function(set_address)?)?;
            let s = Arc::clone(seat);
            let stop = move |_: &Lua, ()| {
                s.stopped.store(true, Ordering::Relaxed);
                Ok(())
            };
            table.raw_set("stop", self.lua.create_function(stop)?)?;
            Ok(table)
        };
        table().map_err(|e| self.script_error(&e))
    }
}

/// Lua's convention for results: the value, followed by the error.
trait IntoPair {
    fn into_pair(self) -> (Value, Option<String>);
}

impl IntoPair for Result<Value, String> {
    fn into_pair(self) -> (Value, Option<String>) {
        self.map_or_else(|fault| (Value::Nil, Some(fault)), |value| (value, None))
    }
}

fn get(from: &WeakLua, name: &Value, to: &Lua) -> Result<Value, String> {
    let (from, name) = global(from, name, "get")?;
    let value = from.globals().raw_get::<Value>(name);
    copy_value(&value.map_err(|e| words(&e))?, to)
}

fn set(to: &WeakLua, name: &Value, value: &Value) -> Result<(), String> {
    let (to, name) = global(to, name, "set")?;
    let value = copy_value(value, &to)?;
    let set = to.globals().raw_set(name, value);
    set.map_err(|e| words(&e))
}

/// State of a thread, and the name of one of its globals.
fn global(of: &WeakLua, name: &Value, method: &str) -> Result<(Lua, LuaString), String> {
    let of = of.try_upgrade().ok_or("the thread is no more")?;
    let text = match name {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Integer(_) | Value::Number(_) => name.to_string().ok().map(String::into_bytes),
        _ => None,
    };
    let text = text.ok_or_else(|| {
        let kind = name.type_name();
        format!("bad argument #2 to '{method}' (string expected, got {kind})")
    })?;
    let name = of.create_string(text).map_err(|e| words(&e))?;
    Ok((of, name))
}

/// Runs the prelude in a new state and returns its table of functions.
fn prelude(
    lua: &Lua,
    settings: &ScriptSettings,
    outside: &Arc<dyn ScriptIo>,
    notes: &Arc<ErrorNotes>,
) -> mlua::Result<Table> {
    let given = lua.create_table()?;
    given.raw_set("trusted", settings.trusted)?;
    given.raw_set("scheme", settings.scheme.as_str())?;
    given.raw_set("host", settings.host.as_str())?;
    given.raw_set("port", settings.port.as_deref())?;
    given.raw_set("path", settings.path.as_str())?;
    let headers = lua.create_table()?;
    for (name, value) in &settings.headers {
        headers.raw_push(lua.create_sequence_from([name.as_str(), value.as_str()])?)?;
    }
    given.raw_set("headers", headers)?;

    let native = lua.create_table()?;
    let to = Arc::clone(outside);
    let out = move |_: &Lua, text: LuaString| {
        to.print(&text.as_bytes());
        Ok(())
    };
    native.raw_set("out", lua.create_function(out)?)?;
    let to = Arc::clone(outside);
    let err = move |_: &Lua, text: LuaString| {
        to.print_error(&text.as_bytes());
        Ok(())
    };
    native.raw_set("err", lua.create_function(err)?)?;
    let (world, noted) = (Arc::clone(outside), Arc::clone(notes));
    let lookup = move |lua: &Lua, (host, service): (LuaString, LuaString)| {
        let (host, service) = (host.to_string_lossy(), service.to_string_lossy());
        match world.lookup(&host, &service) {
            Ok(found) => {
                let found = lua.create_sequence_from(found.into_iter().map(Address))?;
                Ok((Some(found), None))
            }
            Err(cause) => {
                let text = format!("unable to resolve {host}:{service} {cause}");
                let refused = noted.refused.lock();
                refused
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone_from(&text);
                Ok((None, Some(text)))
            }
        }
    };
    native.raw_set("lookup", lua.create_function(lookup)?)?;
    let (world, noted) = (Arc::clone(outside), Arc::clone(notes));
    let connect = move |_: &Lua, to: Value| {
        let answered = Address::from_value(&to).map(|to| world.connect(to));
        if let Some(Err(cause)) = &answered {
            let unconnected = noted.unconnected.lock();
            unconnected
                .unwrap_or_else(PoisonError::into_inner)
                .clone_from(cause);
        }
        Ok(answered.map(|answered| answered.is_ok()))
    };
    native.raw_set("connect", lua.create_function(connect)?)?;

    let prelude = lua.load(include_str!("prelude.lua")).set_name("=wrk");
    prelude.call((native, given))
}

/// Text of an error without the stack trace.
fn words(error: &mlua::Error) -> String {
    match error {
        mlua::Error::RuntimeError(text) => {
            let Some((what, trace)) = text.rsplit_once("\nstack traceback:\n") else {
                return text.clone();
            };
            // LuaJIT gives no place for this error, since it has dropped the frame.
            let place = (what == "stack overflow").then(|| place(trace)).flatten();
            place.map_or_else(|| what.to_owned(), |place| format!("{place}: {what}"))
        }
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        mlua::Error::MemoryError(_) => "not enough memory".into(),
        mlua::Error::CallbackError { cause, .. } => words(cause),
        _ => error.to_string(),
    }
}

/// File and line of the innermost Lua function of a trace.
fn place(trace: &str) -> Option<&str> {
    let calls = trace.lines().map(str::trim_start);
    let mut places = calls.filter_map(|call| Some(call.split_once(": in ")?.0));
    places.find(|place| *place != "[C]")
}
