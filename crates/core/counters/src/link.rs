//! Counters of an interface, and the sums of them in `/proc/net/dev`.

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident),* $(,)?) => {
        /// Counters of an interface: if_link.h, `struct rtnl_link_stats64`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct LinkCounters {
            $($(#[$doc])* pub $field: u64,)*
            /// Number of carrier losses (IFLA_CARRIER_DOWN_COUNT).
            pub carrier_downs: u64,
        }

        impl LinkCounters {
            /// Returns every counter with its name, in the kernel's order.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field),)* ("carrier_downs", self.carrier_downs)].into_iter()
            }

            /// Returns the increase of each counter since `earlier`. A counter that was reset in between
            /// yields its current value.
            #[must_use]
            pub fn since(&self, earlier: &Self) -> Self {
                self.map(earlier, |_, old, new| Some(new.checked_sub(old).unwrap_or(new))).unwrap_or_default()
            }

            /// Combines each counter's name, its value in `earlier` and its value here. Returns `None` if `f` does.
            pub fn map(&self, earlier: &Self, mut f: impl FnMut(&'static str, u64, u64) -> Option<u64>) -> Option<Self> {
                Some(Self {
                    $($field: f(stringify!($field), earlier.$field, self.$field)?,)*
                    carrier_downs: f("carrier_downs", earlier.carrier_downs, self.carrier_downs)?,
                })
            }
        }
    };
}

counters! {
    /// Good packets received.
    rx_packets,
    /// Packets sent.
    tx_packets,
    /// Bytes of good packets received, without FCS on most devices.
    rx_bytes,
    /// Bytes sent.
    tx_bytes,
    /// Bad packets received, all kinds.
    rx_errors,
    /// Packets that could not be sent, all kinds.
    tx_errors,
    /// Packets received and not processed, for lack of memory or of a protocol handler.
    rx_dropped,
    /// Packets dropped on their way out.
    tx_dropped,
    /// Multicast packets received.
    multicast,
    /// Collisions while sending.
    collisions,
    /// Packets received with an impossible length.
    rx_length_errors,
    /// Packets lost because the receiver was overrun.
    rx_over_errors,
    /// Packets received with a wrong FCS.
    rx_crc_errors,
    /// Packets received misaligned.
    rx_frame_errors,
    /// Packets lost in the receiver's FIFO.
    rx_fifo_errors,
    /// Packets lost because the host provided no buffers in time.
    rx_missed_errors,
    /// Transmissions aborted.
    tx_aborted_errors,
    /// Transmissions failed for lack of carrier.
    tx_carrier_errors,
    /// Packets lost in the sender's FIFO.
    tx_fifo_errors,
    /// Transmissions failed because of a heartbeat error (old half-duplex devices).
    tx_heartbeat_errors,
    /// Transmissions failed because of a late collision.
    tx_window_errors,
    /// Compressed packets received.
    rx_compressed,
    /// Compressed packets sent.
    tx_compressed,
    /// Packets received on an inactive member of a bond or bridge.
    rx_nohandler,
    /// Packets dropped because they were addressed to another host.
    rx_otherhost_dropped,
}

/// Counters that indicate no trouble. All others are reported by name once they increase.
const ORDINARY: [&str; 7] = [
    "rx_packets",
    "tx_packets",
    "rx_bytes",
    "tx_bytes",
    "multicast",
    "rx_compressed",
    "tx_compressed",
];

impl LinkCounters {
    /// Returns the names and values of the counters that indicate a problem.
    pub fn troubles(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.named()
            .filter(|(name, n)| *n > 0 && !ORDINARY.contains(name))
    }

    /// Returns the increase of each counter since `earlier`, or `None` if the counters were reset in between or belong
    /// to another interface. `seconds` and the speed decide whether a 32-bit byte counter may have wrapped: once, and
    /// no sooner than the link allows.
    #[must_use]
    pub fn risen(&self, earlier: &Self, seconds: f64, speed_bps: Option<u64>) -> Option<Self> {
        // A counter wrapped only if its sister, the counter that rises with it, rose too.
        let rose = |name: &str| match name {
            "rx_bytes" => self.rx_packets != earlier.rx_packets,
            "tx_bytes" => self.tx_packets != earlier.tx_packets,
            _ if name.starts_with("tx") => self.tx_bytes != earlier.tx_bytes,
            _ => self.rx_bytes != earlier.rx_bytes,
        };
        self.map(earlier, |name, old, new| {
            super::rise(old, new, rose(name)).or_else(|| {
                let bytes = matches!(name, "rx_bytes" | "tx_bytes");
                narrow(old, new)
                    .filter(|n| bytes && rose(name) && could_carry(*n, seconds, speed_bps))
            })
        })
    }

    /// Returns the sum of both, without overflow.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.map(other, |_, a, b| Some(a.saturating_add(b)))
            .unwrap_or_default()
    }

    /// Returns the columns of `/proc/net/dev`, which sar shows too.
    #[must_use]
    pub fn folded(&self) -> Folded {
        Folded {
            rx_bytes: self.rx_bytes,
            rx_packets: self.rx_packets,
            rx_errors: self.rx_errors,
            rx_drop: self.rx_dropped + self.rx_missed_errors,
            rx_fifo: self.rx_fifo_errors,
            rx_frame: self.rx_length_errors
                + self.rx_over_errors
                + self.rx_crc_errors
                + self.rx_frame_errors,
            rx_compressed: self.rx_compressed,
            multicast: self.multicast,
            tx_bytes: self.tx_bytes,
            tx_packets: self.tx_packets,
            tx_errors: self.tx_errors,
            tx_drop: self.tx_dropped,
            tx_fifo: self.tx_fifo_errors,
            collisions: self.collisions,
            tx_carrier: self.tx_carrier_errors
                + self.tx_aborted_errors
                + self.tx_window_errors
                + self.tx_heartbeat_errors,
            tx_compressed: self.tx_compressed,
        }
    }
}

