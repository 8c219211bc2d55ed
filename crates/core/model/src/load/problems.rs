//! Checks of one job of stateful load, as far as they need only the job.

use super::{
    HttpRequest, LoadAnswer, LoadEnd, LoadJob, LoadMessage, LoadReading, LoadTransport, Vxlan,
};
use crate::{
    criteria::statistics,
    units::{AddressRange, Span},
    validate::{Findings, PlanProblem, rules},
};

/// Payload of the longest datagram: 65535 bytes less the headers of IPv4 and UDP.
const LONGEST_DATAGRAM: u32 = 65_507;

/// Maximum length of an SNMP community; RFC 3584 sets no limit, but agents do.
const LONGEST_COMMUNITY: usize = 255;

/// Returns true if the loads measure the metric of a criterion.
pub(crate) fn measures(jobs: &[LoadJob], metric: &str) -> bool {
    let asks = |job: &&LoadJob| job.is_client() && !job.flood;
    let is_http = |job: &LoadJob| !job.is_udp() && job.reading == LoadReading::Http;
    let mut asking = jobs.iter().filter(asks);
    let mut clients = jobs.iter().filter(|job| job.is_client()).peekable();
    match metric {
        // A flood does not wait, so its requests cannot fail. A UDP server does not know its clients.
        "failed" => match clients.peek() {
            Some(_) => asking.next().is_some(),
            None => jobs.iter().any(|job| !job.is_udp()),
        },
        "unsent" => clients.next().is_some(),
        // For TCP connections, `failed` covers this.
        "loss" | "lost" | "duplicates" => asking.any(LoadJob::is_udp),
        "errors" => asking.any(is_http),
        "cps" | "rps" | "open" => clients.peek().is_none() || asking.next().is_some(),
        "pps" | "bps" => true,
        time => match time.split_once('_') {
            Some(("http", _)) => asking.any(is_http),
            Some(("connect", _)) => clients.any(|job| !job.is_udp()),
            _ => statistics().any(|own| own == time) && asking.next().is_some(),
        },
    }
}

impl LoadJob {
    /// Addresses of the job's own end.
    #[must_use]
    pub fn own_addresses(&self) -> Vec<AddressRange> {
        match (&self.vxlan, self.end) {
            (Some(tunnel), _) => vec![tunnel.local],
            (None, LoadEnd::Client) => self.clients.clone(),
            (None, LoadEnd::Server) => self.servers.clone(),
        }
    }

    /// Returns all problems of this job; places are its keys, such as `tcp.window`. The plan checks that the port
    /// exists and has enough workers.
    #[must_use]
    pub fn problems(&self) -> Vec<PlanProblem> {
        let mut found = Findings::default();
        self.check_addresses(&mut found);
        self.check_frames(&mut found);
        self.check_messages(&mut found);
        match self.end {
            LoadEnd::Client => self.check_client(&mut found),
            LoadEnd::Server => self.check_server(&mut found),
        }
        self.check_shape(&mut found);
        self.check_tcp(&mut found);
        found.problems
    }

    fn is_client(&self) -> bool {
        self.end == LoadEnd::Client
    }

    fn is_udp(&self) -> bool {
        self.transport == LoadTransport::Udp
    }

