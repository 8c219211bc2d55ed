//! Response to an omni request: the server is ready.

use crate::error::AnswerError;
use crate::extension::ResponseExtension;
use crate::flags::Flags;
use crate::framer::Generation;
use crate::request::OMNI_RESPONSE;
use crate::words::{WordWriter, Words, wire_table};

/// Parameters that the server has set up. Its timer runs from now on.
///
/// Sizes in bytes. `None` for values that do not apply, such as the send size if the server only receives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OmniResponse {
    /// SO_RCVBUF in effect.
    pub receive_buffer: Option<u32>,
    /// Bytes of one receive, or the request's value if the server does not receive.
    pub receive_size: Option<u32>,
    /// Buffers in the receive ring.
    pub receive_width: u32,
    /// SO_SNDBUF in effect.
    pub send_buffer: Option<u32>,
    /// Bytes of one send, or the request's value if the server does not send.
    pub send_size: Option<u32>,
    /// Buffers in the send ring.
    pub send_width: u32,
    /// [`Flags::NO_DELAY`] and [`Flags::MEASURE_CPU`] as granted.
    pub flags: Flags,
    /// Calibration, 100 on Linux; 0 unless CPU utilisation was requested.
    pub cpu_rate: f32,
    /// True if the server receives without copying.
    pub receive_avoid: bool,
    /// True if the server sends without copying.
    pub send_avoid: bool,
    /// Port to connect or send to.
    pub data_port: u16,
    /// Granted pacing: operations per burst, 0 for none.
    pub interval_burst: u32,
    /// Granted pacing: time between bursts in µs.
    pub interval_us: u32,
    /// SO_PRIORITY in effect.
    pub priority: Option<u32>,
    /// IP_TOS or IPV6_TCLASS in effect.
    pub tos: Option<u32>,
    /// Extension granted by a wirebench server.
    pub extension: Option<ResponseExtension>,
}

wire_table! {
    OmniResponse {
        receive_buffer: optional(2),
        receive_size: optional(3),
        receive_width: or_zero(4),
        send_buffer: optional(5),
        send_size: optional(6),
        send_width: or_zero(7),
        flags: flags(8),
        cpu_rate: float(9),
        receive_avoid: switch(11),
        send_avoid: switch(12),
        data_port: port(13, "data_port"),
        interval_burst: or_zero(14),
        interval_us: or_zero(15),
        priority: late_optional(18),
        tos: late_optional(19),
    } ..Self::default()
}

impl OmniResponse {
    /// Reads a message of either generation.
    ///
    /// # Errors
    /// The server refused, no generation has messages of this length, or the port is invalid.
    pub fn parse(message: &[u8]) -> Result<Self, AnswerError> {
        let words = Words::answer(message)?;
        Ok(Self {
            extension: ResponseExtension::read(words)?,
            ..Self::read_table(words)?
        })
    }

    /// Encodes the message. With 64 words it has no priority, TOS and extension.
    pub fn encode(&self, generation: Generation) -> Vec<u8> {
        let mut writer = WordWriter::new(generation, OMNI_RESPONSE, 0);
        self.write_table(&mut writer);
        if let Some(extension) = &self.extension {
            extension.write(&mut writer);
        }
        writer.finish()
    }
}
