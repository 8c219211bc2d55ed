//! The commands, a file each.

pub(crate) mod bench;
pub(crate) mod capture;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod http;
pub(crate) mod lab;
pub(crate) mod linerate;
pub(crate) mod load;
pub(crate) mod meta;
pub(crate) mod netperf;
pub(crate) mod netserver;
pub(crate) mod pktgen;
pub(crate) mod read;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod rx;
pub(crate) mod sar;
pub(crate) mod selftest;
pub(crate) mod stat;
pub(crate) mod sweep;
pub(crate) mod trial;
pub(crate) mod tx;
pub(crate) mod wrk;
