//! Socket addresses as Lua values.

use std::net::SocketAddr;

use mlua::{MetaMethod, UserData, UserDataMethods, Value};

/// An address in a script, which can print it and pass it back.
pub(super) struct Address(pub(super) SocketAddr);

impl Address {
    /// Returns the address if `value` is one.
    pub(super) fn from_value(value: &Value) -> Option<SocketAddr> {
        let Value::UserData(data) = value else {
            return None;
        };
        Some(data.borrow::<Self>().ok()?.0)
    }
}

impl UserData for Address {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_meta_method(MetaMethod::ToString, |_, this, ()| Ok(text(this.0)));
    }
}

/// Address and port; IPv6 addresses have no brackets here.
fn text(address: SocketAddr) -> String {
    match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => {
            format!("{}%{}:{}", v6.ip(), v6.scope_id(), v6.port())
        }
        _ => format!("{}:{}", address.ip(), address.port()),
    }
}