/// Increase of a 32-bit counter from the upper half of its range, if it wrapped once.
fn narrow(old: u64, new: u64) -> Option<u64> {
    let (old, new) = (u32::try_from(old).ok()?, u32::try_from(new).ok()?);
    (old >= 1 << 31).then(|| super::rise_of_32_bits(old, new))
}

/// Returns true if a link of that speed can carry that many bytes in that time, with a margin of 5 %.
#[allow(clippy::cast_precision_loss)]
fn could_carry(bytes: u64, seconds: f64, speed_bps: Option<u64>) -> bool {
    speed_bps.is_some_and(|speed| bytes as f64 * 8.0 <= speed as f64 * seconds * 1.05)
}

/// Line of `/proc/net/dev`, which sums several counters in one column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Folded {
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets received.
    pub rx_packets: u64,
    /// Bad packets received.
    pub rx_errors: u64,
    /// Packets dropped or missed.
    pub rx_drop: u64,
    /// Packets lost in the receiver's FIFO.
    pub rx_fifo: u64,
    /// Packets with a wrong length, FCS or alignment, or lost to an overrun.
    pub rx_frame: u64,
    /// Compressed packets received.
    pub rx_compressed: u64,
    /// Multicast packets received.
    pub multicast: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Packets that could not be sent.
    pub tx_errors: u64,
    /// Packets dropped on their way out.
    pub tx_drop: u64,
    /// Packets lost in the sender's FIFO.
    pub tx_fifo: u64,
    /// Collisions.
    pub collisions: u64,
    /// Transmissions without carrier, aborted, with a late collision or with a heartbeat error.
    pub tx_carrier: u64,
    /// Compressed packets sent.
    pub tx_compressed: u64,
}

impl Folded {
    /// Parses a line of `/proc/net/dev` into interface name and counters. Returns `None` for other lines, such as
    /// headers.
    #[must_use]
    pub fn parse(line: &str) -> Option<(&str, Self)> {
        let (name, rest) = line.rsplit_once(':')?;
        let mut numbers = [0; 16];
        let mut words = rest.split_ascii_whitespace();
        for number in &mut numbers {
            *number = words.next()?.parse().ok()?;
        }
        let [
            rx_bytes,
            rx_packets,
            rx_errors,
            rx_drop,
            rx_fifo,
            rx_frame,
            rx_compressed,
            multicast,
            tx_bytes,
            tx_packets,
            tx_errors,
            tx_drop,
            tx_fifo,
            collisions,
            tx_carrier,
            tx_compressed,
        ] = numbers;
        let folded = Self {
            rx_bytes,
            rx_packets,
            rx_errors,
            rx_drop,
            rx_fifo,
            rx_frame,
            rx_compressed,
            multicast,
            tx_bytes,
            tx_packets,
            tx_errors,
            tx_drop,
            tx_fifo,
            collisions,
            tx_carrier,
            tx_compressed,
        };
        Some((name.trim(), folded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_proc_net_dev() {
        let line = "  wbb: 1629200698 2800009 0 0 0 0 0 0 5174 36 0 0 0 0 0 0";
        let (name, folded) = Folded::parse(line).unwrap();
        assert_eq!(name, "wbb");
        assert_eq!(
            (folded.rx_bytes, folded.rx_packets),
            (1_629_200_698, 2_800_009)
        );
        assert_eq!((folded.tx_bytes, folded.tx_packets), (5_174, 36));
        assert_eq!(Folded::parse("Inter-|   Receive  |  Transmit"), None);
        assert_eq!(
            Folded::parse("eth0:1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16")
                .unwrap()
                .0,
            "eth0:1"
        );
    }

    #[test]
    fn folded_columns_are_sums() {
        let counters = LinkCounters {
            rx_dropped: 5,
            rx_missed_errors: 7,
            rx_crc_errors: 1,
            rx_length_errors: 2,
            rx_over_errors: 3,
            rx_frame_errors: 4,
            ..LinkCounters::default()
        };
        let folded = counters.folded();
        assert_eq!((folded.rx_drop, folded.rx_frame), (12, 10));
        assert_eq!(counters.troubles().count(), 6);
    }

    #[test]
    fn counters_since_survive_a_reset() {
        let of = |rx_packets, tx_packets| LinkCounters {
            rx_packets,
            tx_packets,
            ..LinkCounters::default()
        };
        let between = of(12, 3).since(&of(10, 10));
        assert_eq!((between.rx_packets, between.tx_packets), (2, 3));
    }

    #[test]
    fn a_reset_gives_nothing_and_a_wrap_its_rise() {
        let of = |rx_packets, rx_bytes| LinkCounters {
            rx_packets,
            rx_bytes,
            ..LinkCounters::default()
        };
        assert_eq!(of(10, 5).risen(&of(1000, 2), 1.0, None), None);
        let wrapped = of(12, 50).risen(&of(10, u64::MAX - 99), 1.0, None).unwrap();
        assert_eq!((wrapped.rx_packets, wrapped.rx_bytes), (2, 150));
        // 32 bits: 1500 bytes are possible at 1 Gb/s within a second, 2 GB are not.
        let near = u64::from(u32::MAX) - 499;
        let narrow = |new, speed| of(12, new).risen(&of(10, near), 1.0, speed);
        assert_eq!(narrow(1000, Some(1_000_000_000)).unwrap().rx_bytes, 1500);
        assert_eq!(narrow(1000, None), None);
        assert_eq!(narrow(2_000_000_000, Some(1_000_000_000)), None);
    }
}
