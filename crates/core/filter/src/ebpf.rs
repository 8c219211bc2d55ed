//! Translation to eBPF: a complete XDP program that runs the filter and applies an action to matching frames.
//!
//! Only generates instructions. The code that loads them owns the maps and passes their descriptors.
//!
//! An XDP program does not see a VLAN tag that the hardware has taken out: VLAN stripping must be off on the interface
//! (`ethtool -K eth1 rxvlan off`). Of a frame in several buffers it sees the first; loads beyond that reject the frame.

use crate::instruction as classic;
use crate::operation::{Arithmetic, KernelValue, Operand, Operation, Size, Test};
use crate::program::Program;

/// linux/bpf.h: XDP_PASS, pass the frame to the kernel.
pub const PASS: u32 = 2;
/// linux/bpf.h: XDP_DROP.
pub const DROP: u32 = 1;

/// Magic number of a receive stamp. A stamp is 16 bytes of metadata in front of a frame: u64 monotonic ns, u32 magic
/// number, u32 unused, in the byte order of the machine.
pub const STAMP_MAGIC: u32 = 0x7762_5844;

/// Bytes of a value in the counters' map: u64 frames seen, u64 frames matched.
pub const COUNTERS_LEN: u32 = 16;

/// One eBPF instruction in the byte order of the machine: `struct bpf_insn` of linux/bpf.h. `BPF_PROG_LOAD` takes a
/// slice of these. Before kernel 5.8, only programs with a GPL-compatible licence may read the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Insn(pub u64);

impl Insn {
    fn new(code: u8, to: u8, from: u8, offset: i16, constant: i32) -> Self {
        // The registers are bit fields, which C lays out by byte order.
        let registers = if cfg!(target_endian = "little") {
            to | from << 4
        } else {
            to << 4 | from
        };
        let [o0, o1] = offset.to_ne_bytes();
        let [c0, c1, c2, c3] = constant.to_ne_bytes();
        Self(u64::from_ne_bytes([
            code, registers, o0, o1, c0, c1, c2, c3,
        ]))
    }

    fn with_offset(self, offset: i16) -> Self {
        let mut bytes = self.0.to_ne_bytes();
        bytes[2..4].copy_from_slice(&offset.to_ne_bytes());
        Self(u64::from_ne_bytes(bytes))
    }
}

/// Action for matching frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Redirect to the socket of the receive queue. Without a socket the frame passes to the kernel and is not counted.
    Redirect {
        /// Descriptor of a `BPF_MAP_TYPE_XSKMAP` with u32 keys.
        sockets_fd: i32,
        /// Put a receive stamp ([`STAMP_MAGIC`]) in front of the frame if there is room.
        stamp: bool,
    },
    /// Return this verdict: [`PASS`], [`DROP`] and so on.
    Verdict(u32),
}

/// Options of the generated program. Frames that do not match pass to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TranslateOptions {
    /// Action for matching frames.
    pub action: Action,
    /// Descriptor of a `BPF_MAP_TYPE_PERCPU_ARRAY` with a value of [`COUNTERS_LEN`] bytes for each receive queue.
    /// "Matched" counts the frames to which the action was applied. Frames of a queue without a value pass to the
    /// kernel.
    pub counters_fd: Option<i32>,
    /// True if the program is loaded with `BPF_F_XDP_HAS_FRAGS`: lengths then cover all buffers (kernel 5.18 and
    /// later).
    pub multi_buffer: bool,
}

impl TranslateOptions {
    /// Options that redirect matching frames to the sockets of the map `sockets_fd`, with a receive stamp.
    pub const fn redirect(sockets_fd: i32) -> Self {
        Self {
            action: Action::Redirect {
                sockets_fd,
                stamp: true,
            },
            counters_fd: None,
            multi_buffer: false,
        }
    }

    /// Options that return `verdict` for matching frames.
    pub const fn verdict(verdict: u32) -> Self {
        Self {
            action: Action::Verdict(verdict),
            counters_fd: None,
            multi_buffer: false,
        }
    }
}

/// A filter that cannot run as an XDP program; it must run in user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TranslateError {
    /// The filter reads a value that the kernel knows only behind XDP.
    #[error(
        "instruction {at} of the filter needs {value:?} from the kernel, which XDP programs cannot read; filter in user space or use the packet driver"
    )]
    KernelValue {
        /// Position of the instruction.
        at: usize,
        /// Value that it reads.
        value: KernelValue,
    },
    /// A jump becomes longer than an eBPF jump can be.
    #[error("the filter ({0} instructions) is too long for an XDP program; filter in user space")]
    TooLong(usize),
}