    fn check_addresses(&self, found: &mut Findings) {
        rules! { found:
            self.port.is_empty() => "port", "is empty; give the name of a port";
            self.is_client() && self.clients.is_empty() =>
                "clients", "is empty; a client needs source addresses";
            self.servers.is_empty() => "servers", "is empty; give at least one address";
        }
        let v6 = self.servers.first().map(AddressRange::is_ipv6);
        let other = |range: &AddressRange| v6.is_some_and(|v6| range.is_ipv6() != v6);
        for (place, ranges) in [("clients", &self.clients), ("servers", &self.servers)] {
            if let Some(range) = ranges.iter().find(|r| other(r)) {
                found.problem(
                    place,
                    format!("{range} and the servers have different IP versions; use one job per version"),
                );
            }
        }
        // A server is never its own client, so overlaps are harmless there.
        for client in self.clients.iter().filter(|_| self.is_client()) {
            if let Some(server) = self.servers.iter().find(|s| overlap(s, client)) {
                found.problem("clients", format!("{client} overlaps the servers {server}"));
            }
        }
        for (place, ports) in [
            ("client_ports", self.client_ports),
            ("server_ports", self.server_ports),
        ] {
            rules! { found:
                ports.first == 0 || ports.first > ports.last =>
                    place, "must be a range FIRST-LAST between 1 and 65535, got {ports}";
            }
        }
        let Some(place) = self.destinations.first().map(|_| "destinations") else {
            return;
        };
        rules! { found:
            !(self.is_client() && self.flood) =>
                place, "needs a client with flood; other clients could not match the responses";
            self.vxlan.is_some() => place, "destinations and vxlan exclude each other";
        }
        for destinations in &self.destinations {
            rules! { found:
                other(&destinations.addresses) =>
                    place, "{} and the servers have different IP versions", destinations.addresses;
                destinations.step == 0 => place, "step must be at least 1, got 0";
            }
        }
    }

    fn check_frames(&self, found: &mut Findings) {
        if let Some(id) = self.vlan.filter(|id| !(1..=4094).contains(id)) {
            found.problem("vlan", format!("must be between 1 and 4094, got {id}"));
        }
        if let Some(vxlan) = &self.vxlan {
            check_tunnel(vxlan, found);
        }
        rules! { found:
            self.ttl == 0 => "ttl", "must be between 1 and 255, got 0";
            self.batch > 1024 => "batch", "must be at most 1024, got {}", self.batch;
        }
    }

    fn check_messages(&self, found: &mut Findings) {
        let udp = self.is_udp();
        rules! { found: self.reading == LoadReading::Bytes(0) => "reading.bytes", "must be at least 1, got 0"; }
        self.check_routes(found);
        if self.is_client() {
            match &self.request {
                LoadMessage::Bytes(n) | LoadMessage::Random(n) => {
                    check_size("request", *n, udp, found);
                    rules! { found:
                        *n == 0 && !udp && !self.flood => "request", "must be at least 1 byte with TCP, got 0";
                    }
                }
                LoadMessage::File(path) => check_path("request", path, found),
                LoadMessage::Http(_) if udp => {
                    found.problem(
                        "request",
                        "HTTP needs TCP; with UDP use bytes, random, file or snmp",
                    );
                }
                LoadMessage::Http(request) => check_http(request, found),
                LoadMessage::Rip(first) => {
                    rules! { found:
                        !(1..=2).contains(first) => "request.rip", "must be 1 or 2, got {first}";
                        !udp || !self.flood => "request", "rip needs transport = \"udp\" and flood";
                        self.servers.first().is_some_and(AddressRange::is_ipv6) =>
                            "request", "rip (RIPv2) needs IPv4 addresses";
                    }
                }
                LoadMessage::Snmp(community) => {
                    let is_plain = community.bytes().all(|b| b.is_ascii_graphic());
                    rules! { found:
                        !udp => "request", "SNMP needs UDP; with TCP use bytes, random, file or http";
                        !(1..=LONGEST_COMMUNITY).contains(&community.len()) || !is_plain =>
                            "request.snmp", "the community must have 1 to {LONGEST_COMMUNITY} visible ASCII characters, got {community:?}";
                    }
                }
            }
            return;
        }
        for (place, answer) in std::iter::once(("answer", &self.answer))
            .chain(self.worker_answers.iter().map(|a| ("worker_answers", a)))
        {
            match answer {
                LoadAnswer::Bytes(n) | LoadAnswer::Random(n) => check_size(place, *n, udp, found),
                LoadAnswer::File(path) => check_path(place, path, found),
                LoadAnswer::Http(_) => rules! { found:
                    udp && (place != "answer" || self.worker_answers.is_empty()) =>
                        place, "HTTP needs TCP; with UDP use bytes, random, file, echo or sink";
                },
                LoadAnswer::Echo | LoadAnswer::Sink => {}
            }
        }
    }

