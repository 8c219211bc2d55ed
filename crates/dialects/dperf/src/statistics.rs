//! Text of dperf's statistics: a block of lines each second, and one at the end.
//!
//! Knows counters only. The caller fills [`Counters`] with sums over all workers since the start of
//! the run; [`Counters::since`] returns the figures of one second.

use std::fmt::Write as _;

use serde::ser::{Serialize, SerializeMap as _, Serializer};

use crate::config::Config;
use crate::number::grouped;

macro_rules! counters {
    ($($kind:ident $field:ident $name:literal $doc:literal)*) => {
        /// dperf's counters, summed over all workers. In JSON the keys are dperf's names.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $(#[doc = $doc] pub $field: u64,)*
            /// Sum of the measured round trips, ns.
            pub rtt_sum_ns: u64,
            /// Number of measured round trips.
            pub rtt_samples: u64,
        }

        impl Counters {
            /// Names of the counters, in the order of the fields.
            pub const NAMES: &[&str] = &[$($name),*];

            /// Increments since `earlier`; states (`skCon` and the NIC's counters) keep their present
            /// values.
            #[must_use]
            pub fn since(&self, earlier: &Self) -> Self {
                Self {
                    $($field: counters!(@since $kind self.$field, earlier.$field),)*
                    rtt_sum_ns: self.rtt_sum_ns.saturating_sub(earlier.rtt_sum_ns),
                    rtt_samples: self.rtt_samples.saturating_sub(earlier.rtt_samples),
                }
            }

            /// Sum of two sets of counters, for example of two workers.
            #[must_use]
            pub fn plus(&self, other: &Self) -> Self {
                Self {
                    $($field: self.$field.saturating_add(other.$field),)*
                    rtt_sum_ns: self.rtt_sum_ns.saturating_add(other.rtt_sum_ns),
                    rtt_samples: self.rtt_samples.saturating_add(other.rtt_samples),
                }
            }

            fn field(&self, name: &str) -> CounterField {
                match name {
                    $($name => CounterField { value: self.$field, error: counters!(@error $kind) },)*
                    _ => unreachable!("the layout names a counter: {name}"),
                }
            }

            /// Values in the order of [`Counters::NAMES`].
            #[must_use]
            pub fn values(&self) -> Vec<u64> {
                vec![$(self.$field),*]
            }
        }
    };
    (@since state $now:expr, $earlier:expr) => { $now };
    (@since state_error $now:expr, $earlier:expr) => { $now };
    (@since $kind:ident $now:expr, $earlier:expr) => { $now.saturating_sub($earlier) };
    (@error error) => { true };
    (@error state_error) => { true };
    (@error $kind:ident) => { false };
}

struct CounterField {
    value: u64,
    /// Shown white on red when it is not 0.
    error: bool,
}

