//! Interpreter of classic BPF.

use crate::operation::{Arithmetic, KernelValue, Operand, Operation, Size, Test};
use crate::program::Program;

/// Metadata that the kernel keeps for a packet, for programs that read it.
///
/// All fields are 0 for frames from a file, and for frames with their VLAN tags in the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ancillary {
    /// True if a VLAN tag was taken out of the bytes.
    pub vlan_present: bool,
    /// Priority, drop eligibility and identifier of that tag.
    pub vlan_tci: u16,
    /// Ethertype of that tag: 0x8100 or 0x88a8.
    pub vlan_proto: u16,
    /// Ethertype of the packet behind the tag.
    pub protocol: u16,
    /// `PACKET_HOST` 0, broadcast 1, multicast 2, other host 3, outgoing 4.
    pub pkttype: u8,
    /// Interface index.
    pub ifindex: u32,
    /// Hardware type; 1 is Ethernet.
    pub hardware_type: u16,
    /// Receive queue.
    pub queue: u16,
    /// Firewall mark.
    pub mark: u32,
    /// Receive hash.
    pub hash: u32,
    /// CPU that received the packet.
    pub cpu: u32,
}

impl Ancillary {
    /// Returns a value, or `None` if only the kernel can compute it.
    fn get(&self, value: KernelValue) -> Option<u32> {
        Some(match value {
            KernelValue::Protocol => self.protocol.into(),
            KernelValue::PacketType => self.pkttype.into(),
            KernelValue::InterfaceIndex => self.ifindex,
            KernelValue::Mark => self.mark,
            KernelValue::Queue => self.queue.into(),
            KernelValue::HardwareType => self.hardware_type.into(),
            KernelValue::Hash => self.hash,
            KernelValue::Cpu => self.cpu,
            KernelValue::VlanTci => self.vlan_tci.into(),
            KernelValue::VlanPresent => self.vlan_present.into(),
            KernelValue::VlanTpid => self.vlan_proto.into(),
            KernelValue::XorX
            | KernelValue::NetlinkAttribute
            | KernelValue::NestedNetlinkAttribute
            | KernelValue::PayloadOffset
            | KernelValue::Random => return None,
        })
    }
}

impl Program {
    /// Runs the program and returns the number of bytes of `packet` to keep; 0 rejects the packet. `original_len` is
    /// its length on the wire without FCS; `packet` may be only the beginning.
    ///
    /// Loads are big endian. A load past the end rejects the packet, and so do a division by an X of 0 and a value that
    /// only the kernel can compute (payload offset, random number, netlink attributes). If the kernel and libpcap
    /// differ, this follows libpcap: a shift by an X of 32 or more gives 0, X plus an offset does not wrap around, and
    /// offsets from 2^31 on are out of range. [`Program::for_tap`] makes the kernel do the same.
    pub fn accepts(&self, packet: &[u8], original_len: u32, ancillary: &Ancillary) -> u32 {
        let mut a = 0_u32;
        let mut x = 0_u32;
        let mut memory = [0_u32; 16];
        let mut at = 0;
        // The loop ends, because jumps only lead forward and the last instruction returns.
        while let Some(operation) = self.operations.get(at) {
            at += 1;
            match *operation {
                Operation::Absolute(size, offset) => match load(packet, size, offset) {
                    Some(value) => a = value,
                    None => return 0,
                },
                Operation::Branch {
                    test,
                    operand,
                    yes,
                    no,
                } => {
                    let right = match operand {
                        Operand::Constant(k) => k,
                        Operand::X => x,
                    };
                    let holds = match test {
                        Test::Equal => a == right,
                        Test::Greater => a > right,
                        Test::GreaterOrEqual => a >= right,
                        Test::AnyBit => a & right != 0,
                    };
                    at = usize::from(if holds { yes } else { no });
                }
                Operation::Return(len) => return len,
                Operation::ReturnA => return a,
                Operation::Indirect(size, offset) => {
                    let Some(value) = x
                        .checked_add(offset)
                        .and_then(|offset| load(packet, size, offset))
                    else {
                        return 0;
                    };
                    a = value;
                }
                Operation::HeaderLenX(offset) => match load(packet, Size::Byte, offset) {
                    Some(value) => x = (value & 0x0f) * 4,
                    None => return 0,
                },
                Operation::Arithmetic(arithmetic, operand) => {
                    let right = match operand {
                        Operand::Constant(k) => k,
                        Operand::X => x,
                    };
                    match compute(arithmetic, a, right) {
                        Some(value) => a = value,
                        None => return 0,
                    }
                }
                Operation::Negate => a = a.wrapping_neg(),
                Operation::Jump(target) => at = usize::from(target),
                Operation::Constant(k) => a = k,
                Operation::ConstantX(k) => x = k,
                Operation::FrameLen => a = original_len,
                Operation::FrameLenX => x = original_len,
                Operation::Memory(word) => a = memory[usize::from(word & 15)],
                Operation::MemoryX(word) => x = memory[usize::from(word & 15)],
                Operation::Store(word) => memory[usize::from(word & 15)] = a,
                Operation::StoreX(word) => memory[usize::from(word & 15)] = x,
                Operation::AToX => x = a,
                Operation::XToA => a = x,
                Operation::Kernel(KernelValue::XorX) => a ^= x,
                Operation::Kernel(value) => match ancillary.get(value) {
                    Some(value) => a = value,
                    None => return 0,
                },
            }
        }
        0
    }
}

#[inline]
fn load(packet: &[u8], size: Size, offset: u32) -> Option<u32> {
    let rest = packet.get(offset as usize..)?;
    Some(match size {
        Size::Word => u32::from_be_bytes(*rest.first_chunk()?),
        Size::Half => u16::from_be_bytes(*rest.first_chunk()?).into(),
        Size::Byte => u32::from(*rest.first()?),
    })
}

#[inline]
fn compute(arithmetic: Arithmetic, a: u32, right: u32) -> Option<u32> {
    Some(match arithmetic {
        Arithmetic::Add => a.wrapping_add(right),
        Arithmetic::Sub => a.wrapping_sub(right),
        Arithmetic::Mul => a.wrapping_mul(right),
        Arithmetic::Div => a.checked_div(right)?,
        Arithmetic::Mod => a.checked_rem(right)?,
        Arithmetic::Or => a | right,
        Arithmetic::And => a & right,
        Arithmetic::Xor => a ^ right,
        Arithmetic::Lsh => a.checked_shl(right).unwrap_or(0),
        Arithmetic::Rsh => a.checked_shr(right).unwrap_or(0),
    })
}
