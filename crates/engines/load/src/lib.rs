//! The load engine: opens connections, holds, answers and closes them at a rate, over any port.
//!
//! [`engine`] is the engine of a run: it opens ports, starts threads and fills the report. Everything else knows ports by
//! trait and time by trait. The crate prints nothing. A job of the plan ([`wb_model::load::LoadJob`]) becomes a
//! [`LoadSpec`] for each worker. A worker is one loop, [`run_load_worker`], compiled for each kind of port:
//!
//! ```text
//!  RxQueue ──batch──> wb_tcp::Machine ──answers──> lent slots ──> TxQueue
//!                      ^    \ not its own: ARP, ND, echo ──^
//!  curve, limits ─> pace ─ launch          shared counters, once a tick
//! ```
//!
//! **Rate.** All limits apply together: new connections per second, open connections, requests, frames and bits per
//! second. The due time of launch k follows from k. A late worker catches up at once, but for at most `catch_up_ns`. A
//! total is divided evenly over the workers; the first one also gets the remainder. Requests over persistent
//! connections have a separate rate, computed in the same way; the connection that has been idle longest sends the next
//! request.
//!
//! **Phases.** Wait and ramp, then the duration, then the drain, in which connections end. Connections that remain are
//! reported as open, so `attempted = completed + failed + open` always holds.
//!
//! **Workers share nothing.** Each has its own machine and its own tuples, chosen so that their answers arrive at this
//! worker. The engine must arrange this (see [`LoadPlace::steering`]).
//!
//! ```
//! use wb_load::*;
//! use wb_model::load::*;
//! use wb_port::{clock::VirtualClock, memory};
//! use wb_wire::MacAddr;
//!
//! let clock = VirtualClock::new(0);
//! let (mut a, mut b) = memory::link(&memory::LinkOptions::new("x", clock.clone().into()))?;
//! let client = LoadJob {
//!     clients: vec!["198.18.0.1".parse().unwrap()],
//!     servers: vec!["198.18.0.2".parse().unwrap()],
//!     rate: LoadRate { cps: Some(1000), ..LoadRate::default() },
//!     shape: LoadShape { duration: "100ms".parse().unwrap(), ..LoadShape::default() },
//!     ..LoadJob::default()
//! };
//! let server = LoadJob { end: LoadEnd::Server, ..client.clone() };
//! let mut place = LoadPlace::single(MacAddr(a.facts.mac));
//! place.gateway = Some(MacAddr(b.facts.mac));
//! let client = LoadSpec::new(&client, &place).unwrap();
//! let server = LoadSpec::new(&server, &LoadPlace::single(MacAddr(b.facts.mac))).unwrap();
//!
//! let (control, slot) = (LoadControl::new(), LoadSlot::default());
//! control.start_at_mono_ns.store(0, std::sync::atomic::Ordering::Relaxed);
//! let (mut client, mut server) = (LoadWorker::new(client, 1522).unwrap(), LoadWorker::new(server, 1522).unwrap());
//! while !client.turn(&mut a.queues[0], &control, &slot, &clock)?.done {
//!     server.turn(&mut b.queues[0], &control, &LoadSlot::default(), &clock)?;
//!     clock.advance(10_000);
//! }
//! let totals = LoadTotals::sum_workers([&client.conclude(&mut a.queues[0], &slot, None)]);
//! assert_eq!((totals.attempted_connections, totals.completed_connections), (100, 100));
//! # Ok::<(), wb_port::PortError>(())
//! ```

#![forbid(unsafe_code)]

mod control;
mod curve;
pub mod engine;
mod http;
mod launch_schedule;
mod message;
mod neighbour_responder;
mod outcome;
mod rates;
mod shared;
mod sink;
mod spec;
mod worker;

pub use control::LoadControl;
pub use http::{HttpCallOutcome, HttpOutcome, HttpTask};
pub use launch_schedule::{Grouping, LaunchCounters};
pub use neighbour_responder::ResponderCounters;
pub use outcome::{LoadOutcome, LoadTotals, PhaseTotals};
pub use rates::{ConnectionCost, WorkerLimits, worker_share};
pub use shared::{LiveTimes, LoadSlot, LoadSnapshot};
pub use spec::{LoadPlace, LoadSpec, SpecError};
pub use wb_model::load::LoadStage;
pub use wb_port::clock::WorkerClock as Clock;
pub use worker::{LoadTurn, LoadWorker, run_load_worker};