counters! {
    count pkt_rx "pktRx" "Frames received."
    count pkt_tx "pktTx" "Frames queued for sending, later drops included."
    count bits_rx "bitsRx" "Bits received: 8 for each byte of a frame without FCS, preamble, gap and padding."
    count bits_tx "bitsTx" "Bits queued for sending, counted alike."
    error drop_tx "dropTx" "Frames thrown away because the device did not take them."
    count kni_rx "kniRx" "Frames given to the kernel."
    count kni_tx "kniTx" "Frames taken from the kernel."
    count tcp_rx "tcpRx" "TCP packets received."
    count tcp_tx "tcpTx" "TCP packets sent."
    count udp_rx "udpRx" "UDP packets received."
    count udp_tx "udpTx" "UDP packets sent."
    count arp_rx "arpRx" "ARP frames received."
    count arp_tx "arpTx" "ARP frames sent."
    count icmp_rx "icmpRx" "ICMP and ICMPv6 packets received."
    count icmp_tx "icmpTx" "ICMP and ICMPv6 packets sent."
    count tos_rx "tosRx" "IPv4 packets received whose TOS is the one configured, if one is; over IPv6 all."
    count other_rx "otherRx" "Frames received that nothing here wants."
    error bad_rx "badRx" "Packets received with a bad checksum, and fragments."
    count syn_rx "synRx" "TCP packets received with SYN."
    count syn_tx "synTx" "TCP packets sent with SYN, repeats included."
    count fin_rx "finRx" "TCP packets received with FIN."
    count fin_tx "finTx" "TCP packets sent with FIN, repeats included."
    error rst_rx "rstRx" "TCP packets received with RST."
    error rst_tx "rstTx" "TCP packets sent with RST."
    error syn_rt "synRt" "SYN packets repeated."
    error fin_rt "finRt" "FIN packets without data repeated."
    error ack_rt "ackRt" "Acknowledgements repeated."
    error push_rt "pushRt" "Packets with data repeated."
    error tcp_drop "tcpDrop" "TCP packets of no connection, or that do not fit it."
    error udp_drop "udpDrop" "UDP packets of no connection."
    error ack_dup "ackDup" "Duplicate acknowledgements of a long response."
    error udp_rt "udpRt" "UDP requests without an answer."
    count sk_open "skOpen" "Connections begun: SYN or first datagram sent, SYN accepted."
    count sk_close "skClose" "Connections ended, for whatever reason."
    state sk_con "skCon" "Connections open now."
    error sk_err "skErr" "Connections given up: no answer to the last repeat, or idle for too long."
    count http_get "httpGet" "GET requests."
    count http_post "httpPost" "POST requests."
    count http_2xx "http2XX" "Responses with a status of 200 to 299."
    error http_err "httpErr" "Other responses."
    count tcp_req "tcpReq" "Requests that are not HTTP."
    count tcp_rsp "tcpRsp" "Responses that are not HTTP."
    state_error ierrors "ierrors" "Receive errors of the devices since the start of the run."
    state_error oerrors "oerrors" "Send errors of the devices since the start of the run."
    state_error imissed "imissed" "Frames for which the devices had no room since the start of the run."
}

impl Counters {
    /// Mean round trip, us; 0 without samples.
    #[must_use]
    pub fn rtt_us(&self) -> f64 {
        self.rtt_tenths() as f64 / 10.0
    }

    /// Mean round trip in tenths of a us, rounded down.
    fn rtt_tenths(&self) -> u64 {
        self.rtt_sum_ns / self.rtt_samples.max(1) / 100
    }
}

/// dperf's names, and the mean `rtt(us)` if there is one.
impl Serialize for Counters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in Self::NAMES.iter().zip(self.values()) {
            map.serialize_entry(name, &value)?;
        }
        if self.rtt_samples > 0 {
            map.serialize_entry("rtt(us)", &self.rtt_us())?;
        }
        map.end()
    }
}

/// One block of statistics. In JSON it has dperf's names, for scripts.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct StatisticsBlock {
    /// Number of the report, from 0.
    pub seconds: u64,
    /// Busy share of each worker's loop, percent of time; empty in the block of the run.
    #[serde(rename = "cpuUsage")]
    pub cpu_usage: Vec<u8>,
    /// Figures of the second, or of the run.
    #[serde(flatten)]
    pub counters: Counters,
}

/// Lines and fields to show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatisticsLayout {
    /// UDP instead of TCP.
    pub udp: bool,
    /// HTTP counters instead of plain requests; TCP only.
    pub http: bool,
    /// Round trips; clients without keepalive only.
    pub rtt: bool,
    /// Frames exchanged with the kernel.
    pub kni: bool,
    /// Errors in white on red, for terminals.
    pub colour: bool,
}

impl StatisticsLayout {
    /// The layout of `config`, without colour.
    #[must_use]
    pub fn of_config(config: &Config) -> Self {
        Self {
            udp: config.is_udp(),
            http: config.speaks_http(),
            rtt: config.is_client() && config.keepalive.is_none(),
            kni: config.kni.is_some(),
            colour: false,
        }
    }

    /// The block of a second, between empty lines.
    #[must_use]
    pub fn second_text(&self, block: &StatisticsBlock) -> String {
        let seconds = seconds(block);
        format!("\n{}\n{}", seconds.trim_end(), self.block_text(block))
    }

