//! Layout of rewritten programs: jumps refer to labels, and a branch farther than eight bits takes a detour over an
//! unconditional jump.

use crate::check::Invalid;
use crate::instruction::{Instruction, JA, JEQ, JGT, JMP, K, RET};
use crate::operation::Operation;
use crate::program::Program;

/// Jump target, always ahead of the jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JumpLabel(usize);

enum LayoutItem {
    Plain(Instruction),
    Jump(JumpLabel),
    Branch {
        code: u16,
        k: u32,
        yes: JumpLabel,
        no: JumpLabel,
    },
    Here(JumpLabel),
}

/// A program under construction.
#[derive(Default)]
pub(crate) struct ProgramLayout {
    items: Vec<LayoutItem>,
    labels: usize,
}

impl ProgramLayout {
    pub(crate) fn label(&mut self) -> JumpLabel {
        self.labels += 1;
        JumpLabel(self.labels - 1)
    }

    /// Binds `label` to the next instruction.
    pub(crate) fn here(&mut self, label: JumpLabel) {
        self.items.push(LayoutItem::Here(label));
    }

    pub(crate) fn push(&mut self, instruction: Instruction) {
        self.items.push(LayoutItem::Plain(instruction));
    }

    pub(crate) fn jump(&mut self, to: JumpLabel) {
        self.items.push(LayoutItem::Jump(to));
    }

    /// Adds a branch. `code` is a conditional jump.
    pub(crate) fn branch(&mut self, code: u16, k: u32, yes: JumpLabel, no: JumpLabel) {
        self.items.push(LayoutItem::Branch { code, k, yes, no });
    }

    /// Copies `program` with its jumps. `rewrite` receives the position of each operation, and returns true if it
    /// emitted a replacement.
    pub(crate) fn copy(
        &mut self,
        program: &Program,
        mut rewrite: impl FnMut(&mut Self, usize, Operation) -> bool,
    ) {
        let labels: Vec<_> = program.operations.iter().map(|_| self.label()).collect();
        let both = program.operations.iter().zip(program.instructions());
        for (at, (operation, instruction)) in both.enumerate() {
            self.here(labels[at]);
            match *operation {
                Operation::Jump(to) => self.jump(labels[usize::from(to)]),
                Operation::Branch { yes, no, .. } => self.branch(
                    instruction.code,
                    instruction.k,
                    labels[usize::from(yes)],
                    labels[usize::from(no)],
                ),
                operation => {
                    if !rewrite(self, at, operation) {
                        self.push(*instruction);
                    }
                }
            }
        }
    }

    pub(crate) fn finish(self) -> Result<Program, Invalid> {
        // Build from the end: jumps only lead forward, so each target is known before the jump. Positions count from
        // the end.
        let mut positions = vec![0; self.labels];
        let mut reversed: Vec<Instruction> = Vec::with_capacity(self.items.len());
        let ja = |distance: usize| Instruction::without_jumps(JMP | JA, distance as u32);
        for item in self.items.into_iter().rev() {
            match item {
                LayoutItem::Here(JumpLabel(label)) => positions[label] = reversed.len(),
                LayoutItem::Plain(instruction) => reversed.push(instruction),
                LayoutItem::Jump(JumpLabel(to)) => match reversed.len() - positions[to] {
                    0 => {}
                    distance => reversed.push(ja(distance)),
                },
                LayoutItem::Branch { code, k, yes, no } => {
                    let distance = |reversed: &Vec<_>, JumpLabel(to): JumpLabel| {
                        reversed.len() - positions[to]
                    };
                    // A detour makes the distance of the other target one longer.
                    const NEAR: usize = u8::MAX as usize - 2;
                    let far_no = distance(&reversed, no) > NEAR;
                    if far_no {
                        reversed.push(ja(distance(&reversed, no)));
                    }
                    let detour_no = reversed.len();
                    let far_yes = distance(&reversed, yes) > NEAR;
                    if far_yes {
                        reversed.push(ja(distance(&reversed, yes)));
                    }
                    let jf = if far_no {
                        reversed.len() - detour_no
                    } else {
                        distance(&reversed, no)
                    };
                    let jt = if far_yes { 0 } else { distance(&reversed, yes) };
                    reversed.push(Instruction::new(code, jt as u8, jf as u8, k));
                }
            }
        }
        reversed.reverse();
        Program::new(reversed)
    }
}

/// Builds the program that keeps `snap_len` bytes of frames that none of `programs` keeps.
pub(crate) fn none_of(programs: &[Program], snap_len: u32) -> Result<Program, Invalid> {
    let mut layout = ProgramLayout::default();
    for program in programs {
        let next = layout.label();
        layout.copy(program, |layout, _, operation| {
            match operation {
                Operation::Return(0) => layout.jump(next),
                Operation::Return(_) => layout.push(Instruction::without_jumps(RET | K, 0)),
                Operation::ReturnA => {
                    let kept = layout.label();
                    layout.branch(JMP | JEQ | K, 0, next, kept);
                    layout.here(kept);
                    layout.push(Instruction::without_jumps(RET | K, 0));
                }
                _ => return false,
            }
            true
        });
        layout.here(next);
    }
    layout.push(Instruction::without_jumps(RET | K, snap_len));
    layout.finish()
}

/// Builds the program that returns at most `snap_len`, which is not 0.
pub(crate) fn limit(program: &Program, snap_len: u32) -> Result<Program, Invalid> {
    let mut layout = ProgramLayout::default();
    layout.copy(program, |layout, _, operation| match operation {
        Operation::Return(len) => {
            layout.push(Instruction::without_jumps(RET | K, len.min(snap_len)));
            true
        }
        Operation::ReturnA => {
            let (cut, whole) = (layout.label(), layout.label());
            layout.branch(JMP | JGT | K, snap_len, cut, whole);
            layout.here(cut);
            layout.push(Instruction::without_jumps(RET | K, snap_len));
            layout.here(whole);
            layout.push(Instruction::without_jumps(RET | crate::instruction::A, 0));
            true
        }
        _ => false,
    });
    layout.finish()
}
