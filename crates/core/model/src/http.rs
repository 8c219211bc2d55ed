//! Jobs of HTTP load: requests over kernel sockets or the program's TCP, closed loop or on a schedule.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    hosts::HostChoice,
    units::{AddressRange, Span},
};

mod carried;
pub mod figures;
mod judge;
mod problems;
mod report;
mod schedule;
mod server;
mod url;

pub use judge::{Judge, Seen};
pub use report::{
    ExactTimes, Http2Report, Http3Report, HttpFailures, HttpJobReport, HttpLive, HttpReport,
    HttpRequestReport, HttpThreadReport, HttpTlsReport, HttpTotals,
};
pub use schedule::Schedule;
pub use server::ServerAddress;
pub use url::{HttpUrl, Scheme, plain_zone};

/// Number of timeouts after which an unreachable server ends a job that otherwise only a request count ends.
const DESERTED_TIMEOUTS: u64 = 5;

/// Requests to one server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HttpJob {
    /// Name in the report.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// URL of the requests: `http://HOST[:PORT][/PATH]` or `https://…`.
    pub url: String,
    /// Name of a port: connections use the program's TCP over this port instead of the kernel's. Their source addresses
    /// are `sources` (default 198.18.1.2 or 2001:2:0:1::2), and the gateway of the port is their next hop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// Host of a fleet that runs the job, unless it has a `port`: a name, or labels such as `{rack=r1}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostChoice>,
    /// Number of hosts with the labels of `host` among which the job is split, 1 to 1000: its connections, `rate`,
    /// `amount`, the lines of `data`, and the addresses of `sources`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<u32>,
    /// Requests to send. Empty: a GET of the URL.
    #[serde(rename = "request", skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<HttpCall>,
    /// Headers of all requests, `Name: value`. `Host` is taken from the URL unless given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// CSV file with variables: its first line has their names, used as `{{NAME}}` in paths, headers and bodies. Each
    /// request takes the next line of its thread, and each thread has separate lines. After the last line the first
    /// line follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// Connections kept open, divided among the threads, 1 to 1000000 (default 10).
    #[serde(deserialize_with = "crate::units::count::count")]
    pub connections: u32,
    /// Threads, each with dedicated connections, 1 to 1024 and at most the number of connections (default 1).
    pub threads: u32,
    /// Test duration. With neither `duration` nor `amount`, until a signal; with `rate`, as long as its stages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// Exact number of requests, instead of a duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::count::optional_count")]
    pub amount: Option<u64>,
    /// Warm-up time, the first part of `duration`: the report's times, counts and rates exclude its requests. With a
    /// rate, requests that were due in the warm-up and found no free connection are never sent.
    #[serde(skip_serializing_if = "is_default")]
    pub warm_up: Span,
    /// Stages of the request rate. Empty: each connection sends the next request when it has its response.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rate: Vec<HttpStage>,
    /// Distribution of the requests of a rate over time (default `uniform`).
    #[serde(skip_serializing_if = "is_default")]
    pub arrivals: Arrivals,
    /// Maximum time that a due request waits for a free connection. After it, the request is dropped and counted as
    /// unsent. Without it, all requests wait, and the waiting time is part of the latency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<Span>,
    /// HTTP version (default 1.1). Version 2 is negotiated in the TLS handshake (ALPN), or assumed without TLS. Version
    /// 3 uses QUIC and requires https.
    #[serde(skip_serializing_if = "is_default")]
    pub version: HttpVersion,
    /// HTTP/2 and HTTP/3: concurrent requests on a connection, within the server's limit, 1 to 1000 (default 1).
    #[serde(skip_serializing_if = "is_one")]
    pub streams: u32,
    /// HTTP/1.1: requests in flight on a connection, 1 to 1000 (default 1).
    #[serde(skip_serializing_if = "is_one")]
    pub pipeline: u32,
    /// Requests after which a connection is closed and replaced; 0: no limit (default 0). With 1, requests also ask the
    /// server to close.
    #[serde(skip_serializing_if = "is_default")]
    #[serde(deserialize_with = "crate::units::count::count")]
    pub per_connection: u32,
    /// Timeout of connection setup (with TLS or HTTP/2, until the connection is ready) and of each response, up to 24h
    /// (default 2s). After a timeout the connection or request has failed, and the connection is replaced. With HTTP/2
    /// and HTTP/3 the request is cancelled, and the connection stays open if the server responds on it.
    pub timeout: Span,
    /// Timeout until a connection is ready, including all handshakes (default: `timeout` for each of them).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect_timeout: Option<Span>,
    /// Timeout from the start of a request to the first byte of its response (default: as `timeout`, which applies to
    /// the whole response).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte_timeout: Option<Span>,
    /// TLS parameters of https.
    #[serde(skip_serializing_if = "is_default")]
    pub tls: HttpTls,
    /// Servers to connect to, instead of the host of the URL; port 0 means the port of the URL. The zone of an IPv6
    /// address is a number or an interface (`[fe80::1%eth0]:0`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub connect_to: Vec<ServerAddress>,
    /// Path of a Unix domain socket to connect to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unix: Option<String>,
    /// Local source addresses of connections, used in turn: one, FIRST-LAST, or a prefix (default: chosen by the
    /// system).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<AddressRange>,
    /// Conditions on a response. A request fails if its response does not meet them.
    #[serde(skip_serializing_if = "is_default")]
    pub check: HttpCheck,
    /// List the SHA-256 digests of all distinct bodies, which reveals changed bytes.
    #[serde(skip_serializing_if = "is_default")]
    pub digest: bool,
    /// Lua script that creates requests and processes responses, with wrk's hooks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<HttpScript>,
    /// Behave like wrk in all differences: slow responses are only counted, and a remainder of connections is omitted.
    /// Interim responses count; a response that ends with the connection counts, too, and also as an error.
    #[serde(skip_serializing_if = "is_default")]
    pub as_wrk: bool,
}

