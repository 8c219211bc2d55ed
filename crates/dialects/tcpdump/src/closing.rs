//! Messages about a capture as a whole: the start line, the progress and the final counts.
//!
//! Knows counts only. The first lines are identical to tcpdump's, for scripts that parse them. The
//! last line, after `# wirebench:`, is an addition and accounts for every packet.

use std::fmt::Write;

use crate::print::LinkType;

fn packets_text(count: u64, what: &str) -> String {
    format!("{count} packet{} {what}", if count == 1 { "" } else { "s" })
}

/// Final lines of tcpdump. The last of the four appears only if its count is not zero.
pub fn closing_lines(
    captured: u64,
    received: u64,
    dropped: u64,
    dropped_by_interface: u64,
) -> String {
    report_line(captured, received, dropped, dropped_by_interface, "\n")
}

/// Line that tcpdump prints on SIGUSR1.
pub fn progress_line(
    captured: u64,
    received: u64,
    dropped: u64,
    dropped_by_interface: u64,
) -> String {
    let counts = report_line(captured, received, dropped, dropped_by_interface, ", ");
    format!("tcpdump: {}\n", counts.trim_end_matches(", "))
}

fn report_line(captured: u64, received: u64, dropped: u64, interface: u64, end: &str) -> String {
    let mut out = packets_text(captured, "captured") + end;
    out += &(packets_text(received, "received by filter") + end);
    out += &(packets_text(dropped, "dropped by kernel") + end);
    if interface > 0 {
        out += &(packets_text(interface, "dropped by interface") + end);
    }
    out
}

/// Line that scripts wait for, printed once packets are really counted.
pub fn listening_line(interface: &str, link: LinkType, snapshot_len: u32) -> String {
    let (name, description) = link.names();
    format!(
        "listening on {interface}, link-type {name} ({description}), snapshot length {snapshot_len} bytes\n"
    )
}

/// Account of all packets that passed the filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketAccount<'a> {
    /// Passed the filter, with or without space in the ring.
    pub received: u64,
    /// Dropped by the kernel for lack of space.
    pub dropped: u64,
    /// Read from the ring.
    pub read: u64,
    /// Completely written to the output.
    pub written: u64,
    /// True if the output is text, so that written packets are printed.
    pub printed: bool,
    /// Files written; 0 if packets are printed instead.
    pub files: u64,
    /// Bytes written to the files.
    pub bytes: u64,
    /// Read, but not written because a write failed.
    pub write_errors: u64,
    /// Reason of the first write error.
    pub write_error: Option<&'a str>,
    /// Passed the filter, but never read.
    pub not_read: u64,
    /// Read after the limit of packets was reached.
    pub over_limit: u64,
    /// Read, but dropped by choice because the writer was behind.
    pub queue_drops: u64,
    /// Lost before the filter, by the interface.
    pub interface_drops: u64,
    /// The capture ended by a fault, so later packets are unknown.
    pub faulted: bool,
}

impl PacketAccount<'_> {
    /// Describes inconsistent counts, if any: each received packet has exactly one fate, and so has
    /// each packet read.
    pub fn describe_mismatch(&self) -> Option<String> {
        let sum = |counts: &[u64]| counts.iter().map(|&n| u128::from(n)).sum::<u128>();
        let mut wrong = Vec::new();
        let mut compare = |name: &str, total: u64, parts: &str, sum: u128| {
            if u128::from(total) != sum {
                wrong.push(format!("{name} {total}, but {parts} make {sum}"));
            }
        };
        compare(
            "received",
            self.received,
            "read, dropped and not read",
            sum(&[self.read, self.dropped, self.not_read]),
        );
        compare(
            "read",
            self.read,
            "written, write errors, queue drops and over limit",
            sum(&[
                self.written,
                self.write_errors,
                self.queue_drops,
                self.over_limit,
            ]),
        );
        (!wrong.is_empty()).then(|| wrong.join("; "))
    }

    /// Line with the additional counts, and a second line if packets could not be written.
    pub fn line(&self) -> String {
        let done = if self.printed { "printed" } else { "written" };
        let mut out = format!("# wirebench: read {}, {done} {}", self.read, self.written);
        if self.files > 0 {
            let s = if self.files == 1 { "" } else { "s" };
            let _ = write!(
                out,
                " in {} file{s} ({})",
                self.files,
                size_text(self.bytes)
            );
        }
        let _ = write!(
            out,
            ", write errors {}, not read {}",
            self.write_errors, self.not_read
        );
        for (count, what) in [
            (self.over_limit, "over limit"),
            (self.queue_drops, "queue drops"),
        ] {
            if count > 0 {
                let _ = write!(out, ", {what} {count}");
            }
        }
        let _ = write!(out, ", interface drops {} - ", self.interface_drops);
        match self.describe_mismatch() {
            None if self.faulted => out += "accounting exact up to the fault\n",
            None => out += "accounting exact\n",
            Some(wrong) => {
                let _ = writeln!(out, "ACCOUNTING MISMATCH: {wrong}");
            }
        }
        if self.write_errors > 0 {
            let reason = self.write_error.unwrap_or("reason unknown");
            let what = packets_text(self.write_errors, "NOT WRITTEN");
            let _ = writeln!(out, "# wirebench: {what}: {reason}");
        }
        out
    }
}

