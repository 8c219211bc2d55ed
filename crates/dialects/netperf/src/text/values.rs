//! Value that each selector prints.

use std::net::IpAddr;

use wb_model::socket::{
    CpuUse, Family, SocketEndReport, SocketJob, SocketJobReport, SocketProtocol, SocketSide,
    SocketTest, SocketType,
};

use super::selectors::{DataSide, FigureItem, ReadMoment};
use super::unit::{self, RateUnit};
use crate::{OutputOptions, TestKind};

/// A finished test with its output options.
#[derive(Clone, Copy)]
pub(crate) struct TestView<'a> {
    pub(crate) show: &'a OutputOptions,
    pub(crate) job: &'a SocketJob,
    pub(crate) report: &'a SocketJobReport,
}

impl TestView<'_> {
    pub(crate) const fn end_report(&self, side: DataSide) -> &SocketEndReport {
        match side {
            DataSide::Local => &self.report.local,
            DataSide::Remote => &self.report.remote,
        }
    }

    pub(crate) const fn requested_side(&self, side: DataSide) -> &SocketSide {
        match side {
            DataSide::Local => &self.job.local,
            DataSide::Remote => &self.job.remote,
        }
    }

    const fn cpu_use(&self, side: DataSide) -> Option<CpuUse> {
        match side {
            DataSide::Local => self.report.result.local_cpu,
            DataSide::Remote => self.report.result.remote_cpu,
        }
    }

    /// CPU use in percent; −1 if not measured.
    pub(crate) fn cpu_total(&self, side: DataSide) -> f64 {
        self.cpu_use(side).map_or(-1.0, |cpu| cpu.total)
    }

    /// Service demand; −1 if not measured.
    pub(crate) fn service_demand(&self, side: DataSide) -> f64 {
        match side {
            DataSide::Local => self.report.result.local_service_demand,
            DataSide::Remote => self.report.result.remote_service_demand,
        }
        .map_or(-1.0, |demand| demand * self.operations_per_unit())
    }

    /// Transactions per KiB if the rate of transactions is shown in bytes or bits; the service demand is then per
    /// KiB. The figures have it per transaction.
    fn operations_per_unit(&self) -> f64 {
        let figures = &self.report.result;
        let kibibytes = figures.throughput_bps / 8.0 / 1024.0;
        let by_bytes = self.job.test.counts_transactions()
            && RateUnit::of_result(self.show, self.job) != RateUnit::Transactions
            && kibibytes > 0.0;
        match by_bytes {
            true => figures.transactions_per_second / kibibytes,
            false => 1.0,
        }
    }

    /// Method of the CPU measurement: "S" for /proc/stat, "U" for none.
    pub(crate) const fn cpu_method(&self, side: DataSide) -> &'static str {
        if self.cpu_use(side).is_some() {
            "S"
        } else {
            "U"
        }
    }

    /// Rate of the bytes that crossed one end, in the unit of the result.
    fn side_rate(&self, bytes: u64) -> f64 {
        let seconds = self.report.result.elapsed_s;
        let bps = if seconds > 0.0 {
            bytes as f64 * 8.0 / seconds
        } else {
            0.0
        };
        RateUnit::of_result(self.show, self.job)
            .for_bytes()
            .convert_rate(bps, self.show.strict)
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
        destination_host(self.show)
    }

    /// Text of an item; `None` if it has none.
    pub(crate) fn item_text(&self, item: FigureItem) -> Option<String> {
        let report = self.report;
        let result = &report.result;
        let latency = &report.latency_ns;
        let transactions = matches!(self.job.test, SocketTest::Rr | SocketTest::Crr);
        let text = match item {
            FigureItem::Nothing => " ".to_owned(),
            FigureItem::End => return None,
            FigureItem::SocketType => self.socket_type().to_owned(),
            FigureItem::Protocol => protocol_name(self.job.protocol).to_owned(),
            FigureItem::Direction => direction_name(self.job.test).to_owned(),
            FigureItem::ElapsedTime => two_decimals(result.elapsed_s),
            FigureItem::Throughput => two_decimals(unit::main_result(self.show, self.job, result)),
            FigureItem::ThroughputUnits => {
                format!("{}/s", RateUnit::of_result(self.show, self.job).name())
            }
            FigureItem::SendBuffer(side, when) => {
                buffer_size(self.end_report(side).send_buffer, when)
            }
            FigureItem::ReceiveBuffer(side, when) => {
                buffer_size(self.end_report(side).receive_buffer, when)
            }
            FigureItem::SendSize(DataSide::Remote) if transactions => {
                self.job.response_size.to_string()
            }
            FigureItem::RecvSize(DataSide::Remote) if transactions => {
                self.job.request_size.to_string()
            }
            FigureItem::SendSize(side) => self.call_size(side, self.end_report(side).send_size),
            FigureItem::RecvSize(side) => self.call_size(side, self.end_report(side).receive_size),
            FigureItem::RequestSize if transactions => self.job.request_size.to_string(),
            FigureItem::ResponseSize if transactions => self.job.response_size.to_string(),
            FigureItem::RequestSize | FigureItem::ResponseSize | FigureItem::MinusOne => {
                "-1".to_owned()
            }
            FigureItem::CpuUtil(side) => two_decimals(self.cpu_total(side)),
            FigureItem::CpuPercentUser(side) => {
                two_decimals(self.cpu_use(side).unwrap_or_default().user)
            }
            FigureItem::CpuPercentSystem(side) => {
                two_decimals(self.cpu_use(side).unwrap_or_default().system)
            }
            FigureItem::CpuPercentIowait(side) => {
                two_decimals(self.cpu_use(side).unwrap_or_default().iowait)
            }
            FigureItem::CpuPercentIrq(side) => {
                two_decimals(self.cpu_use(side).unwrap_or_default().irq)
            }
            FigureItem::CpuPercentSwintr(side) => {
                two_decimals(self.cpu_use(side).unwrap_or_default().softirq)
            }
            FigureItem::CpuMethod(side) => self.cpu_method(side).to_owned(),
            FigureItem::Sd(side) => three_decimals(self.service_demand(side)),
            FigureItem::SdUnits
                if RateUnit::of_result(self.show, self.job) == RateUnit::Transactions =>
            {
                "usec/Tran".to_owned()
            }
            FigureItem::SdUnits => "usec/KB".to_owned(),
            FigureItem::ConfidenceLevel => self
                .job
                .confidence
                .as_ref()
                .map_or(0, |asked| asked.level)
                .to_string(),
            FigureItem::ConfidenceInterval => {
                let width = self
                    .job
                    .confidence
                    .as_ref()
                    .map_or(-1.0, |asked| asked.width);
                format!("{width:.6}")
            }
            FigureItem::ConfidenceIteration => report.iterations.len().max(1).to_string(),
            FigureItem::ThroughputConfid => {
                three_decimals(report.confidence.map_or(-1.0, |known| known.result))
            }
            FigureItem::CpuConfid(DataSide::Local) => {
                three_decimals(report.confidence.map_or(-1.0, |known| known.local_cpu))
            }
            FigureItem::CpuConfid(DataSide::Remote) => {
                three_decimals(report.confidence.map_or(-1.0, |known| known.remote_cpu))
            }
            FigureItem::TransactionRate if self.job.test.counts_transactions() => {
                three_decimals(result.transactions_per_second)
            }
            FigureItem::TransactionRate => three_decimals(1.0),
            FigureItem::RtLatency => three_decimals(self.round_trip_us()),
            FigureItem::BurstSize => self.job.first_burst.to_string(),
            FigureItem::TransportRetrans(side) => {
                or_minus_one(self.end_report(side).retransmissions)
            }
            FigureItem::TransportMss => or_minus_one(report.segment_bytes),
            FigureItem::SendThroughput(side) => {
                two_decimals(self.side_rate(self.end_report(side).bytes_sent))
            }
            FigureItem::RecvThroughput(side) => {
                two_decimals(self.side_rate(self.end_report(side).bytes_received))
            }
            FigureItem::CpuBind(side) => or_minus_one(self.requested_side(side).cpu),
            FigureItem::CpuCount(side) => self.cpu_use(side).unwrap_or_default().cpus.to_string(),
            FigureItem::CpuPeakUtil(side) => {
                two_decimals(self.cpu_use(side).unwrap_or_default().peak)
            }
            FigureItem::CpuPeakId(side) => {
                self.cpu_use(side).unwrap_or_default().peak_cpu.to_string()
            }
            FigureItem::SourcePort => self.show.local.port.to_string(),
            FigureItem::SourceAddr => match self.source() {
                Some(host) => host.to_owned(),
                None if self.destination_family() == AF_INET6 => "::0".to_owned(),
                None => "0.0.0.0".to_owned(),
            },
            // The family from the test's own options, not the one inherited from the control connection.
            FigureItem::SourceFamily => match self.job.data.family {
                Family::Any => 0,
                Family::Ipv4 => AF_INET,
                Family::Ipv6 => AF_INET6,
            }
            .to_string(),
            FigureItem::DestPort => self.show.remote.port.to_string(),
            FigureItem::DestAddr => self.destination().to_owned(),
            FigureItem::DestFamily => self.destination_family().to_string(),
            FigureItem::SendCalls(side) => self.end_report(side).send_calls.to_string(),
            FigureItem::RecvCalls(side) => self.end_report(side).receive_calls.to_string(),
            FigureItem::BytesPerRecv(side) => {
                let end = self.end_report(side);
                two_decimals(bytes_per_call(end.bytes_received, end.receive_calls))
            }
            FigureItem::BytesPerSend(side) => {
                let end = self.end_report(side);
                two_decimals(bytes_per_call(end.bytes_sent, end.send_calls))
            }
            FigureItem::BytesSent(side) => self.end_report(side).bytes_sent.to_string(),
            FigureItem::BytesRecvd(side) => self.end_report(side).bytes_received.to_string(),
            FigureItem::BytesXferd(side) => {
                let end = self.end_report(side);
                end.bytes_sent
                    .saturating_add(end.bytes_received)
                    .to_string()
            }
            FigureItem::SendOffset(side) => self.requested_side(side).send_offset.to_string(),
            FigureItem::RecvOffset(side) => self.requested_side(side).receive_offset.to_string(),
            FigureItem::SendAlign(side) => self.requested_side(side).send_align.to_string(),
            FigureItem::RecvAlign(side) => self.requested_side(side).receive_align.to_string(),
            FigureItem::SendWidth(side) => self.end_report(side).send_width.to_string(),
            FigureItem::RecvWidth(side) => self.end_report(side).receive_width.to_string(),
            FigureItem::Nodelay(side) => u8::from(self.end_report(side).no_delay).to_string(),
            // The original requests it of both ends.
            FigureItem::Cork(_) => u8::from(self.job.options.cork).to_string(),
            FigureItem::IntervalUsecs(side) => self.end_report(side).burst_interval_us.to_string(),
            FigureItem::IntervalBurst(side) => self.end_report(side).burst.to_string(),
            FigureItem::ResultBrand => return self.show.brand.as_ref().map(|brand| quoted(brand)),
            FigureItem::Uuid => self.show.uuid.clone(),
            FigureItem::MinLatency => self.microseconds(latency.min),
            FigureItem::MaxLatency => self.microseconds(latency.max),
            FigureItem::P50Latency => self.microseconds(latency.p50),
            FigureItem::P90Latency => self.microseconds(latency.p90),
            FigureItem::P99Latency => self.microseconds(latency.p99),
            FigureItem::P999Latency => self.microseconds(latency.p999),
            FigureItem::P95Latency => self.microseconds(report.latency_p95_ns),
            FigureItem::P9999Latency => self.microseconds(latency.p9999),
            FigureItem::MeanLatency => two_decimals(
                latency
                    .mean
                    .map_or(f64::from(self.no_latency()), |ns| ns / 1e3),
            ),
            FigureItem::StddevLatency => two_decimals(
                latency
                    .stddev
                    .map_or(f64::from(self.no_latency()), |ns| ns / 1e3),
            ),
            FigureItem::SocketPrio(side) => match self.requested_side(side).priority {
                Some(asked) => self
                    .end_report(side)
                    .priority
                    .map_or_else(|| asked.to_string(), |got| got.to_string()),
                None => "-1".to_owned(),
            },
            FigureItem::SocketTos(side) => match self.requested_side(side).tos {
                Some(asked) => {
                    let got = self
                        .end_report(side)
                        .tos
                        .unwrap_or_else(|| i32::from(asked));
                    format!("0x{got:02x}")
                }
                None => format!("0x{:02x}", -1i32),
            },
            FigureItem::CongControl(side) => self.end_report(side).congestion.clone(),
            FigureItem::FillFile(DataSide::Local) => {
                self.show.local_fill_file.clone().unwrap_or_default()
            }
            FigureItem::FillFile(DataSide::Remote) => {
                self.show.remote_fill_file.clone().unwrap_or_default()
            }
            FigureItem::CommandLine => quoted(&self.show.command_line),
            FigureItem::Deprecated => "Deprecated".to_owned(),
            FigureItem::Zero => "0".to_owned(),
            FigureItem::NoDevice => "0xfffffffe".to_owned(),
            FigureItem::Rtt => or_minus_one(report.local.tcp.map(|tcp| tcp.rtt_us)),
            FigureItem::RttVar => or_minus_one(report.local.tcp.map(|tcp| tcp.rtt_var_us)),
            FigureItem::Cwnd => or_minus_one(report.local.tcp.map(|tcp| tcp.cwnd)),
            FigureItem::PacingRate => or_minus_one(report.local.tcp.map(|tcp| tcp.pacing_bps)),
            FigureItem::DeliveryRate => or_minus_one(report.local.tcp.map(|tcp| tcp.delivery_bps)),
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
    fn call_size(&self, side: DataSide, size: Option<u32>) -> String {
        let used = match (self.job.test, side) {
            (SocketTest::Rr | SocketTest::Crr | SocketTest::Cc, _) => None,
            _ => size,
        };
        match (used, side) {
            (Some(size), _) => size.to_string(),
            (None, DataSide::Local) => "0".to_owned(),
            (None, DataSide::Remote) => "-1".to_owned(),
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
pub(crate) fn destination_host(show: &OutputOptions) -> &str {
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
pub(crate) const fn direction_name(test: SocketTest) -> &'static str {
    match test {
        SocketTest::Send | SocketTest::Mss => "Send",
        SocketTest::Receive => "Receive",
        SocketTest::Both | SocketTest::Rr => "Send|Recv",
        SocketTest::Crr => "Connect|Send|Recv",
        SocketTest::Cc | SocketTest::ServerCpu => "Connection",
    }
}

const fn protocol_name(protocol: SocketProtocol) -> &'static str {
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
fn buffer_size(sizes: [Option<u32>; 3], when: ReadMoment) -> String {
    let [asked, first, last] = sizes;
    match when {
        ReadMoment::Asked => or_minus_one(asked),
        ReadMoment::First => first.unwrap_or(0).to_string(),
        ReadMoment::Last => last.or(first).unwrap_or(0).to_string(),
    }
}

/// Bytes per call; 0 without calls.
pub(crate) fn bytes_per_call(bytes: u64, calls: u64) -> f64 {
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

fn two_decimals(value: f64) -> String {
    format!("{value:.2}")
}

fn three_decimals(value: f64) -> String {
    format!("{value:.3}")
}
