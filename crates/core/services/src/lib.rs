//! Messages of two services that load tests exercise: SNMP agents and RIP routers.
//!
//! Pure: builds requests and updates as bytes and parses responses. A load sends these bytes as UDP payloads.

#![forbid(unsafe_code)]

pub mod rip;
pub mod snmp;
