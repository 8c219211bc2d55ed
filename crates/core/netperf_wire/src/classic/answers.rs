//! Responses and results of classic tests.

use super::{ClassicKind, ClassicLayout};
use crate::error::AnswerError;
use crate::framer::Generation;
use crate::values::{CpuMethod, TestLength};
use crate::words::{WordWriter, Words};

/// Parameters that the server of a classic test has set up. Its timer runs from now on. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassicResponse {
    /// SO_RCVBUF in effect.
    pub receive_buffer: Option<u32>,
    /// SO_SNDBUF in effect.
    pub send_buffer: Option<u32>,
    /// Bytes of one receive, or of one send of TCP_MAERTS; only for TCP streams.
    pub call_size: Option<u32>,
    /// TCP_NODELAY; not in UDP_STREAM.
    pub no_delay: bool,
    /// True if the server measures CPU utilisation.
    pub measure_cpu: bool,
    /// Duration; netperf does not fill it in.
    pub length: TestLength,
    /// Port to connect or send to.
    pub data_port: u16,
    /// Calibration, 100 on Linux; 0 unless CPU utilisation was requested.
    pub cpu_rate: f32,
    /// True if the server receives without copying.
    pub receive_avoid: bool,
    /// True if the server sends without copying.
    pub send_avoid: bool,
}

/// Word numbers in a response, 0 for a field that the layout does not have. so_sndavoid follows so_rcvavoid.
struct ResponseWords {
    call_size: usize,
    no_delay: usize,
    measure_cpu: usize,
    length: usize,
    send_buffer: usize,
    data_port: usize,
    cpu_rate: usize,
    avoid: usize,
}

impl ResponseWords {
    fn for_layout(layout: ClassicLayout) -> Self {
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
            ClassicLayout::Stream => at([3, 4, 5, 6, 7, 8, 9, 10]),
            ClassicLayout::Exchange => at([0, 3, 4, 5, 6, 7, 8, 9]),
            ClassicLayout::Datagrams => at([0, 0, 4, 5, 3, 6, 7, 8]),
        }
    }
}

impl ClassicResponse {
    /// Parses the response to a request of this kind.
    ///
    /// # Errors
    /// The server refused, no generation has messages of this length, or the port is invalid.
    pub fn parse(message: &[u8], kind: ClassicKind) -> Result<Self, AnswerError> {
        let words = Words::answer(message)?;
        let at = ResponseWords::for_layout(kind.layout());
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

    /// Encodes the message, without the fields that the kind does not have.
    pub fn encode(&self, kind: ClassicKind, generation: Generation) -> Vec<u8> {
        let at = ResponseWords::for_layout(kind.layout());
        let mut writer = WordWriter::new(generation, kind.response_type(), 0);
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

/// Counters of the server of a classic test.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassicResults {
    /// Bytes the server received, or sent in TCP_MAERTS. TCP streams send a floating-point number, exact up to 2⁵³; the
    /// other kinds wrap at 2³².
    pub bytes: u64,
    /// Number of calls for these bytes, or of datagrams received in UDP_STREAM. Wraps at 2³².
    pub calls: u32,
    /// Transactions; only in request/response and connection tests. Wraps at 2³².
    pub transactions: u32,
    /// Seconds on the server's clock. Sent by the peer and not checked, so it may be NaN.
    pub elapsed: f32,
    /// CPU utilisation in percent over all CPUs, if requested. Values above 100 occur in netperf's TCP_CC.
    pub cpu_total: Option<f32>,
    /// Method of CPU measurement. netperf's TCP_CC leaves an old value here.
    pub cpu_method: CpuMethod,
    /// Number of CPUs; 0 unless requested.
    pub cpus: u32,
    /// SO_RCVBUF at the end, bytes; TCP_STREAM only, and not from all releases.
    pub receive_buffer: Option<u32>,
    /// SO_SNDBUF at the end, bytes; TCP_STREAM only, and not from all releases.
    pub send_buffer: Option<u32>,
}

impl ClassicResults {
    /// Parses the results of a test of this kind. `cpu_asked` is true if the request had `measure_cpu`; without it,
    /// netperf leaves remains of its response in the CPU fields.
    ///
    /// # Errors
    /// The server refused, or no generation has messages of this length.
    pub fn parse(message: &[u8], kind: ClassicKind, cpu_asked: bool) -> Result<Self, AnswerError> {
        let words = Words::answer(message)?;
        let mut results = match kind.layout() {
            ClassicLayout::Stream => Self {
                // Saturates; NaN becomes 0.
                bytes: f64::from_bits(words.long(8)) as u64,
                calls: words.unsigned(4),
                elapsed: words.float(5),
                ..Self::default()
            },
            ClassicLayout::Exchange => Self {
                bytes: words.unsigned(2).into(),
                calls: words.unsigned(3),
                transactions: words.unsigned(4),
                elapsed: words.float(5),
                ..Self::default()
            },
            ClassicLayout::Datagrams => Self {
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

    /// Encodes the message, with a valid type, zeros for unknown values, and without the fields that the kind does not
    /// have.
    pub fn encode(&self, kind: ClassicKind, generation: Generation) -> Vec<u8> {
        let mut writer = WordWriter::new(generation, kind.results_type(), 0);
        // The lower 32 bits are the value of netperf's counters.
        let low = self.bytes as u32;
        match kind.layout() {
            ClassicLayout::Stream => writer
                .long(8, (self.bytes as f64).to_bits())
                .unsigned(4, self.calls)
                .float(5, self.elapsed),
            ClassicLayout::Exchange => writer
                .unsigned(2, low)
                .unsigned(3, self.calls)
                .unsigned(4, self.transactions)
                .float(5, self.elapsed),
            ClassicLayout::Datagrams => writer
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

/// Returns the words of cpu_util and cpu_method; num_cpus follows the latter.
fn cpu_words(kind: ClassicKind) -> (usize, usize) {
    match kind.layout() {
        ClassicLayout::Stream | ClassicLayout::Exchange => (6, 8),
        ClassicLayout::Datagrams => (5, 6),
    }
}
