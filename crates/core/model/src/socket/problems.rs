//! Finds everything wrong with a socket test, as far as the job alone shows it.

use super::{
    Confidence, SendBy, SocketJob, SocketProtocol, SocketServerJob, SocketSide, SocketTest,
};
use crate::{units::Span, validate::PlanProblem};

/// The least request or response by datagram that has room for its number.
pub const NUMBERED_BYTES: u32 = 8;

/// Payload of the longest datagram: 65535 bytes less the headers of IPv4 and UDP.
const LONGEST_DATAGRAM: u32 = 65_507;
/// Largest message, request or response.
const LARGEST_MESSAGE: u32 = 1 << 30;
/// Bytes of the tag in a datagram.
const TAG: u32 = 18;

#[derive(Default)]
struct Findings(Vec<PlanProblem>);

impl Findings {
    fn problem(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.0.push(PlanProblem {
            place: place.into(),
            what: what.into(),
        });
    }

    fn forbid(&mut self, wrong: bool, place: &str, what: &str) {
        if wrong {
            self.problem(place, what);
        }
    }
}

impl SocketJob {
    /// Everything wrong with this job; places are its keys, such as `local.send_size`.
    #[must_use]
    pub fn problems(&self) -> Vec<PlanProblem> {
        let mut found = Findings::default();
        found.forbid(
            self.control.server.is_empty(),
            "control.server",
            "it is empty; the name or address of the server",
        );
        found.forbid(
            self.control.port == 0,
            "control.port",
            "it is 0; 1 to 65535 are allowed",
        );
        for (place, size) in [
            ("request_size", self.request_size),
            ("response_size", self.response_size),
        ] {
            if !(1..=LARGEST_MESSAGE).contains(&size) {
                found.problem(place, format!("{size}; 1 to {LARGEST_MESSAGE} bytes"));
            } else if self.protocol.is_datagram()
                && self.test == SocketTest::Rr
                && size > LONGEST_DATAGRAM
            {
                found.problem(
                    place,
                    format!("{size}; a datagram holds at most {LONGEST_DATAGRAM} bytes"),
                );
            }
        }
        self.check_side("local", &self.local, &mut found);
        self.check_side("remote", &self.remote, &mut found);
        self.check_streams(&mut found);
        self.check_native(&mut found);
        found.forbid(
            self.duration.is_some_and(|d| d == Span::default()),
            "duration",
            "it is 0; leave it out to run until a signal",
        );
        found.forbid(
            self.amount == Some(0),
            "amount",
            "it is 0; at least one byte or transaction",
        );
        if let Some(confidence) = &self.confidence {
            check_confidence(confidence, &mut found);
        }
        found.0
    }

    fn check_side(&self, name: &str, side: &SocketSide, found: &mut Findings) {
        for (key, size) in [
            ("send_size", side.send_size),
            ("receive_size", side.receive_size),
            ("send_buffer", side.send_buffer),
            ("receive_buffer", side.receive_buffer),
        ] {
            if size.is_some_and(|n| n > LARGEST_MESSAGE) {
                found.problem(
                    format!("{name}.{key}"),
                    format!("{}; at most {LARGEST_MESSAGE} bytes", size.unwrap_or(0)),
                );
            }
        }
        if self.protocol.is_datagram()
            && let Some(size) = side.send_size.filter(|n| *n > LONGEST_DATAGRAM)
        {
            found.problem(
                format!("{name}.send_size"),
                format!("{size}; a datagram holds at most {LONGEST_DATAGRAM} bytes"),
            );
        }
        for (key, n) in [
            ("send_align", side.send_align),
            ("receive_align", side.receive_align),
        ] {
            if n > 1 << 24 || (n > 1 && !n.is_power_of_two()) {
                found.problem(
                    format!("{name}.{key}"),
                    format!("{n}; a power of two, at most 16 Mi"),
                );
            }
        }
        if side.burst > 0 && side.burst_interval == Span::default() {
            found.problem(
                format!("{name}.burst_interval"),
                "it is 0 and burst is not; the time from burst to burst",
            );
        }
        if side.batch > 1024 {
            found.problem(format!("{name}.batch"), "at most 1024");
        }
        if side.pacing_bps.is_some_and(|n| n < 8) {
            found.problem(format!("{name}.pacing_bps"), "at least 8 bits per second");
        }
    }