/// Generates the XDP program that runs `program` on each frame.
///
/// The verdict is that of [`Program::accepts`] on the whole frame (keep or reject, not how much to keep) if loads stay
/// within the first 65,535 bytes. Loads beyond that reject the frame.
///
/// # Errors
/// The program reads values that only the kernel knows, or is too long.
pub fn translate(
    program: &Program,
    options: &TranslateOptions,
) -> Result<Vec<Insn>, TranslateError> {
    let operations = within_reach(program)?;
    let reachable = reachable(&operations);
    let mut writer = EbpfWriter {
        insns: Vec::with_capacity(operations.len() * 4 + 48),
        starts: vec![0; operations.len()],
        jumps: Vec::new(),
        options: *options,
    };
    writer.prologue();
    for (at, operation) in operations.iter().enumerate() {
        // The verifier refuses unreachable instructions.
        if reachable[at] {
            writer.starts[at] = writer.insns.len();
            writer.operation(*operation, at + 1);
        }
    }
    writer
        .epilogue()
        .ok_or(TranslateError::TooLong(operations.len()))
}

/// Largest packet offset that the verifier accepts: MAX_PACKET_OFF.
const REACH: u32 = 0xffff;

/// Returns the operations, with a rejection in place of those that no packet can satisfy.
fn within_reach(program: &Program) -> Result<Vec<Operation>, TranslateError> {
    let operations = program.operations.iter().enumerate();
    operations
        .map(|(at, operation)| match *operation {
            Operation::Absolute(size, offset) | Operation::Indirect(size, offset)
                if offset > REACH - size.bytes() =>
            {
                Ok(Operation::Return(0))
            }
            Operation::HeaderLenX(REACH..) => Ok(Operation::Return(0)),
            Operation::Kernel(value) if value != KernelValue::XorX => {
                Err(TranslateError::KernelValue { at, value })
            }
            operation => Ok(operation),
        })
        .collect()
}

fn reachable(operations: &[Operation]) -> Vec<bool> {
    let mut reachable = vec![false; operations.len()];
    reachable[0] = true;
    for (at, operation) in operations.iter().enumerate() {
        if !reachable[at] {
            continue;
        }
        match *operation {
            Operation::Return(_) | Operation::ReturnA => {}
            Operation::Jump(to) => reachable[usize::from(to)] = true,
            Operation::Branch { yes, no, .. } => {
                reachable[usize::from(yes)] = true;
                reachable[usize::from(no)] = true;
            }
            _ => reachable[at + 1] = true,
        }
    }
    reachable
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Operation(usize),
    Match,
    Reject,
}

// Registers. The filter itself calls no functions, so X may live in a register that calls overwrite.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const X: u8 = 4;
const CONTEXT: u8 = 6;
const DATA: u8 = 7;
const END: u8 = 8;
const A: u8 = 9;
const FRAME: u8 = 10;

// Stack layout from the top: memory words, pointer to the counters, map key, frame length.
const MEMORY: i16 = -64;
const COUNTERS: i16 = -72;
const KEY: i16 = -76;
const FRAME_LEN: i16 = -80;

// struct xdp_md of linux/bpf.h.
const CONTEXT_DATA: i16 = 0;
const CONTEXT_DATA_END: i16 = 4;
const CONTEXT_DATA_META: i16 = 8;
const CONTEXT_QUEUE: i16 = 16;

// Complete codes of linux/bpf.h.
const LOAD_BYTE: u8 = 0x71;
const LOAD_HALF: u8 = 0x69;
const LOAD_WORD: u8 = 0x61;
const LOAD_DOUBLE: u8 = 0x79;
const STORE_WORD: u8 = 0x63;
const STORE_DOUBLE: u8 = 0x7b;
const STORE_WORD_CONSTANT: u8 = 0x62;
const LOAD_CONSTANT_64: u8 = 0x18;
const TO_BIG_ENDIAN: u8 = 0xdc;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const JUMP: u8 = 0x05;
const JUMP_EQUAL_64: u8 = 0x15;
const JUMP_NOT_EQUAL_64: u8 = 0x55;
const JUMP_GREATER_64: u8 = 0x25;
const JUMP_GREATER_64_REGISTER: u8 = 0x2d;
const MOVE_64: u8 = 0xbf;
const ADD_64: u8 = 0x0f;
const ADD_64_CONSTANT: u8 = 0x07;
const SUB_64: u8 = 0x1f;
const MOVE_32: u8 = 0xbc;
const MOVE_32_CONSTANT: u8 = 0xb4;

