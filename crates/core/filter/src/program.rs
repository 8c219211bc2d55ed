//! A checked program.

use std::fmt;

use crate::check::{Invalid, check};
use crate::instruction::{Instruction, RET};
use crate::layout;
use crate::operation::{KernelValue, Operation};

/// Maximum number of instructions in the kernel: BPF_MAXINSNS.
pub const MAX_INSTRUCTIONS: usize = 4096;

/// A classic BPF program that the kernel would accept too: it terminates and reads nothing but the frame.
#[derive(Clone, PartialEq, Eq)]
pub struct Program {
    instructions: Vec<Instruction>,
    pub(crate) operations: Vec<Operation>,
}

impl Program {
    /// Checks `instructions` by the kernel's rules.
    ///
    /// # Errors
    /// The first instruction that breaks a rule.
    pub fn new(instructions: Vec<Instruction>) -> Result<Self, Invalid> {
        let operations = check(&instructions)?;
        Ok(Self {
            instructions,
            operations,
        })
    }

    /// Returns the program that keeps `snap_len` bytes of every frame (0 rejects every frame).
    pub fn accept_all(snap_len: u32) -> Self {
        Self {
            instructions: vec![Instruction::without_jumps(RET, snap_len)],
            operations: vec![Operation::Return(snap_len)],
        }
    }

    /// Returns the program that rejects every frame.
    pub fn reject_all() -> Self {
        Self::accept_all(0)
    }

    /// Returns the instructions, as `SO_ATTACH_FILTER` takes them.
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// Returns the program that keeps `snap_len` bytes of the frames that none of `programs` keeps. It rejects a frame
    /// that is too short for one of them.
    ///
    /// # Errors
    /// The programs have more than [`MAX_INSTRUCTIONS`] together.
    pub fn none_of(programs: &[Self], snap_len: u32) -> Result<Self, Invalid> {
        layout::none_of(programs, snap_len)
    }

    /// Returns a program that selects the same frames and keeps at most `snap_len` bytes of each. 0 rejects all.
    ///
    /// # Errors
    /// The program becomes longer than [`MAX_INSTRUCTIONS`]: each return of a computed length needs two more
    /// instructions.
    pub fn limited(&self, snap_len: u32) -> Result<Self, Invalid> {
        if snap_len == 0 {
            return Ok(Self::reject_all());
        }
        layout::limit(self, snap_len)
    }

    /// Returns a program that selects the same frames; every constant length of an accepted frame becomes `snap_len`.
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

    /// Returns the values that the program reads from the kernel, in program order. A program that reads none gives the
    /// same verdict wherever it runs.
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
