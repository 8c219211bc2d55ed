//! IEEE 802.1Q tags, single or stacked.

use zerocopy::byteorder::{BE, U16};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ethertype;

/// Four bytes behind the type of the tag: control information, then the inner type.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct VlanView {
    /// Priority (3 bits), drop eligible (1), VLAN id (12).
    pub tci: U16<BE>,
    /// Type of the payload.
    pub ethertype: U16<BE>,
}

view!(VlanView, 4);

/// VLAN tag. `tpid` is in the type field of the preceding header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vlan {
    /// Type of this tag: 0x8100, 0x88a8 or 0x9100.
    pub tpid: u16,
    /// Priority, 0 to 7.
    pub priority: u8,
    /// Drop eligible (formerly the canonical format indicator).
    pub drop_eligible: bool,
    /// VLAN id, 0 to 4095.
    pub id: u16,
}

impl Vlan {
    /// Creates a customer tag (0x8100) with priority 0.
    pub const fn customer(id: u16) -> Self {
        Self {
            tpid: ethertype::VLAN,
            priority: 0,
            drop_eligible: false,
            id,
        }
    }

    /// Creates a service tag (0x88a8) with priority 0, for the outside of a stack.
    pub const fn service(id: u16) -> Self {
        Self {
            tpid: ethertype::QINQ,
            priority: 0,
            drop_eligible: false,
            id,
        }
    }

    /// Creates tags with these ids, outer first: the innermost is 0x8100, all others are 0x88a8.
    pub fn stack(ids: &[u16]) -> Vec<Self> {
        let Some((inner, outer)) = ids.split_last() else {
            return Vec::new();
        };
        outer
            .iter()
            .map(|&id| Self::service(id))
            .chain([Self::customer(*inner)])
            .collect()
    }

    /// Returns true if the type field indicates a VLAN tag.
    pub const fn is_tpid(ethertype: u16) -> bool {
        matches!(
            ethertype,
            ethertype::VLAN | ethertype::QINQ | ethertype::OLD_QINQ
        )
    }

    /// Control information, as AF_PACKET and NICs report it for a stripped tag.
    pub const fn tci(&self) -> u16 {
        (self.priority as u16 & 7) << 13 | (self.drop_eligible as u16) << 12 | (self.id & 0xfff)
    }

    /// Creates a tag with this control information.
    pub const fn from_tci(tpid: u16, tci: u16) -> Self {
        Self {
            tpid,
            priority: (tci >> 13) as u8,
            drop_eligible: tci & 0x1000 != 0,
            id: tci & 0xfff,
        }
    }

    /// Encodes the tag for a payload of type `ethertype`, without `tpid`.
    pub fn emit(&self, ethertype: u16) -> [u8; VlanView::LEN] {
        VlanView {
            tci: self.tci().into(),
            ethertype: ethertype.into(),
        }
        .to_bytes()
    }

    /// Parses a tag of type `tpid` into its value, the inner type and the bytes behind it.
    pub fn parse(tpid: u16, bytes: &[u8]) -> Option<(Self, u16, &[u8])> {
        let (view, rest) = VlanView::split_from(bytes)?;
        Some((
            Self::from_tci(tpid, view.tci.get()),
            view.ethertype.get(),
            rest,
        ))
    }
}
