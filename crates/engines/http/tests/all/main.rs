//! The engine against servers of a few lines, good ones and bad ones.

mod causes;
mod http3;
mod kit;
mod loads;
mod quic;
mod streams;
