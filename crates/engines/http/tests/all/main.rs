//! The engine against servers of a few lines, good ones and bad ones.

mod causes;
mod kit;
mod loads;
mod streams;