// Arithmetic and tests on 32 bits use the classic codes in their upper half.
const ALU_32: u8 = 0x04;
const JUMP_32: u8 = 0x06;
const REGISTER: u8 = 0x08;
const NOT_EQUAL: u8 = 0x50;
const LESS: u8 = 0xa0;
const LESS_OR_EQUAL: u8 = 0xb0;

// BPF_PSEUDO_MAP_FD: the constant is a descriptor.
const MAP_FD: u8 = 1;

#[derive(Clone, Copy)]
enum KernelCall {
    MapLookup = 1,
    MonotonicNs = 5,
    RedirectMap = 51,
    AdjustMeta = 54,
    BufferLen = 188,
}

struct EbpfWriter {
    insns: Vec<Insn>,
    /// Start of each operation.
    starts: Vec<usize>,
    /// Jumps to be completed with their offset.
    jumps: Vec<(usize, Target)>,
    options: TranslateOptions,
}

impl EbpfWriter {
    fn emit(&mut self, code: u8, to: u8, from: u8, offset: i16, constant: i32) {
        self.insns.push(Insn::new(code, to, from, offset, constant));
    }

    fn copy(&mut self, to: u8, from: u8) {
        self.emit(MOVE_64, to, from, 0, 0);
    }

    fn constant(&mut self, to: u8, value: u32) {
        self.emit(MOVE_32_CONSTANT, to, 0, 0, value.cast_signed());
    }

    fn call(&mut self, call: KernelCall) {
        self.emit(CALL, 0, 0, 0, call as i32);
    }

    fn map(&mut self, to: u8, fd: i32) {
        self.emit(LOAD_CONSTANT_64, to, MAP_FD, 0, fd);
        self.emit(0, 0, 0, 0, 0);
    }

    /// Emits a jump and records that its offset is missing.
    fn jump_to(&mut self, code: u8, left: u8, right: u8, constant: u32, target: Target) {
        self.jumps.push((self.insns.len(), target));
        self.emit(code, left, right, 0, constant.cast_signed());
    }

    /// Emits a forward jump within one operation; [`Writer::land`] sets its target.
    fn skip(&mut self, code: u8, left: u8, right: u8, constant: u32) -> usize {
        self.emit(code, left, right, 0, constant.cast_signed());
        self.insns.len() - 1
    }

    fn land(&mut self, jump: usize) {
        let distance = self.insns.len() - jump - 1;
        self.insns[jump] = self.insns[jump].with_offset(distance as i16);
    }

    fn prologue(&mut self) {
        self.copy(CONTEXT, R1);
        if let Some(fd) = self.options.counters_fd {
            self.emit(LOAD_WORD, R1, CONTEXT, CONTEXT_QUEUE, 0);
            self.emit(STORE_WORD, FRAME, R1, KEY, 0);
            self.look_up(fd);
            self.jump_to(JUMP_EQUAL_64, R0, 0, 0, Target::Reject);
            self.emit(STORE_DOUBLE, FRAME, R0, COUNTERS, 0);
            self.count(R0, 0);
        }
        if self.options.multi_buffer {
            self.copy(R1, CONTEXT);
            self.call(KernelCall::BufferLen);
            self.emit(STORE_WORD, FRAME, R0, FRAME_LEN, 0);
        }
        self.emit(LOAD_WORD, DATA, CONTEXT, CONTEXT_DATA, 0);
        self.emit(LOAD_WORD, END, CONTEXT, CONTEXT_DATA_END, 0);
        self.constant(A, 0);
        self.constant(X, 0);
    }

    /// Sets R0 to the address of the value in the map `fd` for the key on the stack, or 0.
    fn look_up(&mut self, fd: i32) {
        self.copy(R2, FRAME);
        self.emit(ADD_64_CONSTANT, R2, 0, 0, KEY.into());
        self.map(R1, fd);
        self.call(KernelCall::MapLookup);
    }

