//! Checks of one socket test, as far as they need only the job.

use super::{
    Confidence, SendBy, SocketJob, SocketProtocol, SocketServerJob, SocketSide, SocketTest,
};
use crate::{
    units::Span,
    validate::{Findings, PlanProblem, rules},
};

/// Minimum size in bytes of a datagram request or response with a number.
pub const NUMBERED_BYTES: u32 = 8;

/// Payload of the longest datagram: 65535 bytes less the headers of IPv4 and UDP.
const LONGEST_DATAGRAM: u32 = 65_507;
/// Maximum size of a message, request or response, in bytes.
const LARGEST_MESSAGE: u32 = 1 << 30;
/// Length of the tag in a datagram, in bytes.
const TAG: u32 = 18;

impl SocketJob {
    /// Returns all problems of this job; places are its keys, such as `local.send_size`.
    #[must_use]
    pub fn problems(&self) -> Vec<PlanProblem> {
        let mut found = Findings::default();
        rules! { found:
            self.control.server.is_empty() =>
                "control.server", "it is empty; the name or address of the server";
            self.control.port == 0 => "control.port", "it is 0; 1 to 65535 are allowed";
        }
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
        rules! { found:
            self.duration.is_some_and(|d| d == Span::default()) =>
                "duration", "it is 0; leave it out to run until a signal";
            self.amount == Some(0) => "amount", "it is 0; at least one byte or transaction";
        }
        if let Some(confidence) = &self.confidence {
            check_confidence(confidence, &mut found);
        }
        found.problems
    }

    fn check_side(&self, name: &str, side: &SocketSide, found: &mut Findings) {
        for (key, size) in [
            ("send_size", side.send_size),
            ("receive_size", side.receive_size),
            ("send_buffer", side.send_buffer),
            ("receive_buffer", side.receive_buffer),
        ] {
            rules! { found:
                size.is_some_and(|n| n > LARGEST_MESSAGE) =>
                    format!("{name}.{key}"), "{}; at most {LARGEST_MESSAGE} bytes", size.unwrap_or(0);
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
            rules! { found:
                n > 1 << 24 || (n > 1 && !n.is_power_of_two()) =>
                    format!("{name}.{key}"), "{n}; a power of two, at most 16 Mi";
            }
        }
        rules! { found:
            side.burst > 0 && side.burst_interval == Span::default() =>
                format!("{name}.burst_interval"), "it is 0 and burst is not; the time from burst to burst";
            side.batch > 1024 => format!("{name}.batch"), "at most 1024";
            side.pacing_bps.is_some_and(|n| n < 8) =>
                format!("{name}.pacing_bps"), "at least 8 bits per second";
        }
    }

    fn check_streams(&self, found: &mut Findings) {
        rules! { found:
            !(1..=512).contains(&self.streams) => "streams", "{}; 1 to 512", self.streams;
            self.load_streams > 0 && self.test != SocketTest::Rr =>
                "load_streams", "only with test = \"rr\"";
            self.load_streams > 512 => "load_streams", "{}; at most 512", self.load_streams;
            self.streams > 1 && self.control.none => "streams", "several need a control connection each";
            self.first_burst > 0 && self.rate.is_some() =>
                "first_burst", "it and rate are two answers to one question; give one";
            self.first_burst > 65_536 => "first_burst", "{}; at most 65536", self.first_burst;
        }
    }

    fn check_native(&self, found: &mut Findings) {
        let datagrams = matches!(self.protocol, SocketProtocol::Udp | SocketProtocol::UdpLite);
        let stream = !self.test.counts_transactions();
        if let Some(rate) = self.rate {
            rules! { found:
                !(rate.is_finite() && rate > 0.0) => "rate", "{rate}; more than 0";
                !(self.test == SocketTest::Rr || datagrams && self.test == SocketTest::Send) =>
                    "rate",
                    "it is for rr and for datagrams that are sent; pacing_bps is for streams of bytes";
            }
            // After a lost datagram, every later response would be matched to the wrong request.
            let least = self.request_size.min(self.response_size);
            rules! { found:
                self.test == SocketTest::Rr && datagrams && least < NUMBERED_BYTES =>
                    "rate",
                    "with it requests and responses by datagram carry a number: at least 8 bytes each (request_size, response_size)";
            }
        }
        if self.tagged {
            rules! { found:
                !(datagrams && stream) => "tagged", "it is for streams of datagrams";
                self.local.send_size.is_some_and(|n| n < TAG) => "tagged", "it needs datagrams of 18 bytes";
            }
        }
        let gso = self.local.gso || self.remote.gso || self.local.gro || self.remote.gro;
        rules! { found: gso && !datagrams => "gso", "it is for UDP; TCP has it by itself"; }
        for (place, side) in [("local", &self.local), ("remote", &self.remote)] {
            rules! { found:
                datagrams && matches!(side.send_by, SendBy::Sendfile | SendBy::Uring) =>
                    &format!("{place}.send_by"), "sendfile and uring are for TCP";
            }
        }
        if let Some(interim) = self.interim
            && interim < Span::from_millis(1)
        {
            found.problem("interim", format!("{interim}; at least 1ms"));
        }
        rules! { found:
            self.duration.is_some_and(|d| self.omit >= d) && self.omit != Span::default() =>
                "omit", "nothing is left of the duration";
            self.omit != Span::default() && self.amount.is_some() => "omit", "it needs a duration";
        }
    }
}

fn check_confidence(confidence: &Confidence, found: &mut Findings) {
    rules! { found:
        ![95, 99].contains(&confidence.level) => "confidence.level", "{}; 95 or 99", confidence.level;
        !(confidence.width.is_finite() && confidence.width > 0.0) =>
            "confidence.width", "more than 0 percent";
        confidence.min < 1 || confidence.max < confidence.min || confidence.max > 1000 =>
            "confidence.max", "{} to {} repetitions; 1 to 1000, the least first", confidence.min,
            confidence.max;
    }
}

impl SocketServerJob {
    /// Returns all problems of this job.
    #[must_use]
    pub fn problems(&self) -> Vec<PlanProblem> {
        let mut found = Findings::default();
        rules! { found:
            !(1..=10_000).contains(&self.clients) => "clients", "{}; 1 to 10000", self.clients;
        }
        if !(1..=10_000).contains(&self.clients_per_address) {
            let many = self.clients_per_address;
            found.problem("clients_per_address", format!("{many}; 1 to 10000"));
        }
        rules! { found: self.idle < Span::from_millis(100) => "idle", "{}; at least 100ms", self.idle; }
        found.problems
    }
}
