//! Everything a server says, in pieces of any size.

mod answers;
mod blocks;
mod unis;
