//! Checks of one HTTP load, as far as they need only the job.

use super::{Arrivals, HttpCall, HttpJob, HttpUrl, HttpVersion, Scheme, TlsVersion};
use crate::{
    units::Span,
    validate::{Findings, PlanProblem, rules},
};

/// Connection-specific headers (RFC 9113 section 8.2.2).
const ONLY_HTTP1: [&str; 4] = ["connection", "keep-alive", "proxy-connection", "upgrade"];

/// Returns true for a token of RFC 9110 section 5.6.2.
fn is_token(text: &str) -> bool {
    let ok = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
    !text.is_empty() && text.bytes().all(ok)
}

fn check_headers(place: &str, headers: &[String], found: &mut Findings) {
    for header in headers {
        let Some((name, value)) = header.split_once(':') else {
            found.problem(place, format!("expected NAME: VALUE, got {header:?}"));
            continue;
        };
        rules! { found:
            !is_token(name) => place, "invalid header name {name:?}; use letters, digits and -";
            value.bytes().any(|b| b < b' ' && b != b'\t' || b == 0x7f) =>
                place, "the value of {name} has control characters; remove them";
        }
    }
}

impl HttpJob {
    /// Returns all problems of this job; places are its keys.
    #[must_use]
    pub fn problems(&self) -> Vec<PlanProblem> {
        let mut found = Findings::default();
        match self.url.parse::<HttpUrl>() {
            _ if self.url.is_empty() => {
                found.problem("url", "is empty; give http://HOST[:PORT][/PATH]")
            }
            Err(why) if !self.as_wrk => found.problem("url", why),
            _ => {}
        }
        rules! { found:
            !(1..=1_000_000).contains(&self.connections) =>
                "connections", "must be between 1 and 1000000, got {}", self.connections;
            !(1..=1024).contains(&self.threads) => "threads", "must be between 1 and 1024, got {}", self.threads;
            self.threads > self.connections =>
                "threads", "each thread needs at least one connection, got threads = {}, connections = {}",
                self.threads, self.connections;
            self.duration.is_some() && self.amount.is_some() =>
                "amount", "duration and amount exclude each other";
            self.duration.is_some_and(|d| d == Span::default()) =>
                "duration", "must be above 0; omit it to run until a signal";
            self.amount == Some(0) => "amount", "must be at least 1, got 0";
            !(1..=1000).contains(&self.pipeline) => "pipeline", "must be between 1 and 1000, got {}", self.pipeline;
            !(1..=1000).contains(&self.streams) => "streams", "must be between 1 and 1000, got {}", self.streams;
            self.timeout == Span::default() && !self.as_wrk => "timeout", "must be above 0";
            self.timeout > Span::from_secs(86_400) => "timeout", "must be at most 24h, got {}", self.timeout;
            self.connect_timeout == Some(Span::default()) => "connect_timeout", "must be above 0";
            self.connect_timeout > Some(Span::from_secs(86_400)) => "connect_timeout", "must be at most 24h";
            self.first_byte_timeout == Some(Span::default()) => "first_byte_timeout", "must be above 0";
            self.first_byte_timeout > Some(self.timeout) =>
                "first_byte_timeout", "must be at most timeout ({}), which covers the whole response", self.timeout;
            self.as_wrk && (self.connect_timeout.is_some() || self.first_byte_timeout.is_some()) =>
                "as_wrk", "as_wrk excludes connect_timeout and first_byte_timeout; use timeout";
            self.unix.is_some() && !self.connect_to.is_empty() =>
                "unix", "unix and connect_to exclude each other";
            self.unix.is_some() && !self.sources.is_empty() =>
                "sources", "sources and unix exclude each other; a Unix socket has no addresses";
            self.script.is_some() && !self.requests.is_empty() =>
                "request", "request and script exclude each other; the script creates the requests";
            self.script.is_some() && (self.data.is_some() || !self.rate.is_empty()) =>
                "script", "script excludes data and rate; the script creates and delays the requests";
            self.as_wrk && !self.rate.is_empty() => "as_wrk", "as_wrk and rate exclude each other";
            self.warm_up != Span::default() && self.amount.is_some() =>
                "warm_up", "warm_up and amount exclude each other; use duration";
        }
        let ends = self.ends_after();
        rules! { found:
            ends.is_some_and(|end| self.warm_up >= end) && self.warm_up != Span::default() =>
                "warm_up", "must be shorter than the run";
        }
        self.check_rate(&mut found);
        self.check_version(&mut found);
        self.check_port(&mut found);
        check_headers("headers", &self.headers, &mut found);
        for (i, call) in self.requests.iter().enumerate() {
            call.check(&format!("request {}", i + 1), &mut found);
        }
        rules! { found:
            self.check.status.iter().any(|s| !(100..=599).contains(s)) =>
                "check.status", "must be between 100 and 599";
            self.check.header.as_ref().is_some_and(|h| !is_token(h.split(':').next().unwrap_or_default())) =>
                "check.header", "expected NAME or NAME: VALUE";
        }
        let ipv6 = |to: &super::ServerAddress| to.address.is_ipv6();
        rules! { found:
            self.connect_to.iter().any(ipv6) && !self.connect_to.iter().all(ipv6) && !self.sources.is_empty() =>
                "sources", "connect_to has IPv4 and IPv6 addresses; with sources, use one version";
        }
        found.problems
    }

