//! Names of the selectors for `-o`, `-O` and `-k` and their headers, in the original's order.

use Item::*;
use Moment::{Asked, First, Last};
use Side::{Local, Remote};

/// An end of the data connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Local,
    Remote,
}

/// Time at which the size of a buffer was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    Asked,
    First,
    Last,
}

/// Figure that a selector prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// A blank.
    Nothing,
    /// Prints nothing; ends a block.
    End,
    SocketType,
    Protocol,
    Direction,
    ElapsedTime,
    Throughput,
    ThroughputUnits,
    SendBuffer(Side, Moment),
    ReceiveBuffer(Side, Moment),
    SendSize(Side),
    RecvSize(Side),
    RequestSize,
    ResponseSize,
    CpuUtil(Side),
    CpuPercentUser(Side),
    CpuPercentSystem(Side),
    CpuPercentIowait(Side),
    CpuPercentIrq(Side),
    CpuPercentSwintr(Side),
    CpuMethod(Side),
    Sd(Side),
    SdUnits,
    ConfidenceLevel,
    ConfidenceInterval,
    ConfidenceIteration,
    ThroughputConfid,
    CpuConfid(Side),
    TransactionRate,
    RtLatency,
    BurstSize,
    TransportRetrans(Side),
    TransportMss,
    SendThroughput(Side),
    RecvThroughput(Side),
    CpuBind(Side),
    CpuCount(Side),
    CpuPeakUtil(Side),
    CpuPeakId(Side),
    SourcePort,
    SourceAddr,
    SourceFamily,
    DestPort,
    DestAddr,
    DestFamily,
    SendCalls(Side),
    RecvCalls(Side),
    BytesPerRecv(Side),
    BytesPerSend(Side),
    BytesSent(Side),
    BytesRecvd(Side),
    BytesXferd(Side),
    SendOffset(Side),
    RecvOffset(Side),
    SendAlign(Side),
    RecvAlign(Side),
    SendWidth(Side),
    RecvWidth(Side),
    Nodelay(Side),
    Cork(Side),
    IntervalUsecs(Side),
    IntervalBurst(Side),
    ResultBrand,
    Uuid,
    MinLatency,
    MaxLatency,
    P50Latency,
    P90Latency,
    P99Latency,
    MeanLatency,
    StddevLatency,
    SocketPrio(Side),
    SocketTos(Side),
    CongControl(Side),
    FillFile(Side),
    CommandLine,
    /// Figure that the original no longer queries, printed as a word.
    Deprecated,
    /// Figure that the original no longer queries, printed as a number.
    Zero,
    /// Device identifier that the original no longer queries.
    NoDevice,
    /// Figure that is missing in the original's default build.
    MinusOne,
    Rtt,
    RttVar,
    Cwnd,
    PacingRate,
    DeliveryRate,
    P95Latency,
    P999Latency,
    P9999Latency,
}

/// A selectable name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    pub(crate) name: &'static str,
    /// Lines of the header, separated by `|`; at most four.
    pub(crate) header: &'static str,
    pub(crate) item: Item,
}

impl Selector {
    /// The header in one line.
    pub(crate) fn title(&self) -> String {
        self.header.replace('|', " ")
    }

    /// One line of the header; `line` counts from 0.
    pub(crate) fn word(&self, line: usize) -> &'static str {
        self.header.split('|').nth(line).unwrap_or_default()
    }
}

const fn sel(name: &'static str, header: &'static str, item: Item) -> Selector {
    Selector { name, header, item }
}

/// Number of header lines.
pub(crate) const HEADER_LINES: usize = 4;

/// Maximum number of blocks in a selection.
pub(crate) const BLOCKS: usize = 4;

/// First name of each block of `all`.
pub(crate) const BLOCK_STARTS: [&str; BLOCKS] = [
    "SOCKET_TYPE",
    "LOCAL_CPU_UTIL",
    "LOCAL_SEND_THROUGHPUT",
    "LOCAL_SYSNAME",
];

pub(crate) static NOTHING: Selector = sel("OUTPUT_NONE", " ", Nothing);
pub(crate) static END: Selector = sel("OUTPUT_END", "", End);

