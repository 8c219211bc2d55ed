//! Requests of a client.

use crate::classic::{ClassicKind, ClassicRequest};
use crate::error::BadMessage;
use crate::extension::RequestExtension;
use crate::flags::Flags;
use crate::framer::Generation;
use crate::small_messages::Passphrase;
use crate::values::{DataDirection, Name, TestLength, WireAddress, WireFamily, WireSocketType};
use crate::words::{WordWriter, Words, wire_table};

const DEBUG_ON: i32 = 1;
const DEBUG_OFF: i32 = 2;
pub(crate) const DEBUG_OK: i32 = 3;
pub(crate) const CPU_CALIBRATE: i32 = 5;
const PASSPHRASE: i32 = 6;
const OMNI: i32 = 97;
pub(crate) const OMNI_RESPONSE: i32 = 98;
pub(crate) const OMNI_RESULTS: i32 = 99;
const SYSTEM: i32 = 600;
pub(crate) const SYSTEM_RESPONSE: i32 = 601;
/// Type of [`Request::End`], not part of netperf. Its upper half avoids all numbers that netperf has used.
const END: i32 = 0x7762_0001;

/// Request of a client.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// 97: a test in the format of netperf since 2.5.0.
    Omni(Box<OmniRequest>),
    /// 10 to 300: a test in the older format.
    Classic(ClassicRequest),
    /// 6: a passphrase. The server does not answer.
    Passphrase(Passphrase),
    /// 5: the speed of the CPU. The answer is a [`Calibration`](crate::Calibration).
    CpuCalibrate,
    /// 600: a description of the system. The answer is a [`SystemText`](crate::SystemText).
    System,
    /// 1: more debugging output. The answer is [`debug_ok`](crate::debug_ok).
    DebugOn,
    /// 2: less debugging output. The answer is [`debug_ok`](crate::debug_ok).
    DebugOff,
    /// wirebench only: end of the test. The server answers with the results. Only for servers that granted
    /// [`Features::EXPLICIT_END`](crate::Features::EXPLICIT_END).
    End,
    /// An unknown type; refuse it with [`Refusal::UNKNOWN_REQUEST`](crate::Refusal::UNKNOWN_REQUEST).
    Unknown(i32),
}

impl Request {
    /// Reads a message of either generation.
    ///
    /// # Errors
    /// No generation has messages of this length, or a field has a harmful value.
    pub fn parse(message: &[u8]) -> Result<Self, BadMessage> {
        let words = Words::new(message)?;
        Ok(match words.signed(0) {
            OMNI => Self::Omni(Box::new(OmniRequest::read(words)?)),
            PASSPHRASE => Self::Passphrase(Passphrase::read(words)),
            CPU_CALIBRATE => Self::CpuCalibrate,
            SYSTEM => Self::System,
            DEBUG_ON => Self::DebugOn,
            DEBUG_OFF => Self::DebugOff,
            END => Self::End,
            kind => match ClassicKind::of_request(kind) {
                Some(kind) => Self::Classic(ClassicRequest::read(kind, words)?),
                None => Self::Unknown(kind),
            },
        })
    }

    /// Returns the type of a message, even if the rest is invalid. Returns 0 for less than 4 bytes.
    pub fn type_of(message: &[u8]) -> i32 {
        message
            .first_chunk()
            .map_or(0, |word| i32::from_be_bytes(*word))
    }

    /// Encodes the message. A message of 64 words has no priority, TOS, names and extension, and at most 247 bytes of a
    /// passphrase.
    pub fn encode(&self, generation: Generation) -> Vec<u8> {
        match self {
            Self::Omni(omni) => omni.write(generation),
            Self::Classic(classic) => classic.write(generation),
            Self::Passphrase(passphrase) => {
                let mut writer = WordWriter::request(generation, PASSPHRASE, None);
                let room = generation.len() - 9;
                let bytes = passphrase.as_bytes();
                writer.bytes(8, &bytes[..bytes.len().min(room)]);
                writer.finish()
            }
            other => WordWriter::request(generation, other.kind(), None).finish(),
        }
    }