    fn check_version(&self, found: &mut Findings) {
        let headers = || {
            let of_calls = self.requests.iter().flat_map(|call| &call.headers);
            self.headers.iter().chain(of_calls)
        };
        let name = |header: &str| header.split(':').next().unwrap_or("").to_ascii_lowercase();
        let only_one = headers().find(|h| {
            let name = name(h);
            let te = name == "te" && !h.to_ascii_lowercase().ends_with("trailers");
            te || ONLY_HTTP1.contains(&name.as_str())
        });
        let streams = self.version.has_streams();
        let v3 = self.version == HttpVersion::V3;
        let plain = self.url.parse::<HttpUrl>();
        let plain = plain.is_ok_and(|url| url.scheme == Scheme::Http);
        rules! { found:
            !streams && self.streams != 1 =>
                "streams", "needs version \"2\" or \"3\"; with HTTP/1.1 use pipeline";
            streams && self.pipeline != 1 =>
                "pipeline", "needs HTTP/1.1; with version \"2\" or \"3\" use streams";
            streams && self.script.is_some() =>
                "script", "script needs HTTP/1.1; remove version or script";
            streams && self.as_wrk => "as_wrk", "as_wrk needs HTTP/1.1";
            streams && only_one.is_some() =>
                "headers", "{:?} is an HTTP/1.1 header; remove it for HTTP/2 and HTTP/3", only_one.map_or("", String::as_str);
            v3 && plain => "url", "HTTP/3 needs https://…";
            v3 && self.unix.is_some() => "unix", "unix and HTTP/3 exclude each other (HTTP/3 uses UDP)";
            v3 && self.tls.version == Some(TlsVersion::V12) => "tls.version", "HTTP/3 needs TLS 1.3";
        }
    }

    fn check_rate(&self, found: &mut Findings) {
        let last = self.rate.len().saturating_sub(1);
        for (i, stage) in self.rate.iter().enumerate() {
            let ok = |rate: f64| rate.is_finite() && (0.0..=1e9).contains(&rate);
            rules! { found:
                !ok(stage.from) || !ok(stage.to) =>
                    "rate", "stage {}: must be between 0 and 1000000000 requests per second, got {} to {}",
                    i + 1, stage.from, stage.to;
                stage.time.is_none() && i < last => "rate", "stage {} has no time; only the last stage may omit it", i + 1;
                stage.time.is_none() && stage.from.to_bits() != stage.to.to_bits() =>
                    "rate", "stage {} changes the rate and needs a time", i + 1;
                stage.time == Some(Span::default()) => "rate", "stage {}: time must be above 0", i + 1;
            }
        }
        rules! { found:
            !self.rate.is_empty() && self.rate.iter().all(|s| s.from <= 0.0 && s.to <= 0.0) =>
                "rate", "must be above 0 in at least one stage";
            self.patience.is_some() && self.rate.is_empty() =>
                "patience", "patience needs rate";
            self.arrivals == Arrivals::Poisson && self.rate.is_empty() =>
                "arrivals", "poisson needs rate; without a rate, a connection sends the next request after its response";
        }
    }
}

