//! Capture tools: how to start each one, detect that it listens, and read its counters.

use std::{path::Path, process::Command};

use crate::Lab;

/// Filter for frames of the sender, by destination port (RFC 2544, C.2.6.4).
const FILTER: &str = "udp port 7";

/// Tool that captures frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CaptureTool {
    /// This program.
    Wirebench,
    /// This program over AF_XDP.
    WirebenchXdp,
    /// tcpdump.
    Tcpdump,
    /// dumpcap.
    Dumpcap,
    /// netsniff-ng.
    NetsniffNg,
}

/// Counters that a tool reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) captured: u64,
    /// Packets that passed the filter, dropped or not.
    pub(super) received: u64,
    pub(super) dropped: u64,
}

impl CaptureTool {
    /// Tools to compare with.
    pub const OTHERS: [Self; 3] = [Self::Tcpdump, Self::Dumpcap, Self::NetsniffNg];

    /// Returns the name of the tool.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wirebench => "wirebench",
            Self::WirebenchXdp => "wirebench xdp",
            Self::Tcpdump => "tcpdump",
            Self::Dumpcap => "dumpcap",
            Self::NetsniffNg => "netsniff-ng",
        }
    }

    pub(super) const fn is_ours(self) -> bool {
        matches!(self, Self::Wirebench | Self::WirebenchXdp)
    }

    pub(super) fn is_installed(self) -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut folders = std::env::split_paths(&path);
        self.is_ours() || folders.any(|folder| folder.join(self.name()).is_file())
    }

    pub(super) const fn file_name(self) -> &'static str {
        match self {
            Self::Wirebench | Self::WirebenchXdp | Self::Dumpcap => "trace.pcapng",
            Self::Tcpdump | Self::NetsniffNg => "trace.pcap",
        }
    }

    /// Returns the namespace to start the tool in; wirebench enters the namespace itself.
    pub(super) fn node(self, lab: &Lab) -> Option<String> {
        (!self.is_ours()).then(|| lab.node("b").to_owned())
    }

    /// Returns the command that writes the frames to `file`. `program` is this program.
    pub(super) fn command(self, program: &Path, lab: &Lab, file: &Path) -> Command {
        let mut command = match self {
            Self::Wirebench | Self::WirebenchXdp => {
                let mut command = Command::new(program);
                command.args(["capture", "-q", "-i", &lab.port("b0")]);
                if self == Self::WirebenchXdp {
                    command.arg("--xdp");
                }
                command
            }
            Self::Tcpdump => {
                let mut command = Command::new("tcpdump");
                // Without -Z some builds switch to a user without write permission here.
                command.args(["-Z", "root", "-i", "b0"]);
                command
            }
            Self::Dumpcap => {
                let mut command = Command::new("dumpcap");
                command.args(["-i", "b0", "-f", FILTER]);
                command
            }
            Self::NetsniffNg => {
                let mut command = Command::new("netsniff-ng");
                command.args(["--in", "b0", "--silent", "-f", FILTER, "--out"]);
                command.arg(file);
                return command;
            }
        };
        command.arg("-w").arg(file);
        if self != Self::Dumpcap {
            command.arg(FILTER);
        }
        command
    }

    /// Returns the text that the tool prints once it captures all frames.
    pub(super) const fn listening(self) -> &'static str {
        match self {
            Self::Wirebench | Self::WirebenchXdp | Self::Tcpdump => "listening on ",
            Self::Dumpcap => "File: ",
            Self::NetsniffNg => "Running!",
        }
    }

    /// Returns the counters in the tool's output, or `None` if there are none.
    pub(super) fn counts(self, said: &str) -> Option<Counts> {
        match self {
            Self::Wirebench | Self::WirebenchXdp | Self::Tcpdump => Some(Counts {
                captured: before(said, " captured")?,
                received: before(said, " received by filter")?,
                dropped: before(said, " dropped by kernel")?,
            }),
            Self::Dumpcap => {
                let (_, pair) = said.rsplit_once("Packets received/dropped on interface")?;
                let (_, pair) = pair.split_once("': ")?;
                let (received, dropped) = pair.split_whitespace().next()?.split_once('/')?;
                let (received, dropped): (u64, u64) =
                    (received.parse().ok()?, dropped.parse().ok()?);
                Some(Counts {
                    captured: after(said, "Packets captured: ")?,
                    received: received + dropped,
                    dropped,
                })
            }
            Self::NetsniffNg => {
                let passed = before(said, " passed filter")?;
                let dropped = before(said, " failed filter (out of space)")?;
                let (head, _) = said.split_once(" unread on exit")?;
                let unread: u64 = head.rsplit_once('(')?.1.parse().ok()?;
                Some(Counts {
                    captured: passed.saturating_sub(unread),
                    received: before(said, " incoming")?,
                    dropped,
                })
            }
        }
    }
}

/// Returns the number two words before `what`: `N packets captured`.
fn before(said: &str, what: &str) -> Option<u64> {
    let line = said.lines().rev().find(|line| line.contains(what))?;
    let (words, _) = line.split_once(what)?;
    words.split_whitespace().rev().nth(1)?.parse().ok()
}

fn after(said: &str, what: &str) -> Option<u64> {
    let (_, rest) = said.rsplit_once(what)?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_lines_of_all_are_understood() {
        let counts = |captured, received, dropped| {
            Some(Counts {
                captured,
                received,
                dropped,
            })
        };
        let tcpdump = "tcpdump: listening on b0, link-type EN10MB (Ethernet), snapshot length 262144 bytes\n\
            1 packet captured\n17 packets received by filter\n16 packets dropped by kernel\n";
        assert_eq!(CaptureTool::Tcpdump.counts(tcpdump), counts(1, 17, 16));
        let dumpcap = "Capturing on 'b0'\nFile: /t/x.pcapng\nPackets: 12479 Packets: 20000 Packets captured: 20000\n\
            Packets received/dropped on interface 'b0': 20000/12 (pcap:12/dumpcap:0/flushed:0/ps_ifdrop:0) (99.9%)\n";
        assert_eq!(
            CaptureTool::Dumpcap.counts(dumpcap),
            counts(20_000, 20_012, 12)
        );
        let netsniff = "Running! Hang up with ^C!\n\n       20012  packets incoming (3 unread on exit)\n       \
            20003  packets passed filter\n          12  packets failed filter (out of space)\n      \
            0.0600% packet droprate\n";
        assert_eq!(
            CaptureTool::NetsniffNg.counts(netsniff),
            counts(20_000, 20_012, 12)
        );
        assert_eq!(
            CaptureTool::Tcpdump.counts("tcpdump: b0: no such device\n"),
            None
        );
    }
}
