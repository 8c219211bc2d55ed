//! Classic messages: one layout per kind of test.
//!
//! Clients before netperf 2.5 send them for all tests, current ones for TCP_CC, TCP_SENDFILE and TCP_MSS (the latter
//! two as TCP_STREAM). All fit into 64 words. These clients send no mark at the end of the data, and keep their
//! connection open while they wait for results. A server must therefore end a timed test by its own clock.

use crate::error::BadMessage;
use crate::framer::Generation;
use crate::values::{TestLength, WireFamily};
use crate::words::{WordWriter, Words, wire_table};

mod answers;

pub use answers::{ClassicResponse, ClassicResults};

/// Kinds of classic tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClassicKind {
    /// The client sends on one TCP connection.
    TcpStream,
    /// The server sends on one TCP connection.
    TcpMaerts,
    /// Requests and responses on one TCP connection.
    TcpRr,
    /// One TCP connection per request and response.
    TcpCrr,
    /// TCP connections that are opened and closed, without data.
    TcpCc,
    /// The client sends datagrams.
    UdpStream,
    /// Requests and responses in datagrams.
    UdpRr,
}

/// Arrangement of the fields.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClassicLayout {
    Stream,
    Exchange,
    Datagrams,
}

impl ClassicKind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::TcpStream,
        Self::TcpMaerts,
        Self::TcpRr,
        Self::TcpCrr,
        Self::TcpCc,
        Self::UdpStream,
        Self::UdpRr,
    ];

    /// Returns the kind with this request type.
    pub fn of_request(kind: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|k| k.request_type() == kind)
    }

    /// Message type of the request. Response and results have the next two numbers.
    pub fn request_type(self) -> i32 {
        match self {
            Self::TcpStream => 10,
            Self::TcpRr => 13,
            Self::UdpStream => 16,
            Self::UdpRr => 19,
            Self::TcpCrr => 34,
            Self::TcpMaerts => 94,
            Self::TcpCc => 300,
        }
    }

    /// Message type of the response.
    pub fn response_type(self) -> i32 {
        self.request_type() + 1
    }

    /// Message type of the results.
    pub fn results_type(self) -> i32 {
        self.request_type() + 2
    }

    fn layout(self) -> ClassicLayout {
        match self {
            Self::TcpStream | Self::TcpMaerts => ClassicLayout::Stream,
            Self::TcpRr | Self::TcpCrr | Self::TcpCc | Self::UdpRr => ClassicLayout::Exchange,
            Self::UdpStream => ClassicLayout::Datagrams,
        }
    }
}

/// A classic test. Sizes are in bytes; `None` means the default of the server's system.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassicRequest {
    /// CPU to which the server binds.
    pub cpu: Option<u32>,
    /// Kind of test and its parameters.
    pub test: ClassicTest,
    /// Measure CPU utilisation.
    pub measure_cpu: bool,
    /// Calibration of the server as known to the client, 0 if unknown.
    pub cpu_rate: f32,
    /// Duration. Streams limited by a number of bytes send that number here as if it were seconds, and end the data
    /// instead.
    pub length: TestLength,
    /// Receive without copying.
    pub receive_avoid: bool,
    /// Send without copying.
    pub send_avoid: bool,
    /// Port of the server's data socket, 0 for any.
    pub data_port: u16,
    /// Family of the data sockets.
    pub family: WireFamily,
}

/// The part of a classic request that depends on its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassicTest {
    /// TCP_STREAM.
    TcpStream(StreamTest),
    /// TCP_MAERTS.
    TcpMaerts(StreamTest),
    /// TCP_RR.
    TcpRr(ExchangeTest),
    /// TCP_CRR.
    TcpCrr(ExchangeTest),
    /// TCP_CC.
    TcpCc(ExchangeTest),
    /// UDP_RR.
    UdpRr(ExchangeTest),
    /// UDP_STREAM.
    UdpStream(DatagramTest),
}

/// Parameters of a TCP stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamTest {
    /// SO_SNDBUF.
    pub send_buffer: Option<u32>,
    /// SO_RCVBUF.
    pub receive_buffer: Option<u32>,
    /// Bytes of one receive, or of one send of TCP_MAERTS; at least 1.
    pub call_size: Option<u32>,
    /// Alignment of buffers, in bytes.
    pub alignment: u32,
    /// Offset of buffers from the alignment, in bytes.
    pub offset: u32,
    /// TCP_NODELAY.
    pub no_delay: bool,
    /// Words to write in each buffer before the call, 0 for none.
    pub dirty: u32,
    /// Words to read in each buffer before the call, 0 for none.
    pub clean: u32,
    /// Asynchronous receives, since 2.7.1; 0 for none.
    pub receive_aio: u32,
}

/// Parameters of a request/response or connection test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExchangeTest {
    /// SO_RCVBUF.
    pub receive_buffer: Option<u32>,
    /// SO_SNDBUF.
    pub send_buffer: Option<u32>,
    /// Alignment of receive buffers, in bytes.
    pub receive_alignment: u32,
    /// Offset of receive buffers from the alignment, in bytes.
    pub receive_offset: u32,
    /// Alignment of send buffers, in bytes.
    pub send_alignment: u32,
    /// Offset of send buffers from the alignment, in bytes.
    pub send_offset: u32,
    /// Bytes of a request.
    pub request_size: u32,
    /// Bytes of a response.
    pub response_size: u32,
    /// TCP_NODELAY.
    pub no_delay: bool,
}

