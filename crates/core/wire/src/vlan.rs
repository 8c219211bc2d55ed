//! IEEE 802.1Q tags, single or stacked.

use zerocopy::byteorder::{BE, U16};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ethertype;

/// The four bytes behind the tag's own type: control information, then the inner type.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct VlanView {
    /// Priority (3 bits), drop eligible (1), VLAN id (12).
    pub tci: U16<BE>,
    /// What follows.
    pub ethertype: U16<BE>,
}

view!(VlanView, 4);

/// A VLAN tag. `tpid` stands in the type field of the header before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vlan {
    /// The type that announces this tag: 0x8100, 0x88a8 or 0x9100.
    pub tpid: u16,
    /// Priority, 0 to 7.
    pub priority: u8,
    /// Drop eligible (once the canonical format indicator).
    pub drop_eligible: bool,
    /// VLAN id, 0 to 4095.
    pub id: u16,
}

impl Vlan {
    /// A customer tag (0x8100) with priority 0.
    pub const fn customer(id: u16) -> Self {
        Self {
            tpid: ethertype::VLAN,
            priority: 0,
            drop_eligible: false,
            id,
        }
    }

    /// A service tag (0x88a8) with priority 0, for the outside of a stack.
    pub const fn service(id: u16) -> Self {
        Self {
            tpid: ethertype::QINQ,
            priority: 0,
            drop_eligible: false,
            id,
        }
    }

    /// Tags with these ids, outer first: the innermost 0x8100, all outside of it 0x88a8.
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

    /// Whether a type field announces a VLAN tag.
    pub const fn is_tpid(ethertype: u16) -> bool {
        matches!(
            ethertype,
            ethertype::VLAN | ethertype::QINQ | ethertype::OLD_QINQ
        )
    }

    /// The control information: what AF_PACKET and NICs hand over for a stripped tag.
    pub const fn tci(&self) -> u16 {
        (self.priority as u16 & 7) << 13 | (self.drop_eligible as u16) << 12 | (self.id & 0xfff)
    }

    /// The tag with this control information.
    pub const fn from_tci(tpid: u16, tci: u16) -> Self {
        Self {
            tpid,
            priority: (tci >> 13) as u8,
            drop_eligible: tci & 0x1000 != 0,
            id: tci & 0xfff,
        }
    }

    /// The tag in front of `ethertype`, without its own `tpid`.
    pub fn emit(&self, ethertype: u16) -> [u8; VlanView::LEN] {
        VlanView {
            tci: self.tci().into(),
            ethertype: ethertype.into(),
        }
        .to_bytes()
    }

    /// The tag that `tpid` announced, its inner type and the bytes behind it.
    pub fn parse(tpid: u16, bytes: &[u8]) -> Option<(Self, u16, &[u8])> {
        let (view, rest) = VlanView::of(bytes)?;
        Some((
            Self::from_tci(tpid, view.tci.get()),
            view.ethertype.get(),
            rest,
        ))
    }
}
