//! HTTP/2 through the crate's public API. The tests of `wb-http` cover server errors with sockets.

mod blocks;
mod kit;
mod pieces;
mod windows;
