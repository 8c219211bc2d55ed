//! Local port of the next connection, in tests that connect for each transaction.
//!
//! The order is netperf's: start at a random port of the range, go up by one for each connection, wrap around after the
//! last, and skip the server's port. On a single host, using the server's port would connect a socket to itself.

use wb_model::units::PortRange;

/// netperf's range.
pub(super) const USUAL: PortRange = PortRange {
    first: 5000,
    last: 65535,
};

/// Yields the ports of a range in turn, without end.
#[derive(Clone, Debug)]
pub(super) struct PortWalk {
    range: PortRange,
    /// Port that is never used.
    skip: Option<u16>,
    next: u32,
}

impl PortWalk {
    /// Starts at a port selected by `random`.
    pub(super) fn new(range: PortRange, random: u64) -> Self {
        Self {
            range,
            skip: None,
            // The remainder is below 65536.
            next: (random % u64::from(range.count())) as u32,
        }
    }

    /// Skips a port, unless it is the only one.
    pub(super) fn leave_out(&mut self, port: u16) {
        let inside = (self.range.first..=self.range.last).contains(&port);
        self.skip = (inside && self.range.count() > 1).then_some(port);
    }

    /// Number of ports before one repeats.
    pub(super) fn len(&self) -> u32 {
        self.range.count() - u32::from(self.skip.is_some())
    }

    /// The next port.
    pub(super) fn next_port(&mut self) -> u16 {
        loop {
            let port = self.range.nth(self.next);
            self.next = (self.next + 1) % self.range.count();
            if Some(port) != self.skip {
                return port;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_up_wraps_and_skips_the_servers_port() {
        let range = PortRange {
            first: 10,
            last: 14,
        };
        let mut walk = PortWalk::new(range, 3);
        walk.leave_out(12);
        let ports: Vec<u16> = (0..9).map(|_| walk.next_port()).collect();
        assert_eq!(ports, [13, 14, 10, 11, 13, 14, 10, 11, 13]);
        assert_eq!(walk.len(), 4);
        walk.leave_out(99);
        assert_eq!(walk.len(), 5);
    }

    #[test]
    fn any_random_number_begins_in_the_range() {
        for random in [0, 1, 60_535, 60_536, u64::MAX] {
            let mut walk = PortWalk::new(USUAL, random);
            assert!((USUAL.first..=USUAL.last).contains(&walk.next_port()));
            assert_eq!(walk.len(), 60_536);
        }
    }

    #[test]
    fn the_only_port_is_never_left_out() {
        let mut only = PortWalk::new(PortRange::single(8), 7);
        only.leave_out(8);
        assert_eq!((only.next_port(), only.next_port(), only.len()), (8, 8, 1));
    }
}
