//! Layout of rewritten programs: jumps refer to labels, and a branch farther than eight bits takes a detour over an
//! unconditional jump.

use crate::check::Invalid;
use crate::instruction::{Instruction, JA, JEQ, JGT, JMP, K, RET};
use crate::operation::Operation;
use crate::program::Program;

/// Jump target, always ahead of the jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(usize);

enum Item {
    Plain(Instruction),
    Jump(Label),
    Branch {
        code: u16,
        k: u32,
        yes: Label,
        no: Label,
    },
    Here(Label),
}

/// A program under construction.
#[derive(Default)]
pub(crate) struct Layout {
    items: Vec<Item>,
    labels: usize,
}

impl Layout {
    pub(crate) fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }

    /// Binds `label` to the next instruction.
    pub(crate) fn here(&mut self, label: Label) {
        self.items.push(Item::Here(label));
    }

    pub(crate) fn put(&mut self, instruction: Instruction) {
        self.items.push(Item::Plain(instruction));
    }

    pub(crate) fn jump(&mut self, to: Label) {
        self.items.push(Item::Jump(to));
    }

    /// Adds a branch. `code` is a conditional jump.
    pub(crate) fn branch(&mut self, code: u16, k: u32, yes: Label, no: Label) {
        self.items.push(Item::Branch { code, k, yes, no });
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
                        self.put(*instruction);
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
        let ja = |distance: usize| Instruction::of(JMP | JA, distance as u32);
        for item in self.items.into_iter().rev() {
            match item {
                Item::Here(Label(label)) => positions[label] = reversed.len(),
                Item::Plain(instruction) => reversed.push(instruction),
                Item::Jump(Label(to)) => match reversed.len() - positions[to] {
                    0 => {}
                    distance => reversed.push(ja(distance)),
                },
                Item::Branch { code, k, yes, no } => {
                    let distance =
                        |reversed: &Vec<_>, Label(to): Label| reversed.len() - positions[to];
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
    let mut layout = Layout::default();
    for program in programs {
        let next = layout.label();
        layout.copy(program, |layout, _, operation| {
            match operation {
                Operation::Return(0) => layout.jump(next),
                Operation::Return(_) => layout.put(Instruction::of(RET | K, 0)),
                Operation::ReturnA => {
                    let kept = layout.label();
                    layout.branch(JMP | JEQ | K, 0, next, kept);
                    layout.here(kept);
                    layout.put(Instruction::of(RET | K, 0));
                }
                _ => return false,
            }
            true
        });
        layout.here(next);
    }
    layout.put(Instruction::of(RET | K, snap_len));
    layout.finish()
}

/// Builds the program that returns at most `snap_len`, which is not 0.
pub(crate) fn limit(program: &Program, snap_len: u32) -> Result<Program, Invalid> {
    let mut layout = Layout::default();
    layout.copy(program, |layout, _, operation| match operation {
        Operation::Return(len) => {
            layout.put(Instruction::of(RET | K, len.min(snap_len)));
            true
        }
        Operation::ReturnA => {
            let (cut, whole) = (layout.label(), layout.label());
            layout.branch(JMP | JGT | K, snap_len, cut, whole);
            layout.here(cut);
            layout.put(Instruction::of(RET | K, snap_len));
            layout.here(whole);
            layout.put(Instruction::of(RET | crate::instruction::A, 0));
            true
        }
        _ => false,
    });
    layout.finish()
}