impl Default for HttpJob {
    fn default() -> Self {
        Self {
            name: String::new(),
            url: String::new(),
            port: None,
            host: None,
            share: None,
            requests: Vec::new(),
            headers: Vec::new(),
            data: None,
            connections: 10,
            threads: 1,
            duration: None,
            amount: None,
            warm_up: Span::default(),
            rate: Vec::new(),
            arrivals: Arrivals::Uniform,
            patience: None,
            version: HttpVersion::default(),
            streams: 1,
            pipeline: 1,
            per_connection: 0,
            timeout: Span::from_secs(2),
            connect_timeout: None,
            first_byte_timeout: None,
            tls: HttpTls::default(),
            connect_to: Vec::new(),
            unix: None,
            sources: Vec::new(),
            check: HttpCheck::default(),
            digest: false,
            script: None,
            as_wrk: false,
        }
    }
}

impl HttpJob {
    /// Returns the time after the start when no more requests are sent; `None` if only a count or a signal ends the
    /// job.
    #[must_use]
    pub fn ends_after(&self) -> Option<Span> {
        let stages = || {
            let times = self.rate.iter().map(|stage| stage.time.map(Span::as_nanos));
            let sum: Option<u64> = times.sum();
            sum.filter(|ns| *ns > 0).map(Span::from_nanos)
        };
        self.duration.or_else(stages)
    }

    /// Returns the time after which a job with an unreachable server ends, if only a request count would end it;
    /// otherwise `None`.
    #[must_use]
    pub fn deserted_after(&self) -> Option<Span> {
        let timeouts = DESERTED_TIMEOUTS.saturating_mul(self.timeout.as_nanos());
        let only_a_count = self.amount.is_some() && self.ends_after().is_none();
        only_a_count.then(|| Span::from_nanos(timeouts))
    }
}

