//! Filters for the kernel's taps, which store the outer VLAN tag outside the bytes.
//!
//! The kernel (or the device) takes the outer tag out of a received frame before an `AF_PACKET` socket sees it, and
//! passes it as metadata. A filter compiled for whole frames then reads the wrong offsets. The rewritten filter first
//! checks whether a tag was taken out. If so, it runs a copy with loads that see the frame as if the tag still followed
//! the addresses.
//!
//! The kernel also differs from libpcap in three ways: it shifts by X modulo 32, lets X plus an offset wrap around, and
//! reserves offsets from 2^31 on for its own values. If a program could reach such a case, the rewritten one checks
//! first.

use crate::check::{Invalid, Problem};
use crate::instruction::{
    ABS, ADD, ALU, AND, B, H, IMM, IND, Instruction, JEQ, JGE, JGT, JMP, K, LD, LDX, LEN, LSH, MEM,
    MEMORY_WORDS, MISC, MSH, OR, RET, RSH, ST, STX, SUB, TAX, TXA, W, X,
};
use crate::layout::ProgramLayout;
use crate::operation::{Arithmetic, KernelValue, Operand, Operation, Size};
use crate::program::{MAX_INSTRUCTIONS, Program};

/// Offset of the tag in a whole frame: behind the two addresses.
const TAG: u32 = 12;
const TAG_LEN: u32 = 4;
const TAG_END: u32 = TAG + TAG_LEN;

/// A program that cannot be rewritten for a tap. The filter must run in user space, on the frame with its tag put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TapError {
    /// More instructions than the kernel takes.
    #[error(
        "the filter needs {0} instructions to see VLAN tags that the kernel removed from the \
         frame; at most {MAX_INSTRUCTIONS} are allowed"
    )]
    TooLong(usize),
    /// No word of memory is free for the rewritten program.
    #[error("the filter uses all 16 memory words; VLAN tags need one")]
    NoMemoryLeft,
}

/// Offset of a two-byte load that stands for the outer tag's control information in programs for
/// [`Program::for_live_tap`] and [`Program::for_whole_frames`]. Beyond the end of every frame.
pub const TAG_CONTROL: u32 = 0x7fff_0000;

impl Program {
    /// Combines two programs into one for an `AF_PACKET` socket: `untagged` for frames without a tag outside their
    /// bytes, `tagged` for the bytes of frames with one.
    ///
    /// # Errors
    /// The program is too long or too full to be rewritten.
    pub fn for_live_tap(untagged: &Self, tagged: &Self) -> Result<Self, TapError> {
        let mut layout = ProgramLayout::default();
        let scratch = [scratch(untagged), scratch(tagged)];
        if untagged == tagged {
            copy(&mut layout, untagged, scratch[0]?, View::AsIs);
            return finish(layout);
        }
        let (on_tagged, on_untagged) = (layout.label(), layout.label());
        layout.push(KernelValue::VlanPresent.load());
        layout.branch(JMP | JEQ | K, 0, on_untagged, on_tagged);
        // A is 0 here, as at the start.
        layout.here(on_untagged);
        copy(&mut layout, untagged, scratch[0]?, View::AsIs);
        layout.here(on_tagged);
        layout.push(Instruction::without_jumps(LD | IMM, 0));
        copy(&mut layout, tagged, scratch[1]?, View::TagBeside);
        finish(layout)
    }

    /// Combines two programs into one for frames with all tags in the bytes. Its verdicts are those of
    /// [`for_live_tap`](Self::for_live_tap) on the same frames as the kernel presents them: without an outer tag of
    /// 802.1Q or 802.1ad.
    ///
    /// # Errors
    /// The program is too long or too full to be rewritten.
    pub fn for_whole_frames(untagged: &Self, tagged: &Self) -> Result<Self, TapError> {
        if untagged == tagged && !tagged.operations.iter().any(sees_the_tag) {
            return Ok(untagged.clone());
        }
        let mut layout = ProgramLayout::default();
        let (on_tagged, on_untagged) = (layout.label(), layout.label());
        layout.push(Instruction::without_jumps(LD | ABS | H, TAG));
        for tpid in [0x8100, 0x88a8] {
            let next = layout.label();
            layout.branch(JMP | JEQ | K, tpid, on_tagged, next);
            layout.here(next);
        }
        layout.jump(on_untagged);
        for (label, program, view) in [
            (on_untagged, untagged, View::AsIs),
            (on_tagged, tagged, View::TagInBytes),
        ] {
            layout.here(label);
            layout.push(Instruction::without_jumps(LD | IMM, 0));
            copy(&mut layout, program, scratch(program)?, view);
        }
        finish(layout)
    }

