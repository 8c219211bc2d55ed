//! Arbitrary bytes as a program and a packet, for fuzzing and random tests.

use crate::ebpf;
use crate::instruction::Instruction;
use crate::program::Program;
use crate::run::Ancillary;

/// Codes of most random programs. Other codes are rejected at once, so they test little.
const CODES: [u16; 54] = [
    0x00, 0x80, 0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x60, 0x01, 0x81, 0x61, 0xb1, 0x02, 0x03, 0x04,
    0x0c, 0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3c, 0x44, 0x4c, 0x54, 0x5c, 0x64, 0x6c, 0x74, 0x7c, 0x84,
    0x94, 0x9c, 0xa4, 0xac, 0x05, 0x15, 0x1d, 0x25, 0x2d, 0x35, 0x3d, 0x45, 0x4d, 0x06, 0x16, 0x07,
    0x87, 0x28, 0x15, 0x30, 0x20, 0x45,
];

/// Builds a program from four bytes per instruction: code, two distances, constant. Most seeds yield a valid program.
pub fn program(seed: &[u8]) -> Option<Program> {
    let mut instructions: Vec<_> = seed
        .chunks_exact(4)
        .map(|bytes| {
            let [code, jt, jf, k] = [bytes[0], bytes[1], bytes[2], bytes[3]];
            let code = CODES[usize::from(code) % CODES.len()];
            Instruction::new(code, jt % 8, jf % 8, constant(code, jf, k))
        })
        .collect();
    // Jumps may lead to the last eight instructions. All memory is written first, so that reads of it are allowed.
    instructions.splice(0..0, (0..15).map(|word| Instruction::new(0x02, 0, 0, word)));
    let return_a = Instruction::new(0x16, 0, 0, 0);
    instructions.extend([return_a; 9]);
    Program::new(instructions).ok()
}

/// Returns a constant that is valid for the code. For loads: near and far offsets, and sometimes a kernel value.
fn constant(code: u16, more: u8, k: u8) -> u32 {
    let small = u32::from(k);
    match code {
        0x02 | 0x03 | 0x60 | 0x61 => small % 15,
        0x05 => small % 8,
        0x34 | 0x94 => small | 1,
        0x64 | 0x74 => small % 32,
        0x20 | 0x28 | 0x30 if k >= 252 => 0xffff_f000 + u32::from(more % 16) * 4,
        0x20 | 0x28 | 0x30 if k >= 250 => 0xffff_ef00 + u32::from(more),
        _ if k >= 246 => u32::MAX - u32::from(more),
        _ if k >= 236 => small << (more % 32),
        _ => small % 48,
    }
}

/// Reads `bytes` as a program (in both of its forms) followed by a packet, and exercises every operation of this crate.
///
/// # Panics
/// A law of this crate is broken: a printed program is not read back the same, a limited one keeps more than its limit,
/// or one for a tap differs on an untagged frame.
pub fn exercise(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = Program::parse_decimal(text);
    }
    let (seed, packet) = bytes.split_at(bytes.len() / 2);
    let raw = seed.chunks_exact(8).map(|raw| {
        let word = |at: usize| u16::from_ne_bytes([raw[at], raw[at + 1]]);
        let k = u32::from(word(4)) << 16 | u32::from(word(6));
        Instruction::new(word(0), raw[2], raw[3], k)
    });
    let raw = Program::new(raw.collect()).ok();
    for program in [raw, program(seed)].into_iter().flatten() {
        laws(&program, packet);
    }
}

fn laws(program: &Program, packet: &[u8]) {
    let ancillary = Ancillary::default();
    let len = packet.len() as u32;
    let verdict = program.accepts(packet, len, &ancillary);

    let printed = Program::parse_decimal(&program.decimal());
    assert_eq!(printed.as_ref(), Ok(program));
    let _ = (program.listing(), program.c_array());

    if let Ok(limited) = program.limited(60) {
        assert_eq!(limited.accepts(packet, len, &ancillary), verdict.min(60));
    }
    if let Ok(tap) = program.for_tap() {
        assert_eq!(tap.accepts(packet, len, &ancillary), verdict);
    }
    let _ = ebpf::translate(program, &ebpf::TranslateOptions::verdict(2));
}
