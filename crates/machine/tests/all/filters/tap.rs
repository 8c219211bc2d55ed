//! Tests filters for taps on a real tap: tagged frames on a veth pair between two namespaces.
#![allow(unsafe_code)] // Packet sockets, which have no safe wrapper for what is needed here.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use wb_machine::expression::compile_for_tap;
use wb_machine::{Namespace, Netlink, in_namespace};

use super::corpus::{Random, packet};
use super::kernel::{attach, descriptor};
use super::verdict;
use crate::common::{pair, privileged};

/// End of a test frame, before its number.
const MARK: [u8; 8] = *b"wb-probe";

/// Raw packet socket on the interface `index`.
fn tap(namespace: &Namespace, index: u32) -> OwnedFd {
    in_namespace(namespace, || {
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: the call creates a socket and accesses no memory.
        let socket = unsafe {
            libc::socket(
                libc::AF_PACKET,
                libc::SOCK_RAW | libc::SOCK_CLOEXEC,
                // Bound below, because nothing may arrive before.
                0,
            )
        };
        let socket = descriptor(socket, "packet socket");
        // SAFETY: all zero is a valid address.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = index.cast_signed();
        // SAFETY: `address` has the given length and outlives the call.
        let result = unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of_val(&address) as libc::socklen_t,
            )
        };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        socket
    })
    .unwrap()
}

fn send(socket: &OwnedFd, frame: &[u8]) {
    // SAFETY: the buffer has the given length.
    let sent = unsafe { libc::send(socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
    assert_eq!(
        usize::try_from(sent),
        Ok(frame.len()),
        "{}",
        io::Error::last_os_error()
    );
}

/// Number of the next test frame; `None` if there is none within `flags`.
fn receive(socket: &OwnedFd, flags: i32) -> Option<usize> {
    loop {
        let mut buffer = [0; 2048];
        // SAFETY: the buffer has the given length.
        let len = unsafe {
            libc::recv(
                socket.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                flags,
            )
        };
        let frame = &buffer[..usize::try_from(len).ok()?];
        let (number, rest) = frame.split_last()?;
        if rest.ends_with(&MARK) {
            return Some(usize::from(*number));
        }
    }
}

#[test]
fn tags_are_seen_on_a_real_tap() {
    if !privileged() {
        return;
    }
    let (a, b) = pair(1);
    let (at_a, at_b) = (Netlink::open(&a.0).unwrap(), Netlink::open(&b.0).unwrap());
    at_a.set_up("a0").unwrap();
    at_b.set_up("b0").unwrap();
    let sender = tap(&a.0, at_a.link("a0").unwrap().index);
    let index = at_b.link("b0").unwrap().index;
    let (mut tagged, mut kept) = (0, 0);
    let mut random = Random(5);
    for text in [
        "vlan",
        "vlan 5",
        "vlan 5 and ip",
        "vlan and tcp port 80",
        "vlan and vlan and ip",
        "vlan or udp port 9",
        "ip",
        "tcp src port 80 or ip6",
        "not vlan",
        "ether[12:4] & 0xffff0fff = 0x81000005",
        "ether[14:2] & 0xfff = 5",
        "ether[16:2] = 0x0800",
        "ether[11] = 1 and ether[10:4] & 0xffff = 0x8100",
        "greater 90",
        "ether[ether[11] + 12] = 0x81",
    ] {
        // The newest socket receives first: once the frame is in `all`, the filter has run.
        let all = tap(&b.0, index);
        let chosen = tap(&b.0, index);
        let timeout = libc::timeval {
            tv_sec: 5,
            tv_usec: 0,
        };
        // SAFETY: `timeout` has the given length and outlives the call.
        let result = unsafe {
            libc::setsockopt(
                all.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVTIMEO,
                (&raw const timeout).cast(),
                size_of_val(&timeout) as libc::socklen_t,
            )
        };
        assert_eq!(result, 0);
        let filter = compile_for_tap(text, 262_144, true).unwrap();
        attach(&chosen, filter.attach.unwrap().instructions()).unwrap();
        for number in 0..40 {
            let mut frame = packet(&mut random);
            frame.extend(MARK);
            frame.push(number as u8);
            send(&sender, &frame);
            assert_eq!(receive(&all, 0), Some(number), "{text}");
            let expected = verdict(&filter.whole, &frame) > 0;
            let got = receive(&chosen, libc::MSG_DONTWAIT);
            assert_eq!(got, expected.then_some(number), "`{text}` on {frame:02x?}");
            tagged += u32::from(matches!(frame[12..14], [0x81 | 0x88, 0 | 0xa8]));
            kept += u32::from(expected);
        }
    }
    assert!(tagged > 100 && kept > 100, "{tagged} tagged, {kept} kept");
}
