//! Arbitrary bytes as a frame: parsers, the tag finder and the neighbour logic must not panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wb_wire::{
    Arp, Echo, Ethernet, IcmpVersion, Ipv4, Ipv6, MacAddr, Neighbour, NeighbourResponder, Tcp, Udp, find_tag,
    headers_end,
};

fuzz_target!(|frame: &[u8]| {
    if let Some((offset, kind)) = find_tag(frame) {
        assert!(offset + kind.len() <= frame.len());
    }
    if let Some(end) = headers_end(frame) {
        assert!(end <= frame.len());
    }
    let _ = Ethernet::parse(frame);
    let _ = Arp::parse(frame);
    let _ = Ipv4::parse(frame);
    let _ = Ipv6::parse(frame);
    let _ = Udp::parse(frame);
    let _ = Tcp::parse(frame);
    let _ = Echo::parse(IcmpVersion::V4, frame);
    let _ = Neighbour::parse(frame);
    let us = NeighbourResponder::new(
        MacAddr([2, 0, 0, 0, 0, 1]),
        ["198.18.1.2".parse().unwrap(), "2001:2::1".parse().unwrap()],
    );
    let mut out = [0; 2048];
    if let Some(len) = us.answer(frame, &mut out) {
        assert!(len >= 60 && len <= out.len());
    }
});
