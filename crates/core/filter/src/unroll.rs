//! Loop unrolling: libpcap compiles `protochain` to a backward jump, which neither the kernel nor a [`Program`] allows.
//!
//! [`Program`]: crate::Program

use crate::instruction::{Instruction, JMP, RET};
use crate::program::MAX_INSTRUCTIONS;

/// Maximum number of rounds of a loop: extension headers of a chain.
const ROUNDS: usize = 16;
/// `JMP | JA`: unconditional jump by `k`, read as a signed number.
const ALWAYS: u16 = JMP;

fn jumps_back(instruction: &Instruction) -> bool {
    instruction.code == ALWAYS && instruction.k.cast_signed() < 0
}

/// Returns the same program without backward jumps: one copy per round, and each backward jump leads into the next
/// copy. Rejects a frame that needs more than 16 rounds, or more than fit into a program.
#[must_use]
pub fn unroll(list: Vec<Instruction>) -> Vec<Instruction> {
    if list.is_empty() || !list.iter().any(jumps_back) {
        return list;
    }
    let rounds = (MAX_INSTRUCTIONS / list.len()).clamp(1, ROUNDS);
    let len = i32::try_from(list.len()).unwrap_or(i32::MAX);
    let mut out = Vec::with_capacity(rounds * list.len());
    for round in 1..=rounds {
        out.extend(list.iter().map(|instruction| {
            let ahead = instruction.k.cast_signed().saturating_add(len);
            match instruction {
                i if !jumps_back(i) => *i,
                // The jump leads to before the program; the check reports it.
                i if ahead < 0 => *i,
                _ if round == rounds => Instruction::without_jumps(RET, 0),
                _ => Instruction::without_jumps(ALWAYS, ahead.cast_unsigned()),
            }
        }));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ancillary, Program};

    /// Skips bytes that are 1, and keeps the frame if a 2 follows.
    fn walk() -> Vec<Instruction> {
        let i = Instruction::new;
        vec![
            i(0x01, 0, 0, 0),
            i(0x50, 0, 0, 0),
            i(0x15, 0, 4, 1),
            i(0x87, 0, 0, 0),
            i(0x04, 0, 0, 1),
            i(0x07, 0, 0, 0),
            i(0x05, 0, 0, (-6_i32).cast_unsigned()),
            i(0x15, 0, 1, 2),
            i(0x06, 0, 0, 7),
            i(0x06, 0, 0, 0),
        ]
    }

    #[test]
    fn a_loop_goes_its_rounds_and_no_more() {
        assert!(Program::new(walk()).is_err());
        let program = Program::new(unroll(walk())).unwrap();
        for ones in 0..40_usize {
            let mut frame = vec![1_u8; ones];
            frame.extend([2, 9]);
            let len = frame.len() as u32;
            let kept = program.accepts(&frame, len, &Ancillary::default());
            assert_eq!(kept, if ones < ROUNDS { 7 } else { 0 }, "{ones}");
            frame[ones] = 3;
            assert_eq!(program.accepts(&frame, len, &Ancillary::default()), 0);
        }
    }

    #[test]
    fn what_has_no_loop_stays_and_what_leads_nowhere_is_still_refused() {
        let straight = vec![
            Instruction::without_jumps(0x05, 0),
            Instruction::without_jumps(RET, 1),
        ];
        assert_eq!(unroll(straight.clone()), straight);
        assert_eq!(unroll(Vec::new()), []);
        let far = vec![
            Instruction::without_jumps(0x05, (-9_i32).cast_unsigned()),
            Instruction::without_jumps(RET, 1),
        ];
        assert!(Program::new(unroll(far)).is_err());
    }
}
