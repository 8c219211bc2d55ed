//! Text forms of programs: the three that `tcpdump -d`, `-dd` and `-ddd` print.

use std::fmt::Write;

use crate::check::Invalid;
use crate::instruction::Instruction;
use crate::operation::{Arithmetic, KernelValue, Operand, Operation, Size, Test};
use crate::program::Program;

/// Error in the text of a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Malformed line.
    #[error("filter program, line {line}: {text:?} is not {expected}")]
    Line {
        /// Line number, from 1.
        line: usize,
        /// Text of the line.
        text: String,
        /// Expected content.
        expected: &'static str,
    },
    /// The first line announces a different number of instructions than follow.
    #[error(
        "filter program: number of instructions: {announced} in the first line, but {present} follow"
    )]
    Count {
        /// Number in the first line.
        announced: usize,
        /// Number of instructions that follow.
        present: usize,
    },
    /// Invalid instructions.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl Program {
    /// Formats the program for people: `(000) ldh      [12]` and so on, as `tcpdump -d`.
    pub fn listing(&self) -> String {
        let mut text = String::new();
        for (at, (operation, instruction)) in
            self.operations.iter().zip(self.instructions()).enumerate()
        {
            let (name, operand) = image(*operation, *instruction);
            let _ = write!(text, "({at:03}) {name:<8} ");
            let _ = match operation {
                Operation::Branch { yes, no, .. } => {
                    writeln!(text, "{operand:<16} jt {yes}\tjf {no}")
                }
                _ => writeln!(text, "{operand}"),
            };
        }
        text
    }

    /// Formats the program as a C array, as `tcpdump -dd`.
    pub fn c_array(&self) -> String {
        let mut text = String::new();
        for Instruction { code, jt, jf, k } in self.instructions() {
            let _ = writeln!(text, "{{ {code:#x}, {jt}, {jf}, {k:#010x} }},");
        }
        text
    }

    /// Formats the program as decimal numbers behind a line with their count, as `tcpdump -ddd`.
    /// [`Program::parse_decimal`] reads this form.
    pub fn decimal(&self) -> String {
        let mut text = format!("{}\n", self.instructions().len());
        for Instruction { code, jt, jf, k } in self.instructions() {
            let _ = writeln!(text, "{code} {jt} {jf} {k}");
        }
        text
    }

    /// Parses the output of `tcpdump -ddd`. Commas may replace line ends, as in iptables and tc.
    ///
    /// # Errors
    /// A line that is not four numbers, a wrong count, or an invalid program.
    pub fn parse_decimal(text: &str) -> Result<Self, ParseError> {
        let mut lines = text
            .split(['\n', ','])
            .enumerate()
            .map(|(at, line)| (at + 1, line.trim()))
            .filter(|(_, line)| !line.is_empty());
        let wrong = |line, text: &str, expected| ParseError::Line {
            line,
            text: text.to_owned(),
            expected,
        };
        let (line, first) = lines.next().unwrap_or((1, ""));
        let announced: usize = first
            .parse()
            .map_err(|_| wrong(line, first, "a number of instructions"))?;
        let instructions = lines
            .map(|(line, text)| {
                parse_line(text).ok_or_else(|| wrong(line, text, "four numbers: code, jt, jf, k"))
            })
            .collect::<Result<Vec<_>, _>>()?;
        if instructions.len() != announced {
            return Err(ParseError::Count {
                announced,
                present: instructions.len(),
            });
        }
        Ok(Self::new(instructions)?)
    }
}

fn parse_line(text: &str) -> Option<Instruction> {
    let mut words = text.split_ascii_whitespace();
    let instruction = Instruction::new(
        words.next()?.parse().ok()?,
        words.next()?.parse().ok()?,
        words.next()?.parse().ok()?,
        words.next()?.parse().ok()?,
    );
    words.next().is_none().then_some(instruction)
}

fn image(operation: Operation, instruction: Instruction) -> (&'static str, String) {
    let load = |size| match size {
        Size::Byte => "ldb",
        Size::Half => "ldh",
        Size::Word => "ld",
    };
    let right = |operand, decimal| match operand {
        Operand::X => "x".to_owned(),
        Operand::Constant(k) if decimal => format!("#{}", k.cast_signed()),
        Operand::Constant(k) => format!("#{k:#x}"),
    };
    match operation {
        Operation::Constant(k) => ("ld", format!("#{k:#x}")),
        Operation::ConstantX(k) => ("ldx", format!("#{k:#x}")),
        Operation::FrameLen => ("ld", "#pktlen".into()),
        Operation::FrameLenX => ("ldx", "#pktlen".into()),
        Operation::Absolute(size, k) => (load(size), format!("[{}]", k.cast_signed())),
        Operation::Indirect(size, k) => (load(size), format!("[x + {}]", k.cast_signed())),
        Operation::Kernel(value) => {
            let size = match instruction.code & 0x18 {
                crate::instruction::B => Size::Byte,
                crate::instruction::H => Size::Half,
                _ => Size::Word,
            };
            let name = match value {
                KernelValue::Protocol => "proto",
                KernelValue::PacketType => "type",
                KernelValue::InterfaceIndex => "ifidx",
                KernelValue::NetlinkAttribute => "nla",
                KernelValue::NestedNetlinkAttribute => "nlan",
                KernelValue::Mark => "mark",
                KernelValue::Queue => "queue",
                KernelValue::HardwareType => "hatype",
                KernelValue::Hash => "rxhash",
                KernelValue::Cpu => "cpu",
                KernelValue::XorX => "xor_x",
                KernelValue::VlanTci => "vlan_tci",
                KernelValue::VlanPresent => "vlanp",
                KernelValue::PayloadOffset => "poff",
                KernelValue::Random => "random",
                KernelValue::VlanTpid => "vlan_tpid",
            };
            (load(size), format!("[{name}]"))
        }
        Operation::Memory(word) => ("ld", format!("M[{word}]")),
        Operation::MemoryX(word) => ("ldx", format!("M[{word}]")),
        Operation::HeaderLenX(k) => ("ldxb", format!("4*([{}]&0xf)", k.cast_signed())),
        Operation::Store(word) => ("st", format!("M[{word}]")),
        Operation::StoreX(word) => ("stx", format!("M[{word}]")),
        Operation::Arithmetic(arithmetic, operand) => match arithmetic {
            Arithmetic::Add => ("add", right(operand, true)),
            Arithmetic::Sub => ("sub", right(operand, true)),
            Arithmetic::Mul => ("mul", right(operand, true)),
            Arithmetic::Div => ("div", right(operand, true)),
            Arithmetic::Mod => ("mod", right(operand, true)),
            Arithmetic::Or => ("or", right(operand, false)),
            Arithmetic::And => ("and", right(operand, false)),
            Arithmetic::Xor => ("xor", right(operand, false)),
            Arithmetic::Lsh => ("lsh", right(operand, true)),
            Arithmetic::Rsh => ("rsh", right(operand, true)),
        },
        Operation::Negate => ("neg", String::new()),
        Operation::Jump(target) => ("ja", target.to_string()),
        Operation::Branch { test, operand, .. } => (
            match test {
                Test::Equal => "jeq",
                Test::Greater => "jgt",
                Test::GreaterOrEqual => "jge",
                Test::AnyBit => "jset",
            },
            right(operand, false),
        ),
        Operation::AToX => ("tax", String::new()),
        Operation::XToA => ("txa", String::new()),
        Operation::Return(len) => ("ret", format!("#{}", len.cast_signed())),
        Operation::ReturnA => ("ret", String::new()),
    }
}
