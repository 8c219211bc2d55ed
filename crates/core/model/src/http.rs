//! Jobs of HTTP load: requests over sockets of the kernel or our own TCP, as fast as answers come or by a schedule.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::{AddressRange, Span};

mod carried;
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

/// A server that cannot be reached for so many times the timeout is given up where only a count ends the job.
const DESERTED_TIMEOUTS: u64 = 5;

/// Requests to one server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HttpJob {
    /// What the report calls it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Where requests go: `http://HOST[:PORT][/PATH]` or `https://…`.
    pub url: String,
    /// Name of a port: connections are our own TCP's over it, not the kernel's. They come from `sources`
    /// (198.18.1.2 without them), and the gateway of the port is their next hop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// What is asked. Empty: a GET of the URL.
    #[serde(rename = "request", skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<HttpCall>,
    /// Headers of all requests, `Name: value`. `Host` is made of the URL where none is given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// A CSV file whose first line names variables, `{{NAME}}` in paths, headers and bodies. Each request takes
    /// the next line, each thread lines of its own; after the last comes the first again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// Connections kept open, shared out among the threads; 1 to 1000000.
    pub connections: u32,
    /// Threads, each with connections of its own; 1 to 1024, at most as many as there are connections.
    pub threads: u32,
    /// How long. With neither `duration` nor `amount`, until a signal; with `rate`, as long as its stages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// Instead of a duration: exactly so many requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount: Option<u64>,
    /// Warm-up, the first part of `duration`: its requests are not in the report's times, counts and rates. With a
    /// rate, requests that were due in the warm-up and found no free connection are not sent later either.
    #[serde(skip_serializing_if = "is_default")]
    pub warm_up: Span,
    /// When requests are due, stage by stage. Empty: each connection asks as soon as it has its answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rate: Vec<HttpStage>,
    /// How requests of a rate follow one another.
    #[serde(skip_serializing_if = "is_default")]
    pub arrivals: Arrivals,
    /// Requests that are older than this when a connection is free are given up and counted as unsent. Without
    /// it, all wait for their turn, and their waiting is in the latency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<Span>,
    /// HTTP's version. 2 is agreed on in the handshake of TLS (ALPN), and taken for granted where there is none; 3 is
    /// spoken over QUIC, to https alone.
    #[serde(skip_serializing_if = "is_default")]
    pub version: HttpVersion,
    /// Of HTTP/2 and HTTP/3: requests under way on a connection at a time, as far as the server allows; 1 to 1000.
    #[serde(skip_serializing_if = "is_one")]
    pub streams: u32,
    /// Of HTTP/1.1: requests under way on a connection at a time; 1 to 1000.
    #[serde(skip_serializing_if = "is_one")]
    pub pipeline: u32,
    /// Requests after which a connection is closed and replaced; 0: none. 1 asks the server to close, too.
    #[serde(skip_serializing_if = "is_default")]
    pub per_connection: u32,
    /// Longest time for a connection to be made (with TLS or HTTP/2: to be ready), and for a request to be answered.
    /// Then it has failed, and the connection is replaced; with HTTP/2 and HTTP/3 the request is cancelled, and the
    /// connection stays if the server is alive.
    pub timeout: Span,
    /// Longest time for a connection to be ready, all handshakes included, instead of `timeout` for each of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect_timeout: Option<Span>,
    /// Longest time from when a request is sent to the first byte of its answer; the whole answer has `timeout`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte_timeout: Option<Span>,
    /// What https means.
    #[serde(skip_serializing_if = "is_default")]
    pub tls: HttpTls,
    /// Connect here instead of where the URL's name leads; port 0 is the URL's. The zone of an IPv6 address is a number or
    /// an interface (`[fe80::1%eth0]:0`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub connect_to: Vec<ServerAddress>,
    /// Connect to this socket of the file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unix: Option<String>,
    /// Addresses of ours that connections come from, in turn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<AddressRange>,
    /// What an answer must be, or its request has failed.
    #[serde(skip_serializing_if = "is_default")]
    pub check: HttpCheck,
    /// Count different bodies by their SHA-256, so that bytes that changed show.
    #[serde(skip_serializing_if = "is_default")]
    pub digest: bool,
    /// A Lua script that makes requests and sees answers, with wrk's hooks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<HttpScript>,
    /// Behave as wrk does, where that differs: what is slow is only counted, a remainder of connections is left
    /// out, interim responses count, and so does an answer that the end of the connection ends, as error too.
    #[serde(skip_serializing_if = "is_default")]
    pub as_wrk: bool,
}

