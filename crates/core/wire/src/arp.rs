//! ARP for IPv4 over Ethernet, RFC 826.

use std::net::Ipv4Addr;

use zerocopy::byteorder::{BE, U16};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{MacAddr, ethertype};

/// Message as on the wire.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ArpView {
    /// 1 for Ethernet.
    pub hardware: U16<BE>,
    /// 0x0800 for IPv4.
    pub protocol: U16<BE>,
    /// 6 for Ethernet.
    pub hardware_len: u8,
    /// 4 for IPv4.
    pub protocol_len: u8,
    /// 1 request, 2 reply.
    pub operation: U16<BE>,
    /// Ethernet address of the sender.
    pub sender_mac: [u8; 6],
    /// IP address of the sender.
    pub sender_ip: [u8; 4],
    /// Ethernet address of the target.
    pub target_mac: [u8; 6],
    /// IP address of the target.
    pub target_ip: [u8; 4],
}

view!(ArpView, 28);

/// Operation of an ARP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArpOperation {
    /// Asks for the owner of the target address.
    Request,
    /// Announces the owner of the sender address.
    Reply,
}

/// An ARP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// Request or reply.
    pub operation: ArpOperation,
    /// Ethernet address of the sender.
    pub sender_mac: MacAddr,
    /// IP address of the sender.
    pub sender_ip: Ipv4Addr,
    /// Ethernet address of the target; zero in a request.
    pub target_mac: MacAddr,
    /// IP address of the target.
    pub target_ip: Ipv4Addr,
}

impl Arp {
    /// Encodes the message.
    pub fn emit(&self) -> [u8; ArpView::LEN] {
        let operation: u16 = match self.operation {
            ArpOperation::Request => 1,
            ArpOperation::Reply => 2,
        };
        ArpView {
            hardware: 1.into(),
            protocol: ethertype::IPV4.into(),
            hardware_len: 6,
            protocol_len: 4,
            operation: operation.into(),
            sender_mac: self.sender_mac.0,
            sender_ip: self.sender_ip.octets(),
            target_mac: self.target_mac.0,
            target_ip: self.target_ip.octets(),
        }
        .to_bytes()
    }

    /// Parses the message and returns the padding behind it. None unless it is a request or reply for IPv4 over
    /// Ethernet.
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (view, rest) = ArpView::split_from(bytes)?;
        let kind = (
            view.hardware.get(),
            view.protocol.get(),
            view.hardware_len,
            view.protocol_len,
        );
        if kind != (1, ethertype::IPV4, 6, 4) {
            return None;
        }
        let operation = match view.operation.get() {
            1 => ArpOperation::Request,
            2 => ArpOperation::Reply,
            _ => return None,
        };
        let arp = Self {
            operation,
            sender_mac: MacAddr(view.sender_mac),
            sender_ip: view.sender_ip.into(),
            target_mac: MacAddr(view.target_mac),
            target_ip: view.target_ip.into(),
        };
        Some((arp, rest))
    }
}
