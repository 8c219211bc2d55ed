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
                "control.server", "is empty; give the name or address of the server";
            self.control.port == 0 => "control.port", "must be between 1 and 65535, got 0";
        }
        for (place, size) in [
            ("request_size", self.request_size),
            ("response_size", self.response_size),
        ] {
            if !(1..=LARGEST_MESSAGE).contains(&size) {
                found.problem(
                    place,
                    format!("must be between 1 and {LARGEST_MESSAGE} bytes, got {size}"),
                );
            } else if self.protocol.is_datagram()
                && self.test == SocketTest::Rr
                && size > LONGEST_DATAGRAM
            {
                found.problem(
                    place,
                    format!("must be at most {LONGEST_DATAGRAM} bytes for datagrams, got {size}"),
                );
            }
        }
        self.check_side("local", &self.local, &mut found);
        self.check_side("remote", &self.remote, &mut found);
        self.check_streams(&mut found);
        self.check_native(&mut found);
        rules! { found:
            self.duration.is_some_and(|d| d == Span::default()) =>
                "duration", "must be above 0; omit it to run until a signal";
            self.amount == Some(0) => "amount", "must be at least 1, got 0";
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
                    format!("{name}.{key}"), "must be at most {LARGEST_MESSAGE} bytes, got {}", size.unwrap_or(0);
            }
        }
        if self.protocol.is_datagram()
            && let Some(size) = side.send_size.filter(|n| *n > LONGEST_DATAGRAM)
        {
            found.problem(
                format!("{name}.send_size"),
                format!("must be at most {LONGEST_DATAGRAM} bytes for datagrams, got {size}"),
            );
        }
        for (key, n) in [
            ("send_align", side.send_align),
            ("receive_align", side.receive_align),
        ] {
            rules! { found:
                n > 1 << 24 || (n > 1 && !n.is_power_of_two()) =>
                    format!("{name}.{key}"), "must be a power of two, at most 16777216, got {n}";
            }
        }
        rules! { found:
            side.burst > 0 && side.burst_interval == Span::default() =>
                format!("{name}.burst_interval"), "must be above 0 with bursts";
            side.batch > 1024 => format!("{name}.batch"), "must be at most 1024, got {}", side.batch;
            side.pacing_bps.is_some_and(|n| n < 8) =>
                format!("{name}.pacing_bps"), "must be at least 8 bits per second";
        }
    }

    fn check_streams(&self, found: &mut Findings) {
        rules! { found:
            !(1..=512).contains(&self.streams) => "streams", "must be between 1 and 512, got {}", self.streams;
            self.load_streams > 0 && self.test != SocketTest::Rr =>
                "load_streams", "needs test = \"rr\"";
            self.load_streams > 512 => "load_streams", "must be at most 512, got {}", self.load_streams;
            self.streams > 1 && self.control.none => "streams", "several streams need control connections; set control.none = false";
            self.first_burst > 0 && self.rate.is_some() =>
                "first_burst", "first_burst and rate exclude each other";
            self.first_burst > 65_536 => "first_burst", "must be at most 65536, got {}", self.first_burst;
        }
    }

    fn check_native(&self, found: &mut Findings) {
        let datagrams = matches!(self.protocol, SocketProtocol::Udp | SocketProtocol::UdpLite);
        let stream = !self.test.counts_transactions();
        if let Some(rate) = self.rate {
            rules! { found:
                !(rate.is_finite() && rate > 0.0) => "rate", "must be above 0, got {rate}";
                !(self.test == SocketTest::Rr || datagrams && self.test == SocketTest::Send) =>
                    "rate",
                    "needs test = \"rr\" or a datagram stream; for byte streams use pacing_bps";
            }
            // After a lost datagram, every later response would be matched to the wrong request.
            let least = self.request_size.min(self.response_size);
            rules! { found:
                self.test == SocketTest::Rr && datagrams && least < NUMBERED_BYTES =>
                    "rate",
                    "numbers each request and response, so request_size and response_size must be at least 8 bytes, got {least}";
            }
        }
        if self.tagged {
            rules! { found:
                !(datagrams && stream) => "tagged", "needs a datagram stream";
                self.local.send_size.is_some_and(|n| n < TAG) => "tagged", "needs datagrams of at least 18 bytes; set local.send_size";
            }
        }
        let gso = self.local.gso || self.remote.gso || self.local.gro || self.remote.gro;
        rules! { found: gso && !datagrams => "gso", "gso and gro need UDP; the kernel sets them for TCP"; }
        for (place, side) in [("local", &self.local), ("remote", &self.remote)] {
            rules! { found:
                datagrams && matches!(side.send_by, SendBy::Sendfile | SendBy::Uring) =>
                    &format!("{place}.send_by"), "sendfile and uring need TCP";
            }
        }
        if let Some(interim) = self.interim
            && interim < Span::from_millis(1)
        {
            found.problem("interim", format!("must be at least 1ms, got {interim}"));
        }
        rules! { found:
            self.duration.is_some_and(|d| self.omit >= d) && self.omit != Span::default() =>
                "omit", "must be shorter than the duration";
            self.omit != Span::default() && self.amount.is_some() => "omit", "needs a duration";
        }
    }
}

fn check_confidence(confidence: &Confidence, found: &mut Findings) {
    rules! { found:
        ![95, 99].contains(&confidence.level) => "confidence.level", "must be 95 or 99, got {}", confidence.level;
        !(confidence.width.is_finite() && confidence.width > 0.0) =>
            "confidence.width", "must be above 0 percent, got {}", confidence.width;
        confidence.min < 1 || confidence.max < confidence.min || confidence.max > 1000 =>
            "confidence.max", "repetitions must be MIN to MAX between 1 and 1000, got {} to {}", confidence.min,
            confidence.max;
    }
}

impl SocketServerJob {
    /// Returns all problems of this job.
    #[must_use]
    pub fn problems(&self) -> Vec<PlanProblem> {
        let mut found = Findings::default();
        rules! { found:
            !(1..=10_000).contains(&self.clients) => "clients", "must be between 1 and 10000, got {}", self.clients;
        }
        if !(1..=10_000).contains(&self.clients_per_address) {
            let many = self.clients_per_address;
            found.problem(
                "clients_per_address",
                format!("must be between 1 and 10000, got {many}"),
            );
        }
        rules! { found: self.idle < Span::from_millis(100) => "idle", "must be at least 100ms, got {}", self.idle; }
        found.problems
    }
}
