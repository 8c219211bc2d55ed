//! Bit sets: the flags of omni messages, and the features of the wirebench extension.

/// Declares a bit set with a name for each bit.
macro_rules! bits {
    ($(#[$about:meta])* $set:ident { $($(#[$doc:meta])* $bit:ident = $value:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub struct $set(pub u32);

        impl $set {
            $($(#[$doc])* pub const $bit: Self = Self($value);)*
            /// No bits.
            pub const NONE: Self = Self(0);
            /// All named bits.
            pub const KNOWN: Self = Self(0 $(| $value)*);

            /// Returns true if all bits of `other` are set.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Returns these bits, with those of `other` if `on`.
            #[must_use]
            pub const fn with_if(self, on: bool, other: Self) -> Self {
                if on { Self(self.0 | other.0) } else { self }
            }

            /// Returns these bits without those of `other`.
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }
        }

        impl std::ops::BitOr for $set {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl std::ops::BitOrAssign for $set {
            fn bitor_assign(&mut self, other: Self) {
                self.0 |= other.0;
            }
        }

        impl std::ops::BitAnd for $set {
            type Output = Self;
            fn bitand(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }
        }

        impl std::fmt::Debug for $set {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut set = f.debug_set();
                $(if self.contains(Self::$bit) {
                    set.entry(&format_args!(stringify!($bit)));
                })*
                let rest = self.without(Self::KNOWN);
                if rest != Self::NONE {
                    set.entry(&format_args!("{:#x}", rest.0));
                }
                set.finish()
            }
        }
    };
}

bits! {
    /// Options of an omni request, and those granted by its response. Unknown bits are preserved.
    Flags {
        /// TCP_NODELAY. Granted or refused in the response.
        NO_DELAY = 0x1,
        /// The client sends with sendfile.
        USE_SENDFILE = 0x2,
        /// One connection per transaction.
        CONNECTION_TEST = 0x4,
        /// Measure CPU utilisation. Granted or refused in the response.
        MEASURE_CPU = 0x8,
        /// UDP without checksums.
        CHECKSUM_OFF = 0x10,
        /// Unless set, the socket has SO_DONTROUTE. Because of a collision of netperf's constants, the bit also
        /// requests the name of the congestion control in the results.
        ROUTING_ALLOWED = 0x20,
        /// Name of the interface; without effect since 2.7.0.
        WANT_INTERFACE_NAME = 0x40,
        /// Slot of the interface; without effect since 2.7.0.
        WANT_INTERFACE_SLOT = 0x80,
        /// PCI numbers of the interface; without effect since 2.7.0.
        WANT_INTERFACE_IDS = 0x100,
        /// Driver of the interface; without effect since 2.7.0.
        WANT_DRIVER = 0x200,
        /// TCP Fast Open.
        FAST_OPEN = 0x800,
        /// Open the firewall for the data port; not supported on any system.
        MANAGE_FIREWALL = 0x1000,
        /// Answer datagrams from the address they were sent to (IP_PKTINFO).
        PKT_INFO = 0x2000,
        /// Connect the server's UDP socket.
        CONNECT_UDP = 0x4000,
        /// TCP_DEFER_ACCEPT.
        DEFER_ACCEPT = 0x8000,
        /// Path MTU discovery, since 2.7.1.
        PATH_MTU_DISCOVERY = 0x1_0000,
        /// SO_KEEPALIVE.
        KEEPALIVE = 0x8000_0000,
    }
}

bits! {
    /// Features that a wirebench client requests in addition to netperf's, and those that a wirebench server grants.
    Features {
        /// The client reports the end of the test on the control connection ([`Request::End`](crate::Request::End));
        /// the server stops and sends its results at once.
        EXPLICIT_END = 0x1,
        /// Datagrams carry a sequence tag of 18 bytes; the results have
        /// [`DatagramFigures`](crate::DatagramFigures).
        UDP_TAGGED = 0x2,
        /// UDP_GRO on the server's socket.
        GRO = 0x4,
        /// The server's timer starts with the first connection or datagram, not with its response.
        CLOCK_FROM_FIRST = 0x8,
        /// The server receives without copying to user space (MSG_TRUNC).
        ZERO_COPY_RECEIVE = 0x10,
        /// The data connection uses Multipath TCP.
        MPTCP = 0x20,
    }
}