    /// Adds one to the u64 at `counters` + `offset`. The map is per CPU.
    fn count(&mut self, counters: u8, offset: i16) {
        self.emit(LOAD_DOUBLE, R2, counters, offset, 0);
        self.emit(ADD_64_CONSTANT, R2, 0, 0, 1);
        self.emit(STORE_DOUBLE, counters, R2, offset, 0);
    }

    fn count_match(&mut self) {
        if self.options.counters_fd.is_some() {
            self.emit(LOAD_DOUBLE, R1, FRAME, COUNTERS, 0);
            self.count(R1, 8);
        }
    }

    fn operation(&mut self, operation: Operation, next: usize) {
        match operation {
            Operation::Constant(k) => self.constant(A, k),
            Operation::ConstantX(k) => self.constant(X, k),
            Operation::FrameLen => self.frame_len(A),
            Operation::FrameLenX => self.frame_len(X),
            Operation::Absolute(size, offset) => {
                self.point_at(size, offset);
                self.load(A, size);
            }
            Operation::Indirect(size, offset) => self.indirect(size, offset),
            Operation::HeaderLenX(offset) => {
                self.point_at(Size::Byte, offset);
                self.load(X, Size::Byte);
                self.emit(ALU_32 | classic::AND as u8, X, 0, 0, 0x0f);
                self.emit(ALU_32 | classic::LSH as u8, X, 0, 0, 2);
            }
            Operation::Kernel(_) => {
                self.emit(ALU_32 | REGISTER | classic::XOR as u8, A, X, 0, 0);
            }
            Operation::Memory(word) => self.emit(LOAD_WORD, A, FRAME, place(word), 0),
            Operation::MemoryX(word) => self.emit(LOAD_WORD, X, FRAME, place(word), 0),
            Operation::Store(word) => self.emit(STORE_WORD, FRAME, A, place(word), 0),
            Operation::StoreX(word) => self.emit(STORE_WORD, FRAME, X, place(word), 0),
            Operation::Arithmetic(arithmetic, operand) => self.arithmetic(arithmetic, operand),
            Operation::Negate => self.emit(ALU_32 | classic::NEG as u8, A, 0, 0, 0),
            Operation::AToX => self.emit(MOVE_32, X, A, 0, 0),
            Operation::XToA => self.emit(MOVE_32, A, X, 0, 0),
            Operation::Jump(to) => self.go(usize::from(to), next),
            Operation::Branch {
                test,
                operand,
                yes,
                no,
            } => self.branch(test, operand, yes.into(), no.into(), next),
            Operation::Return(0) => self.jump_to(JUMP, 0, 0, 0, Target::Reject),
            Operation::Return(_) => self.jump_to(JUMP, 0, 0, 0, Target::Match),
            Operation::ReturnA => {
                self.jump_to(JUMP_EQUAL_64, A, 0, 0, Target::Reject);
                self.jump_to(JUMP, 0, 0, 0, Target::Match);
            }
        }
    }

    fn frame_len(&mut self, to: u8) {
        if self.options.multi_buffer {
            return self.emit(LOAD_WORD, to, FRAME, FRAME_LEN, 0);
        }
        self.copy(R1, END);
        self.emit(SUB_64, R1, DATA, 0, 0);
        self.emit(MOVE_32, to, R1, 0, 0);
    }

    /// Sets R2 to the address of `offset` in the frame.
    fn point_at(&mut self, size: Size, offset: u32) {
        self.copy(R2, DATA);
        if offset > 0 {
            self.emit(ADD_64_CONSTANT, R2, 0, 0, offset.cast_signed());
        }
        self.check_end(size);
    }

    /// Rejects the frame unless `size` bytes at R2 are inside it.
    fn check_end(&mut self, size: Size) {
        self.copy(R3, R2);
        self.emit(ADD_64_CONSTANT, R3, 0, 0, size.bytes().cast_signed());
        self.jump_to(JUMP_GREATER_64_REGISTER, R3, END, 0, Target::Reject);
    }

    fn load(&mut self, to: u8, size: Size) {
        match size {
            Size::Byte => self.emit(LOAD_BYTE, to, R2, 0, 0),
            Size::Half => {
                self.emit(LOAD_HALF, to, R2, 0, 0);
                self.emit(TO_BIG_ENDIAN, to, 0, 0, 16);
            }
            Size::Word => {
                self.emit(LOAD_WORD, to, R2, 0, 0);
                self.emit(TO_BIG_ENDIAN, to, 0, 0, 32);
            }
        }
    }

