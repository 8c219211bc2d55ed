//! State of one connection: 96 bytes, with the fields that every segment uses first.

use wb_http1::Progress;

use crate::addr::Addr;
use crate::rtt::Rtt;
use crate::timer::TimerLink;

/// Tuple from the local point of view; the local address is an index into the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Key {
    pub(crate) remote: Addr,
    pub(crate) local: u32,
    /// Remote port in the upper half, local port in the lower half, as in a received segment.
    pub(crate) ports: u32,
}

impl Key {
    #[inline]
    pub(crate) const fn local_port(&self) -> u16 {
        self.ports as u16
    }

    #[inline]
    pub(crate) const fn remote_port(&self) -> u16 {
        (self.ports >> 16) as u16
    }
}

/// Connection state, RFC 9293 section 3.3.2. `Open` covers ESTABLISHED to LAST-ACK: flags record which FINs were sent,
/// acknowledged and received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ConnectionState {
    Free,
    SynSent,
    SynReceived,
    Open,
    TimeWait,
    Udp,
}

/// Bits of [`Conn::flags`].
pub(crate) mod flag {
    /// Send a SYN or SYN-ACK (possibly again).
    pub(crate) const SEND_SYN: u16 = 1;
    /// Send an acknowledgement at the next output.
    pub(crate) const SEND_ACK: u16 = 1 << 1;
    /// Retransmit the oldest segment.
    pub(crate) const SEND_AGAIN: u16 = 1 << 2;
    /// Send a RST, then remove the connection.
    pub(crate) const SEND_RST: u16 = 1 << 3;
    /// An acknowledgement is due but may wait until the end of the batch.
    pub(crate) const ACK_LATER: u16 = 1 << 4;
    /// The send queue is final: a FIN follows the data.
    pub(crate) const FIN_QUEUED: u16 = 1 << 5;
    pub(crate) const FIN_SENT: u16 = 1 << 6;
    pub(crate) const FIN_RECEIVED: u16 = 1 << 7;
    /// `next_seq` went back to `oldest`, so acknowledgements may be above it.
    pub(crate) const REWOUND: u16 = 1 << 8;
    /// In fast recovery.
    pub(crate) const RECOVERY: u16 = 1 << 9;
    /// Requests are waiting for answers.
    pub(crate) const WAITING: u16 = 1 << 10;
    /// Client: the first byte of the answer arrived. Server: an answer was sent.
    pub(crate) const ANSWERED: u16 = 1 << 11;
    /// The client pauses until its next request.
    pub(crate) const PAUSED: u16 = 1 << 12;
    /// Send a probe of a zero window.
    pub(crate) const SEND_PROBE: u16 = 1 << 13;
    /// All expected data was exchanged: the end is a success.
    pub(crate) const DONE: u16 = 1 << 14;
    /// The connection is in the machine's queue.
    pub(crate) const QUEUED: u16 = 1 << 15;
}

/// Bits of [`Conn::packed`].
pub(crate) mod pack {
    /// Both ends offered SACK.
    pub(crate) const SACK: u8 = 0x10;
    /// The data in flight was sent once, at `stamp`, when nothing else was in flight.
    pub(crate) const TIMING: u8 = 0x20;
    /// The peer offered a window scale.
    pub(crate) const SCALE: u8 = 0x40;
    /// The local FIN was sent before the peer's arrived.
    pub(crate) const CLOSED_FIRST: u8 = 0x80;
}

/// Value of `side_record` without a side record.
pub(crate) const NO_SIDE_RECORD: u16 = u16::MAX;
/// Unlimited number of requests.
pub(crate) const ENDLESS: u16 = u16::MAX;

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Conn {
    pub(crate) key: Key,
    pub(crate) link: TimerLink,
    /// Oldest unacknowledged sequence number (SND.UNA in RFC 9293).
    pub(crate) oldest: u32,
    /// Next sequence number to send (SND.NXT).
    pub(crate) next_seq: u32,
    /// Next sequence number expected (RCV.NXT).
    pub(crate) expected: u32,
    /// Message bytes from `oldest` on: unacknowledged and unsent.
    pub(crate) queued_len: u32,
    /// Window of the peer, unscaled.
    pub(crate) window: u16,
    pub(crate) state: ConnectionState,
    /// Window scale of the peer (low 4 bits), and bits of [`pack`].
    pub(crate) packed: u8,
    /// Start of the current phase in ns: SYN, last request or close. During a pause: its end.
    pub(crate) stamp: u64,
    pub(crate) progress: Progress,
    pub(crate) rtt: Rtt,
    pub(crate) flags: u16,
    pub(crate) mss: u16,
    /// Congestion window and slow start threshold, in segments.
    pub(crate) cwnd: u16,
    pub(crate) threshold: u16,
    /// Client: lateness of the last request, [packed](pack_ns), or the ticket of an idle connection. Server: index of
    /// the next hop.
    pub(crate) lateness: u32,
    /// Requests still to be sent; [`ENDLESS`] is never decremented, so the number per connection is unlimited.
    pub(crate) requests: u16,
    /// Requests without an answer.
    pub(crate) outstanding: u16,
    /// Consecutive retransmission timeouts without progress.
    pub(crate) expiries: u8,
    /// Index of the side record, which only few connections need.
    pub(crate) side_record: u16,
}