    /// Returns the program for an `AF_PACKET` socket of an Ethernet interface, where `self` is a program for whole
    /// frames. It gives the verdict of `self` on the frame with the tag in its bytes, although the kernel stores the
    /// tag separately. On an untagged frame it makes the kernel give the verdict that `self` gives here.
    ///
    /// The kernel keeps as many bytes as the program returns, counted without the tag. A caller that puts the tag back
    /// and has a snap length must cut the frame afterwards.
    ///
    /// # Errors
    /// The program is too long or too full to be rewritten.
    pub fn for_tap(&self) -> Result<Self, TapError> {
        let far_x = far_x(&self.operations);
        let sees_the_tag = self.operations.iter().any(sees_the_tag);
        let mut both = self.operations.iter().zip(&far_x);
        if !sees_the_tag && !both.any(|(operation, far_x)| differs(*operation, *far_x)) {
            return Ok(self.clone());
        }
        let scratch = scratch(self)?;
        let mut layout = ProgramLayout::default();
        if sees_the_tag {
            let (tagged, untagged) = (layout.label(), layout.label());
            layout.push(KernelValue::VlanPresent.load());
            layout.branch(JMP | JEQ | K, 0, untagged, tagged);
            // A is 0 here, as at the start.
            layout.here(untagged);
            copy(&mut layout, self, scratch, View::AsIs);
            layout.here(tagged);
            layout.push(Instruction::without_jumps(LD | IMM, 0));
        }
        let view = if sees_the_tag {
            View::TagRemoved
        } else {
            View::AsIs
        };
        copy(&mut layout, self, scratch, view);
        finish(layout)
    }
}

/// Place of the outer tag of a frame, and where the program expects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    /// The program sees the bytes as they are.
    AsIs,
    /// The tag is outside the bytes, and the program expects it in the bytes.
    TagRemoved,
    /// The tag is outside the bytes, as the program expects.
    TagBeside,
    /// The tag is in the bytes, and the program expects it outside.
    TagInBytes,
}

/// Returns a word of memory that the program does not use.
fn scratch(program: &Program) -> Result<u32, TapError> {
    let is_used = |word: u32| program.operations.iter().any(|used| uses(*used, word));
    (0..MEMORY_WORDS)
        .find(|word| !is_used(*word))
        .ok_or(TapError::NoMemoryLeft)
}

/// Copies a program, rewritten for the frames on which it will run.
fn copy(layout: &mut ProgramLayout, program: &Program, scratch: u32, view: View) {
    let far_x = far_x(&program.operations);
    layout.copy(program, |layout, at, operation| {
        let mut emitter = Emitter {
            layout,
            scratch,
            far_x: far_x[at],
        };
        emitter.guarded(operation)
            || match view {
                View::AsIs => false,
                View::TagRemoved => emitter.tagged(operation),
                View::TagBeside => emitter.control_beside(operation),
                View::TagInBytes => emitter.behind_tag(operation),
            }
    });
}

fn finish(layout: ProgramLayout) -> Result<Program, TapError> {
    layout.finish().map_err(|error| match error {
        Invalid {
            problem: Problem::TooLong(len),
            ..
        } => TapError::TooLong(len),
        error => unreachable!("the rewritten program keeps to the rules: {error}"),
    })
}

/// Last offset that refers to the frame.
const LAST_OFFSET: u32 = i32::MAX.cast_unsigned();

