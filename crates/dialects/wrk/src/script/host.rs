//! The main state and the creation of threads.

use std::sync::Arc;

use mlua::{Lua, Scope, Table};
use wb_http1::script::{Script, ScriptError};

use super::check::count_requests;
use super::state::{LuaState, SharedThreadState};
use super::thread::{DefinedHooks, ThreadScript};
use super::{RunSummary, ScriptIo, ScriptSettings};
use crate::Stats;

/// Prelude message for everything that needs trust.
const UNTRUSTED: &str = "needs a trusted script";
/// Hint for a program that has only wrk's own options.
const TRUST_OF_A_LINK: &str = "for a link named wrk: WIREBENCH_TRUST_SCRIPT=1";

/// A script and its main state.
///
/// Calls are made in this order: [`ScriptHost::new`], [`ScriptHost::resolve`], [`ScriptHost::make_thread`] for each thread of the load,
/// [`ScriptHost::call_done`] after the last of them has ended.
pub struct ScriptHost {
    settings: ScriptSettings,
    outside: Arc<dyn ScriptIo>,
    /// Name of the file, and its text or the error of reading it.
    file: Option<(String, Result<Vec<u8>, String>)>,
    main: LuaState,
    /// States of threads, for `thread:get` in `done`.
    states: Vec<Lua>,
    /// Hooks of the first thread, used for all threads, and the number of requests it sends at once.
    first: Option<(DefinedHooks, usize)>,
}

impl ScriptHost {
    /// Reads the file and runs it in the main state. A failure is printed, and the run continues, unless the script
    /// lacks trust.
    ///
    /// # Errors
    ///
    /// The script did not end before [`ScriptSettings::give_up`], or requires trust that it does not have.
    pub fn new(settings: ScriptSettings, outside: Arc<dyn ScriptIo>) -> Result<Self, ScriptError> {
        let file = settings.file.clone().map(|name| {
            let text = outside.read(&name);
            let text = text.map_err(|cause| format!("cannot open {name}: {cause}"));
            (name, text)
        });
        let main = LuaState::new(&settings, &outside)?;
        let host = Self {
            settings,
            outside,
            file,
            main,
            states: Vec::new(),
            first: None,
        };
        host.load_file(&host.main)?;
        Ok(host)
    }

    /// Finds the addresses that accept connections, by the script's `wrk.resolve`.
    ///
    /// # Errors
    ///
    /// No address accepts connections, or the script raised an error.
    pub fn resolve(&mut self) -> Result<(), ScriptError> {
        let host = self.settings.host.as_str();
        let service = self.settings.port.as_deref();
        let service = service.unwrap_or(&self.settings.scheme);
        let found: f64 = self.main.call_prelude("resolve", (host, service))?;
        if found > 0.0 {
            return Ok(());
        }
        let cause = self.main.connect_error();
        Err(ScriptError::Refused(format!(
            "unable to connect to {host}:{service} {cause}"
        )))
    }

    /// Makes the next thread: runs the file in a new state, `setup` in the main state, then `init` in the new state.
    ///
    /// # Errors
    ///
    /// The error of the script or, for the first thread, the fault in its first request.
    pub fn make_thread(&mut self) -> Result<ThreadScript, ScriptError> {
        let state = LuaState::new(&self.settings, &self.outside)?;
        self.load_file(&state)?;
        let seat = Arc::new(SharedThreadState::default());
        let weak = state.lua.weak();
        state.call_prelude::<()>("place", state.thread_functions(weak.clone(), &seat)?)?;
        self.main
            .call_prelude::<()>("setup", self.main.thread_functions(weak, &seat)?)?;
        state.call_prelude::<()>("init", self.init_arguments(&state)?)?;
        self.states.push(state.lua.clone());
        if let Some((hooks, _)) = self.first {
            return ThreadScript::new(state, seat, hooks);
        }
        let hooks = DefinedHooks::of_state(&state)?;
        let mut thread = ThreadScript::new(state, seat, hooks)?;
        let mut text = Vec::new();
        thread.request(&mut text)?;
        let pipeline = count_requests(&text).map_err(ScriptError::Refused)?;
        self.first = Some((hooks, pipeline));
        Ok(thread)
    }

    /// Number of requests sent at once. Known after the first thread is made.
    #[must_use]
    pub fn pipeline(&self) -> usize {
        self.first.map_or(1, |(_, pipeline)| pipeline)
    }

