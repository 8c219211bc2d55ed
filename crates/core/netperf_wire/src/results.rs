//! Results of an omni test.

use crate::error::AnswerError;
use crate::extension::ResultsExtension;
use crate::framer::Generation;
use crate::request::OMNI_RESULTS;
use crate::values::{CpuMethod, Name};
use crate::words::{WordWriter, Words, wire_table};

/// Layout of results. Releases differ, and no field identifies the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResultsLayout {
    /// netperf 2.5: 64 words, no retransmissions, no congestion control.
    V25,
    /// netperf 2.6: 164 words, CPU utilisation as one figure.
    V26,
    /// netperf 2.7 and wirebench: 164 words, CPU utilisation in parts.
    V27,
}

impl ResultsLayout {
    /// Returns the message generation of this layout.
    pub fn generation(self) -> Generation {
        match self {
            Self::V25 => Generation::Words64,
            Self::V26 | Self::V27 => Generation::Words164,
        }
    }

    /// Guesses the layout of a message from unambiguous fields.
    ///
    /// A 2.6 server is recognised by fields that are empty in 2.7: the name of a congestion control 20 bytes earlier,
    /// or, if CPU utilisation was requested, a method number where 2.7 has a percentage, which as an integer is 0 or
    /// above 10⁹. Without either, both layouts agree except for the retransmissions, which a test without a congestion
    /// control does not have.
    pub fn guess(message: &[u8], cpu_asked: bool) -> Self {
        let Ok(words) = Words::new(message) else {
            return Self::V27;
        };
        if words.generation == Generation::Words64 {
            return Self::V25;
        }
        let early: Name<16> = words.name(256);
        let late: Name<16> = words.name(276);
        let is_old = late.is_none() && early.as_str().is_some()
            || cpu_asked && (1..=12).contains(&words.unsigned(15));
        if is_old { Self::V26 } else { Self::V27 }
    }

    /// Returns the word of cpu_method; num_cpus, peak_cpu_id and peak_cpu_util follow.
    fn method_word(self) -> usize {
        match self {
            Self::V25 | Self::V26 => 15,
            Self::V27 => 20,
        }
    }

    /// Returns the word of transport_retrans and the offset of cong_control.
    fn transport(self) -> Option<(usize, usize)> {
        match self {
            Self::V25 => None,
            Self::V26 => Some((23, 256)),
            Self::V27 => Some((28, 276)),
        }
    }
}

/// Counters of the server. Fields about its network interface, which no server since 2.7.0 fills in, are neither read
/// nor written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OmniResults {
    /// Bytes received.
    pub bytes_received: u64,
    /// Receive calls that succeeded; wraps at 2³².
    pub receive_calls: u32,
    /// SO_RCVBUF at the end, bytes.
    pub receive_buffer: Option<u32>,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Send calls that succeeded; wraps at 2³².
    pub send_calls: u32,
    /// SO_SNDBUF at the end, bytes.
    pub send_buffer: Option<u32>,
    /// Number of sends that failed; netperf never sets it.
    pub failed_sends: u32,
    /// Transactions; wraps at 2³².
    pub transactions: u32,
    /// Seconds on the server's clock. Sent by the peer and not checked, so it may be NaN.
    pub elapsed: f32,
    /// CPU utilisation, if requested.
    pub cpu: Option<CpuFigures>,
    /// Retransmitted segments. `None` if the protocol or the peer has no such counter, or each transaction had a
    /// separate connection.
    pub retransmissions: Option<u32>,
    /// Congestion control in use.
    pub congestion_control: Name<16>,
    /// Extension of a wirebench server.
    pub extension: Option<ResultsExtension>,
}

