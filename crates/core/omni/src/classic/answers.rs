//! Responses and results of classic tests.

use super::{ClassicKind, Layout};
use crate::error::AnswerError;
use crate::framer::Generation;
use crate::values::{CpuMethod, TestLength};
use crate::words::{Words, Writer};

/// What the server of a classic test has set up. Its timer runs from now on. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassicResponse {
    /// SO_RCVBUF in effect.
    pub receive_buffer: Option<u32>,
    /// SO_SNDBUF in effect.
    pub send_buffer: Option<u32>,
    /// Bytes of one receive, or of one send of TCP_MAERTS; streams over TCP only.
    pub call_size: Option<u32>,
    /// TCP_NODELAY; not in UDP_STREAM.
    pub no_delay: bool,
    /// Measures CPU utilisation.
    pub measure_cpu: bool,
    /// How long; netperf does not fill it in.
    pub length: TestLength,
    /// Connect or send here.
    pub data_port: u16,
    /// Calibration, 100 on Linux, if CPU was asked for; else 0.
    pub cpu_rate: f32,
    /// Receives without copying.
    pub receive_avoid: bool,
    /// Sends without copying.
    pub send_avoid: bool,
}

/// Words of a response, 0 for a field that the layout has not. so_sndavoid follows so_rcvavoid.
struct Places {
    call_size: usize,
    no_delay: usize,
    measure_cpu: usize,
    length: usize,
    send_buffer: usize,
    data_port: usize,
    cpu_rate: usize,
    avoid: usize,
}

impl Places {
    fn of(layout: Layout) -> Self {
        let at = |[
            call_size,
            no_delay,
            measure_cpu,
            length,
            send_buffer,
            data_port,
            cpu_rate,
            avoid,
        ]: [usize; 8]| Self {
            call_size,
            no_delay,
            measure_cpu,
            length,
            send_buffer,
            data_port,
            cpu_rate,
            avoid,
        };
        match layout {
            Layout::Stream => at([3, 4, 5, 6, 7, 8, 9, 10]),
            Layout::Exchange => at([0, 3, 4, 5, 6, 7, 8, 9]),
            Layout::Datagrams => at([0, 0, 4, 5, 3, 6, 7, 8]),
        }
    }
}

impl ClassicResponse {
    /// Reads the answer to a request of this kind.
    ///
    /// # Errors
    /// If the server refused, the length is that of no generation, or the port is none.
    pub fn parse(message: &[u8], kind: ClassicKind) -> Result<Self, AnswerError> {
        let words = Words::answer(message)?;
        let at = Places::of(kind.layout());
        Ok(Self {
            receive_buffer: words.optional(2),
            send_buffer: words.optional(at.send_buffer),
            call_size: match at.call_size {
                0 => None,
                word => words.optional(word).filter(|size| *size > 0),
            },
            no_delay: at.no_delay != 0 && words.switch(at.no_delay),
            measure_cpu: words.switch(at.measure_cpu),
            length: words.length(at.length),
            data_port: words.port(at.data_port, "data_port_number")?,
            cpu_rate: words.float(at.cpu_rate),
            receive_avoid: words.switch(at.avoid),
            send_avoid: words.switch(at.avoid + 1),
        })
    }

    /// The message. What the kind has no place for is left out.
    pub fn encode(&self, kind: ClassicKind, generation: Generation) -> Vec<u8> {
        let at = Places::of(kind.layout());
        let mut writer = Writer::new(generation, kind.response_type(), 0);
        writer
            .optional(2, self.receive_buffer)
            .optional(at.send_buffer, self.send_buffer)
            .switch(at.measure_cpu, self.measure_cpu)
            .length(at.length, self.length)
            .unsigned(at.data_port, self.data_port.into())
            .float(at.cpu_rate, self.cpu_rate)
            .switch(at.avoid, self.receive_avoid)
            .switch(at.avoid + 1, self.send_avoid);
        if at.call_size != 0 {
            writer.unsigned(at.call_size, self.call_size.unwrap_or(0));
        }
        if at.no_delay != 0 {
            writer.switch(at.no_delay, self.no_delay);
        }
        writer.finish()
    }
}