/// Request of a set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HttpCall {
    /// Name in the report. Empty: method and path.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Method: GET, POST, … (default GET).
    pub method: String,
    /// Path and query; empty means those of the URL.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Additional headers, `Name: value`. A header replaces one with the same name in the job's `headers`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// Body of the request.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub body: String,
    /// Path of a file with the body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_file: Option<String>,
    /// Relative frequency of this request, 1 to 1000000 (default 1).
    #[serde(skip_serializing_if = "is_one")]
    pub weight: u32,
}

impl Default for HttpCall {
    fn default() -> Self {
        Self {
            name: String::new(),
            method: "GET".to_owned(),
            path: String::new(),
            headers: Vec::new(),
            body: String::new(),
            body_file: None,
            weight: 1,
        }
    }
}

/// Stage of a schedule: the rate changes linearly from one value to another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpStage {
    /// Requests per second at the start of the stage, 0 to 1000000000.
    #[serde(deserialize_with = "crate::units::count::number")]
    pub from: f64,
    /// Requests per second at the end of the stage, 0 to 1000000000.
    #[serde(deserialize_with = "crate::units::count::number")]
    pub to: f64,
    /// Length of the stage. The last stage may omit it and then lasts until the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Span>,
}

/// Distribution of the requests of a rate over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Evenly spaced requests.
    #[default]
    Uniform,
    /// Poisson arrivals, as from many independent users.
    Poisson,
}

/// TLS parameters of https.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HttpTls {
    /// TLS version (default: both).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<TlsVersion>,
    /// Resume an earlier session of the thread on later connections (default true).
    pub resume: bool,
    /// Verify the server's certificate.
    pub verify: bool,
    /// PEM file with the certificate authorities for verification, instead of the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorities: Option<String>,
    /// Client certificate: a PEM file that may contain the chain; `key` is its private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// Private key of `certificate`, a PEM file (default: in the file of the certificate).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Server name in the handshake, SNI (default: host of the URL).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
}

impl Default for HttpTls {
    fn default() -> Self {
        Self {
            version: None,
            resume: true,
            verify: false,
            authorities: None,
            certificate: None,
            key: None,
            server_name: None,
        }
    }
}

/// HTTP version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HttpVersion {
    /// HTTP/1.1 (RFC 9112).
    #[default]
    #[serde(rename = "1.1")]
    V11,
    /// HTTP/2 (RFC 9113).
    #[serde(rename = "2")]
    V2,
    /// HTTP/3 (RFC 9114).
    #[serde(rename = "3")]
    V3,
}

impl HttpVersion {
    /// Returns true if requests are streams of a connection.
    #[must_use]
    pub const fn has_streams(self) -> bool {
        !matches!(self, Self::V11)
    }
}

/// TLS version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    #[serde(rename = "1.2")]
    V12,
    /// TLS 1.3 (RFC 8446).
    #[serde(rename = "1.3")]
    V13,
}

/// Conditions on a response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HttpCheck {
    /// Accepted statuses, 100 to 599; a response with another status has failed (default: any).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub status: Vec<u16>,
    /// Text that the body must contain; a response without it has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Header that the response must have, `Name` or `Name: value`; a response without it has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
}

/// Lua script.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpScript {
    /// Path of the script.
    pub file: String,
    /// Arguments of the script.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// Give the script all permissions of this program: open files, start programs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub trusted: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[allow(clippy::trivially_copy_pass_by_ref)]
const fn is_one(value: &u32) -> bool {
    *value == 1
}

/// Returns the source address of the n-th connection; `None` if the kernel chooses it.
#[must_use]
pub fn source(ranges: &[AddressRange], n: u64) -> Option<IpAddr> {
    let total: u128 = ranges.iter().map(AddressRange::count).sum();
    let mut at = u128::from(n).checked_rem(total)?;
    for range in ranges {
        if at < range.count() {
            return Some(range.nth(at));
        }
        at -= range.count();
    }
    None
}