    /// Returns true if the script defines the hook `done` ([`ScriptHost::call_done`]).
    ///
    /// # Errors
    ///
    /// No script can cause an error here.
    pub fn wants_done(&self) -> Result<bool, ScriptError> {
        self.main.defines_hook("done")
    }

    /// Calls the script's `done`, if it exists, with the results of the run. The scripts of all threads must have
    /// ended.
    ///
    /// # Errors
    ///
    /// The error of the script.
    pub fn call_done(
        &mut self,
        summary: &RunSummary,
        latency: &Stats,
        requests: &Stats,
    ) -> Result<(), ScriptError> {
        // A script may have been stopped earlier, which does not affect `done`.
        self.main.install_check()?;
        if !self.wants_done()? {
            return Ok(());
        }
        let done = self.main.prelude_function("done")?;
        let lua = &self.main.lua;
        let ended = lua.scope(|scope| {
            let latency = stats_table(lua, scope, latency)?;
            let requests = stats_table(lua, scope, requests)?;
            done.call::<()>((summary_table(lua, summary)?, latency, requests))
        });
        ended.map_err(|e| self.main.script_error(&e))
    }

    /// Runs the file in a state.
    fn load_file(&self, state: &LuaState) -> Result<(), ScriptError> {
        let Some((name, text)) = &self.file else {
            return Ok(());
        };
        let ran = match text {
            Ok(text) => state.run(name, text),
            Err(cause) => Err(ScriptError::Raised(cause.clone())),
        };
        if let Err(ScriptError::Raised(cause)) = &ran {
            if !self.settings.trusted && cause.contains(UNTRUSTED) {
                // Without the refused function the script would produce a different load.
                let words = format!("{cause} ({TRUST_OF_A_LINK})");
                return Err(ScriptError::Refused(words));
            }
            self.outside
                .print_error(format!("{name}: {cause}\n").as_bytes());
            return Ok(());
        }
        ran
    }

    /// Table for `init`: the URL at 0, followed by the arguments.
    fn init_arguments(&self, state: &LuaState) -> Result<Table, ScriptError> {
        let table = || {
            let words = self.settings.arguments.iter().map(String::as_str);
            let table = state.lua.create_sequence_from(words)?;
            table.raw_set(0, self.settings.url.as_str())?;
            Ok(table)
        };
        table().map_err(|e| state.script_error(&e))
    }
}

fn summary_table(lua: &Lua, summary: &RunSummary) -> mlua::Result<Table> {
    let table = |fields: &[(&str, u64)]| {
        // wrk passes these as Lua numbers.
        lua.create_table_from(fields.iter().map(|&(name, value)| (name, value as f64)))
    };
    let whole = table(&[
        ("duration", summary.duration_us),
        ("requests", summary.requests),
        ("bytes", summary.bytes),
    ])?;
    let errors = table(&[
        ("connect", summary.connect_errors),
        ("read", summary.read_errors),
        ("write", summary.write_errors),
        ("status", summary.status_errors),
        ("timeout", summary.timeouts),
    ])?;
    whole.raw_set("errors", errors)?;
    Ok(whole)
}

/// Functions from which the prelude makes the userdata of statistics. They become invalid at the end of the scope.
fn stats_table<'scope, 'env>(
    lua: &Lua,
    scope: &'scope Scope<'scope, 'env>,
    of: &'env Stats,
) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("kind", "stats")?;
    table.raw_set("distinct", of.distinct_values())?;
    let values = [
        ("min", of.min() as f64),
        ("max", of.max() as f64),
        ("mean", of.mean()),
        ("stdev", of.stdev()),
    ];
    table.raw_set("values", lua.create_table_from(values)?)?;
    let percentile =
        scope.create_function(move |_, percent: f64| Ok(of.percentile(percent) as f64))?;
    table.raw_set("percentile", percentile)?;
    let at = scope.create_function(move |_, place: f64| {
        // Indices start at 1. Outside the range the value is 0, with the number of distinct values.
        let found = (place >= 1.0)
            .then(|| of.value_at(place as usize - 1))
            .flatten();
        let (value, count) = found.unwrap_or((0, of.distinct_values() as u64));
        Ok((value as f64, count as f64))
    })?;
    table.raw_set("at", at)?;
    Ok(table)
}
