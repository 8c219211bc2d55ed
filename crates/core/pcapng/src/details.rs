//! Information in a file besides its frames, and the part of it that a copy keeps.

/// Kinds of information in pcapng.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    InterfaceComment,
    InterfaceAddress,
    InterfaceHardware,
    InterfaceZone,
    InterfaceSpeeds,
    SecondComment,
    Hash,
    Verdict,
    Custom,
    Unknown,
    InterfaceText,
    Filter,
    PacketComment,
    PacketFlags,
    DropCount,
    PacketNumber,
    Queue,
    Statistics,
}

/// Each kind, its name, and true if it is kept when pcapng is written.
const DETAILS: [(Detail, &str, bool); 18] = [
    (Detail::InterfaceComment, "interface comments", false),
    (Detail::InterfaceAddress, "interface addresses", false),
    (Detail::InterfaceHardware, "interface hardware", false),
    (Detail::InterfaceZone, "interface time zones", false),
    (
        Detail::InterfaceSpeeds,
        "separate transmit and receive speeds",
        false,
    ),
    (Detail::SecondComment, "additional packet comments", false),
    (Detail::Hash, "packet hashes", false),
    (Detail::Verdict, "packet verdicts", false),
    (Detail::Custom, "custom options", false),
    (Detail::Unknown, "unknown options", false),
    (
        Detail::InterfaceText,
        "interface names and descriptions",
        true,
    ),
    (Detail::Filter, "capture filters", true),
    (Detail::PacketComment, "packet comments", true),
    (Detail::PacketFlags, "packet flags", true),
    (Detail::DropCount, "drop counts", true),
    (Detail::PacketNumber, "packet identifiers", true),
    (Detail::Queue, "packet queues", true),
    (Detail::Statistics, "statistics", true),
];

/// Set of the kinds of information in a file besides its frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Details(u32);

impl Details {
    pub(crate) const fn insert(&mut self, detail: Detail) {
        self.0 |= 1 << detail as u32;
    }

    /// Adds the kinds of another file.
    pub const fn join(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Returns the kinds that are lost when the frames are written again, as pcapng or as pcap.
    pub fn lost(self, as_pcapng: bool) -> impl Iterator<Item = &'static str> {
        DETAILS
            .into_iter()
            .filter(move |(detail, _, kept)| {
                self.0 & 1 << *detail as u32 != 0 && !(as_pcapng && *kept)
            })
            .map(|(_, name, _)| name)
    }
}
