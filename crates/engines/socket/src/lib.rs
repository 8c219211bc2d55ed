//! Socket tests: a client and a server that exchange streams, requests and connections over kernel sockets. They
//! negotiate each test over a control connection that uses netperf's messages.
//!
//! Plain threads and blocking sockets: the hot loop of a stream is one system call and one test of a flag. To end a
//! test from outside, set the flag and interrupt the call ([`Stopper`]).
//!
//! [`Sockets`] is the engine of a run. The tests themselves read neither `/proc` nor a resolver; they ask their [`Host`].

mod agreement;
mod client;
mod cpu;
mod engine;
pub mod flow;
mod host;
mod open;
mod server;
mod stop;
mod sys;
mod waker;

pub use client::{JobPlace, run_job};
pub use engine::{DataEnds, Sockets, data_ends};
pub use host::{CpuTimes, Host, Resolved};
pub use open::{
    EffectiveSettings, OpenSocket, SocketPlan, accept, connect, effective_settings, errno, listen,
    local_address, open,
};
pub use server::{ServerError, SocketServer, serve_one};
pub use stop::{InterruptRegistration, Stopper};
pub use sys::tcp_sample;
pub use waker::StopRequest;
