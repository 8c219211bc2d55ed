//! Names of the selectors for `-o`, `-O` and `-k` and their headers, in the original's order.

use DataSide::{Local, Remote};
use FigureItem::*;
use ReadMoment::{Asked, First, Last};

/// An end of the data connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataSide {
    Local,
    Remote,
}

/// Time at which the size of a buffer was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadMoment {
    Asked,
    First,
    Last,
}

/// Figure that a selector prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FigureItem {
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
    SendBuffer(DataSide, ReadMoment),
    ReceiveBuffer(DataSide, ReadMoment),
    SendSize(DataSide),
    RecvSize(DataSide),
    RequestSize,
    ResponseSize,
    CpuUtil(DataSide),
    CpuPercentUser(DataSide),
    CpuPercentSystem(DataSide),
    CpuPercentIowait(DataSide),
    CpuPercentIrq(DataSide),
    CpuPercentSwintr(DataSide),
    CpuMethod(DataSide),
    Sd(DataSide),
    SdUnits,
    ConfidenceLevel,
    ConfidenceInterval,
    ConfidenceIteration,
    ThroughputConfid,
    CpuConfid(DataSide),
    TransactionRate,
    RtLatency,
    BurstSize,
    TransportRetrans(DataSide),
    TransportMss,
    SendThroughput(DataSide),
    RecvThroughput(DataSide),
    CpuBind(DataSide),
    CpuCount(DataSide),
    CpuPeakUtil(DataSide),
    CpuPeakId(DataSide),
    SourcePort,
    SourceAddr,
    SourceFamily,
    DestPort,
    DestAddr,
    DestFamily,
    SendCalls(DataSide),
    RecvCalls(DataSide),
    BytesPerRecv(DataSide),
    BytesPerSend(DataSide),
    BytesSent(DataSide),
    BytesRecvd(DataSide),
    BytesXferd(DataSide),
    SendOffset(DataSide),
    RecvOffset(DataSide),
    SendAlign(DataSide),
    RecvAlign(DataSide),
    SendWidth(DataSide),
    RecvWidth(DataSide),
    Nodelay(DataSide),
    Cork(DataSide),
    IntervalUsecs(DataSide),
    IntervalBurst(DataSide),
    ResultBrand,
    Uuid,
    MinLatency,
    MaxLatency,
    P50Latency,
    P90Latency,
    P99Latency,
    MeanLatency,
    StddevLatency,
    SocketPrio(DataSide),
    SocketTos(DataSide),
    CongControl(DataSide),
    FillFile(DataSide),
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
    pub(crate) item: FigureItem,
}

impl Selector {
    /// The header in one line.
    pub(crate) fn title(&self) -> String {
        self.header.replace('|', " ")
    }

    /// One line of the header; `line` counts from 0.
    pub(crate) fn header_word(&self, line: usize) -> &'static str {
        self.header.split('|').nth(line).unwrap_or_default()
    }
}

