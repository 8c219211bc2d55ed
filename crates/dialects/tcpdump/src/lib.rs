//! The language of tcpdump: the line it prints for a packet ([`mod@print`]), and what it says of a
//! capture as a whole ([`closing`]).
//!
//! Only translates: opens no file and no socket, reads no clock, resolves no name (always as with
//! `-n`). Dialect: tcpdump 4.99.
//!
//! ```
//! use wb_tcpdump::print::{LinkType, Options, Packet, Printer, TimeForm};
//!
//! let frame = wb_wire::Stack::udp4([10, 77, 0, 1], [10, 77, 0, 2], 9, 9).build(60);
//! let mut printer = Printer::new(Options { time: TimeForm::Unix, ..Options::default() });
//! let mut text = String::new();
//! printer.line(&mut text, &Packet::new(1_700_000_000_123_456_789, &frame, LinkType::Ethernet));
//! assert_eq!(text, "1700000000.123456 IP 10.77.0.1.9 > 10.77.0.2.9: UDP, length 18\n");
//! ```
//!
//! # What is printed otherwise, and why
//!
//! - Payloads that tcpdump knows by their UDP or TCP port (DNS, NTP, HTTP and so on) are not taken
//!   apart: the line is the one of a port that tcpdump does not know. Only VXLAN (UDP 4789) is.
//!   A tester's frames often use such ports with payloads of their own, and tcpdump then prints
//!   nonsense.
//! - Protocols over IP that are not named below are printed as tcpdump prints one that it does not
//!   know: ` ip-proto-89 64`. Taken apart are TCP, UDP, ICMP, ICMPv6, IGMP, GRE, ESP, AH and
//!   IP in IP; of SCTP the ports.
//! - Ethernet types likewise: taken apart are IPv4, IPv6, ARP, RARP, MPLS, LLDP (its one line, also
//!   with `-v`), 802.1Q and 802.1ad, 802.2 with SNAP, STP and RSTP (of MSTP the first line). IPX, ISO and the
//!   Cisco protocols over 802.2 are printed as unknown.
//! - Of ICMP the multi-part extensions, of ICMPv6 router renumbering, node information, RPL,
//!   mobility and mtrace, of IGMP DVMRP and PIM, of TCP the multi-path option, and GRE version 1
//!   beyond its header are not taken apart.
//! - Where the capture ends within IPv4 options, `-v` prints less than tcpdump does; after a cut
//!   within a field of some ICMP messages `-x` begins at the link header where tcpdump's does not,
//!   or the other way round.
//! - Of SCTP and DCCP the chunks and fields behind the ports are not printed.
//! - Headers inside headers are followed 32 deep; tcpdump follows them without bound.
//! - TCP connections are remembered up to [`print::Printer::CONNECTIONS`]; then all are forgotten,
//!   and the next segment of each shows absolute numbers once more.

#![forbid(unsafe_code)]

pub mod closing;
mod dissect;
mod dump;
pub mod fuzz;
pub mod print;
mod stamp;