/// Parameters of a one-way datagram test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramTest {
    /// SO_RCVBUF.
    pub receive_buffer: Option<u32>,
    /// Bytes of a datagram; a datagram of another size ends the test.
    pub message_size: u32,
    /// Connect the server's socket.
    pub connect: bool,
    /// Alignment of buffers, in bytes.
    pub alignment: u32,
    /// Offset of buffers from the alignment, in bytes.
    pub offset: u32,
    /// Send without checksums.
    pub checksum_off: bool,
}

impl ClassicTest {
    /// Returns the kind of the test.
    pub fn kind(&self) -> ClassicKind {
        match self {
            Self::TcpStream(_) => ClassicKind::TcpStream,
            Self::TcpMaerts(_) => ClassicKind::TcpMaerts,
            Self::TcpRr(_) => ClassicKind::TcpRr,
            Self::TcpCrr(_) => ClassicKind::TcpCrr,
            Self::TcpCc(_) => ClassicKind::TcpCc,
            Self::UdpRr(_) => ClassicKind::UdpRr,
            Self::UdpStream(_) => ClassicKind::UdpStream,
        }
    }

    fn read(kind: ClassicKind, words: Words<'_>) -> Result<Self, BadMessage> {
        Ok(match kind {
            ClassicKind::TcpStream => {
                Self::TcpStream(StreamTest::read_table(words, "receive_size")?)
            }
            ClassicKind::TcpMaerts => Self::TcpMaerts(StreamTest::read_table(words, "send_size")?),
            ClassicKind::TcpRr => Self::TcpRr(ExchangeTest::read_table(words)?),
            ClassicKind::TcpCrr => Self::TcpCrr(ExchangeTest::read_table(words)?),
            ClassicKind::TcpCc => Self::TcpCc(ExchangeTest::read_table(words)?),
            ClassicKind::UdpRr => Self::UdpRr(ExchangeTest::read_table(words)?),
            ClassicKind::UdpStream => Self::UdpStream(DatagramTest::read_table(words)?),
        })
    }

    fn write(&self, writer: &mut WordWriter) {
        match self {
            Self::TcpStream(test) | Self::TcpMaerts(test) => test.write_table(writer),
            Self::TcpRr(test) | Self::TcpCrr(test) | Self::TcpCc(test) | Self::UdpRr(test) => {
                test.write_table(writer);
            }
            Self::UdpStream(test) => test.write_table(writer),
        }
    }
}

/// Returns the first of the words that all requests share, and the word of the data port; the family follows. The words
/// in between are measure_cpu, cpu_rate, test_length, so_rcvavoid and so_sndavoid.
fn shared_words(kind: ClassicKind) -> (usize, usize) {
    match kind.layout() {
        // Words 13 and 14 are dirty and clean.
        ClassicLayout::Stream => (8, 15),
        ClassicLayout::Exchange => (11, 16),
        ClassicLayout::Datagrams => (8, 13),
    }
}

impl ClassicRequest {
    pub(crate) fn read(kind: ClassicKind, words: Words<'_>) -> Result<Self, BadMessage> {
        let (first, port) = shared_words(kind);
        Ok(Self {
            cpu: words.optional(1),
            test: ClassicTest::read(kind, words)?,
            measure_cpu: words.switch(first),
            cpu_rate: words.float(first + 1),
            length: words.length(first + 2),
            receive_avoid: words.switch(first + 3),
            send_avoid: words.switch(first + 4),
            data_port: words.port(port, "port")?,
            family: words.family(port + 1, "ipfamily")?,
        })
    }

    pub(crate) fn write(&self, generation: Generation) -> Vec<u8> {
        let kind = self.test.kind();
        let (first, port) = shared_words(kind);
        let mut writer = WordWriter::request(generation, kind.request_type(), self.cpu);
        self.test.write(&mut writer);
        writer
            .switch(first, self.measure_cpu)
            .float(first + 1, self.cpu_rate)
            .length(first + 2, self.length)
            .switch(first + 3, self.receive_avoid)
            .switch(first + 4, self.send_avoid)
            .unsigned(port, self.data_port.into())
            .unsigned(port + 1, self.family.to_wire());
        writer.finish()
    }
}

wire_table! {
    StreamTest(call_size_name) {
        send_buffer: size(2, "send_buf_size"),
        receive_buffer: size(3, "recv_buf_size"),
        call_size: classic_call_size(4, call_size_name),
        alignment: amount(5, "alignment"),
        offset: amount(6, "offset"),
        no_delay: switch(7),
        dirty: or_zero(13),
        clean: or_zero(14),
        receive_aio: or_zero(17),
    }
}

wire_table! {
    ExchangeTest {
        receive_buffer: size(2, "recv_buf_size"),
        send_buffer: size(3, "send_buf_size"),
        receive_alignment: amount(4, "recv_alignment"),
        receive_offset: amount(5, "recv_offset"),
        send_alignment: amount(6, "send_alignment"),
        send_offset: amount(7, "send_offset"),
        request_size: amount(8, "request_size"),
        response_size: amount(9, "response_size"),
        no_delay: switch(10),
    }
}

wire_table! {
    DatagramTest {
        receive_buffer: size(2, "recv_buf_size"),
        message_size: amount(3, "message_size"),
        connect: switch(4),
        alignment: amount(5, "recv_alignment"),
        offset: amount(6, "recv_offset"),
        checksum_off: switch(7),
    }
}