    fn check_routes(&self, found: &mut Findings) {
        if self.routes.is_empty() {
            return;
        }
        let place = "route";
        rules! { found:
            self.is_client() => place, "routes apply to servers only";
            self.is_udp() || self.reading != LoadReading::Http =>
                place, "routes need transport = \"tcp\" and reading = \"http\"";
            self.tcp.like_dperf => place, "route and tcp.like_dperf exclude each other";
            self.routes.len() > 1000 => place, "at most 1000 routes are allowed, got {}", self.routes.len();
        }
        for (i, route) in self.routes.iter().enumerate() {
            let path = &route.path;
            let bare = matches!(route.status, 204 | 304);
            rules! { found:
                !(path.starts_with('/') || path == "*") || !path.bytes().all(|b| b.is_ascii_graphic())
                    || path.contains('?') =>
                    place, "path must begin with /, without query, in visible ASCII characters (* at the end matches a prefix), got {path:?}";
                self.routes[..i].iter().any(|other| other.path == *path) => place, "duplicate path {path:?}";
                !(200..=599).contains(&route.status) => place, "{path}: status must be between 200 and 599, got {}", route.status;
                bare && route.size > 0 => place, "{path}: a response with status {} has no body; set size = 0", route.status;
                route.size > 1 << 29 => place, "{path}: size must be at most 536870912, got {}", route.size;
                route.delay > Span::from_secs(30) || route.delay >= self.tcp.idle_timeout
                    && self.tcp.idle_timeout != Span::default() =>
                    place, "{path}: delay must be at most 30s and below tcp.idle_timeout, got {}", route.delay;
            }
        }
    }

    fn check_client(&self, found: &mut Findings) {
        rules! { found: !(1..=100).contains(&self.pipeline) => "pipeline", "must be between 1 and 100, got {}", self.pipeline; }
        let rate = &self.rate;
        let frames = rate.rps.or(rate.pps).or(rate.bps);
        rules! { found:
            rate.cps.is_none() && rate.cc.is_none() && frames.is_none() =>
                "rate", "missing: give cps, cc, rps, pps or bps";
            !self.is_udp() && (rate.pps.is_some() || rate.bps.is_some()) =>
                "rate", "pps and bps need UDP; with TCP use cps, cc or rps";
            rate.rps == Some(super::LoadRate::MAX) && (self.flood || self.interval != Span::default()) =>
                "rate", "rps = \"max\" excludes flood and interval";
            self.flood && self.requests != 1 && self.interval == Span::default() && frames.is_none() =>
                "interval", "must be above 0 with flood, which does not wait for responses";
        }
        let tuples = self.tuples();
        if let Some(cc) = rate.cc.filter(|cc| u128::from(*cc) > tuples) {
            found.problem(
                "rate.cc",
                format!(
                    "{cc} connections need as many 4-tuples, and addresses and ports have {tuples}; add addresses or ports"
                ),
            );
        }
        rules! { found:
            self.proxy => "proxy", "applies to servers only";
            !self.worker_answers.is_empty() => "worker_answers", "applies to servers only";
        }
    }

    /// Number of combinations of both addresses and ports.
    #[must_use]
    pub fn tuples(&self) -> u128 {
        let count = |ranges: &[AddressRange]| {
            ranges
                .iter()
                .map(AddressRange::count)
                .fold(0u128, u128::saturating_add)
        };
        let ports =
            |ports: crate::units::PortRange| u128::from(ports.last.saturating_sub(ports.first)) + 1;
        count(&self.clients)
            .saturating_mul(count(&self.servers))
            .saturating_mul(ports(self.client_ports))
            .saturating_mul(ports(self.server_ports))
    }

    fn check_server(&self, found: &mut Findings) {
        rules! { found:
            self.flood => "flood", "applies to clients only";
            self.proxy && self.is_udp() => "proxy", "needs TCP";
        }
    }