/// What the server of a classic test counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassicResults {
    /// Bytes the server received, or sent in TCP_MAERTS. Streams over TCP carry it as a floating-point
    /// number, exact up to 2⁵³; the others wrap at 2³².
    pub bytes: u64,
    /// Calls that moved them; the datagrams received in UDP_STREAM. Wraps at 2³².
    pub calls: u32,
    /// Transactions; only of requests and responses, and of connections. Wraps at 2³².
    pub transactions: u32,
    /// Seconds on the server's clock. As the peer wrote it, so it may be no number.
    pub elapsed: f32,
    /// Percent over all CPUs, if it was asked for. netperf's TCP_CC has been seen above 100.
    pub cpu_total: Option<f32>,
    /// How it was measured. netperf's TCP_CC leaves remains here.
    pub cpu_method: CpuMethod,
    /// Number of CPUs; 0 if not asked for.
    pub cpus: u32,
    /// SO_RCVBUF at the end, bytes; TCP_STREAM only, and not from all releases.
    pub receive_buffer: Option<u32>,
    /// SO_SNDBUF at the end, bytes; TCP_STREAM only, and not from all releases.
    pub send_buffer: Option<u32>,
}

impl ClassicResults {
    /// Reads the results of a test of this kind. `cpu_asked`: the request had `measure_cpu`; without it
    /// the original leaves remains of its response in the CPU fields.
    ///
    /// # Errors
    /// If the server refused, or the length is that of no generation.
    pub fn parse(message: &[u8], kind: ClassicKind, cpu_asked: bool) -> Result<Self, AnswerError> {
        let words = Words::answer(message)?;
        let mut results = match kind.layout() {
            Layout::Stream => Self {
                // Saturates; what is no number gives 0.
                bytes: f64::from_bits(words.long(8)) as u64,
                calls: words.unsigned(4),
                elapsed: words.float(5),
                ..Self::default()
            },
            Layout::Exchange => Self {
                bytes: words.unsigned(2).into(),
                calls: words.unsigned(3),
                transactions: words.unsigned(4),
                elapsed: words.float(5),
                ..Self::default()
            },
            Layout::Datagrams => Self {
                calls: words.unsigned(2),
                bytes: words.unsigned(3).into(),
                elapsed: words.float(4),
                ..Self::default()
            },
        };
        if kind == ClassicKind::TcpStream {
            let buffer = |word| words.optional(word).filter(|size| *size > 0);
            results.receive_buffer = buffer(10);
            results.send_buffer = buffer(11);
        }
        if cpu_asked {
            let (total, method) = cpu_words(kind);
            results.cpu_total = Some(words.float(total));
            results.cpu_method = CpuMethod(words.unsigned(method));
            results.cpus = words.unsigned(method + 1);
        }
        Ok(results)
    }

    /// The message, with a clean type and zeros in what is not known. What the kind has no place for is
    /// left out.
    pub fn encode(&self, kind: ClassicKind, generation: Generation) -> Vec<u8> {
        let mut writer = Writer::new(generation, kind.results_type(), 0);
        // The lower 32 bits are what netperf's own counters would show.
        let low = self.bytes as u32;
        match kind.layout() {
            Layout::Stream => writer
                .long(8, (self.bytes as f64).to_bits())
                .unsigned(4, self.calls)
                .float(5, self.elapsed),
            Layout::Exchange => writer
                .unsigned(2, low)
                .unsigned(3, self.calls)
                .unsigned(4, self.transactions)
                .float(5, self.elapsed),
            Layout::Datagrams => writer
                .unsigned(2, self.calls)
                .unsigned(3, low)
                .float(4, self.elapsed),
        };
        if kind == ClassicKind::TcpStream {
            writer
                .unsigned(10, self.receive_buffer.unwrap_or(0))
                .unsigned(11, self.send_buffer.unwrap_or(0));
        }
        if let Some(total) = self.cpu_total {
            let (at, method) = cpu_words(kind);
            writer
                .float(at, total)
                .unsigned(method, self.cpu_method.0)
                .unsigned(method + 1, self.cpus);
        }
        writer.finish()
    }
}

/// The words of cpu_util and cpu_method; num_cpus follows the latter.
fn cpu_words(kind: ClassicKind) -> (usize, usize) {
    match kind.layout() {
        Layout::Stream | Layout::Exchange => (6, 8),
        Layout::Datagrams => (5, 6),
    }
}
