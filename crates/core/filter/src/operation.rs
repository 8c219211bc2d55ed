//! Decoded instructions, with jump targets as positions.

use crate::check::{Invalid, Problem};
use crate::instruction as bits;
use crate::instruction::{Instruction, KERNEL_VALUES, MEMORY_WORDS};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Byte,
    Half,
    Word,
}

impl Size {
    pub(crate) const fn bytes(self) -> u32 {
        match self {
            Self::Byte => 1,
            Self::Half => 2,
            Self::Word => 4,
        }
    }

    pub(crate) const fn code(self) -> u16 {
        match self {
            Self::Byte => bits::B,
            Self::Half => bits::H,
            Self::Word => bits::W,
        }
    }
}

/// Right operand of an arithmetic operation or a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    Constant(u32),
    X,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Or,
    And,
    Xor,
    Lsh,
    Rsh,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    Equal,
    Greater,
    GreaterOrEqual,
    AnyBit,
}

/// Value that the kernel knows about a packet and that is not in its bytes: linux/filter.h, SKF_AD_*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KernelValue {
    /// Ethertype, as the kernel sees it behind a stripped tag.
    Protocol,
    /// Destination (this host, broadcast, multicast, other host) or outgoing: `PACKET_HOST` and so on.
    PacketType,
    /// Interface index.
    InterfaceIndex,
    /// Netlink attribute. Not supported here.
    NetlinkAttribute,
    /// Nested netlink attribute. Not supported here.
    NestedNetlinkAttribute,
    /// Mark set by the firewall or a socket.
    Mark,
    /// Receive queue.
    Queue,
    /// Hardware type: `ARPHRD_ETHER` and so on.
    HardwareType,
    /// Receive hash.
    Hash,
    /// CPU that runs the filter.
    Cpu,
    /// No value: A becomes A xor X.
    XorX,
    /// Stripped VLAN tag: priority, drop eligibility and identifier.
    VlanTci,
    /// 1 if a VLAN tag was stripped.
    VlanPresent,
    /// Start of the payload, as the kernel dissects it. Not supported here.
    PayloadOffset,
    /// Random number. Not supported here.
    Random,
    /// Ethertype of the stripped VLAN tag.
    VlanTpid,
}

impl KernelValue {
    const ALL: [(u32, Self); 16] = [
        (0, Self::Protocol),
        (4, Self::PacketType),
        (8, Self::InterfaceIndex),
        (12, Self::NetlinkAttribute),
        (16, Self::NestedNetlinkAttribute),
        (20, Self::Mark),
        (24, Self::Queue),
        (28, Self::HardwareType),
        (32, Self::Hash),
        (36, Self::Cpu),
        (40, Self::XorX),
        (44, Self::VlanTci),
        (48, Self::VlanPresent),
        (52, Self::PayloadOffset),
        (56, Self::Random),
        (60, Self::VlanTpid),
    ];

    pub(crate) fn at(offset: u32) -> Option<Self> {
        let place = offset.checked_sub(KERNEL_VALUES)?;
        let found = Self::ALL.iter().find(|(at, _)| *at == place);
        found.map(|(_, value)| *value)
    }

    pub(crate) fn load(self) -> Instruction {
        let place = Self::ALL.iter().find(|(_, value)| *value == self);
        let place = place.map_or(0, |(at, _)| *at);
        Instruction::without_jumps(bits::LD | bits::W | bits::ABS, KERNEL_VALUES + place)
    }
}

/// Effect of one instruction. Jump targets are checked to be ahead and inside the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Constant(u32),
    FrameLen,
    Absolute(Size, u32),
    Indirect(Size, u32),
    Kernel(KernelValue),
    Memory(u8),
    ConstantX(u32),
    FrameLenX,
    MemoryX(u8),
    /// X becomes four times the low half of the byte: the length of an IPv4 header.
    HeaderLenX(u32),
    Store(u8),
    StoreX(u8),
    Arithmetic(Arithmetic, Operand),
    Negate,
    Jump(u16),
    Branch {
        test: Test,
        operand: Operand,
        yes: u16,
        no: u16,
    },
    AToX,
    XToA,
    Return(u32),
    ReturnA,
}

// Four to a cache line: reading the operations limits the speed of the interpreter.
const _: () = assert!(size_of::<Operation>() <= 16);

