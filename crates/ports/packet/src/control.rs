//! Low-rate socket alongside the fast path, for answers to neighbours and pings.
//!
//! Passes frames on as they were on the wire. The caller interprets them and sends the answers.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use rustix::time::{ClockId, clock_gettime};
use wb_port::{ChecksumState, Interface, PortError, RxFrame, StampSource, StrippedVlan};

use crate::open::{bind, check, io_error, socket};
use crate::ring::{checksum_state, stripped_vlan};
use crate::rx::sleep;
use crate::watch::InterfaceWatch;
use crate::{filter, sys};

/// Maximum number of frames shown by one call, so that a flood does not block the caller.
const ROUND: usize = 64;
const ADDRESSES: usize = 12;
const TAG: usize = 4;

/// Selection of the frames that a [`ControlSocket`] receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlKind {
    /// ARP, ICMPv6 neighbour solicitations and advertisements.
    Neighbours,
    /// Neighbour frames, and ICMP and ICMPv6 echo requests and replies.
    Presence,
}

/// Receives the few frames that a host must answer to be present on a network, untagged or with one VLAN tag, and sends
/// the answers. Frames sent by this host are not received.
///
/// Multicast is received for any group. Unicast for another address is received only if the port was opened with
/// [`crate::PacketOptions::promiscuous`].
pub struct ControlSocket {
    socket: OwnedFd,
    watch: InterfaceWatch,
    /// The first four bytes are reserved for a restored VLAN tag.
    buffer: Box<[u8]>,
}

impl ControlSocket {
    /// Opens `interface` in the network namespace of the calling thread.
    ///
    /// # Errors
    /// See [`crate::open()`].
    pub fn open(interface: &Interface, kind: ControlKind) -> Result<Self, PortError> {
        let socket = socket(interface)?;
        let fd = socket.as_fd();
        check(interface, fd, &mut Vec::new())?;
        let failed = |e| io_error(interface, "set up the control socket", e);
        sys::set_packet_option(fd, libc::PACKET_AUXDATA, 1).map_err(failed)?;
        sys::set_packet_option(fd, libc::PACKET_IGNORE_OUTGOING, 1).map_err(failed)?;
        // The filter is attached before any frame can arrive: a socket created for protocol 0 receives nothing until it
        // is bound.
        let ops = filter::presence(kind == ControlKind::Presence);
        sys::attach_filter(fd, &ops).map_err(failed)?;
        bind(interface, fd, sys::ETH_P_ALL)?;
        // Solicited-node groups, which this host has not joined.
        sys::add_membership(fd, interface.index, libc::PACKET_MR_ALLMULTI).map_err(failed)?;
        Ok(Self {
            watch: InterfaceWatch::new(&interface.port, interface.index),
            buffer: vec![0; TAG + interface.mtu as usize + 14 + 2 * TAG].into(),
            socket,
        })
    }

    /// Sleeps until a frame arrives, but at most for `timeout`. Passes the waiting frames to `on_frame`, with their
    /// VLAN tag in the bytes, and returns their number.
    ///
    /// # Errors
    /// [`PortError::Gone`] if the interface was removed.
    pub fn receive<F: FnMut(&RxFrame<'_>)>(
        &mut self,
        timeout: Duration,
        mut on_frame: F,
    ) -> Result<usize, PortError> {
        self.watch.check()?;
        let events = sleep(&self.socket, self.watch.at_most(timeout))
            .map_err(|errno| self.watch.error("poll", errno))?;
        if events.contains(PollFlags::ERR) || (events.is_empty() && self.watch.may_be_gone()) {
            self.watch.look(self.socket.as_fd());
        }
        if !events.contains(PollFlags::IN) {
            return Ok(0);
        }
        let mut shown = 0;
        while shown < ROUND {
            let message = match sys::receive(self.socket.as_fd(), &mut self.buffer[TAG..]) {
                Ok(message) => message,
                Err(e) => match Errno::from_io_error(&e).unwrap_or(Errno::IO) {
                    Errno::AGAIN => break,
                    Errno::INTR => continue,
                    Errno::NETDOWN => {
                        self.watch.note_down(self.socket.as_fd());
                        break;
                    }
                    errno => return Err(self.watch.error("recvmsg", errno)),
                },
            };
            let captured = message.len.min(self.buffer.len() - TAG);
            let (vlan, checksum) = match message.aux {
                Some(aux) => (
                    stripped_vlan(aux.tp_status, aux.tp_vlan_tci, aux.tp_vlan_tpid),
                    checksum_state(aux.tp_status),
                ),
                None => (None, ChecksumState::Unknown),
            };
            let bytes = restore_tag(&mut self.buffer[..TAG + captured], vlan);
            on_frame(&RxFrame {
                bytes,
                original_len: (message.len + bytes.len() - captured) as u32,
                stamp_ns: wall_ns(),
                stamp_source: StampSource::UserSpace,
                vlan: None,
                checksum,
            });
            self.watch.saw_frame();
            shown += 1;
        }
        Ok(shown)
    }

    /// Sends a frame (without FCS). Returns false if the device is full and the frame was not sent.
    ///
    /// # Errors
    /// [`PortError::LinkDown`], [`PortError::Gone`]; [`PortError::Io`] for a frame that the device does not accept.
    pub fn send(&mut self, frame: &[u8]) -> Result<bool, PortError> {
        loop {
            match send(&self.socket, frame, SendFlags::DONTWAIT) {
                Ok(_) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => {
                    return self.watch.check_link(self.socket.as_fd()).map(|_| false);
                }
                Err(errno) => {
                    if errno == Errno::NETDOWN {
                        self.watch.note_down(self.socket.as_fd());
                    }
                    return Err(self.watch.error("send", errno));
                }
            }
        }
    }
}

/// The frame that begins `TAG` bytes into `buffer`, with `vlan` restored behind the addresses.
fn restore_tag(buffer: &mut [u8], vlan: Option<StrippedVlan>) -> &[u8] {
    let Some(StrippedVlan { tpid, tci }) = vlan else {
        return &buffer[TAG..];
    };
    if buffer.len() < TAG + ADDRESSES {
        return &buffer[TAG..];
    }
    buffer.copy_within(TAG..TAG + ADDRESSES, 0);
    buffer[ADDRESSES..ADDRESSES + 2].copy_from_slice(&tpid.to_be_bytes());
    buffer[ADDRESSES + 2..ADDRESSES + TAG].copy_from_slice(&tci.to_be_bytes());
    buffer
}

fn wall_ns() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stripped_tag_goes_back_behind_the_addresses() {
        let mut buffer = [0u8; 4 + 16];
        for (i, byte) in buffer[4..].iter_mut().enumerate() {
            *byte = i as u8;
        }
        assert_eq!(restore_tag(&mut buffer, None), (0..16).collect::<Vec<u8>>());
        let vlan = StrippedVlan {
            tpid: 0x88a8,
            tci: 0xe00a,
        };
        let tagged = restore_tag(&mut buffer, Some(vlan));
        let expected: Vec<u8> = (0..12)
            .chain([0x88, 0xa8, 0xe0, 0x0a])
            .chain(12..16)
            .collect();
        assert_eq!(tagged, expected);
    }
}