    /// Block of the whole run after the header of the end of a run; `version` is the version of the program.
    #[must_use]
    pub fn total(&self, block: &StatisticsBlock, version: &str) -> String {
        const RULE: &str = "-----------------------";
        format!(
            "\n{RULE}\ndperf Test Finished\nVersion: {version}\n{RULE}\n\nTotal Numbers:\n{}",
            self.block_text(block)
        )
    }

    fn block_text(&self, block: &StatisticsBlock) -> String {
        let mut text = String::new();
        for names in self.field_lines() {
            text.push_str(self.line(names, &block.counters).trim_end());
            text.push('\n');
        }
        text.push('\n');
        text
    }

    fn field_lines(&self) -> Vec<&'static [&'static str]> {
        let mut lines: Vec<&'static [&'static str]> =
            vec![&["pktRx", "pktTx", "bitsRx", "bitsTx", "dropTx"]];
        if self.kni {
            lines.push(&["kniRx", "kniTx"]);
        }
        lines.push(&["tcpRx", "tcpTx", "udpRx", "udpTx"]);
        lines.push(&["arpRx", "arpTx", "icmpRx", "icmpTx"]);
        lines.push(&["tosRx", "otherRx", "badRx"]);
        if self.udp {
            lines.push(&["udpRt", "udpDrop", "tcpDrop"]);
        } else {
            lines.push(&["synRx", "synTx", "finRx", "finTx", "rstRx", "rstTx"]);
            lines.push(&["synRt", "finRt", "ackRt", "pushRt"]);
            lines.push(&["tcpDrop", "udpDrop", "ackDup"]);
        }
        lines.push(match self.rtt {
            true => &["skOpen", "skClose", "skCon", "skErr", RTT],
            false => &["skOpen", "skClose", "skCon", "skErr"],
        });
        if !self.udp {
            lines.push(match self.http {
                true => &["httpGet", "httpPost", "http2XX", "httpErr"],
                false => &["tcpReq", "tcpRsp"],
            });
        }
        lines.push(&["ierrors", "oerrors", "imissed"]);
        lines
    }

    fn line(&self, names: &[&str], counters: &Counters) -> String {
        let mut line = String::new();
        for (column, name) in names.iter().enumerate() {
            let _ = write!(line, "{name:<width$}", width = COLUMNS[column]);
            if *name == RTT {
                let tenths = counters.rtt_tenths();
                let _ = write!(line, "{}.{}", grouped(tenths / 10), tenths % 10);
                continue;
            }
            let field = counters.field(name);
            let digits = grouped(field.value);
            let gap = " ".repeat(value_width(name).saturating_sub(digits.len()));
            match self.colour && field.error && field.value > 0 {
                true => {
                    let _ = write!(line, "{ALARM}{digits}{PLAIN}{gap} ");
                }
                false => {
                    let _ = write!(line, "{digits}{gap} ");
                }
            }
        }
        line
    }
}

/// The field of mean round trips.
const RTT: &str = "rtt(us)";

/// Width of the name in each column, including the space after it.
const COLUMNS: [usize; 6] = [8, 9, 9, 8, 8, 6];

/// Width of a value, without the space after it.
fn value_width(name: &str) -> usize {
    match name {
        "rstRx" | "rstTx" => 10,
        _ => 18,
    }
}

/// White on red (ECMA-48 section 8.3.117).
const ALARM: &str = "\x1b[41;37m";
const PLAIN: &str = "\x1b[0m";

fn seconds(block: &StatisticsBlock) -> String {
    let mut line = format!("seconds {:<18} cpuUsage ", block.seconds);
    for usage in &block.cpu_usage {
        let _ = write!(line, "{usage:<3} ");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_its_place() {
        let mut shown: Vec<&str> = Vec::new();
        for (udp, http, kni) in [
            (true, false, true),
            (false, true, false),
            (false, false, false),
        ] {
            let layout = StatisticsLayout {
                udp,
                http,
                kni,
                ..StatisticsLayout::default()
            };
            shown.extend(layout.field_lines().into_iter().flatten());
        }
        for name in Counters::NAMES {
            assert!(shown.contains(name), "{name} is never shown");
        }
    }
}