    fn check_shape(&self, found: &mut Findings) {
        let shape = &self.shape;
        // A server without a duration answers until it is stopped.
        rules! { found:
            self.is_client() && shape.duration == Span::default() => "shape.duration", "must be above 0";
            shape.drain > Span::from_secs(60) => "shape.drain", "must be at most 1m, got {}", shape.drain;
        }
        for (i, point) in shape.profile.iter().enumerate() {
            rules! { found:
                !(0.0..=10.0).contains(&point.share) =>
                    "shape.profile", "shares must be between 0 and 10, got {}", point.share;
                point.at > shape.duration =>
                    "shape.profile", "the point at {} is after the end of the duration, {}", point.at, shape.duration;
                i > 0 && point.at <= shape.profile[i - 1].at =>
                    "shape.profile", "points must be in ascending order, got {} after {}",
                    point.at, shape.profile[i - 1].at;
            }
        }
    }

    fn check_tcp(&self, found: &mut Findings) {
        let tcp = &self.tcp;
        rules! { found:
            !(1..=1 << 30).contains(&tcp.window) => "tcp.window", "must be between 1 and 1073741824, got {}", tcp.window;
            tcp.retransmit == Span::default() => "tcp.retransmit", "must be above 0";
            tcp.tries == 0 => "tcp.tries", "must be between 1 and 255, got 0";
        }
    }
}

/// Returns true if the ranges have a common address.
fn overlap(a: &AddressRange, b: &AddressRange) -> bool {
    a.contains(b.first()) || b.contains(a.first())
}

fn check_tunnel(vxlan: &Vxlan, found: &mut Findings) {
    rules! { found:
        !(1..=0xff_ffff).contains(&vxlan.vni) => "vxlan.vni", "must be between 1 and 16777215, got {}", vxlan.vni;
    }
    for (place, ends) in [
        ("vxlan.local", &vxlan.local),
        ("vxlan.remote", &vxlan.remote),
    ] {
        rules! { found: ends.is_ipv6() => place, "must be an IPv4 address, got {ends}"; }
    }
}

fn check_size(place: &str, size: u32, udp: bool, found: &mut Findings) {
    rules! { found:
        udp && size > LONGEST_DATAGRAM =>
            place, "must be at most {LONGEST_DATAGRAM} bytes with UDP, got {size}";
    }
}

fn check_path(place: &str, path: &str, found: &mut Findings) {
    rules! { found: path.is_empty() => place, "the path of the file is empty"; }
}

