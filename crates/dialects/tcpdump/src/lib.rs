//! tcpdump's dialect: the line for a packet ([`mod@print`]), and the messages about a
//! capture as a whole ([`closing`]).
//!
//! Only translates: opens no file and no socket, reads no clock, resolves no name (always as with
//! `-n`). Dialect: tcpdump 4.99.
//!
//! ```
//! use wb_tcpdump::print::{CapturedPacket, LinkType, PacketPrinter, PrintOptions, TimeForm};
//!
//! let frame = wb_wire::Stack::udp4([10, 77, 0, 1], [10, 77, 0, 2], 9, 9).build(60);
//! let mut printer = PacketPrinter::new(PrintOptions { time: TimeForm::Unix, ..PrintOptions::default() });
//! let mut text = String::new();
//! printer.line(&mut text, &CapturedPacket::new(1_700_000_000_123_456_789, &frame, LinkType::Ethernet));
//! assert_eq!(text, "1700000000.123456 IP 10.77.0.1.9 > 10.77.0.2.9: UDP, length 18\n");
//! ```
//!
//! # Differences from tcpdump
//!
//! - Payloads that tcpdump recognises by their UDP or TCP port (DNS, NTP, HTTP and so on) are not
//!   dissected: the line is that of an unknown port. The only exception is VXLAN (UDP 4789).
//!   A tester's frames often use such ports with unrelated payloads, and tcpdump then prints
//!   nonsense.
//! - IP protocols other than the following are printed like unknown ones in tcpdump: ` ip-proto-89 64`.
//!   Dissected protocols are TCP, UDP, ICMP, ICMPv6, IGMP, GRE, ESP and IP in IP; for SCTP only the ports.
//! - The same applies to Ethernet types. Dissected types are IPv4, IPv6, ARP, RARP, MPLS, LLDP (one line, also
//!   with `-v`), 802.1Q and 802.1ad. Of 802.3 frames only STP is named; the others are printed as bytes.
//! - IGMP: kind and group, without timers and sources. ICMPv6: errors, echo and neighbour discovery; for messages of
//!   routers and multicast listeners only the first line. GRE: version 0 without source routes.
//! - Not dissected are the multi-part extensions of ICMP and the multi-path option of TCP.
//! - Link types other than Ethernet, raw IP and Linux cooked are not printed.
//! - If the capture ends within IPv4 options, `-v` prints less than tcpdump does. After a cut
//!   within a field of some ICMP messages, `-x` may begin at the link header where tcpdump's does not,
//!   or vice versa.
//! - For SCTP and DCCP, the chunks and fields after the ports are not printed.
//! - Nested headers are followed to a depth of 32; tcpdump follows them without limit.
//! - At most [`print::PacketPrinter::CONNECTIONS`] TCP connections are remembered. Then all are dropped,
//!   and the next segment of each shows absolute numbers again.

#![forbid(unsafe_code)]

pub mod closing;
mod dissect;
mod dump;
pub mod fuzz;
pub mod print;
mod stamp;
