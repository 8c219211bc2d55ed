//! Checks before a program may run: the kernel's rules (`bpf_check_classic`), so that `SO_ATTACH_FILTER` accepts each
//! program that passes.

use crate::instruction::Instruction;
use crate::operation::Operation;
use crate::program::MAX_INSTRUCTIONS;

/// An invalid program, and the instruction at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("filter program, instruction {at}: {problem}")]
pub struct Invalid {
    /// Position of the instruction, from 0.
    pub at: u16,
    /// Problem with the instruction.
    pub problem: Problem,
}

/// Problem with an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// There are no instructions.
    #[error("the program is empty")]
    Empty,
    /// More instructions than the kernel accepts.
    #[error("the program has {0} instructions; at most {MAX_INSTRUCTIONS} are allowed")]
    TooLong(usize),
    /// Unknown instruction code.
    #[error("unknown code {0:#04x}")]
    UnknownCode(u16),
    /// A jump leaves the program.
    #[error("a jump leaves the program (instructions to skip: {0})")]
    JumpOutside(u32),
    /// A division by the constant 0.
    #[error("division by zero")]
    DivisionByZero,
    /// A shift by more bits than a word has.
    #[error("shift by {0}; at most 31 is allowed")]
    ShiftTooFar(u32),
    /// Index beyond the 16 words of scratch memory.
    #[error("memory word must be between 0 and 15, got {0}")]
    NoSuchMemory(u32),
    /// Read of a memory word that may not have been written.
    #[error("memory word {0} is read before it is written")]
    UnsetMemory(u8),
    /// An offset in the range of the kernel's values that names none.
    #[error("unknown kernel value at offset {0:#x}")]
    UnknownKernelValue(u32),
    /// The last instruction does not return.
    #[error("the last instruction must return")]
    NoReturn,
}

/// Decodes and checks `instructions`.
pub(crate) fn check(instructions: &[Instruction]) -> Result<Vec<Operation>, Invalid> {
    let wrong = |at, problem| Err(Invalid { at, problem });
    if instructions.is_empty() {
        return wrong(0, Problem::Empty);
    }
    if instructions.len() > MAX_INSTRUCTIONS {
        return wrong(
            MAX_INSTRUCTIONS as u16,
            Problem::TooLong(instructions.len()),
        );
    }
    let len = instructions.len() as u16;
    let operations = (0..len)
        .zip(instructions)
        .map(|(at, instruction)| Operation::read(*instruction, at, len))
        .collect::<Result<Vec<_>, _>>()?;
    if !matches!(
        operations.last(),
        Some(Operation::Return(_) | Operation::ReturnA)
    ) {
        return wrong(len - 1, Problem::NoReturn);
    }
    memory_is_written_first(&operations)?;
    Ok(operations)
}

/// Checks that each memory word is written before it is read. Jumps only lead forward, so one pass sees every path.
fn memory_is_written_first(operations: &[Operation]) -> Result<(), Invalid> {
    // Per instruction, the words written on every path that jumps to it; `u16::MAX` before the first.
    let mut written_at = vec![u16::MAX; operations.len()];
    let mut written = 0_u16;
    for (at, operation) in operations.iter().enumerate() {
        written &= written_at[at];
        let after = u16::MAX;
        match *operation {
            Operation::Store(word) | Operation::StoreX(word) => written |= 1 << word,
            Operation::Memory(word) | Operation::MemoryX(word) if written & (1 << word) == 0 => {
                return Err(Invalid {
                    at: at as u16,
                    problem: Problem::UnsetMemory(word),
                });
            }
            Operation::Jump(target) => {
                written_at[usize::from(target)] &= written;
                written = after;
            }
            Operation::Branch { yes, no, .. } => {
                written_at[usize::from(yes)] &= written;
                written_at[usize::from(no)] &= written;
                written = after;
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use Problem::*;

    fn problem(list: &[(u16, u8, u8, u32)]) -> Option<(u16, Problem)> {
        let list: Vec<_> = list
            .iter()
            .map(|&(code, jt, jf, k)| Instruction::new(code, jt, jf, k))
            .collect();
        let error = check(&list).err()?;
        Some((error.at, error.problem))
    }

    const KEEP: (u16, u8, u8, u32) = (6, 0, 0, 1);

    #[test]
    fn what_the_kernel_refuses_is_refused() {
        assert_eq!(problem(&[]), Some((0, Empty)));
        assert_eq!(problem(&[KEEP; 4096]), None);
        assert_eq!(problem(&[KEEP; 4097]), Some((4096, TooLong(4097))));
        assert_eq!(problem(&[(0, 0, 0, 0)]), Some((0, NoReturn)));
        assert_eq!(problem(&[(5, 0, 0, 0), KEEP]), None);
        assert_eq!(problem(&[(5, 0, 0, 1), KEEP]), Some((0, JumpOutside(1))));
        assert_eq!(
            problem(&[(5, 0, 0, u32::MAX), KEEP]),
            Some((0, JumpOutside(u32::MAX)))
        );
        assert_eq!(problem(&[(0x15, 0, 1, 0), KEEP]), Some((0, JumpOutside(1))));
        assert_eq!(problem(&[(0x15, 1, 0, 0), KEEP]), Some((0, JumpOutside(1))));
        assert_eq!(problem(&[(0x34, 0, 0, 0), KEEP]), Some((0, DivisionByZero)));
        assert_eq!(problem(&[(0x94, 0, 0, 0), KEEP]), Some((0, DivisionByZero)));
        assert_eq!(problem(&[(0x3c, 0, 0, 0), KEEP]), None);
        assert_eq!(
            problem(&[(0x64, 0, 0, 32), KEEP]),
            Some((0, ShiftTooFar(32)))
        );
        assert_eq!(problem(&[(0x74, 0, 0, 31), KEEP]), None);
        assert_eq!(problem(&[(2, 0, 0, 16), KEEP]), Some((0, NoSuchMemory(16))));
        assert_eq!(
            problem(&[(0x20, 0, 0, 0xffff_f001), KEEP]),
            Some((0, UnknownKernelValue(0xffff_f001)))
        );
        for code in [0x08, 0x0e, 0x41, 0xa8, 0x8c, 0x55, 0x0d, 0x106, 0xffff] {
            assert_eq!(
                problem(&[(code, 0, 0, 1), KEEP]),
                Some((0, UnknownCode(code)))
            );
        }
    }

    #[test]
    fn memory_must_be_written_on_every_way() {
        assert_eq!(problem(&[(0x60, 0, 0, 3), KEEP]), Some((0, UnsetMemory(3))));
        assert_eq!(problem(&[(2, 0, 0, 3), (0x60, 0, 0, 3), KEEP]), None);
        // The branch skips the store.
        assert_eq!(
            problem(&[(0x15, 0, 1, 0), (2, 0, 0, 3), (0x61, 0, 0, 3), KEEP]),
            Some((2, UnsetMemory(3)))
        );
        // Both paths store.
        let both = [
            (0x15, 0, 2, 0),
            (2, 0, 0, 3),
            (5, 0, 0, 1),
            (3, 0, 0, 3),
            (0x61, 0, 0, 3),
            KEEP,
        ];
        assert_eq!(problem(&both), None);
    }
}
