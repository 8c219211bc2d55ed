//! Value that each selector prints.

use std::net::IpAddr;

use wb_model::socket::{
    CpuUse, Family, SocketEndReport, SocketJob, SocketJobReport, SocketProtocol, SocketSide,
    SocketTest, SocketType,
};

use super::selectors::{Item, Moment, Side};
use super::unit::{self, Unit};
use crate::{Show, TestKind};

/// A finished test with its output options.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) show: &'a Show,
    pub(crate) job: &'a SocketJob,
    pub(crate) report: &'a SocketJobReport,
}

impl View<'_> {
    pub(crate) const fn end(&self, side: Side) -> &SocketEndReport {
        match side {
            Side::Local => &self.report.local,
            Side::Remote => &self.report.remote,
        }
    }

    pub(crate) const fn asked(&self, side: Side) -> &SocketSide {
        match side {
            Side::Local => &self.job.local,
            Side::Remote => &self.job.remote,
        }
    }

    const fn cpu(&self, side: Side) -> Option<CpuUse> {
        match side {
            Side::Local => self.report.result.local_cpu,
            Side::Remote => self.report.result.remote_cpu,
        }
    }

    /// CPU use in percent; −1 if not measured.
    pub(crate) fn cpu_total(&self, side: Side) -> f64 {
        self.cpu(side).map_or(-1.0, |cpu| cpu.total)
    }

    /// Service demand; −1 if not measured.
    pub(crate) fn demand(&self, side: Side) -> f64 {
        match side {
            Side::Local => self.report.result.local_service_demand,
            Side::Remote => self.report.result.remote_service_demand,
        }
        .map_or(-1.0, |demand| demand * self.operations_per_unit())
    }

    /// Transactions per KiB if the rate of transactions is shown in bytes or bits; the service demand is then per
    /// KiB. The figures have it per transaction.
    fn operations_per_unit(&self) -> f64 {
        let figures = &self.report.result;
        let kibibytes = figures.throughput_bps / 8.0 / 1024.0;
        let by_bytes = self.job.test.counts_transactions()
            && Unit::of(self.show, self.job) != Unit::Transactions
            && kibibytes > 0.0;
        match by_bytes {
            true => figures.transactions_per_second / kibibytes,
            false => 1.0,
        }
    }

    /// Method of the CPU measurement: "S" for /proc/stat, "U" for none.
    pub(crate) const fn method(&self, side: Side) -> &'static str {
        if self.cpu(side).is_some() { "S" } else { "U" }
    }

    /// Rate of the bytes that crossed one end, in the unit of the result.
    fn side_rate(&self, bytes: u64) -> f64 {
        let seconds = self.report.result.elapsed_s;
        let bps = if seconds > 0.0 {
            bytes as f64 * 8.0 / seconds
        } else {
            0.0
        };
        Unit::of(self.show, self.job)
            .for_bytes()
            .rate(bps, self.show.strict)
    }

    /// Round trip in µs, derived from the rate; −1 without transactions.
    pub(crate) fn round_trip_us(&self) -> f64 {
        if !self.job.test.counts_transactions() {
            return -1.0;
        }
        let burst = if self.job.test.connects_each() {
            0
        } else {
            self.job.first_burst
        };
        1e6 / self.report.result.transactions_per_second * (1.0 + f64::from(burst))
    }

    /// Value for an operation time without samples, as in the original: 0 if latency was requested, else −1.
    fn no_latency(&self) -> i32 {
        if self.job.latency { 0 } else { -1 }
    }

    /// Nanoseconds rounded to microseconds.
    fn microseconds(&self, ns: Option<i64>) -> String {
        ns.map_or_else(
            || self.no_latency().to_string(),
            |ns| (ns.saturating_add(500)).div_euclid(1000).to_string(),
        )
    }

    /// Address family number of the data connection's server.
    fn destination_family(&self) -> i32 {
        let host = self.destination();
        let known = [host, &self.report.data_server, &self.report.server];
        match self.show.remote.family {
            Family::Ipv4 => AF_INET,
            Family::Ipv6 => AF_INET6,
            Family::Any => known
                .iter()
                .find_map(|text| address_of(text))
                .map_or(
                    0,
                    |address| if address.is_ipv6() { AF_INET6 } else { AF_INET },
                ),
        }
    }

    /// The data connection's server as typed.
    pub(crate) fn destination(&self) -> &str {
        destination(self.show)
    }

    /// Text of an item; `None` if it has none.
    pub(crate) fn text(&self, item: Item) -> Option<String> {
        let report = self.report;
        let result = &report.result;
        let latency = &report.latency_ns;
        let transactions = matches!(self.job.test, SocketTest::Rr | SocketTest::Crr);
        let text = match item {
            Item::Nothing => " ".to_owned(),
            Item::End => return None,
            Item::SocketType => self.socket_type().to_owned(),
            Item::Protocol => protocol(self.job.protocol).to_owned(),
            Item::Direction => direction(self.job.test).to_owned(),
            Item::ElapsedTime => f2(result.elapsed_s),
            Item::Throughput => f2(unit::result(self.show, self.job, result)),
            Item::ThroughputUnits => format!("{}/s", Unit::of(self.show, self.job).name()),
            Item::SendBuffer(side, when) => buffer(self.end(side).send_buffer, when),
            Item::ReceiveBuffer(side, when) => buffer(self.end(side).receive_buffer, when),
            Item::SendSize(Side::Remote) if transactions => self.job.response_size.to_string(),
            Item::RecvSize(Side::Remote) if transactions => self.job.request_size.to_string(),
            Item::SendSize(side) => self.size(side, self.end(side).send_size),
            Item::RecvSize(side) => self.size(side, self.end(side).receive_size),
            Item::RequestSize if transactions => self.job.request_size.to_string(),
            Item::ResponseSize if transactions => self.job.response_size.to_string(),
            Item::RequestSize | Item::ResponseSize | Item::MinusOne => "-1".to_owned(),
            Item::CpuUtil(side) => f2(self.cpu_total(side)),
            Item::CpuPercentUser(side) => f2(self.cpu(side).unwrap_or_default().user),
            Item::CpuPercentSystem(side) => f2(self.cpu(side).unwrap_or_default().system),
            Item::CpuPercentIowait(side) => f2(self.cpu(side).unwrap_or_default().iowait),
            Item::CpuPercentIrq(side) => f2(self.cpu(side).unwrap_or_default().irq),
            Item::CpuPercentSwintr(side) => f2(self.cpu(side).unwrap_or_default().softirq),
            Item::CpuMethod(side) => self.method(side).to_owned(),
            Item::Sd(side) => f3(self.demand(side)),
            Item::SdUnits if Unit::of(self.show, self.job) == Unit::Transactions => {
                "usec/Tran".to_owned()
            }
            Item::SdUnits => "usec/KB".to_owned(),
            Item::ConfidenceLevel => self
                .job
                .confidence
                .as_ref()
                .map_or(0, |asked| asked.level)
                .to_string(),
            Item::ConfidenceInterval => {
                let width = self
                    .job
                    .confidence
                    .as_ref()
                    .map_or(-1.0, |asked| asked.width);
                format!("{width:.6}")
            }
            Item::ConfidenceIteration => report.iterations.len().max(1).to_string(),
            Item::ThroughputConfid => f3(report.confidence.map_or(-1.0, |known| known.result)),
            Item::CpuConfid(Side::Local) => {
                f3(report.confidence.map_or(-1.0, |known| known.local_cpu))
            }
            Item::CpuConfid(Side::Remote) => {
                f3(report.confidence.map_or(-1.0, |known| known.remote_cpu))
            }
            Item::TransactionRate if self.job.test.counts_transactions() => {
                f3(result.transactions_per_second)
            }
            Item::TransactionRate => f3(1.0),
            Item::RtLatency => f3(self.round_trip_us()),
            Item::BurstSize => self.job.first_burst.to_string(),
            Item::TransportRetrans(side) => or_minus_one(self.end(side).retransmissions),
            Item::TransportMss => or_minus_one(report.segment_bytes),
            Item::SendThroughput(side) => f2(self.side_rate(self.end(side).bytes_sent)),
            Item::RecvThroughput(side) => f2(self.side_rate(self.end(side).bytes_received)),
            Item::CpuBind(side) => or_minus_one(self.asked(side).cpu),
            Item::CpuCount(side) => self.cpu(side).unwrap_or_default().cpus.to_string(),
            Item::CpuPeakUtil(side) => f2(self.cpu(side).unwrap_or_default().peak),
            Item::CpuPeakId(side) => self.cpu(side).unwrap_or_default().peak_cpu.to_string(),
            Item::SourcePort => self.show.local.port.to_string(),
            Item::SourceAddr => match self.source() {
                Some(host) => host.to_owned(),
                None if self.destination_family() == AF_INET6 => "::0".to_owned(),
                None => "0.0.0.0".to_owned(),
            },
            // The family from the test's own options, not the one inherited from the control connection.
            Item::SourceFamily => match self.job.data.family {
                Family::Any => 0,
                Family::Ipv4 => AF_INET,
                Family::Ipv6 => AF_INET6,
            }
            .to_string(),
            Item::DestPort => self.show.remote.port.to_string(),
            Item::DestAddr => self.destination().to_owned(),
            Item::DestFamily => self.destination_family().to_string(),
            Item::SendCalls(side) => self.end(side).send_calls.to_string(),
            Item::RecvCalls(side) => self.end(side).receive_calls.to_string(),
            Item::BytesPerRecv(side) => {
                let end = self.end(side);
                f2(per(end.bytes_received, end.receive_calls))
            }
            Item::BytesPerSend(side) => {
                let end = self.end(side);
                f2(per(end.bytes_sent, end.send_calls))
            }
            Item::BytesSent(side) => self.end(side).bytes_sent.to_string(),
            Item::BytesRecvd(side) => self.end(side).bytes_received.to_string(),
            Item::BytesXferd(side) => {
                let end = self.end(side);
                end.bytes_sent
                    .saturating_add(end.bytes_received)
                    .to_string()
            }
            Item::SendOffset(side) => self.asked(side).send_offset.to_string(),
            Item::RecvOffset(side) => self.asked(side).receive_offset.to_string(),
            Item::SendAlign(side) => self.asked(side).send_align.to_string(),
            Item::RecvAlign(side) => self.asked(side).receive_align.to_string(),
            Item::SendWidth(side) => self.end(side).send_width.to_string(),
            Item::RecvWidth(side) => self.end(side).receive_width.to_string(),
            Item::Nodelay(side) => u8::from(self.end(side).no_delay).to_string(),
            // The original requests it of both ends.
            Item::Cork(_) => u8::from(self.job.options.cork).to_string(),
            Item::IntervalUsecs(side) => self.end(side).burst_interval_us.to_string(),
            Item::IntervalBurst(side) => self.end(side).burst.to_string(),
            Item::ResultBrand => return self.show.brand.as_ref().map(|brand| quoted(brand)),
            Item::Uuid => self.show.uuid.clone(),
            Item::MinLatency => self.microseconds(latency.min),
            Item::MaxLatency => self.microseconds(latency.max),
            Item::P50Latency => self.microseconds(latency.p50),
            Item::P90Latency => self.microseconds(latency.p90),
            Item::P99Latency => self.microseconds(latency.p99),
            Item::P999Latency => self.microseconds(latency.p999),
            Item::P95Latency => self.microseconds(report.latency_p95_ns),
            Item::P9999Latency => self.microseconds(latency.p9999),
            Item::MeanLatency => f2(latency
                .mean
                .map_or(f64::from(self.no_latency()), |ns| ns / 1e3)),
            Item::StddevLatency => f2(latency
                .stddev
                .map_or(f64::from(self.no_latency()), |ns| ns / 1e3)),
            Item::SocketPrio(side) => match self.asked(side).priority {
                Some(asked) => self
                    .end(side)
                    .priority
                    .map_or_else(|| asked.to_string(), |got| got.to_string()),
                None => "-1".to_owned(),
            },
            Item::SocketTos(side) => match self.asked(side).tos {
                Some(asked) => {
                    let got = self.end(side).tos.unwrap_or_else(|| i32::from(asked));
                    format!("0x{got:02x}")
                }
                None => format!("0x{:02x}", -1i32),
            },
            Item::CongControl(side) => self.end(side).congestion.clone(),
            Item::FillFile(Side::Local) => self.show.local_fill_file.clone().unwrap_or_default(),
            Item::FillFile(Side::Remote) => self.show.remote_fill_file.clone().unwrap_or_default(),
            Item::CommandLine => quoted(&self.show.command_line),
            Item::Deprecated => "Deprecated".to_owned(),
            Item::Zero => "0".to_owned(),
            Item::NoDevice => "0xfffffffe".to_owned(),
            Item::Rtt => or_minus_one(report.local.tcp.map(|tcp| tcp.rtt_us)),
            Item::RttVar => or_minus_one(report.local.tcp.map(|tcp| tcp.rtt_var_us)),
            Item::Cwnd => or_minus_one(report.local.tcp.map(|tcp| tcp.cwnd)),
            Item::PacingRate => or_minus_one(report.local.tcp.map(|tcp| tcp.pacing_bps)),
            Item::DeliveryRate => or_minus_one(report.local.tcp.map(|tcp| tcp.delivery_bps)),
        };
        Some(text)
    }

    /// Local end of the data connection as typed.
    fn source(&self) -> Option<&str> {
        let show = self.show;
        show.local
            .host
            .as_deref()
            .or(show.control_local.host.as_deref())
    }

    /// Bytes per call of a stream. For an operation that an end does not perform: 0 locally and −1 remotely.
    fn size(&self, side: Side, size: Option<u32>) -> String {
        let used = match (self.job.test, side) {
            (SocketTest::Rr | SocketTest::Crr | SocketTest::Cc, _) => None,
            _ => size,
        };
        match (used, side) {
            (Some(size), _) => size.to_string(),
            (None, Side::Local) => "0".to_owned(),
            (None, Side::Remote) => "-1".to_owned(),
        }
    }

    /// The original derives the type from the test name, and OMNI counts as a stream.
    fn socket_type(&self) -> &'static str {
        if self.show.strict && self.show.kind == TestKind::Omni && self.job.socket_type.is_none() {
            return "Stream";
        }
        match self.job.socket_type {
            Some(SocketType::Stream) => "Stream",
            Some(SocketType::Dgram) => "Datagram",
            Some(SocketType::Dccp) => "DCCP",
            Some(SocketType::SeqPacket) => "Seqpacket",
            None => match self.job.protocol {
                SocketProtocol::Dccp => "DCCP",
                other if other.is_datagram() => "Datagram",
                _ => "Stream",
            },
        }
    }
}