impl HttpCall {
    fn check(&self, place: &str, found: &mut Findings) {
        rules! { found:
            !is_token(&self.method) => place, "invalid method {:?}", self.method;
            self.method.eq_ignore_ascii_case("connect") => place, "method CONNECT (tunnels) is not supported";
            !self.path.is_empty() && !self.path.starts_with('/') && self.path != "*" =>
                place, "the path must begin with /, got {:?}", self.path;
            self.path.bytes().any(|b| b <= b' ' || b == 0x7f) =>
                place, "the path has blanks or control characters: {:?}", self.path;
            !(1..=1_000_000).contains(&self.weight) => place, "weight must be between 1 and 1000000, got {}", self.weight;
            self.body_file.is_some() && !self.body.is_empty() => place, "body and body_file exclude each other";
        }
        check_headers(place, &self.headers, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(job: &HttpJob) -> Vec<String> {
        job.problems().into_iter().map(|p| p.place).collect()
    }

    #[test]
    fn what_http3_cannot_be_is_told_by_its_key() {
        let fine = HttpJob {
            url: "https://h/".to_owned(),
            version: HttpVersion::V3,
            streams: 9,
            ..HttpJob::default()
        };
        assert_eq!(places(&fine), [""; 0]);
        type Change = fn(&mut HttpJob);
        let wrong: [(&str, Change); 8] = [
            ("url", |job| job.url = "http://h/".to_owned()),
            ("unix", |job| job.unix = Some("/s".to_owned())),
            ("tls.version", |job| {
                job.tls.version = Some(TlsVersion::V12);
            }),
            ("pipeline", |job| job.pipeline = 2),
            ("streams", |job| job.streams = 1001),
            ("script", |job| job.script = Some(Default::default())),
            ("as_wrk", |job| job.as_wrk = true),
            ("headers", |job| {
                job.headers = vec!["Connection: close".to_owned()];
            }),
        ];
        for (place, change) in wrong {
            let mut job = fine.clone();
            change(&mut job);
            assert_eq!(places(&job), [place]);
        }
    }

    #[test]
    fn poisson_arrivals_need_a_rate() {
        let mut job = HttpJob {
            url: "http://h/".to_owned(),
            arrivals: Arrivals::Poisson,
            ..HttpJob::default()
        };
        assert_eq!(places(&job), ["arrivals"]);
        job.rate = vec![crate::http::HttpStage {
            from: 9.0,
            to: 9.0,
            time: None,
        }];
        assert_eq!(places(&job), [""; 0]);
    }

    #[test]
    fn timeouts_of_phases_are_within_that_of_all() {
        let with = |connect: Option<u64>, first: Option<u64>| HttpJob {
            url: "http://h/".to_owned(),
            connect_timeout: connect.map(Span::from_millis),
            first_byte_timeout: first.map(Span::from_millis),
            ..HttpJob::default()
        };
        assert_eq!(places(&with(Some(9000), Some(2000))), [""; 0]);
        assert_eq!(places(&with(Some(0), None)), ["connect_timeout"]);
        assert_eq!(places(&with(None, Some(0))), ["first_byte_timeout"]);
        assert_eq!(places(&with(None, Some(2001))), ["first_byte_timeout"]);
        assert_eq!(places(&with(Some(90_000_000), None)), ["connect_timeout"]);
    }
}