impl Default for HttpJob {
    fn default() -> Self {
        Self {
            name: String::new(),
            url: String::new(),
            port: None,
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
    /// When nothing more is asked, after the start; none where only a count or a signal ends it.
    #[must_use]
    pub fn ends_after(&self) -> Option<Span> {
        let stages = || {
            let times = self.rate.iter().map(|stage| stage.time.map(Span::as_nanos));
            let sum: Option<u64> = times.sum();
            sum.filter(|ns| *ns > 0).map(Span::from_nanos)
        };
        self.duration.or_else(stages)
    }

    /// For how long nobody can be reached before a count that only its requests would end is given up; none where
    /// something else ends the job.
    #[must_use]
    pub fn deserted_after(&self) -> Option<Span> {
        let timeouts = DESERTED_TIMEOUTS.saturating_mul(self.timeout.as_nanos());
        let only_a_count = self.amount.is_some() && self.ends_after().is_none();
        only_a_count.then(|| Span::from_nanos(timeouts))
    }
}

/// A request of a set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HttpCall {
    /// What the report calls it. Empty: method and path.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// GET, POST, …
    pub method: String,
    /// Path and query; empty: the URL's.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// More headers, `Name: value`; one of a name that all requests have takes its place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// The body.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub body: String,
    /// A file that is the body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_file: Option<String>,
    /// How often it is asked, in relation to the others; 1 to 1000000.
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

/// A part of a schedule: the rate goes from one value to another in a straight line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpStage {
    /// Requests per second at its beginning.
    pub from: f64,
    /// At its end.
    pub to: f64,
    /// How long; the last may go on until the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Span>,
}

/// How requests of a rate follow one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// At even distances.
    #[default]
    Uniform,
    /// Independent of one another, as those of many users.
    Poisson,
}

/// What https means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HttpTls {
    /// The version; both by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<TlsVersion>,
    /// Later connections of a thread take up the session of an earlier one.
    pub resume: bool,
    /// Check the server's certificate.
    pub verify: bool,
    /// Authorities for that, a file in PEM form, instead of the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorities: Option<String>,
    /// Certificate of the client, a PEM file that may hold the chain; `key` is its private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// Private key of `certificate`, a PEM file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Name asked for (SNI) instead of the URL's.
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

/// A version of HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HttpVersion {
    /// RFC 9112.
    #[default]
    #[serde(rename = "1.1")]
    V11,
    /// RFC 9113.
    #[serde(rename = "2")]
    V2,
    /// RFC 9114.
    #[serde(rename = "3")]
    V3,
}

impl HttpVersion {
    /// Whether requests are streams of a connection.
    #[must_use]
    pub const fn has_streams(self) -> bool {
        !matches!(self, Self::V11)
    }
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TlsVersion {
    /// RFC 5246.
    #[serde(rename = "1.2")]
    V12,
    /// RFC 8446.
    #[serde(rename = "1.3")]
    V13,
}

/// What an answer must be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HttpCheck {
    /// One of these. Empty: any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub status: Vec<u16>,
    /// A text that must be in the body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// A header that must be there, `Name` or `Name: value`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
}

/// A script.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpScript {
    /// The file.
    pub file: String,
    /// What it is told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// It may do what this program may: open files, start programs.
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

/// The source of the n-th connection, none where the kernel chooses.
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
