//! A checked program.

use std::fmt;

use crate::check::{Invalid, check};
use crate::instruction::{Instruction, RET};
use crate::layout;
use crate::operation::{KernelValue, Operation};

/// The most instructions that the kernel takes: BPF_MAXINSNS.
pub const MAX_INSTRUCTIONS: usize = 4096;

/// A classic BPF program that the kernel would take too: it ends, and reads nothing but the frame.
#[derive(Clone, PartialEq, Eq)]
pub struct Program {
    instructions: Vec<Instruction>,
    pub(crate) operations: Vec<Operation>,
}

impl Program {
    /// Checks `instructions` by the kernel's rules.
    ///
    /// # Errors
    /// The first instruction that breaks one.
    pub fn new(instructions: Vec<Instruction>) -> Result<Self, Invalid> {
        let operations = check(&instructions)?;
        Ok(Self {
            instructions,
            operations,
        })
    }

    /// The program that keeps `snap_len` bytes of every frame (0: none, which rejects).
    pub fn accept_all(snap_len: u32) -> Self {
        Self {
            instructions: vec![Instruction::of(RET, snap_len)],
            operations: vec![Operation::Return(snap_len)],
        }
    }

    /// The program that rejects every frame.
    pub fn reject_all() -> Self {
        Self::accept_all(0)
    }

    /// The instructions, as `SO_ATTACH_FILTER` takes them.
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// The program that keeps `snap_len` bytes of the frames of which none of `programs` keeps any. A frame
    /// that is too short for one of them is not kept.
    ///
    /// # Errors
    /// More than [`MAX_INSTRUCTIONS`] together are refused.
    pub fn none_of(programs: &[Self], snap_len: u32) -> Result<Self, Invalid> {
        layout::none_of(programs, snap_len)
    }

    /// The same choice of frames, but never more than `snap_len` bytes of one. 0 rejects all.
    ///
    /// # Errors
    /// A program that returns a computed length grows by two instructions; more than
    /// [`MAX_INSTRUCTIONS`] are refused.
    pub fn limited(&self, snap_len: u32) -> Result<Self, Invalid> {
        if snap_len == 0 {
            return Ok(Self::reject_all());
        }
        layout::limit(self, snap_len)
    }

    /// The same choice of frames; every constant length of an accepted frame becomes `snap_len`.
    #[must_use]
    pub fn keeping(&self, snap_len: u32) -> Self {
        let mut program = self.clone();
        let both = program.instructions.iter_mut().zip(&mut program.operations);
        for (instruction, operation) in both {
            if let Operation::Return(1..) = operation {
                instruction.k = snap_len;
                *operation = Operation::Return(snap_len);
            }
        }
        program
    }

    /// The values that the program asks of the kernel, in its order. A program without any gives
    /// the same verdict wherever it runs.
    pub fn kernel_values(&self) -> impl Iterator<Item = KernelValue> + '_ {
        self.operations
            .iter()
            .filter_map(|operation| match operation {
                Operation::Kernel(value) => Some(*value),
                _ => None,
            })
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.listing())
    }
}
