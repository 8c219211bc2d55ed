//! The part of a script that belongs to one thread.

use std::net::SocketAddr;
use std::sync::Arc;

use mlua::{Function, LuaString, Table, Value};
use wb_http1::script::{Script, ScriptError};

use super::state::{Seat, State};

/// Hooks that a script defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hooks {
    request: bool,
    delay: bool,
    response: bool,
}

impl Hooks {
    pub(super) fn of(state: &State) -> Result<Self, ScriptError> {
        Ok(Self {
            request: state.defines("request")?,
            delay: state.defines("delay")?,
            response: state.defines("response")?,
        })
    }
}

/// A script in one thread of a load.
pub struct ThreadScript {
    state: State,
    seat: Arc<Seat>,
    hooks: Hooks,
    fixed: Option<Vec<u8>>,
    request: Function,
    delay: Function,
    response: Function,
}

impl ThreadScript {
    pub(super) fn new(state: State, seat: Arc<Seat>, hooks: Hooks) -> Result<Self, ScriptError> {
        let mut script = Self {
            request: state.function("request")?,
            delay: state.function("delay")?,
            response: state.function("response")?,
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
    fn headers(&self, head: &[u8]) -> mlua::Result<Table> {
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
        match text.map_err(|e| self.state.why(&e))? {
            Value::String(text) => out.extend_from_slice(&text.as_bytes()),
            number @ (Value::Integer(_) | Value::Number(_)) => {
                let text = number.to_string().map_err(|e| self.state.why(&e))?;
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
        Ok(delay.map_err(|e| self.state.why(&e))? as u64)
    }

    fn wants_responses(&self) -> bool {
        self.hooks.response
    }

    fn response(&mut self, status: u16, head: &[u8], body: &[u8]) -> Result<(), ScriptError> {
        let told = || {
            let headers = self.headers(head)?;
            let body: LuaString = self.state.lua.create_string(body)?;
            self.response.call::<()>((status, headers, body))
        };
        told().map_err(|e| self.state.why(&e))
    }

    fn stopped(&self) -> bool {
        self.seat.stopped()
    }
}