/// For each operation: true if X may be so large that X plus an offset leaves the frame's range of offsets. Jumps only
/// lead forward, so one pass sees every path.
fn far_x(operations: &[Operation]) -> Vec<bool> {
    let mut far_at = vec![false; operations.len()];
    let mut far = false;
    for (at, operation) in operations.iter().enumerate() {
        far |= far_at[at];
        far_at[at] = far;
        match *operation {
            Operation::ConstantX(k) => far = k > LAST_OFFSET / 2,
            Operation::HeaderLenX(_) => far = false,
            Operation::AToX | Operation::MemoryX(_) | Operation::FrameLenX => far = true,
            Operation::Jump(to) => {
                far_at[usize::from(to)] |= far;
                far = false;
            }
            Operation::Branch { yes, no, .. } => {
                far_at[usize::from(yes)] |= far;
                far_at[usize::from(no)] |= far;
                far = false;
            }
            _ => {}
        }
    }
    far_at
}

/// Returns true if the kernel may execute the operation differently than libpcap.
fn differs(operation: Operation, far_x: bool) -> bool {
    match operation {
        Operation::Absolute(_, offset) | Operation::HeaderLenX(offset) => offset > LAST_OFFSET,
        Operation::Indirect(_, offset) => far_x || offset > LAST_OFFSET / 2,
        Operation::Arithmetic(Arithmetic::Lsh | Arithmetic::Rsh, Operand::X) => true,
        _ => false,
    }
}

fn sees_the_tag(operation: &Operation) -> bool {
    match *operation {
        Operation::Absolute(size, offset) => !before_tag(size, offset),
        Operation::HeaderLenX(offset) => !before_tag(Size::Byte, offset),
        Operation::Indirect(..) | Operation::FrameLen | Operation::FrameLenX => true,
        _ => false,
    }
}

fn before_tag(size: Size, offset: u32) -> bool {
    offset.saturating_add(size.bytes()) <= TAG
}

fn uses(operation: Operation, word: u32) -> bool {
    match operation {
        Operation::Memory(used)
        | Operation::MemoryX(used)
        | Operation::Store(used)
        | Operation::StoreX(used) => u32::from(used) == word,
        _ => false,
    }
}

/// Emits the program, with the state that the rewriting of one operation needs.
struct Emitter<'a> {
    layout: &'a mut ProgramLayout,
    scratch: u32,
    far_x: bool,
}

