//! One instruction in the kernel's format, and the names of its bits.

/// A classic BPF instruction: `struct sock_filter` of linux/filter.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Instruction {
    /// Operation code.
    pub code: u16,
    /// Instructions to skip if the test holds.
    pub jt: u8,
    /// Instructions to skip if the test fails.
    pub jf: u8,
    /// Constant: an offset, an operand, a distance or a length.
    pub k: u32,
}

impl Instruction {
    /// Creates an instruction from its four parts.
    pub const fn new(code: u16, jt: u8, jf: u8, k: u32) -> Self {
        Self { code, jt, jf, k }
    }

    pub(crate) const fn without_jumps(code: u16, k: u32) -> Self {
        Self::new(code, 0, 0, k)
    }
}

// linux/bpf_common.h and linux/filter.h.
pub(crate) const LD: u16 = 0x00;
pub(crate) const LDX: u16 = 0x01;
pub(crate) const ST: u16 = 0x02;
pub(crate) const STX: u16 = 0x03;
pub(crate) const ALU: u16 = 0x04;
pub(crate) const JMP: u16 = 0x05;
pub(crate) const RET: u16 = 0x06;
pub(crate) const MISC: u16 = 0x07;

pub(crate) const W: u16 = 0x00;
pub(crate) const H: u16 = 0x08;
pub(crate) const B: u16 = 0x10;

pub(crate) const IMM: u16 = 0x00;
pub(crate) const ABS: u16 = 0x20;
pub(crate) const IND: u16 = 0x40;
pub(crate) const MEM: u16 = 0x60;
pub(crate) const LEN: u16 = 0x80;
pub(crate) const MSH: u16 = 0xa0;

pub(crate) const ADD: u16 = 0x00;
pub(crate) const SUB: u16 = 0x10;
pub(crate) const MUL: u16 = 0x20;
pub(crate) const DIV: u16 = 0x30;
pub(crate) const OR: u16 = 0x40;
pub(crate) const AND: u16 = 0x50;
pub(crate) const LSH: u16 = 0x60;
pub(crate) const RSH: u16 = 0x70;
pub(crate) const NEG: u16 = 0x80;
pub(crate) const MOD: u16 = 0x90;
pub(crate) const XOR: u16 = 0xa0;

pub(crate) const JA: u16 = 0x00;
pub(crate) const JEQ: u16 = 0x10;
pub(crate) const JGT: u16 = 0x20;
pub(crate) const JGE: u16 = 0x30;
pub(crate) const JSET: u16 = 0x40;

pub(crate) const K: u16 = 0x00;
pub(crate) const X: u16 = 0x08;
pub(crate) const A: u16 = 0x10;

pub(crate) const TAX: u16 = 0x00;
pub(crate) const TXA: u16 = 0x80;

/// Words of scratch memory: BPF_MEMWORDS.
pub(crate) const MEMORY_WORDS: u32 = 16;

/// First offset that names a value of the kernel instead of a byte: SKF_AD_OFF.
pub(crate) const KERNEL_VALUES: u32 = 0xffff_f000;