    fn check_streams(&self, found: &mut Findings) {
        if !(1..=512).contains(&self.streams) {
            found.problem("streams", format!("{}; 1 to 512", self.streams));
        }
        if self.load_streams > 0 && self.test != SocketTest::Rr {
            found.problem("load_streams", "only with test = \"rr\"");
        }
        if self.load_streams > 512 {
            found.problem(
                "load_streams",
                format!("{}; at most 512", self.load_streams),
            );
        }
        found.forbid(
            self.streams > 1 && self.control.none,
            "streams",
            "several need a control connection each",
        );
        found.forbid(
            self.first_burst > 0 && self.rate.is_some(),
            "first_burst",
            "it and rate are two answers to one question; give one",
        );
        if self.first_burst > 65_536 {
            found.problem(
                "first_burst",
                format!("{}; at most 65536", self.first_burst),
            );
        }
    }

    fn check_native(&self, found: &mut Findings) {
        let datagrams = matches!(self.protocol, SocketProtocol::Udp | SocketProtocol::UdpLite);
        let stream = !self.test.counts_transactions();
        if let Some(rate) = self.rate {
            if !(rate.is_finite() && rate > 0.0) {
                found.problem("rate", format!("{rate}; more than 0"));
            }
            found.forbid(
                !(self.test == SocketTest::Rr || datagrams && self.test == SocketTest::Send),
                "rate",
                "it is for rr and for datagrams that are sent; pacing_bps is for streams of bytes",
            );
            // A lost datagram would shift the answers of all that follow.
            let least = self.request_size.min(self.response_size);
            found.forbid(
                self.test == SocketTest::Rr && datagrams && least < NUMBERED_BYTES,
                "rate",
                "with it requests and responses by datagram carry a number: at least 8 bytes each \
                 (request_size, response_size)",
            );
        }
        if self.tagged {
            found.forbid(
                !(datagrams && stream),
                "tagged",
                "it is for streams of datagrams",
            );
            found.forbid(
                self.local.send_size.is_some_and(|n| n < TAG),
                "tagged",
                "it needs datagrams of 18 bytes",
            );
        }
        let gso = self.local.gso || self.remote.gso || self.local.gro || self.remote.gro;
        found.forbid(
            gso && !datagrams,
            "gso",
            "it is for UDP; TCP has it by itself",
        );
        for (place, side) in [("local", &self.local), ("remote", &self.remote)] {
            found.forbid(
                datagrams && matches!(side.send_by, SendBy::Sendfile | SendBy::Uring),
                &format!("{place}.send_by"),
                "sendfile and uring are for TCP",
            );
        }
        if let Some(interim) = self.interim
            && interim < Span::from_millis(1)
        {
            found.problem("interim", format!("{interim}; at least 1ms"));
        }
        if self.duration.is_some_and(|d| self.omit >= d) && self.omit != Span::default() {
            found.problem("omit", "nothing is left of the duration");
        }
        found.forbid(
            self.omit != Span::default() && self.amount.is_some(),
            "omit",
            "it needs a duration",
        );
    }
}

fn check_confidence(confidence: &Confidence, found: &mut Findings) {
    if ![95, 99].contains(&confidence.level) {
        found.problem(
            "confidence.level",
            format!("{}; 95 or 99", confidence.level),
        );
    }
    if !(confidence.width.is_finite() && confidence.width > 0.0) {
        found.problem("confidence.width", "more than 0 percent");
    }
    if confidence.min < 1 || confidence.max < confidence.min || confidence.max > 1000 {
        found.problem(
            "confidence.max",
            format!(
                "{} to {} repetitions; 1 to 1000, the least first",
                confidence.min, confidence.max
            ),
        );
    }
}

impl SocketServerJob {
    /// Everything wrong with this job.
    #[must_use]
    pub fn problems(&self) -> Vec<PlanProblem> {
        let mut found = Findings::default();
        if !(1..=10_000).contains(&self.clients) {
            found.problem("clients", format!("{}; 1 to 10000", self.clients));
        }
        if !(1..=10_000).contains(&self.clients_per_address) {
            let many = self.clients_per_address;
            found.problem("clients_per_address", format!("{many}; 1 to 10000"));
        }
        if self.idle < Span::from_millis(100) {
            found.problem("idle", format!("{}; at least 100ms", self.idle));
        }
        found.0
    }
}
