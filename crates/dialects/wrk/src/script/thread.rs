//! The part of a script that belongs to one thread.

use std::net::SocketAddr;
use std::sync::Arc;

use mlua::{Function, LuaString, Table, Value};
use wb_http1::script::{Script, ScriptError};

use super::state::{LuaState, SharedThreadState};

/// Hooks that a script defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DefinedHooks {
    request: bool,
    delay: bool,
    response: bool,
}

impl DefinedHooks {
    pub(super) fn of_state(state: &LuaState) -> Result<Self, ScriptError> {
        Ok(Self {
            request: state.defines_hook("request")?,
            delay: state.defines_hook("delay")?,
            response: state.defines_hook("response")?,
        })
    }
}

/// A script in one thread of a load.
pub struct ThreadScript {
    state: LuaState,
    seat: Arc<SharedThreadState>,
    hooks: DefinedHooks,
    fixed: Option<Vec<u8>>,
    request: Function,
    delay: Function,
    response: Function,
}

impl ThreadScript {
    pub(super) fn new(
        state: LuaState,
        seat: Arc<SharedThreadState>,
        hooks: DefinedHooks,
    ) -> Result<Self, ScriptError> {
        let mut script = Self {
            request: state.prelude_function("request")?,
            delay: state.prelude_function("delay")?,
            response: state.prelude_function("response")?,
            state,
            seat,
            hooks,
            fixed: None,
        };
        if !hooks.request {
            let mut text = Vec::new();
            script.request(&mut text)?;
            script.fixed = Some(text);
        }
        Ok(script)
    }

    /// Names and values of a head. A continuation line belongs to the value, including its blanks.
    fn header_table(&self, head: &[u8]) -> mlua::Result<Table> {
        let mut found: Vec<(&[u8], std::borrow::Cow<'_, [u8]>)> = Vec::new();
        let lines = head.split(|byte| *byte == b'\n').skip(1);
        for line in lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line)) {
            if let (Some(b' ' | b'\t'), Some((_, value))) = (line.first(), found.last_mut()) {
                value.to_mut().extend_from_slice(line);
            } else if let Some(colon) = line.iter().position(|byte| *byte == b':') {
                let value = &line[colon + 1..];
                let blanks = value.iter().take_while(|byte| matches!(byte, b' ' | b'\t'));
                found.push((&line[..colon], value[blanks.count()..].into()));
            }
        }
        let lua = &self.state.lua;
        let headers = lua.create_table_with_capacity(0, found.len())?;
        for (name, value) in found {
            headers.raw_set(lua.create_string(name)?, lua.create_string(value)?)?;
        }
        Ok(headers)
    }
}

impl Script for ThreadScript {
    fn address(&self) -> Option<SocketAddr> {
        self.seat.address()
    }

    fn fixed(&self) -> Option<&[u8]> {
        self.fixed.as_deref()
    }

    fn request(&mut self, out: &mut Vec<u8>) -> Result<(), ScriptError> {
        let text = self.request.call::<Value>(());
        match text.map_err(|e| self.state.script_error(&e))? {
            Value::String(text) => out.extend_from_slice(&text.as_bytes()),
            number @ (Value::Integer(_) | Value::Number(_)) => {
                let text = number
                    .to_string()
                    .map_err(|e| self.state.script_error(&e))?;
                out.extend_from_slice(text.as_bytes());
            }
            // Sends nothing, as wrk does.
            _ => {}
        }
        Ok(())
    }

    fn delays(&self) -> bool {
        self.hooks.delay
    }

    fn delay_ms(&mut self) -> Result<u64, ScriptError> {
        let delay = self.delay.call::<f64>(());
        // A value that is negative or not a number means no delay.
        Ok(delay.map_err(|e| self.state.script_error(&e))? as u64)
    }

    fn wants_responses(&self) -> bool {
        self.hooks.response
    }

    fn response(&mut self, status: u16, head: &[u8], body: &[u8]) -> Result<(), ScriptError> {
        let told = || {
            let headers = self.header_table(head)?;
            let body: LuaString = self.state.lua.create_string(body)?;
            self.response.call::<()>((status, headers, body))
        };
        told().map_err(|e| self.state.script_error(&e))
    }

    fn stopped(&self) -> bool {
        self.seat.is_stopped()
    }
}