    /// Type of the request.
    fn kind(&self) -> i32 {
        match self {
            Self::Omni(_) => OMNI,
            Self::Classic(classic) => classic.test.kind().request_type(),
            Self::Passphrase(_) => PASSPHRASE,
            Self::CpuCalibrate => CPU_CALIBRATE,
            Self::System => SYSTEM,
            Self::DebugOn => DEBUG_ON,
            Self::DebugOff => DEBUG_OFF,
            Self::End => END,
            Self::Unknown(kind) => *kind,
        }
    }

    /// Returns the type of the first answer to a request of this type, for [`Refusal::encode`]. The answer to an
    /// unknown request has the type of the request.
    ///
    /// [`Refusal::encode`]: crate::Refusal::encode
    pub fn answer_type(request_type: i32) -> i32 {
        match request_type {
            OMNI => OMNI_RESPONSE,
            SYSTEM => SYSTEM_RESPONSE,
            DEBUG_ON | DEBUG_OFF => DEBUG_OK,
            kind => ClassicKind::of_request(kind).map_or(kind, ClassicKind::response_type),
        }
    }
}

impl From<OmniRequest> for Request {
    fn from(request: OmniRequest) -> Self {
        Self::Omni(Box::new(request))
    }
}

impl From<ClassicRequest> for Request {
    fn from(request: ClassicRequest) -> Self {
        Self::Classic(request)
    }
}

/// An omni test. Sizes are in bytes; `None` means the default of the server's system.
///
/// All fields describe the server's side: `send_buffer` is the server's, and so on.
#[derive(Clone, Debug, PartialEq)]
pub struct OmniRequest {
    /// CPU to which the server binds.
    pub cpu: Option<u32>,
    /// SO_SNDBUF.
    pub send_buffer: Option<u32>,
    /// Bytes of one send in stream tests, at least 1.
    pub send_size: Option<u32>,
    /// Alignment of send buffers, in bytes.
    pub send_alignment: u32,
    /// Offset of send buffers from the alignment, in bytes.
    pub send_offset: u32,
    /// Buffers in the client's send ring; 0 lets the server choose. The server must limit the value: with large socket
    /// buffers and small sends it can reach millions.
    pub send_width: u32,
    /// Bytes of a request in request/response tests; netperf sends 1 by default.
    pub request_size: Option<u32>,
    /// SO_RCVBUF.
    pub receive_buffer: Option<u32>,
    /// Bytes of one receive in stream tests, at least 1.
    pub receive_size: Option<u32>,
    /// Alignment of receive buffers, in bytes.
    pub receive_alignment: u32,
    /// Offset of receive buffers from the alignment, in bytes.
    pub receive_offset: u32,
    /// Buffers in the client's receive ring; 0 lets the server choose.
    pub receive_width: u32,
    /// Bytes of a response in request/response tests.
    pub response_size: Option<u32>,
    /// Options.
    pub flags: Flags,
    /// Calibration of the server as known to the client, 0 if unknown.
    pub cpu_rate: f32,
    /// Duration.
    pub length: TestLength,
    /// Receive without copying.
    pub receive_avoid: bool,
    /// Send without copying.
    pub send_avoid: bool,
    /// Words to write in each buffer before it is sent.
    pub send_dirty: Option<u32>,
    /// Words to write in each buffer before receiving into it.
    pub receive_dirty: Option<u32>,
    /// Words to read in each buffer before receiving into it.
    pub receive_clean: Option<u32>,
    /// Port of the server's data socket, 0 for any.
    pub data_port: u16,
    /// Family of the data sockets.
    pub family: WireFamily,
    /// Kind of the data sockets.
    pub socket_type: WireSocketType,
    /// IP protocol number.
    pub protocol: u8,
    /// Direction of the data.
    pub direction: DataDirection,
    /// Port of the client's data socket, 0 if it is not bound yet.
    pub client_port: u16,
    /// Operations per burst, 0 for no pacing.
    pub interval_burst: u32,
    /// Time between bursts in µs.
    pub interval_us: u32,
    /// Address of the client's data socket.
    pub client_address: WireAddress,
    /// Address to which the server binds its data socket.
    pub server_address: WireAddress,
    /// SO_PRIORITY.
    pub priority: Option<u32>,
    /// IP_TOS or IPV6_TCLASS.
    pub tos: Option<u32>,
    /// Congestion control.
    pub congestion_control: Name<16>,
    /// File with the data to send. The client sets this name, so check it before opening the file.
    pub fill_file: Name<32>,
    /// Extension of a wirebench client.
    pub extension: Option<RequestExtension>,
}