/// Bytes in decimal units, with one digit after the point.
fn size_text(bytes: u64) -> String {
    let (mut value, mut unit) = (bytes as f64, "B");
    for next in ["kB", "MB", "GB", "TB", "PB"] {
        // 999.95 would be shown as 1000.0.
        if value < 999.95 {
            break;
        }
        (value, unit) = (value / 1000.0, next);
    }
    if unit == "B" {
        format!("{bytes} B")
    } else {
        format!("{value:.1} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcpdump_ends_with_three_or_four_lines() {
        assert_eq!(
            closing_lines(1, 0, 4_294_967_297, 0),
            "1 packet captured\n0 packets received by filter\n4294967297 packets dropped by kernel\n"
        );
        assert!(closing_lines(2, 2, 0, 1).ends_with("kernel\n1 packet dropped by interface\n"));
    }

    #[test]
    fn tcpdump_answers_in_one_line() {
        assert_eq!(
            progress_line(0, 1, 2, 0),
            "tcpdump: 0 packets captured, 1 packet received by filter, 2 packets dropped by kernel\n"
        );
        assert!(progress_line(0, 0, 0, 7).ends_with("kernel, 7 packets dropped by interface\n"));
    }

    #[test]
    fn listening_names_the_link_type() {
        assert_eq!(
            listening_line("lo", LinkType::Ethernet, 262_144),
            "listening on lo, link-type EN10MB (Ethernet), snapshot length 262144 bytes\n"
        );
    }

    const EXACT: PacketAccount<'static> = PacketAccount {
        received: 4_212_730,
        dropped: 0,
        read: 4_212_730,
        written: 4_212_730,
        files: 1,
        bytes: 337_018_424,
        write_errors: 0,
        write_error: None,
        not_read: 0,
        over_limit: 0,
        queue_drops: 0,
        interface_drops: 0,
        printed: false,
        faulted: false,
    };

    #[test]
    fn after_a_fault_the_account_ends_there() {
        let account = PacketAccount {
            faulted: true,
            ..EXACT
        };
        let text = account.line();
        assert!(
            text.ends_with(" - accounting exact up to the fault\n"),
            "{text}"
        );
        let wrong = PacketAccount { read: 1, ..account };
        assert!(wrong.line().contains("ACCOUNTING MISMATCH"));
    }

    #[test]
    fn exact_account() {
        assert_eq!(
            EXACT.line(),
            "# wirebench: read 4212730, written 4212730 in 1 file (337.0 MB), write errors 0, \
             not read 0, interface drops 0 - accounting exact\n"
        );
    }

    #[test]
    fn every_fate_counts() {
        let account = PacketAccount {
            received: 2000,
            dropped: 100,
            not_read: 1,
            read: 1899,
            written: 685,
            write_errors: 1000,
            write_error: Some("No space left on device"),
            over_limit: 200,
            queue_drops: 14,
            files: 2,
            bytes: 1_048_074,
            interface_drops: 3,
            printed: false,
            faulted: false,
        };
        assert_eq!(
            account.line(),
            "# wirebench: read 1899, written 685 in 2 files (1.0 MB), write errors 1000, not read 1, \
             over limit 200, queue drops 14, interface drops 3 - accounting exact\n\
             # wirebench: 1000 packets NOT WRITTEN: No space left on device\n"
        );
    }

    #[test]
    fn a_mismatch_is_said() {
        let account = PacketAccount {
            written: 4_212_729,
            not_read: 2,
            ..EXACT
        };
        let text = account.line();
        assert!(
            text.ends_with(
                "ACCOUNTING MISMATCH: received 4212730, but read, dropped and not read make 4212732; \
                 read 4212730, but written, write errors, queue drops and over limit make 4212729\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn sizes_change_unit_before_they_read_thousand() {
        assert_eq!(size_text(0), "0 B");
        assert_eq!(size_text(999), "999 B");
        assert_eq!(size_text(999_949), "999.9 kB");
        assert_eq!(size_text(999_950), "1.0 MB");
        assert_eq!(size_text(u64::MAX), "18446.7 PB");
    }
}