const _: () = assert!(size_of::<Conn>() == 96);

impl Conn {
    pub(crate) const FREE: Self = Self {
        key: Key {
            remote: Addr::v4(0),
            local: 0,
            ports: 0,
        },
        link: TimerLink::IDLE,
        oldest: 0,
        next_seq: 0,
        expected: 0,
        queued_len: 0,
        window: 0,
        state: ConnectionState::Free,
        packed: 0,
        stamp: 0,
        progress: Progress::NEW,
        rtt: Rtt::UNKNOWN,
        flags: 0,
        mss: 536,
        cwnd: 1,
        threshold: u16::MAX,
        lateness: 0,
        requests: 0,
        outstanding: 0,
        expiries: 0,
        side_record: NO_SIDE_RECORD,
    };

    #[inline]
    pub(crate) const fn has(&self, flags: u16) -> bool {
        self.flags & flags != 0
    }

    #[inline]
    pub(crate) const fn set(&mut self, flags: u16) {
        self.flags |= flags;
    }

    #[inline]
    pub(crate) const fn clear(&mut self, flags: u16) {
        self.flags &= !flags;
    }

    #[inline]
    pub(crate) const fn is_queued(&self) -> bool {
        self.has(flag::QUEUED)
    }

    #[inline]
    pub(crate) const fn set_queued(&mut self, queued: bool) {
        if queued {
            self.set(flag::QUEUED);
        } else {
            self.clear(flag::QUEUED);
        }
    }

    /// Sequence numbers in flight, including SYN and FIN.
    #[inline]
    pub(crate) const fn in_flight(&self) -> u32 {
        self.next_seq.wrapping_sub(self.oldest)
    }

    /// Message bytes in flight.
    #[inline]
    pub(crate) const fn data_in_flight(&self) -> u32 {
        self.in_flight()
            .saturating_sub(self.has(flag::FIN_SENT) as u32)
    }

    /// Message bytes not sent yet.
    #[inline]
    pub(crate) const fn unsent(&self) -> u32 {
        self.queued_len.saturating_sub(self.data_in_flight())
    }

    /// Window of the peer in bytes.
    #[inline]
    pub(crate) const fn peer_window(&self) -> u32 {
        (self.window as u32) << (self.packed & 0xf)
    }

    /// Returns true if a bit of [`pack`] is set.
    #[inline]
    pub(crate) const fn is(&self, bit: u8) -> bool {
        self.packed & bit != 0
    }

    /// Returns true if both FINs were sent and the local one is acknowledged.
    #[inline]
    pub(crate) const fn is_over(&self) -> bool {
        self.has(flag::FIN_SENT) && self.has(flag::FIN_RECEIVED) && self.in_flight() == 0
    }

    #[inline]
    pub(crate) const fn is_closing(&self) -> bool {
        self.has(flag::FIN_QUEUED)
    }
}

/// Flag for times in units of 1,024 ns.
const COARSE: u32 = 1 << 31;

/// Packs a time into 32 bits: exact up to 2.1 s, then in steps of 1,024 ns up to 36 minutes.
#[inline]
pub(crate) fn pack_ns(ns: u64) -> u32 {
    if ns < u64::from(COARSE) {
        ns as u32
    } else {
        COARSE | (ns >> 10).min(u64::from(COARSE - 1)) as u32
    }
}

/// Unpacks a time, in ns.
#[inline]
pub(crate) const fn unpack_ns(packed: u32) -> u64 {
    if packed < COARSE {
        packed as u64
    } else {
        ((packed & (COARSE - 1)) as u64) << 10
    }
}

/// Returns true if sequence number `a` is before `b`: RFC 9293 section 3.4.
#[inline]
pub(crate) const fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_times_are_packed_with_little_loss() {
        for ns in [0, 1, (1 << 31) - 1] {
            assert_eq!(unpack_ns(pack_ns(ns)), ns);
        }
        for ns in [1 << 31, 4_300_000_000, 60_000_000_000, 1_800_000_000_000] {
            let again = unpack_ns(pack_ns(ns));
            assert!(again <= ns && ns - again < 1024, "{ns} {again}");
        }
        assert_eq!(unpack_ns(pack_ns(u64::MAX)), (u64::from(COARSE) - 1) << 10);
    }
}