/// Checks an HTTP request line: RFC 9112 section 3 allows a method, a target and only the blanks between them.
fn check_http(request: &HttpRequest, found: &mut Findings) {
    let visible = |text: &str| text.chars().all(|c| c.is_ascii_graphic());
    rules! { found:
        request.method.is_empty() || !request.method.bytes().all(|b| b.is_ascii_alphabetic()) =>
            "request.http.method", "expected letters, such as GET, got {:?}", request.method;
        !request.path.starts_with('/') || !visible(&request.path) =>
            "request.http.path", "expected / and visible ASCII characters, got {:?}", request.path;
        !visible(&request.host) => "request.http.host", "expected visible ASCII characters, got {:?}", request.host;
        request.size != 0 && request.body != 0 =>
            "request.http.size", "size and body exclude each other";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        load::{Destinations, LoadRate, ProfilePoint},
        units::PortRange,
    };

    fn client() -> LoadJob {
        LoadJob {
            port: "a".to_owned(),
            clients: vec!["198.18.0.2-198.18.0.9".parse().unwrap()],
            servers: vec!["198.19.0.2".parse().unwrap()],
            rate: LoadRate {
                cps: Some(1000),
                ..LoadRate::default()
            },
            ..LoadJob::default()
        }
    }

    fn server() -> LoadJob {
        LoadJob {
            end: LoadEnd::Server,
            rate: LoadRate::default(),
            ..client()
        }
    }

    fn tunnel(vni: u32, remote: &str) -> Option<Vxlan> {
        Some(Vxlan {
            vni,
            src_mac: "02:00:00:00:00:01".parse().unwrap(),
            dst_mac: "02:00:00:00:00:02".parse().unwrap(),
            local: "198.18.0.1".parse().unwrap(),
            remote: remote.parse().unwrap(),
        })
    }

    fn http(request: HttpRequest) -> LoadMessage {
        LoadMessage::Http(request)
    }

    fn flood(job: &mut LoadJob) {
        job.transport = LoadTransport::Udp;
        job.request = LoadMessage::Bytes(22);
        job.flood = true;
    }

    fn destinations(addresses: &str, step: u64) -> Vec<Destinations> {
        let addresses = addresses.parse().unwrap();
        vec![Destinations { addresses, step }]
    }

    #[test]
    fn criteria_that_a_load_does_not_measure_are_refused() {
        let refused = |jobs: &[LoadJob]| -> Vec<String> {
            [
                "failed<=1%",
                "errors<=1%",
                "unsent<=1%",
                "loss<=1%",
                "duplicates<=1%",
                "reordered<=1%",
                "p99<=1ms",
            ]
            .iter()
            .map(|text| text.parse::<crate::criteria::Criterion>().unwrap().metric)
            .filter(|metric| !measures(jobs, metric))
            .collect()
        };
        let mut udp = client();
        (udp.transport, udp.request) = (LoadTransport::Udp, LoadMessage::Bytes(18));
        let mut flood = udp.clone();
        flood.flood = true;
        assert_eq!(
            refused(&[client(), server()]),
            ["loss", "duplicates", "reordered"]
        );
        assert_eq!(refused(&[udp]), ["errors", "reordered"]);
        let no_answer = ["loss", "duplicates", "reordered", "p99"];
        assert_eq!(
            refused(&[flood]),
            [&["failed", "errors"], &no_answer[..]].concat()
        );
        assert_eq!(
            refused(&[server()]),
            [&["errors", "unsent"], &no_answer[..]].concat()
        );
    }

    #[test]
    fn good_jobs() {
        assert_eq!(client().problems(), []);
        assert_eq!(server().problems(), []);
        let mut job = client();
        flood(&mut job);
        job.vxlan = tunnel(1, "198.19.0.1");
        assert_eq!(job.problems(), []);
        // Any client.
        let mut job = server();
        job.clients.clear();
        job.transport = LoadTransport::Udp;
        job.answer = LoadAnswer::Bytes(0);
        assert_eq!(job.problems(), []);
    }

    #[test]
    fn a_limit_of_0_sends_nothing() {
        let rate = |cps, cc, rps| LoadRate {
            cps,
            cc,
            rps,
            ..LoadRate::default()
        };
        for rate in [
            rate(Some(0), None, None),
            rate(Some(0), Some(9), None),
            rate(Some(9), Some(0), None),
            rate(None, None, Some(0)),
        ] {
            assert!(rate.sends_nothing(), "{rate:?}");
        }
        for rate in [
            rate(None, None, None),
            rate(Some(1), None, None),
            // Connections without requests.
            rate(None, Some(9), Some(0)),
        ] {
            assert!(!rate.sends_nothing(), "{rate:?}");
        }
    }

    /// Place of a problem, and the change that causes it.
    type Spoilt = (&'static str, fn(&mut LoadJob));

    const CLIENTS: &[Spoilt] = &[
        ("port", |j| j.port.clear()),
        ("clients", |j| j.clients.clear()),
        ("servers", |j| j.servers.clear()),
        ("clients", |j| j.clients.push("2001:2::1".parse().unwrap())),
        ("servers", |j| j.servers.push("2001:2::1".parse().unwrap())),
        ("clients", |j| j.clients = j.servers.clone()),
        ("clients", |j| {
            j.clients = vec!["198.19.0.0/24".parse().unwrap()]
        }),
        ("client_ports", |j| j.client_ports = PortRange::single(0)),
        ("server_ports", |j| {
            j.server_ports = PortRange { first: 9, last: 8 }
        }),
        ("destinations", |j| {
            j.destinations = destinations("198.19.1.1", 1)
        }),
        ("destinations", |j| {
            flood(j);
            j.destinations = destinations("198.19.1.1", 0);
        }),
        ("destinations", |j| {
            flood(j);
            j.destinations = destinations("2001:2::1", 1);
        }),
        ("destinations", |j| {
            flood(j);
            j.destinations = destinations("198.19.1.1", 1);
            j.vxlan = tunnel(1, "198.19.0.1");
        }),
        ("vlan", |j| j.vlan = Some(4095)),
        ("vxlan.vni", |j| j.vxlan = tunnel(0, "198.19.0.1")),
        ("vxlan.remote", |j| j.vxlan = tunnel(1, "2001:2::1")),
        ("ttl", |j| j.ttl = 0),
        ("batch", |j| j.batch = 1025),
        ("request", |j| j.request = LoadMessage::Bytes(0)),
        ("request", |j| j.request = LoadMessage::File(String::new())),
        ("request", |j| j.transport = LoadTransport::Udp),
        ("request", |j| {
            flood(j);
            j.request = LoadMessage::Random(65_508);
        }),
        ("request.http.method", |j| {
            j.request = http(HttpRequest {
                method: "GET /".to_owned(),
                ..HttpRequest::default()
            });
        }),
        ("request.http.path", |j| {
            j.request = http(HttpRequest {
                path: "/a b".to_owned(),
                ..HttpRequest::default()
            });
        }),
        ("request.http.host", |j| {
            j.request = http(HttpRequest {
                host: "a\r\nb".to_owned(),
                ..HttpRequest::default()
            });
        }),
        ("request.http.size", |j| {
            j.request = http(HttpRequest {
                size: 100,
                body: 10,
                ..HttpRequest::default()
            });
        }),
        ("reading.bytes", |j| j.reading = LoadReading::Bytes(0)),
        ("pipeline", |j| j.pipeline = 0),
        ("rate", |j| j.rate = LoadRate::default()),
        ("rate", |j| j.rate.pps = Some(1)),
        ("rate.cc", |j| {
            j.rate.cc = Some(11);
            j.client_ports = PortRange::single(1);
        }),
        ("interval", |j| {
            flood(j);
            j.requests = 0;
        }),
        ("proxy", |j| j.proxy = true),
        ("worker_answers", |j| {
            j.worker_answers = vec![LoadAnswer::Echo]
        }),
        ("shape.duration", |j| j.shape.duration = Span::default()),
        ("shape.drain", |j| j.shape.drain = Span::from_secs(61)),
        ("shape.profile", |j| {
            j.shape.profile = vec![ProfilePoint {
                at: Span::from_secs(1),
                share: f64::NAN,
            }];
        }),
        ("shape.profile", |j| {
            j.shape.profile = vec![ProfilePoint {
                at: Span::from_secs(11),
                share: 1.0,
            }];
        }),
        ("shape.profile", |j| {
            let at = Span::from_secs(1);
            j.shape.profile = vec![ProfilePoint { at, share: 1.0 }; 2];
        }),
        ("tcp.window", |j| j.tcp.window = 0),
        ("tcp.retransmit", |j| j.tcp.retransmit = Span::default()),
        ("tcp.tries", |j| j.tcp.tries = 0),
    ];

    const SERVERS: &[Spoilt] = &[
        ("servers", |j| j.servers.clear()),
        ("answer", |j| j.transport = LoadTransport::Udp),
        ("answer", |j| j.answer = LoadAnswer::File(String::new())),
        ("worker_answers", |j| {
            j.transport = LoadTransport::Udp;
            j.worker_answers = vec![LoadAnswer::Http(1), LoadAnswer::Sink];
        }),
        ("flood", |j| j.flood = true),
        ("proxy", |j| {
            j.transport = LoadTransport::Udp;
            j.answer = LoadAnswer::Echo;
            j.proxy = true;
        }),
    ];

    #[test]
    fn each_mistake_is_told_once_with_its_place() {
        let bases = [(client as fn() -> LoadJob, CLIENTS), (server, SERVERS)];
        for (base, spoilt) in bases {
            for (n, (place, spoil)) in spoilt.iter().enumerate() {
                let mut job = base();
                spoil(&mut job);
                let problems = job.problems();
                let places: Vec<&str> = problems.iter().map(|p| p.place.as_str()).collect();
                assert_eq!(places, [*place], "{:?} {n}: {problems:?}", job.end);
            }
        }
    }
}
