//! Scripts: Lua, with the hooks and objects that wrk gives them.
