//! Flags of a device: their bits, their names, and the order in which they are printed.

/// Flag of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag {
    /// Bit in `Result: OK: flags=0x…`.
    pub bit: u32,
    /// Name.
    pub name: &'static str,
    /// Alternative names.
    pub aliases: &'static [&'static str],
    /// Description.
    pub doc: &'static str,
}

/// Flags of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Flags(pub u32);

macro_rules! flags {
    ($($constant:ident = $bit:literal, $name:literal $(or $alias:literal)?, $doc:literal;)*) => {
        impl Flags {
            $(#[doc = $doc] pub const $constant: u32 = $bit;)*
        }

        /// All flags in the order of their bits, which is the order of printing.
        pub const FLAGS: &[Flag] = &[
            $(Flag { bit: $bit, name: $name, aliases: &[$($alias)?], doc: $doc },)*
        ];
    };
}

flags! {
    IPV6 = 0x1, "IPV6", "IPv6 packets; set by the IPv6 addresses, cleared by `!IPV6`.";
    IPSRC_RND = 0x2, "IPSRC_RND", "Random IPv4 source in its range.";
    IPDST_RND = 0x4, "IPDST_RND", "Random IPv4 destination in its range.";
    TXSIZE_RND = 0x8, "TXSIZE_RND", "Random size in its range.";
    UDPSRC_RND = 0x10, "UDPSRC_RND", "Random UDP source in its range.";
    UDPDST_RND = 0x20, "UDPDST_RND", "Random UDP destination in its range.";
    UDPCSUM = 0x40, "UDPCSUM", "Fill in the UDP checksum.";
    NO_TIMESTAMP = 0x80, "NO_TIMESTAMP", "Zeros in place of the time.";
    MPLS_RND = 0x100, "MPLS_RND", "Random label words where the bottom-of-stack bit is set.";
    QUEUE_MAP_RND = 0x200, "QUEUE_MAP_RND", "Random transmit queue in its range.";
    QUEUE_MAP_CPU = 0x400, "QUEUE_MAP_CPU", "Transmit queue by the CPU of the thread.";
    FLOW_SEQ = 0x800, "FLOW_SEQ", "Flows one after another instead of at random.";
    IPSEC = 0x1000, "IPSEC", "Accepted and shown; packets leave in clear.";
    MACSRC_RND = 0x2000, "MACSRC_RND", "Random source MAC offset.";
    MACDST_RND = 0x4000, "MACDST_RND", "Random destination MAC offset.";
    VID_RND = 0x8000, "VID_RND", "Random VLAN id.";
    SVID_RND = 0x10000, "SVID_RND", "Random SVLAN id.";
    NODE = 0x20000, "NODE" or "NODE_ALLOC", "Accepted and shown: frame memory is on the node of the worker's CPU.";
    SHARED = 0x40000, "SHARED", "A built packet may be sent again; on at first.";
}

impl Flags {
    /// Returns true if any of `bits` is set.
    pub const fn has(self, bits: u32) -> bool {
        self.0 & bits != 0
    }

    /// Sets or clears `bits`.
    pub const fn put(&mut self, bits: u32, on: bool) {
        if on {
            self.0 |= bits;
        } else {
            self.0 &= !bits;
        }
    }
}

/// Returns the flag with this name.
pub fn find(name: &[u8]) -> Option<&'static Flag> {
    FLAGS
        .iter()
        .find(|f| f.name.as_bytes() == name || f.aliases.iter().any(|a| a.as_bytes() == name))
}
