//! The engine against minimal servers, correct and faulty ones.

mod causes;
mod http3;
mod kit;
mod loads;
mod quic;
mod streams;