impl Emitter<'_> {
    fn emit(&mut self, code: u16, k: u32) {
        self.layout.push(Instruction::without_jumps(code, k));
    }

    /// Guards an operation that the kernel would execute differently: rejects the frame, or emits a check first.
    /// Returns false if the operation itself is still needed, as for the load behind a check.
    fn guarded(&mut self, operation: Operation) -> bool {
        if !differs(operation, self.far_x) {
            return false;
        }
        match operation {
            Operation::Indirect(_, offset) if offset <= LAST_OFFSET => {
                let (outside, inside) = (self.layout.label(), self.layout.label());
                // A is free, because the load overwrites it.
                self.emit(MISC | TXA, 0);
                let most = LAST_OFFSET - offset;
                self.layout.branch(JMP | JGT | K, most, outside, inside);
                self.layout.here(outside);
                self.emit(RET | K, 0);
                self.layout.here(inside);
                false
            }
            Operation::Arithmetic(arithmetic, _) => {
                let (far, near, end) = (
                    self.layout.label(),
                    self.layout.label(),
                    self.layout.label(),
                );
                self.emit(ST, self.scratch);
                self.emit(MISC | TXA, 0);
                self.layout.branch(JMP | JGT | K, 31, far, near);
                self.layout.here(far);
                self.emit(LD | IMM, 0);
                self.layout.jump(end);
                self.layout.here(near);
                self.emit(LD | MEM, self.scratch);
                let shift = if arithmetic == Arithmetic::Lsh {
                    LSH
                } else {
                    RSH
                };
                self.emit(ALU | shift | X, 0);
                self.layout.here(end);
                true
            }
            _ => {
                self.emit(RET | K, 0);
                true
            }
        }
    }

    /// Rewrites an operation for bytes from which the tag was taken out.
    fn tagged(&mut self, operation: Operation) -> bool {
        if !sees_the_tag(&operation) {
            return false;
        }
        match operation {
            Operation::FrameLen => self.frame_len(),
            Operation::FrameLenX => self.keep_a(Self::frame_len),
            Operation::Absolute(size, offset) => self.absolute(size, offset),
            Operation::HeaderLenX(offset) if offset >= TAG_END => {
                self.emit(LDX | B | MSH, offset - TAG_LEN);
            }
            Operation::HeaderLenX(offset) => self.keep_a(|emitter| {
                emitter.absolute(Size::Byte, offset);
                emitter.emit(ALU | AND | K, 0x0f);
                emitter.emit(ALU | LSH | K, 2);
            }),
            Operation::Indirect(size, offset) => self.indirect(size, offset),
            _ => return false,
        }
        true
    }

    /// Loads the control information of a tag that is outside the bytes.
    fn control_beside(&mut self, operation: Operation) -> bool {
        let is_control = operation == Operation::Absolute(Size::Half, TAG_CONTROL);
        if is_control {
            self.layout.push(KernelValue::VlanTci.load());
        }
        is_control
    }

    /// Rewrites an operation that expects the tag outside the bytes for bytes that contain it.
    fn behind_tag(&mut self, operation: Operation) -> bool {
        if !sees_the_tag(&operation) {
            return false;
        }
        match operation {
            Operation::Absolute(Size::Half, TAG_CONTROL) => self.emit(LD | ABS | H, TAG + 2),
            Operation::Absolute(size, offset) => self.absolute_behind(size, offset),
            Operation::HeaderLenX(offset) => {
                self.emit(LDX | B | MSH, offset.saturating_add(TAG_LEN))
            }
            Operation::FrameLen => self.len_without_tag(),
            Operation::FrameLenX => self.keep_a(Self::len_without_tag),
            Operation::Indirect(size, offset) => self.indirect_behind(size, offset),
            _ => return false,
        }
        true
    }

    fn len_without_tag(&mut self) {
        self.emit(LD | W | LEN, 0);
        self.emit(ALU | SUB | K, TAG_LEN);
    }

    fn absolute_behind(&mut self, size: Size, offset: u32) {
        if before_tag(size, offset) {
            return self.emit(LD | ABS | size.code(), offset);
        }
        if offset >= TAG {
            return self.emit(LD | ABS | size.code(), offset.saturating_add(TAG_LEN));
        }
        // The load crosses the tag: assemble it in X byte by byte, the highest first.
        self.emit(STX, self.scratch);
        let end = offset + size.bytes();
        for at in offset..end {
            let place = if at < TAG { at } else { at + TAG_LEN };
            let below = end - at - 1;
            self.emit(LD | ABS | B, place);
            if below > 0 {
                self.emit(ALU | LSH | K, below * 8);
            }
            if at > offset {
                self.emit(ALU | OR | X, 0);
            }
            if below > 0 {
                self.emit(MISC | TAX, 0);
            }
        }
        self.emit(LDX | MEM, self.scratch);
    }

    fn indirect_behind(&mut self, size: Size, offset: u32) {
        let behind = LD | IND | size.code();
        if offset >= TAG {
            return self.emit(behind, offset.saturating_add(TAG_LEN));
        }
        // A is free, because the load overwrites it.
        let (beyond, not_beyond, end) = (
            self.layout.label(),
            self.layout.label(),
            self.layout.label(),
        );
        self.emit(MISC | TXA, 0);
        self.layout
            .branch(JMP | JGE | K, TAG - offset, beyond, not_beyond);
        self.layout.here(not_beyond);
        // Values of X with which the load crosses the tag.
        let first = (TAG + 1).saturating_sub(size.bytes() + offset);
        for x in first..TAG - offset {
            let (this, next) = (self.layout.label(), self.layout.label());
            self.layout.branch(JMP | JEQ | K, x, this, next);
            self.layout.here(this);
            self.absolute_behind(size, x + offset);
            self.layout.jump(end);
            self.layout.here(next);
        }
        self.emit(behind, offset);
        self.layout.jump(end);
        self.layout.here(beyond);
        self.emit(behind, offset + TAG_LEN);
        self.layout.here(end);
    }

    fn frame_len(&mut self) {
        self.emit(LD | W | LEN, 0);
        self.emit(ALU | ADD | K, TAG_LEN);
    }

    /// Sets X to the value that `compute` leaves in A, and preserves A.
    fn keep_a(&mut self, compute: impl FnOnce(&mut Self)) {
        self.emit(ST, self.scratch);
        compute(self);
        self.emit(MISC | TAX, 0);
        self.emit(LD | MEM, self.scratch);
    }

    fn absolute(&mut self, size: Size, offset: u32) {
        if before_tag(size, offset) {
            return self.emit(LD | ABS | size.code(), offset);
        }
        if offset >= TAG_END {
            return self.emit(LD | ABS | size.code(), offset - TAG_LEN);
        }
        let end = offset + size.bytes();
        let piece = piece_len(offset, end);
        if offset + piece == end {
            return self.piece(offset, piece);
        }
        // Assemble the value in X from several pieces, the highest first.
        self.emit(STX, self.scratch);
        let mut at = offset;
        while at < end {
            let piece = piece_len(at, end);
            self.piece(at, piece);
            let below = end - (at + piece);
            if below > 0 {
                self.emit(ALU | LSH | K, below * 8);
            }
            if at > offset {
                self.emit(ALU | OR | X, 0);
            }
            if below > 0 {
                self.emit(MISC | TAX, 0);
            }
            at += piece;
        }
        self.emit(LDX | MEM, self.scratch);
    }

    /// Loads one or two bytes that lie entirely before the tag, in one half of it, or behind it.
    fn piece(&mut self, offset: u32, len: u32) {
        let size = if len == 2 { H } else { B };
        match offset {
            ..TAG => self.emit(LD | ABS | size, offset),
            TAG_END.. => self.emit(LD | ABS | size, offset - TAG_LEN),
            _ => {
                let half = if offset < TAG + 2 {
                    KernelValue::VlanTpid
                } else {
                    KernelValue::VlanTci
                };
                self.layout.push(half.load());
                match (len, offset % 2) {
                    (1, 0) => self.emit(ALU | RSH | K, 8),
                    (1, _) => self.emit(ALU | AND | K, 0xff),
                    _ => {}
                }
            }
        }
    }

    fn indirect(&mut self, size: Size, offset: u32) {
        if offset >= TAG_END {
            return self.emit(LD | IND | size.code(), offset - TAG_LEN);
        }
        // A is free, because the load overwrites it.
        let (below, across, beyond, end) = (
            self.layout.label(),
            self.layout.label(),
            self.layout.label(),
            self.layout.label(),
        );
        let not_beyond = self.layout.label();
        self.emit(MISC | TXA, 0);
        self.layout
            .branch(JMP | JGE | K, TAG_END - offset, beyond, not_beyond);

        self.layout.here(not_beyond);
        // Smallest X with which the load reaches the tag.
        let first = (TAG + 1).saturating_sub(size.bytes() + offset);
        if first > 0 {
            self.layout.branch(JMP | JGT | K, first - 1, across, below);
            self.layout.here(below);
            self.emit(LD | IND | size.code(), offset);
            self.layout.jump(end);
        }
        self.layout.here(across);
        let last = TAG_END - 1 - offset;
        for x in first..=last {
            let next = self.layout.label();
            if x < last {
                let this = self.layout.label();
                self.layout.branch(JMP | JEQ | K, x, this, next);
                self.layout.here(this);
            }
            self.absolute(size, x + offset);
            self.layout.jump(end);
            self.layout.here(next);
        }

        self.layout.here(beyond);
        if offset >= TAG_LEN {
            self.emit(LD | IND | size.code(), offset - TAG_LEN);
        } else {
            // Offsets cannot be negative, so subtract from X.
            self.emit(STX, self.scratch);
            self.emit(ALU | SUB | K, TAG_LEN - offset);
            self.emit(MISC | TAX, 0);
            self.emit(LD | IND | size.code(), 0);
            self.emit(LDX | MEM, self.scratch);
        }
        self.layout.here(end);
    }
}

