//! Errors and warnings about a configuration.

use std::fmt;
use std::sync::Arc;

/// Severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// The configuration can be used, with a note to the user.
    Warning,
}

macro_rules! codes {
    ($($name:ident $text:literal $doc:literal)*) => {
        /// Kind of a problem. The names are stable.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code {
            $(#[doc = $doc] $name,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Name of the code, for example `E_MSS`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

codes! {
    Keyword "E_KEYWORD" "A line starts with an unknown keyword."
    Arguments "E_ARGUMENTS" "Too few or too many arguments."
    Value "E_VALUE" "An argument is invalid or out of range."
    Duplicate "E_DUPLICATE" "A keyword that may be used only once is repeated."
    Character "E_CHARACTER" "A character that dperf does not read (strict checks only)."
    Limit "E_LIMIT" "More than dperf's tables hold (strict checks only)."
    Mss "E_MSS" "`mss` is above what the MTU leaves."
    CcKeepalive "E_CC_KEEPALIVE" "`cc` without `keepalive`."
    FloodInterval "E_FLOOD_INTERVAL" "`flood` with a keepalive interval of 0."
    PipelineServer "E_PIPELINE_SERVER" "`pipeline` in server mode."
    PipelineTcp "E_PIPELINE_TCP" "`pipeline` without UDP."
    PipelineKeepalive "E_PIPELINE_KEEPALIVE" "`pipeline` without `keepalive`."
    PipelineInterval "E_PIPELINE_INTERVAL" "`pipeline` with an interval above 0 and no `flood`."
    HttpPathPayload "E_HTTP_PATH_PAYLOAD" "A path and a payload for GET."
    HttpServer "E_HTTP_SERVER" "`http_host` or `http_path` in server mode."
    HttpProto "E_HTTP_PROTO" "`http_host` or `http_path` without `protocol http`."
    ClientOnly "E_CLIENT_ONLY" "`wait` or `slow_start` in server mode."
    ClientLow16 "E_CLIENT_LOW16" "A client address twice; in strict checks also two with the same low 16 bits."
    ServerDup "E_SERVER_DUP" "Server ranges overlap."
    AddrOverlap "E_ADDR_OVERLAP" "A client and a server range overlap."
    LocalConflict "E_LOCAL_CONFLICT" "The IP of a port belongs to the other side's range."
    GwConflict "E_GW_CONFLICT" "A gateway belongs to the range of our own side."
    PortIpDup "E_PORT_IP_DUP" "Two ports with one IP."
    PayloadMany "E_PAYLOAD_MANY" "Several payload sizes in client mode."
    PayloadCount "E_PAYLOAD_COUNT" "Several payload sizes, but not one for each CPU."
    PayloadBoth "E_PAYLOAD_BOTH" "`payload_size` and `payload_file`."
    PayloadLarge "E_PAYLOAD_LARGE" "A message that does not fit one packet."
    PayloadSmall "E_PAYLOAD_SMALL" "A size below that of the request that must fit into it."
    SizeBoth "E_SIZE_BOTH" "`packet_size` and another source of payload."
    PacketSize "E_PACKET_SIZE" "A packet size that leaves no payload or exceeds the MTU."
    Cpu "E_CPU" "No `cpu` line."
    Port "E_PORT" "No `port` line."
    CpuPortRatio "E_CPU_PORT_RATIO" "The CPUs cannot be distributed evenly over the ports."
    PciDup "E_PCI_DUP" "One device in two ports."
    VxlanCount "E_VXLAN_COUNT" "Not one `vxlan` line for each port."
    VxlanLocal "E_VXLAN_LOCAL" "Not one local tunnel address for each queue."
    VxlanRemote "E_VXLAN_REMOTE" "Neither one remote tunnel address nor one for each queue."
    VlanExcl "E_VLAN_EXCL" "`vlan` with `vxlan` or a bond."
    Family "E_FAMILY" "IPv4 and IPv6 cannot be combined here."
    Ranges "E_RANGES" "Not one address range for each port."
    Steering "E_STEERING" "Responses cannot be steered to the CPU of the request."
    ChangeDipFlood "E_CHANGE_DIP_FLOOD" "`change_dip` without `flood`."
    ChangeDipVxlan "E_CHANGE_DIP_VXLAN" "`change_dip` with `vxlan`."
    ChangeDipCount "E_CHANGE_DIP_COUNT" "Fewer `change_dip` addresses than CPUs."
    NoTarget "E_NO_TARGET" "A client without `cps` and `cc`."
    Tuples "E_TUPLES" "Too few addresses and ports for the load."
    FastClose "E_FAST_CLOSE" "`fast_close` in server mode or with UDP."
    FlowIsolate "E_FLOW_ISOLATE" "`flow_isolate` with `rss` or without the gateway's MAC."
    Device "E_DEVICE" "The interface of a device is unknown."
    Deprecated "W_DEPRECATED" "A keyword or form of an older version, used as in that version."
    Read "W_READ" "An argument was read only in part."
    Repeated "W_REPEATED" "A switch is already on."
    Ignored "W_IGNORED" "A keyword without effect in this mode."
    Long "W_LONG" "A line of which dperf reads only a part."
    Bond "W_BOND" "A bond, which is left to the kernel."
    Kni "W_KNI" "A kernel interface for the port, which exists anyway."
    Differs "W_DIFFERS" "A value that dperf accepts and reads differently (strict checks only)."
}

impl Code {
    /// Severity of problems of this kind.
    #[must_use]
    pub fn severity(self) -> Severity {
        if self.name().starts_with("W_") {
            Severity::Warning
        } else {
            Severity::Error
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One problem, as a line for the reader: `file:line: CODE: text; allowed: …`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Name of the file, as given to the parser.
    pub file: Arc<str>,
    /// Line of the file, from 1; `None` if something is missing.
    pub line: Option<u32>,
    /// Kind of the problem.
    pub code: Code,
    /// Severity of the problem.
    pub severity: Severity,
    /// Description of the problem.
    pub text: String,
    /// Allowed values; empty if the text states them.
    pub allowed: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}: {}", self.code, self.text)?;
        if !self.allowed.is_empty() {
            write!(f, "; allowed: {}", self.allowed)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}

/// Returns true if there is no error among `problems`: the verdict of a check.
#[must_use]
pub fn accepted(problems: &[Problem]) -> bool {
    problems.iter().all(|p| p.severity == Severity::Warning)
}
