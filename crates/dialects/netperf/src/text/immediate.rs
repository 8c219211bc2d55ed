//! Output without a test, and additional output of a test.

use wb_model::socket::SocketJobReport;

use crate::{OutputOptions, TestKind};

/// LOC_CPU and REM_CPU: clock ticks per second, which need no calibration on Linux. With
/// `-v 2` also the number of CPUs.
#[must_use]
pub fn calibration(show: &OutputOptions, cpus: u32) -> String {
    let ticks = 100;
    if show.verbosity < 2 {
        return ticks.to_string();
    }
    let end = if show.kind == TestKind::LocalCpu {
        "local"
    } else {
        "remote"
    };
    format!("{ticks}\nThere are {cpus} {end} cpus\n")
}

/// A UUID from 16 random bytes (RFC 9562, version 4).
#[must_use]
pub fn uuid(drawn: [u8; 16]) -> String {
    let mut bytes = drawn;
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let mut text = String::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// Lines for standard error if `DUMP_TCP_INFO` is set and the connection is TCP. Existing scripts expect the
/// misspelt name.
#[must_use]
pub fn tcp_info(report: &SocketJobReport) -> Option<String> {
    let tcp = report.local.tcp?;
    Some(format!(
        "tcpi_rto {} tcpi_ato {} tcpi_pmtu {} tcpi_rcv_ssthresh {}\n\
         tcpi_rtt {} tcpi_rttvar {} tcpi_snd_ssthresh {} tpci_snd_cwnd {}\n\
         tcpi_reordering {} tcpi_total_retrans {}\n",
        tcp.rto_us,
        tcp.ato_us,
        tcp.path_mtu,
        tcp.receive_ssthresh,
        tcp.rtt_us,
        tcp.rtt_var_us,
        tcp.ssthresh,
        tcp.cwnd,
        tcp.reordering,
        tcp.retransmissions
    ))
}