impl Default for OmniRequest {
    /// Returns netperf's request for its default test, TCP_STREAM for 10 s.
    fn default() -> Self {
        Self {
            cpu: None,
            send_buffer: None,
            send_size: None,
            send_alignment: 8,
            send_offset: 0,
            send_width: 0,
            request_size: None,
            receive_buffer: None,
            receive_size: None,
            receive_alignment: 8,
            receive_offset: 0,
            receive_width: 0,
            response_size: None,
            flags: Flags::ROUTING_ALLOWED,
            cpu_rate: 0.0,
            length: TestLength::Seconds(10),
            receive_avoid: false,
            send_avoid: false,
            send_dirty: None,
            receive_dirty: None,
            receive_clean: None,
            data_port: 0,
            family: WireFamily::V4,
            socket_type: WireSocketType::Stream,
            protocol: 6,
            direction: DataDirection::ServerReceives,
            client_port: 0,
            interval_burst: 0,
            interval_us: 0,
            client_address: WireAddress::ANY,
            server_address: WireAddress::ANY,
            priority: None,
            tos: None,
            congestion_control: Name::NONE,
            fill_file: Name::NONE,
            extension: None,
        }
    }
}

wire_table! {
    OmniRequest {
        cpu: optional(1),
        send_buffer: size(2, "send_buf_size"),
        send_size: call_size(3, "send_size"),
        send_alignment: amount(4, "send_alignment"),
        send_offset: amount(5, "send_offset"),
        send_width: or_zero(6),
        request_size: size(7, "request_size"),
        receive_buffer: size(8, "recv_buf_size"),
        receive_size: call_size(9, "receive_size"),
        receive_alignment: amount(10, "recv_alignment"),
        receive_offset: amount(11, "recv_offset"),
        receive_width: or_zero(12),
        response_size: size(13, "response_size"),
        flags: flags(14),
        cpu_rate: float(15),
        length: length(16),
        receive_avoid: switch(17),
        send_avoid: switch(18),
        send_dirty: optional(19),
        receive_dirty: optional(20),
        receive_clean: optional(21),
        data_port: port(22, "data_port"),
        family: family(23, "ipfamily"),
        socket_type: socket_type(24, "socket_type"),
        protocol: protocol(25, "protocol"),
        direction: direction(26, "direction"),
        client_port: port(27, "netperf_port"),
        interval_burst: count(28, "interval_burst"),
        interval_us: count(29, "interval_usecs"),
        client_address: address(120),
        server_address: address(136),
        priority: late_optional(38),
        tos: late_optional(39),
        congestion_control: late_name(160),
        fill_file: late_name(176),
    } ..Self::default()
}

impl OmniRequest {
    fn read(words: Words<'_>) -> Result<Self, BadMessage> {
        Ok(Self {
            extension: RequestExtension::read(words)?,
            ..Self::read_table(words)?
        })
    }

    fn write(&self, generation: Generation) -> Vec<u8> {
        let mut writer = WordWriter::new(generation, OMNI, 0);
        self.write_table(&mut writer);
        if let Some(extension) = &self.extension {
            extension.write(&mut writer);
        }
        writer.finish()
    }
}