const fn selector(name: &'static str, header: &'static str, item: FigureItem) -> Selector {
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

pub(crate) static NOTHING: Selector = selector("OUTPUT_NONE", " ", Nothing);
pub(crate) static END: Selector = selector("OUTPUT_END", "", End);

/// Additional selectors, after those of the original.
// One row per line is easier to read than five lines per row.
#[rustfmt::skip]
pub(crate) static OURS: [Selector; 8] = [
    selector("RTT", "Round|Trip Time|usec", Rtt),
    selector("RTTVAR", "Round|Trip Time|Deviation|usec", RttVar),
    selector("CWND", "Congestion|Window|Segments", Cwnd),
    selector("PACING_RATE", "Pacing|Rate|bits/s", PacingRate),
    selector("DELIVERY_RATE", "Delivery|Rate|bits/s", DeliveryRate),
    selector("P95_LATENCY", "95th|Percentile|Latency|Microseconds", P95Latency),
    selector("P99.9_LATENCY", "99.9th|Percentile|Latency|Microseconds", P999Latency),
    selector("P99.99_LATENCY", "99.99th|Percentile|Latency|Microseconds", P9999Latency),
];

/// Selectors of netperf 2.7 in the order of `all`.
#[rustfmt::skip]
pub(crate) static ALL: [Selector; 173] = [
    selector("SOCKET_TYPE", "Socket|Type", SocketType),
    selector("PROTOCOL", "Protocol", Protocol),
    selector("DIRECTION", "Direction", Direction),
    selector("ELAPSED_TIME", "Elapsed|Time|(sec)", ElapsedTime),
    selector("THROUGHPUT", "Throughput", Throughput),
    selector("THROUGHPUT_UNITS", "Throughput|Units", ThroughputUnits),
    selector("LSS_SIZE_REQ", "Local|Send Socket|Size|Requested", SendBuffer(Local, Asked)),
    selector("LSS_SIZE", "Local|Send Socket|Size|Initial", SendBuffer(Local, First)),
    selector("LSS_SIZE_END", "Local|Send Socket|Size|Final", SendBuffer(Local, Last)),
    selector("LSR_SIZE_REQ", "Local|Recv Socket|Size|Requested", ReceiveBuffer(Local, Asked)),
    selector("LSR_SIZE", "Local|Recv Socket|Size|Initial", ReceiveBuffer(Local, First)),
    selector("LSR_SIZE_END", "Local|Recv Socket|Size|Final", ReceiveBuffer(Local, Last)),
    selector("RSS_SIZE_REQ", "Remote|Send Socket|Size|Requested", SendBuffer(Remote, Asked)),
    selector("RSS_SIZE", "Remote|Send Socket|Size|Initial", SendBuffer(Remote, First)),
    selector("RSS_SIZE_END", "Remote|Send Socket|Size|Final", SendBuffer(Remote, Last)),
    selector("RSR_SIZE_REQ", "Remote|Recv Socket|Size|Requested", ReceiveBuffer(Remote, Asked)),
    selector("RSR_SIZE", "Remote|Recv Socket|Size|Initial", ReceiveBuffer(Remote, First)),
    selector("RSR_SIZE_END", "Remote|Recv Socket|Size|Final", ReceiveBuffer(Remote, Last)),
    selector("LOCAL_SEND_SIZE", "Local|Send|Size", SendSize(Local)),
    selector("LOCAL_RECV_SIZE", "Local|Recv|Size", RecvSize(Local)),
    selector("REMOTE_SEND_SIZE", "Remote|Send|Size", SendSize(Remote)),
    selector("REMOTE_RECV_SIZE", "Remote|Recv|Size", RecvSize(Remote)),
    selector("REQUEST_SIZE", "Request|Size|Bytes", RequestSize),
    selector("RESPONSE_SIZE", "Response|Size|Bytes", ResponseSize),
    selector("LOCAL_CPU_UTIL", "Local|CPU|Util|%", CpuUtil(Local)),
    selector("LOCAL_CPU_PERCENT_USER", "Local|CPU|User|%", CpuPercentUser(Local)),
    selector("LOCAL_CPU_PERCENT_SYSTEM", "Local|CPU|System|%", CpuPercentSystem(Local)),
    selector("LOCAL_CPU_PERCENT_IOWAIT", "Local|CPU|I/O|%", CpuPercentIowait(Local)),
    selector("LOCAL_CPU_PERCENT_IRQ", "Local|CPU|IRQ|%", CpuPercentIrq(Local)),
    selector("LOCAL_CPU_PERCENT_SWINTR", "Local|CPU|swintr|%", CpuPercentSwintr(Local)),
    selector("LOCAL_CPU_METHOD", "Local|CPU|Util|Method", CpuMethod(Local)),
    selector("LOCAL_SD", "Local|Service|Demand", Sd(Local)),
    selector("REMOTE_CPU_UTIL", "Remote|CPU|Util|%", CpuUtil(Remote)),
    selector("REMOTE_CPU_PERCENT_USER", "Remote|CPU|User|%", CpuPercentUser(Remote)),
    selector("REMOTE_CPU_PERCENT_SYSTEM", "Remote|CPU|System|%", CpuPercentSystem(Remote)),
    selector("REMOTE_CPU_PERCENT_IOWAIT", "Remote|CPU|I/O|%", CpuPercentIowait(Remote)),
    selector("REMOTE_CPU_PERCENT_IRQ", "Remote|CPU|IRQ|%", CpuPercentIrq(Remote)),
    selector("REMOTE_CPU_PERCENT_SWINTR", "Remote|CPU|swintr|%", CpuPercentSwintr(Remote)),
    selector("REMOTE_CPU_METHOD", "Remote|CPU|Util|Method", CpuMethod(Remote)),
    selector("REMOTE_SD", "Remote|Service|Demand", Sd(Remote)),
    selector("SD_UNITS", "Service|Demand|Units", SdUnits),
    selector("CONFIDENCE_LEVEL", "Confidence|Level|Percent", ConfidenceLevel),
    selector("CONFIDENCE_INTERVAL", "Confidence|Width|Target", ConfidenceInterval),
    selector("CONFIDENCE_ITERATION", "Confidence|Iterations|Run", ConfidenceIteration),
    selector("THROUGHPUT_CONFID", "Throughput|Confidence|Width (%)", ThroughputConfid),
    selector("LOCAL_CPU_CONFID", "Local|CPU|Confidence|Width (%)", CpuConfid(Local)),
    selector("REMOTE_CPU_CONFID", "Remote|CPU|Confidence|Width (%)", CpuConfid(Remote)),
    selector("TRANSACTION_RATE", "Transaction|Rate|Tran/s", TransactionRate),
    selector("RT_LATENCY", "Round|Trip|Latency|usec/tran", RtLatency),
    selector("BURST_SIZE", "Initial|Burst|Requests", BurstSize),
    selector("LOCAL_TRANSPORT_RETRANS", "Local|Transport|Retransmissions", TransportRetrans(Local)),
    selector("REMOTE_TRANSPORT_RETRANS", "Remote|Transport|Retransmissions", TransportRetrans(Remote)),
    selector("TRANSPORT_MSS", "Transport|MSS|bytes", TransportMss),
    selector("LOCAL_SEND_THROUGHPUT", "Local|Send|Throughput", SendThroughput(Local)),
    selector("LOCAL_RECV_THROUGHPUT", "Local|Recv|Throughput", RecvThroughput(Local)),
    selector("REMOTE_SEND_THROUGHPUT", "Remote|Send|Throughput", SendThroughput(Remote)),
    selector("REMOTE_RECV_THROUGHPUT", "Remote|Recv|Throughput", RecvThroughput(Remote)),
    selector("LOCAL_CPU_BIND", "Local|CPU|Bind", CpuBind(Local)),
    selector("LOCAL_CPU_COUNT", "Local|CPU|Count", CpuCount(Local)),
    selector("LOCAL_CPU_PEAK_UTIL", "Local|Peak|Per CPU|Util %", CpuPeakUtil(Local)),
    selector("LOCAL_CPU_PEAK_ID", "Local|Peak|Per CPU|ID", CpuPeakId(Local)),
    selector("LOCAL_CPU_MODEL", "Local|CPU|Model", Deprecated),
    selector("LOCAL_CPU_FREQUENCY", "Local|CPU|Frequency|MHz", Zero),
    selector("REMOTE_CPU_BIND", "Remote|CPU|Bind", CpuBind(Remote)),
    selector("REMOTE_CPU_COUNT", "Remote|CPU|Count", CpuCount(Remote)),
    selector("REMOTE_CPU_PEAK_UTIL", "Remote|Peak|Per CPU|Util %", CpuPeakUtil(Remote)),
    selector("REMOTE_CPU_PEAK_ID", "Remote|Peak|Per CPU|ID", CpuPeakId(Remote)),
    selector("REMOTE_CPU_MODEL", "Remote|CPU|Model", Deprecated),
    selector("REMOTE_CPU_FREQUENCY", "Remote|CPU|Frequency|MHz", Zero),
    selector("SOURCE_PORT", "Source|Port", SourcePort),
    selector("SOURCE_ADDR", "Source|Address", SourceAddr),
    selector("SOURCE_FAMILY", "Source|Family", SourceFamily),
    selector("DEST_PORT", "Destination|Port", DestPort),
    selector("DEST_ADDR", "Destination|Address", DestAddr),
    selector("DEST_FAMILY", "Destination|Family", DestFamily),
    selector("LOCAL_SEND_CALLS", "Local|Send|Calls", SendCalls(Local)),
    selector("LOCAL_RECV_CALLS", "Local|Recv|Calls", RecvCalls(Local)),
    selector("LOCAL_BYTES_PER_RECV", "Local|Bytes|Per|Recv", BytesPerRecv(Local)),
    selector("LOCAL_BYTES_PER_SEND", "Local|Bytes|Per|Send", BytesPerSend(Local)),
    selector("LOCAL_BYTES_SENT", "Local|Bytes|Sent", BytesSent(Local)),
    selector("LOCAL_BYTES_RECVD", "Local|Bytes|Received", BytesRecvd(Local)),
    selector("LOCAL_BYTES_XFERD", "Local|Bytes|Xferred", BytesXferd(Local)),
    selector("LOCAL_SEND_OFFSET", "Local|Send|Offset", SendOffset(Local)),
    selector("LOCAL_RECV_OFFSET", "Local|Recv|Offset", RecvOffset(Local)),
    selector("LOCAL_SEND_ALIGN", "Local|Send|Alignment", SendAlign(Local)),
    selector("LOCAL_RECV_ALIGN", "Local|Recv|Alignment", RecvAlign(Local)),
    selector("LOCAL_SEND_WIDTH", "Local|Send|Width", SendWidth(Local)),
    selector("LOCAL_RECV_WIDTH", "Local|Recv|Width", RecvWidth(Local)),
    selector("LOCAL_SEND_DIRTY_COUNT", "Local|Send|Dirty|Count", MinusOne),
    selector("LOCAL_RECV_DIRTY_COUNT", "Local|Recv|Dirty|Count", MinusOne),
    selector("LOCAL_RECV_CLEAN_COUNT", "Local|Recv|Clean|Count", MinusOne),
    selector("LOCAL_NODELAY", "Local|NODELAY", Nodelay(Local)),
    selector("LOCAL_CORK", "Local|Cork", Cork(Local)),
    selector("REMOTE_SEND_CALLS", "Remote|Send|Calls", SendCalls(Remote)),
    selector("REMOTE_RECV_CALLS", "Remote|Recv|Calls", RecvCalls(Remote)),
    selector("REMOTE_BYTES_PER_RECV", "Remote|Bytes|Per|Recv", BytesPerRecv(Remote)),
    selector("REMOTE_BYTES_PER_SEND", "Remote|Bytes|Per|Send", BytesPerSend(Remote)),
    selector("REMOTE_BYTES_SENT", "Remote|Bytes|Sent", BytesSent(Remote)),
    selector("REMOTE_BYTES_RECVD", "Remote|Bytes|Received", BytesRecvd(Remote)),
    selector("REMOTE_BYTES_XFERD", "Remote|Bytes|Xferred", BytesXferd(Remote)),
    selector("REMOTE_SEND_OFFSET", "Remote|Send|Offset", SendOffset(Remote)),
    selector("REMOTE_RECV_OFFSET", "Remote|Recv|Offset", RecvOffset(Remote)),
    selector("REMOTE_SEND_ALIGN", "Remote|Send|Alignment", SendAlign(Remote)),
    selector("REMOTE_RECV_ALIGN", "Remote|Recv|Alignment", RecvAlign(Remote)),
    selector("REMOTE_SEND_WIDTH", "Remote|Send|Width", SendWidth(Remote)),
    selector("REMOTE_RECV_WIDTH", "Remote|Recv|Width", RecvWidth(Remote)),
    selector("REMOTE_SEND_DIRTY_COUNT", "Remote|Send|Dirty|Count", MinusOne),
    selector("REMOTE_RECV_DIRTY_COUNT", "Remote|Recv|Dirty|Count", MinusOne),
    selector("REMOTE_RECV_CLEAN_COUNT", "Remote|Recv|Clean|Count", MinusOne),
    selector("REMOTE_NODELAY", "Remote|NODELAY", Nodelay(Remote)),
    selector("REMOTE_CORK", "Remote|Cork", Cork(Remote)),
    selector("LOCAL_SYSNAME", "Local|Sysname", Deprecated),
    selector("LOCAL_SYSTEM_MODEL", "Local|System|Model", Deprecated),
    selector("LOCAL_RELEASE", "Local|Release", Deprecated),
    selector("LOCAL_VERSION", "Local|Version", Deprecated),
    selector("LOCAL_MACHINE", "Local|Machine", Deprecated),
    selector("REMOTE_SYSNAME", "Remote|Sysname", Deprecated),
    selector("REMOTE_SYSTEM_MODEL", "Remote|System|Model", Deprecated),
    selector("REMOTE_RELEASE", "Remote|Release", Deprecated),
    selector("REMOTE_VERSION", "Remote|Version", Deprecated),
    selector("REMOTE_MACHINE", "Remote|Machine", Deprecated),
    selector("LOCAL_INTERFACE_NAME", "Local|Interface|Name", Deprecated),
    selector("LOCAL_INTERFACE_VENDOR", "Local|Interface|Vendor", NoDevice),
    selector("LOCAL_INTERFACE_DEVICE", "Local|Interface|Device", NoDevice),
    selector("LOCAL_INTERFACE_SUBVENDOR", "Local|Interface|Subvendor", NoDevice),
    selector("LOCAL_INTERFACE_SUBDEVICE", "Local|Interface|Subdevice", NoDevice),
    selector("LOCAL_DRIVER_NAME", "Local|Driver|Name", Deprecated),
    selector("LOCAL_DRIVER_VERSION", "Local|Driver|Version", Deprecated),
    selector("LOCAL_DRIVER_FIRMWARE", "Local|Driver|Firmware", Deprecated),
    selector("LOCAL_DRIVER_BUS", "Local|Driver|Bus", Deprecated),
    selector("LOCAL_INTERFACE_SLOT", "Local|Interface|Slot", Deprecated),
    selector("REMOTE_INTERFACE_NAME", "Remote|Interface|Name", Deprecated),
    selector("REMOTE_INTERFACE_VENDOR", "Remote|Interface|Vendor", NoDevice),
    selector("REMOTE_INTERFACE_DEVICE", "Remote|Interface|Device", NoDevice),
    selector("REMOTE_INTERFACE_SUBVENDOR", "Remote|Interface|Subvendor", NoDevice),
    selector("REMOTE_INTERFACE_SUBDEVICE", "Remote|Interface|Subdevice", NoDevice),
    selector("REMOTE_DRIVER_NAME", "Remote|Driver|Name", Deprecated),
    selector("REMOTE_DRIVER_VERSION", "Remote|Driver|Version", Deprecated),
    selector("REMOTE_DRIVER_FIRMWARE", "Remote|Driver|Firmware", Deprecated),
    selector("REMOTE_DRIVER_BUS", "Remote|Driver|Bus", Deprecated),
    selector("REMOTE_INTERFACE_SLOT", "Remote|Interface|Slot", Deprecated),
    selector("LOCAL_INTERVAL_USECS", "Local|Interval|Usecs", IntervalUsecs(Local)),
    selector("LOCAL_INTERVAL_BURST", "Local|Interval|Burst", IntervalBurst(Local)),
    selector("REMOTE_INTERVAL_USECS", "Remote|Interval|Usecs", IntervalUsecs(Remote)),
    selector("REMOTE_INTERVAL_BURST", "Remote|Interval|Burst", IntervalBurst(Remote)),
    selector("LOCAL_SECURITY_TYPE_ID", "Local|OS|Security|Type ID", Zero),
    selector("LOCAL_SECURITY_TYPE", "Local|OS|Security|Type", Deprecated),
    selector("LOCAL_SECURITY_ENABLED_NUM", "Local|OS|Security|Enabled Num", Zero),
    selector("LOCAL_SECURITY_ENABLED", "Local|OS|Security|Enabled", Deprecated),
    selector("LOCAL_SECURITY_SPECIFIC", "Local|OS|Security|Specific", Deprecated),
    selector("REMOTE_SECURITY_TYPE_ID", "Remote|OS|Security|Type", Zero),
    selector("REMOTE_SECURITY_TYPE", "Remote|OS|Security|Type", Deprecated),
    selector("REMOTE_SECURITY_ENABLED_NUM", "Remote|OS|Security|Enabled", Zero),
    selector("REMOTE_SECURITY_ENABLED", "Remote|OS|Security|Enabled", Deprecated),
    selector("REMOTE_SECURITY_SPECIFIC", "Remote|OS|Security|Specific", Deprecated),
    selector("RESULT_BRAND", "Result|Tag", ResultBrand),
    selector("UUID", "Test|UUID", Uuid),
    selector("MIN_LATENCY", "Minimum|Latency|Microseconds", MinLatency),
    selector("MAX_LATENCY", "Maximum|Latency|Microseconds", MaxLatency),
    selector("P50_LATENCY", "50th|Percentile|Latency|Microseconds", P50Latency),
    selector("P90_LATENCY", "90th|Percentile|Latency|Microseconds", P90Latency),
    selector("P99_LATENCY", "99th|Percentile|Latency|Microseconds", P99Latency),
    selector("MEAN_LATENCY", "Mean|Latency|Microseconds", MeanLatency),
    selector("STDDEV_LATENCY", "Stddev|Latency|Microseconds", StddevLatency),
    selector("LOCAL_SOCKET_PRIO", "Local|Socket|Priority", SocketPrio(Local)),
    selector("REMOTE_SOCKET_PRIO", "Remote|Socket|Priority", SocketPrio(Remote)),
    selector("LOCAL_SOCKET_TOS", "Local|Socket|TOS", SocketTos(Local)),
    selector("REMOTE_SOCKET_TOS", "Remote|Socket|TOS", SocketTos(Remote)),
    selector("LOCAL_CONG_CONTROL", "Local|Congestion|Control|Algorithm", CongControl(Local)),
    selector("REMOTE_CONG_CONTROL", "Remote|Congestion|Control|Algorithm", CongControl(Remote)),
    selector("LOCAL_FILL_FILE", "Local|Fill|File", FillFile(Local)),
    selector("REMOTE_FILL_FILE", "Remote|Fill|File", FillFile(Remote)),
    selector("COMMAND_LINE", "Command|Line", CommandLine),
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