/// Additional selectors, after those of the original.
// One row per line is easier to read than five lines per row.
#[rustfmt::skip]
pub(crate) static OURS: [Selector; 8] = [
    sel("RTT", "Round|Trip Time|usec", Rtt),
    sel("RTTVAR", "Round|Trip Time|Deviation|usec", RttVar),
    sel("CWND", "Congestion|Window|Segments", Cwnd),
    sel("PACING_RATE", "Pacing|Rate|bits/s", PacingRate),
    sel("DELIVERY_RATE", "Delivery|Rate|bits/s", DeliveryRate),
    sel("P95_LATENCY", "95th|Percentile|Latency|Microseconds", P95Latency),
    sel("P99.9_LATENCY", "99.9th|Percentile|Latency|Microseconds", P999Latency),
    sel("P99.99_LATENCY", "99.99th|Percentile|Latency|Microseconds", P9999Latency),
];

/// Selectors of netperf 2.7 in the order of `all`.
#[rustfmt::skip]
pub(crate) static ALL: [Selector; 173] = [
    sel("SOCKET_TYPE", "Socket|Type", SocketType),
    sel("PROTOCOL", "Protocol", Protocol),
    sel("DIRECTION", "Direction", Direction),
    sel("ELAPSED_TIME", "Elapsed|Time|(sec)", ElapsedTime),
    sel("THROUGHPUT", "Throughput", Throughput),
    sel("THROUGHPUT_UNITS", "Throughput|Units", ThroughputUnits),
    sel("LSS_SIZE_REQ", "Local|Send Socket|Size|Requested", SendBuffer(Local, Asked)),
    sel("LSS_SIZE", "Local|Send Socket|Size|Initial", SendBuffer(Local, First)),
    sel("LSS_SIZE_END", "Local|Send Socket|Size|Final", SendBuffer(Local, Last)),
    sel("LSR_SIZE_REQ", "Local|Recv Socket|Size|Requested", ReceiveBuffer(Local, Asked)),
    sel("LSR_SIZE", "Local|Recv Socket|Size|Initial", ReceiveBuffer(Local, First)),
    sel("LSR_SIZE_END", "Local|Recv Socket|Size|Final", ReceiveBuffer(Local, Last)),
    sel("RSS_SIZE_REQ", "Remote|Send Socket|Size|Requested", SendBuffer(Remote, Asked)),
    sel("RSS_SIZE", "Remote|Send Socket|Size|Initial", SendBuffer(Remote, First)),
    sel("RSS_SIZE_END", "Remote|Send Socket|Size|Final", SendBuffer(Remote, Last)),
    sel("RSR_SIZE_REQ", "Remote|Recv Socket|Size|Requested", ReceiveBuffer(Remote, Asked)),
    sel("RSR_SIZE", "Remote|Recv Socket|Size|Initial", ReceiveBuffer(Remote, First)),
    sel("RSR_SIZE_END", "Remote|Recv Socket|Size|Final", ReceiveBuffer(Remote, Last)),
    sel("LOCAL_SEND_SIZE", "Local|Send|Size", SendSize(Local)),
    sel("LOCAL_RECV_SIZE", "Local|Recv|Size", RecvSize(Local)),
    sel("REMOTE_SEND_SIZE", "Remote|Send|Size", SendSize(Remote)),
    sel("REMOTE_RECV_SIZE", "Remote|Recv|Size", RecvSize(Remote)),
    sel("REQUEST_SIZE", "Request|Size|Bytes", RequestSize),
    sel("RESPONSE_SIZE", "Response|Size|Bytes", ResponseSize),
    sel("LOCAL_CPU_UTIL", "Local|CPU|Util|%", CpuUtil(Local)),
    sel("LOCAL_CPU_PERCENT_USER", "Local|CPU|User|%", CpuPercentUser(Local)),
    sel("LOCAL_CPU_PERCENT_SYSTEM", "Local|CPU|System|%", CpuPercentSystem(Local)),
    sel("LOCAL_CPU_PERCENT_IOWAIT", "Local|CPU|I/O|%", CpuPercentIowait(Local)),
    sel("LOCAL_CPU_PERCENT_IRQ", "Local|CPU|IRQ|%", CpuPercentIrq(Local)),
    sel("LOCAL_CPU_PERCENT_SWINTR", "Local|CPU|swintr|%", CpuPercentSwintr(Local)),
    sel("LOCAL_CPU_METHOD", "Local|CPU|Util|Method", CpuMethod(Local)),
    sel("LOCAL_SD", "Local|Service|Demand", Sd(Local)),
    sel("REMOTE_CPU_UTIL", "Remote|CPU|Util|%", CpuUtil(Remote)),
    sel("REMOTE_CPU_PERCENT_USER", "Remote|CPU|User|%", CpuPercentUser(Remote)),
    sel("REMOTE_CPU_PERCENT_SYSTEM", "Remote|CPU|System|%", CpuPercentSystem(Remote)),
    sel("REMOTE_CPU_PERCENT_IOWAIT", "Remote|CPU|I/O|%", CpuPercentIowait(Remote)),
    sel("REMOTE_CPU_PERCENT_IRQ", "Remote|CPU|IRQ|%", CpuPercentIrq(Remote)),
    sel("REMOTE_CPU_PERCENT_SWINTR", "Remote|CPU|swintr|%", CpuPercentSwintr(Remote)),
    sel("REMOTE_CPU_METHOD", "Remote|CPU|Util|Method", CpuMethod(Remote)),
    sel("REMOTE_SD", "Remote|Service|Demand", Sd(Remote)),
    sel("SD_UNITS", "Service|Demand|Units", SdUnits),
    sel("CONFIDENCE_LEVEL", "Confidence|Level|Percent", ConfidenceLevel),
    sel("CONFIDENCE_INTERVAL", "Confidence|Width|Target", ConfidenceInterval),
    sel("CONFIDENCE_ITERATION", "Confidence|Iterations|Run", ConfidenceIteration),
    sel("THROUGHPUT_CONFID", "Throughput|Confidence|Width (%)", ThroughputConfid),
    sel("LOCAL_CPU_CONFID", "Local|CPU|Confidence|Width (%)", CpuConfid(Local)),
    sel("REMOTE_CPU_CONFID", "Remote|CPU|Confidence|Width (%)", CpuConfid(Remote)),
    sel("TRANSACTION_RATE", "Transaction|Rate|Tran/s", TransactionRate),
    sel("RT_LATENCY", "Round|Trip|Latency|usec/tran", RtLatency),
    sel("BURST_SIZE", "Initial|Burst|Requests", BurstSize),
    sel("LOCAL_TRANSPORT_RETRANS", "Local|Transport|Retransmissions", TransportRetrans(Local)),
    sel("REMOTE_TRANSPORT_RETRANS", "Remote|Transport|Retransmissions", TransportRetrans(Remote)),
    sel("TRANSPORT_MSS", "Transport|MSS|bytes", TransportMss),
    sel("LOCAL_SEND_THROUGHPUT", "Local|Send|Throughput", SendThroughput(Local)),
    sel("LOCAL_RECV_THROUGHPUT", "Local|Recv|Throughput", RecvThroughput(Local)),
    sel("REMOTE_SEND_THROUGHPUT", "Remote|Send|Throughput", SendThroughput(Remote)),
    sel("REMOTE_RECV_THROUGHPUT", "Remote|Recv|Throughput", RecvThroughput(Remote)),
    sel("LOCAL_CPU_BIND", "Local|CPU|Bind", CpuBind(Local)),
    sel("LOCAL_CPU_COUNT", "Local|CPU|Count", CpuCount(Local)),
    sel("LOCAL_CPU_PEAK_UTIL", "Local|Peak|Per CPU|Util %", CpuPeakUtil(Local)),
    sel("LOCAL_CPU_PEAK_ID", "Local|Peak|Per CPU|ID", CpuPeakId(Local)),
    sel("LOCAL_CPU_MODEL", "Local|CPU|Model", Deprecated),
    sel("LOCAL_CPU_FREQUENCY", "Local|CPU|Frequency|MHz", Zero),
    sel("REMOTE_CPU_BIND", "Remote|CPU|Bind", CpuBind(Remote)),
    sel("REMOTE_CPU_COUNT", "Remote|CPU|Count", CpuCount(Remote)),
    sel("REMOTE_CPU_PEAK_UTIL", "Remote|Peak|Per CPU|Util %", CpuPeakUtil(Remote)),
    sel("REMOTE_CPU_PEAK_ID", "Remote|Peak|Per CPU|ID", CpuPeakId(Remote)),
    sel("REMOTE_CPU_MODEL", "Remote|CPU|Model", Deprecated),
    sel("REMOTE_CPU_FREQUENCY", "Remote|CPU|Frequency|MHz", Zero),
    sel("SOURCE_PORT", "Source|Port", SourcePort),
    sel("SOURCE_ADDR", "Source|Address", SourceAddr),
    sel("SOURCE_FAMILY", "Source|Family", SourceFamily),
    sel("DEST_PORT", "Destination|Port", DestPort),
    sel("DEST_ADDR", "Destination|Address", DestAddr),
    sel("DEST_FAMILY", "Destination|Family", DestFamily),
    sel("LOCAL_SEND_CALLS", "Local|Send|Calls", SendCalls(Local)),
    sel("LOCAL_RECV_CALLS", "Local|Recv|Calls", RecvCalls(Local)),
    sel("LOCAL_BYTES_PER_RECV", "Local|Bytes|Per|Recv", BytesPerRecv(Local)),
    sel("LOCAL_BYTES_PER_SEND", "Local|Bytes|Per|Send", BytesPerSend(Local)),
    sel("LOCAL_BYTES_SENT", "Local|Bytes|Sent", BytesSent(Local)),
    sel("LOCAL_BYTES_RECVD", "Local|Bytes|Received", BytesRecvd(Local)),
    sel("LOCAL_BYTES_XFERD", "Local|Bytes|Xferred", BytesXferd(Local)),
    sel("LOCAL_SEND_OFFSET", "Local|Send|Offset", SendOffset(Local)),
    sel("LOCAL_RECV_OFFSET", "Local|Recv|Offset", RecvOffset(Local)),
    sel("LOCAL_SEND_ALIGN", "Local|Send|Alignment", SendAlign(Local)),
    sel("LOCAL_RECV_ALIGN", "Local|Recv|Alignment", RecvAlign(Local)),
    sel("LOCAL_SEND_WIDTH", "Local|Send|Width", SendWidth(Local)),
    sel("LOCAL_RECV_WIDTH", "Local|Recv|Width", RecvWidth(Local)),
    sel("LOCAL_SEND_DIRTY_COUNT", "Local|Send|Dirty|Count", MinusOne),
    sel("LOCAL_RECV_DIRTY_COUNT", "Local|Recv|Dirty|Count", MinusOne),
    sel("LOCAL_RECV_CLEAN_COUNT", "Local|Recv|Clean|Count", MinusOne),
    sel("LOCAL_NODELAY", "Local|NODELAY", Nodelay(Local)),
    sel("LOCAL_CORK", "Local|Cork", Cork(Local)),
    sel("REMOTE_SEND_CALLS", "Remote|Send|Calls", SendCalls(Remote)),
    sel("REMOTE_RECV_CALLS", "Remote|Recv|Calls", RecvCalls(Remote)),
    sel("REMOTE_BYTES_PER_RECV", "Remote|Bytes|Per|Recv", BytesPerRecv(Remote)),
    sel("REMOTE_BYTES_PER_SEND", "Remote|Bytes|Per|Send", BytesPerSend(Remote)),
    sel("REMOTE_BYTES_SENT", "Remote|Bytes|Sent", BytesSent(Remote)),
    sel("REMOTE_BYTES_RECVD", "Remote|Bytes|Received", BytesRecvd(Remote)),
    sel("REMOTE_BYTES_XFERD", "Remote|Bytes|Xferred", BytesXferd(Remote)),
    sel("REMOTE_SEND_OFFSET", "Remote|Send|Offset", SendOffset(Remote)),
    sel("REMOTE_RECV_OFFSET", "Remote|Recv|Offset", RecvOffset(Remote)),
    sel("REMOTE_SEND_ALIGN", "Remote|Send|Alignment", SendAlign(Remote)),
    sel("REMOTE_RECV_ALIGN", "Remote|Recv|Alignment", RecvAlign(Remote)),
    sel("REMOTE_SEND_WIDTH", "Remote|Send|Width", SendWidth(Remote)),
    sel("REMOTE_RECV_WIDTH", "Remote|Recv|Width", RecvWidth(Remote)),
    sel("REMOTE_SEND_DIRTY_COUNT", "Remote|Send|Dirty|Count", MinusOne),
    sel("REMOTE_RECV_DIRTY_COUNT", "Remote|Recv|Dirty|Count", MinusOne),
    sel("REMOTE_RECV_CLEAN_COUNT", "Remote|Recv|Clean|Count", MinusOne),
    sel("REMOTE_NODELAY", "Remote|NODELAY", Nodelay(Remote)),
    sel("REMOTE_CORK", "Remote|Cork", Cork(Remote)),
    sel("LOCAL_SYSNAME", "Local|Sysname", Deprecated),
    sel("LOCAL_SYSTEM_MODEL", "Local|System|Model", Deprecated),
    sel("LOCAL_RELEASE", "Local|Release", Deprecated),
    sel("LOCAL_VERSION", "Local|Version", Deprecated),
    sel("LOCAL_MACHINE", "Local|Machine", Deprecated),
    sel("REMOTE_SYSNAME", "Remote|Sysname", Deprecated),
    sel("REMOTE_SYSTEM_MODEL", "Remote|System|Model", Deprecated),
    sel("REMOTE_RELEASE", "Remote|Release", Deprecated),
    sel("REMOTE_VERSION", "Remote|Version", Deprecated),
    sel("REMOTE_MACHINE", "Remote|Machine", Deprecated),
    sel("LOCAL_INTERFACE_NAME", "Local|Interface|Name", Deprecated),
    sel("LOCAL_INTERFACE_VENDOR", "Local|Interface|Vendor", NoDevice),
    sel("LOCAL_INTERFACE_DEVICE", "Local|Interface|Device", NoDevice),
    sel("LOCAL_INTERFACE_SUBVENDOR", "Local|Interface|Subvendor", NoDevice),
    sel("LOCAL_INTERFACE_SUBDEVICE", "Local|Interface|Subdevice", NoDevice),
    sel("LOCAL_DRIVER_NAME", "Local|Driver|Name", Deprecated),
    sel("LOCAL_DRIVER_VERSION", "Local|Driver|Version", Deprecated),
    sel("LOCAL_DRIVER_FIRMWARE", "Local|Driver|Firmware", Deprecated),
    sel("LOCAL_DRIVER_BUS", "Local|Driver|Bus", Deprecated),
    sel("LOCAL_INTERFACE_SLOT", "Local|Interface|Slot", Deprecated),
    sel("REMOTE_INTERFACE_NAME", "Remote|Interface|Name", Deprecated),
    sel("REMOTE_INTERFACE_VENDOR", "Remote|Interface|Vendor", NoDevice),
    sel("REMOTE_INTERFACE_DEVICE", "Remote|Interface|Device", NoDevice),
    sel("REMOTE_INTERFACE_SUBVENDOR", "Remote|Interface|Subvendor", NoDevice),
    sel("REMOTE_INTERFACE_SUBDEVICE", "Remote|Interface|Subdevice", NoDevice),
    sel("REMOTE_DRIVER_NAME", "Remote|Driver|Name", Deprecated),
    sel("REMOTE_DRIVER_VERSION", "Remote|Driver|Version", Deprecated),
    sel("REMOTE_DRIVER_FIRMWARE", "Remote|Driver|Firmware", Deprecated),
    sel("REMOTE_DRIVER_BUS", "Remote|Driver|Bus", Deprecated),
    sel("REMOTE_INTERFACE_SLOT", "Remote|Interface|Slot", Deprecated),
    sel("LOCAL_INTERVAL_USECS", "Local|Interval|Usecs", IntervalUsecs(Local)),
    sel("LOCAL_INTERVAL_BURST", "Local|Interval|Burst", IntervalBurst(Local)),
    sel("REMOTE_INTERVAL_USECS", "Remote|Interval|Usecs", IntervalUsecs(Remote)),
    sel("REMOTE_INTERVAL_BURST", "Remote|Interval|Burst", IntervalBurst(Remote)),
    sel("LOCAL_SECURITY_TYPE_ID", "Local|OS|Security|Type ID", Zero),
    sel("LOCAL_SECURITY_TYPE", "Local|OS|Security|Type", Deprecated),
    sel("LOCAL_SECURITY_ENABLED_NUM", "Local|OS|Security|Enabled Num", Zero),
    sel("LOCAL_SECURITY_ENABLED", "Local|OS|Security|Enabled", Deprecated),
    sel("LOCAL_SECURITY_SPECIFIC", "Local|OS|Security|Specific", Deprecated),
    sel("REMOTE_SECURITY_TYPE_ID", "Remote|OS|Security|Type", Zero),
    sel("REMOTE_SECURITY_TYPE", "Remote|OS|Security|Type", Deprecated),
    sel("REMOTE_SECURITY_ENABLED_NUM", "Remote|OS|Security|Enabled", Zero),
    sel("REMOTE_SECURITY_ENABLED", "Remote|OS|Security|Enabled", Deprecated),
    sel("REMOTE_SECURITY_SPECIFIC", "Remote|OS|Security|Specific", Deprecated),
    sel("RESULT_BRAND", "Result|Tag", ResultBrand),
    sel("UUID", "Test|UUID", Uuid),
    sel("MIN_LATENCY", "Minimum|Latency|Microseconds", MinLatency),
    sel("MAX_LATENCY", "Maximum|Latency|Microseconds", MaxLatency),
    sel("P50_LATENCY", "50th|Percentile|Latency|Microseconds", P50Latency),
    sel("P90_LATENCY", "90th|Percentile|Latency|Microseconds", P90Latency),
    sel("P99_LATENCY", "99th|Percentile|Latency|Microseconds", P99Latency),
    sel("MEAN_LATENCY", "Mean|Latency|Microseconds", MeanLatency),
    sel("STDDEV_LATENCY", "Stddev|Latency|Microseconds", StddevLatency),
    sel("LOCAL_SOCKET_PRIO", "Local|Socket|Priority", SocketPrio(Local)),
    sel("REMOTE_SOCKET_PRIO", "Remote|Socket|Priority", SocketPrio(Remote)),
    sel("LOCAL_SOCKET_TOS", "Local|Socket|TOS", SocketTos(Local)),
    sel("REMOTE_SOCKET_TOS", "Remote|Socket|TOS", SocketTos(Remote)),
    sel("LOCAL_CONG_CONTROL", "Local|Congestion|Control|Algorithm", CongControl(Local)),
    sel("REMOTE_CONG_CONTROL", "Remote|Congestion|Control|Algorithm", CongControl(Remote)),
    sel("LOCAL_FILL_FILE", "Local|Fill|File", FillFile(Local)),
    sel("REMOTE_FILL_FILE", "Remote|Fill|File", FillFile(Remote)),
    sel("COMMAND_LINE", "Command|Line", CommandLine),
];

/// Selector of a name or of the text of a header, ignoring case.
pub(crate) fn find(word: &str) -> Option<&'static Selector> {
    let every = || ALL.iter().chain(&OURS).chain([&NOTHING, &END]);
    every()
        .find(|one| one.name.eq_ignore_ascii_case(word))
        .or_else(|| {
            OURS.iter().find(|one| {
                one.name
                    .strip_suffix("_LATENCY")
                    .is_some_and(|short| short.eq_ignore_ascii_case(word))
            })
        })
        .or_else(|| {
            every()
                .find(|one| !one.header.trim().is_empty() && one.title().eq_ignore_ascii_case(word))
        })
}
