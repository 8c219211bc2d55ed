//! Data types of the project: units, plan, snapshot, report.
//!
//! This is the narrow interface between commands and engines: every command creates a [`Plan`], every engine returns
//! [`Snapshot`]s and one [`Report`]. The types are plain data; nothing here opens, sends, or reads a clock.

#![forbid(unsafe_code)]

pub mod bench;
pub mod capture;
mod cause_text;
mod counted;
pub mod criteria;
pub mod device;
pub mod figures;
pub mod fleet;
mod flows;
pub mod frames;
mod hosts;
pub mod http;
mod judged;
mod kinds;
pub mod lateness;
pub mod limit;
pub mod load;
pub mod locator;
pub mod merge;
pub mod peer;
pub mod plan;
pub mod powers;
pub mod reach;
pub mod report;
pub mod schema;
mod sharing;
pub mod snapshot;
pub mod socket;
mod spelling;
pub mod stream;
pub mod text;
pub mod timeline;
pub mod units;
pub mod validate;
pub mod vary;

pub use cause_text::cause_text;
pub use counted::counted;
pub use criteria::Criterion;
pub use flows::DirectionFlows;
pub use hosts::HostChoice;
pub use http::HttpJob;
pub use kinds::JobKind;
pub use lateness::{Absences, Charge, Lateness, LatenessReport, Turns, judge_lateness};
pub use limit::{Limit, LimitedBy, Limiter};
pub use load::LoadJob;
pub use locator::{Driver, Locator};
pub use plan::{
    Extension, PLAN_SCHEMA, Plan, PortPlan, Proto, SendWay, Stream, TagKind, TrafficJob,
};
pub use report::{REPORT_SCHEMA, Report, Summary, Totals, Verdict};
pub use sharing::Incoming;
pub use snapshot::{CaptureLive, LiveLine, Phase, ProbeLive, SNAPSHOT_SCHEMA, Snapshot};
pub use socket::{SocketJob, SocketServerJob};
pub use spelling::nearest;
pub use validate::{PlanError, PlanProblem};
pub use vary::Vary;
