//! Copies of values between states. Nothing else passes from one state to another.

use mlua::{Lua, Table, Value};

/// Maximum depth of nested tables. A deeper table most likely contains itself.
const DEPTH_MAX: usize = 100;

/// Copies booleans, numbers, strings and tables of these, without their metatables.
///
/// # Errors
///
/// The type of a value that cannot be copied, or a failed allocation.
pub(super) fn copy_value(value: &Value, to: &Lua) -> Result<Value, String> {
    copy_within(value, to, 0)
}

fn copy_within(value: &Value, to: &Lua, depth: usize) -> Result<Value, String> {
    if depth > DEPTH_MAX {
        return Err("cannot transfer a table that holds itself to thread".into());
    }
    Ok(match value {
        Value::Nil => Value::Nil,
        Value::Boolean(it) => Value::Boolean(*it),
        Value::Integer(it) => Value::Integer(*it),
        Value::Number(it) => Value::Number(*it),
        Value::String(it) => Value::String(to.create_string(it.as_bytes()).map_err(memory_error)?),
        Value::Table(it) => Value::Table(copy_table(it, to, depth + 1)?),
        _ => return Err(format!("cannot transfer '{}' to thread", value.type_name())),
    })
}

fn copy_table(table: &Table, to: &Lua, depth: usize) -> Result<Table, String> {
    let copied = to.create_table().map_err(memory_error)?;
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair.map_err(memory_error)?;
        let key = copy_within(&key, to, depth)?;
        let value = copy_within(&value, to, depth)?;
        copied.raw_set(key, value).map_err(memory_error)?;
    }
    Ok(copied)
}

fn memory_error(_: mlua::Error) -> String {
    "not enough memory".into()
}
