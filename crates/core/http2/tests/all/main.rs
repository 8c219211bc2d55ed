//! HTTP/2 through the crate's public face. What servers may do wrong is tested with sockets, in `wb-http`.

mod blocks;
mod kit;
mod pieces;
mod windows;