fn piece_len(offset: u32, end: u32) -> u32 {
    let whole = end - offset >= 2;
    match offset {
        // The last byte before the tag and the second byte of each half are loaded alone.
        11 | 13 | 15 => 1,
        _ if whole => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ancillary;
    use proptest::prelude::*;

    fn keep_loaded(load: &[Instruction]) -> Program {
        let mut list = load.to_vec();
        list.push(Instruction::without_jumps(0x16, 0));
        Program::new(list).unwrap()
    }

    /// Returns the frame as a tap sees it.
    fn strip(frame: &[u8]) -> (Vec<u8>, Ancillary) {
        let stripped = [&frame[..12], &frame[16..]].concat();
        let ancillary = Ancillary {
            vlan_present: true,
            vlan_proto: u16::from_be_bytes([frame[12], frame[13]]),
            vlan_tci: u16::from_be_bytes([frame[14], frame[15]]),
            ..Ancillary::default()
        };
        (stripped, ancillary)
    }

    fn same_verdict(program: &Program, frame: &[u8]) {
        let tap = program.for_tap().unwrap();
        let len = frame.len() as u32;
        let (stripped, ancillary) = strip(frame);
        assert_eq!(
            tap.accepts(&stripped, len - 4, &ancillary),
            program.accepts(frame, len, &Ancillary::default()),
            "tagged, {program:?} became {tap:?}"
        );
        assert_eq!(
            tap.accepts(frame, len, &Ancillary::default()),
            program.accepts(frame, len, &Ancillary::default()),
            "untagged"
        );
    }

    #[test]
    fn every_load_sees_the_frame_with_its_tag() {
        let frame: Vec<u8> = (0..40).map(|n| 0x80 | n).collect();
        let far = [41, 0x7fff_ffff, 0x8000_0000, 0xffff_efff];
        for offset in (0..40).chain(far) {
            for size in [W, H, B] {
                same_verdict(
                    &keep_loaded(&[Instruction::without_jumps(LD | ABS | size, offset)]),
                    &frame,
                );
                for x in (0..24).chain([37, 0x7fff_ffff, 0xffff_ffe0, 0xffff_ffff]) {
                    let load = [
                        Instruction::without_jumps(LDX | IMM, x),
                        Instruction::without_jumps(LD | IND | size, offset),
                    ];
                    same_verdict(&keep_loaded(&load), &frame);
                    // X must be unchanged.
                    let then_x = [load[0], load[1], Instruction::without_jumps(MISC | TXA, 0)];
                    same_verdict(&keep_loaded(&then_x), &frame);
                }
            }
            let msh = [
                Instruction::without_jumps(LD | IMM, 5),
                Instruction::without_jumps(LDX | B | MSH, offset),
                Instruction::without_jumps(ALU | ADD | X, 0),
            ];
            same_verdict(&keep_loaded(&msh), &frame);
        }
        same_verdict(
            &keep_loaded(&[Instruction::without_jumps(LD | LEN, 0)]),
            &frame,
        );
        let len_x = [
            Instruction::without_jumps(LD | IMM, 1000),
            Instruction::without_jumps(LDX | LEN, 0),
            Instruction::without_jumps(ALU | ADD | X, 0),
        ];
        same_verdict(&keep_loaded(&len_x), &frame);
    }

    /// Checks that the tap's verdict on the frame without its tag equals the verdict on the whole frame.
    fn same_live(program: &Program, frame: &[u8]) {
        let other = Program::accept_all(7);
        let (stripped, ancillary) = strip(frame);
        let (len, none) = (frame.len() as u32, Ancillary::default());
        for (untagged, tagged) in [(&other, program), (program, program), (program, &other)] {
            let tap = Program::for_live_tap(untagged, tagged).unwrap();
            let whole = Program::for_whole_frames(untagged, tagged).unwrap();
            let found = [
                tap.accepts(&stripped, len - 4, &ancillary),
                whole.accepts(frame, len, &none),
            ];
            let expected = tagged.accepts(&stripped, len - 4, &none);
            assert_eq!(found, [expected; 2], "tagged, {program:?} became {whole:?}");
            let found = [
                tap.accepts(&stripped, len - 4, &none),
                whole.accepts(&stripped, len - 4, &none),
            ];
            let expected = untagged.accepts(&stripped, len - 4, &none);
            assert_eq!(
                found, [expected; 2],
                "untagged, {program:?} became {whole:?}"
            );
        }
    }

    #[test]
    fn live_loads_see_the_frame_without_its_tag() {
        let mut frame: Vec<u8> = (0..44).map(|n| 0x80 | n).collect();
        frame[12..16].copy_from_slice(&[0x81, 0, 0x60, 5]);
        for offset in (0..40).chain([41, 0x7fff_ffff, 0x8000_0000]) {
            for size in [W, H, B] {
                same_live(
                    &keep_loaded(&[Instruction::without_jumps(LD | ABS | size, offset)]),
                    &frame,
                );
                for x in (0..24).chain([37, 0x7fff_ffff, 0xffff_ffff]) {
                    let load = [
                        Instruction::without_jumps(LDX | IMM, x),
                        Instruction::without_jumps(LD | IND | size, offset),
                    ];
                    same_live(&keep_loaded(&load), &frame);
                    // X must be unchanged.
                    let then_x = [load[0], load[1], Instruction::without_jumps(MISC | TXA, 0)];
                    same_live(&keep_loaded(&then_x), &frame);
                }
            }
            let msh = [
                Instruction::without_jumps(LDX | B | MSH, offset),
                Instruction::without_jumps(ALU | ADD | X, 0),
            ];
            same_live(&keep_loaded(&msh), &frame);
        }
        same_live(
            &keep_loaded(&[Instruction::without_jumps(LD | LEN, 0)]),
            &frame,
        );
        let len_x = [
            Instruction::without_jumps(LD | IMM, 1000),
            Instruction::without_jumps(LDX | LEN, 0),
            Instruction::without_jumps(ALU | ADD | X, 0),
        ];
        same_live(&keep_loaded(&len_x), &frame);

        let control = keep_loaded(&[Instruction::without_jumps(LD | ABS | H, TAG_CONTROL)]);
        let reject = Program::reject_all();
        let (stripped, ancillary) = strip(&frame);
        let tap = Program::for_live_tap(&reject, &control).unwrap();
        let whole = Program::for_whole_frames(&reject, &control).unwrap();
        assert_eq!(tap.accepts(&stripped, 40, &ancillary), 0x6005);
        assert_eq!(whole.accepts(&frame, 44, &Ancillary::default()), 0x6005);
    }

    #[test]
    fn what_does_not_see_the_tag_stays_as_it_is() {
        let program = keep_loaded(&[Instruction::without_jumps(LD | ABS | W, 8)]);
        assert_eq!(program.for_tap().unwrap(), program);
        let program = Program::accept_all(96);
        assert_eq!(program.for_tap().unwrap(), program);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut long = vec![Instruction::without_jumps(LD | ABS | H, 12); MAX_INSTRUCTIONS - 1];
        long.push(Instruction::without_jumps(6, 1));
        let long = Program::new(long).unwrap();
        assert_eq!(long.for_tap().unwrap_err(), TapError::TooLong(8196));
        let mut full: Vec<_> = (0..16)
            .map(|word| Instruction::without_jumps(ST, word))
            .collect();
        full.push(Instruction::without_jumps(LD | ABS | H, 12));
        assert_eq!(
            keep_loaded(&full).for_tap().unwrap_err(),
            TapError::NoMemoryLeft
        );
    }

    #[test]
    fn jumps_too_long_for_a_branch_take_a_detour() {
        // The copy for tagged frames is longer than a branch can jump.
        for between in 60..90 {
            let mut list = vec![Instruction::without_jumps(LD | ABS | B, 0)];
            let far = between as u8;
            list.push(Instruction::new(JMP | JEQ | K, 0, far, 0x80));
            list.extend(vec![Instruction::without_jumps(LD | ABS | W, 13); between]);
            list.push(Instruction::without_jumps(0x16, 0));
            let program = Program::new(list).unwrap();
            let mut frame: Vec<u8> = (0..40).map(|n| 0x80 | n).collect();
            same_verdict(&program, &frame);
            frame[0] = 1;
            same_verdict(&program, &frame);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn any_program_gives_the_same_verdict(seed in prop::collection::vec(any::<u8>(), 0..400), frame in prop::collection::vec(any::<u8>(), 16..80)) {
            if let Some(program) = crate::fuzz::program(&seed)
                && program.kernel_values().next().is_none()
                && program.for_tap().is_ok()
            {
                same_verdict(&program, &frame);
            }
        }
    }
}