impl Operation {
    /// Decodes the instruction at position `at` of `len`, with the kernel's checks of a single instruction.
    pub(crate) fn read(instruction: Instruction, at: u16, len: u16) -> Result<Self, Invalid> {
        let wrong = |problem| Invalid { at, problem };
        let Instruction { code, k, .. } = instruction;
        let memory = |k: u32| match u8::try_from(k) {
            Ok(word) if k < MEMORY_WORDS => Ok(word),
            _ => Err(wrong(Problem::NoSuchMemory(k))),
        };
        let absolute = |size| match KernelValue::at(k) {
            Some(value) => Ok(Self::Kernel(value)),
            None if k >= KERNEL_VALUES => Err(wrong(Problem::UnknownKernelValue(k))),
            None => Ok(Self::Absolute(size, k)),
        };
        let target = |distance: u32| match u32::from(at) + 1 + distance.min(u32::from(u16::MAX)) {
            target if target < u32::from(len) => Ok(target as u16),
            _ => Err(wrong(Problem::JumpOutside(distance))),
        };

        Ok(match code {
            0x00 => Self::Constant(k),
            0x80 => Self::FrameLen,
            0x20 => absolute(Size::Word)?,
            0x28 => absolute(Size::Half)?,
            0x30 => absolute(Size::Byte)?,
            0x40 => Self::Indirect(Size::Word, k),
            0x48 => Self::Indirect(Size::Half, k),
            0x50 => Self::Indirect(Size::Byte, k),
            0x60 => Self::Memory(memory(k)?),
            0x01 => Self::ConstantX(k),
            0x81 => Self::FrameLenX,
            0x61 => Self::MemoryX(memory(k)?),
            0xb1 => Self::HeaderLenX(k),
            0x02 => Self::Store(memory(k)?),
            0x03 => Self::StoreX(memory(k)?),
            0x84 => Self::Negate,
            0x05 => Self::Jump(target(k)?),
            0x06 => Self::Return(k),
            0x16 => Self::ReturnA,
            0x07 => Self::AToX,
            0x87 => Self::XToA,
            _ => match (code & 0x07, operand(code, k)) {
                (bits::ALU, operand) => match (arithmetic(code), operand) {
                    (None, _) => return Err(wrong(Problem::UnknownCode(code))),
                    (Some(Arithmetic::Div | Arithmetic::Mod), Operand::Constant(0)) => {
                        return Err(wrong(Problem::DivisionByZero));
                    }
                    (Some(Arithmetic::Lsh | Arithmetic::Rsh), Operand::Constant(32..)) => {
                        return Err(wrong(Problem::ShiftTooFar(k)));
                    }
                    (Some(arithmetic), operand) => Self::Arithmetic(arithmetic, operand),
                },
                (bits::JMP, operand) => {
                    let Some(test) = test(code) else {
                        return Err(wrong(Problem::UnknownCode(code)));
                    };
                    Self::Branch {
                        test,
                        operand,
                        yes: target(u32::from(instruction.jt))?,
                        no: target(u32::from(instruction.jf))?,
                    }
                }
                _ => return Err(wrong(Problem::UnknownCode(code))),
            },
        })
    }
}

fn operand(code: u16, k: u32) -> Operand {
    if code & bits::X == 0 {
        Operand::Constant(k)
    } else {
        Operand::X
    }
}

fn arithmetic(code: u16) -> Option<Arithmetic> {
    Some(match code & !(bits::X | 0x07) {
        bits::ADD => Arithmetic::Add,
        bits::SUB => Arithmetic::Sub,
        bits::MUL => Arithmetic::Mul,
        bits::DIV => Arithmetic::Div,
        bits::MOD => Arithmetic::Mod,
        bits::OR => Arithmetic::Or,
        bits::AND => Arithmetic::And,
        bits::XOR => Arithmetic::Xor,
        bits::LSH => Arithmetic::Lsh,
        bits::RSH => Arithmetic::Rsh,
        _ => return None,
    })
}

fn test(code: u16) -> Option<Test> {
    Some(match code & !(bits::X | 0x07) {
        bits::JEQ => Test::Equal,
        bits::JGT => Test::Greater,
        bits::JGE => Test::GreaterOrEqual,
        bits::JSET => Test::AnyBit,
        _ => return None,
    })
}