    fn indirect(&mut self, size: Size, offset: u32) {
        self.emit(MOVE_32, R1, X, 0, 0);
        let most = REACH - size.bytes() - offset;
        self.jump_to(JUMP_GREATER_64, R1, 0, most, Target::Reject);
        if offset > 0 {
            self.emit(ADD_64_CONSTANT, R1, 0, 0, offset.cast_signed());
        }
        self.copy(R2, DATA);
        self.emit(ADD_64, R2, R1, 0, 0);
        self.check_end(size);
        self.load(A, size);
    }

    fn arithmetic(&mut self, arithmetic: Arithmetic, operand: Operand) {
        let code = ALU_32
            | match arithmetic {
                Arithmetic::Add => classic::ADD,
                Arithmetic::Sub => classic::SUB,
                Arithmetic::Mul => classic::MUL,
                Arithmetic::Div => classic::DIV,
                Arithmetic::Mod => classic::MOD,
                Arithmetic::Or => classic::OR,
                Arithmetic::And => classic::AND,
                Arithmetic::Xor => classic::XOR,
                Arithmetic::Lsh => classic::LSH,
                Arithmetic::Rsh => classic::RSH,
            } as u8;
        match (operand, arithmetic) {
            (Operand::Constant(k), _) => self.emit(code, A, 0, 0, k.cast_signed()),
            (Operand::X, Arithmetic::Div | Arithmetic::Mod) => {
                self.jump_to(JUMP_EQUAL_64, X, 0, 0, Target::Reject);
                self.emit(code | REGISTER, A, X, 0, 0);
            }
            (Operand::X, Arithmetic::Lsh | Arithmetic::Rsh) => {
                let too_far = self.skip(JUMP_GREATER_64, X, 0, 31);
                self.emit(code | REGISTER, A, X, 0, 0);
                let done = self.skip(JUMP, 0, 0, 0);
                self.land(too_far);
                self.constant(A, 0);
                self.land(done);
            }
            (Operand::X, _) => self.emit(code | REGISTER, A, X, 0, 0),
        }
    }

    fn go(&mut self, to: usize, next: usize) {
        if to != next {
            self.jump_to(JUMP, 0, 0, 0, Target::Operation(to));
        }
    }

    fn branch(&mut self, test: Test, operand: Operand, yes: usize, no: usize, next: usize) {
        if yes == no {
            return self.go(yes, next);
        }
        let (right, constant, register) = match operand {
            Operand::Constant(k) => (0, k, 0),
            Operand::X => (X, 0, REGISTER),
        };
        let (holds, fails) = match test {
            Test::Equal => (classic::JEQ as u8, Some(NOT_EQUAL)),
            Test::Greater => (classic::JGT as u8, Some(LESS_OR_EQUAL)),
            Test::GreaterOrEqual => (classic::JGE as u8, Some(LESS)),
            Test::AnyBit => (classic::JSET as u8, None),
        };
        let code = JUMP_32 | register;
        match fails {
            Some(fails) if yes == next => {
                self.jump_to(code | fails, A, right, constant, Target::Operation(no));
            }
            _ => {
                self.jump_to(code | holds, A, right, constant, Target::Operation(yes));
                self.go(no, next);
            }
        }
    }

    /// Emits the endings for match and rejection, and fills in all jump offsets. Returns `None` if a jump is too long.
    fn epilogue(mut self) -> Option<Vec<Insn>> {
        let leads_to = |target| self.jumps.iter().any(|(_, to)| *to == target);
        let (matches, rejects) = (leads_to(Target::Match), leads_to(Target::Reject));
        let match_start = self.insns.len();
        let mut to_pass = None;
        if matches {
            match self.options.action {
                Action::Verdict(verdict) => {
                    self.count_match();
                    self.constant(R0, verdict);
                    self.emit(EXIT, 0, 0, 0, 0);
                }
                Action::Redirect { sockets_fd, stamp } => {
                    to_pass = Some(self.redirect(sockets_fd, stamp));
                }
            }
        }
        let pass = self.insns.len();
        if let Some(jump) = to_pass {
            self.land(jump);
        }
        if rejects || to_pass.is_some() {
            self.constant(R0, PASS);
            self.emit(EXIT, 0, 0, 0, 0);
        }
        for (at, target) in self.jumps {
            let target = match target {
                Target::Operation(operation) => self.starts[operation],
                Target::Match => match_start,
                Target::Reject => pass,
            };
            let distance = i16::try_from(target - at - 1).ok()?;
            self.insns[at] = self.insns[at].with_offset(distance);
        }
        Some(self.insns)
    }

