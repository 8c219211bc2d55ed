//! Carrier state of an interface.
#![allow(unsafe_code)] // SIOCETHTOOL, which rustix does not know.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use wb_port::{Interface, PortError};

use crate::port_errors;

/// ethtool.h: `ETHTOOL_GLINK`.
const ETHTOOL_GLINK: u32 = 0xa;

/// ethtool.h: `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// A device that resets itself is back after one to six seconds, depending on what it negotiates.
pub(crate) const CARRIER_TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);

/// Waits up to [`CARRIER_TIMEOUT`] for a carrier. Returns true if there is one.
pub(crate) fn comes_back(may_carry: impl Fn() -> bool, mut sleep: impl FnMut(Duration)) -> bool {
    let mut waited = Duration::ZERO;
    while !may_carry() {
        if waited >= CARRIER_TIMEOUT {
            return false;
        }
        sleep(PAUSE);
        waited += PAUSE;
    }
    true
}

/// Reads the carrier state of one interface, from any thread.
pub(crate) struct CarrierReader {
    /// AF_XDP sockets do not support interface requests. Any other socket does, and stays in the network namespace in
    /// which it was created.
    socket: UnixDatagram,
    name: [libc::c_char; libc::IFNAMSIZ],
}

impl CarrierReader {
    pub(crate) fn new(interface: &Interface) -> Result<Self, PortError> {
        let socket = UnixDatagram::unbound().map_err(|cause| {
            port_errors::io(interface, "open a socket for link requests", cause)
        })?;
        let mut name = [0; libc::IFNAMSIZ];
        // One byte stays 0 as the terminator.
        for (to, from) in name[..libc::IFNAMSIZ - 1]
            .iter_mut()
            .zip(interface.name.bytes())
        {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        Ok(Self { socket, name })
    }

    /// Returns false only if the device reports that it has no carrier.
    ///
    /// The flag `IFF_RUNNING` may lag by up to a second.
    pub(crate) fn may_carry(&self) -> bool {
        let mut question = EthtoolValue {
            command: ETHTOOL_GLINK,
            data: 0,
        };
        // SAFETY: the struct has integers, arrays of integers and a pointer, for which zero is valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_name = self.name;
        request.ifr_ifru.ifru_data = (&raw mut question).cast();
        // SAFETY: the kernel reads the request and answers into `question`; both outlive the call.
        let result =
            unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
        result != 0 || question.data != 0
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_link_is_waited_for_and_not_for_ever() {
        for (down_for, comes) in [(0, true), (60, true), (100_000, false)] {
            let (asked, slept) = (Cell::new(0), Cell::new(Duration::ZERO));
            let may_carry = || asked.replace(asked.get() + 1) >= down_for;
            let came = comes_back(may_carry, |time| slept.set(slept.get() + time));
            assert_eq!(came, comes, "{down_for}");
            let wanted = (PAUSE * down_for).min(CARRIER_TIMEOUT);
            assert_eq!(slept.get(), wanted, "{down_for}");
        }
    }
}