/// Linux's numbers of the address families.
const AF_INET: i32 = 2;
const AF_INET6: i32 = 10;

/// Server of the data connection as typed, or else that of the control connection.
pub(crate) fn destination(show: &Show) -> &str {
    show.remote
        .host
        .as_deref()
        .or(show.control.host.as_deref())
        .unwrap_or(match show.control.family {
            Family::Ipv6 => "::1",
            Family::Any | Family::Ipv4 => "localhost",
        })
}

/// Address in a text, with or without a port.
pub(crate) fn address_of(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>().ok().or_else(|| {
        text.parse::<std::net::SocketAddr>()
            .ok()
            .map(|both| both.ip())
    })
}

/// Direction of the data from the client's view.
pub(crate) const fn direction(test: SocketTest) -> &'static str {
    match test {
        SocketTest::Send | SocketTest::Mss => "Send",
        SocketTest::Receive => "Receive",
        SocketTest::Both | SocketTest::Rr => "Send|Recv",
        SocketTest::Crr => "Connect|Send|Recv",
        SocketTest::Cc | SocketTest::ServerCpu => "Connection",
    }
}

const fn protocol(protocol: SocketProtocol) -> &'static str {
    match protocol {
        SocketProtocol::Tcp => "TCP",
        SocketProtocol::Udp => "UDP",
        SocketProtocol::Sctp => "SCTP",
        SocketProtocol::Dccp => "DCCP",
        SocketProtocol::UdpLite => "UDPLite",
        SocketProtocol::Mptcp => "MPTCP",
    }
}

/// Buffer size at a moment. Requested size: −1 for the default. Actual size: 0 if unknown.
fn buffer(sizes: [Option<u32>; 3], when: Moment) -> String {
    let [asked, first, last] = sizes;
    match when {
        Moment::Asked => or_minus_one(asked),
        Moment::First => first.unwrap_or(0).to_string(),
        Moment::Last => last.or(first).unwrap_or(0).to_string(),
    }
}

/// Bytes per call; 0 without calls.
pub(crate) fn per(bytes: u64, calls: u64) -> f64 {
    if calls == 0 {
        0.0
    } else {
        bytes as f64 / calls as f64
    }
}

fn or_minus_one<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-1".to_owned(), |value| value.to_string())
}

fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

fn f2(value: f64) -> String {
    format!("{value:.2}")
}

fn f3(value: f64) -> String {
    format!("{value:.3}")
}