    /// Emits the redirection. Returns the jump for a queue without a socket; the caller sets its target.
    fn redirect(&mut self, sockets_fd: i32, stamp: bool) -> usize {
        self.emit(LOAD_WORD, R1, CONTEXT, CONTEXT_QUEUE, 0);
        self.emit(STORE_WORD, FRAME, R1, KEY, 0);
        self.look_up(sockets_fd);
        let no_socket = self.skip(JUMP_EQUAL_64, R0, 0, 0);
        self.count_match();
        if stamp {
            self.stamp();
        }
        self.emit(LOAD_WORD, R2, CONTEXT, CONTEXT_QUEUE, 0);
        self.map(R1, sockets_fd);
        self.constant(R3, PASS);
        self.call(KernelCall::RedirectMap);
        self.emit(EXIT, 0, 0, 0, 0);
        no_socket
    }

    fn stamp(&mut self) {
        const LEN: i32 = 16;
        self.copy(R1, CONTEXT);
        // The argument has 64 bits; a 32-bit move would make it positive.
        self.emit(0xb7, R2, 0, 0, -LEN);
        self.call(KernelCall::AdjustMeta);
        let no_room = self.skip(JUMP_NOT_EQUAL_64, R0, 0, 0);
        self.call(KernelCall::MonotonicNs);
        self.emit(LOAD_WORD, R1, CONTEXT, CONTEXT_DATA_META, 0);
        self.emit(LOAD_WORD, R2, CONTEXT, CONTEXT_DATA, 0);
        self.copy(R3, R1);
        self.emit(ADD_64_CONSTANT, R3, 0, 0, LEN);
        let outside = self.skip(JUMP_GREATER_64_REGISTER, R3, R2, 0);
        self.emit(STORE_DOUBLE, R1, R0, 0, 0);
        self.emit(STORE_WORD_CONSTANT, R1, 0, 8, STAMP_MAGIC.cast_signed());
        self.emit(STORE_WORD_CONSTANT, R1, 0, 12, 0);
        self.land(no_room);
        self.land(outside);
    }
}

fn place(word: u8) -> i16 {
    MEMORY + 4 * i16::from(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Instruction;

    #[test]
    fn the_least_redirect() {
        // These are the six instructions of a program written by hand, behind a filter that keeps everything.
        let options = TranslateOptions {
            action: Action::Redirect {
                sockets_fd: 7,
                stamp: false,
            },
            ..TranslateOptions::redirect(7)
        };
        let insns = translate(&Program::accept_all(1), &options).unwrap();
        let end: Vec<_> = insns[insns.len() - 8..].to_vec();
        let expected = [
            Insn::new(0x61, 2, 6, 16, 0),
            Insn::new(0x18, 1, 1, 0, 7),
            Insn(0),
            Insn::new(0xb4, 3, 0, 0, 2),
            Insn::new(0x85, 0, 0, 0, 51),
            Insn::new(0x95, 0, 0, 0, 0),
            Insn::new(0xb4, 0, 0, 0, 2),
            Insn::new(0x95, 0, 0, 0, 0),
        ];
        assert_eq!(end, expected);
    }

    #[test]
    fn what_xdp_cannot_know_is_refused() {
        let program = Program::new(vec![
            KernelValue::VlanPresent.load(),
            Instruction::new(0x16, 0, 0, 0),
        ])
        .unwrap();
        let error = translate(&program, &TranslateOptions::verdict(DROP)).unwrap_err();
        assert_eq!(
            error,
            TranslateError::KernelValue {
                at: 0,
                value: KernelValue::VlanPresent
            }
        );
        assert!(error.to_string().contains("user space"), "{error}");
    }

    #[test]
    fn a_program_that_grows_too_long_is_refused() {
        // Indirect loads grow most; the first one is the farthest from the rejection.
        let mut list = vec![Instruction::new(0x40, 0, 0, 14); 4095];
        list.push(Instruction::new(6, 0, 0, 1));
        let program = Program::new(list).unwrap();
        assert_eq!(
            translate(&program, &TranslateOptions::verdict(DROP)),
            Err(TranslateError::TooLong(4096))
        );
    }
}