/// CPU utilisation of the server during the test, in percent over all CPUs. Sent by the peer and not checked, so values
/// may be NaN, and above 100 if netperf waited longer than the test took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuFigures {
    /// Total utilisation.
    pub total: f32,
    /// Utilisation by kind of work; `None` from peers before 2.7.
    pub split: Option<CpuSplit>,
    /// Method of measurement.
    pub method: CpuMethod,
    /// Number of CPUs.
    pub cpus: u32,
    /// Number of the busiest CPU.
    pub peak_id: i32,
    /// Utilisation of the busiest CPU.
    pub peak: f32,
}

/// Parts of the CPU utilisation, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuSplit {
    /// User space.
    pub user: f32,
    /// Kernel.
    pub system: f32,
    /// Waiting for disks.
    pub iowait: f32,
    /// Interrupts.
    pub irq: f32,
    /// Soft interrupts.
    pub softirq: f32,
}

wire_table! {
    OmniResults {
        bytes_received: long(8),
        receive_calls: unsigned(4),
        receive_buffer: optional(5),
        bytes_sent: long(24),
        send_calls: unsigned(8),
        send_buffer: optional(9),
        failed_sends: unsigned(10),
        transactions: unsigned(11),
        elapsed: float(12),
    } ..Self::default()
}

impl OmniResults {
    /// Parses a message of this layout; see [`ResultsLayout::guess`]. `cpu_asked` is true if the request had
    /// [`Flags::MEASURE_CPU`](crate::Flags::MEASURE_CPU); without it, netperf leaves remains of its response in the CPU
    /// fields.
    ///
    /// # Errors
    /// The server refused, or no generation has messages of this length.
    pub fn parse(
        message: &[u8],
        layout: ResultsLayout,
        cpu_asked: bool,
    ) -> Result<Self, AnswerError> {
        let words = Words::answer(message)?;
        let (retransmissions, congestion_control) = match layout.transport() {
            Some((word, offset)) => (words.optional(word), words.name(offset)),
            None => (None, Name::NONE),
        };
        Ok(Self {
            cpu: cpu_asked.then(|| CpuFigures::read(words, layout)),
            retransmissions,
            congestion_control,
            extension: ResultsExtension::read(words)?,
            ..Self::read_table(words)?
        })
    }

    /// Encodes the message, with a valid type, zeros for unknown values, and without the fields that the layout does
    /// not have.
    pub fn encode(&self, layout: ResultsLayout) -> Vec<u8> {
        let mut writer = WordWriter::new(layout.generation(), OMNI_RESULTS, 0);
        self.write_table(&mut writer);
        if let Some(cpu) = self.cpu {
            cpu.write(&mut writer, layout);
        }
        if let Some((word, offset)) = layout.transport() {
            writer
                .optional(word, self.retransmissions)
                .bytes(offset, self.congestion_control.padded());
        }
        if let Some(extension) = &self.extension {
            extension.write(&mut writer);
        }
        writer.finish()
    }
}

impl CpuFigures {
    fn read(words: Words<'_>, layout: ResultsLayout) -> Self {
        let at = layout.method_word();
        Self {
            total: words.float(13),
            split: (layout == ResultsLayout::V27).then(|| CpuSplit {
                user: words.float(14),
                system: words.float(15),
                iowait: words.float(16),
                irq: words.float(17),
                softirq: words.float(18),
            }),
            method: CpuMethod(words.unsigned(at)),
            cpus: words.unsigned(at + 1),
            peak_id: words.signed(at + 2),
            peak: words.float(at + 3),
        }
    }

    fn write(self, writer: &mut WordWriter, layout: ResultsLayout) {
        let at = layout.method_word();
        writer
            .float(13, self.total)
            .unsigned(at, self.method.0)
            .unsigned(at + 1, self.cpus)
            .signed(at + 2, self.peak_id)
            .float(at + 3, self.peak);
        if layout == ResultsLayout::V27
            && let Some(split) = self.split
        {
            writer
                .float(14, split.user)
                .float(15, split.system)
                .float(16, split.iowait)
                .float(17, split.irq)
                .float(18, split.softirq);
        }
    }
}
