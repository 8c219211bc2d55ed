//! Everything that a server sends, in pieces of any size.

mod answers;
mod blocks;
mod unis;
